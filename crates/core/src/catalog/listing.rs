//! One page of what a container lists.

use sanderling_protocol::limits::LIST_PAGE_MAX;
use sanderling_protocol::message::Entry;
use sanderling_protocol::{ObjectId, Reply};

use super::memory::of_attributes;

/// Memory of attributes after which a page of a listing ends: with the longest attributes a full
/// page would have 32 MiB, twice what a frame may have, and short ones take many times their bytes
/// where they are decoded. Chosen, not measured: some 500 bytes for each entry of a full page.
const ATTRIBUTES_PER_PAGE_MAX: usize = 2 << 20;

/// Memory of attributes that is as much work as one more entry. Chosen, not measured.
const ATTRIBUTES_PER_ENTRY: u64 = 1 << 10;

/// One page of a listing, made in steps between which the catalog may change: each entry is as it
/// was in its step.
#[derive(Debug)]
pub(crate) struct Listing {
    /// The name after which the page begins.
    after: String,
    limit: usize,
    with_attributes: bool,
    entries: Vec<Entry>,
    attribute_bytes: usize,
}

impl Listing {
    /// Returns an empty page of at most `limit` entries, and of 4,096.
    pub(crate) fn new(after: String, limit: u32, with_attributes: bool) -> Self {
        let limit = (limit as usize).clamp(1, LIST_PAGE_MAX);
        Self { after, limit, with_attributes, entries: Vec::new(), attribute_bytes: 0 }
    }

    /// Returns the name after which the next step begins.
    pub(super) fn after(&self) -> &str {
        self.entries.last().map_or(&self.after, |last| &last.name)
    }

    /// Goes on by at most so many entries of those that are left, each made by `entry`; takes from
    /// `entries` what it visited. Returns the page when it is full or nothing is left.
    pub(super) fn step(
        &mut self,
        mut left: impl Iterator<Item = ObjectId>,
        entries: &mut usize,
        entry: impl Fn(ObjectId, bool) -> Entry,
    ) -> Option<Reply> {
        while !self.is_full() && *entries > 0 {
            let Some(id) = left.next() else { return Some(self.page(false)) };
            let entry = entry(id, self.with_attributes);
            let bytes = of_attributes(&entry.attributes);
            let visited = 1 + usize::try_from(bytes / ATTRIBUTES_PER_ENTRY).unwrap_or(usize::MAX);
            *entries = entries.saturating_sub(visited);
            self.attribute_bytes += usize::try_from(bytes).unwrap_or(usize::MAX);
            self.entries.push(entry);
        }
        self.is_full().then(|| self.page(left.next().is_some()))
    }

    const fn is_full(&self) -> bool {
        self.entries.len() >= self.limit || self.attribute_bytes >= ATTRIBUTES_PER_PAGE_MAX
    }

    fn page(&mut self, is_more: bool) -> Reply {
        Reply::Entries { entries: std::mem::take(&mut self.entries), is_more }
    }
}
