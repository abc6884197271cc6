//! The images of a dump, on their way from the threads that read them to the one that packs them.
//!
//! The task stands still while its images are read. What takes time then is done before or after:
//! buffers are made before, with memory that the kernel has given already. With few processors,
//! pieces are packed after, unless more are held than may wait.

use std::collections::VecDeque;
use std::mem;
use std::num::NonZero;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;

use sanderling_core::checkpoint::{CHUNK_BYTES, image_buffers, packs_image_now, waiting_chunks};
use sanderling_transport::available_bytes;

use crate::reserved_memory::RESERVED;

/// A piece of an image.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ImagePiece {
    /// A whole chunk, in a buffer to give back.
    Chunk(Vec<u8>),
    /// What follows the whole chunks: fewer bytes than one has, and perhaps none.
    Tail(Vec<u8>),
}

/// The queue, as the thread that packs has it. When it is dropped, no more is taken.
pub(crate) struct ImageQueue(Arc<SharedImages>);

/// The queue, as a thread that reads has it. The images are complete when all are dropped.
pub(crate) struct ImageSender(Arc<SharedImages>);

struct SharedImages {
    /// Pieces that may be held.
    waiting: usize,
    processors: usize,
    state: Mutex<HeldImages>,
    /// A piece may be packed, or there is nothing to wait for.
    packable: Condvar,
    /// A piece may be added, or none is taken any more.
    room: Condvar,
}

struct HeldImages {
    pieces: VecDeque<(String, ImagePiece)>,
    /// Buffers without a piece: with the pieces, no more than may wait.
    free: Vec<Vec<u8>>,
    /// Why an image could not be read.
    failed: Option<String>,
    is_frozen: bool,
    is_given_up: bool,
    senders: usize,
}

/// Memory that a dump is about to take.
struct ImageMemory<'a> {
    reserved: &'a Mutex<u64>,
    bytes: u64,
    waiting: usize,
    buffers: usize,
}

impl ImageQueue {
    /// Makes the queue for a task with so many bytes in memory. Buffers take what is requested, or
    /// a part of what is available. It blocks for as long as the kernel takes to give them memory.
    pub(crate) fn of_task(resident_bytes: u64, requested_bytes: Option<u64>) -> Self {
        let memory =
            ImageMemory::reserve(&RESERVED, available_bytes, resident_bytes, requested_bytes);
        let processors = available_parallelism().map_or(1, NonZero::get);
        Self::new(memory.waiting, processors, memory.buffers)
    }

    fn new(waiting: usize, processors: usize, buffers: usize) -> Self {
        // The kernel gives a page when it is written first.
        let free = (0..buffers).map(|_| vec![1; CHUNK_BYTES]).collect();
        let state = HeldImages {
            pieces: VecDeque::new(),
            free,
            failed: None,
            is_frozen: true,
            is_given_up: false,
            senders: 0,
        };
        Self(Arc::new(SharedImages {
            waiting,
            processors,
            state: Mutex::new(state),
            packable: Condvar::new(),
            room: Condvar::new(),
        }))
    }

    /// Returns what a thread needs that reads.
    pub(crate) fn sender(&self) -> ImageSender {
        ImageSender::of(&self.0)
    }

    /// Waits for the next piece that may be packed, and returns it with the name of its image;
    /// `None` if there are no more.
    ///
    /// # Errors
    /// An image could not be read, for this reason.
    pub(crate) fn take(&self) -> Result<Option<(String, ImagePiece)>, String> {
        let mut state = self.0.locked();
        loop {
            if let Some(why) = state.failed.take() {
                return Err(why);
            }
            if let Some(piece) = self.0.pop(&mut state) {
                drop(state);
                self.0.room.notify_one();
                return Ok(Some(piece));
            }
            if state.senders == 0 {
                return Ok(None);
            }
            state = waited(&self.0.packable, state);
        }
    }

    /// Takes a buffer whose chunk was packed.
    pub(crate) fn give_back(&self, buffer: Vec<u8>) {
        self.0.give_back(buffer);
    }
}

impl ImageSender {
    fn of(shared: &Arc<SharedImages>) -> Self {
        shared.locked().senders += 1;
        Self(Arc::clone(shared))
    }

