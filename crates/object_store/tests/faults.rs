//! What goes wrong: nodes that go away, bytes that are lost, keys that clash, nonsense.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::single_range_in_vec_init, reason = "one range is meant")]

#[path = "../../client/tests/cluster/mod.rs"]
mod cluster;
#[path = "../../client/tests/cluster/proxy.rs"]
mod proxy;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cluster::{Cluster, MIB, path, pattern};
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path as Location;
use object_store::{
    Error, GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutPayload, integration,
};
use proxy::Proxy;
use sanderling_client::{Client, ClientConfig, ClientError, PutOptions};
use sanderling_object_store::{KeyConflict, SanderlingStore, StoreBuilder, client_error};
use sanderling_protocol::message::{JobHints, ObjectKind, RegisterJob};
use sanderling_protocol::{Millis, NodeId, NodeInfo, NodeSelector, Policy};

fn at(text: &str) -> Location {
    Location::parse(text).unwrap()
}

/// A node gets a notice, is empty in time, and is killed.
async fn preempt(cluster: &mut Cluster, client: &Client, node: NodeId) {
    client.notice(&NodeSelector::from(node), 200_000, "test").await.unwrap();
    let is_drained =
        |nodes: &[NodeInfo]| nodes.iter().any(|it| it.id == node && it.policy == Policy::Drained);
    cluster.wait_for(client, "drained", is_drained).await;
    cluster.kill(node).await;
}

