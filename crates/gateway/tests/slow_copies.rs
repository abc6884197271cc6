//! Copies of objects that a datanode sends slowly, for clients that give up after a few seconds of
//! silence, and for clients that are gone. A machine may stand still for a second or two: the tests
//! count what the gateway sends.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod rig;

use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rig::cluster::{Cluster, MIB, path, pattern};
use rig::{element, send, signed};
use sanderling_client::{Client, ClientConfig, PutOptions};
use sanderling_datanode::DatanodeOptions;
use sanderling_gateway::{GatewayOptions, GatewayServer};
use sanderling_protocol::NodeInfo;
use sanderling_protocol::message::ObjectKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Bytes per second that the datanode sends.
const LINK: u64 = 512 << 10;

/// Bytes of the object that is copied: they take 6 s.
const BYTES: usize = 3 * MIB;

/// Bytes of an object that takes 64 s.
const MANY_BYTES: usize = 32 * MIB;

/// The answer to a copy that takes longer begins before its end.
const BEGIN_AFTER: Duration = Duration::from_secs(1);

/// Bytes of white space that the gateway sends at once.
const WHITE_SPACE: usize = 64;

/// More than the AWS SDK for C++ waits in silence unless it is configured.
const LONG: Duration = Duration::from_secs(3);

const SOON: Duration = Duration::from_secs(60);

/// Lets the kernel drop all that a socket receives, acknowledgements and resets included, as if its
/// machine were gone: a filter of one instruction (`SO_ATTACH_FILTER`, 26), which keeps 0 bytes.
const FAIL: &str = r#"
import ctypes, socket, struct
rule = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0))
peer = socket.socket(fileno=0)
peer.setsockopt(socket.SOL_SOCKET, 26, struct.pack("HP", 1, ctypes.addressof(rule)))
"#;

/// The header of a request that copies `/bucket/from`.
const FROM: &str = "x-amz-copy-source: /bucket/from\r\n";

const DECLARATION: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>";

/// Starts a cluster with a slow datanode and a gateway, and stores `/bucket/from`.
async fn start() -> (Cluster, GatewayServer, Client) {
    start_with(BYTES, GatewayOptions::default()).await
}

/// The same with an object of so many bytes, and with options of the gateway.
async fn start_with(bytes: usize, options: GatewayOptions) -> (Cluster, GatewayServer, Client) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut cluster = Cluster::start(0).await;
    let datanode = DatanodeOptions {
        dram_bytes: 128 << 20,
        egress_limit: Some(LINK),
        ..DatanodeOptions::default()
    };
    cluster.add_with(datanode).await;
    let config = ClientConfig { call_deadline: SOON, ..ClientConfig::default() };
    let client = cluster.client_with(config).await;
    client.make_directory(&path("/bucket"), ObjectKind::Directory, false, true).await.unwrap();
    let bytes = pattern(bytes, 1);
    client.put(&path("/bucket/from"), bytes, &PutOptions::default()).await.unwrap();
    let gateway = GatewayServer::start(GatewayOptions {
        namenode: client.namenode().to_owned(),
        listen: "127.0.0.1:0".to_owned(),
        http_listen: Some("127.0.0.1:0".to_owned()),
        ..options
    });
    (cluster, gateway.await.unwrap(), client)
}

/// A connection on which a copy was requested.
struct Copying(TcpStream);

impl Copying {
    async fn begin(address: &str, place: (&str, &str)) -> Self {
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket.write_all(signed(address, "PUT", place, FROM, "").as_bytes()).await.unwrap();
        Self(socket)
    }

    /// Receives some bytes, and returns whether there were any before the end.
    async fn receive(&mut self, answer: &mut Vec<u8>) -> bool {
        let received = timeout(SOON, self.0.read_buf(answer)).await;
        received.expect("the gateway is not silent").unwrap() > 0
    }

    /// Returns the head of the answer, and its body.
    async fn finish(mut self) -> (String, String) {
        let mut answer = Vec::new();
        while self.receive(&mut answer).await {}
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("transfer-encoding: chunked"), "{head}");
        (head.to_owned(), joined(body))
    }
}

