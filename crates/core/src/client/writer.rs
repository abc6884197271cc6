//! Writing an object: which block gets which bytes, when blocks are requested, and what follows
//! from each answer.
//!
//! The shell hands over pieces with [`WriteMachine::push`] and performs what [`WriteMachine::next`]
//! orders. One write puts one piece into one block. Writes to different blocks may be in flight
//! together; writes to one block follow each other. A block that refuses a write (it is fenced or
//! full, or its node is out of reach) ends at its acknowledged length. Its piece and every later
//! one are written again, into new blocks, so that the object's bytes stay in order. No write waits
//! for a relocation.

use std::collections::VecDeque;

use sanderling_protocol::limits::{AVOIDED_NODES_MAX, BLOCK_BYTES_MAX, LENGTHS_PER_REQUEST_MAX};
use sanderling_protocol::message::{BlockLength, GrantedBlock};
use sanderling_protocol::refusal::Recovery;
use sanderling_protocol::{BlockId, Millis, NodeId, Refusal};
use thiserror::Error;

use super::attempt::AttemptFailure;

/// Most bytes of a piece, so that a full block costs one write.
pub const PIECE_BYTES_MAX: u32 = BLOCK_BYTES_MAX;

/// Most blocks that one request adds. As many as a writer has writes in flight by default
/// (`ClientConfig::write_window_blocks`). More would keep room that may stay empty.
const BLOCKS_AHEAD: u32 = 4;

/// Length above which an object is expected to grow on: each request adds [`BLOCKS_AHEAD`] blocks.
/// A shorter one requests the blocks for the bytes that wait only, so that small objects keep no
/// room that they do not fill. Chosen, not measured.
const LARGE_BYTES: u64 = 2 * BLOCK_BYTES_MAX as u64;

/// Fences in a row that are followed without a pause. Where all nodes drain, the pauses of the
/// retry policy bound the requests for blocks. More nodes than have a notice at once, as a rule.
/// Chosen, not measured.
const FENCES_MAX: u32 = 8;

/// Most nodes that a request for blocks excludes: more would be most of a small fleet.
const AVOID_MAX: usize = 16;

const _: () = assert!(AVOID_MAX <= AVOIDED_NODES_MAX, "the namenode takes what is sent");

/// Most pieces in memory for each write of the window. Writes go on behind one that is repeated in
/// place, for seconds perhaps, but their bytes are kept until that one is acknowledged. 32 MiB with
/// the default window of four. Chosen, not measured.
const KEPT_PER_WRITE: usize = 8;

/// Most writes in flight, whatever the application configures: 4 GiB. Each piece in memory may be
/// in a block of its own. The namenode takes the lengths of so many blocks in one request, and as
/// many again: those of unused blocks, and of blocks that were granted and cannot be filled.
const WINDOW_MAX: usize = 4096;

const _: () = assert!(
    2 * WINDOW_MAX * KEPT_PER_WRITE <= LENGTHS_PER_REQUEST_MAX,
    "the namenode takes what is sent"
);

/// Shortest pause before a write is repeated at the same node, whatever that node demands. One unit
/// of [`Millis`]: without any, a node that demands none would get the same write in a loop.
const PAUSE_MIN: Millis = Millis(1);

/// One write: a piece of the application's bytes or a part of it, and where it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// The write's number. A piece that is written again gets a new one.
    pub number: u64,
    /// The block, with its home and epoch.
    pub block: GrantedBlock,
    /// Offset in the block, in bytes.
    pub offset: u32,
    /// Offset in the piece that was handed over, in bytes.
    pub from: usize,
    /// Bytes of the write.
    pub length: u32,
}

/// A request to the namenode for more blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockRequest {
    /// Final lengths of blocks, in the object's order.
    pub ended: Vec<BlockLength>,
    /// Blocks to add.
    pub count: u32,
    /// Nodes that refused writes, or did not answer.
    pub avoid: Vec<NodeId>,
}

/// The next step of a writer's shell, as [`WriteMachine::next`] returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteStep<P> {
    /// Send this part of a piece, and go on at once.
    Send(Placed, P),
    /// Request blocks, and pass on the answer: [`WriteMachine::granted`] or
    /// [`WriteMachine::not_granted`].
    AddBlocks(BlockRequest),
    /// Wait for the answer to a write, or to the request for blocks that is in flight.
    Wait,
    /// Nothing: the goal is reached.
    Done,
}

