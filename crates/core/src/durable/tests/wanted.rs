//! Which objects of adopted stores are read back: for how long, of which directory first, and into
//! which nodes.

use sanderling_protocol::Request;
use sanderling_protocol::frame::{decode_body, encode_body};
use sanderling_protocol::message::{Adopted, AdoptionStep, StoreSlice};

use super::*;

/// How long the catalog has an object read back after its last reader.
const READER_WAITS: Millis = Millis(60_000);

impl World {
    /// Makes a directory of a store that has these objects.
    fn adopt_all(&mut self, name: &str, store: &str, objects: &[(&str, u64)]) {
        for node in [NodeId(1), NodeId(2)] {
            let stores = vec!["s".to_owned(), "t".to_owned()];
            let serves = DurableAction::ServeStores { node, stores };
            self.log(Action::Durable(Box::new(serves))).expect("reported");
        }
        let made = MakeDurable {
            path: name.parse().expect("a path"),
            store: store.to_owned(),
            parents: false,
            backlog_bytes_max: 1 << 20,
            adopt: true,
        };
        self.log(Action::Durable(Box::new(DurableAction::Make(made)))).expect("made");
        let work = self.work().0;
        let found = work.iter().find(|work| work.store == store).expect("it is durable");
        let directory = found.directory;
        let objects = objects.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect();
        let slice = StoreSlice { objects, ..StoreSlice::default() };
        let take = (AdoptionStep::Take, StoreSlice::default());
        for (step, slice) in [take, (AdoptionStep::List(String::new()), slice)] {
            let adopted = vec![Adopted { directory, step, slice }];
            let progress = DurableProgress { adopted, ..DurableProgress::default() };
            let holder = self.holder;
            let progress = DurableAction::Progress { holder, progress };
            self.log(Action::Durable(Box::new(progress))).expect("it leads");
        }
    }

    /// Reads an object as a client does. Returns whether that was logged.
    fn read(&mut self, name: &str) -> bool {
        let path = name.parse().expect("a path");
        let objects = self.catalog.unwanted_of(&Request::Lookup { path, offset: 0, bytes: 1 });
        let is_logged = !objects.is_empty();
        if is_logged {
            let refused = self.log(Action::Durable(Box::new(DurableAction::Want { objects })));
            assert!(matches!(refused, Err(Refusal::RetryAfter { .. })), "{refused:?}");
        }
        is_logged
    }

    fn pass(&mut self, span: Millis) {
        self.now = self.now + span;
        self.renew();
    }

    /// Returns the names of what is to be read back, in order.
    fn lost(&self) -> Vec<String> {
        self.catalog.durable_losses().into_iter().map(|loss| loss.key).collect()
    }

    /// Reads everything back that the store has.
    fn read_back(&mut self) {
        for _ in 0..20 {
            self.view();
            self.drain_once(false).expect("nothing is changed");
        }
    }

    fn is_stalled(&self) -> bool {
        self.catalog.durable_backlogs(self.now).iter().any(|backlog| backlog.is_stalled)
    }

    /// Makes a cluster without a durable directory.
    fn with_stores() -> Self {
        let mut world = Self::new(1, None);
        let path: Path = "/out".parse().expect("a path");
        world.log(Action::Delete { path, recursive: true }).expect("deleted");
        world
    }
}

#[test]
fn object_is_read_back_until_its_last_reader_has_been_gone_for_a_while() {
    let mut world = World::with_stores();
    world.adopt_all("/out", "s", &[("x", 5), ("y", 9)]);
    assert!(world.read("/out/x"));
    assert!(!world.read("/out/x"), "one that tries again at once is not logged");
    world.pass(Millis(READER_WAITS.0 / 2));
    assert!(world.read("/out/x"), "one that still waits is logged again");
    world.pass(Millis(READER_WAITS.0 / 2));
    assert_eq!(world.lost(), ["x"]);
    world.pass(Millis(READER_WAITS.0 / 2));
    assert_eq!(world.lost(), Vec::<String>::new());
    assert!(world.read("/out/y"));
    assert_eq!(world.lost(), ["y"]);
    assert!(world.read("/out/x"), "a reader that comes later has it read back again");
    assert_eq!(world.lost(), ["x", "y"]);
}

