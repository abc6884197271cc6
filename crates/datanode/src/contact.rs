//! What an operator must learn of the node's membership: that the namenode is gone, that it is
//! back, that it refuses to register the node, and that it gave this node up although the process
//! runs. `core` decides when; this logs it, and has it ready for the health page.

use parking_lot::Mutex;
use sanderling_core::datanode::{ContactChange, NamenodeContact, RefusedRegistrations};
use sanderling_protocol::node::Load;
use sanderling_protocol::{Instant, NodeId, Refusal};
use sanderling_transport::CallError;
use serde_json::{Value, json};

use crate::namenode::failure;

/// What to do when the namenode does not answer.
const NEXT_WHEN_GONE: &str = "start the namenode, or: sanderling doctor --namenode ADDRESS";

/// What to do when the namenode refuses to register the node.
const NEXT_WHEN_REFUSED: &str = "sanderling doctor --namenode ADDRESS";

/// What to do when another live node has the node's name.
const NEXT_WHEN_NAME_IN_USE: &str =
    "start it with --name OTHER, or wait until the other node is declared dead";

/// What to do when the node was given up without a notice.
const NEXT_WHEN_GIVEN_UP: &str = "look for a pause of this machine or its network at that time, \
    then: sanderling fsck lists what is lost";

/// What to do when the time of a notice was too short.
const NEXT_WHEN_LATE: &str = "sanderling fsck lists what is lost";

/// The node's relation to its namenode, as operators see it.
#[derive(Debug)]
pub(crate) struct ContactLog {
    namenode: String,
    contact: Mutex<NamenodeContact>,
    refused: Mutex<RefusedRegistrations>,
    given_up: Mutex<GivenUpLog>,
}

/// How often the namenode gave nodes of this process up.
#[derive(Debug, Default)]
struct GivenUpLog {
    times: u64,
    /// Those of them without a notice.
    unexpected_times: u64,
    last: Option<GivenUp>,
}

/// One node that was given up.
#[derive(Debug, Clone, Copy)]
struct GivenUp {
    node: NodeId,
    at: Instant,
    is_expected: bool,
    load: Load,
}

impl ContactLog {
    pub(crate) fn new(namenode: &str, now: Instant) -> Self {
        Self {
            namenode: namenode.to_owned(),
            contact: Mutex::new(NamenodeContact::new(now)),
            refused: Mutex::default(),
            given_up: Mutex::default(),
        }
    }

    /// Handles the outcome of a call of the membership.
    pub(crate) fn called(&self, now: Instant, node: NodeId, outcome: Result<(), &CallError>) {
        let error = outcome.err();
        let failure = error.map(failure);
        let outcome = failure.as_ref().map_or(Ok(()), Err);
        let change = self.contact.lock().called(now, outcome);
        let namenode = &self.namenode;
        match (change, error) {
            (Some(ContactChange::Gone { silent }), Some(error)) if node == NodeId::default() => {
                tracing::warn!(
                    namenode,
                    %silent,
                    %error,
                    next = NEXT_WHEN_GONE,
                    "the namenode does not answer: this datanode has not joined it"
                );
            }
            (Some(ContactChange::Gone { silent }), Some(error)) => tracing::warn!(
                %node,
                namenode,
                %silent,
                %error,
                next = NEXT_WHEN_GONE,
                "the namenode does not answer: blocks here can still be read"
            ),
            (Some(ContactChange::Back { silent, failed_calls }), _) => {
                tracing::info!(
                    %node, namenode, %silent, failed_calls, "the namenode answers again"
                );
            }
            _ => {}
        }
    }

    /// Handles the outcome of a registration, which is tried again if it failed.
    pub(crate) fn registered(&self, now: Instant, outcome: Result<(), &CallError>) {
        let mut refused = self.refused.lock();
        let Err(error) = outcome else {
            *refused = RefusedRegistrations::default();
            return;
        };
        if !refused.failed(now, &failure(error)) {
            return;
        }
        drop(refused);
        let next = match error {
            CallError::Refused(Refusal::NameInUse { .. }) => NEXT_WHEN_NAME_IN_USE,
            _ => NEXT_WHEN_REFUSED,
        };
        tracing::warn!(
            namenode = self.namenode,
            %error,
            next,
            "the namenode refuses to register this node, which tries again"
        );
    }

    /// Handles that the namenode gave a node of this process up. `load` is what it holds; it is
    /// dropped before the process joins again. After a notice, `expected` is the number of blocks
    /// that had their home here at the last heartbeat.
    pub(crate) fn given_up(&self, now: Instant, node: NodeId, load: Load, expected: Option<u64>) {
        let is_expected = expected.is_some();
        if node == NodeId::default() {
            // It was given up before its registration was answered, so it holds nothing. The
            // namenode may repeat this with every attempt.
            tracing::debug!("given up before the process was a node");
            return;
        }
        let mut given_up = self.given_up.lock();
        given_up.times += 1;
        given_up.unexpected_times += u64::from(!is_expected);
        given_up.last = Some(GivenUp { node, at: now, is_expected, load });
        drop(given_up);
        let (blocks, bytes) = (load.blocks, held_bytes(&load));
        match expected {
            None => {}
            Some(0) => {
                tracing::warn!(%node, blocks, bytes, "the namenode gave this empty node up");
                return;
            }
            Some(homes) => {
                tracing::error!(
                    %node,
                    homes,
                    next = NEXT_WHEN_LATE,
                    "the deadline passed while this node runs, and the namenode gave it up: blocks \
                     that had not left are lost. The node joins again, empty"
                );
                return;
            }
        }
        tracing::error!(
            %node,
            blocks,
            bytes,
            next = NEXT_WHEN_GIVEN_UP,
            "the namenode gave this node up although it runs: it did not receive the heartbeats \
             in time. The node drops its blocks and joins again as another"
        );
    }

    /// Returns whether the namenode answers.
    pub(crate) fn is_namenode_up(&self) -> bool {
        !self.contact.lock().is_gone()
    }

    /// Returns how often the namenode gave a node of this process up although it ran.
    pub(crate) fn unexpected_times(&self) -> u64 {
        self.given_up.lock().unexpected_times
    }

    /// Returns the fields of the health page.
    pub(crate) fn health(&self, now: Instant) -> (Value, Value) {
        let contact = *self.contact.lock();
        let namenode = json!({
            "address": self.namenode,
            "is_up": !contact.is_gone(),
            "silent_millis": contact.silent(now),
            "failed_calls": contact.failed_calls(),
        });
        let given_up = self.given_up.lock();
        let Some(last) = given_up.last else { return (namenode, Value::Null) };
        let given_up = json!({
            "times": given_up.times,
            "node": last.node,
            "ago_millis": now.since(last.at),
            "is_expected": last.is_expected,
            "blocks": last.load.blocks,
            "bytes": held_bytes(&last.load),
            "next": if last.is_expected { "" } else { NEXT_WHEN_GIVEN_UP },
        });
        (namenode, given_up)
    }
}

fn held_bytes(load: &Load) -> u64 {
    load.dram_used_bytes.saturating_add(load.disk_used_bytes)
}
