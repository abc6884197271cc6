//! What happens to a task that runs, handed over to its machine, and what that puts out.

use std::future::{Future, pending};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use sanderling_command::failure::Failure;
use sanderling_command::session::Session;
use sanderling_command::units;
use sanderling_core::checkpoint::{
    DumpEnd, RunnerInput, RunnerNote, RunnerOutput, RunnerView, RunnerWork, TaskSupervisor,
};
use sanderling_protocol::{Instant as SteadyInstant, Millis};
use tokio::time::sleep;

use crate::driver::TaskHandle;
use crate::driver_args::DriverArg;
use crate::dump_turns::{DumpTicket, TurnQueue};
use crate::lock::{TaskLock, steady_now};
use crate::machine_notices::{MachineNotice, MachineNotices};
use crate::namespaces::TaskEnd;
use crate::running::RunningTask;
use crate::task_failure::TaskFailure;

/// A task that is watched. `TaskSupervisor` decides what is done.
pub(super) struct TaskWatch<'a> {
    pub(super) session: &'a Session,
    pub(super) lock: &'a TaskLock,
    pub(super) task: RunningTask,
    pub(super) handle: TaskHandle,
    pub(super) machine: TaskSupervisor,
    /// What the machine has put out to be done now.
    pub(super) work: RunnerWork,
    pub(super) notices: MachineNotices,
    /// Whether SIGTERM is a notice, and what is left after it.
    pub(super) takes_sigterm: bool,
    pub(super) sigterm_within: Duration,
    /// Whether another runner goes on with the task once it is saved at a notice.
    pub(super) hands_over: bool,
    pub(super) driver: DriverArg,
    pub(super) turns: Arc<TurnQueue>,
    /// The place of the dump under way among the turns, if there is one.
    pub(super) turn: Option<Arc<DumpTicket>>,
    /// The last notice.
    pub(super) notice: Option<MachineNotice>,
    /// Why there is no checkpoint, if the last dump has failed.
    pub(super) failure: Option<Failure>,
    /// The generation from which a restart goes on.
    pub(super) newest: Option<u64>,
    /// Whether the next generation that is stored is printed: each one of a runner alone, and of an
    /// agent's task the first one, and the first one after another line about the run.
    pub(super) prints_stored: bool,
    /// How the task has ended.
    pub(super) task_end: Option<Result<TaskEnd, Failure>>,
}

/// What a task and its work are waited for.
enum Happened<T> {
    /// The work has ended.
    Done(T),
    /// The session is to end; whether that is a notice.
    Signal {
        is_notice: bool,
    },
    Notice(MachineNotice),
    LockLost,
    TaskEnd(Result<TaskEnd, Failure>),
    Deadline,
}

