//! Durable directories: what is sealed below one lies in its store, readable by any tool, in an
//! order in which it happened, whatever dies.

use std::collections::BTreeSet;
use std::path::Path as LocalPath;
use std::time::{Duration, Instant};

use crate::cluster::guarded::{Guarded, kept};
use crate::cluster::http::post;
use crate::cluster::stores::{add, files, fleet, fleet_with, make, put, put_out};
use crate::cluster::{Cluster, SOON, block_on, bytes_of, path, until};
use futures_util::future::join_all;
use sanderling_client::PutOptions;
use sanderling_protocol::Millis;
use sanderling_protocol::message::{JobHints, MakeDurable, ObjectKind, RegisterJob};

#[test]
fn sealed_objects_lie_in_the_store_under_their_names() {
    let (cluster, store) = fleet(3);
    make(&cluster, "/out");
    block_on(async {
        let client = cluster.client().await;
        // A value in the catalog, one block, many blocks and more than one part.
        for (name, bytes) in [("small", 100), ("empty", 0), ("dir/one", 70_000), ("big", 20 << 20)]
        {
            put(&client, &format!("/out/{name}"), bytes as u64, bytes).await;
        }
    });
    let synced = cluster.cli(&["fs", "sync", "/out"]);
    assert_eq!(synced.code, 0, "{synced}");
    let found = files(&store);
    let names: Vec<&str> = found.keys().map(String::as_str).collect();
    assert_eq!(names, ["big", "dir/one", "empty", "small"]);
    for (name, bytes) in &found {
        assert!(*bytes == bytes_of(bytes.len() as u64, bytes.len()), "{name} has other bytes");
    }
    let stat = cluster.cli(&["fs", "stat", "/out/big"]);
    assert!(stat.stdout.contains("archive:big, durable"), "{}", stat.stdout);
    let json = cluster.json(&["fs", "stat", "/out/dir/one"]);
    let durability = &json["objects"][0]["durability"];
    assert_eq!(durability["is_durable"], true, "{json}");
    assert_eq!(durability["key"], "dir/one", "{json}");
    let events = cluster.cli(&["events"]);
    let all = format!("{}{}", events.stdout, events.stderr);
    assert!(all.contains("/out is durable"), "{all}");
}

#[test]
fn deletes_renames_and_replacements_follow() {
    let (cluster, store) = fleet(2);
    make(&cluster, "/out");
    block_on(async {
        let client = cluster.client().await;
        for name in ["a", "b", "c", "old/x", "old/y", "gone/z"] {
            put(&client, &format!("/out/{name}"), 1, 5000).await;
        }
        put(&client, "/out/a", 2, 9000).await;
        client.delete(&path("/out/b"), false).await.expect("deleted");
        client.rename(&path("/out/c"), &path("/out/d"), false).await.expect("renamed");
        client.rename(&path("/out/old"), &path("/out/new"), false).await.expect("renamed");
        client.delete(&path("/out/gone"), true).await.expect("deleted");
        // Into the directory, and out of it.
        put(&client, "/elsewhere/in", 3, 4000).await;
        client.rename(&path("/elsewhere/in"), &path("/out/in"), false).await.expect("renamed");
        put(&client, "/out/out", 4, 4000).await;
        client.rename(&path("/out/out"), &path("/elsewhere/out"), false).await.expect("renamed");
        let left = client.wait_durable(&path("/out"), SOON).await.expect("it is durable");
        assert_eq!(left, None);
    });
    let found = files(&store);
    let names: Vec<&str> = found.keys().map(String::as_str).collect();
    assert_eq!(names, ["a", "d", "in", "new/x", "new/y"]);
    assert!(found["a"] == bytes_of(2, 9000), "an older version covers a newer one");
    assert!(found["in"] == bytes_of(3, 4000));
    assert!(found["new/x"] == bytes_of(1, 5000));
}

