//! `sanderling bench scale` on a small scale: it measures, and every figure is one.

use crate::cluster::{run, sanderling};

const OBJECTS: u64 = 2000;

#[test]
fn scale_bench_prints_a_point_for_each_number_of_objects() {
    let mut command = sanderling();
    command.args(["bench", "scale", "--objects", "1000,2000", "--nodes", "8"]);
    command.args(["--phase", "600ms", "--json", "-q"]);
    let output = command.output().expect("the program can be started");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one document");
    assert_eq!(report["schema"], 1);
    let points = report["points"].as_array().expect("a list of points");
    assert_eq!(points.len(), 2);
    let point = &points[1];
    assert_eq!(point["objects"], OBJECTS);
    assert_eq!(point["nodes"], 8);
    let files = point["files"].as_u64().expect("a number");
    assert_eq!(files + point["values"].as_u64().expect("a number"), OBJECTS);
    // Every file has one block, and every block was reported once.
    assert_eq!(point["report"]["count"], files);
    assert!(point["heartbeat"]["count"].as_u64() >= Some(8), "{point}");
    assert!(point["drain"]["count"].as_u64() > Some(0), "{point}");
    for key in ["register", "file", "value", "heartbeat", "lookup", "report", "drain"] {
        assert!(point[key]["per_second"].as_f64() > Some(0.0), "{key}: {point}");
    }
    for key in ["bytes_per_file", "journal_bytes_per_file", "journal_bytes_per_value"] {
        assert!(point[key].as_f64() > Some(10.0), "{key}: {point}");
    }
    assert!(point["recovery"]["seconds"].as_f64() > Some(0.0), "{point}");
    let costs = report["linearity"].as_array().expect("a list of costs");
    assert!(costs.iter().all(|cost| cost["growth"].as_f64() >= Some(1.0)), "{report}");
}

#[test]
fn scale_bench_that_is_late_names_no_cluster_that_it_has_not_started() {
    let mut command = sanderling();
    command.args(["bench", "scale", "--objects", "1000", "--nodes", "8"]);
    let ran = run(command.args(["--phase", "60s", "--timeout", "300ms"]));
    assert_eq!(ran.code, 124, "{ran}");
    assert!(ran.stderr.contains("tried: a measurement of 1000 objects and 8 nodes\n"), "{ran}");
    assert!(!ran.stderr.contains("127.0.0.1:7600"), "{ran}");
}
