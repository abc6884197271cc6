//! Where a round follows what a catalog has. Each round has the number of its first command, which
//! is how many were applied when its leader made it.

use thiserror::Error;

/// A reason why a round cannot follow what a catalog has. The member ends: an operator sets its
/// directory aside, and it joins the group again with an empty one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RoundOrderError {
    /// Commands before the round are in neither the log nor the catalog.
    #[error("the group's log continues at {first}, the catalog at {index}")]
    Gap {
        /// Number of its first command.
        first: u64,
        /// Commands in the catalog.
        index: u64,
    },
    /// The round begins before the catalog's end, and that is not from before this start: a leader
    /// has made it that lacked commands, or it is in the log twice.
    #[error("the group's log goes back to command {first}, the catalog is at {index}")]
    Repeated {
        /// Number of its first command.
        first: u64,
        /// Commands in the catalog.
        index: u64,
    },
}

/// Returns how many commands of a round, from its first one on, a catalog of `index` commands has
/// already. It may be more than the round has: then nothing of it is applied. The first `restored`
/// commands of the catalog are from before the start, or from a snapshot: the log may have them
/// once more. What came after them came round by round.
///
/// # Errors
/// [`RoundOrderError::Gap`] if the catalog lacks commands before the first, and
/// [`RoundOrderError::Repeated`] if it has taken the first since the start. The member must not
/// apply the round.
pub const fn applied_commands(
    first: u64,
    index: u64,
    restored: u64,
) -> Result<u64, RoundOrderError> {
    match index.checked_sub(first) {
        None => Err(RoundOrderError::Gap { first, index }),
        Some(1..) if index > restored => Err(RoundOrderError::Repeated { first, index }),
        Some(applied) => Ok(applied),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_follows_the_catalog_or_goes_back_to_what_was_there_at_the_start() {
        let first = 7;
        for (index, restored, applied) in [(7, 7, 0), (7, 3, 0), (8, 8, 1), (9, 200, 2)] {
            assert_eq!(applied_commands(first, index, restored), Ok(applied), "{index}");
        }
        assert_eq!(applied_commands(first, 6, 6), Err(RoundOrderError::Gap { first, index: 6 }));
        for (index, restored) in [(8, 7), (9, 8), (200, 199)] {
            let repeated = Err(RoundOrderError::Repeated { first, index });
            assert_eq!(applied_commands(first, index, restored), repeated, "{index}");
        }
    }
}
