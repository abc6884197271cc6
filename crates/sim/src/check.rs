//! The checkers: what must hold at every moment, and what must hold at the end.

mod answered;
mod background;
mod blocks;
mod bytes;
mod copies;
mod damage;
mod departures;
mod end;
pub(crate) mod first;
pub(crate) mod history;
mod leader;
mod live;
mod loss;
mod losses;
mod lost_end;
mod names;
mod notices;
mod numbers;
mod once;
mod suspects;
mod tenant_turns;
mod tree;
mod view;

use sanderling_core::catalog::{Action, Applied, Command};
use sanderling_protocol::message::Layout;
use sanderling_protocol::{NodeId, Policy, Refusal, Reply, Request};

use crate::InjectedBug;
use crate::datanode::Datanode;
use crate::namenode::NamenodeHost;
use crate::plan::RunPlan;
use crate::runtime::{CheckResult, Runtime};
use crate::wire::Host;

use answered::AnsweredFrames;
use background::Backlog;
use blocks::Blocks;
use bytes::Bytes;
use copies::Copies;
use departures::Departures;
use history::{History, SearchResult};
use leader::Leader;
use live::Live;
use losses::Losses;
use lost_end::LostEnd;
use names::NameModel;
use notices::Notices;
use numbers::Numbers;
use once::{Arriving, Made};
use suspects::Suspects;
use tenant_turns::TenantTurns;
use view::View;

/// What the checkers remember. What is not private, the shells record in it themselves.
#[derive(Debug)]
pub(crate) struct Checks {
    pub(crate) bytes: Bytes,
    names: NameModel,
    pub(crate) blocks: Blocks,
    copies: Copies,
    losses: Losses,
    notices: Notices,
    pub(crate) made: Made,
    pub(crate) history: History,
    pub(crate) numbers: Numbers,
    pub(crate) leader: Leader,
    pub(crate) answered: AnsweredFrames,
    /// Of the frames of reads that take several slices.
    pub(crate) read_turns: TenantTurns,
    /// Of the frames of changes.
    pub(crate) change_turns: TenantTurns,
    lost_end: LostEnd,
    live: Live,
    pub(crate) suspects: Suspects,
    departures: Departures,
    is_kind: bool,
    applied: u64,
}

/// Commands between two looks at everything. An audit visits the whole catalog, a command a few
/// objects; more often, it would take most of a run's time. Chosen, not measured.
const AUDIT_INTERVAL: u64 = 48;

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
            answered: AnsweredFrames::default(),
            read_turns: TenantTurns::new("reads"),
            change_turns: TenantTurns::new("changes"),
            lost_end: LostEnd::default(),
            live: Live::default(),
            suspects: Suspects::default(),
            departures: Departures::new(plan.departures),
            is_kind: plan.is_kind(),
            applied: 0,
        }
    }

    /// Goes back to an empty log: every model that follows from it begins again. What was sent to
    /// clients and datanodes stays.
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

    /// Forgets the frames that a process of the namenode had received.
    pub(crate) fn restart_frames(&mut self) {
        self.answered.restart();
        self.read_turns.restart();
        self.change_turns.restart();
    }

    /// Notes that a node has answered the namenode.
    pub(crate) fn probed(&mut self, node: NodeId, now: u64) {
        self.live.saw(node, now);
    }

    /// With nothing but notices in good time, no call fails.
    pub(crate) fn failed_call(&self, runtime: &mut Runtime, what: &str, refusal: Option<&Refusal>) {
        let is_checked = runtime.bug().is_none_or(|bug| bug == InjectedBug::FailureFinal);
        if !self.is_kind || !is_checked {
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

    /// Returns how many copies were made, how many became homes, and how many homes were moved
    /// without a drain.
    pub(crate) const fn copy_counts(&self) -> [u64; 3] {
        self.copies.counts
    }

    /// Returns whether nothing but notices in good time happens in this run.
    pub(crate) const fn is_kind(&self) -> bool {
        self.is_kind
    }
}

/// The checkers at work: their memory, the servers that they look at, and where they note what they
/// find.
pub(crate) struct Checking<'a> {
    pub(crate) checks: &'a mut Checks,
    pub(crate) runtime: &'a mut Runtime,
    pub(crate) namenode: &'a NamenodeHost,
    pub(crate) datanodes: &'a [Datanode],
}

