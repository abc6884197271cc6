//! Tokens, secrets, certificates; `sanderling token` and `sanderling tls`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use sanderling_protocol::token::read_hex;
use sanderling_protocol::{ClusterId, TokenId};

use crate::units::Span;

/// What a server has.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Security options")]
pub(crate) struct Held {
    /// A file with the cluster's secret, that nobody else can read: callers need a token
    /// [default: nobody is asked who they are]
    #[arg(long, value_name = "FILE", env = "SANDERLING_SECRET_FILE", hide_env_values = true)]
    pub(crate) secret_file: Option<PathBuf>,
}

/// What a server has that listens.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Security options")]
pub(crate) struct Guard {
    /// What it has.
    #[command(flatten)]
    pub(crate) held: Held,
    /// The server's certificate, with those between it and its authority: serve TLS
    #[arg(
        long,
        value_name = "PEM",
        env = "SANDERLING_TLS_CERT",
        hide_env_values = true,
        requires_all = ["tls_key", "tls_ca"]
    )]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Its key, in a file that nobody else can read
    #[arg(
        long,
        value_name = "PEM",
        env = "SANDERLING_TLS_KEY",
        hide_env_values = true,
        requires = "tls_cert"
    )]
    pub(crate) tls_key: Option<PathBuf>,
    /// Listen beyond loopback although nobody is asked who they are, or everybody can listen in
    #[arg(long)]
    pub(crate) allow_unauthenticated: bool,
}

/// Make secrets and tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// Make a cluster's secret
    Secret(NewSecret),
    /// Make a token with the cluster's secret
    New(New),
    /// Ask the namenode for a token that allows less than one's own
    Mint(Mint),
    /// Take tokens back before they end, with all that were minted from them
    Revoke(Revoke),
    /// List the tokens that were taken back
    Revoked,
}

/// `token secret`.
#[derive(Debug, Args)]
pub(crate) struct NewSecret {
    /// Where to; nobody else will be able to read it
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
}

/// `token new`.
#[derive(Debug, Args)]
pub(crate) struct New {
    /// The file with the cluster's secret
    #[arg(long, value_name = "FILE", env = "SANDERLING_SECRET_FILE", hide_env_values = true)]
    pub(crate) secret_file: PathBuf,
    /// What its owner is: admin may do everything, client what --rights say
    #[arg(long, value_name = "ROLE", default_value = "client",
          value_parser = ["admin", "datanode", "manager", "client"])]
    pub(crate) role: String,
    /// Where its rights hold
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub(crate) subtree: String,
    /// What it allows there, of read, write, admin, metrics
    #[arg(long, value_name = "RIGHTS", value_delimiter = ',', default_value = "read,write")]
    pub(crate) rights: Vec<String>,
    /// How long it holds, at most 365d
    #[arg(long, value_name = "DURATION", default_value = "12h")]
    pub(crate) expires: Span,
    /// A name for the logs, and for `sanderling token revoke`
    #[arg(long, value_name = "NAME", default_value = "")]
    pub(crate) subject: String,
    /// The cluster in which it holds, 16 hexadecimal digits; or any: in all that have the secret
    /// [default: that of the namenode, which is asked]
    #[arg(long, value_name = "ID")]
    pub(crate) cluster: Option<Cluster>,
    /// Where to; nobody else will be able to read it [default: stdout]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

/// Where a token holds.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cluster {
    /// In every cluster with its secret.
    Any,
    /// In this one.
    One(ClusterId),
}

impl FromStr for Cluster {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || read_hex(text).map(|id| Self::One(ClusterId(id)));
        let any = (text == "any").then_some(Self::Any);
        any.or_else(read).ok_or("16 hexadecimal digits, as /healthz of a server shows, or any")
    }
}

/// `token revoke`.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("tokens").required(true)))]
pub(crate) struct Revoke {
    /// All tokens of this subject, those that are still to be made among them
    #[arg(long, value_name = "NAME", group = "tokens")]
    pub(crate) subject: Option<String>,
    /// The token with this number, which `token new --json` and `token mint --json` show
    #[arg(long, value_name = "ID", group = "tokens")]
    pub(crate) id: Option<TokenId>,
    /// The token in this file
    #[arg(long, value_name = "FILE", group = "tokens")]
    pub(crate) file: Option<PathBuf>,
    /// How long such tokens may still hold: the revocation is kept for a day more
    /// [default: 365d, as long as any token holds; with --file until the token ends]
    #[arg(long, value_name = "DURATION", conflicts_with = "undo")]
    pub(crate) expires: Option<Span>,
    /// Let them hold again
    #[arg(long)]
    pub(crate) undo: bool,
}

/// `token mint`.
#[derive(Debug, Args)]
pub(crate) struct Mint {
    /// Where its rights hold: one's own subtree or one in it, such as a job's
    #[arg(long, value_name = "PATH")]
    pub(crate) subtree: String,
    /// What it allows there, of read, write, admin, metrics
    #[arg(long, value_name = "RIGHTS", value_delimiter = ',', default_value = "read")]
    pub(crate) rights: Vec<String>,
    /// How long it holds, at most as long as one's own
    #[arg(long, value_name = "DURATION", default_value = "1h")]
    pub(crate) expires: Span,
    /// A name for the logs
    #[arg(long, value_name = "NAME", default_value = "")]
    pub(crate) subject: String,
    /// Where to; nobody else will be able to read it [default: stdout]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

/// Make certificates.
#[derive(Debug, Subcommand)]
pub(crate) enum Tls {
    /// Make an authority and a certificate for the cluster's servers
    New(NewTls),
    /// Make another certificate for the cluster's servers, by an authority of `tls new`
    Renew(RenewTls),
}

/// `tls new`.
#[derive(Debug, Args)]
pub(crate) struct NewTls {
    /// The directory to write ca.pem, ca.key, node.pem and node.key to
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// How long the certificates hold
    #[arg(long, value_name = "DURATION", default_value = "365d")]
    pub(crate) expires: Span,
}

/// `tls renew`.
#[derive(Debug, Args)]
pub(crate) struct RenewTls {
    /// The directory with the authority's ca.pem and ca.key
    #[arg(long, value_name = "DIR")]
    pub(crate) authority: PathBuf,
    /// The directory to write node.pem and node.key to
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// How long the certificate holds, at most as long as the authority
    #[arg(long, value_name = "DURATION", default_value = "365d")]
    pub(crate) expires: Span,
}
