//! Changes that are made once: the client's number at the namenode, and the sequences of its calls.

use std::sync::Arc;

use parking_lot::Mutex;
use sanderling_core::client::{AttemptFailure, Sequences};
use sanderling_protocol::message::{Change, ClientId};
use sanderling_protocol::{Refusal, Reply, Request};
use sanderling_transport::CallError;
use tokio::time::timeout_at;

use crate::client::{Attempts, Client};
use crate::error::ClientError;

/// The changes of one client.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Known to the namenode; `None` before the first change.
    session: Mutex<Option<Arc<ChangeSession>>>,
    /// Held by the call that opens one.
    opening: tokio::sync::Mutex<()>,
}

/// A number that the namenode gave, and the sequences under it.
#[derive(Debug)]
struct ChangeSession {
    sequences: Mutex<Sequences>,
}

/// The sequence of one call. Dropped with the call, however that ends: its change is not sent again
/// then, and the namenode may forget the answer.
#[derive(Debug)]
struct Sequence {
    session: Arc<ChangeSession>,
    number: u64,
}

/// One change, to be sent as often as necessary.
#[derive(Debug)]
pub(crate) struct Sending {
    sequence: Sequence,
    pub(crate) request: Request,
}

impl ChangeSession {
    const fn new(client: ClientId) -> Self {
        Self { sequences: Mutex::new(Sequences::new(client)) }
    }
}

impl Drop for Sequence {
    fn drop(&mut self) {
        self.session.sequences.lock().end(self.number);
    }
}

impl Sending {
    fn new(session: Arc<ChangeSession>, change: Change) -> Self {
        let once = Box::new(session.sequences.lock().begin(change));
        let sequence = Sequence { session, number: once.sequence };
        Self { sequence, request: Request::Once(once) }
    }

    /// Gives the change another sequence, of another number.
    fn renumber(&mut self, session: Arc<ChangeSession>) {
        if let Request::Once(once) = &self.request {
            *self = Self::new(session, once.change.clone());
        }
    }
}

impl Client {
    /// Begins a change.
    pub(crate) async fn begin_change(
        &self,
        attempts: &mut Attempts,
        request: Request,
    ) -> Result<Sending, ClientError> {
        let session = self.session(attempts).await?;
        Ok(Sending::new(session, Change::new(request)))
    }

    /// Begins a change again whose client the namenode has forgotten. It must not have
    /// been sent before this one time.
    pub(crate) async fn begin_change_again(
        &self,
        attempts: &mut Attempts,
        sending: &mut Sending,
    ) -> Result<(), ClientError> {
        let is_same = |kept: &mut Arc<ChangeSession>| Arc::ptr_eq(kept, &sending.sequence.session);
        self.shared.changes.session.lock().take_if(is_same);
        sending.renumber(self.session(attempts).await?);
        Ok(())
    }

    async fn session(&self, attempts: &mut Attempts) -> Result<Arc<ChangeSession>, ClientError> {
        let changes = &self.shared.changes;
        let known = || changes.session.lock().clone();
        if let Some(session) = known() {
            return Ok(session);
        }
        let opening = timeout_at(attempts.deadline, changes.opening.lock()).await;
        let Ok(_opening) = opening else {
            let (address, waited) = (self.shared.namenodes.text().to_owned(), self.call_deadline());
            let late = CallError::TimedOut { address, waited };
            return Err(ClientError::from_call(&attempts.what.to_string(), late));
        };
        if let Some(session) = known() {
            return Ok(session);
        }
        let key = self.shared.nonces.draw();
        loop {
            let request = Request::OpenClient { key };
            let error = match self.shared.batcher.send(&request, attempts.attempt_deadline()).await
            {
                Ok(Reply::Client { number }) => {
                    let client = ClientId { number, key };
                    let session = Arc::new(ChangeSession::new(client));
                    *changes.session.lock() = Some(Arc::clone(&session));
                    return Ok(session);
                }
                Ok(_) => return Err(ClientError::BadReply { what: attempts.what.to_string() }),
                // A namenode of the version before makes changes as often as they come. No client
                // has this number: one that is upgraded meanwhile gives another.
                Err(CallError::Refused(Refusal::UnknownVersion { .. })) => {
                    let client = ClientId { number: 0, key };
                    return Ok(Arc::new(ChangeSession::new(client)));
                }
                Err(error) => error,
            };
            self.again(attempts, error).await?;
        }
    }
}

/// Returns whether a request may have been executed although no answer arrived.
const fn may_be_done(error: &CallError) -> bool {
    match error {
        CallError::Closed { .. } | CallError::TimedOut { .. } | CallError::BadReply { .. } => true,
        CallError::Refused(_)
        | CallError::Unreachable { .. }
        | CallError::TooBusy { .. }
        | CallError::WrongAddress { .. }
        | CallError::OtherCluster { .. }
        | CallError::Credentials { .. } => false,
    }
}

/// Returns how an attempt failed, for the machines.
pub(crate) const fn failure(error: &CallError) -> AttemptFailure<'_> {
    match error {
        CallError::Refused(refusal) => AttemptFailure::refused(refusal),
        error => AttemptFailure {
            refusal: None,
            recovery: error.recovery(),
            may_be_done: may_be_done(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::Nonce;

    use super::*;

    #[test]
    fn call_that_is_dropped_ends_its_change() {
        let client = ClientId { number: 1, key: Nonce(2) };
        let session = Arc::new(ChangeSession::new(client));
        let sending = || Sending::new(Arc::clone(&session), Change::new(Request::Jobs));
        let settled = |sending: &Sending| match &sending.request {
            Request::Once(once) => (once.sequence, once.settled_below),
            other => panic!("{other:?}"),
        };
        let (first, second) = (sending(), sending());
        assert_eq!((settled(&first), settled(&second)), ((1, 1), (2, 1)));
        drop(first);
        let third = sending();
        assert_eq!(settled(&third), (3, 2));
        drop((second, third));
        assert_eq!(settled(&sending()), (4, 4));
    }
}