/// The point to which [`WriteMachine::next`] drives the writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteGoal {
    /// Every piece was sent, and the window has room for another.
    Room,
    /// Every piece is acknowledged, and no write is in flight.
    Settled,
}

/// A reason why a writer takes no call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ClosedWriter {
    /// The application gave up an earlier call before it had ended.
    #[error("an earlier write was cancelled half-way")]
    Cancelled,
    /// An earlier call failed for good.
    #[error("an earlier write failed")]
    Failed,
    /// The object takes no bytes any more.
    #[error("the object was sealed or given up")]
    Ended,
    /// A write that it waits for has ended without an answer: the process ends.
    #[error("a write was given up")]
    GivenUp,
}

/// A writer's next step after a failed write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterFailure {
    /// Nothing: the piece is written elsewhere already.
    Late,
    /// Go on at once. A fence is no failure: blocks on other nodes can be had.
    GoOn,
    /// Pause as [`Retry`](crate::retry::Retry) decides for this failure, then go on.
    Pause,
}

/// Whether the writer takes calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriterState {
    Open,
    /// In a call, or a call was cancelled. That one took some of its bytes, how many is unknown:
    /// the object must not be sealed with bytes missing.
    Busy,
    Failed,
    /// The namenode has sealed the object or given it up.
    Ended,
}

/// A run of the object's bytes that is not settled: not acknowledged, or behind such bytes.
#[derive(Debug)]
struct Piece<P> {
    payload: P,
    /// Its part of the payload.
    from: usize,
    length: u32,
    state: PieceState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PieceState {
    /// For a block with room: not sent yet, or to be sent again.
    Waiting,
    /// In a write that was not answered yet.
    InFlight { number: u64, block: BlockId },
    /// Kept: if a write before it is refused, these bytes must be written again behind that one.
    Acknowledged,
}

/// A block that has bytes.
#[derive(Debug)]
struct OpenBlock {
    granted: GrantedBlock,
    /// Bytes of all writes to it.
    assigned: u32,
    acknowledged: u32,
    /// Whether it refused a write and gets no other. It stays until every byte before it is
    /// acknowledged: if one of those is refused too, its own are written again behind that one.
    is_closed: bool,
}

impl OpenBlock {
    const fn is_settled(&self) -> bool {
        self.acknowledged == self.assigned
    }

    const fn is_full(&self) -> bool {
        self.is_closed || self.assigned >= self.granted.bytes_max
    }

    const fn length(&self) -> BlockLength {
        BlockLength { block: self.granted.block, length: self.acknowledged }
    }
}

/// The state of one writer. `P` is a piece's bytes, or what stands for them; clones must be cheap.
#[derive(Debug)]
pub struct WriteMachine<P> {
    state: WriterState,
    /// Writes that may be in flight.
    window: usize,
    /// Bytes of the object, with those that the caller has passed.
    position: u64,
    /// In the object's order: those that were sent, then those that wait.
    pieces: VecDeque<Piece<P>>,
    next_number: u64,
    /// Writes in flight whose bytes are written again: their answers mean nothing.
    abandoned: Vec<u64>,
    /// Blocks with unsettled bytes, or with room behind settled ones, in the object's order.
    blocks: VecDeque<OpenBlock>,
    /// Granted blocks without bytes.
    spare: VecDeque<GrantedBlock>,
    last_granted: Option<BlockId>,
    /// Final lengths that the next request for blocks reports.
    ended: Vec<BlockLength>,
    /// Those in the request that is in flight.
    reporting: Option<Vec<BlockLength>>,
    avoid: Vec<NodeId>,
    /// Fences since the last acknowledgement.
    fences: u32,
    /// Number of the first write after the first failure since the last progress.
    held_up: Option<u64>,
}

impl<P: Clone> WriteMachine<P> {
    /// Returns the state of a writer that goes on behind `position` bytes of the object in those
    /// blocks. It may have `window` writes in flight, at least one and at most 4,096.
    #[must_use]
    pub fn new(position: u64, blocks: &[GrantedBlock], window: usize) -> Self {
        let mut machine = Self {
            state: WriterState::Open,
            window: window.clamp(1, WINDOW_MAX),
            position,
            pieces: VecDeque::new(),
            next_number: 0,
            abandoned: Vec::new(),
            blocks: VecDeque::new(),
            spare: VecDeque::new(),
            last_granted: None,
            ended: Vec::new(),
            reporting: None,
            avoid: Vec::new(),
            fences: 0,
            held_up: None,
        };
        machine.granted(blocks);
        machine
    }

