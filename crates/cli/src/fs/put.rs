//! `fs put`.

use std::path::{Path as LocalPath, PathBuf};

use bytes::BytesMut;
use clap::Args;
use sanderling_client::{Client, ClientError, PutOptions, Writer};
use sanderling_protocol::message::{CreateKind, CreateMode, ObjectKind};
use sanderling_protocol::{Path, Request, StorageClass};
use sanderling_transport::trace::{child, spanned};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc;

use super::attributes::attribute;
use super::lookup::{
    PIECE_BYTES, check_distinct, if_allowed, is_forbidden, joined, stat_of, target,
};
use super::pattern::Destination;
use super::transfer::{AfterFailure, run_all};
use crate::failure::{Exit, Failure, FailureKind, RefusalKind};
use crate::refused;
use crate::session::Session;
use crate::units;
use crate::units::Span;

/// How objects are stored.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Storing {
    /// Replace what has the name; readers see the old object until the new one is complete
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Make missing directories above it
    #[arg(short, long)]
    pub(crate) parents: bool,
    /// The storage class: dram or disk, then :fall-through, :wait or :refuse
    #[arg(long, value_name = "CLASS", default_value = "dram")]
    pub(crate) class: StorageClass,
    /// Delete it after this long
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) ttl: Option<Span>,
}

/// `fs put`.
#[derive(Debug, Args)]
pub(crate) struct Put {
    /// A local file or directory; - for stdin
    #[arg(required = true, value_name = "LOCAL")]
    pub(crate) sources: Vec<PathBuf>,
    /// The object; with several sources, or when it is a directory, they go into it
    #[arg(value_name = "PATH")]
    pub(crate) to: Destination,
    /// Store directories with what is in them
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Store this attribute with each object; may be repeated
    #[arg(long, value_name = "NAME=TEXT", value_parser = attribute)]
    pub(crate) attribute: Vec<(String, String)>,
    /// How to store them.
    #[command(flatten)]
    pub(crate) storing: Storing,
}

/// One local file and the object that it becomes.
#[derive(Debug, Clone)]
struct LocalUpload {
    from: PathBuf,
    to: Path,
    bytes: Option<u64>,
    /// Whether it is stored by one call, which is quicker, and takes no more memory than a stream.
    is_small: bool,
    options: PutOptions,
    /// Why it is unknown whether the object goes into a table, if it is.
    unseen: Option<Failure>,
}

pub(super) async fn run(session: &Session, args: Put) -> Result<(), Failure> {
    let client = session.client().await?;
    let mut jobs = Vec::new();
    // What has no name, as `..`, is refused below.
    let named = args.sources.iter().filter(|source| *source != LocalPath::new("-"));
    let pairs: Vec<_> = named
        .filter_map(|source| Some((source.display(), source.file_name()?.to_string_lossy())))
        .collect();
    check_distinct(&pairs)?;
    for source in &args.sources {
        jobs.extend(planned(session, &client, &args, source).await?);
    }
    let total = jobs.iter().map(|job| job.bytes).sum::<Option<u64>>();
    let (verbs, after) = (("storing", "stored"), AfterFailure::Stop);
    run_all(session, &client, verbs, after, jobs, total, store_traced).await
}

