//! Where checkpoints are stored: in Sanderling, in a directory, or in a bucket.

mod files;

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use sanderling_client::{Client, ClientError, PutOptions, Reader};
use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_command::output::Output;
use sanderling_command::refused;
use sanderling_command::session::Session;
use sanderling_protocol::limits::BLOCK_BYTES_MAX;
use sanderling_protocol::message::{Condition, DurableState, Entry, ObjectKind};
use sanderling_protocol::refusal::ByteRange;
use sanderling_protocol::{Path as StorePath, Refusal, amount};
use thiserror::Error;
use tokio::time::sleep;

use crate::bucket::{BucketUrl, BucketUrlError, TaskBucket};
use crate::encryption::drawn;
use crate::mounts::{self, MountedThere};
use crate::task_failure::TaskFailure;
use crate::unfinished::{self, OpenDirectory};

use files::{expect_no_link, list_files, read_part, read_whole, write_whole};

/// How names of objects begin with which a runner looks whether it can write.
const CHECK: &str = "check-";

/// Bytes that are drawn for such a name.
const DRAWN_BYTES: usize = 16;

/// Age from which on such an object was left by a process that was killed. A look takes four
/// requests of 120 s at most; the rest is for a process that was stopped. Chosen, not measured.
const CHECK_AGE: Duration = Duration::from_secs(3600);

/// The longest record: that of a bag has a command with its arguments, which Linux limits to 6 MiB
/// in all, and JSON escapes.
const RECORD_BYTES_MAX: u64 = 64 << 20;

/// Where checkpoints are in the cluster with `auto`: where they are without the option.
const AUTO_PATH: &str = "/tasks";

/// How often an object is opened that is replaced before it is read. Each time another runner has
/// stored it anew between two requests. Chosen, not measured.
const READS_MAX: usize = 10;

/// How often a bucket that was created is tried, [`CREATED_RETRY_INTERVAL`] apart: a service may
/// take a moment until it can be written to, or be creating it for another process. Five seconds in
/// all. Chosen, not measured.
const CREATED_TRIES_MAX: u32 = 10;
/// Pause before a bucket that was created is tried again. Chosen, not measured.
const CREATED_RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Where checkpoints are stored, as `--backend` names it.
#[derive(Debug, Clone)]
pub(crate) enum BackendSpec {
    /// [`AUTO_PATH`] in the cluster that is configured; refused where none is.
    Auto,
    /// A path in Sanderling.
    Store(StorePath),
    /// A directory of this machine, or one that is mounted there.
    Directory(PathBuf),
    /// A mount point, which is refused while no file system is mounted there.
    Mounted(PathBuf),
    /// A place in a bucket.
    Bucket(BucketUrl),
}

/// Why a text names no place for checkpoints.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum BackendSpecError {
    /// It is no path in Sanderling.
    #[error("{0}")]
    Path(#[from] Refusal),
    /// It names no directory.
    #[error("dir: and mount: are followed by a directory")]
    NoDirectory,
    /// It is no place in a bucket.
    #[error("{0}")]
    Bucket(#[from] BucketUrlError),
}

/// The objects of one task, or of all.
#[derive(Debug, Clone)]
pub(crate) enum TaskBackend {
    Store { client: Client, namenode: String, root: StorePath },
    Directory(PathBuf),
    Bucket(TaskBucket),
}

impl FromStr for BackendSpec {
    type Err = BackendSpecError;

    fn from_str(text: &str) -> Result<Self, BackendSpecError> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        if text.starts_with("s3://") {
            return Ok(Self::Bucket(text.parse()?));
        }
        match text.split_once(':') {
            Some(("dir" | "mount", "")) => Err(BackendSpecError::NoDirectory),
            Some(("dir", directory)) => Ok(Self::Directory(directory.into())),
            Some(("mount", directory)) => Ok(Self::Mounted(directory.into())),
            _ => Ok(Self::Store(text.parse()?)),
        }
    }
}

