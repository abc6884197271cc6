//! What of a peer's message may reach the library.
//!
//! The library ends the process where a message contradicts what it has: an agreed entry that
//! another replaces, progress beyond the log, members that exclude each other. A peer that is
//! broken, old or hostile must not be able to do that, so each such message is refused here.

use raft::RawNode;
use sanderling_protocol::{ClusterId, MemberId};
use thiserror::Error;

use super::entry::{LogEntry, LogPlace};
use super::group::{Group, MEMBERS_MAX};
use super::log::Log;
use super::message::{Body, Envelope, ROUND_BYTES_MAX};
use super::options::ReplicaOptions;
use crate::group_generation::GroupGeneration;

/// Terms and numbers of entries are below: a log of a million rounds a second needs 146,000 years.
const NUMBER_MAX: u64 = 1 << 62;

/// Most terms that a member of a group is behind: elections that fail without a pause take five
/// days for as many.
const TERMS_BEHIND_MAX: u64 = 1 << 20;

/// Why a message of a member was refused. It changed nothing; the shell counts and logs it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MessageRefusal {
    /// The peer belongs to another cluster: its address is wrong.
    #[error("member {from} belongs to cluster {theirs}, this one to {ours}")]
    Cluster {
        /// The sender.
        from: MemberId,
        /// Its cluster.
        theirs: ClusterId,
        /// This one's.
        ours: ClusterId,
    },
    /// One of the two was left behind when the group was begun anew; the lower generation stops.
    #[error("member {from} is of generation {theirs}, this one of {ours}")]
    Generation {
        /// The sender.
        from: MemberId,
        /// Its generation.
        theirs: u64,
        /// This one's.
        ours: u64,
    },
    /// The message is for another member: an address leads to the wrong process.
    #[error("a message for member {to} reached member {ours}")]
    NotMine {
        /// The receiver that it names.
        to: MemberId,
        /// This member.
        ours: MemberId,
    },
    /// The sender has started again since.
    #[error("member {from} has started again since this message")]
    OldIncarnation {
        /// The sender.
        from: MemberId,
    },
    /// The sender was removed. It gets a message about that.
    #[error("member {from} was removed from the group")]
    RemovedMember {
        /// The sender.
        from: MemberId,
    },
    /// The message contradicts itself or what this member has.
    #[error("member {from} sent nonsense: {why}")]
    Nonsense {
        /// The sender.
        from: MemberId,
        /// What is wrong.
        why: &'static str,
    },
    /// This member was removed from the group and takes no part.
    #[error("this member was removed from the group")]
    Removed,
}

/// Checks the sender and the receiver of a message.
pub(super) fn check_sender(
    envelope: &Envelope,
    options: &ReplicaOptions,
    group: &Group,
) -> Result<(), MessageRefusal> {
    let Envelope { cluster, generation, from, to, .. } = *envelope;
    if cluster != options.cluster {
        let ours = options.cluster;
        return Err(MessageRefusal::Cluster { from, theirs: cluster, ours });
    }
    if generation != options.generation {
        let ours = options.generation;
        return Err(MessageRefusal::Generation { from, theirs: generation, ours });
    }
    if to != options.id {
        return Err(MessageRefusal::NotMine { to, ours: options.id });
    }
    if from == to || from.0 == 0 {
        return Err(MessageRefusal::Nonsense { from, why: "it names itself or no member" });
    }
    if group.member(from).is_none() && from < group.next() {
        return Err(MessageRefusal::RemovedMember { from });
    }
    Ok(())
}

