//! Group commit: a batch takes the waiting work together and is split into rounds.
//!
//! The commands of a round are prepared together, written to the journal with one write, and then
//! applied. The first round of a batch has the namenode's own commands (absences, outcomes of
//! orders and probes, timers); the following rounds have the changes that the frames request. The
//! requests of one frame keep their order: a request that depends on an earlier one of its frame
//! waits for the round after it.
//!
//! The shell drives a batch: while [`CommitBatch::must_prepare`], it calls
//! [`CommitBatch::prepare`]; it writes [`CommitBatch::commands`] to the journal; it calls
//! [`CommitBatch::apply`] if the journal took them and [`GroupCommit::refuse`] if not; when no
//! commands are left it sends the answers of [`CommitBatch::finish`]. Times are by the namenode's
//! clock and never go back (see [`start_time`](super::start_time)).

use std::fmt::Display;
use std::sync::Arc;

use sanderling_protocol::{Instant, Millis, NodeId, OrderReply, Refusal, Reply, Request};

use super::frame::OpenFrame;
use super::round::Round;
use super::{Namenode, Prepared, Probe};
use crate::access::Claims;
use crate::catalog::{Action, Applied, Catalog, Command, DatanodeOrder};

/// Answers of one frame, one for each of its requests and in their order.
pub type Answers = Vec<Result<Reply, Refusal>>;

/// Work that waits for the next batch of changes: requests, or what came of orders and dials.
#[derive(Debug)]
pub enum CommitWork {
    /// The requests of one frame, and what their caller may do; `None` if it may do everything.
    Frame(Vec<Request>, Option<Arc<Claims>>),
    /// The answer of a datanode to an order; `None` if the node was not reached.
    Ordered(DatanodeOrder, Option<OrderReply>),
    /// The outcome of dialling a node.
    Probed(NodeId, Probe),
}

/// The origin of a command: a request of the batch, or the namenode itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandOrigin {
    /// A request of the batch's frame with this number, counted from 0 in the order of the work.
    Frame(usize),
    /// The namenode itself.
    Own,
}

/// A reason why the journal did not write a round. The cause is the shell's error, whose text goes
/// into the refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unwritten<C> {
    /// The disk is too far behind: callers are refused with [`Refusal::RetryAfter`] and try again.
    Behind(C),
    /// Nothing was written, and an operator must mend why, as a full disk: callers are refused
    /// with [`Refusal::JournalFull`].
    Refused(C),
    /// It is not known whether the round counts: the journal has failed, and the next process may
    /// find the round there; or this member led its group, and its successor may have the round.
    /// Callers are refused with [`Refusal::Undecided`], and the next process, or the successor,
    /// answers the repeat.
    Unknown(C),
    /// This member of a group does not lead any more, and proposed nothing of the round. Callers
    /// are refused with [`Refusal::NotLeader`].
    NotLeader {
        /// The address of the successor, if it is known.
        leader: Option<String>,
    },
}

/// The decisions that a batch needs. [`Namenode`] makes them; the simulator wraps it to put its
/// injected bugs around it.
pub trait Decides {
    /// See [`Namenode::catalog`].
    fn catalog(&self) -> &Catalog;
    /// See [`Namenode::prepare`].
    fn prepare(&mut self, now: Instant, request: Request) -> Prepared;
    /// See [`Namenode::refuses`].
    fn refuses(&mut self, command: &Command) -> Option<Refusal>;
    /// See [`Namenode::allows`].
    ///
    /// # Errors
    /// Why the caller may not make the request.
    fn allows(&self, claims: &Claims, request: &Request) -> Result<(), Refusal>;
    /// See [`Namenode::listened`].
    fn listened(&mut self, now: Instant) -> Option<Command>;
    /// See [`Namenode::ordered`].
    fn ordered(
        &mut self,
        now: Instant,
        order: &DatanodeOrder,
        reply: Option<OrderReply>,
    ) -> Vec<Command>;
    /// See [`Namenode::probed`].
    fn probed(&mut self, now: Instant, node: NodeId, outcome: Probe) -> Vec<Command>;
    /// See [`Namenode::deadline`].
    fn deadline(&self) -> Option<Instant>;
    /// See [`Namenode::tick`].
    fn tick(&mut self, now: Instant) -> Vec<Command>;
    /// See [`Namenode::to_probe`].
    fn to_probe(&mut self, now: Instant) -> Vec<(NodeId, String)>;
}

