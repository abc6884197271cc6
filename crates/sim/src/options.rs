//! What goes into a run and what comes out of it.

use std::fmt;

use crate::InjectedBug;

/// How a run is made. The same seed with the same options is the same run.
#[derive(Debug, Clone)]
pub struct Options {
    /// an injected bug, to show that a checker sees it.
    pub bug: Option<InjectedBug>,
    /// Whether the runs are of groups of namenodes alone, without datanodes.
    pub groups: bool,
    /// Objects that the clients write, and as many reads and changes of names.
    pub steps: u32,
    /// Whether a violation is run again with fewer faults, until no more can be left out.
    pub minimise: bool,
    /// Whether the event log is kept as text even when nothing is wrong.
    pub keep_events: bool,
}

impl Default for Options {
    fn default() -> Self {
        // Enough for several drains and restarts within one run, little enough for thousands of
        // runs in a minute.
        Self { bug: None, groups: false, steps: 24, minimise: true, keep_events: false }
    }
}

/// What came of one run of a seed. The same seed with the same options gives the same outcome.
#[derive(Debug, Clone)]
pub struct RunOutcome {
    /// The seed.
    pub seed: u64,
    /// The first promise that was seen broken.
    pub violation: Option<Violation>,
    /// What happened in the run.
    pub statistics: Statistics,
    /// A hash of the whole event log: the same seed gives the same run.
    pub digest: u64,
    /// The event log as text, if the options have it kept.
    pub events: Vec<String>,
}

/// A promise that a run has broken, with the events that show it. Run the seed again with the same
/// options to see it again.
#[derive(Debug, Clone)]
pub struct Violation {
    /// The checker that saw it.
    pub checker: &'static str,
    /// What it saw.
    pub message: String,
    /// The shortest event log found that shows it.
    pub events: Vec<String>,
}

/// Counts of one run, or of many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names state what is counted")]
pub struct Statistics {
    pub virtual_millis: u64,
    pub events: u64,
    pub commands: u64,
    pub notices: u64,
    pub kills: u64,
    pub namenode_restarts: u64,
    pub lost_ends: u64,
    pub moved_blocks: u64,
    pub copied_blocks: u64,
    pub promoted_blocks: u64,
    pub rebalanced_blocks: u64,
    pub lost_blocks: u64,
    pub writes: u64,
    pub failed_writes: u64,
    pub reads: u64,
    pub failed_reads: u64,
    pub checks: u64,
    pub histories: u64,
    pub histories_unjudged: u64,
    /// Reports of clients that a node did not answer.
    pub suspicions: u64,
    /// Frames with several requests.
    pub frames: u64,
    /// Slices in which more of what was deleted was freed.
    pub reaped_slices: u64,
    /// Frames of reads that took several slices, and their slices.
    pub long_frames: u64,
    pub slices: u64,
    /// Frames with large answers that waited until others were done.
    pub parked_frames: u64,
    /// Frames, or parts of them, that were refused because a queue was full.
    pub refused_frames: u64,
    /// Frames of changes that were made when they arrived.
    pub made_frames: u64,
    /// Batches that left frames of changes for the next one.
    pub full_batches: u64,
    /// Leaders of the group of namenodes.
    pub elections: u64,
    /// Rounds that the group acknowledged.
    pub rounds: u64,
    /// Reads that a leader answered under its lease.
    pub lease_reads: u64,
    /// Calls of the group's callers that were answered.
    pub group_calls: u64,
}

impl Statistics {
    /// Adds the counts of another run to these, each to its own.
    pub fn add(&mut self, other: &Self) {
        self.virtual_millis += other.virtual_millis;
        self.events += other.events;
        self.commands += other.commands;
        self.notices += other.notices;
        self.kills += other.kills;
        self.namenode_restarts += other.namenode_restarts;
        self.lost_ends += other.lost_ends;
        self.moved_blocks += other.moved_blocks;
        self.copied_blocks += other.copied_blocks;
        self.promoted_blocks += other.promoted_blocks;
        self.rebalanced_blocks += other.rebalanced_blocks;
        self.lost_blocks += other.lost_blocks;
        self.writes += other.writes;
        self.failed_writes += other.failed_writes;
        self.reads += other.reads;
        self.failed_reads += other.failed_reads;
        self.checks += other.checks;
        self.histories += other.histories;
        self.histories_unjudged += other.histories_unjudged;
        self.suspicions += other.suspicions;
        self.frames += other.frames;
        self.reaped_slices += other.reaped_slices;
        self.long_frames += other.long_frames;
        self.slices += other.slices;
        self.parked_frames += other.parked_frames;
        self.refused_frames += other.refused_frames;
        self.made_frames += other.made_frames;
        self.full_batches += other.full_batches;
        self.elections += other.elections;
        self.rounds += other.rounds;
        self.lease_reads += other.lease_reads;
        self.group_calls += other.group_calls;
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.checker, self.message)
    }
}
