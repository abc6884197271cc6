//! What a store has needs no copy and no move: at a notice the rest leaves first, and what does not
//! make it is read back. When the whole fleet has notices, the store alone can take the rest.

use std::fs;
use std::process::Stdio;

use serde_json::Value;

use crate::cluster::stores::{add, add_with, make, put};
use crate::cluster::tasks::TaskPlace;
use crate::cluster::{
    Cluster, Killed, SOON, Shape, block_on, bytes_of, path, run, until, until_gone, until_node,
};
use sanderling_protocol::Policy;
use sanderling_protocol::node::NodeSelector;

const MIB: u64 = 1 << 20;

/// Bytes of a task's state.
const STATE_BYTES: usize = 6 << 20;

/// The nodes of a fleet that are all taken.
const FLEET: [&str; 5] = ["d0", "d1", "d2", "d3", "d4"];

/// A task whose state is the file of its argument, which it writes at the first signal. At others
/// it does nothing, so its runner stores no second generation.
const SAVES_ONCE: &str = r#"
save() { cp "$0" "$SANDERLING_TASK_STATE/bytes" && touch "$SANDERLING_TASK_STATE/done"; }
trap '[ -n "$saved" ] || { save && saved=1; }' USR1
while :; do sleep 0.05; done
"#;

/// Bytes of the first test that no store has.
const VOLATILE: u64 = 3 * (256 << 10);

/// Returns the bytes that only one node has, as the namenode counts them.
fn exposed(cluster: &Cluster, name: &str) -> u64 {
    let nodes = cluster.json(&["node", "ls"]);
    let nodes = nodes["nodes"].as_array().expect("a list");
    let node = nodes.iter().find(|node| node["name"] == name).expect("it is listed");
    node["exposure_bytes"].as_u64().expect("a number")
}

#[test]
fn notice_too_short_for_all_bytes_moves_the_volatile_ones_and_loses_nothing() {
    let mut cluster = Cluster::start(Shape { datanodes: 0, ..Shape::default() });
    let store = cluster.path("store");
    fs::create_dir(&store).expect("made");
    // Its link takes more than two seconds longer for everything than the notice. What is volatile
    // needs a twentieth of the notice, so that a busy processor makes none of it late.
    add_with(&mut cluster, "slow", &store, &["--egress-limit", "2MiB/s"]);
    make(&cluster, "/out");
    block_on(async {
        let client = cluster.client().await;
        for number in 0..10 {
            put(&client, &format!("/out/{number}"), number, 2 << 20).await;
        }
        assert_eq!(client.wait_durable(&path("/out"), SOON).await.expect("durable"), None);
    });
    assert_eq!(exposed(&cluster, "slow"), 0, "what the store has counts as exposed");
    block_on(async {
        let client = cluster.client().await;
        for number in 0..3 {
            put(&client, &format!("/volatile/{number}"), 100 + number, 256 << 10).await;
        }
    });
    assert_eq!(exposed(&cluster, "slow"), VOLATILE);
    for name in ["n1", "n2"] {
        add(&mut cluster, name, &store);
    }
    let planned = cluster.json(&["node", "notice", "slow", "--deadline", "8s", "--dry-run"]);
    let forecast = &planned["forecast"];
    assert_eq!(forecast["late_bytes"], 0, "{planned}");
    assert_eq!(forecast["left_bytes"], VOLATILE, "{planned}");
    block_on(async {
        let client = cluster.client().await;
        let node = NodeSelector("slow".to_owned());
        client.notice(&node, 8_000, "test").await.expect("taken");
    });
    until("its deadline passes or it is empty", SOON, || {
        let nodes = cluster.json(&["node", "ls", "--all"]);
        let nodes = nodes["nodes"].as_array().expect("a list");
        let slow = nodes.iter().find(|node| node["name"] == "slow").expect("it is listed");
        let forecast = &slow["drain"]["forecast"];
        if !forecast.is_null() {
            assert_eq!(forecast["late_bytes"], 0, "{slow}");
            assert!(forecast["left_bytes"].as_u64().expect("a number") <= VOLATILE, "{slow}");
        }
        (slow["policy"] == "gone").then_some(())
    });
    cluster.datanode("slow").kill();
    block_on(async {
        let client = cluster.client().await;
        for number in 0..3 {
            let read =
                client.get(&path(&format!("/volatile/{number}"))).await.expect("it has left");
            assert!(
                read == bytes_of(100 + number, 256 << 10),
                "/volatile/{number} has other bytes"
            );
        }
        for number in 0..10 {
            let read = client.get(&path(&format!("/out/{number}"))).await.expect("it is read back");
            assert!(read == bytes_of(number, 2 << 20), "/out/{number} has other bytes");
        }
    });
    let fsck = cluster.json(&["fsck"]);
    assert_eq!(fsck["problems"].as_array().map(Vec::len), Some(0), "{fsck}");
    assert_eq!(fsck["lost_blocks"], 0, "{fsck}");
    assert_eq!(fsck["report"]["bytes"], 0, "{fsck}");
}

