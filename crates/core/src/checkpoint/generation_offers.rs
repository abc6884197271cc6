//! Which generation of a task is restored, and which one after it was refused.
//!
//! The newest good one has the most work. What is older is taken only in place of generations that
//! are of no use: never of one that another release may be able to read, and never of one that was
//! removed meanwhile, because a newer one is there then. The same choice bounds what may be removed
//! by hand: nothing, if nothing could be restored.
//!
//! The shell reads and restores. It does one [`OfferWork`] at a time, and reports how that has
//! ended.

use std::collections::{BTreeSet, VecDeque};

use super::bag::KeyEvidence;

/// How often a reader looks which generations there are, if a runner replaces each while it is
/// read. Chosen, not measured.
const LOOKS_MAX: u32 = 5;

/// What is seen of a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GenerationVerdict {
    /// Its manifest is good, and its packs are stored.
    Good,
    /// It is of no use: gone, cut, or without some of its bytes.
    Bad,
    /// The same, and its manifest shows that the key is the one that it was made with.
    Damaged,
    /// Its manifest names another key.
    OtherKey,
    /// It was written by a release whose format this one does not read. It may be newer work than
    /// all that can be read.
    OtherRelease,
}

impl GenerationVerdict {
    /// Returns whether it is of no use, so that the one before may be taken in its place.
    #[must_use]
    pub const fn is_passed_over(self) -> bool {
        matches!(self, Self::Bad | Self::Damaged | Self::OtherKey)
    }

    /// Returns what the verdict shows about the reader's key: whether the generation was made with
    /// it.
    #[must_use]
    pub const fn key_evidence(self) -> KeyEvidence {
        match self {
            Self::Good | Self::Damaged => KeyEvidence::Fits,
            Self::OtherKey => KeyEvidence::Differs,
            Self::Bad | Self::OtherRelease => KeyEvidence::Unknown,
        }
    }
}

/// What is done next to restore a task. Only one work is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfferWork {
    /// Restore the generation of this number. If it is restored, the offers are over.
    Restore(u64),
    /// List the numbers of the generations that are there now.
    List,
    /// Look at all generations again.
    Look,
    /// End so.
    End(OfferEnd),
}

/// How the offers end if nothing is restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfferEnd {
    /// With the failure of this one: what is older must not be taken for it.
    Failed(u64),
    /// No generation can be restored. This one was refused first.
    NoneGood(u64),
    /// There is none, and one has to be restored.
    Absent,
    /// The task has none, and begins without.
    Anew,
    /// A runner has removed one in each look while it was read: try again.
    Replaced,
}

/// How the work under way has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OfferInput {
    /// [`OfferWork::Restore`]: the generation is refused.
    Refused(GenerationVerdict),
    /// [`OfferWork::List`]: these are there.
    Listed(BTreeSet<u64>),
    /// [`OfferWork::Look`]: these are there, the newest first.
    Looked(Vec<(u64, GenerationVerdict)>),
}

/// What restores a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OfferTaker {
    /// A runner, which has the lock: no other one removes generations meanwhile.
    Runner { must_restore: bool },
    /// A reader, beside which a runner may be at work.
    Reader { looks_left: u32 },
}

/// The decisions about one restore of a task.
#[derive(Debug, Clone)]
pub struct GenerationOffers {
    taker: OfferTaker,
    /// What is not offered yet of the last look, the newest first.
    offered: VecDeque<(u64, GenerationVerdict)>,
    /// The numbers of all that the last look has found.
    seen: BTreeSet<u64>,
    /// The one that a reader was refused, until it has seen whether that is there still.
    doubted: Option<u64>,
    /// The first one of the last look that was refused.
    first_refused: Option<u64>,
    /// All that were refused in any look.
    noted: BTreeSet<u64>,
    /// Those of them that were not taken by [`Self::poll_refused`].
    refused: VecDeque<u64>,
    work: OfferWork,
}

impl GenerationOffers {
    /// Begins for a runner that has the lock, with what it has found, the newest first. Without any
    /// generation the task begins anew, unless one has to be restored.
    #[must_use]
    pub fn of_runner(looked: Vec<(u64, GenerationVerdict)>, must_restore: bool) -> Self {
        Self::new(OfferTaker::Runner { must_restore }, looked)
    }

    /// Begins for a reader without the lock, with what it has found, the newest first.
    #[must_use]
    pub fn of_reader(looked: Vec<(u64, GenerationVerdict)>) -> Self {
        Self::new(OfferTaker::Reader { looks_left: LOOKS_MAX - 1 }, looked)
    }

