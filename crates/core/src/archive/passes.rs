//! When a namenode writes its archive: which step follows which, what is tried again and when, and
//! when the archive is left or closed.
//!
//! Every half second the namenode begins a pass over what its directory has gained. The shell does
//! one [`ArchiveStep`] at a time, at the store and in the directory, and hands the outcome to the
//! function that the step names; what fails goes to [`ArchivePasses::failed`]. Nothing is stored
//! before the namenode has found that it may: see [`GenerationState`]. A manifest follows all that
//! it names, and removals follow the manifest that no longer names their objects.

use std::collections::{BTreeSet, VecDeque};
use std::mem::replace;

use sanderling_protocol::{ClusterId, Instant, Millis};

use super::generation::{ArchiveGeneration, GenerationState};
use super::{Archive, ArchiveManifest, ArchiveObject, DirectoryFiles, JournalPiece, manifest_name};
use crate::group_generation::GroupGeneration;

/// Time between two passes: half of the second that the archive may be behind.
const POLL_INTERVAL: Millis = Millis(500);

/// Time between two comparisons of what the archive must have with what is there. It lists all
/// names of the generation, one request to a bucket for each thousand. What another program removed
/// is noticed after this long at most. Chosen, not measured.
const COMPARE_INTERVAL: Millis = Millis(60_000);

/// Pause after older generations could not be removed: as they cost nothing but room, as long as
/// that between two comparisons ([`COMPARE_INTERVAL`]), which cost as many requests.
const OLDER_PAUSE: Millis = COMPARE_INTERVAL;

/// How long the last changes may take to be stored when the namenode stops, in milliseconds: a
/// notice may leave 15 s. The shell gives up then.
pub const CLOSE_TIMEOUT: Millis = Millis(10_000);

/// Pause before the last changes are tried again: that between two passes ([`POLL_INTERVAL`]), so
/// that 20 attempts fit into [`CLOSE_TIMEOUT`].
const CLOSE_PAUSE: Millis = POLL_INTERVAL;

/// What a namenode's shell does next for its archive. Only one step is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArchiveStep {
    /// Wait until then, or for the namenode to stop: [`ArchivePasses::wake`].
    Wait(Instant),
    /// Begin a generation with an [`ArchiveClaim`](super::ArchiveClaim):
    /// [`ArchivePasses::claimed`], or [`ArchivePasses::refused`] if the group was begun anew.
    Claim,
    /// Find the state of this generation with a [`GenerationCheck`](super::GenerationCheck):
    /// [`ArchivePasses::checked`].
    Check(ArchiveGeneration),
    /// List the names of this generation's objects: [`ArchivePasses::compared`].
    ListNames(ArchiveGeneration),
    /// List the namenode's directory: [`ArchivePasses::looked`].
    ReadDirectory,
    /// Store this piece of the segment with this first command: [`ArchivePasses::piece_stored`].
    StorePiece(u64, JournalPiece),
    /// Begin to upload a snapshot if its upload is not under way, and look whether it has ended:
    /// [`ArchivePasses::upload_seen`]. Other uploads are given up.
    Upload {
        /// The snapshot, by the number of commands before it.
        index: u64,
        /// Wait for the end of the upload.
        waits: bool,
    },
    /// Hand over what a manifest contains besides the names of objects:
    /// [`ArchivePasses::describe`].
    Describe,
    /// Store this manifest: [`ArchivePasses::manifest_stored`].
    StoreManifest {
        /// Its number. It is used once, whatever comes of the request.
        number: u64,
        /// What it describes.
        manifest: Box<ArchiveManifest>,
    },
    /// Remove an object that no manifest names: [`ArchivePasses::removed`], also if that failed.
    Remove(SurplusObject),
    /// Remove what [`removals`](super::removals) names of the generations before this one:
    /// [`ArchivePasses::removed`], also if that failed.
    RemoveOlder(ArchiveGeneration),
    /// Do nothing any more: a later namenode has the archive, or the last pass has ended.
    Ended,
}

