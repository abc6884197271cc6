//! Every type of `bench`, on real servers, with tiny counts: its figures add up.

use crate::cluster::{Cluster, Shape, run, sanderling};
use serde_json::Value;

/// Every key of the document, as docs/BENCH.md lists them.
const KEYS: &[&str] = &[
    "schema",
    "type",
    "size_bytes",
    "count",
    "duration_seconds",
    "warmup",
    "threads",
    "depth",
    "batch",
    "stream",
    "share_client",
    "checksums",
    "same_host",
    "pin",
    "class",
    "operations",
    "items",
    "bytes",
    "same_host_bytes",
    "tcp_bytes",
    "seconds",
    "operations_per_second",
    "items_per_second",
    "bytes_per_second",
    "latency_micros",
    "histogram",
    "retries",
    "longest_stall_millis",
    "cpu",
];

const LATENCY_KEYS: &[&str] = &["min", "mean", "stdev", "p50", "p90", "p99", "p999", "max"];

const CPU_KEYS: &[&str] = &[
    "client_seconds",
    "server_seconds",
    "namenode_seconds",
    "datanode_seconds",
    "client_micros_per_operation",
    "server_micros_per_operation",
    "client_seconds_per_gib",
    "server_seconds_per_gib",
    "items_per_server_second",
    "servers",
    "unmeasured",
];

fn assert_keys(value: &Value, expected: &[&str]) {
    let mut found: Vec<&str> =
        value.as_object().expect("an object").keys().map(String::as_str).collect();
    let mut expected = expected.to_vec();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

fn number(report: &Value, pointer: &str) -> f64 {
    let found = report.pointer(pointer).and_then(Value::as_f64);
    found.unwrap_or_else(|| panic!("{pointer} is a number: {report}"))
}

/// Checks what holds for every report.
fn assert_plausible(report: &Value, operations: u64) {
    assert_keys(report, KEYS);
    assert_keys(&report["latency_micros"], LATENCY_KEYS);
    assert_keys(&report["cpu"], CPU_KEYS);
    assert_eq!(report["operations"], operations, "{report}");
    assert!(number(report, "/items") >= number(report, "/operations"), "{report}");
    let latency = |name: &str| number(report, &format!("/latency_micros/{name}"));
    let order = ["min", "p50", "p90", "p99", "p999", "max"].map(latency);
    assert!(order.is_sorted(), "{report}");
    assert!((order[0]..=order[5]).contains(&latency("mean")) && order[5] > 0.0, "{report}");
    let rate = number(report, "/operations_per_second") * number(report, "/seconds");
    assert!((rate - number(report, "/operations")).abs() < 0.01, "{report}");
    assert!(number(report, "/cpu/client_seconds") > 0.0, "{report}");
}

/// Returns the flags that a type takes beside the usual ones.
fn flags(kind: &str) -> &'static [&'static str] {
    match kind {
        "lookup-many" => &["--paths", "1500", "--batch", "16"],
        "get-many" | "create-many" => &["--batch", "16"],
        "write" | "read-sequential" => &["--size", "3000", "--direct"],
        "write-async" | "read-sequential-async" | "read-random-async" => {
            &["--size", "4KiB", "--depth", "4"]
        }
        "write-flush" | "read-random" | "read-multi-stream" => &["--size", "4KiB"],
        "create-file-async" | "get-file-async" => &["--depth", "4"],
        _ => &[],
    }
}

#[test]
fn every_benchmark_runs_and_leaves_nothing_behind() {
    let cluster = Cluster::start(Shape {
        datanodes: 2,
        datanode: vec!["--http", "127.0.0.1:0"],
        ..Shape::default()
    });
    for kind in sanderling_bench::types() {
        if kind == "print-locationclass" {
            continue;
        }
        let words = ["bench", kind, "--count", "20", "--threads", "2", "--warmup", "2"];
        let report = cluster.json(&[&words[..], flags(kind)].concat());
        assert_eq!(report["type"], kind);
        assert_plausible(&report, 40);
        let objects = if kind.ends_with("-many") { 40 * 16 } else { 40 };
        let bytes = report["size_bytes"].as_u64().map(|size| size * objects);
        assert_eq!(report["bytes"].as_u64(), bytes, "{report}");
        if kind != "ping-pong" {
            assert_eq!(report["cpu"]["servers"].as_array().map(Vec::len), Some(3), "{report}");
            assert!(number(&report, "/cpu/servers/1/resident_bytes") > 1e6, "{report}");
            assert_eq!(report["cpu"]["servers"][1]["source"], "metrics", "{report}");
        }
    }
    let usage = cluster.json(&["fs", "du", "/"]);
    assert_eq!(usage["subtrees"][0]["files"], 0, "{usage}");
}

#[test]
fn modes_of_running_are_in_the_report() {
    let cluster = Cluster::of(1);
    let shared = ["--threads", "3", "--share-client", "--count", "30", "--histogram"];
    let report = cluster.json(&[&["bench", "get-file-async"], &shared[..]].concat());
    assert_plausible(&report, 90);
    assert_eq!(report["share_client"], true);
    let buckets = report["histogram"].as_array().expect("there is a histogram");
    assert_eq!(buckets.iter().filter_map(|bucket| bucket[1].as_u64()).sum::<u64>(), 90);

    let timed = ["bench", "read-sequential", "--duration", "300ms", "--buffered", "--size", "4KiB"];
    let report =
        cluster.json(&[&timed[..], &["--checksums", "off", "--working-set", "4MiB"]].concat());
    assert_eq!((&report["count"], &report["stream"]), (&Value::Null, &"buffered".into()));
    assert_eq!((&report["checksums"], &report["duration_seconds"]), (&false.into(), &0.3.into()));
    assert!(number(&report, "/operations") > 0.0, "{report}");
    assert!(number(&report, "/seconds") >= 0.3, "{report}");

    // Bounded however long it writes: a datanode of 64 MiB takes 100 MiB one after the other.
    let many = ["--size", "1MiB", "--count", "100", "--working-set", "16MiB"];
    let report = cluster.json(&[&["bench", "writeAsync"], &many[..]].concat());
    assert_eq!((&report["type"], &report["operations"]), (&"write-async".into(), &100.into()));
}

