//! Injected bugs. Each is made by the simulated shells around `core`, never in it, and each
//! is one that a checker must see.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

macro_rules! variants {
    ($( $name:ident, $text:literal, $checker:literal, $about:literal; )*) => {
        /// A bug that a run injects on purpose.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "described by `describe`")]
        pub enum InjectedBug { $( $name, )* }

        impl InjectedBug {
            /// Every variant.
            pub const ALL: &'static [Self] = &[ $( Self::$name, )* ];

            /// Returns the variant's name on the command line.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $( Self::$name => $text, )* }
            }

            /// Returns one line about what the bug makes wrong.
            #[must_use]
            pub const fn describe(self) -> &'static str {
                match self { $( Self::$name => $about, )* }
            }

            /// Returns the name of the checker that must find the bug.
            #[must_use]
            pub const fn checker(self) -> &'static str {
                match self { $( Self::$name => $checker, )* }
            }
        }
    };
}

variants! {
    FenceOff, "fence-off", "fence",
        "datanodes acknowledge fences and pushes but go on taking writes";
    CommitWithoutCompare, "commit-without-compare", "bytes",
        "the namenode commits moves without comparing epochs and reservations";
    PlaceOnDraining, "place-on-draining", "placement",
        "new blocks are placed on draining nodes";
    LateCommit, "late-commit", "loss-is-final",
        "a commit that arrives after its block was declared lost brings the block back";
    DeadlineIgnored, "deadline-ignored", "deadline",
        "the namenode does not act when a notice's deadline passes";
    EpochReused, "epoch-reused", "epochs-rise",
        "a restarted namenode forgets its last reservations and gives their epochs out again";
    JournalEntryDropped, "journal-entry-dropped", "replay",
        "the last record of the journal is lost when the namenode is killed";
    WriteAfterMoved, "write-after-moved", "bytes",
        "writers take a fence's refusal for an acknowledgement";
    ReadIgnoresEpoch, "read-ignores-epoch", "read-epoch",
        "readers take the bytes of any epoch";
    CapacityIgnored, "capacity-ignored", "capacity",
        "nodes are taken for larger than they are, by the namenode and by themselves";
    LeaseNotFenced, "lease-not-fenced", "lease",
        "an ended lease is closed without fencing its blocks at the datanodes";
    DropForgotten, "drop-forgotten", "orphans",
        "datanodes keep blocks that they were ordered to drop";
    StaleIncarnation, "stale-incarnation", "one-home",
        "datanodes answer requests meant for another process at their address";
    LossNotReported, "loss-not-reported", "loss-report",
        "the last loss is left out of the loss report";
    KeyValueVanishes, "key-value-vanishes", "names",
        "a key-value is sealed and acknowledged, and is not there afterwards";
    SecondWriter, "second-writer", "lease",
        "a second writer's append is taken for a repetition of the first's";
    PromotionKeepsEpoch, "promotion-keeps-epoch", "epochs-rise",
        "a copy that becomes the home is reported at the epoch that the old home had";
    StaleCopy, "stale-copy", "copies",
        "a late commit of a copy is taken for one of the reservation that is there now";
    GoneCopyCounts, "gone-copy-counts", "exposure",
        "copies on nodes that drain or are gone count as if they saved their blocks";
    CopyUnused, "copy-unused", "copy-saves",
        "copies are dropped just before they are needed: at a notice and at a death";
    CopyDropForgotten, "copy-drop-forgotten", "orphans",
        "nodes are never ordered to drop the copies that they hold";
    OpenBlockRebalanced, "open-block-rebalanced", "pushes",
        "managers are granted copies and moves of blocks that are still written";
    ReserveOnDraining, "reserve-on-draining", "placement",
        "draining nodes are reserved as targets of moves and copies";
    ReservationKept, "reservation-kept", "reservations",
        "reservations without a drain are made again when they end by themselves";
    LaterNoticeWins, "later-notice-wins", "deadline",
        "of two notices to one node the later deadline holds";
    NeverCopied, "never-copied", "exposure-bound",
        "the manager makes no copies, however much a node has alone";
    NeverRebalanced, "never-rebalanced", "balance",
        "the manager leaves nodes as unequally full as they are";
    RoomKept, "room-kept", "room",
        "writers are refused for want of room that copies and reservations take";
    ConditionIgnored, "condition-ignored", "names",
        "an object takes its name whatever has it, though it was to be free or another's";
    PartsSwapped, "parts-swapped", "bytes",
        "a file of many parts has them in another order than requested";
    AbsenceCounted, "absence-counted", "absence",
        "the time in which the namenode was stopped counts against leases and times to live";
    BalanceIntoDrain, "balance-into-drain", "drains-first",
        "the manager moves bytes for balance over the links that a drain uses";
    ChangedTwice, "changed-twice", "once",
        "a change that arrives again is made again";
    ReserveIgnored, "reserve-ignored", "departures",
        "the namenode lets writers use the room that is kept for nodes that leave";
    NoticeForgotten, "notice-forgotten", "notice-kept",
        "datanodes send a notice once, whether or not the namenode has it afterwards";
    DamageServed, "damage-served", "bytes",
        "datanodes serve ranges of blocks whose bytes have changed";
    DamageUndeclared, "damage-undeclared", "damage-declared",
        "datanodes find damaged and missing blocks and report none";
    StaleRead, "stale-read", "linearizable",
        "the namenode answers reads of names with what was there a while ago";
    NumbersReused, "numbers-reused", "numbers",
        "a start goes on with the numbers that its log ends with, whatever the log has lost";
    LostEndIgnored, "lost-end-ignored", "log-lost-told",
        "the namenode ignores the log position that a datanode sends";
    OrphansDropped, "orphans-dropped", "orphans-kept",
        "datanodes drop at once what the namenode's log does not have, whatever it has lost";
    TermIgnored, "term-ignored", "log-lost-told",
        "of the log position that a datanode sends only the number of commands is compared";
    ClockStepTaken, "clock-step-taken", "clock",
        "a start takes the machine's clock as it is, whatever the time of the log's last command";
    LiveNodeIgnored, "live-node-ignored", "live-node",
        "neither heartbeats nor answered probes count: nodes that are there are declared dead";
    OldFormatMisread, "old-format-misread", "replay",
        "snapshots are completed as if they were of the format before, without what is new";
    PushesEmptied, "pushes-emptied", "notices-lose-nothing",
        "with nothing but notices, managers order nodes that leave to push nothing";
    FailureFinal, "failure-final", "calls-succeed",
        "readers give up at the first failure";
    FenceUnanswered, "fence-unanswered", "convergence",
        "datanodes do not answer orders to fence the blocks of leases that have ended";
    LeaseOutlived, "lease-outlived", "leader",
        "managers act until they are refused, though their lease has ended";
    PushesMixed, "pushes-mixed", "numbers",
        "datanodes push the bytes of one block under the number of another";
    ParkedForgotten, "parked-forgotten", "answered",
        "frames of reads that are set aside because their answers are large are forgotten";
    TurnKept, "turn-kept", "turns",
        "a frame of reads that has had a slice gets all others before another tenant has a turn";
    ChangeOvertakes, "change-overtakes", "turns",
        "of the frames of changes that one tenant has waiting the last goes first";
    ChangesUnshared, "changes-unshared", "turns",
        "the frames of changes of all tenants wait in one queue, in the order in which they came";
    SuspectBelieved, "suspect-believed", "live-node",
        "the namenode takes a client's report that a node did not answer for the node's end";
    SuspectIgnored, "suspect-ignored", "suspect-dialled",
        "the namenode ignores clients' reports that a node did not answer";
    AcknowledgedEarly, "acknowledged-early", "acknowledged",
        "a leader acknowledges a round when it has proposed it, before a majority has it";
    VoteForgotten, "vote-forgotten", "one-leader",
        "a member that starts again has forgotten its vote and its term";
    PausedLeaderAnswers, "paused-leader-answers", "lease-read",
        "a leader answers reads for as long as it has received nothing of another";
    LeaseKept, "lease-kept", "lease-read",
        "a leader answers reads by the lease that it had before it began a transfer";
    SpareCounted, "spare-counted", "agreed",
        "what a spare confirms counts as if a voter had confirmed it";
    TailNotCut, "tail-not-cut", "agreed",
        "a member keeps entries on its disk that were overruled";
    TimeStepped, "time-stepped", "group-time",
        "a new leader takes its machine's clock for the group's time";
    GapCounted, "gap-counted", "group-time",
        "a new leader counts the time without a leader against leases and times to live";
    RemovalUnreported, "removal-unreported", "group-converges",
        "members that were removed while they were cut off are not informed, nor send requests";
    AddressTwice, "address-twice", "one-address",
        "a member that lost its directory joins again without taking its old place";
    RiskForgotten, "risk-forgotten", "group-risk",
        "a new leader does not read from the log that an earlier one has reported a risk";
    ListIgnored, "list-ignored", "group-callers",
        "callers ignore the lists of members that they have requested";
    LifeIgnored, "life-ignored", "group-life",
        "leaders ignore how long the machines of the other members are expected to go on";
}

