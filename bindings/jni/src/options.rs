//! Options as Java gives them.

use std::path::PathBuf;
use std::time::Duration;

use sanderling_client::{ClientConfig, ClientTls, Credentials, PutOptions, TLS_NAME, TokenSource};
use sanderling_protocol::message::{
    Affinity, Condition, CreateMode, JobHints, JobLimits, RegisterJob,
};
use sanderling_protocol::{Millis, ObjectId, Token};

use crate::encoding::Decoder;
use crate::error::NativeError;

/// Reads the address to connect to, and how.
///
/// # Errors
/// [`NativeError::Credentials`] when a file cannot be read or is none.
pub(crate) fn connection(decoder: &mut Decoder<'_>) -> Result<(String, ClientConfig), NativeError> {
    let address = decoder.text()?.to_owned();
    let call_deadline = Duration::from_millis(decoder.optional()?.unwrap_or_default());
    let (token, token_file) = (decoder.text()?, decoder.text()?);
    let (ca_file, tls_name) = (decoder.text()?, decoder.text()?);
    let token = match (token, token_file) {
        ("", "") => None,
        ("", file) => Some(TokenSource::File(PathBuf::from(file))),
        (text, _) => Some(TokenSource::Given(Token::new(text))),
    };
    if let Some(token) = &token {
        token.token(None).map_err(|error| NativeError::Credentials(error.to_string()))?;
    }
    let name = if tls_name.is_empty() { TLS_NAME } else { tls_name };
    let read = |file: &str| ClientTls::read(file.as_ref(), name);
    let tls = (!ca_file.is_empty()).then(|| read(ca_file)).transpose();
    let tls = tls.map_err(|error| NativeError::Credentials(error.to_string()))?;
    let credentials = Credentials { token, tls };
    let same_host = decoder.flag()?;
    Ok((address, ClientConfig { call_deadline, credentials, same_host, ..ClientConfig::default() }))
}

/// Reads how an object is created.
///
/// # Errors
/// The refusal of an unknown storage class or a bad path of affinity.
pub(crate) fn put(decoder: &mut Decoder<'_>) -> Result<PutOptions, NativeError> {
    let (is_replaced, parents) = (decoder.flag()?, decoder.flag()?);
    let (is_listed, is_inline_allowed) = (decoder.flag()?, decoder.flag()?);
    let delete_after_read = decoder.flag()?;
    let (ttl, expected_bytes) = (decoder.optional()?.map(Millis), decoder.optional()?);
    let recompute = decoder.optional()?.map(Millis);
    let condition = match decoder.number()? {
        -1 => None,
        0 => Some(Condition::Absent),
        object => Some(Condition::Is(ObjectId(object as u64))),
    };
    let class = match decoder.text()? {
        "" => PutOptions::default().class,
        text => text.parse()?,
    };
    let affinity = match decoder.text()? {
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
        attributes: decoder.attributes()?,
        is_inline_allowed,
        recompute,
        ..PutOptions::default()
    })
}

/// Reads what job is wanted, and what it may hold.
///
/// # Errors
/// The refusal of a bad path.
pub(crate) fn job(decoder: &mut Decoder<'_>) -> Result<(RegisterJob, JobLimits), NativeError> {
    let path = decoder.path()?;
    let lease = Millis(decoder.optional()?.unwrap_or_default());
    let quota_bytes = decoder.optional()?;
    let limits = JobLimits { names: decoder.optional()?, attribute_bytes: decoder.optional()? };
    let hints = JobHints {
        expected_bytes: decoder.optional()?,
        throughput_bytes_per_second: decoder.optional()?,
        recompute_millis_per_mib: decoder.optional()?,
        expected_reads: decoder.optional()?.map(|reads| u32::try_from(reads).unwrap_or(u32::MAX)),
        is_latency_sensitive: decoder.flag()?,
        delete_after_read: decoder.flag()?,
        keep_after_job: decoder.flag()?,
    };
    Ok((RegisterJob { path, lease, quota_bytes, hints }, limits))
}
