//! What each request needs. The match is exhaustive, so that a new request cannot be forgotten.

use Right::{Read, Write};
use sanderling_protocol::message::{Affinity, Create, DurableRequest, Paths, RegisterJob};
use sanderling_protocol::{JobId, LeaseId, ObjectId, Path, Request};

/// What is done with an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Right {
    Read,
    Write,
}

/// What a caller needs.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Need<'a> {
    /// A token that holds.
    Nothing,
    /// A right on a path.
    Path(Right, &'a Path),
    /// Rights on several.
    Paths([Option<(Right, &'a Path)>; 2]),
    /// The rights to read and write all of them.
    Joined(&'a [Path], &'a Path),
    /// The right to read each of them.
    Lookups(&'a Paths),
    /// A right on an object, by id.
    Object(Right, ObjectId),
    /// The right to write each of them.
    Leases(&'a [(ObjectId, LeaseId)]),
    /// The right to write the job's subtree.
    Job(JobId),
    /// The right to change something, wherever.
    Change,
    /// To look at the cluster.
    Observe,
    /// To change what nodes are to do.
    Administrate,
    /// To change what nodes are to do, or to be a datanode.
    Notice,
    /// To be a datanode.
    Datanode,
    /// To be a manager.
    Manager,
}

/// Returns what a request needs.
pub(super) fn need(request: &Request) -> Need<'_> {
    match request {
        Request::Create(create) => need_of_create(create),
        Request::Durable(request) => need_of_durable(request),
        Request::MakeDirectory { path, .. }
        | Request::Append { path, .. }
        | Request::Delete { path, .. }
        | Request::DeleteObject { path, .. }
        | Request::SetTtl { path, .. }
        | Request::RegisterJob(RegisterJob { path, .. })
        | Request::SetAttributes { path, .. } => Need::Path(Write, path),
        // The parts vanish; their bytes can be read.
        Request::Concat(concat) => Need::Joined(&concat.parts, &concat.to),
        Request::RegisterLimitedJob(limited) => Need::Path(Write, &limited.job.path),
        Request::AddBlocks { object, .. }
        | Request::Publish { object, .. }
        | Request::Seal { object, .. }
        | Request::Abort { object, .. } => Need::Object(Write, *object),
        Request::RenewLeases { leases } => Need::Leases(leases),
        Request::Lookup { path, .. }
        | Request::List { path, .. }
        | Request::Stat { path }
        | Request::Usage { path } => Need::Path(Read, path),
        Request::LookupObject { object, .. } => Need::Object(Read, *object),
        Request::LookupMany { paths } => Need::Lookups(paths),
        Request::Rename { from, to, .. } => Need::Paths([Some((Write, from)), Some((Write, to))]),
        Request::RenewJob { job } | Request::EndJob { job } | Request::JobAccount { job } => {
            Need::Job(*job)
        }
        // Of the jobs, those of others are taken out of the answer. A caller that has reached one
        // namenode needs the others when that one dies.
        Request::Jobs | Request::Members => Need::Nothing,
        // As if it came alone: an answer is repeated to any client that may make the change.
        Request::Once(once) => need(once.change.request()),
        Request::OpenClient { .. } => Need::Change,
        // Only a hint to have a look; checked against the caller's own claims.
        Request::Suspect { .. } | Request::MintToken(_) => Need::Nothing,
        Request::Nodes { .. }
        | Request::NodeBlocks { .. }
        | Request::Events { .. }
        | Request::Room
        | Request::Report => Need::Observe,
        Request::Decommission { .. } | Request::Fsck | Request::RevokeTokens { .. } => {
            Need::Administrate
        }
        Request::Notice { .. }
        | Request::Cancel { .. }
        | Request::Recommend { .. }
        | Request::Revocations { .. } => Need::Notice,
        Request::Register(_)
        | Request::Join(_)
        | Request::Beat(_)
        | Request::Heartbeat(_)
        | Request::BlockReport { .. }
        | Request::Repeat(_)
        | Request::SourceNotice(_)
        | Request::Within { .. }
        | Request::ReportDamage { .. }
        | Request::ExpectedBlocks { .. } => Need::Datanode,
        Request::Manage { .. }
        | Request::Drains { .. }
        | Request::DrainBlocks { .. }
        | Request::Reserve { .. }
        | Request::Commit { .. }
        | Request::Abandon { .. }
        | Request::DropCopies { .. }
        | Request::Forecast { .. }
        | Request::Fenced { .. } => Need::Manager,
    }
}

fn need_of_durable(request: &DurableRequest) -> Need<'_> {
    match request {
        // It takes the whole store, which others then cannot use.
        DurableRequest::Make(_) => Need::Administrate,
        DurableRequest::Look { path } | DurableRequest::States { path, .. } => {
            Need::Path(Read, path)
        }
        DurableRequest::Overview => Need::Observe,
        DurableRequest::ServeStores { .. }
        | DurableRequest::Waits { .. }
        | DurableRequest::WaitsToTake { .. } => Need::Datanode,
        DurableRequest::Work { .. } | DurableRequest::Progress { .. } => Need::Manager,
    }
}

fn need_of_create(create: &Create) -> Need<'_> {
    match &create.affinity {
        Some(Affinity::Object(near)) => {
            Need::Paths([Some((Write, &create.path)), Some((Read, near))])
        }
        Some(Affinity::Host(_)) | None => Need::Path(Write, &create.path),
    }
}
