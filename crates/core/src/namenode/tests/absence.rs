//! Starts and absences of the namenode: what they must not cost, and what they never repeat.

use sanderling_protocol::message::{
    BlockLength, GrantedBlock, JobHints, Join, Register, RegisterJob, Repeat, Wiped,
};
use sanderling_protocol::node::TierCapacity;
use sanderling_protocol::order::{DamagedBlock, HeldBlock};
use sanderling_protocol::{
    BlockId, ClusterId, Epoch, EventKind, Instant, LogPosition, Millis, NodeId, Nonce, Policy,
    Refusal, Reply, Request, Term, Tier,
};

use super::{Namenode, NamenodeConfig, Rig, path};
use crate::catalog::{Action, Command, SKIP_MIN, skip_after};
use crate::namenode::Prepared;

impl Rig {
    /// Lets another member of a group lead, which has the whole log.
    pub(super) fn take_over(&mut self, term: u64) {
        for command in self.namenode.take_over(self.now, Term(term), Millis(0)) {
            self.log_and_apply(command).unwrap();
        }
    }

    /// Starts the namenode again after some time.
    pub(super) fn start_again(&mut self, away: Millis, term: u64) {
        self.now = self.now + away;
        for command in self.namenode.begin(self.now, Term(term), 0, 0) {
            self.log_and_apply(command).unwrap();
        }
    }

    fn join(&mut self, nonce: u64, seen: Option<LogPosition>) -> (NodeId, bool, LogPosition) {
        let register = Register {
            cluster: None,
            nonce: Nonce(nonce),
            name: format!("node-{nonce}"),
            address: format!("node-{nonce}:1"),
            http_address: String::new(),
            host: String::new(),
            tiers: vec![TierCapacity { tier: Tier::Dram, bytes: 64 << 20 }],
            notice_min: None,
            egress_bytes_per_second: None,
        };
        let wiped = Some(Wiped { node: NodeId(77), blocks: 3, bytes: 4096 });
        match self.call(Request::Join(Box::new(Join { register, seen, wiped }))).unwrap() {
            Reply::Joined(joined) => {
                (joined.registered.node, joined.is_continuation, joined.position.unwrap())
            }
            other => panic!("{other:?}"),
        }
    }

    fn events(&self) -> Vec<EventKind> {
        self.namenode.events_after(0, 1000).into_iter().map(|event| event.kind).collect()
    }
}

