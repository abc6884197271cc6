//! From the hash of a name to the object that may have it.
//!
//! Open addressing with eight bytes an entry: 46 bits of the object's id and 18 bits of the hash.
//! Those 18 bits are also the entry's place, so neither growing nor removing looks at an object,
//! and a look-up looks at another's rarely. The order of the entries is never seen.

use sanderling_protocol::ObjectId;

/// Parts, each of which grows by itself, so that no insertion waits for all of them: a part of a
/// million names has a thousand. More than [`TAG_BITS`] allows would be 200 million objects, which
/// take 75 GB of memory.
const SHARDS: usize = 1024;

/// Bits of an id. At 300,000 objects a second they last seven years. A million starts of a namenode
/// that is never away take less than all of them (`SKIP_MIN` of `history` each).
pub(crate) const ID_BITS: u32 = 46;

/// Bits of the hash that are kept.
const TAG_BITS: u32 = 64 - ID_BITS;

/// Slots of a part that has any. 64 bytes, a line of a processor's cache.
const SLOTS_MIN: usize = 8;

/// A hashed name.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Hash(u64);

/// Ids by the hashes of their names.
#[derive(Debug, Clone)]
pub(crate) struct Index {
    shards: Vec<Shard>,
    length: usize,
}

/// A part: 0 is an empty slot, and no object has the id 0.
#[derive(Debug, Clone, Default)]
struct Shard {
    slots: Vec<u64>,
    used: usize,
}

impl Hash {
    /// Hashes a name in a container by folded multiplication, as wyhash does (W. Yi, "wyhash",
    /// final version 4): eight bytes a step, then the rest with the length.
    pub(crate) fn of(seed: u64, container: ObjectId, name: &[u8]) -> Self {
        /// The first three secrets of wyhash, final version 4 (`_wyp` of its source): odd, with 32
        /// bits that are set.
        const ODD: [u64; 3] = [0x2d35_8dcc_aa6c_78a5, 0x8bb8_4b93_962e_acc9, 0x4b33_a62e_d433_d4a3];
        let mut hash = fold(seed ^ container.0, ODD[0]);
        let (words, rest) = name.as_chunks::<8>();
        for word in words {
            hash = fold(hash ^ u64::from_le_bytes(*word), ODD[1]);
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        last[7] = name.len() as u8;
        Self(fold(hash ^ u64::from_le_bytes(last), ODD[2]))
    }

    const fn shard(self) -> usize {
        self.0 as usize % SHARDS
    }

    /// Returns the bucket, of `count`, to which the key belongs; `count` is 256 at most.
    pub(crate) const fn bucket(self, count: u64) -> u8 {
        (self.0 % count) as u8
    }

    const fn tag(self) -> u64 {
        self.0 >> ID_BITS
    }
}

const fn fold(left: u64, right: u64) -> u64 {
    let product = left as u128 * right as u128;
    product as u64 ^ (product >> 64) as u64
}

impl Index {
    pub(crate) const fn new() -> Self {
        Self { shards: Vec::new(), length: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.length
    }

    /// Returns the first id with that hash that is the one meant.
    pub(crate) fn find(
        &self,
        hash: Hash,
        mut is_it: impl FnMut(ObjectId) -> bool,
    ) -> Option<ObjectId> {
        let shard = self.shards.get(hash.shard())?;
        shard.find(hash.tag(), |id| is_it(ObjectId(id))).map(|(_, id)| ObjectId(id))
    }

    pub(crate) fn insert(&mut self, hash: Hash, id: ObjectId) {
        assert!(id.0 > 0 && id.0 >> ID_BITS == 0, "object {id} is beyond the index's ids");
        if self.shards.is_empty() {
            self.shards.resize_with(SHARDS, Shard::default);
        }
        let shard = &mut self.shards[hash.shard()];
        if (shard.used + 1) * 4 > shard.slots.len() * 3 {
            shard.resize((shard.slots.len() * 2).max(SLOTS_MIN));
        }
        shard.put(hash.tag() << ID_BITS | id.0);
        shard.used += 1;
        self.length += 1;
    }

    pub(crate) fn remove(&mut self, hash: Hash, id: ObjectId) {
        let Some(shard) = self.shards.get_mut(hash.shard()) else { return };
        let Some((place, _)) = shard.find(hash.tag(), |it| it == id.0) else { return };
        shard.clear(place);
        shard.used -= 1;
        self.length -= 1;
        if shard.slots.len() > SLOTS_MIN && shard.used * 8 < shard.slots.len() {
            shard.resize((shard.slots.len() / 4).max(SLOTS_MIN));
        }
    }
}

impl Shard {
    const fn mask(&self) -> usize {
        self.slots.len().wrapping_sub(1)
    }

