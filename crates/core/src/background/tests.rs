use sanderling_protocol::message::{DrainWork, MovePurpose};
use sanderling_protocol::node::Availability;
use sanderling_protocol::order::Pushed;
use sanderling_protocol::{BlockId, Millis, NodeId, Policy, Tier};

use self::world::{BLOCK, World};
use crate::Machine;
use crate::rebalance::MoveRank;
use crate::relocation::tests::{candidate, tier};
use crate::relocation::{Input, MoveOutput};

mod world;

const MINUTE: Millis = Millis::from_secs(60);

const fn blocks(count: u64) -> u64 {
    count * BLOCK as u64
}

/// A full node with a budget of 40 blocks and two empty ones.
fn exposed(count: u64) -> World {
    let mut world = World::new(&[400, 400, 400]);
    world.fill(0, count);
    world.nodes[0].budget_bytes = blocks(40);
    world.config(|config| config.rebalance.is_on = false);
    world
}

fn deadline_drain(world: &mut World) {
    world.drains = vec![DrainWork {
        node: NodeId(77),
        address: "elsewhere:1".to_owned(),
        deadline_in: Some(Millis(30_000)),
        left_blocks: 1,
        left_bytes: 1,
    }];
}

#[test]
fn coldest_excess_gets_copies_until_exposure_is_within_the_budget() {
    let mut world = exposed(90);
    world.run(MINUTE);
    let left = world.exposed_blocks(0);
    assert!((28..=30).contains(&left), "{left} blocks are nowhere else");
    let coldest: Vec<u64> = world.sent.iter().map(|sent| sent.block.0).take(3).collect();
    assert_eq!(coldest, [90, 89, 88], "the one that changed longest ago goes first");
    let to = |node| world.sent.iter().filter(|sent| sent.target == NodeId(node)).count();
    assert!(to(1) > 20 && to(2) > 20, "copies spread over both");
    assert!(world.machine.is_idle());
    assert_eq!(world.machine.counts().copied_blocks, world.sent.len() as u64);
    assert!(world.reserved.is_empty());
}

#[test]
fn node_within_its_budget_is_not_even_read() {
    let mut world = exposed(33);
    world.run(MINUTE);
    assert_eq!(world.calls, 0);
}

/// Shows the machine so many views; returns how many moves it reserves. No reservation is answered.
fn reserve_without_answers(world: &mut World, views: u32) -> usize {
    let mut reserved = 0;
    for _ in 0..views {
        let (drains, nodes) = (Vec::new(), world.view());
        world.machine.handle(world.now, Input::Drains { drains, nodes });
        while let Some(output) = world.machine.poll_output() {
            if let MoveOutput::Reserve { moves, .. } = output {
                reserved += moves.len();
            } else {
                let answer = world.answer(output);
                world.machine.handle(world.now, answer);
            }
        }
        world.now = world.now + Millis(1000);
    }
    reserved
}

#[test]
fn room_that_is_being_reserved_is_not_planned_again_with_the_next_view() {
    let mut world = World::new(&[90, 20, 90]);
    world.fill(0, 90);
    world.fill(2, 90);
    world.nodes[0].budget_bytes = blocks(40);
    world.config(|config| config.rebalance.is_on = false);
    assert_eq!(reserve_without_answers(&mut world, 5), 15, "three quarters of the only room");
    world.nodes[2].budget_bytes = blocks(40);
    assert_eq!(reserve_without_answers(&mut world, 5), 0);
}

#[test]
fn copies_under_way_are_not_made_of_other_blocks_too() {
    let mut world = exposed(35);
    let reserved = reserve_without_answers(&mut world, 10);
    // Three quarters of the budget of 40 blocks may be on the node alone.
    assert_eq!(reserved, 5);
}

#[test]
fn node_with_more_blocks_than_are_remembered_is_read_again_soon() {
    let mut world = exposed(90);
    world.config(|config| {
        config.rebalance.is_on = false;
        config.known_blocks_max = 10;
    });
    world.run(Millis(4_000));
    assert!(world.exposed_blocks(0) <= 30, "{} after six readings", world.exposed_blocks(0));
}

