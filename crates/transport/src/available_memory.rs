//! How much memory the process may take.

use std::fs;
use std::path::Path;

/// Where control groups are mounted.
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// Returns the bytes that the machine and, if there are limits, the control groups of this process
/// have left; `None` when the system does not report them.
#[must_use]
pub fn available_bytes() -> Option<u64> {
    let read = |path: &str| fs::read_to_string(path).ok();
    let machine = read("/proc/meminfo").and_then(|text| mem_available(&text));
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    let own = Path::new(own_group(&groups));
    let groups = own.ancestors().map(|group| Path::new(CONTROL_GROUPS).join(group));
    machine.into_iter().chain(groups.filter_map(|group| left_in_group(&group))).min()
}

/// Returns the path of the process's control group below the mount point; empty in a container,
/// whose own group is mounted there.
fn own_group(groups: &str) -> &str {
    groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default()
}

fn left_in_group(group: &Path) -> Option<u64> {
    let read = |name: &str| fs::read_to_string(group.join(name)).ok();
    left_in_container(&read("memory.max")?, &read("memory.current")?, &read("memory.stat")?)
}

/// Files in the page cache count as used, but the kernel lets go of them.
fn left_in_container(limit: &str, used: &str, stat: &str) -> Option<u64> {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let cache = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")).and_then(number);
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
        assert_eq!(left_in_container("100\n", "50\n", stat), Some(80));
        assert_eq!(left_in_container("max\n", "50\n", stat), None);
        assert!(available_bytes().is_some_and(|bytes| bytes > 0));
    }

    #[test]
    fn limit_of_the_own_control_group_is_found() {
        let groups = "1:name=systemd:/x\n0::/system.slice/task.service\n";
        assert_eq!(own_group(groups), "system.slice/task.service");
        assert_eq!((own_group("0::/\n"), own_group("")), ("", ""));
        let group = tempfile::tempdir().unwrap();
        assert_eq!(left_in_group(group.path()), None);
        for (name, text) in [("max", "100\n"), ("current", "50\n"), ("stat", "anon 1\n")] {
            fs::write(group.path().join(format!("memory.{name}")), text).unwrap();
        }
        assert_eq!(left_in_group(group.path()), Some(50));
    }
}
