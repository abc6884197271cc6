//! How much memory the node may take.

use std::fs;

/// Returns the bytes that the machine and, if there is a limit, the container have left; `None`
/// when the system does not say.
pub(crate) fn available_bytes() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| mem_available(&text));
    let number = |name: &str| {
        fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok()?.trim().parse::<u64>().ok()
    };
    let container = number("memory.max")
        .zip(number("memory.current"))
        .map(|(limit, used)| limit.saturating_sub(used));
    [machine, container].into_iter().flatten().min()
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
        assert!(available_bytes().is_some_and(|bytes| bytes > 0));
    }
}
