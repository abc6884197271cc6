//! The servers as commands: the flags of each, its start as a process, and its signals. Also what
//! is done to a server from outside: backups and recovery of a catalog, a drain before a shutdown.
//!
//! What a server does is in its own crate: `namenode`, `datanode`, `manager`, `gateway`.

mod background;
mod backup;
mod config_file;
mod console;
mod datanode;
mod drain;
mod gateway;
#[cfg(test)]
mod help_groups;
mod listen_address;
mod manager;
mod namenode;
mod notices;
mod page_token;
mod process;
mod security;

pub use backup::{GroupRecover, recover_group};
pub use datanode::{Datanode, check_stores, run as datanode};
pub use gateway::{Gateway, run as gateway};
pub use manager::{ManagerArgs, run as manager};
pub use namenode::{NamenodeArgs, NamenodeCommand, run as namenode};
