//! Adopting a store whose calls are late, lost or answered in vain.

use sanderling_protocol::message::{AdoptionStep, StoreSlice};

use super::*;

/// Objects in one slice.
const SLICE: usize = 3;

impl Store {
    /// Takes a store over, or lists a part of it.
    pub(super) fn adopt(&self, step: &AdoptionStep, settles_in: Millis) -> (StoreSlice, Millis) {
        let AdoptionStep::List(after) = step else { return (StoreSlice::default(), settles_in) };
        let left = self.objects.iter().filter(|(name, _)| *name > after);
        let mut objects: Vec<(String, u64)> =
            left.map(|(name, bytes)| (name.clone(), bytes.length())).collect();
        let is_more = objects.len() > SLICE;
        objects.truncate(SLICE);
        let next = objects.last().map(|(name, _)| name.clone()).filter(|_| is_more);
        (StoreSlice { objects, next, ..StoreSlice::default() }, Millis(0))
    }
}

impl World {
    /// Makes the directory anew, of a store that has objects.
    fn adopting(seed: u64) -> Self {
        let mut world = Self::new(seed, None);
        let place: Path = "/out".parse().expect("a path");
        world.log(Action::Delete { path: place.clone(), recursive: true }).expect("deleted");
        for number in 0..world.draw.below(20) {
            let name = format!("{}/{number}", ["a", "b/c", "b.c"][number as usize % 3]);
            let bytes = Content::new(1, world.draw.below(3_000_000));
            world.store.objects.insert(name, bytes);
        }
        let made = MakeDurable {
            path: place,
            store: "s".to_owned(),
            parents: false,
            backlog_bytes_max: 1 << 20,
            adopt: true,
        };
        world.log(Action::Durable(Box::new(DurableAction::Make(made)))).expect("made");
        world
    }

    fn sizes(&self) -> BTreeMap<String, u64> {
        let objects = self.listed();
        assert!(objects.values().all(|entry| entry.lost_bytes == 0), "{objects:?}");
        objects.into_iter().map(|(name, entry)| (name, entry.bytes)).collect()
    }

    /// Returns whether the whole store was adopted.
    fn is_adopted(&self) -> bool {
        self.work().0.iter().all(|work| work.adoption.is_none())
    }

    fn adopt(&mut self) {
        for round in 0..400 {
            if round < 40 && self.draw.below(12) == 0 {
                self.lead();
            }
            self.now = self.now + Millis(self.draw.below(3000));
            self.renew();
            self.be_late().expect("nothing is changed");
            self.drain.handle_deadline(self.now);
            self.view();
            self.drain_once(round < 40).expect("nothing is changed");
            let missing = self.catalog.stat(&path("missing"), self.now);
            match self.is_adopted() {
                true => assert!(matches!(missing, Err(Refusal::NotFound { .. })), "{missing:?}"),
                false => assert!(matches!(missing, Err(Refusal::RetryAfter { .. })), "{missing:?}"),
            }
        }
    }
}

#[test]
fn adopted_directory_has_what_the_store_has_and_nothing_is_missing_before() {
    for seed in 0..300 {
        let mut world = World::adopting(seed);
        let store = world.store.objects.clone();
        world.adopt();
        assert!(world.is_adopted(), "seed {seed}: it does not end");
        let expected = store.iter().map(|(name, bytes)| (name.clone(), bytes.length()));
        assert_eq!(world.sizes(), expected.collect(), "seed {seed}");
        assert!(world.store.objects == store, "seed {seed}: the store has changed");
        let fsck = world.catalog.fsck();
        assert_eq!(fsck.problems, Vec::<String>::new(), "seed {seed}");
        assert_eq!(fsck.lost_blocks, 0, "seed {seed}");
    }
}

#[test]
fn bytes_of_an_adopted_object_are_read_back_for_its_first_reader_only() {
    let mut world = World::adopting(1);
    let (x, y) = (Content::new(1, 5), Content::new(2, 9));
    world.store.objects = [("x".to_owned(), x), ("y".to_owned(), y)].into();
    world.adopt();
    let read = sanderling_protocol::Request::Lookup { path: path("y"), offset: 0, bytes: 9 };
    let wanted = world.catalog.unwanted_of(&read);
    assert_eq!(wanted.len(), 1);
    assert!(world.catalog.durable_losses().is_empty(), "nothing is read back by itself");
    let want = Action::Durable(Box::new(DurableAction::Want { objects: wanted }));
    let refused = world.log(want);
    assert!(matches!(refused, Err(Refusal::RetryAfter { .. })), "{refused:?}");
    assert!(world.catalog.unwanted_of(&read).is_empty());
    let losses = world.catalog.durable_losses();
    let [loss] = losses.as_slice() else { panic!("{losses:?}") };
    assert_eq!((loss.key.as_str(), loss.bytes, loss.blocks.len()), ("y", 9, 1));
}
