//! The `object_store` interface for version 0.13 of that crate, with which DataFusion, Polars and
//! delta-rs are still built.
//!
//! Everything is as in `sanderling-object-store`, whose source this is, except `version.rs`.

// The shared source refers to the crate by this name.
extern crate object_store_013 as object_store;

#[path = "../../object_store/src/attributes.rs"]
mod attributes;
#[path = "../../object_store/src/builder.rs"]
mod builder;
#[path = "../../object_store/src/copy.rs"]
mod copy;
#[path = "../../object_store/src/delete.rs"]
mod delete;
#[path = "../../object_store/src/error.rs"]
mod error;
#[path = "../../object_store/src/get.rs"]
mod get;
#[path = "../../object_store/src/keys.rs"]
mod keys;
#[path = "../../object_store/src/list.rs"]
mod list;
#[path = "../../object_store/src/multipart.rs"]
mod multipart;
#[path = "../../object_store/src/pages.rs"]
mod pages;
#[path = "../../object_store/src/put.rs"]
mod put;
#[path = "../../object_store/src/store.rs"]
mod store;
mod version;

pub use builder::{StoreBuilder, parse_url, parse_url_opts};
pub use error::{KeyConflict, client_error};
pub use store::SanderlingStore;
