//! The token, secret and certificates of a process, and what it requires of its peers: from flags,
//! files and the environment.

use std::path::{Path, PathBuf};

use clap::Args;
use sanderling_command::credentials::{peers, secret, tls_failed};
use sanderling_command::failure::{Exit, Failure, FailureKind};
use sanderling_command::global::Global;
use sanderling_datanode::{EncryptionKey, KeyError};
use sanderling_protocol::message::Role;
use sanderling_transport::{Credentials, Secret, SecretError, Security, ServerTls};

/// What a server has.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Security options")]
pub(crate) struct ServerCredentials {
    /// A file with the cluster's secret, which only its owner may be able to read: callers need a
    /// token [default: callers are not authenticated]
    #[arg(long, value_name = "FILE", env = "SANDERLING_SECRET_FILE", hide_env_values = true)]
    pub(crate) secret_file: Option<PathBuf>,
}

/// What a process has that only calls servers.
#[derive(Debug, Clone, Args)]
#[command(mut_arg("secret_file", |arg| arg.help(MAKES_THE_TOKEN)))]
pub(crate) struct CallerCredentials {
    /// The secret.
    #[command(flatten)]
    held: ServerCredentials,
}

impl CallerCredentials {
    /// Reads the cluster's secret, if there is a file with it.
    ///
    /// # Errors
    /// The file cannot be read, or others can read it.
    pub(crate) fn secret(&self) -> Result<Option<Secret>, Failure> {
        self.held.secret_file.as_deref().map(secret).transpose()
    }
}

const MAKES_THE_TOKEN: &str = "A file with the cluster's secret, which only its owner may be able \
    to read: makes the token to show";

/// The certificate of an endpoint with TLS, and its key.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Security options")]
pub(crate) struct TlsFiles {
    /// The server's certificate, with those between it and its authority: serve TLS
    #[arg(
        long,
        value_name = "PEM",
        env = "SANDERLING_TLS_CERT",
        hide_env_values = true,
        requires = "tls_key"
    )]
    tls_cert: Option<PathBuf>,
    /// Its key, in a file that only its owner may be able to read
    #[arg(
        long,
        value_name = "PEM",
        env = "SANDERLING_TLS_KEY",
        hide_env_values = true,
        requires = "tls_cert"
    )]
    tls_key: Option<PathBuf>,
}

impl TlsFiles {
    /// Reads both files, if they are given.
    ///
    /// # Errors
    /// A file cannot be read, is none, or others can read the key.
    pub(crate) fn read(&self) -> Result<Option<ServerTls>, Failure> {
        let files = self.tls_cert.as_deref().zip(self.tls_key.as_deref());
        let read = |(certificate, key)| ServerTls::read(certificate, key);
        files.map(read).transpose().map_err(tls_failed)
    }
}

/// What a server has that listens.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Security options")]
#[command(mut_arg("tls_cert", |arg| arg.requires("tls_ca")))]
pub(crate) struct Guard {
    /// The secret.
    #[command(flatten)]
    pub(crate) held: ServerCredentials,
    /// The certificate and its key.
    #[command(flatten)]
    tls: TlsFiles,
    /// Listen beyond loopback although callers are not authenticated, or traffic is not encrypted
    #[arg(long)]
    pub(crate) allow_unauthenticated: bool,
}

/// How a key is made.
const MAKE_A_KEY: &str = "(umask 077; head -c 32 /dev/urandom | base64 > KEYFILE)";

/// Returns what a server has that listens.
///
/// # Errors
/// As [`held`].
pub(crate) fn guard(global: &Global, guard: &Guard) -> Result<Security, Failure> {
    let security = held(global, &guard.held)?;
    let (tls, allow_unauthenticated) = (guard.tls.read()?, guard.allow_unauthenticated);
    Ok(Security { tls, allow_unauthenticated, ..security })
}

/// Returns what a server shows that only calls others.
///
/// # Errors
/// As [`held`].
pub(crate) fn caller(
    global: &Global,
    has: &CallerCredentials,
    role: Role,
) -> Result<Credentials, Failure> {
    held(global, &has.held).map(|security| security.credentials(role))
}

/// Returns what a server has.
///
/// # Errors
/// A file cannot be read, or others can read it.
fn held(global: &Global, held: &ServerCredentials) -> Result<Security, Failure> {
    let secret = held.secret_file.as_deref().map(secret).transpose()?;
    Ok(Security { secret, peers: peers(global)?, ..Security::default() })
}

/// Reads the key that a datanode encrypts with.
///
/// # Errors
/// The file cannot be read, others can read it, or it has no key.
pub(crate) fn encryption_key(file: &Path) -> Result<EncryptionKey, Failure> {
    EncryptionKey::read(file).map_err(|error| {
        let (exit, next) = match &error {
            KeyError::File(SecretError::Open { path }) => {
                (Exit::Failure, format!("chmod 600 {}", path.display()))
            }
            _ => (Exit::Usage, MAKE_A_KEY.to_owned()),
        };
        Failure::caused(exit, FailureKind::BadKey, error).next(next)
    })
}
