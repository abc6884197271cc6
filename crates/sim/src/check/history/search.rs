//! The search for an order.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_protocol::ObjectId;

use super::model::{Call, GroupState, NAMES, OperationOutcome, step};
use super::{NEVER, Operation};

/// Most operations of one group: sets of them are the bits of one number.
pub(crate) const OPERATIONS_MAX: usize = 128;

/// Most states that are looked at. Histories of a few callers need some hundreds. Beyond it the
/// history counts as not decided: it bounds the time of one, some milliseconds. Chosen, not
/// measured.
const STATES_MAX: usize = 20_000;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SearchResult {
    Linearizable,
    /// There is no such order; what stands in the way.
    Not(String),
    /// It was given up.
    Unjudged,
}

/// A set of operations.
type Set = u128;

struct Search<'a> {
    operations: &'a [&'a Operation],
    /// The object that each operation makes, if a caller has seen it.
    makes: Vec<Option<ObjectId>>,
    /// Those that were answered.
    answered: Set,
    /// Of each operation that was given up, those that began when it could happen no longer.
    too_late: Vec<Set>,
    /// What was looked at: the operations that are done, and what they left.
    seen: BTreeSet<(Set, GroupState)>,
    /// The most answered operations that were ever put into an order.
    deepest: Set,
}

/// Searches for one order that explains the operations of one group.
pub(super) fn judge(operations: &[&Operation]) -> SearchResult {
    if operations.len() > OPERATIONS_MAX {
        return SearchResult::Unjudged;
    }
    let objects = match objects_of(operations) {
        Ok(objects) => objects,
        Err(why) => return SearchResult::Not(why),
    };
    let made = |one: &&Operation| match one.call {
        Call::Put { tag, .. } => objects.get(&tag).copied(),
        _ => None,
    };
    let late = |one: &&Operation| {
        let last = if one.is_answered() { NEVER } else { one.ended };
        set_of(operations, |other| other.begun > last)
    };
    let mut search = Search {
        operations,
        makes: operations.iter().map(made).collect(),
        answered: set_of(operations, Operation::is_answered),
        too_late: operations.iter().map(late).collect(),
        seen: BTreeSet::new(),
        deepest: 0,
    };
    if search.explains(0, [None; NAMES]) {
        return SearchResult::Linearizable;
    }
    if search.seen.len() > STATES_MAX {
        return SearchResult::Unjudged;
    }
    SearchResult::Not(search.what_stands_in_the_way())
}

const fn has(set: Set, bit: usize) -> bool {
    set >> bit & 1 == 1
}

fn set_of(operations: &[&Operation], is_in: impl Fn(&Operation) -> bool) -> Set {
    let bits = operations.iter().enumerate().filter(|(_, one)| is_in(one));
    bits.fold(0, |set, (bit, _)| set | 1 << bit)
}

/// Returns the object of each tag that a caller saw or got. One object has one tag.
fn objects_of(operations: &[&Operation]) -> Result<BTreeMap<u16, ObjectId>, String> {
    let mut objects = BTreeMap::new();
    let mut tags = BTreeMap::new();
    for one in operations {
        let seen: Vec<(u16, ObjectId)> = match (&one.call, &one.outcome) {
            (Call::Put { tag, .. }, Some(OperationOutcome::Done(Some(object)))) => {
                vec![(*tag, *object)]
            }
            (_, Some(OperationOutcome::Saw(seen))) => {
                let files = seen.iter().flatten().filter(|seen| seen.tag != 0);
                files.map(|seen| (seen.tag, seen.object)).collect()
            }
            _ => Vec::new(),
        };
        for (tag, object) in seen {
            let (was_object, was_tag) =
                (*objects.entry(tag).or_insert(object), *tags.entry(object).or_insert(tag));
            if (was_object, was_tag) != (object, tag) {
                return Err(format!("object {was_object} of tag {was_tag} changed: {one}"));
            }
        }
    }
    Ok(objects)
}

impl Search<'_> {
    /// Returns whether the operations that are not done can be put behind those that are.
    fn explains(&mut self, mut done: Set, state: GroupState) -> bool {
        // What changes nothing comes as early as it can: it is in no other's way there.
        while let Some(bit) = self.next_without_effect(done, &state) {
            done |= 1 << bit;
        }
        if (done & self.answered).count_ones() >= self.deepest.count_ones() {
            self.deepest = done & self.answered;
        }
        if done & self.answered == self.answered {
            return true;
        }
        if self.seen.len() > STATES_MAX || !self.seen.insert((done, state)) {
            return false;
        }
        let next = self.next(done);
        // Those without an answer last: mostly they are not needed.
        for is_answered in [true, false] {
            for bit in 0..self.operations.len() {
                if !has(next, bit) || has(self.answered, bit) != is_answered {
                    continue;
                }
                let Some(after) = self.step(bit, &state) else { continue };
                let is_useless = !is_answered && after == state;
                if !is_useless && self.explains(done | 1 << bit, after) {
                    return true;
                }
            }
        }
        false
    }

    fn step(&self, bit: usize, state: &GroupState) -> Option<GroupState> {
        let one = self.operations[bit];
        let outcome = one.outcome.as_ref().unwrap_or(&OperationOutcome::Unknown);
        step(state, &one.call, outcome, self.makes[bit])
    }

    /// Returns those that may come next: they began before any that is not done was answered, and
    /// may still happen.
    fn next(&self, done: Set) -> Set {
        let open = (0..self.operations.len()).filter(|bit| !has(done, *bit));
        let ends = open.clone().filter(|bit| has(self.answered, *bit));
        let first_end = ends.map(|bit| self.operations[bit].ended).min().unwrap_or(NEVER);
        let may = |bit: &usize| {
            self.operations[*bit].begun < first_end && self.too_late[*bit] & done == 0
        };
        open.filter(may).fold(0, |set, bit| set | 1 << bit)
    }

    /// Returns an answered operation that may come next, changes nothing, and makes none of those
    /// impossible that were given up.
    fn next_without_effect(&self, done: Set, state: &GroupState) -> Option<usize> {
        let next = self.next(done);
        let among = |set: Set| (0..self.operations.len()).filter(move |bit| has(set, *bit));
        let ends_others = among(next & !self.answered).fold(0, |set, bit| set | self.too_late[bit]);
        among(next & self.answered & !ends_others)
            .find(|bit| self.step(*bit, state) == Some(*state))
    }

    /// Returns the answer that the longest order does not explain, and what may stand next to it.
    fn what_stands_in_the_way(&self) -> String {
        let left = |bit: &usize| has(self.answered & !self.deepest, *bit);
        let first = (0..self.operations.len())
            .filter(left)
            .min_by_key(|bit| self.operations[*bit].ended)
            .expect("an order of all would be one");
        let one = self.operations[first];
        let is_near = |other: &&&Operation| {
            other.begun <= one.ended && (other.ended >= one.begun || !other.is_answered())
        };
        let mut before = self.operations.to_vec();
        before.retain(|other| other.is_answered() && other.ended < one.begun);
        before.sort_by_key(|other| other.ended);
        let before: Vec<String> = before.iter().rev().take(4).map(ToString::to_string).collect();
        let near: Vec<String> =
            self.operations.iter().filter(is_near).map(|it| it.to_string()).collect();
        let (near, before) = (near.join("; "), before.join("; "));
        format!("nothing explains {one}; at the same time: {near}; before: {before}")
    }
}
