//! Work that may block, on threads made for it.

use std::future::Future;

use sanderling_protocol::{Refusal, Tier};

/// Does `work` on a thread that may block. It begins at once and is finished even if no task
/// waits for it any more: a write that was admitted must be published or given back.
///
/// # Errors
/// Those of `work`; [`Refusal::TierFailed`] when it panicked.
pub(crate) fn on_thread<T, W>(work: W) -> impl Future<Output = Result<T, Refusal>> + Send
where
    T: Send + 'static,
    W: FnOnce() -> Result<T, Refusal> + Send + 'static,
{
    let working = tokio::task::spawn_blocking(work);
    async {
        working.await.unwrap_or_else(|error| {
            tracing::error!(%error, "a request was not finished");
            Err(Refusal::TierFailed { tier: Tier::Disk.to_string(), why: error.to_string() })
        })
    }
}
