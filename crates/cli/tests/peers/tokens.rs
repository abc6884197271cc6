//! Real processes with a secret: tokens that are taken back, of other clusters, of other secrets.

use std::time::{Duration, Instant};

use crate::cluster::guarded::{Guarded, Line, kept, text};
use crate::cluster::{Cluster, SOON, Shape, block_on, bytes_of, http, path, run, sanderling};
use sanderling_client::{Client, PutOptions};
use sanderling_core::access::join;
use sanderling_protocol::frame::{decode_body, encode_body};
use sanderling_protocol::message::BlockLocation;
use sanderling_protocol::{Header, Millis, Op, Refusal, Reply, Request, Token};
use sanderling_transport::CallError;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// How soon a datanode has a revocation that the namenode accepted: it requests the list every half
/// second. The limit of the test is longer, because the machine may be busy.
const KNOWN_WITHIN: Duration = Duration::from_secs(20);

/// Makes a token in a file of its own.
pub(crate) fn in_file(guarded: &Guarded, name: &str, flags: &[&str]) -> (String, Token) {
    let file = text(guarded.place.path().join(name));
    guarded.token(&[&["--out", &file], flags].concat());
    let token = Token::new(&std::fs::read_to_string(&file).expect("written"));
    (file, token)
}

/// Runs a command as an operator, which must succeed.
pub(crate) fn operate(guarded: &Guarded, admin: &Token, words: &[&str]) -> String {
    let ran = guarded.cli(Some(admin), words);
    assert_eq!(ran.code, 0, "{ran}");
    ran.stdout
}

pub(crate) async fn stored(client: &Client, name: &str) -> BlockLocation {
    let options = PutOptions { parents: true, ..PutOptions::default() };
    client.put(&path(name), bytes_of(1, 1 << 20), &options).await.expect("it may");
    let layout = client.request(Request::Lookup { path: path(name), offset: 0, bytes: 1 });
    let Ok(Reply::Layout(mut layout)) = layout.await else { panic!("it is there") };
    layout.blocks.remove(0)
}

pub(crate) async fn read(line: &Line, block: &BlockLocation) -> Result<Vec<u8>, Refusal> {
    let mut header = Header::new(Op::Read, 0);
    (header.block, header.epoch, header.length) = (block.block, block.epoch, 9);
    line.call(header, Vec::new()).await
}

pub(crate) async fn call(line: &Line, request: Request) -> Result<Reply, Refusal> {
    let answers = line.call(Header::new(Op::Meta, 0), encode_body(&vec![request])).await?;
    decode_body::<Vec<Result<Reply, Refusal>>>(&answers).expect("a list").remove(0)
}

fn was_revoked<T: std::fmt::Debug>(answer: Result<T, Refusal>) -> bool {
    match answer.expect_err("it is refused") {
        Refusal::Unauthenticated { why } => why.contains("was revoked"),
        other => panic!("{other}"),
    }
}

