//! A state directory as one stream, and back.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::time::{ClockId, clock_gettime};
use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_core::checkpoint::{CHUNK_BYTES, EntryKind, FramingError, StateEntry, StateLayout};

use crate::backend::hex;
use crate::encryption::drawn;
use crate::state_replacement::{
    ReplacedState, UNPACKING, is_old, is_unpacking, make_private, remove_any,
};
use crate::task_failure::TaskFailure;

/// What the task writes when its state is complete. It is no part of the state.
pub(crate) const DONE: &str = "done";

/// How often a state is read that changes meanwhile; then the dump fails, and the next one reads
/// it. Chosen, not measured.
const READS_MAX: usize = 3;

/// Pause before it is read again: a task may need it to end what it writes. Chosen, not measured.
const READ_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// The longest tick of the clock that stamps files: 10 ms where the kernel has 100 ticks a second.
/// Twice that.
const TICK_MAX: Duration = Duration::from_millis(20);

/// A receiver of the chunks of a state, in their order.
pub(crate) trait ChunkSink {
    /// Receives the next chunk of the stream.
    ///
    /// # Errors
    /// The receiver needs no more of the state: stop reading it.
    fn add(&mut self, chunk: &[u8]) -> Result<(), Failure>;

    /// Leaves out all chunks so far: the stream begins again.
    fn begin_again(&mut self);
}

/// Reads a state directory as a stream of chunks. One that changes meanwhile is read again from its
/// beginning, up to [`READS_MAX`] times in all.
///
/// # Errors
/// An entry cannot be read, changed each time, or is no file, directory or link: the task has to
/// change what it writes.
pub(crate) fn read_chunks(directory: &Path, sink: &mut impl ChunkSink) -> Result<(), Failure> {
    for _ in 1..READS_MAX {
        match read_once(directory, &mut |chunk| sink.add(chunk)) {
            Err(failure) if TaskFailure::StateChanged.is(&failure) => {}
            read => return read,
        }
        std::thread::sleep(READ_RETRY_INTERVAL);
        sink.begin_again();
    }
    read_once(directory, &mut |chunk| sink.add(chunk))
}

fn read_once(
    directory: &Path,
    each: &mut dyn FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let seen = ListedState::of(directory)?;
    wait_for_ticks(seen.stamps.values());
    // A second change within one tick leaves the same stamp. So only a listing counts that was made
    // after the tick of its newest stamp.
    let ListedState { entries, stamps } = ListedState::of(directory)?;
    expect_unchanged(directory, &seen.stamps, &stamps)?;
    let layout = StateLayout::of(entries);
    let mut held = Vec::with_capacity(CHUNK_BYTES);
    let mut at = 0_u64;
    let mut push = |mut bytes: &[u8], held: &mut Vec<u8>| -> Result<(), Failure> {
        at += bytes.len() as u64;
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(CHUNK_BYTES - held.len()));
            held.extend_from_slice(now);
            bytes = later;
            if held.len() == CHUNK_BYTES {
                each(held)?;
                held.clear();
            }
        }
        Ok(())
    };
    let head = layout.head();
    push(&head, &mut held)?;
    let mut end = head.len() as u64;
    let mut buffer = vec![0; CHUNK_BYTES];
    for (number, start) in &layout.files {
        push(&vec![0; (start - end) as usize], &mut held)?;
        let entry = &layout.entries[*number];
        let EntryKind::File { bytes } = entry.kind else { continue };
        let path = directory.join(OsStr::from_bytes(&entry.name));
        let failed = |error: io::Error| Failure::file(&path, error);
        let (mut file, opened) = opened(&path)?;
        let mut read = 0;
        loop {
            let count = file.read(&mut buffer).map_err(failed)?;
            read += count as u64;
            if count == 0 || read > bytes {
                break;
            }
            push(&buffer[..count], &mut held)?;
        }
        let closed = EntryStamp::of(&file.metadata().map_err(failed)?);
        if read != bytes || opened != closed || stamps.get(&entry.name) != Some(&closed) {
            return Err(changed(&path));
        }
        end = start + bytes;
    }
    debug_assert_eq!(at, layout.bytes, "the stream is as long as its layout");
    if !held.is_empty() {
        each(&held)?;
    }
    // What was read early may have changed while the rest was read.
    expect_unchanged(directory, &stamps, &ListedState::of(directory)?.stamps)
}

