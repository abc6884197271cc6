//! The protocol of Sanderling: identifiers, instants, tiers, paths, frames, messages, refusals and
//! limits. Every message between two processes is defined here, and nothing here does input or
//! output. The generator of the numbers that other crates draw from a seed is here, too.

pub mod amount;
pub mod attribute;
mod byte_vec;
pub mod checksum;
pub mod event;
pub mod frame;
pub mod ids;
pub mod limits;
pub mod local;
pub mod message;
pub mod node;
pub mod order;
pub mod path;
pub mod ports;
pub mod refusal;
pub mod split_mix;
pub mod tier;
pub mod time;
pub mod token;
pub mod trace;
pub mod version;

pub use event::{Event, EventKind};
pub use frame::{Frame, FrameError, Header, Op};
pub use ids::{
    BlockId, ClusterId, Epoch, JobId, LeaseId, LogPosition, MemberId, NodeId, Nonce, ObjectId, Term,
};
pub use message::{Reply, Request};
pub use node::{NodeInfo, NodeSelector, Policy};
pub use order::{Order, OrderReply};
pub use path::Path;
pub use refusal::{Refusal, RefusalKind};
pub use tier::{StorageClass, Tier, WhenFull};
pub use time::{Instant, Millis};
pub use token::{Token, TokenId, TokenSelector};
pub use trace::TraceContext;
