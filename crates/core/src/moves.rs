//! The way of every move: reserve the future home at the namenode, let the source push the bytes to
//! it, commit by compare-and-set on the block's epoch; give the reservation back if that fails.
//!
//! The relocator and the background both send their batches this way. They are the [`Owner`]s: they
//! choose blocks, targets and pace, know what becomes of a block whose move failed, and count.
//! What is called when, how often, and what a refusal is blamed on is decided here, once.
//!
//! Nothing is held that must survive: reservations live in the catalog.

mod batch;
mod interface;
mod refusal_cause;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub(crate) use batch::{Batch, Choice, Mark, Move, Step};
pub use interface::{CallId, Input, MoveOutput};
pub(crate) use refusal_cause::Blame;
use sanderling_protocol::order::Pushed;
use sanderling_protocol::{Instant, Millis, NodeId, NodeInfo, Refusal};

use crate::retry::doubled;

/// The batches of one owner and the calls that it requests.
#[derive(Debug)]
pub(crate) struct Pipeline {
    retry_wait: Millis,
    tries_max: u32,
    /// Batches with a call under way.
    in_flight: BTreeMap<CallId, Batch>,
    /// Batches that call again at a time.
    waiting: BTreeMap<(Instant, CallId), Batch>,
    last_call: CallId,
    outputs: VecDeque<MoveOutput>,
}

/// A source whose moves are its owner's.
#[derive(Debug)]
pub(crate) struct Source {
    /// Where it takes orders.
    pub(crate) address: String,
    /// Time of one push.
    pub(crate) within: Millis,
    pub(crate) mark: Mark,
}

/// Sends batches on their way. Every batch that begins ends once.
pub(crate) trait Owner {
    fn pipeline(&mut self) -> &mut Pipeline;

    /// Returns a source, as long as its moves are this owner's.
    fn source(&self, now: Instant, node: NodeId) -> Option<Source>;

    /// Returns the address of a target, as long as it is one.
    fn target(&self, node: NodeId) -> Option<&str>;

    /// Counts a batch that begins, or the half of one that goes its own way from now on.
    fn begun(&mut self, batch: &Batch);

    /// Takes the answer of a batch's step: `done` are those of its moves that were not refused.
    fn done(&mut self, now: Instant, done: &Batch);

    /// Counts moves of a batch that failed, and corrects what is known of their target if it is to
    /// blame.
    fn failed(&mut self, now: Instant, batch: &Batch, blame: Blame, moves: usize);

    /// Notes that a call of a batch failed, before it is decided whether it is made again.
    fn unanswered(&mut self, now: Instant, batch: &Batch);

    /// Takes a block back whose move was not made, or of which that is not known.
    fn take_back(&mut self, now: Instant, batch: &Batch, one: Move);

    /// Counts a batch that has ended.
    fn ended(&mut self, now: Instant, batch: &Batch);
}

impl Step {
    /// Returns how many of its calls in a row may fail.
    const fn tries_max(self, tries_max: u32) -> u32 {
        match self {
            // Perhaps it is reserved: giving it back makes it certain.
            Self::Reserve => 1,
            // A repetition finds the bytes that arrived, but what keeps a source from answering may
            // be its target, and its next try takes as long.
            Self::Push => 2,
            // Longest: the bytes are there, the commit may have been done, and the namenode may
            // restart meanwhile.
            Self::Commit => 4 * tries_max,
            // Room that is reserved for nothing is kept from writers and from other moves.
            Self::Abandon => tries_max,
        }
    }
}

/// Returns the wait after so many failures in a row: doubled up to eight times as long.
pub(crate) fn backoff(first: Millis, failures: u32) -> Millis {
    debug_assert!(failures > 0, "nothing is waited for before a failure");
    doubled(first, failures - 1, Millis(8 * first.0))
}

impl Pipeline {
    /// Returns a pipeline without batches, whose calls have ids after `last_call`.
    pub(crate) fn new(last_call: CallId, retry_wait: Millis, tries_max: u32) -> Self {
        let (in_flight, waiting, outputs) = (BTreeMap::new(), BTreeMap::new(), VecDeque::new());
        Self { retry_wait, tries_max, in_flight, waiting, last_call, outputs }
    }

    /// Returns an id for the next call that no call before had.
    pub(crate) const fn call(&mut self) -> CallId {
        self.last_call.0 += 1;
        self.last_call
    }

