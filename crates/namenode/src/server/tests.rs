//! A namenode that serves on a disk that is slow, or fails.

use std::path::Path;

use rand::SeedableRng;
use sanderling_protocol::message::ObjectKind;
use sanderling_protocol::{Refusal, Reply, Request};
use sanderling_transport::{Pool, PoolOptions};
use tokio::time::Instant;

use super::*;
use crate::files::disk::{Disk, Faults};
use crate::recovery::recover;

const WITHIN: Duration = Duration::from_secs(60);

struct Served {
    server: NamenodeServer,
    disk: Disk,
    pool: Pool,
}

impl Served {
    async fn start(options: NamenodeOptions) -> Self {
        let disk = Disk::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let directory = Directory::of(Path::new("/catalog"), Arc::new(disk.clone())).unwrap();
        let directory = Arc::new(directory);
        let recovered = recover(&directory, &options).unwrap();
        let at = group_start::address(&options, &listener, None).unwrap();
        let setup = group_start::setup(&options, at);
        let catalog = (directory, recovered, MemberStart::Alone(Default::default()), setup);
        let server = launch(&options, catalog, listener, None).unwrap();
        Self { server, disk, pool: Pool::new(PoolOptions::default()) }
    }

    async fn call(&self, request: Request) -> Result<Reply, Refusal> {
        let address = self.server.address().to_string();
        let answers = self.pool.meta(&address, vec![request], Instant::now() + WITHIN).await;
        answers.unwrap().pop().unwrap()
    }

    async fn make(&self, name: &str) -> Result<Reply, Refusal> {
        let (path, kind) = (name.parse().unwrap(), ObjectKind::Directory);
        self.call(Request::MakeDirectory { path, kind, parents: false, is_listed: true }).await
    }

