//! The namenode's decisions: the catalog, who is there, and where new blocks go.
//!
//! A request is first prepared: reads and refusals are answered at once, changes become a
//! [`Command`] with every choice made. The shell writes the command to its journal and only then
//! applies it. What is not in the log (heartbeats, suspicions) is in [`Membership`] and may be
//! forgotten.

mod prepare;
mod read;
#[cfg(test)]
mod tests;

use sanderling_protocol::node::NodeInfo;
use sanderling_protocol::{
    ClusterId, Event, Instant, Millis, NodeId, Order, OrderReply, Policy, Refusal, Reply,
};

use crate::catalog::{Action, Applied, Catalog, Command, DatanodeOrder};
use crate::exposure;
pub use crate::membership::Probe;
use crate::membership::{Membership, MembershipConfig};
use crate::placement::{Candidates, Draw};
use crate::preemption::Model;

/// Times and seeds of a namenode.
#[derive(Debug, Clone)]
pub struct NamenodeConfig {
    /// How often datanodes send a heartbeat.
    pub heartbeat: Millis,
    /// When silent nodes are dialled and given up.
    pub membership: MembershipConfig,
    /// How long a writer keeps an object without renewing its lease.
    pub lease: Millis,
    /// Start of the random choices of placement.
    pub placement_seed: u64,
    /// How long a new node gets less than its share of new blocks.
    pub ramp_up: Millis,
    /// How long machines live, if that is known: it tells the nodes' expected life.
    pub preemption: Option<Model>,
}

impl Default for NamenodeConfig {
    fn default() -> Self {
        Self {
            heartbeat: Millis(500),
            membership: MembershipConfig::default(),
            // A writer renews three times in it; a crashed one blocks its name for no longer.
            lease: Millis(10_000),
            placement_seed: 0,
            // A burst of writes is over by then, and rebalancing towards it has begun.
            ramp_up: Millis(30_000),
            preemption: None,
        }
    }
}

/// What is to be done with a request.
#[derive(Debug)]
pub enum Prepared {
    /// It is answered; nothing changes.
    Answer(Result<Reply, Refusal>),
    /// It is answered when this command has been written and applied.
    Log(Command),
}

/// The namenode as a machine.
#[derive(Debug)]
pub struct Namenode {
    config: NamenodeConfig,
    catalog: Catalog,
    membership: Membership,
    draw: Draw,
    candidates: KnownCandidates,
}

/// The nodes that may get blocks, as they were found last.
#[derive(Debug, Default)]
struct KnownCandidates {
    nodes: Candidates,
    /// The membership's version then; `None` when the catalog's nodes have changed since.
    version: Option<u64>,
    /// When their weights are another, as they have grown older.
    until: Instant,
}

impl Namenode {
    /// Returns the namenode of a new, empty cluster.
    #[must_use]
    pub fn new(config: NamenodeConfig, cluster: ClusterId) -> Self {
        let catalog = Catalog::new(cluster, config.lease);
        Self::restore(config, catalog, Instant(0))
    }

    /// Returns a namenode that goes on with a catalog, or with an image of one. Every node in it is
    /// taken for alive from `now` on.
    #[must_use]
    pub fn restore(config: NamenodeConfig, catalog: Catalog, now: Instant) -> Self {
        let mut membership = Membership::new(config.membership.clone());
        for node in catalog.node_ids(false) {
            membership.joined(now, node);
        }
        let draw = Draw::new(config.placement_seed);
        let (candidates, catalog) = (KnownCandidates::default(), catalog.restored());
        Self { config, catalog, membership, draw, candidates }
    }

    /// Gives every node the whole time again to show itself. Called when a replayed log ends.
    pub fn resume(&mut self, now: Instant) {
        for node in self.catalog.node_ids(false) {
            self.membership.joined(now, node);
        }
    }

    /// Returns the catalog, for snapshots and for those who look.
    #[must_use]
    pub const fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Returns the configuration.
    #[must_use]
    pub const fn config(&self) -> &NamenodeConfig {
        &self.config
    }

