use super::*;
use crate::figures::{defaults, figure2, figure6, figure7};

const MIB: u64 = 1 << 20;

/// Returns a run of two machines, of which one is taken away after a second.
fn run(kind: &str, policy: &str, is_preempted: bool, lost: u64) -> serde_json::Value {
    let latency =
        serde_json::json!({"count": 9, "p50_millis": 1.0, "p99_millis": 2.0, "max_millis": 3.0});
    let noticed = is_preempted.then_some(1.0);
    let drain = serde_json::json!({
        "name": "n0-0", "noticed": 1.0, "bytes": 8 * MIB, "moved_bytes": 8 * MIB - lost,
        "promoted_bytes": 0, "lost_bytes": lost,
        "seconds": (lost == 0).then_some(0.5), "over_link": (lost == 0).then_some(1.1),
    });
    let sample = |at: f64| {
        serde_json::json!({
            "at": at, "seconds": 0.5, "read_bytes": 4 * MIB, "written_bytes": 0, "nodes": 2
        })
    };
    serde_json::json!({
        "kind": kind, "policy": policy, "is_preempted": is_preempted, "round": 0,
        "seconds": if is_preempted { 5.0 } else { 4.0 }, "work_bytes": 64 * MIB,
        "capacity": 0.9, "capacity_until_killed": 0.8, "client_errors": 0, "first_error": null,
        "lost_bytes": lost, "recomputed_bytes": lost, "moved_bytes": 8 * MIB - lost,
        "promoted_bytes": 0, "copied_bytes": 0, "rebalanced_bytes": 0, "imbalance": 1.05,
        "writer_stall_millis": 3.0, "stall_millis": 4.0,
        "calls": latency, "round_trips": latency,
        "nodes": [
            {"slot": 0, "name": "n0-0", "served": -1.0, "noticed": noticed,
             "killed": noticed.map(|at| at + 2.0)},
            {"slot": 1, "name": "n1-0", "served": -1.0, "noticed": null, "killed": null},
        ],
        "drains": if is_preempted { vec![drain] } else { vec![] },
        "bandwidth": (0..10).map(|at| sample(f64::from(at) * 0.5)).collect::<Vec<_>>(),
    })
}

fn lab() -> LabRecord {
    let mut runs = Vec::new();
    for kind in ["read", "write", "notice", "exposure"] {
        for (policy, lost) in [("sanderling", 0), ("baseline", 3 * MIB)] {
            runs.push(run(kind, policy, false, 0));
            runs.push(run(kind, policy, true, lost));
        }
    }
    let target = |policy: &str, median: f64| {
        serde_json::json!({
            "kind": "read", "policy": policy, "name": "lost_bytes", "about": "bytes <lost>",
            "limit": 0.0, "is_reached": median <= 0.0,
            "spread": {"median": median, "min": median, "max": median, "count": 1},
        })
    };
    let setup = serde_json::json!({
        "began_unix_seconds": 1_700_000_000, "version": "1.2.3", "kernel": "6.1", "processors": 2,
        "load_average": 0.5, "isolation": "loopback", "nodes": 2,
        "link_bytes_per_second": 25_000_000, "notice_millis": 2000, "replace_millis": 1000,
        "model": "bathtub:n1-highcpu-16", "time_scale": 240.0, "seed": 1, "rounds": 1,
    });
    let targets = [target("sanderling", 0.0), target("baseline", 3.0 * MIB as f64)];
    let lab = serde_json::json!({"setup": setup, "runs": runs, "targets": targets});
    serde_json::from_value(lab).unwrap()
}

fn computed(lab: &LabRecord) -> Computed {
    Computed {
        figure2: figure2::compute(&defaults()).unwrap(),
        figure6: figure6::compute(&defaults(), Some(lab)),
        figure7: figure7::compute(&defaults()),
    }
}

#[test]
fn page_shows_every_figure_and_both_policies() {
    let lab = lab();
    let page = of(&lab, &computed(&lab));
    for title in [
        "Machines, from notice to gone",
        "Targets",
        "Run times (figures 3 and 4)",
        "Bandwidth around a notice (figure 5)",
        "More than a notice can move",
        "What it costs (figure 6)",
        "Which sizes fit which notice (figure 7)",
        "How long machines live (figure 2)",
        "How it was measured",
    ] {
        assert!(page.contains(&format!("<h2>{title}</h2>")), "{title}");
    }
    assert!(page.contains("8.00 MiB saved") && page.contains("3.00 MiB lost"));
    assert!(page.contains("+25.0 %"), "the slowdown is missing");
    assert!(page.contains("bytes &lt;lost&gt;") && !page.contains("<!--"));
    assert!(page.contains("spot, read-only, sanderling"), "the measured cost is missing");
    assert!(!page.contains("NaN") && !page.contains(",null"), "a figure is no number");
}

#[test]
fn verdict_names_what_each_policy_lost() {
    let mut lab = lab();
    let found = verdict(&lab).unwrap();
    assert!(found.is_good, "{found:?}");
    assert!(found.text.contains("sanderling met 4 notices, lost nothing"), "{found:?}");
    assert!(found.text.contains("baseline met 4 notices, lost 12.0 MiB"), "{found:?}");
    lab.targets[0].is_reached = Some(false);
    assert!(!verdict(&lab).unwrap().is_good);
}

#[test]
fn page_of_an_interrupted_run_shows_what_there_is() {
    let mut lab = lab();
    lab.runs.truncate(1);
    lab.targets.clear();
    let page = of(&lab, &computed(&lab));
    assert!(verdict(&lab).is_none() && !page.contains("Bandwidth around"));
    assert!(page.contains("How it was measured") && !page.contains("NaN"));
}

#[test]
fn files_for_spreadsheets_lie_beside_the_page() {
    let directory = tempfile::tempdir().unwrap();
    let lab = lab();
    let path = save(&lab, &computed(&lab), directory.path()).unwrap();
    assert!(path.exists());
    for name in ["targets.csv", "targets.json", "figure2.csv", "figure6.json", "figure7.csv"] {
        assert!(directory.path().join(name).exists(), "{name}");
    }
    let rows = std::fs::read_to_string(directory.path().join("targets.csv")).unwrap();
    assert_eq!(rows.lines().count(), 3, "{rows}");
}
