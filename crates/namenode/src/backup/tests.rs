//! Backups that are damaged, cut short or of another version, and where they may be restored.

use std::fs::{self, File};
use std::io::{Cursor, Read};

use sanderling_core::catalog::Catalog;
use sanderling_protocol::checksum::crc32c;
use sanderling_protocol::{ClusterId, Millis};
use tempfile::TempDir;

use super::restore::exchange;
use super::*;
use crate::directory::{Directory, FileKind};
use crate::group::origin;

fn backup_of(cluster: u64) -> Vec<u8> {
    backup_in(cluster, GroupGeneration::default())
}

/// Takes a backup of a namenode that is in a generation of its group.
fn backup_in(cluster: u64, group: GroupGeneration) -> Vec<u8> {
    let mut file = tempfile::tempfile().unwrap();
    let image = Catalog::new(ClusterId(cluster), Millis(1000)).image();
    let bytes = write(&file, image, group, 0).unwrap();
    let mut whole = Vec::new();
    File::read_to_end(&mut file, &mut whole).unwrap();
    assert_eq!(whole.len() as u64, bytes);
    whole
}

fn options(place: &TempDir) -> RestoreOptions {
    RestoreOptions { directory: place.path().join("catalog"), cluster: None, is_replacing: false }
}

fn restored(bytes: &[u8], options: &RestoreOptions) -> Result<RestoredBackup, RestoreError> {
    restore(Cursor::new(bytes), options)
}

/// Returns a backup as the release before wrote it: without a generation.
fn without_generation(whole: &[u8]) -> Vec<u8> {
    let length = u32::from_le_bytes(whole[12..16].try_into().unwrap()) as usize;
    let (description, rest) = whole[16..].split_at(length);
    let mut description: serde_json::Value = serde_json::from_slice(description).unwrap();
    assert!(description.as_object_mut().unwrap().remove("group").is_some());
    let description = description.to_string();
    let length = u32::try_from(description.len()).unwrap().to_le_bytes();
    let (snapshot, end) = rest.split_at(rest.len() - 12);
    let before = [&whole[..12], &length[..], description.as_bytes(), snapshot].concat();
    let checksum = crc32c(&before).to_le_bytes();
    [&before[..], &checksum[..], &end[4..]].concat()
}

/// Returns the generation of the namenode of a directory, and that of a group which it founds.
fn generations(options: &RestoreOptions) -> (GroupGeneration, GroupGeneration) {
    let directory = Directory::open(&options.directory).unwrap();
    let founded = origin::founding(&directory, 5).unwrap();
    (origin::read(&directory).unwrap(), founded)
}

#[test]
fn backup_that_would_leave_too_little_room_is_given_up_with_the_cause() {
    let file = tempfile::tempfile().unwrap();
    let catalog = Catalog::new(ClusterId(7), Millis(1000));
    let refused = write(&file, catalog.image(), GroupGeneration::default(), u64::MAX).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
    assert!(refused.to_string().contains("free space on that disk"), "{refused}");
}

#[test]
fn backup_of_a_group_is_restored_as_a_later_generation_of_it() {
    let place = TempDir::new().unwrap();
    let options = options(&place);
    let recovered = GroupGeneration::first(1_700_000_000).next(5);
    let began = restored(&backup_in(7, recovered), &options).unwrap();
    assert_eq!(began.backup.group, Some(recovered));
    // A recovery that followed the backup has the next number.
    assert!(began.group.is_after(recovered.next(1)), "{}", began.group);
    assert_eq!(generations(&options).0, began.group);
    // What the directory has begun is never begun again, whatever the backup has.
    let replacing = RestoreOptions { is_replacing: true, ..options };
    for bytes in [backup_of(7), without_generation(&backup_of(7)), backup_in(7, recovered)] {
        let before = generations(&replacing).0;
        let again = restored(&bytes, &replacing).unwrap();
        assert!(again.group.is_after(before), "{} after {before}", again.group);
        assert_eq!(generations(&replacing).0, again.group);
    }
}

#[test]
fn backup_of_the_release_before_is_restored_as_that_of_a_group() {
    let place = TempDir::new().unwrap();
    let options = options(&place);
    let began = restored(&without_generation(&backup_of(7)), &options).unwrap();
    assert_eq!(began.backup.group, None);
    assert!(began.group.number() > 100_000_000, "{}", began.group);
    assert_eq!(generations(&options).0, began.group);
}

