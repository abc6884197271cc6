//! Stores without room for everything: what gives way to the first change, and stores whose room
//! suffices only in the order of the changes.

use sanderling_protocol::message::{BlockLocation, NodeAddress, ObjectKind, ObjectStat};
use sanderling_protocol::{BlockId, Epoch, StorageClass};

use super::*;

const MIB: u64 = 1 << 20;

impl Store {
    /// Returns the bytes of what is visible and of what is not.
    fn used(&self) -> u64 {
        let uploads = self.uploads.values().flat_map(|upload| upload.parts.values());
        self.objects.values().chain(uploads).map(Content::length).sum()
    }

    /// Returns whether so many bytes more find room.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        self.room.is_none_or(|room| self.used() + bytes <= room)
    }
}

/// Returns why a store without room fails.
pub(super) fn full() -> Refusal {
    Refusal::NodeFull { tier: "durable".to_owned(), bytes: 1 }
}

impl World {
    /// Draws whether something else takes the store's room, or leaves it.
    pub(super) fn draw_room(&mut self) {
        // A few values, or objects of blocks.
        let most = if self.has_blocks { 24 * MIB } else { 24 };
        let Some(draw) = &mut self.rooms else { return };
        match draw.below(4) {
            0 => self.store.room = Some(self.store.used() + draw.below(most)),
            1 => self.store.room = None,
            _ => {}
        }
    }

    /// Leaves the store room for the largest state that it is to show, and for one object more.
    pub(super) fn leave_room_in_order(&mut self) {
        if self.rooms.is_none() {
            return;
        }
        self.remove_forgotten();
        let size = |state: &State| -> u64 { state.values().map(Content::length).sum() };
        let shown = self.states().iter().skip(self.shown).map(size).max();
        let bytes = |change: DurableChange| match change.kind {
            DurableChangeKind::Put { bytes, .. } => bytes,
            _ => 0,
        };
        let one = self.work().0.into_iter().flat_map(|it| it.changes).map(bytes).max();
        self.store.room = Some(shown.unwrap_or(0) + one.unwrap_or(0));
    }

    /// Removes uploads whose answers were lost, as an administrator does.
    fn remove_forgotten(&mut self) {
        let recorded = self.work().0.into_iter().flat_map(|it| it.changes);
        let mut known: BTreeSet<String> = recorded.filter_map(|change| change.upload).collect();
        for task in self.drain.directories.values().flat_map(|it| it.tasks.values()) {
            match &task.stage {
                Stage::Stale { upload }
                | Stage::Uploading { upload, .. }
                | Stage::Uploaded { upload, .. }
                | Stage::Recorded { upload, .. } => {
                    known.insert(upload.clone());
                }
                Stage::Waiting => {}
            }
        }
        self.store.uploads.retain(|upload, _| known.contains(upload));
    }
}

/// A drain, and a store that fails for some of the changes.
struct Copying {
    now: Instant,
    drain: DurableDrain,
    changes: Vec<DurableChange>,
    /// Why parts of a change are not taken.
    refused: BTreeMap<u64, Refusal>,
    /// Changes that the store does not make.
    unmade: BTreeSet<u64>,
    /// Objects whose bytes are lost.
    lost: BTreeSet<u64>,
    /// A change whose parts travel until [`Self::arrive`].
    slow: Option<u64>,
    /// A change whose object is looked up until then.
    slow_look_up: Option<u64>,
    travelling: Vec<DurableOutput>,
    next_upload: u64,
    seen: Vec<String>,
}

/// Returns the number of a change by its name in the store.
fn number_of(key: &str) -> u64 {
    key[1..].parse().expect("a number")
}

impl Copying {
    /// Puts objects of so many bytes.
    fn new(bytes: &[u64]) -> Self {
        let mut copying = Self {
            now: Instant(1_000_000),
            drain: DurableDrain::default(),
            changes: Vec::new(),
            refused: BTreeMap::new(),
            unmade: BTreeSet::new(),
            lost: BTreeSet::new(),
            slow: None,
            slow_look_up: None,
            travelling: Vec::new(),
            next_upload: 0,
            seen: Vec::new(),
        };
        for bytes in bytes {
            copying.put(*bytes);
        }
        copying
    }