/// An object of the archive that is no longer needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SurplusObject {
    /// The manifest of that number: there is a later one.
    Manifest(u64),
    /// Part of the catalog that a later part contains.
    Part(ArchiveObject),
}

/// The part that a namenode has in its group, as far as it concerns the archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArchiveRole {
    /// There is no group: it writes the archive.
    Alone,
    /// It leads, and no other member can: it writes the archive.
    Leads,
    /// It leads, and another member may by now: it stores nothing, and keeps its generation.
    Waits,
    /// It does not lead: it stores nothing, and leaves its generation.
    Follows,
}

/// What a namenode was when it stopped to write its journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndedWriter {
    /// The only namenode, or the only voter: no other one goes on.
    Last,
    /// The leader of a group. Another one will lead, and has every change.
    Leader,
    /// Another member led, or none.
    Follower,
    /// Its end was not noted.
    Unknown,
}

/// How far an upload of a snapshot is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UploadState {
    /// It goes on.
    UnderWay,
    /// The snapshot is stored.
    Stored,
}

/// What another program has removed from the archive: the name of one such object, for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArchiveLoss {
    /// The newest manifest: it is stored again.
    Manifest(String),
    /// Part of the catalog: everything is stored again.
    Part(String),
}

/// Whether a failure of the store is to be logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArchiveFailure {
    /// The first since the archive took changes.
    First,
    /// The first while the last changes are stored. They are tried again.
    FirstOfClose,
    /// A further one, or one that has no effect.
    Repeated,
}

/// How the archive of a namenode that has stopped was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArchiveClose {
    /// Another member goes on and has everything, or it was superseded before.
    Left,
    /// It is closed: it has every change.
    Closed,
    /// It has all of the journal, which was not written to its end: another change may follow.
    Unwritten,
    /// A later namenode has it.
    Superseded,
    /// It has no whole copy of the catalog: a snapshot or a segment of the journal is missing.
    Incomplete,
    /// The last pass has not ended.
    UnderWay,
}

/// How the archive stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchiveStatus {
    complete_at: Instant,
    /// By how much it was behind then.
    behind: Millis,
    /// The last attempt to store something failed.
    pub is_failing: bool,
}

impl ArchiveStatus {
    /// Returns the age of the newest state that the archive has whole, rounded up to milliseconds.
    #[must_use]
    pub const fn lag(&self, now: Instant) -> Millis {
        Millis(self.complete_at.until(now).0.saturating_add(self.behind.0))
    }
}

/// How much a pass stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PassKind {
    /// What is due.
    Usual,
    /// All of the journal; another namenode goes on.
    Final,
    /// All that is missing, and nothing comes after.
    Closing,
}

/// The newest manifest of a generation.
#[derive(Debug)]
struct NewestManifest {
    number: u64,
    manifest: ArchiveManifest,
    /// Another program has removed it.
    is_gone: bool,
}

/// Decides when a namenode stores what in its archive. All times are of one clock of the shell,
/// which must not go back.
#[derive(Debug)]
pub struct ArchivePasses {
    archive: Archive,
    /// What it has begun; `None` while another member of the group leads.
    generation: Option<ArchiveGeneration>,
    kind: PassKind,
    step: ArchiveStep,
    /// When the pass under way began, or the last one.
    looked_at: Instant,
    /// A step of that pass has failed.
    has_failed: bool,
    /// The snapshot whose upload is under way.
    upload: Option<u64>,
    newest: Option<NewestManifest>,
    /// Manifests that were begun to be stored.
    manifests: u64,
    /// What this pass removes.
    surplus: VecDeque<SurplusObject>,
    compared_at: Instant,
    /// When the older generations are to be removed; `None` if they are.
    older_at: Option<Instant>,
    is_removal_failing: bool,
    /// The same of the objects of older generations, which are tried less often.
    is_older_failing: bool,
    /// When another member led, or none; at the start for a namenode alone.
    rested_at: Instant,
    /// By how much the archive was behind when it was claimed.
    behind: Millis,
    status: Option<ArchiveStatus>,
    is_superseded: bool,
    close: ArchiveClose,
    has_close_failed: bool,
    is_journal_whole: bool,
}

