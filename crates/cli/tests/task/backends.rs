//! Which backends commands take.

use crate::cluster::tasks::{TaskPlace, library};
use crate::cluster::{Cluster, run, sanderling};
use tempfile::TempDir;

/// Two processes that write at once would both believe that they were the first.
#[test]
fn backend_that_ignores_conditions_is_refused_by_each_command_that_writes() {
    let directory = TempDir::new().expect("a directory");
    let Some(library) = library(directory.path(), include_str!("replaced_link.c")) else {
        return eprintln!("SKIPPED: no C compiler");
    };
    let backend = directory.path().join("backend");
    let place = TaskPlace::in_directory(&backend, 10_000);
    let mut runner = place.runner("publish", &[], &[]);
    place.until_after(0, &mut runner);
    runner.kill();
    let submit = || {
        let mut command = sanderling();
        command.args(["task", "submit", "--bag", "b", "--time", "1s", "--deadline", "1h"]);
        command.arg("--backend").arg(format!("dir:{}", backend.display()));
        command.args(["--", "true"]);
        command
    };
    let mut start = place.task("run");
    start.args(["--", "true"]);
    for mut command in [submit(), start, place.task("gc")] {
        let ran = run(command.env("LD_PRELOAD", &library));
        let why = "an object is replaced there under the condition that it is absent";
        assert!(ran.code == 1 && ran.stderr.contains(why), "{ran}");
    }
    assert!(!backend.join("@b/bag").exists(), "the bag was submitted");
    for mut command in [submit(), place.task("gc")] {
        let ran = run(&mut command);
        assert_eq!(ran.code, 0, "{ran}");
    }
}

#[test]
fn automatic_backend_is_in_the_cluster_that_is_configured() {
    let refused = run(sanderling().args(["task", "ls", "--backend", "auto"]));
    assert_eq!(refused.code, 2, "{refused}");
    for named in ["no cluster is configured", "--namenode", "s3://BUCKET/PREFIX", "dir:D"] {
        assert!(refused.stderr.contains(named), "{named}: {refused}");
    }
    let cluster = Cluster::of(1);
    let place = TaskPlace::in_cluster(&cluster.namenode.address, 10_000);
    let mut runner = place.runner("runner", &[], &[]);
    place.until_after(0, &mut runner);
    runner.kill();
    let mut listed = sanderling();
    listed.env("SANDERLING_NAMENODE", &cluster.namenode.address);
    let listed = run(listed.args(["task", "ls", "--backend", "auto"]));
    assert!(listed.code == 0 && listed.stdout.contains("count"), "{listed}");
}
