//! Addresses: `host`, `host:port`, lists of them, and URLs of the scheme `sanderling`.

use std::net::Ipv6Addr;

use thiserror::Error;

/// The port of a namenode.
pub const DEFAULT_PORT: u16 = 7600;

/// The address of a namenode where none is given.
pub const DEFAULT_ADDRESS: &str = "127.0.0.1:7600";

/// Most addresses of one list, other than repetitions: as many as a group of namenodes may have
/// members (`MEMBERS_PER_LIST_MAX` of the protocol).
pub const ADDRESSES_MAX: usize = 16;

/// Begins a URL of the store.
const SCHEME: &str = "sanderling:";

/// Why a text is no address of a namenode. Each message has the text and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AddressError {
    /// Nothing is there.
    #[error("the namenode's address is empty: give host:port, such as {DEFAULT_ADDRESS}")]
    Empty,
    /// It is a URL of another scheme.
    #[error("{text:?} is a URL of {scheme}: the namenode's address is host:port{}", such_as(.host))]
    Scheme {
        /// What was given.
        text: String,
        /// Its scheme.
        scheme: String,
        /// An address made of the URL's host.
        host: Option<String>,
    },
    /// What follows the last colon is no port.
    #[error(
        "{text:?} has no valid port: it is a number from 1 to 65535, and {DEFAULT_PORT} without one"
    )]
    Port {
        /// What was given.
        text: String,
    },
    /// What precedes the port is no host.
    #[error("{text:?} has no valid host: give a name, an IPv4 address or [an IPv6 address]")]
    Host {
        /// What was given.
        text: String,
    },
    /// It has a user.
    #[error("{text:?} has a user: the token identifies the caller, an address is host:port")]
    User {
        /// What was given.
        text: String,
    },
    /// It has a path.
    #[error("{text:?} has a path: the namenode's address is host:port{}", such_as(.host))]
    HasPath {
        /// What was given.
        text: String,
        /// The address without the path.
        host: Option<String>,
    },
    /// An entry of a list is wrong.
    #[error("address {place} of {count} in {text:?}: {error}")]
    Entry {
        /// The list.
        text: String,
        /// The entry, counted from 1.
        place: usize,
        /// How many there are.
        count: usize,
        /// What is wrong with it.
        error: Box<Self>,
    },
    /// The list is too long.
    #[error("{count} addresses of namenodes are too many: give at most {ADDRESSES_MAX}")]
    TooMany {
        /// How many there are.
        count: usize,
    },
}

fn such_as(address: &Option<String>) -> String {
    address.as_ref().map_or_else(String::new, |address| format!(", such as {address}"))
}

/// A URL of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreUrl {
    /// The namenode's address, or several separated by commas; `None` for that of the current
    /// context.
    pub address: Option<String>,
    /// The path. It begins with a slash and is as the URL has it: nothing is decoded.
    pub path: String,
}

/// Returns the address of a namenode as `host:port`, or those of a group's members, separated by
/// commas: in their order, and each once. `sanderling://host` is understood, too; the port is
/// [`DEFAULT_PORT`] unless it is given.
///
/// # Errors
/// [`AddressError`]: correct the text.
pub fn address(text: &str) -> Result<String, AddressError> {
    if !text.contains(',') {
        return one(text);
    }
    let rest = text.trim();
    let start = rest.get(..SCHEME.len() + 2);
    let is_url = start.is_some_and(|start| start.eq_ignore_ascii_case("sanderling://"));
    // The scheme and the slash of a URL belong to the whole list.
    let rest = match is_url {
        true => rest[SCHEME.len() + 2..].trim_end_matches('/'),
        false => rest,
    };
    list(rest, one)
}

/// Returns the addresses of a text with commas, each of which `read` understands.
fn list(
    text: &str,
    read: impl Fn(&str) -> Result<String, AddressError>,
) -> Result<String, AddressError> {
    let entries: Vec<&str> = text.split(',').collect();
    let count = entries.len();
    let mut found: Vec<String> = Vec::new();
    for (place, entry) in entries.into_iter().enumerate() {
        let address = read(entry.trim()).map_err(|error| {
            let (text, place, error) = (text.to_owned(), place + 1, Box::new(error));
            AddressError::Entry { text, place, count, error }
        })?;
        if !found.contains(&address) {
            found.push(address);
        }
        // Where it is too long by far, the rest is not read.
        if found.len() > ADDRESSES_MAX {
            return Err(AddressError::TooMany { count });
        }
    }
    Ok(found.join(","))
}

