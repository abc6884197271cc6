//! Which directories have puts under way, and what removes the directories of puts that failed.
//!
//! Nothing of a put is seen before its end, and with their last key its directories would go.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use sanderling_protocol::Path;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

/// Most cleanups under way. Each ends within a few calls to the namenode, unless the namenode does
/// not answer or another gateway writes into the directory. Chosen, not measured.
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

/// The tasks that remove what failed puts left.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cleanups(Arc<Mutex<JoinSet<()>>>);

impl Cleanups {
    /// Starts a task. While there are too many of them it does not: the directories stay.
    pub(crate) fn start(&self, cleanup: impl Future<Output = ()> + Send + 'static) {
        let Ok(runtime) = Handle::try_current() else { return };
        let mut all = self.0.lock();
        while all.try_join_next().is_some() {}
        if all.len() < CLEANUPS_MAX {
            all.spawn_on(cleanup, &runtime);
            return;
        }
        drop(all);
        tracing::warn!("directories of a failed put stay: {CLEANUPS_MAX} others are being removed");
    }

    /// Waits until all have ended.
    pub(crate) async fn wait(&self) {
        loop {
            let mut all = std::mem::take(&mut *self.0.lock());
            if all.is_empty() {
                return;
            }
            while all.join_next().await.is_some() {}
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
}
