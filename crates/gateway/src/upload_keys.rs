//! The keys of unfinished uploads that were looked up. An upload keeps its key until it ends, and
//! its directory's id is never used again, so what is here never gets old.
//!
//! S3 lists uploads by their keys, which only a look-up of each has: for the next page of a listing
//! all of them would be looked up again.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use sanderling_protocol::{Instant, ObjectId};

/// Most uploads whose keys are kept. Of a bucket with at most half as many each is looked up once,
/// however many pages are listed. With the longest keys they take 18 MiB. Chosen, not measured.
const KEYS_MAX: usize = 16 << 10;

/// The key of an upload, and when the upload began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UploadKey {
    pub(crate) key: Arc<str>,
    pub(crate) begun: Instant,
}

/// The keys of uploads by the ids of their directories.
#[derive(Debug, Clone, Default)]
pub(crate) struct UploadKeys(Arc<Mutex<KeysInUse>>);

#[derive(Debug, Default)]
struct KeysInUse {
    recent: HashMap<ObjectId, UploadKey>,
    /// What was used before those; what of it is not used again goes next.
    older: HashMap<ObjectId, UploadKey>,
}

impl UploadKeys {
    /// Returns the key of the upload in a directory, if it was looked up.
    pub(crate) fn find(&self, directory: ObjectId) -> Option<UploadKey> {
        let mut keys = self.0.lock();
        if let Some(found) = keys.recent.get(&directory) {
            return Some(found.clone());
        }
        let found = keys.older.remove(&directory)?;
        keys.keep(directory, found.clone());
        Some(found)
    }

    /// Keeps a key that was looked up.
    pub(crate) fn keep(&self, directory: ObjectId, key: UploadKey) {
        self.0.lock().keep(directory, key);
    }
}

impl KeysInUse {
    fn keep(&mut self, directory: ObjectId, key: UploadKey) {
        if self.recent.len() >= KEYS_MAX / 2 {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(directory, key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> UploadKey {
        UploadKey { key: number.to_string().into(), begun: Instant(number) }
    }

    #[test]
    fn keys_in_use_stay_and_the_others_go() {
        let keys = UploadKeys::default();
        let most = KEYS_MAX as u64;
        for number in 0..4 * most {
            keys.keep(ObjectId(number), key(number));
            assert_eq!(keys.find(ObjectId(0)), Some(key(0)));
        }
        assert_eq!(keys.find(ObjectId(1)), None);
        assert_eq!(keys.find(ObjectId(4 * most - 1)), Some(key(4 * most - 1)));
        let held = keys.0.lock();
        assert!(held.recent.len() + held.older.len() <= KEYS_MAX);
    }

    #[test]
    fn pages_of_half_as_many_are_found() {
        let keys = UploadKeys::default();
        let most = KEYS_MAX as u64 / 2;
        for number in 0..most {
            keys.keep(ObjectId(number), key(number));
        }
        for _ in 0..3 {
            assert!((0..most).all(|number| keys.find(ObjectId(number)).is_some()));
        }
    }
}
