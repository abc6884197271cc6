//! Bytes that only a store has are read back, and hold up nothing else meanwhile.

use std::fs;
use std::path::{Path as LocalPath, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use sanderling_client::{Client, ClientError};
use sanderling_protocol::frame::decode_body;
use sanderling_protocol::message::DurableRequest;
use sanderling_protocol::{Header, Op, Order, Request};

use crate::cluster::relay::{RELAY_HOST, Relay};
use crate::cluster::stores::{add, add_with, files, fleet, make, put};
use crate::cluster::tasks::library;
use crate::cluster::{
    Cluster, SOON, Server, Shape, block_on, bytes_of, path, run, sanderling, spawn_with, until,
    until_gone,
};

fn adopted(cluster: &Cluster, directory: &str, store: &str) {
    until("a datanode reports its store", SOON, || {
        let made = cluster.cli(&["fs", "mkdir", directory, "--durable", store, "--adopt"]);
        assert!(made.code == 0 || made.stderr.contains("no datanode has a store"), "{made}");
        (made.code == 0).then_some(())
    });
}

fn filled(store: &LocalPath, objects: u64, bytes: usize) {
    fs::create_dir(store).expect("made");
    for number in 0..objects {
        let bytes = bytes_of(number, bytes);
        fs::write(store.join(number.to_string()), bytes).expect("written");
    }
}

pub(super) fn is_read(cluster: &Cluster, name: &str, seed: u64, bytes: usize) {
    let at = &cluster.namenode.address;
    let read =
        sanderling().args(["fs", "cat", name, "--timeout", "60s", "--namenode", at]).output();
    let read = read.expect("it runs");
    assert!(read.status.success(), "{name}: {}", String::from_utf8_lossy(&read.stderr));
    assert!(read.stdout == bytes_of(seed, bytes), "{name} has other bytes");
}

/// More readers wait for it than a manager gets losses at once.
#[test]
fn store_that_is_away_holds_up_no_reader_of_another_one() {
    let mut cluster = Cluster::start(Shape { datanodes: 0, ..Shape::default() });
    let (away, there) = (cluster.path("away"), cluster.path("there"));
    filled(&away, 20, 100);
    filled(&there, 3, 100);
    let of = |name: &str, store: &LocalPath| format!("{name}=file://{}", store.display());
    let (first, second) = (of("away", &away), of("there", &there));
    cluster.add("d0", &["--durable", &first, "--durable", &second]);
    adopted(&cluster, "/away", "away");
    adopted(&cluster, "/there", "there");
    fs::rename(&away, away.with_extension("gone")).expect("away");
    let readers: Vec<_> = (0..20)
        .map(|number| {
            let name = format!("/away/{number}");
            let mut command = sanderling();
            command.args(["fs", "cat", &name, "--timeout", "3s"]);
            command.args(["--namenode", &cluster.namenode.address]);
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs")
        })
        .collect();
    for mut reader in readers {
        let status = reader.wait().expect("waited for");
        assert!(!status.success(), "its store is away");
    }
    is_read(&cluster, "/there/0", 0, 100);
    fs::rename(away.with_extension("gone"), &away).expect("back");
    is_read(&cluster, "/away/7", 7, 100);
}

/// A fleet that had so many objects of so many bytes in a store, and was lost.
fn lost_fleet(objects: u64, bytes: usize) -> (Cluster, PathBuf) {
    let (mut cluster, store) = fleet(3);
    make(&cluster, "/out");
    block_on(async {
        let client = cluster.client().await;
        for number in 0..objects {
            put(&client, &format!("/out/{number}"), number, bytes).await;
        }
    });
    let synced = cluster.cli(&["fs", "sync", "/out", "--timeout", "60s"]);
    assert_eq!(synced.code, 0, "{synced}");
    cluster.datanodes.clear();
    until("all of them are lost", SOON, || (here(&cluster) == 0).then_some(()));
    (cluster, store)
}

/// Returns how many objects of the directory a node has, whole.
fn here(cluster: &Cluster) -> usize {
    let listed = cluster.json(&["fs", "ls", "-l", "/out"]);
    let entries = listed["entries"].as_array().cloned().unwrap_or_default();
    entries.iter().filter(|it| it["durability"] == "durable").count()
}

/// The nodes of a fleet that was lost had more than one node has room for. What no reader waits for
/// leaves room to what readers do, and to writers.
#[test]
fn smaller_fleet_leaves_a_quarter_of_its_room_to_readers_and_writers() {
    const BYTES: usize = 4 << 20;
    const OBJECTS: u64 = 30;
    /// In three quarters of the 64 MiB.
    const MOST: usize = 12;
    let (mut cluster, store) = lost_fleet(OBJECTS, BYTES);
    add(&mut cluster, "next", &store);
    until("others are read back", SOON, || (here(&cluster) >= MOST - 2).then_some(()));
    // In this time the manager looks many times for more to read back.
    for _ in 0..10 {
        let here = here(&cluster);
        assert!(here <= MOST, "{here} objects are read back without a reader");
        std::thread::sleep(Duration::from_millis(100));
    }
    block_on(async { put(&cluster.client().await, "/written", OBJECTS, BYTES).await });
    for number in [OBJECTS - 1, OBJECTS - 2] {
        is_read(&cluster, &format!("/out/{number}"), number, BYTES);
    }
    let written = cluster.cli(&["fs", "stat", "/out"]);
    assert!(written.code == 0 && !written.stdout.contains("stalled"), "{written}");
}

/// There is room for all of them, and the store takes long for each.
#[test]
fn object_that_a_reader_waits_for_is_read_back_before_others_that_were_lost() {
    const OBJECTS: u64 = 100;
    let (mut cluster, store) = lost_fleet(OBJECTS, ONE_BLOCK);
    let Some(library) = library(&cluster.path(""), include_str!("slow_store.c")) else {
        return eprintln!("SKIPPED: no C compiler makes the store that is slow");
    };
    let (namenode, place) =
        (cluster.namenode.address.clone(), format!("archive=file://{}", store.display()));
    let words = ["datanode", "--namenode", &namenode, "--name", "next", "--dram", "64MiB"];
    let words = [&words[..], &["--durable", &place]].concat();
    let variables = [
        ("LD_PRELOAD", library.as_path()),
        ("SLOW_BELOW", store.as_path()),
        ("SLOW_MILLIS", LocalPath::new("300")),
    ];
    let next = spawn_with(&cluster.path(""), "next", &words, &variables).serves();
    cluster.datanodes.push(next);
    until("the first ones are read back", SOON, || (here(&cluster) > 0).then_some(()));
    // A node reads two at once: the last one of all would take a quarter of a minute.
    is_read(&cluster, &format!("/out/{}", OBJECTS - 1), OBJECTS - 1, ONE_BLOCK);
    let here = here(&cluster);
    assert!(here < 70, "{here} objects are read back before the one that has a reader");
}

/// What is read of it would take the room of all others again and again.
#[test]
fn object_that_is_larger_than_the_memory_stops_no_writer() {
    const MIB: usize = 1 << 20;
    let mut cluster = Cluster::start(Shape { datanodes: 0, ..Shape::default() });
    let store = cluster.path("store");
    filled(&store, 1, 200 * MIB);
    for name in ["d0", "d1"] {
        add(&mut cluster, name, &store);
    }
    adopted(&cluster, "/large", "archive");
    let words = ["fs", "cat", "/large/0", "--timeout", "5s"];
    let read = run(sanderling().args(words).args(["--namenode", &cluster.namenode.address]));
    assert_ne!(read.code, 0, "it does not fit");
    block_on(async {
        let client = cluster.client().await;
        for number in 0..12 {
            put(&client, &format!("/small/{number}"), number, 3 * MIB).await;
        }
    });
}

/// Their numbers are lower than that of the node that stays.
#[test]
fn nodes_that_are_drained_get_nothing_that_is_read_back() {
    let mut cluster = Cluster::start(Shape { datanodes: 0, ..Shape::default() });
    let store = cluster.path("store");
    fs::create_dir(&store).expect("made");
    for name in ["a", "b", "stays"] {
        add(&mut cluster, name, &store);
    }
    cluster.add("dies", &[]);
    make(&cluster, "/out");
    block_on(async {
        let client = cluster.client().await;
        for number in 0..8 {
            put(&client, &format!("/out/{number}"), number, 300_000).await;
        }
        assert_eq!(client.wait_durable(&path("/out"), SOON).await.expect("durable"), None);
    });
    for name in ["a", "b"] {
        let noticed = cluster.cli(&["node", "notice", name, "--deadline", "200s", "--yes"]);
        assert_eq!(noticed.code, 0, "{noticed}");
    }
    cluster.datanodes.pop().expect("the last one").kill();
    (0..8).for_each(|number| is_read(&cluster, &format!("/out/{number}"), number, 300_000));
}

/// The store takes nothing meanwhile, so it has the bytes by the old names alone.
#[test]
fn renamed_objects_whose_machine_dies_are_read_back_by_their_old_names() {
    let mut cluster = Cluster::start(Shape { datanodes: 0, ..Shape::default() });
    let store = cluster.path("store");
    fs::create_dir(&store).expect("made");
    add(&mut cluster, "stays", &store);
    cluster.add("dies", &[]);
    make(&cluster, "/out");
    let uploads = store.join(".sanderling").join("uploads");
    block_on(async {
        let client = cluster.client().await;
        for number in 0..8 {
            put(&client, &format!("/out/draft/{number}"), number, 300_000).await;
        }
        put(&client, "/out/one", 8, 300_000).await;
        assert_eq!(client.wait_durable(&path("/out"), SOON).await.expect("durable"), None);
        fs::remove_dir_all(&uploads).expect("removed");
        fs::write(&uploads, "in the way").expect("written");
        client.rename(&path("/out/draft"), &path("/out/final"), false).await.expect("renamed");
        client.rename(&path("/out/one"), &path("/out/two"), false).await.expect("renamed");
    });
    cluster.datanode("dies").kill();
    cluster.restart_namenode();
    (0..8).for_each(|number| is_read(&cluster, &format!("/out/final/{number}"), number, 300_000));
    is_read(&cluster, "/out/two", 8, 300_000);
    assert!(files(&store).contains_key("one"), "the store takes nothing");
    fs::remove_file(&uploads).expect("removed");
    fs::create_dir(&uploads).expect("made");
    block_on(async {
        let client = cluster.client().await;
        assert_eq!(client.wait_durable(&path("/out"), SOON).await.expect("durable"), None);
    });
    let stored: Vec<String> = files(&store).into_keys().collect();
    let renamed = (0..8).map(|number| format!("final/{number}"));
    let renamed: Vec<String> = renamed.chain(["two".to_owned()]).collect();
    assert_eq!(stored, renamed);
    let fsck = cluster.json(&["fsck"]);
    assert_eq!(fsck["problems"].as_array().map(Vec::len), Some(0), "{fsck}");
}

/// Bytes of an object that has one block.
pub(super) const ONE_BLOCK: usize = 300_000;

/// A cluster with a store, and without what moves blocks by itself.
pub(super) fn still(flags: &[&str]) -> (Cluster, PathBuf) {
    let flags = [&["--no-rebalance", "--no-precopy"][..], flags].concat();
    let namenode = flags.iter().map(|flag| (*flag).to_owned()).collect();
    let cluster = Cluster::start(Shape { datanodes: 0, namenode, ..Shape::default() });
    let store = cluster.path("store");
    fs::create_dir(&store).expect("made");
    (cluster, store)
}

/// Puts objects of [`bytes_of`] 1 into `/out` until one has its block on a node, and returns its
/// name below it.
pub(super) async fn put_on(cluster: &Cluster, client: &Client, node: &str) -> String {
    for number in 0..64 {
        let name = format!("old-{number}");
        let object = format!("/out/{name}");
        put(client, &object, 1, ONE_BLOCK).await;
        let layout = client.layout(&path(&object), 0..u64::MAX).await.expect("it is there");
        let home = layout.blocks[0].home.expect("it has one");
        if cluster.name_of(home) == node {
            return name;
        }
    }
    panic!("none of 64 objects is on {node}");
}

/// Chooses orders to read an object back: returns its name in the store.
fn order_to_read_back(header: &Header, body: &[u8]) -> Option<String> {
    if header.op != Op::Order {
        return None;
    }
    match decode_body(body) {
        Ok(Order::Restore(loss)) => Some(loss.key),
        _ => None,
    }
}

/// The upload by the new name is complete before the node dies, so only the reading by the old
/// name holds up its removal.
#[test]
fn old_name_stays_in_the_store_until_what_is_read_by_it_is_here() {
    let (mut cluster, store) = still(&[]);
    block_on(async {
        let mut relays = Vec::new();
        for name in ["d0", "d1"] {
            let relay = Relay::before_advertised(order_to_read_back).await;
            let flags = ["--listen", &relay.server, "--advertise", RELAY_HOST];
            add_with(&mut cluster, name, &store, &flags);
            relays.push(relay);
        }
        cluster.add("dies", &[]);
        make(&cluster, "/out");
        let client = cluster.client().await;
        let old = put_on(&cluster, &client, "dies").await;
        assert_eq!(client.wait_durable(&path("/out"), SOON).await.expect("durable"), None);
        // Its place is taken, so nothing that comes after it becomes visible.
        let taken = store.join("first");
        fs::create_dir_all(taken.join("below")).expect("made");
        put(&client, "/out/first", 2, 100).await;
        let from = path(&format!("/out/{old}"));
        client.rename(&from, &path("/out/new"), false).await.expect("renamed");
        until("its bytes are uploaded again", SOON, || {
            let uploads = fs::read_dir(store.join(".sanderling/uploads")).expect("there");
            let found = uploads.filter_map(|it| it.and_then(|it| it.metadata()).ok());
            found.map(|it| it.len()).find(|bytes| *bytes == ONE_BLOCK as u64)
        });
        relays.iter().for_each(Relay::close);
        cluster.datanode("dies").kill();
        let read = tokio::select! {
            read = relays[0].held() => read,
            read = relays[1].held() => read,
        };
        assert_eq!(read, old);
        fs::rename(&taken, cluster.path("elsewhere")).expect("moved");
        until("the store has the new name", SOON, || store.join("new").is_file().then_some(()));
        put(&client, "/out/after", 3, 100).await;
        until_waiting(&client, 2).await;
        // In this time the manager reads the queue twenty times.
        for _ in 0..20 {
            assert_eq!(waiting(&client).await, 2);
            assert!(store.join(&old).is_file(), "it is being read back by this name");
            assert!(!store.join("after").exists(), "it came after the removal");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        relays.iter().for_each(Relay::open);
        let read = client.get(&path("/out/new")).await.expect("it is read back");
        assert!(read == bytes_of(1, ONE_BLOCK), "it has other bytes");
        assert_eq!(client.wait_durable(&path("/out"), SOON).await.expect("durable"), None);
        let stored = files(&store);
        assert!(!stored.contains_key(&old) && stored.contains_key("after"), "{old} is there");
        assert!(stored["new"] == bytes_of(1, ONE_BLOCK), "the store has other bytes");
        let fsck = client.fsck().await.expect("answered");
        assert!(fsck.problems.is_empty() && fsck.lost_blocks == 0, "{fsck:?}");
    });
}

/// Returns how many changes of `/out` wait for their store.
pub(super) async fn waiting(client: &Client) -> u64 {
    let found = client.durability(&path("/out")).await.expect("answered");
    found.expect("it is durable").backlog_changes
}

async fn until_waiting(client: &Client, changes: u64) {
    let limit = std::time::Instant::now() + SOON;
    while waiting(client).await > changes {
        assert!(std::time::Instant::now() < limit, "more than {changes} changes wait");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Chooses reports that a store has changes.
fn report_of_changes(header: &Header, body: &[u8]) -> Option<String> {
    if header.op != Op::Meta {
        return None;
    }
    let requests: Vec<Request> = decode_body(body).ok()?;
    let is_report = |request: &Request| match request {
        Request::Durable(request) => match &**request {
            DurableRequest::Progress { progress, .. } => !progress.done.is_empty(),
            DurableRequest::Record { record, .. } => !record.made.is_empty(),
            _ => false,
        },
        _ => false,
    };
    requests.iter().any(is_report).then(|| "a report of changes".to_owned())
}

/// Starts a manager that reaches the namenode at an address.
pub(super) fn manager(cluster: &Cluster, name: &str, namenode: &str) -> Server {
    let words = ["manager", "--namenode", namenode, "--name", name];
    cluster.serve(name, &[&words[..], &["--no-rebalance", "--no-precopy"]].concat())
}

/// Renames an object on the node `dies` to `/out/new`. The manager ends when the store has the new
/// name alone, and before it reports that. Returns the old name.
pub(super) async fn renamed_without_report(
    cluster: &mut Cluster,
    store: &LocalPath,
) -> (Client, String) {
    let relay = Relay::before(&cluster.namenode.address, report_of_changes).await;
    let mut first = manager(cluster, "first", &relay.address);
    add(cluster, "stays", store);
    cluster.add("dies", &[]);
    make(cluster, "/out");
    let client = cluster.client().await;
    let old = put_on(cluster, &client, "dies").await;
    assert_eq!(client.wait_durable(&path("/out"), SOON).await.expect("durable"), None);
    relay.close();
    let from = path(&format!("/out/{old}"));
    client.rename(&from, &path("/out/new"), false).await.expect("renamed");
    relay.held().await;
    until("the store has the new name alone", SOON, || {
        (store.join("new").is_file() && !store.join(&old).exists()).then_some(())
    });
    first.kill();
    (client, old)
}

/// The namenode has only the old name, by which the store has nothing.
#[test]
fn object_is_read_back_by_its_new_name_when_the_manager_ends_before_its_report() {
    let (mut cluster, store) = still(&["--no-manager"]);
    block_on(async {
        let (client, _) = renamed_without_report(&mut cluster, &store).await;
        assert_eq!(waiting(&client).await, 2, "the namenode has the report");
        cluster.datanode("dies").kill();
        until_gone(&client, "dies").await;
        let _second = manager(&cluster, "second", &cluster.namenode.address);
        is_read(&cluster, "/out/new", 1, ONE_BLOCK);
        let fsck = client.fsck().await.expect("answered");
        assert!(fsck.problems.is_empty() && fsck.lost_blocks == 0, "{fsck:?}");
    });
}

/// The store has another object of the same length by the new name, and the old name is gone.
#[test]
fn object_is_not_read_back_from_what_it_replaced() {
    let (mut cluster, store) = still(&[]);
    add(&mut cluster, "stays", &store);
    cluster.add("dies", &[]);
    make(&cluster, "/out");
    block_on(async {
        // A node alone looks for an object twice before it is lost.
        let client = cluster.client().await.with_deadline(SOON);
        let old = put_on(&cluster, &client, "dies").await;
        put(&client, "/out/new", 2, ONE_BLOCK).await;
        assert_eq!(client.wait_durable(&path("/out"), SOON).await.expect("durable"), None);
        let uploads = store.join(".sanderling/uploads");
        fs::remove_dir_all(&uploads).expect("removed");
        fs::write(&uploads, "in the way").expect("written");
        let from = path(&format!("/out/{old}"));
        client.rename(&from, &path("/out/new"), true).await.expect("renamed");
        fs::remove_file(store.join(&old)).expect("it was there");
        cluster.datanode("dies").kill();
        let read = client.get(&path("/out/new")).await;
        let is_lost = matches!(read, Err(ClientError::DataUnavailable { .. }));
        assert!(is_lost, "{:?}", read.map(|bytes| bytes == bytes_of(2, ONE_BLOCK)));
        assert!(files(&store)["new"] == bytes_of(2, ONE_BLOCK), "the store was changed");
    });
}
