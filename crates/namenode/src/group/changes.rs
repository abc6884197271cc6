//! Changes of the group that are under way, and reads that wait for the quorum: where their
//! answers go.

use std::collections::VecDeque;

use sanderling_core::replica::{
    Group, GroupChange, GroupChangeError, GroupGeneration, GroupRole, MemberAddress, ProposeError,
    Replica, ReplicaRole,
};
use sanderling_protocol::{Instant, MemberId, Millis, Nonce, Refusal};
use tokio::sync::oneshot;

use super::wire::GroupOrder;

/// Changes and joins that wait at once. More are refused.
const PENDING_MAX: usize = 64;

/// How long another member may take to lead: a transfer ends by itself after the shortest time of
/// an election.
const MOVE_WITHIN: Millis = Millis(2000);

const NO_VOTER: &str = "no other voter answers";

/// Where the answer to a namenode that joins goes.
pub(super) type JoinReply = oneshot::Sender<Result<(MemberId, GroupGeneration), Refusal>>;

type Done<T> = oneshot::Sender<Result<T, Refusal>>;

/// What waits for an answer.
#[derive(Debug, Default)]
pub(crate) struct PendingChanges {
    confirmations: VecDeque<(u64, oneshot::Sender<bool>)>,
    joins: Vec<(Nonce, JoinReply)>,
    removals: Vec<(MemberId, Done<()>)>,
    /// Until when each may take, the member that is to lead, and where the answer goes.
    moves: Vec<(Instant, Option<MemberId>, Done<()>)>,
}

pub(crate) fn refusal(error: &ProposeError, group: &Group) -> Refusal {
    let again = |why: String| Refusal::RetryAfter { after: Millis(200), why };
    match error {
        ProposeError::NotLeader { leader } => {
            let leader = leader.and_then(|id| group.member(id));
            Refusal::NotLeader { leader: leader.map(|it| it.at.address.clone()) }
        }
        ProposeError::NotServing
        | ProposeError::Transferring
        | ProposeError::Full
        | ProposeError::Change(GroupChangeError::UnderWay | GroupChangeError::InUse(_)) => {
            again(error.to_string())
        }
        _ => Refusal::BadRequest { why: error.to_string() },
    }
}

impl PendingChanges {
    /// Keeps a read that waits for a confirmation by the quorum.
    pub(super) fn confirm(&mut self, number: u64, reply: oneshot::Sender<bool>) {
        self.confirmations.push_back((number, reply));
    }

    /// Answers the reads up to a number.
    pub(super) fn confirmed(&mut self, number: u64) {
        while self.confirmations.front().is_some_and(|(waiting, _)| *waiting <= number) {
            let Some((_, reply)) = self.confirmations.pop_front() else { return };
            let _ = reply.send(true);
        }
    }

    /// Lets a namenode join, or answers that it has.
    pub(super) fn join(
        &mut self,
        replica: &mut Replica,
        now: Instant,
        at: MemberAddress,
        generation: GroupGeneration,
        reply: JoinReply,
    ) {
        let nonce = at.nonce;
        let group = replica.group();
        if let Some(id) = group.joined(nonce).filter(|_| replica.is_serving()) {
            let _ = reply.send(Ok((id, generation)));
            return;
        }
        let Some(change) = group.add(at) else { return };
        self.propose(replica, now, &change, reply, |pending, reply| {
            pending.joins.push((nonce, reply));
        });
    }

    /// Begins what an operator has ordered. `successor`: the one that leads if none is named.
    pub(super) fn order(
        &mut self,
        replica: &mut Replica,
        now: Instant,
        order: &GroupOrder,
        successor: Option<MemberId>,
        reply: Done<()>,
    ) {
        match order {
            GroupOrder::Remove(id) => {
                let change = GroupChange { remove: [*id].into(), ..GroupChange::default() };
                self.propose(replica, now, &change, reply, |pending, reply| {
                    pending.removals.push((*id, reply));
                });
            }
            GroupOrder::MoveLeader(to) => match Self::transfer(replica, now, to.or(successor)) {
                Ok(()) => self.moves.push((now + MOVE_WITHIN, *to, reply)),
                // A leader that has just begun has received nothing of a voter yet.
                Err(_) if self.moves.len() < PENDING_MAX && may_answer(replica, *to) => {
                    self.moves.push((now + MOVE_WITHIN, *to, reply));
                }
                Err(refusal) => drop(reply.send(Err(refusal))),
            },
        }
    }

