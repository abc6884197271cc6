//! Writers that wait for each of their writes: what they see is a round trip, or a stall.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sanderling_client::{Client, ClientError, PutOptions};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::meter::Meter;
use super::{path, spawn};

/// Bytes of one write. A block takes 512 of them, so that it is still open when its node receives a
/// notice, also where that takes a heartbeat.
const PIECE_BYTES: usize = 2 << 10;

/// Pause between two writes: a stall of a goal's length (10 ms) is seen, and the probes load no
/// link. Chosen, not measured.
const PAUSE: Duration = Duration::from_millis(10);

/// Writes to one object; then it is deleted and another one begun: four blocks, 4 MiB. Chosen, not
/// measured.
const OBJECT_CALLS: u32 = 2048;

/// Starts writers that go on until they are stopped. The meter notes how long each write took,
/// until it was acknowledged and could be read.
#[must_use]
pub(crate) fn probe(
    client: &Client,
    probes: u32,
    meter: &Arc<Meter>,
    stopped: &CancellationToken,
) -> JoinSet<()> {
    spawn(probes, stopped, |index| {
        let (client, meter) = (client.clone(), Arc::clone(meter));
        async move {
            loop {
                if let Err(error) = object(&client, index, &meter).await {
                    meter.failed("probe", &error);
                }
            }
        }
    })
}

async fn object(client: &Client, index: u32, meter: &Meter) -> Result<(), ClientError> {
    let path = path(&format!("probe-{index}"));
    let mut writer = client.create(&path, &PutOptions::replacing()).await?;
    let piece = Bytes::from(vec![0x5a; PIECE_BYTES]);
    for _ in 0..OBJECT_CALLS {
        let began = Instant::now();
        writer.write_bytes(piece.clone()).await?;
        writer.flush().await?;
        meter.took(began.elapsed());
        tokio::time::sleep(PAUSE).await;
    }
    writer.close().await?;
    client.delete(&path, false).await.map(|_| ())
}