#[test]
fn decommissioned_node_is_emptied_of_what_the_store_has_too() {
    let mut cluster = Cluster::start(Shape { datanodes: 0, ..Shape::default() });
    let store = cluster.path("store");
    fs::create_dir(&store).expect("made");
    add(&mut cluster, "d0", &store);
    make(&cluster, "/out");
    block_on(async {
        let client = cluster.client().await;
        put(&client, "/out/one", 1, 3 << 20).await;
        put(&client, "/volatile", 2, 3 << 20).await;
        assert_eq!(client.wait_durable(&path("/out"), SOON).await.expect("durable"), None);
    });
    add(&mut cluster, "d1", &store);
    let words = ["node", "decommission", "d0", "--wait", "--yes"];
    let emptied = cluster.cli(&words);
    assert_eq!(emptied.code, 0, "{emptied}");
    // The store is away: nothing has to be read back.
    fs::rename(&store, cluster.path("away")).expect("moved");
    block_on(async {
        let client = cluster.client().await;
        let read = client.get(&path("/out/one")).await.expect("it was moved");
        assert!(read == bytes_of(1, 3 << 20));
    });
    // An object that is appended to is in no store as it is.
    assert_eq!(exposed(&cluster, "d1"), 3 * MIB);
    block_on(async {
        let client = cluster.client().await;
        let mut writer = client.append(&path("/out/one")).await.expect("open");
        writer.write(&bytes_of(3, 4096)).await.expect("written");
        writer.close().await.expect("sealed");
    });
    assert_eq!(exposed(&cluster, "d1"), 6 * MIB + 4096);
}

/// Runs a task whose state are the bytes of a seed until they are stored, and kills its runner,
/// which stores nothing more then. Returns the generation.
fn checkpoint(place: &TaskPlace, seed: u64) -> u64 {
    let (source, before) = (place.path("source"), place.newest());
    fs::write(&source, bytes_of(seed, STATE_BYTES)).expect("written");
    let log = place.path("runner.log");
    let mut command = place.task("run");
    command.args(["--driver", "hook", "--interval", "100ms", "--no-compression"]);
    command.args(["--lock-age", "10m", "--", "sh", "-c", SAVES_ONCE]).arg(&source);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(fs::File::create(&log).expect("a log"));
    let mut runner = Killed(command.spawn().expect("started"));
    until("its state is stored", SOON, || {
        let ended = runner.0.try_wait().expect("our own child");
        assert!(ended.is_none(), "{}", fs::read_to_string(&log).unwrap_or_default());
        Some(place.newest()).filter(|newest| *newest > before)
    })
}

/// Gives all nodes of the fleet notices of so many milliseconds, the next one as soon as bytes
/// leave the one before. None leave the last one: no node is left for them.
fn notice_one_after_another(cluster: &Cluster, millis: i64) {
    block_on(async {
        let client = cluster.client().await;
        for name in FLEET {
            let node = NodeSelector(name.to_owned());
            client.notice(&node, millis, "test").await.expect("taken");
            if name == FLEET[FLEET.len() - 1] {
                break;
            }
            until_node(&client, name, "left by bytes", |node| {
                let has_moved = node.drain.as_ref().is_some_and(|drain| drain.moved_bytes > 0);
                has_moved || node.policy == Policy::Drained
            })
            .await;
        }
    });
}

/// What the links and the store can carry until the deadlines is not lost, although the store was
/// away at the notices, a removal is the first change that waits, and no other machine is there.
#[test]
fn fleet_noticed_within_a_minute_loses_no_checkpoint() {
    let mut cluster = Cluster::start(Shape { datanodes: 0, ..Shape::default() });
    let (store, away) = (cluster.path("store"), cluster.path("away"));
    fs::create_dir(&store).expect("made");
    for name in FLEET {
        // Everything that waits needs a tenth of the notices if one node has it.
        add_with(&mut cluster, name, &store, &["--egress-limit", "2MiB/s"]);
    }
    make(&cluster, "/tasks");
    let place = TaskPlace::in_cluster(&cluster.namenode.address, STATE_BYTES);
    let first = checkpoint(&place, 1);
    block_on(async { put(&cluster.client().await, "/tasks/other/old", 3, 5000).await });
    let synced = cluster.cli(&["fs", "sync", "/tasks", "--timeout", "60s"]);
    assert_eq!(synced.code, 0, "{synced}");
    fs::rename(&store, &away).expect("away");
    let removed = cluster.cli(&["fs", "rm", "/tasks/other/old"]);
    assert_eq!(removed.code, 0, "{removed}");
    let newest = checkpoint(&place, 2);
    assert!(newest > first);
    notice_one_after_another(&cluster, 30_000);
    let shown = cluster.json(&["fs", "stat", "/tasks"]);
    let waits = shown["objects"][0]["durability"]["backlog_bytes"].as_u64().expect("a number");
    assert!(waits >= STATE_BYTES as u64, "{shown}");
    fs::rename(&away, &store).expect("back");
    for name in FLEET {
        block_on(async { until_gone(&cluster.client().await, name).await });
        cluster.datanode(name).kill();
    }
    let report = block_on(async { cluster.client().await.report().await.expect("answered") });
    assert!(report.losses.is_empty() && report.bytes == 0, "{report:?}");
    add(&mut cluster, "next", &store);
    let to = place.path("restored");
    let ran = until("it restores", SOON, || {
        let ran = run(place.task("restore").arg("--json").arg("--state").arg(&to));
        (ran.code == 0).then_some(ran)
    });
    let document: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(document["restored"], newest, "{ran}");
    let restored = fs::read(to.join("bytes")).expect("restored");
    assert!(restored == bytes_of(2, STATE_BYTES), "it has other bytes");
    let report = block_on(async { cluster.client().await.report().await.expect("answered") });
    assert!(report.losses.is_empty() && report.bytes == 0, "{report:?}");
}