impl ArchivePasses {
    /// Returns the state of a namenode that has stored nothing yet, and has no generation.
    #[must_use]
    pub fn new(cluster: ClusterId, now: Instant) -> Self {
        Self {
            archive: Archive::new(cluster),
            generation: None,
            kind: PassKind::Usual,
            step: ArchiveStep::Wait(now),
            looked_at: now,
            has_failed: false,
            upload: None,
            newest: None,
            manifests: 0,
            surplus: VecDeque::new(),
            compared_at: now,
            older_at: None,
            is_removal_failing: false,
            is_older_failing: false,
            rested_at: now,
            behind: Millis(0),
            status: None,
            is_superseded: false,
            close: ArchiveClose::Left,
            has_close_failed: false,
            is_journal_whole: true,
        }
    }

    /// Returns the id of the cluster that is archived.
    #[must_use]
    pub const fn cluster(&self) -> ClusterId {
        self.archive.cluster()
    }

    /// Returns the generation that this namenode has begun, and not left.
    #[must_use]
    pub const fn generation(&self) -> Option<ArchiveGeneration> {
        self.generation
    }

    /// Returns what to do next. It is the same until the outcome was handed over.
    #[must_use]
    pub const fn step(&self) -> &ArchiveStep {
        &self.step
    }

    /// Returns the snapshot whose upload is under way. Give up any other one.
    #[must_use]
    pub const fn uploading(&self) -> Option<u64> {
        self.upload
    }

    /// Returns how the archive stands; `None` while this namenode does not write it.
    #[must_use]
    pub const fn status(&self) -> Option<ArchiveStatus> {
        self.status
    }

    /// Takes that the namenode serves from now on: what it acknowledges is not in the archive yet.
    pub fn serve(&mut self, now: Instant) {
        self.rested_at = now;
        if self.generation.is_some() {
            self.show();
        }
    }

    /// Begins the next pass once [`ArchiveStep::Wait`] is over, if the namenode writes the archive.
    /// A leader without a generation begins one.
    pub fn wake(&mut self, now: Instant, role: ArchiveRole) {
        debug_assert!(matches!(self.step, ArchiveStep::Wait(_)), "a step is under way");
        if self.kind == PassKind::Closing {
            return self.begin(now);
        }
        (self.looked_at, self.step) = (now, ArchiveStep::Wait(now + POLL_INTERVAL));
        match role {
            ArchiveRole::Alone | ArchiveRole::Leads => {
                if self.generation.is_none() {
                    self.behind = Millis(0);
                    self.show();
                }
                self.begin(now);
            }
            ArchiveRole::Waits => self.rested_at = now,
            ArchiveRole::Follows => {
                self.rested_at = now;
                (self.generation, self.upload, self.status) = (None, None, None);
            }
        }
    }

    /// Takes that a generation has begun, in which nothing is stored. `behind` is the age of the
    /// newest state that the archive has whole, if the namenode has a newer one. It may be called
    /// before the first step, by a namenode that must not serve before.
    pub fn claimed(&mut self, now: Instant, generation: ArchiveGeneration, behind: Millis) {
        self.forget();
        (self.generation, self.manifests, self.older_at) = (Some(generation), 0, Some(now));
        (self.compared_at, self.behind) = (now, behind);
        if let Some(status) = &mut self.status {
            (status.complete_at, status.behind) = (self.rested_at, behind);
        }
        if self.step == ArchiveStep::Claim {
            self.step = ArchiveStep::Check(generation);
        }
    }

    /// Takes that no generation may begin any more, because the group was begun anew: the namenode
    /// ends.
    pub fn refused(&mut self) {
        (self.is_superseded, self.close) = (true, ArchiveClose::Superseded);
        self.step = ArchiveStep::Ended;
    }

