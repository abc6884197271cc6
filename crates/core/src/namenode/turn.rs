//! Turns: what waits is taken together.
//!
//! A turn takes all waiting work. Each of its rounds is prepared together, written to the journal
//! in one write, and then applied (group commit). A turn has rounds: the first has what nobody
//! asked for (absences, outcomes of orders and probes, what is due), the others what the frames
//! ask for. Within a frame the order of its requests holds: what cannot be decided before an
//! earlier request of the same frame is applied waits for the next round. The shell writes each
//! round to its journal, and says whether it could.

use sanderling_protocol::{Instant, Millis, NodeId, OrderReply, Refusal, Reply, Request};

use super::frame::OpenFrame;
use super::round::Round;
use super::{Namenode, Prepared, Probe};
use crate::catalog::{Action, Applied, Catalog, Command, DatanodeOrder};

/// Answers of one frame, in the order of its requests.
pub type Answers = Vec<Result<Reply, Refusal>>;

/// Something that waits for the next turn.
#[derive(Debug)]
pub enum Work {
    /// Requests of one frame.
    Frame(Vec<Request>),
    /// What a datanode answered to an order; `None` when it could not be reached.
    Ordered(DatanodeOrder, Option<OrderReply>),
    /// What came of dialling a node.
    Probed(NodeId, Probe),
}

/// Whose command it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// That of a request of the turn's frame with this number.
    Frame(usize),
    /// Nobody has asked for it.
    Own,
}

/// Why the journal has not taken commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unwritten {
    /// The disk is too far behind, and will catch up.
    Behind(String),
    /// There is no room, or nothing is written any more.
    Refused(String),
}

/// What decides in a turn. The simulator puts its deliberate mistakes around the namenode.
pub trait Decides {
    /// See [`Namenode::catalog`].
    fn catalog(&self) -> &Catalog;
    /// See [`Namenode::prepare`].
    fn prepare(&mut self, now: Instant, request: Request) -> Prepared;
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

/// What is known from turn to turn.
#[derive(Debug, Clone)]
pub struct Turns {
    /// Time-driven commands are not tried again before this after a refused write.
    tick_at: Instant,
    /// When somebody last looked whether there was an absence.
    listened_at: Instant,
    /// The commands with which this process begins, until the journal has them.
    begun: Vec<Command>,
}

/// One turn.
#[derive(Debug, Default)]
pub struct Turn {
    frames: Vec<OpenFrame>,
    /// The commands of the round.
    commands: Vec<(Command, Origin)>,
    /// Nodes that are to be dialled, with their addresses.
    pub probes: Vec<(NodeId, String)>,
}

impl Turns {
    /// A commit that comes later than this after a look asks again whether there was an absence.
    const PAUSE_MIN: Millis = Millis(250);

    /// Pause of time-driven commands after the journal refused them.
    const TICK_PAUSE: Millis = Millis(200);

    /// Begins to take turns.
    #[must_use]
    pub const fn new(now: Instant) -> Self {
        Self { tick_at: now, listened_at: now, begun: Vec::new() }
    }

    /// Begins with the commands of [`Namenode::begin`]. Nothing is written before them, however
    /// often the journal refuses them: without the term and the numbers that it skips, this process
    /// would give out again what a lost end of the log has given out.
    pub fn begin(&mut self, commands: Vec<Command>) -> Turn {
        self.begun.clone_from(&commands);
        Turn::of(commands)
    }

    /// Puts the commands with which the process begins before all others, if the journal does not
    /// have them. Tells whether the round has them: then the disk must have it before anybody is
    /// answered, and [`Turns::has_begun`] says so.
    pub fn lead(&self, turn: &mut Turn) -> bool {
        if self.begun.is_empty() {
            return false;
        }
        if turn.commands().next() != self.begun.first() {
            let begun = self.begun.iter().map(|command| (command.clone(), Origin::Own));
            turn.commands.splice(0..0, begun);
        }
        true
    }

    /// Takes it that the disk has the commands with which the process begins.
    pub fn has_begun(&mut self) {
        self.begun.clear();
    }

    /// Returns when time makes a turn necessary, if nothing comes.
    #[must_use]
    pub fn due(&self, namenode: &impl Decides) -> Option<Instant> {
        namenode.deadline().map(|due| due.max(self.tick_at))
    }

    /// Looks whether there was an absence: a snapshot, a change of millions of objects, or the
    /// machine has taken the time. What waited meanwhile is read after the command that excuses it.
    pub fn excuse(&mut self, now: Instant, namenode: &mut impl Decides) -> Option<Turn> {
        self.listened_at = now;
        namenode.listened(now).map(|command| Turn::of(vec![command]))
    }

