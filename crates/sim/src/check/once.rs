//! A change is made once, however often it arrives, and answered alike.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_core::catalog::{Action, Catalog, Command};
use sanderling_protocol::frame::encode_body;
use sanderling_protocol::{Refusal, Reply, Request};

use super::view::View;
use crate::InjectedBug;
use crate::client::{is_final, key_of};
use crate::runtime::CheckResult;

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

impl Made {
    /// Looks at a command before it is applied. `asked` is the request as its sender sent it.
    pub(super) fn arriving(
        &self,
        catalog: &Catalog,
        command: &Command,
        asked: Option<&Request>,
    ) -> Arriving {
        let key = match (asked, &command.action) {
            (Some(request), _) => key_of(request),
            (None, Action::Once(once)) => Some((once.client.number, once.sequence)),
            (None, _) => None,
        };
        // Room is made for a change before the change is made.
        let makes_room =
            matches!(command.action, Action::MakeRoom { .. } | Action::EndBlocks { .. });
        let key = key.filter(|_| !makes_room);
        let is_known = key.is_some_and(|key| self.first.contains_key(&key));
        let before = is_known.then(|| content(catalog));
        Arriving { key, before }
    }

    /// Looks at what a command did. Returns what was found if it was a repeat.
    pub(super) fn made(
        &mut self,
        view: View<'_>,
        arriving: Arriving,
        answer: &Result<Reply, Refusal>,
    ) -> Option<CheckResult> {
        let Arriving { key: Some(key), before } = arriving else { return None };
        let Some(before) = before else {
            if is_final(answer) {
                self.first.insert(key, answer.clone());
            }
            return None;
        };
        if content(view.catalog()) != before {
            let (client, sequence) = key;
            let text = format!("change {sequence} of client {client} was made again: {answer:?}");
            return Some(Err(("once", text)));
        }
        Some(self.check_answered(view.runtime.bug(), key, answer))
    }

    /// Returns whether a change was answered before.
    pub(super) fn is_repeat(&self, request: &Request) -> bool {
        key_of(request).is_some_and(|key| self.first.contains_key(&key))
    }

    /// Records that a change was refused for want of room. Returns whether it was before.
    pub(super) fn refused(&mut self, request: &Request) -> bool {
        key_of(request).is_some_and(|key| !self.refused.insert(key))
    }

    /// Notes that a change was refused when it was to be logged.
    pub(crate) fn not_logged(&mut self, command: &Command) {
        if let Action::Once(once) = &command.action {
            self.refused.insert((once.client.number, once.sequence));
        }
    }

    /// Looks at an answer that was given without the log, if it is one to a change.
    pub(super) fn check_repeated(
        &self,
        bug: Option<InjectedBug>,
        request: &Request,
        answer: &Result<Reply, Refusal>,
    ) -> Option<CheckResult> {
        Some(self.check_answered(bug, key_of(request)?, answer))
    }

    fn check_answered(
        &self,
        bug: Option<InjectedBug>,
        key: (u64, u64),
        answer: &Result<Reply, Refusal>,
    ) -> CheckResult {
        // Other injected bugs change answers on their way.
        if bug.is_some_and(|bug| bug != InjectedBug::ChangedTwice) {
            return Ok(());
        }
        match self.first.get(&key) {
            Some(first) if !is_alike(first, answer) => {
                let text = format!("a repeat got {answer:?} after {first:?}");
                Err(("once", text))
            }
            _ => Ok(()),
        }
    }
}

/// Returns all that the catalog holds but its place in the log and its time.
fn content(catalog: &Catalog) -> Vec<u8> {
    let bytes = encode_body(catalog);
    let mut rest = &bytes[..];
    // The cluster, the place and the time: numbers of seven bits a byte.
    for _ in 0..3 {
        let end = rest.iter().position(|byte| byte & 0x80 == 0).unwrap_or_default();
        rest = &rest[end + 1..];
    }
    rest.to_vec()
}

/// Returns whether a repeat was answered as the first was, or refused because the answer is no
/// longer needed.
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
