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
pub(super) enum RequiredRights<'a> {
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
    /// To write or read the job's subtree, or to look at the cluster.
    Account(JobId),
    /// The right to change something, wherever.
    Change,
    /// To look at the cluster.
    Observe,
    /// To change what nodes are to do.
    Administrate,
    /// To change what nodes are to do, or to be a datanode: of any node, because neither a token
    /// nor a connection names the datanode that calls.
    Notice,
    /// To be a datanode.
    Datanode,
    /// To be a manager.
    Manager,
}

/// Returns what a request needs.
pub(super) fn need(request: &Request) -> RequiredRights<'_> {
    match request {
        Request::Create(create) => need_of_create(create),
        Request::Durable(request) => need_of_durable(request),
        Request::MakeDirectory { path, .. }
        | Request::Append { path, .. }
        | Request::Delete { path, .. }
        | Request::DeleteObject { path, .. }
        | Request::SetTtl { path, .. }
        | Request::RegisterJob(RegisterJob { path, .. })
        | Request::SetAttributes { path, .. } => RequiredRights::Path(Write, path),
        // The parts vanish; their bytes can be read.
        Request::Concat(concat) => RequiredRights::Joined(&concat.parts, &concat.to),
        Request::RegisterLimitedJob(limited) => RequiredRights::Path(Write, &limited.job.path),
        Request::AddBlocks { object, .. }
        | Request::Publish { object, .. }
        | Request::Seal { object, .. }
        | Request::Abort { object, .. } => RequiredRights::Object(Write, *object),
        Request::RenewLeases { leases } => RequiredRights::Leases(leases),
        Request::Lookup { path, .. }
        | Request::List { path, .. }
        | Request::Stat { path }
        | Request::Usage { path } => RequiredRights::Path(Read, path),
        Request::LookupObject { object, .. } => RequiredRights::Object(Read, *object),
        Request::LookupMany { paths } => RequiredRights::Lookups(paths),
        Request::Rename { from, to, .. } => need_of_rename(from, to),
        Request::RenewJob { job } | Request::EndJob { job } => RequiredRights::Job(*job),
        // As the list of jobs, which shows their bytes; whoever reads a subtree can count in it.
        Request::JobAccount { job } => RequiredRights::Account(*job),
        // Jobs of others are left out of the answer. A caller needs other members when one dies.
        Request::Jobs | Request::Members => RequiredRights::Nothing,
        // As if it came alone: an answer is repeated to any client that may make the change.
        Request::Once(once) => need(once.change.request()),
        Request::OpenClient { .. } => RequiredRights::Change,
        // Only a hint to have a look; checked against the caller's own claims.
        Request::Suspect { .. } | Request::MintToken(_) => RequiredRights::Nothing,
        Request::Nodes { .. }
        | Request::NodeBlocks { .. }
        | Request::Events { .. }
        | Request::Room
        | Request::Report => RequiredRights::Observe,
        Request::Decommission { .. } | Request::Fsck | Request::RevokeTokens { .. } => {
            RequiredRights::Administrate
        }
        Request::Notice { .. }
        | Request::Cancel { .. }
        | Request::Recommend { .. }
        | Request::Revocations { .. } => RequiredRights::Notice,
        Request::Register(_)
        | Request::Join(_)
        | Request::Beat(_)
        | Request::Heartbeat(_)
        | Request::BlockReport { .. }
        | Request::Repeat(_)
        | Request::SourceNotice(_)
        | Request::Within { .. }
        | Request::CountedBlocks { .. }
        | Request::ReportDamage { .. }
        | Request::ExpectedBlocks { .. } => RequiredRights::Datanode,
        Request::Manage { .. }
        | Request::Drains { .. }
        | Request::DrainBlocks { .. }
        | Request::Reserve { .. }
        | Request::Commit { .. }
        | Request::Abandon { .. }
        | Request::DropCopies { .. }
        | Request::Forecast { .. }
        | Request::Fenced { .. } => RequiredRights::Manager,
    }
}

const fn need_of_rename<'a>(from: &'a Path, to: &'a Path) -> RequiredRights<'a> {
    RequiredRights::Paths([Some((Write, from)), Some((Write, to))])
}

fn need_of_durable(request: &DurableRequest) -> RequiredRights<'_> {
    match request {
        // It takes the whole store, which others then cannot use.
        DurableRequest::Make(_) => RequiredRights::Administrate,
        DurableRequest::Look { path } | DurableRequest::States { path, .. } => {
            RequiredRights::Path(Read, path)
        }
        DurableRequest::Overview => RequiredRights::Observe,
        DurableRequest::ServeStores { .. }
        | DurableRequest::Waits { .. }
        | DurableRequest::WaitsToTake { .. } => RequiredRights::Datanode,
        DurableRequest::Work { .. }
        | DurableRequest::Progress { .. }
        | DurableRequest::Report { .. }
        | DurableRequest::Record { .. } => RequiredRights::Manager,
    }
}

fn need_of_create(create: &Create) -> RequiredRights<'_> {
    match &create.affinity {
        Some(Affinity::Object(near)) => {
            RequiredRights::Paths([Some((Write, &create.path)), Some((Read, near))])
        }
        Some(Affinity::Host(_)) | None => RequiredRights::Path(Write, &create.path),
    }
}
