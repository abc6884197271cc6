//! A leader's right to answer reads without a round trip, and a follower's promise behind it.
//!
//! A leader numbers what it sends (*rounds*) and remembers when. A follower that receives a round
//! promises to help no other candidate for the shortest time of an election, by its own clock, and
//! answers with the number. So once a majority has answered round 7, no other leader can be elected
//! until that time after round 7 was *sent*, less what clocks run apart.

use std::collections::{BTreeMap, VecDeque};

use sanderling_protocol::{Instant, MemberId, Millis};

use super::group::Group;

/// Rounds whose time is remembered. At one per millisecond they reach further back than an answer
/// can still count. An answer counts for 361 ms by default (`ReplicaOptions::lease`).
const ROUNDS_MAX: usize = 512;

/// Shortest time between the rounds of entries: more would count no sooner.
const ROUND_MICROS_MIN: u64 = 1000;

/// Requests of [`super::Replica::confirm_reads`] that wait at once. [`super::WaitingReads`] puts
/// all reads of 20 ms into one, so only a leader without an answer for 20 s has as many.
const READS_MAX: usize = 1024;

/// A leader's rounds in one term.
#[derive(Debug, Clone, Default)]
pub(super) struct Rounds {
    last: u64,
    sent: VecDeque<(u64, Instant)>,
    acknowledged: BTreeMap<MemberId, u64>,
    /// The lease begins with this round at the earliest.
    floor: u64,
    /// Rounds that reads wait for, with the entry that must be applied before.
    reads: VecDeque<(u64, u64)>,
    pub(super) transfers: u64,
    pub(super) transfers_ended: u64,
}

impl Rounds {
    /// Returns the number for what is sent now.
    pub(super) fn next(&mut self, now: Instant, must_be_new: bool) -> u64 {
        let is_recent = |(_, at): &(u64, Instant)| now.0.saturating_sub(at.0) < ROUND_MICROS_MIN;
        if must_be_new || !self.sent.back().is_some_and(is_recent) {
            self.last += 1;
            if self.sent.len() == ROUNDS_MAX {
                self.sent.pop_front();
            }
            self.sent.push_back((self.last, now));
        }
        self.last
    }

    /// Takes an answer; returns whether the member has received a later round than before. Numbers
    /// that were not sent are ignored.
    pub(super) fn acknowledge(&mut self, from: MemberId, round: u64) -> bool {
        if round > self.last {
            return false;
        }
        let known = self.acknowledged.entry(from).or_default();
        let before = std::mem::replace(known, round.max(*known));
        round > before
    }

    /// Returns the last round that a majority has answered; `None` when the leader decides alone.
    fn confirmed(&self, group: &Group, leader: MemberId) -> Option<u64> {
        if group.is_quorum(|id| id == leader) {
            return None;
        }
        let of = |id: MemberId| self.acknowledged.get(&id).copied().unwrap_or(0);
        let mut rounds: Vec<u64> = group.voters().chain(group.outgoing()).map(of).collect();
        rounds.sort_unstable();
        let confirmed = rounds
            .into_iter()
            .rev()
            .find(|round| group.is_quorum(|id| id == leader || of(id) >= *round));
        Some(confirmed.unwrap_or(0))
    }

    /// Returns until when the leader may answer reads; `None` while it has no lease.
    pub(super) fn lease(&self, group: &Group, leader: MemberId, length: Millis) -> Option<Instant> {
        match self.confirmed(group, leader) {
            None => Some(Instant(u64::MAX)),
            Some(round) if round >= self.floor.max(1) => {
                let at = self.sent.binary_search_by_key(&round, |(round, _)| *round).ok()?;
                Some(self.sent[at].1 + length)
            }
            Some(_) => None,
        }
    }

    /// Begins a transfer: what was confirmed so far gives no lease any more.
    pub(super) fn begin_transfer(&mut self) {
        self.transfers += 1;
        self.floor = u64::MAX;
    }

    /// Ends a transfer that did not succeed.
    pub(super) fn end_transfer(&mut self) {
        self.transfers_ended = self.transfers;
        self.floor = self.last + 1;
    }

    pub(super) const fn last(&self) -> u64 {
        self.last
    }

    /// Returns whether the newest round was begun for reads and has not been sent.
    pub(super) fn is_awaiting(&self) -> bool {
        self.reads.back().is_some_and(|(round, _)| *round == self.last)
    }

    pub(super) const fn is_transferring(&self) -> bool {
        self.transfers != self.transfers_ended
    }

    /// Adds a request to confirm reads with the round that was begun for it.
    pub(super) fn await_reads(&mut self, round: u64, index: u64) {
        self.reads.push_back((round, index));
    }

    pub(super) fn may_await_reads(&self) -> bool {
        self.reads.len() < READS_MAX
    }

