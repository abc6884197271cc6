//! What the manager does without a notice: flags of `sanderling namenode` and `manager`.

use clap::Args;
use sanderling_command::units::{Percent, Span};
use sanderling_core::background::{BackgroundConfig, PaceConfig};
use sanderling_protocol::Millis;

/// What moves in the background.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Background options")]
pub(crate) struct BackgroundArgs {
    /// Share of a node's link for copies and rebalancing without client traffic; a quarter of it
    /// under client load
    #[arg(long, value_name = "PERCENT", default_value = "20%")]
    pub(crate) background_share: Percent,
    /// How long a new node has less weight in the placement of new blocks; for moves twice as long.
    /// Rebalancing moves no block that changed within this time or 5 s, whichever is shorter
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    pub(crate) ramp_up: Span,
    /// Make no copies ahead of notices: bytes that cannot leave within a notice are lost
    #[arg(long)]
    pub(crate) no_precopy: bool,
    /// Move nothing between nodes that stay
    #[arg(long)]
    pub(crate) no_rebalance: bool,
}

impl BackgroundArgs {
    /// Returns how long a new node gets less than its share.
    pub(crate) fn ramp_up(&self) -> Millis {
        Millis(u64::try_from(self.ramp_up.0.as_millis()).unwrap_or(u64::MAX))
    }
}

impl From<&BackgroundArgs> for BackgroundConfig {
    fn from(args: &BackgroundArgs) -> Self {
        let mut pace = PaceConfig::of_share(args.background_share.0);
        pace.ramp = Millis(args.ramp_up().0.saturating_mul(2));
        let mut config = Self { pace, ..Self::default() };
        config.exposure.is_on = !args.no_precopy;
        config.rebalance.is_on = !args.no_rebalance;
        // A shorter limit also shortens the intervals that follow from it.
        config.rebalance.idle_min = config.rebalance.idle_min.min(args.ramp_up());
        config
    }
}
