//! Reading lost blocks of durable objects back from their stores.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_protocol::message::{
    DurableChangeKind, DurableLoss, DurableProgress, LostBlock, MissingObject, RestoredBlock,
};
use sanderling_protocol::order::OrderReply;
use sanderling_protocol::{
    BlockId, Epoch, Instant, Millis, NodeId, ObjectId, Refusal, Tier, amount,
};

use super::call_error::DurableCallError;
use super::interface::DurableOutput;
use super::task::Directory;
use super::{
    CallPurpose, DurableDrain, RETRY_MAX, RETRY_MIN, UPLOADS_PER_NODE_MAX, WINDOW_MAX, WINDOW_MIN,
};
use crate::retry::doubled;

/// Orders to read back that one node has at once: half of its places, so that uploads go on.
const RESTORES_PER_NODE_MAX: usize = UPLOADS_PER_NODE_MAX / 2;

/// Those of one directory while there are others: the rest stays free for their stores.
const RESTORES_OF_DIRECTORY_MAX: usize = RESTORES_PER_NODE_MAX - 1;

const _: () = assert!(RESTORES_OF_DIRECTORY_MAX > 0);

/// How long a node gets no bytes that are read back after it, or the namenode, took none.
const LEAVES_FOR: Millis = RETRY_MAX;

/// How long after a look at the store that did not find an object the same node looks again: a
/// fault that passes has as long as a store that fails has between two tries.
const SECOND_LOOK_AFTER: Millis = RETRY_MAX;

/// Objects that are to be read back.
#[derive(Debug, Default)]
pub(super) struct Restores {
    objects: BTreeMap<ObjectId, Restore>,
    /// By directory.
    reads: BTreeMap<ObjectId, StoreReads>,
    /// Nodes that take no blocks, because they are to leave, until they are tried again.
    leaving: BTreeMap<NodeId, Instant>,
}

#[derive(Debug)]
struct Restore {
    loss: DurableLoss,
    /// Its place in the view that was read last: what readers wait for comes first there.
    place: usize,
    /// An order is under way, or what came of it is not reported.
    is_busy: bool,
    tries: u32,
    retry_at: Option<Instant>,
    /// Nodes that failed since the last success.
    failed: BTreeSet<NodeId>,
    /// The block that was reported last to have a home again.
    reported: Option<ReportedBlock>,
    /// The look that did not find it, by the name of that look. One alone may be a fault of the
    /// store or of a proxy before it.
    missed: Option<MissedLook>,
}

/// A look at a store that did not find an object as it was.
#[derive(Debug)]
struct MissedLook {
    key: String,
    node: NodeId,
    at: Instant,
}

/// A block that was reported to be read back. If views show it as lost for all that, the namenode
/// does not take its node for a home.
#[derive(Debug, Clone, Copy)]
struct ReportedBlock {
    block: BlockId,
    epoch: Epoch,
    node: NodeId,
    /// A view has shown it as lost, which may have been read before the report.
    is_seen_lost: bool,
}

/// How much one store is given to read at once.
#[derive(Debug)]
struct StoreReads {
    /// Orders that may be under way: fewer after failures, more after successes.
    window: usize,
    /// The call of the last order. The directory that has waited longest is next.
    last: u64,
}

/// Orders to read back that are under way.
#[derive(Debug, Default)]
struct RestoreLoad {
    of_node: BTreeMap<NodeId, usize>,
    of_directory: BTreeMap<ObjectId, usize>,
    of_both: BTreeMap<(ObjectId, NodeId), usize>,
}

impl RestoreLoad {
    fn add(&mut self, directory: ObjectId, node: NodeId) {
        *self.of_node.entry(node).or_default() += 1;
        *self.of_directory.entry(directory).or_default() += 1;
        *self.of_both.entry((directory, node)).or_default() += 1;
    }

    fn of_directory(&self, directory: ObjectId) -> usize {
        self.of_directory.get(&directory).copied().unwrap_or_default()
    }
}