    /// Takes what waits, and what time has made necessary. What changes who is there comes before
    /// what chooses among them.
    pub fn take(
        &mut self,
        now: Instant,
        namenode: &mut impl Decides,
        work: impl IntoIterator<Item = Work>,
    ) -> Turn {
        self.listened_at = now;
        let mut commands = Vec::from_iter(namenode.listened(now));
        let mut turn = Turn::default();
        for work in work {
            match work {
                Work::Frame(requests) => turn.frames.push(OpenFrame::new(requests)),
                Work::Ordered(order, reply) => {
                    commands.extend(namenode.ordered(now, &order, reply));
                }
                Work::Probed(node, outcome) => {
                    commands.extend(namenode.probed(now, node, outcome));
                }
            }
        }
        if self.due(namenode).is_some_and(|due| due <= now) {
            commands.extend(namenode.tick(now));
            turn.probes = namenode.to_probe(now);
        }
        turn.commands = commands.into_iter().map(|command| (command, Origin::Own)).collect();
        turn
    }

    /// Tells whether [`Turns::excuse_pause`] has something to look at. Most rounds come soon after
    /// a look.
    #[must_use]
    pub fn is_late(&self, turn: &Turn) -> bool {
        let is_excuse = |command: &Command| matches!(command.action, Action::Absent { .. });
        let at = turn.commands.iter().map(|(command, _)| command.at).max();
        at.is_some_and(|at| at > self.listened_at + Self::PAUSE_MIN)
            && !turn.commands.iter().any(|(command, _)| is_excuse(command))
    }

    /// Puts the command that excuses an absence before commands that were made after it: the
    /// process may have been stopped since it last looked at what had come.
    pub fn excuse_pause(&mut self, turn: &mut Turn, namenode: &mut impl Decides) {
        let Some(at) = turn.commands.iter().map(|(command, _)| command.at).max() else { return };
        self.listened_at = at;
        if let Some(command) = namenode.listened(at) {
            turn.commands.insert(0, (command, Origin::Own));
        }
    }

    /// Takes it that the journal has not written the round: its commands change nothing, who asked
    /// for them is refused, and what is due is tried again after a pause.
    pub fn refuse(&mut self, turn: &mut Turn, now: Instant, why: &Unwritten) {
        // Only what was due waits: else an excuse or a request that is refused again and again
        // would keep nodes from being dialled.
        let is_due =
            |command: &Command| matches!(command.action, Action::Tick | Action::NodeDead { .. });
        if turn.commands.iter().any(|(command, _)| is_due(command)) {
            self.tick_at = now + Self::TICK_PAUSE;
        }
        for (_, origin) in std::mem::take(&mut turn.commands) {
            if let Origin::Frame(place) = origin {
                turn.frames[place].answer(Err(why.refusal()));
            }
        }
    }
}

impl Turn {
    /// Returns a turn of commands that nobody asked for.
    #[must_use]
    pub fn of(commands: Vec<Command>) -> Self {
        let commands = commands.into_iter().map(|command| (command, Origin::Own)).collect();
        Self { commands, ..Self::default() }
    }

    /// Returns a turn of one frame.
    #[must_use]
    pub fn asked(requests: Vec<Request>) -> Self {
        Self { frames: vec![OpenFrame::new(requests)], ..Self::default() }
    }

    /// Tells whether [`Turn::prepare`] has something to do: the round is written, and requests
    /// wait.
    #[must_use]
    pub fn must_prepare(&self) -> bool {
        self.commands.is_empty() && !self.frames.iter().all(OpenFrame::is_done)
    }

    /// Answers what can be answered and makes the commands of the next round of the rest, frame by
    /// frame.
    pub fn prepare(&mut self, now: Instant, namenode: &mut impl Decides) {
        let mut round = Round::default();
        for (place, frame) in self.frames.iter_mut().enumerate() {
            frame.prepare(now, namenode, &mut round, Origin::Frame(place));
        }
        self.commands = round.into_commands();
    }

    /// Returns the commands of the round, to be written; none when the turn is over.
    pub fn commands(&self) -> impl ExactSizeIterator<Item = &Command> {
        self.commands.iter().map(|(command, _)| command)
    }

    /// Applies the round, which the journal has. Returns the orders that follow from it.
    pub fn apply(
        &mut self,
        mut apply: impl FnMut(&Command, Origin) -> Applied,
    ) -> Vec<DatanodeOrder> {
        let mut orders = Vec::new();
        for (command, origin) in std::mem::take(&mut self.commands) {
            let applied = apply(&command, origin);
            orders.extend(applied.orders);
            if let Origin::Frame(place) = origin {
                self.frames[place].answer(applied.result);
            }
        }
        orders
    }

