//! What one caller requests does not keep others waiting, however much it is.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{self, Fixture, directory, inline, list, names, options, path, start, stat};
use sanderling_protocol::message::Attributes;
use sanderling_protocol::{Refusal, Reply, Request};
use sanderling_transport::{Pool, PoolOptions};
use tokio::task::JoinHandle;

/// Names of the tree that long reads visit.
const NAMES: usize = 4000;

async fn tree(fixture: &Fixture) {
    fixture.call(directory("/d")).await.unwrap();
    fixture.call(directory("/modest")).await.unwrap();
    for first in (0..NAMES).step_by(500) {
        let frame = (first..first + 500).map(|number| inline(&format!("/d/{number:05}"), b"x"));
        assert!(fixture.all(frame.collect()).await.iter().all(Result::is_ok));
    }
}

/// Another client, with a connection of its own.
async fn other(fixture: &Arc<Fixture>, frame: Vec<Request>) -> JoinHandle<usize> {
    let (fixture, pool) = (Arc::clone(fixture), Pool::new(PoolOptions::default()));
    // The connection is there before the frame is sent.
    let deadline = tokio::time::Instant::now() + support::WITHIN;
    pool.meta(&fixture.address, vec![stat("/d")], deadline).await.unwrap();
    tokio::spawn(async move {
        let deadline = tokio::time::Instant::now() + 10 * support::WITHIN;
        pool.meta(&fixture.address, frame, deadline).await.unwrap().len()
    })
}

fn usage(text: &str) -> Request {
    Request::Usage { path: path(text) }
}

/// Creates, looks and deletes, one after the other.
async fn be_modest(fixture: &Fixture, round: usize) {
    let name = format!("/modest/{round}");
    fixture.call(inline(&name, b"x")).await.unwrap();
    fixture.call(stat(&name)).await.unwrap();
    assert_eq!(names(fixture.call(list("/modest")).await).len(), 1);
    fixture.call(Request::Delete { path: path(&name), recursive: false }).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_client_waits_until_a_frame_of_long_reads_is_answered() {
    let place = tempfile::tempdir().unwrap();
    let fixture = Arc::new(start(options(place.path())).await);
    tree(&fixture).await;
    let frames = [
        vec![usage("/"); 512],
        vec![list("/d"); 512],
        vec![Request::Fsck; 64],
        // Among changes they would be answered under the writer's lock.
        [vec![inline("/d/x", b"x")], vec![usage("/"); 510], vec![stat("/d/x")]].concat(),
    ];
    for frame in frames {
        let kind = frame[1].kind();
        let count = frame.len();
        let greedy = other(&fixture, frame).await;
        let mut rounds = 0;
        while !greedy.is_finished() {
            be_modest(&fixture, rounds).await;
            rounds += 1;
        }
        assert_eq!(greedy.await.unwrap(), count);
        assert!(rounds >= 5, "{kind}: {rounds} rounds were done beside it");
    }
    fixture.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn change_is_made_before_all_that_another_client_has_sent_before() {
    let place = tempfile::tempdir().unwrap();
    let fixture = Arc::new(start(options(place.path())).await);
    fixture.call(directory("/d")).await.unwrap();
    fixture.call(directory("/modest")).await.unwrap();
    let greedy: Vec<_> = (0..128)
        .map(|frame| (0..512).map(move |number| directory(&format!("/d/{frame}-{number}"))))
        .map(Iterator::collect::<Vec<Request>>)
        .collect();
    let (mut left, answered) = (tokio::task::JoinSet::new(), Arc::new(AtomicUsize::new(0)));
    let pool = Arc::new(Pool::new(PoolOptions::default()));
    for frame in greedy {
        let (fixture, pool) = (Arc::clone(&fixture), Arc::clone(&pool));
        let answered = Arc::clone(&answered);
        left.spawn(async move {
            let deadline = tokio::time::Instant::now() + support::WITHIN;
            let answers = pool.meta(&fixture.address, frame, deadline).await.unwrap();
            answered.fetch_add(1, Ordering::Relaxed);
            answers
        });
    }
    // The first answer shows that the others wait.
    assert!(left.join_next().await.unwrap().unwrap().iter().all(Result::is_ok));
    be_modest(&fixture, 0).await;
    let answered = answered.load(Ordering::Relaxed);
    assert!(answered < 96, "{answered} of 128 frames were answered before it");
    while let Some(answers) = left.join_next().await {
        let is_full = |it: &Result<Reply, Refusal>| matches!(it, Err(Refusal::RetryAfter { .. }));
        let answers = answers.unwrap();
        assert!(answers.iter().all(|answer| answer.is_ok() || is_full(answer)), "{answers:?}");
    }
    fixture.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_reads_go_on_after_callers_that_left_and_those_that_were_sent_away() {
    let place = tempfile::tempdir().unwrap();
    let fixture = Arc::new(start(options(place.path())).await);
    fixture.call(directory("/d")).await.unwrap();
    fixture.call(directory("/modest")).await.unwrap();
    // Four of the longest attributes count as much as 16,384 entries.
    let attributes: Attributes = (0..1600).map(|number| (format!("{number:04}"), "")).collect();
    for number in 0..12 {
        let name = format!("/d/{number}");
        fixture.call(inline(&name, b"x")).await.unwrap();
        let (path, attributes) = (path(&name), attributes.clone());
        fixture.call(Request::SetAttributes { path, expected: None, attributes }).await.unwrap();
    }
    let page = || {
        let (path, after, limit) = (path("/d"), String::new(), 4096);
        Request::List { path, after, limit, with_attributes: true }
    };
    let greedy = |frames: usize| {
        (0..frames).map(|_| {
            let (fixture, pool) = (Arc::clone(&fixture), Pool::new(PoolOptions::default()));
            tokio::spawn(async move {
                let deadline = tokio::time::Instant::now() + support::WITHIN;
                pool.meta(&fixture.address, vec![page(); 6], deadline).await.unwrap()
            })
        })
    };
    let left: Vec<_> = greedy(30).collect();
    be_modest(&fixture, 0).await;
    left.iter().for_each(JoinHandle::abort);
    for asked in greedy(30).collect::<Vec<_>>() {
        for answer in asked.await.unwrap() {
            let is_sent_away = matches!(&answer,
                Err(Refusal::RetryAfter { why, .. }) if why.contains("wait"));
            let is_too_much = matches!(&answer, Err(Refusal::TooLarge { .. }));
            assert!(answer.is_ok() || is_sent_away || is_too_much, "{answer:?}");
        }
    }
    let answers = fixture.all(vec![page(); 3]).await;
    assert!(answers.iter().all(Result::is_ok), "places were given back");
    fixture.server.stop().await;
}
