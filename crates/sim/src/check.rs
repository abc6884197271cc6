//! The checkers: what must hold at every moment, and what must hold at the end.

mod background;
pub(crate) mod blocks;
pub(crate) mod bytes;
pub(crate) mod copies;
mod damage;
mod departures;
mod end;
pub(crate) mod first;
pub(crate) mod history;
pub(crate) mod leader;
mod live;
pub(crate) mod loss;
pub(crate) mod losses;
mod lost_end;
pub(crate) mod names;
pub(crate) mod notices;
mod numbers;
pub(crate) mod once;
mod tree;

use sanderling_core::catalog::{Action, Applied, Command};
use sanderling_protocol::{Policy, Refusal, Reply, Request};

use crate::datanode::Datanode;
use crate::plan::RunPlan;
use crate::runtime::{CheckResult, Runtime};
use crate::wire::Host;
use crate::world::World;

use blocks::Blocks;
use bytes::Bytes;
use copies::Copies;
use departures::Departures;
use history::History;
use leader::Leader;
use live::Live;
use losses::Losses;
use lost_end::LostEnd;
use names::NameModel;
use notices::Notices;
use numbers::Numbers;
use once::Made;

/// What the checkers remember.
#[derive(Debug)]
pub(crate) struct Checks {
    pub(crate) bytes: Bytes,
    pub(crate) names: NameModel,
    pub(crate) blocks: Blocks,
    pub(crate) copies: Copies,
    pub(crate) losses: Losses,
    pub(crate) notices: Notices,
    pub(crate) made: Made,
    pub(crate) history: History,
    pub(crate) numbers: Numbers,
    pub(crate) leader: Leader,
    lost_end: LostEnd,
    live: Live,
    departures: Departures,
    is_kind: bool,
    applied: u64,
}

/// Commands between two looks at everything.
const AUDIT_EVERY: u64 = 48;

impl Checks {
    pub(crate) fn new(plan: &RunPlan) -> Self {
        Self {
            bytes: Bytes::default(),
            names: NameModel::default(),
            blocks: Blocks::default(),
            copies: Copies::new(&plan.limits.catalog),
            losses: Losses::default(),
            notices: Notices::default(),
            made: Made::default(),
            history: History::default(),
            numbers: Numbers::default(),
            leader: Leader::default(),
            lost_end: LostEnd::default(),
            live: Live::default(),
            departures: Departures::new(plan.departures),
            is_kind: plan.is_kind(),
            applied: 0,
        }
    }

    /// Goes back to an empty log: every model that follows from it begins again. What was said to
    /// clients and datanodes stays said.
    pub(crate) fn rewind(&mut self, now: u64) {
        self.bytes.rewind(now);
        self.names = NameModel::default();
        self.blocks.rewind();
        self.copies.rewind();
        self.losses = Losses::default();
        self.notices = Notices::default();
        self.made = Made::default();
        self.numbers.rewind();
        self.leader.rewind(now);
    }

    /// With nothing but notices in good time, no call fails.
    pub(crate) fn failed_call(&self, runtime: &mut Runtime, what: &str, refusal: Option<&Refusal>) {
        if !self.is_kind || runtime.broken().is_some() {
            return;
        }
        let is_own_fault = |refusal: &Refusal| {
            matches!(
                refusal,
                Refusal::NotFound { .. }
                    | Refusal::Exists { .. }
                    | Refusal::Changed { .. }
                    | Refusal::NotADirectory { .. }
                    | Refusal::IsADirectory { .. }
                    | Refusal::WrongKind { .. }
                    | Refusal::ObjectGone { .. }
                    | Refusal::LeaseEnded { .. }
                    | Refusal::SecondWriter { .. }
                    | Refusal::QuotaPassed { .. }
                    | Refusal::Full { .. }
                    | Refusal::ReserveKept { .. }
                    | Refusal::RetryAfter { .. }
            )
        };
        if !refusal.is_some_and(is_own_fault) {
            let why = refusal.map_or_else(|| "no answer".to_owned(), ToString::to_string);
            runtime.violate("calls-succeed", format!("a {what} failed with only notices: {why}"));
        }
    }

    /// Tells whether nothing but notices in good time happens in this run.
    pub(crate) const fn is_kind(&self) -> bool {
        self.is_kind
    }
}

impl World {
    /// Looks at what a command is about to change.
    pub(crate) fn check_before(&mut self, command: &Command) {
        let catalog = self.namenode.machine.catalog();
        let found = numbers::check_time(command, catalog);
        self.runtime.expect(found);
        let Action::Concat(request) = command.action.inner() else { return };
        let catalog = self.namenode.machine.catalog();
        let stat = |path| catalog.stat(path, command.at).ok();
        let parts = request.parts.iter().filter_map(stat);
        let parts = parts.map(|stat| (stat.object, stat.bytes)).collect();
        self.checks.bytes.joining(parts);
    }

