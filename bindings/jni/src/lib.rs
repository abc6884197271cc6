//! The native half of the Java client: the calls of the client core, as `io.sanderling.client`
//! declares them in its class `Native`.
//!
//! What crosses the border is plain: arguments, results and errors are encoded values, metadata in
//! the order of `bindings/native/schema.txt`, and an object of this side has a handle on the other.
//! Java makes the exception of an error. No panic crosses.

mod answers;
mod client;
mod encoding;
mod error;
mod files;
mod handles;
mod job;
mod memory;
mod namespace;
mod native;
mod options;
mod runtime;
