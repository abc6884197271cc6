//! Versions of the messages, and how two peers agree on one.
//!
//! The framing has a number of its own ([`crate::frame::VERSION`]). What the bodies hold grows from
//! release to release: new requests, replies, refusals and events are added at the end of their
//! lists, and what exists is never changed. Each side of a connection names in the flags of its
//! greeting the versions that it supports; both then use the newest common one. A peer without
//! these flags supports version 3, the last one before the flags.

use crate::message::{Joined, SourceNotice};
use crate::{Event, EventKind, Millis, NodeSelector, Order, OrderReply, Refusal, Reply, Request};

/// The newest version of the messages that is spoken here.
pub const MESSAGES: u8 = 4;

/// The oldest. The release before this one speaks it, so that a fleet can be upgraded node by node.
pub const MESSAGES_MIN: u8 = 3;

/// Pause of a caller that does not know other members of a group. Half of the 400 ms without a
/// leader after which an election begins at the earliest: the caller finds the new leader soon
/// after its election, with a few attempts in vain.
const LEADER_PAUSE: Millis = Millis(200);

/// The version of a peer whose greeting has no flags.
const UNSAID: u8 = 3;

/// Returns the flags of a greeting: the newest version in the low byte, the oldest in the high one.
#[must_use]
pub const fn greeting_flags() -> u16 {
    MESSAGES as u16 | (MESSAGES_MIN as u16) << 8
}

/// Returns the version that both sides use, from the flags of the peer's greeting.
///
/// # Errors
/// [`Refusal::UnknownVersion`] when there is none: one of the two must be upgraded.
pub const fn agreed(flags: u16) -> Result<u8, Refusal> {
    let (newest, oldest) = match flags {
        0 => (UNSAID, UNSAID),
        flags => ((flags & 0xff) as u8, (flags >> 8) as u8),
    };
    if oldest > MESSAGES || newest < MESSAGES_MIN {
        return Err(Refusal::UnknownVersion { ours: MESSAGES, theirs: newest });
    }
    Ok(if newest < MESSAGES { newest } else { MESSAGES })
}

/// Returns what to send a namenode of this version in place of a request.
///
/// # Errors
/// [`Refusal::UnknownVersion`] for what it cannot do: the namenode is upgraded first.
pub fn request_for(version: u8, request: Request) -> Result<Request, Refusal> {
    if version >= 4 {
        return Ok(request);
    }
    Ok(match request {
        Request::Join(join) => Request::Register(join.register),
        Request::Beat(heartbeat) => Request::Heartbeat(heartbeat),
        // As a client of that version sends it: made as often as it comes.
        Request::Once(once) => return request_for(version, once.change.into_request()),
        Request::SourceNotice(notice) => notice_for_3(notice),
        // It returns whose the blocks are, and not what it counts for them.
        Request::CountedBlocks { subtree, blocks, .. } => Request::Within { subtree, blocks },
        Request::OpenClient { .. }
        | Request::DeleteObject { .. }
        | Request::Room
        | Request::Repeat(_)
        | Request::ReportDamage { .. }
        | Request::ExpectedBlocks { .. }
        | Request::RevokeTokens { .. }
        | Request::Revocations { .. }
        | Request::RegisterLimitedJob(_)
        | Request::JobAccount { .. }
        | Request::Members
        | Request::Durable(_) => {
            return Err(Refusal::UnknownVersion { ours: MESSAGES, theirs: version });
        }
        request => request,
    })
}

/// Returns a statement of a datanode as one of version 3 makes it: if no source shows a notice any
/// more, everything is taken back. Else the earlier deadline stays.
fn notice_for_3(notice: SourceNotice) -> Request {
    let node = NodeSelector::from(notice.node);
    match notice.deadline_millis {
        Some(deadline_millis) => Request::Notice { node, deadline_millis, reason: notice.reason },
        None => Request::Cancel { node },
    }
}

/// Refuses an order that a datanode of this version does not support.
///
/// # Errors
/// [`Refusal::UnknownVersion`]: the datanode is upgraded first.
pub const fn order_for(version: u8, order: &Order) -> Result<(), Refusal> {
    match order {
        Order::Verify { .. }
        | Order::Upload(_)
        | Order::ChangeStore { .. }
        | Order::AbortUploads { .. }
        | Order::Restore(_)
        | Order::TakeStore { .. }
        | Order::ListStore { .. }
            if version < 4 =>
        {
            Err(Refusal::UnknownVersion { ours: MESSAGES, theirs: version })
        }
        _ => Ok(()),
    }
}

/// Returns the present form of a reply of this version.
#[must_use]
pub fn reply_of(version: u8, reply: Reply) -> Reply {
    if version >= 4 {
        return reply;
    }
    match reply {
        Reply::Registered(registered) => {
            Reply::Joined(Box::new(Joined { registered, position: None, is_continuation: true }))
        }
        Reply::Heartbeat(heartbeat) => Reply::Beat { heartbeat, position: None },
        reply => reply,
    }
}

