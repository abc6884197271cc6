//! What becomes of the data, and of its users, when a process is killed without a notice.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::cluster::{
    Cluster, Port, SOON, block_on, bytes_of, path, sanderling, until, until_gone, until_node,
};
use sanderling_client::{Client, ClientError, PutOptions};
use sanderling_protocol::refusal::ByteRange;
use sanderling_protocol::{Path, Policy};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Bytes of each object under load: two blocks and a bit, so that losses are partial, too.
const OBJECT_BYTES: usize = (2 << 20) + 77_777;

/// Longest that one call may take: the client's own deadline for each of its steps, and a busy
/// machine.
const CALL_MAX: Duration = SOON;

/// Stores objects until the flag is set.
struct Load {
    stop: CancellationToken,
    stored: Arc<AtomicU64>,
    writers: JoinSet<Written>,
}

/// What one writer got acknowledged, and the longest that one call took.
struct Written {
    acknowledged: Vec<(Path, u64)>,
    longest: Duration,
}

impl Load {
    fn start(client: &Client, writers: u64, objects_max: u64) -> Self {
        let (stop, stored) = (CancellationToken::new(), Arc::new(AtomicU64::new(0)));
        let mut tasks = JoinSet::new();
        for writer in 0..writers {
            let range = writer * 1000..writer * 1000 + objects_max;
            tasks.spawn(write_all(client.clone(), stop.clone(), Arc::clone(&stored), range));
        }
        Self { stop, stored, writers: tasks }
    }

