//! Renews the leases of open writers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use sanderling_protocol::{LeaseId, ObjectId, Reply, Request};
use tokio::time::Instant;

use crate::client::ClientInner;

/// How often leases are renewed: five times in the shortest that a namenode gives by default.
const RENEW_EVERY: Duration = Duration::from_secs(2);

/// The leases of the open writers of one client.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    open: Mutex<HashMap<ObjectId, (LeaseId, Arc<AtomicBool>)>>,
}

impl Leases {
    /// Starts to renew, until the client is dropped.
    pub(crate) fn start(&self, shared: &Arc<ClientInner>) {
        let shared = Arc::downgrade(shared);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(RENEW_EVERY).await;
                if !renew(&shared).await {
                    return;
                }
            }
        });
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
    pub(crate) fn new(client: &Arc<ClientInner>, object: ObjectId, lease: LeaseId) -> Self {
        let has_ended = Arc::new(AtomicBool::new(false));
        client.leases.open.lock().insert(object, (lease, Arc::clone(&has_ended)));
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
        if open.get(&self.object).is_some_and(|(kept, _)| *kept == self.lease) {
            open.remove(&self.object);
        }
    }
}

/// Renews once. Returns whether the client still exists.
async fn renew(shared: &Weak<ClientInner>) -> bool {
    let Some(shared) = shared.upgrade() else { return false };
    let leases: Vec<(ObjectId, LeaseId)> =
        shared.leases.open.lock().iter().map(|(object, (lease, _))| (*object, *lease)).collect();
    if leases.is_empty() {
        return true;
    }
    let deadline = Instant::now() + shared.config.attempt_deadline;
    // A renewal that fails is repeated in the next round. A lease that ended meanwhile is flagged.
    if let Ok(Reply::Renewed { ended }) =
        shared.batcher.send(&Request::RenewLeases { leases }, deadline).await
    {
        let open = shared.leases.open.lock();
        for object in ended {
            if let Some((_, has_ended)) = open.get(&object) {
                has_ended.store(true, Ordering::Relaxed);
            }
        }
    }
    true
}
