//! Blocks in a directory with a size, one file each.
//!
//! Nothing in the directory outlives the incarnation that wrote it: it is emptied at the start. A
//! marker file, locked while the node runs, says that the directory is ours to empty.

mod cached;
mod memory;
mod read;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use rustix::fs::FlockOperation;
use sanderling_protocol::{BlockId, Refusal, Tier};
use thiserror::Error;

use self::read::Reading;
use crate::runs::Runs;

/// Says that the directory is a datanode's.
const MARKER: &str = "sanderling-datanode";

/// Found in the root of a fresh file system, and nobody's.
const MOUNT_POINT: &str = "lost+found";

/// How the names of block files end.
const BLOCK_SUFFIX: &str = ".block";

/// What a file is accounted at, as file systems do.
const PAGE_BYTES: u64 = 4096;

/// Why a directory cannot be the disk tier.
#[derive(Debug, Error)]
pub enum DiskError {
    /// It is missing, not a directory, or not writable.
    #[error("the disk directory {directory:?} cannot be used: {cause}")]
    Unusable {
        /// The directory.
        directory: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// It holds files that no datanode wrote.
    #[error(
        "the disk directory {directory:?} holds {found:?}, which no datanode wrote: \
         choose an empty one"
    )]
    NotOurs {
        /// The directory.
        directory: PathBuf,
        /// One of the files.
        found: String,
    },
    /// Another datanode runs on it.
    #[error("the disk directory {directory:?} is in use by another datanode")]
    InUse {
        /// The directory.
        directory: PathBuf,
    },
}

/// The disk tier.
#[derive(Debug)]
pub(crate) struct DiskTier {
    directory: PathBuf,
    bytes: u64,
    used_bytes: AtomicU64,
    serial: AtomicU64,
    reading: Reading,
    /// Holds the lock that keeps other datanodes away.
    _marker: File,
}

/// The bytes of a block in a file as they were at one length.
#[derive(Debug)]
pub(crate) struct DiskBytes {
    file: Arc<BlockFile>,
    length: u32,
    runs: Runs,
}

/// One file. It is deleted when the last value that needs it, and the last reader, is gone.
#[derive(Debug)]
struct BlockFile {
    tier: Arc<DiskTier>,
    path: PathBuf,
    accounted_bytes: AtomicU64,
}

impl DiskTier {
    /// Takes an existing directory and empties it of what an earlier incarnation left.
    ///
    /// # Errors
    /// [`DiskError`]: choose another directory.
    pub(crate) fn open(directory: &Path, bytes: u64) -> Result<Self, DiskError> {
        let unusable = |cause| DiskError::Unusable { directory: directory.to_owned(), cause };
        let found = files(directory).map_err(unusable)?;
        let is_ours = found.iter().any(|name| name == MARKER);
        let foreign = found.iter().find(|name| *name != MARKER && !name.ends_with(BLOCK_SUFFIX));
        if let Some(foreign) = foreign.or(found.first().filter(|_| !is_ours)) {
            let (directory, found) = (directory.to_owned(), foreign.clone());
            return Err(DiskError::NotOurs { directory, found });
        }
        let path = directory.join(MARKER);
        let mut options = OpenOptions::new();
        let marker =
            options.create(true).truncate(false).write(true).open(path).map_err(unusable)?;
        rustix::fs::flock(&marker, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| DiskError::InUse { directory: directory.to_owned() })?;
        for name in found.iter().filter(|name| *name != MARKER) {
            fs::remove_file(directory.join(name)).map_err(unusable)?;
        }
        Ok(Self {
            directory: directory.to_owned(),
            bytes,
            used_bytes: AtomicU64::new(0),
            serial: AtomicU64::new(0),
            reading: Reading::default(),
            _marker: marker,
        })
    }

