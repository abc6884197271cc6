//! What callers of a group saw: they read, replace, create and delete names that they share, and
//! write down each call. `scripts/linearizability` judges the file.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sanderling_client::{Client, ClientConfig, ClientError, PutOptions};
use sanderling_protocol::Refusal;
use sanderling_protocol::message::CreateMode;
use serde_json::json;

use crate::cluster::{SOON, block_on_within, path, until};

/// Callers that work at once, each with a client of its own.
const CALLERS: u64 = 4;

/// Names that they share.
const NAMES: u64 = 3;

/// Longest that one round may take on average, however busy the machine is.
const ROUND_MAX: Duration = Duration::from_secs(60);

/// Longest time of a call by its client's configuration.
const CALL_DEADLINE: Duration = Duration::from_secs(10);

/// How much later than its deadline a call may end, on a busy machine.
const LATE_MAX: Duration = Duration::from_secs(5);

/// What callers saw, line by line.
struct History {
    began: Instant,
    file: Mutex<BufWriter<File>>,
    calls: AtomicU64,
    unknown: AtomicU64,
    longest: Mutex<Duration>,
}

impl History {
    fn create(file: &Path) -> Self {
        std::fs::create_dir_all(file.parent().expect("a directory")).expect("made");
        let file = Mutex::new(BufWriter::new(File::create(file).expect("a new file")));
        let (calls, unknown) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { began: Instant::now(), file, calls, unknown, longest: Mutex::default() }
    }

    fn write(&self, line: &serde_json::Value) {
        let mut file = self.file.lock().expect("no thread panicked");
        writeln!(file, "{line}").expect("written");
    }

    fn nanos(&self, at: Instant) -> u64 {
        u64::try_from((at - self.began).as_nanos()).expect("a test lasts no centuries")
    }
}

/// What came of a call: of a read, what was there; of a change, whether it was made.
enum Outcome {
    Value(Option<String>),
    Made(bool),
    /// It ended at its deadline.
    Unknown,
}

/// Callers that work until they are stopped.
pub(crate) struct Callers {
    history: Arc<History>,
    is_stopped: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    file: PathBuf,
}

impl Callers {
    /// Starts callers of a group for so many rounds of faults at most.
    pub(crate) fn start(addresses: &[String], rounds: u64, seed: u64, file: &str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/histories");
        let file = root.join(file);
        let history = Arc::new(History::create(&file));
        let is_stopped = Arc::new(AtomicBool::new(false));
        let limit = ROUND_MAX * u32::try_from(rounds).expect("rounds") + ROUND_MAX;
        let start = |number| {
            let (addresses, history) = (addresses.join(","), Arc::clone(&history));
            let work = caller(number, seed, addresses, history, Arc::clone(&is_stopped));
            std::thread::spawn(move || block_on_within(limit, work))
        };
        let threads = (0..CALLERS).map(start).collect();
        Self { history, is_stopped, threads, file }
    }

    /// Waits until they have made ten more calls: callers get on between two faults.
    pub(crate) fn get_on(&self) {
        let goal = self.history.calls.load(Ordering::Relaxed) + 10;
        until("calls succeed after a fault", SOON, || {
            assert!(self.threads.iter().all(|it| !it.is_finished()), "a caller has failed");
            (self.history.calls.load(Ordering::Relaxed) >= goal).then_some(())
        });
    }

    /// Returns how long they have worked.
    pub(crate) fn elapsed(&self) -> Duration {
        self.history.began.elapsed()
    }

    /// Ends them, and returns what they saw, in words.
    pub(crate) fn stop(self) -> String {
        self.is_stopped.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("no caller failed");
        }
        self.history.file.lock().expect("no thread panicked").flush().expect("written");
        format!(
            "{} calls, {} without an answer, the longest {:?}; history in {}",
            self.history.calls.load(Ordering::Relaxed),
            self.history.unknown.load(Ordering::Relaxed),
            *self.history.longest.lock().expect("no thread panicked"),
            self.file.display(),
        )
    }
}

