//! Connections by peer, made when they are needed and made again when they break.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use sanderling_protocol::frame::{decode_body, encode_body, encode_list, encode_onto};
use sanderling_protocol::message::{Hello, Role};
use sanderling_protocol::{
    ClusterId, Frame, Header, NodeId, Op, Order, OrderReply, Refusal, Reply, Request, version,
};
use tokio::runtime::Handle;
use tokio::sync::MutexGuard;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use crate::calls::Timeouts;
use crate::connection::{Connection, ConnectionOptions, bad_reply};
use crate::error::{CallError, CloseCause, ReplyFault};
use crate::security::Credentials;

/// The options of a pool: the caller's role, and bounds.
#[derive(Debug, Clone)]
pub struct PoolOptions {
    /// The caller's role.
    pub role: Role,
    /// The cluster to which connections are made; `None` until it is known.
    pub cluster: Option<ClusterId>,
    /// Most connections kept; beyond it broken and then unused ones are dropped.
    pub connections_max: usize,
    /// Bounds of each connection.
    pub connection: ConnectionOptions,
    /// Where the connections' tasks run; `None`: where the first call to a peer is made.
    pub runtime: Option<Handle>,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self {
            role: Role::Client,
            cluster: None,
            // A fleet of a thousand nodes, with incarnations that come and go.
            connections_max: 2048,
            connection: ConnectionOptions::default(),
            runtime: None,
        }
    }
}

/// A request to the namenode as it travels: it is encoded once, wherever it waits.
#[derive(Debug, Clone)]
pub struct EncodedRequest(Vec<u8>);

impl EncodedRequest {
    /// Bytes that most requests fit: a change of one object with a short path. A longer request
    /// costs one more allocation, a smaller start one for most. Chosen, not measured.
    const LIKELY_BYTES: usize = 256;

    /// Encodes a request to the namenode, so that each attempt sends the same bytes.
    #[must_use]
    pub fn new(request: &Request) -> Self {
        Self(encode_onto(request, Vec::with_capacity(Self::LIKELY_BYTES)))
    }
}

type PoolKey = (String, Option<NodeId>);
type PoolSlot = Arc<tokio::sync::Mutex<Option<Connection>>>;

/// Connections that were found to work, by incarnation: found without waiting and without a key.
type Ready = HashMap<Option<NodeId>, Vec<Connection>>;

/// Keeps one connection for each address and incarnation, and makes it at the first call. Clones
/// share the connections.
#[derive(Debug, Clone)]
pub struct Pool {
    shared: Arc<PoolInner>,
}

#[derive(Debug)]
struct PoolInner {
    options: PoolOptions,
    cluster: Mutex<Option<ClusterId>>,
    /// Held while the cluster is requested: one greeting suffices for all callers.
    learning: tokio::sync::Mutex<()>,
    slots: Mutex<HashMap<PoolKey, PoolSlot>>,
    ready: RwLock<Ready>,
}

impl Pool {
    /// Returns a pool with these bounds that has no connection yet.
    #[must_use]
    pub fn new(options: PoolOptions) -> Self {
        let cluster = Mutex::new(options.cluster);
        let (learning, slots, ready) = Default::default();
        Self { shared: Arc::new(PoolInner { options, cluster, learning, slots, ready }) }
    }

    /// Requests its cluster from a namenode, which applies to later connections, so that tokens
    /// that this process makes name it. The greeting of that request shows one that names none.
    /// Does nothing when the cluster is known, or when the process makes no tokens.
    ///
    /// # Errors
    /// As [`Connection::connect`].
    pub async fn learn_cluster(&self, namenode: &str, deadline: Instant) -> Result<(), CallError> {
        self.learned_cluster(namenode, deadline).await.map(drop)
    }

    /// Learns the cluster as [`Self::learn_cluster`] does, and returns it; `None` if it is not
    /// known afterwards.
    async fn learned_cluster(
        &self,
        namenode: &str,
        deadline: Instant,
    ) -> Result<Option<ClusterId>, CallError> {
        let known = self.cluster();
        if known.is_some() || !self.credentials().makes_tokens() {
            return Ok(known);
        }
        let began = Instant::now();
        let Ok(_learning) = timeout_at(deadline, self.shared.learning.lock()).await else {
            let (address, waited) = (namenode.to_owned(), began.elapsed());
            return Err(CallError::TimedOut { address, waited });
        };
        let known = self.cluster();
        if known.is_some() {
            return Ok(known);
        }
        let role = self.shared.options.role;
        let hello = Hello { role, cluster: None, node: None, token: None };
        let options = &self.shared.options.connection;
        let (_, reply) = Connection::connect_with(namenode, hello, deadline, options).await?;
        if reply.role != Role::Namenode {
            return Ok(None);
        }
        // Another one that was set meanwhile is the newer one.
        let mut cluster = self.shared.cluster.lock();
        *cluster = cluster.or(reply.cluster);
        Ok(*cluster)
    }

