//! The CORS rules of buckets, for a moment, and how often buckets are looked up for
//! unauthenticated requests.
//!
//! A preflight is not signed, so any caller can name any bucket, also those that are not
//! there. A bucket that was seen with rules is looked up again whenever its rules are too old; any
//! other one only while look-ups are left: for preflights so many, and for other requests so many.
//! So invented names neither load the namenode nor make the gateway forget the buckets that pages
//! use.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How long a bucket's rules are used without a look-up. A change of the rules holds at all
/// gateways so soon. A page's requests follow its preflight within it, mostly; browsers keep the
/// answer of a preflight for 5 s by default (Fetch standard). Chosen, not measured.
const BELIEVED: Duration = Duration::from_secs(2);

/// Most buckets with rules that are kept, of at most 64 KiB of rules each. 16 MiB at most. Chosen,
/// not measured.
const WITH_RULES_MAX: usize = 256;

/// Most buckets without rules that are kept: more than can be looked up while they are believed.
const WITHOUT_RULES_MAX: usize = 1024;

/// Look-ups of other buckets for one use, for each second and at once: far less than one part in a
/// hundred of what a namenode answers.
const LOOK_UPS_PER_SECOND: f64 = 100.0;

/// What is known of a bucket.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CachedRules<V> {
    /// These rules; `None` when it has none, or is not there.
    Rules(Option<V>),
    /// Nothing that is still believed: it is to be looked up.
    Stale,
    /// Nothing, and unauthenticated requests have no look-ups left.
    Refused,
}

/// What a bucket's rules are needed for. Each has an allowance of look-ups of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RulesUse {
    /// A browser's `OPTIONS` request before the request itself, without a signature.
    Preflight,
    /// The request itself.
    Request,
}

/// The rules of buckets. One of many that are too old is evicted first.
#[derive(Debug)]
pub(crate) struct RulesCache<V>(Mutex<CacheState<V>>);

#[derive(Debug)]
struct CacheState<V> {
    with_rules: HashMap<String, (Instant, V)>,
    without_rules: HashMap<String, (Instant, ())>,
    /// Look-ups that are left for each use.
    left: [Allowance; 2],
}

/// Look-ups that are left, and when that was.
#[derive(Debug, Clone, Copy)]
struct Allowance {
    left: f64,
    counted: Instant,
}

impl<V> Default for RulesCache<V> {
    fn default() -> Self {
        Self::new(Instant::now())
    }
}

impl<V> RulesCache<V> {
    fn new(now: Instant) -> Self {
        let (with_rules, without_rules) = (HashMap::new(), HashMap::new());
        let left = [Allowance { left: LOOK_UPS_PER_SECOND, counted: now }; 2];
        Self(Mutex::new(CacheState { with_rules, without_rules, left }))
    }
}

impl<V: Clone> RulesCache<V> {
    /// Returns what is known of a bucket. The caller looks up one that is stale, and keeps what it
    /// finds.
    pub(crate) fn find(&self, bucket: &str, needed: RulesUse, now: Instant) -> CachedRules<V> {
        let mut state = self.0.lock();
        if let Some((at, rules)) = state.with_rules.get_mut(bucket) {
            if is_believed(*at, now) {
                return CachedRules::Rules(Some(rules.clone()));
            }
            // One request looks it up; those that come meanwhile get what was known.
            *at = now;
            return CachedRules::Stale;
        }
        if state.without_rules.get(bucket).is_some_and(|(at, ())| is_believed(*at, now)) {
            return CachedRules::Rules(None);
        }
        if state.left[needed as usize].take(now) {
            CachedRules::Stale
        } else {
            CachedRules::Refused
        }
    }

    /// Keeps what was found of a bucket by a look-up that began at `at`: `None` for no rules. What
    /// was kept later stays.
    pub(crate) fn keep(&self, bucket: &str, rules: Option<V>, at: Instant) {
        let state = &mut *self.0.lock();
        let with = state.with_rules.get(bucket).map(|(kept, _)| *kept);
        let without = state.without_rules.get(bucket).map(|(kept, ())| *kept);
        if with.max(without).is_some_and(|kept| kept > at) {
            return;
        }
        match rules {
            Some(rules) => {
                state.without_rules.remove(bucket);
                insert(&mut state.with_rules, bucket, (at, rules), WITH_RULES_MAX);
            }
            None => {
                state.with_rules.remove(bucket);
                insert(&mut state.without_rules, bucket, (at, ()), WITHOUT_RULES_MAX);
            }
        }
    }

