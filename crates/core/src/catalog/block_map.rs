//! All blocks. What changes where one is, or how much room it takes, counts that on its nodes and
//! its job as well.

use std::collections::BTreeMap;
use std::ops::Index;

use sanderling_protocol::message::MovePurpose;
use sanderling_protocol::{BlockId, Epoch, JobId, NodeId, ObjectId, Tier};
use serde::{Deserialize, Serialize};

use super::block::{Block, BlockState, Copied, ReservedMove, allocated_bytes};
use super::id_map::IdMap;
use super::job_table::Jobs;
use super::members::Nodes;
use super::object::Data;
use super::orders::Orders;

/// All blocks, lost ones among them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BlockMap(IdMap<BlockId, Block>);

/// What was published of a block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Published {
    /// Bytes that were not published before.
    pub(super) added: u64,
    /// Whether none were.
    pub(super) was_blank: bool,
    /// The node with which the block was lost before.
    pub(super) lost_on: Option<NodeId>,
}

impl BlockMap {
    pub(super) fn get(&self, id: &BlockId) -> Option<&Block> {
        self.0.get(id)
    }

    /// Returns all blocks in the order of their ids.
    pub(super) fn iter(&self) -> impl Iterator<Item = (BlockId, &Block)> {
        self.0.iter()
    }

    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds a new block at its home.
    pub(super) fn insert(&mut self, id: BlockId, block: Block, nodes: &mut Nodes, jobs: &mut Jobs) {
        if let Some(home) = block.home {
            nodes.settle(home, id, &block);
        }
        jobs.charge(block.job, i64::from(block.reserved));
        self.0.insert(id, block);
    }

    /// Forgets a block and frees its places.
    pub(super) fn remove(
        &mut self,
        id: BlockId,
        nodes: &mut Nodes,
        jobs: &mut Jobs,
        orders: &mut Orders,
    ) {
        self.void_move(id, nodes, orders);
        self.drop_copy(id, nodes, orders);
        let Some(block) = self.0.remove(&id) else { return };
        if let Some(home) = block.home {
            nodes.leave(home, id, &block);
            orders.drop_block(home, id, block.epoch_last);
            jobs.charge(block.job, -i64::from(block.reserved));
        }
    }

    /// Marks a block's bytes as gone. Returns its published bytes.
    pub(super) fn lose(
        &mut self,
        id: BlockId,
        nodes: &mut Nodes,
        jobs: &mut Jobs,
        orders: &mut Orders,
    ) -> u32 {
        self.void_move(id, nodes, orders);
        self.drop_copy(id, nodes, orders);
        let Some(block) = self.0.get_mut(&id) else { return 0 };
        let Some(home) = block.home else { return 0 };
        nodes.leave(home, id, block);
        block.home = None;
        block.epoch_last = block.epoch_last.next();
        block.epoch = block.epoch_last;
        block.lost_on = home;
        jobs.charge(block.job, -i64::from(std::mem::take(&mut block.reserved)));
        block.length
    }

    /// Makes a node the home of a lost block whose bytes it holds at the block's epoch. Returns its
    /// bytes; `None` if the block is not lost, or at another epoch.
    pub(super) fn restore(
        &mut self,
        id: BlockId,
        (epoch, node, tier): (Epoch, NodeId, Tier),
        nodes: &mut Nodes,
        jobs: &mut Jobs,
    ) -> Option<u32> {
        let block = self.0.get_mut(&id).filter(|block| block.is_lost() && block.epoch == epoch)?;
        block.home = Some(node);
        block.tier = tier;
        block.reserved = allocated_bytes(block.length);
        nodes.settle(node, id, block);
        jobs.charge(block.job, i64::from(block.reserved));
        Some(block.length)
    }

    /// Gives the bytes of a block to another object of the same job.
    pub(super) fn set_object(&mut self, id: BlockId, object: ObjectId) {
        if let Some(block) = self.0.get_mut(&id) {
            block.object = object;
        }
    }

    /// Puts a block on another job's account, whose bytes the caller moves. Returns them.
    pub(super) fn set_job(&mut self, id: BlockId, job: Option<JobId>) -> u32 {
        let Some(block) = self.0.get_mut(&id) else { return 0 };
        block.job = job;
        block.reserved
    }

