//! Real processes with a secret: which callers are admitted, and to what.

use std::io::IoSlice;
use std::path::PathBuf;

use crate::cluster::guarded::{Guarded, Line, kept, text};
use crate::cluster::{Cluster, SOON, Shape, block_on, bytes_of, http, path, run, sanderling};
use sanderling_client::{Client, ClientError, PutOptions};
use sanderling_protocol::frame::{HEADER_BYTES, RangeRequest, decode_body, encode_body};
use sanderling_protocol::local::{LocalEndpoint, PACKET_BYTES_MAX};
use sanderling_protocol::message::{Hello, JobHints, RegisterJob, Role};
use sanderling_protocol::refusal::Recovery;
use sanderling_protocol::{
    Header, JobId, Millis, NodeId, Op, Order, Policy, Refusal, Reply, Request, Token,
};
use sanderling_transport::local::PacketSocket;
use sanderling_transport::{TLS_NAME, TokenSource};
use tempfile::TempDir;

fn with_parents() -> PutOptions {
    PutOptions { parents: true, ..PutOptions::default() }
}

pub(crate) fn is_forbidden(error: &ClientError) -> bool {
    assert_eq!(error.recovery(), Recovery::Fix, "{error}");
    matches!(error, ClientError::Refused(Refusal::Forbidden { .. }))
}

#[test]
fn cluster_with_a_secret_serves_callers_with_a_token_only() {
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
    let foreign =
        run(sanderling().args(["token", "new", "--secret-file", &other, "--cluster", "any"]));
    let refused = guarded.cli(Some(&Token::new(&foreign.stdout)), &["fs", "ls", "/"]);
    assert!(refused.stderr.contains("another secret"), "{refused}");
    // A datanode without the secret does not join.
    let words = ["datanode", "--namenode", &guarded.cluster.namenode.address, "--dram", "16MiB"];
    let tokenless = run(sanderling().args(words));
    assert_ne!(tokenless.code, 0);
    assert!(tokenless.stderr.contains("a token is needed"), "{tokenless}");
}

