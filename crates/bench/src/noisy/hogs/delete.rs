//! A directory of many names, made and deleted with one request, again and again.

use std::sync::Arc;

use sanderling_protocol::message::Attributes;
use tokio::task::JoinSet;

use crate::noisy::stage::{HogContext, NotRun};
use crate::noisy::{fill, setting};

/// Names, for each entry of the directory that other hogs list: 100,000 by default, so that the
/// namenode still frees them when the next deletion comes. Chosen, not measured.
const NAMES_PER_ENTRY: u64 = 5;

pub(super) async fn run(stage: Arc<HogContext>) -> Result<(), NotRun> {
    let directory = stage.setting.hog_path("deleted");
    let names = stage.setting.entries.saturating_mul(NAMES_PER_ENTRY);
    let none = Attributes::none();
    let client = stage.setting.hog_client().await?;
    fill::fill(&stage.setting, &directory, names, &none).await?;
    let mut tasks = JoinSet::new();
    let (own, looped, path) = (Arc::clone(&stage), client.clone(), directory.clone());
    tasks.spawn(async move {
        loop {
            match looped.delete(&path, true).await {
                Ok(_) => own.done(1),
                Err(error) => own.client_failed(&error),
            }
            if let Err(NotRun(why)) = fill::fill(&own.setting, &path, names, &none).await {
                own.refused(1);
                tracing::debug!(why, "a directory was not filled");
            }
        }
    });
    stage.begun.cancel();
    stage.until_stopped(tasks).await;
    setting::delete(&client, &directory).await?;
    stage.note(format_args!("an operation is the deletion of a directory of {names} names"));
    Ok(())
}
