//! The servers as processes: logs, ready file, signals, exit codes.

pub(crate) mod background;
pub(crate) mod backup;
pub(crate) mod console;
pub(crate) mod datanode;
mod drain;
pub(crate) mod gateway;
pub(crate) mod manager;
pub(crate) mod namenode;
pub(crate) mod notices;
mod page_token;
mod process;

pub(crate) use datanode::run as datanode;
pub(crate) use gateway::run as gateway;
pub(crate) use manager::run as manager;
pub(crate) use namenode::run as namenode;
