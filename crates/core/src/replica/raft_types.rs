//! Between this module's types and the library's.

use bytes::Bytes;
use raft::eraftpb::{
    ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState, Entry,
    EntryType, HardState, Message, MessageType, Snapshot,
};
use sanderling_protocol::{Instant, MemberId};

use super::entry::{LogEntry, LogPlace, Payload, Vote};
use super::group::{Group, GroupChange};
use super::message::Body;

/// What the library puts into requests for votes of a transfer.
pub(super) const TRANSFER: &[u8] = b"CampaignTransfer";

/// Returns the bytes of an entry in memory, about.
pub(super) fn bytes(entry: &Entry) -> u64 {
    (entry.data.len() + entry.context.len()) as u64 + 64
}

pub(super) fn hard_state(vote: &Vote) -> HardState {
    HardState {
        term: vote.term,
        vote: vote.candidate.map_or(0, |id| id.0),
        commit: vote.committed,
        ..HardState::default()
    }
}

pub(super) fn vote(state: &HardState) -> Vote {
    let candidate = (state.vote != 0).then_some(MemberId(state.vote));
    Vote { term: state.term, candidate, committed: state.commit }
}

pub(super) fn conf_state(group: &Group) -> ConfState {
    ConfState {
        voters: group.voters().map(|id| id.0).collect(),
        learners: group.spares().map(|id| id.0).collect(),
        voters_outgoing: group.outgoing().map(|id| id.0).collect(),
        ..ConfState::default()
    }
}

pub(super) fn snapshot(place: LogPlace, group: &Group) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let metadata = snapshot.mut_metadata();
    (metadata.index, metadata.term) = (place.index, place.term);
    metadata.set_conf_state(conf_state(group));
    snapshot
}

/// Returns the change of several members, in two steps unless it is of one only.
pub(super) fn conf_change(change: &GroupChange) -> ConfChangeV2 {
    let add = change.add.iter().map(|(id, _)| (ConfChangeType::AddLearnerNode, *id));
    let promote = change.promote.iter().map(|id| (ConfChangeType::AddNode, *id));
    let remove = change.remove.iter().map(|id| (ConfChangeType::RemoveNode, *id));
    let changes = add.chain(promote).chain(remove).map(|(kind, id)| {
        let mut single = ConfChangeSingle::default();
        single.set_change_type(kind);
        single.node_id = id.0;
        single
    });
    let mut all = ConfChangeV2::default();
    all.set_changes(changes.collect());
    // The machine proposes the second step itself: the library's own is lost with a leader.
    let is_of_one = change.steps() <= 1;
    all.set_transition(if is_of_one {
        ConfChangeTransition::Auto
    } else {
        ConfChangeTransition::Explicit
    });
    all
}

/// Returns the library's entry. What it means is in `context`: the library reads `data` of a
/// leader's own proposals only.
pub(super) fn entry(entry: LogEntry) -> Entry {
    let mut to = Entry::default();
    (to.index, to.term) = (entry.place.index, entry.place.term);
    set_payload(&mut to, entry.payload);
    to
}

pub(super) fn set_payload(to: &mut Entry, payload: Payload) {
    match payload {
        Payload::Empty => {}
        Payload::Round { at, commands } => {
            to.context = Bytes::copy_from_slice(&at.0.to_le_bytes());
            to.data = commands;
        }
        Payload::Change(change) => {
            to.set_entry_type(EntryType::EntryConfChangeV2);
            to.context = encode(&change).into();
        }
        Payload::ChangeDone => to.set_entry_type(EntryType::EntryConfChangeV2),
    }
}

/// Returns what an entry has in `context` for a change.
pub(super) fn encode(change: &GroupChange) -> Vec<u8> {
    postcard::to_stdvec(change).expect("a change can be encoded")
}

/// Returns what an entry contains. Only entries of [`entry`] and the library's own come here.
pub(super) fn payload(entry: &Entry) -> Payload {
    if entry.get_entry_type() != EntryType::EntryNormal {
        if entry.context.is_empty() {
            return Payload::ChangeDone;
        }
        let change = postcard::from_bytes(&entry.context);
        return Payload::Change(change.expect("entries are decoded before they are stored"));
    }
    match <[u8; 8]>::try_from(&entry.context[..]) {
        Ok(at) => {
            let (at, commands) = (Instant(u64::from_le_bytes(at)), entry.data.clone());
            Payload::Round { at, commands }
        }
        Err(_) => Payload::Empty,
    }
}

