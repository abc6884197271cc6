//! Which directories have puts under way: nothing of them is seen yet, and with their last key they
//! would go.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use sanderling_protocol::Path;

/// The directories that puts of this gateway are under way in, with how many.
#[derive(Debug, Clone, Default)]
pub(crate) struct ActiveWrites(Arc<Mutex<HashMap<Path, usize>>>);

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
            *self.0.lock().entry(directory.clone()).or_default() += 1;
        }
        Begun { writing: self.clone(), directory }
    }

    /// Returns whether a put is under way in a directory. One deeper is in a directory of its own,
    /// which keeps this one.
    pub(crate) fn is_in(&self, directory: &Path) -> bool {
        self.0.lock().contains_key(directory)
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        let Some(directory) = self.directory.take() else { return };
        let mut all = self.writing.0.lock();
        if let Some(puts) = all.get_mut(&directory) {
            *puts -= 1;
            if *puts == 0 {
                all.remove(&directory);
            }
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
        assert!(writing.is_in(&directory));
        drop(second);
        assert!(!writing.is_in(&directory));
        assert!(!writing.is_in(&Path::root()));
    }
}
