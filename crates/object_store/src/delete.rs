//! Deletion of objects, and of the directories that it leaves empty.

use std::collections::BTreeSet;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use object_store::path::Path as Location;
use sanderling_client::{Client, ClientError};
use sanderling_protocol::message::Found;
use sanderling_protocol::{Path, Refusal};

use crate::error::{self, Result};
use crate::store::SanderlingStore;

/// Objects that are deleted together. As many as the client sends in one frame (`BATCH_MAX` of the
/// core's `client`).
const TOGETHER_MAX: usize = 128;

impl SanderlingStore {
    pub(crate) fn delete_objects(
        &self,
        locations: BoxStream<'static, Result<Location>>,
    ) -> BoxStream<'static, Result<Location>> {
        let store = self.clone();
        let chunks = locations.ready_chunks(TOGETHER_MAX);
        let deleted = chunks.then(move |chunk| {
            let store = store.clone();
            async move { stream::iter(store.delete_chunk(chunk).await) }
        });
        deleted.flatten().boxed()
    }

    /// Deletes some objects. Returns what became of each, in their order.
    async fn delete_chunk(&self, chunk: Vec<Result<Location>>) -> Vec<Result<Location>> {
        let checked = chunk.into_iter().map(|location| {
            let location = location?;
            Ok((self.path(&location)?, location))
        });
        let checked: Vec<Result<(Path, Location)>> = checked.collect();
        let paths: Vec<Path> = checked.iter().flatten().map(|(path, _)| path.clone()).collect();
        let found = match self.client().await {
            Ok(client) => client.lookup_many(&paths).await.map(|found| (client, found)),
            Err(error) => Err(error),
        };
        let (client, mut found) = match found {
            Ok((client, found)) => (client, found.into_iter()),
            Err(error) => {
                let failed = |(_, location): (Path, Location)| error::of(&location, error.clone());
                return checked
                    .into_iter()
                    .map(|one| Err(one.map_or_else(|it| it, failed)))
                    .collect();
            }
        };
        let deletions = checked.into_iter().map(|one| {
            let one = one.map(|it| (it, found.next().expect("one answer to one path")));
            async move {
                let ((path, location), found) = one?;
                let deleted = delete(client, &path, found).await;
                deleted.map(|()| location.clone()).map_err(|error| error::of(&location, error))
            }
        });
        let deletions: Vec<_> = deletions.collect();
        let deleted = stream::iter(deletions).buffered(TOGETHER_MAX).collect().await;
        self.remove_empty(client, &paths).await;
        deleted
    }

    /// Removes the directories above paths that have nothing in them any more, up to the store's
    /// own. What cannot be removed stays: the objects are deleted all the same.
    pub(crate) async fn remove_empty(&self, client: &Client, paths: &[Path]) {
        let mut level: BTreeSet<Path> = paths.iter().filter_map(Path::parent).collect();
        while !level.is_empty() {
            let tried = level.into_iter().filter(|path| self.may_remove(path));
            let tried: Vec<_> = tried
                .map(|path| async move { is_removed(client, &path).await.then_some(path) })
                .collect();
            let removed = stream::iter(tried).buffered(TOGETHER_MAX);
            let removed: Vec<Option<Path>> = removed.collect().await;
            level = removed.iter().flatten().filter_map(Path::parent).collect();
        }
    }

    fn may_remove(&self, path: &Path) -> bool {
        let prefix = &self.options().prefix;
        path != prefix && prefix.contains(path)
    }
}

/// Deletes what was found, if it is an object.
async fn delete(
    client: &Client,
    path: &Path,
    found: std::result::Result<Found, Refusal>,
) -> std::result::Result<(), ClientError> {
    let found = found.map_err(ClientError::Refused)?;
    if found.kind.is_container() || !found.is_sealed {
        return Err(ClientError::Refused(Refusal::NotFound { path: path.clone() }));
    }
    client.delete(path, false).await.map(|_| ())
}

/// Removes a directory if it is empty and not the root of a job's subtree.
async fn is_removed(client: &Client, path: &Path) -> bool {
    let Ok(stat) = client.stat(path).await else { return false };
    if !stat.kind.is_container() || stat.entries > 0 {
        return false;
    }
    if stat.job.is_some() {
        let above = path.parent().unwrap_or_else(Path::root);
        let same_job = client.stat(&above).await.is_ok_and(|above| above.job == stat.job);
        if !same_job {
            return false;
        }
    }
    // Refused when something is in it by now, or another object has the name.
    client.delete_object(path, stat.object, false).await.is_ok()
}
