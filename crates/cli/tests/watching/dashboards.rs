//! The Grafana dashboards, made from their panels here and from the metrics of running servers.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::registry::{Family, Registry, family, names, read, root};

/// Columns of a dashboard.
const WIDTH: u64 = 24;

/// Rows of a panel.
const HEIGHT: u64 = 8;

/// What the dashboards show.
const PANELS: &str = "deploy/grafana/panels.txt";

/// A dashboard: its file, its title, its rows.
#[derive(Default)]
struct Dashboard {
    file: String,
    title: String,
    rows: Vec<Row>,
    /// Beginnings of the metrics that all are in the dashboard; the last row has the rest.
    rest: Vec<String>,
}

#[derive(Default)]
struct Row {
    title: String,
    panels: Vec<Panel>,
}

/// A panel with its queries and their legends, and the unit if it is not the metric's.
#[derive(Default)]
struct Panel {
    title: String,
    unit: String,
    queries: Vec<(String, String)>,
}

/// Reads the dashboards.
fn dashboards(text: &str) -> Vec<Dashboard> {
    let mut found: Vec<Dashboard> = Vec::new();
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    for line in lines {
        if let Some(line) = line.strip_prefix("= ") {
            let (file, title) = line.split_once(": ").expect("a file and a title");
            let (file, title) = (file.to_owned(), title.to_owned());
            found.push(Dashboard { file, title, ..Dashboard::default() });
            continue;
        }
        let dashboard = found.last_mut().expect("a dashboard comes first");
        if let Some(rest) = line.strip_prefix("+ ") {
            dashboard.rest = rest.split(' ').map(str::to_owned).collect();
        } else if let Some(title) = line.strip_prefix("== ") {
            dashboard.rows.push(Row { title: title.to_owned(), panels: Vec::new() });
        } else {
            let panels = &mut dashboard.rows.last_mut().expect("a row comes first").panels;
            if let Some(query) = line.strip_prefix("  ") {
                let (query, legend) = query.rsplit_once(" | ").expect("a query and a legend");
                let panel = panels.last_mut().expect("a panel comes first");
                panel.queries.push((query.to_owned(), legend.to_owned()));
            } else {
                let (title, unit) = line.split_once(" [").unwrap_or((line, ""));
                let (title, unit) = (title.to_owned(), unit.trim_end_matches(']').to_owned());
                panels.push(Panel { title, unit, queries: Vec::new() });
            }
        }
    }
    found
}

/// Compares the dashboards with their files, or writes these with `UPDATE=1`.
pub(crate) fn check(registry: &Registry) {
    for dashboard in dashboards(&read(PANELS)) {
        let mut text = serde_json::to_string_pretty(&made(&dashboard, registry)).expect("JSON");
        text.push('\n');
        check_names(&text, registry);
        let file = format!("deploy/grafana/{}.json", dashboard.file);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(root().join(&file), text).expect("written");
        } else {
            assert!(read(&file) == text, "{file}: UPDATE=1 makes it from the metrics anew");
        }
    }
}

fn check_names(text: &str, registry: &Registry) {
    let names = names(text);
    for name in names.iter().filter(|name| !name.ends_with('_')) {
        assert!(family(registry, name).is_some(), "a panel names {name}, which is gone");
    }
    let source = "jvm/spark/src/main/java/org/apache/spark/shuffle/sanderling/ClientSource.java";
    let source = read(source);
    for name in text.split("_sanderling_").skip(1) {
        let name = name.split('_').next().expect("a name");
        assert!(source.contains(&format!("show(\"{name}\"")), "Spark does not show {name}");
    }
}

fn made(dashboard: &Dashboard, registry: &Registry) -> Value {
    let mut layout = Layout::default();
    for row in &dashboard.rows {
        layout.row(&row.title);
        let count = row.panels.len() as u64;
        let columns = if count.is_multiple_of(3) || count > 4 { 3 } else { 2 };
        for shown in &row.panels {
            layout.panel(panel(shown, registry), WIDTH / columns);
        }
    }
    let panels = layout.panels.iter();
    let shown: BTreeSet<String> = panels.flat_map(|it| names(&it.to_string())).collect();
    let is_of = |name: &str| dashboard.rest.iter().any(|start| name.starts_with(start));
    let is_shown = |family: &Family| family.samples.keys().any(|sample| shown.contains(sample));
    let rest = registry.iter().filter(|(name, family)| is_of(name) && !is_shown(family));
    let rest: Vec<_> = rest.collect();
    if !rest.is_empty() {
        layout.row("All other metrics");
    }
    for (name, family) in rest {
        layout.panel(plain_panel(name, family, registry), WIDTH / 4);
    }
    json!({
        "title": dashboard.title,
        "uid": format!("sanderling-{}", dashboard.file),
        "tags": ["sanderling"],
        "schemaVersion": 39,
        "editable": true,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": { "from": "now-1h", "to": "now" },
        "templating": { "list": variables() },
        "panels": layout.panels,
    })
}

fn variables() -> Value {
    json!([
        {
            "name": "datasource",
            "label": "Data source",
            "type": "datasource",
            "query": "prometheus",
        },
        {
            "name": "cluster",
            "label": "Cluster",
            "type": "query",
            "datasource": { "type": "prometheus", "uid": "${datasource}" },
            "query": "label_values(sanderling_build_info, cluster)",
            "refresh": 2,
            "includeAll": true,
            "allValue": ".*",
            "multi": true,
            "current": { "text": "All", "value": "$__all" },
        },
    ])
}

/// Places of panels, in rows.
#[derive(Default)]
struct Layout {
    panels: Vec<Value>,
    x: u64,
    y: u64,
}

