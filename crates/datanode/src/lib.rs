//! The datanode: serves the bytes of blocks from its tiers, behind a fence.
#![allow(dead_code)]

mod allocator;
mod arena;
mod disk;
mod dram;
mod runs;
mod store;