impl TaskBackend {
    /// Opens the place of all tasks.
    ///
    /// # Errors
    /// Unavailable (4) when the namenode does not answer, or when no file system is mounted where
    /// one is required; usage (2) for `auto` where no cluster is configured.
    pub(crate) async fn open(session: &Session, spec: &BackendSpec) -> Result<Self, Failure> {
        Ok(match spec {
            BackendSpec::Auto => Self::in_cluster(session, automatic(session)?).await?,
            BackendSpec::Directory(directory) => Self::Directory(directory.clone()),
            BackendSpec::Mounted(directory) => {
                expect_mount(directory)?;
                Self::Directory(directory.clone())
            }
            BackendSpec::Bucket(url) => Self::Bucket(TaskBucket::open(url)?),
            BackendSpec::Store(root) => Self::in_cluster(session, root.clone()).await?,
        })
    }

    async fn in_cluster(session: &Session, root: StorePath) -> Result<Self, Failure> {
        let (client, namenode) = (session.client().await?, session.namenode.clone());
        Ok(Self::Store { client, namenode, root })
    }

    /// Returns the place of one task.
    pub(crate) fn of_task(&self, task: &str) -> Result<Self, Failure> {
        Ok(match self {
            Self::Directory(directory) => Self::Directory(directory.join(task)),
            Self::Bucket(bucket) => Self::Bucket(bucket.below(task)),
            Self::Store { client, namenode, root } => {
                let root = refused::joined(root, task)?;
                Self::Store { client: client.clone(), namenode: namenode.clone(), root }
            }
        })
    }

    /// Makes the directories, and looks whether objects can be written.
    ///
    /// # Errors
    /// As [`Self::check_writes`].
    pub(crate) async fn prepare(&self) -> Result<(), Failure> {
        self.make(&["locks", "packs", "generations"]).await?;
        self.check_writes("locks").await
    }

    /// Looks whether an object can be written to a directory, read and deleted, and whether none is
    /// replaced that is to be absent. In Sanderling the lock shows that: below a durable directory
    /// nothing can be deleted before it is copied, and the store may be away.
    ///
    /// # Errors
    /// The backend cannot be used.
    pub(crate) async fn check_writes(&self, directory: &str) -> Result<(), Failure> {
        if matches!(self, Self::Store { .. }) {
            return Ok(());
        }
        let name = format!("{directory}/{}", check_name());
        let bytes = vec![7; 1000];
        self.put_absent(&name, bytes.clone()).await?;
        let read = self.get(&name).await;
        let is_replaced = self.put_absent(&name, vec![8; 1000]).await;
        // Also after an error.
        self.remove(&name).await?;
        let (read, is_replaced) = (read?, is_replaced?);
        if is_replaced {
            let cause = format!(
                "{self}: an object is replaced there under the condition that it is absent"
            );
            return Err(Failure::new(Exit::Failure, FailureKind::TaskBackend, cause));
        }
        if read.as_deref() != Some(&bytes[..]) {
            let cause = format!("{self}: what was written there is not what is read");
            return Err(Failure::new(Exit::Failure, FailureKind::TaskBackend, cause));
        }
        self.clear_old_checks(directory).await;
        Ok(())
    }

    /// Deletes what processes that were killed in [`Self::check_writes`] left in a directory, if it
    /// is old. What cannot be deleted is met again by the next one.
    pub(crate) async fn clear_old_checks(&self, directory: &str) {
        match self {
            Self::Directory(_) => self.clear_left(directory, CHECK_AGE, is_check),
            Self::Bucket(bucket) => {
                bucket.remove_left(directory, &check_name(), CHECK_AGE, is_check).await;
            }
            Self::Store { .. } => {}
        }
    }

    /// As [`Self::prepare`]. A bucket that does not exist is created, and named in a line.
    ///
    /// # Errors
    /// As [`Self::prepare`]; the bucket cannot be created.
    pub(crate) async fn prepare_or_create(&self, output: Output) -> Result<(), Failure> {
        let mut prepared = self.prepare().await;
        let Self::Bucket(bucket) = self else { return prepared };
        let mut looks = 0;
        while prepared.is_err() && looks < CREATED_TRIES_MAX && bucket.is_missing().await {
            if looks > 0 {
                sleep(CREATED_RETRY_INTERVAL).await;
            } else if bucket.create().await? {
                output.note(format_args!("created the bucket {}", bucket.name()));
            }
            looks += 1;
            prepared = self.prepare().await;
        }
        prepared
    }

