//! Refusals: the closed table of the answers of a server that does not do what was requested.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::amount;
use crate::ids::{BlockId, ClusterId, Epoch, JobId, NodeId, ObjectId};
use crate::path::Path;
use crate::time::Millis;

/// The caller's next step after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// Drop what was cached about the object, look it up again, then try again.
    Refresh,
    /// Try the same again after this long.
    RetryAfter(Millis),
    /// The bytes are gone: compute them again. Retrying does not help.
    Recompute,
    /// Neither the caller nor the cluster can mend the cause: inform an operator.
    Report,
    /// The request itself is wrong: correct it.
    Fix,
}

/// A run of bytes of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ByteRange {
    /// First byte, counted from the start of the object.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
}

macro_rules! refusals {
    ($(
        $(#[$meta:meta])*
        $name:ident $({ $( $(#[$field_meta:meta])* $field:ident : $type:ty ),* $(,)? })?
        = $code:literal,
    )*) => {
        /// A reason why a request was not done. Each variant has a number that never changes.
        #[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[allow(missing_docs, reason = "the fields' names are the messages' words")]
        pub enum Refusal {
            $( $(#[$meta])* $name $({ $( $(#[$field_meta])* $field : $type ),* })?, )*
        }

        impl Refusal {
            /// Returns the refusal's number, which is the `status` of the frame that carries it and
            /// never changes.
            #[must_use]
            pub const fn code(&self) -> u16 {
                match self { $( Self::$name { .. } => $code, )* }
            }

            /// Returns the refusal's name, as scripts and other languages use it.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self { $( Self::$name { .. } => stringify!($name), )* }
            }

            /// Returns which refusal it is, without its values.
            #[must_use]
            pub const fn kind(&self) -> RefusalKind {
                match self { $( Self::$name { .. } => RefusalKind::$name, )* }
            }

            /// Every number of the table with its name.
            pub const TABLE: &'static [(u16, &'static str)] =
                &[ $( ($code, stringify!($name)), )* ];
        }

        /// The kind of a refusal: its row of the table, without the values of the single case.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum RefusalKind {
            $( #[doc = concat!("As [`Refusal::", stringify!($name), "`].")] $name, )*
        }

        impl RefusalKind {
            /// Every kind, in the order of the table.
            pub const ALL: &'static [Self] = &[ $( Self::$name, )* ];

            /// Returns the refusal's name, as scripts and other languages use it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $( Self::$name => stringify!($name), )* }
            }
        }
    };
}

refusals! {
    /// The frame's fields contradict each other or its body cannot be read.
    #[error("bad frame: {why}")]
    BadFrame { why: String } = 1,
    /// The peer speaks another version of the protocol.
    #[error("unknown protocol version {theirs}: this side speaks {ours}")]
    UnknownVersion { ours: u8, theirs: u8 } = 2,
    /// The operation's number is not in this version's table.
    #[error("unknown operation {op}")]
    UnknownOp { op: u8 } = 3,
    /// Something exceeds its limit.
    #[error("{}", too_large(what, *value, *limit))]
    TooLarge { what: String, value: u64, limit: u64 } = 4,
    /// The connection did not begin with a greeting.
    #[error("the connection did not begin with a greeting")]
    NoHello = 5,

    /// The path breaks the rules of names.
    #[error("bad path {path:?}: {why}")]
    BadPath { path: String, why: String } = 20,
    /// No object has this name.
    #[error("{path} does not exist")]
    NotFound { path: Path } = 21,
    /// An object of this name exists.
    #[error("{path} exists")]
    Exists { path: Path } = 22,
    /// A component before the last is not a directory, or the object is none.
    #[error("{path} is not a directory")]
    NotADirectory { path: Path } = 23,
    /// The object is a directory where a file is needed.
    #[error("{path} is a directory")]
    IsADirectory { path: Path } = 24,
    /// The directory holds something and the deletion was not recursive.
    #[error("{path} is not empty: delete it recursively to delete what is in it")]
    NotEmpty { path: Path } = 25,
    /// The object is of a kind that the operation cannot be done on, or cannot hold.
    #[error("{path}: {why}")]
    WrongKind { path: Path, why: String } = 26,
    /// A directory cannot be moved into itself.
    #[error("{from} cannot be moved into itself")]
    IntoItself { from: Path } = 27,
    /// A rename would move objects from one job's subtree to another's.
    #[error("{from} and {to} belong to different jobs: copy instead")]
    CrossesJob { from: Path, to: Path } = 28,
    /// The object has been deleted or replaced since it was opened.
    #[error("object {object} is gone")]
    ObjectGone { object: ObjectId } = 29,
    /// The request's values contradict each other or its text is not valid.
    #[error("bad request: {why}")]
    BadRequest { why: String } = 30,
    /// Another object has the name than the one that was expected there.
    #[error("{path} is not object {expected} any more: look it up and decide again")]
    Changed { path: Path, expected: ObjectId } = 31,

    /// The storage class is none of the known ones.
    #[error(
        "unknown storage class {class:?}: use dram or disk, then :fall-through, :wait or :refuse"
    )]
    UnknownStorageClass { class: String } = 40,
    /// No node that may be placed on has room in the tiers that the class allows.
    #[error("no room for {} in class {class}", amount::bytes(*bytes))]
    Full { bytes: u64, class: String } = 41,
    /// The job has used up its quota.
    #[error(
        "job {job} would exceed its quota: {} of {} used, {} requested",
        amount::bytes(*used), amount::bytes(*quota), amount::bytes(*asked)
    )]
    QuotaPassed { job: JobId, quota: u64, used: u64, asked: u64 } = 42,
    /// The namenode cannot write its journal. Nothing was changed.
    #[error("the namenode's journal cannot be written: {why}")]
    JournalFull { why: String } = 43,
    /// The server is busy, or the requested thing will be there soon.
    #[error("try again in {after}: {why}")]
    RetryAfter { after: Millis, why: String } = 44,

    /// Another writer holds the object.
    #[error("{path} is being written by another writer for up to {remaining} more")]
    SecondWriter { path: Path, remaining: Millis } = 60,
    /// The writer's lease ended, or was taken over.
    #[error("the lease on object {object} has ended")]
    LeaseEnded { object: ObjectId } = 61,
    /// The object is sealed: append to it to write more.
    #[error("object {object} is sealed")]
    Sealed { object: ObjectId } = 62,

    /// The block is fenced here: end it at `length` bytes and continue in a new block.
    #[error("block {block} is fenced at {length} bytes: continue in a new block")]
    Moved { block: BlockId, length: u32 } = 80,
    /// The location is out of date.
    #[error("block {block} moved: epoch {here} here, {asked} requested")]
    StaleEpoch { block: BlockId, here: Epoch, asked: Epoch } = 81,
    /// The block is not on this node.
    #[error("block {block} is not on this node")]
    UnknownBlock { block: BlockId } = 82,
    /// The connection reached another incarnation than the location names.
    #[error("this is node {here}, not node {asked}")]
    WrongNode { here: NodeId, asked: NodeId } = 83,
    /// A read starts or ends past the end.
    #[error("range {offset}+{bytes} passes the end at {end}")]
    OutOfRange { offset: u64, bytes: u64, end: u64 } = 84,
    /// The bytes do not have the checksum that came with them.
    #[error("checksum mismatch on block {block}: {computed:08x} computed, {expected:08x} expected")]
    ChecksumMismatch { block: BlockId, expected: u32, computed: u32 } = 85,
    /// A write does not start where the block ends.
    #[error("block {block} ends at {length}, the write starts at {offset}")]
    NotAtEnd { block: BlockId, length: u32, offset: u32 } = 86,
    /// The node's tier has no room for the block.
    #[error("the {tier} tier of this node has no room for {}", amount::bytes(*bytes))]
    NodeFull { tier: String, bytes: u64 } = 87,
    /// The block must be fenced or sealed before it is pushed, and is neither.
    #[error("block {block} still accepts writes")]
    StillOpen { block: BlockId } = 88,
    /// The tier cannot be used now: the machine lacks files, memory or threads, or the object store
    /// does not answer.
    #[error("the {tier} tier of this node cannot be used now: {why}")]
    TierFailed { tier: String, why: String } = 89,

    /// Bytes of the object are lost and declared so.
    #[error(
        "{path}: {} are lost, the first at offset {}",
        amount::bytes(ranges.iter().map(|range| range.bytes).sum()),
        ranges.first().map_or(0, |range| range.offset)
    )]
    DataUnavailable { path: Path, object: ObjectId, ranges: Vec<ByteRange> } = 100,

    /// No node answers to this name, id or address.
    #[error("no node is called {node:?}: see `sanderling node ls`")]
    UnknownNode { node: String } = 120,
    /// The peer belongs to another cluster.
    #[error("this is cluster {here:016x}, not {asked:016x}", here = here.0, asked = asked.0)]
    WrongCluster { here: ClusterId, asked: ClusterId } = 121,
    /// The node was declared dead: it starts again as a new incarnation.
    #[error("node {node} was declared dead: register again")]
    NodeGone { node: NodeId } = 122,
    /// A deadline that lies in the past.
    #[error("the deadline passed {ago} ago")]
    DeadlinePassed { ago: Millis } = 123,
    /// Another live node has this name.
    #[error("the name {name:?} is in use by node {node}")]
    NameInUse { name: String, node: NodeId } = 124,
    /// The node's state does not allow this.
    #[error("node {node}: {why}")]
    WrongState { node: NodeId, why: String } = 125,
    /// Another manager holds the leadership lease.
    #[error("another manager has the leadership lease for up to {remaining} more")]
    NotManager { remaining: Millis } = 126,
    /// A move whose block was moved, deleted or given up meanwhile.
    #[error("block {block} is no longer at epoch {from} of this move: {why}")]
    MoveVoid { block: BlockId, from: Epoch, why: String } = 127,
    /// No job has this id, or its lease has ended.
    #[error("job {job} does not exist or has ended")]
    UnknownJob { job: JobId } = 140,

    /// The caller showed no token, or one that is not valid.
    #[error("not authenticated: {why}")]
    Unauthenticated { why: String } = 160,
    /// The caller's token does not allow it.
    #[error("not allowed: {why}")]
    Forbidden { why: String } = 161,
    /// The change was sent before, or its client is not known any more: whether it was done is not
    /// known. It is not done now.
    #[error(
        "the outcome of change {sequence} of client {client} is unknown: look, then decide"
    )]
    OutcomeUnknown { client: u64, sequence: u64 } = 33,

    /// The blocks would use room that is kept for nodes that leave.
    #[error(
        "no room for {} in class {class}: {} may still be written, {} are kept so that {} can \
         leave at once",
        amount::bytes(*bytes), amount::bytes(*room), amount::bytes(*reserve),
        amount::count((*departures).into(), "node", "nodes")
    )]
    ReserveKept { bytes: u64, class: String, room: u64, reserve: u64, departures: u32 } = 45,

    /// What this node holds of the block is not what was written. The node has reported it to the
    /// namenode, which has the list of other copies.
    #[error("block {block} is damaged on this node: look it up again")]
    BlockDamaged { block: BlockId } = 90,

    /// The job holds as much of something beside bytes as it may.
    #[error(
        "job {job} would exceed its limit of {what}: {used} of {limit} used, {asked} more \
         requested; delete some of them, or register a job with a higher limit"
    )]
    JobLimitPassed { job: JobId, what: String, limit: u64, used: u64, asked: u64 } = 46,

    /// Another namenode of the group leads, or none does at the moment. Nothing was changed.
    #[error(
        "this namenode does not lead its group: {}",
        leader.as_ref().map_or("no leader is known yet", String::as_str)
    )]
    NotLeader { leader: Option<String> } = 128,

    /// The two belong to different beginnings of the group of namenodes. One was left behind, or
    /// two recoveries have begun the group.
    #[error("{}", other_generation(*here, *asked))]
    OtherGeneration { here: u64, asked: u64 } = 129,

    /// The namenode took the change and ends, or leads its group no more, before it could find out
    /// whether the change is made. Its successor may have it. The same request, under the same
    /// sequence, is answered by that one.
    #[error("the change may have been made: {why}")]
    Undecided { why: String } = 130,
}

