use std::fs;
use std::path::Path;

use sanderling_core::catalog::{Action, Catalog, Command};
use sanderling_protocol::Instant;

use super::*;
use crate::directory::PublishError;
use crate::files::disk::{Disk, Faults};
use crate::snapshot::{self, TakeError};

fn command(at: u64) -> Command {
    Command { at: Instant(at), action: Action::Started { commands: at, cut_bytes: 0 } }
}

fn options(place: &Path) -> NamenodeOptions {
    NamenodeOptions { directory: place.to_owned(), ..NamenodeOptions::default() }
}

fn start(place: &Path) -> Result<(Arc<Directory>, Recovered), NamenodeStartError> {
    let directory = Arc::new(Directory::open(place)?);
    let recovered = recover(&directory, &options(place))?;
    Ok((directory, recovered))
}

fn write(recovered: &mut Recovered, command: &Command) {
    recovered.journal.append([command]).unwrap();
    recovered.namenode.apply(command);
}

fn take_snapshot(directory: &Directory, recovered: &mut Recovered) {
    let catalog = recovered.namenode.catalog();
    let body = snapshot::encode(catalog).unwrap();
    snapshot::write(directory, catalog.index(), &body).unwrap();
}

#[test]
fn empty_directory_begins_a_cluster_and_keeps_its_id() {
    let place = tempfile::tempdir().unwrap();
    let (directory, first) = start(place.path()).unwrap();
    let cluster = first.namenode.catalog().cluster();
    drop((directory, first));
    let (_directory, second) = start(place.path()).unwrap();
    assert_eq!(second.namenode.catalog().cluster(), cluster);
    let other = tempfile::tempdir().unwrap();
    assert_ne!(start(other.path()).unwrap().1.namenode.catalog().cluster(), cluster);
}

#[test]
fn file_that_a_crash_left_half_written_is_removed_at_the_next_start() {
    let place = tempfile::tempdir().unwrap();
    let (directory, first) = start(place.path()).unwrap();
    let half = directory.file(FileKind::Snapshot, 7).with_extension("tmp");
    drop((directory, first));
    fs::write(&half, b"half of a snapshot").unwrap();
    let files = || fs::read_dir(place.path()).unwrap().count();
    let before = files();
    start(place.path()).unwrap();
    assert!(!half.exists());
    assert_eq!(files(), before - 1, "everything else stays");
}

#[test]
fn file_whose_name_no_namenode_writes_is_passed_over_and_stays() {
    let place = tempfile::tempdir().unwrap();
    let (directory, mut first) = start(place.path()).unwrap();
    write(&mut first, &command(1));
    first.journal.rotate().unwrap();
    write(&mut first, &command(2));
    let catalog = first.namenode.catalog().clone();
    // That of a segment, without its zeros.
    let short = place.path().join("journal-1.log");
    fs::copy(directory.file(FileKind::Journal, 1), &short).unwrap();
    drop((directory, first));
    let (directory, second) = start(place.path()).unwrap();
    assert_eq!(*second.namenode.catalog(), catalog);
    assert_eq!(directory.list(FileKind::Journal).unwrap(), [0, 1]);
    assert!(short.exists());
}

#[test]
fn snapshot_and_the_journal_after_it_give_the_same_catalog() {
    let place = tempfile::tempdir().unwrap();
    let (directory, mut first) = start(place.path()).unwrap();
    for at in 0..5 {
        write(&mut first, &command(at));
    }
    first.journal.rotate().unwrap();
    take_snapshot(&directory, &mut first);
    for at in 5..8 {
        write(&mut first, &command(at));
    }
    let catalog = first.namenode.catalog().clone();
    // Both with and without the segment that the snapshot made unnecessary.
    for _ in 0..2 {
        drop(start(place.path()).err());
    }
    drop((directory, first));
    for prune in [false, true] {
        let (directory, second) = start(place.path()).unwrap();
        assert_eq!(*second.namenode.catalog(), catalog);
        assert_eq!((second.commands, second.cut_bytes), (8, 0));
        if !prune {
            directory.prune(5, &[]).unwrap();
        }
    }
}

