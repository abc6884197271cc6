//! What a group of names is to its callers: the sequential specification.

use sanderling_protocol::ObjectId;

/// Names of one group: the fewest among which a rename can have a source, a target, and a
/// bystander.
pub(crate) const NAMES: usize = 3;

/// What a caller requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Call {
    /// A file with this tag, once it is sealed.
    Put {
        at: u8,
        tag: u16,
        is_new: bool,
        condition: Option<Condition>,
    },
    /// A directory, unless there is one.
    MakeDirectory {
        at: u8,
    },
    Rename {
        from: u8,
        to: u8,
        replace: bool,
    },
    /// Whatever is there, or that object and no other.
    Delete {
        at: u8,
        expected: Option<ObjectId>,
    },
    /// Marks that object and no other.
    Mark {
        at: u8,
        expected: ObjectId,
        mark: u16,
    },
    /// What is there.
    Read {
        at: u8,
    },
    /// What is at all names: at one moment, unless it is answered in slices.
    List,
}

/// What must be under the name that a file takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    Absent,
    Is(ObjectId),
}

/// What a caller was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OperationOutcome {
    /// It was done, to or with this object.
    Done(Option<ObjectId>),
    Saw([Option<Observation>; NAMES]),
    Refused(ChangeFailure),
    /// The caller gave up: it happened, or it will, or it never does.
    Unknown,
}

/// What was seen at a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Observation {
    pub(crate) object: ObjectId,
    /// 0 of a directory.
    pub(crate) tag: u16,
    pub(crate) mark: u16,
}

/// Why something was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeFailure {
    NotFound,
    Exists,
    Changed,
    IsADirectory,
    /// It has nothing to do with what is at the name.
    Other,
}

/// What is at a name. The object is 0 as long as no caller has seen it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NameEntry {
    object: ObjectId,
    tag: u16,
    mark: u16,
}

/// What is at all names of a group.
pub(super) type GroupState = [Option<NameEntry>; NAMES];

const UNKNOWN: ObjectId = ObjectId(0);

impl NameEntry {
    const fn is_directory(&self) -> bool {
        self.tag == 0
    }

    fn is(&self, object: ObjectId) -> bool {
        self.object == UNKNOWN || self.object == object
    }

    fn was_seen_as(&self, seen: &Observation) -> bool {
        self.is(seen.object) && (self.tag, self.mark) == (seen.tag, seen.mark)
    }
}

pub(super) const fn is_change(call: &Call) -> bool {
    !matches!(call, Call::Read { .. } | Call::List)
}

/// Returns the state after an operation; `None` if it cannot have had this outcome here. One
/// without an outcome is done if it can be. `known` is the object that it makes, if any caller has
/// seen it.
pub(super) fn step(
    before: &GroupState,
    call: &Call,
    outcome: &OperationOutcome,
    known: Option<ObjectId>,
) -> Option<GroupState> {
    if let OperationOutcome::Refused(why) = outcome {
        return may_refuse(before, call, *why).then_some(*before);
    }
    let mut state = *before;
    match (call, outcome) {
        (Call::Read { at }, OperationOutcome::Saw(seen)) => {
            let at = usize::from(*at);
            return is_seen(before[at].as_ref(), seen[at].as_ref()).then_some(state);
        }
        (Call::List, OperationOutcome::Saw(seen)) => {
            let mut pairs = before.iter().zip(seen);
            let all = pairs.all(|(entry, seen)| is_seen(entry.as_ref(), seen.as_ref()));
            return all.then_some(state);
        }
        (Call::Read { .. } | Call::List, _) | (_, OperationOutcome::Saw(_)) => return None,
        (Call::Put { at, tag, is_new, condition }, _) => {
            let there = &mut state[usize::from(*at)];
            if !may_put(there.as_ref(), *is_new, *condition) {
                return None;
            }
            *there = Some(NameEntry { object: known.unwrap_or(UNKNOWN), tag: *tag, mark: 0 });
        }
        (Call::MakeDirectory { at }, outcome) => {
            let made = if let OperationOutcome::Done(made) = outcome { *made } else { None };
            let there = &mut state[usize::from(*at)];
            match there {
                Some(entry) if !entry.is_directory() => return None,
                Some(entry) => return made.is_none_or(|made| entry.is(made)).then_some(state),
                None => {
                    let object = made.unwrap_or(UNKNOWN);
                    *there = Some(NameEntry { object, tag: 0, mark: 0 });
                }
            }
        }
        (Call::Rename { from, to, replace }, _) => {
            let moved = state[usize::from(*from)].take()?;
            let there = &mut state[usize::from(*to)];
            if let Some(there) = there
                && (!replace || there.is_directory() || moved.is_directory())
            {
                return None;
            }
            *there = Some(moved);
        }
        (Call::Delete { at, expected }, _) => {
            let gone = state[usize::from(*at)].take()?;
            if expected.is_some_and(|expected| !gone.is(expected)) {
                return None;
            }
        }
        (Call::Mark { at, expected, mark }, _) => {
            let there = state[usize::from(*at)].as_mut()?;
            if there.is_directory() || !there.is(*expected) {
                return None;
            }
            there.mark = *mark;
        }
    }
    Some(state)
}