#[test]
fn backup_of_a_namenode_alone_is_of_no_generation_and_founds_a_later_one() {
    let place = TempDir::new().unwrap();
    let options = options(&place);
    let none = GroupGeneration::default();
    let began = restored(&backup_of(7), &options).unwrap();
    assert_eq!((began.backup.group, began.group), (Some(none), none));
    let (own, founded) = generations(&options);
    assert_eq!(own, none);
    // The cluster became a group after the backup, and was recovered. The clock is behind.
    assert!(founded.is_after(GroupGeneration::first(1_800_000_000).next(5)), "{founded}");
    let fresh = RestoreOptions { directory: place.path().join("fresh"), ..options };
    assert_eq!(generations(&fresh).1, GroupGeneration::first(5), "no other is restored");
}

#[test]
fn backup_without_a_group_follows_the_member_whose_state_was_set_aside() {
    let place = TempDir::new().unwrap();
    let options = options(&place);
    restored(&backup_of(7), &options).unwrap();
    // A restore that has set a member's state aside was cut off.
    let aside = options.directory.join("replaced-1");
    fs::create_dir(&aside).unwrap();
    fs::write(aside.join("group-state.bin"), b"of a member").unwrap();
    let replacing = RestoreOptions { is_replacing: true, ..options };
    let began = restored(&backup_of(7), &replacing).unwrap();
    assert!(began.group.number() > 100_000_000, "{}", began.group);
    assert_eq!(generations(&replacing).0, began.group);
}

#[test]
fn backup_follows_what_its_directory_has_begun_also_where_a_member_was_set_aside() {
    let place = TempDir::new().unwrap();
    let options = options(&place);
    restored(&backup_of(7), &options).unwrap();
    // The clock was ahead when the directory began it.
    let begun = GroupGeneration::default().after_restore(2_500_000_000, 5);
    origin::write(&Directory::open(&options.directory).unwrap(), begun).unwrap();
    let aside = options.directory.join("replaced-1");
    fs::create_dir(&aside).unwrap();
    fs::write(aside.join("group-state.bin"), b"of a member").unwrap();
    let replacing = RestoreOptions { is_replacing: true, ..options };
    let began = restored(&backup_of(7), &replacing).unwrap();
    assert!(began.group.is_after(begun), "{} after {begun}", began.group);
    assert_eq!(generations(&replacing).0, began.group);
}

#[test]
fn backup_is_refused_with_any_byte_changed_cut_or_added() {
    let whole = backup_of(7);
    assert_eq!(check(&whole[..], &mut io::sink()).unwrap().cluster(), Some(ClusterId(7)));
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        assert!(check(&bytes[..], &mut io::sink()).is_err(), "byte {at} was changed");
        let cut = check(&whole[..at], &mut io::sink());
        assert!(matches!(cut, Err(BackupError::Damaged(_))), "cut at {at}: {cut:?}");
    }
    let longer = check(&[&whole[..], b"x"].concat()[..], &mut io::sink());
    assert!(matches!(longer, Err(BackupError::Damaged(_))), "{longer:?}");
    let other = check(&b"something else entirely"[..], &mut io::sink());
    assert!(matches!(other, Err(BackupError::NotOne)), "{other:?}");
}

#[test]
fn backup_of_a_format_that_is_not_read_is_refused_with_what_wrote_it() {
    let format = format!("\"format\":{}", Catalog::FORMAT);
    let program = format!("\"program\":\"{}\"", env!("CARGO_PKG_VERSION"));
    let whole = backup_of(7);
    let text = String::from_utf8_lossy(&whole[16..]).into_owned();
    assert!(text.contains(&format) && text.contains(&program), "{text}");
    let mut other = whole.clone();
    let at = whole.windows(format.len()).position(|it| it == format.as_bytes()).unwrap();
    let not_read = Catalog::FORMAT_MIN - 1;
    other[at + format.len() - 1] = b'0' + u8::try_from(not_read).unwrap();
    let error = check(&other[..], &mut io::sink()).unwrap_err().to_string();
    let expected = format!(
        "the backup was written by sanderling {} in format {not_read}; this program reads {} to {}",
        env!("CARGO_PKG_VERSION"),
        Catalog::FORMAT_MIN,
        Catalog::FORMAT
    );
    assert_eq!(error, expected);
}

#[test]
fn backup_of_a_layout_that_is_not_read_is_refused_with_what_wrote_it() {
    let mut other = backup_of(7);
    let later = LAYOUT + 1;
    other[8..12].copy_from_slice(&later.to_le_bytes());
    let expected = |writer: &str| {
        format!(
            "the backup was written by {writer} in layout {later} of the file; this program reads \
             layout {LAYOUT}"
        )
    };
    let error = check(&other[..], &mut io::sink()).unwrap_err().to_string();
    assert_eq!(error, expected(concat!("sanderling ", env!("CARGO_PKG_VERSION"))));
    other[16] = b'[';
    let error = check(&other[..], &mut io::sink()).unwrap_err().to_string();
    assert_eq!(error, expected("another version of sanderling"));
}

