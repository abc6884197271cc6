//! How long a dump takes, what it costs, and whether it ends before the machine is taken.
//!
//! It is forecast as if nothing of the state were stored yet and nothing of it could be compressed.

use sanderling_protocol::Millis;

use super::chunk::CHUNK_BYTES;
use super::packing::PACK_BYTES;

/// A dump is begun only if this many percent of its expected time are left. A dump that is not
/// complete is worth nothing, and rates vary. Chosen, not measured.
const MARGIN_PERCENT: u64 = 125;

/// What a dump takes beside its bytes and requests: CRIU's start and the images' frame. Measured:
/// a second dump of 7 MB, of which 10 KiB are new, takes 0.10 to 0.17 s (`task run --driver criu`,
/// two processors beside a build).
const BESIDE: Millis = Millis(100);

/// Bytes of a manifest for each chunk of 64 KiB. The name has 32, and numbers are shorter than the
/// 54 bytes of the longest entry (`CHUNK_ENTRY_BYTES_MAX`).
const MANIFEST_PER_CHUNK: u64 = 48;

/// Requests that write, with which a datanode copies an object to the bucket of a durable
/// directory: one begins an upload, one sends a pack as a part, and one completes it. Where the
/// datanode has little memory, or the bucket is slow, a pack has up to five parts.
const UPLOAD_REQUESTS: u64 = 3;

/// The speeds of a machine and a backend, by which a dump is forecast before the first one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DumpRates {
    /// Bytes of state per second that this machine reads, hashes, compresses and encrypts.
    pub pack_per_second: f64,
    /// Bytes per second that the backend takes.
    pub put_per_second: f64,
    /// What one small object takes.
    pub request: Millis,
}

/// The prices of a backend, in dollars, as its provider publishes them; zero for one without.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StoragePrices {
    /// For 10^9 bytes in a month.
    pub gigabyte_month: f64,
    /// For 1000 requests that write or list.
    pub thousand_requests: f64,
}

/// A forecast of the time and the bytes of a whole dump of a state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DumpForecast {
    /// From its begin to the manifest.
    pub takes: Millis,
    /// Bytes that are stored.
    pub stored_bytes: u64,
    /// Objects that are stored: packs and a manifest.
    pub objects: u64,
    /// Requests that write or list.
    pub requests: u64,
    /// For these requests.
    pub request_dollars: f64,
    /// For what is stored, in a month.
    pub month_dollars: f64,
}

/// A runner's choice when a notice arrives: whether the time until the deadline is enough for a
/// dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeChoice {
    /// A dump that is begun now ends in time.
    Dump,
    /// It does not: the last generation counts.
    KeepLast,
}

impl DumpRates {
    /// Returns the time, the stored bytes, the requests and the price of a dump of `state_bytes`
    /// bytes.
    #[must_use]
    pub fn forecast(&self, state_bytes: u64, prices: StoragePrices) -> DumpForecast {
        let manifest = state_bytes.div_ceil(CHUNK_BYTES as u64) * MANIFEST_PER_CHUNK;
        let stored_bytes = state_bytes + manifest;
        let packs = state_bytes.div_ceil(PACK_BYTES);
        let objects = packs + 1;
        // And the list of packs before them.
        let requests = objects + 1;
        let millis = (self.bytes_seconds(state_bytes, stored_bytes, packs) * 1000.0).ceil() as u64;
        let takes = Millis(millis.saturating_add(2 * self.request.0 + BESIDE.0));
        let request_dollars = prices.of_requests(requests);
        let month_dollars = stored_bytes as f64 / 1e9 * prices.gigabyte_month;
        DumpForecast { takes, stored_bytes, objects, requests, request_dollars, month_dollars }
    }

    /// Returns the seconds until all packs are stored. They are packed one after another, and
    /// meanwhile they are stored one after another: the first one after it was packed, and the last
    /// one after all packing. No summand falls when the state grows.
    fn bytes_seconds(&self, state_bytes: u64, stored_bytes: u64, packs: u64) -> f64 {
        let request = self.request.0 as f64 / 1000.0;
        let pack = state_bytes.min(PACK_BYTES) as f64;
        let packing = state_bytes as f64 / self.pack_per_second;
        let storing = stored_bytes as f64 / self.put_per_second + packs as f64 * request;
        let packing_first = packing + pack / self.put_per_second + request;
        packing_first.max(storing + pack / self.pack_per_second)
    }

