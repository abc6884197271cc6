//! The catalog: namespace, block map, membership and jobs, as one deterministic state machine over
//! a log of commands.
//!
//! Time and choices are in the commands. Applying a command never fails half-way: it either changes
//! the catalog and answers, or refuses and changes nothing but the clock.

mod adoption;
mod appends;
mod apply;
mod block;
mod block_allocation;
mod block_list;
mod block_map;
mod claims;
mod clients;
mod concat;
mod copies;
mod damage;
mod drain;
mod durable_adoption;
mod durable_changes;
mod durable_directories;
mod durable_loss;
mod durable_names;
mod durable_queue;
mod durable_renamed;
mod durable_wanted;
mod events;
mod fleet;
mod format;
mod fsck;
mod history;
mod id_map;
mod ids;
mod index;
mod job_limits;
mod job_table;
mod jobs;
mod leader;
mod limits;
mod listing;
pub mod log;
mod log_end;
mod lookup;
mod loss;
mod members;
mod memory;
mod moves;
mod name;
mod names;
mod namespace;
mod node_info;
mod node_life;
mod object;
mod object_attributes;
mod orders;
mod ownership;
mod part_totals;
mod prechecks;
mod reap;
mod reap_queue;
mod revocations;
mod room;
mod rules;
mod service_time;
mod shown_moves;
mod tick;
mod timers;
mod tree;
mod unnamed;
mod usage;
mod view;
mod writing;

use sanderling_protocol::event::LossReport;
use sanderling_protocol::message::{ObjectKind, Room};
use sanderling_protocol::{ClusterId, Event, EventKind, Instant, Millis};
use serde::{Deserialize, Serialize};

pub(crate) use block::InTheWay;
pub use block::{BlockView, allocated_bytes};
pub(crate) use clients::{CLIENTS_MAX, ChangeKey, is_passing};
pub use durable_changes::DurableBacklog;
pub use history::JournalLoss;
pub(crate) use history::{REGISTERED, SETTLE, UNKNOWN_KEPT};
pub use ids::{Numbers, SKIP_MIN, skip_after};
pub use limits::CatalogLimits;
pub(crate) use listing::Listing;
pub use log::{Action, Command, DurableAction, LoggedOnce, Placement};
pub use members::GONE_NODES_KEPT_MAX;
pub(crate) use memory::of_adopted;
pub(crate) use memory::of_attributes as attributes_memory;
pub use object::ROOT;
pub use orders::{Applied, DatanodeOrder};
pub(crate) use ownership::{CountedAt, OwnershipWalk, within_reply};
pub(crate) use usage::UsageWalk;

use crate::access::Revoked;
use crate::reserve::Departures;
use appends::Appends;
use block_map::BlockMap;
use claims::{Cancellations, DrainClaims};
use clients::Clients;
use durable_directories::Durables;
use durable_queue::RenamedObjects;
use events::Events;
use fleet::Fleet;
use history::History;
use id_map::IdMap;
use ids::Ids;
use job_limits::Accounts;
use job_table::Jobs;
use leader::Leader;
use loss::Losses;
use members::Nodes;
use memory::Memory;
use name::Name;
use names::Names;
use object::{Container, Object, ObjectBody, Objects};
use object_attributes::ObjectAttributes;
use part_totals::Sums;
use reap::Reaping;
use reap_queue::ReapQueue;
use revocations::Revocations;
use room::Reserve;
pub(crate) use service_time::AFTER_ABSENCE_MAX;
use service_time::ServiceTime;
use shown_moves::ShownMoves;
use timers::Timers;
use unnamed::Unnamed;

/// Holds everything that the namenode must remember. A snapshot is this structure in postcard; the
/// same commands in the same order make the same one on every machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Catalog {
    cluster: ClusterId,
    /// Commands applied since the cluster began: the place in the log.
    index: u64,
    /// The time of the last command.
    now: Instant,
    lease: Millis,
    ids: Ids,
    objects: Objects,
    blocks: BlockMap,
    attributes: ObjectAttributes,
    nodes: Nodes,
    jobs: Jobs,
    leader: Leader,
    /// What becomes due by the log's time.
    timers: Timers,
    events: Events,
    report: LossReport,
    service: ServiceTime,
    history: History,
    /// Answers to changes that may come again.
    clients: Clients,
    /// Of files that are appended to: the bytes that they had before.
    appends: Appends,
    /// What is kept free so that nodes can leave.
    reserve: Reserve,
    /// Nodes whose notice or recommendation was taken back, and when.
    cancelled: Cancellations,
    journal_loss: JournalLoss,
    /// Tokens that were taken back.
    revocations: Revocations,
    /// What jobs hold and may hold beside bytes.
    accounts: Accounts,
    /// What is deleted and not freed.
    reaping: Reaping,
    reap_queue: ReapQueue,
    /// What is copied to stores outside of the cluster.
    durables: Durables,
    /// Why nodes drain.
    claims: DrainClaims,
    /// What stores have of renamed objects by their old names.
    renamed: RenamedObjects,
    /// Blocks whose copies nodes have shown after a start: a lost end of the log had made them.
    shown_moves: ShownMoves,
    /// Configured, not remembered.
    #[serde(skip)]
    limits: CatalogLimits,
    /// Made anew from the objects when a snapshot is read.
    #[serde(skip, default = "no_names")]
    names: Names,
    /// What the parts of multifiles and tables have together, where that is anything.
    #[serde(skip)]
    sums: Sums,
    /// By container: objects that will be named there by their seal.
    #[serde(skip)]
    unnamed: Unnamed,
    #[serde(skip)]
    memory: Memory,
}

