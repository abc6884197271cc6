//! Requests that no tool of ours would send, thrown at the HTTP endpoints: every answer is an error
//! page of the endpoint's own kind or the end of the connection, and no other client is disturbed.

use crate::cluster;
use std::time::Duration;

use crate::cluster::{Cluster, block_on, bytes_of, path};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sanderling_client::PutOptions;
use sanderling_protocol::Policy;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Requests of one run.
const REQUESTS: u64 = 600;

/// Longest wait for an answer, or for the end of a connection that waits for more.
const ANSWERED_WITHIN: Duration = Duration::from_secs(120);

fn pick<'a>(noise: &mut StdRng, all: &[&'a str]) -> &'a str {
    all[noise.random_range(0..all.len())]
}

fn bytes(noise: &mut StdRng, most: usize) -> Vec<u8> {
    (0..noise.random_range(0..most)).map(|_| noise.random()).collect()
}

const METHODS: &[&str] =
    &["GET", "GET", "POST", "POST", "DELETE", "PUT", "HEAD", "OPTIONS", "PATCH", "BREW", "get", ""];

/// Pages as they are, nearly are and never were. No node that is there is named: a notice that is
/// right would be done.
const TARGETS: &[&str] = &[
    "/",
    "//",
    "/healthz",
    "/metrics?x=1",
    "/v1/nodes?all=maybe",
    "/v1/nodes?unknown=1",
    "/v1/nodes/",
    "/v1/nodes/none",
    "/v1/nodes/none/notice",
    "/v1/nodes/99999999999999999999/notice",
    "/v1/nodes/-1/decommission",
    "/v1/nodes/%00%ff/recommend",
    "/v1/nodes/%2e%2e%2f/cancel",
    "/v1/nodes/\u{fc}/notice",
    "/v1/events?after=-1",
    "/v1/events?after=1e99",
    "/v1/report/../nodes",
    "/v1/notice/x",
    "/v2/nodes",
    "http://elsewhere.example/v1/nodes",
    "*",
    "no-slash",
    "/ /",
];

const HEADERS: &[&str] = &[
    "host: x",
    "host: x\r\nhost: y",
    "content-length: 5",
    "content-length: -1",
    "content-length: 99999999999999999999",
    "content-length: 5\r\ncontent-length: 7",
    "content-length: 70000",
    "transfer-encoding: chunked",
    "transfer-encoding: chunked\r\ncontent-length: 3",
    "transfer-encoding: gzip, chunked",
    "origin: http://evil.example",
    "origin: null",
    "authorization: Bearer",
    "authorization: Bearer a.b.c",
    "authorization: Basic Og==",
    "last-event-id: x",
    "expect: 100-continue",
    "connection: upgrade\r\nupgrade: websocket",
    "content-type: text/plain",
    ": nameless",
    "no colon",
    " folded: x",
];

const BODIES: &[&str] = &[
    "",
    "{}",
    "null",
    "[",
    "{\"deadline_seconds\": 1e400}",
    "{\"deadline_seconds\": -1}",
    "{\"deadline_seconds\": \"soon\"}",
    "{\"deadline_millis\": 9223372036854775808}",
    "{\"deadline_millis\": 1, \"deadline_seconds\": 1}",
    "{\"deadline_seconds\": 30, \"reason\": 7}",
    "{\"deadline_seconds\": 30, \"unknown\": true}",
    "{\"reason\": \"\\ud800\"}",
    "ffffffff\r\n",
    "5\r\nabc",
];

fn request(noise: &mut StdRng) -> Vec<u8> {
    if noise.random_range(0..12) == 0 {
        return bytes(noise, 3000);
    }
    let mut target = pick(noise, TARGETS).to_owned();
    match noise.random_range(0..20) {
        0 => target.push_str(&"a".repeat(noise.random_range(0..200_000))),
        1 => target.push_str(&"?a=1&".repeat(noise.random_range(0..2_000))),
        _ => {}
    }
    let mut body = match noise.random_range(0..8) {
        0 => bytes(noise, 2000),
        1 => "[".repeat(noise.random_range(0..100_000)).into_bytes(),
        _ => pick(noise, BODIES).as_bytes().to_vec(),
    };
    let version = pick(noise, &["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/9.9", "X"]);
    let mut head = format!("{} {target} {version}\r\n", pick(noise, METHODS));
    for _ in 0..noise.random_range(0..4) {
        head.push_str(pick(noise, HEADERS));
        head.push_str("\r\n");
    }
    if noise.random_range(0..3) > 0 {
        head.push_str(&format!("host: x\r\ncontent-length: {}\r\n", body.len()));
    }
    if noise.random_range(0..30) == 0 {
        head.push_str(&"x: y\r\n".repeat(noise.random_range(0..3_000)));
    }
    let mut request = head.into_bytes();
    if noise.random_range(0..20) > 0 {
        request.extend_from_slice(b"connection: close\r\n\r\n");
    }
    request.append(&mut body);
    request
}

/// Sends a request and returns everything that comes back until the server closes.
async fn thrown(address: &str, request: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.expect("the endpoint is open");
    // The server may close before it has taken everything.
    let _ = stream.write_all(request).await;
    let _ = stream.shutdown().await;
    let mut answer = Vec::new();
    let read = tokio::time::timeout(ANSWERED_WITHIN, stream.read_to_end(&mut answer)).await;
    assert!(read.is_ok(), "neither an answer nor an end to {}", request.escape_ascii());
    answer
}

/// An answer is nothing, or a response whose error, if it is one, is JSON, unless it was no HTTP.
fn check(request: &[u8], answer: &[u8]) {
    if answer.is_empty() {
        return;
    }
    let text = String::from_utf8_lossy(answer);
    let asked = request[..request.len().min(400)].escape_ascii();
    let status = text.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5));
    let status: u16 = status.and_then(|status| status.parse().ok()).unwrap_or_default();
    assert!((100..500).contains(&status), "{asked}: {text}");
    assert!(!text.contains("panicked") && !text.contains(".rs:"), "{asked}: {text}");
    let Some((_, body)) = text.split_once("\r\n\r\n") else { panic!("no head: {asked}: {text}") };
    if status >= 400 && !body.is_empty() {
        let page: Result<Value, _> = serde_json::from_str(body);
        let message = page.as_ref().ok().and_then(|page| page["error"]["message"].as_str());
        assert!(message.is_some_and(|message| !message.is_empty()), "{asked}: {text}");
    }
}

#[test]
fn noise_gets_error_pages_and_disturbs_no_other_caller() {
    let cluster = Cluster::of(2);
    let endpoints = [&cluster.namenode.http_address, &cluster.datanodes[0].http_address];
    block_on(async {
        let client = cluster.client().await;
        let data = bytes_of(1, 300_000);
        let options = PutOptions::default();
        client.put(&path("/file"), data.clone(), &options).await.expect("there is room");
        for seed in 1..=REQUESTS {
            let mut noise = StdRng::seed_from_u64(seed);
            let request = request(&mut noise);
            check(&request, &thrown(endpoints[(seed % 2) as usize], &request).await);
        }
        for endpoint in endpoints {
            assert_eq!(cluster::http::get(endpoint, "/healthz").await["status"], "ok");
        }
        assert!(client.get(&path("/file")).await.expect("it is there") == data);
        let nodes = client.nodes(true).await.expect("the namenode answers");
        assert!(nodes.iter().all(|node| node.policy == Policy::Active), "{nodes:?}");
    });
}
