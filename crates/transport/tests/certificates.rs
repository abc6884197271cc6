//! Certificates and authorities that are replaced while connections come and go.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use sanderling_protocol::message::{Hello, HelloReply, Role};
use sanderling_protocol::{Header, Refusal};
use sanderling_transport::{
    CallError, ClientTls, Connection, ConnectionOptions, Credentials, Expiries, Handled, Response,
    Security, ServeOptions, ServerTls, Service, TLS_NAME, listen, serve,
};
use tempfile::TempDir;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const SOON: Duration = Duration::from_secs(60);
const DAY: u64 = 24 * 3600;

struct Echo;

impl Service for Echo {
    fn hello(&self, _: &Hello) -> Result<HelloReply, Refusal> {
        Ok(HelloReply { role: Role::Datanode, cluster: None, node: None })
    }

    fn handle(self: &Arc<Self>, header: Header, body: Bytes) -> Handled {
        Handled::Now(Response { header: header.reply(), body: vec![body] })
    }
}

/// An authority that signs certificates.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key.
struct Pair {
    certificate: String,
    key: String,
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

impl Authority {
    fn new() -> Self {
        Self::until(now() + 1_000 * DAY)
    }

    fn until(ends: u64) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_after = date_time_ymd(1970, 1, 1) + Duration::from_secs(ends);
        params.not_before = params.not_after - Duration::from_secs(2_000 * DAY);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// Signs a certificate that holds between two times in seconds since 1970.
    fn sign(&self, begins: u64, ends: u64) -> Pair {
        let mut params = CertificateParams::new(vec![TLS_NAME.to_owned()]).unwrap();
        params.not_before = date_time_ymd(1970, 1, 1) + Duration::from_secs(begins);
        params.not_after = date_time_ymd(1970, 1, 1) + Duration::from_secs(ends);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Pair { certificate, key: key.serialize_pem() }
    }

