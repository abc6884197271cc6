//! Objects that were renamed in their store and lose bytes before the namenode has that recorded.

use sanderling_protocol::message::{Create, CreateMode};

use super::*;

/// Views that are read one after the other: enough for what does not have to wait for a removal.
const VIEWS: u32 = 10;

/// The nodes of the beginning, and those that join when these have ended.
const FIRST: [NodeId; 2] = [NodeId(1), NodeId(2)];
const LATER: [NodeId; 2] = [NodeId(3), NodeId(4)];

impl World {
    /// Makes a cluster in which objects with blocks are renamed often. Answers about that are lost,
    /// and then all nodes end at once, more often than in others.
    pub(super) fn with_renamings(seed: u64, bug: Option<InjectedBug>) -> Self {
        let mut world = Self::with_blocks(seed, bug);
        world.is_renaming = true;
        world
    }

    /// Makes a cluster with an object of two blocks, which the store has as `a`. Commands are
    /// applied by these rules.
    fn with_stored(rules: u32) -> Self {
        // The log of this seed begins without rules.
        let mut world = Self::with_blocks(4, None);
        world.log(Action::Rules { rules, slice: 16 }).expect("taken");
        world.write("a", CreateMode::New, &FIRST).expect("written");
        let writer = world.writers.pop().expect("it is being written");
        world.end_write(writer).expect("sealed");
        world.go_on(|_| true);
        assert_eq!(world.stored(), ["a"]);
        world
    }

    /// Makes a cluster with an object whose store has it as `f` and not as `a`. The namenode has
    /// only the old name, and all nodes that had its bytes have ended.
    fn with_lost() -> Self {
        let mut world = Self::with_stored(Catalog::RULES);
        world.rename("a", "f");
        world.go_on(|output| !changes_store(output));
        assert_eq!(world.stored(), ["f"]);
        world.lose_nodes(FIRST);
        world
    }

    /// Deletes an object, whatever else is there.
    fn delete_any(&mut self, name: &str) -> Result<Reply, Refusal> {
        self.log(Action::Delete { path: path(name), recursive: false })
    }

    fn rename(&mut self, from: &str, to: &str) {
        let (from, to) = (path(from), path(to));
        let renamed = self.change_by(Action::Rename { from, to, replace: false });
        assert!(matches!(renamed, Ok(Ok(_))), "{renamed:?}");
    }

    pub(super) fn stored(&self) -> Vec<&str> {
        self.store.objects.keys().map(String::as_str).collect()
    }

    /// Shows the drain the work a few times and executes its calls. It gets the answers that are
    /// chosen; the others are lost.
    pub(super) fn go_on(&mut self, is_answered: impl Fn(&DurableOutput) -> bool) {
        for _ in 0..VIEWS {
            self.renew();
            self.drain.handle_deadline(self.now);
            self.view();
            while let Some(output) = self.drain.poll_output() {
                self.end_call(&output, is_answered(&output));
            }
        }
    }

    /// Executes a call. The drain gets the answer, or it is lost.
    pub(super) fn end_call(&mut self, output: &DurableOutput, is_answered: bool) {
        let answer = self.execute(output).expect("the store shows a state of the directory");
        let answer = if is_answered { answer } else { Self::no_answer(output) };
        self.drain.handle(self.now, answer);
    }

    /// Executes calls up to one that is chosen, and returns that.
    pub(super) fn until(&mut self, is_chosen: impl Fn(&DurableOutput) -> bool) -> DurableOutput {
        for _ in 0..VIEWS {
            self.view();
            while let Some(output) = self.drain.poll_output() {
                if is_chosen(&output) {
                    return output;
                }
                self.end_call(&output, true);
            }
        }
        panic!("no such call comes");
    }

    /// Ends all nodes, and lets as many others join.
    fn lose_nodes(&mut self, nodes: [NodeId; 2]) {
        for node in nodes {
            let why = "it is silent".to_owned();
            self.log(Action::NodeDead { node, why }).expect("taken");
        }
        self.join();
        self.join();
    }

