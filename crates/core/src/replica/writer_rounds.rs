//! The rounds of a member's writer, one at a time: in which term they may be proposed, how each of
//! them ends, what its callers get, and what the writer applies of the log meanwhile.
//!
//! In each term that the member leads, the writer first takes over: [`WriterRounds::begin_term`],
//! the rounds with which a term begins, and [`WriterRounds::serve`]. It begins a round with
//! [`WriterRounds::begin`]. Then it repeats: propose, execute what the replica puts out, and look
//! ([`WriterRounds::look`]), until the round is not under way any more. It passes each agreed entry
//! to [`WriterRounds::agreed`], in the order of the log, and applies what that returns.

use bytes::Bytes;
use sanderling_protocol::{Instant, Millis};

use super::entry::{LogPlace, Payload};
use super::machine::Replica;
use super::proposed_round::{FlightState, RoundFlight};

/// How long a round may wait for the quorum when the process ends. A quorum that is there agrees
/// within milliseconds, one that elects after 400 ms at the earliest; callers of what is left get
/// `Undecided`. Chosen, not measured.
const END_TIMEOUT: Millis = Millis(500);

/// How far the process is while a round of its writer is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessPhase {
    /// It runs.
    Runs,
    /// It ends in a moment: a round waits for 500 ms at most from then on.
    Ends,
    /// A file of the member has failed: nothing that arrives counts for this process any more, and
    /// the next start has what is agreed from the log or from a leader.
    Failed,
}

/// The state of the writer's round.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum RoundProgress {
    /// The quorum does not have all of it. Propose and look again after each message.
    UnderWay,
    /// The quorum has all of it: the writer applies it as a whole, as its own, before it passes on
    /// another entry.
    Agreed,
    /// It does not become this writer's.
    Ended {
        /// The pieces that are agreed, in their order. The writer applies them as another leader's
        /// before it refuses the callers.
        agreed: Vec<Bytes>,
        /// What the callers get.
        loss: RoundLoss,
    },
}

/// How a round has ended that does not become its writer's. The callers' next step follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoundLoss {
    /// Nothing of it was proposed, so no member can ever apply it. Callers repeat it at the leader.
    NotLeader,
    /// Nothing of it was proposed: no entry can be as long as one of its pieces. Callers do not
    /// repeat it.
    TooLong {
        /// Bytes of the piece.
        bytes: usize,
    },
    /// A piece was proposed: a successor may have all of it, or a part, or nothing. Callers repeat
    /// it under the same sequence, and the successor answers.
    Undecided,
}

/// The rounds that the writer of a member proposes, of which at most one is under way.
#[derive(Debug, Clone, Default)]
pub struct WriterRounds {
    flight: Option<RoundFlight>,
    /// The time of its last command.
    at: Instant,
    /// When it is given up, if the process ends.
    given_up_at: Option<Instant>,
    /// The term in which this member proposes no round any more.
    barred_term: Option<u64>,
    /// The term in which the writer makes its rounds.
    begun_term: Option<u64>,
    /// The term in which it has begun to serve.
    served_term: Option<u64>,
}

impl WriterRounds {
    /// Notes that this namenode has founded its group: its writer goes on in the group's first
    /// term, as nothing was on its way to another leader.
    pub fn found(&mut self, replica: &Replica) {
        self.begin_term(replica);
        self.served_term = self.begun_term;
    }

    /// Returns whether this member leads and has applied all that earlier leaders agreed, and its
    /// writer has not taken over in this term.
    #[must_use]
    pub fn is_to_take_over(&self, replica: &Replica) -> bool {
        replica.is_serving() && self.served_term != Some(replica.term())
    }

    /// Notes that the rounds from now on are made in the present term of a leader that takes over.
    pub fn begin_term(&mut self, replica: &Replica) {
        self.begun_term = Some(replica.term());
    }

    /// Notes that the rounds with which `term` begins have ended, however. Returns whether the
    /// writer serves, which it does unless the member does not lead in that term any more.
    pub fn serve(&mut self, term: u64, replica: &Replica) -> bool {
        let leads = replica.is_serving() && replica.term() == term;
        if leads {
            self.served_term = Some(term);
        }
        leads
    }

    /// Returns whether this member leads, and its writer has taken over in this term.
    #[must_use]
    pub fn serves(&self, replica: &Replica) -> bool {
        replica.is_serving() && self.served_term == Some(replica.term())
    }