impl Decides for Namenode {
    fn catalog(&self) -> &Catalog {
        self.catalog()
    }

    fn prepare(&mut self, now: Instant, request: Request) -> Prepared {
        self.prepare(now, request)
    }

    fn refuses(&mut self, command: &Command) -> Option<Refusal> {
        self.refuses(command)
    }

    fn allows(&self, claims: &Claims, request: &Request) -> Result<(), Refusal> {
        self.allows(claims, request)
    }

    fn listened(&mut self, now: Instant) -> Option<Command> {
        self.listened(now)
    }

    fn ordered(
        &mut self,
        now: Instant,
        order: &DatanodeOrder,
        reply: Option<OrderReply>,
    ) -> Vec<Command> {
        self.ordered(now, order, reply)
    }

    fn probed(&mut self, now: Instant, node: NodeId, outcome: Probe) -> Vec<Command> {
        self.probed(now, node, outcome)
    }

    fn deadline(&self) -> Option<Instant> {
        self.deadline()
    }

    fn tick(&mut self, now: Instant) -> Vec<Command> {
        self.tick(now)
    }

    fn to_probe(&mut self, now: Instant) -> Vec<(NodeId, String)> {
        self.to_probe(now)
    }
}

/// State that outlives a batch: timers, absences, and the first commands of this process.
#[derive(Debug, Clone)]
pub struct GroupCommit {
    /// After a refused write the commands of timers are not tried again before this time.
    tick_at: Instant,
    /// When the last check for an absence was made.
    listened_at: Instant,
    /// The commands with which this process begins, until the journal has them.
    begun: Vec<Command>,
}

/// One batch: its frames, and the commands of its present round.
#[derive(Debug, Default)]
pub struct CommitBatch {
    frames: Vec<OpenFrame>,
    /// The commands of the round.
    commands: Vec<(Command, CommandOrigin)>,
    /// Nodes that the shell must dial, with their addresses. It hands the outcomes to a later batch
    /// as [`CommitWork::Probed`].
    pub probes: Vec<(NodeId, String)>,
}

impl GroupCommit {
    /// Time after the last check from which a commit checks for an absence again. Chosen, not
    /// measured: half of the shortest time that counts as an absence (`ABSENCE_MIN`, 500 ms).
    const PAUSE_MIN: Millis = Millis(250);

    /// Pause of the commands of timers after the journal refused them. Chosen, not measured: the
    /// pause for which callers are sent away ([`Unwritten::BEHIND_PAUSE`]).
    const TICK_PAUSE: Millis = Millis(200);

    /// Shortest time in milliseconds that the writer waits for work: what is overdue and cannot be
    /// done does not spin. The finest that timers resolve.
    pub const SLEEP_MIN: Millis = Millis(1);

    /// Longest time in milliseconds that the writer waits for work when nothing is due. The check
    /// for absences comes that late at most: a fifth of the 500 ms that count as one
    /// (`ABSENCE_MIN`). Chosen, not measured.
    pub const SLEEP_MAX: Millis = Millis(100);

    /// Returns the state of a process that begins at `now`, before its first batch.
    #[must_use]
    pub const fn new(now: Instant) -> Self {
        Self { tick_at: now, listened_at: now, begun: Vec::new() }
    }

    /// Returns the batch of the commands of [`Namenode::begin`]. [`GroupCommit::lead`] puts them
    /// before all others until the journal has them: without the term and the numbers that it
    /// skips, this process would give out numbers that a lost end of the log has given out.
    pub fn begin(&mut self, commands: Vec<Command>) -> CommitBatch {
        self.begun.clone_from(&commands);
        CommitBatch::of(commands)
    }

    /// Returns a batch of commands of the namenode itself.
    #[must_use]
    pub fn own(&self, commands: Vec<Command>) -> CommitBatch {
        CommitBatch::of(commands)
    }

    /// Puts the first commands of this process at the front of the round if the journal does not
    /// have them. Called before each write. Returns whether the round has them: then the shell must
    /// sync the journal before it answers anyone, and call [`GroupCommit::has_begun`] after the
    /// sync.
    pub fn lead(&self, batch: &mut CommitBatch) -> bool {
        if self.begun.is_empty() {
            return false;
        }
        if batch.commands().next() != self.begun.first() {
            let begun = self.begun.iter().map(|command| (command.clone(), CommandOrigin::Own));
            batch.commands.splice(0..0, begun);
        }
        true
    }

