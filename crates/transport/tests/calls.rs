//! Calls over real sockets: many at once, slow ones, broken peers, and what is not a frame.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sanderling_protocol::frame::{HEADER_BYTES, VERSION, decode_body};
use sanderling_protocol::message::{Hello, HelloReply, Role};
use sanderling_protocol::{Header, NodeId, Op, Refusal};
use sanderling_transport::{
    CallError, Connection, ConnectionOptions, Handled, ListenError, Pool, PoolOptions, Response,
    Security, ServeOptions, Service, listen, serve,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Echoes bodies; `offset` milliseconds later if it is not zero; refuses length 1.
struct Echo;

impl Service for Echo {
    fn hello(&self, hello: &Hello) -> Result<HelloReply, Refusal> {
        let here = NodeId(1);
        match hello.node {
            Some(asked) if asked != here => Err(Refusal::WrongNode { here, asked }),
            _ => Ok(HelloReply { role: Role::Datanode, cluster: None, node: Some(here) }),
        }
    }

    fn handle(self: &Arc<Self>, header: Header, body: Bytes) -> Handled {
        if header.length == 1 {
            return Handled::Now(Response::refused(&header, &Refusal::NoHello));
        }
        let response = Response { header: header.reply(), body: vec![body] };
        if header.offset == 0 {
            return Handled::Now(response);
        }
        Handled::Later(Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(header.offset)).await;
            response
        }))
    }
}

