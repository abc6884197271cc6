//! What a member of a group must not forget: the file is always on the disk before it counts.
//!
//! ```text
//! 8 bytes magic, u32 version, u32 CRC32C of the body, body (postcard `HardState`)
//! ```

use std::path::{Path, PathBuf};

use sanderling_core::replica::{
    BootRecord, FoundAtStart, GroupGeneration, MemberRecord, StartAs, start_as,
};
use sanderling_protocol::checksum::crc32c;
use sanderling_protocol::{ClusterId, MemberId};
use serde::{Deserialize, Serialize};

use super::log::{GroupFileDamage, LogError};
use crate::directory::{Directory, PublishError};
use crate::file_names::{CUT_GROUP_STATE, GROUP_STATE, LEAVING_GROUP_STATE};

/// The first bytes of the file.
const MAGIC: [u8; 8] = *b"SNDLGRST";
/// The format of the file that this program writes: with the generation.
const VERSION: u32 = 2;

/// The format without a generation: a zero at its end makes it one of today.
const VERSION_WITHOUT_GENERATION: u32 = 1;

/// Bytes before the body: 8 of the magic, 4 each of version and checksum.
const HEADER_BYTES: usize = 16;

/// Longest body: a configuration has at most some dozen members. Fifteen of them with the longest
/// addresses have some KiB. A longer file is damage, and no memory is taken for it.
const BYTES_MAX: usize = 1 << 20;

/// What a member must not forget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HardState {
    pub(crate) cluster: ClusterId,
    pub(crate) member: MemberId,
    /// Counts the starts of the member.
    pub(crate) incarnation: u64,
    /// What the boot of the machine was in which the member wrote its log, and how it was synced.
    pub(crate) boot: BootRecord,
    /// The vote, from which entry a start goes on, and the members as of it.
    pub(crate) record: MemberRecord,
    /// Which founding of the group it is of.
    pub(crate) generation: GroupGeneration,
}

impl HardState {
    /// Returns where the file is.
    pub(crate) fn path(directory: &Directory) -> PathBuf {
        directory.path().join(GROUP_STATE)
    }

