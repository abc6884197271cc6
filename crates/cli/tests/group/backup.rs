//! Backups of a namenode that serves, and what is true after one is restored.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::cluster::guarded::{Guarded, text};
use crate::cluster::namenodes::{Group, assert_there, client, put_large};
use crate::cluster::tasks::{Mounted, SmallDisk, is_root};
use crate::cluster::{Cluster, Ran, SOON, block_on, bytes_of, path, run, sanderling, until};
use sanderling_client::{Client, PutOptions};
use sanderling_protocol::{EventKind, Millis};
use tokio::task::JoinHandle;

const BYTES: usize = 100_000;

async fn store(client: &Client, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let to = path(&format!("/{seed}"));
        client.put(&to, bytes_of(seed, BYTES), &PutOptions::default()).await.expect("stored");
    }
}

fn http(cluster: &Cluster) -> String {
    cluster.namenode.http_address.clone()
}

fn backup(cluster: &Cluster, to: &str) -> Ran {
    cluster.cli(&["namenode", "backup", "--to", to, "--http", &http(cluster)])
}

fn restore(cluster: &Cluster, from: &str, flags: &[&str]) -> Ran {
    let catalog = text(cluster.path("catalog"));
    let words = ["namenode", "restore", "--from", from, "--dir", &catalog];
    run(sanderling().args(words).args(flags))
}

/// What was stored when a backup was taken.
struct Stored {
    /// Objects before the backup, by their seeds.
    before: u64,
    /// Those and the later ones.
    in_all: u64,
    /// The numbers that the namenode gave to all of them.
    numbers: BTreeSet<u64>,
}

/// Takes a backup while a writer goes on, then changes `/0`, which the backup has.
async fn backup_while_writing(client: &Client, backup: impl Fn() -> Ran) -> Stored {
    store(client, 0..20).await;
    let (is_done, stored) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(20)));
    // A task on another thread: this one waits for the backup.
    let writer = tokio::spawn({
        let (client, is_done) = (client.clone(), Arc::clone(&is_done));
        let stored = Arc::clone(&stored);
        async move {
            while !is_done.load(Ordering::Relaxed) {
                let seed = stored.load(Ordering::Relaxed);
                store(&client, seed..seed + 1).await;
                stored.store(seed + 1, Ordering::Relaxed);
            }
        }
    });
    let before = until_stored(&stored, 25, &writer).await;
    let ran = tokio::task::block_in_place(&backup);
    assert_eq!(ran.code, 0, "{ran}");
    let after = stored.load(Ordering::Relaxed);
    assert!(after > before, "nothing was written during the backup");
    until_stored(&stored, after + 3, &writer).await;
    is_done.store(true, Ordering::Relaxed);
    writer.await.expect("everything was stored");
    let in_all = stored.load(Ordering::Relaxed);
    // The backup has /0 with its bytes; the catalog that is lost has others.
    client.delete(&path("/0"), false).await.expect("removed");
    client.put(&path("/0"), bytes_of(999, BYTES), &PutOptions::default()).await.expect("put");
    Stored { before, in_all, numbers: numbers(client, in_all).await }
}

