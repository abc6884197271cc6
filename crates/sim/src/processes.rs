//! The processes of a run: which are up, and what their clocks show.

use sanderling_protocol::Instant;

use crate::random::Random;
use crate::wire::{Host, PLACES};

/// The state of each place's process, as its machine has it.
#[derive(Debug)]
pub(crate) struct Processes([Process; PLACES]);

#[derive(Debug, Clone, Copy, Default)]
struct Process {
    /// Counts the starts and the ends: a process and the next one in its place differ in it.
    life: u32,
    is_up: bool,
    /// Until when it is stopped, in microseconds of virtual time.
    stopped_until: u64,
    /// What the machine's clock is ahead, in microseconds.
    skew: i64,
    /// When the machine's clock jumped last.
    skewed_at: u64,
}

/// Where every clock starts: far from zero, so that times before the start are times.
const CLOCK_START: u64 = 1_000_000_000_000;

impl Processes {
    /// Draws what each clock is ahead.
    pub(crate) fn draw(mut random: Random) -> Self {
        let skew = |_| random.between(0, 2_000_000) as i64 - 1_000_000;
        Self(std::array::from_fn(skew).map(|skew| Process { skew, ..Process::default() }))
    }

    const fn of(&self, host: Host) -> &Process {
        &self.0[host.index()]
    }

    /// Returns a number that no other process of a place has.
    pub(crate) const fn life(&self, host: Host) -> u32 {
        self.of(host).life
    }

    pub(crate) const fn is_up(&self, host: Host) -> bool {
        self.of(host).is_up
    }

    /// Starts the next process of a place.
    pub(crate) const fn start(&mut self, host: Host) {
        let process = &mut self.0[host.index()];
        process.life += 1;
        process.is_up = true;
    }

    /// Ends the process of a place. Returns whether there was one.
    pub(crate) const fn end(&mut self, host: Host) -> bool {
        let process = &mut self.0[host.index()];
        if !process.is_up {
            return false;
        }
        process.life += 1;
        (process.is_up, process.stopped_until) = (false, 0);
        true
    }

    /// Stops the process of a place until a time.
    pub(crate) const fn stop(&mut self, host: Host, until: u64) {
        self.0[host.index()].stopped_until = until;
    }

    pub(crate) const fn stopped_until(&self, host: Host) -> u64 {
        self.of(host).stopped_until
    }

    /// Lets the clock of a place's machine jump.
    pub(crate) const fn step_clock(&mut self, place: u8, now: u64, micros: i64) {
        let process = &mut self.0[place as usize];
        process.skew += micros;
        process.skewed_at = now;
    }

    /// Returns when the clock of a place's machine jumped last.
    pub(crate) const fn skewed_at(&self, host: Host) -> u64 {
        self.of(host).skewed_at
    }

    /// Returns the time by the clock of a place's machine.
    pub(crate) const fn clock(&self, host: Host, now: u64) -> Instant {
        Instant((CLOCK_START + now).saturating_add_signed(self.of(host).skew))
    }
}
