//! Where a backup is: a file, or an object in a bucket of S3.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt};
use sanderling_command::failure::{Exit, Failure, FailureKind, whole};
use sanderling_command::session::Session;
use sanderling_datanode::ObjectOptions;
use sanderling_transport::open_regular;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::process::object_settings;

/// Longest time for one operation on a bucket: a part of 5 MiB at 0.7 Mbit/s. Chosen, not measured:
/// an operator waits for it, and no server does.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(60);

/// Parts of an upload in flight at once: they hide the round trips of a bucket, and hold 20 MiB.
/// Chosen, not measured.
const PARTS_MAX: usize = 4;

/// Bytes of each part but the last: the least that S3 accepts ("Amazon S3 multipart upload
/// limits"). With the 10,000 parts that it accepts, a backup has 49 GiB at most.
const PART_BYTES: usize = 5 << 20;

/// A file, or an object in a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    File(PathBuf),
    /// `s3://BUCKET/KEY`.
    Bucket(String),
}

/// Why a text is no place of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum BackupPlaceError {
    /// It is neither a file nor in a bucket.
    #[error("a backup is in a file or at s3://BUCKET/KEY")]
    NeitherFileNorBucket {
        /// What was given.
        text: String,
    },
    /// It is in a bucket without a name.
    #[error("a backup in a bucket has a name: s3://BUCKET/KEY")]
    NoKey {
        /// What was given.
        text: String,
    },
}

impl FromStr for Place {
    type Err = BackupPlaceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some(place) = text.strip_prefix("s3://") else {
            return match text.contains("://") || text.is_empty() {
                true => Err(BackupPlaceError::NeitherFileNorBucket { text: text.to_owned() }),
                false => Ok(Self::File(text.into())),
            };
        };
        match place.split_once('/') {
            Some((bucket, key)) if !bucket.is_empty() && !key.is_empty() && !key.ends_with('/') => {
                Ok(Self::Bucket(text.to_owned()))
            }
            _ => Err(BackupPlaceError::NoKey { text: text.to_owned() }),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(formatter),
            Self::Bucket(url) => url.fmt(formatter),
        }
    }
}

type OpenBucket = (Arc<dyn ObjectStore>, object_store::path::Path);

/// What a bucket is opened for.
#[derive(Debug, Clone, Copy)]
enum BucketUse {
    Read,
    Write,
}

fn open(url: &str, to: BucketUse) -> Result<OpenBucket, Failure> {
    let settings = object_settings();
    let options = ObjectOptions {
        url: url.to_owned(),
        settings,
        time_max: OPERATION_TIMEOUT,
        ..ObjectOptions::default()
    };
    options.open().map_err(|error| unusable(url, to, &error))
}

fn unusable(url: &str, to: BucketUse, error: &dyn fmt::Display) -> Failure {
    let cause = format!("{url} cannot be used: {error}");
    let verb = match to {
        BucketUse::Read => "read",
        BucketUse::Write => "write",
    };
    Failure::new(Exit::Unavailable, FailureKind::ObjectStore, cause)
        .tried(format_args!("to {verb} {url}"))
        .next("the same with AWS_ENDPOINT_URL, AWS_REGION and the keys in the environment")
}

/// A backup that is being written. It has no name before it is published.
pub(super) enum Writing {
    File { file: tokio::fs::File, partial: PartialFile, target: PathBuf },
    Bucket { upload: Box<PartUpload>, url: String },
}

/// An object that is sent in parts, and has no name before it is completed.
pub(super) struct PartUpload {
    upload: Box<dyn MultipartUpload>,
    on_the_way: JoinSet<object_store::Result<()>>,
    /// What does not fill a part yet.
    rest: BytesMut,
}