#[test]
fn start_gives_out_no_number_that_a_lost_end_of_the_log_gave_out() {
    let mut rig = Rig::with_nodes(2);
    rig.start_again(Millis(0), 1);
    let object = rig.put("/kept", 10).stat.object;
    let whole = rig.namenode.catalog().clone();
    // Another history of the same log, in which much more happened.
    let mut numbers = Vec::new();
    for name in 0..50 {
        let grant = rig.create(&format!("/lost-{name}")).unwrap();
        numbers.push((grant.object, grant.lease, grant.blocks[0].block));
    }
    let lost_node = rig.register("late").unwrap();
    rig.namenode = Namenode::restore(NamenodeConfig::default(), whole, rig.now);
    rig.log.clear();
    let before = rig.namenode.catalog().numbers();
    for command in rig.namenode.begin(rig.now, Term(2), 0, 0) {
        let _ = rig.namenode.apply(&command);
    }
    assert_eq!(rig.namenode.catalog().numbers().object, before.object + SKIP_MIN + 2);
    let (last_object, last_lease, last_block) = *numbers.last().unwrap();
    let mut again = Vec::new();
    for name in 0..60 {
        match rig.namenode.prepare(rig.now, Request::Create(rig_file(name))) {
            Prepared::Log(command) => match rig.namenode.apply(&command).result.unwrap() {
                Reply::Grant(grant) => again.push(grant),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }
    assert!(again.iter().all(|grant| grant.object > last_object && grant.object > object));
    assert!(again.iter().all(|grant| grant.lease > last_lease));
    assert!(again.iter().all(|grant| grant.blocks[0].block > last_block));
    assert!(rig.namenode.catalog().numbers().node > lost_node.0);
    assert!(rig.namenode.catalog().is_foreign_node(lost_node));
    // The log was changed by hand: nothing is to be compared with it at the end.
    std::mem::forget(rig);
}

fn rig_file(name: u64) -> sanderling_protocol::message::Create {
    sanderling_protocol::message::Create::new(path(&format!("/n-{name}")), Nonce(9000 + name))
}

#[test]
fn longer_absence_skips_more_and_a_wrong_clock_not_too_much() {
    let term = Term(7);
    assert_eq!(skip_after(Millis(0), term), SKIP_MIN + 7);
    assert!(skip_after(Millis(60_000), term) > SKIP_MIN + 60 * 1_000_000);
    assert_eq!(skip_after(Millis(u64::MAX), term), SKIP_MIN + (1 << 42) + 7);
}

#[test]
fn two_starts_on_the_same_log_at_the_same_time_give_out_other_numbers() {
    // At once, after a while, and with a clock that is wrong by so much that both skip the most.
    for after in [Millis(0), Millis(40_000), Millis(u64::MAX / 4_000_000)] {
        let numbers = |term| {
            let mut rig = Rig::with_nodes(1);
            rig.start_again(after, term);
            let numbers = rig.namenode.catalog().numbers();
            std::mem::forget(rig);
            numbers
        };
        let (one, other) = (numbers(0x1234_5678_9abc_def0), numbers(0xfedc_ba98_7654_3210));
        assert!(one.object.abs_diff(other.object) > 10_000, "{after:?}: {one:?}, {other:?}");
        assert!(one.block.abs_diff(other.block) > 10_000 && one.lease != other.lease);
        assert!(one.node.abs_diff(other.node) > 1000, "{after:?}: {one:?}, {other:?}");
    }
}

#[test]
fn missing_block_that_was_reported_before_the_start_is_not_believed_after_it() {
    let mut rig = Rig::new();
    rig.start_again(Millis(0), 1);
    rig.register("one").unwrap();
    let layout = rig.put("/kept", 10);
    let (home, block) = (layout.blocks[0].home.unwrap(), layout.blocks[0].block);
    let damage = sanderling_protocol::order::Damage::Missing;
    let blocks = vec![DamagedBlock { block, epoch: layout.blocks[0].epoch, damage }];
    let prepared = Command { at: rig.now, action: Action::Damaged { node: home, blocks } };
    rig.start_again(Millis(0), 2);
    let answer = rig.log_and_apply(prepared);
    assert!(matches!(answer, Err(Refusal::RetryAfter { .. })), "{answer:?}");
    assert_eq!(rig.stat("/kept").unwrap().lost_bytes, 0);
}

#[test]
fn starts_with_a_wrong_clock_do_not_use_the_numbers_up() {
    let mut rig = Rig::with_nodes(1);
    for term in 1..2000 {
        let far = Millis(u64::MAX / 4_000_000);
        rig.now = rig.now + Millis(1);
        let skip = skip_after(far, Term(term << 20));
        let action = Action::BeginTerm { term: Term(term), absence: Millis(0), skip };
        rig.namenode.apply(&Command { at: rig.now, action: action.clone() });
        rig.log.push(Command { at: rig.now, action });
    }
    let before = rig.namenode.catalog().numbers();
    assert!(before.object < 1 << 46 && before.node < u32::MAX);
    rig.put("/still", 10);
    rig.register("still").unwrap();
}

#[test]
fn node_with_a_position_past_the_log_is_answered_so_and_it_is_reported_once() {
    let mut rig = Rig::new();
    rig.start_again(Millis(0), 1);
    let (_, is_continuation, position) = rig.join(1, None);
    assert!(is_continuation);
    assert_eq!(position.term, Term(1));
    assert!(rig.join(1, Some(position)).1, "nothing is missing");
    let ahead = LogPosition { term: Term(1), index: position.index + 100 };
    rig.start_again(Millis(10), 2);
    assert!(rig.join(1, Some(position)).1, "the next term goes on from there");
    assert!(!rig.join(1, Some(ahead)).1);
    assert!(!rig.join(1, Some(ahead)).1);
    assert!(!rig.join(2, Some(LogPosition { term: Term(9), index: 1 })).1, "it is unknown");
    let kinds: Vec<EventKind> = rig.events();
    let missing: Vec<_> = kinds
        .iter()
        .filter_map(|kind| match kind {
            EventKind::LogEndLost { commands, .. } => Some(*commands),
            _ => None,
        })
        .collect();
    // Two of the three were known nodes, one joined anew: its wiped blocks count as lost.
    assert_eq!(missing.len(), 2, "{kinds:?}");
    assert!(missing[0].is_some_and(|commands| (90..=100).contains(&commands)), "{missing:?}");
    assert_eq!(missing[1], None);
    assert_eq!(rig.namenode.catalog().report().bytes, 4096);
}

#[test]
fn blocks_of_a_lost_log_end_are_kept_at_first_then_counted_once_and_dropped() {
    let mut rig = Rig::with_nodes(1);
    let kept = rig.put("/kept", 10).blocks[0].block;
    let next = rig.namenode.catalog().numbers().block;
    rig.start_again(Millis(0), 1);
    rig.start_again(Millis(10), 2);
    let held = |block, length| HeldBlock { block, epoch: Epoch(1), length, tier: Tier::Dram };
    let blocks = vec![held(kept, 10), held(BlockId(next + 5), 100), held(BlockId(next + 6), 50)];
    let report = Request::BlockReport { node: NodeId(1), blocks };
    for _ in 0..10 {
        assert_eq!(rig.call(report.clone()), Ok(Reply::Drop { blocks: vec![] }));
        assert_eq!(rig.namenode.catalog().report().blocks, 0, "nothing is lost yet");
        rig.pass(Millis(2_990));
    }
    rig.pass(Millis(1000));
    for _ in 0..3 {
        let Reply::Drop { blocks } = rig.call(report.clone()).unwrap() else { panic!() };
        assert_eq!(blocks, [BlockId(next + 5), BlockId(next + 6)]);
        let report = rig.namenode.catalog().report();
        assert_eq!((report.blocks, report.bytes), (2, 150));
    }
    let from_unknown = Request::BlockReport { node: NodeId(55), blocks: vec![] };
    assert!(matches!(rig.call(from_unknown), Err(Refusal::NodeGone { .. })));
}

#[test]
fn what_an_earlier_start_has_counted_as_lost_is_dropped_at_once_after_the_next() {
    let mut rig = Rig::with_nodes(1);
    let next = rig.namenode.catalog().numbers().block;
    rig.start_again(Millis(0), 1);
    rig.start_again(Millis(10), 2);
    let block = BlockId(next + 5);
    let blocks = vec![HeldBlock { block, epoch: Epoch(1), length: 100, tier: Tier::Dram }];
    let report = Request::BlockReport { node: NodeId(1), blocks };
    assert_eq!(rig.call(report.clone()), Ok(Reply::Drop { blocks: vec![] }));
    rig.pass(Millis(30_001));
    // The node does not receive this answer.
    rig.call(report.clone()).unwrap();
    rig.start_again(Millis(10), 3);
    assert_eq!(rig.call(report), Ok(Reply::Drop { blocks: vec![block] }));
    let lost = rig.namenode.catalog().report();
    assert_eq!((lost.blocks, lost.bytes), (1, 100), "it is counted once");
}

#[test]
fn what_a_lost_log_end_had_put_into_the_object_tier_is_kept_at_first() {
    let mut rig = Rig::with_nodes(1);
    let known = rig.put("/kept", 10).blocks[0].block;
    let next = rig.namenode.catalog().numbers().block;
    rig.start_again(Millis(0), 1);
    rig.start_again(Millis(10), 2);
    // Any node that finds an object queries whether it may be deleted, without its length.
    let held = |block, epoch| HeldBlock { block, epoch, length: 0, tier: Tier::Object };
    let blocks = vec![held(known, Epoch(2)), held(BlockId(next + 5), Epoch(1))];
    let report = Request::BlockReport { node: NodeId(1), blocks };
    assert_eq!(rig.call(report.clone()), Ok(Reply::Drop { blocks: vec![] }));
    rig.pass(Millis(30_001));
    let blocks = vec![known, BlockId(next + 5)];
    assert_eq!(rig.call(report), Ok(Reply::Drop { blocks }));
    assert_eq!(rig.namenode.catalog().report().blocks, 0, "each node finds it: it is not counted");
}

#[test]
fn what_the_log_itself_has_given_up_is_dropped_at_once_after_a_start() {
    let mut rig = Rig::with_nodes(2);
    let block = rig.put("/file", 1000).blocks[0];
    let deleted = rig.put("/deleted", 10).blocks[0].block;
    rig.call(Request::Delete { path: path("/deleted"), recursive: false }).unwrap();
    rig.start_again(Millis(0), 1);
    rig.start_again(Millis(10), 2);
    let other = NodeId(3 - block.home.unwrap().0);
    let held = |block| HeldBlock { block, epoch: Epoch(1), length: 10, tier: Tier::Dram };
    let blocks = vec![held(block.block), held(deleted)];
    let dropped = vec![block.block, deleted];
    let report = Request::BlockReport { node: other, blocks };
    assert_eq!(rig.call(report), Ok(Reply::Drop { blocks: dropped }));
}

/// The log is put back to where a block was at its first home; the lost end had moved it.
pub(super) fn moved_by_a_lost_end() -> (Rig, HeldBlock, NodeId, NodeId) {
    let mut rig = Rig::with_nodes(2);
    let block = rig.put("/file", 1000).blocks[0];
    let home = block.home.unwrap();
    let other = NodeId(3 - home.0);
    rig.start_again(Millis(0), 1);
    rig.start_again(Millis(10), 2);
    let held = HeldBlock { block: block.block, epoch: Epoch(2), length: 1000, tier: Tier::Dram };
    (rig, held, home, other)
}

pub(super) fn missing(rig: &Rig, node: NodeId, block: BlockId) -> Request {
    let nonce = rig.namenode.catalog().node_nonce(node).unwrap();
    let damage = sanderling_protocol::order::Damage::Missing;
    let epoch = rig.namenode.catalog().block_home(block).unwrap().1;
    let blocks = vec![DamagedBlock { block, epoch, damage }];
    Request::ReportDamage { node, nonce, blocks }
}

#[test]
fn block_that_a_lost_log_end_had_moved_is_found_where_it_went() {
    let (mut rig, held, home, other) = moved_by_a_lost_end();
    // The old home has obeyed and has nothing; it reports that first, and is not believed yet.
    let lacks = missing(&rig, home, held.block);
    assert!(matches!(rig.call(lacks.clone()), Err(Refusal::RetryAfter { .. })));
    let report = Request::BlockReport { node: other, blocks: vec![held] };
    assert_eq!(rig.call(report), Ok(Reply::Drop { blocks: vec![] }));
    rig.pass(Millis(10_001));
    rig.call(missing(&rig, home, held.block)).unwrap();
    let layout = rig.layout("/file").unwrap();
    assert_eq!((layout.blocks[0].home, layout.blocks[0].epoch), (Some(other), Epoch(2)));
    assert_eq!(layout.stat.lost_bytes, 0);
}

#[test]
fn node_whose_place_is_taken_stays_while_others_may_have_its_blocks() {
    let (mut rig, held, home, other) = moved_by_a_lost_end();
    let (name, address) = (format!("node-{}", home.0), format!("node-{}:1", home.0));
    let elsewhere = rig.register_as(&name, "elsewhere:1", Nonce(500));
    assert!(matches!(elsewhere, Err(Refusal::NameInUse { .. })), "it never saw the first one go");
    let taker = rig.register_as(&name, &address, Nonce(501)).unwrap();
    assert_eq!(rig.namenode.catalog().node_policy(home).unwrap().0, Policy::Active);
    rig.call(Request::BlockReport { node: other, blocks: vec![held] }).unwrap();
    let why = String::new();
    rig.log_and_apply(Command { at: rig.now, action: Action::NodeDead { node: home, why } })
        .unwrap();
    let layout = rig.layout("/file").unwrap();
    assert_eq!((layout.blocks[0].home, layout.stat.lost_bytes), (Some(other), 0));
    rig.pass(Millis(10_001));
    rig.register_as(&name, &address, Nonce(502)).unwrap();
    assert_eq!(rig.namenode.catalog().node_policy(taker).unwrap().0, Policy::Gone);
}

/// Makes a reservation for a block's move and starts again, on a log that has not committed it.
fn reserved_when_the_log_ends() -> (Rig, HeldBlock, NodeId, NodeId) {
    let mut rig = Rig::with_nodes(2);
    rig.start_again(Millis(0), 1);
    rig.pass(Millis(10_000));
    let block = rig.put("/file", 1000).blocks[0];
    let home = block.home.unwrap();
    let other = NodeId(3 - home.0);
    rig.notice(home, 60_000).unwrap();
    rig.manage();
    let epoch = rig.reserve(block.block, block.epoch, other).unwrap();
    rig.start_again(Millis(10), 2);
    let held = HeldBlock { block: block.block, epoch, length: 1000, tier: Tier::Dram };
    (rig, held, home, other)
}

#[test]
fn move_that_was_stored_when_the_log_ends_is_found_at_its_target() {
    let (mut rig, held, home, other) = reserved_when_the_log_ends();
    let short = HeldBlock { length: 999, ..held };
    let report = |blocks| Request::BlockReport { node: other, blocks };
    rig.call(report(vec![short])).unwrap();
    assert_eq!(rig.layout("/file").unwrap().blocks[0].home, Some(home), "it is still coming");
    assert_eq!(rig.call(report(vec![held])), Ok(Reply::Drop { blocks: vec![] }));
    let layout = rig.layout("/file").unwrap();
    assert_eq!((layout.blocks[0].home, layout.blocks[0].epoch), (Some(other), held.epoch));
    rig.call(report(vec![held])).unwrap();
    assert_eq!(rig.layout("/file").unwrap(), layout, "it is committed once");
}

#[test]
fn manager_takes_no_epoch_and_no_copy_before_the_nodes_have_reported() {
    let (mut rig, held, _, other) = reserved_when_the_log_ends();
    let blocks = vec![held.block];
    let holder = super::cluster::MANAGER;
    let requests = [
        Request::Abandon { holder, blocks: blocks.clone() },
        Request::DropCopies { holder, blocks },
        Request::Reserve { holder, moves: Vec::new() },
    ];
    for request in &requests {
        let refused = rig.call(request.clone());
        assert!(matches!(refused, Err(Refusal::RetryAfter { .. })), "{refused:?}");
    }
    rig.pass(Millis(3_000));
    let refused = rig.call(requests[0].clone());
    assert!(matches!(refused, Err(Refusal::RetryAfter { .. })), "{refused:?}");
    for node in [NodeId(1), other, NodeId(2)] {
        let nonce = rig.namenode.catalog().node_nonce(node).unwrap();
        let (after, limit) = (BlockId(0), 10);
        rig.call(Request::ExpectedBlocks { node, nonce, after, limit }).unwrap();
    }
    rig.call(requests[0].clone()).unwrap();
}

#[test]
fn move_that_is_stored_long_after_a_start_waits_for_its_commit() {
    let (mut rig, held, home, other) = reserved_when_the_log_ends();
    rig.pass(Millis(30_001));
    let report = Request::BlockReport { node: other, blocks: vec![held] };
    rig.call(report).unwrap();
    assert_eq!(rig.layout("/file").unwrap().blocks[0].home, Some(home));
}

#[test]
fn block_that_a_lost_log_end_had_moved_into_the_object_tier_is_found_there() {
    let (mut rig, held, home, other) = moved_by_a_lost_end();
    let held = HeldBlock { tier: Tier::Object, ..held };
    // A node that only finds the object does not serve it.
    let found = HeldBlock { length: 0, ..held };
    let report = |node, held| Request::BlockReport { node, blocks: vec![held] };
    assert_eq!(rig.call(report(home, found)), Ok(Reply::Drop { blocks: vec![] }));
    assert_eq!(rig.call(report(other, held)), Ok(Reply::Drop { blocks: vec![] }));
    let view = rig.namenode.catalog().block_view(held.block).unwrap();
    assert_eq!(view.copy, Some((other, Tier::Object, held.epoch)));
    rig.pass(Millis(30_001));
    assert_eq!(rig.call(report(home, found)), Ok(Reply::Drop { blocks: vec![] }));
}

#[test]
fn block_that_a_lost_log_end_had_moved_away_and_back_is_read_where_it_is() {
    let (mut rig, held, home, _) = moved_by_a_lost_end();
    let held = HeldBlock { epoch: Epoch(3), ..held };
    let report = Request::BlockReport { node: home, blocks: vec![held] };
    assert_eq!(rig.call(report), Ok(Reply::Drop { blocks: vec![] }));
    let layout = rig.layout("/file").unwrap();
    assert_eq!((layout.blocks[0].home, layout.blocks[0].epoch), (Some(home), Epoch(3)));
}

#[test]
fn epoch_that_no_log_can_have_given_out_changes_nothing() {
    let (mut rig, held, home, other) = moved_by_a_lost_end();
    let report = |rig: &mut Rig, node, epoch| {
        let blocks = vec![HeldBlock { epoch: Epoch(epoch), ..held }];
        rig.call(Request::BlockReport { node, blocks }).unwrap();
        rig.namenode.catalog().block_view(held.block).unwrap()
    };
    for node in [home, other] {
        for epoch in [(1 << 31) + 1, u32::MAX] {
            let view = report(&mut rig, node, epoch);
            assert_eq!((view.home, view.epoch, view.copy), (Some(home), Epoch(1), None));
        }
    }
    assert_eq!(report(&mut rig, home, 1 << 31).epoch, Epoch(1 << 31), "the last one believed");
}

#[test]
fn block_that_a_lost_log_end_had_moved_off_a_leaving_node_is_at_home_where_it_went() {
    let (mut rig, held, home, other) = moved_by_a_lost_end();
    rig.give_notice(home);
    let report = Request::BlockReport { node: other, blocks: vec![held] };
    assert_eq!(rig.call(report), Ok(Reply::Drop { blocks: vec![] }));
    let layout = rig.layout("/file").unwrap();
    assert_eq!((layout.blocks[0].home, layout.blocks[0].epoch), (Some(other), Epoch(2)));
}

#[test]
fn writer_whose_blocks_the_log_has_lost_writes_nothing_behind_the_gap() {
    let mut rig = Rig::with_nodes(2);
    rig.start_again(Millis(0), 1);
    let grant = rig.create("/file").unwrap();
    let (object, lease) = (grant.object, grant.lease);
    let lost = BlockId(rig.namenode.catalog().numbers().block);
    rig.start_again(Millis(10), 2);
    // The lost end had ended the first block and granted another, which is empty and refused.
    let ended = vec![BlockLength { block: lost, length: 0 }];
    let more = Request::AddBlocks { object, lease, ended, count: 1, avoid: Vec::new() };
    assert_eq!(rig.call(more).unwrap_err(), Refusal::LeaseEnded { object });
    let lengths = vec![BlockLength { block: lost, length: 10 }];
    let attributes = sanderling_protocol::message::Attributes::none();
    let seal = Request::Seal { object, lease, lengths, attributes };
    assert_eq!(rig.call(seal).unwrap_err(), Refusal::LeaseEnded { object });
}

/// The log has lost that the first block was full: what is written behind it would be read at the
/// offset where the log ends that block.
#[test]
fn bytes_behind_a_block_whose_end_the_log_has_lost_are_refused() {
    let mut rig = Rig::with_nodes(1);
    rig.start_again(Millis(0), 1);
    let grant = rig.create("/file").unwrap();
    let (object, lease) = (grant.object, grant.lease);
    let (first, full) = (grant.blocks[0].block, grant.blocks[0].bytes_max);
    let more = Request::AddBlocks { object, lease, ended: vec![], count: 1, avoid: Vec::new() };
    let Reply::Grant(more) = rig.call(more).unwrap() else { panic!("not a grant") };
    let of = |block, length| BlockLength { block, length };
    let second = more.blocks[0].block;
    let publish = |lengths| Request::Publish { object, lease, lengths };
    // Publishing bytes of the first block was lost here, or else those behind 1,000.
    for kept in [0, 1000] {
        rig.call(publish(vec![of(first, kept)])).unwrap();
        let behind = rig.call(publish(vec![of(second, 10)]));
        assert_eq!(behind.unwrap_err(), Refusal::LeaseEnded { object });
    }
    // A writer that names both has lost nothing.
    assert_eq!(rig.call(publish(vec![of(first, full), of(second, 10)])), Ok(Reply::Done));
    assert_eq!(rig.call(publish(vec![of(second, 20)])), Ok(Reply::Done));
}

/// A log of an earlier program may have accepted them: what it contains is applied as it was then.
#[test]
fn log_without_rules_keeps_bytes_behind_a_block_that_was_left_out() {
    let mut rig = Rig::with_nodes(1);
    let grant = rig.create("/file").unwrap();
    let (object, lease) = (grant.object, grant.lease);
    let more = Request::AddBlocks { object, lease, ended: vec![], count: 1, avoid: Vec::new() };
    let Reply::Grant(more) = rig.call(more).unwrap() else { panic!("not a grant") };
    let lengths = vec![BlockLength { block: more.blocks[0].block, length: 10 }];
    assert_eq!(rig.call(Request::Publish { object, lease, lengths }), Ok(Reply::Done));
}

#[test]
fn grant_that_is_repeated_names_the_blocks_of_a_node_that_is_gone() {
    let mut rig = Rig::with_nodes(2);
    rig.start_again(Millis(0), 1);
    let create = rig.file("/file");
    let grant = rig.create_with(create.clone()).unwrap();
    let granted = grant.blocks[0];
    let (node, reason) = (granted.node.into(), String::new());
    rig.call(Request::Notice { node, deadline_millis: 5, reason }).unwrap();
    rig.pass(Millis(10));
    let again = rig.create_with(create).unwrap();
    let gone = GrantedBlock { node: NodeId(0), epoch: Epoch(2), bytes_max: 0, ..granted };
    assert_eq!((again.lease, again.blocks, again.places), (grant.lease, vec![gone], vec![]));
    let (object, lease) = (grant.object, grant.lease);
    let ended = vec![BlockLength { block: granted.block, length: 0 }];
    let more = Request::AddBlocks { object, lease, ended, count: 1, avoid: Vec::new() };
    let Reply::Grant(more) = rig.call(more).unwrap() else { panic!("not a grant") };
    let lengths = vec![BlockLength { block: more.blocks[0].block, length: 10 }];
    assert_eq!(rig.call(Request::Publish { object, lease, lengths }), Ok(Reply::Done));
}

#[test]
fn home_at_an_epoch_of_a_lost_log_end_is_read_although_it_was_given_again() {
    let mut rig = super::copies::rig(2);
    let block = rig.put("/file", 1000).blocks[0];
    let (id, home) = (block.block, block.home.unwrap());
    rig.start_again(Millis(0), 1);
    rig.start_again(Millis(10), 2);
    // The node reports late.
    rig.pass(Millis(10_000));
    let purpose = sanderling_protocol::message::MovePurpose::Rebalance;
    assert_eq!(rig.begin(id, Epoch(1), NodeId(3 - home.0), purpose), Ok(Epoch(2)));
    let held = HeldBlock { block: id, epoch: Epoch(2), length: 1000, tier: Tier::Dram };
    rig.call(Request::BlockReport { node: home, blocks: vec![held] }).unwrap();
    let view = rig.namenode.catalog().block_view(id).unwrap();
    assert_eq!((view.home, view.epoch, view.reserved), (Some(home), Epoch(2), None));
}

#[test]
fn copy_that_a_lost_log_end_had_made_again_is_read_as_it_is_held() {
    let mut rig = super::copies::rig(2);
    let (block, home, other) = rig.copied("/file");
    rig.start_again(Millis(0), 1);
    rig.start_again(Millis(10), 2);
    let held = HeldBlock { block, epoch: Epoch(4), length: 1000, tier: Tier::Dram };
    let report = Request::BlockReport { node: other, blocks: vec![held] };
    assert_eq!(rig.call(report), Ok(Reply::Drop { blocks: vec![] }));
    rig.give_notice(home);
    let layout = rig.layout("/file").unwrap();
    assert_eq!((layout.blocks[0].home, layout.blocks[0].epoch), (Some(other), Epoch(4)));
}

#[test]
fn copy_is_read_at_an_epoch_of_a_lost_log_end_although_it_was_given_again() {
    let mut rig = super::copies::rig(3);
    let (block, home, other) = rig.copied("/file");
    let third = NodeId(6 - home.0 - other.0);
    rig.start_again(Millis(0), 1);
    rig.start_again(Millis(10), 2);
    // The node reports late.
    rig.pass(Millis(10_000));
    let purpose = sanderling_protocol::message::MovePurpose::Rebalance;
    for epoch in [3, 4] {
        assert_eq!(rig.begin(block, Epoch(1), third, purpose), Ok(Epoch(epoch)));
        rig.call(Request::Abandon { holder: Nonce(99), blocks: vec![block] }).unwrap();
    }
    let held = HeldBlock { block, epoch: Epoch(4), length: 1000, tier: Tier::Dram };
    let report = Request::BlockReport { node: other, blocks: vec![held] };
    assert_eq!(rig.call(report), Ok(Reply::Drop { blocks: vec![] }));
    rig.give_notice(home);
    let layout = rig.layout("/file").unwrap();
    assert_eq!((layout.blocks[0].home, layout.blocks[0].epoch), (Some(other), Epoch(4)));
}

#[test]
fn short_copy_of_a_lost_log_end_is_dropped_and_reported_once() {
    let mut rig = super::copies::rig(3);
    let (block, _, other) = rig.copied("/file");
    rig.start_again(Millis(0), 1);
    rig.start_again(Millis(10), 2);
    let held = HeldBlock { block, epoch: Epoch(4), length: 10, tier: Tier::Dram };
    let report = Request::BlockReport { node: other, blocks: vec![held] };
    let dropped = rig.call(report.clone()).unwrap();
    assert_eq!(dropped, Reply::Drop { blocks: vec![block] });
    assert_eq!(rig.namenode.catalog().block_view(block).unwrap().copy, None);
    let logged = rig.log.len();
    rig.call(report).unwrap();
    assert_eq!(rig.log.len(), logged);
}

#[test]
fn copy_gives_way_to_what_a_lost_log_end_had_made_later_elsewhere() {
    let mut rig = super::copies::rig(3);
    let (block, home, other) = rig.copied("/file");
    let third = NodeId(6 - home.0 - other.0);
    rig.start_again(Millis(0), 1);
    rig.start_again(Millis(10), 2);
    // The lost end had dropped the copy and moved the block; the copy's node has nothing any more.
    let held = HeldBlock { block, epoch: Epoch(4), length: 1000, tier: Tier::Dram };
    let report = Request::BlockReport { node: third, blocks: vec![held, held] };
    rig.orders.clear();
    assert_eq!(rig.call(report.clone()), Ok(Reply::Drop { blocks: vec![] }));
    let spares_it = rig.orders.iter().all(|order| order.node != third);
    assert!(spares_it, "a page that names a block twice: {:?}", rig.orders);
    assert_eq!(rig.call(report), Ok(Reply::Drop { blocks: vec![] }));
    rig.pass(Millis(10_001));
    rig.call(missing(&rig, home, block)).unwrap();
    let layout = rig.layout("/file").unwrap();
    assert_eq!((layout.blocks[0].home, layout.blocks[0].epoch), (Some(third), Epoch(4)));
    assert_eq!(layout.stat.lost_bytes, 0);
}

#[test]
fn copy_older_than_what_a_lost_log_end_made_of_the_home_is_dropped() {
    let mut rig = super::copies::rig(2);
    let (block, home, _) = rig.copied("/file");
    rig.start_again(Millis(0), 1);
    rig.start_again(Millis(10), 2);
    let held = HeldBlock { block, epoch: Epoch(5), length: 1000, tier: Tier::Dram };
    let report = Request::BlockReport { node: home, blocks: vec![held] };
    assert_eq!(rig.call(report), Ok(Reply::Drop { blocks: vec![] }));
    let view = rig.namenode.catalog().block_view(block).unwrap();
    assert_eq!((view.epoch, view.copy.is_none()), (Epoch(5), true));
}

fn job(rig: &mut Rig, lease: Millis) -> sanderling_protocol::JobId {
    let hints = JobHints::default();
    let request = RegisterJob { path: path("/job"), lease, quota_bytes: None, hints };
    match rig.call(Request::RegisterJob(request)).unwrap() {
        Reply::Job(job) => job.job,
        other => panic!("{other:?}"),
    }
}

#[test]
fn absence_counts_against_no_lease_and_no_time_to_live() {
    let mut rig = Rig::with_nodes(1);
    let job = job(&mut rig, Millis(5000));
    rig.put("/job/file", 10);
    rig.put("/short", 10);
    rig.call(Request::SetTtl { path: path("/short"), ttl: Some(Millis(3000)) }).unwrap();
    let grant = rig.create("/open").unwrap();
    let _ = rig.namenode.begin(rig.now, Term(1), 0, 0);
    rig.pass(Millis(400));
    assert!(rig.namenode.listened(rig.now).is_none());
    rig.now = rig.now + Millis(60_000);
    let command = rig.namenode.listened(rig.now).expect("an absence");
    assert_eq!(command.action, Action::Absent { absence: Millis(60_000) });
    rig.log_and_apply(command).unwrap();
    assert!(rig.namenode.listened(rig.now).is_none(), "sent once");
    rig.pass(Millis(2500));
    assert!(rig.stat("/short").is_ok());
    assert_eq!(rig.stat("/short").unwrap().expires_in, Some(Millis(100)));
    rig.pass(Millis(101));
    assert!(rig.stat("/short").is_err());
    rig.call(Request::RenewJob { job }).unwrap();
    rig.seal(&grant, &[10]).unwrap();
    rig.pass(Millis(5000));
    assert!(rig.stat("/job").is_err(), "a job without renewal ends");
}

#[test]
fn repetition_that_waited_for_the_end_of_an_absence_revives_no_cancelled_notice() {
    let mut rig = Rig::with_nodes(1);
    let node = NodeId(1);
    let nonce = rig.namenode.catalog().node_nonce(node).unwrap();
    let repeat = |rig: &mut Rig, known_ago| {
        let (deadline_millis, reason) = (Some(60_000), "spot".to_owned());
        let repeat = Repeat { node, nonce, deadline_millis, reason, known_ago };
        rig.call(Request::Repeat(repeat)).unwrap();
        rig.policy(node)
    };
    let _ = rig.namenode.begin(rig.now, Term(1), 0, 0);
    rig.notice(node, 60_000).unwrap();
    rig.call(Request::Cancel { node: node.into() }).unwrap();
    // It was sent a second after the datanode's last answer, and then it was not read.
    rig.now = rig.now + Millis(12_000);
    let absent = rig.namenode.listened(rig.now).expect("an absence");
    rig.log_and_apply(absent).unwrap();
    assert_eq!(repeat(&mut rig, Millis(1000)), Policy::Active);
    // What is known after that, and is not there, was lost.
    rig.now = rig.now + Millis(5001);
    assert_eq!(repeat(&mut rig, Millis(0)), Policy::Drained, "it has no blocks");
}

#[test]
fn record_of_an_absence_on_a_slow_disk_makes_no_other() {
    let mut rig = Rig::with_nodes(1);
    let _ = rig.namenode.begin(rig.now, Term(1), 0, 0);
    rig.now = rig.now + Millis(3000);
    let command = rig.namenode.listened(rig.now).expect("an absence");
    let began = rig.now;
    rig.now = rig.now + Millis(900);
    rig.log_and_apply(command).unwrap();
    rig.namenode.committed(began, rig.now);
    assert!(rig.namenode.listened(rig.now + Millis(100)).is_none(), "the disk took 900 ms");
    // A process that was stopped in the middle of a commit was absent all the same.
    let began = rig.now + Millis(100);
    rig.now = rig.now + Millis(8000);
    rig.namenode.committed(began, rig.now);
    assert!(rig.namenode.listened(rig.now).is_some());
}

#[test]
fn absence_that_the_journal_refused_is_logged_again() {
    let mut rig = Rig::with_nodes(1);
    let _ = rig.namenode.begin(rig.now, Term(1), 0, 0);
    rig.now = rig.now + Millis(2000);
    assert!(rig.namenode.listened(rig.now).is_some());
    rig.now = rig.now + Millis(200);
    let again = rig.namenode.listened(rig.now).expect("it was not applied");
    assert_eq!(again.action, Action::Absent { absence: Millis(2200) });
}

#[test]
fn start_renews_every_lease() {
    let mut rig = Rig::with_nodes(1);
    let job = job(&mut rig, Millis(5000));
    let grant = rig.create("/open").unwrap();
    rig.pass(Millis(4900));
    rig.start_again(Millis(3_600_000), 1);
    rig.pass(Millis(4900));
    let Reply::Jobs(jobs) = rig.call(Request::Jobs).unwrap() else { panic!() };
    assert_eq!(jobs[0].remaining, Millis(100));
    rig.call(Request::RenewJob { job }).unwrap();
    rig.seal(&grant, &[10]).unwrap();
}

#[test]
fn notice_waits_for_a_namenode_that_was_away() {
    let mut rig = Rig::with_nodes(2);
    let layout = rig.put("/file", 10);
    let home = layout.blocks[0].home.unwrap();
    let reason = String::new();
    rig.call(Request::Notice { node: home.into(), deadline_millis: 3000, reason }).unwrap();
    rig.start_again(Millis(60_000), 1);
    rig.pass(Millis(9000));
    assert_eq!(rig.namenode.catalog().node_policy(home).unwrap().0, Policy::Draining);
    rig.pass(Millis(1001));
    assert_eq!(rig.namenode.catalog().node_policy(home).unwrap().0, Policy::Gone);
}

#[test]
fn times_to_live_that_are_set_again_or_never_come_leave_nothing_behind() {
    let mut rig = Rig::with_nodes(1);
    rig.put("/file", 10);
    let before = rig.namenode.catalog().due_count();
    for ttl in 1..1000 {
        let ttl = Some(Millis(1_000_000 + (ttl * 7919) % 1000));
        rig.call(Request::SetTtl { path: path("/file"), ttl }).unwrap();
    }
    assert_eq!(rig.namenode.catalog().due_count(), before + 1);
    rig.call(Request::SetTtl { path: path("/file"), ttl: None }).unwrap();
    assert_eq!(rig.namenode.catalog().due_count(), before);
    rig.call(Request::SetTtl { path: path("/file"), ttl: Some(Millis(1_000_000)) }).unwrap();
    rig.call(Request::Delete { path: path("/file"), recursive: false }).unwrap();
    assert_eq!(rig.namenode.catalog().due_count(), before);
}

#[test]
fn new_cluster_begins_with_the_first_numbers() {
    let mut namenode = Namenode::new(NamenodeConfig::default(), ClusterId(1));
    let now = Instant(1_700_000_000_000_000);
    let before = namenode.catalog().numbers();
    for command in namenode.begin(now, Term(1), 0, 0) {
        let Command { .. } = &command;
        namenode.apply(&command).result.unwrap();
    }
    assert_eq!(namenode.catalog().numbers(), before);
    assert_eq!(namenode.catalog().now(), now);
}

#[test]
fn time_in_which_the_journal_takes_no_change_counts_against_no_lease() {
    let mut rig = Rig::with_nodes(1);
    rig.start_again(Millis(0), 1);
    let (lease, hints) = (Millis(5000), JobHints::default());
    let request = RegisterJob { path: path("/job"), lease, quota_bytes: None, hints };
    let Reply::Job(job) = rig.call(Request::RegisterJob(request)).unwrap() else { panic!() };
    assert_eq!(rig.namenode.listened(rig.now), None);
    // For twice the lease every renewal is refused, and so is what time makes necessary.
    for _ in 0..100 {
        rig.now = rig.now + Millis(100);
        let grace = rig.namenode.listened(rig.now);
        assert!(matches!(grace, None | Some(Command { action: Action::Absent { .. }, .. })));
        rig.namenode.refused();
    }
    // A commit that is taken before the next look does not hide it.
    let now = rig.now;
    rig.namenode.committed(now, now);
    let grace = rig.namenode.listened(now).expect("the refusals are an absence");
    // All but the time up to the first look, which was before the first refusal.
    assert_eq!(grace.action, Action::Absent { absence: Millis(9900) });
    rig.log_and_apply(grace).unwrap();
    for command in rig.namenode.tick(now) {
        rig.log_and_apply(command).unwrap();
    }
    rig.call(Request::RenewJob { job: job.job }).unwrap();
    // Served again, time counts.
    assert_eq!(rig.namenode.listened(now), None);
    rig.namenode.committed(now, now);
    rig.pass(Millis(5001));
    let renewed = rig.call(Request::RenewJob { job: job.job });
    assert!(matches!(renewed, Err(Refusal::UnknownJob { .. })));
}
