//! A store in a directory that all datanodes see.
//!
//! An upload is a file below `.sanderling/uploads`. It is completed by a rename, and ended by a
//! removal: whichever comes first, the other finds no file.
//!
//! A change of the store holds a shared lock of a file, from its look at the owner to its end. What
//! replaces the owner holds that lock alone. So no change of a former owner is under way when
//! another one has the store, also if a process pauses for long. The operating system ends the lock
//! of a process that ends.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use sanderling_core::durable::{NamedOwner, STORE_OPERATION_MAX};
use sanderling_protocol::message::{STORE_OWN_NAME, StoreSlice};

use super::opened_directories::{Missing, ObjectPlace, PlaceError};
use super::own_names::OWNER_NAME;
use super::store_error::StoreError;
use super::{listing, overlaps};

/// Where uploads are, below [`STORE_OWN_NAME`].
const UPLOADS_NAME: &str = "uploads";

/// The file whose lock changes of the store hold, below [`STORE_OWN_NAME`].
const LOCK_NAME: &str = "lock";

/// The file whose lock is held until that of [`LOCK_NAME`] is, below [`STORE_OWN_NAME`].
const GATE_NAME: &str = "gate";

/// How long a lock is waited for: with the gate's, less than `STORE_OPERATION_MAX`. An adoption
/// holds it for a few file operations, milliseconds; a process that is paused holds it for longer.
/// Chosen, not measured.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);

/// Pause before the lock is tried again. Adoptions are rare, and 50 attempts a second cost one
/// system call each. Chosen, not measured.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Operations at once: each keeps a thread of the process. Four orders at once
/// (`UPLOADS_PER_NODE_MAX` of the core) leave the others for changes and listings. Chosen, not
/// measured.
const WORKS_MAX: usize = 16;

/// A directory.
#[derive(Debug)]
pub(super) struct Files {
    root: PathBuf,
    permits: Arc<Semaphore>,
}

