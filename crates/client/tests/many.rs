//! Many objects at once, and many callers of one client.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use crate::cluster::{Cluster, path, pattern};
use bytes::Bytes;
use sanderling_client::{ClientConfig, ClientError, PutOptions, Reader};
use sanderling_protocol::refusal::ByteRange;
use sanderling_protocol::{NodeInfo, NodeSelector, Path, Policy, Refusal};
use tokio::task::JoinSet;

fn paths(count: usize) -> Vec<Path> {
    (0..count).map(|number| path(&format!("/many/d{}/f{number}", number % 7))).collect()
}

fn bytes(number: usize) -> Bytes {
    // Every tenth does not fit the catalog and has a block.
    pattern(if number.is_multiple_of(10) { 5000 } else { number % 200 }, number as u64)
}

#[tokio::test(flavor = "multi_thread")]
async fn many_are_created_found_and_read_at_once() {
    let cluster = Cluster::start(2).await;
    let client = cluster.client().await;
    let paths = paths(300);
    let objects = paths.iter().cloned().enumerate().map(|(at, path)| (path, bytes(at)));
    let created = client.create_many(objects.collect(), &PutOptions::replacing()).await;
    let stats: Vec<_> = created.into_iter().map(Result::unwrap).collect();
    let mut asked = paths.clone();
    asked.insert(5, path("/many/missing"));
    let found = client.lookup_many(&asked).await.unwrap();
    assert!(matches!(found[5], Err(Refusal::NotFound { .. })));
    let there: Vec<_> = found.into_iter().flatten().collect();
    assert_eq!(there.len(), stats.len());
    for (found, stat) in there.iter().zip(&stats) {
        assert_eq!((found.object, found.bytes, found.is_sealed), (stat.object, stat.bytes, true));
    }
    let read = client.get_many(&asked).await.unwrap();
    assert!(matches!(read[5], Err(ClientError::Refused(Refusal::NotFound { .. }))));
    for (at, value) in read.into_iter().flatten().enumerate() {
        assert_eq!(value, bytes(at), "{}", paths[at]);
    }
    let layouts = client.layout_many(&asked).await;
    for (path, layout) in asked.iter().zip(layouts) {
        match (client.layout(path, 0..u64::MAX).await, layout) {
            (Ok(alone), Ok(layout)) => assert_eq!(alone.blocks, layout.blocks, "{path}"),
            (alone, layout) => {
                assert_eq!(path.as_str(), "/many/missing");
                assert_eq!(alone.unwrap_err().to_string(), layout.unwrap_err().to_string());
            }
        }
    }
}

/// The range of an object of 5000 bytes.
const WHOLE: [ByteRange; 1] = [ByteRange { offset: 0, bytes: 5000 }];

/// Two ranges of each object: one inside, and one up to its end.
fn ranges(reader: &Reader) -> Vec<ByteRange> {
    let end = reader.bytes();
    let (offset, bytes) = (end / 3, end / 4);
    vec![ByteRange { offset, bytes }, ByteRange { offset: end / 2, bytes: end - end / 2 }]
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_of_many_objects_are_read_together_and_each_fails_alone() {
    let cluster = Cluster::start(2).await;
    let client = cluster.client().await;
    let paths = paths(300);
    let sizes = [0, 100, 6000, 70_000, 1_200_000];
    let bytes = |at: usize| pattern(sizes[if at < 20 { at % 5 } else { at % 4 }], at as u64);
    for (at, path) in paths.iter().enumerate() {
        client.put(path, bytes(at), &PutOptions::replacing()).await.unwrap();
    }
    let readers = client.open_many(&paths).await.into_iter().map(Result::unwrap);
    let mut wanted: Vec<_> = readers.map(|reader| (reader.clone(), ranges(&reader))).collect();
    // One requests more than there is, and one is gone.
    wanted[33].1.push(ByteRange { offset: 1, bytes: 1 << 40 });
    client.delete(&paths[42], false).await.unwrap();
    for _ in 0..3 {
        let read = client.read_many(&wanted).await;
        assert_eq!(read.len(), wanted.len());
        for (at, read) in read.into_iter().enumerate() {
            match (at, read) {
                (33, Err(ClientError::Refused(Refusal::OutOfRange { .. })))
                | (42, Err(ClientError::Refused(Refusal::ObjectGone { .. }))) => {}
                (_, Ok(parts)) => {
                    let whole = bytes(at);
                    for (part, range) in parts.iter().zip(&wanted[at].1) {
                        let (start, end) = (range.offset, range.offset + range.bytes);
                        assert_eq!(part, &whole[start as usize..end as usize], "{}", paths[at]);
                    }
                }
                (_, Err(error)) => panic!("{}: {error}", paths[at]),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_that_moved_are_looked_up_before_they_are_read_alone() {
    let mut cluster = Cluster::start(2).await;
    let client = cluster.client().await;
    let names: Vec<Path> = (0..8).map(|number| path(&format!("/{number}"))).collect();
    for (name, seed) in names.iter().zip(0..) {
        client.put(name, pattern(5000, seed), &PutOptions::default()).await.unwrap();
    }
    let readers: Vec<Reader> =
        client.open_many(&names).await.into_iter().map(Result::unwrap).collect();
    let layout = client.layout(&names[0], 0..u64::MAX).await.unwrap();
    let victim = layout.blocks[0].home.unwrap();
    client.notice(&NodeSelector::from(victim), 200_000, "test").await.unwrap();
    let is_drained = |nodes: &[NodeInfo]| {
        nodes.iter().any(|node| node.id == victim && node.policy == Policy::Drained)
    };
    cluster.wait_for(&client, "drained", is_drained).await;
    cluster.kill(victim).await;
    let before = client.metrics();
    let wanted: Vec<_> = readers.into_iter().map(|reader| (reader, WHOLE.to_vec())).collect();
    for (read, seed) in client.read_many(&wanted).await.into_iter().zip(0..) {
        assert!(read.unwrap()[0] == pattern(5000, seed), "other bytes in /{seed}");
    }
    let after = client.metrics();
    assert!(after.refreshed > before.refreshed, "their locations were out of date");
    assert_eq!(after.retries, before.retries, "no location is tried twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_callers_get_their_own_answers_over_every_connection() {
    let cluster = Cluster::start(0).await;
    let config = ClientConfig { namenode_connections_max: 3, ..ClientConfig::default() };
    let client = cluster.client_with(config).await;
    let mut callers = JoinSet::new();
    for number in 0..600_usize {
        let client = client.clone();
        callers.spawn(async move {
            let path = path(&format!("/crowd/{number}"));
            let value = pattern(100, number as u64);
            client.put(&path, value.clone(), &PutOptions::replacing()).await.unwrap();
            assert_eq!(client.get(&path).await.unwrap(), value);
            assert_eq!(client.stat(&path).await.unwrap().path, path);
        });
    }
    callers.join_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_that_give_up_delay_no_other_one() {
    let cluster = Cluster::start(0).await;
    let client = cluster.client().await;
    client.put(&path("/a"), "a".into(), &PutOptions::default()).await.unwrap();
    for _ in 0..50 {
        let calls: Vec<_> = (0..20)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move { client.get(&path("/a")).await })
            })
            .collect();
        tokio::task::yield_now().await;
        for (at, call) in calls.into_iter().enumerate() {
            if at % 3 == 0 {
                call.abort();
            } else {
                assert_eq!(call.await.unwrap().unwrap(), "a");
            }
        }
    }
}
