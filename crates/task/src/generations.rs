//! The generations of one task: dumps, reads and removals.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rustix::io::Errno;
use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_command::units;
use sanderling_core::checkpoint::{
    CHUNK_BYTES, CHUNKS_MAX, CheckpointManifest, CheckpointManifestError, DriverRecord,
    FoundGeneration, GenerationHead, GenerationRank, GenerationVerdict, KeyEvidence,
    ListedGenerations, MANIFEST_BYTES_MAX, ManifestPack, PackId, Packing, RemovalPlan, StateDigest,
    dump_pack_bytes, sparse_packs, unnamed_packs,
};
use sanderling_protocol::{Instant, Refusal};
use sanderling_transport::available_bytes;
use tokio::sync::mpsc;
use tokio::time::Instant as Moment;

use crate::backend::{TaskBackend, number_of};
use crate::driver::{CapturedState, ReadState};
use crate::dump_policy::DumpPolicy;
use crate::encryption::{DecryptError, ENCRYPTED_MANIFEST_BYTES_MAX, TaskKey};
use crate::generation_reader::{GenerationReader, PackSource};
use crate::lock::TaskLock;
use crate::pack_writer::{PackCost, PackWriter};
use crate::reserved_memory::{DumpMemory, PackMemory, RESERVED};
use crate::state::Unpacking;
use crate::task_failure::{TaskFailure, system_error};

/// Full packs that wait for the backend. A process that is dumped is frozen until its images were
/// read, and those wait in memory to be packed. If that memory is full, more packs would shorten
/// the freeze on a slow backend, and take 32 MiB each. Chosen, not measured.
const PACKS_WAITING_MAX: usize = 4;

/// The same for the baseline, whose dumps go straight to the backend: the fewest with which it
/// runs.
const BASELINE_PACKS_WAITING_MAX: usize = 1;

/// Digits of the number in a manifest's name, at least, so that the names of ten thousand million
/// generations are in the order of the numbers.
const DIGITS: usize = 10;

/// The generations of one task in one backend.
#[derive(Clone)]
pub(crate) struct Generations {
    pub(crate) backend: TaskBackend,
    pub(crate) key: TaskKey,
    pub(crate) task: String,
    /// Whether new chunks are compressed.
    pub(crate) compresses: bool,
    /// How states are stored.
    pub(crate) policy: DumpPolicy,
}

/// What storing one state took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DumpCost {
    /// When the task could go on, at the latest.
    pub(crate) free_at: Moment,
    pub(crate) packing: PackCost,
}

/// A state whose packs are stored.
struct Packed {
    packing: Packing,
    stream_bytes: u64,
    driver: DriverRecord,
    cost: DumpCost,
}

/// A generation whose manifest is good and whose packs are stored, as far as that was looked at. It
/// is kept without its chunks: those of many generations would fill the memory, as where the store
/// of a durable directory is away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredGeneration {
    pub(crate) number: u64,
    /// The number of the lock under which it was written; 0 in those of earlier releases.
    pub(crate) lock: u64,
    pub(crate) taken_at: Instant,
    pub(crate) driver: DriverRecord,
    pub(crate) stream_bytes: u64,
    pub(crate) added_bytes: u64,
    pub(crate) packs: Vec<ManifestPack>,
    state: StateDigest,
}

impl StoredGeneration {
    /// Returns what is kept of a generation.
    pub(crate) fn of(manifest: &CheckpointManifest) -> Self {
        Self {
            number: manifest.generation,
            lock: manifest.lock,
            taken_at: manifest.taken_at,
            driver: manifest.driver.clone(),
            stream_bytes: manifest.stream_bytes,
            added_bytes: manifest.added_bytes,
            packs: manifest.packs.clone(),
            state: manifest.state_digest(),
        }
    }

    /// Returns the number of its lock; `None` if its manifest shows none.
    fn shown_lock(&self) -> Option<u64> {
        (self.lock > 0).then_some(self.lock)
    }
}

