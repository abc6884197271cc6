//! Serves the images of a generation to CRIU, straight from the backend.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_core::checkpoint::{
    CHUNK_BYTES, CheckpointManifest, EntryKind, FramingError, StateLayout,
};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::backend::TaskBackend;
use crate::criu::StopServing;
use crate::generation_reader::GenerationReader;
use crate::generations::{Generations, other_release};
use crate::image_ahead::AheadImage;
use crate::image_stream::{ImageRequestError, serve};
use crate::task_failure::TaskFailure;

/// The images of one generation.
#[derive(Clone)]
pub(crate) struct ImageServer {
    reader: Arc<GenerationReader<TaskBackend>>,
    manifest: Arc<CheckpointManifest>,
    images: Arc<BTreeMap<String, Range<u64>>>,
}

/// Images that are served to one CRIU.
pub(crate) struct ServedImages {
    /// Ends the wait for CRIU when it is dropped, if CRIU has not connected.
    pub(crate) stop: StopServing,
    /// Gets why an image cannot be read, if one cannot. CRIU waits for the rest of it from then on,
    /// until it is ended.
    pub(crate) failed: oneshot::Receiver<Failure>,
    /// Gets what was wrong with CRIU's requests when there are no more.
    pub(crate) ended: oneshot::Receiver<Option<Failure>>,
}

/// Writes images into CRIU's pipes, each on a thread of its own.
#[derive(Clone)]
struct ImageWriter {
    server: ImageServer,
    runtime: Handle,
    /// The largest image, until it is requested.
    ahead: Arc<Mutex<Option<AheadImage>>>,
    failed: Arc<Mutex<Option<oneshot::Sender<Failure>>>>,
}

impl ImageServer {
    /// Reads the index of a generation.
    ///
    /// # Errors
    /// It cannot be read: the generation is of no use.
    pub(crate) async fn open(
        generations: &Generations,
        manifest: &CheckpointManifest,
    ) -> Result<Self, Failure> {
        let number = manifest.generation;
        let bad =
            |why: String| TaskFailure::BadGeneration.of_generation(&manifest.task, number, why);
        let unread = |error: FramingError| match error {
            FramingError::Version(_) => other_release(&manifest.task, number, error),
            error => bad(error.to_string()),
        };
        // The index is a small part of its pack.
        let (mut head, index) = (Vec::new(), generations.reader(manifest, std::iter::empty()));
        let mut end = manifest.stream_bytes.min(CHUNK_BYTES as u64);
        loop {
            let read = head.len() as u64..end;
            let push = |bytes: &[u8]| {
                head.extend_from_slice(bytes);
                Ok(())
            };
            index.read_range(manifest, read, push).await?;
            let bytes = StateLayout::head_bytes(&head).map_err(unread)?;
            let bytes = bytes.unwrap_or(usize::MAX) as u64;
            if bytes <= end {
                break;
            }
            if bytes > manifest.stream_bytes {
                return Err(bad("its index is cut".to_owned()));
            }
            end = bytes;
        }
        let layout = StateLayout::read(&head).map_err(unread)?;
        let image = |(number, start): &(usize, u64)| {
            let entry = &layout.entries[*number];
            let EntryKind::File { bytes } = entry.kind else { return None };
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            Some((name, *start..start + bytes))
        };
        let images: BTreeMap<String, Range<u64>> = layout.files.iter().filter_map(image).collect();
        // Its memory is for the next one.
        drop(index);
        // CRIU reads each image once.
        let reader = generations.reader(manifest, images.values().cloned());
        // CRIU requests small images first, which share a pack. The largest one is decoded ahead.
        let smallest = images.values().filter(|range| !range.is_empty());
        if let Some(smallest) = smallest.min_by_key(|range| range.end - range.start) {
            reader.fetch_first(manifest, smallest);
        }
        Ok(Self { reader, manifest: Arc::new(manifest.clone()), images: Arc::new(images) })
    }

    /// Serves images until `stop` is dropped and CRIU has closed its socket.
    pub(crate) fn serve(&self, listener: UnixListener, path: PathBuf) -> ServedImages {
        let (stop, stopped) = oneshot::channel::<()>();
        let (done, ended) = oneshot::channel();
        let (sender, failed) = oneshot::channel();
        let ahead = Arc::new(Mutex::new(self.largest_ahead()));
        let writer = ImageWriter {
            server: self.clone(),
            runtime: Handle::current(),
            ahead: Arc::clone(&ahead),
            failed: Arc::new(Mutex::new(Some(sender))),
        };
        let images = Arc::clone(&self.images);
        let write = move |name: &str, pipe: File| writer.write(name, pipe);
        tokio::task::spawn_blocking(move || {
            let accepted = listener.accept();
            let exists = |name: &str| images.contains_key(name);
            let served = accepted.map_err(ImageRequestError::from);
            let served = served.and_then(|(socket, _)| serve(socket, exists, write));
            // If it was not requested, it will not be.
            let unread = locked(&ahead).take();
            drop(unread);
            let failure = served
                .err()
                .map(|error| Failure::caused(Exit::Failure, FailureKind::CriuRestore, error));
            let _ = done.send(failure);
        });
        tokio::spawn(async move {
            let _ = stopped.await;
            // If CRIU has failed before it connected, the server still waits.
            let _ = UnixStream::connect(path);
        });
        ServedImages { stop, failed, ended }
    }

    /// Begins to decode the largest image, while CRIU starts.
    fn largest_ahead(&self) -> Option<AheadImage> {
        let (name, range) =
            self.images.iter().max_by_key(|(_, range)| range.end.saturating_sub(range.start))?;
        Some(AheadImage::begin(&self.reader, &self.manifest, name, range.clone()))
    }
}

impl ImageWriter {
    /// Writes an image. If it cannot be read, its pipe stays open until CRIU's end is closed: CRIU
    /// may take an end of the pipe for the end of the image, and let a task go on that lacks a part
    /// of its memory.
    fn write(&self, name: &str, mut pipe: File) {
        // CRIU that has failed breaks the pipe; its own error counts then.
        let push = |bytes: &[u8]| pipe.write_all(bytes).map_err(|_| broken_pipe());
        let Err(failure) = self.read(name, push) else { return };
        if TaskFailure::BrokenPipe.is(&failure) {
            return;
        }
        let first = locked(&self.failed).take();
        if let Some(first) = first {
            let _ = first.send(failure);
        }
        let mut closed = [PollFd::new(&pipe, PollFlags::empty())];
        let _ = retry_on_intr(|| poll(&mut closed, None));
    }

    fn read(
        &self,
        name: &str,
        each: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let ImageServer { reader, manifest, images } = &self.server;
        let ahead = locked(&self.ahead).take_if(|ahead| ahead.has_name(name));
        match ahead {
            Some(ahead) => ahead.read(reader, each),
            None => self.runtime.block_on(reader.read_range(manifest, images[name].clone(), each)),
        }
    }
}

/// Locks what a thread that panicked has not changed by halves.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn broken_pipe() -> Failure {
    TaskFailure::BrokenPipe.failure(Exit::Failure, "CRIU has closed a pipe")
}
