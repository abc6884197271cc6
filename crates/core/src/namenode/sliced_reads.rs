//! Reads that may take long, made in slices: between two slices the catalog is free for others.
//!
//! A slice visits a bounded number of entries, whatever is requested. A listing or a sum that is
//! longer goes on in the next slice, so the parts of its answer are of different moments; what was
//! there all the time is in it.

use std::sync::Arc;

use sanderling_protocol::limits::REQUESTS_PER_FRAME_MAX;
use sanderling_protocol::{Instant, Refusal, Reply, Request};

use super::Namenode;
use super::group_commit::Answers;
use super::reply_budget::{ReplyBudget, entries};
use crate::access::Claims;
use crate::catalog::{Catalog, CountedAt, Listing, OwnershipWalk, UsageWalk, within_reply};

/// The reads of one frame, and how far their answers are.
#[derive(Debug)]
pub struct FrameRead {
    /// The first of them have been answered.
    requests: Vec<Request>,
    /// What their caller may do; `None` if it may do everything.
    claims: Option<Arc<Claims>>,
    /// What has been found of the next answer.
    walk: Option<SlicedRead>,
    answers: Answers,
    budget: ReplyBudget,
}

/// An answer that takes several slices.
#[derive(Debug)]
enum SlicedRead {
    Usage(UsageWalk),
    List(Listing),
    Owners(OwnershipWalk),
}

impl FrameRead {
    /// Most entries that one request may visit: as many as a frame may have requests, which
    /// takes some 100 us.
    pub const AT_ONCE_ENTRIES: usize = REQUESTS_PER_FRAME_MAX;

    /// Entries of a later slice, which are visited while the writer and others wait: some 50 us.
    /// Half of [`Self::AT_ONCE_ENTRIES`], which others wait for once.
    pub const SLICE_ENTRIES: usize = 256;

    /// Returns the reads of a frame, of which none is answered; [`Self::slice`] answers them.
    #[must_use]
    pub fn new(requests: Vec<Request>, claims: Option<Arc<Claims>>) -> Self {
        let (answers, budget) = (Vec::with_capacity(requests.len()), ReplyBudget::default());
        Self { requests, claims, walk: None, answers, budget }
    }

    /// Goes on until about `entries` entries of the catalog have been visited, each request being
    /// at least one. Returns whether everything is answered.
    pub fn slice(&mut self, now: Instant, namenode: &Namenode, mut entries: usize) -> bool {
        while let Some(request) = self.requests.get(self.answers.len()) {
            if entries == 0 {
                return false;
            }
            let claims = self.claims.as_ref();
            let allowed = claims.map_or(Ok(()), |claims| namenode.allows(claims, request));
            let walk = &mut self.walk;
            let answered =
                allowed.and_then(|()| answer(now, namenode, request, walk, &mut entries));
            let Some(answer) = answered.transpose() else { return false };
            entries = entries.saturating_sub(1);
            self.walk = None;
            self.answers.push(self.budget.admit(answer));
        }
        true
    }

    /// Returns how many entries the answers have so far: a measure of their memory.
    #[must_use]
    pub const fn entries(&self) -> usize {
        self.budget.entries()
    }

    /// Returns all requests of the frame, in their order, whether or not they are answered.
    #[must_use]
    pub fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// Returns the requests and their answers. Called when [`FrameRead::slice`] has returned true;
    /// before, requests lack answers.
    #[must_use]
    pub fn finish(self) -> (Vec<Request>, Answers) {
        debug_assert_eq!(self.requests.len(), self.answers.len(), "requests lack answers");
        (self.requests, self.answers)
    }
}

impl SlicedRead {
    /// Begins the answer to a request; `None` if it is made in one step.
    fn begin(catalog: &Catalog, request: &Request) -> Result<Option<Self>, Refusal> {
        Ok(match request {
            Request::Usage { path } => Some(Self::Usage(catalog.usage_walk(path)?)),
            Request::List { after, limit, with_attributes, .. } => {
                Some(Self::List(Listing::new(after.clone(), *limit, *with_attributes)))
            }
            Request::Within { blocks, .. } | Request::CountedBlocks { blocks, .. } => {
                Some(Self::Owners(OwnershipWalk::new(blocks)?))
            }
            _ => None,
        })
    }
}

/// Answers a request, or goes on with its walk and keeps it; `None` if that is not over. Takes what
/// it visited from `entries`.
fn answer(
    now: Instant,
    namenode: &Namenode,
    request: &Request,
    walk: &mut Option<SlicedRead>,
    entries: &mut usize,
) -> Result<Option<Reply>, Refusal> {
    let catalog = namenode.catalog();
    if walk.is_none() {
        *walk = SlicedRead::begin(catalog, request)?;
    }
    match (walk, request) {
        (Some(SlicedRead::Usage(walk)), _) => {
            Ok(catalog.usage_step(walk, entries).map(Reply::Usage))
        }
        (Some(SlicedRead::List(listing)), Request::List { path, .. }) => {
            catalog.list_step(path, listing, entries)
        }
        (Some(SlicedRead::Owners(walk)), Request::Within { subtree, blocks }) => {
            let nowhere = CountedAt::NOWHERE;
            let owners = catalog.ownership_step(nowhere, subtree, blocks, walk, entries);
            Ok(owners.as_deref().map(within_reply))
        }
        (Some(SlicedRead::Owners(walk)), Request::CountedBlocks { node, subtree, blocks }) => {
            let at = namenode.counted_at(now, *node);
            let counts = catalog.ownership_step(at, subtree, blocks, walk, entries);
            Ok(counts.map(Reply::CountedBlocks))
        }
        _ => {
            let why = || "it came among requests that change nothing".to_owned();
            let answer = namenode.read(now, request);
            let answer = answer.unwrap_or_else(|| Err(Refusal::BadRequest { why: why() }));
            *entries = entries.saturating_sub(visited(&answer));
            answer.map(Some)
        }
    }
}

/// Returns from how many entries an answer was made that was made in one step.
fn visited(answer: &Result<Reply, Refusal>) -> usize {
    match answer {
        Ok(Reply::Stat(_)) => 0,
        // The blocks before those that were requested are passed one by one.
        Ok(Reply::Layout(layout)) => layout.stat.blocks as usize,
        other => entries(other),
    }
}
