//! A namenode that starts on an older catalog than its datanodes have seen, from a backup or from
//! an archive: what moved meanwhile is found, and nothing is dropped at first.

use std::fs;
use std::ops::Range;

use crate::cluster::guarded::text;
use crate::cluster::silent_writer::SilentWriter;
use crate::cluster::stubs::Stubs;
use crate::cluster::{
    Cluster, SOON, Server, Shape, block_on, bytes_of, path, run, sanderling, until_drained,
};
use sanderling_client::{Client, PutOptions};
use sanderling_protocol::message::CreateMode;
use sanderling_protocol::order::HeldBlock;
use sanderling_protocol::{Epoch, Event, EventKind, Instant, Millis, NodeInfo, Tier};

const BYTES: usize = 100_000;

/// How long a namenode keeps what its catalog does not have, as the documentation has it.
const KEPT: Millis = Millis(30_000);

/// A fleet of so many nodes in which only drains move blocks.
fn quiet(datanodes: usize) -> Shape {
    let namenode = ["--no-rebalance", "--no-precopy"].map(str::to_owned).to_vec();
    Shape { datanodes, namenode, ..Shape::default() }
}

async fn store(client: &Client, seeds: Range<u64>) {
    for seed in seeds {
        let to = path(&format!("/{seed}"));
        client.put(&to, bytes_of(seed, BYTES), &PutOptions::default()).await.expect("stored");
    }
}

async fn assert_stored(client: &Client, seeds: Range<u64>) {
    for seed in seeds {
        let read = client.get(&path(&format!("/{seed}"))).await;
        let read = read.unwrap_or_else(|error| panic!("/{seed}: {error}"));
        assert!(read == bytes_of(seed, BYTES), "/{seed} has other bytes");
    }
}

/// Takes a backup of the catalog as it is.
fn backup(cluster: &Cluster) -> String {
    let file = text(cluster.path("catalog.backup"));
    let http = cluster.namenode.http_address.clone();
    let taken = cluster.cli(&["namenode", "backup", "--to", &file, "--http", &http]);
    assert_eq!(taken.code, 0, "{taken}");
    file
}

/// Loses the namenode with its directory, and starts one on the backup.
fn start_on(cluster: &mut Cluster, file: &str) {
    cluster.namenode.kill();
    fs::rename(cluster.path("catalog"), cluster.path("lost")).expect("renamed");
    let catalog = text(cluster.path("catalog"));
    let words = ["namenode", "restore", "--from", file, "--dir", &catalog];
    let restored = run(sanderling().args(words));
    assert_eq!(restored.code, 0, "{restored}");
    cluster.start_namenode(&[]);
}

/// Returns the name of the node that holds most blocks.
async fn fullest(client: &Client) -> String {
    let nodes = client.nodes(false).await.expect("the namenode answers");
    nodes.into_iter().max_by_key(|node| node.blocks).expect("there are nodes").name
}

/// Drains a node, and ends its machine.
async fn take(cluster: &mut Cluster, client: &Client, name: &str) {
    tokio::task::block_in_place(|| {
        let drained = cluster.cli(&["node", "decommission", name, "--yes"]);
        assert_eq!(drained.code, 0, "{drained}");
    });
    until_drained(client, name).await;
    cluster.datanode(name).kill();
}

/// Stores objects, takes a backup, and then drains the fullest node. Returns the backup and the
/// name of the node.
async fn taken_after_a_backup(cluster: &mut Cluster, client: &Client) -> (String, String) {
    store(client, 0..20).await;
    let file = tokio::task::block_in_place(|| backup(cluster));
    let name = fullest(client).await;
    take(cluster, client, &name).await;
    (file, name)
}

