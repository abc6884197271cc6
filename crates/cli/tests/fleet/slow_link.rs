//! Reads through a link that is slower than a client waits for a sign of life.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, Killed, SOON, Shape, block_on, bytes_of, path, sanderling};
use rustix::process::{Signal, kill_process};
use sanderling_client::PutOptions;
use sanderling_protocol::message::{Hello, Role};
use sanderling_protocol::{Header, Op};
use sanderling_transport::{CallError, Connection, ConnectionOptions};

/// Flags of a node that sends as much in a second.
const SLOW: [&str; 2] = ["--egress-limit", "512KiB"];

fn start() -> Cluster {
    let mut cluster = Cluster::start(Shape { datanodes: 0, ..Shape::default() });
    cluster.add("n0", &SLOW);
    cluster
}

/// The node holds the answer to each request of 4 MiB for 8 s. A client takes a node for dead from
/// which it sees nothing for 3 s.
#[test]
fn file_is_read_through_a_link_that_takes_long_for_an_answer() {
    let cluster = start();
    let place = tempfile::TempDir::new().expect("a directory");
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    let bytes = bytes_of(1, 9 << 20);
    std::fs::write(&from, &bytes).expect("written");
    let (from, to) = (from.to_str().expect("UTF-8"), to.to_str().expect("UTF-8"));
    let put = cluster.cli(&["fs", "put", from, "/file"]);
    assert_eq!(put.code, 0, "{put}");
    let got = cluster.cli(&["fs", "get", "/file", to, "--timeout", "90s"]);
    assert_eq!(got.code, 0, "{got}");
    assert!(std::fs::read(to).expect("readable") == bytes, "the file has other bytes");
}

