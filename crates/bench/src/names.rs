//! Types about names: create, look up, list.

use bytes::Bytes;
use sanderling_client::PutOptions;
use sanderling_protocol::Path;
use sanderling_protocol::message::ObjectKind;

use super::error::BenchError;
use super::scenario::{Moved, Stateless};
use super::work::{BenchThread, scattered};

/// Files of the directory that `get-file`, `enumerate-dir` and `browse-dir` look at: less than one
/// page of a listing (4,096 entries). Chosen, not measured.
const FILES: u64 = 1000;

/// Files that one `browse-dir` looks up after it has listed the directory: a tenth of [`FILES`], so
/// that the look-ups do not hide the cost of the list. Chosen, not measured.
const BROWSED: usize = 100;

/// What the types that create need.
struct BenchDirectory {
    work: BenchThread,
    options: PutOptions,
}

impl BenchDirectory {
    async fn make(work: BenchThread) -> Result<Self, BenchError> {
        work.make(ObjectKind::Directory).await?;
        let options = work.options();
        Ok(Self { work, options })
    }

    fn path(&self, index: u64) -> Result<Path, BenchError> {
        self.work.path(&format!("new-{index}"))
    }
}

/// The types `create-file` and `create-file-async`: each operation puts an empty file.
pub(super) struct CreateFile(BenchDirectory);

impl Stateless for CreateFile {
    async fn prepare(work: BenchThread) -> Result<Self, BenchError> {
        BenchDirectory::make(work).await.map(Self)
    }

    async fn operation(&self, index: u64) -> Result<Moved, BenchError> {
        let Self(BenchDirectory { work, options }) = self;
        work.client.put(&self.0.path(index)?, Bytes::new(), options).await?;
        Ok(Moved::items(1))
    }
}

/// The type `create-close`: each operation creates a file and closes it, in two calls.
pub(super) struct CreateAndClose(BenchDirectory);

impl Stateless for CreateAndClose {
    async fn prepare(work: BenchThread) -> Result<Self, BenchError> {
        BenchDirectory::make(work).await.map(Self)
    }

    async fn operation(&self, index: u64) -> Result<Moved, BenchError> {
        let Self(BenchDirectory { work, options }) = self;
        work.client.create(&self.0.path(index)?, options).await?.close().await?;
        Ok(Moved::items(1))
    }
}

/// The type `create-multi-file`: each operation makes a multifile.
pub(super) struct CreateMultifile(BenchDirectory);

impl Stateless for CreateMultifile {
    async fn prepare(work: BenchThread) -> Result<Self, BenchError> {
        BenchDirectory::make(work).await.map(Self)
    }

    async fn operation(&self, index: u64) -> Result<Moved, BenchError> {
        self.0.work.client.make_multifile(&self.0.path(index)?).await?;
        Ok(Moved::items(1))
    }
}

/// A directory with files in it.
struct Full {
    work: BenchThread,
    files: Vec<Path>,
}

impl Full {
    async fn fill(work: BenchThread) -> Result<Self, BenchError> {
        work.make(ObjectKind::Directory).await?;
        let names = (0..FILES).map(|file| work.path(&format!("file-{file}")));
        let files = names.collect::<Result<Vec<Path>, BenchError>>()?;
        let options = work.options();
        work.put_all(&files, &Bytes::new(), &options).await?;
        Ok(Self { work, files })
    }
}

/// The types `get-file` and `get-file-async`: each operation looks a file up.
pub(super) struct LookUpFile(Full);

impl Stateless for LookUpFile {
    async fn prepare(work: BenchThread) -> Result<Self, BenchError> {
        Full::fill(work).await.map(Self)
    }

    async fn operation(&self, index: u64) -> Result<Moved, BenchError> {
        let path = &self.0.files[(scattered(index) % FILES) as usize];
        self.0.work.client.open(path).await?;
        Ok(Moved::items(1))
    }
}

/// The type `enumerate-dir`: lists a directory of files.
pub(super) struct Enumerate(Full);

impl Stateless for Enumerate {
    async fn prepare(work: BenchThread) -> Result<Self, BenchError> {
        Full::fill(work).await.map(Self)
    }

    async fn operation(&self, _: u64) -> Result<Moved, BenchError> {
        let entries = self.0.work.client.list_all(&self.0.work.directory).await?;
        Ok(Moved::items(entries.len() as u64))
    }
}

/// The type `browse-dir`: lists a directory of files and opens the first ones.
pub(super) struct Browse(Full);

impl Stateless for Browse {
    async fn prepare(work: BenchThread) -> Result<Self, BenchError> {
        Full::fill(work).await.map(Self)
    }

    async fn operation(&self, _: u64) -> Result<Moved, BenchError> {
        let Full { work, .. } = &self.0;
        let entries = work.client.list_all(&work.directory).await?;
        for entry in entries.iter().take(BROWSED) {
            work.client.open(&work.path(&entry.name)?).await?;
        }
        Ok(Moved::items(entries.len() as u64))
    }
}
