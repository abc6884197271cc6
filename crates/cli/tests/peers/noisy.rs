//! `sanderling bench noisy` on real servers, briefly: every phase is there, and nothing stays.

use crate::cluster::{Cluster, Shape, run, sanderling};
use serde_json::Value;
use tempfile::TempDir;

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> =
        value.as_object().expect("an object").keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

/// Checks the figures of one phase.
fn assert_measured(tenant: &Value) {
    assert_eq!(keys(tenant), ["errors", "first_error", "latency_micros", "p99_ratio", "seconds"]);
    for operation in ["get", "put", "stat"] {
        let latency = &tenant["latency_micros"][operation];
        assert_eq!(keys(latency), ["max", "operations", "p50", "p99"], "{tenant}");
        assert!(latency["operations"].as_u64() > Some(0), "{operation}: {tenant}");
        let micros = ["p50", "p99", "max"].map(|key| latency[key].as_f64().expect("a number"));
        assert!(micros.is_sorted() && micros[0] > 0.0, "{operation}: {tenant}");
        assert!(tenant["p99_ratio"][operation].as_f64() > Some(0.0), "{operation}: {tenant}");
    }
}

fn report(cluster: &Cluster, words: &[&str]) -> Value {
    let ran = cluster.cli(&[&["bench", "noisy", "--json"], words].concat());
    let report: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran}"));
    let phases = report["hogs"].as_array().expect("a list").iter().map(|beside| &beside["tenant"]);
    let phases = phases.chain([&report["alone"], &report["alone_again"]]);
    let errors: u64 = phases.filter_map(|tenant| tenant["errors"].as_u64()).sum();
    // An error of the tenant is the command's, after the figures.
    assert_eq!(ran.code, i32::from(errors > 0), "{ran}");
    report
}

#[test]
fn tenant_is_measured_alone_beside_each_hog_and_alone_again() {
    let cluster = Cluster::of(1);
    let words = ["--seconds", "3", "--hog", "usage,list", "--entries", "2000"];
    let report = report(&cluster, &words);
    let expected = [
        "alone",
        "alone_again",
        "entries",
        "hogs",
        "is_other_tenant",
        "object_bytes",
        "pause_millis",
        "schema",
        "seconds",
        "type",
    ];
    assert_eq!(keys(&report), expected);
    assert_eq!((&report["schema"], &report["type"]), (&1.into(), &"noisy".into()));
    assert_eq!((&report["object_bytes"], &report["entries"]), (&4096.into(), &2000.into()));
    assert_measured(&report["alone"]);
    assert_measured(&report["alone_again"]);
    let hogs = report["hogs"].as_array().expect("a list");
    assert_eq!(hogs.iter().map(|it| &it["hog"]).collect::<Vec<_>>(), ["usage", "list"]);
    for beside in hogs {
        let expected = [
            "hog",
            "hog_broken",
            "hog_operations",
            "hog_operations_per_second",
            "hog_refusals",
            "notes",
            "skipped",
            "tenant",
        ];
        assert_eq!(keys(beside), expected);
        assert_eq!(beside["skipped"], Value::Null, "{report}");
        assert_measured(&beside["tenant"]);
    }
    // The directory that is listed is there and has pages.
    assert!(hogs[1]["hog_operations"].as_u64() > Some(0), "{report}");
    let usage = cluster.json(&["fs", "du", "/"]);
    assert_eq!(usage["subtrees"][0]["files"], 0, "{usage}");
}

#[test]
fn every_hog_runs_or_reports_why_not_and_leaves_nothing_behind() {
    let cluster = Cluster::of(1);
    let words = ["--seconds", "2", "--entries", "200"];
    let report = report(&cluster, &words);
    let hogs = report["hogs"].as_array().expect("a list");
    assert_eq!(hogs.len(), 11, "{report}");
    let skipped = hogs.iter().filter(|it| it["skipped"] != Value::Null);
    // Its namenode's HTTP address was not given; memory may not be lent in every container.
    for beside in skipped {
        let name = beside["hog"].as_str().expect("a name");
        assert!(["followers", "leases"].contains(&name), "{beside}");
    }
    // Those that wait for no long answers did something even here.
    for name in ["fsck", "deaf", "connections"] {
        let beside = hogs.iter().find(|it| it["hog"] == name).expect("all are there");
        assert!(beside["hog_operations"].as_u64() > Some(0), "{name}: {report}");
    }
    let usage = cluster.json(&["fs", "du", "/"]);
    assert_eq!(usage["subtrees"][0]["files"], 0, "{usage}");
}

#[test]
fn hogs_may_be_another_tenant_with_a_subtree_of_its_own() {
    let place = TempDir::new().expect("a directory for the test");
    let file = |name: &str| place.path().join(name).to_str().expect("plain").to_owned();
    let secret = file("secret");
    let made = run(sanderling().args(["token", "secret", "--out", &secret]));
    assert_eq!(made.code, 0, "{made}");
    let flags = ["--secret-file", Box::leak(secret.clone().into_boxed_str())];
    let namenode = flags.iter().map(|flag| (*flag).to_owned()).collect();
    let datanode = flags.to_vec();
    let cluster = Cluster::start(Shape { datanodes: 1, namenode, datanode, ..Shape::default() });
    for (subtree, out) in [("/polite", file("polite")), ("/noisy", file("noisy"))] {
        let words = ["token", "new", "--secret-file", &secret, "--subtree", subtree, "--out", &out];
        let made = run(sanderling().args(words).args(["--cluster", "any"]));
        assert_eq!(made.code, 0, "{made}");
    }
    let tokens = ["--token-file", &file("polite"), "--hog-token-file", &file("noisy")];
    let places = ["--path", "/polite", "--hog-path", "/noisy", "--entries", "200"];
    let words = ["--seconds", "3", "--hog", "fsck,usage,deaf"];
    let report = report(&cluster, &[&tokens[..], &places, &words].concat());
    assert_eq!(report["is_other_tenant"], true);
    let hogs = report["hogs"].as_array().expect("a list");
    assert!(hogs.iter().all(|beside| beside["skipped"] == Value::Null), "{report}");
    // Only an operator may have the catalog checked.
    assert_eq!(hogs[0]["hog_operations"], 0, "{report}");
    assert!(hogs[0]["hog_refusals"].as_u64() > Some(0), "{report}");
    assert!(hogs[2]["hog_operations"].as_u64() > Some(0), "{report}");
}
