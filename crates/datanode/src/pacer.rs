//! Lets bytes leave at a rate, in the order in which they come.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use sanderling_core::datanode::Egress;
use sanderling_protocol::Instant;
use tokio::sync::oneshot;
use tokio::time::sleep_until;

use crate::clock::ProcessClock;

/// Paces what a node sends. A task of its own takes one answer after the other: no peer that does
/// not take its answer delays those of others. What is given up before its turn takes nothing of
/// the link.
#[derive(Debug)]
pub(crate) struct Pacer {
    state: Mutex<PacerState>,
    clock: ProcessClock,
}

#[derive(Debug)]
struct PacerState {
    egress: Egress,
    /// By the order in which they came.
    waiting: BTreeMap<u64, WaitingBytes>,
    next: u64,
    /// Whether the task runs: what comes now waits.
    is_running: bool,
}

#[derive(Debug)]
struct WaitingBytes {
    bytes: u64,
    left_at: oneshot::Sender<Option<Instant>>,
}

/// A place among those that wait; it is given up when this is dropped.
struct PacerPlace<'a> {
    pacer: &'a Pacer,
    number: u64,
}

impl Drop for PacerPlace<'_> {
    fn drop(&mut self) {
        self.pacer.state.lock().waiting.remove(&self.number);
    }
}

impl Pacer {
    pub(crate) fn new(bytes_per_second: u64, clock: ProcessClock) -> Self {
        let egress = Egress::new(Some(bytes_per_second));
        let (waiting, next, is_running) = (BTreeMap::new(), 0, false);
        Self { state: Mutex::new(PacerState { egress, waiting, next, is_running }), clock }
    }

    /// Waits until so many bytes have left.
    pub(crate) async fn leave(self: &Arc<Self>, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let (left_at, place) = oneshot::channel();
        let number = {
            let mut state = self.state.lock();
            let number = state.next;
            state.next += 1;
            state.waiting.insert(number, WaitingBytes { bytes, left_at });
            if !state.is_running {
                let wait = self.let_leave(&mut state);
                state.is_running = wait.is_some();
                if let Some(wait) = wait {
                    tokio::spawn(Arc::clone(self).run(wait));
                }
            }
            number
        };
        let _place = PacerPlace { pacer: self, number };
        if let Ok(Some(left_at)) = place.await {
            sleep_until(self.clock.moment(left_at)).await;
        }
    }

    /// Gives each that waits its time, as long as one may be queued. Returns until when the next
    /// one waits; `None` if none does.
    fn let_leave(&self, state: &mut PacerState) -> Option<Instant> {
        let now = self.clock.now();
        while let Some((_, first)) = state.waiting.pop_first() {
            let left_at = state.egress.queue(now, first.bytes);
            // It may be given up at this moment: its bytes count as sent then.
            let _ = first.left_at.send(left_at);
            let next_at = left_at.map(|at| at - Egress::AHEAD).filter(|at| *at > now);
            if next_at.is_some() {
                return next_at;
            }
        }
        None
    }

    /// Lets bytes leave until none wait.
    async fn run(self: Arc<Self>, mut wait: Instant) {
        loop {
            sleep_until(self.clock.moment(wait)).await;
            let mut state = self.state.lock();
            match self.let_leave(&mut state) {
                Some(next) => wait = next,
                None => {
                    state.is_running = false;
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use sanderling_protocol::Millis;

    use super::*;

    /// Bytes of an answer in these tests, which take 62 ms each.
    const ANSWER: u64 = 64 << 10;

    fn pacer() -> Arc<Pacer> {
        Arc::new(Pacer::new(1 << 20, ProcessClock::start()))
    }

    #[tokio::test]
    async fn answers_that_are_given_up_take_nothing_of_the_link() {
        let pacer = pacer();
        let mut given_up: Vec<_> = (0..640).map(|_| Box::pin(pacer.leave(ANSWER))).collect();
        for answer in &mut given_up {
            assert!(answer.as_mut().now_or_never().is_none(), "it waits");
        }
        drop(given_up);
        let began = pacer.clock.now();
        pacer.leave(ANSWER).await;
        let took = pacer.clock.now().since(began);
        assert!(took < Millis(20_000), "behind all of them it takes 40 s: {took:?}");
    }

    #[tokio::test]
    async fn answer_whose_peer_takes_nothing_delays_no_other() {
        let pacer = pacer();
        let mut stuck = [Box::pin(pacer.leave(ANSWER)), Box::pin(pacer.leave(ANSWER))];
        for answer in &mut stuck {
            assert!(answer.as_mut().now_or_never().is_none(), "it waits");
        }
        // Both are there yet, and nothing polls them.
        pacer.leave(ANSWER).await;
        drop(stuck);
    }

    #[tokio::test]
    async fn short_answers_keep_to_the_rate_and_delay_others_by_no_more_than_they_take() {
        let pacer = pacer();
        let began = pacer.clock.now();
        // A half of a second of the link, in 512 answers.
        let short = (0..512).map(|_| pacer.leave(1 << 10));
        futures_util::future::join_all(short).await;
        let took = pacer.clock.now().since(began);
        assert!(took >= Millis(490), "{took:?}");
        pacer.leave(ANSWER).await;
        let both = pacer.clock.now().since(began);
        assert!(both.0 < took.0 + 10_000, "{both:?}");
    }

    #[tokio::test]
    async fn place_that_is_given_up_is_forgotten_and_no_bytes_wait_for_nothing() {
        let pacer = pacer();
        let mut long = Box::pin(pacer.leave(64 << 20));
        assert!(long.as_mut().now_or_never().is_none(), "a minute");
        let mut waiting = Box::pin(pacer.leave(1));
        assert!(waiting.as_mut().now_or_never().is_none());
        assert_eq!(pacer.state.lock().waiting.len(), 1);
        drop(waiting);
        assert_eq!(pacer.state.lock().waiting.len(), 0);
        assert!(pacer.leave(0).now_or_never().is_some());
    }
}