    /// Sets the cluster that connections made from now on are for. Those that exist stay.
    pub fn set_cluster(&self, cluster: Option<ClusterId>) {
        *self.shared.cluster.lock() = cluster;
    }

    /// Returns the cluster to which connections are made, if it is known.
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterId> {
        *self.shared.cluster.lock()
    }

    /// Returns a connection to that incarnation at that address, or to whatever node is there.
    ///
    /// # Errors
    /// As [`Connection::connect`].
    pub async fn connection(
        &self,
        address: &str,
        node: Option<NodeId>,
        deadline: Instant,
    ) -> Result<Connection, CallError> {
        if let Some(connection) = self.ready(address, node) {
            return Ok(connection);
        }
        // In a task of its own: a caller that waits for a connection may stop waiting without
        // holding others up.
        let (pool, to) = (self.clone(), address.to_owned());
        let making = async move { pool.connect(&to, node, deadline).await };
        let made = match &self.shared.options.runtime {
            Some(runtime) => runtime.spawn(making),
            None => tokio::spawn(making),
        };
        let made = AbortOnDropHandle::new(made).await;
        made.unwrap_or_else(|ended| {
            let cause = CloseCause::Task(io::Error::other(ended).into());
            Err(CallError::Closed { address: address.to_owned(), cause })
        })
    }

    async fn connect(
        &self,
        address: &str,
        node: Option<NodeId>,
        deadline: Instant,
    ) -> Result<Connection, CallError> {
        let began = Instant::now();
        let slot = self.slot(address, node);
        // Many callers wait here for one connection to be made, each until its own deadline.
        let connected = match timeout_at(deadline, slot.lock()).await {
            Ok(kept) => self.connect_in(kept, address, node, deadline).await,
            Err(_) => {
                Err(CallError::TimedOut { address: address.to_owned(), waited: began.elapsed() })
            }
        };
        connected.map_err(|error| match error {
            // The time in which another caller connected was a wait for the same peer.
            CallError::TimedOut { address, .. } => {
                CallError::TimedOut { address, waited: began.elapsed() }
            }
            error => error,
        })
    }

    /// Returns the connection in a slot that this caller holds, and makes it if need be.
    async fn connect_in(
        &self,
        mut kept: MutexGuard<'_, Option<Connection>>,
        address: &str,
        node: Option<NodeId>,
        deadline: Instant,
    ) -> Result<Connection, CallError> {
        if let Some(connection) = kept.as_ref().filter(|connection| !connection.is_broken()) {
            return Ok(connection.clone());
        }
        *kept = None;
        // Also a call in the background may connect first: a connection to a namenode that is kept
        // was opened with a token that names the cluster.
        let cluster = match node {
            None => self.learned_cluster(address, deadline).await?,
            Some(_) => self.cluster(),
        };
        let hello = Hello { role: self.shared.options.role, cluster, node, token: None };
        let options = &self.shared.options.connection;
        let (connection, reply) =
            Connection::connect_with(address, hello, deadline, options).await?;
        if node.is_none() && reply.role == Role::Namenode {
            options.generation.greeted(connection.generation())?;
        }
        // A namenode that ignores which cluster was named must not become a member of it.
        if let (Some(asked), Some(here), None) = (cluster, reply.cluster, node)
            && asked != here
        {
            return Err(Refusal::WrongCluster { here, asked }.into());
        }
        *kept = Some(connection.clone());
        self.keep_ready(node, &connection);
        Ok(connection)
    }

    /// Notes that a namenode has answered as only a leader does. If its greeting named a later
    /// generation of the group than is known, that one counts from now on, and connections to
    /// namenodes of others are dropped.
    pub(crate) fn confirm_generation(&self, address: &str) {
        let known = &self.shared.options.connection.generation;
        if !known.is_claimed() {
            return;
        }
        let named = self.ready(address, None).map(|connection| connection.generation());
        let before = known.get();
        if let Some(named) = named.filter(|named| known.confirm(*named)) {
            if before.0 != 0 && before.number() < named.number() {
                tracing::info!(%before, generation = %named, "the group of namenodes began anew");
            }
            for connection in self.opened() {
                if named.meets(connection.generation()).is_err() {
                    self.forget(connection.address());
                }
            }
        }
        let is_later = |it: &Connection| known.get().meets(it.generation()) == Ok(true);
        if !self.opened().iter().any(is_later) {
            known.end_claim();
        }
    }

    /// Returns the connections to namenodes.
    fn opened(&self) -> Vec<Connection> {
        self.shared.ready.read().get(&None).cloned().unwrap_or_default()
    }

