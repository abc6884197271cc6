use std::path::Path;

use rand::SeedableRng;
use rand::rngs::StdRng;
use sanderling_core::replica::{LogPlace, Payload};
use sanderling_protocol::Instant;

use super::*;
use crate::files::disk::Disk;

const CLUSTER: ClusterId = ClusterId(7);

fn entry_of(index: u64, term: u64, commands: Vec<u8>) -> LogEntry {
    let payload = Payload::Round { at: Instant(index * 1000), commands: commands.into() };
    LogEntry { place: LogPlace { term, index }, payload }
}

fn entry(index: u64, term: u64) -> LogEntry {
    entry_of(index, term, vec![u8::try_from(index % 251).unwrap(); 40])
}

fn entries(range: std::ops::Range<u64>, term: u64) -> Vec<LogEntry> {
    range.map(|index| entry(index, term)).collect()
}

fn directory() -> (tempfile::TempDir, Arc<Directory>) {
    let place = tempfile::tempdir().unwrap();
    let directory = Arc::new(Directory::open(place.path()).unwrap());
    (place, directory)
}

fn open(directory: &Arc<Directory>) -> (GroupLog, Vec<LogEntry>) {
    GroupLog::open(directory, CLUSTER, Sync::Os, LogPlace::default()).unwrap()
}

#[test]
fn entries_are_read_back_and_overruled_ones_are_not() {
    let (_place, directory) = directory();
    let mut log = GroupLog::begin(&directory, CLUSTER, Sync::Os, 5).unwrap();
    log.append(&entries(5..9, 1)).unwrap();
    assert_eq!((log.first(), log.next()), (5, 9));
    let start = LogPlace { term: 1, index: 4 };
    log.append(&entries(7..8, 2)).unwrap();
    log.append(&entries(8..11, 2)).unwrap();
    drop(log);
    let expected = [entries(5..7, 1), entries(7..11, 2)].concat();
    let (log, read) = GroupLog::open(&directory, CLUSTER, Sync::Os, start).unwrap();
    assert_eq!((&read, log.next()), (&expected, 11));
    drop(log);
    // A snapshot up to entry 8 takes the place of what is before; one beyond the end, of all.
    let start = LogPlace { term: 2, index: 8 };
    let (_, read) = GroupLog::open(&directory, CLUSTER, Sync::Os, start).unwrap();
    assert_eq!(read, expected[4..]);
    let start = LogPlace { term: 2, index: 20 };
    let cut = GroupLog::reopen(&directory, CLUSTER, Sync::Os, start, false);
    assert!(matches!(cut, Err(LogError::Damaged { damage: GroupFileDamage::Cut, .. })));
    let (log, read) = GroupLog::open(&directory, CLUSTER, Sync::Os, start).unwrap();
    assert_eq!((read.len(), log.next()), (0, 21));
}

#[test]
fn bytes_of_a_record_do_not_change() {
    let mut bytes = Vec::new();
    let payload = Payload::Round { at: Instant(5), commands: vec![9, 8].into() };
    encode(3, &LogEntry { place: LogPlace { term: 2, index: 300 }, payload }, &mut bytes);
    let golden = [2, 172, 2, 1, 5, 2, 9, 8];
    assert_eq!(bytes[RECORD_HEADER_BYTES..], golden);
    assert_eq!(bytes[..13], [MARK, 8, 0, 0, 0, 44, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[13..17], crc32c(&golden).to_le_bytes());
}

#[test]
fn torn_end_is_cut_and_damage_before_whole_entries_is_refused() {
    let (_place, directory) = directory();
    let mut log = GroupLog::begin(&directory, CLUSTER, Sync::Os, 1).unwrap();
    log.append(&entries(1..4, 1)).unwrap();
    let (path, length) = (log.segments[0].path.clone(), log.segments[0].length);
    let third = log.segments[0].offsets[2];
    drop(log);
    let whole = std::fs::read(&path).unwrap();
    for end in third..length {
        std::fs::write(&path, &whole[..usize::try_from(end).unwrap()]).unwrap();
        let (log, read) = open(&directory);
        assert_eq!((read, log.next()), (entries(1..3, 1), 3), "cut at {end}");
    }
    for at in HEADER_BYTES..usize::try_from(third).unwrap() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        std::fs::write(&path, &bytes).unwrap();
        let opened = GroupLog::open(&directory, CLUSTER, Sync::Os, LogPlace::default());
        assert!(matches!(opened, Err(LogError::Damaged { .. })), "byte {at}");
    }
}