/// Joins the chunks of a body.
fn joined(mut chunks: &str) -> String {
    let mut body = String::new();
    loop {
        let (bytes, rest) = chunks.split_once("\r\n").unwrap();
        let bytes = usize::from_str_radix(bytes, 16).unwrap();
        if bytes == 0 {
            return body;
        }
        body.push_str(&rest[..bytes]);
        chunks = &rest[bytes + 2..];
    }
}

/// Copies, which takes long. Returns the document of the answer, and how many pieces of white space
/// came before it.
async fn copy_slowly(address: &str, place: (&str, &str)) -> (String, usize) {
    let (head, body) = Copying::begin(address, place).await.finish().await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(head.contains("content-type: application/xml"), "{head}");
    let behind = body.strip_prefix(DECLARATION).unwrap();
    let document = behind.trim_start_matches(' ');
    let pieces = (behind.len() - document.len()) / WHITE_SPACE;
    assert!(pieces > 0 && document.starts_with('<'), "{body}");
    assert!(!document.contains("<?xml"), "{body}");
    let (_, id) = head.split_once("x-amz-request-id: ").unwrap();
    let id = id.lines().next();
    assert!(document.starts_with("<Copy") || element(document, "RequestId") == id, "{head} {body}");
    (document.to_owned(), pieces)
}

