//! `lookup-many`: many look-ups in one frame, in a tree as large as wanted.

use std::sync::Arc;

use bytes::Bytes;
use sanderling_protocol::message::ObjectKind;
use sanderling_protocol::{Path, Refusal};

use super::error::BenchError;
use super::scenario::{Moved, Stateless};
use super::work::{BenchThread, Workload, scattered, window};

/// Files of one directory of the tree: it fits into one page of a listing (4,096 entries). Chosen,
/// not measured.
const FILES: u64 = 1000;

/// The file that is made last: with it the tree is whole and can be used again.
const WHOLE: &str = "whole";

/// `lookup-many`.
pub(super) struct LookUpMany {
    work: BenchThread,
    paths: Arc<Vec<Path>>,
}

impl Stateless for LookUpMany {
    async fn prepare(work: BenchThread) -> Result<Self, BenchError> {
        if work.thread == 0 {
            make(&work).await?;
        }
        let paths = shared(&work.load)?;
        Ok(Self { work, paths })
    }

    async fn operation(&self, index: u64) -> Result<Moved, BenchError> {
        let paths = window(&self.paths, self.work.load.batch, index);
        let all = self.work.client.lookup_many(paths).await?;
        for found in &all {
            found.as_ref().map_err(Clone::clone)?;
        }
        Ok(Moved::items(all.len() as u64))
    }
}

/// Returns the paths that are looked up, the same for all threads.
fn shared(load: &Workload) -> Result<Arc<Vec<Path>>, BenchError> {
    if let Some(paths) = load.paths.get() {
        return Ok(Arc::clone(paths));
    }
    let paths = mixed(&load.tree, load.files, load.batch)?;
    Ok(Arc::clone(load.paths.get_or_init(|| Arc::new(paths))))
}

/// Returns the paths of the tree's files in an order that follows nothing, so that neighbours here
/// are none in the catalog, and at least `batch` of them.
fn mixed(root: &Path, files: u64, batch: u32) -> Result<Vec<Path>, Refusal> {
    let mut mixed: Vec<(u64, Path)> = (0..).map(scattered).zip(paths(root, files)?).collect();
    mixed.sort_unstable_by_key(|(order, _)| *order);
    let mut mixed: Vec<Path> = mixed.into_iter().map(|(_, path)| path).collect();
    while mixed.len() < batch as usize {
        mixed.extend_from_within(..mixed.len().min(batch as usize - mixed.len()));
    }
    Ok(mixed)
}

/// Returns the paths of the tree's files.
fn paths(root: &Path, files: u64) -> Result<Vec<Path>, Refusal> {
    let mut paths = Vec::with_capacity(files as usize);
    for first in (0..files).step_by(FILES as usize) {
        let directory = directory(root, first)?;
        for file in first..files.min(first + FILES) {
            paths.push(directory.join(&format!("file-{file}"))?);
        }
    }
    Ok(paths)
}

fn directory(root: &Path, first: u64) -> Result<Path, Refusal> {
    root.join(&format!("directory-{}", first / FILES))
}

/// Makes the tree, unless a run before has left it.
async fn make(work: &BenchThread) -> Result<(), BenchError> {
    let (client, root) = (&work.client, &work.load.tree);
    let whole = root.join(WHOLE)?;
    if client.exists(&whole).await? {
        return Ok(());
    }
    let options = work.replacing();
    for files in paths(root, work.load.files)?.chunks(FILES as usize) {
        let parent = files.first().and_then(Path::parent).unwrap_or_else(Path::root);
        client.make_directory(&parent, ObjectKind::Directory, true, true).await?;
        work.put_all(files, &Bytes::new(), &options).await?;
    }
    client.put(&whole, Bytes::new(), &options).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tree_has_as_many_paths_as_asked() {
        let root: Path = "/tree".parse().unwrap();
        let paths = paths(&root, 2001).unwrap();
        assert_eq!(paths.len(), 2001);
        assert_eq!(paths[2000].as_str(), "/tree/directory-2/file-2000");
        let distinct: std::collections::HashSet<&str> = paths.iter().map(Path::as_str).collect();
        assert_eq!(distinct.len(), 2001);
    }

    #[test]
    fn few_paths_fill_a_batch_and_follow_no_order() {
        let root: Path = "/tree".parse().unwrap();
        assert_eq!(mixed(&root, 3, 128).unwrap().len(), 128);
        let mixed = mixed(&root, 1000, 128).unwrap();
        assert_eq!(mixed.len(), 1000);
        assert_ne!(mixed, paths(&root, 1000).unwrap());
    }
}
