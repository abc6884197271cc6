//! Blocks in the object tier: which node serves them when their node goes.

use sanderling_protocol::frame::{decode_body, encode_body};
use sanderling_protocol::message::{MoveCommit, MoveProposal, MovePurpose, Register};
use sanderling_protocol::node::TierCapacity;
use sanderling_protocol::order::HeldBlock;
use sanderling_protocol::{
    BlockId, Epoch, Millis, NodeId, Nonce, Order, Policy, Reply, Request, Tier,
};

use super::{Namenode, NamenodeConfig, Rig};

const MANAGER: Nonce = Nonce(99);

impl Rig {
    fn register_with_store(&mut self, name: &str) -> NodeId {
        let tier = |tier, bytes| TierCapacity { tier, bytes };
        let request = Register {
            cluster: None,
            nonce: self.nonce(),
            name: name.to_owned(),
            address: format!("{name}:1"),
            http_address: String::new(),
            host: name.to_owned(),
            tiers: vec![tier(Tier::Dram, 4096), tier(Tier::Object, 64 << 20)],
            notice_min: None,
            egress_bytes_per_second: None,
        };
        match self.call(Request::Register(request)).unwrap() {
            Reply::Registered(registered) => registered.node,
            other => panic!("{other:?}"),
        }
    }

    /// Makes a file of 10000 bytes and moves or copies its block to a node's object tier; returns
    /// the block with its epoch there.
    fn stored(&mut self, to: NodeId, purpose: MovePurpose) -> (BlockId, Epoch) {
        let location = self.put("/stored", 10_000).blocks[0];
        let (block, from_epoch) = (location.block, location.epoch);
        let moves = vec![MoveProposal { block, from_epoch, to, tier: Tier::Object, purpose }];
        let reserved = self.call(Request::Reserve { holder: MANAGER, moves }).unwrap();
        let Reply::Epochs(epochs) = reserved else { panic!("{reserved:?}") };
        let to_epoch = *epochs[0].as_ref().unwrap();
        let moves = vec![MoveCommit { block, from_epoch, to_epoch, to, length: 10_000 }];
        self.call(Request::Commit { holder: MANAGER, moves }).unwrap();
        (block, to_epoch)
    }

    fn noticed(&mut self, node: NodeId, deadline_millis: i64) {
        let reason = "spot".to_owned();
        self.call(Request::Notice { node: node.into(), deadline_millis, reason }).unwrap();
    }

    fn home(&self, block: BlockId) -> (Option<NodeId>, Epoch) {
        self.namenode.catalog().block_home(block).unwrap()
    }

    fn adopted(&mut self, node: NodeId) -> Vec<(BlockId, Epoch, u32)> {
        let orders = std::mem::take(&mut self.orders).into_iter();
        let adopt = orders.filter(|order| order.node == node).map(|order| match order.order {
            Order::Adopt { blocks } => blocks,
            _ => Vec::new(),
        });
        adopt.flatten().collect()
    }

    fn is_wanted(&mut self, node: NodeId, (block, epoch): (BlockId, Epoch)) -> bool {
        let blocks = vec![HeldBlock { block, epoch, length: 0, tier: Tier::Object }];
        match self.call(Request::BlockReport { node, blocks }).unwrap() {
            Reply::Drop { blocks } => blocks.is_empty(),
            other => panic!("{other:?}"),
        }
    }
}

fn rig() -> (Rig, NodeId, NodeId) {
    let mut rig = Rig::with_nodes(1);
    let (name, lease) = ("manager".to_owned(), Millis(600_000));
    rig.call(Request::Manage { holder: MANAGER, name, lease }).unwrap();
    let first = rig.register_with_store("store-1");
    let second = rig.register_with_store("store-2");
    (rig, first, second)
}

#[test]
fn noticed_node_hands_its_stored_blocks_over_and_is_drained_at_once() {
    let (mut rig, first, second) = rig();
    let stored = rig.stored(first, MovePurpose::Rebalance);
    assert_eq!(rig.home(stored.0), (Some(first), stored.1));
    rig.noticed(first, 1000);
    assert_eq!(rig.home(stored.0), (Some(second), stored.1), "under the same epoch");
    assert_eq!(rig.adopted(second), [(stored.0, stored.1, 10_000)]);
    let policy = rig.namenode.catalog().node_policy(first).map(|(policy, _)| policy);
    assert_eq!(policy, Some(Policy::Drained));
    rig.pass(Millis(5000));
    assert_eq!(rig.home(stored.0), (Some(second), stored.1));
}

