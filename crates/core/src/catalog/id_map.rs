//! A map whose keys count upwards: objects and blocks by their ids.
//!
//! Entries of 64 consecutive ids lie together in one page, packed, with a bit for each that is
//! there. A look-up is three steps and no search, an entry costs its own size, and the order is
//! that of the ids. 64 pages are a group. Groups are shared by clones and copied when one of them
//! is written to, so a clone of a million entries, as a snapshot takes it, costs microseconds, and
//! the first change in a group afterwards about a millisecond. 4096 groups are a chunk: every start
//! of a namenode skips many ids, and a chunk that holds no entry costs one word.

use std::marker::PhantomData;
use std::ops::Index;
use std::sync::Arc;

use sanderling_protocol::{BlockId, ObjectId};
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::index::ID_BITS;

/// Ids of one page: as many as a word has bits.
const PAGE_IDS: u64 = 64;

/// Pages of one group. Groups whose last entry went cost one word each. Their pages' heads lie
/// together: a look-up among millions waits for memory, so it should touch few places of it.
const GROUP_PAGES: usize = 64;

/// Groups of one chunk: 16 million ids, and 32 KiB where any of them exists.
const CHUNK_GROUPS: usize = 4096;

/// A number of which the next one is one higher, so that a page holds neighbours.
pub(crate) trait Id: Copy {
    fn number(self) -> u64;
    fn of(number: u64) -> Self;
}

impl Id for ObjectId {
    fn number(self) -> u64 {
        self.0
    }

    fn of(number: u64) -> Self {
        Self(number)
    }
}

impl Id for BlockId {
    fn number(self) -> u64 {
        self.0
    }

    fn of(number: u64) -> Self {
        Self(number)
    }
}

/// Entries by id.
#[derive(Debug, Clone)]
pub(crate) struct IdMap<K, V> {
    chunks: Vec<Option<Box<Chunk<V>>>>,
    length: usize,
    key: PhantomData<K>,
}

#[derive(Debug, Clone)]
struct Chunk<V> {
    /// Groups that exist.
    present: usize,
    /// In the chunk itself: what lies behind another pointer is another wait for memory.
    groups: [Option<Arc<PageGroup<V>>>; CHUNK_GROUPS],
}

#[derive(Debug, Clone)]
struct PageGroup<V> {
    pages: [MapPage<V>; GROUP_PAGES],
    /// Entries of all pages.
    length: usize,
}

#[derive(Debug, Clone)]
struct MapPage<V> {
    /// One bit for each id whose entry is there.
    bits: u64,
    /// The entries, in the order of their ids.
    entries: Vec<V>,
}

/// Where an id's entry is.
struct At {
    chunk: usize,
    group: usize,
    page: usize,
    bit: u64,
}

impl At {
    const fn of(number: u64) -> Self {
        let page = number / PAGE_IDS;
        let group = page / GROUP_PAGES as u64;
        Self {
            chunk: (group / CHUNK_GROUPS as u64) as usize,
            group: (group % CHUNK_GROUPS as u64) as usize,
            page: (page % GROUP_PAGES as u64) as usize,
            bit: 1 << (number % PAGE_IDS),
        }
    }
}

impl<V> Chunk<V> {
    fn empty() -> Self {
        Self { present: 0, groups: [const { None }; CHUNK_GROUPS] }
    }
}

impl<V> MapPage<V> {
    const EMPTY: Self = Self { bits: 0, entries: Vec::new() };

    const fn rank(&self, bit: u64) -> usize {
        (self.bits & (bit - 1)).count_ones() as usize
    }
}

impl<K: Id, V> IdMap<K, V> {
    pub(crate) const fn new() -> Self {
        Self { chunks: Vec::new(), length: 0, key: PhantomData }
    }

    pub(crate) const fn len(&self) -> usize {
        self.length
    }

    pub(crate) fn get(&self, id: &K) -> Option<&V> {
        let at = At::of(id.number());
        let chunk = self.chunks.get(at.chunk)?.as_ref()?;
        let page = &chunk.groups[at.group].as_ref()?.pages[at.page];
        if page.bits & at.bit == 0 {
            return None;
        }
        page.entries.get(page.rank(at.bit))
    }

    /// Returns whether an entry of that id would make the map no larger than its ids have made it.
    pub(crate) fn reaches(&self, id: K) -> bool {
        At::of(id.number()).chunk < self.chunks.len()
    }

    pub(crate) fn contains_key(&self, id: &K) -> bool {
        self.get(id).is_some()
    }

