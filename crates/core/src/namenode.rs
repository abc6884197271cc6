//! The namenode's decisions: the catalog, membership, and where new blocks go.
//!
//! A request is first prepared: reads and refusals are answered at once, changes become a
//! [`Command`] with every choice made. The shell writes the command to its journal and only then
//! applies it. What is not in the log (heartbeats, suspicions) is in [`Membership`] and may be
//! forgotten.

mod admission;
mod batch;
mod clock;
mod frame;
mod group_commit;
mod list_limits;
mod once;
mod order_queue;
mod prepare;
mod read;
mod read_queue;
mod refused;
mod reply_budget;
mod room_waits;
mod round;
mod route;
mod sliced_reads;
mod snapshot_schedule;
#[cfg(test)]
mod tests;

use sanderling_protocol::message::Members;
use sanderling_protocol::node::NodeInfo;
use sanderling_protocol::{
    ClusterId, Event, Instant, Millis, NodeId, Order, OrderReply, Policy, Refusal, Reply, Term,
};

pub use admission::{
    CHANGES_WAITING, FrameStep, LONG_PAUSE, LONG_PLACES, LongFrame, LongRefusal, REQUEST_COST,
    WriterLoad, changes_size, long_places, queue_full, writer_at_once,
};
pub use batch::BatchBounds;
pub use clock::start_time;
pub use group_commit::{
    Answers, CommandOrigin, CommitBatch, CommitWork, Decides, GroupCommit, Unwritten,
};
pub use order_queue::{ORDER_TIMEOUT, OrderKind, OrderLeadership, OrderQueue, OrderStep};
pub use read_queue::{ReadLimits, ReadQueue, Waiter, WaitingFrames};
pub use reply_budget::ReplyBudget;
pub use route::are_changes;
pub use sliced_reads::FrameRead;
pub use snapshot_schedule::SnapshotSchedule;

use crate::catalog::{
    Action, Applied, Catalog, CatalogLimits, Command, DatanodeOrder, REGISTERED, SETTLE,
    is_passing, skip_after,
};
use crate::exposure;
pub use crate::membership::Probe;
use crate::membership::{Membership, MembershipConfig};
use crate::placement::{Candidates, Draw};
use crate::preemption::Model;
use crate::reserve::Departures;
use refused::RefusalCache;
use room_waits::RoomWaits;

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
    /// The key by which names are hashed. A server draws one at each start and keeps it secret, so
    /// that no client can choose names that collide. It has no influence on what commands do.
    pub names_key: u64,
    /// How long a new node gets less than its share of new blocks.
    pub ramp_up: Millis,
    /// How long machines live, if that is known: it gives the nodes' expected life.
    pub preemption: Option<Model>,
    /// How many nodes must be able to leave at once, and with them their bytes.
    pub departures: Departures,
    /// Memory that the catalog may take, in bytes by its own account
    /// ([`Catalog::memory_bytes`]). Beyond it, what would make it larger is refused.
    pub memory_max: u64,
    /// How much one step does. Only simulations have other bounds than servers.
    pub limits: CatalogLimits,
    /// Whether the log has every final refusal of a change. A group needs that: a copy of the
    /// request may be on its way to the member that leads next, which has only the log. It is set
    /// by [`Namenode::take_over`], and by [`Namenode::set_members`] if there are several.
    pub logs_refusals: bool,
}

impl Default for NamenodeConfig {
    fn default() -> Self {
        Self {
            heartbeat: Millis(500),
            membership: MembershipConfig::default(),
            // A writer renews three times in it; a crashed one blocks its name for no longer.
            lease: Millis(10_000),
            placement_seed: 0,
            names_key: 0,
            // A burst of writes is over by then, and rebalancing towards it has begun.
            ramp_up: Millis(30_000),
            preemption: None,
            // What a fleet is for; and a single datanode on a laptop can be filled.
            departures: Departures::Default,
            memory_max: u64::MAX,
            limits: CatalogLimits::DEFAULT,
            logs_refusals: false,
        }
    }
}

/// What is to be done with a request: nothing of it has happened yet.
#[derive(Debug)]
pub enum Prepared {
    /// It is answered; nothing changes.
    Answer(Result<Reply, Refusal>),
    /// It is answered when this command has been written and applied.
    Log(Command),
}

/// The namenode as a machine: the catalog, the membership, and what its process remembers beside
/// them. Its shell prepares requests, writes the commands to the log, and applies them in that
/// order. The same log gives the same catalog.
#[derive(Debug)]
pub struct Namenode {
    config: NamenodeConfig,
    catalog: Catalog,
    membership: Membership,
    draw: Draw,
    candidates: KnownCandidates,
    /// When the process last read what had come, as recorded in the log; `None` before it serves.
    listened_at: Option<Instant>,
    /// The same time as `listened_at`, as far as the membership has been updated.
    members_at: Option<Instant>,
    /// When it last read again after it had not for a while, and for how long.
    away: Option<(Instant, Millis)>,
    /// Whether the journal refused the last commands.
    is_refusing: bool,
    /// Changes that this process has refused and not logged.
    refused: RefusalCache,
    room_waits: RoomWaits,
    /// The group, as its shell learned it last. It is in no log: each member has its own view.
    members: Members,
}

