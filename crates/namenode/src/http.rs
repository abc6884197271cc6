//! HTTP: health, metrics, nodes and their notices, events, the loss report.

mod api;
mod backup;
mod console;
mod durable;
mod events;
mod forecast;
mod log;
mod own_notice;
mod pass_on;
mod refusal;
mod targets;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Path, Query, Request as HttpRequest, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use hyper_util::service::TowerToHyperService;
use sanderling_core::access::HttpResource;
use sanderling_protocol::{NodeSelector, Reply, Request};
use sanderling_transport::{
    ClientTls, Document, HttpOptions, OPEN_METRICS, Secret, Security, refused_site, serve_pages,
    unix_millis,
};
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::console::Console;
use crate::group::boot_time;
use crate::own_notices::OwnNotices;
use crate::requests::Requests;
use api::{BodyBytes, HttpApi, HttpResult, NodeName, bad, find, page};
pub(crate) use backup::Backups;
use refusal::HttpRefusal;

/// Longest body of a request: a notice with its reason, many times over. The longest text has 1 KiB
/// (`TEXT_BYTES_MAX`), six times as long when it is escaped.
const BODY_BYTES_MAX: usize = 64 << 10;

/// Serves until `stop` is cancelled.
pub(crate) async fn serve(
    listener: TcpListener,
    (requests, notices): (Requests, Arc<OwnNotices>),
    security: Arc<Security>,
    backups: Backups,
    leader_tls: Option<ClientTls>,
    stop: CancellationToken,
) {
    let options = HttpOptions { tls: security.tls.clone(), ..HttpOptions::default() };
    let console = Arc::new(Console::new(Arc::clone(&requests.state)));
    let forecasts = Arc::new(Semaphore::new(forecast::FORECASTS_MAX));
    let published = Arc::clone(&console);
    let stopping = stop.clone();
    let router = router(HttpApi {
        requests,
        notices,
        security,
        console,
        forecasts,
        backups,
        leader_tls,
        stop: stopping,
    });
    let served = serve_pages(listener, TowerToHyperService::new(router), options, stop.clone());
    tokio::join!(served, published.run(stop));
}

fn router(api: HttpApi) -> Router {
    Router::new()
        .route("/healthz", get(health))
        .route("/metrics", get(metrics))
        .route("/v1/nodes", get(nodes))
        .route("/v1/nodes/{node}", get(node))
        .route("/v1/nodes/{node}/notice", post(notice).delete(cancel))
        .route("/v1/nodes/{node}/recommend", post(recommend).delete(cancel))
        .route("/v1/nodes/{node}/decommission", post(decommission).delete(cancel))
        .route("/v1/nodes/{node}/cancel", post(cancel))
        .route("/v1/nodes/{node}/forecast", get(forecast::forecast))
        .route("/v1/durable", get(durable::look).post(durable::make))
        .route("/v1/durable/wait", post(durable::wait))
        .route("/v1/backup", get(backup::send))
        .route("/v1/events", get(events::stream))
        .route("/v1/group", get(group))
        .route("/v1/notice", post(own_notice::give).delete(own_notice::take_back))
        .route("/v1/log", get(log::show).put(log::change))
        .route("/v1/report", get(report))
        .route("/v1/room", get(room))
        .route("/v1/targets", get(targets::list))
        .merge(console::routes())
        .fallback(async || HttpRefusal::new(StatusCode::NOT_FOUND, "no such page"))
        .method_not_allowed_fallback(async || {
            HttpRefusal::new(StatusCode::METHOD_NOT_ALLOWED, "this page has no such method")
        })
        .layer(middleware::from_fn_with_state(api.clone(), pass_on::to_leader))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(api.clone(), check_token))
        .layer(middleware::from_fn_with_state(api.clone(), refuse_other_sites))
        .with_state(api)
}

