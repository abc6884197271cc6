//! The offers one by one, and those to readers beside a runner that stores and removes.

use std::collections::BTreeMap;

use super::GenerationVerdict::{Bad, Damaged, Good, OtherKey, OtherRelease};
use super::*;
use crate::placement::Draw;

fn end(offers: &GenerationOffers) -> OfferEnd {
    match offers.work() {
        OfferWork::End(end) => end,
        work => panic!("it goes on: {work:?}"),
    }
}

fn refused(offers: &mut GenerationOffers) -> Vec<u64> {
    std::iter::from_fn(|| offers.poll_refused()).collect()
}

/// Hands an input over; returns what is done then.
fn then(offers: &mut GenerationOffers, input: OfferInput) -> OfferWork {
    offers.handle(input);
    offers.work()
}

fn listed(numbers: &[u64]) -> OfferInput {
    OfferInput::Listed(numbers.iter().copied().collect())
}

#[test]
fn runner_takes_the_newest_good_generation_and_prints_those_that_it_passes_over() {
    let looked = vec![(5, Damaged), (4, Good), (3, Bad), (2, Good), (1, Good)];
    let mut offers = GenerationOffers::of_runner(looked, false);
    assert_eq!(offers.work(), OfferWork::Restore(4));
    assert_eq!(refused(&mut offers), [5]);
    assert_eq!(then(&mut offers, OfferInput::Refused(Damaged)), OfferWork::Restore(2));
    assert_eq!(refused(&mut offers), [4, 3]);
}

#[test]
fn nothing_older_is_taken_for_a_generation_of_another_release() {
    let looked = vec![(4, Bad), (3, OtherRelease), (2, Good)];
    let mut offers = GenerationOffers::of_runner(looked.clone(), false);
    assert_eq!((end(&offers), refused(&mut offers)), (OfferEnd::Failed(3), vec![4]));
    let mut reader = GenerationOffers::of_reader(looked);
    assert_eq!(reader.work(), OfferWork::List);
    reader.handle(listed(&[4, 3, 2]));
    assert_eq!(end(&reader), OfferEnd::Failed(3));
    // One whose content shows it counts as one whose manifest does.
    let mut offers = GenerationOffers::of_runner(vec![(2, Good), (1, Good)], false);
    offers.handle(OfferInput::Refused(OtherRelease));
    assert_eq!(end(&offers), OfferEnd::Failed(2));
    // Behind a good one it counts for nothing.
    let offers = GenerationOffers::of_runner(vec![(3, Good), (2, OtherRelease)], false);
    assert_eq!(offers.work(), OfferWork::Restore(3));
}

#[test]
fn task_begins_anew_only_without_any_generation() {
    let begun = |looked: &[(u64, GenerationVerdict)], must_restore| {
        end(&GenerationOffers::of_runner(looked.to_vec(), must_restore))
    };
    assert_eq!(begun(&[], false), OfferEnd::Anew);
    assert_eq!(begun(&[], true), OfferEnd::Absent);
    for must_restore in [true, false] {
        let none_good = begun(&[(3, OtherKey), (2, Bad)], must_restore);
        assert_eq!(none_good, OfferEnd::NoneGood(3));
    }
}

#[test]
fn reader_looks_again_when_a_runner_has_removed_what_it_read() {
    let mut offers = GenerationOffers::of_reader(vec![(2, Good), (1, Good)]);
    assert_eq!(then(&mut offers, OfferInput::Refused(Bad)), OfferWork::List);
    // The manifest of 1 cannot be deleted. 3 is newer than both.
    assert_eq!(then(&mut offers, listed(&[3, 1])), OfferWork::Look);
    let looked = OfferInput::Looked(vec![(3, Good), (1, Good)]);
    assert_eq!(then(&mut offers, looked), OfferWork::Restore(3));
    assert!(refused(&mut offers).is_empty(), "what is removed is not refused");
    assert_eq!(then(&mut offers, OfferInput::Refused(Damaged)), OfferWork::List);
    assert_eq!(then(&mut offers, listed(&[3, 1])), OfferWork::Restore(1));
    assert_eq!(refused(&mut offers), [3]);
}

#[test]
fn reader_ends_with_what_was_refused_if_no_generation_has_come() {
    let mut offers = GenerationOffers::of_reader(vec![(2, Bad), (1, OtherKey)]);
    assert_eq!(then(&mut offers, listed(&[2, 1])), OfferWork::List);
    assert_eq!(then(&mut offers, listed(&[2, 1])), OfferWork::List);
    let mut before = offers.clone();
    offers.handle(listed(&[2, 1]));
    assert_eq!(end(&offers), OfferEnd::NoneGood(2));
    assert_eq!(then(&mut before, listed(&[3, 2, 1])), OfferWork::Look, "one has come");
    assert_eq!(then(&mut before, OfferInput::Looked(vec![])), OfferWork::List);
    before.handle(listed(&[]));
    assert_eq!(end(&before), OfferEnd::Absent);
}

