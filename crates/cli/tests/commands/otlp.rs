//! The export of spans: one request is one trace across all processes, and a collector that
//! misbehaves harms no request.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use crate::cluster::guarded::kept;
use crate::cluster::{Cluster, SOON, Server, Shape, http, run, sanderling, until};
use sanderling_protocol::frame::{HEADER_BYTES, encode_body};
use sanderling_protocol::message::{Hello, Role};
use sanderling_protocol::trace::ACCEPTS_TRACES;
use sanderling_protocol::{Header, Op, Path, Request, TraceContext, version};
use serde_json::Value;

/// Bytes of several blocks.
const BYTES: usize = 3 << 20;

/// Requests that are sent together: their answers have room in a socket.
const FLOOD: u64 = 500;

/// A span as the collector received it.
#[derive(Debug, Clone)]
struct Received {
    service: String,
    name: String,
    trace: String,
    span: String,
    parent: Option<String>,
    kind: u64,
}

/// What a collector answers.
#[derive(Debug, Clone, Copy)]
enum Manner {
    Takes,
    /// Bytes that are no HTTP.
    Garbage,
    /// A good status, and a body that is no JSON.
    GarbageBody,
    Fails,
    /// Nothing, with the connection open.
    Hangs,
}

/// Serves OTLP on loopback. Its thread ends with the test.
fn collector(manner: Manner) -> (String, Receiver<Received>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (sender, received) = mpsc::channel();
    thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let answer: &[u8] = match manner {
                Manner::Takes => b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
                Manner::Garbage => b"\x00\xff garbage \r\n\r\n",
                Manner::GarbageBody => b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n\x00}{]",
                Manner::Fails => b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n",
                Manner::Hangs => {
                    open.push(stream);
                    continue;
                }
            };
            if let Some(body) = body_of(&mut stream) {
                spans_of(&body).into_iter().for_each(|span| drop(sender.send(span)));
            }
            let _ = stream.write_all(answer);
        }
    });
    (url, received)
}

/// Reads a request.
fn body_of(stream: &mut TcpStream) -> Option<Value> {
    stream.set_read_timeout(Some(SOON)).ok()?;
    let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
    loop {
        if let Some(end) = bytes.windows(4).position(|it| it == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
            assert!(head.starts_with("post /v1/traces http/1.1"), "{head}");
            let length = head.split("content-length: ").nth(1)?.lines().next()?;
            let length: usize = length.trim().parse().ok()?;
            if bytes.len() >= end + 4 + length {
                return serde_json::from_slice(&bytes[end + 4..]).ok();
            }
        }
        match stream.read(&mut part).ok()? {
            0 => return None,
            count => bytes.extend_from_slice(&part[..count]),
        }
    }
}

fn spans_of(body: &Value) -> Vec<Received> {
    let resource = &body["resourceSpans"][0];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let service = text(&resource["resource"]["attributes"][0]["value"]["stringValue"]);
    let spans = resource["scopeSpans"][0]["spans"].as_array().expect("a list");
    let read = |span: &Value| Received {
        service: service.clone(),
        name: text(&span["name"]),
        trace: text(&span["traceId"]),
        span: text(&span["spanId"]),
        parent: span["parentSpanId"].as_str().map(str::to_owned),
        kind: span["kind"].as_u64().expect("a kind"),
    };
    spans.iter().map(read).collect()
}

/// A cluster whose servers export to a collector.
fn traced(url: &str, datanodes: usize) -> Cluster {
    Cluster::start(Shape {
        datanodes,
        namenode: vec!["--otlp".to_owned(), url.to_owned()],
        // Through the socket of this machine, blocks pass without a request for each.
        datanode: vec!["--otlp", kept(url), "--local-socket", "none"],
        ..Shape::default()
    })
}

fn store(cluster: &Cluster, url: &str) {
    let (from, to) = (cluster.path("from"), cluster.path("to"));
    let (from, to) = (from.to_str().expect("UTF-8"), to.to_str().expect("UTF-8"));
    let bytes: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
    std::fs::write(from, &bytes).expect("written");
    for words in [["fs", "put", from, "/x"], ["fs", "get", "/x", to]] {
        let ran = cluster.cli(&[&words[..], &["--force", "--otlp", url]].concat());
        assert_eq!(ran.code, 0, "{ran}");
    }
    assert_eq!(std::fs::read(to).expect("fetched"), bytes);
}

