//! The mechanism that meets notices, as the command line names it.

use std::fmt;

use sanderling_core::Mechanism;
use serde::{Deserialize, Serialize};

/// How a cluster handles notices.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub enum PolicyName {
    /// Fence at once, push many blocks straight to planned targets
    Sanderling,
    /// Baseline of experiments: one block at a time through the relocator, writes wait
    Seed,
}

impl fmt::Display for PolicyName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Sanderling => "sanderling",
            Self::Seed => "seed",
        })
    }
}

impl From<PolicyName> for Mechanism {
    fn from(name: PolicyName) -> Self {
        match name {
            PolicyName::Sanderling => Self::Sanderling,
            PolicyName::Seed => Self::Baseline,
        }
    }
}
