//! The metrics of running servers are those of the documentation, of the dashboards and of the
//! rules.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::cluster::guarded::{Guarded, kept, text};
use crate::cluster::{Cluster, Killed, Port, SOON, Shape, block_on, http, run, sanderling, until};
use crate::dashboards;
use crate::registry::{Registry, exported, family, names, read, root};

const RULES: &str = "deploy/prometheus/rules.yml";

#[test]
fn metrics_of_running_servers_are_those_of_the_page_the_dashboards_and_the_rules() {
    let registry = exported();
    check_units(&registry);
    check_page(&registry);
    dashboards::check(&registry);
    let rules = read(RULES);
    for name in names(&rules).iter().filter(|name| !name.ends_with('_')) {
        assert!(family(&registry, name).is_some(), "{RULES}: no server exports {name}");
    }
    let tests = read("deploy/prometheus/rules_test.yml");
    for alert in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        let tested = tests.matches(&format!("alertname: {alert}\n")).count();
        assert_eq!(tested, 2, "{alert} has a test in which it fires and one in which it is quiet");
        let page = read("docs/MONITORING.md");
        assert!(page.contains(&format!("`{alert}`")), "docs/MONITORING.md has no {alert}");
    }
}

#[test]
fn each_alert_has_a_section_of_day_two_with_a_text() {
    let (rules, page) = (read(RULES), read("docs/DAY-TWO.md"));
    let alerts = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let alerts: BTreeSet<&str> = alerts.collect();
    let (_, part) = page.split_once("\n## Alerts\n").expect("the section");
    let part = part.split("\n## ").next().expect("the section");
    let sections = part.split("\n### ").skip(1).map(|it| it.split_once('\n').unwrap_or((it, "")));
    let empty = sections.clone().find(|(_, text)| text.trim().is_empty());
    assert_eq!(empty, None, "a section without a text");
    let sections: BTreeSet<&str> = sections.map(|(alert, _)| alert).collect();
    assert!(!alerts.is_empty(), "{RULES} has no alerts");
    assert_eq!(sections, alerts, "docs/DAY-TWO.md and {RULES}");
}

/// Each name has its unit at its end, and one that is used for nothing else.
fn check_units(registry: &Registry) {
    for (name, metric) in registry {
        let ending = ["bytes", "seconds"].into_iter().find(|unit| name.ends_with(unit));
        assert_eq!(metric.unit, ending.unwrap_or_default(), "{name}: the unit ends the name");
        assert!(!metric.help.is_empty() && !metric.kind.is_empty(), "{name} is described");
        let endings: &[&str] = match metric.kind.as_str() {
            "counter" => &["_total"],
            "info" => &["_info"],
            "histogram" => &["_bucket", "_count", "_sum"],
            "gauge" => &[""],
            kind => panic!("{name} is of the kind {kind}"),
        };
        let expected: BTreeSet<String> =
            endings.iter().map(|ending| format!("{name}{ending}")).collect();
        let found: BTreeSet<String> = metric.samples.keys().cloned().collect();
        assert_eq!(found, expected, "{name}");
        let foreign = ["_total", "_millis", "_micros", "_kb", "_mb", "_ms", "_percent"];
        assert!(!foreign.iter().any(|ending| name.ends_with(ending)), "{name}");
    }
}

