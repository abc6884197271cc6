//! Checking the catalog against itself: everything that is kept twice must agree.

use std::collections::{BTreeMap, BTreeSet};

use sanderling_protocol::limits::LOST_OBJECTS_KEPT_MAX;
use sanderling_protocol::message::FsckReport;
use sanderling_protocol::{BlockId, JobId, NodeId, ObjectId, Tier};

use super::Catalog;
use super::memory::Memory;
use super::object::{Data, Object, ObjectBody, ROOT};
use super::sums::Sums;

/// Most contradictions listed: one bug can show in every block.
const PROBLEMS_MAX: usize = 100;

impl Catalog {
    /// Checks everything. Cost: linear in objects and blocks.
    #[must_use]
    pub fn fsck(&self) -> FsckReport {
        let mut report = FsckReport { open_blocks: self.open_blocks(), ..FsckReport::default() };
        let mut problems = Vec::new();
        for (id, object) in self.objects.iter() {
            self.check_place(id, object, &mut problems);
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
        for block in self.blocks.values() {
            if block.is_lost() {
                report.lost_blocks += 1;
                report.lost_bytes += u64::from(block.length);
            } else {
                report.blocks += 1;
            }
            report.copied_blocks += u64::from(block.copy.is_some());
        }
        let bound = self.objects.iter().filter(|(id, object)| object.is_bound && *id != ROOT);
        let (bound, names) = (bound.count(), self.names.len());
        if bound != names {
            problems.push(format!("{bound} objects have a name, {names} names are known"));
        }
        for id in self.attributes.keys().filter(|id| !self.objects.contains_key(id)) {
            problems.push(format!("object {id} has attributes and does not exist"));
        }
        if self.sums != Sums::of(&self.objects) {
            problems.push("the sums of containers are not what their parts have".to_owned());
        }
        if self.unnamed != self.derived_unnamed() {
            problems.push("the counts of objects without a name are not what there is".to_owned());
        }
        if self.memory != Memory::of(&self.objects, &self.attributes) {
            problems.push("the account of memory is not what the objects hold".to_owned());
        }
        if self.accounts != self.accounts.derived(self.jobs.ids(), self.owned()) {
            problems.push("the accounts of jobs are not what their objects hold".to_owned());
        }
        self.check_reaping(&mut problems);
        self.clients.check(&mut problems);
        self.check_blocks(&mut problems);
        self.check_accounts(&mut problems);
        problems.truncate(PROBLEMS_MAX);
        report.problems = problems;
        report
    }

    fn check_place(&self, id: ObjectId, object: &Object, problems: &mut Vec<String>) {
        let named = self.container_child(object.parent, object.name.as_str()) == Some(id);
        if id != ROOT && named != object.is_bound {
            problems.push(format!("object {id} and its container disagree about its name"));
        }
        let of_parent = self.objects.get(&object.parent).and_then(|parent| parent.job);
        let is_root = |job: JobId| self.jobs.is_root(job, id);
        if object.is_bound && object.job != of_parent && !object.job.is_some_and(is_root) {
            problems.push(format!("object {id} and its container belong to different jobs"));
        }
        for child in self.names.children(id) {
            if self.objects.get(&child).is_none_or(|child| child.parent != id) {
                problems.push(format!("container {id} names object {child}, which is not in it"));
            }
        }
    }

    fn check_data(&self, id: ObjectId, data: &Data, problems: &mut Vec<String>) {
        let mut bytes = data.inline.as_ref().map_or(0, |inline| inline.len() as u64);
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
        for (id, object) in self.objects.iter() {
            let blocks = object.data().map(|data| data.blocks.as_slice()).unwrap_or_default();
            named.extend(blocks.iter().map(|block| (*block, id)));
        }
        let mut homes: BTreeMap<BlockId, Vec<NodeId>> = BTreeMap::new();
        for (id, node) in &self.nodes.by_id {
            for block in &node.homes {
                homes.entry(*block).or_default().push(*id);
            }
        }
        for (id, block) in self.blocks.iter() {
            let id = &id;
            if named.get(id) != Some(&block.object) {
                problems.push(format!("block {id} belongs to no object"));
            }
            let says = homes.get(id).map(Vec::as_slice).unwrap_or_default();
            if says != block.home.as_slice() {
                problems.push(format!("block {id} has home {:?}, nodes say {says:?}", block.home));
            }
            if block.epoch > block.epoch_last {
                problems.push(format!("block {id} is at an epoch that was never given out"));
            }
            if let Some(copy) = block.copy {
                let holder = self.nodes.get(copy.node);
                if holder.is_none_or(|node| !node.copies.contains_key(id)) {
                    problems.push(format!("block {id} has a copy on a node that does not hold it"));
                }
                if copy.epoch <= block.epoch || block.home == Some(copy.node) {
                    problems.push(format!("block {id} has a copy that cannot become its home"));
                }
            }
            if let Some(planned) = block.moving {
                let target = self.nodes.get(planned.to);
                if target.is_none_or(|node| !node.incoming.contains_key(id)) {
                    problems.push(format!("block {id} moves to a node that does not expect it"));
                }
            }
        }
    }

    fn check_accounts(&self, problems: &mut Vec<String>) {
        let mut used: BTreeMap<(NodeId, Tier), u64> = BTreeMap::new();
        let mut by_job: BTreeMap<JobId, u64> = BTreeMap::new();
        for block in self.blocks.values() {
            if let Some(home) = block.home {
                *used.entry((home, block.tier)).or_default() += u64::from(block.reserved);
            }
            if let Some(job) = block.job {
                *by_job.entry(job).or_default() += u64::from(block.reserved);
            }
        }
        for object in self.objects.values() {
            if let (Some(job), Some(inline)) =
                (object.job, object.data().and_then(|data| data.inline.as_ref()))
            {
                *by_job.entry(job).or_default() += inline.len() as u64;
            }
        }
        for (id, node) in &self.nodes.by_id {
            for (block, (tier, bytes)) in &node.incoming {
                *used.entry((*id, *tier)).or_default() += bytes;
                if self.blocks.get(block).is_none_or(|block| block.moving.is_none()) {
                    problems.push(format!("node {id} expects block {block}, which does not move"));
                }
            }
            for (block, (tier, bytes)) in &node.copies {
                *used.entry((*id, *tier)).or_default() += bytes;
                let copy = self.blocks.get(block).and_then(|block| block.copy);
                if copy.is_none_or(|copy| copy.node != *id) {
                    problems.push(format!("node {id} has a copy of {block} that nobody knows of"));
                }
            }
            let unknown: BTreeSet<&BlockId> =
                node.homes.iter().filter(|block| !self.blocks.contains_key(block)).collect();
            if !unknown.is_empty() {
                problems.push(format!("node {id} is home of unknown blocks {unknown:?}"));
            }
            let known = node.homes.iter().filter_map(|block| self.blocks.get(block));
            let bytes: u64 = known.map(|block| u64::from(block.length)).sum();
            if bytes != node.home_bytes {
                let have = node.home_bytes;
                problems.push(format!("node {id} counts {have} bytes at home, has {bytes}"));
            }
            let homes = || node.homes.iter().filter_map(|id| Some((*id, self.blocks.get(id)?)));
            let safe = homes().filter(|(_, block)| block.is_safe());
            let safe: u64 = safe.map(|(_, block)| u64::from(block.length)).sum();
            let copied: BTreeSet<BlockId> =
                homes().filter(|(_, block)| block.copy.is_some()).map(|(id, _)| id).collect();
            if safe != node.safe_bytes || copied != node.copied {
                let have = node.safe_bytes;
                problems.push(format!("node {id} counts {have} safe bytes, has {safe}"));
            }
            for state in &node.tiers {
                let sum = used.get(&(*id, state.tier)).copied().unwrap_or(0);
                if sum != state.used {
                    let (tier, have) = (state.tier, state.used);
                    problems
                        .push(format!("node {id} accounts {have} bytes of {tier}, holds {sum}"));
                }
            }
        }
        self.check_copied(problems);
        self.check_totals(problems);
        self.jobs.check(&by_job, problems);
    }

    /// Compares the sums over all nodes with what the blocks take.
    fn check_totals(&self, problems: &mut Vec<String>) {
        let (mut homes, mut stored) = (0, 0);
        for block in self.blocks.values().filter(|block| !block.is_lost()) {
            let sum = if block.tier == Tier::Object { &mut stored } else { &mut homes };
            *sum += u64::from(block.reserved);
        }
        let totals = &self.nodes.totals;
        if (homes, stored) != (totals.homes, totals.stored) {
            let (have, have_stored) = (totals.homes, totals.stored);
            problems.push(format!(
                "homes take {homes} and {stored} bytes, {have} and {have_stored} are counted"
            ));
        }
    }

    /// Compares what each tier counts as copies with those that are there.
    fn check_copied(&self, problems: &mut Vec<String>) {
        let nodes = self.nodes.by_id.iter();
        for (id, node, state) in
            nodes.flat_map(|(id, node)| node.tiers.iter().map(move |state| (id, node, state)))
        {
            let copies = node.copies.values().filter(|(tier, _)| *tier == state.tier);
            let sum: u64 = copies.map(|(_, bytes)| bytes).sum();
            if sum != state.copied {
                let (tier, have) = (state.tier, state.copied);
                problems.push(format!("node {id} counts {have} copied bytes of {tier}, has {sum}"));
            }
        }
    }
}