impl Restore {
    fn new(place: usize, loss: DurableLoss) -> Self {
        // Without blocks it finds no room: it counts as failed until it does.
        let tries = u32::from(loss.blocks.is_empty());
        let (is_busy, retry_at, failed) = (false, None, BTreeSet::new());
        let (reported, missed) = (None, None);
        Self { loss, place, is_busy, tries, retry_at, failed, reported, missed }
    }

    /// Takes what a view shows. Returns the node that the namenode does not take for a home.
    fn see(&mut self, loss: DurableLoss) -> Option<NodeId> {
        if let Some(reported) = &mut self.reported {
            let is_same = |it: &LostBlock| (it.block, it.epoch) == (reported.block, reported.epoch);
            if loss.blocks.iter().any(is_same) {
                if !reported.is_seen_lost {
                    reported.is_seen_lost = true;
                    return None;
                }
                let node = reported.node;
                self.reported = None;
                self.loss = loss;
                return Some(node);
            }
        }
        self.reported = None;
        self.tries = self.tries.max(u32::from(loss.blocks.is_empty()));
        self.loss = loss;
        None
    }

    /// Notes a failure, after which it is tried again later.
    fn fail(&mut self, now: Instant, node: NodeId) {
        self.is_busy = false;
        self.tries += 1;
        self.failed.insert(node);
        self.retry_at = Some(now + doubled(RETRY_MIN, self.tries, RETRY_MAX));
    }

    /// Notes that a node did not find the object. Returns when this node may look again; `None` if
    /// the object is missing: two nodes did not find it by its name, or one of them twice.
    fn miss(&mut self, now: Instant, node: NodeId) -> Option<Instant> {
        let first = self.missed.take().filter(|it| it.key == self.loss.key);
        let new = || MissedLook { key: self.loss.key.clone(), node, at: now };
        let first = first.unwrap_or_else(new);
        let again_at = first.at + SECOND_LOOK_AFTER;
        let is_missing = first.node != node || again_at <= now;
        self.missed = Some(first);
        (!is_missing).then_some(again_at)
    }
}

impl Restores {
    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Takes what a view shows.
    fn see(&mut self, now: Instant, losses: Vec<DurableLoss>) {
        let mut seen: BTreeMap<ObjectId, (usize, DurableLoss)> = losses
            .into_iter()
            .enumerate()
            .map(|(place, loss)| (loss.object, (place, loss)))
            .collect();
        self.objects.retain(|object, restore| restore.is_busy || seen.contains_key(object));
        self.leaving.retain(|_, until| *until > now);
        for (object, restore) in &mut self.objects {
            let Some((place, loss)) = seen.remove(object) else { continue };
            restore.place = place;
            if !restore.is_busy
                && let Some(node) = restore.see(loss)
            {
                self.leaving.insert(node, now + LEAVES_FOR);
            }
        }
        for (object, (place, loss)) in seen {
            self.objects.insert(object, Restore::new(place, loss));
        }
    }

    /// Returns the object that is read back next, but for those that were passed over: of the
    /// directory with the fewest orders under way, and of those of the one that waits longest. Of a
    /// directory it is the one that the last view has first.
    fn next(
        &self,
        now: Instant,
        load: &RestoreLoad,
        passed: &BTreeSet<ObjectId>,
    ) -> Option<ObjectId> {
        let is_due = |(object, it): &(&ObjectId, &Restore)| {
            let has_blocks = !it.is_busy && !it.loss.blocks.is_empty();
            let is_time = it.retry_at.is_none_or(|at| at <= now) && !passed.contains(*object);
            has_blocks && is_time && load.of_directory(it.loss.directory) < self.window(it)
        };
        let place = |(_, it): &(&ObjectId, &Restore)| {
            let directory = it.loss.directory;
            let last = self.reads.get(&directory).map_or(0, |reads| reads.last);
            (load.of_directory(directory), last, it.place)
        };
        self.objects.iter().filter(is_due).min_by_key(place).map(|(object, _)| *object)
    }

