//! What errors of the store become.

use sanderling_protocol::{Refusal, Tier};

/// Tells whether the disk under a directory is full, which the store says only in its causes.
pub(crate) fn is_full(error: &object_store::Error) -> bool {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<std::io::Error>()
            && matches!(error.kind(), StorageFull | QuotaExceeded)
        {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Returns the refusal of a tier that has failed.
pub(crate) fn failed(why: impl Into<String>) -> Refusal {
    Refusal::TierFailed { tier: Tier::Object.to_string(), why: why.into() }
}

/// What a store says of its errors may be pages of XML.
pub(crate) fn short(error: &object_store::Error) -> String {
    error.to_string().chars().take(300).collect()
}
