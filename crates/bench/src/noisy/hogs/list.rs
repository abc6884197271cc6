//! Two clients that list the directory of many names, page by page.

use std::sync::Arc;

use sanderling_protocol::limits::LIST_PAGE_MAX;
use tokio::task::JoinSet;

use crate::noisy::stage::{HogContext, NotRun};

/// Clients that list: one for each of the hog's threads.
const CLIENTS: usize = 2;

pub(super) async fn run(stage: Arc<HogContext>) -> Result<(), NotRun> {
    let mut tasks = JoinSet::new();
    for _ in 0..CLIENTS {
        let client = stage.setting.hog_client().await?;
        let stage = Arc::clone(&stage);
        tasks.spawn(async move {
            let mut after = String::new();
            loop {
                match client.list(&stage.setting.big, &after, LIST_PAGE_MAX as u32).await {
                    Ok((mut entries, is_more)) => {
                        stage.done(1);
                        let last = entries.pop().filter(|_| is_more);
                        after = last.map_or_else(String::new, |last| last.name);
                    }
                    Err(error) => stage.client_failed(&error),
                }
            }
        });
    }
    stage.begun.cancel();
    stage.until_stopped(tasks).await;
    Ok(())
}
