//! A cluster adopts what an earlier one left in a store: names, sizes and bytes, whatever dies.

use crate::cluster;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path as LocalPath;
use std::process::Command;

use crate::cluster::stores::{add, files, fleet, put, put_out, reported};
use crate::cluster::{Cluster, SOON, Shape, block_on, bytes_of, path, run, until};
use sanderling_protocol::message::MakeDurable;
use tempfile::TempDir;

/// A cluster whose datanodes reach a store that outlives it.
fn cluster_at(store: &LocalPath, datanodes: usize) -> Cluster {
    let mut cluster = Cluster::start(Shape { datanodes: 0, ..Shape::default() });
    for number in 0..datanodes {
        add(&mut cluster, &format!("d{number}"), store);
    }
    cluster
}

/// Makes a store with so many small files, by hand.
fn filled(store: &LocalPath, count: usize) {
    fs::create_dir_all(store).expect("made");
    for number in 0..count {
        let directory = store.join(format!("d{:02}", number % 7));
        fs::create_dir_all(&directory).expect("made");
        let file = directory.join(format!("{number:05}"));
        fs::write(file, format!("object {number}")).expect("written");
    }
}

const ADOPT: [&str; 6] = ["fs", "mkdir", "/in", "--durable", "archive", "--adopt"];

#[test]
fn cluster_reads_byte_exact_what_an_earlier_one_left_in_the_store() {
    let place = TempDir::new().expect("a directory for the test");
    let store = place.path().join("store");
    fs::create_dir(&store).expect("made");
    let written = [
        ("small", 100),
        ("empty", 0),
        ("dir/deep/one", 70_000),
        ("dir.x", 5000),
        ("big", 20 << 20),
    ];
    {
        let earlier = cluster_at(&store, 2);
        cluster::stores::make(&earlier, "/out");
        block_on(async {
            let client = earlier.client().await;
            for (name, bytes) in written {
                put(&client, &format!("/out/{name}"), bytes as u64, bytes).await;
            }
            assert_eq!(client.wait_durable(&path("/out"), SOON).await.expect("durable"), None);
        });
        // All its processes are killed, and its data is deleted.
    }
    // What it did not complete, what others put there, and what is no object.
    let own = store.join(".sanderling/uploads/0123456789abcdef");
    fs::write(&own, "half an upload").expect("written");
    fs::create_dir(store.join("by-hand")).expect("made");
    fs::write(store.join("by-hand/file"), "foreign").expect("written");
    fs::write(store.join("tab\there"), "foreign").expect("written");
    symlink("/etc/hostname", store.join("link")).expect("linked");
    let cluster = cluster_at(&store, 2);
    reported(&cluster);
    let refused = cluster.cli(&ADOPT[..5]);
    assert_eq!(refused.code, 0, "a store is looked at later: {refused}");
    block_on(async {
        let client = cluster.client().await;
        put(&client, "/in/x", 1, 10).await;
    });
    until("the reason is shown", SOON, || {
        cluster.cli(&["fs", "stat", "/in"]).stdout.contains("adopt it (--adopt)").then_some(())
    });
    assert_eq!(cluster.cli(&["fs", "rm", "-r", "/in"]).code, 0);
    let made = cluster.json(&ADOPT);
    let adopted = &made["adopted"][0];
    assert_eq!(adopted["objects"], 6, "{made}");
    assert_eq!(adopted["skipped"], 2, "{made}");
    assert!(!own.exists(), "what the earlier cluster began can be completed");
    let stat = cluster.cli(&["fs", "stat", "/in/big"]).stdout;
    assert!(stat.contains("in the store only") && stat.contains("durable"), "{stat}");
    assert!(!stat.contains("lost"), "{stat}");
    block_on(async {
        let client = cluster.client().await;
        for (name, bytes) in written {
            let read = client.get(&path(&format!("/in/{name}"))).await.expect("it is read back");
            assert!(read == bytes_of(bytes as u64, bytes), "{name} has other bytes");
        }
        let read = client.get(&path("/in/by-hand/file")).await.expect("it is read back");
        assert_eq!(&read[..], b"foreign");
    });
    let stat = cluster.cli(&["fs", "stat", "/in/big"]).stdout;
    assert!(!stat.contains("in the store only"), "{stat}");
    follows(&cluster, &store);
}