#[test]
fn node_at_risk_copies_everything_and_takes_nothing() {
    let mut world = exposed(30);
    world.nodes[0].is_at_risk = true;
    world.nodes[1].is_at_risk = true;
    world.run(MINUTE);
    assert_eq!(world.exposed_blocks(0), 0);
    assert!(world.sent.iter().all(|sent| sent.target == NodeId(2)));
}

#[test]
fn copies_go_to_another_machine_where_there_is_one() {
    let mut world = exposed(90);
    world.nodes[1].host = world.nodes[0].host.clone();
    world.run(MINUTE);
    assert!(world.sent.iter().all(|sent| sent.target == NodeId(2)));
    assert!(world.exposed_blocks(0) <= 30);
    let mut single = exposed(90);
    for info in &mut single.nodes {
        info.host = "one".to_owned();
    }
    single.run(MINUTE);
    assert!(single.exposed_blocks(0) <= 30, "a test bench has one machine only");
}

#[test]
fn copies_leave_a_quarter_of_the_tier_then_take_disk_then_the_object_tier() {
    let mut world = exposed(90);
    world.nodes.truncate(2);
    world.nodes[1].tiers = vec![
        tier(Tier::Dram, blocks(20)),
        tier(Tier::Disk, blocks(20)),
        tier(Tier::Object, 1 << 40),
    ];
    world.run(MINUTE);
    let to = |tier| world.sent.iter().filter(|sent| sent.tier == tier).count();
    assert_eq!((to(Tier::Dram), to(Tier::Disk)), (15, 15));
    assert!(world.exposed_blocks(0) <= 30 && to(Tier::Object) >= 30);
}

#[test]
fn copies_without_room_are_counted_and_made_once_there_is_some() {
    let mut world = exposed(90);
    world.nodes.truncate(2);
    world.nodes[1].tiers = vec![tier(Tier::Dram, blocks(20))];
    world.run(MINUTE);
    assert_eq!(world.sent.len(), 15);
    assert_eq!(world.machine.counts().unplaced_bytes, blocks(45));
    world.nodes[1].tiers = vec![tier(Tier::Dram, blocks(400))];
    world.run(MINUTE);
    assert!(world.exposed_blocks(0) <= 30);
    assert_eq!(world.machine.counts().unplaced_bytes, 0);
}

#[test]
fn block_that_fits_nowhere_does_not_hold_up_the_others() {
    let mut world = exposed(90);
    // The coldest of all, on a tier that no other node has; and one that is too long.
    world.put(0, 1000, |candidate| candidate.tier = Tier::Disk);
    world.put(0, 1001, |candidate| {
        candidate.length = BLOCK * 350;
        candidate.reserve_bytes = candidate.length;
    });
    world.nodes[0].budget_bytes = blocks(400);
    world.run(MINUTE);
    let calls = world.calls;
    assert!(world.sent.iter().all(|sent| sent.block.0 <= 90), "{:?}", world.sent.first());
    assert!(world.sent.len() as u64 == 90, "{}", world.sent.len());
    assert!(world.machine.counts().unplaced_bytes > 0);
    // What comes later is found, though what is known still fits nowhere.
    world.put(0, 2000, |_| ());
    world.run(MINUTE);
    assert_eq!(world.sent.last().unwrap().block, BlockId(2000));
    world.run(MINUTE);
    assert!(world.calls - calls < 1000, "and it is not read all the time");
}

#[test]
fn copies_go_when_their_holder_gets_full_and_come_back_elsewhere() {
    let mut world = exposed(90);
    world.nodes.truncate(2);
    world.nodes[1].tiers = vec![tier(Tier::Dram, blocks(120))];
    world.run(MINUTE);
    assert_eq!(world.info(1).tiers[0].copy_bytes, blocks(60));
    for id in 1000..1050 {
        world.put(1, id, |_| ());
    }
    world.run(Millis(3_000));
    let usage = world.info(1).tiers[0];
    let free = (usage.capacity_bytes - usage.used_bytes) * 100 / usage.capacity_bytes;
    assert!((16..=18).contains(&free), "{free} % are free");
    let (dropped, sent) = (world.dropped.len(), world.sent.len());
    assert_eq!(world.machine.counts().dropped_copies, dropped as u64);
    world.run(MINUTE);
    assert_eq!((world.dropped.len(), world.sent.len()), (dropped, sent), "nothing oscillates");
    let youngest = world.dropped.iter().max().unwrap();
    assert!(youngest.0 < 60, "copies of what changed last go first, not {youngest}");
}

