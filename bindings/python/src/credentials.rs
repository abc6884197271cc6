//! What a client shows to the cluster.

use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use sanderling_client::Credentials;

/// A token, or the file that has it, and how servers' certificates are checked.
#[pyclass(frozen, name = "Credentials")]
pub(crate) struct PyCredentials(pub(crate) Credentials);

#[pymethods]
impl PyCredentials {
    /// Raises `ValueError` when a file cannot be read, or has no token or certificate.
    #[new]
    #[pyo3(signature = (token, token_file, tls_ca, tls_name))]
    fn new(
        token: Option<&str>,
        token_file: Option<PathBuf>,
        tls_ca: Option<PathBuf>,
        tls_name: Option<&str>,
    ) -> PyResult<Self> {
        let (token_file, tls_ca) = (token_file.as_deref(), tls_ca.as_deref());
        sanderling_native::credentials(token, token_file, tls_ca, tls_name)
            .map(Self)
            .map_err(|error| PyValueError::new_err(error.to_string()))
    }
}
