//! Which leader's orders a datanode takes.

use sanderling_protocol::Refusal;

/// The term of the latest leader of a group of namenodes that has given an order to a process. Term
/// 0 is that of namenodes and managers alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LatestLeader {
    newest: u64,
}

impl LatestLeader {
    /// Admits an order that was decided in a term. An order of a leader that was followed by
    /// another is refused: it may have been decided without the other's changes.
    ///
    /// # Errors
    /// [`Refusal::NotLeader`]: a later leader has given an order; send this one by the present
    /// leader.
    pub const fn admits(&mut self, term: u64) -> Result<(), Refusal> {
        if term != 0 && term < self.newest {
            return Err(Refusal::NotLeader { leader: None });
        }
        if term > self.newest {
            self.newest = term;
        }
        Ok(())
    }

    /// Returns the number of the term of the latest leader that has given an order; 0 if none has.
    #[must_use]
    pub const fn newest(&self) -> u64 {
        self.newest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_of_an_earlier_leader_is_refused_once_a_later_one_has_given_any() {
        let mut terms = LatestLeader::default();
        assert_eq!(terms.admits(3), Ok(()));
        assert_eq!(terms.admits(5), Ok(()));
        assert_eq!(terms.admits(3), Err(Refusal::NotLeader { leader: None }));
        assert_eq!((terms.admits(5), terms.newest()), (Ok(()), 5));
    }

    /// Managers have no term, and a namenode alone is no member of a group.
    #[test]
    fn order_without_a_term_is_admitted_and_is_no_later_one() {
        let mut terms = LatestLeader::default();
        assert_eq!((terms.admits(0), terms.newest()), (Ok(()), 0));
        assert_eq!(terms.admits(7), Ok(()));
        assert_eq!((terms.admits(0), terms.newest()), (Ok(()), 7));
    }
}