/// Asserts that an adopted store follows what is changed from now on.
fn follows(cluster: &Cluster, store: &LocalPath) {
    block_on(async {
        let client = cluster.client().await;
        put(&client, "/in/new", 9, 3000).await;
        client.delete(&path("/in/empty"), false).await.expect("deleted");
        client.rename(&path("/in/dir"), &path("/in/moved"), false).await.expect("renamed");
        let mut writer = client.append(&path("/in/dir.x")).await.expect("open");
        writer.write(&bytes_of(2, 4000)).await.expect("written");
        writer.close().await.expect("sealed");
        assert_eq!(client.wait_durable(&path("/in"), SOON).await.expect("durable"), None);
    });
    let found = files(store);
    assert!(found["moved/deep/one"] == bytes_of(70_000, 70_000));
    assert!(found["dir.x"] == [bytes_of(5000, 5000), bytes_of(2, 4000)].concat());
    assert!(found.contains_key("new") && !found.contains_key("empty"), "{:?}", found.keys());
    let fsck = cluster.json(&["fsck"]);
    assert_eq!(fsck["problems"].as_array().map(Vec::len), Some(0), "{fsck}");
    assert_eq!(fsck["lost_blocks"], 0, "{fsck}");
}

#[test]
fn objects_that_are_not_read_first_are_appended_to_renamed_and_joined() {
    let place = TempDir::new().expect("a directory for the test");
    let store = place.path().join("store");
    fs::create_dir(&store).expect("made");
    for (name, seed, bytes) in
        [("log", 1, 4000), ("old", 2, 3000), ("p1", 3, 9000), ("p2", 4, 9000)]
    {
        fs::write(store.join(name), bytes_of(seed, bytes)).expect("written");
    }
    let cluster = cluster_at(&store, 2);
    reported(&cluster);
    let adopted = cluster.cli(&ADOPT);
    assert!(adopted.code == 0 && adopted.stdout.contains("4 objects adopted"), "{adopted}");
    block_on(async {
        let client = cluster.client().await;
        let mut writer = client.append(&path("/in/log")).await.expect("open");
        writer.write(&bytes_of(5, 2000)).await.expect("written");
        writer.close().await.expect("sealed");
        client.rename(&path("/in/old"), &path("/in/new"), false).await.expect("renamed");
        let parts = [path("/in/p1"), path("/in/p2")];
        client.concat(&parts, &path("/in/both"), &Default::default()).await.expect("joined");
        assert_eq!(client.wait_durable(&path("/in"), SOON).await.expect("durable"), None);
    });
    let found = files(&store);
    assert_eq!(found.keys().collect::<Vec<_>>(), ["both", "log", "new"]);
    assert!(found["log"] == [bytes_of(1, 4000), bytes_of(5, 2000)].concat());
    assert!(found["new"] == bytes_of(2, 3000));
    assert!(found["both"] == [bytes_of(3, 9000), bytes_of(4, 9000)].concat());
}

#[test]
fn adoption_goes_on_whatever_is_killed_and_readers_wait_for_it() {
    let place = TempDir::new().expect("a directory for the test");
    let store = place.path().join("store");
    let count = 6000;
    filled(&store, count);
    let mut cluster = cluster_at(&store, 2);
    reported(&cluster);
    block_on(async {
        let client = cluster.client().await;
        let request = MakeDurable {
            path: path("/in"),
            store: "archive".to_owned(),
            parents: false,
            backlog_bytes_max: 1 << 30,
            adopt: true,
        };
        client.make_durable(request.clone()).await.expect("made");
        // The last name of all: nothing is missing before the end.
        let read = client.get(&path("/in/d06/05998")).await.expect("it is there in time");
        assert_eq!(&read[..], b"object 5998");
    });
    assert_eq!(cluster.cli(&["fs", "rm", "-r", "/in"]).code, 0);
    let server = cluster.cli(&["fs", "mkdir", "/in", "--durable", "archive"]);
    assert_eq!(server.code, 0, "{server}");
    assert_eq!(cluster.cli(&["fs", "rm", "-r", "/in"]).code, 0);
    block_on(async {
        let client = cluster.client().await;
        let request = MakeDurable {
            path: path("/in"),
            store: "archive".to_owned(),
            parents: true,
            backlog_bytes_max: 1 << 30,
            adopt: true,
        };
        client.make_durable(request.clone()).await.expect("made");
        client.make_durable(request).await.expect("the same again changes nothing");
    });
    cluster.restart_namenode();
    let mut taken = cluster.datanodes.pop().expect("there are two");
    taken.kill();
    let listed = cluster.cli(&["fs", "ls", "-R", "/in"]);
    assert_eq!(listed.code, 0, "{listed}");
    let again = cluster.json(&[&ADOPT[..], &["-p"]].concat());
    assert_eq!(again["adopted"][0]["objects"], count, "{again}");
    let used = cluster.json(&["fs", "du", "/in"]);
    assert!(used.to_string().contains("6000"), "{used}");
    let fsck = cluster.json(&["fsck"]);
    assert_eq!(fsck["problems"].as_array().map(Vec::len), Some(0), "{fsck}");
    // The store is as it was.
    assert_eq!(files(&store).len(), count);
}

