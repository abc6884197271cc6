//! What follows from the failures of one attempt at a read.

use sanderling_protocol::NodeId;

use crate::client::AttemptFailure;

/// One attempt at the pieces of a read, which may be of many objects, on many datanodes. `E` is the
/// error of a piece.
///
/// An attempt goes on when a piece has failed, so that the next one requests no more than it must.
/// All of its failures count: a datanode that does not answer is reported although another one
/// refused a piece before.
#[derive(Debug)]
pub struct ReadAttempt<E> {
    first: Option<E>,
    suspects: Vec<NodeId>,
}

/// What is left of an attempt that failed. The locations of its objects are forgotten for every
/// reader before the next attempt, so that no other reader has to try what failed.
#[derive(Debug)]
pub struct FailedRead<E> {
    /// The first failure: the next attempt follows it, or the call ends with it.
    pub error: E,
    /// The datanodes to report as suspect, once each, in the order of their failures.
    pub suspects: Vec<NodeId>,
}

impl<E> Default for ReadAttempt<E> {
    fn default() -> Self {
        Self { first: None, suspects: Vec::new() }
    }
}

impl<E> ReadAttempt<E> {
    /// Takes the failure of pieces of a datanode. `failure` describes the error.
    pub fn failed(&mut self, node: NodeId, error: E, failure: impl Fn(&E) -> AttemptFailure<'_>) {
        if failure(&error).makes_suspect() && !self.suspects.contains(&node) {
            self.suspects.push(node);
        }
        self.first.get_or_insert(error);
    }

    /// Ends the attempt. `shortfall` is what is wrong with the layout, if nothing failed and bytes
    /// are missing. Returns `None` if the read is complete.
    pub fn end(self, shortfall: Option<E>) -> Option<FailedRead<E>> {
        let Self { first, suspects } = self;
        first.or(shortfall).map(|error| FailedRead { error, suspects })
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::{BlockId, Refusal};

    use super::*;

    /// No refusal is no answer.
    type PieceError = Option<Refusal>;

    fn failure(error: &PieceError) -> AttemptFailure<'_> {
        error.as_ref().map_or(AttemptFailure::NO_ANSWER, AttemptFailure::refused)
    }

    fn failed(failures: &[(u32, PieceError)]) -> ReadAttempt<PieceError> {
        let mut attempt = ReadAttempt::default();
        for (node, error) in failures {
            attempt.failed(NodeId(*node), error.clone(), failure);
        }
        attempt
    }

    #[test]
    fn every_silent_node_is_suspect_whatever_failed_before() {
        let moved = Some(Refusal::Moved { block: BlockId(7), length: 300 });
        let failures = [(1, moved.clone()), (3, None), (2, None), (3, None), (1, moved.clone())];
        let end = failed(&failures).end(None).expect("pieces failed");
        assert_eq!((end.error, end.suspects), (moved, vec![NodeId(3), NodeId(2)]));
    }

    #[test]
    fn layout_is_wrong_only_if_no_piece_failed() {
        let short = Some(Refusal::NoHello);
        assert!(failed(&[]).end(None).is_none());
        let end = failed(&[]).end(Some(short.clone())).expect("bytes are missing");
        assert_eq!((end.error, end.suspects), (short.clone(), vec![]));
        let end = failed(&[(1, None)]).end(Some(short)).expect("a piece failed");
        assert_eq!((end.error, end.suspects), (None, vec![NodeId(1)]));
    }
}
