//! Membership: when a datanode registers, sends heartbeats, reports blocks and repeats its notices,
//! and what follows from each answer of the namenode or from a missing answer.
//!
//! # Rules
//! - **One call at a time.** A round is a heartbeat, a block report if one is due, the notices that
//!   the namenode lacks, and a pause.
//! - **The datanode registers again** if its connection broke, if its heartbeat was refused, or if
//!   an answer names another term of the log. In each case the namenode may be a new process whose
//!   log lacks something, so the datanode sends the last log position that it saw. A namenode
//!   that is only slow (no answer in time, [`Refusal::RetryAfter`]) gets the next heartbeat. After
//!   each registration the datanode reports all its blocks at once. It repeats a failed report
//!   after [`REPORT_RETRY_INTERVAL`], because a namenode that lost the end of its log waits 10 s
//!   for block reports before it declares anything lost. It reports once more after
//!   [`UNKNOWN_AFTER`], because such a namenode lets it drop nothing that the log does not know
//!   before.
//! - **The datanode begins again**, as a new incarnation without blocks, if the namenode declared
//!   it dead or has the process under another id. It drops its blocks and reports their number and
//!   bytes with the next registration. A node that was fenced before serves reads of its old
//!   blocks for [`MemberOptions::rejoin_after_notice`] first, because its machine probably ends
//!   soon and would take new blocks with it. If the log has lost its end, and with it the id, the
//!   datanode keeps its blocks under the new one: the lost end may have moved their only copies
//!   there. It publishes no write that was sent to it under the old id.
//! - **The namenode never takes back a process that it declared dead.** So the datanode draws a new
//!   nonce, also if it was declared dead before the answer to its registration arrived.
//! - **The datanode stops** on a refusal that no retry can change.
//!
//! The shell calls [`NodeMembership::next`], makes the call that it returns, and hands over the
//! outcome. Until then `next` returns [`MemberStep::Pending`].

use sanderling_protocol::message::{HeartbeatReply, Joined, Registered, Wiped};
use sanderling_protocol::{
    ClusterId, Instant, LogPosition, Millis, NodeId, Nonce, Policy, Refusal,
};

use super::known_log::{KnownLog, LostEnd};
use super::registration::{RegistrationState, RequestStamp};
use crate::Mechanism;
use crate::catalog::UNKNOWN_KEPT;

/// Pause before a block report that failed is sent again. Chosen, not measured: a namenode that
/// lost the end of its log waits 10 s after a start (`SETTLE` in `catalog/history.rs`), which
/// leaves time for several attempts.
pub const REPORT_RETRY_INTERVAL: Millis = Millis(1000);

/// Time after a registration at which blocks are reported once more. The namenode may have started
/// just before: until then it keeps what its log does not know, and a datanode does not always see
/// that the log has lost its end, because it may not have received a position of that end.
pub const UNKNOWN_AFTER: Millis = Millis(UNKNOWN_KEPT.0 + 1000);

/// Shortest pause between two rounds, whatever period a namenode requires: a period of zero must
/// not make the datanode spin. One unit of [`Millis`].
const HEARTBEAT_MIN: Millis = Millis(1);

/// Times of membership. The defaults of servers, with their reasons, are those of
/// `DatanodeOptions` in the crate `sanderling-datanode`. A time of zero is allowed; the pause of a
/// round is one millisecond at least.
#[derive(Debug, Clone, Copy)]
pub struct MemberOptions {
    /// How the cluster handles notices; the same on all of its servers.
    pub mechanism: Mechanism,
    /// Pause between two registrations of a process that has no id yet.
    pub attempt_every: Millis,
    /// Longest pause between two rounds of a fenced node, which learns from the answer to a
    /// heartbeat that its drain has ended. It counts only if it is shorter than the period that the
    /// namenode requested.
    pub draining_heartbeat: Millis,
    /// Time from the begin of one block report to the begin of the next.
    pub report_every: Millis,
    /// Time for which a fenced node that was declared dead serves its old blocks before it drops
    /// them and registers again. A node that was not fenced registers again at once.
    pub rejoin_after_notice: Millis,
}

