//! How many of the process's descriptors connections may hold.

use rustix::process::{Resource, getrlimit};

/// Descriptors with which a server's connections have their constant bounds. With fewer, their
/// bounds are shares of the descriptors. The share of admitted connections, a quarter, reaches its
/// bound of 4,096 last: at 16,384 descriptors.
pub const DESCRIPTORS_WANTED: u64 =
    DescriptorShares::QUARTER * DescriptorShares::ADMITTED_MAX as u64;

/// The most connections of one listener, by the descriptors that the process may have open.
///
/// A listener of the protocol and one of HTTP together leave a quarter of them to files and to what
/// the process connects to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DescriptorShares {
    /// Connections of the protocol whose caller has not been admitted.
    pub(crate) unadmitted: usize,
    /// Connections of the protocol whose caller has been admitted.
    pub(crate) admitted: usize,
    /// Connections of HTTP, followers apart.
    pub(crate) http: usize,
    /// Connections of HTTP whose answer has no end.
    pub(crate) followers: usize,
}

impl DescriptorShares {
    /// What the descriptors are divided by for connections of the protocol: unadmitted and admitted
    /// ones have a quarter each, so that a quarter is left beside those of HTTP.
    const QUARTER: u64 = 4;

    /// The same for connections of HTTP and for followers, which have an eighth each.
    const EIGHTH: u64 = 8;

    /// Connections of the protocol that are not admitted: as many as come at once when a fleet of a
    /// thousand begins again. With TLS, one that holds back the end of its greeting costs 30 KiB.
    const UNADMITTED_MAX: usize = 1024;

    /// Connections of the protocol that are admitted. It bounds what they take that is not counted,
    /// beside their tasks: 4 KiB for requests, 8.5 KiB for the next answers and 2 KiB of requests
    /// that wait: 58 MiB. An answer that the peer does not take keeps its short parts beside that.
    const ADMITTED_MAX: usize = 4096;

    /// Connections of HTTP: of operators and scrapers, of which a cluster has some ten. Chosen, not
    /// measured.
    const HTTP_MAX: usize = 256;

    /// Followers of events: operators, and programs that follow events rather than poll. Each gets
    /// every event, so they are half of [`Self::HTTP_MAX`]. Chosen, not measured.
    const FOLLOWERS_MAX: usize = 128;

    /// Returns the shares of this process, by its limit now.
    pub(crate) fn of_process() -> Self {
        Self::of(getrlimit(Resource::Nofile).current)
    }

    /// Returns the shares of a process that may have so many descriptors open; `None` for any
    /// number.
    fn of(descriptors: Option<u64>) -> Self {
        let share = |divisor: u64, max: usize| {
            let part = descriptors.and_then(|limit| usize::try_from(limit / divisor).ok());
            part.unwrap_or(max).clamp(1, max)
        };
        Self {
            unadmitted: share(Self::QUARTER, Self::UNADMITTED_MAX),
            admitted: share(Self::QUARTER, Self::ADMITTED_MAX),
            http: share(Self::EIGHTH, Self::HTTP_MAX),
            followers: share(Self::EIGHTH, Self::FOLLOWERS_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(descriptors: Option<u64>) -> [usize; 4] {
        let shares = DescriptorShares::of(descriptors);
        [shares.unadmitted, shares.admitted, shares.http, shares.followers]
    }

    #[test]
    fn quarter_of_few_descriptors_stays_for_files() {
        assert_eq!(shares(Some(128)), [32, 32, 16, 16]);
        assert_eq!(shares(Some(1024)), [256, 256, 128, 128]);
        for descriptors in [64, 100, 256, 1300, 4095] {
            let taken: usize = shares(Some(descriptors)).iter().sum();
            assert!(taken as u64 <= descriptors * 3 / 4, "{taken} of {descriptors}");
        }
    }

    #[test]
    fn bounds_are_the_constants_with_many_descriptors_and_never_zero() {
        assert_eq!(shares(Some(4096)), [1024, 1024, 256, 128]);
        assert_eq!(shares(Some(DESCRIPTORS_WANTED - 1)), [1024, 4095, 256, 128]);
        for many in [Some(DESCRIPTORS_WANTED), Some(524_288), Some(u64::MAX), None] {
            assert_eq!(shares(many), [1024, 4096, 256, 128], "{many:?}");
        }
        assert_eq!(shares(Some(3)), [1, 1, 1, 1]);
    }
}