#[test]
fn way_of_the_bytes_is_chosen_and_reported() {
    let cluster = Cluster::of(1);
    let words = ["bench", "read-random", "--size", "64KiB", "--working-set", "1MiB"];
    let way = |report: &Value| {
        let bytes = |key: &str| report[key].as_u64().expect("a number");
        (bytes("same_host_bytes"), bytes("tcp_bytes"), bytes("bytes"))
    };
    let report = cluster.json(&[&words[..], &["--count", "50", "--no-same-host"]].concat());
    let (here, tcp, bytes) = way(&report);
    assert_eq!((here, &report["same_host"]), (0, &false.into()), "{report}");
    assert!(tcp >= bytes, "{report}");
    // The node is looked for in the background: no document promises how soon it is found.
    let mut count = 100;
    loop {
        let report = cluster.json(&[&words[..], &["--count", &count.to_string()]].concat());
        let (here, tcp, bytes) = way(&report);
        assert_eq!(report["same_host"], true, "{report}");
        assert!(here + tcp >= bytes, "{report}");
        if here > 0 {
            break;
        }
        assert!(count < 1_000_000, "{report}");
        count *= 4;
    }
    let shared = ["--count", "50", "--no-same-host", "--threads", "2", "--share-client"];
    let report = cluster.json(&[&words[..], &shared].concat());
    let (here, tcp, bytes) = way(&report);
    assert!(here == 0 && tcp >= bytes && bytes > 0, "{report}");
    let ran = cluster.cli(&[&words[..], &["--count", "50", "--no-same-host"]].concat());
    assert!(ran.stdout.contains("all bytes over TCP"), "{ran}");
}

#[test]
fn tree_that_is_kept_is_used_again() {
    let cluster = Cluster::of(1);
    let words = ["bench", "lookup-many", "--paths", "1200", "--batch", "50", "--count", "4"];
    for _ in 0..2 {
        let report = cluster.json(&[&words[..], &["--keep"]].concat());
        assert_eq!((&report["items"], &report["batch"]), (&200.into(), &50.into()));
    }
    let tree = cluster.json(&["fs", "ls", "/bench"]);
    assert!(tree.to_string().contains("tree-1200"), "{tree}");
    let usage = cluster.json(&["fs", "du", "/bench/tree-1200"]);
    assert_eq!(usage["subtrees"][0]["files"], 1201, "{usage}");
}

#[test]
fn places_are_named() {
    let cluster = Cluster::of(2);
    let places = cluster.json(&["bench", "print-locationclass"]);
    assert_keys(&places, &["schema", "type", "host", "nodes"]);
    assert_eq!(places["nodes"].as_array().map(Vec::len), Some(2));
    for node in places["nodes"].as_array().expect("a list") {
        assert_keys(node, &["name", "host", "is_here", "tiers"]);
        assert_eq!((&node["host"], &node["is_here"]), (&places["host"], &true.into()));
    }
}

#[test]
fn bare_connection_needs_no_cluster_and_stays_on_its_core() {
    let words = ["--namenode", "127.0.0.1:1", "bench", "ping-pong", "--pin", "0", "--json"];
    let ran = run(sanderling().args(words));
    assert_eq!(ran.code, 0, "{ran}");
    let report: Value = serde_json::from_str(&ran.stdout).expect("the output is JSON");
    assert_plausible(&report, 1000);
    assert_eq!((&report["pin"], &report["size_bytes"]), (&0.into(), &64.into()));
    assert_eq!(report["cpu"]["server_seconds"], Value::Null);
}

#[test]
fn flag_without_a_use_is_refused() {
    for words in [
        &["write", "--depth", "2"][..],
        &["read-random", "--buffered"],
        &["get-file", "--size", "4KiB"],
        &["write", "--batch", "2"],
        &["get-small", "--paths", "2"],
        &["write", "--size", "0"],
        &["write", "--direct", "--buffered"],
        &["write", "--duration", "1s", "--count", "2"],
        &["ping-pong", "--pin", "1000"],
    ] {
        let ran = run(sanderling().arg("bench").args(words));
        assert_eq!(ran.code, 2, "{words:?}: {ran}");
    }
}

#[test]
fn first_failure_ends_all_threads_and_cleans_up() {
    let cluster = Cluster::start(Shape { datanodes: 1, dram: "8MiB", ..Shape::default() });
    let words = ["bench", "write", "--size", "1MiB", "--working-set", "1GiB", "--count", "100000"];
    let ran = cluster.cli(&[&words[..], &["--threads", "2", "--class", "dram:refuse"]].concat());
    assert_eq!(ran.code, 4, "{ran}");
    let usage = cluster.json(&["fs", "du", "/"]);
    assert_eq!(usage["subtrees"][0]["files"], 0, "{usage}");
}
