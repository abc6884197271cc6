//! What the runner of a task that runs does next: when it takes a checkpoint, what it does about a
//! notice, a dump that fails or hangs and a lock that is lost, when it removes what is old, and how
//! the run ends.
//!
//! The shell waits, sends signals, reads and writes. It does one [`RunnerWork`] at a time, and
//! reports how that has ended and what happens meanwhile. How long a dump takes is up to
//! [`DumpExpectation`], which task dumps next to [`super::DumpTurns`].

use std::collections::VecDeque;

use sanderling_protocol::{Instant, Millis};

use super::dump_interval::DumpInterval;
use super::dump_turns::LastDump;
use super::expectation::DumpExpectation;
use super::forecast::{NoticeChoice, UnderWayChoice};
use super::runner_work::{
    DumpEnd, RunnerEnd, RunnerInput, RunnerNote, RunnerNotice, RunnerOutput, RunnerView, RunnerWork,
};

/// Pause before a task that cannot give its state yet is looked at again: a task installs its
/// handler within a second of its start, mostly. Chosen, not measured.
const NOT_YET: Millis = Millis(200);

/// What a run begins with: the rate of its dumps, and what earlier runs of the task have left.
#[derive(Debug, Clone)]
pub struct RunStart {
    /// The time between two dumps.
    pub interval: DumpInterval,
    /// How long they take.
    pub expectation: DumpExpectation,
    /// Whether the task was restored from a generation.
    pub has_generation: bool,
    /// Since when the task works without a checkpoint.
    pub unsaved_since: Instant,
    /// From when on it is noted, once, that nothing can take a checkpoint; never if it is none.
    pub undriven_from: Option<Instant>,
}

/// The decisions of one run of a task: when a dump begins, what a notice changes, and when the run
/// ends. The runner hands over what happens ([`Self::handle`], [`Self::handle_deadline`]) and
/// carries out the outputs in their order ([`Self::poll_output`]).
#[derive(Debug, Clone)]
pub struct TaskSupervisor {
    interval: DumpInterval,
    expectation: DumpExpectation,
    has_generation: bool,
    unsaved_since: Instant,
    undriven_from: Option<Instant>,
    /// When the next dump is begun, if no notice comes before.
    due: Instant,
    phase: RunnerPhase,
    /// Whether a generation was stored since the last notice, or just before it.
    is_saved: bool,
    outputs: VecDeque<RunnerOutput>,
}

/// What the runner waits for.
#[derive(Debug, Clone, Copy)]
enum RunnerPhase {
    /// The time of the next dump: the task works.
    Working,
    /// The end of a dump, or of what follows it.
    UnderWay(StartedDump),
    /// Whether another runner, whose generation a dump has met, has the lock.
    InDoubt(Option<AttendedNotice>),
    /// Which generations there are, after another runner has written one.
    Overtaken(Option<AttendedNotice>),
    /// Whether the runner has to end with its task.
    TaskFailed,
    /// Nothing.
    Over,
}

/// A dump, from its begin until what follows it has ended.
#[derive(Debug, Clone, Copy)]
struct StartedDump {
    begun: Instant,
    stage: DumpStage,
    /// The notice that it is waited for.
    wait: Option<NoticeWait>,
}

#[derive(Debug, Clone, Copy)]
enum DumpStage {
    Storing,
    /// It has ended so, and what follows that is done.
    Tidying(DumpEnd),
}

/// A notice that is attended to.
#[derive(Debug, Clone, Copy)]
struct AttendedNotice {
    notice: RunnerNotice,
    /// Whether the dump was begun for it.
    is_last: bool,
}

/// How long a dump may go on.
#[derive(Debug, Clone, Copy)]
struct NoticeWait {
    attended: AttendedNotice,
    until: Instant,
    /// Whether all the time that the notice leaves is over then.
    is_whole: bool,
}

