//! What the log itself has lost.

use sanderling_protocol::event::Loss;
use sanderling_protocol::{EventKind, NodeId};
use serde::{Deserialize, Serialize};

use super::Catalog;
use super::log::Action;
use super::object::ROOT;

/// Acknowledged changes that are gone, since the cluster began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalLoss {
    /// How often.
    pub cuts: u64,
    /// Whole records that were given up.
    pub records: u64,
    /// Bytes of journal that were given up.
    pub bytes: u64,
}

impl Catalog {
    /// Returns what the log has lost, in all.
    #[must_use]
    pub const fn journal_loss(&self) -> JournalLoss {
        self.journal_loss
    }

    /// Writes down what a start has found wrong with the log or a snapshot.
    pub(super) fn journal_found(&mut self, action: &Action) {
        match action {
            Action::JournalCut { segment, offset, bytes, records, is_accepted, why } => {
                self.cut_here();
                self.journal_loss.cuts += 1;
                self.journal_loss.records += records;
                self.journal_loss.bytes += bytes;
                let place = format!("segment {segment} at byte {offset}: {why}");
                let cause = match is_accepted {
                    true => "damage of the journal was accepted",
                    false => "the machine crashed before the disk had the journal",
                };
                let lost = format!(
                    "{cause}: {records} records of changes in {bytes} bytes are gone ({place})"
                );
                self.report_everything(lost);
                let (records, bytes, is_accepted) = (*records, *bytes, *is_accepted);
                self.emit(EventKind::JournalCut { records, bytes, is_accepted, why: place });
            }
            Action::SnapshotSkipped { index, why } => {
                let (commands, why) = (*index, why.clone());
                self.emit(EventKind::SnapshotSkipped { commands, why });
            }
            _ => {}
        }
    }

    /// Puts a loss into the report that may concern any object: it is the root's. Bytes and blocks
    /// are not known, so none are counted.
    fn report_everything(&mut self, why: String) {
        let Some(path) = self.path_of(ROOT) else { return };
        let (at, node, object) = (self.now, NodeId(0), ROOT);
        let (job, blocks, ranges) = (None, Vec::new(), Vec::new());
        self.push_loss(Loss { at, node, why, object, path, job, blocks, ranges });
    }
}