#[test]
fn log_that_follows_later_rules_is_refused_from_journal_and_snapshot() {
    let place = tempfile::tempdir().unwrap();
    let (directory, mut first) = start(place.path()).unwrap();
    let rules = Catalog::RULES + 1;
    write(&mut first, &Command { at: Instant(1), action: Action::Rules { rules, slice: 512 } });
    first.journal.rotate().unwrap();
    for has_snapshot in [false, true] {
        if has_snapshot {
            take_snapshot(&directory, &mut first);
        }
        let refused = recover(&directory, &options(place.path())).unwrap_err();
        assert!(
            matches!(refused, NamenodeStartError::NewerRules { rules: found, .. }
            if found == rules),
            "{refused}"
        );
    }
}

/// Clients receive the cluster's number. With names that collide under a key that they have, one of
/// them would end the namenode, and every later start.
#[test]
fn names_are_hashed_with_another_key_at_each_start() {
    let place = tempfile::tempdir().unwrap();
    let mut keys = Vec::new();
    for _ in 0..2 {
        let (_, recovered) = start(place.path()).unwrap();
        keys.push(recovered.namenode.config().names_key);
        let cluster = recovered.namenode.catalog().cluster().0;
        assert!(!keys.contains(&0) && !keys.contains(&cluster));
    }
    assert_ne!(keys[0], keys[1]);
}

#[test]
fn snapshot_without_its_journal_starts_a_new_segment() {
    let place = tempfile::tempdir().unwrap();
    let (directory, mut first) = start(place.path()).unwrap();
    write(&mut first, &command(1));
    take_snapshot(&directory, &mut first);
    fs::remove_file(directory.file(FileKind::Journal, 0)).unwrap();
    drop((directory, first));
    let (directory, second) = start(place.path()).unwrap();
    assert_eq!(second.commands, 1);
    assert_eq!(directory.list(FileKind::Journal).unwrap(), [1]);
}

fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn damaged_snapshot_loses_nothing_while_the_journal_before_it_is_there() {
    let place = tempfile::tempdir().unwrap();
    let (directory, mut first) = start(place.path()).unwrap();
    let mut kept = Vec::new();
    for at in 0..9 {
        write(&mut first, &command(at));
        if at % 3 == 2 {
            first.journal.rotate().unwrap();
            let image = first.namenode.catalog().image();
            kept = snapshot::take(&directory, image, &kept).unwrap();
        }
    }
    // Two, and the journal since the older.
    assert_eq!(directory.list(FileKind::Snapshot).unwrap(), [6, 9]);
    assert_eq!(directory.list(FileKind::Journal).unwrap(), [6, 9]);
    write(&mut first, &command(9));
    let catalog = first.namenode.catalog().clone();
    flip(&directory.file(FileKind::Snapshot, 9));
    drop((directory, first));
    let (directory, second) = start(place.path()).unwrap();
    assert_eq!(*second.namenode.catalog(), catalog);
    assert!(matches!(second.found[..], [Action::SnapshotSkipped { index: 9, .. }]));
    assert_eq!(second.snapshots, [6]);
    // The next one does not take the damaged one for one of two.
    let image = second.namenode.catalog().image();
    assert_eq!(snapshot::take(&directory, image, &second.snapshots).unwrap(), [6, 10]);
    assert_eq!(directory.list(FileKind::Snapshot).unwrap(), [6, 10]);
    flip(&directory.file(FileKind::Snapshot, 6));
    flip(&directory.file(FileKind::Snapshot, 10));
    drop((directory, second));
    assert!(matches!(start(place.path()), Err(NamenodeStartError::CorruptSnapshot { .. })));
}

