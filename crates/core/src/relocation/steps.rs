//! The way of a batch: what the answer to each of its calls leads to.

use sanderling_protocol::order::Pushed;
use sanderling_protocol::{Epoch, Instant, Millis, NodeId, Refusal};

use super::Relocator;
use super::batch::{self, Batch, Fate, Move, Step};
use super::interface::Output;
use super::targets::Choice;

/// How many times more often than other calls a commit is repeated, so that a namenode may restart
/// meanwhile.
const COMMIT_PATIENCE: u32 = 4;

/// Pushes of a batch without an answer before other targets are chosen.
const PUSH_TRIES_MAX: u32 = 2;

impl Relocator {
    pub(super) fn on_reserved(
        &mut self,
        now: Instant,
        batch: Batch,
        epochs: Vec<Result<Epoch, Refusal>>,
    ) {
        self.learn_round(now, &batch);
        let mut reserved = Vec::new();
        for (mut one, epoch) in batch.moves.iter().cloned().zip(epochs) {
            match epoch {
                Ok(epoch) => {
                    one.to_epoch = epoch;
                    reserved.push(one);
                }
                Err(refusal) => {
                    one.fate = self.not_reserved(now, batch.choice, &one, &refusal);
                    self.settle(now, batch.source, one);
                }
            }
        }
        self.go_on(now, batch.at(Step::Push, reserved));
    }

    /// Learns what a call to the namenode takes.
    fn learn_round(&mut self, now: Instant, batch: &Batch) {
        if let Some(drain) = self.drains.get_mut(&batch.source) {
            drain.pace.record_round(now.0.saturating_sub(batch.called_at.0));
        }
    }

    pub(super) fn on_pushed(
        &mut self,
        now: Instant,
        batch: Batch,
        outcomes: Vec<Result<Pushed, Refusal>>,
    ) {
        let (mut pushed, mut failed) = (Vec::new(), Vec::new());
        for (mut one, outcome) in batch.moves.iter().cloned().zip(outcomes) {
            match outcome {
                Ok(Pushed { length }) => {
                    one.length = length;
                    pushed.push(one);
                }
                Err(refusal) => {
                    one.fate = self.fate(now, &batch, &refusal);
                    failed.push(one);
                }
            }
        }
        debug_assert_eq!(pushed.len() + failed.len(), batch.moves.len(), "each has one outcome");
        let bytes = pushed.iter().map(|one| u64::from(one.length)).sum();
        let micros = now.0.saturating_sub(batch.called_at.0);
        self.targets.record(batch.choice.node, bytes, micros);
        if let Some(drain) = self.drains.get_mut(&batch.source) {
            drain.pace.record(bytes, batch.mark, micros);
        }
        let failed = batch.at(Step::Abandon, failed);
        if !failed.moves.is_empty() {
            // The two halves are two batches from here on, and each ends by itself.
            self.targets.push_started(batch.choice.node);
            self.go_on(now, failed);
        }
        self.go_on(now, batch.at(Step::Commit, pushed));
    }

    pub(super) fn on_committed(
        &mut self,
        now: Instant,
        batch: Batch,
        epochs: Vec<Result<Epoch, Refusal>>,
    ) {
        self.learn_round(now, &batch);
        debug_assert_eq!(batch.moves.len(), epochs.len(), "an answer of another length is none");
        let mut refused = Vec::new();
        for (mut one, epoch) in batch.moves.iter().cloned().zip(epochs) {
            match epoch {
                Ok(_) => {
                    self.counts.moved_blocks += 1;
                    self.counts.moved_bytes += u64::from(one.length);
                    if let Some(drain) = self.drains.get_mut(&batch.source) {
                        let to = batch.choice.node;
                        drain.moved(now, one.block(), u64::from(one.length), to);
                    }
                }
                Err(refusal) => {
                    one.fate = self.fate(now, &batch, &refusal);
                    refused.push(one);
                }
            }
        }
        self.go_on(now, batch.at(Step::Abandon, refused));
    }

    /// Says what becomes of a block whose future home was refused, and corrects the room.
    fn not_reserved(
        &mut self,
        now: Instant,
        choice: Choice,
        one: &Move,
        refusal: &Refusal,
    ) -> Fate {
        self.counts.failed_moves += 1;
        if batch::is_about_the_block(refusal) {
            self.targets.give_back(choice, u64::from(one.queued.candidate.reserve_bytes));
            return Fate::Forget;
        }
        if matches!(refusal, Refusal::NodeFull { .. }) {
            // Writers took the room since the view. The next view says how much is left.
            self.targets.fill(choice);
        } else {
            self.targets.avoid(choice.node, now + self.config.avoid);
        }
        Fate::Requeue
    }