    /// Publishes more bytes of a block, up to a length; `None` if they are published already.
    pub(super) fn publish(
        &mut self,
        id: BlockId,
        length: u32,
        nodes: &mut Nodes,
    ) -> Option<Published> {
        let block = self.0.get_mut(&id).filter(|block| length > block.length)?;
        let added = u64::from(length - block.length);
        let lost_on = block.is_lost().then_some(block.lost_on);
        let was_blank = block.length == 0;
        block.length = length;
        if let Some(home) = block.home {
            nodes.published(home, added, block.is_safe());
        }
        Some(Published { added, was_blank, lost_on })
    }

    /// Lets a block that was written end with what is published of it.
    pub(super) fn end(&mut self, id: BlockId, nodes: &mut Nodes, jobs: &mut Jobs) {
        let Some(block) = self.0.get_mut(&id) else { return };
        block.state = BlockState::Ended;
        resize(block, allocated_bytes(block.length), nodes, jobs);
    }

    /// Notes whether the store of a block's object has it as it is. A block that is written is in
    /// none.
    pub(super) fn set_stored(&mut self, id: BlockId, is_stored: bool, nodes: &mut Nodes) {
        let Some(block) = self.0.get_mut(&id).filter(|block| block.is_ended()) else { return };
        let was_safe = block.is_safe();
        block.state = if is_stored { BlockState::Stored } else { BlockState::Ended };
        let Some(home) = block.home.filter(|_| was_safe != block.is_safe()) else { return };
        nodes.count_safe(home, block.length, is_stored);
    }

    /// Lets no more bytes be added to a block that is written.
    pub(super) fn fence(&mut self, id: BlockId) {
        let Some(block) = self.0.get_mut(&id) else { return };
        block.state = BlockState::Fenced;
        // A block in the object tier takes no writes, and is found there under its epoch.
        if block.tier != Tier::Object {
            block.epoch_last = block.epoch_last.next();
            block.epoch = block.epoch_last;
        }
    }

    /// Never gives out an epoch again, nor one before it.
    pub(super) fn pass_epoch(&mut self, id: BlockId, epoch: Epoch) {
        if let Some(block) = self.0.get_mut(&id) {
            block.epoch_last = epoch.max(block.epoch_last);
        }
    }

    /// Continues the home at a later epoch that was given out. A lost end of the log may have moved
    /// the bytes away and back, into another tier of the node.
    pub(super) fn continue_at(
        &mut self,
        id: BlockId,
        (epoch, tier): (Epoch, Tier),
        nodes: &mut Nodes,
    ) {
        let Some(block) = self.0.get_mut(&id) else { return };
        let Some(node) = block.home else { return };
        debug_assert!(block.epoch <= epoch && epoch <= block.epoch_last);
        rehome(id, block, Copied { node, tier, epoch }, nodes);
    }

    /// Reserves the future home of a block that does not move. Returns its epoch there.
    pub(super) fn reserve(
        &mut self,
        id: BlockId,
        (to, tier): (NodeId, Tier),
        purpose: MovePurpose,
        nodes: &mut Nodes,
    ) -> Option<Epoch> {
        let block = self.0.get_mut(&id)?;
        debug_assert!(block.moving.is_none(), "block {id} moves already");
        block.epoch_last = block.epoch_last.next();
        let to_epoch = block.epoch_last;
        block.moving = Some(ReservedMove { to, tier, to_epoch, purpose });
        nodes.reserve_incoming(to, id, tier, u64::from(block.reserve_bytes()));
        Some(to_epoch)
    }

    /// Keeps a reserved move for another purpose.
    pub(super) fn set_purpose(&mut self, id: BlockId, purpose: MovePurpose) {
        if let Some(planned) = self.0.get_mut(&id).and_then(|block| block.moving.as_mut()) {
            planned.purpose = purpose;
        }
    }

    /// Ends a reserved move. Returns it.
    fn take_move(&mut self, id: BlockId, nodes: &mut Nodes) -> Option<ReservedMove> {
        let planned = self.0.get_mut(&id)?.moving.take()?;
        nodes.release_incoming(planned.to, id);
        Some(planned)
    }

    /// Gives a reserved move up; its target forgets what it may have stored.
    pub(super) fn void_move(&mut self, id: BlockId, nodes: &mut Nodes, orders: &mut Orders) {
        if let Some(planned) = self.take_move(id, nodes) {
            orders.drop_block(planned.to, id, planned.to_epoch);
        }
    }

    /// Makes what a reserved move has stored a copy beside the home.
    pub(super) fn commit_copy(&mut self, id: BlockId, nodes: &mut Nodes) {
        if let Some(ReservedMove { to, tier, to_epoch, .. }) = self.take_move(id, nodes) {
            self.add_copy(id, Copied { node: to, tier, epoch: to_epoch }, nodes);
        }
    }

