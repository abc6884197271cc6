//! The metrics of a datanode in the text format of OpenMetrics: its counters, and what is read from
//! its parts when Prometheus scrapes it.

use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Metric, Registry, Unit};
use sanderling_protocol::node::{Load, TierCapacity};
use sanderling_transport::{Memory, write_process_metrics};

use crate::contact::ContactLog;
use crate::counters::Gauge64;
use crate::local::Local;
use crate::scrub::Scrub;
use crate::store::BlockStore;

/// The parts that metrics are read from.
pub(crate) struct MetricSources<'a> {
    pub(crate) store: &'a BlockStore,
    pub(crate) load: Load,
    pub(crate) home_blocks: u64,
    pub(crate) local: Option<&'a Local>,
    pub(crate) scrub: &'a Scrub,
    pub(crate) requests: &'a Memory,
    pub(crate) contact: &'a ContactLog,
    /// Secrets that are accepted.
    pub(crate) secrets: usize,
    /// When the first certificate of each kind ends.
    pub(crate) certificates: Vec<(&'static str, i64)>,
}

/// The gauges of one scrape.
struct Gauges(Registry);

/// Returns the registry of a datanode's metrics.
pub(crate) fn registry() -> Registry {
    Registry::with_prefix("sanderling_datanode")
}

impl Gauges {
    fn add(&mut self, name: &str, help: &str, value: u64) {
        self.register(name, help, ConstGauge::new(value));
    }

    /// Adds what only rises. `name` is without the ending `_total`.
    fn count(&mut self, name: &str, help: &str, value: u64) {
        self.register(name, help, ConstCounter::new(value));
    }

