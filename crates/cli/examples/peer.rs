//! The clients of other systems that `make bench` compares with, on the runtime that ours uses.
//!
//! Each does as little as it can: requests are made once, replies are not copied out of the buffer
//! that they arrive in, and what many replies allow to be sent leaves in one write. What is left is
//! the other system's server and the kernel.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Instant;

use bytes::{Buf, BytesMut};
use clap::{Args, Parser, Subcommand};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Notify, oneshot};

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

fn main() -> Result<(), Box<dyn Error>> {
    let report = match Peer::parse().role {
        Role::Echo => echo().map(|()| String::new())?,
        Role::Ping(load) => ping(&load)?,
        Role::Redis(load) => gets(&load, &REDIS)?,
        Role::Memcached(load) => gets(&load, &MEMCACHED)?,
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

/// How a value is requested from a system, and what stands around it in the reply.
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

/// A connection on which many requests are under way.
struct Connection<'a> {
    load: &'a Load,
    requests: Vec<Vec<u8>>,
    heads: Vec<Vec<u8>>,
    tail: &'a [u8],
    /// Requests that were sent or are about to be.
    sent: Cell<u64>,
    leaving: RefCell<Vec<u8>>,
    has_leaving: Notify,
    waiting: RefCell<VecDeque<oneshot::Sender<()>>>,
}

/// Gets values in as many workers as are to be in flight, as `sanderling bench` does: each worker
/// sends a request, waits for its reply and sends the next.
fn gets(load: &Load, dialect: &Dialect) -> Result<String, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(load.address).await?;
        stream.set_nodelay(true)?;
        let connection = Connection {
            load,
            requests: (0..KEYS).map(|key| (dialect.request)(key)).collect(),
            heads: (0..KEYS).map(|key| (dialect.head)(key, load.size)).collect(),
            tail: dialect.tail,
            sent: Cell::new(0),
            leaving: RefCell::new(Vec::new()),
            has_leaving: Notify::new(),
            waiting: RefCell::new(VecDeque::new()),
        };
        tokio::select! {
            seconds = connection.workers() => Ok(report(load, seconds)),
            Err(error) = connection.drive(stream) => Err(error),
        }
    })
}

impl Connection<'_> {
    async fn workers(&self) -> f64 {
        self.phase(self.load.warmup).await;
        let began = Instant::now();
        self.phase(self.load.warmup + self.load.count).await;
        began.elapsed().as_secs_f64()
    }

    /// Runs all workers until so many requests were answered.
    async fn phase(&self, until: u64) {
        let mut workers: FuturesUnordered<_> = (0..self.load.depth)
            .map(|_| async {
                while self.sent.get() < until {
                    self.get().await;
                }
            })
            .collect();
        while workers.next().await.is_some() {}
    }

    async fn get(&self) {
        let (reply, replied) = oneshot::channel();
        let request = &self.requests[self.key(self.sent.get())];
        self.sent.set(self.sent.get() + 1);
        self.leaving.borrow_mut().extend_from_slice(request);
        self.waiting.borrow_mut().push_back(reply);
        self.has_leaving.notify_one();
        // A worker that drops the other end has failed, which ends everything.
        let _ = replied.await;
    }

    /// Sends what is to leave in one write and hands out the replies, which come in order.
    async fn drive(&self, stream: tokio::net::TcpStream) -> Result<Infallible, Box<dyn Error>> {
        let (mut from, mut to) = stream.into_split();
        let mut replies = BytesMut::with_capacity(4 * ROOM_BYTES);
        let (mut leaving, mut done) = (Vec::new(), 0);
        loop {
            replies.reserve(ROOM_BYTES);
            tokio::select! {
                () = self.has_leaving.notified() => {
                    std::mem::swap(&mut leaving, &mut self.leaving.borrow_mut());
                    to.write_all(&leaving).await?;
                    leaving.clear();
                }
                read = from.read_buf(&mut replies) => {
                    if read? == 0 {
                        return Err("the server hung up".into());
                    }
                    self.take(&mut replies, &mut done)?;
                }
            }
        }
    }

    /// Takes every complete reply out of the buffer.
    fn take(&self, replies: &mut BytesMut, done: &mut u64) -> Result<(), Box<dyn Error>> {
        loop {
            let head = &self.heads[self.key(*done)];
            let bytes = head.len() + self.load.size + self.tail.len();
            if replies.len() < bytes {
                let missing = bytes - replies.len();
                replies.reserve(missing);
                return Ok(());
            }
            if !replies.starts_with(head) || !replies[..bytes].ends_with(self.tail) {
                return Err("the reply is no value of that size".into());
            }
            replies.advance(bytes);
            *done += 1;
            let worker = self.waiting.borrow_mut().pop_front();
            let _ = worker.ok_or("a reply without a request")?.send(());
        }
    }

    fn key(&self, at: u64) -> usize {
        usize::try_from(at % KEYS).expect("a small number")
    }
}

fn report(load: &Load, seconds: f64) -> String {
    let report = serde_json::json!({
        "operations": load.count,
        "seconds": seconds,
        "operations_per_second": load.count as f64 / seconds,
    });
    report.to_string()
}
