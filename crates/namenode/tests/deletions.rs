//! A deletion of very many names is made at once, and freed between the requests of others.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::path::{Path as FilePath, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{self, directory, inline, options, path, start, stat};
use sanderling_namenode::NamenodeOptions;
use sanderling_protocol::message::{
    Attributes, BlockLength, Create, CreateMode, JobHints, JobLimits, RegisterJob,
    RegisterLimitedJob,
};
use sanderling_protocol::{Millis, Nonce, Refusal, Reply, Request};
use sanderling_transport::{Pool, PoolOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Names that are deleted together.
const NAMES: usize = 20_000;

/// Entries of a slice: so few that a deletion takes four seconds at least.
const SLICE: u32 = 5;

/// Set in the process that is killed: its directory.
const SERVES: &str = "SANDERLING_TEST_SERVES";

/// A client of a namenode, wherever that runs.
struct Client {
    address: String,
    http: String,
    pool: Pool,
}

/// What the metrics show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counted {
    objects: usize,
    deleted_subtrees: usize,
}

fn sliced(place: &FilePath) -> NamenodeOptions {
    let mut options = options(place);
    options.core.limits.freed_per_slice_max = SLICE;
    options
}

impl Client {
    fn new(address: &str, http: &str) -> Self {
        let pool = Pool::new(PoolOptions::default());
        Self { address: address.to_owned(), http: http.to_owned(), pool }
    }

    async fn all(&self, requests: Vec<Request>) -> support::Answers {
        let deadline = Instant::now() + support::WITHIN;
        self.pool.meta(&self.address, requests, deadline).await.unwrap()
    }

    async fn call(&self, request: Request) -> Result<Reply, Refusal> {
        self.all(vec![request]).await.pop().unwrap()
    }

    async fn make_tree(&self) {
        self.call(directory("/d")).await.unwrap();
        for first in (0..NAMES).step_by(500) {
            let frame = (first..first + 500).map(|number| inline(&format!("/d/{number}"), b"x"));
            assert!(self.all(frame.collect()).await.iter().all(Result::is_ok));
        }
    }

    async fn delete(&self) {
        let delete = Request::Delete { path: path("/d"), recursive: true };
        assert!(matches!(self.call(delete).await, Ok(Reply::Deleted { .. })));
        let gone = self.call(stat("/d/1")).await;
        assert!(matches!(gone, Err(Refusal::NotFound { .. })), "{gone:?}");
    }

