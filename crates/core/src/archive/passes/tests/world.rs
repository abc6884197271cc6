//! A namenode with a directory that grows, rotates and forgets; a store that fails, loses answers
//! and executes requests late; another program that removes objects; and a group whose leader
//! changes. The namenode may die after any step.

use std::collections::BTreeMap;

use super::*;
use crate::archive::tests::{Directory, Store};
use crate::placement::Draw;

/// Worlds of each kind.
const SEEDS: u64 = 40;

/// Steps of a world before it calms down.
const STEPS: usize = 600;

/// How long a calm world goes on: beyond two comparisons.
const CALM: Millis = Millis(130_000);

/// What the shell does wrong, to see that the checks find what comes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InjectedBug {
    /// It takes manifests for stored whose requests have failed.
    AssumesStored,
    /// It finds everything there when it compares.
    ComparesNothing,
    /// It takes pieces for stored whose requests have failed.
    AssumesPieces,
}

/// What is simulated beside the store's failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Setting {
    Alone,
    InGroup,
    /// Another program removes objects.
    Cleaned,
}

/// What the store has of one generation.
#[derive(Default)]
struct Area {
    has_mark: bool,
    store: Store,
    manifests: BTreeMap<u64, ArchiveManifest>,
}

impl Area {
    fn names(&self, passes: &ArchivePasses) -> BTreeSet<String> {
        let parts = passes.archive.objects().filter(|object| self.store.has(*object));
        let manifests = self.manifests.keys().map(|number| manifest_name(*number));
        parts.map(|object| object.to_string()).chain(manifests).collect()
    }

    /// Reads back how many commands the newest manifest has.
    fn recover(&mut self) -> Result<u64, String> {
        let Some(manifest) = self.manifests.values().next_back() else { return Ok(0) };
        let pieces = manifest.segments.iter().flat_map(|segment| {
            segment.pieces.iter().map(|piece| ArchiveObject::Piece(segment.first, *piece))
        });
        let snapshots = manifest.snapshots.iter().copied().map(ArchiveObject::Snapshot);
        if let Some(gone) = snapshots.chain(pieces).find(|object| !self.store.has(*object)) {
            return Err(format!("{gone} is named and not there"));
        }
        self.store.manifest = Some(manifest.clone());
        Ok(self.store.recover())
    }
}

struct World {
    setting: Setting,
    bug: Option<InjectedBug>,
    draw: Draw,
    now: Instant,
    directory: Directory,
    /// How many commands there were at each time.
    written: Vec<(Instant, u64)>,
    areas: BTreeMap<u64, Area>,
    passes: ArchivePasses,
    /// The snapshot whose upload is under way, and for how many looks yet.
    upload: Option<(u64, usize)>,
    /// Requests for manifests that failed and may be executed later: generation and number.
    late: Vec<(u64, u64, ArchiveManifest)>,
    /// Of a hundred requests so many are not executed, and as many have no answer.
    failing: usize,
    /// Objects were removed, and may not be stored again yet.
    is_damaged: bool,
    recovered: u64,
}

impl World {
    fn new(setting: Setting, seed: u64, bug: Option<InjectedBug>) -> Self {
        let mut passes = ArchivePasses::new(CLUSTER, START);
        let mut areas = BTreeMap::new();
        if setting != Setting::InGroup {
            areas.insert(1, Area { has_mark: true, ..Area::default() });
            passes.claimed(START, of(1), Millis(0));
        }
        passes.serve(START);
        Self {
            setting,
            bug,
            draw: Draw::new(seed),
            now: START,
            directory: Directory::new(),
            written: Vec::new(),
            areas,
            passes,
            upload: None,
            late: Vec::new(),
            failing: [0, 5, 30][usize::try_from(seed % 3).unwrap()],
            is_damaged: false,
            recovered: 0,
        }
    }

    /// Returns whether one of so many cases is drawn.
    fn one_of(&mut self, cases: usize) -> bool {
        self.draw.below(cases) == 0
    }

    /// Returns whether a request is executed, and whether its answer comes.
    fn outcome(&mut self) -> (bool, bool) {
        match self.draw.below(100) {
            drawn if drawn < self.failing => (false, false),
            drawn if drawn < 2 * self.failing => (true, false),
            _ => (true, true),
        }
    }

    /// Lets the directory, the late requests and the other program go on.
    fn disturb(&mut self) {
        if self.one_of(3) {
            let bytes = 1 + self.draw.below(8) as u64;
            self.directory.append(bytes);
        }
        if self.one_of(40) {
            self.directory.rotate();
        }
        if self.one_of(60) {
            self.directory.take_snapshot();
        }
        self.written.push((self.now, self.directory.written));
        if self.one_of(10)
            && let Some((generation, number, manifest)) = self.late.pop()
            && let Some(area) = self.areas.get_mut(&generation)
        {
            area.manifests.insert(number, manifest);
        }
        if self.setting == Setting::Cleaned && self.one_of(100) {
            self.clean();
        }
    }

