//! This program, as a runner starts it again beside itself.

use std::os::fd::IntoRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::{Mode, OFlags, open};
use sanderling_command::failure::Failure;
use sanderling_command::process;

/// The program of the process that reads it, also where its file has got another name or another
/// content since, as by an upgrade.
const OWN: &str = "/proc/self/exe";

/// The name that the program has in the list of processes, instead of [`OWN`].
pub(crate) const NAME: &str = "sanderling";

/// Returns the command that runs this very program again. A variable of the environment that names
/// another one counts, as in [`process::program`].
///
/// # Errors
/// As [`process::program`].
pub(crate) fn own_program() -> Result<Command, Failure> {
    if is_other() {
        return process::program();
    }
    let mut command = Command::new(OWN);
    command.arg0(NAME);
    Ok(command)
}

/// Returns the command that runs this very program from the one that this process becomes: its
/// descriptor stays open there, until the program that has it closes it.
///
/// # Errors
/// As [`process::program`].
pub(crate) fn inherited_program() -> Result<Command, Failure> {
    match open(OWN, OFlags::PATH, Mode::empty()) {
        Ok(opened) if !is_other() => {
            Ok(Command::new(format!("/proc/self/fd/{}", opened.into_raw_fd())))
        }
        _ => process::program(),
    }
}

/// Returns whether a variable of the environment names the program.
fn is_other() -> bool {
    std::env::var_os(process::PROGRAM).is_some_and(|words| !words.is_empty())
}
