//! Targets that feed texts: tokens, requests of S3, notices, models of preemptions. What is not
//! UTF-8 is left out, except on a connection.

use std::cell::OnceCell;

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use sanderling_core::access::parts;
use sanderling_core::preemption::{Filter, Lifetimes, Spec, Trace};
use sanderling_gateway::parsers::{Requests, checks, texts};
use sanderling_notices::parsers::read_everything;
use sanderling_protocol::Token;
use sanderling_transport::Secret;
use tokio::runtime::{Builder, Runtime};

/// Reads the input as a token and its claims, and checks it with a secret that has signed none: it
/// must be refused.
///
/// # Panics
/// When it is accepted, or when reading panics.
pub fn token(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    let token = Token::new(text);
    if let Ok(parts) = parts(&token) {
        let _ = parts.claims();
    }
    assert!(Secret::of(&[7; 32]).check(&token).is_err(), "no secret has signed it");
}

thread_local! {
    static SERVED: OnceCell<(Runtime, Requests)> = const { OnceCell::new() };
}

/// Sends the input to the gateway as all that a client sends on one connection: HTTP, signatures,
/// and bodies up to the store, which has no operations. Only the bounds of every target are
/// checked, not the answer.
///
/// # Panics
/// When serving panics, or when no runtime can be built.
pub fn s3_request(input: &[u8]) {
    SERVED.with(|served| {
        let (runtime, requests) = served.get_or_init(|| {
            let runtime = Builder::new_current_thread().enable_all().build();
            (runtime.expect("a runtime of one thread"), Requests::default())
        });
        runtime.block_on(requests.serve(input));
    });
}

/// Reads the input as each part of a request that has a grammar of its own: tags, tokens of
/// listings, keys, files of access keys; then its first line as a query and up to 64 further lines
/// as headers. Tags, tokens and percent-encoded text must come back after they are written and read
/// again, and a key after it was turned into a path.
///
/// # Panics
/// When one of that does not hold, or when reading panics.
pub fn s3_text(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    texts(text);
    let mut lines = text.split('\n');
    let query = lines.next().unwrap_or_default();
    let mut headers = HeaderMap::new();
    for line in lines.take(64) {
        let Some((name, value)) = line.split_once(':') else { continue };
        let header = (HeaderName::try_from(name), HeaderValue::try_from(value));
        if let (Ok(name), Ok(value)) = header {
            headers.append(name, value);
        }
    }
    checks(query, &headers);
}

/// Reads the input as every source of notices does: bodies of the clouds' metadata services, files,
/// webhooks, and times in each of their formats. Only the bounds of every target are checked.
///
/// # Panics
/// When reading panics.
pub fn notice(input: &[u8]) {
    if let Ok(text) = str::from_utf8(input) {
        let _ = read_everything(text);
    }
}

/// Reads the input as the name of a preemption model, as a trace, and as recorded lifetimes. Only
/// the bounds of every target are checked.
///
/// # Panics
/// When reading panics.
pub fn model(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    let _ = text.parse::<Spec>();
    let _ = text.parse::<Trace>();
    let _ = Lifetimes::parse(text, &Filter::default());
}
