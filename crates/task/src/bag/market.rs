//! The market in which a machine is paid, in options and records.

use clap::ValueEnum;
use sanderling_core::checkpoint::Market;
use serde::{Deserialize, Serialize};

/// How a machine is paid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum MarketArg {
    /// Cheap, and taken at any time
    Spot,
    /// Kept until it is given back
    OnDemand,
}

impl From<MarketArg> for Market {
    fn from(market: MarketArg) -> Self {
        match market {
            MarketArg::Spot => Self::Spot,
            MarketArg::OnDemand => Self::OnDemand,
        }
    }
}
