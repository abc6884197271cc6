//! `sanderling lab checkpoint --measure` against real servers and tasks: what it prints and leaves
//! behind, and that a restored byte is the one that was dumped. Its speed is not looked at.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path as LocalPath, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::cluster::stores::put;
use crate::cluster::{Cluster, Ran, SOON, Server, Shape, block_on, run, sanderling, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// How long a measurement may take on a busy machine: about thirty cases of some seconds.
const MEASURED_WITHIN: Duration = Duration::from_secs(900);

/// Where in the bucket is measured.
const PREFIX: &str = "/measured/runs/lab";

/// Returns the command with states of 4 MB; with CRIU where scripts/criu.sh has unpacked it.
fn measure(place: &TempDir, flags: &[&str]) -> Command {
    let mut command = sanderling();
    let root = LocalPath::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let given = std::env::var_os("SANDERLING_CRIU").map(PathBuf::from);
    let unpacked = Some(root.join("target/criu/criu")).filter(|it| it.exists());
    if let Some(criu) = given.or(unpacked) {
        command.env("SANDERLING_CRIU", criu);
    }
    let temporary = place.path().join("t");
    std::fs::create_dir_all(&temporary).expect("made");
    command.env("TMPDIR", temporary);
    command.args(["lab", "checkpoint", "--measure", "--quick", "--sizes", "4MB"]);
    command.args(["--scale", "400", "--out"]).arg(place.path().join("out")).args(flags);
    command
}

/// A bucket of another cluster, which a gateway serves.
struct Bucket {
    cluster: Cluster,
    gateway: Server,
}

impl Bucket {
    fn start() -> Self {
        let cluster = Cluster::start(Shape { datanodes: 2, dram: "512MiB", ..Shape::default() });
        let made = cluster.cli(&["fs", "mkdir", "/measured"]);
        assert_eq!(made.code, 0, "{made}");
        let address = cluster.namenode.address.clone();
        let words = ["gateway", "s3", "--namenode", &address, "--listen", "127.0.0.1:0"];
        let gateway = cluster.serve("gateway", &[&words[..], &["--http", "none"]].concat());
        Self { cluster, gateway }
    }

    /// Lets a command find it.
    fn environment<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let names = std::env::vars_os().map(|(name, _)| name);
        for name in names.filter(|name| name.to_string_lossy().starts_with("AWS_")) {
            command.env_remove(name);
        }
        command.env("AWS_ENDPOINT_URL", format!("http://{}", self.gateway.address));
        command.env("AWS_REGION", "us-east-1").env("AWS_ACCESS_KEY_ID", "sanderling");
        command.env("AWS_SECRET_ACCESS_KEY", "sanderling")
    }

    /// Stores an object of another program.
    fn put(&self, name: &str) {
        block_on(async { put(&self.cluster.client().await, name, 1, 1000).await });
    }

    /// Returns how many objects there are below a path.
    fn objects(&self, path: &str) -> u64 {
        let ran = self.cluster.cli(&["fs", "du", path, "--json"]);
        if ran.code == 3 {
            return 0;
        }
        assert_eq!(ran.code, 0, "{ran}");
        let usage: Value = serde_json::from_str(&ran.stdout).expect("it is JSON");
        usage["subtrees"][0]["files"].as_u64().expect("a number")
    }
}

/// A measurement that runs. It is interrupted with its test.
struct Measurement {
    child: Child,
    printed: PathBuf,
    log: PathBuf,
    began: Instant,
}