    fn window(&self, restore: &Restore) -> usize {
        self.reads.get(&restore.loss.directory).map_or(WINDOW_MIN, |reads| reads.window)
    }

    fn reads(&mut self, directory: ObjectId) -> &mut StoreReads {
        let new = || StoreReads { window: WINDOW_MIN, last: 0 };
        self.reads.entry(directory).or_insert_with(new)
    }

    /// Goes on with objects whose outcome the namenode has: the next view shows what is left of
    /// them.
    pub(super) fn reported(&mut self, sent: &DurableProgress, missing: &[MissingObject]) {
        for restore in self.objects.values_mut().filter(|it| it.is_busy) {
            let is_of = |restored: &&RestoredBlock| {
                restore.loss.blocks.iter().any(|lost| lost.block == restored.block)
            };
            if let Some(restored) = sent.restored.iter().find(is_of) {
                let RestoredBlock { block, epoch, node, .. } = *restored;
                restore.reported = Some(ReportedBlock { block, epoch, node, is_seen_lost: false });
                restore.is_busy = false;
                restore.loss.blocks.clear();
            }
        }
        self.objects.retain(|object, _| missing.iter().all(|it| it.object != *object));
    }

    /// Reads objects again of which it is unknown whether the namenode has the report that they are
    /// missing: their stores may have got them by other names meanwhile.
    pub(super) fn read_again(&mut self, missing: &[MissingObject]) {
        for MissingObject { object, .. } in missing {
            if let Some(restore) = self.objects.get_mut(object) {
                restore.is_busy = false;
            }
        }
    }

    /// Returns the names by which objects of a directory are read back at the moment.
    pub(super) fn names(&self, directory: ObjectId) -> Vec<String> {
        self.of(directory).filter(|it| it.is_busy).map(|it| it.loss.key.clone()).collect()
    }

    fn of(&self, directory: ObjectId) -> impl Iterator<Item = &Restore> {
        self.objects.values().filter(move |restore| restore.loss.directory == directory)
    }

    /// Returns whether lost bytes of a directory are to be read back.
    pub(super) fn waits(&self, directory: ObjectId) -> bool {
        self.of(directory).next().is_some()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.objects.values().filter(|it| !it.is_busy).filter_map(|it| it.retry_at).min()
    }

    pub(super) fn wake(&mut self, now: Instant) {
        for restore in self.objects.values_mut() {
            if restore.retry_at.is_some_and(|at| at <= now) {
                restore.retry_at = None;
            }
        }
    }
}

impl DurableDrain {
    /// Takes what a view shows, and reports objects that find no room.
    pub(super) fn see_losses(&mut self, now: Instant, losses: Vec<DurableLoss>) {
        let directories = &self.directories;
        self.restores.reads.retain(|directory, _| directories.contains_key(directory));
        let without: Vec<(ObjectId, String)> = losses
            .iter()
            .filter(|loss| loss.blocks.is_empty())
            .map(|loss| {
                let DurableLoss { directory, store, key, bytes, .. } = loss;
                let why = format!(
                    "the nodes that reach the store {store} have no room for {key}, an object of \
                     {}",
                    amount::bytes(*bytes)
                );
                (*directory, why)
            })
            .collect();
        self.restores.see(now, losses);
        self.forget_read_stalls();
        for (directory, why) in without {
            self.stall_reads(directory, &why);
        }
    }

    /// Orders everything to be read back for which a node is free.
    pub(super) fn begin_restores(&mut self, now: Instant) {
        let mut load = RestoreLoad::default();
        for purpose in self.calls.values() {
            if let CallPurpose::Restore { directory, node, .. } = purpose {
                load.add(*directory, *node);
            }
        }
        let mut passed = self.objects_under_change();
        while let Some(object) = self.restores.next(now, &load, &passed) {
            match self.node_to_restore(now, object, &load) {
                Some(node) => self.begin_restore(object, node, &mut load),
                None => {
                    passed.insert(object);
                }
            }
        }
    }