    /// Forgets a bucket of which is not known what it has now.
    pub(crate) fn forget(&self, bucket: &str) {
        let mut state = self.0.lock();
        state.with_rules.remove(bucket);
        state.without_rules.remove(bucket);
    }
}

impl Allowance {
    /// Takes one of the look-ups that are left.
    fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.counted).as_secs_f64();
        self.counted = self.counted.max(now);
        self.left = (self.left + passed * LOOK_UPS_PER_SECOND).min(LOOK_UPS_PER_SECOND);
        let is_left = self.left >= 1.0;
        if is_left {
            self.left -= 1.0;
        }
        is_left
    }
}

fn is_believed(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) < BELIEVED
}

/// Inserts a bucket, in place of the oldest if there are too many.
fn insert<V>(
    all: &mut HashMap<String, (Instant, V)>,
    bucket: &str,
    value: (Instant, V),
    count_max: usize,
) {
    if all.len() >= count_max && !all.contains_key(bucket) {
        let oldest = all.iter().min_by_key(|(_, (at, _))| *at).map(|(name, _)| name.clone());
        if let Some(oldest) = oldest {
            all.remove(&oldest);
        }
    }
    all.insert(bucket.to_owned(), value);
}

#[cfg(test)]
mod tests {
    use super::RulesUse::{Preflight, Request};
    use super::*;

    #[test]
    fn invented_buckets_are_looked_up_at_a_bounded_rate() {
        let begin = Instant::now();
        let cache = RulesCache::<u8>::new(begin);
        let looked_up = |at: Duration| {
            let names = (0..10_000).map(|number| format!("{at:?}-{number}"));
            let of = |name: String| {
                let is_stale = cache.find(&name, Preflight, begin + at) == CachedRules::Stale;
                if is_stale {
                    cache.keep(&name, None, begin + at);
                }
                is_stale
            };
            names.map(of).filter(|is_stale| *is_stale).count()
        };
        assert_eq!(looked_up(Duration::ZERO), 100);
        assert_eq!(looked_up(Duration::from_millis(500)), 50);
        assert_eq!(looked_up(Duration::from_secs(3600)), 100);
        // A clock that goes back gives nothing.
        assert_eq!(looked_up(Duration::from_secs(3)), 0);
        assert_eq!(
            cache.find("3600s-7", Preflight, begin + Duration::from_secs(3600)),
            CachedRules::Rules(None)
        );
        assert!(cache.0.lock().without_rules.len() <= WITHOUT_RULES_MAX);
    }

    #[test]
    fn bucket_with_rules_is_looked_up_whatever_others_request() {
        let begin = Instant::now();
        let cache = RulesCache::new(begin);
        cache.keep("shop", Some(7), begin);
        while cache.find("invented", Preflight, begin) != CachedRules::Refused {}
        let later = begin + BELIEVED;
        for number in 0..10_000 {
            cache.find(&format!("invented-{number}"), Preflight, later);
        }
        assert_eq!(cache.find("shop", Preflight, later), CachedRules::Stale);
        // Others do not look it up meanwhile.
        assert_eq!(cache.find("shop", Preflight, later), CachedRules::Rules(Some(7)));
        // What a look-up found that began before the rules were deleted comes too late.
        cache.keep("shop", None, later + Duration::from_millis(1));
        cache.keep("shop", Some(8), later);
        assert_eq!(
            cache.find("shop", Preflight, later + Duration::from_millis(2)),
            CachedRules::Rules(None)
        );
    }

    #[test]
    fn oldest_makes_room() {
        let begin = Instant::now();
        let cache = RulesCache::new(begin);
        for number in 0..=WITH_RULES_MAX {
            let at = begin + Duration::from_millis(number as u64);
            cache.keep(&format!("b{number}"), Some(number), at);
        }
        let state = cache.0.lock();
        assert_eq!(state.with_rules.len(), WITH_RULES_MAX);
        assert!(!state.with_rules.contains_key("b0") && state.with_rules.contains_key("b1"));
    }

    #[test]
    fn preflights_for_invented_buckets_leave_look_ups_to_requests_and_the_other_way_round() {
        let begin = Instant::now();
        for (flood, other) in [(Preflight, Request), (Request, Preflight)] {
            let cache = RulesCache::<u8>::new(begin);
            while cache.find("invented", flood, begin) != CachedRules::Refused {}
            assert_eq!(cache.find("shop", other, begin), CachedRules::Stale);
        }
    }
}
