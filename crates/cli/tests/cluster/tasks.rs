//! A task that counts, its runners, and what is stored of it.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::{Killed, Ran, SOON, run, sanderling, until};

/// Counts, and writes its count and bytes that follow from it when it gets SIGUSR1: as many as its
/// argument. With a second argument it verifies such a directory and prints the count.
const COUNTER: &str = r#"
import os, random, signal, sys, time
state = os.environ.get("SANDERLING_TASK_STATE")

def content(count):
    return random.Random(count).randbytes(int(sys.argv[1]))

def save(*_):
    with open(os.path.join(state, "bytes"), "wb") as file:
        file.write(content(count))
    with open(os.path.join(state, "count"), "w") as file:
        file.write(str(count))
    with open(os.path.join(state, "done"), "w"):
        pass

def verified(directory):
    count = int(open(os.path.join(directory, "count")).read())
    assert open(os.path.join(directory, "bytes"), "rb").read() == content(count), count
    return count

if len(sys.argv) > 2:
    print(verified(sys.argv[2]))
    sys.exit()
count = verified(state) if "SANDERLING_TASK_RESTORED" in os.environ else 0
signal.signal(signal.SIGUSR1, save)
while True:
    time.sleep(0.01)
    count += 1
"#;

/// How a process is started that cannot be seen from here, as one on another machine.
pub(crate) const ELSEWHERE: [&str; 5] =
    ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child=KILL"];

/// A place with the counter, its key and its backend.
pub(crate) struct TaskPlace {
    directory: TempDir,
    backend: String,
    namenode: Option<String>,
    bytes: usize,
    /// The time between two dumps of the runners.
    pub(crate) interval: &'static str,
    /// Environment of the runners.
    pub(crate) variables: Vec<(&'static str, PathBuf)>,
}

/// A runner, which is killed when its test is over, also by a failure.
pub(crate) struct TaskRunner {
    child: Killed,
    log: PathBuf,
}

impl TaskPlace {
    /// Stores in a directory; so many bytes change with every count.
    pub(crate) fn in_directory(backend: &Path, bytes: usize) -> Self {
        Self::of(format!("dir:{}", backend.display()), None, bytes)
    }

    /// Stores below `/tasks` in a cluster.
    pub(crate) fn in_cluster(namenode: &str, bytes: usize) -> Self {
        Self::of("/tasks".to_owned(), Some(namenode.to_owned()), bytes)
    }

