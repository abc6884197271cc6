//! `sanderling datanode drain`, and notices that are waited for.

use std::time::{Duration, Instant};

use crate::cluster::guarded::Guarded;
use crate::cluster::model::Model;
use crate::cluster::{
    Cluster, Shape, block_on, bytes_of, http, path, until, until_drained, until_node,
};
use sanderling_client::PutOptions;
use sanderling_protocol::Millis;

/// A cluster in which nothing moves.
fn without_manager() -> Cluster {
    let namenode = vec!["--no-manager".to_owned()];
    Cluster::start(Shape { datanodes: 2, namenode, ..Shape::default() })
}

#[test]
fn drain_that_is_waited_for_ends_with_0_when_the_node_is_empty() {
    let mut cluster = Cluster::of(3);
    let model = block_on(async { Model::fill(&cluster.client().await, 24).await });
    let address = cluster.datanode("n0").http_address.clone();
    let words = ["datanode", "drain", "--http", &address, "--deadline", "60s", "--wait"];
    let ran = cluster.cli(&words);
    assert_eq!(ran.code, 0, "{ran}");
    assert!(ran.stdout.contains("(n0) is empty: ") && ran.stdout.contains("have left"), "{ran}");
    block_on(async {
        let client = cluster.client().await;
        until_drained(&client, "n0").await;
        cluster.datanode("n0").kill();
        model.check_whole(&cluster, &client).await;
    });
    // A hook may run twice, and a node without blocks has nothing to wait for.
    let ready = cluster.path("n1.ready");
    let ready = ready.to_str().expect("a name in UTF-8");
    let words = ["datanode", "drain", "--ready-file", ready, "--deadline", "60s", "--wait"];
    for _ in 0..2 {
        let document = cluster.json(&words);
        assert_eq!((&document["schema"], &document["policy"]), (&1.into(), &"drained".into()));
    }
}

#[test]
fn drain_whose_blocks_do_not_leave_in_time_ends_with_5_and_their_number() {
    let mut cluster = without_manager();
    block_on(async { Model::fill(&cluster.client().await, 24).await });
    let address = cluster.datanode("n0").http_address.clone();
    let words = ["datanode", "drain", "--http", &address, "--deadline", "2s", "--wait"];
    let ran = cluster.cli(&words);
    assert_eq!(ran.code, 5, "{ran}");
    assert!(ran.stderr.contains("blocks were still on node"), "{ran}");
    assert!(ran.stderr.contains("sanderling fsck"), "{ran}");
}

#[test]
fn wait_for_a_drain_is_bounded_by_the_deadline_and_ends_with_the_notice() {
    let mut cluster = without_manager();
    block_on(async {
        let client = cluster.client().await;
        Model::fill(&client, 24).await;
        let address = cluster.datanode("n0").http_address.clone();
        let began = Instant::now();
        let body = r#"{"deadline_seconds": 1, "reason": "test"}"#;
        let answer = http::post(&address, "/v1/notice?wait=true", body).await;
        assert!(answer.starts_with("HTTP/1.1 504") && answer.contains("NotDrained"), "{answer}");
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(900), "{took:?}");
        // A recommendation has no end to wait for.
        let address = cluster.datanode("n1").http_address.clone();
        let body = r#"{"recommendation": "leave soon"}"#;
        let answer = http::post(&address, "/v1/notice?wait=true", body).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
        let answer = http::post(&address, "/v1/notice?wiat=true", body).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
        // A notice that is taken back ends the wait.
        let waits = tokio::spawn(async move {
            let body = r#"{"deadline_seconds": 200, "reason": "test"}"#;
            http::post(&address, "/v1/notice?wait=true", body).await
        });
        until_node(&client, "n1", "draining", |node| node.policy.is_draining()).await;
        let health = cluster.datanode("n1").http_address.clone();
        let limit = Instant::now() + crate::SOON;
        while http::get(&health, "/healthz").await["policy"] != "draining" {
            assert!(Instant::now() < limit, "the node does not drain");
        }
        let node = sanderling_protocol::NodeSelector("n1".to_owned());
        client.cancel(&node).await.expect("taken back");
        let answer = waits.await.expect("no panic");
        assert!(answer.starts_with("HTTP/1.1 504") && answer.contains("taken back"), "{answer}");
    });
}