#[test]
fn copies_far_below_the_budget_go_and_do_not_come_back() {
    let mut world = exposed(90);
    world.run(MINUTE);
    world.nodes[0].budget_bytes = blocks(400);
    world.run(MINUTE);
    assert_eq!(world.exposed_blocks(0), 90, "all copies went: {:?}", world.dropped.len());
    let calls = world.calls;
    world.run(MINUTE);
    assert_eq!(world.calls, calls);
}

#[test]
fn open_expiring_and_empty_blocks_get_no_copy_and_are_read_for_less_and_less() {
    let mut world = exposed(0);
    for id in 1..50 {
        world.put(0, id, |block| block.is_open = true);
        world.put(0, 100 + id, |block| block.expires_in = Some(Millis(10_000)));
    }
    world.run(MINUTE);
    assert!(world.sent.is_empty());
    let calls = world.calls;
    assert!(calls < 400, "{calls} pages of 10 blocks, 10 of them for one reading");
}

#[test]
fn background_sends_no_more_than_its_share() {
    let mut world = exposed(3000);
    world.nodes[1].tiers = vec![tier(Tier::Dram, 1 << 40)];
    world.nodes[2].tiers = vec![tier(Tier::Dram, 1 << 40)];
    world.run(MINUTE);
    // Above its budget, with clients that leave it alone: 40 % of 100 blocks a second.
    let sent = world.sent.len();
    assert!((2300..=2460).contains(&sent), "{sent} blocks in a minute");
}

#[test]
fn fast_source_sends_many_blocks_at_once() {
    let mut world = exposed(90);
    world.config(|config| config.page_blocks_max = 100);
    for info in &mut world.nodes {
        info.egress_bytes_per_second = 1 << 30;
    }
    world.run(Millis(100));
    let first = world.sent[0].at;
    let batch = world.sent.iter().filter(|sent| sent.at == first).count();
    assert_eq!(batch, 60, "a tenth of a second's bytes, not a block of the greatest length");
}

#[test]
fn busy_source_trickles_but_one_above_its_budget_keeps_a_share() {
    let busy = |count: u64, budget: u64| {
        let mut world = exposed(count);
        world.nodes[0].budget_bytes = blocks(budget);
        for info in &mut world.nodes {
            info.tiers = vec![tier(Tier::Dram, 1 << 40)];
        }
        for _ in 0..60 {
            world.read(0, blocks(90));
            world.run(Millis(1000));
        }
        world.sent.len()
    };
    // One second passes before a heartbeat reports it.
    let trickle = busy(2000, 2100);
    assert!((250..=330).contains(&trickle), "{trickle} blocks at 5 a second");
    let over = busy(2000, 100);
    assert!((550..=640).contains(&over), "{over} blocks at 10 a second");
}

#[test]
fn drain_that_may_need_all_room_stops_what_can_wait() {
    let mut world = World::new(&[400, 400, 400]);
    world.fill(0, 90);
    deadline_drain(&mut world);
    // What is free is 1110 blocks; a move takes its room twice.
    world.drains[0].left_bytes = blocks(560);
    world.run(MINUTE);
    assert!(world.sent.is_empty(), "rebalancing waits");
    world.nodes[0].budget_bytes = blocks(40);
    world.run(MINUTE);
    assert!(world.exposed_blocks(0) <= 41, "a node above its budget does not");
    let sent = world.sent.len();
    world.run(MINUTE);
    assert_eq!(world.sent.len(), sent);
    world.drains.clear();
    world.run(MINUTE);
    assert!(world.home_blocks(0) < 40, "it goes on afterwards");
}

