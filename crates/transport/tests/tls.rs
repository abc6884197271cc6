//! Frames over TLS: all sizes, slow peers, certificates that change, and peers without TLS.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use sanderling_protocol::message::{Hello, HelloReply, Role};
use sanderling_protocol::{Header, Op, Refusal};
use sanderling_transport::{
    CallError, ClientTls, Connection, ConnectionOptions, Credentials, Handled, Response, Security,
    ServeOptions, ServerTls, Service, TLS_NAME, listen, serve,
};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

const SOON: Duration = Duration::from_secs(60);

/// Answers with what it was sent, and as many bytes again as `offset` requests.
struct Echo;

impl Service for Echo {
    fn hello(&self, _: &Hello) -> Result<HelloReply, Refusal> {
        Ok(HelloReply { role: Role::Datanode, cluster: None, node: None })
    }

    fn handle(self: &Arc<Self>, header: Header, body: Bytes) -> Handled {
        let more = vec![7; header.offset as usize];
        Handled::Now(Response { header: header.reply(), body: vec![body, more.into()] })
    }
}

/// Writes an authority, and a certificate and key of a server.
fn certify(place: &Path) -> [PathBuf; 3] {
    let files = ["ca.pem", "node.pem", "node.key"].map(|name| place.join(name));
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    std::fs::write(&files[0], authority.self_signed(&key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(authority, key);
    let server = CertificateParams::new(vec![TLS_NAME.to_owned()]).unwrap();
    let server_key = KeyPair::generate().unwrap();
    std::fs::write(&files[1], server.signed_by(&server_key, &issuer).unwrap().pem()).unwrap();
    let _ = std::fs::remove_file(&files[2]);
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(&files[2]).unwrap();
    std::io::Write::write_all(&mut file, server_key.serialize_pem().as_bytes()).unwrap();
    files
}

struct Endpoint {
    address: String,
    place: TempDir,
    _stop: tokio_util::sync::DropGuard,
}

impl Endpoint {
    async fn open() -> Self {
        let place = TempDir::new().unwrap();
        let [_, certificate, key] = certify(place.path());
        let listener = listen("127.0.0.1:0", &Security::default()).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let tls = Some(ServerTls::read(&certificate, &key).unwrap());
        let stop = CancellationToken::new();
        let options = ServeOptions { tls, ..ServeOptions::default() };
        tokio::spawn(serve(listener, Arc::new(Echo), options, stop.clone()));
        Self { address, place, _stop: stop.drop_guard() }
    }

    async fn connect(&self, authority: Option<&Path>) -> Result<Connection, CallError> {
        let tls = authority.map(|path| ClientTls::read(path, TLS_NAME).unwrap());
        let credentials = Credentials { tls, ..Credentials::default() };
        let options = ConnectionOptions { credentials, ..ConnectionOptions::default() };
        let hello = Hello { role: Role::Client, cluster: None, node: None, token: None };
        let deadline = Instant::now() + SOON;
        let connected = Connection::connect_with(&self.address, hello, deadline, &options).await;
        connected.map(|(connection, _)| connection)
    }

    fn authority(&self) -> PathBuf {
        self.place.path().join("ca.pem")
    }
}

async fn echoed(connection: &Connection, number: usize, sent: usize, more: usize) {
    let body: Vec<u8> = (0..sent).map(|at| (at * 31 + number) as u8).collect();
    let mut header = Header::new(Op::Write, 0);
    header.offset = more as u64;
    let call = connection.call(header, vec![body.clone().into()], Instant::now() + SOON);
    let frame = call.await.unwrap();
    assert!(frame.body[..sent] == body[..], "{number}: {sent} bytes");
    assert_eq!(frame.body.len(), sent + more);
    assert!(frame.body[sent..].iter().all(|byte| *byte == 7));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_of_all_sizes_come_back_whatever_else_is_under_way() {
    let endpoint = Endpoint::open().await;
    let connection = endpoint.connect(Some(&endpoint.authority())).await.unwrap();
    for round in 0..3 {
        let calls = (0..40).map(|number| {
            let connection = connection.clone();
            let sizes = [0, 1, 100, 5_000, 17_000, 300_000, 2 << 20];
            let (sent, more) = (sizes[number % 7] / (1 + round), sizes[(number * 3 + 1) % 7]);
            tokio::spawn(async move { echoed(&connection, number, sent, more).await })
        });
        for call in calls.collect::<Vec<_>>() {
            timeout(SOON, call).await.expect("it is answered").unwrap();
        }
    }
    // One after the other, as by a caller that waits for each.
    for number in 0..100 {
        echoed(&connection, number, 10, 10).await;
    }
}

#[tokio::test]
async fn one_thread_is_enough_for_both_ends() {
    let endpoint = Endpoint::open().await;
    let connection = endpoint.connect(Some(&endpoint.authority())).await.unwrap();
    let calls = (0..8).map(|number| echoed(&connection, number, 3 << 20, 3 << 20));
    timeout(SOON, futures_util::future::join_all(calls)).await.expect("they are answered");
}

#[tokio::test]
async fn peer_that_does_not_speak_tls_or_breaks_off_disturbs_no_other_one() {
    let endpoint = Endpoint::open().await;
    let plain = endpoint.connect(None).await.unwrap_err();
    assert!(plain.to_string().contains("this port speaks TLS"), "{plain}");
    let silent = TcpStream::connect(&endpoint.address).await.unwrap();
    for noise in [&b"\x16"[..], b"\x16\x03\x01\x00\x05hello", b"GET / HTTP/1.1\r\n\r\n", &[0; 999]]
    {
        let mut stream = TcpStream::connect(&endpoint.address).await.unwrap();
        stream.write_all(noise).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        // A reset is an end, too.
        let _ = timeout(SOON, stream.read_to_end(&mut answer)).await.expect("it ends");
    }
    let connection = endpoint.connect(Some(&endpoint.authority())).await.unwrap();
    echoed(&connection, 1, 10, 10).await;
    drop(silent);
}

#[tokio::test]
async fn certificate_is_read_again_when_its_files_change() {
    let endpoint = Endpoint::open().await;
    let old = endpoint.place.path().join("old.pem");
    std::fs::copy(endpoint.authority(), &old).unwrap();
    let before = endpoint.connect(Some(&old)).await.unwrap();
    certify(endpoint.place.path());
    let limit = Instant::now() + SOON;
    // The clock of the file system may not have ticked between the two.
    while endpoint.connect(Some(&endpoint.authority())).await.is_err() {
        assert!(Instant::now() < limit, "the new certificate is shown");
        certify(endpoint.place.path());
    }
    let refused = endpoint.connect(Some(&old)).await.unwrap_err();
    assert!(refused.to_string().contains("its certificate is not believed"), "{refused}");
    assert!(matches!(refused, CallError::Credentials { .. }));
    echoed(&before, 1, 100, 100).await;
    // Nonsense in the file changes nothing for new connections.
    std::fs::write(endpoint.place.path().join("node.pem"), "nonsense").unwrap();
    let connection = endpoint.connect(Some(&endpoint.authority())).await.unwrap();
    echoed(&connection, 1, 10, 10).await;
}
