//! The data: notices under way, exposure, the reserve, room, and what is lost.

use sanderling_command::units;
use sanderling_core::relocation::forecast_of;
use sanderling_protocol::message::Room;
use sanderling_protocol::{Millis, NodeInfo, Policy};

use super::check::{Check, of_nodes};
use super::fleet::not_seen;
use super::observations::{ClusterLook, LossLook, Unseen};

/// A drain that has moved nothing for so long stands still. The relocator tries what failed again
/// after 2 s at most (`WAIT_MAX` of its `scan`), so several tries have failed. Chosen, not
/// measured.
const STUCK_AFTER: Millis = Millis(10_000);

/// Percent of a tier from which on it is nearly full: a tenth is left for the time in which an
/// operator adds nodes. Chosen, not measured.
const FULL_PERCENT: u64 = 90;

fn name(node: &NodeInfo) -> String {
    node.name.clone()
}

/// Returns what is to be known of notices and decommissions under way.
pub(super) fn notices(look: &ClusterLook) -> Vec<Check> {
    let draining: Vec<&NodeInfo> =
        look.present().filter(|node| node.policy.is_draining()).collect();
    let found = [late(&draining), unplaced(&draining), stuck(&draining)];
    let mut checks: Vec<Check> = found.into_iter().flatten().collect();
    checks.extend(under_way(&draining));
    checks.extend(drained(look));
    if checks.is_empty() && look.nodes.is_ok() {
        checks.push(Check::ok("notices", "no node has a notice"));
    }
    checks
}

fn under_way(draining: &[&NodeInfo]) -> Option<Check> {
    let detail = |node: &&NodeInfo| {
        let (left, forecast) = (node.drain.unwrap_or_default().left_bytes, forecast_of(node));
        let left = units::bytes(left);
        let expiring = match forecast.skipped_bytes {
            0 => String::new(),
            bytes => format!(", of which {} expire by themselves", units::bytes(bytes)),
        };
        let until = match node.deadline_in {
            Some(left) => format!("{} to its deadline", units::millis(left)),
            None => "no deadline".to_owned(),
        };
        let finish = forecast.finish_in.map(|it| format!(", done in {}", units::millis(it)));
        (name(node), format!("{until}, {left} left{expiring}{}", finish.unwrap_or_default()))
    };
    of_nodes(
        |found| Check::ok("notices.under-way", found).with_mend("sanderling node ls"),
        ("node drains", "nodes drain"),
        draining.iter().map(detail).collect(),
    )
}

/// Lists the nodes that have a deadline, and nothing more to lose.
fn drained(look: &ClusterLook) -> Option<Check> {
    let drained = look.present().filter(|node| node.policy == Policy::Drained).filter_map(|node| {
        let left = units::millis(node.deadline_in?);
        Some((name(node), format!("empty, {left} to its deadline")))
    });
    of_nodes(
        |found| Check::ok("notices.drained", found).with_mend("sanderling node ls"),
        ("node is drained", "nodes are drained"),
        drained.collect(),
    )
}

fn late(draining: &[&NodeInfo]) -> Option<Check> {
    let late = draining.iter().filter_map(|node| {
        let (forecast, left) = (forecast_of(node), node.deadline_in?);
        let bytes = units::bytes(forecast.late_bytes);
        let detail = format!("{bytes} late, {} to its deadline", units::millis(left));
        (forecast.late_bytes > 0).then(|| (name(node), detail))
    });
    of_nodes(
        |found| {
            let mend = "if the machine stays longer, sanderling node cancel NODE and a later \
                        notice: docs/DAY-TWO.md#sanderlingdrainlate";
            Check::fail("notices.late", found, mend).with_next("sanderling node ls")
        },
        ("node will lose bytes at its deadline", "nodes will lose bytes at their deadline"),
        late.collect(),
    )
}

