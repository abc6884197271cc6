//! A change whose reply got lost, sent again to a namenode that was killed in between.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../../client/tests/cluster/proxy.rs"]
mod proxy;

use crate::cluster::{Cluster, SOON, Shape, block_on, bytes_of, path, run, sanderling, until_gone};
use bytes::Bytes;
use proxy::Proxy;
use sanderling_client::{Client, ClientConfig, ClientError, PutOptions};
use sanderling_protocol::frame::{decode_body, encode_body};
use sanderling_protocol::message::{Change, ClientId, Hello, ObjectKind, Once, Role};
use sanderling_protocol::{Header, Nonce, Op, Refusal, Reply, Request};
use sanderling_transport::Connection;
use tokio::time::Instant;

const MIB: usize = 1 << 20;

/// Kills the namenode with `kill -9` between the lost reply and the repeat.
async fn over_a_killed_namenode() {
    let mut cluster = Cluster::of(1);
    let other = cluster.client().await;
    let proxy = Proxy::start(&cluster.namenode.address).await;
    let client = Client::connect(&proxy.address, ClientConfig::default()).await.unwrap();
    let client = client.with_deadline(SOON);
    let (x, replacing) = (path("/x"), PutOptions::replacing());
    other.put(&x, "first".into(), &replacing).await.unwrap();

    proxy.swallow("delete");
    let (deleting, name) = (client.clone(), x.clone());
    let delete = tokio::spawn(async move { deleting.delete(&name, false).await });
    proxy.swallowed().await;
    cluster.restart_namenode();
    other.put(&x, "second".into(), &replacing).await.unwrap();
    cluster.restart_namenode();
    proxy.open();
    assert_eq!(delete.await.unwrap().unwrap(), (1, 5));
    assert_eq!(other.get(&x).await.unwrap(), "second");

    proxy.swallow("seal");
    let (putting, name, options) = (client.clone(), x.clone(), replacing.clone());
    let put = tokio::spawn(async move { putting.put(&name, bytes_of(7, 2 * MIB), &options).await });
    proxy.swallowed().await;
    let seen = other.stat(&x).await.unwrap();
    other.put(&x, "third".into(), &replacing).await.unwrap();
    cluster.restart_namenode();
    proxy.open();
    assert_eq!(put.await.unwrap().unwrap().object, seen.object);
    assert_eq!(other.get(&x).await.unwrap(), "third");
    assert!(other.fsck().await.unwrap().problems.is_empty());
}

#[test]
fn repeat_is_answered_as_it_was_by_the_namenode_after_the_one_that_was_killed() {
    block_on(over_a_killed_namenode());
}

