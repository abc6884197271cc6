//! The catalog, the drain, datanodes and a store, with calls that are late, lost or answered in
//! vain.

use std::collections::BTreeMap;

use sanderling_protocol::message::{
    Attributes, DurableChange, DurableChangeKind, DurableReply, DurableReport, DurableRequest,
    Entry, Layout, MakeDurable,
};
use sanderling_protocol::order::StoreChange;
use sanderling_protocol::split_mix::SplitMix64;
use sanderling_protocol::{
    ClusterId, Instant, Millis, NodeId, Nonce, ObjectId, Path, Refusal, Reply, Tier,
};

use super::*;
use crate::catalog::{Action, Catalog, Command, DurableAction};

mod adoption;
mod choosing;
mod content;
mod datanodes;
mod failing;
mod injected_bugs;
mod late_orders;
mod late_reports;
mod long_orders;
mod refused_names;
mod renaming;
mod restoring;
mod room;
mod sharing;
mod wanted;
mod writing;

use content::Content;
use datanodes::Datanodes;
use injected_bugs::InjectedBug;
use writing::Writer;

const SECOND: Millis = Millis(1000);

/// Longer than a run: a writer that is there holds its lease.
const LEASE: Millis = Millis(3_600_000);

/// How long after it was sent a late order may still be executed: as a datanode bounds it.
const LATE_MAX: Millis = Millis(25_000);

/// Steps without faults in which everything gets to the store, at least and at most: of values, and
/// of objects with blocks. Of those, each may have to give way in a store without room after it was
/// read back.
const SETTLES_IN: [(u32, u32); 2] = [(200, 400), (20, 800)];

/// The names of a directory, and the bytes that each has.
type State = BTreeMap<String, Content>;

/// Draws numbers from a seed.
struct Draw(SplitMix64);

impl Draw {
    const fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0.next() % limit
    }
}

/// What a store shows, and what it does not.
#[derive(Default)]
struct Store {
    objects: State,
    uploads: BTreeMap<String, StoreUpload>,
    next: u64,
    /// The bytes that find room, unless it has room for everything.
    room: Option<u64>,
    /// Whether it joins parts in the wrong order.
    mixes_parts: bool,
}

/// Parts of an object that is not visible.
struct StoreUpload {
    key: String,
    parts: BTreeMap<u32, Content>,
}

impl StoreUpload {
    /// Returns the bytes of so many parts; `None` if it has more or fewer.
    fn joined(&self, parts: usize, is_mixed: bool) -> Option<Content> {
        let mut ordered: Vec<&Content> = self.parts.values().collect();
        if is_mixed {
            ordered.reverse();
        }
        let is_whole = self.parts.keys().map(|number| *number as usize).eq(0..parts);
        let mut whole = Content::default();
        ordered.into_iter().for_each(|part| whole.push(part));
        is_whole.then_some(whole)
    }
}

impl Store {
    /// Begins an upload. Returns its name.
    fn begin(&mut self, key: String) -> String {
        self.next += 1;
        let upload = format!("u{}", self.next);
        self.uploads.insert(upload.clone(), StoreUpload { key, parts: BTreeMap::new() });
        upload
    }

    /// Takes a part of an upload.
    fn send(&mut self, upload: &str, number: u32, part: Content) -> Result<(), Refusal> {
        if !self.has_room(part.length()) {
            return Err(room::full());
        }
        let found = self.uploads.get_mut(upload).ok_or_else(failed)?;
        found.parts.insert(number, part);
        Ok(())
    }

    fn change(&mut self, change: &StoreChange) -> Result<(), Refusal> {
        match change {
            StoreChange::Complete { key, upload, parts, bytes } => {
                let missing = || Refusal::BadRequest { why: "there is no such upload".to_owned() };
                let found = self.uploads.get(upload).filter(|found| found.key == *key);
                let whole = found.and_then(|it| it.joined(parts.len(), self.mixes_parts));
                let whole = whole.filter(|whole| whole.length() == *bytes);
                let whole = whole.ok_or_else(missing)?;
                self.uploads.remove(upload);
                self.objects.insert(key.clone(), whole);
            }
            StoreChange::Remove { key, .. } => {
                self.objects.remove(key);
            }
            StoreChange::RemoveTree { key, .. } => {
                self.objects.retain(|name, _| !name.starts_with(&format!("{key}/")));
            }
        }
        Ok(())
    }
}

