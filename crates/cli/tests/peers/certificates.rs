//! Certificates that end, and that are replaced, while the servers of a cluster go on.

use crate::cluster;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::cluster::guarded::{Guarded, kept, text};
use crate::cluster::{
    Cluster, Ran, SOON, Server, Shape, block_on, bytes_of, path, run, sanderling,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use sanderling_client::{Client, PutOptions};
use sanderling_protocol::Token;
use sanderling_transport::{ClientTls, TLS_NAME};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const DAY: u64 = 24 * 3600;

/// Servers look at their files every two seconds: time for two looks, and a slow machine.
const LOOKS: Duration = Duration::from_secs(6);

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs()
}

/// Puts a copy of a file in place whole, as `mv` does, for its owner alone.
fn put(from: impl AsRef<[u8]>, to: &Path) {
    let partial = to.with_extension("next");
    std::fs::write(&partial, from).expect("written");
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&partial, private).expect("its mode is set");
    std::fs::rename(&partial, to).expect("renamed");
}

fn bytes(file: &Path) -> Vec<u8> {
    std::fs::read(file).expect("it was made")
}

fn tls(words: &[&str]) -> Ran {
    let ran = run(sanderling().arg("tls").args(words));
    assert_eq!(ran.code, 0, "{ran}");
    ran
}

