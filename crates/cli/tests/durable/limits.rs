//! What a store may not have: another file system below it, and an object above a tebibyte.

use std::fs;

use crate::cluster::stores::{files, fleet, make, put, put_out, reported};
use crate::cluster::tasks::{Mounted, is_root};
use crate::cluster::{SOON, block_on, bytes_of, path, until};

/// An object gets its name by a rename, which does not lead from one file system to another.
#[test]
fn file_system_that_is_mounted_below_a_store_stalls_its_directory_until_it_is_gone() {
    if !is_root("file_system_that_is_mounted_below_a_store") {
        return;
    }
    let (cluster, store) = fleet(1);
    make(&cluster, "/out");
    put_out(&cluster, "/out/first", 1);
    let mounted = Mounted::memory(&store.join("below"), "mode=755");
    block_on(async {
        put(&cluster.client().await, "/out/below/object", 2, 5000).await;
    });
    until("the reason is shown", SOON, || {
        let shown = cluster.json(&["fs", "stat", "/out"]);
        let why = shown["objects"][0]["durability"]["stalled"].as_str().unwrap_or_default();
        why.contains("cross-device link").then_some(())
    });
    assert_eq!(files(&store).keys().collect::<Vec<_>>(), ["first"]);
    drop(mounted);
    let synced = cluster.cli(&["fs", "sync", "/out", "--timeout", "60s"]);
    assert_eq!(synced.code, 0, "{synced}");
    assert!(files(&store)["below/object"] == bytes_of(2, 5000));
}

#[test]
fn adoption_leaves_an_object_above_a_tebibyte_where_it_is() {
    let (cluster, store) = fleet(1);
    fs::write(store.join("small"), "foreign").expect("written");
    // A hole takes no room.
    let large = fs::File::create(store.join("large")).expect("made");
    large.set_len((1 << 40) + 1).expect("a file may be so long");
    reported(&cluster);
    let made = cluster.json(&["fs", "mkdir", "/in", "--durable", "archive", "--adopt"]);
    let adopted = &made["adopted"][0];
    let counts = (adopted["objects"].as_u64(), adopted["skipped"].as_u64());
    assert_eq!(counts, (Some(1), Some(1)), "{made}");
    let first = adopted["skipped_first"].as_str().unwrap_or_default();
    assert!(first.contains("large") && first.contains("it has 1099511627777 of"), "{made}");
    assert_eq!(large.metadata().expect("there").len(), (1 << 40) + 1);
    let read = block_on(async { cluster.client().await.get(&path("/in/small")).await });
    assert_eq!(&read.expect("it is read back")[..], b"foreign");
}