    /// Returns a report that the store lacks an object, which may take effect and gets no answer.
    fn unanswered(&mut self) -> DurableOutput {
        let report = self.until(reports_missing);
        self.drain.handle(self.now, Self::no_answer(&report));
        // The next one comes after a pause.
        self.now = self.now + SECOND;
        report
    }

    /// Asserts that an object has all of its bytes, after a while, in which removals come to rest.
    fn assert_read_back(&mut self, name: &str) {
        for _ in 0..4 {
            self.go_on(|_| true);
            self.now = self.now + REMOVAL_SETTLES;
        }
        let lost = self.listed()[name].lost_bytes;
        assert_eq!((lost, self.catalog.durable_losses()), (0, Vec::new()));
        assert_eq!(self.check_reads(), Ok(()));
        assert_eq!((self.stored(), self.is_settled()), (vec![name], true));
    }
}

pub(super) const fn changes_store(output: &DurableOutput) -> bool {
    matches!(output, DurableOutput::Change { .. })
}

const fn reads_back(output: &DurableOutput) -> bool {
    matches!(output, DurableOutput::Restore { .. })
}

const fn reports_missing(output: &DurableOutput) -> bool {
    matches!(output, DurableOutput::Report { record, .. } if !record.report.missing.is_empty())
}

/// The store has the new name, but the answer is lost. So the namenode passes to it when the old
/// one is missing, though that is the last one which the drain has made for certain.
#[test]
fn object_is_read_back_by_the_name_of_the_view_though_the_store_got_another_one_lately() {
    World::with_lost().assert_read_back("f");
}

/// The namenode has passed to the new name, and the store's change is not reported yet. Logs of
/// before are applied as they were.
#[test]
fn object_that_was_read_back_by_its_new_name_is_so_again() {
    for (rules, is_again) in [(8, false), (Catalog::RULES, true)] {
        let mut world = World::with_stored(rules);
        world.rename("a", "f");
        world.go_on(|output| !changes_store(output));
        assert_eq!(world.stored(), ["f"]);
        world.lose_nodes(FIRST);
        world.go_on(|output| !changes_store(output));
        let lost = world.listed()["f"].lost_bytes;
        assert_eq!((lost, world.catalog.durable_losses()), (0, Vec::new()));
        world.lose_nodes(LATER);
        match is_again {
            true => world.assert_read_back("f"),
            false => assert!(world.listed()["f"].lost_bytes > 0),
        }
    }
}

/// The store has lost the object, by both of its names.
#[test]
fn renamed_object_that_its_store_has_by_neither_name_is_lost() {
    let mut world = World::with_stored(Catalog::RULES);
    world.rename("a", "f");
    world.go_on(|output| !changes_store(output));
    world.store.objects.clear();
    world.lose_nodes(FIRST);
    world.go_on(|output| !changes_store(output));
    let entry = &world.listed()["f"];
    assert_eq!((entry.lost_bytes, world.catalog.durable_losses()), (entry.bytes, Vec::new()));
    assert_eq!(world.catalog.fsck().problems, Vec::<String>::new());
}

/// A view from before the order ended has the old name.
#[test]
fn object_whose_nodes_end_while_its_store_is_changed_is_read_back_by_its_new_name() {
    let mut world = World::with_stored(Catalog::RULES);
    world.rename("a", "f");
    let change = world.until(changes_store);
    world.lose_nodes(FIRST);
    world.view();
    assert_eq!(world.drain.poll_output(), None, "one of both names is right");
    world.end_call(&change, true);
    assert_eq!(world.stored(), ["f"]);
    world.assert_read_back("f");
}

