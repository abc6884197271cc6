//! Applications that use the fleet while it is broken.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sanderling_client::{Client, ClientError, PutOptions};
use sanderling_protocol::Refusal;
use sanderling_protocol::refusal::ByteRange;
use sanderling_transport::CallError;
use tokio::sync::RwLock;
use tokio::task::JoinSet;

use crate::cluster::path;
use crate::lots::Lots;
use crate::model::{BYTES_MAX, Model, Promise, State, Version};

/// The deadline of every call of these clients.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// How much later than its deadline a call may end: a machine with more to do than it can.
const SLACK: Duration = Duration::from_secs(5);

/// Steps of a whole put, each with its own deadline: create, four blocks, seal, abort.
const PUT_STEPS: u32 = 7;

/// Names that a worker uses again and again.
const SLOTS: u64 = 5;

/// Files with names of their own that a worker keeps.
const KEPT_MAX: usize = 4;

/// What all workers share.
pub(crate) struct Shared {
    pub(crate) model: Model,
    /// Held for reading during each piece of work: a holder for writing has peace.
    pub(crate) gate: RwLock<()>,
    /// Whether a judge waits for peace.
    pub(crate) is_pausing: AtomicBool,
    pub(crate) stop: AtomicBool,
}

/// One application.
pub(crate) struct Worker {
    pub(crate) client: Client,
    pub(crate) shared: Arc<Shared>,
    pub(crate) directory: String,
    pub(crate) lots: Lots,
    pub(crate) kept: VecDeque<String>,
    pub(crate) counter: u64,
}

impl Shared {
    pub(crate) fn new() -> Self {
        let (is_pausing, stop) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { model: Model::new(), gate: RwLock::new(()), is_pausing, stop }
    }

    /// Measures how late this process gets its time, until the end.
    pub(crate) async fn measure_lag(self: Arc<Self>) {
        const EVERY: Duration = Duration::from_millis(100);
        while !self.stop.load(Ordering::Relaxed) {
            let began = Instant::now();
            tokio::time::sleep(EVERY).await;
            self.model.lagged(began.elapsed().saturating_sub(EVERY));
        }
    }
}

/// Starts the workers and what measures the machine.
pub(crate) fn start(shared: &Arc<Shared>, workers: Vec<Worker>) -> JoinSet<()> {
    let mut all = JoinSet::new();
    all.spawn(Arc::clone(shared).measure_lag());
    workers.into_iter().for_each(|worker| drop(all.spawn(worker.run())));
    all
}

