//! `task run` and `task restore`: the process, its checkpoints, and where it begins.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::future::Future;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_command::session::Session;
use sanderling_command::units;
use sanderling_context::of_environment;
use sanderling_core::checkpoint::{
    CheckpointManifest, ChunkKey, CriuRecord, DriverRecord, DumpRates, DumpTimes,
};
use sanderling_core::preemption::Model;
use sanderling_transport::open_regular;
use tokio::time::Instant;

use crate::args::{PaceArgs, RestoreArgs, RunArgs, StorageArgs};
use crate::backend::{BackendSpec, TaskBackend, hex};
use crate::criu::{Criu, CriuDriver, machine_view};
use crate::driver_args::{DriverArg, DriverArgs, NetworkArg};
use crate::dump_policy::DumpPolicy;
use crate::encryption::TaskKey;
use crate::generations::{CheckedGeneration, Generations, highest_lock, is_of_generation};
use crate::hook::Hook;
use crate::lock::{self, LockWatch, TaskLock};
use crate::machine_notices::MachineNotices;
use crate::mounts;
use crate::namespaces::TaskNamespaces;
use crate::offers::{OfferedGenerations, absent};
use crate::predict::measure;
use crate::private_directory::{self, PrivateDirectory};
use crate::run_log::RunLog;
use crate::run_record::RunRecord;
use crate::running::{END_WITHIN, RunningTask, TaskEnvironment};
use crate::state_lock::StateLock;
use crate::supervise::{Drivers, Followed, Lives, RunReport, RunTimes, Runner, Triggers};
use crate::task_failure::TaskFailure;

/// How long a runner may take to give its lock up after the task has ended. A backend answers two
/// calls meanwhile; chosen, not measured.
const LOCK_WITHIN: Duration = Duration::from_secs(2);

/// How much longer that may take for each further lock that the process gives up at the same time:
/// a directory on a disk takes about 10 ms for each of two calls, one after the other. With 1,000
/// tasks, as many as an agent may run, all of them have less than 30 s: most supervisors kill a
/// process then. Chosen, not measured.
const FURTHER_LOCK_WITHIN: Duration = Duration::from_millis(20);

/// How long a task may take to install its handler before the runner prints that there is none.
const HANDLES_WITHIN: Duration = Duration::from_secs(1);

/// `task run`.
pub(crate) async fn run(session: Session, args: RunArgs) -> Result<(), Failure> {
    run_recorded(session, args, LockWatch::new(), None).await.map(|_| ())
}

/// As `task run`, with a record, and with what was seen of the task's lock so far. Returns whether
/// the task has ended. One that had ended before is refused with [`TaskFailure::Ended`].
pub(crate) async fn run_recorded(
    session: Session,
    args: RunArgs,
    watch: LockWatch,
    record: Option<&dyn RunRecord>,
) -> Result<Followed, Failure> {
    let name = args.name.map_or_else(|| default_name(&args.command), |name| name.0);
    let temporary;
    let state = match &args.state {
        Some(given) => StatePlace::Given(given),
        None => {
            temporary = PrivateDirectory::new(&name)?;
            StatePlace::Temporary(&temporary)
        }
    };
    let task = (name, &args.storage, &args.pace);
    let start = Begin { must_restore: false, watch: watch.noting(session.output) };
    run_in(&session, task, state, &args.command, start, record).await
}

/// Removes what runners of this user left that were killed.
async fn remove_directories_left() {
    // Where a state is large this takes a while, and where it fails nothing is lost.
    let _ = tokio::task::spawn_blocking(private_directory::remove_left).await;
}

/// Names objects of a task that no runner has written. Everything goes on without them.
///
/// # Errors
/// The backend cannot be read.
pub(crate) async fn note_strange(session: &Session, backend: &TaskBackend) -> Result<(), Failure> {
    let mut strange = lock::strange(backend).await?;
    strange.extend(Generations::strange(backend).await?);
    for name in strange {
        let output = session.output;
        output.note(format_args!("{backend}: no runner writes {name}, and it is passed over"));
    }
    Ok(())
}

