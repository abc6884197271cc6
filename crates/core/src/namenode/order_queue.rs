//! Orders to one datanode: which is sent next, and what its answer makes of it.
//!
//! Each node has three queues. A fence of the node must not wait: its queue holds nothing but
//! these fences and their taking back. Fences of blocks have a queue, because an object that lost
//! its writer keeps its name until they are answered. The third one holds everything else in order,
//! with drops joined. A queue sends one order at a time and repeats it until the node answers:
//! orders of one queue never overtake each other, and none waits for those of another queue.

use std::collections::VecDeque;

use sanderling_protocol::limits::BLOCKS_PER_PAGE_MAX;
use sanderling_protocol::{Instant, Millis, Order, OrderReply, Policy, Refusal};

use crate::catalog::DatanodeOrder;
use crate::group_generation::GroupGeneration;
use crate::membership::Probe;
use crate::retry::doubled;

/// Orders that wait in one queue. More are given up: block reports and heartbeats repeat them.
/// Drops are joined into orders of many blocks, so the queue is full only for a node that does not
/// answer, which is dead after 6 s. Chosen, not measured.
const WAITING_MAX: usize = 1024;

/// The first pause between two tries of an order, in milliseconds. Each is twice the one before.
/// Twenty round trips of a slow network: a connection that broke is made again by then. Chosen, not
/// measured.
const PAUSE_FIRST: Millis = Millis(50);

/// The longest pause between two tries of an order, in milliseconds: a node that answers again has
/// its orders a second later at most.
const PAUSE_MAX: Millis = Millis(1000);

/// Time for the answer to one order, in milliseconds. A third of the silence after which a node is
/// dead (6 s), so that a hanging order is repeated twice before. A drop or a fence takes
/// microseconds. Chosen, not measured.
pub const ORDER_TIMEOUT: Millis = Millis(2000);

/// The queue of a node that an order belongs into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OrderKind {
    /// A fence of the node, or the end of one.
    Fence,
    /// A fence of blocks. It may overtake drops: a drop that was ordered first names an epoch that
    /// the block had before.
    BlockFence,
    /// Everything else.
    Other,
}

impl OrderKind {
    /// Returns the queue that an order belongs into. Orders of one kind reach a node in their
    /// order; those of different kinds may overtake each other.
    #[must_use]
    pub const fn of(order: &Order) -> Self {
        match order {
            Order::FenceNode { .. } | Order::UnfenceNode => Self::Fence,
            Order::FenceBlocks { .. } => Self::BlockFence,
            _ => Self::Other,
        }
    }
}

/// The leadership of a namenode that is about to send an order.
#[derive(Debug, Clone, Copy)]
pub struct OrderLeadership {
    /// The term in which it leads; 0 if it is alone.
    pub term: u64,
    /// The founding of its group; the default if it is alone.
    pub generation: GroupGeneration,
    /// Whether it serves.
    pub serves: bool,
}

impl OrderLeadership {
    /// Returns whether an order that was decided in a term may be sent to a node with that policy,
    /// `None` if the catalog does not have the node. A leader between the two terms may have
    /// decided otherwise. Before the founder of a group leads it, there is no other leader: what it
    /// has decided alone counts.
    #[must_use]
    pub fn may_send(&self, decided_in: u64, policy: Option<Policy>) -> bool {
        let is_present = policy.is_some_and(|policy| policy != Policy::Gone);
        let is_founder = self.term == self.generation.first_term() + 1;
        is_present && self.serves && (self.term == decided_in || is_founder)
    }
}

/// The queue's next step after the answer to an order, or after none.
#[derive(Debug, PartialEq, Eq)]
pub enum OrderStep {
    /// The order has its reply: the writer gets both, and the next order is sent.
    Replied(DatanodeOrder, OrderReply),
    /// The writer gets the order without a reply, and it is sent again after the pause.
    Again(DatanodeOrder, Millis),
    /// Another process answers there: that of the order has ended. The queue is empty now.
    NodeEnded,
}

