use super::*;

/// A candidate with what is free on it.
#[derive(Debug, Clone)]
struct FreeNode {
    node: NodeId,
    room: BTreeMap<Tier, TierSpace>,
    weight: u32,
    is_at_risk: bool,
}

fn candidate(id: u32, dram: u64, disk: u64) -> FreeNode {
    let room = BTreeMap::from([(Tier::Dram, (dram, 1 << 20)), (Tier::Disk, (disk, 1 << 20))]);
    FreeNode { node: NodeId(id), room, weight: WEIGHT_MAX, is_at_risk: false }
}

fn place(
    draw: &mut Draw,
    nodes: Vec<FreeNode>,
    request: &PlacementRequest<'_>,
    sizes: &[u32],
) -> Result<Vec<Placement>, Refusal> {
    place_at_least(sizes.len(), draw, nodes, request, sizes)
}

fn place_at_least(
    least: usize,
    draw: &mut Draw,
    nodes: Vec<FreeNode>,
    request: &PlacementRequest<'_>,
    sizes: &[u32],
) -> Result<Vec<Placement>, Refusal> {
    let one = |free: &FreeNode| Candidate {
        node: free.node,
        host: format!("host-{}", free.node),
        weight: free.weight,
        is_at_risk: free.is_at_risk,
    };
    let candidates = Candidates::new(nodes.iter().map(one).collect());
    let rooms: BTreeMap<NodeId, FreeNode> = nodes.into_iter().map(|it| (it.node, it)).collect();
    let room = |node: NodeId, tier: Tier, _: RoomView| {
        rooms[&node].room.get(&tier).copied().unwrap_or_default()
    };
    super::place(draw, &candidates, room, request, sizes, least)
}

fn request(class: &str) -> PlacementRequest<'static> {
    PlacementRequest { class: class.parse().unwrap(), avoid: &[], near_host: None, run: None }
}

#[test]
fn refusal_without_nodes_is_recognized() {
    let refused = place(&mut Draw::new(1), Vec::new(), &request("dram"), &[4096]);
    assert!(refused.is_err_and(|refusal| refusal.lacks_datanodes()));
    let full = vec![candidate(1, 0, 0)];
    let waited = place(&mut Draw::new(1), full, &request("dram:wait"), &[4096]);
    assert!(waited.is_err_and(|refusal| !refusal.lacks_datanodes()));
}

#[test]
fn full_memory_falls_through_waits_or_refuses() {
    let nodes = vec![candidate(1, 0, 1 << 20)];
    let mut draw = Draw::new(1);
    let placed = place(&mut draw, nodes.clone(), &request("dram"), &[4096]).unwrap();
    assert_eq!(placed[0].tier, Tier::Disk);
    let waited = place(&mut draw, nodes.clone(), &request("dram:wait"), &[4096]);
    assert!(matches!(waited, Err(Refusal::RetryAfter { .. })));
    let refused = place(&mut draw, nodes, &request("dram:refuse"), &[4096]);
    assert!(matches!(refused, Err(Refusal::Full { .. })));
}

#[test]
fn one_request_never_promises_more_than_there_is() {
    let nodes = vec![candidate(1, 8192, 0), candidate(2, 4096, 0)];
    let mut draw = Draw::new(1);
    assert!(place(&mut draw, nodes.clone(), &request("dram"), &[4096; 3]).is_ok());
    assert!(place(&mut draw, nodes.clone(), &request("dram"), &[4096; 4]).is_err());
    // A writer that can do with fewer gets those.
    let mut some =
        |least| place_at_least(least, &mut draw, nodes.clone(), &request("dram"), &[4096; 4]);
    assert_eq!(some(3).unwrap().len(), 3);
    assert!(some(4).is_err());
}

#[test]
fn requests_are_followed_where_there_is_room() {
    let nodes: Vec<FreeNode> = (1..=5).map(|id| candidate(id, 1 << 20, 0)).collect();
    let mut draw = Draw::new(1);
    let near = PlacementRequest { near_host: Some("host-3"), ..request("dram") };
    let placed = place(&mut draw, nodes.clone(), &near, &[4096; 4]).unwrap();
    assert!(placed.iter().all(|placement| placement.node == NodeId(3)));
    let avoid: Vec<NodeId> = (1..=4).map(NodeId).collect();
    let request = PlacementRequest { avoid: &avoid, ..request("dram") };
    let placed = place(&mut draw, nodes, &request, &[4096; 4]).unwrap();
    assert!(placed.iter().all(|placement| placement.node == NodeId(5)));
}

