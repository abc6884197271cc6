//! The cost of callers that are not admitted, at the endpoints of running servers: little memory,
//! and no place of another caller.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::cluster::{
    Cluster, SOON, Server, Shape, Starting, allow_open_files, block_on, bytes_of, http, path, until,
};
use sanderling_client::{Client, ClientConfig, PutOptions};
use sanderling_protocol::frame::{HEADER_BYTES, decode_body};
use sanderling_protocol::{Header, Op, Refusal};
use tempfile::TempDir;
use tokio::time::timeout;

/// More than a server has places for callers that it has admitted.
const SILENT: usize = 5_000;

/// More than an HTTP endpoint has places.
const SILENT_HTTP: usize = 300;

/// Fewer than a listener's queue has room for.
const QUEUED_MAX: usize = 100;

/// Descriptors that a server may have open where few of them are tested.
pub(super) const DESCRIPTORS: usize = 128;

/// Most of them that may be open, however many connect: the rest is for further files.
const DESCRIPTORS_OPEN_MAX: usize = DESCRIPTORS * 3 / 4;

/// Silent connections to each port of such a server: with its own files, those to two ports need
/// more descriptors than it has.
const SILENT_FEW: usize = 124;

/// How long a server keeps a connection of its protocol that sends nothing, while it has places.
const FIRST_BYTE_WITHIN: Duration = Duration::from_secs(3);

/// The same for HTTP.
const HEAD_WITHIN: Duration = Duration::from_secs(30);

/// Lines about connections that could not be accepted, in less than two minutes.
const LINES_MAX: usize = 10;

/// Opens connections and sends nothing.
fn open_silent(address: &str, count: usize) -> Vec<TcpStream> {
    let connect = |_| TcpStream::connect(address).expect("the endpoint is open");
    (0..count).map(connect).collect()
}

/// The same for more than wait in the kernel's queue: a caller that finds it full tries again after
/// a second. Returns when all have been accepted.
fn open_many(address: &str, count: usize) -> Vec<TcpStream> {
    let mut all = Vec::new();
    for _ in 0..count / QUEUED_MAX {
        all.extend(open_silent(address, QUEUED_MAX));
        until("the connections are accepted", SOON, || (queued(address) == 0).then_some(()));
    }
    all
}

/// Does something while connections are open that must not delay it, and returns them. They are
/// borne for some seconds: if a machine stands still for so long that the last of them have ended
/// by then, others are opened and it is done again.
fn beside<const COUNT: usize>(
    open: impl Fn() -> [Vec<TcpStream>; COUNT],
    work: impl Fn(),
) -> [Vec<TcpStream>; COUNT] {
    let limit = Instant::now() + SOON;
    loop {
        let opened = open();
        work();
        if opened.iter().all(|all| all.last().is_some_and(is_open)) {
            return opened;
        }
        assert!(Instant::now() < limit, "it is done only once those connections have ended");
    }
}

/// Returns whether a server has neither answered nor closed a connection.
fn is_open(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("a socket");
    let peeked = stream.peek(&mut [0]);
    stream.set_nonblocking(false).expect("a socket");
    peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// Returns how many connections wait to be accepted (`proc_net_tcp`: a listener's receive queue).
fn queued(address: &str) -> u64 {
    let port: u16 = address.rsplit_once(':').expect("a port").1.parse().expect("a number");
    let (local, listens) = (format!("0100007F:{port:04X}"), "0A");
    let table = std::fs::File::open("/proc/net/tcp").expect("Linux has it");
    // Listeners come first: the rest, which is long, is not read.
    let row = BufReader::new(table).lines().find_map(|line| {
        let line = line.expect("the table is text");
        let row: Vec<_> = line.split_ascii_whitespace().map(str::to_owned).collect();
        (row[1] == local && row[3] == listens).then_some(row)
    });
    let row = row.expect("the server listens");
    let (_, queued) = row[4].split_once(':').expect("two queues");
    u64::from_str_radix(queued, 16).expect("a number")
}

/// Returns the bytes of memory that a process has mapped in.
fn resident_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).expect("Linux has it");
    kib.parse::<u64>().expect("a number") << 10
}

#[test]
fn silent_connections_keep_no_client_out() {
    allow_open_files(SILENT as u64 + 1_000);
    let cluster = Cluster::of(1);
    let silent = open_many(&cluster.namenode.address, SILENT);
    block_on(async {
        let config = ClientConfig { call_deadline: SOON, ..ClientConfig::default() };
        let client = Client::connect(&cluster.namenode.address, config).await;
        let client = client.expect("a client that greets at once is let in");
        let (file, data) = (path("/file"), bytes_of(1, 300_000));
        let options = PutOptions::default();
        client.put(&file, data.clone(), &options).await.expect("the servers answer");
        client.stat(&file).await.expect("the namenode answers");
        assert!(client.get(&file).await.expect("the datanode answers") == data);
    });
    drop(silent);
}

