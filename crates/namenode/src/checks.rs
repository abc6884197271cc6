//! Checks of the whole catalog: one at a time, on an image, so that no request waits.

use std::sync::Arc;
use std::time::Duration;

use sanderling_protocol::{Refusal, Reply};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::requests::stopping;
use crate::state::NamenodeState;

/// The right to make a check.
#[derive(Debug)]
pub(crate) struct Checks {
    one: Arc<Semaphore>,
}

impl Default for Checks {
    fn default() -> Self {
        Self { one: Arc::new(Semaphore::new(1)) }
    }
}

impl Checks {
    /// Longest time for which the next check waits. The check of a very large catalog must not put
    /// off an operator's next one for longer. Chosen, not measured.
    const PAUSE_MAX: Duration = Duration::from_secs(10);

    /// Checks the catalog as it is once the checks before have ended.
    pub(crate) async fn check(&self, state: &Arc<NamenodeState>) -> Result<Reply, Refusal> {
        let (one, state) = (Arc::clone(&self.one), Arc::clone(state));
        // In a task of its own: the caller's is not polled while it sends, and would keep the
        // permit.
        let checked = tokio::spawn(async move {
            let permit = one.acquire_owned().await.map_err(|_| stopping())?;
            let checked = tokio::task::spawn_blocking(move || check(&state, permit));
            checked.await.unwrap_or_else(|_| Err(stopping()))
        });
        checked.await.unwrap_or_else(|_| Err(stopping()))
    }
}

/// Checks an image of the catalog. The next check begins after as much time again: whoever has the
/// catalog checked in a loop has half of a processor.
fn check(state: &NamenodeState, permit: OwnedSemaphorePermit) -> Result<Reply, Refusal> {
    let namenode = state.namenode.read();
    let (catalog, image) = (namenode.catalog(), namenode.catalog().image());
    let (names, bytes) = (catalog.name_count(), catalog.memory_bytes());
    drop(namenode);
    let began = std::time::Instant::now();
    let image = image.restored();
    let mut report = image.fsck();
    // An image has no index of names: it was made anew.
    let bound = image.name_count();
    if image.memory_bytes() != bytes {
        report.problems.push("the account of memory is not what the objects hold".to_owned());
    }
    if bound != names {
        report.problems.push(format!("{bound} objects have a name, {names} names are known"));
    }
    let pause = began.elapsed().min(Checks::PAUSE_MAX);
    tokio::runtime::Handle::current().spawn(async move {
        tokio::time::sleep(pause).await;
        drop(permit);
    });
    Ok(Reply::Fsck(report))
}
