//! The changes of one durable directory, and how far each is.

use std::collections::BTreeMap;

use sanderling_protocol::limits::STORE_CHANGES_PER_ORDER_MAX;
use sanderling_protocol::message::{DurableChange, DurableChangeKind, Layout};
use sanderling_protocol::order::{StoreChange, UploadBlock, UploadPart};
use sanderling_protocol::{Instant, Millis, NodeId, ObjectId};

use super::adoption_task::AdoptionTask;
use super::failed_nodes::FailedNodes;
use super::spread::PartSources;

/// How long the new name of an object is kept at least: longer than a view is under way. A view is
/// a call of 2 s by default. Chosen, not measured: a name costs some hundred bytes.
const COMPLETED_KEPT: Millis = Millis(60_000);

/// Failures for want of room of the first change after which that is sent alone, until the store
/// has it. A single failure may pass by itself. Chosen, not measured.
const ALONE_AFTER: u32 = 2;

/// Such failures after which what was sent of the changes behind it is ended, as far as the first
/// one needs its room. Chosen, not measured.
const ENDS_OTHERS_AFTER: u32 = 5;

/// How long after the first of these failures nothing is ended: room that comes sooner costs no
/// upload, and what is ended is sent again. The usual pauses up to the fifth one are as long, those
/// while bytes leave with nodes are shorter. Chosen, not measured.
const ENDS_NONE_WITHIN: Millis = Millis(6_000);

/// Parts of all uploads together that one order completes, if it completes several. A bucket's
/// answer to a part has 34 bytes mostly, and an order has at most 16 MiB. Chosen, not measured.
const COMPLETED_PARTS_MAX: usize = 100_000;

/// Bytes of an order to send parts, beyond which no further block is added: three quarters of the
/// longest frame. With addresses of 20 bytes it names 240,000 blocks. A part that needs more of
/// them ends there.
const ORDER_BYTES_MAX: usize = 12 << 20;

/// Most bytes of the numbers of a block in an order, beside its address.
const BLOCK_NUMBERS_BYTES_MAX: usize = 32;

/// One durable directory.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) store: String,
    /// Whether an empty place may become the store.
    pub(super) may_claim: bool,
    /// Changes that may be read or sent at once.
    pub(super) window: usize,
    pub(super) tasks: BTreeMap<u64, Task>,
    /// All changes up to this one were made.
    pub(super) done: u64,
    /// The names of changes that were made and that the namenode does not know to be made.
    pub(super) unreported: BTreeMap<u64, String>,
    /// The names of objects that the store got lately: a view from before that shows the names of
    /// before.
    completed: BTreeMap<ObjectId, CompletedName>,
    /// The first change that waits in the last view, which has the names of all before it.
    waits_from: u64,
    /// Whether an order that changes the store is under way.
    pub(super) is_changing: bool,
    /// Nothing is made visible before: a removal may still take effect.
    pub(super) hold_until: Option<Instant>,
    pub(super) failed: FailedNodes,
    /// Why the first change could not be made, as it was reported last; it stands before the next.
    pub(super) reported_stall: Option<String>,
    /// Why lost bytes cannot be read back, as it was reported last. Empty in the beginning: an
    /// earlier manager may have reported a reason.
    pub(super) read_stall: Option<String>,
    /// Since when changes wait and no node reaches the store.
    pub(super) unreached_since: Option<Instant>,
    /// The adoption of the store, while it lasts.
    pub(super) adoption: Option<AdoptionTask>,
}

/// The name by which the store got an object.
#[derive(Debug)]
struct CompletedName {
    key: String,
    /// The change by which it got it, and when that was.
    number: u64,
    at: Instant,
}

/// One change.
#[derive(Debug, Clone)]
pub(super) struct Task {
    pub(super) key: String,
    pub(super) kind: DurableChangeKind,
    pub(super) stage: Stage,
    /// The upload that the namenode has recorded, once it has all reports.
    pub(super) recorded: Option<String>,
    pub(super) is_calling: bool,
    pub(super) tries: u32,
    pub(super) retry_at: Option<Instant>,
    pub(super) avoid: Option<NodeId>,
    /// Where its next bytes were when they were looked up and no node was free to send them.
    pub(super) waits_with: Option<PartSources>,
    /// The blocks that its next part begins with, where a layout had less than the part.
    pub(super) begun_part: Option<Box<Layout>>,
    /// An order for it did not end in its time: it goes part by part from then on.
    pub(super) is_slow: bool,
    /// How often the store had no room for it while it was the first change, since its bytes could
    /// not be read.
    pub(super) failed_first: u32,
    /// When that was for the first time.
    failed_first_at: Option<Instant>,
}

