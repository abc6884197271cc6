//! A walk through the keys below a prefix, in the order of their bytes.
//!
//! A directory lists its names in order, but keys are ordered with the `/` behind a directory's
//! name: `a.b` comes before all of `a/`, which comes before `a0`. [`Level`] puts one directory in
//! that order; the walk descends from level to level and holds a page of each.

use sanderling_client::{Client, ClientError};
use sanderling_protocol::message::Entry;
use sanderling_protocol::{Path, Refusal};

use super::level::{Head, Level};
use crate::name::directory_of;

/// What a walk comes to.
#[derive(Debug)]
pub(crate) enum WalkStep {
    /// An object, with its key.
    Key(String, Box<Entry>),
    /// A directory that is not entered, with its key and the `/` behind it.
    Directory(String),
}

/// A walk through a bucket.
#[derive(Debug)]
pub(crate) struct BucketWalk<'a> {
    client: &'a Client,
    /// The directory in which keys of the prefix are, and its part of the prefix.
    top: (Path, String),
    /// Keys before this one are passed over.
    from: String,
    page_entries: usize,
    levels: Vec<Level>,
    is_started: bool,
}

impl<'a> BucketWalk<'a> {
    /// Makes a walk through the keys of a prefix from `from` on. Listings are requested with about
    /// so many entries.
    ///
    /// # Errors
    /// [`Refusal::BadPath`] when no key can begin so.
    pub(crate) fn new(
        client: &'a Client,
        bucket: &Path,
        prefix: &str,
        from: String,
        page_entries: usize,
    ) -> Result<Self, ClientError> {
        let (directory, base) = match directory_of(bucket, prefix) {
            Ok((directory, base)) => (directory, base.to_owned()),
            Err(refusal) => return Err(ClientError::Refused(refusal)),
        };
        let top = (directory, base);
        Ok(Self { client, top, from, page_entries, levels: Vec::new(), is_started: false })
    }

    /// Goes on at another key, which is not before those seen.
    pub(crate) fn seek(&mut self, from: String) {
        self.from = from;
        self.levels.clear();
        self.is_started = false;
    }

    /// Returns the next key, or a directory that by `is_whole` is not to be entered.
    ///
    /// # Errors
    /// [`ClientError`] of a listing. What vanishes meanwhile is passed over.
    pub(crate) async fn next(
        &mut self,
        is_whole: impl Fn(&str) -> bool,
    ) -> Result<Option<WalkStep>, ClientError> {
        if !self.is_started {
            self.is_started = true;
            let (directory, base) = self.top.clone();
            self.enter(directory, base).await?;
        }
        while let Some(level) = self.levels.last_mut() {
            let Some(head) = level.next(self.client).await? else {
                self.levels.pop();
                continue;
            };
            match head {
                Head::Object(key, entry) if key >= self.from => {
                    return Ok(Some(WalkStep::Key(key, entry)));
                }
                Head::Object(..) => {}
                // All that begins so is before the start.
                Head::Directory(whole, _)
                    if whole < self.from && !self.from.starts_with(&whole) => {}
                // Of one in which the walk starts nothing may be left.
                Head::Directory(whole, _) if is_whole(&whole) && !self.from.starts_with(&whole) => {
                    return Ok(Some(WalkStep::Directory(whole)));
                }
                Head::Directory(whole, path) => self.enter(path, whole).await?,
            }
        }
        Ok(None)
    }

    async fn enter(&mut self, directory: Path, base: String) -> Result<(), ClientError> {
        let from = self.from.strip_prefix(base.as_str()).unwrap_or_default();
        match Level::open(self.client, directory, base.clone(), from, self.page_entries).await {
            Ok(level) => self.levels.push(level),
            Err(ClientError::Refused(Refusal::NotFound { .. } | Refusal::NotADirectory { .. })) => {
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
