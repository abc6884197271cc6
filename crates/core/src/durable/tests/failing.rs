//! Nodes that fail at every order for a store that others can use, as with wrong credentials.

use super::choosing::{NOW, Placed};
use super::*;

/// Pauses within which the store gets an object.
const PAUSES_MAX: usize = 10;

/// An object of one block that is copied to the store.
struct Copied {
    placed: Placed,
    now: Instant,
    /// How many of the next orders fail at a node.
    failing: BTreeMap<u32, usize>,
    is_made: bool,
    /// The orders so far, and the nodes that got them.
    orders: Vec<(&'static str, u32)>,
}

impl Copied {
    /// Shows a drain an object whose home is the last of the nodes from 1 on that reach the store.
    fn with_home(last: u32, failing: &[(u32, usize)]) -> Self {
        let nodes: Vec<u32> = (1..=last).collect();
        let mut copied = Self {
            placed: Placed::new(vec![vec![last]]),
            now: NOW,
            failing: failing.iter().copied().collect(),
            is_made: false,
            orders: Vec::new(),
        };
        let view = copied.placed.view(&nodes);
        copied.placed.drain.handle(NOW, view);
        copied
    }

    /// Goes on until the store has the object. Returns the orders.
    fn made(mut self) -> Vec<(&'static str, u32)> {
        for _ in 0..PAUSES_MAX {
            while let Some(output) = self.placed.drain.poll_output() {
                let input = self.execute(output);
                self.placed.drain.handle(self.now, input);
            }
            if self.is_made {
                return self.orders;
            }
            self.now = self.placed.drain.deadline().expect("it is tried again");
            self.placed.drain.handle_deadline(self.now);
        }
        panic!("the store never gets it: {:?}", self.orders);
    }

    fn execute(&mut self, output: DurableOutput) -> DurableInput {
        match output {
            DurableOutput::Layout { call, object, offset, bytes } => {
                let layout = Some(Box::new(self.placed.layout(object, offset, bytes)));
                DurableInput::Layout { call, layout }
            }
            DurableOutput::Upload { call, node, order, .. } => {
                let parts = order.parts.iter().map(|_| String::new()).collect();
                let sent = UploadedParts { upload: "u".to_owned(), parts };
                let done = self.order("upload", node);
                let answer = done.map(|()| sent).map_err(DurableCallError::Refused);
                DurableInput::Uploaded { call, answer }
            }
            DurableOutput::Abort { call, node, .. } => {
                DurableInput::Aborted { call, is_done: self.order("abort", node).is_ok() }
            }
            DurableOutput::Change { call, node, .. } => {
                let failure = self.order("change", node).err();
                self.is_made = failure.is_none();
                let answer = Some((u32::from(self.is_made), failure));
                DurableInput::Changed { call, answer }
            }
            DurableOutput::Report { call, .. } => DurableInput::Reported { call, is_done: true },
            other => panic!("{other:?}"),
        }
    }

    /// Notes an order, and lets it fail if its node fails.
    fn order(&mut self, what: &'static str, node: NodeId) -> Result<(), Refusal> {
        self.orders.push((what, node.0));
        let left = self.failing.entry(node.0).or_default();
        if *left == 0 {
            return Ok(());
        }
        *left -= 1;
        Err(failed())
    }
}

#[test]
fn upload_that_a_node_could_not_complete_is_ended_and_completed_by_another_one() {
    let orders = Copied::with_home(2, &[(1, usize::MAX)]).made();
    let expected = [("upload", 2), ("change", 1), ("abort", 2), ("upload", 2), ("change", 2)];
    assert_eq!(orders, expected);
}

#[test]
fn upload_that_a_node_could_not_end_is_ended_by_a_third_one() {
    let orders = Copied::with_home(3, &[(1, usize::MAX), (2, usize::MAX)]).made();
    let failed = [("upload", 3), ("change", 1), ("abort", 2)];
    let made = [("abort", 3), ("upload", 3), ("change", 3)];
    assert_eq!(orders, [failed, made].concat());
}

#[test]
fn node_that_failed_is_tried_again_when_all_have_failed() {
    let orders = Copied::with_home(2, &[(1, 1), (2, usize::MAX)]).made();
    let uploads = [("upload", 2), ("upload", 1), ("upload", 2), ("upload", 1)];
    assert_eq!(orders, [&uploads[..], &[("change", 1)]].concat());
}

#[test]
fn object_is_sent_by_the_third_node_after_two_have_failed() {
    let orders = Copied::with_home(3, &[(1, usize::MAX), (3, usize::MAX)]).made();
    assert_eq!(orders, [("upload", 3), ("upload", 1), ("upload", 2), ("change", 2)]);
}
