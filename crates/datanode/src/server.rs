//! A datanode as a value: start it, drain it, stop it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::service::TowerToHyperService;
use sanderling_core::datanode::CallFailure;
use sanderling_core::datanode::repeat::{NOTICE_RETRY_INTERVAL, ends_drain};
use sanderling_core::notices::{Notice, SIGTERM};
use sanderling_protocol::message::Role;
use sanderling_protocol::{ClusterId, NodeId, Policy, Refusal};
use sanderling_transport::{
    Buffers, CallError, ConnectionOptions, HttpOptions, KnownGeneration, ListenError, Memory, Pool,
    PoolOptions, Security, ServeOptions, available_bytes, listen, listen_there_or_free, serve,
    serve_pages,
};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;

use crate::admission::Admission;
use crate::agent::watch;
use crate::allocator::UNIT_BYTES;
use crate::arena::Arena;
use crate::block_ends::look_up_ends;
use crate::budget::Budget;
use crate::control::Control;
use crate::damage_report::report_damage;
use crate::disk::DiskTier;
use crate::durable::DurableStores;
use crate::durable::report::report_stores;
use crate::error::{DatanodeFailure, DatanodeStartError, DrainEnd};
use crate::http::router;
use crate::join::{Addresses, MembershipChange};
use crate::local::{Local, serve_listener};
use crate::namenode::{NamenodePools, failure};
use crate::node::Node;
use crate::object::ObjectTier;
use crate::object::collect::Collector;
use crate::options::DatanodeOptions;
use crate::store::BlockStore;
use crate::tiers::Tiers;

/// Bytes of unused buffers for long requests that are kept: most bodies go straight into the arena.
/// Eight bodies of 1 MiB. Chosen, not measured.
const BUFFERS_KEPT_BYTES_MAX: usize = 8 << 20;

/// A running datanode. It stops when it is dropped, without waiting; [`Self::stop`] waits.
#[derive(Debug)]
pub struct DatanodeServer {
    node: Arc<Node>,
    address: SocketAddr,
    http_address: Option<SocketAddr>,
    tasks: Vec<JoinHandle<()>>,
    failure: watch::Receiver<Option<DatanodeFailure>>,
    stop: DropGuard,
    /// After `stop`: its tasks see that they are to end.
    control: Arc<Control>,
}

impl DatanodeServer {
    /// Takes memory and disk, listens, and joins the cluster. Memory is faulted in the background.
    ///
    /// # Errors
    /// [`DatanodeStartError`]: correct the cause that it names, then start again. Nothing runs and
    /// nothing was taken.
    pub async fn start(options: DatanodeOptions) -> Result<Self, DatanodeStartError> {
        let budget = Budget::of(&options)?;
        let arena = Arc::new(arena(options.dram_bytes)?);
        let listener = bind(options.listen, &options.security).await?;
        let http = match options.http_listen {
            Some(address) if options.http_may_move => {
                Some(listen_there_or_free(address, &options.security).await?)
            }
            Some(address) => Some(bind(address, &options.security).await?),
            None => None,
        };
        let (address, advertised) = addresses(&listener, &options)?;
        let (http_address, http_advertised) = match &http {
            Some(http) => addresses(http, &options).map(|(a, text)| (Some(a), text))?,
            None => (None, String::new()),
        };
        let disk = match &options.disk {
            Some(disk) => {
                let key = options.encryption.as_ref();
                Some(Arc::new(DiskTier::open(&disk.directory, disk.bytes, key)?))
            }
            None => None,
        };
        let objects = match options.object.clone() {
            Some(object) => Some(ObjectTier::open(object, options.encryption.clone()).await?),
            None => None,
        };
        let stores = DurableStores::open(&options.durable, budget.joined_parts).await?;
        let stores = Arc::new(stores);
        let store = BlockStore::new(Tiers::new(Arc::clone(&arena), disk, objects), budget.index);
        let credentials = options.security.credentials(Role::Datanode);
        let connection = ConnectionOptions { credentials, ..ConnectionOptions::default() };
        let role = Role::Datanode;
        let control = Control::start().map_err(|cause| DatanodeStartError::Thread { cause })?;
        let peers = PoolOptions { role, connection, ..PoolOptions::default() };
        let namenode = namenode_pools(&peers, &control);
        let local = Local::open(&options, &arena)?;
        let options = with_host(options);
        let addresses = Addresses { blocks: advertised, http: http_advertised };
        let memory = Memory::new(budget.requests);
        let node = Arc::new(Node::new(
            options,
            (store, stores),
            namenode,
            Pool::new(peers),
            addresses,
            local,
            memory,
        ));
        // Before it joins: a node that cannot read the store must not be given blocks in it.
        let is_checked = check_key(&node.store, greeted(&node).await?).await?;
        node.joiner.join_first().await?;
        if !is_checked {
            check_key(&node.store, node.membership.identity().cluster).await?;
        }
        let http = match http {
            Some(http) => Some(control.adopt(http).map_err(|cause| {
                let address = http_address.map(|address| address.to_string()).unwrap_or_default();
                ListenError::Io { address, cause }
            })?),
            None => None,
        };
        Ok(Self::run(node, arena, control, listener, http, address, http_address))
    }

