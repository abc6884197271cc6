//! A store from its parts, or from a URL and options.

use std::time::Duration;

use object_store::path::Path as Location;
use object_store::{Error, ObjectStore};
use sanderling_client::{Client, ClientConfig, PutOptions, TokenSource};
use sanderling_protocol::ports::NAMENODE_PORT;
use sanderling_protocol::{Millis, Path, Refusal, StorageClass};
use thiserror::Error as ThisError;
use url::Url;

use crate::error::{self, Result};
use crate::store::SanderlingStore;

/// Bytes of one piece of a stream. Up to three pieces are in memory: two on their way and one in
/// the caller's hands. An object that is not longer is handed out as it came, without a copy. Two
/// frames of 4 MiB (`ClientConfig::read_frame_bytes_max`). Chosen, not measured.
const READ_AHEAD_BYTES: u64 = 8 << 20;

/// Time without a new part after which an incomplete upload vanishes. Longer than a task pauses
/// between two parts, short enough that what a killed one left does not fill the cluster. Chosen,
/// not measured.
const UPLOAD_TTL: Millis = Millis::from_secs(3600);

/// The settings of a store.
#[derive(Debug, Clone)]
pub(crate) struct StoreOptions {
    pub(crate) address: String,
    pub(crate) prefix: Path,
    pub(crate) client: ClientConfig,
    pub(crate) put: PutOptions,
    pub(crate) read_ahead_bytes: u64,
    pub(crate) upload_ttl: Millis,
}

/// Builds a [`SanderlingStore`] from options.
#[derive(Debug, Clone)]
pub struct StoreBuilder {
    options: StoreOptions,
    connected: Option<Client>,
}

/// Why a URL or an option is refused.
#[derive(Debug, ThisError)]
enum BadOption {
    #[error("{url} is no URL of a store: use sanderling://host:port/path")]
    Url { url: String },
    #[error("{key} = {value:?}: {fault}")]
    Value {
        key: String,
        value: String,
        #[source]
        fault: OptionFault,
    },
}

/// What is wrong with the value of an option.
#[derive(Debug, ThisError)]
enum OptionFault {
    #[error("{0}")]
    Time(#[from] humantime::DurationError),
    #[error("{0}")]
    Class(#[from] Refusal),
    #[error("it must be a number of bytes above 0")]
    NoBytes,
}

impl StoreBuilder {
    /// Begins a store of the whole cluster whose namenode is at `host:port`. It connects when it is
    /// first used.
    #[must_use]
    pub fn new(address: impl Into<String>) -> Self {
        let options = StoreOptions {
            address: address.into(),
            prefix: Path::root(),
            client: ClientConfig::default(),
            put: PutOptions::replacing(),
            read_ahead_bytes: READ_AHEAD_BYTES,
            upload_ttl: UPLOAD_TTL,
        };
        Self { options, connected: None }
    }

    /// Begins a store over a client that is connected already.
    #[must_use]
    pub fn of_client(client: Client) -> Self {
        let mut builder = Self::new(client.namenode());
        builder.options.client = client.config().clone();
        builder.connected = Some(client);
        builder
    }

    /// Begins a store of the subtree that `sanderling://host:port/path` names.
    ///
    /// # Errors
    /// `Generic` when it is not such a URL: correct it.
    pub fn from_url(url: &str) -> Result<Self> {
        let bad = || error::bad(BadOption::Url { url: url.to_owned() });
        let (builder, location) = of_url(&Url::parse(url).map_err(|_| bad())?)?;
        let prefix = crate::keys::path(&Path::root(), &location)?;
        Ok(builder.with_prefix(prefix))
    }

    /// Keeps all locations below a directory, which need not exist.
    #[must_use]
    pub fn with_prefix(mut self, prefix: Path) -> Self {
        self.options.prefix = prefix;
        self
    }

    /// Sets the configuration with which the store connects to the cluster.
    #[must_use]
    pub fn with_client_config(mut self, config: ClientConfig) -> Self {
        self.options.client = config;
        self
    }

    /// Sets the storage class of all objects that the store writes.
    #[must_use]
    pub const fn with_storage_class(mut self, class: StorageClass) -> Self {
        self.options.put.class = class;
        self
    }

    /// Sets the time after which objects that the store writes are deleted; `None` keeps them.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Option<Duration>) -> Self {
        self.options.put.ttl = ttl.map(Millis::from);
        self
    }

    /// Sets the bytes of one piece of a stream, of which up to three are in memory.
    #[must_use]
    pub fn with_read_ahead_bytes(mut self, bytes: u64) -> Self {
        self.options.read_ahead_bytes = bytes.max(1);
        self
    }

    /// Sets the time without a new part after which an incomplete upload vanishes.
    #[must_use]
    pub fn with_upload_ttl(mut self, ttl: Duration) -> Self {
        self.options.upload_ttl = ttl.into();
        self
    }

    /// Sets an option by its name: `storage_class` (`dram` or `disk`, then `:fall-through`, `:wait`
    /// or `:refuse`), `ttl`, `timeout` and `upload_ttl` (like `90s`), `read_ahead_bytes`,
    /// `token_file`.
    ///
    /// # Errors
    /// `UnknownConfigurationKey`: use one of the names above. `Generic` with what is wrong about
    /// the value: correct it.
    pub fn with_option(self, key: &str, value: &str) -> Result<Self> {
        let bad = |fault| {
            let (key, value) = (key.to_owned(), value.to_owned());
            error::bad(BadOption::Value { key, value, fault })
        };
        let time = || humantime::parse_duration(value).map_err(|error| bad(error.into()));
        Ok(match key {
            "storage_class" => {
                let class = value.parse::<StorageClass>();
                self.with_storage_class(class.map_err(|refusal| bad(refusal.into()))?)
            }
            "ttl" => self.with_ttl(Some(time()?)),
            "upload_ttl" => self.with_upload_ttl(time()?),
            "timeout" => {
                let config = ClientConfig { call_deadline: time()?, ..self.options.client.clone() };
                self.with_client_config(config)
            }
            "token_file" => {
                let mut config = self.options.client.clone();
                config.credentials.token = Some(TokenSource::File(value.into()));
                self.with_client_config(config)
            }
            "read_ahead_bytes" => match value.parse() {
                Ok(bytes) if bytes > 0 => self.with_read_ahead_bytes(bytes),
                _ => return Err(bad(OptionFault::NoBytes)),
            },
            _ => {
                let key = key.to_owned();
                return Err(Error::UnknownConfigurationKey { store: error::STORE, key });
            }
        })
    }

    /// Returns the store. It connects to the cluster in its first call, unless it was built over a
    /// client.
    #[must_use]
    pub fn build(self) -> SanderlingStore {
        SanderlingStore::of_options(self.options, self.connected)
    }
}

impl SanderlingStore {
    /// Returns a store of a whole cluster over a client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        StoreBuilder::of_client(client).build()
    }

