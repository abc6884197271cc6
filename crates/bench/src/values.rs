//! Types about small values: keys of a table, whole objects by name.

use bytes::Bytes;
use sanderling_client::PutOptions;
use sanderling_protocol::Path;
use sanderling_protocol::message::{CreateKind, ObjectKind};

use super::error::BenchError;
use super::scenario::{Moved, Stateless};
use super::work::{BenchThread, scattered, window};

/// Values that are prepared to be got, or that a put of keys goes round: they are spread over all
/// nodes. Chosen, not measured.
const VALUES: u64 = 1000;

/// Values of one thread, in a table or a directory.
struct Values {
    work: BenchThread,
    piece: Bytes,
    paths: Vec<Path>,
    options: PutOptions,
}

impl Values {
    async fn make(work: BenchThread, kind: ObjectKind) -> Result<Self, BenchError> {
        work.make(kind).await?;
        let values = VALUES.min(work.pieces()).max(u64::from(work.load.batch));
        let paths = (0..values).map(|value| work.path(&format!("value-{value}")));
        let paths = paths.collect::<Result<Vec<Path>, BenchError>>()?;
        let kind = match kind {
            ObjectKind::Table => CreateKind::KeyValue,
            _ => CreateKind::File,
        };
        let options = PutOptions { kind, ..work.replacing() };
        Ok(Self { piece: work.piece(), paths, options, work })
    }

    async fn filled(work: BenchThread, kind: ObjectKind) -> Result<Self, BenchError> {
        let values = Self::make(work, kind).await?;
        let Self { work, paths, piece, options } = &values;
        work.put_all(paths, piece, options).await?;
        Ok(values)
    }

    async fn put(&self, path: &Path) -> Result<Moved, BenchError> {
        self.work.client.put(path, self.piece.clone(), &self.options).await?;
        Ok(Moved::bytes(self.piece.len() as u64))
    }

    async fn get_any(&self, index: u64) -> Result<Moved, BenchError> {
        let path = &self.paths[(scattered(index) % self.paths.len() as u64) as usize];
        let value = self.work.client.get(path).await?;
        self.check(&value)?;
        Ok(Moved::bytes(value.len() as u64))
    }

    fn check(&self, value: &Bytes) -> Result<(), BenchError> {
        if value.len() == self.piece.len() {
            return Ok(());
        }
        let (found, expected) = (value.len() as u64, self.piece.len() as u64);
        Err(BenchError::Wrong { what: "bytes of a value", found, expected })
    }
}

/// `put-key`.
pub(super) struct PutKey(Values);

impl Stateless for PutKey {
    async fn prepare(work: BenchThread) -> Result<Self, BenchError> {
        Values::make(work, ObjectKind::Table).await.map(Self)
    }

    async fn operation(&self, index: u64) -> Result<Moved, BenchError> {
        self.0.put(&self.0.paths[(index % self.0.paths.len() as u64) as usize]).await
    }
}

/// `get-key`.
pub(super) struct GetKey(Values);

impl Stateless for GetKey {
    async fn prepare(work: BenchThread) -> Result<Self, BenchError> {
        Values::filled(work, ObjectKind::Table).await.map(Self)
    }

    async fn operation(&self, index: u64) -> Result<Moved, BenchError> {
        self.0.get_any(index).await
    }
}

/// The type `put-small`: each operation puts a small object.
pub(super) struct PutObject {
    values: Values,
    /// Names that it goes round: two in flight must not have the same.
    round: u64,
}

impl Stateless for PutObject {
    async fn prepare(work: BenchThread) -> Result<Self, BenchError> {
        let under_way = u64::from(work.load.batch) * u64::from(work.load.workers);
        let round = (work.load.share / work.load.size.max(1)).max(2 * under_way);
        let values = Values::make(work, ObjectKind::Directory).await?;
        Ok(Self { values, round })
    }

    async fn operation(&self, index: u64) -> Result<Moved, BenchError> {
        let path = self.values.work.path(&format!("new-{}", index % self.round))?;
        self.values.put(&path).await
    }
}

/// The type `get-small`: each operation gets a small object.
pub(super) struct GetObject(Values);

impl Stateless for GetObject {
    async fn prepare(work: BenchThread) -> Result<Self, BenchError> {
        Values::filled(work, ObjectKind::Directory).await.map(Self)
    }

    async fn operation(&self, index: u64) -> Result<Moved, BenchError> {
        self.0.get_any(index).await
    }
}

/// The type `get-many`: each operation gets a batch of small objects in one call.
pub(super) struct GetMany(Values);

impl Stateless for GetMany {
    async fn prepare(work: BenchThread) -> Result<Self, BenchError> {
        Values::filled(work, ObjectKind::Directory).await.map(Self)
    }

    async fn operation(&self, index: u64) -> Result<Moved, BenchError> {
        let Self(values) = self;
        let paths = window(&values.paths, values.work.load.batch, index);
        let mut moved = Moved::default();
        for value in values.work.client.get_many(paths).await? {
            let value = value?;
            values.check(&value)?;
            moved.bytes += value.len() as u64;
            moved.items += 1;
        }
        Ok(moved)
    }
}

/// The type `create-many`: each operation creates a batch of small objects in one call.
pub(super) struct CreateMany(PutObject);

impl Stateless for CreateMany {
    async fn prepare(work: BenchThread) -> Result<Self, BenchError> {
        PutObject::prepare(work).await.map(Self)
    }

    async fn operation(&self, index: u64) -> Result<Moved, BenchError> {
        let Self(PutObject { values: Values { work, piece, options, .. }, round }) = self;
        let batch = u64::from(work.load.batch);
        let mut objects = Vec::with_capacity(batch as usize);
        for at in index * batch..(index + 1) * batch {
            objects.push((work.path(&format!("new-{}", at % round))?, piece.clone()));
        }
        for put in work.client.create_many(objects, options).await {
            put?;
        }
        Ok(Moved { bytes: batch * piece.len() as u64, items: batch })
    }
}
