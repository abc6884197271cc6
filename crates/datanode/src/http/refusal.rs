//! Error answers of a datanode over HTTP.

use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sanderling_protocol::Refusal;
use sanderling_transport::{CallError, LogControlError, http_status};
use serde_json::json;

use super::page;

/// An error page: `{"schema", "error": {"code", "name", "message"}}`.
#[derive(Debug)]
pub(super) struct HttpRefusal {
    status: StatusCode,
    code: u16,
    name: &'static str,
    message: String,
}

impl HttpRefusal {
    /// Returns the error of a notice whose blocks did not all leave.
    pub(super) fn not_drained(message: &str) -> Self {
        let name = "NotDrained";
        Self { name, ..Self::new(StatusCode::GATEWAY_TIMEOUT, message) }
    }

    /// Returns an error that the protocol has no number for.
    pub(super) fn new(status: StatusCode, message: &str) -> Self {
        Self { status, code: 0, name: "Http", message: message.to_owned() }
    }
}

impl From<Refusal> for HttpRefusal {
    fn from(refusal: Refusal) -> Self {
        let status = http_status(&refusal);
        Self { status, code: refusal.code(), name: refusal.name(), message: refusal.to_string() }
    }
}

impl From<BytesRejection> for HttpRefusal {
    fn from(rejection: BytesRejection) -> Self {
        Self::new(rejection.status(), &rejection.body_text())
    }
}

impl From<QueryRejection> for HttpRefusal {
    fn from(rejection: QueryRejection) -> Self {
        Self::new(rejection.status(), &rejection.body_text())
    }
}

impl From<LogControlError> for HttpRefusal {
    fn from(error: LogControlError) -> Self {
        match error {
            LogControlError::Foreign => Self::new(StatusCode::NOT_FOUND, &error.to_string()),
            LogControlError::TooLong | LogControlError::Filter(_) => {
                Refusal::BadRequest { why: error.to_string() }.into()
            }
        }
    }
}

impl From<CallError> for HttpRefusal {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Refused(refusal) => refusal.into(),
            _ => Self::new(StatusCode::SERVICE_UNAVAILABLE, &format!("the namenode: {error}")),
        }
    }
}

impl IntoResponse for HttpRefusal {
    fn into_response(self) -> Response {
        let error = json!({ "code": self.code, "name": self.name, "message": self.message });
        let mut response = (self.status, page(json!({ "error": error }))).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_of_a_group_that_cannot_decide_now_has_the_status_that_namenodes_give_it() {
        let status = |refusal: Refusal| HttpRefusal::from(CallError::Refused(refusal)).status;
        let not_leader = Refusal::NotLeader { leader: None };
        assert_eq!(status(not_leader), StatusCode::SERVICE_UNAVAILABLE);
        let undecided = Refusal::Undecided { why: "it leads no more".to_owned() };
        assert_eq!(status(undecided), StatusCode::BAD_GATEWAY);
        let malformed = Refusal::BadRequest { why: "no deadline".to_owned() };
        assert_eq!(status(malformed), StatusCode::BAD_REQUEST);
    }
}
