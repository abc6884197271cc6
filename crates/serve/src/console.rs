//! Where the web console is: a flag of the servers that link to it.

use clap::Args;
use sanderling_cli_common::cluster::first_address;
use sanderling_cli_common::failure::Failure;

/// The console's address.
#[derive(Debug, Clone, Args)]
pub(crate) struct ConsoleArgs {
    /// The web console's address, to which `/` of this server's HTTP links [default: the
    /// namenode's host and the port after its port]
    #[arg(long, value_name = "URL")]
    pub(crate) console: Option<String>,
}

impl ConsoleArgs {
    /// Returns the address.
    ///
    /// # Errors
    /// Usage (2) when it is none of HTTP.
    pub(crate) fn url(&self, namenode: &str, has_tls: bool) -> Result<String, Failure> {
        match &self.console {
            Some(url) if url.starts_with("http://") || url.starts_with("https://") => {
                Ok(url.clone())
            }
            Some(url) => Err(Failure::usage(format_args!("--console {url} is no address of HTTP"))
                .next("the same with --console https://HOST:7601/")),
            None => Ok(default_url(namenode, has_tls)),
        }
    }
}

fn default_url(namenode: &str, has_tls: bool) -> String {
    let scheme = if has_tls { "https" } else { "http" };
    let (host, port) = first_address(namenode).rsplit_once(':').unwrap_or((namenode, ""));
    let port = port.parse::<u16>().ok().and_then(|port| port.checked_add(1)).unwrap_or(7601);
    format!("{scheme}://{host}:{port}/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_is_the_port_after_the_namenodes() {
        let console = ConsoleArgs { console: None };
        let url = |namenode| console.url(namenode, true).unwrap();
        assert_eq!(url("10.0.0.1:7600"), "https://10.0.0.1:7601/");
        assert_eq!(url("[::1]:7600"), "https://[::1]:7601/");
        assert_eq!(default_url("nn:65535", false), "http://nn:7601/");
        let other = ConsoleArgs { console: Some("javascript:1".to_owned()) };
        assert!(other.url("nn:7600", true).is_err());
    }
}
