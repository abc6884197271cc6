//! Peers and directories of the release before this one.
#![allow(clippy::unwrap_used, reason = "a test's helper may panic")]

use crate::support::{self, Answers, start};
use sanderling_protocol::frame::{HEADER_BYTES, decode_body, encode_body};
use sanderling_protocol::message::{Heartbeat, Hello, HelloReply, Register, Role};
use sanderling_protocol::node::{Load, TierCapacity};
use sanderling_protocol::{
    Event, EventKind, Header, Millis, Nonce, Op, Refusal, Reply, Request, Tier, version,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A peer that greets with these flags: the release before this one leaves them empty.
struct Peer(TcpStream);

impl Peer {
    async fn greet(address: &str, flags: u16) -> (Self, Header, Vec<u8>) {
        let mut peer = Self(TcpStream::connect(address).await.unwrap());
        let hello = Hello { role: Role::Datanode, cluster: None, node: None, token: None };
        let header = Header { flags, ..Header::new(Op::Hello, 1) };
        let (header, body) = peer.call(header, encode_body(&hello)).await;
        (peer, header, body)
    }

    async fn call(&mut self, mut header: Header, body: Vec<u8>) -> (Header, Vec<u8>) {
        header.body_bytes = body.len() as u32;
        self.0.write_all(&[&header.encode()[..], &body[..]].concat()).await.unwrap();
        let mut bytes = [0; HEADER_BYTES];
        self.0.read_exact(&mut bytes).await.unwrap();
        let header = Header::decode(&bytes).unwrap();
        let mut body = vec![0; header.body_bytes as usize];
        self.0.read_exact(&mut body).await.unwrap();
        (header, body)
    }

    async fn request(&mut self, request: Request) -> Result<Reply, Refusal> {
        let (_, body) = self.call(Header::new(Op::Meta, 2), encode_body(&vec![request])).await;
        decode_body::<Answers>(&body).unwrap().pop().unwrap()
    }
}

#[tokio::test]
async fn datanode_of_the_release_before_joins_and_gets_only_what_it_supports() {
    let place = tempfile::tempdir().unwrap();
    let fixture = start(support::options(place.path())).await;
    let (mut peer, header, body) = Peer::greet(&fixture.address, 0).await;
    assert_eq!(header.flags, version::greeting_flags());
    decode_body::<HelloReply>(&body).unwrap();
    let (_socket, address) = support::silent();
    let register = Register {
        cluster: None,
        nonce: Nonce(5),
        name: "old".to_owned(),
        address,
        http_address: String::new(),
        host: String::new(),
        tiers: vec![TierCapacity { tier: Tier::Dram, bytes: 1 << 20 }],
        notice_min: None,
        egress_bytes_per_second: None,
    };
    let Ok(Reply::Registered(registered)) = peer.request(Request::Register(register)).await else {
        panic!("an old datanode is not let in")
    };
    let heartbeat = Heartbeat { node: registered.node, nonce: Nonce(5), load: Load::default() };
    let beat = peer.request(Request::Heartbeat(heartbeat.clone())).await;
    assert!(matches!(beat, Ok(Reply::Heartbeat(_))), "{beat:?}");
    // Also for requests that it cannot support: the answer has fields that it does.
    let beat = peer.request(Request::Beat(heartbeat)).await;
    assert!(matches!(beat, Ok(Reply::Heartbeat(_))), "{beat:?}");
}

#[tokio::test]
async fn events_that_the_release_before_does_not_support_are_left_out_for_it() {
    let place = tempfile::tempdir().unwrap();
    let fixture = start(support::options(place.path())).await;
    let (socket, address) = support::silent();
    let wiped = None;
    let seen =
        Some(sanderling_protocol::LogPosition { term: sanderling_protocol::Term(99), index: 5 });
    let register = Register {
        cluster: None,
        nonce: Nonce(5),
        name: "new".to_owned(),
        address,
        http_address: String::new(),
        host: String::new(),
        tiers: vec![TierCapacity { tier: Tier::Dram, bytes: 1 << 20 }],
        notice_min: None,
        egress_bytes_per_second: None,
    };
    let join = sanderling_protocol::message::Join { register, seen, wiped };
    fixture.call(Request::Join(Box::new(join))).await.unwrap();
    let is_new = |event: &Event| matches!(event.kind, EventKind::LogEndLost { .. });
    assert!(fixture.events(0).await.iter().any(is_new), "a log that it does not have");
    let (mut peer, ..) = Peer::greet(&fixture.address, 0).await;
    let request = Request::Events { after: 0, limit: 1000, wait: Millis(0) };
    let Ok(Reply::Events(events)) = peer.request(request).await else { panic!() };
    assert!(!events.is_empty() && !events.iter().any(is_new), "{events:?}");
    drop(socket);
}

/// Makes a namenode one of the release before for peers that connect here: greetings lose their
/// flags in both directions, so each side speaks the older version. A request that version does not
/// have ends the connection, as it did there.
async fn older(namenode: String) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((caller, _)) = listener.accept().await {
            let server = TcpStream::connect(&namenode).await.unwrap();
            let ((from_caller, to_caller), (from_server, to_server)) =
                (caller.into_split(), server.into_split());
            tokio::spawn(pass_on(from_caller, to_server, true));
            tokio::spawn(pass_on(from_server, to_caller, false));
        }
    });
    address
}