#[test]
fn nodes_that_a_drain_uses_neither_give_nor_take_what_can_wait() {
    let mut world = World::new(&[400, 400, 400, 400]);
    world.fill(0, 90);
    world.fill(1, 90);
    deadline_drain(&mut world);
    world.machine.engage([NodeId(1), NodeId(2)].into());
    world.run(MINUTE);
    assert!(world.sent.len() > 30, "the others go on: {}", world.sent.len());
    let is_free = |node: NodeId| [NodeId(0), NodeId(3)].contains(&node);
    assert!(world.sent.iter().all(|sent| is_free(sent.source) && is_free(sent.target)));
    let sent = world.sent.len();
    world.machine.engage([].into());
    world.run(MINUTE);
    let homes: Vec<u64> = (0..4).map(|node| world.home_blocks(node)).collect();
    assert!(world.sent.len() > sent && homes.iter().all(|count| *count <= 48), "{homes:?}");
}

#[test]
fn copies_that_can_wait_keep_off_a_drain_and_others_do_not() {
    let mut world = exposed(38);
    world.config(|config| config.rebalance.is_on = false);
    deadline_drain(&mut world);
    world.machine.engage([NodeId(0), NodeId(1)].into());
    world.run(MINUTE);
    assert!(world.sent.is_empty(), "it is within its budget");
    world.fill(0, 50);
    world.run(MINUTE);
    assert!(world.exposed_blocks(0) <= 40);
    assert!(world.sent.iter().any(|sent| sent.target == NodeId(1)));
}

#[test]
fn bytes_that_a_node_holds_beyond_its_account_are_no_room() {
    let mut world = exposed(90);
    // A quarter stays free: 390 of 400 are held, although the catalog has none of them.
    world.nodes[1].load.dram_used_bytes = blocks(390);
    world.run(MINUTE);
    assert!(world.exposed_blocks(0) <= 30);
    assert!(world.sent.iter().all(|sent| sent.target == NodeId(2)));
}

#[test]
fn new_empty_node_gets_its_share_slowly_and_then_nothing_moves() {
    let mut world = World::new(&[4000, 4000, 4000, 4000]);
    for node in 0..3 {
        world.fill(node, 800);
    }
    world.nodes[3].age = Millis(0);
    world.run(Millis(3_000));
    let first = world.home_blocks(3);
    // A quarter of 40 blocks a second, at first.
    assert!((25..=45).contains(&first), "{first} blocks in three seconds");
    world.run(Millis(57_000));
    let share = (0..4).map(|node| world.home_blocks(node)).collect::<Vec<_>>();
    assert!(share.iter().all(|blocks| *blocks <= 630), "{share:?}");
    let sent = world.sent.len();
    world.run(MINUTE);
    assert_eq!(world.sent.len(), sent, "nothing oscillates");
    assert_eq!(world.machine.counts().rebalanced_blocks, sent as u64);
}

#[test]
fn rebalancing_keeps_the_targets_exposure_within_its_budget() {
    let mut world = World::new(&[400, 400]);
    world.fill(0, 100);
    world.nodes[1].budget_bytes = blocks(20);
    world.run(Millis(4_000));
    assert!(world.exposed_blocks(1) <= 20, "{}", world.exposed_blocks(1));
    world.run(MINUTE);
    assert!(world.home_blocks(1) >= 48, "its copies make room: {}", world.home_blocks(1));
    assert!(world.exposed_blocks(1) <= 20);
}

#[test]
fn copy_on_the_only_target_goes_so_that_its_block_can_move_there() {
    let mut world = World::new(&[400, 400]);
    for block in world.fill(0, 100) {
        let kept = world.blocks.get_mut(&block).unwrap();
        kept.candidate.copy = Some((NodeId(1), Tier::Dram));
    }
    // What cannot move makes the copies of the others necessary.
    for id in 101..=160 {
        world.put(0, id, |candidate| candidate.is_open = true);
    }
    world.nodes[0].budget_bytes = blocks(160);
    world.run(MINUTE);
    assert!((76..=84).contains(&world.home_blocks(1)), "{}", world.home_blocks(1));
    assert!((76..=90).contains(&world.dropped.len()), "{} copies went", world.dropped.len());
    let sent = world.sent.len();
    world.run(MINUTE);
    assert_eq!(world.sent.len(), sent, "nothing oscillates");
}