/// Lists what a source consists of, and makes the directories that its files go into.
async fn planned(
    session: &Session,
    client: &Client,
    args: &Put,
    source: &LocalPath,
) -> Result<Vec<LocalUpload>, Failure> {
    let is_stdin = source == LocalPath::new("-");
    let name = source.file_name().and_then(|name| name.to_str());
    let to = match (args.sources.len(), is_stdin) {
        (_, true) => args.to.path.clone(),
        (1, false) => {
            let found = target(session, client, &args.to, name, false).await;
            // Where only a name is made, its creation refuses a directory. A tree would go into one
            // under another name.
            let is_refused_later = !args.recursive && !args.to.is_directory;
            let allowed = if is_refused_later { if_allowed(found)? } else { Some(found?) };
            allowed.unwrap_or_else(|| args.to.path.clone())
        }
        _ => {
            let name = name.ok_or_else(|| unnameable(source))?;
            target(session, client, &args.to, Some(name), true).await?
        }
    };
    let kind = kind_in(session, client, &to).await?;
    if is_stdin {
        return Ok(vec![upload(args, kind, source, to, None)]);
    }
    let metadata = std::fs::metadata(source).map_err(|error| Failure::file(source, error))?;
    if !metadata.is_dir() {
        return Ok(vec![upload(args, kind, source, to, Some(metadata.len()))]);
    }
    if !args.recursive {
        let cause = format!("{} is a directory", source.display());
        return Err(Failure::new(Exit::Failure, RefusalKind::IsADirectory, cause)
            .tried("put without -r")
            .next("the same with --recursive"));
    }
    walk(session, client, args, source, to).await
}

/// Makes the directories of a local tree in the store and lists its files.
async fn walk(
    session: &Session,
    client: &Client,
    args: &Put,
    source: &LocalPath,
    to: Path,
) -> Result<Vec<LocalUpload>, Failure> {
    let mut jobs = Vec::new();
    let mut waiting = vec![(source.to_owned(), to)];
    while let Some((local, path)) = waiting.pop() {
        let kind = ObjectKind::Directory;
        let request =
            Request::MakeDirectory { path: path.clone(), kind, parents: true, is_listed: true };
        session.call(client, request).await?;
        let entries = std::fs::read_dir(&local).map_err(|error| Failure::file(&local, error))?;
        for entry in entries {
            let from = entry.map_err(|error| Failure::file(&local, error))?.path();
            let name = from.file_name().and_then(|name| name.to_str());
            let to = joined(&path, name.ok_or_else(|| unnameable(&from))?)?;
            let metadata = std::fs::metadata(&from).map_err(|error| Failure::file(&from, error))?;
            if metadata.is_dir() {
                waiting.push((from, to));
            } else if metadata.is_file() {
                let (kind, bytes) = (Ok(CreateKind::File), Some(metadata.len()));
                jobs.push(upload(args, kind, &from, to, bytes));
            } else {
                session.output.note(format_args!("passed over: {}, no file", from.display()));
            }
        }
    }
    Ok(jobs)
}

fn unnameable(path: &LocalPath) -> Failure {
    Failure::usage(format_args!("{} has no name in UTF-8", path.display()))
}

/// Returns what an object of this name must be: what a table holds is key-values. In place of it
/// the refusal of a token that may not look the table up.
async fn kind_in(
    session: &Session,
    client: &Client,
    to: &Path,
) -> Result<Result<CreateKind, Failure>, Failure> {
    let Some(parent) = to.parent() else { return Ok(Ok(CreateKind::File)) };
    let found = match stat_of(session, client, &parent).await {
        Err(failure) if is_forbidden(&failure) => {
            let parent = refused::shell_word(parent.as_str());
            return Ok(Err(failure
                .tried(format_args!("looked whether {parent} is a table, which holds no files"))
                .instead("the same with --token-file FILE, a token with read and write")));
        }
        found => found?,
    };
    let is_table = found.is_some_and(|stat| stat.kind == ObjectKind::Table);
    Ok(Ok(if is_table { CreateKind::KeyValue } else { CreateKind::File }))
}

/// Plans the upload of one file. Without a kind it is stored as a file, which a table refuses.
fn upload(
    args: &Put,
    kind: Result<CreateKind, Failure>,
    from: &LocalPath,
    to: Path,
    bytes: Option<u64>,
) -> LocalUpload {
    let storing = &args.storing;
    let unseen = kind.as_ref().err().cloned();
    let kind = kind.unwrap_or(CreateKind::File);
    let options = PutOptions {
        kind,
        mode: if storing.force { CreateMode::Replace } else { CreateMode::New },
        parents: storing.parents,
        class: storing.class,
        ttl: storing.ttl.map(|span| span.millis()),
        expected_bytes: bytes,
        attributes: args.attribute.iter().cloned().collect(),
        ..PutOptions::default()
    };
    // A file that reports no bytes may be endless, such as a device.
    let is_small = bytes.is_some_and(|bytes| (1..=PIECE_BYTES as u64).contains(&bytes));
    LocalUpload { from: from.to_owned(), to, bytes, is_small, options, unseen }
}

