//! Notices that a machine will be taken: what clouds, files and HTTP requests state.
//!
//! A [`SourcePoller`] polls a source and returns what it shows at the moment, and what of that is
//! new. What follows is decided elsewhere: datanodes drain, namenodes leave their group, runners of
//! tasks take checkpoints. A source that fails shows nothing new: a notice given before stays
//! given, and none is made up.

mod aws;
mod azure;
mod fetch;
mod file;
mod gcp;
mod moment;
mod options;
#[doc(hidden)]
pub mod parsers;
mod poller;
mod reading;
mod source;
mod webhook;

pub use fetch::{BrokenCause, FetchError};
pub use options::{Acknowledge, NoticeOptions, NoticeSource, NoticeSourceError};
pub use poller::{SourceLook, SourcePoller};
pub use reading::{AnswerFault, NoticeFault, SourceError};
pub use webhook::{Posted, read as read_posted};