/// A request for blocks of an object that has so many, the last of them on that node.
fn in_runs(blocks_before: usize, last_home: Option<u32>) -> PlacementRequest<'static> {
    let run = BlockRun { blocks_before, last_home: last_home.map(NodeId) };
    PlacementRequest { run: Some(run), ..request("dram") }
}

fn homes(placed: &[Placement]) -> Vec<u32> {
    placed.iter().map(|placement| placement.node.0).collect()
}

/// Nodes of 1 MiB of memory each.
fn empty_nodes(count: u32) -> Vec<FreeNode> {
    (1..=count).map(|id| candidate(id, 1 << 20, 0)).collect()
}

#[test]
fn runs_are_on_one_node_each_and_on_all_nodes() {
    let mut draw = Draw::new(1);
    let placed = place(&mut draw, empty_nodes(4), &in_runs(0, None), &[4096; 512]).unwrap();
    let homes = homes(&placed);
    let is_one_node = |run: &[u32]| run.iter().all(|home| *home == run[0]);
    assert!(homes.chunks(RUN_BLOCKS).all(is_one_node), "{homes:?}");
    let first_of_runs: std::collections::BTreeSet<u32> =
        homes.iter().step_by(RUN_BLOCKS).copied().collect();
    assert_eq!(first_of_runs.len(), 4, "{homes:?}");
    // As one request after the other, of which each begins where the last one ended.
    let (mut one_by_one, mut last) = (Vec::new(), None);
    for blocks_before in 0..8 * RUN_BLOCKS {
        let request = in_runs(blocks_before, last);
        let placed = place(&mut draw, empty_nodes(4), &request, &[4096]).unwrap();
        last = Some(placed[0].node.0);
        one_by_one.extend(last);
    }
    assert!(one_by_one.chunks(RUN_BLOCKS).all(is_one_node), "{one_by_one:?}");
    assert!(one_by_one.iter().any(|home| *home != one_by_one[0]), "{one_by_one:?}");
}

#[test]
fn blocks_that_are_placed_in_no_runs_are_on_several_nodes() {
    let mut draw = Draw::new(1);
    let placed = place(&mut draw, empty_nodes(4), &request("dram"), &[4096; 8]).unwrap();
    let homes = homes(&placed);
    assert!(homes.iter().any(|home| *home != homes[0]), "{homes:?}");
}

#[test]
fn run_goes_on_elsewhere_when_its_node_is_full() {
    let nodes = vec![candidate(1, 2 * 4096, 0), candidate(2, 1 << 20, 0)];
    let mut draw = Draw::new(1);
    let placed = place(&mut draw, nodes.clone(), &in_runs(3, Some(1)), &[4096; 5]).unwrap();
    assert_eq!(homes(&placed), [1, 1, 2, 2, 2]);
    // What is full in memory is not followed to its disk while others have memory.
    let nodes = vec![candidate(1, 0, 1 << 20), candidate(2, 1 << 20, 0)];
    let placed = place(&mut draw, nodes, &in_runs(3, Some(1)), &[4096]).unwrap();
    assert_eq!((placed[0].node, placed[0].tier), (NodeId(2), Tier::Dram));
    let on_disk: Vec<FreeNode> = (1..=4).map(|id| candidate(id, 0, 1 << 20)).collect();
    let placed = place(&mut draw, on_disk, &in_runs(3, Some(3)), &[4096; 5]).unwrap();
    assert_eq!(homes(&placed), [3; 5]);
    assert!(placed.iter().all(|placement| placement.tier == Tier::Disk));
    // A heartbeat that shows no room counts as for any other block.
    let node = |id: u32| Candidate {
        node: NodeId(id),
        host: format!("host-{id}"),
        weight: WEIGHT_MAX,
        is_at_risk: false,
    };
    let candidates = Candidates::new(vec![node(1), node(2)]);
    assert_eq!(placed_where_shown(&[2], &candidates, &in_runs(3, Some(1))).0, NodeId(2));
    assert_eq!(placed_where_shown(&[1, 2], &candidates, &in_runs(3, Some(1))).0, NodeId(1));
}

