//! What goes wrong, in S3's words.
//!
//! Clients of S3 decide by the status whether they try again: 5xx they repeat, a few times, 4xx
//! they do not. So what another attempt can mend is a 503, and lost bytes are not.

use hyper::StatusCode;
use s3s::{S3Error, S3ErrorCode};
use sanderling_client::ClientError;
use sanderling_protocol::Refusal;
use sanderling_protocol::refusal::Recovery;

use crate::aws_chunks::SIGNED_BYTES_MAX;
use crate::slow_client::Lateness;

/// Bytes are lost: the same request will never be answered.
pub(crate) const DATA_UNAVAILABLE: &str = "DataUnavailable";
/// The job that the bucket belongs to has used its quota up.
const QUOTA_EXCEEDED: &str = "QuotaExceeded";
/// No datanode has room.
const STORAGE_FULL: &str = "StorageFull";
/// A name on the way is an object, or the name is a directory's.
const KEY_CONFLICT: &str = "KeyConflict";

/// Returns an error whose code s3s has no status for.
pub(crate) fn custom(code: &'static str, message: &'static str) -> S3Error {
    let mut error = S3Error::with_message(S3ErrorCode::Custom(code.into()), message);
    error.set_status_code(StatusCode::BAD_REQUEST);
    error
}

/// Returns the error of a body. The types of s3s's own errors are private to it: their text alone
/// distinguishes them.
pub(crate) fn body_error(text: &str, lateness: &Lateness) -> S3Error {
    if lateness.is_late() {
        S3ErrorCode::RequestTimeout.into()
    } else if text.contains("Sha256Mismatch") {
        let message = "the bytes do not have the SHA-256 that came with them";
        custom("XAmzContentSHA256Mismatch", message)
    } else if text.contains("SignatureMismatch") {
        S3ErrorCode::SignatureDoesNotMatch.into()
    } else if text.contains("SignedChunkTooLong") {
        let message =
            format!("a signed chunk has at most {SIGNED_BYTES_MAX} bytes: sign shorter ones");
        S3Error::with_message(S3ErrorCode::InvalidRequest, message)
    } else {
        S3ErrorCode::IncompleteBody.into()
    }
}

/// What is missing when a path leads nowhere.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Missing {
    /// The bucket.
    Bucket,
    /// The key.
    Key,
    /// The upload.
    Upload,
}

impl From<Missing> for S3ErrorCode {
    fn from(missing: Missing) -> Self {
        match missing {
            Missing::Bucket => Self::NoSuchBucket,
            Missing::Key => Self::NoSuchKey,
            Missing::Upload => Self::NoSuchUpload,
        }
    }
}

/// Returns the S3 error of a call that failed; `missing` is what was requested.
pub(crate) fn refused(error: &ClientError, missing: Missing) -> S3Error {
    let (code, message) = (code_of(error, missing), error.to_string());
    let status = code.status_code().unwrap_or_else(|| status_of(code.as_str()));
    let mut refused = S3Error::with_message(code, message);
    refused.set_status_code(status);
    refused
}

fn code_of(error: &ClientError, missing: Missing) -> S3ErrorCode {
    let custom = |name: &'static str| S3ErrorCode::Custom(name.into());
    let refusal = match error {
        ClientError::Refused(refusal) => refusal,
        ClientError::DataUnavailable { .. } => return custom(DATA_UNAVAILABLE),
        ClientError::TimedOut { .. } | ClientError::Call { .. } => {
            return S3ErrorCode::ServiceUnavailable;
        }
        ClientError::WriterClosed { .. } | ClientError::BadReply { .. } => {
            return S3ErrorCode::InternalError;
        }
    };
    match refusal {
        Refusal::NotFound { .. } => missing.into(),
        Refusal::NotADirectory { .. } | Refusal::IsADirectory { .. } => custom(KEY_CONFLICT),
        Refusal::BadPath { .. } if refusal.is_long_path() => S3ErrorCode::KeyTooLongError,
        // The store of a durable directory does not take the name.
        Refusal::BadPath { .. } => S3ErrorCode::InvalidArgument,
        Refusal::Exists { .. } | Refusal::Changed { .. } => S3ErrorCode::PreconditionFailed,
        Refusal::NotEmpty { .. } => S3ErrorCode::BucketNotEmpty,
        Refusal::QuotaPassed { .. } | Refusal::JobLimitPassed { .. } => custom(QUOTA_EXCEEDED),
        Refusal::Full { .. } | Refusal::ReserveKept { .. } => custom(STORAGE_FULL),
        Refusal::DataUnavailable { .. } => custom(DATA_UNAVAILABLE),
        Refusal::TooLarge { .. } => S3ErrorCode::MetadataTooLarge,
        // The gateway's own token does not reach that far, or has ended.
        Refusal::Forbidden { .. } | Refusal::Unauthenticated { .. } => S3ErrorCode::AccessDenied,
        Refusal::WrongKind { .. } | Refusal::CrossesJob { .. } | Refusal::OutOfRange { .. } => {
            S3ErrorCode::InvalidRequest
        }
        refusal => match refusal.recovery() {
            // Its directory went with its last key, or another took the name: a repeated put does
            // it.
            Recovery::Refresh | Recovery::RetryAfter(_) => S3ErrorCode::SlowDown,
            Recovery::Recompute => custom(DATA_UNAVAILABLE),
            Recovery::Report => S3ErrorCode::ServiceUnavailable,
            Recovery::Fix => match refusal {
                Refusal::LeaseEnded { .. } => S3ErrorCode::SlowDown,
                Refusal::OutcomeUnknown { .. } => S3ErrorCode::InternalError,
                _ => S3ErrorCode::InvalidRequest,
            },
        },
    }
}

