//! Symbolic bytes: which session wrote them, and where in the object they belong.
//!
//! Every byte is a function of (writer's session, offset in the object), so a run of bytes of any
//! length is three numbers, and a byte in the wrong place shows where it came from.

use std::rc::Rc;

/// A run of bytes of one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SessionRange {
    /// The writer's session.
    pub(crate) session: u32,
    /// Offset in the object.
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
}

/// The bytes of a block or of a part of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Content(Rc<Vec<SessionRange>>);

impl Content {
    pub(crate) fn of(run: SessionRange) -> Self {
        Self(Rc::new(vec![run]))
    }

    pub(crate) fn runs(&self) -> &[SessionRange] {
        &self.0
    }

    pub(crate) fn bytes(&self) -> u32 {
        self.0.iter().map(|run| run.bytes).sum()
    }

    /// Returns these bytes with others behind them.
    pub(crate) fn with(&self, more: &Self) -> Self {
        let mut runs = self.0.to_vec();
        for run in more.0.iter() {
            match runs.last_mut() {
                Some(last) if last.joins(run) => last.bytes += run.bytes,
                _ => runs.push(*run),
            }
        }
        Self(Rc::new(runs))
    }

    /// Returns whether these bytes and others are the same as far as both go.
    pub(crate) fn agrees(&self, other: &Self) -> bool {
        let bytes = self.bytes().min(other.bytes());
        self.part(0, bytes) == other.part(0, bytes)
    }

    /// Returns bytes that no session has written, as many as these.
    pub(crate) fn rotten(&self) -> Self {
        Self::of(SessionRange { session: u32::MAX, offset: 0, bytes: self.bytes() })
    }

    /// Returns a part; shorter where the bytes end.
    pub(crate) fn part(&self, offset: u32, bytes: u32) -> Self {
        let (from, to) = (u64::from(offset), u64::from(offset) + u64::from(bytes));
        let mut runs = Vec::new();
        let mut at = 0;
        for run in self.0.iter() {
            let end = at + u64::from(run.bytes);
            let (start, stop) = (at.max(from), end.min(to));
            if start < stop {
                let offset = run.offset + (start - at);
                let bytes = u32::try_from(stop - start).expect("a part of a run");
                runs.push(SessionRange { session: run.session, offset, bytes });
            }
            at = end;
        }
        Self(Rc::new(runs))
    }
}

impl SessionRange {
    const fn joins(&self, next: &Self) -> bool {
        self.session == next.session && self.offset + self.bytes as u64 == next.offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_joined_runs_are_the_same_bytes() {
        let first = Content::of(SessionRange { session: 1, offset: 10, bytes: 5 });
        let second = Content::of(SessionRange { session: 1, offset: 15, bytes: 5 });
        let other = Content::of(SessionRange { session: 2, offset: 20, bytes: 5 });
        let whole = first.with(&second).with(&other);
        assert_eq!(whole.runs().len(), 2);
        assert_eq!(whole.part(0, 5), first);
        assert_eq!(whole.part(5, 10), second.with(&other));
        assert_eq!(whole.part(12, 100).bytes(), 3);
        assert!(whole.agrees(&first) && first.agrees(&whole) && whole.agrees(&Content::default()));
        assert!(!whole.agrees(&second) && !second.agrees(&first));
    }
}