fn may_put(there: Option<&NameEntry>, is_new: bool, condition: Option<Condition>) -> bool {
    let holds = match condition {
        None => true,
        Some(Condition::Absent) => there.is_none(),
        Some(Condition::Is(object)) => there.is_some_and(|entry| entry.is(object)),
    };
    holds && there.is_none_or(|entry| !is_new && !entry.is_directory())
}

fn is_seen(entry: Option<&NameEntry>, seen: Option<&Observation>) -> bool {
    match (entry, seen) {
        (None, None) => true,
        (Some(entry), Some(seen)) => entry.was_seen_as(seen),
        _ => false,
    }
}

/// Returns whether what is at the names is a reason to refuse a call so.
fn may_refuse(state: &GroupState, call: &Call, why: ChangeFailure) -> bool {
    let there = |at: &u8| state[usize::from(*at)].as_ref();
    let is_directory = |at: &u8| there(at).is_some_and(NameEntry::is_directory);
    let is_not = |at: &u8, object: ObjectId| {
        there(at).is_none_or(|entry| entry.object == UNKNOWN || entry.object != object)
    };
    match (call, why) {
        (_, ChangeFailure::Other) => true,
        (Call::Put { at, is_new, condition, .. }, ChangeFailure::Exists) => {
            there(at).is_some() && (*is_new || *condition == Some(Condition::Absent))
        }
        (Call::Put { at, condition: Some(Condition::Is(object)), .. }, ChangeFailure::Changed) => {
            is_not(at, *object)
        }
        (Call::Put { at, .. } | Call::Mark { at, .. }, ChangeFailure::IsADirectory) => {
            is_directory(at)
        }
        (Call::MakeDirectory { at }, ChangeFailure::Exists) => {
            there(at).is_some() && !is_directory(at)
        }
        (Call::Rename { from, .. }, ChangeFailure::NotFound) => there(from).is_none(),
        (Call::Rename { from, to, replace }, ChangeFailure::Exists) => {
            let is_kept = !replace || is_directory(from) || is_directory(to);
            there(from).is_some() && there(to).is_some() && is_kept
        }
        (Call::Delete { at, .. } | Call::Mark { at, .. }, ChangeFailure::NotFound) => {
            there(at).is_none()
        }
        (Call::Delete { at, expected: Some(object) }, ChangeFailure::Changed) => {
            there(at).is_some() && is_not(at, *object)
        }
        (Call::Mark { at, expected, .. }, ChangeFailure::Changed) => {
            there(at).is_some() && is_not(at, *expected)
        }
        _ => false,
    }
}
