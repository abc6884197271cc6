//! Reports of damage: what they change, and what changes nothing.

use sanderling_protocol::limits::DAMAGED_PER_REPORT_MAX;
use sanderling_protocol::message::MovePurpose;
use sanderling_protocol::order::{Damage, DamagedBlock, HeldBlock};
use sanderling_protocol::refusal::ByteRange;
use sanderling_protocol::{
    BlockId, Epoch, EventKind, NodeId, Nonce, Order, Policy, Refusal, Reply, Request, Tier,
};

use super::copies::rig;
use super::{Prepared, Rig, length, path};

impl Rig {
    fn process(&self, node: NodeId) -> Nonce {
        self.namenode.catalog().node_nonce(node).unwrap()
    }

    fn report_damage(&mut self, node: NodeId, block: BlockId, epoch: Epoch) {
        let nonce = self.process(node);
        let blocks = vec![DamagedBlock { block, epoch, damage: Damage::Checksum }];
        let reply = self.call(Request::ReportDamage { node, nonce, blocks });
        assert_eq!(reply, Ok(Reply::Done));
    }

    fn expected(&mut self, node: NodeId, after: BlockId, limit: u32) -> (Vec<HeldBlock>, bool) {
        let nonce = self.process(node);
        match self.call(Request::ExpectedBlocks { node, nonce, after, limit }).unwrap() {
            Reply::Expected { blocks, is_more } => (blocks, is_more),
            other => panic!("{other:?}"),
        }
    }

    fn dropped(&mut self, node: NodeId) -> Vec<(BlockId, Epoch)> {
        let orders = std::mem::take(&mut self.orders).into_iter();
        let of_node = orders.filter(|order| order.node == node);
        let drops = of_node.filter_map(|order| match order.order {
            Order::Drop { blocks } => Some(blocks),
            _ => None,
        });
        drops.flatten().collect()
    }
}

#[test]
fn damaged_home_without_a_copy_is_lost_exactly_and_once() {
    let mut rig = Rig::with_nodes(1);
    let block = rig.put("/file", 1000).blocks[0];
    let other = rig.put("/other", 10).blocks[0];
    let home = block.home.unwrap();
    rig.report_damage(home, block.block, block.epoch);
    let layout = rig.layout("/file").unwrap();
    assert_eq!((layout.blocks[0].home, layout.stat.lost_bytes), (None, 1000));
    assert_eq!(rig.layout("/other").unwrap().blocks[0].home, other.home);
    assert_eq!(rig.dropped(home), [(block.block, block.epoch)]);
    let logged = rig.log.len();
    rig.report_damage(home, block.block, block.epoch);
    assert_eq!(rig.log.len(), logged, "a report that changes nothing leaves no record");
    let report = rig.namenode.catalog().report();
    assert_eq!((report.blocks, report.bytes, report.objects), (1, 1000, 1));
    assert!(report.losses[0].why.contains("checksum"), "{:?}", report.losses[0]);
    let events = rig.namenode.events_after(0, 1000);
    let is_damage =
        |kind: &EventKind| matches!(kind, EventKind::BlocksDamaged { blocks: 1, saved: 0, .. });
    assert!(events.iter().any(|event| is_damage(&event.kind)));
    let is_loss = |kind: &EventKind| matches!(kind, EventKind::BlocksLost { bytes: 1000, .. });
    assert!(events.iter().any(|event| is_loss(&event.kind)));
}

#[test]
fn damage_reported_twice_before_either_counts_is_one_event() {
    let mut rig = Rig::with_nodes(1);
    let block = rig.put("/file", 1000).blocks[0];
    let node = block.home.unwrap();
    let nonce = rig.process(node);
    let (block, epoch, damage) = (block.block, block.epoch, Damage::Checksum);
    let blocks = vec![DamagedBlock { block, epoch, damage }];
    let mut prepare = || {
        let request = Request::ReportDamage { node, nonce, blocks: blocks.clone() };
        match rig.namenode.prepare(rig.now, request) {
            Prepared::Log(command) => command,
            other => panic!("{other:?}"),
        }
    };
    let commands = [prepare(), prepare()];
    for command in commands {
        assert_eq!(rig.log_and_apply(command), Ok(Reply::Done));
    }
    let events = rig.namenode.events_after(0, 1000);
    let is_damage = |kind: &EventKind| matches!(kind, EventKind::BlocksDamaged { .. });
    assert_eq!(events.iter().filter(|event| is_damage(&event.kind)).count(), 1);
}

