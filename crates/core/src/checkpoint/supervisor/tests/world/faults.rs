//! What happens to a run, and what becomes of its dumps.

use sanderling_protocol::{Instant, Millis};

use super::{EVENTS_END, HANGS, LEFT_MAX, RunSignal, RunWorld, WorldStep};
use crate::checkpoint::{DumpEnd, RunnerInput};

/// How often dumps fail, of a thousand of them.
#[derive(Debug, Default)]
pub(super) struct DrawnFaults {
    slow_permille: u64,
    hang_permille: u64,
    fail_permille: u64,
    /// Another runner has written the generation.
    taken_permille: u64,
    /// At its turn a dump does not fit any more.
    refused_permille: u64,
    /// For how long a dump waits for its turn, in milliseconds at most.
    wait_max: u64,
    /// From when on the task can give its state.
    gives_from: u64,
}

impl RunWorld {
    pub(super) fn draw_faults(&mut self) {
        self.faults = DrawnFaults {
            slow_permille: 100,
            hang_permille: self.draw.pick(&[0, 30, 200]),
            fail_permille: self.draw.pick(&[0, 200, 600]),
            taken_permille: self.draw.pick(&[0, 30]),
            refused_permille: self.draw.pick(&[0, 200]),
            wait_max: self.draw.pick(&[0, 2000]),
            gives_from: self.draw.pick(&[0, 0, 3_000_000]),
        };
        for _ in 0..self.draw.below(5) {
            let (at, left) = (self.time(), self.left());
            self.at(at, WorldStep::Notice { left });
        }
        if self.draw.chance(300) {
            let (at, left) = (self.time(), self.left());
            self.at(at, WorldStep::Signal(RunSignal::Sigterm { left }));
        }
        if self.draw.chance(100) {
            let at = self.time();
            self.at(at, WorldStep::Signal(RunSignal::Interrupt));
        }
        if self.draw.chance(400) {
            let (at, shown) = (self.time(), self.draw.between(0, 5_000_000));
            self.at(at, WorldStep::LockTaken);
            self.at(at + shown, WorldStep::LossSeen);
        }
        if self.draw.chance(400) {
            let (at, is_success) = (self.time(), self.draw.chance(500));
            self.at(at, WorldStep::TaskEnd { is_success });
        }
    }

    /// Draws when something happens: often before the first dumps were measured.
    fn time(&mut self) -> u64 {
        let until = if self.draw.chance(400) { EVENTS_END / 10 } else { EVENTS_END };
        self.draw.between(0, until - 1)
    }

    fn left(&mut self) -> u64 {
        self.draw.pick(&[0, 1000, 5000, 20_000, LEFT_MAX])
    }

    pub(super) fn begin_dump(&mut self) {
        let waits = self.draw.between(0, self.faults.wait_max);
        (self.dump_begun, self.dump_waits) = (self.now, waits);
        let (takes, end) = self.drawn_end();
        self.done_in(waits + takes, RunnerInput::Dumped(end));
    }

    /// Draws how long a dump takes, in milliseconds, and what becomes of it.
    fn drawn_end(&mut self) -> (u64, DumpEnd) {
        if self.now < self.faults.gives_from {
            return (1, DumpEnd::NotYet);
        }
        let slow = if self.draw.chance(self.faults.slow_permille) { 5 } else { 1 };
        let takes = slow * self.draw.between(self.typical / 2, self.typical * 3 / 2);
        if self.draw.chance(self.faults.hang_permille) {
            return (HANGS, DumpEnd::Failed { leaves_packs: true });
        }
        if self.draw.chance(self.faults.fail_permille) {
            return (takes, DumpEnd::Failed { leaves_packs: self.draw.chance(500) });
        }
        if self.draw.chance(self.faults.taken_permille) {
            return (takes, DumpEnd::Taken);
        }
        let (took, worked_until) = (Millis(takes), Instant(self.now));
        if self.draw.chance(self.faults.refused_permille) {
            return (takes, DumpEnd::Refused { takes: took });
        }
        (takes, DumpEnd::Stored { took, in_turn: took, worked_until })
    }
}
