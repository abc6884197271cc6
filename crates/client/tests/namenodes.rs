//! A client, datanodes and a manager that have several addresses of namenodes, of which some are
//! dead, some do not answer, and some do not lead.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use crate::cluster::{Cluster, path};
use crate::follower::{Behaviour, Follower, dead, paused};
use crate::proxy::Proxy;
use bytes::Bytes;
use sanderling_client::{Client, ClientConfig, ClientError, PutOptions};
use sanderling_datanode::DatanodeOptions;
use sanderling_manager::{ManagerOptions, ManagerServer};
use sanderling_namenode::{NamenodeOptions, NamenodeServer};
use sanderling_protocol::message::{JobHints, ObjectKind, ObjectStat, RegisterJob};
use sanderling_protocol::{ClusterId, Millis, NodeSelector, Policy};
use tokio::time::timeout;

/// What is to happen happens within this time, on any machine.
const WITHIN: Duration = Duration::from_secs(60);

/// Returns a configuration in which no attempt ends by its own deadline within a test.
fn patient() -> ClientConfig {
    let long = 4 * WITHIN;
    ClientConfig { call_deadline: long, attempt_deadline: long, ..ClientConfig::default() }
}

async fn connect(addresses: &str) -> Client {
    let connected = timeout(WITHIN, Client::connect(addresses, patient())).await;
    connected.expect("in time").unwrap()
}

/// Writes an object and reads it back.
async fn put_and_get(client: &Client, name: &str) {
    let bytes = Bytes::from(vec![7; 100_000]);
    let done = async {
        client.put(&path(name), bytes.clone(), &PutOptions::default()).await.unwrap();
        assert_eq!(client.get(&path(name)).await.unwrap(), bytes);
    };
    timeout(WITHIN, done).await.expect("in time");
}

async fn make_directory(client: &Client, name: &str) -> Result<ObjectStat, ClientError> {
    client.make_directory(&path(name), ObjectKind::Directory, false, true).await
}

