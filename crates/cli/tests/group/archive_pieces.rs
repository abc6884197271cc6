//! The objects of an archive: which are stored again, alone or as one, and which cannot be removed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sanderling_client::Client;
use sanderling_protocol::message::Attributes;

use crate::archive::{
    archived, assert_stored, gauge, object, place, recover, store, until_archived,
};
use crate::cluster::guarded::text;
use crate::cluster::{Cluster, SOON, Shape, block_on, path, until};

/// Changes the catalog by some 8,000 bytes of the journal.
async fn change(client: &Client, number: u64) {
    let mut attributes = Attributes::none();
    attributes.set("text", format!("{number:08000}"));
    client.set_attributes(&path("/0"), None, attributes).await.expect("set");
}

/// Returns where each piece of the journal in the archive's only generation begins and ends.
fn pieces(archive: &str) -> Vec<(u64, u64)> {
    let generation = object(archive, "manifest-").parent().expect("a generation").to_owned();
    let names = fs::read_dir(generation).expect("listed").flatten();
    let names = names.map(|entry| text(entry.file_name().into()));
    let piece = |name: String| {
        let name = name.strip_prefix("journal-")?.strip_suffix(".part")?.to_owned();
        let numbers: Vec<u64> = name.split('-').filter_map(|it| it.parse().ok()).collect();
        let [_first, from, to] = numbers[..] else { return None };
        Some((from, to))
    };
    let mut pieces: Vec<_> = names.filter_map(piece).collect();
    pieces.sort_unstable();
    pieces
}

/// The first short pieces become one of almost 8 MiB, which no later one fits into.
#[test]
fn archive_of_a_journal_of_many_mebibytes_follows_it_to_the_end() {
    let (mut cluster, archive) = archived(1);
    let place = place(&archive);
    block_on(async {
        let client = cluster.client().await;
        store(&client, 0).await;
        for number in 0..1_500 {
            change(&client, number).await;
        }
        // Each of these changes is in a piece of its own, so there are too many short ones.
        for number in 0..70 {
            change(&client, number).await;
            until_archived(&cluster).await;
        }
        let pieces = pieces(&place);
        let end = pieces.iter().map(|(_, to)| *to).max().expect("a piece");
        assert!(end > 10 << 20, "the journal has {end} bytes");
        // On a busy machine the first look may find only a few bytes.
        let is_joined = pieces.iter().any(|(from, to)| to - from > 4 << 20);
        assert!(is_joined, "short pieces became no long one: {pieces:?}");
    });
    cluster.namenode.terminate();
    assert!(cluster.namenode.wait(SOON).success(), "{}", cluster.namenode.log());
    let recovered = recover(&cluster, &place, &[]);
    assert_eq!(recovered.code, 0, "{recovered}");
    assert!(recovered.stdout.contains("no change is missing"), "{recovered}");
    cluster.start_namenode(&["--archive", &place]);
    block_on(async { assert_stored(&cluster.client().await, 0..1).await });
}

/// Returns the manifests of a generation, without those that are being written.
fn manifests(generation: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(generation).expect("listed").flatten().map(|entry| entry.path());
    let is_manifest = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let number = name.as_deref().and_then(|name| name.strip_prefix("manifest-"));
        number.is_some_and(|number| number.parse::<u64>().is_ok())
    };
    paths.filter(is_manifest).collect()
}

/// Puts a directory into the place of the newest manifest, unless another one comes meanwhile.
fn obstruct_newest_manifest(archive: &str) {
    let generation = object(archive, "manifest-").parent().expect("a generation").to_owned();
    let newest = manifests(&generation).into_iter().max().expect("a manifest");
    if fs::remove_file(&newest).is_ok() {
        fs::create_dir(&newest).expect("made");
    }
}

#[test]
fn object_that_cannot_be_removed_from_the_archive_is_logged() {
    let (cluster, archive) = archived(1);
    let place = place(&archive);
    block_on(async {
        let (client, limit) = (cluster.client().await, Instant::now() + SOON);
        store(&client, 0).await;
        for number in 0.. {
            change(&client, number).await;
            until_archived(&cluster).await;
            if cluster.namenode.log().contains("objects that the archive no longer needs stay") {
                break;
            }
            obstruct_newest_manifest(&place);
            assert!(Instant::now() < limit, "{}", cluster.namenode.log());
        }
    });
}

/// The third generation removes the first, in which there is a file that is none of the archive's
/// objects: the store refuses to remove it by the name of an object.
#[test]
fn older_generation_that_cannot_be_removed_does_not_hold_the_archive_up() {
    let (mut cluster, archive) = archived(1);
    let place = place(&archive);
    block_on(async {
        store(&cluster.client().await, 0).await;
        until_archived(&cluster).await;
    });
    let first = object(&place, "manifest-").parent().expect("a generation").to_owned();
    fs::create_dir(first.join("other")).expect("made");
    fs::write(first.join("other").join("file"), "").expect("written");
    for _ in 0..2 {
        cluster.namenode.terminate();
        assert!(cluster.namenode.wait(SOON).success(), "{}", cluster.namenode.log());
        cluster.start_namenode(&["--archive", &place]);
        block_on(until_archived(&cluster));
    }
    let stays = "objects that the archive no longer needs stay";
    until("it stays", SOON, || cluster.namenode.log().contains(stays).then_some(()));
    block_on(async {
        store(&cluster.client().await, 1).await;
        until_archived(&cluster).await;
        assert!(gauge(&cluster, "sanderling_namenode_archive_up").await == 1.0);
    });
    let log = cluster.namenode.log();
    assert!(!log.contains("are not in the archive") && first.join("other").exists(), "{log}");
}

/// Without a manager nothing is written to the journal while no client calls: the next change would
/// bring another manifest.
#[test]
fn manifest_that_is_removed_while_nothing_changes_is_stored_again() {
    let archive = tempfile::tempdir().expect("a directory for the archive");
    let place = place(&archive);
    let namenode = vec!["--archive".to_owned(), place.clone(), "--no-manager".to_owned()];
    let mut cluster = Cluster::start(Shape { datanodes: 1, namenode, ..Shape::default() });
    block_on(async {
        store(&cluster.client().await, 0).await;
        until_archived(&cluster).await;
    });
    let generation = object(&place, "manifest-").parent().expect("a generation").to_owned();
    manifests(&generation).iter().for_each(|path| fs::remove_file(path).expect("removed"));
    // What is there is compared once a minute.
    let limit = Duration::from_secs(60) + SOON;
    until("a manifest again", limit, || (!manifests(&generation).is_empty()).then_some(()));
    cluster.namenode.kill();
    let recovered = recover(&cluster, &place, &[]);
    assert_eq!(recovered.code, 0, "{recovered}");
    cluster.start_namenode(&["--archive", &place]);
    block_on(async { assert_stored(&cluster.client().await, 0..1).await });
}
