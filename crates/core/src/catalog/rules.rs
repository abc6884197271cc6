//! The rules by which a log's commands are applied.

use serde::{Deserialize, Serialize};

/// A number with each step of which commands do something else than before. 0 in a log that has no
/// [`Action::Rules`](super::Action::Rules): deletions free everything at once.
///
/// 1: deletions are freed slice by slice. 2: a directory in which an object is written is not
/// empty, also if the object gets its name by its seal. 3: owners take turns in what is freed
/// ([`ReapQueue`](super::reap_queue::ReapQueue)). 4: bytes behind a block that a request leaves
/// out are refused, and a node that has taken more than it holds gives up as many copies more.
/// 5: after a start, block reports also commit moves that were stored, and show what a lost end
/// had moved into the object tier. 6: a node whose address another process takes after a start
/// stays until it is declared dead. 7: what an operator and what a node's own sources want of
/// it is kept apart, so that a withdrawn notice leaves the rest. 8: what was taken back stays
/// so when another notice follows, a renamed object has the bytes that its store has by the
/// old name, nodes that leave show what a lost end had moved to them, no
/// block leaves the object tier into room that is kept, and of a tree that is deleted and waits
/// for its store goes first what has bytes missing. 9: a renamed object that its store lacks by
/// the old name has the bytes of the new one until that is reported, also after they were read
/// back. 10: the log has reports by which name a store lacks an object
/// ([`DurableAction::Report`](super::DurableAction::Report)), which programs of before cannot read,
/// and no writer's lease ends in the first 30 s after a start if bytes would be dropped by that.
/// 11: the log has reports with what a manager takes for recorded
/// ([`DurableAction::Record`](super::DurableAction::Record)), which programs of before cannot read.
/// A deletion that names its object, and is not recursive, leaves durable directories and the roots
/// of jobs.
/// An object that its store refuses for good may be deleted before the store has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Rules(pub(super) u32);

impl Rules {
    /// Those of this program.
    pub(super) const LAST: Self = Self(11);

    pub(super) const fn frees_in_slices(self) -> bool {
        self.0 >= 1
    }

    pub(super) const fn keeps_open_directories(self) -> bool {
        self.0 >= 2
    }

    pub(super) const fn frees_by_owner(self) -> bool {
        self.0 >= 3
    }

    /// Returns whether bytes behind a block that a request leaves out are refused.
    pub(super) const fn refuses_omitted_blocks(self) -> bool {
        self.0 >= 4
    }

    /// Returns whether a node's bytes beyond its capacity count where room is made on it.
    pub(super) const fn counts_excess(self) -> bool {
        self.0 >= 4
    }

    /// Returns whether block reports commit stored moves, and show what is in the object tier.
    pub(super) const fn learns_moves(self) -> bool {
        self.0 >= 5
    }

    /// Returns whether a node of before a start stays when another process takes its address.
    pub(super) const fn keeps_replaced_nodes(self) -> bool {
        self.0 >= 6
    }

    /// Returns whether it is kept apart why nodes drain.
    pub(super) const fn keeps_claims(self) -> bool {
        self.0 >= 7
    }

    /// Returns whether a cancellation holds against repetitions of before when a notice follows it.
    pub(super) const fn keeps_cancellations(self) -> bool {
        self.0 >= 8
    }

    /// Returns whether moves out of the object tier leave what is kept for nodes that leave.
    pub(super) const fn keeps_room_from_moves(self) -> bool {
        self.0 >= 8
    }

    /// Returns whether nodes that leave show what a lost end of the log had moved to them.
    pub(super) const fn learns_moves_of_leaving(self) -> bool {
        self.0 >= 8
    }

    /// Returns whether the names are kept that stores have of renamed objects.
    pub(super) const fn keeps_stored_names(self) -> bool {
        self.0 >= 8
    }

    /// Returns whether a deletion that waits for a store begins with what that never gets.
    pub(super) const fn deletes_lost_first(self) -> bool {
        self.0 >= 8
    }

    /// Returns whether a durable directory's store is claimed only by objects that it got.
    pub(super) const fn claims_by_objects(self) -> bool {
        self.0 >= 8
    }

    /// Returns whether the new name of a renamed object is kept by which its store may have it.
    pub(super) const fn keeps_new_names(self) -> bool {
        self.0 >= 9
    }

    /// Returns whether a lease whose end would have bytes dropped ends later after a start.
    pub(super) const fn keeps_unsealed(self) -> bool {
        self.0 >= 10
    }

    /// Returns whether a durable directory or a job's root stays when it is removed as one that is
    /// empty.
    pub(super) const fn keeps_marked_directories(self) -> bool {
        self.0 >= 11
    }

    /// Returns whether an object may be deleted whose name its store refuses for good.
    pub(super) const fn deletes_refused(self) -> bool {
        self.0 >= 11
    }
}
