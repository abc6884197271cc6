//! The lab's figures that need no fleet, as commands.

use crate::cluster::{run, sanderling};

#[test]
fn figures_are_printed_and_written_as_page_csv_and_json() {
    let directory = tempfile::TempDir::new().expect("a directory for the test");
    let out = directory.path().join("made/by/it");
    for figure in ["figure2", "figure6", "figure7", "checkpoint"] {
        let ran = run(sanderling().args(["lab", figure, "--out"]).arg(&out));
        assert_eq!(ran.code, 0, "{ran}");
        assert!(ran.stdout.lines().count() > 3, "{ran}");
        let read = |ending: &str| {
            let file = out.join(format!("{figure}.{ending}"));
            std::fs::read_to_string(file).expect("the file was written")
        };
        let page = read("html");
        assert!(
            page.contains("<script class=plot") && page.trim_end().ends_with("</html>"),
            "{figure}"
        );
        assert!(!page.contains("https://"), "{figure} loads something");
        assert!(read("csv").lines().count() > 3);
        let json: serde_json::Value = serde_json::from_str(&read("json")).expect("it is JSON");
        assert!(json.is_object());
    }
}

#[test]
fn lifetimes_stand_beside_the_models() {
    let directory = tempfile::TempDir::new().expect("a directory for the test");
    let file = directory.path().join("lifetimes.csv");
    let rows = "machine_type,zone,lifetime_seconds\nn1-highcpu-16,us-east1-b,3600\n\
                n1-highcpu-16,us-east1-b,7200\n";
    std::fs::write(&file, rows).expect("written");
    let ran = run(sanderling().args(["lab", "figure2", "--json", "--lifetimes"]).arg(&file));
    assert_eq!(ran.code, 0, "{ran}");
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).expect("it is JSON");
    assert_eq!(json["schema"], 1);
    let curves = json["curves"].as_array().expect("a list");
    let data = curves.iter().find(|curve| curve["is_data"] == true).expect("the data is shown");
    assert_eq!((&data["rows"], &data["mean_hours"]), (&2.into(), &1.5.into()));

    let ran = run(sanderling().args(["lab", "figure2", "--lifetimes", "/no/such/file"]));
    assert_eq!(ran.code, 3, "{ran}");
    let ran = run(sanderling().args(["lab", "figure2", "--model", "bathtub:nobody"]));
    assert_eq!(ran.code, 2, "{ran}");
}

#[test]
fn own_prices_and_links_are_reckoned_with() {
    let ran = run(sanderling()
        .args(["lab", "figure6", "--on-demand", "1", "--spot", "0.5"])
        .args(["--machines", "3", "--work", "1h", "--json"]));
    assert_eq!(ran.code, 0, "{ran}");
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).expect("it is JSON");
    assert_eq!(json["deployments"][0]["dollars"], 3.0);
    assert_eq!(json["deployments"][1]["dollars"], 2.0);
    let ran = run(sanderling().args(["lab", "figure7", "--egress", "10Gbit", "--notice", "30s"]));
    assert_eq!(ran.code, 0, "{ran}");
    assert!(ran.stdout.contains("10 Gbit/s") && !ran.stdout.contains("32 Gbit/s"), "{ran}");
}

#[test]
fn traces_are_printed_and_the_same_for_the_same_seed() {
    let draw = |more: &[&str]| {
        let begin = ["lab", "trace", "--nodes", "5", "--work", "60s", "--json"];
        let ran = run(sanderling().args(begin).args(more));
        assert_eq!(ran.code, 0, "{ran}");
        serde_json::from_str::<serde_json::Value>(&ran.stdout).expect("it is JSON")
    };
    let json = draw(&["--seed", "3"]);
    assert_eq!(json, draw(&["--seed", "3"]));
    assert_ne!(json["preemptions"], draw(&["--seed", "4"])["preemptions"]);
    assert_eq!(json["time_scale"], 120.0);
    let first = &json["preemptions"][0];
    assert!(first["at_seconds"].as_f64().expect("a time") <= 30.0, "{json}");
    assert!(first["slot"].as_u64().expect("a place") < 5, "{json}");

    let ran = run(sanderling().args(["lab", "trace", "--seed", "3"]));
    assert!(ran.code == 0 && ran.stdout.starts_with("  seconds  slot"), "{ran}");
    let ran = run(sanderling().args(["lab", "trace", "--model", "bathtub:nobody"]));
    assert_eq!(ran.code, 2, "{ran}");
}