#[test]
fn run_leaves_a_node_that_takes_no_blocks_is_avoided_or_at_risk() {
    let mut draw = Draw::new(1);
    // It drains, has a notice or is dead, so it is no candidate.
    let others = vec![candidate(2, 1 << 20, 0)];
    let placed = place(&mut draw, others, &in_runs(2, Some(1)), &[4096; 6]).unwrap();
    assert_eq!(homes(&placed), [2; 6]);
    let both = vec![candidate(1, 1 << 20, 0), candidate(2, 1 << 20, 0)];
    let avoid = PlacementRequest { avoid: &[NodeId(1)], ..in_runs(2, Some(1)) };
    let placed = place(&mut draw, both.clone(), &avoid, &[4096; 6]).unwrap();
    assert_eq!(homes(&placed), [2; 6]);
    let mut at_risk = both;
    at_risk[0].is_at_risk = true;
    let placed = place(&mut draw, at_risk, &in_runs(2, Some(1)), &[4096; 6]).unwrap();
    assert_eq!(homes(&placed), [2; 6]);
}

#[test]
fn node_that_seldom_gets_blocks_seldom_gets_runs() {
    let mut nodes: Vec<FreeNode> = empty_nodes(5);
    nodes[4].weight = 1;
    let (mut draw, mut on_last) = (Draw::new(1), 0);
    for _ in 0..500 {
        let placed = place(&mut draw, nodes.clone(), &in_runs(0, None), &[4096; 8]).unwrap();
        on_last += u32::from(placed[0].node == NodeId(5));
    }
    assert!(on_last < 10, "{on_last} of 500 runs");
}

#[test]
fn nodes_that_suit_get_equal_shares_whatever_the_others_are() {
    // Four in five have no room: drawing goes on until two suit, and all are looked at if it takes
    // too long. Neither prefers any of them.
    let nodes: Vec<FreeNode> =
        (0..50).map(|id| candidate(id, if id % 5 == 0 { 1 << 20 } else { 0 }, 0)).collect();
    let mut draw = Draw::new(3);
    let mut counts: BTreeMap<NodeId, u32> = BTreeMap::new();
    for _ in 0..10_000 {
        let placed = place(&mut draw, nodes.clone(), &request("dram:refuse"), &[4096]).unwrap();
        *counts.entry(placed[0].node).or_default() += 1;
    }
    assert_eq!(counts.len(), 10);
    // Four standard deviations around a thousand each.
    assert!(counts.values().all(|count| (880..1120).contains(count)), "{counts:?}");
}

#[test]
fn the_only_node_with_room_is_found_among_many() {
    let mut nodes: Vec<FreeNode> = (0..1000).map(|id| candidate(id, 0, 0)).collect();
    nodes[777] = candidate(777, 8192, 0);
    let mut draw = Draw::new(5);
    let placed = place(&mut draw, nodes.clone(), &request("dram:refuse"), &[4096; 2]).unwrap();
    assert!(placed.iter().all(|placement| placement.node == NodeId(777)));
    assert!(place(&mut draw, nodes, &request("dram:refuse"), &[4096; 3]).is_err());
}

#[test]
fn new_empty_node_does_not_get_every_block() {
    let mut nodes: Vec<FreeNode> = (1..=4).map(|id| candidate(id, 1 << 19, 0)).collect();
    nodes.push(candidate(5, 1 << 20, 0));
    let mut draw = Draw::new(7);
    let mut on_new = 0;
    for _ in 0..1000 {
        let placed = place(&mut draw, nodes.clone(), &request("dram"), &[4096]).unwrap();
        on_new += u32::from(placed[0].node == NodeId(5));
    }
    // Two draws of five hit the new node with probability 9/25.
    assert!((300..420).contains(&on_new), "{on_new}");
}

#[test]
fn node_with_the_larger_free_share_is_preferred_to_one_with_more_free_bytes() {
    let mut nodes = vec![candidate(1, 1 << 20, 0), candidate(2, 0, 0)];
    nodes[1].room.insert(Tier::Dram, (4 << 20, 64 << 20));
    let mut draw = Draw::new(7);
    let mut on_larger = 0;
    for _ in 0..1000 {
        let placed = place(&mut draw, nodes.clone(), &request("dram"), &[4096]).unwrap();
        on_larger += u32::from(placed[0].node == NodeId(2));
    }
    // It gets the blocks for which both draws hit it: a quarter.
    assert!((200..300).contains(&on_larger), "{on_larger}");
}

