//! The metrics of a datanode that are read from its parts when Prometheus scrapes it.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use sanderling_protocol::node::Load;
use sanderling_transport::{Memory, process};

use crate::counters::{Gauge64, KindLabel, registered};
use crate::damage::Damages;
use crate::local::Local;
use crate::scrub::Scrub;
use crate::store::BlockStore;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TierLabel {
    tier: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabel {
    direction: &'static str,
}

/// The gauges of one datanode.
#[derive(Debug)]
pub(crate) struct DatanodeMetrics {
    registry: Registry,
    /// Held while the gauges are set and written out, so that two scrapes do not mix.
    scrape: Mutex<()>,
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
    objects_unwanted: Gauge64,
    certificates: Family<KindLabel, Gauge<i64>>,
    local: LocalGauges,
    scrub: ScrubGauges,
    memory: MemoryGauges,
    process: ProcessMetrics,
}

#[derive(Debug)]
struct LocalGauges {
    connections: Gauge64,
    turned_away: Gauge64,
    leases: Gauge64,
    leased_bytes: Gauge64,
    refused: Gauge64,
    oldest_lease: Gauge64,
}

#[derive(Debug)]
struct ScrubGauges {
    bytes: Gauge64,
    passes: Gauge64,
    last_pass: Gauge64,
    damaged_blocks: Gauge64,
}

#[derive(Debug)]
struct MemoryGauges {
    index_bytes: Gauge64,
    index_bytes_max: Gauge64,
    request_bytes: Gauge64,
}

/// The metrics of the process, under the names that every program uses.
#[derive(Debug)]
struct ProcessMetrics {
    registry: Registry,
    cpu: Counter<f64, AtomicU64>,
    resident_bytes: Gauge64,
}

impl LocalGauges {
    fn new(to: &mut Registry) -> Self {
        let connections = "Connections of clients on the same machine";
        let turned_away =
            "Connections of this machine that were turned away: other users, or too many";
        let leases = "Ranges of the arena that clients on the same machine look at";
        let bytes = "Bytes of those ranges; a block that is gone keeps its memory as long";
        let refused = "Leases not given because too much was held; the bytes were copied";
        let oldest = "Age of the oldest lease at its holder's last packet";
        Self {
            connections: registered(to, "local_connections", connections),
            turned_away: registered(to, "local_connections_turned_away", turned_away),
            leases: registered(to, "leases", leases),
            leased_bytes: registered(to, "leased_bytes", bytes),
            refused: registered(to, "leases_refused", refused),
            oldest_lease: registered(to, "oldest_lease_seconds", oldest),
        }
    }

    fn set(&self, local: &Local) {
        self.connections.set(local.connections() as u64);
        self.turned_away.set(local.turned_away());
        self.leases.set(local.leases.count());
        self.leased_bytes.set(local.leases.bytes());
        self.refused.set(local.leases.refused());
        self.oldest_lease.set(local.oldest_lease().as_secs());
    }
}

impl ScrubGauges {
    fn new(to: &mut Registry) -> Self {
        let bytes = "Bytes of blocks that the scrub compared with their checksums";
        let passes = "How often the scrub has looked at every block";
        let last = "When the scrub had looked at every block last, in Unix time; 0 for never";
        let damaged = "Blocks found damaged or missing, by reads, pushes, reports and the scrub";
        Self {
            bytes: registered(to, "scrubbed_bytes", bytes),
            passes: registered(to, "scrub_passes", passes),
            last_pass: registered(to, "scrub_last_pass_seconds", last),
            damaged_blocks: registered(to, "damaged_blocks", damaged),
        }
    }

    fn set(&self, scrub: &Scrub, damages: &Damages) {
        self.bytes.set(scrub.bytes());
        self.passes.set(scrub.passes());
        self.last_pass.set(scrub.last_pass());
        self.damaged_blocks.set(damages.found());
    }
}

impl MemoryGauges {
    fn new(to: &mut Registry) -> Self {
        let index = "Memory of the index of blocks by its own account";
        let max = "Memory from which on no block begins or grows; 0 for no bound";
        Self {
            index_bytes: registered(to, "index_bytes", index),
            index_bytes_max: registered(to, "index_max_bytes", max),
            request_bytes: registered(to, "long_request_bytes", "Memory that long requests take"),
        }
    }

    fn set(&self, store: &BlockStore, requests: &Memory) {
        let max = store.index_bytes_max();
        self.index_bytes.set(store.index_bytes());
        self.index_bytes_max.set(if max == u64::MAX { 0 } else { max });
        self.request_bytes.set(requests.used() as u64);
    }
}

impl ProcessMetrics {
    fn new() -> Self {
        let mut to = Registry::default();
        let cpu = registered(&mut to, "process_cpu_seconds", "CPU time in user and system mode");
        let help = "Memory that is mapped in, the faulted part of the arena included";
        let resident_bytes = registered(&mut to, "process_resident_memory_bytes", help);
        Self { registry: to, cpu, resident_bytes }
    }

    fn look(&self) {
        let seconds = process::cpu_time().as_secs_f64();
        self.cpu.inner().store(seconds.to_bits(), Ordering::Relaxed);
        self.resident_bytes.set(process::resident_bytes().unwrap_or_default());
    }
}

/// Returns the registry of a datanode's metrics.
pub(crate) fn registry() -> Registry {
    Registry::with_prefix("sanderling_datanode")
}

impl DatanodeMetrics {
    /// Registers the gauges beside what is registered already.
    pub(crate) fn new(mut registry: Registry) -> Self {
        let to = &mut registry;
        let traffic =
            "Bytes of blocks read and written by clients, pushed to and stored by datanodes";
        let used = "Bytes of a tier in use, rounded up to allocation units";
        let faulted = "Bytes of the arena that were taken from the kernel so far";
        let free_runs = "Free runs of the arena; many of them mean fragmentation";
        let home_blocks = "Blocks whose home is here, by the namenode's last reply";
        let unwanted =
            "Objects that may be of no use and that were not checked with the namenode yet";
        let expiry = "When the first certificate of a kind ends, in Unix time";
        Self {
            scrape: Mutex::new(()),
            traffic: registered(to, "traffic_bytes", traffic),
            tier_capacity: registered(to, "tier_capacity_bytes", "Size of a tier"),
            tier_used: registered(to, "tier_used_bytes", used),
            blocks: registered(to, "blocks", "Blocks held"),
            block_bytes: registered(to, "block_bytes", "Bytes of the blocks held"),
            faulted: registered(to, "arena_faulted_bytes", faulted),
            free_runs: registered(to, "arena_free_runs", free_runs),
            in_flight: registered(to, "requests_in_flight", "Requests being served"),
            fenced: registered(to, "fenced", "1 while the node refuses writes"),
            home_blocks: registered(to, "home_blocks", home_blocks),
            objects_unwanted: registered(to, "objects_unwanted", unwanted),
            certificates: registered(to, "certificate_expiry_timestamp_seconds", expiry),
            local: LocalGauges::new(to),
            scrub: ScrubGauges::new(to),
            memory: MemoryGauges::new(to),
            process: ProcessMetrics::new(),
            registry,
        }
    }

    pub(crate) fn set_memory(&self, store: &BlockStore, requests: &Memory) {
        self.memory.set(store, requests);
    }

    pub(crate) fn set_scrub(&self, scrub: &Scrub, damages: &Damages) {
        self.scrub.set(scrub, damages);
    }

    /// Sets when the first certificate of each kind ends.
    pub(crate) fn set_certificates(&self, ends: &[(&'static str, i64)]) {
        for &(kind, ends) in ends {
            self.certificates.get_or_create(&KindLabel { kind }).set(ends);
        }
    }

    /// Returns all metrics in the text format of OpenMetrics.
    pub(crate) fn text(
        &self,
        store: &BlockStore,
        load: &Load,
        home_blocks: u64,
        local: Option<&Local>,
    ) -> String {
        let _scrape = self.scrape.lock();
        if let Some(local) = local {
            self.local.set(local);
        }
        for capacity in store.tiers().sizes() {
            let label = TierLabel { tier: capacity.tier.to_string() };
            self.tier_capacity.get_or_create(&label).set(capacity.bytes);
            self.tier_used.get_or_create(&label).set(store.tiers().used_bytes(capacity.tier));
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
        self.faulted.set(store.tiers().arena().faulted_bytes());
        self.free_runs.set(store.tiers().arena().free_extents() as u64);
        self.in_flight.set(u64::from(load.requests_in_flight));
        self.fenced.set(u64::from(store.is_fenced()));
        self.home_blocks.set(home_blocks);
        let unwanted = store.tiers().objects().map_or(0, |objects| objects.garbage().len());
        self.objects_unwanted.set(unwanted as u64);
        let mut text = String::new();
        self.process.look();
        encode_registry(&mut text, &self.registry)
            .and_then(|()| encode(&mut text, &self.process.registry))
            .expect("a string takes everything written to it");
        text
    }
}
