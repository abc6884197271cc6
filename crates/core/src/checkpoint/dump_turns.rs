//! Turns of the last dumps at a notice: which task of a process dumps next, how many do at once,
//! and for which it is too late.
//!
//! At a notice all tasks of an agent need a last dump, and what these share, such as the way to the
//! backend, may be the bottleneck. All at once, none of them might end in time. One after another,
//! dumps that share nothing would take too long together. So the first dump is alone. Each one that
//! ends within its forecast lets one more begin beside the others, and one that does not halves
//! their number. A dump begins beside others only if all of them would end in time also one after
//! another: then all of them do, whatever they share.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use sanderling_protocol::{Instant, Millis};

use super::forecast::{NoticeChoice, with_margin};

/// How long the first turn waits for the other tasks of its process. A signal comes to all of them
/// at once, and the one with most to lose is first. Chosen, not measured.
const GATHER: Millis = Millis(100);

/// A dump that takes this many times its forecast with the margin holds no other one up any more:
/// it may hang. Chosen, not measured.
const HANGS_AFTER: u64 = 2;

/// But it holds others up for this part of the time that is left when it begins, at least: a
/// backend that many machines use at once may be far slower than forecast. Chosen, not measured.
const HELD_UP_PART: u64 = 3;

/// A last dump that waits for its turn at a notice. The one that saves most work for each second
/// goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastDump {
    /// How long it takes from its turn on, if it is alone.
    pub takes: Millis,
    /// Since when its task has worked without a checkpoint.
    pub unsaved_since: Instant,
    /// When its machine is taken.
    pub deadline: Instant,
}

/// Whether the last dump of a task begins now, as [`DumpTurns::look`] decides. Several tasks of a
/// process share the time that a notice leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DumpTurn {
    /// It has its turn, until [`DumpTurns::end`].
    Begin,
    /// Others are first. It looks again when anything has begun or ended, and then at the latest.
    Wait {
        /// When something else changes.
        until: Instant,
    },
    /// It would not end in time any more: the last generation counts.
    KeepLast,
}

/// The turns of the tasks of one process at a notice: which last dump is next, so that most work is
/// saved before the machine is taken. Each task that waits calls [`Self::look`] when another one
/// has begun or ended.
#[derive(Debug, Clone, Default)]
pub struct DumpTurns {
    waiting: BTreeMap<u64, LastDump>,
    under_way: BTreeMap<u64, DumpUnderWay>,
    /// How many dumps may be under way beside one.
    beside: usize,
    /// When the first turn begins.
    from: Instant,
}

/// A dump that has its turn.
#[derive(Debug, Clone, Copy)]
struct DumpUnderWay {
    takes: Millis,
    begun: Instant,
    deadline: Instant,
}

impl LastDump {
    fn fits(&self, now: Instant) -> bool {
        NoticeChoice::of(self.takes, now.until(self.deadline)) == NoticeChoice::Dump
    }

    /// Returns from when on it does not fit any more.
    fn late_from(&self) -> Instant {
        self.deadline + Millis(1) - Millis(with_margin(self.takes))
    }

    /// Compares the work that each saves in a second of its dump.
    fn saves(&self, other: &Self, now: Instant) -> Ordering {
        let weighed = |saved: &Self, beside: &Self| {
            u128::from(now.since(saved.unsaved_since).0) * u128::from(beside.takes.0.max(1))
        };
        weighed(self, other).cmp(&weighed(other, self))
    }
}

impl DumpUnderWay {
    fn holds_up_until(&self) -> Instant {
        let hangs = Millis(with_margin(self.takes).saturating_mul(HANGS_AFTER));
        let part = Millis(self.begun.until(self.deadline).0 / HELD_UP_PART);
        self.begun + hangs.max(part)
    }
}

impl DumpTurns {
    /// Adds a last dump to those that wait, in a process that runs so many tasks. That of a single
    /// task has its turn at once.
    pub fn wait(&mut self, id: u64, dump: LastDump, now: Instant, tasks: u32) {
        if self.is_idle() {
            self.from = now + if tasks > 1 { GATHER } else { Millis(0) };
            if tasks <= 1 {
                return self.hold(id, dump.takes, dump.deadline, now);
            }
        }
        self.waiting.insert(id, dump);
    }

    /// Gives a dump its turn that is under way already and takes so much longer.
    pub fn hold(&mut self, id: u64, takes: Millis, deadline: Instant, now: Instant) {
        self.waiting.remove(&id);
        self.under_way.insert(id, DumpUnderWay { takes, begun: now, deadline });
    }

