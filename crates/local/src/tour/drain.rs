//! The notice, and a client that reads and writes while the node empties.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use sanderling_client::{Client, PutOptions};
use sanderling_command::drain_plan::VERDICT_TIMEOUT;
use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_command::fleet::nodes;
use sanderling_command::progress::Progress;
use sanderling_command::refused::unexpected;
use sanderling_command::session::Session;
use sanderling_command::units::{self, Span};
use sanderling_protocol::message::CreateMode;
use sanderling_protocol::node::NodeInfo;
use sanderling_protocol::{Millis, NodeSelector, Path, Reply, Request};
use serde::Serialize;

use super::data::{Data, unless_ended};

/// Time between two looks at the drain: the picture changes smoothly, and a look is one small
/// request. Chosen, not measured.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How many bytes a client reads or writes at a time meanwhile: a sixteenth of a block, so that
/// calls are frequent. Chosen, not measured.
const CALL_BYTES: u64 = 64 << 10;

/// Pause of that client: it shows that calls succeed, some hundred in a second, and leaves the
/// processors to the drain. Chosen, not measured.
const PAUSE: Duration = Duration::from_millis(5);

/// What the drain did, and what a client saw meanwhile.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Drained {
    pub(super) moved_bytes: u64,
    pub(super) moved_blocks: u64,
    pub(super) drain_millis: Millis,
    pub(super) lost_bytes: u64,
    /// Calls of a client during the drain.
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) failed: u64,
}

/// Gives the node its notice and waits until it is empty or gone.
pub(super) async fn run(
    session: &Session,
    client: &Client,
    data: &Data,
    node: &str,
    deadline: Span,
) -> Result<Drained, Failure> {
    let request = Request::Notice {
        node: NodeSelector(node.to_owned()),
        deadline_millis: i64::try_from(deadline.millis().0).unwrap_or(i64::MAX),
        reason: "tour".to_owned(),
    };
    let reply = session.call(client, request).await?;
    let Reply::Node(noticed) = reply else { return Err(unexpected(&reply)) };
    let bytes = units::bytes(noticed.exposure_bytes);
    let within = units::duration(deadline.0);
    session.output.note(format_args!("notice    {node} has {within} and holds {bytes}"));
    let mut called = Drained::default();
    let info = tokio::select! {
        info = emptied(session, client, &noticed, deadline.0) => info?,
        never = calls(client, *data, &mut called) => match never {},
    };
    let drain = info.drain.unwrap_or_default();
    Ok(Drained {
        moved_bytes: drain.moved_bytes,
        moved_blocks: drain.moved_blocks,
        drain_millis: drain.elapsed,
        lost_bytes: drain.lost_bytes,
        ..called
    })
}

/// Waits until the node is empty or gone.
async fn emptied(
    session: &Session,
    client: &Client,
    noticed: &NodeInfo,
    deadline: Duration,
) -> Result<NodeInfo, Failure> {
    let mut progress = Progress::start(session.output, "moving", Some(noticed.exposure_bytes));
    let limit = Instant::now() + deadline + VERDICT_TIMEOUT;
    loop {
        let fleet = nodes(session, client, true).await?;
        let info = fleet.into_iter().find(|node| node.id == noticed.id);
        if let Some(info) = info {
            progress.set(info.drain.unwrap_or_default().moved_bytes);
            if !info.policy.is_draining() {
                progress.finish();
                return Ok(info);
            }
        }
        if Instant::now() > limit {
            let cause = format!("{} is still draining after its deadline", noticed.name);
            return Err(Failure::new(Exit::Deadline, FailureKind::Deadline, cause)
                .next("sanderling node ls --all"));
        }
        unless_ended(session, async {
            tokio::time::sleep(POLL_INTERVAL).await;
            Ok(())
        })
        .await?;
    }
}

/// Reads stored bytes and writes others, until it is dropped; counts what fails.
async fn calls(client: &Client, data: Data, seen: &mut Drained) -> Infallible {
    let log: Path = "/tour/log".parse().expect("a plain path");
    let options = PutOptions { mode: CreateMode::Replace, ..PutOptions::default() };
    loop {
        let object = seen.reads % data.objects();
        // Another place of the object in each round.
        let pieces = (data.size(object) / CALL_BYTES).max(1);
        let from = (seen.reads / data.objects() % pieces) * CALL_BYTES;
        let bytes = CALL_BYTES.min(data.size(object) - from);
        let wanted = Data::part(object, from, bytes);
        let read = client.get_range(&Data::path(object), from, bytes).await;
        seen.reads += 1;
        seen.failed += u64::from(!read.is_ok_and(|read| read == wanted));
        let written = client.put(&log, wanted, &options).await;
        seen.writes += 1;
        seen.failed += u64::from(written.is_err());
        tokio::time::sleep(PAUSE).await;
    }
}
