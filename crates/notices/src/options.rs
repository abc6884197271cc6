//! Where notices come from.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

/// A source of notices that the machine is about to be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoticeSource {
    /// Amazon's instance metadata service, version 2.
    Aws,
    /// Google's metadata server.
    Gcp,
    /// Azure's scheduled events.
    Azure,
    /// A file.
    File(PathBuf),
}

/// When a server acknowledges a notice of Azure, which lets Azure take the machine before the
/// notice has ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Acknowledge {
    /// When no block has its home on this node any more.
    #[default]
    Drained,
    /// As soon as the namenode has the notice: the time left is given away.
    AtOnce,
    /// Never: the event starts at its own time.
    Never,
}

/// One source and how it is polled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoticeOptions {
    /// The source.
    pub source: NoticeSource,
    /// Where it is, without a path: `http://host:port`. `None` for the cloud's own address.
    pub url: Option<String>,
    /// Time between two polls. `None` for the source's own.
    pub poll: Option<Duration>,
    /// Longest time of one call.
    pub call_within: Duration,
    /// Time that is left after a notice that names no moment.
    pub deadline: Duration,
    /// When Azure gets the acknowledgement that the machine may go.
    pub acknowledge: Acknowledge,
}

impl NoticeOptions {
    /// Returns the options of a source as its cloud documents it.
    #[must_use]
    pub const fn new(source: NoticeSource) -> Self {
        Self {
            source,
            url: None,
            poll: None,
            // Link-local: it answers within milliseconds or is not there.
            call_within: Duration::from_secs(1),
            // Google's and Azure's shortest.
            deadline: Duration::from_secs(30),
            acknowledge: Acknowledge::Drained,
        }
    }

    /// Returns the time between two polls: what was configured, else what suits the source.
    #[must_use]
    pub fn poll(&self) -> Duration {
        self.poll.unwrap_or(match self.source {
            // What its documentation recommends, out of two minutes.
            NoticeSource::Aws => Duration::from_secs(5),
            // Out of thirty seconds, and the services allow one each second.
            NoticeSource::Gcp | NoticeSource::Azure => Duration::from_secs(1),
            NoticeSource::File(_) => Duration::from_millis(200),
        })
    }

    /// Returns where the source is, without a path: what was configured, else the cloud's own
    /// link-local address. For a file it means nothing.
    #[must_use]
    pub fn url(&self) -> &str {
        self.url.as_deref().unwrap_or(match self.source {
            NoticeSource::Gcp => "http://metadata.google.internal",
            _ => "http://169.254.169.254",
        })
    }
}

impl NoticeSource {
    /// Returns the sources of a command line. One that is given twice is one source.
    pub fn distinct(given: &[Self]) -> impl Iterator<Item = &Self> {
        let is_first = move |(at, source): &(usize, &Self)| !given[..*at].contains(source);
        given.iter().enumerate().filter(is_first).map(|(_, source)| source)
    }

    /// Returns the name by which notices of this source are distinguished. Two files
    /// are two sources.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::File(path) => format!("{self}:{}", path.display()),
            _ => self.to_string(),
        }
    }
}

impl fmt::Display for NoticeSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Aws => "aws",
            Self::Gcp => "gcp",
            Self::Azure => "azure",
            Self::File(_) => "file",
        })
    }
}

/// A text names no source of notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("give aws, gcp, azure or file:PATH")]
pub struct NoticeSourceError;

impl FromStr for NoticeSource {
    type Err = NoticeSourceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text.split_once(':') {
            None if text == "aws" => Self::Aws,
            None if text == "gcp" => Self::Gcp,
            None if text == "azure" => Self::Azure,
            Some(("file", path)) if !path.is_empty() => Self::File(PathBuf::from(path)),
            _ => return Err(NoticeSourceError),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_that_is_given_twice_is_one_and_two_files_are_two() {
        let given = ["file:/a", "gcp", "file:/b", "gcp", "file:/a"];
        let given = given.map(|it| it.parse::<NoticeSource>().unwrap());
        let names: Vec<String> = NoticeSource::distinct(&given).map(NoticeSource::name).collect();
        assert_eq!(names, ["file:/a", "gcp", "file:/b"]);
    }
}
