//! `sanderling manager`.

use sanderling_manager::{ManagerOptions, ManagerServer};
use sanderling_protocol::message::Role;
use sanderling_transport::{Credentials, Expiries};

use super::Signals;
use crate::args::Global;
use crate::args::serve::Manager;
use crate::failure::Failure;
use crate::ready::Ready;
use crate::{security, server};

/// Runs the manager on its own until SIGTERM or SIGINT. It waits while another one acts.
///
/// # Errors
/// The ready file cannot be written.
pub(crate) fn run(global: &Global, args: Manager) -> Result<(), Failure> {
    super::keep_private();
    let namenode = global.namenode.clone();
    let credentials = security::caller(global, &args.held, Role::Manager)?;
    let expiries = Expiries::new(None, credentials.tls.clone());
    server::run(global, &args.process.clone(), expiries, serve(namenode, credentials, args))
}

async fn serve(namenode: String, credentials: Credentials, args: Manager) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let name = args.name.unwrap_or_else(|| format!("manager-{}", std::process::id()));
    let mechanism = args.policy.into();
    let server = ManagerServer::start(ManagerOptions {
        namenode,
        name,
        credentials,
        mechanism,
        background: (&args.background).into(),
        ..ManagerOptions::default()
    });
    Ready::here(String::new(), None, None).write(args.process.ready_file.as_deref())?;
    signals.next().await;
    server.stop().await;
    Ok(())
}
