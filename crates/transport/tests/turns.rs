//! A connection that sends without a pause leaves the thread to others after its turn.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sanderling_protocol::frame::{HEADER_BYTES, encode_body};
use sanderling_protocol::message::{Hello, HelloReply, Role};
use sanderling_protocol::{Header, Op, Refusal};
use sanderling_transport::{Handled, Response, ServeOptions, Service, serve};
use tokio_util::sync::CancellationToken;

/// The turns that docs/SECURITY.md promises.
const NAMENODE_TURN: Duration = Duration::from_micros(250);
const DATANODE_TURN: Duration = Duration::from_millis(1);

/// A load: many requests that one connection sends at once, a second of work or two.
#[derive(Clone, Copy)]
struct Batch {
    requests: usize,
    body_bytes: u32,
    /// What a request takes of the server's thread.
    work: Duration,
    /// After how much work the thread serves other connections.
    turn: Duration,
    /// Fewer than this many are handled, in the median, before another connection's request.
    between_max: u64,
}

/// Requests of another connection meanwhile.
const PROBES: usize = 9;

/// Counts the requests of the batch, and returns how many there were before.
struct Busy {
    handled: Arc<AtomicU64>,
    work: Duration,
}

impl Service for Busy {
    fn hello(&self, _: &Hello) -> Result<HelloReply, Refusal> {
        Ok(HelloReply { role: Role::Namenode, cluster: None, node: None })
    }

    fn handle(self: &Arc<Self>, header: Header, _: Bytes) -> Handled {
        let mut reply = header.reply();
        if header.op == Op::Meta {
            reply.offset = self.handled.load(Ordering::Relaxed);
        } else {
            let began = Instant::now();
            while began.elapsed() < self.work {
                std::hint::spin_loop();
            }
            self.handled.fetch_add(1, Ordering::Relaxed);
        }
        Handled::Now(Response { header: reply, body: Vec::new() })
    }
}

fn greeted(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let hello = Hello { role: Role::Client, cluster: None, node: None, token: None };
    let greeting = encode_body(&hello);
    let mut header = Header::new(Op::Hello, 1);
    header.body_bytes = greeting.len() as u32;
    stream.write_all(&[&header.encode()[..], &greeting].concat()).unwrap();
    let bytes = answer(&mut stream).body_bytes;
    stream.read_exact(&mut vec![0; bytes as usize]).unwrap();
    stream
}

fn answer(stream: &mut TcpStream) -> Header {
    let mut head = [0; HEADER_BYTES];
    stream.read_exact(&mut head).unwrap();
    Header::decode(&head).unwrap()
}

#[test]
fn batch_of_short_requests_does_not_hold_the_thread_for_long() {
    // A turn is sixteen of them, or so few more as come until the clock is read.
    let work = Duration::from_micros(100);
    for turn in [NAMENODE_TURN, DATANODE_TURN] {
        check(Batch { requests: 10_000, body_bytes: 0, work, turn, between_max: 100 });
    }
}

#[test]
fn batch_of_long_requests_does_not_hold_the_thread_for_more_than_one() {
    // A turn is one of them. A second one may come between when it is counted and requested.
    let work = Duration::from_millis(5);
    for turn in [NAMENODE_TURN, DATANODE_TURN] {
        check(Batch { requests: 200, body_bytes: 4 << 10, work, turn, between_max: 4 });
    }
}

fn check(batch: Batch) {
    let handled = Arc::new(AtomicU64::new(0));
    let service = Arc::new(Busy { handled: Arc::clone(&handled), work: batch.work });
    let stop = CancellationToken::new();
    let options = ServeOptions { turn: batch.turn, ..ServeOptions::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let serving = serve(listener, service, options, stop.clone());
    let server = std::thread::spawn(move || runtime.block_on(serving));
    let (mut greedy, mut other) = (greeted(&address), greeted(&address));
    let mut sender = greedy.try_clone().unwrap();
    let mut header = Header::new(Op::Read, 2);
    header.body_bytes = batch.body_bytes;
    let body = vec![0; batch.body_bytes as usize];
    let frames = [&header.encode()[..], &body].concat().repeat(batch.requests);
    let sending = std::thread::spawn(move || sender.write_all(&frames).unwrap());
    let reading = std::thread::spawn(move || {
        for _ in 0..batch.requests {
            answer(&mut greedy);
        }
    });
    let mut between = Vec::new();
    for _ in 0..PROBES {
        let next = handled.load(Ordering::Relaxed) + batch.requests as u64 / 40;
        while handled.load(Ordering::Relaxed) < next {
            std::thread::sleep(Duration::from_millis(1));
        }
        let before = handled.load(Ordering::Relaxed);
        other.write_all(&Header::new(Op::Meta, 3).encode()).unwrap();
        between.push(answer(&mut other).offset - before);
    }
    sending.join().unwrap();
    reading.join().unwrap();
    stop.cancel();
    server.join().unwrap();
    between.sort_unstable();
    assert!(between[PROBES / 2] < batch.between_max, "{between:?}");
}
