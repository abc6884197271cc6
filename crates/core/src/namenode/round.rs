//! Rounds: the commands of one journal write. Each is prepared before the others are applied.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_protocol::{NodeId, Request, Tier};

use super::group_commit::CommandOrigin;
use crate::catalog::{Action, Catalog, Command, Placement, allocated_bytes};

/// The commands of one journal write.
///
/// Two rules keep every choice right until it is applied. A command that changes which nodes may
/// get blocks is the last of its round. And a round takes no more placements than fit into the free
/// room of each node and tier, in bytes, except that the first command is always taken.
#[derive(Debug, Default)]
pub(super) struct Round {
    commands: Vec<(Command, CommandOrigin)>,
    taken: BTreeMap<(NodeId, Tier), u64>,
    /// Changes that are made once, by client and sequence.
    once: BTreeSet<(u64, u64)>,
    is_closed: bool,
}

impl Round {
    /// Most commands of a round, because readers wait while it is prepared and applied. A create
    /// takes at most 6 us of the server's time (measured, see `docs/mechanisms/catalog.md`), so a
    /// round of creates takes 12 ms.
    const COMMANDS_MAX: usize = 2048;

    /// Returns whether the round takes no further command.
    pub(super) const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Adds a command and returns true. Returns false and closes the round if the placements before
    /// it have taken its room: the caller prepares the request again for the next round.
    pub(super) fn push(
        &mut self,
        catalog: &Catalog,
        command: Command,
        origin: CommandOrigin,
    ) -> bool {
        if !self.take_room(catalog, placed(&command.action)) {
            self.is_closed = true;
            return false;
        }
        self.is_closed =
            changes_nodes(&command.action) || self.commands.len() + 1 >= Self::COMMANDS_MAX;
        self.once.extend(once(&command));
        self.commands.push((command, origin));
        true
    }

    /// Returns whether a copy of a command's change is in the round: it may be done, so this one is
    /// answered as that one is.
    pub(super) fn has_copy(&self, command: &Command) -> bool {
        once(command).is_some_and(|change| self.once.contains(&change))
    }

    /// Returns the commands in the order in which they were added.
    pub(super) fn into_commands(self) -> Vec<(Command, CommandOrigin)> {
        self.commands
    }

    fn take_room(&mut self, catalog: &Catalog, placements: &[Placement]) -> bool {
        let mut is_there = true;
        for placement in placements {
            let taken = self.taken.entry((placement.node, placement.tier)).or_default();
            *taken += u64::from(allocated_bytes(placement.bytes_max));
            is_there &= *taken <= catalog.node_room(placement.node, placement.tier).0;
        }
        // Alone, a command was prepared with all that there is.
        is_there || self.commands.is_empty()
    }
}

/// Returns whether [`Round::push`] may reject the command of a request: it places blocks. The
/// caller keeps a copy of such a request.
pub(super) const fn may_place(request: &Request) -> bool {
    match request.inner() {
        Request::Create(request) => request.inline.is_none(),
        Request::Append { .. } | Request::AddBlocks { .. } => true,
        _ => false,
    }
}

/// Returns whether a request becomes a command whatever state the catalog is in, unless it is a
/// repeat that is answered from a kept answer. Such a request can be prepared before the commands
/// ahead of it are applied.
pub(super) const fn is_change(request: &Request) -> bool {
    match request.inner() {
        Request::Create(request) => request.inline.is_some(),
        Request::MakeDirectory { .. }
        | Request::Publish { .. }
        | Request::Seal { .. }
        | Request::Abort { .. }
        | Request::RenewLeases { .. }
        | Request::Rename { .. }
        | Request::Delete { .. }
        | Request::DeleteObject { .. }
        | Request::SetTtl { .. }
        | Request::SetAttributes { .. }
        | Request::Concat(_) => true,
        _ => false,
    }
}

/// Returns whether a command only records a refusal as the outcome of a change.
pub(super) const fn is_refusal(command: &Command) -> bool {
    matches!(command.action.inner(), Action::Refuse(_))
}

/// Returns the client and the sequence of a change that is made once.
const fn once(command: &Command) -> Option<(u64, u64)> {
    match &command.action {
        Action::Once(once) => Some((once.client.number, once.sequence)),
        _ => None,
    }
}

const fn placed(action: &Action) -> &[Placement] {
    match action.inner() {
        Action::Create { placed, .. }
        | Action::Append { placed, .. }
        | Action::AddBlocks { placed, .. } => placed.as_slice(),
        _ => &[],
    }
}

const fn changes_nodes(action: &Action) -> bool {
    action.changes_nodes() || matches!(action, Action::Tick)
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::message::Register;
    use sanderling_protocol::node::TierCapacity;
    use sanderling_protocol::{ClusterId, Instant, LeaseId, Nonce, ObjectId};

    use super::*;
    use crate::namenode::{Namenode, NamenodeConfig, Prepared};

    const MIB: u32 = 1 << 20;

    fn namenode() -> Namenode {
        let mut namenode = Namenode::new(NamenodeConfig::default(), ClusterId(1));
        let register = Register {
            cluster: None,
            nonce: Nonce(1),
            name: String::new(),
            address: "a:1".to_owned(),
            http_address: String::new(),
            host: String::new(),
            tiers: vec![TierCapacity { tier: Tier::Dram, bytes: 2 << 20 }],
            notice_min: None,
            egress_bytes_per_second: None,
        };
        let prepared = namenode.prepare(Instant(1), Request::Register(register));
        let Prepared::Log(command) = prepared else { panic!() };
        namenode.apply(&command).result.unwrap();
        namenode
    }

    fn add_blocks(count: usize) -> Command {
        let placed = vec![Placement { node: NodeId(1), tier: Tier::Dram, bytes_max: MIB }; count];
        let (object, lease, ended) = (ObjectId(1), LeaseId(1), Vec::new());
        Command { at: Instant(1), action: Action::AddBlocks { object, lease, ended, placed } }
    }

    #[test]
    fn placements_of_a_round_fit_together() {
        let namenode = namenode();
        let mut round = Round::default();
        assert!(round.push(namenode.catalog(), add_blocks(1), CommandOrigin::Own));
        assert!(round.push(namenode.catalog(), add_blocks(1), CommandOrigin::Own));
        assert!(!round.push(namenode.catalog(), add_blocks(1), CommandOrigin::Own));
        assert!(round.is_closed());
        assert_eq!(round.into_commands().len(), 2);
        let mut alone = Round::default();
        assert!(alone.push(namenode.catalog(), add_blocks(3), CommandOrigin::Own));
    }

    #[test]
    fn change_of_nodes_is_the_last_of_its_round() {
        let namenode = namenode();
        let mut round = Round::default();
        assert!(round.push(namenode.catalog(), add_blocks(1), CommandOrigin::Own));
        let notice =
            Action::Notice { node: NodeId(1), deadline: Instant(9), reason: String::new() };
        let notice = Command { at: Instant(1), action: notice };
        assert!(round.push(namenode.catalog(), notice, CommandOrigin::Own));
        assert!(round.is_closed());
    }
}
