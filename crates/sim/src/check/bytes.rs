//! What was acknowledged, and what may be read.

use std::collections::BTreeMap;

use sanderling_core::block_table::WriteRequest;
use sanderling_protocol::message::Grant;
use sanderling_protocol::{BlockId, Epoch, LeaseId, NodeId, ObjectId, Refusal, Reply, Request};

use crate::content::Content;
use crate::runtime::CheckResult;
use crate::wire::Host;

/// One writer's time with one object.
#[derive(Debug, Clone, Copy)]
struct WriteSession {
    object: ObjectId,
    /// Where it began.
    base: u64,
    /// Up to here the namenode has acknowledged its bytes.
    promised: u64,
    /// Whether a lost end of the log has taken some of them.
    is_cut: bool,
}

/// The model of all bytes.
#[derive(Debug, Default)]
pub(crate) struct Bytes {
    sessions: Vec<WriteSession>,
    by_object: BTreeMap<ObjectId, Vec<u32>>,
    /// The node that each epoch of a block was granted on.
    homes: BTreeMap<(BlockId, Epoch), NodeId>,
    /// Lengths that a process reported when it fenced a block.
    fenced: BTreeMap<(u8, u32, BlockId), u32>,
    /// Blocks of writers that are gone, with the epoch of their fence.
    recovered: BTreeMap<BlockId, Epoch>,
    /// The last lease granted of each object.
    leases: BTreeMap<ObjectId, LeaseId>,
    /// Objects that begin with the bytes of others: those, with their lengths.
    joined: BTreeMap<ObjectId, Vec<(ObjectId, u64)>>,
    /// The parts of the concatenation that is being applied.
    joining: Vec<(ObjectId, u64)>,
    /// When the log lost its end.
    lost_at: Option<u64>,
    /// Whether the answer that is looked at may come from before.
    is_doubtful: bool,
}

impl Bytes {
    /// Goes back to an empty log. The homes that were granted stay: their numbers are not given out
    /// again.
    pub(super) fn rewind(&mut self, now: u64) {
        self.leases.clear();
        self.lost_at = Some(now);
    }

    /// Takes back what was promised of an object behind its bytes.
    pub(super) fn cut(&mut self, object: ObjectId, bytes: u64) {
        for number in self.by_object.get(&object).into_iter().flatten() {
            let session = &mut self.sessions[*number as usize];
            session.is_cut |= session.promised > bytes || bytes == 0;
            session.promised = session.promised.min(bytes);
        }
    }

    /// Notes that the next answer is one to a call of that time.
    pub(crate) fn answer_to(&mut self, sent_at: u64) {
        self.is_doubtful = self.lost_at.is_some_and(|lost_at| sent_at <= lost_at);
    }

    /// Begins a session of a writer that got a grant.
    pub(crate) fn open(&mut self, object: ObjectId, base: u64) -> u32 {
        let number = self.sessions.len() as u32;
        self.sessions.push(WriteSession { object, base, promised: base, is_cut: false });
        self.by_object.entry(object).or_default().push(number);
        number
    }

    /// Returns the bytes of an object that must be there.
    pub(super) fn promised(&self, object: ObjectId) -> u64 {
        let written = self.sessions_of(object).map(|(_, session)| session.promised).max();
        written.unwrap_or(0).max(self.joined_bytes(object))
    }

    /// Returns how many bytes an object got from others.
    fn joined_bytes(&self, object: ObjectId) -> u64 {
        self.joined.get(&object).into_iter().flatten().map(|(_, bytes)| bytes).sum()
    }

    /// Notes what a concatenation is about to join.
    pub(super) fn joining(&mut self, parts: Vec<(ObjectId, u64)>) {
        self.joining = parts;
    }

    /// Checks that a concatenation that was done has all bytes of its parts.
    pub(super) fn joined(&mut self, result: &Result<Reply, Refusal>) -> CheckResult {
        let Ok(Reply::Stat(stat)) = result else { return Ok(()) };
        if self.by_object.contains_key(&stat.object) {
            // Requested again: it was done before.
            return Ok(());
        }
        let parts = std::mem::take(&mut self.joining);
        for (part, bytes) in &parts {
            let promised = self.promised(*part);
            if *bytes < promised {
                let text = format!("object {part} was joined with {bytes} bytes of {promised}");
                return Err(("bytes", text));
            }
        }
        let sum: u64 = parts.iter().map(|(_, bytes)| bytes).sum();
        if sum != stat.bytes {
            let (object, bytes) = (stat.object, stat.bytes);
            let text = format!("object {object} has {bytes} bytes, its parts had {sum}");
            return Err(("bytes", text));
        }
        self.joined.insert(stat.object, parts);
        self.by_object.entry(stat.object).or_default();
        Ok(())
    }

    fn sessions_of(&self, object: ObjectId) -> impl Iterator<Item = (u32, &WriteSession)> {
        let numbers = self.by_object.get(&object).into_iter().flatten();
        numbers.map(|number| (*number, &self.sessions[*number as usize]))
    }

    pub(super) fn objects(&self) -> impl Iterator<Item = ObjectId> {
        self.by_object.keys().copied()
    }

