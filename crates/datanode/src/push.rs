//! Blocks on their way to other datanodes.

use std::sync::Arc;

use futures_util::StreamExt;
use sanderling_protocol::order::{PushMove, Pushed};
use sanderling_protocol::{BlockId, Header, Millis, Op, Refusal};
use sanderling_transport::CallError;
use tokio::time::Instant;

use crate::blocking::on_thread;
use crate::node::Node;
use crate::tier::ReadBytes;
use crate::tiers::BlockBytes;

/// When to try a target again that could not be reached, or rather another one.
const TARGET_RETRY: Millis = Millis(200);

/// Fences each block and copies it to its target, several at once. Answers in the order of `moves`.
pub(crate) async fn push_all(
    node: &Arc<Node>,
    moves: Vec<PushMove>,
) -> Vec<Result<Pushed, Refusal>> {
    let at_once = node.options.pushes_in_flight_max;
    futures_util::stream::iter(moves.into_iter().map(|one| push(node, one)))
        .buffered(at_once)
        .collect()
        .await
}

/// Fences one block and copies it. The copy is verified twice: here, that memory or disk still hold
/// what was written, and by the target, that it arrived.
async fn push(node: &Arc<Node>, one: PushMove) -> Result<Pushed, Refusal> {
    if one.to == node.id() {
        let why = format!("it holds block {} itself and cannot be its target", one.block);
        return Err(Refusal::WrongState { node: one.to, why });
    }
    let _permit = node.pushes.acquire().await.expect("the semaphore is never closed");
    if node.store.has_object_tier()
        && let Err(refusal) = node.store.adopt_all(&[(one.block, one.from_epoch)]).await
    {
        // It goes as empty if it is not here; the namenode, which knows better, then refuses it.
        tracing::debug!(block = %one.block, %refusal, "not looked for in the object tier");
    }
    let admitted = node.store.admit_push(one.block, one.from_epoch)?;
    let length = admitted.length.min(one.bytes_max);
    let Some(bytes) = admitted.bytes else { return Ok(Pushed { length }) };
    let read = verified(node, bytes, one.block, length).await?;
    let mut header = Header::new(Op::Store, 0);
    header.block = one.block;
    header.epoch = one.to_epoch;
    header.length = length;
    header.flags = one.tier as u16;
    header.checksum = read.checksum;
    let mut pushing = node.push_rate.begin(length);
    let leaving = node.read_throttle.begin();
    node.egress.leave(u64::from(length)).await;
    let deadline = Instant::now() + node.options.push_time_max;
    let call = node.pool.call(&one.address, Some(one.to), header, read.slices, deadline);
    match call.await {
        Ok(_) => {
            node.store.count_pushed(length);
            if let Some(pushing) = &mut pushing {
                pushing.arrived(u64::from(length));
            }
            leaving.arrived(one.block, length);
            Ok(Pushed { length })
        }
        Err(CallError::Refused(refusal)) => Err(refusal),
        Err(error) => {
            let why = format!("node {} at {}: {error}", one.to, one.address);
            tracing::warn!(block = %one.block, target = %one.to, %error, "push failed");
            Err(Refusal::RetryAfter { after: TARGET_RETRY, why })
        }
    }
}

async fn verified(
    node: &Arc<Node>,
    held: BlockBytes,
    block: BlockId,
    length: u32,
) -> Result<ReadBytes, Refusal> {
    let bytes = match held.clone().fetched().await {
        Ok(bytes) => bytes,
        Err(error) => return Err(node.store.refusal_of(block, &held, error)),
    };
    let reader = Arc::clone(node);
    let is_blocking = bytes.is_blocking();
    let read = move || {
        let read = bytes.read_verified(length);
        read.map_err(|error| reader.store.refusal_of(block, &bytes, error))
    };
    if is_blocking { on_thread(read).await } else { read() }
}