/// The report that the old name is missing comes before that of the change, or after it.
#[test]
fn object_that_gets_its_new_name_while_it_is_read_by_the_old_one_is_read_again() {
    for is_read_first in [false, true] {
        let mut world = World::with_stored(Catalog::RULES);
        world.rename("a", "f");
        // The first order makes both changes. The object is sent again before the nodes end.
        for pause in [SECOND, REMOVAL_SETTLES] {
            world.go_on(|output| !changes_store(output));
            world.now = world.now + pause;
        }
        world.renew();
        world.lose_nodes(FIRST);
        let read = world.until(reads_back);
        let change = world.until(changes_store);
        let calls = if is_read_first { [&read, &change] } else { [&change, &read] };
        let answers = calls.map(|call| world.execute(call).expect("a state of the directory"));
        answers.into_iter().for_each(|answer| world.drain.handle(world.now, answer));
        world.assert_read_back("f");
    }
}

/// The first time the namenode passes to the new name. A report without names, as managers of
/// before send it, is about that the second time.
#[test]
fn report_of_what_is_missing_by_its_old_name_arrives_twice() {
    for bug in [None, Some(InjectedBug::IgnoresNames)] {
        let mut world = World::with_lost();
        world.bug = bug;
        let report = world.until(reports_missing);
        world.execute(&report).expect("a state of the directory");
        world.end_call(&report, true);
        match bug {
            None => world.assert_read_back("f"),
            Some(_) => assert!(world.listed()["f"].lost_bytes > 0),
        }
    }
}

/// The manager got no answer to it, and another report has passed to the new name.
#[test]
fn report_of_what_is_missing_by_its_old_name_takes_effect_two_views_later() {
    for bug in [None, Some(InjectedBug::IgnoresNames)] {
        let mut world = World::with_lost();
        world.bug = bug;
        let late = world.unanswered();
        let next = world.until(reports_missing);
        world.end_call(&next, true);
        let read = world.until(reads_back);
        let DurableOutput::Restore { loss, .. } = &read else { panic!("{read:?}") };
        assert_eq!(loss.key, "f");
        world.execute(&late).expect("a state of the directory");
        world.end_call(&read, true);
        match bug {
            None => world.assert_read_back("f"),
            Some(_) => assert!(world.listed()["f"].lost_bytes > 0),
        }
    }
}

/// The object has that name again, and was lost again.
#[test]
fn report_of_a_loss_of_before_is_not_about_the_present_one() {
    let mut world = World::with_lost();
    let late = world.unanswered();
    world.assert_read_back("f");
    world.rename("f", "a");
    world.assert_read_back("a");
    world.lose_nodes(LATER);
    assert_eq!(world.catalog.durable_losses()[0].key, "a");
    world.execute(&late).expect("a state of the directory");
    world.assert_read_back("a");
}

/// Each object is a change of the store.
#[test]
fn rename_of_too_many_objects_within_a_directory_is_refused() {
    let mut world = World::new(1, None);
    for number in 0..4096_u64 {
        let request = Create {
            inline: Some(number.to_le_bytes().to_vec()),
            ..Create::new(path(&format!("d/{number}")), Nonce(number))
        };
        world.log(Action::Create { request, placed: Vec::new() }).expect("made");
    }
    let copied = |world: &mut World| {
        let (directory, holder) = (world.work().0[0].directory, world.holder);
        let progress = DurableProgress { done: vec![(directory, 1 << 60)], ..Default::default() };
        let report = DurableReport { progress, missing: Vec::new() };
        let record = DurableRecord { report, ..DurableRecord::default() };
        world.report(holder, record).expect("it leads");
    };
    copied(&mut world);
    let rename = Action::Rename { from: path("d"), to: path("e"), replace: false };
    let refused = world.log(rename.clone());
    assert!(matches!(refused, Err(Refusal::TooLarge { limit: 4096, .. })), "{refused:?}");
    world.delete_any("d/7").expect("deleted");
    copied(&mut world);
    world.log(rename).expect("the directory is one of 4,096");
}

#[test]
fn renamed_objects_get_to_the_store_and_back_while_answers_are_lost_and_nodes_end() {
    run_seeds(0..500, |seed| World::with_renamings(seed, None));
}

#[test]
#[ignore = "an hour or more: 100,000 seeds"]
fn renamed_objects_get_to_the_store_and_back_for_many_seeds() {
    run_seeds(0..100_000, |seed| World::with_renamings(seed, None));
}
