//! Finding out whether a datanode is on this machine.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sanderling_protocol::frame::decode_body;
use sanderling_protocol::local::LocalEndpoint;
use sanderling_protocol::{Header, NodeId, Op, Refusal};
use sanderling_transport::local::boot_id;
use sanderling_transport::{CallError, Pool, ReplyFault};
use tokio::time::Instant;

use super::peer::Peer;

/// Time after which a node that is elsewhere is probed again: it may never move here, and a probe
/// is one small call.
pub(super) const ABSENT_FOR: Duration = Duration::from_secs(300);

/// Time after which a node that is here but could not be reached is tried again. A node that is
/// started again takes seconds. The probe runs beside the calls, so an early one costs little.
/// Chosen, not measured.
pub(super) const BROKEN_FOR: Duration = Duration::from_secs(5);

/// Longest time of the whole search. Calls go over TCP meanwhile. As long as one attempt at a
/// datanode takes by default.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(3);

/// Requests the node's local endpoint and connects to it. `None` when it is elsewhere or has none.
///
/// # Errors
/// Those of the call and of the connection to the endpoint: the caller uses TCP, and probes again
/// after [`BROKEN_FOR`].
pub(super) async fn probe(
    pool: &Pool,
    node: NodeId,
    address: &str,
) -> Result<Option<Arc<Peer>>, CallError> {
    let Some(here) = boot_id() else { return Ok(None) };
    let deadline = Instant::now() + SEARCH_TIMEOUT;
    let header = Header::new(Op::LocalEndpoint, 0);
    let answer = pool.call(address, Some(node), header, Vec::new(), deadline).await;
    let answer = match answer {
        // A token that does not reach everything gets copies, over TCP.
        Err(CallError::Refused(Refusal::Forbidden { .. })) => return Ok(None),
        answer => answer?,
    };
    let endpoint: Option<LocalEndpoint> = decode_body(&answer.body).map_err(|refusal| {
        let fault = ReplyFault::Undecodable(Box::new(refusal));
        CallError::BadReply { address: address.to_owned(), fault }
    })?;
    let Some(endpoint) = endpoint.filter(|endpoint| endpoint.boot_id == here) else {
        return Ok(None);
    };
    Peer::open(PathBuf::from(endpoint.socket), pool, node, deadline).await.map(Some)
}
