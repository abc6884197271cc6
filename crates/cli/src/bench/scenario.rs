//! What each type prepares and does. A new type is a line in [`TYPES`] and its functions.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use sanderling_client::{Client, ClientError, MultiReader, PutOptions, Reader, Writer};
use sanderling_protocol::Path;
use sanderling_protocol::message::ObjectKind;
use tokio::sync::Mutex;

use crate::args::bench::Bench;

type Later<T> = Pin<Box<dyn Future<Output = Result<T, ClientError>> + Send>>;

/// One type of benchmark.
pub(crate) struct Kind {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// One line of help.
    pub(crate) about: &'static str,
    /// Whether `--depth` operations of a thread are in flight at once.
    pub(crate) is_deep: bool,
    pub(super) prepare: fn(Work) -> Later<State>,
    /// Does one operation and returns its bytes.
    pub(super) operation: fn(Arc<State>, u64) -> Later<u64>,
}

macro_rules! kinds {
    ($( $name:literal, $deep:literal, $prepare:ident, $operation:ident, $about:literal; )*) => {
        /// Every type of benchmark.
        pub(crate) const TYPES: &[Kind] = &[ $( Kind {
            name: $name,
            about: $about,
            is_deep: $deep,
            prepare: |work| Box::pin($prepare(work)),
            operation: |state, index| Box::pin($operation(state, index)),
        }, )* ];
    };
}

kinds! {
    "write", false, a_writer, write_and_flush, "append --size bytes to a file and flush";
    "writeAsync", false, a_writer, write_only, "append --size bytes in the background";
    "readSequential", false, a_file, read_next, "read --size bytes after the other";
    "readSequentialAsync", true, a_file, read_next, "the same, --depth reads at once";
    "readRandom", false, a_file, read_anywhere, "read --size bytes anywhere in a file";
    "readRandomAsync", true, a_file, read_anywhere, "the same, --depth reads at once";
    "readMultiStream", false, a_multifile, read_stream, "read a multifile as one stream";
    "putFile", false, a_directory, put_file, "store a whole file of --size bytes";
    "createFile", false, a_directory, create_file, "create and close an empty file";
    "createFileAsync", true, a_directory, create_file, "the same, --depth at once";
    "createMultiFile", false, a_directory, create_multifile, "make a multifile";
    "putKey", false, a_table, put_key, "set a key's value of --size bytes";
    "getKey", false, a_table, get_key, "get a key's value of --size bytes";
    "getFile", false, a_full_directory, stat_file, "look a file up";
    "getFileAsync", true, a_full_directory, stat_file, "the same, --depth at once";
    "enumerateDir", false, a_full_directory, enumerate, "list a directory of 1000 files";
    "browseDir", false, a_full_directory, browse, "list a directory and look 100 of its files up";
}

/// Files or keys that are prepared where an operation needs some to choose from.
const PREPARED: u64 = 1000;

/// Files looked up by one `browseDir`.
const BROWSED: usize = 100;

/// Parts of a `readMultiStream`'s multifile.
const PARTS: u64 = 16;

/// What a thread is given.
#[derive(Debug, Clone)]
pub(super) struct Work {
    pub(super) client: Client,
    pub(super) directory: Path,
    pub(super) args: Bench,
    /// Operations done by all threads.
    pub(super) done: Arc<AtomicU64>,
}

/// What a thread has prepared.
pub(super) struct State {
    work: Work,
    piece: Bytes,
    writer: Mutex<Option<Writer>>,
    reader: Option<Reader>,
    stream: Mutex<Option<MultiReader>>,
}

impl Work {
    fn path(&self, name: &str) -> Result<Path, ClientError> {
        self.directory.join(name).map_err(ClientError::Refused)
    }

    fn piece(&self) -> Bytes {
        let bytes = usize::try_from(self.args.size.0).unwrap_or(usize::MAX);
        // Not constant, so that nothing on the way can make it smaller.
        (0..bytes).map(|at| (at.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0]).collect()
    }

    fn options(&self) -> PutOptions {
        PutOptions { class: self.args.class, ..PutOptions::default() }
    }

    fn operations(&self) -> u64 {
        self.args.warmup + self.args.count
    }

    async fn make(&self, kind: ObjectKind) -> Result<(), ClientError> {
        self.client.make_directory(&self.directory, kind, true, true).await.map(|_| ())
    }

    fn ready(self) -> State {
        let piece = self.piece();
        let (writer, stream) = (Mutex::new(None), Mutex::new(None));
        State { work: self, piece, writer, reader: None, stream }
    }

    /// Writes `pieces` pieces into one object.
    async fn fill(&self, path: &Path, pieces: u64) -> Result<(), ClientError> {
        let piece = self.piece();
        let mut writer = self.client.create(path, &self.options()).await?;
        for _ in 0..pieces {
            writer.write_bytes(piece.clone()).await?;
        }
        writer.close().await.map(|_| ())
    }
}

