//! Buffers of the other language that the client reads or writes in place.

use std::ops::{Deref, DerefMut};

use parking_lot::Mutex;

/// Buffers that are no longer in use.
///
/// A thread of the client must neither wait for the other language's lock nor call its runtime. So
/// the next call of that language takes the buffers and releases them.
pub struct ReleaseQueue<B>(Mutex<Vec<B>>);

impl<B> ReleaseQueue<B> {
    /// Returns an empty queue.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Removes all buffers. Releasing one may run code of the other language, which may come back
    /// here.
    #[must_use]
    pub fn take(&self) -> Vec<B> {
        std::mem::take(&mut self.0.lock())
    }
}

impl<B> Default for ReleaseQueue<B> {
    fn default() -> Self {
        Self::new()
    }
}

/// A buffer that goes to its queue when it is dropped, on whichever thread.
pub struct Borrowed<B: 'static> {
    /// `None` only while it is dropped.
    buffer: Option<B>,
    queue: &'static ReleaseQueue<B>,
}

impl<B> Borrowed<B> {
    /// Borrows a buffer.
    #[must_use]
    pub const fn new(buffer: B, queue: &'static ReleaseQueue<B>) -> Self {
        Self { buffer: Some(buffer), queue }
    }
}

impl<B> Deref for Borrowed<B> {
    type Target = B;

    fn deref(&self) -> &B {
        self.buffer.as_ref().expect("the buffer is there until the drop")
    }
}

impl<B> DerefMut for Borrowed<B> {
    fn deref_mut(&mut self) -> &mut B {
        self.buffer.as_mut().expect("the buffer is there until the drop")
    }
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for Borrowed<B> {
    fn as_ref(&self) -> &[u8] {
        (**self).as_ref()
    }
}

impl<B> Drop for Borrowed<B> {
    fn drop(&mut self) {
        self.queue.0.lock().extend(self.buffer.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_buffer_waits_for_its_release() {
        static QUEUE: ReleaseQueue<Vec<u8>> = ReleaseQueue::new();
        let borrowed = Borrowed::new(vec![1, 2], &QUEUE);
        assert_eq!(borrowed.as_ref(), [1, 2]);
        assert!(QUEUE.take().is_empty());
        drop(borrowed);
        assert_eq!(QUEUE.take(), [vec![1, 2]]);
        assert!(QUEUE.take().is_empty());
    }
}
