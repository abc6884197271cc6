//! The nodes: which of them do not answer, where they listen, their versions and clocks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sanderling_command::units;
use sanderling_protocol::node::Availability;
use sanderling_protocol::{Millis, NodeInfo, Policy};
use sanderling_transport::is_loopback;

use super::check::{Check, listed, of_nodes};
use super::observations::{ClockOffset, ClusterLook, ServerLook, Unseen, is_unspecified};

/// How long a node that died without a notice is reported: an hour, in which an operator looks
/// after an alert. Chosen, not measured.
const GONE_WINDOW: Millis = Millis(3_600_000);

/// Clocks further apart than this, in milliseconds, are worth a look: machines whose clocks are
/// synchronized differ by milliseconds. Chosen, not measured.
const CLOCK_WARN_MILLIS: u64 = 2_000;

/// Clocks further apart than this, in milliseconds, end tokens and certificates too early or too
/// late. A synchronized clock is never a minute off. Chosen, not measured.
const CLOCK_FAIL_MILLIS: u64 = 60_000;

const CLOCK: &str = "timedatectl set-ntp true on the machines whose clock is wrong";

/// Returns what is wrong with nodes, or that nothing is.
pub(super) fn nodes(look: &ClusterLook) -> Vec<Check> {
    let all = match &look.nodes {
        Ok(all) => all,
        Err(unseen) => return vec![not_seen("nodes.unseen", "the nodes", unseen)],
    };
    let found = [
        suspect(look),
        unanswered(look),
        cut_off(look),
        fenced(look),
        gone(look, all),
        given_up(look),
    ];
    let mut checks: Vec<Check> = found.into_iter().flatten().collect();
    if !look.unlooked.is_empty() {
        let count = units::count(look.unlooked.len() as u64, "node was", "nodes were");
        let found = format!("{count} not looked at in time: {}", listed(&look.unlooked));
        let check = Check::warn("nodes.unlooked", found, "sanderling doctor, again");
        checks.push(check.about(look.unlooked.clone()));
    }
    if checks.is_empty() {
        let present = look.present().count() as u64;
        let count = units::count(present, "node sends", "nodes send");
        checks.push(Check::ok("nodes", format!("{count} heartbeats")));
    }
    checks
}

/// Returns the line for what was not seen.
pub(super) fn not_seen(id: &'static str, what: &str, unseen: &Unseen) -> Check {
    match unseen {
        Unseen::Right(right) => {
            let mend = format!("the same with --token-file of a token that may {right}");
            Check::ok(id, format!("{what}: needs the right to {right}")).with_mend(mend)
        }
        Unseen::Failed { .. } => {
            Check::warn(id, format!("{what} could not be looked at: {unseen}"), "the line above")
        }
    }
}

fn suspect(look: &ClusterLook) -> Option<Check> {
    let silent = look.present().filter(|node| node.availability != Availability::Up);
    let detail = |node: &NodeInfo| {
        (node.name.clone(), format!("{} without a heartbeat", units::millis(node.heartbeat_age)))
    };
    of_nodes(
        |found| {
            let mend = "its machine and its log; after 6 s it is declared dead: \
                        docs/DAY-TWO.md#sanderlingnamenodeunreachable";
            Check::fail("nodes.silent", found, mend).with_next("sanderling node ls")
        },
        ("node is silent", "nodes are silent"),
        silent.map(detail).collect(),
    )
}

fn unanswered(look: &ClusterLook) -> Option<Check> {
    let failed = |server: &ServerLook| match &server.health {
        Err(Unseen::Failed { why, is_silent }) => Some((why.clone(), *is_silent)),
        _ => None,
    };
    let unanswered: Vec<_> =
        look.servers().filter_map(|(name, server)| Some((name, failed(server)?))).collect();
    let is_hung = unanswered.iter().any(|(_, (_, is_silent))| *is_silent);
    let details = unanswered.into_iter().map(|(name, (why, is_silent))| {
        (name.to_owned(), if is_silent { "no answer in time".to_owned() } else { why })
    });
    of_nodes(
        |found| {
            let mend = "the process and the load of its machine: \
                        docs/DAY-TWO.md#sanderlingserverdown";
            match is_hung {
                true => {
                    Check::fail("nodes.unanswered", found, mend).with_next("sanderling node ls")
                }
                false => Check::warn("nodes.unanswered", found, mend),
            }
        },
        ("node does not answer over HTTP", "nodes do not answer over HTTP"),
        details.collect(),
    )
}