/// What differs when an entry of a state directory was replaced, or written to since. A directory
/// is written to when an entry of it is added, removed or renamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EntryStamp {
    inode: u64,
    bytes: u64,
    /// Seconds and nanoseconds.
    written: (i64, i64),
    /// The same for what no program can set back.
    changed: (i64, i64),
}

impl EntryStamp {
    fn of(metadata: &fs::Metadata) -> Self {
        Self {
            inode: metadata.ino(),
            bytes: metadata.len(),
            written: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// Refuses a state directory of which a later listing differs, by the first name that differs.
fn expect_unchanged(
    directory: &Path,
    earlier: &EntryStamps,
    later: &EntryStamps,
) -> Result<(), Failure> {
    let differs = |name: &&Vec<u8>| earlier.get(*name) != later.get(*name);
    match earlier.keys().chain(later.keys()).filter(differs).min() {
        Some(name) => Err(changed(&directory.join(OsStr::from_bytes(name)))),
        None => Ok(()),
    }
}

/// Waits until the clock that stamps entries has left the tick of the newest stamp: what is written
/// to from now on gets another one. A directory of another machine has that one's clock;
/// it is waited for no longer than [`TICK_MAX`].
fn wait_for_ticks<'a>(stamps: impl Iterator<Item = &'a EntryStamp>) {
    let Some(newest) = stamps.map(|it| it.changed).max() else { return };
    let until = Instant::now() + TICK_MAX;
    loop {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        if (now.tv_sec, now.tv_nsec) > newest || Instant::now() >= until {
            return;
        }
        std::thread::sleep(TICK_MAX / 20);
    }
}

fn changed(path: &Path) -> Failure {
    let cause = format!("{} changed while it was read", path.display());
    let next = "a task that writes only between SIGUSR1 and the file `done`";
    TaskFailure::StateChanged.failure(Exit::Failure, cause).next(next)
}

/// Returns why an entry of the listing could not be read. It is gone, it is of another kind, or it
/// is in what was a directory; otherwise the system failed.
fn unread(path: &Path, error: io::Error) -> Failure {
    match error.kind() {
        // The last one is what reading a link answers for what is none.
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidInput => {
            changed(path)
        }
        _ => Failure::file(path, error),
    }
}

/// Opens what was a file when the directory was listed. Of a pipe in its place nothing is read, and
/// nothing is waited for.
fn opened(path: &Path) -> Result<(File, EntryStamp), Failure> {
    let failed = |error: io::Error| unread(path, error);
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    match metadata.is_file() {
        true => Ok((file, EntryStamp::of(&metadata))),
        false => Err(changed(path)),
    }
}

/// The stamps of all entries by their names. The state directory itself has none: [`DONE`] and
/// other names that are no part of the state come and go there. What else does is seen by its name.
type EntryStamps = BTreeMap<Vec<u8>, EntryStamp>;

/// What is in a state directory.
#[derive(Default)]
struct ListedState {
    entries: Vec<StateEntry>,
    /// Each was taken before the content of its entry was read, also that of a directory or link.
    stamps: EntryStamps,
}

impl ListedState {
    /// Lists a state directory.
    ///
    /// # Errors
    /// An entry cannot be read, changes meanwhile, or is no file, directory or link.
    fn of(root: &Path) -> Result<Self, Failure> {
        let mut listed = Self::default();
        listed.collect(root, root)?;
        Ok(listed)
    }

    fn collect(&mut self, root: &Path, directory: &Path) -> Result<(), Failure> {
        let failed = |error: io::Error| match directory == root {
            true => Failure::file(directory, error),
            false => unread(directory, error),
        };
        for entry in fs::read_dir(directory).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.strip_prefix(root).expect("it is below the root");
            if name == Path::new(DONE) || is_unpacking(name.as_os_str()) {
                continue;
            }
            let metadata = fs::symlink_metadata(&path).map_err(|error| unread(&path, error))?;
            let name = name.as_os_str().as_bytes().to_vec();
            self.stamps.insert(name.clone(), EntryStamp::of(&metadata));
            let kind = if metadata.is_dir() {
                EntryKind::Directory
            } else if metadata.is_file() {
                EntryKind::File { bytes: metadata.len() }
            } else if metadata.is_symlink() {
                let target = fs::read_link(&path).map_err(|error| unread(&path, error))?;
                EntryKind::Link { target: target.as_os_str().as_bytes().to_vec() }
            } else {
                let cause = format!("{} is no file, directory or link", path.display());
                return Err(Failure::new(Exit::Failure, FailureKind::StateKind, cause));
            };
            let is_directory = kind == EntryKind::Directory;
            let mode = metadata.permissions().mode() & 0o7777;
            self.entries.push(StateEntry { name, mode, kind });
            if is_directory {
                self.collect(root, &path)?;
            }
        }
        Ok(())
    }
}

/// Unpacks a stream beside the state directory's content, and replaces that at the end. What was
/// unpacked is removed if it does not come to that.
pub(crate) struct Unpacking {
    directory: PathBuf,
    /// Where it unpacks, below the state directory.
    place: PathBuf,
    /// In the names of that, and of what it replaces.
    id: String,
    held: Vec<u8>,
    layout: Option<StateLayout>,
    at: u64,
    next: usize,
    file: Option<File>,
}

impl Unpacking {
    /// Begins below a state directory, which is made if it does not exist. The caller has it for
    /// itself alone: what was unpacked there before was left by a process that was killed, and is
    /// removed. What such a process had moved aside stays until a restore has succeeded.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub(crate) fn new(directory: &Path) -> Result<Self, Failure> {
        make_private(directory)?;
        for left in left_in(directory)?.into_iter().filter(|path| !is_old(path)) {
            remove_any(&left).map_err(|error| Failure::file(&left, error))?;
        }
        let id = hex(&drawn::<8>());
        let place = directory.join(format!("{UNPACKING}-{id}"));
        make_private(&place)?;
        let (directory, held) = (directory.to_owned(), Vec::new());
        Ok(Self { directory, place, id, held, layout: None, at: 0, next: 0, file: None })
    }

