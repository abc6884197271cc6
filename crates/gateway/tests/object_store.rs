//! The `object_store` crate's S3 client, with the functions by which that crate tests stores, over
//! the gateway of a whole cluster.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../client/tests/cluster/mod.rs"]
mod cluster;

use cluster::Cluster;
use object_store::aws::{AmazonS3, AmazonS3Builder, S3ConditionalPut, S3CopyIfNotExists};
use object_store::integration;
use sanderling_gateway::{GatewayOptions, GatewayServer, LOCAL_ACCESS_KEY, LOCAL_SECRET_KEY};
use sanderling_protocol::message::ObjectKind;

/// Starts a cluster with a gateway and a bucket, and returns a client of it.
async fn store() -> (Cluster, GatewayServer, AmazonS3) {
    // The HTTP client brings no provider of its own; another test may have been first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cluster = Cluster::start(2).await;
    let client = cluster.client().await;
    let bucket = "/bucket".parse().unwrap();
    client.make_directory(&bucket, ObjectKind::Directory, false, true).await.unwrap();
    let gateway = GatewayServer::start(GatewayOptions {
        namenode: client.namenode().to_owned(),
        listen: "127.0.0.1:0".to_owned(),
        http_listen: None,
        ..GatewayOptions::default()
    });
    let gateway = gateway.await.unwrap();
    let store = AmazonS3Builder::new()
        .with_endpoint(format!("http://{}", gateway.address()))
        .with_allow_http(true)
        .with_region("us-east-1")
        .with_access_key_id(LOCAL_ACCESS_KEY)
        .with_secret_access_key(LOCAL_SECRET_KEY)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_copy_if_not_exists(S3CopyIfNotExists::Multipart)
        .with_bucket_name("bucket")
        .build()
        .unwrap();
    (cluster, gateway, store)
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_client_finds_what_it_expects_of_a_store() {
    let (_cluster, gateway, store) = store().await;
    integration::put_get_delete_list(&store).await;
    integration::get_opts(&store).await;
    integration::list_uses_directories_correctly(&store).await;
    integration::list_with_delimiter(&store).await;
    integration::list_with_offset_exclusivity(&store).await;
    integration::rename_and_copy(&store).await;
    integration::copy_rename_nonexistent_object(&store).await;
    integration::stream_get(&store).await;
    integration::put_get_attributes(&store).await;
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_client_finds_conditions_and_uploads_in_parts() {
    let (_cluster, gateway, store) = store().await;
    integration::put_opts(&store, true).await;
    integration::copy_if_not_exists(&store).await;
    integration::multipart(&store, &store).await;
    integration::multipart_race_condition(&store, true).await;
    integration::multipart_out_of_order(&store).await;
    integration::list_paginated(&store, &store).await;
    gateway.stop().await;
}
