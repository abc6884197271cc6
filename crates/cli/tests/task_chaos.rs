//! A task whose checkpoints lie in a durable directory, while processes are killed or stand still
//! at any moment of dump, publication, drain and removal: the runner, `task gc`, the cluster's
//! servers, and the gateway before the bucket that is the durable store. After each the newest
//! generation that must be there restores, byte for byte, and the store alone has all that it must
//! have. `make task-chaos` runs a thousand rounds.
//!
//! `SANDERLING_TASK_SEED`, `_ROUNDS` and `_WORLD` select what is run.

mod cluster;
#[path = "task_chaos/injected_bugs.rs"]
mod injected_bugs;
#[path = "task_chaos/judge.rs"]
mod judge;
#[path = "chaos/lots.rs"]
mod lots;
#[path = "task_chaos/store.rs"]
mod store;
#[path = "task_chaos/task.rs"]
mod task;
#[path = "task_chaos/world.rs"]
mod world;

use cluster::tasks::usable_criu;
use world::{Kind, Victim, World};

/// Victims of the rounds of a long run. After a manager is killed nothing becomes visible in the
/// store until a removal that it may have ordered has settled, and that takes 30 s: there are more
/// rounds of the others.
const VICTIMS: [Victim; 13] = [
    Victim::Runner,
    Victim::Runner,
    Victim::Collector,
    Victim::Collector,
    Victim::Namenode,
    Victim::Datanode,
    Victim::Datanode,
    Victim::Manager,
    Victim::NamenodeAndManager,
    Victim::Pause,
    Victim::Store,
    Victim::Store,
    Victim::Store,
];

/// Rounds of one world: uploads that nothing ends take room in its bucket.
const ROUNDS_OF_A_WORLD: u64 = 50;

fn variable(name: &str) -> Option<String> {
    std::env::var(format!("SANDERLING_TASK_{name}")).ok().filter(|text| !text.is_empty())
}

fn number(name: &str, default: u64) -> u64 {
    variable(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Returns the kinds of worlds that are selected, without those that cannot be here.
fn kinds(test: &str) -> Vec<Kind> {
    let only = variable("WORLD");
    let is_selected = |kind: &Kind| {
        only.as_ref().is_none_or(|only| only.split(',').any(|name| name == kind.name()))
    };
    let mut kinds: Vec<Kind> = Kind::ALL.into_iter().filter(is_selected).collect();
    assert!(!kinds.is_empty(), "no world is called {only:?}: {:?}", Kind::ALL.map(Kind::name));
    if kinds.iter().any(|kind| kind.has_criu()) && usable_criu().is_none() {
        kinds.retain(|kind| !kind.has_criu());
        eprintln!("SKIPPED {test}: worlds with CRIU: no root or no CRIU here: scripts/criu.sh");
    }
    kinds
}

/// Strikes each of these once, and takes all machines in the end.
fn strike(kind: Kind, victims: &[Victim]) {
    let mut world = World::start(kind, number("SEED", 1));
    for (round, victim) in (0..).zip(victims) {
        world.round(round, *victim);
    }
    world.take_all_machines();
}

/// The managers first: other rounds pass while the store settles.
#[test]
fn newest_generation_restores_after_a_kill_of_each_process() {
    let victims = [
        Victim::NamenodeAndManager,
        Victim::Runner,
        Victim::Collector,
        Victim::Namenode,
        Victim::Pause,
        Victim::Store,
        Victim::Datanode,
    ];
    strike(Kind::Files, &victims);
}

#[test]
fn newest_generation_restores_after_kills_of_the_server_of_its_bucket() {
    let victims =
        [Victim::Manager, Victim::Store, Victim::Collector, Victim::Store, Victim::Datanode];
    strike(Kind::Bucket, &victims);
}

#[test]
fn newest_images_of_criu_restore_after_kills() {
    if usable_criu().is_none() {
        eprintln!("SKIPPED newest_images_of_criu: no root or no CRIU here: scripts/criu.sh");
        return;
    }
    strike(Kind::BucketCriu, &[Victim::Runner, Victim::Store, Victim::Datanode]);
}

/// Below the directory nothing that waits for the store can be deleted: each removal of an old
/// generation would take as long as a call may.
#[test]
fn task_goes_on_being_stored_while_its_store_is_away() {
    World::start(Kind::Files, 1).go_on_without_store();
}

#[test]
#[ignore = "make task-chaos: a thousand rounds"]
fn newest_generation_restores_after_a_thousand_kills() {
    let (seed, rounds) = (number("SEED", 1), number("ROUNDS", 1000));
    let kinds = kinds("newest_generation_restores_after_a_thousand_kills");
    if kinds.is_empty() {
        return;
    }
    let mut first = 0;
    while first < rounds {
        let last = rounds.min(first + ROUNDS_OF_A_WORLD);
        let place = seed.wrapping_add(first / ROUNDS_OF_A_WORLD);
        let at = usize::try_from(place % kinds.len() as u64).expect("an index");
        let mut world = World::start(kinds[at], place);
        for round in first..last {
            let victim = *world.lots.pick(&VICTIMS);
            let (kind, floors) = (kinds[at].name(), (world.floor, world.store_floor));
            eprintln!("{round} {kind} {victim:?} {floors:?}");
            world.round(round, victim);
        }
        world.take_all_machines();
        first = last;
    }
}
