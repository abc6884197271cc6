//! Faults of some files of a server alone, by the begin of their names.

use std::path::{Path, PathBuf};

use crate::disk::Disks;
pub(crate) use crate::disk::Faults as FileFaults;

/// The name of the switch.
const NAME: &str = "files";

/// The library and its switch.
#[derive(Debug)]
pub(crate) struct FaultyFiles {
    disks: Disks,
    begin: &'static str,
}

impl FaultyFiles {
    /// Builds the library for files whose names begin so; `None` where no C compiler is.
    pub(crate) fn build(directory: &Path, begin: &'static str) -> Option<Self> {
        Some(Self { disks: Disks::build(directory)?, begin })
    }

    /// Returns what a server finds in its environment.
    pub(crate) fn variables(&self) -> Vec<(&'static str, PathBuf)> {
        self.disks.variables_of(NAME, "FAULTY_BEGIN", self.begin.into())
    }

    /// Switches the faults.
    pub(crate) fn set(&self, faults: FileFaults) {
        self.disks.set(NAME, faults);
    }
}
