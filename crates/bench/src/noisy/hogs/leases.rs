//! A reader on the datanode's machine that keeps its leases: many small ranges of its memory.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sanderling_client::{Client, PutOptions, Reader};
use sanderling_protocol::limits::BLOCK_BYTES_MAX;
use sanderling_protocol::local::COPIED_BYTES_MAX;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep};

use crate::noisy::setting;
use crate::noisy::stage::{HogContext, NotRun};

/// Bytes of each range: the fewest for which there is a lease, as shorter ones are copied.
const RANGE_BYTES: u64 = COPIED_BYTES_MAX as u64 + 1;

/// Leases that are kept; then each new one takes the place of the oldest. Of 4 KiB and a byte each
/// they are 256 MiB. Chosen, not measured.
const KEPT_MAX: usize = 1 << 16;

/// How long the client may take to find the datanode on its machine. The client's own search ends
/// after 3 s (`local/probe`). Chosen, not measured.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) async fn run(stage: Arc<HogContext>) -> Result<(), NotRun> {
    let path = stage.setting.hog_path("leases");
    let client = stage.setting.hog_client().await?;
    let bytes = Bytes::from(vec![0x5a; BLOCK_BYTES_MAX as usize]);
    client.put(&path, bytes, &PutOptions::replacing()).await?;
    let reader = client.open(&path).await?;
    let found = find(&client, &reader).await;
    if found.is_ok() {
        let mut tasks = JoinSet::new();
        let (own, its) = (Arc::clone(&stage), client.clone());
        tasks.spawn(async move { keep(&own, &its, &reader).await });
        stage.begun.cancel();
        stage.until_stopped(tasks).await;
        stage.note("an operation is a range that was leased; refused are those over TCP");
    }
    setting::delete(&client, &path).await?;
    found
}

/// Reads until the client uses the memory of a datanode on this machine.
async fn find(client: &Client, reader: &Reader) -> Result<(), NotRun> {
    let until = Instant::now() + DISCOVERY_TIMEOUT;
    while client.metrics().same_host_read_bytes == 0 {
        if Instant::now() >= until {
            return Err(NotRun("no datanode of this machine lends its memory".to_owned()));
        }
        reader.read_range(0, RANGE_BYTES).await?;
        sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

async fn keep(stage: &HogContext, client: &Client, reader: &Reader) {
    let mut kept: VecDeque<Bytes> = VecDeque::new();
    let ranges = u64::from(BLOCK_BYTES_MAX) / RANGE_BYTES;
    for turn in 0_u64.. {
        let before = client.metrics().same_host_read_bytes;
        match reader.read_range(turn % ranges * RANGE_BYTES, RANGE_BYTES).await {
            Ok(bytes) if client.metrics().same_host_read_bytes > before => {
                stage.done(1);
                if kept.len() == KEPT_MAX {
                    kept.pop_front();
                }
                kept.push_back(bytes);
            }
            Ok(_) => stage.refused(1),
            Err(error) => stage.client_failed(&error),
        }
        // Leases are given without waiting: nothing else would let the task be stopped.
        yield_now().await;
    }
}
