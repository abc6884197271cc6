//! Slow and silent peers: calls wait for as long as bytes come, and not for those that fell silent.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sanderling_protocol::frame::{HEADER_BYTES, encode_body};
use sanderling_protocol::message::{Hello, HelloReply, Role};
use sanderling_protocol::{Header, Op, Refusal};
use sanderling_transport::{
    BodySink, CallError, Connection, ConnectionOptions, Handled, Response, ServeOptions, Service,
    Timeouts, attend,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

const HELLO: Hello = Hello { role: Role::Client, cluster: None, node: None, token: None };

/// Longest time that a test waits for what must happen.
const SOON: Duration = Duration::from_secs(60);

fn patient(deadline_millis: u64, idle_millis: u64) -> Timeouts {
    let deadline = Instant::now() + Duration::from_millis(deadline_millis);
    Timeouts { deadline, idle: Some(Duration::from_millis(idle_millis)) }
}

/// Reads one frame of a client.
async fn frame(stream: &mut (impl AsyncReadExt + Unpin)) -> Header {
    let mut head = [0; HEADER_BYTES];
    stream.read_exact(&mut head).await.unwrap();
    let header = Header::decode(&head).unwrap();
    let mut body = vec![0; header.body_bytes as usize];
    stream.read_exact(&mut body).await.unwrap();
    header
}

/// A peer by hand: greets, then is the test's.
async fn greeted() -> (Connection, UnixStream) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let greeting = async {
        let header = frame(&mut theirs).await;
        let reply = HelloReply { role: Role::Datanode, cluster: None, node: None };
        answer(&mut theirs, &header, &encode_body(&reply)).await;
    };
    let options = ConnectionOptions::default();
    let deadline = Instant::now() + SOON;
    let connecting = Connection::greet("peer", ours, HELLO, deadline, &options);
    let (connected, ()) = tokio::join!(connecting, greeting);
    (connected.unwrap().0, theirs)
}

fn announced(request: &Header, bytes: usize) -> [u8; HEADER_BYTES] {
    let mut reply = request.reply();
    reply.body_bytes = bytes as u32;
    reply.encode()
}

async fn answer(stream: &mut UnixStream, request: &Header, body: &[u8]) {
    stream.write_all(&announced(request, body.len())).await.unwrap();
    stream.write_all(body).await.unwrap();
}

#[tokio::test]
async fn calls_behind_others_on_a_slow_link_wait_for_as_long_as_bytes_come() {
    let (connection, mut peer) = greeted().await;
    let calls: Vec<_> = (0..8)
        .map(|_| {
            let connection = connection.clone();
            let call = async move {
                connection.call(Header::new(Op::Read, 0), vec![], patient(60_000, 6000)).await
            };
            tokio::spawn(call)
        })
        .collect();
    let mut asked = Vec::new();
    for _ in 0..8 {
        asked.push(frame(&mut peer).await);
    }
    // All answers together take twice as long as one call waits in silence.
    let body = vec![7; 100_000];
    for header in &asked {
        peer.write_all(&announced(header, body.len())).await.unwrap();
        for part in body.chunks(10_000) {
            tokio::time::sleep(Duration::from_millis(150)).await;
            peer.write_all(part).await.unwrap();
        }
    }
    for call in calls {
        assert_eq!(timeout(SOON, call).await.unwrap().unwrap().unwrap().body, body);
    }
}

#[tokio::test]
async fn peer_that_stalls_in_the_middle_of_a_body_ends_the_call_and_may_go_on_later() {
    let (connection, mut peer) = greeted().await;
    let call = connection.call(Header::new(Op::Read, 0), vec![], patient(60_000, 100));
    let stall = async {
        let header = frame(&mut peer).await;
        peer.write_all(&announced(&header, 1 << 20)).await.unwrap();
        peer.write_all(&vec![7; 500_000]).await.unwrap();
    };
    let (stalled, ()) = tokio::join!(call, stall);
    assert!(matches!(stalled, Err(CallError::TimedOut { .. })), "{stalled:?}");
    // The rest comes when no call waits for it any more; the next request gets its own answer.
    let next = connection.call(Header::new(Op::Read, 0), vec![], patient(60_000, 60_000));
    let go_on = async {
        peer.write_all(&vec![7; (1 << 20) - 500_000]).await.unwrap();
        let header = frame(&mut peer).await;
        answer(&mut peer, &header, b"mine").await;
    };
    let (answered, ()) = tokio::join!(next, go_on);
    assert_eq!(answered.unwrap().body, b"mine"[..]);
    assert!(!connection.is_broken());
}

