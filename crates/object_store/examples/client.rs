//! The Rust client: whole objects, streams, ranges, and what to do about an error.

use sanderling_client::{Client, ClientConfig, ClientError, PutOptions};
use sanderling_protocol::Path;
use sanderling_protocol::refusal::{ByteRange, Recovery};

/// Writes and reads a few objects of the cluster whose namenode is at `host:port`.
pub(crate) async fn run(namenode: &str) -> Result<(), ClientError> {
    let client = Client::connect(namenode, ClientConfig::default()).await?;
    let path = |text: &str| text.parse::<Path>().expect("a valid path");

    // Whole objects. `replacing` makes missing directories and replaces what exists.
    let part = path("/job/part-0");
    client.put(&part, "some rows".into(), &PutOptions::replacing()).await?;
    assert_eq!(client.get(&part).await?, "some rows");

    // Streams of any length with bounded memory. Nothing half-written appears.
    let log = path("/job/log");
    let mut writer = client.create(&log, &PutOptions::replacing()).await?;
    for line in 0..100_000 {
        writer.write(format!("line {line}\n").as_bytes()).await?;
    }
    let stat = writer.close().await?;
    let mut stream = client.open(&log).await?.stream(1 << 20);
    let mut bytes = 0;
    while let Some(piece) = stream.next().await {
        bytes += piece?.len() as u64;
    }
    assert_eq!(bytes, stat.bytes);

    // Many ranges at once: one call for all ranges of a datanode.
    let ranges = [ByteRange { offset: 5, bytes: 1 }, ByteRange { offset: 12, bytes: 1 }];
    assert_eq!(client.get_ranges(&log, &ranges).await?, ["0", "1"]);

    // Every error names the next step.
    let missing = client.get(&path("/job/part-1")).await.expect_err("nothing is there");
    match missing.recovery() {
        Recovery::Recompute => eprintln!("its bytes are lost: compute {missing} again"),
        Recovery::RetryAfter(pause) => eprintln!("try again in {pause}"),
        _ => eprintln!("{missing}"),
    }
    client.delete(&path("/job"), true).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), ClientError> {
    let namenode = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7600".to_owned());
    run(&namenode).await
}
