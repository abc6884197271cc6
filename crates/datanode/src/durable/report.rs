//! Reports to the namenode which stores this node reaches, after every registration.

use std::sync::Arc;
use std::time::Duration;

use sanderling_protocol::Request;
use sanderling_protocol::message::DurableRequest;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::membership::Membership;

/// Time between two looks whether the node has registered anew.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Time after which the report is repeated: the end of the namenode's log may have been lost.
const REPEAT_AFTER: Duration = Duration::from_secs(10);

/// Reports the stores until the node stops.
pub(crate) async fn report_stores(
    membership: Arc<Membership>,
    stores: Vec<String>,
    stop: CancellationToken,
) {
    let mut reported = None;
    loop {
        let identity = membership.identity();
        let is_known = reported.is_some_and(|(node, at): (_, Instant)| {
            Some(node) == identity.node && at.elapsed() < REPEAT_AFTER
        });
        if let Some(node) = identity.node.filter(|_| !is_known) {
            let (nonce, stores) = (identity.nonce, stores.clone());
            let report = DurableRequest::ServeStores { node, nonce, stores };
            match membership.namenode().call(Request::Durable(Box::new(report))).await {
                Ok(_) => reported = Some((node, Instant::now())),
                Err(error) => tracing::debug!(%error, "the stores were not reported"),
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep(LOOK_EVERY) => {}
        }
    }
}
