//! The driver with CRIU: it dumps the processes of a task, which need not know of it.

use std::io::ErrorKind;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, mpsc};

use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::process::geteuid;
use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_core::checkpoint::{
    CheckpointManifest, CriuRecord, CriuVersion, DriverRecord, MachineView,
};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use crate::driver::{CapturedState, CheckpointDriver, ReadState, TaskHandle};
use crate::dump_gate::DumpGate;
use crate::generations::{Generations, is_of_generation};
use crate::image_queue::ImageQueue;
use crate::image_server::{ImageServer, ServedImages};
use crate::image_stream::{CAPTURE_SOCKET, SERVE_SOCKET, receive};
use crate::namespaces::{InitReply, InitRequest, TaskNamespaces};
use crate::pack_writer::PackWriter;
use crate::private_directory::PrivateDirectory;

/// CRIU's log in the directory of images.
const LOG: &str = "criu.log";

/// Lines of the log that look like errors and are none.
const NOISE: [&str; 3] = ["rlimit: Can't setup", "Can't keep kdat cache", "Can't check shutdown"];

/// Options of every dump and restore. Control groups of another machine have other names.
const ALWAYS: [&str; 4] = ["--stream", "--manage-cgroups=ignore", "-v2", "-o"];

/// Options of both for connections within a network of the task's own.
const CONNECTIONS: [&str; 3] = ["--tcp-established", "--network-lock", "nftables"];

/// CRIU, as it was found on this machine.
#[derive(Debug, Clone)]
pub(crate) struct Criu {
    program: PathBuf,
    version: CriuVersion,
}

/// The driver, for one task.
#[derive(Clone)]
pub(crate) struct CriuDriver {
    pub(crate) criu: Criu,
    /// The task's process id in its namespaces, and the pipes of its output.
    pub(crate) root: u32,
    pub(crate) pipes: [String; 2],
    pub(crate) dumps_locks: bool,
    /// Bytes of images that may wait to be packed, if the user bounds them.
    pub(crate) image_memory: Option<u64>,
}

/// A dump that runs: CRIU connects to the listener.
pub(crate) struct CriuDump {
    listener: UnixListener,
    gate: Arc<DumpGate>,
    result: mpsc::Receiver<Result<ReadState, Failure>>,
    queue: ImageQueue,
}

/// A directory for CRIU's socket and log.
struct WorkDirectory(PrivateDirectory);

impl Criu {
    /// Finds CRIU and looks whether it can be used here.
    ///
    /// # Errors
    /// It is absent, too old, or this process lacks the rights.
    pub(crate) fn probe(program: &Path) -> Result<Self, Failure> {
        let refused = |why: String| {
            let next = "the same with --criu PATH, or with --driver hook";
            Failure::new(Exit::Failure, FailureKind::Criu, format!("CRIU cannot be used: {why}"))
                .next(next)
        };
        let run = |words: &[&str]| -> Result<Output, Failure> {
            Command::new(program).args(words).output().map_err(|error| match error.kind() {
                ErrorKind::NotFound => refused(format!("no program {}", program.display())),
                _ => refused(format!("{}: {error}", program.display())),
            })
        };
        let printed = run(&["--version"])?.stdout;
        let printed = String::from_utf8_lossy(&printed).into_owned();
        let version = printed.lines().find_map(|line| line.strip_prefix("Version:"));
        let version = version.and_then(|it| it.trim().parse::<CriuVersion>().ok());
        let none = || refused(format!("{} prints no version", program.display()));
        let version = version.ok_or_else(none)?;
        if version < CriuVersion::OLDEST {
            let oldest = CriuVersion::OLDEST;
            return Err(refused(format!("it has version {version}, and {oldest} is needed")));
        }
        if !geteuid().is_root() {
            return Err(refused("this process is not root".to_owned()));
        }
        let check = run(&["check"])?;
        if !check.status.success() {
            let text = String::from_utf8_lossy(&check.stderr).into_owned();
            let why = errors_of(&text).unwrap_or_else(|| text.trim().to_owned());
            return Err(refused(format!("`criu check` fails: {why}")));
        }
        let temporary = std::env::temp_dir();
        let mounted = statvfs(&temporary).map(|it| it.f_flag);
        if mounted.is_ok_and(|it| it.contains(StatVfsMountFlags::NOEXEC)) {
            return Err(refused(format!(
                "it runs a script in {}, which is mounted noexec: set TMPDIR to another directory",
                temporary.display()
            )));
        }
        Ok(Self { program: program.to_owned(), version })
    }

