//! Which targets of pushes answer. A datanode has few places for pushes, and one that waits for a
//! silent target holds its place until its time is over: so targets that are silent get one push at
//! a time, and all others are sent elsewhere at once.

use std::collections::BTreeMap;

use sanderling_protocol::{Instant, Millis, NodeId, Refusal};

use crate::call_outcome::CallOutcome;

/// Time of one push to its target in milliseconds, by default: 1 MiB at 4 Mbit/s. A target that
/// hangs may hold the places of all pushes for this long once, out of a notice of half a minute.
/// Chosen, not measured.
pub const PUSH_TIMEOUT: Millis = Millis(2000);

/// Time after which a target is no longer taken for silent. Chosen, not measured: a push takes
/// [`PUSH_TIMEOUT`] at most by default, and the namenode gives a silent datanode up within seconds.
const SILENT_KEPT: Millis = Millis(30_000);

/// When the relocator is to try a target again that is silent or was not reached, in milliseconds,
/// or rather another one. Little of a notice of half a minute, and more than a refused connection
/// takes. Chosen, not measured.
const TARGET_RETRY: Millis = Millis(200);

/// The targets that did not answer a push in time. For 30 s from then on, only one push at a time
/// finds out whether a target answers again.
#[derive(Debug, Clone, Default)]
pub struct PushTargets(BTreeMap<NodeId, Silence>);

#[derive(Debug, Clone, Copy)]
struct Silence {
    since: Instant,
    /// One push is under way to it.
    is_probed: bool,
}

/// The outcome of a push that [`PushTargets::begin`] let begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushOutcome {
    /// The target has taken or refused the block.
    Answered,
    /// Its time was over without an answer.
    TimedOut,
    /// It was given up, or the target was not reached: that takes no time.
    GivenUp,
}

impl PushOutcome {
    /// Reduces the outcome of the call to the target to what shows whether it is silent. A target
    /// that has refused the block is not: it has answered.
    #[must_use]
    pub const fn of(call: CallOutcome<'_>) -> Self {
        match call {
            CallOutcome::Answered | CallOutcome::Refused(_) => Self::Answered,
            CallOutcome::TimedOut => Self::TimedOut,
            CallOutcome::NoProcess | CallOutcome::Broken => Self::GivenUp,
        }
    }
}

/// Returns the refusal of a push that its target has not answered, for the reason `why`: the
/// relocator sends the block elsewhere, or again after the pause.
#[must_use]
pub const fn push_failed(why: String) -> Refusal {
    Refusal::RetryAfter { after: TARGET_RETRY, why }
}

impl PushTargets {
    /// Decides whether a push to a target begins. If it does, [`Self::ended`] is called at its end.
    ///
    /// # Errors
    /// [`Refusal::RetryAfter`]: the target is silent, and a push that finds out whether it is still
    /// so is under way. Send the block elsewhere, or again after that time.
    pub fn begin(&mut self, now: Instant, target: NodeId) -> Result<(), Refusal> {
        let Some(silence) = self.0.get_mut(&target) else { return Ok(()) };
        if silence.since + SILENT_KEPT <= now {
            self.0.remove(&target);
            return Ok(());
        }
        if silence.is_probed {
            let why = format!("node {target} did not answer a push in time");
            return Err(push_failed(why));
        }
        silence.is_probed = true;
        Ok(())
    }

    /// Takes the outcome of a push to `target` that [`Self::begin`] let begin.
    pub fn ended(&mut self, now: Instant, target: NodeId, outcome: PushOutcome) {
        match outcome {
            PushOutcome::Answered => {
                self.0.remove(&target);
            }
            PushOutcome::TimedOut => {
                self.0.retain(|_, silence| silence.since + SILENT_KEPT > now);
                self.0.insert(target, Silence { since: now, is_probed: false });
            }
            PushOutcome::GivenUp => {
                if let Some(silence) = self.0.get_mut(&target) {
                    silence.is_probed = false;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(5_000_000);
    const HUNG: NodeId = NodeId(1);
    const FINE: NodeId = NodeId(2);

    #[test]
    fn silent_target_gets_one_push_at_a_time_until_it_answers() {
        let mut targets = PushTargets::default();
        for target in [HUNG, HUNG, FINE] {
            targets.begin(NOW, target).unwrap();
        }
        targets.ended(NOW, HUNG, PushOutcome::TimedOut);
        targets.begin(NOW, HUNG).expect("one push looks whether it answers");
        let refused = targets.begin(NOW, HUNG).expect_err("it is looked at");
        assert!(matches!(refused, Refusal::RetryAfter { .. }), "{refused}");
        targets.begin(NOW, FINE).expect("it has nothing to do with it");
        targets.ended(NOW, HUNG, PushOutcome::TimedOut);
        targets.begin(NOW, HUNG).expect("the next one");
        targets.ended(NOW, HUNG, PushOutcome::Answered);
        for _ in 0..3 {
            targets.begin(NOW, HUNG).expect("it answers");
        }
    }

    #[test]
    fn push_that_is_given_up_leaves_its_place_to_the_next() {
        let mut targets = PushTargets::default();
        targets.ended(NOW, HUNG, PushOutcome::TimedOut);
        targets.begin(NOW, HUNG).unwrap();
        targets.ended(NOW, HUNG, PushOutcome::GivenUp);
        targets.begin(NOW, HUNG).expect("nothing is under way");
    }

    #[test]
    fn only_a_target_without_an_answer_in_time_is_silent() {
        let refusal = Refusal::NodeGone { node: HUNG };
        let answered = [CallOutcome::Answered, CallOutcome::Refused(&refusal)];
        assert_eq!(answered.map(PushOutcome::of), [PushOutcome::Answered; 2]);
        assert_eq!(PushOutcome::of(CallOutcome::TimedOut), PushOutcome::TimedOut);
        let given_up = [CallOutcome::NoProcess, CallOutcome::Broken];
        assert_eq!(given_up.map(PushOutcome::of), [PushOutcome::GivenUp; 2]);
    }

    #[test]
    fn target_that_was_not_reached_is_tried_again_after_as_long_as_a_silent_one() {
        let mut targets = PushTargets::default();
        targets.ended(NOW, HUNG, PushOutcome::TimedOut);
        targets.begin(NOW, HUNG).unwrap();
        let why = format!("node {HUNG} did not answer a push in time");
        assert_eq!(targets.begin(NOW, HUNG), Err(push_failed(why.clone())));
        assert_eq!(push_failed(why.clone()), Refusal::RetryAfter { after: Millis(200), why });
    }

    #[test]
    fn silence_is_forgotten_after_its_time_and_takes_no_memory() {
        let mut targets = PushTargets::default();
        for number in 0..100 {
            targets.ended(NOW, NodeId(number), PushOutcome::TimedOut);
        }
        let later = NOW + SILENT_KEPT;
        targets.ended(later, HUNG, PushOutcome::TimedOut);
        assert_eq!(targets.0.len(), 1);
        let later = later + SILENT_KEPT;
        targets.begin(later, HUNG).unwrap();
        targets.begin(later, HUNG).expect("that was long ago");
    }
}
