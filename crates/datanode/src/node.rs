//! The parts of a running datanode, put together.

use std::sync::Arc;

use prometheus_client::registry::Registry;
use sanderling_transport::{Memory, Pool, Revocations, Secret};

use crate::activity::Activity;
use crate::clock::ProcessClock;
use crate::counters::Counters;
use crate::durable::{ClientReads, DurableStores};
use crate::join::{Addresses, Joiner};
use crate::link::Link;
use crate::local::Local;
use crate::membership::Membership;
use crate::metrics::{MetricSources, registry};
use crate::namenode::{NamenodeLink, NamenodePools};
use crate::options::DatanodeOptions;
use crate::push::Pusher;
use crate::scrub::Scrub;
use crate::service::BlockService;
use crate::store::BlockStore;
use crate::upload::Uploader;

/// A running datanode. Only the modules that start and stop its parts, and its HTTP pages, use the
/// whole of it.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) options: DatanodeOptions,
    pub(crate) store: Arc<BlockStore>,
    pub(crate) membership: Arc<Membership>,
    pub(crate) joiner: Joiner,
    pub(crate) service: Arc<BlockService>,
    pub(crate) local: Option<Arc<Local>>,
    /// The stores of durable directories that this node reaches.
    pub(crate) stores: Arc<DurableStores>,
    pub(crate) scrub: Arc<Scrub>,
    pub(crate) counters: Arc<Counters>,
    /// Memory for long requests, of all incarnations.
    pub(crate) memory: Memory,
    activity: Arc<Activity>,
    registry: Registry,
}

impl Node {
    /// Puts a datanode together that is no member yet.
    pub(crate) fn new(
        mut options: DatanodeOptions,
        (store, stores): (BlockStore, Arc<DurableStores>),
        namenode: NamenodePools,
        peers: Pool,
        addresses: Addresses,
        local: Option<Local>,
        memory: Memory,
    ) -> Self {
        let revocations = Revocations::lasting(Some(options.revocations_age_max));
        options.security.revocations = Arc::new(revocations);
        let clock = ProcessClock::start();
        let mut registry = registry();
        let counters = Arc::new(Counters::new(&mut registry));
        let store = Arc::new(store);
        if options.egress_limit.is_none() {
            let blocks = Arc::clone(&store);
            stores.yield_to(move || ClientReads {
                bytes: blocks.sent_bytes(),
                is_leaving: blocks.is_fenced(),
            });
        }
        let link = Link::new(options.egress_limit, options.pushes_in_flight_max, clock);
        let link = Arc::new(link);
        let activity = Arc::new(Activity::new(Arc::clone(&store), Arc::clone(&link)));
        let namenode = NamenodeLink::new(namenode, peers.clone(), &options);
        let membership =
            Membership::new(&options, namenode, clock, Arc::clone(&store), Arc::clone(&link));
        let membership = Arc::new(membership);
        let (blocks, member) = (|| Arc::clone(&store), || Arc::clone(&membership));
        let (active, counted) = (|| Arc::clone(&activity), || Arc::clone(&counters));
        let address = addresses.blocks.clone();
        let uploader = Uploader::new(Arc::clone(&stores), member(), peers.clone(), address);
        let pusher = Pusher::new(&options, blocks(), member(), Arc::clone(&link), peers);
        let endpoint = local.as_ref().map(|local| local.endpoint.clone());
        let service = BlockService::new(
            blocks(),
            member(),
            link,
            active(),
            counted(),
            (pusher, uploader),
            endpoint,
        );
        Self {
            joiner: Joiner::new(&options, addresses, member(), blocks(), active(), counted()),
            service: Arc::new(service),
            local: local.map(Arc::new),
            stores,
            scrub: Arc::new(Scrub::new(blocks(), active())),
            options,
            store,
            membership,
            counters,
            memory,
            activity,
            registry,
        }
    }

    /// Returns all metrics in the text format of OpenMetrics.
    pub(crate) fn metrics_text(&self) -> String {
        let registration = *self.membership.registration().borrow();
        let sources = MetricSources {
            store: &self.store,
            load: self.activity.load(),
            home_blocks: registration.home_blocks.unwrap_or_default(),
            local: self.local.as_deref(),
            scrub: &self.scrub,
            requests: &self.memory,
            contact: self.membership.contact(),
            secrets: self.options.security.secret.as_ref().map_or(0, Secret::accepted),
            certificates: self.options.security.expiries().timestamps(),
        };
        sources.text(&self.registry)
    }
}
