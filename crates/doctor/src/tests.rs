//! Judgements about clusters that no test could start.

use std::collections::BTreeMap;
use std::error::Error;

use sanderling_core::access::TokenFault;
use sanderling_protocol::message::{Forecast, Room};
use sanderling_protocol::node::{Availability, DrainProgress, TierUsage};
use sanderling_protocol::{Millis, NodeId, NodeInfo, Policy, Tier};
use sanderling_transport::Validity;
use serde_json::json;

use super::check::{Check, CheckLevel};
use super::metrics_page::MetricPage;
use super::observations::{
    CertificateLook, ClockOffset, ClusterLook, DatanodeLook, LossLook, ServerLook, UnreadToken,
    Unseen,
};
use super::{judged, next};

fn node(number: u32) -> NodeInfo {
    NodeInfo {
        name: format!("n{number:04}"),
        address: format!("10.0.0.{number}:7610"),
        http_address: format!("10.0.0.{number}:7611"),
        host: format!("h{number}"),
        budget_bytes: 1 << 30,
        egress_bytes_per_second: 1 << 30,
        heartbeat_age: Millis(100),
        age: Millis(1_000_000),
        ..NodeInfo::joined(NodeId(number))
    }
}

fn server(role: &str, version: &str) -> ServerLook {
    let page = format!("sanderling_build_info{{role=\"{role}\",version=\"{version}\"}} 1\n");
    ServerLook {
        health: Ok(json!({"status": "ok"})),
        figures: Ok(MetricPage::read(&page)),
        clock: Some(ClockOffset { millis: 3, error_millis: 2 }),
    }
}

fn fleet(count: u32) -> ClusterLook {
    let own = env!("CARGO_PKG_VERSION");
    let nodes: Vec<NodeInfo> = (0..count).map(node).collect();
    let looked = |node: &NodeInfo| DatanodeLook {
        name: node.name.clone(),
        server: Some(server("datanode", own)),
        certificates: None,
    };
    ClusterLook {
        address: "10.0.1.1:7600".to_owned(),
        namenode: server("namenode", own),
        datanodes: nodes.iter().map(looked).collect(),
        group: Ok(None),
        durable: Ok(Vec::new()),
        nodes: Ok(nodes),
        room: Ok(Some(Room::default())),
        losses: Ok(LossLook::default()),
        revoked: Ok(0),
        unlooked: Vec::new(),
        died: BTreeMap::new(),
        token: None,
        now: 1_800_000_000,
    }
}

#[track_caller]
fn found(look: &ClusterLook, id: &str) -> Check {
    let checks = judged(look);
    let all: Vec<_> = checks.iter().map(|check| check.id).collect();
    let found = checks.iter().find(|check| check.id == id);
    found.unwrap_or_else(|| panic!("no {id} in {all:?}")).clone()
}

#[test]
fn thousand_nodes_stay_readable() {
    let mut look = fleet(1000);
    let silent = Unseen::Failed { why: "late".to_owned(), is_silent: true };
    for at in 0..37 {
        look.nodes.as_mut().expect("seen")[at].availability = Availability::Suspect;
        let server = look.datanodes[at].server.as_mut().expect("seen");
        server.health = Err(silent.clone());
    }
    let check = found(&look, "nodes.silent");
    assert_eq!(check.nodes.len(), 37);
    assert!(check.found.starts_with("37 nodes are silent: n0000 ("), "{}", check.found);
    assert!(check.found.ends_with("and 34 more"), "{}", check.found);
    assert_eq!(found(&look, "nodes.unanswered").nodes.len(), 37);
    assert!(judged(&look).iter().all(|check| check.found.len() < 300));
    look.unlooked = (0..600).map(|at| format!("n{at}")).collect();
    assert!(found(&look, "nodes.unlooked").found.ends_with("n2 and 597 more"));
}

#[test]
fn versions_may_differ_by_one_release() {
    let look = fleet(2);
    assert_eq!(found(&look, "versions").verdict, CheckLevel::Ok);
    assert_eq!(found(&look, "versions").mend, None);
    for (version, id, level) in
        [("0.2.0", "versions", CheckLevel::Ok), ("0.3.1", "versions.skew", CheckLevel::Fail)]
    {
        let mut look = fleet(2);
        look.datanodes[1].server = Some(server("datanode", version));
        let check = found(&look, id);
        assert_eq!(check.verdict, level, "{version}");
        assert!(check.found.contains(&format!("{version}: n0001")), "{}", check.found);
        assert!(check.mend.is_some_and(|mend| mend.contains("UPGRADING")));
    }
}