    pub(crate) fn emit(&mut self, output: MoveOutput) {
        self.outputs.push_back(output);
    }

    pub(crate) fn poll_output(&mut self) -> Option<MoveOutput> {
        self.outputs.pop_front()
    }

    /// Returns the batches with a call under way or about to be made again.
    pub(crate) fn batches(&self) -> impl Iterator<Item = &Batch> {
        self.in_flight.values().chain(self.waiting.values())
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.waiting.is_empty()
    }

    /// Returns the bytes of reservations that no view may show yet.
    pub(crate) fn unseen(&self) -> BTreeMap<Choice, u64> {
        let mut unseen = BTreeMap::new();
        for batch in self.batches().filter(|batch| batch.step == Step::Reserve) {
            *unseen.entry(batch.choice).or_default() += batch.reserve_bytes();
        }
        unseen
    }

    /// Returns when the first batch calls again.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.waiting.first_key_value().map(|((until, _), _)| *until)
    }

    /// Takes the batch whose call is answered, unless that has happened before.
    fn take(&mut self, call: CallId, step: Step) -> Option<Batch> {
        self.in_flight.get(&call).filter(|batch| batch.step == step)?;
        self.in_flight.remove(&call)
    }
}

/// Sends a batch on its way.
pub(crate) fn begin(owner: &mut impl Owner, now: Instant, batch: Batch) {
    debug_assert!(batch.step == Step::Reserve, "a move begins with its reservation");
    debug_assert!(!batch.moves.is_empty(), "a batch moves something");
    owner.begun(&batch);
    go_on(owner, now, batch);
}

/// Makes the calls again whose time has come.
pub(crate) fn wake(owner: &mut impl Owner, now: Instant) {
    while owner.pipeline().deadline().is_some_and(|until| until <= now) {
        let (_, batch) = owner.pipeline().waiting.pop_first().expect("it has a deadline");
        go_on(owner, now, batch);
    }
}

/// Ends the pushes to nodes that take no blocks any more, without waiting for them to fail. The
/// namenode has given their reservations up already.
pub(crate) fn leave_unfit(owner: &mut impl Owner, now: Instant, nodes: &[NodeInfo]) {
    let fit: BTreeSet<NodeId> =
        nodes.iter().filter(|node| node.policy.takes_blocks()).map(|node| node.id).collect();
    let is_unfit = |batch: &Batch| batch.step == Step::Push && !fit.contains(&batch.choice.node);
    let Pipeline { in_flight, waiting, .. } = owner.pipeline();
    let calling = in_flight.extract_if(.., |_, batch| is_unfit(batch)).map(|(_, batch)| batch);
    let mut unfit: Vec<Batch> = calling.collect();
    unfit.extend(waiting.extract_if(.., |_, batch| is_unfit(batch)).map(|(_, batch)| batch));
    for batch in unfit {
        give_up(owner, now, batch);
    }
}

/// Takes the answer of a batch's call; all else is the owner's.
pub(crate) fn handle(owner: &mut impl Owner, now: Instant, input: Input) {
    match input {
        Input::Reserved { call, epochs } => {
            answered(owner, now, (call, Step::Reserve), epochs, |one, epoch| one.to_epoch = epoch);
        }
        Input::Pushed { call, outcomes } => {
            answered(owner, now, (call, Step::Push), outcomes, |one, Pushed { length }| {
                one.length = length;
            });
        }
        Input::Committed { call, epochs } => {
            answered(owner, now, (call, Step::Commit), epochs, |_, _| ());
        }
        Input::Abandoned { call, is_done } => match owner.pipeline().take(call, Step::Abandon) {
            Some(batch) if is_done => end(owner, now, batch),
            Some(batch) => unanswered(owner, now, batch),
            None => {}
        },
        Input::Drains { .. }
        | Input::Candidates { .. }
        | Input::Page { .. }
        | Input::Dropped { .. } => {}
    }
}

