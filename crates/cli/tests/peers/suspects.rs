//! Clients that report a datanode as unreachable without a pause: the namenode dials it no more
//! often for that.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, SOON, block_on};
use sanderling_protocol::frame::{HEADER_BYTES, decode_body, encode_body};
use sanderling_protocol::message::{Hello, HelloReply, Register, Role};
use sanderling_protocol::node::TierCapacity;
use sanderling_protocol::{Header, Nonce, Reply, Request, Tier};
use sanderling_transport::{Pool, PoolOptions};

/// The shortest pause between two dials of a node, as SECURITY.md has it: four a second at most.
const PAUSE: Duration = Duration::from_millis(250);

/// The reports that one client sends at least.
const REPORTS_MIN: usize = 5_000;

/// As many as one frame may have.
const FRAME: usize = 512;

/// Enough dials to see the pause between them.
const DIALS_MIN: u64 = 5;

/// A datanode that answers greetings and does nothing else. It counts those of the namenode.
struct Greeter {
    address: String,
    dials: Arc<AtomicU64>,
}

impl Greeter {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound").to_string();
        let dials = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&dials);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counted = Arc::clone(&counted);
                std::thread::spawn(move || greet(stream, &counted));
            }
        });
        Self { address, dials }
    }

    fn dials(&self) -> u64 {
        self.dials.load(Ordering::Relaxed)
    }
}

/// Answers a greeting as the incarnation that the caller expects: the node is alive.
fn greet(mut stream: TcpStream, dials: &AtomicU64) -> io::Result<()> {
    let mut head = [0; HEADER_BYTES];
    stream.read_exact(&mut head)?;
    let header = Header::decode(&head).expect("a frame of ours");
    let mut body = vec![0; header.body_bytes as usize];
    stream.read_exact(&mut body)?;
    let hello: Hello = decode_body(&body).expect("a greeting");
    if hello.role == Role::Namenode {
        dials.fetch_add(1, Ordering::Relaxed);
    }
    let reply = HelloReply { role: Role::Datanode, cluster: hello.cluster, node: hello.node };
    let reply = encode_body(&reply);
    let body_bytes = u32::try_from(reply.len()).expect("it is short");
    let header = Header { flags: header.flags, body_bytes, ..header.reply() };
    stream.write_all(&[&header.encode()[..], &reply].concat())?;
    // The caller ends the connection.
    io::copy(&mut stream, &mut io::sink()).map(|_| ())
}

fn registration(address: &str) -> Request {
    Request::Register(Register {
        cluster: None,
        nonce: Nonce(1),
        name: "greeter".to_owned(),
        address: address.to_owned(),
        http_address: String::new(),
        host: String::new(),
        tiers: vec![TierCapacity { tier: Tier::Dram, bytes: 1 << 30 }],
        notice_min: None,
        egress_bytes_per_second: None,
    })
}

#[test]
fn namenode_dials_a_node_four_times_a_second_at_most_however_often_a_client_suspects_it() {
    let cluster = Cluster::of(0);
    let greeter = Greeter::start();
    block_on(async {
        let pool = Pool::new(PoolOptions::default());
        let send = async |requests: Vec<Request>| {
            let deadline = tokio::time::Instant::now() + SOON;
            let answers = pool.meta(&cluster.namenode.address, requests, deadline).await;
            answers.expect("the namenode answers")
        };
        // Before the first dial: what a slow machine adds allows more dials, never fewer.
        let began = Instant::now();
        let registered = send(vec![registration(&greeter.address)]).await.remove(0);
        let Ok(Reply::Registered(registered)) = registered else { panic!("{registered:?}") };
        let node = registered.node;
        let mut reports = 0;
        while greeter.dials() < DIALS_MIN || reports < REPORTS_MIN {
            let answers = send(vec![Request::Suspect { node }; FRAME]).await;
            assert!(answers.iter().all(Result::is_ok), "{:?}", answers.first());
            reports += answers.len();
            let dials = greeter.dials();
            let elapsed = began.elapsed();
            let pauses = elapsed.as_millis() / PAUSE.as_millis();
            assert!(
                u128::from(dials) <= pauses + 1,
                "{dials} dials in {elapsed:?}, after {reports} reports"
            );
            assert!(elapsed < SOON, "{dials} dials only, after {reports} reports");
        }
    });
}