/// Returns what to answer a caller of this version: a reply or a refusal that it supports.
///
/// # Errors
/// The refusal that was given, or the one of that version that comes nearest to it: send it to the
/// caller.
pub fn answer_for(version: u8, answer: Result<Reply, Refusal>) -> Result<Reply, Refusal> {
    if version >= 4 {
        return answer;
    }
    match answer {
        Ok(Reply::Events(events)) => {
            Ok(Reply::Events(events.into_iter().filter(|event| is_known(3, event)).collect()))
        }
        Ok(Reply::Joined(joined)) => Ok(Reply::Registered(joined.registered)),
        Ok(Reply::Beat { heartbeat, .. }) => Ok(Reply::Heartbeat(heartbeat)),
        // It would write to a block without room.
        Ok(Reply::Grant(mut grant)) => {
            grant.blocks.retain(|block| block.bytes_max > 0);
            Ok(Reply::Grant(grant))
        }
        answer => answer.map_err(|refusal| refusal_for(version, refusal)),
    }
}

/// Returns the refusal of this version that comes nearest to a refusal: its caller does the same
/// next.
#[must_use]
pub fn refusal_for(version: u8, refusal: Refusal) -> Refusal {
    if version >= 4 {
        return refusal;
    }
    match refusal {
        Refusal::ReserveKept { bytes, class, .. } => Refusal::Full { bytes, class },
        // Either way the block is not here, and the namenode has its location.
        Refusal::BlockDamaged { block } => Refusal::UnknownBlock { block },
        Refusal::JobLimitPassed { job, limit: quota, used, asked, .. } => {
            Refusal::QuotaPassed { job, quota, used, asked }
        }
        // It has one address, and that member may lead by then.
        refusal @ Refusal::NotLeader { .. } => {
            Refusal::RetryAfter { after: LEADER_PAUSE, why: refusal.to_string() }
        }
        refusal @ Refusal::Undecided { .. } => {
            Refusal::RetryAfter { after: LEADER_PAUSE, why: refusal.to_string() }
        }
        // Its greeting names no generation, so that it gets none.
        refusal @ Refusal::OtherGeneration { .. } => Refusal::BadFrame { why: refusal.to_string() },
        refusal => refusal,
    }
}

/// Returns what a datanode answers to an order of a caller that speaks this version.
#[must_use]
pub fn order_reply_for(version: u8, reply: OrderReply) -> OrderReply {
    match reply {
        OrderReply::Refused(refusal) => OrderReply::Refused(refusal_for(version, refusal)),
        OrderReply::Pushed(pushed) => {
            let one = |one: Result<_, _>| one.map_err(|refusal| refusal_for(version, refusal));
            OrderReply::Pushed(pushed.into_iter().map(one).collect())
        }
        reply => reply,
    }
}

/// Returns the flags in which a client and a datanode of one machine name the newest version that
/// they support: the high byte, because the low one has the client's options. That there is a
/// common version follows from the connection on which the client requested the socket.
#[must_use]
pub const fn local_flags() -> u16 {
    (MESSAGES as u16) << 8
}

/// Returns the version that a client and a datanode of one machine use together, from the peer's
/// [`local_flags`]: the newest that both support, or 3 if the peer's flags name none.
#[must_use]
pub const fn agreed_locally(flags: u16) -> u8 {
    match (flags >> 8) as u8 {
        0 => UNSAID,
        newest if newest < MESSAGES => newest,
        _ => MESSAGES,
    }
}