/// Two nodes of two tiers: so many blocks are in each of the first one's, all with a copy on the
/// second.
fn copied_in_two_tiers(count: u64) -> World {
    let mut world = World::new(&[400, 400]);
    for info in &mut world.nodes {
        info.tiers.push(tier(Tier::Disk, blocks(400)));
    }
    for id in 1..=2 * count {
        let tier = if id <= count { Tier::Dram } else { Tier::Disk };
        let copy = Some((NodeId(1), tier));
        world.put(0, id, |candidate| (candidate.tier, candidate.copy) = (tier, copy));
    }
    world
}

#[test]
fn copies_given_up_for_moves_of_two_tiers_are_within_the_budget_together() {
    let mut world = copied_in_two_tiers(20);
    world.nodes[0].budget_bytes = blocks(12);
    world.run(MINUTE);
    assert!(world.alone_max <= 12, "{} blocks were nowhere else", world.alone_max);
    assert_eq!(world.machine.counts().copied_blocks, 0, "a copy was dropped and made again");
    assert!(world.home_blocks(0) <= 24, "its share moves: {}", world.home_blocks(0));
}

#[test]
fn copy_that_would_be_made_again_does_not_go_for_a_move() {
    let mut world = World::new(&[400, 400]);
    let length = 9 * BLOCK;
    for id in 1..=4 {
        world.put(0, id, |candidate| {
            (candidate.length, candidate.reserve_bytes) = (length, length);
            candidate.copy = Some((NodeId(1), Tier::Dram));
        });
    }
    // Nine of ten blocks alone are more than what copying begins with.
    world.nodes[0].budget_bytes = blocks(10);
    world.run(MINUTE);
    assert_eq!((world.dropped.len(), world.sent.len()), (0, 0));
    // A node without its copy takes a block as it is.
    let third = World::new(&[0, 0, 400]).nodes.pop().unwrap();
    world.nodes.push(third);
    world.run(MINUTE);
    assert_eq!(world.dropped.len(), 0);
    assert!(world.sent.iter().all(|sent| sent.target == NodeId(2)) && !world.sent.is_empty());
}

#[test]
fn nodes_that_drain_are_silent_or_at_risk_neither_give_nor_take() {
    let mut world = World::new(&[400, 400, 400, 400]);
    world.fill(0, 100);
    world.nodes[1].policy = Policy::Decommissioning;
    world.nodes[2].availability = Availability::Suspect;
    world.nodes[3].is_at_risk = true;
    world.run(MINUTE);
    assert_eq!(world.calls, 0);
}

#[test]
fn every_answer_may_come_twice_late_or_never() {
    for failing in 1..40 {
        let mut world = exposed(90);
        world.config(|_| ());
        world.is_double = failing % 2 == 0;
        world.failing = failing;
        world.run(Millis(180_000));
        let left = world.exposed_blocks(0);
        assert!(left <= 30, "{left} after {failing} failures, {:?}", world.reserved);
        let homes: Vec<u64> = (0..3).map(|node| world.home_blocks(node)).collect();
        assert!(homes.iter().all(|count| *count <= 33), "{homes:?} after {failing} failures");
        assert_eq!(homes.iter().sum::<u64>(), 90);
    }
}

#[test]
fn refusing_target_is_left_alone_and_its_reservations_are_given_back() {
    let mut world = exposed(90);
    world.refusing.insert(NodeId(1));
    world.run(MINUTE);
    assert!(world.exposed_blocks(0) <= 30);
    let refused = world.sent.iter().filter(|sent| sent.target == NodeId(1)).count();
    assert!(refused > 0 && refused < 64, "{refused} pushes were refused");
    assert_eq!(world.abandoned.len(), refused);
    assert!(world.reserved.is_empty());
}