impl LocalUpload {
    /// Returns the failure of an error. A file that a table refuses was to be a key-value: what is
    /// missing is the right to look that up.
    fn failure(&self, error: &ClientError, session: &Session) -> Failure {
        let failure = refused::client(error, &session.namenode).tried(self.described());
        match &self.unseen {
            Some(unseen) if failure.kind == FailureKind::Refusal(RefusalKind::WrongKind) => {
                unseen.clone()
            }
            _ => failure,
        }
    }

    fn described(&self) -> String {
        match self.bytes {
            Some(bytes) if !self.is_small => format!(
                "storing {} of {}; what was stored of it is deleted again",
                self.to,
                units::bytes(bytes)
            ),
            _ => format!("storing {}", self.to),
        }
    }
}

/// Stores one file, within a span of a sampled command.
async fn store_traced(
    session: Session,
    client: Client,
    job: LocalUpload,
    sent: mpsc::Sender<u64>,
) -> Result<(), Failure> {
    let mut span = child("put");
    if let Some(span) = &mut span {
        span.text("sanderling.path", &job.to);
    }
    spanned(span, store(session, client, job, sent)).await
}

/// Stores one file. An interrupted or failed one is given up, so that its name is free at once.
async fn store(
    session: Session,
    client: Client,
    job: LocalUpload,
    sent: mpsc::Sender<u64>,
) -> Result<(), Failure> {
    let failed = |error| job.failure(&error, &session);
    if job.is_small {
        let read = tokio::fs::read(&job.from).await;
        let bytes = read.map_err(|error| Failure::file(&job.from, error))?;
        let count = bytes.len() as u64;
        client.put(&job.to, bytes.into(), &job.options).await.map_err(failed)?;
        let _ = sent.send(count).await;
        return Ok(());
    }
    let source: Box<dyn AsyncRead + Send + Unpin> = if job.from == LocalPath::new("-") {
        Box::new(tokio::io::stdin())
    } else {
        let opened = tokio::fs::File::open(&job.from).await;
        Box::new(opened.map_err(|error| Failure::file(&job.from, error))?)
    };
    let mut writer = client.create(&job.to, &job.options).await.map_err(failed)?;
    let copied = tokio::select! {
        copied = copy(source, &mut writer, &job, &session, &sent) => copied,
        () = session.ended.cancelled() => Err(Failure::silent(Exit::Interrupted)),
    };
    match copied {
        Ok(()) => writer.close().await.map(|_| ()).map_err(failed),
        Err(failure) => {
            // The failure itself is what the user needs to know; the lease ends by itself.
            let _ = writer.abort().await;
            Err(failure)
        }
    }
}

async fn copy(
    mut source: Box<dyn AsyncRead + Send + Unpin>,
    writer: &mut Writer,
    job: &LocalUpload,
    session: &Session,
    sent: &mpsc::Sender<u64>,
) -> Result<(), Failure> {
    loop {
        let mut piece = BytesMut::with_capacity(PIECE_BYTES);
        // Short reads of a pipe are gathered, so that blocks are filled whole.
        while piece.len() < PIECE_BYTES {
            let read = source.read_buf(&mut piece).await;
            if read.map_err(|error| Failure::file(&job.from, error))? == 0 {
                break;
            }
        }
        if piece.is_empty() {
            return Ok(());
        }
        let bytes = piece.len() as u64;
        writer.write_bytes(piece.freeze()).await.map_err(|error| job.failure(&error, session))?;
        // Progress is optional: the receiver is gone when the command ends early.
        let _ = sent.send(bytes).await;
    }
}
