//! Waits for the turns of last dumps, which `core::checkpoint` decides. The runners of a process
//! share them.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_core::checkpoint::{DumpTurn, DumpTurns, LastDump};
use sanderling_protocol::Millis;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::lock::steady_now;

/// Pause between two looks whether a dump of no notice goes on, at most: what ends wakes it. So a
/// wake-up that is missed costs a second. Chosen, not measured.
const POLL_INTERVAL: Millis = Millis(1000);

/// The turns of all runners of this process.
#[derive(Debug, Default)]
pub(crate) struct TurnQueue {
    turns: Mutex<DumpTurns>,
    /// Notified when a dump comes, begins, ends or is given up.
    changed: Notify,
    ids: AtomicU64,
    /// How many tasks this process runs.
    tasks: AtomicU32,
}

/// The place of one dump among the turns. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct DumpTicket {
    queue: Arc<TurnQueue>,
    id: u64,
    state: Mutex<TicketState>,
}

#[derive(Debug, Default)]
struct TicketState {
    /// The dump, if it is the last one at a notice.
    last: Option<LastDump>,
    /// Since when it waits for its turn.
    waits_since: Option<Instant>,
    /// How long it has waited.
    waited: Duration,
    /// It waits no more.
    has_begun: bool,
    /// How long it takes, if it was not begun because it would not have ended in time.
    refused: Option<Millis>,
}

impl TurnQueue {
    /// Notes how many tasks this process runs.
    pub(crate) fn run(&self, tasks: u32) {
        self.tasks.store(tasks, Ordering::Relaxed);
    }

    /// Returns how many tasks this process runs; 0 if it runs a single one and notes nothing.
    pub(crate) fn tasks(&self) -> u32 {
        self.tasks.load(Ordering::Relaxed)
    }

    /// Returns a place for a dump.
    pub(crate) fn turn(self: &Arc<Self>) -> DumpTicket {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        DumpTicket { queue: Arc::clone(self), id, state: Mutex::default() }
    }

    fn end(&self, id: u64, is_stored: bool) {
        locked(&self.turns).end(id, is_stored, steady_now());
        self.changed.notify_waiters();
    }
}

impl DumpTicket {
    /// Takes note of a notice. A dump that waits, or that has not come so far, waits for its turn
    /// as a last one; one that has begun goes on, and takes so much longer.
    pub(crate) fn at_notice(&self, dump: LastDump, rest: Millis) {
        let (mut state, now) = (locked(&self.state), steady_now());
        if state.has_begun {
            locked(&self.queue.turns).hold(self.id, rest, dump.deadline, now);
        } else {
            state.last = Some(dump);
            if state.waits_since.is_some() {
                locked(&self.queue.turns).wait(self.id, dump, now, self.queue.tasks());
            }
        }
        self.queue.changed.notify_waiters();
    }

    /// Waits until the dump may begin: for its turn if it is the last one at a notice, and until no
    /// last dump needs what it takes if it is not.
    ///
    /// # Errors
    /// The dump would not end in time any more: [`DumpTicket::refused`].
    pub(crate) async fn come(&self) -> Result<(), Failure> {
        self.begin_to_wait();
        loop {
            let changed = self.queue.changed.notified();
            match self.look() {
                DumpTurn::Begin => break,
                DumpTurn::KeepLast => {
                    let cause = "the dump does not end in time any more";
                    return Err(Failure::new(Exit::Deadline, FailureKind::Deadline, cause));
                }
                DumpTurn::Wait { until } => tokio::select! {
                    () = changed => {}
                    () = sleep(steady_now().until(until).into()) => {}
                },
            }
        }
        Ok(())
    }

    fn begin_to_wait(&self) {
        let mut state = locked(&self.state);
        state.waits_since = Some(Instant::now());
        if let Some(dump) = state.last {
            let tasks = self.queue.tasks();
            locked(&self.queue.turns).wait(self.id, dump, steady_now(), tasks);
        }
    }

