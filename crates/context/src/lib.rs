//! Where the cluster is: one rule for the command line and every binding.
//!
//! [`resolve`] returns the namenode's address and the credentials that belong to it, from what the
//! caller gives, the environment and the file of contexts, in that order. [`address()`] and [`url`]
//! read the addresses; no binding has a parser of its own. [`strict`] reads files in TOML and names
//! the line of each error; the servers' configuration is read with it, too.

mod address;
mod contexts;
mod error;
mod file_checks;
mod resolve;
mod shell;
pub mod strict;

pub use address::{ADDRESSES_MAX, AddressError, StoreUrl, address, url, without_users};
pub use contexts::{CONTEXT_KEYS, Context, Contexts, file};
pub use error::ContextError;
pub use file_checks::{file_kind, is_ours, open_without_waiting};
pub use resolve::{
    AddressOrigin, CONTEXT_VARIABLE, Explicit, NAMENODE_VARIABLE, Resolved, TLS_CA_VARIABLE,
    TLS_NAME_VARIABLE, TOKEN_FILE_VARIABLE, TOKEN_VARIABLE, Variables, of_environment, resolve,
    resolve_with,
};
pub use shell::shell_word;
