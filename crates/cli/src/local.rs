//! `sanderling local`: a cluster on this machine, in the background.

mod keys;
mod lock;
mod record;
mod start;
mod status;
mod stop;

use std::path::PathBuf;

use crate::args::Global;
use crate::args::local::{Local, Place};
use crate::failure::Failure;
use crate::output::Output;

/// Runs `sanderling local ...`.
///
/// # Errors
/// See each command.
pub(crate) fn run(global: &Global, command: Local) -> Result<(), Failure> {
    let output = Output { is_json: global.json, is_quiet: global.quiet };
    match command {
        Local::Start(args) => start::run(global, output, &args),
        Local::Stop(place) => stop::run(global, output, &place),
        Local::Status(place) => status::run(output, &place),
    }
}

/// Returns the cluster's directory.
///
/// # Errors
/// Usage (2) when there is no home directory to default to.
pub(crate) fn directory(place: &Place) -> Result<PathBuf, Failure> {
    if let Some(directory) = &place.directory {
        return std::path::absolute(directory).map_err(|error| Failure::file(directory, &error));
    }
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let state = variable("XDG_STATE_HOME")
        .map(PathBuf::from)
        .or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".local").join("state")));
    state.map(|state| state.join("sanderling").join("local")).ok_or_else(|| {
        Failure::usage("there is neither HOME nor XDG_STATE_HOME").next("the same with --dir D")
    })
}