/// Waits for the span of that name and service under another one, by its span id.
fn find(all: &[Received], service: &str, name: &str, under: Option<&Received>) -> Option<Received> {
    let is_meant = |it: &&Received| {
        it.service == service
            && it.name == name
            && it.parent.as_ref() == under.map(|it| &it.span)
            && under.is_none_or(|under| under.trace == it.trace)
    };
    all.iter().find(is_meant).cloned()
}

#[test]
fn request_is_one_trace_from_the_command_to_the_servers() {
    let (url, received) = collector(Manner::Takes);
    let cluster = traced(&url, 1);
    store(&cluster, &url);
    let mut all = Vec::new();
    until("the spans of all processes", SOON, || {
        all.extend(received.try_iter());
        let tools = [("put", "create", "write"), ("get", "lookup", "read")];
        tools.iter().all(|(verb, meta, data)| is_whole(&all, verb, meta, data)).then_some(())
    });
    let span = |it: &Received| it.span.clone();
    let ids: std::collections::BTreeSet<String> = all.iter().map(span).collect();
    assert_eq!(ids.len(), all.len(), "each span has its own id");
}

/// Returns whether a command's trace has the calls of both servers, and their answers below them.
fn is_whole(all: &[Received], verb: &str, meta: &str, data: &str) -> bool {
    let tool = "sanderling-cli";
    let roots = all.iter().filter(|it| it.service == tool && it.name == "fs");
    roots.into_iter().any(|root| {
        assert_eq!(root.parent, None);
        if find(all, tool, verb, Some(root)).is_none() {
            return false;
        }
        let has = |name: &str, server: &str| {
            let calls = all
                .iter()
                .filter(|it| it.trace == root.trace && it.name.starts_with(name) && it.kind == 3);
            calls.into_iter().any(|call| {
                let answer = find(all, server, &call.name, Some(call));
                answer.is_some_and(|answer| answer.kind == 2)
            })
        };
        has(meta, "sanderling-namenode") && has(data, "sanderling-datanode")
    })
}

#[test]
fn command_that_calls_the_namenode_begins_a_trace() {
    let (url, received) = collector(Manner::Takes);
    let cluster = Cluster::of(0);
    for words in [&["node", "ls"][..], &["job", "ls"], &["fsck"]] {
        let ran = cluster.cli(&[words, &["--otlp", &url]].concat());
        assert_eq!(ran.code, 0, "{ran}");
        let mut all = Vec::new();
        until("the command and its calls", SOON, || {
            all.extend(received.try_iter());
            let root = find(&all, "sanderling-cli", words[0], None)?;
            all.iter().find(|it| it.kind == 3 && it.parent.as_ref() == Some(&root.span)).map(drop)
        });
    }
}

#[test]
fn command_that_records_no_spans_refuses_a_collector() {
    let url = "http://127.0.0.1:4318";
    let refused = |line: &str| {
        let ran = run(sanderling().args(line.split(' ')).args(["--otlp", url]));
        assert_eq!(ran.code, 2, "{line}: {ran}");
        assert!(ran.stderr.contains("records no spans"), "{line}: {ran}");
        let next = ran.stderr.lines().find_map(|line| line.trim().strip_prefix("next:"));
        next.unwrap_or_else(|| panic!("{line}: {ran}")).trim().to_owned()
    };
    for line in [
        "context ls",
        "top",
        "events",
        "doctor",
        "token mint --subtree /a",
        "token revoked",
        "datanode drain",
        "namenode backup --to /dev/null/copy",
        "local status --dir /dev/null/local",
        "sim --seeds 1",
    ] {
        assert_eq!(refused(line), format!("sanderling {line}"));
    }
    // Their servers inherit the environment.
    for line in ["local start --dir /dev/null/local", "local add --dir /dev/null/local", "tour"] {
        assert_eq!(refused(line), format!("SANDERLING_OTLP={url}/v1/traces sanderling {line}"));
    }
}