/// What a removal has done.
pub(crate) struct RemovedGenerations {
    /// What was removed.
    pub(crate) plan: RemovalPlan,
    /// Generations that stay because their manifests cannot be deleted, each with the reason.
    pub(crate) stuck: Vec<StuckGeneration>,
}

/// The number of a generation that cannot be removed, and why.
pub(crate) type StuckGeneration = (u64, Failure);

/// A generation that was found, with what is wrong with it.
pub(crate) type CheckedGeneration = (u64, Result<StoredGeneration, Failure>);

impl Generations {
    /// Returns the numbers of all generations, the newest first.
    pub(crate) async fn numbers(backend: &TaskBackend) -> Result<Vec<u64>, Failure> {
        let listed = backend.list("generations").await?;
        let mut numbers: Vec<u64> =
            listed.iter().filter_map(|(name, _)| number_of(name, DIGITS)).collect();
        numbers.sort_unstable_by(|one, other| other.cmp(one));
        Ok(numbers)
    }

    /// Returns the names of objects among generations and packs that no runner has written.
    ///
    /// # Errors
    /// The backend cannot be read.
    pub(crate) async fn strange(backend: &TaskBackend) -> Result<Vec<String>, Failure> {
        let mut strange = Vec::new();
        for (directory, is_known) in [
            ("generations", (|name| number_of(name, DIGITS).is_some()) as fn(&str) -> bool),
            ("packs", |name| PackId::parse(name).is_some()),
        ] {
            let names = backend.list(directory).await?.into_iter().map(|(name, _)| name);
            let names = names.filter(|name| !is_known(name));
            strange.extend(names.map(|name| format!("{directory}/{name}")));
        }
        Ok(strange)
    }

    /// Returns the packs that are stored, with their lengths.
    pub(crate) async fn packs(backend: &TaskBackend) -> Result<BTreeMap<PackId, u64>, Failure> {
        let listed = backend.list("packs").await?;
        let pack = |(name, bytes): (String, u64)| PackId::parse(&name).map(|id| (id, bytes));
        Ok(listed.into_iter().filter_map(pack).collect())
    }

    /// Reads all manifests, one after the other, and looks whether their packs are stored. Returns
    /// the generations, the newest first.
    ///
    /// # Errors
    /// The backend cannot be read; what is wrong with one generation is in its result.
    pub(crate) async fn look(&self) -> Result<Vec<CheckedGeneration>, Failure> {
        let mut read: Vec<CheckedGeneration> = Vec::new();
        for number in Self::numbers(&self.backend).await? {
            match self.manifest(number).await {
                Err(failure) if !is_of_one(&failure) => return Err(failure),
                manifest => {
                    read.push((number, manifest.map(|manifest| StoredGeneration::of(&manifest))));
                }
            }
        }
        // A runner may go on meanwhile: packs are there before their manifests, and go after them.
        let packs = Self::packs(&self.backend).await?;
        let found = read.into_iter().map(|(number, stored)| {
            (number, stored.and_then(|stored| self.with_packs(stored, &packs)))
        });
        let mut found: Vec<CheckedGeneration> = found.collect();
        if found.iter().any(|(_, stored)| stored.is_err()) {
            let kept = Self::numbers(&self.backend).await?;
            found.retain(|(number, stored)| stored.is_ok() || kept.contains(number));
        }
        let shown = |stored: &Result<StoredGeneration, Failure>| {
            stored.as_ref().ok().and_then(StoredGeneration::shown_lock)
        };
        let ranks = found.iter().map(|(number, stored)| (*number, shown(stored)));
        let ranks = GenerationRank::of_all(ranks);
        found.sort_by_key(|(number, _)| Reverse(ranks[number]));
        Ok(found)
    }

