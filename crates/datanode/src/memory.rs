//! How much memory the node may take.

use std::fs;

/// Returns the bytes that the machine and, if there is a limit, the container have left; `None`
/// when the system does not report them.
pub(crate) fn available_bytes() -> Option<u64> {
    let read = |path: &str| fs::read_to_string(path).ok();
    let machine = read("/proc/meminfo").and_then(|text| mem_available(&text));
    let container = || {
        let limit = read("/sys/fs/cgroup/memory.max")?;
        let used = read("/sys/fs/cgroup/memory.current")?;
        left_in_container(&limit, &used, &read("/sys/fs/cgroup/memory.stat")?)
    };
    [machine, container()].into_iter().flatten().min()
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
}
