//! Uploads that orders have begun, and that are to be ended: the manager has no record of them, so
//! no other node can end them.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use sanderling_protocol::{ClusterId, ObjectId};
use tokio::time::Instant;

/// Most uploads that are to be ended; further ones stay in the store. A node has four orders under
/// way (`UPLOADS_PER_NODE_MAX` of the core), each of which a store that hangs holds up for 20 s, so
/// these are those of an hour. Some hundred KiB of memory.
const LEFT_MAX: usize = 1024;

/// How long an upload is tried to be ended. After a day a lifecycle rule of the bucket, or an
/// operator, removes it. Chosen, not measured.
const TRIED_FOR: Duration = Duration::from_secs(24 * 3600);

/// The uploads that are to be ended.
#[derive(Debug, Default)]
pub(crate) struct LeftUploads(Mutex<VecDeque<LeftUpload>>);

/// One of them.
#[derive(Debug)]
pub(crate) struct LeftUpload {
    /// The directory that the upload is of.
    pub(crate) cluster: ClusterId,
    pub(crate) directory: ObjectId,
    /// The name of its store on this node.
    pub(crate) store: String,
    pub(crate) key: String,
    pub(crate) upload: String,
    /// When the order began it.
    pub(crate) since: Instant,
}

/// An upload that an order has begun: it is to be ended, unless the order returns it or ends it
/// itself. So it is after a failure, and when the connection of the manager breaks.
#[derive(Debug)]
pub(crate) struct BegunUpload<'a> {
    left: &'a LeftUploads,
    /// `None` once it is not to be ended any more.
    upload: Option<LeftUpload>,
}

impl LeftUploads {
    /// Takes an upload that an order has begun.
    pub(crate) const fn begun(&self, upload: LeftUpload) -> BegunUpload<'_> {
        BegunUpload { left: self, upload: Some(upload) }
    }

    /// Returns how many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Takes the first one out, to end it.
    pub(crate) fn take(&self) -> Option<LeftUpload> {
        self.0.lock().pop_front()
    }

    /// Puts one back that could not be ended, behind the others.
    pub(crate) fn put_back(&self, upload: LeftUpload) {
        if upload.since.elapsed() < TRIED_FOR {
            self.add(upload);
        }
    }

    fn add(&self, upload: LeftUpload) {
        let mut left = self.0.lock();
        if left.len() < LEFT_MAX {
            left.push_back(upload);
        }
    }
}

impl BegunUpload<'_> {
    /// Notes that the upload is not to be ended: the manager gets it, or it has ended.
    pub(crate) fn done(mut self) {
        self.upload = None;
    }
}

impl Drop for BegunUpload<'_> {
    fn drop(&mut self) {
        if let Some(upload) = self.upload.take() {
            let LeftUpload { store, key, .. } = &upload;
            tracing::debug!(store, key, "an upload is left in the store, and ended later");
            self.left.add(upload);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upload(name: &str) -> LeftUpload {
        let (store, key, upload) = ("s".to_owned(), "k".to_owned(), name.to_owned());
        let (cluster, directory, since) = (ClusterId(1), ObjectId(2), Instant::now());
        LeftUpload { cluster, directory, store, key, upload, since }
    }

    #[test]
    fn upload_that_is_neither_returned_nor_ended_is_left() {
        let left = LeftUploads::default();
        left.begun(upload("returned")).done();
        assert_eq!(left.len(), 0);
        drop(left.begun(upload("given up")));
        drop(left.begun(upload("given up later")));
        let first = left.take().expect("it is left");
        assert_eq!(first.upload, "given up");
        left.put_back(first);
        let order: Vec<String> = std::iter::from_fn(|| left.take()).map(|it| it.upload).collect();
        assert_eq!(order, ["given up later", "given up"]);
    }

    #[test]
    fn uploads_that_are_left_are_bounded_in_number_and_time() {
        let left = LeftUploads::default();
        for number in 0..LEFT_MAX + 10 {
            drop(left.begun(upload(&number.to_string())));
        }
        assert_eq!(left.len(), LEFT_MAX);
        let mut first = left.take().expect("they are left");
        if let Some(before) = first.since.checked_sub(TRIED_FOR) {
            first.since = before;
            left.put_back(first);
            assert_eq!(left.len(), LEFT_MAX - 1, "it is not tried for ever");
        }
    }
}
