//! Durable directories: what is sealed below them lies in their stores.

#[path = "../cluster/mod.rs"]
mod cluster;

mod adopt;
mod bucket;
mod copying;
mod faults;
mod hung;
mod late_reports;
mod limits;
mod notice;
mod pacing;
mod reading_back;
mod renaming;
mod seen;
mod spread;
mod vanishing;
mod waiting;