    /// Returns the connection to that incarnation at that address, if one is open.
    pub(crate) fn ready(&self, address: &str, node: Option<NodeId>) -> Option<Connection> {
        let ready = self.shared.ready.read();
        let is_meant = |it: &&Connection| it.address() == address && !it.is_broken();
        ready.get(&node)?.iter().find(is_meant).cloned()
    }

    fn keep_ready(&self, node: Option<NodeId>, connection: &Connection) {
        let mut ready = self.shared.ready.write();
        let works = |it: &Connection| it.address() != connection.address() && !it.is_broken();
        ready.retain(|_, connections| {
            connections.retain(|it| !it.is_broken());
            !connections.is_empty()
        });
        let connections = ready.entry(node).or_default();
        connections.retain(works);
        connections.push(connection.clone());
    }

    fn slot(&self, address: &str, node: Option<NodeId>) -> PoolSlot {
        let mut slots = self.shared.slots.lock();
        if slots.len() >= self.shared.options.connections_max {
            slots.retain(|_, slot| is_in_use(slot));
        }
        Arc::clone(slots.entry((address.to_owned(), node)).or_default())
    }

    /// Drops the connections to an address: what is under way on them fails.
    pub fn forget(&self, address: &str) {
        self.shared.slots.lock().retain(|(kept, _), _| kept != address);
        self.shared.ready.write().retain(|_, connections| {
            connections.retain(|it| it.address() != address);
            !connections.is_empty()
        });
    }

    /// Sends one frame and waits for its answer, connecting first if need be.
    ///
    /// # Errors
    /// As [`Connection::call`] and [`Connection::connect`].
    pub async fn call(
        &self,
        address: &str,
        node: Option<NodeId>,
        header: Header,
        body: Vec<Bytes>,
        timeouts: impl Into<Timeouts>,
    ) -> Result<Frame<Bytes>, CallError> {
        let timeouts = timeouts.into();
        // Most calls are answered by one connection, and their futures are kept small.
        let connection = match self.ready(address, node) {
            Some(connection) => connection,
            None => self.connection(address, node, timeouts.soonest(Instant::now())).await?,
        };
        if !self.credentials().may_renew() {
            return connection.call(header, body, timeouts).await;
        }
        self.call_on(connection, node, header, body, timeouts).await
    }

    async fn connected(
        &self,
        address: &str,
        node: Option<NodeId>,
        timeouts: Timeouts,
    ) -> Result<Connection, CallError> {
        match self.ready(address, node) {
            Some(connection) => Ok(connection),
            None => self.connection(address, node, timeouts.soonest(Instant::now())).await,
        }
    }

    async fn call_on(
        &self,
        connection: Connection,
        node: Option<NodeId>,
        header: Header,
        body: Vec<Bytes>,
        timeouts: Timeouts,
    ) -> Result<Frame<Bytes>, CallError> {
        if !self.credentials().may_renew() {
            return connection.call(header, body, timeouts).await;
        }
        match connection.call(header, body.clone(), timeouts).await {
            Err(CallError::Refused(Refusal::Unauthenticated { .. })) => {
                // The session's token has ended: the next one shows a new token.
                self.drop_connection(node, &connection).await;
                let deadline = timeouts.soonest(Instant::now());
                let connection = self.connection(connection.address(), node, deadline).await?;
                connection.call(header, body, timeouts).await
            }
            answer => answer,
        }
    }

    /// Returns the role that the pool's connections name in their greetings.
    #[must_use]
    pub fn role(&self) -> Role {
        self.shared.options.role
    }

    /// Returns the bounds of its connections, and their credentials.
    #[must_use]
    pub fn connection_options(&self) -> &ConnectionOptions {
        &self.shared.options.connection
    }

    /// Returns the token and the TLS settings that the pool's connections present to peers.
    #[must_use]
    pub fn credentials(&self) -> &Credentials {
        &self.shared.options.connection.credentials
    }

    /// Drops one connection, unless another has taken its place already. What is under way on it
    /// goes on.
    async fn drop_connection(&self, node: Option<NodeId>, connection: &Connection) {
        let slot = self.slot(connection.address(), node);
        let mut kept = slot.lock().await;
        if kept.as_ref().is_some_and(|kept| kept.is_same(connection)) {
            *kept = None;
        }
        drop(kept);
        if let Some(connections) = self.shared.ready.write().get_mut(&node) {
            connections.retain(|it| !it.is_same(connection));
        }
    }

