//! Real processes with a secret: the claims of the tokens that servers and commands make for
//! themselves.

use crate::cluster;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use crate::cluster::guarded::Guarded;
use crate::cluster::{Cluster, Ran, SOON, Shape, run, sanderling};
use crate::hogs::clock::Clock;
use sanderling_core::access::{Claims, Rights, TokenRole, parts};
use sanderling_protocol::Token;

/// How long a token may hold that names no cluster: an hour, and the time that the test takes.
const ANYWHERE_SECONDS_MAX: u64 = 3600 + 60;

/// A way to a namenode on which greetings are read.
#[derive(Clone)]
struct Tap {
    address: String,
    state: Arc<Mutex<State>>,
}

struct State {
    target: String,
    /// The claims of the tokens that were shown, in their order.
    shown: Vec<Claims>,
    open: Vec<TcpStream>,
}

impl Tap {
    fn to(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound").to_string();
        let state = State { target: target.to_owned(), shown: Vec::new(), open: Vec::new() };
        let tap = Self { address, state: Arc::new(Mutex::new(state)) };
        let own = tap.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                own.join(stream);
            }
        });
        tap
    }

    /// Passes a connection on.
    fn join(&self, caller: TcpStream) {
        let target = self.state.lock().expect("not poisoned").target.clone();
        let Ok(server) = TcpStream::connect(&target) else { return };
        let copy = |stream: &TcpStream| stream.try_clone().expect("a descriptor is free");
        {
            let mut state = self.state.lock().expect("not poisoned");
            if state.target != target {
                // It would lead to where no connection leads any more.
                return;
            }
            state.open.extend([copy(&caller), copy(&server)]);
        }
        let (answers, back) = (copy(&server), copy(&caller));
        std::thread::spawn(move || pass(answers, back, |_| {}));
        let (tap, mut sent) = (self.clone(), Vec::new());
        std::thread::spawn(move || {
            let mut is_found = false;
            pass(caller, server, |bytes| {
                if !is_found {
                    sent.extend_from_slice(bytes);
                    if let Some(claims) = claims(&sent) {
                        is_found = true;
                        tap.state.lock().expect("not poisoned").shown.push(claims);
                    }
                }
            });
        });
    }

    /// Ends all connections; those that come lead to `target`.
    fn lead_to(&self, target: &str) {
        let mut state = self.state.lock().expect("not poisoned");
        state.target = target.to_owned();
        for stream in state.open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn shown(&self, part: TokenRole) -> Vec<Claims> {
        let state = self.state.lock().expect("not poisoned");
        state.shown.iter().filter(|claims| claims.role == part).cloned().collect()
    }

    /// Waits until so many tokens for a cluster were shown by servers of a part.
    fn until_bound(&self, part: TokenRole, cluster: &str, count: usize) {
        let limit = Instant::now() + SOON;
        loop {
            let shown = self.shown(part);
            let named = shown.iter().filter_map(|claims| claims.lineage.cluster);
            if named.filter(|named| format!("{:016x}", named.0) == cluster).count() >= count {
                return;
            }
            assert!(Instant::now() < limit, "{part} shows tokens of cluster {cluster}: {shown:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn unbound(&self, part: TokenRole) -> Vec<Claims> {
        let shown = self.shown(part);
        shown.into_iter().filter(|claims| claims.lineage.cluster.is_none()).collect()
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, mut look: impl FnMut(&[u8])) {
    let mut bytes = [0; 64 << 10];
    loop {
        match from.read(&mut bytes) {
            Ok(0) => break,
            Ok(read) => {
                look(&bytes[..read]);
                if to.write_all(&bytes[..read]).is_err() {
                    break;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// Finds the token in what a caller sent: three texts in base64, of which the last has the 43
/// letters of a signature.
fn claims(sent: &[u8]) -> Option<Claims> {
    let begin = sent.windows(3).position(|bytes| bytes == b"eyJ")?;
    let is_token = |byte: &&u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let word: Vec<u8> = sent[begin..].iter().take_while(is_token).copied().collect();
    let word = String::from_utf8(word).expect("ASCII");
    let (signed, signature) = word.rsplit_once('.')?;
    let token = Token::new(&format!("{signed}.{}", signature.get(..43)?));
    parts(&token).and_then(|parts| parts.claims()).ok()
}

fn id_of(cluster: &Cluster) -> String {
    let health = cluster::block_on(cluster::http::get(&cluster.namenode.http_address, "/healthz"));
    health["cluster"].as_str().expect("an id").to_owned()
}

/// Returns the seconds since 1970.
fn now() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.expect("after 1970").as_secs()
}

/// Makes a token of an operator with the cluster's secret.
fn new_token(guarded: &Guarded, flags: &[&str]) -> Ran {
    let words = ["token", "new", "--secret-file", &guarded.secret, "--role", "admin"];
    run(sanderling().args(words).args(flags))
}

#[test]
fn command_that_makes_a_token_shows_the_namenode_no_right_and_for_an_hour_at_most() {
    let guarded = Guarded::start(0);
    let tap = Tap::to(&guarded.cluster.namenode.address);
    let made = new_token(&guarded, &["--namenode", &tap.address]);
    assert_eq!(made.code, 0, "{made}");
    let shown = tap.state.lock().expect("not poisoned").shown.clone();
    assert!(!shown.is_empty(), "the command greets the namenode");
    for claims in &shown {
        let is_of_none = claims.role == TokenRole::Client && claims.rights == Rights::default();
        let ends = claims.expires_at;
        assert!(is_of_none && ends <= now() + ANYWHERE_SECONDS_MAX, "{claims:?}");
    }
}

#[test]
fn token_is_made_on_a_machine_whose_clock_is_behind() {
    let Some(clock) = Clock::ahead_by_hours(0) else { return eprintln!("SKIPPED: no C compiler") };
    let guarded = Guarded::start(0);
    clock.set_seconds(-600);
    let words = ["token", "new", "--secret-file", &guarded.secret, "--role", "admin"];
    let mut command = sanderling();
    command.args(words).args(["--namenode", &guarded.cluster.namenode.address]);
    let made = run(command.envs(clock.variables()));
    assert_eq!(made.code, 0, "{made}");
}

#[test]
fn command_that_makes_a_token_sends_nothing_to_another_machine_without_encryption() {
    let guarded = Guarded::start(0);
    // This finds the machine's own address, and sends nothing. No machine has the other one (RFC
    // 5737).
    let own = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.1:9")?;
        socket.local_addr()
    });
    let own = own.ok().map(|own| own.ip()).filter(|own| !own.is_loopback());
    let listener = own.and_then(|own| TcpListener::bind((own, 0)).ok());
    let bound = |it: &TcpListener| it.local_addr().expect("it is bound").to_string();
    let address = listener.as_ref().map_or_else(|| "192.0.2.1:7600".to_owned(), bound);
    let refused = new_token(&guarded, &["--namenode", &address]);
    let why = format!("a token would go to {address} without encryption");
    assert!(refused.code == 1 && refused.stderr.contains(&why), "{refused}");
    let next = refused.stderr.lines().find(|line| line.contains("next:")).unwrap_or_default();
    assert!(next.contains("--tls-ca PEM") && next.contains("--cluster ID"), "{refused}");
    if let Some(listener) = listener {
        listener.set_nonblocking(true).expect("set");
        let came = listener.accept();
        assert!(came.is_err(), "something was sent: {came:?}");
    }
    // Nothing needs to be requested for a cluster that is named.
    let made = new_token(&guarded, &["--namenode", &address, "--cluster", "any"]);
    assert_eq!(made.code, 0, "{made}");
}

#[test]
fn servers_name_the_cluster_in_their_tokens_once_they_have_asked_for_it() {
    let guarded = Guarded::start(0);
    let (cluster, id) = (&guarded.cluster, id_of(&guarded.cluster));
    let tap = Tap::to(&cluster.namenode.address);
    let secret = ["--namenode", &tap.address, "--secret-file", &guarded.secret];
    let words = ["datanode", "--name", "n0", "--dram", "16MiB"];
    let _datanode = cluster.serve("n0", &[&words[..], &secret].concat());
    let _manager = cluster.serve("manager", &[&["manager"], &secret[..]].concat());
    for part in [TokenRole::Datanode, TokenRole::Manager] {
        tap.until_bound(part, &id, 1);
        let unbound = tap.unbound(part);
        assert_eq!(unbound.len(), 1, "{part}: {unbound:?}");
        let end = unbound[0].expires_at;
        assert!(end <= now() + ANYWHERE_SECONDS_MAX, "{part} until {end}");
    }
    // They connect again, and have it.
    tap.lead_to(&cluster.namenode.address);
    for part in [TokenRole::Datanode, TokenRole::Manager] {
        tap.until_bound(part, &id, 2);
        assert_eq!(tap.unbound(part).len(), 1, "{part}");
    }
    // A manager goes on where another cluster with the secret has taken the address.
    let words = vec!["--secret-file".to_owned(), guarded.secret.clone()];
    let there = Cluster::start(Shape { datanodes: 0, namenode: words, ..Shape::default() });
    tap.lead_to(&there.namenode.address);
    tap.until_bound(TokenRole::Manager, &id_of(&there), 1);
    assert_eq!(tap.unbound(TokenRole::Manager).len(), 2);
}
