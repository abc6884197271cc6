//! Reading lost blocks of durable objects back from their stores.

use std::collections::BTreeMap;

use sanderling_protocol::message::{DurableLoss, DurableProgress, LostBlock, RestoredBlock};
use sanderling_protocol::{Instant, Millis, NodeId, ObjectId, Refusal, Tier};

use super::call_error::DurableCallError;
use super::interface::DurableOutput;
use super::task::Directory;
use super::{DurableDrain, RETRY_MAX, RETRY_MIN, Under};

/// Objects that are to be read back.
#[derive(Debug, Default)]
pub(super) struct Restores(BTreeMap<ObjectId, Restore>);

#[derive(Debug)]
struct Restore {
    loss: DurableLoss,
    /// An order is under way, or what came of it is not reported.
    is_busy: bool,
    tries: u32,
    retry_at: Option<Instant>,
    avoid: Option<NodeId>,
}

impl Restores {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes what a view shows.
    pub(super) fn see(&mut self, losses: Vec<DurableLoss>) {
        let mut seen: BTreeMap<ObjectId, DurableLoss> =
            losses.into_iter().map(|loss| (loss.object, loss)).collect();
        self.0.retain(|object, restore| restore.is_busy || seen.contains_key(object));
        for (object, restore) in &mut self.0 {
            if let Some(loss) = seen.remove(object)
                && !restore.is_busy
            {
                restore.loss = loss;
            }
        }
        for (object, loss) in seen {
            let restore = Restore { loss, is_busy: false, tries: 0, retry_at: None, avoid: None };
            self.0.insert(object, restore);
        }
    }

    fn next(&self, now: Instant) -> Option<(DurableLoss, Option<NodeId>)> {
        let is_due = |it: &&Restore| {
            !it.is_busy && it.retry_at.is_none_or(|at| at <= now) && !it.loss.blocks.is_empty()
        };
        self.0.values().find(is_due).map(|it| (it.loss.clone(), it.avoid))
    }

    /// Lets objects go whose outcome the namenode has: the next view shows what is left of them.
    pub(super) fn reported(&mut self, sent: &DurableProgress) {
        if !sent.restored.is_empty() || !sent.gone.is_empty() {
            let is_of = |restore: &Restore| {
                let has = |block: &LostBlock| {
                    sent.restored.iter().any(|restored| restored.block == block.block)
                };
                restore.loss.blocks.iter().any(has)
                    || sent.gone.iter().any(|(object, _)| *object == restore.loss.object)
            };
            self.0.retain(|_, restore| !is_of(restore));
        }
    }

    fn of(&self, directory: ObjectId) -> impl Iterator<Item = &Restore> {
        self.0.values().filter(move |restore| restore.loss.directory == directory)
    }

    /// Returns whether lost bytes of a directory are to be read back.
    pub(super) fn waits(&self, directory: ObjectId) -> bool {
        self.of(directory).next().is_some()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.0.values().filter(|it| !it.is_busy).filter_map(|it| it.retry_at).min()
    }

    pub(super) fn wake(&mut self, now: Instant) {
        for restore in self.0.values_mut() {
            if restore.retry_at.is_some_and(|at| at <= now) {
                restore.retry_at = None;
            }
        }
    }
}

impl DurableDrain {
    /// Orders everything to be read back for which a node is free.
    pub(super) fn begin_restores(&mut self, now: Instant) {
        while let Some((loss, avoid)) = self.restores.next(now) {
            let Some(node) = self.choose_node(&loss.store, None, avoid) else { return };
            let Some((known, uploads)) = self.nodes.get_mut(&node) else { return };
            *uploads += 1;
            let address = known.address.clone();
            let (object, blocks) = (loss.object, loss.blocks.clone());
            if let Some(restore) = self.restores.0.get_mut(&object) {
                restore.is_busy = true;
            }
            let call = self.call(Under::Restore { object, node, blocks });
            self.outputs.push_back(DurableOutput::Restore { call, node, address, loss });
        }
    }

    pub(super) fn on_restored(
        &mut self,
        now: Instant,
        (object, node, blocks): (ObjectId, NodeId, &[LostBlock]),
        answer: Result<Vec<Tier>, DurableCallError>,
    ) {
        if let Some((_, uploads)) = self.nodes.get_mut(&node) {
            *uploads = uploads.saturating_sub(1);
        }
        let Some(restore) = self.restores.0.get_mut(&object) else { return };
        let directory = restore.loss.directory;
        match answer {
            Ok(tiers) => {
                restore.tries = 0;
                let restored = blocks.iter().zip(tiers).map(|(lost, tier)| {
                    let LostBlock { block, epoch, .. } = *lost;
                    RestoredBlock { block, epoch, node, tier }
                });
                self.report.restored.extend(restored);
                self.reads_again(directory);
            }
            Err(DurableCallError::Refused(Refusal::BlockDamaged { .. })) => {
                // The store lacks the object, or has another one in its place.
                restore.tries = 0;
                let why = format!("the store {} does not have it as it was", restore.loss.store);
                self.report.gone.push((object, why));
                self.reads_again(directory);
            }
            Err(error) => {
                restore.is_busy = false;
                restore.tries += 1;
                restore.avoid = Some(node);
                let pause = RETRY_MIN.0 << restore.tries.min(6);
                restore.retry_at = Some(now + Millis(pause.min(RETRY_MAX.0)));
                self.stall_reads(directory, &error.to_string());
            }
        }
    }

    /// Reports why lost bytes of a directory cannot be read back, unless its changes cannot be made
    /// either: that reason stands.
    pub(super) fn stall_reads(&mut self, id: ObjectId, why: &str) {
        let Some(directory) = self.directories.get_mut(&id) else { return };
        let is_new = directory.read_stall.as_deref() != Some(why);
        if is_new && directory.reported_stall.is_none() {
            directory.read_stall = Some(why.to_owned());
            self.report.stalled.push((id, why.to_owned()));
        }
    }

    /// Takes the reason back that was reported last, once no object has it any more.
    fn reads_again(&mut self, id: ObjectId) {
        let has_failed = self.restores.of(id).any(|restore| restore.tries > 0);
        let Some(directory) = self.directories.get_mut(&id).filter(|_| !has_failed) else { return };
        let is_reported = directory.read_stall.take().is_some();
        if is_reported && directory.reported_stall.is_none() {
            self.report.stalled.push((id, String::new()));
        }
    }

    /// Takes reasons back whose objects were deleted.
    pub(super) fn forget_read_stalls(&mut self) {
        let has_reason = |it: &Directory| it.read_stall.as_ref().is_some_and(|it| !it.is_empty());
        let stalled = self.directories.iter().filter(|(_, it)| has_reason(it));
        let ids: Vec<ObjectId> =
            stalled.map(|(id, _)| *id).filter(|id| !self.restores.waits(*id)).collect();
        for id in ids {
            self.reads_again(id);
        }
    }
}