    /// Returns all entries in the order of their ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        let chunks = self.chunks.iter().enumerate();
        let chunks = chunks.filter_map(|(place, chunk)| Some((place, chunk.as_ref()?)));
        let groups = chunks.flat_map(|(place, chunk)| {
            let groups = chunk.groups.iter().enumerate();
            groups
                .filter_map(move |(group, it)| Some((place * CHUNK_GROUPS + group, it.as_ref()?)))
                // A small map does not look through the thousands of places behind its last group.
                .take(chunk.present)
        });
        let pages = groups.flat_map(|(group, pages)| {
            let pages = pages.pages.iter().enumerate();
            pages.map(move |(page, it)| (group * GROUP_PAGES + page, it))
        });
        pages.flat_map(|(place, page)| {
            let mut bits = page.bits;
            page.entries.iter().map(move |entry| {
                let number = place as u64 * PAGE_IDS + u64::from(bits.trailing_zeros());
                bits &= bits - 1;
                (K::of(number), entry)
            })
        })
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = K> {
        self.iter().map(|(id, _)| id)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, entry)| entry)
    }
}

impl<K: Id, V: Clone> IdMap<K, V> {
    pub(crate) fn get_mut(&mut self, id: &K) -> Option<&mut V> {
        let at = At::of(id.number());
        let chunk = self.chunks.get_mut(at.chunk)?.as_mut()?;
        let group = Arc::make_mut(chunk.groups[at.group].as_mut()?);
        let page = &mut group.pages[at.page];
        if page.bits & at.bit == 0 {
            return None;
        }
        let rank = page.rank(at.bit);
        page.entries.get_mut(rank)
    }

    pub(crate) fn insert(&mut self, id: K, entry: V) -> Option<V> {
        let at = At::of(id.number());
        if self.chunks.len() <= at.chunk {
            self.chunks.resize_with(at.chunk + 1, || None);
        }
        let chunk = self.chunks[at.chunk].get_or_insert_with(|| Box::new(Chunk::empty()));
        let empty =
            || Arc::new(PageGroup { pages: [const { MapPage::EMPTY }; GROUP_PAGES], length: 0 });
        chunk.present += usize::from(chunk.groups[at.group].is_none());
        let group = Arc::make_mut(chunk.groups[at.group].get_or_insert_with(empty));
        let page = &mut group.pages[at.page];
        let rank = page.rank(at.bit);
        if page.bits & at.bit != 0 {
            return Some(std::mem::replace(&mut page.entries[rank], entry));
        }
        page.bits |= at.bit;
        page.entries.insert(rank, entry);
        group.length += 1;
        self.length += 1;
        None
    }

    pub(crate) fn remove(&mut self, id: &K) -> Option<V> {
        let at = At::of(id.number());
        let chunk_slot = self.chunks.get_mut(at.chunk)?;
        let chunk = chunk_slot.as_mut()?;
        let slot = &mut chunk.groups[at.group];
        let group = Arc::make_mut(slot.as_mut()?);
        let page = &mut group.pages[at.page];
        if page.bits & at.bit == 0 {
            return None;
        }
        let removed = page.entries.remove(page.rank(at.bit));
        page.bits &= !at.bit;
        if page.bits == 0 {
            *page = MapPage::EMPTY;
        } else if page.entries.len() * 4 <= page.entries.capacity() {
            // The few that stay of many must not keep the memory of all.
            page.entries.shrink_to(page.entries.len() * 2);
        }
        group.length -= 1;
        self.length -= 1;
        if group.length == 0 {
            *slot = None;
            chunk.present -= 1;
            if chunk.present == 0 {
                *chunk_slot = None;
            }
        }
        Some(removed)
    }
}

impl<K: Id, V> Default for IdMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Id, V> Index<&K> for IdMap<K, V> {
    type Output = V;

    fn index(&self, id: &K) -> &V {
        self.get(id).expect("the catalog names what exists")
    }
}

impl<K: Id + PartialEq, V: PartialEq> PartialEq for IdMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.length == other.length && self.iter().eq(other.iter())
    }
}

impl<K: Id + Eq, V: Eq> Eq for IdMap<K, V> {}

impl<K: Id + Serialize, V: Serialize> Serialize for IdMap<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let mut map = serializer.serialize_map(Some(self.length))?;
        for (id, entry) in self.iter() {
            map.serialize_entry(&id, entry)?;
        }
        map.end()
    }
}

impl<'de, K: Id + Deserialize<'de>, V: Clone + Deserialize<'de>> Deserialize<'de> for IdMap<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Entries(PhantomData))
    }
}

/// Reads the entries of a serialised map.
struct Entries<K, V>(PhantomData<(K, V)>);

