//! Puts and completions that end without their object: no directory stays that was made for them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod rig;

use std::time::Duration;

use rig::cluster::{MIB, path};
use rig::{element, gateway, send, signed, start};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

/// More than a lease of a writer, on a slow machine.
const SOON: Duration = Duration::from_secs(60);

/// Puts a key as soon as no directory has its name, and deletes it.
async fn put_soon(address: &str, key: &str) {
    let deadline = Instant::now() + SOON;
    loop {
        let (status, body) = send(address, "PUT", (key, ""), "", "key").await;
        if status == 200 {
            break;
        }
        assert_eq!(status, 409, "{body}");
        assert!(Instant::now() < deadline, "a directory without a key has the name {key}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (status, body) = send(address, "DELETE", (key, ""), "", "").await;
    assert_eq!(status, 204, "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_leaves_while_the_directories_are_made_leaves_none_without_a_key() {
    let (_cluster, proxy, gateway, client) = start().await;
    let address = gateway.address().to_string();
    let body = "x".repeat(100_000);
    let request = signed(&address, "PUT", ("/bucket/p/q/k", ""), "", &body);
    let mut socket = TcpStream::connect(&address).await.unwrap();
    proxy.hold(&["stat"]);
    socket.write_all(request.as_bytes()).await.unwrap();
    // The directory is missing: the gateway looks whether the bucket is there, and makes it.
    proxy.swallowed().await;
    proxy.hold(&["create"]);
    proxy.open();
    proxy.swallowed().await;
    socket.shutdown().await.unwrap();
    let mut answer = Vec::new();
    // The gateway closes the connection, too: nothing waits for the put any more.
    let closed = timeout(SOON, socket.read_to_end(&mut answer)).await;
    assert!(closed.is_ok(), "the gateway does not notice that its client has left");
    assert!(answer.is_empty(), "{}", String::from_utf8_lossy(&answer));
    proxy.open();
    let deadline = Instant::now() + SOON;
    while !client.exists(&path("/bucket/p")).await.unwrap() {
        assert!(Instant::now() < deadline, "the directory is not made");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    loop {
        let is_whole = client.get(&path("/bucket/p/q/k")).await.is_ok_and(|read| read == body);
        if is_whole || !client.exists(&path("/bucket/p")).await.unwrap() {
            break;
        }
        assert!(Instant::now() < deadline, "a directory without a key stays");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_leaves_while_its_bytes_come_leaves_no_directory() {
    let (_cluster, _proxy, gateway, client) = start().await;
    let address = gateway.address().to_string();
    // One put in a new directory; then another one, too, in the directory above.
    for keys in [&["/bucket/p/q/k"][..], &["/bucket/p/q/k", "/bucket/p/l"][..]] {
        let mut puts = Vec::new();
        for key in keys {
            let body = "x".repeat(3 * MIB);
            let request = signed(&address, "PUT", (*key, ""), "", &body);
            let mut socket = TcpStream::connect(&address).await.unwrap();
            socket.write_all(&request.as_bytes()[..request.len() - MIB]).await.unwrap();
            let deadline = Instant::now() + SOON;
            while !client.exists(&path(key).parent().unwrap()).await.unwrap() {
                assert!(Instant::now() < deadline, "no directory is made for {key}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            puts.push(socket);
        }
        drop(puts);
        put_soon(&address, "/bucket/p").await;
    }
    gateway.stop().await;
}

/// Begins an upload of a key with one part, and returns the query and the body of its completion.
async fn upload(address: &str, key: &str, part: &str) -> (String, String) {
    let (status, body) = send(address, "POST", (key, "uploads="), "", "").await;
    assert_eq!(status, 200, "{body}");
    let id = element(&body, "UploadId").unwrap().to_owned();
    let query = format!("partNumber=1&uploadId={id}");
    let (status, answer) = send(address, "PUT", (key, &query), "", part).await;
    assert_eq!(status, 200, "{answer}");
    let body = "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber></Part>\
                </CompleteMultipartUpload>";
    (format!("uploadId={id}"), body.to_owned())
}

/// With bytes, which are joined, and without any, where an empty object is put.
#[tokio::test(flavor = "multi_thread")]
async fn completion_whose_key_is_deleted_before_it_leaves_no_directory() {
    let (cluster, proxy, behind, client) = start().await;
    let address = behind.address().to_string();
    let beside = gateway(&cluster.namenode.address().to_string()).await;
    let other = beside.address().to_string();
    let key = "/bucket/p/q/k";
    let steps: [(&str, &'static [&'static str]); 2] = [("part", &["concat"]), ("", &["create"])];
    for (part, step) in steps {
        let (status, body) = send(&address, "PUT", (key, ""), "", "old").await;
        assert_eq!(status, 200, "{body}");
        let listing = ("/bucket", "list-type=2&prefix=p%2F");
        let (status, body) = send(&address, "GET", listing, "", "").await;
        assert_eq!(status, 200, "{body}");
        let tag = element(&body, "ETag").unwrap().replace("&quot;", "").replace('"', "");
        let (query, body) = upload(&address, key, part).await;
        let completing = {
            let (address, condition) = (address.clone(), format!("if-match: \"{tag}\"\r\n"));
            async move { send(&address, "POST", (key, &query), &condition, &body).await }
        };
        // Its directories go with the key, and the completion makes them again.
        let between = async {
            let (status, body) = send(&other, "DELETE", (key, ""), "", "").await;
            assert_eq!(status, 204, "{body}");
            assert!(!client.exists(&path("/bucket/p")).await.unwrap());
        };
        let (status, body) = proxy.hold_up(step, completing, between).await;
        assert_eq!(status, 412, "{body}");
        put_soon(&address, "/bucket/p").await;
    }
    behind.stop().await;
    beside.stop().await;
}