    /// Adds one gauge for each value of a label.
    fn add_each(
        &mut self,
        (name, label): (&str, &'static str),
        help: &str,
        values: impl IntoIterator<Item = (String, u64)>,
    ) {
        let family: Family<[(&'static str, String); 1], Gauge64> = Family::default();
        for (value, gauge) in values {
            family.get_or_create(&[(label, value)]).set(gauge);
        }
        self.register(name, help, family);
    }

    /// Adds one counter for each value of a label.
    fn count_each(
        &mut self,
        (name, label): (&str, &'static str),
        help: &str,
        values: impl IntoIterator<Item = (&'static str, u64)>,
    ) {
        let family: Family<[(&'static str, &'static str); 1], Counter> = Family::default();
        for (value, count) in values {
            family.get_or_create(&[(label, value)]).inc_by(count);
        }
        self.register(name, help, family);
    }

    /// Registers a metric under its name, with the unit that the name ends with.
    fn register(&mut self, name: &str, help: &str, metric: impl Metric) {
        match name.rsplit_once('_') {
            Some((start, "bytes")) => {
                self.0.register_with_unit(start, help, Unit::Bytes, metric);
            }
            Some((start, "seconds")) => {
                self.0.register_with_unit(start, help, Unit::Seconds, metric);
            }
            _ => self.0.register(name, help, metric),
        }
    }
}

impl MetricSources<'_> {
    /// Returns all metrics: these, and `counters`.
    pub(crate) fn text(&self, counters: &Registry) -> String {
        let mut gauges = Gauges(registry());
        self.add_store(&mut gauges);
        self.add_blocks(&mut gauges);
        self.add_contact(&mut gauges);
        self.add_local(&mut gauges);
        let mut text = String::new();
        encode_registry(&mut text, counters)
            .and_then(|()| encode_registry(&mut text, &gauges.0))
            .expect("a string takes everything written to it");
        write_process_metrics(&mut text, "sanderling_datanode", &self.certificates);
        text
    }

    fn add_store(&self, to: &mut Gauges) {
        let (load, tiers) = (&self.load, self.store.tiers());
        let traffic = [
            ("read", load.read_bytes_total),
            ("written", load.written_bytes_total),
            ("pushed", load.pushed_bytes_total),
            ("stored", load.stored_bytes_total),
            ("uploaded", self.store.uploaded_bytes()),
        ];
        let help = "Bytes of blocks read and written by clients, pushed to and stored by \
                    datanodes, and read by datanodes for the stores of durable directories";
        to.count_each(("traffic_bytes", "direction"), help, traffic);
        let sizes = tiers.sizes().into_iter().map(|it| (it.tier.to_string(), it.bytes));
        to.add_each(("tier_capacity_bytes", "tier"), "Size of a tier", sizes);
        let used = |it: TierCapacity| (it.tier.to_string(), tiers.used_bytes(it.tier));
        let help = "Bytes of a tier in use, rounded up to allocation units";
        to.add_each(("tier_used_bytes", "tier"), help, tiers.sizes().into_iter().map(used));
        let help = "Bytes of the arena that were taken from the kernel so far";
        to.add("arena_faulted_bytes", help, tiers.arena().faulted_bytes());
        let help = "Free runs of the arena; many of them mean fragmentation";
        to.add("arena_free_runs", help, tiers.arena().free_extents() as u64);
        let unwanted = tiers.objects().map_or(0, |objects| objects.garbage().len());
        let help = "Objects that may be of no use and were not checked with the namenode yet";
        to.add("objects_unwanted", help, unwanted as u64);
        let max = Some(self.store.index_bytes_max()).filter(|max| *max < u64::MAX);
        let help = "Memory of the index of blocks by its own account";
        to.add("index_bytes", help, self.store.index_bytes());
        let help = "Memory from which on no block begins or grows; 0 for no bound";
        to.add("index_max_bytes", help, max.unwrap_or_default());
        let requests = self.requests.used() as u64;
        to.add("long_request_bytes", "Memory that long requests take", requests);
    }

    fn add_blocks(&self, to: &mut Gauges) {
        let (store, scrub) = (self.store, self.scrub);
        to.add("blocks", "Blocks held", self.load.blocks);
        to.add("block_bytes", "Bytes of the blocks held", store.bytes());
        let in_flight = self.load.requests_in_flight.into();
        to.add("requests_in_flight", "Requests being served", in_flight);
        to.add("fenced", "1 while the node refuses writes", store.is_fenced().into());
        let help = "Blocks whose home is here, by the namenode's last reply";
        to.add("home_blocks", help, self.home_blocks);
        let help = "Bytes of blocks that the scrub compared with their checksums";
        to.count("scrubbed_bytes", help, scrub.bytes());
        to.count("scrub_passes", "How often the scrub has looked at every block", scrub.passes());
        let help = "When the scrub had looked at every block last, in Unix time; 0 for never";
        to.add("scrub_last_pass_timestamp_seconds", help, scrub.last_pass());
        let help = "Blocks found damaged or missing, by reads, pushes, reports and the scrub";
        to.count("damaged_blocks", help, store.damages().found());
    }

    fn add_contact(&self, to: &mut Gauges) {
        let help = "1 while the namenode answers";
        to.add("namenode_up", help, self.contact.is_namenode_up().into());
        let help = "How often the namenode gave a node of this process up although it ran";
        to.count("given_up", help, self.contact.unexpected_times());
        let help = "Secrets that are accepted: 2 while one replaces another, 0 for none";
        to.add("secrets", help, self.secrets as u64);
    }

    fn add_local(&self, to: &mut Gauges) {
        let of = |read: fn(&Local) -> u64| self.local.map_or(0, read);
        let connections = of(|local| local.connections() as u64);
        to.add("local_connections", "Connections of clients on the same machine", connections);
        let help = "Connections of this machine that were turned away: other users, or too many";
        to.count("local_connections_turned_away", help, of(Local::turned_away));
        let help = "Ranges of the arena that clients on the same machine look at";
        to.add("leases", help, of(|local| local.leases.count()));
        let help = "Bytes of those ranges; a block that is gone keeps its memory as long";
        to.add("leased_bytes", help, of(|local| local.leases.bytes()));
        let help = "Leases not given because too much was held; the bytes were copied";
        to.count("leases_refused", help, of(|local| local.leases.refused()));
        let help = "Age of the oldest lease at its holder's last packet";
        to.add("oldest_lease_seconds", help, of(|local| local.oldest_lease().as_secs()));
    }
}
