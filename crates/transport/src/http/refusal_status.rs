//! The status of a refusal over HTTP.

use hyper::StatusCode;
use sanderling_protocol::Refusal;

/// Returns the status of the answer to a request that was refused.
#[must_use]
pub fn http_status(refusal: &Refusal) -> StatusCode {
    match refusal {
        Refusal::UnknownNode { .. }
        | Refusal::NotFound { .. }
        | Refusal::UnknownJob { .. }
        | Refusal::ObjectGone { .. } => StatusCode::NOT_FOUND,
        Refusal::Unauthenticated { .. } => StatusCode::UNAUTHORIZED,
        Refusal::Forbidden { .. } => StatusCode::FORBIDDEN,
        Refusal::WrongState { .. } | Refusal::NodeGone { .. } => StatusCode::CONFLICT,
        // The deadline of a notice is too far away: the body itself is not too large.
        Refusal::TooLarge { .. } if refusal.is_far_notice() => StatusCode::BAD_REQUEST,
        Refusal::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        Refusal::RetryAfter { .. } | Refusal::JournalFull { .. } | Refusal::NotLeader { .. } => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        Refusal::Undecided { .. } => StatusCode::BAD_GATEWAY,
        _ => StatusCode::BAD_REQUEST,
    }
}

#[cfg(test)]
mod tests {
    use sanderling_protocol::{JobId, ObjectId};

    use super::*;

    #[test]
    fn refusal_of_what_does_not_exist_has_404() {
        let gone = Refusal::ObjectGone { object: ObjectId(7) };
        assert_eq!(http_status(&gone), StatusCode::NOT_FOUND);
        let unknown = Refusal::UnknownJob { job: JobId(7) };
        assert_eq!(http_status(&unknown), StatusCode::NOT_FOUND);
    }

    #[test]
    fn body_that_is_too_large_has_413_and_a_deadline_that_is_too_far_has_400() {
        let too_large =
            |what: &str| Refusal::TooLarge { what: what.to_owned(), value: 3, limit: 2 };
        assert_eq!(http_status(&too_large("text")), StatusCode::PAYLOAD_TOO_LARGE);
        let far = too_large(Refusal::NOTICE_DEADLINE);
        assert_eq!(http_status(&far), StatusCode::BAD_REQUEST);
    }
}
