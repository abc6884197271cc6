//! `sanderling manager`.

use clap::Args;
use sanderling_manager::{ManagerOptions, ManagerServer};
use sanderling_protocol::message::Role;
use sanderling_transport::{Credentials, Expiries, Security, listen};

use super::background::BackgroundArgs;
use super::process::{Signals, keep_private, not_started, somewhere};
use crate::failure::Failure;
use crate::global::Global;
use crate::policy::PolicyName;
use crate::ready::Ready;
use crate::security::ServerCredentials;
use crate::server::ProcessArgs;
use crate::{security, server};

/// `sanderling manager`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ManagerArgs {
    /// The address to serve health and metrics at, on loopback, or `none`
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub(crate) http: String,
    /// The manager's name, for the events [default: manager-PID]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// How notices are handled: the same for all servers of a cluster
    #[arg(long, value_enum, value_name = "POLICY", default_value_t = PolicyName::Sanderling)]
    pub(crate) policy: PolicyName,
    /// What it does without a notice.
    #[command(flatten)]
    pub(crate) background: BackgroundArgs,
    /// What it has.
    #[command(flatten)]
    pub(crate) held: ServerCredentials,
    /// The process.
    #[command(flatten)]
    pub(crate) process: ProcessArgs,
}

/// Runs the manager on its own until SIGTERM or SIGINT. It waits while another one acts.
///
/// # Errors
/// The ready file cannot be written.
pub(crate) fn run(global: &Global, args: ManagerArgs) -> Result<(), Failure> {
    keep_private();
    let namenode = global.namenode.clone();
    let credentials = security::caller(global, &args.held, Role::Manager)?;
    let expiries = Expiries::new(None, credentials.tls.clone());
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
    let pages = match somewhere(&args.http) {
        Some(address) => {
            let listener = listen(&address, &Security::default()).await;
            let next = "the same with another --http, on loopback";
            Some(listener.map_err(|error| not_started("manager", &error, next))?)
        }
        None => None,
    };
    let http = pages.as_ref().and_then(|listener| listener.local_addr().ok());
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
        server.serve_pages(listener, expiries);
    }
    let http = http.map(|address| address.to_string());
    Ready::here(String::new(), http, None).write(args.process.ready_file.as_deref())?;
    signals.next().await;
    server.stop().await;
    Ok(())
}
