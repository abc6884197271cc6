//! Frames over TCP and Unix sockets: listening, connecting, calling, with a deadline on everything.
//!
//! A [`Connection`] carries any number of calls at once; a [`Pool`] keeps one per peer. A server
//! hands each complete frame of its buffer to a [`Service`] and answers them with one gathered
//! write. Long bodies are received in place, into memory that is used again and again.

mod available_memory;
mod body_sink;
mod buffers;
mod busy_poll;
mod calls;
pub mod clock;
mod connection;
mod connection_limit;
mod connection_slots;
mod cross_site;
mod descriptors;
mod error;
mod evictable;
mod file_watch;
mod front_page;
mod gather;
mod held_answers;
mod http;
mod inbound;
mod keyring;
mod known_generation;
mod listen;
pub mod local;
mod log_control;
mod log_limit;
mod memory;
mod namenodes;
mod outgoing;
mod pace;
#[doc(hidden)]
pub mod parsers;
mod pool;
pub mod process;
mod reader;
mod revoked;
mod secret;
mod security;
mod server;
mod session;
mod status;
mod stream;
pub mod time_slice;
mod tls;
pub mod trace;

pub use available_memory::available_bytes;
pub use body_sink::BodySink;
pub use buffers::{Buffers, body_memory};
pub use calls::Timeouts;
pub use connection::{Connection, ConnectionOptions};
pub use cross_site::{SiteRefusal, refused_site};
pub use descriptors::DESCRIPTORS_WANTED;
pub use error::{
    CallError, CloseCause, CredentialsFault, ForeignCluster, ReplyFault, SystemError, WrongPeer,
};
pub use file_watch::{ReloadOutcome, Watched, open_regular};
pub use front_page::front_page;
pub use http::{
    HttpConnection, HttpOptions, PageCall, PageCallError, PageFault, RequestBody, http_status,
    pass_on, serve_http, serve_pages,
};
pub use known_generation::KnownGeneration;
pub use listen::{ListenError, is_loopback, listen, listen_there_or_free, log_not_accepted};
pub use log_control::{LOG_FILTER_BYTES_MAX, LogControl, LogControlError, LogFilterError};
pub use log_limit::LogLimiter;
pub use memory::{Memory, Reserved};
pub use namenodes::{Namenodes, not_namenode};
pub use pool::{EncodedRequest, Pool, PoolOptions};
pub use revoked::Revocations;
pub use sanderling_core::group_view::Repeats;
pub use secret::{
    OWN_TOKEN, Pass, SECRET_BYTES_MIN, Secret, SecretError, TokenSource, read_private, unix_millis,
    unix_seconds,
};
pub use security::{Admitted, Credentials, Security};
pub use server::{Handled, MEMORY_MAX, Response, ServeOptions, Service, serve};
pub use session::{MEMORY_PAUSE, attend};
pub use status::{
    Document, OPEN_METRICS, SCHEMA, StatusPages, serve_status, write_counter, write_gauge,
    write_process_metrics,
};
pub use stream::Stream;
pub use tls::{
    ClientTls, Distrust, Expiries, PeerCertificates, ServerTls, TLS_NAME, TlsError, TlsFileFault,
    TlsStream, Validity, ValidityState, read_validities, worst,
};
