//! What the machine offers.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::process::{Resource, getrlimit};
use sanderling_command::units;
use sanderling_transport::{DESCRIPTORS_WANTED, available_bytes};

use super::check::Check;

/// Open files of a process below which the check fails: the connections of a small cluster and the
/// files of its servers do not fit. Chosen, not measured.
const OPEN_FILES_NEEDED: u64 = 256;

/// Bytes written to measure the disk: 32 MiB, which a usable disk takes in less than a second, and
/// enough that one slow request does not decide. Chosen, not measured.
const PROBE_BYTES: usize = 32 << 20;

/// Judges the hard limit: a server raises its soft limit to it when it starts.
pub(super) fn open_files() -> Check {
    let (name, limit) = ("files", getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX));
    let found = match limit {
        u64::MAX => "any number of open files".to_owned(),
        limit => format!("{limit} open files allowed"),
    };
    let wanted = DESCRIPTORS_WANTED;
    let mend = format!(
        "ulimit -n {wanted} as root before a server starts, or LimitNOFILE={wanted} in its unit: \
         with fewer it admits fewer connections"
    );
    match limit {
        0..OPEN_FILES_NEEDED => {
            Check::fail(name, found, mend).with_next(format!("ulimit -n {wanted}"))
        }
        OPEN_FILES_NEEDED..DESCRIPTORS_WANTED => Check::warn(name, found, mend),
        _ => Check::ok(name, found),
    }
}

pub(super) fn memory(wanted: u64) -> Check {
    let name = "memory";
    let Some(available) = available_bytes() else {
        return Check::warn(name, "/proc/meminfo cannot be read", "mount /proc");
    };
    let (have, want) = (units::bytes(available), units::bytes(wanted));
    if available < wanted {
        let mend = "a smaller --dram, or stop other processes";
        let fits = format!("the same with --dram {}MiB", (available / 2) >> 20);
        let found = format!("{have} available, {want} needed");
        return Check::fail(name, found, mend).with_next(fits);
    }
    if available < wanted.saturating_mul(5) / 4 {
        let mend = "a smaller --dram: programs need memory, too";
        return Check::warn(name, format!("{have} available, {want} needed"), mend);
    }
    Check::ok(name, format!("{have} available, {want} needed"))
}

/// Looks which drivers take checkpoints of tasks. That there is no CRIU is no fault.
pub(super) fn task_drivers() -> Check {
    let found = match sanderling_task::usable_criu() {
        Ok(version) => format!("checkpoints of tasks by the hook and by CRIU {version}"),
        Err(failure) => format!("checkpoints of tasks by the hook alone: {}", failure.cause),
    };
    Check::ok("tasks", found)
}

/// Makes the kind of memory that a datanode's arena is made of, and touches it.
pub(super) fn memfd() -> Check {
    let name = "memfd";
    let made = memfd_create("sanderling-doctor", MemfdFlags::CLOEXEC).and_then(|memfd| {
        ftruncate(&memfd, 1 << 20)?;
        rustix::io::pwrite(&memfd, &[1], (1 << 20) - 1)
    });
    match made {
        Ok(_) => Check::ok(name, "anonymous memory files can be made"),
        Err(error) => Check::fail(
            name,
            format!("memfd_create: {error}"),
            "Linux 3.17 or newer without a filter of system calls",
        ),
    }
}

pub(super) fn clock() -> Check {
    let name = "clock";
    let mend = "set the clock: timedatectl set-ntp true";
    // 2025-01-01: this program is younger.
    let born = SystemTime::UNIX_EPOCH + Duration::from_secs(1_735_689_600);
    if SystemTime::now() < born {
        return Check::fail(name, "the clock is years behind", mend);
    }
    let (wall, steady) = (SystemTime::now(), Instant::now());
    /// Looks at the clock over which the cost of one is averaged: they take half a millisecond
    /// where a look takes 50 ns.
    const LOOKS: u32 = 10_000;
    for _ in 0..LOOKS {
        std::hint::black_box(SystemTime::now());
    }
    let elapsed = steady.elapsed();
    let passed = wall.elapsed().unwrap_or_default();
    if passed.abs_diff(elapsed) > Duration::from_millis(50) {
        return Check::warn(name, "the clock was set during the check", mend);
    }
    let cost = elapsed / LOOKS;
    let found = format!("right within the day, {} ns a look", cost.as_nanos());
    if cost > Duration::from_micros(1) {
        let mend = "a clock source that needs no system call: tsc or kvm-clock";
        return Check::warn(name, found, mend);
    }
    Check::ok(name, found)
}

/// Measures the disk under a directory, which need not exist yet.
pub(super) fn disk(directory: &Path) -> Check {
    let name = "disk";
    let place = existing_part(directory);
    let shown = place.display().to_string();
    match measure(&place) {
        Err(error) => Check::fail(
            name,
            format!("{shown} cannot be written: {error}"),
            "another --dir, or free space",
        ),
        Ok((bytes_in, sync)) => {
            let rate = units::rate(PROBE_BYTES as u64, bytes_in);
            let found = format!("{rate}, {} for a small fsync in {shown}", units::duration(sync));
            if bytes_in > Duration::from_secs(1) || sync > Duration::from_millis(50) {
                return Check::warn(name, found, "a faster disk for --dir and --disk-dir");
            }
            Check::ok(name, found)
        }
    }
}

fn existing_part(directory: &Path) -> PathBuf {
    let found = directory.ancestors().find(|part| part.is_dir());
    found.unwrap_or(Path::new("/")).to_owned()
}

/// Returns how long the probe's bytes take to reach the disk, and how long one page does.
fn measure(place: &Path) -> std::io::Result<(Duration, Duration)> {
    let path = place.join(format!(".sanderling-doctor-{}", std::process::id()));
    let result = (|| {
        let mut file = File::create(&path)?;
        let piece = vec![0x5a_u8; 1 << 20];
        let began = Instant::now();
        for _ in 0..PROBE_BYTES / piece.len() {
            file.write_all(&piece)?;
        }
        file.sync_data()?;
        let whole = began.elapsed();
        let began = Instant::now();
        file.write_all(&piece[..4096])?;
        file.sync_data()?;
        Ok((whole, began.elapsed()))
    })();
    let _ = std::fs::remove_file(&path);
    result
}
