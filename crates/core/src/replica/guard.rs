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

use MessageContradiction as Fault;

/// Terms and numbers of entries are below: a log of a million rounds a second needs 146,000 years.
const NUMBER_MAX: u64 = 1 << 62;

/// Most terms that a member of a group is behind: elections that fail without a pause take five
/// days for as many.
const TERMS_BEHIND_MAX: u64 = 1 << 20;

/// A reason why a message of a member was refused. The message changed nothing; the shell counts
/// and logs the refusal.
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
    #[error("member {from} sent a message that cannot be true: {contradiction}")]
    Contradiction {
        /// The sender.
        from: MemberId,
        /// What is wrong.
        #[source]
        contradiction: MessageContradiction,
    },
    /// This member was removed from the group and takes no part.
    #[error("this member was removed from the group")]
    Removed,
}

/// A contradiction of a message to itself or to what the receiver has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MessageContradiction {
    /// It names itself, or no member.
    #[error("it names itself or no member")]
    NamesItself,
    /// Its term is 0, or beyond every log.
    #[error("its term is out of range")]
    TermRange,
    /// Its term belongs to another generation of the group.
    #[error("its term is of another generation")]
    TermGeneration,
    /// Its term is more than 2^20 ahead of this member's.
    #[error("its term is too far ahead")]
    TermAhead,
    /// It speaks as a leader in a term that another member leads.
    #[error("another member leads in this term")]
    AnotherLeads,
    /// It names agreed entries beyond what this member has received.
    #[error("it has agreed entries that it has not sent")]
    UnsentAgreed,
    /// Terms or numbers of its log are impossible.
    #[error("its log is out of range")]
    LogRange,
    /// A learner answers a request for votes.
    #[error("it has no vote")]
    NoVote,
    /// It confirms entries that this leader has not sent.
    #[error("it has confirmed what was not sent")]
    UnsentConfirmed,
    /// It rejects entries that this leader has not sent.
    #[error("it has rejected what was not sent")]
    UnsentRejected,
    /// It rejects entries that it confirmed before.
    #[error("it has rejected what it had confirmed")]
    ConfirmedRejected,
    /// It gives its leadership away and has none.
    #[error("it does not lead")]
    NotLeader,
    /// Numbers of its entries do not follow each other.
    #[error("its entries have gaps")]
    EntryGap,
    /// Terms of its entries fall, or pass its own.
    #[error("the terms of its entries go back")]
    EntryTermsBack,
    /// An entry has more bytes of commands than a round may have.
    #[error("a round is too long")]
    RoundTooLong,
    /// An entry, or the one before its entries, is not the one that the group has agreed on there.
    #[error("its entries contradict an agreed entry")]
    EntryContradicts,
    /// The place of its snapshot is impossible.
    #[error("its snapshot is out of range")]
    SnapshotRange,
    /// Members of its snapshot exclude each other, or are too many.
    #[error("its members contradict each other")]
    MembersContradict,
    /// Its snapshot is of a group that this member is not in.
    #[error("its snapshot is of a group without this member")]
    SnapshotWithoutMember,
    /// Its snapshot contradicts an entry that the group has agreed on.
    #[error("its snapshot contradicts an agreed entry")]
    SnapshotContradicts,
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
        return Err(MessageRefusal::Contradiction { from, contradiction: Fault::NamesItself });
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
    let refused = |contradiction| Err(MessageRefusal::Contradiction { from, contradiction });
    let raft = &node.raft;
    if term == 0 || term >= NUMBER_MAX {
        return refused(Fault::TermRange);
    }
    // Datanodes refuse orders of a generation below that of the last term that they have received.
    if GroupGeneration::number_of_term(term) != GroupGeneration(envelope.generation).number() {
        return refused(Fault::TermGeneration);
    }
    if raft.term != 0 && term > raft.term + TERMS_BEHIND_MAX {
        return refused(Fault::TermAhead);
    }
    let is_current = term == raft.term;
    let is_leader = is_current && raft.leader_id == raft.id;
    if envelope.body.is_of_leader() && is_current && ![0, from.0].contains(&raft.leader_id) {
        return refused(Fault::AnotherLeads);
    }
    let last = raft.raft_log.last_index();
    let contradiction = match &envelope.body {
        Body::Append { before, committed, entries } => {
            let wrong = check_entries(*before, *committed, entries, term);
            return match wrong.or_else(|| check_agreed(*before, entries, raft)) {
                Some(contradiction) => refused(contradiction),
                None => Ok(()),
            };
        }
        Body::Heartbeat { committed } if term >= raft.term && *committed > last => {
            Fault::UnsentAgreed
        }
        Body::Snapshot { place, group } => {
            return match check_snapshot(*place, group, term, MemberId(raft.id), raft) {
                Some(contradiction) => refused(contradiction),
                None => Ok(()),
            };
        }
        Body::VoteRequest { last, committed, .. }
            if !is_place(*last) || !is_place(*committed) || last.term > term =>
        {
            Fault::LogRange
        }
        Body::VoteAnswer { committed, .. } if !is_place(*committed) => Fault::LogRange,
        Body::VoteAnswer { .. } if !group.counts(from) => Fault::NoVote,
        Body::Appended { last: theirs, committed }
            if is_leader && (*theirs > last || *committed > last) =>
        {
            Fault::UnsentConfirmed
        }
        Body::AppendRejected { before, hint, .. } if is_leader => {
            let matched = raft.prs().get(from.0).map_or(0, |progress| progress.matched);
            if *before > last || hint.index > *before {
                Fault::UnsentRejected
            } else if *before <= matched {
                Fault::ConfirmedRejected
            } else {
                return Ok(());
            }
        }
        Body::Lead { .. } if !is_current || raft.leader_id != from.0 => Fault::NotLeader,
        _ => return Ok(()),
    };
    refused(contradiction)
}

