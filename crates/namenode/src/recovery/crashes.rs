//! Random changes, crashes and faults against a model: after each start, either the catalog is
//! that of all changes up to one of them, those that had to be kept included, or the start was
//! refused with a reason.

use std::path::{Path, PathBuf};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sanderling_protocol::message::Create;
use sanderling_protocol::{Instant, Nonce};

use super::*;
use crate::files::disk::{Disk, Faults, Image, piece};
use crate::injected_bug::set;
use crate::journal::{AppendError, SegmentStart, read_segment};
use crate::snapshot::{TakeError, take};

/// The version of a journal whose records have a length and a checksum.
const PLAIN: u32 = 3;
/// The version of a journal whose records are tied to their place.
const TIED: u32 = 4;

/// Rounds of one seed: several starts, snapshots and cuts. Chosen, not measured.
const STEPS: usize = 60;

/// Why a seed is a counterexample.
type Violation = String;

struct CrashRun {
    random: StdRng,
    disk: Disk,
    options: NamenodeOptions,
    version: u32,
    running: Option<Running>,
    /// All commands that the log may have.
    history: Vec<Command>,
    /// Those that were acknowledged.
    acknowledged: usize,
    /// Those that a crash of the machine must not take.
    synced: usize,
    /// Directories as they were at a kill, with the history of that time and what was acknowledged.
    images: Vec<(Image, Vec<Command>, usize)>,
    is_damaged: bool,
    /// How often anything was damaged, and whether the last time it was a snapshot.
    damages: u32,
    is_snapshot: bool,
    counts: Counts,
}

struct Running {
    directory: Arc<Directory>,
    recovered: Recovered,
    kept: Vec<u64>,
}

/// How often something happened.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    starts: u32,
    refused: u32,
    accepted: u32,
    skipped: u32,
    cuts: u32,
    snapshots: u32,
}

fn directory() -> &'static Path {
    Path::new("/catalog")
}

impl CrashRun {
    fn new(seed: u64, version: u32, sync: Sync) -> Self {
        let options = NamenodeOptions {
            directory: directory().to_owned(),
            sync,
            unsynced_age_max: std::time::Duration::from_secs(3600),
            ..NamenodeOptions::default()
        };
        Self {
            random: StdRng::seed_from_u64(seed),
            disk: Disk::default(),
            options,
            version,
            running: None,
            history: Vec::new(),
            acknowledged: 0,
            synced: 0,
            images: Vec::new(),
            is_damaged: false,
            damages: 0,
            is_snapshot: false,
            counts: Counts::default(),
        }
    }

    fn go(mut self) -> Result<Counts, Violation> {
        self.start()?;
        for _ in 0..STEPS {
            let step = self.random.random_range(0..100);
            match step {
                0..45 => self.change(),
                45..55 => self.sync(),
                55..60 => self.snapshot(),
                60..66 => self.disk.with(|image| image.write_back(&mut self.random)),
                66..72 => self.fault(),
                72..82 => self.restart(false)?,
                82..93 => self.restart(true)?,
                93..98 => {
                    self.damage();
                    self.restart(false)?;
                }
                _ => self.restore()?,
            }
            if self.running.is_none() {
                // The start was refused for good.
                break;
            }
        }
        Ok(self.counts)
    }

    fn command(&mut self) -> Command {
        let number = self.history.len() as u64;
        let at = Instant(self.history.last().map_or(1, |last| last.at.0) + number % 3);
        let action = match self.random.random_range(0..4) {
            0 => Action::Started { commands: number, cut_bytes: 0 },
            1 => Action::Tick,
            _ => {
                let path = format!("/{number}").parse().unwrap();
                let mut request = Create::new(path, Nonce(number));
                let mut value = vec![0; self.random.random_range(1..500)];
                if self.random.random_bool(0.7) {
                    self.random.fill(&mut value[..]);
                }
                request.inline = Some(value);
                Action::Create { request, placed: Vec::new() }
            }
        };
        Command { at, action }
    }

    fn change(&mut self) {
        let count = self.random.random_range(1..5);
        let before = self.history.len();
        for _ in 0..count {
            let command = self.command();
            self.history.push(command);
        }
        self.append(before);
    }

