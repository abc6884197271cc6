//! The hogs: loops that take all they can get, until they are stopped.

mod connections;
mod delete;
mod followers;
mod frames;
mod leases;
mod list;
mod unread_replies;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::setting::{HogKind, Setting};
use super::stage::{HogContext, NotRun, Tally};

/// Threads of a hog: as many as the machine of the published runs has cores (docs/BENCH.md), so
/// that one hog could take all of them.
const THREADS: usize = 2;

/// How much lower the priority of these threads is (a nice value, see nice(2)). On machines of
/// their own they would not take the servers' cores. Chosen, not measured.
const NICE: i32 = 10;

/// How long threads may take to end when a hog has ended; those that are late are left behind. They
/// end at their next await, within milliseconds. Chosen, not measured.
const THREAD_END_TIMEOUT: Duration = Duration::from_secs(5);

/// A hog on threads of its own.
#[derive(Debug)]
pub(super) struct Hog {
    stage: Arc<HogContext>,
    ended: oneshot::Receiver<Result<(), NotRun>>,
}

impl Hog {
    pub(super) fn start(setting: &Arc<Setting>, kind: HogKind) -> Self {
        let stage = Arc::new(HogContext {
            setting: Arc::clone(setting),
            operations: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
            broken: AtomicU64::new(0),
            notes: Mutex::default(),
            begun: CancellationToken::new(),
            stop: setting.ended.child_token(),
        });
        let (end, ended) = oneshot::channel();
        let own = Arc::clone(&stage);
        std::thread::spawn(move || {
            let _ = end.send(on_threads(kind, own));
        });
        Self { stage, ended }
    }

    /// Waits until it has what it needs and takes what it can get.
    ///
    /// # Errors
    /// [`NotRun`] has the reason why it will not.
    pub(super) async fn begun(&mut self, within: Duration) -> Result<(), NotRun> {
        let stage = Arc::clone(&self.stage);
        let not_run = tokio::select! {
            biased;
            () = stage.begun.cancelled() => return Ok(()),
            ended = &mut self.ended => match ended {
                Ok(Err(not_run)) => not_run,
                Ok(Ok(())) | Err(_) => NotRun("it ended before it began".to_owned()),
            },
            () = tokio::time::sleep(within) => {
                NotRun(format!("not prepared within {} s", within.as_secs()))
            }
        };
        stage.stop.cancel();
        Err(not_run)
    }

    pub(super) fn tally(&self) -> Tally {
        let read = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let stage = &self.stage;
        Tally {
            operations: read(&stage.operations),
            refusals: read(&stage.refusals),
            broken: read(&stage.broken),
        }
    }

    /// Stops it and waits until it has deleted what it made. Returns its notes.
    pub(super) async fn end(self, within: Duration) -> Vec<String> {
        let Self { stage, ended } = self;
        stage.stop.cancel();
        match tokio::time::timeout(within, ended).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(NotRun(why)))) => stage.note(format_args!("ended early: {why}")),
            Ok(Err(_)) => stage.note("ended early"),
            Err(_) => stage.note(format_args!("did not end within {} s", within.as_secs())),
        }
        std::mem::take(&mut stage.notes.lock())
    }
}

fn on_threads(kind: HogKind, stage: Arc<HogContext>) -> Result<(), NotRun> {
    let yield_cores = || {
        // On Linux it is this thread's. With the usual one the hogs would take the servers' cores.
        let _ = rustix::process::setpriority_process(None, NICE);
    };
    yield_cores();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("hog")
        .on_thread_start(yield_cores)
        .enable_all()
        .build()?;
    let ended = runtime.block_on(run(kind, stage));
    runtime.shutdown_timeout(THREAD_END_TIMEOUT);
    ended
}

async fn run(kind: HogKind, stage: Arc<HogContext>) -> Result<(), NotRun> {
    match kind {
        HogKind::Usage => frames::usage(stage).await,
        HogKind::ListAttributes => frames::list_attributes(stage).await,
        HogKind::List => list::run(stage).await,
        HogKind::StatFrames => frames::stat(stage).await,
        HogKind::CreateFrames => frames::create(stage).await,
        HogKind::Fsck => frames::fsck(stage).await,
        HogKind::Delete => delete::run(stage).await,
        HogKind::UnreadReplies => unread_replies::run(stage).await,
        HogKind::Leases => leases::run(stage).await,
        HogKind::Followers => followers::run(stage).await,
        HogKind::Connections => connections::run(stage).await,
    }
}
