//! Frames of other members, of namenodes that join, and of operators.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use sanderling_core::replica::Envelope;
use sanderling_protocol::frame::decode_body;
use sanderling_protocol::{Header, Millis, Refusal};
use sanderling_transport::{Handled, Response};
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::GroupInput;
use super::incoming::Incoming;
use super::wire::{GroupFrame, SnapshotPart};
use crate::own_notices::{OPERATOR, OwnNotices, POSTED};
use crate::requests::stopping;
use crate::state::NamenodeState;
use crate::work::WorkQueue;

/// Time in which a change of the members or of the leader is done or refused.
const CHANGE_WITHIN: Duration = Duration::from_secs(10);

/// Takes frames of the group and gives them to the writer.
#[derive(Debug)]
pub(crate) struct GroupService {
    work: Arc<WorkQueue>,
    state: Arc<NamenodeState>,
    notices: Arc<OwnNotices>,
    directory: PathBuf,
    incoming: Mutex<Option<Incoming>>,
}

impl GroupService {
    pub(crate) fn new(
        work: Arc<WorkQueue>,
        state: Arc<NamenodeState>,
        notices: Arc<OwnNotices>,
        directory: PathBuf,
    ) -> Arc<Self> {
        Arc::new(Self { work, state, notices, directory, incoming: Mutex::new(None) })
    }

    /// Answers a frame. Its caller was admitted as a namenode or an operator.
    pub(crate) fn handle(self: &Arc<Self>, header: Header, body: &Bytes) -> Handled {
        let frame = match decode_body::<GroupFrame>(body) {
            Ok(frame) => frame,
            Err(refusal) => return Handled::Now(Response::refused(&header, &refusal)),
        };
        let service = Arc::clone(self);
        match frame {
            GroupFrame::Message { address, bytes } => {
                // One that does not fit is dropped: its sender sends another.
                let push = |it| {
                    let _ = self.work.push_group(GroupInput::Message(it, address));
                };
                Handled::Now(answer(&header, envelope(&bytes).map(push)))
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
            GroupFrame::Notice { member, left } => {
                let input = GroupInput::Notice(member, left);
                let taken = self.work.push_group(input).map_err(|_| stopping());
                Handled::Now(answer(&header, taken))
            }
            GroupFrame::OwnNotice { left, reason } => {
                let taken = match left {
                    Some(left) => self.notices.show(OPERATOR, left, &reason),
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

    async fn change<T>(
        &self,
        input: impl FnOnce(oneshot::Sender<Result<T, Refusal>>) -> GroupInput,
    ) -> Result<T, Refusal> {
        let (reply, answered) = oneshot::channel();
        if self.work.push_group(input(reply)).is_err() {
            return Err(stopping());
        }
        let late = || {
            let why = "the group has not agreed on the change in time: look at its members";
            Refusal::RetryAfter { after: Millis(1000), why: why.to_owned() }
        };
        match timeout(CHANGE_WITHIN, answered).await {
            Ok(answered) => answered.unwrap_or_else(|_| Err(late())),
            Err(_) => Err(late()),
        }
    }

    fn part(&self, part: SnapshotPart) -> Result<(), Refusal> {
        let arrived = Incoming::take(&mut self.incoming.lock(), &self.directory, part)?;
        if let Some(arrived) = arrived {
            let message = envelope(&arrived.message)?;
            let catalog = Box::new(arrived.catalog);
            let input = GroupInput::Snapshot(message, catalog, arrived.path);
            self.work.push_group(input).map_err(|_| stopping())?;
        }
        Ok(())
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
