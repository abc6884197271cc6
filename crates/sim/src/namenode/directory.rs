//! Faults of the namenode's process, machine and directory, and the start with what is left of it.

use sanderling_core::catalog::{Action, Command};
use sanderling_protocol::Instant;

use super::NamenodeHost;
use super::disk::Lost;
use super::serve::NamenodeContext;
use crate::plan::FaultKind;

impl NamenodeHost {
    /// Does something to the process, to its directory, or to its machine's clock.
    pub(crate) fn fault(&mut self, context: &mut NamenodeContext<'_>, kind: FaultKind) {
        match kind {
            FaultKind::KillNamenode { down_millis, is_after_journal: true } => {
                self.dies_after_journal = Some(down_millis);
            }
            FaultKind::KillNamenode { down_millis, .. } => self.kill(context, down_millis),
            FaultKind::FreezeNamenode { millis } => self.freeze(context, millis),
            FaultKind::CrashNamenode { down_millis, kept_permille, is_holed } => {
                self.crash(context, down_millis, kept_permille, is_holed);
            }
            FaultKind::CopyDirectory => self.copy_directory(),
            FaultKind::PutDirectoryBack { down_millis } => {
                self.put_directory_back(context, down_millis)
            }
            FaultKind::SlowSync { millis } => self.slow_sync(context, millis),
            FaultKind::FullDisk { millis } => self.disk.fill(context.runtime.now() + millis * 1000),
            FaultKind::FailSync { down_millis, kept_permille } => {
                self.disk.fails = Some((down_millis, kept_permille));
            }
            FaultKind::StepClock { down_millis, step_millis } => {
                self.kill(context, down_millis);
                context.runtime.step_clock(0, step_millis);
            }
            other => unreachable!("{other:?} is no fault of the namenode"),
        }
    }

    /// Crashes the namenode's machine: what its disk does not have is gone, but for a share.
    pub(super) fn crash(
        &mut self,
        context: &mut NamenodeContext<'_>,
        down_millis: u64,
        kept_permille: u64,
        is_holed: bool,
    ) {
        self.kill(context, down_millis);
        let synced = self.disk.synced(context.runtime.now()).max(self.snapshot.records);
        let unsynced = self.journal.len().saturating_sub(synced) as u64;
        let kept = synced + (unsynced * kept_permille / 1000) as usize;
        let (records, is_holed) = (self.journal.len(), is_holed && kept_permille > 0);
        self.disk.cut(&mut self.journal, kept, is_holed);
        context.runtime.log(14, kept as u64, || {
            format!("namenode: the machine crashed, {kept} of {records} records are there")
        });
    }

    /// Lets no sync of the namenode's disk end for a while: changes that wait for it stop the
    /// writer.
    fn slow_sync(&mut self, context: &mut NamenodeContext<'_>, millis: u64) {
        if self.disk.is_sync_always() {
            return self.freeze(context, millis);
        }
        self.disk.stall(context.runtime.now(), context.runtime.now() + millis * 1000);
    }

    fn copy_directory(&mut self) {
        self.disk.put_aside(&self.snapshot, &self.journal);
    }

    /// Ends the namenode and puts an older copy of its directory back.
    fn put_directory_back(&mut self, context: &mut NamenodeContext<'_>, down_millis: u64) {
        if self.disk.copy.is_none() {
            return;
        }
        self.kill(context, down_millis);
        let Some(copy) = self.disk.put_back(self.journal.len()) else { return };
        (self.snapshot, self.journal) = (copy.snapshot, copy.journal);
        let records = self.journal.len();
        context.runtime.log(15, records as u64, || {
            format!("namenode: a copy of the directory is put back, of {records} records")
        });
    }

    /// Goes back to what is left of the log with everything that follows from it.
    pub(super) fn lose_end(&mut self, context: &mut NamenodeContext<'_>, lost: Lost) {
        context.runtime.statistics_mut().lost_ends += 1;
        if lost.is_holed {
            let at = self.journal.last().map_or(Instant(0), |command| command.at);
            let action = Action::JournalCut {
                segment: 0,
                offset: 0,
                bytes: lost.records,
                records: lost.records,
                is_accepted: false,
                why: "a hole".to_owned(),
            };
            self.journal.push(Command { at, action });
            let (now, records) = (context.runtime.now(), self.journal.len());
            self.disk.wrote(records, now, self.served_millis(now));
        }
        context.checks.rewind(context.runtime.now());
        context.checks.history.lose(lost.since);
        self.machine = self.anew();
        for index in 0..self.journal.len() {
            let command = self.journal[index].clone();
            context.checking(self).before(&command);
            let arriving = context.checking(self).arriving(&command, None);
            let applied = self.machine.apply(&command);
            if !context.checking(self).made(arriving, &applied.result) {
                let served = self.disk.served_millis(index);
                context.checking(self).again(&command, &applied, served);
            }
        }
        context.checking(self).rewound();
    }
}