    /// Makes directories, and those above them.
    ///
    /// # Errors
    /// The backend cannot be used, or a link has the name of a directory.
    pub(crate) async fn make(&self, directories: &[&str]) -> Result<(), Failure> {
        for directory in directories {
            match self {
                Self::Directory(root) => {
                    let path = root.join(directory);
                    let made = expect_no_link(&path).and_then(|()| std::fs::create_dir_all(&path));
                    made.map_err(|error| Failure::file(&path, error))?;
                }
                Self::Store { client, root, .. } => {
                    let path = refused::joined(root, directory)?;
                    let made =
                        client.make_directory(&path, ObjectKind::Directory, true, true).await;
                    made.map_err(|error| self.failed(&error))?;
                }
                Self::Bucket(_) => {}
            }
        }
        Ok(())
    }

    /// Writes an object that appears as a whole, if there is none of that name; returns whether it
    /// was written.
    pub(crate) async fn put_absent(&self, name: &str, bytes: Vec<u8>) -> Result<bool, Failure> {
        match self {
            Self::Directory(_) => self.write_file(name, bytes, true).await,
            Self::Bucket(bucket) => bucket.put_absent(name, bytes).await,
            Self::Store { client, root, .. } => {
                let condition = Some(Condition::Absent);
                let options = PutOptions { condition, ..PutOptions::replacing() };
                match client.put(&below(root, name)?, bytes.into(), &options).await {
                    Ok(_) => Ok(true),
                    Err(ClientError::Refused(Refusal::Exists { .. })) => Ok(false),
                    Err(error) => Err(self.failed(&error)),
                }
            }
        }
    }

    /// Writes an object, whatever has its name.
    pub(crate) async fn replace(&self, name: &str, bytes: Vec<u8>) -> Result<(), Failure> {
        match self {
            Self::Directory(_) => self.write_file(name, bytes, false).await.map(|_| ()),
            Self::Bucket(bucket) => bucket.replace(name, bytes).await,
            Self::Store { client, root, .. } => {
                let put =
                    client.put(&below(root, name)?, bytes.into(), &PutOptions::replacing()).await;
                put.map(|_| ()).map_err(|error| self.failed(&error))
            }
        }
    }

    /// Returns a record; `None` if there is none of that name, which a directory is not.
    ///
    /// # Errors
    /// [`TaskFailure::TooLong`]: no record is as long. The backend cannot be read.
    pub(crate) async fn get(&self, name: &str) -> Result<Option<Bytes>, Failure> {
        self.get_within(name, RECORD_BYTES_MAX).await
    }

    /// Returns an object of up to `bytes_max` bytes, as [`Self::get`] does.
    ///
    /// # Errors
    /// [`TaskFailure::TooLong`]: it is longer, and nothing was read. The backend cannot be read.
    pub(crate) async fn get_within(
        &self,
        name: &str,
        bytes_max: u64,
    ) -> Result<Option<Bytes>, Failure> {
        let found = match self {
            Self::Directory(root) => {
                let path = root.join(name);
                let place = path.clone();
                let read = tokio::task::spawn_blocking(move || read_whole(&place, bytes_max)).await;
                let read =
                    read.map_err(|error| Failure::caused(Exit::Failure, FailureKind::Bug, error))?;
                read.map_err(|error| Failure::file(&path, error))?
            }
            Self::Bucket(bucket) => bucket.get_within(name, bytes_max).await?,
            Self::Store { client, root, .. } => {
                match read_object(client, &below(root, name)?, bytes_max).await {
                    Ok(found) => Some(found),
                    Err(ClientError::Refused(Refusal::NotFound { .. })) => None,
                    Err(error) => return Err(self.failed(&error)),
                }
            }
        };
        found.transpose().map_err(|bytes| self.too_long(name, bytes, bytes_max))
    }