/// The names of a catalog that was just read.
const fn no_names() -> Names {
    Names::new(0)
}

impl Catalog {
    /// Returns the empty catalog of a new cluster, in which a writer's lease lasts `lease`.
    #[must_use]
    pub fn new(cluster: ClusterId, lease: Millis) -> Self {
        let root = Object {
            parent: ROOT,
            name: Name::from(""),
            is_bound: true,
            is_listed: true,
            created_at: Instant(0),
            modified_at: Instant(0),
            expires_at: None,
            job: None,
            body: ObjectBody::Container(Container { kind: ObjectKind::Directory }),
        };
        let mut objects = IdMap::new();
        objects.insert(ROOT, root);
        Self {
            cluster,
            index: 0,
            now: Instant(0),
            lease,
            ids: Ids::new(),
            objects,
            blocks: BlockMap::default(),
            attributes: ObjectAttributes::default(),
            nodes: Nodes::new(),
            jobs: Jobs::default(),
            leader: Leader::default(),
            timers: Timers::default(),
            events: Events::default(),
            report: LossReport::default(),
            service: ServiceTime::default(),
            history: History::default(),
            clients: Clients::default(),
            appends: Appends::default(),
            reserve: Reserve::default(),
            cancelled: Cancellations::default(),
            journal_loss: JournalLoss::default(),
            revocations: Revocations::default(),
            reaping: Reaping::default(),
            accounts: Accounts::default(),
            reap_queue: ReapQueue::default(),
            durables: Durables::default(),
            claims: DrainClaims::default(),
            renamed: RenamedObjects::default(),
            shown_moves: ShownMoves::default(),
            limits: CatalogLimits::default(),
            names: Names::new(cluster.0),
            sums: Sums::default(),
            unnamed: Unnamed::default(),
            memory: Memory::default(),
        }
    }

    /// Returns what a snapshot holds: this catalog without what follows from the rest. It shares
    /// the memory of objects and blocks until one of the two changes them. Cost: a sixty-fourth of
    /// their number, and the blocks that nodes hold.
    #[must_use]
    pub fn image(&self) -> Self {
        Self {
            objects: self.objects.clone(),
            blocks: self.blocks.clone(),
            attributes: self.attributes.clone(),
            nodes: self.nodes.clone(),
            jobs: self.jobs.clone(),
            leader: self.leader.clone(),
            timers: self.timers.clone(),
            events: self.events.clone(),
            report: self.report.clone(),
            service: self.service.clone(),
            history: self.history.clone(),
            clients: self.clients.clone(),
            appends: self.appends.clone(),
            cancelled: self.cancelled.clone(),
            revocations: self.revocations.clone(),
            accounts: self.accounts.image(),
            reaping: self.reaping.clone(),
            reap_queue: self.reap_queue.image(),
            durables: self.durables.clone(),
            claims: self.claims.clone(),
            renamed: self.renamed.clone(),
            shown_moves: self.shown_moves.clone(),
            names: self.names.emptied(),
            sums: Sums::default(),
            unnamed: Unnamed::default(),
            ..*self
        }
    }

    /// Sets the key by which names are hashed, for a catalog that is empty or to be restored.
    #[must_use]
    pub(crate) fn keyed(mut self, names_key: u64) -> Self {
        self.names = Names::new(names_key);
        self
    }

    /// Derives again what an image of the catalog leaves out, such as the names, accounts and sums,
    /// from the objects, jobs and nodes that it has.
    #[must_use]
    pub fn restored(mut self) -> Self {
        self.names = self.names.anew(&self.objects);
        self.accounts = self.accounts.derived(self.jobs.ids(), self.owned());
        self.sums = Sums::of(&self.objects);
        self.unnamed = Unnamed::of(&self.objects);
        self.reap_queue.restore();
        self.durables.restore(self.derived_wanted());
        for (id, blanks) in self.derived_blanks() {
            let data = self.objects.get_mut(&id).and_then(Object::data_mut);
            if let Some(lease) = data.and_then(|data| data.lease.as_mut()) {
                lease.blank_blocks = blanks;
            }
        }
        self.memory = Memory::of(&self.objects, self.attributes.values());
        self.nodes.find_again();
        self.nodes.look_at_fleet(self.reserve.departures());
        self
    }