    /// Returns a store of the subtree that `sanderling://host:port/path` names.
    ///
    /// # Errors
    /// `Generic` when it is not such a URL: correct it. The first call reports a namenode that does
    /// not listen.
    pub fn from_url(url: &str) -> Result<Self> {
        Ok(StoreBuilder::from_url(url)?.build())
    }
}

/// Returns the store of `sanderling://host:port`, and the location in it that the URL names.
///
/// # Errors
/// `Generic` when it is not such a URL: correct it.
pub fn parse_url(url: &Url) -> Result<(Box<dyn ObjectStore>, Location)> {
    parse_url_opts(url, std::iter::empty::<(&str, &str)>())
}

/// Returns the store of `sanderling://host:port` with the options of [`StoreBuilder::with_option`],
/// and the location in it that the URL names.
///
/// # Errors
/// As [`parse_url`] and [`StoreBuilder::with_option`].
pub fn parse_url_opts<K: AsRef<str>, V: AsRef<str>>(
    url: &Url,
    options: impl IntoIterator<Item = (K, V)>,
) -> Result<(Box<dyn ObjectStore>, Location)> {
    let (builder, location) = of_url(url)?;
    let builder = options.into_iter().try_fold(builder, |builder, (key, value)| {
        builder.with_option(key.as_ref(), value.as_ref())
    })?;
    Ok((Box::new(builder.build()), location))
}

fn of_url(url: &Url) -> Result<(StoreBuilder, Location)> {
    let host = url.host_str().filter(|host| !host.is_empty());
    match (url.scheme(), host) {
        ("sanderling", Some(host)) if url.query().is_none() && url.fragment().is_none() => {
            let address = format!("{host}:{}", url.port().unwrap_or(NAMENODE_PORT));
            Ok((StoreBuilder::new(address), Location::from_url_path(url.path())?))
        }
        _ => Err(error::bad(BadOption::Url { url: url.to_string() })),
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    fn options(url: &str) -> StoreOptions {
        StoreBuilder::from_url(url).unwrap().options
    }

    #[test]
    fn url_names_the_namenode_and_a_subtree() {
        let here = options("sanderling://10.0.0.1:7000/a/b%20c");
        assert_eq!((here.address.as_str(), here.prefix.as_str()), ("10.0.0.1:7000", "/a/b c"));
        let here = options("sanderling://namenode");
        assert_eq!((here.address.as_str(), here.prefix.as_str()), ("namenode:7600", "/"));
        assert_eq!(options("sanderling://[::1]:7000/").address, "[::1]:7000");
        let url = Url::parse("sanderling://h:1/a/b.parquet").unwrap();
        let (store, location) = parse_url(&url).unwrap();
        assert_eq!(
            (store.to_string().as_str(), location.as_ref()),
            ("Sanderling(h:1/)", "a/b.parquet")
        );
    }

    #[test]
    fn other_urls_and_options_are_refused() {
        for url in
            ["s3://bucket/a", "sanderling:///a", "a", "sanderling://h/a?x=1", "sanderling://h//a"]
        {
            assert!(StoreBuilder::from_url(url).is_err(), "{url}");
        }
        let set = |key, value| StoreBuilder::new("h:1").with_option(key, value);
        assert!(matches!(set("colour", "red"), Err(Error::UnknownConfigurationKey { .. })));
        for (key, value) in
            [("ttl", "soon"), ("storage_class", "gold"), ("read_ahead_bytes", "0"), ("timeout", "")]
        {
            assert!(matches!(set(key, value), Err(Error::Generic { .. })), "{key}");
        }
        let set = set("ttl", "2m").unwrap().with_option("storage_class", "disk:refuse").unwrap();
        assert_eq!(set.options.put.ttl, Some(Millis::from_secs(120)));
    }

    #[test]
    fn refused_option_has_its_fault_and_the_parser_as_sources() {
        let refused = StoreBuilder::new("h:1").with_option("ttl", "soon").unwrap_err();
        let option = refused.source().and_then(|it| it.downcast_ref::<BadOption>()).unwrap();
        let fault = option.source().and_then(|it| it.downcast_ref::<OptionFault>()).unwrap();
        let parser = fault.source().and_then(|it| it.downcast_ref::<humantime::DurationError>());
        let text = format!("ttl = \"soon\": {}", parser.unwrap());
        assert_eq!(option.to_string(), text);
    }
}
