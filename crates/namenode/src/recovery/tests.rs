use std::path::Path;

use sanderling_core::catalog::{Action, Command};

use super::*;

fn command(at: u64) -> Command {
    Command { at: Instant(at), action: Action::Started { commands: at, cut_bytes: 0 } }
}

fn options(place: &Path) -> NamenodeOptions {
    NamenodeOptions { directory: place.to_owned(), ..NamenodeOptions::default() }
}

fn start(place: &Path) -> Result<(Directory, Recovered), StartError> {
    let directory = Directory::open(place)?;
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
fn snapshot_and_the_journal_after_it_give_the_same_catalog() {
    let place = tempfile::tempdir().unwrap();
    let (directory, mut first) = start(place.path()).unwrap();
    for at in 0..5 {
        write(&mut first, &command(at));
    }
    first.journal.rotate(&directory).unwrap();
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
            directory.prune(5).unwrap();
        }
    }
}

#[test]
fn snapshot_without_its_journal_starts_a_new_segment() {
    let place = tempfile::tempdir().unwrap();
    let (directory, mut first) = start(place.path()).unwrap();
    write(&mut first, &command(1));
    take_snapshot(&directory, &mut first);
    fs::remove_file(directory.file(Kind::Journal, 0)).unwrap();
    drop((directory, first));
    let (directory, second) = start(place.path()).unwrap();
    assert_eq!(second.commands, 1);
    assert_eq!(directory.list(Kind::Journal).unwrap(), [1]);
}

#[test]
fn corrupt_snapshot_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let (directory, mut first) = start(place.path()).unwrap();
    write(&mut first, &command(1));
    take_snapshot(&directory, &mut first);
    let path = directory.file(Kind::Snapshot, 1);
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();
    drop((directory, first));
    assert!(matches!(start(place.path()), Err(StartError::CorruptSnapshot { .. })));
}

#[test]
fn missing_or_damaged_segment_before_the_last_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let (directory, mut first) = start(place.path()).unwrap();
    for at in 0..3 {
        write(&mut first, &command(at));
    }
    first.journal.rotate(&directory).unwrap();
    write(&mut first, &command(3));
    let path = directory.file(Kind::Journal, 0);
    let whole = fs::read(&path).unwrap();
    drop((directory, first));
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    assert!(matches!(start(place.path()), Err(StartError::CorruptJournal { .. })));
    fs::remove_file(&path).unwrap();
    assert!(matches!(start(place.path()), Err(StartError::CorruptJournal { .. })));
}

#[test]
fn torn_tail_is_cut_and_counted() {
    let place = tempfile::tempdir().unwrap();
    let (directory, mut first) = start(place.path()).unwrap();
    write(&mut first, &command(1));
    write(&mut first, &command(2));
    let path = directory.file(Kind::Journal, 0);
    let whole = fs::read(&path).unwrap();
    drop((directory, first));
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let (_directory, second) = start(place.path()).unwrap();
    assert_eq!(second.commands, 1);
    assert!(second.cut_bytes > 0);
}
