//! Fills a namenode with paths and measures what it costs to look them up.
//!
//! `metadata serve ADDRESS DIRECTORY` is a namenode alone. `metadata ADDRESS PID PATHS KIND`
//! measures the one with that process id: it makes that many paths, each a value of 64 bytes
//! (`inline`) or a file of one block (`block`), or goes on with those of an earlier run (`none`).
//! It prints rates, the server's CPU time per operation, and its resident bytes per object. The
//! blocks are on a node that this program only pretends to be.

#![allow(clippy::print_stdout, reason = "it prints what it measures")]
#![allow(clippy::unwrap_used, reason = "a measurement ends where it fails")]

use std::fs;
use std::time::{Duration, Instant};

use sanderling_client::{Client, ClientConfig, PutOptions};
use sanderling_namenode::{NamenodeOptions, NamenodeServer};
use sanderling_protocol::message::{Attributes, BlockLength, Create, Register};
use sanderling_protocol::node::TierCapacity;
use sanderling_protocol::{Nonce, Path, Reply, Request, Tier};
use sanderling_transport::{Pool, PoolOptions};
use tokio::task::JoinSet;

const BATCH: u64 = 128;
const PER_DIRECTORY: u64 = 1000;
const LAST: Duration = Duration::from_secs(4);

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments[0] == "serve" {
        return serve(&arguments[1], &arguments[2]).await;
    }
    let (address, pid) = (arguments[0].clone(), arguments[1].clone());
    let paths: u64 = arguments[2].parse().unwrap();
    let kind = arguments.get(3).map_or("inline", String::as_str).to_owned();
    let meter = Meter { pid };
    let pool = Pool::new(PoolOptions::default());
    if kind != "none" {
        fill(&pool, &address, paths, &kind, &meter).await;
    }
    for round in 0..3 {
        look_up(&pool, &address, paths, round, &meter).await;
    }
    for (flight, namenode_frames_max) in [(1_u64, 1), (16, 1), (16, 2), (64, 1), (256, 1)] {
        println!("{namenode_frames_max} frames under way on a connection:");
        let config = ClientConfig { namenode_frames_max, ..ClientConfig::default() };
        let client = Client::connect(&address, config).await.unwrap();
        look_up_alone(&client, paths, flight, &meter).await;
        put(&client, flight, &format!("/new/{flight}-{namenode_frames_max}"), &meter).await;
    }
}

fn deadline() -> tokio::time::Instant {
    tokio::time::Instant::now() + Duration::from_secs(60)
}

/// Returns a path of the tree by chance.
fn any(draw: &mut u64, paths: u64) -> Path {
    *draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    path((*draw >> 33) % paths)
}

/// Looks names up in frames of many: in the first round each by a request of its own.
async fn look_up(pool: &Pool, address: &str, paths: u64, round: u64, meter: &Meter) {
    let together = round > 0;
    let (began, cpu) = (Instant::now(), meter.cpu());
    let mut tasks = JoinSet::new();
    for connection in 0..4_u64 {
        let (pool, address) = (pool.clone(), address.to_owned());
        tasks.spawn(async move {
            let (mut done, mut draw) = (0_u64, connection + 1 + 4 * round);
            while began.elapsed() < LAST {
                let names: Vec<Path> = (0..BATCH).map(|_| any(&mut draw, paths)).collect();
                let requests = if together {
                    vec![Request::LookupMany { paths: names.iter().collect() }]
                } else {
                    let one = |path| Request::Lookup { path, offset: 0, bytes: u64::MAX };
                    names.into_iter().map(one).collect()
                };
                for answer in pool.meta(&address, requests, deadline()).await.unwrap() {
                    let Reply::Found(lookups) = answer.unwrap() else { continue };
                    assert!(lookups.refusals.is_empty());
                }
                done += BATCH;
            }
            done
        });
    }
    let done: u64 = tasks.join_all().await.into_iter().sum();
    let what = if together { "looked up together" } else { "looked up one by one" };
    meter.print(&format!("128 in a frame, {what}"), done, began, cpu);
}

async fn look_up_alone(client: &Client, paths: u64, flight: u64, meter: &Meter) {
    let (began, cpu) = (Instant::now(), meter.cpu());
    let mut tasks = JoinSet::new();
    for connection in 0..flight {
        let client = client.clone();
        tasks.spawn(async move {
            let (mut done, mut draw) = (0_u64, connection + 1);
            while began.elapsed() < LAST / 2 {
                client.stat(&any(&mut draw, paths)).await.unwrap();
                done += 1;
            }
            done
        });
    }
    let done: u64 = tasks.join_all().await.into_iter().sum();
    meter.print(&format!("single lookups, {flight} in flight"), done, began, cpu);
}

