//! What fuzzing runs: every parser that reads bytes of a peer or of the disk, with what must hold
//! for any bytes. None may panic, take longer than a second, or take much more memory than its
//! input. What was read must come back when it is written and read again.
//!
//! `fuzz/` at the root runs each [`FuzzTarget`] with libFuzzer; the test `corpus` runs them on the
//! files of `fuzz/corpus/`.

pub mod disk;
pub mod memory;
pub mod text;
pub mod wire;

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Most memory that a parser may hold at a time beyond the length of its input, in bytes. One frame
/// has a fourth of it.
pub const MEMORY_BYTES_MAX: usize = 64 << 20;

/// Most memory that a parser of a catalog may hold beyond the length of its input, in bytes: each
/// of three maps has a word for 16 million ids that were ever given
/// out, 32 MiB for the largest id that there is, and the catalog is written and read again.
pub const CATALOG_BYTES_MAX: usize = 256 << 20;

/// Longest time for one input. Real inputs take micro- to milliseconds.
pub const TIME_MAX: Duration = Duration::from_secs(1);

/// A parser to fuzz, with what must hold for any input, and how much memory it may take.
#[derive(Debug, Clone, Copy)]
pub struct FuzzTarget {
    /// Its name: that of its program in `fuzz/targets` and of its directory in `fuzz/corpus`.
    pub name: &'static str,
    /// Feeds it one input, and panics when something does not hold that its function documents.
    pub run: fn(&[u8]),
    /// Most memory that it may hold beyond the length of its input.
    pub bytes_max: usize,
}

impl FuzzTarget {
    const fn new(name: &'static str, run: fn(&[u8])) -> Self {
        Self { name, run, bytes_max: MEMORY_BYTES_MAX }
    }
}

/// All targets: first those of [`wire`], then of [`disk`], then of [`text`].
pub const TARGETS: &[FuzzTarget] = &[
    FuzzTarget::new("frame", wire::frame),
    FuzzTarget::new("stream", wire::stream),
    FuzzTarget::new("greeting", wire::greeting),
    FuzzTarget::new("request", wire::request),
    FuzzTarget::new("reply", wire::reply),
    FuzzTarget::new("order", wire::order),
    FuzzTarget::new("local", wire::local),
    FuzzTarget::new("path", wire::path),
    FuzzTarget::new("record", disk::record),
    FuzzTarget::new("segment", disk::segment),
    FuzzTarget { bytes_max: CATALOG_BYTES_MAX, ..FuzzTarget::new("snapshot", disk::snapshot) },
    FuzzTarget::new("trailer", disk::trailer),
    FuzzTarget::new("token", text::token),
    FuzzTarget::new("s3_request", text::s3_request),
    FuzzTarget::new("s3_text", text::s3_text),
    FuzzTarget::new("notice", text::notice),
    FuzzTarget::new("model", text::model),
];

/// The memory and time that one input took.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// Most bytes of memory at a time.
    pub bytes: usize,
    /// How long it took.
    pub time: Duration,
}

/// Feeds an input to a target, as the programs of `fuzz/` do, and checks the bounds on memory and
/// time. One that took too long by the clock is run once more, to take the processor's time.
///
/// # Panics
/// As [`check`], and when the input takes more than [`TIME_MAX`] of the processor's time. How long
/// it takes by the clock states nothing on a machine that is busy with other processes.
pub fn fuzz(run: fn(&[u8]), input: &[u8], bytes_max: usize) {
    if check(run, input, bytes_max).time <= TIME_MAX {
        return;
    }
    let started = thread_time();
    run(input);
    let taken = thread_time().saturating_sub(started);
    assert!(taken <= TIME_MAX, "{taken:?} for an input of {} bytes", input.len());
}

/// Returns the processor time of this thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// Feeds an input to a target, checks the bound on memory, and returns what it took. The bound on
/// time is left to the caller, since it depends on whether the machine is busy.
///
/// # Panics
/// When something does not hold that the target checks, or when it holds more than `bytes_max`
/// bytes beyond the length of the input.
pub fn check(run: fn(&[u8]), input: &[u8], bytes_max: usize) -> Cost {
    let started = Instant::now();
    let bytes = memory::peak_of(|| run(input));
    let time = started.elapsed();
    assert!(
        bytes <= input.len() + bytes_max,
        "{bytes} bytes of memory for an input of {}",
        input.len()
    );
    Cost { bytes, time }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes for a bit more than is allowed.
    fn busy(_: &[u8]) {
        let until = thread_time() + TIME_MAX * 11 / 10;
        while thread_time() < until {}
    }

    #[test]
    #[should_panic(expected = "for an input of 1 bytes")]
    fn input_that_computes_for_a_second_is_found() {
        fuzz(busy, &[1], 0);
    }

    #[test]
    fn input_that_waits_for_the_processor_is_fine() {
        fuzz(|_| std::thread::sleep(TIME_MAX + TIME_MAX / 10), &[1], 0);
    }
}
