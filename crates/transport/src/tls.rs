//! TLS on the endpoints: certificates from files, and the errors when the two ends do not agree.

mod expiry;
mod peer_certificates;
mod stream;
mod validity;

use std::error::Error as StdError;
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::VerifierBuilderError;
use rustls::crypto::ring::{default_provider, sign::any_supported_type};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::file_watch::{ReloadOutcome, Watched, open_regular};
use crate::secret::{SecretError, read_private, unix_seconds};
use crate::stream::Stream;
pub use expiry::Expiries;
pub use peer_certificates::PeerCertificates;
pub use stream::TlsStream;
pub(crate) use stream::{TlsRead, TlsWrite};
pub use validity::{Validity, ValidityState, worst};

/// The name that certificates of a cluster are made for. Machines that come and go have no names of
/// their own that were known in advance.
pub const TLS_NAME: &str = "sanderling";

/// The first byte of every TLS connection: a record of type handshake (RFC 8446, section 5.1).
const HANDSHAKE: u8 = 22;

/// Longest file of certificates: those of all public authorities together are a quarter of it. A
/// path that leads to something larger is a mistake.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A reason why certificates cannot be used.
#[derive(Debug, Error)]
pub enum TlsError {
    /// The key's file cannot be read, or others can read it.
    #[error("{0}")]
    Key(#[from] SecretError),
    /// A file is not what it should be.
    #[error("{}: {fault}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        fault: TlsFileFault,
    },
    /// The name cannot stand in a certificate.
    #[error("{name:?} cannot stand in a certificate: give a host name")]
    Name {
        /// The name.
        name: String,
    },
}

/// A fault of a file of certificates or of a key.
#[derive(Debug, Error)]
pub enum TlsFileFault {
    /// It cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is longer than any file of certificates.
    #[error("it has more than {FILE_BYTES_MAX} bytes")]
    TooLong,
    /// It is not in the format PEM.
    #[error("{0}")]
    Pem(#[from] pem::Error),
    /// It has none.
    #[error("there is no certificate in it")]
    NoCertificate,
    /// A certificate in it cannot be decoded as far as its dates.
    #[error("a certificate in it has no dates that can be read")]
    NoDates,
    /// A certificate or key in it cannot be used.
    #[error("{0}")]
    Unusable(#[from] rustls::Error),
    /// It is a key, and that of another certificate.
    #[error("it is not the key of {}", .certificate.display())]
    OtherKey {
        /// The file of the certificate.
        certificate: PathBuf,
    },
    /// The certificate in it is not valid yet, and the one before is.
    #[error("it is not valid before {}", .0.begin_date())]
    Early(Validity),
    /// The certificate in it has ended, and the one before has not.
    #[error("it ended at {}", .0.end_date())]
    Ended(Validity),
    /// There are no authorities to check it with.
    #[error("{0}")]
    NoVerifier(#[from] VerifierBuilderError),
    /// No client would believe it.
    #[error("{0}")]
    Distrusted(#[from] Distrust),
}

/// The reason why a server is not trusted, and what to do. Its source is the [`rustls::Error`].
#[derive(Debug, Clone)]
pub struct Distrust {
    cause: Box<rustls::Error>,
    /// The name that its certificate has to be made for.
    name: Box<str>,
}

impl fmt::Display for Distrust {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        use rustls::Error::{AlertReceived, InvalidCertificate, InvalidMessage};
        match &*self.cause {
            InvalidMessage(_) => formatter.write_str(
                "it does not speak TLS: leave --tls-ca out, or start it with --tls-cert and \
                 --tls-key",
            ),
            InvalidCertificate(why) if is_expired(why) => formatter.write_str(
                "its certificate has ended, by the clock of this machine: renew it, or set the \
                 clock",
            ),
            InvalidCertificate(why) => write!(
                formatter,
                "its certificate is not believed ({why}): it must be made for {:?} by an authority \
                 in --tls-ca",
                self.name
            ),
            AlertReceived(alert) => write!(formatter, "it ended the TLS handshake: {alert:?}"),
            other => write!(formatter, "TLS: {other}"),
        }
    }
}

impl StdError for Distrust {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.cause)
    }
}

/// A server's certificate and key. Clones share them.
#[derive(Clone)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
    certificates: Arc<Certificates>,
}

/// The check of servers' certificates. Clones share it.
#[derive(Clone)]
pub struct ClientTls {
    file: PathBuf,
    believed: Arc<Watched<Believed, TlsError>>,
    name: ServerName<'static>,
}

fn log(looked: ReloadOutcome<'_>) {
    match looked {
        ReloadOutcome::Taken(file) => tracing::info!(file, "certificates were read again"),
        ReloadOutcome::Refused(error) => {
            tracing::warn!(%error, "certificates stay the ones before")
        }
    }
}

