//! Keys of checkpoints, on file systems that are not what most are.

use crate::cluster::run;
use crate::cluster::tasks::{TaskPlace, library};
use tempfile::TempDir;

/// A machine that ends then may have checkpoints, and no file with their key.
#[test]
fn key_whose_name_may_not_be_on_disk_is_not_used() {
    let directory = TempDir::new().expect("a directory");
    let Some(library) = library(directory.path(), include_str!("unsynced_key.c")) else {
        return eprintln!("SKIPPED: no C compiler");
    };
    let place = TaskPlace::in_directory(&directory.path().join("backend"), 10_000);
    let (below, started) = (place.path("").canonicalize().expect("there"), place.path("started"));
    let start = || {
        let mut start = place.task("run");
        start.args(["--driver", "hook", "--", "touch"]).arg(&started);
        start.env("LD_PRELOAD", &library);
        start
    };
    let ran = run(start().env("SYNC_FAILS", &below));
    assert!(ran.code == 1 && ran.stderr.contains("/key: Input/output error"), "{ran}");
    assert!(!started.exists(), "the task was started: {ran}");
    let ran = run(&mut start());
    assert!(ran.code == 0 && started.exists(), "{ran}");
}