#[test]
fn older_snapshot_that_is_damaged_keeps_what_is_before_it() {
    let place = tempfile::tempdir().unwrap();
    let (directory, mut first) = start(place.path()).unwrap();
    let mut kept = Vec::new();
    for at in 0..4 {
        write(&mut first, &command(at));
        first.journal.rotate().unwrap();
        let image = first.namenode.catalog().image();
        kept = snapshot::take(&directory, image, &kept).unwrap();
        if at == 2 {
            assert_eq!(kept, [2, 3]);
            flip(&directory.file(FileKind::Snapshot, 3));
        }
    }
    assert_eq!(kept, [2, 4]);
    assert_eq!(directory.list(FileKind::Journal).unwrap(), [2, 3, 4]);
}

#[test]
fn first_snapshot_that_is_damaged_is_made_up_for_by_the_whole_journal() {
    let place = tempfile::tempdir().unwrap();
    let (directory, mut first) = start(place.path()).unwrap();
    write(&mut first, &command(1));
    first.journal.rotate().unwrap();
    snapshot::take(&directory, first.namenode.catalog().image(), &[]).unwrap();
    let catalog = first.namenode.catalog().clone();
    flip(&directory.file(FileKind::Snapshot, 1));
    drop((directory, first));
    let (directory, second) = start(place.path()).unwrap();
    assert_eq!(*second.namenode.catalog(), catalog);
    fs::remove_file(directory.file(FileKind::Journal, 0)).unwrap();
    drop((directory, second));
    assert!(matches!(start(place.path()), Err(NamenodeStartError::CorruptSnapshot { .. })));
}

#[test]
fn missing_segment_before_the_last_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let (directory, mut first) = start(place.path()).unwrap();
    write(&mut first, &command(0));
    first.journal.rotate().unwrap();
    write(&mut first, &command(1));
    fs::remove_file(directory.file(FileKind::Journal, 0)).unwrap();
    drop((directory, first));
    assert!(matches!(start(place.path()), Err(NamenodeStartError::CorruptJournal { .. })));
}

#[test]
fn damage_of_a_segment_before_the_last_is_refused_until_it_is_accepted() {
    let place = tempfile::tempdir().unwrap();
    let (directory, mut first) = start(place.path()).unwrap();
    for at in 0..3 {
        write(&mut first, &command(at));
    }
    let good = first.journal.bytes();
    write(&mut first, &command(3));
    first.journal.rotate().unwrap();
    write(&mut first, &command(4));
    let path = directory.file(FileKind::Journal, 0);
    let whole = fs::read(&path).unwrap();
    let later = directory.file(FileKind::Journal, 4);
    drop((directory, first));
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let refused = start(place.path()).unwrap_err();
    let NamenodeStartError::DamagedJournal { offset, records, name, .. } = refused else {
        panic!()
    };
    assert_eq!((offset, records), (good, 1));
    // Of another damage nothing is accepted.
    for wrong in [format!("{name}1"), String::new()] {
        let options = NamenodeOptions { accepted_loss: Some(wrong), ..options(place.path()) };
        let directory = Arc::new(Directory::open(place.path()).unwrap());
        assert!(recover(&directory, &options).is_err());
    }
    assert!(later.exists());
    let accepting = NamenodeOptions { accepted_loss: Some(name), ..options(place.path()) };
    let directory = Arc::new(Directory::open(place.path()).unwrap());
    let mut second = recover(&directory, &accepting).unwrap();
    let loss = second.namenode.catalog().journal_loss();
    assert_eq!((loss.cuts, loss.records), (1, 1));
    assert!(second.namenode.catalog().report().losses[0].why.contains("accepted"));
    assert_eq!(second.commands, 4);
    write(&mut second, &command(5));
    let catalog = second.namenode.catalog().clone();
    let kept = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let kept = kept.filter(|name| name.to_string_lossy().starts_with("cut-")).count();
    assert_eq!(kept, 2, "both the damaged end and the later segment");
    drop((directory, second));
    // From now on it is a directory like any other, the flag being forgotten or not.
    let (_directory, third) = start(place.path()).unwrap();
    assert_eq!(*third.namenode.catalog(), catalog);
}

