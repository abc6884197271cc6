use std::error::Error as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use sanderling_core::catalog::Action;
use sanderling_protocol::message::Create;
use sanderling_protocol::{Instant, Nonce};

use super::header::{PLAIN_VERSION, TIED_VERSION};
use super::*;
use crate::error::NamenodeStartError;
use crate::files::disk::{Disk, Faults};

pub(crate) fn command(at: u64) -> Command {
    Command { at: Instant(at), action: Action::Started { commands: at, cut_bytes: 0 } }
}

/// Longer than anything here takes.
const MINUTE: Duration = Duration::from_secs(60);

const VERSIONS: [u32; 2] = [PLAIN_VERSION, TIED_VERSION];

fn settings(version: u32, bytes_max: u64) -> Settings {
    let limits =
        Limits { every: Duration::ZERO, age_max: Duration::from_secs(60), bytes_max: 1 << 30 };
    Settings { sync: Sync::Always, bytes_max, limits, version }
}

fn journal_of(place: &Path, settings: Settings) -> (Arc<Directory>, Journal) {
    let directory = Arc::new(Directory::open(place).unwrap());
    let journal = Journal::create(&directory, settings, ClusterId(7), 0, &[]).unwrap();
    (directory, journal)
}

fn journal(place: &Path, bytes_max: u64) -> (Arc<Directory>, Journal) {
    journal_of(place, settings(header::VERSION, bytes_max))
}

fn known(first: u64) -> SegmentStart {
    SegmentStart { first, cluster: Some(ClusterId(7)), floor: Instant(0) }
}

fn read(directory: &Directory) -> (Vec<Command>, Segment) {
    let mut commands = Vec::new();
    let segment = read_segment(directory, known(0), |_, command| commands.push(command)).unwrap();
    (commands, segment)
}

#[test]
fn appended_commands_are_read_back_in_order() {
    let place = tempfile::tempdir().unwrap();
    let (directory, mut journal) = journal(place.path(), 1 << 20);
    let all: Vec<Command> = (0..10).map(command).collect();
    journal.append(&all[..3]).unwrap();
    journal.append(&all[3..]).unwrap();
    assert_eq!(journal.index(), 10);
    let (commands, segment) = read(&directory);
    assert_eq!(commands, all);
    assert_eq!((segment.next, segment.cut_bytes()), (10, 0));
    assert_eq!(segment.length, journal.bytes());
}

#[test]
fn tail_torn_at_any_byte_of_the_last_record_is_no_damage() {
    for version in VERSIONS {
        let place = tempfile::tempdir().unwrap();
        let (directory, mut journal) = journal_of(place.path(), settings(version, 1 << 20));
        journal.append(&[command(1), command(2)]).unwrap();
        let good = journal.bytes();
        journal.append(&[command(3)]).unwrap();
        let path = directory.file(FileKind::Journal, 0);
        let whole = fs::read(&path).unwrap();
        for end in usize::try_from(good).unwrap() + 1..whole.len() {
            fs::write(&path, &whole[..end]).unwrap();
            let (commands, segment) = read(&directory);
            assert_eq!(commands, [command(1), command(2)], "cut at {end}");
            let tail = segment.tail.as_ref().unwrap();
            assert_eq!((segment.length, tail.bytes), (good, end as u64 - good));
            assert!(!tail.is_damage, "version {version}, cut at {end}: {tail:?}");
            let settings = settings(version, 1 << 20);
            let mut resumed = Journal::resume(&directory, &segment, settings).unwrap();
            resumed.append(&[command(4)]).unwrap();
            let (commands, segment) = read(&directory);
            assert_eq!(commands, [command(1), command(2), command(4)]);
            assert_eq!(segment.cut_bytes(), 0);
        }
    }
}

