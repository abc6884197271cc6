//! How a datanode stands: what the namenode wants of it, and whether it takes writes.
//!
//! Four things set or lift the fence of a node: an order, the answer to a heartbeat or to a
//! registration, a notice that its own machine saw, and that the namenode has given the node up.
//! They come in any order. So every question to the namenode carries a count of the orders that
//! came before it ([`Asked`]), and an answer that an order has overtaken changes nothing: it may be
//! older than the order. An order that lifts the fence leaves it where a notice asks for it that
//! the namenode does not know. The fence of a node that was given up is never lifted.
//!
//! The block table keeps the fence; whoever changes something here sets it as
//! [`Standing::is_fenced`] says, before anything else is changed.

use sanderling_protocol::message::HeartbeatReply;
use sanderling_protocol::{Instant, Millis, NodeId, Policy, Refusal};

use crate::Mechanism;
use crate::notices::Notices;

/// When a writer may come back that waits for the end of a relocation.
const RELOCATION_RETRY: Millis = Millis(20);

/// When something was asked, and what had been ordered by then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    at: Instant,
    orders: u64,
}

/// How one incarnation of a datanode stands.
#[derive(Debug, Clone)]
pub struct Standing {
    mechanism: Mechanism,
    policy: Policy,
    home_blocks: Option<u64>,
    notices: Notices,
    is_fenced: bool,
    /// Orders about the fence, and what counts as one, so far.
    orders: u64,
    /// Blocks were fenced one by one since the namenode last said how the node stands.
    has_fenced_unheard: bool,
}

impl Standing {
    /// Returns the standing of a node of which the namenode has said nothing.
    #[must_use]
    pub fn new(mechanism: Mechanism) -> Self {
        Self {
            mechanism,
            policy: Policy::Active,
            home_blocks: None,
            notices: Notices::default(),
            is_fenced: false,
            orders: 0,
            has_fenced_unheard: false,
        }
    }

    /// Returns what the namenode wanted of the node last.
    #[must_use]
    pub const fn policy(&self) -> Policy {
        self.policy
    }

    /// Returns how many blocks had their home here; `None` before the first heartbeat.
    #[must_use]
    pub const fn home_blocks(&self) -> Option<u64> {
        self.home_blocks
    }

    /// Tells whether the node refuses writes.
    #[must_use]
    pub const fn is_fenced(&self) -> bool {
        self.is_fenced
    }

    /// Notes what had been ordered when a question to the namenode leaves.
    #[must_use]
    pub const fn asks(&self, now: Instant) -> Asked {
        Asked { at: now, orders: self.orders }
    }

    /// Takes the welcome to a new incarnation.
    pub(super) fn joined(&mut self, now: Instant, policy: Policy) {
        let asked = self.asks(now);
        self.take(now, asked, policy, None, None);
    }

    /// Takes the welcome to the same incarnation: the namenode may be another process than before.
    pub(super) fn rejoined(&mut self, now: Instant, asked: Asked, policy: Policy) {
        self.notices.registered();
        self.take(now, asked, policy, None, self.home_blocks);
    }

    /// Takes the answer to a heartbeat.
    pub(super) fn answered(&mut self, now: Instant, asked: Asked, reply: &HeartbeatReply) {
        self.take(now, asked, reply.policy, reply.deadline_in, Some(reply.home_blocks));
    }

    fn take(
        &mut self,
        now: Instant,
        asked: Asked,
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
        self.has_fenced_unheard = false;
    }

    /// Takes that the namenode gave this incarnation up. Returns whether that was to be expected:
    /// the node was fenced.
    pub(super) fn gone(&mut self) -> bool {
        self.policy = Policy::Gone;
        std::mem::replace(&mut self.is_fenced, true)
    }

    /// Goes on as another incarnation, without blocks.
    pub(super) fn begin_again(&mut self, now: Instant) {
        self.orders += 1;
        self.notices.begin_again(now);
        (self.policy, self.home_blocks) = (Policy::Active, None);
        (self.is_fenced, self.has_fenced_unheard) = (false, false);
    }

    /// Takes an order that sets or lifts the fence.
    pub fn order(&mut self, now: Instant, is_fenced: bool) {
        self.orders += 1;
        if !is_fenced {
            self.notices.unfenced();
        }
        let must_stay = self.is_leaving(now) || self.policy == Policy::Gone;
        self.is_fenced = is_fenced || must_stay;
    }

    /// Changes what is remembered of notices, and fences the node where that asks for it. The fence
    /// is lifted by the answer to the next heartbeat, which knows of orders.
    pub fn remember<T>(&mut self, now: Instant, change: impl FnOnce(&mut Notices) -> T) -> T {
        let changed = change(&mut self.notices);
        if !self.is_fenced && self.is_leaving(now) {
            // An answer that is under way knows nothing of it.
            self.orders += 1;
            self.is_fenced = true;
        }
        changed
    }

    fn is_leaving(&self, now: Instant) -> bool {
        self.mechanism.pushes_fences() && self.notices.must_fence(now)
    }

    /// Takes note that blocks are about to be fenced by an order, before they are.
    pub const fn fences_blocks(&mut self) {
        self.has_fenced_unheard = true;
    }