    /// Returns an object as [`Self::get_within`] does, in pieces that follow each other. Those of
    /// Sanderling stay where the client has them, perhaps in a datanode's memory.
    ///
    /// # Errors
    /// As [`Self::get_within`].
    pub(crate) async fn get_pieces(
        &self,
        name: &str,
        bytes_max: u64,
    ) -> Result<Option<Vec<Bytes>>, Failure> {
        let Self::Store { client, root, .. } = self else {
            let found = self.get_within(name, bytes_max).await?;
            return Ok(found.map(|bytes| vec![bytes]));
        };
        match read_pieces(client, &below(root, name)?, bytes_max).await {
            Ok(Ok(pieces)) => Ok(Some(pieces)),
            Ok(Err(bytes)) => Err(self.too_long(name, bytes, bytes_max)),
            Err(ClientError::Refused(Refusal::NotFound { .. })) => Ok(None),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Returns a range of an object's bytes, or as many of them as there are; `None` if there is
    /// none of that name, which a directory is not.
    ///
    /// # Errors
    /// The backend cannot be read.
    pub(crate) async fn get_range(
        &self,
        name: &str,
        range: Range<u64>,
    ) -> Result<Option<Bytes>, Failure> {
        match self {
            Self::Directory(root) => {
                let path = root.join(name);
                let place = path.clone();
                let read = tokio::task::spawn_blocking(move || read_part(&place, &range)).await;
                let read =
                    read.map_err(|error| Failure::caused(Exit::Failure, FailureKind::Bug, error))?;
                read.map_err(|error| Failure::file(&path, error))
            }
            Self::Bucket(bucket) => bucket.get_range(name, range).await,
            Self::Store { client, root, .. } => {
                match read_object_part(client, &below(root, name)?, &range).await {
                    Ok(found) => Ok(Some(found)),
                    Err(ClientError::Refused(Refusal::NotFound { .. })) => Ok(None),
                    Err(error) => Err(self.failed(&error)),
                }
            }
        }
    }

    /// Returns the names and lengths of the objects of a directory, or the names of directories
    /// at the root (`""`); nothing if it does not exist.
    ///
    /// # Errors
    /// The backend cannot be read, or a link has the name of the directory: what is listed may be
    /// removed, and what is in the directory to which it leads may be of another program.
    pub(crate) async fn list(&self, directory: &str) -> Result<Vec<(String, u64)>, Failure> {
        match self {
            Self::Directory(root) => {
                let path = root.join(directory);
                let listed = match directory {
                    // A user may have a link to a place with room for all tasks.
                    "" => list_files(&path),
                    _ => expect_no_link(&path).and_then(|()| list_files(&path)),
                };
                listed.map_err(|error| Failure::file(&path, error))
            }
            Self::Bucket(bucket) => bucket.list(directory).await,
            Self::Store { client, root, .. } => {
                match client.list_all(&below(root, directory)?).await {
                    Ok(entries) => Ok(entries.into_iter().map(listed).collect()),
                    Err(ClientError::Refused(Refusal::NotFound { .. })) => Ok(Vec::new()),
                    Err(error) => Err(self.failed(&error)),
                }
            }
        }
    }

    /// Returns, for each of these names in a directory, whether the store of the durable directory
    /// has the object; `None` if this is in no durable directory. A bucket and a directory need no
    /// other store.
    ///
    /// # Errors
    /// The backend cannot be read: try again.
    pub(crate) async fn durable(
        &self,
        directory: &str,
        names: Vec<String>,
    ) -> Result<Option<Vec<bool>>, Failure> {
        let Self::Store { client, root, .. } = self else { return Ok(None) };
        let states = client.durable_states(&below(root, directory)?, names).await;
        let states = states.map_err(|error| self.failed(&error))?;
        let is_there = |state: DurableState| state != DurableState::Volatile;
        Ok(states.map(|states| states.into_iter().map(is_there).collect()))
    }

    /// Returns whether something that is no directory has the name of this place, so that nothing
    /// can be stored here.
    pub(crate) async fn is_blocked(&self) -> bool {
        match self {
            Self::Directory(root) => root.metadata().is_ok_and(|it| !it.is_dir()),
            Self::Bucket(_) => false,
            Self::Store { client, root, .. } => {
                let found = client.stat(root).await;
                found.is_ok_and(|entry| entry.kind != ObjectKind::Directory)
            }
        }
    }

    /// Returns the number after the highest of a directory. Numbers rise by one, so that only
    /// another program can have written one that has none after it.
    ///
    /// # Errors
    /// There is none: that object has to be removed.
    pub(crate) fn number_after(&self, directory: &str, highest: u64) -> Result<u64, Failure> {
        highest.checked_add(1).ok_or_else(|| {
            let cause = format!("{self}: no number follows that of {directory}/{highest}");
            Failure::new(Exit::Failure, FailureKind::TaskBackend, cause)
                .next("remove that object: no runner has written it")
        })
    }

    /// Deletes an object, if it exists.
    pub(crate) async fn remove(&self, name: &str) -> Result<(), Failure> {
        match self {
            Self::Directory(root) => {
                let path = root.join(name);
                match std::fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        Err(Failure::file(&path, error))
                    }
                    _ => Ok(()),
                }
            }
            Self::Bucket(bucket) => bucket.remove(name).await,
            Self::Store { client, root, .. } => {
                match client.delete(&below(root, name)?, false).await {
                    Ok(_) | Err(ClientError::Refused(Refusal::NotFound { .. })) => Ok(()),
                    Err(error) => Err(self.failed(&error)),
                }
            }
        }
    }

