use sanderling_protocol::ObjectId;

use super::{
    Call, ChangeFailure, Condition, History, NAMES, Observation, OperationOutcome, SearchResult,
};

/// A history in the making: `begin` and `end` as they come.
#[derive(Default)]
struct Making {
    history: History,
    now: u64,
}

const A: u8 = 0;
const B: u8 = 1;

const fn put(at: u8, tag: u16) -> Call {
    Call::Put { at, tag, is_new: false, condition: None }
}

const fn delete(at: u8) -> Call {
    Call::Delete { at, expected: None }
}

const fn done(object: u64) -> OperationOutcome {
    OperationOutcome::Done(Some(ObjectId(object)))
}

/// What a reader saw at one name: the object and tag of a file, or nothing.
fn saw(at: u8, tag: Option<u16>) -> OperationOutcome {
    let seen = |tag: u16| Observation { object: ObjectId(100 + u64::from(tag)), tag, mark: 0 };
    let mut all = [None; NAMES];
    all[usize::from(at)] = tag.map(seen);
    OperationOutcome::Saw(all)
}

impl Making {
    fn begin(&mut self, caller: u8, call: Call) -> usize {
        self.now += 10;
        self.history.begin(self.now, caller, 0, call)
    }

    fn end(&mut self, number: usize, outcome: OperationOutcome) {
        self.now += 10;
        self.history.end(self.now, number, outcome);
    }

    /// An operation that nothing else is beside.
    fn one(&mut self, caller: u8, call: Call, outcome: OperationOutcome) {
        let number = self.begin(caller, call);
        self.end(number, outcome);
    }

    fn read(&mut self, caller: u8, at: u8, tag: Option<u16>) {
        self.one(caller, Call::Read { at }, saw(at, tag));
    }

    fn is_linearizable(&self) -> bool {
        match self.history.judge().1 {
            SearchResult::Linearizable => true,
            SearchResult::Not(_) => false,
            SearchResult::Unjudged => panic!("it is short"),
        }
    }
}

#[test]
fn read_from_before_an_acknowledged_change_is_not_explained() {
    let mut making = Making::default();
    making.one(0, put(A, 1), done(101));
    making.read(1, A, Some(1));
    making.one(0, put(A, 2), done(102));
    assert!(making.is_linearizable());
    making.read(1, A, Some(1));
    assert!(!making.is_linearizable());
}

#[test]
fn read_beside_a_change_sees_either_state_but_none_goes_back() {
    let mut making = Making::default();
    making.one(0, put(A, 1), done(101));
    let writing = making.begin(0, put(A, 2));
    making.read(1, A, Some(1));
    making.read(2, A, Some(2));
    making.end(writing, done(102));
    assert!(making.is_linearizable());
    let mut making = Making::default();
    making.one(0, put(A, 1), done(101));
    let writing = making.begin(0, put(A, 2));
    making.read(1, A, Some(2));
    making.read(2, A, Some(1));
    making.end(writing, done(102));
    assert!(!making.is_linearizable());
}

#[test]
fn change_without_an_answer_happens_once_at_any_time_or_never() {
    for seen in [[None, None, None], [None, None, Some(1)], [Some(1), Some(1), Some(1)]] {
        let mut making = Making::default();
        making.one(0, put(A, 1), OperationOutcome::Unknown);
        seen.into_iter().for_each(|seen| making.read(1, A, seen));
        assert!(making.is_linearizable(), "{seen:?}");
    }
    // It does not come back after another caller has undone it.
    let mut making = Making::default();
    making.one(0, put(A, 1), OperationOutcome::Unknown);
    making.read(1, A, Some(1));
    making.one(1, delete(A), OperationOutcome::Done(None));
    making.read(2, A, Some(1));
    assert!(!making.is_linearizable());
}

#[test]
fn change_that_its_caller_gave_up_does_not_happen_after_its_next_change() {
    let history = |is_late: bool| {
        let mut making = Making::default();
        making.one(0, put(A, 1), OperationOutcome::Unknown);
        if !is_late {
            making.read(1, A, Some(1));
        }
        making.one(0, put(B, 2), done(102));
        making.read(1, A, if is_late { None } else { Some(1) });
        making.read(1, A, Some(1));
        making.is_linearizable()
    };
    assert!(history(false));
    assert!(!history(true));
}

