//! Measures what open consoles cost a namenode of 1,000 nodes: CPU time of the process with none,
//! and with ten that follow, while rows stay or change.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement prints, and may panic")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sanderling_protocol::message::{Heartbeat, Register};
use sanderling_protocol::node::{Load, TierCapacity};
use sanderling_protocol::{NodeId, Nonce, Reply, Request, Tier};
use tokio::time::{Instant, sleep_until};

const NODES: u64 = 1000;
const CONSOLES: usize = 10;
const PHASE_SECONDS: u64 = 15;

fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = text.rsplit(") ").next().unwrap().split(' ').collect();
    // User and system time in hundredths of a second.
    fields[11..13].iter().map(|field| field.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

/// Sends heartbeats for a while, each with other figures when rows are to change, and returns the
/// CPU time per second.
async fn phase(fixture: &support::Fixture, nodes: &[NodeId], changes: bool) -> f64 {
    let (begun, cpu) = (Instant::now(), cpu_seconds());
    for turn in 1..=2 * PHASE_SECONDS {
        let second = turn / 2;
        for (at, part) in nodes.chunks(100).enumerate() {
            let beat = |(number, node): (usize, &NodeId)| {
                let bytes = if changes { second << 20 } else { 0 };
                let load = Load { read_bytes_total: bytes, ..Load::default() };
                let nonce = Nonce((at * 100 + number) as u64 + 1);
                Request::Heartbeat(Heartbeat { node: *node, nonce, load })
            };
            for answer in fixture.all(part.iter().enumerate().map(beat).collect()).await {
                answer.unwrap();
            }
        }
        // As often as nodes send them: without, they are declared gone.
        sleep_until(begun + Duration::from_millis(turn * 500)).await;
    }
    (cpu_seconds() - cpu) / begun.elapsed().as_secs_f64()
}

fn register(nonce: u64) -> Register {
    Register {
        cluster: None,
        nonce: Nonce(nonce),
        name: format!("node-{nonce}"),
        address: format!("127.0.0.1:{}", 20_000 + nonce),
        http_address: String::new(),
        host: String::new(),
        tiers: vec![TierCapacity { tier: Tier::Dram, bytes: 1 << 30 }],
        notice_min: None,
        egress_bytes_per_second: None,
    }
}

fn consoles(address: &str) -> Vec<Child> {
    let follow = |_| {
        let url = format!("http://{address}/v1/stream");
        Command::new("curl").args(["-sN", &url]).stdout(Stdio::null()).spawn().unwrap()
    };
    (0..CONSOLES).map(follow).collect()
}

#[tokio::main]
async fn main() {
    let place = tempfile::tempdir().unwrap();
    let fixture = support::start(support::options(place.path())).await;
    let mut nodes = Vec::new();
    for nonces in (1..=NODES).collect::<Vec<_>>().chunks(100) {
        let registers = nonces.iter().map(|nonce| Request::Register(register(*nonce)));
        for answer in fixture.all(registers.collect()).await {
            let Ok(Reply::Registered(registered)) = answer else { panic!("{answer:?}") };
            nodes.push(registered.node);
        }
    }
    let http = fixture.server.http_address().unwrap().to_string();
    for changes in [false, true] {
        let none = phase(&fixture, &nodes, changes).await;
        let mut followers = consoles(&http);
        let ten = phase(&fixture, &nodes, changes).await;
        for follower in &mut followers {
            follower.kill().unwrap();
            follower.wait().unwrap();
        }
        println!(
            "rows {}: {:.1} % of a core without consoles, {:.1} % with {CONSOLES}: {:.1} % more",
            if changes { "change" } else { "stay" },
            none * 100.0,
            ten * 100.0,
            (ten - none) * 100.0,
        );
    }
    fixture.server.stop().await;
}
