//! Filling the catalog by batched calls.

use std::sync::Arc;
use std::time::Duration;

use sanderling_protocol::message::{Attributes, BlockLength, Create, Grant, Role};
use sanderling_protocol::order::HeldBlock;
use sanderling_protocol::{Nonce, Path, Refusal, Reply, Request};
use tokio::task::JoinSet;

use crate::failure::Failure;

use super::fleet::{FleetShared, StubFleet};
use super::requests::{Meta, failed, unexpected};

/// How requests are sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Framing {
    /// Requests of one frame.
    pub(super) requests: u64,
    /// Frames under way together.
    pub(super) frames: usize,
}

/// How catalogs are filled.
pub(super) const FILLING: Framing = Framing { requests: 256, frames: 8 };

/// Objects of one directory: a million objects have a thousand directories, and each fits into one
/// page of a listing. Chosen, not measured.
pub(super) const PER_DIRECTORY: u64 = 1000;

/// Bytes of a file's only block: one unit of allocation.
const BLOCK_BYTES: u32 = 4096;

/// Bytes of a value in the catalog. docs/SCALE.md and `catalog/memory` of the core give their
/// figures for values of this length. Chosen, not measured.
const VALUE_BYTES: usize = 64;

/// The client that fills the catalog.
const WRITER: Nonce = Nonce(u64::MAX);

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FilledObject {
    /// A file with one block, reserved and sealed.
    File,
    /// A value in the catalog.
    Value,
}

/// Returns the path of an object. Files and values have directories of their own.
pub(super) fn path(what: FilledObject, index: u64) -> Path {
    let kind = if what == FilledObject::File { "files" } else { "values" };
    let text = format!("/{kind}/{:06}/object-{index:08}", index / PER_DIRECTORY);
    text.parse().expect("letters and digits")
}

/// Creates the objects of a range. The fleet takes over what the datanodes hold of them.
pub(super) async fn fill(
    address: &str,
    fleet: &StubFleet,
    what: FilledObject,
    range: std::ops::Range<u64>,
    framing: Framing,
) -> Result<(), Failure> {
    let meta = Meta::connect(address, Role::Client).await.map_err(failed)?;
    let mut starts =
        range.clone().step_by(usize::try_from(framing.requests).expect("a small number"));
    let mut frames: JoinSet<Result<(), Failure>> = JoinSet::new();
    loop {
        while frames.len() < framing.frames
            && let Some(start) = starts.next()
        {
            let (meta, shared) = (meta.clone(), Arc::clone(&fleet.shared));
            let batch = start..(start + framing.requests).min(range.end);
            frames.spawn(async move { create(&meta, &shared, what, batch).await });
        }
        let Some(ended) = frames.join_next().await else { return Ok(()) };
        ended.expect("a frame's task does not panic")?;
    }
}

async fn create(
    meta: &Meta,
    shared: &FleetShared,
    what: FilledObject,
    batch: std::ops::Range<u64>,
) -> Result<(), Failure> {
    let creates = batch.map(|index| Request::Create(one(what, index))).collect();
    let mut seals = Vec::new();
    for reply in all(meta, creates).await? {
        match reply {
            Reply::Grant(grant) => {
                let (request, held) = seal(&grant);
                if let Some((node, block)) = held
                    && let Some(stub) = shared.stub(node)
                {
                    stub.held().insert(block.block, block);
                }
                seals.push(request);
            }
            Reply::Stat(_) if what == FilledObject::Value => {}
            other => return Err(unexpected(&other)),
        }
    }
    all(meta, seals).await.map(drop)
}

fn one(what: FilledObject, index: u64) -> Create {
    let is_value = what == FilledObject::Value;
    Create {
        expected_bytes: Some(u64::from(BLOCK_BYTES)),
        inline: is_value.then(|| vec![0x5a; VALUE_BYTES]),
        ..Create::new(path(what, index), WRITER)
    }
}

type NodeBlock = (sanderling_protocol::NodeId, HeldBlock);

/// Returns the request that seals what was granted, and what its datanode holds then.
fn seal(grant: &Grant) -> (Request, Option<NodeBlock>) {
    let length = BLOCK_BYTES;
    let lengths = grant.blocks.iter().map(|block| BlockLength { block: block.block, length });
    let request = Request::Seal {
        object: grant.object,
        lease: grant.lease,
        lengths: lengths.collect(),
        attributes: Attributes::none(),
    };
    let held = grant
        .blocks
        .first()
        .map(|it| (it.node, HeldBlock { block: it.block, epoch: it.epoch, length, tier: it.tier }));
    (request, held)
}

/// Sends all requests, and those again that were answered with `RetryAfter`.
async fn all(meta: &Meta, requests: Vec<Request>) -> Result<Vec<Reply>, Failure> {
    let mut waiting: Vec<(usize, Request)> = requests.into_iter().enumerate().collect();
    let mut replies: Vec<Option<Reply>> = waiting.iter().map(|_| None).collect();
    while !waiting.is_empty() {
        let asked: Vec<Request> = waiting.iter().map(|(_, request)| request.clone()).collect();
        let answers = meta.all(&asked).await.map_err(failed)?;
        let (mut again, mut pause) = (Vec::new(), Duration::ZERO);
        for ((place, request), answer) in waiting.into_iter().zip(answers) {
            match answer {
                Ok(reply) => replies[place] = Some(reply),
                Err(Refusal::RetryAfter { after, .. }) => {
                    pause = pause.max(after.into());
                    again.push((place, request));
                }
                Err(refusal) => return Err(failed(refusal)),
            }
        }
        tokio::time::sleep(pause).await;
        waiting = again;
    }
    Ok(replies.into_iter().flatten().collect())
}
