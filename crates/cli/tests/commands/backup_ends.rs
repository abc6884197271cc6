//! Backups that end early: what was written of them goes.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path as LocalPath;
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::cluster::{Cluster, SOON, sanderling, until};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Listens as a namenode that begins to send backups and ends none. Returns its address.
fn stalling() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound").to_string();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for mut stream in listener.incoming().flatten() {
            // What is requested is always the same.
            let _ = stream.read(&mut [0; 4096]);
            let head = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n";
            let _ = stream.write_all(&[&head[..], &[7_u8; 1000]].concat());
            open.push(stream);
        }
    });
    address
}

/// Begins a backup of the namenode that serves HTTP at an address.
fn begun(mut command: Command, http: &str, to: &str) -> Child {
    command.args(["namenode", "backup", "--http", http, "--to", to]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("it starts")
}

fn interrupt(backup: &Child, signal: Signal) {
    let pid = Pid::from_raw(backup.id().cast_signed()).expect("a process");
    kill_process(pid, signal).expect("sent");
}

fn ended(mut backup: Child) -> ExitStatus {
    until("it ends", SOON, || backup.try_wait().expect("a child"))
}

/// Returns the names in a directory.
fn names(directory: &LocalPath) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    let names = entries.map(|it| it.expect("an entry").file_name().to_string_lossy().into_owned());
    names.collect()
}

#[test]
fn backup_that_is_interrupted_or_late_leaves_what_was_there_and_nothing_else() {
    let (http, place) = (stalling(), TempDir::new().expect("a directory"));
    let to = place.path().join("catalog.backup");
    fs::write(&to, "the one before").expect("written");
    let begin = |flags: &[&str]| {
        let mut command = sanderling();
        command.args(flags);
        let backup = begun(command, &http, to.to_str().expect("UTF-8"));
        until("a part is there", SOON, || {
            names(place.path()).contains(&"catalog.backup.partial".to_owned()).then_some(())
        });
        backup
    };
    let is_as_before = |how: &str| {
        assert_eq!(names(place.path()), ["catalog.backup"], "{how}");
        assert_eq!(fs::read_to_string(&to).expect("there"), "the one before", "{how}");
    };
    for signal in [Signal::INT, Signal::TERM] {
        let backup = begin(&[]);
        interrupt(&backup, signal);
        assert_eq!(ended(backup).code(), Some(130), "{signal:?}");
        is_as_before(&format!("{signal:?}"));
    }
    assert_eq!(ended(begin(&["--timeout", "5s"])).code(), Some(124));
    is_as_before("--timeout");
}

#[test]
fn backup_to_a_bucket_that_is_interrupted_leaves_no_upload() {
    let cluster = Cluster::of(1);
    let namenode = &cluster.namenode.address;
    let words = ["gateway", "s3", "--namenode", namenode, "--listen", "127.0.0.1:0"];
    let gateway = cluster.serve("gateway", &[&words[..], &["--http", "none"]].concat());
    let made = cluster.cli(&["fs", "mkdir", "/backups"]);
    assert_eq!(made.code, 0, "{made}");
    // Where the gateway keeps what was begun.
    let uploads = || cluster.cli(&["fs", "ls", "/backups/%!u"]).stdout.lines().count();
    let mut command = sanderling();
    for (name, value) in [
        ("AWS_ENDPOINT_URL", format!("http://{}", gateway.address).as_str()),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "sanderling"),
        ("AWS_SECRET_ACCESS_KEY", "sanderling"),
    ] {
        command.env(name, value);
    }
    let backup = begun(command, &stalling(), "s3://backups/catalog.backup");
    until("the upload has begun", SOON, || (uploads() == 1).then_some(()));
    interrupt(&backup, Signal::TERM);
    assert_eq!(ended(backup).code(), Some(130));
    assert_eq!(uploads(), 0, "an upload is left");
}