#[test]
fn commit_without_an_answer_is_asked_about_longer_than_a_reservation_is_given_back() {
    let mut world = exposed(90);
    world.is_lost =
        |output| matches!(output, MoveOutput::Commit { .. } | MoveOutput::Abandon { .. });
    world.refusing.insert(NodeId(1));
    let count = |world: &World, of: fn(&MoveOutput) -> Option<BlockId>| {
        let blocks: Vec<BlockId> = world.lost.iter().filter_map(of).collect();
        blocks.iter().filter(|block| **block == blocks[0]).count()
    };
    world.run(Millis(3_050));
    let abandoned = |output: &MoveOutput| match output {
        MoveOutput::Abandon { blocks, .. } => Some(blocks[0]),
        _ => None,
    };
    assert_eq!(count(&world, abandoned), 5);
    world.run(MINUTE);
    let committed = |output: &MoveOutput| match output {
        MoveOutput::Commit { moves, .. } => Some(moves[0].block),
        _ => None,
    };
    assert_eq!(count(&world, committed), 20);
    assert!(world.reserved.is_empty(), "each call was done");
}

#[test]
fn block_whose_reservation_is_under_way_is_not_planned_again() {
    let mut world = exposed(90);
    world.config(|config| {
        config.rebalance.is_on = false;
        // The first batch takes all that is known: the second one is read for.
        config.known_blocks_max = 10;
    });
    let mut reserved = Vec::new();
    for _ in 0..3 {
        let (drains, nodes) = (Vec::new(), world.view());
        world.machine.handle(world.now, Input::Drains { drains, nodes });
        while let Some(output) = world.machine.poll_output() {
            match output {
                // The namenode has not seen it yet: its pages show the block as it was.
                MoveOutput::Reserve { moves, .. } => {
                    reserved.extend(moves.iter().map(|it| it.block))
                }
                output => {
                    let input = world.answer(output);
                    world.machine.handle(world.now, input);
                }
            }
        }
        world.now = world.now + Millis(1000);
    }
    let distinct: std::collections::BTreeSet<BlockId> = reserved.iter().copied().collect();
    assert_eq!((distinct.len(), reserved.len()), (20, 20), "{reserved:?}");
}

#[test]
fn push_to_a_node_that_gets_its_notice_is_given_up_at_once() {
    let mut world = exposed(90);
    let (drains, nodes) = (Vec::new(), world.view());
    world.machine.handle(world.now, Input::Drains { drains, nodes });
    let mut pushes = Vec::new();
    while let Some(output) = world.machine.poll_output() {
        if let MoveOutput::Push { call, moves, .. } = output {
            pushes.push((call, moves));
        } else {
            let input = world.answer(output);
            world.machine.handle(world.now, input);
        }
    }
    let (call, moves) = pushes.pop().expect("a push");
    let noticed = world.nodes.iter_mut().find(|info| info.id == moves[0].to).unwrap();
    noticed.policy = Policy::Draining;
    let (drains, nodes) = (Vec::new(), world.view());
    world.machine.handle(world.now, Input::Drains { drains, nodes });
    assert_eq!(world.machine.counts().failed_moves, moves.len() as u64);
    let outcomes = Some(vec![Ok(Pushed { length: BLOCK }); moves.len()]);
    world.machine.handle(world.now, Input::Pushed { call, outcomes });
    while let Some(output) = world.machine.poll_output() {
        assert!(
            !matches!(output, MoveOutput::Commit { .. }),
            "its reservation is given up: {output:?}"
        );
    }
}

#[test]
fn reservations_of_a_node_that_gets_its_notice_are_left_to_the_relocator() {
    let mut world = exposed(90);
    let (drains, nodes) = (Vec::new(), world.view());
    world.machine.handle(world.now, Input::Drains { drains, nodes });
    let mut calls = Vec::new();
    while let Some(call) = world.unanswered() {
        calls.push(call);
    }
    let page = Some((vec![world.blocks[&BlockId(5)].candidate.clone()], false));
    world.machine.handle(world.now, Input::Page { call: calls[0], page });
    let reserve = world.unanswered().expect("a reservation");
    world.nodes[0].policy = Policy::Draining;
    deadline_drain(&mut world);
    let (drains, nodes) = (world.drains.clone(), world.view());
    world.machine.handle(world.now, Input::Drains { drains, nodes });
    let epochs = Some(vec![Ok(sanderling_protocol::Epoch(2))]);
    world.machine.handle(world.now, Input::Reserved { call: reserve, epochs });
    assert_eq!(world.machine.poll_output(), None);
    assert!(world.machine.is_idle());
}