/// The authorities of a file.
struct Believed {
    roots: Arc<RootCertStore>,
    config: Arc<ClientConfig>,
    validities: Vec<Validity>,
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ServerTls")
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ClientTls({:?})", self.name)
    }
}

impl ServerTls {
    /// Reads a certificate, with those between it and its authority behind it, and its key, which
    /// only its owner may read. Both are read again when the files change.
    ///
    /// # Errors
    /// [`TlsError`]: correct the files.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let certificates = Arc::new(Certificates::read(certificate, key)?);
        let resolver = Arc::clone(&certificates) as Arc<dyn ResolvesServerCert>;
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has what the versions need")
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        // Clients come back too rarely for a ticket to save anything.
        config.send_tls13_tickets = 0;
        Ok(Self { config: Arc::new(config), certificates })
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config))
    }

    fn file(&self) -> String {
        self.certificates.file.display().to_string()
    }

    /// Returns the dates of the certificates that it shows now.
    fn validities(&self) -> Vec<Validity> {
        self.certificates.shown.value().validities.clone()
    }

    /// Shakes hands with a caller, or reports a connection that does not speak TLS.
    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<Accepted> {
        if !begins_tls(&stream).await? {
            return Ok(Accepted::Plain(stream));
        }
        let (tcp, tls) = self.acceptor().accept(stream).await?.into_inner();
        Ok(Accepted::Tls(stream::joined(tcp, tls.into())))
    }
}

/// The peer of an endpoint with TLS.
pub(crate) enum Accepted {
    Tls(Stream),
    /// A peer that does not speak it.
    Plain(TcpStream),
}

/// Returns whether the first byte is that of TLS. It stays where it is.
pub(crate) async fn begins_tls(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    let read = stream.peek(&mut first).await?;
    Ok(read == 0 || first[0] == HANDSHAKE)
}

/// Answers a connection that does not speak TLS, and closes it.
pub(crate) async fn turn_away(mut stream: TcpStream, answer: &[u8]) {
    use tokio::io::AsyncWriteExt;
    // What it sent is taken first: a connection that is closed with bytes unread ends with a
    // reset, which may overtake the answer.
    let mut taken = [0; 4096];
    while stream.try_read(&mut taken).is_ok_and(|read| read == taken.len()) {}
    let _ = stream.write_all(answer).await;
    let _ = stream.shutdown().await;
}

impl ClientTls {
    /// Reads the certificates of the trusted authorities, any number of them. The file is read
    /// again when it changes, for the connections that are made afterwards. A server must present a
    /// certificate that is made for `name`, whatever its address.
    ///
    /// # Errors
    /// [`TlsError`]: correct the file or the name.
    pub fn read(authorities: &Path, name: &str) -> Result<Self, TlsError> {
        let (paths, file) = (vec![authorities.to_owned()], authorities.to_owned());
        let believed = Watched::read(paths, log, move |_| Believed::read(&file))?;
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| TlsError::Name { name: name.to_owned() })?;
        Ok(Self { file: authorities.to_owned(), believed: Arc::new(believed), name })
    }

    /// Returns the file of the authorities, for messages.
    #[must_use]
    pub fn file(&self) -> String {
        self.file.display().to_string()
    }

    /// Returns the dates of the authorities that are trusted now.
    #[must_use]
    pub fn validities(&self) -> Vec<Validity> {
        self.believed.value().validities.clone()
    }

    /// Shakes hands with a server.
    pub(crate) async fn connect(&self, stream: TcpStream) -> io::Result<Stream> {
        let connector = TlsConnector::from(Arc::clone(&self.believed.value().config));
        let (tcp, tls) = connector.connect(self.name.clone(), stream).await?.into_inner();
        Ok(stream::joined(tcp, tls.into()))
    }

    /// Shakes hands with a server's HTTP endpoint.
    pub(crate) async fn connect_for_pages(
        &self,
        stream: TcpStream,
    ) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let connector = TlsConnector::from(Arc::clone(&self.believed.value().config));
        connector.connect(self.name.clone(), stream).await
    }

    /// Returns what is wrong with a server, if that is why hands were not shaken.
    pub(crate) fn distrust(&self, error: &io::Error) -> Option<Distrust> {
        let cause = error.get_ref()?.downcast_ref::<rustls::Error>()?;
        Some(self.distrust_for(cause.clone()))
    }

    fn distrust_for(&self, cause: rustls::Error) -> Distrust {
        Distrust { cause: Box::new(cause), name: self.name.to_str().into() }
    }
}

fn is_expired(why: &rustls::CertificateError) -> bool {
    use rustls::CertificateError::{Expired, ExpiredContext};
    matches!(why, Expired | ExpiredContext { .. })
}

impl Believed {
    fn read(path: &Path) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        let found = certificates(path)?;
        let validities = validities(path, &found)?;
        for certificate in found {
            roots.add(certificate).map_err(|error| bad(path, error))?;
        }
        let roots = Arc::new(roots);
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has what the versions need")
            .with_root_certificates(Arc::clone(&roots))
            .with_no_client_auth();
        Ok(Self { roots, config: Arc::new(config), validities })
    }
}

