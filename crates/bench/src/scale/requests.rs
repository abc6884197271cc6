//! Frames of requests to the namenode that is measured.

use std::time::Duration;

use bytes::Bytes;
use sanderling_protocol::frame::{decode_body, encode_body};
use sanderling_protocol::message::{Hello, Role};
use sanderling_protocol::{Header, Op, Refusal, Reply, Request};
use sanderling_transport::{CallError, Connection};
use tokio::time::Instant;

use crate::failure::{Exit, Failure, FailureKind};

/// Time of one frame: more than the longest stall that is to be seen, which lasts seconds. Chosen,
/// not measured.
const FRAME_TIMEOUT: Duration = Duration::from_secs(60);

/// One connection.
#[derive(Debug, Clone)]
pub(super) struct Meta {
    connection: Connection,
}

impl Meta {
    pub(super) async fn connect(address: &str, role: Role) -> Result<Self, CallError> {
        let hello = Hello { role, cluster: None, node: None, token: None };
        let (connection, _) =
            Connection::connect(address, hello, Instant::now() + FRAME_TIMEOUT).await?;
        Ok(Self { connection })
    }

    pub(super) fn is_broken(&self) -> bool {
        self.connection.is_broken()
    }

    /// Sends all requests in one frame and returns their answers.
    pub(super) async fn all(
        &self,
        requests: &Vec<Request>,
    ) -> Result<Vec<Result<Reply, Refusal>>, CallError> {
        let body = vec![Bytes::from(encode_body(requests))];
        let deadline = Instant::now() + FRAME_TIMEOUT;
        let frame = self.connection.call(Header::new(Op::Meta, 0), body, deadline).await?;
        decode_body(&frame.body).map_err(CallError::Refused)
    }

    /// Sends one request.
    pub(super) async fn one(&self, request: Request) -> Result<Reply, CallError> {
        let mut answers = self.all(&vec![request]).await?;
        answers.pop().unwrap_or(Err(Refusal::NoHello)).map_err(CallError::Refused)
    }
}

/// Turns a call that must succeed into the run's failure.
pub(super) fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Failure, FailureKind::Namenode, error)
}

/// Turns an unexpected answer into the run's failure.
pub(super) fn unexpected(reply: &Reply) -> Failure {
    let mut text = format!("{reply:?}");
    text.truncate(200);
    failed(format_args!("unexpected answer: {text}"))
}
