//! A change is made once, however often it arrives, and answered alike.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_core::catalog::{Action, Command};
use sanderling_protocol::frame::encode_body;
use sanderling_protocol::{Refusal, Reply, Request};

use crate::Broken;
use crate::client::{is_final, key_of};
use crate::runtime::CheckResult;
use crate::world::World;

/// The first answers to all changes, by client and sequence.
#[derive(Debug, Default)]
pub(crate) struct Made {
    first: BTreeMap<(u64, u64), Result<Reply, Refusal>>,
    /// Changes that were refused without a command in the log, for want of room among them: the
    /// namenode repeats the refusal from its memory.
    refused: BTreeSet<(u64, u64)>,
}

/// A command that is about to be applied: which change it is, and the catalog if that was made
/// before.
#[derive(Debug)]
pub(crate) struct Arriving {
    key: Option<(u64, u64)>,
    before: Option<Vec<u8>>,
}

impl World {
    /// Looks at a command before it is applied. `asked` is the request as its sender sent it.
    pub(crate) fn check_arriving(&self, command: &Command, asked: Option<&Request>) -> Arriving {
        let key = match (asked, &command.action) {
            (Some(request), _) => key_of(request),
            (None, Action::Once(once)) => Some((once.client.number, once.sequence)),
            (None, _) => None,
        };
        // Room is made for a change before the change is made.
        let makes_room =
            matches!(command.action, Action::MakeRoom { .. } | Action::EndBlocks { .. });
        let key = key.filter(|_| !makes_room);
        let is_known = key.is_some_and(|key| self.checks.made.first.contains_key(&key));
        let before = is_known.then(|| self.content());
        Arriving { key, before }
    }

    /// Looks at what a command did; tells whether it was a repeat.
    pub(crate) fn check_made(
        &mut self,
        arriving: Arriving,
        answer: &Result<Reply, Refusal>,
    ) -> bool {
        let Arriving { key: Some(key), before } = arriving else { return false };
        let Some(before) = before else {
            if is_final(answer) {
                self.checks.made.first.insert(key, answer.clone());
            }
            return false;
        };
        self.runtime.statistics_mut().checks += 1;
        if self.content() != before {
            let (client, sequence) = key;
            let text = format!("change {sequence} of client {client} was made again: {answer:?}");
            self.runtime.violate("once", text);
        }
        let found = self.check_answered(key, answer);
        self.runtime.expect(found);
        true
    }

    /// Tells whether a change was answered before.
    pub(crate) fn is_repeat(&self, request: &Request) -> bool {
        key_of(request).is_some_and(|key| self.checks.made.first.contains_key(&key))
    }

    /// Notes that a change was refused for want of room; tells whether it was before.
    pub(crate) fn note_refused(&mut self, request: &Request) -> bool {
        key_of(request).is_some_and(|key| !self.checks.made.refused.insert(key))
    }

    /// Notes that a change was refused when it was to be logged.
    pub(crate) fn note_not_logged(&mut self, command: &Command) {
        if let Action::Once(once) = &command.action {
            self.checks.made.refused.insert((once.client.number, once.sequence));
        }
    }

    /// Looks at an answer that was given without the log.
    pub(crate) fn check_repeated(&mut self, request: &Request, answer: &Result<Reply, Refusal>) {
        let Some(key) = key_of(request) else { return };
        let found = self.check_answered(key, answer);
        self.runtime.expect(found);
    }

    fn check_answered(&self, key: (u64, u64), answer: &Result<Reply, Refusal>) -> CheckResult {
        // Other mistakes change answers on their way.
        if self.runtime.broken().is_some_and(|broken| broken != Broken::ChangedTwice) {
            return Ok(());
        }
        match self.checks.made.first.get(&key) {
            Some(first) if !is_alike(first, answer) => {
                let text = format!("a repeat got {answer:?} after {first:?}");
                Err(("once", text))
            }
            _ => Ok(()),
        }
    }

    /// Returns all that the catalog holds but its place in the log and its time.
    fn content(&self) -> Vec<u8> {
        let bytes = encode_body(self.namenode.catalog());
        let mut rest = &bytes[..];
        // The cluster, the place and the time: numbers of seven bits a byte.
        for _ in 0..3 {
            let end = rest.iter().position(|byte| byte & 0x80 == 0).unwrap_or_default();
            rest = &rest[end + 1..];
        }
        rest.to_vec()
    }
}

/// Tells whether a repeat was answered as the first was, or refused because the answer is needed no
/// longer.
fn is_alike(first: &Result<Reply, Refusal>, again: &Result<Reply, Refusal>) -> bool {
    match (first, again) {
        (_, Err(Refusal::OutcomeUnknown { .. })) => true,
        // A grant is worth something as long as its lease.
        (Ok(Reply::Grant(_)), Err(Refusal::LeaseEnded { .. })) => true,
        (Ok(Reply::Grant(first)), Ok(Reply::Grant(again))) => {
            (first.object, first.lease) == (again.object, again.lease)
        }
        (Ok(Reply::Node(first)), Ok(Reply::Node(again))) => first.id == again.id,
        (Ok(Reply::Node(_)), Err(Refusal::UnknownNode { .. })) => true,
        (first, again) => first == again,
    }
}
