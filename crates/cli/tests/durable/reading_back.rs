//! Bytes that only a store has are read back, and hold up nothing else meanwhile.

use std::fs;
use std::path::Path as LocalPath;
use std::process::Stdio;

use crate::cluster::stores::{add, files, make, put};
use crate::cluster::{Cluster, SOON, Shape, block_on, bytes_of, path, run, sanderling, until};

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

fn is_read(cluster: &Cluster, name: &str, seed: u64, bytes: usize) {
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