#[test]
fn mistakes_are_refused_with_what_to_do() {
    let (mut cluster, store) = fleet(1);
    make(&cluster, "/out");
    let refused = |words: &[&str], expected: &str| {
        let ran = cluster.cli(words);
        assert!(ran.code != 0 && ran.stderr.contains(expected), "{words:?}: {ran}");
    };
    refused(&["fs", "mkdir", "/other", "--durable", "nowhere"], "--durable nowhere=URL");
    refused(&["fs", "mkdir", "/other", "--durable", "archive"], "has the directory /out");
    refused(&["fs", "mkdir", "/out/below", "--durable", "archive"], "the directory /out");
    refused(&["fs", "mkdir", "/out", "--durable", "archive"], "/out");
    refused(&["fs", "sync", "/"], "it is in no durable directory");
    let again = cluster.cli(&["fs", "mkdir", "-p", "/out", "--durable", "archive"]);
    assert_eq!(again.code, 0, "{again}");
    // A store that has objects of others is not written to.
    let taken = cluster.path("taken");
    std::fs::create_dir_all(&taken).expect("made");
    std::fs::write(taken.join("precious"), "bytes").expect("written");
    let place = format!("taken=file://{}", taken.display());
    cluster.add("d9", &["--durable", &place, "--dram", "64MiB"]);
    until("the store is reported", SOON, || {
        let made = cluster.cli(&["fs", "mkdir", "/taken", "--durable", "taken"]);
        (made.code == 0).then_some(())
    });
    block_on(async {
        let client = cluster.client().await;
        put(&client, "/taken/precious", 1, 2000).await;
    });
    let shown = until("the directory is stalled", SOON, || {
        let shown = cluster.cli(&["fs", "stat", "/taken/precious"]).stdout;
        shown.contains("STALLED").then_some(shown)
    });
    assert!(shown.contains("volatile") && shown.contains("it has objects already"), "{shown}");
    let synced = cluster.cli(&["--timeout", "6s", "fs", "sync", "/taken"]);
    assert!(synced.code == 124 && synced.stderr.contains("wait for the store taken"), "{synced}");
    assert_eq!(std::fs::read(taken.join("precious")).expect("there"), b"bytes");
    // Deleting the directory gives it up, and leaves both stores as they are.
    let removed = cluster.cli(&["fs", "rm", "-r", "/taken"]);
    assert_eq!(removed.code, 0, "{removed}");
    assert!(files(&store).is_empty());
}

#[test]
fn store_has_what_happened_up_to_some_moment_whatever_dies() {
    let (mut cluster, store) = fleet(3);
    make(&cluster, "/out");
    let changes = 60;
    // Every object names the one before: a store without that one shows a future without a past.
    for number in 0..changes {
        block_on(async {
            let client = cluster.client().await;
            put(&client, &format!("/out/{number:03}"), number, 3000 + number as usize * 997).await;
        });
        if number % 20 == 7 {
            cluster.restart_namenode();
        }
        if number % 20 == 13 {
            let name = format!("d{}", number % 3);
            cluster.datanode(&name).pause();
            assert_prefix(&store, number + 1);
            cluster.datanode(&name).resume();
        }
        assert_prefix(&store, number + 1);
    }
    let synced = cluster.cli(&["fs", "sync", "/out"]);
    assert_eq!(synced.code, 0, "{synced}");
    assert_eq!(assert_prefix(&store, changes), changes);
    let fsck = cluster.json(&["fsck"]);
    assert_eq!(fsck["problems"].as_array().map(Vec::len), Some(0), "{fsck}");
}

/// Asserts that a store has the first of so many objects, whole, and no other. Returns how many.
fn assert_prefix(store: &LocalPath, made: u64) -> u64 {
    let found = files(store);
    let count = found.len() as u64;
    assert!(count <= made, "{count} of {made}");
    for (place, (name, bytes)) in found.iter().enumerate() {
        let number = place as u64;
        assert_eq!(*name, format!("{number:03}"), "one is missing before it");
        let expected = bytes_of(number, 3000 + place * 997);
        assert!(*bytes == expected, "{name} is not whole");
    }
    count
}