    /// Reads the file; `None` in the directory of a namenode that is in no group.
    pub(crate) fn read(directory: &Directory) -> Result<Option<Self>, LogError> {
        let path = Self::path(directory);
        let is_there = directory.files().names(directory.path());
        let is_there = is_there.map_err(|cause| LogError::Io { path: path.clone(), cause })?;
        if !is_there.iter().any(|name| name == GROUP_STATE) {
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
        let damaged = |damage| LogError::Damaged { path: path.clone(), damage };
        if bytes.len() < HEADER_BYTES || bytes[..8] != MAGIC {
            return Err(damaged(GroupFileDamage::Foreign));
        }
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        let (version, checksum) = (number(8), number(12));
        if ![VERSION, VERSION_WITHOUT_GENERATION].contains(&version) {
            return Err(damaged(GroupFileDamage::Format { version, known: VERSION }));
        }
        let body = &bytes[HEADER_BYTES..];
        if crc32c(body) != checksum {
            return Err(damaged(GroupFileDamage::Checksum));
        }
        let mut body = body.to_vec();
        if version == VERSION_WITHOUT_GENERATION {
            body.push(0);
        }
        match postcard::take_from_bytes(&body) {
            Ok((state, [])) => Ok(Some(state)),
            Ok(_) => Err(damaged(GroupFileDamage::NoState { cause: None })),
            Err(error) => Err(damaged(GroupFileDamage::NoState { cause: Some(error) })),
        }
    }

    /// Decides as what a namenode starts on the directory.
    pub(crate) fn start_as(&self, directory: &Directory) -> StartAs {
        let is_only_member = self.record.group.members().all(|(id, _)| id == self.member);
        self.starts(directory, is_only_member)
    }

    /// Returns whether the member may have forgotten what it had acknowledged: its machine was
    /// booted since it wrote a log that was not synced, or a sync has failed since.
    pub(crate) fn has_forgotten(&self, directory: &Directory) -> bool {
        // A group of one counts as well: here others may have more.
        self.starts(directory, false) == StartAs::NewMember
    }

    fn starts(&self, directory: &Directory, is_only_member: bool) -> StartAs {
        let (boot, has_sync_failed) = (boot(), directory.is_group_suspect());
        start_as(&self.boot, &FoundAtStart { boot: &boot, has_sync_failed, is_only_member })
    }

    /// Writes the file in place of the one before. The disk has it when this returns.
    pub(crate) fn write(&self, directory: &Directory) -> Result<(), LogError> {
        let path = Self::path(directory);
        let body = sanderling_protocol::frame::encode_body(self);
        let mut header = MAGIC.to_vec();
        header.extend(VERSION.to_le_bytes());
        header.extend(crc32c(&body).to_le_bytes());
        let written = directory.publish(&path, &[&header, &body]);
        // The one before stays, or this one is there: each is whole, and nothing has followed yet.
        written.map(drop).map_err(|error| match error {
            PublishError::NotThere(cause) => LogError::Io { path, cause },
            PublishError::Unsynced(cause) => LogError::Unsynced { path, cause },
        })
    }
}

/// Returns whether a directory that is not opened yet has the file. An error counts as one: the
/// opening finds the cause.
pub(crate) fn may_be_in(directory: &Path) -> bool {
    std::fs::exists(directory.join(GROUP_STATE)).unwrap_or(true)
}

/// Renames the file, so that the directory is no member's. Until [`set_aside`] it shows that the
/// rest of the group's files is to be set aside. The caller syncs.
pub(crate) fn begin_leaving(directory: &Directory) -> std::io::Result<()> {
    let path = HardState::path(directory);
    match has(directory, GROUP_STATE)? {
        true => directory.files().rename(&path, &path.with_file_name(LEAVING_GROUP_STATE)),
        false => Ok(()),
    }
}

/// Returns whether the group's files were to be set aside, and not all were.
pub(crate) fn is_leaving(directory: &Directory) -> std::io::Result<bool> {
    has(directory, LEAVING_GROUP_STATE)
}

/// Gives the renamed file its last name: all others are set aside. The caller syncs.
pub(crate) fn set_aside(directory: &Directory) -> std::io::Result<()> {
    let path = HardState::path(directory).with_file_name(LEAVING_GROUP_STATE);
    match is_leaving(directory)? {
        true => directory.files().rename(&path, &path.with_file_name(CUT_GROUP_STATE)),
        false => Ok(()),
    }
}

fn has(directory: &Directory, name: &str) -> std::io::Result<bool> {
    Ok(directory.files().names(directory.path())?.iter().any(|it| it == name))
}

/// Returns which boot of the machine this is; empty if the kernel does not name it.
pub(crate) fn boot() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    read.map(|text| text.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;
    use std::path::Path;
    use std::sync::Arc;

    use sanderling_core::replica::{Group, LogPlace, MemberAddress, SyncMode, Vote};
    use sanderling_protocol::Nonce;

    use super::*;
    use crate::files::disk::Disk;

    fn state() -> HardState {
        let address = "host:1".to_owned();
        let at = MemberAddress { http_address: address.clone(), address, nonce: Nonce(1) };
        HardState {
            cluster: ClusterId(7),
            member: MemberId(1),
            incarnation: 3,
            boot: BootRecord { boot: "boot".into(), sync: SyncMode::Always, is_closed: false },
            record: MemberRecord {
                vote: Vote { term: 5, candidate: Some(MemberId(1)), committed: 4 },
                start: LogPlace { index: 1, term: 2 },
                group: Group::of_one(at),
            },
            generation: GroupGeneration::default(),
        }
    }

    #[test]
    fn state_without_a_generation_is_read_as_that_of_the_first() {
        let directory = Directory::of(Path::new("/catalog"), Arc::new(Disk::default())).unwrap();
        state().write(&directory).unwrap();
        let file = directory.files().open(&HardState::path(&directory)).unwrap();
        let mut bytes = vec![0; usize::try_from(file.length().unwrap()).unwrap()];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
        // As the program before wrote it.
        assert_eq!(bytes.pop(), Some(0), "the generation is the last field");
        bytes[8..12].copy_from_slice(&VERSION_WITHOUT_GENERATION.to_le_bytes());
        let checksum = crc32c(&bytes[HEADER_BYTES..]);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        directory.publish(&HardState::path(&directory), &[&bytes]).unwrap();
        assert_eq!(HardState::read(&directory).unwrap(), Some(state()));
        bytes[8..12].copy_from_slice(&(VERSION + 1).to_le_bytes());
        directory.publish(&HardState::path(&directory), &[&bytes]).unwrap();
        let later = HardState::read(&directory).unwrap_err().to_string();
        assert!(later.contains("of format 3"), "{later}");
    }

    #[test]
    fn error_of_damaged_state_has_its_damage_and_the_decoder_as_sources() {
        let directory = Directory::of(Path::new("/catalog"), Arc::new(Disk::default())).unwrap();
        let body = [0xff; 11];
        let (version, checksum) = (VERSION.to_le_bytes(), crc32c(&body).to_le_bytes());
        let pieces: [&[u8]; 4] = [&MAGIC, &version, &checksum, &body];
        directory.publish(&HardState::path(&directory), &pieces).unwrap();
        let refused = HardState::read(&directory).unwrap_err();
        let damage = refused.source().and_then(|it| it.downcast_ref::<GroupFileDamage>());
        let damage = damage.expect("the damage is the source");
        assert!(damage.source().is_some_and(|it| it.is::<postcard::Error>()), "{damage:?}");
        let text = "/catalog/group-state.bin: it holds no state of a group's member";
        assert_eq!(refused.to_string(), text);
    }
}
