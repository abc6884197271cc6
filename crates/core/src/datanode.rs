//! A datanode's decisions about itself: when it registers, sends heartbeats and reports blocks,
//! what each answer of the namenode means, when the node refuses writes, which leader's orders it
//! takes, which damage it reports, what goes first over its link, what bodies of writes have of its
//! memory, and how long the parts for a durable store are, how many of them are sent at once, and
//! when they give way to readers.
//!
//! [`crate::block_table`] decides about single blocks, [`crate::notices`] about notices. Every time
//! that a caller passes is in microseconds of the datanode's own clock, which must not go back; it
//! is never compared with the namenode's.

pub mod agent;
pub mod block_ends;
pub mod body_room;
pub mod contact;
pub mod damages;
pub mod drain_throttle;
pub mod egress;
pub mod known_log;
pub mod latest_leader;
pub mod link_queue;
pub mod long_parts;
pub mod member;
pub mod own_blocks;
pub mod part_joins;
pub mod push_rate;
pub mod push_targets;
pub mod registration;
pub mod repeat;
pub mod report;
pub mod store_reports;
pub mod upload_window;
pub mod upload_yield;

pub use agent::{Act, Agent, SourceReading};
pub use block_ends::{BlockEndStep, BlockEnds, LOOK_UP_BYTES};
pub use body_room::BodyRoom;
pub use contact::{ContactChange, NamenodeContact, RefusedRegistrations};
pub use damages::{DamageReport, Damages};
pub use drain_throttle::{DrainThrottle, HeldRead};
pub use egress::Egress;
pub use known_log::{KnownLog, LostEnd};
pub use latest_leader::LatestLeader;
pub use link_queue::{LinkClass, LinkQueue, LinkTurn};
pub use long_parts::{long_part_memory, pieces};
pub use member::{
    BlockTotals, CallFailure, HeartbeatOutcome, Joining, MemberOptions, MemberStep, NodeMembership,
    Registration,
};
pub use member::{RegistrationOutcome, StartLimit};
pub use own_blocks::{BlockAccess, OwnBlocks, REMEMBERED_BY_ALL_MAX};
pub use part_joins::{JOINED_BYTES_MAX, PartJoins};
pub use push_rate::PushRate;
pub use push_targets::{PUSH_TIMEOUT, PushOutcome, PushTargets, push_failed};
pub use registration::{RegistrationState, RequestStamp};
pub use report::{ReportProgress, ReportStep};
pub use store_reports::StoreReports;
pub use upload_window::{UploadWindow, WindowPart};
pub use upload_yield::UploadYield;
