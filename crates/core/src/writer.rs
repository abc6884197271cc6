//! Writing an object: which block gets which bytes, and what to do when one is refused.
//!
//! Bytes come in pieces. A piece goes into one block with one write; pieces of different blocks may
//! be under way together, of one block one after the other. A block that refuses (fenced, full, its
//! node out of reach) ends at what it acknowledged, and its piece and every later one is written
//! again into new blocks, so that the object's bytes stay in order. Nobody waits for a relocation.

use std::collections::VecDeque;

use sanderling_protocol::message::{BlockLength, GrantedBlock};
use sanderling_protocol::{BlockId, NodeId};

/// Most nodes remembered as refusing: more would be most of a small fleet.
const AVOID_MAX: usize = 16;

/// Where a piece goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// The piece's number: they count upwards in the order of the bytes.
    pub piece: u64,
    /// The block, with its home and epoch.
    pub block: GrantedBlock,
    /// Offset in the block.
    pub offset: u32,
    /// The piece's bytes.
    pub length: u32,
}

/// What to ask the namenode for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want {
    /// Final lengths of blocks, in the object's order.
    pub ended: Vec<BlockLength>,
    /// Nodes that refused.
    pub avoid: Vec<NodeId>,
}

#[derive(Debug, Clone, Copy)]
struct InFlightPiece {
    number: u64,
    length: u32,
    is_acknowledged: bool,
}

/// A block in use.
#[derive(Debug, Clone)]
struct InFlightBlock {
    block: GrantedBlock,
    pieces: Vec<InFlightPiece>,
    /// Whether it refused and takes nothing more. It keeps its place until every byte before it is
    /// acknowledged: if one of those is refused too, its own must be written again behind them.
    is_closed: bool,
}

impl InFlightBlock {
    fn assigned(&self) -> u32 {
        self.pieces.iter().map(|piece| piece.length).sum()
    }

    fn acknowledged(&self) -> u32 {
        let done = self.pieces.iter().take_while(|piece| piece.is_acknowledged);
        done.map(|piece| piece.length).sum()
    }

    fn is_settled(&self) -> bool {
        self.pieces.iter().all(|piece| piece.is_acknowledged)
    }

    fn is_full(&self) -> bool {
        self.is_closed || self.assigned() >= self.block.bytes_max
    }
}

/// The state of one writer.
#[derive(Debug, Default)]
pub struct WriteMachine {
    spare: VecDeque<GrantedBlock>,
    in_flight: VecDeque<InFlightBlock>,
    ended: Vec<BlockLength>,
    avoid: Vec<NodeId>,
    next_piece: u64,
}

impl WriteMachine {
    /// Returns the state of a writer with its first blocks.
    #[must_use]
    pub fn new(blocks: &[GrantedBlock]) -> Self {
        Self { spare: blocks.iter().copied().collect(), ..Self::default() }
    }

    /// Takes blocks that the namenode granted, after it took `want`'s lengths.
    pub fn granted(&mut self, blocks: &[GrantedBlock]) {
        self.spare.extend(blocks);
    }

    /// Returns how many unused blocks there are.
    #[must_use]
    pub fn spare_blocks(&self) -> usize {
        self.spare.len()
    }

    /// Returns how many bytes the next piece may have; 0 when a block must be granted first, or
    /// when the block in use is still taking its last piece.
    #[must_use]
    pub fn room(&self) -> u32 {
        match self.in_flight.back() {
            Some(entry) if !entry.is_full() => {
                if entry.is_settled() {
                    entry.block.bytes_max - entry.assigned()
                } else {
                    0
                }
            }
            _ => self.spare.front().map_or(0, |block| block.bytes_max),
        }
    }

    /// Tells whether the last block waits for an acknowledgement before it can take more.
    #[must_use]
    pub fn must_settle(&self) -> bool {
        self.in_flight.back().is_some_and(|entry| !entry.is_full() && !entry.is_settled())
    }

    /// Places the next piece, of 1 to [`WriteMachine::room`] bytes; `None` when there is no room.
    pub fn place(&mut self, length: u32) -> Option<Placed> {
        if length == 0 || length > self.room() {
            return None;
        }
        if self.in_flight.back().is_none_or(InFlightBlock::is_full) {
            let block = self.spare.pop_front()?;
            self.in_flight.push_back(InFlightBlock { block, pieces: Vec::new(), is_closed: false });
        }
        let before = self.in_flight.iter().rev().skip(1);
        debug_assert!(before.clone().all(InFlightBlock::is_full), "bytes fill blocks in order");
        let number = self.next_piece;
        self.next_piece += 1;
        let entry = self.in_flight.back_mut()?;
        debug_assert!(entry.is_settled(), "one piece of a block at a time");
        let offset = entry.assigned();
        debug_assert!(offset + length <= entry.block.bytes_max, "a piece fits its block");
        entry.pieces.push(InFlightPiece { number, length, is_acknowledged: false });
        Some(Placed { piece: number, block: entry.block, offset, length })
    }