const fn is_place(place: LogPlace) -> bool {
    place.index < NUMBER_MAX && place.term < NUMBER_MAX
}

fn check_entries(
    before: LogPlace,
    committed: u64,
    entries: &[LogEntry],
    term: u64,
) -> Option<Fault> {
    if !is_place(before) || before.term > term || committed >= NUMBER_MAX {
        return Some(Fault::LogRange);
    }
    let mut previous = before;
    for LogEntry { place, payload } in entries {
        if place.index != previous.index + 1 {
            return Some(Fault::EntryGap);
        }
        if place.term < previous.term || place.term > term || place.term == 0 {
            return Some(Fault::EntryTermsBack);
        }
        if let super::Payload::Round { commands, .. } = payload
            && commands.len() > ROUND_BYTES_MAX
        {
            return Some(Fault::RoundTooLong);
        }
        previous = *place;
    }
    None
}

/// Checks that entries agree with those that the group has agreed on: the library takes what lies
/// before the last of these for the same, and would report it as received.
fn check_agreed(
    before: LogPlace,
    entries: &[LogEntry],
    raft: &raft::Raft<Log>,
) -> Option<MessageContradiction> {
    let (first, agreed) = (raft.raft_log.first_index(), raft.raft_log.committed);
    let places = std::iter::once(before).chain(entries.iter().map(|entry| entry.place));
    // What the log does not keep any more is in the catalog of every member that has begun with it.
    let mut known = places.filter(|place| place.index + 1 >= first && place.index <= agreed);
    let is_other = |place: LogPlace| !raft.raft_log.match_term(place.index, place.term);
    known.any(is_other).then_some(Fault::EntryContradicts)
}

fn check_snapshot(
    place: LogPlace,
    group: &Group,
    term: u64,
    id: MemberId,
    raft: &raft::Raft<Log>,
) -> Option<Fault> {
    if !is_place(place) || place.index == 0 || place.term == 0 || place.term > term {
        return Some(Fault::SnapshotRange);
    }
    if !group.is_consistent() || group.members().count() > MEMBERS_MAX {
        return Some(Fault::MembersContradict);
    }
    if group.member(id).is_none() {
        return Some(Fault::SnapshotWithoutMember);
    }
    let committed = raft.raft_log.committed;
    if place.index == committed && !raft.raft_log.match_term(place.index, place.term) {
        return Some(Fault::SnapshotContradicts);
    }
    None
}
