//! Options, as both languages pass them.

use std::path::Path as FilePath;

use sanderling_client::{Client, ClientError, ClientTls, Credentials, TLS_NAME, TokenSource};
use sanderling_protocol::message::{Affinity, Condition, JobInfo, JobLimits, RegisterJob};
use sanderling_protocol::{ObjectId, Refusal, Token};

/// Returns what a client shows to the cluster: a token, or the file that has it, and the file of
/// the authorities that its servers' certificates come from.
///
/// # Errors
/// Why a file cannot be read, or has no token or certificate: name another one.
pub fn credentials(
    token: Option<&str>,
    token_file: Option<&FilePath>,
    tls_ca: Option<&FilePath>,
    tls_name: Option<&str>,
) -> Result<Credentials, String> {
    let token = match (token, token_file) {
        (Some(text), _) => Some(TokenSource::Given(Token::new(text))),
        (None, Some(file)) => Some(TokenSource::File(file.to_owned())),
        (None, None) => None,
    };
    if let Some(token) = &token {
        token.token(None).map_err(|error| error.to_string())?;
    }
    let read = |file| ClientTls::read(file, tls_name.unwrap_or(TLS_NAME));
    let tls = tls_ca.map(read).transpose().map_err(|error| error.to_string())?;
    Ok(Credentials { token, tls })
}

/// Returns what a new object is to be near: an object's path, which begins with a slash, or a host.
///
/// # Errors
/// The refusal of a bad path.
pub fn affinity(text: &str) -> Result<Affinity, Refusal> {
    match text.starts_with('/') {
        true => Ok(Affinity::Object(text.parse()?)),
        false => Ok(Affinity::Host(text.to_owned())),
    }
}

/// Returns what must be under a name: an object, or with 0, the id that no object has, nothing.
#[must_use]
pub const fn condition(object: u64) -> Condition {
    if object == 0 { Condition::Absent } else { Condition::Is(ObjectId(object)) }
}

/// Registers a job, also with a namenode of the release before, which has no limits.
///
/// # Errors
/// As [`Client::register_job`].
pub async fn register_job(
    client: &Client,
    request: RegisterJob,
    limits: JobLimits,
) -> Result<JobInfo, ClientError> {
    if limits == JobLimits::default() {
        return client.register_job(request).await;
    }
    client.register_limited_job(request, limits).await
}