#[test]
fn store_that_is_away_delays_nothing_but_its_directory() {
    let (cluster, store) = fleet(2);
    make(&cluster, "/out");
    put_out(&cluster, "/out/first", 1);
    let away = cluster.path("away");
    std::fs::rename(&store, &away).expect("moved");
    block_on(async {
        let client = cluster.client().await;
        put(&client, "/out/second", 2, 5000).await;
        put(&client, "/elsewhere", 3, 5000).await;
        let read = client.get(&path("/out/second")).await.expect("it is served meanwhile");
        assert!(read == bytes_of(2, 5000));
    });
    until("the reason is shown", SOON, || {
        let found = block_on(async {
            let client = cluster.client().await;
            client.durability(&path("/out/second")).await.expect("answered").expect("durable")
        });
        assert!(!found.is_durable);
        (!found.stalled.is_empty() && found.backlog_changes == 1).then_some(())
    });
    std::fs::rename(&away, &store).expect("moved back");
    let synced = cluster.cli(&["fs", "sync", "/out/second"]);
    assert_eq!(synced.code, 0, "{synced}");
    assert!(files(&store)["second"] == bytes_of(2, 5000));
}

/// What waits for its store cannot be removed. A time that is too short for a call ends the call
/// and not the command, so the error has the reason.
#[test]
fn removal_that_waits_for_the_store_names_it_when_its_time_is_over() {
    let (cluster, store) = fleet(1);
    make(&cluster, "/out");
    block_on(async { put(&cluster.client().await, "/out/first", 1, 5000).await });
    assert_eq!(cluster.cli(&["fs", "sync", "/out"]).code, 0);
    let away = cluster.path("away");
    std::fs::rename(&store, &away).expect("moved");
    block_on(async { put(&cluster.client().await, "/out/second", 2, 5000).await });
    for words in [
        &["fs", "rm", "/out/second", "--timeout", "6s"][..],
        &["fs", "mv", "/out/second", "/out/third", "--timeout", "6s"],
        &["fs", "put", "--force", "/etc/hostname", "/out/second", "--timeout", "6s"],
    ] {
        let refused = cluster.cli(words);
        assert_eq!(refused.code, 124, "{refused}");
        let why = "/out/second is being copied to the store archive";
        assert!(refused.stderr.contains(why), "{words:?}: {refused}");
    }
    std::fs::rename(&away, &store).expect("moved back");
    let removed = cluster.cli(&["fs", "rm", "/out/second"]);
    assert_eq!(removed.code, 0, "{removed}");
}

#[test]
fn backlog_beyond_its_bound_slows_its_writers_only() {
    let (cluster, store) = fleet(1);
    block_on(async {
        let client = cluster.client().await;
        let made = || MakeDurable {
            path: path("/out"),
            store: "archive".to_owned(),
            parents: true,
            backlog_bytes_max: 10_000,
            adopt: false,
        };
        let until = Instant::now() + SOON;
        while client.make_durable(made()).await.is_err() {
            assert!(Instant::now() < until, "no datanode reports its store");
        }
    });
    let away = cluster.path("away");
    std::fs::rename(&store, &away).expect("moved");
    block_on(async {
        let client = cluster.client().await;
        put(&client, "/out/1", 1, 9_999).await;
        put(&client, "/out/2", 2, 9_999).await;
        put(&client, "/elsewhere", 3, 9_999).await;
    });
    let refused = cluster.cli(&["--timeout", "2s", "fs", "put", "/etc/hostname", "/out/3"]);
    assert_ne!(refused.code, 0, "{refused}");
    until("the backlog and its reason are shown", SOON, || {
        let shown = cluster.cli(&["fs", "stat", "/out"]).stdout;
        assert!(shown.contains("2 changes"), "{shown}");
        shown.contains("STALLED").then_some(())
    });
    std::fs::rename(&away, &store).expect("moved back");
    let put = cluster.cli(&["fs", "put", "/etc/hostname", "/out/3"]);
    assert_eq!(put.code, 0, "{put}");
}

