//! `sanderling token`: secrets and tokens.

mod revoke;

use std::path::Path;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand};
use data_encoding::HEXLOWER;
use ring::rand::{SecureRandom, SystemRandom};
use sanderling_command::cluster::first_address;
use sanderling_command::credentials::{peers, secret};
use sanderling_command::failure::{Exit, Failure, FailureKind, RefusalKind};
use sanderling_command::global::Global;
use sanderling_command::output::Output;
use sanderling_command::refused;
use sanderling_command::session::{self, Session};
use sanderling_command::units::Span;
use sanderling_core::access::{
    Claims, Lineage, Rights, SUBJECT_BYTES_MAX, TokenRole, UnknownRight, parts, right_words,
};
use sanderling_protocol::message::{Hello, Role};
use sanderling_protocol::token::MintToken;
use sanderling_protocol::token::read_hex;
use sanderling_protocol::{ClusterId, Millis, Refusal, TokenId};
use sanderling_transport::{
    CallError, Connection, ConnectionOptions, Credentials, Secret, TokenSource, is_loopback,
    unix_seconds,
};
use serde_json::json;
use thiserror::Error;

use crate::private_file::{replace_private, write_private};
use revoke::Revoke;

/// Make secrets and tokens.
#[derive(Debug, Subcommand)]
pub enum Token {
    /// Make a cluster's secret
    Secret(NewSecret),
    /// Make a token with the cluster's secret
    New(New),
    /// Request a token from the namenode that allows less than one's own
    Mint(Mint),
    /// Revoke tokens before they end, with all that were minted from them
    Revoke(Revoke),
    /// List the revoked tokens
    Revoked,
}

/// `token secret`.
#[derive(Debug, Args)]
pub struct NewSecret {
    /// The file to write; only its owner will be able to read it
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
}

/// `token new`.
#[derive(Debug, Args)]
pub struct New {
    /// The file with the cluster's secret
    #[arg(long, value_name = "FILE", env = "SANDERLING_SECRET_FILE", hide_env_values = true)]
    pub(crate) secret_file: PathBuf,
    /// What its owner is: admin may do everything, client what --rights allow
    #[arg(long, value_name = "ROLE", default_value = "client",
          value_parser = ["admin", "datanode", "manager", "client"])]
    pub(crate) role: String,
    /// Where its rights apply
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub(crate) subtree: String,
    /// What it allows there, of read, write, admin, metrics [default: read,write]
    #[arg(long, value_name = "RIGHTS", value_delimiter = ',')]
    pub(crate) rights: Option<Vec<String>>,
    /// How long it is valid, at most 365d
    #[arg(long, value_name = "DURATION", default_value = "12h")]
    pub(crate) expires: Span,
    /// A name for the logs, and for `sanderling token revoke`
    #[arg(long, value_name = "NAME", default_value = "")]
    pub(crate) subject: String,
    /// The cluster in which it is valid, 16 hexadecimal digits; or any: in all that have the secret
    /// [default: that of the namenode, which this command requests]
    #[arg(long, value_name = "ID")]
    pub(crate) cluster: Option<Cluster>,
    /// The file to write; only its owner will be able to read it [default: stdout]
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

/// A text names no cluster of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("16 hexadecimal digits, as /healthz of a server shows, or any")]
pub(crate) struct ClusterChoiceError;

impl FromStr for Cluster {
    type Err = ClusterChoiceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || read_hex(text).map(|id| Self::One(ClusterId(id)));
        let any = (text == "any").then_some(Self::Any);
        any.or_else(read).ok_or(ClusterChoiceError)
    }
}

