//! What wrong input, a full fleet and a second of something get: a clear error with its exit code,
//! and no other client is disturbed.

use crate::cluster;
use std::time::Duration;

use crate::cluster::{Cluster, SOON, Shape, block_on, bytes_of, path, run, sanderling};
use bytes::Bytes;
use sanderling_client::{Client, PutOptions};
use sanderling_protocol::frame::{decode_body, encode_body};
use sanderling_protocol::limits::{
    AVOIDED_NODES_MAX, LEASES_PER_RENEWAL_MAX, LENGTHS_PER_REQUEST_MAX, REQUEST_BYTES_MAX,
};
use sanderling_protocol::message::{
    Attributes, BlockLength, Create, Grant, Hello, JobHints, JobLimits, ObjectKind, Register,
    RegisterJob, Role,
};
use sanderling_protocol::{ClusterId, Header, Millis, NodeId, Nonce, Op, Refusal, Reply, Request};
use sanderling_transport::{CallError, Connection, ConnectionOptions};

/// Asserts the exit code, that the error names each word, and that it has the next command.
fn assert_refused(ran: &cluster::Ran, code: i32, words: &[&str]) {
    assert_eq!(ran.code, code, "{ran}");
    for word in words {
        assert!(ran.stderr.contains(word), "{word:?} is not in: {ran}");
    }
}

#[test]
fn wrong_command_lines_end_with_2() {
    for words in [
        &["fs"][..],
        &["fs", "cp"],
        &["fs", "ls", "relative"],
        &["fs", "ls", "/a/../b"],
        &["fs", "ls", "/a//b"],
        &["fs", "put", "x", "/x", "--class", "any"],
        &["fs", "put", "x", "/x", "--ttl", "soon"],
        &["fs", "rm", "-r", "/"],
        &["bench", "nothing"],
        &["sim", "--bug", "nothing"],
        &["datanode", "--dram", "many"],
        &["--no-such-flag"],
    ] {
        let ran = run(sanderling().args(words));
        assert_eq!(ran.code, 2, "{words:?}: {ran}");
        assert!(!ran.stderr.is_empty(), "{words:?}");
    }
}

