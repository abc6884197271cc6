//! The archive of a namenode that serves, and what is true after another one continues from it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::cluster::guarded::text;
use crate::cluster::namenodes::{Group, assert_there, client, put};
use crate::cluster::tasks::{SmallDisk, is_root};
use crate::cluster::{
    Cluster, Ran, SOON, Server, Shape, block_on, bytes_of, http, path, run, sanderling, spawn_with,
    take_away, until,
};
use sanderling_client::{Client, PutOptions};

const BYTES: usize = 100_000;

/// A cluster whose namenode has an archive in the directory that is returned.
pub(crate) fn archived(datanodes: usize) -> (Cluster, tempfile::TempDir) {
    let archive = tempfile::tempdir().expect("a directory for the archive");
    let namenode = vec!["--archive".to_owned(), text(archive.path().join("a"))];
    let cluster = Cluster::start(Shape { datanodes, namenode, ..Shape::default() });
    (cluster, archive)
}

pub(crate) fn place(archive: &tempfile::TempDir) -> String {
    text(archive.path().join("a"))
}

pub(crate) async fn store(client: &Client, seed: u64) {
    let to = path(&format!("/{seed}"));
    client.put(&to, bytes_of(seed, BYTES), &PutOptions::default()).await.expect("stored");
}

pub(crate) async fn assert_stored(client: &Client, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let read = client.get(&path(&format!("/{seed}"))).await.expect("readable");
        assert!(read == bytes_of(seed, BYTES), "/{seed} has other bytes");
    }
}

/// Loses the namenode's directory, and makes another one from the archive.
pub(crate) fn recover(cluster: &Cluster, archive: &str, flags: &[&str]) -> Ran {
    let catalog = cluster.path("catalog");
    if catalog.exists() && !flags.contains(&"--replace") {
        fs::rename(&catalog, cluster.path("lost")).expect("renamed");
    }
    let catalog = text(catalog);
    let words = ["namenode", "recover", "--archive", archive, "--dir", &catalog];
    run(sanderling().args(words).args(flags))
}

pub(crate) async fn gauge(cluster: &Cluster, name: &str) -> f64 {
    let page = http::page(&cluster.namenode.http_address, "/metrics").await;
    let mut lines = page.lines();
    let line = lines.find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.unwrap_or_else(|| panic!("{name} is there: {page}")).parse().expect("a number")
}

