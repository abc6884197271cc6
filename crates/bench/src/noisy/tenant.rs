//! The tenant: small operations one after the other, with a pause, on a thread of its own.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sanderling_client::{Client, ClientConfig, ClientError, PutOptions};
use sanderling_protocol::Path;
use sanderling_protocol::limits::INLINE_BYTES_MAX;
use sanderling_protocol::message::ObjectKind;
use tokio::sync::{mpsc, oneshot};

use super::sample::{Operation, OperationError, Sample};
use super::setting::{self, Setting};
use crate::error::BenchError;

/// Time between the end of one operation and the begin of the next one: some hundred operations a
/// second, which load nothing. Chosen, not measured.
pub(super) const PAUSE: Duration = Duration::from_millis(2);

/// Bytes of the objects that are got and put: one unit of allocation, so an answer costs a round
/// trip and hardly any transfer. Chosen, not measured.
const OBJECT_BYTES: usize = 4 << 10;

/// Names that are put, in turn, so that a put replaces no object whose blocks are still being
/// dropped. Chosen, not measured.
const NAMES: u64 = 16;

/// Answers within [`QUIET_MAX`], one after the other, after which the cluster is called quiet. One
/// quick answer may come between two slow ones. Chosen, not measured.
const QUIET_ANSWERS: u32 = 20;

/// Longest such answer: many times what a get takes on an idle cluster (p99 below 1 ms in
/// docs/BENCH.md). Chosen, not measured.
const QUIET_MAX: Duration = Duration::from_millis(20);

/// Longest wait for quiet: work that a hog left behind must not count for the next one. After it
/// the phase begins all the same, with a note. Chosen, not measured.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(60);

/// A request to the thread.
enum Order {
    Measure(Duration, oneshot::Sender<Sample>),
    Settle(oneshot::Sender<Vec<String>>),
}

/// The tenant.
#[derive(Debug)]
pub(super) struct TenantThread {
    orders: mpsc::Sender<Order>,
    object_bytes: usize,
    thread: JoinHandle<Result<(), ClientError>>,
}

impl TenantThread {
    /// Starts the thread, which connects and makes the objects.
    ///
    /// # Errors
    /// The first operation that failed.
    pub(super) async fn start(setting: &Arc<Setting>) -> Result<Self, BenchError> {
        let (orders, received) = mpsc::channel(1);
        let (ready, is_ready) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let setting = Arc::clone(setting);
        let thread = std::thread::Builder::new()
            .name("tenant".to_owned())
            .spawn(move || runtime.block_on(serve(&setting, ready, received)))?;
        let object_bytes = is_ready.await.map_err(|_| BenchError::Stopped)??;
        Ok(Self { orders, object_bytes, thread })
    }

    /// Returns how many bytes each object has.
    pub(super) const fn object_bytes(&self) -> usize {
        self.object_bytes
    }

    /// Measures for so long, and until every operation was done once, or until the command is to
    /// end.
    pub(super) async fn measure(&self, seconds: Duration) -> Sample {
        let (reply, sample) = oneshot::channel();
        // Only a bug ends the thread before its orders do.
        let _ = self.orders.send(Order::Measure(seconds, reply)).await;
        sample.await.unwrap_or_else(|_| Sample::new())
    }

    /// Waits until answers come soon again. Returns what is left of the phase before.
    pub(super) async fn settle(&self) -> Vec<String> {
        let (reply, settled) = oneshot::channel();
        let _ = self.orders.send(Order::Settle(reply)).await;
        settled.await.unwrap_or_default()
    }

    /// Deletes what it made and ends the thread.
    ///
    /// # Errors
    /// What may be left behind is in the tenant's directory.
    pub(super) async fn end(self) -> Result<(), ClientError> {
        let Self { orders, thread, .. } = self;
        drop(orders);
        let ended = tokio::task::spawn_blocking(|| thread.join()).await;
        ended.ok().and_then(Result::ok).unwrap_or(Ok(()))
    }
}

