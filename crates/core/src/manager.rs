//! The manager's decisions: one machine made of the relocator and the background.
//!
//! Both see every view. Answers go to the one with the request: the background's calls have ids
//! from [`Background::CALLS_FROM`] on, and it reads blocks by [`MoveOutput::Page`], the relocator
//! by [`MoveOutput::Fetch`]. [`Leadership`] decides when a manager may act at all,
//! [`ViewSchedule`] when it requests a view, and [`EventWatch`] which events bring that forward.

mod event_watch;
mod leadership;
mod view_schedule;

pub use event_watch::EventWatch;
pub use leadership::{LeaderTerm, Leadership, LeadershipAnswer, LeadershipRequest};
pub use view_schedule::{ViewRequest, ViewSchedule};

use sanderling_protocol::Instant;

use crate::Machine;
use crate::background::{Background, BackgroundConfig, BackgroundCounts};
use crate::relocation::{Input, MoveOutput, Relocator, RelocatorConfig, RelocatorCounts};

/// Empties draining nodes, and copies and rebalances in the background.
#[derive(Debug)]
pub struct Manager {
    relocator: Relocator,
    background: Background,
}

impl Manager {
    /// Returns a manager without any node. It does nothing until its first view of the namenode.
    #[must_use]
    pub fn new(relocator: RelocatorConfig, background: BackgroundConfig) -> Self {
        Self { relocator: Relocator::new(relocator), background: Background::new(background) }
    }

    /// Returns the counts of what the relocator did for draining nodes since the manager began.
    #[must_use]
    pub const fn relocated(&self) -> RelocatorCounts {
        self.relocator.counts()
    }

    /// Returns the counts of copies and moves in the background since the manager began.
    #[must_use]
    pub fn background(&self) -> BackgroundCounts {
        self.background.counts()
    }

    /// Passes the nodes that drains use now to the background, which avoids them.
    fn engage(&mut self) {
        let engaged = self.relocator.engaged();
        self.background.engage(engaged);
    }

    /// Returns whether nothing is under way and nothing is left to do.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.relocator.is_idle() && self.background.is_idle()
    }
}

impl Machine for Manager {
    type Input = Input;
    type Output = MoveOutput;

