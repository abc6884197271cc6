//! Options, as both languages pass them.

use std::path::Path as FilePath;

use sanderling_client::{Client, ClientError, ClientTls, Credentials, TLS_NAME, TokenSource};
use sanderling_protocol::message::{Affinity, Condition, JobInfo, JobLimits, RegisterJob};
use sanderling_protocol::{ObjectId, Refusal, Token};
use sanderling_transport::{SecretError, TlsError};
use thiserror::Error;

/// Why there is nothing that a client could show to the cluster.
#[derive(Debug, Error)]
pub enum CredentialsError {
    /// The file of the token cannot be read, or has none.
    #[error("{0}")]
    Token(#[source] SecretError),
    /// The file of the authorities cannot be read, or has no certificate.
    #[error("{0}")]
    Tls(#[source] TlsError),
}

/// Returns what a client shows to the cluster: a token, or the file that has it, and the file of
/// the authorities that its servers' certificates come from.
///
/// # Errors
/// [`CredentialsError`]: name another file.
pub fn credentials(
    token: Option<&str>,
    token_file: Option<&FilePath>,
    tls_ca: Option<&FilePath>,
    tls_name: Option<&str>,
) -> Result<Credentials, CredentialsError> {
    let token = match (token, token_file) {
        (Some(text), _) => Some(TokenSource::Given(Token::new(text))),
        (None, Some(file)) => Some(TokenSource::File(file.to_owned())),
        (None, None) => None,
    };
    if let Some(token) = &token {
        token.token(None).map_err(CredentialsError::Token)?;
    }
    let read = |file| ClientTls::read(file, tls_name.unwrap_or(TLS_NAME));
    let tls = tls_ca.map(read).transpose().map_err(CredentialsError::Tls)?;
    Ok(Credentials { token, tls })
}

/// Returns what a new object is to be near: an object's path, which begins with a slash, or a host.
///
/// # Errors
/// [`Refusal::BadPath`]: correct the path.
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

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    #[test]
    fn missing_files_are_the_source_of_the_error() {
        let missing = FilePath::new("/there/is/none");
        let no_token = credentials(None, Some(missing), None, None).unwrap_err();
        assert!(no_token.source().is_some_and(|it| it.is::<SecretError>()), "{no_token}");
        let no_authority = credentials(None, None, Some(missing), None).unwrap_err();
        assert!(no_authority.source().is_some_and(|it| it.is::<TlsError>()), "{no_authority}");
    }
}
