//! Copying durable directories to their stores: what is uploaded when, by which datanode, and in
//! which order it becomes visible.
//!
//! The parts of an object travel to the store at any time and stay invisible. An upload that is
//! complete is recorded by the namenode, and only then is it made visible, in the order of the
//! directory's changes. Whatever becomes of this machine, the next one aborts the recorded upload
//! before it completes another for the same change: so a late completion has no effect. Each report
//! has the uploads that the namenode has recorded before, so a late one is refused.
//!
//! The machine holds nothing that must survive. The driver answers every output exactly once, with
//! `None` when the call failed or its time was over.

mod adopt;
mod adoption_task;
mod call_error;
mod failed_nodes;
mod interface;
mod leaving;
mod left_uploads;
mod noticed_nodes;
mod part_lengths;
mod reporting;
mod restore;
mod spread;
mod store_orders;
mod store_ownership;
mod store_times;
mod task;
mod upload_time;

use std::collections::{BTreeMap, BTreeSet};

pub use call_error::DurableCallError;
pub use interface::{DurableCall, DurableInput, DurableOutput, UploadedParts};
pub use left_uploads::{LeftRound, LeftUpload, LeftUploads};
use sanderling_protocol::message::{
    DurableChangeKind, DurableProgress, DurableRecord, DurableWork, Layout, LostBlock, MadeChange,
    MissingObject, RecordedUpload, StoreNode,
};
use sanderling_protocol::order::{StoreChange, UploadOrder};
use sanderling_protocol::{Instant, Millis, NodeId, ObjectId, Refusal};

use crate::Machine;
use crate::retry::doubled;
use noticed_nodes::NoticedNodes;
pub use part_lengths::PART_BYTES_MIN;
use part_lengths::{has_long_parts, part_bytes, parts_max};
use restore::Restores;
use spread::{PartSources, SendLoad};
pub use store_orders::{StoreOrder, confirmed, not_begun, to_confirm};
pub use store_ownership::{NamedOwner, OwnerCheck, OwnerRefusal, OwnerStep, SeenOwner};
pub use store_times::{CHANGE_BEGINS_WITHIN, STORE_OPERATION_MAX};
use task::{CutLayout, Directory, Stage, Task};
pub use upload_time::{
    UPLOAD_ENDS_WITHIN, UPLOAD_WITHIN, part_within, upload_ends_within, upload_within,
};

/// Uploads that one datanode has under way at once, and orders to read back among them. Each has
/// one part in memory, of 8 MiB unless its object has more than 70 GiB, or the node has memory for
/// longer ones ([`crate::datanode::PartJoins`]). Eight nodes fill the largest window
/// ([`WINDOW_MAX`]). Chosen, not measured.
const UPLOADS_PER_NODE_MAX: usize = 4;

/// Changes of one directory that are read or sent at once: fewer after failures, more after
/// successes, so that a slow store is not given more than it takes in time. It begins with what one
/// datanode has under way ([`UPLOADS_PER_NODE_MAX`]).
const WINDOW_MIN: usize = 4;

/// Most of them: what eight datanodes have under way, so that more than the first few nodes send
/// the changes of one directory, and a failing store meets no more calls than these.
const WINDOW_MAX: usize = 32;

/// Half of the pause before a change is tried again for the first time; each further failure
/// doubles the pause, so that a store that recovers at once is called again soon.
const RETRY_MIN: Millis = Millis(200);

/// The longest such pause. A store that was away for long gets its changes that much later at most;
/// a directory whose store is away costs one call in that time for each change of its window. It is
/// shorter while bytes leave with nodes (`RETRY_NOTICED_MAX`).
const RETRY_MAX: Millis = Millis(10_000);

/// How long a store may be without a node that reaches it before that is reported: after a restart
/// of the namenode the nodes register again. A thousand of them are back after about a second
/// (docs/SCALE.md).
const UNREACHED_AFTER: Millis = Millis(5_000);

/// How long a removal is expected to take effect yet after the order for it was sent; the order
/// itself is on its way for a moment. A store that hangs for longer is not noticed.
const REMOVAL_SETTLES: Millis = Millis(30_000);

const _: () = assert!(CHANGE_BEGINS_WITHIN.0 + STORE_OPERATION_MAX.0 < REMOVAL_SETTLES.0);

