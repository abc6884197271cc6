//! Changes that are made once, and answered alike as often as they arrive.

use sanderling_protocol::message::ClientId;
use sanderling_protocol::{Instant, Millis, Nonce, Refusal, Reply};

use super::Catalog;
use super::clients::{ChangeKey, ChangeOutcome};
use super::log::LoggedOnce;
use super::orders::Orders;

impl Catalog {
    /// Makes a client known.
    pub(super) fn open_client(&mut self, key: Nonce) -> Reply {
        Reply::Client { number: self.clients.open(self.served(), key) }
    }

    /// Makes a change, unless it has been made, and keeps its answer.
    pub(super) fn act_once(
        &mut self,
        once: &LoggedOnce,
        heartbeat: Millis,
        orders: &mut Orders,
    ) -> Result<Reply, Refusal> {
        let sent = once.sent();
        if let Some(answer) = self.answered(&sent) {
            return answer;
        }
        let refused = cfg!(debug_assertions).then(|| self.refuses(&once.action)).flatten();
        let result = self.act(&once.action, heartbeat, orders);
        if let Some(refusal) = refused {
            assert_eq!(result.as_ref().err(), Some(&refusal), "{:?}", once.action);
        }
        let served = self.served();
        self.clients.keep(served, &sent, ChangeOutcome::of(&result));
        result
    }

    /// Returns whether the log has a record so recent that a client lives that a change at `now`
    /// needs none. A client that is silent for long is forgotten.
    pub(crate) fn is_noted(&self, now: Instant, client: ClientId) -> bool {
        self.clients.is_noted(self.service.at(now), client)
    }

    /// Returns whether the catalog has a record of a client.
    pub(crate) fn has_client(&self, number: u64) -> bool {
        self.clients.is_known(number)
    }

    /// Returns the answer to a change that has been made, or why it must not be made; `None` if it
    /// is to be made.
    pub(crate) fn answered(&self, sent: &ChangeKey) -> Option<Result<Reply, Refusal>> {
        match self.clients.find(sent) {
            Ok(outcome) => outcome.map(|outcome| self.repeated_answer(outcome)),
            Err(refusal) => Some(Err(refusal)),
        }
    }

    fn repeated_answer(&self, outcome: &ChangeOutcome) -> Result<Reply, Refusal> {
        Ok(match outcome {
            ChangeOutcome::Done => Reply::Done,
            ChangeOutcome::Deleted { objects, freed_bytes } => {
                Reply::Deleted { objects: *objects, freed_bytes: *freed_bytes }
            }
            ChangeOutcome::Stat(stat) => Reply::Stat((**stat).clone()),
            ChangeOutcome::Grant { object, lease, blocks } => {
                if !self.has_lease(*object, *lease) {
                    return Err(Refusal::LeaseEnded { object: *object });
                }
                Reply::Grant(self.grant(*object, blocks))
            }
            ChangeOutcome::Job(job) => Reply::Job((**job).clone()),
            ChangeOutcome::Node(node) => {
                let unknown = || Refusal::UnknownNode { node: node.to_string() };
                let info = self.node_info(*node, self.now).ok_or_else(unknown)?;
                Reply::Node(Box::new(info))
            }
            ChangeOutcome::Reply(reply) => (**reply).clone(),
            ChangeOutcome::Refused(refusal) => return Err((**refusal).clone()),
        })
    }
}