#[test]
fn new_manager_goes_on_from_the_view_alone() {
    let mut world = exposed(120);
    world.run(Millis(1_500));
    let sent = world.sent.len();
    assert!(sent > 0 && world.exposed_blocks(0) > 40);
    // What the one before had reserved is left alone until it ends by itself.
    world.reserved.insert(BlockId(1), (NodeId(1), Tier::Dram, MovePurpose::Precopy));
    world.config(|config| config.rebalance.is_on = false);
    world.run(MINUTE);
    assert!(world.exposed_blocks(0) <= 30);
    assert!(world.sent.iter().all(|sent| sent.block != BlockId(1)));
}

#[test]
fn both_can_be_switched_off() {
    let mut world = exposed(90);
    world.config(|config| {
        config.exposure.is_on = false;
        config.rebalance.is_on = false;
    });
    world.run(MINUTE);
    assert_eq!(world.calls, 0);
}

#[test]
fn block_that_has_just_changed_is_not_moved_for_balance() {
    let mut world = World::new(&[400, 400]);
    for id in 1..=40 {
        world.put(0, id, |block| block.idle = Millis(4_000));
    }
    world.run(MINUTE);
    assert!(world.sent.is_empty());
    for id in 41..=60 {
        world.put(0, id, |block| block.idle = Millis(5_000));
    }
    // Readings that find nothing are seconds apart, but no longer than until a block is ripe.
    world.run(Millis(2_000));
    assert!(!world.sent.is_empty() && world.sent.iter().all(|sent| sent.block.0 > 40));
}

#[test]
fn block_that_would_only_change_which_node_is_fuller_stays() {
    let mut world = World::new(&[400, 400]);
    world.config(|config| config.rebalance.excess_bytes_min = 1);
    world.fill(0, 1);
    world.run(MINUTE);
    assert!(world.sent.is_empty());
    world.fill(0, 2);
    world.run(MINUTE);
    assert_eq!((world.home_blocks(0), world.home_blocks(1)), (2, 1));
    assert_eq!(world.sent.len(), 1, "and none goes back");
}

/// It is shorter than what it occupies, and moved back and forth for ever.
#[test]
fn block_is_moved_by_what_it_occupies_and_stays() {
    let mut world = World::new(&[400, 400]);
    world.config(|config| config.rebalance.excess_bytes_min = 1);
    world.put(0, 1, |candidate| candidate.length -= 1000);
    world.run(MINUTE);
    assert!(world.sent.is_empty(), "{} moves", world.sent.len());
}

#[test]
fn block_that_is_too_long_for_every_target_does_not_hold_up_the_others() {
    let mut world = World::new(&[400, 400, 400, 400, 400]);
    world.config(|config| config.rebalance.excess_bytes_min = 1);
    let rank = |id: &u64| MoveRank::from(&candidate(*id, BLOCK));
    let first = (1..200).filter(|id| ![100, 101].contains(id)).min_by_key(rank).unwrap();
    for id in [first, 100, 101] {
        let length = if id == first { BLOCK * 4 } else { BLOCK };
        world.put(0, id, |candidate| {
            (candidate.length, candidate.reserve_bytes) = (length, length);
        });
    }
    world.run(MINUTE);
    let moved: Vec<u64> = world.sent.iter().map(|sent| sent.block.0).collect();
    assert_eq!(moved.len(), 2, "{moved:?}");
    assert!(!moved.contains(&first), "{moved:?}");
}

#[test]
fn tier_that_writers_filled_since_the_view_is_left_alone_until_the_next() {
    let mut world = exposed(90);
    world.config(|_| ());
    let (drains, nodes) = (Vec::new(), world.view());
    for id in 1000..1399 {
        world.put(1, id, |_| ());
    }
    world.give(Input::Drains { drains, nodes });
    world.run(MINUTE);
    assert!(world.exposed_blocks(0) <= 30);
    let refused = world.machine.counts().failed_moves;
    assert!((1..20).contains(&refused), "{refused} refused");
}