/// Pause between two readings of the work while something waits. No event reports a new change, so
/// a pause is also how late it may begin: a writer that waits for its store tries again as often.
const VIEW_PAUSE: Millis = Millis(50);

/// Pause while nothing waits: ten requests per second for all durable directories together, so that
/// the first change after a rest begins 0.1 s later at most.
const VIEW_PAUSE_IDLE: Millis = Millis(100);

/// Pause while no directory is durable: one request per second is all that the mechanism costs
/// then. The first change of the first directory begins that much later at most.
const VIEW_PAUSE_NONE: Millis = Millis(1_000);

/// Copies durable directories to their stores: see the module's text.
#[derive(Debug, Default)]
pub struct DurableDrain {
    directories: BTreeMap<ObjectId, Directory>,
    restores: Restores,
    nodes: BTreeMap<NodeId, (StoreNode, usize)>,
    sending: SendLoad,
    noticed: NoticedNodes,
    calls: BTreeMap<DurableCall, CallPurpose>,
    next_call: u64,
    outputs: std::collections::VecDeque<DurableOutput>,
    /// What is to be reported to the namenode, and what is being reported.
    uploads: Vec<RecordedUpload>,
    made: Vec<MadeChange>,
    report: DurableProgress,
    missing: Vec<MissingObject>,
    reporting: Option<DurableRecord>,
    report_at: Option<Instant>,
    report_tries: u32,
    /// Whether a view came: removals of an earlier manager may still be under way at the first.
    has_view: bool,
}

/// What a call is about.
#[derive(Debug, Clone)]
enum CallPurpose {
    Layout { directory: ObjectId, number: u64 },
    Upload { directory: ObjectId, number: u64, node: NodeId, is_last: bool, end: u64 },
    Abort { directory: ObjectId, number: u64, node: NodeId },
    Restore { directory: ObjectId, object: ObjectId, node: NodeId, blocks: Vec<LostBlock> },
    Change { directory: ObjectId, node: NodeId, numbers: Vec<u64>, removals: Vec<u64> },
    Adopt { directory: ObjectId, node: NodeId },
    Report,
}

impl DurableDrain {
    /// Returns whether changes wait, as far as the last view and what came after it show.
    fn has_work(&self) -> bool {
        let has_work = |it: &Directory| !it.tasks.is_empty() || it.adoption.is_some();
        let has_tasks = self.directories.values().any(has_work);
        has_tasks || !self.restores.is_empty()
    }

    /// Returns the pause after a view, or after a failure to read one, before the next is read.
    #[must_use]
    pub fn view_pause(&self) -> Millis {
        match (self.has_work(), self.directories.is_empty()) {
            (true, _) => VIEW_PAUSE,
            (false, false) => VIEW_PAUSE_IDLE,
            (false, true) => VIEW_PAUSE_NONE,
        }
    }

    fn call(&mut self, under: CallPurpose) -> DurableCall {
        self.next_call += 1;
        let call = DurableCall(self.next_call);
        self.calls.insert(call, under);
        call
    }

    fn on_view(&mut self, now: Instant, work: Vec<DurableWork>, nodes: Vec<StoreNode>) {
        let mut busy: BTreeMap<NodeId, usize> = BTreeMap::new();
        for under in self.calls.values() {
            if let CallPurpose::Upload { node, .. } | CallPurpose::Restore { node, .. } = under {
                *busy.entry(*node).or_default() += 1;
            }
        }
        let with_load =
            |node: StoreNode| (node.node, (node.clone(), busy.get(&node.node).copied()));
        self.nodes = nodes
            .into_iter()
            .map(with_load)
            .map(|(id, (node, uploads))| (id, (node, uploads.unwrap_or(0))))
            .collect();
        let present: BTreeSet<ObjectId> = work.iter().map(|it| it.directory).collect();
        self.directories.retain(|id, _| present.contains(id));
        for DurableWork { directory, store, may_claim, adoption, changes } in work {
            let new = || Directory::new(store, WINDOW_MIN);
            let known = self.directories.entry(directory).or_insert_with(new);
            if !self.has_view && changes.iter().any(|change| removes(change.kind)) {
                known.hold_until = Some(now + REMOVAL_SETTLES);
            }
            known.may_claim = may_claim;
            adoption_task::see(&mut known.adoption, adoption);
            known.merge(changes);
        }
        self.has_view = true;
        self.end_calls_to_gone_nodes(now);
        self.look_for_unreached(now);
    }

