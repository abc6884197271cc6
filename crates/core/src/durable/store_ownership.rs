//! Whose a store is: which durable directory may change it, how a directory gets an empty one, and
//! how long the former owner of an adopted one may still change it.
//!
//! The owner is named in the store itself. A datanode reads it before each change, because another
//! directory, of this cluster or another, may have adopted the store.

use sanderling_protocol::{Instant, Millis};

use super::store_times::STORE_OPERATION_MAX;

/// How long a bucket is taken to have the owner that it was seen to have: another directory may
/// adopt it. One more request for the owner in 5 s costs little beside the changes; how long an
/// adoption waits follows from it ([`BUCKET_SETTLES`]).
const OWNER_HOLDS: Millis = Millis(5_000);

/// How long the former owner of a bucket may still change it: what it has begun when it saw last
/// that the bucket is its own takes two operations. Two of the longest ([`STORE_OPERATION_MAX`])
/// after the last look ([`OWNER_HOLDS`]), and 5 s for clocks and the order's way.
const BUCKET_SETTLES: Millis = Millis(50_000);

const _: () = assert!(OWNER_HOLDS.0 + 2 * STORE_OPERATION_MAX.0 < BUCKET_SETTLES.0);

/// What precedes the former owner in the text that names the owner.
const FORMER: &str = "adopted from ";

/// Whose a store is, as it is named there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NamedOwner {
    owner: String,
    /// The owner that the store was adopted from.
    former: Option<String>,
}

/// A reason why a directory may not change a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnerRefusal {
    /// It has no owner, and this directory has changed it before.
    Gone,
    /// It has no owner, but objects.
    NotEmpty,
    /// What names the owner is empty.
    Unnamed,
    /// It is another one's.
    Other {
        /// The owner.
        owner: String,
    },
    /// It has neither an owner nor objects.
    NothingToAdopt,
}

/// What is next before a directory may change a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnerStep {
    /// Read whose it is, for [`OwnerCheck::found_owner`].
    ReadOwner,
    /// Look whether it has objects, for [`OwnerCheck::found_objects`].
    LookForObjects,
    /// Name this directory unless another one is named meanwhile, then [`OwnerCheck::named`].
    NameOwner,
    /// The directory may change it, or may not.
    Ended(Result<(), OwnerRefusal>),
}

/// A look at whose a store is before a directory changes it.
#[derive(Debug, Clone)]
pub struct OwnerCheck {
    wanted: String,
    /// Whether a store without an owner becomes the directory's if it is empty, or if it is not.
    claims: Option<Claimed>,
    step: OwnerStep,
}

/// Which store without an owner becomes a directory's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claimed {
    Empty,
    WithObjects,
}

/// The owner that a store was seen to have, and when.
#[derive(Debug, Default)]
pub struct SeenOwner(Option<(String, Instant)>);

impl NamedOwner {
    /// Reads the text that names the owner.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let mut lines = text.lines().map(str::trim);
        let owner = lines.next().unwrap_or_default().to_owned();
        Self { owner, former: lines.find_map(|it| it.strip_prefix(FORMER)).map(str::to_owned) }
    }

    /// Returns the text that names another owner, and this one as the former.
    #[must_use]
    pub fn replaced_by(&self, owner: &str) -> String {
        format!("{owner}\n{FORMER}{}", self.owner)
    }

    /// Checks that this is the owner.
    ///
    /// # Errors
    /// [`OwnerRefusal`]: whose the store is.
    pub fn check(&self, wanted: &str) -> Result<(), OwnerRefusal> {
        if self.owner == wanted {
            return Ok(());
        }
        if self.owner.is_empty() {
            return Err(OwnerRefusal::Unnamed);
        }
        Err(OwnerRefusal::Other { owner: self.owner.clone() })
    }

    /// Returns how long others may still change a bucket that is this owner's from now on. A bucket
    /// has no lock, as a directory has, so what they have begun goes on.
    #[must_use]
    pub fn settles_in(&self, wanted: &str) -> Millis {
        let is_own = self.owner == wanted && self.former.is_none();
        if is_own { Millis(0) } else { BUCKET_SETTLES }
    }
}

impl OwnerCheck {
    /// Begins a look for a directory. With `may_claim` an empty store becomes its own.
    #[must_use]
    pub const fn new(wanted: String, may_claim: bool) -> Self {
        let claims = if may_claim { Some(Claimed::Empty) } else { None };
        Self { wanted, claims, step: OwnerStep::ReadOwner }
    }

    /// Begins a look for a directory that adopts a store without an owner.
    #[must_use]
    pub const fn adopting(wanted: String) -> Self {
        Self { wanted, claims: Some(Claimed::WithObjects), step: OwnerStep::LookForObjects }
    }

    /// Returns what is next.
    #[must_use]
    pub fn step(&self) -> OwnerStep {
        self.step.clone()
    }

    /// Takes whose the store is; `None` if no directory has used it.
    pub fn found_owner(&mut self, found: Option<&NamedOwner>) {
        self.step = match (found, self.claims) {
            (Some(found), _) => OwnerStep::Ended(found.check(&self.wanted)),
            (None, Some(Claimed::Empty)) => OwnerStep::LookForObjects,
            (None, _) => OwnerStep::Ended(Err(OwnerRefusal::Gone)),
        };
    }

    /// Takes whether the store, which has no owner, has objects.
    pub fn found_objects(&mut self, is_empty: bool) {
        self.step = match (self.claims, is_empty) {
            (Some(Claimed::Empty), true) | (Some(Claimed::WithObjects), false) => {
                OwnerStep::NameOwner
            }
            (Some(Claimed::WithObjects), true) => {
                OwnerStep::Ended(Err(OwnerRefusal::NothingToAdopt))
            }
            (Some(Claimed::Empty) | None, _) => OwnerStep::Ended(Err(OwnerRefusal::NotEmpty)),
        };
    }

