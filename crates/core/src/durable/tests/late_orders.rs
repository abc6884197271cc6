//! Orders that a datanode receives, or begins with, long after the manager has given them up.

use sanderling_protocol::message::{Create, CreateMode};

use super::*;

/// Steps of two seconds in which a removal without an answer is made again.
const STEPS: u32 = 30;

impl World {
    /// Makes changes of the store as a datanode does that has just received an order: as far as it
    /// may begin with them. Returns how many, and why not more.
    pub(super) fn order(
        &mut self,
        directory: ObjectId,
        changes: &[StoreChange],
    ) -> Result<(u32, Option<Refusal>), String> {
        let order = StoreOrder::new(self.now);
        let begins = |change: &StoreChange| {
            order.may_begin(self.now)?;
            let Some(number) = to_confirm(change) else { return Ok(()) };
            let waits = match self.catalog.durable_waits(directory, number) {
                Reply::Durable(reply) => *reply == DurableReply::Waits(true),
                _ => false,
            };
            confirmed(waits, Millis(0), "the removal still waits")
        };
        let mut refused = None;
        let may_begin = |change: &&StoreChange| {
            refused = begins(change).err();
            refused.is_none()
        };
        let begun = changes.iter().take_while(may_begin).count();
        let (done, failure) = self.change_store(&changes[..begun])?;
        Ok((done, failure.or(refused)))
    }

    /// Has an order to change the store wait for its datanode, which is paused.
    pub(super) fn hold_up(&mut self, output: &DurableOutput) {
        if let (Some(draw), DurableOutput::Change { .. }) = (&mut self.pauses, output) {
            let at = self.now + Millis(draw.below(60_000));
            self.held_up.push((at, output.clone()));
        }
    }

    /// Gives a name another value.
    pub(super) fn put(&mut self, name: &str, value: u8) {
        let create = Create { inline: Some(vec![value; 8]), ..Create::new(path(name), Nonce(9)) };
        let writer = Nonce(1000 + u64::from(value));
        let request = Create { mode: CreateMode::Replace, writer, ..create };
        let put = self.change_by(Action::Create { request, placed: Vec::new() });
        assert!(matches!(put, Ok(Ok(_))), "{put:?}");
    }

    pub(super) fn delete(&mut self, name: &str) -> Result<Reply, Refusal> {
        let action = Action::Delete { path: path(name), recursive: false };
        self.change_by(action).expect("the queue leads to what there is")
    }

    /// Lets everything get to the store.
    fn copy(&mut self) {
        for _ in 0..STEPS {
            self.now = self.now + Millis(2000);
            self.step(false).expect("a state of the directory");
        }
        assert!(self.is_settled());
    }

    /// Waits for an order to change the store, and does not answer it.
    fn unanswered_change(&mut self) -> (ObjectId, Vec<StoreChange>) {
        for _ in 0..STEPS {
            self.now = self.now + SECOND;
            self.renew();
            self.drain.handle_deadline(self.now);
            self.view();
            while let Some(output) = self.drain.poll_output() {
                if let DurableOutput::Change { directory, changes, .. } = &output {
                    let ordered = (*directory, changes.clone());
                    self.drain.handle(self.now, Self::no_answer(&output));
                    return ordered;
                }
                let answer = self.execute(&output).expect("a state of the directory");
                self.drain.handle(self.now, answer);
            }
        }
        panic!("the store is never changed");
    }
}

#[test]
fn removal_whose_name_has_another_object_by_now_is_not_begun() {
    let mut world = World::new(1, None);
    world.put("a", 1);
    world.copy();
    world.delete("a").expect("deleted");
    let (directory, late) = world.unanswered_change();
    assert!(matches!(late[..], [StoreChange::Remove { .. }]), "{late:?}");
    world.copy();
    assert!(world.store.objects.is_empty(), "another datanode has removed it");
    world.put("a", 2);
    world.copy();
    let before = world.store.objects.clone();
    let (done, refused) = world.order(directory, &late).expect("nothing is changed");
    assert!(done == 0 && matches!(refused, Some(Refusal::RetryAfter { .. })), "{refused:?}");
    assert!(world.store.objects == before);
    // Without the namenode's answer it would be.
    assert!(world.change_store(&late).is_err_and(|error| error.contains("which never was")));
}

/// The upload that it completes was ended.
#[test]
fn completion_that_is_late_has_no_effect() {
    let mut world = World::new(1, None);
    world.put("a", 1);
    let (directory, late) = world.unanswered_change();
    assert!(matches!(late[..], [StoreChange::Complete { .. }]), "{late:?}");
    world.copy();
    world.delete("a").expect("deleted");
    world.copy();
    let (done, refused) = world.order(directory, &late).expect("nothing is changed");
    assert!(done == 0 && refused.is_some() && world.store.objects.is_empty(), "{refused:?}");
}