/// Waits until everything that was acknowledged by now is in the archive.
pub(crate) async fn until_archived(cluster: &Cluster) {
    let (acknowledged, limit) = (Instant::now(), Instant::now() + SOON);
    loop {
        let lag = gauge(cluster, "sanderling_namenode_archive_lag_seconds").await;
        if Duration::from_secs_f64(lag) < acknowledged.elapsed() {
            return;
        }
        assert!(Instant::now() < limit, "the archive is {lag} s behind");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn numbers(client: &Client, seeds: std::ops::Range<u64>) -> BTreeSet<u64> {
    let mut numbers = BTreeSet::new();
    for seed in seeds {
        let stat = client.stat(&path(&format!("/{seed}"))).await.expect("there");
        numbers.insert(stat.object.0);
    }
    numbers
}

/// Stores objects until it is stopped; counts those that were acknowledged.
async fn write_on(client: &Client, stored: &AtomicU64, is_done: &AtomicBool) {
    while !is_done.load(Ordering::Relaxed) {
        let seed = stored.load(Ordering::Relaxed);
        store(client, seed).await;
        stored.store(seed + 1, Ordering::Relaxed);
    }
}

#[test]
fn namenode_that_was_stopped_continues_elsewhere_and_no_client_notices() {
    let (mut cluster, archive) = archived(2);
    let archive = place(&archive);
    block_on(async {
        let client = cluster.client().await;
        let (is_done, stored) = (AtomicBool::new(false), AtomicU64::new(0));
        let replace = async {
            let enough = || stored.load(Ordering::Relaxed);
            while enough() < 10 {
                tokio::task::yield_now().await;
            }
            // The notice of the namenode's machine.
            tokio::task::block_in_place(|| {
                cluster.namenode.terminate();
                let status = cluster.namenode.wait(SOON);
                assert!(status.success(), "{status}: {}", cluster.namenode.log());
                let recovered = recover(&cluster, &archive, &[]);
                assert_eq!(recovered.code, 0, "{recovered}");
                assert!(recovered.stdout.contains("no change is missing"), "{recovered}");
                cluster.start_namenode(&["--archive", &archive]);
            });
            let limit = enough() + 10;
            while enough() < limit {
                tokio::task::yield_now().await;
            }
            is_done.store(true, Ordering::Relaxed);
        };
        // Each of its calls succeeds, those of the time without a namenode too.
        let ((), ()) = tokio::join!(replace, write_on(&client, &stored, &is_done));
        let stored = stored.into_inner();
        assert_stored(&client, 0..stored).await;
        let report = client.report().await.expect("the namenode answers");
        assert_eq!((report.blocks, report.bytes), (0, 0), "{report:?}");
        let found = numbers(&client, 0..stored).await;
        assert_eq!(found.len() as u64, stored, "each object has a number of its own");
        assert_eq!(client.fsck().await.expect("answered").problems.len(), 0);
    });
}

/// It begins on a snapshot, so that its journal alone is no whole copy.
#[test]
fn namenode_that_is_stopped_at_once_leaves_a_whole_copy_of_its_catalog() {
    let mut cluster = Cluster::of(1);
    let (file, http) = (text(cluster.path("backup")), cluster.namenode.http_address.clone());
    let taken = cluster.cli(&["namenode", "backup", "--to", &file, "--http", &http]);
    assert_eq!(taken.code, 0, "{taken}");
    cluster.namenode.kill();
    let catalog = text(cluster.path("catalog"));
    fs::rename(&catalog, cluster.path("before")).expect("renamed");
    let words = ["namenode", "restore", "--from", &file, "--dir", &catalog];
    let restored = run(sanderling().args(words));
    assert_eq!(restored.code, 0, "{restored}");
    let archive = tempfile::tempdir().expect("a directory for the archive");
    let archive = place(&archive);
    cluster.start_namenode(&["--archive", &archive]);
    cluster.namenode.terminate();
    assert!(cluster.namenode.wait(SOON).success(), "{}", cluster.namenode.log());
    let recovered = recover(&cluster, &archive, &[]);
    assert_eq!(recovered.code, 0, "{recovered}");
    assert!(recovered.stdout.contains("no change is missing"), "{recovered}");
}

#[test]
fn next_command_names_the_new_directory_and_the_archive_as_one_word_each() {
    let archive = tempfile::tempdir().expect("a directory for the archive");
    let archive = text(archive.path().join("of a; touch b"));
    let namenode = vec!["--archive".to_owned(), archive.clone()];
    let mut cluster = Cluster::start(Shape { datanodes: 1, namenode, ..Shape::default() });
    let (file, http) = (text(cluster.path("backup")), cluster.namenode.http_address.clone());
    let taken = cluster.cli(&["namenode", "backup", "--to", &file, "--http", &http]);
    assert_eq!(taken.code, 0, "{taken}");
    cluster.namenode.terminate();
    assert!(cluster.namenode.wait(SOON).success(), "{}", cluster.namenode.log());
    let restored = text(cluster.path("restored; touch b"));
    let words = ["namenode", "restore", "--from", &file, "--dir", &restored];
    let ran = run(sanderling().args(words));
    let next = format!("next: sanderling namenode --dir '{restored}'\n");
    assert!(ran.code == 0 && ran.stdout.contains(&next), "{ran}");
    let recovered = text(cluster.path("recovered; touch b"));
    let words = ["namenode", "recover", "--archive", &archive, "--dir", &recovered];
    let ran = run(sanderling().args(words));
    let next = format!("next: sanderling namenode --dir '{recovered}' --archive '{archive}'\n");
    assert!(ran.code == 0 && ran.stdout.contains(&next), "{ran}");
}

#[test]
fn killed_namenode_leaves_all_but_its_last_second() {
    let (mut cluster, archive) = archived(2);
    let archive = place(&archive);
    block_on(async {
        let client = cluster.client().await;
        for seed in 0..10 {
            store(&client, seed).await;
        }
        until_archived(&cluster).await;
        for seed in 10..20 {
            store(&client, seed).await;
        }
        let given = numbers(&client, 0..20).await;
        cluster.namenode.kill();
        let recovered = recover(&cluster, &archive, &[]);
        assert_eq!(recovered.code, 0, "{recovered}");
        assert!(recovered.stdout.contains("may be missing"), "{recovered}");
        cluster.start_namenode(&["--archive", &archive]);
        let client = cluster.client().await;
        assert_stored(&client, 0..10).await;
        for seed in 10..20 {
            // What is there has the right bytes, as far as it was published.
            if let Ok(read) = client.get(&path(&format!("/{seed}"))).await {
                assert!(bytes_of(seed, BYTES).starts_with(&read), "/{seed} has other bytes");
            }
        }
        for seed in 100..110 {
            store(&client, seed).await;
        }
        let again = numbers(&client, 100..110).await;
        assert!(again.is_disjoint(&given), "{again:?} were given out before: {given:?}");
        assert_eq!(client.fsck().await.expect("answered").problems.len(), 0);
    });
}

#[test]
fn paused_namenode_ends_when_another_one_has_taken_over() {
    let (mut cluster, archive) = archived(1);
    let archive = place(&archive);
    block_on(async {
        store(&cluster.client().await, 0).await;
        until_archived(&cluster).await;
    });
    cluster.namenode.pause();
    let directory = text(cluster.path("other"));
    let words = ["namenode", "recover", "--archive", &archive, "--dir", &directory];
    let recovered = run(sanderling().args(words));
    assert_eq!(recovered.code, 0, "{recovered}");
    let listen = ["namenode", "--listen", "127.0.0.1:0", "--http", "none", "--dir", &directory];
    let words = [&listen[..], &["--archive", &archive]].concat();
    // Each start is a generation, and removes those before the last one.
    for _ in 0..3 {
        let mut other = spawn_with(&cluster.path(""), "other", &words, &[]).serves();
        other.terminate();
        assert!(other.wait(SOON).success(), "{}", other.log());
    }
    let other = spawn_with(&cluster.path(""), "other", &words, &[]).serves();
    cluster.namenode.resume();
    let status = cluster.namenode.wait(SOON);
    assert_eq!(status.code(), Some(1), "{}", cluster.namenode.log());
    let log = cluster.namenode.log();
    assert!(log.contains("another namenode has taken over"), "{log}");
    drop(other);
}

/// A generation without a manifest is removed, and its mark stays: the generation before it, which
/// is kept, is that of the paused namenode.
#[test]
fn paused_namenode_ends_also_when_its_successor_has_died_without_a_manifest() {
    let (mut cluster, archive) = archived(1);
    let place = place(&archive);
    block_on(async {
        store(&cluster.client().await, 0).await;
        until_archived(&cluster).await;
    });
    cluster.namenode.pause();
    let directory = text(cluster.path("other"));
    let words = ["namenode", "recover", "--archive", &place, "--dir", &directory];
    let recovered = run(sanderling().args(words));
    assert_eq!(recovered.code, 0, "{recovered}");
    let first = fs::read_dir(&place).expect("listed").flatten().next().expect("a generation");
    let second = PathBuf::from(text(first.path()).replace("-0000000001-", "-0000000002-"));
    fs::create_dir(&second).expect("made");
    let part = second.join("journal-of-it.part");
    for path in [&second.join("began"), &part] {
        fs::write(path, b"").expect("written");
    }
    let listen = ["namenode", "--listen", "127.0.0.1:0", "--http", "none", "--dir", &directory];
    let words = [&listen[..], &["--archive", &place]].concat();
    let other = spawn_with(&cluster.path(""), "other", &words, &[]).serves();
    until("the third generation is whole", SOON, || (!part.exists()).then_some(()));
    cluster.namenode.resume();
    let status = cluster.namenode.wait(SOON);
    assert_eq!(status.code(), Some(1), "{}", cluster.namenode.log());
    assert!(cluster.namenode.log().contains("another namenode has taken over"));
    drop(other);
}

#[test]
fn recovery_reports_that_a_later_namenode_has_stored_nothing() {
    let (mut cluster, archive) = archived(1);
    let place = place(&archive);
    cluster.namenode.terminate();
    assert!(cluster.namenode.wait(SOON).success(), "{}", cluster.namenode.log());
    // As a start on the same directory leaves it that is killed at once.
    let first = fs::read_dir(&place).expect("listed").flatten().next().expect("a generation");
    let later = text(first.file_name().into()).replace("0000000001", "0000000002");
    fs::create_dir(archive.path().join("a").join(&later)).expect("made");
    fs::write(archive.path().join("a").join(later).join("began"), b"").expect("written");
    let recovered = recover(&cluster, &place, &[]);
    assert_eq!(recovered.code, 0, "{recovered}");
    assert!(recovered.stdout.contains("has begun generation 2 since"), "{recovered}");
    assert!(!recovered.stdout.contains("no change is missing"), "{recovered}");
}

/// A start leaves the generation before until it has a whole copy, and that one alone is older.
#[test]
fn newest_generation_that_is_removed_is_stored_again_beside_the_one_before() {
    let (mut cluster, archive) = archived(1);
    let place = place(&archive);
    block_on(async { store(&cluster.client().await, 0).await });
    cluster.namenode.terminate();
    assert!(cluster.namenode.wait(SOON).success(), "{}", cluster.namenode.log());
    cluster.start_namenode(&["--archive", &place]);
    let whole = || {
        let entries = fs::read_dir(&place).expect("listed").flatten().map(|entry| entry.path());
        let mut generations: Vec<_> = entries.collect();
        generations.sort();
        let newest = generations.pop().filter(|_| !generations.is_empty())?;
        let mut names = fs::read_dir(&newest).ok()?.flatten().map(|entry| entry.file_name());
        names.any(|name| text(name.into()).starts_with("manifest-")).then_some(newest)
    };
    let newest = until("a second generation", SOON, whole);
    take_away(&newest);
    assert_eq!(until("the same again", SOON, || whole().filter(|it| *it == newest)), newest);
    cluster.namenode.terminate();
    assert!(cluster.namenode.wait(SOON).success(), "{}", cluster.namenode.log());
    let recovered = recover(&cluster, &place, &[]);
    assert!(recovered.stdout.contains("no change is missing"), "{recovered}");
}

#[test]
fn archive_that_is_emptied_is_stored_again() {
    let (mut cluster, archive) = archived(1);
    let place = place(&archive);
    let manifest = || {
        let generations = fs::read_dir(&place).into_iter().flatten().flatten();
        let names = generations.flat_map(|it| fs::read_dir(it.path()).into_iter().flatten());
        let mut names = names.flatten().map(|entry| text(entry.file_name().into()));
        names.any(|name| name.starts_with("manifest-")).then_some(())
    };
    block_on(async { store(&cluster.client().await, 0).await });
    until("a manifest", SOON, manifest);
    take_away(&place);
    fs::create_dir(&place).expect("made");
    until("a manifest again", SOON, manifest);
    block_on(async { store(&cluster.client().await, 1).await });
    // Then only a piece of the journal, a moment before the end.
    fs::remove_file(object(&place, "journal-")).expect("removed");
    cluster.namenode.terminate();
    assert!(cluster.namenode.wait(SOON).success(), "{}", cluster.namenode.log());
    assert!(cluster.namenode.log().contains("everything is stored again"));
    let recovered = recover(&cluster, &place, &[]);
    assert!(recovered.stdout.contains("no change is missing"), "{recovered}");
    cluster.start_namenode(&["--archive", &place]);
    block_on(async { assert_stored(&cluster.client().await, 0..2).await });
}

/// What is removed before a manifest has named it is stored again too.
#[test]
fn piece_that_is_removed_before_a_manifest_names_it_is_stored_again() {
    let (mut cluster, archive) = archived(1);
    let place = place(&archive);
    block_on(async {
        let client = cluster.client().await;
        store(&client, 0).await;
        until_archived(&cluster).await;
        // Directories lie where the next manifests would go.
        let newest = object(&place, "manifest-");
        let generation = newest.parent().expect("a generation").to_owned();
        let name = text(newest.file_name().expect("a name").into());
        let number: u64 = name.trim_start_matches("manifest-").parse().expect("a number");
        let blocked: Vec<_> = (number + 1..number + 1_000)
            .map(|number| generation.join(format!("manifest-{number:012}")))
            .collect();
        blocked.iter().for_each(|path| fs::create_dir(path).expect("made"));
        let pieces = || -> BTreeSet<PathBuf> {
            let paths = fs::read_dir(&generation).expect("listed").flatten().map(|it| it.path());
            let is_piece = |path: &PathBuf| text(path.clone()).ends_with(".part");
            paths.filter(is_piece).collect()
        };
        let before = pieces();
        store(&client, 1).await;
        let new = || pieces().difference(&before).next().cloned();
        fs::remove_file(until("a new piece", SOON, new)).expect("removed");
        cluster.namenode.terminate();
        let is_closing = || cluster.namenode.log().contains("once more").then_some(());
        until("a first attempt to close", SOON, is_closing);
        blocked.iter().for_each(|path| fs::remove_dir(path).expect("removed"));
    });
    assert!(cluster.namenode.wait(SOON).success(), "{}", cluster.namenode.log());
    let recovered = recover(&cluster, &place, &[]);
    assert!(recovered.stdout.contains("no change is missing"), "{recovered}");
    cluster.start_namenode(&["--archive", &place]);
    block_on(async { assert_stored(&cluster.client().await, 0..2).await });
}

#[test]
fn archive_that_fails_holds_no_change_up_and_catches_up() {
    let (mut cluster, archive) = archived(1);
    let (kept, place) = (archive.path().join("kept"), place(&archive));
    block_on(async {
        let client = cluster.client().await;
        store(&client, 0).await;
        until_archived(&cluster).await;
        fs::rename(&place, &kept).expect("renamed");
        fs::write(&place, b"no directory").expect("written");
        store(&client, 1).await;
        let limit = Instant::now() + SOON;
        while gauge(&cluster, "sanderling_namenode_archive_up").await != 0.0 {
            assert!(Instant::now() < limit, "{}", cluster.namenode.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        store(&client, 2).await;
        fs::remove_file(&place).expect("removed");
        fs::rename(&kept, &place).expect("renamed");
        until_archived(&cluster).await;
        let log = cluster.namenode.log();
        assert!(log.contains("changes go on") && log.contains("takes changes again"), "{log}");
        assert!(gauge(&cluster, "sanderling_namenode_archive_up").await == 1.0);
    });
    cluster.namenode.kill();
    let recovered = recover(&cluster, &place, &[]);
    assert_eq!(recovered.code, 0, "{recovered}");
    cluster.start_namenode(&[]);
    block_on(async { assert_stored(&cluster.client().await, 0..3).await });
}

/// A cluster with an archive on a disk that is full: the last of two objects is not in it.
fn with_full_archive() -> (SmallDisk, String, Cluster) {
    let disk = SmallDisk::of(4);
    let place = text(disk.path().join("a"));
    let namenode = vec!["--archive".to_owned(), place.clone()];
    let cluster = Cluster::start(Shape { datanodes: 1, namenode, ..Shape::default() });
    block_on(async {
        store(&cluster.client().await, 0).await;
        until_archived(&cluster).await;
        disk.fill_but(0);
        store(&cluster.client().await, 1).await;
    });
    (disk, place, cluster)
}

#[test]
fn namenode_that_starts_again_reports_by_how_much_its_archive_is_behind() {
    const LAG: &str = "sanderling_namenode_archive_lag_seconds";
    if !is_root("archive_lag") {
        return;
    }
    let (disk, place, mut cluster) = with_full_archive();
    block_on(async {
        let limit = Instant::now() + SOON;
        while gauge(&cluster, LAG).await < 4.0 {
            assert!(Instant::now() < limit, "{}", cluster.namenode.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    cluster.namenode.kill();
    cluster.start_namenode(&["--archive", &place]);
    let lag = block_on(gauge(&cluster, LAG));
    assert!(lag >= 4.0, "{lag} s: the disk is still full, and has no newer state");
    disk.empty();
    block_on(until_archived(&cluster));
}

/// The store has room again before the time for the last changes is over.
#[test]
fn namenode_that_ends_while_its_archive_is_full_tries_again() {
    if !is_root("ends_while_its_archive_is_full") {
        return;
    }
    let (disk, place, mut cluster) = with_full_archive();
    let tried = "changes go on, and are not in the archive";
    until("it cannot be stored", SOON, || cluster.namenode.log().contains(tried).then_some(()));
    cluster.namenode.terminate();
    let tried = "the archive did not take the last changes";
    until("it tries", SOON, || cluster.namenode.log().contains(tried).then_some(()));
    disk.empty();
    assert!(cluster.namenode.wait(SOON).success(), "{}", cluster.namenode.log());
    fs::remove_dir_all(cluster.path("catalog")).expect("removed");
    let recovered = recover(&cluster, &place, &[]);
    assert_eq!(recovered.code, 0, "{recovered}");
    cluster.start_namenode(&["--archive", &place]);
    block_on(async { assert_stored(&cluster.client().await, 0..2).await });
}

#[test]
fn namenode_with_an_older_directory_or_another_cluster_does_not_start() {
    let (mut cluster, archive) = archived(1);
    let place = place(&archive);
    let flags = ["--archive", &place];
    let stop = |cluster: &mut Cluster| {
        cluster.namenode.terminate();
        assert!(cluster.namenode.wait(SOON).success(), "{}", cluster.namenode.log());
    };
    stop(&mut cluster);
    copy(&cluster.path("catalog"), &cluster.path("older"));
    cluster.start_namenode(&flags);
    block_on(async { store(&cluster.client().await, 0).await });
    stop(&mut cluster);
    fs::rename(cluster.path("catalog"), cluster.path("newer")).expect("renamed");
    fs::rename(cluster.path("older"), cluster.path("catalog")).expect("renamed");
    let behind = cluster.refused_namenode(&flags);
    assert!(behind.code == 1 && behind.stderr.contains("has only"), "{behind}");
    assert!(behind.stderr.contains("namenode recover --archive"), "{behind}");
    // As it advises.
    let recovered = recover(&cluster, &place, &["--replace"]);
    assert_eq!(recovered.code, 0, "{recovered}");
    cluster.start_namenode(&flags);
    block_on(async { assert_stored(&cluster.client().await, 0..1).await });
    stop(&mut cluster);
    fs::rename(cluster.path("catalog"), cluster.path("mine")).expect("renamed");
    let other = cluster.refused_namenode(&flags);
    assert!(other.code == 1 && other.stderr.contains("is of cluster"), "{other}");
}

#[test]
fn namenode_whose_archive_fails_does_not_start() {
    let (mut cluster, archive) = archived(1);
    block_on(async { store(&cluster.client().await, 0).await });
    cluster.namenode.terminate();
    assert!(cluster.namenode.wait(SOON).success(), "{}", cluster.namenode.log());
    let (place, away) = (place(&archive), archive.path().join("away"));
    fs::rename(&place, &away).expect("renamed");
    fs::write(&place, "").expect("a file in its place");
    let flags = ["--archive", &place];
    let refused = cluster.refused_namenode(&flags);
    assert!(refused.code == 1 && refused.stderr.contains(&place), "{refused}");
    fs::remove_file(&place).expect("removed");
    fs::rename(&away, &place).expect("renamed");
    cluster.start_namenode(&flags);
    block_on(async { assert_stored(&cluster.client().await, 0..1).await });
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).expect("made");
    for entry in fs::read_dir(from).expect("listed").flatten() {
        fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
    }
}

/// Returns the object of the newest generation whose name begins so.
pub(crate) fn object(archive: &str, begin: &str) -> PathBuf {
    let names = |path: &Path| {
        let mut names: Vec<PathBuf> =
            fs::read_dir(path).expect("listed").flatten().map(|entry| entry.path()).collect();
        names.sort();
        names
    };
    let generation = names(archive.as_ref()).pop().expect("a generation");
    let is_meant = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(begin))
    };
    names(&generation).into_iter().find(is_meant).expect("an object")
}

#[test]
fn damaged_archive_is_refused_and_changes_nothing() {
    let (mut cluster, archive) = archived(1);
    let place = place(&archive);
    block_on(async {
        store(&cluster.client().await, 0).await;
        until_archived(&cluster).await;
    });
    let running = recover_into(&cluster, &place, &["--replace"]);
    assert!(running.code == 1 && running.stderr.contains("in use"), "{running}");
    assert!(running.stderr.contains("--dir DIR, or stop that namenode first"), "{running}");
    cluster.namenode.kill();
    let full = recover_into(&cluster, &place, &[]);
    assert!(full.code == 1 && full.stderr.contains("--replace"), "{full}");
    let other = recover_into(&cluster, &place, &["--cluster", "0123456789abcdef"]);
    assert!(other.code == 1 && other.stderr.contains("holds no catalog"), "{other}");
    let none = recover_into(&cluster, &place, &["--generation", "77"]);
    assert!(none.code == 1 && none.stderr.contains("it has 1"), "{none}");
    for begin in ["manifest", "journal-"] {
        let object = object(&place, begin);
        let whole = fs::read(&object).expect("readable");
        let mut flipped = whole.clone();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 1;
        for damaged in [&flipped[..], &whole[..whole.len() - 1]] {
            fs::write(&object, damaged).expect("written");
            let target = text(cluster.path("damaged"));
            let words = ["namenode", "recover", "--archive", &place, "--dir", &target];
            let refused = run(sanderling().args(words));
            assert!(refused.code == 1 && refused.stderr.contains("damaged"), "{refused}");
            // Nothing starts on what was damaged.
            let words = ["namenode", "--listen", "127.0.0.1:0", "--http", "none", "--dir", &target];
            match cluster.path("damaged/restore-unfinished").exists() {
                true => {
                    let started = run(sanderling().args(words));
                    assert!(started.stderr.contains("did not reach its end"), "{started}");
                }
                false => assert!(!cluster.path("damaged").exists(), "{begin}"),
            }
            let _ = fs::remove_dir_all(&target);
        }
        fs::remove_file(&object).expect("removed");
        let before = names_in(&cluster.path("catalog"));
        let missing = recover_into(&cluster, &place, &["--replace"]);
        assert_eq!(missing.code, 1, "{missing}");
        assert_eq!(names_in(&cluster.path("catalog")), before, "{begin}");
        fs::write(&object, &whole).expect("written");
    }
    // A whole manifest of another catalog than the one that is there.
    let object = object(&place, "manifest-");
    let whole = fs::read(&object).expect("readable");
    let mut manifest: serde_json::Value = serde_json::from_slice(&whole[9..]).expect("JSON");
    manifest["commands"] = (manifest["commands"].as_u64().expect("counted") + 1).into();
    let json = manifest.to_string();
    let sum = sanderling_protocol::checksum::crc32c(json.as_bytes());
    fs::write(&object, format!("{sum:08x}\n{json}")).expect("written");
    let target = text(cluster.path("other"));
    let words = ["namenode", "recover", "--archive", &place, "--dir", &target];
    let refused = run(sanderling().args(words));
    assert!(refused.code == 1 && refused.stderr.contains("damaged"), "{refused}");
    let words = ["namenode", "--listen", "127.0.0.1:0", "--http", "none", "--dir", &target];
    let started = run(sanderling().args(words));
    assert!(started.code != 0 && started.stderr.contains("did not reach its end"), "{started}");
    fs::write(&object, &whole).expect("written");
    let recovered = recover_into(&cluster, &place, &["--replace"]);
    assert_eq!(recovered.code, 0, "{recovered}");
    cluster.start_namenode(&[]);
    block_on(async { assert_stored(&cluster.client().await, 0..1).await });
}

fn names_in(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).expect("listed").flatten();
    entries.map(|entry| text(entry.file_name().into())).collect()
}

fn recover_into(cluster: &Cluster, archive: &str, flags: &[&str]) -> Ran {
    let catalog = text(cluster.path("catalog"));
    let words = ["namenode", "recover", "--archive", archive, "--dir", &catalog];
    run(sanderling().args(words).args(flags))
}

/// A bucket, which the gateway of another cluster serves.
struct Bucket {
    cluster: Cluster,
    gateway: Server,
}

/// The archive in the bucket.
const IN_BUCKET: &str = "s3://archives/namenode";

impl Bucket {
    fn start() -> Self {
        let cluster = Cluster::of(1);
        let address = cluster.namenode.address.clone();
        let words = ["gateway", "s3", "--namenode", &address, "--listen", "127.0.0.1:0"];
        let gateway = cluster.serve("gateway", &[&words[..], &["--http", "none"]].concat());
        let made = cluster.cli(&["fs", "mkdir", "/archives"]);
        assert_eq!(made.code, 0, "{made}");
        Self { cluster, gateway }
    }

    fn variables(&self) -> Vec<(&'static str, PathBuf)> {
        let endpoint = format!("http://{}", self.gateway.address);
        let variables = [
            ("AWS_ENDPOINT_URL", endpoint.as_str()),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "sanderling"),
            ("AWS_SECRET_ACCESS_KEY", "sanderling"),
        ];
        variables.map(|(name, value)| (name, PathBuf::from(value))).to_vec()
    }

    /// Spawns a namenode with its archive in the bucket.
    fn spawn(&self, directory: &Path, (listen, catalog): (&str, &str)) -> Server {
        let words = ["namenode", "--listen", listen, "--http", "127.0.0.1:0", "--dir", catalog];
        let words = [&words[..], &["--archive", IN_BUCKET, "--voters", "1"]].concat();
        let variables = self.variables();
        let variables: Vec<(&str, &Path)> =
            variables.iter().map(|(name, value)| (*name, value.as_path())).collect();
        spawn_with(directory, "namenode", &words, &variables).serves()
    }

    fn recover(&self, words: &[&str]) -> Ran {
        let recovered = run(sanderling().envs(self.variables()).args(words));
        assert_eq!(recovered.code, 0, "{recovered}");
        assert!(recovered.stdout.contains("no change is missing"), "{recovered}");
        recovered
    }

    fn generations(&self) -> String {
        until("the generations", SOON, || {
            let listed = self.cluster.cli(&["fs", "ls", "/archives/namenode"]);
            (listed.code == 0).then_some(listed.stdout)
        })
    }
}

#[test]
fn recovery_without_a_store_or_without_room_reports_which() {
    let (cluster, archive) = archived(1);
    let place = place(&archive);
    block_on(async {
        store(&cluster.client().await, 0).await;
        until_archived(&cluster).await;
    });
    let fresh = text(cluster.path("fresh"));
    let words = ["namenode", "recover", "--archive", IN_BUCKET, "--dir", &fresh];
    let keys = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"].map(|name| (name, "sanderling"));
    let endpoint = |url| [("AWS_ENDPOINT_URL", url), ("AWS_REGION", "us-east-1")];
    let mut command = sanderling();
    let silent = run(command.args(words).envs(keys).envs(endpoint("http://127.0.0.1:1")));
    assert!(silent.code == 4 && silent.stderr.contains("when the store answers"), "{silent}");
    // Keys in the endpoint are refused before anything is sent, and not repeated.
    let mut command = sanderling();
    let keyed = endpoint("http://AKIA:TOPSECRET@127.0.0.1:1");
    let refused = run(command.args(words).envs(keyed));
    assert!(refused.stderr.contains("AWS_ENDPOINT_URL has a user or a password"), "{refused}");
    assert!(refused.code != 0 && !refused.stderr.contains("TOPSECRET"), "{refused}");
    let keyed = "s3://AKIA:TOP/SECRET@archives/namenode";
    let words = ["namenode", "recover", "--archive", keyed, "--dir", &fresh];
    let refused = run(sanderling().args(words));
    assert!(refused.stderr.contains("s3://***@archives/namenode"), "{refused}");
    assert!(refused.code != 0 && !refused.stderr.contains("SECRET@"), "{refused}");
    // No file may be larger than one unit of the shell, 512 or 1,024 bytes.
    let script = "trap '' XFSZ; ulimit -f 0; exec \"$@\"";
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", script, "sh", env!("CARGO_BIN_EXE_sanderling"), "namenode", "recover"]);
    let full = run(shell.args(["--archive", &place, "--dir", &fresh]));
    assert!(full.code == 1 && full.stderr.contains("another --dir, on a disk with room"), "{full}");
    assert!(full.stderr.contains("no file was exchanged in it"), "{full}");
    assert!(!cluster.path("fresh").exists(), "{full}");
}

#[test]
fn archive_in_a_bucket_is_recovered_from_there() {
    let bucket = Bucket::start();
    let mut cluster = Cluster::of(1);
    let catalog = text(cluster.path("catalog"));
    let start = |cluster: &mut Cluster| {
        let listen = cluster.namenode.address.clone();
        cluster.namenode = bucket.spawn(&cluster.path(""), (&listen, &catalog));
    };
    cluster.namenode.kill();
    start(&mut cluster);
    block_on(async {
        let client = cluster.client().await;
        for seed in 0..5 {
            store(&client, seed).await;
        }
    });
    cluster.namenode.terminate();
    assert!(cluster.namenode.wait(SOON).success(), "{}", cluster.namenode.log());
    fs::rename(&catalog, cluster.path("lost")).expect("renamed");
    bucket.recover(&["namenode", "recover", "--archive", IN_BUCKET, "--dir", &catalog]);
    start(&mut cluster);
    block_on(async { assert_stored(&cluster.client().await, 0..5).await });
    let generations = bucket.generations();
    assert!(generations.contains("generation-0000000002"), "{generations}");
}

/// Returns whether a namenode's writer runs. It ends after the archive's own task, and before the
/// archive is closed.
fn has_writer(pid: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut names = tasks.map(|task| fs::read_to_string(task.path().join("comm")));
    names.any(|name| name.is_ok_and(|name| name.trim_end() == "journal-writer"))
}

/// The store does not answer from before the last voter leads until its writer has ended: it has
/// begun no generation of the archive by then.
#[test]
fn last_leader_without_a_generation_of_its_archive_begins_one_and_closes_it() {
    let bucket = Bucket::start();
    let mut group = Group::start(1, &["--voters", "1"]);
    let first = group.addresses[0].clone();
    group.add("127.0.0.1:0", Some(&first), &["--voters", "1"]);
    until("the spare is a member", SOON, || (group.roles(0).len() == 2).then_some(()));
    let directory = group.directory.path().to_owned();
    let catalog = text(directory.join("catalog-0"));
    group.kill(1);
    group.kill(0);
    bucket.gateway.pause();
    let mut leader = bucket.spawn(&directory, (&first, &catalog));
    block_on(async { put(&client(&first).await, 0).await });
    leader.terminate();
    until("its writer has ended", SOON, || (!has_writer(leader.pid())).then_some(()));
    assert_eq!(leader.ended(), None, "{}", leader.log());
    bucket.gateway.resume();
    assert!(leader.wait(SOON).success(), "{}", leader.log());
    assert!(leader.log().contains("the archive is closed"), "{}", leader.log());
    let anew = text(directory.join("anew"));
    bucket.recover(&["group", "recover", "--archive", IN_BUCKET, "--dir", &anew]);
    let words = ["namenode", "--listen", "127.0.0.1:0", "--http", "none", "--dir", &anew];
    let server = spawn_with(&directory, "anew", &words, &[]).serves();
    block_on(async { assert_there(&client(&server.address).await, 0..1).await });
}
