//! Namenodes of a group, each in a network namespace of its own, are cut off from one another under
//! load. What callers saw is written down and judged as that of `group_chaos.rs`.
//!
//! `SANDERLING_GROUP_ROUNDS` and `_SEED` select what is run; the history is in
//! `target/histories/group-partitions.jsonl`. Without root and `ip` these tests are skipped.

mod cluster;
#[path = "group_chaos/history.rs"]
mod history;

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cluster::guarded::text;
use cluster::namenodes::Group;
use cluster::{SOON, Server, Starting, block_on, http, run, sanderling, spawn_with, until};
use history::{Callers, number};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Time in which members that reach one another elect a leader, on a busy machine.
const ELECTED_WITHIN: Duration = Duration::from_secs(10);

fn try_ip(words: &[&str]) -> Result<(), String> {
    let ran = Command::new("ip").args(words).output();
    match ran {
        Ok(ran) if ran.status.success() => Ok(()),
        Ok(ran) => Err(format!("ip {words:?}: {}", String::from_utf8_lossy(&ran.stderr))),
        Err(error) => Err(format!("ip: {error}")),
    }
}

fn ip(words: &[&str]) {
    try_ip(words).unwrap_or_else(|error| panic!("{error}"));
}

/// How many networks this process has made: its tests run beside one another.
static MADE: AtomicU32 = AtomicU32::new(0);

/// One bridge, and a namespace for each member. Callers are outside of all of them.
struct Networks {
    bridge: String,
    count: usize,
    begin: String,
}

impl Networks {
    /// Returns why there are none here.
    fn make(count: usize) -> Result<Self, String> {
        let (pid, number) = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        // Of the networks for measurements of devices, RFC 2544: no machine has these addresses.
        let net = pid.wrapping_mul(2).wrapping_add(number);
        let begin = format!("198.{}.{}", 18 + net / 256 % 2, net % 256);
        let made = Self { bridge: format!("sg{pid}n{number}"), count, begin };
        try_ip(&["link", "add", &made.bridge, "type", "bridge"])?;
        let own = format!("{}.254/24", made.begin);
        try_ip(&["addr", "add", &own, "dev", &made.bridge])?;
        try_ip(&["link", "set", &made.bridge, "up"])?;
        for place in 0..count {
            made.make_one(place)?;
        }
        Ok(made)
    }

    fn make_one(&self, place: usize) -> Result<(), String> {
        let (space, link) = (self.space(place), self.link(place));
        try_ip(&["netns", "add", &space])?;
        let peer = ["type", "veth", "peer", "name", "eth0", "netns", &space];
        try_ip(&[&["link", "add", &link][..], &peer].concat())?;
        try_ip(&["link", "set", &link, "master", &self.bridge, "up"])?;
        let address = format!("{}/24", self.address(place));
        try_ip(&["-n", &space, "addr", "add", &address, "dev", "eth0"])?;
        try_ip(&["-n", &space, "link", "set", "eth0", "up"])?;
        try_ip(&["-n", &space, "link", "set", "lo", "up"])
    }

    fn space(&self, place: usize) -> String {
        format!("{}-{place}", self.bridge)
    }

    fn link(&self, place: usize) -> String {
        format!("{}v{place}", self.bridge)
    }

    fn address(&self, place: usize) -> String {
        format!("{}.{}", self.begin, place + 1)
    }

    fn server(&self, place: usize, group: &Group, join: Option<&str>) -> Server {
        let mut program = Command::new("ip");
        program.args(["netns", "exec", &self.space(place)]).arg(sanderling().get_program());
        let catalog = text(group.catalog(place));
        let listen = format!("{}:7600", self.address(place));
        let mut words = vec!["namenode", "--listen", &listen, "--http", "none", "--dir", &catalog];
        // Nothing but this machine reaches the bridge.
        words.push("--allow-unauthenticated");
        words.extend(join.iter().flat_map(|address| ["--join", *address]));
        let name = format!("namenode-{place}");
        Starting::by(program, group.directory.path(), &name, &words).serves()
    }

