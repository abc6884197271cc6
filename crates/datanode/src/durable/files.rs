//! A store in a directory that all datanodes see.
//!
//! An upload is a file below `.sanderling/uploads`. It is completed by a rename, and ended by a
//! removal: whichever comes first, the other finds no file.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use sanderling_protocol::message::StoreSlice;

use super::{OWN_NAME, OWNER_NAME, StoreError, listing};

/// Where uploads are, below [`OWN_NAME`].
const UPLOADS_NAME: &str = "uploads";

/// Operations at once.
const WORKS_MAX: usize = 16;

/// A directory.
#[derive(Debug)]
pub(super) struct Files {
    root: PathBuf,
    turns: Arc<Semaphore>,
}

impl Files {
    /// Returns the store in a directory.
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root, turns: Arc::new(Semaphore::new(WORKS_MAX)) }
    }

    async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let files = Arc::clone(self);
        // Held by the thread: a file system that hangs takes so many threads and no more.
        let turn = Arc::clone(&self.turns).acquire_owned().await;
        let done = spawn_blocking(move || {
            let done = work(&files);
            drop(turn);
            done
        })
        .await;
        done.unwrap_or_else(|error| Err(StoreError::Wrong(error.to_string())))
    }

    /// Returns the file of an object.
    fn place(&self, key: &str) -> Result<PathBuf, StoreError> {
        let relative = Path::new(key);
        let is_name = |part: Component<'_>| matches!(part, Component::Normal(_));
        let is_own = relative.starts_with(OWN_NAME);
        let parts = relative.components().count();
        let is_plain = relative.components().all(is_name) && parts == key.split('/').count();
        if key.is_empty() || is_own || !is_plain {
            return Err(StoreError::Wrong(format!("{key:?} is no name of a file")));
        }
        Ok(self.root.join(relative))
    }

    fn upload(&self, upload: &str) -> Result<PathBuf, StoreError> {
        if upload.is_empty() || !upload.bytes().all(|letter| letter.is_ascii_hexdigit()) {
            return Err(StoreError::Wrong(format!("{upload:?} is no upload")));
        }
        Ok(self.root.join(OWN_NAME).join(UPLOADS_NAME).join(upload))
    }

    fn owner(&self) -> PathBuf {
        self.root.join(OWN_NAME).join(OWNER_NAME)
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
            let own = files.root.join(OWN_NAME);
            // The store itself is never made: it may be a file system that is not mounted now.
            for directory in [own.clone(), own.join(UPLOADS_NAME)] {
                match fs::create_dir(directory) {
                    Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                        return Err(error.into());
                    }
                    _ => {}
                }
            }
            let draft = own.join(format!("owner-{:016x}", rand::random::<u64>()));
            let mut file = File::create(&draft)?;
            file.write_all(format!("{owner}\n").as_bytes())?;
            file.sync_all()?;
            let linked = fs::hard_link(&draft, files.owner());
            fs::remove_file(&draft)?;
            match linked {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error.into()),
                _ => {}
            }
            sync_directory(&own)?;
            sync_directory(&files.root)
        })
        .await
    }

    /// Names another owner than the one that there is, at once.
    pub(super) async fn replace_owner(self: &Arc<Self>, owner: &str) -> Result<(), StoreError> {
        let owner = owner.to_owned();
        self.run(move |files| {
            let own = files.root.join(OWN_NAME);
            let draft = own.join(format!("owner-{:016x}", rand::random::<u64>()));
            let mut file = File::create(&draft)?;
            file.write_all(format!("{owner}\n").as_bytes())?;
            file.sync_all()?;
            fs::rename(&draft, files.owner())?;
            sync_directory(&own)
        })
        .await
    }

    /// Ends all uploads, so that none can be completed.
    pub(super) async fn end_uploads(self: &Arc<Self>) -> Result<(), StoreError> {
        self.run(|files| {
            let uploads = files.root.join(OWN_NAME).join(UPLOADS_NAME);
            for entry in fs::read_dir(&uploads)? {
                match fs::remove_file(entry?.path()) {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
                    _ => {}
                }
            }
            sync_directory(&uploads)
        })
        .await
    }

    /// Lists a part of what is there, in the order of the names.
    pub(super) async fn list(self: &Arc<Self>, after: &str) -> Result<StoreSlice, StoreError> {
        let after = after.to_owned();
        self.run(move |files| Ok(listing::list(&files.root, OWN_NAME, &after)?)).await
    }

    pub(super) async fn is_empty(self: &Arc<Self>) -> Result<bool, StoreError> {
        self.run(|files| {
            for entry in fs::read_dir(&files.root)? {
                if entry?.file_name() != OWN_NAME {
                    return Ok(false);
                }
            }
            Ok(true)
        })
        .await
    }

    pub(super) async fn begin(self: &Arc<Self>) -> Result<String, StoreError> {
        self.run(|files| {
            let upload = format!("{:032x}", rand::random::<u128>());
            let place = files.upload(&upload)?;
            OpenOptions::new().write(true).create_new(true).open(place)?;
            Ok(upload)
        })
        .await
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
        key: &str,
        upload: &str,
        bytes: u64,
    ) -> Result<(), StoreError> {
        let (key, upload) = (key.to_owned(), upload.to_owned());
        self.run(move |files| {
            let (from, to) = (files.upload(&upload)?, files.place(&key)?);
            let file = File::open(&from)?;
            let found = file.metadata()?.len();
            if found != bytes {
                let why = format!("the upload of {key} has {found} bytes, not {bytes}");
                return Err(StoreError::Wrong(why));
            }
            // As readable as the store's own directory: other tools of other users read it.
            let mode = fs::metadata(&files.root)?.permissions().mode();
            file.set_permissions(Permissions::from_mode(mode & 0o666))?;
            file.sync_all()?;
            files.make_directories(&to, mode)?;
            fs::rename(&from, &to)?;
            to.parent().map_or(Ok(()), sync_directory)
        })
        .await
    }

    /// Makes the directories above a file, each of them for good.
    fn make_directories(&self, file: &Path, mode: u32) -> Result<(), StoreError> {
        let Some(parent) = file.parent().filter(|it| it.starts_with(&self.root)) else {
            return Ok(());
        };
        let mut missing = Vec::new();
        let mut at = parent;
        while at != self.root && !at.exists() {
            missing.push(at.to_owned());
            let Some(above) = at.parent() else { break };
            at = above;
        }
        for directory in missing.iter().rev() {
            match fs::create_dir(directory) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error.into()),
                Err(_) => {}
                Ok(()) => fs::set_permissions(directory, Permissions::from_mode(mode & 0o777))?,
            }
            directory.parent().map_or(Ok(()), sync_directory)?;
        }
        Ok(())
    }

    pub(super) async fn remove(self: &Arc<Self>, key: &str) -> Result<(), StoreError> {
        let key = key.to_owned();
        self.run(move |files| {
            let place = files.place(&key)?;
            match fs::remove_file(&place) {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                Err(error) => Err(error.into()),
                Ok(()) => place.parent().map_or(Ok(()), sync_directory),
            }
        })
        .await
    }

    pub(super) async fn remove_tree(self: &Arc<Self>, key: &str) -> Result<(), StoreError> {
        let key = key.to_owned();
        self.run(move |files| {
            let place = files.place(&key)?;
            match fs::remove_dir_all(&place) {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                Err(error) => Err(error.into()),
                Ok(()) => place.parent().map_or(Ok(()), sync_directory),
            }
        })
        .await
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
            let file = match File::open(files.place(&key)?) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                file => file?,
            };
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

fn sync_directory(directory: &Path) -> Result<(), StoreError> {
    Ok(File::open(directory)?.sync_all()?)
}