/// The page lists what is exported, with its labels, and nothing else.
fn check_page(registry: &Registry) {
    let page = read("docs/OPERATING.md");
    let metrics = page.split("\n## Metrics\n").nth(1).expect("the section");
    let metrics = metrics.split("\n## ").next().expect("the section");
    let mut prefix = "";
    let mut listed = BTreeSet::new();
    for line in metrics.lines() {
        if line.starts_with("Names of ") {
            prefix = line.split('`').nth(1).expect("the prefix");
        } else if line.starts_with("All servers") {
            prefix = "";
        }
        let Some(row) = line.strip_prefix("| `") else { continue };
        let cell = row.split(" | ").next().expect("a cell");
        for name in cell.trim_end_matches('`').split("`, `") {
            let (name, labels) = name.split_once('{').unwrap_or((name, ""));
            let labels = labels.trim_end_matches('}').split(',').filter(|label| !label.is_empty());
            let labels: BTreeSet<String> = labels.map(str::to_owned).collect();
            let name = format!("{prefix}{name}");
            let found = registry.get(&name).filter(|it| it.kind == "histogram");
            let found = found.or_else(|| family(registry, &name).map(|(_, it)| it));
            let metric = found.unwrap_or_else(|| panic!("no server exports {name}"));
            let mut exported: BTreeSet<String> =
                metric.samples.values().flatten().cloned().collect();
            exported.remove("le");
            assert_eq!(labels, exported, "the labels of {name}");
            listed.insert(name);
        }
    }
    for (name, metric) in registry {
        let sample = metric.samples.keys().next().expect("a sample");
        let name = if metric.kind == "histogram" { name } else { sample };
        assert!(listed.contains(name), "docs/OPERATING.md does not list {name}");
    }
}

/// Returns a program of Prometheus, or reports loudly that the test is skipped.
fn tool(name: &str) -> Option<std::path::PathBuf> {
    let unpacked = root().join("target/prometheus/usr/bin").join(name);
    let unpacked = unpacked.exists().then_some(unpacked);
    let found = unpacked.or_else(|| {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|it| it.join(name)).find(|it| it.exists())
    });
    if found.is_none() {
        eprintln!("SKIPPED: {name} is not here: scripts/promtool.sh");
    }
    found
}

