//! The journal: the log of commands on disk, append-only.
//!
//! A segment is a header and records:
//!
//! ```text
//! version 3: 8 bytes magic, u32 version, u32 CRC32C of the rest, u64 cluster, u64 first index
//! version 4: the same, and u64 salt
//! ```
//!
//! All numbers are little-endian; `record.rs` describes a record. A command is in the journal
//! before it is applied. What cannot be read at the end of the last segment is cut, kept beside and
//! reported when a write that was torn explains it; otherwise the journal is damaged, and the
//! namenode starts without what is missing only if an operator accepts the loss.

pub(crate) mod bytes;
mod failure;
pub(crate) mod header;
mod lag;
mod read;
pub(crate) mod record;
mod scan;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use sanderling_core::archive::JournalEnd;
use sanderling_core::catalog::Command;
use sanderling_protocol::ClusterId;

pub use failure::{AppendError, AppendRefusal, JournalFailure};
use lag::Unadmitted;
pub(crate) use lag::{Lag, Limits};
pub(crate) use read::{Segment, SegmentStart, cluster_of_segment, read_segment};
use record::Layout;
pub use record::RecordTooLong;

use crate::directory::{Directory, FileKind, PublishError};
use crate::files::{Stored, Window};
use crate::injected_bug::{self, InjectedBug};
use crate::options::{NamenodeOptions, Sync};

/// The end of the journal, for those that follow it.
pub(crate) type SharedEnd = Arc<Mutex<JournalEnd>>;

/// How the journal is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) sync: Sync,
    pub(crate) bytes_max: u64,
    pub(crate) limits: Limits,
    pub(crate) version: u32,
}

impl From<&NamenodeOptions> for Settings {
    fn from(options: &NamenodeOptions) -> Self {
        let limits = Limits {
            every: options.sync_every,
            age_max: options.unsynced_age_max,
            bytes_max: options.unsynced_bytes_max,
        };
        let (sync, bytes_max) = (options.sync, options.journal_bytes_max);
        Self { sync, bytes_max, limits, version: header::VERSION }
    }
}

/// The open segment at the end of the journal.
#[derive(Debug)]
pub(crate) struct Journal {
    directory: Arc<Directory>,
    file: Arc<dyn Stored>,
    path: PathBuf,
    settings: Settings,
    layout: Layout,
    cluster: ClusterId,
    /// Number of the segment's first command.
    first: u64,
    /// Number of the next command.
    index: u64,
    /// Bytes of whole records and the header.
    length: u64,
    /// Bytes of earlier segments that still exist.
    older_bytes: u64,
    /// Those of them that the newest snapshot makes unnecessary.
    covered_bytes: u64,
    /// How far the disk is behind, where changes do not wait for it.
    lag: Option<Arc<Lag>>,
    /// Set when the file's end is unknown.
    failure: Option<JournalFailure>,
    buffer: Vec<u8>,
    /// Where the end is shown, if anything follows it.
    end: Option<SharedEnd>,
}

impl Journal {
    /// Starts a new segment whose first command has the number `index`, and begins it with
    /// commands.
    pub(crate) fn create(
        directory: &Arc<Directory>,
        settings: Settings,
        cluster: ClusterId,
        index: u64,
        commands: &[Command],
    ) -> Result<Self, PublishError> {
        let (file, layout, path, length) = publish(directory, settings, cluster, index, commands)?;
        let mut journal = Self::at(directory, settings, cluster, file, path, layout);
        journal.first = index;
        (journal.index, journal.length) = (index + commands.len() as u64, length);
        journal.follow();
        Ok(journal)
    }

    fn at(
        directory: &Arc<Directory>,
        settings: Settings,
        cluster: ClusterId,
        file: Arc<dyn Stored>,
        path: PathBuf,
        layout: Layout,
    ) -> Self {
        Self {
            directory: Arc::clone(directory),
            file,
            path,
            settings,
            layout,
            cluster,
            first: 0,
            index: 0,
            length: 0,
            older_bytes: 0,
            covered_bytes: 0,
            lag: None,
            failure: None,
            buffer: Vec::new(),
            end: None,
        }
    }

    /// Follows from here how far the disk is behind.
    fn follow(&mut self) {
        self.lag = match self.settings.sync {
            Sync::Always => None,
            Sync::Os => {
                let limits = self.settings.limits;
                Some(Arc::new(Lag::new(limits, Arc::clone(&self.file), self.length)))
            }
        };
    }

    /// Goes on at the end of a segment that was read, cutting what follows its last whole record.
    /// The disk has the segment when this returns: the process before may have left it unsynced.
    pub(crate) fn resume(
        directory: &Arc<Directory>,
        segment: &Segment,
        settings: Settings,
    ) -> io::Result<Self> {
        let file = settle(directory, segment)?;
        if segment.tail.is_some() {
            file.set_length(segment.length)?;
            sync_read(directory, &file)?;
        }
        let (path, layout) = (segment.path.clone(), segment.layout);
        let mut journal = Self::at(directory, settings, segment.cluster, file, path, layout);
        journal.first = segment.first;
        (journal.index, journal.length) = (segment.next, segment.length);
        journal.follow();
        Ok(journal)
    }