/// Pause before a change is repeated whose outcome its namenode could not find out. Half of the
/// 400 ms without a leader after which an election begins at the earliest: the change finds the new
/// leader soon after its election, with a few attempts in vain.
const UNDECIDED_PAUSE: Millis = Millis(200);

/// Returns how a generation of a group of namenodes is written: how many there were before, and
/// what distinguishes it from others that follow the same one.
#[must_use]
pub fn generation_name(generation: u64) -> String {
    format!("{}-{:08x}", generation >> 32, generation & 0xffff_ffff)
}

/// Describes how two generations differ.
fn other_generation(here: u64, asked: u64) -> String {
    let (own, theirs) = (generation_name(here), generation_name(asked));
    match here >> 32 == asked >> 32 {
        true => format!(
            "two recoveries have begun generation {} of the group of namenodes: {own} is known \
             here, {theirs} there; end one of the two",
            here >> 32
        ),
        false => format!(
            "the group of namenodes was begun anew: it is of generation {own} here, of {theirs} \
             there"
        ),
    }
}

/// Describes what exceeds its limit; a deadline in the words of people.
fn too_large(what: &str, value: u64, limit: u64) -> String {
    match what {
        Refusal::NOTICE_DEADLINE => {
            format!("deadline is too large: {}, the limit is {}", Millis(value), Millis(limit))
        }
        what => format!("{what} is too large: {value}, the limit is {limit}"),
    }
}