#[test]
fn header_of_the_last_segment_that_is_damaged_can_be_accepted() {
    let place = tempfile::tempdir().unwrap();
    let (directory, mut first) = start(place.path()).unwrap();
    write(&mut first, &command(0));
    first.journal.rotate().unwrap();
    snapshot::take(&directory, first.namenode.catalog().image(), &[]).unwrap();
    write(&mut first, &command(1));
    let path = directory.file(FileKind::Journal, 1);
    let mut bytes = fs::read(&path).unwrap();
    bytes[17] ^= 1;
    fs::write(&path, bytes).unwrap();
    drop((directory, first));
    let refused = start(place.path()).unwrap_err();
    let NamenodeStartError::DamagedJournal { offset: 0, name, .. } = refused else {
        panic!("{refused}")
    };
    let accepting = NamenodeOptions { accepted_loss: Some(name), ..options(place.path()) };
    let directory = Arc::new(Directory::open(place.path()).unwrap());
    let second = recover(&directory, &accepting).unwrap();
    assert_eq!(second.namenode.catalog().journal_loss().cuts, 1);
    drop((directory, second));
    assert_eq!(start(place.path()).unwrap().1.commands, 2);
}

#[test]
fn journal_that_ends_before_a_damaged_snapshot_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let (directory, mut first) = start(place.path()).unwrap();
    write(&mut first, &command(0));
    write(&mut first, &command(1));
    first.journal.rotate().unwrap();
    snapshot::take(&directory, first.namenode.catalog().image(), &[]).unwrap();
    fs::remove_file(directory.file(FileKind::Journal, 2)).unwrap();
    flip(&directory.file(FileKind::Snapshot, 2));
    let path = directory.file(FileKind::Journal, 0);
    let whole = fs::read(&path).unwrap();
    // Torn, as it seems.
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    drop((directory, first));
    let refused = start(place.path()).unwrap_err();
    let NamenodeStartError::DamagedJournal { records: 1, name, .. } = refused else {
        panic!("{refused}")
    };
    let accepting = NamenodeOptions { accepted_loss: Some(name), ..options(place.path()) };
    let directory = Arc::new(Directory::open(place.path()).unwrap());
    let second = recover(&directory, &accepting).unwrap();
    assert_eq!(second.commands, 2);
    drop((directory, second));
    assert_eq!(start(place.path()).unwrap().1.commands, 2);
}

#[test]
fn nothing_is_kept_aside_where_the_journal_ends_whole_before_a_damaged_snapshot() {
    let place = tempfile::tempdir().unwrap();
    let (directory, mut first) = start(place.path()).unwrap();
    write(&mut first, &command(0));
    let end = first.journal.bytes();
    // The snapshot has a command that the journal does not have.
    first.namenode.apply(&command(1));
    take_snapshot(&directory, &mut first);
    flip(&directory.file(FileKind::Snapshot, 2));
    drop((directory, first));
    let refused = start(place.path()).unwrap_err();
    let NamenodeStartError::DamagedJournal { offset, bytes: 0, records: 1, name, .. } = refused
    else {
        panic!("{refused}")
    };
    assert_eq!(offset, end);
    let accepting = NamenodeOptions { accepted_loss: Some(name), ..options(place.path()) };
    let directory = Arc::new(Directory::open(place.path()).unwrap());
    let second = recover(&directory, &accepting).unwrap();
    let loss = second.namenode.catalog().journal_loss();
    assert_eq!((loss.cuts, loss.records, second.cut_bytes), (1, 1, 0));
    let files = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let files: Vec<String> = files.map(|name| name.to_string_lossy().into_owned()).collect();
    assert!(!files.iter().any(|name| name.starts_with("cut-")), "{files:?}");
    assert!(files.contains(&format!("damaged-snapshot-{:020}.bin", 2)), "{files:?}");
    assert_eq!(directory.list(FileKind::Journal).unwrap(), [0, 1]);
}

