//! Reading a run of a file: from the page cache what is there, past it what is not.
//!
//! A block that was written a moment ago is still in memory, and reading it from there is several
//! times faster than the disk. One that is not would push others out on its way through the page
//! cache, be copied once more, and take memory that the arena's machine does not have to spare; so
//! it is read straight into the memory from which it is sent.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use rustix::fs::OFlags;

use super::cached::is_cached;
use super::memory::{DiskBuffers, PAGE_BYTES, Pages};

/// Shorter runs that are not in the page cache are read through it: their neighbours come along. It
/// is Linux's default read-ahead (`read_ahead_kb`), which so serves the shorter ones.
const DIRECT_BYTES_MIN: usize = 128 << 10;

/// How the files of one directory are read.
#[derive(Debug)]
pub(crate) struct DiskReader {
    memory: DiskBuffers,
    /// Not every file system can pass the page cache by.
    is_direct: AtomicBool,
}

/// Bytes that were read.
#[derive(Debug)]
pub(crate) enum DiskBytes {
    Small(Vec<u8>),
    Pages { pages: Pages, skipped: usize, wanted: usize },
}

impl Default for DiskReader {
    fn default() -> Self {
        Self { memory: DiskBuffers::default(), is_direct: AtomicBool::new(true) }
    }
}

impl DiskReader {
    /// Reads `length` bytes from `offset`. Blocks the thread.
    ///
    /// # Errors
    /// The error of the system; `UnexpectedEof` when the file is shorter.
    pub(crate) fn read(&self, file: &File, offset: u32, length: u32) -> io::Result<Bytes> {
        let piece = self.read_piece(file, u64::from(offset), length as usize)?;
        Ok(piece.freeze(0, length as usize))
    }

    /// Reads `length` bytes from `from` into memory of their own, so that they can be changed
    /// before they are sent. Blocks the thread.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(crate) fn read_piece(
        &self,
        file: &File,
        from: u64,
        length: usize,
    ) -> io::Result<DiskBytes> {
        if length < DIRECT_BYTES_MIN {
            let mut bytes = vec![0; length];
            file.read_exact_at(&mut bytes, from)?;
            return Ok(DiskBytes::Small(bytes));
        }
        let skipped = (from % PAGE_BYTES as u64) as usize;
        let wanted = skipped + length;
        let mut pages = self.memory.take(wanted);
        self.fill(file, &mut pages, from - skipped as u64, wanted)?;
        Ok(DiskBytes::Pages { pages, skipped, wanted })
    }

    fn fill(&self, file: &File, pages: &mut Pages, start: u64, wanted: usize) -> io::Result<()> {
        let is_direct = self.is_direct.load(Ordering::Relaxed)
            // A system that cannot report it may have all of it cached.
            && is_cached(file, start, wanted as u64) == Some(false);
        if is_direct {
            match read_direct(file, pages.bytes_mut(), start, wanted) {
                Err(error) if is_unable(&error) => {
                    tracing::info!(%error, "the disk tier is read through the page cache");
                    self.is_direct.store(false, Ordering::Relaxed);
                    rustix::fs::fcntl_setfl(file, OFlags::empty())?;
                }
                done => return done,
            }
        }
        file.read_exact_at(&mut pages.bytes_mut()[..wanted], start)
    }
}

impl DiskBytes {
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Small(bytes) => bytes,
            Self::Pages { pages, skipped, wanted } => &mut pages.bytes_mut()[*skipped..*wanted],
        }
    }

    /// Returns `length` bytes from `from`; they are not written any more.
    pub(crate) fn freeze(self, from: usize, length: usize) -> Bytes {
        match self {
            Self::Small(bytes) => Bytes::from(bytes).slice(from..from + length),
            Self::Pages { pages, skipped, .. } => pages.freeze(skipped + from, length),
        }
    }
}

/// Reads whole pages past the page cache until `wanted` bytes are there.
fn read_direct(file: &File, pages: &mut [u8], start: u64, wanted: usize) -> io::Result<()> {
    rustix::fs::fcntl_setfl(file, OFlags::DIRECT)?;
    let mut filled = 0;
    while filled < wanted {
        let read = match file.read_at(&mut pages[filled..], start + filled as u64) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        filled += read;
        // Only the last page of a file is read in part.
        if filled < wanted && (read == 0 || !filled.is_multiple_of(PAGE_BYTES)) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

fn is_unable(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        file.write_all(bytes).unwrap();
        file.sync_all().unwrap();
        file
    }

    fn pattern(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|index| (index % 251) as u8).collect()
    }

    fn forget_cached(file: &File) {
        rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }

    #[test]
    fn ranges_are_read_as_written_cached_or_not() {
        let all = pattern((1 << 20) - 77);
        let (file, reading) = (file(&all), DiskReader::default());
        let end = all.len() as u32;
        let ranges = [(0, end), (1, 200_000), (4096, 131_072), (end - 131_073, 131_073), (end, 0)];
        for (offset, length) in ranges {
            let wanted = &all[offset as usize..(offset + length) as usize];
            assert_eq!(reading.read(&file, offset, length).unwrap(), wanted);
            forget_cached(&file);
            assert_eq!(reading.read(&file, offset, length).unwrap(), wanted);
            reading.is_direct.store(false, Ordering::Relaxed);
            rustix::fs::fcntl_setfl(&file, OFlags::empty()).unwrap();
            assert_eq!(reading.read(&file, offset, length).unwrap(), wanted);
            reading.is_direct.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn file_that_is_too_short_is_an_error_cached_or_not() {
        let all = pattern(300_000);
        let (file, reading) = (file(&all), DiskReader::default());
        for (offset, length) in
            [(0, 300_001), (200_000, 400_000), (299_008, 200_000), (300_000, 200_000)]
        {
            for _ in 0..2 {
                let read = reading.read(&file, offset, length);
                assert_eq!(read.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
                forget_cached(&file);
            }
        }
    }
}