    fn signed(&self) -> Pair {
        self.sign(now() - DAY, now() + 100 * DAY)
    }
}

/// Puts a file in place whole, as `mv` does.
fn put(path: &Path, text: &str) {
    let partial = path.with_extension("next");
    std::fs::write(&partial, text).unwrap();
    std::fs::set_permissions(&partial, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::rename(&partial, path).unwrap();
}

fn put_pair(place: &Path, pair: &Pair) {
    put(&place.join("node.pem"), &pair.certificate);
    put(&place.join("node.key"), &pair.key);
}

struct Endpoint {
    address: String,
    expiries: Expiries,
    place: TempDir,
    _stop: tokio_util::sync::DropGuard,
}

impl Endpoint {
    /// Serves what is in a directory under the names of `tls new`.
    async fn open(place: TempDir, under: &str) -> Self {
        let at = |name: &str| place.path().join(under).join(name);
        let tls = ServerTls::read(&at("node.pem"), &at("node.key")).unwrap();
        let listener = listen("127.0.0.1:0", &Security::default()).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let stop = CancellationToken::new();
        let expiries = Expiries::new(Some(tls.clone()), None);
        let options = ServeOptions { tls: Some(tls), ..ServeOptions::default() };
        tokio::spawn(serve(listener, Arc::new(Echo), options, stop.clone()));
        Self { address, expiries, place, _stop: stop.drop_guard() }
    }

    async fn of(pair: &Pair) -> Self {
        let place = TempDir::new().unwrap();
        put_pair(place.path(), pair);
        Self::open(place, "").await
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    async fn connect(&self, tls: &ClientTls) -> Result<Connection, CallError> {
        let credentials = Credentials { tls: Some(tls.clone()), ..Credentials::default() };
        let options = ConnectionOptions { credentials, ..ConnectionOptions::default() };
        let hello = Hello { role: Role::Client, cluster: None, node: None, token: None };
        let deadline = Instant::now() + SOON;
        let connected = Connection::connect_with(&self.address, hello, deadline, &options).await;
        connected.map(|(connection, _)| connection)
    }

    async fn is_believed(&self, tls: &ClientTls) -> bool {
        match self.connect(tls).await {
            Ok(_) => true,
            Err(CallError::Credentials { cause, .. }) => {
                assert!(cause.to_string().contains("is not believed"), "{cause}");
                false
            }
            Err(error) => panic!("it is there: {error}"),
        }
    }

    fn ends(&self) -> u64 {
        let [("own", ends)] = self.expiries.timestamps()[..] else { panic!("its own") };
        ends.try_into().unwrap()
    }
}

#[tokio::test]
async fn authorities_are_read_again_by_a_client_that_goes_on_calling() {
    let [old, new] = [Authority::new(), Authority::new()];
    let [before, after] = [Endpoint::of(&old.signed()).await, Endpoint::of(&new.signed()).await];
    let file = before.path("ca.pem");
    put(&file, &old.pem);
    let tls = ClientTls::read(&file, TLS_NAME).unwrap();
    let copy = tls.clone();
    let trusts = async || (before.is_believed(&tls).await, after.is_believed(&copy).await);
    assert_eq!(trusts().await, (true, false));
    let both = format!("{}{}", old.pem, new.pem);
    put(&file, &both);
    assert_eq!(trusts().await, (true, true));
    assert_eq!(tls.validities().len(), 2);
    put(&file, &new.pem);
    assert_eq!(trusts().await, (false, true));
    // Damage changes nothing, and what is whole again is taken.
    let half = &both[..old.pem.len() + new.pem.len() / 2];
    let flipped = new.pem.replacen("MII", "MIJ", 1);
    let long = old.pem.repeat((1 << 20) / old.pem.len() + 1);
    for bad in ["", "nonsense", half, &new.pem[..new.pem.len() - 8], &flipped, &long] {
        put(&file, bad);
        assert_eq!(trusts().await, (false, true), "{bad:.40}");
    }
    std::fs::remove_file(&file).unwrap();
    assert_eq!(trusts().await, (false, true));
    std::fs::create_dir(&file).unwrap();
    assert_eq!(trusts().await, (false, true));
    std::fs::remove_dir(&file).unwrap();
    // A pipe without a writer is not waited for.
    let made = std::process::Command::new("mkfifo").arg(&file).status().unwrap();
    assert!(made.success());
    assert_eq!(trusts().await, (false, true));
    std::fs::remove_file(&file).unwrap();
    put(&file, &old.pem);
    assert_eq!(trusts().await, (true, false));
}

#[tokio::test]
async fn links_that_are_swapped_show_the_new_files() {
    let authority = Authority::new();
    let place = TempDir::new().unwrap();
    let ends = [now() + 100 * DAY, now() + 200 * DAY];
    // As Kubernetes mounts a secret: names are links into a directory that is itself a link.
    for (version, ends) in ["one", "two"].iter().zip(ends) {
        let directory = place.path().join(version);
        std::fs::create_dir(&directory).unwrap();
        put_pair(&directory, &authority.sign(now() - DAY, ends));
    }
    put(&place.path().join("ca.pem"), &authority.pem);
    symlink("one", place.path().join("data")).unwrap();
    std::fs::create_dir(place.path().join("mount")).unwrap();
    for name in ["node.pem", "node.key"] {
        let target = Path::new("../data").join(name);
        symlink(target, place.path().join("mount").join(name)).unwrap();
    }
    let endpoint = Endpoint::open(place, "mount").await;
    let tls = ClientTls::read(&endpoint.path("ca.pem"), TLS_NAME).unwrap();
    assert_eq!(endpoint.ends(), ends[0]);
    symlink("two", endpoint.path("next")).unwrap();
    std::fs::rename(endpoint.path("next"), endpoint.path("data")).unwrap();
    assert!(endpoint.is_believed(&tls).await);
    assert_eq!(endpoint.ends(), ends[1]);
    let shown = tls.shown_by(&endpoint.address).await.unwrap();
    assert_eq!(shown.distrust, None);
    assert_eq!(shown.validities[0].ends, i64::try_from(ends[1]).unwrap());
    // The old directory is gone, and the new one with it: the server shows what it has.
    std::fs::remove_dir_all(endpoint.path("two")).unwrap();
    assert!(endpoint.is_believed(&tls).await);
}

#[tokio::test]
async fn certificate_that_no_client_would_believe_is_not_taken() {
    let authority = Authority::new();
    let good = authority.signed();
    let endpoint = Endpoint::of(&good).await;
    put(&endpoint.path("ca.pem"), &authority.pem);
    let tls = ClientTls::read(&endpoint.path("ca.pem"), TLS_NAME).unwrap();
    let ends = endpoint.ends();
    let ended = authority.sign(now() - 20 * DAY, now() - 10 * DAY);
    let early = authority.sign(now() + DAY, now() + 300 * DAY);
    for bad in [&ended, &early] {
        put_pair(endpoint.place.path(), bad);
        assert!(endpoint.is_believed(&tls).await);
        assert_eq!(endpoint.ends(), ends);
    }
    // A certificate without its key, and a key that others may read.
    put(&endpoint.path("node.pem"), &authority.signed().certificate);
    assert!(endpoint.is_believed(&tls).await);
    put_pair(endpoint.place.path(), &authority.sign(now() - DAY, now() + 50 * DAY));
    std::fs::set_permissions(endpoint.path("node.key"), std::fs::Permissions::from_mode(0o644))
        .unwrap();
    assert!(endpoint.is_believed(&tls).await);
    assert_eq!(endpoint.ends(), ends);
    std::fs::set_permissions(endpoint.path("node.key"), std::fs::Permissions::from_mode(0o600))
        .unwrap();
    assert_ne!(endpoint.ends(), ends);
}

#[tokio::test]
async fn certificate_that_has_ended_is_replaced_and_reported() {
    let authority = Authority::new();
    let ended = authority.sign(now() - 20 * DAY, now() - 10 * DAY + 600);
    let endpoint = Endpoint::of(&ended).await;
    put(&endpoint.path("ca.pem"), &authority.pem);
    let tls = ClientTls::read(&endpoint.path("ca.pem"), TLS_NAME).unwrap();
    let refused = endpoint.connect(&tls).await.unwrap_err();
    assert!(refused.to_string().contains("its certificate has ended"), "{refused}");
    let shown = tls.shown_by(&endpoint.address).await.unwrap();
    assert!(shown.distrust.unwrap().contains("has ended"));
    assert_eq!(shown.validities[0].days_left(now()), -10);
    // Where nothing that is there is believed, what is new is taken whatever its dates: the clock
    // may be the one that is wrong.
    let later = now() + 7 * DAY;
    put_pair(endpoint.place.path(), &authority.sign(later - DAY, later));
    assert_eq!(endpoint.ends(), later);
    put_pair(endpoint.place.path(), &authority.signed());
    assert!(endpoint.is_believed(&tls).await);
    // Far from now in both directions.
    put_pair(endpoint.place.path(), &authority.sign(0, 253_402_300_799));
    assert!(endpoint.is_believed(&tls).await);
    assert_eq!(endpoint.ends(), 253_402_300_799);
}

#[tokio::test]
async fn authority_that_has_ended_is_believed_until_it_is_taken_out() {
    let ended = Authority::until(now() - 10 * DAY);
    let endpoint = Endpoint::of(&ended.signed()).await;
    let file = endpoint.path("ca.pem");
    put(&file, &ended.pem);
    let tls = ClientTls::read(&file, TLS_NAME).unwrap();
    assert!(endpoint.is_believed(&tls).await);
    let expiries = Expiries::new(None, Some(tls.clone()));
    let [("authority", ends)] = expiries.timestamps()[..] else { panic!("it believes one") };
    assert!(ends < now().try_into().unwrap());
    put(&file, &Authority::new().pem);
    assert!(!endpoint.is_believed(&tls).await);
}