    /// Takes the state of the generation. `is_alone` is whether there is no group: a namenode alone
    /// that was superseded ends, and a leader begins another generation if it still leads.
    pub fn checked(&mut self, now: Instant, found: GenerationState, is_alone: bool) {
        let ArchiveStep::Check(generation) = self.step else { return };
        match found {
            GenerationState::Superseded => return self.superseded(is_alone),
            GenerationState::Emptied => self.forget(),
            GenerationState::Newest => {}
        }
        let is_due = now.since(self.compared_at) >= COMPARE_INTERVAL;
        self.step = match is_due || self.kind != PassKind::Usual {
            true => ArchiveStep::ListNames(generation),
            false => ArchiveStep::ReadDirectory,
        };
    }

    /// Takes the names of the generation's objects, and compares them with what was stored, whether
    /// a manifest names it yet or not. Returns what is gone: it is stored again.
    pub fn compared(&mut self, now: Instant, names: &BTreeSet<String>) -> Option<ArchiveLoss> {
        (self.compared_at, self.step) = (now, ArchiveStep::ReadDirectory);
        let is_gone = |name: &String| !names.contains(name);
        let gone = self.archive.objects().map(|object| object.to_string()).find(is_gone);
        if let Some(name) = gone {
            self.forget();
            return Some(ArchiveLoss::Part(name));
        }
        let newest = self.newest.as_mut()?;
        let name = manifest_name(newest.number);
        newest.is_gone = !names.contains(&name);
        newest.is_gone.then_some(ArchiveLoss::Manifest(name))
    }

    /// Takes what the namenode's directory holds now.
    pub fn looked(&mut self, files: &DirectoryFiles) {
        self.archive.look(files);
        self.store_next_piece();
    }

    /// Takes that a piece is stored, or that its segment is no longer in the directory: a snapshot
    /// has taken its place, which the next pass shows.
    pub fn piece_stored(&mut self, is_there: bool) {
        let ArchiveStep::StorePiece(first, piece) = self.step else { return };
        if is_there {
            self.archive.stored(ArchiveObject::Piece(first, piece));
            self.store_next_piece();
        } else {
            self.store_next_snapshot();
        }
    }

    /// Takes how far the upload of a snapshot is.
    pub fn upload_seen(&mut self, state: UploadState) {
        let ArchiveStep::Upload { index, .. } = self.step else { return };
        debug_assert_eq!(self.upload, Some(index), "this upload is under way");
        match state {
            UploadState::UnderWay => self.step = ArchiveStep::Describe,
            UploadState::Stored => {
                self.archive.stored(ArchiveObject::Snapshot(index));
                self.upload = None;
                self.store_next_snapshot();
            }
        }
    }

    /// Describes what is stored, if that is more than before, by a manifest of this time and of
    /// this generation of the group. Without the whole journal (`is_journal_whole`) the archive is
    /// not closed.
    ///
    /// The first manifest of a generation waits for all that the directory has: a recovery takes it
    /// instead of that of the generation before, which may have more of the journal.
    pub fn describe(
        &mut self,
        now: Instant,
        at_unix_millis: u64,
        group: GroupGeneration,
        is_journal_whole: bool,
    ) {
        self.is_journal_whole = is_journal_whole;
        let is_closed = self.kind == PassKind::Closing && is_journal_whole;
        let may_describe = self.newest.is_some() || self.archive.is_complete();
        let manifest = self.archive.manifest(at_unix_millis, is_closed);
        let Some(mut manifest) = manifest.filter(|_| may_describe) else {
            return self.end_pass(now);
        };
        manifest.group = group.0;
        if self.newest.as_ref().is_some_and(|newest| newest.describes(&manifest)) {
            return self.begin_removals(now);
        }
        self.manifests += 1;
        let (number, manifest) = (self.manifests, Box::new(manifest));
        self.step = ArchiveStep::StoreManifest { number, manifest };
    }

    /// Takes that the manifest is stored.
    pub fn manifest_stored(&mut self, now: Instant) {
        let ArchiveStep::StoreManifest { number, manifest } = &self.step else { return };
        let (number, manifest) = (*number, ArchiveManifest::clone(manifest));
        debug_assert_eq!(manifest.check(), Ok(()), "what is stored can be read back");
        if self.kind == PassKind::Closing && manifest.is_closed {
            // What is removed after it is no part of the close, and may take too long.
            self.close = ArchiveClose::Closed;
        }
        self.newest = Some(NewestManifest { number, manifest, is_gone: false });
        // One that stays is not the last.
        self.surplus.extend((number > 1).then(|| SurplusObject::Manifest(number - 1)));
        self.begin_removals(now);
    }

