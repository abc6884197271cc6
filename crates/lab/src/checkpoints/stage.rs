//! Where tasks are measured: a store, for ours a cluster in front of it, and the runners.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sanderling_client::{Client, ClientConfig};
use sanderling_protocol::Path as StorePath;
use sanderling_protocol::limits::DURABLE_BACKLOG_BYTES;
use sanderling_protocol::message::MakeDurable;
use serde::Deserialize;
use tokio::time::{Instant, sleep};

use super::obstacle::Obstacle;
use super::processes::{are_killed, descendants};
use super::store::{BUCKET, EmulatedStore};
use super::writer::{COUNT, COUNTED, ENDED, READY, VERIFIED, VERIFY, WriterKind};
use crate::child::ChildServer;
use crate::failure::{Exit, Failure, FailureKind};
use crate::own_cluster;
use crate::process::program;
use crate::record::PolicyName;

/// The durable directory, and the place of the baseline in the bucket.
const TASKS: &str = "tasks";

/// Nodes of the cluster: the fewest of which one can be killed while the other holds bytes.
const DATANODES: u64 = 2;

/// Time between two looks at a process or a file that is waited for: times are read that much too
/// late at most. Chosen, not measured.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The longest that one step may take: a state of some GB at the rate of the slowest store. 7,750
/// MB at 35.9 MB/s take 216 s; the rest is for several tasks at once.
pub(crate) const STEP_TIMEOUT: Duration = Duration::from_secs(900);

/// Which program dumps the tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Driver {
    /// CRIU.
    Criu,
    /// The task writes its state itself.
    Hook,
}

/// The store of a stage.
pub(crate) enum StageStore {
    /// An emulated one, which ends with the stage.
    Emulated(EmulatedStore),
    /// A place in a real one, which the environment of this process describes.
    Real {
        /// `s3://BUCKET/PREFIX`.
        url: String,
    },
}

/// The store, and what is in front of it.
pub(crate) struct Stage {
    directory: PathBuf,
    policy: PolicyName,
    driver: Driver,
    store: StageStore,
    cluster: Option<LabCluster>,
}

/// A cluster with a durable directory.
struct LabCluster {
    address: String,
    client: Client,
    servers: Vec<ChildServer>,
}

/// A task to run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LabTask {
    pub(crate) kind: WriterKind,
    pub(crate) bytes: u64,
    pub(crate) interval: Duration,
    /// In which time a dense writer changes all of its memory.
    pub(crate) turn: Duration,
    /// After how many steps it ends.
    pub(crate) steps: Option<u64>,
    /// Whether it verifies its memory after the last step.
    pub(crate) verifies_end: bool,
    /// What it has that cannot be dumped.
    pub(crate) obstacle: Option<Obstacle>,
}

/// A runner. Dropping it kills it.
pub(crate) struct LabRunner {
    child: Child,
    control: PathBuf,
    log: PathBuf,
}

/// A line of a runner's record.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum RecordLine {
    Checkpoint(CheckpointLine),
    Restore { generation: u64, seconds: f64 },
}

/// One checkpoint, as the runner recorded it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct CheckpointLine {
    pub(crate) generation: u64,
    pub(crate) frozen_seconds: f64,
    pub(crate) dump_seconds: f64,
    pub(crate) state_bytes: u64,
    pub(crate) new_bytes: u64,
    pub(crate) stored_bytes: u64,
    pub(crate) hashed_bytes: u64,
    pub(crate) hash_cpu_seconds: f64,
    pub(crate) compress_cpu_seconds: f64,
    pub(crate) encrypt_cpu_seconds: f64,
}

impl StageStore {
    /// Returns the place of the tasks, as the product names it.
    fn url(&self) -> String {
        match self {
            Self::Emulated(_) => format!("s3://{BUCKET}/{TASKS}"),
            Self::Real { url } => url.clone(),
        }
    }
}

impl LabTask {
    /// Returns a task that changes its memory once in each interval, and does not end.
    pub(crate) const fn new(kind: WriterKind, bytes: u64, interval: Duration) -> Self {
        let (turn, steps, verifies_end, obstacle) = (interval, None, false, None);
        Self { kind, bytes, interval, turn, steps, verifies_end, obstacle }
    }
}

