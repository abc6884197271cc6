//! Faults as they happen, and the end of them.

use std::collections::BTreeMap;

use sanderling_protocol::node::NodeSelector;
use sanderling_protocol::{NodeId, Request};

use super::World;
use super::settle::SETTLE_MICROS;
use crate::datanode::Datanode;
use crate::event::Event;
use crate::plan::FaultKind;
use crate::wire::{DATANODES_MAX, Host, address};

impl World {
    pub(super) fn fault(&mut self, index: usize) {
        let fault = self.runtime.plan().faults[index];
        self.runtime.log(1, index as u64, || format!("FAULT {:?}", fault.kind));
        let now = self.runtime.now();
        let until = |millis: u64| now + millis * 1000;
        match fault.kind {
            FaultKind::KillDatanode { slot, down_millis } => {
                self.kill(Host::Datanode(slot), down_millis)
            }
            FaultKind::KillManager { manager, down_millis } => {
                self.kill(Host::Manager(manager), down_millis);
            }
            FaultKind::PauseManager { manager, millis } => {
                self.runtime.stop(Host::Manager(manager), millis);
            }
            FaultKind::KillWriter { writer } => self.kill(Host::Writer(writer), 50),
            FaultKind::Notice { slot, deadline_millis, dies_in_millis, is_own, manager } => {
                self.notice(slot, deadline_millis, is_own.then_some(dies_in_millis.is_some()));
                if let Some(dies_in_millis) = dies_in_millis {
                    self.die_later(slot, deadline_millis, dies_in_millis, manager);
                }
            }
            FaultKind::NoticeTargets { count, deadline_millis } => {
                for slot in self.targets(count) {
                    self.notice(slot, deadline_millis, None);
                    self.die_later(slot, deadline_millis, deadline_millis, None);
                }
            }
            FaultKind::Recommend { slot, is_own } => {
                let node = NodeSelector(address(slot));
                if is_own {
                    self.datanode(slot, |it, context| it.own_risk(context));
                } else {
                    let reason = "forecast".to_owned();
                    self.must(Request::Recommend { node, reason, is_withdrawn: false });
                }
            }
            FaultKind::Join => self.join(None),
            FaultKind::Decommission { slot } => {
                let node = NodeSelector(address(slot));
                self.must(Request::Decommission { node, reason: "smaller".to_owned() });
            }
            // What a cloud shows and takes back, its machine's agent takes back.
            FaultKind::Cancel { slot } if self.own_cancel(slot) => {}
            FaultKind::Cancel { slot } => {
                self.must(Request::Cancel { node: NodeSelector(address(slot)) });
            }
            FaultKind::Partition { half, millis, is_one_way } => {
                self.runtime.network().partition(half, is_one_way, until(millis));
            }
            FaultKind::OneWay { from, to, millis } => {
                self.runtime.network().cut(from, to, until(millis))
            }
            FaultKind::Clog { place, millis } => self.runtime.network().clog(place, until(millis)),
            FaultKind::SlowDisk { slot, micros, millis } => {
                let until = until(millis);
                self.datanodes[usize::from(slot)].slow_disk(until, micros);
            }
            FaultKind::Rot { slot, number, damage, is_vanished } => {
                if let Some(datanode) = self.datanodes.get_mut(usize::from(slot)) {
                    datanode.rot(number, damage, is_vanished);
                }
            }
            FaultKind::ClockSkew { place, millis } => self.runtime.step_clock(place, millis),
            kind => self.namenode(|it, context| it.fault(context, kind)),
        }
    }

    /// The machine's cloud takes back what it shows. Returns whether it did.
    fn own_cancel(&mut self, slot: u8) -> bool {
        if self.datanodes.len() <= usize::from(slot) {
            return false;
        }
        self.datanode(slot, |it, context| it.own_cancel(context))
    }

    /// Lets the operator request something until it is answered.
    fn must(&mut self, request: Request) {
        self.clients(|it, context| it.admin().must(context, request));
    }

    /// `own`: the machine's own agent sees it, and whether the machine ends by it.
    fn notice(&mut self, slot: u8, deadline_millis: u64, own: Option<bool>) {
        self.runtime.statistics_mut().notices += 1;
        match own {
            Some(is_kept) => self.datanode(slot, |it, context| {
                it.own_notice(context, deadline_millis, is_kept);
            }),
            None => self.clients(|it, context| {
                it.admin().notice(context, slot, deadline_millis);
            }),
        }
    }

    fn die_later(
        &mut self,
        slot: u8,
        deadline_millis: u64,
        dies_in_millis: u64,
        manager: Option<u8>,
    ) {
        let life = self.runtime.life(Host::Datanode(slot));
        // The cloud counts from its own notice; the namenode receives it a little later.
        let grace = if dies_in_millis >= deadline_millis { 60 } else { 0 };
        self.runtime.after((dies_in_millis + grace) * 1000, Event::Die { slot, life, manager });
    }

    /// Returns the places of nodes that blocks are moving to, those with most of them first; if
    /// there are none, of those with most blocks.
    fn targets(&self, count: u8) -> Vec<u8> {
        let catalog = self.namenode.catalog();
        let mut weights: BTreeMap<NodeId, (u64, u64)> = BTreeMap::new();
        for block_view in catalog.block_ids().filter_map(|id| catalog.block_view(id)) {
            if let Some((to, ..)) = block_view.reserved {
                weights.entry(to).or_default().0 += 1;
            }
            if let Some(home) = block_view.home {
                weights.entry(home).or_default().1 += 1;
            }
        }
        let takes = |node: NodeId| {
            catalog.node_policy(node).is_some_and(|(policy, _)| policy.takes_blocks())
        };
        let mut nodes: Vec<_> = weights.into_iter().filter(|(node, _)| takes(*node)).collect();
        nodes.sort_by_key(|(node, weight)| (std::cmp::Reverse(*weight), *node));
        let runs = |slot: &u8| self.runtime.is_up(Host::Datanode(*slot));
        let slot_of = |node| (0_u8..).zip(&self.datanodes).find(|(_, it)| it.node() == Some(node));
        let slots = nodes.into_iter().filter_map(|(node, _)| Some(slot_of(node)?.0)).filter(runs);
        slots.take(usize::from(count)).collect()
    }

    /// Starts a machine in a new place, unless there are too many already.
    fn join(&mut self, capacity: Option<[u64; 2]>) {
        let slot = self.datanodes.len() as u8;
        // One place is left for the machine that joins in the end.
        let places = if capacity.is_some() { DATANODES_MAX } else { DATANODES_MAX - 1 };
        if slot < places {
            let mut fresh = Datanode::new(self.runtime.plan(), self.runtime.bug(), slot);
            if let Some(capacity) = capacity {
                fresh = fresh.with_capacity(capacity);
            }
            self.datanodes.push(fresh);
            self.start(Host::Datanode(slot));
        }
    }

    /// Ends the faults: from here on everything must come to rest.
    pub(super) fn calm(&mut self) {
        self.runtime.log(13, 0, || "the faults stop".to_owned());
        self.runtime.calm();
        for datanode in &mut self.datanodes {
            datanode.calm();
        }
        self.namenode.calm();
        // Room for what must move.
        self.join(Some([400 << 20, 400 << 20]));
        self.runtime.at(self.runtime.now() + SETTLE_MICROS, Event::Settle);
    }
}
