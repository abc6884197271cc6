//! The namenode's metrics.

use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime};

use parking_lot::{Mutex, RwLock};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use sanderling_core::archive::passes::ArchiveStatus;
use sanderling_core::catalog::DurableBacklog;
use sanderling_core::namenode::{Answers, Namenode};
use sanderling_protocol::message::Forecast;
use sanderling_protocol::{Instant, Policy, Refusal, Reply, Request};
use sanderling_transport::{write_counter, write_gauge, write_process_metrics};

use crate::group::{GroupStatus, MemberState, ServingState, boot_time};

/// How the names of the metrics begin.
const SERVER: &str = "sanderling_namenode";

/// The kind of a request, and how many requests it is worth.
pub(crate) type CountedRequest = (&'static str, u64);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabel {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabel {
    refusal: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    policy: &'static str,
    availability: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NodeLabel {
    node: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TierState {
    tier: String,
    state: &'static str,
}

type Labelled<L> = Family<L, Gauge<i64>>;

/// Counters that the server keeps, and gauges that are set for each scrape.
#[derive(Debug)]
pub(crate) struct NamenodeMetrics {
    registry: RwLock<Registry>,
    requests: Family<RequestLabel, Counter>,
    refusals: Family<RefusalLabel, Counter>,
    read_seconds: Histogram,
    write_seconds: Histogram,
    pub(crate) batches: Counter,
    pub(crate) snapshots: Counter,
    pub(crate) snapshots_failed: Counter,
    pub(crate) orders: Counter,
    pub(crate) orders_dropped: Counter,
    nodes: Labelled<StateLabel>,
    tier_bytes: Labelled<TierState>,
    exposure_bytes: Labelled<NodeLabel>,
    exposure_budget_bytes: Labelled<NodeLabel>,
    /// Scrapes set the gauges of nodes one after the other.
    scrape: Mutex<()>,
    journal_bytes: Gauge<i64>,
    unsynced_bytes: Gauge<i64>,
    unsynced_seconds: Gauge<f64, AtomicU64>,
    /// How the archive stands, if there is one.
    pub(crate) archive: Mutex<Option<ArchiveStatus>>,
    sync_always: Gauge<i64>,
    snapshot_timestamp: Gauge<i64>,
    backup_timestamp: Gauge<i64>,
    directory_bytes: Gauge<i64>,
    directory_free_bytes: Gauge<i64>,
    secrets: Gauge<i64>,
}

/// Upper bounds of the buckets of times, in seconds: from a cached look-up to a slow disk's sync.
/// Chosen, not measured: each is two to three times the one before.
const SECONDS: [f64; 14] = [
    0.000_01, 0.000_03, 0.000_1, 0.000_3, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0,
];

impl Default for NamenodeMetrics {
    fn default() -> Self {
        let metrics = Self {
            registry: RwLock::new(Registry::with_prefix(SERVER)),
            requests: Family::default(),
            refusals: Family::default(),
            read_seconds: Histogram::new(SECONDS),
            write_seconds: Histogram::new(SECONDS),
            batches: Counter::default(),
            snapshots: Counter::default(),
            snapshots_failed: Counter::default(),
            orders: Counter::default(),
            orders_dropped: Counter::default(),
            nodes: Family::default(),
            tier_bytes: Family::default(),
            exposure_bytes: Family::default(),
            exposure_budget_bytes: Family::default(),
            scrape: Mutex::default(),
            journal_bytes: Gauge::default(),
            unsynced_bytes: Gauge::default(),
            unsynced_seconds: Gauge::default(),
            archive: Mutex::default(),
            sync_always: Gauge::default(),
            snapshot_timestamp: Gauge::default(),
            backup_timestamp: Gauge::default(),
            directory_bytes: Gauge::default(),
            directory_free_bytes: Gauge::default(),
            secrets: Gauge::default(),
        };
        metrics.register();
        metrics.register_server();
        metrics
    }
}

impl NamenodeMetrics {
    fn register(&self) {
        let mut registry = self.registry.write();
        let all = &mut registry;
        all.register("requests", "Requests by kind", self.requests.clone());
        all.register("refusals", "Refused requests by refusal", self.refusals.clone());
        let help = "Time to answer a frame of requests that change nothing";
        all.register_with_unit("read", help, Unit::Seconds, self.read_seconds.clone());
        let help = "Time to answer a frame with changes, the journal's write included";
        all.register_with_unit("write", help, Unit::Seconds, self.write_seconds.clone());
        all.register("journal_writes", "Batches written to the journal", self.batches.clone());
        all.register("snapshots", "Snapshots taken", self.snapshots.clone());
        all.register("orders", "Orders sent to datanodes", self.orders.clone());
        let help = "Orders given up because a datanode's queue was full";
        all.register("orders_dropped", help, self.orders_dropped.clone());
        all.register("nodes", "Nodes by policy and availability", self.nodes.clone());
        let help = "Bytes of the nodes' tiers, by what they are";
        all.register_with_unit("tier", help, Unit::Bytes, self.tier_bytes.clone());
        let help = "Bytes of blocks whose only copy is on the node";
        all.register_with_unit("exposure", help, Unit::Bytes, self.exposure_bytes.clone());
        let help = "Bytes that the node can send within its shortest notice";
        let budget = self.exposure_budget_bytes.clone();
        all.register_with_unit("exposure_budget", help, Unit::Bytes, budget);
        let help = "Bytes of journal on disk";
        all.register_with_unit("journal", help, Unit::Bytes, self.journal_bytes.clone());
        let help = "Bytes of acknowledged changes that the disk may not have";
        all.register_with_unit("unsynced", help, Unit::Bytes, self.unsynced_bytes.clone());
        let help = "How long the oldest of them has waited for the disk";
        all.register_with_unit("unsynced", help, Unit::Seconds, self.unsynced_seconds.clone());
    }

    /// Registers what is known of the server itself: its journal, its disk, its secrets.
    fn register_server(&self) {
        let mut registry = self.registry.write();
        let all = &mut registry;
        let help = "Snapshots that could not be taken";
        all.register("snapshots_failed", help, self.snapshots_failed.clone());
        let help = "1 if a change counts once the disk has it (--sync always), else 0";
        all.register("sync_always", help, self.sync_always.clone());
        let help = "When the newest snapshot was taken, in Unix time; 0 for never";
        let taken = self.snapshot_timestamp.clone();
        all.register_with_unit("snapshot_timestamp", help, Unit::Seconds, taken);
        let help = "When a backup was sent whole last, in Unix time; 0 for not since the start";
        let taken = self.backup_timestamp.clone();
        all.register_with_unit("backup_timestamp", help, Unit::Seconds, taken);
        let help = "Size of the file system of the journal";
        all.register_with_unit("directory", help, Unit::Bytes, self.directory_bytes.clone());
        let help = "Bytes that the namenode may still write there";
        let free = self.directory_free_bytes.clone();
        all.register_with_unit("directory_free", help, Unit::Bytes, free);
        let help = "Secrets that are accepted: 2 while one replaces another, 0 for none";
        all.register("secrets", help, self.secrets.clone());
    }

    pub(crate) fn set_sync_always(&self, is_always: bool) {
        self.sync_always.set(is_always.into());
    }

    /// Notes when the newest snapshot was taken.
    pub(crate) fn set_snapshot_time(&self, at: SystemTime) {
        self.snapshot_timestamp.set(unix(at));
    }

    /// Notes that a backup was sent whole.
    pub(crate) fn backup_sent(&self) {
        self.backup_timestamp.set(unix(SystemTime::now()));
    }

    /// Looks at the disk of the journal, and notes how many secrets are accepted.
    pub(crate) fn look_around(&self, directory: &Path, secrets: usize) {
        self.secrets.set(i64::try_from(secrets).unwrap_or(i64::MAX));
        // What cannot be read stays as it was.
        if let Ok(disk) = rustix::fs::statvfs(directory) {
            self.directory_bytes.set(signed(disk.f_blocks.saturating_mul(disk.f_frsize)));
            self.directory_free_bytes.set(signed(disk.f_bavail.saturating_mul(disk.f_frsize)));
        }
    }

    /// Counts the requests of a frame and their answers. Most frames are of one kind: each run of
    /// a kind is counted at once.
    pub(crate) fn answered(&self, kinds: impl Iterator<Item = CountedRequest>, answers: &Answers) {
        let mut run: Option<CountedRequest> = None;
        for (kind, count) in kinds {
            match &mut run {
                Some((last, sum)) if *last == kind => *sum += count,
                _ => self.count(run.replace((kind, count))),
            }
        }
        self.count(run);
        for answer in answers {
            match answer {
                Ok(Reply::Found(lookups)) => {
                    lookups.refusals.iter().for_each(|it| self.refused(it))
                }
                Ok(_) => {}
                Err(refusal) => self.refused(refusal),
            }
        }
    }

    fn count(&self, run: Option<CountedRequest>) {
        if let Some((kind, count)) = run {
            self.requests.get_or_create(&RequestLabel { kind }).inc_by(count);
        }
    }

    fn refused(&self, refusal: &Refusal) {
        self.refusals.get_or_create(&RefusalLabel { refusal: refusal.name() }).inc();
    }

    /// Takes the time that a frame took.
    pub(crate) fn took(&self, is_read: bool, elapsed: Duration) {
        let histogram = if is_read { &self.read_seconds } else { &self.write_seconds };
        histogram.observe(elapsed.as_secs_f64());
    }

    pub(crate) fn set_journal_bytes(&self, bytes: u64) {
        self.journal_bytes.set(signed(bytes));
    }

    pub(crate) fn set_unsynced(&self, bytes: u64, age: Duration) {
        self.unsynced_bytes.set(signed(bytes));
        self.unsynced_seconds.set(age.as_secs_f64());
    }

    /// Encodes everything as `OpenMetrics`; `ends` is when the first certificate of each kind ends.
    pub(crate) fn text(
        &self,
        namenode: &Namenode,
        now: Instant,
        group: &MemberState,
        ends: &[(&str, i64)],
    ) -> String {
        let scrape = self.scrape.lock();
        let drains = self.look_at_nodes(namenode, now);
        let mut text = String::new();
        encode_registry(&mut text, &self.registry.read()).expect("a string takes everything");
        drop(scrape);
        write_drains(&mut text, &drains);
        write_catalog(&mut text, namenode);
        write_stores(&mut text, &namenode.catalog().durable_backlogs(now));
        if let Some(status) = *self.archive.lock() {
            write_archive(&mut text, &status);
        }
        if group.serving_state() != ServingState::Alone {
            write_group(&mut text, group.serving_state(), &group.status());
        }
        let help = "1 while a manager has the leadership lease";
        gauge(&mut text, "managers", help, namenode.catalog().has_manager(now).into());
        write_process_metrics(&mut text, SERVER, ends);
        text
    }

    fn look_at_nodes(&self, namenode: &Namenode, now: Instant) -> Drains {
        self.nodes.clear();
        self.tier_bytes.clear();
        self.exposure_bytes.clear();
        self.exposure_budget_bytes.clear();
        let mut drains = Drains::default();
        let Some(Ok(Reply::Nodes(nodes))) = namenode.read(now, &Request::Nodes { all: true })
        else {
            return drains;
        };
        for node in nodes {
            let labels =
                StateLabel { policy: node.policy.name(), availability: node.availability.name() };
            self.nodes.get_or_create(&labels).inc();
            if node.policy.is_draining() {
                drains.count += 1;
                let left = node.drain.map_or(0, |drain| drain.left_bytes);
                drains.left_bytes += left;
                let forecast = node.drain.and_then(|drain| drain.forecast).unwrap_or_default();
                // Of a node whose manager is gone the forecast has what is not there any more.
                drains.expected.skipped_bytes += forecast.skipped_bytes.min(left);
                drains.expected.late_bytes += forecast.late_bytes;
                drains.expected.unplaced_bytes += forecast.unplaced_bytes;
            }
            if node.policy != Policy::Gone {
                let label = NodeLabel { node: node.name.clone() };
                self.exposure_bytes.get_or_create(&label).set(signed(node.exposure_bytes));
                self.exposure_budget_bytes.get_or_create(&label).set(signed(node.budget_bytes));
                for usage in &node.tiers {
                    let label = |state| TierState { tier: usage.tier.to_string(), state };
                    let add = |state, bytes| {
                        self.tier_bytes.get_or_create(&label(state)).inc_by(signed(bytes));
                    };
                    add("capacity", usage.capacity_bytes);
                    add("used", usage.used_bytes);
                }
            }
        }
        drains
    }
}

/// The drains of all nodes.
#[derive(Default)]
struct Drains {
    count: u64,
    left_bytes: u64,
    expected: Forecast,
}

fn gauge(text: &mut String, name: &str, help: &str, value: u64) {
    write_gauge(text, &format!("{SERVER}_{name}"), help, value);
}

fn write_drains(text: &mut String, drains: &Drains) {
    gauge(text, "drains", "Nodes that drain or decommission", drains.count);
    gauge(
        text,
        "drain_left_bytes",
        "Bytes that must still leave draining nodes",
        drains.left_bytes,
    );
    let help = "Bytes of those left that expire before their deadline and stay, by the forecasts";
    gauge(text, "drain_skipped_bytes", help, drains.expected.skipped_bytes);
    let help = "Bytes that will not have left by their deadline, by the forecasts";
    gauge(text, "drain_late_bytes", help, drains.expected.late_bytes);
    let help = "Bytes on draining nodes for which no node has room, by the forecasts";
    gauge(text, "drain_unplaced_bytes", help, drains.expected.unplaced_bytes);
}

fn write_archive(text: &mut String, status: &ArchiveStatus) {
    let help = "1 while the archive takes what is stored there";
    gauge(text, "archive_up", help, u64::from(!status.is_failing));
    let help = "Age of the newest state that the archive has whole";
    let lag = Duration::from(status.lag(boot_time())).as_secs_f64();
    write_gauge(text, &format!("{SERVER}_archive_lag_seconds"), help, lag);
}

fn write_group(text: &mut String, serving: ServingState, status: &GroupStatus) {
    let help = "1 while this namenode leads its group and answers";
    gauge(text, "group_leads", help, u64::from(serving.serves()));
    gauge(text, "group_term", "Term of the group's last election", status.term);
    let voters = status.rows.iter().filter(|row| row.is_voter).count() as u64;
    gauge(text, "group_voters", "Namenodes that vote", voters);
    let spares = status.rows.len() as u64 - voters;
    gauge(text, "group_spares", "Namenodes that follow and do not vote", spares);
    let help = "Agreed rounds that this namenode has not applied yet";
    gauge(text, "group_lag_rounds", help, status.committed.saturating_sub(status.applied));
    // The leader alone receives the answers of the others.
    if serving.serves() {
        let behind = status.rows.iter().filter_map(|row| row.behind).max().unwrap_or(0);
        let help = "Rounds that the member lacks which lacks most of them";
        gauge(text, "group_behind_rounds", help, behind);
        let help = "1 while one more loss of a namenode could stop the group";
        gauge(text, "group_at_risk", help, u64::from(status.at_risk.is_some()));
        let help = "Namenodes that should be started to take the place of one that leaves";
        gauge(text, "group_spares_missing", help, status.spares_missing.unwrap_or(0) as u64);
    }
    let help = "Messages to other namenodes that were dropped because they took none";
    write_counter(text, &format!("{SERVER}_group_dropped_messages"), help, status.dropped);
}

fn write_catalog(text: &mut String, namenode: &Namenode) {
    let catalog = namenode.catalog();
    let (report, room, lost) = (catalog.report(), catalog.room(), catalog.journal_loss());
    let help = "Commands in the log since the cluster began";
    let counter = |text: &mut String, name, help, value| {
        write_counter(text, &format!("{SERVER}_{name}"), help, value);
    };
    counter(text, "commands", help, catalog.index());
    counter(text, "lost_blocks", "Blocks declared lost", report.blocks);
    counter(text, "lost_bytes", "Bytes declared lost", report.bytes);
    counter(text, "moved_bytes", "Bytes moved off draining nodes", report.moved_bytes);
    counter(text, "notices", "Notices given", report.notices);
    let mut gauge = |name, help, value| gauge(text, name, help, value);
    gauge("objects", "Objects in the catalog", catalog.object_count() as u64);
    let help = "Deleted subtrees of which something is not freed yet";
    gauge("deleted_subtrees", help, catalog.reaping_count() as u64);
    gauge("blocks", "Blocks in the catalog", catalog.block_count() as u64);
    gauge("catalog_bytes", "Memory of the catalog by its own account", catalog.memory_bytes());
    let help = "Memory from which on nothing makes the catalog larger";
    gauge("catalog_max_bytes", help, namenode.config().memory_max);
    gauge("events", "The last event's sequence", catalog.event_last());
    gauge("room_bytes", "Bytes that may still be written", room.room_bytes);
    let help = "Bytes of the nodes' tiers that are kept so that nodes can leave";
    gauge("reserve_bytes", help, room.reserve_bytes);
    let help = "Bytes that would find no place if those nodes left now";
    gauge("reserve_missing_bytes", help, room.missing_bytes);
    gauge("departures", "Nodes that must be able to leave at once", room.departures.into());
    let help = "1 if so many nodes could leave now without a loss for want of room, else 0";
    gauge("departures_fit", help, room.fits().into());
    let help = "Records of acknowledged changes that were given up with damaged journal";
    gauge("journal_lost_records", help, lost.records);
    gauge("journal_lost_bytes", "Bytes of journal that were given up", lost.bytes);
}

/// Writes what waits for the stores of all durable directories.
fn write_stores(text: &mut String, backlogs: &[DurableBacklog]) {
    let changes = backlogs.iter().map(|it| it.changes).sum();
    gauge(text, "durable_backlog_changes", "Changes that wait for stores", changes);
    let bytes = backlogs.iter().map(|it| it.bytes).sum();
    gauge(text, "durable_backlog_bytes", "Bytes that wait for stores", bytes);
    let help = "Age of the oldest change that waits for a store";
    let age = backlogs.iter().map(|it| Duration::from(it.age)).max().unwrap_or_default();
    write_gauge(text, &format!("{SERVER}_durable_backlog_age_seconds"), help, age.as_secs_f64());
    let help = "Durable directories whose oldest change cannot be made in their store";
    let stalled = backlogs.iter().filter(|it| it.is_stalled).count() as u64;
    gauge(text, "durable_stalled", help, stalled);
}

fn unix(at: SystemTime) -> i64 {
    signed(at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs())
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
