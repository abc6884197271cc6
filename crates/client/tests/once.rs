//! A reply gets lost, the client sends its change again, and in between another client has changed
//! the same thing: the change is not made a second time, and is answered as it was.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::future::ready;

use crate::cluster::{Cluster, MIB, path, pattern};
use crate::proxy::Proxy;
use bytes::Bytes;
use sanderling_client::{Client, ClientConfig, ClientError, PutOptions};
use sanderling_protocol::message::{Attributes, JobHints, ObjectKind, RegisterJob};
use sanderling_protocol::{Millis, NodeSelector, Path, Policy, Refusal};

/// A cluster, a client behind the proxy, and another one that is not.
struct World {
    cluster: Cluster,
    proxy: Proxy,
    client: Client,
    other: Client,
}

impl World {
    async fn new(datanodes: usize) -> Self {
        let cluster = Cluster::start(datanodes).await;
        let proxy = Proxy::start(&cluster.namenode.address().to_string()).await;
        let client = Client::connect(&proxy.address, ClientConfig::default()).await.unwrap();
        let other = cluster.client().await;
        Self { cluster, proxy, client, other }
    }

    async fn put(&self, name: &str, value: &'static str) {
        let options = PutOptions::replacing();
        self.other.put(&path(name), Bytes::from_static(value.as_bytes()), &options).await.unwrap();
    }

