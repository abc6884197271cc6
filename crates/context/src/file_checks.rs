//! Files of a configuration: whose they are, since their owner can point a caller to another
//! server, and what they are, since only a regular file has an end.

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Returns whether a file belongs to root or to the caller.
#[must_use]
pub fn is_ours(file: &Metadata) -> bool {
    [0, rustix::process::geteuid().as_raw()].contains(&file.uid())
}

/// Opens a file to read it. A pipe is opened, too, without a wait for its writer: what was opened
/// must be looked at before it is read.
///
/// # Errors
/// The system's error: correct the path.
pub fn open_without_waiting(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Returns what a file is, for messages.
#[must_use]
pub fn file_kind(kind: FileType) -> &'static str {
    match kind {
        _ if kind.is_dir() => "a directory",
        _ if kind.is_fifo() => "a pipe",
        _ if kind.is_socket() => "a socket",
        _ if kind.is_char_device() || kind.is_block_device() => "a device",
        _ => "a regular file",
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;

    #[test]
    fn pipe_without_a_writer_is_opened_at_once_and_named() {
        let directory = tempfile::tempdir().expect("a directory");
        let pipe = directory.path().join("pipe");
        mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).expect("made");
        let kind = |path: &Path| {
            let file = open_without_waiting(path).expect("opened");
            file_kind(file.metadata().expect("looked at").file_type())
        };
        assert_eq!(kind(&pipe), "a pipe");
        assert_eq!(kind(directory.path()), "a directory");
        assert_eq!(kind(Path::new("/dev/null")), "a device");
        let file = directory.path().join("file");
        std::fs::write(&file, "").expect("written");
        assert_eq!(kind(&file), "a regular file");
    }
}