/// `task restore`.
pub(crate) async fn restore(session: Session, args: RestoreArgs) -> Result<(), Failure> {
    let storage = &args.place.storage;
    let name = args.place.name.0.clone();
    if !args.command.is_empty() {
        let task = (name, storage, &args.pace);
        let watch = LockWatch::new().noting(session.output);
        let start = Begin { must_restore: true, watch };
        let state = StatePlace::Given(&args.state);
        return run_in(&session, task, state, &args.command, start, None).await.map(|_| ());
    }
    remove_directories_left().await;
    keep_apart(&name, &args.state, storage)?;
    let backend = TaskBackend::open(&session, &storage.backend).await?.of_task(&name)?;
    let generations = opened(&backend, &name, storage, false).await?;
    note_strange(&session, &backend).await?;
    let looked = generations.look().await?;
    if looked.is_empty() && Generations::numbers(&backend).await?.is_empty() {
        return Err(absent(&name, &backend));
    }
    let _lock = StateLock::take(&args.state)?;
    let manifest = newest(&session, &generations, &looked, &args.state).await?;
    let report = RunReport {
        name,
        restored: Some(manifest.generation),
        checkpoints: 0,
        generation: Some(manifest.generation),
    };
    session.output.result(&report, |writer| {
        let (number, bytes) = (manifest.generation, units::bytes(manifest.stream_bytes));
        writeln!(writer, "restored generation {number}: {bytes} in {}", args.state.display())
    })
}

/// Where the state of a task is.
#[derive(Clone, Copy)]
enum StatePlace<'a> {
    /// In a directory that other processes may have been given, too.
    Given(&'a Path),
    /// In one of this process alone.
    Temporary(&'a PrivateDirectory),
}

impl<'a> StatePlace<'a> {
    fn path(self) -> &'a Path {
        match self {
            Self::Given(path) => path,
            Self::Temporary(directory) => directory.path(),
        }
    }

    /// Keeps other processes from using it.
    ///
    /// # Errors
    /// One does, or it cannot be made.
    fn lock(self) -> Result<Option<StateLock>, Failure> {
        match self {
            Self::Given(path) => StateLock::take(path).map(Some),
            Self::Temporary(_) => Ok(None),
        }
    }
}

/// How a run begins.
struct Begin {
    must_restore: bool,
    /// What was seen of the task's lock so far.
    watch: LockWatch,
}

