//! What operators see of durable directories: `fs ls`, `fsck`, and the namenode's pages.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::cluster::guarded::{Guarded, kept};
use crate::cluster::http::{get, page, post, send};
use crate::cluster::stores::{fleet, make, put, reported};
use crate::cluster::{Cluster, SOON, block_on, path, until};

/// Posts a body, and returns what is answered.
fn posted(http: &str, target: &str, body: &str) -> serde_json::Value {
    let answer = block_on(post(http, target, body));
    let (_, json) = answer.split_once("\r\n\r\n").expect("a head and a body");
    serde_json::from_str(json).expect("the answer is JSON")
}

#[test]
fn volatile_and_durable_objects_are_distinguished_everywhere() {
    let (cluster, store) = fleet(1);
    reported(&cluster);
    let http = cluster.namenode.http_address.clone();
    // Made over HTTP.
    let made = posted(
        &http,
        "/v1/durable",
        r#"{"path": "/out", "store": "archive", "backlog_bytes_max": 100000}"#,
    );
    assert_eq!(made["path"], "/out", "{made}");
    block_on(async {
        let client = cluster.client().await;
        put(&client, "/out/first", 1, 5000).await;
        put(&client, "/plain", 1, 5000).await;
    });
    let waited =
        posted(&http, "/v1/durable/wait", r#"{"path": "/out/first", "within_seconds": 30}"#);
    assert_eq!(waited["is_copied"], true, "{waited}");
    let away = cluster.path("away");
    std::fs::rename(&store, &away).expect("moved");
    block_on(async {
        let client = cluster.client().await;
        put(&client, "/out/second", 2, 7000).await;
    });
    let listed = cluster.json(&["fs", "ls", "/out"]);
    let states: Vec<&str> = listed["entries"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|entry| entry["durability"].as_str())
        .collect();
    assert_eq!(states, ["durable", "volatile"], "{listed}");
    let plain = cluster.json(&["fs", "ls", "/"]);
    assert!(plain["entries"][1].get("durability").is_none(), "{plain}");
    let long = cluster.cli(&["fs", "ls", "-l", "/out"]).stdout;
    assert!(long.contains("durable   first") && long.contains("volatile  second"), "{long}");
    let alone = cluster.cli(&["fs", "ls", "-l", "/out/second"]).stdout;
    assert!(alone.contains("volatile  second"), "{alone}");
    until("the stall is shown", SOON, || {
        let shown = cluster.cli(&["fsck"]).stdout;
        let has_age = shown.contains("/out: VOLATILE until the store archive has 1 change, ");
        let has_all = has_age && shown.contains("STALLED: ");
        has_all.then_some(())
    });
    let checked = cluster.json(&["fsck"]);
    assert_eq!(checked["durable"][0]["backlog_bytes"], 7000, "{checked}");
    let seen = block_on(get(&http, "/v1/durable"));
    let seen = &seen["directories"][0];
    assert_eq!(seen["backlog_changes"], 1, "{seen}");
    assert!(seen["stalled"].as_str().is_some_and(|why| !why.is_empty()), "{seen}");
    let one = block_on(get(&http, "/v1/durable?path=/out/second"));
    assert_eq!(one["durability"]["is_durable"], false, "{one}");
    let waited = posted(&http, "/v1/durable/wait", r#"{"path": "/out", "within_seconds": 0.1}"#);
    assert_eq!(waited["is_copied"], false, "{waited}");
    std::fs::rename(&away, &store).expect("moved back");
    block_on(async {
        let client = cluster.client().await;
        assert_eq!(client.wait_durable(&path("/out"), SOON).await.expect("durable"), None);
    });
    let shown = cluster.cli(&["fsck"]).stdout;
    assert!(shown.contains("/out: the store archive has everything"), "{shown}");
}

/// Returns what the namenode's metrics show of a backlog: changes, bytes, the age of the oldest
/// change in seconds, and how many directories are stalled.
fn backlog(cluster: &Cluster) -> [f64; 4] {
    let shown = block_on(page(&cluster.namenode.http_address, "/metrics"));
    ["backlog_changes", "backlog_bytes", "backlog_age_seconds", "stalled"].map(|name| {
        let name = format!("sanderling_namenode_durable_{name} ");
        let figure = shown.lines().find_map(|line| line.strip_prefix(&name));
        figure.and_then(|figure| figure.parse().ok()).expect("a figure")
    })
}

#[test]
fn metrics_show_the_backlog_while_the_store_is_away_and_none_after() {
    let (cluster, store) = fleet(1);
    make(&cluster, "/out");
    block_on(async { put(&cluster.client().await, "/out/first", 1, 5000).await });
    let synced = cluster.cli(&["fs", "sync", "/out", "--timeout", "60s"]);
    assert_eq!((synced.code, backlog(&cluster)), (0, [0.0; 4]), "{synced}");
    let away = cluster.path("away");
    std::fs::rename(&store, &away).expect("moved");
    let began = Instant::now();
    block_on(async {
        let client = cluster.client().await;
        put(&client, "/out/second", 2, 7000).await;
        put(&client, "/out/third", 3, 11_000).await;
        client.delete(&path("/out/first"), false).await.expect("deleted");
    });
    let put_within = began.elapsed().as_secs_f64();
    until("the oldest change is two seconds old", SOON, || {
        let least = began.elapsed().as_secs_f64() - put_within;
        let [changes, bytes, age, stalled] = backlog(&cluster);
        let most = began.elapsed().as_secs_f64();
        // A removal has no bytes.
        assert_eq!((changes, bytes), (3.0, 18_000.0));
        // In milliseconds of another clock.
        assert!((least - 0.1..=most + 0.1).contains(&age), "{age}: {least} to {most}");
        (age > 2.0 && stalled == 1.0).then_some(())
    });
    std::fs::rename(&away, &store).expect("moved back");
    let synced = cluster.cli(&["fs", "sync", "/out", "--timeout", "60s"]);
    assert_eq!((synced.code, backlog(&cluster)), (0, [0.0; 4]), "{synced}");
}

#[test]
fn callers_that_wait_for_a_store_keep_no_other_caller_out() {
    let (cluster, store) = fleet(1);
    reported(&cluster);
    let http = cluster.namenode.http_address.clone();
    let made = posted(&http, "/v1/durable", r#"{"path": "/out", "store": "archive"}"#);
    assert_eq!(made["path"], "/out", "{made}");
    std::fs::rename(&store, cluster.path("away")).expect("moved");
    block_on(async {
        let client = cluster.client().await;
        put(&client, "/out/first", 1, 5000).await;
    });
    let body = r#"{"path": "/out", "within_seconds": 30}"#;
    let request = format!(
        "POST /v1/durable/wait HTTP/1.1\r\nhost: {http}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    // More than there are places for connections.
    let waiting: Vec<TcpStream> = (0..400)
        .filter_map(|_| {
            let mut socket = TcpStream::connect(&http).ok()?;
            socket.write_all(request.as_bytes()).ok()?;
            Some(socket)
        })
        .collect();
    let began = Instant::now();
    let health = block_on(get(&http, "/healthz"));
    assert_eq!(health["role"], "namenode", "{health}");
    // The waits take 30 s.
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    drop(waiting);
}

#[test]
fn adopted_objects_are_shown_as_stored_until_they_are_read() {
    let (cluster, store) = fleet(1);
    std::fs::write(store.join("one"), "bytes").expect("written");
    std::fs::write(store.join("two"), "bytes").expect("written");
    reported(&cluster);
    let words = ["fs", "mkdir", "/in", "--durable", "archive", "--adopt"];
    assert_eq!(cluster.cli(&words).code, 0);
    block_on(async {
        let client = cluster.client().await;
        assert_eq!(&client.get(&path("/in/one")).await.expect("read back")[..], b"bytes");
    });
    let long = cluster.cli(&["fs", "ls", "-l", "/in"]).stdout;
    assert!(long.contains("durable   one") && long.contains("stored    two"), "{long}");
    make_is_refused_over_http(&cluster);
}

#[test]
fn token_sees_and_waits_for_what_it_may_read_alone() {
    let place = tempfile::TempDir::new().expect("a directory for the test");
    let store = place.path().join("store");
    std::fs::create_dir(&store).expect("made");
    let stores = kept(&format!("archive=file://{}", store.display()));
    let guarded = Guarded::start_with(1, false, &["--durable", stores]);
    let http = guarded.cluster.namenode.http_address.clone();
    let token = |flags: &[&str]| guarded.token(flags).reveal().trim().to_owned();
    let admin = token(&["--role", "admin", "--subject", "operator"]);
    let reader = token(&["--subtree", "/out", "--rights", "read"]);
    let outsider = token(&["--subtree", "/other", "--rights", "read,write"]);
    let observer = token(&["--subtree", "/", "--rights", "metrics"]);
    let status = |line: (&str, &str), token: Option<&str>, body: &str| {
        let answer = block_on(send(&http, line, token, body));
        answer.split(' ').nth(1).and_then(|it| it.parse::<u16>().ok()).expect("a status")
    };
    let make = ("POST", "/v1/durable");
    let body = r#"{"path": "/out", "store": "archive"}"#;
    for token in [None, Some(&*reader), Some(&*outsider), Some(&*observer)] {
        assert!([401, 403].contains(&status(make, token, body)), "{token:?}");
    }
    let is_made = || (status(make, Some(&admin), body) == 200).then_some(());
    until("a datanode reports its store", SOON, is_made);
    let wait = ("POST", "/v1/durable/wait");
    let looks = [
        (("GET", "/v1/durable?path=/out"), "", [&reader, &admin], [&outsider, &observer]),
        (
            wait,
            r#"{"path": "/out", "within_seconds": 1}"#,
            [&reader, &admin],
            [&outsider, &observer],
        ),
        (("GET", "/v1/durable"), "", [&observer, &admin], [&reader, &outsider]),
    ];
    for (line, body, may, may_not) in looks {
        assert_eq!(status(line, None, body), 401, "{line:?}");
        for token in may {
            assert_eq!(status(line, Some(token), body), 200, "{line:?} {token}");
        }
        for token in may_not {
            assert_eq!(status(line, Some(token), body), 403, "{line:?} {token}");
        }
    }
}

fn make_is_refused_over_http(cluster: &Cluster) {
    let body = r#"{"path": "/other", "store": "archive"}"#;
    let refused = posted(&cluster.namenode.http_address, "/v1/durable", body);
    assert!(refused.to_string().contains("a store has one"), "{refused}");
    let plain = r#"{"path": "/", "within_seconds": 1}"#;
    let refused = posted(&cluster.namenode.http_address, "/v1/durable/wait", plain);
    assert!(refused.to_string().contains("in no durable directory"), "{refused}");
    // The one that there is may be made again.
    let again = r#"{"path": "/in", "store": "archive", "parents": true}"#;
    let made = posted(&cluster.namenode.http_address, "/v1/durable", again);
    assert_eq!(made["path"], "/in", "{made}");
}
