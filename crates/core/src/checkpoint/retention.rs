//! Which generations and packs are kept.
//!
//! No manifest is ever changed. A pack of which little is still used is emptied by the next dump,
//! or by a collection if there is none, which stores those chunks again. It goes with the last
//! generation that names it. The one that a collection has stored again in this way goes as soon as
//! its state is safe in the new one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::generation_rank::GenerationRank;
use super::manifest::{CheckpointManifest, ManifestPack, PackId};
use super::packing::{PACK_BYTES, TAG_BYTES};

/// A pack below this size is small: reading it is a request for few bytes. A quarter of a whole
/// one.
const SMALL_BYTES: u64 = PACK_BYTES / 4;

/// Small packs that one generation may read from before the next one joins them. At 50 ms for a
/// request, 0.4 s of a restore; to join them stores 64 MiB again at most. Chosen, not measured.
const SMALL_MAX: usize = 8;

/// A generation that was found in a backend, with what decides whether it may be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundGeneration {
    /// Its number.
    pub number: u64,
    /// The number of the lock under which it was written; `None` if its manifest shows none.
    pub lock: Option<u64>,
    /// Its packs; `None` if its manifest is of no use now, so that it may name any.
    pub packs: Option<Vec<ManifestPack>>,
    /// A later one that a collection has made of it, with the same state
    /// ([`CheckpointManifest::state_digest`]).
    pub replaced_by: Option<u64>,
}

/// A plan of what can be removed, manifests first: no manifest is left without its packs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemovalPlan {
    /// Numbers of generations.
    pub generations: Vec<u64>,
    /// Packs that no remaining manifest names.
    pub packs: Vec<PackId>,
    /// Whether more stays than is to be kept, until the store of the durable directory has a later
    /// generation. A runner then waits for the store for a while: a dump whenever one is due would
    /// add more than a store with little room can take before anything is removed from it.
    pub is_held_back: bool,
}

impl FoundGeneration {
    /// Returns whether all its packs are stored, each with its length in the manifest. `stored` has
    /// the packs of the backend with their lengths in bytes.
    #[must_use]
    pub fn is_whole(&self, stored: &BTreeMap<PackId, u64>) -> bool {
        let is_there = |pack: &ManifestPack| stored.get(&pack.id) == Some(&pack.bytes);
        self.packs.as_ref().is_some_and(|packs| packs.iter().all(is_there))
    }
}

impl RemovalPlan {
    /// Takes out generations whose manifests cannot be removed, and the packs that they may name:
    /// all of them, if one of the manifests cannot be read either.
    pub fn leave(&mut self, left: &[FoundGeneration]) {
        self.generations.retain(|number| left.iter().all(|it| it.number != *number));
        let is_named = |pack: &PackId, by: &FoundGeneration| match &by.packs {
            Some(packs) => packs.iter().any(|named| named.id == *pack),
            None => true,
        };
        self.packs.retain(|pack| !left.iter().any(|it| is_named(pack, it)));
    }
}

/// The generations that were found, as far as their manifests are listed now.
///
/// A backend may have lost a manifest although it had taken it. Such a generation does not count
/// among those that are kept. Its packs stay: a list may be behind.
#[derive(Debug, Clone)]
pub struct ListedGenerations {
    counted: Vec<FoundGeneration>,
    /// The packs of the others.
    unlisted: BTreeSet<PackId>,
}

impl ListedGenerations {
    /// Takes what was found, and the numbers that are listed now.
    #[must_use]
    pub fn new(found: &[FoundGeneration], listed: &BTreeSet<u64>) -> Self {
        let (counted, others): (Vec<_>, Vec<_>) =
            found.iter().cloned().partition(|it| listed.contains(&it.number));
        let packs = others.iter().flat_map(|it| it.packs.iter().flatten());
        Self { counted, unlisted: packs.map(|pack| pack.id).collect() }
    }

    /// Returns those that are listed.
    #[must_use]
    pub fn counted(&self) -> &[FoundGeneration] {
        &self.counted
    }

    /// Returns what to remove, as [`removal_plan`] does.
    #[must_use]
    pub fn removal_plan(
        &self,
        stored: &BTreeMap<PackId, u64>,
        keep: usize,
        durable: Option<&BTreeSet<u64>>,
    ) -> RemovalPlan {
        let mut plan = removal_plan(&self.counted, stored, keep, durable);
        plan.packs.retain(|pack| !self.unlisted.contains(pack));
        plan
    }