/// A queue of the orders of one kind to one node.
#[derive(Debug, Default)]
pub struct OrderQueue {
    waiting: VecDeque<(Instant, DatanodeOrder)>,
    /// Times that the first order was sent without an answer.
    tries: u32,
}

impl OrderQueue {
    /// Adds an order.
    ///
    /// # Errors
    /// The queue is full. The order is given up: the caller counts and reports it.
    pub fn push(&mut self, now: Instant, order: DatanodeOrder) -> Result<(), DatanodeOrder> {
        if self.waiting.len() >= WAITING_MAX {
            return Err(order);
        }
        self.waiting.push_back((now, order));
        Ok(())
    }

    /// Returns whether no order waits, that under way included: the shell may end the queue's task
    /// then.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the order to send now, if any waits. Drops that wait behind a drop are joined with
    /// it, and a fence has the time that is left of it. Until [`Self::answered`] it is the first.
    pub fn first(&mut self, now: Instant) -> Option<DatanodeOrder> {
        self.join_drops();
        let (since, order) = self.waiting.front()?;
        let mut order = order.clone();
        if let Order::FenceNode { deadline_in: Some(left) } = &mut order.order {
            left.0 = left.0.saturating_sub(now.since(*since).0);
        }
        Some(order)
    }

    /// Takes the answer to the first order: the node's reply, its refusal, or `None` if it did not
    /// answer in time. Returns nothing if no order waits.
    pub fn answered(&mut self, answer: Option<Result<OrderReply, Refusal>>) -> Option<OrderStep> {
        let (_, order) = self.waiting.front()?;
        let reply = match answer {
            Some(Ok(reply)) => reply,
            Some(Err(refusal)) => match Probe::refused_by(&refusal) {
                Some(Probe::Refused) => {
                    *self = Self::default();
                    return Some(OrderStep::NodeEnded);
                }
                Some(_) => return Some(self.again(order.clone())),
                None => OrderReply::Refused(refusal),
            },
            None => return Some(self.again(order.clone())),
        };
        self.tries = 0;
        self.waiting.pop_front().map(|(_, order)| OrderStep::Replied(order, reply))
    }

    fn again(&mut self, order: DatanodeOrder) -> OrderStep {
        let pause = doubled(PAUSE_FIRST, self.tries, PAUSE_MAX);
        self.tries = self.tries.saturating_add(1);
        OrderStep::Again(order, pause)
    }

