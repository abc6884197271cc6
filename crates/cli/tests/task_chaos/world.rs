//! A cluster with a durable directory, its store, and one task in it; and what is done to them,
//! round by round.

use std::path::Path as LocalPath;
use std::time::Duration;

use crate::cluster::stores::{files, make};
use crate::cluster::tasks::usable_criu;
use crate::cluster::{
    Cluster, Killed, SOON, Server, Shape, block_on, run, spawn_with, until, until_gone,
};
use crate::judge::{Expected, all_whole, missing, newest_good, read_while_killed, went_on};
use crate::lots::Lots;
use crate::store::{TaskStore, durable_in, newest_in};
use crate::task::{Backend, ChaosTask};

/// Longest time from the first generation of a round to its kill: several intervals, dumps, drains
/// and removals.
const KILL_WITHIN_MILLIS: u64 = 1200;

/// The same from the start of `task gc`, or of another reader of the store, which ends sooner.
const READER_WITHIN_MILLIS: u64 = 300;

/// Longest time for which a server stands still: less than the silence after which a datanode is
/// declared dead.
const PAUSE_MAX_MILLIS: u64 = 2000;

/// Of so many rounds one strikes while `task gc` is at work instead of the runner.
const COLLECTS_ONE_OF: u64 = 6;

/// Of so many rounds one reads everything, if its victim is none that always needs it.
const READS_ALL_ONE_OF: u64 = 3;

/// Generations of which one node holds each: a small part of its memory.
const GENERATIONS_LEFT: usize = 20;

/// How often it is waited for the store: while it settles after a kill it shows nothing new.
const SYNCS_MAX: usize = 3;

/// What dies in a round, or is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Victim {
    Runner,
    /// `task gc`, after the runner.
    Collector,
    Namenode,
    Datanode,
    /// A process of its own; another one takes over.
    Manager,
    /// Both at once, as where the manager runs in the namenode's process.
    NamenodeAndManager,
    /// A server stands still for a while and goes on.
    Pause,
    /// The durable store: its server is killed and starts again, or its directory is away for a
    /// while.
    Store,
}

/// What kind of store and of task there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Files,
    Bucket,
    FilesCriu,
    BucketCriu,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] =
        [Self::Bucket, Self::Files, Self::BucketCriu, Self::FilesCriu];

    /// Returns its name in `SANDERLING_TASK_WORLD`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Bucket => "bucket",
            Self::FilesCriu => "files-criu",
            Self::BucketCriu => "bucket-criu",
        }
    }

    pub(crate) const fn has_criu(self) -> bool {
        matches!(self, Self::FilesCriu | Self::BucketCriu)
    }

    const fn has_bucket(self) -> bool {
        matches!(self, Self::Bucket | Self::BucketCriu)
    }

    /// Returns the memory of each datanode. Images of CRIU are larger.
    const fn dram(self) -> &'static str {
        if self.has_criu() { "256MiB" } else { "64MiB" }
    }
}

/// A cluster with a durable directory, and one task in it.
pub(crate) struct World {
    cluster: Cluster,
    manager: Server,
    store: TaskStore,
    task: ChaosTask,
    pub(crate) lots: Lots,
    dram: &'static str,
    /// Datanodes that were started.
    datanodes: u32,
    /// Runners that were started in the cluster.
    runs: usize,
    /// The generation that must be there, or a later one.
    pub(crate) floor: u64,
    /// The same in the store alone.
    pub(crate) store_floor: u64,
    /// The count of an earlier restore.
    count_floor: u32,
    /// The last generation that may have lost bytes with a datanode.
    lost_up_to: u64,
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the end of the runners' log\n{}", self.task.tail());
        }
    }
}

/// Returns what a check has found.
fn held<T>(what: &str, checked: Result<T, String>) -> T {
    checked.unwrap_or_else(|why| panic!("{what}: {why}"))
}