    /// Takes whether what was to be removed is. What stays costs room until this generation goes,
    /// and keeps nothing from being stored. Returns whether to log it: it is the first that stays.
    pub fn removed(&mut self, now: Instant, is_removed: bool) -> bool {
        let is_failing = if matches!(self.step, ArchiveStep::RemoveOlder(_)) {
            self.older_at = (!is_removed).then_some(now + OLDER_PAUSE);
            &mut self.is_older_failing
        } else {
            &mut self.is_removal_failing
        };
        let was_failing = replace(is_failing, !is_removed);
        self.remove_next(now);
        !is_removed && !was_failing
    }

    /// Takes that a step has failed: the pass is tried again from its beginning on. Only a failed
    /// upload keeps nothing else of the pass from being stored. Returns whether to log it.
    pub fn failed(&mut self, now: Instant) -> ArchiveFailure {
        self.has_failed = true;
        if matches!(self.step, ArchiveStep::Upload { .. }) {
            (self.upload, self.step) = (None, ArchiveStep::Describe);
        } else {
            self.rest(now);
        }
        let is_first = match (self.kind, &mut self.status) {
            (PassKind::Usual, Some(status)) => !replace(&mut status.is_failing, true),
            (PassKind::Closing, _) => !replace(&mut self.has_close_failed, true),
            (PassKind::Usual, None) | (PassKind::Final, _) => false,
        };
        match self.kind {
            _ if !is_first => ArchiveFailure::Repeated,
            PassKind::Closing => ArchiveFailure::FirstOfClose,
            PassKind::Usual | PassKind::Final => ArchiveFailure::First,
        }
    }

    /// Begins the last pass of a namenode that writes no more, whichever step was under way. What
    /// the namenode was decides whether nothing can come after. If nothing can, the pass is tried
    /// again until it succeeds; give it up after [`CLOSE_TIMEOUT`]. A further call begins another
    /// last pass.
    pub fn close(&mut self, now: Instant, ended: EndedWriter) {
        let has_none = self.generation.is_none();
        self.has_close_failed = false;
        let last = match ended {
            _ if self.is_superseded => None,
            EndedWriter::Follower => None,
            EndedWriter::Leader | EndedWriter::Unknown if has_none => None,
            EndedWriter::Leader => Some((PassKind::Final, ArchiveClose::Left)),
            EndedWriter::Last | EndedWriter::Unknown => {
                Some((PassKind::Closing, ArchiveClose::UnderWay))
            }
        };
        let Some((kind, close)) = last else {
            (self.close, self.step) = (ArchiveClose::Left, ArchiveStep::Ended);
            return;
        };
        (self.kind, self.close) = (kind, close);
        self.begin(now);
    }

    /// Returns how the archive was left: after [`ArchiveStep::Ended`], or when the last pass is
    /// given up.
    #[must_use]
    pub const fn closed(&self) -> ArchiveClose {
        self.close
    }

    /// Begins a pass.
    fn begin(&mut self, now: Instant) {
        (self.looked_at, self.has_failed) = (now, false);
        self.surplus.clear();
        self.step = self.generation.map_or(ArchiveStep::Claim, ArchiveStep::Check);
    }

    /// Shows that this member writes the archive. What it has acknowledged since it serves is not
    /// there before its first manifest.
    fn show(&mut self) {
        let (complete_at, behind) = (self.rested_at, self.behind);
        let status = ArchiveStatus { complete_at, behind, is_failing: false };
        self.status.get_or_insert(status);
    }

    /// Begins anew with an empty generation. Numbers of manifests go on: the store may execute an
    /// earlier request late.
    fn forget(&mut self) {
        self.archive = Archive::new(self.archive.cluster());
        (self.upload, self.newest) = (None, None);
        self.surplus.clear();
    }

