//! Copies made ahead of a notice: what they survive, and when they go.

use sanderling_protocol::limits::{BACKGROUND_MOVE_MILLIS_MAX, BLOCKS_PER_PAGE_MAX};
use sanderling_protocol::message::{
    Attributes, BlockLength, GrantedBlock, MoveCommit, MoveProposal, MovePurpose,
};
use sanderling_protocol::{
    BlockId, Epoch, EventKind, Millis, NodeId, NodeInfo, Nonce, Order, Policy, Refusal, Reply,
    Request, Tier,
};

use super::Rig;

const MANAGER: Nonce = Nonce(99);

impl Rig {
    pub(super) fn begin(
        &mut self,
        block: BlockId,
        from: Epoch,
        to: NodeId,
        purpose: MovePurpose,
    ) -> Result<Epoch, Refusal> {
        let moves = vec![MoveProposal { block, from_epoch: from, to, tier: Tier::Dram, purpose }];
        match self.call(Request::Reserve { holder: MANAGER, moves }).unwrap() {
            Reply::Epochs(mut epochs) => epochs.remove(0),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn end(
        &mut self,
        block: BlockId,
        epochs: (Epoch, Epoch),
        to: NodeId,
        length: u32,
    ) -> Result<Epoch, Refusal> {
        let (from_epoch, to_epoch) = epochs;
        let moves = vec![MoveCommit { block, from_epoch, to_epoch, to, length }];
        match self.call(Request::Commit { holder: MANAGER, moves }).unwrap() {
            Reply::Epochs(mut epochs) => epochs.remove(0),
            other => panic!("{other:?}"),
        }
    }

    /// Makes a file of 1000 bytes with a copy; returns its block, home, and the copy's node.
    pub(super) fn copied(&mut self, name: &str) -> (BlockId, NodeId, NodeId) {
        let location = self.put(name, 1000).blocks[0];
        let home = location.home.unwrap();
        let is_other = |node: &NodeId| {
            let policy = self.namenode.catalog().node_policy(*node).map(|(policy, _)| policy);
            *node != home && policy == Some(Policy::Active)
        };
        let to = self.namenode.catalog().node_ids(false).into_iter().find(is_other).unwrap();
        let epoch = self.begin(location.block, location.epoch, to, MovePurpose::Precopy).unwrap();
        self.end(location.block, (location.epoch, epoch), to, 1000).unwrap();
        (location.block, home, to)
    }

    fn info(&self, node: NodeId) -> NodeInfo {
        self.namenode.node_info(node, self.now).unwrap()
    }

    pub(super) fn give_notice(&mut self, node: NodeId) {
        let reason = "spot".to_owned();
        self.call(Request::Notice { node: node.into(), deadline_millis: 1000, reason }).unwrap();
    }

    fn has_event(&self, wanted: impl Fn(&EventKind) -> bool) -> bool {
        self.namenode.events_after(0, 1000).iter().any(|event| wanted(&event.kind))
    }
}

pub(super) fn rig(nodes: u32) -> Rig {
    let mut rig = Rig::with_nodes(nodes);
    let (name, lease) = ("manager".to_owned(), Millis(600_000));
    rig.call(Request::Manage { holder: MANAGER, name, lease }).unwrap();
    rig
}

#[test]
fn copied_bytes_are_not_exposed_and_their_home_stays() {
    let mut rig = rig(2);
    let used = rig.used_bytes();
    let (block, home, to) = rig.copied("/file");
    let layout = rig.layout("/file").unwrap();
    assert_eq!((layout.blocks[0].home, layout.blocks[0].epoch), (Some(home), Epoch(1)));
    let info = rig.info(home);
    assert_eq!((info.home_bytes, info.exposure_bytes), (1000, 0));
    assert_eq!(rig.info(to).copy_bytes, 4096);
    assert_eq!(rig.used_bytes() - used, 8192);
    assert_eq!(rig.namenode.catalog().report().copied_bytes, 1000);
    let again = rig.begin(block, Epoch(1), to, MovePurpose::Precopy);
    assert!(matches!(again, Err(Refusal::MoveVoid { .. })), "{again:?}");
    assert_eq!(rig.end(block, (Epoch(1), Epoch(2)), to, 1000).unwrap(), Epoch(2));
}

#[test]
fn notice_makes_copies_homes_without_a_manager_or_a_byte() {
    let mut rig = rig(2);
    let (block, home, to) = rig.copied("/file");
    rig.give_notice(home);
    let location = rig.layout("/file").unwrap().blocks[0];
    assert_eq!((location.home, location.epoch), (Some(to), Epoch(2)));
    let info = rig.info(home);
    assert_eq!(info.policy, Policy::Drained);
    assert_eq!(info.drain.unwrap().promoted_bytes, 1000);
    assert!(rig.has_event(|kind| matches!(kind, EventKind::BlocksPromoted { bytes: 1000, .. })));
    assert_eq!(rig.info(to).exposure_bytes, 1000);
    let stale = rig.end(block, (Epoch(1), Epoch(2)), to, 1000);
    assert_eq!(stale.unwrap(), Epoch(2), "the commit that made the copy may be repeated");
}

#[test]
fn node_killed_without_notice_loses_only_what_had_no_copy() {
    let mut rig = rig(2);
    let (_, home, to) = rig.copied("/copied");
    while rig.layout("/alone").is_err_and(|_| true) {
        let name = "/alone";
        if rig.put(name, 500).blocks[0].home != Some(home) {
            let request = Request::Delete { path: super::path(name), recursive: false };
            rig.call(request).unwrap();
        }
    }
    let why = "killed".to_owned();
    let action = crate::catalog::Action::NodeDead { node: home, why };
    rig.log_and_apply(crate::catalog::Command { at: rig.now, action }).unwrap();
    assert_eq!(rig.layout("/copied").unwrap().blocks[0].home, Some(to));
    assert_eq!(rig.layout("/alone").unwrap().blocks[0].home, None);
    let report = rig.namenode.catalog().report();
    assert_eq!((report.bytes, report.promoted_bytes), (500, 1000));
}

#[test]
fn copy_on_a_draining_node_counts_no_more_and_goes_when_the_notice_is_taken_back() {
    let mut rig = rig(2);
    let (block, home, to) = rig.copied("/file");
    rig.give_notice(to);
    assert_eq!(rig.info(home).exposure_bytes, 1000);
    assert_eq!(rig.info(to).policy, Policy::Drained);
    rig.orders.clear();
    rig.call(Request::Cancel { node: to.into() }).unwrap();
    let dropped = rig.orders.iter().any(|order| {
        order.node == to && order.order == Order::Drop { blocks: vec![(block, Epoch(2))] }
    });
    assert!(dropped, "{:?}", rig.orders);
}

#[test]
fn deleted_block_is_dropped_at_its_home_and_at_its_copy() {
    let mut rig = rig(2);
    let before = rig.used_bytes();
    let (block, home, to) = rig.copied("/file");
    rig.orders.clear();
    rig.call(Request::Delete { path: super::path("/file"), recursive: false }).unwrap();
    for node in [home, to] {
        let drops = |order: &Order| match order {
            Order::Drop { blocks } => blocks.iter().any(|(id, _)| *id == block),
            _ => false,
        };
        assert!(rig.orders.iter().any(|order| order.node == node && drops(&order.order)));
    }
    assert_eq!(rig.used_bytes(), before);
}

#[test]
fn precopy_that_a_notice_overtakes_becomes_the_move() {
    let mut rig = rig(2);
    let location = rig.put("/file", 1000).blocks[0];
    let (block, home) = (location.block, location.home.unwrap());
    let to = NodeId(3 - home.0);
    let epoch = rig.begin(block, Epoch(1), to, MovePurpose::Precopy).unwrap();
    rig.give_notice(home);
    assert_eq!(rig.end(block, (Epoch(1), epoch), to, 1000).unwrap(), epoch);
    assert_eq!(rig.layout("/file").unwrap().blocks[0].home, Some(to));
    assert_eq!(rig.info(home).policy, Policy::Drained);
    assert_eq!(rig.namenode.catalog().report().moved_bytes, 1000);
}

#[test]
fn copy_that_is_not_the_home_yet_is_no_target_of_a_relocation() {
    let mut rig = rig(2);
    let grant = rig.create("/file").unwrap();
    let (object, lease) = (grant.object, grant.lease);
    let whole = |block: &GrantedBlock| BlockLength { block: block.block, length: 1 };
    let mut blocks = grant.blocks;
    let mut ended: Vec<BlockLength> = blocks.iter().map(whole).collect();
    // More on the first node than become homes by one command.
    while blocks.iter().filter(|block| block.node == NodeId(1)).count() <= 2000 {
        let (count, avoid) = (16, Vec::new());
        let request = Request::AddBlocks { object, lease, ended, count, avoid };
        let Reply::Grant(more) = rig.call(request).unwrap() else { panic!("no blocks") };
        ended = more.blocks.iter().map(whole).collect();
        blocks.extend(more.blocks);
    }
    rig.call(Request::Seal { object, lease, lengths: ended, attributes: Attributes::none() })
        .unwrap();
    let (to, from_epoch, tier, purpose) = (NodeId(2), Epoch(1), Tier::Dram, MovePurpose::Precopy);
    let of_first = blocks.iter().filter(|block| block.node == NodeId(1));
    let moves: Vec<MoveProposal> = of_first
        .map(|it| MoveProposal { block: it.block, from_epoch, to, tier, purpose })
        .collect();
    rig.call(Request::Reserve { holder: MANAGER, moves: moves.clone() }).unwrap();
    let commit = |it: &MoveProposal| MoveCommit {
        block: it.block,
        from_epoch,
        to_epoch: Epoch(2),
        to,
        length: 1,
    };
    let commits = moves.iter().map(commit).collect();
    rig.call(Request::Commit { holder: MANAGER, moves: commits }).unwrap();
    rig.give_notice(NodeId(1));
    let home = |rig: &Rig, block| rig.namenode.catalog().block_home(block).unwrap().0;
    let left = moves.iter().map(|it| it.block).find(|block| home(&rig, *block) == Some(NodeId(1)));
    let block = left.expect("one is left for the next turn");
    let refused = rig.begin(block, Epoch(1), to, MovePurpose::Relocate);
    assert!(matches!(refused, Err(Refusal::MoveVoid { .. })), "{refused:?}");
    rig.pass(Millis(1));
    assert_eq!(home(&rig, block), Some(to));
}

#[test]
fn reservation_without_a_drain_ends_by_itself() {
    let mut rig = rig(2);
    let location = rig.put("/file", 1000).blocks[0];
    let (block, to) = (location.block, NodeId(3 - location.home.unwrap().0));
    let used = rig.used_bytes();
    let epoch = rig.begin(block, Epoch(1), to, MovePurpose::Rebalance).unwrap();
    assert!(rig.used_bytes() > used);
    rig.pass(Millis(20_001));
    assert_eq!(rig.used_bytes(), used);
    let late = rig.end(block, (Epoch(1), epoch), to, 1000);
    assert!(matches!(late, Err(Refusal::MoveVoid { .. })));
}

#[test]
fn rebalanced_block_changes_its_home_and_loses_its_copy() {
    let mut rig = rig(3);
    let (block, home, copy) = rig.copied("/file");
    let to = NodeId(6 - home.0 - copy.0);
    let there = rig.begin(block, Epoch(1), copy, MovePurpose::Rebalance);
    assert!(matches!(there, Err(Refusal::MoveVoid { .. })));
    let epoch = rig.begin(block, Epoch(1), to, MovePurpose::Rebalance).unwrap();
    rig.orders.clear();
    rig.end(block, (Epoch(1), epoch), to, 1000).unwrap();
    assert_eq!(rig.layout("/file").unwrap().blocks[0].home, Some(to));
    for node in [home, copy] {
        assert!(rig.orders.iter().any(|order| order.node == node), "node {node} drops its bytes");
    }
    assert_eq!(rig.info(copy).copy_bytes, 0);
    assert_eq!(rig.namenode.catalog().report().rebalanced_bytes, 1000);
}

#[test]
fn open_block_is_neither_copied_nor_rebalanced() {
    let mut rig = rig(2);
    let grant = rig.create("/open").unwrap();
    let block = grant.blocks[0].block;
    for purpose in [MovePurpose::Precopy, MovePurpose::Rebalance] {
        for to in [NodeId(1), NodeId(2)] {
            let refused = rig.begin(block, Epoch(1), to, purpose);
            assert!(matches!(refused, Err(Refusal::MoveVoid { .. })), "{refused:?}");
        }
    }
}

#[test]
fn recommendation_marks_the_node_until_it_is_taken_back() {
    let mut rig = rig(2);
    let recommend = |reason: &str| Request::Recommend {
        node: NodeId(1).into(),
        reason: reason.to_owned(),
        is_withdrawn: false,
    };
    rig.call(recommend("the cloud did so")).unwrap();
    rig.call(recommend("and again")).unwrap();
    assert!(rig.info(NodeId(1)).is_at_risk);
    let events = rig.namenode.events_after(0, 1000);
    let marks = events.iter().filter(|it| matches!(it.kind, EventKind::NodeAtRisk { .. }));
    assert_eq!(marks.count(), 1);
    rig.call(Request::Cancel { node: NodeId(1).into() }).unwrap();
    assert!(!rig.info(NodeId(1)).is_at_risk);
}

#[test]
fn recommendation_is_withdrawn_by_its_source() {
    let mut rig = rig(2);
    let recommend = |rig: &mut Rig, reason: &str, is_withdrawn: bool| {
        let (node, reason) = (NodeId(1).into(), reason.to_owned());
        rig.call(Request::Recommend { node, reason, is_withdrawn }).unwrap();
        rig.info(NodeId(1)).is_at_risk
    };
    assert!(!recommend(&mut rig, "cloud", true), "there was none");
    assert!(recommend(&mut rig, "a person", false));
    assert!(recommend(&mut rig, "cloud", false));
    assert!(recommend(&mut rig, "cloud", true), "the person's stays");
    assert!(!recommend(&mut rig, "a person", true));
    assert!(rig.has_event(|kind| matches!(kind, EventKind::NodeCancelled { node: NodeId(1) })));
    assert!(recommend(&mut rig, "cloud", false));
}

#[test]
fn writers_get_all_the_room_that_copies_take() {
    let mut rig = rig(2);
    let (_, size) = rig.namenode.catalog().node_room(NodeId(1), Tier::Dram);
    let mut copied = 0;
    while rig.free_nodes() == 2 {
        let location = rig.put(&format!("/{copied}"), 1 << 20).blocks[0];
        let to = if location.home == Some(NodeId(1)) { NodeId(2) } else { NodeId(1) };
        let epoch = rig.begin(location.block, location.epoch, to, MovePurpose::Precopy);
        if let Ok(epoch) = epoch {
            rig.end(location.block, (location.epoch, epoch), to, 1 << 20).unwrap();
        }
        copied += 1;
    }
    let mut files = 0;
    let refused = loop {
        match rig.create(&format!("/more-{files}")) {
            Ok(grant) => rig.seal(&grant, &[1 << 20]).unwrap(),
            Err(Refusal::RetryAfter { after, .. }) => {
                rig.pass(after);
                continue;
            }
            Err(refusal) => break refusal,
        };
        files += 1;
    };
    assert!(matches!(refused, Refusal::Full { .. }), "{refused}");
    let used: u64 = [1, 2].map(|node| rig.info(NodeId(node)).home_bytes).iter().sum();
    assert_eq!(used, size * 2, "all room is the writers'");
    assert_eq!(rig.info(NodeId(1)).copy_bytes + rig.info(NodeId(2)).copy_bytes, 0);
    let is_drop = |order: &crate::catalog::DatanodeOrder| matches!(order.order, Order::Drop { .. });
    assert!(rig.orders.iter().any(is_drop));
}

#[test]
fn copies_give_way_to_a_last_copy_that_must_leave() {
    let mut rig = rig(3);
    let room = |rig: &Rig| rig.namenode.catalog().node_room(NodeId(2), Tier::Dram).0;
    let mut last = None;
    // Node 2 fills up, with its own blocks and with copies of those of node 1.
    for name in 0.. {
        if room(&rig) < 1 << 20 {
            break;
        }
        let location = rig.put(&format!("/{name}"), 1 << 20).blocks[0];
        let from = location.epoch;
        if location.home == Some(NodeId(3)) {
            last = Some(location);
        } else if location.home == Some(NodeId(1))
            && let Ok(epoch) = rig.begin(location.block, from, NodeId(2), MovePurpose::Precopy)
        {
            rig.end(location.block, (from, epoch), NodeId(2), 1 << 20).unwrap();
        }
    }
    let copies = rig.info(NodeId(2)).copy_bytes;
    let last = last.expect("node 3 holds some");
    let balance = rig.begin(last.block, last.epoch, NodeId(2), MovePurpose::Rebalance);
    assert!(matches!(balance, Err(Refusal::NodeFull { .. })), "{balance:?}");
    rig.give_notice(NodeId(3));
    rig.begin(last.block, last.epoch, NodeId(2), MovePurpose::Relocate).unwrap();
    assert_eq!(rig.info(NodeId(2)).copy_bytes, copies - (1 << 20), "one copy, and no more");
}

impl Rig {
    fn free_nodes(&self) -> usize {
        let has_room =
            |node: &u32| self.namenode.catalog().node_room(NodeId(*node), Tier::Dram).0 >= 1 << 20;
        [1, 2].iter().filter(|node| has_room(node)).count()
    }
}

#[test]
fn copy_that_is_about_to_become_the_home_is_not_given_up() {
    let mut rig = rig(1);
    let blocks = many_blocks(&mut rig, 2003);
    let to = rig.register("other").unwrap();
    let moves = blocks.iter().map(|block| MoveProposal {
        block: *block,
        from_epoch: Epoch(1),
        to,
        tier: Tier::Dram,
        purpose: MovePurpose::Precopy,
    });
    let moves = moves.collect();
    rig.call(Request::Reserve { holder: MANAGER, moves }).unwrap();
    let (from_epoch, to_epoch) = (Epoch(1), Epoch(2));
    let commit =
        |block: &BlockId| MoveCommit { block: *block, from_epoch, to_epoch, to, length: 1 };
    let moves = blocks.iter().map(commit).collect();
    rig.call(Request::Commit { holder: MANAGER, moves }).unwrap();
    rig.give_notice(NodeId(1));
    assert_eq!(rig.info(NodeId(1)).blocks, 3, "the rest waits for the next turn");
    rig.call(Request::DropCopies { holder: MANAGER, blocks }).unwrap();
    rig.pass(Millis(0));
    assert_eq!(rig.info(NodeId(1)).policy, Policy::Drained);
    assert_eq!(rig.info(NodeId(1)).drain.unwrap().promoted_blocks, 2003);
}

/// Makes a sealed file of so many blocks of one byte.
fn many_blocks(rig: &mut Rig, count: usize) -> Vec<BlockId> {
    let mut grant = rig.create("/many").unwrap();
    let mut blocks = Vec::new();
    loop {
        let wanted = grant.blocks.iter().map(|granted| granted.block);
        let wanted: Vec<BlockId> = wanted.take(count - blocks.len()).collect();
        if blocks.len() + wanted.len() == count {
            let last = vec![1; wanted.len()];
            blocks.extend(wanted);
            rig.seal(&grant, &last).unwrap();
            return blocks;
        }
        let (object, lease) = (grant.object, grant.lease);
        let ended = wanted.iter().map(|block| super::length(*block, 1)).collect();
        let request = Request::AddBlocks { object, lease, ended, count: 16, avoid: Vec::new() };
        blocks.extend(wanted);
        let Ok(Reply::Grant(next)) = rig.call(request) else { panic!("there is room") };
        grant = next;
    }
}

#[test]
fn writers_get_the_room_that_moves_without_a_drain_have_reserved() {
    for purpose in [MovePurpose::Rebalance, MovePurpose::Precopy] {
        let mut rig = rig(2);
        let mut kept = Vec::new();
        // Every second file makes room at its own node when it is moved: until then it takes twice.
        while rig.free_nodes() == 2 {
            let name = format!("/{}", kept.len());
            let location = rig.put(&name, 1 << 20).blocks[0];
            let to = if location.home == Some(NodeId(1)) { NodeId(2) } else { NodeId(1) };
            let epoch = rig.begin(location.block, location.epoch, to, purpose);
            kept.push((location, to, epoch));
        }
        let reserved = kept.iter().filter(|(.., epoch)| epoch.is_ok()).count();
        assert!(reserved > 30, "{reserved} moves are reserved");
        let mut files = 0;
        let refused = loop {
            match rig.create(&format!("/more-{files}")) {
                Ok(grant) => rig.seal(&grant, &[1 << 20]).unwrap(),
                Err(Refusal::RetryAfter { after, .. }) => {
                    rig.pass(after);
                    continue;
                }
                Err(refusal) => break refusal,
            };
            files += 1;
        };
        assert!(matches!(refused, Refusal::Full { .. }), "{refused}");
        let used: u64 = [1, 2].map(|node| rig.info(NodeId(node)).home_bytes).iter().sum();
        assert_eq!(used, 128 << 20, "all room is the writers'");
        let (location, to, epoch) = kept.iter().find(|(.., epoch)| epoch.is_ok()).unwrap();
        let epochs = (location.epoch, *epoch.as_ref().unwrap());
        let late = rig.end(location.block, epochs, *to, 1 << 20);
        assert!(matches!(late, Err(Refusal::MoveVoid { .. })), "{late:?}");
    }
}

#[test]
fn moves_for_balance_give_way_to_a_last_copy_that_must_leave() {
    let mut rig = rig(3);
    let mut last = None;
    for name in 0.. {
        if rig.namenode.catalog().node_room(NodeId(2), Tier::Dram).0 < 1 << 20 {
            break;
        }
        let location = rig.put(&format!("/{name}"), 1 << 20).blocks[0];
        match location.home {
            Some(NodeId(3)) => last = Some(location),
            Some(NodeId(1)) => {
                let purpose = MovePurpose::Rebalance;
                let _ = rig.begin(location.block, location.epoch, NodeId(2), purpose);
            }
            _ => {}
        }
    }
    let last = last.expect("node 3 holds some");
    rig.give_notice(NodeId(3));
    rig.begin(last.block, last.epoch, NodeId(2), MovePurpose::Relocate).unwrap();
}

#[test]
fn end_of_a_reservation_does_not_end_the_next_one_of_its_block() {
    let mut rig = rig(2);
    let location = rig.put("/file", 1000).blocks[0];
    let (block, home) = (location.block, location.home.unwrap());
    let to = NodeId(3 - home.0);
    let half = Millis(BACKGROUND_MOVE_MILLIS_MAX / 2 + 1);
    let first = rig.begin(block, location.epoch, to, MovePurpose::Rebalance).unwrap();
    rig.pass(half);
    rig.call(Request::Abandon { holder: MANAGER, blocks: vec![block] }).unwrap();
    let second = rig.begin(block, location.epoch, to, MovePurpose::Rebalance).unwrap();
    assert!(second > first);
    // The time of the first one ends.
    rig.pass(half);
    assert_eq!(rig.end(block, (location.epoch, second), to, 1000), Ok(second));
}

#[test]
fn page_of_blocks_is_looked_up_and_no_longer_list() {
    let mut rig = rig(1);
    let block = rig.put("/file", 10).blocks[0].block;
    let mut within = |count| {
        let blocks = std::iter::once(block).chain((1000..).map(BlockId)).take(count).collect();
        rig.call(Request::Within { subtree: super::path("/"), blocks })
    };
    let Ok(Reply::Within(found)) = within(BLOCKS_PER_PAGE_MAX) else { panic!("a whole page") };
    assert_eq!(found.iter().filter(|is_there| **is_there).count(), 1);
    assert!(matches!(within(BLOCKS_PER_PAGE_MAX + 1), Err(Refusal::TooLarge { .. })));
}