    fn handle(&mut self, now: Instant, input: Input) {
        let call = match &input {
            Input::Drains { .. } => {
                self.relocator.handle(now, input.clone());
                self.engage();
                return self.background.handle(now, input);
            }
            Input::Candidates { .. } => return self.relocator.handle(now, input),
            Input::Reserved { call, .. }
            | Input::Pushed { call, .. }
            | Input::Committed { call, .. }
            | Input::Abandoned { call, .. }
            | Input::Page { call, .. }
            | Input::Dropped { call, .. } => *call,
        };
        if call >= Background::CALLS_FROM {
            self.engage();
            self.background.handle(now, input);
        } else {
            self.relocator.handle(now, input);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.relocator.deadline().into_iter().chain(self.background.deadline()).min()
    }

    fn handle_deadline(&mut self, now: Instant) {
        self.relocator.handle_deadline(now);
        self.engage();
        self.background.handle_deadline(now);
    }

    /// Returns the relocator's requests first: they have a deadline.
    fn poll_output(&mut self) -> Option<MoveOutput> {
        self.relocator.poll_output().or_else(|| self.background.poll_output())
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::message::{DrainWork, MovePurpose};
    use sanderling_protocol::{Epoch, Millis, NodeId, NodeInfo, Policy};

    use super::*;
    use crate::relocation::CallId;
    use crate::relocation::tests::{candidate, node};

    const NOW: Instant = Instant(1_000_000);

    /// Node 1 drains, node 2 is above its budget, node 3 is empty.
    fn view() -> Input {
        let mut nodes: Vec<NodeInfo> = (1..=3).map(|id| node(id, 1 << 30)).collect();
        for info in &mut nodes {
            (info.egress_bytes_per_second, info.budget_bytes) = (1 << 20, 100);
        }
        nodes[0].policy = Policy::Draining;
        (nodes[1].home_bytes, nodes[1].exposure_bytes) = (1000, 1000);
        let drain = DrainWork {
            node: NodeId(1),
            address: "host-1:1".to_owned(),
            deadline_in: Some(Millis(30_000)),
            left_blocks: 1,
            left_bytes: 10,
        };
        Input::Drains { drains: vec![drain], nodes }
    }

    fn outputs(manager: &mut Manager) -> Vec<MoveOutput> {
        std::iter::from_fn(|| manager.poll_output()).collect()
    }

    #[test]
    fn pages_and_answers_go_to_the_machine_that_requested_them() {
        let config = BackgroundConfig::default();
        let mut manager = Manager::new(RelocatorConfig::default(), config);
        manager.handle(NOW, view());
        let asked = outputs(&mut manager);
        assert!(asked.iter().any(|it| matches!(it, MoveOutput::Fetch { node: NodeId(1), .. })));
        let page = asked.iter().find_map(|it| match it {
            MoveOutput::Page { call, node: NodeId(2), .. } => Some(*call),
            _ => None,
        });
        let page = page.expect("node 2 is read for what to copy");
        assert!(page >= Background::CALLS_FROM);
        manager
            .handle(NOW, Input::Page { call: page, page: Some((vec![candidate(7, 500)], false)) });
        let candidates = Some((vec![candidate(8, 10)], false));
        manager.handle(NOW, Input::Candidates { node: NodeId(1), page: candidates });
        let mut reserved: Vec<(CallId, MovePurpose, u64)> = outputs(&mut manager)
            .into_iter()
            .filter_map(|it| match it {
                MoveOutput::Reserve { call, moves } => {
                    Some((call, moves[0].purpose, moves[0].block.0))
                }
                _ => None,
            })
            .collect();
        reserved.sort();
        let purposes: Vec<_> = reserved.iter().map(|it| (it.1, it.2)).collect();
        assert_eq!(purposes, [(MovePurpose::Relocate, 8), (MovePurpose::Precopy, 7)]);
        for (call, ..) in reserved {
            manager.handle(NOW, Input::Reserved { call, epochs: Some(vec![Ok(Epoch(2))]) });
        }
        let pushes = outputs(&mut manager);
        let sources: Vec<NodeId> = pushes
            .iter()
            .filter_map(|it| match it {
                MoveOutput::Push { source, .. } => Some(*source),
                _ => None,
            })
            .collect();
        assert_eq!(sources, [NodeId(1), NodeId(2)]);
        assert!(!manager.is_idle());
    }

    #[test]
    fn balance_goes_on_beside_a_drain_on_nodes_that_it_does_not_use() {
        let config = BackgroundConfig::default();
        let mut manager = Manager::new(RelocatorConfig::default(), config);
        let Input::Drains { drains, nodes } = view() else { panic!("a view") };
        let mut nodes =
            [&nodes[..1], &(2..=5).map(|id| node(id, 1 << 30)).collect::<Vec<_>>()].concat();
        for (info, used) in nodes.iter_mut().zip([0, 0, 0, 0, 64 << 20]) {
            (info.egress_bytes_per_second, info.budget_bytes) = (1 << 20, 1 << 40);
            info.tiers[0].used_bytes = used;
        }
        let look = |manager: &mut Manager| {
            let (drains, nodes) = (drains.clone(), nodes.clone());
            manager.handle(NOW, Input::Drains { drains, nodes });
        };
        look(&mut manager);
        let page = Some((vec![candidate(8, 10)], false));
        manager.handle(NOW, Input::Candidates { node: NodeId(1), page });
        let asked = outputs(&mut manager);
        let used = asked.iter().find_map(|it| match it {
            MoveOutput::Reserve { moves, .. } => Some(moves[0].to),
            _ => None,
        });
        let used = used.expect("block 8 leaves node 1");
        let page = asked.iter().find_map(|it| match it {
            MoveOutput::Page { call, node: NodeId(5), .. } => Some(*call),
            _ => None,
        });
        let blocks = (100..400).map(|id| candidate(id, 1 << 16)).collect();
        let page =
            Input::Page { call: page.expect("node 5 is too full"), page: Some((blocks, false)) };
        manager.handle(NOW, page);
        let targets: Vec<NodeId> = outputs(&mut manager)
            .into_iter()
            .filter_map(|it| match it {
                MoveOutput::Reserve { moves, .. } => Some(moves[0].to),
                _ => None,
            })
            .collect();
        assert!(!targets.is_empty() && !targets.contains(&used), "{targets:?} beside {used}");
    }
}