#[test]
fn greetings_that_announce_much_cost_no_memory() {
    let cluster = Cluster::of(0);
    let mut header = Header::new(Op::Hello, 1);
    header.body_bytes = 16 << 20;
    let sent = [&header.encode()[..], &vec![7; 256 << 10]].concat();
    let before = resident_bytes(cluster.namenode.pid());
    let mut greedy = Vec::new();
    for _ in 0..200 {
        let mut stream =
            TcpStream::connect(&cluster.namenode.address).expect("the endpoint is open");
        stream.set_read_timeout(Some(SOON)).expect("not zero");
        stream.write_all(&sent).expect("it is taken");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("it is answered");
        let (head, body) = answer.split_first_chunk::<HEADER_BYTES>().expect("a header");
        assert_eq!(Header::decode(head).expect("it is ours").request, 0);
        let refusal: Refusal = decode_body(body).expect("a refusal");
        assert!(matches!(refusal, Refusal::TooLarge { .. }), "{refusal}");
        greedy.push(stream);
    }
    let more = resident_bytes(cluster.namenode.pid()).saturating_sub(before);
    assert!(more < 8 << 20, "{more} bytes for {} connections", greedy.len());
}

/// Requests a page that is to come.
pub(super) async fn health(endpoint: &str) {
    let page = timeout(SOON, http::get(endpoint, "/healthz")).await;
    assert_eq!(page.expect("health is answered")["status"], "ok", "{endpoint}");
}

#[test]
fn silent_http_connections_hide_no_page() {
    let cluster = Cluster::of(1);
    let words = ["gateway", "s3", "--namenode", &cluster.namenode.address];
    let here = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    let gateway = cluster.serve("gateway", &[&words[..], &here].concat());
    let servers = [&cluster.namenode, &cluster.datanodes[0], &gateway];
    let endpoints = servers.map(|server| server.http_address.as_str());
    let [of_namenode, of_datanode, of_gateway] = endpoints;
    let all = [of_namenode, of_datanode, of_gateway, gateway.address.as_str()];
    let silent = || all.map(|endpoint| open_silent(endpoint, SILENT_HTTP));
    beside(silent, || {
        block_on(async {
            for endpoint in endpoints {
                health(endpoint).await;
            }
            let answer = timeout(SOON, http::page(&gateway.address, "/")).await;
            let answer = answer.expect("the gateway answers");
            assert!(answer.contains("AccessDenied"), "it is not signed: {answer}");
        });
    });
}

/// Begins requests whose bodies do not come.
fn bodiless(endpoint: &str, page: &str, count: usize) -> Vec<TcpStream> {
    let mut all = open_silent(endpoint, count);
    let head = format!("POST {page} HTTP/1.1\r\nhost: x\r\ncontent-length: 40\r\n\r\n{{");
    // Of these, too, the first make room for the last.
    all.iter_mut().for_each(|stream| drop(stream.write_all(head.as_bytes())));
    all
}

#[test]
fn bodies_that_do_not_come_hide_no_page_and_stop_no_notice() {
    let cluster = Cluster::of(1);
    let namenode = cluster.namenode.http_address.as_str();
    let datanode = cluster.datanodes[0].http_address.as_str();
    let endpoints = [(namenode, "/v1/nodes/n0/notice"), (datanode, "/v1/notice")];
    let slow = || endpoints.map(|(endpoint, page)| bodiless(endpoint, page, SILENT_HTTP));
    let slow = beside(slow, || {
        block_on(async {
            for (endpoint, page) in endpoints {
                health(endpoint).await;
                let notice = r#"{"deadline_seconds": 300, "reason": "test"}"#;
                let answer = timeout(SOON, http::post(endpoint, page, notice)).await;
                let answer = answer.expect("the notice is taken");
                assert!(answer.contains(" 200 "), "{answer}");
            }
        });
    });
    // Those that have a place do not keep it.
    for mut last in slow.into_iter().filter_map(|mut slow| slow.pop()) {
        last.set_read_timeout(Some(SOON)).expect("not zero");
        let mut answer = String::new();
        let _ = last.read_to_string(&mut answer);
        assert!(!answer.contains(" 200 "), "{answer}");
    }
}

/// Returns which timer runs for a connection at its server's end (`proc_net_tcp`: 2 for probes).
fn timer(stream: &TcpStream) -> String {
    let end = |address: std::net::SocketAddr| format!("0100007F:{:04X}", address.port());
    let ours = end(stream.local_addr().expect("it is connected"));
    let theirs = end(stream.peer_addr().expect("it is connected"));
    let table = std::fs::read_to_string("/proc/net/tcp").expect("Linux has it");
    let rows = table.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let mut rows = rows.filter(|row| row[1] == theirs && row[2] == ours);
    rows.next().expect("the server has it open")[5][..2].to_owned()
}

