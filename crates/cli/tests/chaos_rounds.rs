//! Faults drawn from a seed on real processes, one after the other, under load; after each the
//! fleet must come to rest and keep every promise. `make chaos` runs hundreds of rounds.
//!
//! `SANDERLING_CHAOS_SEED`, `_FIRST`, `_ROUNDS`, `_SYNC` and `_ONLY` select what is run.

#[path = "chaos_rounds/clients.rs"]
mod clients;
mod cluster;
#[path = "chaos_rounds/disk.rs"]
mod disk;
#[path = "chaos_rounds/faults.rs"]
mod faults;
#[path = "chaos_rounds/fleet.rs"]
mod fleet;
#[path = "chaos_rounds/injected_bugs.rs"]
mod injected_bugs;
#[path = "chaos_rounds/judge.rs"]
mod judge;
#[path = "chaos_rounds/load.rs"]
mod load;
#[path = "chaos/lots.rs"]
mod lots;
#[path = "chaos_rounds/model.rs"]
mod model;
#[path = "chaos_rounds/proxy.rs"]
mod proxy;
#[path = "chaos_rounds/rounds.rs"]
mod rounds;
#[path = "chaos_rounds/world.rs"]
mod world;

use std::time::Duration;

use cluster::block_on_within;
use rounds::Plan;
use world::World;

/// Longest that one round may take on average, however busy the machine is.
const ROUND_MAX: Duration = Duration::from_secs(120);

fn run(plan: &Plan) {
    let Plan { seed, first, rounds, sync, .. } = plan;
    eprintln!("chaos: --seed {seed} --first {first} --rounds {rounds} --sync {sync}");
    let limit = ROUND_MAX * u32::try_from(*rounds).expect("rounds") + ROUND_MAX;
    let result = block_on_within(limit, plan.run());
    match result {
        Ok(summary) => summary.print(),
        Err(failed) => panic!(
            "{:?} is broken in round {} ({:?}): {}\nlogs: {}\nagain: make chaos \
             ARGS=\"--seed {seed} --first {} --rounds {} --sync {sync}\"",
            failed.violation.promise,
            failed.round,
            failed.kinds,
            failed.violation.what,
            failed.directory,
            failed.round / 25 * 25,
            failed.round % 25 + 1,
        ),
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(format!("SANDERLING_CHAOS_{name}")).ok().filter(|text| !text.is_empty())
}

fn number(name: &str, default: u64) -> u64 {
    variable(name).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
#[ignore = "make chaos: hundreds of rounds"]
fn every_promise_holds_through_many_faults() {
    let sync = variable("SYNC").unwrap_or_else(|| "os".to_owned());
    let mut plan = Plan::new(number("SEED", 1), number("ROUNDS", 500), &sync);
    plan.first = number("FIRST", 0);
    if let Some(only) = variable("ONLY") {
        plan.kinds.retain(|kind| only.split(',').any(|name| name == format!("{kind:?}")));
        assert!(!plan.kinds.is_empty(), "no fault is called {only}: {:?}", faults::ALL);
    }
    run(&plan);
}

/// A fault of each kind that is quick, and on which the others build.
#[test]
fn every_promise_holds_through_a_few_faults() {
    let mut plan = Plan::new(number("SEED", 1), faults::QUICK.len() as u64, "always");
    plan.kinds = faults::QUICK.to_vec();
    plan.in_turn = true;
    run(&plan);
}

#[test]
fn every_promise_that_is_broken_by_hand_is_found_broken() {
    block_on_within(ROUND_MAX * 4, async {
        let mut whole: Option<World> = None;
        for (bug, promise) in injected_bugs::ALL {
            let mut world = match whole.take() {
                Some(world) => world,
                None => World::start(1, 0, "always").await,
            };
            let found = injected_bugs::inject(bug, &mut world).await;
            let found = found.expect_err("the bug is found");
            eprintln!("{bug:?}: {found:?}");
            assert_eq!(found.promise, promise, "{bug:?}: {found:?}");
            if bug.leaves_all_whole() {
                whole = Some(world);
            } else {
                world.abandon();
            }
        }
    });
}