impl Files {
    /// Returns the store in a directory.
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root, permits: Arc::new(Semaphore::new(WORKS_MAX)) }
    }

    async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let files = Arc::clone(self);
        // Held by the thread: a file system that hangs takes so many threads and no more.
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let done = spawn_blocking(move || {
            let done = work(&files);
            drop(permit);
            done
        })
        .await;
        done?
    }

    /// Returns the place of an object.
    fn object<'a>(&self, key: &'a str, missing: Missing) -> Result<ObjectPlace<'a>, PlaceError> {
        let relative = Path::new(key);
        let is_name = |part: Component<'_>| matches!(part, Component::Normal(_));
        let is_own = relative.starts_with(STORE_OWN_NAME);
        let parts = relative.components().count();
        let is_plain = relative.components().all(is_name) && parts == key.split('/').count();
        if key.is_empty() || is_own || !is_plain {
            return Err(PlaceError::BadName { key: key.to_owned() });
        }
        ObjectPlace::open(&self.root, key, missing)
    }

    fn upload(&self, upload: &str) -> Result<PathBuf, StoreError> {
        if upload.is_empty() || !upload.bytes().all(|letter| letter.is_ascii_hexdigit()) {
            return Err(StoreError::BadUpload { upload: upload.to_owned() });
        }
        Ok(self.root.join(STORE_OWN_NAME).join(UPLOADS_NAME).join(upload))
    }

    fn owner(&self) -> PathBuf {
        self.root.join(STORE_OWN_NAME).join(OWNER_NAME)
    }

    pub(super) async fn read_owner(self: &Arc<Self>) -> Result<Option<String>, StoreError> {
        self.run(|files| match fs::read_to_string(files.owner()) {
            Ok(owner) => Ok(Some(owner)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                fs::metadata(&files.root)?;
                Ok(None)
            }
            Err(error) => Err(error.into()),
        })
        .await
    }

    /// Writes the owner unless there is one: a link to a whole file, so that none is half written.
    pub(super) async fn write_owner(self: &Arc<Self>, owner: &str) -> Result<(), StoreError> {
        let owner = owner.to_owned();
        self.run(move |files| {
            overlaps::check_above(&files.root)?;
            let own = files.root.join(STORE_OWN_NAME);
            // The store itself is never made: it may be a file system that is not mounted now.
            let uploads = own.join(UPLOADS_NAME);
            for directory in [own, uploads] {
                match fs::create_dir(directory) {
                    Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                        return Err(error.into());
                    }
                    _ => {}
                }
            }
            files.put_owner(&owner, |draft| match fs::hard_link(draft, files.owner()) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
                linked => linked,
            })?;
            sync_directory(&files.root)
        })
        .await
    }

    /// Names this owner if there is another one, and ends all uploads, so that none can be
    /// completed. Returns whether there is an owner.
    pub(super) async fn take(self: &Arc<Self>, wanted: &str) -> Result<bool, StoreError> {
        let (wanted, until) = (wanted.to_owned(), operation_ends());
        self.run(move |files| files.take_until(&wanted, until)).await
    }

    fn take_until(&self, wanted: &str, until: Instant) -> Result<bool, StoreError> {
        if !self.owner().try_exists()? {
            return Ok(false);
        }
        overlaps::check_above(&self.root)?;
        let _alone = self.locked(true)?;
        // Another adoption may have ended while the file system did not answer.
        if Instant::now() >= until {
            return Err(StoreError::TooLate);
        }
        let found = NamedOwner::of(&fs::read_to_string(self.owner())?);
        if found.check(wanted).is_err() {
            self.replace_owner(&found.replaced_by(wanted))?;
        }
        self.end_uploads()?;
        Ok(true)
    }

    /// Returns the lock of the store; none where the file system has no locks.
    ///
    /// Each passes through a gate that an adoption closes while it waits. Otherwise an owner that
    /// changes the store all the time would keep it for ever.
    fn locked(&self, is_alone: bool) -> Result<Option<File>, StoreError> {
        let gate = self.locked_file(GATE_NAME, is_alone)?;
        let lock = self.locked_file(LOCK_NAME, is_alone)?;
        drop(gate);
        Ok(lock)
    }

    fn locked_file(&self, name: &str, is_alone: bool) -> Result<Option<File>, StoreError> {
        let place = self.root.join(STORE_OWN_NAME).join(name);
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(place)?;
        let began = Instant::now();
        loop {
            let locked = if is_alone { file.try_lock() } else { file.try_lock_shared() };
            match locked {
                Ok(()) => return Ok(Some(file)),
                Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {
                    return Ok(None);
                }
                Err(TryLockError::Error(error)) => return Err(error.into()),
                Err(TryLockError::WouldBlock) if began.elapsed() < LOCK_WAIT_MAX => {
                    thread::sleep(LOCK_PAUSE);
                }
                Err(TryLockError::WouldBlock) => {
                    let waited = LOCK_WAIT_MAX;
                    return Err(match is_alone {
                        true => StoreError::Changing { waited },
                        false => StoreError::Adopting { waited },
                    });
                }
            }
        }
    }

    /// Locks the store for a change, and checks that it is this owner's.
    fn owned(&self, wanted: &str) -> Result<Option<File>, StoreError> {
        let lock = self.locked(false)?;
        self.check_named(wanted)?;
        Ok(lock)
    }

    fn check_named(&self, wanted: &str) -> Result<(), StoreError> {
        let found = NamedOwner::of(&fs::read_to_string(self.owner())?);
        Ok(found.check(wanted)?)
    }

    fn replace_owner(&self, text: &str) -> Result<(), StoreError> {
        self.put_owner(text, |draft| fs::rename(draft, self.owner()))
    }

    /// Writes a draft of the file that names the owner, and gives it that name by `put`. No draft
    /// stays, also after a failure: a store that is full gets one more attempt every few seconds.
    fn put_owner(
        &self,
        text: &str,
        put: impl FnOnce(&Path) -> io::Result<()>,
    ) -> Result<(), StoreError> {
        let own = self.root.join(STORE_OWN_NAME);
        let draft = own.join(format!("owner-{:016x}", rand::random::<u64>()));
        let done = write_new(&draft, text).and_then(|()| put(&draft));
        let removed = fs::remove_file(&draft);
        done?;
        match removed {
            // It was renamed.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            removed => removed?,
        }
        sync_directory(&own)
    }

    fn end_uploads(&self) -> Result<(), StoreError> {
        let uploads = self.root.join(STORE_OWN_NAME).join(UPLOADS_NAME);
        // Tools that copy a store may leave empty directories out.
        fs::create_dir_all(&uploads)?;
        for entry in fs::read_dir(&uploads)? {
            match fs::remove_file(entry?.path()) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        sync_directory(&uploads)
    }

    /// Lists a part of what is there, in the order of the names.
    pub(super) async fn list(self: &Arc<Self>, after: &str) -> Result<StoreSlice, StoreError> {
        let after = after.to_owned();
        self.run(move |files| listing::list(&files.root, STORE_OWN_NAME, &after)).await
    }

    pub(super) async fn is_empty(self: &Arc<Self>) -> Result<bool, StoreError> {
        self.run(|files| {
            for entry in fs::read_dir(&files.root)? {
                if entry?.file_name() != STORE_OWN_NAME {
                    return Ok(false);
                }
            }
            Ok(true)
        })
        .await
    }

    pub(super) async fn begin(self: &Arc<Self>) -> Result<String, StoreError> {
        let made = self.run(|files| {
            let upload = format!("{:032x}", rand::random::<u128>());
            let place = files.upload(&upload)?;
            OpenOptions::new().write(true).create_new(true).open(&place)?;
            Ok(UnclaimedUpload { upload, place: Some(place) })
        });
        Ok(made.await?.claim())
    }

    pub(super) async fn send(
        self: &Arc<Self>,
        upload: &str,
        offset: u64,
        part: Vec<Bytes>,
    ) -> Result<String, StoreError> {
        let upload = upload.to_owned();
        self.run(move |files| {
            let file = OpenOptions::new().write(true).open(files.upload(&upload)?)?;
            let mut at = offset;
            for piece in part {
                file.write_all_at(&piece, at)?;
                at += piece.len() as u64;
            }
            file.sync_data()?;
            Ok(String::new())
        })
        .await
    }

    pub(super) async fn complete(
        self: &Arc<Self>,
        owner: &str,
        (key, upload): (&str, &str),
        bytes: u64,
    ) -> Result<(), StoreError> {
        let (owner, key, upload) = (owner.to_owned(), key.to_owned(), upload.to_owned());
        self.run(move |files| {
            let _lock = files.owned(&owner)?;
            let from = files.upload(&upload)?;
            let file = File::open(&from)?;
            let found = file.metadata()?.len();
            if found != bytes {
                return Err(StoreError::UploadLength { key, found, bytes });
            }
            // As readable as the store's own directory: other tools of other users read it.
            let mode = fs::metadata(&files.root)?.permissions().mode();
            file.set_permissions(Permissions::from_mode(mode & 0o666))?;
            file.sync_all()?;
            Ok(files.object(&key, Missing::Make(mode))?.take(&from)?)
        })
        .await
    }

    pub(super) async fn remove(self: &Arc<Self>, owner: &str, key: &str) -> Result<(), StoreError> {
        let (owner, key, until) = (owner.to_owned(), key.to_owned(), operation_ends());
        self.run(move |files| files.remove_until(&owner, &key, until)).await
    }

    fn remove_until(&self, owner: &str, key: &str, until: Instant) -> Result<(), StoreError> {
        let _lock = self.owned(owner)?;
        let removed = self.object(key, Missing::Fail).and_then(|object| object.remove(until));
        self.gone(owner, there(removed)?)
    }

    pub(super) async fn remove_tree(
        self: &Arc<Self>,
        owner: &str,
        key: &str,
    ) -> Result<(), StoreError> {
        let (owner, key, until) = (owner.to_owned(), key.to_owned(), operation_ends());
        self.run(move |files| files.remove_tree_until(&owner, &key, until)).await
    }

    fn remove_tree_until(&self, owner: &str, key: &str, until: Instant) -> Result<(), StoreError> {
        let _lock = self.owned(owner)?;
        let removed = self.object(key, Missing::Fail).and_then(|object| object.remove_tree(until));
        self.gone(owner, there(removed)?)
    }

    /// Ends a removal. In a store that is unmounted or moved meanwhile every name is missing, so
    /// one that was not found is gone only if the store is still there.
    fn gone(&self, owner: &str, removed: Option<()>) -> Result<(), StoreError> {
        if removed.is_none() { self.check_named(owner) } else { Ok(()) }
    }

    /// Reads a range of a file of so many bytes; `None` if there is none.
    pub(super) async fn fetch(
        self: &Arc<Self>,
        key: &str,
        bytes: u64,
        offset: u64,
        length: u32,
    ) -> Result<Option<Bytes>, StoreError> {
        let key = key.to_owned();
        self.run(move |files| {
            let opened = files.object(&key, Missing::Fail).and_then(|object| object.file());
            let Some(file) = there(opened)? else { return Ok(None) };
            if file.metadata()?.len() != bytes {
                return Ok(None);
            }
            let mut read = vec![0; length as usize];
            file.read_exact_at(&mut read, offset)?;
            Ok(Some(Bytes::from(read)))
        })
        .await
    }

    pub(super) async fn abort(self: &Arc<Self>, upload: &str) -> Result<(), StoreError> {
        let upload = upload.to_owned();
        self.run(move |files| match fs::remove_file(files.upload(&upload)?) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            done => Ok(done?),
        })
        .await
    }
}