impl PartUpload {
    async fn put(&mut self, piece: Bytes) -> object_store::Result<()> {
        self.rest.extend_from_slice(&piece);
        while self.rest.len() >= PART_BYTES {
            self.until_at_most(PARTS_MAX - 1).await?;
            let part = self.rest.split_to(PART_BYTES).freeze();
            self.send(part);
        }
        Ok(())
    }

    /// Sends the last part, and waits until all are stored. It may be given up at any moment.
    async fn send_rest(&mut self) -> object_store::Result<()> {
        let rest = self.rest.split().freeze();
        if !rest.is_empty() {
            self.send(rest);
        }
        self.until_at_most(0).await
    }

    fn send(&mut self, part: Bytes) {
        self.on_the_way.spawn(self.upload.put_part(part.into()));
    }

    /// Waits until at most `count` parts are being sent.
    async fn until_at_most(&mut self, count: usize) -> object_store::Result<()> {
        while self.on_the_way.len() > count {
            match self.on_the_way.join_next().await {
                Some(sent) => sent??,
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// Gives the object its name.
    async fn publish(&mut self) -> object_store::Result<()> {
        self.upload.complete().await.map(drop)
    }

    /// Removes what was sent.
    async fn give_up(mut self) {
        self.on_the_way.shutdown().await;
        // The store may have removed it.
        let _ = self.upload.abort().await;
    }
}

/// A file that has part of a backup. It goes with this, unless it has another name by then: the
/// command may end at any moment.
pub(super) struct PartialFile {
    path: PathBuf,
    is_named: bool,
}

impl PartialFile {
    /// Gives the file its name.
    fn rename(mut self, target: &Path) -> io::Result<()> {
        std::fs::rename(&self.path, target)?;
        self.is_named = true;
        Ok(())
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if !self.is_named {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Place {
    /// Begins to write.
    pub(super) async fn begin(&self) -> Result<Writing, Failure> {
        match self {
            Self::File(target) => {
                let target = &regular(target)?;
                let mut partial = target.clone().into_os_string();
                partial.push(".partial");
                let partial = PathBuf::from(partial);
                // What a killed backup has left may belong to others, or be a link.
                let _ = std::fs::remove_file(&partial);
                let mut options = std::fs::File::options();
                let file = options.create_new(true).write(true).mode(0o600).open(&partial);
                let file = file.map_err(|error| Failure::file(&partial, error))?;
                let file = tokio::fs::File::from_std(file);
                let partial = PartialFile { path: partial, is_named: false };
                Ok(Writing::File { file, partial, target: target.clone() })
            }
            Self::Bucket(url) => {
                let (store, path) = open(url, BucketUse::Write)?;
                let upload = store.put_multipart(&path).await;
                let upload = upload.map_err(|error| unusable(url, BucketUse::Write, &error))?;
                let (on_the_way, rest) = (JoinSet::new(), BytesMut::new());
                let upload = Box::new(PartUpload { upload, on_the_way, rest });
                Ok(Writing::Bucket { upload, url: url.clone() })
            }
        }
    }

    /// Opens what is there, to read it on a thread of its own.
    pub(super) async fn read(&self) -> Result<Box<dyn Read + Send>, Failure> {
        match self {
            Self::File(path) => {
                let file = open_regular(path).map_err(|error| Failure::file(path, error))?;
                Ok(Box::new(io::BufReader::new(file)))
            }
            Self::Bucket(url) => {
                let (store, path) = open(url, BucketUse::Read)?;
                let found = store.get(&path).await;
                let found = found.map_err(|error| unusable(url, BucketUse::Read, &error))?;
                let (pieces, source) = mpsc::channel(PARTS_MAX);
                let mut stream = found.into_stream();
                tokio::spawn(async move {
                    while let Some(piece) = stream.next().await {
                        if pieces.send(piece.map_err(io::Error::other)).await.is_err() {
                            return;
                        }
                    }
                });
                Ok(Box::new(Received::new(source)))
            }
        }
    }
}

/// Returns the file that a backup replaces: what a link leads to, so that the link stays.
///
/// # Errors
/// What is there is no regular file: the backup would take the place of a pipe or a device. Or it
/// is a link that leads to nothing: the backup would take the link's place.
fn regular(target: &Path) -> Result<PathBuf, Failure> {
    let found = match std::fs::metadata(target) {
        Ok(found) => found,
        Err(error) => {
            let Ok(named) = std::fs::read_link(target) else { return Ok(target.to_owned()) };
            let words = error.to_string();
            let why = words.split(" (os error ").next().unwrap_or_default();
            let (link, named) = (target.display(), named.display());
            let cause = format!("{link} is a link to {named}, which cannot be read: {why}");
            let failure = Failure::new(Exit::Failure, FailureKind::LocalFile, cause);
            let next = "the same again, when the disk of that file is mounted";
            return Err(failure.tried(whole(target)).next(next));
        }
    };
    if !found.is_file() {
        let cause = format!("{} is no regular file", target.display());
        let failure = Failure::new(Exit::Failure, FailureKind::LocalFile, cause);
        return Err(failure.tried(whole(target)).next("the same with --to FILE"));
    }
    target.canonicalize().map_err(|error| Failure::file(target, error))
}

impl Writing {
    pub(super) async fn write(&mut self, piece: Bytes) -> Result<(), Failure> {
        use tokio::io::AsyncWriteExt;
        match self {
            Self::File { file, partial, .. } => {
                file.write_all(&piece).await.map_err(|error| Failure::file(&partial.path, error))
            }
            Self::Bucket { upload, url } => {
                let written = upload.put(piece).await;
                written.map_err(|error| unusable(url, BucketUse::Write, &error))
            }
        }
    }

    /// Gives it its name, once all of it is stored for good. If the session is to end before that,
    /// what was sent is removed.
    pub(super) async fn publish(self, session: &Session) -> Result<(), Failure> {
        match self {
            Self::File { mut file, partial, target } => {
                use tokio::io::AsyncWriteExt;
                let path = partial.path.clone();
                let failed = |error: io::Error| Failure::file(&path, error);
                // The last bytes may find no room.
                file.flush().await.map_err(failed)?;
                file.sync_all().await.map_err(failed)?;
                partial.rename(&target).map_err(failed)?;
                let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
                let parent = parent.unwrap_or(Path::new("."));
                let synced = std::fs::File::open(parent).and_then(|file| file.sync_all());
                synced.map_err(|error| Failure::file(parent, error))
            }
            Self::Bucket { mut upload, url } => {
                let sent = tokio::select! {
                    sent = upload.send_rest() => Some(sent),
                    () = session.ended.cancelled() => None,
                };
                let done = match sent {
                    Some(Ok(())) => upload.publish().await,
                    Some(failed) => failed,
                    None => {
                        upload.give_up().await;
                        return Err(Failure::silent(Exit::Interrupted));
                    }
                };
                if let Err(error) = done {
                    upload.give_up().await;
                    return Err(unusable(&url, BucketUse::Write, &error));
                }
                Ok(())
            }
        }
    }

    /// Removes what was written.
    pub(super) async fn give_up(self) {
        match self {
            Self::File { .. } => {}
            Self::Bucket { upload, .. } => upload.give_up().await,
        }
    }
}

/// What a channel brings, as a source for a thread that may block.
pub(super) struct Received {
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    piece: Bytes,
}

impl Received {
    pub(super) const fn new(pieces: mpsc::Receiver<io::Result<Bytes>>) -> Self {
        Self { pieces, piece: Bytes::new() }
    }
}

impl Read for Received {
    fn read(&mut self, mut buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.pieces.blocking_recv() {
                None => return Ok(0),
                Some(piece) => self.piece = piece?,
            }
        }
        let count = buffer.len().min(self.piece.len());
        buffer.write_all(&self.piece.split_to(count))?;
        Ok(count)
    }
}