    /// Says what becomes of a block after a refusal, and leaves the target alone if it is to blame.
    fn fate(&mut self, now: Instant, batch: &Batch, refusal: &Refusal) -> Fate {
        self.counts.failed_moves += 1;
        if self.targets.address(batch.choice.node).is_none() {
            // The namenode gave the move up with its target: the block is where it was.
            return Fate::Replan;
        }
        if batch::is_about_the_block(refusal) {
            return Fate::Forget;
        }
        if batch::is_about_the_target(refusal) {
            self.targets.avoid(batch.choice.node, now + self.config.avoid);
        }
        Fate::Requeue
    }

    /// A call failed: nobody knows whether it was done.
    pub(super) fn on_failed(&mut self, now: Instant, mut batch: Batch) {
        debug_assert!(!batch.moves.is_empty(), "an empty batch makes no call");
        batch.tries += 1;
        let is_wanted = self.drains.get(&batch.source).is_some_and(|drain| !drain.is_over(now));
        // A commit that may have been done is asked about longest: its bytes are there.
        let patience = if batch.step == Step::Commit { COMMIT_PATIENCE } else { 1 };
        let is_last = batch.tries >= self.config.tries_max * patience || !is_wanted;
        match batch.step {
            Step::Reserve => {
                // Perhaps it is reserved: giving it back makes it certain.
                let moves = std::mem::take(&mut batch.moves);
                self.counts.failed_moves += moves.len() as u64;
                self.go_on(now, batch.at(Step::Abandon, moves));
            }
            Step::Push if is_last || batch.tries >= PUSH_TRIES_MAX => {
                // The source could not be reached, or it waits for a target that does not answer.
                self.targets.avoid(batch.choice.node, now + self.config.avoid);
                let moves = std::mem::take(&mut batch.moves);
                self.counts.failed_moves += moves.len() as u64;
                self.go_on(now, batch.at(Step::Abandon, moves));
            }
            Step::Commit | Step::Abandon if is_last => self.end(now, batch),
            _ => {
                let doublings = batch.tries.min(4) - 1;
                let until = now + Millis(self.config.retry_wait.0 << doublings);
                let call = self.call();
                self.waiting.insert((until, call), batch);
            }
        }
    }

    /// Makes the call of a batch's step; an empty batch ends.
    pub(super) fn go_on(&mut self, now: Instant, mut batch: Batch) {
        if batch.moves.is_empty() {
            self.targets.push_ended(batch.choice.node);
            return;
        }
        let call = self.call();
        let output = match batch.step {
            Step::Reserve => Output::Reserve { call, moves: batch.proposals() },
            Step::Commit => Output::Commit { call, moves: batch.commits() },
            Step::Abandon => Output::Abandon { call, blocks: batch.blocks() },
            Step::Push => {
                let Some(drain) =
                    self.drains.get(&batch.source).filter(|drain| !drain.is_over(now))
                else {
                    let moves = std::mem::take(&mut batch.moves);
                    return self.go_on(now, batch.at(Step::Abandon, moves));
                };
                let Some(target) = self.targets.address(batch.choice.node) else {
                    return self.replan(batch);
                };
                batch.mark = drain.pace.mark();
                let left = drain.left(now).unwrap_or(self.config.push_millis_max);
                Output::Push {
                    call,
                    source: batch.source,
                    address: drain.address.clone(),
                    moves: batch.pushes(target),
                    within: left.min(self.config.push_millis_max),
                }
            }
        };
        batch.called_at = now;
        self.outputs.push_back(output);
        let before = self.batches.insert(call, batch);
        debug_assert!(before.is_none(), "no call's number is used twice");
    }

    /// Ends a batch whose reservations are given back, or about which nothing can be done.
    pub(super) fn end(&mut self, now: Instant, batch: Batch) {
        self.targets.push_ended(batch.choice.node);
        self.targets.give_back(batch.choice, batch.reserve_bytes());
        for one in batch.moves {
            self.settle(now, batch.source, one);
        }
    }

    /// Gives moves another target at once. What was reserved is given up by the reservation there.
    pub(super) fn replan(&mut self, mut batch: Batch) {
        self.counts.failed_moves += batch.moves.len() as u64;
        self.targets.push_ended(batch.choice.node);
        self.targets.give_back(batch.choice, batch.reserve_bytes());
        let Some(drain) = self.drains.get_mut(&batch.source) else { return };
        for one in batch.moves.drain(..) {
            drain.replan(one.queued);
        }
    }

    fn settle(&mut self, now: Instant, source: NodeId, one: Move) {
        let wait = self.config.retry_wait;
        let Some(drain) = self.drains.get_mut(&source) else { return };
        match one.fate {
            Fate::Requeue => drain.retry(now, one.queued, wait),
            Fate::Replan => drain.replan(one.queued),
            Fate::Forget => drain.queue.forget(one.block()),
        }
    }
}
