//! Parts of what a store has, in the order of the bytes of its names.

use std::collections::BTreeSet;
use std::fs::{self, DirEntry};
use std::io::{self, ErrorKind};
use std::path::Path;

use sanderling_protocol::limits::{
    BLOCK_BYTES_MAX, PATH_DEPTH_MAX, STORE_SLICE_BLOCKS_MAX, STORE_SLICE_NAME_BYTES_MAX,
    STORE_SLICE_OBJECTS_MAX,
};
use sanderling_protocol::message::StoreSlice;

use super::overlaps;
use super::store_error::StoreError;

/// A slice that is being filled.
#[derive(Debug, Default)]
pub(super) struct SliceBuilder {
    slice: StoreSlice,
    name_bytes: usize,
    blocks: u64,
    last: String,
    /// The directory of the store that has no objects.
    own: String,
}

impl SliceBuilder {
    /// Returns whether the slice has enough. It does not end with an empty object if it need not:
    /// what follows shows what that is.
    pub(super) fn is_full(&self) -> bool {
        let objects = &self.slice.objects;
        let has_enough = objects.len() >= STORE_SLICE_OBJECTS_MAX / 2
            || self.name_bytes >= STORE_SLICE_NAME_BYTES_MAX
            || self.blocks >= STORE_SLICE_BLOCKS_MAX;
        let ends_empty = objects.last().is_some_and(|(_, bytes)| *bytes == 0);
        has_enough && (!ends_empty || objects.len() >= STORE_SLICE_OBJECTS_MAX)
    }

    /// Adds an object. An empty one before names that are below it is the mark of a directory, as
    /// tools leave it in buckets.
    pub(super) fn add(&mut self, key: String, bytes: u64) {
        let is_mark = |(name, bytes): &(String, u64)| {
            *bytes == 0 && key.strip_prefix(name.as_str()).is_some_and(|it| it.starts_with('/'))
        };
        if self.slice.objects.last().is_some_and(is_mark) {
            self.slice.objects.pop();
        }
        self.name_bytes += key.len();
        self.blocks += bytes.div_ceil(u64::from(BLOCK_BYTES_MAX)).max(1);
        self.last.clone_from(&key);
        self.slice.objects.push((key, bytes));
    }

    /// Counts what is no object.
    fn skip(&mut self, key: String, why: &str) {
        if self.slice.skipped == 0 {
            self.slice.skipped_first = format!("{key:?}: {why}");
        }
        self.slice.skipped += 1;
        self.name_bytes += key.len();
        self.last = key;
    }

    /// Returns the slice. If there is more, the next one begins after the last name.
    pub(super) fn finish(mut self, is_more: bool) -> StoreSlice {
        self.slice.next = is_more.then_some(self.last);
        self.slice
    }
}

/// Lists the files below a directory after a name, but for what is below `own` in it.
///
/// # Errors
/// A directory cannot be read, or is a store itself.
pub(super) fn list(root: &Path, own: &str, after: &str) -> Result<StoreSlice, StoreError> {
    let mut slice = SliceBuilder { own: own.to_owned(), ..SliceBuilder::default() };
    let is_more = walk(root, "", after, &mut slice)?;
    Ok(slice.finish(is_more))
}

/// Adds the files of a directory, whose names begin with `above`. Returns whether the slice was
/// full before the end.
fn walk(
    directory: &Path,
    above: &str,
    after: &str,
    slice: &mut SliceBuilder,
) -> Result<bool, StoreError> {
    if !above.is_empty() {
        overlaps::check_below(directory)?;
    }
    let mut after = after.to_owned();
    loop {
        let (names, is_cut) = smallest(directory, above, &after, &slice.own)?;
        for name in &names {
            if slice.is_full() {
                return Ok(true);
            }
            let place = directory.join(name.strip_prefix(above).unwrap_or(name));
            if let Some(below) = name.strip_suffix('/') {
                if below.split('/').count() >= PATH_DEPTH_MAX {
                    slice.skip(name.clone(), "it is too deep");
                } else if below.contains(char::REPLACEMENT_CHARACTER) && !place.exists() {
                    slice.skip(name.clone(), "its name is not UTF-8");
                } else if walk(&place, name, &after, slice)? {
                    return Ok(true);
                }
                continue;
            }
            match fs::symlink_metadata(&place) {
                Ok(found) if found.is_file() => slice.add(name.clone(), found.len()),
                Ok(_) => slice.skip(name.clone(), "it is no file"),
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    if name.contains(char::REPLACEMENT_CHARACTER) {
                        slice.skip(name.clone(), "its name is not UTF-8");
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        match names.last() {
            // What is below a directory comes after its name, and was listed.
            Some(last) if is_cut && last.ends_with('/') => after = format!("{last}{}", char::MAX),
            Some(last) if is_cut => after.clone_from(last),
            _ => return Ok(false),
        }
    }
}

/// Returns the first names of a directory's entries that may be after a name or have such below
/// them, each with what it begins with, those of directories with a slash. So many of them at most
/// as a slice has; returns whether there are more.
fn smallest(
    directory: &Path,
    above: &str,
    after: &str,
    own: &str,
) -> io::Result<(BTreeSet<String>, bool)> {
    let mut found = BTreeSet::new();
    let mut is_cut = false;
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound && !above.is_empty() => {
            return Ok((found, false));
        }
        entries => entries?,
    };
    for entry in entries {
        let name = full_name(above, &entry?)?;
        let is_own = above.is_empty() && name.trim_end_matches('/') == own;
        let is_below = name.ends_with('/') && after.starts_with(&name);
        if is_own || (name.as_str() <= after && !is_below) {
            continue;
        }
        found.insert(name);
        if found.len() > STORE_SLICE_OBJECTS_MAX {
            found.pop_last();
            is_cut = true;
        }
    }
    Ok((found, is_cut))
}

fn full_name(above: &str, entry: &DirEntry) -> io::Result<String> {
    let name = entry.file_name();
    let slash = if entry.file_type()?.is_dir() { "/" } else { "" };
    Ok(format!("{above}{}{slash}", name.to_string_lossy()))
}