    /// Begins a call of the application. Until it has succeeded, the writer takes no other one.
    ///
    /// # Errors
    /// [`ClosedWriter`]: the writer takes no call. The application writes the object again.
    pub const fn begin(&mut self) -> Result<(), ClosedWriter> {
        match self.state {
            WriterState::Open => {
                self.state = WriterState::Busy;
                Ok(())
            }
            WriterState::Busy => Err(ClosedWriter::Cancelled),
            WriterState::Failed => Err(ClosedWriter::Failed),
            WriterState::Ended => Err(ClosedWriter::Ended),
        }
    }

    /// Ends a call that has done all of its work, so that the writer takes the next one.
    pub const fn succeeded(&mut self) {
        self.state = WriterState::Open;
    }

    /// Ends a call that failed for good: no other is taken, and no piece is kept.
    pub fn failed(&mut self) {
        self.state = WriterState::Failed;
        self.pieces.clear();
    }

    /// Records that the namenode got the request that ends the object, by a seal or an abort.
    pub const fn ended(&mut self) {
        self.state = WriterState::Ended;
    }

    /// Notes that the namenode refused the seal. If bytes are lost, it has given the object up.
    pub const fn not_sealed(&mut self, recovery: Recovery) {
        self.state = match recovery {
            Recovery::Recompute => WriterState::Ended,
            _ => WriterState::Failed,
        };
    }

    /// Returns whether the namenode has sealed the object or given it up. If not, a writer that is
    /// dropped must abort it: its lease keeps every other writer out.
    #[must_use]
    pub const fn is_ended(&self) -> bool {
        matches!(self.state, WriterState::Ended)
    }

    /// Returns the object's length in bytes, with those that the caller has passed.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Notes that the caller passes so many bytes, which are handed over in pieces.
    pub const fn passed(&mut self, bytes: u64) {
        self.position += bytes;
    }

    /// Takes the next piece, of `length` bytes: 1 to [`PIECE_BYTES_MAX`]. [`Self::next`] returns
    /// when it is to be sent.
    pub fn push(&mut self, payload: P, length: u32) {
        debug_assert!(length > 0 && length <= PIECE_BYTES_MAX, "a piece is at most a block");
        self.pieces.push_back(Piece { payload, from: 0, length, state: PieceState::Waiting });
    }

    /// Returns the caller's next step towards a goal: [`WriteStep::Done`] when it is reached, and
    /// [`WriteStep::Wait`] when an answer must arrive first.
    pub fn next(&mut self, goal: WriteGoal) -> WriteStep<P> {
        let is_sent = |piece: &Piece<P>| piece.state != PieceState::Waiting;
        let first = self.pieces.partition_point(is_sent);
        let in_flight = self.in_flight();
        if first == self.pieces.len() {
            let is_reached = match goal {
                WriteGoal::Room => in_flight < self.window,
                WriteGoal::Settled => in_flight == 0,
            };
            return if is_reached { WriteStep::Done } else { WriteStep::Wait };
        }
        let is_kept_full = first >= self.window * KEPT_PER_WRITE;
        if in_flight >= self.window || is_kept_full || self.reporting.is_some() {
            return WriteStep::Wait;
        }
        match (self.blocks.back(), self.spare.front()) {
            (Some(block), _) if !block.is_full() && !block.is_settled() => WriteStep::Wait,
            (Some(block), _) if !block.is_full() => {
                self.send(first, block.granted.bytes_max - block.assigned)
            }
            (_, Some(granted)) => self.send(first, granted.bytes_max),
            (_, None) => WriteStep::AddBlocks(self.request_blocks(first)),
        }
    }

    fn in_flight(&self) -> usize {
        let sent = |piece: &&Piece<P>| matches!(piece.state, PieceState::InFlight { .. });
        self.pieces.iter().filter(sent).count() + self.abandoned.len()
    }

