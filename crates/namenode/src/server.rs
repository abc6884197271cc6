//! The running namenode.

mod group_start;

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use sanderling_core::replica::LEAD_TIMEOUT;
use sanderling_protocol::message::{Member, MemberRole, Members, Role};
use sanderling_protocol::{ClusterId, MemberId, Millis};
use sanderling_transport::{Buffers, ListenError, Memory, Security, ServeOptions, listen};
use tokio::net::TcpListener;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::archive::Archiver;
use crate::caller::RequestOrigin;
use crate::clock::Clock;
use crate::directory::{Directory, FileKind};
use crate::error::{NamenodeFailure, NamenodeStartError};
use crate::group::service::GroupService;
use crate::group::{GroupInput, GroupOrder, GroupSetup, ServingState};
use crate::http;
use crate::long_reads::LongReads;
use crate::options::{NamenodeOptions, Sync};
use crate::orders::Orders;
use crate::own_notices::{self, OwnNotices};
use crate::recovery::Recovered;
use crate::requests::Requests;
use crate::service::MetaService;
use crate::state::NamenodeState;
use crate::writer::{CatalogWriter, Effect, SnapshotUnderWay, Snapshots};
use crate::writer_queue::WorkQueue;
pub(crate) use group_start::MemberStart;

/// Orders and probes that wait to be given to their datanode's queue. A round has 2,048 commands,
/// so it is some tens of rounds of orders; one that does not fit is given up, and heartbeats and
/// block reports repeat it. Chosen, not measured.
const EFFECTS_MAX: usize = 65_536;

/// Bytes of buffers for long requests that are kept while unused. Eight bodies of 1 MiB, as other
/// servers keep by default: most requests are short.
const BUFFERS_KEPT: usize = 8 << 20;

/// How long connections may take to end when the server stops. As long as HTTP's answers have at
/// the end (`HttpOptions::end_within`). All answers are made by then; what remains is a peer that
/// does not read.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// How long another member may take to lead when the server stops: somewhat longer than the group
/// itself allows, 2 s ([`LEAD_TIMEOUT`]).
const MOVE_TIMEOUT: Duration = Duration::from_secs(3);

const _: () = assert!(LEAD_TIMEOUT.0 < MOVE_TIMEOUT.as_secs() * 1000);

/// A namenode that serves.
///
/// Dropped without [`NamenodeServer::stop`] it ends as if it had been killed: what was acknowledged
/// is in the journal.
#[derive(Debug)]
pub struct NamenodeServer {
    address: SocketAddr,
    http_address: Option<SocketAddr>,
    state: Arc<NamenodeState>,
    work: Arc<WorkQueue>,
    long_reads: Arc<LongReads>,
    shutdown: CancellationToken,
    parts: Mutex<Option<Parts>>,
}

/// What is joined when the server stops.
#[derive(Debug)]
struct Parts {
    tasks: JoinSet<&'static str>,
    writer: JoinHandle<Option<SnapshotUnderWay>>,
    archiver: Option<SharedArchiver>,
}

type SharedArchiver = Arc<tokio::sync::Mutex<Archiver>>;

impl NamenodeServer {
    /// Listens, recovers the catalog from the directory, and serves it.
    ///
    /// # Errors
    /// [`NamenodeStartError`] has the cause: correct it, then start again. Nothing is served then.
    pub async fn start(options: NamenodeOptions) -> Result<Self, NamenodeStartError> {
        // Both listeners first: a port in use is found before a long journal is read.
        let listener = bind(&options.listen, &options).await?;
        let http_listener = match &options.http_listen {
            Some(address) => Some(bind(address, &options).await?),
            None => None,
        };
        let at = group_start::address(&options, &listener, http_listener.as_ref())?;
        let (directory, mut recovered, start) = group_start::read(&options, &at).await?;
        let archiver = match &options.archive {
            // Before anything is served: a change that is acknowledged must reach the archive.
            Some(archive) => {
                let mut archiver = Archiver::new(archive, &directory, &mut recovered);
                if let MemberStart::Alone(generation) = start {
                    archiver.claim(generation).await?;
                }
                Some(archiver)
            }
            None => None,
        };
        let setup = group_start::setup(&options, at);
        let catalog = (directory, recovered, start, setup);
        let server = launch(&options, catalog, listener, http_listener)?;
        if let Some(archiver) = archiver {
            server.archive(archiver);
        }
        let cluster = format!("{:016x}", server.state.cluster.0);
        info!(address = %server.address, http = ?server.http_address, cluster, "namenode serves");
        Ok(server)
    }