async fn run_in(
    session: &Session,
    (name, storage, pace): (String, &StorageArgs, &PaceArgs),
    place: StatePlace<'_>,
    command: &[OsString],
    begin: Begin,
    record: Option<&dyn RunRecord>,
) -> Result<Followed, Failure> {
    remove_directories_left().await;
    let state = place.path();
    keep_apart(&name, state, storage)?;
    let notices = notices(session, pace, record)?;
    let may_create = !begin.must_restore && record.is_none();
    let backend = usable_backend(session, &name, storage, may_create).await?;
    let criu = pace.driver.criu()?;
    let lives = lives(pace)?;
    let lock = TaskLock::take(&backend, &name, storage.lock_age.0, begin.watch).await?;
    backend.clear(storage.lock_age.0).await;
    let running = async {
        note_strange(session, &backend).await?;
        refuse_ended(record, &name).await?;
        let opened = opened(&backend, &name, storage, true).await?;
        let (compresses, policy) = (!pace.no_compression, pace.policy);
        let generations = Generations { compresses, policy, ..opened };
        let _lock = place.lock()?;
        let looked = generations.look().await?;
        lock.follow(highest_lock(&looked));
        let (generations, number) = (&generations, record.map(RunRecord::number));
        let start = Start { lock: &lock, session, generations, pace, state, criu, command, number };
        start.check_machine(&looked)?;
        // From here on there may be a task to end, and a checkpoint to take for a notice.
        let notice = pace.notice.on_notice.then_some(pace.notice.notice_deadline.0);
        let turns = record.map_or_else(Arc::default, RunRecord::turns);
        session.clean_up_within(notice.unwrap_or_default() + clean_up(turns.tasks()));
        let started = start.measured(&looked, begin.must_restore, record);
        let Some((rates, (task, driver, restored))) = unless_ended(session, started).await? else {
            return Ok(Followed::Stopped);
        };
        let drivers = drivers(state, pace, driver, restored.as_ref());
        let triggers = Triggers { notices, takes_sigterm: pace.notice.on_notice, rates, turns };
        let mut runner = Runner {
            session,
            generations: generations.clone(),
            drivers,
            triggers,
            pace,
            looked,
            times: DumpTimes::default(),
            times_in_turn: DumpTimes::default(),
            run_record: record,
            run: RunTimes::new(restored.is_some()),
            lives,
            checkpoints: 0,
            given_up: Vec::new(),
            notes_undriven_at: Some(Instant::now() + HANDLES_WITHIN),
            log: pace.record.clone().map(RunLog),
            left_out: BTreeSet::new(),
            stuck: BTreeSet::new(),
        };
        followed(&mut runner, &lock, task, restored).await
    };
    let result = running.await;
    // A task that this runner had to end has not ended: another one goes on with it.
    let recorded = match record.filter(|_| !matches!(result, Ok(Followed::Stopped))) {
        Some(record) => record.record(&lock, result.as_ref().err().cloned()).await,
        None => Ok(()),
    };
    lock.release().await;
    recorded.and(result)
}

/// Follows a task to its end, and prints when it is stopped meanwhile.
async fn followed(
    runner: &mut Runner<'_>,
    lock: &TaskLock,
    task: RunningTask,
    restored: Option<CheckpointManifest>,
) -> Result<Followed, Failure> {
    let stops = task.handle().lease.note_stops(runner.session.output);
    tokio::select! {
        followed = runner.follow(lock, task, restored) => followed,
        never = stops => match never {},
    }
}

/// Refuses a task that ended before.
async fn refuse_ended(record: Option<&dyn RunRecord>, name: &str) -> Result<(), Failure> {
    if let Some(record) = record
        && record.has_ended().await?
    {
        return Err(TaskFailure::Ended.failure(Exit::Failure, format_args!("{name} has ended")));
    }
    Ok(())
}

/// Waits for work that has nothing to save; `None` if this process has to end before its end.
///
/// # Errors
/// That of the work.
async fn unless_ended<T>(
    session: &Session,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<Option<T>, Failure> {
    tokio::select! {
        biased;
        () = session.ended.cancelled() => Ok(None),
        done = work => done.map(Some),
    }
}

/// Opens the place of a task that is to run, and looks whether it can be used. A bucket that does
/// not exist is created if the task may begin there.
async fn usable_backend(
    session: &Session,
    name: &str,
    storage: &StorageArgs,
    may_create: bool,
) -> Result<TaskBackend, Failure> {
    let backend = TaskBackend::open(session, &storage.backend).await?.of_task(name)?;
    match may_create {
        true => backend.prepare_or_create(session.output).await?,
        false => backend.prepare().await?,
    }
    Ok(backend)
}

/// Returns the notices of the machine: those that the agent of a bag takes, or those of the task's
/// own sources.
fn notices(
    session: &Session,
    pace: &PaceArgs,
    record: Option<&dyn RunRecord>,
) -> Result<MachineNotices, Failure> {
    match record {
        Some(record) => Ok(record.notices()),
        None => pace.notice.watch(session.output),
    }
}

/// Returns how long a process may take to end its tasks, and to give their locks up then.
fn clean_up(locks: u32) -> Duration {
    END_WITHIN + LOCK_WITHIN + FURTHER_LOCK_WITHIN * locks.saturating_sub(1)
}

/// Returns the ways to the task's state. One that was restored from an image goes on with images.
fn drivers(
    state: &Path,
    pace: &PaceArgs,
    criu: Option<CriuDriver>,
    restored: Option<&CheckpointManifest>,
) -> Drivers {
    let hook = Hook::new(state, pace.hook_timeout.0);
    let is_of_images = |it: &CheckpointManifest| matches!(it.driver, DriverRecord::Criu(_));
    let prefers_hook = pace.driver.driver == DriverArg::Auto && !restored.is_some_and(is_of_images);
    Drivers { hook, criu, prefers_hook }
}

/// Returns how machines end, where `--lives` has it.
fn lives(pace: &PaceArgs) -> Result<Option<Lives>, Failure> {
    let read = |file: &str| open_regular(Path::new(file)).and_then(std::io::read_to_string);
    let model = pace.lives.as_ref().map(|spec| Model::load(spec, read)).transpose();
    let model = model.map_err(|error| Failure::usage(format_args!("--lives: {error}")))?;
    Ok(model.map(Lives::new))
}

/// What a task is started from.
struct Start<'a> {
    lock: &'a TaskLock,
    session: &'a Session,
    generations: &'a Generations,
    pace: &'a PaceArgs,
    state: &'a Path,
    criu: Option<Criu>,
    command: &'a [OsString],
    /// The task's number in its bag.
    number: Option<u32>,
}

