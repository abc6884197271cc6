//! Nodes: joining, notices, moves, deaths, and what is lost with them.

use sanderling_protocol::message::{
    Heartbeat, HeartbeatReply, MoveCommit, MoveProposal, MovePurpose,
};
use sanderling_protocol::node::Load;
use sanderling_protocol::{
    BlockId, ClusterId, Epoch, EventKind, Millis, NodeId, NodeSelector, Nonce, Order, Policy,
    Refusal, Reply, Request, Tier,
};

use crate::catalog::CatalogLimits;

use super::{Catalog, MIB, Namenode, NamenodeConfig, Rig, length};

pub(super) const MANAGER: Nonce = Nonce(99);

impl Rig {
    pub(super) fn manage(&mut self) {
        let (holder, lease) = (MANAGER, Millis(60_000));
        self.call(Request::Manage { holder, name: "manager".to_owned(), lease }).unwrap();
    }

    pub(super) fn notice(&mut self, node: NodeId, millis: i64) -> Result<Reply, Refusal> {
        let reason = "spot".to_owned();
        self.call(Request::Notice { node: node.into(), deadline_millis: millis, reason })
    }

    pub(super) fn policy(&self, node: NodeId) -> Policy {
        self.namenode.catalog().node_policy(node).unwrap().0
    }

    pub(super) fn reserve(
        &mut self,
        block: BlockId,
        from: Epoch,
        to: NodeId,
    ) -> Result<Epoch, Refusal> {
        let moves = vec![MoveProposal {
            block,
            from_epoch: from,
            to,
            tier: Tier::Dram,
            purpose: MovePurpose::Relocate,
        }];
        let epoch = match self.call(Request::Reserve { holder: MANAGER, moves }).unwrap() {
            Reply::Epochs(mut epochs) => epochs.remove(0)?,
            other => panic!("{other:?}"),
        };
        self.reserved.insert(block, epoch);
        Ok(epoch)
    }

    fn commit(
        &mut self,
        block: BlockId,
        from: Epoch,
        to: NodeId,
        length: u32,
    ) -> Result<Epoch, Refusal> {
        let to_epoch = self.reserved.get(&block).copied().unwrap_or_default();
        let moves = vec![MoveCommit { block, from_epoch: from, to_epoch, to, length }];
        match self.call(Request::Commit { holder: MANAGER, moves }).unwrap() {
            Reply::Epochs(mut epochs) => epochs.remove(0),
            other => panic!("{other:?}"),
        }
    }

    /// Makes a file and returns its block, its home and a node that is not its home.
    fn block(&mut self, name: &str, bytes: u32) -> (BlockId, NodeId, NodeId) {
        let layout = self.put(name, bytes);
        let home = layout.blocks[0].home.unwrap();
        let nodes = self.namenode.catalog().node_ids(false);
        let other =
            nodes.into_iter().find(|node| *node != home && self.policy(*node) == Policy::Active);
        (layout.blocks[0].block, home, other.unwrap())
    }