/// Waits until so many blocks have been given up that the catalog does not have; returns when the
/// first were, by the time since the namenode's last start.
async fn until_orphaned(client: &Client, count: u64) -> Millis {
    let limit = std::time::Instant::now() + SOON + SOON;
    loop {
        let events = client.events(0, 10_000, Millis(0)).await.expect("the namenode answers");
        let orphaned = events.iter().filter_map(|event| match event.kind {
            EventKind::BlocksOrphaned { blocks, .. } => Some((event.at, blocks)),
            _ => None,
        });
        let orphaned: Vec<(Instant, u64)> = orphaned.collect();
        if orphaned.iter().map(|(_, blocks)| blocks).sum::<u64>() == count {
            return started_at(&events).until(orphaned[0].0);
        }
        assert!(std::time::Instant::now() < limit, "not {count} blocks: {orphaned:?}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

fn started_at(events: &[Event]) -> Instant {
    let is_start = |event: &&Event| matches!(event.kind, EventKind::NamenodeStarted { .. });
    events.iter().rfind(is_start).expect("it has started").at
}

#[test]
fn blocks_that_moved_after_the_backup_are_read_and_what_it_lacks_is_kept_at_first() {
    let mut cluster = Cluster::of(3);
    block_on(async {
        let client = cluster.client().await;
        let (file, _) = taken_after_a_backup(&mut cluster, &client).await;
        store(&client, 100..110).await;
        tokio::task::block_in_place(|| start_on(&mut cluster, &file));
        // At once: the catalog still has the blocks on the machine that is gone.
        let client = cluster.client().await;
        assert_stored(&client, 0..20).await;
        let report = client.report().await.expect("the namenode answers");
        assert_eq!((report.blocks, report.bytes), (0, 0), "{report:?}");
        let after = until_orphaned(&client, 10).await;
        assert!(after >= KEPT, "{after:?} after the start");
        let report = client.report().await.expect("the namenode answers");
        assert_eq!((report.blocks, report.bytes), (10, 10 * BYTES as u64), "{report:?}");
        assert_stored(&client, 0..20).await;
        assert_eq!(client.fsck().await.expect("answered").problems.len(), 0);
    });
}

/// The fleet of an elastic cluster: by the time of the restore, none of the machines of the backup
/// is left.
#[test]
fn blocks_on_a_node_that_joined_after_the_backup_are_read_there() {
    let mut cluster = Cluster::of(2);
    block_on(async {
        let client = cluster.client().await;
        store(&client, 0..20).await;
        let file = tokio::task::block_in_place(|| backup(&cluster));
        tokio::task::block_in_place(|| {
            cluster.add("late", &[]);
        });
        for name in ["n0", "n1"] {
            take(&mut cluster, &client, name).await;
        }
        tokio::task::block_in_place(|| start_on(&mut cluster, &file));
        let client = cluster.client().await;
        assert_stored(&client, 0..20).await;
        let report = client.report().await.expect("the namenode answers");
        assert_eq!((report.blocks, report.bytes), (0, 0), "{report:?}");
        // It goes on as any other node.
        store(&client, 20..30).await;
        assert_stored(&client, 0..30).await;
        assert_eq!(client.fsck().await.expect("answered").problems.len(), 0);
    });
}

/// Drains a node, and lets it take blocks again.
async fn emptied(cluster: &Cluster, client: &Client, name: &str) {
    tokio::task::block_in_place(|| {
        cluster.json(&["node", "decommission", name, "--yes"]);
    });
    until_drained(client, name).await;
    tokio::task::block_in_place(|| cluster.json(&["node", "cancel", name]));
}

/// Reads everything, drains the node that has some of it, ends its machine and reads again.
async fn assert_saved(cluster: &mut Cluster, client: &Client, name: &str) {
    assert_stored(client, 0..20).await;
    until_drained(client, name).await;
    cluster.datanode(name).kill();
    assert_stored(client, 0..20).await;
    let report = client.report().await.expect("the namenode answers");
    assert_eq!((report.blocks, report.bytes), (0, 0), "{report:?}");
    assert_eq!(client.fsck().await.expect("answered").problems.len(), 0);
}

#[test]
fn blocks_that_moved_after_the_backup_to_a_node_that_it_has_as_drained_are_saved() {
    let mut cluster = Cluster::start(quiet(3));
    block_on(async {
        let client = cluster.client().await;
        store(&client, 0..20).await;
        tokio::task::block_in_place(|| {
            cluster.json(&["node", "decommission", "n0", "--yes"]);
        });
        until_drained(&client, "n0").await;
        let file = tokio::task::block_in_place(|| backup(&cluster));
        tokio::task::block_in_place(|| cluster.json(&["node", "cancel", "n0"]));
        emptied(&cluster, &client, "n1").await;
        tokio::task::block_in_place(|| start_on(&mut cluster, &file));
        let client = cluster.client().await;
        assert_saved(&mut cluster, &client, "n0").await;
    });
}

#[test]
fn blocks_on_a_node_that_joined_after_the_backup_and_has_its_notice_are_saved() {
    let mut cluster = Cluster::start(quiet(2));
    let notice = cluster.path("notice");
    block_on(async {
        let client = cluster.client().await;
        store(&client, 0..20).await;
        let file = tokio::task::block_in_place(|| backup(&cluster));
        let source = format!("file:{}", notice.display());
        tokio::task::block_in_place(|| {
            cluster.add("late", &["--notice-source", &source]);
        });
        emptied(&cluster, &client, "n0").await;
        let shown = r#"{"deadline_seconds": 200, "reason": "spot"}"#;
        fs::write(notice.with_extension("next"), shown).expect("written");
        cluster.namenode.kill();
        fs::rename(notice.with_extension("next"), &notice).expect("shown");
        tokio::task::block_in_place(|| start_on(&mut cluster, &file));
        let client = cluster.client().await;
        assert_saved(&mut cluster, &client, "late").await;
    });
}

/// The second start forgets nothing of what nodes have shown to the first, although its log has no
/// word of the old home that lacks the bytes.
#[test]
fn blocks_that_moved_after_the_backup_are_saved_after_a_second_start_too() {
    let mut cluster = Cluster::start(quiet(2));
    block_on(async {
        let client = cluster.client().await;
        store(&client, 0..20).await;
        let file = tokio::task::block_in_place(|| backup(&cluster));
        emptied(&cluster, &client, "n0").await;
        tokio::task::block_in_place(|| start_on(&mut cluster, &file));
        let client = cluster.client().await;
        let limit = std::time::Instant::now() + SOON;
        loop {
            let nodes = client.nodes(false).await.expect("the namenode answers");
            let shows = |it: &NodeInfo| it.tiers.iter().any(|tier| tier.copy_bytes > 0);
            if nodes.iter().any(shows) {
                break;
            }
            assert!(std::time::Instant::now() < limit, "no node has shown copies: {nodes:?}");
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        cluster.namenode.kill();
        tokio::task::block_in_place(|| cluster.start_namenode(&[]));
        let client = cluster.client().await;
        tokio::task::block_in_place(|| {
            cluster.json(&["node", "decommission", "n1", "--yes"]);
        });
        assert_saved(&mut cluster, &client, "n1").await;
    });
}

/// Starts a datanode in the place of one that was drained, and a namenode on a catalog that still
/// has the one of before. The new one registers before any other node has reported what it holds.
fn replaced_under_an_older_catalog(address: impl FnOnce(&mut Cluster, &str) -> String) {
    let mut cluster = Cluster::of(3);
    block_on(async {
        let client = cluster.client().await;
        let (file, name) = taken_after_a_backup(&mut cluster, &client).await;
        let before = cluster.datanode(&name).node;
        let address = address(&mut cluster, &name);
        tokio::task::block_in_place(|| {
            cluster.add(&name, &["--listen", &address]);
        });
        let others = |cluster: &Cluster, act: fn(&Server)| {
            cluster.datanodes.iter().filter(|it| it.name != name).for_each(act);
        };
        others(&cluster, Server::pause);
        tokio::task::block_in_place(|| start_on(&mut cluster, &file));
        let client = cluster.client().await;
        let limit = std::time::Instant::now() + SOON;
        loop {
            let nodes = client.nodes(false).await.expect("the namenode answers");
            if nodes.iter().any(|it| it.name == name && it.id.0 != before) {
                break;
            }
            assert!(std::time::Instant::now() < limit, "it did not register: {nodes:?}");
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        others(&cluster, Server::resume);
        assert_stored(&client, 0..20).await;
        until_only(&client, &name, before).await;
        let events = client.events(0, 10_000, Millis(0)).await.expect("the namenode answers");
        let is_it = |event: &&Event| matches!(event.kind, EventKind::NodeGone { .. });
        let EventKind::NodeGone { node, why, .. } =
            &events.iter().rfind(is_it).expect("one is gone").kind
        else {
            unreachable!("it was found by its kind");
        };
        assert_eq!((node.0, &**why), (before, "its process has ended"));
        let report = client.report().await.expect("the namenode answers");
        assert_eq!((report.blocks, report.bytes), (0, 0), "{report:?}");
        store(&client, 20..30).await;
        assert_stored(&client, 0..30).await;
        assert_eq!(client.fsck().await.expect("answered").problems.len(), 0);
    });
}

/// Waits until the node of before is gone and another one has its name.
async fn until_only(client: &Client, name: &str, before: u32) {
    let limit = std::time::Instant::now() + SOON;
    loop {
        let nodes = client.nodes(false).await.expect("the namenode answers");
        let ids: Vec<u32> = nodes.iter().filter(|it| it.name == name).map(|it| it.id.0).collect();
        if !ids.contains(&before) && ids.len() == 1 {
            return;
        }
        assert!(std::time::Instant::now() < limit, "{nodes:?}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[test]
fn blocks_of_a_node_whose_address_another_has_taken_are_read_where_they_moved() {
    replaced_under_an_older_catalog(|cluster, name| cluster.datanode(name).address.clone());
}

/// As in Kubernetes, where a pod that is made again keeps its name and gets another address.
#[test]
fn blocks_of_a_node_whose_name_another_has_taken_are_read_where_they_moved() {
    replaced_under_an_older_catalog(|_, _| "127.0.0.1:0".to_owned());
}

/// Reports a block until the namenode lets the node drop it.
async fn until_dropped(stubs: &Stubs, held: HeldBlock) {
    let limit = std::time::Instant::now() + SOON + SOON;
    while !stubs.report(vec![held]).await.contains(&held.block) {
        assert!(std::time::Instant::now() < limit, "it is still to be kept");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// The answer is lost with the namenode: the node still has the block at the next start.
#[test]
fn what_was_counted_as_lost_before_the_next_start_has_no_more_time_and_is_counted_once() {
    let mut cluster = Cluster::of(1);
    block_on(async {
        let client = cluster.client().await;
        let file = tokio::task::block_in_place(|| backup(&cluster));
        store(&client, 0..1).await;
        let layout = client.layout(&path("/0"), 0..BYTES as u64).await.expect("it is there");
        let (block, length) = (layout.blocks[0].block, BYTES as u32);
        let held = HeldBlock { block, epoch: Epoch(1), length, tier: Tier::Dram };
        cluster.datanode("n0").kill();
        tokio::task::block_in_place(|| start_on(&mut cluster, &file));
        let stubs = Stubs::register(&cluster.namenode.address, 1).await;
        assert_eq!(stubs.report(vec![held]).await, [], "it is kept at first");
        tokio::select! {
            () = stubs.live() => {}
            () = until_dropped(&stubs, held) => {}
        }
        cluster.namenode.kill();
        tokio::task::block_in_place(|| cluster.start_namenode(&[]));
        let stubs = Stubs::register(&cluster.namenode.address, 1).await;
        assert_eq!(stubs.report(vec![held]).await, [block]);
        let client = cluster.client().await;
        let report = client.report().await.expect("the namenode answers");
        assert_eq!((report.blocks, report.bytes), (1, BYTES as u64), "{report:?}");
    });
}

/// How long an end has been shown when a datanode trims a block to it, as the documentation has it.
const TRIMMED_AFTER: std::time::Duration = std::time::Duration::from_secs(3);

/// Waits until the datanode has looked up what counts of all blocks: it trims a block with more
/// bytes than were granted.
async fn until_looked_up(cluster: &Cluster, client: &Client, name: &str) {
    let datanode = &cluster.datanodes[0].address;
    let writer = SilentWriter::create(datanode, client, name, 1).await;
    writer.write(0, &bytes_of(1, BYTES)).await;
    writer.until_trimmed(1).await;
}

/// Ends the namenode, and starts one on the directory of before [`start_on`].
fn take_back(cluster: &mut Cluster) {
    cluster.namenode.kill();
    fs::rename(cluster.path("catalog"), cluster.path("wrong")).expect("renamed");
    fs::rename(cluster.path("lost"), cluster.path("catalog")).expect("renamed");
    cluster.start_namenode(&[]);
}

/// Waits until the lease of a file's writer has ended, and returns the length of the file.
async fn until_sealed(client: &Client, name: &str) -> u64 {
    let limit = std::time::Instant::now() + SOON;
    loop {
        let stat = client.stat(&path(name)).await.expect("it is in the backup");
        if stat.is_sealed {
            return stat.bytes;
        }
        assert!(std::time::Instant::now() < limit, "its writer's lease does not end");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// The operator notices in time that the namenode runs on a directory that has less. In there the
/// writer's lease has ended, and its file with it.
#[test]
fn bytes_that_were_published_after_the_backup_are_not_trimmed_at_first() {
    let mut cluster = Cluster::start(quiet(1));
    let all = bytes_of(7, 4 * BYTES);
    block_on(async {
        let client = cluster.client().await;
        let datanode = &cluster.datanodes[0].address;
        let writer = SilentWriter::create(datanode, &client, "/file", 1 << 20).await;
        writer.write(0, &all[..BYTES]).await;
        writer.publish(&client, BYTES).await;
        let file = tokio::task::block_in_place(|| backup(&cluster));
        writer.write(BYTES, &all[BYTES..]).await;
        writer.publish(&client, all.len()).await;
        tokio::task::block_in_place(|| start_on(&mut cluster, &file));
        let client = cluster.client().await;
        assert_eq!(until_sealed(&client, "/file").await, BYTES as u64);
        until_looked_up(&cluster, &client, "/first").await;
        // This is the fault: the wrong catalog is served for longer than an end must have been
        // shown.
        tokio::time::sleep(TRIMMED_AFTER).await;
        until_looked_up(&cluster, &client, "/second").await;
        tokio::task::block_in_place(|| take_back(&mut cluster));
        let client = cluster.client().await;
        writer.seal(&client, all.len()).await;
        let read = client.get(&path("/file")).await;
        assert!(read.expect("no byte is lost") == all, "other bytes");
        let report = client.report().await.expect("the namenode answers");
        assert_eq!(report.bytes, 0, "{report:?}");
    });
}

/// In the backup one of them has no name yet, and the other one no byte. What their writers' leases
/// leave there when they end would be dropped.
#[test]
fn files_that_were_sealed_after_the_backup_are_whole_when_the_start_is_taken_back() {
    let mut cluster = Cluster::start(quiet(1));
    let bytes = bytes_of(7, BYTES);
    block_on(async {
        let client = cluster.client().await;
        let datanode = &cluster.datanodes[0].address;
        let mut writers = Vec::new();
        for (name, mode) in [("/unnamed", CreateMode::Replace), ("/blank", CreateMode::New)] {
            let of = (name, mode);
            writers.push(SilentWriter::create_as(datanode, &client, of, BYTES).await);
        }
        let other = SilentWriter::create(datanode, &client, "/other", BYTES).await;
        other.write(0, &bytes[..5000]).await;
        other.publish(&client, 5000).await;
        let file = tokio::task::block_in_place(|| backup(&cluster));
        for writer in &writers {
            writer.write(0, &bytes).await;
            writer.seal(&client, BYTES).await;
        }
        tokio::task::block_in_place(|| start_on(&mut cluster, &file));
        let client = cluster.client().await;
        // The leases of all three are of the same time.
        assert_eq!(until_sealed(&client, "/other").await, 5000);
        // This is the fault: the wrong catalog is served until a datanode would have dropped them.
        tokio::time::sleep(TRIMMED_AFTER).await;
        tokio::task::block_in_place(|| take_back(&mut cluster));
        let client = cluster.client().await;
        for name in ["/unnamed", "/blank"] {
            let read = client.get(&path(name)).await;
            assert!(read.expect("no byte is lost") == bytes, "{name} has other bytes");
        }
        let report = client.report().await.expect("the namenode answers");
        assert_eq!(report.bytes, 0, "{report:?}");
    });
}

/// Nothing counts for the block in the older catalog, which does not have it.
#[test]
fn block_that_an_older_catalog_lacked_is_trimmed_when_the_start_is_taken_back() {
    let mut cluster = Cluster::start(quiet(1));
    let all = bytes_of(8, 4 * BYTES);
    block_on(async {
        let client = cluster.client().await;
        let file = tokio::task::block_in_place(|| backup(&cluster));
        let datanode = &cluster.datanodes[0].address;
        let writer = SilentWriter::create(datanode, &client, "/file", 1 << 20).await;
        writer.write(0, &all).await;
        writer.publish(&client, BYTES).await;
        tokio::task::block_in_place(|| start_on(&mut cluster, &file));
        let client = cluster.client().await;
        // The other block was looked up then, too.
        until_looked_up(&cluster, &client, "/first").await;
        cluster.namenode.kill();
        fs::rename(cluster.path("catalog"), cluster.path("wrong")).expect("renamed");
        fs::rename(cluster.path("lost"), cluster.path("catalog")).expect("renamed");
        tokio::task::block_in_place(|| cluster.start_namenode(&[]));
        let client = cluster.client().await;
        writer.seal(&client, BYTES).await;
        assert!(writer.is_held(BYTES).await, "it is trimmed too early");
        writer.until_trimmed(BYTES).await;
        let read = client.get(&path("/file")).await.expect("what counts is there");
        assert!(read == all[..BYTES], "other bytes");
    });
}
