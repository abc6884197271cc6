//! There is room for so many departures as were promised, however full writers make a fleet.

use crate::cluster;
use std::time::{Duration, Instant};

use crate::cluster::model::{Losses, Model};
use crate::cluster::{
    Cluster, SOON, Shape, block_on, bytes_of, path, until_drained, until_gone, until_node,
};
use sanderling_client::{Client, ClientError, PutOptions};
use sanderling_protocol::message::Room;
use sanderling_protocol::{EventKind, Millis, NodeSelector, Policy, Refusal, amount};

/// A deadline that no drain of these tests meets, however busy the machine is.
const LONG: Duration = Duration::from_secs(200);

/// Objects of several sizes, none of them a whole number of blocks.
const SIZES: [usize; 4] = [2_500_000, 700_000, 60_000, 1_500_000];

fn fleet(names: &[(&str, &str)], flags: &[&str]) -> Cluster {
    let namenode = flags.iter().map(|flag| (*flag).to_owned()).collect();
    let mut cluster = Cluster::start(Shape { datanodes: 0, namenode, ..Shape::default() });
    for (name, dram) in names {
        cluster.add(name, &["--dram", dram]);
    }
    cluster
}

async fn notice(client: &Client, name: &str) {
    let millis = i64::try_from(LONG.as_millis()).expect("seconds");
    client.notice(&NodeSelector(name.to_owned()), millis, "test").await.expect("taken");
}

/// Stores objects until a put is refused; returns what was acknowledged, and the refusal.
async fn fill(client: Client, writer: u64) -> (Vec<(String, u64, usize)>, Refusal) {
    let options = PutOptions { parents: true, ..PutOptions::default() };
    let mut stored = Vec::new();
    for at in 0.. {
        let (seed, bytes) = (writer * 10_000 + at, SIZES[(writer + at) as usize % SIZES.len()]);
        let name = format!("/full/{writer}/{at}");
        match client.put(&path(&name), bytes_of(seed, bytes), &options).await {
            Ok(_) => stored.push((name, seed, bytes)),
            Err(ClientError::Refused(
                refusal @ (Refusal::ReserveKept { .. } | Refusal::Full { .. }),
            )) => {
                return (stored, refusal);
            }
            Err(error) => panic!("{name}: {error}"),
        }
    }
    unreachable!("a fleet is not endless")
}

/// Several writers fill the fleet at once, until each of them is refused.
async fn fill_all(cluster: &Cluster) -> (Model, Refusal) {
    let mut writers = Vec::new();
    for writer in 0..3 {
        writers.push(tokio::spawn(fill(cluster.client().await, writer)));
    }
    let (mut model, mut last) = (Model::default(), None);
    for writer in writers {
        let (stored, refusal) = writer.await.expect("no writer panics");
        for (name, seed, bytes) in stored {
            model.objects.insert(path(&name), (seed, bytes));
        }
        last = Some(refusal);
    }
    (model, last.expect("each writer was refused"))
}

/// Gives notices at once, and reads everything when the nodes are gone.
async fn leave_without_a_loss(cluster: &mut Cluster, model: &Model, names: &[&str]) {
    let client = cluster.client().await;
    for name in names {
        notice(&client, name).await;
    }
    for name in names {
        let drained = until_drained(&client, name).await;
        let drain = drained.drain.expect("it drained");
        assert!(drain.moved_blocks > 0, "{name} held nothing: the test shows nothing");
        assert_eq!(drain.lost_blocks, 0, "{drained:?}");
    }
    for name in names {
        cluster.datanode(name).kill();
    }
    for name in names {
        until_gone(&client, name).await;
    }
    model.check(&client, &Losses::default()).await;
    assert_eq!(Losses::reported(&client).await, Losses::default());
    let fsck = client.fsck().await.expect("the namenode answers");
    assert!(fsck.problems.is_empty(), "{fsck:?}");
}

async fn metrics(cluster: &Cluster) -> String {
    cluster::http::page(&cluster.namenode.http_address, "/metrics").await
}

async fn room(client: &Client) -> Room {
    let room = client.room().await.expect("the namenode answers");
    room.expect("it is of this release")
}

