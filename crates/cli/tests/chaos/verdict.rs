//! What must hold at the end.

use std::collections::BTreeMap;

use sanderling_protocol::event::LossReport;
use sanderling_protocol::refusal::ByteRange;

use crate::book::{Book, Read, read};
use crate::cluster::{SOON, path, until};
use crate::faults::Faults;

/// Every acknowledged byte can be read and is right, or is in the report; what was noticed is not
/// in the report; the catalog and the datanodes agree.
pub(crate) async fn judge(faults: &Faults, book: &Book) {
    let client = faults.cluster.client().await;
    let report = client.report().await.expect("the namenode answers");
    assert!(!report.is_truncated, "the report is not whole");
    for loss in &report.losses {
        let is_noticed = faults.noticed.contains(&loss.node);
        assert!(!is_noticed, "lost with a notice: {loss:?}\n{}", faults.recorded.join("\n"));
    }
    let (mut right, mut lost) = (0, 0);
    for name in book.names() {
        let known = book.known(&name);
        let result = read(client.get(&path(&name)).await);
        book.check(&name, known.as_ref(), &result);
        match &result {
            Read::Unknown => panic!("{name} cannot be read"),
            Read::Lost(_, ranges) => {
                lost += 1;
                assert_reported(&report, &name, ranges);
            }
            Read::Bytes(_) => right += 1,
            Read::Missing(_) => {}
        }
    }
    for name in book.deleted_names() {
        let exists = client.exists(&path(&name)).await.expect("the namenode answers");
        assert!(!exists, "{name} was deleted and is there");
    }
    for (name, object) in book.lost() {
        let is_reported = report.losses.iter().any(|loss| loss.object == object);
        assert!(is_reported, "{name} (object {object}) was read as lost and is not reported");
    }
    eprintln!(
        "{right} names whole, {lost} lost something; {} B lost, {} B moved, {} B promoted, {} B \
         copied, {} B rebalanced, {} notices",
        report.bytes,
        report.moved_bytes,
        report.promoted_bytes,
        report.copied_bytes,
        report.rebalanced_bytes,
        report.notices
    );
    agree(faults);
}

/// The lost ranges are what the report has of the name, and nothing else.
fn assert_reported(report: &LossReport, name: &str, ranges: &[ByteRange]) {
    let losses = report.losses.iter().filter(|loss| loss.path == path(name));
    let mut by_object: BTreeMap<_, Vec<ByteRange>> = BTreeMap::new();
    for loss in losses {
        by_object.entry(loss.object).or_default().extend(&loss.ranges);
    }
    let is_it = |reported: &Vec<ByteRange>| joined(reported) == joined(ranges);
    assert!(by_object.values().any(is_it), "{name} has lost {ranges:?}, reported: {by_object:?}");
}

fn joined(ranges: &[ByteRange]) -> Vec<ByteRange> {
    let mut sorted = ranges.to_vec();
    sorted.sort();
    let mut joined: Vec<ByteRange> = Vec::new();
    for range in sorted {
        match joined.last_mut() {
            Some(last) if last.offset + last.bytes == range.offset => last.bytes += range.bytes,
            _ => joined.push(range),
        }
    }
    joined
}

/// The catalog agrees with itself, and soon the datanodes hold what it contains and nothing else.
fn agree(faults: &Faults) {
    until("the datanodes hold what the catalog has", SOON, || {
        let ran = faults.cluster.cli(&["fsck", "--deep", "--json"]);
        assert!([0, 1, 4, 5].contains(&ran.code), "{ran}");
        let fsck: serde_json::Value = serde_json::from_str(&ran.stdout).ok()?;
        assert_eq!(fsck["problems"], serde_json::json!([]), "{fsck}");
        let is_well = fsck["deep"]["problems"].as_array()?.is_empty();
        (is_well && ![1, 4].contains(&ran.code)).then_some(())
    });
}
