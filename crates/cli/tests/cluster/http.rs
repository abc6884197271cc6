//! Calls of the servers' HTTP endpoints.

use std::io::{ErrorKind, Read, Write};
use std::net;
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Posts a body and returns the whole answer.
pub(crate) async fn post(address: &str, target: &str, body: &str) -> String {
    let headers = format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
    call(address, &format!("POST {target} HTTP/1.1\r\n{headers}"), body).await
}

/// The same with another method and a token.
pub(crate) async fn send(
    address: &str,
    (method, target): (&str, &str),
    token: Option<&str>,
    body: &str,
) -> String {
    let token = token.map(|token| format!("authorization: Bearer {token}\r\n"));
    let token = token.unwrap_or_default();
    let headers = format!("content-length: {}\r\n{token}", body.len());
    call(address, &format!("{method} {target} HTTP/1.1\r\n{headers}"), body).await
}

/// Gets a page that is JSON.
pub(crate) async fn get(address: &str, target: &str) -> serde_json::Value {
    let answer = call(address, &format!("GET {target} HTTP/1.0\r\n"), "").await;
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.contains(" 200 "), "{answer}");
    serde_json::from_str(body).expect("the page is JSON")
}

/// Gets a page and returns the whole answer.
pub(crate) async fn page(address: &str, target: &str) -> String {
    call(address, &format!("GET {target} HTTP/1.0\r\n"), "").await
}

/// Follows a page without an end until a text has come; returns the connection and what came.
pub(crate) fn follow(address: &str, target: &str, text: &str) -> (net::TcpStream, String) {
    let mut stream = net::TcpStream::connect(address).expect("the HTTP endpoint is open");
    stream.set_read_timeout(Some(super::SOON)).expect("not zero");
    let head = format!("GET {target} HTTP/1.1\r\nhost: {address}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("sent");
    let (mut seen, mut bytes) = (String::new(), [0; 4096]);
    while !seen.contains(text) {
        let read = stream.read(&mut bytes).expect("read in time");
        assert!(read > 0, "it ended: {seen}");
        seen.push_str(&String::from_utf8_lossy(&bytes[..read]));
    }
    (stream, seen)
}

/// Reads until a page without an end ends all the same; fails if it does not.
pub(crate) fn ends(mut stream: net::TcpStream) {
    let limit = Instant::now() + super::SOON;
    loop {
        match stream.read(&mut [0; 4096]) {
            Ok(0) => return,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return,
            read => {
                assert!(read.is_ok() && Instant::now() < limit, "it does not end: {read:?}");
            }
        }
    }
}

/// Calls a page with a token, or without one; returns the whole answer.
pub(crate) async fn shown(
    address: &str,
    method: &str,
    target: &str,
    token: Option<&str>,
) -> String {
    let token = token.map(|token| format!("authorization: Bearer {token}\r\n"));
    let headers = format!("content-length: 2\r\n{}", token.unwrap_or_default());
    call(address, &format!("{method} {target} HTTP/1.1\r\n{headers}"), "{}").await
}

async fn call(address: &str, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("the HTTP endpoint is open");
    let request = format!("{head}host: {address}\r\nconnection: close\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("answered");
    answer
}