    fn metric(&self, name: &str) -> f64 {
        let state = &self.server.state;
        let text = state.metrics.text(&state.namenode.read(), state.now(), &state.group, &[]);
        let name = format!("sanderling_namenode_{name} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&name)).unwrap();
        line.parse().unwrap()
    }
}

fn slow() -> NamenodeOptions {
    NamenodeOptions {
        sync_every: Duration::from_millis(10),
        unsynced_age_max: Duration::from_millis(200),
        ..NamenodeOptions::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn frame_at_a_member_that_was_just_elected_is_answered_once_that_serves() {
    let served = Served::start(NamenodeOptions::default()).await;
    served.make("/before").await.unwrap();
    let group = &served.server.state.group;
    let until = Instant::now() + WITHIN;
    // If the test stands still for as long as a frame waits, the frame is refused, and sent again.
    loop {
        group.set_serving_state(ServingState::Elected);
        let stat = served.call(Request::Stat { path: "/before".parse().unwrap() });
        let serves = async {
            // The frames of a connection are handled in their order: the other one has arrived.
            served.call(Request::Members).await.unwrap();
            group.set_serving_state(ServingState::Alone);
        };
        let (answer, ()) = tokio::join!(stat, serves);
        let refusal = match answer {
            Ok(reply) => {
                assert!(matches!(reply, Reply::Stat(_)), "{reply:?}");
                return;
            }
            Err(refusal) => refusal,
        };
        assert_eq!(refusal, Refusal::NotLeader { leader: None });
        assert!(Instant::now() < until, "each frame is refused");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn member_that_was_elected_and_does_not_serve_refuses_frames_in_the_end() {
    let served = Served::start(NamenodeOptions::default()).await;
    served.make("/before").await.unwrap();
    served.server.state.group.set_serving_state(ServingState::Elected);
    let answer = served.call(Request::Stat { path: "/before".parse().unwrap() }).await;
    assert_eq!(answer.unwrap_err(), Refusal::NotLeader { leader: None });
    let change = served.make("/after").await;
    assert_eq!(change.unwrap_err(), Refusal::NotLeader { leader: None });
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_refused_while_the_disk_is_behind_and_taken_when_it_has_caught_up() {
    let served = Served::start(slow()).await;
    served.make("/before").await.unwrap();
    served.disk.hold(true);
    let until = Instant::now() + WITHIN;
    let mut made = 0;
    let refused = loop {
        match served.make(&format!("/{made}")).await {
            Ok(_) => made += 1,
            Err(refusal) => break refusal,
        }
        assert!(Instant::now() < until, "the namenode acknowledges without an end");
    };
    assert!(matches!(refused, Refusal::RetryAfter { .. }), "{refused}");
    // What is known can be read.
    let stat = Request::Stat { path: "/before".parse().unwrap() };
    served.call(stat).await.unwrap();
    while served.metric("unsynced_bytes") == 0.0 || served.metric("unsynced_seconds") < 0.2 {
        assert!(Instant::now() < until, "the metrics do not show it");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    served.disk.hold(false);
    while let Err(refusal) = served.make("/after").await {
        assert!(matches!(refusal, Refusal::RetryAfter { .. }), "{refusal}");
        assert!(Instant::now() < until, "the namenode does not recover");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    while served.metric("unsynced_bytes") > 0.0 {
        assert!(Instant::now() < until, "the disk does not follow");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    served.server.stop().await;
    assert!(served.server.journal_failure().is_none());
}

/// The next start counts from the last start that is left: without this one it would give out the
/// numbers that this one has given out.
#[tokio::test(flavor = "multi_thread")]
async fn crash_of_the_machine_does_not_take_the_start_itself() {
    let late = Duration::from_secs(3600);
    let options = NamenodeOptions { sync_every: late, unsynced_age_max: late, ..slow() };
    let served = Served::start(options.clone()).await;
    served.make("/unsynced").await.unwrap();
    let began = served.server.state.namenode.read().catalog().position().map(|it| it.term);
    let image = served.disk.with(|image| image.clone());
    for seed in 0..20 {
        let disk = Disk::default();
        disk.with(|left| {
            *left = image.clone();
            left.crash(&mut rand::rngs::StdRng::seed_from_u64(seed));
        });
        let directory = Directory::of(Path::new("/catalog"), Arc::new(disk)).unwrap();
        let recovered = recover(&Arc::new(directory), &options).unwrap();
        let left = recovered.namenode.catalog().position().map(|it| it.term);
        assert_eq!(left, began, "seed {seed}");
    }
    served.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_sync_stops_the_server_although_nothing_more_is_changed() {
    let served = Served::start(slow()).await;
    served.make("/before").await.unwrap();
    let fault = Faults { sync: Some(0), ..Faults::default() };
    served.disk.with(|image| image.faults = fault);
    // It may be acknowledged: the sync comes later.
    let _ = served.make("/doubtful").await;
    let failure = tokio::time::timeout(WITHIN, served.server.failed()).await.unwrap();
    assert!(matches!(failure, NamenodeFailure::Journal { .. }), "{failure}");
    let refused = served.make("/after").await.unwrap_err();
    // What is on the disk is unknown: the next process answers.
    assert!(matches!(refused, Refusal::Undecided { .. }), "{refused}");
    served.server.stop().await;
    assert!(served.server.journal_failure().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn sync_that_fails_for_the_first_time_at_a_snapshot_stops_the_server() {
    let options = NamenodeOptions { sync: Sync::Always, snapshot_after_bytes: 3000, ..slow() };
    let served = Served::start(options).await;
    let until = Instant::now() + WITHIN;
    let mut made = 0;
    // The next sync but one after the last change before the snapshot is the next segment's.
    let next_segment = |served: &Served| {
        served.disk.with(|image| image.list().len()) > 1 && served.metric("snapshots_total") > 0.0
    };
    while !next_segment(&served) {
        served.make(&format!("/{made}")).await.unwrap();
        made += 1;
        assert!(Instant::now() < until, "no snapshot is taken");
    }
    served.disk.with(|image| image.fail_sync_of("journal-"));
    let failure = loop {
        if served.make(&format!("/{made}")).await.is_err() {
            break tokio::time::timeout(WITHIN, served.server.failed()).await.unwrap();
        }
        made += 1;
        assert!(Instant::now() < until, "the failed sync is not found");
    };
    assert!(matches!(failure, NamenodeFailure::Journal { .. }), "{failure}");
    served.server.stop().await;
}
