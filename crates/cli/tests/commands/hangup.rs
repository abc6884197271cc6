//! Commands whose terminal closes: SIGHUP.

use std::fs;
use std::path::Path as LocalPath;
use std::process::{Child, Command, Stdio};

use crate::cluster::{Cluster, SOON, block_on, bytes_of, path, sanderling, until};
use rustix::process::{Pid, Signal, kill_process};
use sanderling_client::PutOptions;
use tempfile::TempDir;

/// A cluster with `/big`, whose only datanode does not answer.
fn silent() -> Cluster {
    let mut cluster = Cluster::of(1);
    block_on(async {
        let client = cluster.client().await;
        let bytes = bytes_of(1, 3 << 20);
        client.put(&path("/big"), bytes, &PutOptions::default()).await.expect("stored");
    });
    cluster.datanode("n0").pause();
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
    for _ in 0..5 {
        let cluster = silent();
        let place = TempDir::new().expect("a directory");
        let mut command = sanderling();
        command.args(["fs", "get", "/big"]).arg(place.path().join("big"));
        let mut get = hung_up(command, &cluster, place.path());
        let status = until("it ends", SOON, || get.try_wait().expect("a child"));
        assert_eq!(fs::read_dir(place.path()).expect("there").count(), 0, "something is left");
        // On a busy machine the silent datanode may have been given up before the signal: then the
        // bytes are lost, and the command has ended by itself.
        if status.code() != Some(5) {
            assert_eq!(status.code(), Some(130));
            return;
        }
    }
    panic!("the datanode was given up each time");
}

#[test]
fn fetching_command_that_ignores_its_terminals_end_goes_on() {
    let mut cluster = silent();
    let place = TempDir::new().expect("a directory");
    let mut command = Command::new("nohup");
    command.arg(sanderling().get_program()).args(["fs", "get", "/big"]);
    command.arg(place.path().join("big"));
    let mut get = hung_up(command, &cluster, place.path());
    cluster.datanode("n0").resume();
    let status = until("it ends", SOON, || get.try_wait().expect("a child"));
    assert_eq!(status.code(), Some(0));
    assert!(fs::read(place.path().join("big")).expect("there") == bytes_of(1, 3 << 20));
}
