//! The list of targets for Prometheus.

use std::time::Duration;

use sanderling_protocol::Token;
use sanderling_transport::{ClientTls, PageCall, TLS_NAME};
use serde_json::Value;

use crate::cluster::guarded::Guarded;
use crate::cluster::{Cluster, SOON, block_on, http};

async fn get(
    address: &str,
    target: &str,
    tls: Option<&ClientTls>,
    token: Option<&Token>,
) -> (u16, String) {
    let (method, body, token) = ("GET", String::new(), token.cloned());
    let within = SOON.min(Duration::from_secs(30));
    let call = PageCall { address, tls, token, method, target, body, within };
    let (status, body) = call.send().await.expect("it answers");
    (status, String::from_utf8(body).expect("a text"))
}

/// Scrapes every target and returns its role and its node's name.
async fn scraped(
    targets: &Value,
    tls: Option<&ClientTls>,
    token: Option<&Token>,
) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for group in targets.as_array().expect("a list") {
        let address = group["targets"][0].as_str().expect("an address");
        let labels = &group["labels"];
        assert_eq!(labels["__scheme__"], if tls.is_some() { "https" } else { "http" });
        let role = labels["role"].as_str().expect("a role");
        let (status, text) = get(address, "/metrics", tls, token).await;
        assert_eq!(status, 200, "{address}: {text}");
        let build = format!("sanderling_build_info{{role=\"{role}\"");
        assert!(text.contains(&build), "{build} is not in {text}");
        let node = labels["node"].as_str().unwrap_or_default();
        found.push((role.to_owned(), node.to_owned()));
    }
    found.sort();
    found
}

fn expected(nodes: &[&str]) -> Vec<(String, String)> {
    let datanode = |node: &&str| ("datanode".to_owned(), (*node).to_owned());
    let namenode = ("namenode".to_owned(), String::new());
    nodes.iter().map(datanode).chain([namenode]).collect()
}

#[test]
fn targets_are_the_namenode_and_the_datanodes_that_serve_http() {
    let mut cluster = Cluster::of(2);
    cluster.add("silent", &["--http", "none"]);
    let address = cluster.namenode.http_address.clone();
    block_on(async {
        let targets = http::get(&address, "/v1/targets").await;
        assert_eq!(scraped(&targets, None, None).await, expected(&["n0", "n1"]));
    });
}

#[test]
fn targets_name_no_foreign_host() {
    let cluster = Cluster::of(0);
    let address = cluster.namenode.http_address.clone();
    let answer_to = |host: &str| {
        let request =
            format!("GET /v1/targets HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        let mut stream = std::net::TcpStream::connect(&address).expect("the endpoint is open");
        std::io::Write::write_all(&mut stream, request.as_bytes()).expect("sent");
        std::io::read_to_string(stream).expect("answered")
    };
    for host in ["evil.example", "evil.example:9090", "127.0.0.1.evil.example", "a b", "a/b"] {
        let answer = answer_to(host);
        let is_refused = ["HTTP/1.1 403", "HTTP/1.1 400"].iter().any(|it| answer.starts_with(it));
        assert!(is_refused && !answer.contains(&format!("[\"{host}")), "{host}: {answer}");
    }
    let answer = answer_to(&address);
    assert!(answer.contains(&format!("\"targets\":[\"{address}\"]")), "{answer}");
}

#[test]
fn targets_need_a_token_and_name_https_where_servers_have_them() {
    let guarded = Guarded::encrypted(2, &[]);
    let address = guarded.cluster.namenode.http_address.clone();
    let authority = guarded.authority.clone().expect("TLS");
    let tls = ClientTls::read(&authority, TLS_NAME).expect("made by tls new");
    let scraper = guarded.token(&["--rights", "metrics"]);
    let writer = guarded.token(&["--rights", "write"]);
    block_on(async {
        let (status, body) = get(&address, "/v1/targets", Some(&tls), None).await;
        assert_eq!(status, 401, "{body}");
        let error: Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!((&error["schema"], &error["error"]["code"]), (&1.into(), &160.into()));
        let (status, body) = get(&address, "/v1/targets", Some(&tls), Some(&writer)).await;
        assert_eq!(status, 403, "{body}");
        let (status, body) = get(&address, "/v1/targets", Some(&tls), Some(&scraper)).await;
        assert_eq!(status, 200, "{body}");
        let targets = serde_json::from_str(&body).expect("JSON");
        let found = scraped(&targets, Some(&tls), Some(&scraper)).await;
        assert_eq!(found, expected(&["n0", "n1"]));
    });
}