#[test]
fn check_returns_what_a_start_would_find_or_refuses_as_it_would() {
    let place = tempfile::tempdir().unwrap();
    let checked = || check(&Arc::new(Directory::open(place.path()).unwrap()));
    let refused = checked().unwrap_err();
    assert!(refused.to_string().contains("it has no command"), "{refused}");
    let (directory, mut first) = start(place.path()).unwrap();
    let cluster = first.namenode.catalog().cluster();
    for at in 0..3 {
        write(&mut first, &command(at));
    }
    let path = directory.file(FileKind::Journal, 0);
    drop((directory, first));
    let whole = fs::read(&path).unwrap();
    assert_eq!(checked().unwrap(), (cluster, 3));
    // A torn end costs a start nothing that was acknowledged.
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    assert_eq!(checked().unwrap(), (cluster, 2));
    assert_eq!(fs::read(&path).unwrap(), whole[..whole.len() - 1], "nothing is cut");
    fs::write(&path, &whole).unwrap();
    flip(&path);
    let refused = checked().unwrap_err();
    assert!(matches!(refused, NamenodeStartError::DamagedJournal { .. }), "{refused}");
}

#[test]
fn segment_is_written_anew_after_a_failed_sync() {
    let place = tempfile::tempdir().unwrap();
    let (directory, mut first) = start(place.path()).unwrap();
    write(&mut first, &command(1));
    first.journal.unsynced(Arc::new(std::io::ErrorKind::Other.into()));
    assert!(directory.is_suspect());
    let path = directory.file(FileKind::Journal, 0);
    let inode = |path: &Path| std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap());
    let old = fs::File::open(&path).unwrap();
    let before = inode(&path);
    drop((directory, first));
    let (directory, second) = start(place.path()).unwrap();
    assert_eq!(second.commands, 1);
    assert!(!directory.is_suspect());
    assert_ne!(inode(&path), before);
    drop(old);
}

#[test]
fn torn_tail_is_cut_and_counted() {
    let place = tempfile::tempdir().unwrap();
    let (directory, mut first) = start(place.path()).unwrap();
    write(&mut first, &command(1));
    write(&mut first, &command(2));
    let path = directory.file(FileKind::Journal, 0);
    let whole = fs::read(&path).unwrap();
    drop((directory, first));
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let (_directory, second) = start(place.path()).unwrap();
    assert_eq!(second.commands, 1);
    let cut = usize::try_from(second.cut_bytes).unwrap();
    let name = format!("cut-{:020}-{}.bin", 0, whole.len() - 1 - cut);
    let kept = fs::read(place.path().join(name)).unwrap();
    assert_eq!(kept, whole[whole.len() - 1 - cut..whole.len() - 1]);
}

#[test]
fn changes_lost_in_a_crash_are_reported_if_acknowledged_before_the_disk_had_them() {
    for sync in [Sync::Always, Sync::Os] {
        let place = tempfile::tempdir().unwrap();
        let options = NamenodeOptions { sync, ..options(place.path()) };
        let start = || {
            let directory = Arc::new(Directory::open(place.path()).unwrap());
            recover(&directory, &options).map(|recovered| (directory, recovered))
        };
        // Written without a sync in between.
        let writing = Settings { sync: Sync::Os, ..Settings::from(&options) };
        let directory = Arc::new(Directory::open(place.path()).unwrap());
        let mut first = recover_with(&directory, &options, writing).unwrap();
        for at in 1..200 {
            write(&mut first, &command(at));
        }
        let path = directory.file(FileKind::Journal, 0);
        drop((directory, first));
        // The second sector of the segment never reached the disk, the later ones did.
        let mut bytes = fs::read(&path).unwrap();
        bytes[512..1024].fill(0);
        fs::write(&path, bytes).unwrap();
        let (directory, second) = start().unwrap();
        let loss = second.namenode.catalog().journal_loss();
        let has_loss = loss.cuts == 1 && loss.records > 100;
        assert_eq!(has_loss, sync == Sync::Os, "{sync:?}: {loss:?}");
        drop((directory, second));
        assert_eq!(start().unwrap().1.namenode.catalog().journal_loss(), loss);
    }
}

