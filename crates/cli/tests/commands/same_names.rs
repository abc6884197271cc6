//! Several sources of one name, and local names at which something is that is no file.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use crate::cluster::{Cluster, block_on, bytes_of, path, run};
use sanderling_client::PutOptions;
use tempfile::TempDir;

/// A cluster with `/g/1/s`, `/g/2/s` and the directory `/g/t`.
fn cluster() -> Cluster {
    let cluster = Cluster::of(1);
    assert_eq!(cluster.cli(&["fs", "mkdir", "-p", "/g/t"]).code, 0);
    block_on(async {
        let client = cluster.client().await;
        let options = PutOptions { parents: true, ..PutOptions::default() };
        for seed in [1, 2] {
            let to = path(&format!("/g/{seed}/s"));
            client.put(&to, bytes_of(seed, 3000), &options).await.expect("stored");
        }
    });
    cluster
}

async fn assert_both(cluster: &Cluster) {
    let client = cluster.client().await;
    for seed in [1, 2] {
        let read = client.get(&path(&format!("/g/{seed}/s"))).await.expect("it is there");
        assert!(read == bytes_of(seed, 3000), "/g/{seed}/s has other bytes");
    }
    client.stat(&path("/g/t/s")).await.expect_err("nothing became that");
}

#[test]
fn sources_of_one_name_are_refused_before_anything_is_done() {
    let cluster = cluster();
    let place = TempDir::new().expect("a directory");
    let local = place.path().display().to_string();
    for name in ["1", "2", "out"] {
        fs::create_dir(place.path().join(name)).expect("made");
        fs::write(place.path().join(name).join("s"), name).expect("written");
    }
    fs::remove_file(place.path().join("out/s")).expect("removed");
    let (one, two, out) = (format!("{local}/1/s"), format!("{local}/2/s"), format!("{local}/out"));
    for words in [
        &["fs", "mv", "-f", "/g/[12]/s", "/g/t/"][..],
        &["fs", "cp", "-f", "/g/[12]/s", "/g/t/"],
        &["fs", "put", "-f", &one, &two, "/g/t/"],
        &["fs", "get", "/g/[12]/s", &out],
    ] {
        let ran = cluster.cli(words);
        assert!(ran.code == 2 && ran.stderr.contains("would both become"), "{words:?}: {ran}");
        block_on(assert_both(&cluster));
    }
    assert_eq!(fs::read_dir(&out).expect("there").count(), 0, "something was fetched");
}

#[test]
fn fetched_file_replaces_no_pipe_and_no_link_that_was_not_to_be_replaced() {
    let cluster = cluster();
    let place = TempDir::new().expect("a directory");
    let (pipe, link) = (place.path().join("pipe"), place.path().join("link"));
    assert_eq!(run(Command::new("mkfifo").arg(&pipe)).code, 0);
    symlink(place.path().join("nothing"), &link).expect("linked");
    let get =
        |to: &str, flags: &[&str]| cluster.cli(&[&["fs", "get", "/g/1/s", to], flags].concat());
    for flags in [&[][..], &["--force"]] {
        let ran = get(&pipe.display().to_string(), flags);
        assert!(ran.code == 1 && ran.stderr.contains("is no regular file"), "{ran}");
        assert!(ran.stderr.contains("sanderling fs get /g/1/s -"), "{ran}");
    }
    let ran = get(&link.display().to_string(), &[]);
    assert!(ran.code == 1 && ran.stderr.contains("exists"), "{ran}");
    assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
    // The longest name that a file has here, too.
    let long = place.path().join("x".repeat(255));
    let ran = get(&long.display().to_string(), &[]);
    assert_eq!(ran.code, 0, "{ran}");
    assert!(fs::read(&long).expect("there") == bytes_of(1, 3000));
}

#[test]
fn tree_is_fetched_but_for_what_cannot_be_written_here() {
    let cluster = cluster();
    block_on(async {
        let client = cluster.client().await;
        for name in ["/g/0", "/g/3"] {
            let (to, options) = (path(name), PutOptions::default());
            client.put(&to, bytes_of(9, 500), &options).await.expect("stored");
        }
    });
    let place = TempDir::new().expect("a directory");
    let at = |name: &str| place.path().join(name);
    // A file where a directory belongs, and a directory where a file does.
    fs::write(at("1"), "a file").expect("written");
    fs::create_dir(at("0")).expect("made");
    let local = place.path().display().to_string();
    let ran = cluster.cli(&["fs", "get", "-r", "/g", &local]);
    assert_eq!(ran.code, 1, "{ran}");
    for named in [at("1"), at("0")] {
        assert!(ran.stderr.contains(&named.display().to_string()), "{ran}");
    }
    assert!(ran.stderr.contains("fetched 2 objects"), "{ran}");
    assert!(fs::read(at("2/s")).expect("there") == bytes_of(2, 3000), "it was left out");
    assert!(fs::read(at("3")).expect("there") == bytes_of(9, 500), "it was left out");
    assert_eq!(fs::read(at("1")).expect("there"), b"a file");
    // Again, for a program: all but what was fetched fails, and each failure is an object.
    let ran = cluster.cli(&["fs", "get", "-r", "/g", &local, "--json"]);
    assert_eq!(ran.code, 1, "{ran}");
    let failed: Vec<serde_json::Value> =
        ran.stderr.lines().map(|line| serde_json::from_str(line).expect("JSON lines")).collect();
    assert_eq!(failed.len(), 4, "{ran}");
    assert!(failed.iter().all(|it| it["error"]["kind"] == "LocalFile"), "{ran}");
}