/// A task that runs, the driver with CRIU if it can have one, and what it was restored from.
type StartedTask = (RunningTask, Option<CriuDriver>, Option<CheckpointManifest>);

/// The same of a task that was restored.
type RestoredTask = (RunningTask, Option<CriuDriver>, CheckpointManifest);

impl Start<'_> {
    /// Refuses a task before anything is written for it, if this machine cannot restore its newest
    /// generation.
    fn check_machine(&self, looked: &[CheckedGeneration]) -> Result<(), Failure> {
        let Some((number, Ok(stored))) = looked.first() else { return Ok(()) };
        match &stored.driver {
            DriverRecord::Criu(record) => self.fitting_criu(*number, record).map(|_| ()),
            DriverRecord::Hook => Ok(()),
        }
    }

    /// As [`Start::recorded`], after it was measured how fast this machine and the backend are.
    async fn measured(
        &self,
        looked: &[CheckedGeneration],
        must_restore: bool,
        record: Option<&dyn RunRecord>,
    ) -> Result<(Option<DumpRates>, StartedTask), Failure> {
        let may_start = looked.is_empty() || looked.iter().any(|(_, manifest)| manifest.is_ok());
        let mut rates = None;
        if self.pace.notice.on_notice && may_start {
            let shared = record.map_or_else(Arc::default, RunRecord::rates);
            // The next run of this process measures again if this one cannot.
            rates = shared.get_or_try_init(|| self.rates()).await.ok().copied();
        }
        Ok((rates, self.recorded(looked, must_restore).await?))
    }

    /// Measures how fast this machine and the backend are, for notices.
    ///
    /// # Errors
    /// They cannot be measured, as in a backend with less room than the measurement needs.
    async fn rates(&self) -> Result<DumpRates, Failure> {
        let measured = measure(&self.generations.backend, !self.pace.no_compression).await;
        measured.inspect_err(|failure| {
            let cause = &failure.cause;
            let how = "until the first checkpoint the time of one is assumed";
            self.session.output.note(format_args!("the backend is not measured, {how}: {cause}"));
        })
    }

    /// As [`Start::begin`], and records what a restore took.
    async fn recorded(
        &self,
        looked: &[CheckedGeneration],
        must_restore: bool,
    ) -> Result<StartedTask, Failure> {
        let begun = Instant::now();
        let started = self.begin(looked, must_restore).await?;
        if let (Some(file), Some(manifest)) = (&self.pace.record, &started.2) {
            let log = RunLog(file.clone());
            let recorded = log.restored(&manifest.task, manifest.generation, begun.elapsed());
            // The task runs, whatever becomes of the file.
            if let Err(failure) = recorded {
                self.session.output.note(format_args!("not recorded: {failure}"));
            }
        }
        Ok(started)
    }

    /// Starts a task from its newest generation that is good, or from nothing if there is none.
    /// Which one that is, [`OfferedGenerations`] has.
    async fn begin(
        &self,
        looked: &[CheckedGeneration],
        must_restore: bool,
    ) -> Result<StartedTask, Failure> {
        let output = self.session.output;
        let mut offered = OfferedGenerations::to_runner(looked, must_restore);
        while let Some(number) = offered.next(self.generations, output).await? {
            match self.restored(number).await? {
                Ok((task, driver, manifest)) => {
                    output.note(format_args!("restored generation {number}"));
                    return Ok((task, driver, Some(manifest)));
                }
                Err(failure) => offered.refused(number, failure)?,
            }
        }
        self.note_own_disk();
        let (task, driver) = self.started(false).await?;
        Ok((task, driver, None))
    }

    /// Notes that a task without a checkpoint has its first ones on the disk of this machine, as if
    /// a file system with older ones were not mounted. A bag is in the directory of its tasks.
    fn note_own_disk(&self) {
        let Generations { backend, task, .. } = self.generations;
        let TaskBackend::Directory(directory) = backend else { return };
        if self.number.is_some() || !mounts::is_on_root(directory).unwrap_or(false) {
            return;
        }
        self.session.output.note(format_args!(
            "{task} begins without a checkpoint, and {backend} is on the file system of /: what is \
             stored there ends with this machine. A mount point named as mount:D is refused while \
             nothing is mounted there"
        ));
    }

    /// Starts the task from the generation of a number; the inner error is that the generation is
    /// of no use.
    async fn restored(&self, number: u64) -> Result<Result<RestoredTask, Failure>, Failure> {
        let manifest = match self.generations.manifest(number).await {
            Ok(manifest) => manifest,
            Err(failure) if is_of_generation(&failure) => return Ok(Err(failure)),
            Err(failure) => return Err(failure),
        };
        let restored = self.restored_from(&manifest).await?;
        Ok(restored.map(|(task, driver)| (task, driver, manifest)))
    }

    /// The same, from its manifest.
    async fn restored_from(
        &self,
        manifest: &CheckpointManifest,
    ) -> Result<Result<(RunningTask, Option<CriuDriver>), Failure>, Failure> {
        let record = match &manifest.driver {
            DriverRecord::Criu(record) => record,
            DriverRecord::Hook => {
                return match self.generations.restore(manifest, self.state).await {
                    Ok(()) => self.started(true).await.map(Ok),
                    Err(failure) if is_of_generation(&failure) => Ok(Err(failure)),
                    Err(failure) => Err(failure),
                };
            }
        };
        let criu = self.fitting_criu(manifest.generation, record)?;
        self.expect_lease().await?;
        let mut namespaces = self.namespaces(record.has_own_network)?;
        let restored = criu.restore(&mut namespaces, self.generations, manifest, record).await?;
        Ok(restored.map(|(root, pipes)| {
            let driver = self.driver(criu, root, pipes);
            (RunningTask::in_namespaces(namespaces, root), Some(driver))
        }))
    }

    /// Returns the CRIU that can restore a generation.
    ///
    /// # Errors
    /// [`TaskFailure::OtherMachine`]: another machine may be able to.
    fn fitting_criu(&self, number: u64, record: &CriuRecord) -> Result<&Criu, Failure> {
        let refused = |why: String| {
            let task = &self.generations.task;
            let cause = format!("generation {number} of {task} cannot be restored here: {why}");
            let next = "the same on a machine like the one where it was taken, with --criu PATH";
            TaskFailure::OtherMachine.failure(Exit::Failure, cause).next(next)
        };
        let view = machine_view(self.criu.as_ref());
        record.fits(&view).map_err(|error| refused(error.to_string()))?;
        self.criu.as_ref().ok_or_else(|| refused("there is no CRIU".to_owned()))
    }

    async fn expect_lease(&self) -> Result<(), Failure> {
        self.lock.expect_lease(&self.generations.task, self.session.output).await
    }

    async fn started(
        &self,
        is_restored: bool,
    ) -> Result<(RunningTask, Option<CriuDriver>), Failure> {
        self.expect_lease().await?;
        let Some(criu) = &self.criu else {
            let (environment, lease) = (self.environment(), self.lock.lease());
            let (command, output) = (self.command, self.session.output);
            let task = RunningTask::start(&environment, command, is_restored, lease, output)?;
            return Ok((task, None));
        };
        let namespaces = self.namespaces(self.pace.driver.network == NetworkArg::Own)?;
        let (root, pipes) =
            RunningTask::start_in(&namespaces.handle(), self.command, is_restored).await?;
        Ok((RunningTask::in_namespaces(namespaces, root), Some(self.driver(criu, root, pipes))))
    }

    fn namespaces(&self, has_own_network: bool) -> Result<TaskNamespaces, Failure> {
        let variables = self.environment().variables()?;
        TaskNamespaces::open(&variables, has_own_network, self.lock.lease())
    }

    fn driver(&self, criu: &Criu, root: u32, pipes: [String; 2]) -> CriuDriver {
        let DriverArgs { file_locks, image_memory, .. } = self.pace.driver;
        // A task of the baseline waits for the backend: as little as possible is ahead of it.
        let image_memory = match self.pace.policy {
            DumpPolicy::Baseline => Some(0),
            DumpPolicy::Sanderling => image_memory.map(|size| size.0),
        };
        CriuDriver { criu: criu.clone(), root, pipes, dumps_locks: file_locks, image_memory }
    }

    fn environment(&self) -> TaskEnvironment<'_> {
        let (state, task, number) = (self.state, &self.generations.task, self.number);
        TaskEnvironment { state, task, number }
    }
}