    fn put(&mut self, bytes: u64) {
        let number = self.changes.len() as u64 + 1;
        let kind = DurableChangeKind::Put { object: ObjectId(number), bytes };
        let change = DurableChange { number, key: format!("c{number}"), kind, upload: None };
        self.changes.push(change);
    }

    fn bytes(&self, number: u64) -> u64 {
        match self.changes[number as usize - 1].kind {
            DurableChangeKind::Put { bytes, .. } => bytes,
            _ => 0,
        }
    }

    /// Shows the drain the changes. Returns what happens then.
    fn view(&mut self) -> Vec<String> {
        let node = |id: u32| StoreNode {
            node: NodeId(id),
            address: format!("host-{id}:1"),
            stores: vec!["s".to_owned()],
        };
        let work = DurableWork {
            directory: ObjectId(500),
            store: "s".to_owned(),
            may_claim: true,
            adoption: None,
            changes: self.changes.clone(),
        };
        let nodes = vec![node(1), node(2)];
        let view = DurableInput::View { work: vec![work], nodes, losses: Vec::new() };
        self.drain.handle(self.now, view);
        self.answer()
    }

    /// Passes the pause before the next try. Returns what happens then.
    fn wait(&mut self) -> Vec<String> {
        self.now = self.drain.deadline().expect("it is tried again");
        self.drain.handle_deadline(self.now);
        self.answer()
    }

    /// Lets the store refuse the first change so many times more, and nothing else happen.
    fn fail_first(&mut self, times: u32) {
        for _ in 0..times {
            assert_eq!(self.wait(), ["c1 refused"]);
        }
    }

    /// Lets what is slow arrive. Returns what happens then.
    fn arrive(&mut self) -> Vec<String> {
        (self.slow, self.slow_look_up) = (None, None);
        for output in std::mem::take(&mut self.travelling) {
            let input = self.execute(output);
            self.drain.handle(self.now, input);
        }
        self.answer()
    }

    fn answer(&mut self) -> Vec<String> {
        while let Some(output) = self.drain.poll_output() {
            if self.is_slow(&output) {
                self.travelling.push(output);
                continue;
            }
            let input = self.execute(output);
            self.drain.handle(self.now, input);
        }
        std::mem::take(&mut self.seen)
    }

    fn is_slow(&self, output: &DurableOutput) -> bool {
        match output {
            DurableOutput::Upload { order, .. } => Some(number_of(&order.key)) == self.slow,
            DurableOutput::Layout { object, .. } => Some(object.0) == self.slow_look_up,
            _ => false,
        }
    }

    fn execute(&mut self, output: DurableOutput) -> DurableInput {
        match output {
            DurableOutput::Layout { call, object, offset, .. } => {
                let layout = Some(Box::new(self.layout(object, offset)));
                DurableInput::Layout { call, layout }
            }
            DurableOutput::Upload { call, order, .. } => {
                if let Some(refusal) = self.refused.get(&number_of(&order.key)) {
                    self.seen.push(format!("{} refused", order.key));
                    let answer = Err(DurableCallError::Refused(refusal.clone()));
                    return DurableInput::Uploaded { call, answer };
                }
                self.seen.push(format!("{} sent", order.key));
                self.next_upload += 1;
                let upload = order.upload.unwrap_or_else(|| format!("u{}", self.next_upload));
                let parts = order.parts.iter().map(|_| String::new()).collect();
                DurableInput::Uploaded { call, answer: Ok(UploadedParts { upload, parts }) }
            }
            DurableOutput::Abort { call, uploads, .. } => {
                let ended = uploads.iter().map(|(key, _)| format!("{key} ended"));
                self.seen.extend(ended);
                DurableInput::Aborted { call, is_done: true }
            }
            DurableOutput::Change { call, changes, .. } => {
                let (mut done, mut failure) = (0, None);
                for change in changes {
                    let StoreChange::Complete { key, .. } = change else { panic!("{change:?}") };
                    if self.unmade.contains(&number_of(&key)) {
                        self.seen.push(format!("{key} not made"));
                        failure = Some(full());
                        break;
                    }
                    self.seen.push(format!("{key} made"));
                    done += 1;
                }
                DurableInput::Changed { call, answer: Some((done, failure)) }
            }
            DurableOutput::Report { call, .. } => DurableInput::Reported { call, is_done: true },
            other => panic!("{other:?}"),
        }
    }