/// The next step of the shell, as [`NodeMembership::next`] decides, and the method that takes its
/// outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberStep {
    /// Send this registration, then call [`NodeMembership::registered`].
    Register(Joining),
    /// Send a heartbeat, then call [`NodeMembership::beaten`].
    Beat {
        /// The id of the node.
        node: NodeId,
        /// The number of the process.
        nonce: Nonce,
        /// Pass this to [`NodeMembership::beaten`].
        asked: RequestStamp,
    },
    /// Run a block report ([`ReportProgress`](super::ReportProgress)) of this node, then call
    /// [`NodeMembership::reported`].
    Report(NodeId),
    /// Send the notices that the namenode lacks, then call [`NodeMembership::repeated`].
    Repeat,
    /// End all connections, call [`NodeMembership::begin_again`], drop all blocks if it returns
    /// that, call [`NodeMembership::wiped`].
    BeginAgain,
    /// Call [`NodeMembership::next`] again at this time or later.
    Wait(Instant),
    /// An earlier step's outcome is missing: hand it over first.
    Pending,
    /// End the process: the namenode refused for good, or the first registration took too long.
    Stop(CallFailure),
}

/// The properties of the process that a registration contains, besides its address and capacity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joining {
    /// The cluster that the process belongs to; `None` before its first registration.
    pub cluster: Option<ClusterId>,
    /// The number that the process drew at its start: with it, a registration that is repeated is
    /// that of the same incarnation.
    pub nonce: Nonce,
    /// The last log position that an answer named; `None` if no answer has.
    pub seen: Option<LogPosition>,
    /// What the previous incarnation dropped; `None` if that was reported, or if there was none.
    pub wiped: Option<Wiped>,
    /// Pass this to [`NodeMembership::registered`].
    pub asked: RequestStamp,
}

/// A reason why a call to the namenode has no usable answer. Only a refusal may be final.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallFailure {
    /// The namenode refused the request.
    Refused(Refusal),
    /// No answer came within the call's time, and the connection is intact.
    Busy,
    /// The connection broke or was not made, or the answer was of another kind.
    Broken,
}

/// The outcome of a registration, for the shell to log. What it means for the blocks is in the next
/// action of [`NodeMembership::next`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registration {
    /// What the process is now.
    pub outcome: RegistrationOutcome,
    /// The part of the log that the namenode has lost; `None` if it has lost none. The shell logs
    /// it as an error: acknowledged changes are gone.
    pub lost: Option<LostEnd>,
}

/// The state of a process after a registration. [`NodeMembership::next`] already takes it into
/// account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegistrationOutcome {
    /// A node; before, the process had no id.
    Joined,
    /// The node that it was before.
    Rejoined,
    /// A node under another id than before: it goes on under the new id. It drops its blocks,
    /// unless the log has lost its end.
    Another,
    /// No node: the namenode declared it dead. It drops its blocks and registers as a new process.
    Gone {
        /// Whether the node was fenced, by a notice or by an order.
        is_expected: bool,
    },
    /// What it was before: the registration failed and is tried again.
    NotYet,
    /// No node: it stops, because the refusal is final or the time of [`StartLimit::Until`] is
    /// over.
    Never,
}

/// The outcome of a heartbeat. [`NodeMembership::next`] already takes it into account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeartbeatOutcome {
    /// The namenode of before has answered.
    Stays,
    /// The answer names another term of the log: the datanode registers again.
    AnotherTerm,
    /// No usable answer came.
    Unanswered {
        /// Whether the namenode is the same process and only slow. If not, the datanode registers
        /// again.
        is_known: bool,
    },
    /// The namenode declared the node dead: it drops its blocks and registers as a new process.
    Gone {
        /// Whether the node was fenced, by a notice or by an order.
        is_expected: bool,
    },
}

/// The number of blocks that a node holds, and the room that they take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockTotals {
    /// Number of blocks, copies among them.
    pub blocks: u64,
    /// Bytes in memory and on disk that the blocks take.
    pub bytes: u64,
}

/// The limit at which a process that was never a node gives up registering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartLimit {
    /// At this time, with the last failure. A missing right ([`Refusal::Unauthenticated`],
    /// [`Refusal::Forbidden`]) ends it at once.
    Until(Instant),
    /// Never. [`NodeMembership`] itself sets this after the first registration that succeeded.
    Endless,
}

