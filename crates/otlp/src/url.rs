//! Where the collector is.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// The port of OTLP over HTTP.
const PORT: &str = "4318";

/// The page that takes spans, behind the base path of the URL.
const PAGE: &str = "/v1/traces";

/// A collector, as `--otlp` names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collector {
    /// Its host and port.
    pub(super) address: String,
    /// The page with its path.
    pub(super) target: String,
}

impl fmt::Display for Collector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "http://{}{}", self.address, self.target)
    }
}

/// A text that is no URL of a collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("give http://HOST[:PORT][/PATH]")]
pub struct CollectorError;

impl FromStr for Collector {
    type Err = CollectorError;

    fn from_str(text: &str) -> Result<Self, CollectorError> {
        let rest = text.strip_prefix("http://").ok_or(CollectorError)?;
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"@?#".contains(&byte);
        if host.is_empty() || host.starts_with(':') || !rest.bytes().all(is_plain) {
            return Err(CollectorError);
        }
        // A colon within brackets is one of IPv6.
        let has_port = host.rsplit(']').next().is_some_and(|end| end.contains(':'));
        let address = if has_port { host.to_owned() } else { format!("{host}:{PORT}") };
        let base = path.trim_end_matches('/');
        let base = base.strip_suffix(PAGE).unwrap_or(base);
        Ok(Self { address, target: format!("{base}{PAGE}") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_has_the_port_and_the_page_of_the_protocol_unless_it_names_them() {
        let read = |text: &str| text.parse::<Collector>().map(|it| it.to_string());
        for (text, url) in [
            ("http://c", "http://c:4318/v1/traces"),
            ("http://c:80/", "http://c:80/v1/traces"),
            ("http://[::1]", "http://[::1]:4318/v1/traces"),
            ("http://[::1]:9/otlp", "http://[::1]:9/otlp/v1/traces"),
            ("http://c/v1/traces", "http://c:4318/v1/traces"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(url));
        }
        for wrong in ["", "c:4318", "https://c", "http://", "http://:1", "http://u@c", "http://c d"]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
