//! What every server reports of itself: the pages for health and metrics, and the metrics of its
//! process and its certificates.

use std::fmt::{Display, Write};

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, header};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::cross_site::refused_site;
use crate::front_page::front_page;
use crate::http::{HttpOptions, serve_http};
use crate::process;
use crate::trace::{Tracer, tracer};

/// Version of the JSON documents of pages and commands. Existing keys stay and keep their meaning.
pub const SCHEMA: u32 = 1;

/// A JSON document: the fields of an object, with the schema's version before them.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Document<T> {
    schema: u32,
    #[serde(flatten)]
    fields: T,
}

impl<T: Serialize> Document<T> {
    /// Returns a document with these fields, which must be an object in JSON: the schema's version
    /// becomes one of its members.
    pub const fn new(fields: T) -> Self {
        Self { schema: SCHEMA, fields }
    }
}

/// The media type of metrics.
pub const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Appends the description of a metric, with the unit that its name ends with.
fn describe(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}.\n# TYPE {name} {kind}");
    if let Some(unit) = ["bytes", "seconds"].iter().find(|unit| name.ends_with(*unit)) {
        let _ = writeln!(text, "# UNIT {name} {unit}");
    }
}

/// Appends a gauge, with its help text and its value, to a text in the `OpenMetrics` format.
pub fn write_gauge(text: &mut String, name: &str, help: &str, value: impl Display) {
    describe(text, name, "gauge", help);
    let _ = writeln!(text, "{name} {value}");
}

/// Appends a counter to an `OpenMetrics` text. `name` is without the ending `_total`.
pub fn write_counter(text: &mut String, name: &str, help: &str, value: impl Display) {
    describe(text, name, "counter", help);
    let _ = writeln!(text, "{name}_total {value}");
}

/// Appends the end of a server's `OpenMetrics` text: version, start, CPU time and memory of the
/// process, and when the first certificate of each kind ends, in Unix time. `server` begins the
/// name of the latter.
pub fn write_process_metrics(text: &mut String, server: &str, ends: &[(&str, i64)]) {
    let expiry = format!("{server}_certificate_expiry_timestamp_seconds");
    describe(text, &expiry, "gauge", "When the first certificate of a kind ends, in Unix time");
    for (kind, ends) in ends {
        let _ = writeln!(text, "{expiry}{{kind=\"{kind}\"}} {ends}");
    }
    let role = server.strip_prefix("sanderling_").unwrap_or(server);
    let version = env!("CARGO_PKG_VERSION");
    describe(text, "sanderling_build", "info", "Version of the program");
    let _ = writeln!(text, "sanderling_build_info{{role=\"{role}\",version=\"{version}\"}} 1");
    write_trace_metrics(text);
    if let Some(started) = process::start_time() {
        let help = "When the process started, in Unix time";
        write_gauge(text, "process_start_time_seconds", help, started.as_secs_f64());
    }
    let help = "CPU time in user and system mode";
    write_counter(text, "process_cpu_seconds", help, process::cpu_time().as_secs_f64());
    let help = "Memory that is mapped in, shared memory included";
    let resident = process::resident_bytes().unwrap_or_default();
    write_gauge(text, "process_resident_memory_bytes", help, resident);
    text.push_str("# EOF\n");
}

/// Appends what became of the spans, if the process records any.
fn write_trace_metrics(text: &mut String) {
    let Some(counts) = tracer().map(Tracer::counts) else { return };
    let help = "Spans of sampled requests that the collector has";
    write_counter(text, "sanderling_trace_spans", help, counts.exported);
    let name = "sanderling_trace_spans_dropped";
    describe(text, name, "counter", "Spans that were not exported, by reason");
    for (reason, spans) in [
        ("rate", counts.dropped_rate),
        ("queue", counts.dropped_queue),
        ("collector", counts.dropped_collector),
    ] {
        let _ = writeln!(text, "{name}_total{{reason=\"{reason}\"}} {spans}");
    }
}

/// The pages that a server without pages of its own serves.
#[derive(Debug, Clone)]
pub struct StatusPages {
    /// What the server is, for its first page.
    pub server: &'static str,
    /// The web console's address, to which the first page links.
    pub console: String,
    /// Its health, as JSON.
    pub health: String,
}

/// Serves `/`, `/healthz` as JSON and `/metrics` as `OpenMetrics` until `shutdown` is cancelled.
/// Requests for metrics from pages of other sites are refused, as by [`refused_site`] with
/// `is_open`.
pub async fn serve_status(
    listener: TcpListener,
    is_open: bool,
    pages: StatusPages,
    metrics: impl Fn() -> String + Clone + Send + 'static,
    shutdown: CancellationToken,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = answer(&request, is_open, &pages, &metrics);
        async move { Ok::<_, hyper::Error>(answer) }
    });
    serve_http(listener, service, HttpOptions::default(), shutdown).await;
}

fn answer(
    request: &Request<Incoming>,
    is_open: bool,
    pages: &StatusPages,
    metrics: impl Fn() -> String,
) -> Response<String> {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let refused = refused_site(request.method(), request.headers(), is_open);
    let (status, kind, text) = match (request.uri().path(), refused) {
        ("/healthz", _) if is_read => (StatusCode::OK, "application/json", pages.health.clone()),
        (_, Some(why)) => (StatusCode::FORBIDDEN, "text/plain", format!("{}\n", why.why())),
        ("/", None) if is_read => return front_page(pages.server, &pages.console),
        ("/metrics", None) if is_read => (StatusCode::OK, OPEN_METRICS, metrics()),
        _ if is_read => (StatusCode::NOT_FOUND, "text/plain", "no such page\n".to_owned()),
        _ => {
            let text = "this page has no such method\n".to_owned();
            (StatusCode::METHOD_NOT_ALLOWED, "text/plain", text)
        }
    };
    let mut response = Response::new(text);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_of_a_process_end_the_text() {
        let mut text = String::new();
        write_process_metrics(&mut text, "sanderling_x", &[("own", 7)]);
        let name = "sanderling_x_certificate_expiry_timestamp_seconds";
        let unit = format!("# TYPE {name} gauge\n# UNIT {name} seconds\n");
        assert!(text.contains(&format!("{unit}{name}{{kind=\"own\"}} 7\n")), "{text}");
        let version = env!("CARGO_PKG_VERSION");
        let build = format!("sanderling_build_info{{role=\"x\",version=\"{version}\"}} 1\n");
        assert!(text.contains("# TYPE sanderling_build info\n") && text.contains(&build));
        assert!(text.contains("\nprocess_start_time_seconds "));
        assert!(text.contains("\nprocess_cpu_seconds_total ") && text.ends_with("\n# EOF\n"));
    }

    #[test]
    fn unit_of_a_metric_follows_from_its_name() {
        let mut text = String::new();
        write_gauge(&mut text, "blocks", "Blocks", 3);
        write_counter(&mut text, "waited_seconds", "Time of waits", 0.5);
        let blocks = "# HELP blocks Blocks.\n# TYPE blocks gauge\nblocks 3\n";
        let waited = "# HELP waited_seconds Time of waits.\n# TYPE waited_seconds counter\n\
                      # UNIT waited_seconds seconds\nwaited_seconds_total 0.5\n";
        assert_eq!(text, format!("{blocks}{waited}"));
    }
}