/// Finds nodes that answer here and get no answer from the namenode.
fn cut_off(look: &ClusterLook) -> Option<Check> {
    let cut = look.servers().filter_map(|(name, server)| {
        let health = server.health.as_ref().ok()?;
        let silent = health["namenode"]["silent_millis"].as_u64().unwrap_or_default();
        let detail = format!("for {}", units::millis(Millis(silent)));
        (health["status"] == "no_namenode").then(|| (name.to_owned(), detail))
    });
    of_nodes(
        |found| {
            let mend = "sanderling doctor on that machine: \
                        docs/DAY-TWO.md#sanderlingnamenodeunreachable";
            Check::fail("nodes.cut", found, mend)
        },
        ("node gets no answer from the namenode", "nodes get no answer from the namenode"),
        cut.collect(),
    )
}

fn fenced(look: &ClusterLook) -> Option<Check> {
    let active: BTreeSet<&str> = look
        .present()
        .filter(|node| node.policy == Policy::Active)
        .map(|node| node.name.as_str())
        .collect();
    let fenced = look.servers().filter(|(name, server)| {
        let is_fenced = server.health.as_ref().is_ok_and(|health| health["is_fenced"] == true);
        is_fenced && active.contains(name)
    });
    of_nodes(
        |found| {
            let mend = "sanderling node ls; if it stays so, restart it after a decommission";
            Check::warn("nodes.fenced", found, mend)
        },
        ("active node refuses writes", "active nodes refuse writes"),
        fenced.map(|(name, _)| (name.to_owned(), String::new())).collect(),
    )
}

/// Finds nodes that died lately without a notice.
fn gone(look: &ClusterLook, all: &[NodeInfo]) -> Option<Check> {
    let died = all.iter().filter(|node| node.policy == Policy::Gone && node.drain.is_none());
    let detail = |node: &NodeInfo| {
        let age = look.now.saturating_sub(*look.died.get(&node.id)?);
        let ago = units::duration(Duration::from_secs(age));
        let detail = format!("{ago} ago: {}", node.reason);
        (age * 1000 <= GONE_WINDOW.0).then(|| (node.name.clone(), detail))
    };
    of_nodes(
        |found| {
            let mend = "start it again, or another one; sanderling fsck lists losses: \
                        docs/DAY-TWO.md#sanderlingserverdown";
            Check::warn("nodes.gone", found, mend)
        },
        ("node died within the hour", "nodes died within the hour"),
        died.filter_map(detail).collect(),
    )
}

/// Finds nodes that the namenode gave up while they ran.
fn given_up(look: &ClusterLook) -> Option<Check> {
    let given_up = look.servers().filter_map(|(name, server)| {
        let last = &server.health.as_ref().ok()?["given_up"];
        let ago = last["ago_millis"].as_u64().filter(|ago| *ago <= GONE_WINDOW.0)?;
        let bytes = units::bytes(last["bytes"].as_u64().unwrap_or_default());
        let detail = format!("{} ago, with {bytes}", units::millis(Millis(ago)));
        (last["is_expected"] == false).then(|| (name.to_owned(), detail))
    });
    of_nodes(
        |found| {
            let mend = "look for a pause of the machine or its network: \
                        docs/DAY-TWO.md#sanderlingnodegivenup";
            Check::warn("nodes.given-up", found, mend)
        },
        ("node was given up while it ran", "nodes were given up while they ran"),
        given_up.collect(),
    )
}

/// Finds addresses at which other machines do not reach a node.
pub(super) fn addresses(look: &ClusterLook) -> Vec<Check> {
    let id = "addresses";
    let present: Vec<&NodeInfo> = look.present().collect();
    let hosts: BTreeSet<&str> = present.iter().map(|node| node.host.as_str()).collect();
    let is_spread = hosts.len() > 1;
    let wrong = present
        .iter()
        .filter(|node| is_unspecified(&node.address) || (is_spread && is_loopback(&node.address)));
    let details: Vec<_> = wrong.map(|node| (node.name.clone(), node.address.clone())).collect();
    let is_unusable = present.iter().any(|node| is_unspecified(&node.address));
    let mend = "start it with --advertise ADDRESS, which other machines reach";
    let machines = units::count(hosts.len() as u64, "machine", "machines");
    let check = of_nodes(
        |found| match is_unusable || !is_loopback(&look.address) {
            true => Check::fail(id, found, mend),
            // Every machine may be this one, under several names.
            false => Check::warn(id, found, mend),
        },
        (
            "node advertises an address that other machines do not reach",
            "nodes advertise addresses that other machines do not reach",
        ),
        details,
    );
    match (check, present.is_empty()) {
        (Some(check), _) => vec![check],
        (None, true) => Vec::new(),
        (None, false) => vec![Check::ok(id, format!("the nodes of {machines} are reachable"))],
    }
}

