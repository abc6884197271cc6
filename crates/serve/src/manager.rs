//! `sanderling manager`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clap::Args;
use sanderling_command::failure::Failure;
use sanderling_command::global::Global;
use sanderling_command::policy::PolicyName;
use sanderling_command::ready::Ready;
use sanderling_command::server;
use sanderling_command::server::ProcessArgs;
use sanderling_manager::{ManagerOptions, ManagerServer};
use sanderling_protocol::message::Role;
use sanderling_transport::{
    Credentials, Expiries, Security, TokenSource, listen, listen_there_or_free,
};

use super::background::BackgroundArgs;
use super::console::ConsoleArgs;
use super::process::{Signals, keep_private, not_started};
use crate::config_file::ConfigArgs;
use crate::listen_address::PageAddress;
use crate::security;
use crate::security::CallerCredentials;

/// Where a manager serves HTTP unless a flag names another address.
const HTTP_DEFAULT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7621);

/// `sanderling manager`.
#[derive(Debug, Clone, Args)]
pub struct ManagerArgs {
    /// The address to serve health and metrics at, on loopback, or `none` [default: 127.0.0.1:7621,
    /// or a free port while another process has that one]
    #[arg(long, value_name = "ADDRESS", help_heading = "Network options")]
    pub(crate) http: Option<PageAddress>,
    /// The console.
    #[command(flatten)]
    pub(crate) console: ConsoleArgs,
    /// The manager's name, for the events [default: manager-PID]
    #[arg(long, help_heading = "Cluster options")]
    pub(crate) name: Option<String>,
    /// How notices are handled: the same for all servers of a cluster
    #[arg(
        long,
        value_enum,
        value_name = "POLICY",
        default_value_t = PolicyName::Sanderling,
        help_heading = "Cluster options"
    )]
    pub(crate) policy: PolicyName,
    /// What it does without a notice.
    #[command(flatten)]
    pub(crate) background: BackgroundArgs,
    /// What it has.
    #[command(flatten)]
    pub(crate) held: CallerCredentials,
    /// The file with further flags.
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// The process.
    #[command(flatten)]
    pub(crate) process: ProcessArgs,
}

/// Runs the manager on its own until SIGTERM or SIGINT. It waits while another one leads.
///
/// # Errors
/// The ready file cannot be written: correct its path. The credentials cannot be read: the failure
/// names the file.
pub fn run(global: &Global, args: ManagerArgs) -> Result<(), Failure> {
    keep_private();
    let namenode = global.namenode.clone();
    let credentials = security::caller(global, &args.held, Role::Manager)?;
    let secret = match &credentials.token {
        Some(TokenSource::Own(secret, _)) => Some(secret.clone()),
        _ => None,
    };
    let expiries = Expiries::new(None, credentials.tls.clone()).with_secret(secret);
    let server = serve(namenode, credentials, expiries.clone(), args.clone());
    server::run(global, &args.process, expiries, server)
}

async fn serve(
    namenode: String,
    credentials: Credentials,
    expiries: Expiries,
    args: ManagerArgs,
) -> Result<(), Failure> {
    // That endpoint needs no token, so it listens on loopback alone.
    let security = Security::default();
    let pages = match &args.http {
        None => Some(listen_there_or_free(HTTP_DEFAULT, &security).await),
        Some(PageAddress(None)) => None,
        Some(PageAddress(Some(address))) => Some(listen(address, &security).await),
    };
    let pages = match pages {
        Some(listener) => {
            let next = "the same with another --http, on loopback";
            Some(listener.map_err(|error| not_started("manager", &error, next))?)
        }
        None => None,
    };
    let http = pages.as_ref().and_then(|listener| listener.local_addr().ok());
    let console = args.console.url(&namenode, credentials.tls.is_some());
    let mut signals = Signals::listen()?;
    let name = args.name.unwrap_or_else(|| format!("manager-{}", std::process::id()));
    let mechanism = args.policy.into();
    let mut server = ManagerServer::start(ManagerOptions {
        namenode,
        name,
        credentials,
        mechanism,
        background: (&args.background).into(),
        ..ManagerOptions::default()
    });
    if let Some(listener) = pages {
        server.serve_pages(listener, expiries, console);
    }
    let http = http.map(|address| address.to_string());
    Ready::here(String::new(), http, None).write(args.process.ready_file.as_deref())?;
    signals.next().await;
    server.stop().await;
    Ok(())
}