    /// Applies a command that the journal has.
    pub fn apply(&mut self, command: &Command) -> Applied {
        let mut applied = self.catalog.apply(command, self.config.heartbeat);
        match (&command.action, &mut applied.result) {
            (Action::Register(_), Ok(Reply::Registered(registered))) => {
                self.membership.joined(self.catalog.now(), registered.node);
            }
            (_, Ok(Reply::Node(info))) => self.add_heartbeat(info, command.at),
            _ => {}
        }
        for node in &applied.gone {
            self.membership.left(*node);
        }
        if !applied.gone.is_empty() || command.action.changes_nodes() {
            self.candidates.version = None;
        }
        applied
    }

    /// Returns when [`Namenode::tick`] or [`Namenode::to_probe`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        match (self.catalog.deadline(), self.membership.deadline()) {
            (Some(first), Some(second)) => Some(first.min(second)),
            (first, second) => first.or(second),
        }
    }

    /// Says that nobody listened to nodes for some time before `now`: that is not their silence.
    pub fn was_away(&mut self, now: Instant, away: Millis) {
        self.membership.was_away(now, away);
    }

    /// Returns the commands that time makes necessary.
    pub fn tick(&mut self, now: Instant) -> Vec<Command> {
        let mut commands = Vec::new();
        // What is due by the log comes first: a node whose deadline has passed is lost by its
        // deadline.
        if self.catalog.deadline().is_some_and(|at| at <= now) {
            commands.push(Command { at: now, action: Action::Tick });
        }
        for node in self.membership.dead(now) {
            let why = "it sent no heartbeat".to_owned();
            commands.push(Command { at: now, action: Action::NodeDead { node, why } });
        }
        commands
    }

    /// Returns nodes that must be dialled now, with their addresses.
    pub fn to_probe(&mut self, now: Instant) -> Vec<(NodeId, String)> {
        let address = |node: NodeId| {
            let (_, address) = self.catalog.node_policy(node)?;
            Some((node, address.to_owned()))
        };
        self.membership.to_probe(now).into_iter().filter_map(address).collect()
    }

    /// Takes the outcome of dialling a node.
    pub fn probed(&mut self, now: Instant, node: NodeId, outcome: Probe) -> Vec<Command> {
        if !self.membership.probed(now, node, outcome) {
            return Vec::new();
        }
        let why = match outcome {
            Probe::Refused => "its process has ended",
            Probe::Alive | Probe::Timeout => "it could not be reached",
        };
        vec![Command { at: now, action: Action::NodeDead { node, why: why.to_owned() } }]
    }

    /// Takes what a datanode answered to an order; `None` when it could not be reached.
    pub fn ordered(
        &mut self,
        now: Instant,
        order: &DatanodeOrder,
        reply: Option<OrderReply>,
    ) -> Vec<Command> {
        let action = match (&order.order, reply) {
            (_, None) => {
                self.membership.suspected(now, order.node);
                return Vec::new();
            }
            (Order::FenceNode { .. }, Some(OrderReply::Done)) => {
                Action::Fenced { node: order.node }
            }
            (Order::FenceBlocks { blocks }, Some(OrderReply::Fenced(lengths))) => {
                let pairs = blocks.iter().zip(lengths);
                let lengths = pairs.map(|((block, epoch), length)| (*block, *epoch, length));
                Action::Recovered { lengths: lengths.collect() }
            }
            _ => return Vec::new(),
        };
        vec![Command { at: now, action }]
    }

    /// Returns kept events after a sequence.
    #[must_use]
    pub fn events_after(&self, sequence: u64, limit: usize) -> Vec<Event> {
        self.catalog.events_after(sequence, limit)
    }

    /// Returns one row of the nodes' table.
    #[must_use]
    pub fn node_info(&self, node: NodeId, now: Instant) -> Option<NodeInfo> {
        let mut info = self.catalog.node_info(node, now)?;
        self.add_heartbeat(&mut info, now);
        Some(info)
    }

    fn add_heartbeat(&self, info: &mut NodeInfo, now: Instant) {
        let (availability, load, age) = self.membership.view(now, info.id);
        info.availability = availability;
        info.load = load;
        info.heartbeat_age = age;
        let model = self.config.preemption.as_ref().filter(|_| info.policy != Policy::Gone);
        info.expected_life = model.map(|model| {
            let life = model.expected_life(info.age);
            info.deadline_in.map_or(life, |left| left.min(life))
        });
        if info.egress_bytes_per_second == 0 {
            info.egress_bytes_per_second = exposure::egress(load.pushed_bytes_per_second);
        }
        info.budget_bytes = exposure::budget_bytes(info.notice_min, info.egress_bytes_per_second);
    }
}
