//! Renews the leases of open writers.
//!
//! `sanderling_core::client::LeaseRenewals` decides; here its requests are sent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use sanderling_core::client::{LeaseRenewals, RenewalRequest};
use sanderling_protocol::message::Grant;
use sanderling_protocol::{self as protocol, LeaseId, ObjectId, Reply, Request};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::client::{ClientInner, machine_time};

/// The leases of the open writers of one client.
#[derive(Debug)]
pub(crate) struct Leases {
    /// Each with whether it has ended.
    renewals: Mutex<LeaseRenewals<Arc<AtomicBool>>>,
    /// A lease was added that needs its renewal sooner than the others, or the client is dropped.
    changed: Arc<Notify>,
    /// The beginning of the renewals' time.
    began: Instant,
}

impl Drop for Leases {
    fn drop(&mut self) {
        self.changed.notify_one();
    }
}

impl Leases {
    pub(crate) fn new() -> Self {
        let (renewals, changed) = (Mutex::default(), Arc::default());
        Self { renewals, changed, began: Instant::now() }
    }

    /// Starts to renew, until the client is dropped.
    pub(crate) fn start(&self, shared: &Arc<ClientInner>) {
        let (shared, changed) = (Arc::downgrade(shared), Arc::clone(&self.changed));
        tokio::spawn(async move {
            while let Some(due) = renew(&shared).await {
                match due {
                    Some(due) => _ = timeout_at(due, changed.notified()).await,
                    None => changed.notified().await,
                }
            }
        });
    }

    fn now(&self) -> protocol::Instant {
        machine_time(self.began.elapsed())
    }

    /// Returns when the next renewal is due; `None` while no writer is open.
    fn due(&self) -> Option<Instant> {
        let due = self.renewals.lock().deadline()?;
        Some(self.began + Duration::from_micros(due.0))
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
        let (object, lease, leases) = (grant.object, grant.lease, &client.leases);
        let has_ended = Arc::new(AtomicBool::new(false));
        if leases.renewals.lock().open(leases.now(), grant, Arc::clone(&has_ended)) {
            leases.changed.notify_one();
        }
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
        self.client.leases.renewals.lock().close(self.object, self.lease);
    }
}

/// Sends the requests that are due. Returns when the next one is, or `None` if the client is gone.
async fn renew(shared: &Weak<ClientInner>) -> Option<Option<Instant>> {
    let shared = shared.upgrade()?;
    let leases = &shared.leases;
    loop {
        let request = leases.renewals.lock().poll_request(leases.now());
        let Some(RenewalRequest { number, leases: named, within }) = request else {
            return Some(leases.due());
        };
        let deadline = Instant::now() + shared.config.attempt_deadline.min(within.into());
        let request = Request::RenewLeases { leases: named };
        let answer = shared.batcher.send(&request, deadline).await;
        let mut renewals = leases.renewals.lock();
        match answer {
            Ok(Reply::Renewed { ended }) => {
                for has_ended in renewals.answered(number, &ended) {
                    has_ended.store(true, Ordering::Relaxed);
                }
            }
            _ => renewals.failed(number),
        }
    }
}
