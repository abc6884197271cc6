//! Changes that are executed once, however often their request arrives.
//!
//! A client opens itself at the namenode and gets a number. From then on each of its changes
//! carries a sequence number, and the namenode keeps the answer under it until the client has
//! reported that it needs the answer no longer.

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Request;
use crate::checksum::crc32c;
use crate::frame::{Budget, DECODED_PER_BYTE, take_within};
use crate::ids::Nonce;

/// A client whose changes are executed once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientId {
    /// Given by the namenode when the client opened itself. Numbers count up and are never given
    /// again, so that a client which was forgotten is distinguished from a new one.
    pub number: u64,
    /// Drawn by the client when it opened itself, so that no other client can use its number.
    pub key: Nonce,
}

/// One change of a client, the same each time that it is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Once {
    /// The client.
    pub client: ClientId,
    /// The change's sequence number, counted by the client.
    pub sequence: u64,
    /// Changes with smaller numbers have been answered or given up: they are never sent again.
    pub settled_below: u64,
    /// The change.
    pub change: Change,
}

/// A request that changes something, and what distinguishes it from others.
///
/// It travels as a piece of bytes, so that its fingerprint costs one pass over them, and so that
/// its reader refuses a change within a change before reading on.
#[derive(Debug, Clone)]
pub struct Change {
    request: Request,
    /// Of a change that was read; its sender rarely needs it.
    fingerprint: Option<u64>,
}

/// Bytes of an encoded request that need no memory of their own: any value in the catalog, and a
/// long path.
const SHORT_BYTES: usize = 1024;

/// Memory that the lists of one change may take, and for each of its bytes. The most attributes
/// that an object may have (4,096 names of two bytes) take 448 KiB. There are at most as many
/// changes in a frame as there may be requests, so all of them have 256 MiB beside the latter.
const CHANGE_BYTES_MIN: usize = 512 << 10;

/// Place of [`Request::Once`] among the requests.
const ONCE_TAG: u32 = 49;

impl Change {
    /// Returns the change that a request makes, to be sent within a [`Once`].
    #[must_use]
    pub const fn new(request: Request) -> Self {
        Self { request, fingerprint: None }
    }

    /// Returns the request that makes the change.
    #[must_use]
    pub const fn request(&self) -> &Request {
        &self.request
    }

    /// Returns the request that makes the change, without copying it.
    #[must_use]
    pub fn into_request(self) -> Request {
        self.request
    }

    /// Returns the number that every copy of the request has, and others are unlikely to.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint.unwrap_or_else(|| with_encoded(&self.request, fingerprint))
    }
}

impl PartialEq for Change {
    /// The fingerprint follows from the request.
    fn eq(&self, other: &Self) -> bool {
        self.request == other.request
    }
}

impl Eq for Change {}

fn with_encoded<T>(request: &Request, take: impl FnOnce(&[u8]) -> T) -> T {
    let mut short = [0; SHORT_BYTES];
    match postcard::to_slice(request, &mut short) {
        Ok(bytes) => take(bytes),
        Err(_) => take(&postcard::to_stdvec(request).expect("a request can be encoded")),
    }
}

/// Collisions cost only the client that makes them: it gets the answer to its own other change.
fn fingerprint(bytes: &[u8]) -> u64 {
    u64::from(crc32c(bytes)) << 32 | (bytes.len() as u64 & u64::from(u32::MAX))
}

impl Serialize for Change {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        with_encoded(&self.request, |bytes| serializer.serialize_bytes(bytes))
    }
}

impl<'de> Deserialize<'de> for Change {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(Encoded)
    }
}

struct Encoded;

impl Visitor<'_> for Encoded {
    type Value = Change;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("an encoded request")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Change, E> {
        // Looked at before the rest is read: a peer could nest changes deeper than any stack.
        match postcard::take_from_bytes::<u32>(bytes) {
            Ok((ONCE_TAG, _)) => return Err(E::custom("a change within a change")),
            Ok(_) => {}
            Err(error) => return Err(E::custom(error)),
        }
        match take_within(bytes, &Budget::new(CHANGE_BYTES_MIN + DECODED_PER_BYTE * bytes.len())) {
            Ok((request, [])) => Ok(Change { request, fingerprint: Some(fingerprint(bytes)) }),
            Ok(_) => Err(E::custom("bytes follow the change")),
            Err(error) => Err(E::custom(error)),
        }
    }
}

/// The treatment of a request that arrives twice because its first reply was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repetition {
    /// It changes nothing: it is answered anew.
    Reads,
    /// It changes what others see. It travels as [`Request::Once`] and is executed once.
    Once,
    /// Its own fields make the second execution harmless: a nonce, a holder, an epoch, or that it
    /// only renews a lease. Of two numbers of clients one is never used.
    Alike,
}