    /// Records that the disk has the first commands of this process.
    pub fn has_begun(&mut self) {
        self.begun.clear();
    }

    /// Returns when the next batch is due even if no work arrives; `None` if no timer runs.
    #[must_use]
    pub fn due(&self, namenode: &impl Decides) -> Option<Instant> {
        namenode.deadline().map(|due| due.max(self.tick_at))
    }

    /// Checks for an absence of the namenode: time in which a snapshot, a change of millions of
    /// objects or a pause of the machine kept it from reading its input. Returns the batch that
    /// logs the absence, so that leases and times to live do not count it; `None` if there was
    /// none. The shell works the batch off before it reads the work that waited meanwhile.
    pub fn grant_grace(
        &mut self,
        now: Instant,
        namenode: &mut impl Decides,
    ) -> Option<CommitBatch> {
        self.listened_at = now;
        namenode.listened(now).map(|command| CommitBatch::of(vec![command]))
    }

    /// Begins a batch with the work that waits and with the timers that are due. Its first round
    /// has only the namenode's own commands, so that changes of nodes are applied before blocks
    /// are placed on them. The shell bounds the work; a batch takes all that it is given.
    pub fn take(
        &mut self,
        now: Instant,
        namenode: &mut impl Decides,
        work: impl IntoIterator<Item = CommitWork>,
    ) -> CommitBatch {
        self.listened_at = now;
        let mut commands = Vec::from_iter(namenode.listened(now));
        let mut batch = CommitBatch::default();
        for work in work {
            match work {
                CommitWork::Frame(requests, claims) => {
                    batch.frames.push(OpenFrame::new(requests, claims));
                }
                CommitWork::Ordered(order, reply) => {
                    commands.extend(namenode.ordered(now, &order, reply));
                }
                CommitWork::Probed(node, outcome) => {
                    commands.extend(namenode.probed(now, node, outcome));
                }
            }
        }
        if self.due(namenode).is_some_and(|due| due <= now) {
            commands.extend(namenode.tick(now));
            batch.probes = namenode.to_probe(now);
        }
        batch.commands =
            commands.into_iter().map(|command| (command, CommandOrigin::Own)).collect();
        batch
    }

    /// Returns whether the shell must call [`GroupCommit::grace_after`] before it writes the round:
    /// the last check for an absence was more than 250 ms before the round's commands.
    #[must_use]
    pub fn is_late(&self, batch: &CommitBatch) -> bool {
        let is_grace = |command: &Command| matches!(command.action, Action::Absent { .. });
        let at = batch.commands.iter().map(|(command, _)| command.at).max();
        at.is_some_and(|at| at > self.listened_at + Self::PAUSE_MIN)
            && !batch.commands.iter().any(|(command, _)| is_grace(command))
    }

    /// Checks for an absence since the last check, at the time of the round's last command, and
    /// puts the command that logs it at the front of the round. A process that was stopped between
    /// reading its input and preparing the round so logs the pause before what came after it.
    pub fn grace_after(&mut self, batch: &mut CommitBatch, namenode: &mut impl Decides) {
        let Some(at) = batch.commands.iter().map(|(command, _)| command.at).max() else { return };
        self.listened_at = at;
        if let Some(command) = namenode.listened(at) {
            batch.commands.insert(0, (command, CommandOrigin::Own));
        }
    }

    /// Handles a round that the journal did not write: its commands change nothing, their callers
    /// are refused with [`Unwritten::refusal`], and timers are tried again 200 ms after `now`.
    pub fn refuse(&mut self, batch: &mut CommitBatch, now: Instant, why: &Unwritten<impl Display>) {
        // Only timers wait: else an absence or a request that is refused again and again would
        // keep nodes from being dialled.
        let is_due = |command: &Command| {
            matches!(command.action, Action::Tick | Action::Reap | Action::NodeDead { .. })
        };
        if batch.commands.iter().any(|(command, _)| is_due(command)) {
            self.tick_at = now + Self::TICK_PAUSE;
        }
        for (_, origin) in std::mem::take(&mut batch.commands) {
            if let CommandOrigin::Frame(place) = origin {
                batch.frames[place].answer(Err(why.refusal()));
            }
        }
    }
}

impl CommitBatch {
    /// Returns a batch with one round, of the namenode's own commands.
    #[must_use]
    pub fn of(commands: Vec<Command>) -> Self {
        let commands = commands.into_iter().map(|command| (command, CommandOrigin::Own)).collect();
        Self { commands, ..Self::default() }
    }

