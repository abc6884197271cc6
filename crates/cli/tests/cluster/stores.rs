//! Clusters whose datanodes reach a store of durable directories, and what lies in the store.

use std::collections::BTreeMap;
use std::path::{Path as LocalPath, PathBuf};

use sanderling_client::{Client, PutOptions};
use sanderling_protocol::message::CreateMode;

use super::{Cluster, SOON, Shape, block_on, bytes_of, path, until};

/// A fleet whose datanodes reach a store in a directory.
pub(crate) fn fleet(datanodes: usize) -> (Cluster, PathBuf) {
    fleet_with(datanodes, &[])
}

/// The same, with further flags of the namenode.
pub(crate) fn fleet_with(datanodes: usize, namenode: &[&str]) -> (Cluster, PathBuf) {
    let namenode = namenode.iter().map(|flag| (*flag).to_owned()).collect();
    let mut cluster = Cluster::start(Shape { datanodes: 0, namenode, ..Shape::default() });
    let store = cluster.path("store");
    std::fs::create_dir(&store).expect("made");
    for number in 0..datanodes {
        add(&mut cluster, &format!("d{number}"), &store);
    }
    (cluster, store)
}

pub(crate) fn add(cluster: &mut Cluster, name: &str, store: &LocalPath) {
    add_with(cluster, name, store, &[]);
}

/// The same, with further flags.
pub(crate) fn add_with(cluster: &mut Cluster, name: &str, store: &LocalPath, flags: &[&str]) {
    let place = format!("archive=file://{}", store.display());
    cluster.add(name, &[&["--durable", &place, "--dram", "64MiB"], flags].concat());
}

/// Makes a durable directory once a datanode has reported its store.
pub(crate) fn make(cluster: &Cluster, directory: &str) {
    let words = ["fs", "mkdir", directory, "--durable", "archive"];
    until("a datanode reports its store", SOON, || {
        let made = cluster.cli(&words);
        assert!(made.code == 0 || made.stderr.contains("no datanode has a store"), "{made}");
        (made.code == 0).then_some(())
    });
}

/// Returns the files of a store, by their relative names, without what is the store's own.
pub(crate) fn files(store: &LocalPath) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut left = vec![store.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(&directory).into_iter().flatten() {
            let place = entry.expect("readable").path();
            let name = place.strip_prefix(store).expect("below the store").to_owned();
            if name.starts_with(".sanderling") {
                continue;
            }
            if place.is_dir() {
                left.push(place);
            } else if let Ok(bytes) = std::fs::read(&place) {
                found.insert(name.display().to_string(), bytes);
            }
        }
    }
    found
}

pub(crate) async fn put(client: &Client, name: &str, seed: u64, bytes: usize) {
    let (mode, parents) = (CreateMode::Replace, true);
    let options = PutOptions { mode, parents, ..PutOptions::default() };
    client.put(&path(name), bytes_of(seed, bytes), &options).await.expect("stored");
}

/// Puts 5,000 bytes of a seed below the durable directory `/out`, and waits until its store has
/// them.
pub(crate) fn put_out(cluster: &Cluster, name: &str, seed: u64) {
    block_on(async {
        let client = cluster.client().await;
        put(&client, name, seed, 5000).await;
        assert_eq!(client.wait_durable(&path("/out"), SOON).await.expect("durable"), None);
    });
}

/// Waits until a datanode has reported the store.
pub(crate) fn reported(cluster: &Cluster) {
    until("a datanode reports its store", SOON, || {
        let words = ["fs", "mkdir", "/reported/below", "--durable", "archive"];
        let refused = cluster.cli(&words);
        // The store is there, and the directory above is not.
        (!refused.stderr.contains("no datanode has a store")).then_some(())
    });
}
