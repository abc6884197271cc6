//! Which tasks of a bag an agent looks at again: each look at a lock is a request.

use std::collections::BTreeMap;

use sanderling_protocol::Millis;

use super::bag::BagState;

/// Pause between two rounds of an agent. Each round lists the records of ended tasks and reads the
/// progress of the others: short enough that a task which is free starts soon, long enough that a
/// backend gets two such lists per second and agent at most.
pub const BAG_ROUND: Millis = Millis(500);

/// Locks that an agent looks at in one round, at most: a round stays short in a large bag. At 10 ms
/// for a request of a bucket, a third of a second of [`BAG_ROUND`]. Chosen, not measured.
pub const LOOKS_PER_ROUND: usize = 32;

/// How long a look holds in a small bag: four rounds ([`BAG_ROUND`]). A task that another agent
/// leaves is found free that much later at most, and its lock costs one request in four rounds.
const HOLDS: Millis = Millis(2000);

/// By so many tasks that were looked at, a look holds once more as long. In [`HOLDS`] an agent
/// looks at 128 locks, so it looks at all of them before the first look has ended.
const HOLDS_PER: u64 = 16;

/// The record of what an agent saw of the tasks that others may run. Times are the agent's own,
/// from its start.
#[derive(Debug, Clone, Default)]
pub struct BagLooks {
    looks: BTreeMap<u32, (BagState, Millis)>,
}

impl BagLooks {
    /// Notes the state of a task that a look at its lock has shown at `now`.
    pub fn note(&mut self, task: u32, state: BagState, now: Millis) {
        self.looks.insert(task, (state, now));
    }

    /// Returns what a task is taken for: what the last look showed, or free if that was too long
    /// ago. In a large bag a look holds longer, so that all tasks get one in the end.
    #[must_use]
    pub fn state(&self, task: u32, now: Millis) -> BagState {
        let holds = Millis(HOLDS.0 * (1 + self.looks.len() as u64 / HOLDS_PER));
        match self.looks.get(&task) {
            Some((state, at)) if now.0.saturating_sub(at.0) < holds.0 => *state,
            _ => BagState::Free,
        }
    }

    /// Forgets the looks at all tasks for which `needs` returns false.
    pub fn retain(&mut self, mut needs: impl FnMut(u32) -> bool) {
        self.looks.retain(|task, _| needs(*task));
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::Instant;

    use super::*;
    use crate::checkpoint::{BagAgent, BagTask, Market, next_task};

    /// Plays the rounds of an agent in a bag whose tasks others have. Returns by task when it was
    /// looked at.
    fn rounds(tasks: u32, rounds: u64) -> BTreeMap<u32, Vec<u64>> {
        let agent = BagAgent { market: Market::Spot, free_bytes: 1, margin: Millis(60_000) };
        let (mut looks, mut looked) = (BagLooks::default(), BTreeMap::<u32, Vec<u64>>::new());
        for round in 0..rounds {
            let now = Millis(round * BAG_ROUND.0);
            for _ in 0..LOOKS_PER_ROUND {
                let seen = |number: u32| BagTask {
                    state: looks.state(number, now),
                    memory_bytes: 1,
                    // The last tasks are urgent after some time, the first ones never.
                    deadline: Instant(1_000_000 * (100_000 - 190 * u64::from(number))),
                    left: Millis(10_000),
                };
                let seen: Vec<BagTask> = (0..tasks).map(seen).collect();
                let Some(at) = next_task(Instant(now.0 * 1000), &agent, &seen) else { break };
                looked.entry(at as u32).or_default().push(round);
                looks.note(at as u32, BagState::Running, now);
            }
        }
        looked
    }

    #[test]
    fn every_task_is_looked_at_again_and_again_however_large_the_bag() {
        for tasks in [1, 15, 16, 40, 500] {
            let holds = 2 * (1 + u64::from(tasks) / 16);
            // Rounds until a look has ended, and all others have had theirs.
            let pause_max = 2 * holds + u64::from(tasks) / LOOKS_PER_ROUND as u64 + 2;
            let count = 6 * pause_max;
            let looked = rounds(tasks, count);
            assert_eq!(looked.len(), tasks as usize, "{tasks}");
            for (task, mut at) in looked {
                at.push(count);
                assert!(at[0] <= pause_max, "{task} of {tasks}: {at:?}");
                let pauses = at.windows(2).map(|pair| pair[1] - pair[0]);
                let longest = pauses.max().unwrap_or_default();
                assert!(longest <= pause_max + 1, "{task} of {tasks}: {at:?}");
            }
        }
    }

    #[test]
    fn look_holds_for_a_time_and_can_be_forgotten() {
        let mut looks = BagLooks::default();
        assert_eq!(looks.state(1, Millis(0)), BagState::Free);
        looks.note(1, BagState::Running, Millis(1000));
        assert_eq!(looks.state(1, Millis(2999)), BagState::Running);
        assert_eq!(looks.state(1, Millis(3000)), BagState::Free);
        (2..17).for_each(|task| looks.note(task, BagState::Done, Millis(1000)));
        assert_eq!(looks.state(1, Millis(4999)), BagState::Running);
        looks.retain(|task| task != 1);
        assert_eq!(looks.state(1, Millis(1000)), BagState::Free);
    }
}