#[test]
fn sectors_that_the_disk_did_not_get_are_no_damage() {
    for version in VERSIONS {
        let place = tempfile::tempdir().unwrap();
        let (directory, mut journal) = journal_of(place.path(), settings(version, 1 << 20));
        journal.append(&[command(1)]).unwrap();
        let good = usize::try_from(journal.bytes()).unwrap();
        journal.append(&[chosen(2, vec![0x11; 500]), chosen(3, vec![0x22; 500])]).unwrap();
        let path = directory.file(FileKind::Journal, 0);
        let whole = fs::read(&path).unwrap();
        for (from, to) in [(good, whole.len()), (512, 1024), (512, whole.len()), (good, 512)] {
            for longer in [0, 4096] {
                let mut bytes = whole.clone();
                bytes[from..to].fill(0);
                if to == whole.len() {
                    bytes.resize(whole.len() + longer, 0);
                }
                fs::write(&path, &bytes).unwrap();
                let tail = read(&directory).1.tail.unwrap();
                // Plain records do not show that the second was not acknowledged.
                let is_damage = version == PLAIN_VERSION && to < whole.len() && tail.records > 0;
                assert_eq!(tail.is_damage, is_damage, "version {version}, {from}..{to}: {tail:?}");
            }
        }
    }
}

#[test]
fn records_behind_one_that_lost_a_sector_are_missed_though_the_last_is_torn() {
    let place = tempfile::tempdir().unwrap();
    let (directory, mut journal) = journal_of(place.path(), settings(PLAIN_VERSION, 1 << 20));
    journal.append(&[command(1), chosen(2, vec![0x11; 1500]), command(3), command(4)]).unwrap();
    let path = directory.file(FileKind::Journal, 0);
    let mut bytes = fs::read(&path).unwrap();
    bytes[512..1024].fill(0);
    bytes.pop();
    fs::write(&path, &bytes).unwrap();
    let (commands, segment) = read(&directory);
    let tail = segment.tail.unwrap();
    assert_eq!(commands, [command(1)]);
    assert_eq!((tail.is_damage, tail.records), (true, 1), "{tail:?}");
}

#[test]
fn record_with_any_bit_changed_is_damage() {
    for version in VERSIONS {
        let place = tempfile::tempdir().unwrap();
        let (directory, mut journal) = journal_of(place.path(), settings(version, 1 << 20));
        journal.append(&[command(1)]).unwrap();
        let good = usize::try_from(journal.bytes()).unwrap();
        journal.append(&[command(2)]).unwrap();
        let end = usize::try_from(journal.bytes()).unwrap();
        journal.append(&[command(3), command(4)]).unwrap();
        let path = directory.file(FileKind::Journal, 0);
        let whole = fs::read(&path).unwrap();
        for (at, bit) in (good..end).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            fs::write(&path, &bytes).unwrap();
            let (commands, segment) = read(&directory);
            assert_eq!(commands, [command(1)], "byte {at} was changed");
            let tail = segment.tail.unwrap();
            assert_eq!(tail.bytes, (whole.len() - good) as u64);
            assert_eq!((tail.is_damage, tail.records), (true, 2), "byte {at}, bit {bit}: {tail:?}");
        }
    }
}

#[test]
fn last_tied_record_with_any_bit_changed_is_damage() {
    let place = tempfile::tempdir().unwrap();
    let (directory, mut journal) = journal_of(place.path(), settings(TIED_VERSION, 1 << 20));
    journal.append(&[command(1)]).unwrap();
    let good = usize::try_from(journal.bytes()).unwrap();
    journal.append(&[command(2)]).unwrap();
    let path = directory.file(FileKind::Journal, 0);
    let whole = fs::read(&path).unwrap();
    for (at, bit) in (good..whole.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << bit;
        fs::write(&path, &bytes).unwrap();
        let tail = read(&directory).1.tail.unwrap();
        assert!(tail.is_damage, "byte {at}, bit {bit}: {tail:?}");
    }
}

#[test]
fn record_of_another_place_is_damage() {
    for version in VERSIONS {
        let place = tempfile::tempdir().unwrap();
        let (directory, mut journal) = journal_of(place.path(), settings(version, 1 << 20));
        let mut ends = vec![usize::try_from(journal.bytes()).unwrap()];
        // All of one length.
        for at in 0..4 {
            journal.append(&[command(10 + at)]).unwrap();
            ends.push(usize::try_from(journal.bytes()).unwrap());
        }
        let path = directory.file(FileKind::Journal, 0);
        let whole = fs::read(&path).unwrap();
        for (from, to) in [(0_usize, 1), (0, 2), (1, 2), (0, 3), (2, 1), (3, 1)] {
            if version == PLAIN_VERSION && from.abs_diff(to) == 1 {
                // Twice the same plain record, one after the other: nothing shows it.
                continue;
            }
            let mut bytes = whole.clone();
            bytes.copy_within(ends[from]..ends[from + 1], ends[to]);
            fs::write(&path, &bytes).unwrap();
            let (commands, segment) = read(&directory);
            let tail = segment.tail.expect("the misdirected record or the one after it is found");
            assert!(tail.is_damage, "version {version}, {from} at {to}: {tail:?}");
            // A plain record that is younger than the one before is only found by the next one.
            let believed = if version == PLAIN_VERSION && from > to { to + 1 } else { to };
            assert_eq!(commands.len(), believed, "version {version}, {from} at {to}");
        }
    }
}