/// Unpacks the newest generation that is good into a state directory; returns its manifest. A
/// runner at work may replace generations while they are read.
///
/// # Errors
/// As [`OfferedGenerations::next`]; the state directory cannot be written.
async fn newest(
    session: &Session,
    generations: &Generations,
    looked: &[CheckedGeneration],
    state: &Path,
) -> Result<CheckpointManifest, Failure> {
    let mut offered = OfferedGenerations::to_reader(looked);
    while let Some(number) = offered.next(generations, session.output).await? {
        match generations.unpack(number, state).await {
            Ok(manifest) => {
                session.output.note(format_args!("restored generation {number}"));
                return Ok(manifest);
            }
            Err(failure) => offered.refused(number, failure)?,
        }
    }
    Err(absent(&generations.task, &generations.backend))
}

/// Refuses a state directory that has the checkpoints or their key, or lies among the checkpoints:
/// a restore deletes what is in it.
fn keep_apart(name: &str, state: &Path, storage: &StorageArgs) -> Result<(), Failure> {
    let backend = match &storage.backend {
        BackendSpec::Directory(directory) | BackendSpec::Mounted(directory) => {
            Some(("checkpoints", directory.clone()))
        }
        BackendSpec::Auto | BackendSpec::Store(_) | BackendSpec::Bucket(_) => None,
    };
    let key = storage.key.clone().map_or_else(default_key, Ok)?;
    let within = resolved(state)?;
    for (what, path) in backend.into_iter().chain([("key", key)]) {
        let place = resolved(&path)?;
        let is_below = what == "checkpoints" && is_stored(&within, &place, name);
        if place.starts_with(&within) || is_below {
            let how = if is_below { "lies in" } else { "has" };
            let (state, path) = (state.display(), path.display());
            let cause = format!(
                "the state directory {state}, which a restore replaces, {how} the {what} {path}"
            );
            return Err(Failure::usage(cause).next("the same with another --state DIR"));
        }
    }
    Ok(())
}