/// Refuses a request without a token that allows the page.
async fn check_token(State(api): State<HttpApi>, mut request: HttpRequest, next: Next) -> Response {
    let page = match (request.uri().path(), request.method()) {
        ("/healthz", _) => HttpResource::Health,
        (path, &Method::GET | &Method::HEAD) if console::is_file(path) => HttpResource::Health,
        ("/v1/durable", &Method::GET | &Method::HEAD) | ("/v1/durable/wait", _) => {
            HttpResource::AtPath
        }
        // It holds every name and attribute.
        ("/v1/backup", _) => HttpResource::Change,
        (_, &Method::GET | &Method::HEAD) => HttpResource::Look,
        _ => HttpResource::Change,
    };
    let shown = request.headers().get(header::AUTHORIZATION);
    let shown = shown.and_then(|value| value.to_str().ok());
    match api.security.check_page(page, shown, Some(api.requests.state.cluster)) {
        Ok(pass) => {
            request.extensions_mut().insert(pass);
            next.run(request).await
        }
        Err(refusal) => HttpRefusal::from(refusal).into_response(),
    }
}

/// Refuses what a page of another site makes a browser send: a visit to that page would be enough
/// to give notices, or to take the places of all followers.
async fn refuse_other_sites(
    State(api): State<HttpApi>,
    request: HttpRequest,
    next: Next,
) -> Response {
    // Load balancers request health under any name.
    let is_open = api.security.secret.is_none() && request.uri().path() != "/healthz";
    match refused_site(request.method(), request.headers(), is_open) {
        Some(site) => HttpRefusal::new(StatusCode::FORBIDDEN, site.why()).into_response(),
        None => next.run(request).await,
    }
}

/// 200 while requests are answered, 503 once the journal has failed. While it only refuses changes,
/// for want of space, the status is `read_only`: a restart would not help.
async fn health(State(api): State<HttpApi>) -> Response {
    let state = &api.requests.state;
    let failure = state.failure.borrow().as_ref().map(ToString::to_string);
    let refusal = state.refusal.lock().clone();
    let (serving, group) = (state.group.serving_state(), state.group.status());
    let (status, word) = match (&failure, &refusal) {
        (Some(_), _) => (StatusCode::SERVICE_UNAVAILABLE, "failed"),
        (None, Some(_)) => (StatusCode::OK, "read_only"),
        // A restart mends nothing, so no supervisor is to make one.
        (None, None) if !serving.serves() && !group.has_leader() => (StatusCode::OK, "no_leader"),
        (None, None) => (StatusCode::OK, "ok"),
    };
    let (cluster, serving) = (format!("{:016x}", state.cluster.0), serving.word());
    let commands = state.namenode.read().catalog().index();
    let lag = group.committed.saturating_sub(group.applied);
    let body = json!({
        // `standing` is the former name of `state`, for programs that read it.
        "group": {
            "state": serving, "standing": serving, "term": group.term, "lag_entries": lag,
        },
        "status": word, "role": "namenode", "cluster": cluster, "commands": commands,
        "unix_millis": unix_millis(),
        "failure": failure.or(refusal),
    });
    (status, axum::Json(Document::new(body))).into_response()
}

/// Shows the group as this member has received it; a leader also how far each member is.
async fn group(State(api): State<HttpApi>) -> Response {
    let group = &api.requests.state.group;
    let (status, now) = (group.status(), boot_time());
    let rows = status.rows.iter().map(|row| {
        json!({
            "member": row.member.0, "address": row.address, "http_address": row.http,
            "is_voter": row.is_voter, "is_leader": row.is_leader, "behind_entries": row.behind,
            "is_active": row.is_active,
            "notice_left_millis": row.notice.map(|at| now.until(at).0),
        })
    });
    let rows: Vec<serde_json::Value> = rows.collect();
    let at_risk = status.at_risk.map(|risk| risk.to_string());
    let serving = group.serving_state().word();
    page(&json!({
        // `standing` is the former name of `state`, for programs that read it.
        "state": serving, "standing": serving, "member": status.member.0, "term": status.term,
        "committed": status.committed, "applied": status.applied, "at_risk": at_risk,
        "spares_missing": status.spares_missing, "dropped_messages": status.dropped,
        "members": rows,
    }))
}

