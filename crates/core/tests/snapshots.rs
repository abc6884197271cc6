//! Snapshots of all formats, as programs of those formats wrote them, are read for ever.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use sanderling_core::catalog::{Action, Catalog, Command};
use sanderling_core::namenode::{Namenode, NamenodeConfig, Prepared};
use sanderling_protocol::frame::{decode_body, encode_body};
use sanderling_protocol::message::{Create, CreateMode, JobLimits, ObjectKind, RegisterJob};
use sanderling_protocol::message::{JobHints, Register, RegisterLimitedJob};
use sanderling_protocol::node::TierCapacity;
use sanderling_protocol::{ClusterId, Instant, Millis, Nonce, Path, Request, Tier};

/// A format and the golden file with a catalog of it.
const GOLDEN: [(u32, &str); 5] = [
    (4, concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/catalog-4.txt")),
    (5, concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/catalog-5.txt")),
    (6, concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/catalog-6.txt")),
    (7, concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/catalog-7.txt")),
    (8, concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/catalog-8.txt")),
];

/// Applies commands with which a catalog has something in each of its parts.
fn catalog(rules: u32) -> Catalog {
    let mut namenode = Namenode::new(NamenodeConfig::default(), ClusterId(7));
    if rules > 0 {
        let action = Action::Rules { rules, slice: 2 };
        namenode.apply(&Command { at: Instant(1), action }).result.unwrap();
    }
    for (at, request) in (2..).zip(requests(rules > 0)) {
        let Prepared::Log(command) = namenode.prepare(Instant(at), request) else { panic!() };
        namenode.apply(&command).result.unwrap();
    }
    namenode.catalog().image().restored()
}

fn requests(has_limits: bool) -> Vec<Request> {
    let path = |text: &str| -> Path { text.parse().unwrap() };
    let directory = |text: &str| Request::MakeDirectory {
        path: path(text),
        kind: ObjectKind::Directory,
        parents: true,
        is_listed: true,
    };
    let value = |text: &str| {
        let mode = CreateMode::Replace;
        let attributes = [("kind", "value")].into_iter().collect();
        let inline = Some(b"bytes".to_vec());
        let create = Create::new(path(text), Nonce(9));
        Request::Create(Create { mode, inline, attributes, ..create })
    };
    let file = Request::Create(Create::new(path("/d/file"), Nonce(9)));
    let tiers = vec![TierCapacity { tier: Tier::Dram, bytes: 64 << 20 }];
    let node = Request::Register(Register {
        cluster: None,
        nonce: Nonce(1),
        name: "node".to_owned(),
        address: "a:1".to_owned(),
        http_address: String::new(),
        host: "host".to_owned(),
        tiers,
        notice_min: None,
        egress_bytes_per_second: None,
    });
    let job = RegisterJob {
        path: path("/jobs/a"),
        lease: Millis(60_000),
        quota_bytes: Some(1 << 30),
        hints: JobHints::default(),
    };
    let limits = JobLimits { names: Some(100), attribute_bytes: Some(1000) };
    let limited = match has_limits {
        true => Request::RegisterLimitedJob(Box::new(RegisterLimitedJob { job, limits })),
        false => Request::RegisterJob(job),
    };
    let mut all = vec![node, directory("/d"), value("/d/a"), limited, value("/jobs/a/b"), file];
    all.push(directory("/gone"));
    all.extend((0..8).map(|index| value(&format!("/gone/{index}"))));
    all.push(Request::Delete { path: path("/gone"), recursive: true });
    all
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).unwrap();
        u8::from_str_radix(pair, 16).unwrap()
    };
    digits.chunks(2).map(byte).collect()
}

/// The files were written by programs of their formats, with the same commands.
#[test]
fn catalog_of_each_format_is_completed_to_the_same_catalog() {
    for (format, path) in GOLDEN {
        let golden = unhex(&std::fs::read_to_string(path).unwrap());
        // Each with the newest rules of its programs.
        let made = catalog([0, 2, 3, 6, 7][format as usize - 4]);
        assert_eq!(made.earlier(format).unwrap(), golden, "format {format}");
        let completed = [&golden[..], &Catalog::completion(format).unwrap()].concat();
        let read: Catalog = decode_body(&completed).unwrap();
        let again = encode_body(&read.restored());
        assert_eq!(again[..golden.len()], golden, "format {format}");
        if format >= 5 {
            assert_eq!(again, encode_body(&made));
        }
    }
}
