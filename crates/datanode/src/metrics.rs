//! What a datanode tells of itself to Prometheus.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use sanderling_protocol::node::Load;
use sanderling_protocol::{Op, Refusal, Tier};
use sanderling_transport::{Memory, process};

use crate::damage::Damages;
use crate::local::Local;
use crate::scrub::Scrubbed;
use crate::store::BlockStore;

type Gauge64 = Gauge<u64, AtomicU64>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OpLabel {
    op: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TierLabel {
    tier: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabel {
    direction: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SourceLabel {
    source: String,
}

/// The figures of one datanode.
#[derive(Debug)]
pub(crate) struct DatanodeMetrics {
    registry: Registry,
    /// Held while the gauges are set and written out, so that two scrapes do not mix.
    scrape: Mutex<()>,
    requests: Family<OpLabel, Counter>,
    /// The counters of `requests` by number of operation: the family would take a lock each time.
    requests_by_op: [Counter; 13],
    refusals: Family<KindLabel, Counter>,
    traffic: Family<DirectionLabel, Gauge64>,
    tier_capacity: Family<TierLabel, Gauge64>,
    tier_used: Family<TierLabel, Gauge64>,
    blocks: Gauge64,
    block_bytes: Gauge64,
    faulted: Gauge64,
    free_runs: Gauge64,
    in_flight: Gauge64,
    fenced: Gauge64,
    home_blocks: Gauge64,
    notice_sources: Family<SourceLabel, Gauge64>,
    notices: Family<SourceLabel, Counter>,
    pub(crate) heartbeats_failed: Counter,
    pub(crate) registrations: Counter,
    pub(crate) objects_deleted: Counter,
    objects_unwanted: Gauge64,
    process: ProcessMetrics,
    local_connections: Gauge64,
    local_turned_away: Gauge64,
    leases: Gauge64,
    leased_bytes: Gauge64,
    leases_refused: Gauge64,
    oldest_lease: Gauge64,
    scrubbed_bytes: Gauge64,
    scrub_passes: Gauge64,
    scrub_last_pass: Gauge64,
    damaged_blocks: Gauge64,
    certificates: Family<KindLabel, Gauge<i64>>,
    index_bytes: Gauge64,
    index_bytes_max: Gauge64,
    request_bytes: Gauge64,
}

/// What every program tells of its process, under the names that every program uses.
#[derive(Debug)]
struct ProcessMetrics {
    registry: Registry,
    cpu: Counter<f64, AtomicU64>,
    resident_bytes: Gauge64,
}

impl ProcessMetrics {
    fn new() -> Self {
        let (cpu, resident_bytes) = (Counter::default(), Gauge64::default());
        let mut registry = Registry::default();
        let help = "CPU time in user and system mode";
        registry.register("process_cpu_seconds", help, Counter::clone(&cpu));
        let help = "Memory that is mapped in, the faulted part of the arena included";
        let resident = Gauge64::clone(&resident_bytes);
        registry.register("process_resident_memory_bytes", help, resident);
        Self { registry, cpu, resident_bytes }
    }

    fn look(&self) {
        let seconds = process::cpu_time().as_secs_f64();
        self.cpu.inner().store(seconds.to_bits(), Ordering::Relaxed);
        self.resident_bytes.set(process::resident_bytes().unwrap_or_default());
    }
}

impl DatanodeMetrics {
    pub(crate) fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("sanderling_datanode"),
            scrape: Mutex::new(()),
            requests: Family::default(),
            requests_by_op: std::array::from_fn(|_| Counter::default()),
            refusals: Family::default(),
            traffic: Family::default(),
            tier_capacity: Family::default(),
            tier_used: Family::default(),
            blocks: Gauge64::default(),
            block_bytes: Gauge64::default(),
            faulted: Gauge64::default(),
            free_runs: Gauge64::default(),
            in_flight: Gauge64::default(),
            fenced: Gauge64::default(),
            home_blocks: Gauge64::default(),
            notice_sources: Family::default(),
            notices: Family::default(),
            heartbeats_failed: Counter::default(),
            registrations: Counter::default(),
            objects_deleted: Counter::default(),
            objects_unwanted: Gauge64::default(),
            process: ProcessMetrics::new(),
            local_connections: Gauge64::default(),
            local_turned_away: Gauge64::default(),
            leases: Gauge64::default(),
            leased_bytes: Gauge64::default(),
            leases_refused: Gauge64::default(),
            oldest_lease: Gauge64::default(),
            scrubbed_bytes: Gauge64::default(),
            scrub_passes: Gauge64::default(),
            scrub_last_pass: Gauge64::default(),
            damaged_blocks: Gauge64::default(),
            certificates: Family::default(),
            index_bytes: Gauge64::default(),
            index_bytes_max: Gauge64::default(),
            request_bytes: Gauge64::default(),
        };
        for number in 1..metrics.requests_by_op.len() {
            let op = u8::try_from(number).ok().and_then(Op::from_wire);
            let op = op.expect("operations are numbered from 1 to 11");
            let label = OpLabel { op: op_name(op) };
            metrics.requests_by_op[number] = metrics.requests.get_or_create_owned(&label);
        }
        metrics.register_all();
        metrics
    }

    fn register_all(&mut self) {
        let registry = &mut self.registry;
        registry.register("requests", "Requests received, by operation", self.requests.clone());
        registry.register(
            "refusals",
            "Requests refused, by kind of refusal",
            self.refusals.clone(),
        );
        let help = "Bytes of blocks read and written by clients, pushed to and stored by datanodes";
        registry.register("traffic_bytes", help, self.traffic.clone());
        registry.register("tier_capacity_bytes", "Size of a tier", self.tier_capacity.clone());
        let help = "Bytes of a tier in use, rounded up to allocation units";
        registry.register("tier_used_bytes", help, self.tier_used.clone());
        registry.register("blocks", "Blocks held", self.blocks.clone());
        registry.register("block_bytes", "Bytes of the blocks held", self.block_bytes.clone());
        let help = "Bytes of the arena that were taken from the kernel so far";
        registry.register("arena_faulted_bytes", help, self.faulted.clone());
        let help = "Free runs of the arena; many of them mean fragmentation";
        registry.register("arena_free_runs", help, self.free_runs.clone());
        let help = "Requests being served";
        registry.register("requests_in_flight", help, self.in_flight.clone());
        registry.register("fenced", "1 while the node refuses writes", self.fenced.clone());
        let help = "Blocks whose home is here, by the namenode's last word";
        registry.register("home_blocks", help, self.home_blocks.clone());
        let help = "1 while a source of notices answers, 0 while it fails";
        registry.register("notice_source_up", help, self.notice_sources.clone());
        let help = "Notices given, by source";
        registry.register("notices", help, self.notices.clone());
        let help = "Heartbeats that the namenode did not answer";
        registry.register("heartbeats_failed", help, self.heartbeats_failed.clone());
        let help = "Registrations with the namenode";
        registry.register("registrations", help, self.registrations.clone());
        let help = "Objects deleted from the object tier because no node serves them";
        registry.register("objects_deleted", help, self.objects_deleted.clone());
        let help = "Objects that may be of no use and of which the namenode was not asked yet";
        registry.register("objects_unwanted", help, self.objects_unwanted.clone());
        let help = "When the first certificate of a kind ends, in Unix time";
        registry.register("certificate_expiry_timestamp_seconds", help, self.certificates.clone());
        self.register_local();
        self.register_scrub();
        self.register_memory();
    }

    fn register_memory(&mut self) {
        let registry = &mut self.registry;
        let help = "Memory of the index of blocks by its own account";
        registry.register("index_bytes", help, self.index_bytes.clone());
        let help = "Memory from which on no block begins or grows; 0 for no bound";
        registry.register("index_max_bytes", help, self.index_bytes_max.clone());
        let help = "Memory that long requests take";
        registry.register("long_request_bytes", help, self.request_bytes.clone());
    }

    pub(crate) fn set_memory(&self, store: &BlockStore, requests: &Memory) {
        let max = store.index_bytes_max();
        self.index_bytes.set(store.index_bytes());
        self.index_bytes_max.set(if max == u64::MAX { 0 } else { max });
        self.request_bytes.set(requests.used() as u64);
    }

    fn register_scrub(&mut self) {
        let registry = &mut self.registry;
        let help = "Bytes of blocks that the scrub compared with their checksums";
        registry.register("scrubbed_bytes", help, self.scrubbed_bytes.clone());
        let help = "How often the scrub has looked at every block";
        registry.register("scrub_passes", help, self.scrub_passes.clone());
        let help = "When the scrub had looked at every block last, in Unix time; 0 for never";
        registry.register("scrub_last_pass_seconds", help, self.scrub_last_pass.clone());
        let help = "Blocks found damaged or missing, by reads, pushes, reports and the scrub";
        registry.register("damaged_blocks", help, self.damaged_blocks.clone());
    }

    pub(crate) fn set_scrubbed(&self, scrubbed: &Scrubbed, damages: &Damages) {
        self.scrubbed_bytes.set(scrubbed.bytes());
        self.scrub_passes.set(scrubbed.passes());
        self.scrub_last_pass.set(scrubbed.last_pass());
        self.damaged_blocks.set(damages.found());
    }

    /// Takes when the first certificate of each kind ends.
    pub(crate) fn set_certificates(&self, ends: &[(&'static str, i64)]) {
        for &(kind, ends) in ends {
            self.certificates.get_or_create(&KindLabel { kind }).set(ends);
        }
    }

    fn register_local(&mut self) {
        let registry = &mut self.registry;
        let help = "Connections of clients on the same machine";
        registry.register("local_connections", help, self.local_connections.clone());
        let help = "Connections of this machine that were turned away: other users, or too many";
        registry.register("local_connections_turned_away", help, self.local_turned_away.clone());
        let help = "Ranges of the arena that clients on the same machine look at";
        registry.register("leases", help, self.leases.clone());
        let help = "Bytes of those ranges; a block that is gone keeps its memory as long";
        registry.register("leased_bytes", help, self.leased_bytes.clone());
        let help = "Leases not given because too much was held; the bytes were copied";
        registry.register("leases_refused", help, self.leases_refused.clone());
        let help = "Age of the oldest lease at the last word of its holder";
        registry.register("oldest_lease_seconds", help, self.oldest_lease.clone());
    }

    fn set_local(&self, local: &Local) {
        self.local_connections.set(local.connections() as u64);
        self.local_turned_away.set(local.turned_away());
        self.leases.set(local.leases.count());
        self.leased_bytes.set(local.leases.bytes());
        self.leases_refused.set(local.leases.refused());
        self.oldest_lease.set(local.oldest_lease().as_secs());
    }

    /// Says whether a source of notices answered.
    pub(crate) fn notice_source(&self, source: &str, is_up: bool) {
        let label = SourceLabel { source: source.to_owned() };
        self.notice_sources.get_or_create(&label).set(u64::from(is_up));
    }

    /// Counts a notice of a source.
    pub(crate) fn count_notice(&self, source: &str) {
        self.notices.get_or_create(&SourceLabel { source: source.to_owned() }).inc();
    }

    pub(crate) fn count_request(&self, op: Op) {
        self.requests_by_op[op as usize].inc();
    }

    pub(crate) fn count_refusal(&self, refusal: &Refusal) {
        self.refusals.get_or_create(&KindLabel { kind: refusal.name() }).inc();
    }

    /// Returns all figures in the text format of OpenMetrics.
    pub(crate) fn text(
        &self,
        store: &BlockStore,
        load: &Load,
        home_blocks: u64,
        local: Option<&Local>,
    ) -> String {
        let _scrape = self.scrape.lock();
        if let Some(local) = local {
            self.set_local(local);
        }
        for capacity in store.tiers() {
            let label = TierLabel { tier: capacity.tier.to_string() };
            self.tier_capacity.get_or_create(&label).set(capacity.bytes);
            let used = match capacity.tier {
                Tier::Dram => load.dram_used_bytes,
                Tier::Disk => load.disk_used_bytes,
                Tier::Object => store.object_used_bytes(),
            };
            self.tier_used.get_or_create(&label).set(used);
        }
        for (direction, bytes) in [
            ("read", load.read_bytes_total),
            ("written", load.written_bytes_total),
            ("pushed", load.pushed_bytes_total),
            ("stored", load.stored_bytes_total),
        ] {
            self.traffic.get_or_create(&DirectionLabel { direction }).set(bytes);
        }
        self.blocks.set(load.blocks);
        self.block_bytes.set(store.bytes());
        self.faulted.set(store.arena().faulted_bytes());
        self.free_runs.set(store.arena().free_extents() as u64);
        self.in_flight.set(u64::from(load.requests_in_flight));
        self.fenced.set(u64::from(store.is_fenced()));
        self.home_blocks.set(home_blocks);
        let unwanted = store.objects.as_ref().map_or(0, |objects| objects.garbage.len());
        self.objects_unwanted.set(unwanted as u64);
        let mut text = String::new();
        self.process.look();
        encode_registry(&mut text, &self.registry)
            .and_then(|()| encode(&mut text, &self.process.registry))
            .expect("a string takes everything written to it");
        text
    }
}

const fn op_name(op: Op) -> &'static str {
    match op {
        Op::Hello => "hello",
        Op::Meta => "meta",
        Op::Order => "order",
        Op::Read => "read",
        Op::ReadMany => "read_many",
        Op::Write => "write",
        Op::Store => "store",
        Op::LocalEndpoint => "local_endpoint",
        Op::Lease => "lease",
        Op::Return => "return",
        Op::Stage => "stage",
        Op::Fill => "fill",
    }
}
