//! The filter of the log: shown, and changed while the namenode runs.

use axum::http::StatusCode;
use axum::response::Response;
use sanderling_transport::{LogControl, LogControlError};
use serde::Deserialize;

use super::api::{BodyBytes, HttpResult, bad, page};
use super::refusal::HttpRefusal;

/// The body of a change.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FilterBody {
    filter: String,
}

/// Shows the filter.
pub(super) async fn show() -> HttpResult {
    Ok(answer(LogControl::of_process()?))
}

/// Changes the filter.
///
/// # Errors
/// The body is none, or the filter in it.
pub(super) async fn change(body: BodyBytes) -> HttpResult {
    let FilterBody { filter } =
        serde_json::from_slice(&body?).map_err(|error| bad(&error.to_string()))?;
    let control = LogControl::of_process()?;
    control.set(&filter)?;
    Ok(answer(control))
}

fn answer(control: &LogControl) -> Response {
    page(&control.page())
}

impl From<LogControlError> for HttpRefusal {
    fn from(error: LogControlError) -> Self {
        match error {
            LogControlError::Foreign => Self::new(StatusCode::NOT_FOUND, &error.to_string()),
            LogControlError::TooLong | LogControlError::Filter(_) => bad(&error.to_string()),
        }
    }
}
