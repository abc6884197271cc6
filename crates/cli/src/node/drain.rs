//! `sanderling node notice` and `decommission`: give the order, and watch the node empty.

use clap::Args;
use sanderling_client::Client;
use sanderling_protocol::node::NodeInfo;
use sanderling_protocol::{NodeSelector, Policy, Reply, Request};

use crate::drain_plan;
use crate::drain_wait::DrainWait;
use crate::failure::{Exit, Failure, FailureKind};
use crate::fleet::{lost_with, nodes, title};
use crate::notice_deadline::NoticeDeadline;
use crate::refused;
use crate::refused::unexpected;
use crate::session::Session;
use crate::units;

/// What to do beside the request itself.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Following {
    /// Print what would move, to where and how long it would take, and move nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Wait until the node is empty or gone; exit code 5 when data was lost, or when the drain was
    /// taken back
    #[arg(long)]
    pub(crate) wait: bool,
    /// Confirm a drain by whose forecast bytes are late or have no room; without it the command
    /// stops with exit code 2
    #[arg(long)]
    pub(crate) yes: bool,
}

/// Most times that a notice is given while the namenode takes it late: a namenode that stood still
/// once has a later one in time. Chosen, not measured.
const GIVEN_MAX: usize = 3;

/// An order that a node be emptied.
#[derive(Debug)]
pub(super) struct DrainOrder {
    /// The node.
    pub(super) node: NodeSelector,
    /// Why, for the events.
    pub(super) reason: String,
    /// When the node is killed; `None` to decommission it.
    pub(super) deadline: Option<NoticeDeadline>,
}

impl DrainOrder {
    fn left_millis(&self) -> Option<i64> {
        self.deadline.map(NoticeDeadline::left_millis)
    }

    /// Returns the request for the order that is sent now.
    fn request(&self) -> Request {
        let (node, reason) = (self.node.clone(), self.reason.clone());
        match self.left_millis() {
            Some(deadline_millis) => Request::Notice { node, deadline_millis, reason },
            None => Request::Decommission { node, reason },
        }
    }

    /// Returns whether the namenode reckons with a later deadline than this one: the request waited
    /// for it, with the time that was left when it was sent.
    fn was_taken_late(&self, taken: &NodeInfo) -> bool {
        match (self.deadline, taken.deadline_in) {
            (Some(deadline), Some(left)) => deadline.is_before(left),
            _ => false,
        }
    }

    /// Gives the order, and a notice that was taken late once more: that brings the deadline
    /// nearer. Returns the node as the namenode has it then.
    async fn give(&self, session: &Session, client: &Client) -> Result<NodeInfo, Failure> {
        let mut taken = self.give_once(session, client).await?;
        for _ in 1..GIVEN_MAX {
            if !self.was_taken_late(&taken) {
                break;
            }
            // The node has its notice already.
            let Ok(again) = self.give_once(session, client).await else { break };
            taken = again;
        }
        Ok(taken)
    }

    async fn give_once(&self, session: &Session, client: &Client) -> Result<NodeInfo, Failure> {
        match session.call(client, self.request()).await? {
            Reply::Node(info) => Ok(*info),
            reply => Err(unexpected(&reply)),
        }
    }
}

pub(super) async fn run(
    session: &Session,
    order: &DrainOrder,
    following: Following,
) -> Result<(), Failure> {
    let client = session.client().await?;
    if following.dry_run {
        let given = order.deadline.map(NoticeDeadline::given_millis);
        return drain_plan::run(session, &client, &order.node, given).await;
    }
    let no_room = confirmed(session, &client, order, following.yes).await?;
    let taken = order.give(session, &client).await?;
    if let Some(note) = &no_room {
        session.output.note(note);
    }
    note_without_active(session, &client).await;
    if following.wait {
        let wait = DrainWait {
            deadline: order.deadline.and_then(NoticeDeadline::moment),
            is_noted: no_room.is_some(),
            next_without_room: next_without_room(session, &taken),
            ordered: taken,
        };
        let ended = wait.end(session, &client).await?;
        return verdict(session, &ended);
    }
    session.output.result(&taken, |writer| {
        let deadline = taken.deadline_in.map(|left| format!(" within {}", units::millis(left)));
        let bytes = units::bytes(taken.exposure_bytes);
        let deadline = deadline.unwrap_or_default();
        let blocks = units::count(taken.blocks, "block", "blocks");
        writeln!(writer, "{}: {blocks}, {bytes} leave{deadline}", title(&taken))
    })
}

/// Notes that no node takes blocks any more, if so. The order is given: a list that fails is not
/// its failure.
async fn note_without_active(session: &Session, client: &Client) {
    let Ok(fleet) = nodes(session, client, false).await else { return };
    if !fleet.iter().any(|node| node.policy == Policy::Active) {
        session.output.note("no active node is left that takes blocks: writes wait for one");
    }
}

/// Prints the forecast of a drain, and stops before one that loses bytes, unless it is confirmed.
/// Returns what is to be noted about a drain without room.
async fn confirmed(
    session: &Session,
    client: &Client,
    order: &DrainOrder,
    is_confirmed: bool,
) -> Result<Option<String>, Failure> {
    let left_millis = order.left_millis();
    if left_millis.is_some_and(|millis| millis <= 0) {
        // The namenode refuses it in its own words.
        return Ok(None);
    }
    let plan = match drain_plan::planned(session, client, &order.node, left_millis).await {
        Ok(plan) => plan,
        // A confirmed order does not depend on a forecast.
        Err(_) if is_confirmed => return Ok(None),
        Err(failure) => return Err(failure),
    };
    session.output.note(plan.line());
    let Some(objection) = plan.objection().filter(|_| !is_confirmed) else {
        return Ok(plan.no_room());
    };
    Err(Failure::new(Exit::Usage, FailureKind::NotConfirmed, objection)
        .tried("planned the drain: nothing was changed")
        .next("the same with --dry-run, or the same with --yes"))
}

/// Returns the next step of a drain that waits for room: more time does not help.
fn next_without_room(session: &Session, node: &NodeInfo) -> String {
    let addition = sanderling_local::addition(&session.namenode);
    let cancel = format!("sanderling node cancel {}", refused::shell_word(&node.name));
    format!("{}, or {cancel}", addition.unwrap_or("start another datanode"))
}

/// Prints what has become of the node.
///
/// # Errors
/// Partial (5) when data was lost with it.
fn verdict(session: &Session, info: &NodeInfo) -> Result<(), Failure> {
    let drain = info.drain.unwrap_or_default();
    session.output.result(info, |writer| {
        writeln!(writer, "{} is {}", title(info), info.policy.name())?;
        if drain.elapsed.0 > 0 || drain.moved_blocks > 0 {
            writeln!(writer, "{}", super::list::drain_line(info, &drain))?;
        }
        Ok(())
    })?;
    lost_with(info).map_or(Ok(()), |failure| Err(failure.next("sanderling fsck")))
}