#[test]
fn servers_probe_whether_a_silent_peer_is_still_there() {
    let cluster = Cluster::of(1);
    let words = ["gateway", "s3", "--namenode", &cluster.namenode.address];
    let here = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    let gateway = cluster.serve("gateway", &[&words[..], &here].concat());
    let http = [&cluster.namenode, &cluster.datanodes[0], &gateway].map(|it| &it.http_address);
    let (mut follower, _) = follow(http[0]);
    follower.write_all(b"").expect("it is open");
    assert_eq!(timer(&follower), "02", "a follower of events");
    for endpoint in http.into_iter().chain([&gateway.address]) {
        let silent = TcpStream::connect(endpoint).expect("the endpoint is open");
        until("probes are sent", SOON, || (timer(&silent) == "02").then_some(()));
    }
}

/// Follows the events; returns the connection and the answer's status.
fn follow(endpoint: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(endpoint).expect("the endpoint is open");
    stream.set_read_timeout(Some(SOON)).expect("not zero");
    stream.write_all(b"GET /v1/events HTTP/1.1\r\nhost: x\r\n\r\n").expect("it is taken");
    let mut status = [0; 12];
    stream.read_exact(&mut status).expect("it is answered");
    (stream, String::from_utf8_lossy(&status[9..]).into_owned())
}

#[test]
fn page_of_another_site_takes_no_place_of_followers() {
    let cluster = Cluster::start(Shape { datanodes: 1, ..Shape::default() });
    let pages = [
        (&cluster.namenode.http_address, "/v1/events?after=0"),
        (&cluster.namenode.http_address, "/v1/stream"),
        (&cluster.namenode.http_address, "/v1/nodes"),
        (&cluster.datanodes[0].http_address, "/v1/log"),
        (&cluster.datanodes[0].http_address, "/metrics"),
    ];
    for (endpoint, target) in pages {
        let status = |site: &str, mode: &str, destination: &str| {
            let mut stream = TcpStream::connect(endpoint).expect("the endpoint is open");
            stream.set_read_timeout(Some(SOON)).expect("not zero");
            // A page of the internet cannot have a name below localhost, but can load from it.
            let request = format!(
                "GET {target} HTTP/1.1\r\nhost: a.localhost\r\nsec-fetch-site: {site}\r\n\
                 sec-fetch-mode: {mode}\r\nsec-fetch-dest: {destination}\r\n\r\n"
            );
            stream.write_all(request.as_bytes()).expect("sent");
            let mut head = [0; 12];
            stream.read_exact(&mut head).expect("answered");
            String::from_utf8_lossy(&head[9..]).into_owned()
        };
        for site in ["cross-site", "same-site"] {
            assert_eq!(status(site, "no-cors", "image"), "403", "{target} for {site}");
            assert_eq!(status(site, "navigate", "iframe"), "403", "{target} for {site}");
        }
        assert_eq!(status("same-origin", "cors", "empty"), "200", "{target} for its own page");
        assert_eq!(status("none", "navigate", "document"), "200", "{target} for its user");
        assert_eq!(status("cross-site", "navigate", "document"), "200", "{target} by a link");
    }
}

#[test]
fn followers_of_events_hide_no_page_and_stop_no_notice() {
    let cluster = Cluster::of(1);
    let endpoint = &cluster.namenode.http_address;
    let (mut followers, mut refused) = (Vec::new(), 0);
    for _ in 0..SILENT_HTTP {
        match follow(endpoint) {
            (follower, status) if status == "200" => followers.push(follower),
            (mut refusal, status) => {
                assert_eq!(status, "503");
                let mut rest = [0; 400];
                let read = refusal.read(&mut rest).expect("the page is there");
                let rest = String::from_utf8_lossy(&rest[..read]);
                assert!(rest.contains("RetryAfter"), "{rest}");
                refused += 1;
            }
        }
    }
    assert!(followers.len() > 100 && refused > 100, "{} and {refused}", followers.len());
    beside(
        || [open_silent(endpoint, SILENT_HTTP)],
        || {
            block_on(async {
                health(endpoint).await;
                let notice = r#"{"deadline_seconds": 300, "reason": "test"}"#;
                let page = "/v1/nodes/n0/notice";
                let answer = timeout(SOON, http::post(endpoint, page, notice)).await;
                let answer = answer.expect("the notice is taken");
                assert!(answer.contains(" 200 "), "{answer}");
            });
        },
    );
    drop(followers);
    until("a follower's place comes back", SOON, || (follow(endpoint).1 == "200").then_some(()));
}

