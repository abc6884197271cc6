//! Changes of the group that are under way, and reads that wait for the quorum: where their
//! answers go.

use sanderling_core::replica::{
    Group, GroupChange, GroupChangeError, GroupGeneration, LeaderMoveError, LeaderMoves,
    MemberAddress, ProposeError, Replica, ReplicaRole, WaitingReads,
};
use sanderling_protocol::{Instant, MemberId, Millis, Nonce, Refusal};
use tokio::sync::oneshot;

use super::wire::GroupOrder;

/// Changes and joins that wait at once. A group has at most 15 members, each with few of them, so
/// 64 are more than operators and joining namenodes cause; more are refused.
const PENDING_MAX: usize = 64;

/// Where the answer to a namenode that joins goes.
pub(super) type JoinReply = oneshot::Sender<Result<(MemberId, GroupGeneration), Refusal>>;

type Done<T> = oneshot::Sender<Result<T, Refusal>>;

/// What waits for an answer.
#[derive(Debug, Default)]
pub(crate) struct PendingChanges {
    reads: WaitingReads<oneshot::Sender<bool>>,
    joins: Vec<(Nonce, JoinReply)>,
    removals: Vec<(MemberId, Done<()>)>,
    moves: LeaderMoves<Done<()>>,
}

pub(crate) fn refusal(error: &ProposeError, group: &Group) -> Refusal {
    let again = |why: String| Refusal::RetryAfter { after: Millis(200), why };
    match error {
        ProposeError::NotLeader { leader } => {
            let leader = leader.and_then(|id| group.member(id));
            Refusal::NotLeader { leader: leader.map(|it| it.at.address.clone()) }
        }
        // It leads in a moment, and has taken nothing until then.
        ProposeError::NotServing => Refusal::NotLeader { leader: None },
        ProposeError::Transferring
        | ProposeError::Full
        | ProposeError::Change(GroupChangeError::UnderWay | GroupChangeError::InUse(_)) => {
            again(error.to_string())
        }
        _ => Refusal::BadRequest { why: error.to_string() },
    }
}

fn move_refusal(error: &LeaderMoveError, group: &Group) -> Refusal {
    match error {
        LeaderMoveError::NoVoter => Refusal::BadRequest { why: error.to_string() },
        LeaderMoveError::Refused(error) => refusal(error, group),
        LeaderMoveError::TooLate => {
            Refusal::RetryAfter { after: Millis(500), why: error.to_string() }
        }
    }
}

impl PendingChanges {
    /// Queues a read until the quorum confirms that this member leads; `reply` gets true then.
    pub(super) fn read(&mut self, reply: oneshot::Sender<bool>) {
        self.reads.add(reply);
    }

    /// Begins to confirm the reads that wait, all at once.
    pub(super) fn confirm(&mut self, replica: &mut Replica, now: Instant) {
        self.reads.begin(now, replica);
    }

    /// Answers the reads up to a number.
    pub(super) fn confirmed(&mut self, number: u64) {
        for reply in self.reads.confirmed(number) {
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

    /// Begins what an operator has ordered. `successors`: those that may lead if none is named, the
    /// best first.
    pub(super) fn order(
        &mut self,
        replica: &mut Replica,
        now: Instant,
        order: &GroupOrder,
        successors: &[MemberId],
        reply: Done<()>,
    ) {
        match order {
            GroupOrder::Remove(id) => {
                let change = GroupChange { remove: [*id].into(), ..GroupChange::default() };
                self.propose(replica, now, &change, reply, |pending, reply| {
                    pending.removals.push((*id, reply));
                });
            }
            GroupOrder::MoveLeader(to) => {
                let ordered = self.moves.order(replica, now, *to, successors, reply);
                if let Err((reply, error)) = ordered {
                    let _ = reply.send(Err(move_refusal(&error, replica.group())));
                }
            }
        }
    }

    /// Begins anew what did not succeed.
    pub(super) fn repeat(&mut self, replica: &mut Replica, now: Instant, successors: &[MemberId]) {
        self.moves.repeat(replica, now, successors);
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
        for (reply, ended) in self.moves.ended(replica, now) {
            let _ = reply.send(ended.map_err(|error| move_refusal(&error, group)));
        }
        for reply in self.reads.ended(replica) {
            let _ = reply.send(false);
        }
        if replica.role() != ReplicaRole::Leader {
            let why = "another namenode may lead and have it in its log: sanderling group ls";
            let refused = Refusal::Undecided { why: why.to_owned() };
            for (_, reply) in self.joins.drain(..) {
                let _ = reply.send(Err(refused.clone()));
            }
            for (_, reply) in self.removals.drain(..) {
                let _ = reply.send(Err(refused.clone()));
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
    }
}
