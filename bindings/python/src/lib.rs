//! The native half of the Python package `sanderling`: the client and the command line, each called
//! with Python's lock released.
//!
//! What crosses the border is plain: paths are text, data is anything with a buffer, and metadata
//! is a tuple in the order of `bindings/native/schema.txt`. What is rarely read is JSON, from which
//! the Python half makes its types.

mod arguments;
mod borrowed_bytes;
mod buffer;
mod caller;
mod client;
mod cluster;
mod completions;
mod credentials;
mod error;
mod files;
mod lease_renewer;
mod options;
mod queue;
mod results;
mod runtime;
mod stream;

use pyo3::prelude::*;

/// The module `sanderling._sanderling`.
#[pymodule(gil_used = false)]
mod _sanderling {
    use std::ffi::OsString;

    use pyo3::exceptions::PyValueError;
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::borrowed_bytes::PyBuffer;
    #[pymodule_export]
    use crate::client::PyClient;
    #[pymodule_export]
    use crate::completions::PyCompletionQueue;
    #[pymodule_export]
    use crate::credentials::PyCredentials;
    #[pymodule_export]
    use crate::files::{PyReader, PyWriter};
    #[pymodule_export]
    use crate::lease_renewer::PyLeaseRenewer;
    #[pymodule_export]
    use crate::options::PyOptions;
    #[pymodule_export]
    use crate::stream::PyStream;

    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_export]
    use crate::cluster::{resolve, split_url};

    /// Records the spans of all clients from now on, and exports them to a collector.
    ///
    /// Raises `ValueError` when the collector cannot be used.
    #[pyfunction]
    fn export_spans(collector: &str) -> PyResult<()> {
        let service = "sanderling-python";
        let wrong = |error: sanderling_native::SpansError| PyValueError::new_err(error.to_string());
        sanderling_native::export_spans(collector, service).map_err(wrong)
    }

    /// Sends the last spans; returns the collector and how many it did not take, if it is any.
    #[pyfunction]
    fn end_export(py: Python<'_>) -> Option<(String, u64)> {
        py.detach(sanderling_native::end_export)
    }

    /// Runs the command line and returns its exit code.
    #[pyfunction]
    fn main(py: Python<'_>, arguments: Vec<OsString>) -> i32 {
        py.detach(|| sanderling_cli::main(arguments))
    }

    /// Returns a page with plots: its title and verdict are text, its body is HTML.
    #[pyfunction]
    fn page(title: &str, verdict: String, is_good: bool, body: &str) -> String {
        let verdict = sanderling_plot::Headline { text: verdict, is_good };
        sanderling_plot::page(title, Some(&verdict), body)
    }

    /// Returns the element of a plot that is described by this JSON.
    #[pyfunction]
    fn figure(json: &str) -> String {
        sanderling_plot::figure(json)
    }
}
