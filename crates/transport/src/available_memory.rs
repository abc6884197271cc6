//! How much memory the process may take.

use std::fs;
use std::path::Path;

/// Where control groups are mounted.
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// Where those of the first version are mounted that bound memory.
const MEMORY_GROUPS: &str = "/sys/fs/cgroup/memory";

/// The names in one version of control groups.
struct GroupFiles {
    limit: &'static str,
    used: &'static str,
    /// The line of `memory.stat` with what the kernel lets go of.
    cache: &'static str,
}

const SECOND: GroupFiles =
    GroupFiles { limit: "memory.max", used: "memory.current", cache: "inactive_file " };

const FIRST: GroupFiles = GroupFiles {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cache: "total_inactive_file ",
};

/// Returns the bytes that the machine and, if there are limits, the control groups of this process
/// have left; `None` when the system does not report them.
#[must_use]
pub fn available_bytes() -> Option<u64> {
    let read = |path: &str| fs::read_to_string(path).ok();
    let machine = read("/proc/meminfo").and_then(|text| mem_available(&text));
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    let second = (CONTROL_GROUPS, own_group(&groups), SECOND);
    let first = (MEMORY_GROUPS, own_memory_group(&groups), FIRST);
    let left = [second, first].into_iter().flat_map(|(mounted, own, files)| {
        let groups = Path::new(own).ancestors().map(|group| Path::new(mounted).join(group));
        groups.filter_map(|group| left_in_group(&group, &files)).collect::<Vec<_>>()
    });
    machine.into_iter().chain(left).min()
}

/// Returns the path of the process's control group below the mount point; empty in a container,
/// whose own group is mounted there.
fn own_group(groups: &str) -> &str {
    groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default()
}

/// Returns the same of the first version, of the group that bounds memory.
fn own_memory_group(groups: &str) -> &str {
    groups
        .lines()
        .filter_map(|line| line.split_once(':')?.1.split_once(":/"))
        .find(|(controllers, _)| controllers.split(',').any(|it| it == "memory"))
        .map_or("", |(_, path)| path)
}

fn left_in_group(group: &Path, files: &GroupFiles) -> Option<u64> {
    let read = |name: &str| fs::read_to_string(group.join(name)).ok();
    left_in_container(&read(files.limit)?, &read(files.used)?, &read("memory.stat")?, files.cache)
}

/// Files in the page cache count as used, but the kernel lets go of them.
fn left_in_container(limit: &str, used: &str, stat: &str, cache: &str) -> Option<u64> {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let cache = stat.lines().find_map(|line| line.strip_prefix(cache)).and_then(number);
    let used = number(used)?.saturating_sub(cache.unwrap_or_default());
    Some(number(limit)?.saturating_sub(used))
}

fn mem_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read_from_the_kernels_text() {
        let text = "MemTotal:  24 kB\nMemFree: 1 kB\nMemAvailable:   22222 kB\n";
        assert_eq!(mem_available(text), Some(22_222 * 1024));
        assert_eq!(mem_available("MemFree: 1 kB\n"), None);
        let stat = "anon 5\ninactive_file 30\n";
        assert_eq!(left_in_container("100\n", "50\n", stat, SECOND.cache), Some(80));
        assert_eq!(left_in_container("max\n", "50\n", stat, SECOND.cache), None);
        assert!(available_bytes().is_some_and(|bytes| bytes > 0));
    }

    #[test]
    fn limit_of_the_own_control_group_is_found() {
        let groups = "1:name=systemd:/x\n0::/system.slice/task.service\n";
        assert_eq!(own_group(groups), "system.slice/task.service");
        assert_eq!((own_group("0::/\n"), own_group("")), ("", ""));
        assert_eq!(own_memory_group(groups), "");
        assert_eq!(own_memory_group("3:cpu:/a\n7:blkio,memory:/b/c\n0::/d\n"), "b/c");
        let group = tempfile::tempdir().unwrap();
        assert_eq!(left_in_group(group.path(), &SECOND), None);
        for (name, text) in [("max", "100\n"), ("current", "50\n"), ("stat", "anon 1\n")] {
            fs::write(group.path().join(format!("memory.{name}")), text).unwrap();
        }
        assert_eq!(left_in_group(group.path(), &SECOND), Some(50));
        assert_eq!(left_in_group(group.path(), &FIRST), None);
        for (name, text) in [("limit", "200\n"), ("usage", "50\n")] {
            fs::write(group.path().join(format!("memory.{name}_in_bytes")), text).unwrap();
        }
        assert_eq!(left_in_group(group.path(), &FIRST), Some(150));
    }
}