/// As at a namenode.
#[test]
fn notice_with_a_long_text_has_413_at_a_datanode_and_one_that_is_too_far_has_400() {
    let mut cluster = without_manager();
    let address = cluster.datanode("n0").http_address.clone();
    let text = "x".repeat(2000);
    let cases = [
        (format!(r#"{{"recommendation": "{text}"}}"#), "413"),
        (r#"{"deadline_seconds": 604800.001, "reason": "test"}"#.to_owned(), "400"),
    ];
    for (body, status) in cases {
        let answer = block_on(http::post(&address, "/v1/notice", &body));
        let begin = format!("HTTP/1.1 {status}");
        assert!(answer.starts_with(&begin) && answer.contains("TooLarge"), "{answer}");
    }
}

/// A script that goes on after it would stop a node that takes blocks.
#[test]
fn wait_of_a_command_for_a_drain_that_is_taken_back_fails() {
    let cluster = without_manager();
    block_on(async { Model::fill(&cluster.client().await, 24).await });
    let decommission = ["node", "decommission", "n0", "--yes", "--wait"];
    let notice = ["node", "notice", "n0", "--deadline", "200s", "--yes", "--wait"];
    for words in [&decommission[..], &notice] {
        let ran = std::thread::scope(|scope| {
            let waits = scope.spawn(|| cluster.cli(words));
            block_on(async {
                let client = cluster.client().await;
                until_node(&client, "n0", "draining", |node| node.policy.is_draining()).await;
            });
            let cancelled = cluster.cli(&["node", "cancel", "n0"]);
            assert_eq!(cancelled.code, 0, "{cancelled}");
            waits.join().expect("no panic")
        });
        assert_eq!((ran.code, ran.stdout.as_str()), (5, ""), "{ran}");
        for part in ["(n0) was taken back", "takes blocks again", "next:  sanderling node ls"] {
            assert!(ran.stderr.contains(part), "{part}: {ran}");
        }
    }
}

#[test]
fn bytes_that_expire_before_the_deadline_of_a_drain_are_exported_as_such() {
    let cluster = Cluster::of(2);
    block_on(async {
        let client = cluster.client().await;
        let ttl = Some(Millis(300_000));
        let options = PutOptions { parents: true, ttl, ..PutOptions::default() };
        for number in 0..16 {
            let name = path(&format!("/expiring/{number}"));
            client.put(&name, bytes_of(number, 70_000), &options).await.expect("stored");
        }
    });
    let ran = cluster.cli(&["node", "notice", "n0", "--deadline", "900s", "--yes"]);
    assert_eq!(ran.code, 0, "{ran}");
    until("all that is left expires", crate::SOON, || {
        let page = block_on(http::page(&cluster.namenode.http_address, "/metrics"));
        let [left, skipped] = ["left", "skipped"].map(|what| {
            let name = format!("sanderling_namenode_drain_{what}_bytes ");
            let found = page.lines().find_map(|line| line.strip_prefix(&name));
            found.and_then(|figure| figure.parse::<u64>().ok()).expect("a figure")
        });
        (left > 0 && left == skipped).then_some(())
    });
}

#[test]
fn drain_without_a_datanode_or_a_namenode_fails_with_a_sentence() {
    let mut cluster = without_manager();
    let ran = cluster.cli(&["datanode", "drain", "--http", "127.0.0.1:1", "--wait"]);
    assert_eq!(ran.code, 4, "{ran}");
    assert!(ran.stderr.contains("127.0.0.1:1 cannot be reached"), "{ran}");
    cluster.namenode.kill();
    let address = cluster.datanode("n0").http_address.clone();
    let words = ["datanode", "drain", "--http", &address, "--deadline", "3s", "--wait"];
    let ran = cluster.cli(&words);
    assert_eq!(ran.code, 5, "{ran}");
    assert!(ran.stderr.contains("the namenode did not take the notice"), "{ran}");
}

#[test]
fn drain_shows_a_token_that_it_makes_with_the_secret() {
    let guarded = Guarded::encrypted(2, &[]);
    let address = guarded.cluster.datanodes[0].http_address.clone();
    let words = ["datanode", "drain", "--http", &address, "--deadline", "60s", "--wait"];
    let ran = guarded.cli(None, &words);
    assert_eq!(ran.code, 1, "{ran}");
    assert!(ran.stderr.contains("token") && ran.stderr.contains("--secret-file"), "{ran}");
    let ran = guarded.cli(None, &[&words[..], &["--secret-file", &guarded.secret]].concat());
    assert_eq!(ran.code, 0, "{ran}");
}

#[test]
fn answer_of_another_server_is_no_empty_node() {
    let guarded = Guarded::start(1);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it listens").to_string();
    let server = std::thread::spawn(move || {
        // The first has no role; the second answers no notice as a datanode does.
        let node = r#"{"id":1,"name":"n0","policy":"draining"}"#;
        for body in ["{}", r#"{"role":"datanode"}"#, node] {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut request = [0; 4096];
            let _ = std::io::Read::read(&mut stream, &mut request);
            let length = body.len();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
            let _ = std::io::Write::write_all(&mut stream, (head + body).as_bytes());
        }
    });
    let words = ["datanode", "drain", "--http", &address, "--deadline", "9s", "--wait"];
    for _ in 0..2 {
        let ran = guarded.cli(None, &words);
        assert_eq!(ran.code, 1, "{ran}");
        assert!(ran.stderr.contains("no datanode serves"), "{ran}");
    }
    server.join().expect("no panic");
    let words = ["datanode", "drain", "--http", "192.0.2.1:7611", "--secret-file"];
    let ran = guarded.cli(None, &[&words[..], &[&guarded.secret]].concat());
    assert_eq!(ran.code, 1, "{ran}");
    assert!(ran.stderr.contains("without encryption"), "{ran}");
}