#[test]
fn writer_whose_bytes_are_lost_fails_at_its_end_and_what_it_would_replace_stays() {
    block_on(async {
        let namenode = ["--no-rebalance", "--no-precopy"].map(str::to_owned).to_vec();
        let mut cluster = Cluster::start(Shape { datanodes: 4, namenode, ..Shape::default() });
        let client = cluster.client().await;
        let (old, name) = (bytes_of(1, 300_000), path("/results"));
        client.put(&name, old.clone(), &PutOptions::replacing()).await.unwrap();
        let home = client.layout(&name, 0..u64::MAX).await.unwrap().blocks[0].home.unwrap();
        let mut replacing = client.create(&name, &PutOptions::replacing()).await.unwrap();
        let mut new = client.create(&path("/new"), &PutOptions::default()).await.unwrap();
        client.make_multifile(&path("/multi")).await.unwrap();
        let part = path("/multi/part-0");
        let mut of_many = client.create(&part, &PutOptions::default()).await.unwrap();
        for writer in [&mut replacing, &mut new, &mut of_many] {
            writer.write(&bytes_of(2, 4 * MIB)).await.unwrap();
            writer.flush().await.unwrap();
        }
        // Half is written; then a node dies that has some of it, and not the old object.
        let layout = client.layout(&path("/new"), 0..u64::MAX).await.unwrap();
        let of_part = client.layout(&part, 0..u64::MAX).await.unwrap();
        let nodes = client.nodes(false).await.unwrap();
        let mut dead = Vec::new();
        for node in nodes.iter().map(|node| node.id).filter(|node| *node != home) {
            let server = cluster.name_of(node);
            cluster.datanode(&server).kill();
            until_gone(&client, &server).await;
            dead.push(node);
        }
        let is_lost = |home: Option<_>| home.is_some_and(|home| dead.contains(&home));
        assert!(layout.blocks.iter().any(|block| is_lost(block.home)));
        assert!(of_part.blocks.iter().any(|block| is_lost(block.home)));
        let reported = client.report().await.unwrap().bytes;
        for (mut writer, name) in
            [(replacing, name.clone()), (new, path("/new")), (of_many, part.clone())]
        {
            let object = writer.object();
            writer.write(&bytes_of(3, 4 * MIB)).await.unwrap();
            match writer.close().await {
                Err(ClientError::DataUnavailable { path, object: of, ranges }) => {
                    assert_eq!((path, of), (name, object));
                    assert!(ranges.iter().all(|it| it.offset + it.bytes <= 4 << 20), "{ranges:?}");
                }
                other => panic!("{name}: {other:?}"),
            }
        }
        assert!(client.get(&name).await.unwrap() == old, "the old object was replaced");
        for gone in ["/new", "/multi/part-0"] {
            let refused = client.get(&path(gone)).await;
            let is_gone = matches!(refused, Err(ClientError::Refused(Refusal::NotFound { .. })));
            assert!(is_gone, "{gone}: {refused:?}");
        }
        // The name is free for the next attempt, which has the bytes.
        client.put(&part, bytes_of(4, MIB), &PutOptions::default()).await.unwrap();
        assert!(reported > 0);
        assert_eq!(client.report().await.unwrap().bytes, reported);
        assert!(client.fsck().await.unwrap().problems.is_empty());
    });
}

#[test]
fn append_goes_on_behind_lost_bytes_that_are_not_its_own() {
    block_on(async {
        let namenode = ["--no-rebalance", "--no-precopy"].map(str::to_owned).to_vec();
        let mut cluster = Cluster::start(Shape { datanodes: 2, namenode, ..Shape::default() });
        let client = cluster.client().await;
        let name = path("/log");
        client.put(&name, bytes_of(1, 300_000), &PutOptions::replacing()).await.unwrap();
        let home = client.layout(&name, 0..u64::MAX).await.unwrap().blocks[0].home.unwrap();
        let server = cluster.name_of(home);
        cluster.datanode(&server).kill();
        until_gone(&client, &server).await;
        let mut writer = client.append(&name).await.unwrap();
        writer.write(&bytes_of(2, 2 * MIB)).await.unwrap();
        let stat = writer.close().await.unwrap();
        assert_eq!((stat.bytes, stat.lost_bytes), (300_000 + 2 * MIB as u64, 300_000));
        let read = client.get_range(&name, 300_000, 2 * MIB as u64).await.unwrap();
        assert!(read == bytes_of(2, 2 * MIB));
    });
}

/// A client that sends what no library sends.
struct RawClient {
    connection: Connection,
    id: ClientId,
}

impl RawClient {
    /// Connects to a namenode; opens a client there, or goes on as one.
    async fn open(namenode: &str, id: Option<ClientId>) -> Self {
        let hello = Hello { role: Role::Client, cluster: None, node: None, token: None };
        let connected = Connection::connect(namenode, hello, Instant::now() + SOON).await;
        let key = Nonce(7);
        let unknown = id.unwrap_or(ClientId { number: 0, key });
        let mut raw = Self { connection: connected.unwrap().0, id: unknown };
        if id.is_none() {
            let opened = raw.send(vec![Request::OpenClient { key }]).await.remove(0);
            let Ok(Reply::Client { number }) = opened else { panic!("{opened:?}") };
            raw.id = ClientId { number, key };
        }
        raw
    }

    /// Sends requests in one frame.
    async fn send(&self, requests: Vec<Request>) -> Vec<Result<Reply, Refusal>> {
        let body = vec![Bytes::from(encode_body(&requests))];
        let header = Header::new(Op::Meta, 0);
        let answer = self.connection.call(header, body, Instant::now() + SOON).await;
        decode_body(&answer.unwrap().body).unwrap()
    }

