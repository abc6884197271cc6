//! Pages of other sites, which make a browser send requests to endpoints without authentication.

use std::net::IpAddr;

use hyper::header::{HOST, HeaderName, ORIGIN};
use hyper::http::uri::Authority;
use hyper::{HeaderMap, Method};

/// Ends of names that cannot be registered in public: a page of the internet has no such name.
/// `localhost`, `local` and `home.arpa` are special-use names (RFC 6761, 6762, 8375), `internal` is
/// reserved for private use (ICANN, 2024).
const PRIVATE_ENDS: [&str; 4] = [".localhost", ".local", ".internal", ".home.arpa"];

/// Which page sent a request, by the browser: `same-origin`, `same-site`, `cross-site`, or `none`
/// for the user's own (W3C, Fetch Metadata).
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// `navigate` for what a window or a frame shows.
const MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
/// `document` for what a window shows: a frame has another one.
const DESTINATION: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// A reason why a request of a browser is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SiteRefusal {
    /// A page of another site sent it.
    OtherSite,
    /// The name in `Host` may have been made to lead here.
    UnknownName,
}

impl SiteRefusal {
    /// Returns why the request is refused and, where there is one, the operator's next step, as
    /// text.
    #[must_use]
    pub const fn why(self) -> &'static str {
        match self {
            Self::OtherSite => "requests that come from pages of other sites are refused",
            Self::UnknownName => {
                "this server does not have the name in Host: use the machine's address or its own \
                 name, or start the server with --secret-file"
            }
        }
    }
}

/// Returns why a request of a browser is refused, if it is: a page of another site sent it, or a
/// page whose name was made to lead here. Requests of programs other than browsers pass, and so do
/// links that lead here from other sites.
///
/// `Origin` alone does not name the page: a browser leaves it out when a page loads an image or a
/// script. It then sends `Sec-Fetch-Site`, to `localhost` and over TLS.
///
/// The name is checked only at an endpoint where `is_open`, that is where no token is required: a
/// browser keeps no token for a page. The endpoint then must be called by an address, by a name
/// without a dot, by one that cannot be registered in public, or by the machine's own name.
#[must_use]
pub fn refused_site(method: &Method, headers: &HeaderMap, is_open: bool) -> Option<SiteRefusal> {
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let host = text(HOST);
    if let Some(origin) = text(ORIGIN) {
        let authority = origin.split_once("://").map(|(_, authority)| authority);
        if authority.is_none() || authority != host {
            return Some(SiteRefusal::OtherSite);
        }
    }
    let is_link = *method == Method::GET
        && text(MODE) == Some("navigate")
        && text(DESTINATION).is_none_or(|destination| destination == "document");
    if text(SITE).is_some_and(|site| !["same-origin", "none"].contains(&site)) && !is_link {
        return Some(SiteRefusal::OtherSite);
    }
    if is_open && host.is_some_and(|host| !is_ours(host)) {
        return Some(SiteRefusal::UnknownName);
    }
    None
}

fn is_ours(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host().trim_end_matches('.').to_ascii_lowercase();
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    bare.parse::<IpAddr>().is_ok()
        || !name.contains('.')
        || PRIVATE_ENDS.iter().any(|end| name.ends_with(end))
        || own_name().is_some_and(|own| own.trim().eq_ignore_ascii_case(&name))
}

fn own_name() -> Option<String> {
    std::fs::read_to_string("/proc/sys/kernel/hostname").ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(host: Option<&str>, origin: Option<&str>, is_open: bool) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in [(HOST, host), (ORIGIN, origin)] {
            if let Some(value) = value {
                headers.insert(name, value.parse().unwrap());
            }
        }
        refused_site(&Method::GET, &headers, is_open).is_some()
    }

    #[test]
    fn page_of_another_site_sends_nothing() {
        for is_open in [true, false] {
            assert!(refused(Some("localhost:7601"), Some("http://evil.example"), is_open));
            assert!(refused(Some("localhost:7601"), Some("http://localhost:8080"), is_open));
            assert!(refused(Some("localhost:7601"), Some("null"), is_open));
            assert!(refused(None, Some("http://localhost:7601"), is_open));
            assert!(!refused(Some("localhost:7601"), Some("http://localhost:7601"), is_open));
            assert!(!refused(Some("localhost:7601"), None, is_open));
        }
    }

    #[test]
    fn page_of_another_site_loads_nothing_but_a_link_leads_here() {
        let refused = |method: Method, site: &str, mode: &str, destination: &str| {
            let mut headers = HeaderMap::new();
            let all =
                [(HOST, "a.localhost"), (SITE, site), (MODE, mode), (DESTINATION, destination)];
            for (name, value) in all.into_iter().filter(|(_, value)| !value.is_empty()) {
                headers.insert(name, value.parse().unwrap());
            }
            refused_site(&method, &headers, true).is_some()
        };
        for site in ["cross-site", "same-site", "else"] {
            assert!(refused(Method::GET, site, "no-cors", "image"), "{site}");
            assert!(refused(Method::GET, site, "cors", "empty"), "{site}");
            assert!(refused(Method::GET, site, "navigate", "iframe"), "{site}");
            assert!(refused(Method::GET, site, "", ""), "{site}");
            assert!(refused(Method::POST, site, "navigate", "document"), "{site}");
            assert!(!refused(Method::GET, site, "navigate", "document"), "{site}");
        }
        for site in ["same-origin", "none", ""] {
            assert!(!refused(Method::GET, site, "cors", "empty"), "{site}");
            assert!(!refused(Method::POST, site, "cors", "empty"), "{site}");
        }
    }

    #[test]
    fn page_whose_name_leads_here_is_not_taken_for_ours() {
        let ours = [
            "127.0.0.1",
            "10.1.2.3:7601",
            "[::1]:7601",
            "localhost",
            "namenode:7601",
            "LOCALHOST.",
            "nn.default.svc.cluster.local",
            "ip-10-0-0-1.ec2.internal:80",
        ];
        for host in ours {
            assert!(!refused(Some(host), None, true), "{host}");
        }
        for host in ["evil.example:7601", "127.0.0.1.evil.example", "evil.local.example", "a b", ""]
        {
            assert!(refused(Some(host), None, true), "{host}");
            assert!(refused(Some(host), Some(&format!("http://{host}")), true), "{host}");
        }
        assert!(!refused(Some("nn1.example.com"), None, false), "a token is required there");
        assert!(!refused(None, None, true), "no browser leaves the name out");
    }
}
