//! What a member of a group must not forget: the file is always on the disk before it counts.
//!
//! ```text
//! 8 bytes magic, u32 version, u32 CRC32C of the body, body (postcard `HardState`)
//! ```

use std::path::PathBuf;

use sanderling_core::replica::{BootRecord, Group, LogPlace, Vote};
use sanderling_protocol::checksum::crc32c;
use sanderling_protocol::{ClusterId, MemberId};
use serde::{Deserialize, Serialize};

use super::log::LogError;
use crate::directory::Directory;

const MAGIC: [u8; 8] = *b"SNDLGRST";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 16;

/// Longest body: a configuration has at most some dozen members.
const BYTES_MAX: usize = 1 << 20;

/// The name of the file.
const NAME: &str = "group-state.bin";

/// What a member must not forget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HardState {
    pub(crate) cluster: ClusterId,
    pub(crate) member: MemberId,
    /// Counts the starts of the member.
    pub(crate) incarnation: u64,
    /// What the boot of the machine was in which the member wrote its log, and how it was synced.
    pub(crate) boot: BootRecord,
    pub(crate) vote: Vote,
    /// The entry before the first that the log keeps.
    pub(crate) start: LogPlace,
    /// The members as of `start`.
    pub(crate) group: Group,
}

impl HardState {
    /// Returns where the file is.
    pub(crate) fn path(directory: &Directory) -> PathBuf {
        directory.path().join(NAME)
    }

    /// Reads the file; `None` in the directory of a namenode that is in no group.
    pub(crate) fn read(directory: &Directory) -> Result<Option<Self>, LogError> {
        let path = Self::path(directory);
        let is_there = directory.files().names(directory.path());
        let is_there = is_there.map_err(|cause| LogError::Io { path: path.clone(), cause })?;
        if !is_there.iter().any(|name| name == NAME) {
            return Ok(None);
        }
        let read = || {
            let file = directory.files().open(&path)?;
            let length = usize::try_from(file.length()?).unwrap_or(usize::MAX);
            let mut bytes = vec![0; length.min(HEADER_BYTES + BYTES_MAX)];
            let mut filled = 0;
            while filled < bytes.len() {
                match file.read_at(&mut bytes[filled..], filled as u64)? {
                    0 => break,
                    count => filled += count,
                }
            }
            bytes.truncate(filled);
            std::io::Result::Ok(bytes)
        };
        let bytes = read().map_err(|cause| LogError::Io { path: path.clone(), cause })?;
        let damaged = |why: String| LogError::Damaged { path: path.clone(), why };
        if bytes.len() < HEADER_BYTES || bytes[..8] != MAGIC {
            return Err(damaged("it does not begin like the state of a group's member".into()));
        }
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        let (version, checksum) = (number(8), number(12));
        if version != VERSION {
            let why = format!("it is of format {version}, and this program reads {VERSION}");
            return Err(damaged(why));
        }
        let body = &bytes[HEADER_BYTES..];
        if crc32c(body) != checksum {
            return Err(damaged("it has another checksum".into()));
        }
        match postcard::take_from_bytes(body) {
            Ok((state, [])) => Ok(Some(state)),
            _ => Err(damaged("it holds no state of a group's member".into())),
        }
    }

    /// Writes the file in place of the one before. The disk has it when this returns.
    pub(crate) fn write(&self, directory: &Directory) -> Result<(), LogError> {
        let path = Self::path(directory);
        let body = sanderling_protocol::frame::encode_body(self);
        let mut header = MAGIC.to_vec();
        header.extend(VERSION.to_le_bytes());
        header.extend(crc32c(&body).to_le_bytes());
        let written = directory.publish(&path, &[&header, &body]);
        written.map(drop).map_err(|error| LogError::Io { path, cause: error.into() })
    }
}

/// Returns which boot of the machine this is; empty if the kernel does not name it.
pub(crate) fn boot() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    read.map(|text| text.trim().to_owned()).unwrap_or_default()
}
