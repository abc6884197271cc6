//! The state of one datanode incarnation: its policy, its notices, and whether it refuses writes.
//!
//! Four events set or lift the fence of a node: an order, the answer to a heartbeat or
//! registration, a notice that a source on its machine shows, and the verdict that the node is
//! dead. They arrive in any order. So each request remembers how many orders came before it
//! ([`RequestStamp`]), and an answer that an order has overtaken changes nothing: it may be older
//! than the order. An order that lifts the fence does not lift it while a notice demands the fence
//! that the namenode does not know. The fence of a node that was declared dead stays until the
//! process begins again.
//!
//! The block table enforces the fence. After each change here the caller copies
//! [`RegistrationState::is_fenced`] to the table before it does anything else.

use sanderling_protocol::message::HeartbeatReply;
use sanderling_protocol::{Instant, Millis, NodeId, Policy, Refusal};

use crate::Mechanism;
use crate::notices::{NoticeReply, NoticeReport, Notices};

/// Pause of a writer that waits for the end of a relocation under [`Mechanism::Baseline`]. Chosen,
/// not measured: a hundredth of the 2 s between that mechanism's heartbeats, which end the wait.
const RELOCATION_RETRY: Millis = Millis(20);

/// The time when a request left, and how many orders had come by then. Hand it back with the
/// answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestStamp {
    at: Instant,
    orders: u64,
}

/// The policy, notices and fence of one incarnation of a datanode.
#[derive(Debug, Clone)]
pub struct RegistrationState {
    mechanism: Mechanism,
    policy: Policy,
    home_blocks: Option<u64>,
    notices: Notices,
    is_fenced: bool,
    /// Number of orders about the fence so far, and of other events that outdate answers.
    orders: u64,
    /// When single blocks were fenced last, until a request that left later is answered: only
    /// that answer has the policy behind the fence.
    blocks_fenced: Option<Instant>,
}

impl RegistrationState {
    /// Returns the state of a node before its first registration: active, without a fence.
    #[must_use]
    pub fn new(mechanism: Mechanism) -> Self {
        Self {
            mechanism,
            policy: Policy::Active,
            home_blocks: None,
            notices: Notices::default(),
            is_fenced: false,
            orders: 0,
            blocks_fenced: None,
        }
    }

    /// Returns the policy that the last accepted answer named; [`Policy::Gone`] after the node was
    /// declared dead.
    #[must_use]
    pub const fn policy(&self) -> Policy {
        self.policy
    }

    /// Returns how many blocks had their home here at the last heartbeat; `None` before the first.
    #[must_use]
    pub const fn home_blocks(&self) -> Option<u64> {
        self.home_blocks
    }

    /// Returns whether the node refuses writes: since a notice, an order, or an answer with a
    /// policy that takes no blocks. Only a later answer or order lifts it.
    #[must_use]
    pub const fn is_fenced(&self) -> bool {
        self.is_fenced
    }

    /// Stamps a request that leaves at `now`. Its answer counts only if no order has come since:
    /// one that an order has overtaken may show an older policy.
    #[must_use]
    pub const fn stamp(&self, now: Instant) -> RequestStamp {
        RequestStamp { at: now, orders: self.orders }
    }

    /// Handles the answer that gave the process a new id.
    pub(super) fn joined(&mut self, now: Instant, policy: Policy) {
        let asked = self.stamp(now);
        self.take(now, asked, policy, None, None);
    }

    /// Handles the answer that confirmed the id: the namenode may be another process than before.
    pub(super) fn rejoined(&mut self, now: Instant, asked: RequestStamp, policy: Policy) {
        self.notices.registered();
        self.take(now, asked, policy, None, self.home_blocks);
    }

    /// Handles the answer to a heartbeat.
    pub(super) fn answered(&mut self, now: Instant, asked: RequestStamp, reply: &HeartbeatReply) {
        self.take(now, asked, reply.policy, reply.deadline_in, Some(reply.home_blocks));
    }

    fn take(
        &mut self,
        now: Instant,
        asked: RequestStamp,
        policy: Policy,
        deadline_in: Option<Millis>,
        home_blocks: Option<u64>,
    ) {
        if self.orders != asked.orders {
            return;
        }
        self.notices.stands(asked.at, policy, deadline_in.map(|left| now + left));
        (self.policy, self.home_blocks) = (policy, home_blocks);
        self.is_fenced = self.is_leaving(now) || !policy.takes_blocks();
        self.blocks_fenced = self.blocks_fenced.filter(|fenced| asked.at <= *fenced);
    }

    /// Sets the fence because the namenode declared this incarnation dead. Returns whether the node
    /// was fenced before, so that its end was expected.
    pub(super) fn gone(&mut self) -> bool {
        self.policy = Policy::Gone;
        std::mem::replace(&mut self.is_fenced, true)
    }

