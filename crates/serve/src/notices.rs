//! Where the notices of a server's machine come from, as the command line names it.

use clap::Args;
use sanderling_command::units::Span;
use sanderling_notices::{Acknowledge, NoticeOptions, NoticeSource};

/// The sources of notices, and how they are polled.
#[derive(Debug, Clone, Args)]
pub(crate) struct NoticeArgs {
    /// The source of notices: aws, gcp, azure, file:PATH; may be repeated [default: SIGTERM and
    /// POST /v1/notice only]
    #[arg(long, value_name = "SOURCE", help_heading = "Notice options")]
    pub(crate) notice_source: Vec<NoticeSource>,
    /// The address of the cloud's metadata service [default: the cloud's own address]
    #[arg(long, value_name = "URL", requires = "notice_source", help_heading = "Notice options")]
    pub(crate) notice_url: Option<String>,
    /// Time between two requests to a source [default: 5s aws, 1s gcp and azure, 200ms file]
    #[arg(
        long,
        value_name = "DURATION",
        requires = "notice_source",
        help_heading = "Notice options"
    )]
    pub(crate) notice_poll: Option<Span>,
    /// Longest time of one request to a source
    #[arg(long, value_name = "DURATION", default_value = "1s", help_heading = "Notice options")]
    pub(crate) notice_call_within: Span,
    /// Time left after a notice that has no deadline of its own
    #[arg(long, value_name = "DURATION", default_value = "30s", help_heading = "Notice options")]
    pub(crate) notice_deadline: Span,
}

impl NoticeArgs {
    /// Returns the sources, and how they are polled.
    pub(crate) fn options(&self, acknowledge: Acknowledge) -> Vec<NoticeOptions> {
        let options = |source: &NoticeSource| NoticeOptions {
            url: self.notice_url.clone(),
            poll: self.notice_poll.map(|span| span.0),
            call_within: self.notice_call_within.0,
            deadline: self.notice_deadline.0,
            acknowledge,
            ..NoticeOptions::new(source.clone())
        };
        NoticeSource::distinct(&self.notice_source).map(options).collect()
    }
}