impl Measurement {
    fn start(place: &TempDir, command: &mut Command) -> Self {
        let (printed, log) = (place.path().join("printed"), place.path().join("log"));
        let [out, err] = [&printed, &log].map(|path| File::create(path).expect("a file"));
        let child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn().expect("started");
        Self { child, printed, log, began: Instant::now() }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("our own child").is_none()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// Waits until it has ended.
    fn end(&mut self) -> Ran {
        let child = &mut self.child;
        let ended = || child.try_wait().expect("our own child");
        let status = until("the measurement ends", MEASURED_WITHIN, ended);
        let stdout = std::fs::read_to_string(&self.printed).unwrap_or_default();
        let (code, stderr) = (status.code().unwrap_or(-1), self.log());
        Ran { code, stdout, stderr, took: self.began.elapsed() }
    }
}

impl Drop for Measurement {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
            let limit = Instant::now() + SOON;
            while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < limit {
                std::thread::sleep(Duration::from_millis(20));
            }
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn left_in(directory: &LocalPath) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Returns the command lines of a measurement and of all that it has started: they have its
/// directory for temporary files in their environment.
fn processes(place: &TempDir) -> Vec<String> {
    let temporary = format!("TMPDIR={}", place.path().join("t").display());
    let read = |path: PathBuf| {
        String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
    };
    let all = std::fs::read_dir("/proc").expect("it can be listed").flatten();
    let own = all.filter(|it| read(it.path().join("environ")).contains(&temporary));
    own.map(|it| read(it.path().join("cmdline"))).collect()
}

fn assert_no_process_is_left(place: &TempDir) {
    let are_gone = || processes(place).is_empty().then_some(());
    until("all processes of the lab have ended", SOON, are_gone);
}

#[test]
fn both_policies_are_measured_and_every_restored_byte_is_equal() {
    let (place, bucket) = (TempDir::new().expect("a directory"), Bucket::start());
    bucket.put("/measured/runs/kept");
    let flags = ["--json", "--store", "s3://measured/runs/lab"];
    let mut command = measure(&place, &flags);
    let ran = Measurement::start(&place, bucket.environment(&mut command)).end();
    assert_eq!(ran.code, 0, "{ran}");
    let figure: Value = serde_json::from_str(&ran.stdout).expect("it is JSON");
    let rows = figure["rows"].as_array().expect("rows");
    let mut cases = BTreeSet::new();
    for row in rows {
        let text = |name: &str| row[name].as_str().expect("a name").to_owned();
        let (store, experiment) = (text("store"), text("experiment"));
        assert_eq!(median(row, "restored_equal"), Some(1.0), "{row}");
        if experiment == "dump" {
            assert_dump(row, &store);
        }
        cases.insert([experiment, text("kind"), text("policy"), store]);
    }
    for policy in ["sanderling", "baseline"] {
        for store in ["emulated EBS", "real S3"] {
            let dumps = ["dense", "sparse", "append"].map(|kind| ["dump", kind, policy, store]);
            let runs = ["run", "recovery"].map(|run| [run, "dense", policy, store]);
            for case in dumps.into_iter().chain(runs) {
                assert!(cases.contains(&case.map(str::to_owned)), "{case:?} of {cases:?}");
            }
            assert_recovery(rows, policy, store);
            assert_dedups(rows, policy, store);
        }
        for store in ["emulated EFS", "emulated S3"] {
            let case = ["dump", "dense", policy, store].map(str::to_owned);
            assert!(cases.contains(&case), "{case:?}");
        }
        for store in ["emulated EFS", "real S3"] {
            let case = ["tasks", "dense", policy, store].map(str::to_owned);
            assert!(cases.contains(&case), "{case:?}");
        }
    }
    assert_goals(&figure);
    assert_refusals(&figure);
    assert_written(&place.path().join("out"));
    assert_eq!(left_in(&place.path().join("t")), [] as [PathBuf; 0]);
    assert_no_process_is_left(&place);
    // The lab has removed what it wrote, and nothing else.
    until("the prefix is empty", SOON, || (bucket.objects(PREFIX) == 0).then_some(()));
    assert_eq!(bucket.objects("/measured/runs"), 1, "another object is gone");
}

/// Returns the median of a quantity of a row.
fn median(row: &Value, name: &str) -> Option<f64> {
    row["values"][name]["median"].as_f64()
}

/// Returns the row of a case.
fn row_of<'a>(rows: &'a [Value], case: [&str; 4]) -> &'a Value {
    let names = ["experiment", "kind", "policy", "store"];
    let is_it = |row: &&Value| names.iter().zip(case).all(|(name, value)| row[*name] == value);
    rows.iter().find(is_it).expect("it is measured")
}

