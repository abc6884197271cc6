//! What running servers export, and what the pages and files name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use sanderling_client::{Client, PutOptions};
use sanderling_protocol::frame::Header;
use sanderling_protocol::message::{Hello, Role};
use sanderling_protocol::{BlockId, Op};
use sanderling_transport::{Connection, ConnectionOptions};

use crate::cluster::{Cluster, SOON, Server, Shape, block_on, http, path, until};

/// One family of samples.
#[derive(Debug, Clone, Default)]
pub(crate) struct Family {
    pub(crate) kind: String,
    pub(crate) unit: String,
    pub(crate) help: String,
    /// Names of its samples, each with the names of its labels.
    pub(crate) samples: BTreeMap<String, BTreeSet<String>>,
}

/// Families by name, of all kinds of servers.
pub(crate) type Registry = BTreeMap<String, Family>;

/// Returns the root of the repository.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn read(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Scrapes servers of each kind, after something of everything that is counted has happened.
pub(crate) fn exported() -> Registry {
    let archive = tempfile::tempdir().expect("a directory for the archive");
    let archived = archive.path().to_string_lossy().into_owned();
    let namenode = ["--no-manager".to_owned(), "--archive".to_owned(), archived].to_vec();
    let mut cluster = Cluster::start(Shape { namenode, ..Shape::default() });
    let file = cluster.path("notice");
    let source = format!("file:{}", file.display());
    cluster.add("source", &["--notice-source", &source]);
    let manager = cluster.manager("manager");
    let namenode = cluster.namenode.address.clone();
    let words = ["gateway", "s3", "--namenode", &namenode, "--listen", "127.0.0.1:0"];
    let gateway = cluster.serve("gateway", &[&words[..], &["--http", "127.0.0.1:0"]].concat());
    let datanode = cluster.datanode("source");
    let (blocks, pages) = (datanode.address.clone(), datanode.http_address.clone());
    let [manager_pages, gateway_pages] = [&manager, &gateway].map(|it| it.http_address.clone());
    // A namenode that is alone has no metrics of a group: another one that is joined has them.
    let founder = group_namenode(&cluster, "founder", &[]);
    let _joiner = group_namenode(&cluster, "joiner", &["--join", &founder.address]);
    let group = founder.http_address.clone();
    until("a group has a leader", SOON, || {
        let page = block_on(http::page(&group, "/metrics"));
        page.contains("sanderling_namenode_group_leads 1\n").then_some(())
    });
    let own = cluster.namenode.http_address.clone();
    let servers = [own, pages, manager_pages, gateway_pages, group];
    block_on(async {
        let client = cluster.client().await;
        cause_everything(&client, &blocks, &servers[1]).await;
        http::page(&gateway.address, "/").await;
        let mut registry = Registry::new();
        for server in &servers {
            add(&mut registry, &http::page(server, "/metrics").await);
        }
        // Servers without certificates describe these metrics and have no samples of them; the
        // tests of certificates scrape servers that have.
        for (name, family) in &mut registry {
            if name.ends_with("_certificate_expiry_timestamp_seconds") {
                let labels = BTreeSet::from(["kind".to_owned()]);
                family.samples.entry(name.clone()).or_default().extend(labels);
            }
        }
        registry
    })
}

/// Starts a namenode beside those of the cluster.
fn group_namenode(cluster: &Cluster, name: &str, flags: &[&str]) -> Server {
    let catalog = cluster.path(name).to_string_lossy().into_owned();
    let words = ["namenode", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--dir", &catalog];
    cluster.serve(name, &[&words[..], flags].concat())
}

/// Has the servers count what they otherwise do not export.
async fn cause_everything(client: &Client, blocks: &str, pages: &str) {
    let options = PutOptions::default();
    client.put(&path("/a"), bytes::Bytes::from_static(b"a"), &options).await.expect("put");
    client.stat(&path("/none")).await.expect_err("there is none");
    let hello = Hello { role: Role::Client, cluster: None, node: None, token: None };
    let deadline = tokio::time::Instant::now() + SOON;
    let options = ConnectionOptions::default();
    let (connection, _) =
        Connection::connect_with(blocks, hello, deadline, &options).await.expect("it greets");
    let mut header = Header::new(Op::Read, 1);
    (header.block, header.length) = (BlockId(999_999), 1);
    connection.call(header, Vec::new(), deadline).await.expect_err("there is no such block");
    let body = r#"{"deadline_seconds": 100, "reason": "test"}"#;
    http::post(pages, "/v1/notice", body).await;
    let limit = std::time::Instant::now() + SOON;
    while !http::page(pages, "/metrics").await.contains("notice_source_up{") {
        assert!(std::time::Instant::now() < limit, "the source of notices is not read");
    }
}

fn add(registry: &mut Registry, answer: &str) {
    let (head, text) = answer.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.contains(" 200 "), "{answer}");
    let mut current = String::new();
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some(what @ ("HELP" | "TYPE" | "UNIT")), Some(name), rest) => {
                name.clone_into(&mut current);
                let family = registry.entry(current.clone()).or_default();
                let rest = rest.unwrap_or_default().to_owned();
                match what {
                    "HELP" => family.help = rest,
                    "TYPE" => family.kind = rest,
                    _ => family.unit = rest,
                }
            }
            (Some("#"), Some("EOF"), ..) | (None, ..) => {}
            _ => {
                let (sample, labels) = sample(line);
                let family = registry.get_mut(&current).expect("a family comes before its samples");
                assert!(sample.starts_with(&current), "{line} is not of {current}");
                family.samples.entry(sample).or_default().extend(labels);
            }
        }
    }
    check_histograms(registry, text);
}

/// Queries of quantiles need the bucket above all bounds.
fn check_histograms(registry: &Registry, text: &str) {
    for (name, _) in registry.iter().filter(|(_, family)| family.kind == "histogram") {
        let start = format!("{name}_bucket{{");
        let mut buckets = text.lines().filter(|line| line.starts_with(&start)).peekable();
        let is_there = buckets.peek().is_none() || buckets.any(|it| it.contains("le=\"+Inf\""));
        assert!(is_there, "{name} has no bucket above all bounds");
    }
}

/// Returns the name of a sample, and those of its labels.
fn sample(line: &str) -> (String, BTreeSet<String>) {
    let (name, rest) = line.split_once(['{', ' ']).expect("a name and a value");
    let labels = rest.rsplit_once("} ").map_or("", |(labels, _)| labels);
    let labels = labels.split("\",").filter_map(|label| label.split_once("=\""));
    (name.to_owned(), labels.map(|(label, _)| label.to_owned()).collect())
}

/// Returns the family of a sample's name.
pub(crate) fn family<'a>(registry: &'a Registry, sample: &str) -> Option<(&'a str, &'a Family)> {
    registry
        .iter()
        .find(|(_, family)| family.samples.contains_key(sample))
        .map(|(name, family)| (name.as_str(), family))
}

/// Returns the names of metrics in a text: of this program, and of processes.
pub(crate) fn names(text: &str) -> BTreeSet<String> {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let starts = ["sanderling_namenode_", "sanderling_datanode_", "sanderling_gateway_"];
    let starts = [&starts[..], &["sanderling_manager_", "sanderling_build_", "process_"]].concat();
    let words = text.split(|letter| !is_word(letter));
    let is_metric = |word: &&str| starts.iter().any(|start| word.starts_with(start));
    words.filter(is_metric).map(str::to_owned).collect()
}