    /// Returns where an object is from an offset on: in blocks of 8 MiB.
    fn layout(&self, object: ObjectId, from: u64) -> Layout {
        let bytes = self.bytes(object.0);
        let home = (!self.lost.contains(&object.0)).then_some(NodeId(1));
        let mut blocks = Vec::new();
        let mut offset = from;
        while offset < bytes {
            let length = PART_BYTES_MIN.min(bytes - offset) as u32;
            let (block, epoch, tier) = (BlockId(offset), Epoch(1), Tier::Dram);
            blocks.push(BlockLocation { block, epoch, offset, length, home, tier });
            offset += u64::from(length);
        }
        let stat = ObjectStat {
            path: path(&format!("c{}", object.0)),
            object,
            kind: ObjectKind::File,
            bytes,
            lost_bytes: 0,
            is_sealed: true,
            is_listed: true,
            delete_after_read: false,
            class: StorageClass::default(),
            created_at: self.now,
            modified_at: self.now,
            expires_in: None,
            blocks: blocks.len() as u32,
            entries: 0,
            job: None,
            attributes: Attributes::none(),
        };
        let (address, host) = ("host-1:1".to_owned(), "host-1".to_owned());
        let places = vec![NodeAddress { node: NodeId(1), address, host }];
        Layout { stat, inline: None, blocks, places, next_offset: None }
    }
}

#[test]
fn uploads_give_way_when_the_store_fails_again_for_the_first_change() {
    let mut copying = Copying::new(&[10, 10]);
    copying.refused.insert(1, full());
    assert_eq!(copying.view(), ["c1 refused", "c2 sent"]);
    let began = copying.now;
    copying.fail_first(1);
    // Nothing overtakes the first change from now on.
    copying.put(10);
    assert!(copying.view().is_empty());
    copying.fail_first(2);
    assert_eq!(copying.wait(), ["c1 refused", "c2 ended"]);
    assert!(copying.now >= began + Millis(6000), "a store that is away for a moment ends nothing");
    copying.fail_first(1);
    copying.refused.clear();
    let made = ["c1 sent", "c1 made", "c2 sent", "c3 sent", "c2 made", "c3 made"];
    assert_eq!(copying.wait(), made);
}

#[test]
fn uploads_give_way_no_sooner_while_bytes_leave_with_a_node() {
    let mut copying = Copying::new(&[10, 10]);
    let left = [(NodeId(1), Millis(60_000))].into();
    copying.drain.handle(copying.now, DurableInput::Noticed { left, has_exposed: true });
    copying.refused.insert(1, full());
    assert_eq!(copying.view(), ["c1 refused", "c2 sent"]);
    let began = copying.now;
    // The pauses are of 1 s at most: the seventh failure comes before 6 s.
    copying.fail_first(6);
    assert!(copying.now < began + Millis(6000));
    assert_eq!(copying.wait(), ["c1 refused", "c2 ended"]);
    assert!(copying.now >= began + Millis(6000));
}

#[test]
fn uploads_give_way_only_as_far_as_the_first_change_needs_their_bytes() {
    let mut copying = Copying::new(&[15, 10, 10, 10]);
    copying.refused.insert(1, full());
    assert_eq!(copying.view(), ["c1 refused", "c2 sent", "c3 sent", "c4 sent"]);
    copying.fail_first(3);
    assert_eq!(copying.wait(), ["c1 refused", "c3 ended", "c4 ended"]);
    assert_eq!(copying.wait(), ["c1 refused", "c2 ended"]);
    copying.fail_first(1);
    copying.refused.clear();
    let made = copying.wait();
    assert_eq!(made[..2], ["c1 sent", "c1 made"]);
    assert!(made.contains(&"c4 made".to_owned()), "{made:?}");
}

#[test]
fn first_change_whose_bytes_are_away_holds_up_no_upload() {
    for is_lost in [false, true] {
        let mut copying = Copying::new(&[10, 10]);
        let why = "block 0 at node 1: no answer".to_owned();
        match is_lost {
            true => copying.lost.extend([1]),
            false => {
                copying.refused.insert(1, Refusal::RetryAfter { after: Millis(100), why });
            }
        }
        let mut seen = copying.view();
        for _ in 0..8 {
            seen.extend(copying.wait());
            copying.put(10);
            seen.extend(copying.view());
        }
        assert!(seen.iter().all(|it| !it.ends_with("ended")), "{seen:?}");
        assert!(seen.contains(&"c10 sent".to_owned()), "{seen:?}");
    }
}

