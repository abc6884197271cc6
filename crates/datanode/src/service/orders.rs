//! Orders of the namenode and the manager.

use std::sync::Arc;

use sanderling_protocol::frame::decode_body;
use sanderling_protocol::limits::VERIFIED_PER_ORDER_MAX;
use sanderling_protocol::{BlockId, Epoch, Header, Order, OrderReply, Refusal};
use sanderling_transport::{Handled, Response};
use tokio::time::Instant;

use super::BlockService;

/// Blocks that are dropped before other work has its turn. To free one takes a microsecond or two,
/// and no file is deleted on the way. Chosen, not measured.
const DROPPED_AT_ONCE: usize = 256;

impl BlockService {
    /// Refuses an order of a leader that was followed by another.
    fn check_term(&self, term: u64) -> Result<(), Refusal> {
        let mut latest_leader = self.latest_leader.lock();
        latest_leader.admits(term).inspect_err(|_| {
            let newest = latest_leader.newest();
            tracing::warn!(term, newest, "an order of an earlier leader is refused");
        })
    }

    pub(super) fn order(self: &Arc<Self>, header: Header, body: &[u8]) -> Result<Handled, Refusal> {
        let order = decode_body::<Order>(body)?;
        self.check_term(header.offset)?;
        let done = |reply: &OrderReply| Handled::Now(answer(&header, reply));
        Ok(match order {
            Order::FenceNode { deadline_in } => {
                tracing::info!(node = %self.membership.id(), ?deadline_in, "ordered to fence");
                self.membership.order_fence(true);
                done(&OrderReply::Done)
            }
            Order::UnfenceNode => {
                self.membership.order_fence(false);
                done(&OrderReply::Done)
            }
            Order::FenceBlocks { blocks } => self.fence_blocks(header, blocks),
            Order::ListBlocks { after, limit } => {
                done(&OrderReply::Blocks(self.store.list(after, limit as usize)))
            }
            Order::Drop { blocks } => self.spawned(header, move |service| async move {
                for page in blocks.chunks(DROPPED_AT_ONCE) {
                    service.store.drop_blocks(page);
                    service.link.dropped(page.iter().map(|(block, _)| *block));
                    tokio::task::yield_now().await;
                }
                Ok(answer(&header, &OrderReply::Done))
            }),
            Order::Adopt { blocks } => self.spawned(header, move |service| async move {
                let node = service.membership.id();
                tracing::info!(%node, blocks = blocks.len(), "ordered to adopt");
                let keys: Vec<_> = blocks.iter().map(|it| (it.0, it.1)).collect();
                let adopted = service.store.adopt_all(&keys).await;
                let reply = adopted.map_or_else(OrderReply::Refused, |()| OrderReply::Done);
                Ok(answer(&header, &reply))
            }),
            Order::Verify { after, limit, with_checksums } => {
                let limit = (limit as usize).clamp(1, VERIFIED_PER_ORDER_MAX);
                self.spawned(header, move |service| async move {
                    let page = service.store.table().list_bytes(after, limit);
                    let verified = service.store.look_at_all(page, with_checksums).await?;
                    Ok(answer(&header, &OrderReply::Verified(verified)))
                })
            }
            order @ (Order::Upload(_)
            | Order::ChangeStore { .. }
            | Order::AbortUploads { .. }
            | Order::Restore(_)
            | Order::TakeStore { .. }
            | Order::ListStore { .. }) => self.store_order(header, order),
            Order::Push { moves } => self.spawned(header, move |service| async move {
                let pushed = service.pusher.push_all(moves).await;
                let refused = |refusal: &Refusal| service.counters.count_refusal(refusal);
                pushed.iter().filter_map(|one| one.as_ref().err()).for_each(refused);
                Ok(answer(&header, &OrderReply::Pushed(pushed)))
            }),
        })
    }

    /// Does what concerns a store of durable directories.
    fn store_order(self: &Arc<Self>, header: Header, order: Order) -> Handled {
        let received = Instant::now();
        self.spawned(header, move |service| async move {
            let uploader = &service.uploader;
            let done = match order {
                Order::Upload(upload) => uploader.upload(*upload).await,
                Order::ChangeStore { directory, store, changes } => {
                    uploader.change(directory, &store, &changes, received).await
                }
                Order::AbortUploads { directory, store, uploads } => {
                    uploader.abort(directory, &store, &uploads).await
                }
                Order::Restore(loss) => uploader.restore(*loss).await,
                Order::TakeStore { directory, store } => {
                    uploader.take(directory, &store, received).await
                }
                Order::ListStore { directory, store, after } => {
                    uploader.list(directory, &store, &after).await
                }
                other => unreachable!("{other:?} does not concern a store"),
            };
            Ok(answer(&header, &done.unwrap_or_else(OrderReply::Refused)))
        })
    }

    fn fence_blocks(self: &Arc<Self>, header: Header, blocks: Vec<(BlockId, Epoch)>) -> Handled {
        self.membership.fences_blocks();
        if self.store.has_object_tier() {
            return self.fence_object(header, blocks);
        }
        let lengths = self.store.fence_blocks(&blocks);
        Handled::Now(answer(&header, &OrderReply::Fenced(lengths)))
    }

    /// Fences blocks some of which may be in the object tier, unknown to the table: the length of
    /// such a one must not be reported as 0.
    fn fence_object(self: &Arc<Self>, header: Header, blocks: Vec<(BlockId, Epoch)>) -> Handled {
        self.spawned(header, move |service| async move {
            let adopted = service.store.adopt_all(&blocks).await;
            let fenced = |()| OrderReply::Fenced(service.store.fence_blocks(&blocks));
            Ok(answer(&header, &adopted.map_or_else(OrderReply::Refused, fenced)))
        })
    }
}

fn answer(header: &Header, reply: &OrderReply) -> Response {
    Response::message(header, reply)
}