impl Checking<'_> {
    /// Returns what the checkers look at.
    const fn view(&self) -> View<'_> {
        let Self { runtime, namenode, datanodes, .. } = self;
        View { runtime, namenode, datanodes }
    }

    fn expect(&mut self, found: CheckResult) {
        self.runtime.expect(found);
    }

    /// Looks at what a command is about to change.
    pub(crate) fn before(&mut self, command: &Command) {
        let catalog = self.namenode.catalog();
        self.expect(numbers::check_time(command, catalog));
        let Action::Concat(request) = command.action.inner() else { return };
        let stat = |path| catalog.stat(path, command.at).ok();
        let parts = request.parts.iter().filter_map(stat);
        let parts = parts.map(|stat| (stat.object, stat.bytes)).collect();
        self.checks.bytes.joining(parts);
    }

    /// Looks at a command before it is applied. `asked` is the request as its sender sent it.
    pub(crate) fn arriving(&self, command: &Command, asked: Option<&Request>) -> Arriving {
        self.checks.made.arriving(self.namenode.catalog(), command, asked)
    }

    /// Checks what a command did. Returns whether it was a repeat.
    pub(crate) fn made(&mut self, arriving: Arriving, answer: &Result<Reply, Refusal>) -> bool {
        let Self { checks, runtime, namenode, datanodes } = self;
        let view = View { runtime, namenode, datanodes };
        let Some(found) = checks.made.made(view, arriving, answer) else { return false };
        self.expect(found);
        true
    }

    /// Looks at what a command did. `served_millis`: how long a namenode has served by then.
    pub(crate) fn applied(&mut self, command: &Command, applied: &Applied, served_millis: u64) {
        let statistics = self.runtime.statistics_mut();
        statistics.reaped_slices += u64::from(command.action == Action::Reap);
        self.log(command, applied, served_millis, false);
        let command = &Command { at: command.at, action: command.action.inner().clone() };
        let Checks { copies, bytes, live, .. } = &*self.checks;
        let found = copies::check_made(self.view(), copies, bytes, command)
            .and_then(|()| damage::check_founded(self.view(), command))
            .and_then(|()| self.check_deadlines(command))
            .and_then(|()| live.check_dead(self.view(), command));
        self.expect(found);
        self.checks.applied += 1;
        if self.checks.applied.is_multiple_of(AUDIT_INTERVAL) {
            self.audit();
        }
    }

    /// Looks at what a command of a log did that is read again from its beginning.
    pub(crate) fn again(&mut self, command: &Command, applied: &Applied, served_millis: u64) {
        self.log(command, applied, served_millis, true);
    }

    /// Does to the models what a command has done, and compares.
    fn log(&mut self, command: &Command, applied: &Applied, served_millis: u64, is_again: bool) {
        let Self { checks, runtime, namenode, datanodes } = self;
        let (view, catalog) = (View { runtime, namenode, datanodes }, namenode.catalog());
        let result = &applied.result;
        checks.names.served_millis = served_millis;
        let numbered = checks.numbers.apply(command, result.as_ref().ok(), catalog, is_again);
        // A change that is made once is a change like any other.
        let command = &Command { at: command.at, action: command.action.inner().clone() };
        let found = numbered
            .and_then(|()| checks.names.apply(command, result, catalog))
            .and_then(|()| checks.blocks.apply(command, result, catalog))
            .and_then(|()| checks.copies.apply(command, result, catalog))
            .and_then(|()| checks.notices.apply(command, result, catalog))
            .and_then(|()| checks.departures.apply(result, catalog));
        if let Ok(Reply::Grant(grant)) = result {
            checks.bytes.granted(grant);
        }
        let joined = match &command.action {
            Action::Concat(_) => checks.bytes.joined(result),
            _ => Ok(()),
        };
        if let Action::Recovered { lengths } = &command.action {
            checks.bytes.recovered(lengths);
        }
        checks.losses.count(view, &checks.numbers, command, result);
        self.expect(found.and(joined));
    }

    /// Looks at everything.
    fn audit(&mut self) {
        let (view, checks) = (self.view(), &*self.checks);
        let found = check_fsck(view)
            .and_then(|()| tree::check(view, &checks.names))
            .and_then(|()| loss::check(view, &checks.losses, &checks.bytes, checks.is_kind))
            .and_then(|()| copies::check_exposure(view, &checks.copies))
            .and_then(|()| copies::check_held(view, &checks.bytes, false));
        self.expect(found);
    }

    /// A node whose deadline has passed is gone, and nothing has its home there.
    fn check_deadlines(&self, command: &Command) -> CheckResult {
        let View { runtime, namenode, .. } = self.view();
        if !matches!(command.action, Action::Tick) && !self.checks.applied.is_multiple_of(8) {
            return Ok(());
        }
        let now = namenode.clock(runtime.now());
        // One batch of the namenode may lie between the deadline and its end.
        let slack = 100_000 + runtime.plan().gather_micros_max * 2;
        // A clock that jumped must be given the time to be seen.
        let since = namenode.started_at().max(runtime.skewed_at(Host::Namenode));
        // What is due is tried again when the journal takes changes again.
        let since = since.max(namenode.refused_at() + 200_000);
        // What waited for the journal comes before what excuses the time of a stop.
        let since = since.max(namenode.frozen_until());
        if runtime.now() < since + slack {
            return Ok(());
        }
        let catalog = namenode.catalog();
        for node in catalog.node_ids(false) {
            let (deadline, homes) = catalog.node_deadline(node);
            let Some(deadline) = deadline else { continue };
            let is_gone =
                catalog.node_policy(node).is_some_and(|(policy, _)| policy == Policy::Gone);
            if deadline.0 + slack < now.0 && !is_gone {
                let text = format!("node {node} holds {homes} blocks after its deadline");
                return Err(("deadline", text));
            }
        }
        Ok(())
    }

    /// Looks at an answer of the namenode that it has from a command.
    pub(crate) fn answered(&mut self, request: &Request, answer: &Result<Reply, Refusal>) {
        let request = request.inner();
        if let (Request::Manage { holder, .. }, Ok(_)) = (request, answer) {
            self.checks.leader.granted(*holder);
        }
        let found = self.checks.bytes.answered(request, answer);
        self.expect(found);
    }

    /// Looks at an answer of the namenode that it gives without a command.
    pub(crate) fn answered_at_once(&mut self, asked: &Request, answer: &Result<Reply, Refusal>) {
        let (now, reply) = (self.runtime.now(), answer.as_ref().ok());
        self.checks.live.beat(asked, reply, now);
        self.checks.suspects.answered(asked, reply, now);
        if let Err(Refusal::Full { bytes, .. }) = answer {
            // A repeat is answered as it was, though there may be room by now.
            let was_refused = self.checks.made.refused(asked);
            if !was_refused && !self.checks.made.is_repeat(asked) {
                let catalog = self.namenode.catalog();
                self.expect(first::check_full(catalog, asked.inner(), *bytes));
            }
        }
        let bug = self.runtime.bug();
        if let Some(found) = self.checks.made.check_repeated(bug, asked, answer) {
            self.expect(found);
        }
    }

    /// Looks at which nodes the namenode dials now.
    pub(crate) fn dialled(&mut self, nodes: &[NodeId]) {
        let Self { checks, runtime, namenode, datanodes } = self;
        let view = View { runtime, namenode, datanodes };
        let found = checks.suspects.dialled(view, nodes);
        self.expect(found);
    }

    /// Looks at a layout that the namenode sends.
    pub(crate) fn located(&mut self, layout: &Layout) {
        let found = self.checks.blocks.located(layout);
        self.expect(found);
    }

    /// Looks at a process that begins with this catalog.
    pub(crate) fn started(&mut self) {
        self.checks.numbers.starts(self.namenode.catalog());
        self.checks.lost_end.started(self.runtime.now());
    }

    /// Looks at an answer as it is sent.
    pub(crate) fn sent(&mut self, asked: &Request, answer: &Result<Reply, Refusal>) {
        let Checks { lost_end, numbers, .. } = &mut *self.checks;
        let found = lost_end.answered(numbers, self.runtime.now(), asked.inner(), answer);
        self.expect(found);
    }

    /// Notes that everything has gone back to what is left of the log.
    pub(crate) fn rewound(&mut self) {
        let Self { checks, runtime, namenode, datanodes } = self;
        let view = View { runtime, namenode, datanodes };
        checks.lost_end.rewound(view);
        let objects: Vec<_> = checks.bytes.objects().collect();
        for object in objects {
            let bytes = view.layout(object).map_or(0, |layout| layout.stat.bytes);
            checks.bytes.cut(object, bytes);
        }
    }

    /// Looks at a machine that is about to die of a notice.
    pub(crate) fn dies(&mut self, slot: u8) {
        let datanode = &self.datanodes[usize::from(slot)];
        let found = notices::check_kept(self.view(), datanode);
        self.expect(found);
    }

    /// Returns something of the servers' state that has not come to rest.
    pub(crate) fn unsettled(&self) -> Option<(&'static str, String)> {
        let (view, checks) = (self.view(), &*self.checks);
        let has_lost = self.runtime.statistics().lost_ends > 0;
        let lost = || {
            let held = || copies::check_held(view, &checks.bytes, true);
            // A store of the lost end may land now; the node's next report shows where it is.
            let readable = || end::check_readable(view, &checks.bytes, &checks.names);
            checks.lost_end.check(view).and_then(|()| held()).and_then(|()| readable()).err()
        };
        has_lost
            .then(lost)
            .flatten()
            .or_else(|| checks.answered.check_settled(self.runtime).err())
            .or_else(|| end::unsettled(view, &checks.bytes))
            .or_else(|| self.backlog().unsettled)
    }

    /// Returns what the background has still to do.
    pub(crate) fn backlog(&self) -> Backlog {
        background::backlog(self.view())
    }

    /// Returns a block that is damaged and not reported.
    pub(crate) fn undeclared(&self) -> Option<(&'static str, String)> {
        damage::check_declared(self.view()).err()
    }

    /// Looks at everything when it has come to rest.
    pub(crate) fn end(&mut self) {
        let view = self.view();
        let found = damage::check_declared(view).and_then(|()| self.checks.lost_end.check(view));
        self.expect(found);
        self.audit();
        let Checks { bytes, names, history, .. } = &*self.checks;
        let found = end::check_readable(self.view(), bytes, names);
        let (groups, verdict) = history.judge();
        self.expect(found);
        self.runtime.statistics_mut().histories += groups;
        match verdict {
            SearchResult::Linearizable => {}
            SearchResult::Not(why) => self.runtime.violate("linearizable", why),
            SearchResult::Unjudged => self.runtime.statistics_mut().histories_unjudged += 1,
        }
    }
}

fn check_fsck(view: View<'_>) -> CheckResult {
    match view.catalog().fsck().problems.first() {
        Some(problem) => Err(("fsck", problem.clone())),
        None => Ok(()),
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
