//! Durable directories: what is sealed below them lies in their stores.

#[path = "../cluster/mod.rs"]
mod cluster;

mod adopt;
mod copying;
mod faults;
mod limits;
mod notice;
mod reading_back;
mod relay;
mod seen;
mod vanishing;
