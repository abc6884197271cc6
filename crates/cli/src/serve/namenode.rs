//! `sanderling namenode`.

use sanderling_core::Mechanism;
use sanderling_core::preemption::{Model, Spec};
use sanderling_manager::{ManagerOptions, ManagerServer};
use sanderling_namenode::{NamenodeOptions, NamenodeServer, StartError, Sync};
use sanderling_protocol::Nonce;
use sanderling_protocol::message::Role;
use sanderling_transport::Security;

use super::ready::Ready;
use super::{Signals, not_started, somewhere};
use crate::args::Global;
use crate::args::serve::{Namenode, SyncMode};
use crate::failure::{Exit, Failure};
use crate::security;

/// Serves the catalog until SIGTERM or SIGINT.
///
/// # Errors
/// It cannot start, or its journal has failed.
pub(crate) fn run(global: &Global, args: Namenode) -> Result<(), Failure> {
    let security = security::guard(global, &args.guard)?;
    super::server(global, &args.process.clone(), serve(args, security))
}

async fn serve(args: Namenode, security: Security) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let mechanism = Mechanism::from(args.policy);
    let credentials = security.credentials(Role::Manager);
    let mut options = NamenodeOptions {
        listen: args.listen,
        http_listen: somewhere(&args.http),
        directory: args.directory,
        sync: match args.sync {
            SyncMode::Os => Sync::Os,
            SyncMode::Always => Sync::Always,
        },
        mechanism,
        security,
        ..NamenodeOptions::default()
    };
    options.core.preemption = args.preemption_model.as_ref().map(model).transpose()?;
    options.core.ramp_up = args.background.ramp_up();
    mechanism.configure(&mut options.core);
    let server = NamenodeServer::start(options)
        .await
        .map_err(|error| not_started("namenode", &error, next(&error)))?;
    let address = server.address().to_string();
    let manager = (!args.no_manager).then(|| {
        let name = format!("namenode-{}", std::process::id());
        ManagerServer::start(ManagerOptions {
            namenode: address.clone(),
            name,
            credentials,
            mechanism,
            background: (&args.background).into(),
            // The directory's lock sees to it that there is only one of them.
            holder: Some(Nonce(server.cluster().0)),
            ..ManagerOptions::default()
        })
    });
    let http = server.http_address().map(|address| address.to_string());
    Ready::here(address, http, Some(server.cluster())).write(args.process.ready_file.as_deref())?;
    let result = tokio::select! {
        _ = signals.next() => Ok(()),
        failure = server.failed() => {
            Err(Failure::new(Exit::Failure, "NamenodeFailed", &failure)
                .next("df on the namenode's directory, then start it again on the same directory"))
        }
    };
    if let Some(manager) = manager {
        manager.stop().await;
    }
    server.stop().await;
    result
}

/// Reads the preemption model and the files that it names.
fn model(spec: &Spec) -> Result<Model, Failure> {
    let read = |file: &str| std::fs::read_to_string(file).map_err(|error| error.to_string());
    Model::load(spec, read).map_err(|error| {
        Failure::new(Exit::Usage, "BadPreemptionModel", &error)
            .next("sanderling namenode with another --preemption-model, or without one")
    })
}

const fn next(error: &StartError) -> &'static str {
    match error {
        StartError::Listen(_) => "the same with another --listen and --http, or sanderling doctor",
        StartError::DirectoryLocked { .. } => "the same with another --dir",
        StartError::CorruptSnapshot { .. } | StartError::CorruptJournal { .. } => {
            "move the directory away and keep it, then start again: its data are ephemeral"
        }
        _ => "sanderling doctor",
    }
}
