//! Why a store of a durable directory did not do what it was to do.

use std::io;
use std::time::Duration;

use sanderling_core::durable::OwnerRefusal;
use sanderling_protocol::amount;
use sanderling_protocol::message::STORE_OWN_NAME;
use thiserror::Error;
use tokio::task::JoinError;

use super::opened_directories::PlaceError;
use super::own_names::OWNER_NAME;
use crate::object::failure::{is_full, short};

/// Codes of S3 servers for a name that no object of the server has: it is too long, or has
/// characters that the server does not take.
const NO_NAME_CODES: [&str; 3] =
    ["KeyTooLongError", "InvalidObjectName", "XMinioInvalidObjectName"];

/// Most characters that are repeated of the code of an S3 server's error: the longest code of S3
/// has some forty.
const CODE_CHARS_MAX: usize = 40;

/// The variables of a datanode's environment with the keys of buckets.
const KEYS: &str = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";

/// What is to be done about a lock that another process keeps.
const PAUSED: &str = "a datanode that reaches it may be paused, and has to go on or to be ended";

/// Why a store did not do what it was to do. The texts follow the store's name and URL.
#[derive(Debug, Error)]
pub(super) enum StoreError {
    /// The operating system failed at what is no object.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// An object has no place in the directory, or that cannot be used.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The same while an object was written or removed.
    #[error("{key}: {cause}")]
    At {
        key: String,
        #[source]
        cause: PlaceError,
    },
    /// The server of the bucket refused, or is away.
    #[error("{}", of_bucket(.0))]
    Bucket(#[from] object_store::Error),
    /// The same while the owner of the bucket was read or named: no object has failed, whatever the
    /// server has against the name of that record.
    #[error("{}", of_owner(.0))]
    Owner(#[source] object_store::Error),
    #[error("{key:?} is no name of an object")]
    BadName { key: String },
    /// A name that buckets do not have.
    #[error("{0}")]
    BadPath(#[from] object_store::path::Error),
    #[error("{upload:?} is no upload")]
    BadUpload { upload: String },
    /// Parts are missing or were sent twice.
    #[error("the upload of {key} has {found} bytes, not {bytes}")]
    UploadLength { key: String, found: u64, bytes: u64 },
    #[error("{key} has {found} bytes there, not {bytes}")]
    ObjectLength { key: String, found: u64, bytes: u64 },
    /// The server has answered that an upload is completed, and shows something else.
    #[error(
        "{key} has another entity tag there than the upload that the server has completed: it may \
         be an older object, so it is sent again"
    )]
    OtherObject { key: String },
    #[error("the bucket is gone")]
    BucketGone,
    #[error(
        "it belongs to {owner}: choose another place, or adopt it (--adopt) if that one is gone \
         for good"
    )]
    NotOwned { owner: String },
    #[error("{STORE_OWN_NAME}/{OWNER_NAME}, which names its owner, is empty")]
    OwnerEmpty,
    #[error("the file that names its owner is gone: it may not be mounted")]
    OwnerGone,
    #[error(
        "it has objects already: a new durable directory needs an empty place, or is made with \
         --adopt"
    )]
    NotEmpty,
    #[error(
        "it has nothing to adopt, or is not mounted: an empty place is made a store without \
         --adopt"
    )]
    NothingToAdopt,
    /// Objects of the store above could have the names of its own.
    #[error("it is below {place}, the store of {owner}: choose a place that is in no other store")]
    BelowStore { place: String, owner: String },
    /// Its objects could have the names of those of the store below.
    #[error(
        "{place} is the store of {owner}: choose another place, or remove {STORE_OWN_NAME} there \
         if that one is gone for good"
    )]
    AroundStore { place: String, owner: String },
    #[error("another directory has adopted it at the same time")]
    AdoptedByAnother,
    /// An adoption waits for changes of the owner that there was.
    #[error("a change of its owner is under way for {}: {PAUSED}", amount::duration(*waited))]
    Changing { waited: Duration },
    /// A change waits for an adoption.
    #[error("an adoption is under way for {}: {PAUSED}", amount::duration(*waited))]
    Adopting { waited: Duration },
    /// The file system has held an adoption up for longer than its caller waits.
    #[error("it answered too late for this order to adopt it: the next order does")]
    TooLate,
    /// The thread of an operation panicked or was ended.
    #[error("{0}")]
    Ended(#[from] JoinError),
}