impl Stage {
    /// Makes a stage with a store, and for ours a cluster that holds several generations of so many
    /// bytes. It must be polled on a thread that outlives it: the servers die with that.
    ///
    /// # Errors
    /// A server's that does not start.
    pub(crate) async fn start(
        directory: &Path,
        (policy, driver): (PolicyName, Driver),
        store: StageStore,
        bytes: u64,
    ) -> Result<Self, Failure> {
        // Nothing of an earlier stage is left in there.
        let _ = std::fs::remove_dir_all(directory);
        made(directory)?;
        let directory = directory.to_owned();
        let mut stage = Self { directory, policy, driver, store, cluster: None };
        if policy == PolicyName::Sanderling {
            stage.cluster = Some(stage.cluster(bytes).await?);
        }
        Ok(stage)
    }

    async fn cluster(&self, bytes: u64) -> Result<LabCluster, Failure> {
        let directory = self.directory.join("servers");
        made(&directory)?;
        let mut command = self.program()?;
        command.args(["namenode", "--http", "none", "--listen", "127.0.0.1:0", "--dir"]);
        command.arg(directory.join("catalog"));
        let mut namenode = ChildServer::spawn(command, &directory, "namenode")?;
        let address = namenode.serves().await?.address;
        let mut servers = vec![namenode];
        // Three generations, one that is written, and what is not stored evenly.
        let dram = bytes * 6 / DATANODES + (256 << 20);
        for number in 0..DATANODES {
            let name = format!("d{number}");
            let mut command = self.program()?;
            command.args(["datanode", "--http", "none", "--namenode", &address]);
            command.args(["--listen", "127.0.0.1:0", "--name", &name, "--host", &name]);
            // Each stands for a machine of its own: no client reads its memory.
            command.args(["--dram", &dram.to_string(), "--local-socket", "none"]);
            command.args(["--durable", &format!("store={}", self.store.url())]);
            servers.push(ChildServer::spawn(command, &directory, &name)?);
        }
        for server in &mut servers[1..] {
            server.serves().await?;
        }
        let client = Client::connect(&address, ClientConfig::default()).await;
        let client = client.map_err(|error| own_cluster::failed(&error, &address))?;
        let limit = Instant::now() + Duration::from_secs(30);
        loop {
            // A datanode has to report its store first.
            match client.make_durable(durable_directory()).await {
                Ok(_) => return Ok(LabCluster { address, client, servers }),
                Err(error) if Instant::now() >= limit => {
                    return Err(own_cluster::failed(&error, &address));
                }
                Err(_) => sleep(POLL_INTERVAL).await,
            }
        }
    }

    /// Returns a command of this program that reaches the store.
    fn program(&self) -> Result<Command, Failure> {
        let mut command = program()?;
        if let StageStore::Emulated(store) = &self.store {
            // Those of the user are for a real store.
            let names = std::env::vars_os().map(|(name, _)| name);
            for name in names.filter(|name| name.to_string_lossy().starts_with("AWS_")) {
                command.env_remove(name);
            }
            command.env("AWS_ENDPOINT_URL", &store.endpoint).env("AWS_REGION", "us-east-1");
            command.env("AWS_ACCESS_KEY_ID", "lab").env("AWS_SECRET_ACCESS_KEY", "lab");
            command.env("AWS_ALLOW_HTTP", "true");
        }
        // What a killed runner leaves there goes with the stage.
        command.env("TMPDIR", &self.directory);
        isolated(&mut command, &self.directory);
        Ok(command)
    }

    /// Returns a command of tasks with its backend.
    pub(crate) fn task(&self, verb: &str) -> Result<Command, Failure> {
        let mut command = self.program()?;
        match &self.cluster {
            Some(cluster) => {
                command.args(["--namenode", &cluster.address, "task", verb, "--backend"]);
                command.arg(format!("/{TASKS}"));
            }
            None => {
                command.args(["task", verb, "--backend", &self.store.url()]);
            }
        }
        Ok(command)
    }

