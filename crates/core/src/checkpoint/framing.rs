//! How a directory becomes one stream: an index, then the bytes of its files.
//!
//! A file of a chunk or more begins at a chunk, so that its chunks keep their names when another
//! file grows. Smaller ones follow each other without gaps.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::chunk::CHUNK_BYTES;

/// The version of the stream, its first byte.
const VERSION: u8 = 1;

/// Bytes before the index: the version and the length of the index. They have 1 and 4 bytes.
const PREFIX_BYTES: usize = 5;

/// The kind of file that a name in a state directory has. Sockets, pipes and devices are none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    /// A directory.
    Directory,
    /// A file of so many bytes.
    File {
        /// Its length.
        bytes: u64,
    },
    /// A symbolic link, with what it contains.
    Link {
        /// The target, as the operating system has it.
        target: Vec<u8>,
    },
}

/// One name in a state directory, with its permissions and its kind; the bytes of a file are in the
/// stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateEntry {
    /// Its names from the state directory on, joined by `/`.
    pub name: Vec<u8>,
    /// Its permissions.
    pub mode: u32,
    /// What it is.
    pub kind: EntryKind,
}

/// The layout of a stream: where in it the bytes of each file are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateLayout {
    /// The entries in the order of their names: a directory before what is in it.
    pub entries: Vec<StateEntry>,
    /// The places of files: the entry, and where in the stream it begins; in the stream's order.
    pub files: Vec<(usize, u64)>,
    /// The length of the stream.
    pub bytes: u64,
}

/// A reason why a stream is not that of a state directory: nothing of it is restored. Restore
/// another generation.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum FramingError {
    /// It ends too early.
    #[error("the stream has no whole index")]
    Cut,
    /// It was written by another release.
    #[error("the stream has version {0}, this program reads version {VERSION}")]
    Version(u8),
    /// The index cannot be decoded.
    #[error("the index of the stream cannot be decoded")]
    Malformed,
    /// A name would lie outside of the directory.
    #[error("the stream has a name that leads out of its directory")]
    Name,
}

impl StateLayout {
    /// Lays out entries, given in any order, in one stream: the index, then files shorter than a
    /// chunk side by side, then each longer one from a multiple of a chunk on. So a file that did
    /// not change keeps its chunks. The same entries give the same stream.
    #[must_use]
    pub fn of(mut entries: Vec<StateEntry>) -> Self {
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        let index = encoded(&entries);
        let mut at = (PREFIX_BYTES + index.len()) as u64;
        let mut files = Vec::new();
        let is_large = |bytes: u64| bytes >= CHUNK_BYTES as u64;
        for large in [false, true] {
            for (number, entry) in entries.iter().enumerate() {
                let EntryKind::File { bytes } = entry.kind else { continue };
                if is_large(bytes) != large {
                    continue;
                }
                if large {
                    at = at.next_multiple_of(CHUNK_BYTES as u64);
                }
                files.push((number, at));
                at += bytes;
            }
        }
        Self { entries, files, bytes: at }
    }

    /// Returns the beginning of the stream: version, length of the index, index.
    #[must_use]
    pub fn head(&self) -> Vec<u8> {
        let index = encoded(&self.entries);
        let length = u32::try_from(index.len()).expect("an index is below 4 GiB");
        let mut head = vec![VERSION];
        head.extend(length.to_le_bytes());
        head.extend(index);
        head
    }

    /// Returns how long the beginning is, from its first bytes; `None` if there are too few.
    ///
    /// # Errors
    /// [`FramingError::Version`]: use the release that wrote it.
    pub fn head_bytes(stream: &[u8]) -> Result<Option<usize>, FramingError> {
        let Some((prefix, _)) = stream.split_at_checked(PREFIX_BYTES) else { return Ok(None) };
        if prefix[0] != VERSION {
            return Err(FramingError::Version(prefix[0]));
        }
        let length = u32::from_le_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]);
        Ok(Some(PREFIX_BYTES + length as usize))
    }

    /// Reads the layout from the beginning of a stream.
    ///
    /// # Errors
    /// [`FramingError`]: the stream is of no use; restore an earlier one.
    pub fn read(head: &[u8]) -> Result<Self, FramingError> {
        let length = Self::head_bytes(head)?.ok_or(FramingError::Cut)?;
        let index = head.get(PREFIX_BYTES..length).ok_or(FramingError::Cut)?;
        let mut entries: Vec<StateEntry> =
            postcard::from_bytes(index).map_err(|_| FramingError::Malformed)?;
        if !entries.iter().all(|entry| is_inside(&entry.name)) {
            return Err(FramingError::Name);
        }
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        let links = entries.iter().filter(|at| matches!(at.kind, EntryKind::Link { .. }));
        // Nothing is written through a link of the same stream.
        for link in links {
            let below = [&link.name[..], b"/"].concat();
            let first = entries.partition_point(|entry| entry.name < below);
            if entries.get(first).is_some_and(|entry| entry.name.starts_with(&below)) {
                return Err(FramingError::Name);
            }
        }
        Ok(Self::of(entries))
    }
}

