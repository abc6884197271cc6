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
    #[serde(alias = "seed")]
    #[value(alias = "seed")]
    Baseline,
}

impl fmt::Display for PolicyName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Sanderling => "sanderling",
            Self::Baseline => "baseline",
        })
    }
}

impl From<PolicyName> for Mechanism {
    fn from(name: PolicyName) -> Self {
        match name {
            PolicyName::Sanderling => Self::Sanderling,
            PolicyName::Baseline => Self::Baseline,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn earlier_name_of_the_baseline_is_read_and_never_written() {
        for name in ["baseline", "seed"] {
            assert_eq!(PolicyName::from_str(name, false).as_ref(), Ok(&PolicyName::Baseline));
            let read: PolicyName = serde_json::from_value(name.into()).unwrap();
            assert_eq!(read, PolicyName::Baseline);
        }
        assert_eq!(PolicyName::Baseline.to_string(), "baseline");
        assert_eq!(serde_json::to_value(PolicyName::Baseline).unwrap(), "baseline");
    }
}