/// How long after an absence a request may be one that has waited for its end: longer than any
/// client waits for an answer before it sends the request again.
const WAITED_FROM: Millis = Millis(5000);

/// Longest time between two looks at what has come that is no absence: a heartbeat's period, and
/// several times the longest sleep of a process that has nothing to do.
const ABSENCE_MIN: Millis = Millis(500);

/// Longest time of a commit that is no absence: what a slow disk takes for a sync.
const COMMIT_MAX: Millis = Millis(2000);

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
    /// taken for alive from `now` on: one that is gone is declared dead a full silence later. What
    /// is no part of the catalog begins anew, such as the answers of a round that was refused.
    /// Cost: linear in the catalog, whose counts are made anew.
    #[must_use]
    pub fn restore(config: NamenodeConfig, catalog: Catalog, now: Instant) -> Self {
        let mut membership = Membership::new(config.membership.clone());
        for node in catalog.node_ids(false) {
            membership.joined(now, node);
        }
        let draw = Draw::new(config.placement_seed);
        let candidates = KnownCandidates::default();
        let mut catalog = catalog.keyed(config.names_key).restored().recounted();
        catalog.set_limits(config.limits);
        Self {
            config,
            catalog,
            membership,
            draw,
            candidates,
            listened_at: None,
            members_at: None,
            away: None,
            is_refusing: false,
            refused: RefusalCache::default(),
            room_waits: RoomWaits::default(),
            members: Members::default(),
        }
    }

    /// Sets what [`Request::Members`](sanderling_protocol::Request::Members) is answered with: the
    /// group as this member has it now. Call it when the group has changed; it is in no log.
    pub fn set_members(&mut self, members: Members) {
        self.config.logs_refusals |= members.members.len() > 1;
        self.members = members;
    }

    /// Gives every node the whole time again to show itself. Called when a replayed log ends.
    pub fn resume(&mut self, now: Instant) {
        for node in self.catalog.node_ids(false) {
            self.membership.joined(now, node);
        }
    }

    /// Returns the command that makes the log know what is configured, if it does not yet. The log
    /// must have what decides whether its commands are refused: replayed, they end as they did.
    #[must_use]
    pub fn configure(&self, now: Instant) -> Option<Command> {
        let departures = self.config.departures;
        let action = Action::Departures { departures };
        (self.catalog.departures() != departures).then_some(Command { at: now, action })
    }

    /// Returns the command that makes this program's rules those of the log, if they are not yet:
    /// what an earlier program wrote goes on to be applied as that program did.
    fn rules(&self, now: Instant) -> Option<Command> {
        let slice = self.config.limits.freed_per_slice_max;
        let action = Action::Rules { rules: Catalog::RULES, slice };
        let is_known = self.catalog.rules() == (Catalog::RULES, slice);
        (!is_known).then_some(Command { at: now, action })
    }

    /// Returns the catalog, for snapshots and for readers.
    #[must_use]
    pub const fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Returns the configuration that the namenode was made with.
    #[must_use]
    pub const fn config(&self) -> &NamenodeConfig {
        &self.config
    }

    /// Applies a command that the journal has to the catalog, and what follows from it to the
    /// membership. Returns the command's outcome.
    pub fn apply(&mut self, command: &Command) -> Applied {
        let mut applied = self.catalog.apply(command, self.config.heartbeat);
        match (&command.action, &mut applied.result) {
            (Action::Register(_), Ok(Reply::Registered(registered))) => {
                self.membership.joined(self.catalog.now(), registered.node);
            }
            (Action::Join(_), Ok(Reply::Joined(joined))) => {
                self.membership.joined(self.catalog.now(), joined.registered.node);
            }
            (Action::Absent { .. }, _) if self.listened_at.is_some() => {
                self.listened_at = Some(command.at);
            }
            (_, Ok(Reply::Node(info))) => self.add_heartbeat(info, command.at),
            _ => {}
        }
        if let Action::Once(once) = &command.action
            && !applied.result.as_ref().is_err_and(is_passing)
        {
            self.room_waits.remove(&once.sent());
        }
        for node in &applied.gone {
            self.membership.left(*node);
        }
        if !applied.gone.is_empty() || command.action.changes_nodes() {
            self.candidates.version = None;
        }
        applied
    }

    #[cfg(test)]
    const fn refusals_kept(&self) -> usize {
        self.refused.len()
    }

    /// Returns when [`Namenode::tick`] or [`Namenode::to_probe`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let (due, silent) = (self.catalog.deadline(), self.membership.deadline());
        [due, silent, self.catalog.reaps_at()].into_iter().flatten().min()
    }

    /// Returns the commands with which a process begins to serve: it has read `commands` and cut
    /// `cut_bytes` off the end of the log. `term` is drawn for this start.
    #[must_use]
    pub fn begin(
        &mut self,
        now: Instant,
        term: Term,
        commands: u64,
        cut_bytes: u64,
    ) -> Vec<Command> {
        self.resume(now);
        (self.listened_at, self.members_at) = (Some(now), Some(now));
        // A new cluster has nothing before it.
        let is_new = self.catalog.index() == 0;
        if !is_new {
            self.membership.await_reports(now + REGISTERED, now + SETTLE);
        }
        let absence = if is_new { Millis(0) } else { now.since(self.catalog.now()) };
        let skip = if is_new { 0 } else { skip_after(absence, term) };
        let actions =
            [Action::BeginTerm { term, absence, skip }, Action::Started { commands, cut_bytes }];
        let actions = actions.into_iter().map(|action| Command { at: now, action });
        actions.chain(self.configure(now)).chain(self.rules(now)).collect()
    }

    /// Returns the commands with which a member of a group begins to lead: it has applied all that
    /// was agreed, and for `absence` no leader served. What it gives out goes on where its
    /// predecessor ended, because no agreed end of the log can be missing. What was on its way to
    /// datanodes is derived again, as after a start: heartbeats, joins and block reports show it.
    #[must_use]
    pub fn take_over(&mut self, now: Instant, term: Term, absence: Millis) -> Vec<Command> {
        self.resume(now);
        (self.listened_at, self.members_at) = (Some(now), Some(now));
        (self.away, self.is_refusing) = (Some((now, absence)), false);
        self.config.logs_refusals = true;
        let begin = Action::BeginTerm { term, absence, skip: 0 };
        let begin = Command { at: now, action: begin };
        [begin].into_iter().chain(self.configure(now)).chain(self.rules(now)).collect()
    }

    /// Notes that a commit has ended. The time of a short one, however slow the disk, is no
    /// absence: else each record of an absence would make the next.
    pub fn committed(&mut self, began: Instant, now: Instant) {
        // The refusals before it have not been excused: the next look does that.
        if std::mem::take(&mut self.is_refusing) {
            return;
        }
        if now.since(began) <= COMMIT_MAX
            && let (Some(listened), Some(members)) = (&mut self.listened_at, &mut self.members_at)
        {
            *listened = now.max(*listened);
            *members = now.max(*members);
        }
    }

    /// Notes that the journal did not take commands: until it does, no renewal is taken either, and
    /// the time is an absence although requests are read.
    pub const fn refused(&mut self) {
        self.is_refusing = true;
    }

    /// Notes that the process reads the messages that have arrived. Returns the command that
    /// excuses the time since it last did, if that was an absence: the process was stopped, the
    /// machine paused, or a change of millions of objects took the time. It is returned again until
    /// it has been applied.
    pub fn listened(&mut self, now: Instant) -> Option<Command> {
        let silence = now.since(self.members_at.replace(now)?);
        if silence > ABSENCE_MIN {
            self.membership.was_away(now, silence);
            self.away = Some((now, silence));
        }
        let absence = now.since(self.listened_at?);
        if absence <= ABSENCE_MIN {
            if !self.is_refusing {
                self.listened_at = Some(now);
            }
            return None;
        }
        Some(Command { at: now, action: Action::Absent { absence } })
    }

    /// Returns how long a request that is read now may have waited for the end of an absence.
    fn may_have_waited(&self, now: Instant) -> Millis {
        let away = self.away.filter(|(back_at, _)| now.since(*back_at) <= WAITED_FROM);
        away.map_or(Millis(0), |(_, silence)| silence)
    }

    /// Returns the commands that time makes necessary.
    pub fn tick(&mut self, now: Instant) -> Vec<Command> {
        let mut commands = Vec::new();
        // What is due by the log comes first: a node whose deadline has passed is lost by its
        // deadline.
        if self.catalog.deadline().is_some_and(|at| at <= now) {
            commands.push(Command { at: now, action: Action::Tick });
        }
        if self.catalog.reaps_at().is_some_and(|at| at <= now) {
            commands.push(Command { at: now, action: Action::Reap });
        }
        for node in self.membership.dead(now) {
            let why = match self.membership.has_ended(node) {
                true => "its process has ended",
                false => "it sent no heartbeat",
            };
            let action = Action::NodeDead { node, why: why.to_owned() };
            commands.push(Command { at: now, action });
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

    /// Returns kept events after a sequence, the oldest first and `limit` of them at most. Older
    /// ones than the 10,000 that are kept
    /// ([`EVENTS_KEPT_MAX`](sanderling_protocol::limits::EVENTS_KEPT_MAX)) are gone: a gap in the
    /// sequences shows it.
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
