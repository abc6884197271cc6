//! Faults of some files of a server alone, by the begin of their names: a library that the server
//! is started with, switched by a file.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cluster::tasks::library;

/// FAULTY_BEGIN is the begin of the names of the files that fail, FAULTY_SWITCH names the file that
/// switches the faults. It is mapped, so a change of it counts at once.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

struct faults {
    uint8_t on_write; /* an error number, or 0 */
    uint8_t on_sync;
    uint8_t left;  /* how many calls fail; 255 for all */
    uint8_t waits; /* whether writes wait */
};

static volatile struct faults *faults;
static const char *begin;

__attribute__((constructor)) static void start(void) {
    const char *name = getenv("FAULTY_SWITCH");
    begin = getenv("FAULTY_BEGIN");
    int file = name && begin ? open(name, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *map = mmap(NULL, sizeof(struct faults), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (map != MAP_FAILED) faults = map;
    close(file);
}

static int is_faulty(int file) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    const char *last = strrchr(path, '/');
    return last && !strncmp(last + 1, begin, strlen(begin));
}

static int fails(int file, volatile uint8_t *error) {
    if (!*error || !faults->left || !is_faulty(file)) return 0;
    if (faults->left != 255) faults->left--;
    errno = *error;
    return 1;
}

static int write_fails(int file) {
    if (!faults) return 0;
    if (faults->waits && is_faulty(file)) {
        struct timespec pause = {0, 10000000};
        while (faults->waits) nanosleep(&pause, NULL);
    }
    return fails(file, &faults->on_write);
}

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

ssize_t write(int file, const void *from, size_t bytes) {
    REAL(write);
    return write_fails(file) ? -1 : real(file, from, bytes);
}

ssize_t pwrite(int file, const void *from, size_t bytes, off_t at) {
    REAL(pwrite);
    return write_fails(file) ? -1 : real(file, from, bytes, at);
}

ssize_t pwrite64(int file, const void *from, size_t bytes, off64_t at) {
    REAL(pwrite64);
    return write_fails(file) ? -1 : real(file, from, bytes, at);
}

int fsync(int file) {
    REAL(fsync);
    return faults && fails(file, &faults->on_sync) ? -1 : real(file);
}

int fdatasync(int file) {
    REAL(fdatasync);
    return faults && fails(file, &faults->on_sync) ? -1 : real(file);
}
"#;

/// Faults of the files; none by default.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FileFaults {
    /// The number of the error of a write; 0 for none.
    pub(crate) on_write: u8,
    /// The same of a sync.
    pub(crate) on_sync: u8,
    /// How many calls fail, one after the other; [`FileFaults::ALL`] for all.
    pub(crate) left: u8,
    /// Whether writes wait until this is switched off.
    pub(crate) waits: bool,
}

impl FileFaults {
    pub(crate) const ALL: u8 = u8::MAX;
}

/// The library and its switch.
#[derive(Debug)]
pub(crate) struct FaultyFiles {
    library: PathBuf,
    switch: PathBuf,
    begin: &'static str,
}

impl FaultyFiles {
    /// Builds the library for files whose names begin so; `None` where no C compiler is.
    pub(crate) fn build(directory: &Path, begin: &'static str) -> Option<Self> {
        let library = library(directory, SOURCE)?;
        let files = Self { library, switch: directory.join("faulty-files"), begin };
        files.set(FileFaults::default());
        Some(files)
    }

    /// Returns what a server finds in its environment.
    pub(crate) fn variables(&self) -> Vec<(&'static str, PathBuf)> {
        vec![
            ("LD_PRELOAD", self.library.clone()),
            ("FAULTY_SWITCH", self.switch.clone()),
            ("FAULTY_BEGIN", PathBuf::from(self.begin)),
        ]
    }

    /// Switches the faults.
    pub(crate) fn set(&self, faults: FileFaults) {
        use std::os::unix::fs::FileExt;
        let bytes = [faults.on_write, faults.on_sync, faults.left, u8::from(faults.waits)];
        let mut options = fs::OpenOptions::new();
        let file = options.create(true).truncate(false).write(true).open(&self.switch);
        file.and_then(|file| file.write_all_at(&bytes, 0)).expect("the switch can be written");
    }
}