    /// Makes the control directory of a task.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn control(&self, name: &str) -> Result<PathBuf, Failure> {
        let control = self.directory.join(name);
        made(&control)?;
        Ok(control)
    }

    /// Lets a task write down how many steps it has done, as soon as it does the next one.
    ///
    /// # Errors
    /// The order cannot be written.
    pub(crate) fn request_steps(&self, name: &str) -> Result<(), Failure> {
        let control = self.control(name)?;
        // It may have answered an earlier order twice.
        let _ = std::fs::remove_file(control.join(COUNTED));
        let order = control.join(COUNT);
        std::fs::write(&order, "").map_err(|error| Failure::file(&order, error))
    }

    /// Starts a runner with a task, or one that goes on from its newest checkpoint.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn run(&self, name: &str, task: LabTask) -> Result<LabRunner, Failure> {
        let control = self.control(name)?;
        let mut command = self.task("run")?;
        command.args(["--name", name, "--policy", &self.policy.to_string(), "--keep", "3"]);
        command.args(["--driver", if self.driver == Driver::Criu { "criu" } else { "hook" }]);
        command.args(["--hook-timeout", "600s", "--interval", &seconds(task.interval), "--key"]);
        command.arg(control.join("key")).arg("--state").arg(control.join("state"));
        command.arg("--record").arg(control.join("record"));
        command.arg("--").arg(program()?.get_program()).args(program()?.get_args());
        command.args(["lab", "checkpoint-task", "--bytes", &task.bytes.to_string()]);
        command.args(["--kind", kind_name(task.kind), "--turn", &seconds(task.turn)]);
        command.arg("--control").arg(&control);
        if let Some(steps) = task.steps {
            command.args(["--steps", &steps.to_string()]);
        }
        if task.verifies_end {
            command.arg("--verify-end");
        }
        if let Some(obstacle) = task.obstacle {
            command.args(["--obstacle", obstacle.name()]);
        }
        if self.driver == Driver::Hook {
            command.arg("--hook");
        }
        let mut command = ending_with_lab(&command)?;
        let log = control.join("runner.log");
        let file = std::fs::File::create(&log).map_err(|error| Failure::file(&log, error))?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).spawn();
        let child =
            child.map_err(|error| Failure::caused(Exit::Failure, FailureKind::Process, error))?;
        Ok(LabRunner { child, control, log })
    }

    /// Waits until the store has all that was written; returns at once without a cluster.
    ///
    /// # Errors
    /// It does not have it in time.
    pub(crate) async fn drained(&self) -> Result<(), Failure> {
        let Some(cluster) = &self.cluster else { return Ok(()) };
        let left = cluster.client.wait_durable(&durable_directory().path, STEP_TIMEOUT).await;
        match left.map_err(|error| own_cluster::failed(&error, &cluster.address))? {
            None => Ok(()),
            Some(left) => Err(late(&format!("the store, with {} bytes", left.backlog_bytes))),
        }
    }

    /// Returns how many requests the store got so far that write or list; `None` of a real one,
    /// which does not count them for the lab.
    pub(crate) fn requests(&self) -> Option<u64> {
        match &self.store {
            StageStore::Emulated(store) => Some(store.requests()),
            StageStore::Real { .. } => None,
        }
    }

    /// Ends the cluster: from now on there is the store alone.
    pub(crate) fn leave_store_alone(&mut self) {
        self.cluster = None;
    }

    /// Restores the newest checkpoint of a task, and lets the task verify its memory. Returns the
    /// generation and the seconds until it ran.
    ///
    /// # Errors
    /// A byte is another one; or it cannot be restored.
    pub(crate) async fn restored(&self, name: &str, task: LabTask) -> Result<(u64, f64), Failure> {
        let control = self.directory.join(name);
        for file in ["record", VERIFIED] {
            // It may not exist.
            let _ = std::fs::remove_file(control.join(file));
        }
        let order = control.join(VERIFY);
        std::fs::write(&order, "").map_err(|error| Failure::file(&order, error))?;
        let interval = Duration::from_secs(86_400);
        let mut runner = self.run(name, LabTask { interval, ..task })?;
        let restored = runner.restore().await?;
        let verified = runner
            .until("verifies its memory", |runner| runner.text(VERIFIED).filter(|it| it.len() > 3))
            .await?;
        drop(runner);
        // The processes of the task end with it; the order is not for the next one.
        let _ = std::fs::remove_file(&order);
        if verified.starts_with("good ") {
            return Ok(restored);
        }
        let cause = format!("{name} was restored from generation {} with {verified}", restored.0);
        Err(Failure::new(Exit::Partial, FailureKind::OtherBytes, cause))
    }
}