/// Where a process is in its round.
#[derive(Debug, Clone)]
enum Phase {
    /// Not a node: it registers at this time.
    Outside(Instant),
    Beat,
    Register,
    Report,
    Repeat,
    /// The next round begins at this time.
    Rest(Instant),
    /// Declared dead: it begins again at this time.
    Leave(Instant),
    Stopped(CallFailure),
}

/// The membership of one datanode process, through all incarnations that the process has.
#[derive(Debug, Clone)]
pub struct NodeMembership {
    options: MemberOptions,
    cluster: Option<ClusterId>,
    /// `None` while the process is not a node.
    node: Option<NodeId>,
    nonce: Nonce,
    log: KnownLog,
    registration: RegistrationState,
    /// The period that the namenode requested.
    heartbeat: Millis,
    /// Whether the namenode is surely the process with which the node registered.
    is_known: bool,
    /// When the next block report is due.
    report_at: Instant,
    /// When blocks are reported once more after the last registration; `None` when they were.
    unknown_at: Option<Instant>,
    phase: Phase,
    /// A step was returned whose outcome is not handed over.
    is_pending: bool,
    /// The answer that gave this process another id; it takes effect when all blocks are dropped.
    welcome: Option<Registered>,
    /// That id is new because the log has lost the one before: the blocks stay.
    keeps_blocks: bool,
    start: StartLimit,
}

impl CallFailure {
    /// Returns whether the namenode is the process of before and only slow.
    const fn is_busy(&self) -> bool {
        matches!(self, Self::Busy | Self::Refused(Refusal::RetryAfter { .. }))
    }

    /// Returns whether every retry would be refused alike.
    const fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Refused(
                Refusal::WrongCluster { .. }
                    | Refusal::UnknownVersion { .. }
                    | Refusal::BadRequest { .. }
                    | Refusal::BadFrame { .. }
                    | Refusal::TooLarge { .. }
            )
        )
    }

    /// Returns whether the process lacks a right.
    const fn is_not_let_in(&self) -> bool {
        matches!(self, Self::Refused(Refusal::Unauthenticated { .. } | Refusal::Forbidden { .. }))
    }

    const fn is_gone(&self) -> bool {
        matches!(self, Self::Refused(Refusal::NodeGone { .. }))
    }
}

impl NodeMembership {
    /// Returns the membership of a process that is not a node yet; its first step is a
    /// registration. `nonce` is a random number that no other process has drawn.
    #[must_use]
    pub fn new(options: MemberOptions, nonce: Nonce, start: StartLimit) -> Self {
        Self {
            options,
            cluster: None,
            node: None,
            nonce,
            log: KnownLog::default(),
            registration: RegistrationState::new(options.mechanism),
            heartbeat: HEARTBEAT_MIN,
            is_known: false,
            report_at: Instant(0),
            unknown_at: None,
            phase: Phase::Outside(Instant(0)),
            is_pending: false,
            welcome: None,
            keeps_blocks: false,
            start,
        }
    }

    /// Returns the id of this incarnation; `None` while the process is not a node.
    #[must_use]
    pub const fn node(&self) -> Option<NodeId> {
        self.node
    }

    /// Returns the cluster; `None` before the first registration that succeeded.
    #[must_use]
    pub const fn cluster(&self) -> Option<ClusterId> {
        self.cluster
    }

    /// Returns the random number by which the namenode recognizes the process.
    #[must_use]
    pub const fn nonce(&self) -> Nonce {
        self.nonce
    }

    /// Returns what the process has seen of the namenode's log, by which it recognizes a log whose
    /// end was lost.
    #[must_use]
    pub const fn log(&self) -> &KnownLog {
        &self.log
    }

    /// Returns the node's policy, fence and notices, as they are at present.
    #[must_use]
    pub const fn registration(&self) -> &RegistrationState {
        &self.registration
    }

    /// Returns the node's policy, fence and notices, for orders and notices to change.
    pub const fn registration_mut(&mut self) -> &mut RegistrationState {
        &mut self.registration
    }

    /// Returns the next step. `is_broken`: the connection of the last registration has ended. After
    /// any step but [`MemberStep::Wait`] and [`MemberStep::Stop`] the next call returns
    /// [`MemberStep::Pending`] until the step's outcome is handed over.
    pub fn next(&mut self, now: Instant, is_broken: bool) -> MemberStep {
        if self.is_pending {
            return MemberStep::Pending;
        }
        let step = self.step(now, is_broken);
        self.is_pending = !matches!(step, MemberStep::Wait(_) | MemberStep::Stop(_));
        step
    }

