//! Whether the command of a task may run: only as long as its runner has confirmed the lock lately.
//!
//! A runner that hangs, or that does not reach its backend, cannot find that another runner has
//! taken the lock. So a process beside it stops the command at the end of the last confirmation,
//! which is before another runner may take the lock ([`LockHolder::runs_until`]), and lets it go on
//! at the next one. Times are by a clock of the machine that goes on while processes are stopped
//! and while the machine is suspended. Both processes read it.
//!
//! [`LockHolder::runs_until`]: super::LockHolder::runs_until

use sanderling_protocol::{Instant, Millis};

/// How often the processes of a stopped command are looked at: something else may let one go on,
/// and one may have started another before it stopped. Chosen, not measured.
const LOOK_EVERY: Millis = Millis(20);

/// How many times as long as a look the pause after it is, at least: a look at thousands of
/// processes takes no more than a tenth of a processor, and up to a third where processes begin all
/// the time: up to five looks are taken in one call. Chosen, not measured.
const PAUSE_LOOKS: u64 = 10;

/// What is done with the processes of a command now, as [`CommandLease::order`] decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandOrder {
    /// Nothing until then: it runs.
    Run {
        /// The end of the lease.
        until: Instant,
    },
    /// Let the processes go on that were stopped.
    GoOn {
        /// The end of the lease.
        until: Instant,
    },
    /// Stop those of its processes that run, also if all were stopped before, and look again at
    /// [`CommandLease::again_at`].
    Stop,
}

/// The lease of a command, as the process sees it that stops the command.
#[derive(Debug, Clone, Copy)]
pub struct CommandLease {
    ends: Instant,
    is_stopped: bool,
    /// Whether the dump under way began while the command ran, which was not stopped since.
    is_dump_whole: bool,
}

impl CommandLease {
    /// Begins with a command that runs and may run until `ends`, by the clock that later calls use.
    #[must_use]
    pub const fn new(ends: Instant) -> Self {
        Self { ends, is_stopped: false, is_dump_whole: false }
    }

    /// Takes a confirmation, which lets the command run until `ends`. One that is behind another
    /// changes nothing.
    pub fn confirm(&mut self, ends: Instant) {
        self.ends = self.ends.max(ends);
    }

    /// Returns whether the last [`Self::order`] was to stop the command.
    #[must_use]
    pub const fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Decides what is done with the command at `now`, by the end of the last confirmation.
    pub fn order(&mut self, now: Instant) -> CommandOrder {
        let until = self.ends;
        if now >= until {
            (self.is_stopped, self.is_dump_whole) = (true, false);
            return CommandOrder::Stop;
        }
        match std::mem::take(&mut self.is_stopped) {
            true => CommandOrder::GoOn { until },
            false => CommandOrder::Run { until },
        }
    }

    /// Returns when the processes of a command that is stopped are looked at again, after a look
    /// that took so long and has ended now.
    #[must_use]
    pub fn again_at(now: Instant, took: Millis) -> Instant {
        now + LOOK_EVERY.max(Millis(took.0.saturating_mul(PAUSE_LOOKS)))
    }

    /// Begins a dump of the command's memory. Returns whether it may begin: a command that is
    /// stopped would be stopped in its images, too, and would be restored so.
    pub fn begin_dump(&mut self, now: Instant) -> bool {
        self.is_dump_whole = !self.is_stopped && now < self.ends;
        self.is_dump_whole
    }

    /// Ends the dump. Returns whether the command was not stopped since it began.
    pub const fn end_dump(&mut self) -> bool {
        let is_whole = self.is_dump_whole;
        self.is_dump_whole = false;
        is_whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Instant {
        Instant(1_000_000 * (100 + seconds))
    }

    fn stops(lease: &mut CommandLease, seconds: u64) -> bool {
        lease.order(at(seconds)) == CommandOrder::Stop
    }

    #[test]
    fn command_runs_until_its_lease_ends() {
        let mut lease = CommandLease::new(at(27));
        assert_eq!(lease.order(at(1)), CommandOrder::Run { until: at(27) });
        lease.confirm(at(37));
        assert_eq!(lease.order(at(28)), CommandOrder::Run { until: at(37) });
        assert!(stops(&mut lease, 37) && lease.is_stopped());
        // It is looked at again and again: something else may have let it go on.
        assert!(stops(&mut lease, 38) && stops(&mut lease, 3600));
    }

    #[test]
    fn looks_at_many_processes_are_further_apart() {
        let pause = |took| at(1).until(CommandLease::again_at(at(1), Millis(took)));
        assert_eq!([pause(0), pause(2), pause(300)], [Millis(20), Millis(20), Millis(3000)]);
    }

    #[test]
    fn stopped_command_goes_on_at_the_next_confirmation() {
        let mut lease = CommandLease::new(at(27));
        assert!(stops(&mut lease, 30));
        lease.confirm(at(47));
        assert_eq!(lease.order(at(31)), CommandOrder::GoOn { until: at(47) });
        assert!(!lease.is_stopped());
        assert_eq!(lease.order(at(32)), CommandOrder::Run { until: at(47) });
    }

    #[test]
    fn confirmation_that_comes_late_or_twice_lets_nothing_run() {
        let mut lease = CommandLease::new(at(27));
        lease.confirm(at(20));
        assert_eq!(lease.order(at(21)), CommandOrder::Run { until: at(27) }, "no lease is cut");
        assert!(stops(&mut lease, 50));
        // As from a runner that was stopped between the confirmation and the report of it.
        lease.confirm(at(40));
        assert!(stops(&mut lease, 51));
    }

    #[test]
    fn command_that_was_stopped_is_in_no_dump() {
        let mut lease = CommandLease::new(at(27));
        assert!(lease.begin_dump(at(1)));
        lease.order(at(2));
        assert!(lease.end_dump());
        assert!(!lease.end_dump(), "none is under way");
        assert!(lease.begin_dump(at(26)));
        assert!(stops(&mut lease, 27));
        lease.confirm(at(60));
        lease.order(at(28));
        assert!(!lease.end_dump(), "its images may show the stop");
        assert!(lease.begin_dump(at(29)) && lease.end_dump());
        assert!(!lease.begin_dump(at(60)), "it is about to be stopped");
        assert!(stops(&mut lease, 61) && !lease.begin_dump(at(62)));
    }
}
