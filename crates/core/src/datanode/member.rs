//! Membership: when a datanode registers, beats, reports and repeats its notices, and what each
//! answer of the namenode, or that there was none, makes of it.
//!
//! # Rules
//! - **One question at a time.** A round is a heartbeat, a block report when one is due, what is to
//!   be repeated of notices, and a pause.
//! - **It registers again** when its connection broke or was refused, or an answer is of another
//!   term: the namenode may be another process by now, with a log that lacks something. What the
//!   node was told of the log is not forgotten before. One that is only slow is asked on. After
//!   each registration everything is reported at once; a report that failed is sent again soon,
//!   because a namenode whose log has lost its end waits only some seconds for what nodes hold.
//! - **It begins again** when the namenode gave the node up or knows the process by another id:
//!   what is here belongs to nobody, is dropped, and how much that was is reported with the next
//!   registration. A node that expected its end goes on serving reads of its old copies for a
//!   while, because its machine is about to go, and would take new blocks with it.
//! - **A process of which the namenode gave a node up is never taken back**, so a new one is drawn,
//!   also where the node was given up before its welcome arrived.
//! - **It stops** when the namenode will never take it.
//!
//! The shell asks [`Member::next`] what to do, does it, and hands over what came of it; until then
//! there is nothing else to do.

use sanderling_protocol::message::{HeartbeatReply, Joined, Registered, Wiped};
use sanderling_protocol::{
    ClusterId, Instant, LogPosition, Millis, NodeId, Nonce, Policy, Refusal,
};

use super::known_log::{KnownLog, LostEnd};
use super::standing::{Asked, Standing};
use crate::Mechanism;

/// When a report is sent again that was not taken.
pub const REPORT_AGAIN: Millis = Millis(1000);

/// The shortest time between two heartbeats, whatever a namenode asks for.
const HEARTBEAT_MIN: Millis = Millis(1);

/// What membership is configured with.
#[derive(Debug, Clone, Copy)]
pub struct MemberOptions {
    /// How notices are met.
    pub mechanism: Mechanism,
    /// Time between two attempts of a process that is no node to become one.
    pub attempt_every: Millis,
    /// Time between two heartbeats of a fenced node, which learns from them that it may go.
    pub draining_heartbeat: Millis,
    /// Time between two block reports.
    pub report_every: Millis,
    /// Time that a node which expected its end waits before it joins again.
    pub rejoin_after_notice: Millis,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Register, then call [`Member::registered`].
    Register(Joining),
    /// Send a heartbeat, then call [`Member::beaten`].
    Beat {
        /// The node.
        node: NodeId,
        /// Its process.
        nonce: Nonce,
        /// To be handed back.
        asked: Asked,
    },
    /// Report all blocks and compare them with what is expected, then call [`Member::reported`].
    Report(NodeId),
    /// Send what is to be repeated of notices, then call [`Member::repeated`].
    Repeat,
    /// End all connections, call [`Member::begin_again`], drop everything, call [`Member::wiped`].
    BeginAgain,
    /// Nothing before that time.
    Wait(Instant),
    /// Nothing before what was begun has been handed over.
    Pending,
    /// Nothing any more: the namenode will never take the process, or could not be reached in time
    /// at the start.
    Stop(CallFailure),
}

/// What a process tells the namenode of itself beside where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joining {
    /// The cluster that it belongs to, once it knows.
    pub cluster: Option<ClusterId>,
    /// The process.
    pub nonce: Nonce,
    /// The last place in the log that it was told of.
    pub seen: Option<LogPosition>,
    /// What it dropped when it ceased to be a node.
    pub wiped: Option<Wiped>,
    /// To be handed back.
    pub asked: Asked,
}

/// Why there is no answer of the right kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallFailure {
    /// The namenode refused.
    Refused(Refusal),
    /// It did not answer in time, and the connection is good.
    Busy,
    /// The connection broke or could not be made, or the answer was one to something else.
    Broken,
}

/// What became of a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registration {
    /// What the process is now.
    pub welcome: Welcome,
    /// What the namenode's log lacks.
    pub lost: Option<LostEnd>,
}

/// What a process is after a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Welcome {
    /// A node, and was none before.
    Joined,
    /// The node that it was.
    Rejoined,
    /// To the namenode another node than it was: it begins again.
    Another,
    /// No node any more; `is_expected`: it was fenced before.
    Gone {
        /// Whether there was a notice, or another reason to fence it.
        is_expected: bool,
    },
    /// What it was before: it tries again.
    NotYet,
    /// Nothing any more: it stops.
    Never,
}

/// What became of a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beaten {
    /// The namenode was there.
    Stays,
    /// It is another process than before: the node registers again.
    AnotherTerm,
    /// It has not answered; `is_known`: it is the same one as before.
    Unheard {
        /// Whether to go on without registering again.
        is_known: bool,
    },
    /// The namenode gave the node up; `is_expected`: it was fenced before.
    Gone {
        /// Whether there was a notice, or another reason to fence it.
        is_expected: bool,
    },
}

