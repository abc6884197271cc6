//! Blocks in a directory with a size, one file each.
//!
//! Nothing in the directory outlives the incarnation that wrote it: it is emptied at the start. A
//! marker file, locked while the node runs, makes the directory ours to empty. Where the
//! node has a key the files are encrypted, with a key that no other incarnation has.

mod cached;
mod deletions;
mod encrypted_file;
mod memory;
mod read;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use sanderling_protocol::checksum::crc32c;
use sanderling_protocol::order::Damage;
use sanderling_protocol::{BlockId, Refusal, Tier};
use sanderling_transport::LogLimiter;
use thiserror::Error;

use self::deletions::Deletions;
use self::encrypted_file::{EncryptedFile, EncryptedFileError, Medium};
use self::read::DiskReader;
use crate::capacity::Capacity;
use crate::chunk_sums::{BodySums, ChunkSums};
use crate::encryption_key::{Cipher, EncryptionKey, salt};
use crate::file_names::{self, BLOCK_SUFFIX, MARKER};
use crate::tier::{ReadError, TierBytes};

/// Found in the root of a fresh file system.
const MOUNT_POINT: &str = "lost+found";

/// The errors of a disk that does not give bytes any more: an I/O error, and what file systems
/// make of one that they found in their own structures.
const UNREADABLE: [i32; 5] =
    [libc::EIO, libc::EUCLEAN, libc::EBADMSG, libc::ENODATA, libc::EREMOTEIO];

/// A reason why a directory cannot be the disk tier.
#[derive(Debug, Error)]
pub enum DiskError {
    /// It is missing, not a directory, or not writable.
    #[error("the disk directory {directory:?} cannot be used: {cause}")]
    Unusable {
        /// The directory.
        directory: PathBuf,
        /// The error of the system.
        #[source]
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
    capacity: Arc<Capacity>,
    serial: AtomicU64,
    reading: DiskReader,
    /// What the files are encrypted with, if they are.
    cipher: Option<Cipher>,
    /// The log has the line that the file system is full, and no line yet that it has room again.
    is_full: AtomicBool,
    full_lines: LogLimiter,
    /// Holds the lock that keeps other datanodes away, too.
    deletions: Deletions,
}

/// The bytes of a block in a file as they were at one length.
#[derive(Debug)]
pub(crate) struct DiskBytes {
    file: Arc<BlockFile>,
    length: u32,
    sums: ChunkSums,
}

/// One file. It is given to [`Deletions`] when the last value that needs it, and the last reader,
/// is gone.
#[derive(Debug)]
struct BlockFile {
    tier: Arc<DiskTier>,
    path: PathBuf,
    accounted_bytes: AtomicU64,
    encrypted: EncryptedFile,
}

impl DiskTier {
    /// Takes an existing directory and empties it of what an earlier incarnation left. With a key
    /// what is written from now on is encrypted.
    ///
    /// # Errors
    /// [`DiskError`]: choose another directory.
    pub(crate) fn open(
        directory: &Path,
        bytes: u64,
        key: Option<&EncryptionKey>,
    ) -> Result<Self, DiskError> {
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
        marker.try_lock().map_err(|_| DiskError::InUse { directory: directory.to_owned() })?;
        for name in found.iter().filter(|name| *name != MARKER) {
            fs::remove_file(directory.join(name)).map_err(unusable)?;
        }
        let capacity = Arc::new(Capacity::new(Tier::Disk, bytes));
        let deletions = Deletions::start(Arc::clone(&capacity), marker).map_err(unusable)?;
        Ok(Self {
            directory: directory.to_owned(),
            capacity,
            serial: AtomicU64::new(0),
            reading: DiskReader::default(),
            // The salt is kept nowhere: when the process has ended, what it left cannot be read.
            cipher: key.map(|key| key.derive(&salt(), "sanderling disk tier 1")),
            is_full: AtomicBool::new(false),
            full_lines: LogLimiter::per_minute(),
            deletions,
        })
    }

    /// Returns the bytes of files, as the namenode counts them, with those that are still to be
    /// deleted.
    pub(crate) fn capacity(&self) -> &Capacity {
        &self.capacity
    }

    /// Returns the number of files without a block that are still to be deleted.
    pub(crate) fn deletions_waiting(&self) -> u64 {
        self.deletions.waiting()
    }