    async fn counted(&self) -> Counted {
        let mut stream = TcpStream::connect(&self.http).await.unwrap();
        let request = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_else(|| panic!("no {name} in {text}")).trim().parse().unwrap()
        };
        let objects = value("sanderling_namenode_objects ");
        let deleted_subtrees = value("sanderling_namenode_deleted_subtrees ");
        Counted { objects, deleted_subtrees }
    }

    /// Waits until everything that is deleted is freed.
    async fn rest(&self) -> Counted {
        let deadline = Instant::now() + support::WITHIN;
        loop {
            let counted = self.counted().await;
            if counted.deleted_subtrees == 0 {
                return counted;
            }
            assert!(Instant::now() < deadline, "{counted:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn check(&self) {
        let Ok(Reply::Fsck(report)) = self.call(Request::Fsck).await else { panic!("no check") };
        assert_eq!(report.problems, Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_are_answered_between_the_slices_of_a_deletion() {
    let place = tempfile::tempdir().unwrap();
    let fixture = start(sliced(place.path())).await;
    let http = fixture.server.http_address().unwrap().to_string();
    let client = Client::new(&fixture.address, &http);
    client.make_tree().await;
    let before = client.counted().await;
    assert_eq!(before, Counted { objects: NAMES + 2, deleted_subtrees: 0 });
    client.delete().await;
    // The name is free at once.
    client.call(directory("/d")).await.unwrap();
    let other = Client::new(&fixture.address, &http);
    let mut counts = BTreeSet::new();
    loop {
        let counted = other.counted().await;
        if counted.deleted_subtrees == 0 {
            break;
        }
        counts.insert(counted.objects);
        // A read, and a change: both are answered before much more is freed.
        other.call(stat("/d")).await.unwrap();
        other.call(inline("/d/new", b"y")).await.unwrap();
        other.call(Request::Delete { path: path("/d/new"), recursive: false }).await.unwrap();
    }
    assert!(counts.len() >= 20, "answered between {} slices only", counts.len());
    assert_eq!(other.counted().await.objects, 2);
    other.check().await;
    fixture.server.stop().await;
}

/// Starts this test's program once more, as a namenode that is killed without a word.
fn serve(place: &FilePath) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "deletions::serves_until_it_is_killed", "--nocapture"])
        .env(SERVES, place)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// No test: what [`serve`] runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serves_until_it_is_killed() {
    let Some(place) = std::env::var_os(SERVES).map(PathBuf::from) else { return };
    let fixture = start(sliced(&place)).await;
    let http = fixture.server.http_address().unwrap();
    std::fs::write(place.join("starts"), format!("{} {http}", fixture.address)).unwrap();
    std::fs::rename(place.join("starts"), place.join("serves")).unwrap();
    std::future::pending::<()>().await;
}

async fn connect(place: &FilePath) -> Client {
    let deadline = Instant::now() + support::WITHIN;
    loop {
        if let Ok(text) = std::fs::read_to_string(place.join("serves")) {
            let (address, http) = text.split_once(' ').unwrap();
            return Client::new(address, http);
        }
        assert!(Instant::now() < deadline, "the namenode does not serve");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_namenode_frees_the_rest_when_it_starts_again() {
    let place = tempfile::tempdir().unwrap();
    let mut process = serve(place.path());
    let client = connect(place.path()).await;
    client.make_tree().await;
    client.delete().await;
    let counted = client.counted().await;
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(counted.deleted_subtrees, 1, "killed in the middle");
    std::fs::remove_file(place.path().join("serves")).unwrap();

    let fixture = start(sliced(place.path())).await;
    let http = fixture.server.http_address().unwrap().to_string();
    let client = Client::new(&fixture.address, &http);
    let gone = client.call(stat("/d")).await;
    assert!(matches!(gone, Err(Refusal::NotFound { .. })), "{gone:?}");
    let found = client.counted().await;
    assert!(found.objects > 1 && found.deleted_subtrees == 1, "{found:?} after {counted:?}");
    client.check().await;
    assert_eq!(client.rest().await, Counted { objects: 1, deleted_subtrees: 0 });
    client.check().await;
    fixture.server.stop().await;
}

/// Directories that one tenant deletes before another deletes one, and the names in each.
const DIRECTORIES: usize = 200;
const NAMES_IN_EACH: usize = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenant_gets_its_quota_back_while_another_has_very_much_to_be_freed() {
    let place = tempfile::tempdir().unwrap();
    let fixture = start(sliced(place.path())).await;
    let http = fixture.server.http_address().unwrap().to_string();
    let client = Client::new(&fixture.address, &http);
    let fill =
        |name: String| (0..NAMES_IN_EACH).map(move |at| inline(&format!("{name}/{at}"), b"x"));
    // The job may have one full directory, and no two.
    let (lease, hints) = (Millis(600_000), JobHints::default());
    let job = RegisterJob { path: path("/jobs/modest"), lease, quota_bytes: None, hints };
    let limits = JobLimits { names: Some(NAMES_IN_EACH as u64 + 10), attribute_bytes: None };
    for request in [
        directory("/jobs"),
        Request::RegisterLimitedJob(Box::new(RegisterLimitedJob { job, limits })),
        directory("/jobs/modest/d"),
        directory("/jobs/greedy"),
    ] {
        client.call(request).await.unwrap();
    }
    let made = client.all(fill("/jobs/modest/d".to_owned()).collect()).await;
    assert!(made.iter().all(Result::is_ok));
    let names: Vec<_> = (0..DIRECTORIES).map(|at| format!("/jobs/greedy/{at}")).collect();
    for name in &names {
        let frame = [directory(name)].into_iter().chain(fill(name.clone()));
        assert!(client.all(frame.collect()).await.iter().all(Result::is_ok));
    }
    let delete = |name: &String| Request::Delete { path: path(name), recursive: true };
    let deleted = client.all(names.iter().map(delete).collect()).await;
    assert!(deleted.iter().all(Result::is_ok));
    client.call(delete(&"/jobs/modest/d".to_owned())).await.unwrap();
    client.call(directory("/jobs/modest/e")).await.unwrap();
    for request in fill("/jobs/modest/e".to_owned()) {
        while let Err(refusal) = client.call(request.clone()).await {
            assert!(matches!(refusal, Refusal::RetryAfter { .. }), "{refusal}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    let left = client.counted().await.deleted_subtrees;
    assert!(left > DIRECTORIES / 2, "{left} of the other's are still to be freed");
    client.rest().await;
    client.check().await;
    fixture.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_keeps_its_directory_from_being_pruned() {
    let place = tempfile::tempdir().unwrap();
    let fixture = start(options(place.path())).await;
    let (_socket, node) = support::silent();
    fixture.datanode(1, &node).await;
    let http = fixture.server.http_address().unwrap().to_string();
    let (writer, other) =
        (Client::new(&fixture.address, &http), Client::new(&fixture.address, &http));
    writer.call(directory("/d")).await.unwrap();
    // It gets its name by its seal: no listing has it before.
    let mode = CreateMode::Replace;
    let create = Create { mode, ..Create::new(path("/d/new"), Nonce(3)) };
    let Ok(Reply::Grant(grant)) = writer.call(Request::Create(create)).await else { panic!() };
    let Ok(Reply::Stat(found)) = other.call(stat("/d")).await else { panic!() };
    assert_eq!(found.entries, 0);
    let (object, recursive) = (found.object, false);
    for delete in [
        Request::Delete { path: path("/d"), recursive },
        Request::DeleteObject { path: path("/d"), object, recursive },
    ] {
        let refused = other.call(delete).await;
        assert!(matches!(refused, Err(Refusal::NotEmpty { .. })), "{refused:?}");
    }
    let lengths = vec![BlockLength { block: grant.blocks[0].block, length: 3 }];
    let (object, lease, attributes) = (grant.object, grant.lease, Attributes::none());
    let sealed = writer.call(Request::Seal { object, lease, lengths, attributes }).await;
    assert!(matches!(sealed, Ok(Reply::Stat(ref stat)) if stat.bytes == 3), "{sealed:?}");
    other.call(Request::Delete { path: path("/d/new"), recursive }).await.unwrap();
    other.call(Request::Delete { path: path("/d"), recursive }).await.unwrap();
    fixture.server.stop().await;
}