    /// Writes commands after all others, in one write. Under [`Sync::Always`] the disk has them
    /// when this returns. Either all of them are written or, with [`AppendError::Refused`] and
    /// [`AppendError::Behind`], none.
    pub(crate) fn append<'a>(
        &mut self,
        commands: impl IntoIterator<Item = &'a Command>,
    ) -> Result<(), AppendError> {
        let synced = self.admit()?;
        self.buffer.clear();
        let mut count = 0;
        for command in commands {
            let unsynced = self.length + self.buffer.len() as u64 - synced;
            let number = self.index + count;
            let encoded = self.layout.encode(command, number, unsynced, &mut self.buffer);
            encoded.map_err(AppendRefusal::TooLong)?;
            count += 1;
        }
        let bytes = self.buffer.len() as u64;
        if self.older_bytes + self.length + bytes > self.settings.bytes_max {
            return Err(AppendRefusal::Full { bytes_max: self.settings.bytes_max }.into());
        }
        if let Err(error) = self.file.write_at(&self.buffer, self.length) {
            return Err(self.take_back(error));
        }
        if self.settings.sync == Sync::Always
            && !injected_bug::is(InjectedBug::NoSync)
            && let Err(error) = self.file.sync()
            && !injected_bug::is(InjectedBug::SyncIgnored)
        {
            // After a failed sync the kernel may have dropped pages, of earlier records too. These
            // commands are refused, so they had better not be found at the next start.
            let cut = self.file.set_length(self.length).map_err(Arc::new);
            let cause = Arc::new(error);
            return Err(self
                .fail(|path| JournalFailure::UnsyncedRefused { path, cause, cut })
                .into());
        }
        self.length += bytes;
        self.index += count;
        if let Some(lag) = &self.lag {
            lag.wrote(self.length);
        }
        self.show_end();
        Ok(())
    }

    /// Refuses what may not be written now. Returns up to where the disk has the segment.
    fn admit(&mut self) -> Result<u64, AppendError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone().into());
        }
        let Some(lag) = &self.lag else { return Ok(self.length) };
        match lag.admit() {
            Ok(synced) => Ok(synced),
            Err(Unadmitted::Behind { bytes, age }) => Err(AppendError::Behind { bytes, age }),
            Err(Unadmitted::Failed(_)) if injected_bug::is(InjectedBug::SyncIgnored) => {
                Ok(self.length)
            }
            Err(Unadmitted::Failed(cause)) => Err(self.unsynced(cause).into()),
        }
    }

    /// Cuts a write that failed half-way.
    fn take_back(&mut self, error: io::Error) -> AppendError {
        let cause = Arc::new(error);
        match self.file.set_length(self.length).map_err(Arc::new) {
            Ok(()) => AppendRefusal::Write { path: self.path.clone(), cause }.into(),
            Err(cut) => self.fail(|path| JournalFailure::Uncut { path, cause, cut }).into(),
        }
    }

    /// Notes that the journal cannot be trusted any more. `failure` gets the segment's path.
    pub(crate) fn fail(
        &mut self,
        failure: impl FnOnce(PathBuf) -> JournalFailure,
    ) -> JournalFailure {
        let failure = failure(self.path.clone());
        self.failure = Some(failure.clone());
        // The next process writes the segment anew. Without the mark it reads what there is.
        let _ = self.directory.set_suspect(true);
        failure
    }

    /// Fails the journal because of a sync for which no change waited. Returns the failure; the
    /// journal takes nothing any more.
    pub(crate) fn unsynced(&mut self, cause: Arc<io::Error>) -> JournalFailure {
        self.fail(|path| JournalFailure::Unsynced { path, cause })
    }

    /// Starts the next segment. The disk has the one before, whose bytes count until it is removed.
    ///
    /// # Errors
    /// A failed sync is [`AppendError::Failed`]: the journal takes nothing any more. Else the
    /// segment goes on.
    pub(crate) fn rotate(&mut self) -> Result<(), AppendError> {
        self.sync()?;
        let (settings, cluster, index) = (self.settings, self.cluster, self.index);
        let (file, layout, path, length) =
            match publish(&self.directory, settings, cluster, index, &[]) {
                Ok(published) => published,
                Err(PublishError::Unsynced(error)) => {
                    let cause = Arc::new(error);
                    return Err(self
                        .fail(|path| JournalFailure::NextSegment { path, cause })
                        .into());
                }
                Err(PublishError::NotThere(error)) => {
                    return Err(AppendRefusal::NextSegment(Arc::new(error)).into());
                }
            };
        self.older_bytes += self.length;
        self.first = index;
        (self.file, self.layout, self.path, self.length) = (file, layout, path, length);
        if let Some(lag) = &self.lag {
            lag.next(Arc::clone(&self.file), length);
        }
        self.show_end();
        Ok(())
    }

    /// Goes on at another number, in a segment of its own: a snapshot takes the place of everything
    /// before it. The earlier segments are the caller's to remove.
    ///
    /// # Errors
    /// As [`Journal::rotate`].
    pub(crate) fn restart(&mut self, index: u64) -> Result<(), AppendError> {
        self.index = index;
        self.rotate()
    }

    /// Returns once the disk has what was written.
    ///
    /// # Errors
    /// [`JournalFailure`]: what the disk has is unknown.
    pub(crate) fn sync(&mut self) -> Result<(), JournalFailure> {
        let failed = match &self.lag {
            Some(lag) => {
                lag.sync();
                lag.failure()
            }
            // It was synced with each write.
            None => None,
        };
        match failed.filter(|_| !injected_bug::is(InjectedBug::SyncIgnored)) {
            Some(cause) => Err(self.unsynced(cause)),
            None => self.failure.clone().map_or(Ok(()), Err),
        }
    }

    /// Shows from now on up to where the journal may be copied.
    pub(crate) fn share_end(&mut self) -> SharedEnd {
        let end = Arc::clone(self.end.get_or_insert_default());
        self.show_end();
        end
    }

    fn show_end(&self) {
        if let Some(end) = &self.end {
            let Self { first, length: bytes, index: commands, .. } = *self;
            *end.lock() = JournalEnd { first, bytes, commands };
        }
    }

    /// Returns whether the segment has no records yet.
    pub(crate) const fn is_empty(&self) -> bool {
        self.length == header::length(self.layout)
    }

    /// Sets the bytes of earlier segments that still exist, and of those the bytes that the newest
    /// snapshot makes unnecessary.
    pub(crate) const fn set_older_bytes(&mut self, bytes: u64, covered: u64) {
        (self.older_bytes, self.covered_bytes) = (bytes, covered);
    }

    /// Returns the number of the next command.
    pub(crate) const fn index(&self) -> u64 {
        self.index
    }

    /// Returns the bytes of all segments.
    pub(crate) const fn bytes(&self) -> u64 {
        self.older_bytes + self.length
    }

    /// Returns the bytes since the newest snapshot.
    pub(crate) const fn new_bytes(&self) -> u64 {
        self.bytes() - self.covered_bytes
    }

    /// Returns how far the disk is behind, where changes do not wait for it.
    pub(crate) const fn lag(&self) -> Option<&Arc<Lag>> {
        self.lag.as_ref()
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if let Some(lag) = &self.lag {
            lag.close();
        }
    }
}

