//! Serves the images of a generation to CRIU, straight from the backend.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_core::checkpoint::{CHUNK_BYTES, CheckpointManifest, EntryKind, StateLayout};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::backend::TaskBackend;
use crate::criu::StopServing;
use crate::generation_reader::GenerationReader;
use crate::generations::Generations;
use crate::image_stream::{ImageRequestError, serve};
use crate::task_failure::TaskFailure;

/// The images of one generation.
#[derive(Clone)]
pub(crate) struct ImageServer {
    reader: Arc<GenerationReader<TaskBackend>>,
    manifest: Arc<CheckpointManifest>,
    images: Arc<BTreeMap<String, Range<u64>>>,
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
            let bytes = StateLayout::head_bytes(&head).map_err(|error| bad(error.to_string()))?;
            let bytes = bytes.unwrap_or(usize::MAX) as u64;
            if bytes <= end {
                break;
            }
            if bytes > manifest.stream_bytes {
                return Err(bad("its index is cut".to_owned()));
            }
            end = bytes;
        }
        let layout = StateLayout::read(&head).map_err(|error| bad(error.to_string()))?;
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
        Ok(Self { reader, manifest: Arc::new(manifest.clone()), images: Arc::new(images) })
    }

    /// Serves images until the returned sender is dropped. The receiver gets what was wrong with
    /// the generation.
    pub(crate) fn serve(
        &self,
        listener: UnixListener,
        path: PathBuf,
    ) -> (StopServing, oneshot::Receiver<Option<Failure>>) {
        let (stop, stopped) = oneshot::channel::<()>();
        let (done, failed) = oneshot::channel();
        let first: Arc<Mutex<Option<Failure>>> = Arc::default();
        let (runtime, noted) = (Handle::current(), Arc::clone(&first));
        let images = Arc::clone(&self.images);
        let served = self.clone();
        let write = move |name: &str, mut pipe: File| {
            let range = served.images[name].clone();
            // CRIU that has failed breaks the pipe; its own error counts then.
            let push = |bytes: &[u8]| pipe.write_all(bytes).map_err(|_| broken_pipe());
            let read = served.reader.read_range(&served.manifest, range, push);
            if let Err(failure) = runtime.block_on(read)
                && !TaskFailure::BrokenPipe.is(&failure)
                && let Ok(mut first) = noted.lock()
            {
                first.get_or_insert(failure);
            }
        };
        tokio::task::spawn_blocking(move || {
            let accepted = listener.accept();
            let exists = |name: &str| images.contains_key(name);
            let served = accepted.map_err(ImageRequestError::from);
            let served = served.and_then(|(socket, _)| serve(socket, exists, write));
            let mut failure = first.lock().ok().and_then(|mut first| first.take());
            if let (None, Err(error)) = (&failure, served) {
                failure = Some(Failure::caused(Exit::Failure, FailureKind::CriuRestore, error));
            }
            let _ = done.send(failure);
        });
        tokio::spawn(async move {
            let _ = stopped.await;
            // If CRIU has failed before it connected, the server still waits.
            let _ = UnixStream::connect(path);
        });
        (stop, failed)
    }
}

fn broken_pipe() -> Failure {
    TaskFailure::BrokenPipe.failure(Exit::Failure, "CRIU has closed a pipe")
}