    /// Makes what a reserved move has stored the home: so many bytes.
    pub(super) fn commit_home(
        &mut self,
        id: BlockId,
        length: u32,
        nodes: &mut Nodes,
        jobs: &mut Jobs,
    ) {
        let Some(planned) = self.take_move(id, nodes) else { return };
        let Some(block) = self.0.get_mut(&id) else { return };
        let is_ended = block.is_ended();
        if block.state == BlockState::Open {
            // The push fenced it: the writer may still publish how many of these bytes count.
            block.state = BlockState::Fenced;
            block.bytes_max = length;
        }
        let ReservedMove { to: node, tier, to_epoch: epoch, .. } = planned;
        rehome(id, block, Copied { node, tier, epoch }, nodes);
        // Of a block that has ended the copy may hold more than was published and reserved: bytes
        // that were never acknowledged, and that no object has, there as at the old home.
        let counted = if is_ended { length.min(block.length) } else { length };
        resize(block, allocated_bytes(counted), nodes, jobs);
    }

    /// Makes the copy the home; nothing moves it any more. Returns its published bytes.
    pub(super) fn promote(
        &mut self,
        id: BlockId,
        nodes: &mut Nodes,
        jobs: &mut Jobs,
        orders: &mut Orders,
    ) -> u64 {
        self.void_move(id, nodes, orders);
        let Some(copy) = self.take_copy(id, nodes) else { return 0 };
        let Some(block) = self.0.get_mut(&id) else { return 0 };
        rehome(id, block, copy, nodes);
        // A block that has ended takes the same there as here.
        resize(block, allocated_bytes(block.length), nodes, jobs);
        u64::from(block.length)
    }

    /// Lets another node go on as the home of a block in the object tier; nothing moves it any
    /// more. Returns the block.
    pub(super) fn adopt(
        &mut self,
        id: BlockId,
        adopter: NodeId,
        nodes: &mut Nodes,
        orders: &mut Orders,
    ) -> Option<Block> {
        self.void_move(id, nodes, orders);
        let block = self.0.get_mut(&id)?;
        let home = Copied { node: adopter, tier: block.tier, epoch: block.epoch };
        rehome(id, block, home, nodes);
        Some(*block)
    }

    /// Notes that a node holds the block's bytes beside its home.
    pub(super) fn add_copy(&mut self, id: BlockId, copy: Copied, nodes: &mut Nodes) {
        let Some(block) = self.0.get_mut(&id) else { return };
        let was_safe = block.is_safe();
        block.copy = Some(copy);
        nodes.add_copy(copy.node, id, copy.tier, u64::from(allocated_bytes(block.length)));
        if let Some(home) = block.home {
            nodes.count_copied(home, id, if was_safe { 0 } else { block.length });
        }
    }

    /// Forgets a block's copy beside the home. Returns where it was.
    pub(super) fn take_copy(&mut self, id: BlockId, nodes: &mut Nodes) -> Option<Copied> {
        let block = self.0.get_mut(&id)?;
        let copy = block.copy.take()?;
        nodes.remove_copy(copy.node, id);
        if let Some(home) = block.home {
            nodes.discount_copied(home, id, if block.is_safe() { 0 } else { block.length });
        }
        Some(copy)
    }

    /// Gives a block's copy beside the home up.
    pub(super) fn drop_copy(&mut self, id: BlockId, nodes: &mut Nodes, orders: &mut Orders) {
        if let Some(copy) = self.take_copy(id, nodes) {
            orders.drop_block(copy.node, id, copy.epoch);
        }
    }

    /// Compares what an object counts with what follows from its blocks. Its store has
    /// `stored_bytes` of what was lost.
    pub(super) fn check_data(
        &self,
        id: ObjectId,
        data: &Data,
        stored_bytes: u64,
        problems: &mut Vec<String>,
    ) {
        let mut bytes = data.inline_bytes();
        let mut lost = 0;
        for block_id in data.blocks.iter() {
            match self.get(block_id) {
                Some(block) if block.object == id => {
                    bytes += u64::from(block.length);
                    lost += if block.is_lost() { u64::from(block.length) } else { 0 };
                }
                _ => problems.push(format!("object {id} names block {block_id}, not its own")),
            }
        }
        // What the store has is not lost.
        lost -= stored_bytes.min(lost);
        if (bytes, lost) != (data.bytes, data.lost_bytes) {
            let (have, have_lost) = (data.bytes, data.lost_bytes);
            problems.push(format!(
                "object {id} has {have} bytes, {have_lost} lost; its blocks {bytes}, {lost} lost"
            ));
        }
        let with_bytes = data.blocks.iter().filter_map(|block| self.get(block));
        let with_bytes = with_bytes.filter(|block| block.length > 0).count();
        if u32::try_from(with_bytes) != Ok(data.blocks_with_bytes()) {
            let have = data.blocks_with_bytes();
            problems.push(format!("object {id} counts {have} blocks with bytes, has {with_bytes}"));
        }
    }