#[test]
fn older_record_behind_damage_is_passed_over_and_not_counted() {
    let place = tempfile::tempdir().unwrap();
    let (directory, mut journal) = journal_of(place.path(), settings(TIED_VERSION, 1 << 20));
    let mut ends = vec![usize::try_from(journal.bytes()).unwrap()];
    // All of one length.
    for at in 0..4 {
        journal.append(&[command(10 + at)]).unwrap();
        ends.push(usize::try_from(journal.bytes()).unwrap());
    }
    let path = directory.file(FileKind::Journal, 0);
    let mut bytes = fs::read(&path).unwrap();
    bytes[ends[1]] ^= 1;
    bytes.copy_within(ends[0]..ends[1], ends[2]);
    fs::write(&path, &bytes).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || drop(sender.send(read(&directory))));
    let (commands, segment) = receiver.recv_timeout(MINUTE).expect("the search has an end");
    let tail = segment.tail.unwrap();
    assert_eq!(commands, [command(10)]);
    assert_eq!((tail.is_damage, tail.records), (true, 1), "{tail:?}");
}

#[test]
fn pages_that_a_crash_lost_are_no_damage_before_the_next_sync() {
    let place = tempfile::tempdir().unwrap();
    let settings = Settings { sync: Sync::Os, ..settings(TIED_VERSION, 1 << 20) };
    let (directory, mut journal) = journal_of(place.path(), settings);
    journal.append(&[command(1)]).unwrap();
    journal.sync().unwrap();
    let synced = usize::try_from(journal.bytes()).unwrap();
    for at in 2..200 {
        journal.append(&[command(at)]).unwrap();
    }
    let path = directory.file(FileKind::Journal, 0);
    let lose = |bytes: &mut Vec<u8>| bytes[synced..1024].fill(0);
    let mut bytes = fs::read(&path).unwrap();
    lose(&mut bytes);
    fs::write(&path, &bytes).unwrap();
    let (commands, segment) = read(&directory);
    let tail = segment.tail.unwrap();
    assert_eq!(commands, [command(1)]);
    assert!(!tail.is_damage && tail.records > 100, "{tail:?}");
    // A record that was written after a sync behind the hole: it was there.
    journal.sync().unwrap();
    journal.append(&[command(200)]).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    lose(&mut bytes);
    fs::write(&path, &bytes).unwrap();
    assert!(read(&directory).1.tail.unwrap().is_damage);
}

/// A command with bytes that a client chose.
pub(crate) fn chosen(at: u64, bytes: Vec<u8>) -> Command {
    let mut request = Create::new(format!("/{at}").parse().unwrap(), Nonce(1));
    request.inline = Some(bytes);
    Command { at: Instant(at), action: Action::Create { request, placed: Vec::new() } }
}

#[test]
fn records_within_a_value_are_none() {
    for version in VERSIONS {
        let place = tempfile::tempdir().unwrap();
        let (directory, mut journal) = journal_of(place.path(), settings(version, 1 << 20));
        journal.append(&[command(1)]).unwrap();
        // Records as a client can make them that has everything but the salt.
        let mut value = Vec::new();
        while value.len() < 400 {
            let layout = Layout::Plain;
            layout.encode(&command(5), 2, 0, &mut value).unwrap();
            Layout::Tied { salt: 0 }.encode(&command(5), 2, 0, &mut value).unwrap();
        }
        journal.append(&[chosen(2, value)]).unwrap();
        let path = directory.file(FileKind::Journal, 0);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 3]).unwrap();
        let tail = read(&directory).1.tail.unwrap();
        assert_eq!((tail.is_damage, tail.records), (false, 0), "version {version}: {tail:?}");
    }
}