    /// Sends requests to the namenode, in one frame. The answers are in the order of the requests.
    ///
    /// # Errors
    /// [`CallError`] when there is no answer at all: its `recovery` names the next step. Each
    /// request's refusal is among the answers.
    pub async fn meta(
        &self,
        address: &str,
        requests: Vec<Request>,
        deadline: Instant,
    ) -> Result<Vec<Result<Reply, Refusal>>, CallError> {
        let connection = self.connected(address, None, deadline.into()).await?;
        if connection.version() >= version::MESSAGES {
            let (count, body) = (requests.len(), encode_body(&requests));
            return self.meta_on(connection, count, body, deadline).await;
        }
        self.meta_older(connection, requests, deadline).await
    }

    /// Sends requests to the namenode as [`Self::meta`] does; they are encoded already.
    ///
    /// # Errors
    /// As [`Self::meta`].
    pub async fn meta_encoded(
        &self,
        address: &str,
        requests: &[EncodedRequest],
        deadline: Instant,
    ) -> Result<Vec<Result<Reply, Refusal>>, CallError> {
        let connection = self.connected(address, None, deadline.into()).await?;
        if connection.version() >= version::MESSAGES {
            let body = encode_list(requests.iter().map(|request| request.0.as_slice()));
            return self.meta_on(connection, requests.len(), body, deadline).await;
        }
        let decoded = requests.iter().map(|request| decode_body(&request.0));
        let requests = decoded.collect::<Result<Vec<Request>, Refusal>>()?;
        self.meta_older(connection, requests, deadline).await
    }

    async fn meta_older(
        &self,
        connection: Connection,
        requests: Vec<Request>,
        deadline: Instant,
    ) -> Result<Vec<Result<Reply, Refusal>>, CallError> {
        let version = connection.version();
        // What an older namenode cannot do is refused here; it gets the rest.
        let asked = requests.into_iter().map(|request| version::request_for(version, request));
        let asked: Vec<Result<Request, Refusal>> = asked.collect();
        let known: Vec<Request> = asked.iter().flatten().cloned().collect();
        let mut replies = match known.is_empty() {
            true => Vec::new(),
            false => {
                let body = encode_body(&known);
                self.meta_on(connection, known.len(), body, deadline).await?
            }
        }
        .into_iter();
        let answer = |asked: Result<Request, Refusal>| {
            asked?;
            let reply = replies.next().expect("there are as many as requests");
            reply.map(|reply| version::reply_of(version, reply))
        };
        Ok(asked.into_iter().map(answer).collect())
    }

    async fn meta_on(
        &self,
        connection: Connection,
        count: usize,
        body: Vec<u8>,
        deadline: Instant,
    ) -> Result<Vec<Result<Reply, Refusal>>, CallError> {
        let address = connection.address().to_owned();
        let address = address.as_str();
        let header = Header::new(Op::Meta, 0);
        let body = vec![Bytes::from(body)];
        let frame = self.call_on(connection, None, header, body, deadline.into()).await?;
        let replies: Vec<Result<Reply, Refusal>> =
            decode_body(&frame.body).map_err(|refusal| bad_reply(address, refusal))?;
        if replies.len() != count {
            let fault = ReplyFault::Count { replies: replies.len(), requests: count };
            return Err(CallError::BadReply { address: address.to_owned(), fault });
        }
        Ok(replies)
    }

    /// Sends an order to a datanode in term 0, that of a namenode alone, and returns its reply.
    ///
    /// # Errors
    /// [`CallError`], whose `recovery` names the next step; a refused order is
    /// [`CallError::Refused`].
    pub async fn order(
        &self,
        node: NodeId,
        address: &str,
        order: Order,
        deadline: Instant,
    ) -> Result<OrderReply, CallError> {
        self.order_in(0, node, address, order, deadline).await
    }

    /// Gives an order to a datanode as the leader of a group of namenodes in a term: one that has
    /// received an order of a later leader refuses it. Term 0 is that of a namenode alone.
    ///
    /// # Errors
    /// As [`Pool::order`].
    pub async fn order_in(
        &self,
        term: u64,
        node: NodeId,
        address: &str,
        order: Order,
        deadline: Instant,
    ) -> Result<OrderReply, CallError> {
        let connection = self.connected(address, Some(node), deadline.into()).await?;
        version::order_for(connection.version(), &order)?;
        let body = vec![Bytes::from(encode_body(&order))];
        let header = Header { offset: term, ..Header::new(Op::Order, 0) };
        let frame = self.call_on(connection, Some(node), header, body, deadline.into()).await?;
        match decode_body(&frame.body).map_err(|refusal| bad_reply(address, refusal))? {
            OrderReply::Refused(refusal) => Err(CallError::Refused(refusal)),
            reply => Ok(reply),
        }
    }
}

/// Returns whether another task holds the slot, or it holds a connection that works.
fn is_in_use(slot: &PoolSlot) -> bool {
    Arc::strong_count(slot) > 1
        || slot.try_lock().is_ok_and(|kept| kept.as_ref().is_some_and(|it| !it.is_broken()))
}
