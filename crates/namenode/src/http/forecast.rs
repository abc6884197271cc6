//! What a drain would do, before it is ordered.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use sanderling_core::relocation::{DrainPlan, Planner};
use sanderling_protocol::limits::BLOCKS_PER_PAGE_MAX;
use sanderling_protocol::{BlockId, Millis, NodeId, NodeInfo, Refusal, Reply, Request};
use serde::Deserialize;
use serde_json::{Value, json};

use super::api::{HttpApi, HttpResult, NodeName, bad, find, page};
use super::refusal::HttpRefusal;

/// Forecasts that are made at once: each reads all blocks of a node. One for an operator and one
/// for a program, so that callers cannot keep all cores with them. Chosen, not measured.
pub(super) const FORECASTS_MAX: usize = 2;

/// How long a caller waits before it tries again: a forecast reads the blocks of one node, which
/// takes less for some hundred thousand. Chosen, not measured.
const RETRY_INTERVAL: Millis = Millis(500);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ForecastQuery {
    deadline_seconds: Option<f64>,
}

/// Plans a drain by the rules that the relocator goes by, and moves nothing.
pub(super) async fn forecast(
    State(api): State<HttpApi>,
    name: NodeName,
    query: Result<Query<ForecastQuery>, QueryRejection>,
) -> HttpResult {
    let Query(ForecastQuery { deadline_seconds }) = query?;
    let left = match deadline_seconds {
        None => None,
        Some(seconds) if seconds.is_finite() && seconds > 0.0 => {
            Some(Millis((seconds * 1000.0).round() as u64))
        }
        Some(_) => return Err(bad("deadline_seconds is no time to come")),
    };
    let Ok(_permit) = api.forecasts.try_acquire() else {
        let why = "other forecasts are being made".to_owned();
        return Err(Refusal::RetryAfter { after: RETRY_INTERVAL, why }.into());
    };
    let Reply::Nodes(fleet) = api.requests.one(Request::Nodes { all: false }).await? else {
        return Err(HttpRefusal::unexpected());
    };
    let node = find(&fleet, name)?;
    let plan = plan(&api, node.id, Planner::new(node.id, &fleet, left)).await?;
    Ok(page(&body(&fleet, node, &plan, left)))
}

/// Reads the node's blocks page by page.
async fn plan(api: &HttpApi, node: NodeId, mut planner: Planner) -> Result<DrainPlan, HttpRefusal> {
    let limit = u32::try_from(BLOCKS_PER_PAGE_MAX).expect("a page fits a frame");
    let mut after = BlockId::default();
    loop {
        let request = Request::NodeBlocks { node: node.into(), after, limit };
        let Reply::Candidates { candidates, is_more } = api.requests.one(request).await? else {
            return Err(HttpRefusal::unexpected());
        };
        for candidate in &candidates {
            planner.add(candidate);
            after = candidate.block;
        }
        if !is_more {
            return Ok(planner.finish());
        }
    }
}

fn body(fleet: &[NodeInfo], node: &NodeInfo, plan: &DrainPlan, left: Option<Millis>) -> Value {
    let name = |id| fleet.iter().find(|other| other.id == id).map(|other| other.name.as_str());
    let target = |target: &sanderling_core::relocation::PlannedTarget| {
        json!({
            "node": target.node, "name": name(target.node), "tier": target.tier,
            "blocks": target.blocks, "bytes": target.bytes,
        })
    };
    json!({
        "node": node.id,
        "name": node.name,
        "blocks": plan.blocks,
        "bytes": plan.bytes,
        "safe_blocks": plan.safe_blocks,
        "safe_bytes": plan.safe_bytes,
        "targets": plan.targets.iter().map(target).collect::<Vec<_>>(),
        "deadline_millis": left,
        "needed_bytes_per_second": plan.needed_bytes_per_second,
        "forecast": plan.forecast,
        "fits": plan.forecast.fits(),
    })
}
