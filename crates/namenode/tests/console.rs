//! What the web console calls, over HTTP spoken by hand.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::support::{self, options, path, silent, start};
use sanderling_protocol::message::{JobHints, RegisterJob};
use sanderling_protocol::{Millis, Reply, Request};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Sends one request and returns the head and the body.
async fn call(fixture: &support::Fixture, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(fixture.server.http_address().unwrap()).await.unwrap();
    let (line, more) = request.split_once('\n').unwrap_or((request, ""));
    let head = format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{more}\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(support::WITHIN, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_ascii_lowercase(), body.to_owned())
}

async fn json(fixture: &support::Fixture, request: &str) -> (u16, Value) {
    let (head, body) = call(fixture, request).await;
    (head[9..12].parse().unwrap(), serde_json::from_str(&body).unwrap())
}

/// A console's stream.
struct Console(Lines<BufReader<TcpStream>>);

impl Console {
    async fn open(fixture: &support::Fixture, after: u64) -> Self {
        let address = fixture.server.http_address().unwrap();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET /v1/stream?after={after} HTTP/1.1\r\nHost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        Self(BufReader::new(stream).lines())
    }

    /// Returns the next frame of that name.
    async fn next(&mut self, name: &str) -> Value {
        let name = format!("event: {name}");
        while self.line().await != name {}
        serde_json::from_str(self.line().await.strip_prefix("data: ").unwrap()).unwrap()
    }

