//! The catalog, the drain and a store, with calls that are late, lost or answered in vain.

use std::collections::BTreeMap;

use sanderling_protocol::message::{
    Attributes, Concat, Create, CreateMode, DurableChange, DurableChangeKind, DurableLoss,
    DurableReply, Entry, Layout, MakeDurable, Register,
};
use sanderling_protocol::node::TierCapacity;
use sanderling_protocol::order::{StoreChange, UploadPart};
use sanderling_protocol::{
    ClusterId, Instant, Millis, NodeId, Nonce, ObjectId, Path, Refusal, Reply, Tier,
};

use super::*;
use crate::catalog::{Action, Catalog, Command, DurableAction};

const SECOND: Millis = Millis(1000);

/// How long after it was sent a late order may still be executed: as a datanode bounds it.
const LATE_MAX: Millis = Millis(25_000);

/// A promise to the drain that its world breaks, to see that the checks find what comes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mistake {
    /// The namenode does not record uploads before they are completed.
    RecordsNothing,
    /// An upload is acknowledged as ended, and is not.
    EndsNothing,
    /// An order is executed later than a datanode may.
    IsTooLate,
    /// The namenode acknowledges that changes were made, and forgets it.
    ForgetsProgress,
}

/// Draws numbers from a seed.
struct Draw(u64);

