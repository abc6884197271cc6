//! One run, and many.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

use crate::{Options, Outcome, Statistics};

/// Runs one seed.
#[must_use]
pub fn run(seed: u64, options: &Options) -> Outcome {
    let _ = options;
    Outcome {
        seed,
        violation: None,
        statistics: Statistics::default(),
        digest: 0,
        events: Vec::new(),
    }
}

/// Runs many seeds on that many threads and tells `progress` of each outcome as it comes, until it
/// says to stop by returning `false`.
pub fn run_many(
    seeds: std::ops::Range<u64>,
    options: &Options,
    threads: usize,
    mut progress: impl FnMut(Outcome) -> bool,
) {
    let next = AtomicU64::new(seeds.start);
    let is_stopped = AtomicBool::new(false);
    let (sender, receiver) = mpsc::sync_channel(threads.max(1) * 4);
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            let (sender, next, is_stopped) = (sender.clone(), &next, &is_stopped);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || is_stopped.load(Ordering::Relaxed) {
                        return;
                    }
                    if sender.send(run(seed, options)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for outcome in receiver {
            if !progress(outcome) {
                is_stopped.store(true, Ordering::Relaxed);
                return;
            }
        }
    });
}