    /// Reports the stores that no node reaches. Nothing is begun for them, so nothing fails.
    fn look_for_unreached(&mut self, now: Instant) {
        let ids: Vec<ObjectId> = self.directories.keys().copied().collect();
        for id in ids {
            let Some(directory) = self.directories.get(&id) else { continue };
            let changes = !directory.tasks.is_empty() || directory.adoption.is_some();
            let waits = changes || self.restores.waits(id);
            let is_unreached = waits && !self.is_reached(&directory.store);
            let Some(directory) = self.directories.get_mut(&id) else { continue };
            if !is_unreached {
                directory.unreached_since = None;
            } else if *directory.unreached_since.get_or_insert(now) + UNREACHED_AFTER <= now {
                let why = "no datanode reaches the store";
                if changes {
                    self.stall(id, why);
                } else {
                    self.stall_reads(id, why);
                }
            }
        }
    }

    /// Begins everything that can be begun.
    fn pump(&mut self, now: Instant) {
        self.see_failed();
        let ids: Vec<ObjectId> = self.directories.keys().copied().collect();
        // Readers wait for them. They take a part of each node's places, so uploads go on.
        self.begin_restores(now);
        for id in &ids {
            self.begin_tasks(now, *id);
        }
        for id in &ids {
            self.change_store(now, *id);
        }
        self.begin_adoptions(now);
        self.send_report(now);
    }

    fn begin_tasks(&mut self, now: Instant, id: ObjectId) {
        let Some(directory) = self.directories.get(&id) else { return };
        let store = directory.store.clone();
        let due: Vec<u64> = directory.due(now).collect();
        let mut looked_up = BTreeSet::new();
        for number in due {
            let directory = self.directories.get(&id);
            let is_full = directory.is_none_or(|it| it.calling() >= it.window);
            if is_full || self.free_nodes(&store).next().is_none() {
                return;
            }
            if self.waits_for_node((id, number), &mut looked_up) {
                continue;
            }
            let Some(task) = self.task(id, number) else { continue };
            let (key, kind) = (task.key.clone(), task.kind);
            if let Some(upload) = task.ended_upload().cloned() {
                let Some(directory) = self.directories.get(&id) else { return };
                let Some(node) = self.node_to_change(directory) else { continue };
                let address = self.nodes[&node].0.address.clone();
                if let Some(task) = self.task(id, number) {
                    task.is_calling = true;
                }
                let call = self.call(CallPurpose::Abort { directory: id, number, node });
                let uploads = vec![(key, upload)];
                let store = store.clone();
                self.outputs.push_back(DurableOutput::Abort {
                    call,
                    node,
                    address,
                    directory: id,
                    store,
                    uploads,
                });
            } else if let DurableChangeKind::Put { object, bytes } = kind
                && (!has_long_parts(bytes) || self.takes_long_part(&store))
            {
                self.read_layout(id, number, object, bytes);
            }
        }
    }

    fn read_layout(&mut self, id: ObjectId, number: u64, object: ObjectId, bytes: u64) {
        let Some(task) = self.task(id, number) else { return };
        task.is_calling = true;
        let offset = task.next_offset();
        let wanted = part_bytes(bytes) * parts_max(bytes, task.is_slow) as u64;
        let call = self.call(CallPurpose::Layout { directory: id, number });
        self.outputs.push_back(DurableOutput::Layout { call, object, offset, bytes: wanted });
    }

