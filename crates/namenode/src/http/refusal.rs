//! Error answers over HTTP.

use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sanderling_protocol::Refusal;
use sanderling_transport::{Document, http_status};
use serde_json::json;

/// An error page: `{"error": {"code", "name", "message"}}`.
#[derive(Debug)]
pub(crate) struct HttpRefusal {
    status: StatusCode,
    code: u16,
    name: &'static str,
    message: String,
}

impl HttpRefusal {
    /// Returns an error that the protocol has no number for.
    pub(crate) fn new(status: StatusCode, message: &str) -> Self {
        Self { status, code: 0, name: "Http", message: message.to_owned() }
    }

    /// Returns the error for a reply of an unexpected kind.
    pub(crate) fn unexpected() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "the namenode gave another reply")
    }
}

impl From<Refusal> for HttpRefusal {
    fn from(refusal: Refusal) -> Self {
        let status = http_status(&refusal);
        Self { status, code: refusal.code(), name: refusal.name(), message: refusal.to_string() }
    }
}

macro_rules! from_rejections {
    ($($name:ident),*) => {$(
        impl From<$name> for HttpRefusal {
            fn from(rejection: $name) -> Self {
                Self::new(rejection.status(), &rejection.body_text())
            }
        }
    )*};
}

from_rejections!(BytesRejection, PathRejection, QueryRejection);

impl IntoResponse for HttpRefusal {
    fn into_response(self) -> Response {
        let error = json!({ "code": self.code, "name": self.name, "message": self.message });
        let mut response =
            (self.status, axum::Json(Document::new(json!({ "error": error })))).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}