/// Gets a page over HTTPS, believing a file of authorities.
async fn page(address: &str, authority: &Path, target: &str, token: &Token) -> String {
    let mut roots = rustls::RootCertStore::empty();
    let all = CertificateDer::pem_file_iter(authority).expect("authorities");
    roots.add_parsable_certificates(all.map(|one| one.expect("an authority")));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let tcp = tokio::net::TcpStream::connect(address).await.expect("the port is open");
    let name = ServerName::try_from(TLS_NAME).expect("a name");
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(name, tcp).await.expect("it is believed");
    let token = token.reveal();
    let request = format!(
        "GET {target} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
         authorization: Bearer {token}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = Vec::new();
    // The end may come without the alert that announces it.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).expect("text")
}

/// Returns when certificates end by a page of metrics: the server's own, and the authorities.
fn ends(page: &str, role: &str) -> [u64; 2] {
    ["own", "authority"].map(|kind| {
        end(page, role, kind).unwrap_or_else(|| panic!("no {kind} of a {role}: {page}"))
    })
}

/// Returns when the first certificate of a kind ends by a page of metrics.
fn end(page: &str, role: &str, kind: &str) -> Option<u64> {
    let name = format!("sanderling_{role}_certificate_expiry_timestamp_seconds");
    let begin = format!("{name}{{kind=\"{kind}\"}} ");
    let found = page.lines().find_map(|line| line.strip_prefix(&begin));
    found.map(|seconds| seconds.parse().expect("seconds"))
}

/// Whole days from now, to the nearest.
fn days(ends: u64) -> u64 {
    (ends + DAY / 2 - now()) / DAY
}

/// Waits until something is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let limit = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < limit, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

struct Rig {
    guarded: Guarded,
    admin: Token,
    gateway: Server,
    /// On its own: it shows no certificate, and believes an authority.
    manager: Server,
}

impl Rig {
    fn start() -> Self {
        let guarded = Guarded::encrypted(2, &[]);
        let admin = guarded.token(&["--role", "admin"]);
        let token = guarded.place.path().join("gateway.token");
        put(admin.reveal(), &token);
        let at = |name: &str| text(guarded.place.path().join("tls").join(name));
        let (ca, node, key, token) = (at("ca.pem"), at("node.pem"), at("node.key"), text(token));
        let words = ["gateway", "s3", "--namenode", &guarded.cluster.namenode.address];
        let words = [&words[..], &["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]].concat();
        let words = [&words[..], &["--tls-ca", &ca, "--tls-cert", &node, "--tls-key", &key]];
        let words = [&words.concat()[..], &["--token-file", &token]].concat();
        let gateway = guarded.cluster.serve("gateway", &words);
        let words = ["manager", "--namenode", &guarded.cluster.namenode.address, "--tls-ca", &ca];
        let words = [&words[..], &["--secret-file", &guarded.secret]].concat();
        let manager = guarded.cluster.serve("manager", &words);
        Self { guarded, admin, gateway, manager }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.guarded.place.path().join(name)
    }

    /// Returns by the metrics of every server when its own certificate ends, and the authority's.
    async fn ends(&self, authority: &Path) -> Vec<[u64; 2]> {
        let cluster = &self.guarded.cluster;
        let mut all = Vec::new();
        for (server, role) in std::iter::once((&cluster.namenode, "namenode"))
            .chain(cluster.datanodes.iter().map(|server| (server, "datanode")))
        {
            let page = page(&server.http_address, authority, "/metrics", &self.admin).await;
            all.push(ends(&page, role));
        }
        let gateway = &self.gateway.http_address;
        all.push(ends(&cluster::http::page(gateway, "/metrics").await, "gateway"));
        all
    }

    /// Checks in how many days certificates end, by the metrics of every server.
    async fn end_in(&self, authority: &Path, expected: [u64; 2]) {
        for ends in self.ends(authority).await {
            assert_eq!(ends.map(days), expected);
        }
        let page = cluster::http::page(&self.manager.http_address, "/metrics").await;
        assert_eq!(end(&page, "manager", "authority").map(days), Some(expected[1]), "{page}");
        assert_eq!(end(&page, "manager", "own"), None, "{page}");
    }

    /// Puts the certificate and key of a directory in place.
    fn put_pair(&self, directory: &str) {
        for name in ["node.key", "node.pem"] {
            put(bytes(&self.at(directory).join(name)), &self.at("tls").join(name));
        }
    }

    async fn client(&self) -> Client {
        self.guarded.cluster.client_of(self.guarded.config(&self.admin)).await
    }

    async fn is_believed(&self, tls: &ClientTls) -> bool {
        let address = &self.guarded.cluster.namenode.address;
        tls.shown_by(address).await.expect("it is there").distrust.is_none()
    }
}

#[test]
fn certificates_and_authority_are_renewed_while_servers_run() {
    let mut rig = Rig::start();
    std::fs::copy(rig.at("tls/ca.pem"), rig.at("old.pem")).expect("copied");
    block_on(renewed(&mut rig));
}

async fn renewed(rig: &mut Rig) {
    let (ca, old) = (rig.at("tls/ca.pem"), rig.at("old.pem"));
    let (content, options) = (bytes_of(1, 3 << 20), PutOptions::default());
    let long_lived = ClientTls::read(&ca, TLS_NAME).expect("made by tls new");
    let opened = rig.client().await;
    opened.put(&path("/a"), content.clone(), &options).await.expect("put");
    rig.end_in(&ca, [365, 365]).await;
    // Another certificate by the same authority.
    let (authority, renewed) = (text(rig.at("tls")), text(rig.at("renewed")));
    tls(&["renew", "--authority", &authority, "--out", &renewed, "--expires", "100d"]);
    rig.put_pair("renewed");
    rig.end_in(&ca, [100, 365]).await;
    assert!(rig.is_believed(&long_lived).await);
    // Another authority: both are believed, then servers show what the new one signed, then the old
    // one is taken out.
    let next = text(rig.at("next"));
    tls(&["new", "--out", &next, "--expires", "700d"]);
    put([bytes(&old), bytes(&rig.at("next/ca.pem"))].concat(), &ca);
    rig.put_pair("next");
    rig.end_in(&ca, [700, 365]).await;
    assert!(rig.is_believed(&long_lived).await);
    put(bytes(&rig.at("next/ca.pem")), &ca);
    // Datanodes and gateway call the namenode anew, and believe the new authority alone.
    rig.guarded.cluster.restart_namenode();
    rig.end_in(&ca, [700, 700]).await;
    assert!(rig.is_believed(&long_lived).await);
    assert!(!rig.is_believed(&ClientTls::read(&old, TLS_NAME).expect("a copy")).await);
    let fresh = rig.client().await;
    assert_eq!(fresh.get(&path("/a")).await.expect("get"), content);
    assert_eq!(opened.get(&path("/a")).await.expect("get"), content);
    opened.put(&path("/b"), content.clone(), &options).await.expect("put");
    assert_eq!(fresh.get(&path("/b")).await.expect("get"), content);
    // What the old authority signed is refused from now on.
    rig.put_pair("renewed");
    assert!(!rig.is_believed(&long_lived).await);
}

#[test]
fn damaged_files_are_not_taken_and_are_logged_in_one_warning() {
    let rig = Rig::start();
    let (ca, good) = (rig.at("tls/ca.pem"), rig.at("good.pem"));
    std::fs::copy(&ca, &good).expect("copied");
    let before = block_on(rig.ends(&good));
    let whole = bytes(&ca);
    put(&whole[..whole.len() / 2], &ca);
    std::fs::remove_file(rig.at("tls/node.pem")).expect("removed");
    std::fs::create_dir(rig.at("tls/node.pem")).expect("a directory");
    let cluster = &rig.guarded.cluster;
    let servers = || {
        let datanodes = cluster.datanodes.iter();
        datanodes.chain([&cluster.namenode, &rig.gateway])
    };
    let warnings = |server: &Server, file: &str| {
        let is_one = |line: &&str| line.contains("stay the ones before") && line.contains(file);
        server.log().lines().filter(is_one).count()
    };
    for server in servers() {
        until("a warning", || warnings(server, "ca.pem") + warnings(server, "node.pem") == 2);
    }
    let begin = Instant::now();
    while begin.elapsed() < LOOKS {
        assert_eq!(block_on(rig.ends(&good)), before);
    }
    for server in servers() {
        let counts = [warnings(server, "ca.pem"), warnings(server, "node.pem")];
        assert_eq!(counts, [1, 1], "{}", server.log());
    }
    // What is whole again is taken.
    std::fs::remove_dir(rig.at("tls/node.pem")).expect("removed");
    put(&whole, &ca);
    let (authority, renewed) = (text(rig.at("tls")), text(rig.at("renewed")));
    tls(&["renew", "--authority", &authority, "--out", &renewed, "--expires", "50d"]);
    rig.put_pair("renewed");
    for [own, _] in block_on(rig.ends(&good)) {
        assert_eq!(days(own), 50);
    }
}

/// A cluster with certificates that hold for some time, and without a secret.
struct Ending {
    cluster: Cluster,
    place: TempDir,
}

impl Ending {
    fn start(expires: &str) -> Self {
        Self::start_with(expires, 0)
    }

    fn start_with(expires: &str, datanodes: usize) -> Self {
        let place = TempDir::new().expect("a directory for the test");
        let out = text(place.path().join("tls"));
        tls(&["new", "--out", &out, "--expires", expires]);
        let mut flags = Vec::new();
        for (flag, name) in
            [("--tls-ca", "ca.pem"), ("--tls-cert", "node.pem"), ("--tls-key", "node.key")]
        {
            flags.extend([flag, kept(&format!("{out}/{name}"))]);
        }
        let namenode = flags.iter().map(|word| (*word).to_owned()).collect();
        let shape = Shape { datanodes, namenode, datanode: flags, ..Shape::default() };
        Self { cluster: Cluster::start(shape), place }
    }

    /// Returns the doctor's result for certificates, and its exit code.
    fn doctor(&self) -> (Vec<serde_json::Value>, i32, String) {
        let at = |name: &str| self.place.path().join("tls").join(name);
        let doctor = |more: &[&str]| {
            let mut command = sanderling();
            command.args(["doctor", "--dram", "1MiB", "--namenode"]);
            command.arg(&self.cluster.namenode.address).arg("--dir").arg(self.place.path());
            command.arg("--tls-ca").arg(at("ca.pem")).arg("--tls-cert").arg(at("node.pem"));
            run(command.args(more))
        };
        let ran = doctor(&["--json"]);
        let document: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
        let checks = document["checks"].as_array().expect("checks").iter();
        let checks = checks.filter(|check| check["name"] == "cert").cloned().collect();
        (checks, ran.code, doctor(&[]).stdout)
    }

    fn warnings(&self, what: &str) -> usize {
        let log = self.cluster.namenode.log();
        log.lines().filter(|line| line.contains("WARN") && line.contains(what)).count()
    }
}

#[test]
fn certificate_that_ends_soon_is_reported_by_doctor_and_once_in_the_log() {
    let good = Ending::start("2405h");
    let (checks, code, text) = good.doctor();
    assert_eq!((checks.len(), code), (3, 0), "{text}");
    for check in &checks {
        assert_eq!(
            (&check["verdict"], &check["days_left"]),
            (&"ok".into(), &100.into()),
            "{check}"
        );
        assert!(check["mend"].is_null());
    }
    // They are made to have begun a day ago: a fifth of the life is left.
    let soon = Ending::start("5h");
    until("warnings", || soon.warnings("a certificate ends soon") == 2);
    let (ca, namenode) =
        (text_of(&soon.place.path().join("tls/ca.pem")), &soon.cluster.namenode.address);
    let words = ["manager", "--namenode", namenode, "--name", "second", "--tls-ca", &ca];
    let manager = soon.cluster.serve("second", &words);
    until("a manager warns, too", || {
        manager.log().contains("a certificate ends soon kind=\"authority\"")
    });
    let (checks, code, text) = soon.doctor();
    assert_eq!((checks.len(), code), (3, 0), "{text}");
    for check in &checks {
        assert_eq!((&check["verdict"], &check["days_left"]), (&"warn".into(), &0.into()));
        let ends = check["ends_unix_seconds"].as_u64().expect("seconds");
        assert!((now()..=now() + 5 * 3600).contains(&ends), "{check}");
        let mend = check["mend"].as_str().expect("what to do");
        assert!(mend.starts_with("sanderling tls "), "{mend}");
    }
    assert!(text.contains("ends soon") && text.contains("mend: sanderling tls renew"), "{text}");
    std::thread::sleep(LOOKS);
    assert_eq!(soon.warnings("a certificate ends soon"), 2, "{}", soon.cluster.namenode.log());
    let log = soon.cluster.namenode.log();
    assert!(log.contains("sanderling tls renew") && log.contains(" UTC"), "{log}");
    assert_eq!(good.warnings("certificate"), 0, "{}", good.cluster.namenode.log());
}

#[test]
fn certificate_that_has_ended_fails_the_doctor() {
    let ended = Ending::start("8s");
    until("warnings", || ended.warnings("a certificate has ended") == 2);
    let (checks, code, text) = ended.doctor();
    assert_eq!((checks.len(), code), (3, 1), "{text}");
    for check in &checks {
        let left = check["days_left"].as_i64().expect("days");
        assert_eq!((&check["verdict"], left), (&"fail".into(), -1), "{check}");
    }
    assert!(text.contains("has ended"), "{text}");
    // Its authority has ended, too, and signs nothing more.
    let (tls, out) = (ended.place.path().join("tls"), ended.place.path().join("renewed"));
    let words = ["tls", "renew", "--authority", &text_of(&tls), "--out", &text_of(&out)];
    let refused = run(sanderling().args(words));
    assert!(refused.code == 1 && refused.stderr.contains("has ended"), "{refused}");
}

fn text_of(path: &Path) -> String {
    text(path.to_owned())
}

#[test]
fn cluster_whose_certificates_have_ended_goes_on_once_they_are_renewed() {
    let mut ended = Ending::start_with("30s", 2);
    let tls_files = ended.place.path().join("tls");
    let ca = tls_files.join("ca.pem");
    let list = |ended: &Ending| {
        let mut command = sanderling();
        command.args(["--json", "node", "ls", "--namenode", &ended.cluster.namenode.address]);
        run(command.arg("--tls-ca").arg(&ca))
    };
    assert_eq!(list(&ended).stdout.matches("\"active\"").count(), 2);
    until("the end", || ended.warnings("a certificate has ended") == 2);
    ended.cluster.restart_namenode();
    let refused = list(&ended);
    assert!(refused.code != 0 && refused.stderr.contains("has ended"), "{refused}");
    let next = ended.place.path().join("next");
    tls(&["new", "--out", &text_of(&next)]);
    for name in ["ca.pem", "node.key", "node.pem"] {
        put(bytes(&next.join(name)), &tls_files.join(name));
    }
    // The same processes join again: the namenode identifies them by their numbers.
    until("they joined again", || {
        let registered = |server: &Server| server.log().contains("registered again");
        ended.cluster.datanodes.iter().all(registered)
    });
    assert_eq!(list(&ended).stdout.matches("\"active\"").count(), 2);
}

#[test]
fn renewal_needs_the_authority_s_own_key() {
    let place = TempDir::new().expect("a directory for the test");
    let [one, two, out] = ["one", "two", "out"].map(|name| text(place.path().join(name)));
    tls(&["new", "--out", &one, "--expires", "30d"]);
    tls(&["new", "--out", &two]);
    put(bytes(Path::new(&format!("{two}/ca.key"))), Path::new(&format!("{one}/ca.key")));
    let renew = ["tls", "renew", "--authority", &one, "--out", &out];
    let refused = run(sanderling().args(renew));
    assert!(refused.code == 1 && refused.stderr.contains("not believed"), "{refused}");
    assert!(!Path::new(&out).exists());
    // No certificate outlives its authority.
    tls(&["new", "--out", &out, "--expires", "30d"]);
    let renewed = text(place.path().join("renewed"));
    tls(&["renew", "--authority", &out, "--out", &renewed, "--expires", "365d"]);
    let file = Path::new(&renewed).join("node.pem");
    let dates = sanderling_transport::read_validities(&file).expect("dates");
    assert_eq!(days(dates[0].ends.try_into().expect("after 1970")), 30);
}