    /// Takes the next bytes of the stream.
    ///
    /// # Errors
    /// The stream is none, or a file cannot be written.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if self.layout.is_some() {
            return self.write(bytes);
        }
        self.held.extend_from_slice(bytes);
        let bad = |error: FramingError| match error {
            FramingError::Version(_) => TaskFailure::OtherRelease.failure(Exit::Failure, error),
            error => TaskFailure::BadGeneration.failure(Exit::Failure, error),
        };
        let Some(head) = StateLayout::head_bytes(&self.held).map_err(bad)? else { return Ok(()) };
        if self.held.len() < head {
            return Ok(());
        }
        let layout = StateLayout::read(&self.held[..head]).map_err(bad)?;
        for entry in &layout.entries {
            let path = self.path(&entry.name);
            let made = match &entry.kind {
                EntryKind::Directory => fs::create_dir(&path),
                EntryKind::File { bytes } => fs::OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(&path)
                    .and_then(|file| file.set_len(*bytes)),
                EntryKind::Link { target } => symlink(OsStr::from_bytes(target), &path),
            };
            made.map_err(|error| Failure::file(&path, error))?;
        }
        self.layout = Some(layout);
        self.at = head as u64;
        let rest = std::mem::take(&mut self.held);
        self.write(&rest[head..])
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), Failure> {
        let layout = self.layout.take().expect("the head was read");
        while !bytes.is_empty() {
            let Some((number, start)) = layout.files.get(self.next).copied() else { break };
            let entry = &layout.entries[number];
            let EntryKind::File { bytes: length } = entry.kind else { break };
            if self.at < start {
                let skipped = bytes.len().min((start - self.at) as usize);
                bytes = &bytes[skipped..];
                self.at += skipped as u64;
                continue;
            }
            let left = start + length - self.at;
            let (now, later) = bytes.split_at(bytes.len().min(left as usize));
            let path = self.path(&entry.name);
            let failed = |error: io::Error| Failure::file(&path, error);
            if self.file.is_none() {
                let opened = fs::OpenOptions::new().write(true).open(&path).map_err(failed)?;
                self.file = Some(opened);
            }
            if let Some(file) = &mut self.file {
                write_sparse(file, now).map_err(failed)?;
            }
            bytes = later;
            self.at += now.len() as u64;
            if now.len() as u64 == left {
                (self.file, self.next) = (None, self.next + 1);
            }
        }
        self.layout = Some(layout);
        Ok(())
    }

    /// Ends: sets the permissions, and replaces what was in the state directory.
    ///
    /// # Errors
    /// The stream is cut, or the directory cannot be written. What was in it is still there.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        let is_whole = self.layout.as_ref().is_some_and(|layout| self.at == layout.bytes);
        let Some(layout) = self.layout.as_ref().filter(|_| is_whole) else {
            return Err(TaskFailure::BadGeneration.failure(Exit::Failure, "its stream is cut"));
        };
        let place = &self.place;
        let set = |place: &Path, is_wanted: fn(&EntryKind) -> bool| -> Result<(), Failure> {
            // What is in a directory before the directory.
            let wanted = layout.entries.iter().rev().filter(|entry| is_wanted(&entry.kind));
            for entry in wanted {
                let path = place.join(OsStr::from_bytes(&entry.name));
                let set = fs::set_permissions(&path, fs::Permissions::from_mode(entry.mode));
                set.map_err(|error| Failure::file(&path, error))?;
            }
            Ok(())
        };
        set(place, |kind| matches!(kind, EntryKind::File { .. }))?;
        let replaced = ReplacedState::replace(&self.directory, place, &self.id)?;
        // A directory that its owner may not write to cannot be moved out of the place.
        if let Err(failure) = set(&self.directory, |kind| matches!(kind, EntryKind::Directory)) {
            return Err(replaced.take_back(failure));
        }
        replaced.remove();
        Ok(())
    }

    fn path(&self, name: &[u8]) -> PathBuf {
        self.place.join(OsStr::from_bytes(name))
    }
}