impl Refusal {
    /// What is too large in [`Refusal::TooLarge`] if it is the deadline of a notice. The frame has
    /// it as a text: readers of a refusal call [`Refusal::is_far_notice`].
    pub const NOTICE_DEADLINE: &str = "deadline in milliseconds";

    /// Why a token is [`Refusal::Unauthenticated`] whose claims a server does not support. Callers
    /// with the secret then show one of the previous release.
    pub const TOKEN_CLAIMS: &str = "the token's claims cannot be read";

    /// Why a caller without TLS is [`Refusal::Unauthenticated`] at an endpoint with TLS. Readers of
    /// a refusal call [`Refusal::requires_tls`].
    pub const TLS_REQUIRED: &str = "this port speaks TLS: give --tls-ca";

    /// Why placement answers with [`Refusal::RetryAfter`] when no datanode takes blocks. Readers of
    /// a refusal call [`Refusal::lacks_datanodes`].
    pub const NO_DATANODES: &str = "no datanode takes blocks";

    /// Why a path with a component that is too long is [`Refusal::BadPath`].
    pub(crate) const LONG_COMPONENT: &str = "a component is longer than 255 bytes";

    /// Why a path with too many components is [`Refusal::BadPath`].
    pub(crate) const DEEP_PATH: &str = "there are more than 128 components";

