//! What is done next for a node: which batch, from which list, to which target.

use std::collections::BTreeMap;

use sanderling_protocol::limits::BLOCK_BYTES_MAX;
use sanderling_protocol::message::MovePurpose;
use sanderling_protocol::{BlockId, Instant, NodeId, Tier};

use super::Background;
use super::fleet::{BackgroundTarget, Hurry};
use super::scan::Scan;
use crate::exposure::plan::{Coldness, copy_tiers};
use crate::moves::{self, Batch, Choice, Move, MoveOutput};
use crate::rebalance::MoveRank;

/// What is wished for of a source's blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SourceTask {
    Copy,
    Move(Tier),
    /// Nothing is sent, but the blocks must be read to know which copies go.
    Drop,
}

/// What can be done for a source for one task.
enum NextTask {
    Batch(Batch),
    /// Nothing before this.
    Wait(Instant),
    /// Nothing until something happens.
    Nothing,
}

impl Background {
    /// Starts the batches of all sources that can begin now, those of the greatest hurry first: see
    /// [`Self::pump`].
    pub(super) fn pump_all(&mut self, now: Instant) {
        let mut order: Vec<(std::cmp::Reverse<Option<Hurry>>, NodeId)> =
            self.goals.iter().map(|(node, goal)| (std::cmp::Reverse(goal.hurry), *node)).collect();
        order.sort();
        self.due.clear();
        for (_, node) in order {
            self.pump(now, node);
        }
    }

    /// Starts batches for one source until its pace, its targets or its blocks are exhausted; sets
    /// when it is visited next.
    pub(super) fn pump(&mut self, now: Instant, source: NodeId) {
        self.due.remove(&source);
        loop {
            if self.busy.get(&source).copied().unwrap_or(0) >= self.config.source_batches_max {
                return;
            }
            let mut due: Option<Instant> = None;
            let mut planned = None;
            for task in self.tasks(source) {
                match self.next(now, source, task) {
                    NextTask::Batch(batch) => {
                        planned = Some(batch);
                        break;
                    }
                    NextTask::Wait(at) => due = due.into_iter().chain([at]).min(),
                    NextTask::Nothing => {}
                }
            }
            let Some(batch) = planned else {
                if let Some(due) = due {
                    self.due.insert(source, due);
                }
                return;
            };
            if batch.moves.is_empty() {
                continue;
            }
            self.fleet.sends(&batch);
            moves::begin(self, now, batch);
            debug_assert!(
                self.busy[&source] <= self.config.source_batches_max,
                "a source's batches are bounded"
            );
        }
    }

    /// Returns what is wished for of a source, copies first.
    fn tasks(&self, source: NodeId) -> Vec<SourceTask> {
        let Some(goal) = self.goals.get(&source).filter(|_| self.fleet.stays(source)) else {
            return Vec::new();
        };
        let copy = (goal.copy_bytes > 0).then_some(SourceTask::Copy);
        let moves = goal.move_bytes.iter().filter(|(_, bytes)| **bytes > 0);
        let moves = moves.map(|(tier, _)| SourceTask::Move(*tier));
        let drop = (goal.needless_bytes > 0 || goal.may_relieve).then_some(SourceTask::Drop);
        copy.into_iter().chain(moves).chain(drop).collect()
    }

    fn next(&mut self, now: Instant, source: NodeId, task: SourceTask) -> NextTask {
        let scan = self.scans.entry(source).or_insert_with(|| Scan::new(now));
        let has_any = match task {
            SourceTask::Copy => scan.coldest().is_some(),
            SourceTask::Move(tier) => scan.next_move(tier, u64::MAX).is_some(),
            SourceTask::Drop => false,
        };
        if !has_any {
            return self.read(now, source);
        }
        let hurry = self.goals[&source].hurry.filter(|_| task == SourceTask::Copy);
        let hurry = hurry.unwrap_or(Hurry::None);
        let is_waiting = self.is_waiting || self.fleet.is_engaged(source);
        let pace = &self.config.pace;
        let Some(member) = self.fleet.get_mut(source) else { return NextTask::Nothing };
        let rate = member.send_rate(hurry, is_waiting, pace);
        match member.sends_at(now, rate) {
            None => NextTask::Nothing,
            Some(at) if at > now => NextTask::Wait(at),
            Some(_) => {
                let bytes_max =
                    (rate / 10).clamp(u64::from(BLOCK_BYTES_MAX), self.config.batch_bytes_max);
                match task {
                    SourceTask::Move(tier) => self.plan_moves(now, source, tier, bytes_max),
                    SourceTask::Copy | SourceTask::Drop => self.plan_copies(now, source, bytes_max),
                }
            }
        }
    }

    /// Begins to read a node's blocks, if it is time.
    fn read(&mut self, now: Instant, node: NodeId) -> NextTask {
        let Some(scan) = self.scans.get_mut(&node).filter(|scan| !scan.is_reading()) else {
            return NextTask::Nothing;
        };
        if scan.next_at() > now {
            return NextTask::Wait(scan.next_at());
        }
        if self.pages.len() >= self.config.pages_max {
            // The next page's end comes back here.
            return NextTask::Nothing;
        }
        let after = scan.begin();
        self.fetch(node, after);
        NextTask::Nothing
    }

