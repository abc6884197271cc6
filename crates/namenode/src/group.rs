//! A replicated group of namenodes: the shell of [`Replica`](sanderling_core::replica::Replica).
//!
//! The writer's thread has the [`GroupSeat`]. A round of the writer becomes an entry of the group's
//! log; once the quorum has it, each member writes its commands to its own journal and applies
//! them. So journal, snapshots, archive and backups have only what was agreed, and a namenode alone
//! has nothing of this. `docs/mechanisms/replication.md` has the failures.

mod changes;
mod clock;
pub(crate) mod hard_state;
pub(crate) mod incoming;
pub(crate) mod join;
mod links;
pub(crate) mod log;
pub(crate) mod member;
pub(crate) mod origin;
mod outgoing;
mod own_machine;
pub(crate) mod recover;
pub(crate) mod round;
pub(crate) mod service;
mod view;
pub(crate) mod wire;

use sanderling_core::catalog::Catalog;
use sanderling_core::replica::{Envelope, MachineLife, MemberAddress};
use sanderling_protocol::{ClusterId, Instant, MemberId, Millis, Refusal};
use sanderling_transport::{Credentials, KnownGeneration};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use changes::JoinReply;
pub(crate) use clock::boot_time;
use incoming::SnapshotFile;
use links::{Dialer, Links};
pub(crate) use member::GroupSeat;
pub(crate) use own_machine::OwnMachine;
pub use view::ServingState;
pub(crate) use view::{Admission, EndedAs, GroupStatus, HUNG_AFTER, MemberRow, MemberState};
pub use wire::GroupOrder;

use crate::options::Sync;

/// What came for the member of a group. The writer's thread takes it.
#[derive(Debug)]
pub(crate) enum GroupInput {
    /// A message of another member, and where that is.
    Message(Envelope, String),
    /// A namenode that joins.
    Join(MemberAddress, JoinReply),
    /// A snapshot has arrived whole: the message that it belongs to, the catalog, and the file.
    Snapshot(Envelope, Box<Catalog>, SnapshotFile),
    /// A snapshot was sent to a member, or not.
    Sent(MemberId, bool),
    /// Reads wait until the quorum has confirmed that this member leads.
    Confirm(oneshot::Sender<bool>),
    /// When this namenode's own machine will be taken, by [`boot_time`]; `None` if it stays.
    OwnNotice(Option<Instant>),
    /// How much time another member's machine has left; `None` if it stays.
    Notice(MemberId, Option<Millis>),
    /// How long another member's machine goes on without a notice.
    Life(MemberId, MachineLife),
    /// An operator's order.
    Order(GroupOrder, oneshot::Sender<Result<(), Refusal>>),
}

impl GroupInput {
    /// Returns whether another process has sent it, which may send more than the member takes.
    pub(crate) const fn is_message(&self) -> bool {
        match self {
            Self::Message(..)
            | Self::Join(..)
            | Self::Snapshot(..)
            | Self::Notice(..)
            | Self::Life(..)
            | Self::Order(..) => true,
            Self::Sent(..) | Self::Confirm(_) | Self::OwnNotice(_) => false,
        }
    }
}

/// What a namenode brings into a group.
#[derive(Debug, Clone)]
pub(crate) struct GroupSetup {
    /// Where the others reach it.
    pub(crate) at: MemberAddress,
    /// The voters that the group should have.
    pub(crate) voters: usize,
    /// The spares that should be ready.
    pub(crate) spares: usize,
    /// Whether it has an archive.
    pub(crate) has_archive: bool,
    pub(crate) machine: OwnMachine,
    pub(crate) sync: Sync,
    pub(crate) credentials: Credentials,
    pub(crate) runtime: Handle,
}

impl GroupSetup {
    /// Returns the connections to the members of a cluster's group.
    pub(crate) fn links(&self, cluster: ClusterId, generation: KnownGeneration) -> Links {
        let credentials = self.credentials.clone();
        let own = self.at.address.clone();
        Links::new(Dialer { cluster, credentials, generation }, self.runtime.clone(), own)
    }
}