    /// Begins anew what did not succeed: a message may have been lost on its way.
    pub(super) fn retry(&self, replica: &mut Replica, now: Instant, successor: Option<MemberId>) {
        if let Some((_, to, _)) = self.moves.first() {
            // It is refused while the transfer before is under way.
            let _ = Self::transfer(replica, now, to.or(successor));
        }
    }

    /// Begins to give the leadership to a voter.
    fn transfer(replica: &mut Replica, now: Instant, to: Option<MemberId>) -> Result<(), Refusal> {
        let Some(to) = to else {
            let why = match replica.role() {
                ReplicaRole::Leader => NO_VOTER.to_owned(),
                _ => {
                    let error = ProposeError::NotLeader { leader: replica.leader() };
                    return Err(refusal(&error, replica.group()));
                }
            };
            return Err(Refusal::BadRequest { why });
        };
        replica.transfer(now, to).map_err(|error| refusal(&error, replica.group()))
    }

    fn propose<T>(
        &mut self,
        replica: &mut Replica,
        now: Instant,
        change: &GroupChange,
        reply: Done<T>,
        keep: impl FnOnce(&mut Self, Done<T>),
    ) {
        let waiting = self.joins.len() + self.removals.len();
        if waiting >= PENDING_MAX {
            let why = "too many changes of the group wait".to_owned();
            let _ = reply.send(Err(Refusal::RetryAfter { after: Millis(500), why }));
            return;
        }
        match replica.check_requested(change).and_then(|()| replica.change_group(now, change)) {
            Ok(()) => keep(self, reply),
            // Others may answer again while the joining process tries.
            Err(ProposeError::Change(error @ GroupChangeError::NoMajority(_)))
                if change.add.is_some() =>
            {
                let why = error.to_string();
                let _ = reply.send(Err(Refusal::RetryAfter { after: Millis(200), why }));
            }
            Err(error) => drop(reply.send(Err(refusal(&error, replica.group())))),
        }
    }

    /// Answers what is done, or cannot be done any more.
    pub(super) fn look(&mut self, replica: &Replica, generation: GroupGeneration, now: Instant) {
        let group = replica.group();
        if replica.role() != ReplicaRole::Leader {
            let why = "another namenode may lead and have it in its log: sanderling group ls";
            let refused = Refusal::Undecided { why: why.to_owned() };
            for (_, reply) in self.confirmations.drain(..) {
                let _ = reply.send(false);
            }
            for (_, reply) in self.joins.drain(..) {
                let _ = reply.send(Err(refused.clone()));
            }
            for (_, reply) in self.removals.drain(..) {
                let _ = reply.send(Err(refused.clone()));
            }
            for (_, _, reply) in self.moves.drain(..) {
                let _ = reply.send(Ok(()));
            }
            return;
        }
        if group.is_changing() {
            return;
        }
        for (nonce, reply) in std::mem::take(&mut self.joins) {
            match group.joined(nonce) {
                Some(id) => drop(reply.send(Ok((id, generation)))),
                None if reply.is_closed() => {}
                None => self.joins.push((nonce, reply)),
            }
        }
        for (id, reply) in std::mem::take(&mut self.removals) {
            match group.member(id) {
                None => drop(reply.send(Ok(()))),
                Some(_) if reply.is_closed() => {}
                Some(_) => self.removals.push((id, reply)),
            }
        }
        for (until, to, reply) in std::mem::take(&mut self.moves) {
            if now < until {
                self.moves.push((until, to, reply));
                continue;
            }
            let answers =
                |id: MemberId| replica.progress().iter().any(|it| it.id == id && it.is_active);
            let refused = if !has_successor(replica) {
                Refusal::BadRequest { why: NO_VOTER.to_owned() }
            } else if let Some(id) = to.filter(|id| !answers(*id)) {
                refusal(&ProposeError::CannotLead(id), group)
            } else {
                let why = "the other member did not begin to lead in time".to_owned();
                Refusal::RetryAfter { after: Millis(500), why }
            };
            let _ = reply.send(Err(refused));
        }
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
pub(crate) fn has_successor(replica: &Replica) -> bool {
    let leader = replica.leader();
    let mut rows = replica.progress().into_iter();
    rows.any(|it| it.role == GroupRole::Voter && it.is_active && Some(it.id) != leader)
}