    /// Reads the manifest of a generation.
    ///
    /// # Errors
    /// [`TaskFailure::OtherRelease`]: use another release. One of [`is_of_generation`]: it is of no
    /// use. The backend cannot be read.
    pub(crate) async fn manifest(&self, number: u64) -> Result<CheckpointManifest, Failure> {
        let name = manifest_name(number);
        let encrypted = match self.backend.get_within(&name, ENCRYPTED_MANIFEST_BYTES_MAX).await {
            Ok(Some(encrypted)) => encrypted,
            Ok(None) => return Err(self.bad(number, "its manifest is gone")),
            Err(failure) if TaskFailure::TooLong.is(&failure) => {
                return Err(self.bad(number, failure.cause));
            }
            Err(failure) if leads_to_no_file(&failure) => {
                return Err(self.bad(number, failure.cause));
            }
            // The backend fails, or a limit of this process is reached: the manifest may be good.
            Err(failure) => return Err(failure),
        };
        let opened = self.key.decrypt_manifest(&self.task, number, &encrypted);
        let bytes = opened.map_err(|error| match error {
            DecryptError::NoManifest => self.refused(TaskFailure::BadGeneration, number, error),
            DecryptError::Version(_) => other_release(&self.task, number, error),
            DecryptError::OtherKey => self.refused(TaskFailure::OtherKey, number, error),
            DecryptError::Damaged => self.refused(TaskFailure::DamagedGeneration, number, error),
        })?;
        CheckpointManifest::decode(&self.key.chunk_key(), &bytes).map_err(|error| match error {
            CheckpointManifestError::Version(_) => other_release(&self.task, number, error),
            error => self.refused(TaskFailure::DamagedGeneration, number, error),
        })
    }

    fn with_packs(
        &self,
        generation: StoredGeneration,
        stored: &BTreeMap<PackId, u64>,
    ) -> Result<StoredGeneration, Failure> {
        let damaged =
            |why: String| self.refused(TaskFailure::DamagedGeneration, generation.number, why);
        for pack in &generation.packs {
            let id = pack.id;
            match stored.get(&id) {
                None => return Err(damaged(format!("its pack {id} is missing"))),
                Some(bytes) if *bytes != pack.bytes => {
                    let of = pack.bytes;
                    let why = format!("its pack {id} is cut: it has {bytes} of {of} bytes");
                    return Err(damaged(why));
                }
                Some(_) => {}
            }
        }
        Ok(generation)
    }

    /// Reads a whole generation and verifies each chunk.
    ///
    /// # Errors
    /// As [`Generations::manifest`] and [`Generations::read`].
    pub(crate) async fn verify(&self, number: u64) -> Result<(), Failure> {
        self.read(&self.manifest(number).await?, |_| Ok(())).await
    }

    /// Unpacks the generation of a number into a state directory, and returns its manifest.
    ///
    /// # Errors
    /// As [`Generations::manifest`] and [`Generations::restore`].
    pub(crate) async fn unpack(
        &self,
        number: u64,
        directory: &Path,
    ) -> Result<CheckpointManifest, Failure> {
        let manifest = self.manifest(number).await?;
        self.restore(&manifest, directory).await?;
        Ok(manifest)
    }

    /// Reads a whole generation and verifies each chunk.
    ///
    /// # Errors
    /// A pack is missing or a chunk damaged: the generation is of no use.
    pub(crate) async fn read(
        &self,
        manifest: &CheckpointManifest,
        each: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let whole = 0..manifest.stream_bytes;
        let reader = self.reader(manifest, std::iter::once(whole.clone()));
        reader.read_range(manifest, whole, each).await
    }

    /// Returns a reader of these ranges of a generation's stream, each of which is read once.
    pub(crate) fn reader(
        &self,
        manifest: &CheckpointManifest,
        ranges: impl Iterator<Item = Range<u64>>,
    ) -> Arc<GenerationReader<TaskBackend>> {
        let pack_bytes =
            manifest.packs.iter().fold(0, |sum: u64, pack| sum.saturating_add(pack.bytes));
        let memory = PackMemory::reserve(&RESERVED, available_bytes, pack_bytes);
        GenerationReader::new(self.backend.clone(), &self.key, manifest, ranges, memory)
    }

