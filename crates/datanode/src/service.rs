//! The frames that a datanode serves over TCP.

mod body_sink;
pub(crate) mod data;
mod object;
mod orders;

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use sanderling_core::datanode::{LatestLeader, LinkClass};
use sanderling_core::shared_room::RoomBounds;
use sanderling_protocol::local::LocalEndpoint;
use sanderling_protocol::{BlockId, Header, Op, Refusal};
use sanderling_transport::{Handled, Response};

use crate::activity::Activity;
use crate::blocking::on_thread;
use crate::caller_blocks::RememberedBlocks;
use crate::connection_share::{ConnectionShare, ConnectionShares};
use crate::counters::Counters;
use crate::disk_room::DiskRoom;
use crate::fair_room::FairRoom;
use crate::latency::TIMED_OF;
use crate::link::Link;
use crate::membership::Membership;
use crate::object::{OBJECT_OPERATIONS, OBJECT_TIER_BUSY};
use crate::push::Pusher;
use crate::received::BlockBody;
use crate::store::BlockStore;
use crate::upload::Uploader;

/// Look-ups of owners of blocks at the namenode. As many are under way at once as one connection
/// may have there that take long (`LONG_PLACES` of the core's `namenode/admission`, of which each
/// takes four), so that none is refused. A frame waits for each of the others, which is counted
/// with the memory for requests; their number is chosen, not measured.
const OWNER_LOOKUPS: RoomBounds = RoomBounds { units_max: 16, waiting_max: 1024 };

/// Serves the node's blocks to callers that were admitted.
#[derive(Debug)]
pub(crate) struct BlockService {
    store: Arc<BlockStore>,
    membership: Arc<Membership>,
    link: Arc<Link>,
    activity: Arc<Activity>,
    counters: Arc<Counters>,
    pusher: Pusher,
    uploader: Uploader,
    shares: ConnectionShares,
    disk_room: DiskRoom,
    /// Operations of the object tier that are under way for callers.
    object_operations: FairRoom,
    /// Look-ups of owners at the namenode that are under way for callers.
    owner_lookups: FairRoom,
    /// How many blocks callers were found to own, as far as that is remembered.
    remembered_blocks: Arc<RememberedBlocks>,
    /// Where clients of the same machine find the node; `None` when they do not.
    local_endpoint: Option<LocalEndpoint>,
    /// Which leader's orders count.
    latest_leader: Mutex<LatestLeader>,
}

impl BlockService {
    pub(crate) fn new(
        store: Arc<BlockStore>,
        membership: Arc<Membership>,
        link: Arc<Link>,
        activity: Arc<Activity>,
        counters: Arc<Counters>,
        (pusher, uploader): (Pusher, Uploader),
        local_endpoint: Option<LocalEndpoint>,
    ) -> Self {
        let (shares, disk_room) = (ConnectionShares::default(), DiskRoom::default());
        let object_operations = FairRoom::new(OBJECT_OPERATIONS, OBJECT_TIER_BUSY);
        let lack = "place for another look-up of owners of blocks at the namenode";
        let owner_lookups = FairRoom::new(OWNER_LOOKUPS, lack);
        Self {
            store,
            membership,
            link,
            activity,
            counters,
            pusher,
            uploader,
            shares,
            disk_room,
            object_operations,
            owner_lookups,
            remembered_blocks: Arc::default(),
            local_endpoint,
            latest_leader: Mutex::default(),
        }
    }

    pub(crate) const fn store(&self) -> &Arc<BlockStore> {
        &self.store
    }

    pub(crate) const fn membership(&self) -> &Arc<Membership> {
        &self.membership
    }

    pub(crate) const fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    pub(crate) const fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Returns the connections and their tenants.
    pub(crate) const fn shares(&self) -> &ConnectionShares {
        &self.shares
    }

    pub(crate) const fn disk_room(&self) -> &DiskRoom {
        &self.disk_room
    }

    /// Returns the places of look-ups of owners at the namenode.
    pub(crate) const fn owner_lookups(&self) -> &FairRoom {
        &self.owner_lookups
    }

    /// Returns how many blocks all connections remember to be their callers'.
    pub(crate) const fn remembered_blocks(&self) -> &Arc<RememberedBlocks> {
        &self.remembered_blocks
    }

