//! Errors of `object_store` from those of the client.

use std::error::Error as _;

use object_store::Error;
use object_store::path::Path as Location;
use sanderling_client::ClientError;
use sanderling_protocol::Refusal;
use thiserror::Error as ThisError;

/// A result with the errors of `object_store`.
pub(crate) type Result<T> = object_store::Result<T>;

/// The store's name in errors.
pub(crate) const STORE: &str = "Sanderling";

/// Two keys that cannot both exist, because one would be a directory and the other its entry.
#[derive(Debug, ThisError)]
#[error("{cause}: of the keys `{key}` and `{key}/...` only one can exist")]
pub struct KeyConflict {
    /// The shorter of the keys.
    pub key: String,
    /// The cluster's answer.
    #[source]
    pub cause: ClientError,
}

/// Returns the client's error inside one of `object_store`, for its `recovery` and for the lost
/// ranges of [`ClientError::DataUnavailable`].
///
/// ```
/// # use sanderling_client::ClientError;
/// # use sanderling_object_store::client_error;
/// fn must_recompute(error: &object_store::Error) -> bool {
///     matches!(client_error(error), Some(ClientError::DataUnavailable { .. }))
/// }
/// # let error = object_store::Error::Generic { store: "another", source: "cause".into() };
/// # assert!(!must_recompute(&error));
/// ```
#[must_use]
pub fn client_error(error: &Error) -> Option<&ClientError> {
    let mut next = error.source();
    while let Some(cause) = next {
        if let Some(found) = cause.downcast_ref::<ClientError>() {
            return Some(found);
        }
        next = cause.source();
    }
    None
}

/// Returns the error of a call about one object.
pub(crate) fn of(location: &Location, error: ClientError) -> Error {
    let path = location.to_string();
    match error.refusal() {
        Some(
            Refusal::NotFound { .. } | Refusal::NotADirectory { .. } | Refusal::IsADirectory { .. },
        ) => Error::NotFound { path, source: Box::new(error) },
        Some(Refusal::Exists { .. }) => Error::AlreadyExists { path, source: Box::new(error) },
        Some(Refusal::Changed { .. }) => Error::Precondition { path, source: Box::new(error) },
        Some(Refusal::Forbidden { .. }) => {
            Error::PermissionDenied { path, source: Box::new(error) }
        }
        Some(Refusal::Unauthenticated { .. }) => {
            Error::Unauthenticated { path, source: Box::new(error) }
        }
        _ => Error::Generic { store: STORE, source: Box::new(error) },
    }
}

/// Returns the error of a call that makes an object, whose name may be, or be in, another kind of
/// object.
pub(crate) fn of_making(location: &Location, error: ClientError) -> Error {
    match error.refusal() {
        Some(Refusal::NotADirectory { path } | Refusal::IsADirectory { path }) => {
            let key = path.as_str().trim_start_matches('/').to_owned();
            let source = Box::new(KeyConflict { key, cause: error });
            Error::Generic { store: STORE, source }
        }
        Some(Refusal::NotFound { .. }) => Error::Generic { store: STORE, source: Box::new(error) },
        _ => of(location, error),
    }
}

/// Returns the error for a location under which there is no object.
pub(crate) fn not_found(location: &Location, path: &sanderling_protocol::Path) -> Error {
    of(location, ClientError::Refused(Refusal::NotFound { path: path.clone() }))
}

/// Returns the error of a value that this interface cannot take.
pub(crate) fn bad(why: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Generic { store: STORE, source: Box::new(why) }
}

/// Returns whether the object, or a directory above it, went away between two steps of one call, so
/// that the call is worth another try.
pub(crate) fn is_gone(error: &ClientError) -> bool {
    matches!(error.refusal(), Some(Refusal::ObjectGone { .. }))
}
