//! The files that a cluster's servers and its start write below its directory: only those are
//! deleted.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use sanderling_command::failure::Failure;
use sanderling_command::ready::{NotReady, Ready};
use sanderling_protocol::token::read_hex;

use super::directory::{CATALOG_LOCK, CATALOGS, DISK_MARKER, DISKS, KEYS, LOGS, READY};
use super::keys::KEY_FILES;
use super::ownership::names;

/// Files of a catalog with one name each.
const CATALOG_FILES: [&str; 12] = [
    CATALOG_LOCK,
    "sync-failed",
    "group-sync-failed",
    "restore-unfinished",
    "restore-unfinished.tmp",
    "group-state.bin",
    "leaving-group-state.bin",
    "cut-group-state.bin",
    "group-generation.json",
    "group-floor.json",
    "backup.tmp",
    "restored.tmp",
];

/// Files of a catalog whose names contain numbers: what is before them, and after them.
const CATALOG_NUMBERED: [(&str, &str); 7] = [
    ("journal-", ".log"),
    ("snapshot-", ".bin"),
    ("rounds-", ".log"),
    ("cut-", ".bin"),
    ("cut-rounds-", ".bin"),
    ("damaged-snapshot-", ".bin"),
    ("group-snapshot-", ".tmp"),
];

/// How the names of directories begin in which a restore puts what it sets aside.
const REPLACED_BEGIN: &str = "replaced-";

/// What a deletion did not delete.
#[derive(Debug, Default)]
pub(super) struct Undeleted {
    /// Files that no local cluster made, and directories with such files.
    pub(super) foreign: Vec<PathBuf>,
    /// What the operating system refused to delete.
    pub(super) failed: Vec<Failure>,
}

/// Returns the bytes of the catalogs of a cluster's namenodes.
pub(super) fn catalog_bytes(directory: &Path) -> u64 {
    catalog_bytes_in(&directory.join(CATALOGS))
}

/// Returns the bytes of the files of catalogs in a directory and in those in it. A directory that
/// cannot be read counts as empty: nothing in it can be deleted either.
fn catalog_bytes_in(directory: &Path) -> u64 {
    let size = |path: PathBuf| match path.symlink_metadata() {
        Ok(found) if found.is_dir() => catalog_bytes_in(&path),
        Ok(found) if found.is_file() && is_catalog_file(&path) => found.len(),
        _ => 0,
    };
    names(directory).unwrap_or_default().iter().map(|name| size(directory.join(name))).sum()
}

/// Deletes the data of a cluster whose servers have ended, and the directories that are empty then.
pub(super) fn delete_data(directory: &Path) -> Undeleted {
    let mut undeleted = Undeleted::default();
    undeleted.delete_catalogs(&directory.join(CATALOGS));
    undeleted.delete_disks(&directory.join(DISKS));
    undeleted.delete(&directory.join(READY), is_ready_file);
    undeleted.delete(&directory.join(KEYS), |path| KEY_FILES.contains(&name_of(path).as_str()));
    undeleted
}

/// Deletes the logs of servers with the names that a start chooses.
pub(super) fn delete_logs(directory: &Path) -> Undeleted {
    let mut undeleted = Undeleted::default();
    undeleted.delete(&directory.join(LOGS), is_log);
    undeleted
}

impl Undeleted {
    fn delete_catalogs(&mut self, directory: &Path) {
        for path in self.paths(directory) {
            let name = name_of(&path);
            let below = ["namenode-", REPLACED_BEGIN].map(|begin| number_after(begin, &name));
            if is_directory(&path) && below.contains(&true) {
                self.delete_catalogs(&path);
            } else {
                self.delete_file(&path, is_catalog_file);
            }
        }
        self.delete_empty(directory);
    }

    /// The marker goes last: what is left before is still a datanode's.
    fn delete_disks(&mut self, directory: &Path) {
        for path in self.paths(directory) {
            if !is_directory(&path) {
                self.foreign.push(path);
                continue;
            }
            let marker = path.join(DISK_MARKER);
            let is_datanode = marker.is_file();
            for file in self.paths(&path).into_iter().filter(|file| *file != marker) {
                self.delete_file(&file, |file| is_datanode && is_block_file(file));
            }
            if is_datanode {
                self.delete_file(&marker, |_| true);
            }
            self.delete_empty(&path);
        }
        self.delete_empty(directory);
    }

    /// Deletes those files of a directory that are ours, and the directory if it is empty then.
    fn delete(&mut self, directory: &Path, is_ours: fn(&Path) -> bool) {
        for path in self.paths(directory) {
            self.delete_file(&path, is_ours);
        }
        self.delete_empty(directory);
    }

    fn delete_file(&mut self, path: &Path, is_ours: impl Fn(&Path) -> bool) {
        let is_file = path.symlink_metadata().is_ok_and(|found| found.is_file());
        if is_file && is_ours(path) {
            self.deleted(path, fs::remove_file(path));
        } else {
            self.foreign.push(path.to_owned());
        }
    }

    fn delete_empty(&mut self, directory: &Path) {
        match fs::remove_dir(directory) {
            // The files in it are reported, not the directory.
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {}
            // A link to a directory, or a file in its place.
            Err(error) if error.kind() == ErrorKind::NotADirectory => {
                self.foreign.push(directory.to_owned());
            }
            removed => self.deleted(directory, removed),
        }
    }

