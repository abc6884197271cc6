//! Reports that are held up on their way, and take effect after later ones or under a later manager
//! of the same holder.

use sanderling_protocol::message::{Create, CreateMode};

use super::renaming::changes_store;
use super::*;

impl World {
    /// Makes a cluster whose objects are values. Reports are held up for long, and two managers
    /// lead in turn.
    fn with_late_reports(seed: u64) -> Self {
        let mut world = Self::new(seed, None);
        world.has_late_reports = true;
        world
    }

    /// Makes a cluster in which a report arrives late, and later than everything else an order to
    /// complete the upload whose place that one has taken.
    pub(super) fn with_late_order(seed: u64, bug: Option<InjectedBug>) -> Self {
        let mut world = Self::new(seed, bug);
        let (late, order) = world.replaced();
        world.arrive(&late);
        world.lead();
        world.replace();
        world.late.push((world.now, world.holder, order));
        world
    }

    /// Leaves out of a late order the first removal that does not wait any more, and what follows:
    /// its datanode finds that before it removes anything.
    pub(super) fn without_passed_removals(&self, mut output: DurableOutput) -> DurableOutput {
        if let DurableOutput::Change { directory, changes, .. } = &mut output {
            let directory = *directory;
            let waits = |change: &&StoreChange| match change {
                StoreChange::Complete { .. } => true,
                StoreChange::Remove { number, .. } | StoreChange::RemoveTree { number, .. } => {
                    let waits = self.catalog.durable_waits(directory, *number);
                    waits == Reply::Durable(Box::new(DurableReply::Waits(true)))
                }
            };
            let count = changes.iter().take_while(waits).count();
            changes.truncate(count);
        }
        output
    }

    fn put_value(&mut self, name: &str, value: u64) {
        let inline = Some(value.to_le_bytes().to_vec());
        let create = Create { inline, ..Create::new(path(name), Nonce(1000 + value)) };
        let request = Create { mode: CreateMode::Replace, ..create };
        let created = self.change_by(Action::Create { request, placed: Vec::new() });
        assert!(matches!(created, Ok(Ok(_))), "{created:?}");
    }

    /// Leaves a call without an answer, and passes the pause before the next try.
    fn lose_answer(&mut self, output: &DurableOutput) {
        self.drain.handle(self.now, Self::no_answer(output));
        self.now = self.now + SECOND;
        self.drain.handle_deadline(self.now);
    }

    /// Writes an object whose first upload is reported twice and ended, because it is unknown
    /// whether it was completed. Returns the first report, which has not arrived, and the order to
    /// complete the second upload, which neither.
    fn replaced(&mut self) -> (DurableOutput, DurableOutput) {
        self.put_value("a", 1);
        let report = self.until(reports_upload);
        self.lose_answer(&report);
        let first = self.until(changes_store);
        self.lose_answer(&first);
        let second = self.until(changes_store);
        assert_ne!(first, second);
        (report, second)
    }

    /// Lets a report arrive of which no manager waits for the answer. Returns whether it counts.
    fn arrive(&mut self, report: &DurableOutput) -> bool {
        let DurableOutput::Report { record, .. } = report else { panic!("{report:?}") };
        self.report(self.holder, record.clone()).is_ok()
    }

    /// Lets the store get the object, and then another one of its name.
    fn replace(&mut self) {
        self.go_on(|_| true);
        assert_eq!(self.stored(), ["a"]);
        self.put_value("a", 2);
        self.go_on(|_| true);
        assert_eq!(self.store.objects["a"], Content::of_value(&2_u64.to_le_bytes()));
    }

    /// Asserts that an order to complete an upload covers nothing newer, but for a namenode that
    /// compares nothing.
    fn assert_covers_nothing(&mut self, order: &DurableOutput) {
        self.replace();
        let shown = self.execute(order).map(|_| ());
        match self.bug {
            None => assert_eq!(shown, Ok(())),
            Some(_) => assert!(shown.is_err_and(|why| why.contains("which never was"))),
        }
    }
}

const BUGS: [Option<InjectedBug>; 2] = [None, Some(InjectedBug::ComparesNothing)];

fn reports_upload(output: &DurableOutput) -> bool {
    matches!(output, DurableOutput::Report { record, .. } if !record.uploads.is_empty())
}

fn reports_change(output: &DurableOutput) -> bool {
    matches!(output, DurableOutput::Report { record, .. } if !record.made.is_empty())
}

/// The manager ends after that, and its order arrives last of all.
#[test]
fn late_report_of_an_upload_takes_the_place_of_no_later_one() {
    for bug in BUGS {
        let mut world = World::new(1, bug);
        let (late, order) = world.replaced();
        assert_eq!(world.arrive(&late), bug.is_some());
        world.lead();
        world.assert_covers_nothing(&order);
    }
}

#[test]
fn report_of_an_earlier_term_takes_the_place_of_no_upload_of_another_manager() {
    for bug in BUGS {
        let mut world = World::new(1, bug);
        world.put_value("a", 1);
        let late = world.until(reports_upload);
        let first = world.holder;
        world.lead();
        let order = world.until(changes_store);
        world.lead_as(first);
        assert_eq!(world.arrive(&late), bug.is_some());
        world.assert_covers_nothing(&order);
    }
}

/// A manager inside a restarted namenode is the same holder.
#[test]
fn report_that_a_change_was_made_counts_no_more_when_it_is_made_by_another_upload() {
    for bug in BUGS {
        let mut world = World::new(1, bug);
        world.put_value("a", 1);
        let late = world.until(reports_change);
        let holder = world.holder;
        world.lead_as(holder);
        let order = world.until(changes_store);
        assert_eq!(world.arrive(&late), bug.is_some());
        world.lead();
        world.assert_covers_nothing(&order);
    }
}

/// The report arrives after the view of the next term: what that reports does not follow on it.
#[test]
fn manager_that_a_late_report_has_overtaken_begins_anew() {
    for is_chosen in [reports_upload, reports_change] {
        let mut world = World::new(1, None);
        world.put_value("a", 1);
        let late = world.until(is_chosen);
        let holder = world.holder;
        world.lead_as(holder);
        world.view();
        assert!(world.arrive(&late));
        world.go_on(|_| true);
        assert_eq!((world.stored(), world.is_settled()), (vec!["a"], true));
        // What was sent in between is not completed.
        assert_eq!(world.store.uploads.len(), 1);
        world.put_value("a", 2);
        world.go_on(|_| true);
        assert_eq!(world.store.objects["a"], Content::of_value(&2_u64.to_le_bytes()));
    }
}

#[test]
fn store_shows_states_in_their_order_while_reports_are_held_up_and_two_managers_lead_in_turn() {
    run_seeds(0..1000, World::with_late_reports);
}

#[test]
#[ignore = "minutes: 100,000 seeds"]
fn store_shows_states_in_their_order_while_reports_are_held_up_for_many_seeds() {
    run_seeds(0..100_000, World::with_late_reports);
}