type Published = (Arc<dyn Stored>, Layout, PathBuf, u64);

/// Makes a segment appear with its header and first commands, whole and on the disk.
fn publish(
    directory: &Directory,
    settings: Settings,
    cluster: ClusterId,
    index: u64,
    commands: &[Command],
) -> Result<Published, PublishError> {
    let layout = match settings.version {
        header::PLAIN_VERSION => Layout::Plain,
        _ => Layout::Tied { salt: rand::random() },
    };
    let mut bytes = header::encode(layout, settings.version, cluster, index);
    for (number, command) in (index..).zip(commands) {
        let encoded = layout.encode(command, number, 0, &mut bytes);
        encoded.map_err(|error| PublishError::NotThere(io::Error::other(error)))?;
    }
    let path = directory.file(FileKind::Journal, index);
    let file = directory.publish(&path, &[&bytes])?;
    Ok((file, layout, path, bytes.len() as u64))
}

/// Returns once the disk has the whole records of a segment that was read: the process before may
/// have ended without a sync.
///
/// Where its sync has failed the segment is written anew: the kernel may show bytes that it will
/// never write, and report success for a sync of them.
pub(crate) fn settle(directory: &Directory, segment: &Segment) -> io::Result<Arc<dyn Stored>> {
    if !directory.is_suspect() {
        let file = directory.files().reopen(&segment.path)?;
        sync_read(directory, &file)?;
        return Ok(file);
    }
    let length = usize::try_from(segment.length).map_err(io::Error::other)?;
    let mut window = Window::new(directory.files().open(&segment.path)?)?;
    let bytes = window.bytes(0, length)?;
    if bytes.len() < length {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it became shorter"));
    }
    let file = directory.publish(&segment.path, &[bytes])?;
    directory.set_suspect(false)?;
    Ok(file)
}

/// Syncs what was read. After a failure the next start must not believe a sync.
fn sync_read(directory: &Directory, file: &Arc<dyn Stored>) -> io::Result<()> {
    file.sync().inspect_err(|_| {
        let _ = directory.set_suspect(true);
    })
}

#[cfg(test)]
mod tests;
