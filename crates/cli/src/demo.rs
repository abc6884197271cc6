//! `sanderling demo`: the demonstration is a Python module; this finds and runs it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use clap::Args;

use crate::failure::{Exit, Failure, FailureKind};

/// `sanderling demo`.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Passed to the demonstration; --help lists its options
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    pub(crate) arguments: Vec<OsString>,
}

/// Replaces this process by the demonstration.
///
/// # Errors
/// Python or its package `sanderling` is not there.
pub(crate) fn run(arguments: impl IntoIterator<Item = OsString>) -> Result<(), Failure> {
    let python = std::env::var_os("SANDERLING_PYTHON").unwrap_or_else(|| "python3".into());
    let shown = python.to_string_lossy().into_owned();
    let probe = "import sys, importlib.util as i; sys.exit(0 if i.find_spec('sanderling') and \
                 i.find_spec('sanderling.demo') else 7)";
    let found = Command::new(&python)
        .args(["-c", probe])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let missing = |cause: String| {
        Failure::new(Exit::Failure, FailureKind::NoDemo, cause)
            .tried(format_args!("{shown}, from SANDERLING_PYTHON or python3"))
            .next("make demo, which builds the package, or pip install 'sanderling[demo]'")
    };
    match found {
        Err(error) => Err(missing(format!("{shown} cannot be run: {error}"))),
        Ok(status) if !status.success() => {
            Err(missing(format!("{shown} has no module sanderling.demo")))
        }
        Ok(_) => {
            let error =
                Command::new(&python).args(["-m", "sanderling.demo"]).args(arguments).exec();
            Err(missing(format!("{shown} cannot be run: {error}")))
        }
    }
}