    /// Puts the piece at `first` into the last block, or into a spare one if that is full. What
    /// does not fit waits.
    fn send(&mut self, first: usize, room: u32) -> WriteStep<P> {
        let Piece { payload, from, length, .. } = &mut self.pieces[first];
        if *length > room {
            let (payload, from) = (payload.clone(), *from + room as usize);
            let rest = Piece { payload, from, length: *length - room, state: PieceState::Waiting };
            *length = room;
            self.pieces.insert(first + 1, rest);
        }
        if self.blocks.back().is_none_or(OpenBlock::is_full) {
            let granted = self.spare.pop_front().expect("there is room in it");
            let is_closed = false;
            self.blocks.push_back(OpenBlock { granted, assigned: 0, acknowledged: 0, is_closed });
        }
        let before = self.blocks.iter().rev().skip(1);
        debug_assert!(before.clone().all(OpenBlock::is_full), "bytes fill blocks in order");
        let block = self.blocks.back_mut().expect("just made");
        let piece = &mut self.pieces[first];
        let (number, granted, offset) = (self.next_number, block.granted, block.assigned);
        self.next_number += 1;
        block.assigned += piece.length;
        piece.state = PieceState::InFlight { number, block: granted.block };
        let (from, length) = (piece.from, piece.length);
        let placed = Placed { number, block: granted, offset, from, length };
        WriteStep::Send(placed, piece.payload.clone())
    }

    /// Only lengths before which everything is acknowledged are reported, and those of blocks
    /// without bytes: the catalog takes bytes in order only.
    fn request_blocks(&mut self, first: usize) -> BlockRequest {
        let count = if self.position > LARGE_BYTES {
            BLOCKS_AHEAD
        } else {
            let waiting: u64 = self.pieces.range(first..).map(|it| u64::from(it.length)).sum();
            let needed = waiting.div_ceil(u64::from(BLOCK_BYTES_MAX));
            u32::try_from(needed).unwrap_or(BLOCKS_AHEAD).clamp(1, BLOCKS_AHEAD)
        };
        self.ended.sort_by_key(|length| length.block);
        let ended = std::mem::take(&mut self.ended);
        debug_assert!(ended.len() <= LENGTHS_PER_REQUEST_MAX, "the window bounds them");
        self.reporting = Some(ended.clone());
        BlockRequest { ended, count, avoid: self.avoid.clone() }
    }

    /// Takes the blocks of a grant: the answer to the request for blocks, if one is in flight.
    /// Returns whether one of them can be filled. If not, as when their nodes died meanwhile, the
    /// shell pauses before it goes on, and the request's lengths are reported again: only the
    /// number of a block that comes after them shows the namenode that its log has lost them.
    pub fn granted(&mut self, blocks: &[GrantedBlock]) -> bool {
        let before = self.spare.len();
        for block in blocks {
            // Blocks of an object are in the order of their ids. One that is granted twice is used
            // once.
            if Some(block.block) <= self.last_granted {
                continue;
            }
            self.last_granted = Some(block.block);
            if block.bytes_max > 0 {
                self.spare.push_back(*block);
            } else {
                self.ended.push(BlockLength { block: block.block, length: 0 });
            }
        }
        let is_granted = self.spare.len() > before;
        if is_granted {
            self.reporting = None;
        } else {
            self.not_granted();
        }
        is_granted
    }

    /// Notes that the request for blocks failed: its lengths are reported with the next one.
    pub fn not_granted(&mut self) {
        if let Some(reported) = self.reporting.take() {
            self.ended.extend(reported);
        }
    }

    /// Takes a datanode's acknowledgement of the write with this number; one that is late or came
    /// before changes nothing. Returns whether it is the first of a write that was sent after a
    /// failure: the writer has recovered from that.
    pub fn acknowledged(&mut self, number: u64) -> bool {
        let Some((at, id)) = self.answered(number) else { return false };
        self.pieces[at].state = PieceState::Acknowledged;
        if let Some(block) = self.blocks.iter_mut().find(|block| block.granted.block == id) {
            block.acknowledged = block.assigned;
        }
        while self.pieces.front().is_some_and(|it| it.state == PieceState::Acknowledged) {
            self.pieces.pop_front();
        }
        self.retire();
        self.fences = 0;
        self.held_up.take_if(|first| number >= *first).is_some()
    }

    /// Finds the piece of a write that was answered, and its block. `None` if it is not expected:
    /// its bytes are written again, or it was answered before.
    fn answered(&mut self, number: u64) -> Option<(usize, BlockId)> {
        self.abandoned.retain(|abandoned| *abandoned != number);
        self.pieces.iter().enumerate().find_map(|(at, piece)| match piece.state {
            PieceState::InFlight { number: sent, block } if sent == number => Some((at, block)),
            _ => None,
        })
    }

