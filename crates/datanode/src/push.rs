//! Blocks on their way to other datanodes.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use sanderling_core::call_outcome::CallOutcome;
use sanderling_core::datanode::{PushOutcome, push_failed};
use sanderling_protocol::order::{PushMove, Pushed};
use sanderling_protocol::{BlockId, Header, Op, Refusal};
use sanderling_transport::{CallError, Pool};
use tokio::time::Instant;

use crate::blocking::on_thread;
use crate::link::Link;
use crate::membership::Membership;
use crate::object::caller::OperationCaller;
use crate::options::DatanodeOptions;
use crate::store::BlockStore;
use crate::tier::ReadBytes;
use crate::tiers::BlockBytes;

/// Copies blocks to other datanodes.
#[derive(Debug)]
pub(crate) struct Pusher {
    store: Arc<BlockStore>,
    membership: Arc<Membership>,
    link: Arc<Link>,
    pool: Pool,
    at_once: usize,
    time_max: Duration,
}

impl Pusher {
    pub(crate) const fn new(
        options: &DatanodeOptions,
        store: Arc<BlockStore>,
        membership: Arc<Membership>,
        link: Arc<Link>,
        pool: Pool,
    ) -> Self {
        let (at_once, time_max) = (options.pushes_in_flight_max, options.push_time_max);
        Self { store, membership, link, pool, at_once, time_max }
    }

    /// Fences each block and copies it to its target, several at once. The results are in the order
    /// of `moves`.
    pub(crate) async fn push_all(&self, moves: Vec<PushMove>) -> Vec<Result<Pushed, Refusal>> {
        let pushes = futures_util::stream::iter(moves.into_iter().map(|one| self.push(one)));
        pushes.buffered(self.at_once).collect().await
    }

    /// Fences one block and copies it. The copy is verified twice: here, that memory or disk still
    /// hold what was written, and by the target, that it arrived.
    async fn push(&self, one: PushMove) -> Result<Pushed, Refusal> {
        if one.to == self.membership.id() {
            let why = format!("it holds block {} itself and cannot be its target", one.block);
            return Err(Refusal::WrongState { node: one.to, why });
        }
        let _permit = self.link.push_permit().await;
        if self.store.has_object_tier()
            && let Err(refusal) = self.store.adopt_all(&[(one.block, one.from_epoch)]).await
        {
            // It goes as empty if it is not here; the namenode then refuses it.
            tracing::debug!(block = %one.block, %refusal, "not looked for in the object tier");
        }
        let admitted = self.store.admit_push(one.block, one.from_epoch)?;
        let length = admitted.length.min(one.bytes_max);
        let Some(bytes) = admitted.bytes else { return Ok(Pushed { length }) };
        let read = self.verified(bytes, one.block, length).await?;
        let mut header = Header::new(Op::Store, 0);
        header.block = one.block;
        header.epoch = one.to_epoch;
        header.length = length;
        header.flags = one.tier as u16;
        header.checksum = read.checksum;
        let mut to_target = self.link.begin_to(one.to)?;
        let mut pushing = self.link.begin_push(length).await;
        let deadline = Instant::now() + self.time_max;
        let call = self.pool.call(&one.address, Some(one.to), header, read.slices, deadline);
        let answer = call.await;
        let outcome = answer.as_ref().map_or_else(CallError::outcome, |_| CallOutcome::Answered);
        to_target.came_to(PushOutcome::of(outcome));
        match answer {
            Ok(_) => {
                self.store.count_pushed(length);
                pushing.arrived(one.block, length);
                Ok(Pushed { length })
            }
            Err(CallError::Refused(refusal)) => Err(refusal),
            Err(error) => {
                let why = format!("node {} at {}: {error}", one.to, one.address);
                tracing::warn!(block = %one.block, target = %one.to, %error, "push failed");
                Err(push_failed(why))
            }
        }
    }

    async fn verified(
        &self,
        held: BlockBytes,
        block: BlockId,
        length: u32,
    ) -> Result<ReadBytes, Refusal> {
        let bytes = self.store.fetch(block, &held, &OperationCaller::Node).await?;
        let store = Arc::clone(&self.store);
        let is_blocking = bytes.is_blocking();
        let read = move || {
            let read = bytes.read_verified(length);
            read.map_err(|error| store.refusal_of(block, &bytes, error))
        };
        if is_blocking { on_thread(read).await } else { read() }
    }
}