/// Starts a server that may have few descriptors open.
fn with_few_descriptors(place: &Path, name: &str, words: &[&str]) -> Server {
    let mut program = Command::new("bash");
    let limited = format!("ulimit -n {DESCRIPTORS} && exec \"$@\"");
    program.args(["-c", &limited, "bash"]).arg(env!("CARGO_BIN_EXE_sanderling"));
    program.env("SANDERLING_CONFIG_HOME", "/nonexistent");
    Starting::by(program, place, name, words).serves()
}

/// Starts such a namenode, with its catalog in a directory.
pub(super) fn namenode_with_few_descriptors(place: &Path) -> Server {
    let catalog = place.join("catalog");
    let catalog = catalog.to_str().expect("a name in UTF-8");
    let here = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    with_few_descriptors(place, "namenode", &[&["namenode", "--dir", catalog][..], &here].concat())
}

/// Waits until a server's connections have left it descriptors for files.
pub(super) fn until_descriptors_are_left(server: &Server) {
    let directory = format!("/proc/{}/fd", server.pid());
    until("descriptors are left", SOON, || {
        let open = std::fs::read_dir(&directory).expect("it runs").count();
        (open <= DESCRIPTORS_OPEN_MAX).then_some(())
    });
}

/// Opens connections and does something before the first of them ends by itself, which would give
/// its descriptor back. If a machine stands still for so long, others are opened and it is done
/// again, with the next number.
fn before_they_end(within: Duration, open: impl Fn() -> Vec<TcpStream>, work: impl Fn(u32)) {
    let limit = Instant::now() + SOON;
    for number in 0.. {
        let began = Instant::now();
        let opened = open();
        work(number);
        if began.elapsed() < within {
            return;
        }
        drop(opened);
        assert!(Instant::now() < limit, "it is done only once those connections have ended");
    }
}

/// Returns how many lines of a log report that a connection could not be accepted.
fn not_accepted(server: &Server) -> usize {
    server.log().lines().filter(|line| line.contains("could not be accepted")).count()
}

#[test]
fn silent_connections_leave_clients_descriptors_of_a_server_that_has_few() {
    allow_open_files(1_000);
    let place = TempDir::new().expect("a directory");
    let place = place.path();
    let namenode = namenode_with_few_descriptors(place);
    let words = ["datanode", "--namenode", &namenode.address, "--name", "n0", "--dram", "64MiB"];
    let datanode = with_few_descriptors(place, "n0", &words);
    let servers = [&namenode, &datanode];
    let ports = servers.map(|server| [server.address.as_str(), server.http_address.as_str()]);
    let silent = || {
        let opened = ports.as_flattened().iter().flat_map(|port| open_silent(port, SILENT_FEW));
        opened.collect::<Vec<_>>()
    };
    before_they_end(FIRST_BYTE_WITHIN, silent, |number| {
        for port in ports.as_flattened() {
            until("the connections are accepted", SOON, || (queued(port) == 0).then_some(()));
        }
        servers.into_iter().for_each(until_descriptors_are_left);
        block_on(async {
            // As from another machine: it needs the datanode's port.
            let config = ClientConfig { call_deadline: SOON, ..ClientConfig::default() };
            let config = ClientConfig { same_host: false, ..config };
            let client = Client::connect(&namenode.address, config).await;
            let client = client.expect("a client that greets at once is let in");
            let (file, data) = (path(&format!("/file-{number}")), bytes_of(1, 300_000));
            let options = PutOptions::default();
            client.put(&file, data.clone(), &options).await.expect("the servers answer");
            assert!(client.get(&file).await.expect("the servers answer") == data);
            for server in servers {
                health(&server.http_address).await;
            }
        });
    });
    for server in servers {
        let lines = not_accepted(server);
        assert!(lines <= LINES_MAX, "{lines} lines in the log of {}", server.name);
    }
}

#[test]
fn listener_without_descriptors_closes_idle_connections_and_logs_little() {
    allow_open_files(1_000);
    let cluster = Cluster::of(1);
    let words = ["gateway", "s3", "--namenode", &cluster.namenode.address, "--connections", "999"];
    let here = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    let words = [&words[..], &here].concat();
    let gateway = with_few_descriptors(&cluster.path(""), "gateway", &words);
    let silent = || open_silent(&gateway.address, SILENT_HTTP);
    before_they_end(HEAD_WITHIN, silent, |_| {
        block_on(async {
            let answer = timeout(SOON, http::page(&gateway.address, "/")).await;
            let answer = answer.expect("the gateway answers");
            assert!(answer.contains("AccessDenied"), "it is not signed: {answer}");
        });
    });
    let lines = not_accepted(&gateway);
    assert!((1..=LINES_MAX).contains(&lines), "{lines} lines in the log");
}