#[test]
fn change_made_twice_between_those_of_others_is_not_explained() {
    let mut making = Making::default();
    let writing = making.begin(0, put(A, 1));
    making.one(1, put(A, 2), done(102));
    making.read(2, A, Some(2));
    making.read(2, A, Some(1));
    making.one(1, put(A, 3), done(103));
    making.end(writing, done(101));
    assert!(making.is_linearizable());
    making.read(2, A, Some(1));
    assert!(!making.is_linearizable());
}

#[test]
fn rename_takes_from_one_name_and_gives_to_the_other_at_once() {
    let rename = Call::Rename { from: A, to: B, replace: true };
    let seen =
        |tag: u64| Some(Observation { object: ObjectId(100 + tag), tag: tag as u16, mark: 0 });
    let list = |at_a, at_b| OperationOutcome::Saw([at_a, at_b, None]);
    for (listed, is_right) in [
        (list(seen(1), None), true),
        (list(None, seen(1)), true),
        (list(seen(1), seen(1)), false),
        (list(None, None), false),
    ] {
        let mut making = Making::default();
        making.one(0, put(A, 1), done(101));
        let renaming = making.begin(0, rename.clone());
        making.one(1, Call::List, listed);
        making.end(renaming, OperationOutcome::Done(None));
        assert_eq!(making.is_linearizable(), is_right);
    }
}

#[test]
fn list_sees_one_moment_unless_that_list_is_answered_in_slices() {
    let seen = |tag: u64| Observation { object: ObjectId(100 + tag), tag: tag as u16, mark: 0 };
    for (sliced, is_right) in
        [([false, false], false), ([false, true], false), ([true, false], true)]
    {
        let mut making = Making::default();
        making.one(0, put(A, 1), done(101));
        let listing = making.begin(1, Call::List);
        // It saw the first name before this, and the second one behind it.
        making.one(0, delete(A), OperationOutcome::Done(None));
        making.one(0, put(B, 2), done(102));
        let other = making.begin(2, Call::List);
        for (number, is_sliced) in [listing, other].into_iter().zip(sliced) {
            if is_sliced {
                making.history.slice(number);
            }
        }
        making.end(listing, OperationOutcome::Saw([Some(seen(1)), Some(seen(2)), None]));
        making.end(other, OperationOutcome::Saw([None, Some(seen(2)), None]));
        assert_eq!(making.is_linearizable(), is_right, "{sliced:?}");
    }
}

#[test]
fn refusal_needs_its_reason() {
    let mut making = Making::default();
    making.one(0, delete(A), OperationOutcome::Refused(ChangeFailure::NotFound));
    making.one(0, put(A, 1), done(101));
    let given = Some(Condition::Is(ObjectId(101)));
    let given = Call::Put { at: A, tag: 2, is_new: false, condition: given };
    making.one(1, given.clone(), done(102));
    making.one(1, given, OperationOutcome::Refused(ChangeFailure::Changed));
    making.one(1, Call::MakeDirectory { at: A }, OperationOutcome::Refused(ChangeFailure::Exists));
    assert!(making.is_linearizable());
    making.one(1, delete(A), OperationOutcome::Refused(ChangeFailure::NotFound));
    assert!(!making.is_linearizable());
}

#[test]
fn lost_end_of_the_log_takes_changes_and_what_was_read_of_them() {
    let mut making = Making::default();
    making.one(0, put(A, 1), done(101));
    let since = making.now + 1;
    making.one(0, put(A, 2), done(102));
    making.read(1, A, Some(2));
    let reading = making.begin(2, Call::Read { at: A });
    let writing = making.begin(3, put(A, 3));
    making.history.lose(since);
    // Both were answered before, and the answers were on their way.
    making.end(reading, saw(A, Some(2)));
    making.end(writing, done(103));
    making.read(1, A, Some(1));
    assert!(making.is_linearizable());
    // What was answered before is not lost.
    making.read(1, A, None);
    assert!(!making.is_linearizable());
}

#[test]
fn lost_end_of_the_log_takes_what_settled_an_earlier_change() {
    let history = |is_lost: bool| {
        let mut making = Making::default();
        making.one(0, put(A, 1), OperationOutcome::Unknown);
        let since = making.now + 1;
        making.one(0, put(B, 2), done(102));
        if is_lost {
            making.history.lose(since);
        }
        making.read(1, A, None);
        // An attempt was still on its way, and the namenode has forgotten that it is void.
        making.read(1, A, Some(1));
        making.is_linearizable()
    };
    assert!(history(true));
    assert!(!history(false));
}

#[test]
fn one_object_has_one_tag() {
    let mut making = Making::default();
    making.one(0, put(A, 1), done(101));
    making.one(0, put(B, 2), done(101));
    assert!(!making.is_linearizable());
}