    /// Unpacks a generation into a state directory.
    ///
    /// # Errors
    /// As [`Generations::read`]; [`TaskFailure::OtherRelease`]. What was in the directory is still
    /// there then.
    pub(crate) async fn restore(
        &self,
        manifest: &CheckpointManifest,
        directory: &Path,
    ) -> Result<(), Failure> {
        let mut unpacking = Unpacking::new(directory)?;
        let unpacked = self.read(manifest, |bytes| unpacking.push(bytes)).await;
        unpacked.map_err(|failure| match TaskFailure::OtherRelease.is(&failure) {
            true => other_release(&self.task, manifest.generation, failure.cause),
            false => failure,
        })?;
        unpacking.finish()
    }

    /// Begins a dump on top of a generation: looks which of its packs are stored. It is called
    /// before the task stands still, because a backend may take long to answer.
    ///
    /// # Errors
    /// The backend cannot be read.
    pub(crate) async fn packing(
        &self,
        base: Option<&CheckpointManifest>,
    ) -> Result<Packing, Failure> {
        let stored = Self::packs(&self.backend).await?;
        self.backend.remove_lost().await;
        let mut rewritten = base.map(sparse_packs).unwrap_or_default();
        let lost = base.iter().flat_map(|base| &base.packs);
        let lost = lost.filter(|pack| stored.get(&pack.id) != Some(&pack.bytes));
        rewritten.extend(lost.map(|pack| pack.id));
        Ok(match self.policy {
            DumpPolicy::Sanderling => Packing::new(base, &rewritten),
            DumpPolicy::Baseline => Packing::baseline(),
        })
    }

    /// Returns how many full packs of a dump may wait for the backend.
    const fn packs_waiting(&self) -> usize {
        match self.policy {
            DumpPolicy::Sanderling => PACKS_WAITING_MAX,
            DumpPolicy::Baseline => BASELINE_PACKS_WAITING_MAX,
        }
    }

    /// Returns how many bytes of packs a dump may hold at once, of a state that had so many bytes
    /// before: one is being filled, one is being stored, and others wait.
    pub(crate) fn pack_bytes(&self, state_bytes: u64) -> u64 {
        dump_pack_bytes(self.packs_waiting() as u64 + 2, state_bytes)
    }

    /// Stores a state as a generation, in packs that take this memory until all of them are stored.
    /// The manifest is written last, and only if there is none of this number.
    ///
    /// # Errors
    /// The state cannot be read or an object not written; another runner has written the
    /// generation.
    pub(crate) async fn dump(
        &self,
        source: impl CapturedState,
        packing: Packing,
        (number, taken_at): (u64, Instant),
        lock: &TaskLock,
        memory: DumpMemory,
    ) -> Result<(CheckpointManifest, DumpCost), Failure> {
        let mut written = Vec::new();
        let packed = self.store_packs(source, packing, &mut written).await;
        drop(memory);
        if packed.is_err() {
            // No manifest names them. A store that is full has room again for a smaller dump.
            for pack in written {
                let _ = self.backend.remove(&pack_name(pack)).await;
            }
        }
        let Packed { packing, stream_bytes, driver, cost } = packed?;
        let (task, rank) = (self.task.clone(), lock.rank());
        let head = GenerationHead { task, generation: number, taken_at, driver, lock: rank };
        let manifest = packing.finish(head, stream_bytes);
        let bytes = manifest.encode(&self.key.chunk_key());
        if bytes.len() as u64 > MANIFEST_BYTES_MAX {
            let state = units::bytes(stream_bytes);
            let most = units::bytes(CHUNKS_MAX * CHUNK_BYTES as u64);
            let cause = format!("the state of {state} is too large: {most} without zeros is most");
            return Err(Failure::new(Exit::Failure, FailureKind::StateTooLarge, cause));
        }
        let encrypted = self.key.encrypt_manifest(&self.task, number, bytes);
        lock.check_own(&self.task).await?;
        if self.backend.put_absent(&manifest_name(number), encrypted).await? {
            return Ok((manifest, cost));
        }
        let cause = format!("another runner of {} has written generation {number}", self.task);
        Err(TaskFailure::Taken.failure(Exit::Failure, cause))
    }

