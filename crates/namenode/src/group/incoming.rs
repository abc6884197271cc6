//! A snapshot that the leader sends to this member, part by part.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use sanderling_core::catalog::Catalog;
use sanderling_protocol::Refusal;
use sanderling_protocol::checksum::Running;

use super::wire::SnapshotPart;
use crate::files::Window;
use crate::snapshot;

/// The longest snapshot that is taken: more than a catalog of the largest memory has.
const BYTES_MAX: u64 = 1 << 40;

const NOT_NEXT: &str = "a part of a snapshot does not follow the one before";

/// The name of the file while it arrives, with the number of the sending: that of another one may
/// wait for its place in the directory. A start removes what is left.
fn file_name(sending: u64) -> String {
    format!("group-snapshot-{sending:016x}.tmp")
}

/// The file of a snapshot, which is removed when this is dropped, unless it has another name by
/// then.
#[derive(Debug)]
pub(crate) struct SnapshotFile(PathBuf);

impl SnapshotFile {
    #[cfg(test)]
    pub(crate) const fn at(path: PathBuf) -> Self {
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for SnapshotFile {
    fn drop(&mut self) {
        // The next start removes what stays.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A snapshot under way.
#[derive(Debug)]
pub(crate) struct Incoming {
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

impl Incoming {
    /// Takes a part; returns the snapshot with the last one. A part that does not follow the one
    /// before ends its sending: the leader begins again. A part of another sending than the one
    /// under way changes nothing, unless it is the first one.
    ///
    /// # Errors
    /// Why the snapshot cannot be used.
    pub(crate) fn take(
        kept: &mut Option<Self>,
        directory: &Path,
        part: SnapshotPart,
    ) -> Result<Option<Arrived>, Refusal> {
        part.format.check()?;
        if part.total > BYTES_MAX {
            let (what, value, limit) = ("snapshot".to_owned(), part.total, BYTES_MAX);
            return Err(Refusal::TooLarge { what, value, limit });
        }
        if part.offset == 0 {
            // The one before is given up: its file goes first.
            *kept = None;
            *kept = Some(Self::begin(directory, part.sending)?);
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

    fn begin(directory: &Path, sending: u64) -> Result<Self, Refusal> {
        let path = directory.join(file_name(sending));
        let opened = File::options().create_new(true).read(true).write(true).open(&path);
        let file = opened.map_err(|error| refused(format!("{}: {error}", path.display())))?;
        let path = SnapshotFile(path);
        Ok(Self { sending, file, path, checksum: Running::default(), arrived: 0 })
    }

    fn read(self, message: Bytes) -> Result<Arrived, Refusal> {
        let Self { file, path: kept, .. } = self;
        let path = kept.path();
        let cannot = |error: std::io::Error| refused(format!("{}: {error}", path.display()));
        file.sync_all().map_err(cannot)?;
        let mut window = Window::new(std::sync::Arc::new(file)).map_err(cannot)?;
        let catalog = snapshot::read_window(path, &mut window);
        let catalog = catalog.map_err(|error| refused(error.to_string()))?;
        Ok(Arrived { catalog, file: kept, message })
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::checksum::crc32c;
    use sanderling_protocol::{ClusterId, Millis};

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
        let mut kept = None;
        let mut take = |part| Incoming::take(&mut kept, place.path(), part);
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

    #[test]
    fn late_part_of_an_earlier_sending_does_not_end_the_one_under_way() {
        let place = tempfile::tempdir().unwrap();
        let catalog = Catalog::new(ClusterId(7), Millis(1));
        let body = snapshot::encode(&catalog).unwrap();
        let file = [&snapshot::header(Catalog::FORMAT, &body)[..], &body].concat();
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
        let mut kept = None;
        let mut take = |part| Incoming::take(&mut kept, place.path(), part);
        assert!(take(part(1, 0, first)).unwrap().is_none());
        assert!(take(part(2, 0, first)).unwrap().is_none());
        assert!(take(part(1, 10, last)).is_err(), "its sending has ended");
        let arrived = take(part(2, 10, last)).unwrap().expect("it is whole");
        assert_eq!(arrived.catalog.index(), catalog.index());
    }
}