    /// Looks at what a command did.
    pub(crate) fn check_applied(&mut self, command: &Command, applied: &Applied) {
        self.runtime.statistics_mut().checks += 1;
        self.runtime.statistics_mut().reaped_slices += u64::from(command.action == Action::Reap);
        self.checks.names.served_millis = self.served_millis();
        let reply = applied.result.as_ref().ok();
        let catalog = self.namenode.machine.catalog();
        let found = self.checks.numbers.apply(command, reply, catalog, false);
        self.runtime.expect(found);
        self.check_log(command, applied);
        let command = &Command { at: command.at, action: command.action.inner().clone() };
        let found = self.check_copied(command);
        self.runtime.expect(found);
        let found = self.check_damage_founded(command);
        self.runtime.expect(found);
        self.check_deadlines(command);
        self.check_dead(command);
        self.checks.applied += 1;
        if self.checks.applied.is_multiple_of(AUDIT_EVERY) {
            self.audit();
        }
    }

    /// Looks at what a command of a log did that is read again from its beginning.
    pub(crate) fn check_again(&mut self, command: &Command, applied: &Applied) {
        let reply = applied.result.as_ref().ok();
        let catalog = self.namenode.machine.catalog();
        let found = self.checks.numbers.apply(command, reply, catalog, true);
        self.runtime.expect(found);
        self.check_log(command, applied);
    }

    /// Does to the models what a command has done, and compares.
    fn check_log(&mut self, command: &Command, applied: &Applied) {
        // A change that is made once is a change like any other.
        let command = &Command { at: command.at, action: command.action.inner().clone() };
        let catalog = self.namenode.machine.catalog();
        let found = self.checks.names.apply(command, &applied.result, catalog);
        let found =
            found.and_then(|()| self.checks.blocks.apply(command, &applied.result, catalog));
        let found =
            found.and_then(|()| self.checks.copies.apply(command, &applied.result, catalog));
        let found =
            found.and_then(|()| self.checks.notices.apply(command, &applied.result, catalog));
        let found = found.and_then(|()| self.checks.departures.apply(&applied.result, catalog));
        self.runtime.expect(found);
        if let Ok(Reply::Grant(grant)) = &applied.result {
            self.checks.bytes.granted(grant);
        }
        if let Action::Concat(_) = &command.action {
            let found = self.checks.bytes.joined(&applied.result);
            self.runtime.expect(found);
        }
        if let Action::Recovered { lengths } = &command.action {
            self.checks.bytes.recovered(lengths);
        }
        self.count_losses(command, &applied.result);
    }

    /// Looks at everything.
    pub(crate) fn audit(&mut self) {
        let found = self
            .check_fsck()
            .and_then(|()| self.check_names())
            .and_then(|()| loss::check(self))
            .and_then(|()| self.check_exposure())
            .and_then(|()| self.check_copies_held(false));
        self.runtime.expect(found);
    }

    fn check_fsck(&self) -> CheckResult {
        let report = self.namenode.machine.catalog().fsck();
        match report.problems.first() {
            Some(problem) => Err(("fsck", problem.clone())),
            None => Ok(()),
        }
    }

    /// A node whose deadline has passed is gone, and nothing has its home there.
    fn check_deadlines(&mut self, command: &Command) {
        if !matches!(command.action, Action::Tick) {
            let is_due = self.checks.applied.is_multiple_of(8);
            if !is_due {
                return;
            }
        }
        let now = self.namenode.clock(self.runtime.now());
        // One turn of the namenode may lie between the deadline and its end.
        let slack = 100_000 + self.runtime.plan().turn_micros_max * 2;
        // A clock that jumped must be given the time to be seen.
        let since = self.namenode.started_at.max(self.runtime.skewed_at(Host::Namenode));
        // What is due is tried again when the journal takes changes again.
        let since = since.max(self.namenode.disk.refused_at + 200_000);
        if self.runtime.now() < since + slack {
            return;
        }
        let catalog = self.namenode.machine.catalog();
        for node in catalog.node_ids(false) {
            let (deadline, homes) = catalog.node_deadline(node);
            let Some(deadline) = deadline else { continue };
            let is_gone =
                catalog.node_policy(node).is_some_and(|(policy, _)| policy == Policy::Gone);
            if deadline.0 + slack < now.0 && !is_gone {
                let text = format!("node {node} holds {homes} blocks after its deadline");
                self.runtime.violate("deadline", text);
                return;
            }
        }
    }

    /// Looks at what the namenode answered to somebody.
    pub(crate) fn check_answer(
        &mut self,
        _from: Host,
        request: &Request,
        answer: &Result<Reply, Refusal>,
    ) {
        let request = request.inner();
        if let (Request::Manage { holder, .. }, Ok(_)) = (request, answer) {
            self.checks.leader.granted(*holder);
        }
        let found = self.checks.bytes.answered(request, answer);
        self.runtime.expect(found);
    }
}

/// A datanode never holds more than it has room for.
pub(crate) fn room(datanode: &Datanode) -> CheckResult {
    let (used, capacity) = datanode.room();
    if used[0] <= capacity[0] && used[1] <= capacity[1] {
        return Ok(());
    }
    Err(("capacity", format!("{} holds {used:?} bytes of {capacity:?}", datanode.host())))
}