#[test]
fn collector_of_the_environment_is_for_the_commands_that_record_spans() {
    let (url, _received) = collector(Manner::Takes);
    let cluster = Cluster::of(0);
    let command = |words: &[&str]| {
        let mut command = sanderling();
        command.args(words).env("SANDERLING_NAMENODE", &cluster.namenode.address);
        run(command.env("SANDERLING_OTLP", &url))
    };
    for words in [&["events"][..], &["token", "revoked"], &["context", "ls"]] {
        let ran = command(words);
        assert_eq!(ran.code, 0, "{ran}");
    }
}

#[test]
fn user_and_password_of_a_collector_or_a_namenode_are_refused_and_not_repeated() {
    for (name, value, shown) in [
        ("SANDERLING_OTLP", "http://me:TOPSECRET@127.0.0.1", "http://***@127.0.0.1"),
        ("SANDERLING_NAMENODE", "me:TOPSECRET@127.0.0.1:1", "***@127.0.0.1:1"),
        ("SANDERLING_NAMENODE", "http://me:TOPSECRET@127.0.0.1:1", "http://***@127.0.0.1:1"),
    ] {
        let refused = run(sanderling().args(["fs", "df"]).env(name, value));
        assert!(refused.code == 2 && refused.stderr.contains(shown), "{refused}");
        assert!(!refused.stderr.contains("TOPSECRET"), "{refused}");
    }
}

/// Returns a counter of a server.
fn counter(server: &Server, name: &str) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let page = runtime.expect("a runtime").block_on(http::page(&server.http_address, "/metrics"));
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

#[test]
fn collector_that_is_absent_slow_or_answers_garbage_harms_no_request() {
    let absent = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        format!("http://{}", listener.local_addr().expect("an address"))
    };
    let mut urls = vec![absent];
    for manner in [Manner::Garbage, Manner::Fails, Manner::Hangs] {
        urls.push(collector(manner).0);
    }
    for url in &urls {
        let cluster = traced(url, 1);
        store(&cluster, url);
        let name = "sanderling_trace_spans_dropped_total{reason=\"collector\"}";
        let what = format!("{url} loses spans");
        until(&what, SOON, || (counter(&cluster.namenode, name) > 0).then_some(()));
    }
    // What is no answer of a collector is no report of lost spans, either.
    let url = collector(Manner::GarbageBody).0;
    let cluster = traced(&url, 1);
    store(&cluster, &url);
    let name = "sanderling_trace_spans_total";
    until("spans arrive", SOON, || (counter(&cluster.namenode, name) > 0).then_some(()));
}

#[test]
fn move_of_a_block_is_one_trace_from_the_manager_to_its_target() {
    let (url, received) = collector(Manner::Takes);
    let mut cluster = traced(&url, 2);
    store(&cluster, &url);
    for at in ["n0", "n1"] {
        let ran = cluster.cli(&["node", "notice", at, "--deadline", "60s"]);
        assert_eq!(ran.code, 0, "{ran}");
        if at == "n0" {
            let spare = ["--otlp", kept(&url), "--local-socket", "none"];
            cluster.add("n2", &spare);
        }
    }
    let mut all = Vec::new();
    until("the trace of a move", SOON, || {
        all.extend(received.try_iter());
        let pushes = all.iter().filter(|it| it.name == "push_blocks" && it.parent.is_none());
        pushes.into_iter().find_map(|push| {
            let order = find(&all, "sanderling-namenode", "order", Some(push))?;
            let taken = find(&all, "sanderling-datanode", "order", Some(&order))?;
            let sent = find(&all, "sanderling-datanode", "store", Some(&taken))?;
            find(&all, "sanderling-datanode", "store", Some(&sent))
        })
    });
}

/// A connection that sends what no library sends.
struct Raw(TcpStream);

impl Raw {
    /// Greets a namenode. Returns the flags of features in its answer, too.
    fn greet(address: &str) -> (Self, u32) {
        let stream = TcpStream::connect(address).expect("the namenode listens");
        stream.set_read_timeout(Some(SOON)).expect("a limit");
        let mut raw = Self(stream);
        let hello = Hello { role: Role::Client, cluster: None, node: None, token: None };
        let mut header = Header::new(Op::Hello, 1);
        header.flags = version::greeting_flags();
        raw.send(header, &encode_body(&hello));
        let answer = raw.receive();
        assert_eq!((answer.op, answer.status), (Op::Hello, 0));
        (raw, answer.length)
    }