    /// Begins another incarnation: active, not fenced. Answers to the one before change nothing.
    pub(super) fn begin_again(&mut self, now: Instant) {
        self.orders += 1;
        self.notices.begin_again(now);
        (self.policy, self.home_blocks) = (Policy::Active, None);
        (self.is_fenced, self.blocks_fenced) = (false, None);
    }

    /// Handles an order that sets (`is_fenced`) or lifts the fence. The fence stays set if a notice
    /// demands it that the namenode does not know, and if the node was declared dead.
    pub fn order(&mut self, now: Instant, is_fenced: bool) {
        self.orders += 1;
        if !is_fenced {
            self.notices.unfenced();
        }
        let must_stay = self.is_leaving(now) || self.policy == Policy::Gone;
        self.is_fenced = is_fenced || must_stay;
    }

    /// Changes the memory of notices by `change` and returns its result. Sets the fence if a notice
    /// then demands it; never lifts it: the answer to the next heartbeat does that.
    pub fn remember<T>(&mut self, now: Instant, change: impl FnOnce(&mut Notices) -> T) -> T {
        let changed = change(&mut self.notices);
        if !self.is_fenced && self.is_leaving(now) {
            // An answer that is under way was made without this notice.
            self.orders += 1;
            self.is_fenced = true;
        }
        changed
    }

    /// Takes the answer to a notice that was sent at `asked_at`. The policy that it names is newer
    /// than that of the last heartbeat, which may be that of an earlier notice.
    pub fn notice_answered(
        &mut self,
        now: Instant,
        asked_at: Instant,
        report: &NoticeReport,
        reply: NoticeReply,
    ) {
        let is_notice = report.deadline.is_some() && self.policy != Policy::Gone;
        if let (NoticeReply::Stands { policy, .. }, true) = (reply, is_notice) {
            self.policy = policy;
        }
        self.remember(now, |notices| notices.answered(asked_at, report, reply));
    }

    fn is_leaving(&self, now: Instant) -> bool {
        self.mechanism.pushes_fences() && self.notices.must_fence(now)
    }

    /// Records that an order is about to fence single blocks. Called before they are fenced.
    pub const fn fences_blocks(&mut self, now: Instant) {
        self.blocks_fenced = Some(now);
    }

    /// Returns the refusal of every write under [`Mechanism::Baseline`] while the node is fenced
    /// and drains: Brodmann et al., section 3.2, reject writes from the start of a relocation to
    /// its end. The writer tries again after 20 ms. Returns `None` otherwise.
    #[must_use]
    pub fn withheld(&self, node: NodeId) -> Option<Refusal> {
        let is_withheld = self.mechanism == Mechanism::Baseline && self.is_fenced;
        (is_withheld && self.policy.is_draining()).then(|| relocation_retry(node))
    }

    /// Returns the refusal that replaces [`Refusal::Moved`], or `None` if `Moved` stands.
    ///
    /// Under [`Mechanism::Baseline`] a writer that meets a fence waits until the relocation has
    /// ended, and only then writes elsewhere. The fence may have been set while its write was under
    /// way, and a block's fence before the heartbeat's answer that announces the relocation; so
    /// both count. The writer tries again after 20 ms.
    #[must_use]
    pub fn instead_of_moved(&self, node: NodeId) -> Option<Refusal> {
        if self.mechanism == Mechanism::Baseline && self.blocks_fenced.is_some() {
            return Some(relocation_retry(node));
        }
        self.withheld(node)
    }
}

