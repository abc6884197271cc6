//! Deletions that name the object they are for: what another client puts under the key while the
//! gateway is at it stays.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod rig;

use std::time::Duration;

use rig::cluster::{MIB, path};
use rig::{WRONG_DIGEST, element, gateway, put_soon, send, start, wait_until};
use sanderling_client::{Client, ClientError, PutOptions};
use sanderling_protocol::message::{JobHints, RegisterJob};
use sanderling_protocol::{Millis, Refusal};
use tokio::time::timeout;

async fn put(client: &Client, value: &'static str) -> String {
    let mut options = PutOptions::replacing();
    options.attributes.set("etag", value);
    let stat = client.put(&path("/bucket/key"), value.into(), &options).await.unwrap();
    stat.object.to_string()
}

const KINDS: &[&str] = &["delete", "delete_object"];

async fn tag(address: &str) -> String {
    let head = send(address, "GET", ("/bucket", "list-type=2"), "", "").await;
    assert_eq!(head.0, 200, "{}", head.1);
    element(&head.1, "ETag").unwrap().replace("&quot;", "").replace('"', "")
}

#[tokio::test(flavor = "multi_thread")]
async fn object_put_while_its_predecessor_is_deleted_on_a_condition_stays() {
    let (_cluster, proxy, gateway, client) = start().await;
    let address = gateway.address().to_string();
    put(&client, "first").await;
    let condition = format!("if-match: \"{}\"\r\n", tag(&address).await);
    let delete = {
        let (address, condition) = (address.clone(), condition.clone());
        async move { send(&address, "DELETE", ("/bucket/key", ""), &condition, "").await }
    };
    let between = async { drop(put(&client, "second").await) };
    let (status, body) = proxy.hold_up(KINDS, delete, between).await;
    assert_eq!(status, 412, "{body}");
    assert_eq!(client.get(&path("/bucket/key")).await.unwrap(), "second");
    let condition = format!("if-match: \"{}\"\r\n", tag(&address).await);
    let (status, body) = send(&address, "DELETE", ("/bucket/key", ""), &condition, "").await;
    assert_eq!(status, 204, "{body}");
    assert!(!client.exists(&path("/bucket/key")).await.unwrap());
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn object_put_while_its_predecessor_is_deleted_among_many_stays() {
    let (_cluster, proxy, gateway, client) = start().await;
    let address = gateway.address().to_string();
    put(&client, "first").await;
    let tag = tag(&address).await;
    let body = format!("<Delete><Object><Key>key</Key><ETag>\"{tag}\"</ETag></Object></Delete>");
    let delete = {
        let address = address.clone();
        async move { send(&address, "POST", ("/bucket", "delete="), "", &body).await }
    };
    let between = async { drop(put(&client, "second").await) };
    let (status, body) = proxy.hold_up(KINDS, delete, between).await;
    assert_eq!(status, 200, "{body}");
    assert!(body.contains("<Code>PreconditionFailed</Code>"), "{body}");
    assert_eq!(client.get(&path("/bucket/key")).await.unwrap(), "second");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn directory_with_a_writer_at_another_endpoint_stays() {
    let (_cluster, _proxy, gateway, client) = start().await;
    let address = gateway.address().to_string();
    let old = path("/bucket/d/e/old");
    client.put(&old, "old".into(), &PutOptions::replacing()).await.unwrap();
    // It gets its name when it is closed: until then no listing has it.
    let new = path("/bucket/d/e/new");
    let mut writer = client.create(&new, &PutOptions::replacing()).await.unwrap();
    writer.write(b"new").await.unwrap();
    let (status, body) = send(&address, "DELETE", ("/bucket/d/e/old", ""), "", "").await;
    assert_eq!(status, 204, "{body}");
    assert!(!client.exists(&old).await.unwrap());
    let refused = client.delete(&path("/bucket/d/e"), false).await;
    let is_refused = matches!(refused, Err(ClientError::Refused(Refusal::NotEmpty { .. })));
    assert!(is_refused, "{refused:?}");
    writer.close().await.unwrap();
    assert_eq!(client.get(&new).await.unwrap(), "new");
    // The last key takes the directories with it.
    let (status, body) = send(&address, "DELETE", ("/bucket/d/e/new", ""), "", "").await;
    assert_eq!(status, 204, "{body}");
    assert!(!client.exists(&path("/bucket/d")).await.unwrap());
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn directory_goes_whose_last_key_is_deleted_during_a_put_that_fails() {
    let (cluster, proxy, behind, _client) = start().await;
    let address = behind.address().to_string();
    let beside = gateway(&cluster.namenode.address().to_string()).await;
    let other = beside.address().to_string();
    let (status, body) = send(&address, "PUT", ("/bucket/p/k", ""), "", "old").await;
    assert_eq!(status, 200, "{body}");
    let condition = format!("if-match: \"{}\"\r\n", tag(&address).await);
    // In one block, and named by its seal.
    let put = async move {
        send(&address, "PUT", ("/bucket/p/k", ""), &condition, &"x".repeat(1000)).await
    };
    // The object that is written keeps the directory.
    let between = async {
        let (status, body) = send(&other, "DELETE", ("/bucket/p/k", ""), "", "").await;
        assert_eq!(status, 204, "{body}");
    };
    let (status, body) = proxy.hold_up(&["seal"], put, between).await;
    assert_eq!(status, 412, "{body}");
    put_soon(&other, "/bucket/p").await;
    behind.stop().await;
    beside.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn root_of_a_job_stays_when_its_last_key_is_deleted_or_a_put_in_it_fails() {
    let (_cluster, _proxy, gateway, client) = start().await;
    let address = gateway.address().to_string();
    let (lease, hints) = (Millis(60_000), JobHints::default());
    let job = RegisterJob { path: path("/bucket/job"), lease, quota_bytes: None, hints };
    let _job = client.run_job(job).await.unwrap();
    let (status, body) = send(&address, "PUT", ("/bucket/job/d/k", ""), "", "key").await;
    assert_eq!(status, 200, "{body}");
    let (status, body) = send(&address, "DELETE", ("/bucket/job/d/k", ""), "", "").await;
    assert_eq!(status, 204, "{body}");
    wait_until(&client, "/bucket/job/d", false).await;
    assert!(client.stat(&path("/bucket/job")).await.unwrap().job.is_some());
    // Its directory is made with its first block, and its digest is compared at its end.
    let long = "x".repeat(MIB + 1);
    let (status, body) = send(&address, "PUT", ("/bucket/job/d/k", ""), WRONG_DIGEST, &long).await;
    assert_eq!((status, element(&body, "Code")), (400, Some("BadDigest")), "{body}");
    wait_until(&client, "/bucket/job/d", false).await;
    assert!(client.stat(&path("/bucket/job")).await.unwrap().job.is_some());
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_is_answered_before_a_directory_is_removed_that_takes_long() {
    let (_cluster, proxy, gateway, client) = start().await;
    let address = gateway.address().to_string();
    let (status, body) = send(&address, "PUT", ("/bucket/p/k", ""), "", "key").await;
    assert_eq!(status, 200, "{body}");
    let delete = async move { send(&address, "DELETE", ("/bucket/p/k", ""), "", "").await };
    proxy.hold(KINDS);
    let deletion = tokio::spawn(delete);
    proxy.swallowed().await;
    // After the key's deletion, the look at its directory is held up.
    proxy.hold(&["stat"]);
    proxy.open();
    proxy.swallowed().await;
    // A call of the gateway to the namenode may take 10 s.
    let answer = timeout(Duration::from_secs(6), deletion).await;
    let (status, body) = answer.expect("it waits for the directory").unwrap();
    assert_eq!(status, 204, "{body}");
    proxy.open();
    wait_until(&client, "/bucket/p", false).await;
    gateway.stop().await;
}