impl From<OwnerRefusal> for StoreError {
    fn from(refusal: OwnerRefusal) -> Self {
        match refusal {
            OwnerRefusal::Gone => Self::OwnerGone,
            OwnerRefusal::NotEmpty => Self::NotEmpty,
            OwnerRefusal::Unnamed => Self::OwnerEmpty,
            OwnerRefusal::Other { owner } => Self::NotOwned { owner },
            OwnerRefusal::NothingToAdopt => Self::NothingToAdopt,
        }
    }
}

impl StoreError {
    /// Returns whether the store has no room, or its user no more of it.
    pub(super) fn is_full(&self) -> bool {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        match self {
            Self::Io(error)
            | Self::Place(PlaceError::Io(error))
            | Self::At { cause: PlaceError::Io(error), .. } => {
                matches!(error.kind(), StorageFull | QuotaExceeded)
            }
            Self::Bucket(error) | Self::Owner(error) => is_full(error),
            _ => false,
        }
    }

    /// Returns whether the store has no object of the name, and never takes one.
    pub(super) fn is_no_name(&self) -> bool {
        match self {
            Self::At { cause: PlaceError::Io(error), .. } => {
                error.kind() == io::ErrorKind::InvalidFilename
            }
            Self::Bucket(error) => is_no_name(error),
            Self::BadPath(_) => true,
            _ => false,
        }
    }

    /// Names the object of the store that an operation failed at.
    pub(super) fn at(self, key: &str) -> Self {
        let key = key.to_owned();
        match self {
            Self::Io(error) => Self::At { key, cause: error.into() },
            Self::Place(cause) => Self::At { key, cause },
            error => error,
        }
    }
}

/// Returns whether the server of a bucket refuses the name of an object, whatever is done with it.
pub(super) fn is_no_name(error: &object_store::Error) -> bool {
    no_name_code(&error.to_string()).is_some()
}

/// Returns the code by which a server refuses a name.
fn no_name_code(text: &str) -> Option<&'static str> {
    NO_NAME_CODES.into_iter().find(|code| text.contains(&format!("<Code>{code}</Code>")))
}

/// Returns why a request about the owner of a bucket failed.
fn of_owner(error: &object_store::Error) -> String {
    match no_name_code(&error.to_string()) {
        Some(code) => format!(
            "the server refuses {STORE_OWN_NAME}/{OWNER_NAME}, which names its owner ({code}): \
             choose a shorter prefix, or another bucket"
        ),
        None => of_bucket(error),
    }
}

/// Returns why a request to a bucket failed, and what to do where that is about credentials.
fn of_bucket(error: &object_store::Error) -> String {
    use object_store::Error::{PermissionDenied, Unauthenticated};
    let text = error.to_string();
    if matches!(error, PermissionDenied { .. } | Unauthenticated { .. }) {
        let code = text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
        let code = code.map_or("", |(code, _)| code);
        let code: String = code.chars().take(CODE_CHARS_MAX).collect();
        let answer = if code.is_empty() { code } else { format!(" ({code})") };
        return format!(
            "the server denies access{answer}: check {KEYS} of the datanode, and their rights"
        );
    }
    if let Some(code) = no_name_code(&text) {
        return format!("the server refuses the name ({code})");
    }
    // Without keys the library requests some from the machine.
    if ["/latest/api/token", "/latest/meta-data/iam/"].iter().any(|it| text.contains(it)) {
        return format!(
            "there are no credentials: start the datanode with {KEYS}, or give its machine a role"
        );
    }
    short(error)
}

#[cfg(test)]
mod tests {
    use std::error::Error as StdError;
    use std::io::ErrorKind;

    use super::*;

    fn source<'a, T: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> &'a T {
        error.source().and_then(|it| it.downcast_ref()).expect("a source of this type")
    }

