//! Stores in directories that vanish in the middle of an operation, as when one is unmounted or
//! moved: the names that are not found then are not missing.

use std::fs;
use std::path::{Path as LocalPath, PathBuf};

use crate::cluster::stores::{make, put, reported};
use crate::cluster::tasks::library;
use crate::cluster::{Cluster, SOON, Shape, block_on, bytes_of, path, spawn_with, until};

const ADOPT: [&str; 6] = ["fs", "mkdir", "/in", "--durable", "archive", "--adopt"];

/// A cluster with one datanode, whose store is moved away in the middle of an operation.
struct Vanishing {
    cluster: Cluster,
    store: PathBuf,
    away: PathBuf,
    /// The store is moved only while this file is there, which is then removed.
    trigger: PathBuf,
}

impl Vanishing {
    /// The store is moved before a file or directory is opened whose path ends with `at`. Returns
    /// `None` where no C compiler is.
    fn new(at: &str, test: &str) -> Option<Self> {
        let mut cluster = Cluster::start(Shape { datanodes: 0, ..Shape::default() });
        let Some(library) = library(&cluster.path(""), include_str!("vanish.c")) else {
            eprintln!("SKIPPED {test}: no C compiler");
            return None;
        };
        let [store, away, trigger] = ["store", "away", "trigger"].map(|name| cluster.path(name));
        fs::create_dir(&store).expect("made");
        let (namenode, place) =
            (cluster.namenode.address.clone(), format!("archive=file://{}", store.display()));
        let mut words = vec!["datanode", "--namenode", &namenode, "--name", "d0"];
        words.extend(["--dram", "64MiB", "--durable", &place]);
        let variables = [
            ("LD_PRELOAD", library.as_path()),
            ("VANISH_AT", LocalPath::new(at)),
            ("VANISH_IF", trigger.as_path()),
            ("VANISH_FROM", store.as_path()),
            ("VANISH_TO", away.as_path()),
        ];
        let datanode = spawn_with(&cluster.path(""), "d0", &words, &variables).serves();
        cluster.datanodes.push(datanode);
        reported(&cluster);
        Some(Self { cluster, store, away, trigger })
    }

    fn set_off(&self) {
        fs::write(&self.trigger, "").expect("written");
    }

    /// Moves the store back.
    fn bring_back(&self) {
        assert!(!self.trigger.exists(), "the store did not vanish");
        fs::rename(&self.away, &self.store).expect("moved");
    }
}

#[test]
fn adoption_of_a_store_that_vanishes_while_it_is_listed_goes_on_when_it_is_back() {
    let Some(place) = Vanishing::new("/d3/", "adoption_of_a_store_that_vanishes") else { return };
    for number in 0..7 {
        let directory = place.store.join(format!("d{number}"));
        fs::create_dir(&directory).expect("made");
        fs::write(directory.join("x"), bytes_of(number, 5000)).expect("written");
    }
    place.set_off();
    // It would be complete with the objects of three directories.
    let begun = place.cluster.cli(&[&["--timeout", "8s"], &ADOPT[..]].concat());
    assert_eq!(begun.code, 124, "{begun}");
    place.bring_back();
    let adopted = place.cluster.cli(&[&ADOPT[..], &["-p"]].concat());
    assert!(adopted.code == 0 && adopted.stdout.contains("7 objects adopted"), "{adopted}");
    block_on(async {
        let read = place.cluster.client().await.get(&path("/in/d6/x")).await;
        assert!(read.expect("it is read back") == bytes_of(6, 5000), "it has other bytes");
    });
}

#[test]
fn object_of_a_store_that_vanishes_while_it_is_read_back_is_not_lost() {
    let Some(place) = Vanishing::new("/store", "object_of_a_store_that_vanishes") else { return };
    fs::write(place.store.join("x"), bytes_of(1, 5000)).expect("written");
    let adopted = place.cluster.cli(&ADOPT);
    assert_eq!(adopted.code, 0, "{adopted}");
    place.set_off();
    let read = place.cluster.cli(&["--timeout", "6s", "fs", "cat", "/in/x"]);
    assert_eq!((read.code, read.stdout.len()), (124, 0), "{read}");
    place.bring_back();
    block_on(async {
        let read = place.cluster.client().await.get(&path("/in/x")).await;
        assert!(read.expect("it is read back") == bytes_of(1, 5000), "it has other bytes");
    });
}

#[test]
fn object_of_a_store_that_vanishes_while_it_is_removed_is_removed_when_it_is_back() {
    let Some(place) = Vanishing::new("/store", "object_of_a_store_that_vanishes") else { return };
    make(&place.cluster, "/out");
    block_on(async { put(&place.cluster.client().await, "/out/x", 1, 5000).await });
    let sync = || {
        let synced = place.cluster.cli(&["fs", "sync", "/out", "--timeout", "120s"]);
        assert_eq!(synced.code, 0, "{synced}");
    };
    sync();
    place.set_off();
    let removed = place.cluster.cli(&["fs", "rm", "/out/x"]);
    assert_eq!(removed.code, 0, "{removed}");
    until("the store vanishes", SOON, || place.away.exists().then_some(()));
    place.bring_back();
    sync();
    assert!(!place.store.join("x").exists(), "it was not found in the moved store");
}
