//! Commands whose terminal closes: SIGHUP.

use std::fs;
use std::path::Path as LocalPath;
use std::process::{Child, Command, Stdio};

use crate::cluster::{Cluster, SOON, block_on, bytes_of, path, sanderling, until};
use rustix::process::{Pid, Signal, kill_process};
use sanderling_client::PutOptions;
use tempfile::TempDir;

/// A cluster with `/big`, which takes six seconds to fetch.
fn slow() -> Cluster {
    let mut cluster = Cluster::of(0);
    cluster.add("n0", &["--egress-limit", "512KiB"]);
    block_on(async {
        let client = cluster.client().await;
        let bytes = bytes_of(1, 3 << 20);
        client.put(&path("/big"), bytes, &PutOptions::default()).await.expect("stored");
    });
    cluster
}

/// Returns the names in a directory that end like that of an unfinished file.
fn parts(directory: &LocalPath) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    let names = entries.map(|it| it.expect("an entry").file_name().to_string_lossy().into_owned());
    names.filter(|name| name.ends_with(".part")).collect()
}

/// Begins to fetch `/big`, and lets its terminal close when a part of it is there.
fn hung_up(mut command: Command, cluster: &Cluster, to: &LocalPath) -> Child {
    command.env("SANDERLING_NAMENODE", &cluster.namenode.address);
    let get = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    until("a part is there", SOON, || (!parts(to).is_empty()).then_some(()));
    let pid = Pid::from_raw(get.id().cast_signed()).expect("a process");
    kill_process(pid, Signal::HUP).expect("sent");
    get
}

#[test]
fn fetching_command_whose_terminal_closes_leaves_no_part() {
    let cluster = slow();
    let place = TempDir::new().expect("a directory");
    // This test may itself be run by `nohup`, whose processes ignore the signal.
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP").arg(sanderling().get_program());
    command.args(["fs", "get", "/big"]).arg(place.path().join("big"));
    let mut get = hung_up(command, &cluster, place.path());
    let status = until("it ends", SOON, || get.try_wait().expect("a child"));
    assert_eq!(fs::read_dir(place.path()).expect("there").count(), 0, "something is left");
    assert_eq!(status.code(), Some(130));
}

#[test]
fn fetching_command_that_ignores_its_terminals_end_goes_on() {
    let cluster = slow();
    let place = TempDir::new().expect("a directory");
    let mut command = Command::new("nohup");
    command.arg(sanderling().get_program()).args(["fs", "get", "/big"]);
    command.arg(place.path().join("big"));
    let mut get = hung_up(command, &cluster, place.path());
    let status = until("it ends", SOON, || get.try_wait().expect("a child"));
    assert_eq!(status.code(), Some(0));
    assert!(fs::read(place.path().join("big")).expect("there") == bytes_of(1, 3 << 20));
}
