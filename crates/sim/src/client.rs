//! What makes changes of writers, callers and of the operator be made once: the shell around the
//! machines of `core::client`, as the client library is one.

use sanderling_core::client::{self, AttemptFailure, ChangeAttempts, NextAttempt, is_of_the_log};
use sanderling_core::retry::Retry;
use sanderling_protocol::message::{Change, ClientId, Repetition};
use sanderling_protocol::{Instant, Nonce, Refusal, Reply, Request};

/// The sequences of one client.
#[derive(Debug)]
pub(crate) struct Sequences(client::Sequences);

/// The number of the operator; those of writers follow. They are opened in this order before
/// anything else is in the journal.
const ADMIN: u64 = 1;

/// Returns the key with which a client is opened.
pub(crate) const fn key(number: u64) -> Nonce {
    Nonce(7_000 + number)
}

impl Sequences {
    pub(crate) const fn of_admin() -> Self {
        Self::new(ADMIN)
    }

    pub(crate) const fn of_writer(number: u8) -> Self {
        Self::new(ADMIN + 1 + number as u64)
    }

    const fn new(number: u64) -> Self {
        Self(client::Sequences::new(ClientId { number, key: key(number) }))
    }

    /// Begins anew as another client.
    pub(crate) const fn of(client: ClientId) -> Self {
        Self(client::Sequences::new(client))
    }

    /// Returns a request as it is sent, now and again: a change with the next sequence.
    pub(crate) fn begin(&mut self, request: Request) -> Request {
        if request.repeat() != Repetition::Once {
            return request;
        }
        Request::Once(Box::new(self.0.begin(Change::new(request))))
    }

    /// Notes that a request is not sent again.
    pub(crate) fn end(&mut self, request: &Request) {
        if let Some((_, sequence)) = key_of(request) {
            self.0.end(sequence);
        }
    }
}

/// Returns a change's client and sequence.
pub(crate) fn key_of(request: &Request) -> Option<(u64, u64)> {
    match request {
        Request::Once(once) => Some((once.client.number, once.sequence)),
        _ => None,
    }
}

/// Returns what to do after an attempt with this answer, or none; `None` if it was done.
pub(crate) fn failed(
    attempts: &mut ChangeAttempts,
    retry: &mut Retry,
    now: Instant,
    answer: Option<&Result<Reply, Refusal>>,
) -> Option<NextAttempt> {
    let failure = match answer {
        Some(Ok(_)) => return None,
        Some(Err(refusal)) => AttemptFailure::refused(refusal),
        None => AttemptFailure::NO_ANSWER,
    };
    Some(attempts.failed(retry, now, &failure))
}

/// Returns whether an answer is the outcome of a change.
pub(crate) fn is_final(answer: &Result<Reply, Refusal>) -> bool {
    answer.as_ref().err().is_none_or(is_of_the_log)
}