#[test]
fn parts_become_one_file_and_texts_are_kept_beside_its_bytes() {
    let cluster = Cluster::of(1);
    let cli = |words: &[&str]| cluster.cli(words);
    let parts = tempfile::tempdir().unwrap();
    let local = |name: &str, bytes: usize| {
        let path = parts.path().join(name);
        std::fs::write(&path, vec![name.as_bytes()[0]; bytes]).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (a, b) = (local("a", 1000), local("b", 70_000));
    assert_eq!(cli(&["fs", "put", &a, &b, "/", "--attribute", "by=hand"]).code, 0);
    assert_refused(&cli(&["fs", "concat", "/a", "/none", "/whole"]), 3, &["/none"]);
    assert_refused(&cli(&["fs", "concat", "/a", "/a", "/whole"]), 1, &["once at most"]);
    assert_eq!(cli(&["fs", "concat", "/a", "/b", "/whole"]).code, 0);
    assert_eq!(cli(&["fs", "cat", "/whole"]).stdout.len(), 71_000);
    assert_refused(&cli(&["fs", "stat", "/a"]), 3, &["/a"]);
    assert_eq!(cli(&["fs", "attr", "/whole"]).stdout, "");
    assert_refused(&cli(&["fs", "attr", "/whole", "=x"]), 2, &["NAME=TEXT"]);
    let set = cli(&["fs", "attr", "/whole", "a=1", "b=x=y"]);
    assert_eq!((set.code, set.stdout.as_str()), (0, "a=1\nb=x=y\n"));
    assert_eq!(cli(&["fs", "attr", "/whole", "--remove", "a"]).stdout, "b=x=y\n");
    assert!(cli(&["fs", "stat", "/whole"]).stdout.contains("kept      b=x=y"));
    let long = format!("long={}", "x".repeat(9000));
    assert_refused(&cli(&["fs", "attr", "/whole", &long]), 1, &["too large"]);
}

#[test]
fn objects_that_are_not_as_wanted_are_refused_with_their_code() {
    let cluster = Cluster::of(1);
    let cli = |words: &[&str]| cluster.cli(words);
    assert_refused(&cli(&["fs", "cat", "/none"]), 3, &["/none", "next:", "fs ls /"]);
    assert_refused(&cli(&["fs", "put", "/no/such/file", "/x"]), 3, &["/no/such/file"]);
    assert_eq!(cli(&["fs", "mkdir", "-p", "/a/b"]).code, 0);
    assert_refused(&cli(&["fs", "rm", "/a"]), 1, &["not empty", "fs rm -r /a"]);
    assert_refused(&cli(&["fs", "cat", "/a"]), 1, &["is a directory"]);
    assert_refused(&cli(&["fs", "get", "/a"]), 1, &["is a directory"]);
    assert_eq!(cli(&["fs", "put", "/proc/version", "/a"]).code, 0);
    assert_refused(&cli(&["fs", "put", "/proc/version", "/a"]), 1, &["exists", "--force"]);
    assert_refused(&cli(&["fs", "ls", "/a/version/x"]), 1, &["not a directory"]);
    assert_refused(&cli(&["fs", "mv", "/a", "/a/b/c"]), 1, &["into itself"]);
    assert_refused(
        &cli(&["fs", "cat", "/a/version", "--offset", "9999999"]),
        1,
        &["passes the end"],
    );
    let long = format!("/{}", "x".repeat(256));
    assert_refused(&cli(&["fs", "mkdir", &long]), 2, &["longer than 255 bytes"]);
    assert_eq!(cli(&["fs", "rm", "-f", "/none"]).code, 0);
    let error = cli(&["fs", "cat", "/none", "--json"]).stderr;
    let error: serde_json::Value = serde_json::from_str(&error).expect("one JSON object");
    assert_eq!((&error["error"]["kind"], &error["schema"]), (&"NotFound".into(), &1.into()));
}

#[test]
fn notices_that_make_no_sense_are_refused() {
    let cluster = Cluster::of(1);
    let notice = |words: &[&str]| cluster.cli(&[&["node", "notice"], words].concat());
    assert_refused(&notice(&["nobody", "--deadline", "9s"]), 3, &["nobody", "node ls"]);
    assert_refused(&notice(&["n0", "--deadline", "-5s"]), 1, &["passed"]);
    assert_refused(&notice(&["n0", "--deadline=0s"]), 1, &["passed"]);
    assert_refused(&notice(&["n0", "--deadline", "soon"]), 2, &["soon"]);
    assert_refused(&cluster.cli(&["node", "cancel", "n0"]), 1, &["next:"]);
    assert_refused(&cluster.cli(&["node", "decommission", "77"]), 3, &["77"]);
}

#[test]
fn port_in_use_is_named_in_the_error() {
    let cluster = Cluster::of(0);
    let directory = cluster.path("other");
    let directory = directory.to_str().expect("UTF-8");
    let address = &cluster.namenode.address;
    let words = ["namenode", "--listen", address, "--http", "none", "--dir", directory];
    assert_refused(&run(sanderling().args(words)), 1, &[address, "in use", "next:"]);
    let catalog = cluster.path("catalog");
    let catalog = catalog.to_str().expect("UTF-8");
    let words = ["namenode", "--listen", "127.0.0.1:0", "--http", "none", "--dir", catalog];
    assert_refused(&run(sanderling().args(words)), 1, &["in use by another namenode", "--dir"]);
    let words = ["datanode", "--namenode", address, "--listen", address, "--dram", "4MiB"];
    assert_refused(&run(sanderling().args(words)), 1, &[address, "in use"]);
    let words = ["datanode", "--namenode", address, "--listen", "0.0.0.0:0", "--dram", "4MiB"];
    assert_refused(&run(sanderling().args(words)), 1, &["--allow-unauthenticated"]);
}

#[test]
fn datanode_of_another_cluster_is_refused() {
    let cluster = Cluster::of(0);
    block_on(async {
        let deadline = || tokio::time::Instant::now() + SOON;
        let foreign = Some(ClusterId(1));
        let hello = Hello { role: Role::Datanode, cluster: foreign, node: None, token: None };
        let refused = Connection::connect(&cluster.namenode.address, hello, deadline()).await;
        let wrong =
            |error: &CallError| matches!(error, CallError::Refused(Refusal::WrongCluster { .. }));
        assert!(refused.as_ref().is_err_and(wrong), "{refused:?}");

        let client = cluster.client().await;
        let register = |cluster, nonce| {
            Request::Register(Register {
                cluster,
                nonce: Nonce(nonce),
                name: "twin".to_owned(),
                address: "127.0.0.1:1".to_owned(),
                http_address: String::new(),
                host: "here".to_owned(),
                tiers: Vec::new(),
                notice_min: None,
                egress_bytes_per_second: None,
            })
        };
        let refused = client.request(register(foreign, 1)).await;
        let error = refused.expect_err("another cluster's node");
        assert_eq!(error.name(), "WrongCluster", "{error}");
    });
}

#[test]
fn full_fleet_is_reported_and_what_was_stored_stays() {
    let cluster = Cluster::start(Shape { datanodes: 2, dram: "8MiB", ..Shape::default() });
    let local = cluster.path("big");
    std::fs::write(&local, bytes_of(1, 40 << 20)).expect("written");
    let small = cluster.path("small");
    std::fs::write(&small, bytes_of(2, 3 << 20)).expect("written");
    let (local, small) = (local.to_str().expect("UTF-8"), small.to_str().expect("UTF-8"));
    assert_eq!(cluster.cli(&["fs", "put", small, "/small"]).code, 0);
    for class in ["dram", "dram:refuse"] {
        let ran = cluster.cli(&["fs", "put", local, "/big", "--class", class]);
        assert_refused(&ran, 4, &["no room", "next:", "fs df"]);
        assert_eq!(cluster.cli(&["fs", "stat", "/big"]).code, 3, "half an object is left");
    }
    let ran = cluster.cli(&["fs", "put", local, "/big", "--class", "dram:wait", "--timeout", "2s"]);
    assert_refused(&ran, 124, &["next:"]);
    assert!(ran.took < Duration::from_secs(25), "it took {:?}", ran.took);
    let back = cluster.path("back");
    assert_eq!(cluster.cli(&["fs", "get", "/small", back.to_str().expect("UTF-8")]).code, 0);
    assert!(std::fs::read(back).expect("fetched") == bytes_of(2, 3 << 20));
}

/// The client's pauses are 250 ms at most, so it tries some hundred times.
#[test]
fn put_that_waits_for_room_tries_until_its_timeout_however_often_that_is() {
    let cluster = Cluster::start(Shape { datanodes: 1, dram: "8MiB", ..Shape::default() });
    let local = cluster.path("big");
    std::fs::write(&local, bytes_of(1, 20 << 20)).expect("written");
    let local = local.to_str().expect("UTF-8");
    let put = ["fs", "put", local, "/big", "--class", "dram:wait", "--timeout", "25s"];
    let ran = cluster.cli(&put);
    assert_refused(&ran, 124, &["next:"]);
    assert!(ran.took > Duration::from_secs(24), "it gave up after {:?}: {ran}", ran.took);
}

#[test]
fn quota_is_kept() {
    let cluster = Cluster::of(2);
    block_on(async {
        let client = cluster.client().await;
        let job = RegisterJob {
            path: path("/job"),
            lease: Millis(600_000),
            quota_bytes: Some(4 << 20),
            hints: JobHints::default(),
        };
        client.register_job(job).await.expect("registered");
        let put = |name: &str, bytes: usize| {
            let (client, to) = (client.clone(), path(name));
            async move { client.put(&to, bytes_of(1, bytes), &PutOptions::default()).await }
        };
        put("/job/fits", 3 << 20).await.expect("within the quota");
        let error = put("/job/too-much", 3 << 20).await.expect_err("beyond the quota");
        assert_eq!(error.name(), "QuotaPassed", "{error}");
        put("/elsewhere", 3 << 20).await.expect("others are not disturbed");
        client.delete(&path("/job/fits"), false).await.expect("deleted");
        put("/job/again", 3 << 20).await.expect("deleting gives the quota back");
    });
    let local = cluster.path("local");
    std::fs::write(&local, bytes_of(1, 3 << 20)).expect("written");
    let ran = cluster.cli(&["fs", "put", local.to_str().expect("UTF-8"), "/job/more"]);
    assert_refused(&ran, 1, &["quota"]);
}

#[test]
fn hints_that_decide_nothing_yet_are_stored_and_shown() {
    let mut cluster = Cluster::of(1);
    block_on(async {
        let client = cluster.client().await;
        let hints = JobHints {
            expected_bytes: Some(8 << 30),
            throughput_bytes_per_second: Some(1000),
            is_latency_sensitive: true,
            ..JobHints::default()
        };
        let (path, lease) = (path("/job"), Millis(600_000));
        let job = RegisterJob { path, lease, quota_bytes: None, hints };
        client.register_job(job).await.expect("registered");
    });
    cluster.restart_namenode();
    let hints = cluster.json(&["job", "ls"])["jobs"][0]["hints"].clone();
    assert_eq!(hints["expected_bytes"], 8_u64 << 30, "{hints}");
    assert_eq!(hints["throughput_bytes_per_second"], 1000, "{hints}");
    assert_eq!(hints["is_latency_sensitive"], true, "{hints}");
}

#[test]
fn limits_of_names_and_attributes_are_kept_also_after_a_restart() {
    let mut cluster = Cluster::of(1);
    let put = async |client: &Client, name: &str, text: &str| {
        let attributes = [("a", text)].into_iter().collect();
        let options = PutOptions { attributes, parents: true, ..PutOptions::default() };
        client.put(&path(name), bytes_of(1, 9), &options).await.map(|_| ())
    };
    let (job, address) = block_on(async {
        let client = cluster.client().await;
        let request = RegisterJob {
            path: path("/job"),
            lease: Millis(600_000),
            quota_bytes: None,
            hints: JobHints::default(),
        };
        let limits = JobLimits { names: Some(5), attribute_bytes: Some(100) };
        let job = client.register_limited_job(request, limits).await.expect("registered").job;
        // The root, two directories, two objects.
        put(&client, "/job/d/e/1", "x").await.expect("4 names");
        put(&client, "/job/2", &"x".repeat(90)).await.expect("5 names and 93 bytes");
        (job, cluster.namenode.address.clone())
    });
    let check = |client: Client| async move {
        let account = client.job_account(job).await.expect("it runs");
        assert_eq!((account.names, account.attribute_bytes), (5, 93));
        let error = put(&client, "/job/3", "").await.expect_err("a sixth name");
        assert_eq!(error.name(), "JobLimitPassed", "{error}");
        let text = error.to_string();
        assert!(text.contains("limit of names: 5 of 5 used, 1 more requested"), "{text}");
        assert!(text.contains("delete some"), "{text}");
        assert!(
            client
                .make_directory(&path("/job/f"), ObjectKind::Directory, true, true)
                .await
                .is_err()
        );
        client.delete(&path("/job/d/e/1"), false).await.expect("deleted");
        let error = put(&client, "/job/3", "123456789").await.expect_err("more attributes");
        assert!(error.to_string().contains("limit of bytes of attributes: 91 of 100"), "{error}");
        put(&client, "/job/d/e/1", "x").await.expect("what was deleted made room");
        put(&client, "/elsewhere", &"x".repeat(200)).await.expect("others are not disturbed");
        client.delete(&path("/elsewhere"), false).await.expect("deleted");
    };
    block_on(async { check(cluster.client().await).await });
    cluster.restart_namenode();
    assert_eq!(cluster.namenode.address, address);
    block_on(async { check(cluster.client().await).await });
    let ran = cluster.cli(&["fs", "mkdir", "/job/more"]);
    assert_refused(&ran, 1, &["limit of names", "delete some"]);
}

#[test]
fn command_line_makes_a_job_with_limits_and_shows_what_it_holds() {
    let cluster = Cluster::of(1);
    let limits = ["--names", "2", "--attribute-bytes", "10", "--quota", "4MiB", "--lease", "10m"];
    let made = cluster.json(&[&["job", "new", "/job"], &limits[..]].concat());
    let id = made["job"].to_string();
    assert_eq!(cluster.cli(&["fs", "mkdir", "/job/a"]).code, 0);
    assert_refused(&cluster.cli(&["fs", "mkdir", "/job/b"]), 1, &["limit of names", "2 of 2"]);
    let listed = cluster.json(&["job", "ls"]);
    let job = &listed["jobs"][0];
    for (key, value) in
        [("names", 2), ("names_max", 2), ("attribute_bytes", 0), ("attribute_bytes_max", 10)]
    {
        assert_eq!(job[key], value, "{key}: {listed}");
    }
    assert_eq!((&job["path"], &job["quota_bytes"]), (&"/job".into(), &(4 << 20).into()));
    let shown = cluster.cli(&["job", "ls"]);
    assert!(shown.stdout.contains("2 of 2") && shown.stdout.contains("/job"), "{shown}");
    assert_eq!(cluster.cli(&["job", "renew", &id]).code, 0);
    assert_eq!(cluster.cli(&["job", "renew", "/job/a"]).code, 3);
    assert_eq!(cluster.cli(&["job", "end", "/job"]).code, 0);
    assert_eq!(cluster.cli(&["fs", "stat", "/job/a"]).code, 3);
    assert_refused(&cluster.cli(&["job", "renew", &id]), 3, &["has ended"]);
    // Without limits it is the job that every release supports.
    let free = cluster.cli(&["job", "new", "/free"]);
    assert!(free.code == 0 && free.stdout.trim().parse::<u64>().is_ok(), "{free}");
    assert_eq!(cluster.json(&["job", "ls"])["jobs"][0]["names_max"], serde_json::Value::Null);
}

/// Sends one request on a connection of its own.
async fn answered(cluster: &Cluster, request: Request) -> Result<Reply, Refusal> {
    let hello = Hello { role: Role::Client, cluster: None, node: None, token: None };
    let (limit, options) = (tokio::time::Instant::now() + SOON, ConnectionOptions::default());
    let met = Connection::connect_with(&cluster.namenode.address, hello, limit, &options).await;
    let (connection, _) = met.expect("admitted");
    let body = vec![Bytes::from(encode_body(&vec![request]))];
    let answer = connection.call(Header::new(Op::Meta, 0), body, limit).await.expect("an answer");
    let answers: Vec<Result<Reply, Refusal>> = decode_body(&answer.body).expect("answers");
    answers.into_iter().next().expect("one for the request")
}

/// The nodes to avoid above all: placement compares each node that it draws with all of them. As
/// many as a request has room for would take seconds of the thread that makes all changes.
#[test]
fn lists_that_are_longer_than_writers_send_are_refused_and_others_go_on() {
    let cluster = Cluster::of(2);
    block_on(async {
        let client = cluster.client().await;
        let create = Request::Create(Create::new(path("/open"), Nonce(1)));
        let granted = client.request(create).await.expect("a writer");
        let Reply::Grant(Grant { object, lease, blocks, .. }) = granted else {
            panic!("no grant: {granted:?}")
        };
        let blank = BlockLength { block: blocks[0].block, length: 0 };
        let lengths = |count| vec![blank; count];
        let avoid = |count| {
            let (ended, avoid) = (Vec::new(), vec![NodeId(100); count]);
            Request::AddBlocks { object, lease, ended, count: 1, avoid }
        };
        let publish = |count| Request::Publish { object, lease, lengths: lengths(count) };
        let renew = |count| Request::RenewLeases { leases: vec![(object, lease); count] };
        // The longest lists are taken.
        for request in [
            avoid(AVOIDED_NODES_MAX),
            publish(LENGTHS_PER_REQUEST_MAX),
            renew(LEASES_PER_RENEWAL_MAX),
        ] {
            let kind = request.kind();
            let taken = answered(&cluster, request).await;
            assert!(taken.is_ok(), "{kind}: {taken:?}");
        }
        let (ended, attributes) = (lengths(LENGTHS_PER_REQUEST_MAX + 1), Attributes::none());
        let seal = Request::Seal { object, lease, lengths: ended.clone(), attributes };
        for (request, most) in [
            // One byte each.
            (avoid(REQUEST_BYTES_MAX - 64), AVOIDED_NODES_MAX),
            (
                Request::AddBlocks { object, lease, ended, count: 1, avoid: Vec::new() },
                LENGTHS_PER_REQUEST_MAX,
            ),
            (publish(LENGTHS_PER_REQUEST_MAX + 1), LENGTHS_PER_REQUEST_MAX),
            (seal, LENGTHS_PER_REQUEST_MAX),
            (renew(LEASES_PER_RENEWAL_MAX + 1), LEASES_PER_RENEWAL_MAX),
        ] {
            let kind = request.kind();
            let refused = answered(&cluster, request).await;
            let is_refused =
                matches!(refused, Err(Refusal::TooLarge { limit, .. }) if limit == most as u64);
            assert!(is_refused, "{kind}: {refused:?}");
            let other = cluster.client().await;
            let to = path(&format!("/{kind}/{most}"));
            let options = PutOptions { parents: true, ..PutOptions::default() };
            other.put(&to, bytes_of(1, 1 << 20), &options).await.expect("others go on");
        }
    });
}

#[test]
fn second_writer_is_refused_and_the_first_goes_on() {
    let cluster = Cluster::of(1);
    block_on(async {
        let client = cluster.client().await;
        let object = path("/object");
        client.put(&object, bytes_of(1, 1000), &PutOptions::default()).await.expect("stored");
        let mut first = client.append(&object).await.expect("sealed");
        let other = cluster.client().await.with_deadline(Duration::from_secs(3));
        let error = other.append(&object).await.expect_err("the first holds it");
        assert!(matches!(error.name(), "SecondWriter" | "TimedOut"), "{error}");
        first.write(&bytes_of(2, 1000)).await.expect("written");
        first.close().await.expect("closed");
        assert_eq!(client.stat(&object).await.expect("there").bytes, 2000);
    });
}

#[test]
fn broken_pipe_is_quiet() {
    let cluster = Cluster::of(1);
    let local = cluster.path("local");
    std::fs::write(&local, bytes_of(1, 6 << 20)).expect("written");
    assert_eq!(cluster.cli(&["fs", "put", local.to_str().expect("UTF-8"), "/big"]).code, 0);
    let program = env!("CARGO_BIN_EXE_sanderling");
    let address = &cluster.namenode.address;
    let script = format!("{program} --namenode {address} fs cat /big | head -c 10 | wc -c");
    let ran = run(std::process::Command::new("bash").args(["-o", "pipefail", "-c", &script]));
    assert_eq!((ran.code, ran.stdout.trim(), ran.stderr.as_str()), (0, "10", ""), "{ran}");
}

/// No caller gave a deadline that could have passed: the write may be tried again.
#[test]
fn write_that_finds_no_active_node_ends_with_124_only_after_a_timeout() {
    let cluster = Cluster::of(1);
    let file = cluster.path("file");
    std::fs::write(&file, bytes_of(1, 1 << 20)).expect("written");
    let put = ["fs", "put", file.to_str().expect("UTF-8"), "/n"];
    let ran = cluster.cli(&["node", "notice", "n0", "--deadline", "10m", "--yes"]);
    assert_eq!(ran.code, 0, "{ran}");
    assert!(ran.stderr.contains("no active node is left that takes blocks"), "{ran}");
    let ran = cluster.cli(&put);
    assert_refused(&ran, 4, &["no datanode takes blocks", "next:", "node ls"]);
    let ran = cluster.cli(&[&put[..], &["--timeout", "2s"]].concat());
    assert_refused(&ran, 124, &["next:"]);
}

#[test]
fn timeout_ends_a_command_with_124() {
    let cluster = Cluster::of(0);
    let ran = cluster.cli(&["job", "new", "/job", "--timeout", "1500ms"]);
    assert_eq!(ran.code, 0, "{ran}");
    cluster.namenode.pause();
    let ran = cluster.cli(&["job", "ls", "--timeout", "1500ms"]);
    assert_refused(&ran, 124, &["1.50 s"]);
    // 3 s for the last call and the clean-up, and the rest for a slow machine.
    assert!(ran.took < Duration::from_secs(10), "{ran}");
    // It had nothing to follow yet.
    let ran = cluster.cli(&["events", "--follow", "--timeout", "1500ms"]);
    assert_refused(&ran, 124, &["1.50 s"]);
    cluster.namenode.resume();
}
