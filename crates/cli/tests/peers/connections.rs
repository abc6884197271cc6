//! One tenant that opens as many connections as it can takes no server's places from others, nor
//! its descriptors.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::unadmitted::{
    DESCRIPTORS, health, namenode_with_few_descriptors, until_descriptors_are_left,
};
use crate::cluster::guarded::Guarded;
use crate::cluster::{SOON, allow_open_files, block_on, bytes_of, path, until};
use sanderling_client::PutOptions;
use sanderling_protocol::frame::{HEADER_BYTES, decode_body, encode_body};
use sanderling_protocol::message::{Hello, Role};
use sanderling_protocol::{Header, Op, Refusal, Token};
use tempfile::TempDir;

/// Places of a server for connections that are admitted, if it may have four times as many
/// descriptors open.
const PLACES: usize = 4_096;

/// More than those.
const GREEDY: usize = PLACES + 100;

/// Opens a connection, with a token where one is required.
fn greet(address: &str, token: Option<&Token>) -> Result<TcpStream, Refusal> {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(SOON)).expect("not zero");
    let hello = Hello { role: Role::Client, cluster: None, node: None, token: token.cloned() };
    let greeting = encode_body(&hello);
    let mut header = Header::new(Op::Hello, 1);
    header.body_bytes = greeting.len() as u32;
    stream.write_all(&[&header.encode()[..], &greeting].concat()).expect("it is taken");
    let mut head = [0; HEADER_BYTES];
    stream.read_exact(&mut head).expect("an answer");
    let header = Header::decode(&head).expect("it is ours");
    let mut body = vec![0; header.body_bytes as usize];
    stream.read_exact(&mut body).expect("all of it");
    if header.status == 0 { Ok(stream) } else { Err(decode_body(&body).expect("a refusal")) }
}

/// Returns whether the server has the connection open, which has no bytes to read.
fn is_open(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).expect("a socket");
    let read = stream.read(&mut [0]);
    read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

#[test]
fn tenant_with_connections_without_end_leaves_places_to_others() {
    // Servers may have as many open.
    allow_open_files(4 * PLACES as u64);
    let guarded = Guarded::start(1);
    let greedy = guarded.token(&["--subject", "greedy"]);
    let servers = [("/a", &guarded.cluster.namenode), ("/b", &guarded.cluster.datanodes[0])];
    for (name, server) in servers {
        let address = server.address.as_str();
        let mut kept = Vec::new();
        let mut refused = Vec::new();
        for _ in 0..GREEDY {
            match greet(address, Some(&greedy)) {
                Ok(stream) => kept.push(stream),
                Err(refusal) => refused.push(refusal),
            }
        }
        block_on(async {
            let client = guarded.client(&["--subject", "other"]).await;
            let (file, data) = (path(name), bytes_of(1, 100_000));
            let options = PutOptions::default();
            client.put(&file, data.clone(), &options).await.expect("there is a place");
            assert!(client.get(&file).await.expect("there is a place") == data);
        });
        kept.retain_mut(is_open);
        let left = kept.len();
        assert!(left < PLACES, "the other client has a place");
        assert!(left > PLACES / 2, "{left} are open: a tenant alone may have what is free");
        for refusal in &refused {
            let Refusal::RetryAfter { why, .. } = refusal else { panic!("{refusal}") };
            assert!(why.contains("close some"), "{why}");
        }
        // It goes on itself: once it has the free places, too, what it does not use makes room.
        for _ in left..PLACES + 10 {
            let again = || greet(address, Some(&greedy)).ok();
            kept.push(until("an idle connection goes", SOON, again));
        }
    }
}

#[test]
fn admitted_connections_leave_descriptors_of_a_server_that_has_few() {
    let place = TempDir::new().expect("a directory");
    let namenode = namenode_with_few_descriptors(place.path());
    let admitted = (0..DESCRIPTORS).filter_map(|_| greet(&namenode.address, None).ok());
    let admitted: Vec<_> = admitted.collect();
    assert!(admitted.len() >= DESCRIPTORS / 8, "{} are admitted", admitted.len());
    until_descriptors_are_left(&namenode);
    block_on(health(&namenode.http_address));
}