#[test]
fn clocks_are_compared_within_what_the_look_took() {
    let mut look = fleet(3);
    let set = |look: &mut ClusterLook, millis, error_millis| {
        look.datanodes[2].server.as_mut().expect("seen").clock =
            Some(ClockOffset { millis, error_millis });
    };
    set(&mut look, -2_900, 1_000);
    assert_eq!(found(&look, "clocks").verdict, CheckLevel::Ok);
    set(&mut look, -5_000, 1_000);
    let check = found(&look, "clocks.skew");
    assert_eq!((check.verdict, check.nodes.len()), (CheckLevel::Warn, 1));
    assert!(check.found.contains("n0002 (") && check.found.contains("behind"), "{}", check.found);
}

#[test]
fn address_of_no_machine_is_a_problem() {
    let mut look = fleet(2);
    assert_eq!(found(&look, "addresses").verdict, CheckLevel::Ok);
    for address in ["0.0.0.0:7610", "127.0.0.1:7610", "[::]:7610", "localhost:7610"] {
        look.nodes.as_mut().expect("seen")[1].address = address.to_owned();
        let check = found(&look, "addresses");
        assert_eq!((check.verdict, check.nodes.len()), (CheckLevel::Fail, 1), "{address}");
    }
}

#[test]
fn journal_disk_and_memory_are_judged_by_the_namenodes_figures() {
    let judged_of = |lines: &str, id: &str| {
        let mut look = fleet(1);
        look.namenode.figures = Ok(MetricPage::read(lines));
        found(&look, id).verdict
    };
    let figure = |name: &str, value: u64| format!("sanderling_namenode_{name} {value}\n");
    for (lines, id, level) in [
        (figure("unsynced_seconds", 3), "journal.late", CheckLevel::Warn),
        (figure("journal_lost_records", 3), "journal.lost", CheckLevel::Warn),
        (figure("snapshots_failed_total", 1), "journal.snapshots", CheckLevel::Warn),
        (figure("managers", 0), "manager.none", CheckLevel::Fail),
        (
            figure("directory_free_bytes", 1 << 20) + &figure("directory_bytes", 1 << 40),
            "journal.disk",
            CheckLevel::Fail,
        ),
        (
            figure("catalog_bytes", 95) + &figure("catalog_max_bytes", 100),
            "catalog.nearly-full",
            CheckLevel::Warn,
        ),
        (figure("backup_timestamp_seconds", 1_700_000_000), "backup.old", CheckLevel::Warn),
        ("process_start_time_seconds 1700000000\n".to_owned(), "backup.none", CheckLevel::Warn),
    ] {
        assert_eq!(judged_of(&lines, id), level, "{lines}");
    }
    let mut look = fleet(1);
    look.namenode.health = Ok(json!({"status": "failed", "failure": "sync: EIO"}));
    assert!(found(&look, "journal.failed").found.contains("EIO"));
    look.namenode.health = Ok(json!({"status": "read_only", "failure": "full"}));
    assert_eq!(found(&look, "journal.read-only").verdict, CheckLevel::Fail);
}

#[test]
fn fenced_and_cut_off_nodes_and_full_indexes_are_found() {
    let mut look = fleet(2);
    let server = look.datanodes[1].server.as_mut().expect("seen");
    let silent = json!({"silent_millis": 4000});
    server.health = Ok(json!({"status": "no_namenode", "is_fenced": true, "namenode": silent}));
    let page = "sanderling_datanode_index_bytes 95\nsanderling_datanode_index_max_bytes 100\n";
    server.figures = Ok(MetricPage::read(page));
    for id in ["nodes.fenced", "nodes.cut", "index.nearly-full"] {
        assert_eq!(found(&look, id).nodes, ["n0001"], "{id}");
    }
}