    /// Returns the refusal of what the file system did not do.
    fn refusal(&self, error: &io::Error, bytes: u64) -> Refusal {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                self.note_full(error);
                full(bytes)
            }
            _ => {
                tracing::error!(%error, "the disk tier failed");
                Refusal::TierFailed { tier: Tier::Disk.to_string(), why: error.to_string() }
            }
        }
    }

    /// Logs that the file system has less room than the tier was given, once until a write
    /// succeeds again.
    fn note_full(&self, error: &io::Error) {
        if self.is_full.load(Ordering::Relaxed) {
            return;
        }
        // Short writes may succeed between long ones that do not.
        let Some(passed_over) = self.full_lines.admit(Instant::now()) else { return };
        if !self.is_full.swap(true, Ordering::Relaxed) {
            let directory = self.directory.display();
            tracing::warn!(
                %directory,
                %error,
                passed_over,
                "the file system of the disk tier is full: blocks are refused"
            );
        }
    }

    /// Logs that the file system takes writes again, if the log has a line that it was full.
    fn note_written(&self) {
        let was_full = || self.is_full.swap(false, Ordering::Relaxed);
        if self.is_full.load(Ordering::Relaxed) && was_full() {
            let directory = self.directory.display();
            tracing::info!(%directory, "the file system of the disk tier has room again");
        }
    }
}

impl DiskBytes {
    /// Begins an empty block; its file begins with the first bytes.
    pub(crate) fn new(tier: &Arc<DiskTier>, block: BlockId) -> Self {
        let serial = tier.serial.fetch_add(1, Ordering::Relaxed);
        let path = tier.directory.join(file_names::block(block, serial));
        let accounted_bytes = AtomicU64::new(0);
        let encrypted = EncryptedFile::new(serial, block);
        let file = Arc::new(BlockFile { tier: Arc::clone(tier), path, accounted_bytes, encrypted });
        Self { file, length: 0, sums: ChunkSums::default() }
    }

    /// Writes `bytes` after the block's end and returns the block with them. Blocks the thread.
    ///
    /// Bytes of an earlier append that a fence refused are overwritten: no reader has seen them.
    ///
    /// # Errors
    /// [`Refusal::NodeFull`] when the tier's limit or the disk is reached, [`Refusal::TierFailed`]
    /// when the disk fails, [`ReadError::Damaged`] when what was written before is gone.
    pub(crate) fn with(&self, bytes: &[u8], sums: &BodySums) -> Result<Self, ReadError> {
        let added = u32::try_from(bytes.len()).map_err(|_| full(bytes.len() as u64))?;
        let length = self.length.checked_add(added).ok_or_else(|| full(bytes.len() as u64))?;
        self.file.account(length)?;
        self.append(bytes, (added, length), sums)
    }

    /// Begins a block with the bytes that are left of a longer one, whose file is deleted then: the
    /// tier may be full. Blocks the thread.
    ///
    /// # Errors
    /// [`Refusal::NodeFull`] when the disk is full, [`Refusal::TierFailed`] when it fails.
    pub(crate) fn replacing(
        tier: &Arc<DiskTier>,
        block: BlockId,
        bytes: &[u8],
        sums: &BodySums,
    ) -> Result<Self, ReadError> {
        let length = u32::try_from(bytes.len()).map_err(|_| full(bytes.len() as u64))?;
        let empty = Self::new(tier, block);
        empty.file.accounted_bytes.store(tier.capacity.take(length), Ordering::Relaxed);
        empty.append(bytes, (length, length), sums)
    }

    /// Writes `added` bytes, which are accounted for, and returns the block with its new `length`.
    fn append(
        &self,
        bytes: &[u8],
        (added, length): (u32, u32),
        sums: &BodySums,
    ) -> Result<Self, ReadError> {
        let mut options = OpenOptions::new();
        // A file that has vanished is not begun anew in its middle.
        options.create(self.length == 0).truncate(false).read(true).write(true);
        let file = options.open(&self.file.path);
        file.map_err(EncryptedFileError::from)
            .and_then(|file| self.file.append(&file, self.length, bytes))
            .map_err(|error| self.error(error, u64::from(added)))?;
        if added > 0 {
            self.file.tier.note_written();
        }
        let sums = self.sums.with(sums);
        Ok(Self { file: Arc::clone(&self.file), length, sums })
    }

    /// Reads `length` bytes from `offset` as they are. Blocks the thread.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] when the file is gone, shorter than it was written, or its disk does
    /// not give its bytes; [`Refusal::TierFailed`] when the machine has no means to read it now.
    fn read_file(&self, offset: u32, length: u32) -> Result<Bytes, ReadError> {
        let file = File::open(&self.file.path).map_err(EncryptedFileError::from);
        file.and_then(|file| self.file.read(&file, offset, length))
            .map_err(|error| self.error(error, u64::from(length)))
    }

