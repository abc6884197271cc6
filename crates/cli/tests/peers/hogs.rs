//! Callers that begin long requests and send them as slowly as they may, or that do not read their
//! answers, do not keep the memory of running servers from others. Requests that are not allowed do
//! not fill the log.

#[path = "../clock/mod.rs"]
pub(crate) mod clock;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::{Path as LocalPath, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::cluster::guarded::{Guarded, Line};
use crate::cluster::{
    Cluster, SOON, Shape, allow_open_files, block_on_within, http, path, until, until_node,
};
use crate::tokens::call;
use clock::Clock;
use rustix::net::sockopt::set_socket_recv_buffer_size;
use sanderling_client::{Client, ClientConfig, PutOptions};
use sanderling_protocol::checksum::crc32c;
use sanderling_protocol::frame::{HEADER_BYTES, RangeRequest, decode_body, encode_body};
use sanderling_protocol::message::{Hello, Role};
use sanderling_protocol::node::NodeInfo;
use sanderling_protocol::{
    BlockId, Epoch, Header, NodeSelector, Op, Policy, Refusal, Request, Tier, Token, version,
};

/// Connections that trickle.
const HOGS: usize = 48;

/// What each of them announces: eight have the memory that the servers of this test have.
const BODY_BYTES: u32 = 8 << 20;

/// What each sends in a second: more than it is given up for while there is memory.
const RATE: usize = 80 << 10;

const STEPS_PER_SECOND: usize = 10;

/// Much less than a hog takes for its request.
const PROMPT: Duration = Duration::from_secs(15);

fn greeted(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(SOON)).expect("not zero");
    let hello = Hello { role: Role::Client, cluster: None, node: None, token: None };
    let greeting = encode_body(&hello);
    let mut header = Header { flags: version::greeting_flags(), ..Header::new(Op::Hello, 1) };
    header.body_bytes = greeting.len() as u32;
    stream.write_all(&[&header.encode()[..], &greeting].concat()).expect("it is taken");
    answer(&mut stream).expect("let in");
    stream
}

fn answer(stream: &mut TcpStream) -> Result<(), Refusal> {
    let mut head = [0; HEADER_BYTES];
    stream.read_exact(&mut head).expect("an answer");
    let header = Header::decode(&head).expect("it is ours");
    let mut body = vec![0; header.body_bytes as usize];
    stream.read_exact(&mut body).expect("all of it");
    if header.status == 0 { Ok(()) } else { Err(decode_body(&body).expect("a refusal")) }
}

