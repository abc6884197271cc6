//! The injected bugs around the namenode: see [`InjectedBug`].
//!
//! `core` is never changed. A bug rewrites what goes into the machine or what comes out of it,
//! or the journal between two processes.

mod copies;

use std::collections::BTreeMap;

use sanderling_core::catalog::{Action, Applied, Command, DatanodeOrder};
use sanderling_core::namenode::{Prepared, Probe};
use sanderling_protocol::limits::BLOCK_BYTES_MAX;
use sanderling_protocol::message::{
    Change, Create, Heartbeat, HeartbeatReply, Join, MoveCommit, MoveProposal, MovePurpose,
    ObjectKind, Once,
};
use sanderling_protocol::{
    BlockId, Instant, NodeId, Nonce, Order, OrderReply, Path, Policy, Refusal, Reply, Request, Tier,
};

use super::{NamenodeHost, NamenodeWork};
use crate::InjectedBug;
use crate::wire::{FrameTenant, Host};

/// How long an answer is given again by a namenode that keeps answers. Longer than a client's first
/// pauses, so that a repeat receives it, shorter than a call.
const STALE_MICROS: u64 = 300_000;

/// What the injected bugs must remember.
#[derive(Debug, Default)]
pub(super) struct InjectedBugState {
    /// The last writer of each path.
    writers: BTreeMap<Path, Nonce>,
    /// The tier of every move that was ever reserved.
    tiers: BTreeMap<(BlockId, NodeId), Tier>,
    copies: copies::CopyBugState,
    /// The manager that has the lease.
    holder: Option<Nonce>,
    /// What was answered to callers, and when.
    answered: BTreeMap<String, (u64, Result<Reply, Refusal>)>,
}

impl NamenodeHost {
    pub(super) fn bug_request(&mut self, request: Request, now: u64) -> Request {
        match request {
            Request::Once(once) => {
                let request = once.change.clone().into_request();
                let change = Change::new(self.bug_plain_request(request, now));
                Request::Once(Box::new(Once { change, ..*once }))
            }
            request => self.bug_plain_request(request, now),
        }
    }

    fn bug_plain_request(&mut self, mut request: Request, now: u64) -> Request {
        if self.has_bug(InjectedBug::SecondWriter)
            && let Request::Append { path, writer } = &mut request
        {
            *writer = self.bugs.writers.get(path).copied().unwrap_or(*writer);
        }
        if let Request::Join(join) = &mut request {
            self.bug_join(join);
        }
        if self.has_bug(InjectedBug::CommitWithoutCompare)
            && let Request::Commit { moves, .. } = &mut request
        {
            self.bug_commit(moves, now);
        }
        if self.has_bug(InjectedBug::StaleCopy)
            && let Request::Commit { moves, .. } = &mut request
        {
            self.bug_stale_copy(moves);
        }
        request
    }

    /// Takes every move for one that was reserved just now.
    fn bug_commit(&mut self, moves: &mut [MoveCommit], now: u64) {
        let now = self.clock(now);
        for one in moves {
            let Some((Some(home), epoch)) = self.catalog().block_home(one.block) else {
                continue;
            };
            let tier = self.bugs.tiers.get(&(one.block, one.to)).copied();
            let (Some(holder), Some(tier)) = (self.bugs.holder, tier) else { continue };
            if home == one.to {
                continue;
            }
            one.from_epoch = epoch;
            let to = one.to;
            // Of a move that is still reserved this changes nothing.
            let moves = vec![MoveProposal {
                block: one.block,
                from_epoch: epoch,
                to,
                tier,
                purpose: MovePurpose::Relocate,
            }];
            let action = Action::Reserve { holder, moves };
            let reserved = self.bug_apply(Command { at: now, action });
            if let Ok(Reply::Epochs(epochs)) = reserved
                && let Some(Ok(epoch)) = epochs.first()
            {
                one.to_epoch = *epoch;
            }
        }
    }

    /// Applies a command that no process gets an answer to.
    fn bug_apply(&mut self, command: Command) -> Result<Reply, Refusal> {
        self.journal.push(command.clone());
        self.machine.apply(&command).result
    }

