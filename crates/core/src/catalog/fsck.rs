//! Checking the catalog: against itself, because everything that is kept twice must agree, and from
//! outside, where the simulator and tests read what it has.

use std::collections::BTreeMap;

use sanderling_protocol::limits::LOST_OBJECTS_KEPT_MAX;
use sanderling_protocol::message::FsckReport;
use sanderling_protocol::{BlockId, Epoch, JobId, NodeId, ObjectId};

use super::Catalog;
use super::block::{Block, BlockView};
use super::object::ObjectBody;

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
            self.jobs.check_owner(&self.objects, (id, object), &mut problems);
            match &object.body {
                ObjectBody::Container(_) => report.directories += 1,
                ObjectBody::Data(data) => {
                    report.files += 1;
                    report.bytes += data.bytes;
                    let stored_bytes = self.durables.restoring_bytes(id);
                    self.blocks.check_data(id, data, stored_bytes, &mut problems);
                    if data.is_sealed == data.lease.is_some() {
                        problems.push(format!("object {id} is sealed and leased, or neither"));
                    }
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
        self.sums.check(&self.objects, &mut problems);
        self.unnamed.check(&self.objects, &mut problems);
        self.memory.check(&self.objects, self.attributes.values(), &mut problems);
        self.accounts.check(self.jobs.ids(), self.owned(), &mut problems);
        self.check_reaping(&mut problems);
        self.clients.check(&mut problems);
        self.check_blocks(&mut problems);
        problems.truncate(PROBLEMS_MAX);
        report.problems = problems;
        report
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

/// What the simulator and tests read.
impl Catalog {
    /// Returns what is known of a block; `None` when it is deleted or never was.
    #[must_use]
    pub fn block_view(&self, id: BlockId) -> Option<BlockView> {
        self.blocks.get(&id).map(Block::view)
    }

    /// Returns a block's home and epoch; `None` when it is deleted or never was.
    #[must_use]
    pub fn block_home(&self, id: BlockId) -> Option<(Option<NodeId>, Epoch)> {
        self.blocks.get(&id).map(|block| (block.home, block.epoch))
    }

    /// Returns the number of timers that are scheduled in the catalog.
    #[must_use]
    pub fn due_count(&self) -> usize {
        self.timers.len() + self.service.timer_count()
    }

    /// Returns whether an object is there, with a name or waiting for its seal.
    #[must_use]
    pub fn has_object(&self, id: ObjectId) -> bool {
        self.objects.contains_key(&id) && !self.is_deleted(id)
    }

    /// Returns whether there is a job with this id that has not ended.
    #[must_use]
    pub fn has_job(&self, id: JobId) -> bool {
        self.job(id).is_some()
    }

    /// Returns the ids of all blocks, lost ones among them, in their order.
    pub fn block_ids(&self) -> impl Iterator<Item = BlockId> {
        self.blocks.iter().map(|(id, _)| id)
    }
}
