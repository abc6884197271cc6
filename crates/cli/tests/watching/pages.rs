//! The pages of the servers: each that is JSON has the version of its schema, and the first page of
//! a gateway leads to the console.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::cluster::{Cluster, Server, block_on, http};
use crate::registry::read;

/// A request for a page of JSON: its method, the page as the router has it, its target, its body,
/// and the status of its answer.
type JsonPage = (&'static str, &'static str, &'static str, &'static str, u16);

/// The method of another page, and the page.
type OtherPage = (&'static str, &'static str);

/// Pages of the namenode, in the order of the requests. `JOB` stands for the number of a job.
#[rustfmt::skip]
const NAMENODE: &[JsonPage] = &[
    ("GET", "/healthz", "/healthz", "", 200),
    ("GET", "/v1/nodes", "/v1/nodes", "", 200),
    ("GET", "/v1/nodes", "/v1/nodes?all=what", "", 400),
    ("GET", "/v1/nodes/{node}", "/v1/nodes/n0", "", 200),
    ("GET", "/v1/nodes/{node}", "/v1/nodes/none", "", 404),
    ("GET", "/v1/nodes/{node}/forecast", "/v1/nodes/n0/forecast?deadline_seconds=30", "", 200),
    ("POST", "/v1/nodes/{node}/notice", "/v1/nodes/n0/notice",
     r#"{"deadline_seconds": 300, "reason": "test"}"#, 200),
    ("POST", "/v1/nodes/{node}/notice", "/v1/nodes/n0/notice", "no JSON", 400),
    ("DELETE", "/v1/nodes/{node}/notice", "/v1/nodes/n0/notice", "", 200),
    ("POST", "/v1/nodes/{node}/recommend", "/v1/nodes/n0/recommend", "", 200),
    ("DELETE", "/v1/nodes/{node}/recommend", "/v1/nodes/n0/recommend", "", 200),
    ("POST", "/v1/nodes/{node}/decommission", "/v1/nodes/n0/decommission", "", 200),
    ("DELETE", "/v1/nodes/{node}/decommission", "/v1/nodes/n0/decommission", "", 200),
    ("POST", "/v1/nodes/{node}/recommend", "/v1/nodes/n0/recommend", "", 200),
    ("POST", "/v1/nodes/{node}/cancel", "/v1/nodes/n0/cancel", "", 200),
    ("POST", "/v1/nodes/{node}/cancel", "/v1/nodes/n0/cancel", "", 409),
    ("GET", "/v1/durable", "/v1/durable", "", 200),
    ("POST", "/v1/durable", "/v1/durable", "no JSON", 400),
    ("POST", "/v1/durable/wait", "/v1/durable/wait", "no JSON", 400),
    ("GET", "/v1/group", "/v1/group", "", 200),
    ("POST", "/v1/notice", "/v1/notice", "no JSON", 400),
    ("DELETE", "/v1/notice", "/v1/notice", "", 200),
    ("GET", "/v1/log", "/v1/log", "", 200),
    ("PUT", "/v1/log", "/v1/log", r#"{"filter": "info"}"#, 200),
    ("GET", "/v1/report", "/v1/report", "", 200),
    ("GET", "/v1/room", "/v1/room", "", 200),
    ("GET", "/v1/history", "/v1/history", "", 200),
    ("GET", "/v1/jobs", "/v1/jobs", "", 200),
    ("POST", "/v1/jobs/{job}/end", "/v1/jobs/JOB/end", "", 200),
    ("POST", "/v1/jobs/{job}/end", "/v1/jobs/JOB/end", "", 404),
    ("GET", "", "/v1/none", "", 404),
    ("POST", "", "/healthz", "", 405),
];

/// Its other pages: text, streams, a file, and a list in the form of Prometheus.
const OTHERS_OF_NAMENODE: &[OtherPage] = &[
    ("GET", "/metrics"),
    ("GET", "/v1/backup"),
    ("GET", "/v1/events"),
    ("GET", "/v1/stream"),
    ("GET", "/v1/targets"),
];

/// Pages of a datanode.
#[rustfmt::skip]
const DATANODE: &[JsonPage] = &[
    ("GET", "/healthz", "/healthz", "", 200),
    ("GET", "/v1/log", "/v1/log", "", 200),
    ("PUT", "/v1/log", "/v1/log", r#"{"filter": "info"}"#, 200),
    ("POST", "/v1/notice", "/v1/notice", "no JSON", 400),
    ("POST", "/v1/notice", "/v1/notice", r#"{"deadline_seconds": 300, "reason": "test"}"#, 200),
    ("GET", "", "/v1/none", "", 404),
    ("POST", "", "/healthz", "", 405),
];

/// Its other pages.
const OTHERS_OF_DATANODE: &[OtherPage] = &[("GET", "/"), ("GET", "/metrics")];

/// Returns the methods and paths of the routers in files.
fn routes(files: &[&str]) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for file in files {
        let text = read(file);
        for route in text.split(".route(\"").skip(1) {
            let (path, rest) = route.split_once('"').expect("the path ends");
            let end = [".fallback", ".merge", ";", "}"].into_iter().filter_map(|it| rest.find(it));
            let handlers = &rest[..end.min().unwrap_or(rest.len())];
            let handlers: String = handlers.split_whitespace().collect();
            for method in ["get", "post", "put", "delete", "patch", "any"] {
                let is_one = |before: char| handlers.contains(&format!("{before}{method}("));
                if is_one(',') || is_one('.') {
                    found.insert((method.to_uppercase(), path.to_owned()));
                }
            }
        }
    }
    assert!(!found.is_empty(), "{files:?} have no routes");
    found
}

/// Requests pages, and checks that each is JSON with its schema; `others` are the rest of the
/// routes.
fn check(server: &Server, files: &[&str], pages: &[JsonPage], others: &[OtherPage], job: &str) {
    let pair = |(method, path): (&str, &str)| (method.to_owned(), path.to_owned());
    let requested = pages.iter().filter(|page| !page.1.is_empty()).map(|page| (page.0, page.1));
    let requested = requested.chain(others.iter().copied()).map(pair);
    assert_eq!(requested.collect::<BTreeSet<_>>(), routes(files), "what the test requests");
    for (method, _, target, body, status) in pages {
        let target = target.replace("JOB", job);
        let request = http::send(&server.http_address, (method, &target), None, body);
        check_document(&format!("{method} {target}"), &block_on(request), *status);
    }
}

fn check_document(what: &str, answer: &str, status: u16) {
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.contains(&format!(" {status} ")), "{what}: {answer}");
    assert!(head.to_lowercase().contains("content-type: application/json"), "{what}: {answer}");
    let document: Value = serde_json::from_str(body).expect("the page is JSON");
    assert_eq!(document["schema"], 1, "{what}: {answer}");
    assert_eq!(document["error"].is_object(), status >= 400, "{what}: {answer}");
}

fn gateway(cluster: &Cluster, name: &str, flags: &[&str]) -> Server {
    let words = ["gateway", "s3", "--namenode", &cluster.namenode.address];
    let here = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    cluster.serve(name, &[&words[..], &here, flags].concat())
}

#[test]
fn every_page_of_json_has_the_version_of_its_schema_but_the_list_of_targets() {
    let cluster = Cluster::of(2);
    let job = cluster.cli(&["job", "new", "/job", "--lease", "1h"]);
    assert_eq!(job.code, 0, "{job}");
    let files = ["crates/namenode/src/http.rs", "crates/namenode/src/http/console.rs"];
    check(&cluster.namenode, &files, NAMENODE, OTHERS_OF_NAMENODE, job.stdout.trim());
    let files = ["crates/datanode/src/http.rs"];
    check(&cluster.datanodes[1], &files, DATANODE, OTHERS_OF_DATANODE, "");
    for server in [gateway(&cluster, "gateway", &[]), cluster.manager("manager")] {
        let answer = block_on(http::page(&server.http_address, "/healthz"));
        check_document(&format!("/healthz of {}", server.name), &answer, 200);
    }
    let targets = block_on(http::get(&cluster.namenode.http_address, "/v1/targets"));
    assert!(targets.is_array(), "{targets}");
}

/// Returns where the link to the console on the first page of a server leads.
fn console_of(server: &Server) -> String {
    let page = block_on(http::page(&server.http_address, "/"));
    assert!(page.contains(" 200 ") && page.contains("text/html"), "{page}");
    let (_, link) = page.split_once("Console of the cluster: <a href=\"").expect("a link");
    link.split('"').next().expect("the address").to_owned()
}

#[test]
fn first_page_of_a_gateway_leads_to_the_console() {
    let cluster = Cluster::of(0);
    let address = cluster.namenode.http_address.clone();
    let console = format!("http://{address}/");
    let link = console_of(&gateway(&cluster, "given", &["--console", &console]));
    assert_eq!(link, console);
    let page = block_on(http::page(&address, "/"));
    assert!(page.contains(" 200 ") && page.contains("/console/app.js"), "{page}");
    // Without the flag the console is at the port after the namenode's.
    let (host, port) = cluster.namenode.address.rsplit_once(':').expect("a port");
    let next = port.parse::<u16>().expect("a port").checked_add(1).expect("a port has one after");
    let link = console_of(&gateway(&cluster, "default", &[]));
    assert_eq!(link, format!("http://{host}:{next}/"));
}
