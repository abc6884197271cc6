//! Datanodes on the client's own machine: their memory is read where it lies, under leases, and
//! what is written is put where they take it from.
//!
//! Nothing here is needed: where a datanode cannot be reached this way, or not now, its bytes come
//! and go over TCP.

mod connection;
mod peer;
mod probe;
mod socket;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sanderling_core::client::Placed;
use sanderling_protocol::frame::RangeRequest;
use sanderling_protocol::{NodeId, Refusal, Tier};
use sanderling_transport::{CallError, Pool};
use tokio::time::{Instant, sleep};

use self::peer::Peer;
pub(crate) use self::peer::StagedPiece;
use self::probe::{ABSENT_FOR, BROKEN_FOR, probe};

/// Nodes that are remembered: a fleet of a thousand, and incarnations that came and went.
const NODES_MAX: usize = 4096;

/// Shorter writes go over TCP, where many of them share a system call. Bodies of that length are
/// received in place over TCP, shorter ones are copied, so the saved copy begins to count here.
/// Chosen, not measured.
const WRITE_BYTES_MIN: usize = 16 << 10;

/// Shorter objects are not staged before their block is granted: copying them takes less time than
/// the message. To copy 64 KiB takes some ten microseconds, as a packet and its answer do. Chosen,
/// not measured.
const AHEAD_BYTES_MIN: usize = 64 << 10;

/// Longest time that a node on this machine is waited for. After it the call goes on over TCP. A
/// node answers within microseconds, so one that has not by then is stopped or gone. A third of an
/// attempt at a datanode (3 s by default), which TCP still has. Chosen, not measured.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Time for which the memory of a node that is gone may stay mapped: short beside the seconds that
/// its replacement takes to start.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// One range of a read: its bytes, a refusal, or nothing if it has to be read over TCP.
pub(crate) type LocalRanges = Vec<Option<Result<Bytes, Refusal>>>;

/// The datanodes that were looked for on this machine.
#[derive(Debug, Default)]
pub(crate) struct LocalNodes {
    is_on: bool,
    nodes: Mutex<HashMap<NodeId, ConnectionState>>,
    homes: Mutex<Homes>,
}

/// Where the last objects began: the next one is likely to begin there too.
#[derive(Debug, Default)]
struct Homes {
    last: NodeId,
    /// Whether the one before the last began there as well.
    is_repeated: bool,
}

/// What is known of a node.
#[derive(Debug)]
enum ConnectionState {
    /// It is being looked for.
    Sought,
    /// It is elsewhere, or could not be reached; not looked for again before that time.
    Absent { until: Instant },
    /// It is here.
    Here(Arc<Peer>),
}

impl LocalNodes {
    pub(crate) fn new(is_on: bool) -> Arc<Self> {
        Arc::new(Self { is_on, ..Self::default() })
    }

    /// Returns the node if it is known to be here; else looks for it in the background, once.
    fn peer(self: &Arc<Self>, pool: &Pool, node: NodeId, address: &str) -> Option<Arc<Peer>> {
        if !self.is_on {
            return None;
        }
        let mut nodes = self.nodes.lock();
        match nodes.get(&node) {
            Some(ConnectionState::Here(peer)) => return Some(Arc::clone(peer)),
            Some(ConnectionState::Sought) => return None,
            Some(ConnectionState::Absent { until }) if Instant::now() < *until => return None,
            Some(ConnectionState::Absent { .. }) | None => {}
        }
        if nodes.len() >= NODES_MAX {
            nodes.retain(|_, state| !matches!(state, ConnectionState::Absent { .. }));
        }
        nodes.insert(node, ConnectionState::Sought);
        let (seeker, pool, address) = (Arc::clone(self), pool.clone(), address.to_owned());
        tokio::spawn(async move {
            let mut sought = Sought { nodes: &seeker, node, found: None };
            sought.found = Some(match probe(&pool, node, &address).await {
                Ok(Some(peer)) => {
                    tokio::spawn(watch(Arc::downgrade(&seeker), Arc::downgrade(&peer)));
                    ConnectionState::Here(peer)
                }
                Ok(None) => ConnectionState::Absent { until: Instant::now() + ABSENT_FOR },
                Err(error) => {
                    log_failure(node, &error);
                    ConnectionState::Absent { until: Instant::now() + BROKEN_FOR }
                }
            });
        });
        None
    }

    /// Forgets a peer whose connection broke, for a while. What was leased from it stays.
    fn broke(&self, peer: &Arc<Peer>) {
        let mut nodes = self.nodes.lock();
        if let Some(state) = nodes.get_mut(&peer.node)
            && matches!(state, ConnectionState::Here(known) if Arc::ptr_eq(known, peer))
        {
            *state = ConnectionState::Absent { until: Instant::now() + BROKEN_FOR };
        }
    }

    /// Reads ranges of one node; `None` if all of them have to be read over TCP. Returns the
    /// flags of the answer too.
    pub(crate) async fn read(
        self: &Arc<Self>,
        pool: &Pool,
        node: NodeId,
        address: &str,
        ranges: &[RangeRequest],
        deadline: Instant,
    ) -> Option<(LocalRanges, u16)> {
        let peer = self.peer(pool, node, address)?;
        match peer.lease(ranges, deadline.min(Instant::now() + ANSWER_TIMEOUT)).await {
            Ok(read) => read,
            Err(error) => {
                self.went_wrong(&peer, &error);
                None
            }
        }
    }

