//! The wait for the end of a drain that a command has ordered.

use std::time::{Duration, Instant};

use sanderling_client::Client;
use sanderling_protocol::node::NodeInfo;
use sanderling_protocol::{Policy, Refusal};

use crate::drain_plan::{self, VERDICT_TIMEOUT};
use crate::failure::{Exit, Failure, FailureKind};
use crate::fleet::{forecast, nodes, title};
use crate::progress::Progress;
use crate::session::Session;
use crate::{refused, units};

/// Time between two looks at the node while a command waits for its drain. A person sees no shorter
/// one, and a look is one small request. Chosen, not measured.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A drain that was ordered, as it is waited for.
#[derive(Debug)]
pub struct DrainWait {
    /// The node, as it was when the namenode took the order.
    pub ordered: NodeInfo,
    /// When its deadline passes; `None` for a drain without one.
    pub deadline: Option<Instant>,
    /// Whether it is noted already that bytes have no room on other nodes.
    pub is_noted: bool,
    /// The next step while bytes have no room: more time does not help.
    pub next_without_room: String,
}

impl DrainWait {
    /// Waits until the node is empty or gone, and returns it as it is then. What is lost with it is
    /// no failure here.
    ///
    /// # Errors
    /// Partial (5) when the drain was taken back: the node takes blocks, so it must not be ended.
    /// Deadline (124) when the namenode still has it as draining long after its deadline. As
    /// [`Session::call`]; interrupted (130), without a message.
    pub async fn end(mut self, session: &Session, client: &Client) -> Result<NodeInfo, Failure> {
        let bytes = self.ordered.exposure_bytes;
        let mut progress = Progress::start(session.output, "moving", Some(bytes));
        let limit = self.deadline.map(|deadline| deadline + VERDICT_TIMEOUT);
        let mut is_without_room = self.is_noted;
        loop {
            let info = self.look(session, client).await?;
            let drain = info.drain.unwrap_or_default();
            if let Some(expected) = drain.forecast.filter(|_| info.policy.is_draining()) {
                progress.describe(&format!("moving, left {}", forecast(&expected)));
                is_without_room = expected.unplaced_bytes > 0;
                if is_without_room && !self.is_noted {
                    self.is_noted = true;
                    session.output.note(drain_plan::no_room(&info, expected.unplaced_bytes));
                }
            }
            progress.set(drain.moved_bytes);
            match info.policy {
                Policy::Draining | Policy::Decommissioning => {}
                Policy::Active => return Err(taken_back(&info)),
                Policy::Drained | Policy::Gone => {
                    progress.finish();
                    return Ok(info);
                }
            }
            if limit.is_some_and(|limit| Instant::now() > limit) {
                return Err(late(&info));
            }
            tokio::select! {
                () = tokio::time::sleep(POLL_INTERVAL) => {}
                () = session.ended.cancelled() => {
                    let left = units::bytes(drain.left_bytes);
                    let failure = Failure::silent(Exit::Interrupted).tried(format_args!(
                        "waited for {} to be empty: {left} left, its drain goes on",
                        title(&info)
                    ));
                    return Err(match is_without_room {
                        true => failure.next(self.next_without_room),
                        false => failure,
                    });
                }
            }
        }
    }

    async fn look(&self, session: &Session, client: &Client) -> Result<NodeInfo, Failure> {
        let fleet = nodes(session, client, true).await.map_err(|failure| {
            let title = title(&self.ordered);
            let tried = format!("waited for {title} to be empty: its drain goes on");
            failure.tried(tried).next("sanderling node ls --all")
        })?;
        let node = self.ordered.id;
        let found = fleet.into_iter().find(|info| info.id == node);
        found.ok_or_else(|| refused::refusal_failure(&Refusal::NodeGone { node }))
    }
}

fn taken_back(info: &NodeInfo) -> Failure {
    let cause = format!("the drain of {} was taken back: it takes blocks again", title(info));
    Failure::new(Exit::Partial, FailureKind::NotDrained, cause)
        .tried("waited for the node to be empty")
        .next("sanderling node ls")
}

fn late(info: &NodeInfo) -> Failure {
    let cause = format!("{} is still draining after its deadline", title(info));
    Failure::new(Exit::Deadline, FailureKind::Deadline, cause)
        .tried(format_args!(
            "waited {} longer for the namenode to declare the node empty or gone",
            units::duration(VERDICT_TIMEOUT)
        ))
        .next("sanderling node ls --all")
}
