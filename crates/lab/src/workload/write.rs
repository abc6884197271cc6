//! Short-lived data: written, kept for a while, deleted.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use sanderling_client::{Client, ClientError, PutOptions};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::meter::Meter;
use super::{PIECE_BYTES, make_directory, path, spawn};
use crate::failure::Failure;

/// Calls that one object takes, each of a piece; 4 MiB, as a shuffle's partition may have. Chosen,
/// not measured.
const OBJECT_CALLS: u64 = 32;

/// Starts writers that do the meter's calls together. Each keeps its newest objects up to its share
/// of `live_bytes` and deletes the older ones.
///
/// # Errors
/// The directory's.
pub(crate) async fn write(
    client: &Client,
    writers: u32,
    live_bytes: u64,
    meter: &Arc<Meter>,
    ended: &CancellationToken,
) -> Result<JoinSet<()>, Failure> {
    make_directory(client).await?;
    // The object that is being written is live, too: with the experiment's own data none is kept.
    let keep = (live_bytes / u64::from(writers) / (OBJECT_CALLS * PIECE_BYTES)).saturating_sub(1);
    let keep = usize::try_from(keep).unwrap_or(usize::MAX);
    Ok(spawn(writers, ended, |index| {
        let (client, meter) = (client.clone(), Arc::clone(meter));
        let writer = WriteLoad { client, meter, index, keep, live: VecDeque::new(), count: 0 };
        writer.run()
    }))
}

struct WriteLoad {
    client: Client,
    meter: Arc<Meter>,
    index: u32,
    keep: usize,
    live: VecDeque<u64>,
    count: u64,
}

impl WriteLoad {
    async fn run(mut self) {
        let piece = Bytes::from(vec![0xa5; usize::try_from(PIECE_BYTES).expect("it fits")]);
        while self.meter.take(OBJECT_CALLS).is_some() {
            if let Err(error) = self.object(&piece).await {
                self.meter.failed("write", &error);
            }
            self.live.push_back(self.count);
            self.count += 1;
            while self.live.len() > self.keep {
                self.delete_oldest().await;
            }
        }
    }

    async fn object(&self, piece: &Bytes) -> Result<(), ClientError> {
        let mut writer = self.client.create(&self.path(self.count), &PutOptions::default()).await?;
        for _ in 0..OBJECT_CALLS {
            let began = Instant::now();
            writer.write_bytes(piece.clone()).await?;
            self.meter.took(began.elapsed());
            self.meter.written(PIECE_BYTES);
        }
        writer.close().await.map(|_| ())
    }

    async fn delete_oldest(&mut self) {
        let Some(oldest) = self.live.pop_front() else { return };
        if let Err(error) = self.client.delete(&self.path(oldest), false).await {
            self.meter.failed("delete", &error);
        }
    }

    fn path(&self, count: u64) -> sanderling_protocol::Path {
        path(&format!("writer-{}-{count}", self.index))
    }
}
