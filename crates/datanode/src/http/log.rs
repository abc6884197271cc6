//! The filter of the log: shown, and changed while the datanode runs.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use sanderling_protocol::Refusal;
use sanderling_transport::LogControl;
use serde::Deserialize;

use super::{HttpRefusal, Page, page};

/// The body of a change.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FilterBody {
    filter: String,
}

/// Shows the filter.
pub(super) async fn show() -> Result<Page, HttpRefusal> {
    Ok(page(LogControl::of_process()?.page()))
}

/// Changes the filter.
///
/// # Errors
/// The body is none, or the filter in it.
pub(super) async fn change(body: Result<Bytes, BytesRejection>) -> Result<Page, HttpRefusal> {
    let bad = |error: serde_json::Error| Refusal::BadRequest { why: error.to_string() };
    let FilterBody { filter } = serde_json::from_slice(&body?).map_err(bad)?;
    let control = LogControl::of_process()?;
    control.set(&filter)?;
    Ok(page(control.page()))
}
