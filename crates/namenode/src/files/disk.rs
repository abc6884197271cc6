//! A disk in memory that does what disks do: it forgets what was not synced, in any order and in
//! sectors; it fails; and it returns bytes that were not written there.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};
use rand::rngs::StdRng;
use rand::{Rng, RngExt};

use super::{Files, Stored};

/// Bytes that a disk loses or keeps whole, as in the journal's records.
const SECTOR: usize = 512;

/// The disk; clones are the same one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Disk(Arc<DiskInner>);

#[derive(Debug, Default)]
struct DiskInner {
    inner: Mutex<Image>,
    /// Syncs wait while it is held.
    is_held: Mutex<bool>,
    /// How many do.
    waiting: AtomicUsize,
    released: Condvar,
}

/// Everything that is on the disk and above it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Image {
    files: Vec<Contents>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    pending: Vec<Renaming>,
    pub(crate) faults: Faults,
    /// New files of this name cannot be synced.
    doomed: Option<&'static str>,
}

#[derive(Debug, Clone, Default)]
struct Contents {
    is_doomed: bool,
    now: Vec<u8>,
    durable: Vec<u8>,
    dirty: BTreeSet<usize>,
}

#[derive(Debug, Clone)]
enum Renaming {
    Put(PathBuf, usize),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
}

/// How many operations of a kind still succeed before one fails; `None` for all.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    pub(crate) write: Option<u32>,
    pub(crate) sync: Option<u32>,
    pub(crate) name: Option<u32>,
}

fn fails(fault: &mut Option<u32>) -> bool {
    match fault {
        Some(0) => fault.take().is_some(),
        Some(left) => {
            *left -= 1;
            false
        }
        None => false,
    }
}

fn broken_disk() -> io::Error {
    io::Error::other("injected: the disk failed")
}

impl Disk {
    /// Changes the image without the code under test.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut Image) -> T) -> T {
        change(&mut self.0.inner.lock())
    }

    /// Makes every sync wait from now on, or lets all syncs go on.
    pub(crate) fn hold(&self, is_held: bool) {
        *self.0.is_held.lock() = is_held;
        self.0.released.notify_all();
    }

    /// Waits until a sync is held.
    pub(crate) fn until_held(&self) {
        while self.0.waiting.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
    }

    fn handle(&self, path: &Path) -> io::Result<Arc<dyn Stored>> {
        let file = self.0.inner.lock().names.get(path).copied();
        let file = file.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(Arc::new(Handle { disk: self.clone(), file }))
    }
}

impl Image {
    /// Loses what was not synced, as a crash of the machine does: of the names the latest changes,
    /// of the bytes any sectors.
    pub(crate) fn crash(&mut self, random: &mut StdRng) {
        let kept = random.random_range(0..=self.pending.len());
        for change in self.pending.drain(..).take(kept) {
            apply(&mut self.durable_names, change);
        }
        self.names = self.durable_names.clone();
        for file in &mut self.files {
            file.crash(random);
        }
    }

    /// Writes some sectors back, as kernels do when they like.
    pub(crate) fn write_back(&mut self, random: &mut StdRng) {
        for file in &mut self.files {
            let dirty: Vec<usize> = file.dirty.iter().copied().collect();
            for sector in dirty.into_iter().filter(|_| random.random_bool(0.3)) {
                file.keep(sector);
            }
        }
    }

    /// Returns the files in a directory that have something, with their bytes.
    pub(crate) fn list(&self) -> Vec<(PathBuf, usize)> {
        let bytes = |file: &usize| self.files[*file].now.len();
        self.names.iter().map(|(path, file)| (path.clone(), bytes(file))).collect()
    }

    /// Returns whether no fault waits to happen.
    pub(crate) const fn is_faultless(&self) -> bool {
        let faults = &self.faults;
        faults.write.is_none() && faults.sync.is_none() && faults.name.is_none()
    }

    pub(crate) fn contents(&self, path: &Path) -> Vec<u8> {
        self.files[self.names[path]].now.clone()
    }

    /// Puts bytes at a wrong place.
    pub(crate) fn misdirect(&mut self, path: &Path, at: usize, bytes: &[u8]) {
        let file = &mut self.files[self.names[path]];
        for contents in [&mut file.now, &mut file.durable] {
            for (place, byte) in contents.iter_mut().skip(at).zip(bytes) {
                *place = *byte;
            }
        }
    }

    /// Lets the syncs of all files fail that are made from now on and have this in their name.
    pub(crate) const fn fail_sync_of(&mut self, name: &'static str) {
        self.doomed = Some(name);
    }

    /// Removes a file as if it had never been there.
    pub(crate) fn lose(&mut self, path: &Path) {
        self.names.remove(path);
        self.durable_names.remove(path);
    }

    pub(crate) fn flip(&mut self, path: &Path, at: usize, bit: u8) {
        let byte = self.contents(path)[at] ^ (1 << bit);
        self.misdirect(path, at, &[byte]);
    }
}

impl Contents {
    /// Gives one sector to the disk.
    fn keep(&mut self, sector: usize) {
        self.dirty.remove(&sector);
        let from = sector * SECTOR;
        let end = self.now.len().min(from + SECTOR);
        if from < end {
            if self.durable.len() < end {
                self.durable.resize(end, 0);
            }
            self.durable[from..end].copy_from_slice(&self.now[from..end]);
        }
    }