impl World {
    pub(crate) fn start(kind: Kind, seed: u64) -> Self {
        let namenode = vec!["--no-manager".to_owned()];
        let cluster = Cluster::start(Shape { datanodes: 0, namenode, ..Shape::default() });
        let manager = cluster.manager("manager");
        let store = match kind.has_bucket() {
            true => TaskStore::bucket(),
            false => TaskStore::files(cluster.path("store")),
        };
        let criu = kind.has_criu().then(|| usable_criu().expect("the test has looked for it"));
        let mut world = Self {
            cluster,
            manager,
            store,
            task: ChaosTask::new(criu),
            lots: Lots::new(seed, 0),
            dram: kind.dram(),
            datanodes: 0,
            runs: 0,
            floor: 0,
            store_floor: 0,
            count_floor: 0,
            lost_up_to: 0,
        };
        for _ in 0..3 {
            world.add_datanode();
        }
        make(&world.cluster, "/tasks");
        world
    }

    fn add_datanode(&mut self) {
        let (name, place) = (format!("d{}", self.datanodes), self.store.durable());
        self.datanodes += 1;
        let namenode = &self.cluster.namenode.address;
        let words = ["datanode", "--namenode", namenode, "--name", &name, "--dram", self.dram];
        let words = [&words[..], &["--durable", &place]].concat();
        let variables = self.store.variables();
        let variables: Vec<(&str, &LocalPath)> =
            variables.iter().map(|(name, value)| (*name, LocalPath::new(value))).collect();
        let server = spawn_with(&self.cluster.path(""), &name, &words, &variables).serves();
        self.cluster.datanodes.push(server);
    }

    fn backend(&self) -> Backend {
        Backend::cluster(&self.cluster)
    }

    fn newest(&self) -> Option<u64> {
        self.task.newest(&self.backend())
    }

    fn until_after(&self, generation: u64, runner: &mut Killed) -> u64 {
        self.task.until_after(&self.backend(), generation, runner)
    }

    /// Starts a runner, which goes on from the newest generation, and waits for one after `before`.
    fn begun(&mut self, before: u64) -> (Killed, u64) {
        let since = self.task.counts().len();
        let mut runner = self.task.runner(&self.backend());
        let first = self.until_after(before, &mut runner);
        let restored = self.task.text("runner.log").matches("restored generation").count();
        assert_eq!(restored, self.runs, "each runner but the first goes on from a generation");
        self.runs += 1;
        self.counts_on(since);
        (runner, first)
    }

    /// Checks that a task without a hook counts, from where a generation has it.
    fn counts_on(&mut self, since: usize) {
        if self.task.has_criu() {
            until("the task counts", SOON, || (self.task.counts().len() > since).then_some(()));
            let counted = went_on(&self.task.counts(), since, self.count_floor);
            self.count_floor = held("the counts", counted);
        }
    }

    fn sync(&self) {
        for _ in 0..SYNCS_MAX {
            let synced = self.cluster.cli(&["fs", "sync", "/tasks", "--timeout", "100s"]);
            if synced.code == 0 {
                return;
            }
            assert_eq!(synced.code, 124, "{synced}");
        }
        panic!("the store has not everything: {}", self.cluster.cli(&["fs", "stat", "/tasks"]));
    }

    pub(crate) fn round(&mut self, number: u64, victim: Victim) {
        let what = format!("round {number}, {victim:?}");
        let before = self.newest().unwrap_or(0);
        let (mut runner, first) = self.begun(before);
        if victim == Victim::Datanode {
            // What has not reached the store may end with it; what is durable may not.
            self.sync();
            (self.floor, self.store_floor) = (first, first);
        }
        self.wait_up_to(KILL_WITHIN_MILLIS);
        let published = self.newest().expect("one was published");
        if victim != Victim::Datanode {
            self.floor = published;
        }
        let of_collector = match victim {
            Victim::Collector => true,
            Victim::Runner => false,
            _ => self.lots.below(COLLECTS_ONE_OF) == 0,
        };
        let last = if of_collector {
            self.strike_collectors(victim, runner);
            self.newest().unwrap_or(published)
        } else if victim == Victim::Runner {
            drop(runner);
            published
        } else {
            self.strike(victim);
            // The task goes on, and is stored as a whole again.
            let now = self.newest().unwrap_or(published);
            let last = self.until_after(now, &mut runner);
            drop(runner);
            last
        };
        if victim == Victim::Datanode {
            // Later ones were begun when the namenode had declared what was lost.
            self.lost_up_to = last;
        }
        let needs_all = matches!(victim, Victim::Collector | Victim::Datanode | Victim::Store);
        self.check(&what, needs_all || number.is_multiple_of(READS_ALL_ONE_OF));
    }

