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

/// Returns the start of an error, whose text may be pages of XML, from what the server answered on:
/// before that are the request's address and its repetitions.
pub(crate) fn short(error: &object_store::Error) -> String {
    let text = error.to_string();
    let answer = text.split_once(" - ").map_or(text.as_str(), |(_, answer)| answer);
    answer.chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_of_a_refused_request_is_not_cut_off() {
        let source = format!(
            "Error performing GET http://127.0.0.1:1/b?list-type=2&prefix={} in 1ms, after 3 \
             retries, max_retries:3 - Server returned non-2xx status code: 404 Not Found: \
             <Error><Code>NoSuchBucket</Code></Error>",
            "long/".repeat(100)
        );
        let error = object_store::Error::Generic { store: "S3", source: source.into() };
        let shown = short(&error);
        assert!(shown.starts_with("Server returned non-2xx status code: 404"), "{shown}");
        assert!(shown.contains("NoSuchBucket"), "{shown}");
        let plain = object_store::Error::Generic { store: "S3", source: "no route".into() };
        assert_eq!(short(&plain), "Generic S3 error: no route");
    }
}