#[test]
fn cluster_whose_store_was_adopted_cannot_change_it_any_more() {
    let (earlier, store) = fleet(1);
    cluster::stores::make(&earlier, "/out");
    put_out(&earlier, "/out/first", 1);
    let cluster = cluster_at(&store, 1);
    reported(&cluster);
    assert_eq!(cluster.cli(&ADOPT).code, 0);
    block_on(async {
        let client = earlier.client().await;
        put(&client, "/out/second", 2, 5000).await;
        client.delete(&path("/out/first"), false).await.expect("deleted");
    });
    until("the former owner shows why it stalls", SOON, || {
        let shown = earlier.cli(&["fs", "stat", "/out/second"]).stdout;
        shown.contains("STALLED").then_some(()).filter(|()| shown.contains("it belongs to"))
    });
    assert_eq!(files(&store).keys().collect::<Vec<_>>(), ["first"]);
    block_on(async {
        let client = cluster.client().await;
        let read = client.get(&path("/in/first")).await.expect("it is read back");
        assert!(read == bytes_of(1, 5000));
    });
}

/// What the store has is distinguished by its length alone.
#[test]
fn object_of_equal_length_is_read_as_it_is_and_one_of_another_length_is_lost() {
    let place = TempDir::new().expect("a directory for the test");
    let store = place.path().join("store");
    fs::create_dir(&store).expect("made");
    for name in ["equal", "longer", "gone", "later"] {
        fs::write(store.join(name), bytes_of(1, 5000)).expect("written");
    }
    let mut cluster = cluster_at(&store, 1);
    reported(&cluster);
    assert_eq!(cluster.cli(&ADOPT).code, 0);
    fs::write(store.join("equal"), bytes_of(2, 5000)).expect("written");
    fs::write(store.join("longer"), bytes_of(2, 5001)).expect("written");
    fs::remove_file(store.join("gone")).expect("removed");
    block_on(async {
        // A node alone looks for an object twice before it is lost.
        let client = cluster.client().await.with_deadline(SOON);
        let read = client.get(&path("/in/equal")).await.expect("it is as long as it was");
        assert!(read == bytes_of(2, 5000), "the bytes are not those of the store");
        for name in ["/in/longer", "/in/gone"] {
            client.get(&path(name)).await.expect_err("it is not what was adopted");
        }
        // What was read is served from memory, whatever the store has now.
        let read = client.get(&path("/in/later")).await.expect("it is read back");
        assert!(read == bytes_of(1, 5000));
        fs::write(store.join("later"), bytes_of(3, 5000)).expect("written");
        let read = client.get(&path("/in/later")).await.expect("it is in memory");
        assert!(read == bytes_of(1, 5000));
    });
    let lost = cluster.json(&["fs", "stat", "/in/longer"]);
    assert_eq!(lost["objects"][0]["lost_bytes"], 5000, "{lost}");
    // Memory that ends with its machine is read back from the store as it is by then.
    let mut taken = cluster.datanodes.remove(0);
    taken.kill();
    add(&mut cluster, "d9", &store);
    block_on(async {
        let read = cluster.client().await.get(&path("/in/later")).await.expect("it is read back");
        assert!(read == bytes_of(3, 5000), "the bytes are not those of the store");
    });
}