    /// Keeps the room that copies and reservations take.
    pub(super) fn bug_prepared(&self, prepared: Prepared) -> Prepared {
        match prepared {
            Prepared::Log(Command { action: Action::MakeRoom { .. }, .. })
                if self.has_bug(InjectedBug::RoomKept) =>
            {
                let (bytes, class) = (u64::from(BLOCK_BYTES_MAX), "dram".to_owned());
                Prepared::Answer(Err(Refusal::Full { bytes, class }))
            }
            prepared => prepared,
        }
    }

    pub(super) fn bug_command(&mut self, mut command: Command) -> Command {
        if self.has_bug(InjectedBug::ChangedTwice)
            && let Action::Once(once) = &mut command.action
        {
            // As if no answer was ever found under its sequence.
            once.sequence += (self.commands() + 1) << 32;
        }
        if let Action::Reserve { moves, .. } = &command.action {
            let tiers = moves.iter().map(|one| ((one.block, one.to), one.tier));
            self.bugs.tiers.extend(tiers);
        }
        if self.has_bug(InjectedBug::PlaceOnDraining)
            && let Action::Create { placed, .. }
            | Action::Append { placed, .. }
            | Action::AddBlocks { placed, .. } = command.action.inner_mut()
        {
            let catalog = self.catalog();
            let is_draining = |node: &NodeId| {
                let policy = catalog.node_policy(*node).map(|(policy, _)| policy);
                policy.is_some_and(Policy::is_draining)
            };
            if let Some(draining) = catalog.node_ids(false).into_iter().find(is_draining) {
                placed.iter_mut().for_each(|place| place.node = draining);
            }
        }
        command
    }

    /// Makes the catalog take draining nodes for active ones while it takes new blocks; returns
    /// what makes them drain again.
    fn bug_undrain(&mut self, command: &Command) -> Vec<Command> {
        let (Action::Create { placed, .. }
        | Action::Append { placed, .. }
        | Action::AddBlocks { placed, .. }) = command.action.inner()
        else {
            return Vec::new();
        };
        let mut again = Vec::new();
        for node in placed.iter().map(|place| place.node) {
            let policy = self.catalog().node_policy(node).map(|(policy, _)| policy);
            if !policy.is_some_and(Policy::is_draining) {
                continue;
            }
            let action = Action::Cancel { node };
            let _ = self.bug_apply(Command { at: command.at, action });
            let action = Action::Decommission { node, reason: String::new() };
            again.push(Command { at: command.at, action });
        }
        again
    }

    /// Returns the command that is taken for this one.
    fn bug_other(&self, command: &Command) -> Option<Command> {
        let mut other = command.clone();
        match (self.bug?, other.action.inner_mut()) {
            (InjectedBug::ConditionIgnored, Action::Create { request, .. }) => {
                request.condition = None
            }
            (InjectedBug::PartsSwapped, Action::Concat(request)) => request.parts.reverse(),
            _ => return None,
        }
        Some(other)
    }

    /// Applies a command, with the injected bugs that lie around it.
    pub(super) fn bug_around(&mut self, command: &Command) -> Applied {
        let is_draining = self.has_bug(InjectedBug::PlaceOnDraining);
        let after = if is_draining { self.bug_undrain(command) } else { Vec::new() };
        let applied = if self.bug.is_some_and(InjectedBug::is_about_copies) {
            self.bug_copies(command)
        } else {
            let other = self.bug_other(command);
            self.machine.apply(other.as_ref().unwrap_or(command))
        };
        for command in after {
            let _ = self.bug_apply(command);
        }
        applied
    }

    pub(super) fn bug_due(&mut self, mut due: Vec<Command>) -> Vec<Command> {
        if self.has_bug(InjectedBug::DeadlineIgnored) {
            due.retain(|command| command.action != Action::Tick);
        }
        due
    }