impl TaskSupervisor {
    /// Begins a run whose task works from `view.now` on; the first dump is put off by the interval.
    #[must_use]
    pub fn new(view: &RunnerView, start: RunStart) -> Self {
        let mut supervisor = Self {
            interval: start.interval,
            expectation: start.expectation,
            has_generation: start.has_generation,
            unsaved_since: start.unsaved_since,
            undriven_from: start.undriven_from,
            due: view.now,
            phase: RunnerPhase::Working,
            is_saved: false,
            outputs: VecDeque::new(),
        };
        supervisor.put_off(view);
        supervisor
    }

    /// Returns the time between two dumps in milliseconds, by what the last dumps took and the age
    /// of the machine in `view`.
    pub fn interval(&mut self, view: &RunnerView) -> Millis {
        self.interval.after(self.expectation.times(), view.machine_age)
    }

    /// Returns the time since which the task works without a checkpoint: what it computed from then
    /// on is lost if its machine ends now.
    #[must_use]
    pub const fn unsaved_since(&self) -> Instant {
        self.unsaved_since
    }

    /// Returns the notice that is attended to, if there is one. Meanwhile no other notice but a
    /// signal is handed over, and after a signal none.
    #[must_use]
    pub fn attended(&self) -> Option<RunnerNotice> {
        let attended = match self.phase {
            RunnerPhase::UnderWay(dump) => dump.wait.map(|wait| wait.attended),
            RunnerPhase::InDoubt(attended) | RunnerPhase::Overtaken(attended) => attended,
            _ => None,
        };
        attended.map(|it| it.notice)
    }

    /// Returns whether the memory that the task has in use counts for what is decided by an input,
    /// or at the deadline if there is none.
    #[must_use]
    pub fn needs_size(&self, input: Option<&RunnerInput>) -> bool {
        let is_notice = matches!(input, Some(RunnerInput::Notice(_)));
        (is_notice || self.attended().is_some()) && self.expectation.is_by_size()
    }

    /// Returns whether [`RunnerView::machine_age`] counts: the interval follows a model of
    /// lifetimes. If not, the runner may leave it at 0.
    #[must_use]
    pub const fn needs_age(&self) -> bool {
        matches!(self.interval, DumpInterval::Lives(_))
    }