fn relocation_retry(node: NodeId) -> Refusal {
    let why = format!("node {node} is being relocated");
    Refusal::RetryAfter { after: RELOCATION_RETRY, why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notices::Notice;

    const NOW: Instant = Instant(5_000_000);
    const SOON: Instant = Instant(65_000_000);

    fn answer(policy: Policy) -> HeartbeatReply {
        let deadline_in = (policy == Policy::Draining).then_some(Millis(60_000));
        HeartbeatReply { policy, deadline_in, home_blocks: 3 }
    }

    fn registration() -> RegistrationState {
        RegistrationState::new(Mechanism::Sanderling)
    }

    fn notice() -> Notice {
        Notice { source: "aws".to_owned(), deadline: SOON, reason: "spot".to_owned() }
    }

    #[test]
    fn answer_that_an_order_has_overtaken_changes_nothing() {
        let mut registration = registration();
        let asked = registration.stamp(NOW);
        registration.order(NOW, true);
        registration.answered(NOW, asked, &answer(Policy::Active));
        assert!(registration.is_fenced());
        assert_eq!(registration.home_blocks(), None);
        let asked = registration.stamp(NOW);
        registration.answered(NOW, asked, &answer(Policy::Active));
        assert!(!registration.is_fenced());
        assert_eq!(registration.home_blocks(), Some(3));
    }

    #[test]
    fn answer_that_was_asked_before_a_lifted_fence_does_not_set_it_again() {
        let mut registration = registration();
        registration.order(NOW, true);
        let asked = registration.stamp(NOW);
        registration.order(NOW, false);
        registration.answered(NOW, asked, &answer(Policy::Draining));
        assert!(!registration.is_fenced());
        assert_eq!(registration.policy(), Policy::Active);
    }

    #[test]
    fn welcome_that_an_order_has_overtaken_changes_no_fence() {
        let mut registration = registration();
        let asked = registration.stamp(NOW);
        registration.order(NOW, true);
        registration.rejoined(NOW, asked, Policy::Active);
        assert!(registration.is_fenced());
        // The one to a new incarnation has no order: none reached it.
        registration.begin_again(NOW);
        registration.joined(NOW, Policy::Active);
        assert!(!registration.is_fenced());
    }

    #[test]
    fn notice_that_the_namenode_does_not_have_keeps_the_fence_against_an_order() {
        let mut registration = registration();
        let asked = registration.stamp(NOW);
        assert!(registration.remember(NOW, |notices| notices.show(&notice())));
        assert!(registration.is_fenced());
        registration.answered(NOW, asked, &answer(Policy::Active));
        assert!(registration.is_fenced(), "the answer is older than the notice");
        registration.order(NOW, false);
        assert!(registration.is_fenced());
        registration.remember(NOW, |notices| notices.hide("aws", NOW));
        assert!(registration.is_fenced(), "only an answer or an order lifts it");
        let asked = registration.stamp(NOW);
        registration.answered(NOW, asked, &answer(Policy::Active));
        assert!(!registration.is_fenced());
    }

    #[test]
    fn next_incarnation_is_fenced_by_a_notice_that_is_still_to_come() {
        let mut registration = registration();
        let asked = registration.stamp(NOW);
        registration.answered(NOW, asked, &answer(Policy::Draining));
        assert!(registration.gone(), "it was to be expected");
        registration.begin_again(NOW);
        assert_eq!((registration.policy(), registration.home_blocks()), (Policy::Active, None));
        registration.joined(NOW, Policy::Active);
        assert!(registration.is_fenced());
        registration.begin_again(SOON);
        registration.joined(SOON, Policy::Active);
        assert!(!registration.is_fenced());
    }

    #[test]
    fn policy_follows_the_answer_to_a_notice_before_the_next_heartbeat() {
        let mut registration = registration();
        let asked = registration.stamp(NOW);
        registration.answered(NOW, asked, &answer(Policy::Drained));
        // An operator takes that notice back, and the next one comes before a heartbeat.
        registration.order(NOW, false);
        let report = registration.remember(NOW, |notices| {
            notices.show(&notice());
            notices.report_of(&notice())
        });
        let deadline = Some(SOON);
        let reply = NoticeReply::Stands { policy: Policy::Draining, deadline, is_at_risk: false };
        registration.notice_answered(NOW, NOW, &report, reply);
        assert_eq!(registration.policy(), Policy::Draining, "it is not empty any more");
        assert!(registration.is_fenced());
    }

    #[test]
    fn order_does_not_lift_the_fence_of_a_node_that_was_given_up() {
        let mut registration = registration();
        assert!(!registration.gone(), "no client had noticed it");
        registration.order(NOW, false);
        assert!(registration.is_fenced());
        assert_eq!(registration.policy(), Policy::Gone);
    }

    #[test]
    fn fenced_node_that_drains_withholds_writes_under_the_baseline_alone() {
        for (mechanism, is_withheld) in
            [(Mechanism::Sanderling, false), (Mechanism::Baseline, true)]
        {
            let mut registration = RegistrationState::new(mechanism);
            let asked = registration.stamp(NOW);
            registration.answered(NOW, asked, &answer(Policy::Draining));
            assert!(registration.is_fenced());
            assert_eq!(registration.withheld(NodeId(1)).is_some(), is_withheld, "{mechanism:?}");
            assert_eq!(registration.instead_of_moved(NodeId(1)).is_some(), is_withheld);
        }
    }

    #[test]
    fn baseline_lets_writers_wait_until_the_relocation_has_ended() {
        let mut registration = RegistrationState::new(Mechanism::Baseline);
        registration.remember(NOW, |notices| notices.show(&notice()));
        assert!(!registration.is_fenced(), "its fence comes with a heartbeat");
        assert_eq!(registration.instead_of_moved(NodeId(1)), None);
        let before = registration.stamp(NOW);
        let later = NOW + Millis(1);
        registration.fences_blocks(later);
        assert!(registration.instead_of_moved(NodeId(1)).is_some());
        // An answer that was on its way may be older than the relocation.
        registration.answered(later, before, &answer(Policy::Active));
        assert!(registration.instead_of_moved(NodeId(1)).is_some());
        assert_eq!(registration.withheld(NodeId(1)), None);
        let (later, asked) = (later + Millis(1), registration.stamp(later + Millis(1)));
        registration.answered(later, asked, &answer(Policy::Draining));
        assert!(registration.is_fenced() && registration.withheld(NodeId(1)).is_some());
        let asked = registration.stamp(later);
        registration.answered(later, asked, &answer(Policy::Drained));
        assert_eq!(registration.instead_of_moved(NodeId(1)), None);
    }
}
