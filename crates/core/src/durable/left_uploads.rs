//! Uploads that orders to a datanode have left in stores, and that it is to end: the manager has no
//! record of them, so no other node can end them.

use std::collections::{BTreeSet, VecDeque};

use sanderling_protocol::{ClusterId, Instant, Millis, ObjectId};

/// Most uploads that are to be ended; further ones stay in the store. A node has four orders under
/// way (`UPLOADS_PER_NODE_MAX`), each of which a store that hangs holds up for 20 s, so these are
/// those of an hour. Some hundred KiB of memory.
const LEFT_MAX: usize = 1024;

/// How long an upload is tried to be ended. After a day a lifecycle rule of the bucket, or an
/// operator, removes it. Chosen, not measured.
const TRIED_FOR: Millis = Millis(24 * 3600 * 1000);

/// The uploads that are to be ended.
#[derive(Debug, Default)]
pub struct LeftUploads(VecDeque<LeftUpload>);

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftUpload {
    /// The cluster of the directory.
    pub cluster: ClusterId,
    /// The directory that the upload is of.
    pub directory: ObjectId,
    /// The name of its store on this node.
    pub store: String,
    /// The object's name there.
    pub key: String,
    /// The upload.
    pub upload: String,
    /// When the order began it.
    pub since: Instant,
}

/// One attempt at each upload that is left. Of a store that fails no other one is tried. What
/// failed goes behind the others, so that an upload that always fails holds up none.
#[derive(Debug)]
pub struct LeftRound {
    /// How many are still to be looked at.
    rest: usize,
    failed: BTreeSet<String>,
    again: Vec<LeftUpload>,
}

impl LeftUploads {
    /// Adds an upload; one too many stays in its store.
    pub fn add(&mut self, upload: LeftUpload) {
        if self.0.len() < LEFT_MAX {
            self.0.push_back(upload);
        }
    }

    /// Begins a round.
    #[must_use]
    pub fn round(&self) -> LeftRound {
        LeftRound { rest: self.0.len(), failed: BTreeSet::new(), again: Vec::new() }
    }
}

impl LeftRound {
    /// Takes the next upload out, to end it.
    pub fn next(&mut self, now: Instant, left: &mut LeftUploads) -> Option<LeftUpload> {
        while self.rest > 0 {
            self.rest -= 1;
            let upload = left.0.pop_front()?;
            if !self.failed.contains(&upload.store) {
                return Some(upload);
            }
            put_back(now, left, upload);
        }
        None
    }

    /// Notes that an upload could not be ended.
    pub fn failed(&mut self, upload: LeftUpload) {
        self.failed.insert(upload.store.clone());
        self.again.push(upload);
    }

    /// Ends the round.
    pub fn end(self, now: Instant, left: &mut LeftUploads) {
        self.again.into_iter().for_each(|upload| put_back(now, left, upload));
    }
}

/// Puts an upload behind the others, unless it was tried for long enough.
fn put_back(now: Instant, left: &mut LeftUploads, upload: LeftUpload) {
    if upload.since.until(now) < TRIED_FOR {
        left.add(upload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(1_000_000);

    fn upload(store: &str, name: &str) -> LeftUpload {
        let (store, key, upload) = (store.to_owned(), "k".to_owned(), name.to_owned());
        let (cluster, directory, since) = (ClusterId(1), ObjectId(2), NOW);
        LeftUpload { cluster, directory, store, key, upload, since }
    }

    /// Tries each that is left; returns the names of those that were tried. The named ones fail.
    fn round(left: &mut LeftUploads, now: Instant, failing: &[&str]) -> Vec<String> {
        let (mut round, mut tried) = (left.round(), Vec::new());
        while let Some(upload) = round.next(now, left) {
            tried.push(upload.upload.clone());
            if failing.contains(&upload.upload.as_str()) {
                round.failed(upload);
            }
        }
        round.end(now, left);
        tried
    }

    #[test]
    fn store_that_fails_holds_up_no_other_one_and_its_failed_upload_goes_last() {
        let mut left = LeftUploads::default();
        for (store, name) in [("s", "a"), ("s", "b"), ("t", "c"), ("s", "d"), ("t", "e")] {
            left.add(upload(store, name));
        }
        assert_eq!(round(&mut left, NOW, &["a"]), ["a", "c", "e"]);
        assert_eq!(round(&mut left, NOW, &["a"]), ["b", "d", "a"]);
        assert_eq!(round(&mut left, NOW, &[]), ["a"]);
        assert!(round(&mut left, NOW, &[]).is_empty());
    }

    #[test]
    fn uploads_that_are_left_are_bounded_in_number_and_time() {
        let mut left = LeftUploads::default();
        for number in 0..LEFT_MAX + 10 {
            left.add(upload("s", &number.to_string()));
        }
        assert_eq!(left.0.len(), LEFT_MAX);
        let later = NOW + Millis(TRIED_FOR.0 - 1);
        assert_eq!(round(&mut left, later, &["0"]), ["0"]);
        assert_eq!(left.0.len(), LEFT_MAX, "all are tried again");
        assert_eq!(round(&mut left, NOW + TRIED_FOR, &["1"]), ["1"]);
        assert!(left.0.is_empty(), "none is tried for ever");
    }
}
