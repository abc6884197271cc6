//! Writing: leases, lengths, and writers that vanish.

use sanderling_protocol::message::{Affinity, BlockCount, Create, CreateMode, GrantedBlock};
use sanderling_protocol::refusal::ByteRange;
use sanderling_protocol::{
    BlockId, Epoch, Millis, NodeId, ObjectId, Order, Policy, Refusal, Reply, Request, Tier,
};

use super::{MIB, Prepared, Rig, length, path};

impl Rig {
    /// Returns what the namenode counts for a block at a node.
    fn count(&self, node: NodeId, block: BlockId) -> BlockCount {
        let request = Request::CountedBlocks { node, subtree: path("/"), blocks: vec![block] };
        match self.namenode.read(self.now, &request) {
            Some(Ok(Reply::CountedBlocks(counts))) => counts[0],
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn published_bytes_are_readable_before_the_seal() {
    let mut rig = Rig::with_nodes(2);
    let grant = rig.create("/file").unwrap();
    assert_eq!(rig.stat("/file").unwrap().bytes, 0);
    let lengths = vec![length(grant.blocks[0].block, 1000)];
    let (object, lease) = (grant.object, grant.lease);
    rig.call(Request::Publish { object, lease, lengths }).unwrap();
    let layout = rig.layout("/file").unwrap();
    assert_eq!((layout.stat.bytes, layout.stat.is_sealed), (1000, false));
    assert_eq!(layout.blocks[0].length, 1000);
    // The same request, arriving late, takes nothing back.
    let lengths = vec![length(grant.blocks[0].block, 500)];
    rig.call(Request::Publish { object, lease, lengths }).unwrap();
    assert_eq!(rig.stat("/file").unwrap().bytes, 1000);
}

#[test]
fn blocks_are_reserved_for_what_is_expected_and_unused_ones_go_back() {
    let mut rig = Rig::with_nodes(4);
    let request = Create { expected_bytes: Some(3 * u64::from(MIB) + 5), ..rig.file("/file") };
    let grant = rig.create_with(request).unwrap();
    let sizes: Vec<u32> = grant.blocks.iter().map(|block| block.bytes_max).collect();
    assert_eq!(sizes, [MIB, MIB, MIB, 5]);
    let stat = rig.seal(&grant, &[MIB, 10]).unwrap();
    assert_eq!((stat.bytes, stat.blocks), (u64::from(MIB) + 10, 2));
    assert_eq!(rig.used_bytes(), u64::from(MIB) + 4096);
}

#[test]
fn grant_of_a_block_counts_at_its_home_until_its_length_is_final() {
    let mut rig = Rig::with_nodes(2);
    let request = Create { expected_bytes: Some(2 * u64::from(MIB) + 5), ..rig.file("/a/file") };
    let grant = rig.create_with(request).unwrap();
    let ids: Vec<BlockId> = grant.blocks.iter().map(|granted| granted.block).collect();
    let count = |rig: &Rig, block: usize, of: Option<NodeId>| {
        let (subtree, blocks) = (path("/a"), vec![ids[block]]);
        let node = of.unwrap_or(grant.blocks[block].node);
        let request = Request::CountedBlocks { node, subtree, blocks };
        match rig.namenode.read(rig.now, &request) {
            Some(Ok(Reply::CountedBlocks(counts))) => counts[0],
            other => panic!("{other:?}"),
        }
    };
    let tier = Tier::Dram;
    let granted = [MIB, MIB, 5].map(|bytes_max| BlockCount::Open { bytes_max, tier });
    assert_eq!([0, 1, 2].map(|block| count(&rig, block, None)), granted);
    let other = NodeId(3 - grant.blocks[0].node.0);
    assert_eq!(count(&rig, 0, Some(other)), BlockCount::Elsewhere);
    let (object, lease) = (grant.object, grant.lease);
    let published = vec![length(ids[0], 700)];
    rig.call(Request::Publish { object, lease, lengths: published }).unwrap();
    assert_eq!(count(&rig, 0, None), granted[0], "its writer may go on");
    rig.seal(&grant, &[MIB, 10]).unwrap();
    let ended = [0, 1, 2].map(|block| count(&rig, block, None));
    let length = |length| BlockCount::Ended { length };
    assert_eq!(ended, [length(MIB), length(10), BlockCount::Foreign], "an empty one is gone");
    // A crash of the machine may take the end back while the journal is behind.
    rig.namenode.refused();
    assert_eq!(count(&rig, 1, None), granted[1]);
    rig.namenode.committed(rig.now, rig.now);
    assert_eq!(count(&rig, 1, None), length(10));
    rig.call(Request::Delete { path: path("/a/file"), recursive: false }).unwrap();
    assert_eq!(count(&rig, 0, None), BlockCount::Foreign);
}

#[test]
fn end_of_a_block_does_not_count_at_first_after_a_start() {
    let mut rig = Rig::with_nodes(1);
    rig.start_again(Millis(0), 1);
    let grant = rig.create("/file").unwrap();
    let (object, lease, written) = (grant.object, grant.lease, grant.blocks[0]);
    let lengths = vec![length(written.block, 700)];
    rig.call(Request::Publish { object, lease, lengths }).unwrap();
    rig.start_again(Millis(10), 2);
    let (node, bytes_max, tier) = (written.node, written.bytes_max, written.tier);
    let (open, ended) = (BlockCount::Open { bytes_max, tier }, BlockCount::Ended { length: 700 });
    let count = |rig: &mut Rig| {
        // Its journal takes changes.
        rig.namenode.committed(rig.now, rig.now);
        rig.count(node, written.block)
    };
    // Another log may have more: its writer went on there, and renews nothing here.
    rig.pass(Millis(10_001));
    rig.answer_orders(900);
    assert!(rig.stat("/file").unwrap().is_sealed);
    rig.pass(Millis(19_990));
    assert_eq!(count(&mut rig), open);
    rig.pass(Millis(10));
    assert_eq!(count(&mut rig), ended);
    rig.take_over(3);
    assert_eq!(count(&mut rig), open);
    rig.pass(Millis(30_000));
    assert_eq!(count(&mut rig), ended);
}

#[test]
fn end_of_a_block_does_not_count_while_the_journal_hangs() {
    let mut rig = Rig::with_nodes(1);
    let grant = rig.create("/file").unwrap();
    rig.seal(&grant, &[700]).unwrap();
    let GrantedBlock { block, node, bytes_max, tier, .. } = grant.blocks[0];
    let (open, ended) = (BlockCount::Open { bytes_max, tier }, BlockCount::Ended { length: 700 });
    assert!(rig.namenode.listened(rig.now).is_none());
    assert_eq!(rig.count(node, block), ended);
    rig.now = rig.now + Millis(1000);
    assert_eq!(rig.count(node, block), ended, "the writer may only be slow");
    rig.now = rig.now + Millis(1);
    assert_eq!(rig.count(node, block), open);
    assert!(rig.namenode.listened(rig.now).is_none());
    assert_eq!(rig.count(node, block), ended);
}

#[test]
fn file_lies_near_the_machine_or_the_object_that_its_writer_names() {
    let mut rig = Rig::with_nodes(5);
    let mut create_near = |name: &str, affinity| {
        let expected_bytes = Some(8 * u64::from(MIB));
        let request = Create { affinity: Some(affinity), expected_bytes, ..rig.file(name) };
        let blocks = rig.create_with(request).unwrap().blocks;
        Vec::from_iter(blocks.into_iter().map(|granted| granted.node))
    };
    assert_eq!(create_near("/one", Affinity::Host("node-3".to_owned())), [NodeId(3); 8]);
    assert_eq!(create_near("/other", Affinity::Object(path("/one"))), [NodeId(3); 8]);
}

#[test]
fn writer_that_met_the_fence_goes_on_in_a_new_block() {
    let mut rig = Rig::with_nodes(2);
    let grant = rig.create("/file").unwrap();
    let (object, lease) = (grant.object, grant.lease);
    let ended = vec![length(grant.blocks[0].block, 700)];
    let avoid = vec![grant.blocks[0].node];
    // So many that chance does not keep them all from the node that is avoided.
    let more = rig.call(Request::AddBlocks { object, lease, ended, count: 16, avoid }).unwrap();
    let Reply::Grant(more) = more else { panic!("not a grant") };
    assert_eq!(more.blocks.len(), 16);
    assert!(more.blocks.iter().all(|granted| granted.node != grant.blocks[0].node));
    assert_eq!(more.bytes, 700);
    rig.seal(&more, &[300]).unwrap();
    let layout = rig.layout("/file").unwrap();
    let places: Vec<(u64, u32)> = layout.blocks.iter().map(|it| (it.offset, it.length)).collect();
    assert_eq!(places, [(0, 700), (700, 300)]);
}

#[test]
fn impossible_lengths_are_refused() {
    let mut rig = Rig::with_nodes(2);
    let grant = rig.create("/file").unwrap();
    let other = rig.create("/other").unwrap();
    let (object, lease) = (grant.object, grant.lease);
    let first = grant.blocks[0].block;
    let mut publish = |block, bytes| {
        rig.call(Request::Publish { object, lease, lengths: vec![length(block, bytes)] })
    };
    assert!(matches!(publish(first, MIB + 1), Err(Refusal::BadRequest { .. })));
    assert!(matches!(publish(other.blocks[0].block, 1), Err(Refusal::BadRequest { .. })));
    let ended = vec![length(first, 10)];
    let request = Request::AddBlocks { object, lease, ended, count: 1, avoid: vec![] };
    let Reply::Grant(more) = rig.call(request).unwrap() else { panic!("not a grant") };
    let mut publish = |block, bytes| {
        rig.call(Request::Publish { object, lease, lengths: vec![length(block, bytes)] })
    };
    assert!(matches!(publish(first, 11), Err(Refusal::BadRequest { .. })));
    publish(more.blocks[0].block, 5).unwrap();
    let request = Request::AddBlocks { object, lease, ended: vec![], count: 17, avoid: vec![] };
    assert!(matches!(rig.call(request), Err(Refusal::TooLarge { .. })));
}

#[test]
fn blocks_are_ended_for_room_only_by_their_writer_and_if_they_give_some() {
    let mut rig = Rig::with_nodes(1);
    let grant = rig.create("/open").unwrap();
    let (object, lease, block) = (grant.object, grant.lease, grant.blocks[0].block);
    let other = rig.create("/other").unwrap().lease;
    let mut number = 0;
    while rig.create(&format!("/{number}")).is_ok() {
        number += 1;
    }
    let logged = rig.log.len();
    let more = |rig: &mut Rig, lease, ended| {
        let request = Request::AddBlocks { object, lease, ended, count: 1, avoid: vec![] };
        let refused = rig.call(request);
        assert!(refused.is_err(), "there is no room");
        rig.log.len() - logged
    };
    assert_eq!(more(&mut rig, lease, vec![]), 0);
    assert_eq!(more(&mut rig, lease, vec![length(block, MIB)]), 0);
    assert_eq!(more(&mut rig, other, vec![length(block, 10)]), 0);
    assert_eq!(more(&mut rig, lease, vec![length(block, 10)]), 1);
}

#[test]
fn second_writer_is_refused_and_a_repeated_request_is_not() {
    let mut rig = Rig::with_nodes(2);
    let request = rig.file("/file");
    let grant = rig.create_with(request.clone()).unwrap();
    assert_eq!(rig.create_with(request).unwrap(), grant);
    let writer = rig.nonce();
    let append = Request::Append { path: path("/file"), writer };
    assert!(matches!(rig.call(append.clone()), Err(Refusal::SecondWriter { .. })));
    let first = rig.seal(&grant, &[10]).unwrap();
    assert_eq!(rig.seal(&grant, &[10]).unwrap(), first);
    let Reply::Grant(appended) = rig.call(append.clone()).unwrap() else { panic!("not a grant") };
    assert_eq!(rig.call(append).unwrap(), Reply::Grant(appended.clone()));
    assert_eq!(appended.bytes, 10);
    assert_eq!(rig.seal(&appended, &[5]).unwrap().bytes, 15);
    let stale = Request::Publish { object: grant.object, lease: grant.lease, lengths: vec![] };
    assert!(matches!(rig.call(stale), Err(Refusal::LeaseEnded { .. })));
}

#[test]
fn vanished_writer_is_fenced_at_the_datanode_before_another_may_write() {
    let mut rig = Rig::with_nodes(2);
    let grant = rig.create("/file").unwrap();
    let block = grant.blocks[0].block;
    let lengths = vec![length(block, 1000)];
    let (object, lease) = (grant.object, grant.lease);
    rig.call(Request::Publish { object, lease, lengths: lengths.clone() }).unwrap();
    rig.orders.clear();
    rig.pass(Millis(10_001));
    let [order] = &rig.orders[..] else { panic!("{:?}", rig.orders) };
    assert_eq!(order.order, Order::FenceBlocks { blocks: vec![(block, Epoch(2))] });
    let writer = rig.nonce();
    let append = Request::Append { path: path("/file"), writer };
    assert!(matches!(rig.call(append.clone()), Err(Refusal::RetryAfter { .. })));
    let stale = Request::Publish { object, lease, lengths };
    assert!(matches!(rig.call(stale), Err(Refusal::LeaseEnded { .. })));
    // The datanode does not answer: it is sent the order again.
    rig.orders.clear();
    rig.pass(Millis(1000));
    assert_eq!(rig.orders.len(), 1);
    rig.answer_orders(1500);
    assert!(rig.stat("/file").unwrap().is_sealed);
    assert_eq!(rig.stat("/file").unwrap().bytes, 1000);
    let Reply::Grant(appended) = rig.call(append).unwrap() else { panic!("not a grant") };
    assert_eq!(appended.bytes, 1000);
}

/// Another log may have what their writers have sealed: an operator may go back to that one.
#[test]
fn lease_whose_end_would_have_bytes_dropped_ends_no_sooner_than_30_s_after_a_start() {
    let mut rig = Rig::with_nodes(1);
    rig.start_again(Millis(0), 1);
    let file = rig.file("/unnamed");
    let unnamed = rig.create_with(Create { mode: CreateMode::Replace, ..file }).unwrap();
    let [blank, late, written] = ["/blank", "/late", "/written"].map(|it| rig.create(it).unwrap());
    let (object, lease) = (written.object, written.lease);
    let lengths = vec![length(written.blocks[0].block, 700)];
    rig.call(Request::Publish { object, lease, lengths }).unwrap();
    rig.start_again(Millis(10), 2);
    rig.orders.clear();
    rig.pass(Millis(10_001));
    let drops = |rig: &Rig| rig.orders.iter().any(|it| matches!(it.order, Order::Drop { .. }));
    assert!(!drops(&rig), "{:?}", rig.orders);
    let append = Request::Append { path: path("/blank"), writer: rig.nonce() };
    let refused = rig.call(append).unwrap_err();
    let Refusal::SecondWriter { remaining, .. } = refused else { panic!("{refused:?}") };
    assert!((19_900..20_000).contains(&remaining.0), "{remaining:?}");
    rig.answer_orders(700);
    let is_sealed = |rig: &mut Rig, name: &str| rig.stat(name).unwrap().is_sealed;
    assert!(is_sealed(&mut rig, "/written") && !is_sealed(&mut rig, "/blank"));
    // Its writer is back.
    assert_eq!(rig.seal(&late, &[10]).unwrap().bytes, 10);
    rig.pass(Millis(19_990));
    assert!(!drops(&rig) && !is_sealed(&mut rig, "/blank"));
    rig.pass(Millis(10));
    assert!(drops(&rig) && is_sealed(&mut rig, "/blank"));
    for ended in [&unnamed, &blank] {
        rig.seal(ended, &[10]).unwrap_err();
    }
}

#[test]
fn lease_that_is_over_for_two_minutes_ends_however_often_the_namenode_starts() {
    let mut rig = Rig::with_nodes(1);
    rig.start_again(Millis(0), 1);
    rig.create("/blank").unwrap();
    let mut ended_at = None;
    for start in 2..12 {
        rig.start_again(Millis(10), start);
        rig.pass(Millis(20_000));
        if ended_at.is_none() && rig.stat("/blank").unwrap().is_sealed {
            ended_at = Some(start);
        }
    }
    assert!(ended_at.is_some_and(|start| start > 5), "{ended_at:?}");
}

#[test]
fn object_whose_node_forgot_several_blocks_is_counted_once_for_the_cause() {
    let mut rig = Rig::with_nodes(1);
    let grant = rig.create("/file").unwrap();
    let first = grant.blocks[0].block;
    let (object, lease) = (grant.object, grant.lease);
    let more = Request::AddBlocks { object, lease, ended: vec![], count: 1, avoid: Vec::new() };
    let Reply::Grant(more) = rig.call(more).unwrap() else { panic!("not a grant") };
    let lengths = vec![length(first, 1000), length(more.blocks[0].block, 500)];
    rig.call(Request::Publish { object, lease, lengths }).unwrap();
    rig.pass(Millis(10_001));
    rig.answer_orders(0);
    let report = rig.namenode.catalog().report();
    assert_eq!((report.objects, report.blocks, report.bytes), (1, 2, 1500));
}

#[test]
fn drain_ends_when_its_last_block_proves_to_be_lost() {
    let mut rig = Rig::with_nodes(2);
    let grant = rig.create("/file").unwrap();
    let home = grant.blocks[0].node;
    let lengths = vec![length(grant.blocks[0].block, 1000)];
    let (object, lease) = (grant.object, grant.lease);
    rig.call(Request::Publish { object, lease, lengths }).unwrap();
    rig.call(Request::Decommission { node: home.into(), reason: String::new() }).unwrap();
    rig.orders.clear();
    rig.pass(Millis(10_001));
    rig.answer_orders(0);
    assert_eq!(rig.stat("/file").unwrap().lost_bytes, 1000);
    let (policy, _) = rig.namenode.catalog().node_policy(home).unwrap();
    assert_eq!(policy, Policy::Drained);
}

#[test]
fn renewed_lease_does_not_end() {
    let mut rig = Rig::with_nodes(1);
    let grant = rig.create("/file").unwrap();
    for _ in 0..5 {
        rig.pass(Millis(4000));
        let leases = vec![(grant.object, grant.lease)];
        assert_eq!(
            rig.call(Request::RenewLeases { leases }).unwrap(),
            Reply::Renewed { ended: vec![] }
        );
    }
    rig.seal(&grant, &[1]).unwrap();
}

#[test]
fn aborted_object_vanishes_and_aborted_append_keeps_what_was() {
    let mut rig = Rig::with_nodes(1);
    let grant = rig.create("/new").unwrap();
    rig.call(Request::Abort { object: grant.object, lease: grant.lease }).unwrap();
    assert!(matches!(rig.stat("/new"), Err(Refusal::NotFound { .. })));
    rig.put("/old", 10);
    let writer = rig.nonce();
    let Reply::Grant(grant) = rig.call(Request::Append { path: path("/old"), writer }).unwrap()
    else {
        panic!("not a grant");
    };
    rig.call(Request::Abort { object: grant.object, lease: grant.lease }).unwrap();
    let stat = rig.stat("/old").unwrap();
    assert_eq!((stat.bytes, stat.is_sealed), (10, true));
    assert_eq!(rig.used_bytes(), 4096);
}

#[test]
fn abandoned_replacement_leaves_the_old_object() {
    let mut rig = Rig::with_nodes(1);
    rig.put("/file", 10);
    let request = Create { mode: CreateMode::Replace, ..rig.file("/file") };
    rig.create_with(request).unwrap();
    rig.pass(Millis(10_001));
    assert_eq!(rig.stat("/file").unwrap().bytes, 10);
    assert_eq!(rig.used_bytes(), 4096);
    assert_eq!(rig.namenode.catalog().object_count(), 2);
}

#[test]
fn small_values_live_in_the_catalog_and_can_be_appended_to() {
    let mut rig = Rig::with_nodes(1);
    let request = Create { inline: Some(b"hello".to_vec()), ..rig.file("/small") };
    assert!(matches!(rig.call(Request::Create(request.clone())), Ok(Reply::Stat(_))));
    assert!(matches!(rig.call(Request::Create(request)), Ok(Reply::Stat(_))));
    let writer = rig.nonce();
    let Reply::Grant(grant) = rig.call(Request::Append { path: path("/small"), writer }).unwrap()
    else {
        panic!("not a grant");
    };
    assert_eq!(rig.seal(&grant, &[7]).unwrap().bytes, 12);
    let layout = rig.layout("/small").unwrap();
    assert_eq!((layout.inline.unwrap().len(), layout.blocks[0].offset), (5, 5));
    let request = Create { inline: Some(vec![0; 513]), ..rig.file("/large") };
    assert!(matches!(rig.call(Request::Create(request)), Err(Refusal::TooLarge { .. })));
}

#[test]
fn appended_bytes_go_where_the_class_of_the_file_requires() {
    let mut rig = Rig::with_nodes(1);
    for (name, class) in [("/memory", "dram"), ("/disk", "disk:refuse")] {
        let (class, inline) = (class.parse().unwrap(), Some(b"value".to_vec()));
        let request = Create { class, inline, ..rig.file(name) };
        rig.call(Request::Create(request)).unwrap();
    }
    let mut append = |name| {
        let writer = rig.nonce();
        rig.call(Request::Append { path: path(name), writer })
    };
    assert!(matches!(append("/memory"), Ok(Reply::Grant(_))));
    let refused = append("/disk");
    assert!(matches!(refused, Err(Refusal::Full { .. })), "no node has a disk: {refused:?}");
}

#[test]
fn loss_behind_a_value_that_lives_in_the_catalog_is_reported_where_readers_miss_it() {
    let mut rig = Rig::with_nodes(1);
    let request = Create { inline: Some(b"hello".to_vec()), ..rig.file("/small") };
    rig.call(Request::Create(request)).unwrap();
    let writer = rig.nonce();
    let Reply::Grant(grant) = rig.call(Request::Append { path: path("/small"), writer }).unwrap()
    else {
        panic!("not a grant");
    };
    rig.seal(&grant, &[700]).unwrap();
    kill(&mut rig, grant.blocks[0].node);
    let missed = rig.layout("/small").unwrap().lost_ranges();
    assert_eq!(missed, [ByteRange { offset: 5, bytes: 700 }]);
    assert_eq!(rig.namenode.catalog().report().losses[0].ranges, missed);
}

#[test]
fn bytes_acknowledged_by_a_node_that_died_are_reported_when_they_become_known() {
    let mut rig = Rig::with_nodes(2);
    let grant = rig.create("/file").unwrap();
    let node: NodeId = grant.blocks[0].node;
    let dead = crate::catalog::Action::NodeDead { node, why: "killed".to_owned() };
    rig.log_and_apply(crate::catalog::Command { at: rig.now, action: dead }).unwrap();
    assert_eq!(rig.namenode.catalog().report().bytes, 0);
    let ended = vec![length(grant.blocks[0].block, 900)];
    let (object, lease) = (grant.object, grant.lease);
    let request = Request::AddBlocks { object, lease, ended, count: 1, avoid: vec![] };
    let Reply::Grant(more) = rig.call(request).unwrap() else { panic!("not a grant") };
    assert_eq!(rig.seal(&more, &[100]).unwrap_err(), lost("/file", object, 0, 900));
    let report = rig.namenode.catalog().report();
    assert_eq!((report.blocks, report.bytes), (1, 900));
    assert_eq!(report.losses[0].ranges[0].offset, 0);
    assert!(matches!(rig.stat("/file"), Err(Refusal::NotFound { .. })));
    assert_eq!(rig.used_bytes(), 0);
}

#[test]
fn lost_blocks_that_lie_side_by_side_are_reported_as_one_range() {
    let mut rig = Rig::with_nodes(1);
    let grant = rig.create("/file").unwrap();
    let (first, object, lease) = (grant.blocks[0].block, grant.object, grant.lease);
    let ended = vec![length(first, 900)];
    let request = Request::AddBlocks { object, lease, ended, count: 1, avoid: vec![] };
    let Reply::Grant(more) = rig.call(request).unwrap() else { panic!("not a grant") };
    let lengths = vec![length(more.blocks[0].block, 100)];
    rig.call(Request::Publish { object, lease, lengths }).unwrap();
    kill(&mut rig, grant.blocks[0].node);
    let flush = Request::Publish { object, lease, lengths: vec![] };
    assert_eq!(rig.call(flush).unwrap_err(), lost("/file", object, 0, 1000));
}

fn lost(name: &str, object: ObjectId, offset: u64, bytes: u64) -> Refusal {
    let ranges = vec![ByteRange { offset, bytes }];
    Refusal::DataUnavailable { path: path(name), object, ranges }
}

fn kill(rig: &mut Rig, node: NodeId) {
    let dead = crate::catalog::Action::NodeDead { node, why: "killed".to_owned() };
    rig.log_and_apply(crate::catalog::Command { at: rig.now, action: dead }).unwrap();
}

#[test]
fn seal_of_a_replacement_with_lost_bytes_is_refused_and_the_old_object_stays() {
    let mut rig = Rig::with_nodes(2);
    let request = Create { inline: Some(b"old".to_vec()), ..rig.file("/file") };
    rig.call(Request::Create(request)).unwrap();
    let old = rig.stat("/file").unwrap();
    let request = Create { mode: CreateMode::Replace, ..rig.file("/file") };
    let grant = rig.create_with(request).unwrap();
    let (object, lease, block) = (grant.object, grant.lease, grant.blocks[0].block);
    kill(&mut rig, grant.blocks[0].node);
    // The loss becomes known by the seal itself.
    let lengths = vec![length(block, 700)];
    let flushed = rig.call(Request::Publish { object, lease, lengths });
    assert_eq!(flushed.unwrap_err(), lost("/file", object, 0, 700));
    assert_eq!(rig.seal(&grant, &[700]).unwrap_err(), lost("/file", object, 0, 700));
    assert_eq!(rig.stat("/file").unwrap(), old);
    assert_eq!(rig.namenode.catalog().object_count(), 2);
    assert!(matches!(rig.seal(&grant, &[700]), Err(Refusal::ObjectGone { .. })));
}

#[test]
fn append_is_refused_for_lost_bytes_of_its_own_and_not_for_older_ones() {
    let mut rig = Rig::with_nodes(3);
    let old = rig.put("/file", 10).blocks[0].home.unwrap();
    let append = |rig: &mut Rig| {
        let writer = rig.nonce();
        match rig.call(Request::Append { path: path("/file"), writer }).unwrap() {
            Reply::Grant(grant) => grant,
            other => panic!("{other:?}"),
        }
    };
    kill(&mut rig, old);
    let grant = append(&mut rig);
    let stat = rig.seal(&grant, &[20]).unwrap();
    assert_eq!((stat.bytes, stat.lost_bytes), (30, 10));
    let grant = append(&mut rig);
    let (object, lease, block) = (grant.object, grant.lease, grant.blocks[0].block);
    rig.call(Request::Publish { object, lease, lengths: vec![length(block, 5)] }).unwrap();
    kill(&mut rig, grant.blocks[0].node);
    let refused = rig.seal(&grant, &[40]).unwrap_err();
    let Refusal::DataUnavailable { ranges, .. } = refused else { panic!("{refused:?}") };
    // Both appends may have gone to one node: the first is among the older bytes then.
    assert_eq!(ranges, [ByteRange { offset: 30, bytes: 40 }]);
    let stat = rig.stat("/file").unwrap();
    assert_eq!((stat.bytes, stat.is_sealed), (35, true));
}

#[test]
fn late_seal_of_a_file_that_was_closed_without_its_writer_reports_lost_bytes() {
    let mut rig = Rig::with_nodes(1);
    let grant = rig.create("/file").unwrap();
    let (object, lease, block) = (grant.object, grant.lease, grant.blocks[0].block);
    rig.call(Request::Publish { object, lease, lengths: vec![length(block, 100)] }).unwrap();
    rig.pass(Millis(10_001));
    rig.answer_orders(100);
    kill(&mut rig, grant.blocks[0].node);
    assert_eq!(rig.seal(&grant, &[100]).unwrap_err(), lost("/file", object, 0, 100));
}

#[test]
fn seal_after_the_lease_ended_is_refused_if_it_names_bytes_that_were_left_out() {
    let mut rig = Rig::with_nodes(1);
    let grant = rig.create("/file").unwrap();
    let (object, lease, block) = (grant.object, grant.lease, grant.blocks[0].block);
    rig.call(Request::Publish { object, lease, lengths: vec![length(block, 100)] }).unwrap();
    rig.pass(Millis(10_001));
    rig.answer_orders(200);
    assert!(rig.stat("/file").unwrap().is_sealed);
    let late = rig.seal(&grant, &[200]);
    assert_eq!(late.unwrap_err(), Refusal::LeaseEnded { object });
    assert_eq!(rig.seal(&grant, &[100]).unwrap().bytes, 100);
}

#[test]
fn create_repeated_after_its_lease_ended_gets_no_other_clients_lease() {
    let mut rig = Rig::with_nodes(1);
    let request = rig.file("/file");
    let grant = rig.create_with(request.clone()).unwrap();
    assert_eq!(rig.create_with(request.clone()).unwrap().lease, grant.lease);
    rig.pass(Millis(10_001));
    let gone = Err(Refusal::LeaseEnded { object: grant.object });
    assert_eq!(rig.create_with(request.clone()), gone);
    let writer = rig.nonce();
    rig.call(Request::Append { path: path("/file"), writer }).unwrap();
    assert_eq!(rig.create_with(request), gone);
}

#[test]
fn places_chosen_before_a_notice_of_the_same_turn_are_chosen_again() {
    let mut rig = Rig::with_nodes(1);
    let request = rig.file("/file");
    let prepared = rig.namenode.prepare(rig.now, Request::Create(request));
    let Prepared::Log(create) = prepared else { panic!("it was answered") };
    let (node, reason) = (NodeId(1).into(), String::new());
    rig.call(Request::Notice { node, deadline_millis: 1000, reason }).unwrap();
    let refused = rig.log_and_apply(create).unwrap_err();
    assert!(matches!(refused, Refusal::RetryAfter { .. }), "{refused}");
    assert!(matches!(rig.stat("/file"), Err(Refusal::NotFound { .. })));
}

#[test]
fn room_is_not_given_twice_in_one_turn() {
    let mut rig = Rig::with_nodes(1);
    let commands: Vec<_> = (0..2)
        .map(|number| {
            let name = format!("/file-{number}");
            let request = Create { expected_bytes: Some(16 << 20), ..rig.file(&name) };
            match rig.namenode.prepare(rig.now, Request::Create(request)) {
                Prepared::Log(command) => command,
                Prepared::Answer(answer) => panic!("{answer:?}"),
            }
        })
        .collect();
    for number in 0..3 {
        let request = Create { expected_bytes: Some(16 << 20), ..rig.file(&format!("/{number}")) };
        rig.create_with(request).unwrap();
    }
    let outcomes: Vec<bool> =
        commands.into_iter().map(|command| rig.log_and_apply(command).is_ok()).collect();
    assert_eq!(outcomes, [true, false], "64 MiB hold four times 16 MiB");
}

#[test]
fn writer_gets_as_many_blocks_as_find_room_and_what_it_ends_is_not_held_back() {
    let mut rig = Rig::with_nodes(1);
    let class = "dram:wait".parse().unwrap();
    for number in 0..61 {
        rig.put(&format!("/other/{number}"), MIB);
    }
    let request = Create { class, ..rig.file("/file") };
    let grant = rig.create_with(request).unwrap();
    let (object, lease) = (grant.object, grant.lease);
    let more =
        |ended: Vec<_>| Request::AddBlocks { object, lease, ended, count: 4, avoid: Vec::new() };
    let Reply::Grant(rest) = rig.call(more(Vec::new())).unwrap() else { panic!("not a grant") };
    assert_eq!(rest.blocks.len(), 2);
    let refused = rig.call(more(Vec::new()));
    assert!(matches!(refused, Err(Refusal::RetryAfter { .. })), "{refused:?}");
    // Three blocks that a datanode refused go back although there is no room for others yet.
    let ended: Vec<_> =
        grant.blocks.iter().chain(&rest.blocks).map(|it| length(it.block, 0)).collect();
    let refused = rig.call(more(ended.clone()));
    assert!(matches!(refused, Err(Refusal::RetryAfter { .. })), "{refused:?}");
    assert_eq!(rig.used_bytes(), 61 * u64::from(MIB));
    let Reply::Grant(again) = rig.call(more(ended)).unwrap() else { panic!("not a grant") };
    assert_eq!(again.blocks.len(), 3);
    // The last bytes of a quota can be used too.
    rig.call(Request::Delete { path: path("/other"), recursive: true }).unwrap();
    rig.job("/job", Some(3 * u64::from(MIB))).unwrap();
    let grant = rig.create("/job/file").unwrap();
    let (object, lease) = (grant.object, grant.lease);
    let ended = vec![length(grant.blocks[0].block, MIB - 4096)];
    let request = Request::AddBlocks { object, lease, ended, count: 4, avoid: Vec::new() };
    let Reply::Grant(more) = rig.call(request).unwrap() else { panic!("not a grant") };
    assert_eq!(more.blocks.len(), 2);
}