    /// Deletes objects that have lost bytes: no checkpoint can be read with them, and below a
    /// durable directory all that is written later waits for them. Only for the holder of the
    /// lock. What cannot be deleted now is tried again with the next checkpoint.
    pub(crate) async fn remove_lost(&self) {
        let Self::Store { client, root, .. } = self else { return };
        for directory in ["packs", "generations"] {
            let Ok(place) = below(root, directory) else { return };
            let entries = client.list_all(&place).await.unwrap_or_default();
            for entry in entries.into_iter().filter(|entry| entry.lost_bytes > 0) {
                // Each that is refused takes as long as a call may: the rest is not tried now.
                if self.remove(&format!("{directory}/{}", entry.name)).await.is_err() {
                    return;
                }
            }
        }
    }

    /// Deletes what is of no use to any runner. Only for the holder of the lock.
    pub(crate) async fn clear(&self, age: Duration) {
        self.clear_unfinished(age);
        self.remove_lost().await;
    }

    /// Deletes what runners that were killed did not finish writing. Only for the holder of the
    /// lock: no other runner writes packs and generations. One that has taken the lock while this
    /// process paused keeps what it is writing by its lock on the file. Others may write locks, so
    /// those are deleted only after `age`.
    pub(crate) fn clear_unfinished(&self, age: Duration) {
        let Self::Directory(root) = self else { return };
        for directory in ["packs", "generations"] {
            if let Ok(opened) = OpenDirectory::new(&root.join(directory)) {
                unfinished::remove_unlocked(&opened.path());
            }
        }
        self.clear_checks(age);
    }

    /// Deletes what killed processes left where locks are, if it is older than `age`.
    pub(crate) fn clear_checks(&self, age: Duration) {
        let is_left = |name: &str| unfinished::is_draft(name) || is_check(name);
        self.clear_left("locks", age, is_left);
    }

    /// Deletes what killed processes did not finish writing into directories that any process may
    /// write to, if it is older than `age`.
    pub(crate) fn clear_drafts(&self, directories: &[&str], age: Duration) {
        for directory in directories {
            self.clear_left(directory, age, unfinished::is_draft);
        }
    }

    fn clear_left(&self, directory: &str, age: Duration, is_left: impl Fn(&str) -> bool) {
        let Self::Directory(root) = self else { return };
        if let Ok(opened) = OpenDirectory::new(&root.join(directory)) {
            unfinished::remove_left(&opened.path(), age, is_left);
        }
    }

    async fn write_file(&self, name: &str, bytes: Vec<u8>, absent: bool) -> Result<bool, Failure> {
        let Self::Directory(root) = self else { unreachable!("only directories have files") };
        let path = root.join(name);
        let target = path.clone();
        let written = tokio::task::spawn_blocking(move || write_whole(&target, &bytes, absent));
        let written = written
            .await
            .map_err(|error| Failure::caused(Exit::Failure, FailureKind::Bug, error))?;
        written.map_err(|error| Failure::file(&path, error))
    }