    /// Returns when [`TaskSupervisor::handle_deadline`] is to be called, if nothing happens before.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        match self.phase {
            RunnerPhase::Working => Some(self.due),
            RunnerPhase::UnderWay(dump) => dump.wait.map(|wait| wait.until),
            RunnerPhase::InDoubt(attended) | RunnerPhase::Overtaken(attended) => {
                attended.map(|it| it.notice.deadline)
            }
            _ => None,
        }
    }

    /// Removes and returns the next output; `None` if there is no more. Call it until then after
    /// each [`Self::handle`] and [`Self::handle_deadline`].
    pub fn poll_output(&mut self) -> Option<RunnerOutput> {
        self.outputs.pop_front()
    }

    /// Takes what has happened. The end of what was given up changes nothing.
    pub fn handle(&mut self, view: &RunnerView, input: RunnerInput) {
        match (self.phase, input) {
            (RunnerPhase::Over, _) => {}
            (_, RunnerInput::Interrupted) => self.end(RunnerEnd::EndTask),
            (_, RunnerInput::LockLost) => self.end(RunnerEnd::Lost),
            (_, RunnerInput::TaskEnded { is_success: true }) => self.end(RunnerEnd::TaskEnded),
            (_, RunnerInput::TaskEnded { is_success: false }) => {
                self.enter(RunnerPhase::TaskFailed, RunnerWork::AwaitStop);
            }
            (RunnerPhase::TaskFailed, RunnerInput::StopAwaited { is_stopped }) => {
                self.end(if is_stopped { RunnerEnd::Stopped } else { RunnerEnd::TaskEnded });
            }
            (_, RunnerInput::Notice(notice)) => self.noticed(view, notice),
            (RunnerPhase::UnderWay(dump), RunnerInput::Dumped(end)) => self.dumped(view, dump, end),
            (RunnerPhase::UnderWay(dump), RunnerInput::Tidied) => {
                if let DumpStage::Tidying(end) = dump.stage {
                    self.settle(view, dump.wait.map(|wait| wait.attended), end);
                }
            }
            (RunnerPhase::InDoubt(attended), RunnerInput::LockSeen { is_lost }) => {
                self.lock_seen(attended, is_lost);
            }
            (RunnerPhase::Overtaken(attended), RunnerInput::GenerationsSeen) => {
                self.put_off(view);
                self.go_back(view, attended);
            }
            _ => {}
        }
    }

    /// Takes a notice. A look that is under way goes on: what follows depends on it.
    fn noticed(&mut self, view: &RunnerView, notice: RunnerNotice) {
        let attended = Some(AttendedNotice { notice, is_last: false });
        self.is_saved = false;
        match self.phase {
            RunnerPhase::Working => self.choose(view, notice),
            RunnerPhase::UnderWay(dump) => {
                self.is_saved = matches!(dump.stage, DumpStage::Tidying(DumpEnd::Stored { .. }));
                self.go_on(view, dump, notice);
            }
            RunnerPhase::InDoubt(_) => self.phase = RunnerPhase::InDoubt(attended),
            RunnerPhase::Overtaken(_) => self.phase = RunnerPhase::Overtaken(attended),
            RunnerPhase::TaskFailed | RunnerPhase::Over => {}
        }
    }

    /// Handles the time of [`TaskSupervisor::deadline`]: a dump is begun, or a wait is over. A call
    /// that comes too early changes nothing.
    pub fn handle_deadline(&mut self, view: &RunnerView) {
        if self.deadline().is_none_or(|deadline| view.now < deadline) {
            return;
        }
        match self.phase {
            // Also after a notice for which none was begun: the machine may not be taken.
            RunnerPhase::Working => self.dump(view, None),
            RunnerPhase::UnderWay(dump @ StartedDump { wait: Some(wait), .. }) => {
                self.waited(view, dump, wait);
            }
            RunnerPhase::InDoubt(Some(attended)) | RunnerPhase::Overtaken(Some(attended)) => {
                self.looked_in_vain(view, attended);
            }
            _ => {}
        }
    }

    /// Decides about a dump that was waited for at a notice, for as long as it may go on.
    fn waited(&mut self, view: &RunnerView, dump: StartedDump, wait: NoticeWait) {
        let AttendedNotice { notice, is_last } = wait.attended;
        match dump.stage {
            // What has become of the dump stands. What follows it is not waited for.
            DumpStage::Tidying(end) => self.settle(view, Some(wait.attended), end),
            DumpStage::Storing if is_last => {
                self.note(RunnerNote::LastNotInTime);
                self.go_on_after(notice);
            }
            DumpStage::Storing if wait.is_whole => {
                self.note(RunnerNote::NotInTime);
                self.choose(view, notice);
            }
            DumpStage::Storing => self.go_on(view, dump, notice),
        }
    }

    /// Gives a look up whose result would come too late for the notice.
    fn looked_in_vain(&mut self, view: &RunnerView, attended: AttendedNotice) {
        self.put_off(view);
        match attended.is_last {
            true => self.go_on_after(attended.notice),
            false => {
                let takes = self.expectation.takes(view.resident_bytes);
                self.keep_last(attended.notice, takes);
            }
        }
    }

    /// Decides at a notice, while nothing is under way, whether a last dump is begun for it.
    fn choose(&mut self, view: &RunnerView, notice: RunnerNotice) {
        let takes = self.expectation.takes(view.resident_bytes);
        match NoticeChoice::of(takes, view.now.until(notice.deadline)) {
            NoticeChoice::KeepLast => self.keep_last(notice, takes),
            NoticeChoice::Dump => {
                self.note(RunnerNote::TakenNow { takes });
                let attended = AttendedNotice { notice, is_last: true };
                let until = notice.deadline;
                self.dump(view, Some(NoticeWait { attended, until, is_whole: true }));
                let dump = self.last_dump(view, notice);
                self.outputs.push_back(RunnerOutput::Turn { dump, rest: dump.takes });
            }
        }
    }

    /// Lets the last generation count: another one would not be stored in time.
    fn keep_last(&mut self, notice: RunnerNotice, takes: Millis) {
        self.note(RunnerNote::NoneBegun { takes });
        self.go_on_after(notice);
    }

    /// Decides at a notice whether the dump under way goes on.
    fn go_on(&mut self, view: &RunnerView, dump: StartedDump, notice: RunnerNotice) {
        let takes = self.expectation.takes(view.resident_bytes);
        // While it waits for its turn, nothing of it is done.
        let elapsed = Millis(view.now.since(dump.begun).0.saturating_sub(view.waited.0));
        let left = view.now.until(notice.deadline);
        let rest = Millis(takes.0.saturating_sub(elapsed.0));
        let within = match UnderWayChoice::of(takes, elapsed, left) {
            UnderWayChoice::GoOn { within } => Some(within),
            UnderWayChoice::BeginAgain | UnderWayChoice::GiveUp => None,
        };
        self.note(RunnerNote::UnderWay { rest, goes_on: within.is_some() });
        let attended = AttendedNotice { notice, is_last: false };
        match (within, dump.stage) {
            (Some(within), stage) => {
                let is_whole = within == left;
                let wait = NoticeWait { attended, until: view.now + within, is_whole };
                self.phase = RunnerPhase::UnderWay(StartedDump { wait: Some(wait), ..dump });
                // One that is stored holds no other dump up.
                if matches!(stage, DumpStage::Storing) {
                    let dump = self.last_dump(view, notice);
                    self.outputs.push_back(RunnerOutput::Turn { dump, rest });
                }
            }
            (None, DumpStage::Storing) => self.choose(view, notice),
            (None, DumpStage::Tidying(end)) => self.settle(view, Some(attended), end),
        }
    }

    fn last_dump(&self, view: &RunnerView, notice: RunnerNotice) -> LastDump {
        let takes = self.expectation.takes_in_turn(view.resident_bytes);
        LastDump { takes, unsaved_since: self.unsaved_since, deadline: notice.deadline }
    }

    /// Takes the end of a dump, and begins what follows it.
    fn dumped(&mut self, view: &RunnerView, dump: StartedDump, end: DumpEnd) {
        let follows = match end {
            DumpEnd::Stored { took, in_turn, worked_until } => {
                self.expectation.add(took, in_turn, !self.has_generation);
                self.has_generation = true;
                self.unsaved_since = worked_until;
                self.is_saved = true;
                RunnerWork::Collect
            }
            DumpEnd::Failed { leaves_packs: true } => RunnerWork::MakeRoom,
            _ => return self.settle(view, dump.wait.map(|wait| wait.attended), end),
        };
        let stage = DumpStage::Tidying(end);
        self.enter(RunnerPhase::UnderWay(StartedDump { stage, ..dump }), follows);
    }

    /// Decides when the next dump is due by what became of one, and goes back to the notice that it
    /// was waited for.
    fn settle(&mut self, view: &RunnerView, attended: Option<AttendedNotice>, end: DumpEnd) {
        match (attended, end) {
            (Some(AttendedNotice { notice, .. }), DumpEnd::Refused { takes }) => {
                self.put_off(view);
                self.keep_last(notice, takes);
            }
            (Some(attended), _) if attended.is_last => self.settle_last(view, attended, end),
            (_, DumpEnd::Taken) => {
                self.enter(RunnerPhase::InDoubt(attended), RunnerWork::LookAtLock);
            }
            (_, DumpEnd::NotYet) => {
                self.note_undriven(view.now);
                self.due = view.now + self.interval(view).min(NOT_YET);
                self.go_back(view, attended);
            }
            (_, DumpEnd::Stored { .. }) => {
                self.put_off(view);
                self.go_back(view, attended);
            }
            // The task goes on, and the next checkpoint may succeed.
            (_, DumpEnd::Failed { .. } | DumpEnd::Refused { .. }) => {
                self.note(RunnerNote::Failed);
                self.put_off(view);
                self.go_back(view, attended);
            }
        }
    }

    /// Takes what became of the dump that was begun for a notice. Another one is not begun for it.
    fn settle_last(&mut self, view: &RunnerView, attended: AttendedNotice, end: DumpEnd) {
        match end {
            DumpEnd::Stored { .. } => self.put_off(view),
            DumpEnd::NotYet => self.note(RunnerNote::LastUngiven),
            DumpEnd::Failed { .. } | DumpEnd::Refused { .. } => self.note(RunnerNote::LastFailed),
            DumpEnd::Taken => {
                self.note(RunnerNote::LastFailed);
                let phase = RunnerPhase::InDoubt(Some(attended));
                return self.enter(phase, RunnerWork::LookAtLock);
            }
        }
        self.go_on_after(attended.notice);
    }

    /// Takes whether another runner, whose generation a dump has met, has the lock. If it has lost
    /// that, it ends as soon as it finds it, and this one goes on after its numbers.
    fn lock_seen(&mut self, attended: Option<AttendedNotice>, is_lost: bool) {
        match attended {
            _ if is_lost => self.end(RunnerEnd::Lost),
            Some(AttendedNotice { notice, is_last: true }) => self.go_on_after(notice),
            _ => {
                self.note(RunnerNote::Overtaken);
                self.enter(RunnerPhase::Overtaken(attended), RunnerWork::LookAtGenerations);
            }
        }
    }

    /// Notes once why a task gets no checkpoints that neither handles the signal nor has CRIU.
    fn note_undriven(&mut self, now: Instant) {
        if self.undriven_from.is_some_and(|from| now >= from) {
            self.undriven_from = None;
            self.note(RunnerNote::Undriven);
        }
    }

    fn put_off(&mut self, view: &RunnerView) {
        self.due = view.now + self.interval(view);
    }

    /// Goes back to the notice that is attended to, or else to the wait for the next dump.
    fn go_back(&mut self, view: &RunnerView, attended: Option<AttendedNotice>) {
        match attended {
            Some(attended) => self.choose(view, attended.notice),
            None => self.enter(RunnerPhase::Working, RunnerWork::Wait),
        }
    }

    /// Goes on when all is done for a notice. A task that is handed over ends, as nothing but what
    /// it did since the last dump is lost. If there was none, it is better off with the time left.
    fn go_on_after(&mut self, notice: RunnerNotice) {
        match notice.is_sigterm || notice.hands_over && self.is_saved {
            true => self.end(RunnerEnd::EndTask),
            false => self.enter(RunnerPhase::Working, RunnerWork::Wait),
        }
    }

    fn dump(&mut self, view: &RunnerView, wait: Option<NoticeWait>) {
        let dump = StartedDump { begun: view.now, stage: DumpStage::Storing, wait };
        self.enter(RunnerPhase::UnderWay(dump), RunnerWork::Dump);
    }

    fn end(&mut self, end: RunnerEnd) {
        self.enter(RunnerPhase::Over, RunnerWork::End(end));
    }

    fn enter(&mut self, phase: RunnerPhase, work: RunnerWork) {
        self.phase = phase;
        self.outputs.push_back(RunnerOutput::Work(work));
    }

    fn note(&mut self, note: RunnerNote) {
        self.outputs.push_back(RunnerOutput::Note(note));
    }
}

#[cfg(test)]
mod tests;
