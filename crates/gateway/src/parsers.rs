//! The parsers of requests and their parts, for the fuzz targets alone.

use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Uri};
use hyper_util::rt::TokioIo;
use s3s::access::{S3Access, S3AccessContext};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{S3, S3Result};
use sanderling_protocol::Path;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex, split};

use crate::answer::finish;
use crate::bucket_address::{AnyName, Domains};
use crate::keys::AccessKeys;
use crate::metrics::GatewayMetrics;
use crate::rewrite::Mending;
use crate::server::s3_config;
use crate::slow_client::{Lateness, Rest, SlowClientLimit};
use crate::{aws_chunks, name, percent, signing, tagging, token, unsupported_headers};

/// Longest answer that is kept: there is no store behind it, so refusals are all that it has to
/// hold.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Longest wait for a body, which is there from the start: it never passes.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);

/// A store without operations: requests are taken apart and refused.
struct NoStore;

impl S3 for NoStore {}

/// Admits every request whose signature is right.
struct AnySigned;

#[async_trait::async_trait]
impl S3Access for AnySigned {
    async fn check(&self, context: &mut S3AccessContext<'_>) -> S3Result<()> {
        let _ = signing::check(context.uri(), context.headers());
        let _ = unsupported_headers::check(context.uri(), context.headers());
        Ok(())
    }
}

/// The way of a request through the gateway, up to the store.
pub struct Requests {
    s3: S3Service,
    metrics: Arc<GatewayMetrics>,
}

impl Default for Requests {
    fn default() -> Self {
        let domains = Domains(vec!["s3.example".to_owned()]);
        let builder = || {
            let mut builder = S3ServiceBuilder::new(NoStore);
            builder.set_auth(AccessKeys::local());
            builder.set_access(AnySigned);
            builder.set_validation(AnyName);
            builder.set_config(s3_config());
            builder.set_host(domains.clone());
            builder
        };
        let mut checks = builder();
        let (reads, keys) = (builder().build(), AccessKeys::local());
        checks.set_route(Mending { reads, keys, domains: domains.clone() });
        Self { s3: checks.build(), metrics: Arc::new(GatewayMetrics::new()) }
    }
}

impl Requests {
    /// Serves what a client sends on one connection; returns the answer.
    pub async fn serve(&self, sent: &[u8]) -> Vec<u8> {
        let (client, server) = duplex(64 << 10);
        let service = service_fn(|request: Request<Incoming>| async move {
            let resource = request.uri().path().to_owned();
            let (rest, lateness) = (Rest::default(), Lateness::default());
            let metrics = Arc::clone(&self.metrics);
            let is_chunked = aws_chunks::is_chunked(request.headers());
            let mut request = request.map(|body| {
                let late = lateness.clone();
                let patient = SlowClientLimit::new(body, IDLE_TIMEOUT, rest, late, metrics);
                aws_chunks::body(patient, is_chunked)
            });
            request.extensions_mut().insert(lateness);
            let answer = self.s3.call(request).await;
            answer.map(|answer| finish(answer, "0", &resource))
        });
        let served = http1::Builder::new().serve_connection(TokioIo::new(server), service);
        let (reader, mut writer) = split(client);
        let talk = async move {
            let write = async {
                let _ = writer.write_all(sent).await;
                let _ = writer.shutdown().await;
            };
            let mut answer = Vec::new();
            let mut limited = reader.take(ANSWER_BYTES_MAX as u64);
            let read = limited.read_to_end(&mut answer);
            let _ = tokio::join!(write, read);
            answer
        };
        tokio::join!(served, talk).1
    }
}

/// Reads a text as each part of a request that has a grammar of its own.
///
/// # Panics
/// When something does not come back as it was written.
pub fn texts(text: &str) {
    assert_eq!(percent::decode(&percent::encode(text, percent::COMPONENT)).as_deref(), Some(text));
    let _ = percent::decode(text);
    if let Ok(Some(tags)) = tagging::checked(Some(text)) {
        let again = tagging::checked(Some(&tags)).expect("tags that are kept are tags");
        assert_eq!(again, Some(tags));
    }
    assert_eq!(token::place(&token::of(text)).as_deref(), Some(text));
    let _ = token::place(text);
    let _ = AccessKeys::parse(text);
    if let Some(behind) = name::behind(text) {
        assert!(behind.as_str() > text, "it is behind");
    }
    keys(text);
}

/// A key leads to a path, whose components are the pieces of the key.
fn keys(key: &str) {
    let Ok(path) = name::path_of(&Path::root(), key) else { return };
    let mut again = String::new();
    for component in path.components() {
        let piece = name::piece_of(component).expect("a key led there");
        again.push_str(piece.text());
        if matches!(piece, name::KeyComponent::Whole(_)) {
            again.push('/');
        }
    }
    again.pop();
    assert_eq!(again, key);
}

/// Checks a query and headers as those of a request.
pub fn checks(query: &str, headers: &HeaderMap) {
    let Ok(uri) = format!("/bucket/key?{query}").parse::<Uri>() else { return };
    let _ = signing::check(&uri, headers);
    let _ = unsupported_headers::check(&uri, headers);
}
