//! `sanderling node notice` and `decommission`: give the order, and watch the node empty.

use std::time::{Duration, Instant};

use clap::Args;
use sanderling_client::Client;
use sanderling_protocol::node::NodeInfo;
use sanderling_protocol::{NodeSelector, Policy, Refusal, Reply, Request};

use crate::drain_plan::{self, VERDICT_WITHIN};
use crate::failure::{Exit, Failure, FailureKind, RefusalKind};
use crate::fleet::{forecast, nodes, title};
use crate::progress::Progress;
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
    /// Wait until the node is empty or gone; exit code 5 when data was lost
    #[arg(long)]
    pub(crate) wait: bool,
    /// Confirm a drain by whose forecast bytes are late or have no room; without it the command
    /// stops with exit code 2
    #[arg(long)]
    pub(crate) yes: bool,
}

/// How often `--wait` looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub(super) async fn run(
    session: &Session,
    selector: NodeSelector,
    request: Request,
    deadline_millis: Option<i64>,
    following: Following,
) -> Result<(), Failure> {
    let client = session.client().await?;
    if following.dry_run {
        return drain_plan::run(session, &client, &selector, deadline_millis).await;
    }
    let no_room = confirmed(session, &client, &selector, deadline_millis, following.yes).await?;
    let reply = session.call(&client, request).await?;
    let Reply::Node(info) = reply else { return Err(unexpected(&reply)) };
    if let Some(note) = &no_room {
        session.output.note(note);
    }
    note_without_active(session, &client).await;
    if following.wait {
        return wait(session, &client, *info, deadline_millis, no_room.is_some()).await;
    }
    session.output.result(&info, |writer| {
        let deadline = info.deadline_in.map(|left| format!(" within {}", units::millis(left)));
        let bytes = units::bytes(info.exposure_bytes);
        let deadline = deadline.unwrap_or_default();
        let blocks = units::count(info.blocks, "block", "blocks");
        writeln!(writer, "{}: {blocks}, {bytes} leave{deadline}", title(&info))
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
    selector: &NodeSelector,
    deadline_millis: Option<i64>,
    is_confirmed: bool,
) -> Result<Option<String>, Failure> {
    if deadline_millis.is_some_and(|millis| millis <= 0) {
        // The namenode refuses it in its own words.
        return Ok(None);
    }
    let plan = match drain_plan::planned(session, client, selector, deadline_millis).await {
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

/// Watches the node until it is empty, gone, or taken back.
async fn wait(
    session: &Session,
    client: &Client,
    noticed: NodeInfo,
    deadline_millis: Option<i64>,
    mut is_noted: bool,
) -> Result<(), Failure> {
    let mut progress = Progress::start(session.output, "moving", Some(noticed.exposure_bytes));
    let millis = deadline_millis.and_then(|millis| u64::try_from(millis).ok());
    let limit =
        millis.map(|millis| Instant::now() + Duration::from_millis(millis) + VERDICT_WITHIN);
    let mut is_without_room = is_noted;
    loop {
        let fleet = nodes(session, client, true).await.map_err(|failure| {
            let tried = format!("waited for {} to be empty: its drain goes on", title(&noticed));
            failure.tried(tried).next("sanderling node ls --all")
        })?;
        let Some(info) = fleet.into_iter().find(|node| node.id == noticed.id) else {
            return Err(refused::refusal_failure(&Refusal::NodeGone { node: noticed.id }));
        };
        let drain = info.drain.unwrap_or_default();
        if let Some(expected) = drain.forecast.filter(|_| info.policy.is_draining()) {
            progress.describe(&format!("moving, left {}", forecast(&expected)));
            is_without_room = expected.unplaced_bytes > 0;
            if is_without_room && !is_noted {
                is_noted = true;
                session.output.note(drain_plan::no_room(&info, expected.unplaced_bytes));
            }
        }
        progress.set(drain.moved_bytes);
        if !info.policy.is_draining() {
            progress.finish();
            return ended(session, &info);
        }
        if limit.is_some_and(|limit| Instant::now() > limit) {
            let cause = format!("{} is still draining after its deadline", title(&info));
            return Err(Failure::new(Exit::Deadline, FailureKind::Deadline, cause)
                .tried(format_args!(
                    "waited {} longer for the namenode to declare the node empty or gone",
                    units::duration(VERDICT_WITHIN)
                ))
                .next("sanderling node ls --all"));
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = session.ended.cancelled() => {
                let left = units::bytes(drain.left_bytes);
                let failure = Failure::silent(Exit::Interrupted)
                    .tried(format_args!("waited for {} to be empty: {left} left", title(&info)));
                return Err(match is_without_room {
                    true => failure.next(next_without_room(session, &info)),
                    false => failure,
                });
            }
        }
    }
}

/// Returns the next step of a drain that waits for room: more time does not help.
fn next_without_room(session: &Session, node: &NodeInfo) -> String {
    let addition = sanderling_local::addition(&session.namenode);
    let cancel = format!("sanderling node cancel {}", refused::shell_word(&node.name));
    format!("{}, or {cancel}", addition.unwrap_or("start another datanode"))
}

fn ended(session: &Session, info: &NodeInfo) -> Result<(), Failure> {
    let drain = info.drain.unwrap_or_default();
    session.output.result(info, |writer| {
        writeln!(writer, "{} is {}", title(info), info.policy.name())?;
        if drain.elapsed.0 > 0 || drain.moved_blocks > 0 {
            writeln!(writer, "{}", super::list::drain_line(info, &drain))?;
        }
        Ok(())
    })?;
    if drain.lost_blocks == 0 {
        return Ok(());
    }
    let cause = format!(
        "{} in {} lost with {}",
        units::bytes(drain.lost_bytes),
        units::count(drain.lost_blocks, "block", "blocks"),
        title(info)
    );
    Err(Failure::new(Exit::Partial, RefusalKind::DataUnavailable, cause).next("sanderling fsck"))
}
