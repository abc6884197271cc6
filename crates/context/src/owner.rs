//! Whose file a configuration is: its owner can point a caller to another server.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// Returns whether a file belongs to root or to the caller.
#[must_use]
pub fn is_ours(file: &Metadata) -> bool {
    [0, rustix::process::geteuid().as_raw()].contains(&file.uid())
}
