//! Changes that arrive again: in a frame as a whole, in another order, while the first is still
//! queued, after a restart, and from a snapshot.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use crate::support::{Fixture, directory, inline, list, names, options, path, start, stat};
use sanderling_namenode::NamenodeOptions;
use sanderling_protocol::message::{Change, ClientId, Create, CreateMode, Once};
use sanderling_protocol::{Nonce, Refusal, Reply, Request};

const KEY: Nonce = Nonce(77);

async fn open(fixture: &Fixture) -> ClientId {
    match fixture.call(Request::OpenClient { key: KEY }).await {
        Ok(Reply::Client { number }) => ClientId { number, key: KEY },
        other => panic!("{other:?}"),
    }
}

fn once(client: ClientId, sequence: u64, request: Request) -> Request {
    let (settled_below, change) = (0, Change::new(request));
    Request::Once(Box::new(Once { client, sequence, settled_below, change }))
}

fn delete(text: &str) -> Request {
    Request::Delete { path: path(text), recursive: true }
}

/// A put that replaces.
fn put(text: &str, value: &[u8]) -> Request {
    let Request::Create(create) = inline(text, value) else { panic!() };
    Request::Create(Create { mode: CreateMode::Replace, ..create })
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_frame_is_answered_as_the_first_whatever_came_between() {
    let place = tempfile::tempdir().unwrap();
    let fixture = start(options(place.path())).await;
    let client = open(&fixture).await;
    let changes = [
        directory("/a"),
        put("/a/x", b"1"),
        Request::Rename { from: path("/a/x"), to: path("/a/y"), replace: false },
        delete("/none"),
        put("/a/x", b"2"),
        delete("/a/y"),
    ];
    let numbered = changes.into_iter().enumerate();
    let frame: Vec<Request> =
        numbered.map(|(at, request)| once(client, 1 + at as u64, request)).collect();
    let first = fixture.all(frame.clone()).await;
    assert!(matches!(first[3], Err(Refusal::NotFound { .. })), "{first:?}");
    assert_eq!(first.iter().filter(|answer| answer.is_ok()).count(), 5, "{first:?}");
    fixture.call(delete("/a")).await.unwrap();
    assert_eq!(fixture.all(frame.clone()).await, first);
    // New ones among the repeats, and reads behind them: each is answered in its place.
    let mut mixed = frame.clone();
    mixed.insert(3, once(client, 50, directory("/b")));
    mixed.insert(0, once(client, 51, directory("/c")));
    mixed.push(stat("/a"));
    mixed.push(list("/"));
    let mut answers = fixture.all(mixed).await;
    assert_eq!(names(answers.pop().unwrap()), ["b", "c"]);
    assert!(matches!(answers.pop().unwrap(), Err(Refusal::NotFound { .. })));
    assert!(answers.remove(0).is_ok());
    assert!(answers.remove(3).is_ok());
    assert_eq!(answers, first);
    let mut reversed = frame;
    reversed.reverse();
    let mut answers = fixture.all(reversed).await;
    answers.reverse();
    assert_eq!(answers, first);
    assert_eq!(names(fixture.call(list("/")).await), ["b", "c"]);
    fixture.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn change_that_arrives_many_times_at_once_is_made_once() {
    let place = tempfile::tempdir().unwrap();
    let fixture = Arc::new(start(options(place.path())).await);
    let client = open(&fixture).await;
    for round in 0..40_u64 {
        fixture.call(put("/x", b"one")).await.unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        for copy in 0..8 {
            let fixture = Arc::clone(&fixture);
            tasks.spawn(async move {
                let delete = once(client, round + 1, delete("/x"));
                // Some of them in a frame that the writer's thread takes, some in one of others.
                let frame = if copy % 2 == 0 { vec![delete] } else { vec![stat("/"), delete] };
                let mut answers = fixture.all(frame).await;
                // As soon as one is answered, another client puts the name again.
                let put = put("/x", b"two");
                (answers.pop().unwrap(), fixture.call(put).await.is_ok())
            });
        }
        while let Some(done) = tasks.join_next().await {
            let (deleted, is_put) = done.unwrap();
            assert_eq!(deleted, Ok(Reply::Deleted { objects: 1, freed_bytes: 3 }));
            assert!(is_put);
        }
        assert!(fixture.call(stat("/x")).await.is_ok(), "another's file was deleted");
    }
    Arc::into_inner(fixture).unwrap().server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeat_is_answered_by_the_next_process_from_the_journal_and_from_a_snapshot() {
    for snapshot_after_bytes in [64 << 20, 4096] {
        let place = tempfile::tempdir().unwrap();
        let options = NamenodeOptions { snapshot_after_bytes, ..options(place.path()) };
        let fixture = start(options.clone()).await;
        let client = open(&fixture).await;
        let changes = [once(client, 1, put("/x", b"mine")), once(client, 2, delete("/none"))];
        let first = fixture.all(changes.to_vec()).await;
        fixture.call(put("/x", b"theirs")).await.unwrap();
        for number in 0..200 {
            fixture.call(put(&format!("/{number}"), &[7; 400])).await.unwrap();
        }
        fixture.server.stop().await;
        let fixture = start(options).await;
        assert_eq!(fixture.all(changes.to_vec()).await, first);
        let Ok(Reply::Stat(theirs)) = fixture.call(stat("/x")).await else { panic!() };
        assert_eq!(theirs.bytes, 6);
        // A number is not given again.
        assert!(open(&fixture).await.number > client.number);
        fixture.server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_unknown_clients_are_refused_and_not_made() {
    let place = tempfile::tempdir().unwrap();
    let fixture = start(options(place.path())).await;
    let client = open(&fixture).await;
    fixture.call(put("/x", b"1")).await.unwrap();
    let other_key = ClientId { key: Nonce(78), ..client };
    let later = ClientId { number: client.number + 1, ..client };
    for unknown in [other_key, later] {
        let answer = fixture.call(once(unknown, 1, delete("/x"))).await;
        assert!(matches!(answer, Err(Refusal::OutcomeUnknown { .. })), "{answer:?}");
    }
    fixture.call(once(client, 1, directory("/d"))).await.unwrap();
    let other = fixture.call(once(client, 1, delete("/x"))).await;
    assert!(matches!(other, Err(Refusal::BadRequest { .. })), "{other:?}");
    assert!(fixture.call(stat("/x")).await.is_ok());
    fixture.server.stop().await;
}
