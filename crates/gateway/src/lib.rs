//! The S3 interface: buckets are directories, keys are paths below them.
//!
//! [`GatewayServer`] serves S3 over HTTP to clients, and is a client of the namenode and the
//! datanodes. It keeps nothing: what was acknowledged is in the cluster, and any number of
//! gateways serve the same buckets.

mod answer;
mod api;
mod aws_chunks;
mod bucket;
mod bucket_address;
mod conditions;
mod copy;
mod cors;
mod digest;
mod etag;
mod get;
mod keys;
mod list_requests;
mod listing;
mod md5;
mod metadata;
mod metrics;
mod name;
mod object;
mod options;
#[doc(hidden)]
pub mod parsers;
mod part_name;
mod parts;
mod percent;
mod prune;
mod ranges;
mod refused;
mod remove;
mod remove_bucket;
mod request_record;
mod rewrite;
mod rules_cache;
mod server;
mod signing;
mod slow_client;
mod slow_copy;
mod store;
mod tagging;
mod token;
mod unfinished_put;
mod unsupported_headers;
mod upload_calls;
mod upload_checksums;
mod upload_decisions;
mod upload_keys;
mod upload_listing;
mod writing;
mod xml;

pub use keys::{AccessKeys, KeyRights, KeysError, KeysFault, LOCAL_ACCESS_KEY, LOCAL_SECRET_KEY};
pub use options::{GatewayOptions, S3_ADDRESS, S3_HTTP_ADDRESS};
pub use server::{GatewayServer, GatewayStartError};
