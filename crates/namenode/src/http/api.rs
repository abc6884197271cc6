//! What the handlers share: what they call, how a request names a node, and the form of an answer.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::Path;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::response::{IntoResponse, Response};
use sanderling_protocol::{NodeInfo, Refusal};
use sanderling_transport::{ClientTls, Document, Security};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::backup::Backups;
use super::refusal::HttpRefusal;
use crate::console::Console;
use crate::own_notices::OwnNotices;
use crate::requests::Requests;

/// What the handlers share.
#[derive(Clone)]
pub(super) struct HttpApi {
    pub(super) requests: Requests,
    pub(super) security: Arc<Security>,
    pub(super) console: Arc<Console>,
    pub(super) forecasts: Arc<Semaphore>,
    pub(super) backups: Backups,
    /// Where notices of this machine go.
    pub(super) notices: Arc<OwnNotices>,
    /// How the certificate of a group's leader is checked.
    pub(super) leader_tls: Option<ClientTls>,
    pub(super) stop: CancellationToken,
}

pub(super) type HttpResult = Result<Response, HttpRefusal>;

pub(super) type NodeName = Result<Path<String>, PathRejection>;

pub(super) type BodyBytes = Result<Bytes, BytesRejection>;

/// Returns the node of that id, name or address.
pub(super) fn find(nodes: &[NodeInfo], name: NodeName) -> Result<&NodeInfo, HttpRefusal> {
    let Path(name) = name?;
    let by_name = |node: &&NodeInfo| node.name == name || node.address == name;
    // Of incarnations with the same name the newest is meant.
    let by_id = nodes.iter().find(|node| node.id.to_string() == name);
    let found = by_id.or_else(|| nodes.iter().rev().find(by_name));
    found.ok_or_else(|| Refusal::UnknownNode { node: name }.into())
}

pub(super) fn page(value: &Value) -> Response {
    axum::Json(Document::new(value)).into_response()
}

pub(super) fn bad(why: &str) -> HttpRefusal {
    Refusal::BadRequest { why: why.to_owned() }.into()
}
