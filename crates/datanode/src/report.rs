//! Block reports: does what `core` decides about them.

use std::sync::Arc;

use sanderling_core::datanode::{ReportProgress, ReportStep};
use sanderling_protocol::{Refusal, Reply, Request};
use sanderling_transport::CallError;

use crate::membership::Membership;
use crate::store::BlockStore;
use crate::store::damaged::start_probe;

/// Reports to the namenode page by page what the node holds, drops what it does not want, and
/// checks whether what it expects is there. Waits for no disk: files are checked beside it.
///
/// # Errors
/// The namenode did not answer; the report is to be made again.
pub(crate) async fn report(
    membership: &Membership,
    store: &Arc<BlockStore>,
) -> Result<(), CallError> {
    let namenode = membership.namenode();
    let mut report = ReportProgress::default();
    loop {
        let step = report.next(&store.table());
        match step {
            ReportStep::Held(blocks) => {
                let request = Request::BlockReport { node: membership.id(), blocks };
                match namenode.call(request).await? {
                    Reply::Drop { blocks } => store.drop_held(&report.unwanted(blocks)),
                    other => return Err(namenode.bad_reply(other)),
                }
            }
            ReportStep::Probe => {
                store.damages().report_again();
                start_probe(store);
                report.probed();
            }
            ReportStep::Expected { after, limit } => {
                let identity = membership.identity();
                let (id, nonce) = (identity.node.unwrap_or_default(), identity.nonce);
                let request = Request::ExpectedBlocks { node: id, nonce, after, limit };
                match namenode.call(request).await {
                    Ok(Reply::Expected { blocks, is_more }) => {
                        let missing = report.expected(&store.table(), &blocks, is_more);
                        missing.into_iter().for_each(|it| store.damages().add_unheld(it));
                    }
                    Ok(other) => return Err(namenode.bad_reply(other)),
                    Err(CallError::Refused(Refusal::UnknownVersion { .. })) => {
                        report.not_comparable();
                    }
                    Err(error) => return Err(error),
                }
            }
            ReportStep::Done => {
                let dropped = report.dropped();
                if dropped > 0 {
                    let node = membership.id();
                    tracing::info!(%node, blocks = dropped, "unwanted blocks dropped");
                }
                return Ok(());
            }
        }
    }
}