#[test]
fn reader_gives_up_after_five_looks_and_prints_each_refusal_once() {
    let mut offers = GenerationOffers::of_reader(vec![(10, Damaged), (9, Good)]);
    let (mut looks, mut printed) = (1, Vec::new());
    loop {
        printed.extend(refused(&mut offers));
        let input = match offers.work() {
            OfferWork::Restore(_) => OfferInput::Refused(Bad),
            // The damaged one stays, and the other one is removed.
            OfferWork::List => listed(&[10]),
            OfferWork::Look => {
                looks += 1;
                OfferInput::Looked(vec![(10, Damaged), (9, Good)])
            }
            OfferWork::End(end) => break assert_eq!(end, OfferEnd::Replaced),
        };
        offers.handle(input);
    }
    assert_eq!((looks, printed), (LOOKS_MAX, vec![10]));
}

#[test]
fn evidence_about_the_key_follows_from_what_is_seen() {
    use KeyEvidence::{Differs, Fits, Unknown};
    let shown = [Good, Bad, Damaged, OtherKey, OtherRelease].map(GenerationVerdict::key_evidence);
    assert_eq!(shown, [Fits, Unknown, Fits, Differs, Unknown]);
}

/// A backend beside which a runner stores generations and removes old ones, some of which stay.
struct ReadWorld {
    draw: Draw,
    there: BTreeMap<u64, GenerationVerdict>,
    last: u64,
    /// Old ones whose manifests cannot be deleted.
    stuck: BTreeSet<u64>,
}

impl ReadWorld {
    fn new(seed: u64) -> Self {
        let mut draw = Draw::new(seed);
        let (there, stuck) = (BTreeMap::new(), BTreeSet::new());
        let stored = draw.between(0, 4);
        let mut world = Self { draw, there, last: 0, stuck };
        (0..stored).for_each(|_| world.store());
        world
    }

    fn newest_good(&self) -> Option<u64> {
        self.there.iter().rev().find(|(_, it)| **it == Good).map(|(number, _)| *number)
    }

    /// Stores a generation, and removes all but the newest two good ones and what is after them.
    fn store(&mut self) {
        self.last += 1;
        let verdict = match self.draw.between(0, 9) {
            0 => Bad,
            1 => Damaged,
            _ => Good,
        };
        self.there.insert(self.last, verdict);
        if self.draw.chance(200) {
            self.stuck.insert(self.last);
        }
        let good = self.there.iter().rev().filter(|(_, it)| **it == Good);
        let Some(kept_from) = good.map(|(number, _)| *number).nth(1) else { return };
        self.there.retain(|number, _| *number >= kept_from || self.stuck.contains(number));
    }

    fn look(&self) -> Vec<(u64, GenerationVerdict)> {
        self.there.iter().rev().map(|(number, verdict)| (*number, *verdict)).collect()
    }

    /// Reads to the end beside the runner. Returns the number that was restored, or how it ended.
    fn read(&mut self) -> Result<u64, OfferEnd> {
        let newest_before = self.newest_good();
        let mut offers = GenerationOffers::of_reader(self.look());
        let mut looks = 1;
        let pace = self.draw.pick(&[0, 200, 900]);
        loop {
            // It removes what was read, too.
            while self.draw.chance(pace) {
                self.store();
            }
            let input = match offers.work() {
                OfferWork::Restore(number) => match self.there.get(&number) {
                    Some(Good) => {
                        assert!(Some(number) >= newest_before, "{number} for {newest_before:?}");
                        return Ok(number);
                    }
                    _ => OfferInput::Refused(Bad),
                },
                OfferWork::List => OfferInput::Listed(self.there.keys().copied().collect()),
                OfferWork::Look => {
                    looks += 1;
                    assert!(looks <= LOOKS_MAX, "{looks} looks");
                    OfferInput::Looked(self.look())
                }
                OfferWork::End(end) => {
                    let has_none = matches!(end, OfferEnd::NoneGood(_) | OfferEnd::Absent);
                    assert!(!has_none || newest_before.is_none(), "{end:?}");
                    return Err(end);
                }
            };
            offers.handle(input);
        }
    }
}

#[test]
fn reader_beside_a_runner_never_takes_a_generation_older_than_it_could() {
    let mut ends = BTreeMap::<&str, u32>::new();
    for seed in 0..3000 {
        let name = match ReadWorld::new(seed).read() {
            Ok(_) => "restored",
            Err(OfferEnd::NoneGood(_)) => "none is good",
            Err(OfferEnd::Absent) => "absent",
            Err(OfferEnd::Replaced) => "replaced",
            Err(end) => panic!("seed {seed}: {end:?}"),
        };
        *ends.entry(name).or_default() += 1;
    }
    assert_eq!(ends.len(), 4, "each end is met: {ends:?}");
}