impl Worker {
    async fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        while !shared.stop.load(Ordering::Relaxed) {
            let at_work = shared.gate.read().await;
            self.next().await;
            drop(at_work);
            tokio::time::sleep(Duration::from_millis(self.lots.below(15))).await;
        }
    }

    async fn next(&mut self) {
        match self.lots.below(100) {
            0..=15 => self.put_new().await,
            16..=37 => self.replace().await,
            38..=49 => self.append().await,
            50..=57 => self.rename().await,
            58..=67 => self.delete_slot().await,
            68..=82 => self.read_whole().await,
            83..=95 => self.read_ranges().await,
            _ => self.hold().await,
        }
    }

    fn model(&self) -> &Model {
        &self.shared.model
    }

    fn slot(&mut self) -> String {
        format!("{}/s{}", self.directory, self.lots.below(SLOTS))
    }

    fn unique(&mut self) -> String {
        self.counter += 1;
        format!("{}/u{}", self.directory, self.counter)
    }

    fn size(&mut self) -> usize {
        let bound = *self.lots.pick(&[500, 40_000, 40_000, 300_000, BYTES_MAX as u64]);
        usize::try_from(self.lots.below(bound)).expect("small") + 1
    }

    fn options(&mut self, base: PutOptions) -> PutOptions {
        let class = *self.lots.pick(&["dram", "dram", "disk"]);
        PutOptions { class: class.parse().expect("a class"), parents: true, ..base }
    }

    /// Makes a call of so many steps, each of which has the client's deadline.
    async fn call<T>(
        &self,
        kind: &'static str,
        steps: u32,
        call: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        timed(&self.shared, kind, steps, call).await
    }

    /// Stores a file under a name that nothing ever had.
    async fn put_new(&mut self) {
        let (name, seed, bytes) = (self.unique(), self.lots.next(), self.size());
        let options = self.options(PutOptions::default());
        let may = Version { seed, least: 0, most: bytes };
        self.model().begin(&name, State::Holds(may));
        let (to, content) = (path(&name), self.model().content(seed, 0, bytes));
        let put = self.client.put(&to, content, &options);
        match self.call("put", PUT_STEPS, put).await {
            Ok(_) => {
                let state = State::Holds(Version::whole(seed, bytes));
                self.model().acknowledged(&name, vec![state]);
                self.model().count_bytes(bytes, 0);
                self.kept.push_back(name);
            }
            Err(ClientError::Refused(Refusal::Exists { .. })) => {
                let what = format!("{name} exists, and no call but this may have made it");
                self.model().violate(Promise::Once, what);
            }
            Err(_) => self.kept.push_back(name),
        }
        while self.kept.len() > KEPT_MAX {
            let name = self.kept.pop_front().expect("it is not empty");
            self.delete(&name).await;
        }
    }

    /// Replaces what a name holds, at once and as a whole.
    async fn replace(&mut self) {
        let (name, seed, bytes) = (self.slot(), self.lots.next(), self.size());
        let options = self.options(PutOptions::replacing());
        let state = State::Holds(Version::whole(seed, bytes));
        self.model().begin(&name, state.clone());
        let (to, content) = (path(&name), self.model().content(seed, 0, bytes));
        let put = self.client.put(&to, content, &options);
        if self.call("put with replace", PUT_STEPS, put).await.is_ok() {
            self.model().acknowledged(&name, vec![state]);
            self.model().count_bytes(bytes, 0);
        }
    }

    /// Appends acknowledged parts to a file.
    async fn append(&mut self) {
        let name = self.slot();
        let [State::Holds(version)] = self.model().may(&name)[..] else { return };
        let to = path(&name);
        let writer = match self.call("append", 1, self.client.append(&to)).await {
            Ok(writer) => writer,
            Err(ClientError::Refused(Refusal::NotFound { .. })) => {
                self.model().violate(Promise::Kept, format!("{name} is not there to append to"));
                return;
            }
            Err(_) => return,
        };
        let at = usize::try_from(writer.position()).expect("short");
        if at < version.least || at > version.most {
            let promise = if at < version.least { Promise::Kept } else { Promise::Once };
            self.model().violate(promise, format!("{name} has {at} bytes, not {version:?}"));
            return;
        }
        let parts = self.lots.below(3) + 1;
        self.write_parts(&name, writer, version, parts, false).await;
    }

    /// Writes parts and flushes each; closes at the end.
    async fn write_parts(
        &mut self,
        name: &str,
        mut writer: sanderling_client::Writer,
        mut version: Version,
        parts: u64,
        is_new: bool,
    ) {
        let mut at = usize::try_from(writer.position()).expect("short");
        for _ in 0..parts {
            let bytes = usize::try_from(self.lots.below(60_000)).expect("small") + 1;
            if at + bytes > BYTES_MAX {
                break;
            }
            let part = self.model().content(version.seed, at, bytes);
            let sent = Version { most: at + bytes, ..version };
            self.model().begin(name, State::Holds(sent));
            let write = async {
                writer.write_bytes(part).await?;
                writer.flush().await
            };
            if self.call("flush", 3, write).await.is_err() {
                self.given_up(name, is_new);
                return;
            }
            at += bytes;
            version = Version::whole(version.seed, at);
            self.model().acknowledged(name, vec![State::Holds(version)]);
            self.model().count_bytes(bytes, 0);
            let pause = self.lots.below(40);
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        // Nothing new is sent by this: the file holds what was flushed.
        if self.call("close", 3, writer.close()).await.is_err() {
            self.given_up(name, is_new);
        }
    }

    /// A writer failed. One of a new file takes the file along.
    fn given_up(&self, name: &str, is_new: bool) {
        if is_new {
            self.model().begin(name, State::Absent);
        }
    }

    /// Keeps a writer, and with it a lease, while the fleet is broken.
    async fn hold(&mut self) {
        let (name, seed) = (self.unique(), self.lots.next());
        let options = self.options(PutOptions::default());
        let version = Version { seed, least: 0, most: 0 };
        self.model().begin(&name, State::Holds(version));
        let to = path(&name);
        self.kept.push_back(name.clone());
        let Ok(mut writer) = self.call("create", 1, self.client.create(&to, &options)).await else {
            return;
        };
        self.model().acknowledged(&name, vec![State::Holds(version)]);
        let bytes = 50_000;
        self.model().begin(&name, State::Holds(Version { most: bytes, ..version }));
        let part = self.model().content(seed, 0, bytes);
        let write = async {
            writer.write_bytes(part).await?;
            writer.flush().await
        };
        if self.call("flush", 3, write).await.is_err() {
            self.given_up(&name, true);
            return;
        }
        let version = Version::whole(seed, bytes);
        self.model().acknowledged(&name, vec![State::Holds(version)]);
        let until = Instant::now() + Duration::from_millis(500 + self.lots.below(8000));
        while Instant::now() < until && !self.shared.is_pausing.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.write_parts(&name, writer, version, 1, true).await;
    }

    /// Gives a file another name, over whatever has it.
    async fn rename(&mut self) {
        let (from, to) = (self.slot(), self.slot());
        if from == to {
            return;
        }
        let moved: Vec<State> = self.model().may(&from);
        let is_there = |state: &&State| **state != State::Absent;
        let moved: Vec<State> = moved.iter().filter(is_there).cloned().collect();
        if moved.is_empty() {
            return;
        }
        let from_before = self.model().begin(&from, State::Absent);
        let to_before = self.model().may(&to);
        moved.iter().for_each(|state| drop(self.model().begin(&to, state.clone())));
        let (source, target) = (path(&from), path(&to));
        let rename = self.client.rename(&source, &target, true);
        match self.call("rename", 1, rename).await {
            Ok(()) => {
                self.model().acknowledged(&from, vec![State::Absent]);
                self.model().acknowledged(&to, moved);
            }
            Err(ClientError::Refused(Refusal::NotFound { .. })) => {
                self.must_be_absent(&from, &from_before);
                self.model().refused(&from, from_before);
                self.model().refused(&to, to_before);
            }
            Err(_) => {}
        }
    }

    fn must_be_absent(&self, name: &str, may: &[State]) {
        if !may.contains(&State::Absent) {
            self.model().violate(Promise::Kept, format!("{name} is not there, but {may:?}"));
        }
    }

    async fn delete_slot(&mut self) {
        let name = self.slot();
        self.delete(&name).await;
    }

    async fn delete(&mut self, name: &str) {
        let before = self.model().begin(name, State::Absent);
        let gone = path(name);
        match self.call("delete", 1, self.client.delete(&gone, false)).await {
            Ok(_) => {
                if before == [State::Absent] {
                    let what = format!("{name} was there and could be deleted again");
                    self.model().violate(Promise::StaysDeleted, what);
                }
                self.model().acknowledged(name, vec![State::Absent]);
            }
            Err(ClientError::Refused(Refusal::NotFound { .. })) => {
                self.must_be_absent(name, &before);
                self.model().refused(name, before);
            }
            Err(_) => {}
        }
    }

    /// Any name of any worker.
    fn any_name(&mut self) -> Option<String> {
        let names = self.shared.model.names("/");
        (!names.is_empty()).then(|| self.lots.pick(&names).clone())
    }

    async fn read_whole(&mut self) {
        let Some(name) = self.any_name() else { return };
        let (from, began) = (path(&name), Instant::now());
        let read = self.call("get", 1, self.client.get(&from)).await;
        self.judge(&name, began, 0, true, read);
    }

    async fn read_ranges(&mut self) {
        let Some(name) = self.any_name() else { return };
        let bytes = match self.model().may(&name)[..] {
            [State::Holds(version)] if version.least > 1 => version.least as u64,
            _ => return,
        };
        let ranges: Vec<ByteRange> = (0..=self.lots.below(4))
            .map(|_| {
                let offset = self.lots.below(bytes);
                let length = self.lots.below((bytes - offset).min(70_000)) + 1;
                ByteRange { offset, bytes: length }
            })
            .collect();
        let (from, began) = (path(&name), Instant::now());
        match self.call("get ranges", 1, self.client.get_ranges(&from, &ranges)).await {
            Ok(parts) => {
                for (range, part) in ranges.iter().zip(parts) {
                    if part.len() as u64 != range.bytes {
                        let what = format!("{name}: {} bytes for {range:?}", part.len());
                        self.model().violate(Promise::RightBytes, what);
                        continue;
                    }
                    let offset = usize::try_from(range.offset).expect("short");
                    self.judge(&name, began, offset, false, Ok(part));
                }
            }
            // Something shorter may have taken the name meanwhile.
            Err(ClientError::Refused(Refusal::OutOfRange { .. })) => {
                if self.model().may_since(&name, began).len() < 2 {
                    let what = format!("{name} is shorter than {bytes} bytes");
                    self.model().violate(Promise::Kept, what);
                }
            }
            Err(error) => self.judge(&name, began, 0, false, Err(error)),
        }
    }

    /// Holds a read against what the name may have held meanwhile.
    fn judge(
        &self,
        name: &str,
        began: Instant,
        from: usize,
        is_whole: bool,
        read: Result<Bytes, ClientError>,
    ) {
        let model = self.model();
        let may = model.may_since(name, began);
        match read {
            Ok(bytes) => {
                model.count_bytes(0, bytes.len());
                if model.find(&may, from, &bytes, is_whole).is_none() {
                    let bytes = bytes.len();
                    let what = format!("{name} from {from}: {bytes} other bytes than {may:?}");
                    let promise = match may[..] {
                        [State::Absent] => Promise::StaysDeleted,
                        _ => Promise::RightBytes,
                    };
                    model.violate(promise, what);
                }
            }
            Err(ClientError::DataUnavailable { object, ranges, .. }) => {
                model.seen_lost(name, object, &ranges);
            }
            Err(ClientError::Refused(Refusal::NotFound { .. })) => {
                self.must_be_absent(name, &may);
            }
            Err(_) => {}
        }
    }
}