    /// Compares the whole file with its checksum. Blocks the thread.
    ///
    /// # Errors
    /// As [`Self::read_file`].
    fn verify(&self) -> Result<(), ReadError> {
        if crc32c(&self.read_file(0, self.length)?) == self.sums.whole() {
            Ok(())
        } else {
            Err(ReadError::Damaged(Damage::Checksum))
        }
    }

    /// Looks whether the file is there and as long as it should be. Blocks the thread.
    ///
    /// # Errors
    /// As [`Self::read_file`].
    fn probe(&self) -> Result<(), ReadError> {
        let found = fs::metadata(&self.file.path).map_err(|error| self.error(error.into(), 0))?;
        if found.len() < self.file.bytes(self.length) {
            return Err(ReadError::Damaged(Damage::Short));
        }
        Ok(())
    }

    /// Returns whether it is the same file, at this length or another one.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.file, &other.file)
    }

    /// Distinguishes bytes that are gone from a machine that has no files, memory or room left.
    fn error(&self, error: EncryptedFileError, bytes: u64) -> ReadError {
        let error = match error {
            EncryptedFileError::Io(error) => error,
            EncryptedFileError::Forged => return ReadError::Damaged(Damage::Checksum),
            EncryptedFileError::Exhausted => return full(bytes).into(),
        };
        let is_gone = self.length > 0 && error.kind() == io::ErrorKind::NotFound;
        match error.raw_os_error() {
            _ if is_gone => ReadError::Damaged(Damage::Missing),
            _ if error.kind() == io::ErrorKind::UnexpectedEof => ReadError::Damaged(Damage::Short),
            Some(number) if self.length > 0 && UNREADABLE.contains(&number) => {
                tracing::error!(path = %self.file.path.display(), %error, "the disk failed");
                ReadError::Damaged(Damage::Unreadable)
            }
            _ => self.file.tier.refusal(&error, bytes).into(),
        }
    }
}

impl TierBytes for DiskBytes {
    fn sums(&self) -> Option<&ChunkSums> {
        Some(&self.sums)
    }

    fn raw(&self, offset: u32, bytes: u32) -> Result<Vec<Bytes>, ReadError> {
        Ok(vec![self.read_file(offset, bytes)?])
    }

    fn inspect(&self, with_checksums: bool) -> Result<(), ReadError> {
        if with_checksums { self.verify() } else { self.probe() }
    }

    fn is_blocking(&self) -> bool {
        true
    }
}

impl BlockFile {
    fn append(&self, file: &File, at: u32, bytes: &[u8]) -> Result<(), EncryptedFileError> {
        let reading = &self.tier.reading;
        match &self.tier.cipher {
            Some(cipher) => self.encrypted.append(Medium { cipher, reading, file }, at, bytes),
            None => Ok(file.write_all_at(bytes, u64::from(at))?),
        }
    }

    fn read(&self, file: &File, offset: u32, length: u32) -> Result<Bytes, EncryptedFileError> {
        let reading = &self.tier.reading;
        match &self.tier.cipher {
            Some(cipher) => self.encrypted.read(Medium { cipher, reading, file }, offset, length),
            None => Ok(reading.read(file, offset, length)?),
        }
    }

    /// Returns how long the file must be for so many bytes of the block.
    fn bytes(&self, length: u32) -> u64 {
        match self.tier.cipher {
            Some(_) => self.encrypted.file_bytes(length),
            None => u64::from(length),
        }
    }

