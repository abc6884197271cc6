//! Servers whose log cannot leave: its reader stands still or has ended, or its disk is full. They
//! serve, drain and end as always.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use bytes::Bytes;
use rustix::fs::OFlags;
use sanderling_client::PutOptions;
use tempfile::TempDir;

use crate::cluster::guarded::text;
use crate::cluster::namenodes::client;
use crate::cluster::{Port, SOON, Server, Starting, block_on, path, run, sanderling, until};

const OBJECTS: usize = 4;

fn value(number: usize) -> Bytes {
    Bytes::from(vec![u8::try_from(number).expect("few"); 1 << 20])
}

/// Starts a server with this redirection of its stderr.
fn serve(place: &Path, log: &str, name: &str, words: &[&str]) -> Server {
    let mut program = Command::new("bash");
    program.args(["-c", &format!("exec \"$@\" {log}"), "bash"]);
    program.arg(env!("CARGO_BIN_EXE_sanderling")).env("SANDERLING_CONFIG_HOME", "/nonexistent");
    Starting::by(program, place, name, words).serves()
}

/// Makes a pipe with a name.
fn named_pipe(place: &Path) -> PathBuf {
    let log = place.join("log");
    let made = Command::new("mkfifo").arg(&log).status().expect("coreutils are there");
    assert!(made.success());
    log
}

/// Opens both ends of a pipe, which others may open then without waiting.
fn opened(log: &Path) -> File {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).expect("a flag");
    let pipe = OpenOptions::new().read(true).write(true).custom_flags(flags).open(log);
    pipe.expect("opened")
}

/// Reads what is in a pipe.
fn drained(pipe: &mut File) -> String {
    let (mut read, mut bytes) = (Vec::new(), [0; 4096]);
    while let Ok(count) = pipe.read(&mut bytes) {
        read.extend_from_slice(&bytes[..count]);
    }
    String::from_utf8_lossy(&read).into_owned()
}

/// Makes a pipe, and returns its end for reading. It has no room.
fn full_pipe(place: &Path) -> (PathBuf, File) {
    let log = named_pipe(place);
    let mut pipe = opened(&log);
    let full = loop {
        if let Err(error) = pipe.write(&[b'x'; 4096]) {
            break error;
        }
    };
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
    (log, pipe)
}

/// Stores objects, drains a node by a notice, ends the namenode by SIGTERM and starts it again:
/// all of that is logged. Ends with `look`, while the servers run.
fn assert_serves(log: &str, look: impl FnOnce()) {
    let place = TempDir::new().expect("a directory");
    let place = place.path();
    let port = Port::new();
    let (address, catalog) = (port.address(), text(place.join("catalog")));
    let words = ["namenode", "--listen", &address, "--http", "127.0.0.1:0", "--dir", &catalog];
    let mut namenode = serve(place, log, "namenode", &words);
    let [_noticed, mut other] = ["n0", "n1"].map(|name| {
        let words = ["datanode", "--namenode", &address, "--name", name, "--dram", "64MiB"];
        serve(place, log, name, &words)
    });
    let cli = |words: &[&str]| {
        let ran = run(sanderling().args(words).args(["--namenode", &address]));
        assert_eq!(ran.code, 0, "{words:?}: {ran}");
    };
    block_on(async {
        let client = client(&address).await;
        for number in 0..OBJECTS {
            let to = path(&format!("/{number}"));
            client.put(&to, value(number), &PutOptions::default()).await.expect("stored");
        }
    });
    cli(&["node", "notice", "n0", "--deadline", "60s", "--wait", "--yes"]);
    namenode.terminate();
    assert!(namenode.wait(SOON).success(), "it ends by SIGTERM");
    namenode = serve(place, log, "namenode", &words);
    block_on(async {
        let client = client(&address).await;
        for number in 0..OBJECTS {
            let read = client.get(&path(&format!("/{number}"))).await.expect("nothing is lost");
            assert!(read == value(number), "/{number} has other bytes");
        }
    });
    cli(&["fsck"]);
    look();
    assert_eq!((namenode.ended(), other.ended()), (None, None));
}

#[test]
fn log_on_a_full_disk_ends_no_server() {
    assert_serves("2>>/dev/full", || ());
}

#[test]
fn log_whose_reader_has_ended_ends_no_server() {
    assert_serves("2> >(exec true)", || ());
}

#[test]
fn log_that_nothing_reads_holds_no_server_up_and_comes_later() {
    let place = TempDir::new().expect("a directory");
    let (log, mut pipe) = full_pipe(place.path());
    let look = || {
        let mut read = String::new();
        until("the lines that waited come", SOON, || {
            read.push_str(&drained(&mut pipe));
            read.contains("INFO").then_some(())
        });
    };
    assert_serves(&format!("2>>'{}'", log.display()), look);
}

#[test]
fn log_whose_reader_begins_anew_has_the_number_of_lines_that_were_dropped() {
    let place = TempDir::new().expect("a directory");
    let place = place.path();
    let log = named_pipe(place);
    let first = opened(&log);
    let to = format!("2>>'{}'", log.display());
    let port = Port::new();
    let (address, catalog) = (port.address(), text(place.join("catalog")));
    let words = ["namenode", "--listen", &address, "--http", "none", "--dir", &catalog];
    let mut namenode = serve(place, &to, "namenode", &words);
    let cli = |words: &[&str]| {
        let ran = run(sanderling().args(words).args(["--namenode", &address]));
        assert_eq!(ran.code, 0, "{words:?}: {ran}");
    };
    // The namenode has the only other end.
    drop(first);
    let mut read = String::new();
    until("the namenode logs how many lines it dropped", SOON, || {
        // Both changes are logged. The first one's line is lost unless it leaves late.
        cli(&["job", "new", "/job"]);
        let mut next = opened(&log);
        cli(&["job", "end", "/job"]);
        read.push_str(&drained(&mut next));
        read.contains("lines of this log were dropped").then_some(())
    });
    assert_eq!(namenode.ended(), None);
}
