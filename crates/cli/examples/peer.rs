//! The clients of other systems that `make bench` compares with, on the runtime that ours uses.
//!
//! Each does as little as it can: requests are made once, replies are not copied out of the buffer
//! that they arrive in, and what many replies allow to be sent leaves in one write. What is left is
//! the other system's server and the kernel.

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Instant;

use bytes::{Buf, BytesMut};
use clap::{Args, Parser, Subcommand};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Keys that a client goes round; the server was filled with them.
const KEYS: u64 = 256;

/// Least room for what arrives next.
const ROOM_BYTES: usize = 256 << 10;

#[derive(Parser)]
#[command(about = "Clients of other systems, for comparisons")]
struct Peer {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Answers every byte with itself; prints its port
    Echo,
    /// Measures round trips to an echo
    Ping(Load),
    /// Gets values from a Redis
    Redis(Load),
    /// Gets values from a memcached
    Memcached(Load),
}

#[derive(Args)]
struct Load {
    address: SocketAddr,
    /// Bytes of a message or value
    #[arg(long)]
    size: usize,
    /// Operations that are measured
    #[arg(long)]
    count: u64,
    /// Operations in flight
    #[arg(long, default_value_t = 1)]
    depth: u64,
    /// Operations before the measurement
    #[arg(long, default_value_t = 0)]
    warmup: u64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let report = match Peer::parse().role {
        Role::Echo => tokio::task::spawn_blocking(echo).await?.map(|()| String::new())?,
        Role::Ping(load) => tokio::task::spawn_blocking(move || ping(&load)).await??,
        Role::Redis(load) => gets(&load, &REDIS).await?,
        Role::Memcached(load) => gets(&load, &MEMCACHED).await?,
    };
    writeln!(io::stdout(), "{report}")?;
    Ok(())
}

fn echo() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    writeln!(io::stdout(), "{}", listener.local_addr()?.port())?;
    loop {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let mut buffer = [0; 64 << 10];
        while let Ok(read @ 1..) = stream.read(&mut buffer) {
            stream.write_all(&buffer[..read])?;
        }
    }
}

fn ping(load: &Load) -> io::Result<String> {
    let mut stream = TcpStream::connect(load.address)?;
    stream.set_nodelay(true)?;
    let mut message = vec![7; load.size];
    let mut nanos = Vec::new();
    for at in 0..load.warmup + load.count {
        let began = Instant::now();
        stream.write_all(&message)?;
        stream.read_exact(&mut message)?;
        if at >= load.warmup {
            nanos.push(began.elapsed().as_nanos());
        }
    }
    nanos.sort_unstable();
    let p50 = nanos.get(nanos.len() / 2).copied().unwrap_or_default();
    Ok(serde_json::json!({ "latency_micros": { "p50": p50 as f64 / 1e3 } }).to_string())
}

/// How a system is asked for a value, and what stands around it in the reply.
struct Dialect {
    request: fn(u64) -> Vec<u8>,
    head: fn(u64, usize) -> Vec<u8>,
    tail: &'static [u8],
}

/// The Redis serialization protocol, version 2.
const REDIS: Dialect = Dialect {
    request: |key| format!("*2\r\n$3\r\nGET\r\n$7\r\nkey-{key:03}\r\n").into_bytes(),
    head: |_, size| format!("${size}\r\n").into_bytes(),
    tail: b"\r\n",
};

/// memcached's text protocol.
const MEMCACHED: Dialect = Dialect {
    request: |key| format!("get key-{key:03}\r\n").into_bytes(),
    head: |key, size| format!("VALUE key-{key:03} 0 {size}\r\n").into_bytes(),
    tail: b"\r\nEND\r\n",
};

async fn gets(load: &Load, dialect: &Dialect) -> Result<String, Box<dyn Error>> {
    let mut stream = tokio::net::TcpStream::connect(load.address).await?;
    stream.set_nodelay(true)?;
    let requests: Vec<_> = (0..KEYS).map(|key| (dialect.request)(key)).collect();
    let heads: Vec<_> = (0..KEYS).map(|key| (dialect.head)(key, load.size)).collect();
    let of = |at: u64| usize::try_from(at % KEYS).expect("a small number");
    let total = load.warmup + load.count;
    let (mut sent, mut done) = (0, 0);
    let mut began = Instant::now();
    let mut replies = BytesMut::with_capacity(4 * ROOM_BYTES);
    let mut leaving = Vec::new();
    while done < total {
        leaving.clear();
        while sent < total && sent < done + load.depth {
            leaving.extend_from_slice(&requests[of(sent)]);
            sent += 1;
        }
        if !leaving.is_empty() {
            stream.write_all(&leaving).await?;
        }
        replies.reserve(ROOM_BYTES);
        if stream.read_buf(&mut replies).await? == 0 {
            return Err("the server hung up".into());
        }
        while done < sent {
            let head = &heads[of(done)];
            let bytes = head.len() + load.size + dialect.tail.len();
            if replies.len() < bytes {
                replies.reserve(bytes - replies.len());
                break;
            }
            if !replies.starts_with(head) || !replies[..bytes].ends_with(dialect.tail) {
                return Err("the reply is no value of that size".into());
            }
            replies.advance(bytes);
            done += 1;
            if done == load.warmup {
                began = Instant::now();
            }
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let report = serde_json::json!({
        "operations": load.count,
        "seconds": seconds,
        "operations_per_second": load.count as f64 / seconds,
    });
    Ok(report.to_string())
}