#[test]
fn fleet_that_writers_fill_keeps_room_for_one_notice_and_reports_it() {
    let nodes = [("n0", "24MiB"), ("n1", "24MiB"), ("n2", "24MiB"), ("n3", "24MiB")];
    let mut cluster = fleet(&nodes, &[]);
    cluster.add("n4", &["--dram", "24MiB"]);
    block_on(async {
        let client = cluster.client().await;
        let (model, refusal) = fill_all(&cluster).await;
        let kept = room(&client).await;
        // Five nodes less one, less a block of each that is left.
        assert_eq!((kept.departures, kept.reserve_bytes), (1, (24 + 4) << 20), "{kept:?}");
        assert!(kept.fits() && kept.room_bytes < 4 << 20, "it could hold more: {kept:?}");
        assert!(model.bytes() > 80 << 20, "too little was stored: {}", model.bytes());
        let Refusal::ReserveKept { bytes, reserve, departures, .. } = &refusal else {
            panic!("{refusal}");
        };
        assert_eq!((*reserve, *departures), (kept.reserve_bytes, 1));
        assert!(refusal.to_string().contains(&amount::bytes(*bytes)), "{refusal}");
        let ran = cluster.cli(&["node", "ls"]);
        assert!(ran.stdout.contains("28.0 MiB kept: 1 node can leave at once"), "{ran}");
        let fleet = cluster.json(&["node", "ls"]);
        assert_eq!(fleet["departures_fit"], true);
        assert_eq!(fleet["room"]["reserve_bytes"], kept.reserve_bytes);
        leave_without_a_loss(&mut cluster, &model, &["n2"]).await;
    });
}

#[test]
fn two_notices_at_once_lose_nothing_where_two_departures_are_kept() {
    let nodes = [("n0", "16MiB"), ("n1", "16MiB"), ("n2", "16MiB"), ("n3", "16MiB")];
    let mut cluster = fleet(&nodes, &["--departures", "2"]);
    cluster.add("n4", &["--dram", "16MiB"]);
    block_on(async {
        let (model, refusal) = fill_all(&cluster).await;
        assert!(matches!(refusal, Refusal::ReserveKept { departures: 2, .. }), "{refusal}");
        leave_without_a_loss(&mut cluster, &model, &["n0", "n3"]).await;
    });
}

#[test]
fn large_node_among_small_ones_finds_room_for_what_it_holds() {
    let nodes = [("n0", "16MiB"), ("n1", "16MiB"), ("n2", "16MiB"), ("large", "64MiB")];
    let mut cluster = fleet(&nodes, &[]);
    cluster.add("n4", &["--dram", "16MiB"]);
    block_on(async {
        let (model, _) = fill_all(&cluster).await;
        assert!(model.bytes() < 60 << 20, "the small ones hold no more than that");
        leave_without_a_loss(&mut cluster, &model, &["large"]).await;
    });
}

#[test]
fn disks_are_room_for_what_leaves_memory_and_the_other_way_round() {
    let mut cluster = fleet(&[("n0", "24MiB"), ("n1", "24MiB")], &[]);
    for name in ["n2", "n3"] {
        let directory = cluster.path(&format!("disk-{name}"));
        std::fs::create_dir(&directory).expect("made");
        let directory = directory.to_str().expect("a name in UTF-8").to_owned();
        cluster.add(name, &["--dram", "8MiB", "--disk", "32MiB", "--disk-dir", &directory]);
    }
    block_on(async {
        let (model, _) = fill_all(&cluster).await;
        // 128 MiB, less the largest node and a block of each tier that is left.
        assert!(model.bytes() > 70 << 20, "too little was stored: {}", model.bytes());
        leave_without_a_loss(&mut cluster, &model, &["n3"]).await;
    });
}

/// Returns the events about the reserve, in the order in which they happened.
async fn reserve_events(client: &Client) -> Vec<EventKind> {
    let events = client.events(0, 1000, Millis(0)).await.expect("the namenode answers");
    let kinds = events.into_iter().map(|event| event.kind);
    let is_about_reserve = |kind: &EventKind| {
        matches!(kind, EventKind::ReserveShort { .. } | EventKind::ReserveRestored { .. })
    };
    kinds.filter(is_about_reserve).collect()
}