    /// Appends the end of the history, and forgets it where it was refused.
    fn append(&mut self, before: usize) {
        let Some(running) = &mut self.running else { return };
        match running.recovered.journal.append(&self.history[before..]) {
            Ok(()) => {
                for command in &self.history[before..] {
                    running.recovered.namenode.apply(command);
                }
                self.acknowledged = self.history.len();
                if self.options.sync == Sync::Always {
                    self.synced = self.acknowledged;
                }
            }
            Err(AppendError::Failed(_)) => {}
            Err(AppendError::Refused(_) | AppendError::Behind { .. }) => {
                self.history.truncate(before)
            }
        }
    }

    fn sync(&mut self) {
        let Some(running) = &mut self.running else { return };
        if running.recovered.journal.sync().is_ok() {
            self.synced = self.acknowledged;
        }
    }

    fn snapshot(&mut self) {
        let Some(running) = &mut self.running else { return };
        let journal = &mut running.recovered.journal;
        if journal.is_empty() || journal.rotate().is_err() {
            return;
        }
        self.synced = self.acknowledged;
        if self.random.random_bool(0.2) {
            // The process dies before the snapshot is there.
            return;
        }
        let image = running.recovered.namenode.catalog().image();
        match take(&running.directory, image, &running.kept) {
            Ok(kept) => {
                running.kept = kept;
                self.counts.snapshots += 1;
            }
            Err(TakeError::Unsynced { cause, .. }) => {
                running.recovered.journal.unsynced(Arc::new(cause));
            }
            Err(_) => {}
        }
    }

    fn fault(&mut self) {
        let soon = Some(self.random.random_range(0..4));
        let faults = match self.random.random_range(0..3) {
            0 => Faults { write: soon, ..Faults::default() },
            1 => Faults { sync: soon, ..Faults::default() },
            _ => Faults { name: soon, ..Faults::default() },
        };
        self.disk.with(|image| image.faults = faults);
    }

    fn restart(&mut self, is_crash: bool) -> Result<(), Violation> {
        self.running = None;
        if is_crash {
            self.disk.with(|image| image.crash(&mut self.random));
            self.acknowledged = self.synced;
        } else if !self.is_damaged && self.random.random_bool(0.2) {
            let image = self.disk.with(|image| image.clone());
            self.images.push((image, self.history.clone(), self.acknowledged));
        }
        if self.random.random_bool(0.9) {
            self.disk.with(|image| image.faults = Faults::default());
        }
        self.start_after(is_crash)
    }

    /// Takes the whole directory back to what it was. Nothing in it can show that.
    fn restore(&mut self) -> Result<(), Violation> {
        if self.images.is_empty() {
            return Ok(());
        }
        let place = self.random.random_range(0..self.images.len());
        let (image, history, acknowledged) = self.images[place].clone();
        self.history = history;
        self.images.truncate(place);
        self.running = None;
        self.disk.with(|now| *now = image);
        self.disk.with(|image| image.faults = Faults::default());
        (self.acknowledged, self.synced) = (acknowledged, acknowledged);
        self.start()
    }

    /// Damages one of the files: a bit, or bytes of another place.
    fn damage(&mut self) {
        self.disk.with(|image| image.faults = Faults::default());
        let files = self.disk.with(|image| image.list());
        let whose = |name: &str| name.contains("/journal-") || name.contains("/snapshot-");
        let files: Vec<(PathBuf, usize)> = files
            .into_iter()
            .filter(|(path, bytes)| whose(&path.to_string_lossy()) && *bytes > 0)
            .collect();
        let (path, bytes) = files[self.random.random_range(0..files.len())].clone();
        let (at, bit) = (self.random.random_range(0..bytes), self.random.random_range(0..8));
        self.is_damaged = true;
        self.damages += 1;
        self.is_snapshot = path.to_string_lossy().contains("/snapshot-");
        if self.random.random_bool(0.1) {
            return self.lose_segment();
        }
        if self.version == PLAIN || self.random.random_bool(0.6) {
            self.disk.with(|image| image.flip(&path, at, bit));
        } else if self.random.random_bool(0.5) {
            self.misplace();
        } else {
            let from = &files[self.random.random_range(0..files.len())].0;
            let other = self.disk.with(|image| image.contents(from));
            // Zeros over the last write are what a sector looks like that the disk never got.
            let piece: Vec<u8> =
                piece(&mut self.random, &other).iter().map(|byte| (*byte).max(1)).collect();
            self.disk.with(|image| image.misdirect(&path, at, &piece));
        }
    }