    pub(crate) fn bug_answer(
        &self,
        request: &Request,
        answer: Result<Reply, Refusal>,
    ) -> Result<Reply, Refusal> {
        match (request.inner(), answer) {
            (Request::Report, Ok(Reply::Report(mut report)))
                if self.has_bug(InjectedBug::LossNotReported) =>
            {
                report.losses.pop();
                Ok(Reply::Report(report))
            }
            (Request::BlockReport { blocks: held, .. }, Ok(Reply::Drop { mut blocks }))
                if self.has_bug(InjectedBug::OrphansDropped) =>
            {
                let unknown = held.iter().map(|held| held.block);
                blocks.extend(unknown.filter(|it| self.catalog().block_home(*it).is_none()));
                Ok(Reply::Drop { blocks })
            }
            (request, Ok(mut reply)) => {
                self.bug_copy_answer(request, &mut reply);
                Ok(reply)
            }
            (_, answer) => answer,
        }
    }

    /// Answers a caller what it would have been answered a while ago.
    pub(super) fn bug_stale(
        &mut self,
        from: Host,
        request: &Request,
        answer: Result<Reply, Refusal>,
        now: u64,
    ) -> Result<Reply, Refusal> {
        if !self.has_bug(InjectedBug::StaleRead) || !matches!(from, Host::Caller(_)) {
            return answer;
        }
        let answers = &mut self.bugs.answered;
        let (at, known) = answers.entry(format!("{request:?}")).or_insert((now, answer.clone()));
        if *at + STALE_MICROS < now {
            (*at, *known) = (now, answer);
        }
        known.clone()
    }

    pub(super) fn bug_applied(
        &mut self,
        command: &Command,
        mut applied: Applied,
        now: u64,
    ) -> Applied {
        if let (Action::Manage { holder, .. }, Ok(_)) = (&command.action, &applied.result) {
            self.bugs.holder = Some(*holder);
        }
        if self.has_bug(InjectedBug::SecondWriter)
            && let Ok(Reply::Grant(_)) = &applied.result
            && let Action::Append { path, writer, .. }
            | Action::Create { request: Create { path, writer, .. }, .. } =
                command.action.inner()
        {
            self.bugs.writers.insert(path.clone(), *writer);
        }
        if self.has_bug(InjectedBug::CopyDropForgotten) {
            self.bug_drops(&mut applied);
        }
        if self.has_bug(InjectedBug::KeyValueVanishes) {
            self.bug_key_value(command, &applied);
        }
        if self.has_bug(InjectedBug::LateCommit) {
            self.bug_late_commit(command, &applied, now);
        }
        applied
    }

    /// Takes the orders to fence blocks out, and returns what is taken for their replies.
    pub(super) fn bug_fences(&self, applied: &mut Applied) -> Vec<(DatanodeOrder, OrderReply)> {
        let mut replies = Vec::new();
        if !self.has_bug(InjectedBug::LeaseNotFenced) {
            return replies;
        }
        let orders = std::mem::take(&mut applied.orders);
        for order in orders {
            let Order::FenceBlocks { blocks } = &order.order else {
                applied.orders.push(order);
                continue;
            };
            let lengths = vec![u32::MAX; blocks.len()];
            replies.push((order, OrderReply::Fenced(lengths)));
        }
        replies
    }

    fn bug_key_value(&mut self, command: &Command, applied: &Applied) {
        let (Action::Seal { .. }, Ok(Reply::Stat(stat))) =
            (command.action.inner(), &applied.result)
        else {
            return;
        };
        if stat.kind == ObjectKind::KeyValue {
            let path: Path = stat.path.clone();
            let action = Action::Delete { path, recursive: false };
            let _ = self.bug_apply(Command { at: command.at, action });
        }
    }

    /// Writes a commit that came too late into the journal before the loss, and starts from there.
    fn bug_late_commit(&mut self, command: &Command, applied: &Applied, now: u64) {
        let (Action::Commit { moves, .. }, Ok(Reply::Epochs(epochs))) =
            (&command.action, &applied.result)
        else {
            return;
        };
        let catalog = self.catalog();
        let is_lost = |one: &MoveCommit| matches!(catalog.block_home(one.block), Some((None, _)));
        let mut pairs = moves.iter().zip(epochs);
        let Some((late, _)) = pairs.find(|(one, epoch)| epoch.is_err() && is_lost(one)) else {
            return;
        };
        let (late, now) = (*late, self.clock(now));
        let whole = self.journal.clone();
        let ends = |command: &Command| {
            matches!(
                command.action,
                Action::Tick | Action::NodeDead { .. } | Action::Register(_) | Action::Join(_)
            )
        };
        for place in (0..whole.len()).rev().filter(|place| ends(&whole[*place])).take(4) {
            let mut journal = whole.clone();
            let at = whole[place - 1].at;
            journal.insert(place, Command { at, action: command.action.clone() });
            self.journal = journal;
            let machine = self.replay_all(now);
            if matches!(machine.catalog().block_home(late.block), Some((Some(_), _))) {
                self.machine = machine;
                self.write_snapshot();
                return;
            }
        }
        self.journal = whole;
    }

