//! Reads of blocks that are not the reader's: the namenode is to find their owners. Neither what a
//! datanode itself sends nor what others read and write waits behind that.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::cluster::guarded::{Guarded, Line};
use crate::cluster::{SOON, block_on_within, bytes_of, http, path, until_drained};
use sanderling_client::{Client, PutOptions};
use sanderling_protocol::frame::RangeRequest;
use sanderling_protocol::message::BlockLocation;
use sanderling_protocol::{Header, Op, Path, Policy, Refusal};
use tokio::task::{JoinHandle, JoinSet};

/// Files of others, each with a block, in a directory of its own below a deep one. As many as one
/// frame may have ranges, but for some.
const FILES: usize = 1000;

/// Directories above these, and the length of the name of each: a path of 29 KB.
const DEPTH: usize = 120;
const NAME_BYTES: usize = 240;

/// Bytes of each file: too many for the catalog.
const FILE_BYTES: usize = 600;

/// Files that are stored at once.
const STORED_AT_ONCE: usize = 50;

/// Reads of all those blocks that are under way at each datanode, again and again. They are more
/// than a connection carries, and take the namenode longer than a heartbeat waits.
const READS: usize = 450;

/// Connections over which these come.
const LINES: usize = 4;

fn deep(number: usize) -> Path {
    let above = format!("/{}", "d".repeat(NAME_BYTES)).repeat(DEPTH);
    path(&format!("{above}/{number}/f"))
}

async fn store(client: Client, file: Path) -> BlockLocation {
    let options = PutOptions { parents: true, ..PutOptions::default() };
    client.put(&file, bytes_of(1, FILE_BYTES), &options).await.expect("stored");
    let layout = client.layout(&file, 0..FILE_BYTES as u64).await.expect("it is there");
    layout.blocks[0]
}

/// Stores the files of others; returns the ranges of a read of all their blocks.
async fn store_deep(client: &Client) -> Arc<Vec<u8>> {
    let mut ranges = Vec::new();
    for first in (0..FILES).step_by(STORED_AT_ONCE) {
        let mut storing = JoinSet::new();
        for number in first..first + STORED_AT_ONCE {
            storing.spawn(store(client.clone(), deep(number)));
        }
        while let Some(stored) = storing.join_next().await {
            let BlockLocation { block, epoch, .. } = stored.expect("it ends");
            RangeRequest { block, epoch, offset: 0, length: 9 }.encode(&mut ranges);
        }
    }
    Arc::new(ranges)
}

/// Reads the blocks of others without end; counts the reads that are refused because of that.
async fn read_again(line: Arc<Line>, ranges: Arc<Vec<u8>>, forbidden: Arc<AtomicUsize>) {
    loop {
        match line.call(Header::new(Op::ReadMany, 0), ranges.to_vec()).await {
            Err(Refusal::Forbidden { .. }) => {
                forbidden.fetch_add(1, Ordering::Relaxed);
            }
            Err(Refusal::RetryAfter { after, .. }) => tokio::time::sleep(after.into()).await,
            other => panic!("{:?}", other.map(|bytes| bytes.len())),
        }
    }
}

/// Begins the reads of a tenant at all datanodes.
async fn begin_reads(
    guarded: &Guarded,
    ranges: &Arc<Vec<u8>>,
    forbidden: &Arc<AtomicUsize>,
) -> Vec<JoinHandle<()>> {
    let token = guarded.token(&["--subject", "noisy", "--subtree", "/a/x"]);
    let mut reads = Vec::new();
    for server in &guarded.cluster.datanodes {
        let mut lines = Vec::new();
        for _ in 0..LINES {
            let line = Line::to(guarded, &server.address, &token).await.expect("admitted");
            lines.push(Arc::new(line));
        }
        reads.extend((0..READS).map(|number| {
            let line = Arc::clone(&lines[number % LINES]);
            tokio::spawn(read_again(line, Arc::clone(ranges), Arc::clone(forbidden)))
        }));
    }
    reads
}

#[test]
fn node_gives_its_notice_and_others_write_while_a_tenant_reads_blocks_of_others() {
    let guarded = Guarded::start(2);
    let admin = guarded.token(&["--role", "admin"]);
    block_on_within(Duration::from_secs(500), async {
        let client = guarded.cluster.client_of(guarded.config(&admin)).await;
        let ranges = store_deep(&client).await;
        let nodes = client.nodes(false).await.expect("it answers");
        let forbidden = Arc::new(AtomicUsize::new(0));
        let reads = begin_reads(&guarded, &ranges, &forbidden).await;
        let limit = Instant::now() + SOON;
        while forbidden.load(Ordering::Relaxed) == 0 {
            assert!(Instant::now() < limit, "no read is refused");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let address = &guarded.cluster.datanodes[0].http_address;
        let body = r#"{"deadline_seconds": 300, "reason": "test"}"#;
        let limit = Instant::now() + SOON;
        loop {
            let page = ("POST", "/v1/notice");
            let answer = http::send(address, page, Some(admin.reveal()), body).await;
            if answer.starts_with("HTTP/1.1 200") {
                break;
            }
            assert!(Instant::now() < limit, "the notice does not reach the namenode: {answer}");
        }
        until_drained(&client, "n0").await;
        // Of this tenant's blocks the same is to be found, at a node that gets the reads, too.
        let other = guarded.client(&["--subject", "other", "--subtree", "/b"]).await;
        let (file, bytes) = (path("/b/file"), bytes_of(2, 2 << 20));
        let options = PutOptions { parents: true, ..PutOptions::default() };
        other.put(&file, bytes.clone(), &options).await.expect("written");
        assert!(other.get(&file).await.expect("read") == bytes);
        assert!(!reads.iter().any(JoinHandle::is_finished), "all reads went on");
        reads.iter().for_each(JoinHandle::abort);
        let after = client.nodes(true).await.expect("it answers");
        for node in nodes {
            let is_kept = after.iter().any(|it| it.id == node.id && it.policy != Policy::Gone);
            assert!(is_kept, "the node was given up: {after:?}");
        }
    });
}