    /// Returns a generation that stays because what has its name cannot be removed. Without a
    /// manifest, as in place of which a directory is, it names no packs, and enough whole
    /// generations are newer. One that was not found may name any.
    #[must_use]
    pub fn stuck(&self, number: u64, has_manifest: bool) -> FoundGeneration {
        let found = self.counted.iter().find(|it| it.number == number);
        let packs = match has_manifest {
            true => found.and_then(|it| it.packs.clone()),
            false => Some(Vec::new()),
        };
        FoundGeneration { number, lock: None, packs, replaced_by: None }
    }
}

/// Returns what to remove so that the newest `keep` whole generations stay. Which is newer, their
/// [`GenerationRank`] decides.
///
/// `durable` has the numbers of the generations whose manifests the store of a durable directory
/// has, so that it has their packs, too; `None` below no durable directory. The newest whole one
/// of them and all later ones stay: what no store has may end with a machine that is killed.
///
/// One that a whole one replaces does not count, and goes unless it stays for that.
///
/// Generations that are not whole stay while they are newer than the oldest one that is kept:
/// their packs may come back, and they do not count. As long as one stays whose manifest cannot be
/// read, all packs do: it may be read later, and name any of them.
#[must_use]
pub fn removal_plan(
    found: &[FoundGeneration],
    stored: &BTreeMap<PackId, u64>,
    keep: usize,
    durable: Option<&BTreeSet<u64>>,
) -> RemovalPlan {
    assert!(keep > 0, "at least one generation is kept");
    let ranks = GenerationRank::of_all(found.iter().map(|it| (it.number, it.lock)));
    let rank = |number: u64| ranks[&number];
    let mut whole: Vec<u64> =
        found.iter().filter(|it| it.is_whole(stored)).map(|it| it.number).collect();
    whole.sort_unstable_by_key(|number| Reverse(rank(*number)));
    let safe = match durable {
        Some(durable) => whole.iter().find(|it| durable.contains(it)).map(|it| rank(*it)),
        None => Some(GenerationRank::MAX),
    };
    let is_newer = |by: u64, number: u64| whole.contains(&by) && rank(by) > rank(number);
    let replaced: BTreeSet<u64> = found
        .iter()
        .filter(|it| it.replaced_by.is_some_and(|by| is_newer(by, it.number)))
        .map(|it| it.number)
        .collect();
    let counted = whole.iter().copied().filter(|number| !replaced.contains(number));
    let Some(kept_from) = counted.take(keep).last().map(rank) else {
        // Without a whole generation nothing is known to be of no use.
        return RemovalPlan::default();
    };
    let is_unneeded = |number: u64| rank(number) < kept_from || replaced.contains(&number);
    let Some(safe) = safe else {
        // Without a durable one nothing has another place.
        let is_held_back = whole.iter().any(|number| is_unneeded(*number));
        return RemovalPlan { is_held_back, ..RemovalPlan::default() };
    };
    let is_held_back = whole.iter().any(|number| is_unneeded(*number) && rank(*number) >= safe);
    let (removed, kept): (Vec<_>, Vec<_>) =
        found.iter().cloned().partition(|it| is_unneeded(it.number) && rank(it.number) < safe);
    debug_assert!(kept.iter().any(|it| it.is_whole(stored)), "one that restores stays");
    let mut generations: Vec<u64> = removed.iter().map(|it| it.number).collect();
    generations.sort_unstable();
    RemovalPlan { generations, packs: unnamed_packs(&kept, stored), is_held_back }
}

/// Returns the packs that no generation names. Returns none if a manifest cannot be read, because
/// that one may name any pack.
#[must_use]
pub fn unnamed_packs(found: &[FoundGeneration], stored: &BTreeMap<PackId, u64>) -> Vec<PackId> {
    if found.iter().any(|it| it.packs.is_none()) {
        return Vec::new();
    }
    let named: BTreeSet<PackId> =
        found.iter().flat_map(|it| it.packs.iter().flatten()).map(|pack| pack.id).collect();
    stored.keys().filter(|id| !named.contains(id)).copied().collect()
}

