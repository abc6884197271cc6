//! One command's way to the cluster: the runtime, the namenode, the deadline, the interruption.

use std::future::{Future, pending};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sanderling_client::{Client, ClientConfig, diagnosed};
use sanderling_context::AddressOrigin;
use sanderling_protocol::message::{Hello, HelloReply, Role};
use sanderling_protocol::{Reply, Request};
use sanderling_transport::{
    CallError, Connection, ConnectionOptions, Credentials, Namenodes, Pool, PoolOptions,
};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::cluster::first_address;
use crate::failure::{Exit, Failure, FailureKind};
use crate::global::Global;
use crate::logs::{self, LogFormat, LogSource};
use crate::output::Output;
use crate::{credentials, otlp, refused};

/// How long an interrupted command may take to clean up, such as giving an unfinished object up.
/// After a second signal each command has so much time. Giving up is a request or two, and a person
/// waits for it. Chosen, not measured.
const CLEAN_UP: Duration = Duration::from_secs(2);

/// A signal that comes so soon after the first one is the same: some supervisors signal a process
/// and then its group. Two presses of Ctrl-C are further apart, mostly. Chosen, not measured.
const SAME_SIGNAL_WINDOW: Duration = Duration::from_millis(500);

/// How long the namenode may take to answer the first greeting: one lost packet is sent again
/// within it (after 1 s, RFC 6298). A wrong address is reported after as long. Chosen, not
/// measured.
const GREETING_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a command may go on after its limit, until its last call has failed, whose error is the
/// better report. Chosen, not measured: calls get the same limit, and end within milliseconds of
/// it.
const GRACE: Duration = Duration::from_secs(1);

/// What a command needs to call the cluster and to print: the address, credentials and output.
#[derive(Debug, Clone)]
pub struct Session {
    /// The namenode's address.
    pub namenode: String,
    /// Whether a flag, the environment or a context names the cluster; else that address is the
    /// default.
    pub is_configured: bool,
    /// The credentials for the cluster.
    pub credentials: Credentials,
    /// The output of results.
    pub output: Output,
    /// Cancelled when the command is to end early; its own long loops look at it.
    pub ended: CancellationToken,
    /// Cancelled when a second signal comes: the command has 2 s more.
    pub hurried: CancellationToken,
    /// How long the whole command may take.
    limit: Option<Duration>,
    /// Set when the command goes on until it is stopped.
    is_endless: Arc<AtomicBool>,
    /// How long it may take to clean up, in milliseconds, if not [`CLEAN_UP`].
    clean_up_millis: Arc<AtomicU64>,
    /// When SIGTERM came. It is set before `ended` is cancelled because of that.
    terminated_at: Arc<OnceLock<tokio::time::Instant>>,
}

/// What ends a command early from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Interruption {
    /// SIGINT, or the terminal that closes.
    ByUser,
    /// SIGTERM.
    Terminated,
}

impl Session {
    /// Returns the way to a cluster that no option names, without a limit of time.
    #[must_use]
    pub fn new(namenode: String, credentials: Credentials, output: Output) -> Self {
        Self {
            namenode,
            is_configured: true,
            credentials,
            output,
            ended: CancellationToken::new(),
            hurried: CancellationToken::new(),
            limit: None,
            is_endless: Arc::default(),
            clean_up_millis: Arc::default(),
            terminated_at: Arc::default(),
        }
    }

    /// Returns the way to one of several namenodes.
    #[must_use]
    pub fn at(&self, namenode: &str) -> Self {
        Self { namenode: namenode.to_owned(), ..self.clone() }
    }

    /// Notes that the command has begun to follow something and goes on until it is stopped: from
    /// now on it succeeds when its `--timeout` passes.
    pub fn goes_on(&self) {
        self.is_endless.store(true, Ordering::Relaxed);
    }

    /// Allows the command so much time to clean up when it is interrupted.
    pub fn clean_up_within(&self, limit: Duration) {
        let millis = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        self.clean_up_millis.store(millis, Ordering::Relaxed);
    }

    /// Returns when SIGTERM has ended the command, if it has; `ended` is cancelled then, or is
    /// about to be. A second handler of that signal would not do: this one may run before the
    /// other has it.
    #[must_use]
    pub fn terminated_at(&self) -> Option<tokio::time::Instant> {
        self.terminated_at.get().copied()
    }

    /// Returns after how long the command is ended, from `--timeout`.
    #[must_use]
    pub const fn limit(&self) -> Option<Duration> {
        self.limit
    }

    /// Connects to the namenode. Where it does not listen, this fails at once: only for calls that
    /// have begun is it worth waiting for a namenode that restarts.
    ///
    /// # Errors
    /// Unavailable (4) when the namenode does not answer: start it, or correct the address. The
    /// failure has the next command.
    pub async fn client(&self) -> Result<Client, Failure> {
        self.client_of(ClientConfig::default()).await
    }