    fn of(backend: String, namenode: Option<String>, bytes: usize) -> Self {
        let directory = TempDir::new().expect("a directory");
        std::fs::write(directory.path().join("counter.py"), COUNTER).expect("written");
        Self { directory, backend, namenode, bytes, interval: "100ms", variables: Vec::new() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the command of a verb, with the key and the backend.
    pub(crate) fn task(&self, verb: &str) -> Command {
        let mut command = sanderling();
        command.args(["task", verb, "--backend", &self.backend]);
        if verb != "ls" {
            command.args(["--name", "count", "--key"]).arg(self.path("key"));
        }
        if let Some(namenode) = &self.namenode {
            command.env("SANDERLING_NAMENODE", namenode);
        }
        command
    }

    /// Starts a runner with a log of that name, by a command around it, and with further flags.
    pub(crate) fn runner(&self, name: &str, around: &[&str], flags: &[&str]) -> TaskRunner {
        let counter = self.path("counter.py").into_os_string();
        let words = ["python3".into(), counter, self.bytes.to_string().into()];
        self.runner_of(name, around, flags, &words)
    }

    /// Starts a runner as [`Self::runner`] does, of another command.
    pub(crate) fn runner_of(
        &self,
        name: &str,
        around: &[&str],
        flags: &[&str],
        words: &[OsString],
    ) -> TaskRunner {
        let log = self.path(&format!("{name}.log"));
        let file = std::fs::File::create(&log).expect("a log");
        let mut task = self.task("run");
        task.args(["--interval", self.interval]).args(flags).arg("--").args(words);
        let mut command = within(around, task);
        command.envs(self.variables.iter().map(|(key, value)| (key, value)));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).spawn();
        TaskRunner { child: Killed(child.expect("started")), log }
    }

    /// Returns the numbers of all generations, the newest first.
    pub(crate) fn generations(&self) -> Vec<u64> {
        let listed = run(self.task("ls").arg("--json"));
        let listed: Value = serde_json::from_str(&listed.stdout).unwrap_or_default();
        let numbers = listed["tasks"][0]["generations"].as_array().cloned().unwrap_or_default();
        numbers.iter().filter_map(Value::as_u64).collect()
    }

    pub(crate) fn newest(&self) -> u64 {
        self.generations().first().copied().unwrap_or(0)
    }

    /// Waits until there is a generation after that one.
    pub(crate) fn until_after(&self, generation: u64, runner: &mut TaskRunner) -> u64 {
        until("a later generation", SOON, || {
            assert_eq!(runner.ended(), None, "the runner ended: {}", runner.log());
            Some(self.newest()).filter(|newest| *newest > generation)
        })
    }

    /// Restores the newest good generation and verifies it; returns it and its count.
    pub(crate) fn restored(&self) -> (u64, u64) {
        self.try_restored().unwrap_or_else(|ran| panic!("{ran}"))
    }

    /// As [`Self::restored`]; the command if it fails.
    pub(crate) fn try_restored(&self) -> Result<(u64, u64), Ran> {
        let to = self.path("restored");
        let ran = run(self.task("restore").arg("--json").arg("--state").arg(&to));
        if ran.code != 0 {
            return Err(ran);
        }
        let document: Value = serde_json::from_str(&ran.stdout).expect("JSON");
        let mut verify = Command::new("python3");
        verify.arg(self.path("counter.py")).arg(self.bytes.to_string());
        let verified = run(verify.arg(&to));
        assert_eq!(verified.code, 0, "{verified}");
        let count = verified.stdout.trim().parse().expect("a count");
        Ok((document["restored"].as_u64().expect("a number"), count))
    }

    /// Verifies all generations.
    pub(crate) fn verified(&self) -> Ran {
        run(&mut self.task("verify"))
    }
}

impl TaskRunner {
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Returns the process of its task, once that is started.
    pub(crate) fn task(&self) -> u32 {
        until("the task is started", SOON, || self.children().first().copied())
    }

    /// Returns the process that guards its task, once that is started.
    pub(crate) fn guard(&self) -> u32 {
        let is_guard = |pid: &u32| {
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&words).contains("\0task\0guard\0")
        };
        until("the guard is started", SOON, || self.children().into_iter().find(is_guard))
    }

    fn children(&self) -> Vec<u32> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        let threads = threads.into_iter().flatten().flatten();
        let children = threads.map(|it| std::fs::read_to_string(it.path().join("children")));
        let children: Vec<String> = children.flatten().collect();
        let pids = children.iter().flat_map(|pids| pids.split_whitespace());
        pids.filter_map(|pid| pid.parse().ok()).collect()
    }

    /// Returns its exit code if it ended.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        self.child.ended()
    }

    /// Waits until its log has that many lines with a text.
    pub(crate) fn until_logged(&self, text: &str, count: usize) {
        until(&format!("{count} times {text:?}"), SOON, || {
            (self.log().matches(text).count() >= count).then_some(())
        });
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        self.child.signal(Signal::TERM);
    }

    /// Sends SIGSTOP, and waits until it is stopped.
    pub(crate) fn pause(&mut self) {
        self.child.signal(Signal::STOP);
        self.until_stopped();
    }

    /// Waits until it is stopped, as by SIGSTOP.
    pub(crate) fn until_stopped(&mut self) {
        let stat = format!("/proc/{}/stat", self.child.id());
        until("the runner is stopped", SOON, || {
            assert_eq!(self.ended(), None, "the runner ended: {}", self.log());
            let stat = std::fs::read_to_string(&stat).unwrap_or_default();
            let state = stat.rsplit_once(") ").map_or("", |(_, state)| state);
            state.starts_with('T').then_some(())
        });
    }

    /// Lets it go on.
    pub(crate) fn resume(&self) {
        self.child.signal(Signal::CONT);
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().expect("our own child can be killed");
        self.child.wait().expect("our own child can be waited for");
    }
}