    fn once(&self, sequence: u64, request: Request) -> Request {
        let change = Change::new(request);
        let client = self.id;
        Request::Once(Box::new(Once { client, sequence, settled_below: 0, change }))
    }

    async fn change(&self, sequence: u64, request: Request) -> Result<Reply, Refusal> {
        self.send(vec![self.once(sequence, request)]).await.remove(0)
    }
}

fn making(name: &str) -> Request {
    let (kind, parents, is_listed) = (ObjectKind::Directory, false, true);
    Request::MakeDirectory { path: path(name), kind, parents, is_listed }
}

fn deleting(name: &str) -> Request {
    Request::Delete { path: path(name), recursive: true }
}

fn is_other(answer: &Result<Reply, Refusal>) -> bool {
    matches!(answer, Err(Refusal::BadRequest { why }) if why.contains("was another one before"))
}

/// After a success and after a refusal, in one frame, by two connections, and after the namenode
/// was killed.
#[test]
fn other_change_under_a_used_sequence_is_refused_and_not_made() {
    block_on(async {
        let mut cluster = Cluster::of(0);
        let address = cluster.namenode.address.clone();
        let client = cluster.client().await;
        let mut raw = RawClient::open(&address, None).await;
        let assert_only = async |names: &[&str]| {
            let (listed, _) = client.list(&path("/"), "", 100).await.unwrap();
            let mut there: Vec<String> = listed.into_iter().map(|it| it.name).collect();
            there.sort();
            assert_eq!(there, names);
        };
        assert!(raw.change(1, making("/a")).await.is_ok());
        for other in [making("/b"), deleting("/a")] {
            let answer = raw.change(1, other).await;
            assert!(is_other(&answer), "{answer:?}");
        }
        // A refusal uses the sequence, too.
        let refused = raw.change(2, making("/a")).await;
        assert!(matches!(refused, Err(Refusal::Exists { .. })), "{refused:?}");
        let answer = raw.change(2, making("/b")).await;
        assert!(is_other(&answer), "{answer:?}");
        // Of several in one frame the first one is the change.
        let both = vec![raw.once(3, making("/c")), raw.once(3, making("/d"))];
        let answers = raw.send(both).await;
        assert!(answers[0].is_ok() && is_other(&answers[1]), "{answers:?}");
        assert_only(&["a", "c"]).await;
        // Of two at once one is the change.
        let second = RawClient::open(&address, Some(raw.id)).await;
        for sequence in 10..60 {
            let (one, other) = (format!("/one-{sequence}"), format!("/other-{sequence}"));
            let (one_made, other_made) = tokio::join!(
                raw.change(sequence, making(&one)),
                second.change(sequence, making(&other)),
            );
            let made = [&one_made, &other_made].map(Result::is_ok);
            assert_ne!(made[0], made[1], "{one_made:?} {other_made:?}");
            assert!(is_other(if made[0] { &other_made } else { &one_made }));
            let there = [client.stat(&path(&one)).await, client.stat(&path(&other)).await];
            assert_eq!(there.map(|it| it.is_ok()), made);
        }
        cluster.restart_namenode();
        raw = RawClient::open(&address, Some(raw.id)).await;
        let answer = raw.change(1, making("/b")).await;
        assert!(is_other(&answer), "{answer:?}");
        assert!(raw.change(1, making("/a")).await.is_ok(), "the same change is answered as before");
        assert!(client.stat(&path("/b")).await.is_err());
    });
}

#[test]
fn deep_check_passes_over_a_node_that_ends_meanwhile() {
    block_on(async {
        let mut cluster = Cluster::of(2);
        let client = cluster.client().await;
        let proxy = Proxy::start(&cluster.namenode.address).await;
        let address = proxy.address.clone();
        let check = tokio::task::spawn_blocking(move || {
            let mut command = sanderling();
            command.args(["fsck", "--deep", "--json"]).env("SANDERLING_NAMENODE", address);
            run(&mut command)
        });
        let is_gone = async {
            for node in &mut cluster.datanodes {
                node.kill();
            }
            for node in client.nodes(false).await.unwrap() {
                until_gone(&client, &node.name).await;
            }
        };
        let ran = proxy.hold_up(&["node_blocks"], check, is_gone).await.unwrap();
        assert_eq!(ran.code, 0, "{ran}");
    });
}
