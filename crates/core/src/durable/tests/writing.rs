//! Callers that change what is below the directory, and writers of objects with blocks.

use sanderling_protocol::message::{BlockLength, Concat, Create, CreateMode};
use sanderling_protocol::{BlockId, LeaseId};

use super::*;
use crate::catalog::Placement;

/// Names that objects get when they are written.
const NAMES: [&str; 5] = ["a", "b", "d/a", "d/b", "e/c"];

/// Names that objects get when they are renamed or joined.
const OTHERS: [&str; 4] = ["a", "b", "f", "d/c"];

const BLOCK_BYTES: u32 = 1 << 20;

/// Origins of what is written in blocks. Those of values are below.
const ORIGINS: u64 = 1 << 41;

/// An object that is being written.
pub(super) struct Writer {
    object: ObjectId,
    lease: LeaseId,
    lengths: Vec<BlockLength>,
}

impl World {
    /// Draws what callers and writers do.
    pub(super) fn act(&mut self) -> Result<(), String> {
        if self.is_renaming && self.draw.below(2) == 0 {
            return self.rename_any();
        }
        match if self.has_blocks { self.draw.below(8) } else { 7 } {
            0 | 1 => self.begin_write(),
            2 | 3 if !self.writers.is_empty() => {
                let at = self.draw.below(self.writers.len() as u64) as usize;
                let writer = self.writers.swap_remove(at);
                self.end_write(writer)
            }
            4 if self.draw.below(4) == 0 => self.abort_writes(),
            _ => self.change(),
        }
    }

    /// Changes something below the directory at once.
    fn change(&mut self) -> Result<(), String> {
        let name = NAMES[self.draw.below(5) as usize];
        let other = OTHERS[self.draw.below(4) as usize];
        let action = match self.draw.below(9) {
            8 => self.concat(name, other),
            0..=3 => {
                let value = self.draw.below(1 << 40).to_le_bytes().to_vec();
                let writer = Nonce(self.draw.below(1 << 50));
                let create = Create { inline: Some(value), ..Create::new(path(name), writer) };
                let create = Create { mode: CreateMode::Replace, ..create };
                Action::Create { request: create, placed: Vec::new() }
            }
            4 => Action::Delete { path: path(name), recursive: false },
            5 => Action::Delete { path: path("d"), recursive: true },
            6 => Action::Rename { from: path(name), to: path(other), replace: true },
            _ => Action::Rename { from: path("e"), to: path("g"), replace: false },
        };
        // Refused if the name is missing, or waits for the store.
        let _ = self.change_by(action)?;
        Ok(())
    }

    /// Gives an object a name that no other one has.
    fn rename_any(&mut self) -> Result<(), String> {
        let names: Vec<String> = self.listed().into_keys().collect();
        if names.is_empty() {
            return Ok(());
        }
        let from = path(&names[self.draw.below(names.len() as u64) as usize]);
        let to = path(OTHERS[self.draw.below(4) as usize]);
        // Refused if the name is taken, or the object waits for the store or is read back.
        let _ = self.change_by(Action::Rename { from, to, replace: false })?;
        Ok(())
    }

    fn concat(&mut self, name: &str, other: &str) -> Action {
        let mut parts = vec![path(name)];
        if self.has_blocks && self.draw.below(2) == 0 {
            parts.push(path(NAMES[self.draw.below(5) as usize]));
        }
        Action::Concat(Concat {
            parts,
            to: path(other),
            condition: None,
            parents: false,
            is_listed: true,
            ttl: None,
            attributes: Attributes::none(),
            writer: Nonce(self.draw.below(1 << 50)),
        })
    }

    /// Writes an object of a few blocks, now and then of more than one part or one order. It is
    /// sealed later.
    fn begin_write(&mut self) -> Result<(), String> {
        let name = NAMES[self.draw.below(5) as usize];
        let count = match self.draw.below(16) {
            0 => 66 + self.draw.below(10),
            1..=4 => 9 + self.draw.below(12),
            _ => 1 + self.draw.below(3),
        };
        let takers = self.datanodes.staying();
        let taker = |draw: &mut Draw| takers[draw.below(takers.len() as u64) as usize];
        let homes: Vec<NodeId> = (0..count).map(|_| taker(&mut self.draw)).collect();
        let is_new = self.draw.below(2) == 0;
        let mode = if is_new { CreateMode::New } else { CreateMode::Replace };
        self.write(name, mode, &homes)
    }

