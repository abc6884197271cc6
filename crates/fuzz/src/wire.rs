//! Targets that feed bytes of peers: frames and messages.

use std::fmt::Debug;

use sanderling_datanode::parsers::packet;
use sanderling_protocol::frame::{
    HEADER_BYTES, Header, RangeReply, RangeRequest, decode_body, encode_body,
};
use sanderling_protocol::local::{
    LeaseReply, LeaseRequest, LocalEndpoint, LocalGreetingReply, decode_returns,
};
use sanderling_protocol::message::{Hello, HelloReply};
use sanderling_protocol::{Order, OrderReply, Path, Refusal, Reply, Request, StorageClass};
use sanderling_transport::parsers::frames;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Reads a message; one that can be read comes back when it is written and read again.
fn message<T: Serialize + DeserializeOwned + PartialEq + Debug>(body: &[u8]) -> Option<T> {
    let read: T = decode_body(body).ok()?;
    let again: T = decode_body(&encode_body(&read)).expect("what was written can be read");
    assert_eq!(again, read);
    Some(read)
}

/// Decodes the start of the input as a header, and the rest as the bodies that are no messages:
/// ranges that are requested, and as many ranges of a reply as the first byte names. Each must be
/// equal after it is encoded and decoded again.
///
/// # Panics
/// When one is not, or when decoding panics.
pub fn frame(input: &[u8]) {
    let Some((head, body)) = input.split_first_chunk::<HEADER_BYTES>() else { return };
    if let Ok(header) = Header::decode(head) {
        assert_eq!(header.encode(), *head);
        let _ = header.tier();
    }
    if let Ok(ranges) = RangeRequest::decode_all(body) {
        let mut again = Vec::new();
        ranges.iter().for_each(|range| range.encode(&mut again));
        assert_eq!(RangeRequest::decode_all(&again), Ok(ranges));
    }
    let count = usize::from(head[0]);
    if let Ok(ranges) = RangeReply::decode_all(body, count) {
        let mut again = Vec::new();
        ranges.iter().for_each(|range| range.encode(&mut again));
        again.extend_from_slice(&body[again.len()..]);
        assert_eq!(RangeReply::decode_all(&again, count), Ok(ranges));
    }
}

/// Feeds the input behind its first byte to a server's reader of frames, once as a whole and once
/// in pieces; the first byte chooses their length, and whether the peer was admitted before. Both
/// must give the same frames, whose bodies are then decoded as refusals.
///
/// # Panics
/// When the frames depend on the pieces, or when reading panics.
pub fn stream(input: &[u8]) {
    let Some((&how, sent)) = input.split_first() else { return };
    let is_admitted = how & 1 == 1;
    let pieces = frames(sent, usize::from(how) << 2 | 1, is_admitted);
    let whole = frames(sent, usize::MAX, is_admitted);
    assert!(pieces == whole, "frames do not depend on how their bytes come");
    for frame in whole {
        let _ = decode_body::<Refusal>(&frame.body);
    }
}

/// Decodes the input as what both ends of a new connection send: a greeting, its reply, a refusal.
/// Each must be equal after it is encoded and decoded again.
///
/// # Panics
/// When one is not, or when decoding panics.
pub fn greeting(input: &[u8]) {
    message::<Hello>(input);
    message::<HelloReply>(input);
    message::<Refusal>(input);
}

/// Decodes the input as the requests of one frame to the namenode. They must be equal after they
/// are encoded and decoded again. How each may be repeated and which request is inside it can be
/// read without a panic.
///
/// # Panics
/// When they are not, or when decoding panics.
pub fn request(input: &[u8]) {
    for request in message::<Vec<Request>>(input).unwrap_or_default() {
        let _ = (request.repeat(), request.inner());
    }
}

/// Decodes the input as the replies of one frame of the namenode. They must be equal after they are
/// encoded and decoded again.
///
/// # Panics
/// When they are not, or when decoding panics.
pub fn reply(input: &[u8]) {
    message::<Vec<Result<Reply, Refusal>>>(input);
}

/// Decodes the input as an order to a datanode, and as the reply to one. Each must be equal after
/// it is encoded and decoded again.
///
/// # Panics
/// When one is not, or when decoding panics.
pub fn order(input: &[u8]) {
    message::<Order>(input);
    message::<OrderReply>(input);
}

/// Decodes the input as a packet between processes of one machine, and the body of that, or the
/// whole input if it is none, as each message of such packets: leases that are requested, given and
/// returned, the endpoint, the greeting. The body must be as long as the header names; leases and
/// messages must be equal after they are encoded and decoded again.
///
/// # Panics
/// When one of that does not hold, or when decoding panics.
pub fn local(input: &[u8]) {
    let body = packet(input).map_or(input, |(header, body)| {
        assert_eq!(header.body_bytes as usize, body.len());
        body
    });
    if let Ok(read) = LeaseRequest::decode(body) {
        let mut again = Vec::new();
        LeaseRequest::encode(&read.returned, &read.ranges, &mut again);
        assert_eq!(LeaseRequest::decode(&again), Ok(read));
    }
    let _ = decode_returns(body);
    for count in [0, 1, 2, 128] {
        let Ok((replies, rest)) = LeaseReply::decode_all(body, count) else { continue };
        let mut again = Vec::new();
        replies.iter().for_each(|reply| reply.encode(&mut again));
        again.extend_from_slice(rest);
        assert_eq!(LeaseReply::decode_all(&again, count), Ok((replies, rest)));
    }
    message::<Option<LocalEndpoint>>(body);
    message::<LocalGreetingReply>(body);
}

/// Reads the input as a storage class, which must come back when it is printed and read again; and
/// as a path, which must be the text it was read from, its components joined, and its parent joined
/// with its name, lie below the root and its parent, and come back when it is encoded and decoded.
///
/// # Panics
/// When one of that does not hold, or when reading panics.
pub fn path(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    if let Ok(class) = text.parse::<StorageClass>() {
        assert_eq!(class.to_string().parse(), Ok(class));
    }
    let Ok(path) = text.parse::<Path>() else { return };
    assert_eq!(path.as_str(), text);
    assert_eq!(Path::of_components(path.components()), path);
    assert!(Path::root().contains(&path));
    if let (Some(parent), Some(name)) = (path.parent(), path.name()) {
        assert_eq!(parent.join(name).as_ref(), Ok(&path));
        assert!(parent.contains(&path) && !path.contains(&parent));
    }
    message::<Path>(&encode_body(&path));
}
