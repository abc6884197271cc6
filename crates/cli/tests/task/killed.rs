//! What a killed `task predict` leaves in the backend, and a runner that is killed while it makes
//! its key.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path as LocalPath, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use crate::cluster::tasks::TaskPlace;
use crate::cluster::{Cluster, SOON, run, sanderling, until};
use rustix::process::Signal;
use tempfile::TempDir;

/// A backend in a directory, which `task predict` measures.
struct Measured(TempDir);

impl Measured {
    fn new() -> Self {
        Self(TempDir::new().expect("a directory"))
    }

    fn predict(&self) -> Command {
        let mut command = sanderling();
        command.args(["task", "predict", "--rss", "1MiB", "--pack-rate", "1GB/s", "--backend"]);
        command.arg(format!("dir:{}", self.0.path().display()));
        command
    }

    fn start(&self) -> Child {
        let mut command = self.predict();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("started")
    }

    /// Returns the files of what is measured that are whole.
    fn packs(&self) -> Vec<PathBuf> {
        self.files().into_iter().filter(|path| !is_draft(path)).collect()
    }

    /// Returns those that are not whole.
    fn drafts(&self) -> Vec<PathBuf> {
        self.files().into_iter().filter(|path| is_draft(path)).collect()
    }

    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.0.path().join("@@predict/packs"));
        entries.into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    }

    /// Kills a command as soon as there is a file of what it measures; returns whether the file
    /// stays.
    fn kill_at(&self, files: impl Fn(&Self) -> Vec<PathBuf>) -> bool {
        let before = files(self);
        let is_new = |files: Vec<PathBuf>| files.iter().any(|it| !before.contains(it));
        let mut child = self.start();
        while child.try_wait().expect("our own child").is_none() && !is_new(files(self)) {}
        child.kill().expect("our own child");
        child.wait().expect("our own child");
        is_new(files(self))
    }
}

fn is_draft(path: &LocalPath) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// Sets the time at which a file was written an hour back.
fn date_back(path: &LocalPath) {
    let file = File::options().write(true).open(path).expect("there");
    let then = SystemTime::now() - Duration::from_secs(3600);
    file.set_times(fs::FileTimes::new().set_modified(then)).expect("set");
}

#[test]
fn forecast_removes_what_a_killed_one_left() {
    let measured = Measured::new();
    until("a pack is left", SOON, || measured.kill_at(Measured::packs).then_some(()));
    until("a draft is left", SOON, || measured.kill_at(Measured::drafts).then_some(()));
    let ran = run(&mut measured.predict());
    assert_eq!(ran.code, 0, "{ran}");
    assert_eq!(measured.packs(), [] as [PathBuf; 0]);
    // On a file system without locks they may be those of a writer.
    assert_ne!(measured.drafts(), [] as [PathBuf; 0]);
    measured.drafts().iter().for_each(|path| date_back(path));
    let ran = run(&mut measured.predict());
    assert_eq!(ran.code, 0, "{ran}");
    assert_eq!(measured.files(), [] as [PathBuf; 0]);
}

#[test]
fn forecasts_at_the_same_time_do_not_disturb_each_other() {
    let measured = Measured::new();
    for _ in 0..5 {
        let children = [(); 3].map(|()| measured.start());
        for mut child in children {
            assert!(child.wait().expect("our own child").success());
        }
    }
    assert_eq!(measured.files(), [] as [PathBuf; 0]);
}

#[test]
fn forecast_removes_what_a_killed_one_left_in_a_cluster_and_nothing_of_a_task() {
    let cluster = Cluster::of(1);
    let put = |path: &str| {
        let file = cluster.path("bytes");
        fs::write(&file, vec![7; 3000]).expect("written");
        let put = cluster.cli(&["fs", "put", file.to_str().expect("a text"), path, "--parents"]);
        assert_eq!(put.code, 0, "{put}");
    };
    let name = "ab".repeat(32);
    // A task, and a bag, may have any name.
    let others = ["predict", "@predict"].map(|task| format!("/tasks/{task}/packs/{name}"));
    let left = format!("/tasks/@@predict/packs/{name}");
    others.iter().for_each(|path| put(path));
    put(&left);
    let ran = cluster.cli(&["task", "predict", "--rss", "1MiB"]);
    assert_eq!(ran.code, 0, "{ran}");
    let is_there = |path: &str| cluster.cli(&["fs", "stat", path]).code == 0;
    assert!(!is_there(&left), "what a killed one left stays");
    assert!(others.iter().all(|path| is_there(path)), "a pack of a task is removed");
}

#[test]
fn runner_that_is_killed_while_it_writes_its_key_leaves_no_file() {
    let cluster = Cluster::of(1);
    let place = TaskPlace::in_cluster(&cluster.namenode.address, 10_000);
    let directory = place.path("keys");
    fs::create_dir(&directory).expect("made");
    let again = |command: &mut Command| {
        let key = directory.join("key");
        run(command.arg("--key").arg(key).args(["--driver", "hook", "--", "true"]))
    };
    let task = || {
        let mut command = sanderling();
        command.env("SANDERLING_NAMENODE", &cluster.namenode.address);
        command.args(["task", "run", "--name", "t"]);
        command
    };
    let names = || {
        let entries = fs::read_dir(&directory).expect("readable").flatten();
        entries.map(|entry| entry.file_name().into_string().expect("text")).collect::<Vec<_>>()
    };
    // The key is a line of 65 bytes: the kernel ends its writer at the last one.
    let mut limited = Command::new("prlimit");
    let command = task();
    limited.env("SANDERLING_NAMENODE", &cluster.namenode.address).arg("--core=0");
    limited.arg("--fsize=64").arg(command.get_program()).args(command.get_args());
    limited.arg("--key").arg(directory.join("key")).args(["--driver", "hook", "--", "true"]);
    let killed = limited.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("started");
    assert_eq!(killed.signal(), Some(Signal::XFSZ.as_raw()), "{killed}");
    assert_eq!(names(), [] as [&str; 0]);
    let ran = again(&mut task());
    assert_eq!(ran.code, 0, "{ran}");
    assert_eq!(names(), ["key"]);
}