    /// Returns the tier's size in bytes.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the bytes of files, rounded up to pages.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    fn reserve(&self, bytes: u64) -> Result<(), Refusal> {
        let add = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.bytes);
        match self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(_) => Ok(()),
            Err(_) => Err(full(bytes)),
        }
    }

    fn release(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl DiskBytes {
    /// Begins an empty block; its file begins with the first bytes.
    pub(crate) fn new(tier: &Arc<DiskTier>, block: BlockId) -> Self {
        let serial = tier.serial.fetch_add(1, Ordering::Relaxed);
        let path = tier.directory.join(format!("{:016x}-{serial}{BLOCK_SUFFIX}", block.0));
        let accounted_bytes = AtomicU64::new(0);
        let file = Arc::new(BlockFile { tier: Arc::clone(tier), path, accounted_bytes });
        Self { file, length: 0, runs: Runs::default() }
    }

    pub(crate) const fn runs(&self) -> &Runs {
        &self.runs
    }

    /// Writes `bytes` after the block's end and returns the block with them. Blocks the thread.
    ///
    /// Bytes of an earlier append that a fence refused are overwritten: nobody has seen them.
    ///
    /// # Errors
    /// [`Refusal::NodeFull`] when the tier's limit or the disk is reached, [`Refusal::TierFailed`]
    /// when the disk fails.
    pub(crate) fn with(&self, bytes: &[u8], checksum: u32) -> Result<Self, Refusal> {
        let added = u32::try_from(bytes.len()).map_err(|_| full(bytes.len() as u64))?;
        let length = self.length.checked_add(added).ok_or_else(|| full(bytes.len() as u64))?;
        self.file.account(u64::from(length))?;
        let mut options = OpenOptions::new();
        let file = options.create(true).truncate(false).write(true).open(&self.file.path);
        file.and_then(|file| file.write_all_at(bytes, u64::from(self.length)))
            .map_err(|error| refusal(&error, u64::from(added)))?;
        let runs = self.runs.with(added, checksum);
        Ok(Self { file: Arc::clone(&self.file), length, runs })
    }

    /// Reads `length` bytes from `offset`. Blocks the thread.
    ///
    /// # Errors
    /// [`Refusal::TierFailed`] when the disk fails or the file is shorter than it was written.
    pub(crate) fn read(&self, offset: u32, length: u32) -> Result<Bytes, Refusal> {
        File::open(&self.file.path)
            .and_then(|file| self.file.tier.reading.read(&file, offset, length))
            .map_err(|error| refusal(&error, u64::from(length)))
    }
}

impl BlockFile {
    fn account(&self, length: u64) -> Result<(), Refusal> {
        let wanted = length.next_multiple_of(PAGE_BYTES);
        let before = self.accounted_bytes.load(Ordering::Relaxed);
        if let Some(more) = wanted.checked_sub(before) {
            self.tier.reserve(more)?;
            self.accounted_bytes.store(wanted, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Drop for BlockFile {
    fn drop(&mut self) {
        let accounted = self.accounted_bytes.load(Ordering::Relaxed);
        if accounted == 0 {
            return;
        }
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %self.path.display(), %error, "a block file stays behind");
            }
            _ => self.tier.release(accounted),
        }
    }
}

fn files(directory: &Path) -> io::Result<Vec<String>> {
    let name = |entry: io::Result<fs::DirEntry>| {
        entry.map(|entry| entry.file_name().to_string_lossy().into_owned())
    };
    let names: io::Result<Vec<String>> = fs::read_dir(directory)?.map(name).collect();
    Ok(names?.into_iter().filter(|name| name != MOUNT_POINT).collect())
}

fn full(bytes: u64) -> Refusal {
    Refusal::NodeFull { tier: Tier::Disk.to_string(), bytes }
}

fn refusal(error: &io::Error, bytes: u64) -> Refusal {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => full(bytes),
        _ => {
            tracing::error!(%error, "the disk tier failed");
            Refusal::TierFailed { tier: Tier::Disk.to_string(), why: error.to_string() }
        }
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::checksum::crc32c;

    use super::*;

    const BLOCK: BlockId = BlockId(7);

    fn tier(bytes: u64) -> (tempfile::TempDir, Arc<DiskTier>) {
        let directory = tempfile::tempdir().unwrap();
        let tier = DiskTier::open(directory.path(), bytes).unwrap();
        (directory, Arc::new(tier))
    }

    fn append(block: &DiskBytes, bytes: &[u8]) -> Result<DiskBytes, Refusal> {
        block.with(bytes, crc32c(bytes))
    }

    #[test]
    fn bytes_are_read_as_written_and_the_file_goes_with_its_last_reader() {
        let (directory, tier) = tier(1 << 20);
        let first = append(&DiskBytes::new(&tier, BLOCK), &[1; 5000]).unwrap();
        let second = append(&first, &[2; 100]).unwrap();
        assert_eq!(tier.used_bytes(), 8192);
        assert_eq!(second.read(4999, 2).unwrap(), [1, 2][..]);
        assert_eq!(second.runs().checksum(5000, 5100), Some(crc32c(&[2; 100])));
        drop(second);
        assert_eq!(files(directory.path()).unwrap().len(), 2);
        drop(first);
        assert_eq!(files(directory.path()).unwrap(), [MARKER]);
        assert_eq!(tier.used_bytes(), 0);
    }

    #[test]
    fn full_tier_refuses_and_takes_again_after_a_deletion() {
        let (_directory, tier) = tier(10_000);
        let block = append(&DiskBytes::new(&tier, BLOCK), &[1; 8192]).unwrap();
        let refused = append(&DiskBytes::new(&tier, BlockId(8)), &[1; 100]);
        assert!(matches!(refused, Err(Refusal::NodeFull { .. })));
        drop(block);
        append(&DiskBytes::new(&tier, BlockId(8)), &[1; 100]).unwrap();
    }

    #[test]
    fn damaged_file_is_a_failed_tier() {
        let (directory, tier) = tier(1 << 20);
        let block = append(&DiskBytes::new(&tier, BLOCK), &[1; 100]).unwrap();
        let name = files(directory.path()).unwrap().into_iter().find(|name| name != MARKER);
        fs::write(directory.path().join(name.unwrap()), b"short").unwrap();
        assert!(matches!(block.read(0, 100), Err(Refusal::TierFailed { .. })));
    }

    #[test]
    fn directory_of_an_earlier_incarnation_is_emptied() {
        let (directory, tier) = tier(1 << 20);
        let block = append(&DiskBytes::new(&tier, BLOCK), &[1; 100]).unwrap();
        let in_use = DiskTier::open(directory.path(), 1);
        assert!(matches!(in_use, Err(DiskError::InUse { .. })));
        let left = directory.path().join("00-0.block");
        fs::write(&left, b"left").unwrap();
        drop(block);
        drop(tier);
        DiskTier::open(directory.path(), 1).unwrap();
        assert!(!left.exists());
    }

    #[test]
    fn directory_of_somebody_else_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("thesis.block");
        fs::write(&file, b"years of work").unwrap();
        let refused = DiskTier::open(directory.path(), 1);
        assert!(matches!(refused, Err(DiskError::NotOurs { .. })));
        assert!(file.exists());
        let missing = DiskTier::open(&directory.path().join("missing"), 1);
        assert!(matches!(missing, Err(DiskError::Unusable { .. })));
    }
}
