//! Stores in directories whose file system does not answer one cluster, while another one takes
//! them, or answers so late that orders to send parts are given up.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::cluster::stores::{add, files, make, put, reported};
use crate::cluster::tasks::library;
use crate::cluster::{Cluster, SOON, Shape, block_on, bytes_of, spawn_with, until};

const ADOPT: [&str; 6] = ["fs", "mkdir", "/in", "--durable", "archive", "--adopt"];

/// Longer than any operation of a store may take: 20 s.
const OPERATION: Duration = Duration::from_secs(22);

/// A cluster with one datanode, whose file system has the store and does not answer at times.
struct Hung {
    cluster: Cluster,
    store: PathBuf,
    /// The file system does not answer while this file is there.
    trigger: PathBuf,
    /// While this one is there, each part of an upload takes 14 s.
    slow: PathBuf,
    /// While this one is there, a part of an upload gets no answer, and then no other call.
    stuck: PathBuf,
}

impl Hung {
    /// Returns `None` where no C compiler is.
    fn new(test: &str) -> Option<Self> {
        let mut cluster = empty();
        let Some(library) = library(&cluster.path(""), include_str!("hung_store.c")) else {
            eprintln!("SKIPPED {test}: no C compiler");
            return None;
        };
        let [store, trigger] = ["store", "trigger"].map(|name| cluster.path(name));
        let [slow, stuck] = ["slow", "stuck"].map(|name| cluster.path(name));
        fs::create_dir(&store).expect("made");
        let (namenode, place) =
            (cluster.namenode.address.clone(), format!("archive=file://{}", store.display()));
        let mut words = vec!["datanode", "--namenode", &namenode, "--name", "d0"];
        words.extend(["--dram", "64MiB", "--durable", &place]);
        let conditions = [("HUNG_IF", &trigger), ("SLOW_IF", &slow), ("STUCK_IF", &stuck)];
        let conditions = conditions.map(|(variable, file)| (variable, file.as_path()));
        let variables = [&[("LD_PRELOAD", library.as_path())][..], &conditions].concat();
        let datanode = spawn_with(&cluster.path(""), "d0", &words, &variables).serves();
        cluster.datanodes.push(datanode);
        reported(&cluster);
        Some(Self { cluster, store, trigger, slow, stuck })
    }

    fn hang(&self) {
        fs::write(&self.trigger, "").expect("written");
    }

    fn go_on(&self) {
        fs::remove_file(&self.trigger).expect("it hangs");
    }

    /// Returns another cluster, whose datanode reaches the store.
    fn other(&self) -> Cluster {
        let mut other = empty();
        add(&mut other, "d0", &self.store);
        reported(&other);
        other
    }

    /// Returns the text that names the owner of the store.
    fn owner(&self) -> String {
        fs::read_to_string(self.store.join(".sanderling/owner")).expect("it has one")
    }

    fn names(&self) -> Vec<String> {
        files(&self.store).into_keys().collect()
    }

    /// Returns the names of the uploads in the store.
    fn uploads(&self) -> Vec<String> {
        let found = fs::read_dir(self.store.join(".sanderling/uploads")).expect("there");
        found.map(|entry| entry.expect("readable").file_name().display().to_string()).collect()
    }

    /// Waits until an upload is in the store, and then until this is the reason of the stall.
    /// Returns the name of the upload.
    fn stalls_in_an_upload(&self, reason: &str) -> String {
        let upload = until("an upload begins", SOON, || self.uploads().pop());
        until(&format!("the reason {reason:?}"), 2 * SOON, || {
            let shown = self.cluster.json(&["fs", "stat", "/out"]);
            let why = shown["objects"][0]["durability"]["stalled"].as_str().unwrap_or_default();
            why.contains(reason).then_some(())
        });
        upload
    }

    /// Waits until the store has what was put as `name`, and no upload any more.
    fn gets(&self, name: &str, seed: u64, bytes: usize) {
        let synced = self.cluster.cli(&["fs", "sync", "/out", "--timeout", "60s"]);
        assert_eq!(synced.code, 0, "{synced}");
        assert!(files(&self.store)[name] == bytes_of(seed, bytes), "{name} has other bytes");
        until("no upload is left", SOON, || self.uploads().is_empty().then_some(()));
    }
}

fn empty() -> Cluster {
    Cluster::start(Shape { datanodes: 0, ..Shape::default() })
}

