//! The file operations that the journal, the snapshots and their directory are made of. Servers use
//! [`RealFiles`]; tests use a disk that fails, tears and forgets.

#[cfg(test)]
pub(crate) mod disk;

use std::fmt::Debug;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// What is done with names.
pub(crate) trait Files: Debug + Send + Sync {
    /// Makes a directory and those above it, durably.
    fn make_directory(&self, path: &Path) -> io::Result<()>;
    /// Returns the names in a directory, in any order. Names that are no text are left out.
    fn names(&self, directory: &Path) -> io::Result<Vec<String>>;
    /// Opens a new or emptied file.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn Stored>>;
    /// Opens a file to read it.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn Stored>>;
    /// Opens a file to go on writing it.
    fn reopen(&self, path: &Path) -> io::Result<Arc<dyn Stored>>;
    /// Gives a file another name, in place of whatever had it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;
}

/// One open file: reads, writes and syncs.
pub(crate) trait Stored: Debug + Send + Sync {
    /// Returns the file's length in bytes.
    fn length(&self) -> io::Result<u64>;
    /// Reads at an offset; fewer bytes at the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes everything at an offset. After an error any part of it may be written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Cuts the file.
    fn set_length(&self, length: u64) -> io::Result<()>;
    /// Returns once the disk has the bytes and the length. After an error, what it has is unknown.
    fn sync(&self) -> io::Result<()>;
}

/// The files of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RealFiles;

impl Files for RealFiles {
    fn make_directory(&self, path: &Path) -> io::Result<()> {
        if path.is_dir() {
            return Ok(());
        }
        fs::create_dir_all(path)?;
        // Else a crash of the machine takes the directory with everything in it.
        match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            Some(parent) => self.sync_directory(parent),
            None => self.sync_directory(Path::new(".")),
        }
    }

    fn names(&self, directory: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(directory)? {
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn Stored>> {
        Ok(Arc::new(File::options().create(true).truncate(true).read(true).write(true).open(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn Stored>> {
        Ok(Arc::new(File::open(path)?))
    }

    fn reopen(&self, path: &Path) -> io::Result<Arc<dyn Stored>> {
        Ok(Arc::new(File::options().read(true).write(true).open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

impl Stored for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        // With the length, which the bytes cannot be read back without.
        self.sync_data()
    }
}

/// Bytes of a file, read in large pieces and looked at in small ones.
#[derive(Debug)]
pub(crate) struct Window {
    file: Arc<dyn Stored>,
    length: u64,
    at: u64,
    piece: Vec<u8>,
}

impl Window {
    /// Bytes read at once. A start reads the journal at the disk's rate with it, whose snapshots
    /// come after 64 MiB. Chosen, not measured.
    const PIECE: usize = 1 << 20;

    pub(crate) fn new(file: Arc<dyn Stored>) -> io::Result<Self> {
        let length = file.length()?;
        Ok(Self { file, length, at: 0, piece: Vec::new() })
    }

    /// Returns the file's length when it was opened.
    pub(crate) const fn length(&self) -> u64 {
        self.length
    }

    /// Returns `count` bytes at an offset, fewer at the end of the file.
    pub(crate) fn bytes(&mut self, offset: u64, count: usize) -> io::Result<&[u8]> {
        let count = count.min(usize::try_from(self.length.saturating_sub(offset)).unwrap_or(count));
        let is_there = offset >= self.at
            && offset.saturating_add(count as u64) <= self.at + self.piece.len() as u64;
        if !is_there {
            self.fill(offset, count.max(Self::PIECE))?;
        }
        let from = usize::try_from(offset - self.at).expect("within a piece");
        let end = (from + count).min(self.piece.len());
        Ok(&self.piece[from.min(end)..end])
    }

    fn fill(&mut self, offset: u64, count: usize) -> io::Result<()> {
        let count = count.min(usize::try_from(self.length.saturating_sub(offset)).unwrap_or(count));
        self.at = offset;
        self.piece.resize(count, 0);
        let mut filled = 0;
        while filled < count {
            match self.file.read_at(&mut self.piece[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(bytes) => filled += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.piece.clear();
                    return Err(error);
                }
            }
        }
        self.piece.truncate(filled);
        Ok(())
    }
}