#[test]
fn bytes_that_were_lost_with_a_node_are_read_back_without_a_reader() {
    let mut world = World::with_stores();
    world.adopt_all("/out", "s", &[("x", 5)]);
    world.store.objects.insert("x".to_owned(), Content::new(1, 5));
    assert!(world.read("/out/x"));
    world.read_back();
    assert_eq!(world.lost(), Vec::<String>::new());
    let dead = Action::NodeDead { node: NodeId(1), why: "it is silent".to_owned() };
    world.log(dead).expect("taken");
    assert_eq!(world.lost(), ["x"]);
    world.pass(Millis(READER_WAITS.0 * 2));
    assert_eq!(world.lost(), ["x"]);
}

#[test]
fn snapshot_has_readers_wait_anew_and_losses_for_good() {
    let mut world = World::with_stores();
    world.adopt_all("/out", "s", &[("x", 5), ("y", 5)]);
    world.store.objects.insert("x".to_owned(), Content::new(1, 5));
    assert!(world.read("/out/x"));
    world.read_back();
    assert_eq!(world.lost(), Vec::<String>::new());
    let dead = Action::NodeDead { node: NodeId(1), why: "it is silent".to_owned() };
    world.log(dead).expect("taken");
    assert!(world.read("/out/y"));
    let image = encode_body(&world.catalog.image());
    let read: Catalog = decode_body(&image).expect("it was written so");
    world.catalog = read.restored();
    // What a reader waits for is first.
    assert_eq!(world.lost(), ["y", "x"]);
    world.pass(READER_WAITS);
    assert_eq!(world.lost(), ["x"]);
}

#[test]
fn losses_of_each_directory_are_handed_out_in_turn() {
    let mut world = World::with_stores();
    let names: Vec<String> = (10..50).map(|number| number.to_string()).collect();
    let objects: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 5)).collect();
    world.adopt_all("/out", "s", &objects);
    world.adopt_all("/in", "t", &[("a", 5), ("b", 5)]);
    for name in &names {
        assert!(world.read(&format!("/out/{name}")));
    }
    assert!(world.read("/in/a") && world.read("/in/b"));
    let losses = world.lost();
    assert_eq!(losses.len(), 16);
    assert_eq!(&losses[..5], ["10", "a", "11", "b", "12"]);
}

#[test]
fn object_that_finds_no_room_is_not_read_back_and_reported() {
    let mut world = World::with_stores();
    // Two nodes have 1 MiB each.
    world.adopt_all("/out", "s", &[("a", 5 << 20), ("b", 5)]);
    assert!(world.read("/out/a") && world.read("/out/b"));
    let losses = world.catalog.durable_losses();
    let blocks: Vec<usize> = losses.iter().map(|loss| loss.blocks.len()).collect();
    assert_eq!((world.lost(), blocks), (vec!["a".to_owned(), "b".to_owned()], vec![0, 1]));
    world.store.objects.insert("b".to_owned(), Content::new(1, 5));
    world.read_back();
    assert_eq!(world.lost(), ["a"]);
    assert!(world.is_stalled());
    // Its reader goes, and with it the reason.
    world.pass(READER_WAITS);
    world.read_back();
    assert_eq!(world.lost(), Vec::<String>::new());
    assert!(!world.is_stalled());
}

#[test]
fn node_that_is_to_leave_gets_no_bytes_that_are_read_back() {
    let mut world = World::with_stores();
    world.adopt_all("/out", "s", &[("x", 5)]);
    world.store.objects.insert("x".to_owned(), Content::new(1, 5));
    let (deadline, reason) = (world.now + Millis(600_000), "spot".to_owned());
    world.log(Action::Notice { node: NodeId(1), deadline, reason }).expect("taken");
    assert!(world.read("/out/x"));
    // The node reads it, because its notice is on the way. The namenode takes no block from it.
    world.read_back();
    assert_eq!(world.lost(), Vec::<String>::new());
    let path: Path = "/out/x".parse().expect("a path");
    assert_eq!(world.catalog.first_home(&path), Some(NodeId(2)));
}
