//! What requests are called.

use super::Request;

impl Request {
    /// Returns the name of the request's kind, as metrics and messages have it.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::MakeDirectory { .. } => "make_directory",
            Self::Append { .. } => "append",
            Self::AddBlocks { .. } => "add_blocks",
            Self::Publish { .. } => "publish",
            Self::Seal { .. } => "seal",
            Self::Abort { .. } => "abort",
            Self::RenewLeases { .. } => "renew_leases",
            Self::Lookup { .. } => "lookup",
            Self::LookupMany { .. } => "lookup_many",
            Self::LookupObject { .. } => "lookup_object",
            Self::List { .. } => "list",
            Self::Stat { .. } => "stat",
            Self::Rename { .. } => "rename",
            Self::Delete { .. } => "delete",
            Self::SetTtl { .. } => "set_ttl",
            Self::SetAttributes { .. } => "set_attributes",
            Self::Concat(_) => "concat",
            Self::Usage { .. } => "usage",
            Self::RegisterJob(_) => "register_job",
            Self::RenewJob { .. } => "renew_job",
            Self::EndJob { .. } => "end_job",
            Self::Jobs => "jobs",
            Self::Register(_) => "register",
            Self::Heartbeat(_) => "heartbeat",
            Self::BlockReport { .. } => "block_report",
            Self::Suspect { .. } => "suspect",
            Self::Nodes { .. } => "nodes",
            Self::Notice { .. } => "notice",
            Self::Decommission { .. } => "decommission",
            Self::Cancel { .. } => "cancel",
            Self::Fenced { .. } => "fenced",
            Self::Manage { .. } => "manage",
            Self::Drains { .. } => "drains",
            Self::DrainBlocks { .. } => "drain_blocks",
            Self::NodeBlocks { .. } => "node_blocks",
            Self::Reserve { .. } => "reserve",
            Self::Commit { .. } => "commit",
            Self::Abandon { .. } => "abandon",
            Self::DropCopies { .. } => "drop_copies",
            Self::Forecast { .. } => "forecast",
            Self::Recommend { .. } => "recommend",
            Self::Events { .. } => "events",
            Self::Report => "report",
            Self::Fsck => "fsck",
            Self::MintToken(_) => "mint_token",
            Self::Within { .. } => "within",
            Self::CountedBlocks { .. } => "counted_blocks",
            Self::Join(_) => "join",
            Self::Beat(_) => "beat",
            Self::Once(once) => once.change.request().kind(),
            Self::OpenClient { .. } => "open_client",
            Self::DeleteObject { .. } => "delete_object",
            Self::Room => "room",
            Self::Repeat(_) => "repeat",
            Self::SourceNotice(_) => "source_notice",
            Self::ReportDamage { .. } => "report_damage",
            Self::ExpectedBlocks { .. } => "expected_blocks",
            Self::RevokeTokens { .. } => "revoke_tokens",
            Self::Revocations { .. } => "revocations",
            Self::RegisterLimitedJob(_) => "register_limited_job",
            Self::JobAccount { .. } => "job_account",
            Self::Members => "members",
            Self::Durable(request) => request.name(),
        }
    }

    /// Returns how many requests it is worth: one for each path that it looks up.
    #[must_use]
    pub const fn count(&self) -> u64 {
        match self {
            Self::LookupMany { paths } => paths.len() as u64,
            _ => 1,
        }
    }
}