    /// Connects as [`Self::client`] does, with another configuration.
    ///
    /// # Errors
    /// As [`Session::client`].
    pub async fn client_of(&self, config: ClientConfig) -> Result<Client, Failure> {
        let deadline = tokio::time::Instant::now() + GREETING_TIMEOUT;
        if let Err(error) = self.greet(deadline).await {
            return Err(match diagnosed(&self.namenode, error, deadline).await {
                error @ (CallError::Refused(_)
                | CallError::Credentials { .. }
                | CallError::WrongAddress { .. }
                | CallError::OtherCluster { .. }) => refused::call(&error),
                error => refused::unreachable(&self.namenode, &error),
            });
        }
        let mut config = config;
        config.credentials = self.credentials.clone();
        // A time above the default is waited in full. A call that takes longer than a shorter one
        // fails, and names what it waited for.
        config.call_deadline = self.limit.unwrap_or(config.call_deadline);
        Client::connect(&self.namenode, config)
            .await
            .map_err(|error| refused::client(&error, &self.namenode))
    }

    /// Greets the namenode, or each member of a group.
    async fn greet(&self, deadline: tokio::time::Instant) -> Result<(), CallError> {
        if !self.namenode.contains(',') {
            let hello = Hello { role: Role::Client, cluster: None, node: None, token: None };
            return self.knock(hello, deadline).await.map(|_| ());
        }
        let credentials = self.credentials.clone();
        let connection = ConnectionOptions { credentials, ..ConnectionOptions::default() };
        let pool = Pool::new(PoolOptions { connection, ..PoolOptions::default() });
        Namenodes::new(&self.namenode).greet(&pool, deadline).await.map(|_| ())
    }

    /// Connects to the namenode once, to the first of a list.
    ///
    /// # Errors
    /// [`CallError`]: the address is wrong or no namenode runs there; [`unreachable`] has the next
    /// step.
    ///
    /// [`unreachable`]: crate::refused::unreachable
    pub async fn knock(
        &self,
        hello: Hello,
        deadline: tokio::time::Instant,
    ) -> Result<(Connection, HelloReply), CallError> {
        let credentials = self.credentials.clone();
        let options = ConnectionOptions { credentials, ..ConnectionOptions::default() };
        Connection::connect_with(first_address(&self.namenode), hello, deadline, &options).await
    }

    /// Sends the namenode one request.
    ///
    /// # Errors
    /// The refusal with its exit code, or unavailable (4): end the command with it. The failure has
    /// the next command if there is one.
    pub async fn call(&self, client: &Client, request: Request) -> Result<Reply, Failure> {
        client.request(request).await.map_err(|error| refused::client(&error, &self.namenode))
    }
}

/// Builds the runtime of a process and runs one future on it to its end.
///
/// # Errors
/// The future's failure, or that the operating system gives no threads: end the process with it.
pub fn block_on<F>(work: F) -> Result<(), Failure>
where
    F: Future<Output = Result<(), Failure>>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::caused(Exit::Failure, FailureKind::Runtime, error))?;
    let result = runtime.block_on(work);
    // A read of stdin whose result is no longer needed must not keep the process.
    runtime.shutdown_timeout(Duration::from_millis(100));
    result
}

/// Runs one command until it ends, its `--timeout` passes or the user interrupts it.
///
/// # Errors
/// The command's failure; deadline (124), unless it follows something; interrupted (130). End the
/// process with it.
pub fn run<F, W>(global: &Global, command: F) -> Result<(), Failure>
where
    F: FnOnce(Session) -> W,
    W: Future<Output = Result<(), Failure>>,
{
    logs::start(global, LogSource::Tool, LogFormat::Text)?;
    let _export = otlp::start(global)?;
    let session = Session {
        namenode: global.namenode.clone(),
        is_configured: global.origin != AddressOrigin::Default,
        credentials: credentials::shown(global)?,
        output: Output { is_json: global.json, is_quiet: global.quiet, task: None },
        ended: CancellationToken::new(),
        hurried: CancellationToken::new(),
        limit: global.timeout.map(|span| span.0),
        is_endless: Arc::default(),
        clean_up_millis: Arc::default(),
        terminated_at: Arc::default(),
    };
    let clean_up_millis = Arc::clone(&session.clean_up_millis);
    let terminated_at = Arc::clone(&session.terminated_at);
    let (ended, hurried, limit) = (session.ended.clone(), session.hurried.clone(), session.limit);
    let (namenode, is_endless) = (session.namenode.clone(), Arc::clone(&session.is_endless));
    let result = block_on(async move {
        let mut interruptions = Interruptions::new();
        let mut work = std::pin::pin!(command(session));
        let early = tokio::select! {
            result = &mut work => return result,
            interruption = interruptions.next() => {
                if interruption == Interruption::Terminated {
                    let _ = terminated_at.set(tokio::time::Instant::now());
                }
                Err(interrupted_failure())
            }
            () = passed(limit) => match is_endless.load(Ordering::Relaxed) {
                true => Ok(()),
                // A call that has begun a moment later has as much time, and names the reason.
                false => match tokio::time::timeout(GRACE, &mut work).await {
                    Ok(result) => return result,
                    Err(_) => Err(late(limit.unwrap_or_default())),
                },
            },
        };
        ended.cancel();
        let clean_up = match clean_up_millis.load(Ordering::Relaxed) {
            0 => CLEAN_UP,
            millis => Duration::from_millis(millis),
        };
        let cleaned = async {
            tokio::select! {
                result = &mut work => return Some(result),
                () = interruptions.again() => hurried.cancel(),
            }
            tokio::time::timeout(CLEAN_UP, &mut work).await.ok()
        };
        let cleaned = tokio::time::timeout(clean_up, cleaned).await.ok().flatten();
        early.map_err(|early| explained(early, cleaned.and_then(Result::err), &namenode))
    });
    result.map_err(|failure| global.with_origin(failure))
}