    fn on_layout(&mut self, now: Instant, id: ObjectId, number: u64, layout: Option<Layout>) {
        let Some(task) = self.task(id, number) else { return };
        task.is_calling = false;
        let begun = task.begun_part.take();
        let Some(layout) = layout else {
            return self.fail(now, id, number, "the namenode did not return where the bytes are");
        };
        if let Some(range) = layout.lost_ranges().first() {
            if let Some(directory) = self.directories.get_mut(&id) {
                directory.failed_elsewhere(number);
            }
            let why = format!(
                "{} has {} bytes missing from {} on: delete it or write it again",
                layout.stat.path, range.bytes, range.offset
            );
            return self.fail(now, id, number, &why);
        }
        let Some(task) = self.task(id, number) else { return };
        let DurableChangeKind::Put { bytes, .. } = task.kind else { return };
        let (upload, next, first) = match &task.stage {
            Stage::Uploading { upload, next, parts } => (Some(upload.clone()), *next, parts.len()),
            _ => (None, 0, 0),
        };
        let bounds = (part_bytes(bytes), parts_max(bytes, task.is_slow));
        let layout = task::joined(begun, layout);
        let (parts, end) = match task::parts_of(&layout, next, first, bounds) {
            CutLayout::Parts(parts, end) => (parts, end),
            CutLayout::Begun => {
                let object = layout.stat.object;
                task.begun_part = Some(Box::new(layout));
                return self.read_layout(id, number, object, bytes);
            }
            CutLayout::Gap => {
                let why = "the object's blocks do not follow each other";
                return self.fail(now, id, number, why);
            }
        };
        let (parts, end) = spread::of_one_home(parts, end);
        let (is_last, sources) = (end >= bytes, PartSources::of(&parts));
        let key = task.key.clone();
        let avoid = task.avoid;
        let Some(known) = self.directories.get(&id) else { return };
        if !known.may_send(number) {
            // The store has failed for the first change meanwhile: again when it has that.
            return;
        }
        let (store, may_claim) = (known.store.clone(), known.may_claim);
        let is_long = has_long_parts(bytes);
        let Some(node) = self.choose_node(known, &sources, avoid, is_long) else {
            if !self.is_reached(&store) {
                return self.fail(now, id, number, "no datanode reaches the store");
            }
            // Again when an upload ends.
            if let Some(task) = self.task(id, number) {
                task.waits_with = Some(sources);
            }
            return;
        };
        let order = UploadOrder { directory: id, may_claim, store, key, upload, parts };
        self.upload((id, number), node, order, (is_last, end));
    }

    fn upload(
        &mut self,
        (directory, number): (ObjectId, u64),
        node: NodeId,
        order: UploadOrder,
        (is_last, end): (bool, u64),
    ) {
        let Some((known, uploads)) = self.nodes.get_mut(&node) else { return };
        *uploads += 1;
        let address = known.address.clone();
        let sources = PartSources::of(&order.parts);
        if let Some(task) = self.task(directory, number) {
            task.is_calling = true;
            task.waits_with = None;
        }
        let call = self.call(CallPurpose::Upload { directory, number, node, is_last, end });
        self.sending.begin(call, sources.sent(node));
        self.outputs.push_back(DurableOutput::Upload { call, node, address, order });
    }

    fn on_uploaded(
        &mut self,
        now: Instant,
        (id, number, node): (ObjectId, u64, NodeId),
        (is_last, end): (bool, u64),
        answer: Result<UploadedParts, DurableCallError>,
    ) {
        if let Some((_, uploads)) = self.nodes.get_mut(&node) {
            *uploads = uploads.saturating_sub(1);
        }
        let Some(task) = self.task(id, number) else { return };
        task.is_calling = false;
        let UploadedParts { upload, parts: added } = match answer {
            Ok(uploaded) => uploaded,
            Err(error) => {
                // What was sent is ended; what this order began itself, its datanode has ended.
                task.stage = match std::mem::take(&mut task.stage) {
                    Stage::Uploading { upload, .. } => Stage::Stale { upload },
                    _ => Stage::Waiting,
                };
                task.avoid = Some(node);
                task.is_slow |= error.is_out_of_time();
                if let Some(directory) = self.directories.get_mut(&id) {
                    directory.window = (directory.window / 2).max(1);
                    if error.is_unread() {
                        directory.failed_elsewhere(number);
                    } else {
                        directory.failed.add(node);
                    }
                    if error.is_full() {
                        directory.failed_for_room(now, number);
                    }
                }
                return self.fail(now, id, number, &error.stall(number));
            }
        };
        let mut parts = match std::mem::take(&mut task.stage) {
            Stage::Uploading { parts, .. } => parts,
            _ => Vec::new(),
        };
        parts.extend(added);
        let is_slow = task.is_slow;
        if is_last {
            let replaces = task.recorded.replace(upload.clone());
            task.stage = Stage::Uploaded { upload: upload.clone(), parts };
            self.uploads.push(RecordedUpload { directory: id, number, upload, replaces });
        } else {
            task.stage = Stage::Uploading { upload, next: end, parts };
        }
        // An order of one part in its time shows nothing of those with more.
        if !is_slow && let Some(directory) = self.directories.get_mut(&id) {
            directory.window = WINDOW_MAX.min(directory.window + 1);
            directory.failed.sent(node);
        }
    }