/// How far the upload of an object is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    Waiting,
    /// An upload was recorded that may have been completed, or may be yet: it is ended first.
    Stale { upload: String },
    /// Parts up to this offset are in the store.
    Uploading { upload: String, next: u64, parts: Vec<String> },
    /// All parts are in the store.
    Uploaded { upload: String, parts: Vec<String> },
    /// The namenode has recorded the upload.
    Recorded { upload: String, parts: Vec<String> },
}

impl Directory {
    pub(super) const fn new(store: String, window: usize) -> Self {
        Self {
            store,
            may_claim: false,
            window,
            tasks: BTreeMap::new(),
            done: 0,
            unreported: BTreeMap::new(),
            completed: BTreeMap::new(),
            waits_from: u64::MAX,
            is_changing: false,
            hold_until: None,
            failed: FailedNodes::new(),
            reported_stall: None,
            read_stall: Some(String::new()),
            unreached_since: None,
            adoption: None,
        }
    }

    /// Notes that a change was made.
    pub(super) fn made(&mut self, now: Instant, number: u64, task: Task) {
        let unreported = &self.unreported;
        self.completed.retain(|_, name| {
            name.at + COMPLETED_KEPT > now || unreported.contains_key(&name.number)
        });
        if let DurableChangeKind::Put { object, .. } = task.kind {
            let key = task.key.clone();
            self.completed.insert(object, CompletedName { key, number, at: now });
        }
        self.unreported.insert(number, task.key);
    }

    /// Returns the name by which the store got an object, if the change waits in the last view: its
    /// name there is that of before. The object may have been renamed since a change that does not.
    pub(super) fn name_after_view(&self, object: ObjectId) -> Option<&str> {
        let name = self.completed.get(&object)?;
        (self.waits_from <= name.number).then_some(name.key.as_str())
    }

    /// Returns how many changes are being read or sent.
    pub(super) fn calling(&self) -> usize {
        self.tasks.values().filter(|task| task.is_calling).count()
    }

    /// Takes the changes of a view, which may be older than what was done since.
    pub(super) fn merge(&mut self, changes: Vec<DurableChange>) {
        let waits_from = changes.first().map_or(u64::MAX, |change| change.number);
        self.waits_from = waits_from;
        if !self.is_changing {
            // A late report of an earlier term has shown that these were made.
            self.tasks.retain(|number, task| *number >= waits_from || task.is_calling);
        }
        for change in changes.into_iter().filter(|change| change.number > self.done) {
            let DurableChange { number, key, kind, upload } = change;
            match self.tasks.get_mut(&number) {
                Some(task) => {
                    if kind == DurableChangeKind::Skip && !self.is_changing {
                        task.kind = kind;
                    }
                }
                None => {
                    let recorded = upload.clone();
                    let stage = upload.map_or(Stage::Waiting, |upload| Stage::Stale { upload });
                    let task = Task {
                        key,
                        kind,
                        stage,
                        recorded,
                        is_calling: false,
                        tries: 0,
                        retry_at: None,
                        avoid: None,
                        waits_with: None,
                        begun_part: None,
                        is_slow: false,
                        failed_first: 0,
                        failed_first_at: None,
                    };
                    self.tasks.insert(number, task);
                }
            }
        }
    }

    /// Returns whether parts of a change may be sent.
    ///
    /// While the store has no room for the first one, that is sent alone: others would take the
    /// room that it waits for, and nothing behind it becomes visible or is removed before.
    pub(super) fn may_send(&self, number: u64) -> bool {
        let is_free =
            |(first, task): (&u64, &Task)| *first == number || task.failed_first < ALONE_AFTER;
        self.tasks.first_key_value().is_none_or(is_free)
    }

    /// Returns the changes for which something can be begun before it is their turn.
    pub(super) fn due(&self, now: Instant) -> impl Iterator<Item = u64> {
        let is_due = move |number: u64, task: &Task| {
            let is_put = matches!(task.kind, DurableChangeKind::Put { .. });
            let is_unsent = matches!(task.stage, Stage::Waiting | Stage::Uploading { .. });
            let is_sent = is_put && is_unsent && self.may_send(number);
            let has_next = task.ended_upload().is_some() || is_sent;
            has_next && !task.is_calling && task.retry_at.is_none_or(|at| at <= now)
        };
        let due = self.tasks.iter().take(STORE_CHANGES_PER_ORDER_MAX);
        due.filter(move |(number, task)| is_due(**number, task)).map(|(number, _)| *number)
    }

