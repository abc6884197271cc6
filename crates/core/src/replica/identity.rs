//! Whether a member that starts again is the one that it was.

use serde::{Deserialize, Serialize};

/// The mode of syncs (`--sync`): whether the log is synced before a round is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SyncMode {
    /// Every round.
    Always,
    /// The operating system writes it some time later.
    Os,
}

/// The record that a member's directory has of its last start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootRecord {
    /// Which boot of the machine it was: `/proc/sys/kernel/random/boot_id`.
    pub boot: String,
    /// The least that the log was synced since it was last known to be whole on the disk.
    pub sync: SyncMode,
    /// The process stopped by itself, after it had synced everything.
    pub is_closed: bool,
}

/// The state that a start finds beside the record of the last one.
#[derive(Debug, Clone, Copy)]
pub struct FoundAtStart<'a> {
    /// Which boot of the machine it is.
    pub boot: &'a str,
    /// Whether a sync of the log has failed since it was last known to be whole on the disk.
    pub has_sync_failed: bool,
    /// Whether the group has no other member.
    pub is_only_member: bool,
}

/// The role in which a member starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartAs {
    /// As what it was: it has everything that it acknowledged.
    Itself,
    /// As a process that joins, with an empty directory: it may have forgotten entries that were
    /// counted.
    NewMember,
}

/// Decides as what a member of a group starts.
///
/// The only member starts as itself whatever it has lost: no other has more. A spare beside the
/// only voter may have what that one has lost, and would keep it.
///
/// With [`SyncMode::Always`] an entry counts only after its sync has succeeded, so that the disk
/// has it whatever a later sync reports. Otherwise what a failed sync leaves is not known: the
/// kernel may have dropped any page that was written before.
#[must_use]
pub fn start_as(last: &BootRecord, found: &FoundAtStart<'_>) -> StartAs {
    let is_kept = (last.is_closed || last.boot == found.boot) && !found.has_sync_failed;
    let has_all = last.sync == SyncMode::Always || is_kept;
    if has_all || found.is_only_member { StartAs::Itself } else { StartAs::NewMember }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUND: FoundAtStart<'static> =
        FoundAtStart { boot: "b", has_sync_failed: false, is_only_member: false };

    fn record(sync: SyncMode, is_closed: bool) -> BootRecord {
        BootRecord { boot: "a".to_owned(), sync, is_closed }
    }

    #[test]
    fn member_whose_machine_was_booted_since_is_a_new_one_unless_all_was_synced() {
        let unsynced = record(SyncMode::Os, false);
        let same = FoundAtStart { boot: "a", ..FOUND };
        let alone = FoundAtStart { is_only_member: true, ..FOUND };
        assert_eq!(start_as(&unsynced, &FOUND), StartAs::NewMember);
        assert_eq!(start_as(&unsynced, &same), StartAs::Itself, "the page cache has it");
        assert_eq!(start_as(&unsynced, &alone), StartAs::Itself, "no other has more");
        assert_eq!(start_as(&record(SyncMode::Os, true), &FOUND), StartAs::Itself);
        assert_eq!(start_as(&record(SyncMode::Always, false), &FOUND), StartAs::Itself);
    }

    #[test]
    fn member_whose_sync_failed_is_a_new_one_unless_each_entry_was_synced() {
        let failed = FoundAtStart { boot: "a", has_sync_failed: true, ..FOUND };
        assert_eq!(start_as(&record(SyncMode::Os, false), &failed), StartAs::NewMember);
        assert_eq!(start_as(&record(SyncMode::Os, true), &failed), StartAs::NewMember);
        assert_eq!(start_as(&record(SyncMode::Always, false), &failed), StartAs::Itself);
        let alone = FoundAtStart { is_only_member: true, ..failed };
        assert_eq!(start_as(&record(SyncMode::Os, false), &alone), StartAs::Itself);
    }
}
