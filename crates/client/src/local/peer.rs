//! A datanode on this machine: its memory, mapped once, and connections to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use sanderling_core::write::Placed;
use sanderling_protocol::frame::RangeRequest;
use sanderling_protocol::local::LEASES_PER_PACKET_MAX;
use sanderling_protocol::{ClusterId, NodeId, Refusal};
use sanderling_transport::CallError;
use sanderling_transport::local::Memory;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::connection::Connection;
use super::line::{Returning, give_back};
use super::{Ranges, Socket};

/// Connections of one client to one node. Each costs the node a thread, and one request at a time
/// takes so little that more would be the same requests waiting elsewhere.
const CONNECTIONS_MAX: usize = 8;

/// A datanode.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) node: NodeId,
    cluster: Option<ClusterId>,
    socket: Socket,
    memory: Arc<Memory>,
    /// Connections that nobody uses, the one used last at the end.
    idle: Mutex<Vec<Connection>>,
    open: AtomicUsize,
    returning: Arc<Returning>,
    giving_back: JoinHandle<()>,
}

/// A connection in use. It is kept for others only after an answer to its last question.
struct Using<'a> {
    peer: &'a Peer,
    connection: Option<Connection>,
}

impl Peer {
    /// Connects to a node and maps its memory.
    pub(super) async fn open(
        socket: Socket,
        cluster: Option<ClusterId>,
        node: NodeId,
        deadline: Instant,
    ) -> Result<Arc<Self>, CallError> {
        let returning = Arc::new(Returning::default());
        let opening =
            Connection::open(&socket, cluster, node, Arc::clone(&returning), true, deadline);
        let (connection, memory) = opening.await?;
        let memory = Arc::new(memory.expect("the arena was wanted"));
        let giving_back = tokio::spawn(give_back(Arc::clone(&returning)));
        let (idle, open) = (Mutex::new(vec![connection]), AtomicUsize::new(1));
        Ok(Arc::new(Self { node, cluster, socket, memory, idle, open, returning, giving_back }))
    }

    /// Reads ranges; `None` when every connection is in use, or for too many ranges.
    pub(super) async fn lease(
        &self,
        ranges: &[RangeRequest],
        deadline: Instant,
    ) -> Result<Option<(Ranges, u16)>, CallError> {
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
        &self,
        placed: &Placed,
        piece: &[u8],
        deadline: Instant,
    ) -> Result<Option<Result<(), Refusal>>, CallError> {
        let Some(mut using) = self.connection(deadline).await? else { return Ok(None) };
        let written = using.get().write(placed, piece, deadline).await?;
        using.keep();
        Ok(written)
    }

    async fn connection(&self, deadline: Instant) -> Result<Option<Using<'_>>, CallError> {
        let idle = self.idle.lock().pop();
        if let Some(connection) = idle {
            // A process that forked shares its sockets with its child: they are the parent's.
            if !connection.is_own() {
                self.idle.lock().push(connection);
                return Ok(None);
            }
            return Ok(Some(Using { peer: self, connection: Some(connection) }));
        }
        if self.open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return Ok(None);
        }
        let mut using = Using { peer: self, connection: None };
        let returning = Arc::clone(&self.returning);
        let (cluster, node) = (self.cluster, self.node);
        let opening =
            Connection::open(&self.socket, cluster, node, returning, false, deadline).await;
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

impl Using<'_> {
    const fn get(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("it is in use")
    }

    /// Keeps the connection for the next request.
    fn keep(mut self) {
        if let Some(connection) = self.connection.take() {
            self.peer.idle.lock().push(connection);
            std::mem::forget(self);
        }
    }
}

impl Drop for Using<'_> {
    fn drop(&mut self) {
        self.peer.open.fetch_sub(1, Ordering::Relaxed);
    }
}