/// Takes the answer to each move of a batch: a list of another length than requested counts as no
/// answer.
fn answered<T>(
    owner: &mut impl Owner,
    now: Instant,
    (call, step): (CallId, Step),
    results: Option<Vec<Result<T, Refusal>>>,
    note: impl Fn(&mut Move, T),
) {
    let Some(mut batch) = owner.pipeline().take(call, step) else { return };
    let asked = batch.moves.len();
    let Some(results) = results.filter(|results| results.len() == asked) else {
        return unanswered(owner, now, batch);
    };
    let mut refused = Vec::new();
    for (mut one, result) in std::mem::take(&mut batch.moves).into_iter().zip(results) {
        match result {
            Ok(result) => {
                note(&mut one, result);
                batch.moves.push(one);
            }
            Err(refusal) => {
                one.blame = Blame::of(step, &refusal);
                owner.failed(now, &batch, one.blame, 1);
                refused.push(one);
            }
        }
    }
    debug_assert_eq!(batch.moves.len() + refused.len(), asked, "each has one outcome");
    owner.done(now, &batch);
    let done = std::mem::take(&mut batch.moves);
    if step == Step::Push {
        if !refused.is_empty() {
            // The two halves are two batches from here on, and each ends by itself.
            let refused = batch.at(Step::Abandon, refused);
            owner.begun(&refused);
            go_on(owner, now, refused);
        }
        return go_on(owner, now, batch.at(Step::Commit, done));
    }
    // What was refused is not reserved, or not any more: the namenode gives a move up whose commit
    // it refuses. To abandon its block could only take a later reservation away.
    for one in refused {
        owner.take_back(now, &batch, one);
    }
    let left = if step == Step::Reserve { done } else { Vec::new() };
    go_on(owner, now, batch.at(Step::Push, left));
}

/// A call failed: whether it was done is unknown.
fn unanswered(owner: &mut impl Owner, now: Instant, mut batch: Batch) {
    debug_assert!(!batch.moves.is_empty(), "an empty batch makes no call");
    owner.unanswered(now, &batch);
    batch.tries += 1;
    // Nothing is repeated for a source that is another's by now.
    let is_wanted = owner.source(now, batch.source).is_some();
    let pipeline = owner.pipeline();
    if is_wanted && batch.tries < batch.step.tries_max(pipeline.tries_max) {
        let until = now + backoff(pipeline.retry_wait, batch.tries);
        let call = pipeline.call();
        pipeline.waiting.insert((until, call), batch);
        return;
    }
    let blame = match batch.step {
        Step::Reserve => Blame::Unknown,
        // The source could not be reached, or it waits for a target that does not answer.
        Step::Push => Blame::Target,
        Step::Commit | Step::Abandon => return end(owner, now, batch),
    };
    owner.failed(now, &batch, blame, batch.moves.len());
    let moves = std::mem::take(&mut batch.moves);
    go_on(owner, now, batch.at(Step::Abandon, moves));
}

/// Makes the call of a batch's step; an empty batch ends.
fn go_on(owner: &mut impl Owner, now: Instant, mut batch: Batch) {
    if batch.moves.is_empty() {
        return owner.ended(now, &batch);
    }
    let call = owner.pipeline().call();
    let output = match (batch.step, owner.source(now, batch.source)) {
        (Step::Reserve, _) => MoveOutput::Reserve { call, moves: batch.proposals() },
        // Whoever the source belongs to by now: its bytes are there.
        (Step::Commit, _) => MoveOutput::Commit { call, moves: batch.commits() },
        // Its reservations have another owner as well, or none: a notice hands them to the
        // relocator, and the namenode gives them up when it is taken back and when the node goes.
        (Step::Push | Step::Abandon, None) => return end(owner, now, batch),
        (Step::Abandon, Some(_)) => MoveOutput::Abandon { call, blocks: batch.blocks().collect() },
        (Step::Push, Some(source)) => {
            let Some(target) = owner.target(batch.choice.node) else {
                return give_up(owner, now, batch);
            };
            batch.mark = source.mark;
            MoveOutput::Push {
                call,
                source: batch.source,
                address: source.address,
                moves: batch.pushes(target),
                within: source.within,
            }
        }
    };
    batch.called_at = now;
    let pipeline = owner.pipeline();
    pipeline.emit(output);
    let before = pipeline.in_flight.insert(call, batch);
    debug_assert!(before.is_none(), "no call's number is used twice");
}

/// Ends a batch whose target is none any more. What is still reserved there gives way to the next
/// reservation of the same block.
fn give_up(owner: &mut impl Owner, now: Instant, batch: Batch) {
    owner.failed(now, &batch, Blame::Unknown, batch.moves.len());
    end(owner, now, batch);
}

/// Ends a batch whose moves were not made, or about which nothing can be done.
fn end(owner: &mut impl Owner, now: Instant, mut batch: Batch) {
    for one in std::mem::take(&mut batch.moves) {
        owner.take_back(now, &batch, one);
    }
    owner.ended(now, &batch);
}
