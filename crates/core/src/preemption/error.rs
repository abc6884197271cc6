//! What can be wrong with a model's specification or data.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use sanderling_protocol::refusal::Recovery;
use thiserror::Error;

use super::Bathtub;

/// What the spellings are, for messages.
const KNOWN: &str = "known are bathtub:NAME or bathtub:a=,tau1=,tau2=,b=, exponential:mean=12h, \
                     lifetimes:FILE[,machine=][,zone=], trace:FILE, each with ,speed= at will";

/// A reason why there is no preemption model.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ModelError {
    /// The specification is none.
    #[error("`{spec}` is no preemption model: {cause}")]
    BadSpec {
        /// What was given.
        spec: String,
        /// What is wrong with it.
        #[source]
        cause: SpecError,
    },
    /// A file that the specification names could not be read.
    #[error("file {file} of the preemption model could not be read: {cause}")]
    Unreadable {
        /// The file.
        file: String,
        /// The cause.
        #[source]
        cause: ReadCause,
    },
    /// A row of a file is none of its format.
    #[error("line {line} of the preemption data: {cause}")]
    BadRow {
        /// The line's number, from 1.
        line: usize,
        /// What is wrong with it.
        #[source]
        cause: RowError,
    },
    /// No row passes the filter, or none of those contains when a machine ended.
    #[error("no lifetime in the preemption data for {filter}")]
    NoLifetimes {
        /// What was requested.
        filter: String,
    },
}

/// The reason why the text of a file could not be read. Its source is the error of the reader;
/// causes with the same text are equal.
#[derive(Debug, Clone)]
pub struct ReadCause(Arc<dyn StdError + Send + Sync>);

impl ReadCause {
    pub(super) fn new(cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self(cause.into().into())
    }
}

impl fmt::Display for ReadCause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl StdError for ReadCause {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.0)
    }
}

impl PartialEq for ReadCause {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

/// A mistake in the line that names a model: correct it.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum SpecError {
    /// It begins with no known kind of model.
    #[error("{KNOWN}")]
    UnknownKind,
    /// An exponential has no mean.
    #[error("the mean is missing: mean=12h")]
    MissingMean,
    /// A bathtub lacks one of its parameters.
    #[error("{key} is missing, in hours or a share")]
    MissingParameter {
        /// The parameter.
        key: &'static str,
    },
    /// Recorded lifetimes or a trace have no file.
    #[error("the file's name is missing")]
    MissingFile,
    /// A bathtub is named that was never fitted.
    #[error("no fit is called {name}; known are {}", fits())]
    UnknownFit {
        /// The name.
        name: String,
    },
    /// The share of machines that die early exceeds all of them.
    #[error("a is a share of the machines, at most 1: {a}")]
    ShareAboveOne {
        /// The share.
        a: f64,
    },
    /// A word after the first has no `=`.
    #[error("`{word}` is no key=value")]
    NoPair {
        /// The word.
        word: String,
    },
    /// A value is none, not finite, zero or negative.
    #[error("{key}={value} is no positive number")]
    NoPositive {
        /// Whose value it is.
        key: String,
        /// The value.
        value: String,
    },
    /// A span of time is none.
    #[error("`{text}` is no span of time such as 12h, 90m, 45s or 500ms")]
    NoSpan {
        /// What was given.
        text: String,
    },
    /// A name stands where this kind of model has none.
    #[error("`{name}` means nothing here")]
    ForeignName {
        /// The name.
        name: String,
    },
    /// A key is none of this kind of model.
    #[error("{key}={value} means nothing here")]
    ForeignKey {
        /// The key.
        key: String,
        /// Its value.
        value: String,
    },
}

/// A mistake in a line of a trace or of recorded lifetimes: correct the file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RowError {
    /// The first line of a trace is not its header.
    #[error("the header of a trace is {wanted}")]
    NoTraceHeader {
        /// The header.
        wanted: &'static str,
    },
    /// The header lacks a column that is needed, by the filter for example.
    #[error("the header has no column {column}")]
    MissingColumn {
        /// The column.
        column: &'static str,
    },
    /// The row has more or fewer fields than the header.
    #[error("{found} fields, {wanted} in the header")]
    FieldCount {
        /// Those of the row.
        found: usize,
        /// Those of the header.
        wanted: usize,
    },
    /// The slot of an event has no name.
    #[error("the node has no name")]
    Nameless,
    /// A time is none, not finite or negative.
    #[error("`{field}` is no number of seconds")]
    NoSeconds {
        /// What was given.
        field: String,
    },
    /// The word of an event is unknown.
    #[error("`{event}` is no event")]
    UnknownEvent {
        /// The word.
        event: String,
    },
    /// An event other than a notice has the field of a notice, or is unknown.
    #[error("`{event}` has no notice_seconds")]
    ForeignNotice {
        /// The event's word.
        event: String,
    },
}

/// Returns the names of the fits, for messages.
fn fits() -> String {
    Bathtub::preset_names().collect::<Vec<_>>().join(", ")
}

impl ModelError {
    /// Returns what to do: the specification or its file must be corrected.
    #[must_use]
    pub const fn recovery(&self) -> Recovery {
        Recovery::Fix
    }
}