/// Returns the weight of a node beside one that has settled and is there to stay.
fn weight(age: Millis, ramp_up: Millis, model: Option<&Model>) -> u32 {
    let settled = Millis(36_000_000 / model.map_or(1, |model| model.speed() as u64));
    weights(&[age, settled], ramp_up, model)[0]
}

/// Returns how many of a thousand blocks of 4 KiB the last node gets, and the fill of all then.
fn thousand(nodes: &mut [FreeNode], draw: &mut Draw) -> u32 {
    let last = nodes.last().unwrap().node;
    let mut on_last = 0;
    for _ in 0..1000 {
        let placed = place(draw, nodes.to_vec(), &request("dram"), &[4096]).unwrap();
        let taken = nodes.iter_mut().find(|node| node.node == placed[0].node).unwrap();
        taken.room.get_mut(&Tier::Dram).unwrap().0 -= 4096;
        on_last += u32::from(placed[0].node == last);
    }
    on_last
}

#[test]
fn new_node_is_ramped_up_and_balances_later() {
    let ramp_up = Millis(30_000);
    let mut nodes: Vec<FreeNode> = (1..=4).map(|id| candidate(id, 1 << 20, 0)).collect();
    for node in &mut nodes {
        node.room.insert(Tier::Dram, (40 << 20, 64 << 20));
    }
    nodes.push(candidate(5, 0, 0));
    nodes[4].room.insert(Tier::Dram, (64 << 20, 64 << 20));
    let mut draw = Draw::new(7);
    let mut at_second = |nodes: &mut Vec<FreeNode>, second: u64| {
        nodes[4].weight = weight(Millis::from_secs(second), ramp_up, None);
        thousand(nodes, &mut draw)
    };
    // Two draws hit half a weight beside four whole ones with probability 1 - (4/4.5)^2.
    let first = at_second(&mut nodes, 0);
    assert!((160..260).contains(&first), "{first} of 1000 in the first second");
    let middle = at_second(&mut nodes, 15);
    // 1 - (4/4.75)^2.
    assert!((240..340).contains(&middle), "{middle} of 1000 half way");
    let last = at_second(&mut nodes, 30);
    assert!((300..420).contains(&last), "{last} of 1000 when it has settled");
    for second in 31..60 {
        at_second(&mut nodes, second);
    }
    let used = |node: &FreeNode| (64 << 20) - node.room[&Tier::Dram].0;
    let mean = nodes.iter().map(used).sum::<u64>() / 5;
    let most = nodes.iter().map(used).max().unwrap();
    assert!(most * 100 < mean * 105, "{most} bytes at most, {mean} on average");
}

#[test]
fn weight_grows_with_age_and_falls_before_the_end() {
    let (none, ramp_up) = (Millis(0), Millis(30_000));
    assert_eq!(weight(none, ramp_up, None), WEIGHT_NEW);
    assert_eq!(weight(Millis(15_000), ramp_up, None), 750);
    assert_eq!(weight(ramp_up, ramp_up, None), WEIGHT_MAX);
    assert_eq!(weight(none, none, None), WEIGHT_MAX);
    for (spec, hour) in [("bathtub:typical", 3_600_000), ("bathtub:typical,speed=720", 5000)] {
        let model = Model::load(&spec.parse().unwrap(), |_| Err("no file")).unwrap();
        let at = |half_hours: u64| weight(Millis(half_hours * hour / 2), none, Some(&model));
        assert!((650..800).contains(&at(0)), "{spec}: {} when new", at(0));
        assert_eq!(at(20), WEIGHT_MAX, "{spec}");
        assert!(at(47) < 500 && at(46) < at(45), "{spec}: {} and {} late", at(46), at(47));
        assert_eq!(at(48), WEIGHT_MIN, "{spec}");
    }
}

