//! Whose objects, jobs and blocks are: for sessions that may touch a part of the namespace.

use sanderling_protocol::limits::BLOCKS_PER_PAGE_MAX;
use sanderling_protocol::{BlockId, JobId, ObjectId, Path, Refusal, Reply};

use super::Catalog;
use crate::access::PathLookup;

impl PathLookup for Catalog {
    fn path_of_object(&self, object: ObjectId) -> Option<Path> {
        self.path_of(object)
    }

    fn path_of_job(&self, job: JobId) -> Option<Path> {
        self.path_of(self.jobs.get(job)?.root)
    }
}

impl Catalog {
    /// Returns for each block whether its object is in a subtree; a block that is gone is not.
    pub(crate) fn within(&self, subtree: &Path, blocks: &[BlockId]) -> Result<Reply, Refusal> {
        if blocks.len() > BLOCKS_PER_PAGE_MAX {
            let (value, limit) = (blocks.len() as u64, BLOCKS_PER_PAGE_MAX as u64);
            return Err(Refusal::TooLarge { what: "number of blocks".to_owned(), value, limit });
        }
        let is_within = |block: &BlockId| {
            let object = self.blocks.get(block)?.object;
            Some(subtree.contains(&self.path_of(object)?))
        };
        let answers = blocks.iter().map(|block| is_within(block).unwrap_or(false)).collect();
        Ok(Reply::Within(answers))
    }
}