    /// Returns a buffer of the length of a chunk, with any content.
    pub(crate) fn buffer(&self) -> Vec<u8> {
        let free = self.0.locked().free.pop();
        free.unwrap_or_else(|| vec![0; CHUNK_BYTES])
    }

    /// Takes a buffer that has no piece.
    pub(crate) fn give_back(&self, buffer: Vec<u8>) {
        self.0.give_back(buffer);
    }

    /// Adds a piece of an image, as soon as one more may wait. Returns whether it was added: if it
    /// was not, the dump was given up.
    pub(crate) fn send(&self, image: &str, piece: ImagePiece) -> bool {
        let mut state = self.0.locked();
        while state.pieces.len() >= self.0.waiting && !state.is_given_up {
            state = waited(&self.0.room, state);
        }
        if state.is_given_up {
            return false;
        }
        state.pieces.push_back((image.to_owned(), piece));
        let is_packable = self.0.packs(&state);
        drop(state);
        if is_packable {
            self.0.packable.notify_one();
        }
        true
    }

    /// Ends the dump: an image could not be read.
    pub(crate) fn fail(&self, why: String) {
        self.0.locked().failed.get_or_insert(why);
        self.0.packable.notify_one();
    }

    /// Lets all pieces be packed, as the task goes on. Free buffers are not needed any more.
    pub(crate) fn task_goes_on(&self) {
        let mut state = self.0.locked();
        state.is_frozen = false;
        let free = mem::take(&mut state.free);
        drop(state);
        self.0.packable.notify_one();
        drop(free);
    }
}

impl SharedImages {
    fn locked(&self) -> MutexGuard<'_, HeldImages> {
        locked(&self.state)
    }

    /// Returns whether the oldest piece is packed now.
    fn packs(&self, state: &HeldImages) -> bool {
        let held = state.pieces.len();
        state.senders == 0 || packs_image_now(state.is_frozen, self.processors, held, self.waiting)
    }

    fn pop(&self, state: &mut HeldImages) -> Option<(String, ImagePiece)> {
        if self.packs(state) { state.pieces.pop_front() } else { None }
    }

    fn give_back(&self, buffer: Vec<u8>) {
        let mut state = self.locked();
        if state.is_frozen && state.free.len() + state.pieces.len() < self.waiting {
            state.free.push(buffer);
        }
    }
}

impl<'a> ImageMemory<'a> {
    /// Reserves memory for a task with so many bytes, of what is available and not reserved.
    fn reserve(
        reserved: &'a Mutex<u64>,
        available: impl FnOnce() -> Option<u64>,
        resident_bytes: u64,
        requested_bytes: Option<u64>,
    ) -> Self {
        // Buffers of other dumps were made before this look, or they count as reserved.
        let mut before = locked(reserved);
        let waiting = waiting_chunks(available(), *before, requested_bytes);
        let buffers = image_buffers(waiting, resident_bytes);
        let bytes = (buffers * CHUNK_BYTES) as u64;
        *before += bytes;
        Self { reserved, bytes, waiting, buffers }
    }
}

impl Clone for ImageSender {
    fn clone(&self) -> Self {
        Self::of(&self.0)
    }
}

impl Drop for ImageSender {
    fn drop(&mut self) {
        let mut state = self.0.locked();
        state.senders -= 1;
        if state.senders == 0 {
            drop(state);
            self.0.packable.notify_one();
        }
    }
}

impl Drop for ImageQueue {
    fn drop(&mut self) {
        let mut state = self.0.locked();
        state.is_given_up = true;
        let held = (mem::take(&mut state.pieces), mem::take(&mut state.free));
        drop(state);
        self.0.room.notify_all();
        drop(held);
    }
}

impl Drop for ImageMemory<'_> {
    fn drop(&mut self) {
        *locked(self.reserved) -= self.bytes;
    }
}

