//! A client against whole clusters on loopback.

#[path = "cluster/follower.rs"]
mod follower;
#[path = "cluster/proxy.rs"]
mod proxy;

mod bad_input;
mod cluster;
mod concat;
mod faults;
mod many;
mod namenodes;
mod objects;
mod once;
