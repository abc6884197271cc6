//! Reads at a leader without a lease: they wait until a majority has confirmed that it leads. One
//! round is for all that have come before it.

use std::collections::VecDeque;

use sanderling_protocol::{Instant, Millis};

use super::machine::Replica;
use super::output::ReplicaRole;

/// Time after which the next round begins although the last one is not confirmed: its messages may
/// be lost. One tick by default (`ReplicaOptions::tick`), so that reads begin at most 19 rounds in
/// the 361 ms in which an answer counts, of the 512 rounds that a leader remembers.
const ROUND_INTERVAL: Millis = Millis(20);

/// The reads that wait, in the order in which they came. `T` is what a read waits for.
#[derive(Debug)]
pub struct WaitingReads<T> {
    /// Those for which no round has begun.
    waiting: Vec<T>,
    /// The rounds that are not confirmed, with their reads.
    rounds: VecDeque<(u64, Vec<T>)>,
    /// When the last round began.
    began: Instant,
    /// The term of the rounds: the next one has numbers of its own.
    term: u64,
}

impl<T> Default for WaitingReads<T> {
    fn default() -> Self {
        Self { waiting: Vec::new(), rounds: VecDeque::new(), began: Instant(0), term: 0 }
    }
}

impl<T> WaitingReads<T> {
    /// Adds a read. [`Self::begin`] begins its round.
    pub fn add(&mut self, read: T) {
        self.waiting.push(read);
    }

    /// Begins one round for all reads that have none, unless the round before is under way and
    /// younger than 20 ms. Called when reads have come, when a round is confirmed, and with each
    /// tick.
    pub fn begin(&mut self, now: Instant, replica: &mut Replica) {
        if self.term != replica.term() {
            self.term = replica.term();
            self.waiting.extend(self.rounds.drain(..).flat_map(|(_, reads)| reads));
        }
        let is_early = !self.rounds.is_empty() && now < self.began + ROUND_INTERVAL;
        if self.waiting.is_empty() || is_early {
            return;
        }
        if let Some(round) = replica.confirm_reads(now) {
            self.began = now;
            self.rounds.push_back((round, std::mem::take(&mut self.waiting)));
        }
    }

    /// Removes and returns the reads of the round with this number and of those before it: they may
    /// be answered.
    pub fn confirmed(&mut self, number: u64) -> Vec<T> {
        let mut confirmed = Vec::new();
        while self.rounds.front().is_some_and(|(round, _)| *round <= number)
            && let Some((_, reads)) = self.rounds.pop_front()
        {
            confirmed.extend(reads);
        }
        confirmed
    }

    /// Removes and returns all reads if this member does not lead: another one has to answer them.
    pub fn ended(&mut self, replica: &Replica) -> Vec<T> {
        if replica.role() == ReplicaRole::Leader {
            return Vec::new();
        }
        let of_rounds = self.rounds.drain(..).flat_map(|(_, reads)| reads);
        of_rounds.chain(self.waiting.drain(..)).collect()
    }
}
