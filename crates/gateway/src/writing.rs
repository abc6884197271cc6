//! Which directories have puts under way, and the tasks that remove what failed requests left.
//!
//! Nothing of a put is seen before its end, and with their last key its directories would go.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use sanderling_protocol::Path;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Most cleanups under way. Each ends within a few calls to the namenode, unless the namenode does
/// not answer, a store is waited for, or another gateway writes into the directory. Chosen, not
/// measured.
const CLEANUPS_MAX: usize = 1024;

/// The directories that puts of this gateway are under way in.
#[derive(Debug, Clone, Default)]
pub(crate) struct ActiveWrites(Arc<Mutex<HashMap<Path, PutsInside>>>);

/// The puts that are under way in one directory.
#[derive(Debug, Default)]
struct PutsInside {
    count: usize,
    /// The directory was to be removed, and stays because of these puts.
    is_left: bool,
}

/// A put that is under way.
#[derive(Debug)]
pub(crate) struct Begun {
    writing: ActiveWrites,
    directory: Option<Path>,
}

impl ActiveWrites {
    /// Notes a put until what is returned is dropped.
    pub(crate) fn begin(&self, path: &Path) -> Begun {
        let directory = path.parent();
        if let Some(directory) = &directory {
            self.0.lock().entry(directory.clone()).or_default().count += 1;
        }
        Begun { writing: self.clone(), directory }
    }

    /// Returns whether a directory that is to be removed is left to puts that are under way in it:
    /// if the last of them fails, it removes the directory. A put deeper is in a directory of its
    /// own, which keeps this one.
    pub(crate) fn leaves(&self, directory: &Path) -> bool {
        match self.0.lock().get_mut(directory) {
            Some(inside) => {
                inside.is_left = true;
                true
            }
            None => false,
        }
    }
}

impl Begun {
    /// Ends a put that failed. Returns whether it has to remove its directory: others left it, and
    /// no put is under way there any more.
    pub(crate) fn fail(mut self) -> bool {
        self.end()
    }

    fn end(&mut self) -> bool {
        let Some(directory) = self.directory.take() else { return false };
        let mut all = self.writing.0.lock();
        let Some(inside) = all.get_mut(&directory) else { return false };
        inside.count -= 1;
        inside.count == 0 && all.remove(&directory).is_some_and(|inside| inside.is_left)
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.end();
    }
}

/// The tasks that remove what failed requests left.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cleanups {
    tasks: Arc<Mutex<JoinSet<()>>>,
    /// The directories that a task tries to remove, each with the end of its attempts.
    kept: Arc<Mutex<HashMap<Path, Instant>>>,
}

/// A directory that one task tries to remove. Dropped, no task does any more.
#[derive(Debug)]
pub(crate) struct KeptDirectory {
    kept: Arc<Mutex<HashMap<Path, Instant>>>,
    directory: Path,
    has_ended: bool,
}

impl Cleanups {
    /// Starts a task. While there are too many of them it does not: what is left stays.
    pub(crate) fn start(&self, cleanup: impl Future<Output = ()> + Send + 'static) {
        self.start_below(CLEANUPS_MAX, cleanup);
    }

    /// Starts a task without which little stays, and not for long. It leaves others half of the
    /// places.
    pub(crate) fn start_minor(&self, cleanup: impl Future<Output = ()> + Send + 'static) {
        self.start_below(CLEANUPS_MAX / 2, cleanup);
    }

    fn start_below(&self, most: usize, cleanup: impl Future<Output = ()> + Send + 'static) {
        let count = {
            let mut tasks = self.tasks.lock();
            while tasks.try_join_next().is_some() {}
            tasks.len()
        };
        if count < most {
            self.start_always(cleanup);
            return;
        }
        tracing::warn!("what a request left stays: {count} others are being removed");
    }

    /// Starts a task however many there are.
    pub(crate) fn start_always(&self, cleanup: impl Future<Output = ()> + Send + 'static) {
        let Ok(runtime) = Handle::try_current() else { return };
        self.tasks.lock().spawn_on(cleanup, &runtime);
    }