/// What a node holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockTotals {
    /// Blocks.
    pub blocks: u64,
    /// The bytes that they take.
    pub bytes: u64,
}

/// When to give up the first registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// At that time; before, when it is refused for want of a right, which is seen at once.
    Until(Instant),
    /// Never: the process was a node before, or has all the time.
    Endless,
}

/// Where a process is in its round.
#[derive(Debug, Clone)]
enum Phase {
    /// No node: it registers at that time.
    Outside(Instant),
    Beat,
    Register,
    Report,
    Repeat,
    Rest(Instant),
    /// Given up: it begins again at that time.
    Leave(Instant),
    Stopped(CallFailure),
}

/// A process that is, was or will be a datanode of a cluster.
#[derive(Debug, Clone)]
pub struct Member {
    options: MemberOptions,
    cluster: Option<ClusterId>,
    /// `None` until it has registered.
    node: Option<NodeId>,
    nonce: Nonce,
    log: KnownLog,
    standing: Standing,
    heartbeat: Millis,
    /// False after the connection broke: the namenode may be another process by now.
    is_known: bool,
    report_at: Instant,
    phase: Phase,
    /// Something was begun and is not handed over.
    is_pending: bool,
    /// The welcome to the next incarnation, where the namenode gave one unasked.
    welcome: Option<Registered>,
    start: Start,
}

impl CallFailure {
    /// Tells whether the namenode is the same one, and only slow.
    const fn is_busy(&self) -> bool {
        matches!(self, Self::Busy | Self::Refused(Refusal::RetryAfter { .. }))
    }

    /// Tells whether asking again is useless.
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

    const fn is_not_let_in(&self) -> bool {
        matches!(self, Self::Refused(Refusal::Unauthenticated { .. } | Refusal::Forbidden { .. }))
    }

    const fn is_gone(&self) -> bool {
        matches!(self, Self::Refused(Refusal::NodeGone { .. }))
    }
}

impl Member {
    /// Returns a process that is no node yet and registers at once.
    #[must_use]
    pub fn new(options: MemberOptions, nonce: Nonce, start: Start) -> Self {
        Self {
            options,
            cluster: None,
            node: None,
            nonce,
            log: KnownLog::default(),
            standing: Standing::new(options.mechanism),
            heartbeat: HEARTBEAT_MIN,
            is_known: false,
            report_at: Instant(0),
            phase: Phase::Outside(Instant(0)),
            is_pending: false,
            welcome: None,
            start,
        }
    }

    /// Returns the node that the process is; `None` when it is none.
    #[must_use]
    pub const fn node(&self) -> Option<NodeId> {
        self.node
    }

    /// Returns the cluster, once there was a welcome.
    #[must_use]
    pub const fn cluster(&self) -> Option<ClusterId> {
        self.cluster
    }

    /// Returns the number by which the namenode knows the process.
    #[must_use]
    pub const fn nonce(&self) -> Nonce {
        self.nonce
    }

    /// Returns what is known of the log.
    #[must_use]
    pub const fn log(&self) -> &KnownLog {
        &self.log
    }

    /// Returns how the node stands.
    #[must_use]
    pub const fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Returns how the node stands, to be changed by orders and notices.
    pub const fn standing_mut(&mut self) -> &mut Standing {
        &mut self.standing
    }

    /// Returns what to do now. `is_broken`: the connection over which the node registered is gone.
    pub fn next(&mut self, now: Instant, is_broken: bool) -> Step {
        if self.is_pending {
            return Step::Pending;
        }
        let step = self.step(now, is_broken);
        self.is_pending = !matches!(step, Step::Wait(_) | Step::Stop(_));
        step
    }

    fn step(&mut self, now: Instant, is_broken: bool) -> Step {
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
        let asked = self.standing.asks(now);
        let node = self.node.unwrap_or_default();
        match &self.phase {
            Phase::Outside(at) | Phase::Rest(at) | Phase::Leave(at) if *at > now => Step::Wait(*at),
            Phase::Outside(_) | Phase::Rest(_) | Phase::Register => {
                let (seen, wiped) = (self.log.seen(), self.log.wiped());
                let (cluster, nonce) = (self.cluster, self.nonce);
                Step::Register(Joining { cluster, nonce, seen, wiped, asked })
            }
            Phase::Beat if !is_broken => Step::Beat { node, nonce: self.nonce, asked },
            Phase::Beat => {
                self.is_known = false;
                self.phase = Phase::Register;
                self.step(now, is_broken)
            }
            Phase::Report => {
                self.report_at = now + self.options.report_every;
                Step::Report(node)
            }
            Phase::Repeat => Step::Repeat,
            Phase::Leave(_) => Step::BeginAgain,
            Phase::Stopped(failure) => Step::Stop(failure.clone()),
        }
    }

