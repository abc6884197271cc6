//! The round that a leader has proposed, in as many entries as it needs: when it is agreed as a
//! whole, and what is left of it when another member leads.

use std::collections::VecDeque;

use bytes::Bytes;
use sanderling_protocol::Instant;

use super::entry::{LogPlace, Payload};
use super::machine::{ProposeError, Replica};
use super::output::ReplicaRole;

/// The state of the round that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FlightState {
    /// The quorum does not have it yet.
    UnderWay,
    /// The quorum has all of it.
    Agreed,
    /// This member does not lead any more: its successor may have the round, or a part of it, or
    /// nothing.
    Lost,
    /// The machine takes no entry as long as one of its pieces. Nothing of that piece is proposed.
    TooLong {
        /// Bytes of the piece.
        bytes: usize,
    },
}

/// A round under way: the commands of one turn, in pieces of which each is an entry of the log.
#[derive(Debug, Clone)]
pub(super) struct RoundFlight {
    term: u64,
    first: u64,
    last: u64,
    /// Pieces that are proposed, between the entries `first` and `last`.
    proposed: usize,
    /// Pieces that are not proposed.
    left: VecDeque<Bytes>,
    /// Pieces that are agreed, which the shell has not applied: it applies the round as a whole.
    agreed: Vec<Bytes>,
    /// Whether the shell gave it up: it has applied what was agreed of it as another leader's.
    is_lost: bool,
    /// Bytes of the piece that is too long.
    too_long: Option<usize>,
}

impl RoundFlight {
    /// Returns a round of the leader of `term`, none of whose pieces is proposed.
    pub(super) fn new(term: u64, pieces: impl IntoIterator<Item = Bytes>) -> Self {
        Self {
            term,
            first: 0,
            last: 0,
            proposed: 0,
            left: pieces.into_iter().collect(),
            agreed: Vec::new(),
            is_lost: false,
            too_long: None,
        }
    }

    /// Proposes what is left of the round, the last of whose commands is of the time `at`, as far
    /// as the machine takes it. Call it again after each message.
    pub(super) fn propose(&mut self, now: Instant, at: Instant, replica: &mut Replica) {
        while let Some(piece) = self.left.front() {
            // A round is of one term: another leader's entries may be between two.
            if self.state(replica) != FlightState::UnderWay {
                return;
            }
            match replica.propose(now, at, piece.clone()) {
                Ok(place) => {
                    if self.proposed == 0 {
                        self.first = place.index;
                    }
                    self.last = place.index;
                    self.proposed += 1;
                    self.left.pop_front();
                }
                // Another leads in a moment, or this member goes on.
                Err(ProposeError::Transferring | ProposeError::Full) => return,
                Err(ProposeError::TooLong { bytes }) => self.too_long = Some(bytes),
                Err(_) => self.is_lost = true,
            }
        }
    }

    /// Takes an entry that the shell applies. Returns whether it is of this round: the shell then
    /// applies the round once all of it is agreed.
    pub(super) fn applies(&mut self, place: LogPlace, payload: &Payload) -> bool {
        let is_own = !self.is_lost
            && self.proposed > 0
            && self.term == place.term
            && (self.first..=self.last).contains(&place.index);
        match payload {
            Payload::Round { commands, .. } if is_own => {
                self.agreed.push(commands.clone());
                true
            }
            _ => false,
        }
    }

    /// Returns whether a piece of the round was proposed: then a successor may have it.
    #[must_use]
    pub(super) const fn is_proposed(&self) -> bool {
        self.proposed > 0
    }

    /// Returns whether a piece is agreed that the shell has not applied: its catalog lacks commands
    /// of the log up to the entry that it has taken last.
    #[must_use]
    pub(super) const fn is_between_pieces(&self) -> bool {
        !self.agreed.is_empty()
    }

    /// Returns the term in which its leader may propose no other round: a piece of this one was
    /// proposed, and the shell gave it up. The quorum may get that piece, and a round behind it
    /// would begin at the same number, as the catalog lacks it.
    #[must_use]
    pub(super) fn barred_term(&self) -> Option<u64> {
        (self.is_lost && self.is_proposed()).then_some(self.term)
    }

    /// Gives the round up and returns the pieces that are agreed: the shell applies them as another
    /// leader's, before anything that follows them in the log.
    pub(super) fn give_up(&mut self) -> Vec<Bytes> {
        self.is_lost = true;
        std::mem::take(&mut self.agreed)
    }

    /// Returns what became of the round, by the entries that [`Self::applies`] has taken and by the
    /// role that `replica` has now. A round that is agreed as a whole is [`FlightState::Agreed`]
    /// even if another member leads by now. Of one that is [`FlightState::Lost`] the shell takes
    /// what is agreed by [`Self::give_up`]. Cost: constant.
    #[must_use]
    pub(super) fn state(&self, replica: &Replica) -> FlightState {
        let is_leader = replica.role() == ReplicaRole::Leader && self.term == replica.term();
        match self.too_long {
            _ if self.is_agreed() => FlightState::Agreed,
            _ if self.is_lost || !is_leader => FlightState::Lost,
            Some(bytes) => FlightState::TooLong { bytes },
            None => FlightState::UnderWay,
        }
    }

    fn is_agreed(&self) -> bool {
        !self.is_lost && self.left.is_empty() && self.agreed.len() == self.proposed
    }
}
