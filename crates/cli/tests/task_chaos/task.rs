//! The task: it counts, and its state follows from its count. Its runners, its collectors, and what
//! is restored of it.

use std::path::{Path as LocalPath, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::cluster::stores::files;
use crate::cluster::{Cluster, Killed, Ran, SOON, run, sanderling, until};

/// Counts, and writes its count and bytes that follow from it when it gets SIGUSR1. With an
/// argument it verifies such a directory and prints the count.
const HOOK_COUNTER: &str = r#"
import os, random, signal, sys, time
state = os.environ.get("SANDERLING_TASK_STATE")
count = 0

def content(count, part):
    # Two of three parts change with every count.
    return random.Random(count * 8 + part if part else 0).randbytes(300_000)

def save(*_):
    for part in range(3):
        with open(os.path.join(state, f"part-{part}"), "wb") as file:
            file.write(content(count, part))
    with open(os.path.join(state, "count"), "w") as file:
        file.write(str(count))
    with open(os.path.join(state, "done"), "w"):
        pass

def verified(directory):
    count = int(open(os.path.join(directory, "count")).read())
    for part in range(3):
        found = open(os.path.join(directory, f"part-{part}"), "rb").read()
        assert found == content(count, part), f"part {part} of {count}"
    assert sorted(os.listdir(directory)) == ["count", "part-0", "part-1", "part-2"]
    return count

if len(sys.argv) > 1:
    print(verified(sys.argv[1]))
    sys.exit()
if "SANDERLING_TASK_RESTORED" in os.environ:
    count = verified(state)
signal.signal(signal.SIGUSR1, save)
while True:
    time.sleep(0.01)
    count += 1
"#;

/// Counts in memory, where it has bytes that follow from its last counts. It verifies them at each
/// count, and ends if they are others. It appends each count to the file of its argument.
const CRIU_COUNTER: &str = r#"
import random, sys, time
counts = open(sys.argv[1], "a")
count, held = 0, {}

def content(count):
    return random.Random(count).randbytes(100_000)

while True:
    count += 1
    held[count % 3] = count, content(count)
    for number, found in held.values():
        assert found == content(number), f"the bytes of {number} at {count}"
    print(count, file=counts, flush=True)
    time.sleep(0.01)
"#;

/// Where a command finds the task.
#[derive(Debug, Clone)]
pub(crate) struct Backend {
    pub(crate) place: String,
    pub(crate) variables: Vec<(&'static str, String)>,
}

impl Backend {
    /// Returns the durable directory of a cluster.
    pub(crate) fn cluster(cluster: &Cluster) -> Self {
        let variables = vec![("SANDERLING_NAMENODE", cluster.namenode.address.clone())];
        Self { place: "/tasks".to_owned(), variables }
    }

    pub(crate) fn directory(directory: &LocalPath) -> Self {
        Self { place: format!("dir:{}", directory.display()), variables: Vec::new() }
    }
}

/// The task, with its key and its logs.
pub(crate) struct ChaosTask {
    place: TempDir,
    criu: Option<PathBuf>,
}

impl ChaosTask {
    /// Returns a task with the hook, or one that is dumped by this program of CRIU.
    pub(crate) fn new(criu: Option<PathBuf>) -> Self {
        let place = TempDir::new().expect("a directory");
        let program = if criu.is_some() { CRIU_COUNTER } else { HOOK_COUNTER };
        std::fs::write(place.path().join("counter.py"), program).expect("written");
        Self { place, criu }
    }

    pub(crate) const fn has_criu(&self) -> bool {
        self.criu.is_some()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Returns what was written to a file, such as a log.
    pub(crate) fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Returns the last lines of the runners' log.
    pub(crate) fn tail(&self) -> String {
        let log = self.text("runner.log");
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Returns the command of a verb, with the backend and the key.
    pub(crate) fn command(&self, verb: &str, backend: &Backend) -> Command {
        let mut command = sanderling();
        command.args(["task", verb, "--backend", &backend.place]);
        if verb != "ls" {
            command.args(["--name", "count", "--key"]).arg(self.path("key"));
        }
        command.envs(backend.variables.iter().map(|(name, value)| (*name, value)));
        command
    }

    fn spawned(&self, mut command: Command, log: &str) -> Killed {
        let mut options = std::fs::OpenOptions::new();
        let log = options.create(true).append(true).open(self.path(log)).expect("a log");
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        Killed(child.expect("started"))
    }

    /// Starts a runner.
    pub(crate) fn runner(&self, backend: &Backend) -> Killed {
        let mut command = self.command("run", backend);
        command.args(["--keep", "2"]);
        match &self.criu {
            None => command.args(["--driver", "hook", "--interval", "50ms"]),
            Some(criu) => {
                command.args(["--driver", "criu", "--interval", "200ms", "--criu"]).arg(criu)
            }
        };
        command.args(["--", "python3"]).arg(self.path("counter.py"));
        if self.has_criu() {
            command.arg(self.path("counts"));
        }
        self.spawned(command, "runner.log")
    }

    /// Starts `task gc`.
    pub(crate) fn collector(&self, backend: &Backend) -> Killed {
        let mut command = self.command("gc", backend);
        command.args(["--keep", "1"]);
        self.spawned(command, "gc.log")
    }

    /// Returns the generations whose manifests are there, the newest first.
    pub(crate) fn listed(&self, backend: &Backend) -> Vec<u64> {
        let listed = run(self.command("ls", backend).arg("--json"));
        let listed: Value = serde_json::from_str(&listed.stdout).unwrap_or_default();
        let numbers = listed["tasks"][0]["generations"].as_array().cloned().unwrap_or_default();
        numbers.iter().filter_map(Value::as_u64).collect()
    }

    pub(crate) fn newest(&self, backend: &Backend) -> Option<u64> {
        self.listed(backend).first().copied()
    }

    /// Waits until there is a generation after that one, while the runner goes on.
    pub(crate) fn until_after(
        &self,
        backend: &Backend,
        generation: u64,
        runner: &mut Killed,
    ) -> u64 {
        until("a later generation", SOON, || {
            assert_eq!(runner.ended(), None, "the runner ended: {}", self.tail());
            self.newest(backend).filter(|newest| *newest > generation)
        })
    }

    /// Reads all generations of a backend.
    pub(crate) fn verify(&self, backend: &Backend) -> Ran {
        run(self.command("verify", backend).arg("--json"))
    }

    /// Restores the newest good generation of a backend into a directory. Returns its number, and
    /// of a task with the hook its count.
    pub(crate) fn restored(
        &self,
        backend: &Backend,
        into: &LocalPath,
    ) -> Result<(u64, Option<u32>), String> {
        let ran = run(self.command("restore", backend).arg("--json").arg("--state").arg(into));
        if ran.code != 0 {
            return Err(format!("{}: {ran}", backend.place));
        }
        let document: Value = serde_json::from_str(&ran.stdout).expect("JSON");
        let generation = document["restored"].as_u64().expect("a number");
        let verified = self.verified(into);
        let count =
            verified.map_err(|why| format!("{}, generation {generation}: {why}", backend.place))?;
        Ok((generation, count))
    }

    /// Verifies each byte of a restored state, and returns its count. Images of CRIU show none: the
    /// process that goes on from them verifies its bytes.
    pub(crate) fn verified(&self, state: &LocalPath) -> Result<Option<u32>, String> {
        if self.has_criu() {
            let is_empty = files(state).values().all(Vec::is_empty);
            return if is_empty { Err("it has no image".to_owned()) } else { Ok(None) };
        }
        let ran = run(Command::new("python3").arg(self.path("counter.py")).arg(state));
        match ran.code {
            0 => Ok(Some(ran.stdout.trim().parse().expect("a count"))),
            _ => Err(ran.stderr),
        }
    }

    /// Returns the counts that a task without a hook has written.
    pub(crate) fn counts(&self) -> Vec<u32> {
        self.text("counts").lines().filter_map(|line| line.parse().ok()).collect()
    }
}
