//! Injected bugs of the world around the drain, each for a checker that has to find it.

use super::*;

/// Seeds that are tried until a checker finds an injected bug.
const SEEDS_MAX: u64 = 20_000;

/// The seed that is tried first. It finds [`InjectedBug::IgnoresNames`], which one seed in ten
/// thousand does.
const RARE: u64 = 11_991;

/// A promise to the drain that its world breaks, to see that the checks find what comes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InjectedBug {
    /// The namenode does not record uploads before they are completed.
    RecordsNothing,
    /// An upload is acknowledged as ended, and is not.
    EndsNothing,
    /// An order is executed later than a datanode may.
    IsTooLate,
    /// The namenode acknowledges that changes were made, and forgets it.
    ForgetsProgress,
    /// The store joins the parts of an object in the wrong order.
    MixesParts,
    /// The namenode's queue lacks removals.
    OverlooksRemovals,
    /// The namenode's queue has the removal of an old name before the new name.
    RemovesFirst,
    /// The store never takes the object of one name.
    RefusesAName,
    /// A datanode acknowledges changes of the store, and makes none.
    MakesNothing,
    /// The namenode counts the bytes wrong that survive a node.
    Miscounts,
    /// A datanode reports that the store lacks an object which is there.
    FindsNothing,
    /// A datanode reads the wrong range of an object back.
    ReadsElsewhere,
    /// No datanode reads anything back.
    ReadsNothingBack,
    /// The namenode takes an object that its store lacks by one name for lost by any other.
    IgnoresNames,
    /// The namenode takes each report for the last one.
    ComparesNothing,
}

/// Makes a world with an injected bug from a seed.
type MadeWorld = fn(u64, Option<InjectedBug>) -> World;

/// Each injected bug, the world that shows it, and what the checker reports that is to find it.
const FOUND: [(InjectedBug, MadeWorld, &str); 15] = [
    (InjectedBug::RecordsNothing, World::new, "which never was"),
    (InjectedBug::EndsNothing, World::new, "which never was"),
    (InjectedBug::IsTooLate, World::new, "which never was"),
    (InjectedBug::ForgetsProgress, World::new, "which never was"),
    (InjectedBug::MixesParts, World::with_blocks, "which never was"),
    (InjectedBug::OverlooksRemovals, World::new, "the queue does not lead to what there is"),
    (InjectedBug::RemovesFirst, World::new, "a change takes names away too early"),
    (InjectedBug::RefusesAName, World::new, "never got to the store"),
    (InjectedBug::MakesNothing, World::new, "the store lacks the last state"),
    (InjectedBug::Miscounts, World::new, "disagree about the bytes that are safe"),
    (InjectedBug::FindsNothing, World::with_blocks, "is lost, and was durable"),
    (InjectedBug::ReadsElsewhere, World::with_blocks, "has other bytes than were written"),
    (InjectedBug::ReadsNothingBack, World::with_blocks, "was not read back"),
    (InjectedBug::IgnoresNames, World::with_renamings, "is lost, and was durable"),
    (InjectedBug::ComparesNothing, World::with_late_order, "which never was"),
];

impl World {
    /// Shows the queue otherwise than it is, if that is the bug.
    pub(super) fn falsify(&self, changes: &mut Vec<DurableChange>) {
        match self.bug {
            Some(InjectedBug::OverlooksRemovals) => {
                changes.retain(|change| change.kind != DurableChangeKind::Remove);
            }
            Some(InjectedBug::RemovesFirst) => {
                for at in 1..changes.len() {
                    let is_put = matches!(changes[at - 1].kind, DurableChangeKind::Put { .. });
                    if is_put && changes[at].kind == DurableChangeKind::Remove {
                        let numbers = (changes[at - 1].number, changes[at].number);
                        changes.swap(at - 1, at);
                        (changes[at - 1].number, changes[at].number) = numbers;
                    }
                }
            }
            _ => {}
        }
    }

    /// Gives the drain the answer to a call. In the world of the rare seed, a node that looks for
    /// an object once more finds it as little as the first one, at once: nothing is drawn for it.
    pub(super) fn give(&mut self, output: &DurableOutput, answer: DurableInput) {
        let is_missed = match &answer {
            DurableInput::Restored { answer: Err(DurableCallError::Refused(refusal)), .. } => {
                matches!(refusal, Refusal::BlockDamaged { .. })
            }
            _ => false,
        };
        self.drain.handle(self.now, answer);
        let DurableOutput::Restore { loss, .. } = output else { return };
        if !is_missed || self.bug != Some(InjectedBug::IgnoresNames) {
            return;
        }
        let found = self.drain.outputs.iter().enumerate().find_map(|(at, next)| match next {
            DurableOutput::Restore { call, loss: it, .. } if it.object == loss.object => {
                Some((at, *call))
            }
            _ => None,
        });
        if let Some((at, call)) = found {
            self.drain.outputs.remove(at);
            let block = loss.blocks[0].block;
            let answer = Err(DurableCallError::Refused(Refusal::BlockDamaged { block }));
            self.drain.handle(self.now, DurableInput::Restored { call, answer });
        }
    }
}

#[test]
fn each_injected_bug_is_found_by_its_checker() {
    for (bug, made, text) in FOUND {
        let is_found = |seed: u64| {
            let mut world = made(seed, Some(bug));
            world.run().is_err_and(|error| error.contains(text))
        };
        let mut seeds = std::iter::once(RARE).chain(0..SEEDS_MAX);
        assert!(seeds.any(is_found), "{bug:?}: no seed has {text:?}");
    }
}