    /// Nothing reaches a member, and nothing comes from it, as behind a cable that was pulled.
    fn cut_off(&self, place: usize, is_cut: bool) {
        ip(&["link", "set", &self.link(place), if is_cut { "down" } else { "up" }]);
    }

    /// What one member sends to another is dropped. Callers reach both.
    fn drop_from(&self, from: usize, to: usize, is_dropped: bool) {
        let change = if is_dropped { "add" } else { "del" };
        let to = format!("{}/32", self.address(to));
        ip(&["-n", &self.space(from), "route", change, "blackhole", &to]);
    }
}

impl Drop for Networks {
    fn drop(&mut self) {
        for place in 0..self.count {
            let _ = try_ip(&["netns", "del", &self.space(place)]);
            let _ = try_ip(&["link", "del", &self.link(place)]);
        }
        let _ = try_ip(&["link", "del", &self.bridge]);
    }
}

/// How members are parted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Parting {
    /// The leader from everything.
    CutOff,
    /// The leader from the other members; callers reach all.
    Apart,
    /// What the leader sends to the other members is dropped, not what they send.
    Dumb,
    /// What the others send to the leader is dropped.
    Deaf,
    /// The leader and one other.
    OneLink,
    /// A member that does not lead, from everything.
    Follower,
}

const PARTINGS: [Parting; 6] = [
    Parting::CutOff,
    Parting::Apart,
    Parting::Dumb,
    Parting::Deaf,
    Parting::OneLink,
    Parting::Follower,
];

impl Parting {
    /// Parts the members, or joins them again.
    fn set(self, networks: &Networks, (leader, other): (usize, usize), is_parted: bool) {
        let others = || (0..networks.count).filter(|place| *place != leader);
        match self {
            Self::CutOff => networks.cut_off(leader, is_parted),
            Self::Follower => networks.cut_off(other, is_parted),
            Self::Apart | Self::Dumb | Self::Deaf => {
                for place in others() {
                    if self != Self::Deaf {
                        networks.drop_from(leader, place, is_parted);
                    }
                    if self != Self::Dumb {
                        networks.drop_from(place, leader, is_parted);
                    }
                }
            }
            Self::OneLink => {
                networks.drop_from(leader, other, is_parted);
                networks.drop_from(other, leader, is_parted);
            }
        }
    }

    /// Returns whether the others must elect another leader.
    const fn moves_the_leadership(self) -> bool {
        matches!(self, Self::CutOff | Self::Apart | Self::Dumb | Self::Deaf)
    }
}

/// Starts so many members, each in its namespace: three voters, and spares. Prints why that cannot
/// be done here, and returns `None` then.
fn start(count: usize) -> Option<(Networks, Group)> {
    let networks = Networks::make(count);
    let skipped = |why: &String| eprintln!("skipped, no network namespaces here: {why}");
    let networks = networks.inspect_err(skipped).ok()?;
    let mut group = Group::start(0, &[]);
    for place in 0..count {
        let first = group.addresses.first().map(String::as_str);
        let server = networks.server(place, &group, first);
        group.addresses.push(server.address.clone());
        group.members.push(Some(server));
    }
    group.until_voters(3);
    Some((networks, group))
}