    fn home(&self, slot: u64) -> usize {
        (slot >> ID_BITS) as usize & self.mask()
    }

    fn find(&self, tag: u64, mut is_it: impl FnMut(u64) -> bool) -> Option<(usize, u64)> {
        let mut place = tag as usize & self.mask();
        loop {
            let slot = *self.slots.get(place)?;
            if slot == 0 {
                return None;
            }
            let id = slot & ((1 << ID_BITS) - 1);
            if slot >> ID_BITS == tag && is_it(id) {
                return Some((place, id));
            }
            place = (place + 1) & self.mask();
        }
    }

    fn put(&mut self, slot: u64) {
        let mut place = self.home(slot);
        while self.slots[place] != 0 {
            place = (place + 1) & self.mask();
        }
        self.slots[place] = slot;
    }

    /// Empties a slot and moves those behind it up, so that a search ends at the first empty one.
    fn clear(&mut self, place: usize) {
        let (mut hole, mut at) = (place, place);
        loop {
            at = (at + 1) & self.mask();
            let slot = self.slots[at];
            if slot == 0 {
                break;
            }
            let from_home = at.wrapping_sub(self.home(slot)) & self.mask();
            if from_home >= at.wrapping_sub(hole) & self.mask() {
                self.slots[hole] = slot;
                hole = at;
            }
        }
        self.slots[hole] = 0;
    }

    fn resize(&mut self, slots: usize) {
        assert!(slots <= 1 << TAG_BITS, "a part of the index has {slots} slots");
        let old = std::mem::replace(&mut self.slots, vec![0; slots]);
        for slot in old.into_iter().filter(|slot| *slot != 0) {
            self.put(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_finds_what_is_there_and_nothing_else(
            steps in proptest::collection::vec((any::<bool>(), 1..300_u64), 0..2000)
        ) {
            // Few hashes, so that many ids share parts, places and tags.
            let hash = |id: u64| Hash((id % 7) << ID_BITS | (id % 3));
            let (mut index, mut model) = (Index::new(), BTreeMap::new());
            for (is_in, id) in steps {
                if is_in && !model.contains_key(&id) {
                    index.insert(hash(id), ObjectId(id));
                    model.insert(id, ());
                } else if !is_in {
                    index.remove(hash(id), ObjectId(id));
                    model.remove(&id);
                }
                prop_assert_eq!(index.len(), model.len());
            }
            for id in 1..300 {
                let found = index.find(hash(id), |it| it.0 == id).is_some();
                prop_assert_eq!(found, model.contains_key(&id));
            }
        }
    }

    #[test]
    fn it_gives_memory_back_and_spreads_names() {
        let mut index = Index::new();
        let hash = |id: u64| Hash::of(9, ObjectId(1), format!("f{id:06}").as_bytes());
        for id in 1..=100_000 {
            index.insert(hash(id), ObjectId(id));
        }
        let largest = index.shards.iter().map(|shard| shard.used).max();
        assert!(largest < Some(150), "{largest:?} of a hundred on average");
        for id in 1..=100_000 {
            assert_eq!(index.find(hash(id), |it| it.0 == id), Some(ObjectId(id)));
            index.remove(hash(id), ObjectId(id));
        }
        assert_eq!(index.shards.iter().map(|it| it.slots.len()).max(), Some(SLOTS_MIN));
    }

    #[test]
    fn names_that_share_a_part_under_one_key_are_spread_under_another() {
        let hash = |key, name: u64| Hash::of(key, ObjectId(1), &name.to_le_bytes());
        let chosen: Vec<u64> = (0..2_000_000).filter(|it| hash(7, *it).shard() == 0).collect();
        assert!(chosen.len() > 1_800);
        let mut parts = [0; SHARDS];
        for name in &chosen {
            parts[hash(8, *name).shard()] += 1;
        }
        assert!(parts.iter().max() < Some(&20), "two in each part on average");
    }
}
