//! What must hold in the world of a run.

use sanderling_protocol::{Instant, Millis};

use super::{RunSignal, RunWorld};
use crate::checkpoint::{
    DumpEnd, DumpTimes, LastDump, NoticeChoice, RunnerEnd, RunnerInput, RunnerNote, RunnerNotice,
    RunnerWork, StoragePrices,
};

/// How long all that follows a dump takes, until the next one is waited for, in milliseconds at
/// most.
const FOLLOWS_MAX: u64 = 5000;

/// What a notice still lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NoticeLacks {
    /// A dump that is begun for it, or the reason why there is none.
    Dump,
    /// The end of that dump.
    End,
}

/// What the checks have noted.
#[derive(Debug, Default)]
pub(super) struct RunChecks {
    /// Notices that sources have shown, and those for which all was done.
    pub(super) arrived: u64,
    answered: u64,
    /// What the last notice lacks.
    lacks: Option<NoticeLacks>,
    /// The last notice.
    notice: Option<RunnerNotice>,
    /// When a dump has failed, until another one is begun.
    pub(super) failed_at: Option<u64>,
    /// Whether the runner has seen that another one has the lock.
    pub(super) is_loss_seen: bool,
    /// How the last dump has ended.
    dump_end: Option<DumpEnd>,
    /// What dumps took.
    times: DumpTimes,
    has_generation: bool,
    unsaved_since: Instant,
    /// Whether a generation was stored while a notice is attended to, or just before it.
    is_saved: bool,
    /// Until when the run may go on after SIGTERM.
    sigterm_until: Option<u64>,
}

/// What the checks have looked at.
#[derive(Debug, Default)]
pub(super) struct RunCounts {
    pub(super) stored: u64,
    /// Dumps without a generation, and those among them that were refused at their turns.
    pub(super) failed: u64,
    pub(super) refused: u64,
    /// Other runners' generations that were passed over.
    pub(super) overtaken: u64,
    /// Notices for which a dump was begun, and for which none was.
    pub(super) taken_now: u64,
    pub(super) none_begun: u64,
    /// Notices at which a dump went on.
    pub(super) went_on: u64,
    /// Runs that have ended with the lock, with the task, and by a signal.
    pub(super) lost: u64,
    pub(super) ended: u64,
    pub(super) stopped: u64,
    /// Runs that have ended as their task is handed over.
    pub(super) handed_over: u64,
}

impl RunCounts {
    pub(super) fn add(&mut self, other: &Self) {
        self.stored += other.stored;
        self.failed += other.failed;
        self.refused += other.refused;
        self.overtaken += other.overtaken;
        self.taken_now += other.taken_now;
        self.none_begun += other.none_begun;
        self.went_on += other.went_on;
        self.lost += other.lost;
        self.ended += other.ended;
        self.stopped += other.stopped;
        self.handed_over += other.handed_over;
    }
}

impl RunWorld {
    /// Takes note of an input, as it is.
    pub(super) fn check_input(&mut self, input: &RunnerInput) {
        match *input {
            RunnerInput::Notice(notice) => {
                // A signal takes the place of another notice, and the run ends after it.
                self.checks.lacks = Some(NoticeLacks::Dump);
                self.checks.notice = Some(notice);
                // What it has stored just before is enough.
                self.checks.is_saved = self.work == RunnerWork::Collect;
                if notice.is_sigterm {
                    // Times that are left are whole milliseconds.
                    self.checks.sigterm_until = Some(notice.deadline.0 + 1000);
                }
            }
            RunnerInput::Dumped(end) => {
                self.checks.dump_end = Some(end);
                match end {
                    DumpEnd::Stored { took, worked_until, .. } => self.stored(took, worked_until),
                    DumpEnd::NotYet | DumpEnd::Failed { .. } => {
                        self.counts.failed += 1;
                        self.checks.failed_at = Some(self.now);
                    }
                    DumpEnd::Refused { .. } => self.counts.refused += 1,
                    DumpEnd::Taken => {}
                }
            }
            RunnerInput::LockSeen { is_lost: true } => self.checks.is_loss_seen = true,
            _ => {}
        }
    }

    fn stored(&mut self, took: Millis, worked_until: Instant) {
        self.counts.stored += 1;
        let is_at_notice = self.machine.attended().is_some();
        let checks = &mut self.checks;
        checks.is_saved = is_at_notice;
        checks.times.add(took, !checks.has_generation);
        checks.has_generation = true;
        checks.unsaved_since = worked_until;
        if checks.lacks == Some(NoticeLacks::End) {
            self.answered();
        }
    }

    fn answered(&mut self) {
        if self.checks.lacks.take().is_some() {
            self.checks.answered += 1;
        }
    }

    pub(super) fn check_note(&mut self, note: RunnerNote) {
        match note {
            RunnerNote::TakenNow { .. } => {
                self.counts.taken_now += 1;
                self.checks.lacks = Some(NoticeLacks::End);
                self.check_forecast();
            }
            RunnerNote::NoneBegun { .. } => {
                self.counts.none_begun += 1;
                self.answered();
            }
            RunnerNote::LastNotInTime | RunnerNote::LastUngiven | RunnerNote::LastFailed => {
                self.answered();
            }
            RunnerNote::UnderWay { goes_on, .. } => self.counts.went_on += u64::from(goes_on),
            RunnerNote::Overtaken => self.counts.overtaken += 1,
            RunnerNote::Failed | RunnerNote::Undriven | RunnerNote::NotInTime => {}
        }
    }

