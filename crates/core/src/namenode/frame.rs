//! One frame in a batch: which of its requests join the next round, and the order of its answers.

use std::collections::VecDeque;
use std::sync::Arc;

use sanderling_protocol::{Instant, Refusal, Reply, Request};

use super::Prepared;
use super::group_commit::{Answers, CommandOrigin, Decides};
use super::reply_budget::ReplyBudget;
use super::round::{Round, is_change, is_refusal, may_place};
use crate::access::Claims;

/// The requests of a frame that wait, and the answers so far.
#[derive(Debug)]
pub(super) struct OpenFrame {
    requests: VecDeque<Request>,
    /// What their caller may do; `None` if it may do everything.
    claims: Option<Arc<Claims>>,
    /// Answers of the first requests, in their order.
    answers: Answers,
    /// Number of requests that were answered or became commands.
    taken: usize,
    /// Answers to repeats that stand behind commands of this frame, each with its place.
    early: VecDeque<(usize, Result<Reply, Refusal>)>,
    budget: ReplyBudget,
}

impl OpenFrame {
    /// Returns a frame of which nothing is answered.
    pub(super) fn new(requests: Vec<Request>, claims: Option<Arc<Claims>>) -> Self {
        let answers = Vec::with_capacity(requests.len());
        let (taken, early, budget) = (0, VecDeque::new(), ReplyBudget::default());
        Self { requests: requests.into(), claims, answers, taken, early, budget }
    }

    /// Returns whether no request waits; commands of the present round may still lack their
    /// answers.
    pub(super) fn is_done(&self) -> bool {
        self.requests.is_empty()
    }

    /// Answers requests and adds commands to the round, in the order of the requests. Stops at the
    /// first request that depends on a command of this frame in the round, at one whose placements
    /// do not fit, and when the round is closed; the next call goes on from there.
    pub(super) fn prepare(
        &mut self,
        now: Instant,
        namenode: &mut impl Decides,
        round: &mut Round,
        origin: CommandOrigin,
    ) {
        let mut is_pending = false;
        while !round.is_closed()
            && let Some(request) = self.requests.pop_front()
        {
            // It may be answered or placed otherwise once the commands before it are applied.
            let may_wait = may_place(&request) || (is_pending && !is_change(&request));
            let kept = may_wait.then(|| request.clone());
            // Names may have changed since the frame came: what is decided on now counts.
            let allowed =
                self.claims.as_ref().map_or(Ok(()), |claims| namenode.allows(claims, &request));
            let mut prepared = match allowed {
                Ok(()) => namenode.prepare(now, request),
                Err(refusal) => Prepared::Answer(Err(refusal)),
            };
            // What changes nothing is not logged, unless what it depends on is not known yet.
            if let Prepared::Log(command) = &prepared
                && !is_pending
                && !round.has_copy(command)
                && let Some(refusal) = namenode.refuses(command)
            {
                prepared = Prepared::Answer(Err(refusal));
            }
            let is_taken = match prepared {
                // Once the commands before it are applied there may be room.
                Prepared::Log(command) if is_pending && is_refusal(&command) => false,
                Prepared::Log(command) => {
                    is_pending = true;
                    round.push(namenode.catalog(), command, origin)
                }
                Prepared::Answer(_) if is_pending && kept.is_some() => false,
                // A repeat is answered as it was before, whatever comes before it now.
                Prepared::Answer(answer) if is_pending => {
                    self.early.push_back((self.taken, answer));
                    true
                }
                Prepared::Answer(answer) => {
                    self.answers.push(self.budget.admit(answer));
                    true
                }
            };
            if !is_taken {
                self.requests.push_front(kept.expect("kept whatever may be turned away"));
                return;
            }
            self.taken += 1;
        }
    }

    /// Adds the answer of the next command of this frame: commands are answered in their order.
    pub(super) fn answer(&mut self, answer: Result<Reply, Refusal>) {
        self.answers.push(answer);
        while self.early.front().is_some_and(|(place, _)| *place == self.answers.len()) {
            self.answers.extend(self.early.pop_front().map(|(_, answer)| answer));
        }
    }

    /// Returns the answers; all of them once no request and no command is left.
    pub(super) fn finish(self) -> Answers {
        self.answers
    }
}
