//! `sanderling gateway s3`.

use std::num::{NonZeroUsize, ParseIntError};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand};
use sanderling_client::{ClientConfig, ClientError};
use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_command::global::Global;
use sanderling_command::ready::Ready;
use sanderling_command::server::ProcessArgs;
use sanderling_command::units::Span;
use sanderling_command::{credentials, refused, server};
use sanderling_gateway::{
    AccessKeys, GatewayOptions, GatewayServer, GatewayStartError, S3_ADDRESS, S3_HTTP_ADDRESS,
};
use sanderling_protocol::Path;
use thiserror::Error;

use super::console::ConsoleArgs;
use super::process::{Signals, exit_of, keep_private, not_started, within};
use crate::config_file::ConfigArgs;
use crate::listen_address::{ListenAddress, PageAddress};
use crate::security::TlsFiles;

/// The interfaces for other tools.
#[derive(Debug, Subcommand)]
pub enum Gateway {
    /// Serve S3: buckets are directories, keys are paths
    S3(Box<S3>),
}

/// `sanderling gateway s3`.
#[derive(Debug, Args)]
#[command(after_help = "\
The file of keys, readable only by its owner (chmod 600):
  {\"keys\": [
    {\"access_key\": \"etl\", \"secret_key\": \"...\"},
    {\"access_key\": \"viewer\", \"secret_key\": \"...\", \"rights\": \"read\",
     \"buckets\": [\"results\"], \"prefix\": \"daily/\"}
  ]}
Without it, on loopback, the access key and the secret key are both: sanderling

  export AWS_ACCESS_KEY_ID=sanderling AWS_SECRET_ACCESS_KEY=sanderling AWS_REGION=us-east-1
  aws --endpoint-url http://127.0.0.1:7670 s3 mb s3://data")]
pub struct S3 {
    /// The address to serve S3 at; port 0 selects a free port
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = S3_ADDRESS,
        help_heading = "Network options"
    )]
    pub(crate) listen: ListenAddress,
    /// The address to serve health and metrics at, or `none`
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = S3_HTTP_ADDRESS,
        help_heading = "Network options"
    )]
    pub(crate) http: PageAddress,
    /// The console.
    #[command(flatten)]
    pub(crate) console: ConsoleArgs,
    /// Access keys and what they may do, read again when the file changes [default: a publicly
    /// known pair, on loopback alone]
    #[arg(
        long,
        value_name = "FILE",
        env = "SANDERLING_S3_KEYS",
        hide_env_values = true,
        help_heading = "Security options"
    )]
    pub(crate) keys: Option<PathBuf>,
    /// The directory whose directories are the buckets
    #[arg(long, value_name = "PATH", default_value = "/", help_heading = "Storage options")]
    pub(crate) root: Path,
    /// A host name that a bucket's name may precede: bucket.DOMAIN; may be repeated
    #[arg(long, value_name = "DOMAIN", help_heading = "Network options")]
    pub(crate) domain: Vec<String>,
    /// How long an unfinished multipart upload is kept to which nothing is added
    #[arg(long, value_name = "DURATION", default_value = "24h", help_heading = "Storage options")]
    pub(crate) upload_ttl: Span,
    /// Most connections; a further one replaces an idle one, or waits
    #[arg(long, value_name = "NUMBER", default_value = "256", help_heading = "Network options")]
    pub(crate) connections: ConnectionsMax,
    /// Idle timeout: how long a client whose bytes are due may send or receive nothing
    #[arg(long, value_name = "DURATION", default_value = "60s", help_heading = "Network options")]
    pub(crate) silence: Span,
    /// The certificate and its key.
    #[command(flatten)]
    tls: TlsFiles,
    /// Listen beyond loopback although traffic is not encrypted
    #[arg(long, help_heading = "Security options")]
    pub(crate) allow_unauthenticated: bool,
    /// The file with further flags.
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// The process.
    #[command(flatten)]
    pub(crate) process: ProcessArgs,
}

