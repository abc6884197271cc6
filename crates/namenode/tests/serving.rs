//! A namenode that serves the protocol, is killed, and comes back.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;

use crate::support::{self, WITHIN, directory, inline, list, names, options, start, stat};
use bytes::Bytes;
use sanderling_namenode::{NamenodeOptions, NamenodeServer, NamenodeStartError, Sync};
use sanderling_protocol::frame::{decode_body, encode_body};
use sanderling_protocol::message::{Create, Hello, Role};
use sanderling_protocol::{
    ClusterId, EventKind, Header, Millis, NodeId, Nonce, Op, Refusal, Reply, Request,
};
use sanderling_transport::{CallError, Connection, ListenError};
use tokio::time::Instant;

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_one_frame_see_those_before_them() {
    let place = tempfile::tempdir().unwrap();
    let fixture = start(options(place.path())).await;
    let frame = vec![
        stat("/a"),
        directory("/a"),
        stat("/a"),
        inline("/a/x", b"1"),
        list("/a"),
        Request::Delete { path: support::path("/a/x"), recursive: false },
        list("/a"),
        inline("/b/x", b"1"),
        directory("/a"),
        directory("/a/y"),
        list("/a"),
    ];
    let mut answers = fixture.all(frame).await;
    assert_eq!(answers.len(), 11);
    assert_eq!(names(answers.remove(10)), ["y"]);
    assert!(answers[9].is_ok());
    assert!(matches!(answers[8], Err(Refusal::Exists { .. })));
    assert!(matches!(answers[7], Err(Refusal::NotFound { .. })));
    assert_eq!(names(answers.remove(6)), [""; 0]);
    assert!(matches!(answers[5], Ok(Reply::Deleted { objects: 1, .. })));
    assert_eq!(names(answers.remove(4)), ["x"]);
    assert!(answers[1..4].iter().all(Result::is_ok), "{answers:?}");
    assert!(matches!(answers[0], Err(Refusal::NotFound { .. })));
    fixture.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_many_clients_at_once_are_all_made_once() {
    let place = tempfile::tempdir().unwrap();
    let fixture = std::sync::Arc::new(start(options(place.path())).await);
    let mut tasks = tokio::task::JoinSet::new();
    for client in 0..50 {
        let fixture = std::sync::Arc::clone(&fixture);
        tasks.spawn(async move {
            let own = (0..20).map(|file| inline(&format!("/{client}-{file}"), b"x"));
            let mut frame: Vec<Request> = own.collect();
            // The same writer again would be taken for a repetition.
            let Request::Create(same) = inline("/same", b"x") else { panic!() };
            frame.push(Request::Create(Create { writer: Nonce(client), ..same }));
            fixture.all(frame).await
        });
    }
    let mut winners = 0;
    while let Some(answers) = tasks.join_next().await {
        let answers = answers.unwrap();
        assert!(answers[..20].iter().all(Result::is_ok));
        match &answers[20] {
            Ok(_) => winners += 1,
            Err(refusal) => assert!(matches!(refusal, Refusal::Exists { .. })),
        }
    }
    assert_eq!(winners, 1);
    assert_eq!(names(fixture.call(list("/")).await).len(), 1001);
    fixture.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_that_a_node_is_not_there_do_not_keep_it_from_getting_blocks() {
    let place = tempfile::tempdir().unwrap();
    let fixture = start(options(place.path())).await;
    let (_listener, address) = support::silent();
    let node = fixture.datanode(1, &address).await;
    let mut frame = vec![Request::Suspect { node }; 100];
    let Request::Create(create) = inline("/file", b"") else { panic!() };
    frame.push(Request::Create(Create { inline: None, expected_bytes: Some(1000), ..create }));
    let answers = fixture.all(frame).await;
    assert!(matches!(answers.last(), Some(Ok(Reply::Grant(_)))), "{:?}", answers.last());
    fixture.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_changes_outlive_a_server_that_was_not_stopped() {
    for sync in [Sync::Os, Sync::Always] {
        let place = tempfile::tempdir().unwrap();
        let with_sync = NamenodeOptions { sync, ..options(place.path()) };
        let mut cluster = None;
        for round in 0..5 {
            let fixture = start(with_sync.clone()).await;
            assert_eq!(*cluster.get_or_insert(fixture.server.cluster()), fixture.server.cluster());
            assert_eq!(names(fixture.call(list("/")).await).len(), round * 10);
            for file in 0..10 {
                fixture.call(inline(&format!("/{round}-{file}"), b"x")).await.unwrap();
            }
            drop(fixture);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_take_the_place_of_the_journal_while_changes_go_on() {
    let place = tempfile::tempdir().unwrap();
    let small = NamenodeOptions { snapshot_after_bytes: 20_000, ..options(place.path()) };
    let fixture = start(small.clone()).await;
    let mut made = 0;
    let deadline = Instant::now() + WITHIN;
    let has_snapshots = || {
        let files = fs::read_dir(place.path()).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("snapshot-")).max()
    };
    let mut first = None;
    while first.is_none() || has_snapshots() == first {
        first = first.or_else(has_snapshots);
        let more = (made..made + 100).map(|file| inline(&format!("/{file}"), &[7; 100]));
        assert!(fixture.all(more.collect()).await.iter().all(Result::is_ok));
        made += 100;
        assert!(Instant::now() < deadline, "no second snapshot after {made} files");
    }
    drop(fixture);
    let fixture = start(small).await;
    let files = |after: String| Request::List {
        path: support::path("/"),
        after,
        limit: 4096,
        with_attributes: false,
    };
    let mut all = names(fixture.call(files(String::new())).await);
    while all.len().is_multiple_of(4096) && !all.is_empty() {
        let more = names(fixture.call(files(all.last().unwrap().clone())).await);
        if more.is_empty() {
            break;
        }
        all.extend(more);
    }
    assert_eq!(all.len(), made);
    fixture.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cut_tail_is_reported_in_an_event() {
    let place = tempfile::tempdir().unwrap();
    let fixture = start(options(place.path())).await;
    fixture.call(directory("/kept")).await.unwrap();
    fixture.server.stop().await;
    let journal = place.path().join(format!("journal-{:020}.log", 0));
    let mut bytes = fs::read(&journal).unwrap();
    bytes.extend_from_slice(b"torn");
    fs::write(&journal, bytes).unwrap();
    let fixture = start(options(place.path())).await;
    fixture.call(stat("/kept")).await.unwrap();
    let cut = |kind: &EventKind| matches!(kind, EventKind::NamenodeStarted { cut_bytes: 4, .. });
    fixture.wait_for(cut).await;
    fixture.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_newest_snapshot_loses_nothing_and_is_reported() {
    let place = tempfile::tempdir().unwrap();
    let small = NamenodeOptions { snapshot_after_bytes: 20_000, ..options(place.path()) };
    let fixture = start(small.clone()).await;
    let snapshots = || {
        let files = fs::read_dir(place.path()).unwrap().map(|file| file.unwrap().path());
        let name = |file: &std::path::PathBuf| file.file_name().unwrap().to_owned();
        let is_one = |file: &std::path::PathBuf| {
            let name = name(file).into_string().unwrap();
            name.starts_with("snapshot-") && name.ends_with(".bin")
        };
        let mut all: Vec<_> = files.filter(is_one).collect();
        all.sort();
        all
    };
    let deadline = Instant::now() + WITHIN;
    let (mut made, mut seen) = (0, std::collections::BTreeSet::new());
    while seen.len() < 4 {
        let more = (made..made + 100).map(|file| inline(&format!("/{file}"), &[7; 100]));
        assert!(fixture.all(more.collect()).await.iter().all(Result::is_ok));
        made += 100;
        seen.extend(snapshots());
        assert!(Instant::now() < deadline, "too few snapshots after {made} files");
    }
    fixture.server.stop().await;
    assert!(snapshots().len() <= 2, "{:?}", snapshots());
    let newest = snapshots().pop().unwrap();
    let mut bytes = fs::read(&newest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    fs::write(&newest, bytes).unwrap();
    drop(fixture);
    let fixture = start(small).await;
    for file in 0..made {
        fixture.call(stat(&format!("/{file}"))).await.unwrap();
    }
    let event = fixture.wait_for(|kind| matches!(kind, EventKind::SnapshotSkipped { .. })).await;
    let EventKind::SnapshotSkipped { why, .. } = event.kind else { panic!() };
    assert!(why.contains("checksum"), "{why}");
    fixture.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn corrupt_snapshot_refuses_the_start() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join(format!("snapshot-{:020}.bin", 9)), b"nonsense").unwrap();
    let refused = NamenodeServer::start(options(place.path())).await;
    assert!(matches!(refused, Err(NamenodeStartError::CorruptSnapshot { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn second_namenode_on_a_directory_or_a_port_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let fixture = start(options(place.path())).await;
    let second = NamenodeServer::start(options(place.path())).await;
    assert!(matches!(second, Err(NamenodeStartError::DirectoryLocked { .. })));
    let elsewhere = tempfile::tempdir().unwrap();
    let same_port =
        NamenodeOptions { listen: fixture.address.clone(), ..options(elsewhere.path()) };
    let refused = NamenodeServer::start(same_port).await;
    assert!(matches!(refused, Err(NamenodeStartError::Listen(ListenError::InUse { .. }))));
    let open = NamenodeOptions { listen: "0.0.0.0:0".to_owned(), ..options(elsewhere.path()) };
    let refused = NamenodeServer::start(open).await;
    assert!(matches!(refused, Err(NamenodeStartError::Listen(ListenError::NotLoopback { .. }))));
    fixture.call(directory("/still")).await.unwrap();
    fixture.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn full_journal_refuses_changes_and_serves_reads() {
    let place = tempfile::tempdir().unwrap();
    let tiny = NamenodeOptions { journal_bytes_max: 4096, ..options(place.path()) };
    let fixture = start(tiny).await;
    let mut made = 0;
    loop {
        match fixture.call(inline(&format!("/{made}"), &[7; 100])).await {
            Ok(_) => made += 1,
            Err(refusal) => {
                assert!(matches!(refusal, Refusal::JournalFull { .. }), "{refusal}");
                break;
            }
        }
        assert!(made < 1000);
    }
    assert_eq!(names(fixture.call(list("/")).await).len(), made);
    drop(fixture);
    let fixture = start(options(place.path())).await;
    assert_eq!(names(fixture.call(list("/")).await).len(), made);
    fixture.call(directory("/more")).await.unwrap();
    fixture.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_for_events_ends_with_the_first_or_with_its_time() {
    let place = tempfile::tempdir().unwrap();
    let fixture = start(options(place.path())).await;
    let last = fixture.events(0).await.last().unwrap().sequence;
    let request = Request::Events { after: last, limit: 10, wait: Millis(50) };
    assert_eq!(fixture.call(request).await, Ok(Reply::Events(Vec::new())));
    let request = Request::Events { after: last, limit: 10, wait: Millis(9_000) };
    let (events, _) = tokio::join!(fixture.call(request), fixture.datanode(1, "127.0.0.1:9"));
    let Ok(Reply::Events(events)) = events else { panic!() };
    assert!(matches!(events[0].kind, EventKind::NodeRegistered { .. }));
    fixture.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_frames_are_refused_and_disturb_no_other_connection() {
    let place = tempfile::tempdir().unwrap();
    let fixture = start(options(place.path())).await;
    let hello = Hello { role: Role::Client, cluster: None, node: None, token: None };
    let deadline = Instant::now() + WITHIN;
    let (connection, reply) = Connection::connect(&fixture.address, hello, deadline).await.unwrap();
    assert_eq!(reply.cluster, Some(fixture.server.cluster()));
    let call = async |op, body: Vec<u8>| {
        let answer = connection.call(Header::new(op, 0), vec![Bytes::from(body)], deadline).await;
        match answer {
            Err(CallError::Refused(refusal)) => refusal,
            other => panic!("{other:?}"),
        }
    };
    assert!(matches!(call(Op::Read, Vec::new()).await, Refusal::UnknownOp { .. }));
    assert!(matches!(call(Op::Meta, vec![0xff; 100]).await, Refusal::BadFrame { .. }));
    assert!(matches!(call(Op::Meta, Vec::new()).await, Refusal::BadFrame { .. }));
    let many = vec![Request::Report; 513];
    assert!(matches!(call(Op::Meta, encode_body(&many)).await, Refusal::TooLarge { .. }));
    let mut followed = encode_body(&vec![Request::Report]);
    followed.push(0);
    assert!(matches!(call(Op::Meta, followed).await, Refusal::BadFrame { .. }));
    let fine = connection
        .call(Header::new(Op::Meta, 0), vec![encode_body(&vec![list("/")]).into()], deadline)
        .await
        .unwrap();
    let answers: support::Answers = decode_body(&fine.body).unwrap();
    assert!(answers[0].is_ok());
    let hello = Hello { role: Role::Client, cluster: Some(ClusterId(1)), node: None, token: None };
    let refused = Connection::connect(&fixture.address, hello, deadline).await;
    assert!(matches!(refused, Err(CallError::Refused(Refusal::WrongCluster { .. }))));
    fixture.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn datanode_whose_process_has_ended_is_gone_as_soon_as_a_peer_reports_it() {
    let place = tempfile::tempdir().unwrap();
    let fixture = start(options(place.path())).await;
    // No process listens there: the port was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let node = fixture.datanode(1, &free.to_string()).await;
    fixture.call(Request::Suspect { node }).await.unwrap();
    let gone =
        |kind: &EventKind| matches!(kind, EventKind::NodeGone { node: it, .. } if *it == node);
    let gone = fixture.wait_for(gone).await;
    let EventKind::NodeGone { why, .. } = gone.kind else { panic!("{gone:?}") };
    assert_eq!(why, "its process has ended", "not after its silence");
    let unknown = fixture.call(Request::Suspect { node: NodeId(99) }).await;
    assert!(unknown.is_ok() || matches!(unknown, Err(Refusal::UnknownNode { .. })));
    fixture.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_server_refuses_and_stops_twice() {
    let place = tempfile::tempdir().unwrap();
    let fixture = start(options(place.path())).await;
    fixture.call(directory("/a")).await.unwrap();
    fixture.server.stop().await;
    fixture.server.stop().await;
    assert!(fixture.try_all(vec![stat("/a")]).await.is_err());
    drop(fixture);
    let fixture = start(options(place.path())).await;
    fixture.call(stat("/a")).await.unwrap();
    fixture.server.stop().await;
}
