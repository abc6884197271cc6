//! Nodes that leave: those with a notice, and those that are gone.
//!
//! When all nodes have a notice, nothing can be moved: what no store has is lost at the deadlines
//! unless the stores get it before.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use sanderling_protocol::{Instant, Millis, NodeId, NodeInfo};

use super::call_error::DurableCallError;
use super::interface::{DurableCall, DurableInput};
use super::noticed_nodes::{NoticedNodes, RETRY_NOTICED_MAX};
use super::task::Directory;
use super::{CallPurpose, DurableDrain};

impl DurableInput {
    /// Returns what a view of the nodes shows of their notices.
    #[must_use]
    pub fn noticed(nodes: &[NodeInfo]) -> Self {
        let noticed = || nodes.iter().filter_map(|node| Some((node, node.deadline_in?)));
        Self::Noticed {
            left: noticed().map(|(node, left)| (node.id, left)).collect(),
            has_exposed: noticed().any(|(node, _)| node.exposure_bytes > 0),
        }
    }
}

impl CallPurpose {
    /// Returns the node whose answer need not be waited for once it is gone. What it may do all the
    /// same has no effect, or is repeated. Removals and adoptions may take effect later: for those
    /// it is waited as for a node that is there.
    fn node(&self) -> Option<NodeId> {
        match self {
            Self::Upload { node, .. } | Self::Abort { node, .. } | Self::Restore { node, .. } => {
                Some(*node)
            }
            Self::Change { node, removals, .. } => removals.is_empty().then_some(*node),
            Self::Layout { .. } | Self::Adopt { .. } | Self::Report => None,
        }
    }
}

impl DurableDrain {
    /// Takes what a view of the nodes shows of their notices.
    pub(super) fn on_noticed(
        &mut self,
        now: Instant,
        left: BTreeMap<NodeId, Millis>,
        has_exposed: bool,
    ) {
        let deadlines = left.into_iter().map(|(node, left)| (node, now + left)).collect();
        self.noticed = NoticedNodes::new(deadlines, has_exposed);
        if !has_exposed {
            return;
        }
        let latest = now + RETRY_NOTICED_MAX;
        for task in self.directories.values_mut().flat_map(|it| it.tasks.values_mut()) {
            task.retry_at = task.retry_at.map(|at| at.min(latest));
        }
    }

    /// Returns the node that is to change a directory's store, or to end an upload: of those that
    /// are free and have not failed the one that stays longest. What a node is changing when its
    /// machine is taken has to be sent again, and its bytes may be gone with the machine.
    pub(super) fn node_to_change(&self, directory: &Directory) -> Option<NodeId> {
        let free = self.free_nodes(&directory.store);
        let free = free.filter(|(node, _)| directory.failed.may_change(node.node));
        let best = free.min_by_key(|(node, uploads)| {
            let stays_until = Reverse(self.noticed.stays_until(node.node));
            (stays_until, *uploads, node.node)
        });
        best.map(|(node, _)| node.node)
    }