/// Without that, the read would wait for 40 s behind those that nothing waits for, longer than its
/// 10 s.
#[test]
fn reads_that_were_given_up_delay_no_later_one() {
    const MANY: u64 = 20;
    let cluster = start();
    block_on(async {
        let client = cluster.client().await;
        for seed in 0..=MANY {
            let to = path(&format!("/{seed}"));
            client.put(&to, bytes_of(seed, 1 << 20), &PutOptions::default()).await.expect("stored");
        }
        let readers = (0..MANY).map(|seed| {
            let client = client.clone();
            tokio::spawn(async move { client.get(&path(&format!("/{seed}"))).await })
        });
        let readers: Vec<_> = readers.collect();
        let limit = Instant::now() + SOON;
        while !readers.iter().any(tokio::task::JoinHandle::is_finished) {
            assert!(Instant::now() < limit, "none of {MANY} objects was read");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        for reader in readers {
            reader.abort();
        }
        let found = client.get(&path(&format!("/{MANY}"))).await.expect("read in its time");
        assert!(found == bytes_of(MANY, 1 << 20), "the object has other bytes");
    });
}

/// A peer that takes nothing: its answers fill the buffers of its connection, and further ones wait
/// in the node.
#[test]
fn reader_that_stands_still_delays_no_other() {
    const BIG: usize = 48 << 20;
    let mut cluster = Cluster::start(Shape { datanodes: 0, ..Shape::default() });
    cluster.add("n0", &["--egress-limit", "16MiB"]);
    block_on(async {
        let client = cluster.client().await;
        for (name, bytes) in [("/big", BIG), ("/small", 1 << 20)] {
            client
                .put(&path(name), bytes_of(1, bytes), &PutOptions::default())
                .await
                .expect("stored");
        }
        let place = tempfile::TempDir::new().expect("a directory");
        let mut command = sanderling();
        command.args(["fs", "get", "/big"]).arg(place.path().join("big"));
        command.env("SANDERLING_NAMENODE", &cluster.namenode.address);
        let mut reader = command.stderr(Stdio::null()).spawn().expect("started");
        let pid = rustix::process::Pid::from_child(&reader);
        let limit = Instant::now() + SOON;
        while held(place.path()) == 0 {
            assert!(Instant::now() < limit, "it fetches nothing");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        kill_process(pid, Signal::STOP).expect("it runs");
        let began = Instant::now();
        // So long that the kernel takes no more of its answers.
        while began.elapsed() < Duration::from_secs(2) {
            let read = client.get(&path("/small")).await.expect("read in its time");
            assert!(read == bytes_of(1, 1 << 20), "the object has other bytes");
        }
        kill_process(pid, Signal::CONT).expect("it stands still");
        let ended = tokio::task::spawn_blocking(move || reader.wait()).await.expect("it ends");
        assert_eq!(ended.expect("our own child").code(), Some(0));
    });
}

/// A command that reads, in a process that is stopped for a while. It ends with the test.
struct StoppedReader(Killed);

impl StoppedReader {
    /// Begins to read an object into a directory; stops when some of it is there.
    async fn of(cluster: &Cluster, object: &str, place: &std::path::Path) -> Self {
        let mut command = sanderling();
        command.args(["fs", "get", object]).arg(place.join("object")).args(["--timeout", "90s"]);
        command.env("SANDERLING_NAMENODE", &cluster.namenode.address);
        let reader = Self(Killed(command.stderr(Stdio::null()).spawn().expect("started")));
        let limit = Instant::now() + SOON;
        while held(place) == 0 {
            assert!(Instant::now() < limit, "it fetches nothing");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        reader.0.signal(Signal::STOP);
        reader
    }

    /// Lets it go on, and waits for its end.
    fn go_on(mut self) -> Option<i32> {
        self.0.signal(Signal::CONT);
        self.0.wait().expect("our own child").code()
    }
}

/// The same for what is read from a disk: a node keeps little of that for all of its peers. Two
/// readers have more under way than that.
#[test]
fn readers_that_stand_still_delay_no_other_that_reads_from_the_disk() {
    /// Longer than a read waits for what others keep, and less than such a reader is waited for.
    const STOPPED: Duration = Duration::from_secs(8);
    let mut cluster = Cluster::start(Shape { datanodes: 0, ..Shape::default() });
    let directory = cluster.path("disk");
    let directory = directory.to_str().expect("a name in UTF-8");
    let disk = ["--disk", "64MiB", "--disk-dir", directory, "--local-socket", "none"];
    cluster.add("n0", &[&disk[..], &["--egress-limit", "16MiB"][..]].concat());
    block_on(async {
        let client = cluster.client().await;
        let class = "disk".parse().expect("a class");
        for (name, bytes) in [("/big", 48 << 20), ("/small", 1 << 20)] {
            let options = PutOptions { class, ..PutOptions::default() };
            client.put(&path(name), bytes_of(1, bytes), &options).await.expect("stored");
        }
        let places = [(); 2].map(|()| tempfile::TempDir::new().expect("a directory"));
        let mut readers = Vec::new();
        for place in &places {
            readers.push(StoppedReader::of(&cluster, "/big", place.path()).await);
        }
        let began = Instant::now();
        while began.elapsed() < STOPPED {
            let small = path("/small");
            let read = tokio::time::timeout(STOPPED, client.get(&small)).await;
            let read = read.expect("read in its time").expect("read");
            assert!(read == bytes_of(1, 1 << 20), "the object has other bytes");
        }
        for reader in readers {
            let ended = tokio::task::spawn_blocking(move || reader.go_on()).await;
            assert_eq!(ended.expect("it ends"), Some(0));
        }
    });
}

/// Short answers keep to the rate as well: what they take together delays a long one, and no more.
#[test]
fn many_short_reads_starve_no_long_one() {
    let cluster = start();
    block_on(async {
        let client = cluster.client().await;
        for (name, bytes) in [("/short", 64 << 10), ("/long", 256 << 10)] {
            client
                .put(&path(name), bytes_of(1, bytes), &PutOptions::default())
                .await
                .expect("stored");
        }
        let read = Arc::new(AtomicU64::new(0));
        let (began, limit) = (Instant::now(), 512 << 10);
        let hogs = (0..64).map(|_| {
            let (client, read) = (client.clone(), Arc::clone(&read));
            tokio::spawn(async move {
                let reader = client.open(&path("/short")).await.expect("it is there");
                loop {
                    reader.read_range(0, 1000).await.expect("read in its time");
                    read.fetch_add(1000, Ordering::Relaxed);
                }
            })
        });
        let hogs: Vec<_> = hogs.collect();
        while began.elapsed() < Duration::from_secs(3) {
            let long = client.get(&path("/long")).await.expect("read in its time");
            assert!(long == bytes_of(1, 256 << 10), "the object has other bytes");
        }
        let (short, passed) = (read.load(Ordering::Relaxed), began.elapsed().as_secs() + 1);
        assert!(short <= limit * (passed + 1), "{short} bytes in {passed} s: more than the limit");
        assert!(!hogs.iter().any(tokio::task::JoinHandle::is_finished), "a short read failed");
        hogs.iter().for_each(tokio::task::JoinHandle::abort);
        // Nothing is left of them that others would have to wait for.
        client.get(&path("/long")).await.expect("read in its time");
    });
}

/// Whatever an admitted peer sends, it is refused, and the connection goes on.
#[test]
fn operations_that_a_datanode_does_not_serve_are_refused_and_end_no_connection() {
    let mut cluster = Cluster::of(1);
    block_on(async {
        let address = cluster.datanode("n0").address.clone();
        let hello = Hello { role: Role::Client, cluster: None, node: None, token: None };
        let limit = tokio::time::Instant::now() + SOON;
        let options = ConnectionOptions::default();
        let met = Connection::connect_with(&address, hello, limit, &options).await;
        let (connection, _) = met.expect("admitted");
        for op in [Op::Meta, Op::Lease, Op::Return, Op::Stage, Op::Fill, Op::Group, Op::Read] {
            let answer = connection.call(Header::new(op, 0), Vec::new(), limit).await;
            assert!(matches!(answer, Err(CallError::Refused(_))), "{op:?}: {answer:?}");
        }
    });
}

/// Returns how many bytes are in the files of a directory.
fn held(place: &std::path::Path) -> u64 {
    let entries = std::fs::read_dir(place).expect("readable").flatten();
    entries.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum()
}
