//! The native half of the Python package `sanderling`: the client and the command line, each called
//! with Python's lock released.

use pyo3::prelude::*;

/// The module `sanderling._sanderling`.
#[pymodule(gil_used = false)]
mod _sanderling {
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