    fn join_drops(&mut self) {
        while let [(_, first), (_, second), ..] = self.waiting.make_contiguous() {
            let (Order::Drop { blocks }, Order::Drop { blocks: more }) =
                (&mut first.order, &mut second.order)
            else {
                return;
            };
            if blocks.len() >= BLOCKS_PER_PAGE_MAX {
                return;
            }
            blocks.append(more);
            self.waiting.remove(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::{BlockId, Epoch, NodeId};

    use super::*;

    fn order(order: Order) -> DatanodeOrder {
        DatanodeOrder { node: NodeId(1), address: "a:1".to_owned(), order }
    }

    fn drop_of(blocks: &[u64]) -> Order {
        Order::Drop { blocks: blocks.iter().map(|it| (BlockId(*it), Epoch(1))).collect() }
    }

    fn queue(orders: impl IntoIterator<Item = Order>) -> OrderQueue {
        let mut queue = OrderQueue::default();
        for it in orders {
            queue.push(Instant(0), order(it)).unwrap();
        }
        queue
    }

    #[test]
    fn drops_are_joined_up_to_the_next_other_order() {
        let mut queue =
            queue([drop_of(&[1]), drop_of(&[2]), drop_of(&[3]), Order::UnfenceNode, drop_of(&[4])]);
        let first = queue.first(Instant(0)).unwrap();
        assert_eq!(first.order, drop_of(&[1, 2, 3]));
        queue.push(Instant(0), order(drop_of(&[5]))).unwrap();
        // What comes while the order is on its way is not a part of it.
        assert_eq!(
            queue.answered(Some(Ok(OrderReply::Done))),
            Some(OrderStep::Replied(order(drop_of(&[1, 2, 3])), OrderReply::Done))
        );
        assert_eq!(queue.first(Instant(0)).unwrap().order, Order::UnfenceNode);
    }

    #[test]
    fn fences_of_blocks_wait_for_no_drop_and_no_fence_of_the_node_for_them() {
        let fence = Order::FenceBlocks { blocks: vec![(BlockId(1), Epoch(2))] };
        let kinds = [&fence, &drop_of(&[1]), &Order::UnfenceNode].map(OrderKind::of);
        assert_eq!(kinds, [OrderKind::BlockFence, OrderKind::Other, OrderKind::Fence]);
    }

    #[test]
    fn deadline_of_a_fence_comes_nearer_while_it_waits() {
        let fence = |left| Order::FenceNode { deadline_in: Some(Millis(left)) };
        let mut queue = queue([fence(3000)]);
        assert_eq!(queue.first(Instant(1_000_000)).unwrap().order, fence(2000));
        assert_eq!(queue.first(Instant(9_000_000)).unwrap().order, fence(0));
    }

    #[test]
    fn order_without_an_answer_is_repeated_after_pauses_that_double_up_to_a_second() {
        let mut queue = queue([Order::UnfenceNode]);
        let mut pauses = Vec::new();
        for _ in 0..100 {
            match queue.answered(None) {
                Some(OrderStep::Again(_, pause)) => pauses.push(pause.0),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(pauses[..7], [50, 100, 200, 400, 800, 1000, 1000]);
        assert!(pauses[7..].iter().all(|it| *it == 1000));
    }

    #[test]
    fn refusal_ends_an_order_and_another_process_the_queue() {
        let mut queue = queue([Order::UnfenceNode, drop_of(&[1]), drop_of(&[2])]);
        let refusal = Refusal::BadRequest { why: "no".to_owned() };
        let reply = OrderReply::Refused(refusal.clone());
        let step = queue.answered(Some(Err(refusal)));
        assert_eq!(step, Some(OrderStep::Replied(order(Order::UnfenceNode), reply)));
        let other = Refusal::WrongNode { asked: NodeId(1), here: NodeId(2) };
        assert_eq!(Probe::refused_by(&other), Some(Probe::Refused));
        assert_eq!(queue.answered(Some(Err(other))), Some(OrderStep::NodeEnded));
        assert_eq!(queue.first(Instant(0)), None);
        assert_eq!(queue.answered(None), None);
    }

    fn leads(term: u64) -> OrderLeadership {
        OrderLeadership { term, generation: GroupGeneration::default(), serves: true }
    }

    #[test]
    fn order_of_another_term_is_not_sent_nor_one_to_a_node_that_is_gone() {
        let active = Some(Policy::Active);
        assert!(leads(0).may_send(0, active), "a namenode alone");
        assert!(leads(3).may_send(3, active));
        assert!(!leads(5).may_send(3, active), "another has led in between");
        assert!(leads(1).may_send(0, active), "the founder has decided it alone");
        assert!(!leads(2).may_send(0, active));
        for policy in [None, Some(Policy::Gone)] {
            assert!(!leads(3).may_send(3, policy), "{policy:?}");
        }
        assert!(leads(3).may_send(3, Some(Policy::Draining)));
        assert!(!OrderLeadership { serves: false, ..leads(3) }.may_send(3, active));
    }

    #[test]
    fn full_queue_gives_an_order_back() {
        let mut queue = queue((0..WAITING_MAX).map(|_| Order::UnfenceNode));
        let one = order(drop_of(&[7]));
        assert_eq!(queue.push(Instant(0), one.clone()), Err(one));
    }
}
