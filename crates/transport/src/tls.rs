//! TLS on the doors: certificates from files, and what is said when the two ends do not agree.

mod stream;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use rustls::crypto::ring::{default_provider, sign::any_supported_type};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::secret::{SecretError, read_private};
use crate::stream::Stream;
pub use stream::TlsStream;
pub(crate) use stream::{TlsRead, TlsWrite};

/// The name that certificates of a cluster are made for. Machines that come and go have no names of
/// their own that were known in advance.
pub const TLS_NAME: &str = "sanderling";

/// The first byte of every TLS connection: a record of type handshake (RFC 8446, section 5.1).
const HANDSHAKE: u8 = 22;

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

/// What a server shows. Clones share it.
#[derive(Clone)]
pub struct ServerTls(Arc<ServerConfig>);

/// How servers' certificates are checked. Clones share it.
#[derive(Clone)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
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
    /// nobody else may read. Both are read again when the files change.
    ///
    /// # Errors
    /// [`TlsError`]: correct the files.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let files = Files { certificate: certificate.to_owned(), key: key.to_owned() };
        let known = Known { changed: files.changed(), certified: Arc::new(files.read()?) };
        let resolver = Arc::new(Certificates { files, known: Mutex::new(known) });
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has what the versions need")
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        // Nobody comes back often enough for a ticket to save anything.
        config.send_tls13_tickets = 0;
        Ok(Self(Arc::new(config)))
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.0))
    }

    /// Shakes hands with a caller, or says that he came to the wrong door.
    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<Accepted> {
        if !begins_tls(&stream).await? {
            return Ok(Accepted::Plain(stream));
        }
        let (tcp, tls) = self.acceptor().accept(stream).await?.into_inner();
        Ok(Accepted::Tls(stream::joined(tcp, tls.into())))
    }
}

/// Who came to a door with TLS.
pub(crate) enum Accepted {
    Tls(Stream),
    /// Somebody who does not speak it.
    Plain(TcpStream),
}

/// Tells whether the first byte is that of TLS. It stays where it is.
pub(crate) async fn begins_tls(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    let read = stream.peek(&mut first).await?;
    Ok(read == 0 || first[0] == HANDSHAKE)
}

/// Answers somebody who does not speak TLS, and leaves him.
pub(crate) async fn turn_away(mut stream: TcpStream, answer: &[u8]) {
    use tokio::io::AsyncWriteExt;
    // What he sent is taken first: a connection that is closed with bytes unread ends with a
    // reset, which may overtake the answer.
    let mut taken = [0; 4096];
    while stream.try_read(&mut taken).is_ok_and(|read| read == taken.len()) {}
    let _ = stream.write_all(answer).await;
    let _ = stream.shutdown().await;
}

impl ClientTls {
    /// Reads the certificates of the authorities that are believed. A server must show one that is
    /// made for `name`, whatever its address.
    ///
    /// # Errors
    /// [`TlsError`]: correct the file or the name.
    pub fn read(authorities: &Path, name: &str) -> Result<Self, TlsError> {
        let bad = |why: String| TlsError::File { path: authorities.to_owned(), why };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(authorities)? {
            roots.add(certificate).map_err(|error| bad(error.to_string()))?;
        }
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has what the versions need")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| TlsError::Name { name: name.to_owned() })?;
        Ok(Self { config: Arc::new(config), name })
    }

    /// Shakes hands with a server.
    pub(crate) async fn connect(&self, stream: TcpStream) -> io::Result<Stream> {
        let connector = TlsConnector::from(Arc::clone(&self.config));
        let (tcp, tls) = connector.connect(self.name.clone(), stream).await?.into_inner();
        Ok(stream::joined(tcp, tls.into()))
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

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bad = |why: String| TlsError::File { path: path.to_owned(), why };
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| bad(error.to_string()));
    match found? {
        found if found.is_empty() => Err(bad("there is no certificate in it".to_owned())),
        found => Ok(found),
    }
}

/// Where a server's certificate is.
#[derive(Debug)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

impl Files {
    /// Returns when the files changed last.
    fn changed(&self) -> [Option<SystemTime>; 2] {
        let at = |path: &Path| std::fs::metadata(path).and_then(|it| it.modified()).ok();
        [at(&self.certificate), at(&self.key)]
    }

    fn read(&self) -> Result<CertifiedKey, TlsError> {
        let bad = |why: String| TlsError::File { path: self.key.clone(), why };
        let chain = certificates(&self.certificate)?;
        let pem = read_private(&self.key)?;
        let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|error| bad(error.to_string()))?;
        let key = any_supported_type(&key).map_err(|error| bad(error.to_string()))?;
        let certified = CertifiedKey::new(chain, key);
        match certified.keys_match() {
            Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch)) => {
                Err(bad(format!("it is not the key of {}", self.certificate.display())))
            }
            _ => Ok(certified),
        }
    }
}

/// The certificate as it was read last.
#[derive(Debug)]
struct Known {
    changed: [Option<SystemTime>; 2],
    certified: Arc<CertifiedKey>,
}

/// A certificate that is read again when its files have changed.
#[derive(Debug)]
struct Certificates {
    files: Files,
    known: Mutex<Known>,
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let mut known = self.known.lock();
        let changed = self.files.changed();
        if changed != known.changed {
            // Files that are being written are looked at again when they change again.
            known.changed = changed;
            match self.files.read() {
                Ok(certified) => {
                    tracing::info!(certificate = %self.files.certificate.display(), "read again");
                    known.certified = Arc::new(certified);
                }
                Err(error) => tracing::warn!(%error, "the certificate stays the one before"),
            }
        }
        Some(Arc::clone(&known.certified))
    }
}