#[test]
fn read_that_meets_a_link_or_a_pipe_waits_until_the_object_is_back() {
    let place = TempDir::new().expect("a directory for the test");
    let store = place.path().join("store");
    fs::create_dir_all(store.join("d")).expect("made");
    for name in ["link", "pipe", "d/below"] {
        fs::write(store.join(name), bytes_of(1, 5000)).expect("written");
    }
    let cluster = cluster_at(&store, 1);
    reported(&cluster);
    assert_eq!(cluster.cli(&ADOPT).code, 0);
    let foreign = place.path().join("foreign");
    fs::create_dir(&foreign).expect("made");
    for name in ["link", "below"] {
        fs::write(foreign.join(name), bytes_of(2, 5000)).expect("written");
    }
    let away = place.path().join("away");
    for (name, expected) in [("link", "link"), ("pipe", "pipe"), ("d/below", "d")] {
        let taken = store.join(expected);
        fs::rename(&taken, &away).expect("moved");
        match expected {
            "link" => symlink(foreign.join("link"), &taken).expect("linked"),
            "pipe" => assert_eq!(run(Command::new("mkfifo").arg(&taken)).code, 0),
            _ => symlink(&foreign, &taken).expect("linked"),
        }
        let named = format!("/in/{name}");
        let reason = if expected == "pipe" { "is no file" } else { "is a symbolic link" };
        until("a reader's error names the reason", SOON, || {
            let read = cluster.cli(&["--timeout", "6s", "fs", "cat", &named]);
            assert_eq!((read.code, read.stdout.len()), (124, 0), "{name}: {read}");
            read.stderr.contains(&format!("{expected} {reason}")).then_some(())
        });
        until(reason, SOON, || {
            let shown = cluster.cli(&["fs", "stat", "/in"]).stdout;
            shown.contains(&format!("{expected} {reason}")).then_some(())
        });
        fs::remove_file(&taken).expect("removed");
        fs::rename(&away, &taken).expect("moved");
        block_on(async {
            let read = cluster.client().await.get(&path(&named)).await.expect("it is back");
            assert!(read == bytes_of(1, 5000), "{name} has other bytes");
        });
        until("the reason is taken back", SOON, || {
            let shown = cluster.cli(&["fs", "stat", "/in"]).stdout;
            (!shown.contains(reason)).then_some(())
        });
    }
}

/// What is no object of the directory is left out by the adoption, and by all that follows.
#[test]
fn what_an_adoption_leaves_out_stays_when_its_directory_is_renamed_or_deleted() {
    let place = TempDir::new().expect("a directory");
    let store = place.path().join("store");
    for name in ["moved", "deleted", "emptied"] {
        fs::create_dir_all(store.join(name).join("below")).expect("made");
        fs::write(store.join(name).join("below/object"), name).expect("written");
    }
    for name in ["moved", "deleted"] {
        fs::write(store.join(name).join("with\tcontrol"), "kept").expect("written");
        symlink("object", store.join(name).join("below/link")).expect("linked");
    }
    let cluster = cluster_at(&store, 1);
    reported(&cluster);
    for words in [
        ["fs", "mkdir", "/out", "--durable", "archive", "--adopt"].as_slice(),
        &["fs", "mv", "/out/moved", "/out/new"],
        &["fs", "rm", "-r", "/out/deleted"],
        &["fs", "rm", "-r", "/out/emptied"],
        &["fs", "sync", "/out", "--timeout", "60s"],
    ] {
        let ran = cluster.cli(words);
        assert_eq!(ran.code, 0, "{words:?}: {ran}");
    }
    assert_eq!(fs::read_to_string(store.join("new/below/object")).expect("there"), "moved");
    for name in ["moved", "deleted"] {
        let kept = store.join(name).join("with\tcontrol");
        assert_eq!(fs::read_to_string(kept).expect("left out"), "kept");
        assert!(store.join(name).join("below/link").is_symlink());
        assert!(!store.join(name).join("below/object").exists());
    }
    assert!(!store.join("emptied").exists());
}