    /// Kills the runner, and strikes while `task gc` removes what is old: one begins while the
    /// runner has the lock, the other one when it is free.
    fn strike_collectors(&mut self, victim: Victim, runner: Killed) {
        let backend = self.backend();
        let early = self.task.collector(&backend);
        drop(runner);
        let late = self.task.collector(&backend);
        if victim == Victim::Collector {
            self.wait_up_to(READER_WITHIN_MILLIS);
            drop((early, late));
            return;
        }
        self.strike(victim);
        for mut collector in [early, late] {
            let code = until("task gc ends", 2 * SOON, || collector.ended());
            let is_expected = matches!(code, 0 | 1 | 4 | 5 | 124);
            assert!(is_expected, "task gc: exit code {code}: {}", self.task.text("gc.log"));
        }
    }

    fn strike(&mut self, victim: Victim) {
        match victim {
            // They are killed in the end of their rounds.
            Victim::Runner | Victim::Collector => {}
            Victim::Namenode => self.cluster.restart_namenode(),
            Victim::Datanode => self.replace_datanode(),
            Victim::Manager => self.restart_manager(),
            Victim::NamenodeAndManager => {
                self.manager.kill();
                self.cluster.restart_namenode();
                self.restart_manager();
            }
            Victim::Pause => self.pause(),
            Victim::Store => self.strike_store(),
        }
    }

    fn wait_up_to(&mut self, millis: u64) {
        std::thread::sleep(Duration::from_millis(self.lots.below(millis)));
    }

    /// Kills a datanode, starts another one, and waits until the namenode has declared what was
    /// lost.
    fn replace_datanode(&mut self) {
        let count = self.cluster.datanodes.len() as u64;
        let place = usize::try_from(self.lots.below(count)).expect("an index");
        let mut killed = self.cluster.datanodes.swap_remove(place);
        killed.kill();
        self.add_datanode();
        block_on(async { until_gone(&self.cluster.client().await, &killed.name).await });
    }

    /// The task goes on meanwhile; the next sync shows that the next manager goes on.
    fn restart_manager(&mut self) {
        self.manager.kill();
        self.wait_up_to(KILL_WITHIN_MILLIS);
        self.manager = self.cluster.manager("manager");
    }

    /// Connections stay open and nothing is answered. Each datanode is as likely as the namenode,
    /// the manager, and the server of the store.
    fn pause(&mut self) {
        let wait = Duration::from_millis(self.lots.below(PAUSE_MAX_MILLIS));
        let others = [&self.cluster.namenode, &self.manager];
        let datanodes = self.cluster.datanodes.iter();
        let servers: Vec<&Server> = datanodes.chain(others).chain(self.store.server()).collect();
        let paused = *self.lots.pick(&servers);
        paused.pause();
        std::thread::sleep(wait);
        paused.resume();
    }

    /// Takes a directory away for a while, or kills the server of a bucket while datanodes write
    /// there and a command reads, and starts it again after a while.
    fn strike_store(&mut self) {
        let waits = [READER_WITHIN_MILLIS, KILL_WITHIN_MILLIS];
        let [begin, away] = waits.map(|most| Duration::from_millis(self.lots.below(most)));
        let mut reader = self.task.command("verify", &self.store.backend());
        match &mut self.store {
            TaskStore::Files(store) => {
                let elsewhere = store.with_extension("away");
                std::fs::rename(&*store, &elsewhere).expect("away");
                std::thread::sleep(away);
                // Whatever was made here meanwhile is no store.
                let _ = std::fs::remove_dir_all(&*store);
                std::fs::rename(&elsewhere, &*store).expect("back");
            }
            TaskStore::Bucket(bucket) => {
                let reading = std::thread::spawn(move || run(reader.arg("--json")));
                std::thread::sleep(begin);
                bucket.gateway.kill();
                std::thread::sleep(away);
                bucket.restart();
                let seen = reading.join().expect("the reader ends");
                let has_any = self.store_floor > 0;
                let read = read_while_killed(&seen, has_any, self.lost_up_to);
                held("a reader of the store", read);
            }
        }
    }