    /// Returns the address at which the namenode serves the protocol.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address at which the namenode serves HTTP; `None` if it does not.
    #[must_use]
    pub const fn http_address(&self) -> Option<SocketAddr> {
        self.http_address
    }

    /// Returns the id of the cluster whose catalog the namenode has.
    #[must_use]
    pub fn cluster(&self) -> ClusterId {
        self.state.cluster
    }

    /// Follows what it is in its group: only a namenode alone and a leader serve.
    #[must_use]
    pub fn serving_state(&self) -> watch::Receiver<ServingState> {
        self.state.group.changes()
    }

    /// Gives the leadership to another voter, if it leads a group and one answers. Clients lose no
    /// more than the time of a few round trips then. Returns once the other leads, or it is clear
    /// that none will.
    pub async fn leave_leadership(&self) {
        // One that was just elected gives the leadership away once it has taken it over.
        self.state.group.taken_over().await;
        let (reply, moved) = oneshot::channel();
        let order = GroupInput::Order(GroupOrder::MoveLeader(None), reply);
        if self.state.group.serving_state() == ServingState::Leader
            && self.work.push_group(order).is_ok()
        {
            match tokio::time::timeout(MOVE_TIMEOUT, moved).await {
                Ok(Ok(Ok(()))) => info!("another namenode leads the group"),
                moved => warn!(?moved, "no other namenode leads the group yet"),
            }
        }
    }

    /// Waits until the server cannot go on, and returns why. It does not return while all is well.
    pub async fn failed(&self) -> NamenodeFailure {
        let mut failure = self.state.failure.subscribe();
        let reason = failure.wait_for(Option::is_some).await;
        let reason = reason.ok().and_then(|reason| reason.clone());
        reason.unwrap_or(NamenodeFailure::Ended { part: "server" })
    }

    /// Returns why the journal, or the group's log, cannot be trusted, also when that was found
    /// while stopping.
    #[must_use]
    pub fn journal_failure(&self) -> Option<NamenodeFailure> {
        let failure = self.state.failure.borrow().clone();
        let is_of_log = |failure: &NamenodeFailure| {
            failure.is_of_the_journal() || matches!(failure, NamenodeFailure::GroupLog { .. })
        };
        failure.filter(is_of_log)
    }

    /// Stops serving, writes what waits, and releases the directory. A second call does nothing.
    pub async fn stop(&self) {
        self.shutdown.cancel();
        let Some(mut parts) = self.parts.lock().take() else { return };
        let ended = async { while parts.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_TIMEOUT, ended).await.is_err() {
            // A client holds a half-sent HTTP request, most likely.
            parts.tasks.shutdown().await;
        }
        self.work.stop();
        self.long_reads.stop();
        let writer = parts.writer;
        let joined = tokio::task::spawn_blocking(move || writer.join());
        let snapshot = match joined.await {
            Ok(Ok(snapshot)) => snapshot,
            _ => {
                error!("the writer's thread panicked");
                None
            }
        };
        self.close(parts.archiver, snapshot).await;
        info!("namenode stopped");
    }

    /// Closes the archive, then waits for the snapshot under way. In the other order the machine
    /// may be taken before the archive has the last changes.
    async fn close(&self, archiver: Option<SharedArchiver>, snapshot: Option<SnapshotUnderWay>) {
        let ended = self.state.group.ended();
        let close = async || match &archiver {
            Some(archiver) => archiver.lock().await.close(ended).await,
            None => Ok(()),
        };
        let mut closed = close().await;
        if let Some(snapshot) = snapshot {
            if tokio::task::spawn_blocking(move || snapshot.wait()).await.is_err() {
                error!("the wait for the last snapshot panicked");
            }
            // The snapshot may have taken the place of files that the archive was about to store.
            if closed.is_err() {
                closed = close().await;
            }
        }
        if let Err(error) = closed {
            let why = error.to_string();
            error!(why, "the archive may lack the last changes");
            *self.state.unarchived.lock() = Some(why);
        }
    }

    /// Returns why the archive may lack the last changes of a server that has stopped.
    #[must_use]
    pub fn unarchived(&self) -> Option<String> {
        self.state.unarchived.lock().clone()
    }

    /// Begins to write the archive.
    fn archive(&self, mut archiver: Archiver) {
        archiver.serve(&self.state);
        let archiver = Arc::new(tokio::sync::Mutex::new(archiver));
        let (running, stop) = (Arc::clone(&archiver), self.shutdown.clone());
        if let Some(parts) = self.parts.lock().as_mut() {
            parts.archiver = Some(archiver);
            parts.tasks.spawn(async move {
                running.lock().await.run(&stop).await;
                "archive"
            });
        }
    }
}