    /// Returns the objects that stores get by orders under way: it is unknown whether they have
    /// them by the new name or by the old one.
    fn objects_under_change(&self) -> BTreeSet<ObjectId> {
        let mut found = BTreeSet::new();
        for purpose in self.calls.values() {
            let CallPurpose::Change { directory, numbers, .. } = purpose else { continue };
            let Some(directory) = self.directories.get(directory) else { continue };
            let tasks = numbers.iter().filter_map(|number| directory.tasks.get(number));
            found.extend(tasks.filter_map(|task| match task.kind {
                DurableChangeKind::Put { object, .. } => Some(object),
                _ => None,
            }));
        }
        found
    }

    fn begin_restore(&mut self, object: ObjectId, node: NodeId, load: &mut RestoreLoad) {
        let Some((known, uploads)) = self.nodes.get_mut(&node) else { return };
        let Some(restore) = self.restores.objects.get_mut(&object) else { return };
        *uploads += 1;
        restore.is_busy = true;
        let directory = self.directories.get(&restore.loss.directory);
        if let Some(name) = directory.and_then(|it| it.name_after_view(object)) {
            name.clone_into(&mut restore.loss.key);
        }
        let (address, loss) = (known.address.clone(), restore.loss.clone());
        let (directory, blocks) = (loss.directory, loss.blocks.clone());
        load.add(directory, node);
        let call = self.call(CallPurpose::Restore { directory, object, node, blocks });
        self.restores.reads(directory).last = call.0;
        self.outputs.push_back(DurableOutput::Restore { call, node, address, loss });
    }

    /// Returns the node that is to read an object back; `None` while none is free. One that failed
    /// is not tried again before all others have failed.
    fn node_to_restore(
        &mut self,
        now: Instant,
        object: ObjectId,
        load: &RestoreLoad,
    ) -> Option<NodeId> {
        let restore = self.restores.objects.get_mut(&object)?;
        let (directory, store) = (restore.loss.directory, restore.loss.store.clone());
        let leaving = &self.restores.leaving;
        let stays = |node: &NodeId| leaving.get(node).is_none_or(|until| *until <= now);
        let reached = self.nodes.values().filter(|(node, _)| node.stores.contains(&store));
        let takers: Vec<(usize, NodeId)> = reached
            .map(|(node, uploads)| (*uploads, node.node))
            .filter(|(_, node)| stays(node))
            .collect();
        if takers.iter().all(|(_, node)| restore.failed.contains(node)) {
            restore.failed.clear();
        }
        let share = match self.directories.len() {
            0 | 1 => RESTORES_PER_NODE_MAX,
            _ => RESTORES_OF_DIRECTORY_MAX,
        };
        let is_free = |(uploads, node): &&(usize, NodeId)| {
            let reads = load.of_node.get(node).copied().unwrap_or_default();
            let of_directory = load.of_both.get(&(directory, *node)).copied().unwrap_or_default();
            let has_place = *uploads < UPLOADS_PER_NODE_MAX && reads < RESTORES_PER_NODE_MAX;
            has_place && of_directory < share && !restore.failed.contains(node)
        };
        let node = takers.iter().filter(is_free).min().map(|(_, node)| *node);
        if takers.is_empty() && self.is_reached(&store) {
            self.stall_reads(directory, "all datanodes that reach the store are to leave");
        }
        node
    }

