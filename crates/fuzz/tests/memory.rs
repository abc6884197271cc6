//! How much memory the longest frame takes when it is decoded.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use sanderling_fuzz::memory::peak_of;
use sanderling_protocol::Refusal;
use sanderling_protocol::frame::{decode_body, encode_body};
use sanderling_protocol::limits::{FRAME_BODY_BYTES_MAX, REQUESTS_PER_FRAME_MAX};
use sanderling_protocol::message::{Attributes, BlockLength, Change, ClientId, Once};
use sanderling_protocol::{BlockId, LeaseId, Nonce, ObjectId, Path, Reply, Request};

const BODY_BYTES: usize = FRAME_BODY_BYTES_MAX as usize;

/// Most memory of a frame: a list of 16 MiB and four times the body, which takes as much again
/// while it is copied into twice the room.
const FRAME_BYTES_MAX: usize = 3 * ((16 << 20) + 4 * BODY_BYTES);

/// A list of the longest body, of elements that are decoded from these bytes.
fn list_of(element: &[u8]) -> Vec<u8> {
    let count = BODY_BYTES / element.len() - 8;
    let mut body = encode_body(&count);
    for _ in 0..count {
        body.extend_from_slice(element);
    }
    body
}

fn refused<T>(decoded: Result<T, Refusal>) -> bool {
    let Err(Refusal::BadFrame { why }) = decoded else { return false };
    why.contains("bytes of memory")
}

#[test]
fn short_elements_of_a_long_frame_are_refused_before_they_take_gigabytes() {
    let request = encode_body(&Request::Jobs);
    let reply = encode_body(&Ok::<_, Refusal>(Reply::Done));
    for (what, element) in [("requests", request), ("replies", reply)] {
        let body = list_of(&element);
        let peak = peak_of(|| {
            let is_refused = match what {
                "requests" => refused(decode_body::<Vec<Request>>(&body)),
                _ => refused(decode_body::<Vec<Result<Reply, Refusal>>>(&body)),
            };
            assert!(is_refused, "{what}");
        });
        assert!(peak <= FRAME_BYTES_MAX, "{what}: {peak} bytes");
    }
}

#[test]
fn long_lists_within_requests_are_bounded_together() {
    let parts = vec![Path::root(); 4_000_000];
    let body = encode_body(&parts);
    let peak = peak_of(|| assert!(refused(decode_body::<Vec<Path>>(&body))));
    assert!(peak <= FRAME_BYTES_MAX, "{peak} bytes");
}

#[test]
fn longest_legitimate_messages_are_read() {
    let lengths = |count: u64| -> Vec<BlockLength> {
        (1..=count).map(|block| BlockLength { block: BlockId(block), length: 1 }).collect()
    };
    let seal = Request::Seal {
        object: ObjectId(1),
        lease: LeaseId(1),
        lengths: lengths(1 << 16),
        attributes: Attributes::default(),
    };
    let many = vec![seal; 16];
    assert_eq!(decode_body::<Vec<Request>>(&encode_body(&many)).unwrap(), many);
    let letters = || (0..64_u8).map(|at| char::from(b'0' + at));
    let names = letters().flat_map(|first| letters().map(move |last| format!("{first}{last}")));
    let attributes: Attributes = names.map(|name| (name, "")).collect();
    attributes.check().expect("an object may have them");
    let (client, path) = (ClientId { number: 1, key: Nonce(1) }, "/file".parse().unwrap());
    let set = Request::SetAttributes { path, expected: None, attributes };
    let (sequence, settled_below, change) = (1, 1, Change::new(set));
    let once = Request::Once(Box::new(Once { client, sequence, settled_below, change }));
    let many = vec![once; 16];
    assert_eq!(decode_body::<Vec<Request>>(&encode_body(&many)).unwrap(), many);
    let small = vec![Request::Jobs; REQUESTS_PER_FRAME_MAX];
    assert_eq!(decode_body::<Vec<Request>>(&encode_body(&small)).unwrap(), small);
}
