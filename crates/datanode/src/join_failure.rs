//! The error of a datanode's last attempt to join, for the process that starts the datanode.

use std::sync::Arc;

use parking_lot::Mutex;
use sanderling_transport::CallError;

/// The error of a datanode's last attempt to register, which its starter reads when it ends the
/// start before the datanode serves. All clones show the same.
#[derive(Debug, Clone, Default)]
pub struct JoinFailure(Arc<Mutex<Option<CallError>>>);

impl JoinFailure {
    /// Returns the error of the last registration; `None` if it succeeded, or if none has ended.
    #[must_use]
    pub fn last(&self) -> Option<CallError> {
        self.0.lock().clone()
    }

    /// Keeps the outcome of a registration.
    pub(crate) fn set(&self, error: Option<CallError>) {
        *self.0.lock() = error;
    }
}