fn unplaced(draining: &[&NodeInfo]) -> Option<Check> {
    let unplaced = draining.iter().filter_map(|node| {
        let bytes = forecast_of(node).unplaced_bytes;
        (bytes > 0).then(|| (name(node), format!("{} without room", units::bytes(bytes))))
    });
    of_nodes(
        |found| {
            let mend = "start datanodes, or delete data: \
                        docs/DAY-TWO.md#sanderlingdrainwithoutroom";
            Check::fail("notices.without-room", found, mend).with_next("sanderling node ls")
        },
        ("node's bytes have no room elsewhere", "nodes' bytes have no room elsewhere"),
        unplaced.collect(),
    )
}

fn stuck(draining: &[&NodeInfo]) -> Option<Check> {
    let stuck = draining.iter().filter_map(|node| {
        let drain = node.drain?;
        let forecast = drain.forecast.unwrap_or_default();
        // What expires before the deadline is not moved.
        let left_bytes = drain.left_bytes.saturating_sub(forecast.skipped_bytes);
        let stands = forecast.bytes_per_second == 0;
        let is_stuck = left_bytes > 0 && drain.elapsed > STUCK_AFTER && stands;
        let fence = if drain.is_fenced { "" } else { ", its fence not acknowledged" };
        let left = units::bytes(left_bytes);
        let detail = format!("{left} left after {}{fence}", units::millis(drain.elapsed));
        is_stuck.then(|| (name(node), detail))
    });
    of_nodes(
        |found| {
            let mend = "is there a manager? sanderling events --since 15m: \
                        docs/DAY-TWO.md#sanderlingdrainstuck";
            Check::fail("notices.stuck", found, mend).with_next("sanderling events --since 15m")
        },
        ("drain stands still", "drains stand still"),
        stuck.collect(),
    )
}

/// Compares what nodes hold alone with what they can send within a notice.
pub(super) fn exposure(look: &ClusterLook) -> Vec<Check> {
    let active: Vec<&NodeInfo> =
        look.present().filter(|node| node.policy == Policy::Active).collect();
    let over = |node: &NodeInfo| node.exposure_bytes.saturating_sub(node.budget_bytes);
    let mut above: Vec<&&NodeInfo> = active.iter().filter(|node| over(node) > 0).collect();
    above.sort_by_key(|node| std::cmp::Reverse(over(node)));
    let detail = |node: &&&NodeInfo| {
        let (exposure, budget) =
            (units::bytes(node.exposure_bytes), units::bytes(node.budget_bytes));
        (name(node), format!("{exposure} alone, {budget} within its notice"))
    };
    let check = of_nodes(
        |found| {
            let mend = "wait for copies, or use smaller or more nodes: \
                        docs/DAY-TWO.md#sanderlingexposureabovebudget";
            Check::warn("exposure.above", found, mend)
        },
        (
            "node holds more than it can send within its notice",
            "nodes hold more than they can send within their notices",
        ),
        above.iter().map(detail).collect(),
    );
    match (check, active.is_empty()) {
        (Some(check), _) => vec![check],
        (None, true) => Vec::new(),
        (None, false) => {
            let bytes = active.iter().map(|node| node.exposure_bytes).max().unwrap_or_default();
            let bytes = units::bytes(bytes);
            vec![Check::ok("exposure", format!("within budget; {bytes} on one node at most"))]
        }
    }
}

/// Returns whether nodes can leave, and what may still be written.
pub(super) fn reserve(look: &ClusterLook) -> Vec<Check> {
    let id = "reserve";
    let room = match &look.room {
        Ok(Some(room)) => room,
        Ok(None) => {
            let found = "the namenode is of an older release and keeps no room";
            return vec![Check::warn(id, found, "upgrade the namenode: docs/UPGRADING.md")];
        }
        Err(unseen @ Unseen::Right(_)) => return vec![not_seen("reserve.unseen", "room", unseen)],
        Err(_) => return Vec::new(),
    };
    if room.capacity_bytes == 0 {
        return Vec::new();
    }
    vec![departures(id, room)]
}