    /// Takes a datanode's acknowledgement.
    pub fn acknowledged(&mut self, number: u64) {
        for entry in &mut self.in_flight {
            for piece in &mut entry.pieces {
                piece.is_acknowledged |= piece.number == number;
            }
        }
        self.retire();
    }

    /// Ends blocks that are full or have refused, from the first on.
    fn retire(&mut self) {
        while let Some(entry) = self.in_flight.front() {
            if !entry.is_settled() || !entry.is_full() {
                return;
            }
            let (block, length) = (entry.block.block, entry.assigned());
            debug_assert_eq!(length, entry.acknowledged(), "every byte that is told is there");
            self.ended.push(BlockLength { block, length });
            self.in_flight.pop_front();
        }
    }

    /// Takes a refusal of a piece. Returns the numbers of the pieces to place again, in order:
    /// those from the refused one on. Acknowledgements for them that are still to come mean
    /// nothing.
    ///
    /// `node_is_gone` ends every unused block on the same node too.
    pub fn refused(&mut self, number: u64, node_is_gone: bool) -> Vec<u64> {
        let found = self
            .in_flight
            .iter()
            .position(|entry| entry.pieces.iter().any(|piece| piece.number == number));
        let Some(at) = found else { return Vec::new() };
        let mut behind = self.in_flight.split_off(at);
        let mut first = behind.pop_front().expect("the refused piece is in it");
        let failed = first.block.node;
        let kept = first.pieces.iter().take_while(|piece| piece.is_acknowledged).count();
        let mut again: Vec<u64> = first.pieces.drain(kept..).map(|piece| piece.number).collect();
        first.is_closed = true;
        self.in_flight.push_back(first);
        for entry in behind {
            again.extend(entry.pieces.iter().map(|piece| piece.number));
            self.ended.push(BlockLength { block: entry.block.block, length: 0 });
        }
        debug_assert!(again.is_sorted(), "bytes are written again in their order");
        debug_assert!(
            self.in_flight.iter().all(InFlightBlock::is_full),
            "no block takes bytes behind a gap"
        );
        self.retire();
        if !self.avoid.contains(&failed) {
            self.avoid.push(failed);
            if self.avoid.len() > AVOID_MAX {
                self.avoid.remove(0);
            }
        }
        if node_is_gone {
            let (gone, spare): (Vec<_>, Vec<_>) =
                self.spare.drain(..).partition(|block| block.node == failed);
            self.spare = spare.into();
            let unused =
                gone.into_iter().map(|block| BlockLength { block: block.block, length: 0 });
            self.ended.extend(unused);
        }
        again
    }

    /// Returns what to ask the namenode for, and forgets the ended lengths: they are told once, and
    /// again with [`WriteMachine::not_told`] if the request failed.
    ///
    /// Only lengths before which everything is acknowledged are among them, and those of blocks
    /// without bytes: the catalog takes bytes in order only.
    pub fn want(&mut self) -> Want {
        self.ended.sort_by_key(|length| length.block);
        Want { ended: std::mem::take(&mut self.ended), avoid: self.avoid.clone() }
    }

    /// Takes back lengths that could not be told.
    pub fn not_told(&mut self, ended: Vec<BlockLength>) {
        let later = std::mem::replace(&mut self.ended, ended);
        self.ended.extend(later);
    }

    /// Returns the acknowledged lengths that are not known to the namenode yet, in the object's
    /// order, up to the first byte that is not acknowledged.
    #[must_use]
    pub fn lengths(&self) -> Vec<BlockLength> {
        let mut lengths = self.ended.clone();
        for entry in &self.in_flight {
            let length = entry.acknowledged();
            lengths.push(BlockLength { block: entry.block.block, length });
            if !entry.is_settled() {
                break;
            }
        }
        lengths.sort_by_key(|length| length.block);
        let is_once = lengths.is_sorted_by(|one, next| one.block < next.block);
        debug_assert!(is_once, "a block has one length");
        lengths
    }