struct Server {
    address: String,
    shutdown: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

async fn server() -> Server {
    let listener = listen("127.0.0.1:0", &Security::default()).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let shutdown = CancellationToken::new();
    let options = ServeOptions { in_flight_max: 8, ..ServeOptions::default() };
    let task = tokio::spawn(serve(listener, Arc::new(Echo), options, shutdown.clone()));
    Server { address, shutdown, task }
}

fn soon(millis: u64) -> Instant {
    Instant::now() + Duration::from_millis(millis)
}

fn hello(node: Option<NodeId>) -> Hello {
    Hello { role: Role::Client, cluster: None, node, token: None }
}

fn delayed(millis: u64) -> Header {
    let mut header = Header::new(Op::Read, 0);
    header.offset = millis;
    header
}

async fn connect(server: &Server) -> Connection {
    Connection::connect(&server.address, hello(None), soon(60_000)).await.unwrap().0
}

#[tokio::test]
async fn many_calls_share_a_connection_and_each_gets_its_own_answer() {
    let server = server().await;
    let connection = connect(&server).await;
    let calls = (0..500u32).map(|number| {
        let connection = connection.clone();
        async move {
            let body = vec![Bytes::from(number.to_le_bytes().to_vec()), Bytes::from(vec![7; 1000])];
            let header = delayed(u64::from(number % 3));
            let answer = connection.call(header, body, soon(60_000)).await.unwrap();
            assert_eq!(answer.body[..4], number.to_le_bytes());
            assert_eq!(answer.body.len(), 1004);
        }
    });
    futures_util::future::join_all(calls).await;
}

#[tokio::test]
async fn posted_frames_are_not_answered_and_calls_beside_them_are() {
    let server = server().await;
    let connection = connect(&server).await;
    let mut refused = Header::new(Op::Read, 0);
    refused.length = 1;
    for number in 0..100u32 {
        for header in [delayed(0), delayed(u64::from(number % 3)), refused] {
            connection.post(header, vec![Bytes::from_static(b"posted")]).unwrap();
        }
        let body = Bytes::from(number.to_le_bytes().to_vec());
        let answer = connection.call(delayed(0), vec![body.clone()], soon(60_000)).await.unwrap();
        assert_eq!(answer.body, body);
    }
    assert!(!connection.is_broken());
    server.shutdown.cancel();
    server.task.await.unwrap();
    let limit = soon(60_000);
    while connection.post(delayed(0), vec![]).is_ok() {
        assert!(Instant::now() < limit, "the connection has ended");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(matches!(connection.post(delayed(0), vec![]), Err(CallError::Closed { .. })));
}

#[tokio::test]
async fn posting_to_a_peer_that_takes_nothing_neither_waits_nor_keeps_frames_without_end() {
    let server = server().await;
    let between = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = between.local_addr().unwrap().to_string();
    let to = server.address.clone();
    // Passes on what both ends send first, and takes no more.
    let passing = tokio::spawn(async move {
        let (mut near, _) = between.accept().await.unwrap();
        let mut far = TcpStream::connect(to).await.unwrap();
        let mut bytes = vec![0; 4096];
        let count = near.read(&mut bytes).await.unwrap();
        far.write_all(&bytes[..count]).await.unwrap();
        let count = far.read(&mut bytes).await.unwrap();
        near.write_all(&bytes[..count]).await.unwrap();
        (near, far)
    });
    let connection = Connection::connect(&address, hello(None), soon(60_000)).await.unwrap().0;
    let held = passing.await.unwrap();
    let body = Bytes::from(vec![7; 64 << 10]);
    let posted = (0..4096).take_while(|_| connection.post(delayed(0), vec![body.clone()]).is_ok());
    let count = posted.count();
    // Those that wait, and what the kernel's buffers take.
    assert!((256..2048).contains(&count), "{count}");
    let busy = connection.post(delayed(0), vec![body]);
    assert!(matches!(busy, Err(CallError::TooBusy { .. })), "{busy:?}");
    drop(held);
}

#[tokio::test]
async fn large_body_arrives_whole() {
    let server = server().await;
    let connection = connect(&server).await;
    let body: Vec<u8> = (0..(3 << 20)).map(|at| ((at * 31) >> 3) as u8).collect();
    let sent = vec![Bytes::from(body.clone())];
    let answer = connection.call(Header::new(Op::Write, 0), sent, soon(60_000)).await.unwrap();
    assert!(answer.body == body);
    let too_large = vec![Bytes::from(vec![0; 17 << 20])];
    let refused = connection.call(Header::new(Op::Write, 0), too_large, soon(60_000)).await;
    assert!(matches!(refused, Err(CallError::Refused(Refusal::TooLarge { .. }))));
    assert!(!connection.is_broken());
}

#[tokio::test]
async fn call_ends_at_its_deadline_and_the_connection_lives_on() {
    let server = server().await;
    let connection = connect(&server).await;
    let late = connection.call(delayed(60_000), vec![], soon(50)).await;
    assert!(matches!(late, Err(CallError::TimedOut { .. })));
    connection.call(delayed(0), vec![], soon(60_000)).await.unwrap();
}

#[tokio::test]
async fn refusals_come_typed() {
    let server = server().await;
    let connection = connect(&server).await;
    let mut header = Header::new(Op::Read, 0);
    header.length = 1;
    let refused = connection.call(header, vec![], soon(60_000)).await;
    assert_eq!(refused.unwrap_err(), CallError::Refused(Refusal::NoHello));
    let wrong = Connection::connect(&server.address, hello(Some(NodeId(2))), soon(60_000)).await;
    let refusal = Refusal::WrongNode { here: NodeId(1), asked: NodeId(2) };
    assert_eq!(wrong.unwrap_err(), CallError::Refused(refusal));
}

#[tokio::test]
async fn death_of_the_server_fails_every_waiter_at_once() {
    let server = server().await;
    let connection = connect(&server).await;
    let waiters: Vec<_> = (0..20)
        .map(|_| {
            let connection = connection.clone();
            tokio::spawn(
                async move { connection.call(delayed(60_000), vec![], soon(60_000)).await },
            )
        })
        .collect();
    connection.call(delayed(0), vec![], soon(60_000)).await.ok();
    server.shutdown.cancel();
    server.task.await.unwrap();
    for waiter in waiters {
        let error = waiter.await.unwrap().unwrap_err();
        assert!(matches!(error, CallError::Closed { .. }), "{error:?}");
    }
    assert!(connection.is_broken());
    let again = Connection::connect(&server.address, hello(None), soon(60_000)).await.unwrap_err();
    assert!(again.is_connection_refused());
}

#[tokio::test]
async fn pool_connects_again_after_a_restart() {
    let first = server().await;
    let pool = Pool::new(PoolOptions::default());
    let call = |deadline| pool.call(&first.address, Some(NodeId(1)), delayed(0), vec![], deadline);
    call(soon(60_000)).await.unwrap();
    first.shutdown.cancel();
    first.task.await.unwrap();
    assert!(call(soon(60_000)).await.is_err());
    let listener = TcpListener::bind(&first.address).await.unwrap();
    let shutdown = CancellationToken::new();
    tokio::spawn(serve(listener, Arc::new(Echo), ServeOptions::default(), shutdown.clone()));
    call(soon(60_000)).await.unwrap();
}

/// Sends raw bytes after a greeting and returns everything that comes back until the end.
async fn after_hello(server: &Server, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(&server.address).await.unwrap();
    let body = sanderling_protocol::frame::encode_body(&hello(None));
    let mut header = Header::new(Op::Hello, 9);
    header.body_bytes = body.len() as u32;
    stream.write_all(&header.encode()).await.unwrap();
    stream.write_all(&body).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    tokio::time::timeout(Duration::from_secs(60), read).await.unwrap().unwrap();
    let hello_bytes =
        Header::decode(answer[..HEADER_BYTES].try_into().unwrap()).unwrap().body_bytes;
    answer.split_off(HEADER_BYTES + hello_bytes as usize)
}

fn refusal_in(answer: &[u8]) -> Refusal {
    let header = Header::decode(answer[..HEADER_BYTES].try_into().unwrap()).unwrap();
    let refusal: Refusal = decode_body(&answer[HEADER_BYTES..]).unwrap();
    assert_eq!(header.status, refusal.code());
    refusal
}

#[tokio::test]
async fn what_is_not_a_frame_is_refused_and_the_connection_closed() {
    let server = server().await;
    let answer = after_hello(&server, &[0x47; 64]).await;
    assert!(matches!(refusal_in(&answer), Refusal::BadFrame { .. }));
    let mut version = Header::new(Op::Read, 1).encode();
    version[2] = 99;
    let answer = after_hello(&server, &version).await;
    assert_eq!(refusal_in(&answer), Refusal::UnknownVersion { ours: VERSION, theirs: 99 });
    let mut oversized = Header::new(Op::Read, 1);
    oversized.body_bytes = u32::MAX;
    let answer = after_hello(&server, &oversized.encode()).await;
    assert!(matches!(refusal_in(&answer), Refusal::TooLarge { .. }));
    let mut unknown = Header::new(Op::Read, 1).encode();
    unknown[3] = 77;
    assert_eq!(refusal_in(&after_hello(&server, &unknown).await), Refusal::UnknownOp { op: 77 });
    connect(&server).await.call(delayed(0), vec![], soon(60_000)).await.unwrap();
}

#[tokio::test]
async fn requests_before_what_is_not_a_frame_are_answered_in_their_order() {
    let server = server().await;
    let mut bytes = Vec::new();
    for number in 1..=64 {
        let mut header = Header::new(Op::Read, number);
        header.body_bytes = 4096;
        bytes.extend_from_slice(&header.encode());
        bytes.extend_from_slice(&[number as u8; 4096]);
    }
    bytes.extend_from_slice(&[0x47; 64]);
    let answer = after_hello(&server, &bytes).await;
    let (answers, refusal) = answer.split_at(64 * (HEADER_BYTES + 4096));
    for (number, answer) in (1..).zip(answers.chunks(HEADER_BYTES + 4096)) {
        let (head, body) = answer.split_first_chunk::<HEADER_BYTES>().unwrap();
        assert_eq!(Header::decode(head).unwrap().request, number);
        assert_eq!(body, [number as u8; 4096]);
    }
    assert!(matches!(refusal_in(refusal), Refusal::BadFrame { .. }));
}

#[tokio::test]
async fn peers_that_wait_for_each_answer_and_one_that_does_not_share_a_server() {
    let server = server().await;
    let one_by_one = (0..3_u64).map(|pause| {
        let server = &server;
        async move {
            let connection = connect(server).await;
            for number in 0..200_u32 {
                // Now and then one that takes longer than is polled for.
                let header = delayed(if number % 50 == 49 { pause } else { 0 });
                let body = vec![Bytes::from(number.to_le_bytes().to_vec())];
                let answer = connection.call(header, body, soon(20_000)).await.unwrap();
                assert_eq!(answer.body, number.to_le_bytes()[..]);
            }
        }
    });
    let together = async {
        let connection = connect(&server).await;
        let calls = (0..500_u32).map(|number| {
            let connection = connection.clone();
            async move {
                let body = vec![Bytes::from(vec![number as u8; 4096])];
                let answer = connection.call(delayed(0), body, soon(20_000)).await.unwrap();
                assert_eq!(answer.body, vec![number as u8; 4096]);
            }
        });
        futures_util::future::join_all(calls).await;
    };
    futures_util::future::join(futures_util::future::join_all(one_by_one), together).await;
}

#[tokio::test]
async fn frames_without_a_greeting_are_refused() {
    let server = server().await;
    let mut stream = TcpStream::connect(&server.address).await.unwrap();
    stream.write_all(&Header::new(Op::Read, 5).encode()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert_eq!(refusal_in(&answer), Refusal::NoHello);
}

#[tokio::test]
async fn half_a_frame_disturbs_no_other_connection() {
    let server = server().await;
    let mut stream = TcpStream::connect(&server.address).await.unwrap();
    stream.write_all(&Header::new(Op::Hello, 5).encode()[..20]).await.unwrap();
    connect(&server).await.call(delayed(0), vec![], soon(60_000)).await.unwrap();
    drop(stream);
}

#[tokio::test]
async fn listening_beyond_loopback_needs_permission() {
    assert!(matches!(
        listen("0.0.0.0:0", &Security::default()).await,
        Err(ListenError::NotLoopback { .. })
    ));
    let open = Security { allow_unauthenticated: true, ..Security::default() };
    assert!(listen("0.0.0.0:0", &open).await.is_ok());
    let taken = listen("127.0.0.1:0", &Security::default()).await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    assert!(matches!(listen(&address, &Security::default()).await, Err(ListenError::InUse { .. })));
    assert!(matches!(listen("no-port", &Security::default()).await, Err(ListenError::Io { .. })));
}

#[tokio::test]
async fn calls_beyond_the_bound_wait_their_turn_until_their_deadline() {
    let server = server().await;
    let options = ConnectionOptions { in_flight_max: 2, ..ConnectionOptions::default() };
    let connected =
        Connection::connect_with(&server.address, hello(None), soon(60_000), &options).await;
    let connection = connected.unwrap().0;
    let mut slow = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let connection = connection.clone();
        slow.spawn(async move { connection.call(delayed(60_000), vec![], soon(60_000)).await });
    }
    let busy = async {
        loop {
            match connection.call(delayed(0), vec![], soon(50)).await {
                // The slow ones have not been sent yet, or this machine is slow.
                Ok(_) | Err(CallError::TimedOut { .. }) => tokio::task::yield_now().await,
                Err(error) => return error,
            }
        }
    };
    let error = tokio::time::timeout(Duration::from_secs(60), busy).await.unwrap();
    assert!(matches!(error, CallError::TooBusy { .. }), "{error:?}");
    slow.shutdown().await;
    connection.call(delayed(0), vec![], soon(60_000)).await.unwrap();
}

#[tokio::test]
async fn peer_that_takes_no_answers_is_given_up_and_others_are_served() {
    let listener = listen("127.0.0.1:0", &Security::default()).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let shutdown = CancellationToken::new();
    let options =
        ServeOptions { write_within: Duration::from_millis(200), ..ServeOptions::default() };
    let task = tokio::spawn(serve(listener, Arc::new(Echo), options, shutdown.clone()));
    let server = Server { address, shutdown, task };
    let mut stream = TcpStream::connect(&server.address).await.unwrap();
    let body = sanderling_protocol::frame::encode_body(&hello(None));
    let mut header = Header::new(Op::Hello, 9);
    header.body_bytes = body.len() as u32;
    stream.write_all(&[&header.encode()[..], &body].concat()).await.unwrap();
    let mut large = Header::new(Op::Write, 1);
    large.body_bytes = 4 << 20;
    let frame = [&large.encode()[..], &vec![7; 4 << 20]].concat();
    let stuffing = async { while stream.write_all(&frame).await.is_ok() {} };
    tokio::time::timeout(Duration::from_secs(60), stuffing).await.expect("given up");
    connect(&server).await.call(delayed(0), vec![], soon(60_000)).await.unwrap();
}

#[tokio::test]
async fn callers_beyond_the_bound_are_refused_and_room_comes_back() {
    let listener = listen("127.0.0.1:0", &Security::default()).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let options = ServeOptions { connections_max: 1, ..ServeOptions::default() };
    tokio::spawn(serve(listener, Arc::new(Echo), options, CancellationToken::new()));
    let connect = || Connection::connect(&address, hello(None), soon(60_000));
    let (first, _) = connect().await.unwrap();
    let refused = connect().await.unwrap_err();
    assert!(matches!(refused, CallError::Refused(Refusal::RetryAfter { .. })), "{refused}");
    drop(first);
    let again = async { while connect().await.is_err() {} };
    tokio::time::timeout(Duration::from_secs(60), again).await.expect("room came back");
}
