//! A task whose checkpoints lie in a durable directory, while processes are killed or stand still
//! at any moment of dump, publication, drain and removal. After each the newest generation that
//! must be there restores, byte for byte. `make task-chaos` runs a thousand rounds.
//!
//! `SANDERLING_TASK_SEED` and `_ROUNDS` select what is run.

mod cluster;
#[path = "chaos/lots.rs"]
mod lots;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cluster::stores::{add, fleet_with, make};
use cluster::{Cluster, Ran, SOON, Server, run, sanderling, until};
use lots::Lots;
use serde_json::Value;
use tempfile::TempDir;

/// Counts, and writes its count and bytes that follow from it when it gets SIGUSR1. With a second
/// argument it verifies such a directory and prints the count.
const COUNTER: &str = r#"
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

/// Longest time from the first generation of a round to its kill: several intervals, dumps, drains
/// and removals.
const KILL_WITHIN_MILLIS: u64 = 1200;

/// Longest time for which a server stands still: less than the silence after which a datanode is
/// declared dead.
const PAUSE_MAX_MILLIS: u64 = 2000;

/// Generations of which one node holds each: 0.9 MiB, of 64.
const GENERATIONS_LEFT: usize = 20;

/// What dies in a round, or is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Runner,
    Namenode,
    Datanode,
    /// A process of its own; another one takes over.
    Manager,
    /// Both at once, as where the manager runs in the namenode's process.
    NamenodeAndManager,
    /// A server stands still for a while and goes on.
    Pause,
    /// The durable store is away for a while.
    Store,
}

/// The managers first: after one is killed nothing becomes visible in the store until a removal
/// that it may have ordered has settled, and that takes 30 s. Other rounds pass meanwhile.
const VICTIMS: [Victim; 7] = [
    Victim::NamenodeAndManager,
    Victim::Manager,
    Victim::Runner,
    Victim::Namenode,
    Victim::Pause,
    Victim::Store,
    Victim::Datanode,
];

/// A cluster with a durable directory, and one task in it.
struct World {
    cluster: Cluster,
    manager: Server,
    store: PathBuf,
    place: TempDir,
    lots: Lots,
    datanodes: u32,
    /// The generation that must be there, or a later one, and the count of an earlier restore.
    floor: (u64, u32),
}

/// The runner, which is killed when its test is over, also by a failure.
struct Runner(Child);

impl Drop for Runner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the end of the runners' log\n{}", self.log());
        }
    }
}

impl World {
    fn start(seed: u64) -> Self {
        let (cluster, store) = fleet_with(3, &["--no-manager"]);
        let manager = cluster.manager("manager");
        make(&cluster, "/tasks");
        let place = TempDir::new().expect("a directory");
        std::fs::write(place.path().join("counter.py"), COUNTER).expect("written");
        let (lots, floor) = (Lots::new(seed, 0), (0, 0));
        Self { cluster, manager, store, place, lots, datanodes: 3, floor }
    }

    fn task(&self, verb: &str) -> Command {
        let mut command = sanderling();
        command.args(["task", verb, "--backend", "/tasks"]);
        if verb != "ls" {
            command.args(["--name", "count", "--key"]).arg(self.place.path().join("key"));
        }
        command.env("SANDERLING_NAMENODE", &self.cluster.namenode.address);
        command
    }

    fn runner(&self) -> Runner {
        let mut options = std::fs::OpenOptions::new();
        let log = options.create(true).append(true).open(self.place.path().join("runner.log"));
        let mut command = self.task("run");
        command.args(["--interval", "50ms", "--keep", "2", "--", "python3"]);
        command.arg(self.place.path().join("counter.py"));
        let started = command.stdout(Stdio::null()).stderr(log.expect("a log")).spawn();
        Runner(started.expect("started"))
    }

