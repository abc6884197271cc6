//! The test's own model of the data.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use sanderling_client::ClientError;
use sanderling_protocol::refusal::ByteRange;
use sanderling_protocol::{ObjectId, Refusal};

/// Bytes of the longest object.
pub(crate) const BYTES_MAX: usize = 2_400_000;

/// Starts of contents in the pool.
const STARTS: usize = 1 << 20;

/// Bytes that a name may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) seed: u64,
    /// Bytes that were acknowledged.
    pub(crate) least: usize,
    /// Bytes that were ever sent.
    pub(crate) most: usize,
}

/// What is known of a name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    pub(crate) versions: Vec<Version>,
    /// Those that were replaced, the oldest first.
    past: Vec<Version>,
    /// Whether it need not be there: how its creation or deletion ended is unknown.
    pub(crate) may_be_missing: bool,
}

impl Known {
    pub(crate) const fn new(versions: Vec<Version>, may_be_missing: bool) -> Self {
        Self { versions, past: Vec::new(), may_be_missing }
    }

    /// Leaves only the newest version: it was acknowledged.
    pub(crate) fn replace(&mut self) {
        let newest = self.versions.pop().expect("it was begun");
        self.past.append(&mut self.versions);
        self.versions.push(newest);
        self.may_be_missing = false;
    }
}

/// What came of one read.
#[derive(Debug)]
pub(crate) enum Read {
    Bytes(Bytes),
    /// The namenode reported it: why.
    Missing(Refusal),
    Lost(ObjectId, Vec<ByteRange>),
    /// It was not answered in time.
    Unknown,
}

/// All names, and how calls ended.
#[derive(Debug)]
pub(crate) struct Book {
    pool: Bytes,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    names: BTreeMap<String, Known>,
    deleted: BTreeSet<String>,
    /// The losses that readers got.
    lost: Vec<(String, ObjectId)>,
    errors: BTreeMap<&'static str, u64>,
    calls: u64,
    longest: Duration,
}

impl Book {
    pub(crate) fn new() -> Self {
        let pool = crate::cluster::bytes_of(7, STARTS + BYTES_MAX);
        Self { pool, inner: Mutex::default() }
    }

    /// Returns the bytes of a seed: shorter ones are the beginning of longer ones.
    pub(crate) fn content(&self, seed: u64, bytes: usize) -> Bytes {
        let start = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
        let start = usize::try_from(start).expect("20 bits");
        self.pool.slice(start..start + bytes)
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().expect("no thread panics with it")
    }

    pub(crate) fn record(&self, name: &str, known: Known) {
        self.inner().names.insert(name.to_owned(), known);
    }

    pub(crate) fn change(&self, name: &str, change: impl FnOnce(&mut Known)) {
        change(self.inner().names.entry(name.to_owned()).or_default());
    }

    pub(crate) fn known(&self, name: &str) -> Option<Known> {
        self.inner().names.get(name).cloned()
    }

    pub(crate) fn deleted(&self, name: &str) {
        let mut inner = self.inner();
        inner.names.remove(name);
        inner.deleted.insert(name.to_owned());
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.inner().names.keys().cloned().collect()
    }

    pub(crate) fn deleted_names(&self) -> Vec<String> {
        self.inner().deleted.iter().cloned().collect()
    }

    /// Counts a call; one that fails must have an error that a program can handle.
    pub(crate) fn called<T>(
        &self,
        what: &str,
        took: Duration,
        result: Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let mut inner = self.inner();
        inner.calls += 1;
        inner.longest = inner.longest.max(took);
        if let Err(error) = &result {
            *inner.errors.entry(error.name()).or_default() += 1;
            drop(inner);
            assert!(is_expected(error), "{what}: {error}");
        }
        result
    }

    pub(crate) fn summary(&self) -> (u64, Duration, BTreeMap<&'static str, u64>) {
        let inner = self.inner();
        (inner.calls, inner.longest, inner.errors.clone())
    }

    pub(crate) fn lost(&self) -> Vec<(String, ObjectId)> {
        self.inner().lost.clone()
    }

    /// Checks that a read may have come of what is known before and after it.
    pub(crate) fn check(&self, name: &str, before: Option<&Known>, read: &Read) {
        let after = self.known(name);
        match read {
            Read::Unknown => {}
            Read::Lost(object, _) => self.inner().lost.push((name.to_owned(), *object)),
            Read::Missing(why) => {
                let mut known = before.into_iter().chain(&after);
                let may = after.is_none() || known.any(|known| known.may_be_missing);
                assert!(may, "{name} is not there, {why}: {before:?} {after:?}");
            }
            Read::Bytes(bytes) => {
                let is_it = |version: &Version| {
                    (version.least..=version.most).contains(&bytes.len())
                        && *bytes == self.content(version.seed, bytes.len())
                };
                let is_right = versions(before, after.as_ref()).iter().any(is_it);
                let bytes = bytes.len();
                assert!(is_right, "{name} has {bytes} other bytes: {before:?} {after:?}");
            }
        }
    }
}

/// Returns what a name may have had between two looks.
fn versions(before: Option<&Known>, after: Option<&Known>) -> Vec<Version> {
    let replaced = before.map_or(0, |known| known.past.len());
    let between = after.into_iter().flat_map(|known| known.past.iter().skip(replaced));
    let known = before.into_iter().chain(after).flat_map(|known| &known.versions);
    let mut all: Vec<Version> = Vec::new();
    for version in known.chain(between) {
        match all.iter_mut().find(|one| one.seed == version.seed) {
            Some(one) => {
                one.least = one.least.min(version.least);
                one.most = one.most.max(version.most);
            }
            None => all.push(version.clone()),
        }
    }
    all
}

/// Returns whether an error is one that processes which die without a word may cause. There is room
/// at all times.
fn is_expected(error: &ClientError) -> bool {
    match error {
        ClientError::DataUnavailable { .. }
        | ClientError::TimedOut { .. }
        | ClientError::Call { .. }
        | ClientError::WriterClosed { .. } => true,
        ClientError::Refused(refusal) => matches!(
            refusal,
            Refusal::NotFound { .. }
                | Refusal::RetryAfter { .. }
                | Refusal::Undecided { .. }
                | Refusal::ObjectGone { .. }
                | Refusal::LeaseEnded { .. }
        ),
        ClientError::BadReply { .. } => false,
    }
}

/// Returns what came of a read.
pub(crate) fn read(result: Result<Bytes, ClientError>) -> Read {
    match result {
        Ok(bytes) => Read::Bytes(bytes),
        Err(ClientError::DataUnavailable { object, ranges, .. }) => Read::Lost(object, ranges),
        Err(ClientError::Refused(
            why @ (Refusal::NotFound { .. } | Refusal::ObjectGone { .. }),
        )) => Read::Missing(why),
        Err(_) => Read::Unknown,
    }
}