#[test]
fn death_that_uses_up_the_reserve_and_its_return_are_reported_before_the_next_death() {
    let nodes = [("n0", "16MiB"), ("n1", "16MiB"), ("n2", "16MiB")];
    let mut cluster = fleet(&nodes, &["--no-rebalance"]);
    block_on(async {
        let client = cluster.client().await;
        // Nearly all that may be stored is on three of four nodes: the fourth dies with little.
        let mut model = Model::default();
        while model.put_some(&client, 1 << 20).await {}
        cluster.add("n3", &["--dram", "16MiB"]);
        until_node(&client, "n3", "there", |node| node.policy == Policy::Active).await;
        assert_eq!(reserve_events(&client).await, []);
        while model.put_some(&client, 1 << 20).await {}
        let held = until_node(&client, "n3", "in use", |node| node.home_bytes > 0).await;
        cluster.datanode("n3").kill();
        until_gone(&client, "n3").await;
        let short = reserve_events(&client).await;
        let [EventKind::ReserveShort { departures: 1, missing_bytes }] = short[..] else {
            panic!("{short:?}");
        };
        let now = room(&client).await;
        assert_eq!(missing_bytes, now.missing_bytes, "{now:?}");
        assert!(missing_bytes > 0 && missing_bytes <= (16 << 20), "{missing_bytes}, {held:?}");
        assert!(!now.fits() && now.room_bytes == 0, "{now:?}");
        let ran = cluster.cli(&["node", "ls"]);
        assert!(ran.stdout.contains("NO ROOM for"), "{ran}");
        let ran = cluster.cli(&["doctor", "--dram", "8MiB"]);
        assert!(ran.stdout.contains("would be lost"), "{ran}");
        let page = metrics(&cluster).await;
        assert!(page.contains("sanderling_namenode_departures_fit 0"), "{page}");
        // A machine that comes restores it.
        cluster.add("n4", &["--dram", "16MiB"]);
        let restored = |kinds: Vec<EventKind>| {
            matches!(kinds.last(), Some(EventKind::ReserveRestored { departures: 1, .. }))
        };
        let limit = Instant::now() + SOON;
        while !restored(reserve_events(&client).await) {
            assert!(Instant::now() < limit, "no event: {:?}", reserve_events(&client).await);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let page = metrics(&cluster).await;
        assert!(page.contains("sanderling_namenode_departures_fit 1"), "{page}");
    });
}

#[test]
fn class_that_waits_waits_for_the_reserve_and_zero_keeps_none() {
    let nodes = [("n0", "8MiB"), ("n1", "8MiB"), ("n2", "8MiB")];
    let cluster = fleet(&nodes, &[]);
    block_on(async {
        let client = cluster.client().await;
        let (_, refusal) = fill(client.clone(), 0).await;
        assert!(matches!(refusal, Refusal::ReserveKept { .. }), "{refusal}");
        let class = "dram:wait".parse().expect("a class");
        let options = PutOptions { class, ..PutOptions::default() };
        let waits = tokio::spawn({
            let client = client.clone();
            async move { client.put(&path("/later"), bytes_of(9, 3 << 20), &options).await }
        });
        let limit = Instant::now() + SOON;
        while !metrics(&cluster).await.contains("refusal=\"RetryAfter\"") {
            assert!(Instant::now() < limit, "it does not wait");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(!waits.is_finished(), "it was refused or stored");
        client.delete(&path("/full"), true).await.expect("deleted");
        waits.await.expect("no panic").expect("there is room by now");
    });
    let cluster = fleet(&nodes, &["--departures", "0"]);
    block_on(async {
        let client = cluster.client().await;
        let (stored, refusal) = fill(client.clone(), 0).await;
        assert!(matches!(refusal, Refusal::Full { .. }), "{refusal}");
        let bytes: usize = stored.iter().map(|(_, _, bytes)| bytes).sum();
        assert!(bytes > 20 << 20, "it could hold more than {bytes}");
        let ran = cluster.cli(&["doctor", "--dram", "8MiB"]);
        assert!(ran.stdout.contains("--departures 0 keeps no room"), "{ran}");
    });
}