/// Makes a call and checks its deadline, and that a failure has a reason.
pub(crate) async fn timed<T>(
    shared: &Shared,
    kind: &'static str,
    steps: u32,
    call: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, ClientError> {
    let (began, limit) = (Instant::now(), DEADLINE * steps + SLACK);
    let result = match tokio::time::timeout(limit * 2, call).await {
        Ok(result) => result,
        Err(_) => {
            let (what, waited) = (kind.to_owned(), began.elapsed());
            let last = CallError::TimedOut { address: "the cluster".to_owned(), waited };
            Err(ClientError::TimedOut { what, waited, last })
        }
    };
    let (model, took) = (&shared.model, began.elapsed());
    model.count(kind, took, result.as_ref().err().map(ClientError::name));
    if took > limit + model.lag() {
        let what = format!("{kind} took {took:?}, its limit is {limit:?}");
        model.violate(Promise::Deadline, what);
    }
    if let Err(error) = &result {
        match error {
            ClientError::Refused(Refusal::LeaseEnded { .. }) if !model.renews_in_time() => {}
            ClientError::Refused(Refusal::LeaseEnded { .. }) => {
                model.violate(Promise::Lease, format!("{kind}: {error}"));
            }
            error if !is_expected(error) => {
                model.violate(Promise::Typed, format!("{kind}: {error}"));
            }
            _ => {}
        }
    }
    result
}

/// Returns whether an error is one that a broken fleet may cause.
fn is_expected(error: &ClientError) -> bool {
    match error {
        ClientError::DataUnavailable { .. }
        | ClientError::TimedOut { .. }
        | ClientError::Call { .. }
        | ClientError::WriterClosed { .. } => true,
        ClientError::Refused(refusal) => matches!(
            refusal,
            Refusal::NotFound { .. }
                | Refusal::Exists { .. }
                | Refusal::RetryAfter { .. }
                | Refusal::Undecided { .. }
                | Refusal::SecondWriter { .. }
                | Refusal::ObjectGone { .. }
                | Refusal::OutOfRange { .. }
                | Refusal::OutcomeUnknown { .. }
                | Refusal::Full { .. }
                | Refusal::ReserveKept { .. }
                | Refusal::NodeFull { .. }
                | Refusal::TierFailed { .. }
                | Refusal::JournalFull { .. }
        ),
        ClientError::BadReply { .. } => false,
    }
}
