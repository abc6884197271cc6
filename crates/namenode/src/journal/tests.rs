use std::fs;

use sanderling_core::catalog::Action;
use sanderling_protocol::Instant;

use super::*;
use crate::error::StartError;

pub(crate) fn command(at: u64) -> Command {
    Command { at: Instant(at), action: Action::Started { commands: at, cut_bytes: 0 } }
}

fn journal(place: &std::path::Path, bytes_max: u64) -> (Directory, Journal) {
    let directory = Directory::open(place).unwrap();
    let journal = Journal::create(&directory, ClusterId(7), 0, Sync::Always, bytes_max).unwrap();
    (directory, journal)
}

fn read(directory: &Directory) -> (Vec<Command>, Segment) {
    let mut commands = Vec::new();
    let path = directory.file(Kind::Journal, 0);
    let segment = read_segment(&path, |_, command| commands.push(command)).unwrap();
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
    assert_eq!((segment.next, segment.cut_bytes), (10, 0));
    assert_eq!(segment.length, journal.bytes());
}

#[test]
fn tail_torn_at_any_byte_of_the_last_record_is_cut_and_kept_beside() {
    let place = tempfile::tempdir().unwrap();
    let (directory, mut journal) = journal(place.path(), 1 << 20);
    journal.append(&[command(1), command(2)]).unwrap();
    let good = journal.bytes();
    journal.append(&[command(3)]).unwrap();
    let path = directory.file(Kind::Journal, 0);
    let whole = fs::read(&path).unwrap();
    for end in usize::try_from(good).unwrap() + 1..whole.len() {
        fs::write(&path, &whole[..end]).unwrap();
        let (commands, segment) = read(&directory);
        assert_eq!(commands, [command(1), command(2)], "cut at {end}");
        assert_eq!((segment.length, segment.cut_bytes), (good, end as u64 - good));
        let mut resumed = Journal::resume(&directory, &segment, Sync::Os, 1 << 20).unwrap();
        let kept = place.path().join(format!("cut-{:020}-{good}.bin", 0));
        assert_eq!(fs::read(kept).unwrap(), whole[usize::try_from(good).unwrap()..end]);
        resumed.append(&[command(4)]).unwrap();
        let (commands, segment) = read(&directory);
        assert_eq!(commands, [command(1), command(2), command(4)]);
        assert_eq!(segment.cut_bytes, 0);
    }
}

#[test]
fn record_with_any_byte_changed_ends_the_reading_there() {
    let place = tempfile::tempdir().unwrap();
    let (directory, mut journal) = journal(place.path(), 1 << 20);
    journal.append(&[command(1)]).unwrap();
    let good = usize::try_from(journal.bytes()).unwrap();
    journal.append(&[command(2)]).unwrap();
    let end = usize::try_from(journal.bytes()).unwrap();
    journal.append(&[command(3)]).unwrap();
    let path = directory.file(Kind::Journal, 0);
    let whole = fs::read(&path).unwrap();
    for at in good..end {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        fs::write(&path, &bytes).unwrap();
        let (commands, segment) = read(&directory);
        assert_eq!(commands, [command(1)], "byte {at} was changed");
        assert_eq!(segment.cut_bytes, (whole.len() - good) as u64);
        assert!(!segment.cut_why.is_empty());
    }
}

#[test]
fn damaged_header_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let (directory, journal) = journal(place.path(), 1 << 20);
    drop(journal);
    let path = directory.file(Kind::Journal, 0);
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let refused = read_segment(&path, |_, _| {});
        assert!(matches!(refused, Err(StartError::CorruptJournal { .. })), "byte {at}");
    }
}

#[test]
fn full_journal_refuses_the_batch_and_changes_nothing() {
    let place = tempfile::tempdir().unwrap();
    let (directory, mut journal) = journal(place.path(), 100);
    journal.append(&[command(1)]).unwrap();
    let before = fs::read(directory.file(Kind::Journal, 0)).unwrap();
    let many: Vec<Command> = (0..100).map(command).collect();
    assert!(matches!(journal.append(&many), Err(AppendError::Refused(_))));
    assert_eq!(fs::read(directory.file(Kind::Journal, 0)).unwrap(), before);
    journal.append(&[command(2)]).unwrap();
    assert_eq!(read(&directory).0, [command(1), command(2)]);
}

#[test]
fn failed_write_is_taken_back_or_ends_the_journal() {
    let place = tempfile::tempdir().unwrap();
    let (directory, mut journal) = journal(place.path(), 1 << 20);
    journal.append(&[command(1)]).unwrap();
    // A handle that cannot write fails like a disk that cannot, and it cannot cut either.
    journal.file = File::open(directory.file(Kind::Journal, 0)).unwrap();
    assert!(matches!(journal.append(&[command(2)]), Err(AppendError::Failed(_))));
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
    journal.rotate(&directory).unwrap();
    assert!(journal.is_empty());
    assert!(journal.bytes() > before, "the older segment counts as long as it is there");
    journal.append(&[command(3)]).unwrap();
    assert_eq!(directory.list(Kind::Journal).unwrap(), [0, 2]);
    let mut numbers = Vec::new();
    read_segment(&directory.file(Kind::Journal, 2), |number, _| numbers.push(number)).unwrap();
    assert_eq!(numbers, [2]);
}
