//! How states are stored: ours, and the baseline of experiments.

use clap::ValueEnum;

/// How states are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DumpPolicy {
    /// What is new, compressed
    Sanderling,
    /// Baseline of experiments: everything, uncompressed; the task waits until the backend has it,
    /// and the oldest of --keep checkpoints is removed before
    #[value(alias = "seed")]
    Baseline,
}