    /// Notes that the store had no room for a change. If that is the first one, and this came
    /// often, uploads behind it are ended, the last ones first, until it has as many bytes of room
    /// as its object. They are sent again in their turn.
    pub(super) fn failed_for_room(&mut self, now: Instant, number: u64) {
        let Some((first, task)) = self.tasks.iter_mut().next() else { return };
        let DurableChangeKind::Put { bytes, .. } = task.kind else { return };
        if *first != number {
            return;
        }
        task.failed_first += 1;
        let since = *task.failed_first_at.get_or_insert(now);
        let is_early = task.failed_first < ENDS_OTHERS_AFTER || now < since + ENDS_NONE_WITHIN;
        // An order that is under way may complete uploads.
        if is_early || self.is_changing {
            return;
        }
        // Without bytes it needs room for its name.
        let mut needed = bytes.max(1);
        for task in self.tasks.values_mut().skip(1).rev() {
            if needed == 0 {
                break;
            }
            needed = needed.saturating_sub(task.give_up());
        }
    }

    /// Notes that the bytes of a change could not be read: it does not wait for room in the store,
    /// so it holds up no others.
    pub(super) fn failed_elsewhere(&mut self, number: u64) {
        if let Some(task) = self.tasks.get_mut(&number) {
            (task.failed_first, task.failed_first_at) = (0, None);
        }
    }

    /// Passes over the first changes of which nothing is left to do. Returns each with the upload
    /// that is recorded.
    pub(super) fn skip_first(&mut self) -> Vec<(u64, Option<String>)> {
        let mut skipped = Vec::new();
        while !self.is_changing
            && let Some(first) = self.tasks.first_entry()
            && first.get().kind == DurableChangeKind::Skip
            && !first.get().is_calling
            && first.get().ended_upload().is_none()
        {
            let (number, task) = first.remove_entry();
            self.done = number;
            skipped.push((number, task.recorded));
        }
        skipped
    }

    /// Returns the first changes that can be made visible, each with what the store is to do.
    ///
    /// All that may have to be made again, because it is unknown whether they were made or because
    /// the namenode does not know it yet, are about different names. So whoever makes them again,
    /// the first ones on top of the last ones, leaves the store in the state that it is in.
    ///
    /// No name changes by which an object is `read` back at the moment.
    pub(super) fn ready(&self, now: Instant, read: &[String]) -> Vec<(u64, StoreChange)> {
        let (mut ready, mut sent) = (Vec::new(), 0);
        for (number, task) in self.tasks.iter().take(STORE_CHANGES_PER_ORDER_MAX) {
            if task.retry_at.is_some_and(|at| at > now) || task.is_calling {
                break;
            }
            let of_batch = ready.iter().map(|(_, change): &(u64, StoreChange)| key_of(change));
            let mut others = self.unreported.values().map(String::as_str).chain(of_batch);
            if others.any(|other| overlaps(other, &task.key)) {
                break;
            }
            if read.iter().any(|name| overlaps(name, &task.key)) {
                break;
            }
            let key = task.key.clone();
            let change = match (task.kind, &task.stage) {
                (DurableChangeKind::Put { bytes, .. }, Stage::Recorded { upload, parts }) => {
                    sent += parts.len();
                    if sent > COMPLETED_PARTS_MAX && !ready.is_empty() {
                        break;
                    }
                    let (upload, parts) = (upload.clone(), parts.clone());
                    StoreChange::Complete { key, upload, parts, bytes }
                }
                (DurableChangeKind::Remove, _) => StoreChange::Remove { number: *number, key },
                (DurableChangeKind::RemoveTree, _) => {
                    StoreChange::RemoveTree { number: *number, key }
                }
                _ => break,
            };
            ready.push((*number, change));
        }
        ready
    }

    /// Notes that it is unknown whether these changes were made: their uploads are ended first.
    pub(super) fn unknown(&mut self, numbers: &[u64]) {
        for number in numbers {
            let Some(task) = self.tasks.get_mut(number) else { continue };
            if let Stage::Recorded { upload, .. } = std::mem::take(&mut task.stage) {
                task.stage = Stage::Stale { upload };
            }
        }
    }

    /// Returns when something can be tried again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let first = self.tasks.values().take(STORE_CHANGES_PER_ORDER_MAX);
        let adoption = self.adoption.as_ref().and_then(AdoptionTask::deadline);
        first.filter_map(|task| task.retry_at).chain(self.hold_until).chain(adoption).min()
    }

    /// Forgets pauses that are over.
    pub(super) fn wake(&mut self, now: Instant) {
        if self.hold_until.is_some_and(|at| at <= now) {
            self.hold_until = None;
        }
        if let Some(adoption) = &mut self.adoption {
            adoption.wake(now);
        }
        for task in self.tasks.values_mut() {
            if task.retry_at.is_some_and(|at| at <= now) {
                task.retry_at = None;
            }
        }
    }
}

impl Task {
    /// Returns the offset of the bytes to send next whose places are to be looked up.
    pub(super) fn next_offset(&self) -> u64 {
        let begun = self.begun_part.as_ref().and_then(|begun| begun.next_offset);
        match (begun, &self.stage) {
            (Some(offset), _) => offset,
            (None, Stage::Uploading { next, .. }) => *next,
            (None, _) => 0,
        }
    }

