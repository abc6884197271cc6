//! Datanodes with `--encrypt`: what their disks and their store show, and which keys are taken.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path as LocalPath, PathBuf};

use crate::cluster::{Cluster, Shape, block_on, path, run, sanderling, until_drained, until_gone};
use sanderling_client::{Client, ClientConfig, PutOptions};
use sanderling_protocol::NodeSelector;

const PATTERN: &[u8] = b"no others may see this. ";

const BYTES: usize = 3 << 20;

fn pattern() -> Vec<u8> {
    PATTERN.iter().copied().cycle().take(BYTES).collect()
}

fn key_file(directory: &LocalPath, name: &str, text: &str, mode: u32) -> String {
    let path = directory.join(name);
    std::fs::write(&path, text).expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("changed");
    path.to_str().expect("a name in UTF-8").to_owned()
}

fn files(directory: &LocalPath) -> Vec<PathBuf> {
    let found = std::fs::read_dir(directory).into_iter().flatten();
    let paths = found.map(|entry| entry.expect("readable").path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Returns the bytes of all files together, and whether any of them shows the pattern.
fn shown(directory: &LocalPath) -> (usize, bool) {
    let all = files(directory);
    let read = all.iter().map(|file| std::fs::read(file).expect("readable"));
    read.fold((0, false), |(bytes, is_shown), file| {
        let shows = file.windows(PATTERN.len()).any(|window| window == PATTERN);
        (bytes + file.len(), is_shown || shows)
    })
}

async fn put(client: &Client) {
    let class = "disk".parse().expect("a class");
    let options = PutOptions { class, ..PutOptions::default() };
    client.put(&path("/secret"), pattern().into(), &options).await.expect("stored");
}

async fn assert_readable(client: &Client) {
    assert!(client.get(&path("/secret")).await.expect("readable") == pattern(), "other bytes");
}

#[test]
fn disk_and_store_show_nothing_and_another_node_with_the_key_reads_on() {
    for is_encrypted in [false, true] {
        let mut cluster = Cluster::start(Shape { datanodes: 0, ..Shape::default() });
        let [disk, objects] = ["disk", "objects"].map(|name| cluster.path(name));
        std::fs::create_dir_all(&objects).expect("made");
        let key = key_file(&cluster.path(""), "key", &"0f".repeat(32), 0o600);
        let encrypt: &[&str] = if is_encrypted { &["--encrypt", &key] } else { &[] };
        let url = format!("file://{}", objects.display());
        let store = ["--object", &url, "--object-bytes", "64MiB", "--dram", "64KiB"];
        let on_disk = ["--disk", "64MiB", "--disk-dir", disk.to_str().expect("a name in UTF-8")];
        cluster.add("n0", &[&on_disk[..], encrypt].concat());
        block_on(async {
            // Over TCP, as a client on another machine.
            let config = ClientConfig { same_host: false, ..ClientConfig::default() };
            let client = cluster.client_of(config).await;
            put(&client).await;
            let (bytes, is_shown) = shown(&disk);
            assert!(bytes >= BYTES, "it is on disk: {bytes}");
            assert_eq!(is_shown, !is_encrypted);
            assert_readable(&client).await;
            for name in ["o0", "o1"] {
                cluster.add(name, &[&store[..], encrypt].concat());
            }
            let node = NodeSelector("n0".to_owned());
            client.notice(&node, 200_000, "test").await.expect("taken");
            until_drained(&client, "n0").await;
            cluster.datanode("n0").kill();
            until_gone(&client, "n0").await;
            let (bytes, is_shown) = shown(&objects);
            assert!(bytes >= BYTES, "it is in the store: {bytes}");
            assert_eq!(is_shown, !is_encrypted);
            assert_readable(&client).await;
            cluster.datanode("o0").kill();
            until_gone(&client, "o0").await;
            assert_readable(&client).await;
            assert_other_keys_are_refused(&cluster, &store, is_encrypted);
            assert_readable(&client).await;
            let report = client.report().await.expect("the namenode answers");
            assert_eq!((report.blocks, report.bytes), (0, 0), "{report:?}");
        });
    }
}

fn assert_other_keys_are_refused(cluster: &Cluster, store: &[&str], is_encrypted: bool) {
    let other = key_file(&cluster.path(""), "other", &"f0".repeat(32), 0o600);
    let with_other: &[&str] = &["--encrypt", &other];
    let cases = if is_encrypted {
        vec![(&[][..], "this node has no key"), (with_other, "another key than this node's")]
    } else {
        vec![(with_other, "is not encrypted")]
    };
    for (encrypt, expected) in cases {
        let namenode = ["datanode", "--namenode", &cluster.namenode.address];
        let refused = run(sanderling().args(namenode).args(store).args(encrypt));
        assert_eq!(refused.code, 1, "{refused}");
        assert!(refused.stderr.contains(expected), "{refused}");
    }
}

#[test]
fn file_that_is_no_key_or_open_to_others_is_refused() {
    let place = tempfile::tempdir().expect("a directory");
    let key = "0f".repeat(32);
    for (text, mode, expected) in [
        (&key[..], 0o644, "others than its owner can read it"),
        (&key[1..], 0o600, "no key of 32 bytes"),
        ("", 0o600, "no key of 32 bytes"),
    ] {
        let file = key_file(place.path(), "key", text, mode);
        let refused = run(sanderling().args(["datanode", "--encrypt", &file]));
        assert_ne!(refused.code, 0, "{refused}");
        assert!(refused.stderr.contains(expected), "{refused}");
        assert!(text.is_empty() || !refused.stderr.contains(text), "{refused}");
    }
}

#[test]
fn local_cluster_encrypts_its_disks() {
    let place = tempfile::tempdir().expect("a directory");
    key_file(place.path(), "key", &"0f".repeat(32), 0o600);
    std::fs::write(place.path().join("pattern"), pattern()).expect("written");
    let here = |words: &str| run(sanderling().current_dir(place.path()).args(words.split(' ')));
    let start = "local start --dir local --port 0 --datanodes 1 --dram 8MiB";
    let refused = here(&format!("{start} --encrypt key"));
    assert_eq!(refused.code, 2, "there is nothing to encrypt: {refused}");
    let started = here(&format!("{start} --disk 16MiB --encrypt key"));
    let put = here(&format!(
        "--namenode {} fs put pattern /secret --class disk:refuse",
        started.stdout.trim()
    ));
    let (bytes, is_shown) = shown(&place.path().join("local").join("disk"));
    let stopped = here("local stop --dir local");
    assert_eq!((started.code, put.code, stopped.code), (0, 0, 0), "{started}{put}{stopped}");
    assert!(bytes >= BYTES && !is_shown, "{bytes} bytes on disk");
}

#[test]
fn blocks_of_a_node_with_another_key_are_served_again_once_it_is_decommissioned() {
    let mut cluster = Cluster::start(Shape { datanodes: 1, dram: "64MiB", ..Shape::default() });
    let place = cluster.path("");
    let url = format!("file://{}", cluster.path("objects").display());
    let [key, other] = [("key", "0f"), ("other", "f0")]
        .map(|(name, byte)| key_file(&place, name, &byte.repeat(32), 0o600));
    let store = |bytes, key| {
        ["--object", &url, "--object-bytes", bytes, "--dram", "64KiB", "--encrypt", key]
            .map(str::to_owned)
    };
    // The store is empty when both join. No block has room at the second.
    for (name, bytes, key) in [("o0", "64MiB", &key), ("wrong", "64KiB", &other)] {
        cluster.add(name, &store(bytes, key).each_ref().map(String::as_str));
    }
    block_on(async {
        let config = ClientConfig { same_host: false, ..ClientConfig::default() };
        let client = cluster.client_of(config).await;
        let options = PutOptions::default();
        client.put(&path("/secret"), pattern().into(), &options).await.expect("stored");
        let node = NodeSelector("n0".to_owned());
        client.notice(&node, 200_000, "test").await.expect("taken");
        until_drained(&client, "n0").await;
        for name in ["n0", "o0"] {
            cluster.datanode(name).kill();
            until_gone(&client, name).await;
        }
        let refused = cluster.cli(&["fs", "cat", "/secret", "--timeout", "3s"]);
        assert_eq!(refused.code, 124, "{refused}");
        let report = client.report().await.expect("the namenode answers");
        assert_eq!((report.blocks, report.bytes), (0, 0), "{report:?}");
        cluster.add("o1", &store("64MiB", &key).each_ref().map(String::as_str));
        client.decommission(&NodeSelector("wrong".to_owned()), "test").await.expect("taken");
        assert_readable(&client).await;
        let report = client.report().await.expect("the namenode answers");
        assert_eq!((report.blocks, report.bytes), (0, 0), "{report:?}");
    });
}
