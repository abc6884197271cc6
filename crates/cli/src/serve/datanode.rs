//! `sanderling datanode`.

use std::net::SocketAddr;

use sanderling_datanode::{
    Acknowledge, DatanodeOptions, DatanodeServer, DiskOptions, DrainEnd, LocalOptions,
    NoticeOptions, ObjectOptions,
};

use super::{Signals, Stop, not_started, somewhere};
use crate::args::Global;
use crate::args::serve::{AzureAcknowledge, Datanode, Source};
use crate::failure::{Exit, Failure};
use crate::ready::Ready;
use crate::{security, server, units};

/// Serves blocks until SIGINT, or until SIGTERM and then until its data has left.
///
/// # Errors
/// It cannot start, the namenode refuses it for good, or its data did not leave in time (5).
pub(crate) fn run(global: &Global, args: Datanode) -> Result<(), Failure> {
    super::keep_private();
    let options = options(global, &args)?;
    let expiries = options.security.expiries();
    server::run(global, &args.process.clone(), expiries, serve(options, args))
}

fn options(global: &Global, args: &Datanode) -> Result<DatanodeOptions, Failure> {
    let disk = match (&args.disk, &args.disk_dir) {
        (Some(size), Some(directory)) => {
            std::fs::create_dir_all(directory).map_err(|error| Failure::file(directory, &error))?;
            Some(DiskOptions { directory: directory.clone(), bytes: size.0 })
        }
        _ => None,
    };
    let http_listen = somewhere(&args.http).as_deref().map(address).transpose()?;
    Ok(DatanodeOptions {
        namenode: global.namenode.clone(),
        listen: address(&args.listen)?,
        http_listen,
        advertise: args.advertise.clone(),
        name: args.name.clone(),
        host: args.host.clone().unwrap_or_default(),
        dram_bytes: args.dram.0,
        disk,
        object: object(args)?,
        encryption: args.encrypt.as_deref().map(security::encryption_key).transpose()?,
        local: local(args),
        egress_limit: args.egress_limit.map(|rate| rate.0),
        mechanism: args.policy.into(),
        notices: notices(args),
        posted_notice: args.notice_deadline.0,
        notice_min: args.notice_min.map(|span| span.0),
        egress_bytes_per_second: args.egress.or(args.egress_limit).map(|rate| rate.0),
        security: security::guard(global, &args.guard)?,
        revocations_age_max: args.revocations_age_max.0,
        scrub_bytes_per_second: args.scrub_rate.0,
        report_every: args.report_every.0,
        ..DatanodeOptions::default()
    })
}

fn local(args: &Datanode) -> Option<LocalOptions> {
    let socket = match args.local_socket.as_deref() {
        Some("none") => return None,
        path => path.map(std::path::PathBuf::from),
    };
    Some(LocalOptions { socket, uids: args.local_uid.clone(), ..LocalOptions::default() })
}

fn notices(args: &Datanode) -> Vec<NoticeOptions> {
    let options = |source: &Source| NoticeOptions {
        url: args.notice_url.clone(),
        poll: args.notice_poll.map(|span| span.0),
        call_within: args.notice_call_within.0,
        deadline: args.notice_deadline.0,
        acknowledge: match args.azure_acknowledge {
            AzureAcknowledge::Drained => Acknowledge::Drained,
            AzureAcknowledge::AtOnce => Acknowledge::AtOnce,
            AzureAcknowledge::Never => Acknowledge::Never,
        },
        ..NoticeOptions::new(source.0.clone())
    };
    args.notice_source.iter().map(options).collect()
}

fn object(args: &Datanode) -> Result<Option<ObjectOptions>, Failure> {
    let (Some(url), Some(size)) = (&args.object, &args.object_bytes) else { return Ok(None) };
    if let Some(directory) = url.strip_prefix("file://").filter(|it| it.starts_with('/')) {
        let directory = std::path::Path::new(directory);
        std::fs::create_dir_all(directory).map_err(|error| Failure::file(directory, &error))?;
    }
    let is_setting = |(name, _): &(String, String)| name.starts_with("AWS_");
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    let settings = std::env::vars_os().filter_map(text).filter(is_setting).collect();
    Ok(Some(ObjectOptions { url: url.clone(), bytes: size.0, settings, ..Default::default() }))
}

fn address(text: &str) -> Result<SocketAddr, Failure> {
    text.parse().map_err(|_| {
        Failure::usage(format_args!("{text:?} is no address"))
            .next("the same with --listen 127.0.0.1:0")
    })
}

async fn serve(options: DatanodeOptions, args: Datanode) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    if let Some(disk) = &options.disk {
        super::close_to_others(&disk.directory, &["sanderling-datanode"])?;
    }
    let namenode = options.namenode.clone();
    // A datanode waits for its namenode; whoever interrupts it means it.
    let server = tokio::select! {
        started = DatanodeServer::start(options) => started
            .map_err(|error| not_started("datanode", error, "sanderling doctor"))?,
        _ = signals.next() => return Err(Failure::new(
            Exit::Interrupted,
            "Interrupted",
            format_args!("stopped before the namenode at {namenode} answered"),
        )),
    };
    let http = server.http_address().map(|address| address.to_string());
    let address = server.address().to_string();
    let ready = Ready::here(address, http, Some(server.cluster()));
    Ready { node: Some(server.node()), ..ready }.write(args.process.ready_file.as_deref())?;
    let result = tokio::select! {
        stop = signals.next() => match stop {
            Stop::Interrupt => Ok(()),
            Stop::Term => drain(&server, &mut signals, &args).await,
        },
        failure = server.failed() => Err(Failure::new(Exit::Failure, "DatanodeFailed", failure)
            .next("sanderling node ls --all, then start it again")),
    };
    server.stop().await;
    result
}

/// Moves the data away; a second signal ends it at once.
async fn drain(
    server: &DatanodeServer,
    signals: &mut Signals,
    args: &Datanode,
) -> Result<(), Failure> {
    let end = tokio::select! {
        end = server.drain(args.sigterm_deadline.0, "SIGTERM") => end,
        _ = signals.next() => return Err(Failure::new(
            Exit::Interrupted,
            "Interrupted",
            "a second signal ended the drain",
        ).next("sanderling fsck")),
    };
    let deadline = units::duration(args.sigterm_deadline.0);
    let cause = match end {
        DrainEnd::Drained => return Ok(()),
        DrainEnd::DeadlinePassed { home_blocks: Some(0) } => {
            format!("the namenode did not confirm within {deadline} that the node is empty")
        }
        DrainEnd::DeadlinePassed { home_blocks: Some(blocks) } => {
            format!("{blocks} blocks were still here after {deadline}")
        }
        DrainEnd::DeadlinePassed { home_blocks: None } => {
            format!("the namenode did not take the notice within {deadline}")
        }
    };
    Err(Failure::new(Exit::Partial, "NotDrained", cause).next("sanderling fsck"))
}
