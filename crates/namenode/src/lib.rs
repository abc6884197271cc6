//! The namenode: serves the catalog and places blocks.
//!
//! The decisions are those of [`sanderling_core::namenode`]. This crate writes them to a journal
//! before they count, serves them over TCP and HTTP, and tells datanodes what they are to do.

mod directory;
mod error;
mod journal;
mod options;
mod recovery;
mod snapshot;

pub use error::{NamenodeFailure, StartError};
pub use options::{NamenodeOptions, Sync};
