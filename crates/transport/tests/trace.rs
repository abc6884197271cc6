//! Traces across a connection. The tracer is the process's, so this program has one test.

use std::sync::Arc;

use bytes::Bytes;
use sanderling_protocol::frame::encode_body;
use sanderling_protocol::message::{Hello, HelloReply, Role};
use sanderling_protocol::{Header, Op, Path, Refusal, Request};
use sanderling_transport::trace::{self, FinishedSpan, SpanKind};
use sanderling_transport::{Connection, Handled, Response, ServeOptions, Service, serve};
use tokio::net::TcpListener;
use tokio::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Answers later, from a task's own future.
struct Later;

impl Service for Later {
    fn hello(&self, _: &Hello) -> Result<HelloReply, Refusal> {
        Ok(HelloReply { role: Role::Namenode, cluster: None, node: None })
    }

    fn handle(self: &Arc<Self>, header: Header, _: Bytes) -> Handled {
        if header.op != Op::Meta {
            return Handled::Now(Response::refused(&header, &Refusal::NoHello));
        }
        Handled::Later(Box::pin(async move {
            drop(trace::child("inner"));
            Response::message(&header, &0_u8)
        }))
    }
}

fn named<'a>(all: &'a [FinishedSpan], name: &str, kind: SpanKind) -> &'a FinishedSpan {
    let found: Vec<_> = all.iter().filter(|it| it.name == name && it.kind == kind).collect();
    assert_eq!(found.len(), 1, "{name}: {all:?}");
    found[0]
}

#[tokio::test]
async fn call_for_a_sampled_request_has_a_span_at_both_ends_and_others_have_none() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let stop = CancellationToken::new();
    let serving =
        tokio::spawn(serve(listener, Arc::new(Later), ServeOptions::default(), stop.clone()));
    let hello = || Hello { role: Role::Client, cluster: None, node: None, token: None };
    let deadline = Instant::now() + Duration::from_secs(60);
    let (older, _) = Connection::connect(&address, hello(), deadline).await.unwrap();
    let tracer = trace::install(1000);
    let (newer, _) = Connection::connect(&address, hello(), deadline).await.unwrap();
    let body = || vec![Bytes::from(encode_body(&vec![Request::Stat { path: Path::root() }]))];
    let meta = || Header::new(Op::Meta, 0);

    newer.call(meta(), body(), deadline).await.unwrap();
    assert_eq!(tracer.take_batch(), [], "it belongs to no trace");

    // The server's greeting did not offer to record spans: the caller's own span is all.
    trace::run(trace::begin("root"), older.call(meta(), body(), deadline)).await.unwrap();
    let all = tracer.take_batch();
    assert_eq!(all.len(), 2, "{all:?}");

    trace::run(trace::begin("root"), newer.call(meta(), body(), deadline)).await.unwrap();
    let all = tracer.take_batch();
    let root = named(&all, "root", SpanKind::Internal);
    let call = named(&all, "stat", SpanKind::Client);
    let answer = named(&all, "stat", SpanKind::Server);
    let inner = named(&all, "inner", SpanKind::Internal);
    assert!(all.len() == 4 && all.iter().all(|it| it.trace == root.trace), "{all:?}");
    assert_eq!((root.parent, call.parent), (None, Some(root.span)));
    assert_eq!((answer.parent, inner.parent), (Some(call.span), Some(answer.span)));
    assert!(root.began_nanos <= call.began_nanos && call.ended_nanos <= root.ended_nanos);

    let refused = newer.call(Header::new(Op::Read, 0), Vec::new(), deadline);
    trace::run(trace::begin("root"), refused).await.unwrap_err();
    let all = tracer.take_batch();
    assert!(named(&all, "read", SpanKind::Server).error.is_some());
    assert!(named(&all, "read", SpanKind::Client).error.is_some());
    stop.cancel();
    serving.await.unwrap();
}