    /// Notes that the directory was named, or another one before it: what is there is read again.
    pub fn named(&mut self) {
        assert!(self.step == OwnerStep::NameOwner, "only a store without an owner gets one");
        (self.claims, self.step) = (None, OwnerStep::ReadOwner);
    }
}

impl SeenOwner {
    /// Returns whether a store is taken to be a directory's without a look. One in a directory of
    /// the machine never is: it may be unmounted at any time, and then seems to have no objects.
    #[must_use]
    pub fn holds(&self, now: Instant, wanted: &str, may_vanish: bool) -> bool {
        let is_new = |at: Instant| at.until(now) < OWNER_HOLDS;
        !may_vanish && self.0.as_ref().is_some_and(|(owner, at)| owner == wanted && is_new(*at))
    }

    /// Notes that a look that began then has found this owner.
    pub fn seen(&mut self, began: Instant, owner: String) {
        self.0 = Some((owner, began));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "cluster 1 directory 1";
    const OTHER: &str = "cluster 2 directory 2";

    /// A store that two directories look at.
    #[derive(Default)]
    struct Place {
        owner: Option<String>,
        has_objects: bool,
    }

    impl Place {
        /// Does the next step of a look; returns how it ended.
        fn go_on(&mut self, check: &mut OwnerCheck) -> Option<Result<(), OwnerRefusal>> {
            match check.step() {
                OwnerStep::ReadOwner => {
                    let found = self.owner.as_deref().map(NamedOwner::of);
                    check.found_owner(found.as_ref());
                }
                OwnerStep::LookForObjects => check.found_objects(!self.has_objects),
                OwnerStep::NameOwner => {
                    self.owner.get_or_insert(check.wanted.clone());
                    check.named();
                }
                OwnerStep::Ended(ended) => return Some(ended),
            }
            None
        }

        fn ends(&mut self, mut check: OwnerCheck) -> Result<(), OwnerRefusal> {
            (0..10).find_map(|_| self.go_on(&mut check)).expect("it ends")
        }
    }

    fn check(may_claim: bool) -> OwnerCheck {
        OwnerCheck::new(OWN.to_owned(), may_claim)
    }

    #[test]
    fn empty_store_becomes_a_new_directorys_and_stays_so() {
        let mut place = Place::default();
        assert_eq!(place.ends(check(true)), Ok(()));
        assert_eq!(place.ends(check(false)), Ok(()));
        place.has_objects = true;
        assert_eq!(place.ends(check(true)), Ok(()));
        let other = OwnerCheck::new(OTHER.to_owned(), true);
        assert_eq!(place.ends(other), Err(OwnerRefusal::Other { owner: OWN.to_owned() }));
    }

    #[test]
    fn store_that_was_claimed_before_is_not_claimed_when_it_seems_empty() {
        assert_eq!(Place::default().ends(check(false)), Err(OwnerRefusal::Gone));
    }

    #[test]
    fn store_with_objects_of_no_owner_is_adopted_and_not_claimed() {
        let mut place = Place { owner: None, has_objects: true };
        assert_eq!(place.ends(check(true)), Err(OwnerRefusal::NotEmpty));
        assert_eq!(place.ends(OwnerCheck::adopting(OWN.to_owned())), Ok(()));
        let adopting = OwnerCheck::adopting(OTHER.to_owned());
        assert_eq!(Place::default().ends(adopting), Err(OwnerRefusal::NothingToAdopt));
    }

    #[test]
    fn store_whose_owner_has_no_name_is_changed_by_none() {
        let mut place = Place { owner: Some(String::new()), has_objects: true };
        assert_eq!(place.ends(check(true)), Err(OwnerRefusal::Unnamed));
    }

    /// The first that is named has the store, in every order of the steps of two looks.
    #[test]
    fn one_of_two_directories_that_claim_a_store_at_once_has_it_in_every_interleaving() {
        for order in 0..1_u32 << 8 {
            let mut place = Place::default();
            let mut checks = [OWN, OTHER].map(|it| OwnerCheck::new(it.to_owned(), true));
            let mut ends = [None, None];
            let drawn = (0..8).map(|bit| ((order >> bit) & 1) as usize);
            for at in drawn.chain([0; 8]).chain([1; 8]) {
                if ends[at].is_none() {
                    ends[at] = place.go_on(&mut checks[at]);
                }
            }
            let owners = ends.iter().filter(|end| **end == Some(Ok(()))).count();
            assert_eq!(owners, 1, "{order:b}: {ends:?}");
        }
    }

    #[test]
    fn adopted_bucket_settles_unless_no_other_has_changed_it() {
        let own = NamedOwner::of(&format!("{OWN}\n"));
        assert_eq!(own.settles_in(OWN), Millis(0));
        assert_eq!(own.settles_in(OTHER), BUCKET_SETTLES);
        // The order was executed before, and its answer was lost.
        let taken = NamedOwner::of(&own.replaced_by(OTHER));
        assert_eq!((taken.check(OTHER), taken.settles_in(OTHER)), (Ok(()), BUCKET_SETTLES));
    }

    #[test]
    fn owner_that_was_seen_holds_for_five_seconds_and_never_for_a_directory() {
        let mut seen = SeenOwner::default();
        let began = Instant(1_000_000);
        assert!(!seen.holds(began, OWN, false));
        seen.seen(began, OWN.to_owned());
        assert!(seen.holds(began + Millis(4_999), OWN, false));
        assert!(!seen.holds(began + OWNER_HOLDS, OWN, false));
        assert!(!seen.holds(began, OTHER, false));
        assert!(!seen.holds(began, OWN, true), "it may be unmounted");
    }
}
