//! Reading a whole object as a stream.

use sanderling_protocol::refusal::ByteRange;

/// Plans the reads of a stream: one for the caller, and the next one ahead, so that its bytes are
/// in flight while the caller works.
#[derive(Debug)]
pub struct ReadAhead {
    offset: u64,
    end: u64,
    step: u64,
}

impl ReadAhead {
    /// Returns the plan for an object of `end` bytes, read `step` bytes at a time, at least one.
    #[must_use]
    pub fn new(end: u64, step: u64) -> Self {
        Self { offset: 0, end, step: step.max(1) }
    }

    /// Returns the range for the caller and the one behind it. `None`: the object has ended.
    #[must_use]
    pub fn ranges(&self) -> [Option<ByteRange>; 2] {
        [self.offset, self.next()].map(|offset| {
            let bytes = self.step.min(self.end - offset);
            (bytes > 0).then_some(ByteRange { offset, bytes })
        })
    }

    fn next(&self) -> u64 {
        self.offset + self.step.min(self.end - self.offset)
    }

    /// Continues with the range behind the caller's, once the caller has its bytes.
    pub fn advance(&mut self) {
        self.offset = self.next();
    }

    /// Goes on at another offset, in bytes of the object: what was read ahead is void. One behind
    /// the end becomes the end.
    pub fn seek(&mut self, offset: u64) {
        self.offset = offset.min(self.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(plan: &ReadAhead) -> [Option<(u64, u64)>; 2] {
        plan.ranges().map(|range| range.map(|it| (it.offset, it.bytes)))
    }

    #[test]
    fn ranges_follow_each_other_to_the_end() {
        let mut plan = ReadAhead::new(250, 100);
        assert_eq!(ranges(&plan), [Some((0, 100)), Some((100, 100))]);
        plan.advance();
        assert_eq!(ranges(&plan), [Some((100, 100)), Some((200, 50))]);
        plan.advance();
        assert_eq!(ranges(&plan), [Some((200, 50)), None]);
        plan.advance();
        plan.advance();
        assert_eq!(ranges(&plan), [None, None]);
        plan.seek(249);
        assert_eq!(ranges(&plan), [Some((249, 1)), None]);
        plan.seek(u64::MAX);
        assert_eq!(ranges(&plan), [None, None]);
    }

    #[test]
    fn steps_of_any_size_end() {
        assert_eq!(ranges(&ReadAhead::new(2, 0)), [Some((0, 1)), Some((1, 1))]);
        assert_eq!(ranges(&ReadAhead::new(u64::MAX, u64::MAX)), [Some((0, u64::MAX)), None]);
        assert_eq!(ranges(&ReadAhead::new(0, 10)), [None, None]);
    }
}
