//! The `object_store` interface: what DataFusion, Polars, delta-rs and others call.

use std::sync::Arc;

use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, WriteMultipart};
use sanderling_client::ClientError;
use sanderling_object_store::{SanderlingStore, client_error};

/// Writes and reads a few objects below `/tables` of the cluster whose namenode is at `host:port`.
pub(crate) async fn run(namenode: &str) -> object_store::Result<()> {
    let url = format!("sanderling://{namenode}/tables");
    let store: Arc<dyn ObjectStore> = Arc::new(SanderlingStore::from_url(&url)?);

    let part = Path::from("sales/part-0.parquet");
    store.put(&part, "rows".into()).await?;
    assert_eq!(store.get_range(&part, 0..2).await?, "ro");
    assert_eq!(store.get_ranges(&part, &[0..1, 3..4]).await?, ["r", "s"]);

    // Of several creators the first one succeeds: commits of tables depend on this.
    let again = store.put_opts(&part, "other rows".into(), PutMode::Create.into()).await;
    assert!(matches!(again, Err(object_store::Error::AlreadyExists { .. })));

    // Long objects go in parts, several under way together, and appear when they are complete.
    let long = Path::from("sales/part-1.parquet");
    let mut upload = WriteMultipart::new(store.put_multipart(&long).await?);
    for _ in 0..8 {
        upload.write(&[7; 1 << 20]);
    }
    upload.finish().await?;

    let listed: Vec<_> = store.list(Some(&Path::from("sales"))).try_collect().await?;
    assert_eq!(listed.iter().map(|meta| meta.size).sum::<u64>(), 4 + (8 << 20));

    // The error names exactly the ranges that a preemption took: recompute only those.
    if let Err(error) = store.get(&part).await
        && let Some(ClientError::DataUnavailable { ranges, .. }) = client_error(&error)
    {
        eprintln!("compute {ranges:?} of {part} again");
    }
    store.delete(&part).await?;
    store.delete(&long).await
}

#[tokio::main]
async fn main() -> object_store::Result<()> {
    let namenode = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7600".to_owned());
    run(&namenode).await
}