#[test]
fn refused_restore_leaves_nothing_new() {
    let (place, whole) = (TempDir::new().unwrap(), backup_of(7));
    let deep = RestoreOptions { directory: place.path().join("a/b"), ..options(&place) };
    let mut other = whole.clone();
    other[8] += 1;
    for bytes in [&other[..], &whole[..whole.len() - 1], b"something else entirely"] {
        restored(bytes, &deep).unwrap_err();
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }
    fs::create_dir(place.path().join("a")).unwrap();
    fs::create_dir(&deep.directory).unwrap();
    let given = RestoreOptions { cluster: Some(ClusterId(8)), ..deep.clone() };
    restored(&whole, &given).unwrap_err();
    assert_eq!(fs::read_dir(&deep.directory).unwrap().count(), 0);
    restored(&whole, &deep).unwrap();
    assert!(deep.directory.join("lock").exists());
    let replacing = RestoreOptions { is_replacing: true, ..deep };
    restored(&other, &replacing).unwrap_err();
    let names = fs::read_dir(&replacing.directory).unwrap().map(|it| it.unwrap().file_name());
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    assert_eq!(names[..2], ["group-floor.json", "lock"]);
    assert!(names[2].to_string_lossy().starts_with("snapshot-") && names.len() == 3, "{names:?}");
}

#[test]
fn restore_that_is_given_up_leaves_nothing_new() {
    let place = TempDir::new().unwrap();
    let path = place.path().join("a/b");
    let begin = || {
        let begun = UnfinishedRestore::begin(&path, false).unwrap();
        assert!(path.join("lock").exists() && fs::read_dir(&path).unwrap().count() == 1);
        fs::write(path.join("recovered-journal-00000000000000000000.log.tmp"), b"half").unwrap();
        begun
    };
    drop(begin());
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    begin().end(ClusterId(7), &[], || Ok(())).unwrap();
    assert_eq!(fs::read_dir(&path).unwrap().count(), 2);
    // The lock was there before this one.
    drop(begin());
    assert!(path.join("lock").exists() && fs::read_dir(&path).unwrap().count() == 1);
}

#[test]
fn directory_in_use_or_with_files_is_left_as_it_is() {
    let (place, backup) = (TempDir::new().unwrap(), backup_of(7));
    let options = options(&place);
    restored(&backup, &options).unwrap();
    let running = Directory::open(&options.directory).unwrap();
    let replacing = RestoreOptions { is_replacing: true, ..options.clone() };
    let locked = restored(&backup, &replacing).unwrap_err();
    assert!(locked.to_string().contains("is in use by another namenode"), "{locked}");
    drop(running);
    let full = restored(&backup, &options);
    assert!(matches!(full, Err(RestoreError::NotEmpty { .. })), "{full:?}");
    restored(&backup, &replacing).unwrap();
    assert!(options.directory.join("replaced-1").is_dir(), "what was there is kept");
    let foreign = RestoreOptions { directory: place.path().to_owned(), ..replacing };
    fs::write(place.path().join("notes.tmp"), b"not ours").unwrap();
    let refused = restored(&backup, &foreign);
    assert!(matches!(refused, Err(RestoreError::Foreign { .. })), "{refused:?}");
    assert!(place.path().join("notes.tmp").exists());
}

#[test]
fn restore_that_fails_while_files_are_exchanged_reports_it_and_may_be_made_again() {
    let (place, backup) = (TempDir::new().unwrap(), backup_of(7));
    let options = options(&place);
    restored(&backup, &options).unwrap();
    let is_marked = || is_restore_unfinished(&options.directory);
    // A link that leads nowhere keeps its name.
    let aside = options.directory.join("replaced-1");
    std::os::unix::fs::symlink("nowhere", &aside).unwrap();
    let replacing = RestoreOptions { is_replacing: true, ..options.clone() };
    restored(&backup, &replacing).unwrap();
    assert!(!is_marked() && fs::symlink_metadata(&aside).unwrap().is_symlink());
    assert!(options.directory.join("replaced-2").is_dir());
    // What was there is set aside, then one of the new files is missing.
    let directory = Directory::open(&options.directory).unwrap();
    let names = ["one.tmp", "other.tmp"].map(|name| options.directory.join(name));
    fs::write(&names[1], b"whole").unwrap();
    let files = names.clone().map(|name| (name.clone(), name.with_extension("bin")));
    let failed = exchange(&directory, ClusterId(7), &files, || Ok(())).unwrap_err();
    assert!(matches!(failed, RestoreError::Unfinished(_)), "{failed}");
    assert!(failed.to_string().starts_with("cannot put in place "), "{failed}");
    assert!(is_marked() && !names[1].exists(), "no namenode starts there");
    drop(directory);
    restored(&backup, &options).unwrap();
    assert!(!is_marked());
}

