//! Block reports: does what `core` decides about them.

use std::sync::Arc;

use sanderling_core::datanode::{ReportProgress, ReportStep};
use sanderling_protocol::{Refusal, Reply, Request};
use sanderling_transport::CallError;

use crate::node::Node;
use crate::store::damaged::probe_files;

/// Tells the namenode page by page what the node holds, drops what nobody wants, and looks whether
/// what is wanted is there.
///
/// # Errors
/// The namenode did not answer; the report is to be made again.
pub(crate) async fn report(node: &Arc<Node>) -> Result<(), CallError> {
    let mut report = ReportProgress::default();
    loop {
        let step = report.next(&node.store.table());
        match step {
            ReportStep::Held(blocks) => {
                let request = Request::BlockReport { node: node.id(), blocks };
                match node.ask(request).await? {
                    Reply::Drop { blocks } => node.store.drop_held(&report.unwanted(blocks)),
                    other => return Err(node.bad_reply(&other)),
                }
            }
            ReportStep::Probe => {
                node.store.damages().report_again();
                probe_files(&node.store).await;
                report.probed();
            }
            ReportStep::Expected { after, limit } => {
                let identity = node.identity();
                let (id, nonce) = (identity.node.unwrap_or_default(), identity.nonce);
                let request = Request::ExpectedBlocks { node: id, nonce, after, limit };
                match node.ask(request).await {
                    Ok(Reply::Expected { blocks, is_more }) => {
                        let missing = report.expected(&node.store.table(), &blocks, is_more);
                        missing.into_iter().for_each(|it| node.store.damages().add_unheld(it));
                    }
                    Ok(other) => return Err(node.bad_reply(&other)),
                    Err(CallError::Refused(Refusal::UnknownVersion { .. })) => {
                        report.not_comparable();
                    }
                    Err(error) => return Err(error),
                }
            }
            ReportStep::Done => {
                let dropped = report.dropped();
                if dropped > 0 {
                    tracing::info!(node = %node.id(), blocks = dropped, "unwanted blocks dropped");
                }
                return Ok(());
            }
        }
    }
}
