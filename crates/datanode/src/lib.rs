//! The datanode: serves the bytes of blocks from its tiers, behind a fence.
//!
//! [`DatanodeServer`] is the whole of it. What may be read, written and moved is decided by
//! [`sanderling_core::block_table::BlockTable`]; this crate keeps the bytes, in memory
//! ([`DatanodeOptions`]'s `dram_bytes`), in a directory and in an object store, and talks to the
//! namenode and to other datanodes.

mod activity;
mod admission;
mod agent;
mod allocator;
mod arena;
mod block_ends;
mod blocking;
mod budget;
mod caller_blocks;
mod capacity;
mod chunk_sums;
mod clock;
mod connection_share;
mod contact;
mod control;
mod counters;
mod damage;
mod damage_report;
mod disk;
mod disk_room;
mod dram;
mod durable;
mod encryption_key;
mod error;
mod fair_room;
#[doc(hidden)]
pub mod file_names;
mod http;
mod join;
mod join_failure;
mod latency;
mod link;
mod local;
mod membership;
mod metrics;
mod namenode;
mod node;
mod notices;
mod object;
mod options;
mod pacer;
#[doc(hidden)]
pub mod parsers;
mod push;
mod received;
mod report;
mod scrub;
mod server;
mod service;
mod store;
mod tenant;
mod tier;
mod tiers;
mod upload;
mod write_queue;

pub use durable::{DurableOptions, DurableStoreError, check_durable_stores};
pub use encryption_key::{EncryptionKey, KeyError};
pub use error::{DatanodeFailure, DatanodeStartError, DiskError, DrainEnd};
pub use join_failure::JoinFailure;
pub use local::LocalOptions;
pub use object::{
    CreateBucketError, EncryptionMismatch, ObjectOptions, ObjectTierError, UnusableStore,
};
pub use options::{DatanodeOptions, DiskOptions};
pub use sanderling_notices::{Acknowledge, NoticeOptions, NoticeSource};
pub use server::DatanodeServer;
