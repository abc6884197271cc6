//! Deletions of buckets: one that is refused leaves the bucket with all that it keeps.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod rig;

use std::time::Duration;

use rig::cluster::path;
use rig::{SOON, element, gateway, gateway_with, send, start};
use sanderling_client::{Client, ClientConfig, PutOptions};
use sanderling_protocol::message::{JobHints, ObjectKind, RegisterJob};
use sanderling_protocol::{Millis, Path};
use tokio::time::Instant;

const RULES: &str = "<CORSConfiguration><CORSRule><AllowedOrigin>*</AllowedOrigin>\
                     <AllowedMethod>GET</AllowedMethod></CORSRule></CORSConfiguration>";

/// Gives the bucket rules and an upload with one part. Returns the upload's id.
async fn fill(address: &str) -> String {
    let (status, body) = send(address, "PUT", ("/bucket", "cors="), "", RULES).await;
    assert_eq!(status, 200, "{body}");
    let id = begin(address, "/bucket/upload").await;
    let query = format!("partNumber=1&uploadId={id}");
    let (status, body) = send(address, "PUT", ("/bucket/upload", &query), "", "part").await;
    assert_eq!(status, 200, "{body}");
    id
}

async fn begin(address: &str, key: &str) -> String {
    let (status, body) = send(address, "POST", (key, "uploads="), "", "").await;
    assert_eq!(status, 200, "{body}");
    element(&body, "UploadId").unwrap().to_owned()
}

/// Makes sure that the bucket has its rules, and that its upload can be completed.
async fn check_whole(address: &str, id: &str, client: &Client) {
    let (status, body) = send(address, "GET", ("/bucket", "cors="), "", "").await;
    assert_eq!(status, 200, "{body}");
    let part = "<Part><PartNumber>1</PartNumber></Part>";
    let body = format!("<CompleteMultipartUpload>{part}</CompleteMultipartUpload>");
    let query = format!("uploadId={id}");
    let (status, body) = send(address, "POST", ("/bucket/upload", &query), "", &body).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(client.get(&path("/bucket/upload")).await.unwrap(), "part");
    let names = names(client, &Path::root()).await;
    assert_eq!(names, ["bucket"]);
}

async fn names(client: &Client, directory: &Path) -> Vec<String> {
    client.list_all(directory).await.unwrap().into_iter().map(|entry| entry.name).collect()
}

async fn delete_bucket(address: &str) -> (u16, String) {
    send(address, "DELETE", ("/bucket", ""), "", "").await
}

fn check_refused((status, body): &(u16, String)) {
    assert_eq!(*status, 409, "{body}");
    assert_eq!(element(body, "Code"), Some("BucketNotEmpty"));
}