#[test]
fn node_that_died_is_reported_for_an_hour() {
    let mut look = fleet(2);
    let died = &mut look.nodes.as_mut().expect("seen")[1];
    (died.policy, died.reason) = (Policy::Gone, "its process has ended".to_owned());
    let id = died.id;
    look.died.insert(id, look.now - 60);
    assert!(found(&look, "nodes.gone").found.contains("n0001 ("));
    look.died.insert(id, look.now - 7200);
    assert!(judged(&look).iter().all(|check| check.id != "nodes.gone"));
}

#[test]
fn token_that_cannot_be_read_has_its_fault_as_source() {
    let unread = UnreadToken::Fault(TokenFault::Malformed);
    let source = unread.source().and_then(|source| source.downcast_ref());
    assert_eq!(source, Some(&TokenFault::Malformed));
    assert_eq!(unread.to_string(), "the token is not one of ours");
}

#[test]
fn what_a_token_may_not_see_is_named_and_no_problem() {
    let right = || Unseen::Right("administer");
    let mut look = fleet(1);
    look.token = Some(Err(UnreadToken::Fault(TokenFault::Malformed)));
    (look.nodes, look.room) = (Err(right()), Err(right()));
    (look.losses, look.revoked) = (Err(right()), Err(right()));
    look.namenode.figures = Err(right());
    look.datanodes.clear();
    for what in ["nodes", "reserve", "losses", "revoked", "journal", "versions"] {
        let check = found(&look, &format!("{what}.unseen"));
        assert_eq!(check.verdict, CheckLevel::Ok, "{what}");
        assert!(check.mend.is_some_and(|mend| mend.contains("may administer")), "{what}");
    }
    assert_eq!(found(&look, "token.unreadable").verdict, CheckLevel::Fail);
}

#[test]
fn what_is_not_answered_is_a_problem() {
    let failed = || Unseen::Failed { why: "late".to_owned(), is_silent: true };
    let mut look = fleet(1);
    look.nodes = Err(failed());
    look.namenode.figures = Err(failed());
    look.datanodes.clear();
    for what in ["nodes.unseen", "versions.unseen", "http.unseen"] {
        assert_eq!(found(&look, what).verdict, CheckLevel::Warn, "{what}");
    }
}

#[test]
fn room_is_judged_before_it_is_gone() {
    let with_tier = |used_bytes, room_bytes| {
        let mut look = fleet(1);
        look.room = Ok(Some(Room { room_bytes, ..Room::default() }));
        let tier = TierUsage { tier: Tier::Dram, capacity_bytes: 100, used_bytes, copy_bytes: 0 };
        look.nodes.as_mut().expect("seen")[0].tiers.push(tier);
        look
    };
    for (used, room, id, level) in [
        (89, 1, "tiers", CheckLevel::Ok),
        (90, 1, "tiers.nearly-full", CheckLevel::Warn),
        (60, 0, "tiers.full", CheckLevel::Fail),
    ] {
        assert_eq!(found(&with_tier(used, room), id).verdict, level, "{used}");
    }
    let with_room = |departures, missing_bytes| {
        let mut look = fleet(1);
        let room = Room { departures, missing_bytes, capacity_bytes: 100, ..Room::default() };
        look.room = Ok(Some(room));
        look
    };
    assert_eq!(found(&with_room(1, 0), "reserve").verdict, CheckLevel::Ok);
    assert_eq!(found(&with_room(0, 0), "reserve.none").verdict, CheckLevel::Warn);
    assert_eq!(found(&with_room(1, 7), "reserve.missing").verdict, CheckLevel::Warn);
    let mut look = fleet(1);
    let page = "sanderling_namenode_catalog_bytes 100\nsanderling_namenode_catalog_max_bytes 100\n";
    look.namenode.figures = Ok(MetricPage::read(page));
    assert_eq!(found(&look, "catalog.full").verdict, CheckLevel::Fail);
}

#[test]
fn drain_whose_bytes_are_late_or_have_no_room_is_a_problem() {
    let mut look = fleet(2);
    let leaving = &mut look.nodes.as_mut().expect("seen")[1];
    leaving.policy = Policy::Draining;
    leaving.deadline_in = Some(Millis(5_000));
    let forecast = Forecast { late_bytes: 1, unplaced_bytes: 1, ..Forecast::default() };
    let drain = DrainProgress { left_bytes: 1, elapsed: Millis(11_000), ..Default::default() };
    leaving.drain = Some(DrainProgress { forecast: Some(forecast), ..drain });
    for id in ["notices.late", "notices.without-room", "notices.stuck"] {
        let check = found(&look, id);
        assert_eq!(
            (check.verdict, &check.nodes[..]),
            (CheckLevel::Fail, &["n0001".to_owned()][..])
        );
    }
}