#[tokio::test(flavor = "multi_thread")]
async fn long_copy_is_not_silent() {
    let (_cluster, gateway, client) = start().await;
    let address = gateway.address().to_string();
    let began = Instant::now();
    let (document, pieces) = copy_slowly(&address, ("/bucket/to", "")).await;
    assert!(began.elapsed() > LONG, "{:?}", began.elapsed());
    assert!(pieces >= 2, "white space goes on: {pieces} pieces");
    assert!(document.starts_with("<CopyObjectResult>"), "{document}");
    assert!(element(&document, "ETag").is_some(), "{document}");
    assert!(client.get(&path("/bucket/to")).await.unwrap() == pattern(BYTES, 1));
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_copy_of_a_part_is_not_silent() {
    let (_cluster, gateway, client) = start().await;
    let address = gateway.address().to_string();
    let (_, begun) = send(&address, "POST", ("/bucket/to", "uploads="), "", "").await;
    let id = element(&begun, "UploadId").unwrap();
    let part = format!("partNumber=1&uploadId={id}");
    let began = Instant::now();
    let (document, pieces) = copy_slowly(&address, ("/bucket/to", &part)).await;
    assert!(began.elapsed() > LONG, "{:?}", began.elapsed());
    assert!(pieces >= 2, "white space goes on: {pieces} pieces");
    assert!(document.starts_with("<CopyPartResult>"), "{document}");
    let tag = element(&document, "ETag").unwrap();
    let part = format!("<Part><PartNumber>1</PartNumber><ETag>{tag}</ETag></Part>");
    let parts = format!("<CompleteMultipartUpload>{part}</CompleteMultipartUpload>");
    let upload = format!("uploadId={id}");
    let (status, body) = send(&address, "POST", ("/bucket/to", &upload), "", &parts).await;
    assert_eq!(status, 200, "{body}");
    assert!(client.get(&path("/bucket/to")).await.unwrap() == pattern(BYTES, 1));
    gateway.stop().await;
}

/// The bucket is looked up when there is more than one block to write, which takes 4 s.
#[tokio::test(flavor = "multi_thread")]
async fn error_after_the_head_is_the_document() {
    let (_cluster, gateway, client) = start().await;
    let address = gateway.address().to_string();
    let (document, _) = copy_slowly(&address, ("/missing/to", "")).await;
    assert!(document.starts_with("<Error>"), "{document}");
    assert_eq!(element(&document, "Code"), Some("NoSuchBucket"), "{document}");
    assert_eq!(element(&document, "Resource"), Some("/missing/to"), "{document}");
    assert!(!client.exists(&path("/missing")).await.unwrap());
    let (_, metrics) = metrics_of(&gateway).await;
    let late = "sanderling_gateway_answers_total{method=\"PUT\",status=\"404\"} 1";
    assert!(metrics.contains(late), "{metrics}");
    gateway.stop().await;
}

async fn metrics_of(gateway: &GatewayServer) -> (u16, String) {
    let address = gateway.http_address().unwrap().to_string();
    send(&address, "GET", ("/metrics", ""), "", "").await
}

/// Begins a copy whose answer has begun.
async fn begun(gateway: &GatewayServer) -> Copying {
    let address = gateway.address().to_string();
    let mut copying = Copying::begin(&address, ("/bucket/to", "")).await;
    let mut answer = Vec::new();
    while !answer.ends_with(b"  \r\n") {
        assert!(copying.receive(&mut answer).await, "the copy has ended");
    }
    assert!(metrics_of(gateway).await.1.contains("sanderling_gateway_requests_in_flight 1"));
    copying
}

/// Waits until no copy is under way, and nothing of it is stored.
async fn until_given_up(cluster: &Cluster, gateway: &GatewayServer, client: &Client) {
    let ended = async {
        let none = "sanderling_gateway_requests_in_flight 0";
        while !metrics_of(gateway).await.1.contains(none) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(SOON, ended).await.expect("the copy ends");
    assert!(!client.exists(&path("/bucket/to")).await.unwrap(), "it went on to its end");
    let blocks = client.stat(&path("/bucket/from")).await.unwrap().bytes.div_ceil(MIB as u64);
    let is_alone = |nodes: &[NodeInfo]| nodes.iter().map(|it| it.blocks).sum::<u64>() == blocks;
    cluster.wait_for(client, "the blocks of the copy are dropped", is_alone).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_of_a_client_that_has_gone_is_given_up() {
    let (cluster, gateway, client) = start().await;
    drop(begun(&gateway).await);
    until_given_up(&cluster, &gateway, &client).await;
    gateway.stop().await;
}

/// The gateway is not informed: no packet of that machine comes any more.
#[tokio::test(flavor = "multi_thread")]
async fn copy_of_a_client_whose_machine_has_failed_is_given_up() {
    let options =
        GatewayOptions { idle_timeout: Duration::from_secs(2), ..GatewayOptions::default() };
    let (cluster, gateway, client) = start_with(MANY_BYTES, options).await;
    let copying = begun(&gateway).await;
    let socket = copying.0.as_fd().try_clone_to_owned().unwrap();
    let mut fail = Command::new("python3");
    let failed = fail.args(["-c", FAIL]).stdin(Stdio::from(socket)).status();
    assert!(failed.unwrap().success(), "the socket drops what comes");
    until_given_up(&cluster, &gateway, &client).await;
    drop(copying);
    gateway.stop().await;
}

/// Copies a few bytes, and again if the machine stood still for so long meanwhile that the answer
/// may begin before the end.
async fn copy_fast(address: &str, key: &str, from: &str) -> (u16, String) {
    let limit = Instant::now() + SOON;
    loop {
        let began = Instant::now();
        let answer = send(address, "PUT", (key, ""), from, "").await;
        if began.elapsed() < BEGIN_AFTER {
            return answer;
        }
        assert!(Instant::now() < limit, "a copy of a few bytes takes a second: {answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn short_copy_keeps_its_status() {
    let (_cluster, gateway, client) = start().await;
    let address = gateway.address().to_string();
    let short = "x-amz-copy-source: /bucket/short\r\n";
    client.put(&path("/bucket/short"), "short".into(), &PutOptions::default()).await.unwrap();
    let (status, body) = copy_fast(&address, "/bucket/to", short).await;
    assert_eq!(status, 200, "{body}");
    assert!(body.starts_with(&format!("{DECLARATION}<CopyObjectResult>")), "{body}");
    for (key, from, code) in [
        ("/missing/to", short, "NoSuchBucket"),
        ("/bucket/to", "x-amz-copy-source: /bucket/missing\r\n", "NoSuchKey"),
    ] {
        let (status, body) = copy_fast(&address, key, from).await;
        assert_eq!((status, element(&body, "Code")), (404, Some(code)), "{body}");
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_whose_source_is_looked_up_for_long_keeps_its_status() {
    let (_cluster, proxy, gateway, _client) = rig::start().await;
    let address = gateway.address().to_string();
    let copying = async move { send(&address, "PUT", ("/bucket/to", ""), FROM, "").await };
    // Longer than a copy takes whose answer begins before its end.
    let between = tokio::time::sleep(Duration::from_millis(1500));
    let (status, body) = proxy.hold_up(&["lookup"], copying, between).await;
    assert_eq!((status, element(&body, "Code")), (404, Some("NoSuchKey")), "{body}");
    gateway.stop().await;
}
