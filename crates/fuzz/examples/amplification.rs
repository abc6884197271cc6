//! Prints how much memory each message can make of a body: for every place of every golden message
//! where a list may begin, a list of the shortest elements, as long as the body is.
//!
//! `cargo run --release -p sanderling-fuzz --example amplification [BODY_BYTES]`
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a tool prints, and may panic")]

use std::collections::BTreeMap;

use sanderling_core::catalog::Command;
use sanderling_fuzz::memory::peak_of;
use sanderling_protocol::frame::decode_body;
use sanderling_protocol::message::{Hello, HelloReply};
use sanderling_protocol::{Order, OrderReply, Refusal, Reply, Request};

/// Bytes of the short bodies with which lists are searched.
const SEARCH_BYTES: usize = 8 << 10;

type Decode = fn(&[u8]);

/// The list that takes most memory.
struct Found {
    peak: usize,
    decode: Decode,
    start: Vec<u8>,
    element: &'static [u8],
}

fn decode<T: serde::de::DeserializeOwned>(body: &[u8]) {
    let _ = decode_body::<T>(body);
}

fn command(body: &[u8]) {
    let _ = postcard::from_bytes::<Command>(body);
}

/// A kind of line of the golden files: what stands before its value, and how the whole is decoded.
const KINDS: [(&str, &[u8], Decode); 5] = [
    ("Request", &[1], decode::<Vec<Request>>),
    ("Reply", &[1, 0], decode::<Vec<Result<Reply, Refusal>>>),
    ("Order", &[], decode::<Order>),
    ("OrderReply", &[], decode::<OrderReply>),
    ("Action", &[5], command),
];

/// Elements of few bytes: numbers, nothing, `/`, an empty text, refusals without a field.
const ELEMENTS: [&[u8]; 8] =
    [&[0], &[1], &[1, b'/'], &[0, 1], &[1, 22], &[1, 1, b'/'], &[22], &[2]];

fn varint(mut number: usize, out: &mut Vec<u8>) {
    while number > 127 {
        out.push((number & 127) as u8 | 128);
        number >>= 7;
    }
    out.push(number as u8);
}

/// A list of as many bytes of elements in place of what follows `start`.
fn listed(start: &[u8], element: &[u8], bytes: usize) -> Vec<u8> {
    let count = bytes / element.len();
    let mut body = start.to_vec();
    varint(count, &mut body);
    for _ in 0..count {
        body.extend_from_slice(element);
    }
    body
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

fn main() {
    let bytes = std::env::args().nth(1).map_or(16 << 20, |text| text.parse().unwrap());
    let mut found: BTreeMap<String, Found> = BTreeMap::new();
    let mut note = |name: &str, decode: Decode, start: &[u8]| {
        for element in ELEMENTS {
            let peak = peak_of(|| decode(&listed(start, element, SEARCH_BYTES)));
            if found.get(name).is_none_or(|best| peak > best.peak) {
                found.insert(
                    name.to_owned(),
                    Found { peak, decode, start: start.to_vec(), element },
                );
            }
        }
    };
    note("Vec<Request>", decode::<Vec<Request>>, &[]);
    note("Vec<Result<Reply>>", decode::<Vec<Result<Reply, Refusal>>>, &[]);
    note("Hello", decode::<Hello>, &[0, 0, 0, 1]);
    note("HelloReply", decode::<HelloReply>, &[0]);
    let golden = [
        include_str!("../../protocol/tests/golden/messages.txt"),
        include_str!("../../core/tests/golden/log.txt"),
    ];
    for line in golden.iter().flat_map(|text| text.lines()) {
        let words: Vec<&str> = line.split(' ').collect();
        let [kind, _, name, value] = words[..] else { continue };
        let Some((_, before, decode)) = KINDS.iter().find(|it| it.0 == kind) else { continue };
        let value = [before, &hex(value)[..]].concat();
        for at in before.len() + 1..value.len() {
            note(&format!("{kind}::{name}"), *decode, &value[..at]);
        }
    }
    for it in found.values_mut() {
        it.peak = peak_of(|| (it.decode)(&listed(&it.start, it.element, bytes)));
    }
    let mut rows: Vec<_> = found.into_iter().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.1.peak));
    println!("{:28} {:>12} {:>8}  of a body of {bytes} bytes", "message", "memory", "ratio");
    for (name, Found { peak, start, element, .. }) in rows {
        // The body itself is in memory as well.
        let ratio = peak as f64 / bytes as f64 - 1.0;
        println!("{name:28} {peak:>12} {ratio:>8.1}  {start:02x?} {element:02x?}");
    }
}
