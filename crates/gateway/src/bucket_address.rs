//! Where a request goes: the bucket's name stands in the path or before a known host name.

use hyper::{HeaderMap, Uri, header};
use s3s::S3Result;
use s3s::host::{S3Host, VirtualHost};
use s3s::validation::NameValidation;
use sanderling_protocol::limits::NAME_BYTES_MAX;

use crate::percent::decode;

/// The host names in front of which a bucket's name may stand.
#[derive(Debug, Clone, Default)]
pub(crate) struct Domains(pub(crate) Vec<String>);

/// What a request is about.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RequestTarget {
    pub(crate) bucket: String,
    pub(crate) has_key: bool,
}

impl Domains {
    /// Returns whether a request names one of them, with or without a bucket.
    pub(crate) fn is_known(&self, headers: &HeaderMap) -> bool {
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        host.is_some_and(|host| {
            let name = without_port(host);
            self.bucket(host).is_some() || self.0.iter().any(|domain| domain == name)
        })
    }

    /// Returns the bucket's name in the name of a host.
    fn bucket<'a>(&self, host: &'a str) -> Option<&'a str> {
        let name = without_port(host);
        self.0.iter().find_map(|domain| name.strip_suffix(domain)?.strip_suffix('.'))
    }

    /// Returns what a request is about; `None` when that is no bucket.
    pub(crate) fn place(&self, uri: &Uri, headers: &HeaderMap) -> Option<RequestTarget> {
        let path = decode(&uri.path().replace('+', "%2B"))?;
        let path = path.strip_prefix('/')?;
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let (bucket, key) = match host.and_then(|host| self.bucket(host)) {
            Some(bucket) => (bucket, path),
            None => path.split_once('/').unwrap_or((path, "")),
        };
        let is_bucket = AnyName.validate_bucket_name(bucket);
        is_bucket.then(|| RequestTarget { bucket: bucket.to_owned(), has_key: !key.is_empty() })
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

impl S3Host for Domains {
    fn parse_host_header<'a>(&'a self, host: &'a str) -> S3Result<VirtualHost<'a>> {
        Ok(match self.bucket(host) {
            Some(bucket) => VirtualHost::new(host).with_bucket(bucket),
            None => VirtualHost::new(host),
        })
    }
}

/// What other interfaces may have called a directory is a bucket too.
#[derive(Debug)]
pub(crate) struct AnyName;

impl NameValidation for AnyName {
    fn validate_bucket_name(&self, name: &str) -> bool {
        !name.is_empty() && name.len() <= NAME_BYTES_MAX && !matches!(name, "." | "..")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domains() -> Domains {
        Domains(vec!["s3.local".to_owned()])
    }

    #[test]
    fn bucket_may_stand_before_a_known_domain() {
        let domains = domains();
        let bucket = |host| {
            let parsed = domains.parse_host_header(host).unwrap();
            parsed.bucket().map(str::to_owned)
        };
        assert_eq!(bucket("data.s3.local:7670").as_deref(), Some("data"));
        assert_eq!(bucket("a.b.s3.local").as_deref(), Some("a.b"));
        let is_known = |host: &str| {
            domains.is_known(&HeaderMap::from_iter([(header::HOST, host.parse().unwrap())]))
        };
        assert!(is_known("s3.local:7670") && is_known("a.s3.local") && !is_known("xs3.local"));
        for host in ["s3.local", "localhost:7670", "xs3.local", "127.0.0.1"] {
            assert_eq!(bucket(host), None, "{host}");
        }
    }

    #[test]
    fn place_is_found_in_path_or_host() {
        let place = |host: &str, path: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            let place = domains().place(&path.parse().unwrap(), &headers)?;
            Some((place.bucket, place.has_key))
        };
        let of = |bucket: &str, has_key| Some((bucket.to_owned(), has_key));
        assert_eq!(place("h", "/b/k?x=/y"), of("b", true));
        assert_eq!(place("h", "/b%2Fk"), of("b", true));
        assert_eq!(place("h", "/b+c/"), of("b+c", false));
        assert_eq!(place("h", "/b"), of("b", false));
        assert_eq!(place("h", "/"), None);
        assert_eq!(place("h", "/../k"), None);
        assert_eq!(place("b.s3.local:80", "/k"), of("b", true));
        assert_eq!(place("b.s3.local", "/"), of("b", false));
    }
}