/// A cluster with one durable directory.
struct World {
    now: Instant,
    draw: Draw,
    catalog: Catalog,
    drain: DurableDrain,
    bug: Option<InjectedBug>,
    holder: Nonce,
    store: Store,
    datanodes: Datanodes,
    /// Room for blocks on each node.
    node_bytes: u64,
    /// Whether objects have blocks, too, on nodes that come and end.
    has_blocks: bool,
    /// Whether they are renamed often, and answers about it are lost.
    is_renaming: bool,
    /// Whether reports are held up for long, and two managers lead in turn.
    has_late_reports: bool,
    writers: Vec<Writer>,
    /// The bytes of all objects that were written.
    written: BTreeMap<ObjectId, Content>,
    /// Objects of which nothing may be lost: they were durable when a node ended.
    promised: BTreeSet<ObjectId>,
    /// Orders and reports that take effect later, without an answer, and their managers.
    late: Vec<(Instant, Nonce, DurableOutput)>,
    /// Orders whose datanodes are paused before they begin with them.
    held_up: Vec<(Instant, DurableOutput)>,
    /// For how long they are, if that is drawn.
    pauses: Option<Draw>,
    /// All changes so far, with the bytes that they give a name.
    history: BTreeMap<u64, (DurableChange, Content)>,
    /// The changes of uploads that were reported.
    numbers: BTreeMap<String, u64>,
    /// Changes whose uploads were completed in their turn. Some of their objects were deleted since
    /// because they had lost bytes.
    completed: BTreeSet<u64>,
    /// Of the states that the directory has had, the one that the store showed last.
    shown: usize,
    /// How much room the store has, if that is drawn.
    rooms: Option<Draw>,
    seed: u64,
}

fn path(name: &str) -> Path {
    format!("/out/{name}").parse().expect("a path")
}

impl World {
    /// Makes a cluster whose objects are values in the catalog, on two nodes that stay.
    fn new(seed: u64, bug: Option<InjectedBug>) -> Self {
        Self::on_nodes(seed, bug, 1 << 20)
    }

    /// Makes a cluster whose objects have blocks, too, on nodes that come and end.
    fn with_blocks(seed: u64, bug: Option<InjectedBug>) -> Self {
        let mut world = Self::on_nodes(seed, bug, 1 << 32);
        world.has_blocks = true;
        world
    }

    fn on_nodes(seed: u64, bug: Option<InjectedBug>, node_bytes: u64) -> Self {
        let mixes_parts = bug == Some(InjectedBug::MixesParts);
        let mut world = Self {
            now: Instant(1_000_000),
            draw: Draw::new(seed),
            catalog: Catalog::new(ClusterId(7), LEASE),
            drain: DurableDrain::default(),
            bug,
            holder: Nonce(0),
            store: Store { mixes_parts, ..Store::default() },
            datanodes: Datanodes::default(),
            node_bytes,
            has_blocks: false,
            is_renaming: false,
            has_late_reports: false,
            writers: Vec::new(),
            written: BTreeMap::new(),
            promised: BTreeSet::new(),
            late: Vec::new(),
            held_up: Vec::new(),
            pauses: bug.is_none().then_some(Draw::new(seed ^ 0x5bd1_e995)),
            history: BTreeMap::new(),
            numbers: BTreeMap::new(),
            completed: BTreeSet::new(),
            shown: 0,
            rooms: (bug.is_none() && seed.is_multiple_of(3)).then_some(Draw::new(!seed)),
            seed,
        };
        // Logs of the first release have no rules.
        if !seed.is_multiple_of(4) {
            world.log(Action::Rules { rules: Catalog::RULES, slice: 16 }).expect("taken");
        }
        world.join();
        world.join();
        let made = MakeDurable {
            path: "/out".parse().expect("a path"),
            store: "s".to_owned(),
            parents: false,
            backlog_bytes_max: 1 << 20,
            adopt: false,
        };
        world.log(Action::Durable(Box::new(DurableAction::Make(made)))).expect("made");
        world.lead();
        world
    }

