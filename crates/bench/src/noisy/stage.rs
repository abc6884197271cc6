//! What every hog gets, counts and fails with.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use sanderling_client::ClientError;
use sanderling_protocol::Refusal;
use sanderling_transport::CallError;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::setting::Setting;

/// Why a hog did not run.
#[derive(Debug)]
pub(super) struct NotRun(pub(super) String);

impl From<ClientError> for NotRun {
    fn from(error: ClientError) -> Self {
        Self(error.to_string())
    }
}

impl From<CallError> for NotRun {
    fn from(error: CallError) -> Self {
        Self(error.to_string())
    }
}

impl From<Refusal> for NotRun {
    fn from(refusal: Refusal) -> Self {
        Self(refusal.to_string())
    }
}

impl From<std::io::Error> for NotRun {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

/// What a hog did since it began; what it prepared is not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Operations that were done.
    pub(super) operations: u64,
    /// Operations that were refused.
    pub(super) refusals: u64,
    /// Connections that the servers closed, or that timed out.
    pub(super) broken: u64,
}

/// What a hog and whoever watches it share.
#[derive(Debug)]
pub(super) struct HogContext {
    pub(super) setting: Arc<Setting>,
    pub(super) operations: AtomicU64,
    pub(super) refusals: AtomicU64,
    pub(super) broken: AtomicU64,
    pub(super) notes: Mutex<Vec<String>>,
    /// Cancelled when the hog has prepared what it needs.
    pub(super) begun: CancellationToken,
    /// Cancelled when the hog is to end.
    pub(super) stop: CancellationToken,
}

impl HogContext {
    pub(super) fn done(&self, operations: u64) {
        self.operations.fetch_add(operations, Ordering::Relaxed);
    }

    pub(super) fn refused(&self, operations: u64) {
        self.refusals.fetch_add(operations, Ordering::Relaxed);
    }

    pub(super) fn broke(&self) {
        self.broken.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the outcome of a call about so many operations.
    pub(super) fn failed(&self, error: &CallError, operations: u64) {
        match error {
            CallError::Refused(_) => self.refused(operations),
            _ => self.broke(),
        }
    }

    /// The same of a client's call.
    pub(super) fn client_failed(&self, error: &ClientError) {
        match error {
            ClientError::Refused(_) => self.refused(1),
            ClientError::Call { cause, .. } => self.failed(cause, 1),
            _ => self.broke(),
        }
    }

    pub(super) fn note(&self, text: impl fmt::Display) {
        self.notes.lock().push(text.to_string());
    }

    /// Waits until the hog is to end, or its last task has.
    pub(super) async fn until_stopped(&self, mut tasks: JoinSet<()>) {
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = async { while tasks.join_next().await.is_some() {} } => {}
        }
        tasks.shutdown().await;
    }
}
