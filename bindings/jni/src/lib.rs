//! The native half of the Java client: the calls of the client core, as `io.sanderling.client`
//! declares them in its class `Native`.
//!
//! What crosses the border is plain: facts are bytes in an order that both sides know, what lives
//! on this side is known by a handle on the other, and an error is its facts, of which Java makes
//! the exception. No panic crosses.

mod answers;
mod client;
mod encoding;
mod error;
mod files;
mod handles;
mod job;
mod memory;
mod namespace;
mod options;
mod runtime;