impl<'de, K: Id + Deserialize<'de>, V: Clone + Deserialize<'de>> Visitor<'de> for Entries<K, V> {
    type Value = IdMap<K, V>;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("entries by id")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
        let mut map = IdMap::new();
        while let Some((id, entry)) = access.next_entry::<K, V>()? {
            // There is a word for each chunk before it: no memory has room for those of any number.
            if id.number() == 0 || id.number() >> ID_BITS > 0 {
                return Err(A::Error::custom(format!("{} is no id", id.number())));
            }
            map.insert(id, entry);
        }
        Ok(map)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use sanderling_protocol::Refusal;
    use sanderling_protocol::frame::{decode_body, encode_body};

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Insert(u64, u32),
        Remove(u64),
        Change(u64, u32),
        Clone,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let edge = (GROUP_PAGES * CHUNK_GROUPS) as u64 * PAGE_IDS;
        let id = move || {
            prop_oneof![
                0..200_u64,
                32_700..32_900_u64,
                1_000_000..1_000_010_u64,
                edge - 5..edge + 5,
                (1 << 40)..(1 << 40) + 5_u64,
            ]
        };
        let step = prop_oneof![
            (id(), any::<u32>()).prop_map(|(id, entry)| Step::Insert(id, entry)),
            id().prop_map(Step::Remove),
            (id(), any::<u32>()).prop_map(|(id, entry)| Step::Change(id, entry)),
            Just(Step::Clone),
        ];
        proptest::collection::vec(step, 0..400)
    }

    proptest! {
        // One case makes hundreds of maps with a place for each chunk up to id 2^40.
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn it_is_the_sorted_map_and_clones_keep_what_they_saw(steps in steps()) {
            let mut map: IdMap<ObjectId, u32> = IdMap::new();
            let mut model: BTreeMap<u64, u32> = BTreeMap::new();
            let mut clones = Vec::new();
            for step in steps {
                match step {
                    Step::Insert(id, entry) => {
                        prop_assert_eq!(map.insert(ObjectId(id), entry), model.insert(id, entry));
                    }
                    Step::Remove(id) => {
                        prop_assert_eq!(map.remove(&ObjectId(id)), model.remove(&id));
                    }
                    Step::Change(id, entry) => {
                        let (ours, theirs) = (map.get_mut(&ObjectId(id)), model.get_mut(&id));
                        prop_assert_eq!(ours.is_some(), theirs.is_some());
                        if let (Some(ours), Some(theirs)) = (ours, theirs) {
                            (*ours, *theirs) = (entry, entry);
                        }
                    }
                    Step::Clone => clones.push((map.clone(), model.clone())),
                }
            }
            clones.push((map, model));
            for (map, model) in clones {
                prop_assert_eq!(map.len(), model.len());
                let entries: Vec<(u64, u32)> = map.iter().map(|(id, it)| (id.0, *it)).collect();
                let expected: Vec<(u64, u32)> = model.iter().map(|(id, it)| (*id, *it)).collect();
                prop_assert_eq!(entries, expected);
                prop_assert!(model.keys().all(|id| map.contains_key(&ObjectId(*id))));
            }
        }
    }

    #[test]
    fn maps_are_equal_only_if_they_hold_the_same() {
        let of = |entries: &[(u64, u8)]| {
            let mut map: IdMap<BlockId, u8> = IdMap::new();
            for (id, entry) in entries {
                map.insert(BlockId(*id), *entry);
            }
            map
        };
        let map = of(&[(1, 1), (70_000, 2)]);
        let mut same = of(&[(1_000_000, 3), (70_000, 2), (1, 1)]);
        assert!(map != same, "one more");
        same.remove(&BlockId(1_000_000));
        assert!(map == same);
        assert!(map != of(&[(1, 1), (70_001, 2)]), "another id");
        assert!(map != of(&[(1, 1), (70_000, 3)]), "another entry");
    }

    #[test]
    fn ids_that_are_never_given_out_are_refused_when_a_map_is_read() {
        let read = |id: u64| -> Result<IdMap<BlockId, u8>, Refusal> {
            let written: BTreeMap<u64, u8> = [(id, 7)].into();
            decode_body(&encode_body(&written))
        };
        for id in [1, (1 << ID_BITS) - 1] {
            assert_eq!(read(id).unwrap().get(&BlockId(id)), Some(&7));
        }
        for id in [0, 1 << ID_BITS, u64::MAX] {
            assert!(read(id).is_err(), "{id}");
        }
    }

    #[test]
    fn it_grows_with_what_it_holds_not_with_the_ids_given_out() {
        let mut map: IdMap<BlockId, u8> = IdMap::new();
        for id in 0..100_000 {
            map.insert(BlockId(id), 0);
            map.remove(&BlockId(id.saturating_sub(10)));
        }
        assert_eq!(map.len(), 10);
        let groups = map.chunks.iter().flatten().flat_map(|chunk| chunk.groups.iter().flatten());
        assert!(groups.count() <= 2);
        for id in 0..100_000 {
            map.remove(&BlockId(id));
        }
        assert!(map.chunks.iter().flatten().next().is_none());
    }
}
