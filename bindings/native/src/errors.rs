//! Errors, as both languages make exceptions of them.

use sanderling_client::ClientError;
use sanderling_protocol::refusal::{ByteRange, Recovery};
use sanderling_protocol::{Millis, Refusal};

/// What an exception has.
pub struct ErrorFields {
    /// Its name, the same in every language (`docs/ERRORS.md`).
    pub name: &'static str,
    /// A sentence for people.
    pub text: String,
    /// What the caller does next.
    pub recovery: Recovery,
    /// The path that the call was about, if it is known.
    pub path: Option<String>,
    /// The object whose bytes are lost; 0 for other errors.
    pub object: u64,
    /// The lost ranges of it.
    pub ranges: Vec<ByteRange>,
}

impl ErrorFields {
    /// Returns the fields of an error that has no object.
    #[must_use]
    pub fn new(name: &'static str, text: impl Into<String>, recovery: Recovery) -> Self {
        Self { name, text: text.into(), recovery, path: None, object: 0, ranges: Vec::new() }
    }

    /// Returns the recovery as its number in Java's enum, its name in Python's, and the time after
    /// which the same call is worth another attempt.
    #[must_use]
    pub const fn recovery(&self) -> (u8, &'static str, Option<Millis>) {
        match self.recovery {
            Recovery::Refresh => (0, "refresh", None),
            Recovery::RetryAfter(after) => (1, "retry_after", Some(after)),
            Recovery::Recompute => (2, "recompute", None),
            Recovery::Report => (3, "report", None),
            Recovery::Fix => (4, "fix", None),
        }
    }
}

impl From<&ClientError> for ErrorFields {
    fn from(error: &ClientError) -> Self {
        let (object, ranges) = match error {
            ClientError::DataUnavailable { object, ranges, .. }
            | ClientError::Refused(Refusal::DataUnavailable { object, ranges, .. }) => {
                (object.0, ranges.clone())
            }
            _ => (0, Vec::new()),
        };
        let path = error.path().map(str::to_owned);
        Self {
            path,
            object,
            ranges,
            ..Self::new(error.name(), error.to_string(), error.recovery())
        }
    }
}