/// How many connections there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConnectionsMax(NonZeroUsize);

/// Why a text is no number of connections.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("it is a number, at least 1")]
pub(crate) struct ConnectionsError {
    #[from]
    source: ParseIntError,
}

impl FromStr for ConnectionsMax {
    type Err = ConnectionsError;

    fn from_str(text: &str) -> Result<Self, ConnectionsError> {
        Ok(Self(text.parse()?))
    }
}

/// Serves the interface until SIGTERM or SIGINT.
///
/// # Errors
/// It cannot start: the failure names the flag or the address, and the next command.
pub fn run(global: &Global, command: Gateway) -> Result<(), Failure> {
    keep_private();
    let Gateway::S3(args) = command;
    let options = options(global, &args)?;
    let expiries = options.expiries();
    server::run(
        global,
        &args.process.clone(),
        expiries,
        serve(options, *args, global.timeout.map(|span| span.0)),
    )
}

fn options(global: &Global, args: &S3) -> Result<GatewayOptions, Failure> {
    let keys = args.keys.as_deref().map(AccessKeys::read).transpose().map_err(|error| {
        Failure::caused(Exit::Usage, FailureKind::BadKeys, error)
            .next("sanderling gateway s3 --help")
    })?;
    let credentials = credentials::shown(global)?;
    let tls = args.tls.read()?;
    let console = args.console.url(&global.namenode, credentials.tls.is_some());
    Ok(GatewayOptions {
        client: ClientConfig { credentials, ..ClientConfig::default() },
        namenode: global.namenode.clone(),
        listen: args.listen.0.clone(),
        http_listen: args.http.0.clone(),
        console,
        root: args.root.clone(),
        keys,
        tls,
        domains: args.domain.clone(),
        allow_unauthenticated: args.allow_unauthenticated,
        upload_ttl: args.upload_ttl.0,
        connections_max: args.connections.0.get(),
        idle_timeout: args.silence.0,
    })
}

async fn serve(options: GatewayOptions, args: S3, limit: Option<Duration>) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let server =
        within(limit, "S3 gateway", GatewayServer::start(options)).await?.map_err(start_failure)?;
    let http = server.http_address().map(|address| address.to_string());
    let ready = Ready::here(server.address().to_string(), http, Some(server.cluster()));
    ready.write(args.process.ready_file.as_deref())?;
    tracing::info!(address = %server.address(), "the S3 gateway serves");
    signals.next().await;
    server.stop().await;
    Ok(())
}

/// Describes a failed start.
fn start_failure(error: GatewayStartError) -> Failure {
    let failure = not_started("S3 gateway", &error, next(&error));
    let exit = match &error {
        GatewayStartError::Cluster(ClientError::Call { cause, .. }) => exit_of(cause),
        GatewayStartError::Cluster(ClientError::Refused(refusal)) => refused::exit(refusal),
        GatewayStartError::Cluster(ClientError::TimedOut { .. }) => Exit::Unavailable,
        _ => failure.exit,
    };
    Failure { exit, ..failure }.with_source(error)
}

const fn next(error: &GatewayStartError) -> &'static str {
    match error {
        GatewayStartError::Listen(_) => {
            "the same with another --listen and --http, or sanderling doctor"
        }
        GatewayStartError::Cluster(_) => {
            "sanderling local start, or the same with another --namenode"
        }
        GatewayStartError::NoKeys { .. } | GatewayStartError::Plaintext { .. } => {
            "sanderling gateway s3 --help"
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    #[test]
    fn connections_are_a_number_above_0() {
        assert_eq!("1".parse(), Ok(ConnectionsMax(NonZeroUsize::MIN)));
        for text in ["0", "-1", "many", ""] {
            let error = text.parse::<ConnectionsMax>().expect_err(text);
            assert_eq!(error.to_string(), "it is a number, at least 1");
            assert!(error.source().is_some_and(|it| it.is::<ParseIntError>()));
        }
    }
}
