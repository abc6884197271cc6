//! Changes that are refused and change nothing take no room in the journal.
#![allow(clippy::unwrap_used, reason = "a test's helper may panic")]

use std::path::Path as FilePath;

use crate::support::{self, Fixture, path, start};
use sanderling_protocol::message::{Change, ClientId, Create, ObjectKind, Once};
use sanderling_protocol::{JobId, LeaseId, Nonce, ObjectId, Refusal, Reply, Request};

fn delete(name: &str) -> Request {
    Request::Delete { path: path(name), recursive: false }
}

fn directory(name: &str) -> Request {
    let kind = ObjectKind::Directory;
    Request::MakeDirectory { path: path(name), kind, parents: false, is_listed: true }
}

fn once(client: ClientId, sequence: u64, settled_below: u64, request: Request) -> Request {
    let change = Change::new(request);
    Request::Once(Box::new(Once { client, sequence, settled_below, change }))
}

async fn open(fixture: &Fixture) -> ClientId {
    let key = Nonce(44);
    let Ok(Reply::Client { number }) = fixture.call(Request::OpenClient { key }).await else {
        panic!()
    };
    ClientId { number, key }
}

/// Returns the bytes of all files.
fn bytes(directory: &FilePath) -> u64 {
    let files = std::fs::read_dir(directory).unwrap();
    files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
}

#[tokio::test]
async fn refused_changes_take_no_room_in_the_journal() {
    let place = tempfile::tempdir().unwrap();
    let fixture = start(support::options(place.path())).await;
    fixture.call(directory("/d")).await.unwrap();
    fixture.call(directory("/d/e")).await.unwrap();
    let client = open(&fixture).await;
    let value =
        Create { inline: Some(vec![1]), parents: false, ..Create::new(path("/no/x"), Nonce(1)) };
    let kinds = || {
        vec![
            delete("/missing"),
            delete("/d"),
            directory("/d"),
            directory("/missing/x"),
            Request::Create(value.clone()),
            Request::Create(Create::new(path("/d"), Nonce(1))),
            Request::Rename { from: path("/missing"), to: path("/y"), replace: false },
            Request::SetTtl { path: path("/missing"), ttl: None },
            Request::Append { path: path("/d"), writer: Nonce(1) },
            Request::EndJob { job: JobId(99) },
            Request::Publish { object: ObjectId(99), lease: LeaseId(9), lengths: Vec::new() },
        ]
    };
    let before = bytes(place.path());
    let mut sequence = 0;
    for round in 0..200 {
        for request in kinds() {
            sequence += 1;
            let settled = sequence - round % 3;
            let requests = vec![request.clone(), once(client, sequence, settled, request)];
            for answer in fixture.all(requests).await {
                answer.expect_err("it is refused");
            }
        }
    }
    // A record is longer than 20 bytes, and there were 4,400 refusals. The client is noted once a
    // minute, and a busy machine has absences.
    let grown = bytes(place.path()) - before;
    assert!(grown < 4_000, "{grown} bytes of journal for {} refusals", 2 * sequence);
    // Behind a change of its own frame a change is decided when that was made.
    let frame = vec![directory("/new"), delete("/new"), delete("/new")];
    let answers = fixture.all(frame).await;
    assert!(answers[0].is_ok() && answers[1].is_ok() && answers[2].is_err(), "{answers:?}");
    assert!(bytes(place.path()) > before + grown);
    fixture.server.stop().await;
}

#[tokio::test]
async fn change_that_was_refused_is_not_made_by_a_copy_that_comes_late() {
    let place = tempfile::tempdir().unwrap();
    let fixture = start(support::options(place.path())).await;
    let client = open(&fixture).await;
    let first = fixture.call(once(client, 1, 0, delete("/f"))).await;
    assert!(matches!(first, Err(Refusal::NotFound { .. })), "{first:?}");
    fixture.call(directory("/f")).await.unwrap();
    // The copy, and the same number for something else.
    assert_eq!(fixture.call(once(client, 1, 0, delete("/f"))).await, first);
    let other = fixture.call(once(client, 1, 0, delete("/g"))).await;
    assert!(matches!(other, Err(Refusal::BadRequest { .. })), "{other:?}");
    // Once its client has settled it, too: nothing in the log shows it.
    let next = fixture.call(once(client, 5, 5, delete("/g"))).await;
    assert!(matches!(next, Err(Refusal::NotFound { .. })), "{next:?}");
    let late = fixture.call(once(client, 1, 0, delete("/f"))).await;
    assert!(matches!(late, Err(Refusal::OutcomeUnknown { .. })), "{late:?}");
    assert!(fixture.call(Request::Stat { path: path("/f") }).await.is_ok());
    fixture.server.stop().await;
}
