//! Generations that a runner began and gave up: their manifests may be written yet.

/// Generations that were given up and whose manifests are removed again and again, at most: one
/// that a store writes late is there after the first time. Chosen, not measured.
const GIVEN_UP_MAX: usize = 8;

/// The numbers of generations that a runner began and that are not stored, in rising order.
///
/// No later generation has such a number: of a dump that failed or was given up, the manifest may
/// be on its way to the backend still.
#[derive(Debug, Clone, Default)]
pub struct GivenUpGenerations(Vec<u64>);

impl GivenUpGenerations {
    /// Begins with the numbers that earlier runs gave up, in rising order; none for a new task.
    #[must_use]
    pub const fn new(numbers: Vec<u64>) -> Self {
        Self(numbers)
    }

    /// Returns the number that the next generation follows, among those of the generations that
    /// were found and of those that were given up; 0 before the first one.
    #[must_use]
    pub fn highest(&self, found: impl Iterator<Item = u64>) -> u64 {
        found.chain(self.0.last().copied()).max().unwrap_or(0)
    }

    /// Takes note of a generation that is begun: it counts as given up until it is stored.
    pub fn begin(&mut self, number: u64) {
        assert!(self.0.last().is_none_or(|last| *last < number), "numbers rise");
        self.0.drain(..self.0.len().saturating_sub(GIVEN_UP_MAX));
        self.0.push(number);
    }

    /// Takes note that a generation is stored: it is not removed as one that was given up.
    pub fn stored(&mut self, number: u64) {
        self.0.retain(|it| *it != number);
    }

    /// Takes note that the generation that was begun last is another runner's.
    pub fn overtaken(&mut self) {
        self.0.pop();
    }

    /// Forgets all of them. The baseline does once a generation is stored, whose number is above
    /// theirs.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns those whose manifests are removed, with what is old.
    #[must_use]
    pub fn numbers(&self) -> &[u64] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_a_generation_that_was_given_up_is_not_taken_again() {
        let mut given_up = GivenUpGenerations::default();
        assert_eq!(given_up.highest(std::iter::empty()), 0);
        given_up.begin(4);
        assert_eq!(given_up.highest([3, 1].into_iter()), 4);
        given_up.begin(5);
        given_up.stored(5);
        assert_eq!(given_up.numbers(), [4], "it may be written yet");
        assert_eq!(given_up.highest([5, 3].into_iter()), 5);
    }

    #[test]
    fn generation_of_another_runner_is_not_removed() {
        let mut given_up = GivenUpGenerations::new(vec![2]);
        given_up.begin(3);
        given_up.overtaken();
        assert_eq!(given_up.numbers(), [2]);
        given_up.clear();
        assert_eq!(given_up.highest([3].into_iter()), 3);
    }

    #[test]
    fn only_the_last_ones_are_removed_again() {
        let mut given_up = GivenUpGenerations::default();
        (1..=20).for_each(|number| given_up.begin(number));
        given_up.stored(20);
        assert_eq!(given_up.numbers(), [12, 13, 14, 15, 16, 17, 18, 19]);
    }
}
