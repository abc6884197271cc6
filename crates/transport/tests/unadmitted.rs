//! What callers get that have not been admitted: their own places, little time, and a refusal that
//! they can read.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sanderling_protocol::frame::{HEADER_BYTES, decode_body, encode_body};
use sanderling_protocol::limits::GREETING_BYTES_MAX;
use sanderling_protocol::message::{Hello, HelloReply, Role};
use sanderling_protocol::token::TOKEN_BYTES_MAX;
use sanderling_protocol::{ClusterId, Header, NodeId, Op, Refusal, Token};
use sanderling_transport::{Connection, Handled, Response, ServeOptions, Service, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Longest time that a test waits for what must happen.
const SOON: Duration = Duration::from_secs(60);

/// Longer than any test.
const LONG: Duration = Duration::from_secs(3600);

/// Echoes bodies, to callers that mean no incarnation.
struct Echo;

impl Service for Echo {
    fn hello(&self, hello: &Hello) -> Result<HelloReply, Refusal> {
        let here = NodeId(1);
        match hello.node {
            Some(asked) => Err(Refusal::WrongNode { here, asked }),
            None => Ok(HelloReply { role: Role::Datanode, cluster: None, node: Some(here) }),
        }
    }

    fn handle(self: &Arc<Self>, header: Header, body: Bytes) -> Handled {
        Handled::Now(Response { header: header.reply(), body: vec![body] })
    }
}

struct Server {
    address: String,
    _stop: DropGuard,
}

impl Server {
    async fn start(options: ServeOptions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let stop = CancellationToken::new();
        tokio::spawn(serve(listener, Arc::new(Echo), options, stop.clone()));
        Self { address, _stop: stop.drop_guard() }
    }

    async fn open(&self) -> TcpStream {
        TcpStream::connect(&self.address).await.unwrap()
    }

    async fn connect(&self) -> Connection {
        let hello = Hello { role: Role::Client, cluster: None, node: None, token: None };
        Connection::connect(&self.address, hello, Instant::now() + SOON).await.unwrap().0
    }
}

/// Calls on a connection that is to be served.
async fn call(connection: &Connection) {
    let body = vec![Bytes::from_static(b"here")];
    let answer = connection.call(Header::new(Op::Write, 0), body, Instant::now() + SOON).await;
    assert_eq!(answer.unwrap().body, b"here"[..]);
}

fn greeting(hello: &Hello) -> Vec<u8> {
    let body = encode_body(hello);
    let mut header = Header::new(Op::Hello, 9);
    header.body_bytes = body.len() as u32;
    [&header.encode()[..], &body].concat()
}

async fn refusal(stream: &mut TcpStream) -> (Header, Refusal) {
    let mut answer = Vec::new();
    timeout(SOON, stream.read_to_end(&mut answer)).await.expect("it ends").unwrap();
    let (head, body) = answer.split_first_chunk::<HEADER_BYTES>().unwrap();
    (Header::decode(head).unwrap(), decode_body(body).unwrap())
}

async fn is_closed(stream: &mut TcpStream) {
    let read = timeout(SOON, stream.read(&mut [0; 9])).await.expect("it is closed");
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
}

#[tokio::test]
async fn silent_flood_keeps_no_caller_out() {
    let bounds = ServeOptions { first_byte_within: LONG, hello_within: LONG, ..Default::default() };
    let server = Server::start(ServeOptions { unadmitted_max: 4, ..bounds }).await;
    let first = server.connect().await;
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(server.open().await);
    }
    let second = server.connect().await;
    for connection in [&first, &second] {
        call(connection).await;
    }
    for stream in &mut silent[..46] {
        is_closed(stream).await;
    }
    // The caller that is left is admitted with a greeting.
    let mut last = silent.pop().unwrap();
    let hello = Hello { role: Role::Client, cluster: None, node: None, token: None };
    last.write_all(&greeting(&hello)).await.unwrap();
    let mut head = [0; HEADER_BYTES];
    timeout(SOON, last.read_exact(&mut head)).await.expect("it is answered").unwrap();
    assert_eq!(Header::decode(&head).unwrap().status, 0);
}

#[tokio::test]
async fn unadmitted_caller_has_little_time_for_its_first_byte_and_some_for_its_greeting() {
    let short = Duration::from_millis(50);
    let bounds =
        ServeOptions { first_byte_within: short, hello_within: LONG, ..Default::default() };
    is_closed(&mut Server::start(bounds).await.open().await).await;
    let bounds =
        ServeOptions { first_byte_within: LONG, hello_within: short, ..Default::default() };
    let server = Server::start(bounds).await;
    let mut slow = server.open().await;
    slow.write_all(&[1]).await.unwrap();
    is_closed(&mut slow).await;
}

#[tokio::test]
async fn greeting_that_announces_too_much_is_refused_while_its_body_comes() {
    let server = Server::start(ServeOptions::default()).await;
    let mut header = Header::new(Op::Hello, 9);
    header.body_bytes = 16 << 20;
    let mut stream = server.open().await;
    stream.write_all(&[&header.encode()[..], &vec![7; 4 << 20]].concat()).await.unwrap();
    let (answer, refusal) = refusal(&mut stream).await;
    assert_eq!(answer.request, 0, "it is the connection's");
    let (value, limit) = (16 << 20, u64::from(GREETING_BYTES_MAX));
    assert_eq!(refusal, Refusal::TooLarge { what: "greeting".to_owned(), value, limit });
}

#[tokio::test]
async fn caller_that_sends_more_before_it_is_admitted_reads_the_refusal() {
    let server = Server::start(ServeOptions::default()).await;
    let node = Some(NodeId(9));
    let hello = Hello { role: Role::Client, cluster: None, node, token: None };
    let mut stream = server.open().await;
    stream.write_all(&[greeting(&hello), vec![7; 4 << 20]].concat()).await.unwrap();
    let (answer, refusal) = refusal(&mut stream).await;
    assert_eq!(answer.request, 9);
    assert_eq!(refusal, Refusal::WrongNode { here: NodeId(1), asked: NodeId(9) });
}

#[tokio::test]
async fn longest_token_fits_into_a_greeting() {
    let server = Server::start(ServeOptions::default()).await;
    let cluster = Some(ClusterId(u64::MAX));
    let token = Some(Token::new(&"x".repeat(TOKEN_BYTES_MAX)));
    let hello = Hello { role: Role::Namenode, cluster, node: None, token };
    let connected = Connection::connect(&server.address, hello, Instant::now() + SOON).await;
    call(&connected.unwrap().0).await;
}
