//! Objects whose orders would be too long: of very many blocks, and of very many parts.

use sanderling_protocol::limits::{BLOCKS_PER_LAYOUT_MAX, FRAME_BODY_BYTES_MAX};
use sanderling_protocol::message::{BlockLength, BlockLocation, Create};
use sanderling_protocol::{BlockId, Order};

use super::super::part_lengths::{PARTS_MAX, PARTS_PER_ORDER_MAX};
use super::choosing::{NOW, Placed};
use super::*;
use crate::catalog::Placement;

/// Bytes of a short block, as an append leaves one.
const SHORT_BYTES: u32 = 100;

/// An object of 7 MB, less than a part, of which a layout has a little more than nine tenths.
#[test]
fn object_of_more_short_blocks_than_a_layout_has_gets_to_the_store() {
    const BLOCKS: usize = 70_000;
    let mut world = World::with_blocks(1, None);
    let node = world.datanodes.staying()[0];
    let place = Placement { node, tier: Tier::Dram, bytes_max: SHORT_BYTES };
    let request = Create::new(path("many"), Nonce(1));
    let created = world.log(Action::Create { request, placed: vec![place; BLOCKS] });
    let Ok(Reply::Grant(grant)) = created else { panic!("not granted") };
    let (object, lease) = (grant.object, grant.lease);
    let bytes = u64::from(SHORT_BYTES) * BLOCKS as u64;
    let whole = Content::new(1 << 41, bytes);
    let (mut lengths, mut offset) = (Vec::new(), 0);
    for granted in &grant.blocks {
        let content = whole.slice(offset, u64::from(SHORT_BYTES));
        world.datanodes.hold((granted.node, granted.block, granted.epoch), content);
        lengths.push(BlockLength { block: granted.block, length: SHORT_BYTES });
        offset += u64::from(SHORT_BYTES);
    }
    assert_eq!((lengths.len(), offset), (BLOCKS, bytes));
    world.written.insert(object, whole.clone());
    let attributes = Attributes::none();
    world.log(Action::Seal { object, lease, lengths, attributes }).expect("sealed");
    let first = world.layout(object, 0, u64::MAX).expect("there");
    assert_eq!(first.blocks.len(), BLOCKS_PER_LAYOUT_MAX, "the rest is on a second page");
    for _ in 0..10 {
        world.now = world.now + Millis(2000);
        world.step(false).unwrap_or_else(|error| panic!("{error}"));
    }
    assert!(world.store.objects.get("many") == Some(&whole), "it is not in the store");
    assert!(world.is_settled());
}

/// Returns the layout of an object of so many blocks of a byte, of which the rest is elsewhere.
fn of_bytes(blocks: u64) -> Layout {
    let mut layout = Placed::new(vec![vec![1]]).layout(ObjectId(1), 0, 1);
    let block = layout.blocks[0];
    layout.blocks.clear();
    for offset in 0..blocks {
        let (id, length) = (BlockId(1 << 40 | offset), 1);
        layout.blocks.push(BlockLocation { block: id, offset, length, ..block });
    }
    layout.stat.bytes = 1 << 30;
    layout.next_offset = Some(blocks);
    layout
}

#[test]
fn part_of_too_many_blocks_for_an_order_ends_early() {
    let bounds = (PART_BYTES_MIN, PARTS_PER_ORDER_MAX);
    let page = BLOCKS_PER_LAYOUT_MAX as u64;
    assert_eq!(task::parts_of(&of_bytes(page), 0, 0, bounds), CutLayout::Begun);
    let cut = task::parts_of(&of_bytes(10 * page), 0, 0, bounds);
    let CutLayout::Parts(parts, end) = cut else { panic!("{cut:?}") };
    assert!(end > 2 * page, "{end} bytes");
    assert_eq!((parts.len(), parts[0].blocks.len() as u64), (1, end));
    let (directory, store, key) = (ObjectId(1), "s".to_owned(), "k".to_owned());
    let order = UploadOrder { directory, may_claim: false, store, key, upload: None, parts };
    let encoded = postcard::to_stdvec(&Order::Upload(Box::new(order))).expect("encoded");
    assert!(encoded.len() < FRAME_BODY_BYTES_MAX as usize, "{} bytes", encoded.len());
}