fn one(text: &str) -> Result<String, AddressError> {
    let text = text.trim();
    let Some((scheme, rest)) = text.split_once("://") else {
        let (authority, path) = split(text);
        return match path.is_empty() {
            true => host_and_port(authority),
            false => Err(has_path(text, authority)),
        };
    };
    let (authority, path) = split(rest);
    if !scheme.eq_ignore_ascii_case("sanderling") {
        let host = host_of(authority).map(|host| format!("{host}:{DEFAULT_PORT}"));
        let scheme = scheme.to_owned();
        return Err(AddressError::Scheme { text: text.to_owned(), scheme, host });
    }
    match path {
        "" | "/" => host_and_port(authority),
        _ => Err(has_path(text, authority)),
    }
}

/// Splits a URL of the store: what follows `//` is a host, never a part of the path. Returns `None`
/// for a text of another kind, such as a path.
///
/// # Errors
/// [`AddressError`] when the URL's host or port is wrong.
pub fn url(text: &str) -> Result<Option<StoreUrl>, AddressError> {
    let start = text.get(..SCHEME.len()).filter(|start| start.eq_ignore_ascii_case(SCHEME));
    let Some(start) = start else { return Ok(None) };
    let rest = &text[start.len()..];
    let Some(rest) = rest.strip_prefix("//") else {
        let path = format!("/{}", rest.strip_prefix('/').unwrap_or(rest));
        return Ok(Some(StoreUrl { address: None, path }));
    };
    let (authority, path) = split(rest);
    let address = match authority {
        "" => None,
        authority if authority.contains(',') => Some(list(authority, host_and_port)?),
        authority => Some(host_and_port(authority)?),
    };
    let path = if path.is_empty() { "/".to_owned() } else { path.to_owned() };
    Ok(Some(StoreUrl { address, path }))
}

/// Splits what follows the scheme into the authority and the path with its slash.
fn split(text: &str) -> (&str, &str) {
    text.split_at(text.find('/').unwrap_or(text.len()))
}

fn has_path(text: &str, authority: &str) -> AddressError {
    AddressError::HasPath { text: text.to_owned(), host: host_and_port(authority).ok() }
}

fn host_and_port(text: &str) -> Result<String, AddressError> {
    if text.is_empty() {
        return Err(AddressError::Empty);
    }
    if text.contains('@') {
        return Err(AddressError::User { text: text.to_owned() });
    }
    // An IPv6 address without brackets has no port.
    if text.parse::<Ipv6Addr>().is_ok() {
        return Ok(format!("[{text}]:{DEFAULT_PORT}"));
    }
    let host = host_of(text).ok_or_else(|| AddressError::Host { text: text.to_owned() })?;
    let port = match text[host.len()..].strip_prefix(':') {
        None => DEFAULT_PORT,
        Some(port) => port_of(port).ok_or_else(|| AddressError::Port { text: text.to_owned() })?,
    };
    Ok(format!("{host}:{port}"))
}

/// Returns the host that a text begins with, with its brackets.
fn host_of(text: &str) -> Option<&str> {
    if text.starts_with('[') {
        let end = text.find(']')?;
        text[1..end].parse::<Ipv6Addr>().ok()?;
        let rest = &text[end + 1..];
        return (rest.is_empty() || rest.starts_with(':')).then_some(&text[..=end]);
    }
    let host = text.split(':').next()?;
    let is_host = |char: char| char.is_alphanumeric() || matches!(char, '-' | '.' | '_');
    (!host.is_empty() && host.chars().all(is_host)).then_some(host)
}

fn port_of(text: &str) -> Option<u16> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| is_number && *port != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table that the bindings are tested with, too.
    const TABLE: &str = include_str!("../../../conformance/addresses.tsv");

    #[test]
    fn addresses_and_urls_are_those_of_the_table() {
        let mut cases = 0;
        for line in TABLE.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let columns: Vec<&str> = line.split('\t').collect();
            let found = match columns[..] {
                ["address", given, ..] => address(given),
                ["url", given, ..] => url(given).map(|found| {
                    let found = found.expect("it is a URL of the store");
                    let address = found.address.unwrap_or_else(|| "-".to_owned());
                    format!("{address}\t{}", found.path)
                }),
                _ => panic!("{line:?} is no case"),
            };
            let found = found.unwrap_or_else(|error| format!("!{error}"));
            let wanted = columns[2..].join("\t");
            match wanted.strip_prefix('!') {
                Some(part) => assert!(found.starts_with('!') && found.contains(part), "{line}"),
                None => assert_eq!(found, wanted, "{line}"),
            }
            cases += 1;
        }
        assert!(cases > 20, "{cases}");
    }

    #[test]
    fn paths_are_no_urls() {
        for text in ["/data", "data", "s3://bucket/key", "sanderlings://a/b", "sander", ""] {
            assert_eq!(url(text), Ok(None), "{text}");
        }
    }
}