    /// Makes the first changes visible that are ready, if nothing of the directory is under way.
    fn change_store(&mut self, now: Instant, id: ObjectId) {
        let Some(directory) = self.directories.get_mut(&id) else { return };
        let skipped = directory.skip_first().into_iter();
        let skipped = skipped.map(|(number, upload)| MadeChange { directory: id, number, upload });
        self.made.extend(skipped);
        let Some(directory) = self.directories.get(&id) else { return };
        if directory.is_changing || directory.hold_until.is_some_and(|at| at > now) {
            return;
        }
        let ready = directory.ready(now, &self.restores.names(id));
        if ready.is_empty() {
            return;
        }
        let store = directory.store.clone();
        let Some(node) = self.node_to_change(directory) else { return };
        let address = self.nodes[&node].0.address.clone();
        let numbers = ready.iter().map(|(number, _)| *number).collect();
        let is_removal = |it: &&(u64, StoreChange)| !matches!(it.1, StoreChange::Complete { .. });
        let removals = ready.iter().filter(is_removal).map(|(number, _)| *number).collect();
        let changes: Vec<StoreChange> = ready.into_iter().map(|(_, change)| change).collect();
        if let Some(directory) = self.directories.get_mut(&id) {
            directory.is_changing = true;
        }
        let call = self.call(CallPurpose::Change { directory: id, node, numbers, removals });
        let directory = id;
        self.outputs.push_back(DurableOutput::Change {
            call,
            node,
            address,
            directory,
            store,
            changes,
        });
    }

    fn on_changed(
        &mut self,
        now: Instant,
        (id, node): (ObjectId, NodeId),
        (numbers, removals): (&[u64], &[u64]),
        answer: Option<(u32, Option<Refusal>)>,
    ) {
        let Some(directory) = self.directories.get_mut(&id) else { return };
        directory.is_changing = false;
        let Some((done, failure)) = answer else {
            // All of it may have been done, or be done later.
            directory.unknown(numbers);
            directory.failed.add(node);
            if !removals.is_empty() {
                directory.hold_until = Some(now + REMOVAL_SETTLES);
            }
            if let Some(first) = numbers.first() {
                self.fail(
                    now,
                    id,
                    *first,
                    "a datanode did not report whether it changed the store",
                );
            }
            return;
        };
        let (made, left) = numbers.split_at((done as usize).min(numbers.len()));
        for number in made {
            if let Some(task) = directory.tasks.remove(number) {
                let upload = task.recorded.clone();
                self.made.push(MadeChange { directory: id, number: *number, upload });
                directory.made(now, *number, task);
            }
        }
        if let Some(last) = made.last() {
            directory.done = directory.done.max(*last);
            self.report.stalled.retain(|(stalled, _)| *stalled != id);
        }
        if let (Some(failure), Some(first)) = (failure, left.first()) {
            directory.unknown(&left[..1]);
            directory.failed.add(node);
            // What a store that failed was to remove, it may remove yet.
            let is_full = matches!(failure, Refusal::NodeFull { .. });
            let has_failed = is_full || matches!(failure, Refusal::TierFailed { .. });
            if has_failed && removals.contains(first) {
                directory.hold_until = Some(now + REMOVAL_SETTLES);
            }
            if is_full {
                directory.failed_for_room(now, *first);
            }
            let why = call_error::stall_by(&failure, *first);
            self.fail(now, id, *first, &why);
        } else {
            directory.failed.changed(node);
        }
    }

    /// Notes whether the upload of a change can never be completed from now on.
    fn on_aborted(
        &mut self,
        now: Instant,
        (id, number, node): (ObjectId, u64, NodeId),
        is_done: bool,
    ) {
        let Some(directory) = self.directories.get_mut(&id) else { return };
        let Some(task) = directory.tasks.get_mut(&number) else { return };
        task.is_calling = false;
        if is_done {
            task.stage = Stage::Waiting;
            directory.failed.changed(node);
        } else {
            directory.failed.add(node);
            self.fail(now, id, number, "an upload cannot be ended");
        }
    }

