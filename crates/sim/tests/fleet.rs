//! A thousand datanodes: decisions are as right as among three, in a bounded number of steps.

use sanderling_protocol::Refusal;
use sanderling_sim::fleet::Fleet;

/// Half-seconds that a drain, or a rebalancing, may take when no link holds it up.
const STEPS_MAX: u32 = 120;

fn until(fleet: &mut Fleet, what: &str, is_done: impl Fn(&Fleet) -> bool) {
    for _ in 0..STEPS_MAX {
        if is_done(fleet) {
            return;
        }
        fleet.step().expect("nothing is refused");
    }
    panic!("{what} takes more than {STEPS_MAX} steps: {:?} moved", fleet.moved());
}

#[test]
fn thousand_nodes_are_filled_evenly_and_drained_without_loss() {
    let mut fleet = Fleet::new(1000).expect("all may join");
    fleet.write(20_000, None).expect("there is room");
    let (most, mean) = fleet.fill();
    assert_eq!(mean, 20);
    assert!(most <= 2 * mean, "the fullest of two choices holds {most} of {mean}");
    for node in [3, 500, 999] {
        fleet.notice(node).expect("it is there");
    }
    until(&mut fleet, "the drain of three nodes", |fleet| {
        [3, 500, 999].into_iter().all(|node| fleet.is_drained(node))
    });
    assert_eq!(fleet.problems(), (Vec::new(), 0));
    assert!(fleet.moved().0 > 0);
}

#[test]
fn what_one_of_a_thousand_holds_too_much_is_spread_over_all() {
    let mut fleet = Fleet::new(1000).expect("all may join");
    fleet.write(5000, None).expect("there is room");
    fleet.write(3000, Some(7)).expect("there is room");
    assert!(fleet.fill().0 >= 3000);
    until(&mut fleet, "the spreading of one node's blocks", |fleet| {
        let (most, mean) = fleet.fill();
        most <= 3 * mean
    });
    assert_eq!(fleet.problems(), (Vec::new(), 0));
    assert!(fleet.moved().1 >= 2900, "{:?}", fleet.moved());
}

#[test]
fn full_fleet_meets_so_many_notices_at_once_as_it_keeps_room_for() {
    for departures in 1..=3 {
        let mut fleet = Fleet::keeping(9, 64 << 20, departures).expect("all may join");
        let mut written = 0;
        let refusal = loop {
            match fleet.write(1, None) {
                Ok(()) => written += 1,
                Err(refusal) => break refusal,
            }
        };
        assert!(matches!(refusal, Refusal::ReserveKept { .. }), "{refusal}");
        // One block of each node that stays is not reckoned with.
        assert_eq!(written, 63 * u64::from(9 - departures));
        fleet.beat().expect("no node is refused");
        for node in 0..departures as usize {
            fleet.notice(node).expect("it is there");
        }
        until(&mut fleet, "the drain of a full fleet", |fleet| {
            (0..departures as usize).all(|node| fleet.is_drained(node))
        });
        assert_eq!(fleet.problems(), (Vec::new(), 0), "{departures} notices");
    }
}
