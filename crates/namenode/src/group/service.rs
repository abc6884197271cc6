//! Frames of other members, of namenodes that join, and of operators.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sanderling_core::access::Claims;
use sanderling_core::replica::{Body, Envelope, GroupGeneration};
use sanderling_protocol::frame::decode_body;
use sanderling_protocol::{Header, Refusal};
use sanderling_transport::{Credentials, Handled, Response};
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::task::block_in_place;
use tokio::time::timeout;

use super::incoming::SnapshotReceiver;
use super::wire::{GroupFrame, LaterGeneration, SnapshotPart};
use super::{GroupInput, ServingState};
use crate::own_notices::{OPERATOR, OwnNotices, POSTED};
use crate::requests::stopping;
use crate::state::NamenodeState;
use crate::writer::CatalogWriter;
use crate::writer_queue::WorkQueue;

/// Time in which a change of the members or of the leader is done or refused. A change needs two
/// rounds of agreement, milliseconds. If the leader dies meanwhile, an election, 0.4 to 0.8 s and
/// as long again, leaves time for another attempt.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);

/// A longer message takes its time: that is nothing for a thread that serves. Some 40 small
/// commands, which take about 100 us to decode and apply. Chosen, not measured.
const SHORT_BYTES_MAX: usize = 4 << 10;

/// Takes frames of the group and gives them to the writer.
#[derive(Debug)]
pub(crate) struct GroupService {
    work: Arc<WorkQueue>,
    state: Arc<NamenodeState>,
    notices: Arc<OwnNotices>,
    directory: PathBuf,
    incoming: Mutex<SnapshotReceiver>,
    /// The writer, for short messages while it is idle; empty where no thread may block in place.
    writer: Weak<Mutex<CatalogWriter>>,
    /// What it proves its generation with.
    credentials: Credentials,
}

impl GroupService {
    pub(crate) fn new(
        work: Arc<WorkQueue>,
        state: Arc<NamenodeState>,
        notices: Arc<OwnNotices>,
        directory: PathBuf,
        writer: Weak<Mutex<CatalogWriter>>,
        credentials: Credentials,
    ) -> Arc<Self> {
        let incoming = Mutex::new(SnapshotReceiver::default());
        Arc::new(Self { work, state, notices, directory, incoming, writer, credentials })
    }

    /// Answers a frame. Its caller was admitted as a namenode or an operator, by the `claims` of
    /// its token if there is one.
    pub(crate) fn handle(
        self: &Arc<Self>,
        header: Header,
        body: &Bytes,
        claims: Option<&Claims>,
    ) -> Handled {
        let frame = decode_body::<GroupFrame>(body)
            .and_then(|frame| self.check_fresh(&frame, claims).map(|()| frame));
        let frame = match frame {
            Ok(frame) => frame,
            Err(refusal) => return Handled::Now(Response::refused(&header, &refusal)),
        };
        let service = Arc::clone(self);
        match frame {
            GroupFrame::Message { address, bytes } => {
                let take = |it: Envelope| {
                    let later = self.later_than(GroupGeneration(it.generation));
                    if later.is_none() {
                        self.take(it, address, bytes.len());
                    }
                    later
                };
                Handled::Now(answer(&header, envelope(&bytes).map(take)))
            }
            GroupFrame::Join { format, at } => Handled::Later(Box::pin(async move {
                let joined = match format.check() {
                    Ok(()) => service.change(|reply| GroupInput::Join(at, reply)).await,
                    Err(refusal) => Err(refusal),
                };
                answer(&header, joined)
            })),
            GroupFrame::Part(part) => Handled::Later(Box::pin(async move {
                let taken = tokio::task::spawn_blocking(move || service.part(part)).await;
                answer(&header, taken.unwrap_or_else(|_| Err(stopping())))
            })),
            GroupFrame::Notice { generation, member, left } => {
                Handled::Now(self.input(&header, generation, GroupInput::Notice(member, left)))
            }
            GroupFrame::Life { generation, member, life } => {
                Handled::Now(self.input(&header, generation, GroupInput::Life(member, life)))
            }
            GroupFrame::OwnNotice { left, reason } => {
                let taken = match left {
                    Some(left) => self.notices.give(OPERATOR, left, &reason),
                    None => {
                        self.notices.withdraw(OPERATOR);
                        self.notices.withdraw(POSTED);
                        Ok(())
                    }
                };
                Handled::Now(answer(&header, taken))
            }
            GroupFrame::Show => Handled::Now(answer(&header, Ok(self.state.group.page()))),
            GroupFrame::Order(order) => Handled::Later(Box::pin(async move {
                let done = service.change(|reply| GroupInput::Order(order, reply)).await;
                answer(&header, done)
            })),
        }
    }

