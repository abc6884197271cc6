//! Real processes with a secret: who is let in, and to what.

mod cluster;

use std::path::PathBuf;

use cluster::{Cluster, Ran, SOON, Shape, block_on, bytes_of, http, path, run, sanderling};
use sanderling_client::{Client, ClientConfig, ClientError, PutOptions};
use sanderling_protocol::refusal::Recovery;
use sanderling_protocol::{Refusal, Token};
use sanderling_transport::{ClientTls, Credentials, TLS_NAME, TokenSource};
use tempfile::TempDir;

/// A cluster whose servers have a secret, and who makes tokens for it.
struct Guarded {
    cluster: Cluster,
    secret: String,
    /// The authority, where the doors have TLS.
    authority: Option<PathBuf>,
    place: TempDir,
}

fn text(path: PathBuf) -> String {
    path.into_os_string().into_string().expect("a name in UTF-8")
}

/// Lets the harness take it, which keeps flags for as long as the test runs.
fn kept(text: &str) -> &'static str {
    Box::leak(text.to_owned().into_boxed_str())
}

impl Guarded {
    /// Starts servers with a secret.
    fn start(datanodes: usize) -> Self {
        Self::start_with(datanodes, false, &[])
    }

    /// Starts servers with a secret and certificates.
    fn encrypted(datanodes: usize, flags: &[&'static str]) -> Self {
        Self::start_with(datanodes, true, flags)
    }

    fn start_with(datanodes: usize, has_tls: bool, flags: &[&'static str]) -> Self {
        let place = TempDir::new().expect("a directory for the test");
        let secret = text(place.path().join("secret"));
        let made = run(sanderling().args(["token", "secret", "--out", &secret]));
        assert_eq!(made.code, 0, "{made}");
        let mut all = vec!["--secret-file", kept(&secret)];
        if has_tls {
            let out = text(place.path().join("tls"));
            let made = run(sanderling().args(["tls", "new", "--out", &out]));
            assert_eq!(made.code, 0, "{made}");
            for (flag, name) in
                [("--tls-ca", "ca.pem"), ("--tls-cert", "node.pem"), ("--tls-key", "node.key")]
            {
                all.extend([flag, kept(&format!("{out}/{name}"))]);
            }
        }
        let namenode = all.iter().map(|word| (*word).to_owned()).collect();
        let datanode = [&all[..], flags].concat();
        let cluster = Cluster::start(Shape { datanodes, namenode, datanode, ..Shape::default() });
        let authority = has_tls.then(|| place.path().join("tls/ca.pem"));
        Self { cluster, secret, authority, place }
    }

    /// Makes a token with the command, as an operator does.
    fn token(&self, flags: &[&str]) -> Token {
        let made = run(sanderling()
            .args(["token", "new", "--secret-file", &self.secret, "-q"])
            .args(flags));
        assert_eq!(made.code, 0, "{made}");
        Token::new(&made.stdout)
    }

    fn config(&self, token: &Token) -> ClientConfig {
        let token = Some(TokenSource::Given(token.clone()));
        let tls = self.authority.as_deref();
        let tls = tls.map(|ca| ClientTls::read(ca, TLS_NAME).expect("made by tls new"));
        ClientConfig { credentials: Credentials { token, tls }, ..ClientConfig::default() }
    }

    async fn client(&self, flags: &[&str]) -> Client {
        self.cluster.client_of(self.config(&self.token(flags))).await
    }

    /// Runs a command with a token in its environment.
    fn cli(&self, token: Option<&Token>, words: &[&str]) -> Ran {
        let mut command = sanderling();
        command.args(words).env("SANDERLING_NAMENODE", &self.cluster.namenode.address);
        if let Some(token) = token {
            command.env("SANDERLING_TOKEN", token.reveal());
        }
        if let Some(authority) = &self.authority {
            command.env("SANDERLING_TLS_CA", authority);
        }
        run(&mut command)
    }
}

fn is_forbidden(error: &ClientError) -> bool {
    assert_eq!(error.recovery(), Recovery::Fix, "{error}");
    matches!(error, ClientError::Refused(Refusal::Forbidden { .. }))
}

#[test]
fn cluster_with_a_secret_serves_who_has_a_token_and_nobody_else() {
    let guarded = Guarded::start(2);
    let bytes = bytes_of(1, 3 << 20);
    block_on(async {
        let client = guarded.client(&[]).await;
        let object = path("/object");
        client.put(&object, bytes.clone(), &PutOptions::default()).await.expect("it is let in");
        assert_eq!(client.get(&object).await.expect("it is let in"), bytes);
    });
    let admin = guarded.token(&["--role", "admin"]);
    let listed = guarded.cli(Some(&admin), &["node", "ls"]);
    assert_eq!(listed.code, 0, "{listed}");
    for (token, why) in [
        (None, "a token is needed"),
        (Some(Token::new("nonsense")), "not one of ours"),
        (Some(Token::new(&format!("{}x", admin.reveal()))), "another secret"),
    ] {
        let refused = guarded.cli(token.as_ref(), &["fs", "ls", "/"]);
        assert_eq!(refused.code, 1, "{refused}");
        assert!(refused.stderr.contains(why), "{refused}");
    }
    let other = text(guarded.place.path().join("other"));
    assert_eq!(run(sanderling().args(["token", "secret", "--out", &other])).code, 0);
    let foreign = run(sanderling().args(["token", "new", "--secret-file", &other]));
    let refused = guarded.cli(Some(&Token::new(&foreign.stdout)), &["fs", "ls", "/"]);
    assert!(refused.stderr.contains("another secret"), "{refused}");
    // A datanode without the secret does not join.
    let words = ["datanode", "--namenode", &guarded.cluster.namenode.address, "--dram", "16MiB"];
    let stranger = run(sanderling().args(words));
    assert_ne!(stranger.code, 0);
    assert!(stranger.stderr.contains("a token is needed"), "{stranger}");
}

#[test]
fn scoped_token_reaches_its_own_subtree_and_none_of_another_s_bytes() {
    let guarded = Guarded::start(1);
    let bytes = bytes_of(2, 2 << 20);
    block_on(async {
        let all = guarded.client(&[]).await;
        let own = guarded.client(&["--subtree", "/jobs/x", "--subject", "x"]).await;
        for name in ["/jobs/x/a", "/jobs/y/a"] {
            let options = PutOptions { parents: true, ..PutOptions::default() };
            all.put(&path(name), bytes.clone(), &options).await.expect("it may");
        }
        assert_eq!(own.get(&path("/jobs/x/a")).await.expect("its own"), bytes);
        let options = PutOptions::default();
        own.put(&path("/jobs/x/b"), bytes.clone(), &options).await.expect("its own");
        assert_eq!(own.get(&path("/jobs/x/b")).await.expect("its own"), bytes);
        assert!(is_forbidden(&own.get(&path("/jobs/y/a")).await.unwrap_err()));
        assert!(is_forbidden(&own.put(&path("/a"), bytes.clone(), &options).await.unwrap_err()));
        assert!(is_forbidden(&own.list_all(&path("/jobs")).await.unwrap_err()));
        assert!(is_forbidden(&own.nodes(false).await.unwrap_err()));
        let reader = guarded.client(&["--subtree", "/jobs/x", "--rights", "read"]).await;
        assert_eq!(reader.get(&path("/jobs/x/a")).await.expect("it may read"), bytes);
        let refused = reader.put(&path("/jobs/x/c"), bytes.clone(), &options).await.unwrap_err();
        assert!(is_forbidden(&refused));
    });
}

#[test]
fn pages_of_http_ask_for_the_same_tokens() {
    let guarded = Guarded::start(1);
    let admin = guarded.token(&["--role", "admin"]);
    let metrics = guarded.token(&["--subtree", "/jobs/x", "--rights", "metrics"]);
    let scoped = guarded.token(&["--subtree", "/jobs/x"]);
    let ended = guarded.token(&["--role", "admin", "--expires", "1s"]);
    let namenode = guarded.cluster.namenode.http_address.clone();
    let datanode = guarded.cluster.datanodes[0].http_address.clone();
    // [health, a page to look at, a page that changes something]
    let pages = [
        (&namenode, ["/healthz", "/metrics", "/v1/nodes/1/cancel"]),
        (&namenode, ["/healthz", "/v1/report", "/v1/nodes/1/decommission"]),
        (&namenode, ["/healthz", "/v1/nodes", "/v1/nodes/1/notice"]),
        (&datanode, ["/healthz", "/metrics", "/v1/notice"]),
    ];
    block_on(async {
        until_ended(&guarded, &ended).await;
        for (address, [health, look, change]) in pages {
            for (token, looks, changes) in [
                (None, "401", "401"),
                (Some("x.y.z"), "401", "401"),
                (Some(ended.reveal()), "401", "401"),
                (Some(scoped.reveal()), "403", "403"),
                (Some(metrics.reveal()), "200", "403"),
            ] {
                let ask = async |method, target| http::shown(address, method, target, token).await;
                assert!(ask("GET", health).await.starts_with("HTTP/1.1 200"), "{health}");
                for (method, page, status) in [("GET", look, looks), ("POST", change, changes)] {
                    let answer = ask(method, page).await;
                    let begin = format!("HTTP/1.1 {status}");
                    assert!(answer.starts_with(&begin), "{method} {page}: {answer}");
                    let is_error = answer.contains("{\"error\":{\"code\":16");
                    assert_eq!(is_error, status != "200", "{answer}");
                    let asks = answer.to_lowercase().contains("www-authenticate: bearer");
                    assert_eq!(asks, status == "401", "{answer}");
                }
            }
        }
        let token = Some(admin.reveal());
        let cancel = http::shown(&namenode, "POST", "/v1/nodes/1/decommission", token).await;
        assert!(cancel.starts_with("HTTP/1.1 200"), "{cancel}");
    });
}

/// Waits until a token has expired.
async fn until_ended(guarded: &Guarded, token: &Token) {
    let limit = std::time::Instant::now() + SOON;
    let config = guarded.config(token);
    let address = &guarded.cluster.namenode.address;
    while Client::connect(address, config.clone()).await.is_ok() {
        assert!(std::time::Instant::now() < limit, "the token expires");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[test]
fn cluster_with_tls_takes_a_notice_and_a_kill() {
    let mut guarded = Guarded::encrypted(3, &[]);
    let bytes = bytes_of(3, 6 << 20);
    let object = path("/object");
    block_on(async {
        let client = guarded.client(&["--role", "admin"]).await;
        client.put(&object, bytes.clone(), &PutOptions::default()).await.expect("put");
        assert_eq!(client.get(&object).await.expect("get"), bytes);
        let nodes = client.nodes(false).await.expect("an admin's token");
        let held = nodes.iter().find(|node| node.blocks > 0).expect("some node has it");
        let name = held.name.clone();
        let admin = guarded.token(&["--role", "admin"]);
        let words = ["node", "notice", &name, "--deadline", "60s", "--wait"];
        let noticed = guarded.cli(Some(&admin), &words);
        assert_eq!(noticed.code, 0, "{noticed}");
        guarded.cluster.datanode(&name).kill();
        let fresh = guarded.client(&[]).await;
        assert_eq!(fresh.get(&object).await.expect("it was moved over TLS"), bytes);
        let big = bytes_of(4, 20 << 20);
        fresh.put(&path("/big"), big.clone(), &PutOptions::default()).await.expect("put");
        assert_eq!(fresh.get(&path("/big")).await.expect("get"), big);
    });
}

#[test]
fn ends_that_do_not_agree_on_tls_say_so() {
    let guarded = Guarded::encrypted(1, &[]);
    let token = guarded.token(&[]);
    let address = guarded.cluster.namenode.address.clone();
    let ask = |namenode: &str, authority: Option<&str>, name: &str| {
        let mut command = sanderling();
        command.args(["fs", "ls", "/", "--namenode", namenode, "--tls-name", name]);
        command.env("SANDERLING_TOKEN", token.reveal());
        if let Some(authority) = authority {
            command.args(["--tls-ca", authority]);
        }
        let ran = run(&mut command);
        assert!(ran.took < SOON, "{ran}");
        ran
    };
    let own = text(guarded.authority.clone().expect("it has one"));
    let good = ask(&address, Some(&own), TLS_NAME);
    assert_eq!(good.code, 0, "{good}");
    let plain = ask(&address, None, TLS_NAME);
    assert!(plain.stderr.contains("this port speaks TLS"), "{plain}");
    let other = text(guarded.place.path().join("other"));
    assert_eq!(run(sanderling().args(["tls", "new", "--out", &other])).code, 0);
    let wrong = ask(&address, Some(&format!("{other}/ca.pem")), TLS_NAME);
    assert!(wrong.stderr.contains("its certificate is not believed"), "{wrong}");
    let name = ask(&address, Some(&own), "elsewhere");
    assert!(name.stderr.contains("its certificate is not believed"), "{name}");
    let plain = Guarded::start(0);
    let refused = ask(&plain.cluster.namenode.address, Some(&own), TLS_NAME);
    assert!(refused.stderr.contains("it does not speak TLS"), "{refused}");
    block_on(async {
        let http = &guarded.cluster.namenode.http_address;
        let answer = http::shown(http, "GET", "/healthz", None).await;
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("https"), "{answer}");
    });
}
