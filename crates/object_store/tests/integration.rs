//! The functions by which `object_store` tests its own stores, over a whole cluster.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../client/tests/cluster/mod.rs"]
mod cluster;

use cluster::Cluster;
use object_store::integration;
use sanderling_object_store::{SanderlingStore, StoreBuilder};

/// Runs a future with a store of a cluster of its own.
macro_rules! with_store {
    ($($name:ident: |$store:ident| $body:expr;)*) => { $(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            let cluster = Cluster::start(3).await;
            let $store = SanderlingStore::new(cluster.client().await);
            $body;
            assert!($store.client().await.unwrap().fsck().await.unwrap().problems.is_empty());
        }
    )* };
}

with_store! {
    objects_are_put_got_deleted_and_listed: |store| integration::put_get_delete_list(&store).await;
    streams_are_read_and_written: |store| integration::stream_get(&store).await;
    directories_are_no_objects: |store| {
        integration::list_uses_directories_correctly(&store).await
    };
    delimiter_cuts_a_listing: |store| integration::list_with_delimiter(&store).await;
    offset_is_not_in_the_listing: |store| integration::list_with_offset_exclusivity(&store).await;
    objects_are_renamed_and_copied: |store| integration::rename_and_copy(&store).await;
    copy_spares_what_exists: |store| integration::copy_if_not_exists(&store).await;
    nothing_is_copied_from_nothing: |store| {
        integration::copy_rename_nonexistent_object(&store).await
    };
    reads_have_conditions: |store| integration::get_opts(&store).await;
    writes_have_conditions: |store| integration::put_opts(&store, true).await;
    attributes_are_kept: |store| integration::put_get_attributes(&store).await;
    pages_of_a_listing_are_whole: |store| integration::list_paginated(&store, &store).await;
    parts_make_one_object: |store| {
        integration::multipart(&store, &store).await;
        integration::multipart_with_opts(&store, &store).await
    };
    parts_come_in_any_order: |store| {
        integration::multipart_put_part_out_of_order(&store, &store).await;
        integration::multipart_out_of_order(&store).await
    };
    last_of_two_uploads_wins: |store| integration::multipart_race_condition(&store, true).await;
    what_does_not_exist_is_not_found: |store| {
        let error = integration::get_nonexistent_object(&store, None).await.unwrap_err();
        assert!(matches!(error, object_store::Error::NotFound { .. }), "{error}");
    };
}

#[tokio::test(flavor = "multi_thread")]
async fn store_of_a_subtree_behaves_as_one_of_the_whole() {
    let cluster = Cluster::start(3).await;
    let client = cluster.client().await;
    let prefix = "/jobs/one".parse().unwrap();
    let store = StoreBuilder::of_client(client.clone()).with_prefix(prefix).build();
    integration::put_get_delete_list(&store).await;
    integration::list_with_delimiter(&store).await;
    integration::stream_get(&store).await;
    assert_eq!(client.list_all(&"/".parse().unwrap()).await.unwrap().len(), 1);
}