async fn other_namenode(directory: &tempfile::TempDir) -> NamenodeServer {
    let options = NamenodeOptions {
        listen: "127.0.0.1:0".to_owned(),
        http_listen: None,
        directory: directory.path().to_owned(),
        ..NamenodeOptions::default()
    };
    NamenodeServer::start(options).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_are_dead_paused_or_follow_hold_no_process_up() {
    let mut cluster = Cluster::start(0).await;
    let leader = cluster.namenode.address().to_string();
    let (silent, _listener) = paused().await;
    let follower =
        Follower::start(cluster.namenode.cluster(), Behaviour::Refuses(Some(leader.clone()))).await;
    let addresses = [dead().await, silent, follower.address.clone(), leader.clone()].join(",");
    cluster.manager.stop().await;
    cluster.manager = ManagerServer::start(ManagerOptions {
        namenode: addresses.clone(),
        ..ManagerOptions::default()
    });
    let mut nodes = Vec::new();
    for _ in 0..2 {
        let options = DatanodeOptions {
            namenode: addresses.clone(),
            http_listen: None,
            dram_bytes: 64 << 20,
            ..DatanodeOptions::default()
        };
        let started = timeout(WITHIN, sanderling_datanode::DatanodeServer::start(options)).await;
        nodes.push(started.expect("in time").unwrap());
    }
    let client = connect(&addresses).await;
    put_and_get(&client, "/a").await;
    // The manager empties a node: it has found the leader, too.
    let node = nodes[0].node();
    client.decommission(&NodeSelector::from(node), "test").await.unwrap();
    let is_empty = |nodes: &[sanderling_protocol::NodeInfo]| {
        nodes.iter().any(|it| it.id == node && it.home_bytes == 0 && it.policy != Policy::Active)
    };
    cluster.wait_for(&client, "the node is emptied", is_empty).await;
    put_and_get(&client, "/b").await;
    for node in nodes {
        node.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn group_is_learned_from_one_member_and_outlives_it() {
    let cluster = Cluster::start(1).await;
    let leader = cluster.namenode.address().to_string();
    let id = cluster.namenode.cluster();
    let follower = Follower::start(id, Behaviour::Refuses(None)).await;
    let spare = Follower::start(id, Behaviour::Refuses(Some(leader.clone()))).await;
    follower.report(3, &leader, &[&spare.address, &leader]);
    // It is the only one that was configured, and its refusals name no leader.
    let client = connect(&follower.address).await;
    put_and_get(&client, "/a").await;
    let is_known = |client: &Client, address: &String| client.namenodes().contains(address);
    let learned = async {
        while !is_known(&client, &leader) || !is_known(&client, &spare.address) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(WITHIN, learned).await.expect("the members are learned");
    drop(follower);
    put_and_get(&client, "/b").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn call_leaves_a_paused_leader_when_the_others_have_another_one() {
    let cluster = Cluster::start(1).await;
    let (id, leader) = (cluster.namenode.cluster(), cluster.namenode.address().to_string());
    let old = Follower::start(id, Behaviour::Silent).await;
    let voter = Follower::start(id, Behaviour::Refuses(None)).await;
    // The others elect later: at first they follow the one that is paused.
    voter.report(5, &old.address, &[&old.address, &leader]);
    let client = connect(&format!("{},{}", old.address, voter.address)).await;
    let reading = tokio::spawn({
        let client = client.clone();
        async move { client.stat(&path("/")).await }
    });
    let asked = async {
        while !voter.requests().contains(&"members") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(WITHIN, asked).await.expect("the others are tried while the leader is silent");
    assert!(!reading.is_finished(), "a slow leader is waited for");
    voter.report(6, &leader, &[&old.address, &leader]);
    timeout(WITHIN, reading).await.expect("in time").unwrap().unwrap();
    put_and_get(&client, "/a").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn change_whose_reply_was_lost_is_made_once_by_whichever_member_answers() {
    let cluster = Cluster::start(0).await;
    let leader = cluster.namenode.address().to_string();
    let (first, second) = (Proxy::start(&leader).await, Proxy::start(&leader).await);
    let client = connect(&format!("{},{}", first.address, second.address)).await;
    make_directory(&client, "/d").await.unwrap();
    first.swallow("make_directory");
    // Nothing passes the first one from then on. Made twice, the change would be refused.
    let made = timeout(WITHIN, make_directory(&client, "/d/e")).await;
    made.expect("in time").unwrap();
    first.swallowed().await;
    first.open();
}

#[tokio::test(flavor = "multi_thread")]
async fn follower_of_events_goes_on_by_sequence_at_another_member() {
    let cluster = Cluster::start(0).await;
    let leader = cluster.namenode.address().to_string();
    let (first, second) = (Proxy::start(&leader).await, Proxy::start(&leader).await);
    let client = connect(&format!("{},{}", first.address, second.address)).await;
    client.stat(&path("/")).await.unwrap();
    let seen = client.events(0, 1000, Millis(0)).await.unwrap();
    let last = seen.last().map_or(0, |event| event.sequence);
    first.swallow("events");
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.events(last, 1000, Millis(30_000)).await }
    });
    let direct = connect(&leader).await;
    let (lease, hints) = (Millis(60_000), JobHints::default());
    let job = RegisterJob { path: path("/job"), lease, quota_bytes: None, hints };
    direct.register_job(job).await.unwrap();
    let events = timeout(WITHIN, waiting).await.expect("in time").unwrap().unwrap();
    assert!(events.iter().all(|event| event.sequence > last) && !events.is_empty());
    first.open();
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_of_two_clusters_are_refused_by_name() {
    let (cluster, directory) = (Cluster::start(0).await, tempfile::tempdir().unwrap());
    let other = other_namenode(&directory).await;
    let (here, there) = (cluster.namenode.address().to_string(), other.address().to_string());
    let addresses = format!("{here},{there}");
    let error = Client::connect(&addresses, ClientConfig::default()).await.unwrap_err();
    assert_eq!(error.name(), "BadAddress", "{error}");
    let text = error.to_string();
    for part in [&here, &there, &format!("{:016x}", cluster.namenode.cluster().0)] {
        assert!(text.contains(part.as_str()), "{text}");
    }
    let options =
        DatanodeOptions { namenode: addresses, http_listen: None, ..DatanodeOptions::default() };
    let refused = sanderling_datanode::DatanodeServer::start(options).await.unwrap_err();
    assert!(refused.to_string().contains("different clusters"), "{refused}");
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn member_that_lies_leads_no_client_to_another_cluster() {
    let (cluster, directory) = (Cluster::start(1).await, tempfile::tempdir().unwrap());
    let other = other_namenode(&directory).await;
    let (here, there) = (cluster.namenode.address().to_string(), other.address().to_string());
    let liar =
        Follower::start(cluster.namenode.cluster(), Behaviour::Refuses(Some(there.clone()))).await;
    liar.report(u64::MAX, &there, &[&there]);
    // This one does not look at which cluster its caller names.
    let careless = Follower::start(ClusterId(1), Behaviour::Silent).await;
    let addresses = format!("{},{here}", liar.address);
    let client = connect(&addresses).await;
    put_and_get(&client, "/a").await;
    liar.behave(Behaviour::Refuses(Some(careless.address.clone())));
    put_and_get(&client, "/b").await;
    assert_eq!(careless.requests(), Vec::<&str>::new(), "nothing was sent to another cluster");
    let elsewhere = connect(&there).await;
    for name in ["/a", "/b"] {
        let error = elsewhere.stat(&path(name)).await.unwrap_err();
        assert_eq!(error.name(), "NotFound", "{error}");
    }
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn call_without_a_leader_ends_by_its_deadline_with_the_reason() {
    let id = ClusterId(9);
    let (one, two) = (
        Follower::start(id, Behaviour::Refuses(None)).await,
        Follower::start(id, Behaviour::Refuses(None)).await,
    );
    let addresses = format!("{},{}", one.address, two.address);
    let client = Client::connect(&addresses, ClientConfig::default()).await.unwrap();
    let client = client.with_deadline(Duration::from_secs(3));
    let ended = timeout(WITHIN, client.stat(&path("/"))).await.expect("by its deadline");
    let error = ended.unwrap_err();
    assert!(matches!(error, ClientError::TimedOut { .. }), "{error}");
    assert!(error.to_string().contains("no leader is known yet"), "{error}");
    // Both were tried, and with pauses: not as often as there is time.
    let asked = one.requests().len() + two.requests().len();
    assert!((4..600).contains(&asked), "{asked} requests in three seconds");
}