#[test]
fn log_of_another_cluster_is_refused() {
    let (_place, directory) = directory();
    drop(GroupLog::begin(&directory, CLUSTER, Sync::Os, 1).unwrap());
    let opened = GroupLog::open(&directory, ClusterId(8), Sync::Os, LogPlace::default());
    assert!(matches!(opened, Err(LogError::Damaged { .. })));
}

#[test]
fn whole_segments_before_an_index_are_removed() {
    let (_place, directory) = directory();
    let mut log = GroupLog::begin(&directory, CLUSTER, Sync::Os, 1).unwrap();
    for index in 1..=6 {
        let data = vec![1; usize::try_from(SEGMENT_BYTES / 2).unwrap()];
        log.append(&[entry_of(index, 1, data)]).unwrap();
    }
    assert_eq!(log.segments.len(), 3);
    assert_eq!(log.compact(4).unwrap(), 3);
    assert_eq!(log.compact(5).unwrap(), 5);
    assert_eq!(log.compact(100).unwrap(), 5);
    drop(log);
    let start = LogPlace { term: 1, index: 4 };
    let (log, read) = GroupLog::open(&directory, CLUSTER, Sync::Os, start).unwrap();
    assert_eq!((log.first(), log.next(), read.len()), (5, 7, 2));
}

/// A crash of the machine forgets any sectors of what was not synced: what was acknowledged under
/// `always` is there, and no entry that was overruled comes back in place of its successor.
#[test]
fn synced_entries_survive_a_crash_of_the_machine() {
    for seed in 0..300 {
        let mut random = StdRng::seed_from_u64(seed);
        let disk = Disk::default();
        let path = Path::new("/d");
        let files: Arc<dyn crate::files::Files> = Arc::new(disk.clone());
        files.make_directory(path).unwrap();
        let directory = Arc::new(Directory::of(path, files).unwrap());
        let mut log = GroupLog::begin(&directory, CLUSTER, Sync::Always, 1).unwrap();
        let mut expected = Vec::new();
        for term in 1..=5 {
            use rand::RngExt;
            let from = random.random_range(1..=log.next());
            let more = entries(from..from + random.random_range(1..30), term);
            expected.truncate(usize::try_from(from - 1).unwrap());
            expected.extend(more.clone());
            log.append(&more).unwrap();
        }
        drop(log);
        disk.with(|image| image.crash(&mut random));
        let directory = Arc::new(Directory::of(path, Arc::new(disk)).unwrap());
        let (_, read) =
            GroupLog::open(&directory, CLUSTER, Sync::Always, LogPlace::default()).unwrap();
        assert_eq!(read, expected, "seed {seed}");
    }
}

/// A process that is killed between a write and its sync leaves entries that the next one confirms.
#[test]
fn entries_that_are_read_survive_a_crash_of_the_machine() {
    for seed in 0..100 {
        let mut random = StdRng::seed_from_u64(seed);
        let disk = Disk::default();
        let path = Path::new("/d");
        let files: Arc<dyn crate::files::Files> = Arc::new(disk.clone());
        files.make_directory(path).unwrap();
        let directory = Arc::new(Directory::of(path, files).unwrap());
        let mut log = GroupLog::begin(&directory, CLUSTER, Sync::Os, 1).unwrap();
        log.append(&entries(1..20, 1)).unwrap();
        drop(log);
        let open = |directory: &Arc<Directory>| {
            GroupLog::open(directory, CLUSTER, Sync::Always, LogPlace::default()).unwrap().1
        };
        let confirmed = open(&directory);
        disk.with(|image| image.crash(&mut random));
        let directory = Arc::new(Directory::of(path, Arc::new(disk)).unwrap());
        assert_eq!(open(&directory), confirmed, "seed {seed}");
    }
}