#[test]
fn scoped_token_reaches_its_own_subtree_and_none_of_another_s_bytes() {
    let guarded = Guarded::start(1);
    let bytes = bytes_of(2, 2 << 20);
    block_on(async {
        let all = guarded.client(&[]).await;
        let own = guarded.client(&["--subtree", "/jobs/x", "--subject", "x"]).await;
        for name in ["/jobs/x/a", "/jobs/y/a"] {
            all.put(&path(name), bytes.clone(), &with_parents()).await.expect("it may");
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
fn pages_of_http_require_the_same_tokens() {
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
                let fetch =
                    async |method, target| http::shown(address, method, target, token).await;
                assert!(fetch("GET", health).await.starts_with("HTTP/1.1 200"), "{health}");
                for (method, page, status) in [("GET", look, looks), ("POST", change, changes)] {
                    let answer = fetch(method, page).await;
                    let begin = format!("HTTP/1.1 {status}");
                    assert!(answer.starts_with(&begin), "{method} {page}: {answer}");
                    let is_error = answer.contains("\"error\":{\"code\":16");
                    assert_eq!(is_error, status != "200", "{answer}");
                    let is_challenged = answer.to_lowercase().contains("www-authenticate: bearer");
                    assert_eq!(is_challenged, status == "401", "{answer}");
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
fn ends_that_do_not_agree_on_tls_report_that() {
    let guarded = Guarded::encrypted(1, &[]);
    let token = guarded.token(&[]);
    let address = guarded.cluster.namenode.address.clone();
    let list = |namenode: &str, authority: Option<&str>, name: &str| {
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
    let good = list(&address, Some(&own), TLS_NAME);
    assert_eq!(good.code, 0, "{good}");
    let plain = list(&address, None, TLS_NAME);
    assert!(plain.stderr.contains("this port speaks TLS"), "{plain}");
    let other = text(guarded.place.path().join("other"));
    assert_eq!(run(sanderling().args(["tls", "new", "--out", &other])).code, 0);
    let wrong = list(&address, Some(&format!("{other}/ca.pem")), TLS_NAME);
    assert!(wrong.stderr.contains("its certificate is not believed"), "{wrong}");
    let name = list(&address, Some(&own), "elsewhere");
    assert!(name.stderr.contains("its certificate is not believed"), "{name}");
    let plain = Guarded::start(0);
    let refused = list(&plain.cluster.namenode.address, Some(&own), TLS_NAME);
    assert!(refused.stderr.contains("it does not speak TLS"), "{refused}");
    block_on(async {
        let http = &guarded.cluster.namenode.http_address;
        let answer = http::shown(http, "GET", "/healthz", None).await;
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("https"), "{answer}");
    });
}

fn forbidden<T: std::fmt::Debug>(answer: Result<T, Refusal>) -> bool {
    matches!(answer.expect_err("it is refused"), Refusal::Forbidden { .. })
}

#[test]
fn datanode_gives_a_scoped_token_nothing_of_another_s() {
    let guarded = Guarded::encrypted(1, &[]);
    let bytes = bytes_of(5, 1 << 20);
    block_on(async {
        let all = guarded.client(&[]).await;
        let places = ["/jobs/x/a", "/jobs/y/a"].map(path);
        let mut blocks = Vec::new();
        for place in &places {
            all.put(place, bytes.clone(), &with_parents()).await.expect("it may");
            let layout = all.request(Request::Lookup { path: place.clone(), offset: 0, bytes: 1 });
            let Ok(Reply::Layout(layout)) = layout.await else { panic!("it is there") };
            blocks.push(layout.blocks[0]);
        }
        let read = |at: usize| {
            let mut header = Header::new(Op::Read, 0);
            (header.block, header.epoch, header.length) = (blocks[at].block, blocks[at].epoch, 9);
            header
        };
        let many = |which: &[usize]| {
            let mut body = Vec::new();
            for at in which {
                let (block, epoch) = (blocks[*at].block, blocks[*at].epoch);
                RangeRequest { block, epoch, offset: 0, length: 9 }.encode(&mut body);
            }
            (Header::new(Op::ReadMany, 0), body)
        };
        let datanode = &guarded.cluster.datanodes[0].address;
        let scoped = guarded.token(&["--subtree", "/jobs/x"]);
        let line = Line::to(&guarded, datanode, &scoped).await.expect("the token holds");
        for _ in 0..2 {
            // Requested, then cached.
            assert_eq!(line.call(read(0), Vec::new()).await.expect("its own"), bytes[..9]);
            assert!(forbidden(line.call(read(1), Vec::new()).await));
            let (header, body) = many(&[0, 0]);
            assert!(line.call(header, body).await.is_ok());
            let (header, body) = many(&[0, 1]);
            assert!(forbidden(line.call(header, body).await));
        }
        let mut write = read(1);
        (write.op, write.flags, write.offset) = (Op::Write, 1, 1 << 20);
        assert!(forbidden(line.call(write, vec![1; 9]).await));
        let mut store = write;
        (store.op, store.offset) = (Op::Store, 0);
        assert!(forbidden(line.call(store, vec![1; 9]).await));
        assert!(forbidden(line.call(Header::new(Op::LocalEndpoint, 0), Vec::new()).await));
        let order = encode_body(&Order::Drop { blocks: vec![(blocks[0].block, blocks[0].epoch)] });
        assert!(forbidden(line.call(Header::new(Op::Order, 0), order.clone()).await));
        let whole = guarded.token(&["--rights", "read,write,admin,metrics"]);
        let line = Line::to(&guarded, datanode, &whole).await.expect("the token holds");
        assert!(line.call(read(1), Vec::new()).await.is_ok());
        assert!(forbidden(line.call(Header::new(Op::Order, 0), order).await));
        assert!(forbidden(line.call(store, vec![1; 9]).await));
        let reader = guarded.token(&["--rights", "read"]);
        let line = Line::to(&guarded, datanode, &reader).await.expect("the token holds");
        assert!(line.call(read(1), Vec::new()).await.is_ok());
        assert!(forbidden(line.call(write, vec![1; 9]).await));
        assert_eq!(all.get(&places[1]).await.expect("nothing was changed"), bytes);
    });
}

#[test]
fn scoped_client_on_the_same_host_gets_copies_and_not_the_memory() {
    let guarded = Guarded::start(1);
    let bytes = bytes_of(6, 2 << 20);
    let object = path("/jobs/x/a");
    block_on(async {
        let all = guarded.client(&[]).await;
        all.put(&object, bytes.clone(), &with_parents()).await.expect("it may");
        let admin = guarded.token(&["--role", "admin"]);
        // The endpoint is looked for beside the first read; an admitted client finds it in the end.
        let limit = std::time::Instant::now() + SOON;
        while all.metrics().same_host_read_bytes == 0 {
            assert!(std::time::Instant::now() < limit, "a whole token maps the memory");
            assert_eq!(all.get(&object).await.expect("it may"), bytes);
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let own = guarded.client(&["--subtree", "/jobs/x"]).await;
        let http = &guarded.cluster.datanodes[0].http_address;
        let refused = async || {
            let page = http::shown(http, "GET", "/metrics", Some(admin.reveal())).await;
            let line = page.lines().find(|line| {
                line.starts_with("sanderling_datanode_refusals_total") && line.contains("Forbidden")
            });
            line.and_then(|line| line.split(' ').nth(1))
                .map_or(0, |count| count.parse().expect("a number"))
        };
        let limit = std::time::Instant::now() + SOON;
        while refused().await == 0 {
            assert!(std::time::Instant::now() < limit, "the endpoint is requested, and refused");
            assert_eq!(own.get(&object).await.expect("its own"), bytes);
        }
        for _ in 0..20 {
            assert_eq!(own.get(&object).await.expect("its own"), bytes);
        }
        own.put(&path("/jobs/x/b"), bytes.clone(), &PutOptions::default()).await.expect("its own");
        assert_eq!(own.metrics().same_host_read_bytes, 0);
        assert_eq!(own.metrics().same_host_written_bytes, 0);
        assert_eq!(refused().await, 1, "it is not requested again and again");
    });
}

#[test]
fn token_that_may_not_write_gets_no_memory_for_writes() {
    let guarded = Guarded::start(1);
    let datanode = &guarded.cluster.datanodes[0];
    block_on(async {
        for (rights, may) in [("read", false), ("read,write", true)] {
            let token = guarded.token(&["--rights", rights]);
            let line = Line::to(&guarded, &datanode.address, &token).await;
            let line = line.unwrap_or_else(|error| panic!("it is let in: {error}"));
            let endpoint = line
                .call(Header::new(Op::LocalEndpoint, 0), Vec::new())
                .await
                .expect("its machine");
            let endpoint: Option<LocalEndpoint> = decode_body(&endpoint).expect("an endpoint");
            let socket =
                PacketSocket::connect(std::path::Path::new(&endpoint.expect("open").socket));
            let socket = socket.expect("it listens");
            let node = Some(NodeId(datanode.node));
            let hello = Hello { role: Role::Client, cluster: None, node, token: Some(token) };
            let call = |op: Op, body: &[u8]| {
                let mut header = Header::new(op, 0);
                header.body_bytes = u32::try_from(body.len()).expect("short");
                let header = header.encode();
                let parts = [IoSlice::new(&header), IoSlice::new(body)];
                socket.send(&parts, None).expect("sent");
                assert!(socket.wait(SOON).expect("it lives"), "no answer");
                let mut packet = vec![0; PACKET_BYTES_MAX];
                let (bytes, file) = socket.receive_now(&mut packet).expect("read").expect("there");
                let answer =
                    Header::decode(packet.first_chunk().expect("whole")).expect("a header");
                match answer.status {
                    0 => Ok(file),
                    _ => Err(decode_body::<Refusal>(&packet[HEADER_BYTES..bytes]).expect("why")),
                }
            };
            call(Op::Hello, &encode_body(&hello)).expect("it may read");
            let staged = call(Op::Stage, &[]).map(|file| file.is_some());
            assert_eq!(staged.is_ok(), may, "{staged:?}");
            assert!(may || forbidden(staged));
        }
    });
}

#[test]
fn token_that_ends_in_a_session_ends_it_and_the_next_one_goes_on() {
    let guarded = Guarded::start(1);
    let bytes = bytes_of(7, 100_000);
    let object = path("/object");
    let file = guarded.place.path().join("token");
    block_on(async {
        // On a slow machine a short token may have ended before it was used.
        for seconds in [3_u64, 15, 60] {
            let expires = format!("{seconds}s");
            let words = ["--expires", &expires, "--out", file.to_str().expect("UTF-8")];
            guarded.token(&words);
            let short = Token::new(&std::fs::read_to_string(&file).expect("written"));
            let token = Some(TokenSource::File(file.clone()));
            let mut renewing = guarded.config(&short);
            renewing.credentials.token = token;
            let address = &guarded.cluster.namenode.address;
            let (Ok(given), Ok(renewed)) = (
                Client::connect(address, guarded.config(&short)).await,
                Client::connect(address, renewing).await,
            ) else {
                continue;
            };
            // Until the node was found on this machine: its memory is written from then on.
            let mut put = renewed.put(&object, bytes.clone(), &PutOptions::replacing()).await;
            while put.is_ok() && renewed.metrics().same_host_written_bytes == 0 {
                put = renewed.put(&object, bytes.clone(), &PutOptions::replacing()).await;
            }
            if put.is_err() {
                continue;
            }
            let limit = std::time::Instant::now() + SOON + std::time::Duration::from_secs(seconds);
            let ended = loop {
                match given.get(&object).await {
                    Err(error) => break error,
                    Ok(_) => assert!(std::time::Instant::now() < limit, "the token ends"),
                }
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            };
            let refusal = ended.refusal().expect("it is refused").clone();
            assert!(matches!(refusal, Refusal::Unauthenticated { .. }), "{refusal}");
            assert!(refusal.to_string().contains("expired"), "{refusal}");
            // The file has another token before it is looked at again.
            guarded.token(&["--expires", "1h", "--out", file.to_str().expect("UTF-8")]);
            let again = path("/again");
            let put = renewed.put(&again, bytes.clone(), &PutOptions::default()).await;
            put.expect("written with the next token");
            assert_eq!(renewed.get(&object).await.expect("with the next token"), bytes);
            return;
        }
        panic!("no token lasted until it was used");
    });
}

#[test]
fn minted_token_is_narrower_and_a_job_s_tasks_get_their_own() {
    let guarded = Guarded::start(1);
    block_on(async {
        let own = guarded.client(&["--subtree", "/jobs"]).await;
        let job = own.run_job(RegisterJob {
            path: path("/jobs/x"),
            lease: Millis(60_000),
            quota_bytes: None,
            hints: JobHints::default(),
        });
        let job = job.await.expect("in its subtree");
        let hour = std::time::Duration::from_secs(3600);
        let token = job.token(&["read"], hour).await.expect("its own job");
        let task = guarded.cluster.client_of(guarded.config(&token)).await;
        let object = path("/jobs/x/a");
        own.put(&object, bytes_of(8, 100), &PutOptions::default()).await.expect("its own");
        assert_eq!(task.get(&object).await.expect("its own"), bytes_of(8, 100));
        let refused = task.put(&object, bytes_of(8, 100), &PutOptions::default()).await;
        assert!(is_forbidden(&refused.unwrap_err()));
        let wider = job.token(&["read", "admin"], hour).await.unwrap_err();
        assert!(is_forbidden(&wider));
    });
    let scoped = guarded.token(&["--subtree", "/jobs"]);
    let mint = |subtree| {
        let words = ["token", "mint", "--subtree", subtree, "--rights", "read,write"];
        guarded.cli(Some(&scoped), &words)
    };
    let minted = mint("/jobs/x");
    assert_eq!(minted.code, 0, "{minted}");
    let listed = guarded.cli(Some(&Token::new(&minted.stdout)), &["fs", "ls", "/jobs/x"]);
    assert_eq!(listed.code, 0, "{listed}");
    let wider = mint("/");
    assert_eq!(wider.code, 1, "{wider}");
    assert!(wider.stderr.contains("not allowed"), "{wider}");
}

#[test]
fn scoped_token_ends_and_renews_no_job_of_another_not_even_one_that_is_still_to_come() {
    let guarded = Guarded::start(0);
    block_on(async {
        let token = guarded.token(&["--subtree", "/jobs/b"]);
        let line = Line::to(&guarded, &guarded.cluster.namenode.address, &token).await;
        let line = line.unwrap_or_else(|error| panic!("it is let in: {error}"));
        let own = guarded.client(&["--subtree", "/jobs/a"]).await;
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let attack = async {
            let mut asked = 0;
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                let jobs = (1..=200).map(JobId);
                let requests =
                    jobs.flat_map(|job| [Request::EndJob { job }, Request::RenewJob { job }]);
                let body = encode_body(&requests.collect::<Vec<_>>());
                let answers = line.call(Header::new(Op::Meta, 1), body).await.expect("answers");
                let answers: Vec<Result<Reply, Refusal>> = decode_body(&answers).expect("a list");
                let is_unknown = |it: &_| matches!(it, Err(Refusal::UnknownJob { .. }));
                assert!(answers.iter().all(is_unknown), "{answers:?}");
                asked += answers.len();
            }
            asked
        };
        let work = async {
            let mut jobs = Vec::new();
            for number in 0..100 {
                let request = RegisterJob {
                    path: path(&format!("/jobs/a/{number}")),
                    lease: Millis(60_000),
                    quota_bytes: None,
                    hints: JobHints::default(),
                };
                jobs.push(own.run_job(request).await.expect("in its subtree"));
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            jobs
        };
        let (asked, jobs) = tokio::join!(attack, work);
        assert!(asked > 1000, "{asked}");
        let left = own.jobs().await.expect("its own jobs");
        assert_eq!(left.len(), jobs.len());
    });
}

#[test]
fn other_users_of_the_machine_can_read_none_of_the_store_s_files() {
    use std::os::unix::fs::PermissionsExt;
    let place = TempDir::new().expect("a directory for the test");
    let disk = place.path().join("disk");
    let open = |directory: &PathBuf| {
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(directory, mode).expect("changed");
    };
    // Made by an operator.
    std::fs::create_dir(&disk).expect("made");
    open(&disk);
    let flags = vec!["--disk", "64MiB", "--disk-dir", kept(&text(disk.clone()))];
    let shape = Shape { datanodes: 1, datanode: flags, ..Shape::default() };
    let mut cluster = Cluster::start(shape);
    // As an older release left it.
    let catalog = cluster.path("catalog");
    open(&catalog);
    cluster.restart_namenode();
    block_on(async {
        let class = "disk".parse().expect("a class");
        let options = PutOptions { class, ..PutOptions::default() };
        let client = cluster.client().await;
        client.put(&path("/a"), bytes_of(1, 3 << 20), &options).await.expect("room");
    });
    let mut files = 0;
    for directory in [&disk, &catalog] {
        let mode = |path: &std::path::Path| {
            std::fs::metadata(path).expect("there").permissions().mode() & 0o777
        };
        assert_eq!(mode(directory), 0o700, "{}", directory.display());
        for entry in std::fs::read_dir(directory).expect("read") {
            let path = entry.expect("an entry").path();
            assert_eq!(mode(&path) & 0o077, 0, "{}", path.display());
            files += 1;
        }
    }
    assert!(files >= 5, "a journal and blocks, not {files} files");
}

#[test]
fn names_forge_no_lines_in_logs_or_on_terminals() {
    const FORGED: &str = "/x\nINFO namenode: all is well\u{1b}[2J";
    let guarded = Guarded::start(0);
    let before = guarded.cluster.namenode.log().lines().count();
    block_on(async {
        let token = guarded.token(&["--subtree", "/jobs/b"]);
        let line = Line::to(&guarded, &guarded.cluster.namenode.address, &token).await;
        let line = line.unwrap_or_else(|error| panic!("it is let in: {error}"));
        for _ in 0..20 {
            let requests = vec![Request::Stat { path: path(FORGED) }; 512];
            let answers = line.call(Header::new(Op::Meta, 1), encode_body(&requests)).await;
            let answers: Vec<Result<Reply, Refusal>> =
                decode_body(&answers.expect("answers")).expect("a list");
            assert!(answers.into_iter().all(forbidden));
        }
        let own = guarded.client(&[]).await;
        own.put(&path(FORGED), bytes_of(1, 10), &with_parents()).await.expect("a name");
    });
    let log = guarded.cluster.namenode.log();
    let lines = log.lines().count() - before;
    assert!(lines < 60, "10,240 refused requests made {lines} lines");
    assert!(!log.contains('\u{1b}') && !log.contains("\nINFO namenode: all"), "{log}");
    let token = guarded.token(&[]);
    for words in
        [&["fs", "ls", "-l", "/"][..], &["fs", "stat", FORGED], &["fs", "ls", "/nothing\u{7}"]]
    {
        let ran = guarded.cli(Some(&token), words);
        let all = format!("{}{}", ran.stdout, ran.stderr);
        assert!(!all.chars().any(|it| it.is_control() && it != '\n'), "{all:?}");
        assert!(!ran.stdout.contains("\nINFO"), "{ran}");
    }
    let missing = format!("{FORGED}/b");
    let ran = guarded.cli(Some(&token), &["fs", "stat", &missing]);
    assert!(ran.stderr.contains("all is well") && !ran.stderr.contains("\nINFO"), "{ran}");
}

#[test]
fn page_of_another_site_drains_no_node() {
    let cluster = Cluster::start(Shape { datanodes: 2, ..Shape::default() });
    let endpoint = cluster.datanodes[0].http_address.clone();
    let post = |host: &str, origin: &str| {
        let head = format!("POST /v1/notice HTTP/1.1\r\nhost: {host}\r\n{origin}");
        let body = r#"{"deadline_seconds": 120}"#;
        let length = body.len();
        let request = format!("{head}content-length: {length}\r\nconnection: close\r\n\r\n{body}");
        let mut stream = std::net::TcpStream::connect(&endpoint).expect("the endpoint is open");
        std::io::Write::write_all(&mut stream, request.as_bytes()).expect("sent");
        std::io::read_to_string(stream).expect("answered")
    };
    let evil = post(&endpoint, "origin: http://evil.example\r\n");
    assert!(evil.starts_with("HTTP/1.1 403"), "{evil}");
    // A name that leads to this machine for the time of a visit: to the browser it is one site.
    let rebound = post("evil.example", "origin: http://evil.example\r\n");
    assert!(rebound.starts_with("HTTP/1.1 403"), "{rebound}");
    let rebound = post("evil.example", "");
    assert!(rebound.starts_with("HTTP/1.1 403"), "{rebound}");
    block_on(async {
        let nodes = cluster.client().await.nodes(false).await.expect("the nodes");
        assert!(nodes.iter().all(|node| node.policy == Policy::Active), "{nodes:?}");
    });
    let own = post(&endpoint, &format!("origin: http://{endpoint}\r\n"));
    assert!(own.starts_with("HTTP/1.1 200"), "{own}");
}

#[test]
fn secrets_are_in_no_arguments_logs_or_errors() {
    let guarded = Guarded::encrypted(1, &["-v", "-v"]);
    let admin = guarded.token(&["--role", "admin"]);
    let put = guarded.cli(Some(&admin), &["fs", "put", "/proc/version", "/v", "-v", "-v"]);
    assert_eq!(put.code, 0, "{put}");
    let scoped = guarded.token(&["--subtree", "/jobs/x"]);
    let refused = guarded.cli(Some(&scoped), &["fs", "cat", "/v", "-v", "-v"]);
    assert_eq!(refused.code, 1, "{refused}");
    let bad = Token::new(&format!("{}x", admin.reveal()));
    let turned_away = guarded.cli(Some(&bad), &["fs", "cat", "/v", "-v", "-v"]);
    assert_eq!(turned_away.code, 1, "{turned_away}");
    let secret = std::fs::read_to_string(&guarded.secret).expect("written");
    let key = std::fs::read_to_string(guarded.place.path().join("tls/node.key")).expect("written");
    let key = key.lines().nth(1).expect("a key").to_owned();
    // What begins every token is no secret.
    let of_token = |token: &Token| token.reveal().rsplit('.').next().expect("parts").to_owned();
    let hidden = [secret.trim().to_owned(), key, of_token(&admin), of_token(&scoped)];
    let servers = [&guarded.cluster.namenode, &guarded.cluster.datanodes[0]];
    let mut texts: Vec<String> = servers.iter().map(|server| server.log()).collect();
    for server in servers {
        let words = std::fs::read(format!("/proc/{}/cmdline", server.pid())).expect("it runs");
        texts.push(String::from_utf8_lossy(&words).into_owned());
    }
    texts.extend([put, refused, turned_away].map(|ran| ran.to_string()));
    for (text, hidden) in texts.iter().flat_map(|text| hidden.iter().map(move |it| (text, it))) {
        assert!(!text.contains(hidden.as_str()), "{text}");
    }
}

#[test]
fn server_beyond_loopback_needs_a_secret_and_a_certificate() {
    let place = TempDir::new().expect("a directory for the test");
    let at = |name: &str| text(place.path().join(name));
    let (secret, tls) = (at("secret"), at("tls"));
    assert_eq!(run(sanderling().args(["token", "secret", "--out", &secret])).code, 0);
    assert_eq!(run(sanderling().args(["tls", "new", "--out", &tls])).code, 0);
    let directory = at("catalog");
    let listen = ["namenode", "--listen", "0.0.0.0:0", "--http", "none", "--dir", &directory];
    let refused = |flags: &[&str], why: &str| {
        let ran = run(sanderling().args(listen).args(flags));
        assert_eq!(ran.code, 1, "{ran}");
        assert!(ran.stderr.contains(why), "{ran}");
        assert!(ran.stderr.contains("--secret-file"), "{ran}");
    };
    refused(&[], "callers would not be authenticated");
    refused(&["--secret-file", &secret], "traffic would not be encrypted");
    let files = ["ca.pem", "node.pem", "node.key"].map(|name| format!("{tls}/{name}"));
    let flags = ["--tls-ca", &files[0], "--tls-cert", &files[1], "--tls-key", &files[2]];
    refused(&flags, "callers would not be authenticated");
    // A secret or a key that others can read is none.
    for file in [&secret, &files[2]] {
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(file, open).expect("our own file");
        let both = run(sanderling().args(listen).args(flags).args(["--secret-file", &secret]));
        assert_eq!(both.code, 1, "{both}");
        assert!(both.stderr.contains(&format!("chmod 600 {file}")), "{both}");
        let closed = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(file, closed).expect("our own file");
    }
}