    /// Notes that a change could not be made, and why, if nothing comes before it.
    fn fail(&mut self, now: Instant, id: ObjectId, number: u64, why: &str) {
        let pause_max = self.noticed.retry_max(RETRY_MAX);
        let Some(directory) = self.directories.get_mut(&id) else { return };
        let is_first = directory.tasks.keys().next() == Some(&number);
        if let Some(task) = directory.tasks.get_mut(&number) {
            task.tries += 1;
            task.retry_at = Some(now + doubled(RETRY_MIN, task.tries, pause_max));
        }
        if is_first {
            self.stall(id, why);
        }
    }

    /// Reports why nothing of a directory is made now.
    fn stall(&mut self, id: ObjectId, why: &str) {
        let Some(directory) = self.directories.get_mut(&id) else { return };
        if directory.reported_stall.as_deref() != Some(why) {
            directory.reported_stall = Some(why.to_owned());
            directory.read_stall = None;
            self.report.stalled.push((id, why.to_owned()));
        }
    }

    fn task(&mut self, id: ObjectId, number: u64) -> Option<&mut Task> {
        self.directories.get_mut(&id)?.tasks.get_mut(&number)
    }

    fn is_reached(&self, store: &str) -> bool {
        self.nodes.values().any(|(node, _)| node.stores.iter().any(|name| name == store))
    }

    /// Returns the nodes that reach a store, with the orders that each has.
    fn reaching_nodes(&self, store: &str) -> impl Iterator<Item = &(StoreNode, usize)> {
        let reaches = move |node: &StoreNode| node.stores.iter().any(|name| name == store);
        self.nodes.values().filter(move |(node, _)| reaches(node))
    }

    /// Returns those that may get another order.
    fn free_nodes(&self, store: &str) -> impl Iterator<Item = &(StoreNode, usize)> {
        self.reaching_nodes(store).filter(|(_, orders)| *orders < UPLOADS_PER_NODE_MAX)
    }

    /// Returns the node that is to send parts to a directory's store, of those that are free: the
    /// one where that costs least ([`SendLoad::cost`]); not one that failed, if there is another
    /// one. `None` if none is free, or if it costs less at a busy one that has more of the bytes:
    /// its orders end.
    fn choose_node(
        &self,
        directory: &Directory,
        parts: &PartSources,
        avoid: Option<NodeId>,
        is_long: bool,
    ) -> Option<NodeId> {
        let cost = |node: NodeId| self.sending.cost(parts, node);
        let failed = |node: NodeId| directory.failed.uploads_last(node);
        let is_busy = |(node, orders): &(StoreNode, usize)| {
            *orders >= UPLOADS_PER_NODE_MAX || is_long && self.sends_long_part(node.node)
        };
        let reaching = || self.reaching_nodes(&directory.store);
        let best = reaching().filter(|it| !is_busy(it)).min_by_key(|(node, orders)| {
            let id = node.node;
            (failed(id), Some(id) == avoid, cost(id), *orders, id)
        });
        let best = best.map(|(node, _)| node.node)?;
        let is_better = |(node, orders): &(StoreNode, usize)| {
            let (id, is_full) = (node.node, *orders >= UPLOADS_PER_NODE_MAX);
            let has_more = parts.elsewhere(id) < parts.elsewhere(best);
            is_full && !failed(id) && Some(id) != avoid && has_more && cost(id) < cost(best)
        };
        let waits = reaching().any(is_better);
        (!waits).then_some(best)
    }

    /// Returns whether a change waits for a node, by what was last looked up of its bytes. Of those
    /// that would go by the same node one is `looked_up` at a time: the places may have changed.
    fn waits_for_node(
        &self,
        (directory, number): (ObjectId, u64),
        looked_up: &mut BTreeSet<NodeId>,
    ) -> bool {
        let Some(directory) = self.directories.get(&directory) else { return false };
        let Some(task) = directory.tasks.get(&number) else { return false };
        let Some(parts) = task.waits_with.as_ref().filter(|_| task.ended_upload().is_none()) else {
            return false;
        };
        let is_long =
            matches!(task.kind, DurableChangeKind::Put { bytes, .. } if has_long_parts(bytes));
        let node = self.choose_node(directory, parts, task.avoid, is_long);
        node.is_none_or(|node| !looked_up.insert(node))
    }

