//! The network: delays, and what goes wrong on the way.

use crate::plan::Rates;
use crate::random::Random;
use crate::wire::{Host, PLACES};

/// What carries messages.
#[derive(Debug)]
pub(crate) struct Network {
    random: Random,
    pub(crate) rates: Rates,
    cuts: Vec<Cut>,
    /// Until when what a place sends or receives waits.
    clogged_until: [u64; PLACES],
    /// When the last message of each pair arrives: without a fault the order holds.
    last: Vec<u64>,
}

/// What goes from one set of places to another is lost. A set has a bit for each place.
#[derive(Debug)]
struct Cut {
    from: u32,
    to: u32,
    until: u64,
}

/// When the copies of one message arrive; nothing when it is lost.
#[derive(Debug, Default)]
pub(crate) struct Arrivals(pub(crate) [Option<u64>; 2]);

/// Shortest way through the network in microseconds. About a round trip on loopback; a message
/// never arrives at once.
const DELAY_MICROS_MIN: u64 = 60;

/// Bytes of one message that travel in a microsecond: 1 GB/s, so a block of 1 MiB is about a
/// millisecond on its way and others overtake it.
const BYTES_PER_MICRO: u64 = 1000;

impl Network {
    pub(crate) fn new(seed: u64, rates: Rates) -> Self {
        Self {
            random: Random::new(seed, 3),
            rates,
            cuts: Vec::new(),
            clogged_until: [0; PLACES],
            last: vec![0; PLACES * PLACES],
        }
    }

    pub(crate) fn partition(&mut self, half: u64, is_one_way: bool, until: u64) {
        let half = half as u32;
        self.cut(half, !half, until);
        if !is_one_way {
            self.cut(!half, half, until);
        }
    }

    pub(crate) fn cut(&mut self, from: u32, to: u32, until: u64) {
        self.cuts.push(Cut { from, to, until });
    }

    pub(crate) fn clog(&mut self, place: u8, until: u64) {
        let place = &mut self.clogged_until[usize::from(place) % PLACES];
        *place = until.max(*place);
    }

    /// Ends every fault.
    pub(crate) fn calm(&mut self, now: u64) {
        let delay_micros_max = self.rates.delay_micros_max.min(2000);
        self.rates = Rates { delay_micros_max, ..Rates::default() };
        self.cuts.clear();
        for until in &mut self.clogged_until {
            *until = (*until).min(now);
        }
    }

    /// Decides what becomes of one message.
    pub(crate) fn send(&mut self, now: u64, from: Host, to: Host, bytes: u64) -> Arrivals {
        // Drawn in the same number whatever is lost, so that less changes when a fault is left out.
        let is_lost = self.random.permille(self.rates.loss);
        let is_doubled = self.random.permille(self.rates.duplicate);
        let is_reordered = self.random.permille(self.rates.reorder);
        let delay = self.random.below(self.rates.delay_micros_max.max(1));
        let detour = self.random.next();
        if is_lost || self.is_cut(now, from, to) {
            return Arrivals::default();
        }
        let clog = self.clogged_until[from.index()].max(self.clogged_until[to.index()]);
        let mut at = now.max(clog) + DELAY_MICROS_MIN + delay + bytes / BYTES_PER_MICRO;
        let late = detour % self.rates.reorder_micros_max.max(1);
        if is_reordered {
            at += late;
        } else {
            let last = &mut self.last[from.index() * PLACES + to.index()];
            at = at.max(*last);
            *last = at;
        }
        Arrivals([Some(at), is_doubled.then_some(at + 1 + late)])
    }

    fn is_cut(&mut self, now: u64, from: Host, to: Host) -> bool {
        self.cuts.retain(|cut| cut.until > now);
        let has = |set: u32, place: Host| set >> place.index() & 1 == 1;
        self.cuts.iter().any(|cut| has(cut.from, from) && has(cut.to, to))
    }
}