impl Drop for NamenodeServer {
    fn drop(&mut self) {
        self.shutdown.cancel();
        self.work.stop();
        self.long_reads.stop();
    }
}

async fn bind(address: &str, options: &NamenodeOptions) -> Result<TcpListener, NamenodeStartError> {
    listen(address, &options.security).await.map_err(NamenodeStartError::Listen)
}

/// Starts the writer's thread and the tasks.
fn launch(
    options: &NamenodeOptions,
    (directory, recovered, start, setup): (Arc<Directory>, Recovered, MemberStart, GroupSetup),
    listener: TcpListener,
    http_listener: Option<TcpListener>,
) -> Result<NamenodeServer, NamenodeStartError> {
    let local = |listener: &TcpListener| {
        let io = |cause| ListenError::Io { address: options.listen.clone(), cause };
        listener.local_addr().map_err(io)
    };
    let address = local(&listener)?;
    let http_address = http_listener.as_ref().map(local).transpose()?;
    let Recovered { mut namenode, journal, commands, cut_bytes, found, snapshots } = recovered;
    let clock = Clock::start(namenode.catalog().now());
    namenode.set_members(alone(address, http_address, start.term()));
    let state = Arc::new(NamenodeState::new(namenode, clock));
    let work = Arc::new(WorkQueue::new(options.waiting_frames_max, options.waiting_bytes_max));
    let long_reads = LongReads::start(&state).map_err(NamenodeStartError::Thread)?;
    let (effects, effect_queue) = mpsc::channel::<Effect>(EFFECTS_MAX);
    note_start(&state, options, &directory, &snapshots);
    let snapshots = Snapshots::start(directory, options, &journal, snapshots);
    let snapshots = snapshots.map_err(NamenodeStartError::Thread)?;
    let group = (Arc::clone(&work), setup);
    let mut writer = CatalogWriter::new(Arc::clone(&state), journal, snapshots, effects, group);
    writer.start(start, (commands, cut_bytes), found)?;
    let writer = Arc::new(Mutex::new(writer));
    let (for_changes, for_messages) = shared_writer(&writer, options.sync);
    let writer = spawn_writer(writer, &state, &work).map_err(NamenodeStartError::Thread)?;
    let shutdown = CancellationToken::new();
    let queues = (Arc::clone(&work), Arc::clone(&long_reads));
    let requests = Requests::new(Arc::clone(&state), queues.0, queues.1, for_changes);
    let security = Arc::new(state.security(&options.security));
    let mut tasks = JoinSet::new();
    let notices = watch_notices(options, &work, &shutdown, &mut tasks);
    let bounds = bounds(options);
    let service = Arc::new(MetaService {
        requests: requests.clone(),
        group: GroupService::new(
            Arc::clone(&work),
            Arc::clone(&state),
            Arc::clone(&notices),
            options.directory.clone(),
            for_messages,
            options.security.credentials(Role::Namenode),
        ),
        memory: bounds.buffers.memory().clone(),
        security: Arc::clone(&security),
        pass: None,
        caller: RequestOrigin::new(None),
        version: sanderling_protocol::version::MESSAGES,
    });
    let served = sanderling_transport::serve(listener, service, bounds, shutdown.clone());
    tasks.spawn(async move {
        served.await;
        "protocol"
    });
    if let Some(listener) = http_listener {
        let served = serve_http(listener, (requests, notices), security, options, shutdown.clone());
        tasks.spawn(async move {
            served.await;
            "HTTP"
        });
    }
    send_orders(options, (&state, &work), effect_queue, &shutdown, &mut tasks);
    let parts = Mutex::new(Some(Parts { tasks, writer, archiver: None }));
    Ok(NamenodeServer { address, http_address, state, work, long_reads, shutdown, parts })
}

/// The writer, for threads that serve.
type SharedWriter = Weak<Mutex<CatalogWriter>>;