    fn log(&mut self, action: Action) -> Result<Reply, Refusal> {
        self.now = self.now + Millis(1);
        let brought = self.brought(&action);
        let applied = self.catalog.apply(&Command { at: self.now, action }, SECOND);
        if let (Some(content), Ok(Reply::Stat(stat))) = (brought, &applied.result) {
            self.written.entry(stat.object).or_insert(content);
        }
        self.remember();
        applied.result
    }

    /// Returns the bytes of the object that a change makes at once.
    fn brought(&self, action: &Action) -> Option<Content> {
        match action {
            Action::Create { request, .. } => request.inline.as_deref().map(Content::of_value),
            Action::Concat(concat) => {
                let mut whole = Content::default();
                for part in &concat.parts {
                    let stat = self.catalog.stat(part, self.now).ok()?;
                    whole.push(self.written.get(&stat.object)?);
                }
                Some(whole)
            }
            _ => None,
        }
    }

    /// Another manager acts from now on. Calls of the one before may still be under way.
    fn lead(&mut self) {
        let next = if self.has_late_reports { self.holder.0 % 2 + 1 } else { self.holder.0 + 1 };
        self.lead_as(Nonce(next));
    }

    /// A manager acts from now on that may have led before.
    fn lead_as(&mut self, next: Nonce) {
        let (holder, name, lease) = (self.holder, "m".to_owned(), Millis(0));
        let _ = self.log(Action::Manage { holder, name, lease });
        self.holder = next;
        let (holder, name, lease) = (self.holder, "m".to_owned(), Millis(60_000));
        self.log(Action::Manage { holder, name, lease }).expect("it leads");
        self.drain = DurableDrain::default();
    }

