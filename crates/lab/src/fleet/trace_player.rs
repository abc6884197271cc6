//! Plays a trace: a notice, SIGKILL at its deadline, a replacement after a delay.

use std::time::Duration;

use sanderling_client::Client;
use sanderling_protocol::NodeSelector;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::LabFleet;
use crate::failure::{Exit, Failure, FailureKind};
use crate::trace::Preemption;

/// Time between two looks at what is due: SIGKILL comes that late at most, a thousandth of a notice
/// of 4 s. Chosen, not measured.
const TICK: Duration = Duration::from_millis(5);

/// How long a replacement may take to serve on a busy machine; on an idle one it takes well under a
/// second. Chosen, not measured.
const SERVE_TIMEOUT: Duration = Duration::from_secs(30);

/// What is to be done next in a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SlotStep {
    Kill,
    Start,
    /// The replacement was started and has to serve by then.
    Serve,
}

/// Plays the trace, which begins at `began`, until `ended`; what is under way then is played to its
/// end. Returns when the last node that was taken has been replaced.
///
/// # Errors
/// The first notice that was refused, or server that did not start.
pub(crate) async fn play(
    fleet: &mut LabFleet<'_>,
    client: &Client,
    trace: &[Preemption],
    began: Instant,
    ended: &CancellationToken,
) -> Result<(), Failure> {
    let mut player = Player { due: Vec::new(), notices: JoinSet::new() };
    let mut left = trace.iter().peekable();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        let now = Instant::now();
        while let Some(next) = left.next_if(|next| began + next.at <= now && !ended.is_cancelled())
        {
            player.notice(fleet, client, next.slot);
        }
        player.steps(fleet, now)?;
        while let Some(given) = player.notices.try_join_next() {
            given.map_err(|error| Failure::caused(Exit::Failure, FailureKind::Notice, error))??;
        }
        let is_over = ended.is_cancelled() || left.peek().is_none();
        if is_over && player.due.is_empty() {
            return Ok(());
        }
    }
}

struct Player {
    due: Vec<(Instant, u32, SlotStep)>,
    notices: JoinSet<Result<(), Failure>>,
}

impl Player {
    fn notice(&mut self, fleet: &mut LabFleet<'_>, client: &Client, slot: u32) {
        // A place whose replacement is late keeps its turn for the next notice.
        if self.due.iter().any(|(_, busy, _)| *busy == slot) {
            return;
        }
        let Some(name) = fleet.noticed(slot) else { return };
        let notice = fleet.options.notice;
        self.due.push((Instant::now() + notice, slot, SlotStep::Kill));
        let client = client.clone();
        self.notices.spawn(async move {
            let millis = i64::try_from(notice.as_millis()).unwrap_or(i64::MAX);
            let given = client.notice(&NodeSelector(name.clone()), millis, "spot preemption").await;
            given.map(|_| ()).map_err(|error| {
                Failure::new(
                    Exit::Failure,
                    FailureKind::Notice,
                    format_args!("notice to {name}: {error}"),
                )
            })
        });
    }

    /// Does what is due.
    fn steps(&mut self, fleet: &mut LabFleet<'_>, now: Instant) -> Result<(), Failure> {
        let mut next = Vec::new();
        for (at, slot, step) in std::mem::take(&mut self.due) {
            if step == SlotStep::Serve {
                if fleet.look(slot)? {
                    continue;
                }
                if now >= at {
                    let cause = format!("the replacement in place {slot} does not serve in time");
                    return Err(Failure::new(Exit::Deadline, FailureKind::Deadline, cause));
                }
            }
            if step == SlotStep::Serve || now < at {
                next.push((at, slot, step));
                continue;
            }
            match step {
                SlotStep::Kill => {
                    fleet.kill(slot);
                    next.push((at + fleet.options.replace, slot, SlotStep::Start));
                }
                SlotStep::Start => {
                    fleet.spawn(slot)?;
                    next.push((now + SERVE_TIMEOUT, slot, SlotStep::Serve));
                }
                SlotStep::Serve => unreachable!("looked at above"),
            }
        }
        self.due = next;
        Ok(())
    }
}