/// Asserts what is measured of a dump, of whatever kind.
fn assert_dump(row: &Value, store: &str) {
    let of = |name: &str| median(row, name).unwrap_or_else(|| panic!("{name} of {row}"));
    // What is in memory is in the state, and some of it is stored.
    assert!(of("state_bytes") >= 2e6 && of("new_bytes") > 1e6, "{row}");
    assert!(of("stored_bytes") > 1e6 && of("frozen_seconds") > 0.0, "{row}");
    // The baseline compresses nothing.
    let compresses = row["policy"] == "sanderling";
    assert!(of("hash_cpu_per_gib") > 0.0 && of("encrypt_cpu_per_gib") > 0.0, "{row}");
    assert!(!compresses || of("compress_cpu_per_gib") > 0.0, "{row}");
    if store == "real S3" {
        // It does not count them for the lab.
        assert_eq!(median(row, "requests"), None, "{row}");
    } else {
        // At least a pack and a manifest.
        assert!(store.starts_with("emulated ") && of("requests") >= 2.0, "{row}");
    }
}

/// Asserts what is measured of a task that was killed in the middle of an interval.
fn assert_recovery(rows: &[Value], policy: &str, store: &str) {
    let row = row_of(rows, ["recovery", "dense", policy, store]);
    let of = |name: &str| median(row, name).unwrap_or_else(|| panic!("{name} of {row}"));
    assert!(of("lost_steps") >= 1.0 && of("lost_steps") < of("steps"), "{row}");
    let lost = of("restored_work_seconds") + of("lost_seconds");
    assert!(lost < of("elapsed_seconds"), "more work than time: {row}");
    assert!(of("restore_seconds") > 0.0 && of("restore_seconds") <= of("restart_seconds"), "{row}");
    assert!(of("restart_seconds") < of("elapsed_seconds"), "{row}");
    // A step may be a little shorter after a longer one.
    assert!(of("restart_share") + of("useful_share") < 1.05, "{row}");
    let run = row_of(rows, ["run", "dense", policy, store]);
    if median(run, "steps") == Some(of("steps")) {
        assert!(of("elapsed_over_run") > 0.0, "{row}");
    }
}

/// Asserts that the second dump of a sparse writer stores little, and with the baseline's all.
fn assert_dedups(rows: &[Value], policy: &str, store: &str) {
    let row = row_of(rows, ["dump", "sparse", policy, store]);
    let of = |name: &str| median(row, name).expect("a number");
    let stored = of("second_stored_bytes") / of("second_state_bytes");
    match policy {
        "baseline" => assert!(stored > 0.95, "{stored}"),
        _ => assert!(stored < 0.5, "{stored}"),
    }
}

fn assert_goals(figure: &Value) {
    let goals = figure["goals"].as_array().expect("goals");
    for what in ["requests for 8 MiB of 4 MB, dense writer", "second dump over the first one"] {
        let is_it = |goal: &Value| goal["what"].as_str().is_some_and(|it| it.starts_with(what));
        assert!(goals.iter().any(is_it), "{what}: {goals:?}");
    }
}

/// Asserts that what CRIU does not dump is refused, in words that name it, where CRIU is used.
fn assert_refusals(figure: &Value) {
    let refused = figure["refused"].as_array().expect("a list");
    if figure["setup"]["driver"] != "criu" {
        return assert!(refused.is_empty(), "{refused:?}");
    }
    let (before, by_criu) = ("refused_before", "refused_by_criu");
    for (has, outcome, why) in [
        ("a terminal", before, "a terminal"),
        ("a TCP connection to another process", before, "a TCP connection"),
        ("a raw socket", before, "a raw socket"),
        ("a file lock", before, "a file lock"),
        ("a process that has left its tree", before, "has left the task's tree"),
        ("a Unix socket to another process", by_criu, "CRIU cannot dump the task: "),
        ("an open file of 2 MiB that was unlinked", by_criu, "CRIU cannot dump the task: "),
    ] {
        let row = refused.iter().find(|row| row["has"] == has).expect("it is tried");
        let sentence = row["sentence"].as_str().expect("a sentence");
        assert!(row["outcome"] == outcome && sentence.contains(why), "{row}");
    }
    let is_dumped = |row: &&Value| row["outcome"] == "dumped";
    assert_eq!(refused.iter().find(is_dumped), None);
    assert_eq!(refused.len(), 10, "{refused:?}");
}