fn departures(id: &'static str, room: &Room) -> Check {
    if !room.fits() {
        let (missing, count) = (units::bytes(room.missing_bytes), room.departures);
        let nodes = units::count(count.into(), "node", "nodes");
        let found = format!("if {nodes} more left now, {missing} would be lost");
        let mend = "sanderling datanode on another machine, or delete what is not needed: \
                    docs/DAY-TWO.md#sanderlingnoroomfordepartures";
        return Check::warn("reserve.missing", found, mend);
    }
    let left = units::bytes(room.room_bytes);
    if room.departures == 0 && !room.is_default {
        let found = "--departures 0 keeps no room: a notice may not be met";
        return Check::warn("reserve.none", found, "sanderling namenode with --departures 1");
    }
    Check::ok(id, format!("room for {left}, {} can leave at once", room.departures))
}

/// Returns how full the tiers are, and whether writes are refused.
pub(super) fn fullness(look: &ClusterLook) -> Vec<Check> {
    let takers: Vec<&NodeInfo> = look.present().filter(|node| node.policy.takes_blocks()).collect();
    let mut tiers: Vec<(String, u64, u64)> = Vec::new();
    for usage in takers.iter().flat_map(|node| &node.tiers) {
        let tier = usage.tier.to_string();
        // Copies made ahead give way to writes.
        let used = usage.used_bytes.saturating_sub(usage.copy_bytes);
        match tiers.iter_mut().find(|(known, ..)| *known == tier) {
            Some((_, all, taken)) => (*all, *taken) = (*all + usage.capacity_bytes, *taken + used),
            None => tiers.push((tier, usage.capacity_bytes, used)),
        }
    }
    tiers.retain(|(_, all, _)| (1..u64::MAX / 2).contains(all));
    if tiers.is_empty() {
        return Vec::new();
    }
    let shown = tiers.iter().map(|(tier, all, used)| {
        let percent = used.saturating_mul(100) / all;
        format!("{tier} {percent}% of {}", units::bytes(*all))
    });
    let found = shown.collect::<Vec<_>>().join(", ");
    let mend = "start datanodes, or delete what is not needed: docs/DAY-TWO.md#capacity";
    let is_refusing = look.room.iter().flatten().any(|room| room.room_bytes == 0);
    let is_full =
        |(_, all, used): &(String, u64, u64)| used.saturating_mul(100) / all >= FULL_PERCENT;
    vec![match is_refusing {
        true => {
            let found = format!("{found}; writes are refused: what is free is kept for departures");
            Check::fail("tiers.full", found, mend).with_next("sanderling node ls")
        }
        false if tiers.iter().any(is_full) => Check::warn("tiers.nearly-full", found, mend),
        false => Check::ok("tiers", found),
    }]
}

/// Returns what was declared lost, and whether it still is.
pub(super) fn losses(look: &ClusterLook) -> Vec<Check> {
    let id = "losses";
    let losses = match &look.losses {
        Ok(losses) => losses,
        Err(unseen @ Unseen::Right(_)) => {
            return vec![not_seen("losses.unseen", "losses", unseen)];
        }
        Err(_) => return Vec::new(),
    };
    let report = &losses.report;
    let Some(first) = report.losses.first() else {
        return vec![Check::ok(id, "nothing was ever declared lost")];
    };
    let since = if report.is_truncated { "before" } else { "since" };
    let whole = format!(
        "{} of {} were declared lost {since} {}",
        units::bytes(report.bytes),
        units::count(report.objects, "object", "objects"),
        units::instant(first.at)
    );
    vec![judged(losses, &whole)]
}

fn judged(losses: &LossLook, whole: &str) -> Check {
    let mend = "sanderling fsck lists them; their jobs compute them again: \
                docs/DAY-TWO.md#sanderlingbyteslost";
    let next = "sanderling fsck";
    if let Some(unseen) = &losses.unseen {
        let found = format!("{whole}; which are still missing {unseen}");
        return Check::fail("losses.declared", found, mend).with_next(next);
    }
    if losses.present.is_empty() {
        let checked = units::count(losses.checked as u64, "object", "objects");
        let found = format!("{whole}; of the latest {checked} none is missing bytes now");
        return Check::ok("losses.mended", found).with_mend("sanderling fsck");
    }
    let paths = super::check::listed(&losses.present);
    let found = format!("{whole}; still missing: {paths}");
    Check::fail("losses.declared", found, mend).with_next(next)
}
