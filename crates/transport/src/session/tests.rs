use sanderling_protocol::frame::{HEADER_BYTES, encode_body, held_requests};
use sanderling_protocol::limits::CALLS_IN_FLIGHT_MAX;
use sanderling_protocol::message::{HelloReply, Role};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::*;
use crate::buffers::Buffers;

const ANSWER_BYTES: usize = 1000;
const PIECES: usize = 1000;

/// Answers a while later, but for `Meta`: never; `ReadMany` at once, with many short pieces.
struct Slow;

impl Service for Slow {
    fn hello(&self, _: &Hello) -> Result<HelloReply, Refusal> {
        Ok(HelloReply { role: Role::Namenode, cluster: None, node: None })
    }

    fn holds(&self, header: &Header) -> bool {
        header.op == Op::Meta
    }

    fn handle(self: &Arc<Self>, header: Header, _: Bytes) -> Handled {
        if header.op == Op::ReadMany {
            let body = vec![Bytes::from(vec![7; ANSWER_BYTES]); PIECES];
            return Handled::Now(Response { header: header.reply(), body });
        }
        Handled::Later(Box::pin(async move {
            if header.op == Op::Meta {
                std::future::pending::<()>().await;
            }
            let body = vec![Bytes::from(vec![7; ANSWER_BYTES])];
            Response { header: header.reply(), body }
        }))
    }
}

/// Returns a session and its peer.
async fn session(options: &ServeOptions) -> (ServerSession<'_, Slow>, UnixStream) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let hello = Hello { role: Role::Client, cluster: None, node: None, token: None };
    let greeting = encode_body(&hello);
    let mut header = Header::new(Op::Hello, 1);
    header.body_bytes = greeting.len() as u32;
    theirs.write_all(&[&header.encode()[..], &greeting].concat()).await.unwrap();
    let places = Places::new(1);
    let place = |_: Option<&str>| places.admit(None);
    (greeted(ours.into(), Arc::new(Slow), options, place).await.expect("admitted"), theirs)
}

/// Returns the next answer's status.
async fn status(peer: &mut UnixStream) -> u16 {
    let mut head = [0; HEADER_BYTES];
    peer.read_exact(&mut head).await.unwrap();
    let header = Header::decode(&head).unwrap();
    peer.read_exact(&mut vec![0; header.body_bytes as usize]).await.unwrap();
    header.status
}

#[tokio::test]
async fn short_pieces_that_the_peer_does_not_take_are_counted_or_refused() {
    for (max, is_refused) in [(16 << 20, false), (1 << 20, true)] {
        let memory = Memory::new(max);
        let buffers = Buffers::within(0, memory.clone());
        let options = ServeOptions { buffers, ..ServeOptions::default() };
        let (mut session, mut theirs) = session(&options).await;
        let read = Header::new(Op::ReadMany, 2);
        theirs.write_all(&read.encode()).await.unwrap();
        let served = timeout(Duration::from_millis(200), session.run()).await;
        assert!(served.is_err(), "it waits for the peer");
        assert_eq!(memory.used() >= ANSWER_BYTES * PIECES, !is_refused, "{}", memory.used());
        let answers = async {
            status(&mut theirs).await;
            status(&mut theirs).await
        };
        let (status, _) = tokio::join!(answers, timeout(Duration::from_millis(500), session.run()));
        assert_eq!(status != 0, is_refused);
        assert!(memory.used() < ANSWER_BYTES * PIECES, "{} bytes are counted", memory.used());
    }
}

/// Returns the requests that the next frame reports.
async fn held(peer: &mut UnixStream) -> Vec<u64> {
    let mut head = [0; HEADER_BYTES];
    peer.read_exact(&mut head).await.unwrap();
    let header = Header::decode(&head).unwrap();
    assert!(header.is_held_report(), "{header:?}");
    let mut body = vec![0; header.body_bytes as usize];
    peer.read_exact(&mut body).await.unwrap();
    held_requests(&body).collect()
}

#[tokio::test]
async fn answer_that_is_held_back_is_reported_until_its_caller_cancels_it() {
    let options = ServeOptions::default();
    let (mut session, mut theirs) = session(&options).await;
    theirs.write_all(&Header::new(Op::Meta, 2).encode()).await.unwrap();
    let reports = async {
        status(&mut theirs).await;
        [held(&mut theirs).await, held(&mut theirs).await]
    };
    let reported = tokio::select! {
        reported = reports => reported,
        _ = session.run() => unreachable!("the connection is open"),
    };
    assert_eq!(reported, [[2], [2]]);
    let of_another = Header { offset: 3, ..Header::new(Op::Cancel, UNANSWERED) };
    let cancel = Header { offset: 2, ..of_another };
    theirs.write_all(&of_another.encode()).await.unwrap();
    assert!(timeout(Duration::from_millis(50), session.run()).await.is_err(), "it goes on");
    assert_eq!((session.later.len(), session.held.len()), (1, 1), "no other one is forgotten");
    theirs.write_all(&cancel.encode()).await.unwrap();
    theirs.write_all(&Header::new(Op::Read, 4).encode()).await.unwrap();
    assert!(timeout(Duration::from_millis(200), session.run()).await.is_err(), "it goes on");
    assert_eq!((session.later.len(), session.held.len()), (0, 0));
}

#[tokio::test]
async fn all_calls_of_a_connection_are_cancelled_although_none_is_answered() {
    let options = ServeOptions::default();
    let (mut session, mut theirs) = session(&options).await;
    let calls = 2..2 + CALLS_IN_FLIGHT_MAX as u64;
    let asked = calls.clone().map(|number| Header::new(Op::Meta, number));
    let cancel = |number| Header { offset: number, ..Header::new(Op::Cancel, UNANSWERED) };
    let sent = asked.chain(calls.map(cancel)).flat_map(|header| header.encode());
    theirs.write_all(&sent.collect::<Vec<u8>>()).await.unwrap();
    assert!(timeout(Duration::from_millis(500), session.run()).await.is_err(), "it goes on");
    assert_eq!((session.later.len(), session.held.len()), (0, 0));
}

#[tokio::test]
async fn connection_with_a_small_buffer_keeps_little_for_answers_that_come_later() {
    let options = ServeOptions::default();
    let (mut session, mut theirs) = session(&options).await;
    // One request always waits: the session is never idle.
    let mut sent = Header::new(Op::Meta, 2).encode().to_vec();
    (0..40).for_each(|number| sent.extend(Header::new(Op::Read, 3 + number).encode()));
    theirs.write_all(&sent).await.unwrap();
    let looked = timeout(Duration::from_millis(200), session.run()).await;
    assert!(looked.is_err() && !session.reader.is_grown(), "it goes on");
    assert_eq!(session.later.len(), 1);
    let kept = session.gather.kept_bytes();
    assert!(kept <= 2 * SMALL_SEND_BYTES + SMALL_SEND_BYTES / 8, "{kept}");
}