/// Tools that copy a store leave empty directories out.
#[test]
fn store_without_its_directory_of_uploads_is_adopted_and_takes_objects() {
    let place = TempDir::new().expect("a directory");
    let store = place.path().join("store");
    fs::create_dir(&store).expect("made");
    let first = cluster_at(&store, 1);
    reported(&first);
    let made = first.cli(&["fs", "mkdir", "/out", "--durable", "archive"]);
    assert_eq!(made.code, 0, "{made}");
    let uploads = store.join(".sanderling/uploads");
    let put = first.cli(&["fs", "put", "/etc/hostname", "/out/1"]);
    assert_eq!(put.code, 0, "{put}");
    let synced = first.cli(&["fs", "sync", "/out", "--timeout", "60s"]);
    assert_eq!(synced.code, 0, "{synced}");
    drop(first);
    fs::remove_dir(&uploads).expect("empty");
    let second = cluster_at(&store, 1);
    reported(&second);
    let adopt = ["fs", "mkdir", "/out", "--durable", "archive", "--adopt", "--timeout", "120s"];
    let adopted = second.cli(&adopt);
    assert_eq!(adopted.code, 0, "{adopted}");
    let put = second.cli(&["fs", "put", "/etc/hostname", "/out/2"]);
    assert_eq!(put.code, 0, "{put}");
    let synced = second.cli(&["fs", "sync", "/out", "--timeout", "60s"]);
    assert_eq!(synced.code, 0, "{synced}");
}

#[test]
fn place_without_owner_and_objects_is_not_adopted() {
    let place = TempDir::new().expect("a directory for the test");
    let cluster = cluster_at(place.path(), 1);
    reported(&cluster);
    let refused = cluster.cli(&[&["--timeout", "8s"], &ADOPT[..]].concat());
    assert!(refused.code == 124 && refused.stderr.contains("nothing to adopt"), "{refused}");
    assert_eq!(fs::read_dir(place.path()).expect("there").count(), 0, "nothing is written");
    // What has appeared there meanwhile is adopted.
    fs::write(place.path().join("late"), "mounted").expect("written");
    let adopted = cluster.cli(&[&ADOPT[..], &["-p"]].concat());
    assert!(adopted.code == 0 && adopted.stdout.contains("1 object adopted"), "{adopted}");
}

#[test]
fn store_that_the_memory_has_no_room_for_stalls_and_stops_no_other() {
    let place = TempDir::new().expect("a directory for the test");
    let store = place.path().join("store");
    fs::create_dir(&store).expect("made");
    for name in ["a", "b"] {
        // It takes no room in the store, and a million blocks in the catalog.
        fs::File::create(store.join(name)).and_then(|it| it.set_len(1 << 40)).expect("made");
    }
    let namenode = vec!["--memory-max".to_owned(), "64MiB".to_owned()];
    let mut cluster = Cluster::start(Shape { datanodes: 0, namenode, ..Shape::default() });
    add(&mut cluster, "d0", &store);
    reported(&cluster);
    let adopting = cluster.cli(&[&ADOPT[..], &["--timeout", "1s"]].concat());
    assert_ne!(adopting.code, 0, "{adopting}");
    until("the reason is shown", SOON, || {
        let shown = cluster.cli(&["fs", "stat", "/in"]);
        shown.stdout.contains("the namenode's memory is full").then_some(())
    });
    let made = cluster.cli(&["fs", "mkdir", "/other"]);
    assert_eq!(made.code, 0, "{made}");
}

/// Objects of the adopted store could have the names of those of the store below it.
#[test]
fn store_with_another_one_below_it_is_adopted_when_that_one_is_gone() {
    let place = TempDir::new().expect("a directory for the test");
    let store = place.path().join("store");
    filled(&store, 14);
    let own = store.join("d03/.sanderling");
    fs::create_dir(&own).expect("made");
    fs::write(own.join("owner"), "cluster 1 directory 2\n").expect("written");
    let cluster = cluster_at(&store, 1);
    reported(&cluster);
    let begun = cluster.cli(&[&ADOPT[..], &["--timeout", "5s"]].concat());
    assert_ne!(begun.code, 0, "{begun}");
    let reason = format!("{} is the store of cluster 1 directory 2", store.join("d03").display());
    until(&reason, SOON, || {
        let shown = cluster.json(&["fs", "stat", "/in"]);
        let why = shown["objects"][0]["durability"]["stalled"].as_str().unwrap_or_default();
        why.contains(&reason).then_some(())
    });
    fs::remove_dir_all(&own).expect("removed");
    let adopted = cluster.cli(&[&ADOPT[..], &["-p"]].concat());
    assert_eq!(adopted.code, 0, "{adopted}");
    let read = cluster.cli(&["fs", "cat", "/in/d03/00003"]);
    assert_eq!((read.code, read.stdout.as_str()), (0, "object 3"), "{read}");
}
