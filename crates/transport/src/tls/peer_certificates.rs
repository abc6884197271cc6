//! The certificates that a server shows, looked at before it is decided whether they are believed.

use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{VerifierBuilderError, WebPkiServerVerifier};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{ClientTls, TlsError, Validity, bad, parsed};

/// The certificates that a server presented in a handshake.
#[derive(Debug)]
pub struct PeerCertificates {
    /// The dates of its certificate and of those between it and its authority.
    pub validities: Vec<Validity>,
    /// Why it is not trusted, if it is not.
    pub distrust: Option<String>,
}

impl ClientTls {
    /// Performs a handshake with a server and disconnects without sending data. Returns its
    /// certificates also if they are not trusted.
    ///
    /// # Errors
    /// No server listens there, or it shows no certificate: check the address.
    pub async fn shown_by(&self, address: &str) -> io::Result<PeerCertificates> {
        let stream = TcpStream::connect(address).await?;
        let provider = Arc::new(default_provider());
        let inner = self.verifier().map_err(io::Error::other)?;
        let recorder = Arc::new(Recorder { inner, seen: Mutex::default() });
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has what the versions need")
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&recorder) as Arc<_>)
            .with_no_client_auth();
        let connector = TlsConnector::from(Arc::new(config));
        let shaken = connector.connect(self.name.clone(), stream).await;
        let validities = std::mem::take(&mut *recorder.seen.lock());
        match shaken {
            Err(error) if validities.is_empty() => {
                Err(self.distrust(&error).map_or(error, io::Error::other))
            }
            Err(error) => {
                let distrust = self.distrust(&error).map(|distrust| distrust.to_string());
                let why = distrust.unwrap_or_else(|| error.to_string());
                Ok(PeerCertificates { validities, distrust: Some(why) })
            }
            Ok(_) => Ok(PeerCertificates { validities, distrust: None }),
        }
    }

    /// Checks that the certificates of a server in a file, read as `pem`, would be trusted now.
    ///
    /// # Errors
    /// [`TlsError::File`] with the reason: replace the certificate.
    pub fn check(&self, file: &Path, pem: &[u8]) -> Result<(), TlsError> {
        let chain = parsed(file, pem)?;
        let Some((end, between)) = chain.split_first() else { return Ok(()) };
        let verifier = self.verifier().map_err(|error| bad(file, error))?;
        let checked = verifier.verify_server_cert(end, between, &self.name, &[], UnixTime::now());
        checked.map(drop).map_err(|error| bad(file, self.distrust_for(error)))
    }

    fn verifier(&self) -> Result<Arc<WebPkiServerVerifier>, VerifierBuilderError> {
        let roots = Arc::clone(&self.believed.value().roots);
        let provider = Arc::new(default_provider());
        WebPkiServerVerifier::builder_with_provider(roots, provider).build()
    }
}

/// Takes note of what is shown, and leaves the judgement to the usual verifier.
#[derive(Debug)]
struct Recorder {
    inner: Arc<WebPkiServerVerifier>,
    seen: Mutex<Vec<Validity>>,
}

impl ServerCertVerifier for Recorder {
    fn verify_server_cert(
        &self,
        end: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let all = std::iter::once(end).chain(between);
        *self.seen.lock() = all.filter_map(Validity::of).collect();
        self.inner.verify_server_cert(end, between, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