async fn put(client: &Client, flight: u64, directory: &str, meter: &Meter) {
    let (began, cpu) = (Instant::now(), meter.cpu());
    let mut tasks = JoinSet::new();
    for connection in 0..flight {
        let (client, directory) = (client.clone(), directory.to_owned());
        tasks.spawn(async move {
            let mut done = 0_u64;
            while began.elapsed() < LAST / 2 {
                let path: Path = format!("{directory}/d{connection}/f{done:06}").parse().unwrap();
                client.put(&path, vec![7; 64].into(), &PutOptions::replacing()).await.unwrap();
                done += 1;
            }
            done
        });
    }
    let done: u64 = tasks.join_all().await.into_iter().sum();
    meter.print(&format!("puts of 64 bytes, {flight} in flight"), done, began, cpu);
}

async fn serve(address: &str, directory: &str) {
    let server = NamenodeServer::start(NamenodeOptions {
        listen: address.to_owned(),
        http_listen: None,
        directory: directory.into(),
        ..NamenodeOptions::default()
    });
    let failure = server.await.unwrap().failed().await;
    panic!("{failure}");
}

fn path(number: u64) -> Path {
    let (directory, file) = (number / PER_DIRECTORY, number % PER_DIRECTORY);
    format!("/bench/d{directory:05}/f{file:06}").parse().unwrap()
}

/// Registers a node that only pretends to be there, and keeps it alive.
async fn pretend_a_node(pool: &Pool, address: &str) {
    let register = Register {
        cluster: None,
        nonce: Nonce(9),
        name: "pretended".to_owned(),
        address: "127.0.0.1:1".to_owned(),
        http_address: String::new(),
        host: "here".to_owned(),
        tiers: vec![TierCapacity { tier: Tier::Dram, bytes: 1 << 50 }],
        notice_min: None,
        egress_bytes_per_second: None,
    };
    let made = pool.meta(address, vec![Request::Register(register)], deadline()).await;
    let made = made.unwrap().pop().unwrap().unwrap();
    let Reply::Registered(registered) = made else { panic!("{made:?}") };
    let (pool, address) = (pool.clone(), address.to_owned());
    tokio::spawn(async move {
        loop {
            let heartbeat = sanderling_protocol::message::Heartbeat {
                node: registered.node,
                nonce: Nonce(9),
                load: sanderling_protocol::node::Load::default(),
            };
            let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
            let _ = pool.meta(&address, vec![Request::Heartbeat(heartbeat)], deadline).await;
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    });
}

async fn fill(pool: &Pool, address: &str, paths: u64, kind: &str, meter: &Meter) {
    if kind == "block" {
        pretend_a_node(pool, address).await;
    }
    let before = meter.resident_bytes();
    let (began, cpu) = (Instant::now(), meter.cpu());
    let mut tasks = JoinSet::new();
    let connections = 8;
    for connection in 0..connections {
        let (pool, address, kind) = (pool.clone(), address.to_owned(), kind.to_owned());
        tasks.spawn(async move {
            let mut first = connection * BATCH;
            while first < paths {
                let numbers = first..(first + BATCH).min(paths);
                let inline = (kind == "inline").then(|| vec![7; 64]);
                let requests =
                    numbers.map(|number| Request::Create(create(number, inline.clone())));
                let made = pool.meta(&address, requests.collect(), deadline()).await.unwrap();
                let mut seals = Vec::new();
                for made in made {
                    if let Reply::Grant(grant) = made.unwrap() {
                        let block = grant.blocks[0].block;
                        let lengths = vec![BlockLength { block, length: 4096 }];
                        let (object, lease) = (grant.object, grant.lease);
                        let attributes = Attributes::none();
                        seals.push(Request::Seal { object, lease, lengths, attributes });
                    }
                }
                if !seals.is_empty() {
                    let sealed = pool.meta(&address, seals, deadline()).await.unwrap();
                    assert!(sealed.iter().all(Result::is_ok));
                }
                first += connections * BATCH;
            }
        });
    }
    tasks.join_all().await;
    meter.print("creates in batches of 128", paths, began, cpu);
    let after = meter.resident_bytes();
    let each = (after - before) / paths;
    println!("resident: {} MiB, {each} bytes per object", after >> 20);
}

fn create(number: u64, inline: Option<Vec<u8>>) -> Create {
    Create { expected_bytes: Some(4096), inline, ..Create::new(path(number), Nonce(7)) }
}

/// Reads what the kernel reports of the server.
struct Meter {
    pid: String,
}

impl Meter {
    fn cpu(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        // Fields 14 and 15 of the line, in ticks of a hundredth of a second.
        fields[11..13].iter().map(|ticks| ticks.parse::<f64>().unwrap() / 100.0).sum()
    }

    fn resident_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    }

    fn print(&self, what: &str, done: u64, began: Instant, cpu: f64) {
        let (wall, cpu) = (began.elapsed().as_secs_f64(), self.cpu() - cpu);
        let done = done as f64;
        println!(
            "{what}: {:.0}/s, server {:.0} ns each, {:.2} M/s per server core",
            done / wall,
            cpu / done * 1e9,
            done / cpu / 1e6
        );
    }
}
