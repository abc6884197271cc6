//! Files that are written in many appends: which blocks end with each, and how many are looked at.

use sanderling_protocol::message::{Attributes, BlockLength, Create, Grant};
use sanderling_protocol::{
    BlockId, LeaseId, Millis, NodeId, ObjectId, Order, OrderReply, Refusal, Reply, Request,
};

use super::{Rig, length, path};
use crate::catalog::{Action, Command};
use crate::placement::Draw;

/// What a writer has of a file.
struct OpenFile {
    object: ObjectId,
    lease: LeaseId,
    blocks: Vec<BlockId>,
}

fn append(rig: &mut Rig, name: &str) -> Result<Grant, Refusal> {
    let writer = rig.nonce();
    match rig.call(Request::Append { path: path(name), writer })? {
        Reply::Grant(grant) => Ok(grant),
        other => panic!("{other:?}"),
    }
}

/// Requests so many blocks, and returns the ids of those that were granted.
fn add(
    rig: &mut Rig,
    (object, lease): (ObjectId, LeaseId),
    ended: Vec<BlockLength>,
    (count, avoid): (u32, Vec<NodeId>),
) -> Result<Vec<BlockId>, Refusal> {
    match rig.call(Request::AddBlocks { object, lease, ended, count, avoid })? {
        Reply::Grant(grant) => Ok(grant.blocks.iter().map(|block| block.block).collect()),
        other => panic!("{other:?}"),
    }
}

fn publish(
    rig: &mut Rig,
    (object, lease): (ObjectId, LeaseId),
    lengths: Vec<BlockLength>,
) -> Result<Reply, Refusal> {
    rig.call(Request::Publish { object, lease, lengths })
}

/// Answers those of the orders that are for one of these nodes, as nodes that hold what was
/// published, and drops the others.
fn answer(rig: &mut Rig, nodes: &[NodeId], bytes: u32) {
    for order in std::mem::take(&mut rig.orders) {
        let reply = match &order.order {
            Order::FenceBlocks { blocks } => OrderReply::Fenced(vec![bytes; blocks.len()]),
            _ => OrderReply::Done,
        };
        if nodes.contains(&order.node) {
            for command in rig.namenode.ordered(rig.now, &order, Some(reply)) {
                let _ = rig.log_and_apply(command);
            }
        }
    }
}

#[test]
fn close_of_an_append_looks_at_none_of_the_blocks_of_before() {
    let mut rig = Rig::with_nodes(2);
    let value = Create { inline: Some(b"value".to_vec()), ..rig.file("/file") };
    rig.call(Request::Create(value)).unwrap();
    for round in 0..100 {
        let grant = append(&mut rig, "/file").unwrap();
        let of = (grant.object, grant.lease);
        let looked_at = |rig: &Rig| rig.namenode.catalog().written_blocks(grant.object).count();
        assert_eq!(looked_at(&rig), 1, "round {round}");
        add(&mut rig, of, vec![length(grant.blocks[0].block, 7)], (2, Vec::new())).unwrap();
        assert_eq!(looked_at(&rig), 3, "round {round}");
        rig.seal(&grant, &[]).unwrap();
    }
    let stat = rig.stat("/file").unwrap();
    assert_eq!((stat.bytes, stat.blocks), (705, 100));
    assert_eq!(rig.namenode.catalog().open_blocks(), 0);
}

/// The lengths of a block and of one behind it may be published, and the later one end first.
#[test]
fn seal_ends_a_block_before_one_that_has_ended() {
    let mut rig = Rig::with_slices(2, 64);
    rig.put("/file", 10);
    let grant = append(&mut rig, "/file").unwrap();
    let (of, first) = ((grant.object, grant.lease), grant.blocks[0].block);
    let second = add(&mut rig, of, Vec::new(), (1, Vec::new())).unwrap()[0];
    publish(&mut rig, of, vec![length(first, 5), length(second, 7)]).unwrap();
    add(&mut rig, of, vec![length(second, 7)], (1, Vec::new())).unwrap();
    let is_ended = |rig: &Rig, id| rig.namenode.catalog().block_view(id).unwrap().is_ended;
    assert!(!is_ended(&rig, first) && is_ended(&rig, second));
    assert_eq!(rig.seal(&grant, &[]).unwrap().bytes, 22);
    assert!(is_ended(&rig, first));
    assert_eq!(rig.namenode.catalog().open_blocks(), 0);
}