    /// A broken namenode takes all tenants' frames of changes for one tenant's.
    pub(super) fn bug_tenant(&self, tenant: FrameTenant) -> FrameTenant {
        let is_shared = self.has_bug(InjectedBug::ChangesUnshared);
        if is_shared { FrameTenant::Owner(u8::MAX) } else { tenant }
    }

    /// A broken namenode counts the time in which it was stopped.
    pub(super) fn bug_absence(&self, command: Command) -> Option<Command> {
        let is_counted = self.has_bug(InjectedBug::AbsenceCounted);
        (!is_counted).then_some(command)
    }

    /// A broken namenode begins with the numbers that its log ends with.
    pub(super) fn bug_begun(&self, mut begun: Vec<Command>) -> Vec<Command> {
        for command in &mut begun {
            if let Action::BeginTerm { skip, .. } = &mut command.action
                && self.has_bug(InjectedBug::NumbersReused)
            {
                *skip = 0;
            }
        }
        begun
    }

    /// A broken namenode takes its machine's clock as it is.
    pub(super) fn bug_clock(&self, wall: Instant) -> Option<Instant> {
        self.has_bug(InjectedBug::ClockStepTaken).then_some(wall)
    }

    /// What a broken namenode reads of the request of a datanode that joins.
    fn bug_join(&self, join: &mut Join) {
        if self.has_bug(InjectedBug::LostEndIgnored) {
            join.seen = None;
        }
        if self.has_bug(InjectedBug::TermIgnored)
            && let Some(seen) = &mut join.seen
            && let Some(here) = self.catalog().position()
        {
            seen.term = here.term;
        }
    }

    /// A broken namenode answers a heartbeat and does not count it.
    pub(super) fn bug_beat(&self, request: &Request, now: u64) -> Option<Result<Reply, Refusal>> {
        let Request::Beat(Heartbeat { node, .. }) = request else { return None };
        if !self.has_bug(InjectedBug::LiveNodeIgnored) {
            return None;
        }
        let (now, catalog) = (self.clock(now), self.catalog());
        let (policy, _) = catalog.node_policy(*node)?;
        let (deadline, home_blocks) = catalog.node_deadline(*node);
        let deadline_in = deadline.map(|at| now.until(at));
        let heartbeat = HeartbeatReply { policy, deadline_in, home_blocks };
        let is_gone = policy == Policy::Gone;
        (!is_gone).then(|| Ok(Reply::Beat { heartbeat, position: catalog.position() }))
    }

    /// A broken namenode takes a client's report of a node for the node's end, or ignores it.
    pub(super) fn bug_suspect(&mut self, request: &Request) -> Option<Result<Reply, Refusal>> {
        let Request::Suspect { node } = request else { return None };
        if self.has_bug(InjectedBug::SuspectBelieved) {
            self.inbox.push(NamenodeWork::Probed(*node, Probe::Refused));
        }
        self.has_bug(InjectedBug::SuspectIgnored).then_some(Ok(Reply::Done))
    }

    /// A broken namenode takes a probe that was answered for one that was not.
    pub(super) fn bug_probe(&self, outcome: Probe) -> Probe {
        if self.has_bug(InjectedBug::LiveNodeIgnored) { Probe::Timeout } else { outcome }
    }

    /// What a broken namenode forgets between two processes.
    pub(super) fn bug_forget(&mut self) {
        if self.has_bug(InjectedBug::JournalEntryDropped) {
            self.forget_last();
        }
        if self.has_bug(InjectedBug::EpochReused) {
            self.forget_reservations();
        }
    }
}