/// Puts an object, and waits until the store has it.
fn store(cluster: &Cluster, name: &str) {
    block_on(async { put(&cluster.client().await, name, 1, 5000).await });
    let synced = cluster.cli(&["fs", "sync", name, "--timeout", "60s"]);
    assert_eq!(synced.code, 0, "{synced}");
}

/// Both find the place empty, and one of them has claimed it when the other one gets on.
#[test]
fn empty_store_that_two_clusters_claim_at_once_is_that_of_the_first() {
    let Some(slow) = Hung::new("empty_store_that_two_clusters_claim_at_once") else { return };
    make(&slow.cluster, "/out");
    slow.hang();
    block_on(async { put(&slow.cluster.client().await, "/out/late", 1, 5000).await });
    until("it begins to claim the place", SOON, || {
        let own = fs::read_dir(slow.store.join(".sanderling")).ok()?;
        let mut names = own.flatten().map(|it| it.file_name().to_string_lossy().into_owned());
        names.any(|name| name.starts_with("owner-")).then_some(())
    });
    let other = slow.other();
    make(&other, "/out");
    store(&other, "/out/first");
    let owner = slow.owner();
    slow.go_on();
    until("the late one shows whose it is", SOON, || {
        let shown = slow.cluster.cli(&["fs", "stat", "/out/late"]).stdout;
        shown.contains("STALLED").then_some(()).filter(|()| shown.contains("it belongs to"))
    });
    assert_eq!(slow.owner(), owner);
    store(&other, "/out/second");
    assert_eq!(slow.names(), ["first", "second"]);
}

/// The order to adopt it is given up by then, and no other one follows.
#[test]
fn adoption_that_its_file_system_holds_up_takes_nothing_from_a_later_one() {
    let Some(mut slow) = Hung::new("adoption_that_its_file_system_holds_up") else { return };
    {
        let earlier = slow.other();
        make(&earlier, "/out");
        store(&earlier, "/out/first");
    }
    slow.hang();
    let begun = slow.cluster.cli(&[&ADOPT[..], &["--timeout", "5s"]].concat());
    assert_eq!(begun.code, 124, "{begun}");
    until("the reason is shown", SOON, || {
        let shown = slow.cluster.cli(&["fs", "stat", "/in"]).stdout;
        shown.contains("no answer within 20").then_some(())
    });
    slow.cluster.namenode.kill();
    let ended = Instant::now();
    let other = slow.other();
    let adopted = other.cli(&ADOPT);
    assert_eq!(adopted.code, 0, "{adopted}");
    let owner = slow.owner();
    // This is the fault: so long the file system does not answer.
    std::thread::sleep(OPERATION.saturating_sub(ended.elapsed()));
    slow.go_on();
    // In this time it takes the lock, which is free.
    for _ in 0..20 {
        assert_eq!(slow.owner(), owner, "a late adoption has taken the store");
        std::thread::sleep(Duration::from_millis(50));
    }
    store(&other, "/in/second");
    assert_eq!(slow.names(), ["first", "second"]);
}

/// The manager would wait for 64 s, and for all parts the order takes 70 s.
#[test]
fn upload_that_takes_longer_than_its_order_may_is_ended_and_sent_again() {
    const BYTES: usize = 5 * (8 << 20);
    let Some(hung) = Hung::new("upload_that_takes_longer_than_its_order_may") else { return };
    make(&hung.cluster, "/out");
    store(&hung.cluster, "/out/first");
    fs::write(&hung.slow, "").expect("written");
    block_on(async { put(&hung.cluster.client().await, "/out/large", 2, BYTES).await });
    let upload = hung.stalls_in_an_upload("could not send an order's parts in the time");
    assert!(!hung.uploads().contains(&upload), "the upload that was given up is still there");
    fs::remove_file(&hung.slow).expect("it is slow");
    hung.gets("large", 2, BYTES);
}

/// Its datanode cannot end it while nothing is answered, and the manager has no record of it.
#[test]
fn upload_whose_store_hangs_with_it_is_ended_when_the_store_is_back() {
    const BYTES: usize = 100_000;
    let Some(hung) = Hung::new("upload_whose_store_hangs_with_it") else { return };
    make(&hung.cluster, "/out");
    store(&hung.cluster, "/out/first");
    fs::write(&hung.stuck, "").expect("written");
    block_on(async { put(&hung.cluster.client().await, "/out/late", 2, BYTES).await });
    let upload = hung.stalls_in_an_upload("no answer within 20");
    assert!(hung.uploads().contains(&upload), "it was ended although nothing was answered");
    fs::remove_file(&hung.stuck).expect("it is stuck");
    hung.gets("late", 2, BYTES);
}
