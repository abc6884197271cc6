//! Rights, and peers that are hostile, noisy, or not what they claim.

#[path = "../cluster/mod.rs"]
mod cluster;

mod certificates;
mod connections;
mod encryption;
mod grants;
mod hogs;
mod http_noise;
mod memory;
mod names;
mod noisy;
mod own_tokens;
mod refusals;
mod revocations;
mod rights;
mod security;
mod subtree_reads;
mod suspects;
mod tokens;
mod unadmitted;
