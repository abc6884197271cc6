//! No number is given out twice, whatever the log has lost in between.

use std::collections::BTreeMap;
use std::ops::Range;

use sanderling_core::catalog::{Action, Catalog, Command, Numbers as Next};
use sanderling_protocol::{BlockId, Epoch, Millis, NodeId, Reply};

use crate::content::Content;
use crate::runtime::CheckResult;

/// What is numbered.
const KINDS: [&str; 6] = ["object", "block", "lease", "job", "node", "client"];

/// The place of blocks in [`KINDS`].
const BLOCK: usize = 1;
/// The place of nodes in [`KINDS`].
const NODE: usize = 4;
/// The place of clients in [`KINDS`].
const CLIENT: usize = 5;

/// What was given out: in the whole run, and by the log as it is.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    next: Next,
    ever: [Ranges; KINDS.len()],
    logged: [Ranges; KINDS.len()],
    /// The most bytes that any node ever held under a block's number, and at which epoch.
    held: BTreeMap<BlockId, (Epoch, Content)>,
}

/// Numbers, as ranges in the order in which they were given.
#[derive(Debug, Default)]
struct Ranges(Vec<Range<u64>>);

impl Ranges {
    fn insert(&mut self, range: Range<u64>) {
        match self.0.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.0.push(range),
        }
    }

    /// Returns the first of some numbers that is there.
    fn first_of(&self, range: &Range<u64>) -> Option<u64> {
        let common = |mine: &Range<u64>| mine.start.max(range.start)..mine.end.min(range.end);
        self.0.iter().map(common).find(|common| !common.is_empty()).map(|common| common.start)
    }

    fn contains(&self, number: u64) -> bool {
        self.first_of(&(number..number + 1)).is_some()
    }
}

impl Numbers {
    /// Goes back to an empty log.
    pub(crate) fn rewind(&mut self) {
        self.next = Next::default();
        self.logged = Default::default();
    }

    /// Takes the log as a start has found it.
    pub(crate) const fn starts(&mut self, catalog: &Catalog) {
        self.next = catalog.numbers();
    }

    /// Notes what a command has given out. `is_replay`: it was given out before.
    pub(super) fn apply(
        &mut self,
        command: &Command,
        reply: Option<&Reply>,
        catalog: &Catalog,
        is_replay: bool,
    ) -> CheckResult {
        let (before, now) = (self.next, catalog.numbers());
        self.next = now;
        if matches!(command.action, Action::BeginTerm { .. }) {
            return Ok(());
        }
        let client = match (&command.action, reply) {
            (Action::OpenClient { .. }, Some(Reply::Client { number, .. })) => Some(*number),
            _ => None,
        };
        let given = [
            before.object..now.object,
            before.block..now.block,
            before.lease..now.lease,
            before.job..now.job,
            u64::from(before.node)..u64::from(now.node),
            client.map_or(0..0, |number| number..number + 1),
        ];
        for (kind, given) in given.into_iter().enumerate().filter(|(_, given)| !given.is_empty()) {
            // The same key gets its number again.
            if kind == CLIENT && self.logged[CLIENT].contains(given.start) {
                continue;
            }
            self.logged[kind].insert(given.clone());
            if is_replay {
                continue;
            }
            if let Some(twice) = self.ever[kind].first_of(&given) {
                return Err(("numbers", format!("{} {twice} is given out twice", KINDS[kind])));
            }
            self.ever[kind].insert(given);
        }
        Ok(())
    }

    /// Checks that what a node holds under a block's number and epoch agrees with whatever was held
    /// under them before, on this or another node: bytes that no node has are written behind, and a
    /// new epoch is another home of the same bytes.
    pub(crate) fn held(&mut self, block: BlockId, epoch: Epoch, content: &Content) -> CheckResult {
        let (before, known) = self.held.entry(block).or_insert((epoch, Content::default()));
        if !known.agrees(content) {
            let (was, is) = (known.runs(), content.runs());
            let text = format!(
                "block {block} is {is:?} at epoch {epoch}, and was {was:?} at epoch {before}"
            );
            return Err(("numbers", text));
        }
        if known.bytes() < content.bytes() {
            (*before, *known) = (epoch, content.clone());
        }
        Ok(())
    }

    fn is_lost(&self, kind: usize, number: u64) -> bool {
        self.ever[kind].contains(number) && !self.logged[kind].contains(number)
    }

    /// Returns whether a lost end of the log gave a block out.
    pub(super) fn is_lost_block(&self, block: BlockId) -> bool {
        self.is_lost(BLOCK, block.0)
    }

    /// Returns whether a lost end of the log gave a node's id out.
    pub(super) fn is_lost_node(&self, node: NodeId) -> bool {
        self.is_lost(NODE, u64::from(node.0))
    }
}

/// The longest step of the log's time that a start may make, and a second: 30 days (`STEP_MAX` of
/// the core's `namenode/clock`, which is not used, so that a change of it is found).
const STEP_MAX: Millis = Millis(30 * 24 * 3600 * 1000 + 1000);

/// Checks that the log's time never goes back, and that a start does not carry it far ahead.
pub(super) fn check_time(command: &Command, catalog: &Catalog) -> CheckResult {
    let (at, before) = (command.at, catalog.now());
    if at < before {
        let millis = before.since(at).0;
        return Err(("clock", format!("the log's time goes back by {millis} ms")));
    }
    if before.0 > 0 && at > before + STEP_MAX {
        let days = at.since(before).0 / (24 * 3600 * 1000);
        return Err(("clock", format!("the log's time goes ahead by {days} days at once")));
    }
    Ok(())
}