#[tokio::test]
async fn cancelled_calls_send_nothing_more_and_leave_room_for_others() {
    let (connection, mut peer) = greeted().await;
    // The first fills the socket; those behind it are queued.
    let body = vec![Bytes::from(vec![7; 8 << 20])];
    let long = connection.clone();
    let long = tokio::spawn(async move {
        long.call(Header::new(Op::Write, 0), body, patient(60_000, 60_000)).await
    });
    let mut head = [0; HEADER_BYTES];
    peer.read_exact(&mut head).await.unwrap();
    let first = Header::decode(&head).unwrap();
    for _ in 0..1000 {
        let queued = connection.call(Header::new(Op::Order, 0), vec![], patient(60_000, 60_000));
        assert!(timeout(Duration::from_micros(1), queued).await.is_err());
    }
    let last = connection.call(Header::new(Op::Read, 0), vec![], patient(60_000, 60_000));
    let serve = async {
        peer.read_exact(&mut vec![0; first.body_bytes as usize]).await.unwrap();
        // Of the cancelled ones, those of one batch may have been on their way.
        let mut header = frame(&mut peer).await;
        let mut cancelled = 0;
        while header.op == Op::Order {
            header = frame(&mut peer).await;
            cancelled += 1;
        }
        assert!(cancelled <= 64, "{cancelled} frames of cancelled calls were sent");
        answer(&mut peer, &header, b"mine").await;
        answer(&mut peer, &first, b"").await;
    };
    let (answered, ()) = timeout(SOON, async { tokio::join!(last, serve) }).await.unwrap();
    assert_eq!(answered.unwrap().body, b"mine"[..]);
    long.await.unwrap().unwrap();
}

/// Takes bodies of `Write` into memory of its own and answers with their sum.
struct Lander {
    sinks: watch::Sender<i32>,
}

#[derive(Debug)]
struct Landed {
    bytes: Vec<u8>,
    filled: usize,
    sinks: watch::Sender<i32>,
}

impl Drop for Landed {
    fn drop(&mut self) {
        self.sinks.send_modify(|sinks| *sinks -= 1);
    }
}

impl BodySink for Landed {
    /// In pieces of which none is a power of two, as memory may be.
    fn spare(&mut self) -> &mut [u8] {
        let upto = self.bytes.len().min(self.filled + 70_001);
        &mut self.bytes[self.filled..upto]
    }

    fn advance(&mut self, bytes: usize) {
        self.filled += bytes;
    }

    fn arrived(self: Box<Self>, header: Header) -> Handled {
        assert_eq!(self.filled, header.body_bytes as usize);
        let sum: u64 = self.bytes.iter().map(|byte| u64::from(*byte)).sum();
        Handled::Now(Response::message(&header, &sum))
    }
}

impl Service for Lander {
    fn hello(&self, _: &Hello) -> Result<HelloReply, Refusal> {
        Ok(HelloReply { role: Role::Datanode, cluster: None, node: None })
    }

    fn handle(self: &Arc<Self>, header: Header, body: Bytes) -> Handled {
        Handled::Now(Response { header: header.reply(), body: vec![body] })
    }

    fn body_sink(self: &Arc<Self>, header: &Header) -> Option<Box<dyn BodySink>> {
        if header.op != Op::Write {
            return None;
        }
        let bytes = vec![0; header.body_bytes as usize];
        self.sinks.send_modify(|sinks| *sinks += 1);
        Some(Box::new(Landed { bytes, filled: 0, sinks: self.sinks.clone() }))
    }
}

async fn lander(read_within: Duration) -> (TcpStream, watch::Receiver<i32>) {
    let (sinks, seen) = watch::channel(0);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (ours, accepted) =
        tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
    let options = ServeOptions { read_within, ..ServeOptions::default() };
    let stream = accepted.unwrap().0;
    tokio::spawn(async move { attend(stream, Arc::new(Lander { sinks }), &options).await });
    (ours.unwrap(), seen)
}

#[tokio::test]
async fn bodies_arrive_in_the_sinks_of_the_service_among_others() {
    let (stream, sinks) = lander(SOON).await;
    let deadline = Instant::now() + SOON;
    let options = ConnectionOptions::default();
    let (connection, _) =
        Connection::greet("peer", stream, HELLO, deadline, &options).await.unwrap();
    let calls = (0..60_usize).map(|number| {
        let connection = connection.clone();
        async move {
            let op = if number % 3 == 0 { Op::Read } else { Op::Write };
            let bytes = [0, 10, 20_000, 300_000, 1 << 20][number % 5];
            let body = vec![3; bytes];
            let parts = vec![Bytes::from(body.clone())];
            let answer = connection.call(Header::new(op, 0), parts, deadline).await.unwrap();
            if op == Op::Read || bytes <= 20 {
                assert!(answer.body == body, "short bodies come in a buffer");
            } else {
                assert_eq!(answer.body, encode_body(&(3 * bytes as u64)));
            }
        }
    });
    futures_util::future::join_all(calls).await;
    assert_eq!(*sinks.borrow(), 0);
}

#[tokio::test]
async fn client_that_stalls_in_the_middle_of_a_body_loses_the_memory_for_it() {
    let (mut stream, mut sinks) = lander(Duration::from_millis(1500)).await;
    let greeting = encode_body(&HELLO);
    let mut header = Header::new(Op::Hello, 1);
    header.body_bytes = greeting.len() as u32;
    stream.write_all(&header.encode()).await.unwrap();
    stream.write_all(&greeting).await.unwrap();
    let mut half = Header::new(Op::Write, 2);
    half.body_bytes = 1 << 20;
    stream.write_all(&half.encode()).await.unwrap();
    stream.write_all(&[7; 1000]).await.unwrap();
    timeout(SOON, sinks.wait_for(|sinks| *sinks == 1)).await.unwrap().unwrap();
    timeout(SOON, sinks.wait_for(|sinks| *sinks == 0)).await.unwrap().unwrap();
    let mut rest = Vec::new();
    timeout(SOON, stream.read_to_end(&mut rest)).await.unwrap().unwrap();
}