#[test]
fn lives_that_are_short_for_all_leave_the_ramp_as_it_is() {
    let model = Model::load(&"exponential:mean=40s".parse().unwrap(), |_| Err("no file"));
    let ages = [Millis(0), Millis(15_000), Millis(60_000)];
    let ramped = weights(&ages, Millis(30_000), Some(&model.unwrap()));
    assert_eq!(ramped, [WEIGHT_NEW, 750, WEIGHT_MAX]);
    let model = Model::load(&"bathtub:typical".parse().unwrap(), |_| Err("no file")).unwrap();
    let over = Millis(90_000_000);
    assert_eq!(weights(&[over, over], Millis(0), Some(&model)), [WEIGHT_MAX; 2]);
}

#[test]
fn node_at_risk_is_passed_over_while_others_have_room() {
    let mut nodes = vec![candidate(1, 1 << 20, 0), candidate(2, 8192, 0)];
    nodes[0].is_at_risk = true;
    let mut draw = Draw::new(1);
    let near = PlacementRequest { near_host: Some("host-1"), ..request("dram") };
    let placed = place(&mut draw, nodes.clone(), &near, &[4096; 3]).unwrap();
    let homes: Vec<u32> = placed.iter().map(|placement| placement.node.0).collect();
    assert_eq!(homes, [2, 2, 1]);
    // A node that the writer could not reach comes after one at risk.
    let avoid = PlacementRequest { avoid: &[NodeId(2)], ..request("dram") };
    assert_eq!(place(&mut draw, nodes, &avoid, &[4096]).unwrap()[0].node, NodeId(1));
}

/// Nodes of one block each by the account, the given of which show it in their heartbeats. Returns
/// the node of the next block, and how often the room of a node was looked at.
fn placed_where_shown(
    shown: &[u32],
    candidates: &Candidates,
    request: &PlacementRequest<'_>,
) -> (NodeId, usize) {
    let looks = std::cell::Cell::new(0);
    let room = |node: NodeId, tier: Tier, view: RoomView| {
        looks.set(looks.get() + 1);
        let is_free = tier == Tier::Dram && (view == RoomView::Account || shown.contains(&node.0));
        (if is_free { 4096 } else { 0 }, 1 << 20)
    };
    let placed = super::place(&mut Draw::new(1), candidates, room, request, &[4096], 1).unwrap();
    (placed[0].node, looks.get())
}

#[test]
fn node_that_is_avoided_or_at_risk_comes_last_also_if_no_other_shows_room() {
    let node = |id: u32, is_at_risk: bool| {
        let (node, host) = (NodeId(id), format!("host-{id}"));
        Candidate { node, host, weight: WEIGHT_MAX, is_at_risk }
    };
    let avoid = PlacementRequest { avoid: &[NodeId(1)], ..request("dram") };
    let both = Candidates::new(vec![node(1, false), node(2, false)]);
    assert_eq!(placed_where_shown(&[1], &both, &request("dram")).0, NodeId(1));
    assert_eq!(placed_where_shown(&[1], &both, &avoid).0, NodeId(2));
    let at_risk = Candidates::new(vec![node(1, true), node(2, false)]);
    assert_eq!(placed_where_shown(&[1], &at_risk, &request("dram")).0, NodeId(2));
    let many = Candidates::new((1..=1000).map(|id| node(id, false)).collect());
    let (_, looks) = placed_where_shown(&[], &many, &request("dram"));
    assert!(looks < 100, "{looks}: where none shows room, they are not all looked at");
}

#[test]
fn node_about_to_end_gets_few_blocks_and_the_fleet_stays_even() {
    let model = Model::load(&"bathtub:typical".parse().unwrap(), |_| Err("no file")).unwrap();
    let mut nodes: Vec<FreeNode> = (1..=5).map(|id| candidate(id, 1 << 20, 0)).collect();
    for (node, half_hours) in nodes.iter_mut().zip([0, 2, 10, 40, 47]) {
        node.room.insert(Tier::Dram, (64 << 20, 64 << 20));
        node.weight = weight(Millis(half_hours * 1_800_000), Millis(0), Some(&model));
    }
    let on_last = thousand(&mut nodes, &mut Draw::new(3));
    assert!(on_last < 150, "{on_last} of 1000 on the node in its last half hour");
    let used: Vec<u64> =
        nodes[..4].iter().map(|node| (64 << 20) - node.room[&Tier::Dram].0).collect();
    let (least, most) = (used.iter().min().unwrap(), used.iter().max().unwrap());
    assert!(most * 100 < least * 115, "{used:?}");
}
