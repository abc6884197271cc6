//! Where the web console is: a flag of the servers that link to it.

use std::str::FromStr;

use clap::Args;
use sanderling_command::cluster::first_address;
use sanderling_protocol::ports::NAMENODE_HTTP_PORT;
use thiserror::Error;

/// The console's address.
#[derive(Debug, Clone, Args)]
pub(crate) struct ConsoleArgs {
    /// The web console's address, to which `/` of this server's HTTP links [default: the
    /// namenode's host and the port after its port]
    #[arg(long, value_name = "URL", help_heading = "Network options")]
    pub(crate) console: Option<ConsoleUrl>,
}

/// A URL that a page may link to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConsoleUrl(String);

/// Why a text is no URL of a console.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("it is no address of HTTP, such as https://HOST:{NAMENODE_HTTP_PORT}/")]
pub(crate) struct ConsoleUrlError;

impl FromStr for ConsoleUrl {
    type Err = ConsoleUrlError;

    fn from_str(text: &str) -> Result<Self, ConsoleUrlError> {
        match text.starts_with("http://") || text.starts_with("https://") {
            true => Ok(Self(text.to_owned())),
            false => Err(ConsoleUrlError),
        }
    }
}

impl ConsoleArgs {
    /// Returns the address.
    pub(crate) fn url(&self, namenode: &str, has_tls: bool) -> String {
        match &self.console {
            Some(ConsoleUrl(url)) => url.clone(),
            None => default_url(namenode, has_tls),
        }
    }
}

fn default_url(namenode: &str, has_tls: bool) -> String {
    let scheme = if has_tls { "https" } else { "http" };
    let (host, port) = first_address(namenode).rsplit_once(':').unwrap_or((namenode, ""));
    let next = port.parse::<u16>().ok().and_then(|port| port.checked_add(1));
    let port = next.unwrap_or(NAMENODE_HTTP_PORT);
    format!("{scheme}://{host}:{port}/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_is_the_port_after_the_namenodes() {
        let console = ConsoleArgs { console: None };
        let url = |namenode| console.url(namenode, true);
        assert_eq!(url("10.0.0.1:7600"), "https://10.0.0.1:7601/");
        assert_eq!(url("[::1]:7600"), "https://[::1]:7601/");
        assert_eq!(default_url("nn:65535", false), "http://nn:7601/");
        let given: ConsoleUrl = "https://console/".parse().expect("a URL");
        let other = ConsoleArgs { console: Some(given) };
        assert_eq!(other.url("nn:7600", true), "https://console/");
        assert_eq!("javascript:1".parse::<ConsoleUrl>(), Err(ConsoleUrlError));
    }
}
