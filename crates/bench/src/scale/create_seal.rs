//! `sanderling bench create-seal`: files that a running namenode, or the leader of a group, creates
//! and seals, each with one block on a node that holds no bytes.

use std::time::Instant;

use clap::Args;
use sanderling_protocol::message::Role;
use sanderling_protocol::{Reply, Request};
use serde::Serialize;

use crate::failure::Failure;
use crate::session::Session;

use super::fill::{FilledObject, Framing, fill};
use super::fleet::StubFleet;
use super::requests::{Meta, failed, unexpected};

/// `sanderling bench create-seal`.
#[derive(Debug, Clone, Args)]
pub(crate) struct CreateSeal {
    /// Files, in directories of a thousand below /files
    #[arg(long, value_name = "N", default_value_t = 200_000,
          value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    files: u64,
    /// Requests of one frame: a frame creates so many files, the next one seals them
    #[arg(long, value_name = "N", default_value_t = 128,
          value_parser = clap::value_parser!(u64).range(1..=512))]
    batch: u64,
    /// Frames in flight
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u64).range(1..=64))]
    depth: u64,
    /// Datanodes without bytes that register, and leave with this command
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    nodes: u32,
}

/// The result, with stable keys.
#[derive(Debug, Clone, Serialize)]
struct CreateSealReport {
    files: u64,
    batch: u64,
    depth: u64,
    nodes: u32,
    seconds: f64,
    files_per_second: f64,
}

/// Creates and seals the files, and prints how long it took.
///
/// # Errors
/// The first request that was refused.
pub(crate) async fn run(session: Session, args: CreateSeal) -> Result<(), Failure> {
    let CreateSeal { files, batch, depth, nodes } = args;
    let address = leader(&session.namenode).await?;
    let fleet = StubFleet::register(&address, nodes).await?;
    let frames = usize::try_from(depth).expect("a small number");
    let framing = Framing { requests: batch, frames };
    let began = Instant::now();
    fill(&address, &fleet, FilledObject::File, 0..files, framing).await?;
    let seconds = began.elapsed().as_secs_f64();
    let files_per_second = files as f64 / seconds;
    let report = CreateSealReport { files, batch, depth, nodes, seconds, files_per_second };
    session.output.result(&report, |writer| {
        writeln!(writer, "{files} files in {seconds:.2} s: {files_per_second:.0} a second")
    })
}

/// Returns the address of the namenode that leads the group of the first of these addresses.
async fn leader(addresses: &str) -> Result<String, Failure> {
    let first = addresses.split(',').next().unwrap_or_default();
    let meta = Meta::connect(first, Role::Client).await.map_err(failed)?;
    match meta.one(Request::Members).await.map_err(failed)? {
        Reply::Members(members) if members.members.len() > 1 => {
            let leader = members.leader().map(|it| it.address.clone());
            leader.ok_or_else(|| failed("no member of the group leads"))
        }
        Reply::Members(_) => Ok(first.to_owned()),
        other => Err(unexpected(&other)),
    }
}
