//! The memory of long requests: bounded for all connections together, and not kept for peers that
//! do not send them.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sanderling_protocol::frame::{HEADER_BYTES, decode_body, encode_body};
use sanderling_protocol::message::{Hello, HelloReply, Role};
use sanderling_protocol::{Header, Op, Refusal};
use sanderling_transport::{Buffers, Handled, Memory, Response, ServeOptions, Service, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Longest time that a test waits for what must happen.
const SOON: Duration = Duration::from_secs(60);

/// Answers with the length of the body.
struct Echo;

impl Service for Echo {
    fn hello(&self, _: &Hello) -> Result<HelloReply, Refusal> {
        Ok(HelloReply { role: Role::Namenode, cluster: None, node: None })
    }

    fn handle(self: &Arc<Self>, header: Header, body: Bytes) -> Handled {
        Handled::Now(Response::message(&header, &(body.len() as u64)))
    }
}

struct Served {
    address: String,
    memory: Memory,
    stop: CancellationToken,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Serves with a bound of so many bytes for long requests.
async fn served(bytes: usize, read_within: Duration) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (memory, stop) = (Memory::new(bytes), CancellationToken::new());
    let buffers = Buffers::within(0, memory.clone());
    let options = ServeOptions { buffers, read_within, ..ServeOptions::default() };
    tokio::spawn(serve(listener, Arc::new(Echo), options, stop.clone()));
    Served { address, memory, stop }
}

impl Served {
    /// Connects, greets, and begins a request of so many bytes by sending `sent` of them.
    async fn begin(&self, bytes: u32, sent: usize) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        let hello = Hello { role: Role::Client, cluster: None, node: None, token: None };
        let greeting = encode_body(&hello);
        let mut header = Header::new(Op::Hello, 1);
        header.body_bytes = greeting.len() as u32;
        stream.write_all(&[&header.encode()[..], &greeting].concat()).await.unwrap();
        answer(&mut stream).await;
        let mut header = Header::new(Op::Meta, 2);
        header.body_bytes = bytes;
        stream.write_all(&header.encode()).await.unwrap();
        stream.write_all(&vec![7; sent]).await.unwrap();
        stream
    }

    async fn uses(&self, is_right: impl Fn(usize) -> bool) {
        let looked = async {
            while !is_right(self.memory.used()) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(SOON, looked).await.expect("the memory is not used as it should be");
    }
}

async fn answer(stream: &mut TcpStream) -> (Header, Vec<u8>) {
    let read = async {
        let mut head = [0; HEADER_BYTES];
        stream.read_exact(&mut head).await.unwrap();
        let header = Header::decode(&head).unwrap();
        let mut body = vec![0; header.body_bytes as usize];
        stream.read_exact(&mut body).await.unwrap();
        (header, body)
    };
    timeout(SOON, read).await.expect("an answer")
}

#[tokio::test]
async fn request_without_memory_for_it_is_refused_and_the_connection_goes_on() {
    let served = served(1 << 20, SOON).await;
    let mut first = served.begin(1 << 20, 1000).await;
    served.uses(|used| used == 1 << 20).await;
    let mut second = served.begin(100_000, 100_000).await;
    let (header, body) = answer(&mut second).await;
    assert_ne!(header.status, 0);
    let refusal: Refusal = decode_body(&body).unwrap();
    assert!(matches!(refusal, Refusal::RetryAfter { .. }), "{refusal}");
    first.write_all(&vec![7; (1 << 20) - 1000]).await.unwrap();
    let (_, body) = answer(&mut first).await;
    assert_eq!(decode_body::<u64>(&body).unwrap(), 1 << 20);
    served.uses(|used| used == 0).await;
    let mut header = Header::new(Op::Meta, 3);
    header.body_bytes = 100_000;
    second.write_all(&header.encode()).await.unwrap();
    second.write_all(&[7; 100_000]).await.unwrap();
    let (header, body) = answer(&mut second).await;
    assert_eq!((header.request, decode_body::<u64>(&body).unwrap()), (3, 100_000));
}

#[tokio::test]
async fn peer_that_keeps_memory_without_sending_is_given_up_once_it_is_scarce() {
    // While it is not, a peer may be silent for a minute.
    let served = served(8 << 20, SOON).await;
    let mut silent = served.begin(4 << 20, 1000).await;
    served.uses(|used| used == 4 << 20).await;
    let mut honest = served.begin(1 << 20, 1000).await;
    served.uses(|used| used == 5 << 20).await;
    // It is in time with each part, and the memory is scarce until the other is given up.
    let sending = async {
        let mut left = (1 << 20) - 1000;
        while served.memory.is_scarce() {
            honest.write_all(&[7; 1000]).await.unwrap();
            left -= 1000;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        honest.write_all(&vec![7; left]).await.unwrap();
        answer(&mut honest).await
    };
    let mut rest = Vec::new();
    let (ended, (_, body)) =
        tokio::join!(timeout(SOON / 2, silent.read_to_end(&mut rest)), sending);
    ended.expect("given up").unwrap();
    assert_eq!(decode_body::<u64>(&body).unwrap(), 1 << 20);
    served.uses(|used| used == 0).await;
}

#[tokio::test]
async fn peer_that_sends_a_byte_now_and_then_is_given_up() {
    let served = served(8 << 20, Duration::from_millis(300)).await;
    let stream = served.begin(1 << 20, 1000).await;
    served.uses(|used| used == 1 << 20).await;
    let (mut read, mut write) = stream.into_split();
    let trickle = async {
        while write.write_all(&[7; 10]).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let mut rest = Vec::new();
    tokio::select! {
        () = trickle => {}
        ended = timeout(SOON, read.read_to_end(&mut rest)) => {
            let _ = ended.expect("given up");
        }
    }
    served.uses(|used| used == 0).await;
}

/// A request whose body is so long.
fn request(bytes: usize) -> Vec<u8> {
    let mut header = Header::new(Op::Meta, 3);
    header.body_bytes = bytes as u32;
    [&header.encode()[..], &vec![7; bytes]].concat()
}

/// What the server counts for a connection with the larger buffer.
const GROWN_BYTES: usize = 128 << 10;

#[tokio::test]
async fn peer_that_sends_a_short_request_now_and_then_keeps_no_larger_buffer() {
    let served = served(8 << 20, SOON).await;
    let mut stream = served.begin(10_000, 10_000).await;
    answer(&mut stream).await;
    served.uses(|used| used >= GROWN_BYTES).await;
    let trickle = async {
        loop {
            stream.write_all(&request(10)).await.unwrap();
            answer(&mut stream).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        () = trickle => {}
        () = served.uses(|used| used == 0) => {}
    }
    // It has one again when it needs it.
    stream.write_all(&request(10_000)).await.unwrap();
    served.uses(|used| used >= GROWN_BYTES).await;
}

#[tokio::test]
async fn peer_that_sends_a_short_request_by_single_bytes_is_given_up() {
    let served = served(8 << 20, Duration::from_millis(300)).await;
    let stream = served.begin(10_000, 1000).await;
    served.uses(|used| used == GROWN_BYTES).await;
    let (mut read, mut write) = stream.into_split();
    let trickle = async {
        while write.write_all(&[7]).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let mut rest = Vec::new();
    tokio::select! {
        () = trickle => {}
        ended = timeout(SOON, read.read_to_end(&mut rest)) => {
            let _ = ended.expect("given up");
        }
    }
    served.uses(|used| used == 0).await;
}