    fn look(&self) -> DumpTurn {
        let (mut state, now) = (locked(&self.state), steady_now());
        let turn = {
            let mut turns = locked(&self.queue.turns);
            match state.last {
                Some(_) => turns.look(self.id, now),
                None if turns.goes_on(self.id) => DumpTurn::Begin,
                None => DumpTurn::Wait { until: now + POLL_INTERVAL },
            }
        };
        if matches!(turn, DumpTurn::Wait { .. }) {
            return turn;
        }
        state.waited = state.waits_since.take().map_or(Duration::ZERO, |since| since.elapsed());
        state.has_begun = turn == DumpTurn::Begin;
        if turn == DumpTurn::KeepLast {
            state.refused = state.last.map(|dump| dump.takes);
        }
        // Another one is the first of those that wait now.
        self.queue.changed.notify_waiters();
        turn
    }

    /// Notes that the generation is stored.
    pub(crate) fn stored(&self) {
        self.queue.end(self.id, true);
    }

    /// Returns how long the dump has waited for its turn.
    pub(crate) fn waited(&self) -> Duration {
        let state = locked(&self.state);
        state.waited + state.waits_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Returns how long the dump takes that was not begun, if that is why there is none.
    pub(crate) fn refused(&self) -> Option<Millis> {
        locked(&self.state).refused
    }
}

impl Drop for DumpTicket {
    fn drop(&mut self) {
        self.queue.end(self.id, false);
    }
}

/// Locks what a thread that panicked has not changed by halves.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    fn queue() -> Arc<TurnQueue> {
        let queue = Arc::new(TurnQueue::default());
        queue.run(2);
        queue
    }

    fn dump(takes: u64, left: u64) -> LastDump {
        let now = steady_now();
        LastDump { takes: Millis(takes), unsaved_since: now, deadline: now + Millis(left) }
    }

    /// Returns a dump that was under way when the notice came.
    async fn under_way(queue: &Arc<TurnQueue>) -> DumpTicket {
        let turn = queue.turn();
        turn.come().await.expect("nothing else is under way");
        turn.at_notice(dump(600_000, 600_000), Millis(600_000));
        turn
    }

    #[tokio::test]
    async fn second_dump_begins_when_the_first_one_has_ended_or_is_given_up() {
        for is_stored in [true, false] {
            let queue = queue();
            let (first, second) = (queue.turn(), queue.turn());
            for turn in [&first, &second] {
                turn.at_notice(dump(1000, 600_000), Millis(1000));
            }
            first.come().await.expect("it is first");
            let mut waits = Box::pin(second.come());
            let waited = timeout(Duration::from_millis(300), &mut waits).await;
            assert!(waited.is_err(), "it begins beside the first one");
            if is_stored {
                first.stored();
            }
            drop(first);
            timeout(LIMIT, waits).await.expect("it is woken").expect("it fits");
            assert!(second.waited() > Duration::from_millis(200));
        }
    }

    #[tokio::test]
    async fn dump_that_does_not_fit_any_more_is_refused_while_another_one_is_under_way() {
        let queue = queue();
        let first = under_way(&queue).await;
        let second = queue.turn();
        second.at_notice(dump(1000, 1500), Millis(1000));
        let refused = timeout(LIMIT, second.come()).await.expect("in time");
        assert_eq!(refused.map_err(|failure| failure.kind), Err(FailureKind::Deadline));
        assert_eq!((second.refused(), first.refused()), (Some(Millis(1000)), None));
    }

    #[tokio::test]
    async fn dump_of_no_notice_makes_room_until_the_last_ones_have_ended() {
        let queue = queue();
        let last = under_way(&queue).await;
        let (other, late) = (queue.turn(), queue.turn());
        let mut waits = Box::pin(other.come());
        assert!(timeout(Duration::from_millis(50), &mut waits).await.is_err());
        // The notice comes while it waits.
        let mut comes = Box::pin(late.come());
        assert!(timeout(Duration::from_millis(50), &mut comes).await.is_err());
        late.at_notice(dump(1000, 600_000), Millis(1000));
        drop(last);
        timeout(LIMIT, comes).await.expect("it is woken").expect("it fits");
        assert!(timeout(Duration::from_millis(50), &mut waits).await.is_err());
        late.stored();
        timeout(LIMIT, waits).await.expect("it is woken").expect("it goes on");
    }
}
