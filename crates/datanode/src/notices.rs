//! The node's notices and recommendations: given to the namenode, and again when it lost them.
//! `core` decides what is remembered and repeated.

use sanderling_core::datanode::repeat;
pub(crate) use sanderling_core::datanode::repeat::is_final;
use sanderling_core::notices::{Notice, NoticeReport, check_left};
use sanderling_protocol::{self as protocol, Millis, NodeInfo, NodeSelector, Refusal};
use sanderling_protocol::{Reply, Request};
use sanderling_transport::CallError;

use crate::membership::Membership;
use crate::namenode::failure;

impl Membership {
    /// Gives the node its notice: the only way in, for the agent, SIGTERM and HTTP alike. It fences
    /// the node before it sends the notice to the namenode, because the machine ends whether or not
    /// the namenode receives it. The datanode repeats a notice that failed here by itself.
    ///
    /// # Errors
    /// The namenode rejected the notice ([`is_final`]: for good), or did not answer.
    pub(crate) async fn give_notice(&self, notice: &Notice) -> Result<NodeInfo, CallError> {
        let now = self.clock().now();
        let report = self.remember(|notices| {
            notices.show(notice);
            notices.sent(now);
            notices.report_of(notice)
        });
        self.send(report).await
    }

    /// Gives the namenode a recommendation and remembers it.
    pub(crate) async fn give_recommendation(
        &self,
        source: &str,
        reason: &str,
    ) -> Result<NodeInfo, CallError> {
        let sent_at = self.clock().now();
        let (node, is_withdrawn) = (NodeSelector::from(self.id()), false);
        let request = Request::Recommend { node, reason: reason.to_owned(), is_withdrawn };
        let reply = self.namenode().call(request).await;
        let known_at = reply.is_ok().then_some(sent_at);
        if !matches!(&reply, Err(CallError::Refused(refusal)) if is_final(refusal)) {
            self.remember(|notices| notices.recommend(source, reason, known_at));
        }
        self.info_of(reply?)
    }

    /// Sends a notice or recommendation to the namenode that it has not confirmed yet, or has lost
    /// since.
    pub(crate) async fn repeat_notice(&self) {
        let now = self.clock().now();
        let Some(report) = self.remember(|notices| notices.next_report(now)) else { return };
        let is_notice = report.deadline.is_some();
        match self.send(report).await {
            Ok(info) if is_notice => {
                let (node, policy) = (info.id, info.policy);
                tracing::info!(%node, ?policy, "the notice was given again");
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(node = %self.id(), %error, "not given again"),
        }
    }

    async fn send(&self, report: NoticeReport) -> Result<NodeInfo, CallError> {
        let sent_at = self.clock().now();
        let request = repeat::request(&report, sent_at, self.id(), self.identity().nonce);
        let info = match self.namenode().call(request).await {
            Ok(reply) => self.info_of(reply),
            Err(error) => Err(error),
        };
        let answer = info.as_ref().map_err(failure);
        let outcome = repeat::reply(self.clock().now(), answer.as_ref().copied());
        self.notice_answered(sent_at, &report, outcome);
        info
    }

    fn info_of(&self, reply: Reply) -> Result<NodeInfo, CallError> {
        match reply {
            Reply::Node(info) => Ok(*info),
            other => Err(self.namenode().bad_reply(other)),
        }
    }

    /// Returns until when a posted notice runs; refuses what the namenode would refuse anyway, so
    /// that the node is not fenced for it.
    pub(crate) fn posted_deadline(&self, left: Millis) -> Result<protocol::Instant, Refusal> {
        check_left(left)?;
        Ok(self.clock().now() + left)
    }
}
