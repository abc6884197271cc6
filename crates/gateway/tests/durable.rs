//! A bucket that is a durable directory, or has one: requests are answered as soon as the cluster
//! has the object, the store gets it then, and the directory stays durable.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod rig;

use std::fs;
use std::path::PathBuf;

use futures_util::future::join_all;
use rig::cluster::{Cluster, MIB, path};
use rig::{SOON, WRONG_DIGEST, element, gateway, send, wait_until};
use sanderling_client::{Client, ClientConfig};
use sanderling_datanode::{DatanodeOptions, DurableOptions};
use sanderling_gateway::GatewayServer;
use sanderling_protocol::Millis;
use sanderling_protocol::limits::DURABLE_BACKLOG_BYTES;
use sanderling_protocol::message::{JobHints, MakeDurable, ObjectKind, RegisterJob};
use tempfile::TempDir;
use tokio::time::Instant;

/// A cluster with a store in a directory, a durable directory, and a gateway.
struct DurableCluster {
    place: TempDir,
    _cluster: Cluster,
    client: Client,
    gateway: GatewayServer,
    /// The gateway's.
    address: String,
}

impl DurableCluster {
    async fn start(durable: &str) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let place = tempfile::tempdir().unwrap();
        let store = place.path().join("store");
        fs::create_dir(&store).unwrap();
        let url = format!("file://{}", store.display());
        let archive = DurableOptions { name: "archive".to_owned(), url, settings: Vec::new() };
        let mut cluster = Cluster::start(0).await;
        let (dram_bytes, durable_stores) = (64 << 20, vec![archive]);
        let options = DatanodeOptions { dram_bytes, durable: durable_stores, ..Default::default() };
        cluster.add_with(options).await;
        let config = ClientConfig { call_deadline: SOON, ..ClientConfig::default() };
        let client = cluster.client_with(config).await;
        make_durable(&client, durable).await;
        let gateway = gateway(&cluster.namenode.address().to_string()).await;
        let address = gateway.address().to_string();
        Self { place, _cluster: cluster, client, gateway, address }
    }

    fn store(&self) -> PathBuf {
        self.place.path().join("store")
    }

    /// Takes the store away, or gives it back.
    fn set_away(&self, is_away: bool) {
        let (store, away) = (self.store(), self.place.path().join("away"));
        let (from, to) = if is_away { (store, away) } else { (away, store) };
        fs::rename(from, to).unwrap();
    }

    /// Waits until the store has everything below a path.
    async fn wait_stored(&self, name: &str) {
        assert_eq!(self.client.wait_durable(&path(name), SOON).await.unwrap(), None);
    }

    async fn send(&self, method: &str, place: (&str, &str), extra: &str, body: &str) -> String {
        let (status, answer) = send(&self.address, method, place, extra, body).await;
        assert!(status == 200 || status == 204, "{method} {place:?}: {status} {answer}");
        answer
    }

    async fn put(&self, key: &str, bytes: &str) {
        self.send("PUT", (key, ""), "", bytes).await;
    }

    /// Begins an upload, and returns the query with its id.
    async fn begin_upload(&self, key: &str) -> String {
        let begun = self.send("POST", (key, "uploads="), "", "").await;
        format!("uploadId={}", element(&begun, "UploadId").unwrap())
    }

    /// Uploads the first part.
    async fn put_part(&self, key: &str, upload: &str, bytes: &str) {
        self.send("PUT", (key, &format!("partNumber=1&{upload}")), "", bytes).await;
    }

    /// Completes an upload of one part.
    async fn complete(&self, key: &str, upload: &str) {
        let listed = self.send("GET", (key, upload), "", "").await;
        let tag = element(&listed, "ETag").unwrap();
        let part = format!("<Part><PartNumber>1</PartNumber><ETag>{tag}</ETag></Part>");
        let parts = format!("<CompleteMultipartUpload>{part}</CompleteMultipartUpload>");
        let answer = self.send("POST", (key, upload), "", &parts).await;
        assert!(element(&answer, "ETag").is_some(), "{answer}");
    }

    async fn is_durable(&self, name: &str) -> bool {
        let found = self.client.durability(&path(name)).await.unwrap();
        found.is_some_and(|found| found.directory == path(name))
    }
}