    /// Packs a state and stores the packs, whose ids are added to `written`.
    async fn store_packs(
        &self,
        source: impl CapturedState,
        packing: Packing,
        written: &mut Vec<PackId>,
    ) -> Result<Packed, Failure> {
        let compresses = self.compresses && self.policy == DumpPolicy::Sanderling;
        let (sender, mut packs) = mpsc::channel(self.packs_waiting());
        let mut writer = PackWriter::new(packing, self.key.clone(), compresses, sender)?;
        let reader = tokio::task::spawn_blocking(move || {
            let ReadState { driver, free_at } = source.read(&mut writer)?;
            let (packing, stream_bytes, cost) = writer.finish()?;
            let cost = DumpCost { free_at, packing: cost };
            Ok(Packed { packing, stream_bytes, driver, cost })
        });
        while let Some((id, bytes)) = packs.recv().await {
            // Also one that fails may be there in the end.
            written.push(id);
            if !self.backend.put_absent(&pack_name(id), bytes).await? {
                written.pop();
                let cause = format!("{}: there is a pack {id} already", self.backend);
                return Err(Failure::new(Exit::Failure, FailureKind::TaskBackend, cause));
            }
        }
        reader.await.map_err(|error| Failure::caused(Exit::Failure, FailureKind::Bug, error))?
    }

    /// Removes the generations that were given up, what is older than the newest `keep` ones, and
    /// what a collection has stored again; below a durable directory nothing from the newest one on
    /// that the store has, and no pack while one of no use is left. Only for the holder of the
    /// lock, while no dump is under way. It stops when another runner has taken the lock meanwhile.
    ///
    /// `ListedGenerations` of `core::checkpoint` decides what goes.
    ///
    /// A manifest that cannot be deleted on its own, such as one in whose place a directory is,
    /// holds no other removal up. The packs that it may name stay with it.
    ///
    /// # Errors
    /// The backend cannot be read, an object not deleted, or another runner has the lock.
    pub(crate) async fn collect(
        &self,
        found: &[FoundGeneration],
        keep: usize,
        given_up: &[u64],
        lock: &TaskLock,
    ) -> Result<RemovedGenerations, Failure> {
        let there: BTreeSet<u64> = Self::numbers(&self.backend).await?.into_iter().collect();
        let listed = ListedGenerations::new(found, &there);
        let stored = Self::packs(&self.backend).await?;
        let durable = self.durable(listed.counted()).await?;
        let mut plan = listed.removal_plan(&stored, keep, durable.as_ref());
        self.expect_held(lock).await?;
        let mut stuck = self.remove(given_up, lock).await?;
        stuck.extend(self.remove(&plan.generations, lock).await?);
        let stays =
            |(number, failure): &StuckGeneration| listed.stuck(*number, !is_directory(failure));
        plan.leave(&stuck.iter().map(stays).collect::<Vec<_>>());
        self.remove_packs(&plan.packs, lock).await?;
        Ok(RemovedGenerations { plan, stuck })
    }

    /// Returns which generations the store of a durable directory has. It has the packs that a
    /// manifest names before it has the manifest.
    async fn durable(&self, found: &[FoundGeneration]) -> Result<Option<BTreeSet<u64>>, Failure> {
        let names = found.iter().map(|it| file_name(it.number)).collect();
        let states = self.backend.durable("generations", names).await?;
        let Some(states) = states else { return Ok(None) };
        let there = found.iter().zip(states).filter(|(_, is_there)| *is_there);
        Ok(Some(there.map(|(it, _)| it.number).collect()))
    }

    /// Removes the packs that no generation names, so that a store that is full has room again;
    /// only for the holder of the lock, while no dump is under way. `found` is looked at after the
    /// last dump: a manifest whose dump failed may have been written all the same.
    ///
    /// # Errors
    /// The backend cannot be read, an object not deleted, or another runner has the lock.
    pub(crate) async fn remove_unnamed(
        &self,
        found: &[FoundGeneration],
        lock: &TaskLock,
    ) -> Result<(), Failure> {
        let stored = Self::packs(&self.backend).await?;
        self.expect_held(lock).await?;
        self.remove_packs(&unnamed_packs(found, &stored), lock).await
    }