    fn run(
        node: Arc<Node>,
        arena: Arc<Arena>,
        control: Control,
        listener: TcpListener,
        http: Option<TcpListener>,
        address: SocketAddr,
        http_address: Option<SocketAddr>,
    ) -> Self {
        let stop = CancellationToken::new();
        let (failed, failure) = watch::channel(None);
        let (control, own) = (Arc::new(control), Arc::clone(&node));
        let life = Lifecycle {
            node: own,
            control: Arc::clone(&control),
            listener,
            stop: stop.clone(),
            failed,
        };
        let mut tasks = vec![tokio::spawn(life.run()), tokio::spawn(fault(arena, stop.clone()))];
        for notices in node.options.notices.clone() {
            let (membership, counters) = (Arc::clone(&node.membership), Arc::clone(&node.counters));
            tasks.push(control.spawn(watch(membership, counters, notices, stop.clone())));
        }
        if let Some(objects) = node.store.tiers().objects().map(Arc::clone) {
            let (membership, counters) = (Arc::clone(&node.membership), Arc::clone(&node.counters));
            let collector = Collector { objects, membership, counters };
            tasks.push(tokio::spawn(collector.run(stop.clone())));
        }
        if !node.options.durable.is_empty() {
            let names = node.options.durable.iter().map(|store| store.name.clone()).collect();
            let membership = Arc::clone(&node.membership);
            tasks.push(control.spawn(report_stores(membership, names, stop.clone())));
            tasks.push(tokio::spawn(Arc::clone(&node.stores).end_left(stop.clone())));
        }
        let (membership, store) = (Arc::clone(&node.membership), Arc::clone(&node.store));
        tasks.push(control.spawn(report_damage(membership, store, stop.clone())));
        let (membership, store) = (Arc::clone(&node.membership), Arc::clone(&node.store));
        tasks.push(control.spawn(look_up_ends(membership, store, stop.clone())));
        if let Some(rate) = node.options.scrub_bytes_per_second {
            tasks.push(tokio::spawn(Arc::clone(&node.scrub).run(rate, stop.clone())));
        }
        if let Some(local) = node.local.clone() {
            let service = Arc::clone(&node.service);
            tasks.push(tokio::spawn(serve_listener(local, service, stop.clone())));
        }
        if let Some(http) = http {
            let pages = TowerToHyperService::new(router(Arc::clone(&node)));
            let tls = node.options.security.tls.clone();
            let options = HttpOptions { tls, ..HttpOptions::default() };
            let served = serve_pages(http, pages, options, stop.clone());
            tasks.push(control.spawn(served));
        }
        let stop = stop.drop_guard();
        Self { node, address, http_address, tasks, failure, stop, control }
    }

    /// Returns the address at which the datanode serves blocks.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address at which the datanode serves HTTP; `None` if it does not.
    #[must_use]
    pub const fn http_address(&self) -> Option<SocketAddr> {
        self.http_address
    }