/// `token mint`.
#[derive(Debug, Args)]
pub struct Mint {
    /// Where its rights apply: the subtree of one's own token or one in it, such as a job's
    #[arg(long, value_name = "PATH")]
    pub(crate) subtree: String,
    /// What it allows there, of read, write, admin, metrics
    #[arg(long, value_name = "RIGHTS", value_delimiter = ',', default_value = "read")]
    pub(crate) rights: Vec<String>,
    /// How long it is valid, at most as long as one's own
    #[arg(long, value_name = "DURATION", default_value = "1h")]
    pub(crate) expires: Span,
    /// A name for the logs
    #[arg(long, value_name = "NAME", default_value = "")]
    pub(crate) subject: String,
    /// The file to write; only its owner will be able to read it [default: stdout]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

/// Bytes of a new secret, before they are written as text: as many as the hash has (RFC 7518,
/// section 3.2).
const SECRET_BYTES: usize = 32;

/// How long the namenode may take to report which cluster it serves: as long as a command's first
/// greeting (`GREETING_TIMEOUT` of `command::session`).
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// How long the token holds, in seconds, with which the namenode's cluster is requested. It allows
/// nothing, and this machine's clock may be behind that of the namenode by hours at most. Chosen,
/// not measured.
const REQUEST_TOKEN_SECONDS: u64 = 3600;

/// What a token of an application allows, unless its rights are given.
const RIGHTS_DEFAULT: Rights = Rights::READ.and(Rights::WRITE);

/// How long a token holds at most: a year, as long as its revocation may have to be kept. Chosen,
/// not measured: 1,024 revocations are kept (`REVOCATIONS_MAX`).
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// Runs `sanderling token ...`.
///
/// # Errors
/// A file cannot be read or written, or the arguments make no token: end the command with the
/// failure, which names what to correct.
pub fn run(global: &Global, command: Token) -> Result<(), Failure> {
    let output = Output { is_json: global.json, is_quiet: global.quiet, task: None };
    match command {
        Token::Secret(args) => new_secret(output, &args),
        Token::New(args) => new(global, output, &args),
        Token::Mint(args) => session::run(global, |session| mint(session, args)),
        Token::Revoke(args) => session::run(global, |session| revoke::revoke(session, args)),
        Token::Revoked => session::run(global, revoke::list),
    }
}

fn new_secret(output: Output, args: &NewSecret) -> Result<(), Failure> {
    write_private(&args.out, random_text()?.as_bytes())?;
    output.note(format_args!("wrote a new secret to {}", args.out.display()));
    output.note(format_args!("export SANDERLING_SECRET_FILE={}", args.out.display()));
    output.result(&json!({ "secret_file": args.out }), |_| Ok(()))
}

/// Returns a line of random letters for a secret.
///
/// # Errors
/// The system gives no random numbers: end the command with it.
pub fn random_text() -> Result<String, Failure> {
    let bytes: [u8; SECRET_BYTES] = random_bytes()?;
    Ok(HEXLOWER.encode(&bytes) + "\n")
}

fn random_bytes<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| {
        Failure::new(Exit::Failure, FailureKind::Random, "the system gives no random numbers")
    })?;
    Ok(bytes)
}

fn new(global: &Global, output: Output, args: &New) -> Result<(), Failure> {
    let mut claims = claims(args)?;
    let secret = secret(&args.secret_file)?;
    claims.lineage.cluster = match args.cluster {
        Some(Cluster::Any) => None,
        Some(Cluster::One(cluster)) => Some(cluster),
        None => Some(cluster(global, &secret)?),
    };
    let token = secret.sign(&claims);
    given(output, document(&claims), &token, args.out.as_deref())
}

/// Returns a token's claims.
fn document(claims: &Claims) -> serde_json::Value {
    json!({
        "id": claims.lineage.id.map(|id| id.to_string()),
        "cluster": claims.lineage.cluster.map(|cluster| format!("{:016x}", cluster.0)),
        "subject": claims.subject,
        "role": claims.role.word(),
        "subtree": claims.subtree,
        "rights": claims.rights.words().collect::<Vec<_>>(),
        "expires_at_unix_seconds": claims.expires_at,
    })
}

/// Returns the token with which the namenode's cluster is requested. The greeting needs no right,
/// and whatever listens at the address receives the token.
fn request_token(secret: &Secret) -> sanderling_protocol::Token {
    secret.sign(&Claims {
        subject: "token new".to_owned(),
        role: TokenRole::Client,
        subtree: sanderling_protocol::Path::root(),
        rights: Rights::default(),
        expires_at: unix_seconds() + REQUEST_TOKEN_SECONDS,
        lineage: Lineage::default(),
    })
}

/// Requests from the namenode which cluster it serves, with a token made from the secret.
fn cluster(global: &Global, secret: &Secret) -> Result<ClusterId, Failure> {
    // `/healthz` of the namenode shows the number.
    let next = "the same with --cluster ID, or the same with --namenode ADDRESS";
    let (address, tls) = (first_address(&global.namenode), peers(global)?);
    if tls.is_none() && !is_loopback(address) {
        let cause = format!("a token would go to {address} without encryption");
        return Err(Failure::new(Exit::Failure, FailureKind::Credentials, cause)
            .next("the same with --tls-ca PEM, or the same with --cluster ID"));
    }
    let token = Some(TokenSource::Given(request_token(secret)));
    let credentials = Credentials { token, tls };
    let options = ConnectionOptions { credentials, ..ConnectionOptions::default() };
    let hello = Hello { role: Role::Client, cluster: None, node: None, token: None };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Failure::caused(Exit::Failure, FailureKind::Runtime, error))?;
    let asked = runtime.block_on(async {
        let deadline = tokio::time::Instant::now() + ANSWER_TIMEOUT;
        Connection::connect_with(address, hello, deadline, &options).await
    });
    match asked {
        Ok((_, reply)) => reply.cluster.ok_or_else(|| {
            let cause = "the server has no cluster yet";
            Failure::new(Exit::Failure, RefusalKind::NotFound, cause).next(next)
        }),
        Err(CallError::Refused(refusal)) => {
            Err(refused::call(&CallError::Refused(refusal)).next(next))
        }
        Err(error) => {
            let cause = format!("the namenode does not report its cluster: {error}");
            Err(Failure::new(Exit::Unavailable, FailureKind::Unreachable, cause)
                .with_source(error)
                .next(next))
        }
    }
}