    /// Refuses to remove anything for a runner that has lost the lock and does not know it yet.
    /// Packs of a dump that another one has under way have no name. They can be among those that
    /// were listed only if its lock, which is older, is found now.
    async fn expect_held(&self, lock: &TaskLock) -> Result<(), Failure> {
        self.expect_own(lock.is_held().await?)
    }

    fn expect_own(&self, is_own: bool) -> Result<(), Failure> {
        if is_own {
            return Ok(());
        }
        let cause = format!("another runner of {} has its lock", self.task);
        Err(TaskFailure::Taken.failure(Exit::Failure, cause))
    }

    async fn remove_packs(&self, packs: &[PackId], lock: &TaskLock) -> Result<(), Failure> {
        for pack in packs {
            self.expect_removable(lock).await?;
            self.backend.remove(&pack_name(*pack)).await?;
        }
        Ok(())
    }

    /// Removes the manifests of generations, as far as they exist. Returns those that cannot be
    /// removed on their own.
    ///
    /// # Errors
    /// The backend cannot be used, or another runner has the lock.
    async fn remove(
        &self,
        generations: &[u64],
        lock: &TaskLock,
    ) -> Result<Vec<StuckGeneration>, Failure> {
        let mut stuck = Vec::new();
        for number in generations {
            self.expect_removable(lock).await?;
            match self.backend.remove(&manifest_name(*number)).await {
                Err(failure) if failure.is_of_one_file || is_directory(&failure) => {
                    stuck.push((*number, failure));
                }
                removed => removed?,
            }
        }
        Ok(stuck)
    }

    /// Refuses to remove one object more. The process may have paused since the one before: another
    /// runner that has taken the lock meanwhile may go on from what was old then.
    async fn expect_removable(&self, lock: &TaskLock) -> Result<(), Failure> {
        self.expect_own(lock.may_remove().await?)
    }

    fn bad(&self, number: u64, why: impl std::fmt::Display) -> Failure {
        self.refused(TaskFailure::BadGeneration, number, why)
    }

    fn refused(&self, means: TaskFailure, number: u64, why: impl std::fmt::Display) -> Failure {
        means.of_generation(&self.task, number, why)
    }
}

impl PackSource for TaskBackend {
    async fn whole(&self, pack: ManifestPack) -> Result<Option<Vec<Bytes>>, Failure> {
        self.get_pieces(&pack_name(pack.id), pack.bytes).await
    }

    async fn range(&self, pack: PackId, range: Range<u64>) -> Result<Option<Bytes>, Failure> {
        self.get_range(&pack_name(pack), range).await
    }
}

/// Returns what a failure shows of a generation; `None` if it is not of one, as where the backend
/// fails.
pub(crate) fn verdict_of(failure: &Failure) -> Option<GenerationVerdict> {
    let those = [
        (TaskFailure::BadGeneration, GenerationVerdict::Bad),
        (TaskFailure::DamagedGeneration, GenerationVerdict::Damaged),
        (TaskFailure::OtherKey, GenerationVerdict::OtherKey),
        (TaskFailure::OtherRelease, GenerationVerdict::OtherRelease),
        (TaskFailure::DataLost, GenerationVerdict::Bad),
    ];
    those.into_iter().find_map(|(means, verdict)| means.is(failure).then_some(verdict))
}

/// Returns what was seen of each generation, in the order of the look.
pub(crate) fn verdicts(looked: &[CheckedGeneration]) -> Vec<(u64, GenerationVerdict)> {
    let verdict = |(number, stored): &CheckedGeneration| {
        let refused = stored.as_ref().err();
        let verdict = refused.map(|failure| verdict_of(failure).unwrap_or(GenerationVerdict::Bad));
        (*number, verdict.unwrap_or(GenerationVerdict::Good))
    };
    looked.iter().map(verdict).collect()
}

/// Returns whether a failure concerns one generation, so that the one before may be good.
pub(crate) fn is_of_generation(failure: &Failure) -> bool {
    verdict_of(failure).is_some_and(GenerationVerdict::is_passed_over)
}

/// Returns whether a failure concerns one generation, whether or not one before it may be taken.
pub(crate) fn is_of_one(failure: &Failure) -> bool {
    verdict_of(failure).is_some()
}

