//! Health and metrics over HTTP.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, header};
use sanderling_transport::{Expiries, HttpOptions, refused_site, serve_http};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;

/// Serves the pages until told to stop.
pub(crate) async fn serve(
    metrics: Arc<Metrics>,
    expiries: Expiries,
    listener: TcpListener,
    shutdown: CancellationToken,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let (metrics, expiries) = (Arc::clone(&metrics), expiries.clone());
        async move { Ok::<_, hyper::Error>(answer(&metrics, &expiries, &request)) }
    });
    serve_http(listener, service, HttpOptions::default(), shutdown).await;
}

fn answer(
    metrics: &Metrics,
    expiries: &Expiries,
    request: &Request<Incoming>,
) -> Response<Full<Bytes>> {
    let refused = refused_site(request.headers(), true);
    let (status, kind, text) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/healthz") => {
            let text = serde_json::json!({ "status": "ok", "role": "manager" });
            (StatusCode::OK, "application/json", text.to_string())
        }
        _ if let Some(why) = refused => (StatusCode::FORBIDDEN, "text/plain", format!("{why}\n")),
        (&Method::GET | &Method::HEAD, "/metrics") => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            (StatusCode::OK, kind, metrics.text(&expiries.timestamps()))
        }
        (&Method::GET | &Method::HEAD, _) => {
            (StatusCode::NOT_FOUND, "text/plain", "no such page\n".to_owned())
        }
        _ => {
            let text = "this page has no such method\n".to_owned();
            (StatusCode::METHOD_NOT_ALLOWED, "text/plain", text)
        }
    };
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}