    /// Returns why no write is taken now under [`Mechanism::Seed`]: the node's relocation has begun
    /// and not ended. Brodmann et al., section 3.2, reject all writes to a node meanwhile.
    #[must_use]
    pub fn withheld(&self, node: NodeId) -> Option<Refusal> {
        let is_withheld = self.mechanism == Mechanism::Seed && self.is_fenced;
        (is_withheld && self.policy.is_draining()).then(|| relocation_retry(node))
    }

    /// Returns what a writer is answered instead of [`Refusal::Moved`], if anything. Under
    /// [`Mechanism::Seed`] a writer that meets a fence is sent elsewhere only when the relocation
    /// has ended: the fence may have come while the write was under way, and a block's fence before
    /// the answer to the heartbeat that tells of the relocation.
    #[must_use]
    pub fn instead_of_moved(&self, node: NodeId) -> Option<Refusal> {
        if self.mechanism == Mechanism::Seed && self.has_fenced_unheard {
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

    const NOW: Instant = Instant(5_000_000);
    const SOON: Instant = Instant(65_000_000);

    fn answer(policy: Policy) -> HeartbeatReply {
        let deadline_in = (policy == Policy::Draining).then_some(Millis(60_000));
        HeartbeatReply { policy, deadline_in, home_blocks: 3 }
    }

    fn standing() -> Standing {
        Standing::new(Mechanism::Sanderling)
    }

    #[test]
    fn answer_that_an_order_has_overtaken_changes_nothing() {
        let mut standing = standing();
        let asked = standing.asks(NOW);
        standing.order(NOW, true);
        standing.answered(NOW, asked, &answer(Policy::Active));
        assert!(standing.is_fenced());
        assert_eq!(standing.home_blocks(), None);
        let asked = standing.asks(NOW);
        standing.answered(NOW, asked, &answer(Policy::Active));
        assert!(!standing.is_fenced());
        assert_eq!(standing.home_blocks(), Some(3));
    }

    #[test]
    fn answer_that_was_asked_before_a_lifted_fence_does_not_set_it_again() {
        let mut standing = standing();
        standing.order(NOW, true);
        let asked = standing.asks(NOW);
        standing.order(NOW, false);
        standing.answered(NOW, asked, &answer(Policy::Draining));
        assert!(!standing.is_fenced());
        assert_eq!(standing.policy(), Policy::Active);
    }

    #[test]
    fn welcome_that_an_order_has_overtaken_changes_no_fence() {
        let mut standing = standing();
        let asked = standing.asks(NOW);
        standing.order(NOW, true);
        standing.rejoined(NOW, asked, Policy::Active);
        assert!(standing.is_fenced());
        // The one to a new incarnation knows no order: none reached it.
        standing.begin_again(NOW);
        standing.joined(NOW, Policy::Active);
        assert!(!standing.is_fenced());
    }

    #[test]
    fn notice_that_the_namenode_does_not_know_keeps_the_fence_against_an_order() {
        let mut standing = standing();
        let asked = standing.asks(NOW);
        assert!(standing.remember(NOW, |notices| notices.show("aws", SOON, "spot")));
        assert!(standing.is_fenced());
        standing.answered(NOW, asked, &answer(Policy::Active));
        assert!(standing.is_fenced(), "the answer is older than the notice");
        standing.order(NOW, false);
        assert!(standing.is_fenced());
        standing.remember(NOW, |notices| notices.hide("aws"));
        assert!(standing.is_fenced(), "only an answer or an order lifts it");
        let asked = standing.asks(NOW);
        standing.answered(NOW, asked, &answer(Policy::Active));
        assert!(!standing.is_fenced());
    }

    #[test]
    fn next_incarnation_is_fenced_by_a_notice_that_is_still_to_come() {
        let mut standing = standing();
        let asked = standing.asks(NOW);
        standing.answered(NOW, asked, &answer(Policy::Draining));
        assert!(standing.gone(), "it was to be expected");
        standing.begin_again(NOW);
        assert_eq!((standing.policy(), standing.home_blocks()), (Policy::Active, None));
        standing.joined(NOW, Policy::Active);
        assert!(standing.is_fenced());
        standing.begin_again(SOON);
        standing.joined(SOON, Policy::Active);
        assert!(!standing.is_fenced());
    }

    #[test]
    fn order_does_not_lift_the_fence_of_a_node_that_was_given_up() {
        let mut standing = standing();
        assert!(!standing.gone(), "nobody had noticed it");
        standing.order(NOW, false);
        assert!(standing.is_fenced());
        assert_eq!(standing.policy(), Policy::Gone);
    }

    #[test]
    fn baseline_lets_writers_wait_until_the_relocation_has_ended() {
        let mut standing = Standing::new(Mechanism::Seed);
        standing.remember(NOW, |notices| notices.show("aws", SOON, "spot"));
        assert!(!standing.is_fenced(), "its fence comes with a heartbeat");
        assert_eq!(standing.instead_of_moved(NodeId(1)), None);
        standing.fences_blocks();
        assert!(standing.instead_of_moved(NodeId(1)).is_some());
        assert_eq!(standing.withheld(NodeId(1)), None);
        let asked = standing.asks(NOW);
        standing.answered(NOW, asked, &answer(Policy::Draining));
        assert!(standing.is_fenced() && standing.withheld(NodeId(1)).is_some());
        let asked = standing.asks(NOW);
        standing.answered(NOW, asked, &answer(Policy::Drained));
        assert_eq!(standing.withheld(NodeId(1)), None);
    }
}
