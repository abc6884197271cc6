//! Stores in directories that are one directory, or of which one lies below the other. An object of
//! one could have the name of an object of the other, and each would write over the other's.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sanderling_protocol::message::STORE_OWN_NAME;

use super::own_names::OWNER_NAME;
use super::store_error::StoreError;

/// Where a store is.
#[derive(Debug)]
pub(super) enum StorePlace {
    /// A path, which no file system is called for, or the URL of a bucket.
    Named(PathBuf),
    /// A path without symbolic links, of a file system that answers.
    Real(PathBuf),
}

/// Returns the numbers of two places of which the first lies in the second one, or is it; of two
/// real ones, also if bind mounts lead there. It calls the file systems of these.
pub(super) fn overlapping(places: &[StorePlace]) -> Option<(usize, usize)> {
    let numbered = || places.iter().enumerate();
    let around = |(at, inner): (usize, &StorePlace)| {
        let mut others = numbered().filter(|(number, _)| *number != at);
        others.find(|(_, outer)| holds(outer, inner)).map(|(number, _)| (at, number))
    };
    numbered().find_map(around)
}

/// Refuses a store that lies below another one, whatever cluster has that one.
///
/// # Errors
/// [`StoreError::BelowStore`]; the directory is away.
pub(super) fn check_above(root: &Path) -> Result<(), StoreError> {
    let place = fs::canonicalize(root)?;
    for above in place.ancestors().skip(1) {
        if let Some(owner) = owner_in(above)? {
            return Err(StoreError::BelowStore { place: above.display().to_string(), owner });
        }
    }
    Ok(())
}

/// Refuses a directory of a store that is a store itself.
///
/// # Errors
/// [`StoreError::AroundStore`].
pub(super) fn check_below(directory: &Path) -> Result<(), StoreError> {
    // Without the slash at the end of a directory that is listed.
    let place = directory.components().as_path();
    match owner_in(place)? {
        Some(owner) => Err(StoreError::AroundStore { place: place.display().to_string(), owner }),
        None => Ok(()),
    }
}

/// Returns whose store a directory is, if it is one: a file that names no owner is of something
/// else.
fn owner_in(directory: &Path) -> io::Result<Option<String>> {
    use io::ErrorKind::{InvalidData, IsADirectory, NotADirectory, NotFound, PermissionDenied};
    match fs::read_to_string(directory.join(STORE_OWN_NAME).join(OWNER_NAME)) {
        Ok(text) => {
            let owner = text.lines().next().unwrap_or_default().trim();
            Ok(Some(owner.to_owned()).filter(|owner| is_owner(owner)))
        }
        // What this process may not read is no store that it could write to.
        Err(error)
            if matches!(
                error.kind(),
                NotFound | NotADirectory | PermissionDenied | IsADirectory | InvalidData
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Returns whether a text names an owner, as [`StoreOwner`](super::StoreOwner) is written.
fn is_owner(text: &str) -> bool {
    let parts = text.strip_prefix("cluster ").and_then(|it| it.split_once(" directory "));
    let is_number = |text: &str| text.parse::<u64>().is_ok();
    parts.is_some_and(|(cluster, directory)| is_number(cluster) && is_number(directory))
}

/// Returns a path without symbolic links, as far as its directories exist.
pub(super) fn real(directory: &str) -> PathBuf {
    let path = Path::new(directory);
    let resolved = path.ancestors().find_map(|above| {
        let rest = path.strip_prefix(above).ok()?;
        Some(fs::canonicalize(above).ok()?.join(rest))
    });
    resolved.unwrap_or_else(|| path.to_owned())
}

/// Returns whether a place is another one or lies below it.
fn holds(outer: &StorePlace, inner: &StorePlace) -> bool {
    let (StorePlace::Real(outer), StorePlace::Real(inner)) = (outer, inner) else {
        return inner.path().starts_with(outer.path());
    };
    let identity = |path: &Path| fs::metadata(path).ok().map(|it| (it.dev(), it.ino()));
    let wanted = identity(outer);
    let is_outer = |path: &Path| wanted.is_some() && identity(path) == wanted;
    inner.starts_with(outer) || inner.ancestors().any(is_outer)
}

impl StorePlace {
    fn path(&self) -> &Path {
        match self {
            Self::Named(path) | Self::Real(path) => path,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn directories_that_are_one_or_below_one_another_are_found() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        fs::create_dir_all(path("a/b")).unwrap();
        symlink(path("a"), path("link")).unwrap();
        let at = |name: &str| StorePlace::Real(real(path(name).to_str().unwrap()));
        let found = |names: [&str; 2]| overlapping(&names.map(at));
        assert_eq!(found(["a", "a"]), Some((0, 1)));
        assert_eq!(found(["a", "a/b"]), Some((1, 0)));
        assert_eq!(found(["a/b", "a"]), Some((0, 1)));
        assert_eq!(found(["a", "link"]), Some((0, 1)));
        assert_eq!(found(["link/b", "a"]), Some((0, 1)));
        assert_eq!(found(["link/missing/below", "a"]), Some((0, 1)));
        assert_eq!(found(["missing", "missing/below"]), Some((1, 0)));
        for apart in [["a/b", "a/c"], ["a/b", "a/bc"], ["missing", "missing2"]] {
            assert_eq!(found(apart), None, "{apart:?}");
        }
        // Those of buckets, and of file systems that may not answer, are compared by their names.
        let named = |name: &str| StorePlace::Named(path(name));
        assert_eq!(overlapping(&["a/b", "a"].map(named)), Some((0, 1)));
        assert_eq!(overlapping(&["link/b", "a"].map(named)), None);
        let urls = ["s3://bucket/a/b", "s3://bucket/ab", "s3://bucket/a/"];
        let urls = urls.map(|url| StorePlace::Named(PathBuf::from(url)));
        assert_eq!(overlapping(&urls), Some((0, 2)));
        assert_eq!(overlapping(&urls[1..]), None);
    }

    #[test]
    fn store_below_another_one_and_one_around_it_are_found() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        fs::create_dir_all(path("a/b/c")).unwrap();
        symlink(path("a/b/c"), path("link")).unwrap();
        check_above(&path("a/b/c")).unwrap();
        fs::create_dir(path("a/.sanderling")).unwrap();
        fs::write(path("a/.sanderling/owner"), "cluster 1 directory 2\nmore\n").unwrap();
        check_above(&path("a")).unwrap();
        for below in ["a/b", "a/b/c", "link"] {
            let refused = check_above(&path(below)).unwrap_err().to_string();
            assert!(refused.contains("the store of cluster 1 directory 2:"), "{refused}");
        }
        check_below(&path("a/b")).unwrap();
        // What is of something else.
        for other in ["", "junk", "cluster x directory 2", "cluster 1 directory"] {
            fs::create_dir_all(path("other/.sanderling")).unwrap();
            fs::write(path("other/.sanderling/owner"), other).unwrap();
            check_below(&path("other")).unwrap();
        }
        fs::remove_file(path("other/.sanderling/owner")).unwrap();
        fs::create_dir(path("other/.sanderling/owner")).unwrap();
        check_below(&path("other")).unwrap();
        assert!(matches!(check_below(&path("a")), Err(StoreError::AroundStore { .. })));
    }
}