#[test]
fn stored_blocks_of_a_dead_node_and_copies_there_are_handed_over() {
    let (mut rig, first, second) = rig();
    let stored = rig.stored(first, MovePurpose::Precopy);
    let home = rig.home(stored.0).0.unwrap();
    rig.noticed(first, 5);
    rig.pass(Millis(10));
    assert_eq!(rig.home(stored.0).0, Some(home));
    assert_eq!(rig.adopted(second), [(stored.0, stored.1, 10_000)]);
    rig.noticed(home, 5);
    rig.pass(Millis(10));
    assert_eq!(rig.home(stored.0), (Some(second), stored.1), "the copy became the home");
}

#[test]
fn draining_node_without_an_adopter_waits_for_one() {
    let (mut rig, first, second) = rig();
    rig.noticed(second, 60_000);
    let stored = rig.stored(first, MovePurpose::Rebalance);
    rig.noticed(first, 60_000);
    assert_eq!(rig.home(stored.0).0, Some(first));
    let third = rig.register_with_store("store-3");
    rig.pass(Millis(1));
    assert_eq!(rig.home(stored.0), (Some(third), stored.1));
}

#[test]
fn object_is_wanted_while_any_node_serves_it_and_never_again_after() {
    let (mut rig, first, second) = rig();
    let stored = rig.stored(first, MovePurpose::Rebalance);
    assert!(rig.is_wanted(first, stored) && rig.is_wanted(second, stored));
    assert!(!rig.is_wanted(first, (stored.0, Epoch(stored.1.0 + 1))));
    assert!(!rig.is_wanted(first, (stored.0, Epoch(stored.1.0 - 1))));
    rig.noticed(first, 60_000);
    assert!(rig.is_wanted(first, stored), "the other one serves it");
    let path = super::path("/stored");
    rig.call(Request::Delete { path, recursive: false }).unwrap();
    assert!(!rig.is_wanted(second, stored));
}

#[test]
fn bytes_published_after_their_block_moved_to_the_object_tier_are_safe() {
    let (mut rig, first, _) = rig();
    let grant = rig.create("/written").unwrap();
    let granted = &grant.blocks[0];
    let (block, from_epoch, to, tier) = (granted.block, granted.epoch, first, Tier::Object);
    rig.noticed(granted.node, 60_000);
    let moves = vec![MoveProposal { block, from_epoch, to, tier, purpose: MovePurpose::Relocate }];
    let reserved = rig.call(Request::Reserve { holder: MANAGER, moves }).unwrap();
    let Reply::Epochs(epochs) = reserved else { panic!("{reserved:?}") };
    let to_epoch = *epochs[0].as_ref().unwrap();
    let moves = vec![MoveCommit { block, from_epoch, to_epoch, to, length: 10_000 }];
    rig.call(Request::Commit { holder: MANAGER, moves }).unwrap();
    assert_eq!(rig.home(block), (Some(first), to_epoch));
    rig.seal(&grant, &[10_000]).unwrap();
    assert_eq!(rig.namenode.catalog().fsck().problems, Vec::<String>::new());
    rig.call(Request::Delete { path: "/written".parse().unwrap(), recursive: false }).unwrap();
    assert_eq!(rig.namenode.catalog().fsck().problems, Vec::<String>::new());
}

#[test]
fn wrong_count_of_safe_bytes_ends_with_the_next_start() {
    let (mut rig, first, second) = rig();
    rig.stored(first, MovePurpose::Rebalance);
    rig.put("/not-safe", 5000);
    let right = rig.namenode.catalog().image();
    for safe_bytes in [0, 9999, 20_000_u64.wrapping_neg()] {
        let mut wrong = rig.namenode.catalog().image();
        wrong.miscount_safe(first, safe_bytes);
        wrong.miscount_safe(second, safe_bytes);
        let image = wrong.image().restored();
        assert!(!image.fsck().problems.is_empty(), "a check of an image finds it");
        let bytes = encode_body(&wrong);
        let read = decode_body(&bytes).unwrap();
        let started = Namenode::restore(NamenodeConfig::default(), read, rig.now);
        assert_eq!(encode_body(&started.catalog().image()), encode_body(&right));
        assert_eq!(started.catalog().fsck().problems, Vec::<String>::new());
        assert_eq!(started.catalog(), rig.namenode.catalog());
    }
}