/// The file of an upload that was just made. It is removed unless its caller still waits for it: no
/// other process has its name.
struct UnclaimedUpload {
    upload: String,
    /// `None` once the caller has it.
    place: Option<PathBuf>,
}

impl UnclaimedUpload {
    /// Keeps the file, and returns the upload's name.
    fn claim(mut self) -> String {
        self.place = None;
        std::mem::take(&mut self.upload)
    }
}

impl Drop for UnclaimedUpload {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            // The store fails: it stays, as what is left by a process that ends.
            let _ = fs::remove_file(place);
        }
    }
}

/// Returns until when a removal or an adoption that begins now may change the store. Its caller
/// does not wait for longer. A thread that goes on then must not remove what is stored later, nor
/// take the store from a cluster that has adopted it.
fn operation_ends() -> Instant {
    Instant::now() + Duration::from(STORE_OPERATION_MAX)
}

/// Writes a text and a newline into a file that is not there yet.
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(format!("{text}\n").as_bytes())?;
    file.sync_all()
}

/// Returns `None` if what an operation was to find is not there.
fn there<T>(outcome: Result<T, PlaceError>) -> Result<Option<T>, PlaceError> {
    match outcome {
        Err(PlaceError::Io(error)) if is_nothing(&error) => Ok(None),
        outcome => outcome.map(Some),
    }
}

