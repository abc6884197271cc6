//! Notices of this namenode's own machine, in the same forms as at a datanode.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use sanderling_notices::{Posted, read_posted};
use sanderling_protocol::{Millis, Refusal};
use serde::Deserialize;
use serde_json::json;

use super::api::{BodyBytes, HttpApi, HttpResult, page};
use crate::group::boot_time;
use crate::own_notices::{OPERATOR, POSTED};

/// What a notice of a datanode may have in its target, and that of a namenode may not: the wait for
/// a drain has no end here.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoQuery {}

/// Takes a notice.
pub(super) async fn give(
    State(api): State<HttpApi>,
    query: Result<Query<NoQuery>, QueryRejection>,
    body: BodyBytes,
) -> HttpResult {
    let Query(NoQuery {}) = query?;
    match read_posted(&body?)? {
        Posted::Notice { left_millis, reason } => {
            let left = match left_millis.map(u64::try_from) {
                None => api.notices.left_default(),
                Some(Ok(millis)) if millis > 0 => Millis(millis),
                Some(_) => {
                    let ago = Millis(left_millis.unwrap_or_default().unsigned_abs());
                    return Err(Refusal::DeadlinePassed { ago }.into());
                }
            };
            api.notices.give(POSTED, left, &reason)?;
            Ok(state(&api))
        }
        Posted::Recommendation { .. } => Ok(page(
            &json!({ "passed_over": "a recommendation: a namenode leaves only for a notice" }),
        )),
        Posted::Nothing { what } => Ok(page(&json!({ "passed_over": what }))),
    }
}

/// Takes back what was posted or ordered. What another source shows still holds.
pub(super) async fn take_back(State(api): State<HttpApi>) -> HttpResult {
    api.notices.withdraw(POSTED);
    api.notices.withdraw(OPERATOR);
    Ok(state(&api))
}

fn state(api: &HttpApi) -> axum::response::Response {
    let left = api.notices.deadline().map(|deadline| boot_time().until(deadline).0);
    page(&json!({ "notice_left_millis": left }))
}