impl TaskWatch<'_> {
    /// Waits for work that is under way, and hands over what happens meanwhile. Returns what became
    /// of it; nothing if there is other work now.
    pub(super) async fn attend<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        loop {
            let happened = match self.machine.attended() {
                Some(notice) => self.next_at_notice(work.as_mut(), notice.is_sigterm).await,
                None => self.next(work.as_mut()).await,
            };
            let has_other_work = match happened {
                Happened::Done(done) => return Some(done),
                Happened::Signal { is_notice: true } => {
                    // It may have come while nothing was watched, as during a removal.
                    let passed = self.session.terminated_at().map(|at| at.elapsed());
                    let left = self.sigterm_within.saturating_sub(passed.unwrap_or_default());
                    self.noticed(MachineNotice::of_sigterm(left))
                }
                Happened::Signal { is_notice: false } => self.hand_over(RunnerInput::Interrupted),
                Happened::Notice(notice) => self.noticed(notice),
                Happened::LockLost => self.hand_over(RunnerInput::LockLost),
                Happened::TaskEnd(end) => {
                    let is_success = end.as_ref().is_ok_and(|end| end.code == Some(0));
                    self.task_end = Some(end);
                    self.hand_over(RunnerInput::TaskEnded { is_success })
                }
                Happened::Deadline => {
                    let view = self.view(None);
                    self.machine.handle_deadline(&view);
                    self.put_out()
                }
            };
            if has_other_work {
                return None;
            }
        }
    }

    /// Waits until something happens while no notice is attended to.
    async fn next<T>(&mut self, work: Pin<&mut impl Future<Output = T>>) -> Happened<T> {
        let deadline = self.machine.deadline();
        tokio::select! {
            biased;
            is_notice = interrupted(self.session, self.takes_sigterm) => {
                Happened::Signal { is_notice }
            }
            () = self.lock.lost.cancelled() => Happened::LockLost,
            end = self.task.wait() => Happened::TaskEnd(end),
            Some(notice) = self.notices.recv() => Happened::Notice(notice),
            done = work => Happened::Done(done),
            () = passed(deadline) => Happened::Deadline,
        }
    }

    /// Waits until something happens that counts while a notice is attended to. After SIGTERM the
    /// session has ended, and another signal is no notice.
    async fn next_at_notice<T>(
        &mut self,
        work: Pin<&mut impl Future<Output = T>>,
        is_sigterm: bool,
    ) -> Happened<T> {
        let deadline = self.machine.deadline();
        tokio::select! {
            biased;
            // The dump of a task that has ended fails: its end counts.
            end = self.task.wait() => Happened::TaskEnd(end),
            done = work => Happened::Done(done),
            is_notice = interrupted(self.session, self.takes_sigterm), if !is_sigterm => {
                Happened::Signal { is_notice }
            }
            () = self.session.hurried.cancelled(), if is_sigterm => {
                Happened::Signal { is_notice: false }
            }
            () = self.lock.lost.cancelled() => Happened::LockLost,
            () = passed(deadline) => Happened::Deadline,
        }
    }

    fn noticed(&mut self, notice: MachineNotice) -> bool {
        let input = RunnerInput::Notice(notice.for_runner(self.hands_over));
        self.notice = Some(notice);
        self.hand_over(input)
    }

    /// Hands an input over. Returns whether there is other work now.
    pub(super) fn hand_over(&mut self, input: RunnerInput) -> bool {
        let view = self.view(Some(&input));
        self.machine.handle(&view, input);
        self.put_out()
    }

    /// Returns what became of a dump that has failed. With `makes_room`, what the store may be full
    /// of is removed.
    pub(super) fn failed(&mut self, failure: Failure, makes_room: bool) -> DumpEnd {
        let refused = self.turn.as_ref().and_then(|turn| turn.refused());
        let end = match refused {
            Some(takes) => DumpEnd::Refused { takes },
            None if TaskFailure::Taken.is(&failure) => DumpEnd::Taken,
            None => DumpEnd::Failed { leaves_packs: makes_room },
        };
        self.failure = Some(failure);
        end
    }

    /// Returns the time between two dumps.
    pub(super) fn interval(&mut self) -> Duration {
        let view = self.view(None);
        self.machine.interval(&view).into()
    }

    /// Returns the place of the dump under way among the turns.
    pub(super) fn turn(&mut self) -> Arc<DumpTicket> {
        let turns = &self.turns;
        Arc::clone(self.turn.get_or_insert_with(|| Arc::new(turns.turn())))
    }

    fn view(&self, input: Option<&RunnerInput>) -> RunnerView {
        let needs_size = self.machine.needs_size(input);
        let waited = self.turn.as_ref().map_or(Duration::ZERO, |turn| turn.waited());
        RunnerView {
            now: steady_now(),
            machine_age: if self.machine.needs_age() { machine_age() } else { Millis(0) },
            resident_bytes: if needs_size { self.handle.resident_bytes() } else { 0 },
            waited: waited.into(),
        }
    }

    /// Does what the machine puts out. Returns whether there is other work now.
    fn put_out(&mut self) -> bool {
        let mut has_other_work = false;
        while let Some(output) = self.machine.poll_output() {
            match output {
                RunnerOutput::Note(note) => {
                    self.prints_stored = true;
                    self.print(note);
                }
                RunnerOutput::Turn { dump, rest } => self.turn().at_notice(dump, rest),
                RunnerOutput::Work(work) => {
                    // What follows a dump belongs to it.
                    if !matches!(work, RunnerWork::Collect | RunnerWork::MakeRoom) {
                        self.turn = None;
                    }
                    (self.work, has_other_work) = (work, true);
                }
            }
        }
        has_other_work
    }

    fn print(&self, note: RunnerNote) {
        let (output, last) = (self.session.output, counting(self.newest));
        let notice = self.notice.as_ref().map(ToString::to_string).unwrap_or_default();
        match note {
            RunnerNote::Failed => {
                if let Some(failure) = &self.failure {
                    output.note(format_args!("no checkpoint: {failure}"));
                }
            }
            RunnerNote::Overtaken => {
                if let Some(failure) = &self.failure {
                    output.note(format_args!("no checkpoint: {}", failure.cause));
                }
            }
            RunnerNote::LastFailed => {
                if let Some(failure) = &self.failure {
                    output.note(format_args!("no checkpoint: {failure}; {last}"));
                }
            }
            RunnerNote::Undriven => {
                let why = undriven(self.driver);
                output.note(format_args!("checkpoints wait until the task handles SIGUSR1{why}"));
            }
            RunnerNote::TakenNow { takes } => {
                let takes = units::millis(takes);
                output.note(format_args!("{notice}, a dump takes {takes}: it is taken now"));
            }
            RunnerNote::NoneBegun { takes } => {
                let takes = units::millis(takes);
                output.note(format_args!("{notice}, a dump takes {takes}: none is begun, {last}"));
            }
            RunnerNote::UnderWay { rest, goes_on } => {
                let rest = match rest {
                    Millis(0) => "is overdue".to_owned(),
                    rest => format!("takes {} more", units::millis(rest)),
                };
                let done = if goes_on { "it goes on" } else { "it is given up" };
                output.note(format_args!("{notice}, the dump under way {rest}: {done}"));
            }
            RunnerNote::NotInTime => output.note("the dump under way did not end in time"),
            RunnerNote::LastNotInTime => {
                output.note(format_args!("the dump did not end in time: {last}"));
            }
            RunnerNote::LastUngiven => {
                output.note(format_args!("the task cannot give its state: {last}"));
            }
        }
    }
}

/// Returns why a task has to handle the signal, in words.
const fn undriven(driver: DriverArg) -> &'static str {
    match driver {
        DriverArg::Hook => "",
        DriverArg::Auto | DriverArg::Criu => {
            ": CRIU cannot be used here, `sanderling doctor` prints why"
        }
    }
}

/// Returns which generation a restart goes on from, in words.
fn counting(newest: Option<u64>) -> String {
    newest.map_or_else(
        || "and there is no generation".to_owned(),
        |number| format!("generation {number} counts"),
    )
}

/// Waits until the session is interrupted; returns whether that was SIGTERM, where it is a notice.
async fn interrupted(session: &Session, takes_sigterm: bool) -> bool {
    session.ended.cancelled().await;
    takes_sigterm && session.terminated_at().is_some()
}

async fn passed(deadline: Option<SteadyInstant>) {
    match deadline {
        Some(deadline) => sleep(steady_now().until(deadline).into()).await,
        None => pending().await,
    }
}

/// Returns how long this machine runs already.
pub(super) fn machine_age() -> Millis {
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds = uptime.split_whitespace().next().and_then(|it| it.parse::<f64>().ok());
    Millis((seconds.unwrap_or(0.0) * 1000.0) as u64)
}
