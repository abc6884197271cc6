//! Writing a backup to a file.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Seek, SeekFrom, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use sanderling_core::catalog::Catalog;
use sanderling_core::group_generation::GroupGeneration;
use sanderling_protocol::amount;
use sanderling_protocol::checksum::{Running, combine, crc32c};
use thiserror::Error;

use super::{BackupDescription, END, LAYOUT, MAGIC, PIECE};
use crate::snapshot;

/// The journal needs the room that a backup would take.
#[derive(Debug, Error)]
#[error(
    "it would leave less than {} free there: free space on that disk, then take it again",
    amount::bytes(*free_min)
)]
struct NoRoom {
    free_min: u64,
}

/// A file on the disk of the journal, which leaves so many bytes free there.
#[derive(Debug)]
struct FrugalFile<'a> {
    file: &'a File,
    free_min: u64,
}

impl Write for FrugalFile<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let free_min = self.free_min;
        let wanted = free_min.saturating_add(buffer.len() as u64);
        if free_bytes(self.file).is_some_and(|free| free < wanted) {
            return Err(io::Error::new(ErrorKind::StorageFull, NoRoom { free_min }));
        }
        self.file.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Returns how many bytes of a file's disk are free; `None` if it reports no size.
fn free_bytes(file: &File) -> Option<u64> {
    let disk = rustix::fs::fstatvfs(file).ok().filter(|disk| disk.f_blocks > 0)?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// A writer whose bytes are counted into a checksum.
struct SummedWriter<'a> {
    file: BufWriter<FrugalFile<'a>>,
    sum: Running,
    bytes: u64,
    /// What has failed: the encoder reports only that something did.
    failure: Option<io::Error>,
}

impl SummedWriter<'_> {
    /// Keeps an error, and returns another one of its kind.
    fn failed(&mut self, error: io::Error) -> io::Error {
        let kind = error.kind();
        self.failure = Some(error);
        kind.into()
    }
}

impl Write for SummedWriter<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let count = self.file.write(buffer).map_err(|error| self.failed(error))?;
        self.sum.update(&buffer[..count]);
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush().map_err(|error| self.failed(error))
    }
}

/// Writes a backup of a catalog's image to an empty file; returns its bytes. The encoded catalog is
/// never whole in memory. `group` is the generation of the namenode's group, or the default.
///
/// # Errors
/// The file cannot be written, or its disk would have less than `free_min` bytes free.
pub(crate) fn write(
    mut file: &File,
    catalog: Catalog,
    group: GroupGeneration,
    free_min: u64,
) -> io::Result<u64> {
    let head = head(&catalog, group)?;
    let header_at = head.len() as u64;
    let mut frugal = FrugalFile { file, free_min };
    frugal.write_all(&head)?;
    // The place of the snapshot's header, which is known after the body.
    frugal.write_all(&[0; snapshot::HEADER_BYTES])?;
    let buffer = BufWriter::with_capacity(PIECE, frugal);
    let (sum, failure) = (Running::default(), None);
    let mut body = SummedWriter { file: buffer, sum, bytes: 0, failure };
    // It flushes what it has written.
    if let Some(error) = postcard::to_io(&catalog, &mut body).err() {
        return Err(body.failure.take().unwrap_or_else(|| io::Error::other(error)));
    }
    drop(catalog);
    let (checksum, bytes) = (body.sum.value(), body.bytes);
    drop(body);
    let header = snapshot::header_of(Catalog::FORMAT, checksum, bytes);
    let before = [&head[..], &header].concat();
    let whole = combine(crc32c(&before), checksum, bytes);
    file.write_all(&whole.to_le_bytes())?;
    file.write_all(&END)?;
    let length = file.stream_position()?;
    file.seek(SeekFrom::Start(header_at))?;
    file.write_all(&header)?;
    file.rewind()?;
    Ok(length)
}

fn head(catalog: &Catalog, group: GroupGeneration) -> io::Result<Vec<u8>> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let description = serde_json::to_vec(&BackupDescription {
        program: env!("CARGO_PKG_VERSION").to_owned(),
        format: Catalog::FORMAT,
        cluster: format!("{:016x}", catalog.cluster().0),
        commands: catalog.index(),
        taken_unix_millis: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
        group: Some(group),
    })?;
    let length = u32::try_from(description.len()).expect("a few hundred bytes");
    Ok([&MAGIC[..], &LAYOUT.to_le_bytes(), &length.to_le_bytes(), &description].concat())
}
