//! Clocks that are wrong: a library that programs are started with, set by a file for each clock.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::cluster::tasks::library;

/// A clock of its own; another program than those that are started with it is not affected.
pub(crate) struct Clock {
    directory: TempDir,
    library: PathBuf,
}

impl Clock {
    /// Builds the library; `None` where no C compiler is.
    pub(crate) fn ahead_by_hours(hours: i64) -> Option<Self> {
        let directory = TempDir::new().expect("a directory");
        let library = library(directory.path(), include_str!("clock.c"))?;
        let clock = Self { directory, library };
        fs::write(clock.seconds(), 0_i64.to_ne_bytes()).expect("a file");
        clock.set_hours(hours);
        Some(clock)
    }

    /// Lets it jump: so many hours ahead of the true time, behind if negative.
    pub(crate) fn set_hours(&self, hours: i64) {
        self.set_seconds(hours * 3600);
    }

    /// The same in seconds.
    pub(crate) fn set_seconds(&self, seconds: i64) {
        let file = fs::OpenOptions::new().write(true).open(self.seconds());
        let written = file.and_then(|it| it.write_all_at(&seconds.to_ne_bytes(), 0));
        written.expect("the clock can be set");
    }

    /// Returns what a program with this clock finds in its environment.
    pub(crate) fn variables(&self) -> Vec<(&'static str, PathBuf)> {
        vec![("LD_PRELOAD", self.library.clone()), ("WRONG_CLOCK", self.seconds())]
    }

    fn seconds(&self) -> PathBuf {
        self.directory.path().join("seconds")
    }
}