/// Returns a command with a program and its words around it, if there are any.
pub(crate) fn within(around: &[&str], inner: Command) -> Command {
    let [program, words @ ..] = around else { return inner };
    let mut command = Command::new(program);
    command.args(words).arg(inner.get_program()).args(inner.get_args());
    let variables = inner.get_envs();
    command.envs(variables.map(|(key, value)| (key, value.unwrap_or_default())));
    command
}

/// Returns the program of CRIU, which needs root; `None` where it cannot be used.
pub(crate) fn usable_criu() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let given = std::env::var_os("SANDERLING_CRIU").map(PathBuf::from);
    let unpacked = Some(root.join("target/criu/criu")).filter(|it| it.exists());
    let criu = given.or(unpacked).unwrap_or_else(|| "criu".into());
    let check = Command::new(&criu).arg("check").output();
    let is_usable = check.is_ok_and(|it| it.status.success());
    (rustix::process::geteuid().is_root() && is_usable).then_some(criu)
}

/// Returns whether namespaces and mounts can be made here; logs that in a test that needs them.
pub(crate) fn is_root(test: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("SKIPPED {test}: it needs root");
    }
    is_root
}

/// Builds a library from its source in C, which includes `faults.h`, for `LD_PRELOAD`; `None` where
/// no C compiler is.
pub(crate) fn library(directory: &Path, source: &str) -> Option<PathBuf> {
    let (file, library) = (directory.join("library.c"), directory.join("library.so"));
    std::fs::write(directory.join("faults.h"), include_str!("faults.h")).expect("a file");
    std::fs::write(&file, source).expect("a file");
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(file).arg("-ldl");
    compile.status().ok().filter(|status| status.success()).map(|_| library)
}

/// What is mounted at a directory, until this is dropped.
pub(crate) struct Mounted(PathBuf);

impl Mounted {
    /// Mounts a file system in memory.
    pub(crate) fn memory(at: &Path, options: &str) -> Self {
        std::fs::create_dir_all(at).expect("made");
        Self::by(Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]), at)
    }

    /// Binds another directory to it.
    pub(crate) fn bound(from: &Path, at: &Path) -> Self {
        Self::by(Command::new("mount").arg("--bind").arg(from), at)
    }

    fn by(mount: &mut Command, at: &Path) -> Self {
        let mounted = run(mount.arg(at));
        assert_eq!(mounted.code, 0, "{mounted}");
        Self(at.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// A file system in memory, of so many MiB. It is unmounted before its directory is removed.
pub(crate) struct SmallDisk(Mounted, TempDir);

impl SmallDisk {
    pub(crate) fn of(mebibytes: u32) -> Self {
        let place = TempDir::new().expect("a directory");
        let size = format!("size={mebibytes}m,mode=755");
        Self(Mounted::memory(place.path(), &size), place)
    }

    pub(crate) fn path(&self) -> &Path {
        self.1.path()
    }

    /// Leaves so many bytes free. What else writes here may take the room first: then it is full.
    pub(crate) fn fill_but(&self, left: u64) {
        let about = rustix::fs::statvfs(self.path()).expect("mounted");
        let bytes = (about.f_bavail * about.f_frsize).saturating_sub(left);
        let bytes = vec![7; usize::try_from(bytes).expect("small")];
        let filled = std::fs::write(self.path().join("filler"), bytes);
        if let Err(error) = filled {
            assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
        }
    }

    pub(crate) fn empty(&self) {
        std::fs::remove_file(self.path().join("filler")).expect("it was filled");
    }
}