    /// Writes a piece through shared memory. `None`: write it over TCP, where the datanode detects
    /// that a piece is written twice.
    pub(crate) async fn write(
        self: &Arc<Self>,
        pool: &Pool,
        address: &str,
        placed: &Placed,
        piece: &[u8],
        deadline: Instant,
    ) -> Option<Result<(), Refusal>> {
        if placed.block.tier != Tier::Dram || piece.len() < WRITE_BYTES_MIN {
            return None;
        }
        let peer = self.peer(pool, placed.block.node, address)?;
        match peer.write(placed, piece, deadline.min(Instant::now() + ANSWER_TIMEOUT)).await {
            Ok(written) => written.and_then(|written| self.settled(&peer, written)),
            Err(error) => {
                self.went_wrong(&peer, &error);
                None
            }
        }
    }

    /// Notes where an object begins.
    pub(crate) fn began(&self, node: NodeId) {
        let mut homes = self.homes.lock();
        homes.is_repeated = homes.last == node;
        homes.last = node;
    }

    /// Gives a new object's first piece to the node where it is likely to begin; `None` when there
    /// is none on this machine. A wrong guess costs the copy.
    pub(crate) async fn stage(&self, piece: &[u8], deadline: Instant) -> Option<StagedPiece> {
        if piece.len() < AHEAD_BYTES_MIN {
            return None;
        }
        let likely = {
            let homes = self.homes.lock();
            homes.is_repeated.then_some(homes.last)?
        };
        let peer = match self.nodes.lock().get(&likely) {
            Some(ConnectionState::Here(peer)) => Arc::clone(peer),
            _ => return None,
        };
        match peer.stage(piece, deadline.min(Instant::now() + ANSWER_TIMEOUT)).await {
            Ok(ahead) => ahead,
            Err(error) => {
                self.went_wrong(&peer, &error);
                None
            }
        }
    }

    /// Writes such a piece to its block; `None` as for [`Self::write`].
    pub(crate) async fn commit(
        &self,
        ahead: StagedPiece,
        placed: &Placed,
        deadline: Instant,
    ) -> Option<Result<(), Refusal>> {
        let peer = Arc::clone(ahead.peer());
        match ahead.commit(placed, deadline.min(Instant::now() + ANSWER_TIMEOUT)).await {
            Ok(written) => self.settled(&peer, written),
            Err(error) => {
                self.went_wrong(&peer, &error);
                None
            }
        }
    }

    /// Returns the outcome of a write; `None` when it has to go over TCP, because the token of this
    /// connection has ended: there a connection with the renewed token is made.
    fn settled(
        &self,
        peer: &Arc<Peer>,
        written: Result<(), Refusal>,
    ) -> Option<Result<(), Refusal>> {
        if matches!(written, Err(Refusal::Unauthenticated { .. })) {
            self.broke(peer);
            return None;
        }
        Some(written)
    }

    fn went_wrong(&self, peer: &Arc<Peer>, error: &CallError) {
        log_failure(peer.node, error);
        self.broke(peer);
    }
}

/// Logs why calls to a node of this machine go on over TCP. That nodes end, and that tokens do not
/// reach everything, is usual. A breach of the protocol is a fault that no caller would notice,
/// because its calls succeed over TCP: it is logged as a warning.
fn log_failure(node: NodeId, error: &CallError) {
    if is_protocol_fault(error) {
        tracing::warn!(
            %node,
            %error,
            "the datanode of this machine and this client disagree on the protocol and use TCP: \
             install one version of both, or report a bug"
        );
    } else {
        tracing::debug!(%node, %error, "going on over TCP");
    }
}

/// Returns whether an error shows that one side breaks the protocol of connections on one machine.
const fn is_protocol_fault(error: &CallError) -> bool {
    match error {
        CallError::BadReply { .. } => true,
        CallError::Refused(refusal) => matches!(
            refusal,
            Refusal::BadFrame { .. } | Refusal::BadRequest { .. } | Refusal::NoHello
        ),
        _ => false,
    }
}

/// Checks from time to time whether a node is gone, and forgets it then. No call would find out,
/// because none goes to such a node; until then its memory stays mapped, and the machine cannot
/// reuse it.
async fn watch(nodes: Weak<LocalNodes>, peer: Weak<Peer>) {
    loop {
        sleep(POLL_INTERVAL).await;
        let (Some(nodes), Some(peer)) = (nodes.upgrade(), peer.upgrade()) else { return };
        if peer.is_gone(Instant::now() + ANSWER_TIMEOUT).await {
            return nodes.broke(&peer);
        }
    }
}

/// A node that is being looked for; a search that is given up leaves no trace.
struct Sought<'a> {
    nodes: &'a LocalNodes,
    node: NodeId,
    found: Option<ConnectionState>,
}

impl Drop for Sought<'_> {
    fn drop(&mut self) {
        let mut nodes = self.nodes.nodes.lock();
        match self.found.take() {
            Some(found) => nodes.insert(self.node, found),
            None => nodes.remove(&self.node),
        };
    }
}

/// Where a peer's socket is.
type Socket = PathBuf;
