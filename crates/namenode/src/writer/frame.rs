//! A frame whose requests are being answered.

use std::collections::VecDeque;

use sanderling_core::namenode::{Namenode, Prepared};
use sanderling_protocol::{Instant, Refusal, Reply, Request};
use tokio::sync::oneshot;

use super::round::{Round, is_change, may_place};
use super::{Answers, Origin};
use crate::weight::Weight;

/// Requests that wait, answers so far, and who waits for them.
#[derive(Debug)]
pub(super) struct OpenFrame {
    requests: VecDeque<Request>,
    answers: Answers,
    weight: Weight,
    reply: oneshot::Sender<Answers>,
}

impl OpenFrame {
    pub(super) fn new(requests: Vec<Request>, reply: oneshot::Sender<Answers>) -> Self {
        let answers = Vec::with_capacity(requests.len());
        Self { requests: requests.into(), answers, weight: Weight::default(), reply }
    }

    pub(super) fn is_done(&self) -> bool {
        self.requests.is_empty()
    }

    /// Goes on with the requests in their order, as far as nothing hangs on a command of this frame
    /// that is not applied yet.
    pub(super) fn prepare(
        &mut self,
        now: Instant,
        namenode: &mut Namenode,
        round: &mut Round,
        origin: Origin,
    ) {
        let mut is_pending = false;
        while !round.is_closed()
            && let Some(request) = self.requests.pop_front()
        {
            // It may be answered or placed otherwise once the commands before it are applied.
            let is_turned_away = may_place(&request) || (is_pending && !is_change(&request));
            let kept = is_turned_away.then(|| request.clone());
            let is_taken = match namenode.prepare(now, request) {
                Prepared::Log(command) => {
                    is_pending = true;
                    round.push(namenode.catalog(), command, origin)
                }
                Prepared::Answer(_) if is_pending => false,
                Prepared::Answer(answer) => {
                    self.answers.push(self.weight.admit(answer));
                    true
                }
            };
            if !is_taken {
                self.requests.push_front(kept.expect("kept whatever may be turned away"));
                return;
            }
        }
    }

    /// Takes the answer of the next command of this frame.
    pub(super) fn answer(&mut self, answer: Result<Reply, Refusal>) {
        self.answers.push(answer);
    }

    /// Sends the answers; a caller that is gone does not want them.
    pub(super) fn finish(self) {
        let _ = self.reply.send(self.answers);
    }
}
