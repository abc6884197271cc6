//! Connections to a datanode that request blocks and never read the answers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sanderling_client::{Client, PutOptions};
use sanderling_protocol::frame::{HEADER_BYTES, encode_body};
use sanderling_protocol::limits::BLOCK_BYTES_MAX;
use sanderling_protocol::message::{BlockLocation, Hello, Role};
use sanderling_protocol::{Header, NodeId, Op, version};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::noisy::setting;
use crate::noisy::stage::{HogContext, NotRun};

/// Connections. With 32 reads of 1 MiB each they request 2 GiB, more than a datanode of the
/// benchmark has memory for. Chosen, not measured.
const CONNECTIONS: usize = 64;

/// Reads of 1 MiB that each connection requests. Bounds what a datanode that kept all answers would
/// keep, 2 GiB. Chosen, not measured.
const PIPELINE: u64 = 32;

/// Time between two looks whether the datanode has closed a connection: a closed one is replaced
/// soon, and 64 looks cost little. Chosen, not measured.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// What is read, and from which datanode.
#[derive(Debug, Clone)]
struct ReadTarget {
    address: String,
    node: NodeId,
    block: BlockLocation,
}

pub(super) async fn run(stage: Arc<HogContext>) -> Result<(), NotRun> {
    if stage.setting.hog_credentials.tls.is_some() {
        return Err(NotRun("its bare connections do not speak TLS".to_owned()));
    }
    let path = stage.setting.hog_path("deaf");
    let client = stage.setting.hog_client().await?;
    let bytes = Bytes::from(vec![0x5a; BLOCK_BYTES_MAX as usize]);
    client.put(&path, bytes, &PutOptions::replacing()).await?;
    let target = target(&client, &path).await?;
    let mut tasks = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (stage, target) = (Arc::clone(&stage), target.clone());
        tasks.spawn(async move {
            loop {
                if let Err(NotRun(why)) = one(&stage, &target).await {
                    tracing::debug!(why, "a connection ended");
                }
                stage.broke();
                sleep(POLL_INTERVAL).await;
            }
        });
    }
    stage.begun.cancel();
    stage.until_stopped(tasks).await;
    setting::delete(&client, &path).await?;
    stage.note("an operation is a read that was requested");
    Ok(())
}

async fn target(client: &Client, path: &sanderling_protocol::Path) -> Result<ReadTarget, NotRun> {
    let layout = client.layout(path, 0..u64::MAX).await?;
    let found = layout.blocks.first().and_then(|block| {
        let place = layout.places.iter().find(|place| Some(place.node) == block.home)?;
        Some(ReadTarget { address: place.address.clone(), node: place.node, block: *block })
    });
    found.ok_or_else(|| NotRun("its object has no block".to_owned()))
}

/// One connection, until the datanode closes it.
async fn one(stage: &HogContext, target: &ReadTarget) -> Result<(), NotRun> {
    let mut stream = TcpStream::connect(&target.address).await?;
    let node = Some(target.node);
    let mut hello = Hello { role: Role::Client, cluster: None, node, token: None };
    stage.setting.hog_credentials.sign(&target.address, &mut hello)?;
    let body = encode_body(&hello);
    let mut header = Header { flags: version::greeting_flags(), ..Header::new(Op::Hello, 0) };
    header.body_bytes = u32::try_from(body.len()).expect("a greeting is short");
    stream.write_all(&header.encode()).await?;
    stream.write_all(&body).await?;
    let mut answer = [0; HEADER_BYTES];
    stream.read_exact(&mut answer).await?;
    if Header::decode(&answer).map_err(|error| NotRun(error.to_string()))?.status != 0 {
        stage.refused(1);
        return Ok(());
    }
    for request in 1..=PIPELINE {
        let mut header = Header::new(Op::Read, request);
        (header.block, header.epoch) = (target.block.block, target.block.epoch);
        header.length = target.block.length;
        stream.write_all(&header.encode()).await?;
        stage.done(1);
    }
    loop {
        sleep(POLL_INTERVAL).await;
        let ready = stream.ready(Interest::READABLE).await?;
        if ready.is_read_closed() || ready.is_error() {
            return Ok(());
        }
    }
}
