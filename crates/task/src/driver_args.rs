//! Which driver takes checkpoints, as the command line names it.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use rustix::process::geteuid;
use sanderling_command::failure::Failure;
use sanderling_command::units::Size;

use crate::criu::Criu;

/// Where CRIU is searched for.
const PROGRAM: &str = "criu";

/// The driver and its options.
#[derive(Debug, Clone, Args)]
pub(crate) struct DriverArgs {
    /// What takes checkpoints: the task at a signal (hook), CRIU, or CRIU where it can be used and
    /// the task does not handle the signal (auto)
    #[arg(long, value_name = "DRIVER", default_value = "auto")]
    pub(crate) driver: DriverArg,
    /// The program of CRIU [default: criu in PATH]
    #[arg(long, value_name = "PATH", env = "SANDERLING_CRIU", hide_env_values = true)]
    pub(crate) criu: Option<PathBuf>,
    /// The network of a task with CRIU: that of this machine, or its own with a loopback interface
    /// alone, whose connections are part of the checkpoint
    #[arg(long, value_name = "NETWORK", default_value = "host")]
    pub(crate) network: NetworkArg,
    /// Take file locks into checkpoints of CRIU; no other process may use them
    #[arg(long)]
    pub(crate) file_locks: bool,
    /// Memory for images of CRIU that wait to be packed, at least 4MiB: with more, the task stands
    /// still for a shorter time [default: a quarter of what is available, at most 1GiB]
    #[arg(long, value_name = "SIZE")]
    pub(crate) image_memory: Option<Size>,
}

/// A driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DriverArg {
    Auto,
    Hook,
    Criu,
}

/// The network of a task with CRIU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum NetworkArg {
    Host,
    Own,
}

impl DriverArgs {
    /// Returns CRIU if tasks are to be started so that it can dump them.
    ///
    /// # Errors
    /// It is required and cannot be used.
    pub(crate) fn criu(&self) -> Result<Option<Criu>, Failure> {
        let program = self.criu.as_deref().unwrap_or(Path::new(PROGRAM));
        match self.driver {
            DriverArg::Hook => Ok(None),
            DriverArg::Criu => Criu::probe(program).map(Some),
            DriverArg::Auto if geteuid().is_root() => Ok(Criu::probe(program).ok()),
            DriverArg::Auto => Ok(None),
        }
    }
}

/// Returns the release of CRIU on this machine, for `doctor`.
///
/// # Errors
/// It cannot be used, or is not installed: take the failure's next step, or use the hook.
pub fn usable_criu() -> Result<String, Failure> {
    let program = std::env::var_os("SANDERLING_CRIU").map_or_else(|| PROGRAM.into(), PathBuf::from);
    Ok(Criu::probe(&program)?.version().to_string())
}