/// Waits until so many objects are stored; returns how many are.
async fn until_stored(stored: &AtomicU64, count: u64, writer: &JoinHandle<()>) -> u64 {
    loop {
        let found = stored.load(Ordering::Relaxed);
        if found >= count {
            return found;
        }
        assert!(!writer.is_finished(), "the writer ended after {found} objects");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Checks what a namenode has that was started on a backup: all of what was there before, of the
/// rest nothing with other bytes, and no number twice.
async fn assert_restored(client: &Client, stored: &Stored) {
    assert_report(client).await;
    let mut gone = 0;
    for seed in 0..stored.in_all {
        let is_later = seed >= stored.before;
        match client.get(&path(&format!("/{seed}"))).await {
            // It was being written at the instant of the backup.
            Ok(read) if is_later && read.len() < BYTES => {
                assert!(bytes_of(seed, BYTES).starts_with(&read), "/{seed} has other bytes");
                gone += 1;
            }
            Ok(read) => assert!(read == bytes_of(seed, BYTES), "/{seed} has other bytes"),
            // Its bytes were deleted after the backup.
            Err(_) if seed == 0 => {}
            Err(error) => {
                assert!(is_later, "/{seed} was there before the backup: {error}");
                gone += 1;
            }
        }
    }
    assert!(gone > 0, "nothing was written after the backup: the test shows nothing");
    store(client, 1000..1010).await;
    for seed in 1000..1010 {
        let stat = client.stat(&path(&format!("/{seed}"))).await.expect("there");
        assert!(!stored.numbers.contains(&stat.object.0), "{} was given out", stat.object.0);
    }
    assert_eq!(client.fsck().await.expect("answered").problems.len(), 0);
}

#[test]
fn restored_namenode_serves_what_the_backup_has_and_reports_the_rest() {
    let mut cluster = Cluster::of(2);
    let file = text(cluster.path("catalog.backup"));
    block_on(async {
        let client = cluster.client().await;
        let stored = backup_while_writing(&client, || backup(&cluster, &file)).await;
        let mode = fs::metadata(&file).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let health = crate::cluster::http::get(&http(&cluster), "/healthz").await;
        cluster.namenode.kill();
        let catalog = cluster.path("catalog");
        fs::rename(&catalog, cluster.path("lost")).expect("renamed");
        let restored = restore(&cluster, &file, &[]);
        assert_eq!(restored.code, 0, "{restored}");
        // As if one of another cluster had been killed at its very end, and then this one: the same
        // command ends it.
        let mark = cluster.path("catalog/restore-unfinished");
        fs::write(&mark, "0123456789abcdef").expect("written");
        let other = restore(&cluster, &file, &[]);
        assert!(other.code == 1 && other.stderr.contains("--replace"), "{other}");
        fs::write(&mark, health["cluster"].as_str().expect("an id")).expect("written");
        let again = restore(&cluster, &file, &[]);
        assert_eq!(again.code, 0, "{again}");
        cluster.start_namenode(&[]);
        assert_restored(&cluster.client().await, &stored).await;
    });
}

/// Returns the numbers of the objects that are there.
async fn numbers(client: &Client, stored: u64) -> BTreeSet<u64> {
    let mut numbers = BTreeSet::new();
    for seed in 0..stored {
        let stat = client.stat(&path(&format!("/{seed}"))).await.expect("there");
        numbers.insert(stat.object.0);
    }
    numbers
}

/// Waits until a datanode has shown blocks that only the lost end of the log had.
async fn assert_report(client: &Client) {
    // They are kept for 30 s first.
    let limit = std::time::Instant::now() + SOON + SOON;
    loop {
        let events = client.events(0, 10_000, Millis(0)).await.expect("the namenode answers");
        if events.iter().any(|event| matches!(event.kind, EventKind::BlocksOrphaned { .. })) {
            let report = client.report().await.expect("the namenode answers");
            assert!(report.bytes > 0, "what is dropped counts as lost: {report:?}");
            return;
        }
        assert!(std::time::Instant::now() < limit, "not reported: {events:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn backup_in_a_bucket_that_is_taken_while_a_writer_goes_on_is_restored_from_there() {
    let mut cluster = Cluster::of(1);
    let store_of_backups = Cluster::of(1);
    let gateway = store_of_backups.serve(
        "gateway",
        &[
            "gateway",
            "s3",
            "--namenode",
            &store_of_backups.namenode.address,
            "--listen",
            "127.0.0.1:0",
            "--http",
            "none",
        ],
    );
    let endpoint = format!("http://{}", gateway.address);
    let made = store_of_backups.cli(&["fs", "mkdir", "/backups"]);
    assert_eq!(made.code, 0, "{made}");
    let with_bucket = |words: &[&str]| {
        let mut command = sanderling();
        for (name, value) in [
            ("AWS_ENDPOINT_URL", endpoint.as_str()),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "sanderling"),
            ("AWS_SECRET_ACCESS_KEY", "sanderling"),
        ] {
            command.env(name, value);
        }
        run(command.args(words))
    };
    let (http, to) = (http(&cluster), "s3://backups/catalog.backup");
    let take = || with_bucket(&["namenode", "backup", "--to", to, "--http", &http]);
    // The namenode answers: what fails is the bucket.
    let none = "s3://none/catalog.backup";
    let refused = with_bucket(&["namenode", "backup", "--to", none, "--http", &http]);
    let tried = format!("  tried: to write {none}\n");
    assert!(refused.code == 4 && refused.stderr.contains(&tried), "{refused}");
    let unmade = text(cluster.path("unmade"));
    let refused = with_bucket(&["namenode", "restore", "--from", none, "--dir", &unmade]);
    let tried = format!("  tried: to read {none}\n");
    assert!(refused.code == 4 && refused.stderr.contains(&tried), "{refused}");
    block_on(async {
        let stored = backup_while_writing(&cluster.client().await, take).await;
        cluster.namenode.kill();
        fs::rename(cluster.path("catalog"), cluster.path("lost")).expect("renamed");
        let catalog = text(cluster.path("catalog"));
        let restored = with_bucket(&["namenode", "restore", "--from", to, "--dir", &catalog]);
        assert_eq!(restored.code, 0, "{restored}");
        cluster.start_namenode(&[]);
        assert_restored(&cluster.client().await, &stored).await;
    });
}

#[test]
fn restore_refuses_directories_in_use_other_clusters_and_damaged_backups() {
    let mut cluster = Cluster::of(1);
    let file = text(cluster.path("catalog.backup"));
    let taken = backup(&cluster, &file);
    assert_eq!(taken.code, 0, "{taken}");
    let running = restore(&cluster, &file, &["--replace"]);
    assert_eq!(running.code, 1, "{running}");
    assert!(running.stderr.contains("is in use by another namenode"), "{running}");
    let next = format!("next:  sanderling namenode restore --from {file} --replace --dir DIR, or ");
    assert!(running.stderr.contains(&next), "{running}");
    let catalog = text(cluster.path("catalog"));
    assert!(running.stderr.contains(&format!("tried: restore into {catalog}\n")), "{running}");
    cluster.namenode.kill();
    let full = restore(&cluster, &file, &[]);
    assert!(full.code == 1 && full.stderr.contains("--replace"), "{full}");
    let looked = format!("tried: looked at {catalog}: it is as it was\n");
    assert!(full.stderr.contains(&looked), "{full}");
    let other = restore(&cluster, &file, &["--replace", "--cluster", "0123456789abcdef"]);
    assert!(other.code == 1 && other.stderr.contains("of cluster"), "{other}");
    let read = format!("tried: read {file}; {catalog} is as it was\n");
    assert!(other.stderr.contains(&read), "{other}");
    let whole = fs::read(&file).expect("readable");
    let cut = text(cluster.path("cut"));
    fs::write(&cut, &whole[..whole.len() - 1]).expect("written");
    let damaged = restore(&cluster, &cut, &["--replace"]);
    assert!(damaged.code == 1 && damaged.stderr.contains("damaged"), "{damaged}");
    // None of that changed the directory.
    cluster.start_namenode(&[]);
    cluster.namenode.kill();
    let replaced = restore(&cluster, &file, &["--replace"]);
    assert_eq!(replaced.code, 0, "{replaced}");
    assert!(cluster.path("catalog/replaced-1").is_dir());
    cluster.start_namenode(&[]);
}

#[test]
fn restore_that_fails_in_the_exchange_reports_the_state_of_the_directory() {
    if !is_root("restore_that_fails_in_the_exchange_reports_the_state_of_the_directory") {
        return;
    }
    let mut cluster = Cluster::of(0);
    let file = text(cluster.path("catalog.backup"));
    let taken = backup(&cluster, &file);
    assert_eq!(taken.code, 0, "{taken}");
    cluster.namenode.kill();
    let catalog = text(cluster.path("catalog"));
    // A link that leads nowhere keeps its name.
    let link = cluster.path("catalog/replaced-1");
    std::os::unix::fs::symlink("nowhere", &link).expect("linked");
    // The files are set aside in the order of their names: the first of them cannot be.
    // What a file system is mounted on cannot be renamed.
    let mounted = Mounted::memory(&cluster.path("catalog/group-state.held"), "size=1m");
    let failed = restore(&cluster, &file, &["--replace"]);
    let tried = format!(
        "tried: restore into {catalog}: no file was exchanged in it, and it has no mark \
         restore-unfinished\n"
    );
    assert!(failed.code == 1 && failed.stderr.contains(&tried), "{failed}");
    assert!(failed.stderr.contains("cannot set aside "), "{failed}");
    for name in ["restored.tmp", "restore-unfinished", "replaced-2"] {
        assert!(!cluster.path("catalog").join(name).exists(), "{name}: {failed}");
    }
    drop(mounted);
    fs::remove_dir(cluster.path("catalog/group-state.held")).expect("removed");
    // Now the last of them.
    let mounted = Mounted::memory(&cluster.path("catalog/snapshot-held"), "size=1m");
    let failed = restore(&cluster, &file, &["--replace"]);
    let tried = format!(
        "tried: exchanged files in {catalog}, and it has the mark restore-unfinished: no namenode \
         starts on it\n"
    );
    assert!(failed.code == 1 && failed.stderr.contains(&tried), "{failed}");
    assert!(cluster.path("catalog/restore-unfinished").exists(), "{failed}");
    assert!(!cluster.path("catalog/restored.tmp").exists(), "{failed}");
    drop(mounted);
    let replaced = restore(&cluster, &file, &["--replace"]);
    assert_eq!(replaced.code, 0, "{replaced}");
    assert!(fs::symlink_metadata(&link).expect("there").is_symlink(), "{replaced}");
    cluster.start_namenode(&[]);
}

#[test]
fn restore_of_another_cluster_needs_replace_after_each_that_failed() {
    if !is_root("restore_of_another_cluster_needs_replace_after_each_that_failed") {
        return;
    }
    let (mut cluster, other) = (Cluster::of(0), Cluster::of(0));
    let [own, others] = ["own.backup", "others.backup"].map(|it| text(cluster.path(it)));
    for (of, file) in [(&cluster, &own), (&other, &others)] {
        let taken = backup(of, file);
        assert_eq!(taken.code, 0, "{taken}");
    }
    cluster.namenode.kill();
    let mark = cluster.path("catalog/restore-unfinished");
    let marked = || fs::read_to_string(&mark).expect("it is marked");
    // A mount keeps its name, and all before it in the order of the names are set aside.
    let fails = |from: &str, held: &str| {
        let held = cluster.path("catalog").join(held);
        let mounted = Mounted::memory(&held, "size=1m");
        let failed = restore(&cluster, from, &["--replace"]);
        drop(mounted);
        fs::remove_dir(&held).expect("removed");
        assert!(failed.code == 1 && failed.stderr.contains("cannot set aside "), "{failed}");
    };
    let refused = |from: &str| {
        let before = marked();
        let ran = restore(&cluster, from, &[]);
        assert!(ran.code == 1 && ran.stderr.contains("--replace"), "{ran}");
        assert_eq!(marked(), before, "{ran}");
    };
    fails(&own, "snapshot-held");
    let first = marked();
    assert!(first.len() == 16 && cluster.path("catalog/replaced-1").is_dir(), "{first}");
    refused(&others);
    // One that exchanges nothing leaves the mark, also that of a program that named no cluster.
    for text in [first.as_str(), ""] {
        fs::write(&mark, text).expect("written");
        fails(&others, "group-state.held");
        assert_eq!(marked(), text);
        refused(&others);
    }
    // One that exchanges files is repeated as it was begun.
    fs::write(cluster.path("catalog/journal-held"), "older").expect("written");
    fails(&others, "snapshot-held");
    assert_ne!(marked(), first);
    refused(&own);
    let again = restore(&cluster, &others, &[]);
    assert!(again.code == 0 && !mark.exists(), "{again}");
}

/// An earlier release may have left it, whose mark was empty: nothing shows of which cluster the
/// restore was that was cut off.
#[test]
fn restore_over_a_mark_that_names_no_cluster_needs_replace() {
    let mut cluster = Cluster::of(0);
    let file = text(cluster.path("catalog.backup"));
    let taken = backup(&cluster, &file);
    assert_eq!(taken.code, 0, "{taken}");
    let catalog = cluster.path("catalog");
    let mark = catalog.join("restore-unfinished");
    let names = |below: &str| -> BTreeSet<String> {
        let entries = fs::read_dir(catalog.join(below)).expect("readable").flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    let is_catalog = |name: &&String| name.starts_with("journal-") || name.starts_with("snapshot-");
    // The catalog is whole, and then all of it was set aside.
    for (is_aside, aside) in [(false, "replaced-1"), (true, "replaced-2")] {
        cluster.namenode.kill();
        let old: BTreeSet<String> = names("").iter().filter(is_catalog).cloned().collect();
        assert!(!old.is_empty() && !catalog.join(aside).exists());
        if is_aside {
            fs::create_dir(catalog.join(aside)).expect("made");
            for name in &old {
                fs::rename(catalog.join(name), catalog.join(aside).join(name)).expect("renamed");
            }
        }
        fs::write(&mark, "").expect("written");
        let started = cluster.refused_namenode(&[]);
        let why = format!("a restore into {} did not reach its end", catalog.display());
        assert!(started.code == 1 && started.stderr.contains(&why), "{started}");
        let before = names("");
        let refused = restore(&cluster, &file, &[]);
        assert!(refused.code == 1 && refused.stderr.contains(" --replace"), "{refused}");
        let held = if is_aside { "restore-unfinished" } else { "journal-" };
        let why = format!("{} holds {held}", catalog.display());
        assert!(refused.stderr.contains(&why), "no {why:?}: {refused}");
        assert_eq!(names(""), before);
        assert_eq!(fs::read_to_string(&mark).expect("it is marked"), "");
        let replaced = restore(&cluster, &file, &["--replace"]);
        assert!(replaced.code == 0 && !mark.exists(), "{replaced}");
        assert_eq!(names(aside), old, "{replaced}");
        cluster.start_namenode(&[]);
    }
}

/// Returns a backup with another format in its description.
fn of_format(whole: &[u8], format: u32) -> Vec<u8> {
    let length = u32::from_le_bytes(whole[12..16].try_into().expect("four bytes")) as usize;
    let (description, rest) = whole[16..].split_at(length);
    let mut description: serde_json::Value = serde_json::from_slice(description).expect("JSON");
    description["format"] = format.into();
    let description = description.to_string();
    let length = u32::try_from(description.len()).expect("a few hundred bytes").to_le_bytes();
    [&whole[..12], &length[..], description.as_bytes(), rest].concat()
}

#[test]
fn backup_of_a_later_program_and_a_damaged_one_are_refused_and_leave_nothing_new() {
    let cluster = Cluster::of(0);
    let (file, other) = (text(cluster.path("catalog.backup")), cluster.path("other"));
    let taken = backup(&cluster, &file);
    assert_eq!(taken.code, 0, "{taken}");
    let whole = fs::read(&file).expect("readable");
    let mut later = whole.clone();
    later[8] += 1;
    let writer = concat!("written by sanderling ", env!("CARGO_PKG_VERSION"));
    let cases = [
        (of_format(&whole, 99), format!("{writer} in format 99; this program reads ")),
        (later, format!("{writer} in layout 2 of the file; this program reads layout 1\n")),
        (whole[..whole.len() - 1].to_vec(), "the backup is damaged: ".to_owned()),
    ];
    fs::create_dir(cluster.path("empty")).expect("made");
    for (bytes, why) in cases {
        fs::write(&other, &bytes).expect("written");
        for directory in ["fresh/below", "empty"] {
            let mut command = sanderling();
            command.args(["namenode", "restore", "--from"]).arg(&other);
            let refused = run(command.arg("--dir").arg(cluster.path(directory)));
            assert!(refused.code == 1 && refused.stderr.contains(&why), "no {why:?}: {refused}");
        }
        assert!(!cluster.path("fresh").exists(), "{why}");
        let left = fs::read_dir(cluster.path("empty")).expect("readable");
        assert_eq!(left.count(), 0, "{why}");
    }
}

#[test]
fn backup_takes_the_place_of_no_pipe_and_of_no_link() {
    let cluster = Cluster::of(0);
    let [pipe, link, file] = ["pipe", "link", "file"].map(|name| cluster.path(name));
    assert_eq!(run(std::process::Command::new("mkfifo").arg(&pipe)).code, 0);
    let refused = backup(&cluster, &text(pipe.clone()));
    assert!(refused.code == 1 && refused.stderr.contains("is no regular file"), "{refused}");
    assert!(!fs::symlink_metadata(&pipe).expect("there").is_file());
    fs::write(&file, "an older backup").expect("written");
    std::os::unix::fs::symlink(&file, &link).expect("linked");
    let taken = backup(&cluster, &text(link.clone()));
    assert_eq!(taken.code, 0, "{taken}");
    assert!(fs::symlink_metadata(&link).expect("there").is_symlink(), "the link is gone");
    assert!(fs::read(&file).expect("readable").len() > 50, "the file has the older backup");
    // What the link names is on a disk that is not mounted.
    fs::remove_file(&file).expect("removed");
    let refused = backup(&cluster, &text(link.clone()));
    let why = format!("is a link to {}, which cannot be read", file.display());
    assert!(refused.code == 1 && refused.stderr.contains(&why), "{refused}");
    assert!(refused.stderr.contains("when the disk of that file is mounted"), "{refused}");
    assert!(fs::symlink_metadata(&link).expect("there").is_symlink(), "the link is gone");
}

#[test]
fn backup_and_restore_without_room_leave_nothing_and_name_the_disk() {
    let cluster = Cluster::of(1);
    let (file, small) = (text(cluster.path("catalog.backup")), text(cluster.path("small")));
    let taken = backup(&cluster, &file);
    assert_eq!(taken.code, 0, "{taken}");
    let bounded = |words: &[&str]| {
        let mut shell = std::process::Command::new("sh");
        // No file may be larger than one unit of the shell, 512 or 1,024 bytes.
        let script = "trap '' XFSZ; ulimit -f 0; exec \"$@\"";
        shell.args(["-c", script, "sh", env!("CARGO_BIN_EXE_sanderling"), "namenode"]);
        run(shell.args(words).env("SANDERLING_NAMENODE", &cluster.namenode.address))
    };
    let address = http(&cluster);
    let full = bounded(&["backup", "--to", &small, "--http", &address]);
    assert!(full.code == 1 && full.stderr.contains("next:  df -h"), "{full}");
    assert!(!fs::exists(format!("{small}.partial")).expect("looked"), "{full}");
    assert!(!fs::exists(&small).expect("looked"), "{full}");
    let fresh = text(cluster.path("fresh"));
    let full = bounded(&["restore", "--from", &file, "--dir", &fresh]);
    assert!(full.code == 1 && full.stderr.contains("another --dir, on a disk with room"), "{full}");
    let words = ["namenode", "restore", "--from", &file, "--dir", &fresh];
    let again = run(sanderling().args(words));
    assert_eq!(again.code, 0, "{again}");
}

#[test]
fn backup_needs_the_right_to_administer() {
    let guarded = Guarded::encrypted(1, &[]);
    let http = http(&guarded.cluster);
    let to = text(guarded.place.path().join("catalog.backup"));
    let words = ["namenode", "backup", "--to", &to, "--http", &http];
    for flags in [&["--rights", "read,write"][..], &["--rights", "metrics"]] {
        let refused = guarded.cli(Some(&guarded.token(flags)), &words);
        assert_eq!(refused.code, 1, "{refused}");
        assert!(!std::path::Path::new(&to).exists(), "{refused}");
    }
    let taken = guarded.cli(Some(&guarded.token(&["--rights", "admin"])), &words);
    assert_eq!(taken.code, 0, "{taken}");
    fs::remove_file(&to).expect("it is there");
    let words = [&words[..], &["--secret-file", &guarded.secret]].concat();
    let made = guarded.cli(None, &words);
    assert_eq!(made.code, 0, "{made}");
}

#[test]
fn reader_that_stops_reading_keeps_only_other_backups_waiting() {
    use std::io::Write;
    let cluster = Cluster::of(1);
    let (address, file) = (http(&cluster), text(cluster.path("catalog.backup")));
    let mut reader = std::net::TcpStream::connect(&address).expect("connected");
    let request = format!("GET /v1/backup HTTP/1.1\r\nhost: {address}\r\n\r\n");
    reader.write_all(request.as_bytes()).expect("sent");
    block_on(async { store(&cluster.client().await, 0..5).await });
    drop(reader);
    until("a backup after a reader has gone", SOON, || {
        let ran = backup(&cluster, &file);
        assert!(ran.code == 0 || ran.code == 4, "{ran}");
        (ran.code == 0).then_some(())
    });
}

/// The journal lacks the room that a backup takes, for as long as its reader takes to read it.
#[test]
fn backup_that_would_leave_too_little_room_for_the_journal_is_refused_and_changes_go_on() {
    /// What stays free, as the documentation has it.
    const KEPT: u64 = 128 << 20;
    if !is_root("backup_that_would_leave_too_little_room_for_the_journal_is_refused") {
        return;
    }
    let disk = SmallDisk::of(160);
    let mut group = Group::start(0, &[]);
    let catalog = group.directory.path().join("catalog-0");
    std::os::unix::fs::symlink(disk.path(), catalog).expect("linked");
    group.add("127.0.0.1:0", None, &[]);
    let address = group.addresses[0].clone();
    let stored = |numbers: std::ops::Range<u64>| {
        block_on(async {
            let client = client(&address).await;
            for number in numbers {
                put_large(&client, number).await;
            }
        });
    };
    // A backup of more than 2 MiB.
    stored(0..400);
    let file = text(group.directory.path().join("catalog.backup"));
    let http = group.members[0].as_ref().expect("it runs").http_address.clone();
    let take = || group.cli(0, &["namenode", "backup", "--to", &file, "--http", &http]);
    let taken = take();
    assert!(taken.code == 0 && fs::metadata(&file).expect("there").len() > 2 << 20, "{taken}");
    fs::remove_file(&file).expect("it is there");
    // Room for half of it, and for none of it.
    for (left, number) in [(KEPT + (1 << 20), 400), (KEPT - (1 << 20), 401)] {
        disk.fill_but(left);
        let refused = take();
        let why = "it would leave less than 128 MiB free there: free space on that disk";
        assert!(refused.code == 1 && refused.stderr.contains(why), "{left}: {refused}");
        assert!(refused.stderr.contains("df on the namenode's directory"), "{refused}");
        assert!(!fs::exists(&file).expect("looked"), "{refused}");
        let about = rustix::fs::statvfs(disk.path()).expect("mounted");
        assert!(about.f_bavail * about.f_frsize > left - (256 << 10), "what was written is left");
        stored(number..number + 1);
        disk.empty();
    }
    let taken = take();
    assert_eq!(taken.code, 0, "{taken}");
    block_on(async { assert_there(&client(&address).await, 0..402).await });
}
