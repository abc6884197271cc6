//! What of a task CRIU cannot dump, found in `/proc` before anything is frozen.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use sanderling_command::process::proc_text;

use crate::init::pids;
use crate::process_tree::is_traced;

/// Devices that have no state.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// How the names of terminals begin.
const TERMINALS: [&str; 4] = ["/dev/pts/", "/dev/tty", "/dev/ptmx", "/dev/console"];

/// Kinds of descriptors without a file that CRIU restores.
const ANONYMOUS: [&str; 7] =
    ["eventfd", "eventpoll", "signalfd", "timerfd", "inotify", "pidfd", "fanotify"];

/// The state of a listener in `/proc/net/tcp`.
const TCP_LISTEN: &str = "0A";

/// Namespaces that a process shares with process 1, or CRIU refuses.
const NAMESPACES: [&str; 6] = ["pid", "mnt", "net", "ipc", "user", "uts"];

/// Returns what cannot be dumped of the tree of a process, each with process and descriptor.
pub(crate) fn problems(root: u32, allows_locks: bool, has_own_network: bool) -> Vec<String> {
    let mut found = Vec::new();
    let sockets = Sockets::read(has_own_network);
    let tree = tree_of(root);
    for pid in pids().into_iter().filter(|pid| *pid != 1 && *pid != root) {
        // CRIU of an earlier dump has ended, so it is one whose parent has.
        if parent(pid) == Some(1) && !is_zombie(pid) {
            found.push(format!("process {pid} ({}) has left the task's tree", command(pid)));
        }
    }
    for pid in tree {
        let mut of_process = Vec::new();
        descriptors(pid, allows_locks, &sockets, &mut of_process);
        mappings(pid, &mut of_process);
        surroundings(pid, &mut of_process);
        let process = format!("process {pid} ({})", command(pid));
        found.extend(of_process.into_iter().map(|what| format!("{process} {what}")));
    }
    found
}

/// The sockets of the network that cannot be dumped, by their inodes. Those that no table names
/// have no address yet, or are of a kind that CRIU refuses itself.
struct Sockets(BTreeMap<String, &'static str>);

impl Sockets {
    fn read(has_own_network: bool) -> Self {
        let mut refused = BTreeMap::new();
        for (state, inode) in ["tcp", "tcp6"].into_iter().flat_map(|name| rows(name, 3, 9)) {
            if state != TCP_LISTEN && !has_own_network {
                let why = "a TCP connection; `--network own` is for those within the task";
                refused.insert(inode, why);
            }
        }
        let raw = ["raw", "raw6"].into_iter().flat_map(|name| rows(name, 3, 9));
        refused.extend(raw.map(|(_, inode)| (inode, "a raw socket")));
        Self(refused)
    }
}

/// Reads two columns of a table of `/proc/net`.
fn rows(name: &str, one: usize, other: usize) -> Vec<(String, String)> {
    let table = fs::read_to_string(format!("/proc/self/net/{name}")).unwrap_or_default();
    let row = |line: &str| {
        let columns: Vec<&str> = line.split_ascii_whitespace().collect();
        Some(((*columns.get(one)?).to_owned(), (*columns.get(other)?).to_owned()))
    };
    table.lines().skip(1).filter_map(row).collect()
}

fn descriptors(pid: u32, allows_locks: bool, sockets: &Sockets, found: &mut Vec<String>) {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    for entry in entries {
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        let (number, target) = (entry.file_name(), target.to_string_lossy().into_owned());
        let number = number.to_string_lossy();
        if let Some(what) = unsupported(&target, &entry.path(), sockets) {
            found.push(format!("has descriptor {number} open, {target}: {what}"));
        }
        let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}")).unwrap_or_default();
        if !allows_locks && info.lines().any(|line| line.starts_with("lock:")) {
            let mend = "run it with --file-locks if no other process uses the lock";
            found.push(format!("has descriptor {number} open, {target}: a file lock; {mend}"));
        }
    }
}