/// Reads all certificates of a file.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let mut pem = Vec::new();
    open_regular(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut pem))
        .map_err(|error| bad(path, error))?;
    parsed(path, &pem)
}

fn bad(path: &Path, fault: impl Into<TlsFileFault>) -> TlsError {
    TlsError::File { path: path.to_owned(), fault: fault.into() }
}

fn parsed(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    if pem.len() as u64 > FILE_BYTES_MAX {
        return Err(bad(path, TlsFileFault::TooLong));
    }
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found.map_err(|error| bad(path, error))? {
        found if found.is_empty() => Err(bad(path, TlsFileFault::NoCertificate)),
        found => Ok(found),
    }
}

fn validities(path: &Path, all: &[CertificateDer<'_>]) -> Result<Vec<Validity>, TlsError> {
    let undated = || bad(path, TlsFileFault::NoDates);
    all.iter().map(|it| Validity::of(it).ok_or_else(undated)).collect()
}

/// Reads the dates of all certificates in a file.
///
/// # Errors
/// [`TlsError::File`]: correct the file.
pub fn read_validities(path: &Path) -> Result<Vec<Validity>, TlsError> {
    validities(path, &certificates(path)?)
}

/// A server's certificate and key.
#[derive(Debug)]
struct OwnCertificate {
    certified: Arc<CertifiedKey>,
    /// Of the certificate and of those between it and its authority.
    validities: Vec<Validity>,
}

impl OwnCertificate {
    fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let chain = certificates(certificate)?;
        let validities = validities(certificate, &chain)?;
        let pem = read_private(key)?;
        let signer = PrivateKeyDer::from_pem_slice(&pem).map_err(|error| bad(key, error))?;
        let signer = any_supported_type(&signer).map_err(|error| bad(key, error))?;
        let certified = CertifiedKey::new(chain, signer);
        match certified.keys_match() {
            Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch)) => {
                Err(bad(key, TlsFileFault::OtherKey { certificate: certificate.to_owned() }))
            }
            _ => Ok(Self { certified: Arc::new(certified), validities }),
        }
    }

    /// Refuses a certificate that no peer would trust in place of one that is trusted.
    fn follows(self, path: &Path, before: Option<&Self>, now: u64) -> Result<Self, TlsError> {
        let is_valid = |life: ValidityState| life <= ValidityState::Ending;
        let Some(worst) = worst(&self.validities, now) else { return Ok(self) };
        let before = before.and_then(|it| validity::worst(&it.validities, now));
        let life = worst.life(now);
        if is_valid(life) || !before.is_some_and(|before| is_valid(before.life(now))) {
            return Ok(self);
        }
        Err(match life {
            ValidityState::Early => bad(path, TlsFileFault::Early(worst)),
            _ => bad(path, TlsFileFault::Ended(worst)),
        })
    }
}

/// A certificate that is read again when its files have changed.
#[derive(Debug)]
struct Certificates {
    file: PathBuf,
    shown: Watched<OwnCertificate, TlsError>,
}

impl Certificates {
    fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let (file, key) = (certificate.to_owned(), key.to_owned());
        let paths = vec![file.clone(), key.clone()];
        let read = move |before: Option<&OwnCertificate>| {
            OwnCertificate::read(&file, &key)?.follows(&file, before, unix_seconds())
        };
        Ok(Self { file: certificate.to_owned(), shown: Watched::read(paths, log, read)? })
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.shown.value().certified))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_a_file_has_the_error_of_the_system_as_source() {
        let missing = read_validities(Path::new("/does/not/exist.pem")).unwrap_err();
        let fault = missing.source().and_then(|it| it.downcast_ref::<TlsFileFault>()).unwrap();
        let system = fault.source().and_then(|it| it.downcast_ref::<io::Error>()).unwrap();
        assert_eq!(system.kind(), io::ErrorKind::NotFound);
        assert_eq!(missing.to_string(), format!("/does/not/exist.pem: {system}"));
    }

    #[test]
    fn distrust_has_the_error_of_the_handshake_as_source() {
        let cause = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let distrust = Distrust { cause: Box::new(cause.clone()), name: TLS_NAME.into() };
        let text = "its certificate is not believed (UnknownIssuer): it must be made for \
                    \"sanderling\" by an authority in --tls-ca";
        assert_eq!(distrust.to_string(), text);
        assert_eq!(distrust.source().and_then(|it| it.downcast_ref()), Some(&cause));
        let expired = rustls::Error::InvalidCertificate(rustls::CertificateError::Expired);
        let distrust = Distrust { cause: Box::new(expired), ..distrust };
        let text = "its certificate has ended, by the clock of this machine: renew it, or set the \
                    clock";
        assert_eq!(distrust.to_string(), text);
    }
}