/// Locks what a thread that panicked has not changed by halves.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn waited<'a, T>(condition: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condition.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn piece(number: u8) -> ImagePiece {
        ImagePiece::Tail(vec![number])
    }

    /// Returns the piece that may be packed now, without waiting for one.
    fn taken_now(queue: &ImageQueue) -> Option<ImagePiece> {
        let mut state = queue.0.locked();
        queue.0.pop(&mut state).map(|(_, piece)| piece)
    }

    #[test]
    fn pieces_are_held_while_the_task_stands_still_as_long_as_more_may_wait() {
        let queue = ImageQueue::new(2, 2, 0);
        let sender = queue.sender();
        assert!(sender.send("pages", piece(1)));
        assert_eq!(taken_now(&queue), None);
        assert!(sender.send("pages", piece(2)));
        assert_eq!(queue.take(), Ok(Some(("pages".to_owned(), piece(1)))));
        assert_eq!(taken_now(&queue), None);
        sender.task_goes_on();
        assert_eq!(taken_now(&queue), Some(piece(2)));
        assert!(sender.send("pages", piece(3)));
        assert_eq!(taken_now(&queue), Some(piece(3)));
        drop(sender);
        assert_eq!(queue.take(), Ok(None));
    }

    #[test]
    fn more_processors_pack_at_once() {
        let queue = ImageQueue::new(64, 3, 0);
        let sender = queue.sender();
        assert!(sender.send("pages", piece(1)));
        assert_eq!(taken_now(&queue), Some(piece(1)));
    }

    #[test]
    fn packing_goes_on_when_the_task_does_or_the_last_reader_ends() {
        for task_goes_on in [true, false] {
            let queue = ImageQueue::new(64, 1, 0);
            let sender = queue.sender();
            assert!(sender.send("core", piece(1)));
            let packing = thread::spawn(move || (queue.take(), queue.take()));
            if task_goes_on {
                sender.task_goes_on();
            }
            drop(sender);
            let taken = packing.join().unwrap();
            assert_eq!(taken, (Ok(Some(("core".to_owned(), piece(1)))), Ok(None)));
        }
    }

    #[test]
    fn failed_read_comes_before_what_is_held() {
        let queue = ImageQueue::new(64, 2, 0);
        let sender = queue.sender();
        assert!(sender.send("core", piece(1)));
        let failing = sender.clone();
        let packing = thread::spawn(move || queue.take());
        failing.fail("pages: cut".to_owned());
        assert_eq!(packing.join().unwrap(), Err("pages: cut".to_owned()));
    }

    #[test]
    fn reader_of_a_dump_that_was_given_up_ends() {
        let queue = ImageQueue::new(1, 2, 0);
        let sender = queue.sender();
        assert!(sender.send("pages", piece(1)));
        let reading = thread::spawn(move || sender.send("pages", piece(2)));
        drop(queue);
        assert!(!reading.join().unwrap());
    }

    #[test]
    fn buffers_are_used_again_and_with_the_pieces_are_no_more_than_may_wait() {
        let queue = ImageQueue::new(2, 2, 1);
        let sender = queue.sender();
        let buffer = sender.buffer();
        assert_eq!(buffer.len(), CHUNK_BYTES);
        let address = buffer.as_ptr();
        queue.give_back(buffer);
        let buffer = sender.buffer();
        assert_eq!(buffer.as_ptr(), address);
        let free = || queue.0.locked().free.len();
        assert_eq!(free(), 0);
        assert!(sender.send("pages", ImagePiece::Chunk(buffer)));
        for _ in 0..3 {
            sender.give_back(vec![0; CHUNK_BYTES]);
        }
        assert_eq!(free(), 1);
        sender.task_goes_on();
        assert_eq!(free(), 0);
        queue.give_back(vec![0; CHUNK_BYTES]);
        assert_eq!(free(), 0);
    }

    #[test]
    fn dumps_at_once_share_the_memory_that_is_available() {
        let reserved = Mutex::new(0);
        let reserve = || ImageMemory::reserve(&reserved, || Some(1 << 30), u64::MAX, None);
        let first = reserve();
        assert_eq!((first.bytes, first.waiting), (256 << 20, (256 << 20) / CHUNK_BYTES));
        let second = reserve();
        assert_eq!(second.bytes, 192 << 20);
        drop(first);
        drop(second);
        assert_eq!(*locked(&reserved), 0);
        let small = ImageMemory::reserve(&reserved, || Some(1 << 30), 0, None);
        assert_eq!(small.bytes, 4 << 20);
    }
}