/// After a failed sync the kernel shows what the disk does not have, and reports success for the
/// next sync.
#[test]
fn entries_that_are_read_after_a_failed_sync_survive_a_crash_of_the_machine() {
    for seed in 0..100 {
        let mut random = StdRng::seed_from_u64(seed);
        let disk = Disk::default();
        let path = Path::new("/d");
        let directory =
            |disk: &Disk| Arc::new(Directory::of(path, Arc::new(disk.clone())).unwrap());
        let open = |disk: &Disk| {
            let directory = directory(disk);
            let opened =
                GroupLog::open(&directory, CLUSTER, Sync::Always, LogPlace::default()).unwrap();
            assert!(!directory.is_group_suspect());
            opened.1
        };
        let mut log = GroupLog::begin(&directory(&disk), CLUSTER, Sync::Always, 1).unwrap();
        log.append(&entries(1..20, 1)).unwrap();
        disk.with(|image| image.faults.sync = Some(0));
        let failed = log.append(&entries(20..30, 1)).unwrap_err();
        assert!(matches!(failed, LogError::Unsynced { .. }), "{failed}");
        drop(log);
        assert!(directory(&disk).is_group_suspect());
        let confirmed = open(&disk);
        assert!(confirmed.len() >= 19, "what was acknowledged is there: {}", confirmed.len());
        disk.with(|image| image.crash(&mut random));
        assert_eq!(open(&disk), confirmed, "seed {seed}");
    }
}

/// A sync that fails at a start must not be forgotten by the next one, whose sync succeeds.
#[test]
fn failed_sync_of_what_a_start_reads_is_not_forgotten_by_the_next_start() {
    let mut random = StdRng::seed_from_u64(1);
    let disk = Disk::default();
    let directory = Arc::new(Directory::of(Path::new("/d"), Arc::new(disk.clone())).unwrap());
    let mut log = GroupLog::begin(&directory, CLUSTER, Sync::Os, 1).unwrap();
    log.append(&entries(1..20, 1)).unwrap();
    drop(log);
    let open = || GroupLog::open(&directory, CLUSTER, Sync::Always, LogPlace::default());
    disk.with(|image| image.faults.sync = Some(0));
    assert!(matches!(open(), Err(LogError::Unsynced { .. })));
    let confirmed = open().unwrap().1;
    assert_eq!(confirmed, entries(1..20, 1));
    disk.with(|image| image.crash(&mut random));
    assert_eq!(open().unwrap().1, confirmed);
}

/// Without a sync of each entry, an orderly end syncs all segments, not only the one that is
/// written.
#[test]
fn log_that_was_closed_in_order_survives_a_crash_of_the_machine() {
    for seed in 0..20 {
        let mut random = StdRng::seed_from_u64(seed);
        let disk = Disk::default();
        let directory =
            || Arc::new(Directory::of(Path::new("/d"), Arc::new(disk.clone())).unwrap());
        let mut log = GroupLog::begin(&directory(), CLUSTER, Sync::Os, 1).unwrap();
        for index in 1..=3 {
            let data = vec![1; usize::try_from(SEGMENT_BYTES).unwrap()];
            log.append(&[entry_of(index, 1, data)]).unwrap();
        }
        assert_eq!(log.segments.len(), 3);
        log.sync().unwrap();
        drop(log);
        disk.with(|image| image.crash(&mut random));
        let (_, read) =
            GroupLog::open(&directory(), CLUSTER, Sync::Os, LogPlace::default()).unwrap();
        assert_eq!(read.len(), 3, "seed {seed}");
    }
}
