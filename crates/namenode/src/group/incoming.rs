//! Snapshots that leaders send to this member, part by part.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use sanderling_core::catalog::Catalog;
use sanderling_protocol::checksum::Running;
use sanderling_protocol::{Millis, Refusal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::wire::SnapshotPart;
use crate::file_names;
use crate::files::Window;
use crate::snapshot;

/// The longest snapshot that is taken: more than a catalog of the largest memory has.
const BYTES_MAX: u64 = 1 << 40;

/// Most snapshots that this member has at once, the one that arrives among them. Each that is whole
/// is a catalog in memory, until the writer restores or drops it. So while the snapshot of one
/// leader waits for the writer, that of the next one can arrive.
const SNAPSHOTS_MAX: usize = 2;

/// When the sender of one more is to come again: a leader's first pause after a snapshot that was
/// not taken (`SnapshotSends`).
const RETRY_INTERVAL: Millis = Millis(1000);

const NOT_NEXT: &str = "a part of a snapshot does not follow the one before";

/// The file of a snapshot, which is removed when this is dropped, unless it has another name by
/// then.
#[derive(Debug)]
pub(crate) struct SnapshotFile {
    path: PathBuf,
    /// Its place among the snapshots that this member has at once.
    _place: Option<OwnedSemaphorePermit>,
}

impl SnapshotFile {
    #[cfg(test)]
    pub(crate) const fn at(path: PathBuf) -> Self {
        Self { path, _place: None }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SnapshotFile {
    fn drop(&mut self) {
        // The next start removes what stays.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A snapshot under way.
#[derive(Debug)]
struct Incoming {
    sending: u64,
    file: File,
    path: SnapshotFile,
    checksum: Running,
    arrived: u64,
}

/// A snapshot that is whole.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) catalog: Catalog,
    pub(crate) file: SnapshotFile,
    /// The replica's message that it belongs to.
    pub(crate) message: Bytes,
}

fn refused(why: impl Into<String>) -> Refusal {
    Refusal::BadRequest { why: why.into() }
}

fn full() -> Refusal {
    let why = format!("{SNAPSHOTS_MAX} snapshots of the group wait for this member's writer");
    Refusal::RetryAfter { after: RETRY_INTERVAL, why }
}

/// Takes the snapshots that are sent to this member, as many as it may have at once.
#[derive(Debug)]
pub(crate) struct SnapshotReceiver {
    under_way: Option<Incoming>,
    places: Arc<Semaphore>,
}

impl Default for SnapshotReceiver {
    fn default() -> Self {
        Self { under_way: None, places: Arc::new(Semaphore::new(SNAPSHOTS_MAX)) }
    }
}

impl SnapshotReceiver {
    /// Takes a part; returns the snapshot with the last one. A part that does not follow the one
    /// before ends its sending: the leader begins again. A part of another sending than the one
    /// under way changes nothing, unless it is the first one.
    ///
    /// # Errors
    /// Why the snapshot cannot be used. [`Refusal::RetryAfter`] to its first part: as many as may
    /// be here wait for the writer. The replica has no message of the one that is refused.
    pub(crate) fn take(
        &mut self,
        directory: &Path,
        part: SnapshotPart,
    ) -> Result<Option<Arrived>, Refusal> {
        let kept = &mut self.under_way;
        part.format.check()?;
        if part.total > BYTES_MAX {
            let (what, value, limit) = ("snapshot".to_owned(), part.total, BYTES_MAX);
            return Err(Refusal::TooLarge { what, value, limit });
        }
        if part.offset == 0 {
            // The one before is given up: its file goes first.
            *kept = None;
            let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| full())?;
            *kept = Some(Incoming::begin(directory, part.sending, place)?);
        }
        let Some(incoming) = kept.as_mut().filter(|it| it.sending == part.sending) else {
            return Err(refused(NOT_NEXT));
        };
        let is_next =
            incoming.arrived == part.offset && part.offset + part.bytes.len() as u64 <= part.total;
        if !is_next {
            *kept = None;
            return Err(refused(NOT_NEXT));
        }
        if let Err(error) = incoming.file.write_all_at(&part.bytes, part.offset) {
            // A disk that is full has room again for what the member itself writes.
            *kept = None;
            return Err(refused(format!("the snapshot cannot be written: {error}")));
        }
        incoming.checksum.update(&part.bytes);
        incoming.arrived += part.bytes.len() as u64;
        if incoming.arrived < part.total {
            return Ok(None);
        }
        let incoming = kept.take().expect("it was there");
        if incoming.checksum.value() != part.checksum {
            return Err(refused("a snapshot was damaged on its way"));
        }
        incoming.read(part.message).map(Some)
    }
}

impl Incoming {
    fn begin(directory: &Path, sending: u64, place: OwnedSemaphorePermit) -> Result<Self, Refusal> {
        let path = directory.join(file_names::group_snapshot(sending));
        let opened = File::options().create_new(true).read(true).write(true).open(&path);
        let file = opened.map_err(|error| refused(format!("{}: {error}", path.display())))?;
        let path = SnapshotFile { path, _place: Some(place) };
        Ok(Self { sending, file, path, checksum: Running::default(), arrived: 0 })
    }

    fn read(self, message: Bytes) -> Result<Arrived, Refusal> {
        let Self { file, path: kept, .. } = self;
        let path = kept.path();
        let cannot = |error: std::io::Error| refused(format!("{}: {error}", path.display()));
        file.sync_all().map_err(cannot)?;
        let mut window = Window::new(Arc::new(file)).map_err(cannot)?;
        let catalog = snapshot::read_window(path, &mut window);
        let catalog = catalog.map_err(|error| refused(error.to_string()))?;
        Ok(Arrived { catalog, file: kept, message })
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::ClusterId;
    use sanderling_protocol::checksum::crc32c;

    use super::super::wire::GroupFormat;
    use super::*;

    #[test]
    fn files_of_snapshots_that_are_not_taken_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let count = || std::fs::read_dir(place.path()).unwrap().count();
        let part = |sending, offset, total, checksum| SnapshotPart {
            format: GroupFormat::OWN,
            sending,
            offset,
            total,
            checksum,
            bytes: Bytes::from_static(b"bytes"),
            message: Bytes::new(),
        };
        let mut receiver = SnapshotReceiver::default();
        let mut take = |part| receiver.take(place.path(), part);
        for sending in 1..=20 {
            // Half of a snapshot, which the next sending ends.
            assert!(take(part(sending, 0, 10, 0)).unwrap().is_none());
            assert_eq!(count(), 1);
        }
        assert!(take(part(20, 7, 12, 0)).is_err(), "it does not follow");
        assert_eq!(count(), 0);
        assert!(take(part(21, 0, 5, 0)).is_err(), "it is damaged");
        assert!(take(part(22, 0, 5, crc32c(b"bytes"))).is_err(), "it is no snapshot");
        assert_eq!(count(), 0);
    }

    /// A catalog, and the file of its snapshot.
    fn snapshot_file() -> (Catalog, Vec<u8>) {
        let catalog = Catalog::new(ClusterId(7), Millis(1));
        let body = snapshot::encode(&catalog).unwrap();
        let file = [&snapshot::header(Catalog::FORMAT, &body)[..], &body].concat();
        (catalog, file)
    }

    /// Each is a catalog in memory. One that the replica awaits is never dropped: it gets no
    /// message of those that are refused.
    #[test]
    fn third_snapshot_is_refused_until_the_writer_has_one_of_two_and_leaves_no_file() {
        let place = tempfile::tempdir().unwrap();
        let count = || std::fs::read_dir(place.path()).unwrap().count();
        let (_, file) = snapshot_file();
        let part = |sending, range: std::ops::Range<usize>| SnapshotPart {
            format: GroupFormat::OWN,
            sending,
            offset: range.start as u64,
            total: file.len() as u64,
            checksum: crc32c(&file),
            bytes: Bytes::copy_from_slice(&file[range]),
            message: Bytes::new(),
        };
        let mut receiver = SnapshotReceiver::default();
        let mut take = |sending, range| receiver.take(place.path(), part(sending, range));
        let whole = 0..file.len();
        let first = take(1, whole.clone()).unwrap().expect("it is whole");
        // Half of one has the other place; the next sending takes that over.
        assert!(take(2, 0..10).unwrap().is_none());
        let second = take(3, whole.clone()).unwrap().expect("it is whole");
        for sending in 4..10 {
            let refused = take(sending, whole.clone()).unwrap_err();
            assert!(matches!(refused, Refusal::RetryAfter { .. }), "{refused}");
            assert!(take(sending, 10..file.len()).is_err(), "nothing of it was kept");
            assert_eq!(count(), 2);
        }
        drop(first);
        let third = take(10, whole.clone()).unwrap().expect("it is whole");
        assert!(take(11, whole.clone()).is_err());
        drop((second, third));
        assert_eq!(count(), 0);
        assert!(take(12, whole).unwrap().is_some());
    }

    #[test]
    fn late_part_of_an_earlier_sending_does_not_end_the_one_under_way() {
        let place = tempfile::tempdir().unwrap();
        let (catalog, file) = snapshot_file();
        let (first, last) = file.split_at(10);
        let part = |sending, offset, bytes: &[u8]| SnapshotPart {
            format: GroupFormat::OWN,
            sending,
            offset,
            total: file.len() as u64,
            checksum: crc32c(&file),
            bytes: Bytes::copy_from_slice(bytes),
            message: Bytes::new(),
        };
        let mut receiver = SnapshotReceiver::default();
        let mut take = |part| receiver.take(place.path(), part);
        assert!(take(part(1, 0, first)).unwrap().is_none());
        assert!(take(part(2, 0, first)).unwrap().is_none());
        assert!(take(part(1, 10, last)).is_err(), "its sending has ended");
        let arrived = take(part(2, 10, last)).unwrap().expect("it is whole");
        assert_eq!(arrived.catalog.index(), catalog.index());
    }
}