    /// Compares the blocks with their objects' lists, by block, and with what the nodes have.
    pub(super) fn check(
        &self,
        named: &BTreeMap<BlockId, ObjectId>,
        nodes: &Nodes,
        problems: &mut Vec<String>,
    ) {
        for (id, block) in self.iter() {
            if named.get(&id) != Some(&block.object) {
                problems.push(format!("block {id} belongs to no object"));
            }
            let (copy, target) = (block.copy.map(|it| it.node), block.moving.map(|it| it.to));
            let mut on = [block.home, copy, target].into_iter().flatten();
            if on.any(|node| nodes.get(node).is_none()) {
                problems.push(format!("block {id} is on a node that does not exist"));
            }
            if block.epoch > block.epoch_last {
                problems.push(format!("block {id} is at an epoch that was never given out"));
            }
            if let Some(copy) = block.copy
                && (copy.epoch <= block.epoch || block.home == Some(copy.node))
            {
                problems.push(format!("block {id} has a copy that cannot become its home"));
            }
        }
        nodes.check(self.iter(), problems);
    }
}

impl Index<&BlockId> for BlockMap {
    type Output = Block;

    fn index(&self, id: &BlockId) -> &Block {
        &self.0[id]
    }
}

/// Makes other bytes of a block its home. The old home may go on serving its own.
fn rehome(id: BlockId, block: &mut Block, home: Copied, nodes: &mut Nodes) {
    if let Some(from) = block.home {
        nodes.leave(from, id, block);
        nodes.keep_left(from, id);
    }
    (block.home, block.tier, block.epoch) = (Some(home.node), home.tier, home.epoch);
    nodes.settle(home.node, id, block);
}

