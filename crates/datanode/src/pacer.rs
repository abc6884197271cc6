//! Lets bytes leave at a rate: clients' reads and pushes in the order in which they come, uploads
//! behind them. `core` decides, this waits.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use sanderling_core::datanode::{LinkClass, LinkQueue, LinkTurn};
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
    queue: LinkQueue,
    /// What gets the time of each that waits.
    wakers: BTreeMap<u64, oneshot::Sender<Option<Instant>>>,
    /// Whether the task runs, which looks at what waits.
    is_running: bool,
}

/// A place among those that wait; it is given up when this is dropped.
struct PacerPlace<'a> {
    pacer: &'a Pacer,
    number: u64,
}

impl Drop for PacerPlace<'_> {
    fn drop(&mut self) {
        let mut state = self.pacer.state.lock();
        // What has got its time does not wait.
        if state.wakers.remove(&self.number).is_some() {
            state.queue.give_up(self.number);
        }
    }
}

impl Pacer {
    pub(crate) fn new(bytes_per_second: u64, clock: ProcessClock) -> Self {
        let (queue, wakers, is_running) =
            (LinkQueue::new(bytes_per_second), BTreeMap::new(), false);
        Self { state: Mutex::new(PacerState { queue, wakers, is_running }), clock }
    }

    /// Takes whether the node is to leave: uploads go before reads then.
    pub(crate) fn set_leaving(&self, is_leaving: bool) {
        self.state.lock().queue.set_leaving(is_leaving);
    }

    /// Waits until so many bytes have left.
    pub(crate) async fn leave(self: &Arc<Self>, class: LinkClass, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let (left_at, place) = oneshot::channel();
        let number = {
            let mut state = self.state.lock();
            let number = state.queue.add(self.clock.now(), class, bytes);
            state.wakers.insert(number, left_at);
            // Also while the task runs: it may wait for what uploads may send, which reads do not.
            let wait = self.let_leave(&mut state);
            if let Some(wait) = wait.filter(|_| !state.is_running) {
                state.is_running = true;
                tokio::spawn(Arc::clone(self).run(wait));
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
        loop {
            match state.queue.next(now) {
                LinkTurn::Leaves { number, left_at } => {
                    if let Some(waker) = state.wakers.remove(&number) {
                        // It may be given up at this moment: its bytes count as sent then.
                        let _ = waker.send(left_at);
                    }
                }
                LinkTurn::Wait(at) => return Some(at),
                LinkTurn::Idle => return None,
            }
        }
    }

    /// Lets bytes leave until none wait. What comes meanwhile is looked at when it comes, and has
    /// to wait for this timer only while the link is busy for as long.
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
        let mut given_up: Vec<_> =
            (0..640).map(|_| Box::pin(pacer.leave(LinkClass::Read, ANSWER))).collect();
        for answer in &mut given_up {
            assert!(answer.as_mut().now_or_never().is_none(), "it waits");
        }
        drop(given_up);
        let began = pacer.clock.now();
        pacer.leave(LinkClass::Read, ANSWER).await;
        let took = pacer.clock.now().since(began);
        assert!(took < Millis(20_000), "behind all of them it takes 40 s: {took:?}");
    }

    #[tokio::test]
    async fn answer_whose_peer_takes_nothing_delays_no_other() {
        let pacer = pacer();
        let mut stuck = [
            Box::pin(pacer.leave(LinkClass::Read, ANSWER)),
            Box::pin(pacer.leave(LinkClass::Read, ANSWER)),
        ];
        for answer in &mut stuck {
            assert!(answer.as_mut().now_or_never().is_none(), "it waits");
        }
        // Both are there yet, and nothing polls them.
        pacer.leave(LinkClass::Read, ANSWER).await;
        drop(stuck);
    }

    #[tokio::test]
    async fn short_answers_keep_to_the_rate_and_delay_others_by_no_more_than_they_take() {
        let pacer = pacer();
        let began = pacer.clock.now();
        // A half of a second of the link, in 512 answers.
        let short = (0..512).map(|_| pacer.leave(LinkClass::Read, 1 << 10));
        futures_util::future::join_all(short).await;
        let took = pacer.clock.now().since(began);
        assert!(took >= Millis(490), "{took:?}");
        pacer.leave(LinkClass::Read, ANSWER).await;
        let both = pacer.clock.now().since(began);
        assert!(both.0 < took.0 + 10_000, "{both:?}");
    }

    #[tokio::test]
    async fn read_goes_before_uploads_that_have_waited_for_longer() {
        let pacer = pacer();
        let upload = |_| Box::pin(pacer.leave(LinkClass::Upload, 1 << 20));
        let mut uploads: Vec<_> = (0..8).map(upload).collect();
        for upload in &mut uploads {
            assert!(upload.as_mut().now_or_never().is_none(), "it takes a second");
        }
        let began = pacer.clock.now();
        for _ in 0..4 {
            pacer.leave(LinkClass::Read, ANSWER).await;
        }
        let took = pacer.clock.now().since(began);
        assert!(took < Millis(4_000), "behind all of them it takes 8 s: {took:?}");
    }

    #[tokio::test]
    async fn place_that_is_given_up_is_forgotten_and_no_bytes_wait_for_nothing() {
        let pacer = pacer();
        let mut long = Box::pin(pacer.leave(LinkClass::Read, 64 << 20));
        assert!(long.as_mut().now_or_never().is_none(), "a minute");
        let mut waiting = Box::pin(pacer.leave(LinkClass::Read, 1));
        assert!(waiting.as_mut().now_or_never().is_none());
        assert_eq!(pacer.state.lock().wakers.len(), 1);
        drop(waiting);
        assert_eq!(pacer.state.lock().wakers.len(), 0);
        assert!(pacer.leave(LinkClass::Read, 0).now_or_never().is_some());
    }
}