    /// Returns the incarnation's id. It changes when the namenode gave the node up and it joined
    /// anew.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.node.membership.id()
    }

    /// Returns the id of the cluster that the datanode has joined.
    #[must_use]
    pub fn cluster(&self) -> ClusterId {
        self.node.membership.identity().cluster.unwrap_or_default()
    }

    /// Returns when the node cannot go on; never, as long as it can.
    pub async fn failed(&self) -> DatanodeFailure {
        let mut failure = self.failure.clone();
        let failed = failure.wait_for(Option::is_some).await.map(|failure| failure.clone());
        failed.ok().flatten().unwrap_or(DatanodeFailure::Ended { part: "datanode" })
    }

    /// Gives the node its notice: fences it, reports it to the namenode, and waits until no block
    /// has its home here or the deadline has passed. Reads are served all the while, and after.
    pub async fn drain(&self, deadline: Duration, reason: &str) -> DrainEnd {
        let until = Instant::now() + deadline;
        let (source, reason) = (SIGTERM.to_owned(), reason.to_owned());
        let notice = Notice { source, deadline: self.node.membership.clock().at(until), reason };
        tracing::info!(node = %self.node(), ?deadline, reason = notice.reason, "drain starts");
        let end = match timeout_at(until, self.notice(&notice)).await {
            Ok(Ok(())) => self.wait_until_drained(until).await,
            Ok(Err(refusal)) => DrainEnd::NoticeRefused { refusal },
            Err(_) => DrainEnd::DeadlinePassed { home_blocks: None },
        };
        tracing::info!(node = %self.node(), ?end, "drain ends");
        end
    }

    /// Gives the namenode the notice until it takes it; the error is its refusal for good.
    async fn notice(&self, notice: &Notice) -> Result<(), Refusal> {
        let registration = self.node.membership.registration();
        loop {
            let Err(error) = self.node.membership.give_notice(notice).await else { return Ok(()) };
            let (node, policy) = (self.node(), registration.borrow().policy);
            let failure = failure(&error);
            if ends_drain(policy, &failure)
                && let CallFailure::Refused(refusal) = failure
            {
                tracing::warn!(%node, %error, "the notice was refused");
                return Err(refusal);
            }
            tracing::warn!(%node, %error, "the namenode did not receive the notice");
            sleep(NOTICE_RETRY_INTERVAL.into()).await;
        }
    }

    async fn wait_until_drained(&self, until: Instant) -> DrainEnd {
        let mut registration = self.node.membership.registration();
        let is_over = |policy| matches!(policy, Policy::Drained | Policy::Gone);
        let over = registration.wait_for(|registration| is_over(registration.policy));
        let policy = match timeout_at(until, over).await {
            Ok(Ok(registration)) => Some(registration.policy),
            Ok(Err(_)) | Err(_) => None,
        };
        let home_blocks = registration.borrow().home_blocks;
        match policy {
            Some(Policy::Drained) => DrainEnd::Drained,
            Some(_) => DrainEnd::GivenUp { home_blocks },
            None => DrainEnd::DeadlinePassed { home_blocks },
        }
    }

    /// Stops at once, ending every connection, and waits until all of it has stopped.
    pub async fn stop(self) {
        drop(self.stop);
        for task in self.tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "a part of the datanode panicked");
            }
        }
        // What was aborted there may still hold the disk tier's directory.
        if let Some(control) = Arc::into_inner(self.control) {
            control.stop().await;
        }
    }
}

/// One incarnation after the other.
struct Lifecycle {
    node: Arc<Node>,
    control: Arc<Control>,
    listener: TcpListener,
    stop: CancellationToken,
    failed: watch::Sender<Option<DatanodeFailure>>,
}

impl Lifecycle {
    async fn run(self) {
        let (stop, failed) = (self.stop.clone(), self.failed.clone());
        if let Err(failure) = self.live().await
            && !stop.is_cancelled()
        {
            tracing::error!(%failure, "the datanode cannot go on");
            failed.send_replace(Some(failure));
        }
    }

    async fn live(self) -> Result<(), DatanodeFailure> {
        let Self { node, control, listener, stop, .. } = self;
        let listener = listener.into_std().map_err(lost)?;
        loop {
            let own = listener.try_clone().and_then(TcpListener::from_std).map_err(lost)?;
            serve_incarnation(&node, &control, own, stop.child_token()).await?;
            if node.joiner.begin_again() {
                continue;
            }
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                joined = node.joiner.join() => joined.map_err(stopped)?,
            }
        }
    }
}

fn stopped(error: CallError) -> DatanodeFailure {
    match error {
        CallError::Refused(refusal) => DatanodeFailure::Refused(refusal),
        error => {
            tracing::error!(%error, "the namenode was lost");
            DatanodeFailure::Ended { part: "membership" }
        }
    }
}

fn lost(error: std::io::Error) -> DatanodeFailure {
    tracing::error!(%error, "the listener was lost");
    DatanodeFailure::Ended { part: "listener" }
}

/// Work of one connection after which others get their turn. An answer of 1 MiB takes 150 us: with
/// turns of 250 us, leaving the thread after almost each took a third more of the processor.
const TURN: Duration = Duration::from_millis(1);

