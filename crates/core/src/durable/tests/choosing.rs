//! Which node uploads what, and how much of it in one order.

use sanderling_protocol::message::{BlockLocation, NodeAddress, ObjectKind, ObjectStat};
use sanderling_protocol::{BlockId, Epoch, StorageClass};

use super::*;

pub(super) const NOW: Instant = Instant(1_000_000);
const BLOCK_BYTES: u64 = 1 << 20;

/// An order to upload: its call, its node, and the order.
type Ordered = (DurableCall, NodeId, UploadOrder);

/// A drain, and objects whose blocks of 1 MiB have these homes, in the order of the changes.
pub(super) struct Placed {
    pub(super) drain: DurableDrain,
    homes: Vec<Vec<u32>>,
}

impl Placed {
    pub(super) fn new(homes: Vec<Vec<u32>>) -> Self {
        Self { drain: DurableDrain::default(), homes }
    }

    /// Returns a view of all objects, whose store these nodes reach.
    pub(super) fn view(&self, nodes: &[u32]) -> DurableInput {
        let node = |id: &u32| StoreNode {
            node: NodeId(*id),
            address: format!("host-{id}:1"),
            stores: vec!["s".to_owned()],
        };
        let change = |(index, homes): (usize, &Vec<u32>)| {
            let number = index as u64 + 1;
            let bytes = homes.len() as u64 * BLOCK_BYTES;
            let kind = DurableChangeKind::Put { object: ObjectId(number), bytes };
            DurableChange { number, key: format!("c{number}"), kind, upload: None }
        };
        let work = DurableWork {
            directory: ObjectId(500),
            store: "s".to_owned(),
            may_claim: true,
            adoption: None,
            changes: self.homes.iter().enumerate().map(change).collect(),
        };
        let nodes = nodes.iter().map(node).collect();
        DurableInput::View { work: vec![work], nodes, losses: Vec::new() }
    }

    /// Shows the drain the objects, and answers its look-ups. Returns the orders that it gives.
    fn see(&mut self, nodes: &[u32]) -> Vec<Ordered> {
        let view = self.view(nodes);
        self.drain.handle(NOW, view);
        self.orders(NOW)
    }

