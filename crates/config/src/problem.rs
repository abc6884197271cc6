//! What is wrong with a line of a server's configuration file.

use std::path::{Path, PathBuf};

use sanderling_context::AddressError;
use sanderling_context::strict::{FileError, FileProblem};
use thiserror::Error;

/// A line of a configuration file is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}:{line}: {problem}", path.display())]
pub(crate) struct ConfigLineError {
    pub(crate) path: PathBuf,
    /// The line, counted from 1.
    pub(crate) line: usize,
    #[source]
    pub(crate) problem: ConfigProblem,
}

/// What is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum ConfigProblem {
    /// The file is no TOML, or has a key or a type that no server has.
    #[error("{0}")]
    File(#[source] FileProblem),
    /// `namenode` is there twice, and once as a table.
    #[error(
        "{0}: namenode is a key and a table: put the key into [datanode], [manager] or [gateway]"
    )]
    KeyAndTable(#[source] FileProblem),
    /// A count is too small or too large.
    #[error("{key} must be a number from 0 to 9, not {count}")]
    OutOfRange { key: String, count: i64 },
    /// The key of some servers stands at the top.
    #[error("{key} belongs into {tables}")]
    Misplaced { key: String, tables: String },
    /// The value is no address of a namenode, or no list of them.
    #[error("namenode: {0}")]
    Address(#[source] AddressError),
    /// The parser of the flag refuses the value, for the reason that it gives as a text.
    #[error("{flag} = {value:?}: {cause}")]
    Refused { flag: String, value: String, cause: String },
    /// The flag has values to choose from.
    #[error("{flag} = {value:?} is none of {known}")]
    NoneOf { flag: String, value: String, known: String },
    /// The value is empty.
    #[error("{flag} is empty: give it a value or leave it out")]
    Empty { flag: String },
    /// The flag does not take the value.
    #[error("{flag} = {value:?} is no valid value")]
    Invalid { flag: String, value: String },
    /// The durable stores cannot be used together, or one cannot at all, in the words of the
    /// datanode that refuses them.
    #[error("durable: {cause}")]
    DurableStores { cause: String },
    /// The flags do not fit together, in the words of their parser.
    #[error("{words}")]
    Flags { words: String },
}

impl ConfigLineError {
    /// Makes the error of a line.
    pub(crate) fn new(path: &Path, line: usize, problem: ConfigProblem) -> Self {
        Self { path: path.to_owned(), line, problem }
    }
}

impl From<FileError> for ConfigLineError {
    fn from(error: FileError) -> Self {
        let FileError { path, line, problem } = error;
        Self { path, line, problem: ConfigProblem::File(problem) }
    }
}
