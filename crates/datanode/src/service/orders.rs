//! Orders of the namenode and the manager.

use std::sync::Arc;

use sanderling_protocol::frame::decode_body;
use sanderling_protocol::{Header, Order, OrderReply, Refusal};
use sanderling_transport::{Handled, Response};

use crate::node::Node;
use crate::push::push_all;

impl Node {
    pub(super) fn order(self: &Arc<Self>, header: Header, body: &[u8]) -> Handled {
        let order = match decode_body::<Order>(body) {
            Ok(order) => order,
            Err(refusal) => return Handled::Now(self.refused(&header, &refusal)),
        };
        let done = |reply: &OrderReply| Handled::Now(answer(&header, reply));
        match order {
            Order::FenceNode { deadline_in } => {
                tracing::info!(node = %self.id(), ?deadline_in, "ordered to fence");
                self.order_fence(true);
                done(&OrderReply::Done)
            }
            Order::UnfenceNode => {
                self.order_fence(false);
                done(&OrderReply::Done)
            }
            Order::FenceBlocks { blocks } => {
                done(&OrderReply::Fenced(self.store.fence_blocks(&blocks)))
            }
            Order::ListBlocks { after, limit } => {
                done(&OrderReply::Blocks(self.store.list(after, limit as usize)))
            }
            // Files are deleted on the way.
            Order::Drop { blocks } => self.later(header, move |node| {
                node.store.drop_blocks(&blocks);
                node.leaving.dropped(blocks.iter().map(|(block, _)| *block));
                Ok(answer(&header, &OrderReply::Done))
            }),
            Order::Adopt { .. } => {
                let why = "it has no object tier".to_owned();
                done(&OrderReply::Refused(Refusal::WrongState { node: self.id(), why }))
            }
            Order::Push { moves } => {
                let node = Arc::clone(self);
                Handled::Later(Box::pin(async move {
                    let _in_flight = node.enter();
                    let pushed = push_all(&node, moves).await;
                    let refused = |refusal: &Refusal| node.metrics.count_refusal(refusal);
                    pushed.iter().filter_map(|one| one.as_ref().err()).for_each(refused);
                    answer(&header, &OrderReply::Pushed(pushed))
                }))
            }
        }
    }
}

fn answer(header: &Header, reply: &OrderReply) -> Response {
    Response::message(header, reply)
}
