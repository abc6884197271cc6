//! A namenode on loopback, as its callers see it.

mod console;
mod deletions;
mod http;
mod once;
mod orders;
mod refused;
mod serving;
mod shares;
mod support;
mod versions;
