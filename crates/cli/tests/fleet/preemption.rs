//! `namenode --preemption-model`: the source of the nodes' expected life.

use crate::cluster::{Cluster, Shape, run, sanderling};
use tempfile::TempDir;

/// Milliseconds of an hour.
const HOUR: u64 = 3_600_000;

fn with_model(spec: &str) -> Cluster {
    let namenode = ["--preemption-model", spec].map(str::to_owned).to_vec();
    Cluster::start(Shape { datanodes: 1, namenode, ..Shape::default() })
}

fn expected_life(cluster: &Cluster) -> u64 {
    let nodes = cluster.json(&["node", "ls"]);
    nodes["nodes"][0]["expected_life"].as_u64().unwrap_or_else(|| panic!("no life: {nodes}"))
}

#[test]
fn expected_life_follows_the_model() {
    assert_eq!(expected_life(&with_model("exponential:mean=12h")), 12 * HOUR);
    let bathtub = expected_life(&with_model("bathtub:n1-highcpu-16"));
    assert!((13 * HOUR..14 * HOUR).contains(&bathtub), "{bathtub}");
    let shown = with_model("exponential:mean=12h").cli(&["node", "ls"]);
    assert!(shown.stdout.contains("life") && shown.stdout.contains("12h"), "{shown}");
    let unknown = Cluster::of(1);
    let nodes = unknown.json(&["node", "ls"]);
    assert!(nodes["nodes"][0]["expected_life"].is_null(), "{nodes}");
    assert!(!unknown.cli(&["node", "ls"]).stdout.contains("life"));
}

#[test]
fn expected_life_follows_recorded_lifetimes_and_is_never_beyond_the_deadline() {
    let directory = TempDir::new().expect("a directory");
    let file = directory.path().join("lifetimes.csv");
    let text = "machine_type,zone,lifetime_seconds\nbig,a,7200\nbig,a,14400\nsmall,a,60\n";
    std::fs::write(&file, text).expect("written");
    let cluster = with_model(&format!("lifetimes:{},machine=big", file.display()));
    let life = expected_life(&cluster);
    // Three hours on average, less the short time that the node has lived.
    assert!((3 * HOUR - HOUR / 4..=3 * HOUR).contains(&life), "{life}");
    assert_eq!(cluster.cli(&["node", "notice", "n0", "--deadline", "60s"]).code, 0);
    assert!(expected_life(&cluster) <= 60_000);
}

#[test]
fn unusable_models_are_refused_at_the_start_with_the_reason() {
    let directory = TempDir::new().expect("a directory");
    let start = |spec: &str| {
        let at = directory.path().to_str().expect("UTF-8");
        let words = ["namenode", "--listen", "127.0.0.1:0", "--http", "none", "--dir", at];
        run(sanderling().args(words).args(["--preemption-model", spec]))
    };
    for (spec, reason) in [
        ("weibull:k=2", "known are bathtub:"),
        ("bathtub:n9-huge", "known are typical"),
        ("exponential:mean=12", "no span of time"),
        ("lifetimes:/nowhere/at-all.csv", "could not be read"),
    ] {
        let ran = start(spec);
        assert_eq!(ran.code, 2, "{spec}: {ran}");
        assert!(ran.stderr.contains(reason), "{spec}: {ran}");
    }
}