/// Returns the writer for threads that serve: for small changes while this namenode is alone, and
/// for short messages of its group's leader. It is empty where such a thread would hold connections
/// up: a sync takes long, and a write takes as long as the disk hangs.
fn shared_writer(writer: &Arc<Mutex<CatalogWriter>>, sync: Sync) -> (SharedWriter, SharedWriter) {
    let runtime = Handle::current();
    let shared = |is_harmless: bool| match is_harmless && sync == Sync::Os {
        true => Arc::downgrade(writer),
        false => Weak::new(),
    };
    // One thread at a time has the writer, so another one goes on (`CatalogWriter::HELD_MAX`).
    let for_changes = shared(runtime.metrics().num_workers() > 1);
    // It blocks in place, and another thread takes over what it has to do.
    let for_messages = shared(runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
    (for_changes, for_messages)
}

/// Begins to send orders to datanodes.
fn send_orders(
    options: &NamenodeOptions,
    (state, work): (&Arc<NamenodeState>, &Arc<WorkQueue>),
    effect_queue: mpsc::Receiver<Effect>,
    shutdown: &CancellationToken,
    tasks: &mut JoinSet<&'static str>,
) {
    let credentials = options.security.credentials(Role::Namenode);
    let (shared, given, stop) = (Arc::clone(state), Arc::clone(work), shutdown.clone());
    let orders = Orders::new(shared, given, stop, options.mechanism, credentials);
    tasks.spawn(async move {
        orders.run(effect_queue).await;
        "orders"
    });
}

/// Begins to poll the sources of notices of this machine.
fn watch_notices(
    options: &NamenodeOptions,
    work: &Arc<WorkQueue>,
    shutdown: &CancellationToken,
    tasks: &mut JoinSet<&'static str>,
) -> Arc<OwnNotices> {
    let left_default = Millis::from(options.posted_notice);
    let notices = OwnNotices::new(Arc::clone(work), left_default);
    for source in options.notices.clone() {
        let watched = own_notices::watch(Arc::clone(&notices), source, shutdown.clone());
        tasks.spawn(async move {
            watched.await;
            "notices"
        });
    }
    notices
}

fn serve_http(
    listener: TcpListener,
    (requests, notices): (Requests, Arc<OwnNotices>),
    security: Arc<Security>,
    options: &NamenodeOptions,
    shutdown: CancellationToken,
) -> impl Future<Output = ()> + use<> {
    let backups = http::Backups::new(options.directory.clone());
    // A leader's certificate is checked as those of all servers.
    let leader_tls = options.security.credentials(Role::Namenode).tls;
    http::serve(listener, (requests, notices), security, backups, leader_tls, shutdown)
}

/// Returns the members of a group of one. Where a listener takes connections at any address of its
/// machine, others know better where they reach it.
fn alone(address: SocketAddr, http_address: Option<SocketAddr>, term: u64) -> Members {
    let known = |address: SocketAddr| match address.ip().is_unspecified() {
        true => String::new(),
        false => address.to_string(),
    };
    let http_address = http_address.map(known).unwrap_or_default();
    let (id, role) = (MemberId(1), MemberRole::Leader);
    let member = Member { id, address: known(address), http_address, role };
    Members { term, here: id, members: vec![member] }
}

/// Notes for the metrics how the journal is synced and when the newest snapshot was taken.
fn note_start(
    state: &NamenodeState,
    options: &NamenodeOptions,
    directory: &Directory,
    snapshots: &[u64],
) {
    state.metrics.set_sync_always(options.sync == Sync::Always);
    let newest = snapshots.last().map(|index| directory.file(FileKind::Snapshot, *index));
    let taken = newest.and_then(|file| std::fs::metadata(file).ok()?.modified().ok());
    if let Some(at) = taken {
        state.metrics.set_snapshot_time(at);
    }
}

fn bounds(options: &NamenodeOptions) -> ServeOptions {
    let memory = Memory::new(options.memory_on_the_way_max);
    ServeOptions {
        tls: options.security.tls.clone(),
        buffers: Buffers::within(BUFFERS_KEPT, memory),
        ..ServeOptions::default()
    }
}

/// Starts the writer's thread.
fn spawn_writer(
    writer: Arc<Mutex<CatalogWriter>>,
    state: &Arc<NamenodeState>,
    work: &Arc<WorkQueue>,
) -> std::io::Result<JoinHandle<Option<SnapshotUnderWay>>> {
    let (watched, waiting) = (Arc::clone(state), Arc::clone(work));
    let runtime = Handle::current();
    let thread = std::thread::Builder::new().name("journal-writer".to_owned());
    thread.spawn(move || {
        let ended = WriterGuard { state: watched };
        let snapshot = CatalogWriter::run(&writer, &waiting, &runtime);
        drop(ended);
        snapshot
    })
}

/// Reports that the writer has ended, also when it panicked.
struct WriterGuard {
    state: Arc<NamenodeState>,
}

impl Drop for WriterGuard {
    fn drop(&mut self) {
        self.state.fail(NamenodeFailure::Ended { part: "writer" });
    }
}

#[cfg(test)]
mod tests;
