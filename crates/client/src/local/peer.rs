//! A datanode on this machine: its memory, mapped once, and connections to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use sanderling_core::client::Placed;
use sanderling_protocol::frame::RangeRequest;
use sanderling_protocol::local::LEASES_PER_PACKET_MAX;
use sanderling_protocol::{NodeId, Refusal, Tier};
use sanderling_transport::local::SharedMemory;
use sanderling_transport::{CallError, Pool};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::connection::{LocalConnection, LocalIdentity, Staged};
use super::socket::{Returning, give_back};
use super::{LocalRanges, Socket};

/// Connections of one client to one node. Each costs the node a thread, and one request at a time
/// takes so little that more would be the same requests waiting elsewhere. A node has 256 places
/// for all of its clients, so 32 processes with all connections. Chosen, not measured.
const CONNECTIONS_MAX: usize = 8;

/// A datanode.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) node: NodeId,
    caller: LocalIdentity,
    socket: Socket,
    memory: Arc<SharedMemory>,
    /// Connections without a call, the one used last at the end.
    idle: Mutex<Vec<LocalConnection>>,
    open: AtomicUsize,
    returning: Arc<Returning>,
    giving_back: JoinHandle<()>,
}

/// A connection in use. It is kept for others only after an answer to its last question.
#[derive(Debug)]
struct ConnectionInUse {
    peer: Arc<Peer>,
    connection: Option<LocalConnection>,
    is_kept: bool,
}

/// A piece that was staged at a node before its block was granted. Its drop frees the room there.
#[derive(Debug)]
pub(crate) struct StagedPiece {
    using: Option<ConnectionInUse>,
    staged: Staged,
}

impl Peer {
    /// Connects to a node and maps its memory.
    pub(super) async fn open(
        socket: Socket,
        pool: &Pool,
        node: NodeId,
        deadline: Instant,
    ) -> Result<Arc<Self>, CallError> {
        let caller =
            LocalIdentity { cluster: pool.cluster(), credentials: pool.credentials().clone() };
        let returning = Arc::new(Returning::default());
        let opening =
            LocalConnection::open(&socket, &caller, node, Arc::clone(&returning), true, deadline);
        let (connection, memory) = opening.await?;
        let memory = Arc::new(memory.expect("the arena was wanted"));
        let giving_back = tokio::spawn(give_back(Arc::clone(&returning)));
        let (idle, open) = (Mutex::new(vec![connection]), AtomicUsize::new(1));
        Ok(Arc::new(Self { node, caller, socket, memory, idle, open, returning, giving_back }))
    }

    /// Reads ranges; `None` when every connection is in use, or for too many ranges.
    pub(super) async fn lease(
        self: &Arc<Self>,
        ranges: &[RangeRequest],
        deadline: Instant,
    ) -> Result<Option<(LocalRanges, u16)>, CallError> {
        if ranges.len() > LEASES_PER_PACKET_MAX {
            return Ok(None);
        }
        let Some(mut using) = self.connection(deadline).await? else { return Ok(None) };
        let read = using.get().lease(&self.memory, ranges, deadline).await?;
        using.keep();
        Ok(Some(read))
    }

    /// Writes a piece; `None` when every connection is in use, or the node has no memory for it.
    pub(super) async fn write(
        self: &Arc<Self>,
        placed: &Placed,
        piece: &[u8],
        deadline: Instant,
    ) -> Result<Option<Result<(), Refusal>>, CallError> {
        let Some(mut using) = self.connection(deadline).await? else { return Ok(None) };
        let written = using.get().write(placed, piece, deadline).await?;
        using.keep();
        Ok(written)
    }

    /// Stages a piece at the node before its block is granted; `None` as for [`Self::write`].
    pub(super) async fn stage(
        self: &Arc<Self>,
        piece: &[u8],
        deadline: Instant,
    ) -> Result<Option<StagedPiece>, CallError> {
        let Some(mut using) = self.connection(deadline).await? else { return Ok(None) };
        match using.get().stage(piece, true, deadline).await? {
            Some(staged) => Ok(Some(StagedPiece { using: Some(using), staged })),
            None => {
                using.keep();
                Ok(None)
            }
        }
    }

    /// Returns whether the node is gone. Without an open connection, as after calls that were given
    /// up, this connects again.
    pub(super) async fn is_gone(self: &Arc<Self>, deadline: Instant) -> bool {
        if self.open.load(Ordering::Relaxed) > 0 {
            return self.idle.lock().iter().any(LocalConnection::is_ended);
        }
        match self.connection(deadline).await {
            Ok(using) => {
                using.into_iter().for_each(ConnectionInUse::keep);
                false
            }
            Err(_) => true,
        }
    }

    async fn connection(
        self: &Arc<Self>,
        deadline: Instant,
    ) -> Result<Option<ConnectionInUse>, CallError> {
        let idle = self.idle.lock().pop();
        if let Some(connection) = idle {
            // A process that forked shares its sockets with its child: they are the parent's.
            if !connection.is_own() {
                self.idle.lock().push(connection);
                return Ok(None);
            }
            return Ok(Some(ConnectionInUse {
                peer: Arc::clone(self),
                connection: Some(connection),
                is_kept: false,
            }));
        }
        if self.open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return Ok(None);
        }
        let mut using =
            ConnectionInUse { peer: Arc::clone(self), connection: None, is_kept: false };
        let returning = Arc::clone(&self.returning);
        let opening = LocalConnection::open(
            &self.socket,
            &self.caller,
            self.node,
            returning,
            false,
            deadline,
        )
        .await;
        let (connection, _) = opening?;
        using.connection = Some(connection);
        Ok(Some(using))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.giving_back.abort();
    }
}

impl ConnectionInUse {
    const fn get(&mut self) -> &mut LocalConnection {
        self.connection.as_mut().expect("it is in use")
    }

    /// Keeps the connection for the next request.
    fn keep(mut self) {
        if let Some(connection) = self.connection.take() {
            self.peer.idle.lock().push(connection);
            self.is_kept = true;
        }
    }
}

impl Drop for ConnectionInUse {
    fn drop(&mut self) {
        if !self.is_kept {
            self.peer.open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl StagedPiece {
    /// Returns the node that has it.
    pub(super) fn peer(&self) -> &Arc<Peer> {
        &self.using.as_ref().expect("it has not been written").peer
    }

    /// Returns whether a write takes the staged bytes: it begins at the start of a block, has their
    /// length, and goes to memory of the node that holds them.
    pub(crate) fn fits(&self, placed: &Placed) -> bool {
        let (block, staged) = (&placed.block, &self.staged);
        placed.offset == 0
            && placed.length == staged.bytes
            && block.tier == Tier::Dram
            && block.node == self.peer().node
    }

    /// Writes it to its block.
    pub(super) async fn commit(
        mut self,
        placed: &Placed,
        deadline: Instant,
    ) -> Result<Result<(), Refusal>, CallError> {
        let mut using = self.using.take().expect("it has not been written");
        let written = using.get().commit(placed, &self.staged, deadline).await?;
        using.keep();
        Ok(written)
    }
}

impl Drop for StagedPiece {
    fn drop(&mut self) {
        if let Some(mut using) = self.using.take() {
            using.get().give_up();
            using.keep();
        }
    }
}
