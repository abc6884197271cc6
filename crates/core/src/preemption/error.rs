//! What can be wrong with a model's specification or data.

use sanderling_protocol::refusal::Recovery;
use thiserror::Error;

/// Why there is no preemption model.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ModelError {
    /// The specification is none.
    #[error("`{spec}` is no preemption model: {why}")]
    BadSpec {
        /// What was given.
        spec: String,
        /// What is wrong with it.
        why: String,
    },
    /// A file that the specification names could not be read.
    #[error("file {file} of the preemption model could not be read: {why}")]
    Unreadable {
        /// The file.
        file: String,
        /// The cause.
        why: String,
    },
    /// A row of a file is none of its format.
    #[error("line {line} of the preemption data: {why}")]
    BadRow {
        /// The line's number, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// No row passes the filter, or none of those contains when a machine ended.
    #[error("no lifetime in the preemption data for {filter}")]
    NoLifetimes {
        /// What was asked for.
        filter: String,
    },
}

impl ModelError {
    /// Returns what to do: the specification or its file must be corrected.
    #[must_use]
    pub const fn recovery(&self) -> Recovery {
        Recovery::Fix
    }
}