    /// A node that waits for the end of its drain asks more often.
    fn rest(&mut self, now: Instant) {
        let is_fenced = self.standing.is_fenced();
        let draining = self.options.draining_heartbeat;
        let pause = if is_fenced { self.heartbeat.min(draining) } else { self.heartbeat };
        self.phase = Phase::Rest(now + pause.max(HEARTBEAT_MIN));
    }

    /// Takes what came of a heartbeat.
    pub fn beaten(
        &mut self,
        now: Instant,
        asked: Asked,
        answer: Result<(HeartbeatReply, Option<LogPosition>), CallFailure>,
    ) -> Beaten {
        self.is_pending = false;
        match answer {
            Ok((reply, _)) if reply.policy == Policy::Gone => {
                Beaten::Gone { is_expected: self.gone(now) }
            }
            Ok((reply, position)) => {
                self.standing.answered(now, asked, &reply);
                self.is_known = !self.log.saw(position);
                self.phase = if self.is_known { Phase::Report } else { Phase::Register };
                if self.is_known { Beaten::Stays } else { Beaten::AnotherTerm }
            }
            Err(failure) if failure.is_gone() => Beaten::Gone { is_expected: self.gone(now) },
            Err(failure) => {
                self.is_known = failure.is_busy();
                self.phase = if self.is_known { Phase::Report } else { Phase::Register };
                Beaten::Unheard { is_known: self.is_known }
            }
        }
    }

    /// Takes what came of a registration.
    pub fn registered(
        &mut self,
        now: Instant,
        asked: Asked,
        answer: Result<&Joined, CallFailure>,
    ) -> Registration {
        self.is_pending = false;
        let joined = match answer {
            Ok(joined) => joined,
            Err(failure) => {
                let welcome = self.not_registered(now, failure);
                return Registration { welcome, lost: None };
            }
        };
        let lost = self.log.joined(joined);
        let registered = joined.registered.clone();
        let welcome = match self.node {
            None => {
                self.enter(now, &registered);
                Welcome::Joined
            }
            Some(node) if node == registered.node => {
                self.is_known = true;
                self.heartbeat = registered.heartbeat;
                self.report_at = now;
                self.standing.rejoined(now, asked, registered.policy);
                self.phase = Phase::Report;
                Welcome::Rejoined
            }
            Some(_) => {
                self.welcome = Some(registered);
                self.phase = Phase::Leave(now);
                Welcome::Another
            }
        };
        Registration { welcome, lost }
    }

    fn not_registered(&mut self, now: Instant, failure: CallFailure) -> Welcome {
        let is_too_late = match self.start {
            Start::Until(give_up) => failure.is_not_let_in() || now >= give_up,
            Start::Endless => false,
        };
        if failure.is_final() || is_too_late {
            self.phase = Phase::Stopped(failure);
            return Welcome::Never;
        }
        if failure.is_gone() {
            return Welcome::Gone { is_expected: self.gone(now) };
        }
        match self.node {
            Some(_) => self.rest(now),
            None => self.phase = Phase::Outside(now + self.options.attempt_every),
        }
        Welcome::NotYet
    }

    fn gone(&mut self, now: Instant) -> bool {
        if self.node.is_none() {
            // Given up before its welcome came.
            self.phase = Phase::Leave(now + self.options.attempt_every);
            return false;
        }
        let is_expected = self.standing.gone();
        let wait = if is_expected { self.options.rejoin_after_notice } else { Millis(0) };
        self.phase = Phase::Leave(now + wait);
        is_expected
    }

    fn enter(&mut self, now: Instant, registered: &Registered) {
        (self.cluster, self.node) = (Some(registered.cluster), Some(registered.node));
        self.heartbeat = registered.heartbeat;
        self.start = Start::Endless;
        self.is_known = true;
        self.report_at = now;
        self.standing.joined(now, registered.policy);
        self.phase = Phase::Beat;
    }

    /// Takes what came of a report; `is_taken`: the namenode answered all of it.
    pub fn reported(&mut self, now: Instant, is_taken: bool) {
        self.is_pending = false;
        if !is_taken {
            self.report_at = self.report_at.min(now + REPORT_AGAIN);
        }
        self.phase = Phase::Repeat;
    }

    /// Takes that there is nothing more to repeat for now.
    pub fn repeated(&mut self, now: Instant) {
        self.is_pending = false;
        self.rest(now);
    }

    /// Makes the process nobody, before what it `held` is dropped. It goes on as the process
    /// `next`, unless the namenode has given this one its next id already.
    pub fn begin_again(&mut self, now: Instant, held: BlockTotals, next: Nonce) {
        if let Some(node) = self.node.take() {
            self.log.drops(Wiped { node, blocks: held.blocks, bytes: held.bytes });
        }
        if self.welcome.is_none() {
            self.nonce = next;
        }
        self.standing.begin_again(now);
    }

    /// Takes that everything is dropped. Returns whether the process is another node already.
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
