//! Options, in the order in which Java encodes them.

use std::path::Path as FilePath;
use std::time::Duration;

use sanderling_client::{ClientConfig, PutOptions};
use sanderling_native::{Explicit, affinity, condition, credentials};
use sanderling_protocol::Millis;
use sanderling_protocol::message::{CreateMode, JobHints, JobLimits, RegisterJob};

use crate::encoding::{Decode, Decoder};
use crate::error::NativeError;

impl Decode for ClientConfig {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, NativeError> {
        let call_deadline = Duration::from_millis(decoder.optional()?.unwrap_or_default());
        let (token, token_file) = (decoder.some_text()?, decoder.some_text()?);
        let (tls_ca, tls_name) = (decoder.some_text()?, decoder.some_text()?);
        let (token_file, tls_ca) = (token_file.map(FilePath::new), tls_ca.map(FilePath::new));
        let credentials = credentials(token, token_file, tls_ca, tls_name);
        let credentials = credentials.map_err(NativeError::Credentials)?;
        let same_host = decoder.flag()?;
        Ok(Self { call_deadline, credentials, same_host, ..Self::default() })
    }
}

impl Decode for Explicit {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, NativeError> {
        let mut text = || decoder.some_text().map(|text| text.map(str::to_owned));
        Ok(Self {
            address: text()?,
            context: text()?,
            token: text()?,
            token_file: text()?.map(Into::into),
            tls_ca: text()?.map(Into::into),
            tls_name: text()?,
        })
    }
}

impl Decode for PutOptions {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, NativeError> {
        let (is_replaced, parents) = (decoder.flag()?, decoder.flag()?);
        let (is_listed, is_inline_allowed) = (decoder.flag()?, decoder.flag()?);
        let delete_after_read = decoder.flag()?;
        let (ttl, expected_bytes) = (decoder.optional()?.map(Millis), decoder.optional()?);
        let recompute = decoder.optional()?.map(Millis);
        let condition = match decoder.number()? {
            -1 => None,
            object => Some(condition(object as u64)),
        };
        let class = decoder.some_text()?.map(str::parse).transpose()?;
        let affinity = decoder.some_text()?.map(affinity).transpose()?;
        let default = Self::default();
        Ok(Self {
            mode: if is_replaced { CreateMode::Replace } else { CreateMode::New },
            condition,
            parents,
            is_listed,
            class: class.unwrap_or(default.class),
            affinity,
            ttl,
            delete_after_read,
            expected_bytes,
            attributes: decoder.next()?,
            is_inline_allowed,
            recompute,
            ..default
        })
    }
}

impl Decode for (RegisterJob, JobLimits) {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, NativeError> {
        let path = decoder.next()?;
        let lease = Millis(decoder.optional()?.unwrap_or_default());
        let quota_bytes = decoder.optional()?;
        let limits = JobLimits { names: decoder.optional()?, attribute_bytes: decoder.optional()? };
        let hints = JobHints {
            expected_bytes: decoder.optional()?,
            throughput_bytes_per_second: decoder.optional()?,
            recompute_millis_per_mib: decoder.optional()?,
            expected_reads: decoder.optional()?.map(|reads| reads.try_into().unwrap_or(u32::MAX)),
            is_latency_sensitive: decoder.flag()?,
            delete_after_read: decoder.flag()?,
            keep_after_job: decoder.flag()?,
        };
        Ok((RegisterJob { path, lease, quota_bytes, hints }, limits))
    }
}
