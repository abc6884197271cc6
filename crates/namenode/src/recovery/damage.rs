//! Damage of the journal: what it costs, and an operator's word that it may cost that.

use std::io;
use std::path::PathBuf;

use sanderling_core::catalog::Action;

use crate::damage::JournalDamage;
use crate::directory::{Directory, FileKind};
use crate::error::NamenodeStartError;
use crate::journal::{Segment, settle};
use crate::options::NamenodeOptions;

/// Changes are missing from here on.
#[derive(Debug, Clone)]
pub(super) struct Damage {
    pub(super) path: PathBuf,
    /// Number of the segment's first command.
    pub(super) first: u64,
    /// Up to where the segment is whole; 0 where it cannot be read at all.
    pub(super) offset: u64,
    /// Bytes of journal behind it, of later segments too.
    pub(super) bytes: u64,
    /// Whole records among them.
    pub(super) records: u64,
    pub(super) why: JournalDamage,
    /// Whether the disk had once what is missing.
    pub(super) is_of_synced: bool,
}

impl Damage {
    /// Returns the name by which an operator accepts exactly this loss.
    fn name(&self) -> String {
        let file = self.path.file_name().unwrap_or_default().to_string_lossy();
        format!("{file}:{}", self.offset)
    }

    /// Refuses the start unless the operator accepts this loss and no other.
    pub(super) fn accept(&self, options: &NamenodeOptions) -> Result<(), NamenodeStartError> {
        let name = self.name();
        if options.accepted_loss.as_ref() == Some(&name) {
            return Ok(());
        }
        Err(NamenodeStartError::DamagedJournal {
            path: self.path.clone(),
            offset: self.offset,
            records: self.records,
            bytes: self.bytes,
            damage: self.why.clone(),
            name,
        })
    }

    /// Returns the record of the loss.
    pub(super) fn record(&self) -> Action {
        Action::JournalCut {
            segment: self.first,
            offset: self.offset,
            bytes: self.bytes,
            records: self.records,
            is_accepted: self.is_of_synced,
            why: self.why.to_string(),
        }
    }

    /// Moves everything behind the damage aside, and keeps it. The damage itself stays until a
    /// segment follows that records what is missing: it is found again if the machine crashes on
    /// the way.
    pub(super) fn clear(
        &self,
        directory: &Directory,
        end: Option<&Segment>,
        segments: &[u64],
    ) -> io::Result<()> {
        if self.bytes > 0 {
            directory.save_end(&self.path, self.first, self.offset)?;
        }
        for later in segments.iter().rev().filter(|segment| **segment > self.first) {
            directory.set_aside(FileKind::Journal, *later)?;
        }
        directory.sync()?;
        // The new segment goes on behind what was whole.
        end.map_or(Ok(()), |end| settle(directory, end).map(drop))
    }

    /// Does the same with snapshots that the journal does not reach any more: a later command would
    /// seem to be in them.
    pub(super) fn clear_snapshots(directory: &Directory, skipped: &[u64]) -> io::Result<()> {
        for index in skipped {
            directory.set_aside(FileKind::Snapshot, *index)?;
        }
        directory.sync()
    }
}
