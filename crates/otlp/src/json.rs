//! Spans in the JSON of OTLP: ids in hexadecimal, numbers of 64 bits as texts
//! (opentelemetry.io/docs/specs/otlp, "JSON Protobuf Encoding").

use sanderling_transport::trace::{FinishedSpan, SpanKind, SpanValue};
use serde_json::{Value, json};

/// `STATUS_CODE_ERROR` of OTLP (opentelemetry-proto, `trace.proto`, `Status.StatusCode`).
const ERROR: u8 = 2;

/// Returns the body of a request.
pub(super) fn request(service: &str, spans: &[FinishedSpan]) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let resource = [
        text("service.name", service),
        text("service.version", version),
        number("process.pid", u64::from(std::process::id())),
    ];
    let spans: Vec<Value> = spans.iter().map(span).collect();
    let scope = json!({ "name": "sanderling", "version": version });
    json!({ "resourceSpans": [{
        "resource": { "attributes": resource },
        "scopeSpans": [{ "scope": scope, "spans": spans }],
    }] })
    .to_string()
}

fn span(span: &FinishedSpan) -> Value {
    let kind = match span.kind {
        SpanKind::Internal => 1,
        SpanKind::Server => 2,
        SpanKind::Client => 3,
    };
    let attributes: Vec<Value> = span
        .attributes
        .iter()
        .map(|(key, value)| match value {
            SpanValue::Text(value) => text(key, value),
            SpanValue::Number(value) => number(key, *value),
        })
        .collect();
    let mut shown = json!({
        "traceId": format!("{:032x}", span.trace),
        "spanId": format!("{:016x}", span.span),
        "name": span.name,
        "kind": kind,
        "startTimeUnixNano": span.began_nanos.to_string(),
        "endTimeUnixNano": span.ended_nanos.to_string(),
        "attributes": attributes,
    });
    if let Some(parent) = span.parent {
        shown["parentSpanId"] = format!("{parent:016x}").into();
    }
    if let Some(error) = &span.error {
        shown["status"] = json!({ "code": ERROR, "message": error });
    }
    shown
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

fn number(key: &str, value: u64) -> Value {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn span_has_the_keys_of_the_specification() {
        let span = FinishedSpan {
            name: "put",
            kind: SpanKind::Client,
            trace: 0xab,
            span: 0xcd,
            parent: Some(0xef),
            began_nanos: 1,
            ended_nanos: 2,
            attributes: vec![("a", SpanValue::Number(7)), ("b", SpanValue::Text("c".to_owned()))],
            error: Some("no".to_owned()),
        };
        let sent: Value = serde_json::from_str(&request("test", &[span])).unwrap();
        let shown = &sent["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
        let expected = json!({
            "traceId": "000000000000000000000000000000ab",
            "spanId": "00000000000000cd",
            "parentSpanId": "00000000000000ef",
            "name": "put",
            "kind": 3,
            "startTimeUnixNano": "1",
            "endTimeUnixNano": "2",
            "attributes": [
                { "key": "a", "value": { "intValue": "7" } },
                { "key": "b", "value": { "stringValue": "c" } },
            ],
            "status": { "code": 2, "message": "no" },
        });
        assert_eq!(shown, &expected);
    }
}
