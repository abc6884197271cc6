//! The loss report has exactly what is lost.

use std::collections::BTreeMap;

use sanderling_core::catalog::ROOT;
use sanderling_protocol::refusal::ByteRange;
use sanderling_protocol::{ObjectId, Reply, Request};

use super::bytes::Bytes;
use super::losses::Losses;
use super::view::View;
use crate::InjectedBug;
use crate::runtime::CheckResult;

/// Checks that the report has what is lost by the layout of every object that still exists.
pub(super) fn check(
    view: View<'_>,
    losses: &Losses,
    written: &Bytes,
    is_kind: bool,
) -> CheckResult {
    let report = view.peek(&Request::Report);
    let report = view.namenode.bug_answer(&Request::Report, report);
    let Ok(Reply::Report(report)) = report else { return Ok(()) };
    let mut reported: BTreeMap<ObjectId, Vec<ByteRange>> = BTreeMap::new();
    let (mut bytes, mut objects) = (0, 0);
    // A cut of the journal itself is reported as the root's, and its bytes are not known.
    for loss in report.losses.iter().filter(|loss| loss.object != ROOT) {
        objects += 1;
        bytes += loss.ranges.iter().map(|range| range.bytes).sum::<u64>();
        reported.entry(loss.object).or_default().extend(&loss.ranges);
    }
    bytes += losses.orphan_bytes;
    if (bytes, objects) != (report.bytes, report.objects) && !report.is_truncated {
        let (have, losses) = (report.bytes, report.objects);
        let text = format!("{losses} losses of {have} bytes, the list has {objects} of {bytes}");
        return Err(("loss-report", text));
    }
    losses.compare(&report)?;
    for object in written.objects() {
        let Some(layout) = view.layout(object) else { continue };
        let lost = layout.lost_ranges();
        let listed = joined(reported.remove(&object).unwrap_or_default());
        if listed != lost {
            let text = format!("object {object} has lost {lost:?}, the report has {listed:?}");
            return Err(("loss-report", text));
        }
        let sum: u64 = lost.iter().map(|range| range.bytes).sum();
        if sum != layout.stat.lost_bytes {
            let have = layout.stat.lost_bytes;
            let text = format!("object {object} counts {have} lost bytes and has lost {sum}");
            return Err(("loss-report", text));
        }
    }
    let is_checked = view.runtime.bug().is_none_or(|bug| bug == InjectedBug::PushesEmptied);
    if is_kind && is_checked && report.bytes > 0 {
        let bytes = report.bytes;
        let text = format!("{bytes} bytes were lost with nothing but notices in good time");
        return Err(("notices-lose-nothing", text));
    }
    Ok(())
}

/// Joins ranges that touch. Overlapping ones stay as they are: a byte is lost once.
fn joined(mut ranges: Vec<ByteRange>) -> Vec<ByteRange> {
    ranges.sort_unstable();
    let mut joined: Vec<ByteRange> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.offset + last.bytes == range.offset => last.bytes += range.bytes,
            _ => joined.push(range),
        }
    }
    joined
}

impl Bytes {
    /// Checks that a reader that is refused because bytes are lost gets their ranges.
    pub(crate) fn unavailable(&self, object: ObjectId, lost: &[ByteRange]) -> CheckResult {
        if lost.is_empty() {
            return Err(("loss-report", format!("object {object} has lost bytes and names none")));
        }
        Ok(())
    }
}
