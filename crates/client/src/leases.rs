//! Renews the leases of open writers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use sanderling_core::client::{RENEWAL_PAUSE_MAX, renewal_pause};
use sanderling_protocol::limits::LEASES_PER_RENEWAL_MAX;
use sanderling_protocol::message::Grant;
use sanderling_protocol::{LeaseId, Millis, ObjectId, Reply, Request};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::client::ClientInner;

/// The leases of the open writers of one client.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    open: Mutex<HashMap<ObjectId, OpenLease>>,
    /// A lease was added, which may need its renewal sooner than the others.
    added: Arc<Notify>,
}

/// The lease of an open writer.
#[derive(Debug)]
struct OpenLease {
    lease: LeaseId,
    /// Between two renewals.
    pause: Millis,
    has_ended: Arc<AtomicBool>,
}

impl Leases {
    /// Starts to renew, until the client is dropped.
    pub(crate) fn start(&self, shared: &Arc<ClientInner>) {
        let (shared, added) = (Arc::downgrade(shared), Arc::clone(&self.added));
        tokio::spawn(async move {
            let mut renewed = Instant::now();
            loop {
                let Some(pause) = shared.upgrade().map(|it| it.leases.pause()) else { return };
                tokio::select! {
                    () = added.notified() => continue,
                    () = sleep_until(renewed + pause) => {}
                }
                renewed = Instant::now();
                if !renew(&shared).await {
                    return;
                }
            }
        });
    }

    /// Returns the pause that the shortest lease needs.
    fn pause(&self) -> Duration {
        let shortest = self.open.lock().values().map(|it| it.pause).min();
        shortest.unwrap_or(RENEWAL_PAUSE_MAX).into()
    }
}

/// The lease of one writer. It is renewed until this is dropped.
#[derive(Debug)]
pub(crate) struct RenewedLease {
    client: Arc<ClientInner>,
    object: ObjectId,
    lease: LeaseId,
    has_ended: Arc<AtomicBool>,
}

impl RenewedLease {
    /// Renews a lease from now on.
    pub(crate) fn new(client: &Arc<ClientInner>, grant: &Grant) -> Self {
        let (object, lease, pause) = (grant.object, grant.lease, renewal_pause(grant.lease_millis));
        let has_ended = Arc::new(AtomicBool::new(false));
        let open = OpenLease { lease, pause, has_ended: Arc::clone(&has_ended) };
        client.leases.open.lock().insert(object, open);
        client.leases.added.notify_one();
        Self { client: Arc::clone(client), object, lease, has_ended }
    }

    /// Returns the object and its lease, as requests name them.
    pub(crate) const fn ids(&self) -> (ObjectId, LeaseId) {
        (self.object, self.lease)
    }

    /// Returns whether the lease has ended although it was renewed: the namenode reported so.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }
}

impl Drop for RenewedLease {
    fn drop(&mut self) {
        let mut open = self.client.leases.open.lock();
        if open.get(&self.object).is_some_and(|kept| kept.lease == self.lease) {
            open.remove(&self.object);
        }
    }
}

/// Renews once. Returns whether the client still exists.
async fn renew(shared: &Weak<ClientInner>) -> bool {
    let Some(shared) = shared.upgrade() else { return false };
    let leases: Vec<(ObjectId, LeaseId)> =
        shared.leases.open.lock().iter().map(|(object, it)| (*object, it.lease)).collect();
    for leases in leases.chunks(LEASES_PER_RENEWAL_MAX) {
        let request = Request::RenewLeases { leases: leases.to_vec() };
        let deadline = Instant::now() + shared.config.attempt_deadline;
        // A renewal that fails is repeated in the next round. A lease that ended meanwhile is
        // flagged.
        if let Ok(Reply::Renewed { ended }) = shared.batcher.send(&request, deadline).await {
            let open = shared.leases.open.lock();
            for object in ended {
                if let Some(lease) = open.get(&object) {
                    lease.has_ended.store(true, Ordering::Relaxed);
                }
            }
        }
    }
    true
}
