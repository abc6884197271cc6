//! Objects whose names the store refuses for good.

use super::*;

/// The name that the store refuses.
const BAD: &str = "a";

impl World {
    /// Shows the drain the work a few times, and executes its calls for a store that refuses a
    /// name.
    fn go_on_without_the_name(&mut self) {
        for _ in 0..20 {
            self.now = self.now + Millis(2000);
            self.renew();
            self.drain.handle_deadline(self.now);
            self.view();
            while let Some(output) = self.drain.poll_output() {
                let answer = match &output {
                    DurableOutput::Upload { call, node, order, .. } if order.key == BAD => {
                        let (path, why) = (BAD.to_owned(), "KeyTooLongError".to_owned());
                        let refusal = Refusal::BadPath { path, why };
                        let answer = Err(DurableCallError::refused(*node, refusal));
                        DurableInput::Uploaded { call: *call, answer }
                    }
                    _ => self.execute(&output).expect("a state of the directory"),
                };
                self.drain.handle(self.now, answer);
            }
        }
    }

    fn stalled(&self) -> String {
        match self.catalog.durability(&path(BAD), self.now) {
            Ok(Reply::Durable(reply)) => match *reply {
                DurableReply::Durability(Some(found)) => found.stalled,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    /// Makes a cluster with an object that the store refuses, and another one behind it.
    fn with_refused(seed: u64) -> Self {
        let mut world = Self::new(seed, None);
        world.put(BAD, 1);
        world.put("b", 2);
        world.go_on_without_the_name();
        assert!(world.store.objects.is_empty(), "names appear in order");
        world
    }
}

#[test]
fn object_whose_name_the_store_refuses_for_good_may_be_deleted_and_the_rest_goes_on() {
    let mut world = World::with_refused(1);
    let why = world.stalled();
    assert!(why.contains("takes no object of this name") && why.contains("KeyTooLong"), "{why}");
    let waits = world.delete("b");
    assert!(matches!(waits, Err(Refusal::RetryAfter { .. })), "only the first one: {waits:?}");
    world.delete(BAD).expect("deleted");
    world.go_on_without_the_name();
    assert_eq!(world.store.objects.keys().collect::<Vec<_>>(), ["b"]);
    assert!(world.is_settled());
    assert_eq!(world.catalog.fsck().problems, Vec::<String>::new());
}

/// The log of this seed has no rules: a program of before applies its commands alike.
#[test]
fn object_whose_name_the_store_refuses_waits_in_a_log_without_rules() {
    let mut world = World::with_refused(4);
    let waits = world.delete(BAD);
    assert!(matches!(waits, Err(Refusal::RetryAfter { .. })), "{waits:?}");
}

#[test]
fn directory_of_an_object_that_the_store_refuses_is_deleted_after_it() {
    let mut world = World::new(1, None);
    world.put("d/a", 1);
    world.put("d/b", 2);
    let bad = "d/a".to_owned();
    let tree = Action::Delete { path: path("d"), recursive: true };
    let waits = world.change_by(tree.clone()).expect("the queue leads to what there is");
    assert!(matches!(waits, Err(Refusal::RetryAfter { .. })), "{waits:?}");
    let directory = world.work().0[0].directory;
    let number = world.work().0[0].changes[0].number;
    assert_eq!(world.work().0[0].changes[0].key, bad);
    let why = sanderling_protocol::message::refused_name(number, "x");
    let progress = DurableProgress { stalled: vec![(directory, why)], ..Default::default() };
    let report = DurableReport { progress, missing: Vec::new() };
    let record = DurableRecord { report, ..DurableRecord::default() };
    world.report(world.holder, record).expect("it leads");
    let waits = world.change_by(tree.clone()).expect("the queue leads to what there is");
    assert!(matches!(waits, Err(Refusal::RetryAfter { .. })), "the rest waits: {waits:?}");
    assert_eq!(world.directory().keys().collect::<Vec<_>>(), ["d/b"]);
    for _ in 0..20 {
        world.now = world.now + Millis(2000);
        world.step(false).expect("a state of the directory");
    }
    let deleted = world.change_by(tree).expect("the queue leads to what there is");
    assert!(deleted.is_ok(), "{deleted:?}");
    assert!(world.directory().is_empty());
}
