//! What keeps the writer from writing a round.

use sanderling_core::namenode::Unwritten;
use thiserror::Error;

use crate::group::round::RoundError;
use crate::journal::AppendError;

/// Why a round was not written. Its callers read the text in their refusals.
#[derive(Debug, Error)]
pub(super) enum UnwrittenCause {
    /// The journal did not take it.
    #[error("{0}")]
    Journal(#[source] AppendError),
    /// It has more bytes than a round of the group may have.
    #[error("a round of {bytes} bytes is too long for the group")]
    RoundTooLong { bytes: usize },
    /// This member led its group, and its successor may have the round.
    #[error("its namenode led the group when it came, and another leader may find it in its log")]
    FormerLeader,
    /// The catalog of this member cannot follow the group any more.
    #[error("{0}")]
    Unapplied(#[source] RoundError),
}

impl From<AppendError> for Unwritten<UnwrittenCause> {
    fn from(error: AppendError) -> Self {
        let unwritten = match error {
            AppendError::Behind { .. } => Self::Behind,
            AppendError::Refused(_) => Self::Refused,
            AppendError::Failed(_) => Self::Unknown,
        };
        unwritten(UnwrittenCause::Journal(error))
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use sanderling_protocol::Refusal;

    use super::*;
    use crate::journal::{AppendRefusal, JournalFailure};

    #[test]
    fn journal_that_is_full_is_the_source_and_the_text_of_the_refusal() {
        let full = AppendError::Refused(AppendRefusal::Full { bytes_max: 7 });
        let unwritten = Unwritten::from(full);
        let Unwritten::Refused(cause) = &unwritten else { panic!("{unwritten:?}") };
        assert!(cause.source().is_some_and(|source| source.is::<AppendError>()));
        let why = "the journal has reached its limit of 7 B".to_owned();
        assert_eq!(unwritten.refusal(), Refusal::JournalFull { why });
    }

    #[test]
    fn round_in_a_failed_journal_may_count() {
        let unwritten = Unwritten::from(AppendError::Failed(JournalFailure::Panicked));
        assert!(matches!(unwritten.refusal(), Refusal::Undecided { .. }));
    }
}
