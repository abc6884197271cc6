//! Threads that begin each phase together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sanderling_client::{Client, ClientConfig};
use sanderling_transport::Credentials;
use tokio::sync::{mpsc, watch};

use super::cpu::{Cpu, Servers, Usage};
use super::error::BenchError;
use super::kinds::RunFuture;
use super::plan::{BenchPlan, Switch};
use super::scenario::{Counter, Measured, OperationBudget, Scenario, run};
use super::work::BenchThread;

/// How long threads may take to end when one of them failed: each ends after the operation in
/// flight. The command goes on without those that are late. Chosen, not measured.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// A message from a thread.
enum ThreadMessage {
    /// It is ready for the next phase.
    Ready,
    /// It has ended.
    Ended(Box<Result<Measured, BenchError>>),
}

/// What a thread is given.
#[derive(Debug)]
pub(super) struct Thread {
    plan: Arc<BenchPlan>,
    number: u32,
    source: ClientSource,
    next: Counter,
    stop: Arc<AtomicBool>,
    messages: mpsc::Sender<ThreadMessage>,
    phase: watch::Receiver<u32>,
}

/// Where a thread's client comes from.
#[derive(Debug, Clone)]
pub(super) enum ClientSource {
    /// All threads use this one.
    Shared(Client),
    /// Each connects to this namenode.
    Own(String, Credentials),
}

/// Returns how clients are to behave.
pub(super) fn config(plan: &BenchPlan) -> ClientConfig {
    ClientConfig {
        write_window_blocks: plan.window() as usize,
        verify_checksums: plan.args.checksums == Switch::On,
        same_host: !plan.args.no_same_host,
        ..ClientConfig::default()
    }
}

/// Runs a whole thread: fill, warm up, measure.
pub(super) async fn measure<S: Scenario>(mut thread: Thread) -> Result<Measured, BenchError> {
    let plan = Arc::clone(&thread.plan);
    let client = match &thread.source {
        ClientSource::Shared(client) => client.clone(),
        ClientSource::Own(namenode, credentials) => {
            let credentials = credentials.clone();
            Client::connect(namenode, ClientConfig { credentials, ..config(&plan) }).await?
        }
    };
    let directory = plan.own.join(&format!("thread-{}", thread.number))?;
    let load = Arc::clone(&plan.load);
    let work = BenchThread { client: client.clone(), directory, load, thread: thread.number };
    let scenario = S::prepare(work).await?;
    let mut workers = Vec::new();
    for _ in 0..thread.plan.load.workers {
        workers.push(scenario.state().await?);
    }
    thread.ready().await?;
    let warmup = thread.plan.args.warmup;
    let (workers, _) = run(&scenario, workers, &thread.budget(warmup, None)).await?;
    thread.ready().await?;
    let until = thread.plan.args.duration.map(|span| Instant::now() + span.0);
    let end = thread.plan.load.operations;
    let before = client.metrics();
    let (workers, mut measured) = run(&scenario, workers, &thread.budget(end, until)).await?;
    for worker in workers {
        scenario.finish(worker).await?;
    }
    measured.span.1 = Instant::now();
    measured.before = before;
    measured.metrics = client.metrics();
    Ok(measured)
}

impl Thread {
    fn budget(&self, end: u64, until: Option<Instant>) -> OperationBudget<'_> {
        OperationBudget { next: &self.next, end, until, stop: &self.stop }
    }

    /// Waits until all threads are as far as this one.
    async fn ready(&mut self) -> Result<(), BenchError> {
        self.messages.send(ThreadMessage::Ready).await.map_err(|_| BenchError::Stopped)?;
        self.phase.changed().await.map_err(|_| BenchError::Stopped)
    }
}

/// All threads of a run.
#[derive(Debug)]
pub(super) struct Threads {
    count: u32,
    next: Vec<Counter>,
    stop: Arc<AtomicBool>,
    messages: mpsc::Receiver<ThreadMessage>,
    phase: Option<watch::Sender<u32>>,
}

