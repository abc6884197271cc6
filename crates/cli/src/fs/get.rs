//! `fs get` and `fs cat`.

use std::io::Write;
use std::path::{Path as LocalPath, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use clap::Args;
use sanderling_client::Client;
use sanderling_protocol::message::{ObjectKind, ObjectStat};
use sanderling_protocol::{Path, Refusal};
use sanderling_transport::trace::{child, spanned};
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use super::list::{each_page, everything};
use super::lookup::{check_distinct, existing};
use super::pattern::{self, Paths};
use super::transfer::{AfterFailure, ended_by, run_all};
use crate::failure::{Exit, Failure, FailureKind, look_at, whole};
use crate::refused;
use crate::session::Session;

/// `fs get`.
#[derive(Debug, Args)]
pub(crate) struct Get {
    /// The object, or a pattern of several
    pub(crate) path: Paths,
    /// The local file or directory; - for stdout; by default the object's name here
    pub(crate) to: Option<PathBuf>,
    /// Fetch directories with what is in them
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Overwrite local files
    #[arg(short, long)]
    pub(crate) force: bool,
}

/// `fs cat`.
#[derive(Debug, Args)]
pub(crate) struct Cat {
    /// The objects, or patterns of them; a multifile is read as one stream
    #[arg(required = true)]
    pub(crate) paths: Vec<Paths>,
    /// Start at this byte
    #[arg(long, default_value_t = 0)]
    pub(crate) offset: u64,
    /// Write at most this many bytes of each
    #[arg(long)]
    pub(crate) bytes: Option<u64>,
}

/// Bytes of one object fetched at once: as many as one frame to a datanode requests by default
/// (`ClientConfig::read_frame_bytes_max`).
const READ_AHEAD_BYTES: u64 = 4 << 20;

/// One object and the local file that it becomes.
#[derive(Debug)]
struct Download {
    from: Path,
    to: PathBuf,
    is_multifile: bool,
    force: bool,
}

/// What is to be fetched.
#[derive(Debug, Default)]
struct Plan {
    downloads: Vec<Download>,
    /// The bytes of all.
    bytes: u64,
    /// The first of the directories that could not be made.
    failed: Option<Failure>,
}

pub(super) async fn run(session: &Session, args: Get) -> Result<(), Failure> {
    let client = session.client().await?;
    let paths = args.path.expanded(session, &client).await?;
    let mut plan = Plan::default();
    let is_stdout = args.to.as_deref() == Some(LocalPath::new("-"));
    let pairs: Vec<_> = paths.iter().map(|path| (path, path.name().unwrap_or("root"))).collect();
    if !is_stdout {
        check_distinct(&pairs)?;
    }
    for path in &paths {
        let stat = existing(session, &client, path).await?;
        let name = path.name().unwrap_or("root");
        let to = match &args.to {
            Some(to) if to == LocalPath::new("-") => {
                to_stdout(session, &client, path, 0, None).await?;
                continue;
            }
            Some(to) if paths.len() > 1 => local_directory(to)?.join(name),
            Some(to) => to.clone(),
            None => PathBuf::from(name),
        };
        plan.add(session, &client, &args, &stat, to).await?;
    }
    if is_stdout {
        return Ok(());
    }
    fetch_all(session, &client, plan).await
}

/// Returns a local directory into which several objects go.
fn local_directory(path: &LocalPath) -> Result<&LocalPath, Failure> {
    if path.is_dir() {
        return Ok(path);
    }
    Err(no_directory(path))
}

fn no_directory(path: &LocalPath) -> Failure {
    let cause = format!("{} is no directory", path.display());
    let near = path.ancestors().find(|near| near.symlink_metadata().is_ok());
    // Below what is no directory, none can be made.
    let next = match near.is_some_and(|near| !near.is_dir()) {
        true => look_at(path),
        false => format!("mkdir -p {}", refused::shell_word(&path.to_string_lossy())),
    };
    let tried = format!("looked for the directory {}", whole(path));
    Failure::new(Exit::NotFound, FailureKind::LocalFile, cause).tried(tried).next(next)
}

impl Plan {
    /// Adds an object, or a directory with what is in it. A local directory that cannot be made is
    /// named, and what belongs below it is left out.
    async fn add(
        &mut self,
        session: &Session,
        client: &Client,
        args: &Get,
        stat: &ObjectStat,
        to: PathBuf,
    ) -> Result<(), Failure> {
        let is_tree =
            stat.kind.is_container() && (args.recursive || stat.kind != ObjectKind::Multifile);
        let to =
            if to.is_dir() && !is_tree { to.join(stat.path.name().unwrap_or("root")) } else { to };
        let above = to.parent().filter(|above| !above.as_os_str().is_empty());
        if let Some(above) = above.filter(|above| !above.is_dir() && !is_tree) {
            return Err(no_directory(above));
        }
        let (is_multifile, force) = (stat.kind == ObjectKind::Multifile, args.force);
        if !is_tree {
            let from = stat.path.clone();
            self.downloads.push(Download { from, to, is_multifile, force });
            self.bytes += stat.bytes;
            return Ok(());
        }
        if !args.recursive {
            let refusal = Refusal::IsADirectory { path: stat.path.clone() };
            return Err(refused::refusal_failure(&refusal)
                .tried("get without -r")
                .instead("the same with --recursive"));
        }
        make_directory(&to)?;
        let mut left_out: Option<PathBuf> = None;
        for located in everything(session, client, &stat.path).await? {
            let below = located.path.as_str().strip_prefix(stat.path.as_str()).unwrap_or_default();
            let local = to.join(below.trim_start_matches('/'));
            if left_out.as_ref().is_some_and(|directory| local.starts_with(directory)) {
                continue;
            }
            if !located.entry.kind.is_container() {
                self.bytes += located.entry.bytes;
                let (from, is_multifile) = (located.path, false);
                self.downloads.push(Download { from, to: local, is_multifile, force });
            } else if let Err(failure) = make_directory(&local) {
                if !failure.is_of_one_file {
                    return Err(failure);
                }
                match &self.failed {
                    Some(_) => session.output.further(&failure),
                    None => self.failed = Some(failure),
                }
                left_out = Some(local);
            }
        }
        Ok(())
    }
}

fn make_directory(path: &LocalPath) -> Result<(), Failure> {
    std::fs::create_dir_all(path).map_err(|error| Failure::file(path, error))
}

/// Fetches every object that can be fetched. Objects with lost bytes are named and end it with 5,
/// those that cannot be written here with 1.
async fn fetch_all(session: &Session, client: &Client, plan: Plan) -> Result<(), Failure> {
    let (verbs, after) = (("fetching", "fetched"), AfterFailure::GoOnWithOthers);
    let Plan { downloads, bytes, failed } = plan;
    let mut ended = run_all(session, client, verbs, after, downloads, Some(bytes), fetch).await;
    if let Some(named) = failed.and_then(|failed| ended_by(&mut ended, failed)) {
        session.output.further(&named);
    }
    ended
}

/// Objects that this process has begun to fetch.
static FETCHED: AtomicU64 = AtomicU64::new(0);

/// Refuses to put a file where another one is, unless it is to be replaced, and where something is
/// that is no file: the new file would take the place of a pipe or a device.
fn check_replaced(job: &Download) -> Result<(), Failure> {
    let Ok(found) = std::fs::symlink_metadata(&job.to) else { return Ok(()) };
    let is_file = std::fs::metadata(&job.to).map_or(found.is_symlink(), |it| it.is_file());
    if !is_file {
        let cause = format!("{} is no regular file", job.to.display());
        let from = refused::shell_word(job.from.as_str());
        let next = format!("sanderling fs get {from} -");
        return Err(Failure::new(Exit::Failure, FailureKind::LocalFile, cause)
            .tried(is_kept(&job.to))
            .next(next)
            .of_one_file());
    }
    if job.force {
        return Ok(());
    }
    let cause = format!("{} exists", job.to.display());
    let failure = Failure::new(Exit::Failure, FailureKind::LocalFile, cause).of_one_file();
    Err(failure.tried(is_kept(&job.to)).next("the same with --force"))
}

/// Returns what was tried before something would have been replaced.
fn is_kept(path: &LocalPath) -> String {
    format!("looked at {}: it is as it was", whole(path))
}

/// Fetches one object into a file beside its destination, which it becomes when it is whole.
async fn fetch(
    session: Session,
    client: Client,
    job: Download,
    sent: mpsc::Sender<u64>,
) -> Result<(), Failure> {
    check_replaced(&job)?;
    // A short name, whatever that of the file: it fits where the file's own does.
    let number = FETCHED.fetch_add(1, Ordering::Relaxed);
    let partial = format!(".sanderling-{}-{number}.part", std::process::id());
    let mut partial = UnfinishedFile(Some(job.to.with_file_name(partial)));
    let mut span = child("get");
    if let Some(span) = &mut span {
        span.text("file.path", &job.to.display());
    }
    let fetched = tokio::select! {
        fetched = spanned(span, fetch_into(&session, &client, &job, &partial, &sent)) => fetched,
        () = session.ended.cancelled() => Err(Failure::silent(Exit::Interrupted)),
    };
    fetched?;
    partial.becomes(&job.to).map_err(|error| Failure::file(&job.to, error))
}

/// A file that is removed unless it gets its name, also when the command ends before that.
struct UnfinishedFile(Option<PathBuf>);

impl UnfinishedFile {
    fn path(&self) -> &LocalPath {
        self.0.as_deref().unwrap_or_else(|| LocalPath::new(""))
    }

    fn becomes(&mut self, to: &LocalPath) -> std::io::Result<()> {
        std::fs::rename(self.path(), to)?;
        self.0 = None;
        Ok(())
    }
}

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

async fn fetch_into(
    session: &Session,
    client: &Client,
    job: &Download,
    partial: &UnfinishedFile,
    sent: &mpsc::Sender<u64>,
) -> Result<(), Failure> {
    // The file beside it is this command's affair: the user named the other.
    let local = |error: std::io::Error| Failure::file(&job.to, error);
    // What a killed process of this number has left goes. A name that another user has put there, a
    // link for example, is not written through.
    let _ = std::fs::remove_file(partial.path());
    // Not on another thread: it could make the file after this future has been given up.
    let file = std::fs::File::create_new(partial.path()).map_err(local)?;
    let mut file = tokio::fs::File::from_std(file);
    for path in sources(session, client, &job.from, job.is_multifile).await? {
        let mut pieces = Pieces::open(session, client, &path).await?;
        while let Some(piece) = pieces.next().await? {
            file.write_all(&piece).await.map_err(local)?;
            // Progress is optional: the receiver is gone when the command ends early.
            let _ = sent.send(piece.len() as u64).await;
        }
    }
    file.flush().await.map_err(local)
}

/// Returns the objects whose bytes make up this one: its parts when it is a multifile.
async fn sources(
    session: &Session,
    client: &Client,
    path: &Path,
    is_multifile: bool,
) -> Result<Vec<Path>, Failure> {
    if !is_multifile {
        return Ok(vec![path.clone()]);
    }
    let mut parts = Vec::new();
    each_page(session, client, path, |page| {
        parts.extend(page.into_iter().map(|located| located.path));
        Ok(())
    })
    .await?;
    Ok(parts)
}

/// The bytes of one object from its start to its end.
struct Pieces<'a> {
    session: &'a Session,
    path: &'a Path,
    stream: sanderling_client::ReadStream,
}