/// Adds what the command waited for when its time passed, and its own next step, where it ended
/// with one.
fn explained(early: Failure, ended: Option<Failure>, namenode: &str) -> Failure {
    if early.exit != Exit::Deadline {
        return early;
    }
    // A call that failed meanwhile has a next step for its own cause.
    let next = ended.as_ref().filter(|it| it.is_silent()).and_then(|it| it.next.clone());
    let tried = ended.and_then(|ended| {
        let has_passed = ended.exit == Exit::Deadline;
        ended.tried.or_else(|| has_passed.then_some(ended.cause))
    });
    let waited = || format!("waited for the cluster at {namenode}");
    let tried = tried.or_else(|| (!namenode.is_empty()).then(waited));
    let early = match tried {
        Some(tried) => early.tried(tried),
        None => early,
    };
    match next {
        Some(next) => early.instead(next),
        None => early,
    }
}

/// Runs work that computes or waits on its own thread, until it ends or the user interrupts it.
/// Inside Python, whose handler only takes note of SIGINT, it could not be interrupted otherwise.
///
/// # Errors
/// The work's failure; interrupted (130). End the process with it.
pub fn run_blocking(
    work: impl FnOnce() -> Result<(), Failure> + Send + 'static,
) -> Result<(), Failure> {
    block_on(async {
        let ended = |ended: Result<_, tokio::task::JoinError>| match ended {
            Ok(result) => result,
            Err(error) => Err(Failure::caused(Exit::Failure, FailureKind::Bug, error)),
        };
        let mut interruptions = Interruptions::new();
        tokio::select! {
            result = tokio::task::spawn_blocking(work) => ended(result),
            _ = interruptions.next() => Err(interrupted_failure()),
        }
    })
}

fn interrupted_failure() -> Failure {
    Failure::new(Exit::Interrupted, FailureKind::Interrupted, "interrupted")
}

async fn passed(limit: Option<Duration>) {
    match limit {
        Some(limit) => tokio::time::sleep(limit).await,
        None => pending().await,
    }
}

fn late(limit: Duration) -> Failure {
    let cause = format!("not done within {}", crate::units::duration(limit));
    Failure::new(Exit::Deadline, FailureKind::Deadline, cause).next(format_args!(
        "the same with --timeout {}s, or sanderling doctor",
        10 * limit.as_secs().max(1)
    ))
}

/// The signals that end a command. A stream that is absent shows none.
struct Interruptions {
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
    hangup: Option<Signal>,
}

impl Interruptions {
    /// Takes SIGINT, SIGTERM and SIGHUP over. Called before the work begins: what it does first may
    /// take long, and a signal would end it without a clean-up.
    fn new() -> Self {
        let streams = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
        let (interrupt, terminate) = match streams {
            (Ok(interrupt), Ok(terminate)) => (Some(interrupt), Some(terminate)),
            // Without handlers the signals end the process, which is as good.
            _ => (None, None),
        };
        // A process that `nohup` has started goes on when its terminal closes.
        let hangup = (!ignores_hangup()).then(|| signal(SignalKind::hangup()).ok()).flatten();
        Self { interrupt, terminate, hangup }
    }

    /// Waits for a signal.
    async fn next(&mut self) -> Interruption {
        tokio::select! {
            () = received(&mut self.interrupt) => Interruption::ByUser,
            () = received(&mut self.terminate) => Interruption::Terminated,
            () = received(&mut self.hangup) => Interruption::ByUser,
        }
    }

    /// Waits for another signal than the one that has just come.
    async fn again(&mut self) {
        let first = tokio::time::Instant::now();
        loop {
            self.next().await;
            if first.elapsed() > SAME_SIGNAL_WINDOW {
                return;
            }
        }
    }
}

async fn received(signals: &mut Option<Signal>) {
    match signals {
        Some(signals) => {
            signals.recv().await;
        }
        None => pending().await,
    }
}

/// Returns whether this process ignores SIGHUP, by the mask of ignored signals that Linux shows
/// (proc(5), `SigIgn`), whose lowest bit is that of SIGHUP.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask & 1 == 1))
}