    /// Takes the last request that is confirmed, with all before it.
    pub(super) fn take_reads(
        &mut self,
        group: &Group,
        leader: MemberId,
        applied: u64,
    ) -> Option<u64> {
        let confirmed = self.confirmed(group, leader).unwrap_or(u64::MAX);
        let mut taken = None;
        while let Some((round, index)) = self.reads.front()
            && *round <= confirmed
            && *index <= applied
        {
            taken = Some(*round);
            self.reads.pop_front();
        }
        taken
    }
}

/// What a member owes the leader from which it received something.
#[derive(Debug, Clone, Copy)]
pub(super) struct Promise {
    /// The leader's term.
    pub(super) term: u64,
    /// Until when no candidate of a later term gets help, by this member's clock.
    pub(super) until: Instant,
    /// The last round that was received in that term.
    pub(super) round: u64,
    /// The transfers that the leader gave up in that term.
    pub(super) transfers_ended: u64,
}

impl Promise {
    /// Returns what a member owes at its start: what it received before is forgotten.
    pub(super) fn at_start(now: Instant, length: Millis) -> Self {
        Self { term: 0, until: now + length, round: 0, transfers_ended: u64::MAX }
    }

    /// Takes something that the leader of a term has sent.
    pub(super) fn renew(&mut self, now: Instant, length: Millis, sent: (u64, u64, u64)) {
        let (term, round, transfers_ended) = sent;
        if term > self.term {
            *self = Self { term, until: now + length, round, transfers_ended };
        } else if term == self.term {
            self.until = self.until.max(now + length);
            self.round = self.round.max(round);
            self.transfers_ended = self.transfers_ended.max(transfers_ended);
        }
    }

    /// Returns whether a candidate of this term may be helped now.
    pub(super) fn allows(&self, now: Instant, term: u64, transfer: Option<u64>) -> bool {
        let is_transfer = self.term + 1 == term && transfer > Some(self.transfers_ended);
        term <= self.term || now >= self.until || is_transfer
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::Nonce;

    use super::*;
    use crate::replica::group::MemberAddress;

    const LEADER: MemberId = MemberId(1);

    fn group_of(voters: u64) -> Group {
        let address = |id: u64| {
            let address = format!("host-{id}:1");
            MemberAddress { http_address: address.clone(), address, nonce: Nonce(id) }
        };
        Group::of_voters(1, (1..=voters).map(address).collect())
    }

    #[test]
    fn entries_begin_another_round_a_millisecond_after_the_last() {
        let mut rounds = Rounds::default();
        assert_eq!(rounds.next(Instant(5000), false), 1);
        assert_eq!(rounds.next(Instant(5999), false), 1);
        assert_eq!(rounds.next(Instant(6000), false), 2);
        assert_eq!(rounds.next(Instant(6000), true), 3);
    }

    #[test]
    fn lease_begins_when_one_of_the_last_512_rounds_was_sent() {
        let (mut rounds, group) = (Rounds::default(), group_of(3));
        for round in 1..=513 {
            assert_eq!(rounds.next(Instant(round * 1000), true), round);
        }
        let lease = |rounds: &Rounds| rounds.lease(&group, LEADER, Millis(380));
        rounds.acknowledge(MemberId(2), 1);
        assert_eq!(lease(&rounds), None, "its time is not remembered");
        rounds.acknowledge(MemberId(2), 2);
        assert_eq!(lease(&rounds), Some(Instant(2000) + Millis(380)));
        rounds.acknowledge(MemberId(3), 513);
        assert_eq!(lease(&rounds), Some(Instant(513_000) + Millis(380)));
    }

    #[test]
    fn reads_wait_for_their_round_and_for_their_entry() {
        let (mut rounds, group) = (Rounds::default(), group_of(3));
        for index in [5, 6, 6, 7] {
            let round = rounds.next(Instant(1000), true);
            rounds.await_reads(round, index);
        }
        let taken = |rounds: &mut Rounds, applied| rounds.take_reads(&group, LEADER, applied);
        assert_eq!(taken(&mut rounds, 7), None, "no other member has answered");
        rounds.acknowledge(MemberId(2), 1);
        assert_eq!(taken(&mut rounds, 4), None, "their entry is not applied");
        assert_eq!(taken(&mut rounds, 7), Some(1));
        rounds.acknowledge(MemberId(3), 4);
        assert_eq!(taken(&mut rounds, 5), None, "their entry is not applied");
        assert_eq!(taken(&mut rounds, 6), Some(3));
        assert_eq!(taken(&mut rounds, 7), Some(4));
        assert_eq!(taken(&mut rounds, 7), None, "they are taken once");
    }

    #[test]
    fn no_more_than_1024_requests_for_reads_wait() {
        let (mut rounds, group) = (Rounds::default(), group_of(1));
        for round in 1..=1024 {
            assert!(rounds.may_await_reads(), "{round}");
            rounds.await_reads(round, round);
        }
        assert!(!rounds.may_await_reads());
        assert_eq!(rounds.take_reads(&group, LEADER, 1), Some(1));
        assert!(rounds.may_await_reads());
    }
}
