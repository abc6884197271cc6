//! A gateway behind a proxy, and signed requests to it.

#![allow(dead_code, unreachable_pub, reason = "shared by several tests")]

#[path = "../../../client/tests/cluster/mod.rs"]
pub mod cluster;
#[path = "../../../client/tests/cluster/proxy.rs"]
pub mod proxy;

use std::time::Duration;

use cluster::{Cluster, path};
use proxy::Proxy;
use ring::{digest, hmac};
use sanderling_client::{Client, ClientConfig};
use sanderling_gateway::{GatewayOptions, GatewayServer, LOCAL_ACCESS_KEY, LOCAL_SECRET_KEY};
use sanderling_protocol::message::ObjectKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

/// More than a lease of a writer, on a slow machine.
pub const SOON: Duration = Duration::from_secs(60);

/// A header with a digest that no bytes of these tests have.
pub const WRONG_DIGEST: &str = "content-md5: AAAAAAAAAAAAAAAAAAAAAA==\r\n";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Sends one signed request and returns status and body.
pub async fn send(
    address: &str,
    method: &str,
    place: (&str, &str),
    extra: &str,
    body: &str,
) -> (u16, String) {
    let request = signed(address, method, place, extra, body);
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    (head[9..12].parse().unwrap(), body.to_owned())
}

/// Returns one signed request, after whose answer the connection ends.
pub fn signed(
    address: &str,
    method: &str,
    (key, query): (&str, &str),
    extra: &str,
    body: &str,
) -> String {
    let payload = "UNSIGNED-PAYLOAD";
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let date = amz_date(now.as_secs());
    let day = &date[..8];
    let headers = format!("host:{address}\nx-amz-content-sha256:{payload}\nx-amz-date:{date}\n");
    let names = "host;x-amz-content-sha256;x-amz-date";
    let canonical = format!("{method}\n{key}\n{query}\n{headers}\n{names}\n{payload}");
    let scope = format!("{day}/us-east-1/s3/aws4_request");
    let hashed = hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
    let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{hashed}");
    let mut secret = format!("AWS4{LOCAL_SECRET_KEY}").into_bytes();
    for word in [day, "us-east-1", "s3", "aws4_request", &text] {
        let signing = hmac::Key::new(hmac::HMAC_SHA256, &secret);
        secret = hmac::sign(&signing, word.as_bytes()).as_ref().to_vec();
    }
    let signature = hex(&secret);
    let target = if query.is_empty() { key.to_owned() } else { format!("{key}?{query}") };
    format!(
        "{method} {target} HTTP/1.1\r\nhost: {address}\r\nx-amz-date: {date}\r\n\
         x-amz-content-sha256: {payload}\r\nconnection: close\r\ncontent-length: {}\r\n{extra}\
         authorization: AWS4-HMAC-SHA256 Credential={LOCAL_ACCESS_KEY}/{scope}, \
         SignedHeaders={names}, Signature={signature}\r\n\r\n{body}",
        body.len()
    )
}

/// Returns a time as signatures have it.
fn amz_date(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since 0000-03-01, in eras of 400 years.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = year + era * 400 + carry;
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}{month:02}{date:02}T{hour:02}{minute:02}{second:02}Z")
}

/// Starts a cluster, a gateway behind a proxy, and a client that is not.
pub async fn start() -> (Cluster, Proxy, GatewayServer, Client) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cluster = Cluster::start(1).await;
    let client = cluster.client().await;
    let proxy = Proxy::start(client.namenode()).await;
    client.make_directory(&path("/bucket"), ObjectKind::Directory, false, true).await.unwrap();
    let gateway = gateway(&proxy.address).await;
    (cluster, proxy, gateway, client)
}

/// Starts a gateway of the namenode at an address.
pub async fn gateway(namenode: &str) -> GatewayServer {
    gateway_with(namenode, ClientConfig::default()).await
}

/// Starts a gateway whose client has this configuration.
pub async fn gateway_with(namenode: &str, client: ClientConfig) -> GatewayServer {
    let options = GatewayOptions {
        namenode: namenode.to_owned(),
        client,
        listen: "127.0.0.1:0".to_owned(),
        http_listen: None,
        ..GatewayOptions::default()
    };
    GatewayServer::start(options).await.unwrap()
}

/// Puts a key as soon as no directory has its name, and deletes it.
pub async fn put_soon(address: &str, key: &str) {
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

/// Waits until there is something at a path, or nothing any more.
pub async fn wait_until(client: &Client, name: &str, is_there: bool) {
    let deadline = Instant::now() + SOON;
    while client.exists(&path(name)).await.unwrap() != is_there {
        assert!(Instant::now() < deadline, "{name} does not come, or does not go");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns the text of the first element of that name.
pub fn element<'a>(body: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = body.split_once(&format!("<{name}>"))?;
    Some(rest.split_once(&format!("</{name}>"))?.0)
}