#[test]
fn layout_whose_blocks_do_not_follow_each_other_is_refused() {
    let bounds = (PART_BYTES_MIN, PARTS_PER_ORDER_MAX);
    let mut layout = of_bytes(10);
    layout.blocks.remove(5);
    assert_eq!(task::parts_of(&layout, 0, 0, bounds), CutLayout::Gap);
    let mut layout = of_bytes(10);
    layout.next_offset = None;
    assert_eq!(task::parts_of(&layout, 0, 0, bounds), CutLayout::Gap, "its end is missing");
    let mut layout = of_bytes(10);
    layout.places.clear();
    assert_eq!(task::parts_of(&layout, 0, 0, bounds), CutLayout::Gap, "a node has no address");
}

/// Returns a directory with so many objects that are uploaded, in so many parts each.
fn uploaded(objects: u64, parts: usize) -> Directory {
    let mut directory = Directory::new("s".to_owned(), WINDOW_MIN);
    let change = |number: u64| {
        let kind = DurableChangeKind::Put { object: ObjectId(number), bytes: 1 };
        DurableChange { number, key: format!("c{number}"), kind, upload: None }
    };
    directory.merge((1..=objects).map(change).collect());
    for task in directory.tasks.values_mut() {
        let parts = vec!["\"0123456789abcdef0123456789abcdef\"".to_owned(); parts];
        task.stage = Stage::Recorded { upload: "u".to_owned(), parts };
    }
    directory
}

#[test]
fn order_that_completes_huge_objects_has_room_in_a_frame() {
    let changes = |objects: u64, parts: usize| -> Vec<StoreChange> {
        uploaded(objects, parts).ready(NOW, &[]).into_iter().map(|(_, change)| change).collect()
    };
    assert_eq!(changes(64, 1).len(), 64);
    let changed = changes(64, PARTS_MAX as usize);
    assert_eq!(changed.len(), 11);
    let (directory, store) = (ObjectId(1), "s".to_owned());
    let order = Order::ChangeStore { directory, store, changes: changed };
    let encoded = postcard::to_stdvec(&order).expect("encoded");
    assert!(encoded.len() < FRAME_BODY_BYTES_MAX as usize / 2, "{} bytes", encoded.len());
    assert_eq!(changes(2, 200_000).len(), 1, "one goes in any case");
}

/// Of each object the first part is looked up. A part of a bucket is in memory while it is sent.
#[test]
fn node_sends_parts_of_huge_objects_one_at_a_time() {
    const BYTES: u64 = 100 << 30;
    for reaching in [vec![1], vec![1, 2]] {
        let mut placed = Placed::new(vec![vec![1; 12], vec![1; 12], vec![1; 12]]);
        let DurableInput::View { mut work, nodes, losses } = placed.view(&reaching) else {
            panic!("not a view")
        };
        for DurableChange { number, kind, .. } in &mut work[0].changes {
            *kind = DurableChangeKind::Put { object: ObjectId(*number), bytes: BYTES };
        }
        placed.drain.handle(NOW, DurableInput::View { work, nodes, losses });
        let mut orders = Vec::new();
        while let Some(output) = placed.drain.poll_output() {
            match output {
                DurableOutput::Layout { call, object, .. } => {
                    let mut layout = placed.layout(object, 0, BYTES);
                    layout.stat.bytes = BYTES;
                    let layout = Some(Box::new(layout));
                    placed.drain.handle(NOW, DurableInput::Layout { call, layout });
                }
                DurableOutput::Upload { node, order, .. } => orders.push((node.0, order)),
                other => panic!("{other:?}"),
            }
        }
        orders.sort_by_key(|(node, _)| *node);
        let nodes: Vec<u32> = orders.iter().map(|(node, _)| *node).collect();
        assert_eq!(nodes, reaching);
        for (_, order) in orders {
            assert_eq!((order.parts.len(), order.parts[0].blocks.len()), (1, 12));
        }
    }
}