    /// Removes an object, or all of them.
    fn clean(&mut self) {
        self.is_damaged = true;
        let drawn = self.draw.below(8);
        let Some(mut entry) = self.areas.last_entry() else { return };
        let area = entry.get_mut();
        let parts: Vec<ArchiveObject> =
            self.passes.archive.objects().filter(|object| area.store.has(*object)).collect();
        match drawn {
            0 => *area = Area::default(),
            1 | 2 => drop(area.manifests.pop_last()),
            _ if parts.is_empty() => {}
            _ => area.store.remove(parts[drawn % parts.len()]),
        }
    }

    fn role(&mut self) -> ArchiveRole {
        match self.setting {
            Setting::Alone | Setting::Cleaned => ArchiveRole::Alone,
            Setting::InGroup => match self.draw.below(40) {
                0 | 1 => ArchiveRole::Follows,
                2 => ArchiveRole::Waits,
                _ => ArchiveRole::Leads,
            },
        }
    }

    /// Does the namenode's next step, and checks what a recovery would find.
    fn step(&mut self) -> Result<(), String> {
        // Never in the same instant as the step before: what is written after a pass has begun is
        // later than it.
        self.now = self.now + Millis(1 + self.draw.below(30) as u64);
        self.disturb();
        self.perform();
        if self.upload.map(|(index, _)| index) != self.passes.uploading() {
            self.upload = None;
        }
        self.check()
    }

    fn fail(&mut self) {
        self.passes.failed(self.now);
    }

    fn perform(&mut self) {
        let now = self.now;
        let number = self.passes.generation().map_or(0, |it| it.number);
        let (is_executed, is_answered) = self.outcome();
        match self.passes.step().clone() {
            ArchiveStep::Wait(at) => {
                self.now = now.max(at);
                let role = self.role();
                self.passes.wake(self.now, role);
            }
            ArchiveStep::ReadDirectory => self.passes.looked(&self.directory.files()),
            ArchiveStep::Upload { index, waits } => {
                self.look_at_upload(index, waits, is_executed, is_answered);
            }
            ArchiveStep::Describe => {
                self.passes.describe(now, now.0 / 1000, GroupGeneration(0), true);
            }
            ArchiveStep::StorePiece(first, piece) => {
                if !self.directory.segments.contains_key(&first) {
                    return self.passes.piece_stored(false);
                }
                let area = self.areas.entry(number).or_default();
                if is_executed {
                    area.store.put(&self.directory, first, piece);
                }
                let assumes = self.bug == Some(InjectedBug::AssumesPieces);
                match is_answered || assumes {
                    true => self.passes.piece_stored(true),
                    false => self.fail(),
                }
            }
            ArchiveStep::StoreManifest { number: own, manifest } => {
                let area = self.areas.entry(number).or_default();
                if is_executed {
                    area.manifests.insert(own, *manifest);
                } else if self.draw.below(2) == 0 {
                    self.late.push((number, own, *manifest));
                }
                let assumes = self.bug == Some(InjectedBug::AssumesStored);
                match is_answered || assumes {
                    true => self.passes.manifest_stored(now),
                    false => self.fail(),
                }
            }
            step => self.look(&step, number, is_executed, is_answered),
        }
    }

    /// Does the steps that find or remove something.
    fn look(&mut self, step: &ArchiveStep, number: u64, is_executed: bool, is_answered: bool) {
        let now = self.now;
        match step {
            ArchiveStep::Remove(object) => {
                let area = self.areas.entry(number).or_default();
                match object {
                    SurplusObject::Manifest(own) if is_executed => {
                        area.manifests.remove(own);
                    }
                    SurplusObject::Part(part) if is_executed && area.store.has(*part) => {
                        area.store.remove(*part);
                    }
                    _ => {}
                }
                self.passes.removed(now, is_answered);
            }
            ArchiveStep::RemoveOlder(own) => {
                if is_executed {
                    let older = self.areas.range(..own.number);
                    let kept = older.rev().find(|(_, area)| !area.manifests.is_empty());
                    let kept = kept.map_or(own.number, |(number, _)| *number);
                    self.areas.retain(|number, _| *number >= kept);
                }
                self.passes.removed(now, is_answered);
            }
            _ if !is_answered => self.fail(),
            ArchiveStep::Claim => {
                let next = self.areas.keys().next_back().map_or(1, |newest| newest + 1);
                self.areas.insert(next, Area { has_mark: true, ..Area::default() });
                self.passes.claimed(now, of(next), Millis(0));
            }
            ArchiveStep::Check(own) => {
                if self.setting == Setting::InGroup && self.one_of(60) {
                    // Another member has led for a moment.
                    let next = self.areas.keys().next_back().map_or(1, |newest| newest + 1);
                    self.areas.insert(next, Area { has_mark: true, ..Area::default() });
                }
                let is_newest = self.areas.range(own.number + 1..).next().is_none();
                let area = self.areas.entry(own.number).or_default();
                let found = match (is_newest, replace(&mut area.has_mark, true)) {
                    (false, _) => GenerationState::Superseded,
                    (true, false) => GenerationState::Emptied,
                    (true, true) => GenerationState::Newest,
                };
                self.passes.checked(now, found, self.setting != Setting::InGroup);
            }
            ArchiveStep::ListNames(own) => {
                let area = self.areas.entry(own.number).or_default();
                let names = match self.bug {
                    Some(InjectedBug::ComparesNothing) => stored_names(&self.passes),
                    _ => area.names(&self.passes),
                };
                self.passes.compared(now, &names);
            }
            step => panic!("{step:?} is no look"),
        }
    }