    /// Returns the upload that must be ended before anything else is done for the change.
    pub(super) fn ended_upload(&self) -> Option<&String> {
        match &self.stage {
            Stage::Stale { upload } => Some(upload),
            Stage::Uploading { upload, .. }
            | Stage::Uploaded { upload, .. }
            | Stage::Recorded { upload, .. } => {
                (self.kind == DurableChangeKind::Skip).then_some(upload)
            }
            Stage::Waiting => None,
        }
    }

    /// Gives up what was sent: it is ended before the object is sent again. Returns its bytes; none
    /// while an order or a report of it is under way.
    fn give_up(&mut self) -> u64 {
        let (upload, bytes) = match (&self.stage, self.kind) {
            (Stage::Uploading { upload, next, .. }, _) if !self.is_calling => (upload, *next),
            (Stage::Recorded { upload, .. }, DurableChangeKind::Put { bytes, .. }) => {
                (upload, bytes)
            }
            _ => return 0,
        };
        self.stage = Stage::Stale { upload: upload.clone() };
        bytes
    }
}

fn key_of(change: &StoreChange) -> &str {
    match change {
        StoreChange::Complete { key, .. }
        | StoreChange::Remove { key, .. }
        | StoreChange::RemoveTree { key, .. } => key,
    }
}

/// Returns whether two names are the same, or one is below the other.
fn overlaps(one: &str, other: &str) -> bool {
    let is_below = |long: &str, short: &str| {
        long.strip_prefix(short).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    is_below(one, other) || is_below(other, one)
}

/// Joins a layout with the blocks of a begun part before it.
pub(super) fn joined(begun: Option<Box<Layout>>, layout: Layout) -> Layout {
    let Some(begun) = begun else { return layout };
    let Layout { inline, mut blocks, mut places, .. } = *begun;
    blocks.extend(layout.blocks);
    places.extend(layout.places);
    Layout { inline, blocks, places, ..layout }
}

/// What is sent next of an object, as far as a layout has its blocks.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CutLayout {
    /// Parts, and the offset behind them.
    Parts(Vec<UploadPart>, u64),
    /// Less than a part, which goes on behind the layout.
    Begun,
    /// The blocks do not follow each other, or one has no place.
    Gap,
}

/// Cuts the first bytes of a layout, which begin at `from`, into parts of so many bytes, at most so
/// many.
pub(super) fn parts_of(
    layout: &Layout,
    from: u64,
    first: usize,
    (part_bytes, parts_max): (u64, usize),
) -> CutLayout {
    let mut parts: Vec<UploadPart> = Vec::new();
    let mut end = from;
    let mut inline = match (&layout.inline, from) {
        (Some(inline), 0) => inline.clone(),
        _ => Vec::new(),
    };
    let mut open = new_part(first, from, std::mem::take(&mut inline));
    end += open.inline.len() as u64;
    let mut order_bytes = 0;
    let mut addresses = BTreeMap::new();
    for place in &layout.places {
        addresses.insert(place.node, place.address.clone());
    }
    for block in layout.blocks.iter().filter(|block| block.offset >= from) {
        let Some((node, address)) = block.home.and_then(|id| addresses.get_key_value(&id)) else {
            return CutLayout::Gap;
        };
        if block.offset != end {
            return CutLayout::Gap;
        }
        order_bytes += address.len() + BLOCK_NUMBERS_BYTES_MAX;
        let is_full = order_bytes > ORDER_BYTES_MAX;
        if is_full && !parts.is_empty() {
            return CutLayout::Parts(parts, open.offset);
        }
        let (node, address) = (*node, address.clone());
        let (epoch, length) = (block.epoch, block.length);
        open.blocks.push(UploadBlock { block: block.block, epoch, length, node, address });
        end += u64::from(length);
        if is_full || end - open.offset >= part_bytes {
            let number = first + parts.len() + 1;
            parts.push(std::mem::replace(&mut open, new_part(number, end, Vec::new())));
            if is_full || parts.len() == parts_max {
                return CutLayout::Parts(parts, end);
            }
        }
    }
    let is_whole = end >= layout.stat.bytes;
    if is_whole && (end > open.offset || (parts.is_empty() && first == 0)) {
        parts.push(open);
    } else if !is_whole {
        // What is left over begins the next order's first part.
        end = open.offset;
    }
    match layout.next_offset {
        _ if is_whole || !parts.is_empty() => CutLayout::Parts(parts, end),
        Some(_) => CutLayout::Begun,
        None => CutLayout::Gap,
    }
}

fn new_part(number: usize, offset: u64, inline: Vec<u8>) -> UploadPart {
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    UploadPart { number, offset, inline, blocks: Vec::new() }
}
