//! What becomes due by itself: lifetimes, leases, deadlines.

use sanderling_protocol::node::Policy;
use sanderling_protocol::{BlockId, Epoch, Instant, JobId, NodeId, ObjectId};
use serde::{Deserialize, Serialize};

use super::Catalog;
use super::orders::Orders;

/// Something with a time. Ordered so that equal times are taken in the same order everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Timer {
    /// An object's time to live ends.
    Object(ObjectId),
    /// A writer's lease ends.
    Lease(ObjectId),
    /// A job's lease ends.
    Job(JobId),
    /// A noticed node's deadline passes.
    Node(NodeId),
    /// A reservation without a drain ends.
    Move(BlockId, Epoch),
    /// More copies of a draining node's blocks become homes.
    Promote(NodeId),
    /// Moves that were gathered are told.
    Events,
}

impl Catalog {
    pub(super) fn schedule(&mut self, at: Instant, due: Timer) {
        self.due.insert((at, due));
    }

    /// Takes the first thing that is due by the log's time or by service time.
    fn take_expired(&mut self) -> Option<Timer> {
        if self.due.first().is_some_and(|(at, _)| *at <= self.now) {
            return self.due.pop_first().map(|(_, due)| due);
        }
        let served = self.served();
        self.service.due.first().filter(|(at, _)| *at <= served)?;
        self.service.due.pop_first().map(|(_, due)| due)
    }

    /// Does what is due. Renewals do not touch the index, so an entry may come early: it is put
    /// back.
    pub(super) fn tick(&mut self, orders: &mut Orders) {
        for _ in 0..self.limits.due_per_tick_max {
            let Some(due) = self.take_expired() else { return };
            match due {
                Timer::Object(object) => self.expire_object(object, orders),
                Timer::Lease(object) => self.expire_lease(object, orders),
                Timer::Job(job) => self.expire_job(job, orders),
                Timer::Node(node) => self.pass_deadline(node, orders),
                Timer::Move(block, epoch) => self.expire_move(block, epoch, orders),
                Timer::Promote(node) => self.promote_copies(node, orders),
                Timer::Events => self.tell_gathered(),
            }
        }
    }

    fn expire_object(&mut self, id: ObjectId, orders: &mut Orders) {
        let Some(object) = self.objects.get(&id).filter(|_| !self.is_deleted(id)) else { return };
        match object.expires_at {
            Some(at) if at <= self.served() => {
                self.delete_tree(id, orders);
            }
            // A snapshot of an earlier version has such entries by the log's time.
            Some(at) => self.schedule_served(at, Timer::Object(id)),
            None => {}
        }
    }

    fn expire_job(&mut self, id: JobId, orders: &mut Orders) {
        let Some(job) = self.job(id) else { return };
        let until = self.lease_end(job.until, job.lease);
        if until <= self.served() {
            self.end_job(id, true, orders);
        } else {
            self.schedule_served(until, Timer::Job(id));
        }
    }

    fn pass_deadline(&mut self, id: NodeId, orders: &mut Orders) {
        let Some(node) = self.nodes.get(id) else { return };
        if node.policy == Policy::Gone || node.policy == Policy::Active {
            return;
        }
        match node.deadline {
            Some(at) if at <= self.now => {
                self.remove_node(id, "its deadline passed", orders);
            }
            Some(at) => self.schedule(at, Timer::Node(id)),
            None => {}
        }
    }
}