#[test]
fn rules_and_scrape_configurations_are_valid_and_the_rules_pass_their_tests() {
    let Some(promtool) = tool("promtool") else { return };
    let directory = root().join("deploy/prometheus");
    let ran = |words: &[&str]| {
        let ran = Command::new(&promtool).args(words).current_dir(&directory).output();
        let ran = ran.expect("promtool runs");
        let text = [ran.stdout, ran.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
        assert!(ran.status.success(), "{words:?}: {}", text.concat());
    };
    ran(&["check", "rules", "rules.yml"]);
    ran(&["test", "rules", "rules_test.yml"]);
    for file in ["scrape-plain.yml", "scrape-tls.yml", "scrape-tokens.yml"] {
        ran(&["check", "config", "--syntax-only", file]);
    }
}

#[test]
fn queries_of_the_dashboards_are_valid() {
    let Some(promtool) = tool("promtool") else { return };
    let mut rules = "groups:\n- name: panels\n  rules:\n".to_owned();
    for file in ["namenode", "fleet", "notices", "spark"] {
        let text = read(&format!("deploy/grafana/{file}.json"));
        let dashboard: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let panels = dashboard["panels"].as_array().expect("panels");
        let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
        for (at, target) in targets.enumerate() {
            let query = target["expr"].as_str().expect("a query");
            let query = query.replace("$__rate_interval", "5m").replace("$cluster", ".*");
            let query = serde_json::to_string(&query).expect("JSON is YAML");
            rules += &format!("  - record: {file}:panel{at}\n    expr: {query}\n");
        }
    }
    let directory = tempfile::TempDir::new().expect("a directory for the test");
    let file = directory.path().join("panels.yml");
    std::fs::write(&file, rules).expect("written");
    let ran = Command::new(promtool).args(["check", "rules"]).arg(file).output();
    let ran = ran.expect("promtool runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn prometheus_scrapes_a_cluster_with_the_plain_configuration() {
    let Some(prometheus) = tool("prometheus") else { return };
    assert_scraped(&prometheus, &Cluster::of(2), "scrape-plain.yml", &[]);
}

#[test]
fn prometheus_scrapes_a_cluster_with_certificates_with_the_tls_configuration() {
    let Some(prometheus) = tool("prometheus") else { return };
    let place = tempfile::TempDir::new().expect("a directory for the test");
    let directory = text(place.path().join("tls"));
    let file = |name: &str| format!("{directory}/{name}");
    let made = run(sanderling().args(["tls", "new", "--out", &directory]));
    assert_eq!(made.code, 0, "{made}");
    let flags = [("--tls-ca", "ca.pem"), ("--tls-cert", "node.pem"), ("--tls-key", "node.key")];
    let datanode: Vec<&str> =
        flags.into_iter().flat_map(|(flag, name)| [flag, kept(&file(name))]).collect();
    let namenode = datanode.iter().map(|word| (*word).to_owned()).collect();
    let cluster = Cluster::start(Shape { datanodes: 2, namenode, datanode, ..Shape::default() });
    let authority = file("ca.pem");
    assert_scraped(&prometheus, &cluster, "scrape-tls.yml", &[(AUTHORITY, authority.as_str())]);
}

#[test]
fn prometheus_scrapes_a_cluster_with_a_secret_with_the_configuration_for_tokens() {
    let Some(prometheus) = tool("prometheus") else { return };
    let guarded = Guarded::encrypted(2, &[]);
    let token = text(guarded.place.path().join("metrics.token"));
    // As the file has it.
    let words = ["token", "new", "--secret-file", &guarded.secret, "--rights", "metrics"];
    let made = guarded.cli(None, &[&words[..], &["--expires", "365d", "--out", &token]].concat());
    assert_eq!(made.code, 0, "{made}");
    let authority = text(guarded.authority.clone().expect("TLS"));
    let paths = [(AUTHORITY, authority.as_str()), (TOKEN, token.as_str())];
    assert_scraped(&prometheus, &guarded.cluster, "scrape-tokens.yml", &paths);
}

/// Where the scrape configurations have the authority and the token.
const AUTHORITY: &str = "/etc/prometheus/sanderling/ca.pem";
const TOKEN: &str = "/etc/prometheus/sanderling/metrics.token";

/// Runs Prometheus with a scrape configuration, with this cluster's address and these paths in
/// place of the file's, until it has scraped the namenode and both datanodes.
fn assert_scraped(prometheus: &Path, cluster: &Cluster, name: &str, paths: &[(&str, &str)]) {
    let mut config = read(&format!("deploy/prometheus/{name}"));
    let address = ("127.0.0.1:7601", cluster.namenode.http_address.as_str());
    let often = ("refresh_interval: 30s", "refresh_interval: 1s");
    for (of_file, of_test) in paths.iter().copied().chain([address, often]) {
        assert!(config.contains(of_file), "{name} has no {of_file}");
        config = config.replace(of_file, of_test);
    }
    assert!(!config.contains("/etc/"), "{name} has another path: {config}");
    let global = "global: {scrape_interval: 1s, scrape_timeout: 1s}\n";
    let file = cluster.path("prometheus.yml");
    std::fs::write(&file, format!("{global}{config}")).expect("written");
    let port = Port::new();
    let address = port.address();
    let started = Command::new(prometheus)
        .arg(format!("--config.file={}", file.display()))
        .arg(format!("--storage.tsdb.path={}", cluster.path("tsdb").display()))
        .arg(format!("--web.listen-address={address}"))
        .arg("--log.level=error")
        .spawn();
    let mut server = Killed(started.expect("prometheus runs"));
    until("prometheus", SOON, || std::net::TcpStream::connect(&address).ok());
    let query = "/api/v1/query?query=count%20by%20(role)%20(up%7Bjob%3D%22sanderling%22%7D%3D%3D1)";
    let found = until("all servers to be scraped", SOON, || {
        assert!(server.0.try_wait().expect("our own child").is_none(), "prometheus ended");
        let page = block_on(http::page(&address, query));
        let page: serde_json::Value = serde_json::from_str(page.split("\r\n\r\n").nth(1)?).ok()?;
        let result = page["data"]["result"].as_array()?.clone();
        let count = |role: &str| {
            let found = result.iter().find(|it| it["metric"]["role"] == role);
            found.map(|it| it["value"][1].as_str().unwrap_or_default().to_owned())
        };
        (count("datanode")? == "2").then_some(count("namenode")?)
    });
    assert_eq!(found, "1");
}
