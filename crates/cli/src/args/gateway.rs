//! The doors for other tools: `sanderling gateway`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use sanderling_protocol::Path;

use crate::server::Process;
use crate::units::Span;

/// The doors for other tools.
#[derive(Debug, Subcommand)]
pub(crate) enum Gateway {
    /// Serve S3: buckets are directories, keys are paths
    S3(Box<S3>),
}

/// `sanderling gateway s3`.
#[derive(Debug, Args)]
#[command(after_help = "\
The file of keys, readable by nobody else (chmod 600):
  {\"keys\": [
    {\"access_key\": \"etl\", \"secret_key\": \"...\"},
    {\"access_key\": \"viewer\", \"secret_key\": \"...\", \"rights\": \"read\",
     \"buckets\": [\"results\"], \"prefix\": \"daily/\"}
  ]}
Without it, on loopback, the access key and the secret key are both: sanderling

  export AWS_ACCESS_KEY_ID=sanderling AWS_SECRET_ACCESS_KEY=sanderling AWS_REGION=us-east-1
  aws --endpoint-url http://127.0.0.1:7670 s3 mb s3://data")]
pub(crate) struct S3 {
    /// Where to serve S3; port 0 takes any free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7670")]
    pub(crate) listen: String,
    /// Where to serve health and metrics; `none` for nowhere
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7671")]
    pub(crate) http: String,
    /// Access keys and what they may do, read again when the file changes [default: a pair that
    /// everybody knows, on loopback alone]
    #[arg(long, value_name = "FILE", env = "SANDERLING_S3_KEYS", hide_env_values = true)]
    pub(crate) keys: Option<PathBuf>,
    /// The directory whose directories are the buckets
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub(crate) root: Path,
    /// A host name in front of which a bucket's may stand: bucket.DOMAIN; may be repeated
    #[arg(long, value_name = "DOMAIN")]
    pub(crate) domain: Vec<String>,
    /// How long an upload in parts is kept that nothing is added to
    #[arg(long, value_name = "DURATION", default_value = "24h")]
    pub(crate) upload_ttl: Span,
    /// Most connections; a further one takes the place of an idle one, or waits
    #[arg(long, value_name = "NUMBER", default_value_t = 256)]
    pub(crate) connections: usize,
    /// How long a client may send or take nothing while it is its turn
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    pub(crate) silence: Span,
    /// The gateway's certificate, with those between it and its authority: serve S3 over TLS
    #[arg(
        long,
        value_name = "PEM",
        env = "SANDERLING_TLS_CERT",
        hide_env_values = true,
        requires = "tls_key"
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
    /// Listen beyond loopback although everybody can listen in
    #[arg(long)]
    pub(crate) allow_unauthenticated: bool,
    /// The process.
    #[command(flatten)]
    pub(crate) process: Process,
}
