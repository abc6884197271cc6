//! Transfers of the leadership that an operator has ordered: when each is begun, when it is begun
//! anew, and when it is given up.

use std::collections::BTreeMap;

use sanderling_protocol::{Instant, MemberId, Millis};
use thiserror::Error;

use super::group::GroupRole;
use super::machine::{ProposeError, Replica};
use super::output::ReplicaRole;

/// How long another member may take to lead: a transfer ends by itself after the shortest time of
/// an election, 400 ms by default, so it is begun several times.
pub const LEAD_TIMEOUT: Millis = Millis(2000);

/// Orders that wait for a voter to answer. More are refused. Operators and members that leave cause
/// few of them at a time. Chosen, not measured.
const WAITING_MAX: usize = 64;

/// A reason why the leadership was not transferred.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LeaderMoveError {
    /// The leader has no answer of another voter: reach or start one first.
    #[error("no other voter answers")]
    NoVoter,
    /// The replica does not begin the transfer.
    #[error(transparent)]
    Refused(#[from] ProposeError),
    /// The member answers, and does not lead after two seconds: order it again.
    #[error("the other member did not begin to lead in time")]
    TooLate,
}

/// One order. `W` is what its sender waits for.
#[derive(Debug)]
struct LeaderMove<W> {
    until: Instant,
    /// The member that is named, if one is.
    to: Option<MemberId>,
    reply: W,
}

/// The orders that have not ended, in the order in which they came.
#[derive(Debug)]
pub struct LeaderMoves<W> {
    waiting: Vec<LeaderMove<W>>,
    /// How many transfers to each successor have begun since no order waited.
    tried: BTreeMap<MemberId, u32>,
}

impl<W> Default for LeaderMoves<W> {
    fn default() -> Self {
        Self { waiting: Vec::new(), tried: BTreeMap::new() }
    }
}

impl<W> LeaderMoves<W> {
    /// Takes an order to make `to` the leader, or the best of `successors` if no member is named:
    /// the first of those that were tried least. The transfer begins at once, or as soon as a voter
    /// answers: a leader that has just begun has received nothing of it yet. [`Self::ended`]
    /// returns `reply` with the outcome.
    ///
    /// # Errors
    /// [`LeaderMoveError`], with `reply`: the transfer cannot begin; answer the order with it.
    pub fn order(
        &mut self,
        replica: &mut Replica,
        now: Instant,
        to: Option<MemberId>,
        successors: &[MemberId],
        reply: W,
    ) -> Result<(), (W, LeaderMoveError)> {
        if self.waiting.is_empty() {
            self.tried.clear();
        }
        let begun = self.transfer(replica, now, to, successors);
        let may_wait = self.waiting.len() < WAITING_MAX && may_answer(replica, to);
        match begun {
            Err(error) if !may_wait => Err((reply, error)),
            _ => {
                self.waiting.push(LeaderMove { until: now + LEAD_TIMEOUT, to, reply });
                Ok(())
            }
        }
    }

    /// Begins the first transfer anew that did not succeed: a message may have been lost on its
    /// way. It is refused while the one before is under way, so the caller may call this at any
    /// time. `successors` are as in [`Self::order`]: if the order names no member, the next one is
    /// tried.
    pub fn repeat(&mut self, replica: &mut Replica, now: Instant, successors: &[MemberId]) {
        if let Some(to) = self.waiting.first().map(|first| first.to) {
            let _ = self.transfer(replica, now, to, successors);
        }
    }

    /// Removes and returns the orders that have ended, with their outcomes: all, successfully, if
    /// this member does not lead any more, else those that have failed for two seconds. None fails
    /// while a change of the members is under way.
    pub fn ended(
        &mut self,
        replica: &Replica,
        now: Instant,
    ) -> Vec<(W, Result<(), LeaderMoveError>)> {
        if replica.role() != ReplicaRole::Leader {
            return self.waiting.drain(..).map(|it| (it.reply, Ok(()))).collect();
        }
        if replica.group().is_changing() {
            return Vec::new();
        }
        let mut ended = Vec::new();
        for it in std::mem::take(&mut self.waiting) {
            if now < it.until {
                self.waiting.push(it);
            } else {
                ended.push((it.reply, Err(not_moved(replica, it.to))));
            }
        }
        ended
    }

    /// Begins to give the leadership to a voter.
    fn transfer(
        &mut self,
        replica: &mut Replica,
        now: Instant,
        to: Option<MemberId>,
        successors: &[MemberId],
    ) -> Result<(), LeaderMoveError> {
        let tries = |id: &MemberId| self.tried.get(id).copied().unwrap_or_default();
        let next = to.or_else(|| successors.iter().copied().min_by_key(tries));
        match next {
            Some(id) => {
                replica.transfer(now, id)?;
                if to.is_none() {
                    *self.tried.entry(id).or_default() += 1;
                }
                Ok(())
            }
            None if replica.role() == ReplicaRole::Leader => Err(LeaderMoveError::NoVoter),
            None => Err(ProposeError::NotLeader { leader: replica.leader() }.into()),
        }
    }
}

/// Returns why this member still leads although a transfer was ordered.
fn not_moved(replica: &Replica, to: Option<MemberId>) -> LeaderMoveError {
    let answers = |id: MemberId| replica.progress().iter().any(|it| it.id == id && it.is_active);
    match to {
        _ if !has_successor(replica) => LeaderMoveError::NoVoter,
        Some(id) if !answers(id) => ProposeError::CannotLead(id).into(),
        _ => LeaderMoveError::TooLate,
    }
}

/// Returns whether the leader may be followed by this voter, or by any, once it has answered.
fn may_answer(replica: &Replica, to: Option<MemberId>) -> bool {
    let Some(leader) = replica.leader().filter(|_| replica.role() == ReplicaRole::Leader) else {
        return false;
    };
    let mut others = replica
        .progress()
        .into_iter()
        .filter(|it| it.role == GroupRole::Voter && it.id != leader && !it.is_active);
    others.any(|it| to.is_none_or(|to| to == it.id))
}

/// Returns whether a voter beside the leader answers.
fn has_successor(replica: &Replica) -> bool {
    let leader = replica.leader();
    let mut rows = replica.progress().into_iter();
    rows.any(|it| it.role == GroupRole::Voter && it.is_active && Some(it.id) != leader)
}
