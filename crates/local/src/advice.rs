//! What the cluster on this machine has to do with a failure.

use std::path::{Path, PathBuf};

use sanderling_command::refused::shell_word;

use super::directory::{ClusterDirectory, directory};
use super::record::{Record, ServerRecord, ServerRole};

/// Returns the next command when the namenode at an address does not answer, if the cluster on this
/// machine is the reason: it is another one, or a process of it is down. `local start` continues
/// no earlier cluster.
#[must_use]
pub fn advice(namenode: &str) -> Option<String> {
    let record = record_here()?;
    if !record.has_namenode(namenode) {
        let runs = record.running().any(|server| server.role == ServerRole::Namenode);
        return match runs {
            true => Some(format!("the same with --namenode {}", record.namenode)),
            false => record.down().next().filter(|_| is_here(namenode)).map(ServerRecord::restart),
        };
    }
    record.down().next().map(ServerRecord::restart)
}

/// Returns whether one of these addresses, which are separated by commas, is on this machine.
fn is_here(addresses: &str) -> bool {
    let begins = ["127.", "localhost:", "[::1]:"];
    addresses.split(',').any(|address| begins.iter().any(|begin| address.starts_with(begin)))
}

/// Returns the next command when the namenode at an address requires keys, if it is that of the
/// cluster on this machine, which has them.
#[must_use]
pub fn keys(namenode: &str) -> Option<String> {
    let record = record_here().filter(|record| record.has_namenode(namenode))?;
    let keys = record.keys?;
    let shown = |path: &Path| shell_word(&path.to_string_lossy());
    let (ca, token) = (shown(&keys.tls_ca), shown(&keys.token_file));
    Some(format!("the same with --tls-ca {ca} --token-file {token}"))
}

/// Returns the command that adds a datanode, if the namenode at an address is that of the cluster
/// on this machine.
#[must_use]
pub fn addition(namenode: &str) -> Option<&'static str> {
    record_here().filter(|record| record.has_namenode(namenode)).map(|_| "sanderling local add")
}

/// Returns where the namenode at an address serves HTTP, if it is that of the cluster on this
/// machine.
#[must_use]
pub fn http_of(namenode: &str) -> Option<String> {
    let record = record_here().filter(|record| record.has_namenode(namenode))?;
    let is_meant = |server: &&ServerRecord| namenode.split(',').any(|it| it == server.address);
    let server = record.running().find(is_meant).and_then(|server| server.http_address.clone());
    server.or(record.http_address)
}

fn record_here() -> Option<Record> {
    let named = std::env::var_os("SANDERLING_LOCAL_DIR").map(PathBuf::from);
    let directory = directory(&ClusterDirectory { directory: named }).ok()?;
    Record::read(&directory).ok()?.filter(|record| record.is_started)
}