impl Drop for Unpacking {
    fn drop(&mut self) {
        // At the end of a restore it is empty.
        let _ = remove_any(&self.place);
    }
}

/// Returns what has a name in a state directory under which states are unpacked. It is no part of
/// the state, and the next restore that succeeds has removed it.
///
/// # Errors
/// The directory cannot be read.
pub(crate) fn left_in(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |error: io::Error| Failure::file(directory, error);
    let mut left = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if is_unpacking(&entry.file_name()) {
            left.push(entry.path());
        }
    }
    Ok(left)
}

/// Writes bytes at a file's position. Zeros are left out: the file is as long as it will be, and
/// what was not written reads as zeros.
fn write_sparse(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    if bytes.iter().any(|byte| *byte != 0) {
        return file.write_all(bytes);
    }
    file.seek(SeekFrom::Current(bytes.len().try_into().expect("a chunk is short"))).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state_replacement::OLD;

    /// Collects a stream; `meanwhile` is called before each chunk, with how often the stream began
    /// again.
    struct Collected<F> {
        bytes: Vec<u8>,
        reads: usize,
        meanwhile: F,
    }

    impl<F: FnMut(usize)> ChunkSink for Collected<F> {
        fn add(&mut self, chunk: &[u8]) -> Result<(), Failure> {
            (self.meanwhile)(self.reads);
            self.bytes.extend_from_slice(chunk);
            Ok(())
        }

        fn begin_again(&mut self) {
            self.bytes.clear();
            self.reads += 1;
        }
    }

    fn stream_with(directory: &Path, meanwhile: impl FnMut(usize)) -> Result<Vec<u8>, Failure> {
        let mut sink = Collected { bytes: Vec::new(), reads: 0, meanwhile };
        read_chunks(directory, &mut sink).map(|()| sink.bytes)
    }

    fn stream(directory: &Path) -> Result<Vec<u8>, Failure> {
        stream_with(directory, |_| {})
    }

    /// The file that is read later and the one before change, each at equal length.
    #[test]
    fn file_that_changes_at_equal_length_is_read_again() {
        for name in ["a", "b"] {
            let place = tempfile::tempdir().unwrap();
            let write = |byte: u8| {
                let file = fs::OpenOptions::new().write(true).open(place.path().join(name));
                file.unwrap().write_all(&vec![byte; 300_000]).unwrap();
            };
            for name in ["a", "b"] {
                fs::write(place.path().join(name), vec![7; 300_000]).unwrap();
            }
            let mut chunks = 0;
            let bytes = stream_with(place.path(), |reads| {
                chunks += 1;
                if reads == 0 && chunks == 7 {
                    write(8);
                }
            });
            let bytes = bytes.unwrap();
            let count = |byte| bytes.iter().filter(|it| **it == byte).count();
            assert_eq!(count(8), 300_000, "{name} is of two times");
            let refused = stream_with(place.path(), |reads| write(reads as u8)).unwrap_err();
            assert!(TaskFailure::StateChanged.is(&refused), "{name}");
            assert!(refused.cause.contains(&format!("{name} changed while")), "{refused}");
        }
    }

    /// Reads a state that changes once while it is read for the first time. The stream is that of
    /// the state after this. Returns how often it was read again.
    fn reads_again(change: impl Fn(&Path)) -> usize {
        let place = tempfile::tempdir().unwrap();
        let root = place.path();
        fs::create_dir_all(root.join("a/below")).unwrap();
        fs::create_dir(root.join("b")).unwrap();
        fs::write(root.join("a/x"), b"x").unwrap();
        symlink("a/x", root.join("link")).unwrap();
        // Read last, in several chunks.
        fs::write(root.join("z"), vec![7; 300_000]).unwrap();
        let (mut again, mut is_changed) = (0, false);
        let bytes = stream_with(root, |reads| {
            again = reads;
            if !std::mem::replace(&mut is_changed, true) {
                change(root);
            }
        });
        assert_eq!(bytes.unwrap(), stream(root).unwrap());
        again
    }

    #[test]
    fn what_is_added_removed_renamed_or_replaced_meanwhile_is_read_again() {
        type Change<'a> = (&'a str, &'a dyn Fn(&Path));
        let write = |path: PathBuf| fs::write(path, b"new").unwrap();
        let rename = |from: PathBuf, to: PathBuf| fs::rename(from, to).unwrap();
        let cases: [Change<'_>; 9] = [
            ("added", &|root| write(root.join("a/new"))),
            ("added deep", &|root| write(root.join("a/below/new"))),
            ("added to the root", &|root| write(root.join("new"))),
            ("a directory added", &|root| fs::create_dir(root.join("b/new")).unwrap()),
            ("removed", &|root| fs::remove_file(root.join("a/x")).unwrap()),
            ("renamed", &|root| rename(root.join("a/x"), root.join("a/y"))),
            ("a directory renamed", &|root| rename(root.join("a"), root.join("c"))),
            ("a link replaced", &|root| {
                symlink("b", root.join("draft")).unwrap();
                rename(root.join("draft"), root.join("link"));
            }),
            ("the mode of a directory", &|root| {
                fs::set_permissions(root.join("b"), fs::Permissions::from_mode(0o500)).unwrap();
            }),
        ];
        for (what, change) in cases {
            assert_eq!(reads_again(change), 1, "{what}");
        }
    }

    #[test]
    fn what_is_no_part_of_the_state_may_change_meanwhile() {
        assert_eq!(reads_again(|_| {}), 0);
        let coming_and_going = |root: &Path| {
            fs::write(root.join(DONE), b"").unwrap();
            fs::create_dir(root.join(format!("{UNPACKING}-0123"))).unwrap();
            fs::remove_file(root.join(DONE)).unwrap();
        };
        assert_eq!(reads_again(coming_and_going), 0);
    }

    #[test]
    fn state_to_which_files_are_added_all_the_time_is_refused() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("a")).unwrap();
        fs::write(place.path().join("z"), vec![7; 300_000]).unwrap();
        let mut number = 0;
        let refused = stream_with(place.path(), |_| {
            number += 1;
            fs::write(place.path().join(format!("a/{number}")), b"").unwrap();
        });
        let refused = refused.unwrap_err();
        assert!(TaskFailure::StateChanged.is(&refused), "{refused}");
        assert!(refused.cause.contains("/a changed while it was read"), "{refused}");
    }

    #[test]
    fn directory_comes_back_as_it_was() {
        let place = tempfile::tempdir().unwrap();
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        fs::create_dir_all(from.join("a/b")).unwrap();
        fs::write(from.join("a/b/large"), vec![7; 300_000]).unwrap();
        fs::write(from.join("a/small"), b"small").unwrap();
        fs::write(from.join("empty"), b"").unwrap();
        fs::write(from.join(DONE), b"").unwrap();
        fs::set_permissions(from.join("a/small"), fs::Permissions::from_mode(0o400)).unwrap();
        symlink("a/small", from.join("link")).unwrap();
        fs::create_dir_all(&to).unwrap();
        fs::write(to.join("old"), b"old").unwrap();
        let bytes = stream(&from).unwrap();
        for step in [1000, 65_536, 1 << 20] {
            let mut unpacking = Unpacking::new(&to).unwrap();
            bytes.chunks(step).for_each(|part| unpacking.push(part).unwrap());
            unpacking.finish().unwrap();
            assert_eq!(fs::read(to.join("a/b/large")).unwrap(), vec![7; 300_000]);
            assert_eq!(fs::read(to.join("link")).unwrap(), b"small");
            assert_eq!(fs::read(to.join("empty")).unwrap(), b"");
            let mode = fs::metadata(to.join("a/small")).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o400);
            assert!(!to.join(DONE).exists() && !to.join("old").exists());
            assert_eq!(stream(&to).unwrap(), bytes);
        }
    }

    #[test]
    fn cut_stream_leaves_what_was_there() {
        let place = tempfile::tempdir().unwrap();
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        fs::create_dir_all(&from).unwrap();
        fs::write(from.join("file"), vec![7; 300_000]).unwrap();
        fs::create_dir_all(&to).unwrap();
        fs::write(to.join("old"), b"old").unwrap();
        let bytes = stream(&from).unwrap();
        let mut unpacking = Unpacking::new(&to).unwrap();
        unpacking.push(&bytes[..200_000]).unwrap();
        assert!(unpacking.finish().is_err());
        assert_eq!(fs::read(to.join("old")).unwrap(), b"old");
        assert_eq!(fs::read_dir(&to).unwrap().count(), 1, "what was unpacked is removed");
    }

    #[test]
    fn what_a_killed_restore_left_is_removed_and_is_no_part_of_the_state() {
        let place = tempfile::tempdir().unwrap();
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        fs::create_dir_all(from.join("below").join(UNPACKING)).unwrap();
        let bytes = stream(&from).unwrap();
        let left = [UNPACKING.to_owned(), format!("{UNPACKING}-0123")];
        for directory in [&from, &to] {
            for name in &left {
                fs::create_dir_all(directory.join(name)).unwrap();
                fs::write(directory.join(name).join("file"), b"left").unwrap();
            }
        }
        assert_eq!(stream(&from).unwrap(), bytes);
        let mut unpacking = Unpacking::new(&to).unwrap();
        assert!(left.iter().all(|name| !to.join(name).exists()));
        unpacking.push(&bytes).unwrap();
        unpacking.finish().unwrap();
        assert_eq!(stream(&to).unwrap(), bytes);
        assert!(to.join("below").join(UNPACKING).is_dir());
        assert_eq!(fs::read_dir(&to).unwrap().count(), 1);
    }

    /// Only a restore that succeeds removes it.
    #[test]
    fn what_a_killed_restore_had_moved_aside_stays_until_one_succeeds() {
        let place = tempfile::tempdir().unwrap();
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        fs::create_dir_all(&from).unwrap();
        fs::write(from.join("file"), b"new").unwrap();
        let aside = to.join(format!("{OLD}-0123"));
        fs::create_dir_all(&aside).unwrap();
        fs::write(aside.join("file"), b"old").unwrap();
        let bytes = stream(&from).unwrap();
        drop(Unpacking::new(&to).unwrap());
        assert_eq!(fs::read(aside.join("file")).unwrap(), b"old");
        let mut unpacking = Unpacking::new(&to).unwrap();
        unpacking.push(&bytes).unwrap();
        unpacking.finish().unwrap();
        assert_eq!(stream(&to).unwrap(), bytes);
        assert_eq!(fs::read_dir(&to).unwrap().count(), 1);
    }

    #[test]
    fn holes_take_no_room_after_a_restore() {
        let place = tempfile::tempdir().unwrap();
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        fs::create_dir_all(&from).unwrap();
        let mut file = File::create(from.join("sparse")).unwrap();
        file.seek(SeekFrom::Start(10 << 20)).unwrap();
        file.write_all(b"end").unwrap();
        file.set_len(11 << 20).unwrap();
        let mut unpacking = Unpacking::new(&to).unwrap();
        let bytes = stream(&from).unwrap();
        bytes.chunks(CHUNK_BYTES).for_each(|chunk| unpacking.push(chunk).unwrap());
        unpacking.finish().unwrap();
        assert!(fs::read(to.join("sparse")).unwrap() == fs::read(from.join("sparse")).unwrap());
        let taken = fs::metadata(to.join("sparse")).unwrap().blocks() * 512;
        assert!(taken < 1 << 20, "{taken} bytes");
    }

    #[test]
    fn pipe_in_place_of_a_file_is_not_waited_for() {
        let place = tempfile::tempdir().unwrap();
        let pipe = place.path().join("pipe");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(opened(&pipe).is_err());
    }

    #[test]
    fn socket_is_refused_by_its_name() {
        let place = tempfile::tempdir().unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(place.path().join("s")).unwrap();
        let refused = stream(place.path()).unwrap_err();
        assert!(refused.cause.contains("/s is no file"), "{refused}");
    }
}
