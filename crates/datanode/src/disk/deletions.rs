//! Deletes block files on a thread of its own, so that no caller waits for a disk that hangs.
//!
//! A file that waits here has no block any more, and its name is given out once in the life of the
//! tier: however late it is deleted, it is not the file of another block.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::capacity::Capacity;

/// How long the end of a tier waits until its last files are deleted. A deletion takes some ten
/// microseconds, and what is left behind the next start deletes. Chosen, not measured.
const CLOSE_MAX: Duration = Duration::from_secs(2);

/// The files of one tier that are to be deleted. Each counts as used until it is.
#[derive(Debug)]
pub(super) struct Deletions(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    capacity: Arc<Capacity>,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug)]
struct Queue {
    /// Each with the bytes that it is counted with.
    files: VecDeque<(PathBuf, u64)>,
    is_deleting: bool,
    is_closed: bool,
    /// Holds the lock that keeps other datanodes away; `None` after the last deletion.
    marker: Option<File>,
}

impl Deletions {
    /// Starts the thread, which keeps the marker's lock until it ends.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(super) fn start(capacity: Arc<Capacity>, marker: File) -> io::Result<Self> {
        let queue = Queue {
            files: VecDeque::new(),
            is_deleting: false,
            is_closed: false,
            marker: Some(marker),
        };
        let (queue, changed) = (Mutex::new(queue), Condvar::new());
        let shared = Arc::new(Shared { capacity, queue, changed });
        let worker = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("deletions".to_owned());
        thread.spawn(move || worker.run())?;
        Ok(Self(shared))
    }

    /// Adds a file. Does not wait for the disk.
    pub(super) fn add(&self, path: PathBuf, accounted_bytes: u64) {
        self.0.queue.lock().files.push_back((path, accounted_bytes));
        self.0.changed.notify_all();
    }

    /// Returns the number of files that are still to be deleted.
    pub(super) fn waiting(&self) -> u64 {
        let queue = self.0.queue.lock();
        queue.files.len() as u64 + u64::from(queue.is_deleting)
    }

    /// Waits until every file is deleted.
    #[cfg(test)]
    pub(super) fn finish(&self) {
        let mut queue = self.0.queue.lock();
        while queue.is_deleting || !queue.files.is_empty() {
            self.0.changed.wait(&mut queue);
        }
    }
}

impl Shared {
    fn run(&self) {
        let mut queue = self.queue.lock();
        loop {
            if let Some((path, accounted_bytes)) = queue.files.pop_front() {
                queue.is_deleting = true;
                MutexGuard::unlocked(&mut queue, || self.delete(&path, accounted_bytes));
                queue.is_deleting = false;
                self.changed.notify_all();
            } else if queue.is_closed {
                queue.marker = None;
                self.changed.notify_all();
                return;
            } else {
                self.changed.wait(&mut queue);
            }
        }
    }

    fn delete(&self, path: &Path, accounted_bytes: u64) {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %path.display(), %error, "a block file stays behind");
            }
            _ => self.capacity.release(accounted_bytes),
        }
    }
}

impl Drop for Deletions {
    /// Leaves the directory to the next tier, unless the disk hangs: then the lock stays until its
    /// last deletion has ended.
    fn drop(&mut self) {
        let until = Instant::now() + CLOSE_MAX;
        let mut queue = self.0.queue.lock();
        queue.is_closed = true;
        self.0.changed.notify_all();
        while queue.marker.is_some() {
            if self.0.changed.wait_until(&mut queue, until).timed_out() {
                return;
            }
        }
    }
}
