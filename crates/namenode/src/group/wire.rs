//! What namenodes of a group send one another, in frames of [`Op::Group`](sanderling_protocol::Op).
//!
//! A frame has one message and is answered at once: a message of the replica has an empty answer,
//! and the answer that matters comes in a frame of the other member.

use bytes::Bytes;
use sanderling_core::catalog::Catalog;
use sanderling_core::replica::{GroupGeneration, MachineLife, MemberAddress};
use sanderling_protocol::message::MemberRole;
use sanderling_protocol::{ClusterId, MemberId, Millis, Refusal};
use sanderling_transport::Credentials;
use serde::{Deserialize, Serialize};

/// The version of these messages. Members of another version are refused.
const VERSION: u32 = 4;

/// Bytes of a snapshot that are sent in one frame. Heartbeats and entries share the link: at
/// 100 Mbit/s they wait 80 ms for one part, well below the 400 ms after which a member looks for
/// another leader.
pub(crate) const PART_BYTES: usize = 1 << 20;

/// What a member must have in common with its group: each applies what the leader has logged, and
/// reads the leader's snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GroupFormat {
    version: u32,
    rules: u32,
    snapshot: u32,
}

impl GroupFormat {
    /// The versions of this program: of the group's messages, of the catalog's rules, of snapshots.
    pub(crate) const OWN: Self =
        Self { version: VERSION, rules: Catalog::RULES, snapshot: Catalog::FORMAT };

    /// Refuses a member whose program is another.
    pub(crate) fn check(self) -> Result<(), Refusal> {
        if self == Self::OWN {
            return Ok(());
        }
        let Self { version, rules, snapshot } = self;
        let own = Self::OWN;
        let why = format!(
            "a member of a group runs the same version of sanderling: messages {version}, rules \
             {rules}, snapshots {snapshot} there; {}, {}, {} here",
            own.version, own.rules, own.snapshot
        );
        Err(Refusal::BadRequest { why })
    }
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum GroupFrame {
    /// A message of the replica, encoded by it, and where its sender is: a member that has just
    /// joined has no list of the others yet. The answer is a [`LaterGeneration`], if the receiver's
    /// is later than the message's.
    Message { address: String, bytes: Bytes },
    /// A namenode without a catalog becomes a member. The answer is its number, and the group's
    /// generation.
    Join { format: GroupFormat, at: MemberAddress },
    /// A part of a snapshot.
    Part(SnapshotPart),
    /// An operator's order to the leader.
    Order(GroupOrder),
    /// A member's machine has so much time left; `None`: its notice was taken back. Members repeat
    /// their notices to the leader.
    Notice { generation: GroupGeneration, member: MemberId, left: Option<Millis> },
    /// How long a member's machine goes on. Members repeat it to the leader.
    Life { generation: GroupGeneration, member: MemberId, life: MachineLife },
    /// An operator's notice to this member, or that it is taken back.
    OwnNotice { left: Option<Millis>, reason: String },
    /// A request for the group as this member has it. The answer is a [`GroupPage`].
    Show,
}

/// An operator's order to a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupOrder {
    /// Another voter leads: this one, or the one that is most up to date.
    MoveLeader(Option<MemberId>),
    /// A member leaves the group for good.
    Remove(MemberId),
}

/// A group, as one of its members has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupPage {
    /// The member that answers.
    pub here: MemberId,
    /// Its term.
    pub term: u64,
    /// How often the group was begun anew after its majority was lost.
    pub generation: u64,
    /// That, and what distinguishes it from another recovery of the same generation.
    pub generation_name: String,
    /// All members. Of what only a leader has, another member shows nothing.
    pub members: Vec<MemberPage>,
    /// Why the group may stop soon, if so.
    pub at_risk: Option<String>,
    /// Namenodes that should be started with `--join` so that the group has its spares.
    pub spares_missing: Option<usize>,
}

/// One member of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberPage {
    /// Its number.
    pub id: MemberId,
    /// Where it serves the protocol.
    pub address: String,
    /// Where it serves HTTP, or empty.
    pub http_address: String,
    /// What it does.
    pub role: MemberRole,
    /// It answered the leader lately.
    pub is_active: Option<bool>,
    /// Entries that it is behind the leader.
    pub behind_entries: Option<u64>,
    /// Time until its machine is taken, if it has a notice.
    pub notice_left: Option<Millis>,
    /// How long its machine goes on without a notice.
    pub expected_life: MachineLife,
}

/// The answer to a member that a later generation of its group has left behind. The proof is made
/// with the cluster's secret, where there is one: without it no process can end a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LaterGeneration {
    pub(crate) generation: GroupGeneration,
    proof: Option<Vec<u8>>,
}

impl LaterGeneration {
    pub(crate) fn new(
        cluster: ClusterId,
        generation: GroupGeneration,
        credentials: &Credentials,
    ) -> Self {
        Self { generation, proof: credentials.prove(&Self::statement(cluster, generation)) }
    }

    /// Returns whether a member of the cluster has sent it, as far as that can be checked.
    pub(crate) fn is_proven(&self, cluster: ClusterId, credentials: &Credentials) -> bool {
        credentials.is_proven(&Self::statement(cluster, self.generation), self.proof.as_deref())
    }

    fn statement(cluster: ClusterId, generation: GroupGeneration) -> Vec<u8> {
        format!("cluster {:016x} has generation {}", cluster.0, generation.0).into_bytes()
    }
}

/// A part of a snapshot's file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SnapshotPart {
    pub(crate) format: GroupFormat,
    /// Drawn for one sending: parts of another do not belong to it.
    pub(crate) sending: u64,
    pub(crate) offset: u64,
    pub(crate) total: u64,
    /// Of the whole file.
    pub(crate) checksum: u32,
    /// With the last part, the replica's message that the snapshot belongs to, encoded.
    pub(crate) message: Bytes,
    pub(crate) bytes: Bytes,
}