    fn log(&self) -> String {
        let log = std::fs::read_to_string(self.place.path().join("runner.log"));
        let log = log.unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Returns the generations whose manifests are there, the newest first.
    fn listed(&self) -> Vec<u64> {
        let listed = run(self.task("ls").arg("--json"));
        let listed: Value = serde_json::from_str(&listed.stdout).unwrap_or_default();
        let numbers = listed["tasks"][0]["generations"].as_array().cloned().unwrap_or_default();
        numbers.iter().filter_map(Value::as_u64).collect()
    }

    fn newest(&self) -> Option<u64> {
        self.listed().first().copied()
    }

    fn generations(&self) -> usize {
        self.listed().len()
    }

    fn until_after(&self, generation: u64, runner: &mut Runner) -> u64 {
        until("a later generation", SOON, || {
            let ended = runner.0.try_wait().expect("our own child");
            assert_eq!(ended, None, "the runner ended: {}", self.log());
            self.newest().filter(|newest| *newest > generation)
        })
    }

    /// Restores the newest good generation and verifies it; what is there is the next floor.
    fn restore(&mut self, what: &str) {
        let to = self.place.path().join("restored");
        let ran = run(self.task("restore").arg("--json").arg("--state").arg(&to));
        assert_eq!(ran.code, 0, "{what}: {ran}{}", self.log());
        let document: Value = serde_json::from_str(&ran.stdout).expect("JSON");
        let generation = document["restored"].as_u64().expect("a number");
        let mut verify = Command::new("python3");
        let Ran { code, stdout, stderr, .. } =
            run(verify.arg(self.place.path().join("counter.py")).arg(&to));
        assert_eq!(code, 0, "{what}, generation {generation}: {stderr}");
        let count = stdout.trim().parse().expect("a count");
        let found = (generation, count);
        assert!(found.0 >= self.floor.0 && found.1 >= self.floor.1, "{what}: {found:?} {ran}");
        self.floor = found;
    }

    fn sync(&self) {
        let synced = self.cluster.cli(&["fs", "sync", "/tasks", "--timeout", "120s"]);
        assert_eq!(synced.code, 0, "{synced}");
    }

    fn round(&mut self, number: u64, victim: Victim) {
        let what = format!("round {number}, {victim:?}");
        let before = self.newest().unwrap_or(0);
        let mut runner = self.runner();
        let first = self.until_after(before, &mut runner);
        if victim == Victim::Datanode {
            // What has not reached the store may end with it; what is durable may not.
            self.sync();
            self.floor.0 = first;
        }
        self.wait_up_to(KILL_WITHIN_MILLIS);
        let published = self.newest().expect("one was published");
        if victim != Victim::Datanode {
            self.floor.0 = published;
        }
        self.strike(victim);
        if victim != Victim::Runner {
            // The task goes on, and is stored as a whole again.
            let now = self.newest().unwrap_or(published);
            self.until_after(now, &mut runner);
        }
        drop(runner);
        self.restore(&what);
    }

    fn strike(&mut self, victim: Victim) {
        match victim {
            // It is killed in the end of each round.
            Victim::Runner => {}
            Victim::Namenode => self.cluster.restart_namenode(),
            Victim::Datanode => {
                let place = self.lots.below(self.cluster.datanodes.len() as u64);
                let place = usize::try_from(place).expect("an index");
                let mut killed = self.cluster.datanodes.swap_remove(place);
                killed.kill();
                let name = format!("d{}", self.datanodes);
                self.datanodes += 1;
                add(&mut self.cluster, &name, &self.store);
            }
            Victim::Manager => self.restart_manager(),
            Victim::NamenodeAndManager => {
                self.manager.kill();
                self.cluster.restart_namenode();
                self.restart_manager();
            }
            Victim::Pause => self.pause(),
            Victim::Store => {
                let away = self.store.with_extension("away");
                std::fs::rename(&self.store, &away).expect("away");
                self.wait_up_to(KILL_WITHIN_MILLIS);
                // Whatever was made here meanwhile is no store.
                let _ = std::fs::remove_dir_all(&self.store);
                std::fs::rename(&away, &self.store).expect("back");
            }
        }
    }

    fn wait_up_to(&mut self, millis: u64) {
        std::thread::sleep(Duration::from_millis(self.lots.below(millis)));
    }

    /// The task goes on meanwhile; the next sync shows that the next manager goes on.
    fn restart_manager(&mut self) {
        self.manager.kill();
        self.wait_up_to(KILL_WITHIN_MILLIS);
        self.manager = self.cluster.manager("manager");
    }

    /// Connections stay open and nothing is answered. Each datanode is as likely as the namenode
    /// and the manager.
    fn pause(&mut self) {
        let datanodes = self.cluster.datanodes.len() as u64;
        let place = usize::try_from(self.lots.below(datanodes + 2)).expect("an index");
        let wait = Duration::from_millis(self.lots.below(PAUSE_MAX_MILLIS));
        let others = [&self.cluster.namenode, &self.manager];
        let paused = self.cluster.datanodes.iter().chain(others).nth(place).expect("one of them");
        paused.pause();
        std::thread::sleep(wait);
        paused.resume();
    }

    /// What is durable is there when all machines are gone.
    fn take_all_machines(&mut self) {
        // What was lost before it was durable lets all later changes wait. The next runner removes
        // it: the last one may have been killed too early.
        let before = self.newest().expect("one was published");
        let mut runner = self.runner();
        self.until_after(before + 2, &mut runner);
        self.sync();
        // One node has no room for all that waited for the store.
        until("the old generations go", SOON, || {
            (self.generations() <= GENERATIONS_LEFT).then_some(())
        });
        drop(runner);
        self.sync();
        for killed in &mut self.cluster.datanodes {
            killed.kill();
        }
        self.cluster.datanodes.clear();
        add(&mut self.cluster, "last", &self.store);
        self.restore("after all datanodes");
        let verified = run(&mut self.task("verify"));
        assert_eq!(verified.code, 0, "{verified}");
    }
}

fn number(name: &str, default: u64) -> u64 {
    let set = std::env::var(format!("SANDERLING_TASK_{name}")).ok();
    set.filter(|text| !text.is_empty()).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn newest_generation_restores_after_a_kill_of_each_process() {
    let mut world = World::start(number("SEED", 1));
    for (round, victim) in (0..).zip(VICTIMS) {
        world.round(round, victim);
    }
    world.take_all_machines();
}

/// Below the directory nothing that waits for the store can be deleted: each removal of an old
/// generation would take as long as a call may.
#[test]
fn task_goes_on_being_stored_while_its_store_is_away() {
    let world = World::start(1);
    let mut runner = world.runner();
    let before = world.until_after(3, &mut runner);
    let away = world.store.with_extension("away");
    std::fs::rename(&world.store, &away).expect("away");
    // More than are kept: seven of them would have waited for ten seconds each.
    world.until_after(before + 9, &mut runner);
    let _ = std::fs::remove_dir_all(&world.store);
    std::fs::rename(&away, &world.store).expect("back");
    drop(runner);
}

#[test]
#[ignore = "make task-chaos: a thousand rounds"]
fn newest_generation_restores_after_a_thousand_kills() {
    let (seed, rounds) = (number("SEED", 1), number("ROUNDS", 1000));
    let mut world = World::start(seed);
    for round in 0..rounds {
        let victim = *world.lots.pick(&VICTIMS);
        eprintln!("{round} {victim:?} {:?}", world.floor);
        world.round(round, victim);
    }
    world.take_all_machines();
}