/// Sets how many bytes the place of a block is accounted with. A lost one has none.
fn resize(block: &mut Block, reserved: u32, nodes: &mut Nodes, jobs: &mut Jobs) {
    let Some(home) = block.home else { return };
    let change = i64::from(reserved) - i64::from(block.reserved);
    block.reserved = reserved;
    nodes.account(home, block.tier, change);
    jobs.charge(block.job, change);
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::message::Register;
    use sanderling_protocol::node::TierCapacity;
    use sanderling_protocol::{Instant, Nonce};

    use super::super::members::NodeRecord;
    use super::*;

    const OBJECT: ObjectId = ObjectId(9);
    const LENGTH: u32 = 5000;
    const ONE: NodeId = NodeId(1);
    const TWO: NodeId = NodeId(2);
    const THREE: NodeId = NodeId(3);

    /// Blocks of one object on three nodes.
    #[derive(Clone)]
    struct Parts {
        blocks: BlockMap,
        nodes: Nodes,
        jobs: Jobs,
    }

    impl Parts {
        fn new() -> Self {
            let (blocks, jobs) = (BlockMap::default(), Jobs::default());
            let mut nodes = Nodes::new();
            for number in 1..=3 {
                let tiers =
                    [Tier::Dram, Tier::Object].map(|tier| TierCapacity { tier, bytes: 1 << 30 });
                let register = Register {
                    cluster: None,
                    nonce: Nonce(number),
                    name: String::new(),
                    address: number.to_string(),
                    http_address: String::new(),
                    host: String::new(),
                    tiers: tiers.to_vec(),
                    notice_min: None,
                    egress_bytes_per_second: None,
                };
                nodes.insert(NodeRecord::new(register, number.to_string(), Instant(0)));
            }
            Self { blocks, nodes, jobs }
        }

        /// Adds an ended block with its home on the first node.
        fn add(&mut self, number: u64) -> BlockId {
            let block = Block {
                object: OBJECT,
                job: None,
                epoch: Epoch(1),
                epoch_last: Epoch(1),
                length: 0,
                reserved: 1 << 20,
                bytes_max: 1 << 20,
                home: Some(ONE),
                lost_on: NodeId(0),
                tier: Tier::Dram,
                state: BlockState::Open,
                moving: None,
                copy: None,
            };
            self.blocks.insert(BlockId(number), block, &mut self.nodes, &mut self.jobs);
            self.check("added");
            self.blocks.publish(BlockId(number), LENGTH, &mut self.nodes).unwrap();
            self.check("published");
            self.blocks.end(BlockId(number), &mut self.nodes, &mut self.jobs);
            self.check("ended");
            BlockId(number)
        }

        fn reserve(&mut self, id: BlockId, to: (NodeId, Tier), purpose: MovePurpose) {
            self.blocks.reserve(id, to, purpose, &mut self.nodes).unwrap();
            self.check("reserved");
        }

        fn problems(&self) -> Vec<String> {
            let mut problems = Vec::new();
            let named = self.blocks.iter().map(|(id, _)| (id, OBJECT)).collect();
            self.blocks.check(&named, &self.nodes, &mut problems);
            problems
        }

        fn check(&self, what: &str) {
            self.nodes.assert(false);
            assert_eq!(self.problems(), Vec::<String>::new(), "{what}");
        }
    }

    #[test]
    fn every_change_of_a_block_counts_on_its_nodes() {
        let mut orders = Orders::default();
        let mut parts = Parts::new();
        let [first, second, third] = [1, 2, 3].map(|number| parts.add(number));
        parts.reserve(first, (TWO, Tier::Dram), MovePurpose::Precopy);
        parts.blocks.commit_copy(first, &mut parts.nodes);
        parts.check("copied");
        parts.reserve(first, (THREE, Tier::Dram), MovePurpose::Rebalance);
        parts.blocks.promote(first, &mut parts.nodes, &mut parts.jobs, &mut orders);
        parts.check("promoted");
        assert_eq!(parts.blocks[&first].home, Some(TWO));
        assert_eq!(orders.lists().drops[&THREE].len(), 1, "what was reserved is given up");
        for (id, tier) in [(second, Tier::Dram), (third, Tier::Object)] {
            parts.reserve(id, (TWO, tier), MovePurpose::Relocate);
            parts.blocks.commit_home(id, LENGTH, &mut parts.nodes, &mut parts.jobs);
            parts.check("moved");
        }
        assert!(parts.nodes.get(ONE).unwrap().held().left.contains(&second));
        parts.blocks.adopt(third, THREE, &mut parts.nodes, &mut orders).unwrap();
        parts.check("adopted");
        let lost = parts.blocks.lose(second, &mut parts.nodes, &mut parts.jobs, &mut orders);
        parts.check("lost");
        assert_eq!(lost, LENGTH);
        for id in [first, second, third] {
            parts.blocks.remove(id, &mut parts.nodes, &mut parts.jobs, &mut orders);
            parts.check("removed");
        }
        let is_empty = |node| parts.nodes.get(node).unwrap().held().homes.is_empty();
        assert!([ONE, TWO, THREE].into_iter().all(is_empty));
    }

    /// Makes an account wrong.
    type Wrong = fn(&mut Parts, BlockId, &Block);

    #[test]
    fn check_finds_every_account_that_is_wrong() {
        let mut parts = Parts::new();
        let id = parts.add(1);
        parts.reserve(id, (THREE, Tier::Dram), MovePurpose::Precopy);
        let block = parts.blocks[&id];
        let wrongs: [(&str, Wrong); 9] = [
            ("bytes at home", |parts, _, _| parts.nodes.published(ONE, 1, false)),
            ("the blocks at home", |parts, id, block| parts.nodes.leave(ONE, id, block)),
            ("room that is used", |parts, _, _| parts.nodes.account(ONE, Tier::Dram, 1)),
            ("homes with a copy", |parts, id, _| parts.nodes.count_copied(ONE, id, 0)),
            ("bytes that are safe", |parts, id, _| parts.nodes.count_copied(ONE, id, 1)),
            ("the copies", |parts, id, _| parts.nodes.add_copy(TWO, id, Tier::Dram, 0)),
            ("moves that end there", |parts, id, _| parts.nodes.release_incoming(THREE, id)),
            ("the sums over all nodes", |parts, id, block| parts.nodes.leave(ONE, id, block)),
            ("a node that does not exist", |parts, id, block| {
                let home = Some(NodeId(7));
                parts.blocks.0.insert(id, Block { home, ..*block });
            }),
        ];
        for (what, go_wrong) in wrongs {
            let mut wrong = parts.clone();
            go_wrong(&mut wrong, id, &block);
            let found = wrong.problems();
            assert!(found.iter().any(|problem| problem.contains(what)), "{what}: {found:?}");
        }
        parts.check("nothing is wrong");
    }
}