    /// Returns a batch of one frame, as of [`CommitWork::Frame`]. It has no round before
    /// [`CommitBatch::prepare`].
    #[must_use]
    pub fn asked(requests: Vec<Request>, claims: Option<Arc<Claims>>) -> Self {
        Self { frames: vec![OpenFrame::new(requests, claims)], ..Self::default() }
    }

    /// Returns whether to call [`CommitBatch::prepare`]: the present round is done, and requests
    /// wait.
    #[must_use]
    pub fn must_prepare(&self) -> bool {
        self.commands.is_empty() && !self.frames.iter().all(OpenFrame::is_done)
    }

    /// Prepares the next round: answers reads, repeats and refusals, and makes commands of changes,
    /// frame by frame, until the round is full. The rest waits for the round after it.
    pub fn prepare(&mut self, now: Instant, namenode: &mut impl Decides) {
        let mut round = Round::default();
        for (place, frame) in self.frames.iter_mut().enumerate() {
            frame.prepare(now, namenode, &mut round, CommandOrigin::Frame(place));
        }
        self.commands = round.into_commands();
    }

    /// Returns the commands of the present round, which the shell writes; none if the batch is over
    /// or [`CommitBatch::must_prepare`].
    pub fn commands(&self) -> impl ExactSizeIterator<Item = &Command> {
        self.commands.iter().map(|(command, _)| command)
    }

    /// Applies the present round, which the journal must have, by calling `apply` for each command
    /// in its order. Returns the orders for datanodes that follow; an order that is not delivered
    /// is repeated by heartbeats and block reports.
    pub fn apply(
        &mut self,
        mut apply: impl FnMut(&Command, CommandOrigin) -> Applied,
    ) -> Vec<DatanodeOrder> {
        let mut orders = Vec::new();
        for (command, origin) in &self.commands {
            let applied = apply(command, *origin);
            orders.extend(applied.orders);
            if let CommandOrigin::Frame(place) = *origin {
                self.frames[place].answer(applied.result);
            }
        }
        self.commands.clear();
        orders
    }

    /// Returns the answers of each frame, in the order of the work. Called when
    /// [`CommitBatch::commands`] is empty and [`CommitBatch::must_prepare`] is false; before,
    /// frames lack answers.
    #[must_use]
    pub fn finish(self) -> Vec<Answers> {
        self.frames.into_iter().map(OpenFrame::finish).collect()
    }
}

impl<C: Display> Unwritten<C> {
    /// Pause after which callers try again while the disk is behind.
    /// Chosen, not measured: the journal's thread begins a sync 200 ms after a change.
    const BEHIND_PAUSE: Millis = Millis(200);

