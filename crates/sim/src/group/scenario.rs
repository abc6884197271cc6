//! What a seed determines of a group's run.

use crate::random::Random;

/// When the faults end, in microseconds. Six elections of the longest time fit into it, one after
/// the other.
pub(super) const FAULTS_END: u64 = 5_000_000;

/// When the run ends: every member is there again, and nothing is lost on the way. 4 s after the
/// faults: an election, 0.8 s and as long again, a snapshot for a member that lags, and the last
/// changes of members.
pub(super) const RUN_END: u64 = 9_000_000;

/// How much longer a run lasts in which machines have expected lives: after the faults the
/// leadership moves for them, again and again while members join and catch up. In the second half
/// it moves no more, so that the group is led at the end.
pub(super) const LIVES_SETTLE: u64 = 2_000_000;

/// One seed of so many has machines with expected lives; the others keep what they have tested.
/// Chosen, not measured.
const LIVES_ONE_OF: u64 = 5;

/// One seed of so many has processes that end between two steps of a write; the others keep what
/// they have tested. Chosen, not measured.
const STEPS_ONE_OF: u64 = 8;

/// The member that a fault meets.
#[derive(Debug, Clone, Copy)]
pub(super) enum Victim {
    Leader,
    Any(u64),
}

/// A fault.
#[derive(Debug, Clone, Copy)]
pub(super) enum GroupFault {
    /// The process ends and starts again after a while.
    Kill { victim: Victim, down: u64 },
    /// The machine crashes: what is not synced is lost, or a part of it.
    Crash { victim: Victim, down: u64, kept: u64 },
    /// The process is stopped and continues.
    Pause { victim: Victim, span: u64 },
    /// Members on two sides of a cut do not reach each other, or only in one direction.
    Partition { sides: u64, is_one_way: bool, span: u64 },
    /// One member is cut off.
    Isolate { victim: Victim, span: u64 },
    /// The operator moves the leadership, and nothing reaches the old leader for a while.
    Transfer { to: u64, cut: u64 },
    /// The leader is cut off; so is the next one, while all others end and start again.
    Strike { span: u64 },
    /// The machine will be taken.
    Notice { victim: Victim, ahead: u64 },
}

/// A group and its run.
#[derive(Debug, Clone)]
pub(super) struct GroupScenario {
    pub(super) seed: u64,
    pub(super) voters: u64,
    pub(super) spares: usize,
    pub(super) is_synced: bool,
    /// Whether a process may end between two steps of a write and forgets what is in memory, as a
    /// server does. Otherwise a write is whole, or not there.
    pub(super) has_steps: bool,
    pub(super) election_ticks: usize,
    pub(super) loss_permille: u32,
    pub(super) duplicate_permille: u32,
    pub(super) late_permille: u32,
    pub(super) delay_micros_max: u64,
    pub(super) late_micros_max: u64,
    pub(super) write_micros_max: u64,
    pub(super) retained_bytes_max: u64,
    pub(super) round_micros: u64,
    pub(super) faults: Vec<(u64, GroupFault)>,
    /// Whether members report how long their machines go on.
    pub(super) has_lives: bool,
    pub(super) run_end: u64,
    /// Most machines of one run.
    pub(super) hosts_max: usize,
}

impl GroupScenario {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed, 0x6701);
        let voters = random.pick(&[3, 3, 5]);
        // Not drawn, nor are the steps below: what all other seeds mean stays as it was.
        let has_lives = seed % LIVES_ONE_OF == 2;
        let mut scenario = Self {
            seed,
            voters,
            spares: random.below(3) as usize,
            is_synced: random.permille(500),
            has_steps: seed % STEPS_ONE_OF == 7,
            election_ticks: random.pick(&[8, 12, 20]),
            loss_permille: random.pick(&[0, 0, 20, 100]),
            duplicate_permille: random.pick(&[0, 0, 20, 100]),
            late_permille: random.pick(&[0, 10, 50, 200]),
            delay_micros_max: random.pick(&[1000, 3000, 10_000]),
            late_micros_max: random.pick(&[30_000, 300_000, 1_500_000]),
            write_micros_max: random.pick(&[200, 5000, 60_000]),
            retained_bytes_max: random.pick(&[4000, 40_000, 1 << 20]),
            round_micros: random.pick(&[5000, 15_000, 50_000]),
            faults: Vec::new(),
            has_lives,
            run_end: RUN_END + if has_lives { LIVES_SETTLE } else { 0 },
            hosts_max: 14,
        };
        // Faults that always come together hide each other's bugs: a subset of the kinds each.
        let kinds = random.next();
        for _ in 0..random.between(2, 12) {
            let at = random.between(500_000, FAULTS_END - 100_000);
            let kind = random.below(8);
            if kinds >> kind & 1 == 1 {
                let fault = scenario.draw(kind, &mut random);
                scenario.faults.push((at, fault));
            }
        }
        scenario
    }

    fn draw(&self, kind: u64, random: &mut Random) -> GroupFault {
        let victim = match random.permille(400) {
            true => Victim::Leader,
            false => Victim::Any(random.next()),
        };
        let span = random.pick(&[50_000, 300_000, 900_000, 2_500_000]);
        let span = random.between(span / 4, span);
        match kind {
            0 => GroupFault::Kill { victim, down: span },
            1 => GroupFault::Crash { victim, down: span, kept: random.next() },
            2 => GroupFault::Pause { victim, span },
            3 => {
                let is_one_way = random.permille(300);
                GroupFault::Partition { sides: random.next(), is_one_way, span }
            }
            4 => GroupFault::Isolate { victim, span },
            5 => GroupFault::Transfer { to: random.next(), cut: random.pick(&[0, 0, span]) },
            6 => GroupFault::Strike { span: random.between(500_000, 2_500_000) },
            _ => GroupFault::Notice { victim, ahead: random.between(30_000, 3_000_000) },
        }
    }
}
