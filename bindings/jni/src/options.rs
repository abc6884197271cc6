//! Options as Java gives them.

use std::path::PathBuf;
use std::time::Duration;

use sanderling_client::{ClientConfig, ClientTls, Credentials, PutOptions, TLS_NAME, TokenSource};
use sanderling_protocol::message::{
    Affinity, Condition, CreateMode, JobHints, JobLimits, RegisterJob,
};
use sanderling_protocol::{Millis, ObjectId, Token};

use crate::error::Trouble;
use crate::facts::Given;

/// Reads the address to connect to, and how.
///
/// # Errors
/// [`Trouble::Credentials`] when a file cannot be read or is none.
pub(crate) fn connection(given: &mut Given<'_>) -> Result<(String, ClientConfig), Trouble> {
    let address = given.text()?.to_owned();
    let call_deadline = Duration::from_millis(given.optional()?.unwrap_or_default());
    let (token, token_file) = (given.text()?, given.text()?);
    let (ca_file, tls_name) = (given.text()?, given.text()?);
    let token = match (token, token_file) {
        ("", "") => None,
        ("", file) => Some(TokenSource::File(PathBuf::from(file))),
        (text, _) => Some(TokenSource::Given(Token::new(text))),
    };
    if let Some(token) = &token {
        token.token(None).map_err(|error| Trouble::Credentials(error.to_string()))?;
    }
    let name = if tls_name.is_empty() { TLS_NAME } else { tls_name };
    let read = |file: &str| ClientTls::read(file.as_ref(), name);
    let tls = (!ca_file.is_empty()).then(|| read(ca_file)).transpose();
    let tls = tls.map_err(|error| Trouble::Credentials(error.to_string()))?;
    let credentials = Credentials { token, tls };
    let same_host = given.flag()?;
    Ok((address, ClientConfig { call_deadline, credentials, same_host, ..ClientConfig::default() }))
}

/// Reads how an object is created.
///
/// # Errors
/// The refusal of an unknown storage class or a bad path of affinity.
pub(crate) fn put(given: &mut Given<'_>) -> Result<PutOptions, Trouble> {
    let (is_replaced, parents) = (given.flag()?, given.flag()?);
    let (is_listed, is_inline_allowed) = (given.flag()?, given.flag()?);
    let delete_after_read = given.flag()?;
    let (ttl, expected_bytes) = (given.optional()?.map(Millis), given.optional()?);
    let recompute = given.optional()?.map(Millis);
    let condition = match given.number()? {
        -1 => None,
        0 => Some(Condition::Absent),
        object => Some(Condition::Is(ObjectId(object as u64))),
    };
    let class = match given.text()? {
        "" => PutOptions::default().class,
        text => text.parse()?,
    };
    let affinity = match given.text()? {
        "" => None,
        text if text.starts_with('/') => Some(Affinity::Object(text.parse()?)),
        host => Some(Affinity::Host(host.to_owned())),
    };
    Ok(PutOptions {
        mode: if is_replaced { CreateMode::Replace } else { CreateMode::New },
        condition,
        parents,
        is_listed,
        class,
        affinity,
        ttl,
        delete_after_read,
        expected_bytes,
        attributes: given.attributes()?,
        is_inline_allowed,
        recompute,
        ..PutOptions::default()
    })
}

/// Reads what job is wanted, and what it may hold.
///
/// # Errors
/// The refusal of a bad path.
pub(crate) fn job(given: &mut Given<'_>) -> Result<(RegisterJob, JobLimits), Trouble> {
    let path = given.path()?;
    let lease = Millis(given.optional()?.unwrap_or_default());
    let quota_bytes = given.optional()?;
    let limits = JobLimits { names: given.optional()?, attribute_bytes: given.optional()? };
    let hints = JobHints {
        expected_bytes: given.optional()?,
        throughput_bytes_per_second: given.optional()?,
        recompute_millis_per_mib: given.optional()?,
        expected_reads: given.optional()?.map(|reads| u32::try_from(reads).unwrap_or(u32::MAX)),
        is_latency_sensitive: given.flag()?,
        delete_after_read: given.flag()?,
        keep_after_job: given.flag()?,
    };
    Ok((RegisterJob { path, lease, quota_bytes, hints }, limits))
}