    /// Loses a segment before the last, and damages the newest snapshot so that it is needed.
    fn lose_segment(&mut self) {
        let directory = Directory::of(directory(), Arc::new(self.disk.clone())).unwrap();
        let segments = directory.list(FileKind::Journal).unwrap();
        let snapshot = directory.list(FileKind::Snapshot).unwrap().pop();
        let (Some(snapshot), Some(before)) = (snapshot, segments.len().checked_sub(2)) else {
            return;
        };
        self.is_snapshot = false;
        let lost = directory.file(FileKind::Journal, segments[before]);
        let path = directory.file(FileKind::Snapshot, snapshot);
        self.disk.with(|image| {
            image.lose(&lost);
            image.flip(&path, 30, 1);
        });
    }

    /// Puts one record of the last segment in the place of another that is as long.
    fn misplace(&mut self) {
        let directory = Directory::of(directory(), Arc::new(self.disk.clone())).unwrap();
        let Some(first) = directory.list(FileKind::Journal).unwrap().pop() else { return };
        let known = SegmentStart { first, cluster: None, floor: Instant(0) };
        let mut starts = Vec::new();
        let read = read_segment(&directory, known, |segment, _| starts.push(segment.length));
        starts.extend(read.map(|segment| segment.length));
        let place = |at: u64| usize::try_from(at).unwrap();
        let records: Vec<(usize, usize)> =
            starts.windows(2).map(|pair| (place(pair[0]), place(pair[1] - pair[0]))).collect();
        if records.len() < 2 {
            return;
        }
        let to = records[self.random.random_range(0..records.len())];
        let alike: Vec<_> = records.iter().filter(|it| it.1 == to.1 && it.0 != to.0).collect();
        if let Some(from) = alike.get(self.random.random_range(0..alike.len().max(1))) {
            self.is_snapshot = false;
            let path = directory.file(FileKind::Journal, first);
            let bytes = self.disk.with(|image| image.contents(&path));
            let record = &bytes[from.0..from.0 + from.1];
            self.disk.with(|image| image.misdirect(&path, to.0, record));
        }
    }

    fn start(&mut self) -> Result<(), Violation> {
        self.start_after(false)
    }

    fn start_after(&mut self, is_crash: bool) -> Result<(), Violation> {
        self.counts.starts += 1;
        let mut is_accepted = false;
        loop {
            match self.try_start() {
                Ok(running) => {
                    self.check(&running, is_accepted)?;
                    self.counts.skipped += u32::from(!running.recovered.found.is_empty());
                    self.running = Some(running);
                    self.options.accepted_loss = None;
                    self.is_damaged = false;
                    let command = self.command();
                    let before = self.history.len();
                    self.history.push(command);
                    self.append(before);
                    return Ok(());
                }
                Err(NamenodeStartError::Files { .. })
                    if self.disk.with(|image| !image.is_faultless()) =>
                {
                    self.disk.with(|image| image.faults = Faults::default());
                }
                Err(NamenodeStartError::Files { .. }) => {
                    self.disk.with(|image| image.faults = Faults::default());
                    if let Err(NamenodeStartError::Files { cause, .. }) = self.try_start() {
                        return Err(format!("does not start: {cause}"));
                    }
                }
                Err(error) if !self.may_be_refused(is_crash) => {
                    return Err(format!("refused without damage: {error}"));
                }
                Err(NamenodeStartError::DamagedJournal { name, .. }) if !is_accepted => {
                    self.counts.accepted += 1;
                    self.options.accepted_loss = Some(name);
                    is_accepted = true;
                }
                Err(NamenodeStartError::DamagedJournal { name, .. })
                    if self.options.accepted_loss.as_ref() != Some(&name) =>
                {
                    self.options.accepted_loss = Some(name);
                }
                Err(NamenodeStartError::DamagedJournal { name, .. }) => {
                    return Err(format!("accepted in vain: {name}"));
                }
                Err(_) => {
                    self.counts.refused += 1;
                    return Ok(());
                }
            }
        }
    }

    /// Plain records do not have what was synced, so a crash may look like damage.
    fn may_be_refused(&self, is_crash: bool) -> bool {
        // Two snapshots are kept: one of them may be damaged.
        let is_made_up_for = self.is_snapshot && self.damages == 1;
        (self.is_damaged && !is_made_up_for) || (self.version == PLAIN && is_crash)
    }

    fn try_start(&self) -> Result<Running, NamenodeStartError> {
        let directory = Arc::new(Directory::of(directory(), Arc::new(self.disk.clone()))?);
        let settings = Settings { version: self.version, ..Settings::from(&self.options) };
        let recovered = recover_with(&directory, &self.options, settings)?;
        let kept = recovered.snapshots.clone();
        Ok(Running { directory, recovered, kept })
    }

