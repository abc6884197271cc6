//! Reports to the namenode which stores this node reaches, when [`StoreReports`] has that due.

use std::sync::Arc;
use std::time::Duration;

use sanderling_core::datanode::StoreReports;
use sanderling_protocol::Request;
use sanderling_protocol::message::DurableRequest;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::membership::Membership;

/// Time between two looks whether a report is due: the node may have registered anew. Less than a
/// heartbeat of 500 ms, so that a new incarnation's stores are in use a moment after it registered;
/// a look costs one lock. Chosen, not measured.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Reports the stores until the node stops.
pub(crate) async fn report_stores(
    membership: Arc<Membership>,
    stores: Vec<String>,
    stop: CancellationToken,
) {
    let mut reports = StoreReports::default();
    loop {
        let identity = membership.identity();
        if let Some(node) = reports.due(membership.clock().now(), identity.node) {
            let (nonce, stores) = (identity.nonce, stores.clone());
            let report = DurableRequest::ServeStores { node, nonce, stores };
            match membership.namenode().call(Request::Durable(Box::new(report))).await {
                Ok(_) => reports.accepted(membership.clock().now(), node),
                Err(error) => tracing::debug!(%error, "the stores were not reported"),
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep(POLL_INTERVAL) => {}
        }
    }
}
