//! A drain over a link that carries so much and no more: it is kept full, the deadline is kept, and
//! clients go first while there is time.

use std::collections::BTreeMap;

use sanderling_protocol::message::{DrainWork, MoveCandidate};
use sanderling_protocol::order::Pushed;
use sanderling_protocol::{BlockId, Epoch, Instant, Millis, NodeId, Policy};

use super::super::*;
use super::{blocks, node};

const MIB: u64 = 1 << 20;

/// A draining node 0 whose pushes share one link, and three targets.
struct Link {
    now: Instant,
    relocator: Relocator,
    deadline: Option<Instant>,
    left: BTreeMap<BlockId, MoveCandidate>,
    bytes_per_second: u64,
    /// What clients read from the node, beside the pushes.
    clients_bytes_per_second: u64,
    read_bytes_total: u64,
    /// When the link has sent everything that was given to it.
    free_at: Instant,
    answers: BTreeMap<(Instant, u64), Input>,
    sent: u64,
    view_at: Instant,
    began: Instant,
    /// Bytes and end of every push.
    pushes: Vec<(u64, Instant)>,
    /// Blocks in the order in which they left.
    moved: Vec<BlockId>,
}

impl Link {
    const START: Instant = Instant(1_000_000);

    fn new(blocks: impl IntoIterator<Item = MoveCandidate>, bytes_per_second: u64) -> Self {
        Self {
            now: Self::START,
            relocator: Relocator::new(RelocatorConfig::default()),
            deadline: None,
            left: blocks.into_iter().map(|block| (block.block, block)).collect(),
            bytes_per_second,
            clients_bytes_per_second: 0,
            read_bytes_total: 0,
            free_at: Self::START,
            answers: BTreeMap::new(),
            sent: 0,
            view_at: Self::START,
            began: Self::START,
            pushes: Vec::new(),
            moved: Vec::new(),
        }
    }

    fn with_deadline(mut self, left: Millis) -> Self {
        self.deadline = Some(self.now + left);
        self
    }

    fn view(&mut self, is_draining: bool) {
        let mut nodes: Vec<_> = (0..4).map(|id| node(id, 1 << 40)).collect();
        nodes[0].load.read_bytes_total = self.read_bytes_total;
        if is_draining {
            nodes[0].policy = Policy::Draining;
        }
        let work = DrainWork {
            node: NodeId(0),
            address: "source:1".to_owned(),
            deadline_in: self.deadline.map(|deadline| self.now.until(deadline)),
            left_blocks: self.left.len() as u64,
            left_bytes: self.left.values().map(|block| u64::from(block.length)).sum(),
        };
        let drains = if is_draining && !self.left.is_empty() { vec![work] } else { Vec::new() };
        self.relocator.handle(self.now, Input::Drains { drains, nodes });
    }

    /// Two heartbeats pass before the notice comes.
    fn look_before(&mut self) {
        for _ in 0..2 {
            self.view(false);
            self.read_bytes_total += self.clients_bytes_per_second / 2;
            self.now = self.now + Millis(500);
        }
        self.deadline = self.deadline.map(|deadline| deadline + Millis(1_000));
        (self.view_at, self.free_at, self.began) = (self.now, self.now, self.now);
    }

    /// Runs until everything has left or the deadline passes; returns how long that took.
    fn run(&mut self, mut at: impl FnMut(&mut Self)) -> Millis {
        while !self.left.is_empty() && self.deadline.is_none_or(|deadline| self.now < deadline) {
            at(self);
            if self.view_at <= self.now {
                self.view_at = self.now + Millis(50);
                self.view(true);
            }
            while let Some(output) = self.relocator.poll_output() {
                self.perform(output);
            }
            let answer = self.answers.first_key_value().map(|((at, _), _)| *at);
            let due = [answer, self.relocator.deadline(), Some(self.view_at), self.deadline];
            let next = due.into_iter().flatten().min().unwrap().max(Instant(self.now.0 + 100));
            self.read_bytes_total +=
                self.clients_bytes_per_second * (next.0 - self.now.0) / 1_000_000;
            self.now = next;
            while let Some(entry) = self.answers.first_entry() {
                if entry.key().0 > self.now {
                    break;
                }
                let answer = entry.remove();
                self.relocator.handle(self.now, answer);
            }
            self.relocator.handle_deadline(self.now);
        }
        self.now.since(self.began)
    }