async fn serve(
    setting: &Setting,
    ready: oneshot::Sender<Result<usize, BenchError>>,
    mut orders: mpsc::Receiver<Order>,
) -> Result<(), ClientError> {
    let objects = match Objects::make(setting).await {
        Ok(objects) => objects,
        Err(error) => {
            let _ = ready.send(Err(error));
            return Ok(());
        }
    };
    let _ = ready.send(Ok(objects.bytes.len()));
    while let Some(order) = orders.recv().await {
        match order {
            Order::Measure(seconds, reply) => {
                let _ = reply.send(objects.measure(setting, seconds).await);
            }
            Order::Settle(reply) => {
                let _ = reply.send(objects.settle(setting).await);
            }
        }
    }
    setting::delete(&objects.client, &setting.own_dir).await
}

/// The tenant's client and objects.
struct Objects {
    client: Client,
    read: Path,
    written: Vec<Path>,
    bytes: Bytes,
}

impl Objects {
    async fn make(setting: &Setting) -> Result<Self, BenchError> {
        let credentials = setting.credentials.clone();
        let config = ClientConfig { credentials, ..ClientConfig::default() };
        let client = Client::connect(&setting.namenode, config).await?;
        let kind = ObjectKind::Directory;
        client.make_directory(&setting.own_dir, kind, true, true).await?;
        // A cluster whose nodes the token may not list has some.
        let is_empty = client.nodes(false).await.is_ok_and(|nodes| nodes.is_empty());
        let bytes = Bytes::from(vec![0x5a; if is_empty { INLINE_BYTES_MAX } else { OBJECT_BYTES }]);
        let read = setting.own_dir.join("read")?;
        client.put(&read, bytes.clone(), &PutOptions::replacing()).await?;
        let written = (0..NAMES).map(|at| setting.own_dir.join(&format!("written-{at}")));
        let written = written.collect::<Result<_, _>>()?;
        Ok(Self { client, read, written, bytes })
    }

    async fn measure(&self, setting: &Setting, seconds: Duration) -> Sample {
        let mut sample = Sample::new();
        let began = Instant::now();
        let mut turns = (0..).flat_map(|turn| Operation::ALL.map(|operation| (turn, operation)));
        while !setting.ended.is_cancelled() && (began.elapsed() < seconds || !sample.is_whole()) {
            let (turn, operation) = turns.next().expect("turns do not end");
            let before = Instant::now();
            let error = self.once(operation, turn).await.err();
            sample.add(operation, before.elapsed(), error.as_ref());
            tokio::time::sleep(PAUSE).await;
        }
        sample.elapsed = began.elapsed();
        sample
    }

    async fn once(&self, operation: Operation, turn: u64) -> Result<(), OperationError> {
        match operation {
            Operation::Get => match self.client.get(&self.read).await? {
                bytes if bytes == self.bytes => {}
                bytes => return Err(OperationError::OtherBytes { bytes: bytes.len() }),
            },
            Operation::Put => {
                let path = &self.written[(turn % NAMES) as usize];
                let options = PutOptions::replacing();
                self.client.put(path, self.bytes.clone(), &options).await?;
            }
            Operation::Stat => {
                self.client.stat(&self.read).await?;
            }
        }
        Ok(())
    }

    /// Waits for quiet. What was lost meanwhile is put again, so that one hog's damage is not
    /// counted for the next one.
    async fn settle(&self, setting: &Setting) -> Vec<String> {
        let mut remarks = Vec::new();
        let until = Instant::now() + SETTLE_TIMEOUT;
        let mut quiet = 0;
        while quiet < QUIET_ANSWERS && !setting.ended.is_cancelled() {
            if Instant::now() >= until {
                remarks.push(format!("not quiet {} s later", SETTLE_TIMEOUT.as_secs()));
                break;
            }
            let began = Instant::now();
            let got = self.once(Operation::Get, 0).await;
            quiet = if got.is_ok() && began.elapsed() < QUIET_MAX { quiet + 1 } else { 0 };
            if let Err(error) = got {
                if remarks.is_empty() {
                    remarks.push(format!("the tenant's object is put again: {error}"));
                }
                let options = PutOptions::replacing();
                // Tried again with the next get that fails.
                let _ = self.client.put(&self.read, self.bytes.clone(), &options).await;
            }
            tokio::time::sleep(PAUSE).await;
        }
        remarks
    }
}
