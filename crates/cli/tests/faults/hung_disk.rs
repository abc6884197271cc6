//! A disk that hangs: what is not on it goes on.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::time::timeout;

use crate::cluster::silent_writer::SilentWriter;
use crate::cluster::tasks::library;
use crate::cluster::{
    Cluster, SOON, block_on, bytes_of, http, path, sanderling, spawn_with, until,
};
use crate::disk::{Disks, Faults};
use sanderling_client::PutOptions;

/// The name of a killed writer is free after the lease of 10 s, and that is twice as long.
const FREE_WITHIN: Duration = Duration::from_secs(20);

/// Heartbeats come every 500 ms, and a node is suspect without one for so long.
const AGE_MAX_MILLIS: u64 = 1500;

/// A cluster whose only datanode has a disk that hangs while a file is there.
struct Hanging {
    cluster: Cluster,
    switch: PathBuf,
}

impl Hanging {
    /// Returns `None` where no C compiler is.
    fn start() -> Option<Self> {
        let mut cluster = Cluster::of(0);
        let Some(library) = library(&cluster.path(""), include_str!("hung_disk.c")) else {
            eprintln!("SKIPPED disk_that_hangs_delays_...: no C compiler");
            return None;
        };
        let [tier, switch] = ["tier", "hang"].map(|name| cluster.path(name));
        fs::create_dir(&tier).expect("a directory");
        let directory = tier.to_str().expect("a name in UTF-8");
        let words = ["datanode", "--namenode", &cluster.namenode.address, "--name", "n0"];
        // Each report looks at the files.
        let disk = ["--disk", "64MiB", "--disk-dir", directory, "--report-every", "200ms"];
        let words = [&words[..], &["--dram", "64MiB", "--scrub-rate", "none"], &disk].concat();
        let variables = [
            ("LD_PRELOAD", library.as_path()),
            ("HANG_BELOW", tier.as_path()),
            ("HANG_IF", switch.as_path()),
        ];
        let datanode = spawn_with(&cluster.path(""), "n0", &words, &variables).serves();
        cluster.datanodes.push(datanode);
        Some(Self { cluster, switch })
    }

    /// Puts objects on the disk.
    fn put_on_disk(&self, names: &[&str]) {
        block_on(async {
            let client = self.cluster.client().await;
            for (seed, name) in (1..).zip(names) {
                let class = "disk".parse().expect("a class");
                let options = PutOptions { class, ..PutOptions::default() };
                client.put(&path(name), bytes_of(seed, 9000), &options).await.expect("stored");
            }
        });
    }

    /// Lets calls of a kind hang from now on, and lets them go on again.
    fn hang(&self, call: &str, hangs: bool) {
        let switch = format!("{}-{call}", self.switch.display());
        match hangs {
            true => fs::write(switch, "").expect("written"),
            false => fs::remove_file(switch).expect("it was written"),
        }
    }

    /// Returns once such a call waits for the disk.
    fn until_waits(&self, call: &str) {
        let seen = PathBuf::from(format!("{}-{call}-waits", self.switch.display()));
        until(&format!("{call} waits"), SOON, || seen.exists().then_some(()));
    }

    /// Begins an object in memory, and keeps it open until the writer is killed.
    fn writer(&self, name: &str) -> Child {
        let mut writer = sanderling()
            .args(["--namenode", &self.cluster.namenode.address, "fs", "put", "-", name])
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program can be started");
        let stdin = writer.stdin.as_mut().expect("piped");
        stdin.write_all(&bytes_of(3, 3 << 20)).expect("the writer reads");
        until("the name is taken", SOON, || {
            (self.cluster.cli(&["fs", "stat", name]).code == 0).then_some(())
        });
        writer
    }

    /// Returns once a heartbeat has come lately from the node that was started.
    fn until_beats(&self) {
        let id = self.cluster.datanodes[0].node;
        until("a heartbeat", SOON, || {
            let nodes = self.cluster.json(&["node", "ls"]);
            let node = &nodes["nodes"][0];
            assert_eq!((&node["id"], &node["policy"]), (&id.into(), &"active".into()), "{nodes}");
            let age = node["heartbeat_age"].as_u64().expect("a number");
            (node["availability"] == "up" && age < AGE_MAX_MILLIS).then_some(())
        });
    }

    fn files(&self) -> usize {
        let files = fs::read_dir(self.cluster.path("tier")).expect("the tier's directory");
        files.flatten().filter(|file| is_block(&file.path())).count()
    }
}

fn is_block(file: &Path) -> bool {
    file.extension().is_some_and(|it| it == "block")
}