#[test]
fn last_byte_of_a_whole_record_is_not_searched() {
    // Without its first byte, this record claims to be longer than the file: it seems cut off.
    let encoded = |command: &Command| {
        let mut bytes = Vec::new();
        Layout::Plain.encode(command, 0, 0, &mut bytes).unwrap();
        bytes
    };
    let is_cut_off = |bytes: &Vec<u8>| (1..=3).contains(&bytes[4]);
    let second = (2..).map(|at| encoded(&command(at))).find(is_cut_off).unwrap();
    // The record before ends with the byte that is missing.
    let action = Action::Started { commands: 1, cut_bytes: u64::from(second[0]) };
    let first = Command { at: Instant(1), action };
    let place = tempfile::tempdir().unwrap();
    let (directory, mut journal) = journal_of(place.path(), settings(PLAIN_VERSION, 1 << 20));
    journal.append([&first]).unwrap();
    let path = directory.file(FileKind::Journal, 0);
    let whole = fs::read(&path).unwrap();
    assert_eq!(whole.last(), second.first());
    fs::write(&path, [&whole, &second[1..]].concat()).unwrap();
    let (commands, segment) = read(&directory);
    let tail = segment.tail.unwrap();
    assert_eq!(commands, [first]);
    assert_eq!((tail.is_damage, tail.records), (false, 0), "{tail:?}");
}

#[test]
fn plain_record_counts_up_to_ten_years_after_the_last_one() {
    const TEN_YEARS: u64 = 10 * 365 * 24 * 3600 * 1_000_000;
    for (at, records) in [(6, 0), (7, 1), (7 + TEN_YEARS, 1), (8 + TEN_YEARS, 0)] {
        let place = tempfile::tempdir().unwrap();
        let (directory, mut journal) = journal_of(place.path(), settings(PLAIN_VERSION, 1 << 20));
        journal.append(&[command(7), command(8)]).unwrap();
        let path = directory.file(FileKind::Journal, 0);
        let bad = fs::metadata(&path).unwrap().len() as usize - 1;
        journal.append(&[command(at)]).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        bytes[bad] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let (commands, segment) = read(&directory);
        assert_eq!(commands, [command(7)]);
        assert_eq!(segment.tail.unwrap().records, records, "{at}");
    }
}

#[test]
fn damaged_header_is_refused() {
    for version in VERSIONS {
        let place = tempfile::tempdir().unwrap();
        let (directory, journal) = journal_of(place.path(), settings(version, 1 << 20));
        drop(journal);
        let path = directory.file(FileKind::Journal, 0);
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            // Not to the other version.
            bytes[at] ^= 0x10;
            fs::write(&path, &bytes).unwrap();
            let refused = read_segment(&directory, known(0), |_, _| {});
            let is_version = matches!(refused, Err(NamenodeStartError::JournalVersion { .. }));
            let is_corrupt = matches!(refused, Err(NamenodeStartError::CorruptJournal { .. }));
            assert!(is_corrupt || (is_version && (8..12).contains(&at)), "byte {at}");
        }
    }
}

#[test]
fn full_journal_refuses_the_batch_and_changes_nothing() {
    let place = tempfile::tempdir().unwrap();
    let (directory, mut journal) = journal(place.path(), 100);
    journal.append(&[command(1)]).unwrap();
    let before = fs::read(directory.file(FileKind::Journal, 0)).unwrap();
    let many: Vec<Command> = (0..100).map(command).collect();
    assert!(matches!(journal.append(&many), Err(AppendError::Refused(_))));
    assert_eq!(fs::read(directory.file(FileKind::Journal, 0)).unwrap(), before);
    journal.append(&[command(2)]).unwrap();
    assert_eq!(read(&directory).0, [command(1), command(2)]);
}