impl LabRunner {
    /// Waits until the task has filled its memory.
    ///
    /// # Errors
    /// The runner has ended.
    pub(crate) async fn is_ready(&mut self) -> Result<(), Failure> {
        self.until("is ready", |runner| runner.text(READY)).await.map(|_| ())
    }

    /// Waits for a checkpoint.
    ///
    /// # Errors
    /// The runner has ended.
    pub(crate) async fn checkpoint(&mut self, generation: u64) -> Result<CheckpointLine, Failure> {
        self.line(|line| match line {
            RecordLine::Checkpoint(it) if it.generation == generation => Some(it.clone()),
            _ => None,
        })
        .await
    }

    /// Waits for the restore of a runner that goes on; returns the generation, and the seconds
    /// until the task ran.
    ///
    /// # Errors
    /// The runner has ended.
    pub(crate) async fn restore(&mut self) -> Result<(u64, f64), Failure> {
        self.line(|line| match line {
            RecordLine::Restore { generation, seconds } => Some((*generation, *seconds)),
            RecordLine::Checkpoint(_) => None,
        })
        .await
    }

    /// Waits until the task has written down how many steps it has done, which was requested.
    ///
    /// # Errors
    /// The runner has ended, or the task does no step.
    pub(crate) async fn steps(&mut self, within: Duration) -> Result<u64, Failure> {
        let counted = |runner: &Self| {
            let text = runner.text(COUNTED)?;
            text.strip_suffix('\n')?.parse::<u64>().ok()
        };
        let steps = self.until_within("counts its steps", within, counted).await?;
        for file in [COUNT, COUNTED] {
            // The next order is another one.
            let _ = std::fs::remove_file(self.control.join(file));
        }
        Ok(steps)
    }

    /// Ends the runner and everything that it has started with SIGKILL, as the end of a machine
    /// does, and waits until all of it has ended.
    ///
    /// # Errors
    /// A process does not end.
    pub(crate) async fn kill_whole(&mut self) -> Result<(), Failure> {
        // The id of one that has ended may be that of another process by now.
        if self.child.try_wait().ok().flatten().is_some() {
            return Ok(());
        }
        let started = descendants(self.child.id());
        // The runner is the first: it does not take note of the end of its task.
        let _ = self.child.kill();
        let _ = self.child.wait();
        match are_killed(&started).await {
            true => Ok(()),
            false => Err(late("the end of a task that was killed")),
        }
    }

    /// Returns whether the task has done its last step.
    pub(crate) fn has_ended(&self) -> bool {
        self.text(ENDED).is_some()
    }

    /// Returns after how many steps the task has verified its memory, if every byte was that of
    /// the step.
    pub(crate) fn verified_steps(&self) -> Option<u64> {
        let verified = self.text(VERIFIED)?;
        let (_, steps) = verified.strip_prefix("good ")?.split_once(' ')?;
        steps.parse().ok()
    }

    /// Returns the checkpoints so far, of earlier runners of the task, too.
    pub(crate) fn checkpoints(&self) -> Vec<CheckpointLine> {
        let is_checkpoint = |line| match line {
            RecordLine::Checkpoint(it) => Some(it),
            RecordLine::Restore { .. } => None,
        };
        self.lines().into_iter().filter_map(is_checkpoint).collect()
    }

    /// Returns what the runner has printed so far, in whole lines.
    pub(crate) fn printed(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        log.rsplit_once('\n').map(|(whole, _)| whole.to_owned()).unwrap_or_default()
    }

    /// Waits until the task has ended; returns how long it ran, from the start of its first runner
    /// on, and its checkpoints.
    ///
    /// # Errors
    /// The runner failed.
    pub(crate) async fn ended(&mut self) -> Result<(f64, Vec<CheckpointLine>), Failure> {
        let limit = Instant::now() + STEP_TIMEOUT;
        while self.child.try_wait().ok().flatten().is_none() {
            if Instant::now() >= limit {
                return Err(late("the end of a task"));
            }
            sleep(POLL_INTERVAL).await;
        }
        if self.text(ENDED).is_none() {
            return Err(self.failed());
        }
        let at = |name: &str| {
            let path = self.control.join(name);
            let modified = std::fs::metadata(&path).and_then(|it| it.modified());
            modified.map_err(|error| Failure::file(&path, error))
        };
        let ran = at(ENDED)?.duration_since(at(READY)?).unwrap_or_default();
        Ok((ran.as_secs_f64(), self.checkpoints()))
    }

