//! The parsers of files, for the fuzz targets alone, which have no directory.

use std::io;
use std::path::Path;
use std::sync::Arc;

use sanderling_core::catalog::{Catalog, Command};

use crate::error::NamenodeStartError;
use crate::files::{Stored, Window};
use crate::journal::bytes;
use crate::snapshot;

/// A file that is only read.
#[derive(Debug)]
struct Image(Vec<u8>);

impl Stored for Image {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(self.0.len());
        let count = buffer.len().min(self.0.len() - from);
        buffer[..count].copy_from_slice(&self.0[from..from + count]);
        Ok(count)
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn set_length(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

fn window(bytes: &[u8]) -> Result<Window, NamenodeStartError> {
    let path = Path::new("memory");
    Window::new(Arc::new(Image(bytes.to_vec()))).map_err(|cause| NamenodeStartError::Files {
        what: "read",
        path: path.to_owned(),
        cause,
    })
}

/// Writes a segment of the journal: tied to the salt, or in the plain version.
#[must_use]
pub fn write_segment(salt: Option<u64>, commands: &[Command]) -> Vec<u8> {
    bytes::write(salt, commands)
}

/// Reads a segment; returns the commands before the first bytes that are no record.
///
/// # Errors
/// [`NamenodeStartError`]: it has no header of such a segment; a namenode does not start on it.
pub fn read_segment(segment: &[u8]) -> Result<Vec<Command>, NamenodeStartError> {
    bytes::read(window(segment)?)
}

/// Decodes the bytes of a snapshot's file and returns the catalog in it.
///
/// # Errors
/// [`NamenodeStartError`]: the bytes are no snapshot; take an earlier one.
pub fn read_snapshot(file: &[u8]) -> Result<Catalog, NamenodeStartError> {
    snapshot::read_window(Path::new("memory"), &mut window(file)?)
}

/// Puts the header of a snapshot of this version before a body, with the right checksum.
#[must_use]
pub fn write_snapshot(version: u32, body: &[u8]) -> Vec<u8> {
    [&snapshot::header(version, body)[..], body].concat()
}
