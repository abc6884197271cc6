//! Bytes by where they come from, so that a mebibyte takes no memory.

/// Bytes of one origin, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ContentRun {
    origin: u64,
    from: u64,
    length: u64,
}

/// The bytes of an object, of a block or of a part. Two are the same if all of their bytes have the
/// same origins and the same offsets in these.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Content(Vec<ContentRun>);

impl Content {
    /// Returns the first bytes of an origin.
    pub(super) fn new(origin: u64, length: u64) -> Self {
        let mut content = Self::default();
        content.add(ContentRun { origin, from: 0, length });
        content
    }

    /// Returns the bytes of a value in the catalog, which is its own origin.
    pub(super) fn of_value(value: &[u8]) -> Self {
        let origin = value.iter().rev().fold(0_u64, |sum, byte| (sum << 8) | u64::from(*byte));
        Self::new(origin, value.len() as u64)
    }

    /// Returns how many bytes these are.
    pub(super) fn length(&self) -> u64 {
        self.0.iter().map(|run| run.length).sum()
    }

    /// Adds other bytes at the end.
    pub(super) fn push(&mut self, other: &Self) {
        for run in &other.0 {
            self.add(*run);
        }
    }

    /// Returns so many of the bytes from an offset on.
    pub(super) fn slice(&self, from: u64, length: u64) -> Self {
        let (until, mut at, mut slice) = (from + length, 0, Self::default());
        for run in &self.0 {
            let (begin, end) = (at.max(from), (at + run.length).min(until));
            if begin < end {
                let from = run.from + (begin - at);
                slice.add(ContentRun { origin: run.origin, from, length: end - begin });
            }
            at += run.length;
        }
        slice
    }

    fn add(&mut self, run: ContentRun) {
        if run.length == 0 {
            return;
        }
        match self.0.last_mut() {
            Some(last) if (last.origin, last.from + last.length) == (run.origin, run.from) => {
                last.length += run.length;
            }
            _ => self.0.push(run),
        }
    }
}

#[test]
fn slices_that_follow_each_other_are_the_whole_and_others_are_not() {
    let mut whole = Content::new(7, 30);
    whole.push(&Content::new(8, 5));
    for cut in [1, 29, 30, 31, 34] {
        let (first, second) = (whole.slice(0, cut), whole.slice(cut, 35 - cut));
        let mut joined = first.clone();
        joined.push(&second);
        assert_eq!((joined, first.length()), (whole.clone(), cut));
        let mut turned = second;
        turned.push(&first);
        assert_ne!(turned, whole);
    }
    assert_eq!(Content::of_value(&[1, 2]), Content::new(513, 2));
}
