//! The handle table: what Java refers to by number.
//!
//! A handle is a number that is never used twice, so one that was released finds nothing: whatever
//! Java's threads do to each other, it is an error and never memory of something else.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use sanderling_client::{Client, Reader, Writer};

use crate::error::NativeError;
use crate::job::SharedJob;
use crate::runtime::enter;

/// Locks, so that threads that open and close at once seldom wait for each other: as many as an
/// executor of Spark has threads, as a rule. Chosen, not measured.
const SHARDS: usize = 16;

/// A writer; empty while a call has it, so that no lock is held meanwhile, and when it is closed.
pub(crate) type SharedWriter = Arc<Mutex<Option<Writer>>>;

/// What has a handle.
#[derive(Clone)]
pub(crate) enum Handle {
    Client(Client),
    Reader(Reader),
    Writer(SharedWriter),
    Job(SharedJob),
    /// Bytes that Java reads where they are: dropped, their memory is free for others.
    Bytes(Bytes),
}

type Shard = RwLock<Option<HashMap<u64, Handle>>>;

static ALL: [Shard; SHARDS] = [const { RwLock::new(None) }; SHARDS];

static NEXT: AtomicU64 = AtomicU64::new(1);

const fn shard(handle: u64) -> &'static Shard {
    &ALL[handle as usize % SHARDS]
}

/// Inserts a value and returns its handle.
pub(crate) fn insert(entry: Handle) -> i64 {
    let handle = NEXT.fetch_add(1, Ordering::Relaxed);
    shard(handle).write().get_or_insert_default().insert(handle, entry);
    handle as i64
}

/// Removes a handle; a value without other users is dropped now.
pub(crate) fn remove(handle: i64) -> Option<Handle> {
    shard(handle as u64).write().as_mut()?.remove(&(handle as u64))
}

/// Removes a handle whose value's drop may leave work to a task.
pub(crate) fn release(handle: i64) {
    if let Some(entry) = remove(handle) {
        match entry {
            Handle::Bytes(bytes) => drop(bytes),
            entry => {
                let _context = enter();
                drop(entry);
            }
        }
    }
}

fn get(handle: i64) -> Option<Handle> {
    shard(handle as u64).read().as_ref()?.get(&(handle as u64)).cloned()
}

/// Defines what returns the value of a handle, or [`NativeError::Closed`] when it was released.
macro_rules! values {
    ($($name:ident: $variant:ident($type:ty), $what:literal;)*) => {$(
        pub(crate) fn $name(handle: i64) -> Result<$type, NativeError> {
            match get(handle) {
                Some(Handle::$variant(value)) => Ok(value),
                _ => Err(NativeError::Closed($what)),
            }
        }
    )*};
}

values! {
    client: Client(Client), "the client";
    reader: Reader(Reader), "the reader";
    writer: Writer(SharedWriter), "the writer";
    job: Job(SharedJob), "the job";
}
