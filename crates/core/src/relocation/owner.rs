//! What the relocator's batches bring: what is learnt from them, and what becomes of their blocks.

use sanderling_protocol::{Instant, NodeId};

use super::Relocator;
use super::queue::Queued;
use crate::moves::{Batch, Blame, Move, Owner, Pipeline, Source, Step};

impl Owner for Relocator {
    fn pipeline(&mut self) -> &mut Pipeline {
        &mut self.moves
    }

    fn source(&self, now: Instant, node: NodeId) -> Option<Source> {
        let drain = self.drains.get(&node).filter(|drain| !drain.is_over(now))?;
        let push_max = self.config.push_millis_max;
        let within = drain.left(now).map_or(push_max, |left| left.min(push_max));
        Some(Source { address: drain.address.clone(), within, mark: drain.pace.mark() })
    }

    fn target(&self, node: NodeId) -> Option<&str> {
        self.targets.address(node)
    }

    fn begun(&mut self, batch: &Batch) {
        self.targets.push_started(batch.choice.node);
    }

    fn done(&mut self, now: Instant, done: &Batch) {
        let (to, bytes) = (done.choice.node, done.pushed_bytes());
        let micros = now.0.saturating_sub(done.called_at.0);
        if done.step == Step::Push {
            self.targets.record(to, bytes, micros);
            if !done.moves.is_empty() {
                self.targets.took(done.source, done.choice);
            }
        }
        if done.step == Step::Commit {
            self.counts.moved_blocks += done.moves.len() as u64;
            self.counts.moved_bytes += bytes;
        }
        let Some(drain) = self.drains.get_mut(&done.source) else { return };
        match done.step {
            Step::Push => drain.pace.record(bytes, done.mark, micros),
            Step::Reserve | Step::Abandon => drain.pace.record_round(micros),
            Step::Commit => {
                drain.pace.record_round(micros);
                for one in &done.moves {
                    drain.moved(now, &one.candidate, u64::from(one.length), to);
                }
            }
        }
    }

    fn failed(&mut self, now: Instant, batch: &Batch, blame: Blame, moves: usize) {
        self.counts.failed_moves += moves as u64;
        match blame {
            // The next view contains how much room is left.
            Blame::Tier => self.targets.fill(batch.choice),
            Blame::TierError => self.targets.close(now, batch.choice, self.config.avoid),
            Blame::Target => {
                self.targets.avoid(now, batch.source, batch.choice.node, self.config.avoid);
            }
            Blame::Block | Blame::Unknown => {}
        }
    }

    /// Measures the rate of the drain anew when the namenode takes no moves: after its start and
    /// after a change of leader it takes none before the nodes have reported what they hold.
    fn unanswered(&mut self, now: Instant, batch: &Batch) {
        if batch.step == Step::Reserve
            && let Some(drain) = self.drains.get_mut(&batch.source)
        {
            drain.held_up(now);
        }
    }

    /// Queues a block again, unless the manager's record of it is outdated: the next scan brings it
    /// then, if it is still there.
    fn take_back(&mut self, now: Instant, batch: &Batch, one: Move) {
        if one.blame != Blame::Tier {
            self.targets.give_back(batch.choice, u64::from(one.candidate.reserve_bytes));
        }
        let Some(drain) = self.drains.get_mut(&batch.source) else { return };
        let queued = Queued { candidate: one.candidate, attempts: one.attempts };
        if self.targets.address(batch.choice.node).is_none() {
            // The namenode gave the move up with its target: the block is where it was.
            drain.replan(queued);
        } else if one.blame == Blame::Block {
            drain.queue.forget(queued.candidate.block);
        } else {
            drain.retry(now, queued, self.config.retry_wait);
        }
    }

    fn ended(&mut self, _: Instant, batch: &Batch) {
        self.targets.push_ended(batch.choice.node);
    }
}
