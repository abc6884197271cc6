//! Files that only their owner can read.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use sanderling_command::failure::Failure;
use sanderling_command::refused::shell_word;

/// Writes a new file that only its owner can read.
///
/// # Errors
/// It exists already: choose another path. It cannot be written: free room, or correct the path.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    write_new(path, bytes).map_err(|error| unwritten(path, error))
}

/// Describes a file that was to be written: one that exists has another as its next command.
fn unwritten(path: &Path, error: std::io::Error) -> Failure {
    let kind = error.kind();
    let failure = Failure::file(path, error);
    match kind {
        std::io::ErrorKind::AlreadyExists => {
            let other = format!("{}.new", path.display());
            failure.instead(format_args!("the same with --out {}", shell_word(&other)))
        }
        _ => failure,
    }
}

/// Writes such a file in place of another, atomically: a reader meanwhile gets one of the two
/// whole.
///
/// # Errors
/// It cannot be written.
pub(crate) fn replace_private(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let partial = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let written = write_new(&partial, bytes).and_then(|()| std::fs::rename(&partial, path));
    written.map_err(|error| unwritten(path, error))
}

fn write_new(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