    async fn line<T>(&mut self, choose: impl Fn(&RecordLine) -> Option<T>) -> Result<T, Failure> {
        self.until("has a record", |runner| runner.lines().iter().find_map(&choose)).await
    }

    async fn until<T>(
        &mut self,
        what: &str,
        look: impl Fn(&Self) -> Option<T>,
    ) -> Result<T, Failure> {
        self.until_within(what, STEP_TIMEOUT, look).await
    }

    /// Waits until a look at the runner finds something.
    ///
    /// # Errors
    /// The runner has ended, or the time has passed.
    pub(crate) async fn until_within<T>(
        &mut self,
        what: &str,
        within: Duration,
        look: impl Fn(&Self) -> Option<T>,
    ) -> Result<T, Failure> {
        let limit = Instant::now() + within;
        loop {
            if let Some(found) = look(self) {
                return Ok(found);
            }
            if self.child.try_wait().ok().flatten().is_some() {
                return Err(self.failed());
            }
            if Instant::now() >= limit {
                return Err(late(&format!("a task that {what}")));
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    fn lines(&self) -> Vec<RecordLine> {
        let text = self.text("record").unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Returns a file of the control directory, if it is there.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.control.join(name)).ok()
    }

    fn failed(&self) -> Failure {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let last = log.lines().rev().take(3).collect::<Vec<_>>().join("; ");
        Failure::new(
            Exit::Failure,
            FailureKind::TaskFailed,
            format_args!("a measured task has ended: {last}"),
        )
    }
}

impl Drop for LabCluster {
    fn drop(&mut self) {
        // The namenode is the first: it does not declare its datanodes dead.
        self.servers.iter_mut().for_each(ChildServer::kill);
    }
}

impl Drop for LabRunner {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns CRIU if a task can be started with it, and the hook otherwise.
///
/// # Errors
/// This program cannot be started.
pub(crate) fn usable_driver(directory: &Path) -> Result<Driver, Failure> {
    made(directory)?;
    let mut command = program()?;
    isolated(&mut command, directory);
    command.args(["task", "run", "--name", "probe", "--driver", "criu", "--backend"]);
    command.arg(format!("dir:{}", directory.join("probe").display()));
    command.arg("--key").arg(directory.join("probe.key")).args(["--", "true"]);
    let ran = command.stdin(Stdio::null()).output();
    let ran = ran.map_err(|error| Failure::caused(Exit::Failure, FailureKind::Process, error))?;
    Ok(if ran.status.success() { Driver::Criu } else { Driver::Hook })
}

/// Returns a command that is killed when the lab ends, whatever becomes of that: its task ends with
/// it.
fn ending_with_lab(command: &Command) -> Result<Command, Failure> {
    let mut ending = program()?;
    ending.args(["task", "child", "--parent", &std::process::id().to_string(), "--"]);
    ending.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => ending.env(name, value),
            None => ending.env_remove(name),
        };
    }
    Ok(ending)
}

/// Keeps the user's contexts and tokens away from servers that have none.
fn isolated(command: &mut Command, directory: &Path) {
    for name in ["SANDERLING_CONTEXT", "SANDERLING_NAMENODE", "SANDERLING_TIMEOUT"] {
        command.env_remove(name);
    }
    command.env("SANDERLING_CONFIG_HOME", directory.join("config"));
}

fn durable_directory() -> MakeDurable {
    MakeDurable {
        path: format!("/{TASKS}").parse::<StorePath>().expect("it is a path"),
        store: "store".to_owned(),
        parents: true,
        backlog_bytes_max: DURABLE_BACKLOG_BYTES,
        adopt: false,
    }
}

fn made(directory: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(directory).map_err(|error| Failure::file(directory, error))
}

fn seconds(span: Duration) -> String {
    format!("{}ms", span.as_millis().max(1))
}

/// Returns the name of a kind on the command line.
pub(crate) const fn kind_name(kind: WriterKind) -> &'static str {
    match kind {
        WriterKind::Dense => "dense",
        WriterKind::Sparse => "sparse",
        WriterKind::Append => "append",
    }
}

fn late(what: &str) -> Failure {
    Failure::new(Exit::Deadline, FailureKind::Deadline, format_args!("waited in vain for {what}"))
}