async fn mint(session: Session, args: Mint) -> Result<(), Failure> {
    let subtree = args.subtree.parse().map_err(|refusal: Refusal| Failure::usage(&refusal))?;
    let Mint { subject, rights, .. } = args;
    let lifetime = Millis::from(args.expires.0);
    let client = session.client().await?;
    let asked = MintToken { subject, subtree, rights, lifetime };
    let token = client.mint_token(asked).await;
    let token = token.map_err(|error| refused::client(&error, &session.namenode))?;
    let claims = parts(&token).and_then(|parts| parts.claims());
    let claims =
        claims.map_err(|why| Failure::caused(Exit::Failure, FailureKind::BadReply, why))?;
    given(session.output, document(&claims), &token, args.out.as_deref())
}

/// Refuses to replace what is no token, such as the secret that makes them.
fn check_replaced(path: &Path) -> Result<(), Failure> {
    let refused = |what: &str| {
        let cause = format!("{} {what}", path.display());
        let other = refused::shell_word(&format!("{}.token", path.display()));
        let failure = Failure::new(Exit::Failure, FailureKind::LocalFile, cause);
        Err(failure.next(format_args!("the same with --out {other}")))
    };
    match std::fs::metadata(path) {
        Ok(found) if !found.is_file() => return refused("is no regular file"),
        Ok(_) => {}
        // It is new, or what is wrong is reported when it is written.
        Err(_) => return Ok(()),
    }
    let text = std::fs::read_to_string(path).map_err(|error| Failure::file(path, error))?;
    let token = sanderling_protocol::Token::new(&text);
    let is_token = text.trim().is_empty() || parts(&token).and_then(|it| it.claims()).is_ok();
    if is_token { Ok(()) } else { refused("exists and holds no token") }
}

/// Writes a token to the given file or to stdout.
fn given(
    output: Output,
    mut document: serde_json::Value,
    token: &sanderling_protocol::Token,
    out: Option<&Path>,
) -> Result<(), Failure> {
    match out {
        Some(path) => {
            check_replaced(path)?;
            replace_private(path, format!("{}\n", token.reveal()).as_bytes())?;
            output.note(format_args!("wrote a token to {}", path.display()));
            output.note(format_args!("export SANDERLING_TOKEN_FILE={}", path.display()));
            output.result(&document, |_| Ok(()))
        }
        None => {
            document["token"] = token.reveal().into();
            output.result(&document, |writer| writeln!(writer, "{}", token.reveal()))
        }
    }
}

fn claims(args: &New) -> Result<Claims, Failure> {
    let part = TokenRole::from_word(&args.role).expect("the command line accepts only these roles");
    let words = args.rights.as_ref().map(|words| words.iter().map(String::as_str));
    let given = words.map(Rights::of_words).transpose().map_err(|UnknownRight { word }| {
        Failure::usage(format_args!("{word:?} is no right: give some of {}", right_words()))
            .next(format_args!("the same with --rights {}", valid_rights(args)))
    })?;
    let subtree: sanderling_protocol::Path =
        args.subtree.parse().map_err(|refusal| Failure::usage(&refusal))?;
    if part != TokenRole::Client && !subtree.is_root() {
        let cause = format!("a token of role {part} holds everywhere: leave --subtree out");
        return Err(Failure::usage(cause).next("the same without --subtree PATH"));
    }
    if part != TokenRole::Client && given.is_some() {
        let cause = format!("a token of role {part} has the rights of it: leave --rights out");
        return Err(Failure::usage(cause).next("the same without --rights RIGHTS"));
    }
    let own = if part == TokenRole::Client { RIGHTS_DEFAULT } else { Rights::ALL };
    let rights = given.unwrap_or(own);
    if args.expires.0 > LONGEST {
        let cause = "a token holds for 365 days at most: --expires 365d";
        return Err(Failure::usage(cause).next("the same with --expires 365d"));
    }
    if args.subject.len() > SUBJECT_BYTES_MAX {
        let cause = format!("a subject has at most {SUBJECT_BYTES_MAX} bytes");
        return Err(Failure::usage(cause).next("the same with a shorter --subject"));
    }
    let expires_at = unix_seconds().saturating_add(args.expires.0.as_secs().max(1));
    let lineage = Lineage { id: Some(token_id()?), ..Lineage::default() };
    Ok(Claims { subject: args.subject.clone(), role: part, subtree, rights, expires_at, lineage })
}

/// Returns those of the given words that name rights, or those that a token has by default.
fn valid_rights(args: &New) -> String {
    let words = args.rights.iter().flatten().map(String::as_str);
    let valid: Vec<&str> = words.filter(|word| Rights::of_words([*word]).is_ok()).collect();
    if valid.is_empty() {
        return RIGHTS_DEFAULT.words().collect::<Vec<_>>().join(",");
    }
    valid.join(",")
}

/// Draws a number for a new token.
///
/// # Errors
/// As [`random_text`].
pub fn token_id() -> Result<TokenId, Failure> {
    random_bytes().map(|bytes| TokenId(u64::from_le_bytes(bytes)))
}
