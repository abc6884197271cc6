//! The `object_store` interface: a [`SanderlingStore`] is an [`object_store::ObjectStore`], so
//! whatever reads and writes through that crate (DataFusion, Polars, delta-rs, Lance) keeps its
//! data here.
//!
//! ```no_run
//! # async fn example() -> object_store::Result<()> {
//! use object_store::ObjectStoreExt;
//! use object_store::path::Path;
//! use sanderling_object_store::SanderlingStore;
//!
//! let store = SanderlingStore::from_url("sanderling://127.0.0.1:7600/spills")?;
//! store.put(&Path::from("part-0"), "rows".into()).await?;
//! assert_eq!(store.get(&Path::from("part-0")).await?.bytes().await?, "rows");
//! # Ok(())
//! # }
//! ```
//!
//! An object is there when it is sealed: readers never see half of one. Its ETag is its identity
//! and its length, which together never come back: replacing an object changes the one, appending
//! to it the other. There are no old versions.

mod attributes;
mod builder;
mod copy;
mod delete;
mod error;
mod get;
mod keys;
mod list;
mod multipart;
mod pages;
mod put;
mod store;
mod version;

pub use builder::{StoreBuilder, parse_url, parse_url_opts};
pub use error::{KeyConflict, client_error};
pub use store::SanderlingStore;