impl Request {
    /// Returns what happens when it arrives twice. The match is exhaustive, so that a new request
    /// cannot be forgotten.
    #[must_use]
    pub const fn repeat(&self) -> Repetition {
        match self {
            Self::Create(_)
            | Self::MakeDirectory { .. }
            | Self::Append { .. }
            | Self::AddBlocks { .. }
            | Self::Publish { .. }
            | Self::Seal { .. }
            | Self::Abort { .. }
            | Self::Rename { .. }
            | Self::Delete { .. }
            | Self::DeleteObject { .. }
            | Self::SetTtl { .. }
            | Self::SetAttributes { .. }
            | Self::Concat(_)
            | Self::RegisterJob(_)
            | Self::EndJob { .. }
            | Self::Notice { .. }
            | Self::Decommission { .. }
            | Self::Cancel { .. }
            | Self::Recommend { .. }
            | Self::RevokeTokens { .. }
            | Self::RegisterLimitedJob(_) => Repetition::Once,
            Self::Durable(request) => request.repeat(),
            // They set a lease's end, have a process's nonce, or show a node's present state.
            Self::RenewLeases { .. }
            | Self::RenewJob { .. }
            | Self::Register(_)
            | Self::Join(_)
            | Self::Manage { .. }
            | Self::Repeat(_)
            | Self::SourceNotice(_)
            | Self::ReportDamage { .. }
            | Self::Heartbeat(_)
            | Self::Beat(_)
            | Self::Suspect { .. }
            | Self::Fenced { .. }
            // The leading manager's. Epochs are compared; a lost reservation is made again.
            | Self::Reserve { .. }
            | Self::Commit { .. }
            | Self::Abandon { .. }
            | Self::DropCopies { .. }
            | Self::Forecast { .. }
            | Self::OpenClient { .. }
            | Self::Once(_) => Repetition::Alike,
            Self::Lookup { .. }
            | Self::LookupObject { .. }
            | Self::LookupMany { .. }
            | Self::List { .. }
            | Self::Stat { .. }
            | Self::Usage { .. }
            | Self::Jobs
            | Self::BlockReport { .. }
            | Self::Nodes { .. }
            | Self::Drains { .. }
            | Self::DrainBlocks { .. }
            | Self::NodeBlocks { .. }
            | Self::Events { .. }
            | Self::Report
            | Self::Fsck
            | Self::MintToken(_)
            | Self::Room
            | Self::ExpectedBlocks { .. }
            | Self::Revocations { .. }
            | Self::JobAccount { .. }
            | Self::Members
            | Self::Within { .. }
            | Self::CountedBlocks { .. } => Repetition::Reads,
        }
    }

    /// Returns what is to be done: of a change that is executed once that change, else itself.
    #[must_use]
    pub const fn inner(&self) -> &Self {
        match self {
            Self::Once(once) => &once.change.request,
            request => request,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{decode_body, encode_body};
    use crate::path::Path;
    use crate::refusal::Refusal;

    fn once(request: Request) -> Request {
        let client = ClientId { number: 3, key: Nonce(9) };
        let change = Change::new(request);
        Request::Once(Box::new(Once { client, sequence: 5, settled_below: 4, change }))
    }

    #[test]
    fn changes_have_golden_bytes_and_keep_their_fingerprint() {
        let request = once(Request::Delete { path: Path::root(), recursive: true });
        let bytes = encode_body(&request);
        assert_eq!(bytes, [49, 3, 9, 5, 4, 4, 14, 1, b'/', 1]);
        let again: Request = decode_body(&bytes).unwrap();
        assert_eq!(again, request);
        assert_eq!(again.kind(), "delete");
    }

    #[test]
    fn change_within_a_change_is_refused_however_deep() {
        let mut bytes = encode_body(&once(Request::Jobs));
        for _ in 0..100_000 {
            let length = postcard::to_stdvec(&(bytes.len() as u64)).unwrap();
            let mut outer = vec![49, 3, 9, 5, 4];
            outer.extend(length);
            outer.extend(&bytes);
            bytes = outer;
            if bytes.len() > 100_000 {
                break;
            }
        }
        let read = decode_body::<Request>(&bytes);
        assert!(matches!(read, Err(Refusal::BadFrame { .. })), "{read:?}");
        // The same number in more bytes than it needs.
        let mut long = encode_body(&once(Request::Jobs));
        let inner = [0xb1, 0x00].into_iter().chain(long.split_off(1)).collect::<Vec<u8>>();
        let mut outer = vec![49, 3, 9, 5, 4, inner.len() as u8];
        outer.extend(inner);
        let read = decode_body::<Request>(&outer);
        assert!(matches!(read, Err(Refusal::BadFrame { .. })), "{read:?}");
    }
}
