//! Whether a member that starts again is the one that it was.

use serde::{Deserialize, Serialize};

/// Whether the log is synced before a round is acknowledged (`--sync`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SyncMode {
    /// Every round.
    Always,
    /// The operating system writes it some time later.
    Os,
}

/// What a member's directory remembers of its last start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootRecord {
    /// Which boot of the machine it was: `/proc/sys/kernel/random/boot_id`.
    pub boot: String,
    /// The least that the log was synced since it was last known to be whole on the disk.
    pub sync: SyncMode,
    /// The process stopped by itself, after it had synced everything.
    pub is_closed: bool,
}

/// What a member starts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartAs {
    /// As what it was: it has everything that it acknowledged.
    Itself,
    /// As a process that joins, with an empty directory: it may have forgotten entries that were
    /// counted.
    NewMember,
}

/// Decides as what a member of a group starts in the boot `boot`.
///
/// The only voter starts as itself whatever it has lost: no other counted. A spare beside it
/// counts once it votes, with all that it has confirmed before.
#[must_use]
pub fn start_as(last: &BootRecord, boot: &str, is_only_voter: bool) -> StartAs {
    let has_all = last.sync == SyncMode::Always || last.is_closed || last.boot == boot;
    if has_all || is_only_voter { StartAs::Itself } else { StartAs::NewMember }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_whose_machine_was_booted_since_is_a_new_one_unless_all_was_synced() {
        let record = |sync, is_closed| BootRecord { boot: "a".to_owned(), sync, is_closed };
        let unsynced = record(SyncMode::Os, false);
        assert_eq!(start_as(&unsynced, "b", false), StartAs::NewMember);
        assert_eq!(start_as(&unsynced, "a", false), StartAs::Itself, "the page cache has it");
        assert_eq!(start_as(&unsynced, "b", true), StartAs::Itself, "it counted alone");
        assert_eq!(start_as(&record(SyncMode::Os, true), "b", false), StartAs::Itself);
        assert_eq!(start_as(&record(SyncMode::Always, false), "b", false), StartAs::Itself);
    }
}
