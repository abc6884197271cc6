//! Keeps a dumped task frozen until the last of its images was read.
//!
//! CRIU moves a task's pages into pipes without a copy: what waits in a pipe is still the memory of
//! the task. A task that goes on before the pipe is read changes its own checkpoint. CRIU runs a
//! script when it has written everything, before it lets the task go on; the script waits here.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use sanderling_command::failure::Failure;

/// Files in the directory of a dump: the script, the pipe into which it writes when all is written,
/// and the one that it cannot open before [`DumpGate::open`].
const SCRIPT: &str = "script";
const WRITTEN: &str = "written";
const GATE: &str = "gate";

/// The gate of one dump.
#[derive(Debug)]
pub(crate) struct DumpGate {
    directory: PathBuf,
    /// It can be read once CRIU has written everything.
    pub(crate) written: File,
    opened: OnceLock<File>,
}

impl DumpGate {
    /// Makes a gate in the directory of a dump.
    ///
    /// # Errors
    /// Its files cannot be made.
    pub(crate) fn new(directory: &Path) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::file(directory, error);
        for name in [WRITTEN, GATE] {
            let mode = Mode::RUSR | Mode::WUSR;
            let made = mknodat(CWD, directory.join(name), FileType::Fifo, mode, 0);
            made.map_err(|error| failed(error.into()))?;
        }
        // The directory is that of the script, whatever its name has in it.
        let text = format!(
            "#!/bin/sh\n[ \"$CRTOOLS_SCRIPT_ACTION\" = post-dump ] || exit 0\n\
             cd \"${{0%/*}}\" && echo >{WRITTEN} && : <{GATE}\n"
        );
        let script = directory.join(SCRIPT);
        std::fs::write(&script, text).map_err(failed)?;
        let mode = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(&script, mode).map_err(failed)?;
        let written = both_ends(&directory.join(WRITTEN)).map_err(failed)?;
        Ok(Self { directory: directory.to_owned(), written, opened: OnceLock::new() })
    }

    /// Returns the options of CRIU with which it stops here.
    pub(crate) fn options(directory: &Path) -> [String; 2] {
        ["--action-script".to_owned(), directory.join(SCRIPT).display().to_string()]
    }

    /// Lets the task go on, also if CRIU comes here later, as long as this is not dropped.
    pub(crate) fn open(&self) {
        if let Ok(gate) = both_ends(&self.directory.join(GATE)) {
            // It may be open.
            let _ = self.opened.set(gate);
        }
    }
}

/// Opens both ends of a pipe with a name, so that neither side waits for the other one.
fn both_ends(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}