    /// Returns its release.
    pub(crate) const fn version(&self) -> CriuVersion {
        self.version
    }

    /// Restores a generation in namespaces. Returns the process id of the task in there, and its
    /// pipes; `Err` in the inner result if the generation is of no use. When CRIU fails, or an
    /// image cannot be read, the namespaces are ended.
    ///
    /// # Errors
    /// The backend cannot be read, CRIU failed although the generation is good, or the namespaces
    /// have ended: try this generation again, and not the one before it.
    pub(crate) async fn restore(
        &self,
        namespaces: &mut TaskNamespaces,
        generations: &Generations,
        manifest: &CheckpointManifest,
        record: &CriuRecord,
    ) -> Result<Result<(u32, [String; 2]), Failure>, Failure> {
        let server = match ImageServer::open(generations, manifest).await {
            Ok(server) => server,
            Err(failure) => return of_reading(failure),
        };
        let directory = WorkDirectory::new()?;
        let listener = directory.listener(SERVE_SOCKET)?;
        let path = directory.path().join(SERVE_SOCKET);
        let ServedImages { stop, mut failed, ended } = server.serve(listener, path);
        let mut arguments = self.arguments("restore", directory.path(), record.has_own_network);
        arguments.extend(["-d".to_owned(), "--restore-sibling".to_owned()]);
        let request = InitRequest::Restore {
            criu: self.program.clone(),
            arguments,
            root: record.root,
            pipes: record.output_pipes.clone(),
            has_own_network: record.has_own_network,
        };
        let handle = namespaces.handle();
        let replied = tokio::select! {
            reply = handle.call(&request) => Ok(reply),
            Ok(failure) = &mut failed => Err(failure),
        };
        if !matches!(replied, Ok(Ok(InitReply::Running { .. }))) {
            // Nothing of the task is to run. CRIU may wait for an image that cannot be read.
            namespaces.kill().await;
        }
        drop(stop);
        let socket = ended.await.ok().flatten();
        let reply = match (replied, failed.try_recv()) {
            (Err(failure), _) | (Ok(_), Ok(failure)) => return of_reading(failure),
            (Ok(reply), Err(_)) => reply?,
        };
        // The socket alone has failed: what CRIU reports counts.
        let socket = socket.map(|failure| failure.cause);
        let code = match reply {
            InitReply::Running { root, pipes } => return Ok(Ok((root, pipes))),
            InitReply::Criu { code } => code,
            _ => -1,
        };
        let number = manifest.generation;
        let why = directory.logged().or(socket).unwrap_or_else(|| ended_with(code));
        let log = directory.keep().join(LOG);
        let cause = format!("CRIU cannot restore generation {number}: {why}");
        Err(Failure::new(Exit::Failure, FailureKind::CriuRestore, cause)
            .next(format_args!("less {}", log.display())))
    }

    fn arguments(&self, verb: &str, directory: &Path, has_own_network: bool) -> Vec<String> {
        let mut arguments = vec![verb.to_owned()];
        arguments.extend(ALWAYS.map(str::to_owned));
        arguments.extend([LOG.to_owned(), "-D".to_owned(), directory.display().to_string()]);
        if has_own_network {
            arguments.extend(CONNECTIONS.map(str::to_owned));
        }
        arguments
    }
}

impl CheckpointDriver for CriuDriver {
    type State = CriuDump;

