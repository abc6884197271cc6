//! The options of measured checkpoints.

use clap::Args;

use super::real_store::RealStoreUrl;
use crate::units::Size;

/// The options of measurements.
#[derive(Debug, Clone, Args)]
pub(crate) struct MeasureArgs {
    /// Measure real dumps and restores, of the baseline and ours, with emulated stores,
    /// instead of replaying tasks
    #[arg(long)]
    pub(crate) measure: bool,
    /// Sizes of the dumped tasks' memory, the smallest first [default: 140MB,546MB,1024MB; with
    /// --quick 16MB]
    #[arg(long, value_name = "SIZES", value_delimiter = ',', requires = "measure")]
    pub(crate) sizes: Vec<Size>,
    /// Rounds: each measures every case of both policies [default: 5; with --quick 1]
    #[arg(long, value_name = "N", requires = "measure",
          value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) rounds: Option<u32>,
    /// By which factor the run of 20 minutes, its interval of 5 minutes and its state of 7,750 MB
    /// are smaller [default: 20; with --quick 200]
    #[arg(long, value_name = "FACTOR", requires = "measure")]
    pub(crate) scale: Option<f64>,
    /// Measure with a real S3 server, too: s3://BUCKET/PREFIX, with `AWS_ENDPOINT_URL`,
    /// `AWS_REGION` and the keys in the environment. Nothing may be below the prefix; what the lab
    /// writes there, it removes
    #[arg(long, value_name = "URL", requires = "measure")]
    pub(crate) store: Option<RealStoreUrl>,
    /// Only check that everything works
    #[arg(long, requires = "measure")]
    pub(crate) quick: bool,
}