fn first_node(cluster: &Cluster) -> NodeId {
    cluster.datanodes.iter().flatten().next().unwrap().node()
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_goes_on_while_every_node_under_it_is_preempted() {
    let mut cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    let store = StoreBuilder::of_client(client.clone()).with_read_ahead_bytes(MIB as u64 / 2);
    let store = store.build();
    let data = pattern(12 * MIB + 5, 1);
    store.put(&at("a/long"), data.clone().into()).await.unwrap();
    let mut reading = store.get(&at("a/long")).await.unwrap().into_stream();
    let mut read = reading.next().await.unwrap().unwrap().to_vec();
    for _ in 0..3 {
        let victim = first_node(&cluster);
        cluster.add(64 << 20).await;
        preempt(&mut cluster, &client, victim).await;
        read.extend_from_slice(&reading.next().await.unwrap().unwrap());
    }
    while let Some(piece) = reading.next().await {
        read.extend_from_slice(&piece.unwrap());
    }
    assert!(read == data);
    assert_eq!(client.report().await.unwrap().bytes, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn suite_passes_while_nodes_come_and_go() {
    let mut cluster = Cluster::start_with(4, 256 << 20).await;
    let client = cluster.client().await;
    let store = SanderlingStore::new(client.clone());
    let is_done = AtomicBool::new(false);
    let suite = async {
        integration::stream_get(&store).await;
        integration::multipart(&store, &store).await;
        integration::multipart_race_condition(&store, true).await;
        integration::put_get_delete_list(&store).await;
        integration::put_opts(&store, true).await;
        is_done.store(true, Ordering::Relaxed);
    };
    let preemptions = async {
        let mut preempted = 0;
        while !is_done.load(Ordering::Relaxed) || preempted == 0 {
            let victim = first_node(&cluster);
            cluster.add(256 << 20).await;
            preempt(&mut cluster, &client, victim).await;
            preempted += 1;
        }
    };
    tokio::join!(suite, preemptions);
    assert_eq!(client.report().await.unwrap().bytes, 0);
    assert!(client.fsck().await.unwrap().problems.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_bytes_are_named_exactly_and_the_rest_is_read() {
    let mut cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    let store = SanderlingStore::new(client.clone());
    let data = pattern(9 * MIB, 2);
    store.put(&at("x"), data.clone().into()).await.unwrap();
    let victim = first_node(&cluster);
    cluster.kill(victim).await;
    let is_gone =
        |nodes: &[NodeInfo]| nodes.iter().any(|it| it.id == victim && it.policy == Policy::Gone);
    cluster.wait_for(&client, "gone", is_gone).await;
    let got = store.get_opts(&at("x"), GetOptions::default()).await;
    let error = match got {
        Ok(result) => result.bytes().await.unwrap_err(),
        Err(error) => error,
    };
    assert!(matches!(error, Error::Generic { store: "Sanderling", .. }), "{error}");
    let Some(ClientError::DataUnavailable { ranges, .. }) = client_error(&error) else {
        panic!("{error}");
    };
    let lost = &ranges[0];
    let again = store.get_range(&at("x"), lost.offset..lost.offset + 1).await.unwrap_err();
    assert!(matches!(client_error(&again), Some(ClientError::DataUnavailable { .. })));
    // What is not lost is read, and the object can be written again.
    let is_lost =
        |offset: u64| ranges.iter().any(|it| offset >= it.offset && offset < it.offset + it.bytes);
    let kept = (0..8u64).map(|block| block * MIB as u64).find(|offset| !is_lost(*offset)).unwrap();
    let piece = store.get_range(&at("x"), kept..kept + 100).await.unwrap();
    assert!(piece == data[kept as usize..kept as usize + 100]);
    store.put(&at("x"), data.clone().into()).await.unwrap();
    assert!(store.get(&at("x")).await.unwrap().bytes().await.unwrap() == data);
}

#[tokio::test(flavor = "multi_thread")]
async fn key_in_a_key_is_refused_with_the_reason() {
    let cluster = Cluster::start(2).await;
    let store = SanderlingStore::new(cluster.client().await);
    store.put(&at("a"), "file".into()).await.unwrap();
    store.put(&at("d/b"), "file".into()).await.unwrap();
    for (key, taken) in [("a/b", "a"), ("a/b/c", "a"), ("d", "d")] {
        let error = store.put(&at(key), "other".into()).await.unwrap_err();
        let Error::Generic { source, .. } = &error else { panic!("{error:?}") };
        let conflict = source.downcast_ref::<KeyConflict>().unwrap();
        assert_eq!(conflict.key, taken);
        assert!(client_error(&error).is_some());
        assert!(error.to_string().contains("only one can exist"), "{error}");
    }
    let renamed = store.rename(&at("a"), &at("d")).await.unwrap_err();
    assert!(renamed.to_string().contains("only one can exist"), "{renamed}");
    for missing in ["d", "a/b", "a/b/c"] {
        for error in [
            store.get(&at(missing)).await.unwrap_err(),
            store.head(&at(missing)).await.unwrap_err(),
            store.delete(&at(missing)).await.unwrap_err(),
            store.copy(&at(missing), &at("e")).await.unwrap_err(),
            store.rename(&at(missing), &at("e")).await.unwrap_err(),
        ] {
            assert!(matches!(error, Error::NotFound { .. }), "{missing}: {error}");
        }
    }
    assert_eq!(store.list(None).count().await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn emptied_directories_vanish_and_others_stay() {
    let cluster = Cluster::start(2).await;
    let client = cluster.client().await;
    let store = SanderlingStore::new(client.clone());
    let job = RegisterJob {
        path: path("/jobs/one"),
        lease: Millis(600_000),
        quota_bytes: None,
        hints: JobHints::default(),
    };
    client.register_job(job).await.unwrap();
    for key in ["a/b/c/x", "a/y", "jobs/one/deep/z"] {
        store.put(&at(key), "1".into()).await.unwrap();
    }
    let prefixes = async || store.list_with_delimiter(None).await.unwrap().common_prefixes;
    store.delete(&at("a/b/c/x")).await.unwrap();
    let inner = store.list_with_delimiter(Some(&at("a"))).await.unwrap();
    assert!(inner.common_prefixes.is_empty());
    store.rename(&at("a/y"), &at("b/y")).await.unwrap();
    assert_eq!(prefixes().await, [at("b"), at("jobs")]);
    store.delete(&at("jobs/one/deep/z")).await.unwrap();
    assert_eq!(client.list_all(&path("/jobs/one")).await.unwrap(), []);
    assert_eq!(client.jobs().await.unwrap().len(), 1);
    // The store's own directory is not its to remove.
    client.make_directory(&path("/mine"), ObjectKind::Directory, true, true).await.unwrap();
    let mine = StoreBuilder::of_client(client.clone()).with_prefix(path("/mine")).build();
    mine.put(&at("x"), "1".into()).await.unwrap();
    mine.delete(&at("x")).await.unwrap();
    assert!(client.stat(&path("/mine")).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn puts_into_a_directory_survive_its_removal() {
    let cluster = Cluster::start(2).await;
    let store = SanderlingStore::new(cluster.client().await);
    let workers = (0..8u64).map(|worker| {
        let store = store.clone();
        tokio::spawn(async move {
            for round in 0..20 {
                let location = at(&format!("d/e/{worker}"));
                let data = pattern(2000 + round * 100, worker);
                store.put(&location, data.clone().into()).await.unwrap();
                let read = store.get(&location).await.unwrap().bytes().await.unwrap();
                assert!(read == data);
                store.delete(&location).await.unwrap();
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    assert!(store.list_with_delimiter(None).await.unwrap().common_prefixes.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_still_written_is_not_seen() {
    let cluster = Cluster::start(2).await;
    let client = cluster.client().await;
    let store = SanderlingStore::new(client.clone());
    let mut writer = client.create(&path("/w"), &PutOptions::default()).await.unwrap();
    writer.write(b"half").await.unwrap();
    writer.flush().await.unwrap();
    assert!(matches!(store.get(&at("w")).await, Err(Error::NotFound { .. })));
    assert!(matches!(store.head(&at("w")).await, Err(Error::NotFound { .. })));
    assert_eq!(store.list(None).count().await, 0);
    assert_eq!(store.list_with_delimiter(None).await.unwrap().objects, []);
    writer.write(b" and half").await.unwrap();
    writer.close().await.unwrap();
    let got = store.get(&at("w")).await.unwrap();
    let old = got.meta.e_tag.clone();
    assert_eq!(got.bytes().await.unwrap(), "half and half");
    // Appending keeps the object and changes the ETag; an update of the old one is refused.
    let mut writer = client.append(&path("/w")).await.unwrap();
    writer.write(b"!").await.unwrap();
    writer.close().await.unwrap();
    let mode = PutMode::Update(object_store::UpdateVersion { e_tag: old, version: None });
    let error = store.put_opts(&at("w"), "new".into(), mode.into()).await.unwrap_err();
    assert!(matches!(error, Error::Precondition { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_end_and_leave_nothing() {
    let cluster = Cluster::start(2).await;
    let client = cluster.client().await;
    let short = Duration::from_millis(200);
    let store = StoreBuilder::of_client(client.clone()).with_upload_ttl(short).build();
    let location = at("new/deep/x");
    // Abandoned; on a slow machine it is gone before its first part is there.
    let mut upload = store.put_multipart(&location).await.unwrap();
    let _ = upload.put_part(pattern(MIB, 1).into()).await;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while client.usage(&path("/")).await.unwrap().files > 0 {
        assert!(tokio::time::Instant::now() < deadline, "the upload does not vanish");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(upload.complete().await.is_err());
    // Aborted, then used.
    let store = SanderlingStore::new(client.clone());
    let mut upload = store.put_multipart(&location).await.unwrap();
    upload.put_part(pattern(MIB, 1).into()).await.unwrap();
    upload.abort().await.unwrap();
    upload.abort().await.unwrap();
    let late = upload.put_part("late".into()).await.unwrap_err();
    assert!(late.to_string().contains("was completed, aborted"), "{late}");
    assert!(upload.complete().await.is_err());
    assert_eq!(client.usage(&path("/")).await.unwrap().files, 0);
    // A part that was not polled is missing.
    let mut upload = store.put_multipart(&location).await.unwrap();
    let never = upload.put_part("part".into());
    assert!(upload.complete().await.unwrap_err().to_string().contains("part 0"));
    drop(never);
    upload.abort().await.unwrap();
    assert!(store.list_with_delimiter(None).await.unwrap().common_prefixes.is_empty());
    // Ids of no upload.
    let part = PartId { content_id: "../../x:1".to_owned() };
    let id = store.create_multipart(&location).await.unwrap();
    for bad in ["", "/", "/new", "/.upload-0000", "nonsense", &format!("{id}/..")] {
        let put = store.put_part(&location, &bad.to_owned(), 0, PutPayload::default()).await;
        assert!(put.is_err(), "{bad}");
    }
    assert!(store.complete_multipart(&location, &id, vec![part]).await.is_err());
    store.abort_multipart(&location, &id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn part_that_ends_after_its_repetition_does_not_replace_it() {
    let cluster = Cluster::start(2).await;
    let client = cluster.client().await;
    let store = SanderlingStore::new(client.clone());
    let proxy = Proxy::start(client.namenode()).await;
    let behind = Client::connect(&proxy.address, ClientConfig::default()).await.unwrap();
    let behind = SanderlingStore::new(behind);
    let location = at("x");
    let id = store.create_multipart(&location).await.unwrap();
    let first = store.put_part(&location, &id, 0, pattern(MIB, 1).into()).await.unwrap();
    // One worker stalls before its part is there, and another one stores the part again.
    let late = {
        let (location, id) = (location.clone(), id.clone());
        async move { behind.put_part(&location, &id, 1, pattern(MIB, 2).into()).await }
    };
    let mut repeated = None;
    let between = async {
        let put = store.put_part(&location, &id, 1, pattern(MIB, 3).into()).await;
        repeated = Some(put.unwrap());
    };
    let late = proxy.hold_up(&["seal"], late, between).await.unwrap();
    let repeated = repeated.unwrap();
    assert_ne!(late.content_id, repeated.content_id);
    store.complete_multipart(&location, &id, vec![first, repeated]).await.unwrap();
    let read = store.get(&location).await.unwrap().bytes().await.unwrap();
    assert!(read == [pattern(MIB, 1), pattern(MIB, 3)].concat());
    // The part that was not named went with the upload.
    assert_eq!(client.usage(&path("/")).await.unwrap().files, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_whose_consumer_does_other_things_delays_no_other_one() {
    let cluster = Cluster::start(2).await;
    let store = SanderlingStore::new(cluster.client().await);
    let keys: Vec<Location> = (0..40).map(|number| at(&format!("k/{number}"))).collect();
    for key in &keys {
        store.put(key, "1".into()).await.unwrap();
    }
    let reads = stream::iter(&keys).map(|key| store.get(key)).buffered(8);
    // A put that waited for a read which is never polled would end at its deadline.
    let copied = reads.then(|got| async {
        let bytes = got.unwrap().bytes().await.unwrap();
        store.put(&at("other"), bytes.into()).await.unwrap();
    });
    assert_eq!(copied.count().await, 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_is_refused_and_no_call_hangs() {
    let cluster = Cluster::start(2).await;
    let client = cluster.client().await;
    let store = SanderlingStore::new(client.clone());
    let long = at(&"x".repeat(300));
    for error in [
        store.put(&long, "1".into()).await.unwrap_err(),
        store.get(&long).await.unwrap_err(),
        store.put(&Location::ROOT, "1".into()).await.unwrap_err(),
    ] {
        assert!(client_error(&error).is_some(), "{error}");
    }
    assert!(store.list(Some(&long)).try_collect::<Vec<_>>().await.is_err());
    store.put(&at("f"), "12345".into()).await.unwrap();
    assert!(store.get_ranges(&at("f"), &[0..2, 7..9]).await.is_err());
    assert!(store.get_ranges(&at("f"), &[3..3]).await.is_err());
    assert_eq!(store.get_ranges(&at("f"), &[4..900]).await.unwrap(), ["5"]);
    assert!(store.get_ranges(&at("f"), &[]).await.unwrap().is_empty());
    // A name that no location can have.
    client.put(&path("/line\nbreak"), "1".into(), &PutOptions::default()).await.unwrap();
    let listed: Vec<_> = store.list(None).collect().await;
    assert_eq!(listed.iter().filter(|it| it.is_ok()).count(), 1);
    assert!(matches!(
        listed.iter().find_map(|it| it.as_ref().err()),
        Some(Error::InvalidPath { .. })
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn store_connects_once_a_server_is_there() {
    let address = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let store = SanderlingStore::from_url(&format!("sanderling://{address}/x")).unwrap();
    let error = store.get(&at("a")).await.unwrap_err();
    assert!(matches!(client_error(&error), Some(ClientError::Call { .. })), "{error:?}");
    assert!(store.list(None).try_collect::<Vec<_>>().await.is_err());
    assert!(store.delete(&at("a")).await.is_err());
}