    fn too_long(&self, name: &str, bytes: u64, bytes_max: u64) -> Failure {
        let (found, most) = (amount::bytes(bytes), amount::bytes(bytes_max));
        let cause = format!("{self}: {name} has {found}, and {most} are most");
        TaskFailure::TooLong.failure(Exit::Failure, cause)
    }

    fn failed(&self, error: &ClientError) -> Failure {
        match self {
            Self::Store { namenode, .. } => refused::client(error, namenode),
            _ => Failure::caused(Exit::Failure, FailureKind::TaskBackend, error.clone()),
        }
    }
}

/// Returns the path of `auto`.
fn automatic(session: &Session) -> Result<StorePath, Failure> {
    if !session.is_configured {
        let cause = "--backend auto: no cluster is configured that could store checkpoints";
        let next = "the same with --namenode ADDRESS, or with --backend and a place: /tasks in the \
                    cluster of this machine, s3://BUCKET/PREFIX, mount:D or dir:D";
        return Err(Failure::usage(cause).next(next));
    }
    AUTO_PATH.parse::<StorePath>().map_err(Failure::usage)
}

/// Refuses a directory where no file system is mounted. Nothing was made there.
fn expect_mount(directory: &Path) -> Result<(), Failure> {
    let there = mounts::mounted_there(directory);
    let why = match there.map_err(|error| Failure::file(directory, error))? {
        MountedThere::OtherFileSystem => return Ok(()),
        MountedThere::Nothing => "nothing is mounted there",
        MountedThere::SameFileSystem => {
            "what is mounted there is a directory of the file system above it, or of /"
        }
    };
    let shown = directory.display();
    let next = format!(
        "mount a file system there, name the mount point itself, or the same with dir:{shown} for \
         any directory"
    );
    let cause = format!("mount:{shown}: {why}");
    Err(Failure::new(Exit::Unavailable, FailureKind::TaskBackend, cause).next(next))
}

/// Opens an object of Sanderling and reads it; again if another object has the name by then.
async fn read_anew<T, F>(
    client: &Client,
    path: &StorePath,
    read: impl Fn(Reader) -> F,
) -> Result<T, ClientError>
where
    F: Future<Output = Result<T, ClientError>>,
{
    let mut reads = 1;
    loop {
        match read(client.open(path).await?).await {
            Err(ClientError::Refused(Refusal::ObjectGone { .. })) if reads < READS_MAX => {
                reads += 1
            }
            read => return read,
        }
    }
}

/// Reads an object of Sanderling; of one that is longer than `bytes_max` its length is returned.
async fn read_object(
    client: &Client,
    path: &StorePath,
    bytes_max: u64,
) -> Result<Result<Bytes, u64>, ClientError> {
    let whole = |reader: Reader| async move {
        match reader.bytes() {
            bytes if bytes > bytes_max => Ok(Err(bytes)),
            bytes => reader.read_range(0, bytes).await.map(Ok),
        }
    };
    read_anew(client, path, whole).await
}

/// Reads an object of Sanderling as [`read_object`] does, block by block.
async fn read_pieces(
    client: &Client,
    path: &StorePath,
    bytes_max: u64,
) -> Result<Result<Vec<Bytes>, u64>, ClientError> {
    let pieces = |reader: Reader| async move {
        let bytes = reader.bytes();
        if bytes > bytes_max {
            return Ok(Err(bytes));
        }
        let block = u64::from(BLOCK_BYTES_MAX);
        let range = |offset: u64| ByteRange { offset, bytes: block.min(bytes - offset) };
        let ranges: Vec<ByteRange> =
            (0..bytes).step_by(BLOCK_BYTES_MAX as usize).map(range).collect();
        reader.read_ranges(&ranges).await.map(Ok)
    };
    read_anew(client, path, pieces).await
}