    async fn capture<P>(
        &self,
        task: &TaskHandle,
        prepare: impl Future<Output = Result<P, Failure>>,
    ) -> Result<Option<(CriuDump, P)>, Failure> {
        let namespaces = task.namespaces.clone().expect("a task of this driver has its namespaces");
        let (root, has_own_network) = (self.root, namespaces.has_own_network);
        let check = InitRequest::Check { root, allows_locks: self.dumps_locks, has_own_network };
        let InitReply::Checked { is_starting, problems } = namespaces.call(&check).await? else {
            let cause = "the answer of the task's init was another";
            return Err(Failure::new(Exit::Failure, FailureKind::Bug, cause));
        };
        if is_starting {
            return Ok(None);
        }
        if let Some(first) = problems.first() {
            let more = match problems.len() - 1 {
                0 => String::new(),
                more => format!(" (and {more} more)"),
            };
            let cause = format!("the task cannot be dumped: {first}{more}");
            return Err(Failure::new(Exit::Failure, FailureKind::CriuDump, cause));
        }
        // Before `prepare`, at whose end the record of a dump begins to count the freeze.
        let (task, requested) = (task.clone(), self.image_memory);
        let made = spawn_blocking(move || ImageQueue::of_task(task.resident_bytes(), requested));
        let bug = |error| Failure::caused(Exit::Failure, FailureKind::Bug, error);
        let queue = made.await.map_err(bug)?;
        let prepared = prepare.await?;
        let directory = WorkDirectory::new()?;
        let listener = directory.listener(CAPTURE_SOCKET)?;
        let gate = Arc::new(DumpGate::new(directory.path())?);
        let mut arguments = self.criu.arguments("dump", directory.path(), has_own_network);
        arguments.extend(DumpGate::options(directory.path()));
        arguments.extend(["--leave-running", "-t"].map(str::to_owned));
        arguments.push(root.to_string());
        if self.dumps_locks {
            arguments.push("--file-locks".to_owned());
        }
        let record = record(self.criu.version, root, &self.pipes, has_own_network);
        let criu = self.criu.program.clone();
        let (sender, result) = mpsc::channel();
        // It goes on when this dump is given up: CRIU is waited for in any case.
        tokio::spawn(async move {
            let reply = namespaces.call(&InitRequest::Dump { criu, arguments }).await;
            // CRIU has ended, and the task goes on.
            let free_at = Instant::now();
            let ended = match reply {
                Ok(InitReply::Criu { code: 0 }) => {
                    Ok(ReadState { driver: DriverRecord::Criu(record), free_at })
                }
                Ok(InitReply::Criu { code }) => {
                    Err(directory.logged().unwrap_or_else(|| ended_with(code)))
                }
                Ok(_) => Err("the answer of the task's init was another".to_owned()),
                Err(failure) => Err(failure.cause),
            };
            let ended = ended.map_err(|why| {
                let cause = format!("CRIU cannot dump the task: {why}");
                Failure::new(Exit::Failure, FailureKind::CriuDump, cause)
            });
            let _ = sender.send(ended);
            // If CRIU has failed before it connected, the receiver still waits.
            let _ = UnixStream::connect(directory.path().join(CAPTURE_SOCKET));
        });
        Ok(Some((CriuDump { listener, gate, result, queue }, prepared)))
    }
}

impl CapturedState for CriuDump {
    fn read(self, writer: &mut PackWriter) -> Result<ReadState, Failure> {
        let failed = |why: String| {
            Failure::new(Exit::Failure, FailureKind::CriuDump, format!("no images: {why}"))
        };
        let (socket, _) = self.listener.accept().map_err(|error| failed(error.to_string()))?;
        let received = receive(socket, &self.gate, writer, self.queue);
        // Whatever has failed: CRIU is not to wait.
        self.gate.open();
        let ended = self.result.recv().map_err(|error| failed(error.to_string()));
        // What CRIU reports names the cause; the stream is cut then.
        match (ended, received) {
            (Ok(Ok(read)), Ok(())) => Ok(read),
            (Ok(Ok(_)) | Err(_), Err(failure)) | (Ok(Err(failure)) | Err(failure), _) => {
                Err(failure)
            }
        }
    }
}