    fn look_at_upload(&mut self, index: u64, waits: bool, is_executed: bool, is_answered: bool) {
        let drawn = self.draw.below(4);
        let begun = self.upload.filter(|(it, _)| *it == index);
        let left = begun.map_or(drawn, |(_, left)| left);
        if !waits && left > 0 {
            self.upload = Some((index, left - 1));
            return self.passes.upload_seen(UploadState::UnderWay);
        }
        self.upload = None;
        let is_there = self.directory.snapshots.contains(&index);
        let number = self.passes.generation().map_or(0, |it| it.number);
        let store = &mut self.areas.entry(number).or_default().store;
        if is_there && is_executed && !store.snapshots.contains(&index) {
            store.snapshots.push(index);
        }
        match is_there && is_answered {
            true => self.passes.upload_seen(UploadState::Stored),
            false => self.fail(),
        }
    }

    /// Returns what a recovery would find: the newest generation that has a manifest.
    fn recover(&mut self) -> Result<u64, String> {
        let mut newest = self.areas.values_mut().rev();
        newest.find(|area| !area.manifests.is_empty()).map_or(Ok(0), Area::recover)
    }

    /// Checks that nothing goes back, and that the status promises no more than is there.
    fn check(&mut self) -> Result<(), String> {
        if self.is_damaged {
            return Ok(());
        }
        let (before, recovered) = (self.recovered, self.recover()?);
        if recovered < before {
            return Err(format!("{before} changes became {recovered}"));
        }
        self.recovered = recovered;
        // In a group another leader has stored what was written before this one led.
        let Some(status) = self.passes.status().filter(|_| self.setting == Setting::Alone) else {
            return Ok(());
        };
        let whole_at = self.now - status.lag(self.now);
        let mut written = self.written.iter().rev();
        let promised = written.find(|(at, _)| *at <= whole_at).map_or(0, |(_, written)| *written);
        match recovered < promised {
            true => Err(format!("{promised} changes are promised, and {recovered} there")),
            false => Ok(()),
        }
    }

    /// Goes on without failures and changes until everything must be stored.
    fn settle(&mut self) -> Result<(), String> {
        (self.failing, self.late) = (0, Vec::new());
        let until = self.now + CALM;
        // No other member leads any more.
        self.setting = Setting::Alone;
        while self.now < until {
            self.now = self.now + Millis(1);
            self.perform();
            if self.upload.map(|(index, _)| index) != self.passes.uploading() {
                self.upload = None;
            }
        }
        self.is_damaged = false;
        self.check()?;
        let status = self.passes.status().ok_or("it writes no archive")?;
        let (recovered, written) = (self.recovered, self.directory.written);
        if status.is_failing || status.lag(self.now) > Millis(1000) || recovered != written {
            return Err(format!("{recovered} of {written} changes are there: {status:?}"));
        }
        Ok(())
    }

    /// Stops the namenode while the store fails at times, and checks what it has left.
    fn stop(&mut self) -> Result<(), String> {
        self.directory.append(3);
        self.failing = 5;
        self.passes.close(self.now, EndedWriter::Last);
        for _ in 0..10_000 {
            if *self.passes.step() == ArchiveStep::Ended {
                break;
            }
            self.now = self.now + Millis(1);
            self.perform();
        }
        let (recovered, written) = (self.recover()?, self.directory.written);
        match (self.passes.closed(), recovered == written) {
            (ArchiveClose::Closed, true) => Ok(()),
            (closed, _) => Err(format!("{closed:?}: {recovered} of {written} changes are there")),
        }
    }

    fn run(&mut self) -> Result<(), String> {
        for _ in 0..STEPS {
            self.step()?;
        }
        self.settle()?;
        self.stop()
    }
}

/// Returns what is wrong in the first world of each setting that fails.
fn problem(bug: Option<InjectedBug>) -> Option<String> {
    let settings = [Setting::Alone, Setting::InGroup, Setting::Cleaned];
    let seeds = |setting| (0..SEEDS).map(move |seed| (setting, seed));
    settings.into_iter().flat_map(seeds).find_map(|(setting, seed)| {
        let problem = World::new(setting, seed, bug).run().err()?;
        Some(format!("{setting:?}, seed {seed}: {problem}"))
    })
}

#[test]
fn archive_never_goes_back_and_has_everything_in_the_end_in_every_world() {
    assert_eq!(problem(None), None);
}

#[test]
fn worlds_find_injected_bugs() {
    for bug in
        [InjectedBug::AssumesStored, InjectedBug::ComparesNothing, InjectedBug::AssumesPieces]
    {
        assert!(problem(Some(bug)).is_some(), "{bug:?} is not found");
    }
}
