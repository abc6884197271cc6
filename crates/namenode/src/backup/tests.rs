//! Backups that are damaged, cut short or of another version, and where they may be restored.

use std::fs::{self, File};
use std::io::{Cursor, Read};

use sanderling_core::catalog::Catalog;
use sanderling_protocol::{ClusterId, Millis};
use tempfile::TempDir;

use super::restore::exchange;
use super::*;
use crate::directory::{Directory, FileKind};

fn backup_of(cluster: u64) -> Vec<u8> {
    let mut file = tempfile::tempfile().unwrap();
    let bytes = write(&file, Catalog::new(ClusterId(cluster), Millis(1000)).image()).unwrap();
    let mut whole = Vec::new();
    File::read_to_end(&mut file, &mut whole).unwrap();
    assert_eq!(whole.len() as u64, bytes);
    whole
}

fn options(place: &TempDir) -> RestoreOptions {
    RestoreOptions { directory: place.path().join("catalog"), cluster: None, is_replacing: false }
}

fn restored(bytes: &[u8], options: &RestoreOptions) -> Result<BackupDescription, RestoreError> {
    restore(Cursor::new(bytes), options)
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
    assert_eq!(names[0], "lock");
    assert!(names[1].to_string_lossy().starts_with("snapshot-") && names.len() == 2, "{names:?}");
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