    fn plan_copies(&mut self, now: Instant, source: NodeId, bytes_max: u64) -> NextTask {
        // A block that fits nowhere does not hold up those that do.
        let mut misfits: BTreeMap<Tier, u64> = BTreeMap::new();
        let can_wait = self.goals[&source].hurry.is_none_or(|hurry| hurry == Hurry::None);
        for (place, own, bytes) in self.scans[&source].coldest_places() {
            if misfits.get(&own).is_some_and(|misfit| *misfit <= bytes) {
                continue;
            }
            for tier in copy_tiers(own) {
                match self.fleet.choose_copy(now, source, tier, (bytes, can_wait), &self.config) {
                    BackgroundTarget::Go(target) => {
                        self.unplaced.remove(&source);
                        return self.gather_copies(source, (target, tier), place, bytes_max);
                    }
                    // Wait for a busy tier instead of using another one.
                    BackgroundTarget::Busy(until) => {
                        return until.map_or(NextTask::Nothing, NextTask::Wait);
                    }
                    BackgroundTarget::NoRoom => {}
                }
            }
            misfits.insert(own, bytes);
        }
        let goal = self.goals.get_mut(&source).expect("the caller has it");
        self.unplaced.insert(source, std::mem::take(&mut goal.copy_bytes));
        self.read_again(now, source)
    }

    /// Plans moves that bring both nodes nearer to their share: a block that occupies twice what
    /// one has too much would only change which of them is the fuller one, and then move back.
    /// Bytes are those that a block occupies, as in the loads of nodes.
    fn plan_moves(&mut self, now: Instant, source: NodeId, tier: Tier, bytes_max: u64) -> NextTask {
        let excess = self.goals[&source].move_bytes[&tier];
        // A block that is too long for every target does not hold up the shorter ones.
        let lacks = self.lack.iter().filter(|((_, of), _)| *of == tier).map(|(_, lack)| *lack);
        let longest = excess.min(lacks.max().unwrap_or(0)).saturating_mul(2);
        if let Some(head) = self.scans[&source].next_move(tier, longest) {
            let copy = head.copy.map(|(holder, _)| holder);
            let block = (u64::from(head.reserve_bytes), copy);
            match self.fleet.choose_home(now, tier, block, &self.lack, &self.config) {
                BackgroundTarget::Go(target) => {
                    return self.gather_moves(source, (target, tier), bytes_max);
                }
                BackgroundTarget::Busy(until) => {
                    return until.map_or(NextTask::Nothing, NextTask::Wait);
                }
                BackgroundTarget::NoRoom => {}
            }
        }
        // The next view shows whether it is otherwise then.
        self.goals.get_mut(&source).expect("the caller has it").move_bytes.remove(&tier);
        self.read_again(now, source)
    }

    /// Reads a node's blocks again after none of those that are known fits anywhere: it may have
    /// others by now.
    fn read_again(&mut self, now: Instant, source: NodeId) -> NextTask {
        if let Some(scan) = self.scans.get_mut(&source) {
            scan.stuck();
        }
        self.read(now, source)
    }

    /// Takes the coldest block from a place on and those that follow it into the same batch.
    fn gather_copies(
        &mut self,
        source: NodeId,
        (target, tier): (NodeId, Tier),
        place: Coldness,
        bytes_max: u64,
    ) -> NextTask {
        let scan = self.scans.get_mut(&source).expect("the caller has it");
        let goal = self.goals.get_mut(&source).expect("the caller has it");
        let bytes_max = bytes_max.min(goal.copy_bytes);
        let purpose = MovePurpose::Precopy;
        let mut moves: Vec<Move> = Vec::new();
        let mut bytes = 0;
        while moves.len() < self.config.batch_blocks_max {
            let Some(head) = scan.coldest_from(place) else { break };
            let fits = moves.first().is_none_or(|first| {
                first.candidate.tier == head.tier && bytes + u64::from(head.length) <= bytes_max
            });
            let reserve = u64::from(head.reserve_bytes);
            if !fits || !self.fleet.take(purpose, target, tier, reserve, &self.config) {
                break;
            }
            let candidate = scan.take_coldest_from(place).expect("it was looked at");
            bytes += u64::from(candidate.length);
            moves.push(Move::from(candidate));
        }
        if moves.is_empty() {
            return NextTask::Nothing;
        }
        debug_assert!(moves.len() <= self.config.batch_blocks_max, "a batch is bounded");
        let is_alone = |one: &Move| one.candidate.copy.is_none() && !one.candidate.is_open;
        debug_assert!(moves.iter().all(is_alone), "only an ended block without a copy gets one");
        goal.copy_bytes = goal.copy_bytes.saturating_sub(bytes);
        NextTask::Batch(Batch::new(purpose, source, Choice { node: target, tier }, moves))
    }