    /// How the reason begins for which a name that is too long in a store is [`Refusal::BadPath`].
    const LONG_STORE_KEY: &str = "its name in the store would have ";

    /// Returns the refusal of a name that would have `length` bytes in a store, of at most `most`.
    #[must_use]
    pub fn long_store_key(name: &str, length: usize, most: usize) -> Self {
        let why = format!("{}{length} of {most} bytes", Self::LONG_STORE_KEY);
        Self::BadPath { path: name.to_owned(), why }
    }

    /// Returns whether it refuses a notice whose deadline is too far away.
    #[must_use]
    pub fn is_far_notice(&self) -> bool {
        matches!(self, Self::TooLarge { what, .. } if what == Self::NOTICE_DEADLINE)
    }

    /// Returns whether an endpoint with TLS refuses a caller without TLS.
    #[must_use]
    pub fn requires_tls(&self) -> bool {
        matches!(self, Self::Unauthenticated { why } if why == Self::TLS_REQUIRED)
    }

    /// Returns whether it refuses blocks because no datanode takes any.
    #[must_use]
    pub fn lacks_datanodes(&self) -> bool {
        matches!(self, Self::RetryAfter { why, .. } if why == Self::NO_DATANODES)
    }

    /// Returns whether it refuses a path that is too long, or whose name in a store would be.
    #[must_use]
    pub fn is_long_path(&self) -> bool {
        let Self::BadPath { why, .. } = self else { return false };
        why == Self::LONG_COMPONENT
            || why == Self::DEEP_PATH
            || why.starts_with(Self::LONG_STORE_KEY)
    }

