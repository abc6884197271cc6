//! What the background's batches bring.

use sanderling_protocol::message::MovePurpose;
use sanderling_protocol::{Instant, NodeId};

use super::Background;
use crate::moves::{Batch, Blame, Mark, Move, Owner, Pipeline, Source, Step};

impl Owner for Background {
    fn pipeline(&mut self) -> &mut Pipeline {
        &mut self.moves
    }

    /// Returns a source that stays: what is to leave one that drains is the relocator's.
    fn source(&self, _: Instant, node: NodeId) -> Option<Source> {
        let address = self.target(node)?.to_owned();
        Some(Source { address, within: self.config.push_millis_max, mark: Mark::default() })
    }

    fn target(&self, node: NodeId) -> Option<&str> {
        let member = self.fleet.get(node).filter(|_| self.fleet.stays(node))?;
        Some(&member.info.address)
    }

    fn begun(&mut self, batch: &Batch) {
        self.fleet.begun(batch.choice.node);
        *self.busy.entry(batch.source).or_default() += 1;
    }

    fn done(&mut self, _: Instant, done: &Batch) {
        if done.step != Step::Commit {
            return;
        }
        let (blocks, bytes) = if done.purpose == MovePurpose::Precopy {
            (&mut self.counts.copied_blocks, &mut self.counts.copied_bytes)
        } else {
            (&mut self.counts.rebalanced_blocks, &mut self.counts.rebalanced_bytes)
        };
        *blocks += done.moves.len() as u64;
        *bytes += done.pushed_bytes();
    }

    fn failed(&mut self, now: Instant, batch: &Batch, blame: Blame, moves: usize) {
        self.counts.failed_moves += moves as u64;
        match blame {
            // The next view contains how much room is left.
            Blame::Tier => self.fleet.fill(batch.choice),
            Blame::Target | Blame::TierError => {
                self.fleet.avoid(batch.choice.node, now + self.config.avoid);
            }
            Blame::Block | Blame::Unknown => {}
        }
    }

    /// Changes nothing: no forecast is made here.
    fn unanswered(&mut self, _: Instant, _: &Batch) {}

    /// Forgets a block: the next reading brings it again if it is still to be moved.
    fn take_back(&mut self, _: Instant, _: &Batch, _: Move) {}

    /// Notes as well that something may be done for the source since.
    fn ended(&mut self, now: Instant, batch: &Batch) {
        self.fleet.ended(batch.choice.node);
        if let Some(busy) = self.busy.get_mut(&batch.source) {
            debug_assert!(*busy > 0, "a batch ends once");
            *busy -= 1;
        }
        self.due.insert(batch.source, now);
    }
}
