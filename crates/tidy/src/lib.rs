//! Checks the repository itself: which crate may import which, how long files and functions are,
//! what things are called, and whether the pages are linked, whole and true.
//!
//! Every check is a function from texts to [`Problem`]s, so that its own tests can hand it a broken
//! text and see it fail. `tests/repository.rs` runs all of them on the working tree.

pub mod asserts;
pub mod circles;
pub mod code;
pub mod coinages;
pub mod commands;
pub mod constants;
pub mod durations;
pub mod error_sections;
pub mod floors;
pub mod glossary;
pub mod lengths;
pub mod lints;
pub mod names;
pub mod pages;
pub mod speech;
pub mod tables;
pub mod tree;
pub mod type_names;
pub mod versions;
pub mod words;

use std::fmt;

/// One thing that a check found wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file, relative to the root of the repository.
    pub path: String,
    /// The line, counted from 1; 0 when the whole file is meant.
    pub line: usize,
    /// What is wrong, and what it should be.
    pub what: String,
}

impl Problem {
    /// Describes a problem on one line of a file.
    pub fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(formatter, "{}: {}", self.path, self.what),
            line => write!(formatter, "{}:{line}: {}", self.path, self.what),
        }
    }
}
