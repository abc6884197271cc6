//! What the callers saw: their operations on shared names, and whether one order explains them all.
//!
//! The other checkers look at the log and at what the servers hold. This one uses neither: it has
//! only what each caller requested, when, and what it was answered. A history is linearizable
//! (Herlihy and Wing, "Linearizability", TOPLAS 1990) if the operations can be put into one order
//! in which each takes effect between its request and its answer and each answer is the right one.
//! Whether there is such an order is searched as in Wing and Gong, "Testing and Verifying
//! Concurrent Objects" (1993), with the memory of Lowe, "Testing for Linearizability" (2017):
//! operations that are done and the state that they left are looked at once.
//!
//! Names are judged in groups, because a rename touches two of them. Nothing renames from one group
//! to another, and what is linearizable in each group is linearizable in all.

mod model;
mod search;
#[cfg(test)]
mod tests;

pub(crate) use model::{Call, ChangeFailure, Condition, NAMES, Observation, OperationOutcome};
pub(crate) use search::{OPERATIONS_MAX, SearchResult};

use model::is_change;

/// The operations of all callers.
#[derive(Debug, Default)]
pub(crate) struct History {
    operations: Vec<Operation>,
    /// Counts requests and answers, so that no two of them are at the same time.
    moment: u64,
}

/// One operation as its caller saw it.
#[derive(Debug, Clone)]
struct Operation {
    caller: u8,
    group: u8,
    call: Call,
    /// `None` while the caller waits, and of an operation that was forgotten.
    outcome: Option<OperationOutcome>,
    begun: u64,
    /// When it was answered; of one without an answer, when it could happen for the last time.
    ended: u64,
    /// The begin and the end in microseconds.
    begun_at: u64,
    ended_at: u64,
    /// When a later answer to the same caller settled it, in microseconds, if it got none itself.
    settled_at: u64,
    /// Whether the log lost its end while the caller waited.
    is_doubtful: bool,
    /// Whether the namenode has begun to answer it in slices: what a list has of each name is then
    /// of a moment of its own.
    is_sliced: bool,
}

/// Stands for a moment that does not come.
const NEVER: u64 = u64::MAX;

impl History {
    /// Returns the number of the next operation, for the caller to write into what it makes.
    pub(crate) fn next_tag(&self) -> u16 {
        u16::try_from(self.operations.len() + 1).expect("histories are short")
    }

    /// Notes that a caller requests something.
    pub(crate) fn begin(&mut self, now: u64, caller: u8, group: u8, call: Call) -> usize {
        self.moment += 1;
        let begun = self.moment;
        self.operations.push(Operation {
            caller,
            group,
            call,
            outcome: None,
            begun,
            ended: NEVER,
            begun_at: now,
            ended_at: NEVER,
            settled_at: NEVER,
            is_doubtful: false,
            is_sliced: false,
        });
        self.operations.len() - 1
    }

    /// Notes that the namenode answers an operation in slices.
    pub(crate) fn slice(&mut self, number: usize) {
        self.operations[number].is_sliced = true;
    }

    /// Notes what a caller was answered, or that it gave up.
    ///
    /// Each change of a caller also states that the caller does not resend earlier ones. Once it is
    /// answered, those that the caller gave up have happened, or never will.
    pub(crate) fn end(&mut self, now: u64, number: usize, outcome: OperationOutcome) {
        self.moment += 1;
        let moment = self.moment;
        let one = &mut self.operations[number];
        one.ended_at = now;
        let caller = one.caller;
        let settles =
            is_change(&one.call) && outcome != OperationOutcome::Unknown && !one.is_doubtful;
        one.ended = if outcome == OperationOutcome::Unknown { NEVER } else { moment };
        one.outcome = Some(outcome);
        if one.is_doubtful {
            one.doubt();
        }
        if settles {
            let given_up = |one: &&mut Operation| {
                one.caller == caller
                    && one.outcome == Some(OperationOutcome::Unknown)
                    && one.ended == NEVER
            };
            for one in self.operations.iter_mut().filter(given_up) {
                one.ended = moment;
                one.settled_at = now;
            }
        }
    }

    /// Forgets what a lost end of the log took away: every record that was written at `since` or
    /// later, in microseconds.
    ///
    /// A change that was answered since may be undone, or come again because its answer is
    /// forgotten: its outcome is unknown. What was read since may never have been. An
    /// answer that settled an earlier change is forgotten with what it settled.
    pub(crate) fn lose(&mut self, since: u64) {
        for one in &mut self.operations {
            if one.ended_at == NEVER {
                one.is_doubtful = true;
            } else if one.ended_at >= since {
                one.doubt();
            } else if one.settled_at != NEVER && one.settled_at >= since {
                (one.ended, one.settled_at) = (NEVER, NEVER);
            }
        }
    }

    /// Judges each group of names.
    pub(crate) fn judge(&self) -> (u64, SearchResult) {
        let groups = self.operations.iter().map(|one| one.group).max().map_or(0, |last| last + 1);
        for group in 0..groups {
            let of_group = |one: &&Operation| one.group == group && one.outcome.is_some();
            let operations = self.operations.iter().filter(of_group);
            let operations: Vec<Operation> = operations.flat_map(Operation::seen_apart).collect();
            let operations: Vec<&Operation> = operations.iter().collect();
            match search::judge(&operations) {
                SearchResult::Linearizable => {}
                other => return (u64::from(groups), other),
            }
        }
        (u64::from(groups), SearchResult::Linearizable)
    }
}

impl Operation {
    /// Returns the operation; of a list that was answered in slices the reads of its names.
    fn seen_apart(&self) -> Vec<Self> {
        if !self.is_sliced || self.call != Call::List {
            return vec![self.clone()];
        }
        let read = |at| Self { call: Call::Read { at }, ..self.clone() };
        (0..NAMES as u8).map(read).collect()
    }

    /// Makes its outcome unknown.
    fn doubt(&mut self) {
        self.ended = NEVER;
        self.outcome = is_change(&self.call).then_some(OperationOutcome::Unknown);
    }

    /// Returns whether it is known to have happened, or to have been refused.
    fn is_answered(&self) -> bool {
        self.outcome.as_ref().is_some_and(|outcome| *outcome != OperationOutcome::Unknown)
    }
}

impl std::fmt::Display for Operation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { caller, call, outcome, begun_at, ended_at, .. } = self;
        let millis = |micros: u64| micros as f64 / 1000.0;
        let (begun, ended) = (millis(*begun_at), millis(*ended_at));
        write!(formatter, "caller{caller} [{begun:.3}, {ended:.3}] {call:?}: {outcome:?}")
    }
}