    fn step(&mut self, now: Instant, is_broken: bool) -> MemberStep {
        if let Phase::Rest(at) = self.phase
            && at <= now
        {
            self.is_known &= !is_broken;
            self.phase = if self.is_known { Phase::Beat } else { Phase::Register };
        }
        if matches!(self.phase, Phase::Report) && !(self.is_known && self.report_at <= now) {
            self.phase = Phase::Repeat;
        }
        if matches!(self.phase, Phase::Repeat) && !self.is_known {
            self.rest(now);
        }
        let asked = self.registration.stamp(now);
        let node = self.node.unwrap_or_default();
        match &self.phase {
            Phase::Outside(at) | Phase::Rest(at) | Phase::Leave(at) if *at > now => {
                MemberStep::Wait(*at)
            }
            Phase::Outside(_) | Phase::Rest(_) | Phase::Register => {
                let (seen, wiped) = (self.log.seen(), self.log.wiped());
                let (cluster, nonce) = (self.cluster, self.nonce);
                MemberStep::Register(Joining { cluster, nonce, seen, wiped, asked })
            }
            Phase::Beat if !is_broken => MemberStep::Beat { node, nonce: self.nonce, asked },
            Phase::Beat => {
                self.is_known = false;
                self.phase = Phase::Register;
                self.step(now, is_broken)
            }
            Phase::Report => {
                self.unknown_at = self.unknown_at.filter(|at| *at > now);
                let next = now + self.options.report_every;
                self.report_at = self.unknown_at.map_or(next, |at| at.min(next));
                MemberStep::Report(node)
            }
            Phase::Repeat => MemberStep::Repeat,
            Phase::Leave(_) => MemberStep::BeginAgain,
            Phase::Stopped(failure) => MemberStep::Stop(failure.clone()),
        }
    }

    /// Ends the round. A fenced node, which waits for the end of its drain, pauses for less.
    fn rest(&mut self, now: Instant) {
        let is_fenced = self.registration.is_fenced();
        let draining = self.options.draining_heartbeat;
        let pause = if is_fenced { self.heartbeat.min(draining) } else { self.heartbeat };
        self.phase = Phase::Rest(now + pause.max(HEARTBEAT_MIN));
    }

    /// Handles the outcome of [`MemberStep::Beat`]. `asked` is that of the step. The position is
    /// the one that the answer names; without one the datanode takes the log for unchanged.
    ///
    /// An answer that an order has overtaken does not change the policy or the fence.
    pub fn beaten(
        &mut self,
        now: Instant,
        asked: RequestStamp,
        answer: Result<(HeartbeatReply, Option<LogPosition>), CallFailure>,
    ) -> HeartbeatOutcome {
        self.is_pending = false;
        match answer {
            Ok((reply, _)) if reply.policy == Policy::Gone => {
                HeartbeatOutcome::Gone { is_expected: self.gone(now) }
            }
            Ok((reply, position)) => {
                self.registration.answered(now, asked, &reply);
                self.is_known = !self.log.saw(position);
                self.phase = if self.is_known { Phase::Report } else { Phase::Register };
                if self.is_known { HeartbeatOutcome::Stays } else { HeartbeatOutcome::AnotherTerm }
            }
            Err(failure) if failure.is_gone() => {
                HeartbeatOutcome::Gone { is_expected: self.gone(now) }
            }
            Err(failure) => {
                self.is_known = failure.is_busy();
                self.phase = if self.is_known { Phase::Report } else { Phase::Register };
                HeartbeatOutcome::Unanswered { is_known: self.is_known }
            }
        }
    }