    pub(super) fn on_restored(
        &mut self,
        now: Instant,
        (directory, object, node): (ObjectId, ObjectId, NodeId),
        blocks: &[LostBlock],
        answer: Result<Vec<Tier>, DurableCallError>,
    ) {
        if let Some((_, uploads)) = self.nodes.get_mut(&node) {
            *uploads = uploads.saturating_sub(1);
        }
        let Some(restore) = self.restores.objects.get_mut(&object) else { return };
        let answer = match answer {
            // Without a block there is nothing to report: that would never end.
            Ok(tiers) if tiers.is_empty() => {
                let reply = Box::new(OrderReply::Restored(tiers));
                Err(DurableCallError::BadReply { node, reply })
            }
            answer => answer,
        };
        match answer {
            Ok(tiers) => {
                let is_whole = tiers.len() >= blocks.len();
                restore.tries = 0;
                restore.failed.clear();
                restore.missed = None;
                if !is_whole {
                    restore.failed.insert(node);
                }
                let restored = blocks.iter().zip(tiers).map(|(lost, tier)| {
                    let LostBlock { block, epoch, .. } = *lost;
                    RestoredBlock { block, epoch, node, tier }
                });
                self.report.restored.extend(restored);
                self.restore_succeeded(directory, is_whole);
            }
            Err(DurableCallError::Refused(Refusal::BlockDamaged { .. })) => {
                self.on_missed(now, (directory, object, node), blocks);
            }
            Err(DurableCallError::Refused(Refusal::Moved { .. })) => {
                // It is fenced: another node is tried at once.
                restore.is_busy = false;
                self.restores.leaving.insert(node, now + LEAVES_FOR);
            }
            Err(error) => {
                restore.fail(now, node);
                let reads = self.restores.reads(directory);
                reads.window = (reads.window / 2).max(1);
                self.stall_reads(directory, &error.to_string());
            }
        }
    }

    /// Takes the answer that the store lacks an object, or has another one in its place. After the
    /// first one it is looked for once more: the report is for good.
    fn on_missed(
        &mut self,
        now: Instant,
        (directory, object, node): (ObjectId, ObjectId, NodeId),
        blocks: &[LostBlock],
    ) {
        let Some(restore) = self.restores.objects.get_mut(&object) else { return };
        let again_at = restore.miss(now, node);
        let DurableLoss { store, key, .. } = &restore.loss;
        let Some(again_at) = again_at else {
            let why = format!("the store {store} does not have it as it was");
            let missing = |first: &LostBlock| {
                let LostBlock { block, epoch, .. } = *first;
                MissingObject { object, key: key.clone(), block, epoch, why }
            };
            self.missing.extend(blocks.first().map(missing));
            restore.tries = 0;
            self.restore_succeeded(directory, true);
            return;
        };
        let why = format!(
            "the store {store} does not have {key} as it was: it is looked for once more before \
             its lost bytes are given up"
        );
        restore.is_busy = false;
        restore.failed.insert(node);
        let leaving = &self.restores.leaving;
        let stays = |node: NodeId| leaving.get(&node).is_none_or(|until| *until <= now);
        let looks = |node: NodeId| stays(node) && !restore.failed.contains(&node);
        let mut reached = self.nodes.values().filter(|(node, _)| node.stores.contains(store));
        if reached.any(|(node, _)| looks(node.node)) {
            return;
        }
        restore.tries = restore.tries.max(1);
        restore.retry_at = Some(again_at);
        self.stall_reads(directory, &why);
    }

    /// Notes that a store has answered; it is given more if the whole order was executed.
    fn restore_succeeded(&mut self, directory: ObjectId, is_whole: bool) {
        if is_whole {
            let reads = self.restores.reads(directory);
            reads.window = WINDOW_MAX.min(reads.window + 1);
        }
        self.reads_again(directory);
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
    fn forget_read_stalls(&mut self) {
        let has_reason = |it: &Directory| it.read_stall.as_ref().is_some_and(|it| !it.is_empty());
        let stalled = self.directories.iter().filter(|(_, it)| has_reason(it));
        let ids: Vec<ObjectId> =
            stalled.map(|(id, _)| *id).filter(|id| !self.restores.waits(*id)).collect();
        for id in ids {
            self.reads_again(id);
        }
    }
}
