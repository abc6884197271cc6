//! Requests that change nothing: answered under a read lock.

use sanderling_protocol::limits::EVENTS_PER_REPLY_MAX;
use sanderling_protocol::message::{DurableRequest, Repetition};
use sanderling_protocol::{Instant, Millis, NodeId, Refusal, Reply, Request};

use super::Namenode;
use crate::catalog::CountedAt;

/// Most entries that a request visits which is answered among changes, under the writer's lock: 64
/// take some ten microseconds, as much as two creates.
const SHORT_ENTRIES_MAX: usize = 64;

/// After this time without a turn of the writer, its journal may hang. Ten times as long as the
/// writer sleeps at most (`GroupCommit::SLEEP_MAX`). With the 100 ms of that it leaves two seconds
/// of the 3 s for which a datanode must be shown an end (`TRIM_AFTER`). Chosen, not measured.
const MAY_HANG_AFTER: Millis = Millis(1000);

impl Namenode {
    /// Returns whether a request changes nothing, so that [`Namenode::read`] answers it.
    #[must_use]
    pub fn is_read(&self, request: &Request) -> bool {
        match request {
            Request::BlockReport { node, blocks } => !self.catalog.has_orphans(*node, blocks),
            Request::ExpectedBlocks { node, .. } => !self.membership.awaits_report(*node),
            // What is in a store only is read back for its first reader.
            request => {
                request.repeat() == Repetition::Reads
                    && self.catalog.unwanted_of(request).is_empty()
            }
        }
    }

    /// Returns whether the answer to a request that changes nothing may visit many entries of the
    /// catalog for a caller that is no part of the cluster. Such a request is answered in
    /// slices (see [`FrameRead`](super::FrameRead)), never among changes.
    #[must_use]
    pub fn is_long(&self, request: &Request) -> bool {
        match request {
            Request::List { .. }
            | Request::Usage { .. }
            | Request::Jobs
            | Request::Nodes { .. }
            | Request::NodeBlocks { .. }
            | Request::Events { .. }
            | Request::Report
            | Request::Within { .. }
            | Request::CountedBlocks { .. }
            | Request::Fsck => true,
            Request::Durable(request) => match &**request {
                DurableRequest::States { names, .. } => names.len() > SHORT_ENTRIES_MAX,
                _ => false,
            },
            Request::LookupMany { paths } => paths.len() > SHORT_ENTRIES_MAX,
            Request::Lookup { path, .. } => self.catalog.entries_at(path) > SHORT_ENTRIES_MAX,
            Request::LookupObject { object, .. } => {
                self.catalog.entries_of(*object) > SHORT_ENTRIES_MAX
            }
            _ => false,
        }
    }