#[test]
fn disk_that_hangs_delays_neither_heartbeats_nor_the_end_of_a_lease_in_memory() {
    let Some(place) = Hanging::start() else { return };
    place.put_on_disk(&["/kept", "/a", "/b", "/c", "/d"]);
    assert_eq!(place.files(), 5);
    let mut writer = place.writer("/half");
    place.hang("unlink", true);
    for name in ["/a", "/b", "/c", "/d"] {
        let removed = place.cluster.cli(&["fs", "rm", name]);
        assert_eq!(removed.code, 0, "{removed}");
    }
    place.until_waits("unlink");
    place.hang("statx", true);
    place.until_waits("statx");
    writer.kill().expect("our own child");
    writer.wait().expect("our own child");
    until("the object is sealed for its writer", FREE_WITHIN, || {
        place.until_beats();
        let stat = place.cluster.cli(&["fs", "stat", "/half", "--json"]);
        let stat: Value = serde_json::from_str(&stat.stdout).ok()?;
        (stat["objects"][0]["is_sealed"] == true).then_some(())
    });
    let put = place.cluster.cli(&["fs", "put", "--force", "/proc/version", "/half"]);
    assert_eq!(put.code, 0, "{put}");
    place.until_beats();
    assert_eq!(place.files(), 5, "the disk does not hang");
    place.hang("unlink", false);
    place.hang("statx", false);
    until("the files are deleted", SOON, || (place.files() == 1).then_some(()));
    let kept = place.cluster.cli(&["fs", "cat", "/kept"]);
    assert_eq!(kept.code, 0, "{kept}");
}

/// A thread of connections writes a small change itself, and may be the one that waits for all
/// others.
#[test]
fn namenode_alone_whose_disk_hangs_answers_what_needs_no_disk() {
    /// On a busy machine.
    const ANSWERED_WITHIN: Duration = Duration::from_secs(20);
    let mut cluster = Cluster::of(0);
    let Some(disks) = Disks::build(&cluster.path("")) else {
        return eprintln!("SKIPPED namenode_alone_whose_disk_hangs_...: no C compiler");
    };
    let variables = disks.variables_of("namenode", "FAULTY_DIRECTORY", cluster.path("catalog"));
    let variables: Vec<_> = variables.iter().map(|(key, path)| (*key, &**path)).collect();
    cluster.restart_namenode_with(&variables);
    let address = cluster.namenode.http_address.clone();
    block_on(async {
        let (writer, reader) = (cluster.client().await, cluster.client().await);
        let options = PutOptions::default();
        writer.put(&path("/kept"), bytes_of(1, 64), &options).await.expect("stored");
        for round in 0..3 {
            disks.set("namenode", Faults { waits: true, ..Faults::default() });
            let (writing, to) = (writer.with_deadline(SOON), path(&format!("/{round}")));
            let change = tokio::spawn(async move {
                writing.put(&to, bytes_of(1, 64), &PutOptions::default()).await
            });
            // The change waits for the disk in a moment.
            let limit = Instant::now() + Duration::from_secs(1);
            while Instant::now() < limit {
                for target in ["/healthz", "/metrics"] {
                    let answer = timeout(ANSWERED_WITHIN, http::page(&address, target)).await;
                    let answer = answer.unwrap_or_else(|_| panic!("{target} is not answered"));
                    assert!(answer.contains(" 200 "), "{answer}");
                }
                let stat = timeout(ANSWERED_WITHIN, reader.stat(&path("/kept"))).await;
                stat.expect("answered in time").expect("it is there");
            }
            assert!(!change.is_finished(), "the disk does not hang");
            disks.set("namenode", Faults::default());
            change.await.expect("no panic").expect("stored");
        }
    });
}

/// How long the namenode's disk hangs: longer than an end must have been shown before a block is
/// trimmed to it, and than the next look-up after that takes.
const HUNG: Duration = Duration::from_secs(8);

/// A crash of the namenode's machine would take the end of the block back, and its writer, which
/// still has its lease in the log, could publish all that the datanode has acknowledged.
#[test]
fn datanode_trims_no_block_while_the_namenodes_disk_hangs() {
    let mut cluster = Cluster::of(0);
    let Some(disks) = Disks::build(&cluster.path("")) else {
        return eprintln!("SKIPPED datanode_trims_no_block_while_...: no C compiler");
    };
    let variables = disks.variables_of("namenode", "FAULTY_DIRECTORY", cluster.path("catalog"));
    let variables: Vec<_> = variables.iter().map(|(key, path)| (*key, &**path)).collect();
    cluster.restart_namenode_with(&variables);
    cluster.add("n0", &[]);
    let all = bytes_of(1, 1 << 20).to_vec();
    block_on(async {
        let (client, datanode) = (cluster.client().await, &cluster.datanodes[0].address);
        // Once it is trimmed, the time after the start is over in which no block is.
        let first = SilentWriter::create(datanode, &client, "/first", all.len()).await;
        first.write(0, &all).await;
        first.seal(&client, 1).await;
        first.until_trimmed(2).await;
        let open = SilentWriter::create(datanode, &client, "/open", 1).await;
        let short = SilentWriter::create(datanode, &client, "/short", all.len()).await;
        short.write(0, &all).await;
        short.seal(&client, 1).await;
        disks.set("namenode", Faults { waits: true, ..Faults::default() });
        let (changing, to) = (client.with_deadline(SOON), path("/late"));
        let change = tokio::spawn(async move {
            changing.put(&to, bytes_of(2, 64), &PutOptions::default()).await
        });
        let limit = Instant::now() + HUNG;
        while Instant::now() < limit {
            assert!(short.is_held(2).await, "it is trimmed to an end that may be taken back");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // Look-ups go on meanwhile: what is beyond a grant is given back.
        open.write(0, &all[..9000]).await;
        open.until_trimmed(1).await;
        assert!(short.is_held(2).await);
        assert!(!change.is_finished(), "the disk does not hang");
        disks.set("namenode", Faults::default());
        change.await.expect("no panic").expect("stored");
        short.until_trimmed(2).await;
    });
}
