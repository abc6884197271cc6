//! What a member is started with.

use sanderling_protocol::{ClusterId, MemberId, Millis};

use super::entry::{LogEntry, LogPlace, Vote};
use super::group::Group;

/// Elections in a row for which a member that no leader reaches relies on what it has applied. One
/// that finds a leader is the rule; a few that find none are possible while members start or
/// machines are busy. Chosen, not measured.
const FRESH_ELECTIONS: u64 = 6;

/// The options of a member. All members of a group have the same times.
#[derive(Debug, Clone)]
pub struct ReplicaOptions {
    /// The cluster. Messages of another are refused.
    pub cluster: ClusterId,
    /// Which founding of the group it is of. Messages of another are refused.
    pub generation: u64,
    /// This member.
    pub id: MemberId,
    /// Counts the starts of this member; the shell stores it before the first message. Messages
    /// of an earlier start are refused.
    pub incarnation: u64,
    /// Draws the times of elections; other than the other members'.
    pub seed: u64,
    /// The unit of time of the machine. A process that stops for less is not missed.
    pub tick: Millis,
    /// Ticks between heartbeats of a leader without rounds.
    pub heartbeat_ticks: usize,
    /// Ticks without the leader after which a member may look for another; up to twice as many
    /// pass before it does. A leader without a majority steps down after as many. Must be well
    /// above what a sync of the log or a pause of a process takes.
    pub election_ticks: usize,
    /// By how many thousandths two members' clocks may run apart. NTP corrects by at most half of
    /// one; virtual machines have been seen at ten.
    pub drift_permille: u64,
    /// Bytes of rounds that the leader takes before they are agreed. More are refused.
    pub uncommitted_bytes_max: u64,
    /// Bytes of applied rounds in memory, for members that lag. One that lags more gets a snapshot.
    pub retained_bytes_max: u64,
}

impl ReplicaOptions {
    /// Returns the options of a member, with the times and bounds of the product.
    #[must_use]
    pub const fn new(cluster: ClusterId, id: MemberId, seed: u64) -> Self {
        Self {
            cluster,
            generation: 0,
            id,
            incarnation: 1,
            seed,
            // A leader that was killed is followed within 0.4 to 0.8 s and a few round trips.
            tick: Millis(20),
            heartbeat_ticks: 3,
            election_ticks: 20,
            drift_permille: 50,
            // As much as a link of 1 Gbit/s carries in half a second.
            uncommitted_bytes_max: 64 << 20,
            retained_bytes_max: 64 << 20,
        }
    }

    /// Returns for how long a round that a majority has answered allows reads.
    pub(super) const fn lease(&self) -> Millis {
        let permille = 1000_u64.saturating_sub(self.drift_permille);
        Millis(self.promise().0 * permille / 1000)
    }

    /// Returns for how long a member relies on what it has applied after that was all that is
    /// agreed: six times the longest time to an election, 4.8 s with the product's times.
    pub(super) const fn fresh(&self) -> Millis {
        Millis(FRESH_ELECTIONS * 2 * self.election_ticks as u64 * self.tick.0)
    }

    /// Returns for how long a member that has received a leader's message helps no other.
    pub(super) const fn promise(&self) -> Millis {
        // The first tick after the message may come at once.
        Millis((self.election_ticks as u64 - 1) * self.tick.0)
    }
}

/// The content of a member's directory at its start. Empty for a process that joins.
#[derive(Debug, Clone, Default)]
pub struct Restored {
    /// The vote, as last written.
    pub vote: Vote,
    /// The last entry before the log's first: that of the snapshot, or later.
    pub start: LogPlace,
    /// The members as of `start`.
    pub group: Group,
    /// The log from `start` on, without gaps.
    pub entries: Vec<LogEntry>,
    /// The last entry that the shell has applied already, at least `start.index`.
    pub applied: u64,
}

impl Restored {
    /// Returns what the first member of a group starts with: the catalog that is there counts as
    /// the first entry.
    #[must_use]
    pub fn first(group: Group) -> Self {
        let start = LogPlace { term: 1, index: 1 };
        let vote = Vote { term: 1, candidate: None, committed: 1 };
        Self { vote, start, group, entries: Vec::new(), applied: 1 }
    }
}
