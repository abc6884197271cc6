//! The functions by which `object_store` 0.13 tests its own stores, over a whole cluster.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../client/tests/cluster/mod.rs"]
mod cluster;

use cluster::Cluster;
use object_store_013::{Error, integration};
use sanderling_object_store_013::SanderlingStore;

#[tokio::test(flavor = "multi_thread")]
async fn suite_of_the_older_version_passes() {
    let cluster = Cluster::start(3).await;
    let store = SanderlingStore::new(cluster.client().await);
    integration::put_get_delete_list(&store).await;
    integration::list_with_offset_exclusivity(&store).await;
    integration::list_uses_directories_correctly(&store).await;
    integration::list_with_delimiter(&store).await;
    integration::list_paginated(&store, &store).await;
    integration::put_opts(&store, true).await;
    integration::get_opts(&store).await;
    integration::put_get_attributes(&store).await;
    integration::rename_and_copy(&store).await;
    integration::copy_if_not_exists(&store).await;
    integration::copy_rename_nonexistent_object(&store).await;
    integration::multipart(&store, &store).await;
    integration::multipart_out_of_order(&store).await;
    integration::multipart_race_condition(&store, true).await;
    let missing = integration::get_nonexistent_object(&store, None).await.unwrap_err();
    assert!(matches!(missing, Error::NotFound { .. }), "{missing}");
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_read_and_written() {
    let cluster = Cluster::start(3).await;
    let store = SanderlingStore::new(cluster.client().await);
    integration::stream_get(&store).await;
    assert!(cluster.client().await.fsck().await.unwrap().problems.is_empty());
}
