//! Parts that are uploaded again while their upload is completed, or that arrive after their
//! repetition: the object has the bytes whose tags the completion names.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod rig;

use std::time::Duration;

use rig::cluster::path;
use rig::{SOON, element, gateway, send, start};
use tokio::time::Instant;

/// What a part is stored by, and what a completion makes an object by.
const SEAL: &[&str] = &["seal"];
const CONCAT: &[&str] = &["concat"];
/// What a completed upload is forgotten by.
const DELETE: &[&str] = &["delete"];

async fn begin(address: &str) -> String {
    let (status, body) = send(address, "POST", ("/bucket/key", "uploads="), "", "").await;
    assert_eq!(status, 200, "{body}");
    element(&body, "UploadId").unwrap().to_owned()
}

/// Uploads a part and returns its tag.
async fn upload(address: &str, id: &str, number: u32, body: &str) -> String {
    let query = format!("partNumber={number}&uploadId={id}");
    let (status, answer) = send(address, "PUT", ("/bucket/key", &query), "", body).await;
    assert_eq!(status, 200, "{answer}");
    tag_of(address, id, number).await.unwrap()
}

/// Returns the tag of a part, as it is listed.
async fn tag_of(address: &str, id: &str, number: u32) -> Option<String> {
    let query = format!("uploadId={id}");
    let (status, body) = send(address, "GET", ("/bucket/key", &query), "", "").await;
    assert_eq!(status, 200, "{body}");
    let mut parts = body.split("<Part>").skip(1);
    let part = parts.find(|it| element(it, "PartNumber") == Some(&number.to_string()))?;
    Some(element(part, "ETag")?.replace("&quot;", "").replace('"', ""))
}

async fn complete(address: &str, id: &str, tags: &[&str]) -> (u16, String) {
    complete_if(address, id, tags, "").await
}

/// Completes under the condition of a header.
async fn complete_if(address: &str, id: &str, tags: &[&str], header: &str) -> (u16, String) {
    let part = |(at, tag): (usize, &&str)| {
        format!("<Part><PartNumber>{}</PartNumber><ETag>\"{tag}\"</ETag></Part>", at + 1)
    };
    let parts: String = tags.iter().enumerate().map(part).collect();
    let body = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
    let query = format!("uploadId={id}");
    send(address, "POST", ("/bucket/key", &query), header, &body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn part_uploaded_again_between_check_and_concatenation_is_not_in_the_object() {
    let (cluster, proxy, behind, client) = start().await;
    let address = behind.address().to_string();
    let beside = gateway(&cluster.namenode.address().to_string()).await;
    let other = beside.address().to_string();
    let id = begin(&address).await;
    let whole = "x".repeat(5 << 20);
    let first = upload(&address, &id, 1, &whole).await;
    let old = upload(&address, &id, 2, "old").await;
    let completing = {
        let (address, id, first, old) = (address.clone(), id.clone(), first.clone(), old.clone());
        async move { complete(&address, &id, &[&first, &old]).await }
    };
    let mut new = String::new();
    let between = async { new = upload(&other, &id, 2, "new").await };
    let (status, body) = proxy.hold_up(CONCAT, completing, between).await;
    assert_ne!(old, new);
    // The part that was checked is not there any more.
    assert_eq!(status, 400, "{body}");
    assert_eq!(element(&body, "Code"), Some("InvalidPart"));
    assert!(!client.exists(&path("/bucket/key")).await.unwrap());
    // The upload is whole: what is there can be completed.
    let (status, body) = complete(&address, &id, &[&first, &new]).await;
    assert_eq!(status, 200, "{body}");
    let bytes = client.get(&path("/bucket/key")).await.unwrap();
    assert!(bytes.len() == whole.len() + 3 && bytes.ends_with(b"new"));
    behind.stop().await;
    beside.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_part_does_not_replace_its_repetition() {
    let (cluster, proxy, behind, client) = start().await;
    let address = behind.address().to_string();
    let beside = gateway(&cluster.namenode.address().to_string()).await;
    let other = beside.address().to_string();
    let id = begin(&address).await;
    // Its client has given it up and sends the part again, while it is still on its way.
    let late = {
        let (address, id) = (address.clone(), id.clone());
        let query = format!("partNumber=1&uploadId={id}");
        async move { send(&address, "PUT", ("/bucket/key", &query), "", "late").await }
    };
    let mut again = String::new();
    let between = async { again = upload(&other, &id, 1, "again").await };
    let (status, body) = proxy.hold_up(SEAL, late, between).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(tag_of(&address, &id, 1).await.as_deref(), Some(again.as_str()));
    let (status, body) = complete(&address, &id, &[&again]).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(client.get(&path("/bucket/key")).await.unwrap(), "again");
    behind.stop().await;
    beside.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn part_uploaded_again_frees_the_bytes_of_its_predecessor() {
    let (_cluster, _proxy, gateway, client) = start().await;
    let address = gateway.address().to_string();
    let id = begin(&address).await;
    for round in 0..5 {
        upload(&address, &id, 3, &format!("round {round}")).await;
    }
    let upload = path(&format!("/bucket/%!u/{id}"));
    let deadline = Instant::now() + SOON;
    loop {
        let all = client.list_all(&upload).await.unwrap();
        let parts: Vec<&str> =
            all.iter().map(|it| it.name.as_str()).filter(|it| it.starts_with("00003")).collect();
        if parts.len() == 1 {
            break;
        }
        assert!(Instant::now() < deadline, "{parts:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn completion_repeated_while_the_upload_is_still_there_succeeds() {
    let (cluster, proxy, behind, client) = start().await;
    let address = behind.address().to_string();
    let beside = gateway(&cluster.namenode.address().to_string()).await;
    let other = beside.address().to_string();
    let id = begin(&address).await;
    let tag = upload(&address, &id, 1, "whole").await;
    let first = {
        let (address, id, tag) = (address.clone(), id.clone(), tag.clone());
        async move { complete_if(&address, &id, &[&tag], "if-none-match: *\r\n").await }
    };
    let mut repeated = (0, String::new());
    // The object is made; the first answer is on its way, and the upload not yet forgotten.
    let between = async {
        repeated = complete_if(&other, &id, &[&tag], "if-none-match: *\r\n").await;
    };
    let (status, body) = proxy.hold_up(DELETE, first, between).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(repeated.0, 200, "{}", repeated.1);
    assert_eq!(element(&repeated.1, "ETag"), element(&body, "ETag"));
    assert_eq!(client.get(&path("/bucket/key")).await.unwrap(), "whole");
    // Another upload's completion is refused by the condition.
    let id = begin(&address).await;
    let tag = upload(&address, &id, 1, "other").await;
    let (status, body) = complete_if(&address, &id, &[&tag], "if-none-match: *\r\n").await;
    assert_eq!(status, 412, "{body}");
    behind.stop().await;
    beside.stop().await;
}