#[test]
fn fence_of_a_block_is_ordered_again_though_a_later_one_was_acknowledged() {
    let mut rig = Rig::with_slices(2, 64);
    rig.put("/file", 10);
    let grant = append(&mut rig, "/file").unwrap();
    let (of, first, home) =
        ((grant.object, grant.lease), grant.blocks[0].block, grant.blocks[0].node);
    let second = add(&mut rig, of, Vec::new(), (1, vec![home])).unwrap()[0];
    let (Some(other), _) = rig.namenode.catalog().block_home(second).unwrap() else { panic!() };
    assert_ne!(other, home);
    publish(&mut rig, of, vec![length(first, 5), length(second, 7)]).unwrap();
    rig.orders.clear();
    rig.pass(Millis(10_001));
    answer(&mut rig, &[other], 7);
    assert!(rig.namenode.catalog().block_view(second).unwrap().is_ended);
    rig.pass(Millis(1000));
    let fenced = rig.orders.iter().filter_map(|order| match &order.order {
        Order::FenceBlocks { blocks } => Some((order.node, blocks[0].0)),
        _ => None,
    });
    assert_eq!(Vec::from_iter(fenced), [(home, first)]);
    answer(&mut rig, &[home], 5);
    let stat = rig.stat("/file").unwrap();
    assert_eq!((stat.bytes, stat.is_sealed), (22, true));
}

/// Returns some of the blocks with lengths.
fn some(draw: &mut Draw, blocks: &[BlockId]) -> Vec<BlockLength> {
    let drawn = blocks.iter().filter_map(|block| match draw.below(6) {
        at @ 0..3 => Some(length(*block, at as u32 * 100)),
        _ => None,
    });
    drawn.collect()
}

fn opened(rig: &mut Rig, name: &str) -> Option<OpenFile> {
    let grant = match rig.stat(name) {
        Ok(_) => append(rig, name).ok()?,
        Err(_) => rig.create(name).ok()?,
    };
    let blocks = grant.blocks.iter().map(|block| block.block).collect();
    Some(OpenFile { object: grant.object, lease: grant.lease, blocks })
}

/// Does something with a file that is written, or with the nodes.
fn act(rig: &mut Rig, draw: &mut Draw, file: &mut OpenFile) {
    let (object, lease) = (file.object, file.lease);
    let lengths = some(draw, &file.blocks);
    match draw.below(16) {
        0..5 => {
            let more = (draw.below(3) as u32 + 1, Vec::new());
            file.blocks.extend(add(rig, (object, lease), lengths, more).unwrap_or_default());
        }
        5..9 => _ = publish(rig, (object, lease), lengths),
        9..12 => {
            let attributes = Attributes::none();
            let _ = rig.call(Request::Seal { object, lease, lengths, attributes });
        }
        12 => _ = rig.call(Request::Abort { object, lease }),
        13 => rig.pass(Millis(10_001)),
        14 => {
            let nodes = rig.namenode.catalog().node_ids(false);
            let node = nodes[draw.below(nodes.len())];
            let action = Action::NodeDead { node, why: "killed".to_owned() };
            rig.log_and_apply(Command { at: rig.now, action }).unwrap();
            rig.register(&format!("after-{node}")).unwrap();
        }
        _ => {
            rig.pass(Millis(1000));
            let nodes = rig.namenode.catalog().node_ids(false);
            let some: Vec<NodeId> = nodes.into_iter().filter(|_| draw.below(2) == 0).collect();
            answer(rig, &some, draw.below(3) as u32 * 100);
        }
    }
}

#[test]
fn blocks_that_have_not_ended_are_among_the_writers_whatever_happened() {
    for seed in 0..60 {
        let (mut rig, mut draw) = (Rig::with_slices(3, 64), Draw::new(seed));
        let (names, mut open) = (["/a", "/b"], [None, None]);
        for _ in 0..150 {
            let at = draw.below(2);
            let Some(file) = &mut open[at] else {
                open[at] = opened(&mut rig, names[at]);
                rig.pass(Millis(20));
                continue;
            };
            act(&mut rig, &mut draw, file);
            let catalog = rig.namenode.catalog();
            let unended = catalog.unended_blocks(file.object);
            assert_eq!(unended, catalog.unended_of_all_blocks(file.object), "seed {seed}");
            match rig.stat(names[at]) {
                Ok(stat) if !stat.is_sealed => {}
                Ok(_) => {
                    assert_eq!(unended, [], "seed {seed}: the file is closed");
                    open[at] = None;
                }
                // It is deleted, and may not be freed yet.
                Err(_) => open[at] = None,
            }
        }
    }
}