impl InjectedBug {
    /// Returns whether the bug is injected in the world of a group of namenodes.
    pub const fn is_of_group(self) -> bool {
        matches!(
            self,
            Self::AcknowledgedEarly
                | Self::VoteForgotten
                | Self::PausedLeaderAnswers
                | Self::LeaseKept
                | Self::SpareCounted
                | Self::TailNotCut
                | Self::TimeStepped
                | Self::GapCounted
                | Self::RemovalUnreported
                | Self::AddressTwice
                | Self::RiskForgotten
                | Self::ListIgnored
                | Self::LifeIgnored
        )
    }

    /// Returns whether the bug is injected around copies and what is moved without a notice.
    pub(crate) const fn is_about_copies(self) -> bool {
        matches!(
            self,
            Self::PromotionKeepsEpoch
                | Self::GoneCopyCounts
                | Self::CopyUnused
                | Self::CopyDropForgotten
                | Self::ReserveOnDraining
                | Self::ReservationKept
                | Self::LaterNoticeWins
        )
    }
}

/// The name of an injected bug that does not exist: choose one of `sanderling sim --bug list`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no injected bug is called {0:?}: see `--bug list`")]
pub struct UnknownInjectedBug(String);

impl FromStr for InjectedBug {
    type Err = UnknownInjectedBug;

    fn from_str(text: &str) -> Result<Self, UnknownInjectedBug> {
        let found = Self::ALL.iter().find(|variant| variant.name() == text);
        found.copied().ok_or_else(|| UnknownInjectedBug(text.to_owned()))
    }
}

impl fmt::Display for InjectedBug {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_has_its_own_name_and_is_found_by_it() {
        for variant in InjectedBug::ALL {
            assert_eq!(variant.name().parse(), Ok(*variant));
        }
        assert!("list".parse::<InjectedBug>().is_err());
    }
}
