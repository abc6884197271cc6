//! The process's driver: the calling thread runs the client. See [`Driver`].

use std::fmt::Display;
use std::future::Future;
use std::sync::OnceLock;

use sanderling_client::Driver;
use sanderling_native::in_span;
use tokio::runtime::{EnterGuard, Handle};

static DRIVER: OnceLock<&'static Driver> = OnceLock::new();

fn driver() -> &'static Driver {
    DRIVER.get_or_init(|| Driver::start().expect("the process may start a thread"))
}

/// Waits for a call in a span of its name.
///
/// # Errors
/// Those of the call.
pub(crate) fn named<T, E: Display>(
    name: &'static str,
    call: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    wait(in_span(name, call))
}

/// Waits for a call, and runs everything meanwhile.
pub(crate) fn wait<T>(call: impl Future<Output = T>) -> T {
    driver().wait(call)
}

/// Returns the runtime, for asynchronous calls.
pub(crate) fn handle() -> &'static Handle {
    driver().runtime().handle()
}

/// Enters the runtime's context: what is dropped in it may leave its clean-up to a task.
pub(crate) fn enter() -> EnterGuard<'static> {
    driver().runtime().enter()
}