    /// Serves one frame that its caller may send.
    pub(crate) fn serve(
        self: &Arc<Self>,
        header: Header,
        body: Bytes,
        share: &Arc<ConnectionShare>,
    ) -> Handled {
        let began = self.counters.count_request(header.op);
        let handled = match header.op {
            Op::Read => self.read(header, share),
            Op::ReadMany => self.read_many(header, &body, share),
            Op::Write => self.write(header, body.into()),
            Op::Store => self.store_block(header, body.into(), share),
            Op::Order => self.order(header, &body),
            Op::LocalEndpoint => Ok(Handled::Now(Response::message(&header, &self.local_endpoint))),
            Op::Hello
            | Op::Meta
            | Op::Lease
            | Op::Return
            | Op::Stage
            | Op::Fill
            | Op::Trace
            | Op::Group
            | Op::Cancel => {
                let why = format!("a datanode does not serve {:?}", header.op);
                Err(Refusal::BadFrame { why })
            }
        };
        self.timed(header.op, began, self.paced(&header, handled, share))
    }

    /// Serves the frame of a body that was received straight into the arena.
    fn take(
        self: &Arc<Self>,
        header: Header,
        body: BlockBody,
        share: &Arc<ConnectionShare>,
    ) -> Handled {
        let began = self.counters.count_request(header.op);
        let handled = match header.op {
            Op::Store => self.store_block(header, body, share),
            _ => self.write(header, body),
        };
        self.timed(header.op, began, self.paced(&header, handled, share))
    }

    /// Counts the time until the answer is there.
    fn timed(&self, op: Op, began: Option<Instant>, handled: Handled) -> Handled {
        let Some(latency) = self.counters.latency(op) else { return handled };
        match (handled, began) {
            (Handled::Now(response), Some(began)) => {
                latency.observe(began.elapsed(), TIMED_OF);
                Handled::Now(response)
            }
            (Handled::Now(response), None) => Handled::Now(response),
            (Handled::Later(response), began) => {
                let (latency, began) = (latency.clone(), began.unwrap_or_else(Instant::now));
                Handled::Later(Box::pin(async move {
                    let response = response.await;
                    latency.observe(began.elapsed(), 1);
                    response
                }))
            }
        }
    }

    fn paced(
        &self,
        header: &Header,
        handled: Result<Handled, Refusal>,
        share: &ConnectionShare,
    ) -> Handled {
        let refused = |refusal| Handled::Now(self.refused(header, &refusal));
        let class = if share.is_of_datanode { LinkClass::Upload } else { LinkClass::Read };
        self.link.paced(class, || self.store.is_fenced(), handled.unwrap_or_else(refused))
    }

    /// Returns the refusal of a frame, and counts it.
    pub(crate) fn refused(&self, header: &Header, refusal: &Refusal) -> Response {
        Response::refused(header, &self.counted_refusal(header, refusal.clone()))
    }

    /// Returns what is sent instead of a refusal, and counts it.
    pub(crate) fn counted_refusal(&self, header: &Header, refusal: Refusal) -> Refusal {
        let refusal = self.membership.answered_refusal(header.op, refusal);
        self.counters.count_refusal(&refusal);
        tracing::debug!(op = ?header.op, block = %header.block, %refusal, "refused");
        refusal
    }

    /// Returns the flags of the answer to a read. Copies that were made ahead of a notice show only
    /// once it has come.
    pub(crate) fn read_flags(&self, blocks: impl Iterator<Item = BlockId>) -> u16 {
        let flags = self.link.flags(blocks);
        if flags != 0 && self.store.is_fenced() { flags } else { 0 }
    }

    /// Does what waits for others, and counts it as in flight.
    fn spawned<F>(
        self: &Arc<Self>,
        header: Header,
        work: impl FnOnce(Arc<Self>) -> F + Send + 'static,
    ) -> Handled
    where
        F: Future<Output = Result<Response, Refusal>> + Send + 'static,
    {
        let service = Arc::clone(self);
        Handled::Later(Box::pin(async move {
            let _in_flight = service.activity.enter();
            let done = work(Arc::clone(&service)).await;
            done.unwrap_or_else(|refusal| service.refused(&header, &refusal))
        }))
    }

    /// Does on another thread what may block, and counts it as in flight.
    fn later<W>(self: &Arc<Self>, header: Header, work: W) -> Handled
    where
        W: FnOnce(&Self) -> Result<Response, Refusal> + Send + 'static,
    {
        let service = Arc::clone(self);
        let worker = Arc::clone(self);
        let done = on_thread(move || {
            let _in_flight = worker.activity.enter();
            work(&worker)
        });
        Handled::Later(Box::pin(async move {
            done.await.unwrap_or_else(|refusal| service.refused(&header, &refusal))
        }))
    }
}