async fn metrics(State(api): State<HttpApi>) -> Response {
    let state = &api.requests.state;
    let ends = api.security.expiries().timestamps();
    let secrets = api.security.secret.as_ref().map_or(0, Secret::accepted);
    state.metrics.look_around(api.backups.directory(), secrets);
    let text = state.metrics.text(&state.namenode.read(), state.now(), &state.group, &ends);
    ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodesQuery {
    #[serde(default)]
    all: bool,
}

async fn nodes(
    State(api): State<HttpApi>,
    query: Result<Query<NodesQuery>, axum::extract::rejection::QueryRejection>,
) -> HttpResult {
    let Query(NodesQuery { all }) = query?;
    match api.requests.one(Request::Nodes { all }).await? {
        Reply::Nodes(nodes) => Ok(page(&json!({ "nodes": nodes }))),
        _ => Err(HttpRefusal::unexpected()),
    }
}

async fn node(State(api): State<HttpApi>, name: NodeName) -> HttpResult {
    let Reply::Nodes(nodes) = api.requests.one(Request::Nodes { all: true }).await? else {
        return Err(HttpRefusal::unexpected());
    };
    Ok(page(&json!(find(&nodes, name)?)))
}

/// The body of a notice. The deadline may be given in seconds, with a fraction, or milliseconds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoticeBody {
    deadline_seconds: Option<f64>,
    deadline_millis: Option<i64>,
    #[serde(default)]
    reason: String,
}

impl NoticeBody {
    fn millis(&self) -> Result<i64, HttpRefusal> {
        match (self.deadline_seconds, self.deadline_millis) {
            (Some(seconds), None) if seconds.is_finite() => {
                // Saturates: what is too far off is refused as such.
                Ok((seconds * 1000.0).round() as i64)
            }
            (None, Some(millis)) => Ok(millis),
            _ => Err(bad("give either deadline_seconds or deadline_millis")),
        }
    }
}

async fn notice(State(api): State<HttpApi>, node: NodeName, body: BodyBytes) -> HttpResult {
    let body = body?;
    let notice: NoticeBody =
        serde_json::from_slice(&body).map_err(|error| bad(&error.to_string()))?;
    let deadline_millis = notice.millis()?;
    let node = selector(node)?;
    change(&api, Request::Notice { node, deadline_millis, reason: notice.reason }).await
}

/// The body of a decommission or recommendation; it may be empty.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reason {
    #[serde(default)]
    reason: String,
}

impl Reason {
    fn of(body: BodyBytes) -> Result<String, HttpRefusal> {
        let body = body?;
        if body.is_empty() {
            return Ok(String::new());
        }
        let Self { reason } =
            serde_json::from_slice(&body).map_err(|error| bad(&error.to_string()))?;
        Ok(reason)
    }
}

async fn decommission(State(api): State<HttpApi>, node: NodeName, body: BodyBytes) -> HttpResult {
    let reason = Reason::of(body)?;
    change(&api, Request::Decommission { node: selector(node)?, reason }).await
}

async fn recommend(State(api): State<HttpApi>, node: NodeName, body: BodyBytes) -> HttpResult {
    let reason = Reason::of(body)?;
    let is_withdrawn = false;
    change(&api, Request::Recommend { node: selector(node)?, reason, is_withdrawn }).await
}

async fn cancel(State(api): State<HttpApi>, node: NodeName) -> HttpResult {
    change(&api, Request::Cancel { node: selector(node)? }).await
}

async fn report(State(api): State<HttpApi>) -> HttpResult {
    match api.requests.one(Request::Report).await? {
        Reply::Report(report) => Ok(page(&json!(report))),
        _ => Err(HttpRefusal::unexpected()),
    }
}

async fn room(State(api): State<HttpApi>) -> HttpResult {
    match api.requests.one(Request::Room).await? {
        Reply::Room(room) => Ok(page(&json!(room))),
        _ => Err(HttpRefusal::unexpected()),
    }
}

fn selector(name: NodeName) -> Result<NodeSelector, HttpRefusal> {
    let Path(name) = name?;
    Ok(NodeSelector(name))
}

async fn change(api: &HttpApi, request: Request) -> HttpResult {
    match api.requests.one(request).await? {
        Reply::Node(node) => Ok(page(&json!(node))),
        _ => Err(HttpRefusal::unexpected()),
    }
}
