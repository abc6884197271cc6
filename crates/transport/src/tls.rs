//! TLS on the endpoints: certificates from files, and the errors when the two ends do not agree.

mod expiry;
mod peer_certificates;
mod stream;
mod validity;

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring::{default_provider, sign::any_supported_type};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::file_watch::{Looked, Watched};
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

/// Longest file of certificates: those of all public authorities together are a quarter of it.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Why certificates cannot be used.
#[derive(Debug, Error)]
pub enum TlsError {
    /// The key's file cannot be read, or others can read it.
    #[error("{0}")]
    Key(#[from] SecretError),
    /// A file is not what it should be.
    #[error("{}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The name cannot stand in a certificate.
    #[error("{name:?} cannot stand in a certificate: give a host name")]
    Name {
        /// The name.
        name: String,
    },
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

fn log(looked: Looked<'_>) {
    match looked {
        Looked::Taken(file) => tracing::info!(file, "certificates were read again"),
        Looked::Refused(error) => tracing::warn!(error, "certificates stay the ones before"),
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
    pub(crate) fn distrust(&self, error: &io::Error) -> Option<String> {
        use rustls::Error::{AlertReceived, InvalidCertificate, InvalidMessage};
        let cause = error.get_ref()?.downcast_ref::<rustls::Error>()?;
        Some(match cause {
            InvalidMessage(_) => {
                "it does not speak TLS: leave --tls-ca out, or start it with --tls-cert and \
                 --tls-key"
                    .to_owned()
            }
            InvalidCertificate(why) if is_expired(why) => {
                "its certificate has ended, by the clock of \
                 this machine: renew it, or set the clock"
                    .to_owned()
            }
            InvalidCertificate(why) => format!(
                "its certificate is not believed ({why}): it must be made for {:?} by an authority \
                 in --tls-ca",
                self.name.to_str()
            ),
            AlertReceived(alert) => format!("it ended the TLS handshake: {alert:?}"),
            other => format!("TLS: {other}"),
        })
    }
}

fn is_expired(why: &rustls::CertificateError) -> bool {
    use rustls::CertificateError::{Expired, ExpiredContext};
    matches!(why, Expired | ExpiredContext { .. })
}

impl Believed {
    fn read(path: &Path) -> Result<Self, TlsError> {
        let bad = |why: String| TlsError::File { path: path.to_owned(), why };
        let mut roots = RootCertStore::empty();
        let found = certificates(path)?;
        let validities = validities(path, &found)?;
        for certificate in found {
            roots.add(certificate).map_err(|error| bad(error.to_string()))?;
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
    let bad = |error: io::Error| TlsError::File { path: path.to_owned(), why: error.to_string() };
    let mut pem = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut pem))
        .map_err(bad)?;
    parsed(path, &pem)
}

fn parsed(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bad = |why: String| TlsError::File { path: path.to_owned(), why };
    if pem.len() as u64 > FILE_BYTES_MAX {
        return Err(bad(format!("it has more than {FILE_BYTES_MAX} bytes")));
    }
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found.map_err(|error| bad(error.to_string()))? {
        found if found.is_empty() => Err(bad("there is no certificate in it".to_owned())),
        found => Ok(found),
    }
}

fn validities(path: &Path, all: &[CertificateDer<'_>]) -> Result<Vec<Validity>, TlsError> {
    let bad = || TlsError::File {
        path: path.to_owned(),
        why: "a certificate in it has no dates that can be read".to_owned(),
    };
    all.iter().map(|it| Validity::of(it).ok_or_else(bad)).collect()
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
        let bad = |why: String| TlsError::File { path: key.to_owned(), why };
        let chain = certificates(certificate)?;
        let validities = validities(certificate, &chain)?;
        let pem = read_private(key)?;
        let signer = PrivateKeyDer::from_pem_slice(&pem).map_err(|error| bad(error.to_string()))?;
        let signer = any_supported_type(&signer).map_err(|error| bad(error.to_string()))?;
        let certified = CertifiedKey::new(chain, signer);
        match certified.keys_match() {
            Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch)) => {
                Err(bad(format!("it is not the key of {}", certificate.display())))
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
        let why = match life {
            ValidityState::Early => format!("it is not valid before {}", worst.begin_date()),
            _ => format!("it ended at {}", worst.end_date()),
        };
        Err(TlsError::File { path: path.to_owned(), why })
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
