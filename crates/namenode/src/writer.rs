//! The writer: it prepares changes, writes them to the journal, and only then applies them. One
//! thread has it; a frame of small changes that finds nobody at it is written by whoever brings it,
//! so that no other thread has to be woken for it and back.
//!
//! Whatever waits is taken together: one lock to prepare, one write, one lock to apply (group
//! commit). Within a frame the order of its requests holds: what cannot be decided before an
//! earlier request of the same frame is applied waits for the next round.

mod events;
mod frame;
mod round;
mod snapshots;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use parking_lot::Mutex;
use sanderling_core::catalog::{Action, Command, DatanodeOrder};
use sanderling_core::membership::Probe;
use sanderling_protocol::limits::EVENTS_KEPT_MAX;
use sanderling_protocol::{Instant, Millis, NodeId, OrderReply, Refusal, Reply, Request};
use tokio::sync::{mpsc, oneshot};
use tracing::{error, info, warn};

use crate::error::NamenodeFailure;
use crate::journal::{AppendError, Journal};
use crate::state::State;
use events::say;
use frame::OpenFrame;
use round::Round;
pub(crate) use snapshots::Snapshots;

/// Answers of one frame, in the order of its requests.
pub(crate) type Answers = Vec<Result<Reply, Refusal>>;

/// Something for the writer to do.
#[derive(Debug)]
pub(crate) enum Work {
    /// Requests of one frame.
    Frame { requests: Vec<Request>, reply: oneshot::Sender<Answers> },
    /// What a datanode answered to an order; `None` when it could not be reached.
    Ordered { order: DatanodeOrder, reply: Option<OrderReply> },
    /// What came of dialling a node.
    Probed { node: NodeId, outcome: Probe },
    /// The server stops: write what waits, then end.
    Stop,
}

/// Something for the part that talks to datanodes.
#[derive(Debug)]
pub(crate) enum Errand {
    Order(DatanodeOrder),
    Probe { node: NodeId, address: String },
}

/// Ends the namenode when a change panics on a thread that would outlive it: nobody may read or
/// write what is half changed.
struct Halfway {
    state: Arc<State>,
}

impl Drop for Halfway {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.state.fail(NamenodeFailure::Ended { part: "writer" });
        }
    }
}

/// Whoever has it locked writes.
pub(crate) struct Writer {
    pub(crate) state: Arc<State>,
    pub(crate) journal: Journal,
    pub(crate) snapshots: Snapshots,
    pub(crate) errands: mpsc::Sender<Errand>,
    /// Time-driven commands are not tried again before this after a refused write.
    pub(crate) tick_at: Instant,
}

/// Whose command it is.
#[derive(Debug, Clone, Copy)]
enum Origin {
    Frame(usize),
    Own,
}

impl Writer {
    /// Most work taken together, so that the first of it does not wait long for the last.
    const BATCH_MAX: usize = 512;

    /// Shortest sleep: what is overdue and cannot be done does not spin.
    const SLEEP_MIN: Duration = Duration::from_millis(1);

    /// Longest sleep when nothing is due.
    const SLEEP_MAX: Duration = Duration::from_millis(100);

    /// Longest time between two looks at what has come that is no absence: a heartbeat's period.
    const AWAY_MIN: Millis = Millis(500);

    /// Pause of time-driven commands after the journal refused them.
    const TICK_PAUSE: Millis = Millis(200);

    /// The writer's thread: works until told to stop, or until nobody is left to give work.
    pub(crate) fn run(writer: &Mutex<Self>, work: &Receiver<Work>) {
        let mut is_running = true;
        let mut listened_at = writer.lock().state.now();
        while is_running {
            let mut batch = Vec::new();
            let sleep = writer.lock().sleep();
            match work.recv_timeout(sleep) {
                Ok(work) => batch.push(work),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => is_running = false,
            }
            let mut writer = writer.lock();
            writer.excuse(listened_at);
            listened_at = writer.state.now();
            while batch.len() < Self::BATCH_MAX
                && let Ok(work) = work.try_recv()
            {
                batch.push(work);
            }
            is_running &= !batch.iter().any(|work| matches!(work, Work::Stop));
            writer.turn(batch);
            writer.house_keeping();
        }
        let writer = &mut *writer.lock();
        writer.snapshots.finish(&writer.journal);
    }

    /// Tells whether time has made something necessary: that comes first, on the writer's thread.
    pub(crate) fn is_due(&self) -> bool {
        let now = self.state.now();
        self.state.namenode.read().deadline().is_some_and(|due| due <= now)
    }

    /// Makes the changes of one frame, on the caller's thread.
    pub(crate) fn change(&mut self, requests: Vec<Request>) -> Option<Answers> {
        let _halfway = Halfway { state: Arc::clone(&self.state) };
        let (reply, mut answers) = oneshot::channel();
        self.work_off(vec![OpenFrame::new(requests, reply)], Vec::new());
        answers.try_recv().ok()
    }

    /// Does not hold against the nodes that nobody listened to them since: a snapshot, a change of
    /// millions of objects, or the machine has taken the time.
    fn excuse(&self, listened_at: Instant) {
        let now = self.state.now();
        let away = now.since(listened_at);
        if away > Self::AWAY_MIN {
            warn!(millis = away.0, "the namenode stood still: silence of nodes is excused");
            self.state.namenode.write().was_away(now, away);
        }
    }