#[test]
fn damaged_home_with_a_copy_moves_there_and_nothing_is_lost() {
    let mut rig = rig(2);
    let (block, home, to) = rig.copied("/file");
    rig.orders.clear();
    rig.report_damage(home, block, Epoch(1));
    let location = rig.layout("/file").unwrap().blocks[0];
    assert_eq!((location.home, location.epoch), (Some(to), Epoch(2)));
    assert_eq!(rig.dropped(home), [(block, Epoch(1))]);
    assert_eq!(rig.namenode.catalog().report().blocks, 0);
    let unwanted = HeldBlock { block, epoch: Epoch(1), length: 1000, tier: Tier::Dram };
    let reply = rig.call(Request::BlockReport { node: home, blocks: vec![unwanted] });
    assert_eq!(reply, Ok(Reply::Drop { blocks: vec![block] }));
}

#[test]
fn damaged_copy_is_given_up_and_its_home_stays() {
    let mut rig = rig(2);
    let (block, home, to) = rig.copied("/file");
    rig.orders.clear();
    rig.report_damage(to, block, Epoch(2));
    let location = rig.layout("/file").unwrap().blocks[0];
    assert_eq!((location.home, location.epoch), (Some(home), Epoch(1)));
    assert_eq!(rig.namenode.node_info(home, rig.now).unwrap().exposure_bytes, 1000);
    assert!(rig.dropped(to).contains(&(block, Epoch(2))));
    assert_eq!(rig.namenode.catalog().report().blocks, 0);
}

#[test]
fn stale_foreign_and_hostile_reports_change_nothing() {
    let mut rig = rig(3);
    let (block, home, to) = rig.copied("/file");
    let third = NodeId(6 - home.0 - to.0);
    let logged = rig.log.len();
    rig.report_damage(third, block, Epoch(1));
    rig.report_damage(home, block, Epoch(2));
    rig.report_damage(home, block, Epoch(0));
    rig.report_damage(to, block, Epoch(1));
    rig.report_damage(home, BlockId(999), Epoch(1));
    assert_eq!(rig.log.len(), logged);
    let damaged = DamagedBlock { block, epoch: Epoch(1), damage: Damage::Missing };
    let (nonce, blocks) = (rig.process(third), vec![damaged]);
    let forged = rig.call(Request::ReportDamage { node: home, nonce, blocks });
    assert_eq!(forged, Err(Refusal::NodeGone { node: home }));
    let (nonce, blocks) = (rig.process(home), vec![damaged; DAMAGED_PER_REPORT_MAX + 1]);
    let long = rig.call(Request::ReportDamage { node: home, nonce, blocks });
    assert!(matches!(long, Err(Refusal::TooLarge { .. })), "{long:?}");
    // The block moves, and the report of its old home comes late.
    rig.give_notice(home);
    rig.report_damage(home, block, Epoch(1));
    assert_eq!(rig.layout("/file").unwrap().blocks[0].home, Some(to));
    assert_eq!(rig.namenode.catalog().report().blocks, 0);
    // One block named twice in a report is lost once.
    let (nonce, epoch) = (rig.process(to), Epoch(2));
    let blocks = vec![DamagedBlock { block, epoch, damage: Damage::Missing }; 2];
    rig.call(Request::ReportDamage { node: to, nonce, blocks }).unwrap();
    assert_eq!(rig.namenode.catalog().report().blocks, 1);
}

#[test]
fn damage_of_what_a_move_has_stored_gives_the_move_up() {
    let mut rig = rig(2);
    let block = rig.put("/file", 1000).blocks[0];
    let home = block.home.unwrap();
    let to = NodeId(3 - home.0);
    let epoch = rig.begin(block.block, block.epoch, to, MovePurpose::Rebalance).unwrap();
    rig.report_damage(to, block.block, epoch);
    let late = rig.end(block.block, (block.epoch, epoch), to, 1000);
    assert!(matches!(late, Err(Refusal::MoveVoid { .. })), "{late:?}");
    assert_eq!(rig.layout("/file").unwrap().blocks[0].home, Some(home));
}