#[test]
fn shared_end_is_that_of_the_whole_records_that_were_written() {
    let place = tempfile::tempdir().unwrap();
    let (_directory, mut journal) = journal(place.path(), 200);
    journal.append(&[command(1)]).unwrap();
    let shared = journal.share_end();
    let at = |journal: &Journal, first, older| {
        let (bytes, commands) = (journal.bytes() - older, journal.index());
        assert_eq!(*shared.lock(), JournalEnd { first, bytes, commands });
        assert!(Arc::ptr_eq(&shared, journal.end.as_ref().unwrap()));
        bytes
    };
    assert!(at(&journal, 0, 0) > header::length(journal.layout));
    assert_eq!(journal.index(), 1);
    journal.append(&[command(2)]).unwrap();
    let older = at(&journal, 0, 0);
    let many: Vec<Command> = (0..100).map(command).collect();
    journal.append(&many).unwrap_err();
    assert_eq!(at(&journal, 0, 0), older);
    journal.rotate().unwrap();
    assert_eq!(at(&journal, 2, older), header::length(journal.layout));
    journal.append(&[command(3)]).unwrap();
    at(&journal, 2, older);
    assert!(Arc::ptr_eq(&journal.share_end(), &shared), "it is shared with others already");
    let older = journal.bytes();
    journal.restart(9).unwrap();
    assert_eq!(at(&journal, 9, older), header::length(journal.layout));
    assert_eq!(journal.index(), 9);
}

#[test]
fn failed_write_is_taken_back_or_ends_the_journal() {
    let place = tempfile::tempdir().unwrap();
    let (directory, mut journal) = journal(place.path(), 1 << 20);
    journal.append(&[command(1)]).unwrap();
    // A handle that cannot write fails like a disk that cannot, and it cannot cut either.
    journal.file = directory.files().open(&directory.file(FileKind::Journal, 0)).unwrap();
    let failed = journal.append(&[command(2)]).unwrap_err();
    let failure = failed.source().and_then(|it| it.downcast_ref::<JournalFailure>());
    let Some(JournalFailure::Uncut { path, cause, cut }) = failure else { panic!("{failed:?}") };
    let text = format!("{}: write: {cause}; then cutting it: {cut}", path.display());
    assert_eq!(failed.to_string(), text);
    assert!(failure.and_then(|it| it.source()).is_some_and(|it| it.is::<Arc<io::Error>>()));
    assert!(matches!(journal.append(&[command(3)]), Err(AppendError::Failed(_))));
    assert_eq!(journal.index(), 1);
    assert_eq!(read(&directory).0, [command(1)]);
}

/// A file system of 64 KiB, where the right to make one is given.
struct TinyDisk(tempfile::TempDir);

impl TinyDisk {
    fn mount() -> Option<Self> {
        let place = tempfile::tempdir().unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(place.path());
        mount.stderr(std::process::Stdio::null());
        mount.status().is_ok_and(|status| status.success()).then_some(Self(place))
    }
}

impl Drop for TinyDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn disk_without_space_refuses_the_batch_and_goes_on_when_there_is_space() {
    let Some(disk) = TinyDisk::mount() else {
        eprintln!("SKIPPED: no right to mount a small file system here");
        return;
    };
    let (directory, mut journal) = journal(disk.0.path(), 1 << 20);
    journal.append(&[command(1)]).unwrap();
    let filler = disk.0.path().join("filler");
    let mut bytes = 48 << 10;
    fs::write(&filler, vec![0; bytes]).unwrap();
    while bytes > 0 && fs::write(&filler, vec![0; bytes + 4096]).is_ok() {
        bytes += 4096;
    }
    let many: Vec<Command> = (0..2000).map(command).collect();
    let refused = journal.append(&many);
    assert!(matches!(refused, Err(AppendError::Refused(_))), "{refused:?}");
    fs::remove_file(&filler).unwrap();
    journal.append(&[command(2)]).unwrap();
    assert_eq!(read(&directory).0, [command(1), command(2)]);
    drop((journal, directory));
}

#[test]
fn next_segment_starts_where_the_last_one_ends() {
    let place = tempfile::tempdir().unwrap();
    let (directory, mut journal) = journal(place.path(), 1 << 20);
    journal.append(&[command(1), command(2)]).unwrap();
    let before = journal.bytes();
    journal.rotate().unwrap();
    assert!(journal.is_empty());
    assert!(journal.bytes() > before, "the older segment counts as long as it is there");
    journal.append(&[command(3)]).unwrap();
    assert_eq!(directory.list(FileKind::Journal).unwrap(), [0, 2]);
    let mut numbers = Vec::new();
    read_segment(&directory, known(2), |segment, _| numbers.push(segment.next)).unwrap();
    assert_eq!(numbers, [2]);
}