    /// Returns whether a node that reaches a store may get an order to send a long part.
    fn takes_long_part(&self, store: &str) -> bool {
        self.free_nodes(store).any(|(node, _)| !self.sends_long_part(node.node))
    }

    /// Returns whether a node sends a long part.
    fn sends_long_part(&self, id: NodeId) -> bool {
        self.calls.values().any(|under| {
            let CallPurpose::Upload { directory, number, node, .. } = under else { return false };
            let known = self.directories.get(directory);
            let kind = known.and_then(|known| known.tasks.get(number)).map(|task| task.kind);
            let Some(DurableChangeKind::Put { bytes, .. }) = kind else { return false };
            *node == id && has_long_parts(bytes)
        })
    }

    /// Takes for each directory which nodes reach its store.
    fn see_failed(&mut self) {
        for Directory { store, failed, .. } in self.directories.values_mut() {
            let nodes = self.nodes.values().map(|(node, _)| node);
            let reaching = nodes.filter(|node| node.stores.contains(store));
            failed.see(reaching.map(|node| node.node));
        }
    }
}

impl Machine for DurableDrain {
    type Input = DurableInput;
    type Output = DurableOutput;

    fn handle(&mut self, now: Instant, input: DurableInput) {
        match input {
            DurableInput::View { work, nodes, losses } => {
                self.on_view(now, work, nodes);
                self.see_losses(now, losses);
            }
            DurableInput::Noticed { left, has_exposed } => {
                self.on_noticed(now, left, has_exposed);
            }
            DurableInput::Layout { call, layout } => {
                if let Some(CallPurpose::Layout { directory, number }) = self.calls.remove(&call) {
                    self.on_layout(now, directory, number, layout.map(|it| *it));
                }
            }
            DurableInput::Uploaded { call, answer } => {
                self.sending.end(call);
                if let Some(CallPurpose::Upload { directory, number, node, is_last, end }) =
                    self.calls.remove(&call)
                {
                    let place = (directory, number, node);
                    self.on_uploaded(now, place, (is_last, end), answer);
                }
            }
            DurableInput::Aborted { call, is_done } => {
                if let Some(CallPurpose::Abort { directory, number, node }) =
                    self.calls.remove(&call)
                {
                    self.on_aborted(now, (directory, number, node), is_done);
                }
            }
            DurableInput::Changed { call, answer } => {
                if let Some(CallPurpose::Change { directory, node, numbers, removals }) =
                    self.calls.remove(&call)
                {
                    self.on_changed(now, (directory, node), (&numbers, &removals), answer);
                }
            }
            DurableInput::Restored { call, answer } => {
                if let Some(CallPurpose::Restore { directory, object, node, blocks }) =
                    self.calls.remove(&call)
                {
                    self.on_restored(now, (directory, object, node), &blocks, answer);
                }
            }
            DurableInput::Adopted { call, answer } => {
                if let Some(CallPurpose::Adopt { directory, node }) = self.calls.remove(&call) {
                    self.on_adopted(now, (directory, node), answer);
                }
            }
            DurableInput::Reported { call, is_done } => {
                if let Some(CallPurpose::Report) = self.calls.remove(&call) {
                    self.on_reported(now, is_done);
                }
            }
        }
        self.pump(now);
    }

    fn deadline(&self) -> Option<Instant> {
        let of_directories = self.directories.values().filter_map(Directory::deadline);
        let report = self.report_at.filter(|_| self.reporting.is_none());
        of_directories.chain(report).chain(self.restores.deadline()).min()
    }

    fn handle_deadline(&mut self, now: Instant) {
        for directory in self.directories.values_mut() {
            directory.wake(now);
        }
        self.restores.wake(now);
        if self.report_at.is_some_and(|at| at <= now) {
            self.report_at = None;
        }
        self.pump(now);
    }

    fn poll_output(&mut self) -> Option<DurableOutput> {
        self.outputs.pop_front()
    }
}

const fn removes(kind: DurableChangeKind) -> bool {
    matches!(kind, DurableChangeKind::Remove | DurableChangeKind::RemoveTree)
}

#[cfg(test)]
mod tests;
