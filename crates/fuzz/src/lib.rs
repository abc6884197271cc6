//! What fuzzing runs: every parser that reads bytes of a peer or of the disk, with what must hold
//! for any bytes. None may panic, take longer than a second, or take much more memory than its
//! input. What was read must come back when it is written and read again.
//!
//! `fuzz/` at the root runs each [`Target`] with libFuzzer; the test `corpus` runs them on the
//! files of `fuzz/corpus/`.

pub mod disk;
pub mod memory;
pub mod text;
pub mod wire;

use std::time::{Duration, Instant};

/// Most memory that a parser may hold at a time beyond the length of its input, in bytes. One frame
/// has a fourth of it.
pub const MEMORY_BYTES_MAX: usize = 64 << 20;

/// Longest time for one input. Real inputs take micro- to milliseconds.
pub const TIME_MAX: Duration = Duration::from_secs(1);

/// One parser.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name: that of its program in `fuzz/targets` and of its directory in `fuzz/corpus`.
    pub name: &'static str,
    /// Runs it; panics when something does not hold.
    pub run: fn(&[u8]),
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target { name: "frame", run: wire::frame },
    Target { name: "stream", run: wire::stream },
    Target { name: "greeting", run: wire::greeting },
    Target { name: "request", run: wire::request },
    Target { name: "reply", run: wire::reply },
    Target { name: "order", run: wire::order },
    Target { name: "local", run: wire::local },
    Target { name: "path", run: wire::path },
    Target { name: "record", run: disk::record },
    Target { name: "segment", run: disk::segment },
    Target { name: "snapshot", run: disk::snapshot },
    Target { name: "trailer", run: disk::trailer },
    Target { name: "token", run: text::token },
    Target { name: "s3_request", run: text::s3_request },
    Target { name: "s3_text", run: text::s3_text },
    Target { name: "notice", run: text::notice },
    Target { name: "model", run: text::model },
];

/// What an input cost.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// Most bytes of memory at a time.
    pub bytes: usize,
    /// How long it took.
    pub time: Duration,
}

/// Runs a target on an input.
///
/// # Panics
/// When something does not hold: of the target, or the bounds on memory. The time is left to the
/// caller, who knows whether the machine is busy.
pub fn check(run: fn(&[u8]), input: &[u8]) -> Cost {
    let started = Instant::now();
    let bytes = memory::peak_of(|| run(input));
    let time = started.elapsed();
    let bound = input.len() + MEMORY_BYTES_MAX;
    assert!(bytes <= bound, "{bytes} bytes of memory for an input of {}", input.len());
    Cost { bytes, time }
}