/// Compares the versions of the servers and of this program.
pub(super) fn versions(look: &ClusterLook) -> Vec<Check> {
    let id = "versions";
    let version = |server: &ServerLook| {
        let figures = server.figures.as_ref().ok()?;
        figures.label("sanderling_build_info", "version").map(str::to_owned)
    };
    let mut by_version: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let named = look.servers().map(|(name, server)| (name.to_owned(), server));
    for (name, server) in std::iter::once(("namenode".to_owned(), &look.namenode)).chain(named) {
        if let Some(version) = version(server) {
            by_version.entry(version).or_default().push(name);
        }
    }
    let own = env!("CARGO_PKG_VERSION").to_owned();
    if by_version.is_empty() {
        return match &look.namenode.figures {
            Err(unseen) => vec![not_seen("versions.unseen", "the servers' versions", unseen)],
            Ok(_) => Vec::new(),
        };
    }
    by_version.entry(own.clone()).or_default().push("this program".to_owned());
    if by_version.len() == 1 {
        return vec![Check::ok(id, format!("all servers, and this program, are of {own}"))];
    }
    let shown = by_version.iter().map(|(version, names)| format!("{version}: {}", listed(names)));
    let found = shown.collect::<Vec<_>>().join("; ");
    let newest = by_version.keys().filter_map(|it| release(it)).max();
    let oldest = by_version.keys().filter_map(|it| release(it)).min();
    let is_next = match (oldest, newest) {
        (Some((old_major, old)), Some((major, new))) => old_major == major && new - old <= 1,
        _ => false,
    };
    vec![match is_next {
        // Servers of two releases work together: an upgrade goes on.
        true => Check::ok(id, found).with_mend("finish the upgrade: docs/UPGRADING.md#order"),
        false => {
            let mend = "a release works with the one before only: docs/UPGRADING.md#order";
            Check::fail("versions.skew", found, mend)
        }
    }]
}

/// Returns a version's release: releases that differ in the last number are of one.
fn release(version: &str) -> Option<(u64, u64)> {
    let mut parts = version.split(['.', '-']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Compares the clocks of the servers with this machine's.
pub(super) fn clocks(look: &ClusterLook) -> Vec<Check> {
    let id = "clocks";
    let named = look.servers().filter_map(|(name, server)| Some((name, server.clock?)));
    let namenode = look.namenode.clock.map(|clock| ("namenode", clock));
    let all: Vec<(&str, ClockOffset)> = namenode.into_iter().chain(named).collect();
    let Some(worst) = all.iter().map(|(_, clock)| clock.at_least()).max() else {
        return Vec::new();
    };
    let mut apart: Vec<_> =
        all.iter().filter(|(_, clock)| clock.at_least() > CLOCK_WARN_MILLIS).collect();
    apart.sort_by_key(|(_, clock)| std::cmp::Reverse(clock.at_least()));
    let detail = |(name, clock): &&(&str, ClockOffset)| {
        let span = units::duration(Duration::from_millis(clock.millis.unsigned_abs()));
        let way = if clock.millis > 0 { "ahead" } else { "behind" };
        ((*name).to_owned(), format!("{span} {way}"))
    };
    let check = of_nodes(
        |found| {
            let found = format!("by this machine's clock, {found}");
            match worst > CLOCK_FAIL_MILLIS {
                true => Check::fail("clocks.skew", found, CLOCK),
                false => Check::warn("clocks.skew", found, CLOCK),
            }
        },
        ("server's clock is wrong", "servers' clocks are wrong"),
        apart.iter().map(detail).collect(),
    );
    let servers = units::count(all.len() as u64, "server is", "servers are");
    let within = units::duration(Duration::from_millis(worst.max(1)));
    vec![check.unwrap_or_else(|| {
        Check::ok(id, format!("{servers} at most {within} from this machine's clock"))
    })]
}
