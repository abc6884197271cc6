//! Keeping the leases of open writers.

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

    /// Keeps a lease from now on. The flag is set when it has ended all the same.
    pub(crate) fn keep(&self, object: ObjectId, lease: LeaseId) -> Arc<AtomicBool> {
        let has_ended = Arc::new(AtomicBool::new(false));
        self.open.lock().insert(object, (lease, Arc::clone(&has_ended)));
        has_ended
    }

    pub(crate) fn forget(&self, object: ObjectId, lease: LeaseId) {
        let mut open = self.open.lock();
        if open.get(&object).is_some_and(|(kept, _)| *kept == lease) {
            open.remove(&object);
        }
    }
}

/// Renews once. Returns whether the client is still there.
async fn renew(shared: &Weak<ClientInner>) -> bool {
    let Some(shared) = shared.upgrade() else { return false };
    let leases: Vec<(ObjectId, LeaseId)> =
        shared.leases.open.lock().iter().map(|(object, (lease, _))| (*object, *lease)).collect();
    if leases.is_empty() {
        return true;
    }
    let deadline = Instant::now() + shared.config.attempt_deadline;
    // What cannot be renewed now is renewed next time; if it ends meanwhile, the writer is told.
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
