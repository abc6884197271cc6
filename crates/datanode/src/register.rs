//! Joining the cluster: who the node is, what it holds.

use std::time::Duration;

use sanderling_protocol::limits::BLOCKS_PER_PAGE_MAX;
use sanderling_protocol::message::{Register, Registered};
use sanderling_protocol::{BlockId, Millis, Refusal, Reply, Request};
use sanderling_transport::CallError;
use tokio::time::{Instant, sleep};

use crate::error::StartError;
use crate::node::Node;

/// Time between two attempts to reach the namenode.
pub(crate) const ATTEMPT_EVERY: Duration = Duration::from_millis(250);

/// Introduces the node to the namenode, or introduces it again.
pub(crate) async fn register(node: &Node) -> Result<Registered, CallError> {
    let identity = node.identity();
    let options = &node.options;
    let register = Register {
        cluster: identity.cluster,
        nonce: identity.nonce,
        name: options.name.clone(),
        address: node.address.clone(),
        http_address: node.http_address.clone(),
        host: options.host.clone(),
        tiers: node.store.tiers(),
        notice_min: options.notice_min.map(Millis::from),
        // Where the node holds itself back, that is its link.
        egress_bytes_per_second: options.egress_bytes_per_second.or(options.egress_limit),
    };
    match node.ask(Request::Register(register)).await? {
        Reply::Registered(registered) => Ok(registered),
        other => Err(node.bad_reply(&other)),
    }
}

/// Tells whether asking again is useless.
pub(crate) fn is_final(error: &CallError) -> Option<&Refusal> {
    match error {
        CallError::Refused(
            refusal @ (Refusal::WrongCluster { .. }
            | Refusal::UnknownVersion { .. }
            | Refusal::BadRequest { .. }
            | Refusal::BadFrame { .. }
            | Refusal::TooLarge { .. }),
        ) => Some(refusal),
        _ => None,
    }
}

/// Registers for the first time, trying for a bounded while.
///
/// # Errors
/// [`StartError::Refused`], [`StartError::Unreachable`].
pub(crate) async fn register_at_start(node: &Node) -> Result<Registered, StartError> {
    let options = &node.options;
    let give_up = Instant::now() + options.start_time_max;
    loop {
        let error = match register(node).await {
            Ok(registered) => return Ok(registered),
            Err(error) => error,
        };
        let namenode = options.namenode.clone();
        let not_let_in = match &error {
            CallError::Refused(
                refusal @ (Refusal::Unauthenticated { .. } | Refusal::Forbidden { .. }),
            ) => Some(refusal),
            _ => None,
        };
        if let Some(refusal) = is_final(&error).or(not_let_in) {
            return Err(StartError::Refused { namenode, refusal: refusal.clone() });
        }
        if Instant::now() >= give_up {
            return Err(match error {
                CallError::Refused(refusal) => StartError::Refused { namenode, refusal },
                _ => StartError::Unreachable {
                    namenode,
                    seconds: options.start_time_max.as_secs(),
                    why: error.to_string(),
                },
            });
        }
        tracing::debug!(%error, "the namenode does not answer yet");
        sleep(ATTEMPT_EVERY).await;
    }
}

/// Tells the namenode page by page what the node holds, and drops what nobody wants.
pub(crate) async fn report(node: &Node) -> Result<(), CallError> {
    let mut after = BlockId(0);
    let mut dropped = 0;
    loop {
        let blocks = node.store.list(after, BLOCKS_PER_PAGE_MAX);
        let Some(last) = blocks.last() else { break };
        after = last.block;
        let request = Request::BlockReport { node: node.id(), blocks: blocks.clone() };
        match node.ask(request).await? {
            Reply::Drop { blocks: unwanted } => {
                dropped += unwanted.len();
                node.store.drop_reported(&blocks, &unwanted);
            }
            other => return Err(node.bad_reply(&other)),
        }
    }
    if dropped > 0 {
        tracing::info!(node = %node.id(), blocks = dropped, "unwanted blocks dropped");
    }
    Ok(())
}