fn part(rounds: u64, seed: u64, file: &str) {
    eprintln!("group-partitions: {rounds} rounds, seed {seed}");
    let Some((networks, group)) = start(3) else { return };
    let callers = Callers::start(&group.addresses, rounds, seed, file);
    let mut random = StdRng::seed_from_u64(seed);
    let mut counts = BTreeMap::<Parting, u64>::new();
    let mut longest = Duration::ZERO;
    for round in 0..rounds {
        if round > 0 && round.is_multiple_of(50) {
            eprintln!("round {round}, {:?}", callers.elapsed());
        }
        let kind = PARTINGS[usize::try_from(round).expect("rounds") % PARTINGS.len()];
        let leader = group.leader();
        let places = (leader, (leader + random.random_range(1..3)) % 3);
        let parted = Instant::now();
        kind.set(&networks, places, true);
        if kind.moves_the_leadership() {
            let reached = (leader + 1) % 3;
            until("another member leads", ELECTED_WITHIN, || {
                let seen = group.leader_seen_by(reached);
                seen.filter(|seen| *seen != leader && group.answers(*seen))
            });
            longest = longest.max(parted.elapsed());
        }
        std::thread::sleep(Duration::from_millis(random.random_range(0..1000)));
        // Whichever way they are parted, most reach one another: callers get on.
        callers.get_on();
        kind.set(&networks, places, false);
        callers.get_on();
        *counts.entry(kind).or_default() += 1;
    }
    let seen = callers.stop();
    until("all members follow one leader", SOON, || {
        let leader = group.leader();
        (0..3).all(|place| group.leader_seen_by(place) == Some(leader)).then_some(())
    });
    let checked = group.cli(group.leader(), &["fsck"]);
    assert_eq!(checked.code, 0, "{checked}");
    eprintln!("{counts:?}, another leader within {longest:?}: {seen}");
}

/// `scripts/linearizability` judges the history: a step of `make test` after this one.
#[test]
fn few_partitions_of_a_group_leave_no_caller_without_an_answer() {
    part(number("ROUNDS", 6), number("SEED", 1), "group-partitions-few.jsonl");
}

#[test]
#[ignore = "make group-partitions: hundreds of rounds"]
fn many_partitions_of_a_group_leave_no_caller_without_an_answer() {
    part(number("ROUNDS", 200), number("SEED", 1), "group-partitions.jsonl");
}

/// A spare looks for no other leader than the one that it has.
#[test]
fn spare_that_was_cut_off_when_it_was_removed_ends_though_its_leader_is_gone() {
    let Some((networks, mut group)) = start(4) else { return };
    let leader = group.leader();
    assert!(leader < 3, "a spare does not lead");
    until("the spare follows the leader", SOON, || {
        (group.leader_seen_by(3) == Some(leader)).then_some(())
    });
    networks.cut_off(3, true);
    // Members have the numbers in which they joined.
    let removed = group.cli(leader, &["group", "remove", "4"]);
    assert_eq!(removed.code, 0, "{removed}");
    group.kill(leader);
    let mut spare = group.members[3].take().expect("it runs");
    assert_ne!(group.leader(), leader);
    networks.cut_off(3, false);
    assert!(!spare.wait(SOON).success(), "a removed member serves no more");
    assert!(spare.log().contains("removed from its group"), "{}", spare.log());
}

/// Each of them answers, and none leads: all of them refuse.
#[test]
fn drain_while_no_namenode_leads_may_be_tried_again() {
    let Some((networks, group)) = start(3) else { return };
    let (namenodes, listen) = (group.addresses.join(","), format!("{}.254:0", networks.begin));
    let mut words = vec!["datanode", "--namenode", &namenodes, "--name", "d0", "--dram", "8MiB"];
    // Nothing but this machine reaches the bridge.
    words.extend(["--listen", &listen, "--http", "127.0.0.1:0", "--allow-unauthenticated"]);
    let datanode = spawn_with(group.directory.path(), "d0", &words, &[]).serves();
    for from in 0..3 {
        for to in (0..3).filter(|to| *to != from) {
            networks.drop_from(from, to, true);
        }
    }
    let is_led = |place| {
        let roles = group.roles(place);
        roles.is_empty() || roles.iter().any(|(_, role)| role == "Leader")
    };
    until("no member leads", SOON, || (!(0..3).any(is_led)).then_some(()));
    let at = &datanode.http_address;
    let words = ["datanode", "drain", "--http", at, "--deadline", "300s", "--json"];
    let ran = run(sanderling().args(words));
    let last = ran.stderr.lines().last().unwrap_or_default();
    let error: serde_json::Value = serde_json::from_str(last).expect("JSON");
    assert_eq!((ran.code, &error["error"]["kind"]), (4, &"NotLeader".into()), "{ran}");
    let health = block_on(http::get(at, "/healthz"));
    assert_eq!(health["is_fenced"], true, "{health}");
}