#[test]
fn segment_of_another_cluster_or_place_is_refused() {
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for place in [&ours, &theirs] {
        let (_directory, mut first) = start(place.path()).unwrap();
        write(&mut first, &command(1));
        first.journal.rotate().unwrap();
        write(&mut first, &command(2));
        write(&mut first, &command(3));
    }
    let file =
        |place: &tempfile::TempDir, index| place.path().join(format!("journal-{index:020}.log"));
    let last = fs::read(file(&ours, 1)).unwrap();
    fs::copy(file(&theirs, 1), file(&ours, 1)).unwrap();
    let refused = start(ours.path()).unwrap_err().to_string();
    assert!(refused.contains("cluster"), "{refused}");
    fs::write(file(&ours, 1), last).unwrap();
    fs::copy(file(&ours, 0), file(&ours, 1)).unwrap();
    let refused = start(ours.path()).unwrap_err().to_string();
    assert!(refused.contains("starts at 0"), "{refused}");
}

#[test]
fn failed_sync_of_a_start_is_not_believed_by_the_next_one() {
    let disk = Disk::default();
    let place = Path::new("/catalog");
    let open = || Arc::new(Directory::of(place, Arc::new(disk.clone())).unwrap());
    drop(recover(&open(), &options(place)).unwrap());
    let directory = open();
    disk.with(|image| image.faults = Faults { sync: Some(0), ..Faults::default() });
    assert!(matches!(recover(&directory, &options(place)), Err(NamenodeStartError::Files { .. })));
    assert!(directory.is_suspect());
    recover(&directory, &options(place)).unwrap();
    assert!(!directory.is_suspect());
}

#[test]
fn failed_sync_of_a_snapshot_removes_nothing() {
    let disk = Disk::default();
    let place = Path::new("/catalog");
    let directory = Arc::new(Directory::of(place, Arc::new(disk.clone())).unwrap());
    let mut first = recover(&directory, &options(place)).unwrap();
    let mut kept = Vec::new();
    // A good one, then a third in place of the first: file, directory, removal.
    for failing in [None, None, Some(0), Some(1), Some(2)] {
        write(&mut first, &command(1));
        first.journal.rotate().unwrap();
        let segments = directory.list(FileKind::Journal).unwrap();
        let snapshots = directory.list(FileKind::Snapshot).unwrap();
        disk.with(|image| image.faults = Faults { sync: failing, ..Faults::default() });
        let taken = snapshot::take(&directory, first.namenode.catalog().image(), &kept);
        match (failing, taken) {
            (None, taken) => kept = taken.unwrap(),
            // Nothing depends on a file that is not there yet.
            (Some(0), taken) => {
                let error = taken.unwrap_err();
                assert!(matches!(error, TakeError::NotWritten { .. }), "{error:?}");
                assert!(error.to_string().contains("snapshot-"), "{error}");
                let source = std::error::Error::source(&error).unwrap();
                assert!(source.downcast_ref::<PublishError>().is_some(), "{error:?}");
            }
            (_, taken) => assert!(matches!(taken, Err(TakeError::Unsynced { .. })), "{taken:?}"),
        }
        if matches!(failing, Some(0 | 1)) {
            assert_eq!(directory.list(FileKind::Journal).unwrap(), segments);
            assert!(directory.list(FileKind::Snapshot).unwrap().starts_with(&snapshots));
        }
    }
}