    fn perform(&mut self, output: MoveOutput) {
        let round = self.now + Millis(2);
        let (at, input) = match output {
            MoveOutput::Forecast { .. } => return,
            MoveOutput::Fetch { node, after, limit } => {
                let all = self.left.values().filter(|block| block.block > after);
                let page: Vec<_> = all.take(limit as usize).cloned().collect();
                (round, Input::Candidates { node, page: Some((page, false)) })
            }
            MoveOutput::Reserve { call, moves } => {
                let epochs = Some(vec![Ok(Epoch(2)); moves.len()]);
                (round, Input::Reserved { call, epochs })
            }
            MoveOutput::Push { call, moves, .. } => {
                let lengths = moves.iter().map(|one| self.left[&one.block].length);
                let outcomes: Vec<_> = lengths.map(|length| Ok(Pushed { length })).collect();
                let bytes: u64 =
                    outcomes.iter().flatten().map(|pushed| u64::from(pushed.length)).sum();
                let micros = bytes * 1_000_000 / self.bytes_per_second;
                self.free_at = Instant(self.free_at.max(self.now).0 + micros);
                self.pushes.push((bytes, self.free_at));
                (self.free_at + Millis(1), Input::Pushed { call, outcomes: Some(outcomes) })
            }
            MoveOutput::Commit { call, moves } => {
                for one in &moves {
                    self.left.remove(&one.block);
                    self.moved.push(one.block);
                }
                let epochs = Some(vec![Ok(Epoch(2)); moves.len()]);
                (round, Input::Committed { call, epochs })
            }
            MoveOutput::Abandon { call, .. } => (round, Input::Abandoned { call, is_done: true }),
            other => panic!("a relocator does not request {other:?}"),
        };
        self.sent += 1;
        self.answers.insert((at, self.sent), input);
    }
}

#[test]
fn link_is_full_from_the_first_to_the_last_block() {
    for (bytes_per_second, count) in [(5 * MIB, 50), (50 * MIB, 500), (1000 * MIB, 8000)] {
        let mut link = Link::new(blocks(count, 1 << 20), bytes_per_second);
        let took = link.run(|_| {});
        let least = count * MIB * 1000 / bytes_per_second;
        assert!(took.0 < least + least / 8, "{took}, at least {least} ms");
    }
}

#[test]
fn many_small_blocks_leave_at_the_rate_of_the_link() {
    let mut link = Link::new(blocks(20_000, 4 << 10), 20 * MIB);
    let took = link.run(|_| {});
    assert!(took < Millis(4_500), "{took} for four seconds of bytes");
}

#[test]
fn as_much_as_the_link_carries_leaves_before_the_deadline_and_the_dearest_first() {
    let dear = |mut block: MoveCandidate| {
        if block.block.0.is_multiple_of(4) {
            block.recompute_millis_per_mib = 1000;
        }
        block
    };
    let link = Link::new(blocks(400, 1 << 20).map(dear), 50 * MIB);
    let mut link = link.with_deadline(Millis(3_000));
    link.run(|_| {});
    assert!(link.moved.len() >= 135, "{} of at most 150 blocks left", link.moved.len());
    let first = &link.moved[..100];
    assert!(first.iter().all(|block| block.0.is_multiple_of(4)), "{first:?}");
}

#[test]
fn push_that_cannot_end_before_the_deadline_is_not_begun() {
    let mut in_vain = 0;
    for millis in (3_000..3_200).step_by(10) {
        let mut link = Link::new(blocks(40, 1 << 20), 5 * MIB).with_deadline(Millis(millis));
        link.run(|_| {});
        let deadline = link.deadline.unwrap();
        in_vain += link.pushes.iter().filter(|(_, end)| *end > deadline).count();
    }
    // A link may turn out to be a little faster than it was: that much is tried.
    assert!(in_vain <= 6, "{in_vain} pushes of twenty drains were begun in vain");
}

/// What a link carries in the two seconds after it was measured, with clients or without.
fn sent_early(clients: u64, left: Millis) -> u64 {
    let mut link = Link::new(blocks(400, 1 << 20), 100 * MIB).with_deadline(left);
    link.clients_bytes_per_second = clients;
    link.look_before();
    let (from, until) = (link.now + Millis(500), link.now + Millis(2_500));
    link.run(|_| {});
    let early = link.pushes.iter().filter(|(_, end)| *end > from && *end <= until);
    assert!(link.left.is_empty(), "{} blocks are late", link.left.len());
    early.map(|(bytes, _)| bytes).sum()
}

#[test]
fn clients_go_first_while_there_is_time_and_no_longer() {
    let ample = Millis(60_000);
    assert!(sent_early(0, ample) > 180 * MIB);
    let yielding = sent_early(80 * MIB, ample);
    assert!((80 * MIB..120 * MIB).contains(&yielding), "{yielding} in two seconds");
    let few = sent_early(10 * MIB, ample);
    assert!((150 * MIB..190 * MIB).contains(&few), "{few} in two seconds");
    assert!(sent_early(80 * MIB, Millis(8_000)) > 180 * MIB, "the deadline goes before clients");
}

#[test]
fn drain_that_yielded_makes_its_deadline_on_a_link_that_becomes_three_times_slower() {
    let mut link = Link::new(blocks(300, 1 << 20), 60 * MIB).with_deadline(Millis(18_000));
    link.clients_bytes_per_second = 40 * MIB;
    link.look_before();
    let slow_from = link.now + Millis(2_000);
    link.run(|link| {
        if link.now > slow_from {
            link.bytes_per_second = 20 * MIB;
        }
    });
    assert!(link.left.is_empty(), "{} blocks are late", link.left.len());
}
