//! Frames over TCP: listening, connecting, calling, with a deadline on everything.
//!
//! A [`Connection`] carries any number of calls at once; a [`Pool`] keeps one per peer. A server
//! hands each complete frame of its buffer to a [`Service`] and answers them with one gathered
//! write.

pub mod clock;
mod connection;
mod error;
mod listen;
mod pool;
mod reader;
mod server;
mod socket;

pub use connection::{Connection, ConnectionOptions};
pub use error::CallError;
pub use listen::{ListenError, listen};
pub use pool::{Pool, PoolOptions};
pub use server::{Handled, Response, ServeOptions, Service, serve};