    /// Waits until so many objects are stored.
    async fn reaches(&self, objects: u64) {
        let limit = Instant::now() + SOON;
        while self.stored.load(Ordering::Relaxed) < objects {
            assert!(Instant::now() < limit, "the load does not get to {objects} objects");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn end(mut self) -> Written {
        self.stop.cancel();
        let mut all = Written { acknowledged: Vec::new(), longest: Duration::ZERO };
        while let Some(written) = self.writers.join_next().await {
            let written = written.expect("no writer panics");
            all.acknowledged.extend(written.acknowledged);
            all.longest = all.longest.max(written.longest);
        }
        all
    }
}

async fn write_all(
    client: Client,
    stop: CancellationToken,
    stored: Arc<AtomicU64>,
    seeds: std::ops::Range<u64>,
) -> Written {
    let mut written = Written { acknowledged: Vec::new(), longest: Duration::ZERO };
    for seed in seeds {
        if stop.is_cancelled() {
            break;
        }
        let to = path(&format!("/load-{seed}"));
        let began = Instant::now();
        let put = client.put(&to, bytes_of(seed, OBJECT_BYTES), &PutOptions::default()).await;
        written.longest = written.longest.max(began.elapsed());
        // What was not acknowledged is no loss.
        if put.is_ok() {
            written.acknowledged.push((to, seed));
            stored.fetch_add(1, Ordering::Relaxed);
        }
    }
    written
}

#[test]
fn killed_datanode_loses_exactly_what_the_report_lists() {
    let mut cluster = Cluster::of(4);
    block_on(async {
        let client = cluster.client().await;
        let load = Load::start(&client, 3, 12);
        load.reaches(12).await;
        cluster.datanode("n2").kill();
        let killed = Instant::now();
        until_gone(&client, "n2").await;
        println!("declared dead after {:?}", killed.elapsed());
        let written = load.end().await;
        assert!(written.longest < CALL_MAX, "a writer waited {:?}", written.longest);

        let reported = reported(&client).await;
        let mut lost_objects = 0;
        for (object, seed) in &written.acknowledged {
            let whole = bytes_of(*seed, OBJECT_BYTES);
            let lost = reported.get(object).cloned().unwrap_or_default();
            lost_objects += usize::from(!lost.is_empty());
            match client.get(object).await {
                Ok(read) => {
                    assert!(lost.is_empty(), "{object} is reported lost and can be read");
                    assert!(read == whole, "{object} has other bytes");
                }
                Err(ClientError::DataUnavailable { ranges, .. }) => {
                    assert_eq!(ranges, lost, "{object}");
                    assert_rest_is_readable(&client, object, &whole, &lost).await;
                }
                Err(error) => panic!("{object}: {error}"),
            }
        }
        assert!(lost_objects > 0, "the node held nothing: the test shows nothing");
        println!("{lost_objects} of {} objects lost something", written.acknowledged.len());
        let ran = cluster.cli(&["fsck"]);
        assert_eq!(ran.code, 5, "{ran}");
        let ran = cluster.cli(&["fs", "cat", reported.keys().next().expect("some").as_str()]);
        assert_eq!(ran.code, 5, "{ran}");
    });
}

/// Returns the reported losses by object, in the order of their offsets, adjacent ones joined.
async fn reported(client: &Client) -> BTreeMap<Path, Vec<ByteRange>> {
    let report = client.report().await.expect("the namenode answers");
    let mut by_object: BTreeMap<Path, Vec<ByteRange>> = BTreeMap::new();
    for loss in report.losses {
        by_object.entry(loss.path).or_default().extend(loss.ranges);
    }
    for ranges in by_object.values_mut() {
        ranges.sort();
        let mut joined: Vec<ByteRange> = Vec::new();
        for range in ranges.drain(..) {
            match joined.last_mut() {
                Some(last) if last.offset + last.bytes == range.offset => last.bytes += range.bytes,
                _ => joined.push(range),
            }
        }
        *ranges = joined;
    }
    by_object
}

async fn assert_rest_is_readable(client: &Client, object: &Path, whole: &[u8], lost: &[ByteRange]) {
    let mut at = 0;
    let end = ByteRange { offset: whole.len() as u64, bytes: 0 };
    for range in lost.iter().chain([&end]) {
        if range.offset > at {
            let read = client.get_range(object, at, range.offset - at).await.expect("not lost");
            let from = usize::try_from(at).expect("small");
            assert!(read[..] == whole[from..from + read.len()], "{object} has other bytes at {at}");
        }
        at = range.offset + range.bytes;
    }
}

#[test]
fn killed_namenode_loses_nothing_that_was_acknowledged() {
    let mut cluster = Cluster::of(3);
    block_on(async {
        let client = cluster.client().await;
        let load = Load::start(&client, 3, 14);
        load.reaches(9).await;
        cluster.restart_namenode();
        load.reaches(15).await;
        cluster.restart_namenode();
        load.reaches(21).await;
        let written = load.end().await;
        println!("longest call over two restarts: {:?}", written.longest);
        assert!(written.longest < CALL_MAX, "a writer waited {:?}", written.longest);
        for (object, seed) in &written.acknowledged {
            let read = client.get(object).await.expect("acknowledged");
            assert!(read == bytes_of(*seed, OBJECT_BYTES), "{object} has other bytes");
        }
        let fsck = client.fsck().await.expect("the namenode answers");
        assert_eq!((fsck.lost_blocks, fsck.problems.len()), (0, 0), "{fsck:?}");
        // Every node is taken back as the incarnation that it was.
        let nodes = client.nodes(true).await.expect("the namenode answers");
        assert_eq!(nodes.len(), 3, "{nodes:?}");
    });
}

#[test]
fn name_of_a_killed_writer_can_be_used_again() {
    let cluster = Cluster::of(2);
    let namenode = cluster.namenode.address.clone();
    let mut writer = sanderling()
        .args(["--namenode", &namenode, "fs", "put", "-", "/half"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program can be started");
    let mut stdin = writer.stdin.take().expect("piped");
    stdin.write_all(&bytes_of(3, 3 << 20)).expect("the writer reads");
    until("the name is taken", SOON, || {
        (cluster.cli(&["fs", "stat", "/half"]).code == 0).then_some(())
    });
    let ran = cluster.cli(&["fs", "put", "/proc/version", "/half"]);
    assert_eq!(ran.code, 1, "a second writer of a new name is refused: {ran}");
    assert!(ran.stderr.contains("exists"), "{ran}");
    writer.kill().expect("our own child");
    writer.wait().expect("our own child");
    drop(stdin);
    // The lease of ten seconds ends.
    until("the object is sealed for its writer", SOON, || {
        let stat = cluster.cli(&["fs", "stat", "/half", "--json"]);
        let stat: serde_json::Value = serde_json::from_str(&stat.stdout).ok()?;
        let is_sealed = stat["objects"][0]["is_sealed"] == true;
        is_sealed.then_some(())
    });
    let ran = cluster.cli(&["fs", "put", "--force", "/proc/version", "/half"]);
    assert_eq!(ran.code, 0, "{ran}");
    let read = cluster.cli(&["fs", "cat", "/half"]);
    assert_eq!(read.stdout, std::fs::read_to_string("/proc/version").expect("Linux"));
    let fsck = cluster.json(&["fsck", "--deep"]);
    assert_eq!(fsck["open_blocks"], 0, "{fsck}");
}

#[test]
fn interrupted_put_gives_its_name_back_at_once() {
    // On a busy machine the two seconds that it takes for that at most may be too short.
    let is_whole = (0..3).any(|_| {
        let cluster = Cluster::of(1);
        let is_free = is_given_back(&cluster, "/half");
        if is_free {
            until("no bytes are used", SOON, || {
                (cluster.json(&["fs", "df"])["used_bytes"] == 0).then_some(())
            });
        }
        is_free
    });
    assert!(is_whole, "the name is taken until the lease ends");
}

/// Interrupts a put in the middle. Returns whether its name is free when it has ended.
fn is_given_back(cluster: &Cluster, name: &str) -> bool {
    let namenode = cluster.namenode.address.clone();
    let mut writer = sanderling()
        .args(["--namenode", &namenode, "fs", "put", "-", name])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program can be started");
    let mut stdin = writer.stdin.take().expect("piped");
    stdin.write_all(&bytes_of(3, 3 << 20)).expect("the writer reads");
    until("the name is taken", SOON, || {
        (cluster.cli(&["fs", "stat", name]).code == 0).then_some(())
    });
    let pid = i32::try_from(writer.id()).ok().and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(pid.expect("a pid"), rustix::process::Signal::INT)
        .expect("it runs");
    let status = until("the writer ends", SOON, || writer.try_wait().expect("our own child"));
    assert_eq!(status.code(), Some(130));
    cluster.cli(&["fs", "stat", name]).code == 3
}

#[test]
fn stopped_datanode_hangs_no_caller_and_never_serves_again_as_it_was() {
    let mut cluster = Cluster::of(3);
    block_on(async {
        let client = cluster.client().await;
        let load = Load::start(&client, 2, 4);
        load.reaches(8).await;
        let written = load.end().await;
        cluster.datanode("n0").pause();
        let mut reads = JoinSet::new();
        for (object, seed) in written.acknowledged.clone() {
            let client = client.clone();
            reads.spawn(async move {
                let began = Instant::now();
                (client.get(&object).await, object, seed, began.elapsed())
            });
        }
        let mut failed = 0;
        while let Some(read) = reads.join_next().await {
            let (read, object, seed, took) = read.expect("no reader panics");
            assert!(took < CALL_MAX, "{object} took {took:?}");
            match read {
                Ok(read) => assert!(read == bytes_of(seed, OBJECT_BYTES), "{object}"),
                Err(ClientError::DataUnavailable { .. } | ClientError::TimedOut { .. }) => {
                    failed += 1;
                }
                Err(error) => panic!("{object}: {error}"),
            }
        }
        assert!(failed > 0, "the node held nothing: the test shows nothing");
        until_gone(&client, "n0").await;
        cluster.datanode("n0").resume();
        let again = until_node(&client, "n0", "back", |node| node.policy == Policy::Active).await;
        assert!(again.id.0 > cluster.datanode("n0").node, "{again:?}");
        // What was declared lost stays lost, although the bytes may still be in that memory.
        let reported = reported(&client).await;
        for (object, seed) in &written.acknowledged {
            match client.get(object).await {
                Ok(read) => {
                    assert!(!reported.contains_key(object), "{object} came back from the dead");
                    assert!(read == bytes_of(*seed, OBJECT_BYTES), "{object}");
                }
                Err(ClientError::DataUnavailable { ranges, .. }) => {
                    assert_eq!(Some(&ranges), reported.get(object), "{object}");
                }
                Err(error) => panic!("{object}: {error}"),
            }
        }
    });
}

#[test]
fn command_on_a_dead_namenode_ends_with_4_at_once() {
    let mut cluster = Cluster::of(0);
    cluster.namenode.kill();
    for words in [&["fs", "ls"][..], &["node", "ls"], &["fsck"], &["events", "--follow"]] {
        let ran = cluster.cli(words);
        assert_eq!(ran.code, 4, "{words:?}: {ran}");
        assert!(ran.took < SOON, "{words:?} took {:?}", ran.took);
        assert!(ran.stderr.contains("next:"), "{ran}");
    }
}

#[test]
fn datanode_started_again_under_its_name_is_another_incarnation() {
    let mut cluster = Cluster::of(1);
    let port = Port::new();
    let address = port.address();
    let before = cluster.add("n1", &["--listen", &address]).node;
    block_on(async {
        let client = cluster.client().await;
        let load = Load::start(&client, 1, 6);
        load.reaches(6).await;
        let written = load.end().await;
        cluster.datanode("n1").kill();
        until_gone(&client, "n1").await;
        cluster.datanodes.retain(|server| server.name != "n1");
        let again = cluster.add("n1", &["--listen", &address]).node;
        assert!(again > before, "incarnation {again} after {before}");
        let reported = reported(&client).await;
        for (object, seed) in &written.acknowledged {
            match client.get(object).await {
                Ok(read) => assert!(read == bytes_of(*seed, OBJECT_BYTES), "{object}"),
                Err(ClientError::DataUnavailable { .. }) => {
                    assert!(reported.contains_key(object), "{object} is lost and not reported");
                }
                Err(error) => panic!("{object}: {error}"),
            }
        }
    });
}