impl<'a> Pieces<'a> {
    async fn open(session: &'a Session, client: &Client, path: &'a Path) -> Result<Self, Failure> {
        let reader =
            client.open(path).await.map_err(|error| refused::client(&error, &session.namenode))?;
        Ok(Self { session, path, stream: reader.stream(READ_AHEAD_BYTES) })
    }

    async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        self.stream.next().await.transpose().map_err(|error| {
            refused::client(&error, &self.session.namenode)
                .tried(format_args!("reading {}", self.path))
        })
    }
}

pub(super) async fn cat(session: &Session, args: Cat) -> Result<(), Failure> {
    let client = session.client().await?;
    let mut result = Ok(());
    for path in pattern::all(session, &client, &args.paths).await? {
        let written = to_stdout(session, &client, &path, args.offset, args.bytes).await;
        // What is lost of one leaves the others.
        if written.as_ref().is_err_and(|failure| failure.exit != Exit::Partial) {
            return written;
        }
        if let (Err(_), Err(further)) = (&result, &written) {
            session.output.further(further);
        }
        result = result.and(written);
    }
    result
}

async fn to_stdout(
    session: &Session,
    client: &Client,
    path: &Path,
    offset: u64,
    bytes: Option<u64>,
) -> Result<(), Failure> {
    let stat = existing(session, client, path).await?;
    let is_multifile = stat.kind == ObjectKind::Multifile;
    if stat.kind.is_container() && !is_multifile {
        let refusal = Refusal::IsADirectory { path: path.clone() };
        return Err(refused::refusal_failure(&refusal));
    }
    if !is_multifile && (offset > 0 || bytes.is_some()) {
        return range_to_stdout(session, client, path, offset, bytes.unwrap_or(u64::MAX)).await;
    }
    let (mut skip, mut left) = (offset, bytes.unwrap_or(u64::MAX));
    for part in sources(session, client, path, is_multifile).await? {
        let mut pieces = Pieces::open(session, client, &part).await?;
        while left > 0
            && let Some(mut piece) = pieces.next().await?
        {
            let skipped = skip.min(piece.len() as u64);
            skip -= skipped;
            let _ = piece.split_to(usize::try_from(skipped).unwrap_or(usize::MAX));
            piece.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            left -= piece.len() as u64;
            print(&piece)?;
        }
    }
    Ok(())
}

/// Reads only the requested range.
async fn range_to_stdout(
    session: &Session,
    client: &Client,
    path: &Path,
    offset: u64,
    bytes: u64,
) -> Result<(), Failure> {
    let failed = |error| refused::client(&error, &session.namenode);
    let reader = client.open(path).await.map_err(failed)?;
    if offset > reader.bytes() {
        let refusal = Refusal::OutOfRange { offset, bytes: 0, end: reader.bytes() };
        return Err(refused::refusal_failure(&refusal)
            .next(format_args!("sanderling fs stat {}", refused::shell_word(path.as_str()))));
    }
    let end = offset.saturating_add(bytes).min(reader.bytes());
    let mut at = offset;
    while at < end {
        let wanted = (end - at).min(READ_AHEAD_BYTES);
        let piece = reader.read_range(at, wanted).await.map_err(failed)?;
        at += piece.len() as u64;
        print(&piece)?;
    }
    Ok(())
}

fn print(piece: &[u8]) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(piece)?;
    Ok(stdout.flush()?)
}
