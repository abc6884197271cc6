//! The namenode's metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use sanderling_core::namenode::{Answers, Namenode};
use sanderling_protocol::message::Forecast;
use sanderling_protocol::{Instant, Policy, Refusal, Reply, Request};
use sanderling_transport::process_metrics;

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
struct TierState {
    tier: String,
    state: &'static str,
}

type Labelled<L> = Family<L, Gauge<i64>>;

/// Counters that the server keeps, and gauges that are set when somebody looks.
#[derive(Debug)]
pub(crate) struct NamenodeMetrics {
    registry: RwLock<Registry>,
    requests: Family<RequestLabel, Counter>,
    refusals: Family<RefusalLabel, Counter>,
    read_seconds: Histogram,
    write_seconds: Histogram,
    pub(crate) batches: Counter,
    pub(crate) snapshots: Counter,
    pub(crate) orders: Counter,
    pub(crate) orders_dropped: Counter,
    nodes: Labelled<StateLabel>,
    tier_bytes: Labelled<TierState>,
    gauges: Gauges,
    journal_bytes: Gauge<i64>,
    unsynced_bytes: Gauge<i64>,
    unsynced_seconds: Gauge<f64, AtomicU64>,
}

/// Numbers of the catalog.
#[derive(Debug, Default)]
struct Gauges {
    objects: Gauge<i64>,
    deleted_subtrees: Gauge<i64>,
    catalog_bytes: Gauge<i64>,
    catalog_bytes_max: Gauge<i64>,
    blocks: Gauge<i64>,
    commands: Counter<u64, AtomicU64>,
    drains: Gauge<i64>,
    drain_left_bytes: Gauge<i64>,
    drain_late_bytes: Gauge<i64>,
    drain_unplaced_bytes: Gauge<i64>,
    lost_blocks: Gauge<i64>,
    lost_bytes: Gauge<i64>,
    moved_bytes: Gauge<i64>,
    notices: Gauge<i64>,
    room_bytes: Gauge<i64>,
    reserve_bytes: Gauge<i64>,
    reserve_missing_bytes: Gauge<i64>,
    departures: Gauge<i64>,
    departures_fit: Gauge<i64>,
    events: Gauge<i64>,
    journal_lost_records: Gauge<i64>,
    journal_lost_bytes: Gauge<i64>,
}

/// From a cached lookup to a slow disk's sync.
const SECONDS: [f64; 14] = [
    0.000_01, 0.000_03, 0.000_1, 0.000_3, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0,
];

impl Default for NamenodeMetrics {
    fn default() -> Self {
        let metrics = Self {
            registry: RwLock::new(Registry::with_prefix("sanderling_namenode")),
            requests: Family::default(),
            refusals: Family::default(),
            read_seconds: Histogram::new(SECONDS),
            write_seconds: Histogram::new(SECONDS),
            batches: Counter::default(),
            snapshots: Counter::default(),
            orders: Counter::default(),
            orders_dropped: Counter::default(),
            nodes: Family::default(),
            tier_bytes: Family::default(),
            gauges: Gauges::default(),
            journal_bytes: Gauge::default(),
            unsynced_bytes: Gauge::default(),
            unsynced_seconds: Gauge::default(),
        };
        metrics.register_counters();
        metrics.register_gauges();
        metrics
    }
}

impl NamenodeMetrics {
    fn register_counters(&self) {
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
        let help = "Commands in the log since the cluster began";
        all.register("commands", help, self.gauges.commands.clone());
    }

