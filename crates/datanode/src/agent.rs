//! From what a source of notices shows to what the node does: the shell around [`Agent`], which
//! decides. A source that fails changes nothing: a notice given before stays given, and none is
//! made up.

use std::sync::Arc;

use sanderling_core::datanode::{Act, Agent, SourceReading};
use sanderling_core::notices::{NOTICE_MAX, Notice, NoticeChange, SourceHealth, is_far};
use sanderling_notices::{Acknowledge, NoticeOptions, SourceLook, SourcePoller};
use sanderling_protocol::NodeId;
use sanderling_transport::CallError;
use tokio_util::sync::CancellationToken;

use crate::counters::Counters;
use crate::membership::Membership;
use crate::namenode::failure;
use crate::notices::is_final;

/// Polls a source until the datanode stops.
pub(crate) async fn watch(
    membership: Arc<Membership>,
    counters: Arc<Counters>,
    options: NoticeOptions,
    stop: CancellationToken,
) {
    let poller = match SourcePoller::open(&options, membership.clock().since()) {
        Ok(poller) => poller,
        Err(error) => {
            let source = &options.source;
            tracing::error!(%source, %error, "notices of this source are not seen");
            return;
        }
    };
    let agent = Agent::new(options.source.name());
    let watch = Watch { membership, counters, options, poller, agent };
    tokio::select! {
        () = stop.cancelled() => {}
        () = watch.run() => {}
    }
}

/// One source and what followed from it.
struct Watch {
    membership: Arc<Membership>,
    counters: Arc<Counters>,
    options: NoticeOptions,
    poller: SourcePoller,
    agent: Agent,
}

impl Watch {
    async fn run(mut self) {
        loop {
            let look = self.poller.look().await;
            self.note(&look);
            if let Ok(seen) = look.seen
                && !self.act(seen).await
            {
                self.poller.look_again_soon();
            }
        }
    }

    /// Counts whether the source answers, and logs what a look has changed.
    fn note(&self, look: &SourceLook) {
        let source = &self.options.source;
        self.counters.set_notice_source(source, look.seen.is_ok());
        match (&look.seen, look.health) {
            (Err(error), SourceHealth::Fails) => {
                tracing::warn!(%source, %error, "the source of notices fails");
            }
            (Ok(_), SourceHealth::Answers { .. }) => {
                tracing::info!(%source, "the source of notices answers");
            }
            _ => {}
        }
        if look.change == NoticeChange::Far {
            let longest = NOTICE_MAX;
            tracing::info!(%source, %longest, "the notice is given when so much time is left");
        }
    }

    /// Does what became necessary; returns whether all of it is done.
    async fn act(&mut self, seen: SourceReading) -> bool {
        let (id, now) = (self.membership.id(), self.membership.clock().now());
        let is_near = |notice: &Notice| !is_far(now, notice.deadline);
        let is_noticed = seen.notice.as_ref().is_some_and(is_near);
        let agent = &mut self.agent;
        let acts = self.membership.remember(|notices| agent.look((id, now), &seen, notices));
        let mut is_done = true;
        for act in acts {
            is_done &= self.perform(id, act).await;
        }
        if is_noticed && is_done {
            self.acknowledge(id).await;
        }
        is_done
    }

    async fn perform(&mut self, id: NodeId, act: Act) -> bool {
        let sent_at = self.membership.clock().now();
        let source = &self.options.source;
        let nonce = self.membership.identity().nonce;
        let outcome = match (&act, act.request(sent_at, id, nonce)) {
            (Act::Give { notice, is_first }, _) => {
                if *is_first {
                    tracing::info!(%source, reason = notice.reason, node = %id, "notice");
                    self.counters.count_notice(&source.to_string());
                }
                self.membership.give_notice(notice).await.map(|_| ())
            }
            (_, Some(request)) => self.membership.namenode().call(request).await.map(|_| ()),
            (_, None) => Ok(()),
        };
        log(&self.options, id, &act, outcome.as_ref().err());
        let outcome = outcome.map_err(|error| failure(&error));
        let (agent, outcome) = (&mut self.agent, outcome.as_ref().copied());
        self.membership.remember(|notices| agent.done((id, sent_at), act, outcome, notices))
    }

    async fn acknowledge(&mut self, id: NodeId) {
        let policy = self.membership.registration().borrow().policy;
        let is_drained_only = match self.options.acknowledge {
            Acknowledge::Never => return,
            Acknowledge::AtOnce => false,
            Acknowledge::Drained => true,
        };
        if self.agent.may_acknowledge(id, policy, is_drained_only)
            && let Err(error) = self.poller.acknowledge().await
        {
            tracing::warn!(source = %self.options.source, %error, "not acknowledged");
        }
    }
}

/// Logs what came of an act.
fn log(options: &NoticeOptions, node: NodeId, act: &Act, error: Option<&CallError>) {
    let source = &options.source;
    let is_final = matches!(error, Some(CallError::Refused(refusal)) if is_final(refusal));
    match (act, error) {
        (Act::Give { .. }, Some(error)) if !is_final => {
            tracing::warn!(%node, %error, "the namenode did not receive the notice");
        }
        (Act::Give { .. }, Some(error)) => {
            tracing::warn!(%source, %node, %error, "the notice was refused");
        }
        (Act::Give { .. }, None) => {}
        (Act::TakeBack { left: Some(left), .. }, None) => {
            tracing::info!(%source, %node, left = left.source, "the notice was taken back");
        }
        (Act::TakeBack { .. }, None) => tracing::info!(%node, "the notice was taken back"),
        (Act::TakeBack { .. }, Some(error)) => {
            tracing::warn!(%node, %error, is_final, "the notice could not be taken back");
        }
        (Act::Recommend(reason), None) => {
            tracing::info!(%source, reason, %node, "recommended to leave");
        }
        (Act::Recommend(reason), Some(error)) => {
            tracing::warn!(%source, reason, %node, %error, "the recommendation was not taken");
        }
        (Act::Withdraw(_), None) => tracing::info!(%node, "the recommendation was taken back"),
        (Act::Withdraw(_), Some(error)) => {
            tracing::warn!(%node, %error, "the recommendation could not be taken back");
        }
    }
}