/// Makes a directory durable once the datanode has reported its store.
async fn make_durable(client: &Client, name: &str) {
    let limit = Instant::now() + SOON;
    let request = MakeDurable {
        path: path(name),
        store: "archive".to_owned(),
        parents: true,
        backlog_bytes_max: DURABLE_BACKLOG_BYTES,
        adopt: false,
    };
    while let Err(error) = client.make_durable(request.clone()).await {
        assert!(Instant::now() < limit, "{error}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_below_a_durable_directory_do_not_wait_for_the_store() {
    let world = DurableCluster::start("/bucket").await;
    // The parts of an upload have to be in the store before they are joined.
    let upload = world.begin_upload("/bucket/whole").await;
    world.put_part("/bucket/whole", &upload, "whole").await;
    world.complete("/bucket/whole", &upload).await;
    world.wait_stored("/bucket").await;
    assert_eq!(fs::read_to_string(world.store().join("whole")).unwrap(), "whole");
    world.set_away(true);
    world.put("/bucket/put", "put").await;
    let from = "x-amz-copy-source: /bucket/put\r\n";
    let body = world.send("PUT", ("/bucket/copy", ""), from, "").await;
    assert!(body.contains("<CopyObjectResult>"), "{body}");
    for key in ["/bucket/put", "/bucket/copy"] {
        let state = world.client.durability(&path(key)).await.unwrap().unwrap();
        assert!(!state.is_durable, "{key}");
        assert_eq!(world.send("GET", (key, ""), "", "").await, "put", "{key}");
    }
    world.set_away(false);
    world.wait_stored("/bucket").await;
    for name in ["put", "copy"] {
        assert_eq!(fs::read_to_string(world.store().join(name)).unwrap(), "put", "{name}");
    }
    world.gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn part_is_uploaded_again_while_the_store_is_away() {
    let world = DurableCluster::start("/bucket").await;
    let key = "/bucket/key";
    let upload = world.begin_upload(key).await;
    world.wait_stored("/bucket").await;
    world.set_away(true);
    for bytes in ["first", "again"] {
        world.put_part(key, &upload, bytes).await;
    }
    world.set_away(false);
    world.wait_stored("/bucket").await;
    world.complete(key, &upload).await;
    assert_eq!(world.send("GET", (key, ""), "", "").await, "again");
    world.gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn durable_directory_stays_when_its_last_key_is_deleted_or_a_put_in_it_fails() {
    let world = DurableCluster::start("/bucket/p").await;
    world.put("/bucket/p/q/k", "key").await;
    world.wait_stored("/bucket/p").await;
    world.send("DELETE", ("/bucket/p/q/k", ""), "", "").await;
    wait_until(&world.client, "/bucket/p/q", false).await;
    assert!(world.is_durable("/bucket/p").await);
    // Its directory is made with its first block, and its digest is compared at its end.
    let (key, long) = (("/bucket/p/q/k", ""), "x".repeat(MIB + 1));
    let (status, body) = send(&world.address, "PUT", key, WRONG_DIGEST, &long).await;
    assert_eq!((status, element(&body, "Code")), (400, Some("BadDigest")), "{body}");
    wait_until(&world.client, "/bucket/p/q", false).await;
    assert!(world.is_durable("/bucket/p").await);
    world.put("/bucket/p/next", "next").await;
    world.wait_stored("/bucket/p").await;
    assert_eq!(fs::read_to_string(world.store().join("next")).unwrap(), "next");
    // What was deleted last is deleted in the store, too.
    assert!(!world.store().join("q/k").exists());
    world.gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bucket_with_a_durable_directory_or_a_job_in_it_stays() {
    let world = DurableCluster::start("/bucket/p").await;
    let delete = || send(&world.address, "DELETE", ("/bucket", ""), "", "");
    let empty = path("/bucket/empty/inner");
    world.client.make_directory(&empty, ObjectKind::Directory, true, true).await.unwrap();
    let (status, body) = delete().await;
    assert_eq!((status, element(&body, "Code")), (409, Some("BucketNotEmpty")), "{body}");
    assert!(world.is_durable("/bucket/p").await);
    assert!(!world.client.exists(&path("/bucket/empty")).await.unwrap());
    world.client.delete(&path("/bucket/p"), true).await.unwrap();
    let (lease, hints) = (Millis(60_000), JobHints::default());
    let job = RegisterJob { path: path("/bucket/job"), lease, quota_bytes: None, hints };
    let job = world.client.register_job(job).await.unwrap().job;
    let (status, body) = delete().await;
    assert_eq!((status, element(&body, "Code")), (409, Some("BucketNotEmpty")), "{body}");
    assert!(world.client.exists(&path("/bucket/job")).await.unwrap());
    world.client.end_job(job).await.unwrap();
    assert_eq!(delete().await.0, 204);
    assert!(!world.client.exists(&path("/bucket")).await.unwrap());
    world.gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn key_that_the_store_does_not_take_is_an_invalid_argument() {
    let world = DurableCluster::start("/bucket").await;
    for key in ["/bucket/a%01", "/bucket/.sanderling"] {
        let (status, body) = send(&world.address, "PUT", (key, ""), "", "bytes").await;
        let expected = (400, Some("InvalidArgument"));
        assert_eq!((status, element(&body, "Code")), expected, "{key}: {body}");
    }
    world.gateway.stop().await;
}

/// More entries than one rename in a durable directory takes (`RENAMED_MAX`): the uploads cannot be
/// moved aside.
#[tokio::test(flavor = "multi_thread")]
async fn durable_bucket_with_very_many_uploads_is_deleted() {
    let world = DurableCluster::start("/bucket").await;
    let upload = world.begin_upload("/bucket/key").await;
    world.put_part("/bucket/key", &upload, "part").await;
    let numbers: Vec<u64> = (0..4100).collect();
    for numbers in numbers.chunks(64) {
        let client = &world.client;
        let made = numbers.iter().map(|number| async move {
            let directory = path(&format!("/bucket/%!u/{number:032x}"));
            client.make_directory(&directory, ObjectKind::Directory, false, true).await.unwrap();
        });
        join_all(made.collect::<Vec<_>>()).await;
    }
    world.wait_stored("/bucket").await;
    world.send("DELETE", ("/bucket", ""), "", "").await;
    assert!(!world.client.exists(&path("/bucket")).await.unwrap());
    world.gateway.stop().await;
}
