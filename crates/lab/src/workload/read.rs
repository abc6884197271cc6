//! Random reads of data that stays.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use sanderling_client::{Client, ClientError, PutOptions, Reader};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::meter::Meter;
use super::{PIECE_BYTES, make_directory, path, spawn};
use crate::failure::Failure;
use crate::own_cluster;
use crate::trace::Chance;

/// Bytes of an object: one block, so that what is lost is a whole object, which can be put again;
/// and read with one call.
const OBJECT_BYTES: u64 = PIECE_BYTES;

/// Objects that are written at once: they hide the round trips to the namenode. Chosen, not
/// measured.
const PUTS_AT_ONCE: usize = 16;

/// A static data set.
#[derive(Debug)]
pub(crate) struct DataSet {
    client: Client,
    objects: Vec<Object>,
    bytes: Bytes,
}

#[derive(Debug)]
struct Object {
    reader: std::sync::Mutex<Reader>,
    /// Held by the reader that computes the object again.
    recomputing: Mutex<()>,
}

impl DataSet {
    /// Writes so many bytes, rounded up to whole objects.
    ///
    /// # Errors
    /// The first write that failed.
    pub(crate) async fn write(client: &Client, bytes: u64) -> Result<Arc<Self>, Failure> {
        make_directory(client).await?;
        let failed = |error: ClientError| own_cluster::failed(&error, client.namenode());
        let content = Bytes::from(content());
        let put = |index: u64| {
            let content = content.clone();
            async move {
                client.put(&object_path(index), content, &PutOptions::default()).await?;
                client.open(&object_path(index)).await
            }
        };
        let puts = futures_util::stream::iter(0..bytes.div_ceil(OBJECT_BYTES)).map(put);
        let mut opened = puts.buffered(PUTS_AT_ONCE);
        let mut objects = Vec::new();
        while let Some(reader) = opened.next().await {
            let reader = std::sync::Mutex::new(reader.map_err(failed)?);
            objects.push(Object { reader, recomputing: Mutex::new(()) });
        }
        drop(opened);
        Ok(Arc::new(Self { client: client.clone(), objects, bytes: content }))
    }

    /// Starts readers that do the meter's calls together.
    #[must_use]
    pub(crate) fn read(
        self: &Arc<Self>,
        readers: u32,
        seed: u64,
        meter: &Arc<Meter>,
        ended: &CancellationToken,
    ) -> JoinSet<()> {
        spawn(readers, ended, |index| {
            let (set, meter) = (Arc::clone(self), Arc::clone(meter));
            let mut chance = Chance::new(seed ^ u64::from(index) << 32);
            async move {
                while meter.take(1).is_some() {
                    set.read_somewhere(&mut chance, &meter).await;
                }
            }
        })
    }

    /// Reads every object once; what is lost is written again.
    pub(crate) async fn read_all(&self, meter: &Meter) {
        let reads = (0..self.objects.len() as u64).map(|index| self.read_one(index, meter));
        futures_util::stream::iter(reads).buffer_unordered(PUTS_AT_ONCE).collect::<Vec<_>>().await;
    }

    async fn read_somewhere(&self, chance: &mut Chance, meter: &Meter) {
        self.read_one(chance.below(self.objects.len() as u64), meter).await;
    }

    async fn read_one(&self, index: u64, meter: &Meter) {
        let object = &self.objects[usize::try_from(index).expect("an index")];
        let began = Instant::now();
        let read = object.reader().read_range(0, OBJECT_BYTES).await;
        meter.took(began.elapsed());
        match read {
            Ok(_) => meter.read(OBJECT_BYTES),
            Err(ClientError::DataUnavailable { .. }) => self.recompute(index, meter).await,
            Err(error) => meter.failed("read", &error),
        }
    }

    /// Writes a lost object again, unless another reader has done so meanwhile.
    async fn recompute(&self, index: u64, meter: &Meter) {
        let object = &self.objects[usize::try_from(index).expect("an index")];
        let lost = object.reader().stat().object;
        let _mine = object.recomputing.lock().await;
        if object.reader().stat().object != lost {
            return;
        }
        let path = object_path(index);
        let options = PutOptions::replacing();
        let put = self.client.put(&path, self.bytes.clone(), &options).await;
        if let Err(error) = put {
            return meter.failed("recompute", &error);
        }
        meter.recomputed(OBJECT_BYTES);
        match self.client.open(&path).await {
            Ok(reader) => *object.reader.lock().expect("no holder of the lock panics") = reader,
            Err(error) => meter.failed("open", &error),
        }
    }
}

impl Object {
    fn reader(&self) -> Reader {
        self.reader.lock().expect("no holder of the lock panics").clone()
    }
}

fn object_path(index: u64) -> sanderling_protocol::Path {
    path(&format!("data-{index}"))
}

/// Returns bytes that do not compress or repeat within an object.
fn content() -> Vec<u8> {
    let mut chance = Chance::new(0);
    let words = (0..OBJECT_BYTES / 8).flat_map(|_| chance.next().to_le_bytes());
    words.collect()
}