    /// Ends the calls to nodes that the last view does not show any more. A machine that was taken
    /// may leave its connections open, and the directory would wait for the end of the call.
    pub(super) fn end_calls_to_gone_nodes(&mut self, now: Instant) {
        let is_gone = |purpose: &CallPurpose| {
            purpose.node().is_some_and(|node| !self.nodes.contains_key(&node))
        };
        let calls = self.calls.iter().filter(|(_, purpose)| is_gone(purpose));
        let calls: Vec<DurableCall> = calls.map(|(call, _)| *call).collect();
        let gone = |node: NodeId| DurableCallError::NodeGone { node };
        for call in calls {
            match self.calls.remove(&call) {
                Some(CallPurpose::Upload { directory, number, node, is_last, end }) => {
                    self.sending.end(call);
                    let place = (directory, number, node);
                    self.on_uploaded(now, place, (is_last, end), Err(gone(node)));
                }
                Some(CallPurpose::Abort { directory, number, node }) => {
                    self.on_aborted(now, (directory, number, node), false);
                }
                Some(CallPurpose::Restore { directory, object, node, blocks }) => {
                    self.on_restored(now, (directory, object, node), &blocks, Err(gone(node)));
                }
                Some(CallPurpose::Change { directory, node, numbers, removals }) => {
                    self.on_changed(now, (directory, node), (&numbers, &removals), None);
                }
                Some(
                    CallPurpose::Layout { .. } | CallPurpose::Adopt { .. } | CallPurpose::Report,
                )
                | None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::ObjectId;
    use sanderling_protocol::message::{DurableChange, DurableChangeKind, DurableWork, StoreNode};

    use super::super::{DurableOutput, RETRY_MAX};
    use super::*;
    use crate::Machine;
    use crate::relocation::tests::node;

    const NOW: Instant = Instant(1_000_000);
    const PUT: DurableChangeKind = DurableChangeKind::Put { object: ObjectId(9), bytes: 10 };

    /// Returns a view of a directory with these changes, whose store these nodes reach.
    fn view(nodes: &[u32], changes: Vec<DurableChange>) -> DurableInput {
        let node = |id: &u32| StoreNode {
            node: NodeId(*id),
            address: format!("host-{id}:1"),
            stores: vec!["s".to_owned()],
        };
        let work = DurableWork {
            directory: ObjectId(5),
            store: "s".to_owned(),
            may_claim: false,
            adoption: None,
            changes,
        };
        let nodes = nodes.iter().map(node).collect();
        DurableInput::View { work: vec![work], nodes, losses: Vec::new() }
    }

    fn change(kind: DurableChangeKind) -> DurableChange {
        DurableChange { number: 100, key: "x".to_owned(), kind, upload: None }
    }

    fn noticed(left: &[(u32, u64)], has_exposed: bool) -> DurableInput {
        let left = left.iter().map(|(node, millis)| (NodeId(*node), Millis(*millis))).collect();
        DurableInput::Noticed { left, has_exposed }
    }

    /// Lets the next try fail, if one is under way. Returns the pause before the one after it.
    fn pause(drain: &mut DurableDrain, now: Instant) -> Millis {
        while let Some(output) = drain.poll_output() {
            let input = match output {
                DurableOutput::Layout { call, .. } => DurableInput::Layout { call, layout: None },
                DurableOutput::Report { call, .. } => {
                    DurableInput::Reported { call, is_done: true }
                }
                other => panic!("{other:?}"),
            };
            drain.handle(now, input);
        }
        now.until(drain.deadline().expect("it is tried again"))
    }

    #[test]
    fn change_is_tried_again_soon_while_bytes_leave_with_a_node() {
        let (mut drain, mut now) = (DurableDrain::default(), NOW);
        drain.handle(now, view(&[1, 2], vec![change(PUT)]));
        for _ in 0..8 {
            now = now + pause(&mut drain, now);
            drain.handle_deadline(now);
        }
        assert_eq!(pause(&mut drain, now), RETRY_MAX);
        drain.handle(now, noticed(&[(1, 30_000)], false));
        assert_eq!(pause(&mut drain, now), RETRY_MAX, "stores have all that leaves");
        for _ in 0..3 {
            drain.handle(now, noticed(&[(1, 30_000)], true));
            assert_eq!(pause(&mut drain, now), RETRY_NOTICED_MAX);
            now = now + RETRY_NOTICED_MAX;
            drain.handle_deadline(now);
            assert_eq!(pause(&mut drain, now), RETRY_NOTICED_MAX);
        }
        drain.handle(now, noticed(&[], false));
        now = now + RETRY_NOTICED_MAX;
        drain.handle_deadline(now);
        assert_eq!(pause(&mut drain, now), RETRY_MAX);
    }

    #[test]
    fn view_shows_notices_and_whether_bytes_leave_that_are_nowhere_else() {
        let mut nodes = [node(1, 100), node(2, 100), node(3, 100)];
        nodes[0].exposure_bytes = 7;
        nodes[1].deadline_in = Some(Millis(9_000));
        for exposure_bytes in [0, 7] {
            nodes[1].exposure_bytes = exposure_bytes;
            let DurableInput::Noticed { left, has_exposed } = DurableInput::noticed(&nodes) else {
                panic!("another input")
            };
            assert_eq!(left, [(NodeId(2), Millis(9_000))].into());
            assert_eq!(has_exposed, exposure_bytes > 0);
        }
    }

    #[test]
    fn store_is_changed_by_the_node_that_stays_longest() {
        let cases: [(&[(u32, u64)], u32); 3] =
            [(&[], 1), (&[(1, 5_000), (2, 9_000)], 3), (&[(1, 5_000), (2, 9_000), (3, 7_000)], 2)];
        for (left, expected) in cases {
            let mut drain = DurableDrain::default();
            drain.handle(NOW, view(&[1, 2, 3], Vec::new()));
            drain.handle(NOW, noticed(left, false));
            drain.handle(NOW, view(&[1, 2, 3], vec![change(DurableChangeKind::Remove)]));
            let ordered = drain.poll_output();
            let Some(DurableOutput::Change { node, .. }) = ordered else { panic!("{ordered:?}") };
            assert_eq!(node, NodeId(expected), "{left:?}");
        }
    }

    #[test]
    fn call_to_a_node_that_is_gone_is_not_waited_for_unless_it_may_remove() {
        let recorded = || vec![DurableChange { upload: Some("u".to_owned()), ..change(PUT) }];
        let aborts_at = |drain: &mut DurableDrain| {
            let outputs = std::iter::from_fn(|| drain.poll_output());
            let nodes = outputs.filter_map(|output| match output {
                DurableOutput::Abort { node, .. } => Some(node),
                _ => None,
            });
            nodes.collect::<Vec<NodeId>>()
        };
        let mut drain = DurableDrain::default();
        drain.handle(NOW, view(&[1, 2], recorded()));
        assert_eq!(aborts_at(&mut drain), [NodeId(1)]);
        drain.handle(NOW, view(&[2], recorded()));
        let again = drain.deadline().expect("it is tried again");
        drain.handle_deadline(again);
        assert_eq!(aborts_at(&mut drain), [NodeId(2)]);
        let removal = || vec![change(DurableChangeKind::Remove)];
        let mut drain = DurableDrain::default();
        drain.handle(NOW, view(&[1, 2], Vec::new()));
        drain.handle(NOW, view(&[1, 2], removal()));
        assert!(matches!(drain.poll_output(), Some(DurableOutput::Change { .. })));
        drain.handle(NOW, view(&[2], removal()));
        assert_eq!((drain.poll_output(), drain.deadline()), (None, None));
    }
}