    fn crash(&mut self, random: &mut StdRng) {
        let (old, new) = (self.durable.len(), self.now.len());
        let length = match random.random_range(0..3) {
            0 => old,
            1 => new,
            _ => random.random_range(old.min(new)..=old.max(new)),
        };
        let share = [0.0, 0.5, 0.9, 1.0][random.random_range(0..4)];
        let dirty: Vec<usize> = self.dirty.iter().copied().collect();
        for sector in dirty {
            if random.random_bool(share) {
                self.keep(sector);
            }
        }
        self.durable.resize(length, 0);
        self.dirty.clear();
        self.now = self.durable.clone();
    }
}

fn apply(names: &mut BTreeMap<PathBuf, usize>, change: Renaming) {
    match change {
        Renaming::Put(path, file) => {
            names.insert(path, file);
        }
        Renaming::Remove(path) => {
            names.remove(&path);
        }
        Renaming::Rename(from, to) => {
            if let Some(file) = names.remove(&from) {
                names.insert(to, file);
            }
        }
    }
}

impl Image {
    fn change(&mut self, change: Renaming) -> io::Result<()> {
        if fails(&mut self.faults.name) {
            return Err(broken_disk());
        }
        apply(&mut self.names, change.clone());
        self.pending.push(change);
        Ok(())
    }
}

impl Files for Disk {
    fn make_directory(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn names(&self, directory: &Path) -> io::Result<Vec<String>> {
        let image = self.0.inner.lock();
        let names = image.names.keys().filter_map(|path| path.strip_prefix(directory).ok());
        Ok(names.map(|name| name.to_string_lossy().into_owned()).collect())
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn Stored>> {
        {
            let mut image = self.0.inner.lock();
            let file = image.files.len();
            image.change(Renaming::Put(path.to_owned(), file))?;
            let name = path.to_string_lossy();
            let is_doomed = image.doomed.is_some_and(|doomed| name.contains(doomed));
            image.files.push(Contents { is_doomed, ..Contents::default() });
        }
        self.handle(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn Stored>> {
        self.handle(path)
    }

    fn reopen(&self, path: &Path) -> io::Result<Arc<dyn Stored>> {
        self.handle(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.inner.lock().change(Renaming::Rename(from.to_owned(), to.to_owned()))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.inner.lock().change(Renaming::Remove(path.to_owned()))
    }

    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        let image = &mut *self.0.inner.lock();
        if fails(&mut image.faults.sync) {
            return Err(broken_disk());
        }
        image.durable_names = image.names.clone();
        image.pending.clear();
        Ok(())
    }
}

#[derive(Debug)]
struct Handle {
    disk: Disk,
    file: usize,
}

impl Stored for Handle {
    fn length(&self) -> io::Result<u64> {
        Ok(self.disk.with(|image| image.files[self.file].now.len()) as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let from = usize::try_from(offset).unwrap();
        Ok(self.disk.with(|image| {
            let now = &image.files[self.file].now;
            let rest = &now[from.min(now.len())..];
            let count = rest.len().min(buffer.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            count
        }))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let from = usize::try_from(offset).unwrap();
        self.disk.with(|image| {
            let is_full = fails(&mut image.faults.write);
            let bytes = if is_full { &bytes[..bytes.len() / 2] } else { bytes };
            let file = &mut image.files[self.file];
            let end = from + bytes.len();
            if file.now.len() < end {
                file.now.resize(end, 0);
            }
            file.now[from..end].copy_from_slice(bytes);
            file.dirty.extend(from / SECTOR..end.div_ceil(SECTOR));
            match is_full {
                true => Err(io::Error::from(io::ErrorKind::StorageFull)),
                false => Ok(()),
            }
        })
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        let length = usize::try_from(length).unwrap();
        self.disk.with(|image| {
            let file = &mut image.files[self.file];
            file.now.resize(length, 0);
            file.dirty.retain(|sector| sector * SECTOR < length);
            file.dirty.insert(length / SECTOR);
        });
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut is_held = self.disk.0.is_held.lock();
        self.disk.0.waiting.fetch_add(1, Ordering::Relaxed);
        while *is_held {
            self.disk.0.released.wait(&mut is_held);
        }
        self.disk.0.waiting.fetch_sub(1, Ordering::Relaxed);
        drop(is_held);
        self.disk.with(|image| {
            let has_failed = image.files[self.file].is_doomed || fails(&mut image.faults.sync);
            let file = &mut image.files[self.file];
            let dirty = std::mem::take(&mut file.dirty);
            if has_failed {
                // The kernel takes the pages for clean from now on; the disk has none of them.
                return Err(broken_disk());
            }
            for sector in dirty {
                file.keep(sector);
            }
            file.durable.resize(file.now.len(), 0);
            Ok(())
        })
    }
}

/// Returns a random part of some bytes.
pub(crate) fn piece<'a>(random: &mut impl Rng, bytes: &'a [u8]) -> &'a [u8] {
    let from = random.random_range(0..bytes.len());
    &bytes[from..random.random_range(from + 1..=bytes.len())]
}