/// Returns whether a version has an event. One that it does not have is left out: the sequences
/// that follow show the gap.
const fn is_known(version: u8, event: &Event) -> bool {
    version >= 4
        || !matches!(
            event.kind,
            EventKind::NamenodeAbsent { .. }
                | EventKind::LogEndLost { .. }
                | EventKind::BlocksOrphaned { .. }
                | EventKind::ReserveShort { .. }
                | EventKind::ReserveRestored { .. }
                | EventKind::JournalCut { .. }
                | EventKind::SnapshotSkipped { .. }
                | EventKind::BlocksDamaged { .. }
                | EventKind::NamenodeLeads { .. }
                | EventKind::GroupChanged { .. }
                | EventKind::GroupAtRisk { .. }
                | EventKind::GroupRestored { .. }
                | EventKind::DirectoryDurable { .. }
                | EventKind::ObjectsDurable { .. }
                | EventKind::DurableStalled { .. }
                | EventKind::DurableDropped { .. }
                | EventKind::StoreAdopted { .. }
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Grant, GrantedBlock};
    use crate::order::Pushed;
    use crate::{BlockId, Epoch, LeaseId, Millis, NodeId, ObjectId, Tier};

    #[test]
    fn statement_about_sources_takes_back_only_what_no_source_shows_for_version_3() {
        let stated = |deadline_millis, is_withdrawn| {
            let (node, nonce, number) = (NodeId(7), crate::Nonce(1), 4);
            let reason = "spot".to_owned();
            let notice =
                SourceNotice { node, nonce, number, deadline_millis, reason, is_withdrawn };
            request_for(3, Request::SourceNotice(notice)).unwrap()
        };
        let (node, reason) = (NodeSelector::from(NodeId(7)), "spot".to_owned());
        let notice = Request::Notice { node: node.clone(), deadline_millis: 9000, reason };
        assert_eq!(stated(Some(9000), false), notice);
        assert_eq!(stated(Some(9000), true), notice, "another source still shows it");
        assert_eq!(stated(None, true), Request::Cancel { node });
    }

    #[test]
    fn version_3_returns_whose_blocks_are_and_not_what_counts_for_them() {
        let (subtree, blocks) = ("/a".parse::<crate::Path>().unwrap(), vec![BlockId(7)]);
        let (of, ids) = (subtree.clone(), blocks.clone());
        let counted = Request::CountedBlocks { node: NodeId(1), subtree: of, blocks: ids };
        assert_eq!(request_for(4, counted.clone()), Ok(counted.clone()));
        assert_eq!(request_for(3, counted), Ok(Request::Within { subtree, blocks }));
    }

    #[test]
    fn peers_agree_on_the_newest_version_that_both_speak() {
        assert_eq!(agreed(0), Ok(3), "the release before sends nothing");
        assert_eq!(agreed(greeting_flags()), Ok(MESSAGES));
        assert_eq!(agreed(9 | 4 << 8), Ok(4), "a later release that still speaks ours");
        assert_eq!(agreed(9 | 5 << 8), Err(Refusal::UnknownVersion { ours: 4, theirs: 9 }));
        assert_eq!(agreed(2 | 1 << 8), Err(Refusal::UnknownVersion { ours: 4, theirs: 2 }));
        assert_eq!(agreed_locally(1), 3, "the low byte is no version");
        assert_eq!(agreed_locally(local_flags() | 1), MESSAGES);
        assert_eq!(agreed_locally(9 << 8), MESSAGES);
    }

    #[test]
    fn block_without_room_is_granted_only_to_a_writer_that_ends_it() {
        let block = |bytes_max| GrantedBlock {
            block: BlockId(u64::from(bytes_max)),
            epoch: Epoch(1),
            node: NodeId(1),
            tier: Tier::Dram,
            bytes_max,
        };
        let grant = |blocks: &[u32]| {
            let (object, lease, lease_millis) = (ObjectId(1), LeaseId(1), Millis(1));
            let blocks = blocks.iter().copied().map(block).collect();
            Reply::Grant(Grant { object, lease, lease_millis, bytes: 0, blocks, places: vec![] })
        };
        assert_eq!(answer_for(3, Ok(grant(&[0, 5]))), Ok(grant(&[5])));
        assert_eq!(answer_for(4, Ok(grant(&[0, 5]))), Ok(grant(&[0, 5])));
    }

    #[test]
    fn refusals_that_an_older_caller_does_not_support_become_those_that_it_does() {
        let (damaged, unknown) = (BlockId(7), BlockId(7));
        let damaged = Refusal::BlockDamaged { block: damaged };
        let unknown = Refusal::UnknownBlock { block: unknown };
        assert_eq!(refusal_for(3, damaged.clone()), unknown);
        assert_eq!(unknown.recovery(), damaged.recovery());
        assert_eq!(refusal_for(4, damaged.clone()), damaged);
        let pushed = |refusal: &Refusal| {
            OrderReply::Pushed(vec![Ok(Pushed { length: 5 }), Err(refusal.clone())])
        };
        assert_eq!(order_reply_for(3, pushed(&damaged)), pushed(&unknown));
        assert_eq!(order_reply_for(4, pushed(&damaged)), pushed(&damaged));
        let newest = Refusal::TABLE.last().map(|(_, name)| *name);
        let elsewhere = Refusal::NotLeader { leader: Some("b:2".to_owned()) };
        assert_eq!(refusal_for(4, elsewhere.clone()), elsewhere);
        assert_eq!(refusal_for(3, elsewhere).name(), "RetryAfter");
        let other = Refusal::OtherGeneration { here: 1, asked: 2 };
        assert_eq!(other.recovery(), refusal_for(3, other.clone()).recovery());
        let undecided = Refusal::Undecided { why: "x".to_owned() };
        assert_eq!(undecided.recovery(), refusal_for(3, undecided.clone()).recovery());
        assert_eq!(newest, Some("Undecided"), "write here what version 3 gets for a new one");
    }
}
