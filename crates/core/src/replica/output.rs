//! What a member's shell does, and what it can read.

use sanderling_protocol::MemberId;

use super::entry::{LogEntry, LogPlace, Vote};
use super::group::{Group, GroupRole};
use super::message::Envelope;

/// A requirement on what is written before it is reported as persisted: whether it must be on the
/// disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SyncRequirement {
    /// No: it can be derived again.
    None,
    /// As the operator has set for the log (`--sync`).
    Log,
    /// Yes, whatever is set: a vote that is forgotten elects two leaders.
    Always,
}

/// The state that must be written before [`super::Replica::persisted`], in the steps of
/// [`super::MemberRecord::persist`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Persist {
    /// Counts up. Reported back when it is written; a later one includes the earlier ones.
    pub number: u64,
    /// The vote, if it changed.
    pub vote: Option<Vote>,
    /// A snapshot that was received: it replaces the whole log.
    pub snapshot: Option<(LogPlace, Group)>,
    /// Entries to append after that. What the log has from the first of them on was overruled and
    /// must not come back.
    pub entries: Vec<LogEntry>,
    /// How far it must be written.
    pub durability: SyncRequirement,
}

/// The role that a member has in its present term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaRole {
    /// It leads in this term.
    Leader,
    /// It is a candidate.
    Candidate,
    /// It follows, or waits for a leader.
    Follower,
}

/// The outputs that the shell executes, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplicaOutput {
    /// Write this, in the order of the numbers.
    Persist(Persist),
    /// Send this to the member `to.to`. May be lost, repeated or late. An envelope with a
    /// [`super::Body::Snapshot`] goes behind the snapshot's file, and its receiver passes it on
    /// once the file is there; then [`super::Replica::snapshot_sent`].
    Send(Envelope),
    /// Replace the state by the snapshot at this place, which has been received.
    Restore(LogPlace, Group),
    /// Apply these. They are agreed and will never change.
    Apply(Vec<LogEntry>),
    /// The members, once the entry with that number is applied.
    GroupChanged(u64, Group),
    /// The role or the leader changed, or the term. A leader must not answer yet: see
    /// [`super::Replica::is_serving`].
    RoleChanged {
        /// The role.
        role: ReplicaRole,
        /// The term.
        term: u64,
        /// The leader, if there is one.
        leader: Option<MemberId>,
    },
    /// Reads that were requested with this number or an earlier one may be answered.
    ReadsConfirmed(u64),
    /// A member lags more than the log in memory: take a snapshot, then
    /// [`super::Replica::snapshot_taken`].
    TakeSnapshot,
    /// This member was removed from the group. It takes no part any more.
    Removed,
}

/// The progress of a member, as its leader sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberProgress {
    /// The member.
    pub id: MemberId,
    /// What it counts for.
    pub role: GroupRole,
    /// The index of the last entry of the leader's log that it has confirmed to have.
    pub matched: u64,
    /// Whether the leader has received something from it since the last two election times.
    pub is_active: bool,
}