    /// Returns the path that was refused, if it was one.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::BadPath { path, .. } => Some(path),
            Self::NotFound { path }
            | Self::Exists { path }
            | Self::NotADirectory { path }
            | Self::IsADirectory { path }
            | Self::NotEmpty { path }
            | Self::WrongKind { path, .. }
            | Self::Changed { path, .. }
            | Self::SecondWriter { path, .. }
            | Self::DataUnavailable { path, .. } => Some(path.as_str()),
            _ => None,
        }
    }

    /// Returns the caller's next step: try again with a new look-up or after a time, recompute the
    /// lost ranges, correct the request, or inform an operator.
    #[must_use]
    pub const fn recovery(&self) -> Recovery {
        match self {
            Self::RetryAfter { after, .. } => Recovery::RetryAfter(*after),
            Self::Undecided { .. } => Recovery::RetryAfter(UNDECIDED_PAUSE),
            Self::NotManager { remaining } => Recovery::RetryAfter(*remaining),
            Self::SecondWriter { remaining, .. } => Recovery::RetryAfter(*remaining),
            Self::Moved { .. }
            | Self::StaleEpoch { .. }
            | Self::UnknownBlock { .. }
            | Self::WrongNode { .. }
            | Self::NodeFull { .. }
            | Self::NodeGone { .. }
            | Self::ObjectGone { .. }
            | Self::StillOpen { .. }
            | Self::TierFailed { .. }
            | Self::ChecksumMismatch { .. }
            | Self::BlockDamaged { .. }
            | Self::MoveVoid { .. }
            | Self::NotLeader { .. } => Recovery::Refresh,
            Self::DataUnavailable { .. } => Recovery::Recompute,
            Self::Full { .. }
            | Self::ReserveKept { .. }
            | Self::JournalFull { .. }
            | Self::BadFrame { .. }
            | Self::UnknownVersion { .. }
            | Self::UnknownOp { .. }
            | Self::WrongCluster { .. }
            | Self::OtherGeneration { .. }
            | Self::NoHello => Recovery::Report,
            _ => Recovery::Fix,
        }
    }
}