    /// Checks that no other session's bytes lie among those of a session up to `end`, which the
    /// namenode has acknowledged, and notes them.
    pub(crate) fn promise(&mut self, number: u32, end: u64) -> CheckResult {
        let session = self.sessions[number as usize];
        // It may have been acknowledged by the end that is lost.
        if self.is_doubtful {
            return Ok(());
        }
        for (other, theirs) in self.sessions_of(session.object) {
            let (from, to) = (session.base.max(theirs.base), end.min(theirs.promised));
            if other != number && from < to {
                let object = session.object;
                let text = format!(
                    "bytes {from} to {to} of object {object} count for writers {number} and {other}"
                );
                return Err(("lease", text));
            }
        }
        let session = &mut self.sessions[number as usize];
        session.promised = session.promised.max(end);
        Ok(())
    }

    /// Checks that a sealed object has the bytes that its writer wrote.
    pub(crate) fn sealed(&self, number: u32, bytes: u64, prefix: u64) -> CheckResult {
        if bytes == prefix {
            return Ok(());
        }
        let object = self.sessions[number as usize].object;
        Err((
            "bytes",
            format!("object {object} was sealed at {bytes} bytes, {prefix} were written"),
        ))
    }

    pub(super) fn granted(&mut self, grant: &Grant) {
        self.leases.insert(grant.object, grant.lease);
        for block in &grant.blocks {
            self.homes.insert((block.block, block.epoch), block.node);
        }
    }

    pub(super) fn recovered(&mut self, lengths: &[(BlockId, Epoch, u32)]) {
        for (block, epoch, _) in lengths {
            self.recovered.insert(*block, *epoch);
        }
    }

    pub(crate) fn fenced(&mut self, slot: u8, life: u32, block: BlockId, length: u32) {
        self.fenced.insert((slot, life, block), length);
    }

    /// Checks that only the writer with the last lease changes an object.
    pub(super) fn answered(
        &mut self,
        request: &Request,
        answer: &Result<Reply, Refusal>,
    ) -> CheckResult {
        let (Request::Publish { object, lease, .. }
        | Request::AddBlocks { object, lease, .. }
        | Request::Seal { object, lease, .. }) = request
        else {
            return Ok(());
        };
        let last = self.leases.get(object).copied().unwrap_or(*lease);
        if answer.is_ok() && *lease != last {
            let text = format!("lease {lease} changed object {object}, whose lease is {last}");
            return Err(("lease", text));
        }
        Ok(())
    }

    /// Checks that a datanode acknowledges only what its fences, epochs and leases allow.
    pub(crate) fn wrote(
        &self,
        (slot, life): (u8, u32),
        node: Option<NodeId>,
        from: Host,
        request: &WriteRequest,
        length: u32,
    ) -> CheckResult {
        let WriteRequest { block, epoch, .. } = *request;
        if let Some(was) = self.fenced.get(&(slot, life, block))
            && length > *was
        {
            let text = format!(
                "host{slot} reported {was} bytes of block {block}, acknowledges {length} to {from}"
            );
            return Err(("fence", text));
        }
        if self.recovered.get(&block).is_some_and(|fenced| epoch < *fenced) {
            let text = format!("{from} wrote block {block} at epoch {epoch} after its lease ended");
            return Err(("lease", text));
        }
        if self.homes.get(&(block, epoch)).copied() != node {
            let text = format!(
                "host{slot}, node {node:?}, took bytes of block {block} at epoch {epoch}, whose \
                 home was another"
            );
            return Err(("one-home", text));
        }
        Ok(())
    }

    /// Checks that bytes that were read are those that were written there.
    pub(crate) fn read(
        &self,
        object: ObjectId,
        at: u64,
        bytes: u32,
        content: &Content,
    ) -> CheckResult {
        if content.bytes() != bytes {
            let got = content.bytes();
            let text = format!("{got} bytes of object {object} came where {bytes} were requested");
            return Err(("bytes", text));
        }
        let end = at + u64::from(bytes);
        let mut start = 0;
        for (part, length) in self.joined.get(&object).into_iter().flatten() {
            let (from, to) = (at.max(start), end.min(start + length));
            if from < to {
                let skipped = u32::try_from(from - at).expect("inside what was read");
                let bytes = u32::try_from(to - from).expect("a part of what was read");
                self.read(*part, from - start, bytes, &content.part(skipped, bytes))?;
            }
            start += length;
        }
        if start >= end {
            return Ok(());
        }
        let skipped = u32::try_from(start.saturating_sub(at)).expect("inside what was read");
        self.read_own(object, at.max(start), &content.part(skipped, bytes))
    }

    /// Checks that bytes read from an object are those that the object's own writers wrote.
    fn read_own(&self, object: ObjectId, at: u64, content: &Content) -> CheckResult {
        let mut offset = at;
        for run in content.runs() {
            let Some(session) = self.sessions.get(run.session as usize) else {
                return Err(("bytes", format!("bytes of no writer in object {object}")));
            };
            let (theirs, there) = (session.object, run.offset);
            if theirs != object || there != offset {
                let text = format!(
                    "at {offset} of object {object} are the bytes of {there} of object {theirs}"
                );
                return Err(("bytes", text));
            }
            let end = offset + u64::from(run.bytes);
            // Where readers know of bytes that the log has lost, they were there.
            let mine = |other: &(u32, &WriteSession)| other.0 == run.session || session.is_cut;
            for (other, owner) in self.sessions_of(object).filter(|it| !mine(it)) {
                let (from, to) = (offset.max(owner.base), end.min(owner.promised));
                if from < to {
                    let text = format!(
                        "bytes {from} to {to} of object {object} are writer {}'s, not {other}'s",
                        run.session
                    );
                    return Err(("lease", text));
                }
            }
            offset = end;
        }
        Ok(())
    }
}