    /// Counts anew which bytes are safe: a snapshot of an earlier program may have wrong counts of
    /// blocks that were published after they had moved to the object tier. No part of
    /// [`Catalog::restored`], by which a running namenode checks an image: a check must find counts
    /// that go wrong.
    #[must_use]
    pub(crate) fn recounted(mut self) -> Self {
        self.nodes.recount_safe(self.blocks.iter().map(|(_, block)| block));
        self
    }

    #[cfg(test)]
    pub(crate) fn miscount_safe(&mut self, node: sanderling_protocol::NodeId, safe_bytes: u64) {
        self.nodes.miscount_safe(node, safe_bytes);
    }

    /// Sets how much is done in one step. Part of what its commands do: see [`CatalogLimits`].
    pub(crate) const fn set_limits(&mut self, limits: CatalogLimits) {
        self.limits = limits;
        self.clients.set_answers_max(limits.answers_per_client_max);
    }

    /// Returns the id of the cluster whose catalog this is.
    #[must_use]
    pub const fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// Returns how many commands have been applied: the place in the log.
    #[must_use]
    pub const fn index(&self) -> u64 {
        self.index
    }

    /// Returns the time of the last command. The catalog has no other clock.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Returns when [`Action::Tick`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.timers.first().into_iter().chain(self.service.first()).min()
    }

    /// Returns how many nodes must be able to leave at once.
    #[must_use]
    pub const fn departures(&self) -> Departures {
        self.reserve.departures()
    }

    /// Returns how many bytes may still be stored and how many are reserved so that nodes can
    /// leave. Cost: linear in the nodes.
    #[must_use]
    pub fn room(&self) -> Room {
        self.reserve.room(&self.nodes)
    }

    /// Returns whether `bytes` bytes more would use room that is reserved so that nodes can leave.
    #[must_use]
    pub fn uses_reserve(&self, bytes: u64) -> bool {
        room::uses_reserve(&self.nodes, bytes)
    }

    /// Returns the tokens that were revoked.
    pub(crate) const fn revocations(&self) -> &Revocations {
        &self.revocations
    }

    /// Returns the version of the list of revoked tokens: it changes when the list does.
    #[must_use]
    pub const fn revocations_version(&self) -> u64 {
        self.revocations.version()
    }

    /// Returns which tokens are revoked, for servers that refuse them.
    #[must_use]
    pub fn revoked(&self) -> Revoked {
        self.revocations.revoked()
    }

    /// Returns the kept events after a sequence, the oldest first.
    #[must_use]
    pub fn events_after(&self, sequence: u64, limit: usize) -> Vec<Event> {
        self.events.after(sequence, limit)
    }

    /// Returns the last event's sequence, 0 before the first.
    #[must_use]
    pub const fn event_last(&self) -> u64 {
        self.events.last()
    }

    /// Adds an event at the log's time.
    fn emit(&mut self, kind: EventKind) {
        self.events.emit(self.now, kind);
    }

    /// Borrows the parts that have to do with nodes, and with where blocks are.
    fn fleet(&mut self) -> Fleet<'_> {
        Fleet {
            now: self.now,
            rules: self.reaping.rules,
            limits: self.limits,
            service: &self.service,
            history: &self.history,
            blocks: &mut self.blocks,
            nodes: &mut self.nodes,
            jobs: &mut self.jobs,
            claims: &mut self.claims,
            cancelled: &mut self.cancelled,
            shown_moves: &mut self.shown_moves,
            timers: &mut self.timers,
            events: &mut self.events,
            report: &mut self.report,
        }
    }

    /// Borrows what a loss is written into.
    fn losses(&mut self) -> Losses<'_> {
        Losses {
            now: self.now,
            blocks: &self.blocks,
            objects: &mut self.objects,
            sums: &mut self.sums,
            nodes: &mut self.nodes,
            events: &mut self.events,
            report: &mut self.report,
        }
    }

    /// Returns the service time of the last command.
    fn served(&self) -> Instant {
        self.service.at(self.now)
    }

    /// Returns everything that was ever declared lost.
    #[must_use]
    pub const fn report(&self) -> &LossReport {
        &self.report
    }

    /// Returns about how many bytes of memory the catalog takes.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.memory.bytes(self.objects.len(), self.blocks.len(), self.jobs.len())
            + self.reap_queue.memory_bytes()
    }

    /// Returns how many objects exist, the root among them, bound or not.
    #[must_use]
    pub fn object_count(&self) -> usize {
        self.objects.len()
    }

    /// Returns how many blocks exist, lost ones among them.
    #[must_use]
    pub fn block_count(&self) -> usize {
        self.blocks.len()
    }
}
