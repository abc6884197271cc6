//! Adopting stores: each is taken over, then listed slice by slice, and the namenode gets each
//! slice before the next one is requested.

use sanderling_protocol::message::{Adopted, AdoptionStep, StoreSlice};
use sanderling_protocol::{Instant, Millis, NodeId, ObjectId};

use super::adoption_task::AdoptionTask;
use super::call_error::DurableCallError;
use super::interface::DurableOutput;
use super::spread::PartSources;
use super::{CallPurpose, DurableDrain, RETRY_MAX, RETRY_MIN};
use crate::retry::doubled;

impl DurableDrain {
    /// Orders the next step of an adoption. One at a time: a slice takes memory.
    pub(super) fn begin_adoptions(&mut self, now: Instant) {
        let tasks =
            || self.directories.iter().filter_map(|(id, it)| Some((id, it.adoption.as_ref()?)));
        if tasks().any(|(_, task)| task.is_busy) {
            return;
        }
        let is_due = |task: &AdoptionTask| match task.settles_at {
            Some(at) => at <= now,
            None => task.retry_at.is_none_or(|at| at <= now),
        };
        let due: Vec<ObjectId> =
            tasks().filter(|(_, task)| is_due(task)).map(|(id, _)| *id).collect();
        for id in due {
            if self.begin_adoption(id) {
                return;
            }
        }
    }

    /// Orders the next step of one adoption. Returns whether a node is free for it.
    fn begin_adoption(&mut self, id: ObjectId) -> bool {
        let Some(directory) = self.directories.get(&id) else { return false };
        let Some(task) = &directory.adoption else { return false };
        let (store, step) = (directory.store.clone(), task.step.clone());
        if task.settles_at.is_some() {
            self.set_busy(id);
            let slice = StoreSlice::default();
            self.report.adopted.push(Adopted { directory: id, step, slice });
            return true;
        }
        let sources = PartSources::default();
        let Some(node) = self.choose_node(directory, &sources, task.avoid, false) else {
            return false;
        };
        let address = self.nodes[&node].0.address.clone();
        self.set_busy(id);
        let call = self.call(CallPurpose::Adopt { directory: id, node });
        let directory = id;
        self.outputs.push_back(DurableOutput::Adopt {
            call,
            node,
            address,
            directory,
            store,
            step,
        });
        true
    }

    fn set_busy(&mut self, id: ObjectId) {
        if let Some(task) = self.directories.get_mut(&id).and_then(|it| it.adoption.as_mut()) {
            task.is_busy = true;
        }
    }

    /// Takes what came of a step: what the store has, and how long its former owner may still
    /// change it.
    pub(super) fn on_adopted(
        &mut self,
        now: Instant,
        (id, node): (ObjectId, NodeId),
        answer: Result<(StoreSlice, Millis), DurableCallError>,
    ) {
        let Some(directory) = self.directories.get_mut(&id) else { return };
        let Some(task) = &mut directory.adoption else { return };
        match answer {
            Ok((_, settles_in)) if settles_in.0 > 0 => {
                directory.failed.sent(node);
                task.is_busy = false;
                task.settles_at = Some(now + settles_in);
            }
            Ok((slice, _)) => {
                directory.failed.sent(node);
                let step = task.step.clone();
                self.report.adopted.push(Adopted { directory: id, step, slice });
            }
            Err(error) => {
                let why = error.to_string();
                task.is_busy = false;
                task.tries += 1;
                task.avoid = Some(node);
                directory.failed.add(node);
                task.retry_at = Some(now + doubled(RETRY_MIN, task.tries, RETRY_MAX));
                if directory.reported_stall.as_deref() != Some(&*why) {
                    directory.reported_stall = Some(why.clone());
                    self.report.stalled.push((id, why));
                }
            }
        }
    }

    /// Goes on with adoptions of which the namenode has a step.
    pub(super) fn adoptions_reported(&mut self, sent: Vec<Adopted>) {
        for Adopted { directory, step, slice } in sent {
            let Some(known) = self.directories.get_mut(&directory) else { continue };
            if known.adoption.as_ref().is_none_or(|task| task.step != step) {
                continue;
            }
            known.reported_stall = None;
            let next = match step {
                AdoptionStep::Take => Some(String::new()),
                AdoptionStep::List(_) => slice.next,
            };
            known.adoption = next.map(|after| AdoptionTask::new(AdoptionStep::List(after)));
        }
    }
}
