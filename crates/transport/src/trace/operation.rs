//! The spans of calls: one at the caller, one at the server.

use bytes::Bytes;
use sanderling_protocol::frame::decode_body;
use sanderling_protocol::{Header, Op, Refusal, Request, TraceContext};

use super::{Span, SpanKind, current, tracer};

/// Begins the span of a call that is made for a sampled request.
pub(crate) fn call_span(address: &str, header: &Header, body: &[Bytes]) -> Option<Span> {
    let parent = current()?;
    let mut span = tracer()?.span("call", SpanKind::Client, Some(parent))?;
    span.text("server.address", &address);
    describe(&mut span, header, body.first().map_or(&[][..], |body| body));
    Some(span)
}

/// Begins the span of a request whose caller has announced a trace.
pub(crate) fn serve_span(parent: TraceContext, header: &Header, body: &[u8]) -> Option<Span> {
    let mut span = tracer()?.span("call", SpanKind::Server, Some(parent))?;
    describe(&mut span, header, body);
    Some(span)
}

/// Ends the span of a request with its answer.
pub(crate) fn end_served(mut span: Span, header: &Header, body: &[Bytes]) {
    if header.status != 0 {
        let body = body.first().map_or(&[][..], |body| body);
        match decode_body::<Refusal>(body) {
            Ok(refusal) => span.fail(&refusal),
            Err(_) => span.fail(&format_args!("refusal {}", header.status)),
        }
    }
}

/// Names a span. The body is read only now: what exceeds the rate of spans costs nothing.
fn describe(span: &mut Span, header: &Header, body: &[u8]) {
    let (name, requests) = operation(header.op, body);
    span.rename(name);
    match header.op {
        Op::Meta => span.number("sanderling.requests", requests as u64),
        Op::Order => {}
        _ => {
            span.number("sanderling.block", header.block.0);
            span.number("sanderling.bytes", u64::from(header.length));
        }
    }
}

/// Returns what an operation is called: requests to the namenode by the first in their frame, and
/// how many there are.
fn operation(op: Op, body: &[u8]) -> (&'static str, usize) {
    let name = match op {
        Op::Meta => {
            let requests = decode_body::<Vec<Request>>(body).unwrap_or_default();
            let first = requests.first().map_or("requests", |request| request.inner().kind());
            return (first, requests.len());
        }
        Op::Order => "order",
        Op::Group => "group",
        Op::Read => "read",
        Op::ReadMany => "read_many",
        Op::Write => "write",
        Op::Store => "store",
        Op::LocalEndpoint => "local_endpoint",
        Op::Lease => "lease",
        Op::Stage => "stage",
        Op::Hello | Op::Return | Op::Fill | Op::Trace | Op::Cancel => "connection",
    };
    (name, 0)
}
