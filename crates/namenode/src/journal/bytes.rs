//! A segment in memory: written and read without a directory, for those that check the parser.

use std::path::Path;

use sanderling_core::catalog::Command;
use sanderling_protocol::{ClusterId, Instant};

use super::header::{self, PLAIN_VERSION, TIED_VERSION};
use super::read::{SegmentStart, read_window};
use super::record::Layout;
use crate::error::NamenodeStartError;
use crate::files::Window;

const CLUSTER: ClusterId = ClusterId(7);

/// Writes a segment that begins with the command 0. A command that is too long is left out.
pub(crate) fn write(salt: Option<u64>, commands: &[Command]) -> Vec<u8> {
    let (layout, version) = match salt {
        Some(salt) => (Layout::Tied { salt }, TIED_VERSION),
        None => (Layout::Plain, PLAIN_VERSION),
    };
    let mut bytes = header::encode(layout, version, CLUSTER, 0);
    for (number, command) in (0..).zip(commands) {
        let unsynced = bytes.len() as u64;
        let _ = layout.encode(command, number, unsynced, &mut bytes);
    }
    bytes
}

/// Reads a segment that begins with the command 0; returns the commands before the first bytes that
/// are no record of it.
pub(crate) fn read(window: Window) -> Result<Vec<Command>, NamenodeStartError> {
    let known = SegmentStart { first: 0, cluster: Some(CLUSTER), floor: Instant(0) };
    let mut commands = Vec::new();
    let take = |_: &super::Segment, command| commands.push(command);
    read_window(Path::new("memory"), window, known, take)?;
    Ok(commands)
}