    /// Returns the refusal for the callers of a round that was not written.
    #[must_use]
    pub fn refusal(&self) -> Refusal {
        match self {
            Self::Behind(cause) => {
                Refusal::RetryAfter { after: Self::BEHIND_PAUSE, why: cause.to_string() }
            }
            Self::Unknown(cause) => Refusal::Undecided { why: cause.to_string() },
            Self::Refused(cause) => Refusal::JournalFull { why: cause.to_string() },
            Self::NotLeader { leader } => Refusal::NotLeader { leader: leader.clone() },
        }
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::message::{JobHints, ObjectKind, Register, RegisterJob};
    use sanderling_protocol::node::TierCapacity;
    use sanderling_protocol::{ClusterId, JobId, Nonce, Path, Term, Tier};

    use super::*;
    use crate::access::{Lineage, Rights, TokenRole};
    use crate::namenode::NamenodeConfig;

    fn namenode() -> Namenode {
        let mut namenode = Namenode::new(NamenodeConfig::default(), ClusterId(1));
        for command in namenode.begin(Instant(1_000_000), Term(1), 0, 0) {
            let _ = namenode.apply(&command);
        }
        namenode
    }

    fn make(path: &str) -> Request {
        let path: Path = path.parse().unwrap();
        let kind = ObjectKind::Directory;
        Request::MakeDirectory { path, kind, parents: false, is_listed: true }
    }

    fn stat(path: &str) -> Request {
        Request::Stat { path: path.parse().unwrap() }
    }

    #[test]
    fn read_behind_a_change_of_its_frame_waits_for_the_next_round() {
        let mut namenode = namenode();
        let now = namenode.catalog().now();
        let mut group_commit = GroupCommit::new(now);
        let work = [
            CommitWork::Frame(vec![make("/a"), stat("/a")], None),
            CommitWork::Frame(vec![stat("/b")], None),
        ];
        let mut batch = group_commit.take(now, &mut namenode, work);
        let mut rounds = 0;
        while batch.must_prepare() {
            batch.prepare(now, &mut namenode);
            rounds += usize::from(batch.commands().len() > 0);
            batch.apply(|command, _| namenode.apply(command));
        }
        let answers = batch.finish();
        assert_eq!(rounds, 1);
        assert!(matches!(answers[0][..], [Ok(Reply::Stat(_)), Ok(Reply::Stat(_))]));
        assert!(matches!(answers[1][..], [Err(Refusal::NotFound { .. })]));
    }

    #[test]
    fn rights_are_those_of_the_moment_in_which_a_request_is_decided() {
        let mut namenode = namenode();
        let now = namenode.catalog().now();
        let mut group_commit = GroupCommit::new(now);
        let bound = |subtree: &str| {
            let (subject, part, rights) = (String::new(), TokenRole::Client, Rights::ALL);
            let subtree = subtree.parse().unwrap();
            let (expires_at, lineage) = (u64::MAX, Lineage::default());
            Some(Arc::new(Claims { subject, role: part, subtree, rights, expires_at, lineage }))
        };
        let register = |path: &str| {
            let (path, lease) = (path.parse().unwrap(), Millis(60_000));
            let hints = JobHints::default();
            Request::RegisterJob(RegisterJob { path, lease, quota_bytes: None, hints })
        };
        let mut run = |work: Vec<CommitWork>| {
            let mut batch = group_commit.take(now, &mut namenode, work);
            while batch.must_prepare() || batch.commands().len() > 0 {
                if batch.must_prepare() {
                    batch.prepare(now, &mut namenode);
                }
                batch.apply(|command, _| namenode.apply(command));
            }
            batch.finish()
        };
        let answers = run(vec![CommitWork::Frame(vec![register("/jobs/a/1")], None)]);
        let Ok(Reply::Job(first)) = &answers[0][0] else { panic!("{answers:?}") };
        // The next job's number, requested before any client has it, and in the same batch.
        let job = JobId(first.job.0 + 1);
        let early = vec![Request::EndJob { job }, Request::RenewJob { job }];
        let answers = run(vec![
            CommitWork::Frame(vec![register("/jobs/a/2")], bound("/jobs/a")),
            CommitWork::Frame(early.clone(), bound("/jobs/b")),
        ]);
        let Ok(Reply::Job(second)) = &answers[0][0] else { panic!("{answers:?}") };
        assert_eq!(second.job, job);
        let unknown = Refusal::UnknownJob { job };
        assert_eq!(answers[1], [Err(unknown.clone()), Err(unknown)]);
        let answers = run(vec![CommitWork::Frame(early, bound("/jobs/a"))]);
        assert!(answers[0][0].is_ok(), "{answers:?}");
    }

    #[test]
    fn batch_of_one_frame_answers_its_requests() {
        let mut namenode = namenode();
        let now = namenode.catalog().now();
        let mut batch = CommitBatch::asked(vec![make("/a"), stat("/a")], None);
        while batch.must_prepare() {
            batch.prepare(now, &mut namenode);
            batch.apply(|command, _| namenode.apply(command));
        }
        let answers = batch.finish();
        let [answers] = &answers[..] else { panic!("{answers:?}") };
        assert!(matches!(answers[..], [Ok(Reply::Stat(_)), Ok(Reply::Stat(_))]), "{answers:?}");
    }

    #[test]
    fn refused_round_changes_nothing_and_its_callers_get_the_refusal() {
        let mut namenode = namenode();
        let now = namenode.catalog().now();
        let mut group_commit = GroupCommit::new(now);
        let mut batch = group_commit.take(
            now,
            &mut namenode,
            [CommitWork::Frame(vec![make("/a"), stat("/a")], None)],
        );
        batch.prepare(now, &mut namenode);
        group_commit.refuse(&mut batch, now, &Unwritten::Behind("slow"));
        while batch.must_prepare() {
            batch.prepare(now, &mut namenode);
        }
        let answers = batch.finish();
        let [Err(Refusal::RetryAfter { .. }), Err(Refusal::NotFound { .. })] = &answers[0][..]
        else {
            panic!("{answers:?}")
        };
        let due = group_commit.due(&namenode);
        assert!(due.is_none_or(|due| due >= now + GroupCommit::TICK_PAUSE));
    }

    #[test]
    fn excuse_that_is_refused_again_and_again_delays_nothing_that_is_due() {
        let mut namenode = namenode();
        let mut now = namenode.catalog().now();
        let mut group_commit = GroupCommit::new(now);
        let register = Register {
            cluster: None,
            nonce: Nonce(1),
            name: String::new(),
            address: "a:1".to_owned(),
            http_address: String::new(),
            host: String::new(),
            tiers: vec![TierCapacity { tier: Tier::Dram, bytes: 2 << 20 }],
            notice_min: None,
            egress_bytes_per_second: None,
        };
        let Prepared::Log(command) = namenode.prepare(now, Request::Register(register)) else {
            panic!("a node is new")
        };
        namenode.apply(&command).result.unwrap();
        namenode.refused();
        for _ in 0..100 {
            now = now + Millis(100);
            let mut batch = group_commit.take(now, &mut namenode, []);
            group_commit.refuse(&mut batch, now, &Unwritten::Refused("full"));
            if !batch.probes.is_empty() {
                return;
            }
        }
        panic!("a silent node was not dialled in 10 s");
    }

    #[test]
    fn nothing_is_written_before_the_start_itself() {
        let mut namenode = Namenode::new(NamenodeConfig::default(), ClusterId(1));
        let now = Instant(1_000_000);
        let begun = namenode.begin(now, Term(1), 0, 0);
        let mut group_commit = GroupCommit::new(now);
        let mut batch = group_commit.begin(begun.clone());
        assert!(group_commit.lead(&mut batch));
        assert!(batch.commands().eq(&begun), "once");
        group_commit.refuse(&mut batch, now, &Unwritten::Refused("full"));
        let mut batch =
            group_commit.take(now, &mut namenode, [CommitWork::Frame(vec![make("/a")], None)]);
        batch.prepare(now, &mut namenode);
        assert!(group_commit.lead(&mut batch));
        assert!(batch.commands().take(begun.len()).eq(&begun));
        assert_eq!(batch.commands().len(), begun.len() + 1);
        group_commit.has_begun();
        batch.apply(|command, _| namenode.apply(command));
        assert_eq!(namenode.catalog().position().map(|it| it.term), Some(Term(1)));
        let mut batch =
            group_commit.take(now, &mut namenode, [CommitWork::Frame(vec![make("/b")], None)]);
        batch.prepare(now, &mut namenode);
        assert!(!group_commit.lead(&mut batch));
    }

    #[test]
    fn absence_is_logged_before_the_work_that_waited_is_read() {
        let mut namenode = namenode();
        let began = namenode.catalog().now();
        let mut group_commit = GroupCommit::new(began);
        let later = began + Millis(400);
        assert!(group_commit.grant_grace(later, &mut namenode).is_none(), "no absence is so short");
        let batch =
            group_commit.grant_grace(later + Millis(5000), &mut namenode).expect("an absence");
        let absence = Action::Absent { absence: Millis(5000) };
        assert!(batch.commands().map(|command| &command.action).eq([&absence]));
    }

    #[test]
    fn pause_before_a_round_is_excused_by_its_first_command() {
        let mut namenode = namenode();
        let began = namenode.catalog().now();
        let mut group_commit = GroupCommit::new(began);
        let mut batch =
            group_commit.take(began, &mut namenode, [CommitWork::Frame(vec![make("/a")], None)]);
        // The process was stopped here.
        let now = began + Millis(5000);
        batch.prepare(now, &mut namenode);
        assert!(group_commit.is_late(&batch));
        group_commit.grace_after(&mut batch, &mut namenode);
        assert!(!group_commit.is_late(&batch));
        let first = batch.commands().next().unwrap();
        assert_eq!(first.action, Action::Absent { absence: Millis(5000) });
    }

    #[test]
    fn round_is_late_only_after_a_pause_above_the_bound() {
        let bound = GroupCommit::PAUSE_MIN.0;
        for (pause, is_late) in [(0, false), (bound, false), (bound + 1, true)] {
            let mut namenode = namenode();
            let began = namenode.catalog().now();
            let mut group_commit = GroupCommit::new(began);
            let frame = CommitWork::Frame(vec![make("/a")], None);
            let mut batch = group_commit.take(began, &mut namenode, [frame]);
            batch.prepare(began + Millis(pause), &mut namenode);
            assert_eq!(group_commit.is_late(&batch), is_late, "{pause} ms");
        }
    }
}