async fn pass_on(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    are_requests: bool,
) -> Option<()> {
    loop {
        let mut bytes = [0; HEADER_BYTES];
        from.read_exact(&mut bytes).await.ok()?;
        let mut header = Header::decode(&bytes).unwrap();
        let mut body = vec![0; header.body_bytes as usize];
        from.read_exact(&mut body).await.ok()?;
        if header.op == Op::Hello {
            header.flags = 0;
        } else if are_requests {
            let requests = decode_body::<Vec<Request>>(&body).unwrap();
            if !requests.iter().all(is_of_the_release_before) {
                return None;
            }
        }
        to.write_all(&[&header.encode()[..], &body[..]].concat()).await.ok()?;
    }
}

/// The release before ends its list of requests with this one.
fn is_of_the_release_before(request: &Request) -> bool {
    let number = |request: &Request| encode_body(request)[0];
    let last = Request::Within { subtree: support::path("/"), blocks: Vec::new() };
    number(request) <= number(&last)
}

#[tokio::test]
async fn requests_to_a_namenode_of_the_release_before_have_fields_that_it_supports() {
    let place = tempfile::tempdir().unwrap();
    let mut fixture = start(support::options(place.path())).await;
    fixture.address = older(fixture.address.clone()).await;
    let (_socket, address) = support::silent();
    let register = Register {
        cluster: None,
        nonce: Nonce(5),
        name: "new".to_owned(),
        address,
        http_address: String::new(),
        host: String::new(),
        tiers: vec![TierCapacity { tier: Tier::Dram, bytes: 1 << 20 }],
        notice_min: None,
        egress_bytes_per_second: None,
    };
    let join = sanderling_protocol::message::Join { register, seen: None, wiped: None };
    let Ok(Reply::Joined(joined)) = fixture.call(Request::Join(Box::new(join))).await else {
        panic!("a new datanode does not join")
    };
    assert_eq!((joined.position, joined.is_continuation), (None, true), "it has neither");
    let (node, nonce) = (joined.registered.node, Nonce(5));
    let beat = Request::Beat(Heartbeat { node, nonce, load: Load::default() });
    let report = Request::ReportDamage { node, nonce, blocks: Vec::new() };
    let client = sanderling_protocol::message::ClientId { number: 1, key: Nonce(7) };
    let change = sanderling_protocol::message::Change::new(support::directory("/made"));
    let once = sanderling_protocol::message::Once { client, sequence: 1, settled_below: 1, change };
    let (subtree, blocks) = (support::path("/"), vec![sanderling_protocol::BlockId(7)]);
    let counted = Request::CountedBlocks { node, subtree, blocks };
    let once = Request::Once(Box::new(once));
    let requests = vec![beat, report, once, Request::Room, support::stat("/made"), counted];
    let [beat, report, made, room, stat, counted] = fixture.all(requests).await.try_into().unwrap();
    assert!(matches!(beat, Ok(Reply::Beat { position: None, .. })), "{beat:?}");
    let unknown = Refusal::UnknownVersion { ours: version::MESSAGES, theirs: 3 };
    // One that it cannot do leaves the others of its frame.
    assert_eq!((report.unwrap_err(), room.unwrap_err()), (unknown.clone(), unknown));
    assert!(matches!(made, Ok(Reply::Stat(_))), "{made:?}");
    assert!(matches!(stat, Ok(Reply::Stat(_))), "{stat:?}");
    assert_eq!(counted, Ok(Reply::Within(vec![false])), "it returns no counts");
}

