//! The client: objects, location cache, retry.
//!
//! ```no_run
//! # async fn example() -> Result<(), sanderling_client::ClientError> {
//! use sanderling_client::{Client, ClientConfig, PutOptions};
//!
//! let client = Client::connect("127.0.0.1:7600", ClientConfig::default()).await?;
//! let path = "/greeting".parse().expect("a valid path");
//! client.put(&path, "hello".into(), &PutOptions::default()).await?;
//! assert_eq!(client.get(&path).await?, "hello");
//! # Ok(())
//! # }
//! ```

mod batch_calls;
mod blocking_driver;
mod changes;
mod client;
mod cluster;
mod config;
mod diagnosis;
mod error;
mod fetch;
mod jobs;
mod leases;
mod local;
mod locations;
mod metrics;
mod multifile;
mod namespace;
mod nonce;
mod options;
mod read;
mod request_batcher;
mod store;
mod value;
mod write;

pub use blocking_driver::Driver;
pub use client::Client;
pub use config::ClientConfig;
pub use diagnosis::diagnosed;
pub use error::ClientError;
pub use jobs::JobHandle;
pub use metrics::ClientMetrics;
pub use multifile::MultiReader;
pub use options::PutOptions;
pub use read::{ReadStream, Reader};
pub use sanderling_transport::{CallError, ClientTls, Credentials, TLS_NAME, TokenSource};
pub use write::Writer;