/// Returns the failure of a generation whose format this release does not read.
pub(crate) fn other_release(task: &str, generation: u64, why: impl std::fmt::Display) -> Failure {
    let cause = format!(
        "generation {generation} of {task} was written by another release of Sanderling: {why}"
    );
    let next = "the same with that release or a later one, as on the machine where it was taken";
    TaskFailure::OtherRelease.failure(Exit::Failure, cause).next(next)
}

/// Returns the highest lock under which generations were written; 0 if they show none.
pub(crate) fn highest_lock(looked: &[CheckedGeneration]) -> u64 {
    looked.iter().filter_map(|(_, stored)| Some(stored.as_ref().ok()?.lock)).max().unwrap_or(0)
}

/// Returns whether a file cannot be read because of what has its name, and would not be later
/// either: a link to itself, or a socket. Other errors may pass.
fn leads_to_no_file(failure: &Failure) -> bool {
    let number = system_error(failure).and_then(io::Error::raw_os_error);
    [Errno::LOOP, Errno::NXIO].iter().any(|it| Some(it.raw_os_error()) == number)
}

/// Returns whether an object cannot be deleted because a directory has its name.
fn is_directory(failure: &Failure) -> bool {
    system_error(failure).is_some_and(|error| error.kind() == io::ErrorKind::IsADirectory)
        || matches!(failure.refusal(), Some(Refusal::NotEmpty { .. }))
}

/// Returns what generations show about the key with which they were looked at.
pub(crate) fn key_evidence(looked: &[CheckedGeneration]) -> Vec<KeyEvidence> {
    verdicts(looked).into_iter().map(|(_, verdict)| verdict.key_evidence()).collect()
}

/// Returns what decides about removals.
pub(crate) fn found(looked: &[CheckedGeneration]) -> Vec<FoundGeneration> {
    let good = || looked.iter().filter_map(|(_, stored)| stored.as_ref().ok());
    let replaced_by = |old: &StoredGeneration| {
        let newer = good().filter(|it| it.number > old.number && it.state == old.state);
        newer.map(|it| it.number).max()
    };
    let found = |(number, stored): &CheckedGeneration| {
        let stored = stored.as_ref().ok();
        FoundGeneration {
            number: *number,
            lock: stored.and_then(StoredGeneration::shown_lock),
            packs: stored.map(|stored| stored.packs.clone()),
            replaced_by: stored.and_then(replaced_by),
        }
    };
    looked.iter().map(found).collect()
}

fn manifest_name(number: u64) -> String {
    format!("generations/{}", file_name(number))
}

/// Returns the name of a manifest among the generations.
fn file_name(number: u64) -> String {
    format!("{number:0DIGITS$}")
}

/// Returns the name of a pack's object.
pub(crate) fn pack_name(id: PackId) -> String {
    format!("packs/{id}")
}