/// Asserts what the files have.
fn assert_written(out: &LocalPath) {
    let page = std::fs::read_to_string(out.join("checkpoint-measured.html")).expect("the page");
    let labels =
        ["emulated EBS", "emulated S3", "real S3", "What CRIU does not dump", "Recovery: "];
    for label in labels.into_iter().chain(["Computed from the measured rates, not measured"]) {
        assert!(page.contains(label), "{label}");
    }
    assert!(!page.contains("https://"), "it loads something");
    let csv = std::fs::read_to_string(out.join("checkpoint-measured.csv")).expect("the rows");
    let is_labelled = |line: &str| line.contains(",emulated ") || line.contains(",real S3,");
    assert!(csv.lines().skip(1).all(is_labelled), "{csv}");
}

#[test]
fn interrupted_measurement_leaves_no_figure_no_files_and_no_objects() {
    let (place, bucket) = (TempDir::new().expect("a directory"), Bucket::start());
    bucket.put("/measured/runs/kept");
    let mut command = measure(&place, &["--store", "s3://measured/runs/lab"]);
    let mut measurement = Measurement::start(&place, bucket.environment(&mut command));
    // Those of a case: the rate is measured with one.
    until("the bucket has objects", MEASURED_WITHIN, || {
        assert!(measurement.is_running(), "{}", measurement.log());
        (bucket.objects(PREFIX) >= 3).then_some(())
    });
    measurement.signal(Signal::INT);
    let ran = measurement.end();
    assert_eq!(ran.code, 130, "{ran}");
    assert!(ran.stdout.is_empty(), "{ran}");
    assert!(!place.path().join("out").exists());
    assert_eq!(left_in(&place.path().join("t")), [] as [PathBuf; 0]);
    assert_no_process_is_left(&place);
    until("the prefix is empty", SOON, || (bucket.objects(PREFIX) == 0).then_some(()));
    assert_eq!(bucket.objects("/measured/runs"), 1, "another object is gone");
}

#[test]
fn killed_measurement_leaves_no_process() {
    let place = TempDir::new().expect("a directory");
    let mut measurement = Measurement::start(&place, &mut measure(&place, &[]));
    until("a task runs", MEASURED_WITHIN, || {
        assert!(measurement.is_running(), "{}", measurement.log());
        // Its runner has its command, too.
        let is_task = |it: &String| it.contains("checkpoint-task") && !it.contains("\0run\0");
        processes(&place).iter().any(is_task).then_some(())
    });
    measurement.signal(Signal::KILL);
    assert_eq!(measurement.end().code, -1);
    assert_no_process_is_left(&place);
}

#[test]
fn store_that_is_not_empty_or_cannot_be_used_is_refused_and_left_as_it_is() {
    let (place, bucket) = (TempDir::new().expect("a directory"), Bucket::start());
    bucket.put("/measured/used/kept");
    let mut command = measure(&place, &["--store", "s3://measured/used"]);
    let ran = run(bucket.environment(&mut command));
    let why = "s3://measured/used is not empty: it has used/kept";
    assert!(ran.code == 1 && ran.stderr.contains(why), "{ran}");
    assert_eq!(bucket.objects("/measured/used"), 1);
    let mut command = measure(&place, &["--store", "s3://absent/lab"]);
    let ran = run(bucket.environment(&mut command));
    assert!(ran.code == 4 && ran.stderr.contains("s3://absent/lab cannot be used"), "{ran}");
    assert!(!place.path().join("out").exists());
}

#[test]
fn sizes_scales_and_stores_that_cannot_be_are_refused() {
    let refused = |flags: &[&str]| {
        let ran = run(sanderling().args(["lab", "checkpoint"]).args(flags));
        assert_eq!(ran.code, 2, "{flags:?}: {ran}");
    };
    refused(&["--measure", "--sizes", "8MB,4MB"]);
    refused(&["--measure", "--scale", "0.5"]);
    refused(&["--measure", "--store", "s3://bucket"]);
    refused(&["--store", "s3://bucket/prefix"]);
    refused(&["--quick"]);
}

#[test]
fn computed_figure_ends_with_the_command_that_measures() {
    let ran = run(sanderling().args(["lab", "checkpoint", "--runs", "1", "--tasks", "0"]));
    assert_eq!(ran.code, 0, "{ran}");
    let last = ran.stdout.lines().last().unwrap_or_default();
    assert!(last.ends_with("sanderling lab checkpoint --measure"), "{ran}");
}
