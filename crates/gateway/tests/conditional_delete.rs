//! Deletions that name the object they are for: what another client puts under the key while the
//! gateway is at it stays.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../client/tests/cluster/mod.rs"]
mod cluster;
#[path = "../../client/tests/cluster/proxy.rs"]
mod proxy;

use cluster::{Cluster, path};
use proxy::Proxy;
use ring::{digest, hmac};
use sanderling_client::{Client, ClientError, PutOptions};
use sanderling_gateway::{GatewayOptions, GatewayServer, LOCAL_ACCESS_KEY, LOCAL_SECRET_KEY};
use sanderling_protocol::Refusal;
use sanderling_protocol::message::ObjectKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Sends one signed request and returns status and body.
async fn send(
    address: &str,
    method: &str,
    (key, query): (&str, &str),
    extra: &str,
    body: &str,
) -> (u16, String) {
    let payload = "UNSIGNED-PAYLOAD";
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let date = amz_date(now.as_secs());
    let day = &date[..8];
    let headers = format!("host:{address}\nx-amz-content-sha256:{payload}\nx-amz-date:{date}\n");
    let signed = "host;x-amz-content-sha256;x-amz-date";
    let canonical = format!("{method}\n{key}\n{query}\n{headers}\n{signed}\n{payload}");
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
    let request = format!(
        "{method} {target} HTTP/1.1\r\nhost: {address}\r\nx-amz-date: {date}\r\n\
         x-amz-content-sha256: {payload}\r\nconnection: close\r\ncontent-length: {}\r\n{extra}\
         authorization: AWS4-HMAC-SHA256 Credential={LOCAL_ACCESS_KEY}/{scope}, \
         SignedHeaders={signed}, Signature={signature}\r\n\r\n{body}",
        body.len()
    );
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    (head[9..12].parse().unwrap(), body.to_owned())
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

/// A cluster, a gateway behind a proxy, and a client that is not.
async fn start() -> (Cluster, Proxy, GatewayServer, Client) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cluster = Cluster::start(1).await;
    let client = cluster.client().await;
    let proxy = Proxy::start(client.namenode()).await;
    client.make_directory(&path("/bucket"), ObjectKind::Directory, false, true).await.unwrap();
    let gateway = GatewayServer::start(GatewayOptions {
        namenode: proxy.address.clone(),
        listen: "127.0.0.1:0".to_owned(),
        http_listen: None,
        ..GatewayOptions::default()
    });
    (cluster, proxy, gateway.await.unwrap(), client)
}

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
    let (_, rest) = head.1.split_once("<ETag>").unwrap();
    rest.split_once("</ETag>").unwrap().0.replace("&quot;", "").replace('"', "")
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
async fn directory_stays_in_which_somebody_writes_at_another_endpoint() {
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
