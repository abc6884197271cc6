//! A runner in a control group that bounds its memory.

use std::io::{self, Write};
use std::path::{Path as LocalPath, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::AwayStore;
use super::cluster::{SOON, program_at, until};

/// Where control groups are mounted, with the file that bounds the memory of one and the file that
/// has what it uses: those of the second version and those of the first.
const GROUPS: [(&str, &str, &str); 2] = [
    ("/sys/fs/cgroup", "memory.max", "memory.current"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
];

/// A control group whose processes may have so many bytes of memory. It is removed in the end.
struct MemoryGroup {
    path: PathBuf,
    bytes: u64,
    used: &'static str,
}

impl MemoryGroup {
    /// Makes one; `None` where none can be made.
    fn of(test: &str, bytes: u64) -> Option<Self> {
        let mut reasons = Vec::new();
        for (mounted, limit, used) in GROUPS {
            match Self::below(LocalPath::new(mounted), limit, used, bytes) {
                Ok(group) => return Some(group),
                Err(error) => reasons.push(format!("{mounted}: {error}")),
            }
        }
        let why = reasons.join("; ");
        eprintln!("SKIPPED {test}: no control group that bounds memory can be made: {why}");
        None
    }

    fn below(mounted: &LocalPath, limit: &str, used: &'static str, bytes: u64) -> io::Result<Self> {
        // A directory that is no control group does not have this file.
        std::fs::metadata(mounted.join("cgroup.procs"))?;
        let path = mounted.join(format!("sanderling-{}", std::process::id()));
        std::fs::create_dir(&path)?;
        let group = Self { path, bytes, used };
        // The file is there if groups below that one may bound memory.
        let mut file = std::fs::OpenOptions::new().write(true).open(group.path.join(limit))?;
        file.write_all(bytes.to_string().as_bytes())?;
        Ok(group)
    }

    /// Returns the command that becomes the program, in this group.
    fn sanderling(&self) -> Command {
        let mut command = program_at(LocalPath::new("sh"));
        command.args(["-c", r#"echo $$ > "$0" && exec "$@""#]).arg(self.path.join("cgroup.procs"));
        command.arg(env!("CARGO_BIN_EXE_sanderling"));
        command
    }

    /// Returns how many bytes it has left, if it kept what its page cache takes.
    fn left(&self) -> u64 {
        let used = std::fs::read_to_string(self.path.join(self.used)).expect("readable");
        self.bytes.saturating_sub(used.trim().parse().expect("a number"))
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // Processes that were killed may not have left it yet.
        let limit = Instant::now() + SOON;
        while std::fs::remove_dir(&self.path).is_err() && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Of a machine with much memory, the group of the runner and its task has 1,280 MiB, of which the
/// task takes more than half: a quarter of the rest is much less than its images. Packs of 32 MiB
/// wait for the store beside them, 4 and those under way.
#[test]
fn images_that_wait_take_a_quarter_of_what_the_control_group_has_left() {
    let test = "images_that_wait_take_a_quarter";
    let Some(group) = MemoryGroup::of(test, 1280 << 20) else { return };
    let Some(mut store) = AwayStore::start_by(group.sanderling(), test, "larger", &[]) else {
        return;
    };
    until("the counter counts", SOON, || {
        assert!(!store.runner.has_ended(), "{}", store.place.text("runner.log"));
        (!store.place.numbers().is_empty()).then_some(())
    });
    let quarter = group.left() / 4;
    store.dump_without_store();
    let status = format!("/proc/{}/status", store.runner.0.id());
    let held = || {
        let status = std::fs::read_to_string(&status).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        kibibytes.map_or(0, |kibibytes| kibibytes << 10)
    };
    // The runner has as much memory for two seconds, to 1 MiB, while the task stands still.
    let mut seen = (0, 0, Instant::now());
    until("the runner takes no more images", SOON, || {
        assert!(!store.runner.has_ended(), "{}", store.place.text("runner.log"));
        assert!(store.is_under_way(), "all was taken: {}", store.place.text("runner.log"));
        let (count, bytes) = (store.place.numbers().len(), held());
        if count != seen.0 || bytes.abs_diff(seen.1) > 1 << 20 {
            seen = (count, bytes, Instant::now());
        }
        (seen.2.elapsed() > Duration::from_secs(2)).then_some(())
    });
    let beside = seen.1.saturating_sub(quarter) >> 20;
    // What was freed stays in the arenas of glibc, each of 64 MiB. Without a bound all of the
    // task's images would be here, which are more than 640 MiB.
    assert!((128..=416).contains(&beside), "{} MiB, {} MiB", seen.1 >> 20, quarter >> 20);
}
