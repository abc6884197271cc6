//! Why a cluster's address cannot be found.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::address::AddressError;
use crate::shell::shell_word;
use crate::strict::FileError;

/// Why a cluster's address cannot be found. [`ContextError::next`] is the caller's next step.
#[derive(Debug, Error)]
pub enum ContextError {
    /// The address is wrong.
    #[error("{error}{origin}")]
    Address {
        /// Where it comes from, if the caller did not give it.
        origin: String,
        /// What is wrong with it.
        #[source]
        error: AddressError,
    },
    /// The file of contexts is wrong.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file of contexts cannot be read or written.
    #[error("{}: {cause}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
    /// The file of contexts is no regular file.
    #[error("{} is {kind}: contexts are in a regular file", path.display())]
    NotRegular {
        /// The file.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// Other users can read the file of contexts, or write it.
    #[error("other users can read or write {} (mode {mode:04o})", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The file of contexts belongs to another user.
    #[error("{} belongs to neither root nor you, but to the user {owner}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The number of its owner.
        owner: u32,
    },
    /// No context has the name.
    #[error("no context {name:?} is in {}: {}", path.display(), known(names, near))]
    Unknown {
        /// The name.
        name: String,
        /// The file.
        path: PathBuf,
        /// The contexts that are there.
        names: Vec<String>,
        /// The most similar of them.
        near: Option<String>,
    },
    /// A context of this name exists.
    #[error("a context {name:?} exists: it is {namenode}")]
    Exists {
        /// The name.
        name: String,
        /// Its namenode.
        namenode: String,
    },
    /// The name cannot be one of a context.
    #[error("{name:?} is no name of a context: give letters, digits, '-', '_' and '.', at most 64")]
    BadName {
        /// The name.
        name: String,
    },
    /// There is no directory for the file.
    #[error("no directory for contexts: neither SANDERLING_CONFIG_HOME nor HOME is set")]
    NoHome,
    /// The directory for the file depends on where the process runs.
    #[error("SANDERLING_CONFIG_HOME must be an absolute path, not {}", path.display())]
    RelativeHome {
        /// What it is.
        path: PathBuf,
    },
    /// An address and a context were given together.
    #[error("the address {address} and the context {context} are given together: give one")]
    Both {
        /// The address.
        address: String,
        /// The context.
        context: String,
    },
}

impl ContextError {
    /// Returns the next command to type, or what to correct in which file. It is never empty.
    #[must_use]
    pub fn next(&self) -> String {
        match self {
            Self::Open { path, .. } => format!("chmod 600 {}", word(path)),
            Self::Unknown { .. } => "sanderling context ls".to_owned(),
            Self::Exists { name, .. } => {
                format!("the same with --force, or sanderling context use {name}")
            }
            Self::File(error) => format!("correct line {} of the file", error.line),
            Self::NotRegular { path, .. } => {
                format!("ls -ld {}, then move it away", word(path))
            }
            Self::Io { path, .. } | Self::Foreign { path, .. } => format!("ls -l {}", word(path)),
            Self::NoHome | Self::RelativeHome { .. } => {
                "the same with SANDERLING_CONFIG_HOME=DIRECTORY".to_owned()
            }
            Self::Address { .. } => "the same with --namenode HOST:PORT".to_owned(),
            Self::BadName { .. } | Self::Both { .. } => "sanderling context --help".to_owned(),
        }
    }
}

fn word(path: &Path) -> String {
    shell_word(&path.to_string_lossy())
}

fn known(names: &[String], near: &Option<String>) -> String {
    match (near, names) {
        (Some(near), _) => format!("the nearest is {near:?}"),
        (None, []) => "it has none".to_owned(),
        (None, names) => format!("it has {}", names.join(", ")),
    }
}