    /// Takes the next block to move and those that follow it into the same batch.
    fn gather_moves(
        &mut self,
        source: NodeId,
        (target, tier): (NodeId, Tier),
        bytes_max: u64,
    ) -> NextTask {
        let scan = self.scans.get_mut(&source).expect("the caller has it");
        let goal = self.goals.get_mut(&source).expect("the caller has it");
        let left = goal.move_bytes.get_mut(&tier).expect("the caller has it");
        let lack = self.lack.get(&(target, tier)).copied().unwrap_or(u64::MAX);
        let bytes_max = bytes_max.min(*left).min(lack);
        let first_max = (*left).min(lack).saturating_mul(2);
        let purpose = MovePurpose::Rebalance;
        let mut moves: Vec<Move> = Vec::new();
        let mut bytes = 0;
        // Copies on the target, and what the source may hold alone without them.
        let mut in_the_way = Vec::new();
        let alone_max = self.fleet.get(source).map_or(0, |member| {
            self.config.exposure.spare_bytes(&member.info, member.is_copying).min(bytes_max)
        });
        let mut alone_left = alone_max;
        while moves.len() + in_the_way.len() < self.config.batch_blocks_max {
            let below = if bytes == 0 { first_max } else { (bytes_max + 1).saturating_sub(bytes) };
            let Some(head) = scan.next_move(tier, below) else { break };
            if head.copy.is_some_and(|(holder, _)| holder == target) {
                // A node does not get what it has a copy of. Where the block may be without one,
                // the copy goes, and the block moves after the next reading.
                let rank = MoveRank::from(head);
                let candidate = scan.take_move(tier, rank).expect("it was looked at");
                if let Some(left) = alone_left.checked_sub(u64::from(candidate.length)) {
                    alone_left = left;
                    in_the_way.push(candidate.block);
                }
                continue;
            }
            let reserve = u64::from(head.reserve_bytes);
            debug_assert!(bytes == 0 || bytes + reserve <= bytes_max);
            if !self.fleet.take(purpose, target, tier, reserve, &self.config) {
                break;
            }
            let rank = MoveRank::from(head);
            let candidate = scan.take_move(tier, rank).expect("it was looked at");
            bytes += reserve;
            moves.push(Move::from(candidate));
        }
        let is_right = |one: &Move| one.candidate.tier == tier && !one.candidate.is_open;
        debug_assert!(moves.iter().all(is_right), "balance moves ended blocks of one tier");
        debug_assert!(alone_left <= alone_max, "no more copies go than may");
        *left = left.saturating_sub(bytes);
        if let Some(lack) = self.lack.get_mut(&(target, tier)) {
            *lack = lack.saturating_sub(bytes);
        }
        let has_given_up = self.give_up(source, in_the_way, alone_max - alone_left);
        if moves.is_empty() && !has_given_up {
            return NextTask::Nothing;
        }
        NextTask::Batch(Batch::new(purpose, source, Choice { node: target, tier }, moves))
    }

    /// Uses a complete reading: drops the copies that are in the way. Returns whether it brought
    /// anything that is wished for.
    pub(super) fn use_scan(&mut self, node: NodeId) -> bool {
        let (Some(scan), Some(goal)) = (self.scans.get_mut(&node), self.goals.get_mut(&node))
        else {
            return false;
        };
        let has_copies = goal.copy_bytes > 0 && scan.coldest().is_some();
        let has_moves =
            goal.move_bytes.keys().any(|tier| scan.next_move(*tier, u64::MAX).is_some());
        let (mut blocks, mut given_up) = (Vec::new(), 0);
        for copy in scan.take_droppable() {
            let (length, bytes) = (u64::from(copy.length), u64::from(copy.bytes));
            let scarce = self.scarce.get_mut(&(copy.holder, copy.tier)).filter(|left| **left > 0);
            let is_needless = goal.needless_bytes >= length;
            let mut is_dropped = is_needless;
            if let Some(left) = scarce
                && (goal.may_relieve || is_needless)
            {
                *left = left.saturating_sub(bytes);
                is_dropped = true;
            }
            if is_dropped && blocks.len() < self.config.page_blocks_max as usize {
                goal.needless_bytes = goal.needless_bytes.saturating_sub(length);
                blocks.push(copy.block);
                given_up += length;
            }
        }
        goal.may_relieve = false;
        goal.needless_bytes = 0;
        let has_dropped = self.give_up(node, blocks, given_up);
        has_copies || has_moves || has_dropped
    }

    /// Gives the copies of these blocks of a node up, of so many bytes: until the next view
    /// contains that, they count as what it has alone. Returns whether there are any.
    fn give_up(&mut self, node: NodeId, blocks: Vec<BlockId>, bytes: u64) -> bool {
        if blocks.is_empty() {
            return false;
        }
        if let Some(member) = self.fleet.get_mut(node) {
            member.info.exposure_bytes += bytes;
        }
        let call = self.moves.call();
        self.drops.insert(call, blocks.len() as u64);
        self.moves.emit(MoveOutput::DropCopies { call, blocks });
        true
    }
}