    /// Returns the bytes of the largest state whose dump ends within a notice of `notice`
    /// milliseconds; 0 if not even an empty one does.
    #[must_use]
    pub fn largest(&self, notice: Millis) -> u64 {
        let free = StoragePrices { gigabyte_month: 0.0, thousand_requests: 0.0 };
        let fits = |bytes: u64| {
            NoticeChoice::of(self.forecast(bytes, free).takes, notice) == NoticeChoice::Dump
        };
        let (mut low, mut high) = (0, 1 << 50);
        while low + 1 < high {
            let middle = u64::midpoint(low, high);
            if fits(middle) { low = middle } else { high = middle }
        }
        low
    }
}

impl StoragePrices {
    fn of_requests(&self, requests: u64) -> f64 {
        requests as f64 * self.thousand_requests / 1000.0
    }
}

impl DumpForecast {
    /// Returns the same of a dump into a durable directory whose store is a bucket: a cluster takes
    /// the objects, and datanodes copy each of them.
    #[must_use]
    pub fn copied_to_a_bucket(self, prices: StoragePrices) -> Self {
        let requests = self.objects * UPLOAD_REQUESTS;
        Self { requests, request_dollars: prices.of_requests(requests), ..self }
    }
}

impl NoticeChoice {
    /// Decides about a dump that takes so long, when so much time is left.
    #[must_use]
    pub const fn of(takes: Millis, left: Millis) -> Self {
        if with_margin(takes) <= left.0 { Self::Dump } else { Self::KeepLast }
    }
}

/// A runner's choice when a notice arrives while a dump is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnderWayChoice {
    /// It goes on, for so long at most. If it has not ended by then, the choice is made again.
    GoOn {
        /// The time of the rest with the margin, within what is left; all that is left where
        /// nothing else could end in time.
        within: Millis,
    },
    /// It took longer than a dump takes, and another one ends in time.
    BeginAgain,
    /// Its rest does not end in time, and so would no other: the last generation counts.
    GiveUp,
}

impl UnderWayChoice {
    /// Decides about a dump that began `elapsed` ago, where one takes so long and so much time is
    /// left.
    ///
    /// Of a dump that is overdue, as at a backend that does not answer, nothing is known about the
    /// rest. Another one is better if it fits. If it does not, going on costs nothing: the dump may
    /// end at any moment.
    #[must_use]
    pub fn of(takes: Millis, elapsed: Millis, left: Millis) -> Self {
        let overdue_after = with_margin(takes);
        if elapsed.0 < overdue_after {
            let rest = with_margin(Millis(takes.0.saturating_sub(elapsed.0)));
            let within = Millis(left.0.min(overdue_after - elapsed.0));
            return if rest <= left.0 { Self::GoOn { within } } else { Self::GiveUp };
        }
        match NoticeChoice::of(takes, left) {
            NoticeChoice::Dump => Self::BeginAgain,
            NoticeChoice::KeepLast => Self::GoOn { within: left },
        }
    }
}