impl WorkDirectory {
    fn new() -> Result<Self, Failure> {
        PrivateDirectory::new("criu").map(Self)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn listener(&self, name: &str) -> Result<UnixListener, Failure> {
        let path = self.path().join(name);
        UnixListener::bind(&path).map_err(|error| Failure::file(&path, error))
    }

    /// Returns why CRIU has failed, if it has logged that.
    fn logged(&self) -> Option<String> {
        errors_of(&std::fs::read_to_string(self.path().join(LOG)).unwrap_or_default())
    }

    /// Leaves the directory for a look at the log, and returns where it is. Only the last one is
    /// left.
    fn keep(self) -> PathBuf {
        let kept = std::env::temp_dir().join("sanderling-criu-failed");
        self.0.keep_as(&kept);
        kept
    }
}

/// Returns what this machine has for restores.
pub(crate) fn machine_view(criu: Option<&Criu>) -> MachineView {
    let architecture = std::env::consts::ARCH.to_owned();
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = cpu.lines().find(|line| line.starts_with("flags") || line.starts_with("Features"));
    let all = line.and_then(|line| line.split_once(':')).map_or("", |(_, features)| features);
    let cpu_features = MachineView::used_features(&architecture, all);
    MachineView { criu: criu.map(Criu::version), architecture, cpu_features }
}

fn record(
    version: CriuVersion,
    root: u32,
    pipes: &[String; 2],
    has_own_network: bool,
) -> CriuRecord {
    let MachineView { architecture, cpu_features, .. } = machine_view(None);
    let output_pipes = pipes.clone();
    CriuRecord { version, architecture, cpu_features, root, output_pipes, has_own_network }
}

/// Returns what a restore returns whose images could not be read: a generation before this one is
/// taken only if this one is of no use, and not if the backend is away.
fn of_reading<T>(failure: Failure) -> Result<Result<T, Failure>, Failure> {
    if is_of_generation(&failure) { Ok(Err(failure)) } else { Err(failure) }
}

fn ended_with(code: i32) -> String {
    format!("it ended with exit code {code}")
}

/// Returns the first error of a log of CRIU: what follows is caused by it.
fn errors_of(log: &str) -> Option<String> {
    let error = |line: &str| {
        let (_, rest) = line.split_once("Error (")?;
        let (_, message) = rest.split_once("): ")?;
        (!NOISE.iter().any(|noise| message.contains(noise))).then(|| message.trim().to_owned())
    };
    log.lines().find_map(error)
}

/// Keeps an [`ImageServer`] going until it is dropped.
pub(crate) type StopServing = oneshot::Sender<()>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task_failure::TaskFailure;

    #[test]
    fn first_error_of_a_log_counts() {
        let log = "(00.1) Warn  (criu/x.c:1): something\n\
                   (00.1) Error (criu/util.c:1534): rlimit: Can't setup RLIMIT_NOFILE for self\n\
                   (00.2) Error (criu/sk-unix.c:9): unix: External socket is used.\n\
                   (00.3) Error (criu/cr-dump.c:1): Dumping FAILED.\n";
        assert_eq!(errors_of(log).as_deref(), Some("unix: External socket is used."));
        assert_eq!(errors_of("(00.1) Dumping finished successfully\n"), None);
    }

    #[test]
    fn older_generation_is_taken_only_if_the_newer_one_is_of_no_use() {
        let failure = |means: TaskFailure| means.failure(Exit::Failure, "why");
        let is_older_taken = |failure: Failure| of_reading::<()>(failure).is_ok();
        for means in [
            TaskFailure::BadGeneration,
            TaskFailure::DamagedGeneration,
            TaskFailure::OtherKey,
            TaskFailure::DataLost,
        ] {
            assert!(is_older_taken(failure(means)), "{means:?}");
        }
        assert!(!is_older_taken(failure(TaskFailure::LocalFile)));
        assert!(!is_older_taken(failure(TaskFailure::OtherRelease)));
        for kind in [FailureKind::TaskBackend, FailureKind::Process, FailureKind::Bug] {
            let failure = Failure::new(Exit::Failure, kind.clone(), "why");
            assert!(!is_older_taken(failure), "{kind:?}");
        }
    }

    #[test]
    fn absent_and_strange_programs_are_refused() {
        let refused = |program: &str| Criu::probe(Path::new(program)).unwrap_err().cause;
        assert!(refused("/absent/criu").contains("/absent/criu"));
        assert!(refused("true").contains("no version"));
    }
}
