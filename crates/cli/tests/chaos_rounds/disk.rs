//! Disks and files that fail: a library that servers are started with, switched by a file for each
//! of them.
#![allow(dead_code, reason = "each test program uses its part of it")]

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::cluster::tasks::library;
use crate::lots::Lots;

/// Numbers of errors on Linux.
pub(crate) const EIO: u8 = 5;
pub(crate) const ENOSPC: u8 = 28;

/// How a disk or its files fail now; by default they do not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Faults {
    /// The number of the error of a write; 0 for none.
    pub(crate) on_write: u8,
    /// The same of a sync.
    pub(crate) on_sync: u8,
    /// The same of a read.
    pub(crate) on_read: u8,
    /// How many calls fail, one after the other; [`Faults::ALL`] for all, which is the default.
    pub(crate) left: u8,
    /// Whether writes wait until this is switched off.
    pub(crate) waits: bool,
    /// The same of syncs.
    pub(crate) sync_waits: bool,
    /// How long each write takes.
    pub(crate) write_millis: u16,
    /// The same of a sync.
    pub(crate) sync_millis: u16,
}

impl Faults {
    pub(crate) const ALL: u8 = u8::MAX;
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            on_write: 0,
            on_sync: 0,
            on_read: 0,
            left: Self::ALL,
            waits: false,
            sync_waits: false,
            write_millis: 0,
            sync_millis: 0,
        }
    }
}

/// The library, and where the files are that switch it.
#[derive(Debug)]
pub(crate) struct Disks {
    library: PathBuf,
    directory: PathBuf,
}

impl Disks {
    /// Builds the library; `None` where no C compiler is.
    pub(crate) fn build(directory: &Path) -> Option<Self> {
        let library = library(directory, include_str!("disk.c"))?;
        fs::create_dir_all(directory.join("synced")).expect("a directory");
        Some(Self { library, directory: directory.to_owned() })
    }

    /// Returns what a server finds in its environment, for the directory of its data.
    pub(crate) fn variables(&self, name: &str, data: &Path) -> Vec<(&'static str, PathBuf)> {
        let mut variables = self.variables_of(name, "FAULTY_DIRECTORY", data.to_owned());
        variables.push(("FAULTY_SYNCED", self.directory.join("synced")));
        variables
    }

    /// The same for the files that another variable selects.
    pub(crate) fn variables_of(
        &self,
        name: &str,
        variable: &'static str,
        value: PathBuf,
    ) -> Vec<(&'static str, PathBuf)> {
        let control = self.control(name);
        if !control.exists() {
            self.set(name, Faults::default());
        }
        vec![("LD_PRELOAD", self.library.clone()), ("FAULTY_SWITCH", control), (variable, value)]
    }

    fn control(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.faults"))
    }

    /// Switches the faults of a server's disk.
    pub(crate) fn set(&self, name: &str, faults: Faults) {
        let mut bytes = vec![faults.on_write, faults.on_sync, faults.on_read, faults.left];
        bytes.extend([u8::from(faults.waits), u8::from(faults.sync_waits)]);
        bytes.extend(faults.write_millis.to_ne_bytes());
        bytes.extend(faults.sync_millis.to_ne_bytes());
        let mut options = fs::OpenOptions::new();
        let file = options.create(true).truncate(false).write(true).open(self.control(name));
        file.and_then(|file| file.write_all_at(&bytes, 0)).expect("the switch can be written");
    }

    /// Does what a crash of the machine may do to a journal: cuts each file somewhere behind what
    /// was synced. Returns how many bytes went.
    pub(crate) fn cut_tails(&self, journals: &[PathBuf], lots: &mut Lots) -> u64 {
        let mut cut = 0;
        for journal in journals {
            let file = fs::OpenOptions::new().write(true).open(journal).expect("a journal");
            let about = file.metadata().expect("a file");
            let note = fs::read(self.directory.join("synced").join(about.ino().to_string()));
            // Never synced: it may be gone altogether, which is another fault.
            let Ok(note) = note else { continue };
            let note: [u8; 8] = note.try_into().expect("eight bytes");
            let synced = u64::from_ne_bytes(note).min(about.len());
            let kept = match lots.below(3) {
                0 => synced,
                _ => synced + lots.below(about.len() - synced + 1),
            };
            file.set_len(kept).expect("cut");
            cut += about.len() - kept;
        }
        cut
    }
}
