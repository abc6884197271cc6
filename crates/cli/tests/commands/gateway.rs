//! Real processes: what unauthenticated requests to the S3 gateway cost the namenode.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, SOON, block_on, http, path};
use sanderling_client::PutOptions;
use sanderling_protocol::message::ObjectKind;

const PAGE: &str = "https://app.example";
/// Look-ups that unauthenticated requests have, for each second and at once, by `rules_cache.rs`.
const LOOK_UPS: f64 = 100.0;
const INVENTED: usize = 3000;

/// Sends a preflight on an open connection, as browsers do before they send a page's request;
/// returns the status.
fn preflight(stream: &mut TcpStream, bucket: &str) -> u16 {
    let head = send(stream, &format!("OPTIONS /{bucket}/key"));
    head[9..12].parse().expect("a status")
}

/// Sends a request of the page; returns the head of the answer.
fn send(stream: &mut TcpStream, line: &str) -> String {
    let request = format!(
        "{line} HTTP/1.1\r\nhost: 127.0.0.1\r\norigin: {PAGE}\r\n\
         access-control-request-method: GET\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("it is taken");
    let (mut answer, mut bytes) = (String::new(), [0; 4096]);
    loop {
        if let Some((head, body)) = answer.split_once("\r\n\r\n") {
            let lower = head.to_ascii_lowercase();
            let length = lower.split_once("content-length: ").map_or("0", |(_, rest)| rest);
            let length = length.lines().next().unwrap_or("0").trim();
            if body.len() >= length.parse::<usize>().expect("a number") {
                return lower;
            }
        }
        let read = stream.read(&mut bytes).expect("it is answered");
        assert!(read > 0, "the connection ended: {answer}");
        answer.push_str(&String::from_utf8_lossy(&bytes[..read]));
    }
}

/// Returns how many look-ups the namenode has answered.
fn look_ups(cluster: &Cluster) -> f64 {
    let page = block_on(http::page(&cluster.namenode.http_address, "/metrics"));
    let line = "sanderling_namenode_requests_total{kind=\"lookup\"} ";
    let found = page.lines().find_map(|it| it.strip_prefix(line));
    found.map_or(0.0, |figure| figure.parse().expect("a number"))
}

/// Makes a bucket whose rules let the page read, as another gateway does.
fn make_bucket(cluster: &Cluster, bucket: &str) {
    let rules = format!(r#"[{{"id": null, "origins": ["{PAGE}"], "methods": ["GET"]}}]"#);
    block_on(async {
        let client = cluster.client().await;
        let directory = path(&format!("/{bucket}"));
        let made = client.make_directory(&directory, ObjectKind::Directory, false, false).await;
        made.expect("made");
        let to = path(&format!("/{bucket}/%!c"));
        client.put(&to, rules.into(), &PutOptions::default()).await.expect("stored");
    });
}

#[test]
fn requests_for_invented_buckets_cost_the_namenode_a_bounded_rate_of_look_ups() {
    let cluster = Cluster::of(1);
    let words = ["gateway", "s3", "--namenode", &cluster.namenode.address];
    let here = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    let gateway = cluster.serve("gateway", &[&words[..], &here].concat());
    make_bucket(&cluster, "shop");
    let mut stream = TcpStream::connect(&gateway.address).expect("it is open");
    stream.set_read_timeout(Some(SOON)).expect("not zero");
    stream.set_nodelay(true).expect("a socket");
    assert_eq!(preflight(&mut stream, "shop"), 200);
    let (began, before) = (Instant::now(), look_ups(&cluster));
    let mut asked = 0;
    // Longer than rules are believed, so that those of the shop are looked up meanwhile.
    while asked < INVENTED || began.elapsed() < Duration::from_secs(3) {
        assert_eq!(preflight(&mut stream, &format!("invented-{asked}")), 403);
        if asked % 100 == 0 {
            assert_eq!(preflight(&mut stream, "shop"), 200, "after {asked} others");
        }
        asked += 1;
    }
    let (cost, seconds) = (look_ups(&cluster) - before, began.elapsed().as_secs_f64());
    let most = LOOK_UPS * (seconds + 1.0) + seconds;
    assert!(cost <= most, "{asked} invented buckets: {cost} look-ups in {seconds} s");
    assert!(cost >= LOOK_UPS, "the figure counts look-ups: {cost}");
    let page = block_on(http::page(&gateway.http_address, "/metrics"));
    let refused = "sanderling_gateway_cors_lookups_refused_total ";
    let refused = page.lines().find_map(|line| line.strip_prefix(refused)).expect("a figure");
    assert!(refused.parse::<f64>().is_ok_and(|refused| refused > 0.0), "{refused}");
    // Preflights do not take the look-ups of requests.
    make_bucket(&cluster, "queried");
    (0..INVENTED).for_each(|number| {
        preflight(&mut stream, &format!("more-{number}"));
    });
    let mut page = TcpStream::connect(&gateway.address).expect("it is open");
    page.set_read_timeout(Some(SOON)).expect("not zero");
    let head = send(&mut page, "GET /queried/key");
    assert!(head.contains("access-control-allow-origin"), "{head}");
    // A bucket that is new has its rules as soon as unauthenticated requests leave a look-up.
    make_bucket(&cluster, "new");
    let limit = Instant::now() + SOON;
    while preflight(&mut stream, "new") != 200 {
        assert!(Instant::now() < limit, "the rules of a new bucket are seen");
        std::thread::sleep(Duration::from_millis(20));
    }
}