async fn caller(
    number: u64,
    seed: u64,
    addresses: String,
    history: Arc<History>,
    is_stopped: Arc<AtomicBool>,
) {
    let config = ClientConfig { call_deadline: CALL_DEADLINE, ..ClientConfig::default() };
    let client = Client::connect(&addresses, config).await.expect("one leads");
    let mut random = StdRng::seed_from_u64(seed ^ number << 32);
    let mut count = 0;
    while !is_stopped.load(Ordering::Relaxed) {
        let name = format!("/shared-{}", random.random_range(0..NAMES));
        let to = path(&name);
        count += 1;
        let value = format!("{number}.{count}");
        let kind = ["get", "get", "put", "create", "delete"][random.random_range(0..5)];
        let began = Instant::now();
        let outcome = match kind {
            "get" => match client.get(&to).await {
                Ok(bytes) => {
                    let text = String::from_utf8(bytes.to_vec()).expect("what was written is text");
                    Outcome::Value(Some(text))
                }
                Err(ClientError::Refused(Refusal::NotFound { .. })) => Outcome::Value(None),
                // A deleted object that a reader has just looked up.
                Err(ClientError::Refused(Refusal::ObjectGone { .. })) => continue,
                other => unknown("get", &other.map(drop)),
            },
            "put" | "create" => {
                let is_new = kind == "create";
                let mode = if is_new { CreateMode::New } else { CreateMode::Replace };
                let options = PutOptions { mode, ..PutOptions::default() };
                match client.put(&to, Bytes::from(value.clone()), &options).await {
                    Ok(_) => Outcome::Made(true),
                    Err(ClientError::Refused(Refusal::Exists { .. })) if is_new => {
                        Outcome::Made(false)
                    }
                    other => unknown(kind, &other.map(drop)),
                }
            }
            _ => match client.delete(&to, false).await {
                Ok(_) => Outcome::Made(true),
                Err(ClientError::Refused(Refusal::NotFound { .. })) => Outcome::Made(false),
                other => unknown("delete", &other.map(drop)),
            },
        };
        let ended = Instant::now();
        let mut line = json!({
            "caller": number, "name": name, "kind": kind, "value": value,
            "began": history.nanos(began), "ended": history.nanos(ended),
        });
        match outcome {
            Outcome::Value(seen) => line["seen"] = json!(seen),
            Outcome::Made(is_made) => line["is_made"] = json!(is_made),
            Outcome::Unknown => {
                line["is_unknown"] = json!(true);
                history.unknown.fetch_add(1, Ordering::Relaxed);
            }
        }
        history.write(&line);
        history.calls.fetch_add(1, Ordering::Relaxed);
        // The members' journals are read at each start: without pauses they would be most of a run.
        tokio::time::sleep(Duration::from_millis(random.random_range(0..8))).await;
        let took = ended - began;
        assert!(took < CALL_DEADLINE + LATE_MAX, "{kind} of {name} took {took:?}");
        let mut longest = history.longest.lock().expect("no thread panicked");
        *longest = took.max(*longest);
    }
}

/// A call that has reached its deadline may have been made, or be made later.
fn unknown(kind: &str, outcome: &Result<(), ClientError>) -> Outcome {
    match outcome {
        Err(ClientError::TimedOut { .. } | ClientError::Call { .. }) => Outcome::Unknown,
        Err(ClientError::Refused(
            Refusal::RetryAfter { .. } | Refusal::NotLeader { .. } | Refusal::Undecided { .. },
        )) => Outcome::Unknown,
        other => panic!("{kind}: {other:?}"),
    }
}

/// Returns a number that the environment sets for a run.
pub(crate) fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(format!("SANDERLING_GROUP_{name}")).ok();
    text.map_or(default, |text| text.parse().expect("a number"))
}