pub(super) fn log_entry(entry: &Entry) -> LogEntry {
    let place = LogPlace { term: entry.term, index: entry.index };
    LogEntry { place, payload: payload(entry) }
}

/// Returns the library's message of a body that was checked; `None` for those that it does not
/// have.
pub(super) fn message(body: Body) -> Option<Message> {
    let mut to = Message::default();
    match body {
        Body::Append { before, committed, entries } => {
            to.set_msg_type(MessageType::MsgAppend);
            (to.index, to.log_term, to.commit) = (before.index, before.term, committed);
            to.set_entries(entries.into_iter().map(entry).collect());
        }
        Body::Appended { last, committed } => {
            to.set_msg_type(MessageType::MsgAppendResponse);
            (to.index, to.commit) = (last, committed);
        }
        Body::AppendRejected { before, hint, committed } => {
            to.set_msg_type(MessageType::MsgAppendResponse);
            (to.index, to.reject, to.commit) = (before, true, committed);
            (to.reject_hint, to.log_term) = (hint.index, hint.term);
        }
        Body::Heartbeat { committed } => {
            to.set_msg_type(MessageType::MsgHeartbeat);
            to.commit = committed;
        }
        Body::HeartbeatAnswer { committed } => {
            to.set_msg_type(MessageType::MsgHeartbeatResponse);
            to.commit = committed;
        }
        Body::VoteRequest { is_pre, last, committed, transfer } => {
            to.set_msg_type(if is_pre {
                MessageType::MsgRequestPreVote
            } else {
                MessageType::MsgRequestVote
            });
            (to.index, to.log_term) = (last.index, last.term);
            (to.commit, to.commit_term) = (committed.index, committed.term);
            if transfer.is_some() {
                to.context = Bytes::from_static(TRANSFER);
            }
        }
        Body::VoteAnswer { is_pre, is_granted, committed } => {
            to.set_msg_type(if is_pre {
                MessageType::MsgRequestPreVoteResponse
            } else {
                MessageType::MsgRequestVoteResponse
            });
            to.reject = !is_granted;
            (to.commit, to.commit_term) = (committed.index, committed.term);
        }
        Body::Snapshot { place, group } => {
            to.set_msg_type(MessageType::MsgSnapshot);
            to.set_snapshot(snapshot(place, &group));
        }
        Body::Lead { .. } => to.set_msg_type(MessageType::MsgTimeoutNow),
        Body::Removed { .. } => return None,
    }
    Some(to)
}

/// Returns the body of a message of the library; `None` for kinds that stay inside.
pub(super) fn body(
    message: &Message,
    transfer: u64,
    group_of: impl Fn(u64) -> Option<Group>,
) -> Option<Body> {
    let committed = LogPlace { term: message.commit_term, index: message.commit };
    let is_granted = !message.reject;
    let kind = message.get_msg_type();
    Some(match kind {
        MessageType::MsgAppend => Body::Append {
            before: LogPlace { term: message.log_term, index: message.index },
            committed: message.commit,
            entries: message.entries.iter().map(log_entry).collect(),
        },
        MessageType::MsgAppendResponse if message.reject => Body::AppendRejected {
            before: message.index,
            hint: LogPlace { term: message.log_term, index: message.reject_hint },
            committed: message.commit,
        },
        MessageType::MsgAppendResponse => {
            Body::Appended { last: message.index, committed: message.commit }
        }
        MessageType::MsgHeartbeat => Body::Heartbeat { committed: message.commit },
        MessageType::MsgHeartbeatResponse => Body::HeartbeatAnswer { committed: message.commit },
        MessageType::MsgRequestVote | MessageType::MsgRequestPreVote => Body::VoteRequest {
            is_pre: kind == MessageType::MsgRequestPreVote,
            last: LogPlace { term: message.log_term, index: message.index },
            committed,
            transfer: (message.context == TRANSFER).then_some(transfer),
        },
        MessageType::MsgRequestVoteResponse => {
            Body::VoteAnswer { is_pre: false, is_granted, committed }
        }
        MessageType::MsgRequestPreVoteResponse => {
            Body::VoteAnswer { is_pre: true, is_granted, committed }
        }
        MessageType::MsgSnapshot => {
            let metadata = message.get_snapshot().get_metadata();
            let place = LogPlace { term: metadata.term, index: metadata.index };
            Body::Snapshot { place, group: group_of(place.index)? }
        }
        MessageType::MsgTimeoutNow => Body::Lead { transfer },
        _ => return None,
    })
}
