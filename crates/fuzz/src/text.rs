//! Texts: tokens, requests of S3, notices, models of preemptions.

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

/// A token, with any signature or none.
///
/// # Panics
/// When an unsigned token is accepted.
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

/// What a client of the gateway sends on a connection.
///
/// # Panics
/// When there is no runtime.
pub fn s3_request(input: &[u8]) {
    SERVED.with(|served| {
        let (runtime, requests) = served.get_or_init(|| {
            let runtime = Builder::new_current_thread().enable_all().build();
            (runtime.expect("a runtime of one thread"), Requests::default())
        });
        runtime.block_on(requests.serve(input));
    });
}

/// Parts of a request that have a grammar of their own: tags, tokens of listings, keys, queries and
/// headers, a header to each line behind the first.
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

/// A notice, from whatever source.
pub fn notice(input: &[u8]) {
    if let Ok(text) = str::from_utf8(input) {
        let _ = read_everything(text);
    }
}

/// A model of preemptions: its name, recorded lifetimes, a trace.
pub fn model(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    let _ = text.parse::<Spec>();
    let _ = text.parse::<Trace>();
    let _ = Lifetimes::parse(text, &Filter::default());
}
