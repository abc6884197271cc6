//! Puts and completions that end without their object: no directory stays that was made for them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod rig;

use std::time::Duration;

use rig::cluster::{MIB, path};
use rig::{SOON, element, gateway, gateway_with, put_soon, send, signed, start, wait_until};
use sanderling_client::{Client, ClientConfig, PutOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

/// How long a call to the namenode may take at a gateway whose calls end soon.
const CALL: Duration = Duration::from_secs(3);

/// Sends the first two of the three mebibytes of a put in a directory that is made for it. Returns
/// once it is made.
async fn begin_put(address: &str, key: &str, client: &Client) -> TcpStream {
    let body = "x".repeat(3 * MIB);
    let request = signed(address, "PUT", (key, ""), "", &body);
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket.write_all(&request.as_bytes()[..request.len() - MIB]).await.unwrap();
    wait_until(client, path(key).parent().unwrap().as_str(), true).await;
    socket
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
            puts.push(begin_put(&address, key, &client).await);
        }
        drop(puts);
        put_soon(&address, "/bucket/p").await;
    }
    gateway.stop().await;
}

/// The writer of another interface keeps the directory until the one below it is gone.
#[tokio::test(flavor = "multi_thread")]
async fn directory_that_another_writer_keeps_goes_with_the_end_of_that_writer() {
    let (_cluster, _proxy, gateway, client) = start().await;
    let address = gateway.address().to_string();
    let options = PutOptions { parents: true, ..PutOptions::replacing() };
    let writer = client.create(&path("/bucket/p/l"), &options).await.unwrap();
    let socket = begin_put(&address, "/bucket/p/q/k", &client).await;
    drop(socket);
    wait_until(&client, "/bucket/p/q", false).await;
    assert!(client.exists(&path("/bucket/p")).await.unwrap());
    writer.abort().await.unwrap();
    put_soon(&address, "/bucket/p").await;
    gateway.stop().await;
}

/// The object keeps its directory for 30 s after the start if its end is not repeated.
#[tokio::test(flavor = "multi_thread")]
async fn object_whose_end_a_namenode_that_is_away_did_not_get_leaves_no_directory() {
    let (mut cluster, proxy, _gateway, client) = start().await;
    let config = ClientConfig { call_deadline: CALL, ..ClientConfig::default() };
    let behind = gateway_with(&proxy.address, config).await;
    let socket = begin_put(&behind.address().to_string(), "/bucket/p/q/k", &client).await;
    proxy.hold(&["abort"]);
    drop(socket);
    proxy.swallowed().await;
    // The namenode is away for longer than the call that ends the object.
    tokio::time::sleep(3 * CALL).await;
    cluster.restart_namenode().await;
    proxy.open();
    let beside = gateway(&cluster.namenode.address().to_string()).await;
    put_soon(&beside.address().to_string(), "/bucket/p").await;
    behind.stop().await;
    beside.stop().await;
}

/// In a directory that is there: none is made.
#[tokio::test(flavor = "multi_thread")]
async fn object_of_a_client_that_leaves_while_it_is_created_is_given_up() {
    let (_cluster, proxy, gateway, _client) = start().await;
    let address = gateway.address().to_string();
    // More than one block, all of which has come when the object is created.
    let request = signed(&address, "PUT", ("/bucket/k", ""), "", &"x".repeat(MIB + 1));
    let mut socket = TcpStream::connect(&address).await.unwrap();
    proxy.hold(&["create"]);
    socket.write_all(request.as_bytes()).await.unwrap();
    proxy.swallowed().await;
    socket.shutdown().await.unwrap();
    let mut answer = Vec::new();
    let closed = timeout(SOON, socket.read_to_end(&mut answer)).await;
    assert!(closed.is_ok(), "the gateway does not notice that its client has left");
    proxy.hold(&["abort"]);
    proxy.open();
    proxy.swallowed().await;
    proxy.open();
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

/// With bytes, and without any.
#[tokio::test(flavor = "multi_thread")]
async fn completion_whose_key_is_deleted_before_it_leaves_no_directory() {
    let (cluster, proxy, behind, client) = start().await;
    let address = behind.address().to_string();
    let beside = gateway(&cluster.namenode.address().to_string()).await;
    let other = beside.address().to_string();
    let key = "/bucket/p/q/k";
    for part in ["part", ""] {
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
        let (status, body) = proxy.hold_up(&["concat"], completing, between).await;
        assert_eq!(status, 412, "{body}");
        put_soon(&address, "/bucket/p").await;
    }
    behind.stop().await;
    beside.stop().await;
}

/// With bytes, and without any.
#[tokio::test(flavor = "multi_thread")]
async fn late_completion_does_not_replace_what_was_put_after_the_first_one() {
    let (cluster, proxy, behind, client) = start().await;
    let address = behind.address().to_string();
    let beside = gateway(&cluster.namenode.address().to_string()).await;
    let other = beside.address().to_string();
    let key = "/bucket/k";
    for part in ["part", ""] {
        let (query, body) = upload(&address, key, part).await;
        let late = {
            let (address, query, body) = (address.clone(), query.clone(), body.clone());
            async move { send(&address, "POST", (key, &query), "", &body).await }
        };
        let between = async {
            let (status, answer) = send(&other, "POST", (key, &query), "", &body).await;
            assert_eq!(status, 200, "{answer}");
            assert_eq!(client.get(&path(key)).await.unwrap(), part);
            let (status, answer) = send(&other, "PUT", (key, ""), "", "new").await;
            assert_eq!(status, 200, "{answer}");
        };
        let (status, answer) = proxy.hold_up(&["concat", "create"], late, between).await;
        assert_eq!((status, element(&answer, "Code")), (404, Some("NoSuchUpload")), "{answer}");
        assert_eq!(client.get(&path(key)).await.unwrap(), "new");
    }
    behind.stop().await;
    beside.stop().await;
}