    async fn value(&self, name: &str) -> Option<Bytes> {
        match self.other.get(&path(name)).await {
            Ok(value) => Some(value),
            Err(ClientError::Refused(Refusal::NotFound { .. })) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Puts through the proxy. Returns the object.
    fn replaces(
        &self,
        name: &str,
        value: Bytes,
        options: PutOptions,
    ) -> impl Future<Output = u64> + use<> {
        let (client, name) = (self.client.clone(), path(name));
        async move { client.put(&name, value, &options).await.unwrap().object.0 }
    }
}

fn is(value: &'static str) -> Option<Bytes> {
    Some(Bytes::from_static(value.as_bytes()))
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_delete_leaves_what_was_put_meanwhile() {
    let world = World::new(0).await;
    world.put("/x", "first").await;
    let client = world.client.clone();
    let delete = async move { client.delete(&path("/x"), false).await.unwrap() };
    let deleted = world.proxy.repeat("delete", delete, world.put("/x", "second")).await;
    assert_eq!(deleted, (1, 5));
    assert_eq!(world.value("/x").await, is("second"));
    let (client, object) =
        (world.client.clone(), world.other.stat(&path("/x")).await.unwrap().object);
    let delete = async move { client.delete_object(&path("/x"), object, false).await.unwrap() };
    let deleted = world.proxy.repeat("delete_object", delete, world.put("/x", "third")).await;
    assert_eq!(deleted, (1, 6));
    assert_eq!(world.value("/x").await, is("third"));
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_rename_moves_nothing_that_came_meanwhile() {
    let world = World::new(0).await;
    world.put("/from", "first").await;
    let client = world.client.clone();
    let rename = async move { client.rename(&path("/from"), &path("/to"), true).await };
    world.proxy.repeat("rename", rename, world.put("/from", "second")).await.unwrap();
    assert_eq!(world.value("/from").await, is("second"));
    assert_eq!(world.value("/to").await, is("first"));
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_put_replaces_nothing_that_came_meanwhile() {
    let world = World::new(1).await;
    let put = world.replaces("/small", "mine".into(), PutOptions::replacing());
    let mine = world.proxy.repeat("create", put, world.put("/small", "theirs")).await;
    assert_eq!(world.value("/small").await, is("theirs"));
    assert!(world.other.stat(&path("/small")).await.unwrap().object.0 > mine);
    let put = world.replaces("/large", pattern(2 * MIB, 1), PutOptions::replacing());
    let mine = world.proxy.repeat("seal", put, world.put("/large", "theirs")).await;
    assert_eq!(world.value("/large").await, is("theirs"));
    assert!(world.other.stat(&path("/large")).await.unwrap().object.0 > mine);
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_put_of_a_new_file_does_not_bring_back_what_was_deleted() {
    let world = World::new(1).await;
    let delete = async || {
        world.other.delete(&path("/x"), false).await.unwrap();
    };
    let put = world.replaces("/x", "mine".into(), PutOptions::default());
    world.proxy.repeat("create", put, delete()).await;
    assert_eq!(world.value("/x").await, None);
    let client = world.client.clone();
    let create = async move { client.create(&path("/x"), &PutOptions::default()).await.map(drop) };
    let created = world.proxy.repeat("create", create, delete()).await;
    assert!(matches!(created, Err(ClientError::Refused(Refusal::LeaseEnded { .. }))));
    assert_eq!(world.value("/x").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_mkdir_does_not_bring_back_what_was_deleted() {
    let world = World::new(0).await;
    for parents in [false, true] {
        let (client, kind) = (world.client.clone(), ObjectKind::Directory);
        let make = async move { client.make_directory(&path("/d"), kind, parents, true).await };
        let delete = async {
            world.other.delete(&path("/d"), false).await.unwrap();
        };
        let made = world.proxy.repeat("make_directory", make, delete).await.unwrap();
        assert_eq!(made.kind, ObjectKind::Directory);
        assert!(!world.other.exists(&path("/d")).await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_concat_takes_no_parts_that_came_meanwhile() {
    let world = World::new(0).await;
    world.put("/part", "first").await;
    let client = world.client.clone();
    let parts = vec![path("/part")];
    let concat = async move {
        client.concat(&parts, &path("/whole"), &PutOptions::replacing()).await.unwrap()
    };
    let between = async {
        world.other.delete(&path("/whole"), false).await.unwrap();
        world.put("/part", "second").await;
    };
    assert_eq!(world.proxy.repeat("concat", concat, between).await.bytes, 5);
    assert_eq!(world.value("/part").await, is("second"));
    assert_eq!(world.value("/whole").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_change_of_attributes_or_lifetime_undoes_no_other() {
    let world = World::new(0).await;
    world.put("/x", "value").await;
    let of = |text: &str| -> Attributes { [("a", text)].into_iter().collect() };
    let (client, mine, theirs) = (world.client.clone(), of("mine"), of("theirs"));
    let set = async move { client.set_attributes(&path("/x"), None, mine).await.unwrap() };
    let between = async {
        world.other.set_attributes(&path("/x"), None, theirs.clone()).await.unwrap();
    };
    let stat = world.proxy.repeat("set_attributes", set, between).await;
    assert_eq!(stat.attributes, of("mine"));
    assert_eq!(world.other.stat(&path("/x")).await.unwrap().attributes, theirs);
    let client = world.client.clone();
    let set = async move { client.set_ttl(&path("/x"), Some(Millis(3_600_000))).await };
    let between = async { world.other.set_ttl(&path("/x"), None).await.unwrap() };
    world.proxy.repeat("set_ttl", set, between).await.unwrap();
    assert_eq!(world.other.stat(&path("/x")).await.unwrap().expires_in, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_registration_and_end_of_a_job_are_answered_as_they_were() {
    let world = World::new(0).await;
    let (root, lease, hints) = (path("/job"), Millis(600_000), JobHints::default());
    let request = RegisterJob { path: root, lease, quota_bytes: None, hints };
    let client = world.client.clone();
    let register = async move { client.register_job(request).await.unwrap() };
    let job = world.proxy.repeat("register_job", register, world.put("/job/x", "kept")).await.job;
    assert_eq!(world.value("/job/x").await, is("kept"));
    assert_eq!(world.other.jobs().await.unwrap().len(), 1);
    let client = world.client.clone();
    let end = async move { client.end_job(job).await };
    world.proxy.repeat("end_job", end, world.put("/job/x", "another's")).await.unwrap();
    assert_eq!(world.value("/job/x").await, is("another's"));
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_orders_to_nodes_undo_no_other() {
    let mut world = World::new(1).await;
    let node = world.cluster.add(64 << 20).await;
    let selector = NodeSelector::from(node);
    let policy = async || {
        let nodes = world.other.nodes(true).await.unwrap();
        nodes.into_iter().find(|it| it.id == node).unwrap().policy
    };
    let (client, of) = (world.client.clone(), selector.clone());
    let notice = async move { client.notice(&of, 600_000, "mine").await.map(drop) };
    let cancel = async {
        world.other.cancel(&selector).await.unwrap();
    };
    world.proxy.repeat("notice", notice, cancel).await.unwrap();
    assert_eq!(policy().await, Policy::Active);
    let (client, of) = (world.client.clone(), selector.clone());
    let decommission = async move { client.decommission(&of, "mine").await.map(drop) };
    let cancel = async {
        world.other.cancel(&selector).await.unwrap();
    };
    world.proxy.repeat("decommission", decommission, cancel).await.unwrap();
    assert_eq!(policy().await, Policy::Active);
    world.other.notice(&selector, 600_000, "first").await.unwrap();
    let (client, of) = (world.client.clone(), selector.clone());
    let cancel = async move { client.cancel(&of).await.map(drop) };
    let notice = async {
        world.other.notice(&selector, 600_000, "second").await.unwrap();
    };
    world.proxy.repeat("cancel", cancel, notice).await.unwrap();
    assert_ne!(policy().await, Policy::Active, "another's notice was taken back");
}

#[tokio::test(flavor = "multi_thread")]
async fn writer_whose_replies_are_lost_writes_on_and_takes_no_block_twice() {
    let world = World::new(2).await;
    let (data, name): (Bytes, Path) = (pattern(9 * MIB, 4), path("/file"));
    for kind in ["create", "add_blocks", "publish", "seal", "append", "abort"] {
        let (client, bytes, to) = (world.client.clone(), data.clone(), name.clone());
        let write = async move {
            let mut writer = match kind {
                "append" | "abort" => client.append(&to).await.unwrap(),
                _ => client.create(&to, &PutOptions::replacing()).await.unwrap(),
            };
            writer.write(&bytes).await.unwrap();
            writer.flush().await.unwrap();
            match kind {
                "abort" => writer.abort().await.unwrap(),
                _ => drop(writer.close().await.unwrap()),
            }
        };
        world.proxy.repeat(kind, write, ready(())).await;
        let read = world.other.get(&name).await.unwrap();
        assert!(read.ends_with(&data), "other bytes after a lost reply to {kind}");
    }
    let stat = world.other.stat(&name).await.unwrap();
    let whole = 3 * data.len() as u64;
    assert_eq!((stat.bytes, stat.is_sealed), (whole, true));
    assert!(world.other.fsck().await.unwrap().problems.is_empty());
    // What was reserved twice would still be in use.
    let nodes = world.other.nodes(false).await.unwrap();
    let used: u64 = nodes.iter().flat_map(|node| &node.tiers).map(|tier| tier.used_bytes).sum();
    assert_eq!(used, whole);
}

#[tokio::test(flavor = "multi_thread")]
async fn repeat_after_a_restart_of_the_namenode_is_answered_as_it_was() {
    let mut world = World::new(0).await;
    world.put("/x", "first").await;
    let client = world.client.clone();
    world.proxy.swallow("delete");
    let delete = tokio::spawn(async move { client.delete(&path("/x"), false).await.unwrap() });
    world.proxy.swallowed().await;
    world.cluster.restart_namenode().await;
    world.put("/x", "second").await;
    world.proxy.open();
    assert_eq!(delete.await.unwrap(), (1, 5));
    assert_eq!(world.value("/x").await, is("second"));
}

#[tokio::test(flavor = "multi_thread")]
async fn first_read_deletes_the_object_that_it_read_and_no_other() {
    let world = World::new(1).await;
    for value in [Bytes::from_static(b"small"), pattern(2 * MIB, 5)] {
        let options = PutOptions { delete_after_read: true, ..PutOptions::replacing() };
        world.other.put(&path("/x"), value.clone(), &options).await.unwrap();
        let client = world.client.clone();
        let get = async move { client.get(&path("/x")).await.unwrap() };
        let kinds = &["delete", "delete_object"];
        let read = world.proxy.hold_up(kinds, get, world.put("/x", "another's")).await;
        assert!(read == value);
        assert_eq!(world.value("/x").await, is("another's"));
        // Undisturbed it goes.
        world.other.put(&path("/x"), value.clone(), &options).await.unwrap();
        assert!(world.client.get(&path("/x")).await.unwrap() == value);
        assert_eq!(world.value("/x").await, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn delete_of_an_expected_object_leaves_another_and_reports_that() {
    let world = World::new(0).await;
    world.put("/x", "first").await;
    let first = world.client.stat(&path("/x")).await.unwrap().object;
    world.put("/x", "second").await;
    let refused = world.client.delete_object(&path("/x"), first, false).await.unwrap_err();
    let ClientError::Refused(refusal) = refused else { panic!("{refused}") };
    assert_eq!(refusal, Refusal::Changed { path: path("/x"), expected: first });
    assert_eq!(world.value("/x").await, is("second"));
}