impl Draw {
    /// Sebastiano Vigna's splitmix64.
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

/// What a store shows, and what it does not.
#[derive(Default)]
struct Store {
    objects: BTreeMap<String, Vec<u8>>,
    uploads: BTreeMap<String, (String, Vec<u8>)>,
    next: u64,
    /// The bytes that find room, unless it has room for everything.
    room: Option<u64>,
}

impl Store {
    fn change(&mut self, change: &StoreChange) -> Result<(), Refusal> {
        match change {
            StoreChange::Complete { key, upload, .. } => {
                let found = self.uploads.remove(upload).filter(|(of, _)| of == key);
                let why = || "there is no such upload".to_owned();
                let (_, bytes) = found.ok_or_else(|| Refusal::BadRequest { why: why() })?;
                self.objects.insert(key.clone(), bytes);
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

    /// Reads lost blocks, as a datanode does that has room for them.
    fn read(&self, loss: &DurableLoss) -> Result<Vec<Tier>, DurableCallError> {
        let found = self.objects.get(&loss.key).map(|bytes| bytes.len() as u64);
        if found == Some(loss.bytes) {
            return Ok(vec![Tier::Dram; loss.blocks.len()]);
        }
        let block = loss.blocks[0].block;
        Err(DurableCallError::Refused(Refusal::BlockDamaged { block }))
    }
}

mod adoption;
mod restoring;
mod room;
mod sharing;
mod wanted;

/// A cluster with one durable directory.
struct World {
    now: Instant,
    draw: Draw,
    catalog: Catalog,
    drain: DurableDrain,
    mistake: Option<Mistake>,
    holder: Nonce,
    store: Store,
    /// Orders that are executed later, without an answer.
    late: Vec<(Instant, DurableOutput)>,
    /// All changes so far, with the bytes that they give a name.
    history: BTreeMap<u64, (DurableChange, Vec<u8>)>,
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
    fn new(seed: u64, mistake: Option<Mistake>) -> Self {
        let mut world = Self {
            now: Instant(1_000_000),
            draw: Draw(seed),
            catalog: Catalog::new(ClusterId(7), SECOND),
            drain: DurableDrain::default(),
            mistake,
            holder: Nonce(0),
            store: Store::default(),
            late: Vec::new(),
            history: BTreeMap::new(),
            shown: 0,
            rooms: (mistake.is_none() && seed.is_multiple_of(3)).then_some(Draw(!seed)),
            seed,
        };
        // Logs of the first release have no rules.
        if !seed.is_multiple_of(4) {
            world.log(Action::Rules { rules: Catalog::RULES, slice: 16 }).expect("taken");
        }
        for number in 1..=2 {
            let name = format!("d{number}");
            let register = Register {
                cluster: None,
                nonce: Nonce(number),
                name: name.clone(),
                address: format!("{name}:1"),
                http_address: String::new(),
                host: name,
                tiers: vec![TierCapacity { tier: Tier::Dram, bytes: 1 << 20 }],
                notice_min: None,
                egress_bytes_per_second: None,
            };
            world.log(Action::Register(register)).expect("registered");
            let (node, stores) = (NodeId(number as u32), vec!["s".to_owned()]);
            world
                .log(Action::Durable(Box::new(DurableAction::ServeStores { node, stores })))
                .expect("reported");
        }
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
        let applied = self.catalog.apply(&Command { at: self.now, action }, SECOND);
        self.remember();
        applied.result
    }

    /// Another manager acts from now on. Calls of the one before may still be under way.
    fn lead(&mut self) {
        let (holder, name, lease) = (self.holder, "m".to_owned(), Millis(0));
        let _ = self.log(Action::Manage { holder, name, lease });
        self.holder = Nonce(self.holder.0 + 1);
        let (holder, name, lease) = (self.holder, "m".to_owned(), Millis(60_000));
        self.log(Action::Manage { holder, name, lease }).expect("it leads");
        self.drain = DurableDrain::default();
    }

    fn work(&self) -> (Vec<DurableWork>, Vec<StoreNode>) {
        match self.catalog.durable_work() {
            Reply::Durable(reply) => match *reply {
                DurableReply::Work { directories, nodes, .. } => (directories, nodes),
                other => panic!("not the work: {other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    /// Notes the changes that wait, with the bytes that they bring.
    fn remember(&mut self) {
        for change in self.work().0.into_iter().flat_map(|it| it.changes) {
            let bytes = match change.kind {
                DurableChangeKind::Put { object, .. } => self.bytes_of(object),
                _ => Vec::new(),
            };
            let known = self.history.get(&change.number);
            if known.is_none_or(|(known, _)| known.key == change.key) {
                self.history.entry(change.number).or_insert((change, bytes));
            }
        }
    }

    fn layout(&self, object: ObjectId) -> Option<Layout> {
        match self.catalog.layout(object, 0, u64::MAX, self.now) {
            Ok(Reply::Layout(layout)) => Some(layout),
            _ => None,
        }
    }

    fn bytes_of(&self, object: ObjectId) -> Vec<u8> {
        self.layout(object).and_then(|layout| layout.inline).unwrap_or_default()
    }

    /// Returns the states that the directory has had, the empty one first.
    fn states(&self) -> Vec<BTreeMap<String, Vec<u8>>> {
        let mut state = BTreeMap::new();
        let mut states = vec![state.clone()];
        for (change, bytes) in self.history.values() {
            match change.kind {
                DurableChangeKind::Put { .. } => {
                    state.insert(change.key.clone(), bytes.clone());
                }
                DurableChangeKind::Remove => {
                    state.remove(&change.key);
                }
                DurableChangeKind::RemoveTree => {
                    let below = format!("{}/", change.key);
                    state.retain(|name: &String, _| !name.starts_with(&below));
                }
                DurableChangeKind::Skip => {}
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

    /// Executes an order; returns its answer.
    fn execute(&mut self, output: &DurableOutput) -> Result<Option<DurableInput>, String> {
        Ok(Some(match output.clone() {
            DurableOutput::Layout { call, object, .. } => {
                DurableInput::Layout { call, layout: self.layout(object).map(Box::new) }
            }
            DurableOutput::Upload { call, order, .. } => {
                self.store.next += 1;
                let upload = format!("u{}", self.store.next);
                let inline = |part: &UploadPart| part.inline.clone();
                let bytes: Vec<u8> = order.parts.iter().flat_map(inline).collect();
                if !self.store.has_room(bytes.len()) {
                    let answer = Err(DurableCallError::Refused(room::full()));
                    return Ok(Some(DurableInput::Uploaded { call, answer }));
                }
                self.store.uploads.insert(upload.clone(), (order.key, bytes));
                let parts = order.parts.iter().map(|_| String::new()).collect();
                DurableInput::Uploaded { call, answer: Ok(UploadedParts { upload, parts }) }
            }
            DurableOutput::Abort { call, uploads, .. } => {
                for (_, upload) in uploads {
                    if self.mistake != Some(Mistake::EndsNothing) {
                        self.store.uploads.remove(&upload);
                    }
                }
                DurableInput::Aborted { call, is_done: true }
            }
            DurableOutput::Change { call, changes, .. } => {
                let (mut done, mut failure) = (0, None);
                for change in &changes {
                    if let Err(refusal) = self.store.change(change) {
                        failure = Some(refusal);
                        break;
                    }
                    self.check()?;
                    done += 1;
                }
                DurableInput::Changed { call, answer: Some((done, failure)) }
            }
            DurableOutput::Restore { call, loss, .. } => {
                DurableInput::Restored { call, answer: self.store.read(&loss) }
            }
            DurableOutput::Adopt { call, step, .. } => {
                let answer = Ok(self.store.adopt(&step, Millis(self.draw.below(3) * 1000)));
                DurableInput::Adopted { call, answer }
            }
            DurableOutput::Report { call, mut progress } => {
                match self.mistake {
                    Some(Mistake::RecordsNothing) => progress.uploads.clear(),
                    Some(Mistake::ForgetsProgress) if self.draw.below(2) == 0 => {
                        progress.done.clear();
                    }
                    _ => {}
                }
                let holder = self.holder;
                let is_done = self
                    .log(Action::Durable(Box::new(DurableAction::Progress { holder, progress })))
                    .is_ok();
                DurableInput::Reported { call, is_done }
            }
        }))
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

    /// Executes what the drain asks for, each with a fault now and then.
    fn drain_once(&mut self, with_faults: bool) -> Result<bool, String> {
        let mut is_busy = false;
        while let Some(output) = self.drain.poll_output() {
            is_busy = true;
            let is_order =
                !matches!(output, DurableOutput::Layout { .. } | DurableOutput::Report { .. });
            let answer = match if with_faults { self.draw.below(12) } else { 11 } {
                0 => None,
                1 => {
                    self.execute(&output)?;
                    None
                }
                2 | 3 if is_order => {
                    self.delay(&output);
                    None
                }
                // The store fails in time, and does it later all the same.
                4 if let DurableOutput::Change { call, .. } = &output => {
                    self.delay(&output);
                    let (tier, why) = ("durable".to_owned(), "no answer".to_owned());
                    let failure = Some(Refusal::TierFailed { tier, why });
                    Some(DurableInput::Changed { call: *call, answer: Some((0, failure)) })
                }
                _ => self.execute(&output)?,
            };
            let answer = answer.unwrap_or_else(|| Self::no_answer(&output));
            self.drain.handle(self.now, answer);
        }
        Ok(is_busy)
    }

    fn delay(&mut self, output: &DurableOutput) {
        let most = LATE_MAX.0 * if self.mistake == Some(Mistake::IsTooLate) { 3 } else { 1 };
        let at = self.now + Millis(self.draw.below(most));
        self.late.push((at, output.clone()));
    }

    fn be_late(&mut self) -> Result<(), String> {
        let now = self.now;
        let (due, later) = self.late.drain(..).partition(|(at, _)| *at <= now);
        self.late = later;
        let mut due: Vec<(Instant, DurableOutput)> = due;
        due.sort_by_key(|(at, _)| *at);
        for (_, order) in due {
            self.execute(&order)?;
        }
        Ok(())
    }

    fn view(&mut self) {
        let (work, nodes) = self.work();
        let losses = self.catalog.durable_losses();
        self.drain.handle(self.now, DurableInput::View { work, nodes, losses });
    }

    /// Changes something below the directory.
    fn change(&mut self) -> Result<(), String> {
        let name = ["a", "b", "d/a", "d/b", "e/c"][self.draw.below(5) as usize];
        let other = ["a", "b", "f", "d/c"][self.draw.below(4) as usize];
        let action = match self.draw.below(9) {
            8 => Action::Concat(Concat {
                parts: vec![path(name)],
                to: path(other),
                condition: None,
                parents: false,
                is_listed: true,
                ttl: None,
                attributes: Attributes::none(),
                writer: Nonce(self.draw.below(1 << 50)),
            }),
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
        let before = self.directory();
        let known = self.states().len();
        // Refused if the name is missing, or waits for the store.
        let _ = self.log(action);
        let (after, states) = (self.directory(), self.states());
        if states.last() != Some(&after) {
            return Err(format!("seed {}: the queue does not lead to what there is", self.seed));
        }
        // On the way no name is missing that was there before and is there afterwards, and of what
        // is moved or joined the old or the new names are there.
        let has_all = |state: &BTreeMap<String, Vec<u8>>, of: &BTreeMap<String, Vec<u8>>| {
            of.keys().all(|name| state.contains_key(name))
        };
        let is_sound = |state: &_| has_all(state, &before) || has_all(state, &after);
        match states.get(known..).unwrap_or_default().iter().all(is_sound) {
            true => Ok(()),
            false => Err(format!("seed {}: a change takes names away too early", self.seed)),
        }
    }

    /// Returns what is below the directory, as callers of the namenode see it.
    fn directory(&self) -> BTreeMap<String, Vec<u8>> {
        let objects = self.listed().into_iter();
        objects.map(|(name, entry)| (name, self.bytes_of(entry.object))).collect()
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
                0..=4 => self.change()?,
                5 if self.draw.below(4) == 0 => self.lead(),
                _ => self.now = self.now + Millis(self.draw.below(8000)),
            }
            self.renew();
            self.be_late()?;
            self.draw_room();
            self.drain.handle_deadline(self.now);
            self.view();
            self.drain_once(true)?;
        }
        // Without faults everything gets there, though the store has room for it only in order:
        // later where uploads have to give way, because each of them does after five failures.
        for step in 0..400 {
            if step >= 200 && self.work().0.iter().all(|it| it.changes.is_empty()) {
                break;
            }
            self.now = self.now + Millis(2000);
            self.renew();
            self.be_late()?;
            self.leave_room_in_order();
            self.drain.handle_deadline(self.now);
            self.view();
            self.drain_once(false)?;
        }
        let (directories, _) = self.work();
        let left: Vec<_> = directories.iter().flat_map(|it| &it.changes).collect();
        if !left.is_empty() {
            return Err(format!("seed {}: {left:?} never got to the store", self.seed));
        }
        let states = self.states();
        if states.last() != Some(&self.store.objects) {
            return Err(format!("seed {}: the store lacks the last state", self.seed));
        }
        let fsck = self.catalog.fsck();
        if !fsck.problems.is_empty() {
            return Err(format!("seed {}: {:?}", self.seed, fsck.problems));
        }
        Ok(())
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

fn run_seeds(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        World::new(seed, None).run().unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn store_shows_states_of_the_directory_in_their_order_and_the_last_one_in_the_end() {
    run_seeds(0..2000);
}

#[test]
#[ignore = "minutes: 100,000 seeds"]
fn store_shows_states_of_the_directory_in_their_order_for_many_seeds() {
    run_seeds(0..100_000);
}

#[test]
fn promises_that_its_world_breaks_are_found() {
    for mistake in [
        Mistake::RecordsNothing,
        Mistake::EndsNothing,
        Mistake::IsTooLate,
        Mistake::ForgetsProgress,
    ] {
        let found = (0..5000).find(|seed| World::new(*seed, Some(mistake)).run().is_err());
        assert!(found.is_some(), "{mistake:?} is not found");
    }
}
