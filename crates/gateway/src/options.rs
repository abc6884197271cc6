//! Configuration of a gateway.

use std::time::Duration;

use sanderling_client::ClientConfig;
use sanderling_protocol::Path;
use sanderling_protocol::ports::{CONSOLE_URL, NAMENODE_ADDRESS};
use sanderling_transport::{Expiries, ServerTls};

use crate::keys::AccessKeys;

/// Where S3 is served unless another address is given.
pub const S3_ADDRESS: &str = "127.0.0.1:7670";

/// Where a gateway serves health and metrics unless another address is given.
pub const S3_HTTP_ADDRESS: &str = "127.0.0.1:7671";

/// How a gateway behaves.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// The namenode's address.
    pub namenode: String,
    /// How the cluster is spoken to.
    pub client: ClientConfig,
    /// Where S3 is served; port 0 for any.
    pub listen: String,
    /// Where health and metrics are served, if they are.
    pub http_listen: Option<String>,
    /// The web console's address, to which its first page of HTTP links.
    pub console: String,
    /// The directory whose directories are the buckets.
    pub root: Path,
    /// The access keys and their rights; `None` for the public pair for this machine.
    pub keys: Option<AccessKeys>,
    /// Host names in front of which a bucket's name may stand.
    pub domains: Vec<String>,
    /// What S3 is served with; `None` for plain text.
    pub tls: Option<ServerTls>,
    /// Listen beyond loopback although others can read along, and, without keys, be served.
    pub allow_unauthenticated: bool,
    /// How long an upload in parts is kept that nothing is added to.
    pub upload_ttl: Duration,
    /// Most connections. Each may hold about eight blocks in memory: four on their way to
    /// datanodes, one that fills, two read ahead, and what HTTP buffers; beside them, one signed
    /// chunk of a body, of 16 MiB at most.
    pub connections_max: usize,
    /// How long a client may send nothing, or take nothing, while it is its turn.
    pub idle_timeout: Duration,
}

impl GatewayOptions {
    /// Returns the certificates that the gateway shows and trusts, for their expiry.
    #[must_use]
    pub fn expiries(&self) -> Expiries {
        Expiries::new(self.tls.clone(), self.client.credentials.tls.clone())
    }
}

impl Default for GatewayOptions {
    fn default() -> Self {
        Self {
            namenode: NAMENODE_ADDRESS.to_owned(),
            client: ClientConfig::default(),
            listen: S3_ADDRESS.to_owned(),
            console: CONSOLE_URL.to_owned(),
            http_listen: Some(S3_HTTP_ADDRESS.to_owned()),
            root: Path::root(),
            keys: None,
            domains: Vec::new(),
            tls: None,
            allow_unauthenticated: false,
            // As long as a job that writes one large object may take; data here is not kept for
            // years.
            upload_ttl: Duration::from_secs(24 * 60 * 60),
            // Two GiB if all of them were as busy as they can be.
            connections_max: 256,
            // Twice what hyper gives a head.
            idle_timeout: Duration::from_secs(60),
        }
    }
}