    /// Decides about a dump that waits. It waits no more after [`DumpTurn::KeepLast`].
    /// `takes_memory` takes the memory that it needs beside others, and returns whether there was
    /// enough. One that holds none while it waits keeps no other one from its turn.
    pub fn look(&mut self, id: u64, now: Instant, takes_memory: impl FnOnce() -> bool) -> DumpTurn {
        let Some(dump) = self.waiting.get(&id).copied() else { return DumpTurn::Begin };
        if !dump.fits(now) {
            self.end(id, false, now);
            return DumpTurn::KeepLast;
        }
        let is_first = now >= self.from && self.first(now) == Some(id);
        if is_first && self.has_room(&dump, now, takes_memory) {
            self.hold(id, dump.takes, dump.deadline, now);
            return DumpTurn::Begin;
        }
        let held_up = self.under_way.values().map(DumpUnderWay::holds_up_until);
        let times = held_up.chain([self.from, dump.late_from()]).filter(|time| *time > now);
        DumpTurn::Wait { until: times.min().unwrap_or_else(|| dump.late_from()) }
    }

    /// Notes that a dump has ended or was given up, and whether its generation is stored.
    pub fn end(&mut self, id: u64, is_stored: bool, now: Instant) {
        self.waiting.remove(&id);
        if let Some(dump) = self.under_way.remove(&id) {
            let is_slow = now.since(dump.begun).0 > with_margin(dump.takes);
            self.beside = match (is_slow, is_stored) {
                (true, _) => self.beside / 2,
                (false, true) => self.beside + 1,
                // Nothing is known: a dump may fail for many reasons.
                (false, false) => self.beside,
            };
        }
        if self.is_idle() {
            self.beside = 0;
        }
    }

    /// Returns whether a dump that is none of a notice goes on: while last dumps wait or are under
    /// way, the others make room, unless one has a turn itself.
    #[must_use]
    pub fn goes_on(&self, id: u64) -> bool {
        self.is_idle() || self.under_way.contains_key(&id)
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.under_way.is_empty()
    }

    /// Returns the dump that saves most work in each second, among those that end in time.
    fn first(&self, now: Instant) -> Option<u64> {
        let fitting = self.waiting.iter().filter(|(_, dump)| dump.fits(now));
        // Of two that save as much, the first one that came.
        let best = fitting.rev().max_by(|(_, one), (_, other)| one.saves(other, now));
        best.map(|(id, _)| *id)
    }

