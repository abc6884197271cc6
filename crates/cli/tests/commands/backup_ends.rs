//! Backups that end early: what was written of them goes.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path as LocalPath;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::cluster::{Cluster, SOON, Server, sanderling, until};
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

/// Starts a gateway with a bucket for backups.
fn gateway(cluster: &Cluster) -> Server {
    let namenode = &cluster.namenode.address;
    let words = ["gateway", "s3", "--namenode", namenode, "--listen", "127.0.0.1:0"];
    let gateway = cluster.serve("gateway", &[&words[..], &["--http", "none"]].concat());
    let made = cluster.cli(&["fs", "mkdir", "/backups"]);
    assert_eq!(made.code, 0, "{made}");
    gateway
}

/// Returns how many uploads the gateway keeps that were begun.
fn uploads(cluster: &Cluster) -> usize {
    cluster.cli(&["fs", "ls", "/backups/%!u"]).stdout.lines().count()
}

/// Begins a backup to the bucket at an address, of the namenode that serves HTTP at another one.
fn begun_in_bucket(address: &str, http: &str) -> Child {
    let mut command = sanderling();
    for (name, value) in [
        ("AWS_ENDPOINT_URL", format!("http://{address}").as_str()),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "sanderling"),
        ("AWS_SECRET_ACCESS_KEY", "sanderling"),
    ] {
        command.env(name, value);
    }
    begun(command, http, "s3://backups/catalog.backup")
}

/// Listens as a gateway that answers no request with a part of an upload. Returns its address, and
/// whether one has come.
fn holding_parts(gateway: &str) -> (String, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound").to_string();
    let (has_come, gateway) = (Arc::new(AtomicBool::new(false)), gateway.to_owned());
    let held = Arc::clone(&has_come);
    std::thread::spawn(move || {
        for caller in listener.incoming().flatten() {
            let server = TcpStream::connect(&gateway).expect("it serves");
            let (mut answers, mut back) = (copy(&server), copy(&caller));
            std::thread::spawn(move || std::io::copy(&mut answers, &mut back));
            let held = Arc::clone(&held);
            std::thread::spawn(move || pass(caller, server, &held));
        }
    });
    (address, has_come)
}

fn copy(stream: &TcpStream) -> TcpStream {
    stream.try_clone().expect("a descriptor is free")
}

/// Passes requests on until one has a part.
fn pass(mut caller: TcpStream, mut server: TcpStream, is_held: &AtomicBool) {
    let (mut bytes, mut has_part) = ([0; 64 << 10], false);
    while let Ok(count @ 1..) = caller.read(&mut bytes) {
        let part = b"partNumber=";
        has_part = has_part || bytes[..count].windows(part.len()).any(|it| it == part);
        match has_part {
            true => is_held.store(true, Ordering::Relaxed),
            false if server.write_all(&bytes[..count]).is_err() => break,
            false => {}
        }
    }
    // It may have gone away.
    let _ = server.shutdown(Shutdown::Both);
}

#[test]
fn backup_to_a_bucket_that_is_interrupted_leaves_no_upload() {
    let cluster = Cluster::of(1);
    let gateway = gateway(&cluster);
    let backup = begun_in_bucket(&gateway.address, &stalling());
    until("the upload has begun", SOON, || (uploads(&cluster) == 1).then_some(()));
    interrupt(&backup, Signal::TERM);
    assert_eq!(ended(backup).code(), Some(130));
    assert_eq!(uploads(&cluster), 0, "an upload is left");
}

/// All that the namenode sends has come, and is less than a part.
#[test]
fn backup_to_a_bucket_that_is_interrupted_in_its_last_step_leaves_no_upload() {
    let cluster = Cluster::of(1);
    let gateway = gateway(&cluster);
    let (address, has_come) = holding_parts(&gateway.address);
    let backup = begun_in_bucket(&address, &cluster.namenode.http_address);
    until("the part is sent", SOON, || has_come.load(Ordering::Relaxed).then_some(()));
    assert_eq!(uploads(&cluster), 1);
    interrupt(&backup, Signal::TERM);
    assert_eq!(ended(backup).code(), Some(130));
    assert_eq!(uploads(&cluster), 0, "an upload is left");
}