#[test]
fn first_change_whose_bytes_are_away_after_failures_of_the_store_holds_up_no_upload() {
    for is_lost in [false, true] {
        let mut copying = Copying::new(&[10, 10]);
        copying.refused.insert(1, full());
        assert_eq!(copying.view(), ["c1 refused", "c2 sent"]);
        copying.fail_first(1);
        copying.put(10);
        assert!(copying.view().is_empty());
        if is_lost {
            copying.refused.clear();
            copying.lost.insert(1);
            assert_eq!(copying.wait(), ["c3 sent"]);
        } else {
            let why = "block 0 at node 1: no answer".to_owned();
            copying.refused.insert(1, Refusal::RetryAfter { after: Millis(100), why });
            assert_eq!(copying.wait(), ["c1 refused", "c3 sent"]);
        }
    }
}

#[test]
fn datanode_that_fails_otherwise_does_not_undo_giving_way() {
    let mut copying = Copying::new(&[10, 10]);
    copying.refused.insert(1, full());
    assert_eq!(copying.view(), ["c1 refused", "c2 sent"]);
    for failures in 2..=5 {
        let (tier, why) = ("durable".to_owned(), "not mounted".to_owned());
        copying.refused.insert(1, Refusal::TierFailed { tier, why });
        assert_eq!(copying.wait(), ["c1 refused"]);
        copying.refused.insert(1, full());
        let expected: &[&str] =
            if failures < 5 { &["c1 refused"] } else { &["c1 refused", "c2 ended"] };
        assert_eq!(copying.wait(), expected, "after {failures} failures for room");
    }
}

#[test]
fn object_that_is_being_looked_up_gives_way() {
    let mut copying = Copying::new(&[10, 10]);
    copying.refused.insert(1, full());
    copying.slow_look_up = Some(2);
    assert_eq!(copying.view(), ["c1 refused"]);
    copying.fail_first(1);
    assert!(copying.arrive().is_empty());
    copying.refused.clear();
    assert_eq!(copying.wait(), ["c1 sent", "c1 made", "c2 sent", "c2 made"]);
}

#[test]
fn parts_of_a_large_object_give_way() {
    let mut copying = Copying::new(&[10, 100 * MIB]);
    copying.refused.insert(1, full());
    copying.slow = Some(2);
    assert_eq!(copying.view(), ["c1 refused"]);
    // An order that is under way comes to its end first.
    copying.fail_first(1);
    assert_eq!(copying.arrive(), ["c2 sent"]);
    copying.fail_first(2);
    assert_eq!(copying.wait(), ["c1 refused", "c2 ended"]);
    copying.refused.clear();
    assert_eq!(copying.wait(), ["c1 sent", "c1 made", "c2 sent", "c2 sent", "c2 made"]);
}

#[test]
fn uploads_give_way_when_the_first_change_cannot_be_completed() {
    let mut copying = Copying::new(&[10, 10]);
    copying.unmade.insert(1);
    assert_eq!(copying.view(), ["c1 sent", "c2 sent", "c1 not made"]);
    for _ in 0..3 {
        assert_eq!(copying.wait(), ["c1 ended", "c1 sent", "c1 not made"]);
    }
    assert_eq!(copying.wait(), ["c1 ended", "c1 sent", "c1 not made", "c2 ended"]);
    copying.unmade.clear();
    let made = ["c1 ended", "c1 sent", "c1 made", "c2 sent", "c2 made"];
    assert_eq!(copying.wait(), made);
}

#[test]
fn parts_of_an_object_that_is_passed_over_are_removed() {
    let mut copying = Copying::new(&[100 * MIB]);
    copying.slow = Some(1);
    assert!(copying.view().is_empty());
    copying.lost.insert(1);
    assert_eq!(copying.arrive(), ["c1 sent"]);
    copying.changes[0].kind = DurableChangeKind::Skip;
    assert!(copying.view().is_empty());
    assert_eq!(copying.wait(), ["c1 ended"]);
    assert!(!copying.drain.has_work());
}
