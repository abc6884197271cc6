//! Moves are logged together, once, and push nothing else out of the list.

use std::collections::BTreeMap;

use sanderling_protocol::message::MovePurpose;
use sanderling_protocol::{Event, EventKind, Millis, NodeId};

use super::Rig;
use super::copies::rig;

/// A client that follows the events, a few at a time.
#[derive(Default)]
struct Follower {
    seen: Vec<Event>,
}

impl Follower {
    fn follow(&mut self, rig: &Rig) {
        loop {
            let after = self.seen.last().map_or(0, |event| event.sequence);
            let page = rig.namenode.events_after(after, 3);
            if page.is_empty() {
                return;
            }
            self.seen.extend(page);
        }
    }

    /// Returns copied, rebalanced, moved and promoted bytes, by source.
    fn sums(&self) -> BTreeMap<(NodeId, &'static str), u64> {
        let mut sums = BTreeMap::new();
        for event in &self.seen {
            let (from, kind, bytes) = match event.kind {
                EventKind::BlocksCopied { from, bytes, .. } => (from, "copied", bytes),
                EventKind::BlocksRebalanced { from, bytes, .. } => (from, "rebalanced", bytes),
                EventKind::BlocksMoved { from, bytes, .. } => (from, "moved", bytes),
                EventKind::BlocksPromoted { from, bytes, .. } => (from, "promoted", bytes),
                _ => continue,
            };
            *sums.entry((from, kind)).or_default() += bytes;
        }
        sums
    }
}

#[test]
fn follower_sees_each_move_once_and_few_events() {
    let mut rig = rig(3);
    let mut follower = Follower::default();
    let mut counted: BTreeMap<(NodeId, &'static str), u64> = BTreeMap::new();
    for number in 0..200_u32 {
        let length = 1000 + number;
        let location = rig.put(&format!("/{number}"), length).blocks[0];
        let home = location.home.unwrap();
        let to = NodeId(home.0 % 3 + 1);
        let (purpose, kind) = match number % 3 {
            0 => (MovePurpose::Rebalance, "rebalanced"),
            _ => (MovePurpose::Precopy, "copied"),
        };
        let epoch = rig.begin(location.block, location.epoch, to, purpose).unwrap();
        rig.end(location.block, (location.epoch, epoch), to, length).unwrap();
        *counted.entry((home, kind)).or_default() += u64::from(length);
        rig.pass(Millis(100));
        follower.follow(&rig);
    }
    let moves = follower.seen.iter().filter(|event| {
        matches!(event.kind, EventKind::BlocksCopied { .. } | EventKind::BlocksRebalanced { .. })
    });
    let moves = moves.count();
    assert!((6..=12).contains(&moves), "{moves} events for 200 moves in 20 s");
    rig.pass(Millis(10_000));
    follower.follow(&rig);
    assert_eq!(follower.sums(), counted);
    assert!(follower.seen.windows(2).all(|pair| pair[0].sequence + 1 == pair[1].sequence));
    assert!(follower.seen.is_sorted_by_key(|event| event.at));
}

#[test]
fn moves_of_a_drain_are_reported_before_its_end() {
    let mut rig = rig(2);
    for number in 0..20 {
        rig.put(&format!("/{number}"), 1000);
    }
    let blocks: Vec<_> = (0..20)
        .map(|number| rig.layout(&format!("/{number}")).unwrap().blocks[0])
        .filter(|location| location.home == Some(NodeId(1)))
        .collect();
    rig.give_notice(NodeId(1));
    for location in &blocks {
        let epoch =
            rig.begin(location.block, location.epoch, NodeId(2), MovePurpose::Relocate).unwrap();
        rig.end(location.block, (location.epoch, epoch), NodeId(2), 1000).unwrap();
    }
    let mut follower = Follower::default();
    follower.follow(&rig);
    let bytes = 1000 * blocks.len() as u64;
    assert_eq!(follower.sums(), BTreeMap::from([((NodeId(1), "moved"), bytes)]));
    let last = &follower.seen.last().unwrap().kind;
    assert!(matches!(last, EventKind::NodeDrained { node: NodeId(1), .. }), "{last:?}");
}