    fn work(&self) -> (Vec<DurableWork>, Vec<StoreNode>) {
        match self.catalog.durable_work() {
            Reply::Durable(reply) => match *reply {
                DurableReply::Work { mut directories, nodes, .. } => {
                    directories.iter_mut().for_each(|it| self.falsify(&mut it.changes));
                    (directories, nodes)
                }
                other => panic!("not the work: {other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    /// Notes the changes that wait, with the bytes that they bring.
    fn remember(&mut self) {
        for change in self.work().0.into_iter().flat_map(|it| it.changes) {
            let (number, kind) = (change.number, change.kind);
            if let Some((known, _)) = self.history.get_mut(&number) {
                // An object was deleted that had lost bytes, or the store has got something that a
                // removal is for.
                let is_skipped = kind == DurableChangeKind::Skip;
                let is_changed = match known.kind {
                    DurableChangeKind::Put { .. } => is_skipped,
                    DurableChangeKind::Skip => removes(kind),
                    DurableChangeKind::Remove | DurableChangeKind::RemoveTree => false,
                };
                if is_changed && known.key == change.key {
                    known.kind = kind;
                }
                continue;
            }
            let bytes = match kind {
                DurableChangeKind::Put { object, .. } => self.bytes_of(object),
                _ => Content::default(),
            };
            self.history.insert(number, (change, bytes));
        }
    }

    fn layout(&self, object: ObjectId, offset: u64, bytes: u64) -> Option<Layout> {
        match self.catalog.layout(object, offset, bytes, self.now) {
            Ok(Reply::Layout(layout)) => Some(layout),
            _ => None,
        }
    }

    fn bytes_of(&self, object: ObjectId) -> Content {
        self.written.get(&object).cloned().unwrap_or_default()
    }

    /// Returns the states that the directory has had, the empty one first.
    fn states(&self) -> Vec<State> {
        let mut state = State::new();
        let mut states = vec![state.clone()];
        for (number, (change, bytes)) in &self.history {
            match change.kind {
                DurableChangeKind::Put { .. } => {
                    state.insert(change.key.clone(), bytes.clone());
                }
                DurableChangeKind::Skip if self.completed.contains(number) => {
                    state.insert(change.key.clone(), bytes.clone());
                }
                DurableChangeKind::Skip => {}
                DurableChangeKind::Remove => {
                    state.remove(&change.key);
                }
                DurableChangeKind::RemoveTree => {
                    let below = format!("{}/", change.key);
                    state.retain(|name: &String, _| !name.starts_with(&below));
                }
            }
            states.push(state.clone());
        }
        states
    }

    /// Asserts that the store shows a state of the directory that is none of those before.
    fn check(&mut self) -> Result<(), String> {
        let states = self.states();
        let from = self.shown.min(states.len());
        match states[from..].iter().position(|state| *state == self.store.objects) {
            Some(at) => {
                self.shown = from + at;
                Ok(())
            }
            None => {
                let names: Vec<&String> = self.store.objects.keys().collect();
                Err(format!("seed {}: the store shows {names:?}, which never was", self.seed))
            }
        }
    }

    /// Executes an order, or answers a request.
    fn execute(&mut self, output: &DurableOutput) -> Result<DurableInput, String> {
        Ok(match output.clone() {
            DurableOutput::Layout { call, object, offset, bytes } => {
                let layout = self.layout(object, offset, bytes).map(Box::new);
                DurableInput::Layout { call, layout }
            }
            DurableOutput::Upload { call, node, order, .. } => {
                DurableInput::Uploaded { call, answer: self.upload(node, order) }
            }
            DurableOutput::Abort { call, uploads, .. } => {
                for (_, upload) in uploads {
                    if self.bug != Some(InjectedBug::EndsNothing) {
                        self.store.uploads.remove(&upload);
                    }
                }
                DurableInput::Aborted { call, is_done: true }
            }
            DurableOutput::Change { call, directory, changes, .. } => {
                DurableInput::Changed { call, answer: Some(self.order(directory, &changes)?) }
            }
            DurableOutput::Restore { call, node, loss, .. } => {
                DurableInput::Restored { call, answer: self.restore(node, &loss) }
            }
            DurableOutput::Adopt { call, step, .. } => {
                let answer = Ok(self.store.adopt(&step, Millis(self.draw.below(3) * 1000)));
                DurableInput::Adopted { call, answer }
            }
            DurableOutput::Report { call, record } => {
                let reported = self.report(self.holder, record);
                if let Err(Refusal::NotManager { .. }) = reported {
                    // Its term ends, and it leads in another one.
                    self.drain = DurableDrain::default();
                }
                DurableInput::Reported { call, is_done: reported.is_ok() }
            }
        })
    }

    /// Makes changes of the store, until one fails. Returns how many, and the failure.
    fn change_store(&mut self, changes: &[StoreChange]) -> Result<(u32, Option<Refusal>), String> {
        if self.bug == Some(InjectedBug::MakesNothing) {
            return Ok((changes.len() as u32, None));
        }
        let mut done = 0;
        for change in changes {
            let is_refused = self.bug == Some(InjectedBug::RefusesAName)
                && matches!(change, StoreChange::Complete { key, .. } if key == "a");
            let made = if is_refused { Err(failed()) } else { self.store.change(change) };
            if let Err(refusal) = made {
                return Ok((done, Some(refusal)));
            }
            if let StoreChange::Complete { upload, .. } = change {
                self.note_completion(upload);
            }
            self.check()?;
            done += 1;
        }
        Ok((done, None))
    }

    /// Notes that an upload was completed, unless the store has shown a later state.
    fn note_completion(&mut self, upload: &str) {
        let Some(number) = self.numbers.get(upload).copied() else { return };
        let before = self.history.range(..number).count();
        if self.shown <= before {
            self.completed.insert(number);
        }
    }

    fn report(&mut self, holder: Nonce, mut record: DurableRecord) -> Result<Reply, Refusal> {
        for it in &record.uploads {
            self.numbers.insert(it.upload.clone(), it.number);
        }
        match self.bug {
            Some(InjectedBug::RecordsNothing) => {
                record.uploads.clear();
                record.made.iter_mut().for_each(|it| it.upload = None);
            }
            Some(InjectedBug::ForgetsProgress) if self.draw.below(2) == 0 => record.made.clear(),
            Some(InjectedBug::IgnoresNames) => {
                let DurableReport { progress, missing } = &mut record.report;
                progress.gone.extend(missing.drain(..).map(|it| (it.object, it.why)));
            }
            Some(InjectedBug::ComparesNothing) => record = record.without_comparison(),
            _ => {}
        }
        let action = match record.into_request(holder) {
            DurableRequest::Progress { holder, progress } => {
                DurableAction::Progress { holder, progress }
            }
            DurableRequest::Report { holder, report } => DurableAction::Report { holder, report },
            DurableRequest::Record { holder, record } => DurableAction::Record { holder, record },
            other => panic!("{other:?}"),
        };
        self.log(Action::Durable(Box::new(action)))
    }

    fn no_answer(output: &DurableOutput) -> DurableInput {
        match output {
            DurableOutput::Layout { call, .. } => {
                DurableInput::Layout { call: *call, layout: None }
            }
            DurableOutput::Upload { call, .. } => {
                DurableInput::Uploaded { call: *call, answer: Err(lost()) }
            }
            DurableOutput::Abort { call, .. } => {
                DurableInput::Aborted { call: *call, is_done: false }
            }
            DurableOutput::Change { call, .. } => {
                DurableInput::Changed { call: *call, answer: None }
            }
            DurableOutput::Restore { call, .. } => {
                DurableInput::Restored { call: *call, answer: Err(lost()) }
            }
            DurableOutput::Adopt { call, .. } => {
                DurableInput::Adopted { call: *call, answer: Err(lost()) }
            }
            DurableOutput::Report { call, .. } => {
                DurableInput::Reported { call: *call, is_done: false }
            }
        }
    }

    /// Returns whether an order is for a node that has ended.
    fn is_for_nothing(&self, output: &DurableOutput) -> bool {
        match output {
            DurableOutput::Upload { node, .. }
            | DurableOutput::Abort { node, .. }
            | DurableOutput::Change { node, .. }
            | DurableOutput::Restore { node, .. }
            | DurableOutput::Adopt { node, .. } => !self.datanodes.is_running(*node),
            DurableOutput::Layout { .. } | DurableOutput::Report { .. } => false,
        }
    }

    /// Executes what the drain requests, each with a fault now and then. Some of it is under way
    /// while callers change objects and nodes end.
    fn drain_once(&mut self, with_faults: bool) -> Result<(), String> {
        loop {
            if with_faults && self.has_blocks && self.draw.below(12) == 0 {
                return Ok(());
            }
            let Some(output) = self.drain.poll_output() else { return Ok(()) };
            let is_report = matches!(output, DurableOutput::Report { .. });
            let is_change = matches!(output, DurableOutput::Change { .. });
            let answer = match if with_faults { self.draw.below(12) } else { 11 } {
                _ if self.is_for_nothing(&output) => None,
                0 => {
                    self.hold_up(&output);
                    None
                }
                1 => {
                    self.execute(&output)?;
                    None
                }
                2 | 3 if !matches!(output, DurableOutput::Layout { .. }) => {
                    self.delay(&output);
                    None
                }
                // The store fails in time, and does it later all the same.
                4 if let DurableOutput::Change { call, .. } = &output => {
                    self.delay(&output);
                    Some(DurableInput::Changed { call: *call, answer: Some((0, Some(failed()))) })
                }
                5 if self.has_late_reports && (is_report || is_change) => {
                    self.delay(&output);
                    None
                }
                // The answer is lost, and the transport sends the report again.
                5..=8 if is_report => {
                    self.execute(&output)?;
                    Some(self.execute(&output)?)
                }
                5..=8 if is_change && self.is_renaming => {
                    self.execute(&output)?;
                    None
                }
                _ => Some(self.execute(&output)?),
            };
            let answer = answer.unwrap_or_else(|| Self::no_answer(&output));
            self.give(&output, answer);
        }
    }

    /// Has a call take effect later. No datanode bounds how late a report is.
    fn delay(&mut self, output: &DurableOutput) {
        let is_report = matches!(output, DurableOutput::Report { .. });
        let is_too_late = self.bug == Some(InjectedBug::IsTooLate);
        let is_held_up = is_report && self.has_late_reports;
        let most = LATE_MAX.0 * if is_too_late || is_held_up { 3 } else { 1 };
        let at = self.now + Millis(self.draw.below(most));
        self.late.push((at, self.holder, output.clone()));
    }

    /// Executes what is late. A store goes on with what it was ordered, also when the datanode has
    /// ended. The namenode refuses the report of a manager that does not lead, and one that does
    /// not follow on what was reported since.
    fn be_late(&mut self) -> Result<(), String> {
        let now = self.now;
        let (begun, held_up): (Vec<_>, Vec<_>) =
            self.held_up.drain(..).partition(|(at, _)| *at <= now);
        self.held_up = held_up;
        for (_, output) in begun {
            if let DurableOutput::Change { directory, changes, .. } = &output
                && !self.is_for_nothing(&output)
            {
                self.order(*directory, changes)?;
            }
        }
        let (mut due, later): (Vec<_>, Vec<_>) =
            self.late.drain(..).partition(|(at, ..)| *at <= now);
        self.late = later;
        due.sort_by_key(|(at, ..)| *at);
        for (_, holder, output) in due {
            match output {
                DurableOutput::Report { record, .. } => {
                    let _ = self.report(holder, record);
                }
                // Its datanode has begun with it in time.
                output @ DurableOutput::Change { .. } => {
                    let is_filtered = self.has_late_reports;
                    let output =
                        if is_filtered { self.without_passed_removals(output) } else { output };
                    if let DurableOutput::Change { changes, .. } = &output {
                        self.change_store(changes)?;
                    }
                }
                output => {
                    self.execute(&output)?;
                }
            }
        }
        Ok(())
    }

    fn view(&mut self) {
        let (work, nodes) = self.work();
        let losses = self.catalog.durable_losses();
        self.drain.handle(self.now, DurableInput::View { work, nodes, losses });
    }

    /// Returns what is below the directory and sealed, as callers of the namenode see it.
    fn directory(&self) -> State {
        let sealed = self.listed().into_iter().filter(|(_, entry)| entry.is_sealed);
        sealed.map(|(name, entry)| (name, self.bytes_of(entry.object))).collect()
    }

    /// Returns the objects below the directory by their names in the store.
    fn listed(&self) -> BTreeMap<String, Entry> {
        let mut found = BTreeMap::new();
        let mut left: Vec<Path> = vec!["/out".parse().expect("a path")];
        while let Some(at) = left.pop() {
            let listed = self.catalog.list(&at, "", 100, false);
            let Ok(Reply::Entries { entries, .. }) = listed else { panic!("{listed:?}") };
            for entry in entries {
                let place = at.join(&entry.name).expect("a path");
                if entry.kind.is_container() {
                    left.push(place);
                } else {
                    found.insert(place.as_str()["/out/".len()..].to_owned(), entry);
                }
            }
        }
        found
    }

    fn run(&mut self) -> Result<(), String> {
        for _ in 0..40 {
            match self.draw.below(10) {
                0..=4 => self.act()?,
                5 if self.draw.below(if self.has_late_reports { 1 } else { 4 }) == 0 => {
                    self.lead();
                }
                _ => self.now = self.now + Millis(self.draw.below(8000)),
            }
            self.step(true)?;
        }
        self.settle()?;
        self.check_end()
    }

    /// Lets nodes, the store and the drain go on.
    fn step(&mut self, with_faults: bool) -> Result<(), String> {
        self.renew();
        self.be_late()?;
        if self.has_blocks {
            self.live_on(with_faults);
        }
        match with_faults {
            true => self.draw_room(),
            false => self.leave_room_in_order(),
        }
        self.drain.handle_deadline(self.now);
        self.view();
        self.drain_once(with_faults)?;
        if self.has_blocks { self.check_promises() } else { Ok(()) }
    }

    /// Without faults everything gets there, though the store has room for it only in order: later
    /// where uploads have to give way, because each of them does after five failures.
    fn settle(&mut self) -> Result<(), String> {
        self.abort_writes()?;
        let (least, most) = SETTLES_IN[usize::from(self.has_blocks)];
        for step in 0..most {
            if step >= least && self.is_settled() {
                break;
            }
            self.now = self.now + Millis(2000);
            if self.has_blocks {
                self.delete_lost()?;
            }
            self.step(false)?;
        }
        Ok(())
    }

    fn is_settled(&self) -> bool {
        let is_empty = self.work().0.iter().all(|it| it.changes.is_empty());
        let is_late = !self.late.is_empty() || !self.held_up.is_empty();
        let is_quiet = !is_late && self.datanodes.is_calm();
        is_empty && is_quiet && self.catalog.durable_losses().is_empty()
    }

    fn check_end(&mut self) -> Result<(), String> {
        let seed = self.seed;
        let (directories, _) = self.work();
        let left: Vec<_> = directories.iter().flat_map(|it| &it.changes).collect();
        if !left.is_empty() {
            return Err(format!("seed {seed}: {left:?} never got to the store"));
        }
        if let Some(loss) = self.catalog.durable_losses().first() {
            return Err(format!("seed {seed}: {} was not read back", loss.key));
        }
        if self.states().last() != Some(&self.store.objects) {
            return Err(format!("seed {seed}: the store lacks the last state"));
        }
        if self.bug == Some(InjectedBug::Miscounts) {
            self.catalog.miscount_safe(NodeId(1), 1);
        }
        let fsck = self.catalog.fsck();
        if !fsck.problems.is_empty() {
            return Err(format!("seed {seed}: {:?}", fsck.problems));
        }
        self.check_reads()
    }

    fn renew(&mut self) {
        let (holder, name, lease) = (self.holder, "m".to_owned(), Millis(60_000));
        self.log(Action::Manage { holder, name, lease }).expect("it leads");
        self.log(Action::Reap).expect("more is freed");
    }
}

/// Returns why a call that got no answer failed.
fn lost() -> DurableCallError {
    let (node, address) = (NodeId(1), "host-1:1".to_owned());
    let cause = Box::new(std::fmt::Error);
    DurableCallError::NoAnswer { node, address, cause }
}

/// Returns why a store failed.
fn failed() -> Refusal {
    Refusal::TierFailed { tier: "durable".to_owned(), why: "no answer".to_owned() }
}

fn run_seeds(seeds: std::ops::Range<u64>, world: impl Fn(u64) -> World) {
    for seed in seeds {
        world(seed).run().unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn store_shows_states_of_the_directory_in_their_order_and_the_last_one_in_the_end() {
    run_seeds(0..2000, |seed| World::new(seed, None));
}

#[test]
fn objects_with_blocks_get_to_the_store_and_back_while_nodes_end() {
    run_seeds(0..500, |seed| World::with_blocks(seed, None));
}

#[test]
#[ignore = "minutes: 100,000 seeds"]
fn store_shows_states_of_the_directory_in_their_order_for_many_seeds() {
    run_seeds(0..100_000, |seed| World::new(seed, None));
}

#[test]
#[ignore = "an hour or more: 100,000 seeds"]
fn objects_with_blocks_get_to_the_store_and_back_for_many_seeds() {
    run_seeds(0..100_000, |seed| World::with_blocks(seed, None));
}