/// Serves one incarnation until the namenode gives it up. Connections end with it, so that no
/// request for the old one reaches the new one.
async fn serve_incarnation(
    node: &Arc<Node>,
    control: &Control,
    listener: TcpListener,
    connections: CancellationToken,
) -> Result<(), DatanodeFailure> {
    let tls = node.options.security.tls.clone();
    let buffers = Buffers::within(BUFFERS_KEPT_BYTES_MAX, node.memory.clone());
    let options = ServeOptions { tls, buffers, turn: TURN, ..ServeOptions::default() };
    let admission = Arc::new(Admission::open(Arc::clone(&node.service)));
    let serving = serve(listener, admission, options, connections.clone());
    tokio::pin!(serving);
    let member = Arc::clone(node);
    let staying = control.spawn(async move { member.joiner.stay().await });
    let turned = tokio::select! {
        () = &mut serving => return Err(DatanodeFailure::Ended { part: "listener" }),
        turned = AbortOnDropHandle::new(staying) => turned,
    };
    let turned = turned.map_err(|_| DatanodeFailure::Ended { part: "membership" })?;
    connections.cancel();
    serving.await;
    match turned {
        MembershipChange::Stopped(error) => Err(stopped(error)),
        MembershipChange::Joined | MembershipChange::BeginsAgain => Ok(()),
    }
}

async fn fault(arena: Arc<Arena>, stop: CancellationToken) {
    let worker = Arc::clone(&arena);
    let mut faulting = tokio::task::spawn_blocking(move || worker.fault());
    let done = tokio::select! {
        done = &mut faulting => done,
        () = stop.cancelled() => {
            arena.stop_faulting();
            faulting.await
        }
    };
    match done {
        Ok(Ok(())) => tracing::info!(bytes = arena.faulted_bytes(), "memory taken"),
        Ok(Err(error)) => tracing::error!(
            bytes = arena.bytes(),
            faulted_bytes = arena.faulted_bytes(),
            %error,
            "the machine does not have the memory: make the memory tier smaller"
        ),
        Err(error) => tracing::error!(%error, "taking memory ended in a panic"),
    }
}

fn arena(bytes: u64) -> Result<Arena, DatanodeStartError> {
    let min = u64::from(UNIT_BYTES);
    if bytes < min {
        return Err(DatanodeStartError::TooLittleMemory { bytes, min });
    }
    if let Some(available) = available_bytes().filter(|available| *available < bytes) {
        return Err(DatanodeStartError::TooMuchMemory { bytes, available });
    }
    Arena::new(bytes).map_err(|cause| DatanodeStartError::Memory { bytes, cause })
}

/// Returns the cluster of the namenode if it is needed before the node joins; `None` if it does not
/// answer yet.
///
/// # Errors
/// [`DatanodeStartError::OtherCluster`]: the addresses are of two clusters.
async fn greeted(node: &Node) -> Result<Option<ClusterId>, DatanodeStartError> {
    let has_several = node.options.namenode.contains(',');
    if node.store.tiers().objects().is_none() && !has_several {
        return Ok(None);
    }
    match node.membership.namenode().cluster().await {
        Err(cause @ CallError::OtherCluster { .. }) => {
            let namenode = node.options.namenode.clone();
            Err(DatanodeStartError::OtherCluster { namenode, cause })
        }
        cluster => Ok(cluster.ok()),
    }
}

/// Checks whether the node can read what its cluster has in the object tier; returns whether it
/// could check.
async fn check_key(
    store: &BlockStore,
    cluster: Option<ClusterId>,
) -> Result<bool, DatanodeStartError> {
    match (store.tiers().objects(), cluster) {
        (Some(objects), Some(cluster)) => objects.check_key(cluster).await?,
        (Some(_), None) => return Ok(false),
        (None, _) => {}
    }
    Ok(true)
}

/// Returns the connections to the namenode: those of the node itself have their thread.
fn namenode_pools(peers: &PoolOptions, control: &Control) -> NamenodePools {
    let runtime = Some(control.handle().clone());
    let own = Pool::new(PoolOptions { runtime, ..peers.clone() });
    let mut lookups = peers.clone();
    // A claim to a later one that is met there ends none that heartbeats have met.
    lookups.connection.generation = KnownGeneration::default();
    NamenodePools { own, lookups: Pool::new(lookups) }
}

async fn bind(address: SocketAddr, security: &Security) -> Result<TcpListener, ListenError> {
    listen(&address.to_string(), security).await
}

/// Returns where a listener listens, and the address to advertise.
fn addresses(
    listener: &TcpListener,
    options: &DatanodeOptions,
) -> Result<(SocketAddr, String), DatanodeStartError> {
    let address = listener.local_addr().map_err(|cause| {
        let address = options.listen.to_string();
        DatanodeStartError::Listen(ListenError::Io { address, cause })
    })?;
    if !options.advertise.is_empty() {
        return Ok((address, format!("{}:{}", options.advertise, address.port())));
    }
    if address.ip().is_unspecified() {
        return Err(DatanodeStartError::NoAdvertisedHost { address });
    }
    Ok((address, address.to_string()))
}

fn with_host(mut options: DatanodeOptions) -> DatanodeOptions {
    if options.host.is_empty() {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        name.trim().clone_into(&mut options.host);
    }
    options
}
