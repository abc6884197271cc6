//! A disk tier whose file system has less room than the tier was given.

use std::time::{Duration, Instant};

use crate::cluster::{Cluster, SOON, block_on, bytes_of, path, spawn_with};
use crate::disk::{Disks, ENOSPC, Faults};
use sanderling_client::{Client, PutOptions};

const FULL: &str = "the file system of the disk tier is full";
const AGAIN: &str = "the file system of the disk tier has room again";

/// Stores objects on disk, or finds that there is no room, until a condition holds.
async fn put_until(client: &Client, directory: &str, what: &str, is_so: impl Fn() -> bool) {
    let limit = Instant::now() + SOON;
    for number in 0.. {
        let class = "disk".parse().expect("a class");
        let options = PutOptions { class, parents: true, ..PutOptions::default() };
        let to = path(&format!("/{directory}/{number}"));
        // Whether it finds a place elsewhere is not what this is about.
        let _ = client.put(&to, bytes_of(number, 300_000), &options).await;
        if is_so() {
            return;
        }
        assert!(Instant::now() < limit, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn full_file_system_of_a_disk_tier_is_logged_once_and_so_is_its_end() {
    let cluster = Cluster::of(0);
    let Some(disks) = Disks::build(&cluster.path("")) else {
        eprintln!("SKIPPED full_file_system_of_a_disk_tier_...: cc does not run");
        return;
    };
    let tier = cluster.path("tier");
    std::fs::create_dir(&tier).expect("a directory");
    let variables = disks.variables("n0", &tier);
    let variables: Vec<_> = variables.iter().map(|(key, path)| (*key, &**path)).collect();
    let directory = tier.to_str().expect("a name in UTF-8");
    let words = ["datanode", "--namenode", &cluster.namenode.address, "--name", "n0"];
    let disk = ["--dram", "8MiB", "--disk", "64MiB", "--disk-dir", directory];
    let words = [&words[..], &disk].concat();
    let datanode = spawn_with(&cluster.path(""), "n0", &words, &variables).serves();
    let count = |line: &str| datanode.log().matches(line).count();
    block_on(async {
        let client = cluster.client().await.with_deadline(Duration::from_secs(2));
        put_until(&client, "before", "an object is on disk", || {
            let files = std::fs::read_dir(&tier).expect("the tier's directory");
            files.flatten().any(|file| file.path().extension().is_some_and(|it| it == "block"))
        })
        .await;
        assert_eq!((count(FULL), count(AGAIN)), (0, 0));
        disks.set("n0", Faults { on_write: ENOSPC, ..Faults::default() });
        put_until(&client, "full", "the log has the line", || count(FULL) > 0).await;
        for round in 0..3 {
            put_until(&client, &format!("more-{round}"), "once", || true).await;
        }
        disks.set("n0", Faults::default());
        put_until(&client, "after", "there is room again", || count(AGAIN) > 0).await;
    });
    let log = datanode.log();
    let full = log.lines().find(|line| line.contains(FULL)).expect("it was found");
    assert!(full.contains("WARN") && full.contains(directory), "{full}");
    assert_eq!((count(FULL), count(AGAIN)), (1, 1), "{log}");
}