/// Returns whether a path is in what is stored in a backend of the task `name`, of another one, or
/// of a bag.
fn is_stored(path: &Path, backend: &Path, name: &str) -> bool {
    let below = path.strip_prefix(backend).ok().and_then(|rest| rest.components().next());
    below.is_some_and(|first| {
        let is_bag = first.as_os_str().as_bytes().starts_with(b"@");
        let is_task = || backend.join(first).join("generations").is_dir();
        is_bag || first.as_os_str() == name || is_task()
    })
}

/// Returns the absolute path of a file that need not exist, without symbolic links.
fn resolved(path: &Path) -> Result<PathBuf, Failure> {
    let failed = |error: std::io::Error| Failure::file(path, error);
    let whole = std::path::absolute(path).map_err(failed)?;
    for above in whole.ancestors() {
        if let Ok(found) = above.canonicalize() {
            let rest = whole.strip_prefix(above).unwrap_or(Path::new(""));
            return Ok(found.join(rest));
        }
    }
    Ok(whole)
}

/// Reads the key of a task; with `makes` one is made if the task has no checkpoint yet.
///
/// # Errors
/// There is no key: give the one that the task began with (`--key`). No new key is made where there
/// are checkpoints.
pub(crate) async fn opened(
    backend: &TaskBackend,
    task: &str,
    storage: &StorageArgs,
    makes: bool,
) -> Result<Generations, Failure> {
    let path = match &storage.key {
        Some(path) => path.clone(),
        None => default_key()?,
    };
    let key = match TaskKey::read(&path)? {
        Some(key) => key,
        None if makes && Generations::numbers(backend).await?.is_empty() => TaskKey::create(&path)?,
        None => {
            let cause =
                format!("no key in {}: the checkpoints of {task} need theirs", path.display());
            let next = "the same with --key and the file that `task run` made for them";
            return Err(Failure::new(Exit::NotFound, FailureKind::TaskKey, cause).next(next));
        }
    };
    let (backend, task) = (backend.clone(), task.to_owned());
    let policy = DumpPolicy::Sanderling;
    Ok(Generations { backend, key, task, compresses: true, policy })
}