/// Checks what a message contains against what the library has.
pub(super) fn check_body(
    envelope: &Envelope,
    node: &RawNode<Log>,
    group: &Group,
) -> Result<(), MessageRefusal> {
    let Envelope { from, term, .. } = *envelope;
    let nonsense = |why| Err(MessageRefusal::Nonsense { from, why });
    let raft = &node.raft;
    if term == 0 || term >= NUMBER_MAX {
        return nonsense("its term is out of range");
    }
    // Datanodes refuse orders of a generation below that of the last term that they have received.
    if GroupGeneration::number_of_term(term) != GroupGeneration(envelope.generation).number() {
        return nonsense("its term is of another generation");
    }
    if raft.term != 0 && term > raft.term + TERMS_BEHIND_MAX {
        return nonsense("its term is too far ahead");
    }
    let is_current = term == raft.term;
    let is_leader = is_current && raft.leader_id == raft.id;
    if envelope.body.is_of_leader() && is_current && ![0, from.0].contains(&raft.leader_id) {
        return nonsense("another member leads in this term");
    }
    let last = raft.raft_log.last_index();
    let why = match &envelope.body {
        Body::Append { before, committed, entries } => {
            return match check_entries(*before, *committed, entries, term) {
                Some(why) => nonsense(why),
                None => Ok(()),
            };
        }
        Body::Heartbeat { committed } if term >= raft.term && *committed > last => {
            "it has agreed entries that it has not sent"
        }
        Body::Snapshot { place, group } => {
            return match check_snapshot(*place, group, term, MemberId(raft.id), raft) {
                Some(why) => nonsense(why),
                None => Ok(()),
            };
        }
        Body::VoteRequest { last, committed, .. }
            if !is_place(*last) || !is_place(*committed) || last.term > term =>
        {
            "its log is out of range"
        }
        Body::VoteAnswer { committed, .. } if !is_place(*committed) => "its log is out of range",
        Body::VoteAnswer { .. } if !group.counts(from) => "it has no vote",
        Body::Appended { last: theirs, committed }
            if is_leader && (*theirs > last || *committed > last) =>
        {
            "it has confirmed what was not sent"
        }
        Body::AppendRejected { before, hint, .. } if is_leader => {
            let matched = raft.prs().get(from.0).map_or(0, |progress| progress.matched);
            if *before > last || hint.index > *before {
                "it has rejected what was not sent"
            } else if *before <= matched {
                "it has rejected what it had confirmed"
            } else {
                return Ok(());
            }
        }
        Body::Lead { .. } if !is_current || raft.leader_id != from.0 => "it does not lead",
        _ => return Ok(()),
    };
    nonsense(why)
}

const fn is_place(place: LogPlace) -> bool {
    place.index < NUMBER_MAX && place.term < NUMBER_MAX
}

fn check_entries(
    before: LogPlace,
    committed: u64,
    entries: &[LogEntry],
    term: u64,
) -> Option<&'static str> {
    if !is_place(before) || before.term > term || committed >= NUMBER_MAX {
        return Some("its log is out of range");
    }
    let mut previous = before;
    for LogEntry { place, payload } in entries {
        if place.index != previous.index + 1 {
            return Some("its entries have gaps");
        }
        if place.term < previous.term || place.term > term || place.term == 0 {
            return Some("the terms of its entries go back");
        }
        if let super::Payload::Round { commands, .. } = payload
            && commands.len() > ROUND_BYTES_MAX
        {
            return Some("a round is too long");
        }
        previous = *place;
    }
    None
}

fn check_snapshot(
    place: LogPlace,
    group: &Group,
    term: u64,
    id: MemberId,
    raft: &raft::Raft<Log>,
) -> Option<&'static str> {
    if !is_place(place) || place.index == 0 || place.term == 0 || place.term > term {
        return Some("its snapshot is out of range");
    }
    if !group.is_consistent() || group.members().count() > MEMBERS_MAX {
        return Some("its members contradict each other");
    }
    if group.member(id).is_none() {
        return Some("its snapshot is of a group without this member");
    }
    let committed = raft.raft_log.committed;
    if place.index == committed && !raft.raft_log.match_term(place.index, place.term) {
        return Some("its snapshot contradicts an agreed entry");
    }
    None
}