    /// Accounts for the block's bytes, as the namenode does: not for the tags of its units.
    fn account(&self, length: u32) -> Result<(), Refusal> {
        let before = self.accounted_bytes.load(Ordering::Relaxed);
        if let Some(more) = u64::from(length).checked_sub(before) {
            let more = self.tier.capacity.reserve(more as u32)?;
            self.accounted_bytes.store(before + more, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Drop for BlockFile {
    fn drop(&mut self) {
        let accounted = self.accounted_bytes.load(Ordering::Relaxed);
        if accounted > 0 {
            self.tier.deletions.add(std::mem::take(&mut self.path), accounted);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk_sums::sums_of;

    const BLOCK: BlockId = BlockId(7);

    fn tier(bytes: u64) -> (tempfile::TempDir, Arc<DiskTier>) {
        let directory = tempfile::tempdir().unwrap();
        let tier = DiskTier::open(directory.path(), bytes, None).unwrap();
        (directory, Arc::new(tier))
    }

    fn append(block: &DiskBytes, bytes: &[u8]) -> Result<DiskBytes, ReadError> {
        block.with(bytes, &sums_of(u64::from(block.length), bytes))
    }

    #[test]
    fn bytes_are_read_as_written_and_the_file_goes_with_its_last_reader() {
        let (directory, tier) = tier(1 << 20);
        let first = append(&DiskBytes::new(&tier, BLOCK), &[1; 5000]).unwrap();
        let second = append(&first, &[2; 100]).unwrap();
        assert_eq!(tier.capacity().used_bytes(), 8192);
        assert_eq!(second.read_file(4999, 2).unwrap(), [1, 2][..]);
        assert_eq!(second.checksum(0, 4096), Some(crc32c(&[1; 4096])));
        drop(second);
        assert_eq!(files(directory.path()).unwrap().len(), 2);
        drop(first);
        tier.deletions.finish();
        assert_eq!(files(directory.path()).unwrap(), [MARKER]);
        assert_eq!(tier.capacity().used_bytes(), 0);
    }

    #[test]
    fn full_tier_refuses_and_takes_again_after_a_deletion() {
        let (_directory, tier) = tier(10_000);
        let block = append(&DiskBytes::new(&tier, BLOCK), &[1; 8192]).unwrap();
        let refused = append(&DiskBytes::new(&tier, BlockId(8)), &[1; 100]);
        assert!(matches!(refused, Err(ReadError::Refused(Refusal::NodeFull { .. }))));
        drop(block);
        tier.deletions.finish();
        append(&DiskBytes::new(&tier, BlockId(8)), &[1; 100]).unwrap();
    }

    #[test]
    fn full_file_system_is_noted_until_a_write_succeeds() {
        let (_directory, tier) = tier(1 << 20);
        let error = io::Error::from(io::ErrorKind::StorageFull);
        for _ in 0..2 {
            assert!(matches!(tier.refusal(&error, 9), Refusal::NodeFull { bytes: 9, .. }));
            assert!(tier.is_full.load(Ordering::Relaxed));
        }
        append(&DiskBytes::new(&tier, BLOCK), &[1; 100]).unwrap();
        assert!(!tier.is_full.load(Ordering::Relaxed));
    }

    #[test]
    fn file_that_was_changed_cut_or_removed_is_damaged() {
        assert_damage_is_found(None);
        assert_damage_is_found(Some(&EncryptionKey::of([7; 32])));
    }

    fn assert_damage_is_found(key: Option<&EncryptionKey>) {
        let directory = tempfile::tempdir().unwrap();
        let tier = Arc::new(DiskTier::open(directory.path(), 1 << 20, key).unwrap());
        let block = append(&DiskBytes::new(&tier, BLOCK), &[1; 9000]).unwrap();
        let name = files(directory.path()).unwrap().into_iter().find(|name| name != MARKER);
        let path = directory.path().join(name.unwrap());
        assert_eq!((block.verify(), block.probe()), (Ok(()), Ok(())));
        let mut bytes = fs::read(&path).unwrap();
        bytes[5000] ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert_eq!(block.verify(), Err(ReadError::Damaged(Damage::Checksum)));
        assert_eq!(block.probe(), Ok(()));
        fs::write(&path, b"short").unwrap();
        assert_eq!(block.read_file(0, 100), Err(ReadError::Damaged(Damage::Short)));
        assert_eq!(block.probe(), Err(ReadError::Damaged(Damage::Short)));
        fs::remove_file(&path).unwrap();
        assert_eq!(block.read_file(0, 100), Err(ReadError::Damaged(Damage::Missing)));
        assert_eq!(block.probe(), Err(ReadError::Damaged(Damage::Missing)));
        let more = append(&block, &[2; 10]);
        assert!(matches!(more, Err(ReadError::Damaged(Damage::Missing))), "{more:?}");
        assert!(!path.exists(), "a file is not begun in its middle");
    }

    #[test]
    fn directory_of_an_earlier_incarnation_is_emptied() {
        let (directory, tier) = tier(1 << 20);
        let block = append(&DiskBytes::new(&tier, BLOCK), &[1; 100]).unwrap();
        let in_use = DiskTier::open(directory.path(), 1, None);
        assert!(matches!(in_use, Err(DiskError::InUse { .. })));
        let left = directory.path().join("00-0.block");
        fs::write(&left, b"left").unwrap();
        drop(block);
        drop(tier);
        DiskTier::open(directory.path(), 1, None).unwrap();
        assert!(!left.exists());
    }

    #[test]
    fn directory_of_another_user_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("thesis.block");
        fs::write(&file, b"years of work").unwrap();
        let refused = DiskTier::open(directory.path(), 1, None);
        assert!(matches!(refused, Err(DiskError::NotOurs { .. })));
        assert!(file.exists());
        let missing = DiskTier::open(&directory.path().join("missing"), 1, None);
        assert!(matches!(missing, Err(DiskError::Unusable { .. })));
    }
}