    /// Writes an object with a block on each of these nodes. It is sealed later.
    pub(super) fn write(
        &mut self,
        name: &str,
        mode: CreateMode,
        homes: &[NodeId],
    ) -> Result<(), String> {
        let place =
            |node: &NodeId| Placement { node: *node, tier: Tier::Dram, bytes_max: BLOCK_BYTES };
        let placed = homes.iter().map(place).collect();
        let writer = Nonce(self.draw.below(1 << 50));
        let request = Create { mode, ..Create::new(path(name), writer) };
        let created = self.change_by(Action::Create { request, placed })?;
        let Ok(Reply::Grant(grant)) = created else { return Ok(()) };
        let last = 1 + self.draw.below(u64::from(BLOCK_BYTES)) as u32;
        let blocks: Vec<BlockId> = grant.blocks.iter().map(|granted| granted.block).collect();
        let length = |at: usize| if at + 1 == blocks.len() { last } else { BLOCK_BYTES };
        let bytes: u64 = (0..blocks.len()).map(|at| u64::from(length(at))).sum();
        let whole = Content::new(ORIGINS + grant.object.0, bytes);
        let (mut lengths, mut offset) = (Vec::new(), 0);
        for (at, granted) in grant.blocks.iter().enumerate() {
            let (block, length) = (granted.block, length(at));
            let bytes = whole.slice(offset, u64::from(length));
            self.datanodes.hold((granted.node, block, granted.epoch), bytes);
            offset += u64::from(length);
            lengths.push(BlockLength { block, length });
        }
        self.written.insert(grant.object, whole);
        self.writers.push(Writer { object: grant.object, lease: grant.lease, lengths });
        Ok(())
    }

    /// Seals what a writer has written. It tries again if that has to wait.
    pub(super) fn end_write(&mut self, writer: Writer) -> Result<(), String> {
        let (object, lease, lengths) = (writer.object, writer.lease, writer.lengths.clone());
        let attributes = Attributes::none();
        let sealed = self.change_by(Action::Seal { object, lease, lengths, attributes })?;
        if let Err(Refusal::RetryAfter { .. }) = sealed {
            self.writers.push(writer);
        }
        Ok(())
    }

    /// Gives up what is being written.
    pub(super) fn abort_writes(&mut self) -> Result<(), String> {
        for Writer { object, lease, .. } in std::mem::take(&mut self.writers) {
            let _ = self.change_by(Action::Abort { object, lease })?;
        }
        Ok(())
    }

    /// Deletes what has bytes missing, as a user does whose directory is stalled for that reason.
    pub(super) fn delete_lost(&mut self) -> Result<(), String> {
        for (name, entry) in self.listed() {
            if entry.lost_bytes > 0 {
                let _ = self.change_by(Action::Delete { path: path(&name), recursive: false })?;
            }
        }
        Ok(())
    }

    /// Makes a change. Checks that the queue leads to what there is then, and how.
    pub(super) fn change_by(&mut self, action: Action) -> Result<Result<Reply, Refusal>, String> {
        let before = self.directory();
        let known = self.states().len();
        let ends_promises = self.ends_promises(&action);
        let changed = self.log(action);
        if ends_promises && changed.is_ok() {
            self.promised.clear();
        }
        let (after, states) = (self.directory(), self.states());
        if states.last() != Some(&after) {
            return Err(format!("seed {}: the queue does not lead to what there is", self.seed));
        }
        // On the way no name is missing that was there before and is there afterwards, and of what
        // is moved or joined the old or the new names are there.
        let has_all =
            |state: &State, of: &State| of.keys().all(|name: &String| state.contains_key(name));
        let is_sound = |state: &State| has_all(state, &before) || has_all(state, &after);
        match states.get(known..).unwrap_or_default().iter().all(is_sound) {
            true => Ok(changed),
            false => Err(format!("seed {}: a change takes names away too early", self.seed)),
        }
    }

    /// Returns whether a change makes objects volatile that the store has: it keeps no old names in
    /// logs without rules, and none in place of which it may have another object.
    fn ends_promises(&self, action: &Action) -> bool {
        match action {
            Action::Rename { to, .. } => {
                self.catalog.rules().0 == 0 || self.catalog.stat(to, self.now).is_ok()
            }
            _ => false,
        }
    }
}