fn on_disk(disk: &Disk, settings: Settings) -> (Arc<Directory>, Journal) {
    let directory = Directory::of(Path::new("/catalog"), Arc::new(disk.clone())).unwrap();
    let directory = Arc::new(directory);
    let journal = Journal::create(&directory, settings, ClusterId(7), 0, &[]).unwrap();
    (directory, journal)
}

#[test]
fn failed_sync_of_a_rotation_is_final() {
    // The segment's own sync, that of the next one, that of the directory.
    for sync in [Sync::Always, Sync::Os] {
        let syncs = if sync == Sync::Always { 2 } else { 3 };
        for failing in 0..syncs {
            let disk = Disk::default();
            let settings = Settings { sync, ..settings(TIED_VERSION, 1 << 20) };
            let (directory, mut journal) = on_disk(&disk, settings);
            journal.append(&[command(1)]).unwrap();
            disk.with(|image| image.faults = Faults { sync: Some(failing), ..Faults::default() });
            let rotated = journal.rotate();
            assert!(matches!(rotated, Err(AppendError::Failed(_))), "{failing}: {rotated:?}");
            assert!(matches!(journal.append(&[command(2)]), Err(AppendError::Failed(_))));
            assert!(journal.sync().is_err());
            assert!(directory.is_suspect());
        }
    }
}

#[test]
fn rotation_without_space_lets_the_segment_go_on() {
    let disk = Disk::default();
    let (directory, mut journal) = on_disk(&disk, settings(TIED_VERSION, 1 << 20));
    journal.append(&[command(1)]).unwrap();
    for faults in [
        Faults { write: Some(0), ..Faults::default() },
        Faults { name: Some(0), ..Faults::default() },
    ] {
        disk.with(|image| image.faults = faults);
        assert!(matches!(journal.rotate(), Err(AppendError::Refused(_))));
    }
    journal.append(&[command(2)]).unwrap();
    assert_eq!(read(&directory).0, [command(1), command(2)]);
    assert!(!directory.is_suspect());
}

#[test]
fn failed_sync_in_the_background_ends_the_journal_with_the_next_change() {
    let disk = Disk::default();
    let settings = Settings { sync: Sync::Os, ..settings(TIED_VERSION, 1 << 20) };
    let (_directory, mut journal) = on_disk(&disk, settings);
    journal.append(&[command(1)]).unwrap();
    disk.with(|image| image.faults = Faults { sync: Some(0), ..Faults::default() });
    let lag = Arc::clone(journal.lag().unwrap());
    let thread = lag.start().unwrap();
    thread.join().unwrap();
    assert!(lag.failure().is_some());
    assert!(matches!(journal.append(&[command(2)]), Err(AppendError::Failed(_))));
}

