//! The agent: learns from the cloud that this machine is about to be taken, and acts on it.
//!
//! A source is polled and returns what it shows at the moment; [`watch`] turns changes of that into
//! acts: fence and notice, recommendation, withdrawal. A source that fails changes nothing: a
//! notice given before stays given, and none is made up.

mod act;
mod aws;
mod azure;
mod fetch;
mod file;
mod gcp;
mod moment;
mod options;
pub(crate) mod parsers;
mod reading;
mod source;
pub(crate) mod webhook;

pub use options::{Acknowledge, NoticeOptions, NoticeSource};

pub(crate) use act::watch;