    fn send(&mut self, mut header: Header, body: &[u8]) {
        header.body_bytes = u32::try_from(body.len()).expect("a short body");
        self.0.write_all(&[&header.encode()[..], body].concat()).expect("sent");
    }

    fn receive(&mut self) -> Header {
        let mut head = [0; HEADER_BYTES];
        self.0.read_exact(&mut head).expect("answered");
        let header = Header::decode(&head).expect("a frame");
        let mut body = vec![0; header.body_bytes as usize];
        self.0.read_exact(&mut body).expect("answered whole");
        header
    }

    /// Sends requests of one trace together, and receives their answers.
    fn flood(&mut self, context: TraceContext, requests: u64) {
        let body = encode_body(&vec![Request::Stat { path: Path::root() }]);
        let mut bytes = Vec::new();
        for request in 100..100 + requests {
            let mut header = Header::new(Op::Meta, request);
            header.body_bytes = u32::try_from(body.len()).expect("a short body");
            bytes.extend(context.header(request).encode());
            bytes.extend(header.encode());
            bytes.extend(&body);
        }
        self.0.write_all(&bytes).expect("sent");
        (0..requests).for_each(|_| assert_eq!(self.receive().op, Op::Meta));
    }

    /// Sends a request after it was announced so often, and checks that it alone is answered.
    fn request_after(&mut self, request: u64, announced: &[Header], body: &[u8]) {
        for header in announced {
            self.send(*header, body);
        }
        let requests = vec![Request::Stat { path: Path::root() }];
        self.send(Header::new(Op::Meta, request), &encode_body(&requests));
        let answer = self.receive();
        assert_eq!((answer.op, answer.request, answer.status), (Op::Meta, request, 0));
    }
}

#[test]
fn server_without_export_offers_no_traces_and_answers_none() {
    let cluster = Cluster::of(0);
    let (mut raw, features) = Raw::greet(&cluster.namenode.address);
    assert_eq!(features & ACCEPTS_TRACES, 0);
    let context = TraceContext { trace: 1, span: 2 };
    raw.request_after(7, &[context.header(7)], &[]);
    assert_eq!(counter(&cluster.namenode, "sanderling_trace_spans_total"), 0);
}

#[test]
fn hostile_peer_places_its_own_requests_in_its_own_trace_and_no_more_than_the_rate() {
    let (url, received) = collector(Manner::Takes);
    let cluster = traced(&url, 0);
    let (mut raw, features) = Raw::greet(&cluster.namenode.address);
    assert_eq!(features & ACCEPTS_TRACES, ACCEPTS_TRACES);
    // No ids, ids of another request, one after the other, and with a body.
    let (none, mine) = (TraceContext { trace: 0, span: 0 }, TraceContext { trace: 5, span: 6 });
    raw.request_after(1, &[none.header(1)], &[]);
    raw.request_after(2, &[mine.header(9)], &[]);
    raw.request_after(3, &[mine.header(3), none.header(3)], &[]);
    raw.request_after(4, &[none.header(4), mine.header(4)], &[0xff; 1000]);
    let dropped = "sanderling_trace_spans_dropped_total{reason=\"rate\"}";
    // One for the third request; how fast the others follow depends on the machine.
    let mut announced = 1;
    until("more spans than the rate are not recorded", SOON, || {
        raw.flood(mine, FLOOD);
        announced += FLOOD;
        (counter(&cluster.namenode, dropped) > 0).then_some(())
    });
    let mut all = Vec::new();
    until("the spans that were recorded", SOON, || {
        all.extend(received.try_iter());
        (all.len() as u64 >= announced - counter(&cluster.namenode, dropped)).then_some(())
    });
    let trace = format!("{:032x}", mine.trace);
    let parent = Some(format!("{:016x}", mine.span));
    let is_meant = |it: &Received| it.trace != trace || it.parent == parent && it.name == "stat";
    assert!(all.iter().all(is_meant), "{:?}", all.first());
}
