//! Conditional requests: RFC 9110, section 13.2.2, as S3 applies it.

use hyper::{HeaderMap, StatusCode};
use s3s::dto::{ETagCondition, Timestamp};
use s3s::{S3Error, S3ErrorCode, S3Result};

/// The conditions of a request on the object that is there.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    pub(crate) if_match: Option<ETagCondition>,
    pub(crate) if_none_match: Option<ETagCondition>,
    pub(crate) if_modified_since: Option<Timestamp>,
    pub(crate) if_unmodified_since: Option<Timestamp>,
}

/// Takes the conditions of an input of s3s; those on the source when it copies one.
macro_rules! conditions_of {
    ($input:expr) => {
        $crate::conditions::Conditions {
            if_match: $input.if_match.take(),
            if_none_match: $input.if_none_match.take(),
            if_modified_since: $input.if_modified_since.take(),
            if_unmodified_since: $input.if_unmodified_since.take(),
        }
    };
    (source of $input:expr) => {
        $crate::conditions::Conditions {
            if_match: $input.copy_source_if_match.take(),
            if_none_match: $input.copy_source_if_none_match.take(),
            if_modified_since: $input.copy_source_if_modified_since.take(),
            if_unmodified_since: $input.copy_source_if_unmodified_since.take(),
        }
    };
}
pub(crate) use conditions_of;

/// Returns whether a tag is what a condition names.
pub(crate) fn is_met(condition: &ETagCondition, tag: &str) -> bool {
    condition.as_etag().is_none_or(|wanted| wanted.value() == tag)
}

impl Conditions {
    /// Decides about a read of an object with that tag, changed then.
    ///
    /// # Errors
    /// `PreconditionFailed`; 304 with the object's tag.
    pub(crate) fn check(&self, tag: &str, modified: &Timestamp) -> S3Result<()> {
        self.check_match(tag, modified)?;
        if self.is_unchanged(tag, modified) {
            let mut unchanged = S3Error::new(S3ErrorCode::Custom("NotModified".into()));
            unchanged.set_status_code(StatusCode::NOT_MODIFIED);
            let mut headers = HeaderMap::new();
            if let Ok(tag) = format!("\"{tag}\"").parse() {
                headers.insert(hyper::header::ETAG, tag);
            }
            unchanged.set_headers(headers);
            return Err(unchanged);
        }
        Ok(())
    }

    /// Decides about a copy, which has no 304.
    ///
    /// # Errors
    /// `PreconditionFailed`.
    pub(crate) fn check_copy(&self, tag: &str, modified: &Timestamp) -> S3Result<()> {
        self.check_match(tag, modified)?;
        if self.is_unchanged(tag, modified) {
            return Err(S3ErrorCode::PreconditionFailed.into());
        }
        Ok(())
    }

    fn check_match(&self, tag: &str, modified: &Timestamp) -> S3Result<()> {
        let is_met = match (&self.if_match, &self.if_unmodified_since) {
            (Some(wanted), _) => is_met(wanted, tag),
            (None, Some(since)) => modified <= since,
            (None, None) => true,
        };
        if is_met { Ok(()) } else { Err(S3ErrorCode::PreconditionFailed.into()) }
    }

    fn is_unchanged(&self, tag: &str, modified: &Timestamp) -> bool {
        match (&self.if_none_match, &self.if_modified_since) {
            (Some(known), _) => is_met(known, tag),
            (None, Some(since)) => modified <= since,
            (None, None) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use s3s::dto::{ETag, TimestampFormat};

    use super::*;

    fn time(second: u32) -> Timestamp {
        Timestamp::parse(TimestampFormat::EpochSeconds, &second.to_string()).unwrap()
    }

    fn tag(text: &str) -> Option<ETagCondition> {
        Some(ETagCondition::ETag(ETag::Strong(text.to_owned())))
    }

    #[test]
    fn match_goes_before_times_and_none_match_before_since() {
        let met = Conditions {
            if_match: tag("a"),
            if_unmodified_since: Some(time(1)),
            ..Conditions::default()
        };
        met.check("a", &time(5)).unwrap();
        assert_eq!(met.check("b", &time(0)).unwrap_err().code(), &S3ErrorCode::PreconditionFailed);
        let changed = Conditions {
            if_none_match: tag("a"),
            if_modified_since: Some(time(9)),
            ..Conditions::default()
        };
        changed.check("b", &time(5)).unwrap();
        let unchanged = changed.check("a", &time(5)).unwrap_err();
        assert_eq!(unchanged.status_code(), Some(StatusCode::NOT_MODIFIED));
        assert_eq!(unchanged.headers().unwrap()["etag"], "\"a\"");
        assert!(changed.check_copy("a", &time(5)).is_err());
        let since = Conditions { if_modified_since: Some(time(5)), ..Conditions::default() };
        assert!(since.check("a", &time(5)).is_err());
        since.check("a", &time(6)).unwrap();
    }
}