#[test]
fn restore_that_exchanges_nothing_leaves_no_mark() {
    let (place, backup) = (TempDir::new().unwrap(), backup_of(7));
    let options = options(&place);
    let mark = options.directory.join("restore-unfinished");
    fs::create_dir(&options.directory).unwrap();
    fs::write(options.directory.join("lock"), b"").unwrap();
    // The mark cannot be written.
    fs::create_dir(&mark).unwrap();
    let replacing = RestoreOptions { is_replacing: true, ..options.clone() };
    let failed = restored(&backup, &replacing).unwrap_err();
    assert!(matches!(failed, RestoreError::Directory(_)), "{failed}");
    assert!(failed.to_string().starts_with("cannot write a mark in "), "{failed}");
    assert!(!options.directory.join("restored.tmp").exists());
    fs::remove_dir(&mark).unwrap();
    // The mark is written, and the first file cannot be put in place.
    let directory = Directory::open(&options.directory).unwrap();
    let missing = options.directory.join("missing.tmp");
    let files = [(missing.clone(), missing.with_extension("bin"))];
    let failed = exchange(&directory, ClusterId(7), &files, || Ok(())).unwrap_err();
    assert!(matches!(failed, RestoreError::Directory(_)), "{failed}");
    assert!(!is_restore_unfinished(&options.directory), "{failed}");
}

#[test]
fn restore_that_was_cut_off_is_ended_without_replacing_by_a_backup_of_its_cluster_alone() {
    let place = TempDir::new().unwrap();
    let options = options(&place);
    restored(&backup_of(7), &options).unwrap();
    let mark = options.directory.join("restore-unfinished");
    // The program before wrote an empty mark.
    for text in ["", "0000000000000007 ", "0000000000000008"] {
        fs::write(&mark, text).unwrap();
        let refused = restored(&backup_of(7), &options);
        assert!(matches!(refused, Err(RestoreError::NotEmpty { .. })), "{text:?}: {refused:?}");
    }
    let directory = Directory::open(&options.directory).unwrap();
    let snapshot = directory.list(FileKind::Snapshot).unwrap()[0];
    let snapshot = directory.file(FileKind::Snapshot, snapshot);
    let left = options.directory.join("left");
    fs::rename(&snapshot, &left).unwrap();
    let fail = || Err::<(), _>(NamenodeStartError::Unrestored { directory: left.clone() });
    exchange(&directory, ClusterId(7), &[(left.clone(), snapshot)], fail).unwrap_err();
    drop(directory);
    assert_eq!(fs::read_to_string(&mark).unwrap(), "0000000000000007");
    let other = restored(&backup_of(8), &options);
    assert!(matches!(other, Err(RestoreError::NotEmpty { .. })), "{other:?}");
    assert!(mark.exists(), "no namenode starts there");
    restored(&backup_of(7), &options).unwrap();
    assert!(!mark.exists() && options.directory.join("replaced-1").is_dir());
}

#[test]
fn restore_of_another_cluster_needs_replacing_also_where_all_was_set_aside() {
    let place = TempDir::new().unwrap();
    let options = options(&place);
    restored(&backup_of(7), &options).unwrap();
    let mark = options.directory.join("restore-unfinished");
    let missing = options.directory.join("missing.tmp");
    let files = [(missing.clone(), missing.with_extension("bin"))];
    let exchanged = |cluster| {
        let directory = Directory::open(&options.directory).unwrap();
        exchange(&directory, cluster, &files, || Ok(())).unwrap_err()
    };
    let failed = exchanged(ClusterId(7));
    assert!(matches!(failed, RestoreError::Unfinished(_)), "{failed}");
    // Another mark was written by the program before. What fails before the exchange changes none.
    for text in ["0000000000000007", ""] {
        fs::write(&mark, text).unwrap();
        let failed = exchanged(ClusterId(8));
        assert!(matches!(failed, RestoreError::Directory(_)), "{failed}");
        assert_eq!(fs::read_to_string(&mark).unwrap(), text);
        let other = restored(&backup_of(8), &options);
        assert!(matches!(other, Err(RestoreError::NotEmpty { .. })), "{text:?}: {other:?}");
        assert_eq!(fs::read_to_string(&mark).unwrap(), text);
    }
    let replacing = RestoreOptions { is_replacing: true, ..options.clone() };
    restored(&backup_of(8), &replacing).unwrap();
    assert!(!mark.exists() && options.directory.join("replaced-1").is_dir());
}

#[test]
fn backup_of_another_cluster_is_refused_where_one_is_given() {
    let place = TempDir::new().unwrap();
    let given = RestoreOptions { cluster: Some(ClusterId(8)), ..options(&place) };
    let other = restored(&backup_of(7), &given);
    assert!(matches!(other, Err(RestoreError::OtherCluster { .. })), "{other:?}");
    restored(&backup_of(8), &given).unwrap();
}