    /// Prolongs the attempts at a directory until then. Returns it if no task tries it yet: the
    /// caller starts one.
    pub(crate) fn try_until(&self, directory: &Path, until: Instant) -> Option<KeptDirectory> {
        let before = self.kept.lock().insert(directory.clone(), until);
        // Made only for the first: dropped, it ends the attempts.
        before.is_none().then(|| {
            let (kept, directory) = (Arc::clone(&self.kept), directory.clone());
            KeptDirectory { kept, directory, has_ended: false }
        })
    }

    /// Waits until all have ended.
    pub(crate) async fn wait(&self) {
        loop {
            let mut all = std::mem::take(&mut *self.tasks.lock());
            if all.is_empty() {
                return;
            }
            while all.join_next().await.is_some() {}
        }
    }
}

impl KeptDirectory {
    pub(crate) const fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns until when it is tried.
    pub(crate) fn until(&self) -> Instant {
        self.kept.lock().get(&self.directory).copied().unwrap_or_else(Instant::now)
    }

    /// Ends the attempts at the directory if they still last to `until`, and returns whether it
    /// did. If another request has prolonged them, it ends nothing, and the caller tries again.
    pub(crate) fn end(&mut self, until: Instant) -> bool {
        let mut kept = self.kept.lock();
        let is_last = kept.get(&self.directory).is_none_or(|it| *it == until);
        if is_last {
            kept.remove(&self.directory);
            self.has_ended = true;
        }
        is_last
    }
}

impl Drop for KeptDirectory {
    fn drop(&mut self) {
        if !self.has_ended {
            self.kept.lock().remove(&self.directory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_is_in_use_until_its_last_put_ends() {
        let writing = ActiveWrites::default();
        let (path, directory): (Path, Path) = ("/a/b".parse().unwrap(), "/a".parse().unwrap());
        let (first, second) = (writing.begin(&path), writing.begin(&path));
        drop(first);
        assert!(writing.leaves(&directory));
        drop(second);
        assert!(!writing.leaves(&directory));
        assert!(!writing.leaves(&Path::root()));
    }

    #[test]
    fn last_put_that_fails_removes_the_directory_that_others_left() {
        let writing = ActiveWrites::default();
        let (path, directory): (Path, Path) = ("/a/b".parse().unwrap(), "/a".parse().unwrap());
        let (first, second) = (writing.begin(&path), writing.begin(&path));
        assert!(writing.leaves(&directory));
        assert!(!first.fail(), "another put is under way");
        assert!(second.fail());
        // No put left it since.
        assert!(!writing.begin(&path).fail());
        // One that succeeds leaves a key there.
        let put = writing.begin(&path);
        assert!(writing.leaves(&directory));
        drop(put);
        assert!(!writing.begin(&path).fail());
    }

    #[test]
    fn directory_that_is_left_again_while_a_task_tries_it_is_tried_for_longer() {
        let (cleanups, directory) = (Cleanups::default(), "/a".parse::<Path>().unwrap());
        let first = Instant::now();
        let later = first + std::time::Duration::from_secs(1);
        let mut kept = cleanups.try_until(&directory, first).unwrap();
        assert!(cleanups.try_until(&directory, later).is_none(), "one task tries it");
        assert!(!kept.end(first), "it was left again since");
        assert_eq!(kept.until(), later);
        assert!(kept.end(later));
        // The one that has ended does not end the next one.
        let next = cleanups.try_until(&directory, first).unwrap();
        drop(kept);
        assert!(cleanups.try_until(&directory, later).is_none());
        drop(next);
        assert!(cleanups.try_until(&directory, first).is_some());
    }

    #[tokio::test]
    async fn cleanups_are_waited_for() {
        let (cleanups, done) = (Cleanups::default(), Arc::new(Mutex::new(false)));
        let set = Arc::clone(&done);
        cleanups.start(async move {
            tokio::task::yield_now().await;
            *set.lock() = true;
        });
        cleanups.wait().await;
        assert!(*done.lock());
    }
    #[tokio::test]
    async fn minor_cleanups_leave_others_half_of_the_places() {
        let cleanups = Cleanups::default();
        for _ in 0..CLEANUPS_MAX {
            cleanups.start_minor(std::future::pending());
        }
        assert_eq!(cleanups.tasks.lock().len(), CLEANUPS_MAX / 2);
        for _ in 0..CLEANUPS_MAX {
            cleanups.start(std::future::pending());
        }
        assert_eq!(cleanups.tasks.lock().len(), CLEANUPS_MAX);
    }
}