#[test]
fn decommission_ends_with_the_loss_of_its_last_block() {
    let mut rig = rig(2);
    let block = rig.put("/file", 1000).blocks[0];
    let home = block.home.unwrap();
    rig.call(Request::Decommission { node: home.into(), reason: "smaller".to_owned() }).unwrap();
    rig.report_damage(home, block.block, block.epoch);
    let info = rig.namenode.node_info(home, rig.now).unwrap();
    assert_eq!(info.policy, Policy::Drained);
    assert_eq!(info.drain.unwrap().lost_bytes, 1000);
}

#[test]
fn damaged_open_block_is_lost_with_all_that_its_writer_had_acknowledged() {
    let mut rig = Rig::with_nodes(1);
    let grant = rig.create("/file").unwrap();
    let block = grant.blocks[0];
    let (object, lease) = (grant.object, grant.lease);
    let lengths = vec![length(block.block, 600)];
    rig.call(Request::Publish { object, lease, lengths }).unwrap();
    rig.report_damage(block.node, block.block, block.epoch);
    assert_eq!(rig.namenode.catalog().report().bytes, 600);
    // The writer, sent on by its datanode, ends the block at what was acknowledged.
    let ended = vec![length(block.block, 900)];
    let more = Request::AddBlocks { object, lease, ended, count: 1, avoid: Vec::new() };
    let Reply::Grant(more) = rig.call(more).unwrap() else { panic!("no blocks") };
    // What is lost already is not sealed as if it were whole.
    let refused = rig.seal(&more, &[50]);
    let ranges = vec![ByteRange { offset: 0, bytes: 900 }];
    let path = path("/file");
    assert_eq!(refused, Err(Refusal::DataUnavailable { path, object, ranges }));
    assert_eq!(rig.namenode.catalog().report().bytes, 900);
}

#[test]
fn node_gets_page_by_page_what_it_must_hold() {
    let mut rig = rig(2);
    let (copied, home, to) = rig.copied("/copied");
    let open = rig.create("/open").unwrap();
    let mut wanted = vec![copied];
    for number in 0..5 {
        let block = rig.put(&format!("/file-{number}"), 10).blocks[0];
        if block.home == Some(to) {
            wanted.push(block.block);
        }
    }
    wanted.sort();
    let (all, is_more) = rig.expected(to, BlockId(0), 100);
    let blocks: Vec<BlockId> = all.iter().map(|held| held.block).collect();
    assert_eq!((blocks, is_more), (wanted.clone(), false));
    assert!(all.iter().all(|held| held.block != open.blocks[0].block), "nothing is published");
    let copy = all.iter().find(|held| held.block == copied).unwrap();
    assert_eq!((copy.epoch, copy.length), (Epoch(2), 1000));
    let (mut paged, mut after) = (Vec::new(), BlockId(0));
    loop {
        let (page, is_more) = rig.expected(to, after, 1);
        paged.extend(page.iter().map(|held| held.block));
        match page.last() {
            Some(last) if is_more => after = last.block,
            _ => break,
        }
    }
    assert_eq!(paged, wanted);
    let (of_home, _) = rig.expected(home, BlockId(0), 100);
    assert!(of_home.iter().any(|held| (held.block, held.epoch) == (copied, Epoch(1))));
    let nonce = Nonce(12_345);
    let (after, limit) = (BlockId(0), 1);
    let forged = rig.call(Request::ExpectedBlocks { node: to, nonce, after, limit });
    assert_eq!(forged, Err(Refusal::NodeGone { node: to }));
}

#[test]
fn block_without_published_bytes_is_open_and_expected_of_no_node() {
    let mut rig = Rig::with_nodes(1);
    rig.create("/open").unwrap();
    assert!(rig.namenode.catalog().fsck().open_blocks > 0);
    let node = NodeId(1);
    let nonce = rig.namenode.catalog().node_nonce(node).unwrap();
    let request = Request::ExpectedBlocks { node, nonce, after: BlockId(0), limit: 8 };
    let expected = Reply::Expected { blocks: vec![], is_more: false };
    assert_eq!(rig.call(request), Ok(expected));
}
