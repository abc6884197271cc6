//! What happens to agents, to their machines and to the backend.

use super::{BagWorld, FAULTS_END, HEALTHY, Step, Timer};

#[derive(Debug, Clone, Copy)]
enum FaultKind {
    /// The process hangs, and goes on. Its commands run meanwhile.
    Pause,
    /// Its requests do not reach the backend.
    Cut,
    /// The process ends, with its commands, and another one starts after a while.
    Kill,
    /// The process gets a signal, and another one starts after a while.
    Stop,
    /// The machine has a notice, which is withdrawn.
    Notice,
    /// The time of day jumps.
    Jump,
    /// No request reaches the backend.
    Away,
    /// The bag is not there for a moment.
    Absent,
}

const KINDS: [FaultKind; 8] = [
    FaultKind::Pause,
    FaultKind::Cut,
    FaultKind::Kill,
    FaultKind::Stop,
    FaultKind::Notice,
    FaultKind::Jump,
    FaultKind::Away,
    FaultKind::Absent,
];

/// For how long the bag is absent at most: with the slowest answers it does not count as removed.
const ABSENT_MAX: u64 = 3_000_000;

#[derive(Debug)]
pub(super) struct Fault {
    kind: FaultKind,
    agent: usize,
    span: u64,
}

impl BagWorld {
    /// Draws faults of some kinds: those that always come together hide each other's mistakes.
    pub(super) fn draw_faults(&mut self) {
        let (kinds, count) = (self.draw.between(0, 255), self.draw.between(3, 14));
        for _ in 0..count {
            let at = self.draw.between(500_000, 14_000_000);
            let (kind, agent) = (self.draw.below(KINDS.len()), self.draw.below(self.agents.len()));
            let span = self.draw.pick(&[500, 2000, 5000, 8000]) * 1000;
            if (kinds >> kind) & 1 == 1 {
                self.at(at, Step::Fault(Fault { kind: KINDS[kind], agent, span }));
            }
        }
    }

    pub(super) fn fault(&mut self, fault: &Fault) {
        let (now, agent) = (self.now, fault.agent);
        let end = (now + fault.span).min(FAULTS_END);
        match fault.kind {
            FaultKind::Away => self.away_until = self.away_until.max(end),
            FaultKind::Absent => {
                self.absent_until.get_or_insert(end.min(now + ABSENT_MAX));
            }
            FaultKind::Jump => {
                let hours = self.draw.between(0, 4) as i64 - 2;
                self.agents[agent].wall_offset += hours * 3_600_000_000;
            }
            FaultKind::Notice => self.notice(agent, end),
            _ if agent == HEALTHY => {}
            FaultKind::Pause => {
                let it = &mut self.agents[agent];
                it.paused_until = it.paused_until.max(end);
            }
            FaultKind::Cut => {
                let it = &mut self.agents[agent];
                it.cut_until = it.cut_until.max(end);
            }
            FaultKind::Kill => {
                self.agents[agent].leave(None);
                self.at(end, Step::Start(agent));
            }
            FaultKind::Stop => {
                self.timer(agent, 0, Timer::Stop);
                self.at(end, Step::Start(agent));
            }
        }
    }

    /// Shows a notice until a time. Tasks that are saved at it are handed over.
    fn notice(&mut self, agent: usize, end: u64) {
        let saves = self.draw.chance(500);
        let it = &mut self.agents[agent];
        it.noticed_until = it.noticed_until.max(end);
        if saves && it.paused_until <= self.now {
            self.stop_runs(agent);
        }
    }
}