    fn heartbeat(&mut self, node: NodeId) -> HeartbeatReply {
        let nonce = self.namenode.catalog().node_nonce(node).unwrap();
        let heartbeat = Heartbeat { node, nonce, load: Load::default() };
        match self.call(Request::Heartbeat(heartbeat)).unwrap() {
            Reply::Heartbeat(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    fn last_events(&self, count: usize) -> Vec<EventKind> {
        let events = self.namenode.events_after(0, 1000);
        events.into_iter().rev().take(count).map(|event| event.kind).collect()
    }
}

#[test]
fn new_blocks_go_first_where_heartbeats_show_room() {
    let mut rig = Rig::with_nodes(2);
    let (full, other) = (NodeId(1), NodeId(2));
    let nonce = rig.namenode.catalog().node_nonce(full).unwrap();
    // Bytes that no account has.
    let load = Load { dram_used_bytes: 64 << 20, ..Load::default() };
    rig.call(Request::Heartbeat(Heartbeat { node: full, nonce, load })).unwrap();
    let grant = rig.create("/more").unwrap();
    // A writer that could not reach the other one gets a block elsewhere all the same.
    let (object, lease, avoid) = (grant.object, grant.lease, vec![other]);
    let more = Request::AddBlocks { object, lease, ended: vec![], count: 1, avoid };
    let Reply::Grant(more) = rig.call(more).unwrap() else { panic!("not a grant") };
    assert_eq!((grant.blocks[0].node, more.blocks[0].node), (other, full));
    for number in 0..63 {
        let grant = rig.create(&format!("/{number}")).unwrap();
        assert_eq!(grant.blocks[0].node, other);
    }
    // A heartbeat may be old: the account decides where no node shows room.
    assert_eq!(rig.create("/last").unwrap().blocks[0].node, full);
}

#[test]
fn what_needs_no_room_goes_on_where_all_room_is_kept() {
    let mut rig = Rig::with_nodes(2);
    let grant = rig.create("/open").unwrap();
    // The other node cannot take what this one holds: the reserve is short.
    rig.notice(NodeId(1), 30_000).unwrap();
    rig.call(Request::Decommission { node: NodeId(2).into(), reason: String::new() }).unwrap();
    assert!(rig.create("/new").is_err());
    let inline = Some(b"value".to_vec());
    let request = sanderling_protocol::message::Create { inline, ..rig.file("/inline") };
    assert!(matches!(rig.call(Request::Create(request)), Ok(Reply::Stat(_))));
    let (object, lease) = (grant.object, grant.lease);
    let ended = vec![length(grant.blocks[0].block, 100)];
    let request = Request::AddBlocks { object, lease, ended, count: 0, avoid: vec![] };
    assert!(matches!(rig.call(request), Ok(Reply::Grant(_))));
    rig.seal(&grant, &[100]).unwrap();
}

#[test]
fn noticed_node_is_fenced_and_gets_no_more_blocks() {
    let mut rig = Rig::with_nodes(2);
    rig.orders.clear();
    rig.block("/before", 10);
    rig.notice(NodeId(1), 30_000).unwrap();
    let fence = Order::FenceNode { deadline_in: Some(Millis(30_000)) };
    assert!(rig.orders.iter().any(|order| order.node == NodeId(1) && order.order == fence));
    for number in 0..20 {
        let layout = rig.put(&format!("/after/{number}"), 10);
        assert_eq!(layout.blocks[0].home, Some(NodeId(2)));
    }
    rig.notice(NodeId(2), 30_000).unwrap();
    assert!(matches!(rig.create("/nowhere"), Err(Refusal::RetryAfter { .. })));
}

#[test]
fn fence_of_a_draining_node_is_an_event_once() {
    let mut rig = Rig::with_nodes(2);
    let (_, home, _) = rig.block("/file", 10);
    let fenced = |rig: &Rig| {
        let kinds = rig.last_events(1000);
        kinds.iter().filter(|kind| matches!(kind, EventKind::NodeFenced { .. })).count()
    };
    let _ = rig.call(Request::Fenced { node: home });
    assert_eq!(fenced(&rig), 0, "it has no notice");
    rig.notice(home, 30_000).unwrap();
    for _ in 0..2 {
        let _ = rig.call(Request::Fenced { node: home });
        assert_eq!(fenced(&rig), 1);
    }
}

#[test]
fn heartbeat_is_answered_with_the_time_and_the_blocks_that_are_left() {
    let mut rig = Rig::with_nodes(2);
    rig.manage();
    let (block, home, other) = rig.block("/file", 1000);
    let reply =
        |policy, deadline_in, home_blocks| HeartbeatReply { policy, deadline_in, home_blocks };
    assert_eq!(rig.heartbeat(home), reply(Policy::Active, None, 1));
    assert_eq!(rig.heartbeat(other), reply(Policy::Active, None, 0));
    rig.notice(home, 30_000).unwrap();
    rig.pass(Millis(10_000));
    let left = Some(Millis(20_000));
    assert_eq!(rig.heartbeat(home), reply(Policy::Draining, left, 1));
    rig.reserve(block, Epoch(1), other).unwrap();
    rig.commit(block, Epoch(1), other, 1000).unwrap();
    assert_eq!(rig.heartbeat(home), reply(Policy::Drained, left, 0));
    assert_eq!(rig.heartbeat(other), reply(Policy::Active, None, 1));
}

#[test]
fn move_is_published_only_if_nothing_changed_meanwhile() {
    let mut rig = Rig::with_nodes(3);
    rig.manage();
    let (block, home, other) = rig.block("/file", 1000);
    rig.notice(home, 30_000).unwrap();
    assert!(matches!(rig.reserve(block, Epoch(9), other), Err(Refusal::MoveVoid { .. })));
    assert!(matches!(rig.reserve(block, Epoch(1), home), Err(Refusal::MoveVoid { .. })));
    let epoch = rig.reserve(block, Epoch(1), other).unwrap();
    assert_eq!(rig.reserve(block, Epoch(1), other).unwrap(), epoch);
    assert!(matches!(rig.commit(block, Epoch(1), other, 999), Err(Refusal::MoveVoid { .. })));
    let epoch = rig.reserve(block, Epoch(1), other).unwrap();
    assert_eq!(rig.commit(block, Epoch(1), other, 1000).unwrap(), epoch);
    assert_eq!(rig.commit(block, Epoch(1), other, 1000).unwrap(), epoch);
    let moved = rig.layout("/file").unwrap().blocks[0];
    assert_eq!((moved.home, moved.epoch), (Some(other), epoch));
    assert_eq!(rig.policy(home), Policy::Drained);
    let [drained, ..] = &rig.last_events(1)[..] else { panic!("no event") };
    assert!(matches!(drained, EventKind::NodeDrained { moved_blocks: 1, moved_bytes: 1000, .. }));
    rig.pass(Millis(30_001));
    assert_eq!(rig.policy(home), Policy::Gone);
    assert_eq!(rig.namenode.catalog().report().bytes, 0);
}

#[test]
fn commit_cannot_bring_back_what_was_declared_lost() {
    let mut rig = Rig::with_nodes(2);
    rig.manage();
    let (block, home, other) = rig.block("/file", 1000);
    rig.notice(home, 1000).unwrap();
    rig.reserve(block, Epoch(1), other).unwrap();
    rig.orders.clear();
    rig.pass(Millis(1001));
    assert!(rig.orders.iter().any(|order| order.node == other
        && order.order == Order::Drop { blocks: vec![(block, Epoch(2))] }));
    assert!(matches!(rig.commit(block, Epoch(1), other, 1000), Err(Refusal::MoveVoid { .. })));
    let layout = rig.layout("/file").unwrap();
    assert_eq!(layout.blocks[0].home, None);
    assert_eq!(layout.lost_ranges()[0].bytes, 1000);
    let report = rig.namenode.catalog().report().clone();
    assert_eq!((report.blocks, report.bytes, report.objects), (1, 1000, 1));
    assert_eq!(
        (report.losses[0].path.as_str(), &report.losses[0].blocks[..]),
        ("/file", &[block][..])
    );
    let events = rig.last_events(2);
    assert!(matches!(events[0], EventKind::BlocksLost { bytes: 1000, .. }));
    assert!(matches!(events[1], EventKind::NodeGone { .. }));
}

#[test]
fn commit_of_an_earlier_reservation_does_not_publish_a_copy_that_was_dropped() {
    let mut rig = Rig::with_nodes(2);
    rig.manage();
    let (block, home, other) = rig.block("/file", 1000);
    rig.notice(home, 30_000).unwrap();
    let first = rig.reserve(block, Epoch(1), other).unwrap();
    rig.call(Request::Abandon { holder: MANAGER, blocks: vec![block] }).unwrap();
    let second = rig.reserve(block, Epoch(1), other).unwrap();
    rig.reserved.insert(block, first);
    assert!(matches!(rig.commit(block, Epoch(1), other, 1000), Err(Refusal::MoveVoid { .. })));
    rig.reserved.insert(block, second);
    assert_eq!(rig.commit(block, Epoch(1), other, 1000).unwrap(), second);
}

#[test]
fn late_reservation_for_a_node_that_no_longer_drains_is_refused() {
    let mut rig = Rig::with_nodes(2);
    rig.manage();
    let (block, home, other) = rig.block("/file", 1000);
    rig.notice(home, 30_000).unwrap();
    rig.reserve(block, Epoch(1), other).unwrap();
    let used = rig.used_bytes();
    rig.call(Request::Cancel { node: home.into() }).unwrap();
    assert!(rig.used_bytes() < used);
    assert!(matches!(rig.reserve(block, Epoch(1), other), Err(Refusal::MoveVoid { .. })));
}

#[test]
fn target_that_gets_its_own_notice_is_given_up() {
    let mut rig = Rig::with_nodes(3);
    rig.manage();
    let (block, home, other) = rig.block("/file", 1000);
    rig.notice(home, 30_000).unwrap();
    rig.reserve(block, Epoch(1), other).unwrap();
    rig.notice(other, 30_000).unwrap();
    assert!(matches!(rig.commit(block, Epoch(1), other, 1000), Err(Refusal::MoveVoid { .. })));
    assert!(matches!(rig.reserve(block, Epoch(1), other), Err(Refusal::WrongState { .. })));
    let third = (1..=3).map(NodeId).find(|node| *node != home && *node != other).unwrap();
    let epoch = rig.reserve(block, Epoch(1), third).unwrap();
    assert!(epoch > Epoch(2), "an epoch is never given out twice");
    rig.commit(block, Epoch(1), third, 1000).unwrap();
}

#[test]
fn open_block_moves_and_its_writer_may_still_publish_its_length() {
    let mut rig = Rig::with_nodes(2);
    rig.manage();
    let grant = rig.create("/file").unwrap();
    let (block, home) = (grant.blocks[0].block, grant.blocks[0].node);
    let other = (1..=2).map(NodeId).find(|node| *node != home).unwrap();
    rig.notice(home, 30_000).unwrap();
    rig.reserve(block, Epoch(1), other).unwrap();
    // The datanode holds 500 bytes; the acknowledgement of the last 100 was lost.
    rig.commit(block, Epoch(1), other, 500).unwrap();
    let ended = vec![length(block, 400)];
    let (object, lease) = (grant.object, grant.lease);
    let request = Request::AddBlocks { object, lease, ended, count: 1, avoid: vec![] };
    let Reply::Grant(more) = rig.call(request).unwrap() else { panic!("not a grant") };
    rig.seal(&more, &[600]).unwrap();
    let layout = rig.layout("/file").unwrap();
    assert_eq!(layout.stat.bytes, 1000);
    assert_eq!(layout.blocks[0].home, Some(other));
}

#[test]
fn deletion_during_a_drain_ends_it() {
    let mut rig = Rig::with_nodes(2);
    let (_, home, _) = rig.block("/file", 10);
    rig.notice(home, 30_000).unwrap();
    assert_eq!(rig.policy(home), Policy::Draining);
    rig.call(Request::Delete { path: super::path("/file"), recursive: false }).unwrap();
    assert_eq!(rig.policy(home), Policy::Drained);
}

#[test]
fn cancelled_notice_makes_the_node_active_and_forgets_what_left() {
    let mut rig = Rig::with_nodes(2);
    rig.manage();
    let (first, home, other) = rig.block("/1", 10);
    let mut number = 1;
    let second = loop {
        number += 1;
        let (block, node, _) = rig.block(&format!("/{number}"), 10);
        if node == home {
            break block;
        }
    };
    rig.notice(home, 30_000).unwrap();
    rig.reserve(first, Epoch(1), other).unwrap();
    rig.commit(first, Epoch(1), other, 10).unwrap();
    rig.reserve(second, Epoch(1), other).unwrap();
    rig.orders.clear();
    rig.call(Request::Cancel { node: home.into() }).unwrap();
    let expect =
        |node, order| assert!(rig.orders.iter().any(|it| it.node == node && it.order == order));
    expect(home, Order::UnfenceNode);
    expect(home, Order::Drop { blocks: vec![(first, Epoch(2))] });
    expect(other, Order::Drop { blocks: vec![(second, Epoch(2))] });
    assert!(matches!(rig.commit(second, Epoch(1), other, 10), Err(Refusal::MoveVoid { .. })));
    assert_eq!(rig.policy(home), Policy::Active);
    rig.pass(Millis(40_000));
    assert_eq!(rig.policy(home), Policy::Active);
    let again = rig.call(Request::Cancel { node: home.into() });
    assert!(matches!(again, Err(Refusal::WrongState { .. })));
}

#[test]
fn of_two_notices_the_earlier_deadline_holds() {
    let mut rig = Rig::with_nodes(2);
    let (_, home, _) = rig.block("/file", 10);
    rig.notice(home, 30_000).unwrap();
    rig.notice(home, 5_000).unwrap();
    rig.notice(home, 60_000).unwrap();
    rig.pass(Millis(5_001));
    assert_eq!(rig.policy(home), Policy::Gone);
    assert_eq!(rig.namenode.catalog().report().notices, 1);
    assert!(matches!(rig.notice(home, 1000), Err(Refusal::WrongState { .. })));
}

#[test]
fn bad_notices_are_refused() {
    let mut rig = Rig::with_nodes(1);
    assert!(matches!(rig.notice(NodeId(1), 0), Err(Refusal::DeadlinePassed { .. })));
    assert!(matches!(rig.notice(NodeId(1), -5000), Err(Refusal::DeadlinePassed { .. })));
    assert!(matches!(rig.notice(NodeId(1), i64::MAX), Err(Refusal::TooLarge { .. })));
    assert!(matches!(rig.notice(NodeId(5), 1000), Err(Refusal::UnknownNode { .. })));
    let node = NodeSelector("node-1".to_owned());
    rig.call(Request::Decommission { node, reason: String::new() }).unwrap();
    let node = NodeSelector("node-1:1".to_owned());
    rig.call(Request::Cancel { node }).unwrap();
}

#[test]
fn dead_node_loses_its_blocks_exactly() {
    let mut rig = Rig::with_nodes(3);
    let request = super::Create { expected_bytes: Some(6 << 20), ..rig.file("/file") };
    let grant = rig.create_with(request).unwrap();
    rig.seal(&grant, &[MIB; 6]).unwrap();
    let node = grant.blocks[2].node;
    let lost: Vec<u64> =
        (0..6).filter(|at| grant.blocks[*at].node == node).map(|at| at as u64).collect();
    rig.namenode.prepare(rig.now, Request::Suspect { node });
    assert_eq!(rig.namenode.to_probe(rig.now), [(node, format!("node-{node}:1"))]);
    for command in rig.namenode.probed(rig.now, node, super::super::Probe::Refused) {
        rig.log_and_apply(command).unwrap();
    }
    let stat = rig.stat("/file").unwrap();
    assert_eq!(stat.lost_bytes, lost.len() as u64 * u64::from(MIB));
    let ranges = rig.layout("/file").unwrap().lost_ranges();
    let report = rig.namenode.catalog().report();
    assert_eq!(report.losses[0].ranges, ranges);
    assert_eq!(report.bytes, stat.lost_bytes);
    let fsck = rig.namenode.catalog().fsck();
    assert_eq!((fsck.lost_bytes, fsck.lost_objects.len()), (stat.lost_bytes, 1));
    assert_eq!((fsck.lost_blocks, fsck.blocks), (lost.len() as u64, 6 - lost.len() as u64));
    rig.call(Request::Delete { path: super::path("/file"), recursive: false }).unwrap();
    assert_eq!(rig.namenode.catalog().fsck().lost_blocks, 0);
}

#[test]
fn process_that_registers_twice_is_one_node_and_another_on_its_address_takes_its_place() {
    let mut rig = Rig::new();
    let first = rig.register_as("a", "host:1", Nonce(500)).unwrap();
    assert_eq!(rig.register_as("a", "host:1", Nonce(500)).unwrap(), first);
    let taken = rig.register_as("a", "host:2", Nonce(501));
    assert!(matches!(taken, Err(Refusal::NameInUse { .. })));
    let (_, home, _) = {
        rig.register_as("b", "host:9", Nonce(509)).unwrap();
        rig.block("/file", 10)
    };
    let address = if home == first { "host:1" } else { "host:9" };
    let second = rig.register_as("", address, Nonce(502)).unwrap();
    assert_ne!(first, second);
    assert_eq!(rig.policy(home), Policy::Gone);
    assert_eq!(rig.namenode.catalog().report().bytes, 10);
    let nonce = if home == first { Nonce(500) } else { Nonce(509) };
    assert!(matches!(rig.register_as("a", address, nonce), Err(Refusal::NodeGone { .. })));
}

#[test]
fn only_the_manager_with_the_lease_acts() {
    let mut rig = Rig::with_nodes(2);
    let has_manager = |rig: &Rig| rig.namenode.catalog().has_manager(rig.now);
    assert!(!has_manager(&rig));
    rig.manage();
    assert!(has_manager(&rig));
    let other = Nonce(100);
    let manage = |rig: &mut Rig| {
        let (name, lease) = ("second".to_owned(), Millis(1000));
        rig.call(Request::Manage { holder: other, name, lease })
    };
    assert!(matches!(manage(&mut rig), Err(Refusal::NotManager { .. })));
    assert!(matches!(rig.call(Request::Drains { holder: other }), Err(Refusal::NotManager { .. })));
    rig.pass(Millis(60_001));
    let expired = rig.call(Request::Drains { holder: MANAGER });
    assert!(matches!(expired, Err(Refusal::NotManager { .. })));
    assert!(!has_manager(&rig));
    manage(&mut rig).unwrap();
    assert!(matches!(rig.call(Request::Drains { holder: other }), Ok(Reply::Drains { .. })));
}

#[test]
fn nodes_are_found_by_nonce_name_and_address_after_a_snapshot_too() {
    let mut rig = Rig::new();
    let first = rig.register_as("a", "a:1", Nonce(100)).unwrap();
    let other = rig.register_as("b", "b:1", Nonce(101)).unwrap();
    for is_restored in [false, true] {
        if is_restored {
            let image = rig.namenode.catalog().image();
            let bytes = sanderling_protocol::frame::encode_body(&image);
            let image: Catalog = sanderling_protocol::frame::decode_body(&bytes).unwrap();
            let restored = image.restored();
            assert_eq!(&restored, rig.namenode.catalog());
            rig.namenode = Namenode::restore(NamenodeConfig::default(), restored, rig.now);
        }
        assert_eq!(rig.register_as("x", "x:1", Nonce(101)), Ok(other), "the same process");
        let taken = rig.register_as("b", "c:1", Nonce(200));
        assert_eq!(taken, Err(Refusal::NameInUse { name: "b".to_owned(), node: other }));
    }
    // Another process on the address of a node takes its place and may have its name.
    let second = rig.register_as("a", "a:1", Nonce(102)).unwrap();
    assert_ne!(second, first);
    let gone = rig.register_as("a", "a:1", Nonce(100));
    assert_eq!(gone, Err(Refusal::NodeGone { node: first }));
    let third = rig.register_as("d", "a:1", Nonce(103)).unwrap();
    assert_eq!(rig.namenode.catalog().node_policy(second).unwrap().0, Policy::Gone);
    assert!(rig.register_as("a", "e:1", Nonce(104)).is_ok(), "no live node has the name");
    assert_ne!(third, second);
}

/// The log of a group has lost no end: nothing of the node can be elsewhere.
#[test]
fn node_whose_address_is_taken_under_a_new_leader_is_gone_at_once() {
    let mut rig = Rig::with_nodes(1);
    rig.take_over(5);
    rig.register_as("node-1", "node-1:1", Nonce(500)).unwrap();
    assert_eq!(rig.policy(NodeId(1)), Policy::Gone);
}

#[test]
fn one_tick_does_no_more_than_its_bound_and_the_next_goes_on() {
    let mut rig = Rig::with_nodes(1);
    for name in ["/a", "/b", "/c"] {
        rig.put(name, 10);
        rig.call(Request::SetTtl { path: super::path(name), ttl: Some(Millis(1000)) }).unwrap();
    }
    let limits = CatalogLimits { due_per_tick_max: 2, ..CatalogLimits::DEFAULT };
    let config = NamenodeConfig { limits, ..NamenodeConfig::default() };
    let image = rig.namenode.catalog().image();
    rig.namenode = Namenode::restore(config, image, rig.now);
    let count = |rig: &mut Rig| ["/a", "/b", "/c"].iter().filter(|it| rig.stat(it).is_ok()).count();
    rig.pass(Millis(1001));
    assert_eq!(count(&mut rig), 1);
    rig.pass(Millis(1));
    assert_eq!(count(&mut rig), 0);
    // With the bounds of servers the same log is another catalog: there is nothing to replay.
    rig.log.clear();
    rig.namenode = Namenode::new(NamenodeConfig::default(), ClusterId(7));
}

#[test]
fn room_that_is_kept_for_a_drain_is_free_when_the_drain_ends() {
    for is_moved in [true, false] {
        let mut rig = Rig::with_nodes(3);
        let configure = rig.namenode.configure(rig.now).unwrap();
        rig.log_and_apply(configure).unwrap();
        rig.manage();
        let (block, home, other) = rig.block("/file", 1000);
        rig.notice(home, 30_000).unwrap();
        let room = rig.namenode.catalog().room();
        assert!(room.reserve_bytes > 0, "{room:?}");
        if is_moved {
            rig.reserve(block, Epoch(1), other).unwrap();
            rig.commit(block, Epoch(1), other, 1000).unwrap();
        } else {
            rig.delete("/file", false).unwrap();
        }
        assert_eq!(rig.policy(home), Policy::Drained);
        let room = rig.namenode.catalog().room();
        assert_eq!((room.capacity_bytes, room.reserve_bytes), (128 << 20, 0), "{room:?}");
    }
}

#[test]
fn room_is_what_the_nodes_have_that_take_blocks() {
    let mut rig = Rig::with_nodes(2);
    assert_eq!(rig.namenode.catalog().room().room_bytes, 128 << 20);
    let reason = String::new();
    rig.call(Request::Decommission { node: NodeId(1).into(), reason }).unwrap();
    assert_eq!(rig.namenode.catalog().room().room_bytes, 64 << 20);
}