    /// Returns the answers, frame by frame, when nothing is left to prepare or write.
    #[must_use]
    pub fn finish(self) -> Vec<Answers> {
        self.frames.into_iter().map(OpenFrame::finish).collect()
    }
}

impl Unwritten {
    /// Pause of callers whose changes the disk has no time for.
    const BEHIND_PAUSE: Millis = Millis(200);

    /// Returns what callers are refused with.
    #[must_use]
    pub fn refusal(&self) -> Refusal {
        match self.clone() {
            Self::Behind(why) => Refusal::RetryAfter { after: Self::BEHIND_PAUSE, why },
            Self::Refused(why) => Refusal::JournalFull { why },
        }
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::message::{ObjectKind, Register};
    use sanderling_protocol::node::TierCapacity;
    use sanderling_protocol::{ClusterId, Nonce, Path, Term, Tier};

    use super::*;
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
        let mut turns = Turns::new(now);
        let work = [Work::Frame(vec![make("/a"), stat("/a")]), Work::Frame(vec![stat("/b")])];
        let mut turn = turns.take(now, &mut namenode, work);
        let mut rounds = 0;
        while turn.must_prepare() {
            turn.prepare(now, &mut namenode);
            rounds += usize::from(turn.commands().len() > 0);
            turn.apply(|command, _| namenode.apply(command));
        }
        let answers = turn.finish();
        assert_eq!(rounds, 1);
        assert!(matches!(answers[0][..], [Ok(Reply::Stat(_)), Ok(Reply::Stat(_))]));
        assert!(matches!(answers[1][..], [Err(Refusal::NotFound { .. })]));
    }

    #[test]
    fn refused_round_changes_nothing_and_its_callers_are_told() {
        let mut namenode = namenode();
        let now = namenode.catalog().now();
        let mut turns = Turns::new(now);
        let mut turn = turns.take(now, &mut namenode, [Work::Frame(vec![make("/a"), stat("/a")])]);
        turn.prepare(now, &mut namenode);
        turns.refuse(&mut turn, now, &Unwritten::Behind("slow".to_owned()));
        while turn.must_prepare() {
            turn.prepare(now, &mut namenode);
        }
        let answers = turn.finish();
        let [Err(Refusal::RetryAfter { .. }), Err(Refusal::NotFound { .. })] = &answers[0][..]
        else {
            panic!("{answers:?}")
        };
        let due = turns.due(&namenode);
        assert!(due.is_none_or(|due| due >= now + Turns::TICK_PAUSE));
    }

    #[test]
    fn excuse_that_is_refused_again_and_again_delays_nothing_that_is_due() {
        let mut namenode = namenode();
        let mut now = namenode.catalog().now();
        let mut turns = Turns::new(now);
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
            panic!("a node is news")
        };
        namenode.apply(&command).result.unwrap();
        namenode.refused();
        for _ in 0..100 {
            now = now + Millis(100);
            let mut turn = turns.take(now, &mut namenode, []);
            turns.refuse(&mut turn, now, &Unwritten::Refused("full".to_owned()));
            if !turn.probes.is_empty() {
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
        let mut turns = Turns::new(now);
        let mut turn = turns.begin(begun.clone());
        assert!(turns.lead(&mut turn));
        assert!(turn.commands().eq(&begun), "once");
        turns.refuse(&mut turn, now, &Unwritten::Refused("full".to_owned()));
        let mut turn = turns.take(now, &mut namenode, [Work::Frame(vec![make("/a")])]);
        turn.prepare(now, &mut namenode);
        assert!(turns.lead(&mut turn));
        assert!(turn.commands().take(begun.len()).eq(&begun));
        assert_eq!(turn.commands().len(), begun.len() + 1);
        turns.has_begun();
        turn.apply(|command, _| namenode.apply(command));
        assert_eq!(namenode.catalog().position().map(|it| it.term), Some(Term(1)));
        let mut turn = turns.take(now, &mut namenode, [Work::Frame(vec![make("/b")])]);
        turn.prepare(now, &mut namenode);
        assert!(!turns.lead(&mut turn));
    }

    #[test]
    fn pause_before_a_round_is_excused_by_its_first_command() {
        let mut namenode = namenode();
        let began = namenode.catalog().now();
        let mut turns = Turns::new(began);
        let mut turn = turns.take(began, &mut namenode, [Work::Frame(vec![make("/a")])]);
        // The process was stopped here.
        let now = began + Millis(5000);
        turn.prepare(now, &mut namenode);
        assert!(turns.is_late(&turn));
        turns.excuse_pause(&mut turn, &mut namenode);
        assert!(!turns.is_late(&turn));
        let first = turn.commands().next().unwrap();
        assert_eq!(first.action, Action::Absent { absence: Millis(5000) });
    }
}
