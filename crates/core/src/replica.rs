//! One member of a group of namenodes: which of them leads, which rounds of the log are agreed, and
//! when a member may answer reads.
//!
//! [`Replica`] is a machine without input and output around one implementation of Raft, whose types
//! are private to this module. A log entry is one round of the namenode's writer: bytes that mean
//! nothing to the machine. Its shell writes what [`ReplicaOutput::Persist`] contains, sends what
//! [`ReplicaOutput::Send`] contains and applies [`ReplicaOutput::Apply`], in that order, and passes
//! back what arrived and what is on the disk. [`MemberRecord`] has the steps of each write.
//! `docs/mechanisms/replica.md` has the failures.
//!
//! Beside it are the machines of what a shell decides about its group: [`GroupPlanner`],
//! [`OwnNotice`], [`OwnLife`], [`FormerMembers`], [`GroupEvents`], [`LeaderMoves`], [`MoveView`],
//! [`SnapshotSends`], [`WaitingReads`] and [`WriterRounds`].

mod clock;
mod election;
mod entry;
mod former_members;
mod freshness;
mod group;
mod guard;
mod identity;
mod leader_moves;
mod lease;
mod log;
mod machine;
mod message;
mod move_view;
mod notices;
mod options;
mod output;
mod own_notice;
mod planner;
mod proposed_round;
mod raft_types;
mod read_permission;
mod record;
mod risk;
mod round_order;
mod snapshot_sends;
#[cfg(test)]
mod tests;
mod waiting_reads;
mod writer_rounds;

pub use crate::group_generation::GroupGeneration;
pub use clock::GroupClock;
pub use entry::{LogEntry, LogPlace, Payload, Vote};
pub use former_members::FormerMembers;
pub use group::{Group, GroupChange, GroupChangeError, GroupMember, GroupRole, MemberAddress};
pub use guard::{MessageContradiction, MessageRefusal};
pub use identity::{BootRecord, FoundAtStart, StartAs, SyncMode, start_as};
pub use leader_moves::{LEAD_TIMEOUT, LeaderMoveError, LeaderMoves};
pub use machine::{APPENDS_MAX, ProposeError, Replica};
pub use message::{Body, Envelope, MESSAGE_BYTES_MAX, MessageError, MessageFault, ROUND_BYTES_MAX};
pub use move_view::{MoveView, SeenLeader};
pub use notices::{GroupPlan, GroupStep, MachineLife};
pub use options::{ReplicaOptions, Restored};
pub use output::{MemberProgress, Persist, ReplicaOutput, ReplicaRole, SyncRequirement};
pub use own_notice::{OwnLife, OwnNotice, OwnNoticeReport};
pub use planner::{GroupPlanner, NOTICE_INTERVAL, PlannerOptions};
pub use read_permission::{HUNG_AFTER, LeadState, LeaseView, ReadPermission, TAKE_OVER_TIMEOUT};
pub use record::{MemberRecord, PersistStep, is_log_stale};
pub use risk::{GroupEvents, GroupRisk, RISK_LASTS};
pub use round_order::{RoundOrderError, applied_commands};
pub use snapshot_sends::SnapshotSends;
pub use waiting_reads::WaitingReads;
pub use writer_rounds::{ProcessPhase, RoundLoss, RoundProgress, WriterRounds};