fn encoded(entries: &[StateEntry]) -> Vec<u8> {
    postcard::to_stdvec(entries).expect("entries can be encoded")
}

fn is_inside(name: &[u8]) -> bool {
    let is_name = |part: &[u8]| !part.is_empty() && part != b"." && part != b"..";
    !name.contains(&0) && name.split(|byte| *byte == b'/').all(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, bytes: u64) -> StateEntry {
        StateEntry { name: name.into(), mode: 0o644, kind: EntryKind::File { bytes } }
    }

    #[test]
    fn large_files_begin_at_chunks_and_small_ones_follow_each_other() {
        let layout = StateLayout::of(vec![file("z", 3), file("big", 70_000), file("a", 5)]);
        let head = layout.head().len() as u64;
        let chunk = CHUNK_BYTES as u64;
        assert_eq!(layout.files, [(0, head), (2, head + 5), (1, chunk)]);
        assert_eq!(layout.bytes, chunk + 70_000);
        assert_eq!(StateLayout::read(&layout.head()), Ok(layout));
    }

    #[test]
    fn stream_that_is_none_is_refused() {
        let head = StateLayout::of(vec![file("a", 1)]).head();
        assert_eq!(StateLayout::read(&head[..3]), Err(FramingError::Cut));
        assert_eq!(StateLayout::read(&head[..head.len() - 1]), Err(FramingError::Cut));
        assert_eq!(StateLayout::read(&[9, 0, 0, 0, 0]), Err(FramingError::Version(9)));
        for name in ["../a", "/a", "a//b", "a/..", "", "a\0b"] {
            let head = StateLayout::of(vec![file(name, 1)]).head();
            assert_eq!(StateLayout::read(&head), Err(FramingError::Name), "{name:?}");
        }
        let head = StateLayout::of(vec![link("l"), file("l/passwd", 1)]).head();
        assert_eq!(StateLayout::read(&head), Err(FramingError::Name));
    }

    fn link(name: &str) -> StateEntry {
        let kind = EntryKind::Link { target: b"/etc".to_vec() };
        StateEntry { name: name.into(), mode: 0o777, kind }
    }

    /// Returns the beginning of a stream whose index has the entries in this order.
    fn head_in_order(entries: Vec<StateEntry>) -> Vec<u8> {
        StateLayout { entries, files: Vec::new(), bytes: 0 }.head()
    }

    #[test]
    fn entry_below_a_link_is_refused_in_whatever_order_the_index_has_them() {
        let others = [file("z", 1), file("l-", 1), file("l0", 1), file("a", 1)];
        let with = |more: [StateEntry; 2]| {
            let entries = [&others[..1], &more[..], &others[1..]].concat();
            StateLayout::read(&head_in_order(entries))
        };
        for below in ["l/passwd", "l/a/b", "l/-"] {
            for more in [[link("l"), file(below, 1)], [file(below, 1), link("l")]] {
                assert_eq!(with(more), Err(FramingError::Name), "{below}");
            }
            let apart = with([file(&format!("k{below}"), 1), link("l")]);
            assert_eq!(apart.map(|layout| layout.entries.len()), Ok(6), "{below}");
        }
    }

    /// In steps of links times entries this would take minutes.
    #[test]
    fn index_with_many_links_and_entries_is_read() {
        let numbers = 0..200_000_u32;
        let links = numbers.clone().map(|number| link(&format!("l{number:06}")));
        let files = numbers.map(|number| file(&format!("f{number:06}"), 0));
        let mut entries: Vec<StateEntry> = links.chain(files).collect();
        let layout = StateLayout::read(&head_in_order(entries.clone())).expect("it is good");
        assert_eq!(layout.entries.len(), entries.len());
        entries.push(file("l199999/passwd", 1));
        assert_eq!(StateLayout::read(&head_in_order(entries)), Err(FramingError::Name));
    }
}