impl Layout {
    fn row(&mut self, title: &str) {
        if self.x > 0 {
            self.y += HEIGHT;
        }
        let place = json!({ "x": 0, "y": self.y, "w": WIDTH, "h": 1 });
        self.add(json!({ "type": "row", "title": title, "collapsed": false, "gridPos": place }));
        (self.x, self.y) = (0, self.y + 1);
    }

    fn panel(&mut self, mut panel: Value, width: u64) {
        if self.x + width > WIDTH {
            (self.x, self.y) = (0, self.y + HEIGHT);
        }
        panel["gridPos"] = json!({ "x": self.x, "y": self.y, "w": width, "h": HEIGHT });
        self.x += width;
        self.add(panel);
    }

    fn add(&mut self, mut panel: Value) {
        panel["id"] = json!(self.panels.len() + 1);
        self.panels.push(panel);
    }
}

/// A panel of a metric as it is.
fn plain_panel(name: &str, family: &Family, registry: &Registry) -> Value {
    let labels: Vec<&str> = family.samples.values().flatten().map(String::as_str).collect();
    let legend = labels.iter().filter(|label| **label != "le").map(|it| format!("{{{{{it}}}}}"));
    let legend: Vec<String> = ["{{instance}}".to_owned()].into_iter().chain(legend).collect();
    let query = match family.kind.as_str() {
        "counter" => format!("rate({name}_total[$i])"),
        "histogram" => {
            format!("histogram_quantile(0.99, sum by (instance, le) (rate({name}_bucket[$i])))")
        }
        "info" => format!("{name}_info"),
        // Grafana shows instants in milliseconds.
        _ if is_instant(name) => format!("{name} * 1000"),
        _ => name.to_owned(),
    };
    // Other programs export metrics of their processes, too, without a role.
    let sample = if family.kind == "counter" { format!("{name}_total") } else { name.to_owned() };
    let of_servers = format!("{sample}{{role=~\".+\"}}");
    let query = match name.starts_with("process_") {
        true => query.replacen(&sample, &of_servers, 1),
        false => query,
    };
    let title = ["sanderling_", "process_"].iter().find_map(|start| name.strip_prefix(start));
    let title = title.unwrap_or(name).replace('_', " ");
    let (unit, queries) = (String::new(), vec![(query, legend.join(" "))]);
    panel(&Panel { title, unit, queries }, registry)
}

fn panel(panel: &Panel, registry: &Registry) -> Value {
    let Panel { title, unit, queries } = panel;
    let first = names(&queries[0].0).into_iter().find_map(|name| family(registry, &name));
    let targets: Vec<Value> = queries
        .iter()
        .zip('A'..)
        .map(|((query, legend), id)| {
            json!({ "refId": id.to_string(), "expr": selected(query), "legendFormat": legend })
        })
        .collect();
    let of_metric = unit_of(&queries[0].0, first.map(|it| it.1));
    let unit = if unit.is_empty() { of_metric } else { unit };
    let description = first.map(|(_, family)| family.help.clone()).unwrap_or_default();
    json!({
        "type": "timeseries",
        "title": title,
        "description": description,
        "datasource": { "type": "prometheus", "uid": "${datasource}" },
        "fieldConfig": { "defaults": { "unit": unit, "min": 0 }, "overrides": [] },
        "options": { "legend": { "displayMode": "list", "placement": "bottom" } },
        "targets": targets,
    })
}

/// Returns Grafana's name of the unit of a query, by the unit of its metric.
fn unit_of(query: &str, family: Option<&Family>) -> &'static str {
    let is_rate = query.contains("rate(") && !query.contains("histogram_quantile");
    match (family.map(|family| family.unit.as_str()), is_rate) {
        (Some("bytes"), false) => "bytes",
        (Some("bytes"), true) => "Bps",
        (Some("seconds"), false) if is_instant(query) => "dateTimeFromNow",
        (Some("seconds"), false) => "s",
        (Some("seconds"), true) => "percentunit",
        (_, true) => "ops",
        (_, false) => "short",
    }
}

/// Returns whether a metric is an instant in Unix time.
fn is_instant(name: &str) -> bool {
    name.contains("_timestamp_seconds") || name.contains("_start_time_seconds")
}

/// Restricts each metric of a query to the chosen clusters.
fn selected(query: &str) -> String {
    let query = query.replace("[$i]", "[$__rate_interval]");
    let mut text = String::new();
    let mut rest = query.as_str();
    let of_program = names(&query);
    while let Some(at) = rest.find(['s', 'p', '{']) {
        let (before, after) = rest.split_at(at);
        text.push_str(before);
        let is_start = !text.ends_with(|it: char| it.is_ascii_alphanumeric() || it == '_');
        let end = after.find(|it: char| !it.is_ascii_alphanumeric() && it != '_');
        let word = &after[..end.unwrap_or(after.len())];
        if is_start && of_program.contains(word) {
            let after_word = &after[word.len()..];
            let inner = after_word.strip_prefix('{');
            text.push_str(word);
            text.push_str("{cluster=~\"$cluster\"");
            text.push_str(if inner.is_some() { "," } else { "}" });
            rest = inner.unwrap_or(after_word);
        } else if let Some(inner) = after.strip_prefix("{__name__=~\"sanderling_") {
            text.push_str("{cluster=~\"$cluster\",__name__=~\"sanderling_");
            rest = inner;
        } else {
            let next = word.len().max(1);
            text.push_str(&after[..next]);
            rest = &after[next..];
        }
    }
    text + rest
}