impl State {
    /// Counts one operation.
    pub(super) fn count(&self) {
        self.work.done.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends what is open: it is part of the measurement.
    pub(super) async fn finish(&self) -> Result<(), ClientError> {
        match self.writer.lock().await.take() {
            Some(writer) => writer.close().await.map(|_| ()),
            None => Ok(()),
        }
    }

    async fn read(&self, piece: u64) -> Result<u64, ClientError> {
        let reader = self.reader.as_ref().expect("prepared with a file");
        let bytes = self.work.args.size.0;
        let read = reader.read_range(piece * bytes, bytes).await?;
        Ok(read.len() as u64)
    }
}

async fn a_directory(work: Work) -> Result<State, ClientError> {
    work.make(ObjectKind::Directory).await?;
    Ok(work.ready())
}

async fn a_writer(work: Work) -> Result<State, ClientError> {
    work.make(ObjectKind::Directory).await?;
    let writer = work.client.create(&work.path("written")?, &work.options()).await?;
    Ok(State { writer: Mutex::new(Some(writer)), ..work.ready() })
}

async fn a_file(work: Work) -> Result<State, ClientError> {
    work.make(ObjectKind::Directory).await?;
    let path = work.path("read")?;
    work.fill(&path, work.operations()).await?;
    let reader = work.client.open(&path).await?;
    Ok(State { reader: Some(reader), ..work.ready() })
}

async fn a_multifile(work: Work) -> Result<State, ClientError> {
    work.make(ObjectKind::Multifile).await?;
    for part in 0..PARTS {
        let path = work.path(&format!("part-{part:02}"))?;
        work.fill(&path, work.operations().div_ceil(PARTS)).await?;
    }
    Ok(work.ready())
}

async fn a_table(work: Work) -> Result<State, ClientError> {
    work.make(ObjectKind::Table).await?;
    let piece = work.piece();
    for key in 0..PREPARED.min(work.operations()) {
        work.client.put_value(&work.directory, &format!("key-{key}"), piece.clone()).await?;
    }
    Ok(work.ready())
}

async fn a_full_directory(work: Work) -> Result<State, ClientError> {
    work.make(ObjectKind::Directory).await?;
    for file in 0..PREPARED {
        work.client
            .put(&work.path(&format!("file-{file}"))?, Bytes::new(), &work.options())
            .await?;
    }
    Ok(work.ready())
}

async fn write_and_flush(state: Arc<State>, _: u64) -> Result<u64, ClientError> {
    let mut writer = state.writer.lock().await;
    let writer = writer.as_mut().expect("prepared with a writer");
    writer.write_bytes(state.piece.clone()).await?;
    writer.flush().await?;
    Ok(state.piece.len() as u64)
}

async fn write_only(state: Arc<State>, _: u64) -> Result<u64, ClientError> {
    let mut writer = state.writer.lock().await;
    let writer = writer.as_mut().expect("prepared with a writer");
    writer.write_bytes(state.piece.clone()).await?;
    Ok(state.piece.len() as u64)
}

async fn read_next(state: Arc<State>, index: u64) -> Result<u64, ClientError> {
    state.read(index).await
}

async fn read_anywhere(state: Arc<State>, index: u64) -> Result<u64, ClientError> {
    state.read(scattered(index) % state.work.operations()).await
}

async fn read_stream(state: Arc<State>, _: u64) -> Result<u64, ClientError> {
    let mut stream = state.stream.lock().await;
    loop {
        if let Some(open) = stream.as_mut()
            && let Some(bytes) = open.next().await
        {
            return bytes.map(|bytes| bytes.len() as u64);
        }
        *stream = Some(state.work.client.open_multi(&state.work.directory).await?);
    }
}

async fn put_file(state: Arc<State>, index: u64) -> Result<u64, ClientError> {
    let path = state.work.path(&format!("file-{index}"))?;
    state.work.client.put(&path, state.piece.clone(), &state.work.options()).await?;
    Ok(state.piece.len() as u64)
}

async fn create_file(state: Arc<State>, index: u64) -> Result<u64, ClientError> {
    let path = state.work.path(&format!("file-{index}"))?;
    let writer = state.work.client.create(&path, &state.work.options()).await?;
    writer.close().await.map(|_| 0)
}

async fn create_multifile(state: Arc<State>, index: u64) -> Result<u64, ClientError> {
    let path = state.work.path(&format!("multifile-{index}"))?;
    state.work.client.make_multifile(&path).await.map(|_| 0)
}

async fn put_key(state: Arc<State>, index: u64) -> Result<u64, ClientError> {
    let key = format!("key-{}", index % PREPARED);
    state.work.client.put_value(&state.work.directory, &key, state.piece.clone()).await?;
    Ok(state.piece.len() as u64)
}

async fn get_key(state: Arc<State>, index: u64) -> Result<u64, ClientError> {
    let keys = PREPARED.min(state.work.operations());
    let key = format!("key-{}", scattered(index) % keys);
    let value = state.work.client.get_value(&state.work.directory, &key).await?;
    Ok(value.len() as u64)
}

async fn stat_file(state: Arc<State>, index: u64) -> Result<u64, ClientError> {
    let path = state.work.path(&format!("file-{}", scattered(index) % PREPARED))?;
    state.work.client.stat(&path).await.map(|_| 0)
}

async fn enumerate(state: Arc<State>, _: u64) -> Result<u64, ClientError> {
    state.work.client.list_all(&state.work.directory).await.map(|_| 0)
}

async fn browse(state: Arc<State>, _: u64) -> Result<u64, ClientError> {
    let entries = state.work.client.list_all(&state.work.directory).await?;
    for entry in entries.iter().take(BROWSED) {
        state.work.client.stat(&state.work.path(&entry.name)?).await?;
    }
    Ok(0)
}

/// Spreads indices over 64 bits, the same way in every run (SplitMix64's finalizer).
const fn scattered(index: u64) -> u64 {
    let mut mixed = index.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
