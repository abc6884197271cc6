//! Reports to the namenode: uploads that are going to be completed, what was done, and what stores
//! lack. Each is sent until the namenode has it.

use sanderling_protocol::message::{DurableProgress, DurableRecord, DurableReport};
use sanderling_protocol::{Instant, Millis};

use super::interface::DurableOutput;
use super::task::Stage;
use super::{CallPurpose, DurableDrain, RETRY_MIN};
use crate::retry::doubled;

/// The longest pause before a report is sent again that the namenode did not get: readers of what
/// was read back wait for it. Chosen, not measured.
const REPORT_RETRY_MAX: Millis = Millis(3_200);

impl DurableDrain {
    /// Reports what there is, unless a report is under way or has failed just before.
    pub(super) fn send_report(&mut self, now: Instant) {
        let has_changes = !self.uploads.is_empty() || !self.made.is_empty();
        let has_progress = has_changes || self.report != DurableProgress::default();
        let is_empty = !has_progress && self.missing.is_empty();
        if self.reporting.is_some() || is_empty || self.report_at.is_some_and(|at| at > now) {
            return;
        }
        let (uploads, made) = (std::mem::take(&mut self.uploads), std::mem::take(&mut self.made));
        let progress = std::mem::take(&mut self.report);
        // A namenode of before reads no report with what is missing, and the rest must not wait for
        // that: after a report that failed, it goes alone.
        let is_alone = self.report_tries > 0 && has_progress;
        let missing = if is_alone { Vec::new() } else { std::mem::take(&mut self.missing) };
        let record = DurableRecord { uploads, made, report: DurableReport { progress, missing } };
        self.reporting = Some(record.clone());
        let call = self.call(CallPurpose::Report);
        self.outputs.push_back(DurableOutput::Report { call, record });
    }

    /// Takes whether the namenode has the report that is under way.
    pub(super) fn on_reported(&mut self, now: Instant, is_done: bool) {
        let Some(sent) = self.reporting.take() else { return };
        if is_done { self.note_reported(sent) } else { self.report_again(now, sent) }
    }

    /// Reports the same again after a pause, and before what came since. It may have arrived: the
    /// same again changes nothing.
    fn report_again(&mut self, now: Instant, sent: DurableRecord) {
        let DurableRecord { uploads, made, report: DurableReport { progress, missing } } = sent;
        self.restores.read_again(&missing);
        let later = std::mem::replace(&mut self.uploads, uploads);
        self.uploads.extend(later);
        let later = std::mem::replace(&mut self.made, made);
        self.made.extend(later);
        let later = std::mem::replace(&mut self.report, progress);
        self.report.stalled.extend(later.stalled);
        self.report.restored.extend(later.restored);
        self.report.adopted.extend(later.adopted);
        self.report_tries += 1;
        let pause = doubled(RETRY_MIN, self.report_tries, REPORT_RETRY_MAX);
        self.report_at = Some(now + pause);
    }

    /// Goes on with what the namenode has now.
    fn note_reported(&mut self, sent: DurableRecord) {
        let DurableRecord { uploads, made, report: DurableReport { progress, missing } } = sent;
        (self.report_tries, self.report_at) = (0, None);
        self.restores.reported(&progress, &missing);
        self.adoptions_reported(progress.adopted);
        for recorded in uploads {
            let Some(task) = self.task(recorded.directory, recorded.number) else { continue };
            if let Stage::Uploaded { upload, parts } = task.stage.clone()
                && upload == recorded.upload
            {
                task.stage = Stage::Recorded { upload, parts };
            }
        }
        for change in made {
            if let Some(directory) = self.directories.get_mut(&change.directory) {
                directory.unreported.remove(&change.number);
                directory.reported_stall = None;
                directory.read_stall = None;
            }
        }
    }
}