    async fn line(&mut self) -> String {
        timeout(support::WITHIN, self.0.next_line()).await.unwrap().unwrap().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_the_console_are_served_with_their_policy_and_again_only_when_they_differ() {
    let place = tempfile::tempdir().unwrap();
    let fixture = start(options(place.path())).await;
    for file in sanderling_console::assets() {
        let (head, body) = call(&fixture, &format!("GET {}", file.path)).await;
        assert!(head.starts_with("http/1.1 200"), "{head}");
        for line in [
            "content-security-policy: default-src 'none'; script-src 'self';",
            "frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            &format!("content-type: {}", file.media_type),
            &format!("etag: {}", file.etag),
        ] {
            assert!(head.contains(line), "{line} of {}: {head}", file.path);
        }
        assert_eq!(body, file.text);
        let again = format!("GET {}\nIf-None-Match: {}\r\n", file.path, file.etag);
        let (head, body) = call(&fixture, &again).await;
        assert!(head.starts_with("http/1.1 304") && body.is_empty(), "{head}");
    }
    fixture.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_has_the_whole_state_and_then_what_changes() {
    let place = tempfile::tempdir().unwrap();
    let fixture = start(options(place.path())).await;
    let ((_first, first), (_second, second)) = (silent(), silent());
    fixture.datanode(1, &first).await;
    let mut console = Console::open(&fixture, 0).await;
    let hello = console.next("hello").await;
    assert_eq!((&hello["may_administer"], &hello["needs_token"]), (&true.into(), &false.into()));
    let fleet = console.next("fleet").await;
    assert_eq!(fleet["nodes"][0]["name"], "node-1");
    assert_eq!(fleet["nodes"][0]["is_spot"], false, "it declared no notice");
    let events = console.next("events").await;
    let last = events["events"].as_array().unwrap().last().unwrap();
    assert_eq!(last["kind"]["node_registered"]["name"], "node-1");
    let last = last["sequence"].as_u64().unwrap();

    fixture.datanode(2, &second).await;
    loop {
        let delta = console.next("delta").await;
        let nodes = delta["nodes"].as_array().unwrap();
        if nodes.iter().any(|node| node["name"] == "node-2") {
            break;
        }
    }
    let events = console.next("events").await;
    assert_eq!(events["events"][0]["kind"]["node_registered"]["name"], "node-2");

    // After a lost connection only what is new comes, and all of it if the numbers began anew.
    let mut again = Console::open(&fixture, last).await;
    let events = again.next("events").await;
    assert_eq!(events["events"].as_array().unwrap().len(), 1, "{events}");
    let mut other = Console::open(&fixture, 1 << 40).await;
    let events = other.next("events").await;
    assert!(events["events"].as_array().unwrap().len() >= 3, "{events}");
    // Streams that are open do not hold up the stop.
    timeout(support::WITHIN, fixture.server.stop()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn last_hour_has_a_sample_at_once() {
    let place = tempfile::tempdir().unwrap();
    let fixture = start(options(place.path())).await;
    let deadline = tokio::time::Instant::now() + support::WITHIN;
    let history = loop {
        let (status, history) = json(&fixture, "GET /v1/history").await;
        assert_eq!((status, history["step_millis"].as_u64()), (200, Some(5000)));
        if !history["samples"].as_array().unwrap().is_empty() {
            break history;
        }
        assert!(tokio::time::Instant::now() < deadline);
    };
    let fields = history["fields"].as_array().unwrap().len();
    assert_eq!(history["samples"][0].as_array().unwrap().len(), fields);
    fixture.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forecast_comes_before_the_act_and_changes_nothing() {
    let place = tempfile::tempdir().unwrap();
    let fixture = start(options(place.path())).await;
    let (_socket, address) = silent();
    fixture.datanode(1, &address).await;
    let (status, plan) = json(&fixture, "GET /v1/nodes/node-1/forecast?deadline_seconds=1.5").await;
    assert_eq!((status, plan["deadline_millis"].as_u64()), (200, Some(1500)), "{plan}");
    assert_eq!((&plan["fits"], plan["blocks"].as_u64()), (&true.into(), Some(0)));
    let (status, plan) = json(&fixture, "GET /v1/nodes/1/forecast").await;
    assert_eq!((status, &plan["deadline_millis"]), (200, &Value::Null));
    let (_, node) = json(&fixture, "GET /v1/nodes/1").await;
    assert_eq!(node["policy"], "active");
    for (target, status, name) in [
        ("/v1/nodes/9/forecast", 404, "UnknownNode"),
        ("/v1/nodes/1/forecast?deadline_seconds=-1", 400, "BadRequest"),
        ("/v1/nodes/1/forecast?deadline_seconds=NaN", 400, "BadRequest"),
        ("/v1/nodes/1/forecast?deadline_seconds=x", 400, "Http"),
        ("/v1/nodes/1/forecast?x=1", 400, "Http"),
        ("/v1/stream?after=-1", 400, "Http"),
    ] {
        let (got, page) = json(&fixture, &format!("GET {target}")).await;
        assert_eq!((got, page["error"]["name"].as_str()), (status, Some(name)), "{target}: {page}");
    }
    fixture.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn job_is_listed_and_ended() {
    let place = tempfile::tempdir().unwrap();
    let fixture = start(options(place.path())).await;
    let lease = Millis(600_000);
    let request =
        RegisterJob { path: path("/a"), lease, quota_bytes: None, hints: JobHints::default() };
    let Ok(Reply::Job(info)) = fixture.call(Request::RegisterJob(request)).await else { panic!() };
    let job = info.job;
    let mut console = Console::open(&fixture, 0).await;
    let jobs = console.next("jobs").await;
    assert_eq!((&jobs["jobs"][0]["path"], jobs["total"].as_u64()), (&"/a".into(), Some(1)));
    let (_, listed) = json(&fixture, "GET /v1/jobs").await;
    assert_eq!(listed["jobs"][0]["job"].as_u64(), Some(job.0));
    let end = format!("POST /v1/jobs/{job}/end");
    let (status, _) = json(&fixture, &end).await;
    assert_eq!(status, 200);
    let jobs = console.next("jobs").await;
    assert_eq!(jobs["total"].as_u64(), Some(0));
    let (status, page) = json(&fixture, "POST /v1/jobs/77/end").await;
    assert_eq!((status, page["error"]["name"].as_str()), (404, Some("UnknownJob")), "{page}");
    fixture.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_that_are_opened_in_a_loop_share_one_reading_of_the_catalog_each_second() {
    let place = tempfile::tempdir().unwrap();
    let fixture = start(options(place.path())).await;
    let (_socket, address) = silent();
    fixture.datanode(1, &address).await;
    let (began, mut readings) = (tokio::time::Instant::now(), std::collections::BTreeSet::new());
    for after in (0..2).cycle().take(100) {
        let mut console = Console::open(&fixture, after).await;
        let fleet = console.next("fleet").await;
        assert_eq!(fleet["nodes"][0]["name"], "node-1");
        assert_eq!(console.next("events").await["events"][0]["sequence"], after + 1);
        readings.insert(fleet["now"].as_u64().unwrap());
    }
    // One when it began, and one for each second.
    let most = began.elapsed().as_secs() + 2;
    assert!(readings.len() as u64 <= most, "{} readings, {most} are enough", readings.len());
    fixture.server.stop().await;
}
