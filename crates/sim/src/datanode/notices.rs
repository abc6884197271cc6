//! What a simulated datanode remembers of its notices, and sends again: by the same machine as the
//! real one. It counts by virtual time, as a process does by a clock that does not jump.

use sanderling_core::datanode::{Act, CallFailure, SourceReading, repeat};
use sanderling_core::notices::{Notice, NoticeReport, Notices};
use sanderling_protocol::{Instant, Millis, NodeId, Reply};

use super::Datanode;
use super::cloud::SOURCE;
use super::member::outcome;
use crate::InjectedBug;
use crate::context::Context;
use crate::event::{DatanodeCall, Timer};
use crate::wire::Response;

/// Time between two looks of the agent. The product's file is read every 200 ms; twice as often,
/// because notices are shorter here.
const LOOK_MICROS: u64 = 100_000;

impl Datanode {
    /// The machine's cloud shows a notice to its agent. `is_kept`: the machine ends by it.
    pub(crate) fn own_notice(
        &mut self,
        context: &mut Context<'_>,
        deadline_millis: u64,
        is_kept: bool,
    ) {
        let deadline = context.runtime.monotonic() + Millis(deadline_millis);
        if self.node.is_none() {
            return;
        }
        let source = &mut self.source;
        let (source_name, reason) = (SOURCE.to_owned(), "spot".to_owned());
        let notice = Notice { source: source_name, deadline, reason };
        // Of several the cloud shows the one that comes first.
        if source.seen.notice.as_ref().is_none_or(|before| deadline < before.deadline) {
            source.seen.notice = Some(notice);
        }
        source.is_kept |= is_kept;
        self.look(context);
    }

    /// The machine's cloud recommends to leave it.
    pub(crate) fn own_risk(&mut self, context: &mut Context<'_>) {
        if self.node.is_some() {
            self.source.seen.recommendation = Some("rebalance recommendation".to_owned());
            self.look(context);
        }
    }

    /// The machine's cloud takes back what it shows, unless the machine ends by it. Returns whether
    /// it did.
    pub(crate) fn own_cancel(&mut self, context: &mut Context<'_>) -> bool {
        let source = &mut self.source;
        if source.is_kept || source.seen == SourceReading::default() {
            return false;
        }
        source.seen = SourceReading::default();
        self.look(context);
        true
    }

    /// The agent looks at what the cloud shows, as it does again and again.
    pub(super) fn look(&mut self, context: &mut Context<'_>) {
        let now = context.runtime.monotonic();
        let Some(id) = self.node.filter(|_| self.source.acts.is_empty()) else {
            return self.look_again(context);
        };
        let source = &mut self.source;
        source.is_undone = false;
        // A machine that is there after the deadline was not taken.
        source.seen.notice.take_if(|notice| !source.is_kept && notice.deadline <= now);
        let look = |notices: &mut Notices| source.agent.look((id, now), &source.seen, notices);
        let acts = self.member.registration_mut().remember(now, look);
        self.follow_member();
        self.source.acts = acts.into();
        self.act(context);
    }

    fn look_again(&mut self, context: &mut Context<'_>) {
        let source = &mut self.source;
        let must_look = source.seen != SourceReading::default() || source.is_undone;
        if must_look && !std::mem::replace(&mut source.is_look_set, true) {
            context.runtime.set_timer(self.host(), LOOK_MICROS, Timer::Look);
        }
    }

    /// Begins the next act of the agent.
    fn act(&mut self, context: &mut Context<'_>) {
        let now = context.runtime.monotonic();
        let (Some(id), Some(act)) = (self.node, self.source.acts.front().cloned()) else {
            self.source.acts.clear();
            return self.look_again(context);
        };
        let mut report = None;
        if let Act::Give { notice, is_first } = &act {
            if *is_first {
                self.noticed_at = Some(context.runtime.now());
            }
            report = Some(self.member.registration_mut().remember(now, |notices| {
                notices.sent(now);
                notices.report_of(notice)
            }));
        }
        let nonce = self.member.nonce();
        let again = report.as_ref().map(|report| repeat::request(report, now, id, nonce));
        let Some(request) = again.or_else(|| act.request(now, id, nonce)) else { return };
        let act = Box::new((now, id, act, report));
        self.call(context, request, DatanodeCall::Act(act));
    }

    pub(super) fn act_answered(
        &mut self,
        context: &mut Context<'_>,
        (asked_at, id, act, report): (Instant, NodeId, Act, Option<NoticeReport>),
        answer: Option<Response>,
    ) {
        if let Some(report) = report {
            self.notice_answered(context, (asked_at, report), answer.clone());
        }
        let is_forgotten = context.runtime.has_bug(InjectedBug::NoticeForgotten);
        let outcome = outcome(answer)
            .map(|_| ())
            .or_else(|failure| if is_forgotten { Ok(()) } else { Err(failure) });
        let now = context.runtime.monotonic();
        let source = &mut self.source;
        source.acts.pop_front();
        let outcome = outcome.as_ref().copied();
        let done = |notices: &mut Notices| {
            source.is_undone |= !source.agent.done((id, asked_at), act, outcome, notices);
        };
        self.member.registration_mut().remember(now, done);
        self.follow_member();
        self.act(context);
    }

    /// Sends a notice that the namenode does not have, or does not have any more; `is_round`: in
    /// its turn. Returns whether there is one.
    pub(super) fn send_notice(&mut self, context: &mut Context<'_>, is_round: bool) -> bool {
        let now = context.runtime.monotonic();
        let Some(id) = self.node else { return false };
        let report =
            self.member.registration_mut().remember(now, |notices| notices.next_report(now));
        self.follow_member();
        let Some(report) = report else { return false };
        let request = repeat::request(&report, now, id, self.member.nonce());
        let sent = Box::new((now, report));
        self.call(context, request, DatanodeCall::Repeat { sent, is_round });
        true
    }

    pub(super) fn notice_answered(
        &mut self,
        context: &mut Context<'_>,
        (asked_at, report): (Instant, NoticeReport),
        answer: Option<Response>,
    ) {
        let info = match outcome(answer) {
            Ok(Reply::Node(info)) => Ok(info),
            Ok(_) => Err(CallFailure::Broken),
            Err(failure) => Err(failure),
        };
        let now = context.runtime.monotonic();
        let outcome = repeat::reply(now, info.as_ref().map(|info| &**info));
        self.member.registration_mut().notice_answered(now, asked_at, &report, outcome);
        self.follow_member();
    }
}