    /// Compares what was read with the history. What is not in it was never acknowledged, or its
    /// loss was reported.
    fn check(&mut self, running: &Running, is_accepted: bool) -> Result<(), Violation> {
        let catalog = running.recovered.namenode.catalog();
        let record = self.loss_record(running);
        let count = usize::try_from(catalog.index()).unwrap() - usize::from(record.is_some());
        if count > self.history.len() {
            return Err(format!("{count} commands of {}", self.history.len()));
        }
        if is_accepted && record.is_none() {
            return Err("an accepted loss has no record".to_owned());
        }
        // A plain record at the very end that claims to be longer looks torn.
        let doubt = usize::from(self.version == PLAIN && self.is_damaged);
        let floor = if is_accepted { 0 } else { self.acknowledged.saturating_sub(doubt) };
        if count < floor {
            return Err(format!("{count} commands where {floor} had to be kept"));
        }
        self.counts.cuts += u32::from(record.is_some());
        self.history.truncate(count);
        self.history.extend(record);
        let mut model = Namenode::new(self.options.core.clone(), catalog.cluster());
        for command in &self.history {
            model.apply(command);
        }
        if model.catalog() != catalog {
            return Err(format!("another catalog after {count} commands"));
        }
        // A start syncs what it has read.
        self.acknowledged = self.history.len();
        self.synced = self.acknowledged;
        Ok(())
    }

    /// Returns the record of a loss that this start has written.
    fn loss_record(&self, running: &Running) -> Option<Command> {
        let catalog = running.recovered.namenode.catalog();
        let last = catalog.index().checked_sub(1)?;
        let before = self.history.get(usize::try_from(last).unwrap());
        let known = SegmentStart { first: last, cluster: None, floor: Instant(0) };
        let mut first = None;
        read_segment(&running.directory, known, |_, command| {
            first.get_or_insert(command);
        })
        .ok()?;
        let is_new = before != first.as_ref();
        first.filter(|first| is_new && matches!(first.action, Action::JournalCut { .. }))
    }
}

fn all_runs(seeds: std::ops::Range<u64>) -> Result<Counts, Violation> {
    let mut all = Counts::default();
    for seed in seeds {
        for (version, sync) in
            [(TIED, Sync::Always), (TIED, Sync::Os), (PLAIN, Sync::Always), (PLAIN, Sync::Os)]
        {
            let run = CrashRun::new(seed, version, sync);
            let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.go()));
            let ran = ran.unwrap_or_else(|_| Err("panicked".to_owned()));
            let counts =
                ran.map_err(|why| format!("seed {seed}, journal {version}, {sync:?}: {why}"))?;
            all.starts += counts.starts;
            all.refused += counts.refused;
            all.accepted += counts.accepted;
            all.skipped += counts.skipped;
            all.cuts += counts.cuts;
            all.snapshots += counts.snapshots;
        }
    }
    Ok(all)
}

/// The seeds: more of them with `SANDERLING_JOURNAL_SEEDS=1000`, one that is to be seen again with
/// `SANDERLING_JOURNAL_SEED=7`.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|seed| seed.parse::<u64>().ok());
    let count = number("SANDERLING_JOURNAL_SEEDS").unwrap_or(count);
    number("SANDERLING_JOURNAL_SEED").map_or(0..count, |seed| seed..seed + 1)
}

#[test]
fn no_change_is_lost_in_silence() {
    let counts = all_runs(seeds(80)).unwrap_or_else(|why| panic!("{why}"));
    println!("{counts:?}");
    let Counts { starts, accepted, skipped, cuts, snapshots, .. } = counts;
    for count in [starts, accepted, skipped, cuts, snapshots] {
        assert!(count > 10, "{counts:?}");
    }
}

#[test]
fn each_injected_bug_is_found() {
    use crate::injected_bug::InjectedBug;
    for bug in [
        InjectedBug::NoChecksum,
        InjectedBug::NoNumber,
        InjectedBug::NoSync,
        InjectedBug::SyncIgnored,
        InjectedBug::AllIsTorn,
        InjectedBug::PrunedEarly,
        InjectedBug::GapIgnored,
        InjectedBug::LossUnrecorded,
    ] {
        set(Some(bug));
        let found = all_runs(0..80);
        set(None);
        println!("{bug:?}: {found:?}");
        assert!(found.is_err(), "{bug:?} is not found");
    }
}