/// Connections that send long requests slowly, and begin again when they are closed.
struct Hogs {
    stop: Arc<AtomicBool>,
    closed: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Hogs {
    fn at(address: &str, op: Op) -> Self {
        let mut header = Header::new(op, 2);
        header.body_bytes = BODY_BYTES;
        Self::with(address, HOGS, header, RATE)
    }

    /// Connections that begin a request with this header, and send so much of its body in a second.
    fn with(address: &str, count: usize, header: Header, rate: usize) -> Self {
        let begin = {
            let address = address.to_owned();
            move || {
                let mut stream = greeted(&address);
                stream.write_all(&header.encode()).expect("it is taken");
                stream
            }
        };
        let (stop, closed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let mut hogs: Vec<_> = (0..count).map(|_| begin()).collect();
        let (is_over, ended) = (Arc::clone(&stop), Arc::clone(&closed));
        let thread = std::thread::spawn(move || {
            let step = vec![7; rate / STEPS_PER_SECOND];
            while !is_over.load(Ordering::Relaxed) {
                for hog in &mut hogs {
                    if hog.write_all(&step).is_err() {
                        ended.fetch_add(1, Ordering::Relaxed);
                        *hog = begin();
                    }
                }
                std::thread::sleep(Duration::from_secs(1) / STEPS_PER_SECOND as u32);
            }
        });
        Self { stop, closed, thread: Some(thread) }
    }

    /// Waits until one of them has noticed that it was closed.
    fn made_room(&self) {
        let is_closed = || (self.closed.load(Ordering::Relaxed) > 0).then_some(());
        until("a hog makes room", SOON, is_closed);
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let joined = self.thread.take().expect("it is joined once").join();
        assert!(joined.is_ok() || std::thread::panicking(), "the hogs went on to the end");
    }
}

#[test]
fn namenode_has_memory_for_others_while_hogs_trickle() {
    let namenode = vec!["--memory-max".to_owned(), "256MiB".to_owned()];
    let cluster = Cluster::start(Shape { datanodes: 1, namenode, ..Shape::default() });
    let hogs = Hogs::at(&cluster.namenode.address, Op::Meta);
    std::thread::sleep(Duration::from_secs(1));
    block_on_within(Duration::from_secs(100), async {
        let config = ClientConfig { call_deadline: PROMPT, ..ClientConfig::default() };
        let client = Client::connect(&cluster.namenode.address, config).await.expect("connected");
        for number in 0..5 {
            let (file, data) = (path(&format!("/{number}")), vec![7; 3_000_000]);
            client.put(&file, data.into(), &PutOptions::default()).await.expect("a short request");
            // The names do not fit into the buffer of a connection.
            let name = |at| if at == 0 { file.clone() } else { path(&format!("/{at:0200}")) };
            let names: Vec<_> = (0..500).map(name).collect();
            let found = client.lookup_many(&names).await.expect("memory for a long one");
            assert_eq!(found.iter().filter(|found| found.is_ok()).count(), 1);
            assert_eq!(client.get(&file).await.expect("it is there").len(), 3_000_000);
        }
    });
    hogs.made_room();
}

/// A write at the end of a block that has one byte: it does not land in the arena.
fn append(stream: &mut TcpStream, block: u64, offset: u64, body: &[u8]) -> Result<(), Refusal> {
    let mut header = Header::new(Op::Write, 3);
    (header.block, header.epoch, header.offset) = (BlockId(1 << 40 | block), Epoch(1), offset);
    (header.body_bytes, header.checksum) = (body.len() as u32, crc32c(body));
    header.flags = Tier::Dram as u16;
    stream.write_all(&[&header.encode()[..], body].concat()).expect("it is taken");
    answer(stream)
}

#[test]
fn datanode_has_memory_for_others_while_hogs_trickle() {
    let datanode = vec!["--memory-max", "198MiB"];
    let cluster = Cluster::start(Shape { datanodes: 1, datanode, ..Shape::default() });
    let address = &cluster.datanodes[0].address;
    let hogs = Hogs::at(address, Op::ReadMany);
    std::thread::sleep(Duration::from_secs(1));
    let mut writer = greeted(address);
    for block in 0..5 {
        append(&mut writer, block, 0, b"x").expect("a short write");
        let body = vec![7; 500_000];
        let began = Instant::now();
        until("there is memory for a long write", PROMPT, || {
            let done = append(&mut writer, block, 1, &body);
            assert!(matches!(done, Ok(()) | Err(Refusal::RetryAfter { .. })), "{done:?}");
            done.ok()
        });
        println!("a long write took {:?}", began.elapsed());
    }
    hogs.made_room();
}

/// Connections that send a write of a whole block but for its bytes: more than a node of these
/// tests has memory for.
const HALF_SENT: usize = 96;

/// Less than a silent request keeps what it has taken while that is not scarce.
const MEANWHILE: Duration = Duration::from_secs(25);

#[test]
fn writes_that_are_half_sent_take_no_room_from_blocks_that_come_whole() {
    let namenode = ["--no-rebalance", "--no-precopy"].map(str::to_owned).to_vec();
    let mut cluster = Cluster::start(Shape { datanodes: 1, namenode, ..Shape::default() });
    let (moved, written) = (path("/moved"), path("/written"));
    let data = vec![7_u8; 8 << 20];
    block_on_within(SOON, async {
        let options = PutOptions::default();
        cluster.client().await.put(&moved, data.clone().into(), &options).await.expect("there");
    });
    let address = cluster.add("n1", &[]).address.clone();
    let mut header = Header::new(Op::Write, 2);
    (header.block, header.epoch, header.flags) = (BlockId(1 << 41), Epoch(1), Tier::Dram as u16);
    header.body_bytes = 1 << 20;
    let limit = Instant::now() + MEANWHILE;
    // A byte a step: those that are closed notice that, and begin again.
    let hogs = Hogs::with(&address, HALF_SENT, header, STEPS_PER_SECOND);
    block_on_within(Duration::from_secs(200), async {
        let client = cluster.client().await;
        // Some are about to begin again.
        let most = (HALF_SENT - HALF_SENT / 8) as u32;
        let has_them = |node: &NodeInfo| node.load.connections >= most;
        until_node(&client, "n1", "the peer of all of them", has_them).await;
        let leaving = NodeSelector("n0".to_owned());
        client.notice(&leaving, 100_000, "test").await.expect("taken");
        loop {
            let nodes = client.nodes(true).await.expect("it answers");
            let is_drained = |node: &NodeInfo| node.policy == Policy::Drained;
            if nodes.iter().any(|node| node.name == "n0" && is_drained(node)) {
                break;
            }
            assert!(Instant::now() < limit, "its blocks have no room: {nodes:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let config = ClientConfig { call_deadline: PROMPT, ..ClientConfig::default() };
        let client = Client::connect(&cluster.namenode.address, config).await.expect("connected");
        let options = PutOptions::default();
        client.put(&written, data.clone().into(), &options).await.expect("there is room");
        for file in [&moved, &written] {
            assert!(client.get(file).await.expect("it is there") == data, "{file}");
        }
    });
    hogs.made_room();
}

/// Longer than a peer may take nothing, with what a busy machine adds.
const GIVEN_UP_WITHIN: Duration = Duration::from_secs(90);

/// Stores an object of 1 MiB in a cluster of one node; returns the range of its block.
fn stored(cluster: &Cluster) -> RangeRequest {
    stored_with(cluster, &PutOptions::default())
}

fn stored_with(cluster: &Cluster, options: &PutOptions) -> RangeRequest {
    block_on_within(SOON, async {
        let (client, file, data) = (cluster.client().await, path("/file"), vec![7; 1 << 20]);
        client.put(&file, data.into(), options).await.expect("there is room");
        let layout = client.layout(&file, 0..1 << 20).await.expect("it is there");
        let location = &layout.blocks[0];
        assert_eq!(layout.blocks.len(), 1);
        let (block, epoch, length) = (location.block, location.epoch, location.length);
        RangeRequest { block, epoch, offset: 0, length }
    })
}

/// Requests a range twelve times at once.
fn request_much(stream: &mut TcpStream, range: &RangeRequest) {
    let mut body = Vec::new();
    (0..12).for_each(|_| range.encode(&mut body));
    let mut header = Header::new(Op::ReadMany, 4);
    header.body_bytes = body.len() as u32;
    stream.write_all(&[&header.encode()[..], &body].concat()).expect("it is taken");
}

#[test]
fn peer_that_does_not_read_long_answers_is_given_up() {
    let cluster = Cluster::of(1);
    let address = &cluster.datanodes[0].address;
    let (mut silent, mut reader) = (greeted(address), greeted(address));
    let range = stored(&cluster);
    request_much(&mut silent, &range);
    until("the peer is given up", GIVEN_UP_WITHIN, || {
        // Others are served meanwhile.
        request_much(&mut reader, &range);
        answer(&mut reader).expect("read");
        std::thread::sleep(Duration::from_millis(100));
        (!is_open(&silent)).then_some(())
    });
    let mut rest = Vec::new();
    let _ = silent.read_to_end(&mut rest);
    assert!(rest.len() < 12 << 20, "{} bytes were sent", rest.len());
}

/// Reads of a block that each succeed meanwhile.
const PROMPT_READS: usize = 200;

/// Stores an object of 1 MiB on the disk of the only node; returns the range of its block, and a
/// read of it.
fn stored_on_disk() -> (Cluster, RangeRequest, Header) {
    let mut cluster = Cluster::of(0);
    let directory = cluster.path("disk");
    let directory = directory.to_str().expect("a name in UTF-8");
    cluster.add("n0", &["--disk", "64MiB", "--disk-dir", directory, "--local-socket", "none"]);
    let class = "disk".parse().expect("a class");
    let range = stored_with(&cluster, &PutOptions { class, ..PutOptions::default() });
    let mut header = Header::new(Op::Read, 5);
    (header.block, header.epoch, header.length) = (range.block, range.epoch, range.length);
    (cluster, range, header)
}

/// Each of the two requests more than it may have at once, and takes nothing of it.
#[test]
fn readers_of_a_disk_that_take_nothing_delay_no_other_and_make_room_for_each_other() {
    let (cluster, range, header) = stored_on_disk();
    let address = &cluster.datanodes[0].address;
    let mut silent = [greeted(address), greeted(address)];
    for stream in &mut silent {
        (0..3).for_each(|_| request_much(stream, &range));
    }
    let mut reader = greeted(address);
    for _ in 0..PROMPT_READS {
        reader.write_all(&header.encode()).expect("it is taken");
        answer(&mut reader).expect("read");
    }
    // Sooner than a peer that stands still is given up for which none waits.
    let is_closed = || silent.iter().any(|stream| !is_open(stream)).then_some(());
    until("one makes room for the other", PROMPT, is_closed);
}

/// Reads of 1 MiB: more than the kernel takes, and an eighth of what may be read and not sent.
const GREEDY_READS: usize = 64;

/// Longer than a reader has that keeps what another one waits for, and takes nothing.
const PAUSE: Duration = Duration::from_secs(5);

#[test]
fn reader_of_a_disk_that_pauses_is_not_given_up_for_one_that_waits_for_more_than_its_share() {
    let (cluster, range, header) = stored_on_disk();
    let address = &cluster.datanodes[0].address;
    let (mut pausing, mut greedy) = (greeted(address), greeted(address));
    request_much(&mut pausing, &range);
    pausing.peek(&mut [0]).expect("its answer comes");
    for _ in 0..GREEDY_READS {
        greedy.write_all(&header.encode()).expect("it is taken");
    }
    let paused = Instant::now();
    while paused.elapsed() < PAUSE {
        assert!(is_open(&pausing), "given up after {:?}", paused.elapsed());
        std::thread::sleep(Duration::from_millis(100));
    }
    answer(&mut pausing).expect("all of it");
    assert!(is_open(&greedy), "it has waited to the end");
}

/// Returns whether a connection's server has it open (`proc_net_tcp`: 1 for an established one).
fn is_open(stream: &TcpStream) -> bool {
    let end = |address: std::net::SocketAddr| format!("0100007F:{:04X}", address.port());
    let ours = end(stream.local_addr().expect("it is connected"));
    let Ok(theirs) = stream.peer_addr().map(end) else { return false };
    let table = std::fs::read_to_string("/proc/net/tcp").expect("Linux has it");
    let mut rows = table.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    rows.any(|row| (row[1], row[2], row[3]) == (&theirs, &ours, "01"))
}

/// Longer than a server takes, also on a busy machine, until what it has sent on one connection
/// fills the buffers of both ends.
const STUFFED_WITHIN: Duration = Duration::from_secs(5);

/// Requests a page again and again and reads no answer, until the server has closed the connection,
/// or has taken nothing for so long. Returns which of these it was.
fn request_unread(stream: &mut TcpStream, page: &str, within: Duration) -> ErrorKind {
    set_socket_recv_buffer_size(&*stream, 64 << 10).expect("a socket");
    stream.set_write_timeout(Some(within)).expect("not zero");
    let requests = format!("GET {page} HTTP/1.1\r\nhost: x\r\n\r\n").repeat(100);
    loop {
        if let Err(error) = stream.write_all(requests.as_bytes()) {
            return error.kind();
        }
    }
}

/// The minute passes by the clock of the namenode. The kernel, which closes such a connection, too,
/// has another one.
#[test]
fn http_peer_that_takes_no_answer_for_a_minute_is_given_up() {
    let Some(clock) = Clock::ahead_by_hours(0) else { return eprintln!("SKIPPED: no C compiler") };
    let mut variables = clock.variables();
    variables.push(("WRONG_UPTIME", PathBuf::from("1")));
    let variables: Vec<(&str, &LocalPath)> =
        variables.iter().map(|(name, value)| (*name, value.as_path())).collect();
    let mut cluster = Cluster::of(0);
    cluster.restart_namenode_with(&variables);
    let address = &cluster.namenode.http_address;
    let mut silent = TcpStream::connect(address).expect("it is open");
    let began = Instant::now();
    let ended = request_unread(&mut silent, "/metrics", STUFFED_WITHIN);
    assert!(matches!(ended, ErrorKind::WouldBlock | ErrorKind::TimedOut), "closed: {ended}");
    // By its clock 40 s have passed since the first request.
    let more = Duration::from_secs(40).saturating_sub(began.elapsed());
    clock.set_seconds(more.as_secs().cast_signed());
    block_on_within(SOON, http::get(address, "/healthz"));
    assert!(is_open(&silent), "it was closed before the minute was over");
    clock.set_seconds(61);
    // Sooner than a minute passes by the clock of the kernel.
    until("it is closed", SOON / 2, || (!is_open(&silent)).then_some(()));
    block_on_within(SOON, http::get(address, "/healthz"));
}

/// Each of its requests is refused, because none is signed.
#[test]
fn s3_peer_that_takes_no_answer_for_the_silence_is_given_up() {
    let cluster = Cluster::of(0);
    let words = ["gateway", "s3", "--namenode", &cluster.namenode.address, "--silence", "2s"];
    let here = ["--listen", "127.0.0.1:0", "--http", "none"];
    let gateway = cluster.serve("gateway", &[&words[..], &here].concat());
    let mut silent = TcpStream::connect(&gateway.address).expect("it is open");
    let began = Instant::now();
    let ended = request_unread(&mut silent, "/", SOON / 2);
    assert!(matches!(ended, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "open: {ended}");
    assert!(began.elapsed() >= Duration::from_secs(2), "after {:?}", began.elapsed());
}

/// Connections that read many ranges each, one answer after the other.
const READERS: usize = 400;

/// Answers to each: more than a node may be silent for, were its heartbeats to wait in line.
const ANSWERS: usize = 4;

#[test]
fn heartbeats_do_not_wait_behind_readers() {
    allow_open_files(READERS as u64 + 1_000);
    let cluster = Cluster::of(1);
    let address = cluster.datanodes[0].address.clone();
    let node = || block_on_within(SOON, async { cluster.client().await.nodes(false).await });
    let id = node().expect("it answers")[0].id;
    let range = RangeRequest { length: 1 << 10, ..stored(&cluster) };
    let mut ranges = Vec::new();
    (0..1000).for_each(|_| range.encode(&mut ranges));
    let mut header = Header::new(Op::ReadMany, 4);
    header.body_bytes = ranges.len() as u32;
    let read = [&header.encode()[..], &ranges].concat();
    let mut readers: Vec<_> = (0..READERS).map(|_| greeted(&address)).collect();
    for _ in 0..ANSWERS {
        // All of them wait for the datanode at once.
        readers.iter_mut().for_each(|reader| reader.write_all(&read).expect("it is taken"));
        readers.iter_mut().for_each(|reader| drop(answer(reader)));
    }
    let nodes = node().expect("it answers");
    assert_eq!(nodes[0].id, id, "the node was given up: {nodes:?}");
}

/// Requests that the namenode refuses, each in a frame of its own.
const FORBIDDEN: u64 = 2_000;

/// Lines about such frames in a second.
const LINES_MAX: u64 = 5;

/// Longest line of a text log, with its end.
const LINE_BYTES_MAX: usize = 2 << 10;

/// Sends requests for a name of 4 KiB that is outside of the token's subtree.
fn request_forbidden(guarded: &Guarded, token: &Token, times: u64) {
    let long = format!("/{}", "x".repeat(255)).repeat(16);
    let request = Request::Stat { path: path(&format!("/other{long}")) };
    block_on_within(SOON + SOON, async {
        let line = Line::to(guarded, &guarded.cluster.namenode.address, token).await;
        let line = line.unwrap_or_else(|error| panic!("{error}"));
        for _ in 0..times {
            let answer = call(&line, request.clone()).await;
            assert!(matches!(answer, Err(Refusal::Forbidden { .. })), "{answer:?}");
        }
    });
}

/// Returns how many frames each line about requests that were not allowed has passed over.
fn passed_over(log: &str) -> Vec<u64> {
    let lines = log.lines().filter(|line| line.contains("requests of a frame were not allowed"));
    lines.filter_map(|line| line.rsplit_once("passed_over=")?.1.parse().ok()).collect()
}

#[test]
fn requests_that_are_not_allowed_get_few_short_lines_of_the_log_and_are_all_counted() {
    let mut guarded = Guarded::start(0);
    let token = guarded.token(&["--subtree", "/own"]);
    let began = Instant::now();
    request_forbidden(&guarded, &token, FORBIDDEN);
    let seconds = began.elapsed().as_secs();
    // The next second has a line again, which counts what was left out before.
    std::thread::sleep(Duration::from_secs(1));
    request_forbidden(&guarded, &token, 1);
    let lines = until("each of the frames is counted once", SOON, || {
        let passed_over = passed_over(&guarded.cluster.namenode.log());
        let lines = passed_over.len() as u64;
        (lines + passed_over.iter().sum::<u64>() == FORBIDDEN + 1).then_some(lines)
    });
    assert!(lines <= LINES_MAX * (seconds + 2), "{lines} lines in {seconds} s");
    // These lines have names.
    guarded.cluster.restart_namenode_with(&[("SANDERLING_LOG", LocalPath::new("debug"))]);
    request_forbidden(&guarded, &token, 1);
    let log = until("a line is cut", SOON, || {
        Some(guarded.cluster.namenode.log()).filter(|log| log.contains(" bytes more)\n"))
    });
    let longest = log.split_inclusive('\n').map(str::len).max();
    assert!(longest <= Some(LINE_BYTES_MAX), "a line of {longest:?} bytes");
}