    /// Handles the outcome of [`MemberStep::Register`]. `asked` is that of the step.
    ///
    /// An answer that an order has overtaken does not change the policy or the fence.
    pub fn registered(
        &mut self,
        now: Instant,
        asked: RequestStamp,
        answer: Result<&Joined, CallFailure>,
    ) -> Registration {
        self.is_pending = false;
        let joined = match answer {
            Ok(joined) => joined,
            Err(failure) => {
                let outcome = self.not_registered(now, failure);
                return Registration { outcome, lost: None };
            }
        };
        let lost = self.log.joined(joined);
        let registered = joined.registered.clone();
        let outcome = match self.node {
            None => {
                self.enter(now, &registered);
                RegistrationOutcome::Joined
            }
            Some(node) if node == registered.node => {
                self.is_known = true;
                self.heartbeat = registered.heartbeat;
                self.report_after(now);
                self.registration.rejoined(now, asked, registered.policy);
                self.phase = Phase::Report;
                RegistrationOutcome::Rejoined
            }
            Some(_) => {
                self.welcome = Some(registered);
                self.keeps_blocks = lost.is_some();
                self.phase = Phase::Leave(now);
                RegistrationOutcome::Another
            }
        };
        Registration { outcome, lost }
    }

    fn not_registered(&mut self, now: Instant, failure: CallFailure) -> RegistrationOutcome {
        let is_too_late = match self.start {
            StartLimit::Until(give_up) => failure.is_not_let_in() || now >= give_up,
            StartLimit::Endless => false,
        };
        if failure.is_final() || is_too_late {
            self.phase = Phase::Stopped(failure);
            return RegistrationOutcome::Never;
        }
        if failure.is_gone() {
            return RegistrationOutcome::Gone { is_expected: self.gone(now) };
        }
        match self.node {
            Some(_) => self.rest(now),
            None => self.phase = Phase::Outside(now + self.options.attempt_every),
        }
        RegistrationOutcome::NotYet
    }

    fn gone(&mut self, now: Instant) -> bool {
        if self.node.is_none() {
            // Declared dead before the answer to its registration came.
            self.phase = Phase::Leave(now + self.options.attempt_every);
            return false;
        }
        let is_expected = self.registration.gone();
        let wait = if is_expected { self.options.rejoin_after_notice } else { Millis(0) };
        self.phase = Phase::Leave(now + wait);
        is_expected
    }

    fn enter(&mut self, now: Instant, registered: &Registered) {
        (self.cluster, self.node) = (Some(registered.cluster), Some(registered.node));
        self.heartbeat = registered.heartbeat;
        self.start = StartLimit::Endless;
        self.is_known = true;
        self.report_after(now);
        self.registration.joined(now, registered.policy);
        self.phase = Phase::Beat;
    }

    /// Makes the block reports of a registration due.
    fn report_after(&mut self, registered: Instant) {
        self.report_at = registered;
        self.unknown_at = Some(registered + UNKNOWN_AFTER);
    }

    /// Handles the end of [`MemberStep::Report`]. `is_taken`: the namenode answered every page; if
    /// not, the report is due again after [`REPORT_RETRY_INTERVAL`].
    pub fn reported(&mut self, now: Instant, is_taken: bool) {
        self.is_pending = false;
        if !is_taken {
            self.report_at = self.report_at.min(now + REPORT_RETRY_INTERVAL);
        }
        self.phase = Phase::Repeat;
    }

    /// Handles the end of [`MemberStep::Repeat`], whatever its outcome, and begins the pause.
    pub fn repeated(&mut self, now: Instant) {
        self.is_pending = false;
        self.rest(now);
    }

    /// Ends this incarnation and lifts its fence, before the shell drops its blocks. `held` is what
    /// they are; the next registration reports it. `next` is a newly drawn number: the process goes
    /// on under it, unless the namenode has already given another id to the present number.
    ///
    /// Returns whether the shell drops the blocks.
    #[must_use]
    pub fn begin_again(&mut self, now: Instant, held: BlockTotals, next: Nonce) -> bool {
        let drops = !std::mem::take(&mut self.keeps_blocks);
        if let Some(node) = self.node.take()
            && drops
        {
            self.log.drops(Wiped { node, blocks: held.blocks, bytes: held.bytes });
        }
        if self.welcome.is_none() {
            self.nonce = next;
        }
        self.registration.begin_again(now);
        drops
    }

    /// Handles the end of [`MemberStep::BeginAgain`]: no block is there that the next incarnation
    /// does not have. Returns whether the
    /// process is a node again, under the id that the namenode has already given; if not, it
    /// registers.
    pub fn wiped(&mut self, now: Instant) -> bool {
        self.is_pending = false;
        self.phase = Phase::Outside(now);
        match self.welcome.take() {
            Some(registered) => {
                self.enter(now, &registered);
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests;
