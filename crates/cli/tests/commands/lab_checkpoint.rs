//! `sanderling lab checkpoint --measure` against real servers and tasks: what it prints and leaves
//! behind, and that a restored byte is the one that was dumped. Its speed is not looked at.

use std::collections::BTreeSet;
use std::path::{Path as LocalPath, PathBuf};
use std::process::{Command, Stdio};

use crate::cluster::{SOON, run, sanderling, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

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

fn left_in(directory: &LocalPath) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

#[test]
fn both_policies_are_measured_and_every_restored_byte_is_equal() {
    let place = TempDir::new().expect("a directory");
    let ran = run(&mut measure(&place, &["--json"]));
    assert_eq!(ran.code, 0, "{ran}");
    let figure: Value = serde_json::from_str(&ran.stdout).expect("it is JSON");
    let rows = figure["rows"].as_array().expect("rows");
    let mut cases = BTreeSet::new();
    for row in rows {
        let text = |name: &str| row[name].as_str().expect("a name").to_owned();
        let store = text("store");
        assert!(store.starts_with("emulated "), "{store}");
        let median = |name: &str| row["values"][name]["median"].as_f64();
        assert_eq!(median("restored_equal"), Some(1.0), "{row}");
        cases.insert((text("experiment"), text("kind"), text("policy"), store));
        if row["experiment"] == "dump" {
            // What is in memory is in the state, and some of it is stored.
            assert!(median("state_bytes").expect("bytes") >= 2e6, "{row}");
            assert!(median("stored_bytes").expect("bytes") > 1e6, "{row}");
            assert!(median("frozen_seconds").expect("a time") > 0.0, "{row}");
            // At least a pack and a manifest.
            assert!(median("requests").expect("a number") >= 2.0, "{row}");
        }
    }
    let goals = figure["goals"].as_array().expect("goals");
    for what in ["requests for 8 MiB of 4 MB, dense writer", "second dump over the first one"] {
        let is_it = |goal: &Value| goal["what"].as_str().is_some_and(|it| it.starts_with(what));
        assert!(goals.iter().any(is_it), "{what}: {goals:?}");
    }
    let policies = ["sanderling", "baseline"];
    for policy in policies {
        for kind in ["dense", "sparse", "append"] {
            let case = ("dump", kind, policy, "emulated EBS");
            let (experiment, kind, policy, store) = case;
            let case = (experiment.into(), kind.into(), policy.into(), store.into());
            assert!(cases.contains(&case), "{case:?} of {cases:?}");
        }
        for store in ["emulated EBS", "emulated EFS", "emulated S3"] {
            let case = ("dump".into(), "dense".into(), policy.into(), store.into());
            assert!(cases.contains(&case), "{case:?}");
        }
        let case = ("run".into(), "dense".into(), policy.into(), "emulated EBS".into());
        assert!(cases.contains(&case), "{case:?}");
    }
    assert_dedups(rows);
    let out = place.path().join("out");
    let page = std::fs::read_to_string(out.join("checkpoint-measured.html")).expect("the page");
    for label in ["emulated EBS", "emulated S3", "Computed from the measured rates, not measured"] {
        assert!(page.contains(label), "{label}");
    }
    assert!(!page.contains("https://"), "it loads something");
    let csv = std::fs::read_to_string(out.join("checkpoint-measured.csv")).expect("the rows");
    assert!(csv.lines().skip(1).all(|line| line.contains(",emulated ")), "{csv}");
    assert_eq!(left_in(&place.path().join("t")), [] as [PathBuf; 0]);
}

/// Asserts that the second dump of a sparse writer stores little, and with the baseline's all.
fn assert_dedups(rows: &[Value]) {
    let stored = |policy: &str| {
        let of = |row: &&Value| {
            row["experiment"] == "dump" && row["kind"] == "sparse" && row["policy"] == policy
        };
        let values = &rows.iter().find(of).expect("it is measured")["values"];
        let median = |name: &str| values[name]["median"].as_f64().expect("a number");
        median("second_stored_bytes") / median("second_state_bytes")
    };
    assert!(stored("baseline") > 0.95, "{}", stored("baseline"));
    assert!(stored("sanderling") < 0.5, "{}", stored("sanderling"));
}

#[test]
fn interrupted_measurement_leaves_no_figure_and_no_files() {
    let place = TempDir::new().expect("a directory");
    let log = place.path().join("log");
    let file = std::fs::File::create(&log).expect("a log");
    let mut command = measure(&place, &[]);
    let mut child = command.stdout(Stdio::piped()).stderr(file).spawn().expect("started");
    until("a case is measured", SOON, || {
        assert!(child.try_wait().expect("our child").is_none(), "{:?}", std::fs::read(&log));
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        text.contains("1 of ").then_some(())
    });
    let pid = Pid::from_raw(child.id().try_into().expect("small")).expect("not zero");
    kill_process(pid, Signal::INT).expect("it runs");
    let output = child.wait_with_output().expect("waited for");
    assert_eq!(output.status.code(), Some(130));
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(!place.path().join("out").exists());
    assert_eq!(left_in(&place.path().join("t")), [] as [PathBuf; 0]);
}

#[test]
fn sizes_and_scales_that_cannot_be_are_refused() {
    let refused = |flags: &[&str]| {
        let ran = run(sanderling().args(["lab", "checkpoint"]).args(flags));
        assert_eq!(ran.code, 2, "{flags:?}: {ran}");
    };
    refused(&["--measure", "--sizes", "8MB,4MB"]);
    refused(&["--measure", "--scale", "0.5"]);
    refused(&["--quick"]);
}