    fn register_gauges(&self) {
        let mut registry = self.registry.write();
        let all = &mut registry;
        let gauges = &self.gauges;
        all.register("nodes", "Nodes by policy and availability", self.nodes.clone());
        let help = "Bytes of the nodes' tiers, by what they are";
        all.register_with_unit("tier", help, Unit::Bytes, self.tier_bytes.clone());
        all.register("objects", "Objects in the catalog", gauges.objects.clone());
        let help = "Deleted subtrees of which something is not freed yet";
        all.register("deleted_subtrees", help, gauges.deleted_subtrees.clone());
        all.register("blocks", "Blocks in the catalog", gauges.blocks.clone());
        let help = "Memory of the catalog by its own account";
        all.register_with_unit("catalog", help, Unit::Bytes, gauges.catalog_bytes.clone());
        let help = "Memory from which on nothing makes the catalog larger";
        all.register_with_unit("catalog_max", help, Unit::Bytes, gauges.catalog_bytes_max.clone());
        all.register("drains", "Nodes that drain or decommission", gauges.drains.clone());
        let help = "Bytes that must still leave draining nodes";
        all.register_with_unit("drain_left", help, Unit::Bytes, gauges.drain_left_bytes.clone());
        let help = "Bytes that will not have left by their deadline, by the forecasts";
        all.register_with_unit("drain_late", help, Unit::Bytes, gauges.drain_late_bytes.clone());
        let help = "Bytes on draining nodes for which no node has room, by the forecasts";
        let unplaced = gauges.drain_unplaced_bytes.clone();
        all.register_with_unit("drain_unplaced", help, Unit::Bytes, unplaced);
        all.register("lost_blocks", "Blocks declared lost", gauges.lost_blocks.clone());
        let help = "Bytes declared lost";
        all.register_with_unit("lost", help, Unit::Bytes, gauges.lost_bytes.clone());
        let help = "Bytes moved off draining nodes";
        all.register_with_unit("moved", help, Unit::Bytes, gauges.moved_bytes.clone());
        all.register("notices", "Notices given", gauges.notices.clone());
        all.register("events", "The last event's sequence", gauges.events.clone());
        let help = "Bytes that may still be written";
        all.register_with_unit("room", help, Unit::Bytes, gauges.room_bytes.clone());
        let help = "Bytes of the nodes' tiers that are kept so that nodes can leave";
        all.register_with_unit("reserve", help, Unit::Bytes, gauges.reserve_bytes.clone());
        let help = "Bytes that would find no place if those nodes left now";
        let missing = gauges.reserve_missing_bytes.clone();
        all.register_with_unit("reserve_missing", help, Unit::Bytes, missing);
        let help = "Nodes that must be able to leave at once";
        all.register("departures", help, gauges.departures.clone());
        let help = "1 if so many nodes could leave now without a loss for want of room, else 0";
        all.register("departures_fit", help, gauges.departures_fit.clone());
        let help = "Bytes of journal on disk";
        all.register_with_unit("journal", help, Unit::Bytes, self.journal_bytes.clone());
        let help = "Bytes of acknowledged changes that the disk may not have";
        all.register_with_unit("unsynced", help, Unit::Bytes, self.unsynced_bytes.clone());
        let help = "How long the oldest of them has waited for the disk";
        all.register_with_unit("unsynced", help, Unit::Seconds, self.unsynced_seconds.clone());
        let help = "Records of acknowledged changes that were given up with damaged journal";
        all.register("journal_lost_records", help, gauges.journal_lost_records.clone());
        let help = "Bytes of journal that were given up";
        let lost = gauges.journal_lost_bytes.clone();
        all.register_with_unit("journal_lost", help, Unit::Bytes, lost);
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
    pub(crate) fn took(&self, is_read: bool, elapsed: std::time::Duration) {
        let histogram = if is_read { &self.read_seconds } else { &self.write_seconds };
        histogram.observe(elapsed.as_secs_f64());
    }

    pub(crate) fn set_journal_bytes(&self, bytes: u64) {
        self.journal_bytes.set(signed(bytes));
    }

    pub(crate) fn set_unsynced(&self, bytes: u64, age: std::time::Duration) {
        self.unsynced_bytes.set(signed(bytes));
        self.unsynced_seconds.set(age.as_secs_f64());
    }

    /// Encodes everything as `OpenMetrics`; `ends` is when the first certificate of each kind ends.
    pub(crate) fn text(&self, namenode: &Namenode, now: Instant, ends: &[(&str, i64)]) -> String {
        self.look(namenode, now);
        let mut text = String::new();
        encode_registry(&mut text, &self.registry.read()).expect("a string takes everything");
        text + &process_metrics("sanderling_namenode", ends)
    }

    fn look(&self, namenode: &Namenode, now: Instant) {
        let (catalog, gauges) = (namenode.catalog(), &self.gauges);
        gauges.objects.set(signed(catalog.object_count() as u64));
        gauges.deleted_subtrees.set(signed(catalog.reaping_count() as u64));
        gauges.blocks.set(signed(catalog.block_count() as u64));
        gauges.catalog_bytes.set(signed(catalog.memory_bytes()));
        gauges.catalog_bytes_max.set(signed(namenode.config().memory_max));
        gauges.commands.inner().store(catalog.index(), Ordering::Relaxed);
        gauges.events.set(signed(catalog.event_last()));
        let report = catalog.report();
        gauges.lost_blocks.set(signed(report.blocks));
        gauges.lost_bytes.set(signed(report.bytes));
        gauges.moved_bytes.set(signed(report.moved_bytes));
        gauges.notices.set(signed(report.notices));
        let room = catalog.room();
        gauges.room_bytes.set(signed(room.room_bytes));
        gauges.reserve_bytes.set(signed(room.reserve_bytes));
        gauges.reserve_missing_bytes.set(signed(room.missing_bytes));
        gauges.departures.set(i64::from(room.departures));
        gauges.departures_fit.set(i64::from(room.fits()));
        let lost = catalog.journal_loss();
        gauges.journal_lost_records.set(signed(lost.records));
        gauges.journal_lost_bytes.set(signed(lost.bytes));
        self.look_at_nodes(namenode, now);
    }

    fn look_at_nodes(&self, namenode: &Namenode, now: Instant) {
        self.nodes.clear();
        self.tier_bytes.clear();
        let (mut drains, mut left, mut expected) = (0, 0, Forecast::default());
        let Some(Ok(Reply::Nodes(nodes))) = namenode.read(now, &Request::Nodes { all: true })
        else {
            return;
        };
        for node in nodes {
            let labels =
                StateLabel { policy: node.policy.name(), availability: node.availability.name() };
            self.nodes.get_or_create(&labels).inc();
            if node.policy.is_draining() {
                drains += 1;
                left += node.drain.map_or(0, |drain| drain.left_bytes);
                let forecast = node.drain.and_then(|drain| drain.forecast).unwrap_or_default();
                expected.late_bytes += forecast.late_bytes;
                expected.unplaced_bytes += forecast.unplaced_bytes;
            }
            if node.policy != Policy::Gone {
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
        self.gauges.drains.set(drains);
        self.gauges.drain_left_bytes.set(signed(left));
        self.gauges.drain_late_bytes.set(signed(expected.late_bytes));
        self.gauges.drain_unplaced_bytes.set(signed(expected.unplaced_bytes));
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