    /// Begins a round of these pieces, of which each becomes an entry. The last of its commands is
    /// of the group's time `at`. Nothing is proposed.
    ///
    /// Two kinds of rounds are never proposed. Of one that is begun before the writer has begun the
    /// replica's term, as by a thread that was stopped while another member led, the commands would
    /// come before those with which a term begins. And in a term in which a round was given up that
    /// had been proposed, the quorum may get that one: the next would begin at the same number.
    ///
    /// # Panics
    /// When the round before is under way: look until it has ended.
    pub fn begin(
        &mut self,
        at: Instant,
        pieces: impl IntoIterator<Item = Bytes>,
        replica: &Replica,
    ) {
        assert!(self.flight.is_none(), "the round before has ended");
        let (mut flight, term) = (RoundFlight::new(replica.term(), pieces), Some(replica.term()));
        if !replica.is_serving() || self.begun_term != term || self.barred_term == term {
            drop(flight.give_up());
        }
        self.flight = Some(flight);
        (self.at, self.given_up_at) = (at, None);
    }

    /// Returns whether a round is under way: [`Self::look`] has not shown its end.
    #[must_use]
    pub const fn has_begun(&self) -> bool {
        self.flight.is_some()
    }

    /// Proposes what is left of the round, as far as the replica takes it. Call it after each
    /// message: a piece waits while the leadership is transferred, and while too many bytes wait
    /// for the quorum.
    pub fn propose(&mut self, now: Instant, replica: &mut Replica) {
        if let Some(flight) = &mut self.flight {
            flight.propose(now, self.at, replica);
        }
    }

    /// Takes an agreed entry of the log, and returns the pieces of rounds that the writer applies
    /// now as another leader's, in their order. It is empty for a piece of the round under way,
    /// which the writer applies as a whole once all of it is agreed. An entry of any other round
    /// means that the one under way is lost: what is agreed of that is before this entry in the
    /// log, and is applied before it.
    #[must_use]
    pub fn agreed(&mut self, place: LogPlace, payload: &Payload) -> Vec<Bytes> {
        let Payload::Round { commands, .. } = payload else { return Vec::new() };
        if self.flight.as_mut().is_some_and(|flight| flight.applies(place, payload)) {
            return Vec::new();
        }
        let mut pieces = self.flight.as_mut().map(RoundFlight::give_up).unwrap_or_default();
        pieces.push(commands.clone());
        pieces
    }

    /// Notes that a leader's snapshot has replaced the catalog. It has what is agreed of the round
    /// under way, so that is lost, and nothing of it is applied.
    pub fn restored(&mut self) {
        if let Some(flight) = &mut self.flight {
            drop(flight.give_up());
        }
    }

    /// Returns whether the log up to the last entry that [`Self::agreed`] has taken has commands
    /// that the catalog lacks: an image of it would be of no place of the log.
    #[must_use]
    pub fn is_between_pieces(&self) -> bool {
        self.flight.as_ref().is_some_and(RoundFlight::is_between_pieces)
    }

    /// Returns what became of the round under way, by the agreed entries, by the role that the
    /// replica has now, and by how far the process is. All but [`RoundProgress::UnderWay`] end the
    /// round here. Without a round the answer is that of one of which nothing was proposed.
    pub fn look(
        &mut self,
        now: Instant,
        replica: &Replica,
        process: ProcessPhase,
    ) -> RoundProgress {
        let state = self.flight.as_ref().map_or(FlightState::Lost, |it| it.state(replica));
        let is_given_up = match process {
            ProcessPhase::Runs => false,
            ProcessPhase::Ends => now >= *self.given_up_at.get_or_insert(now + END_TIMEOUT),
            ProcessPhase::Failed => true,
        };
        match state {
            FlightState::Agreed if process != ProcessPhase::Failed => {
                self.flight = None;
                RoundProgress::Agreed
            }
            FlightState::UnderWay if !is_given_up => RoundProgress::UnderWay,
            state => self.end(state, process),
        }
    }

    fn end(&mut self, state: FlightState, process: ProcessPhase) -> RoundProgress {
        let (mut agreed, mut is_proposed) = (Vec::new(), false);
        if let Some(mut flight) = self.flight.take() {
            (agreed, is_proposed) = (flight.give_up(), flight.is_proposed());
            self.barred_term = flight.barred_term().or(self.barred_term);
        }
        if process == ProcessPhase::Failed {
            agreed.clear();
        }
        let loss = match state {
            _ if is_proposed => RoundLoss::Undecided,
            FlightState::TooLong { bytes } => RoundLoss::TooLong { bytes },
            _ => RoundLoss::NotLeader,
        };
        RoundProgress::Ended { agreed, loss }
    }
}
