//! Reports of damaged blocks to the namenode, repeated until it has acknowledged them.

use std::sync::Arc;

use sanderling_protocol::{Reply, Request};
use sanderling_transport::CallError;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::membership::Membership;
use crate::store::BlockStore;

/// Reports damage until the node stops.
pub(crate) async fn report_damage(
    membership: Arc<Membership>,
    store: Arc<BlockStore>,
    stop: CancellationToken,
) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = store.damages().changed() => {}
        }
        while let Err(error) = report_pending(&membership, &store).await {
            tracing::debug!(%error, "a report of damage was not acknowledged");
            let refusal =
                if let CallError::Refused(refusal) = &error { Some(refusal) } else { None };
            let pause = store.damages().known().pause(refusal);
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(pause.into()) => {}
            }
        }
    }
}

/// Sends everything that the namenode has not taken.
async fn report_pending(membership: &Membership, store: &BlockStore) -> Result<(), CallError> {
    let namenode = membership.namenode();
    loop {
        let identity = membership.identity();
        // Not joined: what is here will be reported after the registration.
        let Some(id) = identity.node else { return Ok(()) };
        let report = {
            let table = store.table();
            store.damages().known().next(&table)
        };
        let Some(report) = report else { return Ok(()) };
        let (nonce, blocks) = (identity.nonce, report.blocks.clone());
        let answer = namenode.call(Request::ReportDamage { node: id, nonce, blocks }).await;
        let is_taken = matches!(answer, Ok(Reply::Done));
        store.damages().known().reported(&report, is_taken);
        match answer? {
            Reply::Done => {}
            other => return Err(namenode.bad_reply(other)),
        }
    }
}
