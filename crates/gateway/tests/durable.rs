//! A bucket that is a durable directory: requests are answered as soon as the cluster has the
//! object, and the store gets it then.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod rig;

use std::fs;
use std::time::{Duration, Instant};

use rig::cluster::{Cluster, path};
use rig::{element, gateway, send};
use sanderling_client::{Client, ClientConfig};
use sanderling_datanode::{DatanodeOptions, DurableOptions};
use sanderling_protocol::limits::DURABLE_BACKLOG_BYTES;
use sanderling_protocol::message::MakeDurable;

const SOON: Duration = Duration::from_secs(60);

/// Makes `/bucket` durable once the datanode has reported its store.
async fn make_durable(client: &Client) {
    let limit = Instant::now() + SOON;
    let request = MakeDurable {
        path: path("/bucket"),
        store: "archive".to_owned(),
        parents: false,
        backlog_bytes_max: DURABLE_BACKLOG_BYTES,
        adopt: false,
    };
    while let Err(error) = client.make_durable(request.clone()).await {
        assert!(Instant::now() < limit, "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Uploads an object in one part.
async fn upload(address: &str, key: &str, bytes: &str) {
    let (status, begun) = send(address, "POST", (key, "uploads="), "", "").await;
    assert_eq!(status, 200, "{begun}");
    let upload = format!("uploadId={}", element(&begun, "UploadId").unwrap());
    let part = format!("partNumber=1&{upload}");
    let (status, body) = send(address, "PUT", (key, &part), "", bytes).await;
    assert_eq!(status, 200, "{body}");
    let (_, listed) = send(address, "GET", (key, &upload), "", "").await;
    let tag = element(&listed, "ETag").unwrap();
    let part = format!("<Part><PartNumber>1</PartNumber><ETag>{tag}</ETag></Part>");
    let parts = format!("<CompleteMultipartUpload>{part}</CompleteMultipartUpload>");
    let (status, body) = send(address, "POST", (key, &upload), "", &parts).await;
    assert!(status == 200 && element(&body, "ETag").is_some(), "{status} {body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_below_a_durable_directory_do_not_wait_for_the_store() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let place = tempfile::tempdir().unwrap();
    let (store, away) = (place.path().join("store"), place.path().join("away"));
    fs::create_dir(&store).unwrap();
    let url = format!("file://{}", store.display());
    let archive = DurableOptions { name: "archive".to_owned(), url, settings: Vec::new() };
    let mut cluster = Cluster::start(0).await;
    let durable = vec![archive];
    let options = DatanodeOptions { dram_bytes: 64 << 20, durable, ..DatanodeOptions::default() };
    cluster.add_with(options).await;
    let config = ClientConfig { call_deadline: SOON, ..ClientConfig::default() };
    let client = cluster.client_with(config).await;
    make_durable(&client).await;
    let gateway = gateway(&cluster.namenode.address().to_string()).await;
    let address = gateway.address().to_string();
    // The parts of an upload have to be in the store before they are joined.
    upload(&address, "/bucket/whole", "whole").await;
    assert_eq!(client.wait_durable(&path("/bucket"), SOON).await.unwrap(), None);
    assert_eq!(fs::read_to_string(store.join("whole")).unwrap(), "whole");
    fs::rename(&store, &away).unwrap();
    let (status, body) = send(&address, "PUT", ("/bucket/put", ""), "", "put").await;
    assert_eq!(status, 200, "{body}");
    let from = "x-amz-copy-source: /bucket/put\r\n";
    let (status, body) = send(&address, "PUT", ("/bucket/copy", ""), from, "").await;
    assert!(status == 200 && body.contains("<CopyObjectResult>"), "{status} {body}");
    for key in ["/bucket/put", "/bucket/copy"] {
        assert!(!client.durability(&path(key)).await.unwrap().unwrap().is_durable, "{key}");
        let (status, body) = send(&address, "GET", (key, ""), "", "").await;
        assert_eq!((status, body.as_str()), (200, "put"), "{key}");
    }
    fs::rename(&away, &store).unwrap();
    assert_eq!(client.wait_durable(&path("/bucket"), SOON).await.unwrap(), None);
    for name in ["put", "copy"] {
        assert_eq!(fs::read_to_string(store.join(name)).unwrap(), "put", "{name}");
    }
    gateway.stop().await;
}
