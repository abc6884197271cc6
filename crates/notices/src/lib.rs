//! Notices that a machine will be taken: what clouds, files and HTTP requests state.
//!
//! A [`SourceReader`] is polled and returns what it shows at the moment. What follows from that is
//! decided elsewhere: datanodes drain, and namenodes leave their group. A source that fails shows
//! nothing new: a notice given before stays given, and none is made up.

mod aws;
mod azure;
mod fetch;
mod file;
mod gcp;
mod moment;
mod options;
#[doc(hidden)]
pub mod parsers;
mod reading;
mod source;
mod webhook;

pub use fetch::{BrokenCause, FetchError};
pub use options::{Acknowledge, NoticeOptions, NoticeSource, NoticeSourceError};
pub use reading::{AnswerFault, NoticeFault, SourceError};
pub use source::SourceReader;
pub use webhook::{Posted, read as read_posted};