#[test]
fn bound_of_the_backlog_stays_unless_another_is_named() {
    let (cluster, _store) = fleet(1);
    make(&cluster, "/out");
    let bound = || {
        let found = block_on(async { cluster.client().await.durable_overview().await });
        found.expect("an overview")[0].backlog_bytes_max
    };
    assert_eq!(bound(), 16 << 30);
    let again = ["fs", "mkdir", "-p", "/out", "--durable", "archive"];
    let ran = cluster.cli(&[&again[..], &["--backlog-max", "5MiB"]].concat());
    assert_eq!((ran.code, bound()), (0, 5 << 20), "{ran}");
    let ran = cluster.cli(&again);
    assert_eq!((ran.code, bound()), (0, 5 << 20), "{ran}");
    let http = &cluster.namenode.http_address;
    for (bytes, expected) in [("", 5 << 20), (r#", "backlog_bytes_max": 70000"#, 70_000)] {
        let body = format!(r#"{{"path": "/out", "store": "archive", "parents": true{bytes}}}"#);
        let answer = block_on(post(http, "/v1/durable", &body));
        assert_eq!((answer.contains(" 200 "), bound()), (true, expected), "{answer}");
    }
    let ran = cluster.cli(&again);
    assert_eq!((ran.code, bound()), (0, 70_000), "{ran}");
}

#[test]
fn newest_states_get_there_whatever_is_killed_at_any_moment() {
    let rounds: u64 =
        std::env::var("SANDERLING_DURABLE_KILLS").map_or(6, |it| it.parse().expect("a number"));
    let (mut cluster, store) = fleet(3);
    make(&cluster, "/out");
    let mut made = 0;
    for round in 0..rounds {
        for _ in 0..15 {
            block_on(async {
                let client = cluster.client().await;
                put(&client, &format!("/out/{made:03}"), made, 3000 + made as usize * 997).await;
            });
            made += 1;
            assert_prefix(&store, made);
        }
        // In the middle of the copying: what a killed datanode has alone would be lost, so it gets
        // a notice; the namenode, and the manager in it, are killed without one.
        if round % 2 == 0 {
            cluster.restart_namenode();
        } else {
            let name = format!("d{}", cluster.datanodes.len() - 1);
            let words = ["node", "notice", &name, "--deadline", "60s", "--wait", "--yes"];
            let noticed = cluster.cli(&words);
            assert_eq!(noticed.code, 0, "{noticed}");
            let mut taken = cluster.datanodes.pop().expect("there are three");
            taken.kill();
            cluster.datanodes.push(taken);
            let number = cluster.datanodes.len();
            add(&mut cluster, &format!("d{number}"), &store);
        }
        assert_prefix(&store, made);
    }
    let synced = cluster.cli(&["fs", "sync", "/out"]);
    assert_eq!(synced.code, 0, "{synced}");
    assert_eq!(assert_prefix(&store, made), made);
}

#[test]
fn objects_of_every_kind_are_copied() {
    let (cluster, store) = fleet(2);
    make(&cluster, "/out");
    block_on(async {
        let client = cluster.client().await;
        client.make_multifile(&path("/out/many")).await.expect("made");
        for part in ["p0", "p1"] {
            put(&client, &format!("/out/many/{part}"), 7, 40_000).await;
        }
        client.make_table(&path("/out/table")).await.expect("made");
        for value in [&b"old"[..], b"new"] {
            let value = bytes::Bytes::copy_from_slice(value);
            client.put_value(&path("/out/table"), "key", value).await.expect("set");
        }
        // Appended to, and joined of parts.
        put(&client, "/out/log", 1, 3000).await;
        assert_eq!(client.wait_durable(&path("/out/log"), SOON).await.expect("durable"), None);
        let mut writer = client.append(&path("/out/log")).await.expect("open");
        writer.write(&bytes_of(2, 4000)).await.expect("written");
        writer.close().await.expect("sealed");
        for part in ["/out/1", "/out/2"] {
            put(&client, part, 3, 5000).await;
        }
        let parts = [path("/out/1"), path("/out/2")];
        client.concat(&parts, &path("/out/whole"), &PutOptions::default()).await.expect("joined");
        assert_eq!(client.wait_durable(&path("/out"), SOON).await.expect("durable"), None);
    });
    let found = files(&store);
    let names: Vec<&str> = found.keys().map(String::as_str).collect();
    assert_eq!(names, ["log", "many/p0", "many/p1", "table/key", "whole"]);
    assert_eq!(found["table/key"], b"new");
    assert!(found["log"] == [bytes_of(1, 3000), bytes_of(2, 4000)].concat());
    assert!(found["whole"] == [bytes_of(3, 5000), bytes_of(3, 5000)].concat());
}

#[test]
fn names_that_the_store_keeps_for_itself_are_refused() {
    let (cluster, store) = fleet(1);
    make(&cluster, "/out");
    let refused = cluster.cli(&["fs", "mkdir", "/out/.sanderling"]);
    assert!(refused.code != 0 && refused.stderr.contains("is named .sanderling"), "{refused}");
    let refused = cluster.cli(&["fs", "put", "/etc/hostname", "/out/.sanderling"]);
    assert!(refused.code != 0 && refused.stderr.contains("is named .sanderling"), "{refused}");
    assert!(files(&store).is_empty());
}

#[test]
fn what_a_killed_node_had_is_read_back_from_the_store() {
    // Nothing moves to the third node before the first two are killed.
    let (mut cluster, store) = fleet_with(2, &["--no-rebalance", "--no-precopy"]);
    make(&cluster, "/out");
    block_on(async {
        let client = cluster.client().await;
        put(&client, "/out/big", 1, 10 << 20).await;
        put(&client, "/out/gone", 2, 3 << 20).await;
        assert_eq!(client.wait_durable(&path("/out"), SOON).await.expect("durable"), None);
        // Not in the store when its node is killed.
        put(&client, "/elsewhere", 3, 3 << 20).await;
    });
    std::fs::remove_file(store.join("gone")).expect("it was there");
    add(&mut cluster, "d2", &store);
    for name in ["d0", "d1"] {
        cluster.datanode(name).kill();
    }
    until("both nodes are given up", Duration::from_secs(60), || {
        let nodes = cluster.json(&["node", "ls"]);
        (nodes["nodes"].as_array().map(Vec::len) == Some(1)).then_some(())
    });
    block_on(async {
        // A node alone looks for an object twice before it is lost.
        let client = cluster.client().await.with_deadline(SOON);
        let read = client.get(&path("/out/big")).await.expect("it is in the store");
        assert!(read == bytes_of(1, 10 << 20), "other bytes came back");
        client.get(&path("/out/gone")).await.expect_err("it is nowhere");
        client.get(&path("/elsewhere")).await.expect_err("it was in no store");
        let report = client.report().await.expect("answered");
        let lost: BTreeSet<&str> = report.losses.iter().map(|loss| loss.path.as_str()).collect();
        assert_eq!(lost, ["/elsewhere", "/out/gone"].into());
        assert_eq!(report.bytes, 6 << 20, "each byte is declared lost once: {report:?}");
    });
    let fsck = cluster.cli(&["fsck", "--json"]);
    let fsck: serde_json::Value = serde_json::from_str(&fsck.stdout).expect("JSON");
    assert_eq!(fsck["problems"].as_array().map(Vec::len), Some(0), "{fsck}");
    // What was read back is a block like any other.
    let drained = cluster.cli(&["fs", "cat", "/out/big"]);
    assert_eq!(drained.code, 0, "{drained}");
}

/// Stores objects below `/out/run` while its store is away, and loses the first node before the
/// store is back.
fn lose_before_the_store_comes(
    cluster: &mut Cluster,
    store: &LocalPath,
    objects: u64,
    bytes: usize,
) {
    let away = cluster.path("away");
    std::fs::rename(store, &away).expect("moved");
    block_on(async {
        let client = cluster.client().await;
        for number in 0..objects {
            put(&client, &format!("/out/run/{number}/part"), number, bytes).await;
        }
    });
    let others = cluster.datanodes.len() - 1;
    cluster.datanode("d0").kill();
    until("the node is given up", SOON, || {
        let nodes = cluster.json(&["node", "ls"]);
        (nodes["nodes"].as_array().map(Vec::len) == Some(others)).then_some(())
    });
    std::fs::rename(&away, store).expect("moved back");
}

/// Deletes `/out/run`, of which objects are lost; what is stored afterwards gets into the store.
fn assert_deleted_and_going_on(cluster: &Cluster, store: &LocalPath) {
    let deleted = cluster.cli(&["fs", "rm", "-r", "/out/run", "--timeout", "60s"]);
    assert_eq!(deleted.code, 0, "{deleted}");
    assert_going_on(cluster, store);
}

/// Nothing of `/out` is left, and what is stored now gets into the store.
fn assert_going_on(cluster: &Cluster, store: &LocalPath) {
    put_out(cluster, "/out/after", 9);
    let found = files(store);
    assert_eq!(found.keys().collect::<Vec<_>>(), ["after"]);
}

#[test]
fn directory_with_objects_that_were_lost_before_they_were_durable_is_deleted() {
    let (mut cluster, store) = fleet(2);
    make(&cluster, "/out");
    lose_before_the_store_comes(&mut cluster, &store, 6, 3 << 20);
    until("the directory is stalled by what is lost", SOON, || {
        let shown = cluster.cli(&["fs", "stat", "/out"]).stdout;
        (shown.contains("STALLED") && shown.contains("bytes missing")).then_some(())
    });
    assert_deleted_and_going_on(&cluster, &store);
}

#[test]
fn tree_with_lost_objects_goes_with_its_time_to_live_or_its_job() {
    let (mut cluster, store) = fleet(2);
    make(&cluster, "/out");
    let job = block_on(async {
        let client = cluster.client().await;
        let (hints, lease) = (JobHints::default(), Millis(600_000));
        let request = RegisterJob { path: path("/out/run/0"), lease, quota_bytes: None, hints };
        client
            .make_directory(&path("/out/run"), ObjectKind::Directory, true, true)
            .await
            .expect("made");
        client.register_job(request).await.expect("a job").job
    });
    lose_before_the_store_comes(&mut cluster, &store, 6, 3 << 20);
    block_on(async {
        let client = cluster.client().await;
        client.with_deadline(SOON).end_job(job).await.expect("ended");
        client.set_ttl(&path("/out/run"), Some(Millis(1))).await.expect("set");
        let limit = Instant::now() + SOON;
        while client.stat(&path("/out/run")).await.is_ok() {
            assert!(Instant::now() < limit, "it waits for what is lost");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    assert_going_on(&cluster, &store);
}

/// What was never in the store is no change of it: the store is claimed by the first object that
/// gets there.
#[test]
fn store_that_came_after_all_first_objects_were_lost_is_claimed_by_the_next_one() {
    let (mut cluster, store) = fleet(1);
    make(&cluster, "/out");
    lose_before_the_store_comes(&mut cluster, &store, 3, 1 << 20);
    add(&mut cluster, "d1", &store);
    assert_deleted_and_going_on(&cluster, &store);
}

#[test]
fn empty_directory_in_place_of_the_store_is_not_taken_for_it() {
    let (mut cluster, store) = fleet(2);
    make(&cluster, "/out");
    put_out(&cluster, "/out/one", 1);
    // A file system that is not mounted, and a datanode that has never seen it mounted.
    let away = cluster.path("away");
    std::fs::rename(&store, &away).expect("moved");
    std::fs::create_dir(&store).expect("made");
    add(&mut cluster, "d9", &store);
    block_on(async {
        let client = cluster.client().await;
        put(&client, "/out/two", 2, 5000).await;
        client.delete(&path("/out/one"), false).await.expect("deleted");
    });
    until("the reason is shown", SOON, || {
        let shown = cluster.cli(&["fs", "stat", "/out/two"]).stdout;
        assert!(shown.contains("volatile"), "{shown}");
        shown.contains("may not be mounted").then_some(())
    });
    assert_eq!(std::fs::read_dir(&store).expect("there").count(), 0, "nothing is written there");
    std::fs::remove_dir(&store).expect("empty");
    std::fs::rename(&away, &store).expect("mounted");
    block_on(async {
        let client = cluster.client().await;
        assert_eq!(client.wait_durable(&path("/out"), SOON).await.expect("durable"), None);
    });
    let found = files(&store);
    assert_eq!(found.keys().collect::<Vec<_>>(), ["two"]);
}

#[test]
fn many_small_objects_are_copied_without_an_alarm() {
    let (cluster, store) = fleet(2);
    make(&cluster, "/out");
    let began = Instant::now();
    block_on(async {
        let client = cluster.client().await;
        for number in 0..400 {
            put(&client, &format!("/out/{number:03}"), number, 7).await;
        }
        assert_eq!(client.wait_durable(&path("/out"), SOON).await.expect("durable"), None);
    });
    assert_eq!(files(&store).len(), 400);
    let events = cluster.cli(&["events"]).stdout;
    assert!(!events.contains("STORE STALLED"), "{events}");
    let reported = events.matches("has all of /out").count() as u64;
    // One at its beginning, one at its end, and one in ten seconds between.
    let most = 3 + began.elapsed().as_secs() / 10;
    assert!(reported <= most, "{reported} events for one burst, {most} are enough");
}

/// The directory of the store stays empty when its last object is removed.
#[test]
fn object_takes_the_name_of_a_directory_that_was_emptied() {
    let (cluster, store) = fleet(1);
    make(&cluster, "/out");
    for words in [
        ["fs", "put", "-p", "/etc/hostname", "/out/a/b"].as_slice(),
        &["fs", "sync", "/out"],
        &["fs", "rm", "/out/a/b"],
        &["fs", "rm", "-r", "/out/a"],
        &["fs", "put", "/etc/hostname", "/out/a"],
        &["fs", "sync", "/out", "--timeout", "60s"],
    ] {
        let ran = cluster.cli(words);
        assert_eq!(ran.code, 0, "{words:?}: {ran}");
    }
    assert!(store.join("a").is_file());
}

#[test]
fn names_that_no_store_takes_are_refused() {
    let (cluster, _) = fleet(1);
    make(&cluster, "/out");
    let name = "n".repeat(250);
    let long = format!("/out/{name}/{name}/{name}/{name}/{name}");
    // With the prefix that a bucket may have, it is too long.
    let with_prefix = format!("/out/{name}/{name}/{name}/{}", "n".repeat(16));
    let (control, none) = ("no control characters", "neither U+FFFE nor U+FFFF");
    for (refused, why) in [
        (long.as_str(), "of 768 bytes"),
        (with_prefix.as_str(), "would have 769 of 768 bytes"),
        ("/out/tab\there", control),
        ("/out/none\u{fffe}", none),
        ("/out/d/none\u{ffff}/a", none),
    ] {
        let refused = cluster.cli(&["fs", "put", "-p", "/etc/hostname", refused]);
        assert!(refused.code != 0 && refused.stderr.contains(why), "{refused}");
    }
    let (longest, _) = with_prefix.split_at(with_prefix.len() - 1);
    let put = cluster.cli(&["fs", "put", "-p", "/etc/hostname", longest]);
    assert_eq!(put.code, 0, "{put}");
    // Nor do they come with a directory that is renamed.
    for (from, name, why) in [("/control", "tab\there", control), ("/none", "a\u{fffe}", none)] {
        let made = cluster.cli(&["fs", "put", "-p", "/etc/hostname", &format!("{from}/{name}")]);
        assert_eq!(made.code, 0, "{made}");
        let moved = cluster.cli(&["fs", "mv", from, &format!("/out{from}")]);
        assert!(moved.code != 0 && moved.stderr.contains(why), "{moved}");
    }
    let deep = "/deep/n".to_owned() + &"n".repeat(200);
    let made = cluster.cli(&["fs", "put", "-p", "/etc/hostname", &deep]);
    assert_eq!(made.code, 0, "{made}");
    let below = format!("/out/{name}/{name}/{}", "m".repeat(250));
    let moved = cluster.cli(&["fs", "mv", "/deep", &below]);
    assert!(moved.code != 0 && moved.stderr.contains("of 768 bytes"), "{moved}");
    let zero = cluster.cli(&["fs", "mkdir", "/zero", "--durable", "archive", "--backlog-max", "0"]);
    assert!(zero.code != 0, "{zero}");
    let synced = cluster.cli(&["fs", "sync", "/out"]);
    assert_eq!(synced.code, 0, "{synced}");
}

/// The directory itself counts, too.
#[test]
fn rename_of_more_than_4096_objects_into_a_durable_directory_is_refused() {
    let (cluster, _) = fleet(1);
    make(&cluster, "/out");
    block_on(async {
        let client = cluster.client().await;
        for begin in (0..4096).step_by(64) {
            let names: Vec<String> = (begin..begin + 64).map(|it| format!("/many/{it}")).collect();
            join_all(names.iter().map(|name| put(&client, name, 1, 7))).await;
        }
    });
    let mv = ["fs", "mv", "/many", "/out/many"];
    let refused = cluster.cli(&mv);
    let why = "objects renamed in a durable directory at once";
    assert!(refused.code != 0 && refused.stderr.contains(why), "{refused}");
    assert_eq!(cluster.cli(&["fs", "stat", "/out/many"]).code, 3, "a part of it was moved");
    assert_eq!(cluster.cli(&["fs", "rm", "/many/0"]).code, 0);
    let moved = cluster.cli(&mv);
    assert_eq!(moved.code, 0, "{moved}");
}

#[test]
fn joined_file_is_there_before_its_parts_go() {
    let (cluster, store) = fleet(2);
    make(&cluster, "/out");
    block_on(async {
        let client = cluster.client().await;
        for part in ["/out/1", "/out/2"] {
            put(&client, part, 3, 2 << 20).await;
        }
        assert_eq!(client.wait_durable(&path("/out"), SOON).await.expect("durable"), None);
        let parts = [path("/out/1"), path("/out/2")];
        client.concat(&parts, &path("/out/whole"), &PutOptions::default()).await.expect("joined");
        let until = Instant::now() + SOON;
        loop {
            // In this order: a list of the directory is no moment.
            let has_parts = store.join("1").exists() && store.join("2").exists();
            assert!(has_parts || store.join("whole").exists(), "{:?}", files(&store).keys());
            if files(&store).len() == 1 {
                break;
            }
            assert!(Instant::now() < until, "the parts stay");
        }
    });
}

#[test]
fn cluster_with_tokens_and_tls_copies_too_and_only_an_admin_takes_a_store() {
    let place = tempfile::TempDir::new().expect("a directory for the test");
    let store = place.path().join("store");
    std::fs::create_dir(&store).expect("made");
    let stores = kept(&format!("archive=file://{}", store.display()));
    let guarded = Guarded::encrypted(2, &["--durable", stores]);
    let admin = guarded.token(&["--role", "admin", "--subject", "operator"]);
    let tenant = guarded.token(&["--subtree", "/out", "--rights", "read,write"]);
    let words = |path: &'static str| ["fs", "mkdir", path, "--durable", "archive"];
    until("a datanode reports its store", SOON, || {
        let refused = guarded.cli(Some(&tenant), &words("/out/mine"));
        assert!(refused.code != 0 && !refused.stderr.contains("no datanode"), "{refused}");
        (guarded.cli(Some(&admin), &words("/out")).code == 0).then_some(())
    });
    block_on(async {
        let client = guarded.cluster.client_of(guarded.config(&tenant)).await;
        put(&client, "/out/small", 1, 100).await;
        put(&client, "/out/big", 2, 9 << 20).await;
        put(&client, "/out/gone", 3, 5000).await;
        assert_eq!(client.wait_durable(&path("/out"), SOON).await.expect("durable"), None);
        client.delete(&path("/out/gone"), false).await.expect("deleted");
        assert_eq!(client.wait_durable(&path("/out"), SOON).await.expect("durable"), None);
    });
    let found = files(&store);
    assert_eq!(found.keys().collect::<Vec<_>>(), ["big", "small"]);
    assert!(found["big"] == bytes_of(2, 9 << 20));
    let outsider = guarded.token(&["--subtree", "/other", "--rights", "read,write"]);
    let refused = guarded.cli(Some(&outsider), &["fs", "sync", "/out"]);
    assert!(refused.code != 0 && refused.stderr.contains("/out"), "{refused}");
}

#[test]
fn job_below_a_durable_directory_ends_when_what_it_has_is_copied() {
    let (cluster, store) = fleet(1);
    make(&cluster, "/out");
    put_out(&cluster, "/out/first", 1);
    let away = cluster.path("away");
    std::fs::rename(&store, &away).expect("moved");
    block_on(async {
        let client = cluster.client().await;
        let (lease, hints) = (Millis(60_000), JobHints::default());
        let request = RegisterJob { path: path("/out/job"), lease, quota_bytes: None, hints };
        let job = client.register_job(request).await.expect("registered").job;
        put(&client, "/out/job/data", 2, 5000).await;
        put(&client, "/out/manifest", 3, 5000).await;
        let hasty = client.with_deadline(Duration::from_secs(1));
        hasty.end_job(job).await.expect_err("its data is in no store yet");
        std::fs::rename(&away, &store).expect("moved back");
        client.end_job(job).await.expect("its data was copied");
        assert_eq!(client.wait_durable(&path("/out"), SOON).await.expect("durable"), None);
    });
    assert_eq!(files(&store).keys().collect::<Vec<_>>(), ["first", "manifest"]);
}