    /// Tells whether every piece is acknowledged.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.in_flight.iter().all(InFlightBlock::is_settled)
    }

    /// Returns the number of the first piece that is not acknowledged; the next one's if all are.
    #[must_use]
    pub fn first_unsettled(&self) -> u64 {
        let pieces = self.in_flight.iter().flat_map(|entry| &entry.pieces);
        let mut open = pieces.filter(|piece| !piece.is_acknowledged).map(|piece| piece.number);
        open.next().unwrap_or(self.next_piece)
    }

    /// Returns the blocks in use, for those who check from outside.
    #[must_use]
    pub fn blocks_in_use(&self) -> Vec<BlockId> {
        self.in_flight.iter().map(|entry| entry.block.block).collect()
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::{Epoch, Tier};

    use super::*;

    fn block(id: u64, node: u32) -> GrantedBlock {
        let (epoch, tier) = (Epoch(1), Tier::Dram);
        GrantedBlock { block: BlockId(id), epoch, node: NodeId(node), tier, bytes_max: 100 }
    }

    fn length(id: u64, length: u32) -> BlockLength {
        BlockLength { block: BlockId(id), length }
    }

    #[test]
    fn pieces_fill_blocks_in_order() {
        let mut machine = WriteMachine::new(&[block(1, 1), block(2, 2)]);
        assert_eq!(machine.room(), 100);
        let first = machine.place(100).unwrap();
        let second = machine.place(60).unwrap();
        assert_eq!((first.block.block, second.block.block), (BlockId(1), BlockId(2)));
        assert_eq!(machine.room(), 0);
        assert!(machine.must_settle());
        machine.acknowledged(second.piece);
        assert_eq!(machine.lengths(), [length(1, 0)]);
        machine.acknowledged(first.piece);
        assert_eq!(machine.lengths(), [length(1, 100), length(2, 60)]);
        let third = machine.place(40).unwrap();
        assert_eq!((third.block.block, third.offset), (BlockId(2), 60));
        assert_eq!(machine.room(), 0);
        assert!(!machine.must_settle());
    }

    #[test]
    fn refused_block_ends_where_it_was_acknowledged_and_the_rest_is_written_again() {
        let mut machine = WriteMachine::new(&[block(1, 1), block(2, 2), block(3, 1), block(4, 3)]);
        let first = machine.place(40).unwrap();
        machine.acknowledged(first.piece);
        let second = machine.place(60).unwrap();
        let third = machine.place(100).unwrap();
        machine.acknowledged(third.piece);
        assert_eq!(machine.refused(second.piece, true), [second.piece, third.piece]);
        let again = machine.place(60).unwrap();
        assert_eq!(again.block.block, BlockId(4), "block 3 is on the node that is gone");
        machine.acknowledged(again.piece);
        let lengths = [length(1, 40), length(2, 0), length(3, 0), length(4, 60)];
        assert_eq!(machine.lengths(), lengths);
        let want = machine.want();
        assert_eq!(want.avoid, [NodeId(1)]);
        assert_eq!(want.ended.len(), 3);
        machine.not_told(want.ended);
        assert_eq!(machine.lengths(), lengths);
    }

    #[test]
    fn bytes_behind_a_refused_block_are_written_again_though_their_own_block_had_ended() {
        let mut machine = WriteMachine::new(&[block(1, 1), block(2, 2), block(3, 3), block(4, 4)]);
        let first = machine.place(100).unwrap();
        let second = machine.place(30).unwrap();
        machine.acknowledged(second.piece);
        let third = machine.place(70).unwrap();
        assert_eq!(machine.refused(third.piece, false), [third.piece]);
        assert_eq!(machine.lengths(), [length(1, 0)], "nothing behind a gap is told");
        assert_eq!(machine.want().ended, []);
        let third = machine.place(70).unwrap();
        assert_eq!(third.block.block, BlockId(3));
        let again = machine.refused(first.piece, false);
        assert_eq!(again, [first.piece, second.piece, third.piece]);
        assert_eq!(machine.lengths(), [length(1, 0), length(2, 0), length(3, 0)]);
    }

    #[test]
    fn late_answers_about_pieces_that_were_given_up_mean_nothing() {
        let mut machine = WriteMachine::new(&[block(1, 1), block(2, 2)]);
        let first = machine.place(100).unwrap();
        assert_eq!(machine.refused(first.piece, false), [first.piece]);
        machine.acknowledged(first.piece);
        assert!(machine.refused(first.piece, false).is_empty());
        assert_eq!(machine.lengths(), [length(1, 0)]);
    }
}
