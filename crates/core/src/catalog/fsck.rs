//! Checking the catalog against itself: everything that is kept twice must agree.

use std::collections::BTreeMap;

use sanderling_protocol::limits::LOST_OBJECTS_KEPT_MAX;
use sanderling_protocol::message::FsckReport;
use sanderling_protocol::{BlockId, JobId, ObjectId};

use super::Catalog;
use super::memory::Memory;
use super::object::{Data, Object, ObjectBody};
use super::sums::Sums;

/// Most contradictions listed: one bug can show in every block. More than an operator reads; the
/// first show the kind of damage.
const PROBLEMS_MAX: usize = 100;

impl Catalog {
    /// Checks everything. Cost: linear in objects and blocks.
    #[must_use]
    pub fn fsck(&self) -> FsckReport {
        let mut report = FsckReport { open_blocks: self.open_blocks(), ..FsckReport::default() };
        let mut problems = Vec::new();
        for (id, object) in self.objects.iter() {
            self.check_job(id, object, &mut problems);
            match &object.body {
                ObjectBody::Container(_) => report.directories += 1,
                ObjectBody::Data(data) => {
                    report.files += 1;
                    report.bytes += data.bytes;
                    self.check_data(id, data, &mut problems);
                    if data.lost_bytes > 0 && report.lost_objects.len() < LOST_OBJECTS_KEPT_MAX {
                        report.lost_objects.extend(self.path_of(id));
                    }
                }
            }
        }
        for (_, block) in self.blocks.iter() {
            if block.is_lost() && self.durables.is_restoring(block.object) {
                report.blocks += 1;
            } else if block.is_lost() {
                report.lost_blocks += 1;
                report.lost_bytes += u64::from(block.length);
            } else {
                report.blocks += 1;
            }
            report.copied_blocks += u64::from(block.copy.is_some());
        }
        self.names.check(&self.objects, &mut problems);
        self.check_durables(&mut problems);
        self.attributes.check(&self.objects, &mut problems);
        self.appends.check(&self.objects, &mut problems);
        self.shown_moves.check(&self.blocks, &mut problems);
        if self.sums != Sums::of(&self.objects) {
            problems.push("the sums of containers are not what their parts have".to_owned());
        }
        if self.unnamed != self.derived_unnamed() {
            problems.push("the counts of objects without a name are not what there is".to_owned());
        }
        if self.memory != Memory::of(&self.objects, self.attributes.values()) {
            problems.push("the account of memory is not what the objects hold".to_owned());
        }
        if self.accounts != self.accounts.derived(self.jobs.ids(), self.owned()) {
            problems.push("the accounts of jobs are not what their objects hold".to_owned());
        }
        self.check_reaping(&mut problems);
        self.clients.check(&mut problems);
        self.check_blocks(&mut problems);
        problems.truncate(PROBLEMS_MAX);
        report.problems = problems;
        report
    }

    fn check_job(&self, id: ObjectId, object: &Object, problems: &mut Vec<String>) {
        let of_parent = self.objects.get(&object.parent).and_then(|parent| parent.job);
        let is_root = |job: JobId| self.jobs.is_root(job, id);
        if object.is_bound && object.job != of_parent && !object.job.is_some_and(is_root) {
            problems.push(format!("object {id} and its container belong to different jobs"));
        }
    }

    fn check_data(&self, id: ObjectId, data: &Data, problems: &mut Vec<String>) {
        let mut bytes = data.inline_bytes();
        let mut lost = 0;
        for block_id in data.blocks.iter() {
            match self.blocks.get(block_id) {
                Some(block) if block.object == id => {
                    bytes += u64::from(block.length);
                    lost += if block.is_lost() { u64::from(block.length) } else { 0 };
                }
                _ => problems.push(format!("object {id} names block {block_id}, not its own")),
            }
        }
        // What the store has is not lost.
        lost -= self.durables.restoring_bytes(id).min(lost);
        if (bytes, lost) != (data.bytes, data.lost_bytes) {
            let (have, have_lost) = (data.bytes, data.lost_bytes);
            problems.push(format!(
                "object {id} has {have} bytes, {have_lost} lost; its blocks {bytes}, {lost} lost"
            ));
        }
        let with_bytes = data.blocks.iter().filter_map(|block| self.blocks.get(block));
        let with_bytes = with_bytes.filter(|block| block.length > 0).count();
        if u32::try_from(with_bytes) != Ok(data.blocks_with_bytes()) {
            let have = data.blocks_with_bytes();
            problems.push(format!("object {id} counts {have} blocks with bytes, has {with_bytes}"));
        }
        if data.is_sealed == data.lease.is_some() {
            problems.push(format!("object {id} is sealed and leased, or neither"));
        }
    }

    fn check_blocks(&self, problems: &mut Vec<String>) {
        let mut named: BTreeMap<BlockId, ObjectId> = BTreeMap::new();
        let mut taken: BTreeMap<JobId, u64> = BTreeMap::new();
        for (id, object) in self.objects.iter() {
            let Some(data) = object.data() else { continue };
            named.extend(data.blocks.iter().map(|block| (*block, id)));
            if let Some(job) = object.job {
                *taken.entry(job).or_default() += data.inline_bytes();
            }
        }
        for (_, block) in self.blocks.iter() {
            if let Some(job) = block.job {
                *taken.entry(job).or_default() += u64::from(block.reserved);
            }
        }
        self.blocks.check(&named, &self.nodes, problems);
        self.jobs.check(&taken, problems);
    }
}
