//! The uploads that orders have left in stores, as the orders' tasks share them. `core` decides
//! which are tried again.

use parking_lot::Mutex;
use sanderling_core::durable::{LeftRound, LeftUpload, LeftUploads};
use sanderling_protocol::Instant;

/// The uploads that are to be ended.
#[derive(Debug, Default)]
pub(crate) struct LeftList(Mutex<LeftUploads>);

/// An upload that an order has begun: it is to be ended, unless the order returns it or ends it
/// itself. So it is after a failure, and when the connection of the manager breaks.
#[derive(Debug)]
pub(crate) struct BegunUpload<'a> {
    left: &'a LeftList,
    /// `None` once it is not to be ended any more.
    upload: Option<LeftUpload>,
}

impl LeftList {
    /// Takes an upload that an order has begun.
    pub(crate) const fn begun(&self, upload: LeftUpload) -> BegunUpload<'_> {
        BegunUpload { left: self, upload: Some(upload) }
    }

    /// Begins an attempt at each of them.
    pub(crate) fn round(&self) -> LeftRound {
        self.0.lock().round()
    }

    /// Takes the next one out, to end it.
    pub(crate) fn next(&self, round: &mut LeftRound, now: Instant) -> Option<LeftUpload> {
        round.next(now, &mut self.0.lock())
    }

    /// Ends the attempt.
    pub(crate) fn end(&self, round: LeftRound, now: Instant) {
        round.end(now, &mut self.0.lock());
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
            self.left.0.lock().add(upload);
        }
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::{ClusterId, ObjectId};

    use super::*;

    fn upload(name: &str) -> LeftUpload {
        let (store, key, upload) = ("s".to_owned(), "k".to_owned(), name.to_owned());
        let (cluster, directory, since) = (ClusterId(1), ObjectId(2), Instant(0));
        LeftUpload { cluster, directory, store, key, upload, since }
    }

    #[test]
    fn upload_that_is_neither_returned_nor_ended_is_left() {
        let left = LeftList::default();
        left.begun(upload("returned")).done();
        drop(left.begun(upload("given up")));
        drop(left.begun(upload("given up later")));
        let mut round = left.round();
        let mut tried = Vec::new();
        while let Some(upload) = left.next(&mut round, Instant(0)) {
            tried.push(upload.upload);
        }
        left.end(round, Instant(0));
        assert_eq!(tried, ["given up", "given up later"]);
    }
}