    fn sleep(&self) -> Duration {
        let now = self.state.now();
        let due = self.state.namenode.read().deadline().map(|due| due.max(self.tick_at));
        let sleep = due.map_or(Self::SLEEP_MAX, |due| Duration::from(now.until(due)));
        sleep.clamp(Self::SLEEP_MIN, Self::SLEEP_MAX)
    }

    /// Does everything in a batch, and what time has made necessary.
    fn turn(&mut self, batch: Vec<Work>) {
        let mut frames = Vec::new();
        // What changes who is there comes before what chooses among them.
        let commands = self.own_commands(batch, &mut frames);
        self.work_off(frames, commands);
    }

    /// Writes and applies commands, then those that the frames become, until all are answered.
    fn work_off(&mut self, mut frames: Vec<OpenFrame>, mut commands: Vec<(Command, Origin)>) {
        if commands.is_empty() {
            commands = self.prepare(&mut frames);
        }
        while !commands.is_empty() {
            self.commit(&mut frames, commands);
            commands = self.prepare(&mut frames);
        }
        for frame in frames {
            frame.finish();
        }
    }

    /// Takes the frames out of a batch and makes the commands that nobody asked for.
    fn own_commands(
        &mut self,
        batch: Vec<Work>,
        frames: &mut Vec<OpenFrame>,
    ) -> Vec<(Command, Origin)> {
        let now = self.state.now();
        let mut namenode = self.state.namenode.write();
        let mut commands = Vec::new();
        for work in batch {
            match work {
                Work::Frame { requests, reply } => frames.push(OpenFrame::new(requests, reply)),
                Work::Ordered { order, reply } => {
                    commands.extend(namenode.ordered(now, &order, reply));
                }
                Work::Probed { node, outcome } => {
                    commands.extend(namenode.probed(now, node, outcome));
                }
                Work::Stop => {}
            }
        }
        let is_due = self.tick_at <= now && namenode.deadline().is_some_and(|due| due <= now);
        let mut probes = Vec::new();
        if is_due {
            commands.extend(namenode.tick(now));
            probes = namenode.to_probe(now);
        }
        drop(namenode);
        for (node, address) in probes {
            self.send(Errand::Probe { node, address });
        }
        commands.into_iter().map(|command| (command, Origin::Own)).collect()
    }

    /// Answers what can be answered and makes commands of the rest, frame by frame.
    fn prepare(&self, frames: &mut [OpenFrame]) -> Vec<(Command, Origin)> {
        let mut round = Round::default();
        if frames.iter().all(OpenFrame::is_done) {
            return Vec::new();
        }
        let now = self.state.now();
        let mut namenode = self.state.namenode.write();
        for (place, frame) in frames.iter_mut().enumerate() {
            frame.prepare(now, &mut namenode, &mut round, Origin::Frame(place));
        }
        round.into_commands()
    }

    /// Writes commands, then applies them. Commands that were not written change nothing.
    fn commit(&mut self, frames: &mut [OpenFrame], commands: Vec<(Command, Origin)>) {
        if let Err(error) = self.journal.append(commands.iter().map(|(command, _)| command)) {
            self.refuse(frames, &commands, &error);
            return;
        }
        self.state.metrics.batches.inc();
        if self.state.refusal.lock().take().is_some() {
            info!("the journal takes changes again");
        }
        self.snapshots.wrote();
        let mut orders = Vec::new();
        let mut namenode = self.state.namenode.write();
        for (command, origin) in commands {
            let applied = namenode.apply(&command);
            orders.extend(applied.orders);
            if let Origin::Frame(place) = origin {
                frames[place].answer(applied.result);
            }
        }
        let said = *self.state.event_last.borrow();
        let events = namenode.events_after(said, EVENTS_KEPT_MAX);
        drop(namenode);
        for order in orders {
            self.send(Errand::Order(order));
        }
        if let Some(last) = events.last() {
            self.state.event_last.send_replace(last.sequence);
        }
        events.iter().for_each(say);
    }

    fn refuse(
        &mut self,
        frames: &mut [OpenFrame],
        commands: &[(Command, Origin)],
        error: &AppendError,
    ) {
        let is_first = self.state.failure.borrow().is_none();
        if let AppendError::Failed(why) = error
            && is_first
        {
            error!(%why, "the journal has failed: no change is taken any more");
            self.state.fail(NamenodeFailure::Journal { why: why.clone() });
        }
        if self.state.refusal.lock().replace(error.to_string()).is_none() {
            warn!(why = %error, "the journal refuses changes; reads go on");
        }
        self.tick_at = self.state.now() + Self::TICK_PAUSE;
        for (_, origin) in commands {
            if let Origin::Frame(place) = origin {
                frames[*place].answer(Err(Refusal::JournalFull { why: error.to_string() }));
            }
        }
    }

    fn send(&self, errand: Errand) {
        if self.errands.try_send(errand).is_err() {
            // Block reports, heartbeats and the next probe say it again.
            self.state.metrics.orders_dropped.inc();
        }
    }

    fn house_keeping(&mut self) {
        self.state.metrics.set_journal_bytes(self.journal.bytes());
        if let Err(why) = self.snapshots.keep(&self.state, &mut self.journal) {
            self.state.fail(NamenodeFailure::Journal { why });
        }
    }

    /// Writes and applies the record that says where this process began.
    pub(crate) fn begin(&mut self, commands: u64, cut_bytes: u64) {
        let at = self.state.now();
        self.state.namenode.write().resume(at);
        let command = Command { at, action: Action::Started { commands, cut_bytes } };
        self.commit(&mut [], vec![(command, Origin::Own)]);
    }
}
