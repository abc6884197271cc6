//! The rounds of the leader, as its clients see them: some of one entry each, several of them under
//! way, and some of several entries.

use bytes::Bytes;
use sanderling_core::replica::{LogEntry, ProcessPhase, RoundProgress};
use sanderling_protocol::{Instant, Millis};

use super::check::round_of;
use super::world::{GroupEvent, GroupWorld};
use crate::InjectedBug;

impl GroupWorld {
    /// Proposes a round at a member that serves.
    pub(super) fn propose(&mut self) {
        let next = self.now + self.random.between(1, 2 * self.scenario.round_micros);
        self.at(next, GroupEvent::Propose);
        let serving: Vec<usize> = (0..self.hosts.len())
            .filter(|at| self.hosts[*at].is_serving() && self.hosts[*at].paused_until <= self.now)
            .collect();
        if serving.is_empty() {
            return;
        }
        let at = self.random.pick(&serving);
        let padding = self.random.below(100) as usize;
        let host = &self.hosts[at];
        let (local, wall) = (host.local(self.now), host.wall(self.now));
        let Some(replica) = &host.replica else { return };
        let time = match self.bug {
            Some(InjectedBug::TimeStepped) => wall,
            _ => replica.time(local),
        };
        let term = replica.term();
        let absence = match self.bug {
            _ if host.served_term == term => Millis(0),
            Some(InjectedBug::GapCounted) => Millis(0),
            _ => replica.absence(local, host.state.at),
        };
        // One that excuses an absence is alone in its first entry.
        let is_long = absence == Millis(0) && self.notices.permille(300);
        if host.rounds.has_begun() {
            self.continue_round(at);
        } else if is_long {
            self.begin_round(at, time, padding);
        } else {
            self.propose_one(at, time, absence, padding);
        }
        self.drain(at);
    }

    /// Returns the commands of the next round, which is a number and what it excuses.
    fn next_round(&self, before: u64, absence: Millis, padding: usize) -> (u64, Bytes) {
        let round = self.proposals.len() as u64 + 1 + before;
        let mut commands = [round.to_le_bytes(), absence.0.to_le_bytes()].concat();
        commands.resize(16 + padding, 0);
        (round, Bytes::from(commands))
    }

    fn propose_one(&mut self, at: usize, time: Instant, absence: Millis, padding: usize) {
        let (round, commands) = self.next_round(0, absence, padding);
        let host = &mut self.hosts[at];
        let local = host.local(self.now);
        let Some(replica) = &mut host.replica else { return };
        let term = replica.term();
        let Ok(place) = replica.propose(local, time, commands) else { return };
        host.served_term = term;
        host.proposed.insert(place, round);
        self.proposals.insert(round, self.now);
        if self.bug == Some(InjectedBug::AcknowledgedEarly) {
            self.checks.acknowledge_early(round, place);
        }
    }

    /// Begins a round of two to four entries.
    fn begin_round(&mut self, at: usize, time: Instant, padding: usize) {
        let count = self.notices.between(2, 5);
        let rounds: Vec<(u64, Bytes)> =
            (0..count).map(|before| self.next_round(before, Millis(0), padding)).collect();
        self.proposals.extend(rounds.iter().map(|(round, _)| (*round, self.now)));
        let host = &mut self.hosts[at];
        let Some(replica) = &host.replica else { return };
        // Whichever round is a leader's first excuses the absence.
        host.rounds.begin_term(replica);
        host.rounds.begin(time, rounds.into_iter().map(|(_, commands)| commands), replica);
        self.continue_round(at);
    }

    fn continue_round(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        let local = host.local(self.now);
        let Some(replica) = &mut host.replica else { return };
        host.rounds.propose(local, replica);
        self.look_at_round(at);
    }

    /// Acknowledges the round under way as a whole once it is agreed, and forgets one that is lost.
    fn look_at_round(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        let local = host.local(self.now);
        let Some(replica) = &host.replica else { return };
        match host.rounds.look(local, replica, ProcessPhase::Runs) {
            RoundProgress::UnderWay => return,
            RoundProgress::Agreed => {
                for (round, place) in &host.pieces {
                    self.checks.acknowledge(*round, *place);
                }
                self.counts.rounds += 1;
                if let Some(fleet) = &mut self.traced {
                    fleet.acknowledged(self.now);
                }
            }
            // What is agreed of it was applied piece by piece.
            RoundProgress::Ended { .. } => {}
        }
        host.pieces.clear();
    }

    /// Takes an entry that a member applies: what its clients wait for may be agreed.
    pub(super) fn agreed(&mut self, at: usize, entry: &LogEntry) {
        let host = &mut self.hosts[at];
        if let Some(round) = host.proposed.remove(&entry.place) {
            self.checks.acknowledge(round, entry.place);
            self.counts.rounds += 1;
            if let Some(fleet) = &mut self.traced {
                fleet.acknowledged(self.now);
            }
        } else if host.rounds.agreed(entry.place, &entry.payload).is_empty() {
            host.pieces.extend(round_of(entry).map(|(round, _)| (round, entry.place)));
        }
        if host.rounds.has_begun() {
            self.look_at_round(at);
        }
    }
}