impl RefusalKind {
    /// Returns the kind with a name; `None` for a name that is not in the table, such as that of a
    /// refusal of a later version.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_of_a_refusal_has_its_name() {
        let refusal = Refusal::NotLeader { leader: None };
        assert_eq!(refusal.kind(), RefusalKind::NotLeader);
        assert_eq!(refusal.kind().name(), refusal.name());
        let names = RefusalKind::ALL.iter().map(|kind| kind.name());
        assert!(names.eq(Refusal::TABLE.iter().map(|(_, name)| *name)));
        assert!(RefusalKind::ALL.iter().all(|kind| RefusalKind::named(kind.name()) == Some(*kind)));
        assert_eq!(RefusalKind::named("NoRefusal"), None);
    }

    #[test]
    fn codes_are_unique() {
        let mut codes: Vec<u16> = Refusal::TABLE.iter().map(|(code, _)| *code).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), Refusal::TABLE.len());
        assert!(!codes.contains(&0));
    }

    #[test]
    fn refusals_have_golden_bytes() {
        let refusal = Refusal::Moved { block: BlockId(7), length: 300 };
        let bytes = postcard::to_stdvec(&refusal).unwrap();
        assert_eq!(bytes, [25, 7, 0xac, 2]);
        assert_eq!(refusal.code(), 80);
        assert_eq!(refusal.name(), "Moved");
        assert_eq!(postcard::from_bytes::<Refusal>(&bytes).unwrap(), refusal);
    }

    #[test]
    fn refusals_of_callers_have_golden_bytes() {
        let refusals = [
            (Refusal::Unauthenticated { why: "no".to_owned() }, 160, "Unauthenticated"),
            (Refusal::Forbidden { why: "no".to_owned() }, 161, "Forbidden"),
        ];
        for (refusal, code, name) in refusals {
            let bytes = postcard::to_stdvec(&refusal).unwrap();
            let variant = Refusal::TABLE.iter().position(|row| *row == (code, name)).unwrap();
            assert_eq!(bytes, [variant as u8, 2, b'n', b'o']);
            assert_eq!((refusal.code(), refusal.name()), (code, name));
            assert_eq!(refusal.recovery(), Recovery::Fix);
        }
    }

    #[test]
    fn unknown_outcomes_have_golden_bytes() {
        let refusal = Refusal::OutcomeUnknown { client: 3, sequence: 300 };
        let bytes = postcard::to_stdvec(&refusal).unwrap();
        let row = (33, "OutcomeUnknown");
        let variant = Refusal::TABLE.iter().position(|known| *known == row).unwrap();
        assert_eq!(bytes, [variant as u8, 3, 0xac, 2]);
        assert_eq!((refusal.code(), refusal.name()), row);
        assert_eq!(refusal.recovery(), Recovery::Fix);
    }

    #[test]
    fn refusal_for_the_reserve_has_golden_bytes_and_names_its_values() {
        let class = "dram".to_owned();
        let refusal =
            Refusal::ReserveKept { bytes: 300, class, room: 7, reserve: 4096, departures: 1 };
        let bytes = postcard::to_stdvec(&refusal).unwrap();
        let variant = Refusal::TABLE.iter().position(|row| *row == (45, "ReserveKept")).unwrap();
        let golden = [variant as u8, 0xac, 2, 4, b'd', b'r', b'a', b'm', 7, 0x80, 0x20, 1];
        assert_eq!(bytes, golden);
        assert_eq!(refusal.recovery(), Recovery::Report);
        let text = refusal.to_string();
        assert!(text.contains("300 B") && text.contains("7 B") && text.contains("4.00 KiB"));
    }

    #[test]
    fn refusal_of_damaged_blocks_has_golden_bytes() {
        let refusal = Refusal::BlockDamaged { block: BlockId(7) };
        let bytes = postcard::to_stdvec(&refusal).unwrap();
        let variant = Refusal::TABLE.iter().position(|row| *row == (90, "BlockDamaged")).unwrap();
        assert_eq!(bytes, [variant as u8, 7]);
        assert_eq!(refusal.recovery(), Recovery::Refresh);
    }

    #[test]
    fn refusal_of_members_that_do_not_lead_has_golden_bytes() {
        let row = (128, "NotLeader");
        let variant = Refusal::TABLE.iter().position(|known| *known == row).unwrap() as u8;
        let known = Refusal::NotLeader { leader: Some("b:2".to_owned()) };
        let bytes = postcard::to_stdvec(&known).unwrap();
        assert_eq!(bytes, [variant, 1, 3, b'b', b':', b'2']);
        assert_eq!(known.recovery(), Recovery::Refresh);
        assert_eq!(known.to_string(), "this namenode does not lead its group: b:2");
        let unknown = Refusal::NotLeader { leader: None };
        assert_eq!(postcard::to_stdvec(&unknown).unwrap(), [variant, 0]);
        assert!(unknown.to_string().ends_with("no leader is known yet"));
    }

    #[test]
    fn refusal_of_another_generation_has_golden_bytes() {
        let row = (129, "OtherGeneration");
        let variant = Refusal::TABLE.iter().position(|known| *known == row).unwrap() as u8;
        let refusal = |here, asked| Refusal::OtherGeneration { here, asked };
        assert_eq!(postcard::to_stdvec(&refusal(1, 300)).unwrap(), [variant, 1, 0xac, 2]);
        assert_eq!(refusal(1, 300).recovery(), Recovery::Report);
        let twice = refusal(1 << 32 | 0xab, 1 << 32 | 7).to_string();
        assert!(twice.contains("two recoveries have begun generation 1"), "{twice}");
        assert!(twice.contains("1-000000ab") && twice.contains("1-00000007"), "{twice}");
        let anew = refusal(1 << 32 | 0xab, 7).to_string();
        assert!(anew.contains("begun anew") && anew.contains("0-00000007"), "{anew}");
    }

    #[test]
    fn refusal_of_a_change_that_may_be_made_has_golden_bytes() {
        let row = (130, "Undecided");
        let variant = Refusal::TABLE.iter().position(|known| *known == row).unwrap() as u8;
        let refusal = Refusal::Undecided { why: "x".to_owned() };
        assert_eq!(postcard::to_stdvec(&refusal).unwrap(), [variant, 1, b'x']);
        assert_eq!(refusal.recovery(), Recovery::RetryAfter(Millis(200)));
    }

    #[test]
    fn reason_of_a_refusal_is_recognized_by_its_text() {
        let unauthenticated = |why: &str| Refusal::Unauthenticated { why: why.to_owned() };
        assert!(unauthenticated("this port speaks TLS: give --tls-ca").requires_tls());
        assert!(!unauthenticated(Refusal::TOKEN_CLAIMS).requires_tls());
        let later = |why: &str| Refusal::RetryAfter { after: Millis(1), why: why.to_owned() };
        assert!(later("no datanode takes blocks").lacks_datanodes());
        assert!(!later("busy").lacks_datanodes());
        let long = [format!("/{}", "x".repeat(256)), "/x".repeat(129)];
        for path in long {
            assert!(path.parse::<Path>().is_err_and(|refusal| refusal.is_long_path()), "{path}");
        }
        let key = Refusal::long_store_key("k", 1025, 1024);
        let text = "bad path \"k\": its name in the store would have 1025 of 1024 bytes";
        assert_eq!(key.to_string(), text);
        assert!(key.is_long_path());
        assert!("/a//b".parse::<Path>().is_err_and(|refusal| !refusal.is_long_path()));
    }

    #[test]
    fn messages_state_the_fact_and_the_values() {
        let refusal = Refusal::StaleEpoch { block: BlockId(7), here: Epoch(3), asked: Epoch(2) };
        assert_eq!(refusal.to_string(), "block 7 moved: epoch 3 here, 2 requested");
        let what = Refusal::NOTICE_DEADLINE.to_owned();
        let refusal = Refusal::TooLarge { what, value: 2_592_000_000, limit: 86_400_000 };
        assert_eq!(refusal.to_string(), "deadline is too large: 30d, the limit is 24h");
        assert!(refusal.is_far_notice());
        let refusal = Refusal::TooLarge { what: "block".to_owned(), value: 3, limit: 2 };
        assert_eq!(refusal.to_string(), "block is too large: 3, the limit is 2");
        assert!(!refusal.is_far_notice());
        let refusal = Refusal::Full { bytes: 2 << 20, class: "dram".to_owned() };
        assert_eq!(refusal.to_string(), "no room for 2.00 MiB in class dram");
    }
}
