//! Doing what is due: by the log's time, and by service time.

use sanderling_protocol::node::Policy;
use sanderling_protocol::{Instant, JobId, Millis, NodeId, ObjectId};

use super::Catalog;
use super::orders::Orders;
use super::timers::Timer;

/// When an object is looked at again that ought to be deleted and waits for its store. A store is
/// tried again after 0.4 to 10 s, so sooner would mostly find the same.
const EXPIRES_LATER: Millis = Millis(1000);

impl Catalog {
    /// Does what is due. Renewals do not touch the index, so an entry may come early: it is put
    /// back.
    pub(super) fn tick(&mut self, orders: &mut Orders) {
        for _ in 0..self.limits.due_per_tick_max {
            // First by the log's time, then by service time.
            let due = self.timers.take_due(self.now);
            let Some(due) = due.or_else(|| self.service.take_due(self.now)) else { return };
            match due {
                Timer::Object(object) => self.expire_object(object, orders),
                Timer::Lease(object) => self.expire_lease(object, orders),
                Timer::Job(job) => self.expire_job(job, orders),
                Timer::Node(node) => self.pass_deadline(node, orders),
                Timer::Move(block, epoch) => self.fleet().expire_move(block, epoch, orders),
                Timer::Promote(node) => self.fleet().promote_copies(node, orders),
                Timer::Events => self.events.add_due(self.now),
            }
        }
    }

    fn expire_object(&mut self, id: ObjectId, orders: &mut Orders) {
        let Some(object) = self.objects.get(&id).filter(|_| !self.is_deleted(id)) else { return };
        match object.expires_at {
            Some(at) if at <= self.served() => {
                if self.check_may_go(id, orders).is_err() {
                    let later = self.served() + EXPIRES_LATER;
                    return self.service.schedule(later, Timer::Object(id));
                }
                self.delete_tree(id, orders);
            }
            // A snapshot of an earlier version has such entries by the log's time.
            Some(at) => self.service.schedule(at, Timer::Object(id)),
            None => {}
        }
    }

    fn expire_job(&mut self, id: JobId, orders: &mut Orders) {
        let Some(job) = self.job(id) else { return };
        let (until, root) = (self.service.lease_end(job.until, job.lease), job.root);
        if until <= self.served() && self.check_may_go(root, orders).is_err() {
            self.service.schedule(self.served() + EXPIRES_LATER, Timer::Job(id));
        } else if until <= self.served() {
            self.end_job(id, true, orders);
        } else {
            self.service.schedule(until, Timer::Job(id));
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
            Some(at) => self.timers.schedule(at, Timer::Node(id)),
            None => {}
        }
    }

    /// Sets when an object's time to live ends, by service time; `None` to keep it for ever.
    pub(super) fn set_expiry(&mut self, id: ObjectId, at: Option<Instant>) {
        let Some(object) = self.objects.get_mut(&id) else { return };
        if let Some(before) = std::mem::replace(&mut object.expires_at, at) {
            self.service.cancel(before, Timer::Object(id));
        }
        if let Some(at) = at {
            self.service.schedule(at, Timer::Object(id));
        }
    }

    /// Does not count a time in which no namenode served against leases, times to live and notices.
    pub(super) fn absent(&mut self, absence: Millis) {
        let soonest = self.now + self.service.add_absence(absence);
        let is_short = |deadline: Instant| deadline < soonest && absence.0 > 0;
        let short: Vec<NodeId> = self
            .nodes
            .iter()
            .filter(|(_, node)| node.policy != Policy::Gone && node.deadline.is_some_and(is_short))
            .map(|(id, _)| *id)
            .collect();
        if absence.0 > 0 {
            self.claims.postpone(soonest);
        }
        for id in short {
            if let Some(node) = self.nodes.get_mut(id) {
                node.deadline = Some(soonest);
            }
            self.timers.schedule(soonest, Timer::Node(id));
        }
    }
}