#[tokio::test(flavor = "multi_thread")]
async fn bucket_in_which_a_client_writes_stays_with_its_uploads_and_rules() {
    let (_cluster, _proxy, gateway, client) = start().await;
    let address = gateway.address().to_string();
    for key in ["/bucket/new", "/bucket/d/new"] {
        let id = fill(&address).await;
        // It gets its name when it is closed: until then no listing has it.
        let options = PutOptions { parents: true, ..PutOptions::replacing() };
        let mut writer = client.create(&path(key), &options).await.unwrap();
        writer.write(b"new").await.unwrap();
        check_refused(&delete_bucket(&address).await);
        check_whole(&address, &id, &client).await;
        writer.close().await.unwrap();
        assert_eq!(client.get(&path(key)).await.unwrap(), "new");
        for key in [key, "/bucket/upload"] {
            send(&address, "DELETE", (key, ""), "", "").await;
        }
    }
    fill(&address).await;
    client.make_directory(&path("/bucket/d/e"), ObjectKind::Directory, true, true).await.unwrap();
    let (status, body) = delete_bucket(&address).await;
    assert_eq!(status, 204, "{body}");
    assert!(names(&client, &Path::root()).await.is_empty());
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn upload_and_key_that_come_while_the_bucket_is_deleted_stay_in_it() {
    let (cluster, proxy, behind, client) = start().await;
    let address = behind.address().to_string();
    let beside = gateway(&cluster.namenode.address().to_string()).await;
    let other = beside.address().to_string();
    let id = fill(&address).await;
    let deletion = {
        let address = address.clone();
        async move { delete_bucket(&address).await }
    };
    let mut newer = String::new();
    let between = async {
        newer = begin(&other, "/bucket/other").await;
        let (status, body) = send(&other, "PUT", ("/bucket/key", ""), "", "new").await;
        assert_eq!(status, 200, "{body}");
    };
    check_refused(&proxy.hold_up(&["delete"], deletion, between).await);
    assert_eq!(client.get(&path("/bucket/key")).await.unwrap(), "new");
    let (status, body) = send(&other, "GET", ("/bucket", "uploads="), "", "").await;
    assert!(status == 200 && body.contains(&newer) && body.contains(&id), "{body}");
    check_whole(&address, &id, &client).await;
    behind.stop().await;
    beside.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bucket_that_is_a_job_is_deleted_with_its_uploads_and_rules() {
    let (_cluster, _proxy, gateway, client) = start().await;
    let address = gateway.address().to_string();
    client.delete(&path("/bucket"), true).await.unwrap();
    let (lease, hints) = (Millis(60_000), JobHints::default());
    let job = RegisterJob { path: path("/bucket"), lease, quota_bytes: None, hints };
    let _job = client.run_job(job).await.unwrap();
    fill(&address).await;
    let (status, body) = delete_bucket(&address).await;
    assert_eq!(status, 204, "{body}");
    assert!(names(&client, &Path::root()).await.is_empty());
    gateway.stop().await;
}

/// The last call to the namenode of a gateway that is killed while it deletes a bucket.
#[derive(Debug, Clone, Copy)]
enum LastCall {
    /// It was done, and its reply did not arrive.
    Done(&'static str),
    /// It was not sent.
    Unsent(&'static [&'static str]),
}

#[tokio::test(flavor = "multi_thread")]
async fn bucket_of_a_deletion_that_was_interrupted_can_be_used_and_deleted() {
    for last in [
        LastCall::Done("make_directory"),
        LastCall::Done("set_ttl"),
        LastCall::Done("rename"),
        LastCall::Unsent(&["delete"]),
        LastCall::Done("delete"),
    ] {
        let (cluster, proxy, killed, client) = start().await;
        let address = killed.address().to_string();
        fill(&address).await;
        match last {
            LastCall::Done(kind) => proxy.swallow(kind),
            LastCall::Unsent(kinds) => proxy.hold(kinds),
        }
        let deletion = tokio::spawn(async move { delete_bucket(&address).await });
        // No further call passes: to the namenode the gateway has died.
        proxy.swallowed().await;
        let beside = gateway(&cluster.namenode.address().to_string()).await;
        let address = beside.address().to_string();
        let is_deleted = matches!(last, LastCall::Done("delete"));
        let (status, body) = send(&address, "HEAD", ("/bucket", ""), "", "").await;
        assert_eq!(status, if is_deleted { 404 } else { 200 }, "{last:?}: {body}");
        if is_deleted {
            let (status, body) = send(&address, "PUT", ("/bucket", ""), "", "").await;
            assert_eq!(status, 200, "{last:?}: {body}");
        }
        let (status, body) = send(&address, "PUT", ("/bucket/key", ""), "", "new").await;
        assert_eq!(status, 200, "{last:?}: {body}");
        check_refused(&delete_bucket(&address).await);
        let id = fill(&address).await;
        let (status, body) = send(&address, "GET", ("/bucket", "uploads="), "", "").await;
        assert!(status == 200 && body.contains(&id), "{last:?}: {body}");
        let (status, body) = send(&address, "DELETE", ("/bucket/key", ""), "", "").await;
        assert_eq!(status, 204, "{last:?}: {body}");
        let (status, body) = delete_bucket(&address).await;
        assert_eq!(status, 204, "{last:?}: {body}");
        let (status, body) = send(&address, "GET", ("/", ""), "", "").await;
        assert!(status == 200 && !body.contains("<Bucket>"), "{last:?}: {body}");
        let left = names(&client, &Path::root()).await;
        assert!(left.iter().all(|name| name.starts_with("%!b")), "{last:?}: {left:?}");
        beside.stop().await;
        deletion.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bucket_that_stays_gets_its_uploads_and_rules_back_after_an_outage() {
    let (cluster, proxy, _gateway, client) = start().await;
    let call_deadline = Duration::from_secs(3);
    let config = ClientConfig { call_deadline, ..ClientConfig::default() };
    let behind = gateway_with(&proxy.address, config).await;
    let address = behind.address().to_string();
    let beside = gateway(&cluster.namenode.address().to_string()).await;
    let other = beside.address().to_string();
    let id = fill(&address).await;
    proxy.hold(&["delete"]);
    let deletion = tokio::spawn(async move { delete_bucket(&address).await });
    proxy.swallowed().await;
    let (status, body) = send(&other, "PUT", ("/bucket/key", ""), "", "new").await;
    assert_eq!(status, 200, "{body}");
    let (status, body) = deletion.await.unwrap();
    assert_eq!(status, 503, "{body}");
    let (status, body) = send(&other, "GET", ("/bucket", "cors="), "", "").await;
    assert_eq!(status, 404, "they could not be moved back: {body}");
    proxy.open();
    let deadline = Instant::now() + SOON;
    // The last step removes the place where they were.
    while names(&client, &Path::root()).await != ["bucket"] {
        assert!(Instant::now() < deadline, "they are not moved back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    check_whole(&other, &id, &client).await;
    assert_eq!(client.get(&path("/bucket/key")).await.unwrap(), "new");
    behind.stop().await;
    beside.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn put_whose_bucket_is_deleted_under_it_does_not_make_it_again() {
    let (_cluster, proxy, gateway, client) = start().await;
    let bucket = path("/bucket");
    for key in ["/bucket/k", "/bucket/p/k"] {
        client.make_directory(&bucket, ObjectKind::Directory, true, true).await.unwrap();
        let address = gateway.address().to_string();
        // In one block, and named by its seal.
        let put = async move { send(&address, "PUT", (key, ""), "", &"x".repeat(1000)).await };
        let between = async {
            client.delete(&bucket, true).await.unwrap();
        };
        let (status, body) = proxy.hold_up(&["seal"], put, between).await;
        assert_eq!((status, element(&body, "Code")), (404, Some("NoSuchBucket")), "{body}");
        assert!(!client.exists(&bucket).await.unwrap(), "{key}");
    }
    gateway.stop().await;
}
