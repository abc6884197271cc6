//! A dump that was under way when a notice came, or that was begun for one: how long it may go on.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use sanderling_command::session::Session;
use sanderling_command::units;
use sanderling_core::checkpoint::{DumpRates, LastDump, StoragePrices, UnderWayChoice};
use sanderling_protocol::{Instant as SteadyInstant, Millis};
use tokio::time::{Instant, sleep};

use super::event::{RunnerEvent, TakenCheckpoint};
use crate::driver::TaskHandle;
use crate::dump_turns::Turn;
use crate::lock::{TaskLock, steady_now};
use crate::machine_notices::MachineNotice;
use crate::running::RunningTask;

/// What ends a wait for a dump.
enum DumpWait {
    Taken(TakenCheckpoint),
    /// The time is over.
    Late,
    /// SIGTERM has come, where it is a notice.
    Terminated,
    /// The dump is of no use any more.
    Useless(RunnerEvent),
}

/// How long the next dump takes, as far as that is known before, and what it saves.
pub(super) struct DumpExpectation {
    pub(super) measured: Option<Millis>,
    /// The same from the turn of a last dump on.
    pub(super) in_turn: Option<Millis>,
    /// Since when the task has worked without a checkpoint.
    pub(super) unsaved_since: SteadyInstant,
    pub(super) rates: Option<DumpRates>,
    pub(super) assumed: Millis,
    pub(super) task: TaskHandle,
}

impl DumpExpectation {
    pub(super) fn takes(&self) -> Millis {
        self.or_forecast(self.measured)
    }

    /// Returns how long a last dump takes from its turn on. With the hook the task has written its
    /// state before.
    pub(super) fn takes_in_turn(&self) -> Millis {
        self.or_forecast(self.in_turn)
    }

    fn or_forecast(&self, measured: Option<Millis>) -> Millis {
        let free = StoragePrices { gigabyte_month: 0.0, thousand_requests: 0.0 };
        match (measured, &self.rates) {
            (Some(measured), _) => measured,
            (None, Some(rates)) => rates.forecast(self.task.resident_bytes(), free).takes,
            (None, None) => self.assumed,
        }
    }
}

/// A dump that was under way when a notice came, or that was begun for one.
pub(super) struct UnderWay<'a, F> {
    pub(super) session: &'a Session,
    pub(super) expected: DumpExpectation,
    pub(super) begun: Instant,
    pub(super) dump: Pin<&'a mut F>,
    pub(super) turn: &'a Turn,
    pub(super) lock: &'a TaskLock,
    pub(super) task: &'a mut RunningTask,
    pub(super) takes_sigterm: bool,
    /// What is left after a SIGTERM.
    pub(super) sigterm_within: Duration,
}

impl<F: Future<Output = TakenCheckpoint>> UnderWay<'_, F> {
    /// Lets the dump go on as long as it may end in time.
    pub(super) async fn go_on(mut self, mut notice: MachineNotice) -> RunnerEvent {
        loop {
            let left = Millis::from(notice.left());
            // While it waits for its turn, nothing of it is done.
            let elapsed = self.begun.elapsed().saturating_sub(self.turn.waited()).into();
            let takes = self.expected.takes();
            let choice = UnderWayChoice::of(takes, elapsed, left);
            let rest = Millis(takes.0.saturating_sub(elapsed.0));
            self.note(&notice, choice, rest);
            let UnderWayChoice::GoOn { within } = choice else {
                return RunnerEvent::Notice(notice, None);
            };
            self.turn.at_notice(self.last_dump(left), rest);
            match self.wait(Duration::from_millis(within.0), notice.is_sigterm).await {
                DumpWait::Taken(taken) => return self.taken(taken, notice, RunnerEvent::Notice),
                DumpWait::Terminated => notice = MachineNotice::of_sigterm(self.sigterm_within),
                DumpWait::Useless(event) => return event,
                DumpWait::Late if within == left => {
                    self.session.output.note("the dump under way did not end in time");
                    return RunnerEvent::Notice(notice, None);
                }
                DumpWait::Late => {}
            }
        }
    }

    /// Waits for a dump that was begun for a notice, for all the time that is left.
    pub(super) async fn last(mut self, notice: MachineNotice) -> RunnerEvent {
        let dump = self.last_dump(notice.left().into());
        self.turn.at_notice(dump, dump.takes);
        match self.wait(notice.left(), notice.is_sigterm).await {
            DumpWait::Taken(taken) => self.taken(taken, notice, RunnerEvent::LastCheckpoint),
            DumpWait::Late => RunnerEvent::LastCheckpoint(notice, None),
            // Less time may be left now.
            DumpWait::Terminated => {
                let notice = MachineNotice::of_sigterm(self.sigterm_within);
                self.go_on(notice).await
            }
            DumpWait::Useless(event) => event,
        }
    }

    /// Returns the event of a dump that has ended.
    fn taken(
        &self,
        taken: TakenCheckpoint,
        notice: MachineNotice,
        event: fn(MachineNotice, Option<TakenCheckpoint>) -> RunnerEvent,
    ) -> RunnerEvent {
        match self.turn.refused() {
            Some(takes) => RunnerEvent::Refused(notice, takes),
            None => event(notice, Some(taken)),
        }
    }

    fn last_dump(&self, left: Millis) -> LastDump {
        let (takes, unsaved_since) = (self.expected.takes_in_turn(), self.expected.unsaved_since);
        LastDump { takes, unsaved_since, deadline: steady_now() + left }
    }

    /// Waits for the dump for so long, and for what ends the wait before. After SIGTERM the session
    /// has ended, too.
    async fn wait(&mut self, within: Duration, is_sigterm: bool) -> DumpWait {
        tokio::select! {
            biased;
            // The dump of a task that has ended fails: its end counts.
            end = self.task.wait() => DumpWait::Useless(RunnerEvent::Ended(end)),
            taken = &mut self.dump => DumpWait::Taken(taken),
            is_notice = interrupted(self.session, self.takes_sigterm), if !is_sigterm => {
                match is_notice {
                    true => DumpWait::Terminated,
                    false => DumpWait::Useless(RunnerEvent::Interrupted),
                }
            }
            () = self.lock.lost.cancelled() => DumpWait::Useless(RunnerEvent::LockLost),
            () = sleep(within) => DumpWait::Late,
        }
    }

    fn note(&self, notice: &MachineNotice, choice: UnderWayChoice, rest: Millis) {
        let rest = match rest {
            Millis(0) => "is overdue".to_owned(),
            rest => format!("takes {} more", units::millis(rest)),
        };
        let done = match choice {
            UnderWayChoice::GoOn { .. } => "it goes on",
            UnderWayChoice::BeginAgain | UnderWayChoice::GiveUp => "it is given up",
        };
        self.session.output.note(format_args!("{notice}, the dump under way {rest}: {done}"));
    }
}

/// Waits until the session is interrupted; returns whether that was SIGTERM, where it is a notice.
pub(super) async fn interrupted(session: &Session, takes_sigterm: bool) -> bool {
    session.ended.cancelled().await;
    takes_sigterm && session.is_terminated()
}
