//! What the tour stores: objects whose bytes follow from their names and places.

use bytes::Bytes;
use sanderling_client::{Client, ClientError, PutOptions};
use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_command::progress::Progress;
use sanderling_command::refused;
use sanderling_command::session::Session;
use sanderling_command::units;
use sanderling_protocol::Path;
use sanderling_protocol::split_mix::mixed;

/// The size of an object in bytes, eight blocks: so each lies on several nodes. The last one may be
/// smaller.
const OBJECT_BYTES: u64 = 8 << 20;

/// The bytes of a word: those of a `u64`, in which the content is computed.
const WORD: u64 = 8;

/// What is stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Data {
    bytes: u64,
}

impl Data {
    pub(super) const fn of(bytes: u64) -> Self {
        Self { bytes }
    }

    pub(super) const fn bytes(self) -> u64 {
        self.bytes
    }

    pub(super) const fn objects(self) -> u64 {
        self.bytes.div_ceil(OBJECT_BYTES)
    }

    pub(super) fn path(object: u64) -> Path {
        format!("/tour/part-{object:03}").parse().expect("a plain path")
    }

    /// Returns the size of one object.
    pub(super) fn size(self, object: u64) -> u64 {
        OBJECT_BYTES.min(self.bytes - object * OBJECT_BYTES)
    }

    /// Returns the bytes of an object from a multiple of eight on.
    pub(super) fn part(object: u64, from: u64, bytes: u64) -> Bytes {
        let words = (from / WORD)..(from + bytes).div_ceil(WORD);
        let mut part: Vec<u8> =
            words.flat_map(|word| mixed((object << 32) | word).to_le_bytes()).collect();
        part.truncate(usize::try_from(bytes).expect("an object fits into memory"));
        part.into()
    }

    /// Stores all of it.
    pub(super) async fn store(self, session: &Session, client: &Client) -> Result<(), Failure> {
        let options = PutOptions { parents: true, ..PutOptions::default() };
        let mut progress = Progress::start(session.output, "storing", Some(self.bytes));
        for object in 0..self.objects() {
            let size = self.size(object);
            let path = Self::path(object);
            let put = client.put(&path, Self::part(object, 0, size), &options);
            unless_ended(session, put).await?;
            progress.add(size);
        }
        let took = units::duration(progress.elapsed());
        progress.finish();
        let objects = units::count(self.objects(), "object", "objects");
        let bytes = units::bytes(self.bytes);
        session.output.note(format_args!("stored    {bytes} in {objects} below /tour, in {took}"));
        Ok(())
    }

    /// Reads all of it and returns how many bytes are there and equal.
    pub(super) async fn compare(self, session: &Session, client: &Client) -> Result<u64, Failure> {
        let mut progress = Progress::start(session.output, "comparing", Some(self.bytes));
        let mut equal = 0;
        for object in 0..self.objects() {
            let (path, size) = (Self::path(object), self.size(object));
            match unless_ended(session, client.get(&path)).await {
                Ok(read) if read == Self::part(object, 0, size) => equal += size,
                Ok(_) => {
                    let cause = format!("{path} has other bytes than were stored");
                    return Err(Failure::new(Exit::Failure, FailureKind::Damaged, cause)
                        .next("sanderling fsck --deep --verify"));
                }
                // Lost: it counts as not equal.
                Err(failure) if failure.exit == Exit::Partial => {}
                Err(failure) => return Err(failure),
            }
            progress.add(size);
        }
        progress.finish();
        Ok(equal)
    }
}

/// Waits for a call, unless the command is to end.
pub(super) async fn unless_ended<T>(
    session: &Session,
    call: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, Failure> {
    tokio::select! {
        done = call => done.map_err(|error| refused::client(&error, &session.namenode)),
        () = session.ended.cancelled() => Err(Failure::silent(Exit::Interrupted)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_of_an_object_is_what_the_whole_has_there() {
        let data = Data::of(OBJECT_BYTES + 13);
        assert_eq!((data.objects(), data.size(0), data.size(1)), (2, OBJECT_BYTES, 13));
        let whole = Data::part(1, 0, 4096);
        assert_eq!(Data::part(1, 64, 100), whole.slice(64..164));
        assert_ne!(Data::part(0, 64, 100), whole.slice(64..164));
    }
}
