//! What a namenode's absence, its machine's clock and a lost end of its log may not do.

#[path = "../clock/mod.rs"]
mod clock;

use std::io::Write;
use std::path::{Path as LocalPath, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::cluster::leased::{ABSENCE, JOB_LEASE, Leased, get, put};
use crate::cluster::{
    Cluster, SOON, Server, Shape, block_on, bytes_of, path, sanderling, until_node,
};
use crate::disk::{Disks, ENOSPC, Faults};
use clock::Clock;
use rustix::process::{Pid, Signal, kill_process};
use sanderling_client::{Client, ClientError, PutOptions};
use sanderling_protocol::message::{BlockLength, Create, Grant, JobHints, RegisterJob};
use sanderling_protocol::{
    EventKind, Millis, NodeInfo, NodeSelector, Nonce, Refusal, Reply, Request,
};

#[test]
fn namenode_that_is_stopped_costs_no_client_a_lease() {
    let cluster = Cluster::of(2);
    block_on(async {
        let client = cluster.client().await;
        let leased = Leased::begin(&client).await;
        cluster.namenode.pause();
        // This is the fault: so long no process listens.
        tokio::time::sleep(ABSENCE).await;
        cluster.namenode.resume();
        leased.must_be_whole(&client).await;
        let seen = events(&client).await;
        assert!(seen.iter().any(is_absence), "{seen:?}");
    });
}

/// Returns whether an event reports the absence of these tests.
fn is_absence(kind: &EventKind) -> bool {
    matches!(kind, EventKind::NamenodeAbsent { millis } if *millis >= 11_000)
}

/// As when all virtual machines are paused, or the one that has all processes. Clocks go on.
#[test]
fn suspension_of_all_machines_ends_no_lease_and_no_node() {
    let cluster = Cluster::of(2);
    let (first, second) = (bytes_of(4, 3 << 20), bytes_of(5, 1 << 20));
    let mut command = sanderling();
    command.args(["--namenode", &cluster.namenode.address, "fs", "put", "-", "/piped"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut writer = command.spawn().expect("the program can be started");
    let mut input = writer.stdin.take().expect("piped");
    input.write_all(&first).expect("read");
    block_on(async {
        let client = cluster.client().await;
        let leased = Leased::begin(&client).await;
        let send = |signal| kill_process(Pid::from_child(&writer), signal).expect("it runs");
        send(Signal::STOP);
        cluster.datanodes.iter().for_each(Server::pause);
        cluster.namenode.pause();
        // This is the fault: so long no process runs.
        tokio::time::sleep(ABSENCE).await;
        // When the namenode looks at its clock again, the nodes are silent for as long.
        cluster.namenode.resume();
        cluster.datanodes.iter().for_each(Server::resume);
        send(Signal::CONT);
        leased.must_be_whole(&client).await;
        let seen = events(&client).await;
        assert!(seen.iter().any(is_absence), "{seen:?}");
        let is_end = |kind: &EventKind| matches!(kind, EventKind::NodeGone { .. });
        assert!(!seen.iter().any(is_end), "{seen:?}");
    });
    input.write_all(&second).expect("read");
    drop(input);
    assert!(writer.wait().expect("our own child").success(), "it has lost its lease");
    let read = block_on(async { cluster.client().await.get(&path("/piped")).await });
    assert!(read.expect("stored") == [first, second].concat(), "/piped has other bytes");
}

#[test]
fn namenode_that_is_stopped_does_not_take_its_pause_for_a_slow_disk() {
    let cluster = Cluster::of(1);
    block_on(async {
        let client = cluster.client().await;
        for round in 0..3 {
            // Changes are under way when it stops, and wait for it when it goes on.
            let changes = (0..16).map(|task| {
                let client = client.clone();
                tokio::spawn(async move {
                    for number in 0..200 {
                        let name = format!("/changed-{round}-{task}-{number}");
                        let bytes = bytes_of(number, 64);
                        client.put(&path(&name), bytes, &PutOptions::default()).await.expect("put");
                    }
                })
            });
            let changes: Vec<_> = changes.collect();
            let first = path(&format!("/changed-{round}-0-5"));
            let limit = std::time::Instant::now() + SOON;
            while client.stat(&first).await.is_err() {
                assert!(std::time::Instant::now() < limit, "no change is made");
            }
            cluster.namenode.pause();
            // This is the fault: longer than the disk may be behind.
            tokio::time::sleep(Duration::from_secs(4)).await;
            cluster.namenode.resume();
            for change in changes {
                change.await.expect("no put fails");
            }
        }
        let log = cluster.namenode.log();
        assert!(!log.contains("the journal refuses changes"), "{log}");
    });
}

#[test]
fn namenode_that_is_away_costs_no_client_a_lease() {
    let mut cluster = Cluster::of(2);
    block_on(async {
        let client = cluster.client().await;
        let leased = Leased::begin(&client).await;
        cluster.namenode.kill();
        tokio::time::sleep(ABSENCE).await;
        cluster.restart_namenode();
        leased.must_be_whole(&client).await;
    });
}

#[test]
fn deadline_that_passes_while_no_namenode_serves_leaves_a_node_time_to_be_emptied() {
    // Without a manager nothing moves before the fault.
    let namenode = vec!["--no-manager".to_owned()];
    let mut cluster = Cluster::start(Shape { datanodes: 1, namenode, ..Shape::default() });
    block_on(async {
        let client = cluster.client().await;
        for seed in 0..4 {
            put(&client, &format!("/{seed}"), seed).await;
        }
        cluster.add("n1", &[]);
        client.notice(&NodeSelector("n0".to_owned()), 2_000, "test").await.expect("taken");
        cluster.namenode.kill();
        // This is the fault: the deadline passes. The node has as long after the start.
        tokio::time::sleep(Duration::from_secs(8)).await;
        cluster.start_namenode(&[]);
        // After that its deadline passes: it is gone then.
        let is_emptied = |node: &NodeInfo| {
            node.drain.as_ref().is_some_and(|it| it.left_blocks == 0 && it.moved_blocks == 4)
        };
        until_node(&client, "n0", "emptied", is_emptied).await;
        cluster.datanodes.remove(0).kill();
        for seed in 0..4 {
            get(&client, &format!("/{seed}"), seed).await;
        }
        let report = client.report().await.expect("the namenode answers");
        assert_eq!((report.blocks, report.bytes), (0, 0), "{report:?}");
    });
}

#[test]
fn namenode_whose_disk_is_full_for_longer_than_a_lease_costs_no_client_a_lease() {
    let mut cluster = Cluster::of(2);
    let Some(disks) = Disks::build(&cluster.path("")) else {
        eprintln!("SKIPPED namenode_whose_disk_is_full_...: cc does not run");
        return;
    };
    let variables = disks.variables("namenode", &cluster.path("catalog"));
    let variables: Vec<_> = variables.iter().map(|(key, path)| (*key, &**path)).collect();
    cluster.restart_namenode_with(&variables);
    block_on(async {
        let client = cluster.client().await;
        let mut jobs = Vec::new();
        for at in 0..4 {
            let root = path(&format!("/job-{at}"));
            let (lease, hints) = (JOB_LEASE, JobHints::default());
            let request = RegisterJob { path: root, lease, quota_bytes: None, hints };
            jobs.push(client.run_job(request).await.expect("a job"));
            put(&client, &format!("/job-{at}/shuffle"), at).await;
            // They are renewed at different moments, most of them not first after the fault.
            tokio::time::sleep(Duration::from_millis(400)).await;
        }
        disks.set("namenode", Faults { on_write: ENOSPC, ..Faults::default() });
        // This is the fault: so long no renewal is taken.
        tokio::time::sleep(ABSENCE).await;
        disks.set("namenode", Faults::default());
        until_renewed(&client, jobs.len()).await;
        for (at, job) in jobs.iter().enumerate() {
            assert!(!job.has_ended(), "job {at} was renewed and has ended");
            get(&client, &format!("/job-{at}/shuffle"), at as u64).await;
        }
    });
}

/// Waits until each job has been renewed since the disk takes changes again, or has ended.
async fn until_renewed(client: &Client, jobs: usize) {
    let limit = std::time::Instant::now() + Duration::from(JOB_LEASE);
    while std::time::Instant::now() < limit {
        let left = client.jobs().await.expect("the namenode answers");
        assert_eq!(left.len(), jobs, "a job that is renewed has ended: {left:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[test]
fn namenode_whose_disk_falls_behind_refuses_changes_until_it_has_caught_up() {
    let mut cluster = Cluster::of(1);
    let Some(disks) = Disks::build(&cluster.path("")) else {
        eprintln!("SKIPPED namenode_whose_disk_falls_behind_...: cc does not run");
        return;
    };
    let variables = disks.variables("namenode", &cluster.path("catalog"));
    let variables: Vec<_> = variables.iter().map(|(key, path)| (*key, &**path)).collect();
    cluster.restart_namenode_with(&variables);
    block_on(async {
        let client = cluster.client().await;
        let acknowledged = Arc::new(AtomicU64::new(0));
        let (writing, count) = (client.with_deadline(SOON), Arc::clone(&acknowledged));
        disks.set("namenode", Faults { sync_millis: 15_000, ..Faults::default() });
        let changes = tokio::spawn(async move {
            for number in 0.. {
                let name = path(&format!("/changed-{number}"));
                let options = PutOptions::default();
                writing.put(&name, bytes_of(number, 64), &options).await.expect("put");
                count.store(number + 1, Ordering::SeqCst);
            }
        });
        until("changes are refused", || {
            cluster.namenode.log().contains("the journal refuses changes")
        })
        .await;
        disks.set("namenode", Faults::default());
        // One may have been on its way.
        let before = acknowledged.load(Ordering::SeqCst) + 1;
        // The sync that has begun takes several times as long.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let unsynced = acknowledged.load(Ordering::SeqCst);
        assert!(unsynced <= before, "{unsynced} changes are acknowledged, {before} before");
        client.stat(&path("/changed-0")).await.expect("reads go on");
        let is_on = || acknowledged.load(Ordering::SeqCst) > before;
        until("the disk has caught up", is_on).await;
        assert!(!changes.is_finished(), "a put failed");
        changes.abort();
    });
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let limit = std::time::Instant::now() + SOON;
    while !holds() {
        assert!(std::time::Instant::now() < limit, "not within {SOON:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn events(client: &Client) -> Vec<EventKind> {
    let events = client.events(0, 1000, Millis(0)).await.expect("the namenode answers");
    events.into_iter().map(|event| event.kind).collect()
}

/// Copies the namenode's directory as it is now, as a backup would.
fn copy_catalog(cluster: &Cluster, to: &str) -> PathBuf {
    let (from, to) = (cluster.path("catalog"), cluster.path(to));
    std::fs::create_dir(&to).expect("a new directory");
    for entry in std::fs::read_dir(&from).expect("the namenode's directory") {
        let entry = entry.expect("an entry");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("a copy");
    }
    to
}

fn put_back(cluster: &Cluster, copy: &LocalPath) {
    let catalog = cluster.path("catalog");
    std::fs::remove_dir_all(&catalog).expect("the namenode is dead");
    std::fs::rename(copy, &catalog).expect("the copy takes its place");
}

#[test]
fn nothing_of_a_lost_log_end_is_given_out_again() {
    let mut cluster = Cluster::of(2);
    block_on(async {
        let client = cluster.client().await;
        put(&client, "/kept", 1).await;
        let copy = copy_catalog(&cluster, "copy");
        // What follows is in the part of the log that gets lost.
        put(&client, "/a", 2).await;
        let reader = client.open(&path("/a")).await.expect("a reader");
        let lost = client.stat(&path("/a")).await.expect("a file");
        let lost_place = client.layout(&path("/a"), 0..u64::MAX).await.expect("its places");
        let mut writer =
            client.create(&path("/w"), &PutOptions::default()).await.expect("a writer");
        writer.write(&bytes_of(3, 1 << 20)).await.expect("room");
        writer.flush().await.expect("flushed");
        let (lease, hints) = (Millis(60_000), JobHints::default());
        let request =
            |name| RegisterJob { path: path(name), lease, quota_bytes: None, hints: hints.clone() };
        let lost_job = client.register_job(request("/job-a")).await.expect("a job");
        let lost_node = cluster.add("late", &[]).node;
        cluster.namenode.kill();
        put_back(&cluster, &copy);
        cluster.restart_namenode();

        let client = cluster.client().await;
        // As many as were lost, and more.
        for (number, name) in ["/b", "/c", "/d", "/e"].into_iter().enumerate() {
            put(&client, name, 10 + number as u64).await;
            let found = client.stat(&path(name)).await.expect("a file");
            assert!(found.object > lost.object, "{name} has a lost file's number");
            let place = client.layout(&path(name), 0..u64::MAX).await.expect("its places");
            assert!(place.blocks[0].block > lost_place.blocks[0].block, "{name}: a lost block");
        }
        let read = reader.read_range(0, 1 << 20).await;
        assert!(
            !matches!(&read, Ok(bytes) if *bytes != bytes_of(2, 1 << 20)),
            "a reader of a lost file gets another file's bytes"
        );
        assert!(writer.close().await.is_err(), "a lost lease seals a file");
        let job = client.register_job(request("/job-b")).await.expect("a job");
        assert!(job.job > lost_job.job, "a lost job's number");
        assert!(client.renew_job(lost_job.job).await.is_err(), "a lost job is renewed");
        let fresh = cluster.add("fresh", &[]).node;
        assert!(fresh > lost_node, "a lost node's number");
        for (name, seed) in [("/kept", 1), ("/b", 10), ("/c", 11), ("/d", 12), ("/e", 13)] {
            get(&client, name, seed).await;
        }
        loss_is_reported(&client).await;
    });
}

/// The writer has ended its first block, and names it no more. The log still has it at 1,000 bytes,
/// or without any: what follows would be read from there on.
#[test]
fn bytes_behind_a_lost_end_of_a_block_are_refused() {
    let mut cluster = Cluster::of(2);
    for kept in [1000, 0] {
        block_on(refused_behind(&mut cluster, kept));
    }
}

async fn refused_behind(cluster: &mut Cluster, kept: u32) {
    let client = cluster.client().await;
    let expected_bytes = Some(3 << 20);
    let name = path(&format!("/w{kept}"));
    let create = Create { expected_bytes, ..Create::new(name, Nonce(1)) };
    let grant = client.request(Request::Create(create)).await.expect("a writer");
    let Reply::Grant(Grant { object, lease, blocks, .. }) = grant else { panic!("{grant:?}") };
    let of = |place: usize, length| BlockLength { block: blocks[place].block, length };
    let publish = |length| Request::Publish { object, lease, lengths: vec![length] };
    client.request(publish(of(0, kept))).await.expect("published");
    let copy = copy_catalog(cluster, &format!("copy{kept}"));
    let ended = vec![of(0, 1 << 20)];
    let more = Request::AddBlocks { object, lease, ended, count: 1, avoid: Vec::new() };
    client.request(more).await.expect("more blocks");
    cluster.namenode.kill();
    put_back(cluster, &copy);
    cluster.restart_namenode();
    let refused = cluster.client().await.request(publish(of(1, 10))).await;
    let is_ended = matches!(refused, Err(ClientError::Refused(Refusal::LeaseEnded { .. })));
    assert!(is_ended, "{refused:?}");
}

/// The datanodes report that the log has lost its end, and what they held of it counts as lost.
async fn loss_is_reported(client: &Client) {
    let limit = std::time::Instant::now() + SOON;
    loop {
        let seen = events(client).await;
        let is_cut = |kind: &EventKind| matches!(kind, EventKind::LogEndLost { .. });
        let report = client.report().await.expect("the namenode answers");
        if seen.iter().any(is_cut) && report.bytes >= 2 << 20 {
            return;
        }
        assert!(std::time::Instant::now() < limit, "{} bytes are lost: {seen:?}", report.bytes);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn date_that_jumps_by_a_day_at_a_start_ends_nothing() {
    let mut cluster = Cluster::start(Shape { datanodes: 2, ..Shape::default() });
    let Some(clock) = Clock::ahead_by_hours(24) else {
        eprintln!("SKIPPED date_that_jumps_by_a_day_at_a_start_ends_nothing: cc does not run");
        return;
    };
    let variables = clock.variables();
    let variables: Vec<_> = variables.iter().map(|(key, path)| (*key, &**path)).collect();
    block_on(async {
        let client = cluster.client().await;
        let leased = Leased::begin(&client).await;
        cluster.restart_namenode_with(&variables);
        leased.must_be_whole(&client).await;
        let log = cluster.namenode.log();
        assert!(log.contains("is it right?"), "the clock is not in it: {log}");
    });
}
