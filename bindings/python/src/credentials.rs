//! What a client shows to the cluster.

use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use sanderling_client::{ClientTls, Credentials, TLS_NAME, TokenSource};
use sanderling_protocol::Token;

/// A token, or the file that has it, and how servers' certificates are checked.
#[pyclass(frozen, name = "Credentials")]
pub(crate) struct PyCredentials(pub(crate) Credentials);

#[pymethods]
impl PyCredentials {
    /// Raises `ValueError` when a file cannot be read or is none.
    #[new]
    #[pyo3(signature = (token, token_file, tls_ca, tls_name))]
    fn new(
        token: Option<&str>,
        token_file: Option<PathBuf>,
        tls_ca: Option<PathBuf>,
        tls_name: Option<&str>,
    ) -> PyResult<Self> {
        let token = match (token, token_file) {
            (Some(text), _) => Some(TokenSource::Given(Token::new(text))),
            (None, Some(file)) => Some(TokenSource::File(file)),
            (None, None) => None,
        };
        if let Some(token) = &token {
            token.token(None).map_err(|error| PyValueError::new_err(error.to_string()))?;
        }
        let read = |path| ClientTls::read(path, tls_name.unwrap_or(TLS_NAME));
        let tls = tls_ca.as_deref().map(read).transpose();
        let tls = tls.map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Self(Credentials { token, tls }))
    }
}
