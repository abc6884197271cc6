//! Writing a backup to a file.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use sanderling_core::catalog::Catalog;
use sanderling_protocol::checksum::{Running, combine, crc32c};

use super::{BackupDescription, END, LAYOUT, MAGIC, PIECE};
use crate::snapshot;

/// A writer whose bytes are counted into a checksum.
struct SummedWriter<'a> {
    file: BufWriter<&'a File>,
    sum: Running,
    bytes: u64,
}

impl Write for SummedWriter<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let count = self.file.write(buffer)?;
        self.sum.update(&buffer[..count]);
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Writes a backup of a catalog's image to an empty file; returns its bytes. The encoded catalog is
/// never whole in memory.
pub(crate) fn write(mut file: &File, catalog: Catalog) -> io::Result<u64> {
    let head = head(&catalog)?;
    let header_at = head.len() as u64;
    file.write_all(&head)?;
    // The place of the snapshot's header, which is known after the body.
    file.write_all(&[0; snapshot::HEADER_BYTES])?;
    let buffer = BufWriter::with_capacity(PIECE, file);
    let body = SummedWriter { file: buffer, sum: Running::default(), bytes: 0 };
    let mut body = postcard::to_io(&catalog, body).map_err(io::Error::other)?;
    drop(catalog);
    body.flush()?;
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

fn head(catalog: &Catalog) -> io::Result<Vec<u8>> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let description = serde_json::to_vec(&BackupDescription {
        program: env!("CARGO_PKG_VERSION").to_owned(),
        format: Catalog::FORMAT,
        cluster: format!("{:016x}", catalog.cluster().0),
        commands: catalog.index(),
        taken_unix_millis: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
    })?;
    let length = u32::try_from(description.len()).expect("a few hundred bytes");
    Ok([&MAGIC[..], &LAYOUT.to_le_bytes(), &length.to_le_bytes(), &description].concat())
}
