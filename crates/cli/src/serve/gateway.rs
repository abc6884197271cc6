//! `sanderling gateway s3`.

use sanderling_client::ClientConfig;
use sanderling_gateway::{GatewayOptions, GatewayServer, Keys, StartError};

use super::{Signals, not_started, somewhere};
use crate::args::Global;
use crate::args::gateway::{Gateway, S3};
use crate::failure::{Exit, Failure};
use crate::ready::Ready;
use crate::{credentials, security, server};

/// Serves a door until SIGTERM or SIGINT.
///
/// # Errors
/// It cannot start.
pub(crate) fn run(global: &Global, command: Gateway) -> Result<(), Failure> {
    super::keep_private();
    let Gateway::S3(args) = command;
    let options = options(global, &args)?;
    let expiries = options.expiries();
    server::run(global, &args.process.clone(), expiries, serve(options, *args))
}

fn options(global: &Global, args: &S3) -> Result<GatewayOptions, Failure> {
    let keys = args.keys.as_deref().map(Keys::read).transpose().map_err(|error| {
        Failure::new(Exit::Usage, "BadKeys", &error).next("sanderling gateway s3 --help")
    })?;
    if args.connections == 0 {
        return Err(Failure::usage("--connections is at least 1"));
    }
    let credentials = credentials::shown(global)?;
    let tls = security::server_tls(args.tls_cert.as_deref(), args.tls_key.as_deref())?;
    Ok(GatewayOptions {
        client: ClientConfig { credentials, ..ClientConfig::default() },
        namenode: global.namenode.clone(),
        listen: args.listen.clone(),
        http_listen: somewhere(&args.http),
        root: args.root.clone(),
        keys,
        tls,
        domains: args.domain.clone(),
        allow_unauthenticated: args.allow_unauthenticated,
        upload_ttl: args.upload_ttl.0,
        connections_max: args.connections,
        silence_max: args.silence.0,
    })
}

async fn serve(options: GatewayOptions, args: S3) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let server = GatewayServer::start(options)
        .await
        .map_err(|error| not_started("S3 gateway", &error, next(&error)))?;
    let http = server.http_address().map(|address| address.to_string());
    let ready = Ready::here(server.address().to_string(), http, Some(server.cluster()));
    ready.write(args.process.ready_file.as_deref())?;
    tracing::info!(address = %server.address(), "the S3 gateway serves");
    signals.next().await;
    server.stop().await;
    Ok(())
}

const fn next(error: &StartError) -> &'static str {
    match error {
        StartError::Listen(_) => "the same with another --listen and --http, or sanderling doctor",
        StartError::Cluster(_) => "sanderling local start, or the same with another --namenode",
        StartError::NoKeys { .. } | StartError::Plaintext { .. } => "sanderling gateway s3 --help",
    }
}