    fn superseded(&mut self, is_alone: bool) {
        self.step = match self.kind {
            PassKind::Usual if !is_alone => {
                (self.generation, self.upload) = (None, None);
                ArchiveStep::Wait(self.looked_at + POLL_INTERVAL)
            }
            PassKind::Usual => {
                self.is_superseded = true;
                ArchiveStep::Ended
            }
            PassKind::Final => ArchiveStep::Ended,
            PassKind::Closing => {
                self.close = ArchiveClose::Superseded;
                ArchiveStep::Ended
            }
        };
    }

    fn store_next_piece(&mut self) {
        match self.archive.next_piece() {
            Some((first, piece)) => self.step = ArchiveStep::StorePiece(first, piece),
            None => self.store_next_snapshot(),
        }
    }

    /// Goes on with the snapshots, one at a time, beside the journal. The last pass stores them
    /// until all can be read back: a leader that began a moment ago has stored none.
    fn store_next_snapshot(&mut self) {
        let waits = self.kind == PassKind::Closing;
        let is_due = match self.kind {
            PassKind::Usual => true,
            PassKind::Final => false,
            PassKind::Closing => !self.archive.is_complete(),
        };
        if is_due {
            self.upload = self.upload.or_else(|| self.archive.next_snapshot());
        }
        self.step = match self.upload.filter(|_| is_due) {
            Some(index) => ArchiveStep::Upload { index, waits },
            None => ArchiveStep::Describe,
        };
    }

    /// Removes what the newest manifest leaves out. At the end there is no time for more than the
    /// manifest before.
    fn begin_removals(&mut self, now: Instant) {
        if self.kind == PassKind::Usual
            && let Some(newest) = &self.newest
        {
            let parts = self.archive.take_surplus(&newest.manifest);
            self.surplus.extend(parts.into_iter().map(SurplusObject::Part));
        }
        self.remove_next(now);
    }

    fn remove_next(&mut self, now: Instant) {
        let is_due = self.older_at.is_some_and(|at| at <= now);
        let is_older_due = is_due && self.newest.is_some() && self.kind == PassKind::Usual;
        let older = self.generation.filter(|_| is_older_due).map(ArchiveStep::RemoveOlder);
        match self.surplus.pop_front().map(ArchiveStep::Remove).or(older) {
            Some(step) => self.step = step,
            None => self.end_pass(now),
        }
    }

    /// Ends a pass that has come to its end.
    fn end_pass(&mut self, now: Instant) {
        if self.archive.is_complete()
            && let Some(status) = &mut self.status
        {
            (status.complete_at, status.behind) = (self.looked_at, Millis(0));
        }
        self.rest(now);
    }

    fn rest(&mut self, now: Instant) {
        self.step = match self.kind {
            PassKind::Usual => {
                if let Some(status) = self.status.as_mut().filter(|_| !self.has_failed) {
                    status.is_failing = false;
                }
                ArchiveStep::Wait(self.looked_at + POLL_INTERVAL)
            }
            PassKind::Final => ArchiveStep::Ended,
            PassKind::Closing if self.has_failed => ArchiveStep::Wait(now + CLOSE_PAUSE),
            PassKind::Closing => {
                self.close = self.left_as();
                ArchiveStep::Ended
            }
        };
    }

    /// Returns how a last pass that has come to its end leaves the archive.
    fn left_as(&self) -> ArchiveClose {
        if self.newest.as_ref().is_some_and(|newest| newest.manifest.is_closed) {
            ArchiveClose::Closed
        } else if self.archive.is_complete() && !self.is_journal_whole {
            ArchiveClose::Unwritten
        } else {
            ArchiveClose::Incomplete
        }
    }
}

impl NewestManifest {
    /// Returns whether it is there and differs from a manifest by its time at most.
    fn describes(&self, other: &ArchiveManifest) -> bool {
        let at_unix_millis = self.manifest.at_unix_millis;
        !self.is_gone && self.manifest == ArchiveManifest { at_unix_millis, ..other.clone() }
    }
}

#[cfg(test)]
mod tests;
