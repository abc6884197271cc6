//! The workload of a thread, and how a thread fills the store.

use std::sync::{Arc, OnceLock};

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use sanderling_client::{Client, PutOptions};
use sanderling_protocol::message::{CreateMode, ObjectKind};
use sanderling_protocol::split_mix::mixed;
use sanderling_protocol::{Path, StorageClass};

use super::error::BenchError;

/// Bytes given to a writer at once while the store is filled: one block.
const FILL_BYTES: u64 = 1 << 20;

/// Objects put at once while the store is filled: as many requests as the client sends in one frame
/// (`BATCH_MAX` of the core's `client`).
const PUT_AT_ONCE: usize = 128;

/// What the operations of all threads have in common.
#[derive(Debug)]
pub(super) struct Workload {
    /// Bytes of one operation; 0 where it moves none.
    pub(super) size: u64,
    /// Things of one operation.
    pub(super) batch: u32,
    /// Operations of a thread that run at once, each with a state of its own.
    pub(super) workers: u32,
    /// Operations of a thread; `u64::MAX` when time ends it.
    pub(super) operations: u64,
    /// Bytes of a thread's part of the working set.
    pub(super) share: u64,
    pub(super) is_buffered: bool,
    pub(super) class: StorageClass,
    /// The directory of the files that are looked up, and how many there are.
    pub(super) tree: Path,
    pub(super) files: u64,
    /// Their paths, once a thread has listed them.
    pub(super) paths: OnceLock<Arc<Vec<Path>>>,
}

/// A thread's client and directory.
#[derive(Debug, Clone)]
pub(super) struct BenchThread {
    pub(super) client: Client,
    pub(super) directory: Path,
    pub(super) load: Arc<Workload>,
    pub(super) thread: u32,
}

impl BenchThread {
    pub(super) fn path(&self, name: &str) -> Result<Path, BenchError> {
        Ok(self.directory.join(name)?)
    }

    /// Returns one operation's bytes.
    pub(super) fn piece(&self) -> Bytes {
        pattern(self.load.size)
    }

    pub(super) fn options(&self) -> PutOptions {
        PutOptions { class: self.load.class, ..PutOptions::default() }
    }

    pub(super) fn replacing(&self) -> PutOptions {
        PutOptions { mode: CreateMode::Replace, ..self.options() }
    }

    /// Returns how many operations' bytes this thread's part of the working set holds, and no more
    /// than there are operations.
    pub(super) fn pieces(&self) -> u64 {
        (self.load.share / self.load.size.max(1)).clamp(1, self.load.operations)
    }

    pub(super) async fn make(&self, kind: ObjectKind) -> Result<(), BenchError> {
        self.client.make_directory(&self.directory, kind, true, true).await?;
        Ok(())
    }

    /// Puts the same bytes at all paths.
    pub(super) async fn put_all(
        &self,
        paths: &[Path],
        piece: &Bytes,
        options: &PutOptions,
    ) -> Result<(), BenchError> {
        for paths in paths.chunks(PUT_AT_ONCE * 8) {
            let puts = paths.iter().map(|path| self.client.put(path, piece.clone(), options));
            let puts: Vec<_> = puts.collect();
            let mut done = stream::iter(puts).buffer_unordered(PUT_AT_ONCE);
            while let Some(put) = done.next().await {
                put?;
            }
        }
        Ok(())
    }

    /// Writes a file of so many bytes.
    pub(super) async fn fill(&self, path: &Path, bytes: u64) -> Result<(), BenchError> {
        let piece = pattern(FILL_BYTES.min(bytes));
        let mut writer = self.client.create(path, &self.options()).await?;
        let mut left = bytes;
        while left > 0 {
            let now = left.min(piece.len() as u64);
            writer.write_bytes(piece.slice(..now as usize)).await?;
            left -= now;
        }
        writer.close().await?;
        Ok(())
    }

    /// Writes a file of the integers from `first` on.
    pub(super) async fn fill_integers(
        &self,
        path: &Path,
        integers: std::ops::Range<u64>,
    ) -> Result<(), BenchError> {
        let mut writer = self.client.create(path, &self.options()).await?;
        let mut next = integers.start;
        while next < integers.end {
            let until = integers.end.min(next + FILL_BYTES / INTEGER_BYTES);
            let mut piece = BytesMut::with_capacity(FILL_BYTES as usize);
            (next..until).for_each(|integer| piece.extend_from_slice(&encoded(integer)));
            writer.write_bytes(piece.freeze()).await?;
            next = until;
        }
        writer.close().await?;
        Ok(())
    }
}

/// Bytes of an integer, as in Crail's iobench.
pub(super) const INTEGER_BYTES: u64 = 4;

/// Returns an integer as it is written: the low bits, the lowest byte first.
pub(super) fn encoded(integer: u64) -> [u8; 4] {
    let [a, b, c, d, ..] = integer.to_le_bytes();
    [a, b, c, d]
}

/// Checks an integer that was read.
pub(super) fn check_integer(bytes: &[u8], expected: u64) -> Result<(), BenchError> {
    if bytes == encoded(expected) {
        return Ok(());
    }
    let found = bytes.iter().rev().fold(0, |sum, byte| (sum << 8) | u64::from(*byte));
    Err(BenchError::Wrong { what: "an integer", found, expected })
}

/// Returns bytes that are not constant, so that nothing on the way can make them smaller.
fn pattern(bytes: u64) -> Bytes {
    (0..bytes).map(|at| (at.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0]).collect()
}

/// Returns some neighbours of a list that has at least so many, others for each index.
pub(super) fn window<T>(list: &[T], items: u32, index: u64) -> &[T] {
    let items = items as usize;
    let first = scattered(index) % (list.len() - items + 1) as u64;
    &list[first as usize..][..items]
}

/// Spreads indices over 64 bits, the same way in every run.
pub(super) const fn scattered(index: u64) -> u64 {
    mixed(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_lie_within_their_list() {
        let list: Vec<u32> = (0..10).collect();
        for index in 0..100 {
            assert_eq!(window(&list, 4, index).len(), 4);
        }
        assert_eq!(window(&list, 10, 7), list);
    }

    #[test]
    fn wrong_integer_is_an_error() {
        assert!(check_integer(&encoded(70_000), 70_000).is_ok());
        let error = check_integer(&encoded(7), 8).expect_err("another");
        assert_eq!(error.to_string(), "an integer: 7 where 8 was written");
        assert!(check_integer(&[1], 1).is_err(), "half an integer");
    }
}