    /// Ends blocks that are full or have refused a write, from the first on.
    fn retire(&mut self) {
        while let Some(block) = self.blocks.pop_front_if(|it| it.is_settled() && it.is_full()) {
            self.ended.push(block.length());
        }
    }

    /// Takes the failure of a write: its block ends, and its piece and all later ones wait for
    /// other blocks.
    pub fn refused(&mut self, number: u64, failure: &AttemptFailure<'_>) -> AfterFailure {
        let Some((at, id)) = self.answered(number) else { return AfterFailure::Late };
        self.held_up.get_or_insert(self.next_number);
        for piece in self.pieces.range_mut(at..) {
            match std::mem::replace(&mut piece.state, PieceState::Waiting) {
                PieceState::InFlight { number: sent, .. } if sent != number => {
                    self.abandoned.push(sent);
                }
                _ => {}
            }
        }
        let node = self.end_from(id);
        self.retire();
        match failure.refusal {
            // It arrived damaged or out of place: its node is good for other blocks.
            Some(Refusal::ChecksumMismatch { .. } | Refusal::NotAtEnd { .. }) => {}
            _ => self.leave(node),
        }
        match failure.refusal {
            Some(Refusal::Moved { .. }) if self.fences < FENCES_MAX => {
                self.fences += 1;
                AfterFailure::GoOn
            }
            _ => AfterFailure::Pause,
        }
    }

    /// Ends a block at its acknowledged length and those behind it without bytes. Returns its node.
    fn end_from(&mut self, id: BlockId) -> NodeId {
        let is_it = |block: &OpenBlock| block.granted.block == id;
        let at = self.blocks.iter().position(is_it).expect("it has a write in flight");
        for block in self.blocks.drain(at + 1..) {
            self.ended.push(BlockLength { block: block.granted.block, length: 0 });
        }
        let block = &mut self.blocks[at];
        block.is_closed = true;
        block.assigned = block.acknowledged;
        let node = block.granted.node;
        debug_assert!(self.blocks.iter().all(OpenBlock::is_full), "no block fills behind a gap");
        if !self.avoid.contains(&node) {
            self.avoid.push(node);
            if self.avoid.len() > AVOID_MAX {
                self.avoid.remove(0);
            }
        }
        node
    }

    /// Ends the spare blocks on a node.
    fn leave(&mut self, node: NodeId) {
        self.spare.retain(|granted| {
            if granted.node == node {
                self.ended.push(BlockLength { block: granted.block, length: 0 });
            }
            granted.node != node
        });
    }

    /// Returns the acknowledged lengths that the namenode may not have yet, in the object's order,
    /// up to the first byte that is not acknowledged.
    #[must_use]
    pub fn lengths(&self) -> Vec<BlockLength> {
        let unsettled = self.blocks.iter().take_while(|block| block.is_settled()).count();
        let open = self.blocks.iter().take(unsettled + 1).map(OpenBlock::length);
        let ended = self.ended.iter().chain(self.reporting.iter().flatten()).copied();
        let mut lengths: Vec<BlockLength> = ended.chain(open).collect();
        lengths.sort_by_key(|length| length.block);
        let is_once = lengths.is_sorted_by(|one, next| one.block < next.block);
        debug_assert!(is_once, "a block has one length");
        lengths
    }

    /// Returns the lengths with which the object is sealed; `None` while a byte that was handed
    /// over is not acknowledged, or a write is in flight.
    #[must_use]
    pub fn final_lengths(&self) -> Option<Vec<BlockLength>> {
        let is_settled = self.pieces.is_empty() && self.in_flight() == 0;
        is_settled.then(|| self.lengths())
    }

    /// Returns how many bytes of those handed over are not acknowledged, or lie behind such bytes.
    #[must_use]
    pub fn unsettled_bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| u64::from(piece.length)).sum()
    }
}

/// Returns the pause after which a refused write is sent to the same node again, if that is within
/// the time `left`. `None`: the refusal goes to [`WriteMachine::refused`].
#[must_use]
pub fn repeat_in_place(refusal: &Refusal, left: Millis) -> Option<Millis> {
    match refusal {
        Refusal::RetryAfter { after, .. } => {
            let pause = (*after).max(PAUSE_MIN);
            (pause < left).then_some(pause)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
