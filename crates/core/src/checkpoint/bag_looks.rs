//! Which tasks of a bag an agent looks at again: each look at a lock is a request.

use std::collections::BTreeMap;

use sanderling_protocol::Millis;

use super::bag::BagState;

/// Pause between two rounds of an agent. Each round lists the records of ended tasks, and reads the
/// progress of the others if one may start: short enough that a task which is free starts soon,
/// long enough that a backend gets the requests of two rounds per second and agent at most.
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

/// How long a spot agent leaves an urgent task that is free to an idle agent on demand, at least.
/// That one looks at the task again within four rounds in a small bag, and needs a few seconds to
/// take its lock. It may be unable to run the task. Chosen, not measured.
pub const LEAVES_URGENT: Millis = Millis(10_000);

/// How long an agent leaves a task that its machine could not restore, the first time. Each further
/// time is twice as long, up to [`REFUSED_MAX`]: another agent may have stored a generation that
/// fits. Chosen, not measured.
const REFUSED_FIRST: Millis = Millis(10_000);

/// The longest of these times.
const REFUSED_MAX: Millis = Millis(320_000);

/// The record of what an agent saw of the tasks that others may run. Times are the agent's own,
/// from its start.
#[derive(Debug, Clone, Default)]
pub struct BagLooks {
    looks: BTreeMap<u32, (BagState, Millis)>,
    /// Since when urgent tasks are left to agents on demand.
    urgent: BTreeMap<u32, Millis>,
    /// For how long tasks are left that could not be restored here, and until when.
    refused: BTreeMap<u32, (Millis, Millis)>,
}

impl BagLooks {
    /// Notes the state of a task that a look at its lock has shown at `now`.
    pub fn note(&mut self, task: u32, state: BagState, now: Millis) {
        if state != BagState::Free {
            self.urgent.remove(&task);
        }
        self.looks.insert(task, (state, now));
    }

    /// Returns whether a spot agent leaves an urgent task that it has found free at `now`, while an
    /// agent on demand is idle. It does so until the task has been free for [`LEAVES_URGENT`].
    pub fn leaves_urgent(&mut self, task: u32, now: Millis) -> bool {
        let since = *self.urgent.entry(task).or_insert(now);
        let leaves = now.0.saturating_sub(since.0) < LEAVES_URGENT.0;
        if leaves {
            self.looks.insert(task, (BagState::Running, now));
        }
        leaves
    }

    /// Notes that this machine could not restore a task: it is left for a while.
    pub fn refused(&mut self, task: u32, now: Millis) {
        let before = self.refused.get(&task).map(|(leaves, _)| Millis(leaves.0 * 2));
        let leaves = before.unwrap_or(REFUSED_FIRST).min(REFUSED_MAX);
        self.refused.insert(task, (leaves, Millis(now.0.saturating_add(leaves.0))));
    }

    /// Returns what a task is taken for: what the last look showed, or free if that was too long
    /// ago. In a large bag a look holds longer, so that all tasks get one in the end.
    #[must_use]
    pub fn state(&self, task: u32, now: Millis) -> BagState {
        if self.refused.get(&task).is_some_and(|(_, until)| now < *until) {
            return BagState::Running;
        }
        let holds = Millis(HOLDS.0 * (1 + self.looks.len() as u64 / HOLDS_PER));
        match self.looks.get(&task) {
            Some((state, at)) if now.0.saturating_sub(at.0) < holds.0 => *state,
            _ => BagState::Free,
        }
    }

    /// Forgets the looks at all tasks for which `needs` returns false.
    pub fn retain(&mut self, mut needs: impl FnMut(u32) -> bool) {
        self.looks.retain(|task, _| needs(*task));
        self.urgent.retain(|task, _| needs(*task));
        self.refused.retain(|task, _| needs(*task));
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::Instant;

    use super::*;
    use crate::checkpoint::{AgentOffer, BagTask, Market, next_task};

    /// Plays the rounds of an agent in a bag whose tasks others have. Returns by task when it was
    /// looked at.
    fn rounds(tasks: u32, rounds: u64) -> BTreeMap<u32, Vec<u64>> {
        let (market, margin) = (Market::Spot, Millis(60_000));
        let agent = AgentOffer { market, slots: 1, free_bytes: 1, margin, is_noticed: false };
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
    fn urgent_task_is_left_until_it_has_been_free_for_a_while() {
        let mut looks = BagLooks::default();
        looks.note(1, BagState::Free, Millis(1000));
        assert!(looks.leaves_urgent(1, Millis(1000)));
        assert_eq!(looks.state(1, Millis(1000)), BagState::Running, "it is not looked at at once");
        looks.note(1, BagState::Free, Millis(10_999));
        assert!(looks.leaves_urgent(1, Millis(10_999)));
        assert!(!looks.leaves_urgent(1, Millis(11_000)));
        // An agent has it meanwhile: its time begins anew.
        looks.note(1, BagState::Running, Millis(12_000));
        assert!(looks.leaves_urgent(1, Millis(20_000)));
        looks.retain(|_| false);
        assert!(looks.leaves_urgent(1, Millis(90_000)));
    }

    #[test]
    fn task_that_this_machine_cannot_restore_is_tried_less_and_less_often() {
        let (mut looks, mut tries) = (BagLooks::default(), Vec::new());
        for second in 0..3600 {
            let now = Millis(second * 1000);
            if looks.state(1, now) == BagState::Free {
                tries.push(second);
                looks.note(1, BagState::Running, now);
                looks.refused(1, now);
            }
        }
        assert_eq!(tries[..6], [0, 10, 30, 70, 150, 310]);
        assert!(tries.windows(2).all(|pair| pair[1] - pair[0] <= 320), "{tries:?}");
        looks.retain(|_| false);
        assert_eq!(looks.state(1, Millis(3_600_000)), BagState::Free);
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