/// Waits until a datanode has a revocation, and keeps it.
async fn until_revoked(line: &Line, block: &BlockLocation) {
    let limit = Instant::now() + KNOWN_WITHIN;
    loop {
        match read(line, block).await {
            Ok(_) => assert!(Instant::now() < limit, "the datanode gets it"),
            refused => break assert!(was_revoked(refused)),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn revoked_token_loses_its_rights_in_open_sessions_everywhere_and_others_keep_theirs() {
    let mut guarded = Guarded::start(1);
    let admin = guarded.token(&["--role", "admin", "--subject", "operator"]);
    let (file, token) =
        in_file(&guarded, "token", &["--subject", "tenant", "--rights", "read,write,metrics"]);
    let other = guarded.token(&["--subject", "tenant"]);
    let namenode = guarded.cluster.namenode.address.clone();
    let datanode = guarded.cluster.datanodes[0].address.clone();
    let stat = || Request::Stat { path: path("/a") };
    let block = block_on(async {
        let line = async |address: &str, token: &Token| {
            Line::to(&guarded, address, token).await.unwrap_or_else(|error| panic!("{error}"))
        };
        let own = guarded.cluster.client_of(guarded.config(&token)).await;
        let block = stored(&own, "/a").await;
        // A token of a token, under another subject: it must not outlive the one it is from.
        let asked = sanderling_protocol::token::MintToken {
            subject: "task".to_owned(),
            subtree: path("/"),
            rights: vec!["read".to_owned(), "metrics".to_owned()],
            lifetime: Millis(3_600_000),
        };
        let minted = own.mint_token(asked).await.expect("narrower");
        let mut lines = Vec::new();
        for token in [&token, &minted, &other] {
            let (meta, data) = (line(&namenode, token).await, line(&datanode, token).await);
            assert!(call(&meta, stat()).await.is_ok());
            assert!(read(&data, &block).await.is_ok());
            lines.push((meta, data));
        }
        let events = Request::Events { after: 1 << 40, limit: 9, wait: Millis(15_000) };
        let mut stream = follow(&guarded.cluster.namenode.http_address, &minted).await;
        let waiter = line(&namenode, &minted).await;
        let (waited, ()) = tokio::join!(call(&waiter, events), async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            operate(&guarded, &admin, &["token", "revoke", "--file", &file]);
        });
        // A follower of events whose token was revoked sees none.
        assert!(was_revoked(waited));
        // At the namenode at once, in the sessions that are open too.
        for (meta, _) in &lines[..2] {
            assert!(was_revoked(call(meta, stat()).await));
        }
        for (meta, data) in &lines[..2] {
            until_revoked(data, &block).await;
            assert!(was_revoked(call(meta, stat()).await));
        }
        for (address, page) in [
            (&guarded.cluster.namenode.http_address, "/v1/report"),
            (&guarded.cluster.datanodes[0].http_address, "/metrics"),
        ] {
            let answer = http::shown(address, "GET", page, Some(minted.reveal())).await;
            assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
        }
        assert!(Line::to(&guarded, &namenode, &token).await.is_err());
        assert!(Line::to(&guarded, &datanode, &token).await.is_err());
        // A new event ends the stream instead of being sent on it.
        operate(&guarded, &admin, &["node", "recommend", "n0", "--reason", "hidden"]);
        let mut rest = String::new();
        let ended = tokio::time::timeout(SOON, stream.read_to_string(&mut rest)).await;
        ended.expect("the stream ends").expect("read");
        assert!(!rest.contains("hidden"), "{rest}");
        let (meta, data) = &lines[2];
        assert!(call(meta, stat()).await.is_ok() && read(data, &block).await.is_ok());
        block
    });
    stays_until_undone(&mut guarded, &admin, (&file, &token), &block);
}

/// Restarts the namenode, which still has the revocation, and withdraws it.
fn stays_until_undone(
    guarded: &mut Guarded,
    admin: &Token,
    (file, token): (&str, &Token),
    block: &BlockLocation,
) {
    // Every reader of the log has it as well, and so does a datanode of the namenode's next life.
    guarded.cluster.restart_namenode();
    let listed = operate(guarded, admin, &["token", "revoked", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!(listed["revoked"].as_array().map(Vec::len), Some(1), "{listed}");
    let refused = guarded.cli(Some(token), &["fs", "ls", "/"]);
    assert!(refused.code == 1 && refused.stderr.contains("was revoked"), "{refused}");
    // A mistake is mended.
    operate(guarded, admin, &["token", "revoke", "--file", file, "--undo"]);
    operate(guarded, token, &["fs", "ls", "/"]);
    block_on(async {
        let limit = Instant::now() + KNOWN_WITHIN;
        loop {
            let line = Line::to(guarded, &guarded.cluster.datanodes[0].address, token).await;
            match line {
                Ok(line) => break assert!(read(&line, block).await.is_ok()),
                Err(error) => assert!(Instant::now() < limit, "{error}"),
            }
        }
    });
}

/// Follows the events over HTTP, until the first is there.
async fn follow(address: &str, token: &Token) -> tokio::net::TcpStream {
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("it is open");
    let token = token.reveal();
    let head = format!(
        "GET /v1/events HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("sent");
    let (mut seen, mut bytes) = (String::new(), [0; 4096]);
    while !seen.contains("data:") {
        let read = stream.read(&mut bytes).await.expect("read");
        assert!(read > 0, "{seen}");
        seen.push_str(&String::from_utf8_lossy(&bytes[..read]));
    }
    stream
}

#[test]
fn subject_is_revoked_by_an_administrator_and_servers_are_not_locked_out() {
    let guarded = Guarded::start(1);
    let admin = guarded.token(&["--rights", "admin"]);
    let tenant = guarded.token(&["--subject", "tenant"]);
    let revoke = |token: &Token, subject: &str| {
        guarded.cli(Some(token), &["token", "revoke", "--subject", subject])
    };
    let refused = revoke(&tenant, "tenant");
    assert!(refused.code == 1 && refused.stderr.contains("not allowed"), "{refused}");
    for subject in ["datanode", "namenode", ""] {
        let refused = revoke(&admin, subject);
        assert_eq!(refused.code, 1, "{refused}");
    }
    operate(&guarded, &tenant, &["fs", "ls", "/"]);
    assert_eq!(revoke(&admin, "tenant").code, 0);
    // Also one that is made afterwards.
    for token in [&tenant, &guarded.token(&["--subject", "tenant"])] {
        let refused = guarded.cli(Some(token), &["fs", "ls", "/"]);
        assert!(refused.code == 1 && refused.stderr.contains("was revoked"), "{refused}");
    }
    operate(&guarded, &guarded.token(&["--subject", "another"]), &["fs", "ls", "/"]);
}

#[test]
fn minted_token_shows_the_number_by_which_it_is_revoked() {
    let guarded = Guarded::start(0);
    let admin = guarded.token(&["--rights", "admin", "--subject", "operator"]);
    let tenant = guarded.token(&["--subject", "tenant"]);
    let words = ["token", "mint", "--subtree", "/job", "--rights", "read", "--expires", "1h"];
    let minted = operate(&guarded, &tenant, &[&words[..], &["--json"]].concat());
    let minted: serde_json::Value = serde_json::from_str(&minted).expect("JSON");
    let word = |key: &str| minted[key].as_str().unwrap_or_else(|| panic!("no {key}: {minted}"));
    assert_eq!((word("role"), word("subtree")), ("client", "/job"), "{minted}");
    assert_eq!(minted["rights"], serde_json::json!(["read"]), "{minted}");
    assert!(minted["expires_at_unix_seconds"].is_u64(), "{minted}");
    assert_eq!(word("cluster").len(), 16, "{minted}");
    let token = Token::new(word("token"));
    operate(&guarded, &tenant, &["fs", "mkdir", "/job"]);
    operate(&guarded, &token, &["fs", "ls", "/job"]);
    operate(&guarded, &admin, &["token", "revoke", "--id", word("id")]);
    let refused = guarded.cli(Some(&token), &["fs", "ls", "/job"]);
    assert!(refused.code == 1 && refused.stderr.contains("was revoked"), "{refused}");
    // It alone: not the one that it was minted from.
    operate(&guarded, &tenant, &["fs", "ls", "/job"]);
}

/// Refuses a command for what the token does not allow.
#[track_caller]
pub(crate) fn is_refused(guarded: &Guarded, token: &Token, words: &[&str], why: &str) {
    let ran = guarded.cli(Some(token), words);
    assert!(ran.code == 1 && ran.stderr.contains(why), "{words:?}: {ran}");
}

#[test]
fn tokens_of_servers_change_no_objects_and_no_jobs_and_mint_no_tokens() {
    let guarded = Guarded::start(1);
    let tenant = guarded.token(&[]);
    operate(&guarded, &tenant, &["fs", "put", "/proc/version", "/kept"]);
    for role in ["datanode", "manager"] {
        let token = guarded.token(&["--role", role]);
        let why = format!("({role})");
        for words in [
            &["fs", "put", "/proc/version", "/new"][..],
            &["fs", "put", "--force", "/proc/version", "/kept"],
            &["fs", "mkdir", "/directory"],
            &["fs", "mv", "/kept", "/moved"],
            &["fs", "rm", "/kept"],
            &["job", "new", "/job"],
            &["job", "end", "1"],
            &["token", "mint", "--subtree", "/", "--rights", "read"],
            &["token", "revoke", "--subject", "tenant"],
        ] {
            is_refused(&guarded, &token, words, &why);
        }
        // What both do look at.
        operate(&guarded, &token, &["node", "ls"]);
        let file = &guarded.secret;
        let words = ["token", "new", "--secret-file", file, "--role", role, "--rights", "metrics"];
        let made = guarded.cli(None, &words);
        assert!(made.code == 2 && made.stderr.contains("leave --rights out"), "{made}");
    }
    let datanode = guarded.token(&["--role", "datanode"]);
    is_refused(&guarded, &datanode, &["fs", "cat", "/kept"], "has no right to read");
    let listed = operate(&guarded, &tenant, &["fs", "ls", "/"]);
    assert!(listed.contains("kept"), "{listed}");
    assert!(!["new", "directory", "moved"].iter().any(|name| listed.contains(name)), "{listed}");
}

#[test]
fn writer_stores_files_without_the_right_to_read() {
    let guarded = Guarded::start(1);
    let tenant = guarded.token(&[]);
    operate(&guarded, &tenant, &["fs", "mkdir", "/d"]);
    let writer = guarded.token(&["--rights", "write"]);
    let small = text(guarded.place.path().join("small"));
    std::fs::write(&small, "kept").expect("written");
    operate(&guarded, &writer, &["fs", "put", &small, "/d/small"]);
    operate(&guarded, &writer, &["fs", "put", "/proc/version", "/d/stream"]);
    assert_eq!(operate(&guarded, &tenant, &["fs", "cat", "/d/small"]), "kept");
    let version = std::fs::read_to_string("/proc/version").expect("of Linux");
    assert_eq!(operate(&guarded, &tenant, &["fs", "cat", "/d/stream"]), version);
    // What is there is refused by its creation.
    is_refused(&guarded, &writer, &["fs", "put", &small, "/d/stream"], "/d/stream exists");
    is_refused(&guarded, &writer, &["fs", "put", &small, "/d"], "/d is a directory");
    is_refused(&guarded, &writer, &["fs", "put", "--force", &small, "/d"], "/d is a directory");
    operate(&guarded, &writer, &["fs", "put", "--force", &small, "/d/stream"]);
    // Where the name depends on what is there, it has to be looked up.
    for words in [
        &["fs", "put", &small, "/d/"][..],
        &["fs", "put", &small, "/proc/version", "/d"],
        &["fs", "put", "-r", &small, "/d"],
    ] {
        is_refused(&guarded, &writer, words, "has no right to read");
    }
    // With the right to read, a directory takes the file, as ever.
    operate(&guarded, &tenant, &["fs", "put", "/proc/version", "/d"]);
    assert_eq!(operate(&guarded, &tenant, &["fs", "cat", "/d/version"]), version);
}

#[test]
fn reader_lists_the_jobs_of_its_subtree_and_ends_none() {
    let guarded = Guarded::start(1);
    let tenant = guarded.token(&[]);
    let job = operate(&guarded, &tenant, &["job", "new", "/x", "--lease", "1h", "--names", "9"]);
    operate(&guarded, &tenant, &["job", "new", "/y", "--lease", "1h"]);
    let cases: [(&[&str], &[&str]); 5] = [
        (&["--rights", "read"], &["/x", "/y"]),
        (&["--rights", "metrics"], &["/x", "/y"]),
        (&["--rights", "read", "--subtree", "/x"], &["/x"]),
        (&["--rights", "write", "--subtree", "/y"], &["/y"]),
        (&["--rights", "read", "--subtree", "/z"], &[]),
    ];
    for (flags, paths) in cases {
        let token = guarded.token(flags);
        let listed = operate(&guarded, &token, &["job", "ls", "--json"]);
        let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
        let jobs = listed["jobs"].as_array().expect("a list");
        let mut found: Vec<&str> = jobs.iter().filter_map(|it| it["path"].as_str()).collect();
        found.sort_unstable();
        assert_eq!(found, paths, "{flags:?}");
    }
    let reader = guarded.token(&["--rights", "read"]);
    is_refused(&guarded, &reader, &["job", "end", job.trim()], "(client)");
}

/// Signs a token of a release to come, which has more claims than this one supports.
fn token_to_come(guarded: &Guarded) -> Token {
    let known = guarded.token(&["--role", "admin"]);
    let (header, _) = known.reveal().split_once('.').expect("three texts");
    let year = 365 * 24 * 3600;
    let payload = serde_json::json!({
        "sub": "a", "role": "admin", "path": "/", "rights": ["read", "write"],
        "exp": sanderling_transport::unix_seconds() + year, "more": 1,
    });
    // The second text is written as the third is.
    let signed = join(header, payload.to_string().as_bytes());
    let secret = std::fs::read_to_string(&guarded.secret).expect("written");
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret.trim().as_bytes());
    join(signed.reveal(), ring::hmac::sign(&key, signed.reveal().as_bytes()).as_ref())
}

/// A server treats it as those of the release before treat tokens of this one.
#[test]
fn token_of_a_newer_release_is_refused_as_one_that_cannot_be_read() {
    let guarded = Guarded::start(1);
    let token = token_to_come(&guarded);
    let refused = guarded.cli(Some(&token), &["fs", "ls", "/"]);
    let why = "the token's claims cannot be read";
    assert!(refused.code == 1 && refused.stderr.contains(why), "{refused}");
    block_on(async {
        for server in [&guarded.cluster.namenode, &guarded.cluster.datanodes[0]] {
            let Err(CallError::Refused(refusal)) =
                Line::to(&guarded, &server.address, &token).await
            else {
                panic!("it is let in")
            };
            let is_named = matches!(&refusal, Refusal::Unauthenticated { why: it } if it == why);
            assert!(is_named && refusal.code() == 160, "{refusal}");
            let shown = Some(token.reveal());
            let answer = http::shown(&server.http_address, "GET", "/metrics", shown).await;
            assert!(answer.starts_with("HTTP/1.1 401") && answer.contains(why), "{answer}");
        }
    });
}

/// What signed [`EARLIER_TOKEN`].
const EARLIER_SECRET: &str = "89abcdef0123456789abcdef0123456789abcdef0123456789abcdef01234567\n";

/// A token as `sanderling token new` of the previous release writes it, without a number and a
/// cluster: `team-7` may read and write everywhere. Only its end, in 2100, is later than any there.
const EARLIER_TOKEN: &str = concat!(
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.",
    "eyJzdWIiOiJ0ZWFtLTciLCJyb2xlIjoiY2xpZW50IiwicGF0aCI6Ii8iLCJyaWdodHMiOlsi",
    "cmVhZCIsIndyaXRlIl0sImV4cCI6NDEwMjQ0NDgwMH0.",
    "SkEhwSKL9gVD1QgtYEKRhmcMvo8kTBnz7ixENT3p1T8",
);

#[test]
fn token_of_the_previous_release_is_accepted_everywhere_and_revoked_by_its_subject() {
    let guarded = Guarded::start(1);
    let own = std::fs::read_to_string(&guarded.secret).expect("written");
    replace(&guarded, &[&own, EARLIER_SECRET]);
    let token = Token::new(EARLIER_TOKEN);
    let servers = [&guarded.cluster.namenode, &guarded.cluster.datanodes[0]];
    block_on(async {
        for server in servers {
            let limit = Instant::now() + KNOWN_WITHIN;
            while let Err(error) = Line::to(&guarded, &server.address, &token).await {
                assert!(Instant::now() < limit, "{error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            let shown = Some(token.reveal());
            let answer = http::shown(&server.http_address, "GET", "/metrics", shown).await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
        let client = guarded.cluster.client_of(guarded.config(&token)).await;
        let block = stored(&client, "/a").await;
        let line = Line::to(&guarded, &servers[1].address, &token).await;
        let line = line.unwrap_or_else(|error| panic!("{error}"));
        assert!(read(&line, &block).await.is_ok());
    });
    // It has no number by which it could be revoked.
    let admin = guarded.token(&["--role", "admin"]);
    let file = text(guarded.place.path().join("earlier"));
    std::fs::write(&file, EARLIER_TOKEN).expect("written");
    is_refused(&guarded, &admin, &["token", "revoke", "--file", &file], "has no number");
    operate(&guarded, &admin, &["token", "revoke", "--subject", "team-7"]);
    is_refused(&guarded, &token, &["fs", "ls", "/"], "was revoked");
}

#[test]
fn datanode_without_answers_of_the_namenode_trusts_no_token_for_long() {
    let guarded = Guarded::start_with(1, false, &["--revocations-age-max", "8s"]);
    let token = guarded.token(&[]);
    let datanode = &guarded.cluster.datanodes[0].address;
    block_on(async {
        let client = guarded.client(&[]).await;
        let block = stored(&client, "/a").await;
        let line = Line::to(&guarded, datanode, &token).await;
        let line = line.unwrap_or_else(|error| panic!("{error}"));
        assert!(read(&line, &block).await.is_ok());
        guarded.cluster.namenode.pause();
        let began = Instant::now();
        let refused = loop {
            match read(&line, &block).await {
                Ok(_) => assert!(began.elapsed() < KNOWN_WITHIN, "it stops to trust tokens"),
                Err(refusal) => break refusal,
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        assert!(matches!(refused, Refusal::RetryAfter { .. }), "{refused}");
        assert!(refused.to_string().contains("no recent list of revoked tokens"), "{refused}");
        assert!(began.elapsed() > Duration::from_secs(1), "it did so for a while");
        guarded.cluster.namenode.resume();
        let limit = Instant::now() + SOON;
        while let Err(refusal) = read(&line, &block).await {
            assert!(Instant::now() < limit, "{refusal}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}

#[test]
fn token_takes_the_place_of_another_token_and_of_no_secret() {
    let here = Guarded::start(0);
    let place = here.cluster.path("held.token").display().to_string();
    let new = |to: &str| {
        let words = ["token", "new", "--cluster", "any", "--role", "admin", "--out", to];
        run(sanderling().args(words).args(["--secret-file", &here.secret]))
    };
    let secret = std::fs::read(&here.secret).expect("readable");
    let refused = new(&here.secret);
    assert!(refused.code == 1 && refused.stderr.contains("holds no token"), "{refused}");
    assert!(std::fs::read(&here.secret).expect("readable") == secret, "the secret was replaced");
    for _ in 0..2 {
        let made = new(&place);
        assert_eq!(made.code, 0, "{made}");
    }
}

#[test]
fn token_of_another_cluster_with_the_same_secret_opens_nothing() {
    let here = Guarded::start(0);
    let words = vec!["--secret-file".to_owned(), here.secret.clone()];
    let datanode = vec!["--secret-file", kept(&here.secret)];
    let there =
        Cluster::start(Shape { datanodes: 1, namenode: words, datanode, ..Shape::default() });
    let token = here.token(&["--role", "admin"]);
    block_on(async {
        let health = http::get(&there.namenode.http_address, "/healthz").await;
        let id = health["cluster"].as_str().expect("an id").to_owned();
        let bound = here.token(&["--role", "admin", "--cluster", &id]);
        let any = here.token(&["--role", "admin", "--cluster", "any"]);
        let servers = [&there.namenode, &there.datanodes[0]];
        for server in servers {
            let Err(refused) = Line::to(&here, &server.address, &token).await else {
                panic!("a token of another cluster is let in")
            };
            let text = refused.to_string();
            let next = format!("sanderling token new --cluster {id}");
            assert!(text.contains("is for cluster") && text.contains(&next), "{text}");
            for token in [&bound, &any] {
                assert!(Line::to(&here, &server.address, token).await.is_ok());
            }
            for (token, status) in [(&token, "401"), (&bound, "200"), (&any, "200")] {
                let shown = Some(token.reveal());
                let answer = http::shown(&server.http_address, "GET", "/metrics", shown).await;
                assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
            }
        }
        // What is minted from a token holds where that holds.
        let mut command = sanderling();
        command.args(["token", "mint", "--subtree", "/", "-q"]);
        command.env("SANDERLING_NAMENODE", &there.namenode.address);
        let minted = run(command.env("SANDERLING_TOKEN", bound.reveal()));
        assert_eq!(minted.code, 0, "{minted}");
        let minted = Token::new(&minted.stdout);
        assert!(Line::to(&here, &servers[1].address, &minted).await.is_ok());
        assert!(Line::to(&here, &here.cluster.namenode.address, &minted).await.is_err());
    });
    // Without a namenode that reports its cluster, one has to be named.
    let words = ["token", "new", "--secret-file", &here.secret, "--namenode", "127.0.0.1:1"];
    let refused = run(sanderling().args(words));
    assert!(refused.code != 0 && refused.stderr.contains("--cluster ID"), "{refused}");
}

/// Puts another file in place of the secret's, whole.
pub(crate) fn replace(guarded: &Guarded, secrets: &[&str]) {
    let next = guarded.place.path().join("next");
    private(&next, &secrets.concat());
    std::fs::rename(&next, &guarded.secret).expect("put in place");
}

/// Makes an admin's token for a cluster with one secret.
pub(crate) fn signed_by(guarded: &Guarded, cluster: &str, secret: &str) -> Token {
    let file = guarded.place.path().join("signing");
    private(&file, secret);
    let file = text(file);
    let words = ["token", "new", "--secret-file", &file, "--role", "admin", "--cluster", cluster];
    Token::new(&run(sanderling().args(words)).stdout)
}

/// Writes a file that only its owner can read.
pub(crate) fn private(file: &std::path::Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(file, text).expect("written");
    std::fs::set_permissions(file, PermissionsExt::from_mode(0o600)).expect("ours");
}

/// Waits until the node's heartbeats are taken.
async fn until_beating(client: &Client) {
    let limit = Instant::now() + SOON;
    let age = async || client.nodes(false).await.expect("it may look")[0].heartbeat_age;
    while age().await >= Millis(2500) {
        assert!(Instant::now() < limit, "heartbeats with the new secret are refused");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn secret_is_changed_without_a_restart_and_sessions_of_the_old_one_end() {
    let guarded = Guarded::start(1);
    let first = std::fs::read_to_string(&guarded.secret).expect("written");
    let second = format!("{}\n", "fedcba9876543210".repeat(4));
    let old = guarded.token(&["--role", "admin"]);
    let servers = [&guarded.cluster.namenode, &guarded.cluster.datanodes[0]];
    let until = async |token: &Token| {
        for server in servers {
            let limit = Instant::now() + KNOWN_WITHIN;
            while Line::to(&guarded, &server.address, token).await.is_err() {
                assert!(Instant::now() < limit, "the server reads the secret again");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    };
    block_on(async {
        let client = guarded.cluster.client_of(guarded.config(&old)).await;
        let block = stored(&client, "/a").await;
        let line = async |at: usize, token: &Token| {
            let line = Line::to(&guarded, &servers[at].address, token).await;
            line.unwrap_or_else(|error| panic!("{error}"))
        };
        let (meta, data) = (line(0, &old).await, line(1, &old).await);
        let health = http::get(&servers[0].http_address, "/healthz").await;
        let id = health["cluster"].as_str().expect("an id");
        replace(&guarded, &[&first, &second]);
        let signed_by = |secret: &str| signed_by(&guarded, id, secret);
        let new = signed_by(&second);
        until(&new).await;
        replace(&guarded, &[&second, &first]);
        until(&signed_by(&first)).await;
        // Both are accepted, so nothing has ended.
        assert!(call(&meta, Request::Jobs).await.is_ok() && read(&data, &block).await.is_ok());
        let (new_meta, new_data) = (line(0, &new).await, line(1, &new).await);
        replace(&guarded, &[&second]);
        let limit = Instant::now() + KNOWN_WITHIN;
        let ended = |answer: &Result<(), Refusal>| {
            assert!(Instant::now() < limit, "sessions of the old secret end");
            let Err(Refusal::Unauthenticated { why }) = answer else { return false };
            assert!(why.contains("not accepted any more"), "{why}");
            true
        };
        while !ended(&call(&meta, Request::Jobs).await.map(|_| ())) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        while !ended(&read(&data, &block).await.map(|_| ())) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for server in servers {
            assert!(Line::to(&guarded, &server.address, &old).await.is_err());
        }
        assert!(call(&new_meta, Request::Jobs).await.is_ok());
        assert!(read(&new_data, &block).await.is_ok());
        // The servers go on among themselves: heartbeats, orders, new blocks.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let client = guarded.cluster.client_of(guarded.config(&new)).await;
        stored(&client, "/b").await;
        until_beating(&client).await;
        // A file that is none changes nothing.
        replace(&guarded, &["too short"]);
        let limit = Instant::now() + SOON;
        let log = || guarded.cluster.namenode.log();
        while !log().contains("the secret stays the one before") {
            assert!(Instant::now() < limit, "{}", log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(call(&new_meta, Request::Jobs).await.is_ok());
    });
}