/// Returns the packs whose chunks the next dump stores again: those of which the newest generation
/// uses less than half, and small ones if there are many.
#[must_use]
pub fn sparse_packs(newest: &CheckpointManifest) -> BTreeSet<PackId> {
    let mut used: BTreeMap<u32, BTreeMap<u32, u64>> = BTreeMap::new();
    for chunk in &newest.chunks {
        let bytes = u64::from(chunk.content.stored) + TAG_BYTES as u64;
        used.entry(chunk.pack).or_default().insert(chunk.offset, bytes);
    }
    let used_of = |number: usize| -> u64 {
        used.get(&(number as u32)).map_or(0, |chunks| chunks.values().sum())
    };
    let small = newest.packs.iter().filter(|pack| pack.bytes < SMALL_BYTES).count();
    let is_sparse = |(number, pack): (usize, &ManifestPack)| {
        let is_one_of_many = small > SMALL_MAX && pack.bytes < SMALL_BYTES;
        (is_one_of_many || used_of(number) * 2 < pack.bytes).then_some(pack.id)
    };
    newest.packs.iter().enumerate().filter_map(is_sparse).collect()
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::Instant;

    use super::super::chunk::ChunkName;
    use super::super::driver::DriverRecord;
    use super::super::manifest::{ChunkCodec, StoredChunk, StoredContent};
    use super::*;

    const fn id(number: u8) -> PackId {
        PackId([number; 32])
    }

    fn generation(number: u64, packs: &[u8]) -> FoundGeneration {
        let pack = |number: &u8| ManifestPack { id: id(*number), bytes: 10 };
        let packs = Some(packs.iter().map(pack).collect());
        FoundGeneration { number, lock: Some(1), packs, replaced_by: None }
    }

    const fn unreadable(number: u64) -> FoundGeneration {
        FoundGeneration { number, lock: None, packs: None, replaced_by: None }
    }

    fn stored(packs: &[u8]) -> BTreeMap<PackId, u64> {
        packs.iter().map(|number| (id(*number), 10)).collect()
    }

    #[test]
    fn newest_generations_and_their_packs_are_kept() {
        let found = [
            generation(1, &[1]),
            generation(2, &[1, 2]),
            generation(3, &[2, 3]),
            generation(4, &[4]),
        ];
        let plan = removal_plan(&found, &stored(&[1, 2, 3, 4, 9]), 2, None);
        assert_eq!(plan.generations, [1, 2]);
        assert_eq!(plan.packs, [id(1), id(9)]);
    }

    #[test]
    fn generation_of_a_runner_that_had_lost_the_lock_is_older_than_those_of_the_next_one() {
        let under = |lock, number, packs: &[u8]| {
            let lock = Some(lock);
            FoundGeneration { lock, ..generation(number, packs) }
        };
        let found = [under(1, 1, &[1]), under(2, 2, &[2]), under(1, 3, &[3])];
        let stored = stored(&[1, 2, 3]);
        let plan = removal_plan(&found, &stored, 1, None);
        assert_eq!((plan.generations, plan.packs), (vec![1, 3], vec![id(1), id(3)]));
        let plan = removal_plan(&found, &stored, 1, Some(&BTreeSet::from([1, 3])));
        assert_eq!(plan.generations, [1], "the store has no other one yet");
        assert!(plan.is_held_back);
        assert_eq!(removal_plan(&found, &stored, 2, None).generations, [1]);
    }

    #[test]
    fn newest_durable_generation_and_all_later_ones_are_kept() {
        let found: Vec<_> = (1..=5).map(|number| generation(number, &[number as u8])).collect();
        let stored = stored(&[1, 2, 3, 4, 5, 9]);
        let plan = |keep, durable: &[u64]| {
            removal_plan(&found, &stored, keep, Some(&durable.iter().copied().collect()))
        };
        let packs = vec![id(1), id(9)];
        let behind = RemovalPlan { generations: vec![1], packs, is_held_back: true };
        assert_eq!(plan(1, &[1, 2]), behind);
        assert_eq!(plan(2, &[1, 2, 3, 4, 5]).generations, [1, 2, 3]);
        // Before the store has one, no machine may be the only place of what is kept.
        assert_eq!(plan(1, &[]), RemovalPlan { is_held_back: true, ..RemovalPlan::default() });
        assert!(!plan(5, &[]).is_held_back && !plan(2, &[4]).is_held_back);
        // One of which a pack is gone restores nothing.
        let mut lost = stored.clone();
        lost.remove(&id(3));
        let durable = BTreeSet::from([1, 2, 3]);
        assert_eq!(removal_plan(&found, &lost, 1, Some(&durable)).generations, [1]);
    }

    #[test]
    fn generations_that_are_not_whole_do_not_count() {
        let found = [generation(1, &[1]), generation(2, &[2]), generation(3, &[8]), unreadable(4)];
        let plan = removal_plan(&found[..3], &stored(&[1, 2]), 1, None);
        assert_eq!(
            plan,
            RemovalPlan { generations: vec![1], packs: vec![id(1)], is_held_back: false }
        );
        let nothing = removal_plan(&found[2..], &stored(&[1, 2]), 1, None);
        assert_eq!(nothing, RemovalPlan::default());
    }

    #[test]
    fn packs_stay_while_a_generation_stays_whose_manifest_cannot_be_read() {
        let found = [generation(1, &[1]), generation(2, &[2]), unreadable(3), generation(4, &[4])];
        let stored = stored(&[1, 2, 3, 4]);
        let plan = removal_plan(&found, &stored, 2, None);
        assert_eq!(plan, RemovalPlan { generations: vec![1], ..RemovalPlan::default() });
        // As soon as enough whole ones are newer it goes, and with it what it may have named.
        let plan = removal_plan(&found, &stored, 1, None);
        assert_eq!(plan.generations, [1, 2, 3]);
        assert_eq!(plan.packs, [id(1), id(2), id(3)]);
    }

    #[test]
    fn packs_that_a_generation_may_name_stay_with_it_and_the_others_go() {
        let found = [generation(1, &[1, 2]), generation(2, &[2, 3]), generation(3, &[4])];
        let plan = |left: &[FoundGeneration]| {
            let mut plan = removal_plan(&found, &stored(&[1, 2, 3, 4, 9]), 1, None);
            plan.leave(left);
            (plan.generations, plan.packs)
        };
        assert_eq!(plan(&[]), (vec![1, 2], vec![id(1), id(2), id(3), id(9)]));
        assert_eq!(plan(&found[..1]), (vec![2], vec![id(3), id(9)]));
        assert_eq!(plan(&found[..2]), (vec![], vec![id(9)]));
        assert_eq!(plan(&[unreadable(1)]), (vec![2], vec![]));
        // One that is no manifest, such as a directory, names none.
        let none = FoundGeneration { packs: Some(vec![]), ..unreadable(1) };
        assert_eq!(plan(&[none]), (vec![2], vec![id(1), id(2), id(3), id(9)]));
    }

    #[test]
    fn generation_that_is_not_listed_does_not_count_and_its_packs_stay() {
        let found = [generation(1, &[1]), generation(2, &[2]), generation(3, &[3])];
        let stored = stored(&[1, 2, 3, 9]);
        let plan = |listed: &[u64]| {
            let listed = ListedGenerations::new(&found, &listed.iter().copied().collect());
            let plan = listed.removal_plan(&stored, 1, None);
            (plan.generations, plan.packs)
        };
        assert_eq!(plan(&[1, 2, 3]), (vec![1, 2], vec![id(1), id(2), id(9)]));
        assert_eq!(plan(&[1, 2]), (vec![1], vec![id(1), id(9)]), "the backend has lost 3");
        assert_eq!(plan(&[]), (vec![], vec![]));
    }

    #[test]
    fn packs_of_a_generation_that_cannot_be_removed_stay_unless_it_has_no_manifest() {
        let found = [generation(1, &[1]), generation(2, &[2])];
        let listed = ListedGenerations::new(&found, &BTreeSet::from([1, 2]));
        let plan = |stuck: &[FoundGeneration]| {
            let mut plan = listed.removal_plan(&stored(&[1, 2, 9]), 1, None);
            plan.leave(stuck);
            (plan.generations, plan.packs)
        };
        assert_eq!(plan(&[]), (vec![1], vec![id(1), id(9)]));
        assert_eq!(plan(&[listed.stuck(1, true)]), (vec![], vec![id(9)]));
        assert_eq!(plan(&[listed.stuck(1, false)]), (vec![], vec![id(1), id(9)]));
        assert_eq!(plan(&[listed.stuck(7, true)]), (vec![1], vec![]), "it may name any");
    }

    #[test]
    fn generation_that_was_stored_again_does_not_count_and_goes_when_the_new_one_is_safe() {
        let replaced = FoundGeneration { replaced_by: Some(3), ..generation(2, &[1, 2]) };
        let found = [generation(1, &[1]), replaced, generation(3, &[2, 3]), generation(4, &[4])];
        let all = stored(&[1, 2, 3, 4]);
        let plan = |keep, durable: &[u64]| {
            removal_plan(&found, &all, keep, Some(&durable.iter().copied().collect()))
        };
        // No other one goes in its place.
        let one = RemovalPlan { generations: vec![2], ..RemovalPlan::default() };
        assert_eq!(removal_plan(&found, &all, 3, None), one);
        assert_eq!(removal_plan(&found, &all, 100, None), one);
        let two = RemovalPlan { generations: vec![1, 2], packs: vec![id(1)], is_held_back: false };
        assert_eq!(removal_plan(&found, &all, 2, None), two);
        assert_eq!(plan(2, &[1, 2, 3]), two);
        // The store has it alone, or none.
        let first = RemovalPlan { generations: vec![1], packs: vec![], is_held_back: true };
        assert_eq!(plan(2, &[1, 2]), first);
        let held = RemovalPlan { is_held_back: true, ..RemovalPlan::default() };
        assert_eq!(plan(100, &[1, 2]), held);
        assert_eq!(plan(100, &[]), held);
        // Without a pack of the new one it counts.
        let lost = stored(&[1, 2, 4]);
        assert_eq!(removal_plan(&found, &lost, 3, None), RemovalPlan::default());
    }

    #[test]
    fn packs_without_a_name_are_found_if_each_manifest_can_be_read() {
        let found = [generation(1, &[1]), generation(2, &[1, 7])];
        assert_eq!(unnamed_packs(&found, &stored(&[1, 2, 7, 9])), [id(2), id(9)]);
        assert_eq!(unnamed_packs(&[], &stored(&[1])), [id(1)]);
        assert_eq!(unnamed_packs(&[generation(1, &[1]), unreadable(3)], &stored(&[1, 2])), []);
    }

    #[test]
    fn fewer_generations_than_are_kept_stay() {
        let plan = removal_plan(&[generation(1, &[1])], &stored(&[1]), 3, None);
        assert_eq!(plan, RemovalPlan::default());
        assert_eq!(removal_plan(&[], &stored(&[1]), 3, None), RemovalPlan::default());
    }

    #[test]
    fn sparse_and_many_small_packs_are_rewritten() {
        let pack = |number, bytes| ManifestPack { id: id(number), bytes };
        let chunk = |position: u32, pack, bytes| {
            let (name, offset) = (ChunkName([0; 32]), position * 70_000);
            let content = StoredContent { bytes, stored: bytes, codec: ChunkCodec::Plain };
            StoredChunk { position, name, pack, offset, content }
        };
        let mut manifest = CheckpointManifest {
            task: "t".to_owned(),
            generation: 1,
            taken_at: Instant(0),
            driver: DriverRecord::Hook,
            stream_bytes: 1 << 20,
            added_bytes: 0,
            packs: vec![pack(1, 100_000), pack(2, 60_000)],
            chunks: vec![chunk(0, 0, 40_000), chunk(1, 1, 40_000)],
            lock: 0,
        };
        assert_eq!(sparse_packs(&manifest), BTreeSet::from([id(1)]));
        manifest.packs = (0..9).map(|number| pack(number, 20)).collect();
        manifest.packs[0].bytes = SMALL_BYTES;
        manifest.chunks = (0..9).map(|number| chunk(number, number, 4)).collect();
        assert_eq!(sparse_packs(&manifest), BTreeSet::from([id(0)]));
        manifest.packs.push(pack(9, 20));
        manifest.chunks.push(chunk(9, 9, 4));
        assert_eq!(sparse_packs(&manifest).len(), 10);
    }
}