/// Copies a directory that the release before this one has left.
fn left_behind(name: &str) -> tempfile::TempDir {
    let from = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/previous").join(name);
    let place = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), place.path().join(entry.file_name())).unwrap();
    }
    place
}

/// Compares a catalog with what was put into it before.
async fn must_be_whole(fixture: &support::Fixture) {
    let stat = |name: &'static str| async move {
        match fixture.call(support::stat(name)).await {
            Ok(Reply::Stat(stat)) => stat,
            other => panic!("{name}: {other:?}"),
        }
    };
    for name in ["/dir/file", "/multi/part-0", "/job/shuffle"] {
        let stat = stat(name).await;
        assert_eq!((stat.bytes, stat.lost_bytes, stat.is_sealed), (1000, 0, true), "{name}");
    }
    let small = stat("/dir/small").await;
    assert_eq!(small.attributes.get("content-type"), Some("text/plain"));
    assert!(small.expires_in.is_some_and(|left| left > Millis(2_000_000_000)), "{small:?}");
    assert!(stat("/job/shuffle").await.job.is_some());
    assert_eq!(stat("/table/key").await.bytes, 1);
    let names = support::names(fixture.call(support::list("/dir")).await);
    assert!(names.contains(&"renamed".to_owned()) && !names.contains(&"n01".to_owned()));
    let Ok(Reply::Jobs(jobs)) = fixture.call(Request::Jobs).await else { panic!() };
    assert_eq!(jobs.len(), 1);
    let Ok(Reply::Fsck(fsck)) = fixture.call(Request::Fsck).await else { panic!() };
    assert_eq!((fsck.problems, fsck.lost_blocks), (vec![], 0));
    let Ok(Reply::Nodes(nodes)) = fixture.call(Request::Nodes { all: false }).await else {
        panic!()
    };
    assert_eq!(nodes[0].policy, sanderling_protocol::Policy::Draining, "its notice is known");
}

#[tokio::test]
async fn directory_of_the_release_before_is_read_and_gone_on_with() {
    for name in ["with-snapshot", "journal-only"] {
        let place = left_behind(name);
        for snapshot_after_bytes in [u64::MAX, 1] {
            let options = sanderling_namenode::NamenodeOptions {
                snapshot_after_bytes,
                ..support::options(place.path())
            };
            let fixture = start(options).await;
            must_be_whole(&fixture).await;
            let name = format!("/since-{snapshot_after_bytes}");
            fixture.call(support::inline(&name, b"new")).await.unwrap();
            fixture.server.stop().await;
        }
        // What it has become is read again, snapshot and all.
        let fixture = start(support::options(place.path())).await;
        must_be_whole(&fixture).await;
        fixture.call(support::stat("/since-1")).await.unwrap();
        fixture.server.stop().await;
    }
}

#[tokio::test]
async fn directory_of_a_later_release_is_refused_with_the_formats_that_are_read() {
    for (name, file) in [
        ("with-snapshot", "snapshot-00000000000000000057.bin"),
        ("journal-only", "journal-00000000000000000000.log"),
    ] {
        let place = left_behind(name);
        let path = place.path().join(file);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[8] = 77;
        std::fs::write(&path, bytes).unwrap();
        let refused = sanderling_namenode::NamenodeServer::start(support::options(place.path()));
        let Err(error) = refused.await else { panic!("{name} is read") };
        let error = error.to_string();
        assert!(error.contains("format 77") && error.contains("reads"), "{error}");
    }
}

#[tokio::test]
async fn peer_without_a_common_version_is_refused_with_both_versions() {
    let place = tempfile::tempdir().unwrap();
    let fixture = start(support::options(place.path())).await;
    let (_, header, body) = Peer::greet(&fixture.address, 90 | 80 << 8).await;
    assert_ne!(header.status, 0);
    let refusal = decode_body::<Refusal>(&body).unwrap();
    let ours = version::MESSAGES;
    assert_eq!(refusal, Refusal::UnknownVersion { ours, theirs: 90 });
}
