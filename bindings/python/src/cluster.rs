//! Which cluster a client connects to.

use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use sanderling_native::{AddressError, Explicit};

/// The address, the context it is from, and the credentials: token, its file, authorities, name.
type Found =
    (String, Option<String>, Option<String>, Option<PathBuf>, Option<PathBuf>, Option<String>);

/// Returns the cluster: what is given, the environment, the current context, the default.
///
/// Raises `ValueError` with the next step.
#[pyfunction]
#[pyo3(signature = (address, context, token, token_file, tls_ca, tls_name))]
pub(crate) fn resolve(
    address: Option<String>,
    context: Option<String>,
    token: Option<String>,
    token_file: Option<PathBuf>,
    tls_ca: Option<PathBuf>,
    tls_name: Option<String>,
) -> PyResult<Found> {
    let explicit = Explicit { address, context, token, token_file, tls_ca, tls_name };
    let wrong = |error| PyValueError::new_err(sanderling_native::with_next(&error));
    let found = sanderling_native::resolve(explicit).map_err(wrong)?;
    let context = found.origin.context().map(str::to_owned);
    Ok((found.address, context, found.token, found.token_file, found.tls_ca, found.tls_name))
}

/// Splits a URL of the store into its address, if it has one, and its path; `None` for a text of
/// another kind.
///
/// Raises `ValueError` when its host or port is wrong.
#[pyfunction]
pub(crate) fn split_url(text: &str) -> PyResult<Option<(Option<String>, String)>> {
    let wrong = |error: AddressError| PyValueError::new_err(error.to_string());
    let url = sanderling_native::split_url(text).map_err(wrong)?;
    Ok(url.map(|url| (url.address, url.path)))
}
