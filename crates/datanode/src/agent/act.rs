//! From what a source shows to what the node does.

use std::sync::Arc;
use std::time::Duration;

use sanderling_protocol::{NodeId, NodeSelector, Policy, Request};
use sanderling_transport::CallError;
use tokio::time::{Instant, sleep};

use super::options::{Acknowledge, NoticeOptions};
use super::source::{Announced, Seen, Source, SourceError};
use crate::node::Node;
use crate::notices::is_final;

/// Pause before the namenode is told again what it did not hear.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// How much earlier a deadline must be than the one that was told before to be told as well.
const EARLIER: Duration = Duration::from_millis(500);

/// Looks at a source for as long as the datanode lives.
pub(crate) async fn watch(node: Arc<Node>, options: NoticeOptions) {
    let source = match Source::new(&options) {
        Ok(source) => source,
        Err(error) => {
            let source = &options.source;
            tracing::error!(%source, %error, "notices of this source are not seen");
            return;
        }
    };
    Watch { node, options, source, told: None, recommended: None, is_good: None }.run().await;
}

/// One source and what was made of it.
struct Watch {
    node: Arc<Node>,
    options: NoticeOptions,
    source: Source,
    /// The incarnation for which a notice was given, and its deadline.
    told: Option<(NodeId, Instant)>,
    /// The incarnation that was said to be at risk, and why.
    recommended: Option<(NodeId, String)>,
    /// Whether the last look succeeded; `None` before the first.
    is_good: Option<bool>,
}

impl Watch {
    async fn run(mut self) {
        loop {
            let pause = match self.source.look().await {
                Ok(seen) => {
                    self.note(None);
                    if self.act(seen).await { self.options.poll() } else { TELL_EVERY }
                }
                Err(error) => {
                    self.note(Some(&error));
                    self.options.poll()
                }
            };
            if pause == TELL_EVERY || !self.source.has_waited() {
                sleep(pause).await;
            }
        }
    }

    /// Says once when a source turns bad, and once when it is good again.
    fn note(&mut self, error: Option<&SourceError>) {
        let is_good = error.is_none();
        self.node.metrics.notice_source(&self.options.source.to_string(), is_good);
        if self.is_good == Some(is_good) {
            return;
        }
        let source = &self.options.source;
        match error {
            Some(error) => tracing::warn!(%source, %error, "the source of notices fails"),
            None => tracing::info!(%source, "the source of notices answers"),
        }
        self.is_good = Some(is_good);
    }

    /// Does what became necessary; tells whether all of it is done.
    async fn act(&mut self, seen: Seen) -> bool {
        let is_noticed = seen.notice.is_some();
        let mut is_done = match seen.notice {
            Some(announced) => self.give(&announced).await,
            None => self.take_back().await,
        };
        // With a notice, what was recommended is of no consequence.
        if !is_noticed {
            is_done &= match seen.recommendation {
                Some(reason) => self.recommend(reason).await,
                None => self.withdraw().await,
            };
        }
        if is_noticed && is_done {
            self.acknowledge().await;
        }
        is_done
    }

    /// Gives the notice, unless this incarnation has it. The machine dies whether or not the
    /// namenode hears of it, so writes are refused first.
    async fn give(&mut self, announced: &Announced) -> bool {
        let id = self.node.id();
        let is_told = self
            .told
            .is_some_and(|(node, deadline)| node == id && announced.deadline + EARLIER >= deadline);
        if is_told {
            return true;
        }
        let source = self.options.source.to_string();
        if self.told.is_none_or(|(node, _)| node != id) {
            tracing::info!(%source, reason = announced.reason, node = %id, "notice");
            self.node.metrics.count_notice(&source);
        }
        self.node.show(&source, announced.deadline, &announced.reason);
        match self.node.say_notice(announced.deadline, &announced.reason).await {
            Ok(_) => {
                self.told = Some((id, announced.deadline));
                true
            }
            Err(CallError::Refused(refusal)) if is_final(&refusal) => {
                self.told = Some((id, announced.deadline));
                true
            }
            Err(error) => {
                tracing::warn!(node = %id, %error, "the notice was not heard");
                // The fence stays; only the log need not say again why.
                false
            }
        }
    }

    /// Takes back the notice that this source gave.
    async fn take_back(&mut self) -> bool {
        let (id, source) = (self.node.id(), self.options.source.to_string());
        let is_told = self.told.is_some_and(|(node, _)| node == id);
        // What is remembered may have been repeated to the namenode without this one's doing.
        if !is_told && !self.node.remember(|notices| notices.shows(&source)) {
            self.told = None;
            return true;
        }
        if self.node.remember(|notices| notices.shows_beside(&source)) {
            tracing::info!(node = %id, "another source still shows a notice");
            self.node.remember(|notices| notices.hide(&source));
            self.told = None;
            return true;
        }
        match self.node.ask(Request::Cancel { node: NodeSelector::from(id) }).await {
            Ok(_) => tracing::info!(node = %id, "the notice was taken back"),
            Err(CallError::Refused(refusal)) if !is_final(&refusal) => {
                tracing::warn!(node = %id, %refusal, "the notice cannot be taken back yet");
                return false;
            }
            Err(CallError::Refused(refusal)) => {
                tracing::warn!(node = %id, %refusal, "the notice could not be taken back");
            }
            Err(error) => {
                tracing::warn!(node = %id, %error, "that the notice was taken back was not heard");
                return false;
            }
        }
        self.node.remember(|notices| notices.hide(&source));
        self.told = None;
        true
    }

    async fn recommend(&mut self, reason: String) -> bool {
        let id = self.node.id();
        if self.recommended.as_ref().is_some_and(|(node, _)| *node == id) {
            return true;
        }
        tracing::info!(source = %self.options.source, reason, node = %id, "recommended to leave");
        let source = self.options.source.to_string();
        match self.node.say_recommendation(&source, &reason).await {
            Ok(_) | Err(CallError::Refused(_)) => {
                self.recommended = Some((id, reason));
                true
            }
            Err(error) => {
                tracing::warn!(node = %id, %error, "the recommendation was not heard");
                false
            }
        }
    }

    /// Takes back the recommendation that this source gave and shows no more.
    async fn withdraw(&mut self) -> bool {
        let Some((id, reason)) = self.recommended.clone() else { return true };
        if id == self.node.id() {
            let (node, is_withdrawn) = (NodeSelector::from(id), true);
            match self.node.ask(Request::Recommend { node, reason, is_withdrawn }).await {
                Ok(_) => tracing::info!(node = %id, "the recommendation was taken back"),
                Err(CallError::Refused(refusal)) => {
                    tracing::warn!(node = %id, %refusal, "the recommendation stays");
                }
                Err(error) => {
                    tracing::warn!(node = %id, %error, "that it was taken back was not heard");
                    return false;
                }
            }
        }
        let source = self.options.source.to_string();
        self.node.remember(|notices| notices.withdraw(&source));
        self.recommended = None;
        true
    }

    async fn acknowledge(&mut self) {
        let policy = self.node.standing().borrow().policy;
        let may_go = match self.options.acknowledge {
            Acknowledge::Never => false,
            Acknowledge::AtOnce => true,
            Acknowledge::Drained => policy == Policy::Drained,
        };
        if may_go && let Err(error) = self.source.acknowledge().await {
            tracing::warn!(source = %self.options.source, %error, "not acknowledged");
        }
    }
}
