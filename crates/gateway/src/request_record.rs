//! What the gateway keeps of a request until its answer is complete.

use std::sync::Arc;

use hyper::{Method, Response};
use s3s::Body;
use tokio::time::Instant;

use crate::answer::finish;
use crate::metrics::{GatewayMetrics, InFlight};

/// A request that is under way: it counts as such until this is dropped.
pub(crate) struct RequestRecord {
    id: String,
    method: Method,
    resource: String,
    began: Instant,
    metrics: Arc<GatewayMetrics>,
    _in_flight: InFlight,
}

impl RequestRecord {
    /// Begins the record of a request for a resource, which is the path of its URI.
    pub(crate) fn begin(
        id: String,
        method: Method,
        resource: String,
        metrics: Arc<GatewayMetrics>,
    ) -> Self {
        let began = Instant::now();
        Self { id, method, resource, began, _in_flight: metrics.begin(), metrics }
    }

    /// Returns the id of the answer.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Returns when the request came.
    pub(crate) const fn began(&self) -> Instant {
        self.began
    }

    /// Completes the head of an answer whose body is still to come.
    pub(crate) fn finish_head(&self, answer: Response<Body>) -> Response<Body> {
        finish(answer, &self.id, &self.resource)
    }

    /// Completes an answer, counts it and logs it.
    pub(crate) fn complete(&self, answer: Response<Body>) -> Response<Body> {
        let answer = finish(answer, &self.id, &self.resource);
        let (status, took) = (answer.status().as_u16(), self.began.elapsed());
        self.metrics.answered(&self.method, status);
        tracing::debug!(request_id = self.id, method = %self.method, status, ?took, "answered");
        answer
    }
}
