//! A backup of the catalog: written to a file without a name first, then sent, so that a slow
//! reader holds neither the catalog nor memory.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use sanderling_protocol::{Millis, Refusal};
use sanderling_transport::HttpConnection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};
use tokio_stream::wrappers::ReceiverStream;
use tracing::{info, warn};

use super::api::{HttpApi, HttpResult};
use super::refusal::HttpRefusal;
use crate::backup::{self, JOURNAL_FREE_BYTES_MIN};
use crate::file_names;
use crate::state::NamenodeState;

/// When a caller tries again while another has the only permit. A backup takes seconds or minutes.
/// Chosen, not measured.
const RETRY_INTERVAL: Millis = Millis(2000);

/// Pieces that wait for the reader, beside the one that is sent and the one that is read: a reader
/// keeps about 1 MiB.
const PIECES_MAX: usize = 2;

/// Time that a reader has for any backup, beside that for its bytes. As long as an HTTP peer may
/// receive nothing by default (`HttpOptions::take_within`).
const SEND_TIMEOUT: Duration = Duration::from_secs(60);

/// A reader that takes fewer bytes per second is cut off: it would keep others from their backups.
/// 8 Mbit/s, less than any line over which a catalog of gigabytes is fetched. Chosen, not measured.
const BYTES_PER_SECOND_MIN: u64 = 1 << 20;

/// What makes backups.
#[derive(Debug, Clone)]
pub(crate) struct Backups {
    directory: PathBuf,
    /// One is made or sent at a time.
    permits: Arc<Semaphore>,
}

impl Backups {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory, permits: Arc::new(Semaphore::new(1)) }
    }

    /// Returns where the journal is.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }
}

/// Sends a backup of the catalog as it is now.
pub(super) async fn send(
    State(api): State<HttpApi>,
    Extension(connection): Extension<HttpConnection>,
) -> HttpResult {
    let Ok(permit) = Arc::clone(&api.backups.permits).try_acquire_owned() else {
        let why = "another backup is being taken".to_owned();
        return Err(Refusal::RetryAfter { after: RETRY_INTERVAL, why }.into());
    };
    connection.follow()?;
    let (state, directory) = (Arc::clone(&api.requests.state), api.backups.directory.clone());
    // The permit goes along: a caller that leaves meanwhile does not stop the writing.
    let made = spawn_blocking(move || make(&state, &directory).map(|made| (made, permit))).await;
    let ((file, bytes), permit) = match made {
        Ok(Ok(made)) => made,
        Ok(Err(error)) => return Err(failed(&error.to_string())),
        Err(error) => return Err(failed(&error.to_string())),
    };
    let (pieces, receiver) = mpsc::channel(PIECES_MAX);
    tokio::spawn(deliver(api, file, bytes, permit, pieces));
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CACHE_CONTROL, "no-store".to_owned()),
        (header::CONTENT_LENGTH, bytes.to_string()),
    ];
    Ok((headers, Body::from_stream(ReceiverStream::new(receiver))).into_response())
}

fn failed(why: &str) -> HttpRefusal {
    warn!(why, "a backup could not be taken");
    let why = format!("the backup cannot be written beside the journal: {why}");
    HttpRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, &why)
}

/// Writes a backup to a file that is gone with its last handle. Until the reader has all of it, the
/// journal lacks the room that it takes: so some stays free beside it.
fn make(state: &NamenodeState, directory: &Path) -> io::Result<(File, u64)> {
    // The lock is held for the image alone, which shares its memory with the catalog.
    let image = state.namenode.read().catalog().image();
    let commands = image.index();
    // A start of the namenode removes it, if this process ends before the next line.
    let path = directory.join(file_names::BACKUP);
    let mut options = File::options();
    let file =
        options.create(true).truncate(true).read(true).write(true).mode(0o600).open(&path)?;
    fs::remove_file(&path)?;
    let group = state.group.generation();
    let bytes = backup::write(&file, image, group, JOURNAL_FREE_BYTES_MIN)?;
    info!(commands, bytes, "backup taken");
    Ok((file, bytes))
}

/// Sends the file, as long as the reader takes it.
async fn deliver(
    api: HttpApi,
    file: File,
    bytes: u64,
    permit: OwnedSemaphorePermit,
    pieces: mpsc::Sender<io::Result<Bytes>>,
) {
    let limit = Instant::now() + SEND_TIMEOUT + Duration::from_secs(bytes / BYTES_PER_SECOND_MIN);
    let mut file = file;
    let why = loop {
        let read = spawn_blocking(move || {
            let mut piece = Vec::with_capacity(backup::PIECE);
            let read = (&file).take(backup::PIECE as u64).read_to_end(&mut piece);
            (file, read.map(|_| Bytes::from(piece)))
        });
        let Ok((same, piece)) = read.await else { break "its file cannot be read" };
        file = same;
        let is_last = piece.as_ref().map_or(true, Bytes::is_empty);
        if is_last && piece.is_ok() {
            api.requests.state.metrics.backup_sent();
            drop(permit);
            return;
        }
        tokio::select! {
            sent = timeout_at(limit, pieces.send(piece)) => match sent {
                Ok(Ok(())) if is_last => break "its file cannot be read",
                Ok(Ok(())) => {}
                Ok(Err(_)) => break "its reader is gone",
                Err(_) => break "its reader is too slow",
            },
            () = api.stop.cancelled() => break "the namenode stops",
        }
    };
    warn!(why, "a backup was not sent to its end");
    // An answer that is cut off is none: its length was announced.
    drop(permit);
}