/// Returns the packs that several generations read from, each once.
pub(crate) fn distinct_packs(generations: &[StoredGeneration]) -> BTreeSet<PackId> {
    generations.iter().flat_map(|it| it.packs.iter()).map(|pack| pack.id).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::lock::{LockWatch, lock_name};

    /// A place without a generation.
    async fn empty_place() -> (tempfile::TempDir, Generations) {
        let place = tempfile::tempdir().expect("a directory");
        let backend = TaskBackend::Directory(place.path().join("task"));
        backend.make(&["generations", "packs", "locks"]).await.expect("made");
        let key = TaskKey::create(&place.path().join("key")).expect("a key");
        let (task, policy) = ("count".to_owned(), DumpPolicy::Sanderling);
        (place, Generations { backend, key, task, compresses: true, policy })
    }

    impl Generations {
        /// Stores the manifest of a generation without chunks, after a change of its bytes.
        async fn put(&self, number: u64, lock: u64, change: impl FnOnce(&mut Vec<u8>)) {
            let (task, taken_at) = (self.task.clone(), Instant(number));
            let head = GenerationHead {
                task,
                generation: number,
                taken_at,
                driver: DriverRecord::Hook,
                lock,
            };
            let manifest = Packing::new(None, &BTreeSet::new()).finish(head, 0);
            let mut bytes = manifest.encode(&self.key.chunk_key());
            change(&mut bytes);
            let encrypted = self.key.encrypt_manifest(&self.task, number, bytes);
            assert!(self.backend.put_absent(&manifest_name(number), encrypted).await.expect("put"));
        }
    }

    #[tokio::test]
    async fn generation_written_under_a_lower_lock_is_older_than_those_of_the_next_runner() {
        let (_place, generations) = empty_place().await;
        for (number, lock) in [(4, 0), (5, 1), (6, 2), (7, 1)] {
            generations.put(number, lock, |_| {}).await;
        }
        let looked = generations.look().await.expect("read");
        let numbers: Vec<u64> = looked.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [6, 7, 5, 4]);
        assert_eq!(looked[0].1.as_ref().map(|it| it.lock).ok(), Some(2));
    }

    #[tokio::test]
    async fn generation_of_another_release_is_named_and_none_before_it_is_taken() {
        let (_place, generations) = empty_place().await;
        generations.put(1, 1, |_| {}).await;
        generations.put(2, 1, |bytes| bytes[0] += 1).await;
        generations.put(3, 1, |bytes| bytes.truncate(3)).await;
        let looked = generations.look().await.expect("read");
        let newest = looked[0].1.as_ref().expect_err("it is cut");
        assert!(TaskFailure::DamagedGeneration.is(newest), "{newest:?}");
        let other = looked[1].1.as_ref().expect_err("it is of another release");
        assert!(other.cause.contains("generation 2 of count was written by another"), "{other:?}");
        assert!(other.cause.contains("version 3") && !is_of_generation(other), "{other:?}");
        assert_eq!(key_evidence(&looked[1..2]), [KeyEvidence::Unknown], "no task is lost by it");
        use GenerationVerdict::{Damaged, Good, OtherRelease};
        assert_eq!(verdicts(&looked), [(3, Damaged), (2, OtherRelease), (1, Good)]);
    }

    #[tokio::test]
    async fn generation_whose_manifest_the_backend_has_lost_costs_none_before_it() {
        let (_place, generations) = empty_place().await;
        let (age, watch) = (Duration::from_secs(3600), LockWatch::new());
        let lock = TaskLock::take(&generations.backend, "count", age, watch).await;
        let lock = lock.expect("no runner has it");
        for number in 1..=3 {
            generations.put(number, 1, |_| {}).await;
        }
        let looked = generations.look().await.expect("read");
        generations.backend.remove(&manifest_name(3)).await.expect("lost");
        let removed = generations.collect(&found(&looked), 1, &[], &lock).await;
        assert_eq!(removed.expect("collected").plan.generations, [1]);
        assert_eq!(Generations::numbers(&generations.backend).await.expect("listed"), [2]);
    }

    #[tokio::test]
    async fn runner_that_lost_the_lock_removes_nothing_of_the_other_ones_dump() {
        let (_place, generations) = empty_place().await;
        let backend = generations.backend.clone();
        let age = Duration::from_secs(3600);
        let lock =
            TaskLock::take(&backend, "count", age, LockWatch::new()).await.expect("it is free");
        let pack = |byte| pack_name(PackId([byte; 32]));
        let put = async |name: String| backend.put_absent(&name, b"bytes".to_vec()).await;
        assert!(put(pack(1)).await.expect("put"));
        generations.remove_unnamed(&[], &lock).await.expect("it has the lock");
        assert_eq!(backend.list("packs").await.expect("listed"), []);
        // Another runner takes the lock and begins a dump.
        assert!(put(lock_name(2)).await.expect("put"));
        assert!(put(pack(2)).await.expect("put"));
        let refused = generations.remove_unnamed(&[], &lock).await.expect_err("it lost the lock");
        assert!(TaskFailure::Taken.is(&refused));
        let refused = generations.collect(&[], 1, &[], &lock).await.err().expect("the same");
        assert!(TaskFailure::Taken.is(&refused));
        assert_eq!(backend.list("packs").await.expect("listed").len(), 1);
    }
}