    #[test]
    fn sources_of_store_errors_are_typed() {
        let full = || io::Error::from(ErrorKind::StorageFull);
        let error = StoreError::from(full()).at("a/b");
        assert_eq!(error.to_string(), format!("a/b: {}", full()));
        assert!(error.is_full() && !StoreError::BucketGone.is_full());
        let place: &PlaceError = source(&error);
        assert_eq!(source::<io::Error>(place).kind(), ErrorKind::StorageFull);
        let cause = || object_store::Error::NotImplemented {
            operation: "put".to_owned(),
            implementer: "x".repeat(400),
        };
        let error = StoreError::from(cause());
        assert_eq!(error.to_string(), short(&cause()));
        let found: &object_store::Error = source(&error);
        assert_eq!(found.to_string(), cause().to_string());
    }

    #[test]
    fn credentials_that_are_missing_or_denied_are_named() {
        let body = "Error performing GET http://s3/b/k in 1ms - Server returned non-2xx status \
                    code: 403 Forbidden: <Error><Code>InvalidAccessKeyId</Code></Error>";
        let (path, source) = ("k".to_owned(), body.into());
        let denied = StoreError::from(object_store::Error::PermissionDenied { path, source });
        let text = "the server denies access (InvalidAccessKeyId): check AWS_ACCESS_KEY_ID";
        assert!(denied.to_string().starts_with(text), "{denied}");
        // The answer to a HEAD has no body.
        let (path, source) = ("k".to_owned(), "403 Forbidden".into());
        let denied = StoreError::from(object_store::Error::Unauthenticated { path, source });
        assert!(denied.to_string().starts_with("the server denies access: check"), "{denied}");
        let source = "Error performing PUT http://169.254.169.254/latest/api/token in 4s - away";
        let missing = object_store::Error::Generic { store: "S3", source: source.into() };
        let missing = StoreError::from(missing).to_string();
        assert!(missing.starts_with("there are no credentials: start the datanode"), "{missing}");
    }

    #[test]
    fn names_that_no_object_has_are_distinguished_from_other_failures() {
        let answer = |code: &str| {
            let source = format!(
                "Error performing POST http://s3/b/k in 1ms - Server returned non-2xx status \
                 code: 400 Bad Request: <Error><Code>{code}</Code></Error>"
            );
            StoreError::from(object_store::Error::Generic { store: "S3", source: source.into() })
        };
        assert!(answer("KeyTooLongError").is_no_name());
        assert!(answer("XMinioInvalidObjectName").is_no_name());
        assert!(!answer("InvalidArgument").is_no_name() && !answer("SlowDown").is_no_name());
        let long = StoreError::from(io::Error::from(ErrorKind::InvalidFilename));
        assert!(!long.is_no_name(), "it is about the store itself");
        assert!(StoreError::from(io::Error::from(ErrorKind::InvalidFilename)).at("k").is_no_name());
        assert!(!StoreError::from(io::Error::from(ErrorKind::NotFound)).at("k").is_no_name());
    }

    #[test]
    fn refusal_of_the_record_of_the_owner_is_about_the_store_and_no_name() {
        let answer = |code: &str| {
            let source = format!("400 Bad Request: <Error><Code>{code}</Code></Error>");
            StoreError::Owner(object_store::Error::Generic { store: "S3", source: source.into() })
        };
        let refused = answer("KeyTooLongError");
        assert!(!refused.is_no_name(), "{refused}");
        let text = "the server refuses .sanderling/owner, which names its owner (KeyTooLongError)";
        assert!(refused.to_string().starts_with(text), "{refused}");
        let other = answer("SlowDown").to_string();
        assert!(other.contains("SlowDown") && !other.contains("refuses"), "{other}");
    }

    #[test]
    fn object_is_named_with_the_place_above_it_that_is_a_link() {
        let link = || PlaceError::Link { key: "a".to_owned() };
        let error = StoreError::from(link()).at("a/b");
        assert_eq!(error.to_string(), format!("a/b: {}", link()));
        let gone = StoreError::BucketGone.at("a/b");
        assert!(matches!(gone, StoreError::BucketGone), "{gone}");
    }
}