    /// Returns whether a dump may begin beside those that are under way. One that is alone needs no
    /// more memory than there is: the others may hang, and end too late.
    fn has_room(&self, dump: &LastDump, now: Instant, takes_memory: impl FnOnce() -> bool) -> bool {
        let held_up = self.under_way.values().filter(|it| now < it.holds_up_until());
        let (mut count, mut takes, mut deadline) = (0, dump.takes.0, dump.deadline);
        for other in held_up {
            count += 1;
            takes = takes.saturating_add(other.takes.0);
            deadline = deadline.min(other.deadline);
        }
        let together = NoticeChoice::of(Millis(takes), now.until(deadline));
        let is_in_time = count <= self.beside && together == NoticeChoice::Dump;
        is_in_time && (count == 0 || takes_memory())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTICE: Millis = Millis(30_000);

    fn at(millis: u64) -> Instant {
        // Work began long before.
        Instant(1_000_000_000) + Millis(millis)
    }

    fn dump(takes: u64, unsaved: u64) -> LastDump {
        LastDump {
            takes: Millis(takes),
            unsaved_since: at(0) - Millis(unsaved),
            deadline: at(0) + NOTICE,
        }
    }

    /// Plays a notice. `work` is how long each dump takes alone; with a bottleneck the dumps that
    /// are under way share it evenly. Returns which ended in time, in the order of their ends.
    fn played(dumps: &[LastDump], work: &[u64], is_shared: bool) -> Vec<usize> {
        let mut turns = DumpTurns::default();
        for (id, dump) in dumps.iter().enumerate() {
            turns.wait(id as u64, *dump, at(0), dumps.len() as u32);
        }
        let (mut rest, mut ended) = (work.iter().map(|it| *it as f64).collect::<Vec<_>>(), vec![]);
        let (mut under_way, mut given_up) = (Vec::<usize>::new(), Vec::new());
        for now in (0..=NOTICE.0).step_by(10) {
            loop {
                let before = (under_way.len(), given_up.len());
                for id in 0..dumps.len() {
                    if !turns.waiting.contains_key(&(id as u64)) {
                        continue;
                    }
                    match turns.look(id as u64, at(now), || true) {
                        DumpTurn::Begin => under_way.push(id),
                        DumpTurn::KeepLast => given_up.push(id),
                        DumpTurn::Wait { until } => assert!(until > at(now)),
                    }
                }
                if before == (under_way.len(), given_up.len()) {
                    break;
                }
            }
            let share = if is_shared { under_way.len().max(1) as f64 } else { 1.0 };
            under_way.iter().for_each(|id| rest[*id] -= 10.0 / share);
            for id in under_way.extract_if(.., |id| rest[*id] <= 1e-6) {
                turns.end(id as u64, true, at(now + 10));
                ended.push(id);
            }
        }
        ended
    }

    #[test]
    fn dumps_that_share_a_bottleneck_are_complete_as_far_as_they_fit_one_after_another() {
        // All at once, each of them would take 48 s.
        let saved = played(&[dump(6000, 60_000); 8], &[6000; 8], true);
        assert_eq!(saved.len(), 4, "{saved:?}");
    }

    #[test]
    fn dumps_that_share_nothing_are_not_held_up() {
        // One after another, fewer than a hundred end in time, and four of the slow ones.
        let saved = played(&[dump(300, 60_000); 150], &[300; 150], false);
        assert_eq!(saved.len(), 150);
        let saved = played(&[dump(6000, 60_000); 8], &[6000; 8], false);
        assert!(saved.len() >= 6, "{saved:?}");
    }

    #[test]
    fn some_are_complete_also_if_all_take_several_times_as_long_as_forecast() {
        let saved = played(&[dump(1000, 60_000); 8], &[6000; 8], true);
        assert!(saved.len() >= 3, "{saved:?}");
    }

    #[test]
    fn task_that_loses_most_for_each_second_of_its_dump_is_first() {
        let dumps = [dump(6000, 60_000), dump(6000, 90_000), dump(1000, 30_000), dump(1000, 1000)];
        assert_eq!(played(&dumps, &[6000, 6000, 1000, 1000], true)[..3], [2, 1, 0]);
        let mut turns = DumpTurns::default();
        for (id, dump) in dumps.into_iter().enumerate() {
            turns.wait(id as u64, dump, at(0), 4);
        }
        let others_come = DumpTurn::Wait { until: at(100) };
        assert_eq!(turns.look(0, at(0), || true), others_come);
        assert_eq!(turns.look(2, at(100), || true), DumpTurn::Begin);
        // It holds others up for a third of the notice.
        assert_eq!(turns.look(1, at(100), || true), DumpTurn::Wait { until: at(100 + 9966) });
    }

    #[test]
    fn dump_that_hangs_costs_the_others_a_part_of_the_time_alone() {
        let saved = played(&[dump(2000, 60_000); 4], &[u64::MAX, 2000, 2000, 2000], false);
        assert_eq!(saved.len(), 3, "{saved:?}");
    }

    #[test]
    fn dump_that_does_not_fit_any_more_at_its_turn_is_not_begun() {
        let mut turns = DumpTurns::default();
        turns.wait(1, dump(20_000, 2000), at(0), 2);
        turns.wait(2, dump(20_000, 1000), at(0), 2);
        assert_eq!(turns.look(1, at(100), || true), DumpTurn::Begin);
        // 30 s less 25 s: from then on it is too late, whatever the other one does.
        assert_eq!(turns.look(2, at(100), || true), DumpTurn::Wait { until: at(5001) });
        assert_eq!(turns.look(2, at(5000), || true), DumpTurn::Wait { until: at(5001) });
        assert_eq!(turns.look(2, at(5001), || true), DumpTurn::KeepLast);
        assert!(turns.waiting.is_empty());
    }

    #[test]
    fn dump_begins_beside_another_one_with_memory_and_alone_without() {
        let mut turns = DumpTurns::default();
        for id in 1..=3 {
            turns.wait(id, dump(1000, 60_000), at(0), 3);
        }
        assert_eq!(turns.look(1, at(100), || false), DumpTurn::Begin, "it is alone");
        // One that was stored in time lets another one begin beside the next.
        turns.end(1, true, at(200));
        assert_eq!(turns.look(2, at(200), || false), DumpTurn::Begin, "it is alone, too");
        assert!(matches!(turns.look(3, at(200), || false), DumpTurn::Wait { .. }));
        assert_eq!(turns.look(3, at(200), || true), DumpTurn::Begin);
    }

    #[test]
    fn single_task_has_its_turn_at_once() {
        let mut turns = DumpTurns::default();
        turns.wait(1, dump(29_000, 0), at(0), 1);
        assert_eq!(turns.look(1, at(0), || true), DumpTurn::Begin);
        assert!(!turns.goes_on(2) && turns.goes_on(1));
        turns.end(1, true, at(29_000));
        assert!(turns.goes_on(2));
    }

    #[test]
    fn dump_that_was_under_way_at_the_notice_is_first() {
        let mut turns = DumpTurns::default();
        turns.hold(1, Millis(2000), at(30_000), at(0));
        turns.wait(2, dump(1000, 60_000), at(0), 2);
        assert!(matches!(turns.look(2, at(500), || true), DumpTurn::Wait { .. }));
        turns.end(1, true, at(2000));
        assert_eq!(turns.look(2, at(2000), || true), DumpTurn::Begin);
        turns.end(2, false, at(2001));
        assert!(turns.goes_on(3));
    }
}