    fn new(taker: OfferTaker, looked: Vec<(u64, GenerationVerdict)>) -> Self {
        let mut offers = Self {
            taker,
            offered: VecDeque::new(),
            seen: BTreeSet::new(),
            doubted: None,
            first_refused: None,
            noted: BTreeSet::new(),
            refused: VecDeque::new(),
            work: OfferWork::List,
        };
        offers.take_look(looked);
        offers
    }

    /// Returns what is done now.
    #[must_use]
    pub const fn work(&self) -> OfferWork {
        self.work
    }

    /// Removes and returns the next generation whose refusal is printed, once for each; `None` if
    /// there is no more. Call it until then before each work.
    pub fn poll_refused(&mut self) -> Option<u64> {
        self.refused.pop_front()
    }

    /// Takes how the work has ended. What is no end of it changes nothing.
    pub fn handle(&mut self, input: OfferInput) {
        match (self.work, input) {
            (OfferWork::Restore(number), OfferInput::Refused(verdict)) => {
                self.take_refusal(number, verdict);
            }
            (OfferWork::List, OfferInput::Listed(there)) => self.take_list(&there),
            (OfferWork::Look, OfferInput::Looked(looked)) => self.take_look(looked),
            _ => {}
        }
    }

    fn take_refusal(&mut self, number: u64, verdict: GenerationVerdict) {
        if self.passes_over(number, verdict) {
            self.offer_next();
        }
    }

    fn take_look(&mut self, looked: Vec<(u64, GenerationVerdict)>) {
        self.seen = looked.iter().map(|(number, _)| *number).collect();
        self.offered = looked.into();
        self.first_refused = None;
        self.offer_next();
    }

    /// Offers the newest one that is left of the last look.
    fn offer_next(&mut self) {
        loop {
            match self.offered.pop_front() {
                Some((number, GenerationVerdict::Good)) => {
                    self.work = OfferWork::Restore(number);
                    return;
                }
                Some((number, verdict)) if self.passes_over(number, verdict) => {}
                Some(_) => return,
                None => {
                    self.work = self.none_left();
                    return;
                }
            }
        }
    }

    /// Takes that a generation is refused. Returns whether the next one is offered now; if not, the
    /// work is another one.
    fn passes_over(&mut self, number: u64, verdict: GenerationVerdict) -> bool {
        if !verdict.is_passed_over() {
            self.work = OfferWork::End(OfferEnd::Failed(number));
            return false;
        }
        match self.taker {
            OfferTaker::Runner { .. } => {
                self.refuse(number);
                true
            }
            OfferTaker::Reader { .. } => {
                self.doubted = Some(number);
                self.work = OfferWork::List;
                false
            }
        }
    }

    fn refuse(&mut self, number: u64) {
        self.first_refused.get_or_insert(number);
        if self.noted.insert(number) {
            self.refused.push_back(number);
        }
    }

    /// Returns what is done when nothing is left of the last look. A reader lists once more: there
    /// may be a new one.
    fn none_left(&self) -> OfferWork {
        match (self.taker, self.first_refused) {
            (OfferTaker::Reader { .. }, _) => OfferWork::List,
            (_, Some(first)) => OfferWork::End(OfferEnd::NoneGood(first)),
            (OfferTaker::Runner { must_restore: true }, None) => OfferWork::End(OfferEnd::Absent),
            (OfferTaker::Runner { must_restore: false }, None) => OfferWork::End(OfferEnd::Anew),
        }
    }

    /// Takes which generations are there. If the one that was refused is not, a runner has removed
    /// it after it had stored a newer one: what is older must not be taken for the newest.
    fn take_list(&mut self, there: &BTreeSet<u64>) {
        match self.doubted.take() {
            Some(number) if there.contains(&number) => {
                self.refuse(number);
                self.offer_next();
            }
            None if *there == self.seen => {
                let end = self.first_refused.map_or(OfferEnd::Absent, OfferEnd::NoneGood);
                self.work = OfferWork::End(end);
            }
            _ => self.work = self.look_again(),
        }
    }

    fn look_again(&mut self) -> OfferWork {
        match &mut self.taker {
            OfferTaker::Reader { looks_left } if *looks_left > 0 => {
                *looks_left -= 1;
                OfferWork::Look
            }
            _ => OfferWork::End(OfferEnd::Replaced),
        }
    }
}

#[cfg(test)]
mod tests;