#[test]
fn disk_that_is_too_far_behind_refuses_changes_until_it_has_caught_up() {
    let place = |limits| {
        let disk = Disk::default();
        let settings = Settings { sync: Sync::Os, limits, ..settings(TIED_VERSION, 1 << 20) };
        let (_directory, journal) = on_disk(&disk, settings);
        (disk, journal)
    };
    let by_age =
        Limits { every: Duration::ZERO, age_max: Duration::from_millis(20), bytes_max: 1 << 20 };
    let by_bytes = Limits { every: Duration::ZERO, age_max: MINUTE, bytes_max: 200 };
    for limits in [by_age, by_bytes] {
        let (disk, mut journal) = place(limits);
        disk.hold(true);
        let lag = Arc::clone(journal.lag().unwrap());
        let thread = lag.start().unwrap();
        let until = std::time::Instant::now() + MINUTE;
        let mut written = 0;
        let refused = loop {
            match journal.append(&[command(written)]) {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
            assert!(std::time::Instant::now() < until, "nothing is refused");
        };
        assert!(matches!(refused, AppendError::Behind { .. }), "{refused}");
        let (bytes, age) = lag.waiting();
        assert!(bytes > 0 && age > Duration::ZERO);
        disk.hold(false);
        while let Err(error) = journal.append(&[command(written)]) {
            assert!(matches!(error, AppendError::Behind { .. }), "{error}");
            assert!(std::time::Instant::now() < until, "the disk does not catch up");
            std::thread::yield_now();
        }
        lag.close();
        thread.join().unwrap();
    }
}

#[test]
fn disk_that_may_not_be_behind_takes_a_change_when_it_has_all_before() {
    let limits = Limits { every: Duration::ZERO, age_max: Duration::ZERO, bytes_max: u64::MAX };
    let settings = Settings { sync: Sync::Os, limits, ..settings(TIED_VERSION, 1 << 20) };
    let (_directory, mut journal) = on_disk(&Disk::default(), settings);
    for at in 1..4 {
        journal.append(&[command(at)]).unwrap();
        journal.sync().unwrap();
    }
}

/// A segment of each version as it was first written: two commands of cluster 7.
const GOLDEN: [(u32, &str); 2] = [
    (
        PLAIN_VERSION,
        "534e444c4a524e4c03000000f2568c9707000000000000000000000000000000040000002e5e83ba \
         011f01001a000000c4fbe5e10200022f32000000010100000000000100010576616c75650000",
    ),
    (
        TIED_VERSION,
        "534e444c4a524e4c04000000fe50b84407000000000000000000000000000000efcdab8967452301 \
         a70400000000000000000000002e5e83baba214aab011f01005ba71a000000010000001a000000c4 \
         fbe5e10fb93e610200022f32000000010100000000000100010576616c756500005b",
    ),
];

#[test]
fn segments_of_all_versions_are_read_as_they_were_written() {
    for (version, golden) in GOLDEN {
        let layout = match version {
            PLAIN_VERSION => Layout::Plain,
            _ => Layout::Tied { salt: 0x0123_4567_89ab_cdef },
        };
        let mut bytes = header::encode(layout, version, ClusterId(7), 0);
        let all = [command(1), chosen(2, b"value".to_vec())];
        for (number, command) in (0..).zip(&all) {
            let unsynced = bytes.len() as u64 - header::length(layout);
            layout.encode(command, number, unsynced, &mut bytes).unwrap();
        }
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, golden.split_whitespace().collect::<String>(), "version {version}");
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::open(place.path()).unwrap();
        fs::write(directory.file(FileKind::Journal, 0), bytes).unwrap();
        let (commands, segment) = read(&directory);
        assert_eq!((commands, segment.version, segment.cut_bytes()), (all.to_vec(), version, 0));
    }
}

#[test]
fn segment_of_an_older_version_is_gone_on_with_by_a_new_one() {
    let place = tempfile::tempdir().unwrap();
    let (directory, mut journal) = journal_of(place.path(), settings(PLAIN_VERSION, 1 << 20));
    journal.append(&[command(1)]).unwrap();
    let segment = read(&directory).1;
    let tied = settings(TIED_VERSION, 1 << 20);
    // Resumed, it goes on as it began.
    let mut resumed = Journal::resume(&directory, &segment, tied).unwrap();
    resumed.append(&[command(2)]).unwrap();
    resumed.rotate().unwrap();
    resumed.append(&[command(3)]).unwrap();
    assert_eq!(read(&directory).0, [command(1), command(2)]);
    let next = read_segment(&directory, known(2), |_, _| {}).unwrap();
    assert_eq!((next.version, next.next), (TIED_VERSION, 3));
}

#[test]
fn sync_counts_for_what_was_written_before_it_began_and_for_its_own_segment() {
    let disk = Disk::default();
    let settings = Settings { sync: Sync::Os, ..settings(TIED_VERSION, 1 << 20) };
    let (directory, mut journal) = on_disk(&disk, settings);
    journal.append(&[command(1)]).unwrap();
    let lag = Arc::clone(journal.lag().unwrap());
    for is_next in [false, true] {
        disk.hold(true);
        let syncing = Arc::clone(&lag);
        let thread = std::thread::spawn(move || syncing.sync());
        disk.until_held();
        if is_next {
            let next = directory.files().create(Path::new("/catalog/next")).unwrap();
            lag.next(next, 50);
            lag.wrote(60);
        } else {
            journal.append(&[command(2)]).unwrap();
        }
        let (before, _) = lag.waiting();
        disk.hold(false);
        thread.join().unwrap();
        let (after, age) = lag.waiting();
        assert!(after > 0 && age > Duration::ZERO, "no sync has had that");
        assert_eq!(after == before, is_next);
    }
}