fn unsupported(target: &str, path: &Path, sockets: &Sockets) -> Option<&'static str> {
    use std::os::unix::fs::FileTypeExt;
    if let Some(inode) = target.strip_prefix("socket:[").and_then(|it| it.strip_suffix(']')) {
        return sockets.0.get(inode).copied();
    }
    if let Some(kind) = target.strip_prefix("anon_inode:") {
        let kind = kind.trim_matches(['[', ']']);
        let is_known = ANONYMOUS.contains(&kind);
        return (!is_known).then_some("a descriptor of a kind that CRIU does not dump");
    }
    if TERMINALS.iter().any(|name| target.starts_with(name)) {
        return Some("a terminal");
    }
    if target.starts_with("/dev/nvidia") {
        return Some("a GPU");
    }
    let kind = fs::metadata(path).ok()?.file_type();
    let is_device = kind.is_char_device() || kind.is_block_device();
    (is_device && !DEVICES.contains(&target)).then_some("a device")
}

fn mappings(pid: u32, found: &mut Vec<String>) {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let mut seen = BTreeSet::new();
    for line in maps.lines() {
        let Some(target) = line.splitn(6, ' ').nth(5).map(str::trim_start) else { continue };
        let what = if target.starts_with("/SYSV") {
            "shared memory of System V"
        } else if target.starts_with("anon_inode:[io_uring]") {
            "a ring of io_uring"
        } else if target.starts_with("/dev/nvidia") {
            "a GPU"
        } else if target.starts_with("/dev/")
            && !target.starts_with("/dev/shm/")
            && !target.starts_with("/dev/zero")
        {
            "a device"
        } else {
            continue;
        };
        if seen.insert(target.to_owned()) {
            found.push(format!("has {target} mapped: {what}"));
        }
    }
}

fn surroundings(pid: u32, found: &mut Vec<String>) {
    if is_traced(pid) {
        found.push("is traced by a debugger".to_owned());
    }
    for name in NAMESPACES {
        let of = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/{name}")).ok();
        if let (Some(own), Some(other)) = (of("1"), of(&pid.to_string()))
            && own != other
        {
            found.push(format!("has entered another {name} namespace"));
        }
    }
}

/// Returns a process and all its descendants.
fn tree_of(root: u32) -> BTreeSet<u32> {
    let parents: Vec<(u32, u32)> =
        pids().into_iter().filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut tree = BTreeSet::from([root]);
    loop {
        let before = tree.len();
        let children = parents.iter().filter(|(_, parent)| tree.contains(parent));
        let children: Vec<u32> = children.map(|(pid, _)| *pid).collect();
        tree.extend(children);
        if tree.len() == before {
            return tree;
        }
    }
}

fn stat(pid: u32, field: usize) -> Option<String> {
    let stat = proc_text(pid, "stat").ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(field).map(str::to_owned)
}

fn parent(pid: u32) -> Option<u32> {
    stat(pid, 1)?.parse().ok()
}

fn is_zombie(pid: u32) -> bool {
    stat(pid, 0).is_none_or(|state| state == "Z" || state == "X")
}

fn command(pid: u32) -> String {
    let name = proc_text(pid, "comm").unwrap_or_default();
    name.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(target: &str, path: &str) -> Option<&'static str> {
        let sockets = Sockets(BTreeMap::from([("8".to_owned(), "a raw socket")]));
        unsupported(target, Path::new(path), &sockets)
    }

    #[test]
    fn kinds_of_descriptors_are_distinguished() {
        assert_eq!(why("/etc/passwd", "/etc/passwd"), None);
        assert_eq!(why("/dev/null", "/dev/null"), None);
        assert_eq!(why("pipe:[9]", "/"), None);
        assert_eq!(why("socket:[7]", "/"), None);
        assert_eq!(why("anon_inode:[eventpoll]", "/"), None);
        for refused in ["socket:[8]", "anon_inode:[io_uring]", "/dev/pts/3"] {
            assert!(why(refused, "/").is_some(), "{refused}");
        }
        assert_eq!(why("/dev/tty", "/dev/tty"), Some("a terminal"));
    }

    #[test]
    fn own_process_has_a_tree_and_a_parent() {
        let own = std::process::id();
        assert!(tree_of(own).contains(&own) && parent(own).is_some());
        assert!(!is_zombie(own));
    }
}
