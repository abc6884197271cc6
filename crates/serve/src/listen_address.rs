//! The addresses at which servers listen, as their flags and the keys of configuration files give
//! them: what is none is refused before the server starts.

use std::net::SocketAddr;
use std::str::FromStr;

use thiserror::Error;

/// Why a text is no address to listen at.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum ListenAddressError {
    /// It has no host or no port.
    #[error("an address to listen at is HOST:PORT, such as 127.0.0.1:0 for any free port")]
    NotHostAndPort,
    /// It has a host, and this server listens at numbers alone.
    #[error("an address to listen at is IP:PORT, such as 127.0.0.1:0 for any free port")]
    NotIpAndPort,
    /// It is neither an address nor `none`.
    #[error("an address to serve HTTP at is HOST:PORT, or none")]
    NeitherHostNorNone,
    /// The same for a server that listens at numbers alone.
    #[error("an address to serve HTTP at is IP:PORT, or none")]
    NeitherIpNorNone,
}

/// A host and a port to listen at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListenAddress(pub(crate) String);

/// Where pages are served: a host and a port, or nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PageAddress(pub(crate) Option<String>);

/// The number of a host and a port to listen at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ListenIp(pub(crate) SocketAddr);

/// Where a datanode serves pages: the number of a host and a port, or nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageIp(pub(crate) Option<SocketAddr>);

/// The word that stands for nowhere.
const NOWHERE: &str = "none";

impl FromStr for ListenAddress {
    type Err = ListenAddressError;

    fn from_str(text: &str) -> Result<Self, ListenAddressError> {
        match is_host_and_port(text) {
            true => Ok(Self(text.to_owned())),
            false => Err(ListenAddressError::NotHostAndPort),
        }
    }
}

impl FromStr for PageAddress {
    type Err = ListenAddressError;

    fn from_str(text: &str) -> Result<Self, ListenAddressError> {
        match text {
            NOWHERE => Ok(Self(None)),
            _ if is_host_and_port(text) => Ok(Self(Some(text.to_owned()))),
            _ => Err(ListenAddressError::NeitherHostNorNone),
        }
    }
}

impl FromStr for ListenIp {
    type Err = ListenAddressError;

    fn from_str(text: &str) -> Result<Self, ListenAddressError> {
        text.parse().map(Self).map_err(|_| ListenAddressError::NotIpAndPort)
    }
}

impl FromStr for PageIp {
    type Err = ListenAddressError;

    fn from_str(text: &str) -> Result<Self, ListenAddressError> {
        if text == NOWHERE {
            return Ok(Self(None));
        }
        let address = text.parse().map_err(|_| ListenAddressError::NeitherIpNorNone)?;
        Ok(Self(Some(address)))
    }
}

/// Returns whether a text is a number of a host or its name, and a port. An IPv6 address has
/// brackets.
fn is_host_and_port(text: &str) -> bool {
    if text.parse::<SocketAddr>().is_ok() {
        return true;
    }
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_of_name = |char: char| char.is_alphanumeric() || matches!(char, '-' | '.' | '_');
    let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
    !host.is_empty() && host.chars().all(is_of_name) && is_number && port.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_with_ports_are_addresses_and_nothing_else_is() {
        for text in ["127.0.0.1:0", "[::1]:7600", "localhost:7600", "nn-1.example:1"] {
            assert_eq!(text.parse(), Ok(ListenAddress(text.to_owned())), "{text}");
            assert_eq!(text.parse(), Ok(PageAddress(Some(text.to_owned()))), "{text}");
        }
        for text in ["nonsense", "NONE", "", ":7600", "a:b", "a:70000", "a:+1", "::1", "a b:1"] {
            assert!(text.parse::<ListenAddress>().is_err(), "{text}");
            assert!(text.parse::<PageAddress>().is_err(), "{text}");
            assert!(text.parse::<ListenIp>().is_err(), "{text}");
            assert!(text.parse::<PageIp>().is_err(), "{text}");
        }
        assert_eq!("none".parse(), Ok(PageAddress(None)));
        assert_eq!("none".parse(), Ok(PageIp(None)));
        assert!("none".parse::<ListenAddress>().is_err());
        assert!("localhost:0".parse::<ListenIp>().is_err(), "a datanode takes numbers alone");
    }
}
