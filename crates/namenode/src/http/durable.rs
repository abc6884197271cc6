//! Durable directories: how far each is, making one, and waiting for its store.

use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query, State};
use sanderling_core::access::{Claims, HttpResource};
use sanderling_protocol::limits::DURABLE_BACKLOG_BYTES;
use sanderling_protocol::message::{Durability, DurableReply, DurableRequest, MakeDurable};
use sanderling_protocol::{Path, Refusal, Reply, Request};
use sanderling_transport::{HttpConnection, Pass};
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::api::{BodyBytes, HttpApi, HttpResult, bad, page};
use super::refusal::HttpRefusal;

/// Longest time that one request waits for a store: a connection that is idle for longer may be
/// closed on the way. Common proxies close after 60 s without bytes.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(30);

/// Time between two looks at the queue of a directory. About what a bucket's write takes (20 to 100
/// ms); a look is a short read of the catalog. Chosen, not measured.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LookQuery {
    path: Option<Path>,
}

/// Shows all durable directories, or how far what is at one path is.
pub(super) async fn look(
    State(api): State<HttpApi>,
    Extension(pass): Extension<Option<Pass>>,
    query: Result<Query<LookQuery>, QueryRejection>,
) -> HttpResult {
    let Query(LookQuery { path }) = query?;
    let Some(path) = path else {
        if let Some(pass) = &pass {
            pass.claims()?.check_page(HttpResource::Look)?;
        }
        return match requested(&api, DurableRequest::Overview).await? {
            DurableReply::Overview(all) => Ok(page(&json!({ "directories": all }))),
            _ => Err(HttpRefusal::unexpected()),
        };
    };
    allows(&api, pass.as_ref(), &DurableRequest::Look { path: path.clone() })?;
    let found = durability(&api, &path).await?;
    Ok(page(&json!({ "path": path, "durability": found })))
}

/// The body of the request to make a directory durable.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MakeBody {
    path: Path,
    store: String,
    #[serde(default)]
    parents: bool,
    #[serde(default)]
    adopt: bool,
    backlog_bytes_max: Option<u64>,
}

/// Makes a directory durable. With `parents` one that is durable already keeps its bound, unless
/// the request has another.
pub(super) async fn make(State(api): State<HttpApi>, body: BodyBytes) -> HttpResult {
    let body = body?;
    let MakeBody { path, store, parents, adopt, backlog_bytes_max } =
        serde_json::from_slice(&body).map_err(|error| bad(&error.to_string()))?;
    let backlog_bytes_max = match backlog_bytes_max {
        Some(bytes) => bytes,
        None if parents => present_backlog_max(&api, &path).await?,
        None => DURABLE_BACKLOG_BYTES,
    };
    let make = MakeDurable { path, store, parents, backlog_bytes_max, adopt };
    match api.requests.one(Request::Durable(Box::new(DurableRequest::Make(make)))).await? {
        Reply::Stat(stat) => Ok(page(&json!(stat))),
        _ => Err(HttpRefusal::unexpected()),
    }
}

/// Returns the bound of a durable directory, or the default of a path that is none.
async fn present_backlog_max(api: &HttpApi, path: &Path) -> Result<u64, HttpRefusal> {
    let DurableReply::Overview(all) = requested(api, DurableRequest::Overview).await? else {
        return Err(HttpRefusal::unexpected());
    };
    let found = all.into_iter().find(|status| status.directory == *path);
    Ok(found.map_or(DURABLE_BACKLOG_BYTES, |status| status.backlog_bytes_max))
}

/// The body of the request to wait for a store.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WaitBody {
    path: Path,
    #[serde(default)]
    within_seconds: f64,
}

/// Waits until the store has what was sealed at or below a path before. Answers after the requested
/// time, and 30 s at most, with whether that is so.
pub(super) async fn wait(
    State(api): State<HttpApi>,
    Extension(pass): Extension<Option<Pass>>,
    Extension(connection): Extension<HttpConnection>,
    body: BodyBytes,
) -> HttpResult {
    let body = body?;
    let WaitBody { path, within_seconds } =
        serde_json::from_slice(&body).map_err(|error| bad(&error.to_string()))?;
    if !within_seconds.is_finite() || within_seconds < 0.0 {
        return Err(bad("within_seconds is a number of seconds, 0 or more"));
    }
    allows(&api, pass.as_ref(), &DurableRequest::Look { path: path.clone() })?;
    let within = Duration::from_secs_f64(within_seconds.min(WAIT_MAX.as_secs_f64()));
    let until = Instant::now() + within;
    let mut target = None;
    loop {
        let Some(found) = durability(&api, &path).await? else {
            let why = "it is in no durable directory".to_owned();
            return Err(Refusal::WrongKind { path, why }.into());
        };
        let target = *target.get_or_insert(found.next);
        let is_copied = found.is_copied(target);
        let is_over = Instant::now() >= until || api.stop.is_cancelled();
        if is_copied || is_over {
            return Ok(page(&json!({
                "path": path, "is_copied": is_copied, "durability": found,
            })));
        }
        // It takes a place of those that wait: the others are for requests with an answer.
        connection.follow()?;
        sleep(POLL_INTERVAL).await;
    }
}

/// Checks that a token allows to read what is at a path. The right to look at the cluster is none.
fn allows(api: &HttpApi, pass: Option<&Pass>, request: &DurableRequest) -> Result<(), HttpRefusal> {
    let Some(pass) = pass else { return Ok(()) };
    let claims: &Claims = pass.claims()?;
    let request = Request::Durable(Box::new(request.clone()));
    Ok(api.requests.state.namenode.read().allows(claims, &request)?)
}

async fn durability(api: &HttpApi, path: &Path) -> Result<Option<Durability>, HttpRefusal> {
    match requested(api, DurableRequest::Look { path: path.clone() }).await? {
        DurableReply::Durability(found) => Ok(found),
        _ => Err(HttpRefusal::unexpected()),
    }
}

async fn requested(api: &HttpApi, request: DurableRequest) -> Result<DurableReply, HttpRefusal> {
    match api.requests.one(Request::Durable(Box::new(request))).await? {
        Reply::Durable(reply) => Ok(*reply),
        _ => Err(HttpRefusal::unexpected()),
    }
}