    fn orders(&mut self, now: Instant) -> Vec<Ordered> {
        let mut orders = Vec::new();
        while let Some(output) = self.drain.poll_output() {
            match output {
                DurableOutput::Layout { call, object, offset, bytes } => {
                    let layout = Some(Box::new(self.layout(object, offset, bytes)));
                    self.drain.handle(now, DurableInput::Layout { call, layout });
                }
                DurableOutput::Upload { call, node, order, .. } => orders.push((call, node, order)),
                DurableOutput::Report { call, .. } => {
                    self.drain.handle(now, DurableInput::Reported { call, is_done: true });
                }
                DurableOutput::Abort { call, .. } => {
                    self.drain.handle(now, DurableInput::Aborted { call, is_done: true });
                }
                DurableOutput::Change { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        orders
    }

    /// Answers an order. Returns the orders that follow.
    fn sent(&mut self, (call, _, order): &Ordered) -> Vec<Ordered> {
        let upload = order.upload.clone().unwrap_or_else(|| "u".to_owned());
        let parts = order.parts.iter().map(|_| String::new()).collect();
        let answer = Ok(UploadedParts { upload, parts });
        self.drain.handle(NOW, DurableInput::Uploaded { call: *call, answer });
        self.orders(NOW)
    }

    pub(super) fn layout(&self, object: ObjectId, from: u64, bytes: u64) -> Layout {
        let homes = &self.homes[object.0 as usize - 1];
        let block = |(index, home): (usize, &u32)| BlockLocation {
            block: BlockId(1000 * object.0 + index as u64),
            epoch: Epoch(1),
            offset: index as u64 * BLOCK_BYTES,
            length: BLOCK_BYTES as u32,
            home: Some(NodeId(*home)),
            tier: Tier::Dram,
        };
        let is_in_range =
            |block: &BlockLocation| block.offset >= from && block.offset < from + bytes;
        let blocks: Vec<BlockLocation> =
            homes.iter().enumerate().map(block).filter(is_in_range).collect();
        let place = |home: &u32| NodeAddress {
            node: NodeId(*home),
            address: format!("host-{home}:1"),
            host: format!("host-{home}"),
        };
        let stat = ObjectStat {
            path: path(&format!("c{}", object.0)),
            object,
            kind: ObjectKind::File,
            bytes: homes.len() as u64 * BLOCK_BYTES,
            lost_bytes: 0,
            is_sealed: true,
            is_listed: true,
            delete_after_read: false,
            class: StorageClass::default(),
            created_at: NOW,
            modified_at: NOW,
            expires_in: None,
            blocks: homes.len() as u32,
            entries: 0,
            job: None,
            attributes: Attributes::none(),
        };
        let places = homes.iter().map(place).collect();
        Layout { stat, inline: None, blocks, places, next_offset: None }
    }
}

/// Returns the nodes of orders.
fn nodes_of(orders: &[Ordered]) -> Vec<u32> {
    orders.iter().map(|(_, node, _)| node.0).collect()
}

#[test]
fn object_goes_by_the_node_that_has_most_of_its_bytes() {
    // Its first block is on another one.
    let mut placed = Placed::new(vec![vec![2, 1, 3, 3]]);
    assert_eq!(nodes_of(&placed.see(&[1, 2, 3])), [3]);
    // The one that has most does not reach the store.
    let mut placed = Placed::new(vec![vec![3, 3, 3, 2]]);
    assert_eq!(nodes_of(&placed.see(&[1, 2])), [2]);
}

#[test]
fn nodes_send_equal_bytes_rather_than_equal_numbers_of_objects() {
    let large = vec![1; 64];
    let mut placed = Placed::new(vec![large, vec![1], vec![1], vec![1]]);
    // The home of all of it is busy with the large one for longer than others with the small ones.
    assert_eq!(nodes_of(&placed.see(&[1, 2, 3])), [1, 2, 3, 2]);
}

#[test]
fn objects_on_all_nodes_go_by_all_of_them() {
    let spread = |first: u32| vec![first, first % 4 + 1, (first + 1) % 4 + 1, first];
    let mut placed = Placed::new((1..=4).map(spread).collect());
    let mut nodes = nodes_of(&placed.see(&[1, 2, 3, 4]));
    nodes.sort_unstable();
    assert_eq!(nodes, [1, 2, 3, 4]);
}

#[test]
fn each_order_of_a_large_object_goes_by_the_node_that_has_most_of_it() {
    let mut placed = Placed::new(vec![[[1; 64], [2; 64]].concat()]);
    let first = placed.see(&[1, 2]);
    assert_eq!(nodes_of(&first), [1]);
    let second = placed.sent(&first[0]);
    assert_eq!(nodes_of(&second), [2]);
    assert_eq!(second[0].2.upload.as_deref(), Some("u"), "it is the same upload");
    assert_eq!(second[0].2.parts[0].number, 8);
}

#[test]
fn order_has_the_parts_that_one_node_has_where_one_request_takes_no_more() {
    // The parts at 3 and 1 are a run that ended early, and one of another object: they go together.
    let runs = [[1; 32], [2; 32]].concat();
    let short = [[3; 8], [3; 8], [1; 8]].concat();
    let mut placed = Placed::new(vec![[runs, short, vec![2; 32], vec![1; 3]].concat()]);
    let (mut next, mut sent) = (placed.see(&[1, 2, 3]), Vec::new());
    while let Some(ordered) = next.pop() {
        let parts = &ordered.2.parts;
        sent.push((ordered.1.0, parts[0].number, parts.len()));
        next = placed.sent(&ordered);
    }
    assert_eq!(sent, [(1, 0, 4), (2, 4, 4), (3, 8, 3), (2, 11, 4), (1, 15, 1)]);
    // Parts that no node has whole stay together.
    let mut placed = Placed::new(vec![[1, 2].repeat(12)]);
    let orders = placed.see(&[1, 2]);
    assert_eq!(orders[0].2.parts.len(), 3);
}

#[test]
fn parts_with_a_home_each_go_in_one_order() {
    // Such an object was joined from the parts of a multipart upload to the gateway.
    let mut placed = Placed::new(vec![[[1; 8], [2; 8], [3; 8], [1; 8]].concat()]);
    let orders = placed.see(&[1, 2, 3]);
    assert_eq!(nodes_of(&orders), [1]);
    assert_eq!(orders[0].2.parts.len(), 4);
}

/// A drain that has sent much of the directory, so that all changes may be sent at once.
fn with_objects(homes: Vec<Vec<u32>>, nodes: &[u32]) -> (Placed, Vec<Ordered>) {
    let mut placed = Placed::new(Vec::new());
    assert!(placed.see(nodes).is_empty());
    let directory = placed.drain.directories.get_mut(&ObjectId(500));
    directory.expect("the view has it").window = WINDOW_MAX;
    placed.homes = homes;
    let orders = placed.see(nodes);
    (placed, orders)
}

#[test]
fn object_waits_for_its_home_while_others_are_at_work_and_others_go_before_it() {
    let homes = [1, 1, 1, 1, 2, 2, 1, 2].map(|home| vec![home]).to_vec();
    let (mut placed, orders) = with_objects(homes, &[1, 2]);
    let keys = |orders: &[Ordered]| -> Vec<(u32, String)> {
        orders.iter().map(|(_, node, order)| (node.0, order.key.clone())).collect()
    };
    let expected = [(1, 1), (1, 2), (1, 3), (1, 4), (2, 5), (2, 6), (2, 8)];
    assert_eq!(keys(&orders), expected.map(|(node, number)| (node, format!("c{number}"))));
    // Its bytes are not looked up again for nothing.
    let view = placed.view(&[1, 2]);
    placed.drain.handle(NOW, view);
    assert_eq!(placed.drain.poll_output(), None);
    assert_eq!(keys(&placed.sent(&orders[0])), [(1, "c7".to_owned())]);
}

#[test]
fn object_whose_home_is_busy_goes_by_a_node_that_has_nothing_to_do() {
    let homes = vec![vec![1]; 5];
    let (_, orders) = with_objects(homes, &[1, 2]);
    assert_eq!(nodes_of(&orders), [1, 1, 1, 1, 2]);
}

#[test]
fn what_nodes_send_is_forgotten_however_an_order_ends() {
    let mut placed = Placed::new(vec![vec![1, 2], vec![2, 1], vec![2, 2]]);
    let orders = placed.see(&[1, 2]);
    assert_eq!(orders.len(), 3);
    let sent: u64 = [1, 2].map(|node| placed.drain.sending.of(NodeId(node))).into_iter().sum();
    // Of the first two objects, one block leaves both nodes.
    assert_eq!(sent, (3 + 3 + 2) * BLOCK_BYTES);
    placed.sent(&orders[0]);
    let full = DurableCallError::Refused(room::full());
    placed.drain.handle(NOW, DurableInput::Uploaded { call: orders[1].0, answer: Err(full) });
    // The node of the third one is gone.
    let left: Vec<u32> = [1, 2].into_iter().filter(|node| orders[2].1 != NodeId(*node)).collect();
    let view = placed.view(&left);
    placed.drain.handle(NOW, view);
    assert!(placed.drain.sending.is_empty(), "{:?}", placed.drain.sending);
}

#[test]
fn node_that_failed_sends_only_while_others_are_busy_until_it_has_sent_something() {
    let mut placed = Placed::new(vec![vec![1]]);
    let orders = placed.see(&[1, 2]);
    assert_eq!(nodes_of(&orders), [1]);
    let answer = Err(DurableCallError::Refused(failed()));
    placed.drain.handle(NOW, DurableInput::Uploaded { call: orders[0].0, answer });
    for _ in 0..4 {
        placed.homes.push(vec![1]);
        let orders = placed.see(&[1, 2]);
        assert_eq!(nodes_of(&orders), [2], "the other one has none of the bytes");
        assert!(placed.sent(&orders[0]).is_empty());
    }
    placed.homes.extend([vec![1], vec![1], vec![1], vec![1], vec![1]]);
    let orders = placed.see(&[1, 2]);
    assert_eq!(nodes_of(&orders), [2, 2, 2, 2, 1]);
    assert!(placed.sent(&orders[4]).is_empty());
    assert!(placed.sent(&orders[0]).is_empty());
    placed.homes.push(vec![1]);
    assert_eq!(nodes_of(&placed.see(&[1, 2])), [1]);
}

#[test]
fn object_whose_order_had_no_answer_in_its_time_goes_part_by_part() {
    goes_part_by_part_after(lost());
}

#[test]
fn object_whose_order_its_datanode_gave_up_goes_part_by_part() {
    let refusal = Refusal::DeadlinePassed { ago: Millis(0) };
    goes_part_by_part_after(DurableCallError::refused(NodeId(1), refusal));
}

fn goes_part_by_part_after(failure: DurableCallError) {
    let mut placed = Placed::new(vec![vec![1; 20]]);
    let parts = |orders: &[Ordered]| -> Vec<usize> {
        orders.iter().map(|(_, _, order)| order.parts.len()).collect()
    };
    let first = placed.see(&[1, 2]);
    assert_eq!(parts(&first), [3]);
    let failed = DurableInput::Uploaded { call: first[0].0, answer: Err(failure) };
    placed.drain.handle(NOW, failed);
    let window = placed.drain.directories[&ObjectId(500)].window;
    assert_eq!(window, WINDOW_MIN / 2);
    assert!(placed.orders(NOW).is_empty(), "there is a pause");
    let again = placed.drain.deadline().expect("it is tried again");
    placed.drain.handle_deadline(again);
    let mut next = placed.orders(again);
    for number in 0..3 {
        assert_eq!(parts(&next), [1]);
        let part = &next[0].2.parts[0];
        let blocks = if number < 2 { 8 } else { 4 };
        assert_eq!((part.number, part.blocks.len()), (number, blocks));
        next = placed.sent(&next[0]);
    }
    assert!(next.is_empty());
    assert_eq!(placed.drain.directories[&ObjectId(500)].window, window, "it stays slow");
}