/// Returns the status of the codes that are not S3's own.
fn status_of(code: &str) -> StatusCode {
    match code {
        DATA_UNAVAILABLE => StatusCode::GONE,
        QUOTA_EXCEEDED => StatusCode::FORBIDDEN,
        STORAGE_FULL => StatusCode::INSUFFICIENT_STORAGE,
        KEY_CONFLICT => StatusCode::CONFLICT,
        _ => StatusCode::BAD_REQUEST,
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::{JobId, Millis, ObjectId};

    use super::*;
    use crate::aws_chunks::ChunkError;

    fn of(refusal: Refusal) -> (String, u16) {
        let error = refused(&ClientError::Refused(refusal), Missing::Key);
        (error.code().as_str().to_owned(), error.status_code().map_or(0, |it| it.as_u16()))
    }

    #[test]
    fn what_another_attempt_cannot_mend_is_no_5xx() {
        let path: sanderling_protocol::Path = "/b/k".parse().unwrap();
        let lost = ClientError::DataUnavailable {
            path: path.clone(),
            object: ObjectId(1),
            ranges: Vec::new(),
        };
        let lost = refused(&lost, Missing::Key);
        assert_eq!(lost.status_code(), Some(StatusCode::GONE));
        assert_eq!(lost.code().as_str(), "DataUnavailable");
        let quota = Refusal::QuotaPassed { job: JobId(1), quota: 1, used: 1, asked: 1 };
        assert_eq!(of(quota), ("QuotaExceeded".to_owned(), 403));
        let conflict = Refusal::IsADirectory { path: path.clone() };
        assert_eq!(of(conflict), ("KeyConflict".to_owned(), 409));
        assert_eq!(of(Refusal::NotFound { path }), ("NoSuchKey".to_owned(), 404));
    }

    #[test]
    fn path_is_too_long_or_has_a_wrong_name() {
        let too_long = ("KeyTooLongError".to_owned(), 400);
        for path in [format!("/{}", "x".repeat(256)), "/x".repeat(129)] {
            assert_eq!(of(path.parse::<sanderling_protocol::Path>().unwrap_err()), too_long);
        }
        // As the catalog refuses them below a durable directory.
        assert_eq!(of(Refusal::long_store_key("k", 1025, 1024)), too_long);
        let of = |why: &str| of(Refusal::BadPath { path: "k".to_owned(), why: why.to_owned() });
        let invalid = ("InvalidArgument".to_owned(), 400);
        assert_eq!(of("stores take no control characters in names"), invalid);
        assert_eq!(of("no object right below a durable directory is named .sanderling"), invalid);
    }

    #[test]
    fn body_that_comes_too_slowly_is_a_time_out() {
        let lateness = Lateness::default();
        let text = "UploadStreamError: Underlying: broken";
        assert_eq!(body_error(text, &lateness).code(), &S3ErrorCode::IncompleteBody);
        lateness.set_late();
        assert_eq!(body_error(text, &lateness).code(), &S3ErrorCode::RequestTimeout);
    }

    #[test]
    fn error_of_a_long_chunk_is_recognized_by_its_text() {
        let text = format!("AwsChunkedStreamError: Underlying: {}", ChunkError::TooLong);
        let error = body_error(&text, &Lateness::default());
        assert_eq!(error.code(), &S3ErrorCode::InvalidRequest);
        let text = format!("AwsChunkedStreamError: Underlying: {}", ChunkError::Line);
        let error = body_error(&text, &Lateness::default());
        assert_eq!(error.code(), &S3ErrorCode::IncompleteBody);
    }

    #[test]
    fn what_another_attempt_can_mend_is_a_503() {
        let busy = Refusal::RetryAfter { after: Millis(1), why: "busy".to_owned() };
        assert_eq!(of(busy), ("SlowDown".to_owned(), 503));
        assert_eq!(of(Refusal::ObjectGone { object: ObjectId(1) }), ("SlowDown".to_owned(), 503));
    }
}