    fn deleted(&mut self, path: &Path, removed: io::Result<()>) {
        match removed {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                self.failed.push(Failure::file(path, error));
            }
            _ => {}
        }
    }

    /// Returns what is in a directory; nothing where it is none.
    fn paths(&mut self, directory: &Path) -> Vec<PathBuf> {
        if !directory.is_dir() {
            return Vec::new();
        }
        match names(directory) {
            Ok(names) => names.iter().map(|name| directory.join(name)).collect(),
            Err(failure) => {
                self.failed.push(failure);
                Vec::new()
            }
        }
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn is_directory(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.is_dir())
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn number_after(begin: &str, name: &str) -> bool {
    name.strip_prefix(begin).is_some_and(is_number)
}

fn is_hexadecimal(text: &str) -> bool {
    read_hex(text).is_some()
}

/// Returns whether a text is a number of full length, or one with another number after a dash.
fn is_numbers(text: &str) -> bool {
    let (first, second) = text.split_once('-').unwrap_or((text, "0"));
    let is_full = (first.len() == 20 && is_number(first)) || is_hexadecimal(first);
    is_full && is_number(second)
}

fn is_catalog_file(path: &Path) -> bool {
    let name = name_of(path);
    let whole = name.strip_prefix("recovered-").and_then(|it| it.strip_suffix(".tmp"));
    let is_whole = |name: &str| {
        CATALOG_FILES.contains(&name)
            || CATALOG_NUMBERED.iter().any(|(begin, end)| {
                let numbers = name.strip_prefix(begin).and_then(|it| it.strip_suffix(end));
                numbers.is_some_and(is_numbers)
            })
    };
    // A file that was being written has `tmp` in place of its last extension.
    let partial = |name: &str| {
        let stem = name.strip_suffix(".tmp")?;
        Some([".log", ".bin", ".json"].map(|end| format!("{stem}{end}")))
    };
    let is_partial =
        |name: &str| partial(name).is_some_and(|names| names.iter().any(|name| is_whole(name)));
    is_whole(&name) || is_partial(&name) || whole.is_some_and(is_whole)
}

fn is_block_file(path: &Path) -> bool {
    let name = name_of(path);
    let parts = name.strip_suffix(".block").and_then(|it| it.split_once('-'));
    parts.is_some_and(|(block, serial)| is_hexadecimal(block) && is_number(serial))
}

/// Returns whether a file is a ready file, or one that was being written.
fn is_ready_file(path: &Path) -> bool {
    let name = name_of(path);
    let partial = name.strip_prefix('.').and_then(|it| it.rsplit_once('.'));
    Ready::read(path).is_some()
        || NotReady::read(path).is_some()
        || partial.is_some_and(|(_, process)| is_number(process))
}

fn is_log(path: &Path) -> bool {
    let is_server = |name: &str| {
        name == "namenode"
            || ["namenode-", "datanode-", "spot-"].iter().any(|begin| number_after(begin, name))
    };
    path.extension() == Some(OsStr::new("log"))
        && path.file_stem().and_then(OsStr::to_str).is_some_and(is_server)
}

#[cfg(test)]
mod tests {
    use sanderling_datanode::file_names as datanode;
    use sanderling_namenode::file_names as namenode;
    use sanderling_protocol::BlockId;

    use super::*;

    #[test]
    fn files_of_servers_are_those_that_they_write() {
        let written = namenode::examples();
        for name in &written {
            assert!(is_catalog_file(Path::new(name)), "{name} is not deleted");
        }
        for name in CATALOG_FILES {
            assert!(written.iter().any(|it| it == name), "no namenode writes {name}");
        }
        for (begin, end) in CATALOG_NUMBERED {
            let is_of = |name: &String| {
                let numbers = name.strip_prefix(begin).and_then(|it| it.strip_suffix(end));
                numbers.is_some_and(is_numbers)
            };
            assert!(written.iter().any(is_of), "no namenode writes {begin}N{end}");
        }
        assert_eq!((CATALOG_LOCK, REPLACED_BEGIN), (namenode::LOCK, namenode::REPLACED_BEGIN));
        assert_eq!(DISK_MARKER, datanode::MARKER);
        assert!(is_block_file(Path::new(&datanode::block(BlockId(0xa7), 12))));
    }

    #[test]
    fn files_of_others_are_no_files_of_a_catalog() {
        let ours = [
            "lock",
            "journal-00000000000000000000.log",
            "journal-00000000000000000000.tmp",
            "snapshot-00000000000000000017.bin",
            "cut-00000000000000000003-8192.bin",
            "cut-rounds-00000000000000000003.bin",
            "group-state.tmp",
            "group-generation.tmp",
            "group-floor.json",
            "group-snapshot-00000000000000af.tmp",
            "recovered-journal-00000000000000000000.log.tmp",
        ];
        for name in ours {
            assert!(is_catalog_file(Path::new(name)), "{name}");
        }
        let foreign =
            ["journal-notes.log", "notes.tmp", "snapshot-.bin", "journal-1.log", "cut-cafe.bin"];
        for name in foreign {
            assert!(!is_catalog_file(Path::new(name)), "{name}");
        }
    }

    #[test]
    fn files_of_blocks_have_an_id_and_a_number() {
        assert!(is_block_file(Path::new("00000000000000a7-12.block")));
        for name in ["thesis.block", "a7-12.block", "00000000000000a7-.block", "x-1.block"] {
            assert!(!is_block_file(Path::new(name)), "{name}");
        }
    }
}
