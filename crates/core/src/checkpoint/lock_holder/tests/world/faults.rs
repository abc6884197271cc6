//! What fails in a world: processes, machines, links and the backend.

use super::{LockWorld, ROUND, Runner, Step};

/// A fault of a runner, or of the backend.
#[derive(Debug, Clone, Copy)]
pub(super) enum FaultKind {
    /// The process is stopped and goes on.
    Pause,
    /// Its requests do not reach the backend.
    Cut,
    /// No request reaches the backend.
    Away,
    /// The process ends, and another one starts after a while.
    Kill,
    /// The machine is taken, unless no other one would be left.
    Machine,
}

const KINDS: [FaultKind; 5] =
    [FaultKind::Pause, FaultKind::Cut, FaultKind::Away, FaultKind::Kill, FaultKind::Machine];

#[derive(Debug)]
pub(super) struct Fault {
    kind: FaultKind,
    /// The runner; the one that believes in its lock if there is none.
    victim: Option<usize>,
    span: u64,
}

impl LockWorld {
    /// Draws faults of some kinds: those that always come together hide each other's mistakes.
    pub(super) fn draw_faults(&mut self) {
        let (kinds, count) = (self.draw.between(0, 31), self.draw.between(3, 14));
        for _ in 0..count {
            let at = self.draw.between(self.age, self.faults_end - self.age);
            let kind = self.draw.below(5);
            let victim = if self.draw.chance(600) { None } else { Some(self.draw.below(3)) };
            let span = self.draw.pick(&[2, 7, 13, 25]) * self.age / 10;
            if kinds >> kind & 1 == 1 {
                self.at(at, Step::Fault(Fault { kind: KINDS[kind], victim, span }));
            }
        }
    }

    /// Lets the process or the machine of the runner that has the lock end, with all others on the
    /// same machine or on others.
    pub(super) fn kill_holder_at(&mut self, at: u64, is_own_machine: bool) {
        for (number, runner) in self.runners.iter_mut().enumerate() {
            runner.machine = if is_own_machine { 0 } else { number };
        }
        let kind = if is_own_machine { FaultKind::Kill } else { FaultKind::Machine };
        self.at(at, Step::Fault(Fault { kind, victim: None, span: self.faults_end }));
    }

    pub(super) fn fault(&mut self, fault: &Fault) {
        let (now, end) = (self.now, (self.now + fault.span).min(self.faults_end));
        let runner = fault.victim.or_else(|| self.believing()).unwrap_or(0);
        match fault.kind {
            FaultKind::Pause => {
                let it = &mut self.runners[runner];
                it.stopped += end.saturating_sub(it.paused_until.max(now));
                it.paused_until = it.paused_until.max(end);
            }
            FaultKind::Cut => {
                let it = &mut self.runners[runner];
                it.cut_until = it.cut_until.max(end);
            }
            FaultKind::Away => {
                self.away_until = self.away_until.max(end);
                // Twice the longest pause between two answers that an observer does not notice: a
                // late answer from before an outage may come in the middle of it.
                let unnoticed = 2 * (self.age / 3).max(3 * ROUND);
                if end - now > unnoticed * 21 / 20 + 10_000 {
                    self.returns.push(self.away_until);
                }
            }
            FaultKind::Kill => {
                self.kill(runner);
                self.at(end, Step::Start { runner });
            }
            FaultKind::Machine => {
                let machine = self.runners[runner].machine;
                let is_left = |it: &Runner| it.machine != machine && !it.is_gone;
                if !self.runners.iter().any(is_left) {
                    return;
                }
                for other in 0..self.runners.len() {
                    if self.runners[other].machine == machine {
                        self.kill(other);
                        self.runners[other].is_gone = true;
                    }
                }
            }
        }
    }

    fn kill(&mut self, runner: usize) {
        let it = &mut self.runners[runner];
        it.end();
        it.is_running = false;
        it.paused_until = 0;
    }
}
