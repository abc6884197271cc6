//! `lookup-many`: many look-ups in one frame, in a tree as large as wanted.

use std::sync::Arc;

use bytes::Bytes;
use sanderling_client::ClientError;
use sanderling_protocol::limits::LOOKUPS_MAX;
use sanderling_protocol::message::{ObjectKind, Role};
use sanderling_protocol::{Path, Refusal, Reply, Request};
use sanderling_transport::{Pool, PoolOptions};
use tokio::time::Instant;

use super::error::BenchError;
use super::lanes::{Moved, Scenario};
use super::work::{Work, scattered};

/// Files of one directory of the tree.
const FILES: u64 = 1000;

/// The file that is made last: with it the tree is whole and can be used again.
const WHOLE: &str = "whole";

/// `lookup-many`.
pub(super) struct LookUpMany {
    work: Work,
    pool: Pool,
    paths: Arc<Vec<Path>>,
}

impl Scenario for LookUpMany {
    type Lane = ();

    async fn prepare(work: Work) -> Result<Self, BenchError> {
        let paths = work.plan.paths()?;
        if work.thread == 0 {
            make(&work, &paths).await?;
        }
        let pool = Pool::new(PoolOptions { role: Role::Client, ..PoolOptions::default() });
        pool.set_cluster(Some(work.client.cluster()));
        Ok(Self { work, pool, paths })
    }

    async fn lane(&self) -> Result<(), BenchError> {
        Ok(())
    }

    async fn operation(&self, (): &mut (), index: u64) -> Result<Moved, BenchError> {
        let batch = u64::from(self.work.plan.batch);
        let indices: Vec<u64> = (index * batch..(index + 1) * batch).collect();
        let requests = indices.chunks(LOOKUPS_MAX).map(|chunk| {
            let paths = chunk.iter().map(|index| self.path(*index)).collect();
            Request::LookupMany { paths }
        });
        let requests = requests.collect();
        let client = &self.work.client;
        let deadline = Instant::now() + client.config().attempt_deadline;
        let what = "look up";
        let answers = self.pool.meta(client.namenode(), requests, deadline).await;
        let answers =
            answers.map_err(|cause| ClientError::Call { what: what.to_owned(), cause })?;
        for answer in &answers {
            match answer {
                Ok(Reply::Found(lookups)) => match lookups.refusals.first() {
                    None => {}
                    Some(refusal) => return Err(refusal.clone().into()),
                },
                Ok(_) => return Err(ClientError::BadReply { what: what.to_owned() }.into()),
                Err(refusal) => return Err(refusal.clone().into()),
            }
        }
        Ok(Moved::items(batch))
    }
}

impl LookUpMany {
    fn path(&self, index: u64) -> &Path {
        let any = scattered(index) % self.paths.len() as u64;
        &self.paths[any as usize]
    }
}

/// Returns the paths of the tree's files.
pub(super) fn paths(root: &Path, files: u64) -> Result<Vec<Path>, Refusal> {
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
async fn make(work: &Work, paths: &[Path]) -> Result<(), BenchError> {
    let (client, root) = (&work.client, &work.plan.tree);
    let whole = root.join(WHOLE)?;
    if client.exists(&whole).await? {
        return Ok(());
    }
    let options = work.replacing();
    for files in paths.chunks(FILES as usize) {
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
}