impl Threads {
    /// Starts them. They fill the store at once.
    pub(super) fn start(
        plan: &Arc<BenchPlan>,
        source: &ClientSource,
        way: fn(Thread) -> RunFuture,
    ) -> Result<Self, BenchError> {
        let count = plan.args.threads;
        let (phase, phases) = watch::channel(0);
        let (sender, messages) = mpsc::channel(count as usize);
        let next = (0..count).map(|_| Counter::default()).collect();
        let threads = Self { count, next, stop: Arc::default(), messages, phase: Some(phase) };
        for (number, next) in (0..).zip(&threads.next) {
            let thread = Thread {
                plan: Arc::clone(plan),
                number,
                source: source.clone(),
                next: Arc::clone(next),
                stop: Arc::clone(&threads.stop),
                messages: sender.clone(),
                phase: phases.clone(),
            };
            spawn(thread, sender.clone(), way)?;
        }
        Ok(threads)
    }

    /// Returns the counters of operations begun.
    pub(super) fn progress(&self) -> Vec<Counter> {
        self.next.clone()
    }

    /// Leads the threads through their phases.
    ///
    /// # Errors
    /// The first operation that failed.
    pub(super) async fn lead(
        &mut self,
        servers: &Servers,
    ) -> Result<(Vec<Measured>, Cpu), BenchError> {
        self.all_ready().await?;
        self.next_phase();
        self.all_ready().await?;
        let before = Usage::read(servers).await;
        self.next_phase();
        let mut all = Vec::new();
        while all.len() < self.count as usize {
            match self.messages.recv().await {
                Some(ThreadMessage::Ended(measured)) => all.push((*measured)?),
                Some(ThreadMessage::Ready) => {}
                None => return Err(BenchError::Stopped),
            }
        }
        let after = Usage::read(servers).await;
        Ok((all, after.since(&before)))
    }

    fn next_phase(&self) {
        if let Some(phase) = &self.phase {
            phase.send_modify(|phase| *phase += 1);
        }
    }

    async fn all_ready(&mut self) -> Result<(), BenchError> {
        for _ in 0..self.count {
            match self.messages.recv().await {
                Some(ThreadMessage::Ready) => {}
                Some(ThreadMessage::Ended(ended)) => {
                    return Err(ended.err().unwrap_or(BenchError::Stopped));
                }
                None => return Err(BenchError::Stopped),
            }
        }
        Ok(())
    }

    /// Makes those that still run end, so that what they wrote can be deleted.
    pub(super) async fn end(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.phase = None;
        let all = async { while self.messages.recv().await.is_some() {} };
        let _ = tokio::time::timeout(END_TIMEOUT, all).await;
    }
}

/// Starts one thread: of the operating system if its client is its own, else a task.
fn spawn(
    thread: Thread,
    sender: mpsc::Sender<ThreadMessage>,
    way: fn(Thread) -> RunFuture,
) -> Result<(), BenchError> {
    if matches!(thread.source, ClientSource::Shared(_)) {
        tokio::spawn(async move {
            let ended = way(thread).await;
            let _ = sender.send(ThreadMessage::Ended(Box::new(ended))).await;
        });
        return Ok(());
    }
    let name = format!("bench-{}", thread.number);
    std::thread::Builder::new().name(name).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let ended = match runtime {
            Ok(runtime) => runtime.block_on(way(thread)),
            Err(error) => Err(error.into()),
        };
        let _ = sender.blocking_send(ThreadMessage::Ended(Box::new(ended)));
    })?;
    Ok(())
}

/// Returns how many operations were begun.
pub(super) fn begun(counters: &[Counter]) -> u64 {
    counters.iter().map(|counter: &Arc<AtomicU64>| counter.load(Ordering::Relaxed)).sum()
}