    /// Restores the newest good generation, verifies it, and makes it the next floor. If it is to
    /// read everything, it verifies all generations, and the store alone.
    fn check(&mut self, what: &str, reads_all: bool) {
        let listed = self.newest().unwrap_or(0);
        let expected = Expected { floor: self.floor, listed, lost_up_to: self.lost_up_to };
        let (backend, into) = (self.backend(), self.task.path("restored"));
        let found = newest_good(&self.task, &backend, &into, expected);
        let (generation, count) = held(what, found);
        self.floor = generation;
        if let Some(count) = count {
            let before = self.count_floor;
            assert!(count >= before, "{what}: {count} was restored after {before}");
            self.count_floor = count;
        }
        if reads_all {
            held(what, all_whole(&self.task.verify(&backend), self.lost_up_to));
            self.check_store(what, generation);
        }
    }

    /// Checks the store alone: it has what the cluster reports to be durable, its newest generation
    /// restores, and no manifest names what is not there. `restored` is the generation that was
    /// restored from the cluster.
    fn check_store(&mut self, what: &str, restored: u64) {
        let durable = durable_in(&self.cluster);
        let there = self.store.objects();
        let mut absent = missing(&durable, &there);
        if !absent.is_empty() {
            // What was removed between the two lists need not be there.
            let still = durable_in(&self.cluster);
            absent.retain(|name| still.get(name) == durable.get(name));
        }
        assert!(absent.is_empty(), "{what}: durable, and not in the store: {absent:?}");
        let newest = newest_in(&durable);
        if newest > self.lost_up_to {
            self.store_floor = self.store_floor.max(newest);
        }
        let listed = newest_in(&there);
        if listed == 0 && self.store_floor == 0 {
            return;
        }
        let backend = self.store.backend();
        let what = format!("{what}, the store alone");
        held(&what, all_whole(&self.task.verify(&backend), self.lost_up_to));
        let expected = Expected { floor: self.store_floor, listed, lost_up_to: self.lost_up_to };
        let alone = self.task.path("alone");
        let found = newest_good(&self.task, &backend, &alone, expected);
        let (generation, _) = held(&what, found);
        if generation > self.lost_up_to {
            self.store_floor = generation;
        }
        if generation == restored {
            let is_equal = files(&alone) == files(&self.task.path("restored"));
            assert!(is_equal, "{what}: generation {generation} has other bytes than the cluster's");
        }
    }

    /// What is durable is there when all machines are gone.
    pub(crate) fn take_all_machines(&mut self) {
        // What was lost before it was durable lets all later changes wait. The next runner removes
        // it: the last one may have been killed too early.
        let before = self.newest().expect("one was published");
        let (mut runner, _) = self.begun(before);
        self.until_after(before + 2, &mut runner);
        self.sync();
        // One node has no room for all that waited for the store.
        until("the old generations go", SOON, || {
            (self.task.listed(&self.backend()).len() <= GENERATIONS_LEFT).then_some(())
        });
        drop(runner);
        self.sync();
        self.floor = self.newest().expect("it is durable");
        for killed in &mut self.cluster.datanodes {
            killed.kill();
        }
        self.cluster.datanodes.clear();
        self.add_datanode();
        self.check("after all datanodes", true);
        self.go_on_from_a_copy();
    }

    /// The task goes on from what the store has, without the cluster.
    fn go_on_from_a_copy(&mut self) {
        let (copy, since) = (self.task.path("copy"), self.task.counts().len());
        self.store.copy_to(&copy.join("count"));
        let backend = Backend::directory(&copy);
        let before = self.task.newest(&backend).expect("the store has one");
        assert!(before >= self.floor, "the store has {before} and not {}", self.floor);
        let mut runner = self.task.runner(&backend);
        let next = self.task.until_after(&backend, before, &mut runner);
        self.counts_on(since);
        drop(runner);
        let expected = Expected { floor: next, ..Expected::default() };
        let found = newest_good(&self.task, &backend, &self.task.path("alone"), expected);
        held("from a copy of the store", found);
    }

    /// Takes the directory of the store away while a runner stores more generations than it keeps.
    pub(crate) fn go_on_without_store(&mut self) {
        let (mut runner, _) = self.begun(3);
        let before = self.newest().expect("one was published");
        let TaskStore::Files(store) = &self.store else { panic!("a bucket is no directory") };
        let elsewhere = store.with_extension("away");
        std::fs::rename(store, &elsewhere).expect("away");
        // Seven of them would have waited for ten seconds each.
        self.until_after(before + 9, &mut runner);
        let _ = std::fs::remove_dir_all(store);
        std::fs::rename(&elsewhere, store).expect("back");
    }
}