    /// Checks that the token of a caller may not have been revoked. What only a leader does needs
    /// none of that: another member names the leader, and one that leads no more can do nothing.
    fn check_fresh(&self, frame: &GroupFrame, claims: Option<&Claims>) -> Result<(), Refusal> {
        match (frame, claims) {
            (GroupFrame::Order(_) | GroupFrame::Join { .. }, _) | (_, None) => Ok(()),
            (_, Some(claims)) => self.state.group.check_fresh(claims),
        }
    }

    /// Returns this member's generation, if it is later than the sender's.
    fn later_than(&self, theirs: GroupGeneration) -> Option<LaterGeneration> {
        let (own, cluster) = (self.state.group.generation(), self.state.cluster);
        own.is_after(theirs).then(|| LaterGeneration::new(cluster, own, &self.credentials))
    }

    /// Takes what a member of this generation reports.
    fn input(&self, header: &Header, theirs: GroupGeneration, input: GroupInput) -> Response {
        let later = self.later_than(theirs);
        let taken = match later {
            Some(_) => Ok(()),
            None => self.work.push_group(input),
        };
        answer(header, taken.map(|()| later).map_err(|_| stopping()))
    }

    /// Gives a message to the writer. One that does not fit is dropped: its sender sends another.
    fn take(&self, message: Envelope, address: String, bytes: usize) {
        let is_short = bytes <= SHORT_BYTES_MAX
            && matches!(message.body, Body::Append { .. } | Body::Heartbeat { .. })
            && self.state.group.serving_state() == ServingState::Follower;
        let input = GroupInput::Message(message, address);
        let writer = is_short.then(|| self.writer.upgrade()).flatten();
        let Some(writer) = writer else {
            let _ = self.work.push_group(input);
            return;
        };
        // A short message of the leader is attended to on this thread, while the writer is idle:
        // the answer waits for no other one to wake. Neither body makes this member a leader.
        if self.work.push_group_silently(input).is_err() {
            return;
        }
        match writer.try_lock() {
            // What is written may hang with its disk. So another thread takes over the rest that
            // this one has to do: the other connections, and the wait for sockets and timers.
            Some(mut writer) => block_in_place(|| writer.attend_here()),
            None => self.work.wake(),
        }
    }

    async fn change<T>(
        &self,
        input: impl FnOnce(oneshot::Sender<Result<T, Refusal>>) -> GroupInput,
    ) -> Result<T, Refusal> {
        let (reply, answered) = oneshot::channel();
        if self.work.push_group(input(reply)).is_err() {
            return Err(stopping());
        }
        answer_of(answered, CHANGE_TIMEOUT).await
    }

    fn part(&self, part: SnapshotPart) -> Result<(), Refusal> {
        let arrived = self.incoming.lock().take(&self.directory, part)?;
        if let Some(arrived) = arrived {
            let message = envelope(&arrived.message)?;
            let catalog = Box::new(arrived.catalog);
            let input = GroupInput::Snapshot(message, catalog, arrived.file);
            self.work.push_group(input).map_err(|_| stopping())?;
        }
        Ok(())
    }
}

/// Waits for the answer to a change that the writer was given. Without one the change may be in the
/// log of the group, or be taken yet.
async fn answer_of<T>(
    answered: oneshot::Receiver<Result<T, Refusal>>,
    within: Duration,
) -> Result<T, Refusal> {
    let undecided = |why: &str| Err(Refusal::Undecided { why: why.to_owned() });
    match timeout(within, answered).await {
        Ok(Ok(answered)) => answered,
        Ok(Err(_)) => undecided("its namenode ends, and another one may have it in its log"),
        Err(_) => undecided("the group has not agreed on it in time: look at its members"),
    }
}

fn envelope(bytes: &[u8]) -> Result<Envelope, Refusal> {
    Envelope::decode(bytes).map_err(|error| Refusal::BadRequest { why: error.to_string() })
}

fn answer<T: Serialize>(header: &Header, result: Result<T, Refusal>) -> Response {
    match result {
        Ok(value) => Response::message(header, &value),
        Err(refusal) => Response::refused(header, &refusal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn change_without_an_answer_may_have_been_made() {
        let (reply, answered) = oneshot::channel::<Result<(), Refusal>>();
        drop(reply);
        let ended = answer_of(answered, CHANGE_TIMEOUT).await;
        assert!(matches!(ended, Err(Refusal::Undecided { .. })), "{ended:?}");
        let (reply, answered) = oneshot::channel::<Result<(), Refusal>>();
        let late = answer_of(answered, Duration::ZERO).await;
        assert!(matches!(late, Err(Refusal::Undecided { .. })), "{late:?}");
        drop(reply);
    }
}
