//! What Java knows by a handle.
//!
//! A handle is a number that is never given out twice, so one that was given back finds nothing:
//! whatever Java's threads do to each other, it is an error and never memory of something else.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use sanderling_client::{Client, Reader, Writer};

use crate::error::Trouble;
use crate::job::HeldJob;
use crate::runtime::enter;

/// Locks, so that threads that open and close at once seldom wait for each other.
const SHELVES: usize = 16;

/// A writer; empty while a call has it, so that no lock is held meanwhile, and when it is closed.
pub(crate) type HeldWriter = Arc<Mutex<Option<Writer>>>;

/// What has a handle.
#[derive(Clone)]
pub(crate) enum Held {
    Client(Client),
    Reader(Reader),
    Writer(HeldWriter),
    Job(HeldJob),
    /// Bytes that Java reads where they are: dropped, their memory is free for others.
    Bytes(Bytes),
}

type Shelf = RwLock<Option<HashMap<u64, Held>>>;

static ALL: [Shelf; SHELVES] = [const { RwLock::new(None) }; SHELVES];

static NEXT: AtomicU64 = AtomicU64::new(1);

const fn shelf(handle: u64) -> &'static Shelf {
    &ALL[handle as usize % SHELVES]
}

/// Keeps something and returns its handle.
pub(crate) fn keep(held: Held) -> i64 {
    let handle = NEXT.fetch_add(1, Ordering::Relaxed);
    shelf(handle).write().get_or_insert_default().insert(handle, held);
    handle as i64
}

/// Gives something up; what nobody uses meanwhile is dropped now.
pub(crate) fn take(handle: i64) -> Option<Held> {
    shelf(handle as u64).write().as_mut()?.remove(&(handle as u64))
}

/// Gives something up whose drop may leave work to a task.
pub(crate) fn release(handle: i64) {
    if let Some(held) = take(handle) {
        match held {
            Held::Bytes(bytes) => drop(bytes),
            held => {
                let _context = enter();
                drop(held);
            }
        }
    }
}

fn held(handle: i64) -> Option<Held> {
    shelf(handle as u64).read().as_ref()?.get(&(handle as u64)).cloned()
}

/// Returns the client of a handle.
///
/// # Errors
/// [`Trouble::Closed`] when it was given back.
pub(crate) fn client(handle: i64) -> Result<Client, Trouble> {
    match held(handle) {
        Some(Held::Client(client)) => Ok(client),
        _ => Err(Trouble::Closed("the client")),
    }
}

/// Returns the reader of a handle.
///
/// # Errors
/// As [`client`].
pub(crate) fn reader(handle: i64) -> Result<Reader, Trouble> {
    match held(handle) {
        Some(Held::Reader(reader)) => Ok(reader),
        _ => Err(Trouble::Closed("the reader")),
    }
}

/// Returns the writer of a handle.
///
/// # Errors
/// As [`client`].
pub(crate) fn writer(handle: i64) -> Result<HeldWriter, Trouble> {
    match held(handle) {
        Some(Held::Writer(writer)) => Ok(writer),
        _ => Err(Trouble::Closed("the writer")),
    }
}

/// Returns the job of a handle.
pub(crate) fn job(handle: i64) -> Option<HeldJob> {
    match held(handle) {
        Some(Held::Job(job)) => Some(job),
        _ => None,
    }
}
