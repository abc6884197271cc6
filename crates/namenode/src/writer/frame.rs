//! A frame whose requests are being answered.

use std::collections::VecDeque;

use sanderling_core::catalog::Command;
use sanderling_core::namenode::{Namenode, Prepared};
use sanderling_protocol::{Instant, Refusal, Reply, Request};
use tokio::sync::oneshot;

use super::Answers;

/// Requests that wait, answers so far, and who waits for them.
#[derive(Debug)]
pub(super) struct OpenFrame {
    requests: VecDeque<Request>,
    answers: Answers,
    reply: oneshot::Sender<Answers>,
}

impl OpenFrame {
    pub(super) fn new(requests: Vec<Request>, reply: oneshot::Sender<Answers>) -> Self {
        let answers = Vec::with_capacity(requests.len());
        Self { requests: requests.into(), answers, reply }
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
        mut log: impl FnMut(Command),
    ) {
        let mut is_pending = false;
        while let Some(request) = self.requests.pop_front() {
            // An answer may be another one once the commands before it are applied.
            let kept = is_pending.then(|| request.clone());
            match (namenode.prepare(now, request), kept) {
                (Prepared::Log(command), _) => {
                    log(command);
                    is_pending = true;
                }
                (Prepared::Answer(_), Some(request)) => {
                    self.requests.push_front(request);
                    return;
                }
                (Prepared::Answer(answer), None) => self.answers.push(answer),
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
