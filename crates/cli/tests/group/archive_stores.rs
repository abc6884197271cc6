//! Stores that are no place for an archive.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::cluster::{Cluster, SOON, run, sanderling};

/// An S3 server that ignores `If-None-Match`: it takes every object, and keeps none.
struct Unconditional {
    endpoint: String,
    /// The first lines of all requests that put an object.
    puts: Arc<Mutex<Vec<String>>>,
}

impl Unconditional {
    /// Serves on loopback. Its threads end with the test.
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let puts: Arc<Mutex<Vec<String>>> = Arc::default();
        let noted = Arc::clone(&puts);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let noted = Arc::clone(&noted);
                thread::spawn(move || answer(stream, &noted));
            }
        });
        Self { endpoint, puts }
    }
}

/// Answers one request.
fn answer(mut stream: TcpStream, puts: &Mutex<Vec<String>>) {
    let Some(line) = request_line(&mut stream) else { return };
    let method = line.split(' ').next().unwrap_or_default().to_owned();
    let (status, body) = match method.as_str() {
        "PUT" => {
            puts.lock().expect("whole").push(line);
            ("200 OK", "")
        }
        "GET" => ("200 OK", "<ListBucketResult></ListBucketResult>"),
        "POST" => ("200 OK", "<DeleteResult></DeleteResult>"),
        _ => ("404 Not Found", ""),
    };
    let head = format!("HTTP/1.1 {status}\r\netag: \"1\"\r\nconnection: close");
    let answer = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let _ = stream.write_all(answer.as_bytes());
}

/// Reads a request to its end; returns its first line.
fn request_line(stream: &mut TcpStream) -> Option<String> {
    stream.set_read_timeout(Some(SOON)).ok()?;
    let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
    loop {
        if let Some(end) = bytes.windows(4).position(|it| it == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let lower = head.to_lowercase();
            let length = lower.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
            if bytes.len() >= end + 4 + length {
                return head.lines().next().map(str::to_owned);
            }
        }
        match stream.read(&mut part).ok()? {
            0 => return None,
            count => bytes.extend_from_slice(&part[..count]),
        }
    }
}

/// Two namenodes that start at once would both have the same generation there.
#[test]
fn archive_in_a_store_without_conditions_is_refused_before_a_generation_begins() {
    let mut cluster = Cluster::of(1);
    cluster.namenode.terminate();
    assert!(cluster.namenode.wait(SOON).success(), "{}", cluster.namenode.log());
    let store = Unconditional::start();
    let catalog = cluster.path("catalog");
    let mut command = sanderling();
    command.args(["namenode", "--listen", "127.0.0.1:0", "--http", "none", "--exit-with-parent"]);
    command.arg("--dir").arg(catalog).args(["--archive", "s3://archives/namenode"]);
    let keys = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"].map(|name| (name, "sanderling"));
    command.envs(keys).env("AWS_ENDPOINT_URL", &store.endpoint).env("AWS_REGION", "us-east-1");
    let refused = run(&mut command);
    assert_eq!(refused.code, 1, "{refused}");
    let why = "the archive s3://archives/namenode cannot be used: its store does not refuse to \
               create an object that exists";
    assert!(refused.stderr.contains(why), "{refused}");
    assert!(refused.stderr.contains("whose server supports If-None-Match"), "{refused}");
    let puts = store.puts.lock().expect("whole").clone();
    assert!(puts.len() == 2 && puts.iter().all(|it| it.contains("/namenode/probe-")), "{puts:?}");
}
