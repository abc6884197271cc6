//! The names of the files in a namenode's directory. A local cluster deletes these files and no
//! others; a test there compares its list with [`examples`].

use std::path::{Path, PathBuf};

/// Digits of the number in a file's name: those of the largest number, so that the names are in the
/// order of the numbers.
pub(crate) const NUMBER_DIGITS: usize = 20;

/// The file that a namenode locks.
pub const LOCK: &str = "lock";

/// The file that marks a failed sync.
pub const SUSPECT: &str = "sync-failed";

/// The file that marks a failed sync of the group's log.
pub const GROUP_SUSPECT: &str = "group-sync-failed";

/// The file that marks a restore under way.
pub const UNRESTORED: &str = "restore-unfinished";

/// The file with what a member of a group must not forget.
pub const GROUP_STATE: &str = "group-state.bin";

/// Its name while the group's files are set aside.
pub const LEAVING_GROUP_STATE: &str = "leaving-group-state.bin";

/// Its name when they are.
pub const CUT_GROUP_STATE: &str = "cut-group-state.bin";

/// The file with the generation of its group as which a directory was recovered.
pub const GROUP_GENERATION: &str = "group-generation.json";

/// The file in a directory that was restored and is of no generation: a group that its namenode
/// founds follows the generation in it.
pub const GROUP_FLOOR: &str = "group-floor.json";

/// A backup, until it is sent.
pub const BACKUP: &str = "backup.tmp";

/// The snapshot of a restore, until it is in its place. A start or another restore removes it.
pub const RESTORED: &str = "restored.tmp";

/// How the names of the directories begin that a restore puts files in which it sets aside.
pub const REPLACED_BEGIN: &str = "replaced-";

/// Segments of the journal, as all numbered files: what is before the number, and after it.
pub const JOURNAL: (&str, &str) = ("journal-", ".log");

/// Snapshots.
pub const SNAPSHOT: (&str, &str) = ("snapshot-", ".bin");

/// The log of a replicated group.
pub const ROUNDS: (&str, &str) = ("rounds-", ".log");

/// Ends of segments that were cut.
pub const CUT: (&str, &str) = ("cut-", ".bin");

/// Files of the group's log that are set aside.
pub const CUT_ROUNDS: (&str, &str) = ("cut-rounds-", ".bin");

/// Snapshots that are set aside.
pub const DAMAGED_SNAPSHOT: (&str, &str) = ("damaged-snapshot-", ".bin");

/// Returns the name of a numbered file.
pub(crate) fn numbered((begin, end): (&str, &str), index: u64) -> String {
    format!("{begin}{index:0NUMBER_DIGITS$}{end}")
}

/// Returns the name of the end of a segment, from an offset on.
pub(crate) fn cut(first: u64, offset: u64) -> String {
    let (begin, end) = CUT;
    format!("{begin}{first:0NUMBER_DIGITS$}-{offset}{end}")
}

/// Returns the name of a snapshot while the leader sends it, with the number of the sending: that
/// of another one may wait for its place in the directory. A start removes what is left.
pub(crate) fn group_snapshot(sending: u64) -> String {
    format!("group-snapshot-{sending:016x}.tmp")
}

/// Returns the name of a file while it is read from the archive.
pub(crate) fn recovered(name: &str) -> String {
    format!("recovered-{name}.tmp")
}

/// Returns the path of a file until it is whole.
pub(crate) fn temporary(target: &Path) -> PathBuf {
    target.with_extension("tmp")
}

/// Returns a name of each kind that a namenode, a restore and a recovery give files.
#[must_use]
pub fn examples() -> Vec<String> {
    let (journal, snapshot) = (numbered(JOURNAL, 17), numbered(SNAPSHOT, 17));
    let arriving = [recovered(&journal), recovered(&snapshot), group_snapshot(0xaf)];
    let state = [UNRESTORED, GROUP_STATE, GROUP_GENERATION, GROUP_FLOOR].map(str::to_owned);
    let numbers = [journal, snapshot, numbered(ROUNDS, 17)];
    let published = [&numbers[..], &state[..]].concat();
    let partial = published.iter().map(|name| temporary(Path::new(name)));
    let partial: Vec<_> = partial.map(|path| path.to_string_lossy().into_owned()).collect();
    let aside = [cut(17, 8192), numbered(CUT_ROUNDS, 17), numbered(DAMAGED_SNAPSHOT, 17)];
    let marks = [LOCK, SUSPECT, GROUP_SUSPECT].map(str::to_owned);
    let others = [LEAVING_GROUP_STATE, CUT_GROUP_STATE, BACKUP, RESTORED].map(str::to_owned);
    let arrays = [&aside[..], &arriving[..], &marks[..], &others[..]].concat();
    [published, partial, arrays].concat()
}
