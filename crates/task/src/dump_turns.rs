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
use crate::reserved_memory::DumpMemory;

/// Pause between two looks whether a dump of no notice goes on, or whether there is memory for a
/// dump, at most: what ends wakes it. So a wake-up that is missed costs a second. Chosen, not
/// measured.
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
    /// Since when it waits for memory.
    held_up_since: Option<Instant>,
    /// Since when it waits for its turn.
    waits_since: Option<Instant>,
    /// How long it has waited.
    waited: Duration,
    /// Memory for its packs, until it begins.
    memory: Option<DumpMemory>,
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
    /// as a last one; one that has begun goes on, and takes so much longer. One that waits gives
    /// its memory back, and gets some with its turn: it would keep others from theirs.
    pub(crate) fn at_notice(&self, dump: LastDump, rest: Millis) {
        let (mut state, now) = (locked(&self.state), steady_now());
        if state.has_begun {
            locked(&self.queue.turns).hold(self.id, rest, dump.deadline, now);
        } else {
            state.last = Some(dump);
            state.memory = None;
            if state.waits_since.is_some() {
                locked(&self.queue.turns).wait(self.id, dump, now, self.queue.tasks());
            }
        }
        self.queue.changed.notify_waiters();
    }

    /// Waits until there is memory for the packs of the dump, which `reserve` returns. The last one
    /// at a notice gets it with its turn.
    pub(crate) async fn wait_for_memory(&self, reserve: impl Fn() -> Option<DumpMemory>) {
        locked(&self.state).held_up_since = Some(Instant::now());
        loop {
            let changed = self.queue.changed.notified();
            if self.has_memory(&reserve) {
                break;
            }
            tokio::select! {
                () = changed => {}
                () = sleep(POLL_INTERVAL.into()) => {}
            }
        }
        let mut state = locked(&self.state);
        let held_up = state.held_up_since.take().map_or(Duration::ZERO, |since| since.elapsed());
        state.waited += held_up;
    }

    fn has_memory(&self, reserve: &impl Fn() -> Option<DumpMemory>) -> bool {
        let mut state = locked(&self.state);
        if state.last.is_none() && state.memory.is_none() {
            state.memory = reserve();
        }
        state.last.is_some() || state.memory.is_some()
    }

    /// Returns the memory that was reserved for the packs of the dump, which has begun.
    pub(crate) fn take_memory(&self) -> Option<DumpMemory> {
        locked(&self.state).memory.take()
    }

    /// Waits until the dump may begin: for its turn if it is the last one at a notice, and until no
    /// last dump needs what it takes if it is not. Beside others a last one also needs memory for
    /// its packs, which `reserve` returns.
    ///
    /// # Errors
    /// The dump would not end in time any more: [`DumpTicket::refused`].
    pub(crate) async fn come(
        &self,
        reserve: impl Fn() -> Option<DumpMemory>,
    ) -> Result<(), Failure> {
        self.begin_to_wait();
        loop {
            let changed = self.queue.changed.notified();
            match self.look(&reserve) {
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

    fn look(&self, reserve: &impl Fn() -> Option<DumpMemory>) -> DumpTurn {
        let mut locked_state = locked(&self.state);
        let (state, now) = (&mut *locked_state, steady_now());
        let turn = {
            let mut turns = locked(&self.queue.turns);
            let memory = &mut state.memory;
            let takes_memory = || {
                *memory = memory.take().or_else(reserve);
                memory.is_some()
            };
            match state.last {
                Some(_) => turns.look(self.id, now, takes_memory),
                None if turns.goes_on(self.id) => DumpTurn::Begin,
                None => DumpTurn::Wait { until: now + POLL_INTERVAL },
            }
        };
        if let DumpTurn::Wait { until } = turn {
            // Memory may be there before anything begins or ends here.
            return DumpTurn::Wait { until: until.min(now + POLL_INTERVAL) };
        }
        let waited = state.waits_since.take().map_or(Duration::ZERO, |since| since.elapsed());
        state.waited += waited;
        state.has_begun = turn == DumpTurn::Begin;
        if turn == DumpTurn::KeepLast {
            state.refused = state.last.map(|dump| dump.takes);
        }
        // Another one is the first of those that wait now.
        self.queue.changed.notify_waiters();
        turn
    }

    /// Returns whether it is the last dump at a notice.
    pub(crate) fn is_last(&self) -> bool {
        locked(&self.state).last.is_some()
    }

    /// Notes that the generation is stored.
    pub(crate) fn stored(&self) {
        self.queue.end(self.id, true);
    }

    /// Returns how long the dump has waited, for memory and for its turn.
    pub(crate) fn waited(&self) -> Duration {
        let state = locked(&self.state);
        let since = state.held_up_since.or(state.waits_since);
        state.waited + since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Returns how long the dump takes that was not begun, if that is why there is none.
    pub(crate) fn refused(&self) -> Option<Millis> {
        locked(&self.state).refused
    }
}

impl Drop for DumpTicket {
    fn drop(&mut self) {
        // Before another one is woken that waits for it.
        drop(self.take_memory());
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
    use crate::reserved_memory::DumpMemoryPool;

    const LIMIT: Duration = Duration::from_secs(60);

    /// Reserves memory of which there is always enough.
    fn free() -> Option<DumpMemory> {
        static RESERVED: Mutex<u64> = Mutex::new(0);
        static POOL: DumpMemoryPool = DumpMemoryPool::new(&RESERVED);
        Some(POOL.take(1))
    }

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
        turn.come(free).await.expect("nothing else is under way");
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
            first.come(free).await.expect("it is first");
            let mut waits = Box::pin(second.come(free));
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
        let refused = timeout(LIMIT, second.come(free)).await.expect("in time");
        assert_eq!(refused.map_err(|failure| failure.kind), Err(FailureKind::Deadline));
        assert_eq!((second.refused(), first.refused()), (Some(Millis(1000)), None));
    }

    #[tokio::test]
    async fn dump_of_no_notice_makes_room_until_the_last_ones_have_ended() {
        let queue = queue();
        let last = under_way(&queue).await;
        let (other, late) = (queue.turn(), queue.turn());
        let mut waits = Box::pin(other.come(free));
        assert!(timeout(Duration::from_millis(50), &mut waits).await.is_err());
        // The notice comes while it waits.
        let mut comes = Box::pin(late.come(free));
        assert!(timeout(Duration::from_millis(50), &mut comes).await.is_err());
        late.at_notice(dump(1000, 600_000), Millis(1000));
        drop(last);
        timeout(LIMIT, comes).await.expect("it is woken").expect("it fits");
        assert!(timeout(Duration::from_millis(50), &mut waits).await.is_err());
        late.stored();
        timeout(LIMIT, waits).await.expect("it is woken").expect("it goes on");
    }

    #[tokio::test]
    async fn dump_without_memory_waits_until_another_one_has_ended() {
        static RESERVED: Mutex<u64> = Mutex::new(0);
        static POOL: DumpMemoryPool = DumpMemoryPool::new(&RESERVED);
        let reserve = || POOL.reserve(|| Some(0), 1);
        let queue = queue();
        let (first, second) = (queue.turn(), queue.turn());
        first.wait_for_memory(reserve).await;
        let mut waits = Box::pin(second.wait_for_memory(reserve));
        assert!(timeout(Duration::from_millis(300), &mut waits).await.is_err());
        assert!(second.waited() > Duration::from_millis(200), "it is no part of what a dump takes");
        drop(first);
        timeout(LIMIT, waits).await.expect("it is woken");
        let waited = second.waited();
        second.come(reserve).await.expect("there is no notice");
        assert!(second.waited() >= waited && second.take_memory().is_some());
    }

    /// The first one has memory, and the second one has its turn before.
    #[tokio::test]
    async fn last_dump_that_waits_for_its_turn_holds_no_memory() {
        static RESERVED: Mutex<u64> = Mutex::new(0);
        static POOL: DumpMemoryPool = DumpMemoryPool::new(&RESERVED);
        let reserve = || POOL.reserve(|| Some(0), 1);
        let queue = queue();
        let (first, second) = (queue.turn(), queue.turn());
        first.wait_for_memory(reserve).await;
        let mut waits = Box::pin(second.wait_for_memory(reserve));
        assert!(timeout(Duration::from_millis(50), &mut waits).await.is_err());
        first.at_notice(dump(1000, 600_000), Millis(1000));
        second.at_notice(dump(500, 600_000), Millis(500));
        timeout(LIMIT, waits).await.expect("it gets some with its turn");
        let mut first_comes = Box::pin(first.come(reserve));
        tokio::select! {
            biased;
            _ = &mut first_comes => panic!("the shorter one is first"),
            come = timeout(LIMIT, second.come(reserve)) => come.expect("woken").expect("it fits"),
        }
        second.stored();
        drop(second);
        timeout(LIMIT, first_comes).await.expect("it is woken").expect("it fits");
    }
}
