//! What errors of the store become.

use sanderling_protocol::{Refusal, Tier};

/// Returns whether the disk under a directory is full, which only the causes of an error show.
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

/// Returns the start of an error, whose text may be pages of XML.
pub(crate) fn short(error: &object_store::Error) -> String {
    error.to_string().chars().take(300).collect()
}