#[test]
fn drain_whose_rest_expires_by_itself_does_not_stand_still() {
    let mut look = fleet(2);
    let leaving = &mut look.nodes.as_mut().expect("seen")[1];
    (leaving.policy, leaving.deadline_in) = (Policy::Draining, Some(Millis(5_000)));
    let with = |left_bytes| {
        let forecast = Some(Forecast { skipped_bytes: 5 << 20, ..Forecast::default() });
        DrainProgress { left_bytes, elapsed: Millis(11_000), forecast, ..Default::default() }
    };
    leaving.drain = Some(with(5 << 20));
    assert!(judged(&look).iter().all(|check| check.id != "notices.stuck"));
    let under_way = found(&look, "notices.under-way").found;
    assert!(under_way.contains("5.00 MiB left, of which 5.00 MiB expire"), "{under_way}");
    look.nodes.as_mut().expect("seen")[1].drain = Some(with(6 << 20));
    let stuck = found(&look, "notices.stuck").found;
    assert!(stuck.contains("1.00 MiB left after"), "{stuck}");
}

#[test]
fn drained_node_with_a_deadline_is_listed_as_empty() {
    let mut look = fleet(3);
    assert_eq!(found(&look, "notices").found, "no node has a notice");
    let nodes = look.nodes.as_mut().expect("seen");
    (nodes[1].policy, nodes[1].deadline_in) = (Policy::Drained, Some(Millis(5_000)));
    // Of a node without a deadline nothing is awaited.
    nodes[2].policy = Policy::Drained;
    let check = found(&look, "notices.drained");
    assert_eq!((check.verdict, &check.nodes[..]), (CheckLevel::Ok, &["n0001".to_owned()][..]));
    assert!(check.found.ends_with("n0001 (empty, 5.00 s to its deadline)"), "{}", check.found);
    assert!(judged(&look).iter().all(|check| check.id != "notices"));
}

#[test]
fn certificates_and_secrets_of_the_datanodes_are_judged() {
    let day = 24 * 3600;
    let now = fleet(1).now as i64;
    let with = |begins, ends, distrust: Option<&str>| {
        let mut look = fleet(2);
        let validities = vec![Validity { begins, ends }];
        let shown = CertificateLook { validities, distrust: distrust.map(str::to_owned) };
        look.datanodes[1].certificates = Some(Ok(shown));
        look
    };
    for (begins, ends, distrust, id, level) in [
        (now - day, now + 99 * day, None, "certs", CheckLevel::Ok),
        (now - 99 * day, now + day, None, "certs.end", CheckLevel::Warn),
        (now - 99 * day, now - day, None, "certs.ended", CheckLevel::Fail),
        (now - day, now + 99 * day, Some("unknown issuer"), "certs.distrusted", CheckLevel::Fail),
    ] {
        assert_eq!(found(&with(begins, ends, distrust), id).verdict, level, "{id}");
    }
    let mut look = fleet(2);
    let figures =
        |role: &str, count| Ok(MetricPage::read(&format!("sanderling_{role}_secrets {count}\n")));
    look.namenode.figures = figures("namenode", 2);
    for (at, count) in [2, 1].into_iter().enumerate() {
        look.datanodes[at].server.as_mut().expect("seen").figures = figures("datanode", count);
    }
    let check = found(&look, "secrets.differ");
    assert_eq!((check.verdict, check.nodes), (CheckLevel::Warn, vec!["n0001".to_owned()]));
}

#[test]
fn failure_ends_with_a_command_or_else_with_the_first_mend() {
    let prose = || Check::fail("disk", "full", "free space");
    let command = Check::fail("namenode", "down", "start it").with_next("sanderling local restart");
    let checks = [Check::warn("port", "taken", "--port 0"), prose(), command];
    assert_eq!(next(&checks), Some("sanderling local restart"));
    assert_eq!(next(&checks[..2]), Some("free space"));
    assert_eq!(next(&checks[..1]), None);
}