/// Returns the time that has to be left for a dump that takes so long.
pub(super) const fn with_margin(takes: Millis) -> u64 {
    takes.0.saturating_mul(MARGIN_PERCENT) / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    const S3: StoragePrices = StoragePrices { gigabyte_month: 0.023, thousand_requests: 0.005 };

    fn rates(put_per_second: f64) -> DumpRates {
        DumpRates { pack_per_second: 400e6, put_per_second, request: Millis(20) }
    }

    #[test]
    fn slower_of_machine_and_backend_counts() {
        let forecast = rates(36e6).forecast(7_750_000_000, S3);
        // 215.4 s, 231 requests, and 0.1 s for the first pack before.
        assert!((220_200..220_400).contains(&forecast.takes.0), "{forecast:?}");
        let forecast = rates(4e9).forecast(4_000_000_000, S3);
        assert!((10_100..10_300).contains(&forecast.takes.0), "{forecast:?}");
    }

    #[test]
    fn packs_are_stored_one_after_another() {
        let slow = DumpRates { request: Millis(1000), ..rates(4e9) };
        // 10 s of packing beside 120 packs of a request each, and the requests beside the packs.
        let forecast = slow.forecast(4_000_000_000, S3);
        assert!((123_000..123_500).contains(&forecast.takes.0), "{forecast:?}");
        // One pack is packed before it is stored: 0.084 s and 0.932 s.
        let forecast = rates(36e6).forecast(PACK_BYTES, S3);
        assert!((1_170..1_190).contains(&forecast.takes.0), "{forecast:?}");
        // What a dump takes that stores nothing: the requests and what is beside them.
        assert_eq!(rates(36e6).forecast(0, S3).takes, Millis(3 * 20 + BESIDE.0));
    }

    #[test]
    fn forecast_never_falls_when_the_state_grows() {
        let slow = DumpRates { request: Millis(1000), ..rates(4e9) };
        for rates in [rates(36e6), rates(4e9), slow] {
            let takes = |bytes| rates.forecast(bytes, S3).takes;
            for packs in 0..4 {
                let edge = packs * PACK_BYTES;
                let sizes = [edge, edge + 1, edge + CHUNK_BYTES as u64, edge + PACK_BYTES / 2];
                assert!(sizes.map(takes).is_sorted(), "{rates:?} at {packs}");
                assert!(takes(edge + PACK_BYTES / 2) <= takes(edge + PACK_BYTES));
            }
            let largest = rates.largest(Millis(30_000));
            let choice = |bytes| NoticeChoice::of(takes(bytes), Millis(30_000));
            assert_eq!(choice(largest), NoticeChoice::Dump);
            assert_eq!(choice(largest + 1), NoticeChoice::KeepLast);
        }
    }

    #[test]
    fn packs_cost_few_requests() {
        let forecast = rates(36e6).forecast(7_750_000_000, S3);
        assert_eq!(forecast.requests, 231 + 2);
        assert!(forecast.request_dollars < 0.0012, "{forecast:?}");
        assert!((0.178..0.179).contains(&forecast.month_dollars), "{forecast:?}");
        let copied = forecast.copied_to_a_bucket(S3);
        assert_eq!((copied.requests, copied.takes), (3 * 232, forecast.takes));
        assert!((0.0034..0.0035).contains(&copied.request_dollars), "{copied:?}");
        // One for each 8 MiB, and not more.
        assert!(copied.requests <= 7_750_000_000 / (8 << 20), "{copied:?}");
    }

    #[test]
    fn dump_is_begun_only_if_it_ends_in_time() {
        assert_eq!(NoticeChoice::of(Millis(24_000), Millis(30_000)), NoticeChoice::Dump);
        assert_eq!(NoticeChoice::of(Millis(24_001), Millis(30_000)), NoticeChoice::KeepLast);
        assert_eq!(NoticeChoice::of(Millis(u64::MAX), Millis(30_000)), NoticeChoice::KeepLast);
    }

    #[test]
    fn dump_under_way_goes_on_if_its_rest_ends_in_time() {
        let of = |elapsed, left| UnderWayChoice::of(Millis(20_000), Millis(elapsed), Millis(left));
        let go_on = |within| UnderWayChoice::GoOn { within: Millis(within) };
        // A rest of 5 s, with the margin 6.25 s. A whole dump would need 25 s.
        assert_eq!(of(15_000, 6250), go_on(6250));
        assert_eq!(of(15_000, 6249), UnderWayChoice::GiveUp);
        assert_eq!(of(0, 25_000), go_on(25_000));
        assert_eq!(of(0, 24_999), UnderWayChoice::GiveUp);
        // It is waited for until it is overdue, though more time is left.
        assert_eq!(of(15_000, 100_000), go_on(10_000));
        assert_eq!(of(24_999, 100_000), go_on(1));
        assert_eq!(of(24_999, 0), go_on(0));
    }

    #[test]
    fn dump_that_is_overdue_makes_room_for_another_one_that_fits() {
        let of = |elapsed, left| UnderWayChoice::of(Millis(20_000), Millis(elapsed), Millis(left));
        assert_eq!(of(25_000, 25_000), UnderWayChoice::BeginAgain);
        assert_eq!(of(u64::MAX, u64::MAX), UnderWayChoice::BeginAgain);
        assert_eq!(of(25_000, 24_999), UnderWayChoice::GoOn { within: Millis(24_999) });
        let endless = UnderWayChoice::of(Millis(u64::MAX), Millis(0), Millis(30_000));
        assert_eq!(endless, UnderWayChoice::GiveUp);
    }

    #[test]
    fn largest_state_is_the_one_at_the_edge() {
        let (rates, notice) = (rates(36e6), Millis(30_000));
        let largest = rates.largest(notice);
        assert!((800_000_000..900_000_000).contains(&largest), "{largest}");
        let choice = |bytes| NoticeChoice::of(rates.forecast(bytes, S3).takes, notice);
        assert_eq!(choice(largest), NoticeChoice::Dump);
        assert_eq!(choice(largest + 1_000_000), NoticeChoice::KeepLast);
        assert_eq!(rates.largest(Millis(0)), 0);
    }
}