    /// Answers a request that changes nothing; `None` for one that does.
    ///
    /// # Errors
    /// The refusal to send to the caller as the reply: [`Refusal::recovery`] is its next step.
    #[must_use]
    pub fn read(&self, now: Instant, request: &Request) -> Option<Result<Reply, Refusal>> {
        let catalog = &self.catalog;
        match request {
            Request::BlockReport { .. } | Request::ExpectedBlocks { .. }
                if !self.is_read(request) =>
            {
                return None;
            }
            request if request.repeat() != Repetition::Reads => return None,
            _ => {}
        }
        Some(match request {
            Request::Lookup { path, offset, bytes } => catalog.lookup(path, *offset, *bytes, now),
            Request::LookupObject { object, offset, bytes } => {
                catalog.layout(*object, *offset, *bytes, now)
            }
            Request::LookupMany { paths } => catalog.lookup_many(paths).map(Reply::Found),
            Request::List { path, after, limit, with_attributes } => {
                catalog.list(path, after, *limit, *with_attributes)
            }
            Request::Stat { path } => catalog.stat(path, now).map(Reply::Stat),
            Request::Usage { path } => catalog.usage(path).map(Reply::Usage),
            Request::Jobs => Ok(Reply::Jobs(catalog.job_infos(now))),
            Request::BlockReport { node, blocks } => catalog.unwanted(now, *node, blocks),
            Request::Nodes { all } => Ok(Reply::Nodes(self.node_infos(*all, now))),
            Request::Drains { holder } => catalog.check_manager(*holder, now).map(|()| {
                let drains = catalog.drains(now);
                Reply::Drains { drains, nodes: self.node_infos(false, now) }
            }),
            Request::DrainBlocks { holder, node, after, limit } => catalog
                .check_manager(*holder, now)
                .and_then(|()| catalog.candidates(*node, *after, *limit, now)),
            Request::NodeBlocks { node, after, limit } => catalog
                .select_node(node)
                .and_then(|node| catalog.candidates(node, *after, *limit, now)),
            Request::Events { after, limit, .. } => {
                let limit = (*limit).clamp(1, EVENTS_PER_REPLY_MAX);
                Ok(Reply::Events(catalog.events_after(*after, limit as usize)))
            }
            Request::Report => Ok(Reply::Report(catalog.report().clone())),
            Request::Fsck => Ok(Reply::Fsck(catalog.fsck())),
            Request::MintToken(_) => Err(Refusal::BadRequest {
                why: "no client needs a token: this namenode has no secret".to_owned(),
            }),
            Request::ExpectedBlocks { node, nonce, after, limit } => {
                catalog.expected(*node, *nonce, *after, *limit)
            }
            Request::Within { subtree, blocks } => catalog.within(subtree, blocks),
            Request::CountedBlocks { node, subtree, blocks } => {
                let at = self.counted_at(now, *node);
                catalog.counted(at, subtree, blocks).map(Reply::CountedBlocks)
            }
            Request::Revocations { known } => Ok(catalog.revocations().since(*known)),
            Request::JobAccount { job } => catalog.job_account(*job).map(Reply::JobAccount),
            Request::Members => Ok(Reply::Members(self.members.clone())),
            Request::Durable(request) => return self.read_durable(now, request),
            Request::Room => Ok(Reply::Room(catalog.room())),
            other => {
                let why = format!("{other:?} changes something");
                Err(Refusal::BadRequest { why })
            }
        })
    }

    /// Returns as what blocks are counted for a node. Their ends may be taken back soon after a
    /// start, and while the journal takes no changes or hangs: a crash of the machine may lose the
    /// last ones that it took.
    pub(super) fn counted_at(&self, now: Instant, node: NodeId) -> CountedAt {
        let may_hang = self.members_at.is_some_and(|at| now.since(at) > MAY_HANG_AFTER);
        let may_take_ends_back = self.is_refusing || may_hang || self.catalog.keeps_unknown(now);
        CountedAt { node, may_take_ends_back }
    }

    fn read_durable(
        &self,
        now: Instant,
        request: &DurableRequest,
    ) -> Option<Result<Reply, Refusal>> {
        let catalog = &self.catalog;
        match request {
            DurableRequest::Look { path } => Some(catalog.durability(path, now)),
            DurableRequest::Overview => Some(Ok(catalog.durable_overview(now))),
            DurableRequest::States { path, names } => Some(catalog.durable_states(path, names)),
            DurableRequest::Waits { directory, number } => {
                Some(Ok(catalog.durable_waits(*directory, *number)))
            }
            DurableRequest::WaitsToTake { directory } => {
                Some(Ok(catalog.durable_waits_to_take(*directory)))
            }
            DurableRequest::Work { holder } => {
                Some(catalog.check_manager(*holder, now).map(|()| catalog.durable_work()))
            }
            _ => None,
        }
    }

    fn node_infos(&self, all: bool, now: Instant) -> Vec<sanderling_protocol::NodeInfo> {
        let ids = self.catalog.node_ids(all);
        ids.into_iter().filter_map(|node| self.node_info(node, now)).collect()
    }
}