/// Returns whether an error shows that there is no file of a name, or can be none.
fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidFilename)
}

fn sync_directory(directory: &Path) -> Result<(), StoreError> {
    Ok(File::open(directory)?.sync_all()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: &str = "cluster 1 directory 1";

    /// A store with the objects `x`, `d/x` and `d/e/x`.
    fn store(place: &Path) -> Files {
        for directory in [STORE_OWN_NAME, "d/e"] {
            fs::create_dir_all(place.join(directory)).unwrap();
        }
        for key in ["x", "d/x", "d/e/x"] {
            fs::write(place.join(key), b"value").unwrap();
        }
        let files = Files::new(place.to_owned());
        files.put_owner(OWNER, |draft| fs::rename(draft, files.owner())).unwrap();
        files
    }

    #[test]
    fn removal_that_its_caller_does_not_wait_for_any_more_removes_nothing() {
        let place = tempfile::tempdir().unwrap();
        let files = store(place.path());
        let is_late = |removed: Result<(), StoreError>| {
            let is_timeout = |error: &io::Error| error.kind() == ErrorKind::TimedOut;
            let error = removed.unwrap_err();
            matches!(&error, StoreError::Place(PlaceError::Io(error)) if is_timeout(error))
        };
        let over = Instant::now();
        assert!(is_late(files.remove_until(OWNER, "x", over)));
        assert!(is_late(files.remove_tree_until(OWNER, "d", over)));
        for key in ["x", "d/x", "d/e/x"] {
            assert!(place.path().join(key).exists(), "{key}");
        }
        files.remove_until(OWNER, "x", operation_ends()).unwrap();
        files.remove_tree_until(OWNER, "d", operation_ends()).unwrap();
        assert!(!place.path().join("x").exists() && !place.path().join("d").exists());
    }

    #[test]
    fn adoption_that_its_caller_does_not_wait_for_any_more_takes_nothing() {
        let place = tempfile::tempdir().unwrap();
        let files = store(place.path());
        let upload = place.path().join(STORE_OWN_NAME).join(UPLOADS_NAME).join("01");
        fs::create_dir(upload.parent().unwrap()).unwrap();
        fs::write(&upload, b"half").unwrap();
        let wanted = "cluster 2 directory 2";
        let refused = files.take_until(wanted, Instant::now()).unwrap_err();
        assert!(matches!(refused, StoreError::TooLate), "{refused}");
        assert_eq!(fs::read_to_string(files.owner()).unwrap(), format!("{OWNER}\n"));
        assert!(upload.exists(), "an upload of its owner was ended");
        assert!(files.take_until(wanted, operation_ends()).unwrap());
        let taken = fs::read_to_string(files.owner()).unwrap();
        assert_eq!(taken, format!("{wanted}\nadopted from {OWNER}\n"));
        assert!(!upload.exists());
    }

    #[test]
    fn upload_for_which_its_caller_does_not_wait_any_more_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let made = |name: &str| {
            let file = place.path().join(name);
            fs::write(&file, b"").unwrap();
            UnclaimedUpload { upload: name.to_owned(), place: Some(file) }
        };
        assert_eq!(made("01").claim(), "01");
        drop(made("02"));
        let names = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(names.collect::<Vec<_>>(), ["01"]);
    }

    #[test]
    fn draft_of_an_owner_is_removed_after_a_failure() {
        let place = tempfile::tempdir().unwrap();
        let files = store(place.path());
        let failed = files.put_owner("another", |_| Err(ErrorKind::StorageFull.into()));
        assert!(failed.unwrap_err().is_full());
        let own = fs::read_dir(place.path().join(STORE_OWN_NAME)).unwrap();
        let names: Vec<_> = own.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, [OWNER_NAME]);
    }
}
