//! Addresses: `host`, `host:port`, lists of them, and URLs of the scheme `sanderling`.

use std::net::Ipv6Addr;

use sanderling_protocol::limits::MEMBERS_PER_LIST_MAX;
use sanderling_protocol::ports::{NAMENODE_ADDRESS, NAMENODE_PORT};
use thiserror::Error;

/// Most addresses of one list, other than repetitions: as many as a list of a group's members has.
pub const ADDRESSES_MAX: usize = MEMBERS_PER_LIST_MAX;

/// Begins a URL of the store.
const SCHEME: &str = "sanderling:";

/// Why a text is no address of a namenode. Each message has the text and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AddressError {
    /// Nothing is there.
    #[error("the namenode's address is empty: give host:port, such as {NAMENODE_ADDRESS}")]
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
        "{text:?} has no valid port: it is a number from 1 to 65535, and {NAMENODE_PORT} without \
         one"
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

/// Returns a text with `***` for the user and the password of each URL in it, such as
/// `http://***@host`.
#[must_use]
pub fn without_users(text: &str) -> String {
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        shown.push_str(before);
        rest = after;
        let url = after.split(char::is_whitespace).next().unwrap_or_default();
        if let Some(end) = user_end(url) {
            shown.push_str("***");
            rest = &after[end..];
        }
    }
    shown.push_str(rest);
    shown
}

/// Returns where the `@` is that ends the user and the password of a URL without its scheme.
fn user_end(url: &str) -> Option<usize> {
    let authority = url.split(['/', '?', '#']).next()?;
    if authority.contains('@') {
        return authority.rfind('@');
    }
    // A password may have a slash. A port has digits alone; an access point's name has colons.
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_address = |entry: &str| {
        entry.starts_with('[') || entry.rsplit_once(':').is_none_or(|(_, port)| is_digits(port))
    };
    let has_none = authority.starts_with("arn:") || authority.split(',').all(is_address);
    url.rfind('@').filter(|_| !has_none)
}

/// Returns an address, or a list of them, with `***` for what precedes the last `@`.
fn shown(text: &str) -> String {
    let Some((before, host)) = text.rsplit_once('@') else { return text.to_owned() };
    let scheme = before.find("://").map_or("", |end| &before[..end + 3]);
    format!("{scheme}***@{host}")
}

fn such_as(address: &Option<String>) -> String {
    address.as_ref().map_or_else(String::new, |address| format!(", such as {address}"))
}

/// A URL of the store, such as `sanderling://host:7600/path`, taken apart.
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
/// [`NAMENODE_PORT`] unless it is given.
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
    if text.contains('@') {
        return Err(AddressError::User { text: shown(text) });
    }
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
        // With a user, what seems to be the host may be that.
        let host = host_of(authority).filter(|_| !text.contains('@'));
        let host = host.map(|host| format!("{host}:{NAMENODE_PORT}"));
        let scheme = scheme.to_owned();
        return Err(AddressError::Scheme { text: shown(text), scheme, host });
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
/// [`AddressError`] when the URL's host or port is wrong: correct the text.
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
    let host = host_and_port(authority).ok().filter(|_| !text.contains('@'));
    AddressError::HasPath { text: shown(text), host }
}

fn host_and_port(text: &str) -> Result<String, AddressError> {
    if text.is_empty() {
        return Err(AddressError::Empty);
    }
    if text.contains('@') {
        return Err(AddressError::User { text: shown(text) });
    }
    // An IPv6 address without brackets has no port.
    if text.parse::<Ipv6Addr>().is_ok() {
        return Ok(format!("[{text}]:{NAMENODE_PORT}"));
    }
    let host = host_of(text).ok_or_else(|| AddressError::Host { text: text.to_owned() })?;
    let port = match text[host.len()..].strip_prefix(':') {
        None => NAMENODE_PORT,
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
    fn user_and_password_are_not_shown() {
        for text in [
            "me:SECRET@nn",
            "SECRET@nn:7600",
            "a:1,me:SECRET@nn",
            "me:SEC,SECRET@nn",
            "me:1/SECRET@nn",
            "http://me:SECRET@nn",
            "http://me:1/SECRET@nn",
            "sanderling://me:SECRET@nn",
        ] {
            let refused = address(text).expect_err("it has a user").to_string();
            assert!(refused.contains("***@nn") && !refused.contains("SECRET"), "{refused}");
        }
        for (text, wanted) in [
            ("GET http://me:SECRET@nn:1/a, again", "GET http://***@nn:1/a, again"),
            ("'s3://me:SE/CRET@b/c' for", "'s3://***@b/c' for"),
            ("s3://b/me@c and http://d:1/e@f", "s3://b/me@c and http://d:1/e@f"),
            ("http://a@b http://c@d", "http://***@b http://***@d"),
            ("sanderling://h:1,i:2/users/a@b", "sanderling://h:1,i:2/users/a@b"),
            ("s3://arn:aws:s3:x:1:accesspoint/y/a@b", "s3://arn:aws:s3:x:1:accesspoint/y/a@b"),
        ] {
            assert_eq!(without_users(text), wanted);
        }
    }

    #[test]
    fn paths_are_no_urls() {
        for text in ["/data", "data", "s3://bucket/key", "sanderlings://a/b", "sander", ""] {
            assert_eq!(url(text), Ok(None), "{text}");
        }
    }
}
