//! HTTP, spoken by hand.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::support::{self, options, silent, start};
use sanderling_namenode::NamenodeOptions;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

async fn connect(fixture: &support::Fixture) -> TcpStream {
    TcpStream::connect(fixture.server.http_address().unwrap()).await.unwrap()
}

/// Sends one request and returns the status and the body.
async fn call(fixture: &support::Fixture, method: &str, target: &str, body: &str) -> (u16, String) {
    let mut stream = connect(fixture).await;
    let length = body.len();
    let head = format!("{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close");
    let request = format!("{head}\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(support::WITHIN, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}

async fn json(fixture: &support::Fixture, method: &str, target: &str, body: &str) -> (u16, Value) {
    let (status, body) = call(fixture, method, target, body).await;
    (status, serde_json::from_str(&body).unwrap_or_else(|_| panic!("no JSON: {body}")))
}

#[tokio::test(flavor = "multi_thread")]
async fn health_metrics_and_report_are_served() {
    let place = tempfile::tempdir().unwrap();
    let fixture = start(options(place.path())).await;
    let (_socket, address) = silent();
    fixture.datanode(1, &address).await;
    let (status, health) = json(&fixture, "GET", "/healthz", "").await;
    assert_eq!((status, health["status"].as_str()), (200, Some("ok")));
    let (status, metrics) = call(&fixture, "GET", "/metrics", "").await;
    assert_eq!(status, 200);
    for line in [
        "sanderling_namenode_nodes{policy=\"active\",availability=\"up\"} 1",
        "sanderling_namenode_requests_total{kind=\"register\"} 1",
        "sanderling_namenode_tier_bytes{tier=\"dram\",state=\"capacity\"} 1073741824",
        "sanderling_namenode_lost_bytes_total 0",
        "sanderling_namenode_journal_bytes ",
        "# EOF",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    let (status, report) = json(&fixture, "GET", "/v1/report", "").await;
    assert_eq!((status, report["blocks"].as_u64()), (200, Some(0)));
    fixture.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn notice_is_given_shown_and_taken_back() {
    let place = tempfile::tempdir().unwrap();
    let fixture = start(options(place.path())).await;
    let ((_first, first), (_second, second)) = (silent(), silent());
    fixture.datanode(1, &first).await;
    fixture.datanode(2, &second).await;
    let (status, nodes) = json(&fixture, "GET", "/v1/nodes", "").await;
    assert_eq!((status, nodes["nodes"].as_array().unwrap().len()), (200, 2));
    let body = r#"{"deadline_seconds": 30.5, "reason": "spot"}"#;
    let (status, node) = json(&fixture, "POST", "/v1/nodes/node-1/notice", body).await;
    assert_eq!(status, 200, "{node}");
    assert_eq!(node["reason"], "spot");
    let left = node["deadline_in"].as_u64().unwrap();
    assert!((29_000..=30_500).contains(&left), "{left}");
    let (status, node) = json(&fixture, "GET", "/v1/nodes/1", "").await;
    assert_eq!((status, node["name"].as_str()), (200, Some("node-1")));
    let (status, _) = json(&fixture, "DELETE", "/v1/nodes/1/notice", "").await;
    assert_eq!(status, 200);
    let (status, node) = json(&fixture, "POST", "/v1/nodes/1/recommend", "").await;
    assert_eq!((status, node["is_at_risk"].as_bool()), (200, Some(true)));
    let (status, node) = json(&fixture, "DELETE", "/v1/nodes/1/recommend", "").await;
    assert_eq!((status, node["is_at_risk"].as_bool()), (200, Some(false)));
    let (status, node) =
        json(&fixture, "POST", &format!("/v1/nodes/{second}/decommission"), "").await;
    assert_eq!((status, node["id"].as_u64()), (200, Some(2)));
    let (status, _) = json(&fixture, "POST", "/v1/nodes/2/cancel", "").await;
    assert_eq!(status, 200);
    fixture.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_gets_an_error_page_with_the_reason() {
    let place = tempfile::tempdir().unwrap();
    let fixture = start(options(place.path())).await;
    let (_socket, address) = silent();
    fixture.datanode(1, &address).await;
    let long = format!(r#"{{"deadline_seconds": 30, "reason": "{}"}}"#, "x".repeat(2000));
    let huge = "x".repeat(100_000);
    let notice = "/v1/nodes/1/notice";
    let cases = [
        ("POST", "/v1/nodes/9/notice", r#"{"deadline_seconds": 30}"#, 404, "UnknownNode"),
        ("POST", notice, r#"{"deadline_seconds": -1}"#, 400, "DeadlinePassed"),
        ("POST", notice, r#"{"deadline_seconds": 0}"#, 400, "DeadlinePassed"),
        ("POST", notice, r#"{"deadline_seconds": 1e300}"#, 400, "TooLarge"),
        // Seven days, and a moment more.
        ("POST", notice, r#"{"deadline_seconds": 604800.001}"#, 400, "TooLarge"),
        ("POST", notice, r#"{"deadline_millis": 9, "deadline_seconds": 1}"#, 400, "BadRequest"),
        ("POST", notice, r#"{"deadline_seconds": "soon"}"#, 400, "BadRequest"),
        ("POST", notice, r#"{"deadline_seconds": 30, "x": 1}"#, 400, "BadRequest"),
        ("POST", notice, "{", 400, "BadRequest"),
        ("POST", notice, "\u{0}\u{1}", 400, "BadRequest"),
        ("POST", notice, "", 400, "BadRequest"),
        ("POST", notice, &long, 413, "TooLarge"),
        ("POST", notice, &huge, 413, "Http"),
        ("POST", "/v1/nodes/1/cancel", "", 409, "WrongState"),
        ("GET", "/v1/nodes/none", "", 404, "UnknownNode"),
        ("GET", "/v1/nodes/%ff", "", 400, "Http"),
        ("GET", "/v1/nodes?all=maybe", "", 400, "Http"),
        ("GET", "/v1/nodes?every=true", "", 400, "Http"),
        ("GET", "/v1/events?after=x", "", 400, "Http"),
        ("GET", "/v2", "", 404, "Http"),
        ("PUT", "/v1/report", "", 405, "Http"),
    ];
    for (method, target, body, status, name) in cases {
        let (got, page) = json(&fixture, method, target, body).await;
        let start = &body[..body.len().min(60)];
        assert_eq!(got, status, "{method} {target} {start}: {page}");
        assert_eq!(page["error"]["name"], name, "{method} {target} {start}: {page}");
        assert!(!page["error"]["message"].as_str().unwrap().is_empty());
    }
    let longest = r#"{"deadline_seconds": 604800}"#;
    let (status, page) = json(&fixture, "POST", notice, longest).await;
    assert_eq!(status, 200, "seven days are no longer than seven days: {page}");
    fixture.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_streamed_and_taken_up_again_after_the_last_one_seen() {
    let place = tempfile::tempdir().unwrap();
    let fixture = start(options(place.path())).await;
    let mut stream = connect(&fixture).await;
    stream.write_all(b"GET /v1/events?after=0 HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut lines = BufReader::new(stream).lines();
    let mut next = async |prefix: &str| loop {
        let line = timeout(support::WITHIN, lines.next_line()).await.unwrap().unwrap().unwrap();
        if let Some(rest) = line.strip_prefix(prefix) {
            return rest.trim().to_owned();
        }
    };
    assert_eq!(next("id:").await, "1");
    let first: Value = serde_json::from_str(&next("data:").await).unwrap();
    assert!(first["kind"]["namenode_started"].is_object(), "{first}");
    let (_socket, address) = silent();
    fixture.datanode(1, &address).await;
    assert_eq!(next("id:").await, "2");
    let second: Value = serde_json::from_str(&next("data:").await).unwrap();
    assert_eq!(second["kind"]["node_registered"]["name"], "node-1");

    let mut stream = connect(&fixture).await;
    let again = b"GET /v1/events HTTP/1.1\r\nHost: x\r\nLast-Event-ID: 1\r\n\r\n";
    stream.write_all(again).await.unwrap();
    let mut lines = BufReader::new(stream).lines();
    loop {
        let line = timeout(support::WITHIN, lines.next_line()).await.unwrap().unwrap().unwrap();
        if let Some(id) = line.strip_prefix("id:") {
            assert_eq!(id.trim(), "2");
            break;
        }
    }
    // A stream that is open does not hold up the stop.
    timeout(support::WITHIN, fixture.server.stop()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn full_journal_shows_in_the_health_until_changes_are_taken_again() {
    let place = tempfile::tempdir().unwrap();
    let tiny = NamenodeOptions { journal_bytes_max: 2048, ..options(place.path()) };
    let fixture = start(tiny).await;
    let mut made = 0;
    while fixture.call(support::inline(&format!("/{made}"), &[7; 100])).await.is_ok() {
        made += 1;
    }
    let (status, health) = json(&fixture, "GET", "/healthz", "").await;
    assert_eq!((status, health["status"].as_str()), (200, Some("read_only")));
    assert!(health["failure"].as_str().unwrap().contains("limit"));
    // A shorter change still fits.
    fixture.call(support::directory("/d")).await.unwrap();
    let (_, health) = json(&fixture, "GET", "/healthz", "").await;
    assert_eq!(health["status"], "ok");
    fixture.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_other_sites_cannot_give_notices() {
    let place = tempfile::tempdir().unwrap();
    let fixture = start(options(place.path())).await;
    let (_socket, address) = silent();
    fixture.datanode(1, &address).await;
    let tries = [
        ("x", "http://evil", "403"),
        ("x", "null", "403"),
        // Its name leads here, so that a browser takes it for the page's own site.
        ("evil.example:7601", "http://evil.example:7601", "403"),
        ("x", "http://x", "200"),
    ];
    for (host, origin, status) in tries {
        let mut stream = connect(&fixture).await;
        let head = "POST /v1/nodes/1/decommission HTTP/1.1\r\nConnection: close";
        let request =
            format!("{head}\r\nHost: {host}\r\nOrigin: {origin}\r\nContent-Length: 0\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert_eq!(&answer[9..12], status, "{origin}");
    }
    fixture.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_request_does_not_hold_up_the_stop() {
    let place = tempfile::tempdir().unwrap();
    let fixture = start(options(place.path())).await;
    let mut stream = connect(&fixture).await;
    let half = b"POST /v1/nodes/1/notice HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{";
    stream.write_all(half).await.unwrap();
    let (status, _) = json(&fixture, "GET", "/healthz", "").await;
    assert_eq!(status, 200);
    timeout(support::WITHIN, fixture.server.stop()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_http_disturb_no_other_caller() {
    let place = tempfile::tempdir().unwrap();
    let fixture = start(options(place.path())).await;
    for bytes in [&b"\x00\x01\x02\r\n\r\n"[..], b"GET / HTTP/9.9\r\n\r\n", b"SD"] {
        let mut stream = connect(&fixture).await;
        stream.write_all(bytes).await.unwrap();
        drop(stream);
    }
    let (status, _) = json(&fixture, "GET", "/healthz", "").await;
    assert_eq!(status, 200);
    fixture.server.stop().await;
}