fn default_key() -> Result<PathBuf, Failure> {
    let contexts = sanderling_context::file(&of_environment);
    contexts.map(|path| path.with_file_name("task.key")).map_err(|error| {
        Failure::caused(Exit::Failure, FailureKind::TaskKey, error).next("the same with --key FILE")
    })
}

/// Returns the name of a task that was given none: two commands have two names.
fn default_name(words: &[OsString]) -> String {
    let program = words.first().map(PathBuf::from).unwrap_or_default();
    let stem = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_allowed = |char: &char| char.is_ascii_alphanumeric() || "-_".contains(*char);
    let stem: String = stem.chars().filter(is_allowed).take(40).collect();
    let all: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    let digits = ChunkKey::new([0; 32]).name(&all.join(&0)).0;
    format!("{stem}-{}", hex(&digits[..4]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::TaskName;

    #[test]
    fn each_lock_adds_to_the_time_of_a_clean_up_within_a_bound() {
        assert_eq!(clean_up(1), END_WITHIN + LOCK_WITHIN);
        assert_eq!(clean_up(101), clean_up(1) + Duration::from_secs(2));
        assert!(clean_up(1000) < Duration::from_secs(30));
        assert_eq!(clean_up(0), clean_up(1), "it waits for its own task");
    }

    #[test]
    fn default_names_depend_on_all_words() {
        let name = |words: &[&str]| default_name(&words.iter().map(Into::into).collect::<Vec<_>>());
        assert!(name(&["/usr/bin/python3", "a.py"]).starts_with("python3-"));
        assert_ne!(name(&["python3", "a.py"]), name(&["python3", "b.py"]));
        assert_ne!(name(&["a", "b c"]), name(&["a", "b", "c"]));
        assert!(name(&["./.x y"]).parse::<TaskName>().is_ok());
    }
}