/// Reads a range of the bytes of an object of Sanderling, or as many of them as there are.
async fn read_object_part(
    client: &Client,
    path: &StorePath,
    range: &Range<u64>,
) -> Result<Bytes, ClientError> {
    let (start, end) = (range.start, range.end);
    let part = |reader: Reader| async move {
        match end.min(reader.bytes()).saturating_sub(start) {
            0 => Ok(Bytes::new()),
            bytes => reader.read_range(start, bytes).await,
        }
    };
    read_anew(client, path, part).await
}

impl std::fmt::Display for TaskBackend {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Store { root, .. } => write!(formatter, "{root}"),
            Self::Directory(directory) => write!(formatter, "dir:{}", directory.display()),
            Self::Bucket(bucket) => write!(formatter, "{bucket}"),
        }
    }
}

/// Returns the name of an entry and how many of its bytes there are: one that lost some is short.
fn listed(entry: Entry) -> (String, u64) {
    (entry.name, entry.bytes.saturating_sub(entry.lost_bytes))
}

/// Returns the number in the name of an object, which has leading zeros up to so many digits;
/// `None` if no runner writes such a name.
pub(crate) fn number_of(name: &str, digits: usize) -> Option<u64> {
    let number = name.parse().ok()?;
    (format!("{number:0digits$}") == name).then_some(number)
}

/// Draws the name of an object by which a process looks whether it can write.
fn check_name() -> String {
    format!("{CHECK}{}", hex(&drawn::<DRAWN_BYTES>()))
}

/// Returns whether a name is one that [`check_name`] returns. Others that begin so are of other
/// programs.
pub(crate) fn is_check(name: &str) -> bool {
    name.strip_prefix(CHECK).is_some_and(|it| is_hex(it, DRAWN_BYTES))
}

/// Writes digits of bytes.
pub(crate) fn hex(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(bytes)
}

/// Returns whether a text is what [`hex`] writes of so many bytes.
pub(crate) fn is_hex(text: &str, bytes: usize) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == 2 * bytes && text.bytes().all(is_digit)
}

fn below(root: &StorePath, name: &str) -> Result<StorePath, Failure> {
    let mut parts = name.split('/').filter(|part| !part.is_empty());
    parts.try_fold(root.clone(), |path, part| refused::joined(&path, part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read() {
        let spec = |text: &str| text.parse::<BackendSpec>();
        assert!(matches!(spec("auto"), Ok(BackendSpec::Auto)));
        assert!(matches!(spec("/auto"), Ok(BackendSpec::Store(_))));
        assert!(matches!(spec("dir:auto"), Ok(BackendSpec::Directory(_))));
        assert!(matches!(spec("mount:/auto"), Ok(BackendSpec::Mounted(_))));
        assert!(matches!(spec("s3://auto"), Ok(BackendSpec::Bucket(_))));
        assert!(matches!(spec("dir:"), Err(BackendSpecError::NoDirectory)));
    }

    #[test]
    fn check_has_a_name_that_no_other_program_gives() {
        assert!(is_check(&check_name()));
        let digits = "0".repeat(31);
        assert!(is_check(&format!("check-{digits}f")));
        for name in ["check-", "check-list", "0", &format!("check-{digits}"), &digits] {
            assert!(!is_check(name), "{name}");
        }
        assert!(!is_check(&format!("check-{digits}A")) && !is_check(&format!("check-{digits}00")));
    }

    #[tokio::test]
    async fn range_of_a_file_ends_with_the_file() {
        let place = tempfile::tempdir().expect("a directory");
        let backend = TaskBackend::Directory(place.path().to_owned());
        backend.make(&["packs"]).await.expect("made");
        assert!(backend.put_absent("packs/a", b"0123456789".to_vec()).await.expect("put"));
        let read = async |name: &str, range| backend.get_range(name, range).await.expect("read");
        assert_eq!(read("packs/a", 2..5).await.as_deref(), Some(&b"234"[..]));
        assert_eq!(read("packs/a", 8..20).await.as_deref(), Some(&b"89"[..]));
        assert_eq!(read("packs/a", 10..20).await.as_deref(), Some(&b""[..]));
        assert_eq!(read("packs/b", 0..1).await, None);
        assert_eq!(read("packs", 0..1).await, None, "a directory is no object");
    }
}