    /// Checks a dump that is begun for a notice: by what is expected of it, it ends in time.
    fn check_forecast(&mut self) {
        let Some(notice) = self.checks.notice else {
            return self.violate("forecast", "a dump is begun for a notice that there is not");
        };
        let free = StoragePrices { gigabyte_month: 0.0, thousand_requests: 0.0 };
        let takes = match (self.checks.times.slowest(), &self.rates) {
            (Some(slowest), _) => slowest,
            (None, Some(rates)) => rates.forecast(self.state_bytes, free).takes,
            (None, None) => self.checks.times.expected(),
        };
        let left = Instant(self.now).until(notice.deadline);
        if NoticeChoice::of(takes, left) == NoticeChoice::KeepLast {
            let what = format!("a dump of {takes:?} is begun with {left:?} left");
            self.violate("forecast", &what);
        }
    }

    pub(super) fn check_turn(&mut self, dump: &LastDump) {
        let deadline = self.checks.notice.map(|notice| notice.deadline);
        let is_right = self.work == RunnerWork::Dump
            && Some(dump.deadline) == deadline
            && dump.unsaved_since == self.checks.unsaved_since;
        assert!(is_right, "seed {}: {dump:?} is none of {:?}", self.seed, self.checks);
    }

    /// Checks work that is begun, while what was under way before is still noted.
    pub(super) fn check_begin(&mut self, work: RunnerWork) {
        match work {
            RunnerWork::Dump => self.checks.failed_at = None,
            RunnerWork::Collect | RunnerWork::MakeRoom => self.check_removal(work),
            RunnerWork::Wait => {
                self.check_answered();
                self.check_handed_over();
            }
            RunnerWork::End(end) => self.check_outcome(end),
            _ => {}
        }
    }

    /// Checks that what is removed follows a dump that has stored something.
    fn check_removal(&mut self, work: RunnerWork) {
        let is_right = match (work, self.checks.dump_end) {
            (RunnerWork::Collect, Some(DumpEnd::Stored { .. })) => true,
            (RunnerWork::MakeRoom, Some(DumpEnd::Failed { leaves_packs })) => leaves_packs,
            _ => false,
        };
        if !is_right || self.work != RunnerWork::Dump {
            let what = format!("{work:?} after {:?}", self.checks.dump_end);
            self.violate("removal", &what);
        }
    }

    /// Checks that nothing is left to do for a notice when the runner goes on.
    fn check_answered(&mut self) {
        if let Some(lacks) = self.checks.lacks {
            self.violate("notice", &format!("the last notice lacks {lacks:?}"));
        }
    }

    /// Checks that a run of a bag that goes on has stored nothing for the last notice.
    fn check_handed_over(&mut self) {
        if self.hands_over && self.checks.is_saved {
            self.violate("handover", "the run goes on although its task is saved");
        }
    }

    fn check_outcome(&mut self, end: RunnerEnd) {
        let (counts, checks) = (&mut self.counts, &self.checks);
        let is_true = match end {
            RunnerEnd::TaskEnded => {
                counts.ended += 1;
                self.task_end.is_some()
            }
            RunnerEnd::Lost => {
                counts.lost += 1;
                checks.is_loss_seen
            }
            RunnerEnd::Stopped => self.task_end == Some(false) && self.signal.is_some(),
            RunnerEnd::EndTask if self.signal.is_some() => {
                counts.stopped += 1;
                true
            }
            RunnerEnd::EndTask => {
                counts.handed_over += 1;
                self.hands_over && checks.is_saved
            }
        };
        if !is_true {
            self.violate("outcome", &format!("the run ends by {end:?}"));
        }
        if end == RunnerEnd::EndTask && matches!(self.signal, Some(RunSignal::Sigterm { .. })) {
            self.check_answered();
        }
    }

    /// Checks that time may pass as things are.
    pub(super) fn check_passing(&mut self, until: u64) {
        if self.is_dumping() && self.checks.is_loss_seen {
            self.violate("lock", "a dump goes on although another runner has the lock");
        }
        if self.is_attended() && self.task_end.is_some() {
            self.violate("end", "the run goes on although the task has ended");
        }
        if self.checks.sigterm_until.is_some_and(|limit| until > limit) {
            self.violate("signal", "the run goes on although the time after SIGTERM is over");
        }
        let pause_max = (self.interval + FOLLOWS_MAX) * 1000;
        if self.checks.failed_at.is_some_and(|at| until > at + pause_max) {
            self.violate("next", "no dump follows the one that has failed");
        }
    }

    /// Checks the end: all has been done for each notice, and a run that had to end is over.
    pub(super) fn check_end(&mut self) {
        if self.is_over() || self.violation.is_some() {
            return;
        }
        if self.signal.is_some() || self.task_end.is_some() || self.checks.is_loss_seen {
            self.violate("end", "the run is not over");
        }
        let checks = &self.checks;
        if checks.arrived != checks.answered || checks.lacks.is_some() {
            let what = format!("{} of {} notices", checks.answered, checks.arrived);
            self.violate("notice", &what);
        }
    }
}
